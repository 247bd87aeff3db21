"""The numbers in a tensor for the inspector of a graph: statistics, pages, pictures, the array itself.

Weights are read from the file. Other tensors have numbers once they are captured: either all together, which keeps
statistics, or one at a time, which also keeps its array.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.widgets._channel import Call, Reply, Verb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.run.statistics import Statistics
    from onnx_nb.analysis.view.array_preview import Look

KEPT: Final = 8
"""Maximum number of tensors captured one by one whose arrays are kept: the most recently used."""
DOWNLOAD: Final = 1 << 28
"""Maximum bytes of an array that is sent through the browser; the kernel saves larger ones."""


@dataclass
class Captured:
    """Captures on the same feeds. Other feeds start a new instance, so a running capture cannot interfere."""

    feeds: Any = None
    """Feeds; random values if ``None``."""
    whole: Capture | None = None
    """The last capture of the whole model."""
    single: OrderedDict[int, Capture] = field(default_factory=OrderedDict)


class Values:
    """The known numbers of one model's tensors."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.known = Captured()
        self._weights: dict[int, Statistics] = {}

    def verbs(self) -> dict[str, Verb]:
        """Return the requests that the browser may send, by name."""
        return {"capture": self.capture, "statistics": self.statistics, "values": self.page, "npy": self.npy}

    def capture(self, call: Call) -> Reply:
        """Capture one value and keep its array, or the statistics of all; reply with a sentence."""
        known = self.known
        if call.args.get("value") is not None:
            value = call.number("value")
            self._capture_one(known, value, call)
            return Reply({"message": f"Captured {quoted(self._name(value))}"})
        made = known.whole = self._run(known, call)
        runs = f"{count_text(made.feeds, 'run')} on {'random inputs' if known.feeds is None else 'your feeds'}"
        stopped = f", stopped at {quoted(made.stopped.name)}" if made.stopped else ""
        text = f"Captured {count_text(len(made), 'value')} in {runs}{stopped}. Click a tensor, or choose a color"
        return Reply({"message": text})

    def statistics(self, call: Call) -> Reply:
        """Reply with the statistics of a value; ``None`` if it has not been captured."""
        from onnx_nb.analysis.view.result_columns import NUMBERS

        value, known = call.number("value"), self.known
        found = self._statistics(known, value, call)
        if found is None:
            return Reply(None)
        numbers = {
            name: number if isinstance(number := getattr(found, name), int) or np.isfinite(number) else str(number)
            for name in NUMBERS
        }
        counts = np.asarray(found.histogram.counts, int).tolist()
        edges = np.asarray(found.histogram.edges, float).tolist() if counts else []
        return Reply({**numbers, "counts": counts, "edges": edges, "source": self._source(known, value)})

    def page(self, call: Call) -> Reply:
        """Reply with some cells of a value and a picture around them; capture the value if necessary."""
        from onnx_nb.analysis.view.array_preview import looks, page, picture

        index, row, column = call.numbers("index"), call.number("row", 0), call.number("column", 0)
        look = cast("Look", call.text("look", "slice"))
        array = self._array(call.number("value"), call)
        shown_page = page(array, index=index, row=row, column=column)
        drawn = picture(array, index=index, look=look)
        drawing = {} if drawn is None else {"picture": drawn.to_json()}
        about = {**shown_page.to_json(), "looks": looks(array.shape), **drawing}
        return Reply(about, [] if drawn is None else [drawn.pixels.tobytes()])

    def npy(self, call: Call) -> Reply:
        """Reply with a value as the content of a .npy file."""
        value = call.number("value")
        array = self._array(value, call)
        name = self._name(value)
        if array.nbytes > DOWNLOAD:
            what = "g.model.tensor" if self._is_weight(value) else "onnx_nb.capture(g.model, g.feeds, keep=…)"
            message = f"{quoted(name)} has {bytes_text(array.nbytes)}, too much to send through the browser."
            raise OnnxNbError(message, advice=f"Save it in the kernel: numpy.save(path, …) with {what}.")
        file = io.BytesIO()
        # types of ml_dtypes have no .npy code: their bytes are written, as numpy's tools do
        plain = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
        np.save(file, plain, allow_pickle=plain.dtype.kind == "O")
        return Reply({"name": name}, [file.getvalue()])

    def _run(self, known: Captured, call: Call, **options: Any) -> Capture:
        """Capture; raise if other feeds have been set in the meantime, as this capture is no longer accessible."""
        from onnx_nb.analysis.run.capture import capture

        made = capture(self.model, known.feeds, progress=call.progress, **options)
        if known is not self.known:
            message = "the feeds were changed while the model ran."
            raise OnnxNbError(message, advice="Capture again to run on the new ones.")
        return made

    def _capture_one(self, known: Captured, value: int, call: Call) -> Capture:
        graph = Graph.opened(self.model)
        name = self._name(value)
        if graph.value_subgraph[value] >= len(graph.plain.subgraphs):
            label = graph.subgraph_label(int(graph.value_subgraph[value]))
            message = f"{quoted(name)} is inside {label}, which runs as a whole."
            advice = "Capture an output of the call, or load onnx.inliner.inline_local_functions(model.to_proto())."
            raise OnnxNbError(message, advice=advice)
        if graph.value_subgraph[value] != 0:
            owner = graph.node_label(graph.subgraphs[graph.value_subgraph[value]].owner_node)
            message = f"{quoted(name)} is inside a body of {owner}, which may run many times, or not at all."
            raise OnnxNbError(message, advice="Use onnx_nb.capture(g.model, g.feeds, bodies=True, keep=…).")
        made = known.single[value] = self._run(known, call, tensors=[name], keep=[name])
        while len(known.single) > KEPT:
            known.single.popitem(last=False)
        return made

    def _statistics(self, known: Captured, value: int, call: Call) -> Statistics | None:
        name = self._name(value)
        if self._is_weight(value):
            if value not in self._weights:
                from onnx_nb.analysis.run.statistics import Statistics
                from onnx_nb.analysis.view.array_preview import weight

                array = weight(Graph.opened(self.model), value)
                message = f"Reading {bytes_text(array.nbytes)}…"
                self._weights[value] = Statistics.of(array, progress=lambda done: call.progress(done, message))
            return self._weights[value]
        found = known.single.get(value) or known.whole
        graph = Graph.opened(self.model)
        if found is None and graph.constant_values[value] and graph.value_subgraph[value] == 0:
            found = self._capture_one(known, value, call)  # computed from constants: needs no feeds
        return found.statistics(name) if found is not None and name in found else None

    def _array(self, value: int, call: Call) -> NDArray[Any]:
        name = self._name(value)
        if self._is_weight(value):
            from onnx_nb.analysis.view.array_preview import weight

            return weight(Graph.opened(self.model), value)
        known = self.known
        captured = known.single.get(value) or self._capture_one(known, value, call)
        known.single.move_to_end(value)
        found = captured[name]
        if isinstance(found, np.ndarray):
            return found
        raise OnnxNbError(f"{quoted(name)} is a sequence or an optional value, not one array.")

    def _source(self, known: Captured, value: int) -> str:
        """Return the source of the numbers, in words."""
        if self._is_weight(value):
            return "weight"
        if Graph.opened(self.model).constant_values[value]:
            return "constant"
        found = known.single.get(value) or known.whole
        inputs = "random inputs" if known.feeds is None else "your feeds"
        return f"captured, {count_text(1 if found is None else found.feeds, 'run')} on {inputs}"

    def _is_weight(self, value: int) -> bool:
        return bool(Graph.opened(self.model).value_kind[value] == INITIALIZER)

    def _name(self, value: int) -> str:
        graph = Graph.opened(self.model)
        if not 0 <= value < graph.value_count:
            raise OnnxNbError(f"the model has no tensor number {value}.", advice="Show the model again.")
        return graph.value_names[value]
