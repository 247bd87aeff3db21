"""A profile in a cell: kernels by their time, one run on a timeline, a treemap of scopes, original beside optimized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, label_of
from onnx_nb.analysis.profile.changes import ProfileComparison
from onnx_nb.analysis.profile.result import Profile
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.result_columns import profile_columns, ran_columns, resource_columns
from onnx_nb.drawing.html import Content, still_html
from onnx_nb.widgets._graphs import SIDES, ChartWidget, GraphWidget

if TYPE_CHECKING:
    from onnx_nb.widgets.graph import ModelGraph
    from onnx_nb.widgets.shown_overlay import ShownOverlay


class ProfilePanel(ChartWidget, GraphWidget):
    """Where the time goes: kernels by their time, a timeline, a treemap of scopes, and what onnxruntime fused.

    Parameters
    ----------
    profile
        Result of `onnx_nb.profile` or `Profile.read`, or of `Profile.compare`: then the later profile is shown, and
        what changed.
    graph
        A graph of the model. It is colored by the time; a kernel that is chosen here selects its nodes there, and a
        node there its kernel here.
    **traits
        Traits of the widget by name.

    Raises
    ------
    OnnxNbError
        If the graph is that of another model.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import profile
    >>> found = profile(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2, 4] x, float[4, 4] w) => (float[2, 4] z) { y = MatMul(x, w)  z = Relu(y) }'''), runs=3)
    >>> panel = ProfilePanel(found, kernel=1)
    >>> found.kernels[1].op, [each["kind"] for each in panel.selection]
    ('Relu', ['node'])
    """

    profile: Profile
    compared: ProfileComparison | None
    """What changed from an earlier profile; ``None`` without one."""

    _kind = traitlets.Unicode("profile").tag(sync=True)

    kernel = traitlets.Int(-1, min=-1).tag(sync=True)
    """Index of the chosen kernel in ``profile.kernels``, whose nodes are the `selection`; −1 for none."""

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The nodes of the chosen kernel: ``[{"kind": "node", "name": …, "id": …}]``; empty if there is none. Or a tensor
    that is alive at the peak: ``[{"kind": "tensor", "name": …}]``."""

    height = traitlets.Int(560, min=280).tag(sync=True)
    """Height of the panel in CSS pixels."""

    def __init__(self, profile: Profile | ProfileComparison, *, graph: ModelGraph | None = None, **traits: Any) -> None:
        self.compared = profile if isinstance(profile, ProfileComparison) else None
        self.profile = profile.after if isinstance(profile, ProfileComparison) else profile
        self._beside = self.profile.model
        self._kernel_of = {
            node: number
            for number, kernel in reversed(list(enumerate(self.profile.kernels)))
            for node in kernel.nodes
            if not kernel.edge
        }
        parts = {"columns": profile_columns(self.profile, self.compared).to_bytes()}
        super().__init__(repr(profile), parts, still_html(profile), **traits)
        self.graph = graph

    def _pack(self, name: str) -> Columns:
        if name in ("resources", "differences"):
            return resource_columns(self.profile) if name == "resources" else ran_columns(self.profile)
        table = columns(self._model(name)) if name != SIDES[0] else self._colored(self.profile)
        # the large weights of the optimized model were left out on purpose
        return Columns(table.arrays, {**table.meta, "faults": []}) if name == "candidate" else table

    def _content(self, **options: Any) -> Content:
        parts = {name: self._part(name) for name in ("columns", "resources", SIDES[0])}
        if self.profile.optimized is not None:
            parts |= {name: self._part(name) for name in (SIDES[1], "differences")} | self._baked(**options)
        return Content(self._alt, {}, self._kind, parts)

    def _models(self, _step: int = 0) -> tuple[Model, ...]:
        return tuple(model for model in (self.profile.model, self.profile.optimized) if model is not None)

    @traitlets.observe("kernel")
    def _kernel_chosen(self, _change: Any) -> None:
        if self._has_tensor() and self._kernel_at(self.selection) == self.kernel:
            return  # the kernel follows a tensor that stays selected
        self.selection = self._nodes_of(self.kernel)

    @traitlets.observe("selection")
    def _lead(self, _change: Any = None) -> None:
        """Choose the kernel of the selection, and select its nodes in the graph; or the tensor that is selected."""
        if self._has_tensor():
            self.kernel = self._kernel_at(self.selection)
        elif self.selection != self._nodes_of(self.kernel):
            ids = [target["id"] for target in self.selection if isinstance(target.get("id"), int)]
            names = {str(target.get("name")) for target in self.selection}
            ids = ids or [node for node, name in enumerate(self.profile.graph.names) if name in names]
            self.kernel = next((self._kernel_of[node] for node in ids if node in self._kernel_of), -1)
        leads = self._has_tensor() or (self.selection and self._kernel_in_graph() != self.kernel)
        if self._graph is not None and leads:
            self._graph.selection = [dict(target) for target in self.selection]

    def _follow(self, _change: Any = None) -> None:
        if (kernel := self._kernel_in_graph()) >= 0:
            self.kernel = kernel

    def _kernel_in_graph(self) -> int:
        """Return the kernel of the node that is selected in the graph, or that makes the selected tensor; or −1."""
        return -1 if self._graph is None else self._kernel_at(self._graph.selection)

    def _has_tensor(self) -> bool:
        return bool(self.selection) and self.selection[0].get("kind") == "tensor"

    def _kernel_at(self, selection: list[dict[str, Any]]) -> int:
        if not selection:
            return -1
        first, graph = selection[0], self.profile.graph
        kind, name, index = first.get("kind"), str(first.get("name")), first.get("id")
        if kind == "tensor" and name in graph.value_names:
            return self._kernel_of.get(int(graph.producer[graph.value_names.index(name)]), -1)
        if kind != "node":
            return -1
        if not isinstance(index, int):
            index = graph.names.index(name) if name in graph.names else -1
        if self.kernel >= 0 and index in self.profile.kernels[self.kernel].nodes:
            return self.kernel  # an inserted kernel has the nodes of others
        return self._kernel_of.get(index, -1)

    def _nodes_of(self, kernel: int) -> list[dict[str, Any]]:
        if not 0 <= kernel < len(self.profile.kernels):
            return []
        names = self.profile.graph.names
        return [{"kind": "node", "name": names[node], "id": node} for node in self.profile.kernels[kernel].nodes]

    def _link_text(self, model: Model) -> str:
        if Graph.opened(model).names != self.profile.graph.names:
            message = f"the profile is one of {label_of(self.profile.model)}, not of {label_of(model)}."
            raise OnnxNbError(message, advice="Link a graph of the model that was profiled.")
        return f"Linked with the graph of {label_of(model)}"

    def _color(self) -> ShownOverlay | None:
        return None if self._graph is None else self._graph.overlay(self.profile)
