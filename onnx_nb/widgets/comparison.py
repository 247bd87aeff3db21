"""A comparison in a cell: errors against depth, all points in a table, and every detail of the chosen one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.compare.metrics import METRICS
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.pytorch.compare_torch import TorchComparison
from onnx_nb.analysis.view.inspection import found_in
from onnx_nb.analysis.view.result_columns import comparison_columns, detail_columns, notable
from onnx_nb.drawing.html import Content
from onnx_nb.widgets._base import LinkedWidget
from onnx_nb.widgets._channel import Call, Reply, Verb

if TYPE_CHECKING:
    import os

    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.drilldown import Reproduction
    from onnx_nb.widgets.graph import ModelGraph
    from onnx_nb.widgets.shown_overlay import ShownOverlay

DETAILS_IN_STATE, DETAILS = 500_000, 3_000_000
"""Maximum bytes of details of points in a saved notebook and in a page. In a notebook the browser requests others."""


class ComparisonPanel(LinkedWidget):
    """Errors of all points of a comparison: their start, their size, and the values that have them.

    Parameters
    ----------
    comparison
        Result of `onnx_nb.compare`, `onnx_nb.compare_torch` or `Debugger.comparison`.
    graph
        A graph of either side. Its boxes are colored by the errors, and a point that is chosen here is selected
        there, and vice versa.
    **traits
        Traits of the widget by name.

    Raises
    ------
    OnnxNbError
        If the graph has none of the tensors.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import compare
    >>> exact, rough = (onnx.parser.parse_model(f'''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2, 8] x) => (float[2, 8] y) {{ n = Elu<alpha = {alpha}>(x)  y = Tanh(n) }}''') for alpha in (1.0, 0.9))
    >>> panel = ComparisonPanel(compare(exact, rough))
    >>> panel.point, panel.selection
    ('n', [{'kind': 'tensor', 'name': 'n'}])
    >>> panel
    ComparisonPanel(Comparison(3 points of 'g' and 'g', 1 equal))
    """

    comparison: Comparison

    _subject = "comparison"
    _kind = traitlets.Unicode("comparison").tag(sync=True)
    _actions = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Actions on a point in addition to viewing it: ``"reproduce"``, ``"drill"``."""

    point = traitlets.Unicode().tag(sync=True)
    """Name of the chosen point, whose tensor is the `selection`; empty for none."""

    metric = traitlets.Enum(tuple(METRICS), default_value="rel_l2").tag(sync=True)
    """Metric that is plotted against depth and colors a graph."""

    height = traitlets.Int(560, min=240).tag(sync=True)
    """Height of the panel in CSS pixels."""

    reproduction: Reproduction | None = None
    """The submodel with torch's inputs and outputs that *Reproduce* last extracted."""

    drilled: Comparison | None = None
    """The comparison that *Drill down* last computed, operation by operation."""

    _overlay: ShownOverlay | None = None

    def __init__(self, comparison: Comparison, *, graph: ModelGraph | None = None, **traits: Any) -> None:
        self.comparison = comparison
        self._inside: dict[str, Comparison] = {}
        self._torch: Any = comparison  # only a `TorchComparison` has actions
        first = notable(comparison)
        alt = f"Comparison of {comparison.reference} and {comparison.candidate}: {comparison.message}"
        packed = comparison_columns(comparison, details=DETAILS_IN_STATE).to_bytes()
        given = {"point": "" if first is None else first.name} if not {"point", "selection"} & set(traits) else {}
        actions = []
        if isinstance(comparison, TorchComparison) and comparison.recording is not None:
            actions = ["reproduce", *(["drill"] if comparison.has_module else [])]
        super().__init__(alt, {"columns": packed}, _actions=actions, **given, **traits)
        self.graph = graph

    def to_html(self, path: str | os.PathLike[str], *, limit: int = DETAILS, progress: Progress | None = None) -> Path:
        """Write the panel as one file that needs neither kernel nor network; see `ModelGraph.to_html`.

        ``limit`` is the maximum bytes of histograms and other details. Those of the worst points are included, and the
        page reports which were omitted.
        """
        return self._written(path, limit=limit, progress=progress)

    def _content(self, **options: Any) -> Content:
        details = options.get("limit", DETAILS)
        columns = comparison_columns(self.comparison, details=details, progress=options.get("progress"))
        parts = {"points": columns.to_bytes()}
        return Content(f"{self.comparison.reference} and {self.comparison.candidate}", {}, "comparison", parts)

    def _verbs(self) -> dict[str, Verb]:
        off = {"reproduce", "drill"} - set(self._actions)
        return {name: verb for name, verb in super()._verbs().items() if name not in off}

    def _on_detail(self, call: Call) -> Reply:
        inside = call.text("inside", "")
        comparison = self._inside.get(inside) if inside else self.comparison
        if comparison is None:
            raise OnnxNbError(f"{quoted(inside)} was not drilled into.", advice="Press Drill down again.")
        row = call.number("row")
        if row >= len(comparison.points):
            raise OnnxNbError(f"there is no point {row}: the comparison has {len(comparison.points)}.")
        return Reply(buffers=[detail_columns(comparison.points[row]).to_bytes()])

    def _on_page(self, call: Call) -> Reply:
        return Reply(buffers=[self._page(progress=call.progress)])

    def _on_reproduce(self, call: Call) -> Reply:
        found = self.reproduction = self._torch.reproduce(call.text("name"), progress=call.progress)
        message = f"{found!r} is in panel.reproduction; .save(folder) writes a folder that shows the error."
        return Reply({"message": message})

    def _on_drill(self, call: Call) -> Reply:
        name = call.text("name")
        drilled = self._torch.drill(name, progress=call.progress)
        packed = comparison_columns(drilled, details=DETAILS_IN_STATE).to_bytes()
        self._inside[name] = self.drilled = drilled
        return Reply(buffers=[packed])

    @traitlets.observe("point")
    def _point_chosen(self, _change: Any) -> None:
        self.selection = self._of_point(self.point)

    @traitlets.observe("selection")
    def _tensor_selected(self, _change: Any) -> None:
        name = self._selected_name
        if self.selection != self._of_point(self.point):
            self.point = self.comparison[name].name if name in self.comparison else ""

    def _of_point(self, name: str) -> list[dict[str, Any]]:
        """Return the tensor of a point as a selection: the candidate's, else the reference's."""
        if name not in self.comparison:
            return []
        point = self.comparison[name]
        return [{"kind": "tensor", "name": point.candidate or point.reference}]

    @traitlets.observe("metric")
    def _color(self, _change: Any) -> None:
        if self.graph is not None:
            self._enter(self.graph)

    def _enter(self, graph: ModelGraph) -> None:
        if self.comparison.points:
            label = None if self.metric == "rel_l2" else self.metric
            self._overlay = graph.overlay(self.comparison, label=label)

    def _leave(self) -> None:
        if self._overlay is not None:
            self._overlay.remove()
        self._overlay = None

    def _found(self, model: Model) -> tuple[int, int]:
        points = self.comparison.points
        sides = ([point.candidate for point in points], [point.reference for point in points])
        return max(found_in(names, model) for names in sides)

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        if self.point not in self.comparison:
            return None
        values, point = Graph.of(model).value_names, self.comparison[self.point]
        found = (tensor for tensor in (point.candidate, point.reference) if tensor in values)
        return next(({"kind": "tensor", "name": tensor} for tensor in found), None)

    def _selected(self, tensor: str) -> dict[str, Any] | None:
        return next(iter(self._of_point(tensor)), None)
