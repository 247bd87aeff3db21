"""A comparison in a cell: errors against depth, all points in a table, and every detail of the chosen one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.compare.metrics import METRICS
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, decibels_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.pytorch.compare_torch import TorchComparison
from onnx_nb.analysis.pytorch.drilldown import Reproduction
from onnx_nb.analysis.quantize.sensitivity import effects
from onnx_nb.analysis.quantize.what_if import ExclusionCurve, WhatIf
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.inspection import found_in
from onnx_nb.analysis.view.quantizer_columns import curve_steps
from onnx_nb.analysis.view.result_columns import comparison_columns, detail_columns, notable
from onnx_nb.drawing.html import Content
from onnx_nb.widgets._channel import Call, Reply, Verb
from onnx_nb.widgets._graphs import ChartWidget

if TYPE_CHECKING:
    from onnx_nb.widgets.graph import ModelGraph
    from onnx_nb.widgets.protocol import DetailRequest, FloatRequest, NameRequest, TargetQualityRequest
    from onnx_nb.widgets.shown_overlay import ShownOverlay

DETAILS_IN_STATE, DETAILS = 500_000, 3_000_000
"""Maximum bytes of details of points in a saved notebook and in a page. In a notebook the browser requests others."""


class ComparisonPanel(ChartWidget):
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
    ComparisonPanel(Comparison(3 points of 'g' and 'g', 1 equal, random feeds))
    """

    comparison: Comparison

    _kind = traitlets.Unicode("comparison").tag(sync=True)
    _actions = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """More than the tables: ``"reproduce"`` and ``"drill"`` on a point, ``"float"`` on a region, ``"range"``."""

    _steps = traitlets.List(traitlets.Dict()).tag(sync=True)
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

    curve: ExclusionCurve | None = None
    """The regions that were put back to float, in this order, and what each gained: ``panel.curve.nodes()`` are names
    for ``quantize_static(nodes_to_exclude=…)`` and `mixed`."""

    def __init__(self, comparison: Comparison, *, graph: ModelGraph | None = None, **traits: Any) -> None:
        self.comparison = comparison
        self._what_if = WhatIf(comparison)
        self._inside: dict[str, Comparison] = {}
        self._curves: list[ExclusionCurve | None] = []
        """Earlier ones of `curve`, to which *Undo* goes back."""
        self._region = {entry.name: point.name for point in comparison.points[::-1] for entry in point.quantizers}
        self._torch: Any = comparison  # only a `TorchComparison` has actions
        first = notable(comparison)
        alt = f"Comparison of {comparison.reference} and {comparison.candidate}: {comparison.message}"
        table = comparison_columns(comparison, details=DETAILS_IN_STATE).to_bytes()
        start = {"point": "" if first is None else first.name} if not {"point", "selection"} & set(traits) else {}
        actions = []
        if isinstance(comparison, TorchComparison) and comparison.recording is not None:
            actions = ["reproduce", *(["drill"] if comparison.has_module else [])]
        if {point.name for point in comparison.points if point.quantizers} - self._what_if.always_quantized().keys():
            actions += ["float"]
        model = comparison.models[1] if comparison.models else getattr(comparison, "model", None)
        if comparison.points and model is not None:
            self._beside = model
            actions = [*actions, "range"]
        super().__init__(alt, {"columns": table}, _actions=actions, **start, **traits)
        self.graph = graph

    def to_html(self, path: str | os.PathLike[str], *, limit: int = DETAILS, progress: Progress | None = None) -> Path:
        """Write the panel as one file that needs neither kernel nor network; see `ModelGraph.to_html`.

        ``limit`` is the maximum bytes of details; those of the worst points are in it, and the page says which are not.
        """
        return self._written(path, limit=limit, progress=progress)

    def _content(self, **options: Any) -> Content:
        details = options.get("limit", DETAILS)
        columns = comparison_columns(self.comparison, details=details, progress=options.get("progress"))
        graph = {"graph": self._part("graph")} if "range" in self._actions else {}
        about = {"steps": self._steps, "graph": bool(graph)}
        parts = {"points": columns.to_bytes(), **graph}
        return Content(f"{self.comparison.reference} and {self.comparison.candidate}", about, "comparison", parts)

    def _verbs(self) -> dict[str, Verb]:
        off = {"reproduce", "drill", "range"} - set(self._actions)
        off |= set() if "float" in self._actions else {"float", "front", "worst", "suggest", "undo"}
        return {name: verb for name, verb in super()._verbs().items() if name not in off}

    def _pack(self, name: str) -> Columns:
        if name != "graph" or "range" not in self._actions:
            return super()._pack(name)
        graph = Graph.opened(self._beside)
        producers = dict(zip(graph.value_names, graph.producer.tolist(), strict=True))
        rows = [producers.get(point.candidate, producers.get(point.reference, -1)) for point in self.comparison.points]
        return self._colored(self.comparison, row_node=np.asarray(rows, np.int32))

    def _on_detail(self, call: Call[DetailRequest]) -> Reply:
        inside, row = call.request.inside, call.request.row
        comparison = self._inside.get(inside) if inside else self.comparison
        if comparison is None:
            raise OnnxNbError(f"{quoted(inside)} was not drilled into.", advice="Press Drill down again.")
        if row >= len(comparison.points):
            raise OnnxNbError(f"there is no point {row}: the comparison has {len(comparison.points)}.")
        return Reply(buffers=[detail_columns(comparison.points[row]).to_bytes()])

    def _on_reproduce(self, call: Call[NameRequest]) -> Reply:
        part = self.reproduction = self._torch.reproduce(call.request.name, progress=call.progress)
        return Reply(f"{part!r} is in panel.reproduction; .save(folder) writes a folder that shows the error.")

    def _on_drill(self, call: Call[NameRequest]) -> Reply:
        name = call.request.name
        inner = self._torch.drill(name, progress=call.progress)
        table = comparison_columns(inner, details=DETAILS_IN_STATE).to_bytes()
        self._inside[name] = self.drilled = inner
        return Reply(buffers=[table])

    def put_back(self, *names: str, progress: Progress | None = None) -> ExclusionCurve:
        """Put regions of a quantized model back to float, in addition to those that are, and show what that gains.

        Parameters
        ----------
        names
            Names of points that have quantizers, or of quantized nodes of the reference.
        progress
            Called before each step with the fraction done and what comes next.

        Raises
        ------
        OnnxNbError
            If a name is that of no quantized region, or for the reasons of `mixed`.
        """
        steps = () if self.curve is None else (step.name for step in self.curve.steps[1:])
        return self._to(self._what_if.curve([*steps, *names], progress=progress))

    def _to(self, curve: ExclusionCurve) -> ExclusionCurve:
        self._curves.append(self.curve)
        self.curve, self._steps = curve, curve_steps(curve)
        return curve

    def _on_float(self, call: Call[FloatRequest]) -> Reply:
        request = call.request
        steps = [] if self.curve is None else [step.name for step in self.curve.steps[1 : request.count + 1]]
        return self._changed(self._what_if.curve([*steps, request.name], progress=call.progress), -2)

    def _on_worst(self, call: Call[Any]) -> Reply:
        return self._changed(self._what_if.curve(progress=call.progress))

    def _on_suggest(self, call: Call[TargetQualityRequest]) -> Reply:
        nodes = self._what_if.suggestion(call.request.target, progress=call.progress)
        return self._changed(self._what_if.curve(nodes, progress=call.progress))

    def _on_front(self, call: Call[Any]) -> Reply:
        result = effects(self._what_if, timed=True, progress=call.progress)
        with self._lock:
            self._to(result.front)
        return Reply(result.message)

    def _on_undo(self, _call: Call[Any]) -> Reply:
        with self._lock:
            self.curve = self._curves.pop() if self._curves else None
            self._steps = curve_steps(self.curve)
        return Reply("")

    def _changed(self, curve: ExclusionCurve, before: int = 0) -> Reply:
        """Show a curve, and say what it gains over one of its steps."""
        with self._lock:
            self._to(curve)
        steps, many = curve.steps, count_text(len(curve.nodes()), "node")
        now, then = (decibels_text(steps[at].sqnr) for at in (-1, max(before, -len(steps))))
        return Reply(f"With {many} in float the outputs have {now} instead of {then}.")

    def _point_of(self, name: str) -> str:
        """Return the point of a tensor, or the one whose region quantizes it; empty if there is none."""
        return self.comparison[name].name if name in self.comparison else self._region.get(name, "")

    @traitlets.observe("point")
    def _point_chosen(self, _change: Any) -> None:
        if self._point_of(self._selected_name) != self.point or not self.point:
            self.selection = self._selection_of(self.point)

    @traitlets.observe("selection")
    def _tensor_selected(self, _change: Any) -> None:
        if self.selection != self._selection_of(self.point):
            self.point = self._point_of(self._selected_name)

    def _selection_of(self, tensor: str) -> list[dict[str, Any]]:
        if tensor not in self.comparison:
            return []
        point = self.comparison[tensor]
        return [{"kind": "tensor", "name": point.candidate or point.reference}]

    @traitlets.observe("metric")
    def _recolor(self, _change: Any) -> None:
        self._overlay = self._color()

    def _color(self) -> ShownOverlay | None:
        if self._graph is None or not self.comparison.points:
            return None
        return self._graph.overlay(self.comparison, label=None if self.metric == "rel_l2" else self.metric)

    def _found(self, model: Model) -> tuple[int, int]:
        points = self.comparison.points
        sides = ([point.candidate for point in points], [point.reference for point in points])
        return max(found_in(names, model) for names in sides)

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        name, values = self._selected_name, Graph.of(model).value_names
        names = [f"{name}_quantized", name]  # a weight: as the quantizer named it, or as it was
        if name in self.comparison:
            names = [self.comparison[name].candidate, self.comparison[name].reference]
        return next(({"kind": "tensor", "name": tensor} for tensor in names if tensor in values), None)
