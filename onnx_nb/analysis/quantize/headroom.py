"""What would overflow in float16, before anything is converted: the largest number of each value against its limit."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.formatting import count_text, number_text, quoted, share_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.quantize.calibration import FLOATS
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.run.capture import Capture
from onnx_nb.analysis.scopes.scopes import layer_of

HALF_LIMIT: Final = 65504.0
"""Largest number of float16."""
_OVERFLOW: Final = 65520.0
"""Smallest number that is rounded to infinity in it."""
_INFINITE: Final = 1e30
"""What masks add in place of −∞ is larger; it may become −∞ in float16."""


@dataclass(frozen=True, eq=False, repr=False)
class Headroom(Table, Displayed):
    """The largest number of each float value, against what float16 holds. Made by `headroom`."""

    model: Model
    _rows: tuple[dict[str, Any], ...]

    _columns = ("name", "op_type", "layer", "largest", "share", "overflows")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each value in order of execution: its largest magnitude, and the share of 65,504 that it is.

        ``overflows`` says whether float16 rounds it to infinity.
        """
        return [dict(row) for row in self._rows]

    def layers(self) -> list[dict[str, Any]]:
        """Return the row of the largest value of each layer, in order of execution, and how many overflow in it."""
        largest = operator.itemgetter("largest")
        layers = followers((row["layer"], row) for row in self._rows).values()
        return [{**max(rows, key=largest), "overflows": sum(row["overflows"] for row in rows)} for rows in layers]

    @property
    def overflows(self) -> tuple[str, ...]:
        """The values that float16 does not hold, in order of execution; without what masks add in place of −∞."""
        return tuple(row["name"] for row in self._rows if row["overflows"] and row["largest"] < _INFINITE)

    @property
    def message(self) -> str:
        """What overflows first, or what comes nearest to it."""
        names = self.overflows
        rest = [row for row in self._rows if row["largest"] < _INFINITE]
        row = next((row for row in rest if row["overflows"]), max(rest, key=lambda row: row["largest"], default=None))
        if row is None:
            return "Every value holds only what masks add in place of −∞."
        where = f" of {quoted(row['layer'])}" if row["layer"] else ""
        size = f"{row['largest']:,.0f}" if row["largest"] < 1e9 else number_text(row["largest"], 4)
        text = f"{quoted(row['name'])}{where} reaches {size}"
        if not names:
            return f"Nothing overflows in float16: {text} at most, {share_text(row['share'])} of what it holds."
        others = f", the first of {len(names):,} values that overflow" if len(names) > 1 else ""
        return f"{text}{others}; float16 ends at 65,504."

    def __repr__(self) -> str:
        return f"Headroom({self.message.removesuffix('.')})"

    def _still(self) -> Still:
        rows = self.layers()
        names = operator.itemgetter("layer", "name", "op_type")
        texts = [(*names(row), number_text(row["largest"], 4), number_text(row["share"], 3)) for row in rows]
        heads, alarms = ("Layer", "Value", "Op", "Largest", "÷ 65,504"), [row["overflows"] > 0 for row in rows]
        step = "`onnx_nb.edit(model).to_float16(feeds=feeds)` converts, and keeps in float32 what overflows."
        table = StillTable(heads, texts, "layer", 3, "", alarms)
        return Still(self.message, f"{count_text(len(self._rows), 'value')}.", (table,), (step,))


@known_arguments
def headroom(capture: Capture) -> Headroom:
    """Compare the largest number of each float value with what float16 holds, before anything is converted.

    Parameters
    ----------
    capture
        As `onnx_nb.capture` returns it; of a dataset, or of a text's every step:
        ``capture(package, decode(package, ids).all_feeds())``.

    Returns
    -------
    Headroom
        What a value reaches inside a fused node or inside a sum is not known: products are summed in float32 on a CPU,
        and in float16 on some accelerators.

    Raises
    ------
    CaptureError
        If no float value with finite numbers was captured.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.run.capture import capture
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Exp(x)  y = Log(a) }'
    >>> print(headroom(capture(onnx.parser.parse_model(text), {"x": np.array([1, 12], np.float32)})).message)
    'a' reaches 162,755; float16 ends at 65,504.
    """
    graph, rows = Graph.of(capture.model), []
    for row in capture.rows():
        if row["dtype"] in FLOATS and row["min"] is not None and np.isfinite((row["min"], row["max"])).all():
            largest, layer = max(-row["min"], row["max"]), layer_of(graph, capture.values[row["name"]])
            about = {"name": row["name"], "op_type": row["op_type"], "layer": layer, "largest": largest}
            rows.append({**about, "share": largest / HALF_LIMIT, "overflows": largest >= _OVERFLOW})
    if not rows:
        raise CaptureError("no float value with finite numbers was captured.", advice="Capture with other tensors=.")
    return Headroom(capture.model, tuple(rows))
