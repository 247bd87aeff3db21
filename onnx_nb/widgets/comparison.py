"""What a comparison found, in a cell: errors against depth, all points in a table, and one in every detail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.compare.metrics import METRICS
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.pytorch.compare_torch import TorchComparison
from onnx_nb.analysis.view.comparison_table import columns_of, detail_of, notable, tensor_at
from onnx_nb.analysis.view.selection import found_in
from onnx_nb.drawing.html import DETAILS, comparison_page, write_page
from onnx_nb.widgets._base import LinkedWidget
from onnx_nb.widgets._channel import Call, Channel, Reply
from onnx_nb.widgets._snapshot import Picture
from onnx_nb.widgets.graph import COLUMNS_IN_STATE

if TYPE_CHECKING:
    import os

    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.drilldown import Isolated
    from onnx_nb.widgets.graph import ModelGraph

DETAILS_IN_STATE = 500_000
"""Bytes that details of points may take in a saved notebook; those of others are asked for."""


class ComparisonPanel(LinkedWidget):
    """Errors of all points of a comparison: where they begin, how large they are, and of which values.

    Parameters
    ----------
    comparison
        What `onnx_nb.compare`, `onnx_nb.compare_torch` or `Debugger.comparison` gave.
    graph
        A graph of either side: its boxes are colored by the errors, and a point chosen here is selected there, and
        the other way round. ``panel.graph = …`` takes another, or ``None``.
    height
        Height in pixels.
    theme
        ``"auto"`` follows the notebook.

    Raises
    ------
    OnnxNbError
        If the graph has none of the tensors.
    TypeError
        If an argument is not known.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import compare
    >>> exact, rough = (onnx.parser.parse_model(f'''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2, 8] x) => (float[2, 8] y) {{ n = Elu<alpha = {alpha}>(x)  y = Tanh(n) }}''') for alpha in (1.0, 0.9))
    >>> panel = ComparisonPanel(compare(exact, rough))
    >>> panel.selection
    'n'
    >>> panel
    ComparisonPanel(Comparison(3 points of 'g' and 'g', 1 equal))
    """

    comparison: Comparison

    _kind = traitlets.Unicode("comparison").tag(sync=True)
    _columns = traitlets.Bytes(None, allow_none=True).tag(sync=True)
    _verbs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """What can be done with a point besides looking at it."""

    metric = traitlets.Enum(tuple(METRICS), default_value="rel_l2").tag(sync=True)
    """Which of the metrics is drawn against depth, and colors a graph."""

    height = traitlets.Int(560, min=240).tag(sync=True)
    """Height of the panel in CSS pixels."""

    def __init__(self, comparison: Comparison, *, graph: ModelGraph | None = None, **traits: Any) -> None:
        self.comparison = comparison
        self._colored: Any = None
        self.isolated: Isolated | None = None
        """What *Isolate* cut out last: the submodel and what torch gave to it."""
        self._inside: dict[str, Comparison] = {}
        self.drilled: Comparison | None = None
        """What *Drill down* compared last, operation by operation."""
        packed = columns_of(comparison, details=DETAILS_IN_STATE).to_bytes()
        self._packed = packed
        first = notable(comparison)
        picture = Picture(f"Comparison of {comparison.reference} and {comparison.candidate}: {comparison.message}")
        given = {"selection": first.name if first is not None else "", **traits}
        verbs = []
        if isinstance(comparison, TorchComparison) and comparison.recording is not None:
            verbs = ["isolate", *(["drill"] if comparison.run is not None else [])]
        small = packed if len(packed) <= COLUMNS_IN_STATE else None
        super().__init__(picture, _columns=small, _verbs=verbs, **given)
        self._channel = Channel(
            self,
            {
                "columns": self._answer_columns,
                "detail": self._answer_detail,
                "page": self._answer_page,
                "picture": self._answer_picture,
                **({"isolate": self._answer_isolate} if "isolate" in verbs else {}),
                **({"drill": self._answer_drill} if "drill" in verbs else {}),
            },
        )
        self.graph = graph

    def __repr__(self) -> str:
        return f"ComparisonPanel({self.comparison!r})"

    def to_html(self, path: str | os.PathLike[str], *, limit: int = DETAILS, progress: Progress | None = None) -> Path:
        """Write the panel as one file that needs neither kernel nor network.

        Parameters
        ----------
        path
            Where to write; the folder is made if it is not there.
        limit
            Bytes that histograms and the like may take; those of the worst points are kept, and the page says what
            was left out.
        progress
            Called with the part done and what is read; what it raises ends the work, and nothing is written.

        Raises
        ------
        OnnxNbError
            If the file cannot be written.
        """
        return write_page(path, comparison_page(self.comparison, limit=limit, progress=progress))

    def _answer_columns(self, _call: Call) -> Reply:
        return Reply(buffers=[self._packed])

    def _answer_detail(self, call: Call) -> Reply:
        inside = str(call.args.get("inside") or "")
        comparison = self._inside.get(inside) if inside else self.comparison
        if comparison is None:
            raise OnnxNbError(f"{quoted(inside)} was not drilled into.", advice="Press Drill down again.")
        row = int(call.args.get("row") or 0)
        if not 0 <= row < len(comparison.points):
            raise OnnxNbError(f"there is no point {row}: the comparison has {len(comparison.points)}.")
        return Reply(buffers=[detail_of(comparison.points[row]).to_bytes()])

    def _answer_page(self, call: Call) -> Reply:
        return Reply(buffers=[comparison_page(self.comparison, progress=call.progress).encode()])

    def _answer_isolate(self, call: Call) -> Reply:
        self.isolated = self._torch().isolate(str(call.args.get("name")), progress=call.progress)
        return Reply(
            {"message": f"{self.isolated!r} is in panel.isolated; .save(folder) makes a folder that shows the error."}
        )

    def _answer_drill(self, call: Call) -> Reply:
        drilled = self._torch().drill(str(call.args.get("name")), progress=call.progress)
        packed = columns_of(drilled, details=DETAILS_IN_STATE).to_bytes()
        self._inside[str(call.args.get("name"))] = self.drilled = drilled
        return Reply(buffers=[packed])

    def _torch(self) -> TorchComparison:
        assert isinstance(self.comparison, TorchComparison)  # noqa: S101 - the verbs that ask are there for it alone
        return self.comparison

    @traitlets.observe("metric")
    def _color(self, _change: Any) -> None:
        if self.graph is not None:
            self._enter(self.graph)

    def _enter(self, graph: ModelGraph) -> None:
        if self.comparison.points:
            graph.overlay(self.comparison, label=None if self.metric == "rel_l2" else self.metric)
            self._colored = graph._overlay  # noqa: SLF001 - a widget of ours, to know it again

    def _leave(self, graph: ModelGraph) -> None:
        # a person may have chosen other colors since
        if self._colored is not None and graph._overlay is self._colored:  # noqa: SLF001
            graph.overlay(None)
        self._colored = None

    def _found(self, model: Model) -> tuple[int, int]:
        points = self.comparison.points
        sides = ([point.candidate for point in points], [point.reference for point in points])
        return max(found_in(names, model) for names in sides)

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        name = tensor_at(self.comparison, self.selection, model)
        return None if name is None else {"kind": "tensor", "name": name}

    def _named(self, tensor: str) -> str | None:
        return self.comparison[tensor].name if tensor in self.comparison else None
