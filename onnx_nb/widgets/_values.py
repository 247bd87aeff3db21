"""The numbers in a tensor for the inspector of a graph: statistics, pages, pictures, the array itself.

Weights are read from the file. Other tensors have numbers once they are captured: either all together, which keeps
statistics, or one at a time, which also keeps its array.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, read_tensor, weight_info
from onnx_nb.widgets._channel import Call, Reply, Verb
from onnx_nb.widgets._graphs import reference_of

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.operands import Operand
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.run.statistics import Statistics
    from onnx_nb.analysis.view.array_preview import Look
    from onnx_nb.widgets.protocol import CaptureRequest, CellsRequest, ValueRequest

LIMIT: Final = 8
"""Maximum number of tensors captured one by one whose arrays are kept: the most recently used."""
DEQUANTIZED: Final = 1 << 25
"""Maximum bytes of packed integers that are shown as the numbers they stand for, which take 50 times as many."""
DOWNLOAD: Final = 1 << 28
"""Maximum bytes of an array that is sent through the browser; the kernel saves larger ones."""


@dataclass
class Captured:
    """Captures on the same feeds. Other feeds start a new instance, so a running capture cannot interfere."""

    feeds: Any = None
    """Feeds; random values if ``None``."""
    shapes: dict[str, Any] = field(default_factory=dict)
    """Sizes of random values."""
    whole: Capture | None = None
    """The last capture of the whole model."""
    single: OrderedDict[int, Capture] = field(default_factory=OrderedDict)
    attention: dict[int, NDArray[Any]] = field(default_factory=dict)


class Values:
    """The known numbers of one model's tensors."""

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, Graph.opened(model)
        self.known = Captured()
        self._weights: dict[int, Statistics] = {}
        self._readers: dict[int, tuple[int, Operand] | None] = {}

    def verbs(self) -> dict[str, Verb]:
        return {"capture": self.capture, "statistics": self.statistics, "values": self.page, "npy": self.npy}

    def capture(self, call: Call[CaptureRequest]) -> Reply:
        """Capture one value and keep its array, or the statistics of all; reply with a sentence."""
        from onnx_nb.widgets.protocol import CaptureReply

        captures = self.known
        value = call.request.value
        if value is not None:
            self._capture_one(captures, value, call)
            return Reply(CaptureReply(message=f"Captured {quoted(self._name(value))}"))
        values = captures.whole = self._run(captures, call)
        feeds = values.random.replace("feeds: random", "random inputs") or "your feeds"
        ending = f"{feeds}, stopped at {quoted(values.stopped.name)}" if values.stopped else feeds
        counts = f"{count_text(len(values), 'value')} in {count_text(values.feeds, 'run')}"
        first = values.nonfinite()
        after = "All are finite; click a tensor, or a color below" if first is None else first.message.removesuffix(".")
        origin = None if first is None else self.graph.value(first.name)
        return Reply(CaptureReply(message=f"Captured {counts} on {ending}. {after}", origin=origin))

    def statistics(self, call: Call[ValueRequest]) -> Reply:
        """Reply with the statistics of a value; ``None`` if it has not been captured."""
        from onnx_nb.analysis.view.result_columns import NUMBERS
        from onnx_nb.widgets.protocol import StatisticsReply

        value, captures = call.request.value, self.known
        record = self._statistics(captures, value, call)
        if record is None:
            return Reply(None)
        numbers: dict[str, Any] = {name: _json(getattr(record, name)) for name in NUMBERS}
        counts = np.asarray(record.histogram.counts, int).tolist()
        edges = np.asarray(record.histogram.edges, float).tolist() if counts else []
        return Reply(StatisticsReply(**numbers, counts=counts, edges=edges, source=self._source(captures, value)))

    def page(self, call: Call[CellsRequest]) -> Reply:
        """Reply with some cells of a value and a picture around them; capture the value if necessary."""
        from onnx_nb.analysis.view.array_preview import looks, page, picture
        from onnx_nb.widgets.protocol import CellsReply, PictureReply

        request = call.request
        kinds = self._kinds(request.value)
        array = kinds.get(request.kind, next(iter(kinds.values())))(call)
        cells = vars(page(array, index=request.index, row=request.row, column=request.column))
        cells = cells | {"looks": looks(array.shape), "kinds": tuple(kinds)}
        image = picture(array, index=request.index, look=cast("Look", request.look))
        if image is None:
            return Reply(CellsReply(**cells, picture=None))
        tiles, height, width = image.pixels.shape[:3]
        ends = {"low": _json(image.low), "high": _json(image.high)}
        drawing = PictureReply(look=image.look, shape=(tiles, height, width), first=image.first, **ends)
        return Reply(CellsReply(**cells, picture=drawing), [image.pixels.tobytes()])

    def npy(self, call: Call[ValueRequest]) -> Reply:
        value = call.request.value
        array = self._array(value, call)
        name = self._name(value)
        if array.nbytes > DOWNLOAD:
            what = "onnx_nb.capture(g.model, g.feeds, keep=…)" if self.graph.weight(value) is None else "g.model.tensor"
            message = f"{quoted(name)} has {bytes_text(array.nbytes)}, too much to send through the browser."
            raise OnnxNbError(message, advice=f"Save it in the kernel: numpy.save(path, …) with {what}.")
        file = io.BytesIO()
        # types of ml_dtypes have no .npy code: their bytes are written, as numpy's tools do
        plain = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
        np.save(file, plain, allow_pickle=plain.dtype.kind == "O")
        return Reply(buffers=[file.getvalue()])

    def _run(self, captures: Captured, call: Call[Any], **options: Any) -> Capture:
        """Capture; raise if other feeds have been set in the meantime, as this capture is no longer accessible."""
        from onnx_nb.analysis.run.capture import capture

        result = capture(self.model, captures.feeds, shapes=captures.shapes, progress=call.progress, **options)
        if captures is not self.known:
            message = "the feeds were changed while the model ran."
            raise OnnxNbError(message, advice="Capture again to run on the new ones.")
        return result

    def _capture_one(self, captures: Captured, value: int, call: Call[Any]) -> Capture:
        graph, name = self.graph, self._name(value)
        subgraph = int(graph.value_subgraph[value])
        if subgraph >= len(graph.plain.subgraphs):
            message = f"{quoted(name)} is inside {graph.subgraph_label(subgraph)}, which runs as a whole."
            advice = "Capture an output of the call, or load onnx.inliner.inline_local_functions(model.to_proto())."
            raise OnnxNbError(message, advice=advice)
        result = self._run(captures, call, tensors=[name], keep=[name], bodies=subgraph != 0)
        if name not in result:
            message = f"{quoted(name)} has no value: {graph.subgraph_label(subgraph)} did not run on these feeds."
            raise OnnxNbError(message, advice="Set other feeds: g.feeds = …")
        captures.single[value] = result
        while len(captures.single) > LIMIT:
            captures.single.popitem(last=False)
        return result

    def _statistics(self, captures: Captured, value: int, call: Call[Any]) -> Statistics | None:
        name = self._name(value)
        if self.graph.weight(value) is not None:
            if value not in self._weights:
                from onnx_nb.analysis.run.statistics import Statistics

                array = self._array(value, call)
                message = f"Reading {bytes_text(array.nbytes)}…"
                self._weights[value] = Statistics.of(array, progress=lambda fraction: call.progress(fraction, message))
            return self._weights[value]
        source = captures.single.get(value) or captures.whole
        if source is None and self.graph.constant_values[value] and self.graph.value_subgraph[value] == 0:
            source = self._capture_one(captures, value, call)  # computed from constants: needs no feeds
        return source.statistics(name) if source is not None and name in source else None

    def _array(self, value: int, call: Call[Any]) -> NDArray[Any]:
        return next(iter(self._kinds(value).values()))(call)

    def _kinds(self, value: int) -> dict[str, Callable[[Call[Any]], NDArray[Any]]]:
        """Return what there is to see of a value, by name: first its numbers, then what else is known of it."""
        from onnx_nb.analysis.compare.operands import block_reader
        from onnx_nb.analysis.compare.quantization import block_errors
        from onnx_nb.analysis.run.attention import ATTENTIONS

        graph, name = self.graph, self._name(value)
        weight = graph.weight(value)
        if weight is None:
            node = int(graph.producer[value])
            kinds: dict[str, Callable[[Call[Any]], NDArray[Any]]] = {"Values": lambda call: self._captured(value, call)}
            if node >= 0 and graph.op_type(node) in ATTENTIONS and graph.node_outputs(node)[0] == value:
                kinds["Attention"] = lambda call: self._attention(value, call)
            return kinds
        if value not in self._readers:
            nbytes = weight_info(name, weight).nbytes
            self._readers = {value: block_reader(graph, value) if nbytes <= DEQUANTIZED else None}
        kinds = {"Packed": lambda _call: read_tensor(self.model, weight, name)}
        if (reader := self._readers[value]) is None:
            return kinds
        if (reference := reference_of(self.model)) is not None:
            kinds["Error by block"] = lambda _call: block_errors(graph, *reader, reference)
        return {"Dequantized": lambda _call: reader[1].array, **kinds}

    def _attention(self, value: int, call: Call[Any]) -> NDArray[Any]:
        if value not in (captures := self.known).attention:
            inputs = self.graph.nodes[self.graph.producer[value]].input
            names = [name for name in inputs if name and name not in self.model.initializers]
            result = self._run(captures, call, tensors=names, keep=names)
            captures.attention = {value: result.attention(self._name(value))}
        return captures.attention[value]

    def _captured(self, value: int, call: Call[Any]) -> NDArray[Any]:
        name = self._name(value)
        captures = self.known
        source = captures.single.get(value) or self._capture_one(captures, value, call)
        captures.single.move_to_end(value)
        value_ = source[name]
        if isinstance(value_, np.ndarray):
            return value_
        raise OnnxNbError(f"{quoted(name)} is a sequence or an optional value, not one array.")

    def _source(self, captures: Captured, value: int) -> str:
        """Return the source of the numbers, in words; empty for a weight as it is stored, and for a constant."""
        if reader := self._readers.get(value):
            return f"dequantized to {shape_text(reader[1].array.shape)}, a scale for each {reader[1].granularity}"
        if self.graph.weight(value) is not None or self.graph.constant_values[value]:
            return ""
        source = captures.single.get(value) or captures.whole
        inputs = "random inputs" if captures.feeds is None else "your feeds"
        return f"captured, {count_text(1 if source is None else source.feeds, 'run')} on {inputs}"

    def _name(self, value: int) -> str:
        if not 0 <= value < self.graph.value_count:
            raise OnnxNbError(f"the model has no tensor number {value}.", advice="Show the model again.")
        return self.graph.value_names[value]


def _json(number: float) -> float | str:
    """Return a number as JSON holds it: as text if it is not finite."""
    return number if np.isfinite(number) else str(number)
