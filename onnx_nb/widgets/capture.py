"""The values of a capture as a table in a cell: sort, filter, inspect one, and find it in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.view.inspection import found_in
from onnx_nb.analysis.view.result_columns import captured_entries, statistics_columns
from onnx_nb.drawing.html import still_html
from onnx_nb.widgets._base import LinkedWidget

if TYPE_CHECKING:
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.widgets.graph import ModelGraph


class CapturePanel(LinkedWidget):
    """A table of all values of a capture, with their statistics.

    Parameters
    ----------
    capture
        Result of `onnx_nb.capture`, or ``g.captured``.
    graph
        A graph of the same model. A value that is selected here is selected there, and vice versa.
    **traits
        Traits of the widget by name.

    Raises
    ------
    OnnxNbError
        If the graph has none of the values.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import capture
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> panel = CapturePanel(capture(onnx.parser.parse_model(text)))
    >>> panel.selection = [{"kind": "tensor", "name": "y"}]
    >>> panel
    CapturePanel(Capture(3 values of 2 nodes, feeds: random, x 2))
    """

    capture: Capture

    _kind = traitlets.Unicode("capture").tag(sync=True)

    height = traitlets.Int(420, min=160).tag(sync=True)
    """Height of the table in CSS pixels."""

    def __init__(self, capture: Capture, *, graph: ModelGraph | None = None, **traits: Any) -> None:
        self.capture = capture
        first = capture.nonfinite()
        stop = capture.stopped
        table = statistics_columns(
            captured_entries(capture),
            model=shortened(capture.model.name, 200),
            runs=", ".join(filter(None, (count_text(capture.feeds, "run"), capture.random))),
            stopped="" if stop is None else f"Stopped at {quoted(stop.name)}: nothing after it was run.",
            nonfinite=None if first is None else {"name": _row_of(first.name, capture), "message": first.message},
        )
        super().__init__(repr(capture), {"columns": table.to_bytes()}, still_html(capture), **traits)
        self.graph = graph

    def _found(self, model: Model) -> tuple[int, int]:
        return found_in(self.capture.names, model)

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        there = Graph.of(model)
        values = self.capture.values.__getitem__ if there is Graph.of(self.capture.model) else there.value
        try:
            value = values(self._selected_name)
        except (KeyError, OnnxNbError):
            return None
        return {"kind": "tensor", "name": there.value_names[value], "id": value}

    def _selection_of(self, tensor: str) -> list[dict[str, Any]]:
        return [{"kind": "tensor", "name": tensor}] if tensor in self.capture else []


def _row_of(name: str, capture: Capture) -> str:
    """Return the name of a captured value: of a weight, what the first node that reads it makes."""
    graph = Graph.of(capture.model)
    value = graph.value(name)
    readers = [] if name in capture.names or value < 0 else graph.consumers(value).tolist()
    results = (graph.value_names[v] for node in readers for v in graph.node_outputs(node).tolist() if v >= 0)
    return next((result for result in results if result in capture.names), name)
