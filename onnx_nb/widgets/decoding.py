"""Two decoders in a cell, step by step: which token, which layer, and the operations of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.decoding_columns import decoder_columns, decoding_columns
from onnx_nb.analysis.view.result_columns import comparison_columns, detail_columns
from onnx_nb.drawing.html import Content, still_html
from onnx_nb.widgets._base import PackedWidget
from onnx_nb.widgets._channel import Call, Reply
from onnx_nb.widgets.comparison import DETAILS_IN_STATE

if TYPE_CHECKING:
    from onnx_nb.analysis.generate.compare_decoding import DecodingComparison
    from onnx_nb.widgets.protocol import DetailRequest, NameRequest


class DecodingPanel(PackedWidget):
    """The errors of all layers at each step, with the tokens of both sides, and the operations of a step.

    Parameters
    ----------
    comparison
        Result of `onnx_nb.compare_decoding`.
    **traits
        Traits of the widget by name.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import compare_decoding
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (int64[batch, seq] input_ids, float[batch, past, 4] past) => (float[batch, seq, 4] logits,
    ...   float[batch, total, 4] present) <float[4, 4] table = {0,1,0,0, 0,0,1,0, 0,0,0,1, 1,0,0,0}>
    ... { logits = Gather(table, input_ids)  present = Concat<axis = 1>(past, logits) }''')
    >>> panel = DecodingPanel(compare_decoding(model, model, [0, 1], 3), height=400)
    """

    comparison: DecodingComparison

    _subject = "comparison"
    _kind = traitlets.Unicode("decoding").tag(sync=True)

    height = traitlets.Int(560, min=240).tag(sync=True)
    """Height of the panel in CSS pixels."""

    drilled: Comparison | None = None
    """The comparison of the operations of the step that was last drilled into."""

    def __init__(self, comparison: DecodingComparison, **traits: Any) -> None:
        self.comparison = comparison
        parts = {"columns": decoding_columns(comparison).to_bytes()}
        super().__init__(comparison.message, parts, still_html(comparison), **traits)

    def _pack(self, name: str) -> Columns:
        return decoder_columns(self.comparison) if name == "graph" else super()._pack(name)

    def _content(self, **_options: Any) -> Content:
        self._part("graph")
        return super()._content()

    def _on_drill(self, call: Call[NameRequest]) -> Reply:
        step = call.request.name
        number = int(step) if step.isdecimal() and len(step) < 9 else -1
        self.drilled = self.comparison.drill(number, progress=call.progress)
        return Reply(buffers=[comparison_columns(self.drilled, details=DETAILS_IN_STATE).to_bytes()])

    def _on_detail(self, call: Call[DetailRequest]) -> Reply:
        row = call.request.row
        if self.drilled is None or row >= len(self.drilled.points):
            raise OnnxNbError(f"there is no point {row} of a step.", advice="Compare its operations again.")
        return Reply(buffers=[detail_columns(self.drilled.points[row]).to_bytes()])
