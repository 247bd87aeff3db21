"""What the graph's inspector asks about the numbers in a tensor: statistics, pages, pictures, the array itself.

Weights are looked at as they lie in the file. Other tensors have numbers once they were captured: all of them together,
of which statistics are kept, or one by itself, whose array is kept too.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, quoted
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.run.capture import Capture, capture
from onnx_nb.analysis.run.statistics import Statistics
from onnx_nb.analysis.view.array_preview import looks, page, picture, weight
from onnx_nb.analysis.view.inspection import figures
from onnx_nb.analysis.view.overlays import Overlay, overlay
from onnx_nb.widgets._channel import Reply

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.widgets._channel import Call

KEPT: Final = 8
"""So many tensors captured by themselves are kept, the last looked at."""
DOWNLOAD: Final = 1 << 28
"""A larger array is saved by the kernel, not sent through the browser."""


class Values:
    """The numbers of one model's tensors, as far as they are known.

    Parameters
    ----------
    model
        The model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.feeds: Any = None
        """What captures run on; random values if ``None``."""
        self.captured: Capture | None = None
        """Of the whole model."""
        self._single: OrderedDict[int, Capture] = OrderedDict()
        self._weights: dict[int, Statistics] = {}

    def forget(self) -> None:
        """Let go of what was captured, for other feeds."""
        self.captured = None
        self._single.clear()

    def figures(self, call: Call) -> Reply:
        """Answer what a node or scope costs, and took in the last capture."""
        kind, number = str(call.args.get("kind")), int(call.args.get("id") or 0)
        times = None if self.captured is None else overlay(self.model, self.captured, label="seconds")
        return Reply(figures(self.model, kind, number, times))

    def capture(self, call: Call) -> Reply:
        """Capture one value and keep its array, or all without; answer how many are known."""
        given = call.args.get("value")
        if given is None:
            self.captured = capture(self.model, self.feeds, progress=call.progress)
            return Reply({"message": repr(self.captured)})
        self._captured_alone(int(given), call)
        return Reply({"message": f"captured {self._name(int(given))}"})

    def statistics(self, call: Call) -> Reply:
        """Answer the statistics of a value; ``None`` if nothing is known of it."""
        value = int(call.args.get("value") or 0)
        found = self._statistics(value, call)
        if found is None:
            return Reply(None)
        numbers = {
            name: _plain(getattr(found, name))
            for name in ("count", "nan", "posinf", "neginf", "zeros", "min", "max", "mean", "std")
        }
        counts = [int(count) for count in found.histogram.counts]
        edges = [float(edge) for edge in found.histogram.edges] if counts else []
        return Reply({**numbers, "counts": counts, "edges": edges, "source": self._source(value)})

    def page(self, call: Call) -> Reply:
        """Answer some cells of a value and a picture around them; captures it if it was not yet."""
        value, args = int(call.args.get("value") or 0), call.args
        array = self._array(value, call)
        index = [int(number) for number in args.get("index") or []]
        shown_page = page(array, index=index, row=int(args.get("row") or 0), column=int(args.get("column") or 0))
        value_page = {**shown_page.to_json(), "looks": looks(array.shape)}
        drawn = picture(array, index=index, look=args.get("look") or "slice")
        if drawn is None:
            return Reply(value_page)
        return Reply({**value_page, "picture": drawn.to_json()}, [drawn.pixels.tobytes()])

    def npy(self, call: Call) -> Reply:
        """Answer a value as the content of a .npy file."""
        value = int(call.args.get("value") or 0)
        array = self._array(value, call)
        name = self._name(value)
        if array.nbytes > DOWNLOAD:
            what = "g.model.tensor" if self._is_weight(value) else "onnx_nb.capture(g.model, g.feeds, keep=…)"
            message = f"{quoted(name)} has {bytes_text(array.nbytes)}, too much to send through the browser."
            raise OnnxNbError(message, advice=f"Save it in the kernel: numpy.save(path, …) with {what}.")
        file = io.BytesIO()
        # types of ml_dtypes have no .npy code of their own: their bytes are written, as numpy's tools do
        plain = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
        np.save(file, plain, allow_pickle=plain.dtype.kind == "O")
        return Reply({"name": name}, [file.getvalue()])

    def _captured_alone(self, value: int, call: Call) -> Capture:
        graph = Graph.opened(self.model)
        name = self._name(value)
        if graph.value_subgraph[value] >= len(graph.plain.subgraphs):
            label = graph.subgraph_label(int(graph.value_subgraph[value]))
            message = f"{quoted(name)} lies inside {label}, which runs as a whole."
            advice = "Capture what the call gives, or load onnx.inliner.inline_local_functions(model.to_proto())."
            raise OnnxNbError(message, advice=advice)
        if graph.value_subgraph[value] != 0:
            owner = graph.node_label(graph.subgraphs[graph.value_subgraph[value]].owner_node)
            message = f"{quoted(name)} lies inside a body of {owner}, which may run many times, or not at all."
            raise OnnxNbError(message, advice="Use onnx_nb.capture(g.model, g.feeds, bodies=True, keep=…).")
        made = capture(self.model, self.feeds, tensors=[name], keep=[name], progress=call.progress)
        self._single[value] = made
        while len(self._single) > KEPT:
            self._single.popitem(last=False)
        return made

    def _statistics(self, value: int, call: Call) -> Statistics | None:
        name = self._name(value)
        if self._is_weight(value):
            if value not in self._weights:
                array = weight(Graph.opened(self.model), value)
                message = f"Reading {bytes_text(array.nbytes)}…"
                told = lambda done: call.progress(done, message)  # noqa: E731
                self._weights[value] = Statistics.of(array, progress=told)
            return self._weights[value]
        known = self._single.get(value) or self.captured
        graph = Graph.opened(self.model)
        if known is None and graph.constant_values[value] and graph.value_subgraph[value] == 0:
            known = self._captured_alone(value, call)  # from constants alone: nobody need ask for it
        return known.statistics(name) if known is not None and name in known else None

    def _array(self, value: int, call: Call) -> NDArray[Any]:
        name = self._name(value)
        if self._is_weight(value):
            return weight(Graph.opened(self.model), value)
        known = self._single.get(value) or self._captured_alone(value, call)
        self._single.move_to_end(value)
        found = known[name]
        if isinstance(found, np.ndarray):
            return found
        raise OnnxNbError(f"{quoted(name)} is a sequence or an optional value, not one array.")

    def _source(self, value: int) -> str:
        """Return where the numbers come from."""
        if self._is_weight(value):
            return "weight"
        known = self._single.get(value) or self.captured
        if Graph.opened(self.model).constant_values[value]:
            return "constant"
        runs = 1 if known is None else known.feeds
        inputs = "random inputs" if self.feeds is None else "your feeds"
        return f"captured, {runs} run{'' if runs == 1 else 's'} on {inputs}"

    def _is_weight(self, value: int) -> bool:
        return bool(Graph.opened(self.model).value_kind[value] == INITIALIZER)

    def _name(self, value: int) -> str:
        graph = Graph.opened(self.model)
        if not 0 <= value < graph.value_count:
            raise OnnxNbError(f"the model has no tensor number {value}.", advice="Show the model again.")
        return graph.value_names[value]


def _plain(number: float) -> float | str:
    """Return a number as JSON can hold it."""
    return number if isinstance(number, int) or np.isfinite(number) else str(number)


def packed_overlay(made: Overlay) -> tuple[dict[str, Any], list[bytes]]:
    """Return numbers to color by as a reply holds them: what they are, and those of nodes and of scopes."""
    about = {"label": made.label, "scale": made.scale, "reduce": made.reduce, "unmatched": len(made.unmatched)}
    return about, [column.astype("<f8").tobytes() for column in (made.nodes, made.groups)]
