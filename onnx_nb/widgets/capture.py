"""What a capture saw, as a table in a cell: sort, filter, look at one value, and go to it in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.view.capture_table import of_capture
from onnx_nb.analysis.view.selection import found_in
from onnx_nb.drawing.static_html import capture_still
from onnx_nb.widgets._base import LinkedWidget
from onnx_nb.widgets._channel import Call, Channel, Reply
from onnx_nb.widgets._snapshot import Picture
from onnx_nb.widgets.graph import COLUMNS_IN_STATE

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.widgets.graph import ModelGraph


class CapturePanel(LinkedWidget):
    """A table of all values of a capture, with their statistics.

    Parameters
    ----------
    capture
        What `onnx_nb.capture` gave, or ``g.captured``.
    graph
        A graph of the same model: a value chosen here is selected there, and the other way round. ``panel.graph = …``
        takes another, or ``None``.
    height
        Height in pixels.
    theme
        ``"auto"`` follows the notebook.

    Raises
    ------
    OnnxNbError
        If the graph has none of the values.
    TypeError
        If an argument is not known.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import capture
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> panel = CapturePanel(capture(onnx.parser.parse_model(text)))
    >>> panel.selection = "y"
    >>> panel
    CapturePanel(Capture(3 values of 2 nodes))
    """

    capture: Capture

    _kind = traitlets.Unicode("capture").tag(sync=True)
    _digest = traitlets.Bytes(None, allow_none=True).tag(sync=True)

    height = traitlets.Int(420, min=160).tag(sync=True)
    """Height of the table in CSS pixels."""

    def __init__(self, capture: Capture, *, graph: ModelGraph | None = None, **traits: Any) -> None:
        self.capture = capture
        first = capture.nonfinite()
        stopped = capture.stopped
        self._packed = (
            of_capture(capture)
            .columns(
                model=shortened(capture.model.name, 200),
                runs=f"{capture.feeds} run{'' if capture.feeds == 1 else 's'}",
                stopped="" if stopped is None else f"Stopped at {quoted(stopped.name)}: nothing after it was run.",
                nonfinite=None if first is None else {"name": first.name, "message": first.message},
            )
            .to_bytes()
        )
        small = self._packed if len(self._packed) <= COLUMNS_IN_STATE else None
        super().__init__(Picture(repr(capture), capture_still(capture)), _digest=small, **traits)
        self._channel = Channel(self, {"columns": self._answer_columns})
        self.graph = graph

    def __repr__(self) -> str:
        return f"CapturePanel({self.capture!r})"

    def _answer_columns(self, _call: Call) -> Reply:
        return Reply(buffers=[self._packed])

    def _found(self, model: Model) -> tuple[int, int]:
        return found_in(self.capture.names, model)

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        there = Graph.of(model)
        try:
            same = there is Graph.of(self.capture.model)
            value = self.capture.values[self.selection] if same else there.value(self.selection)
        except (KeyError, OnnxNbError):
            return None  # the other graph has no such tensor
        return {"kind": "tensor", "name": there.value_names[value], "id": value}

    def _named(self, tensor: str) -> str | None:
        return tensor if tensor in self.capture else None
