"""The base of the widgets of which one tensor at a time is selected, here and in a graph that is linked with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.model.model import label_of
from onnx_nb.analysis.view.inspection import tensors_of
from onnx_nb.widgets._base import PackedWidget

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.widgets.graph import ModelGraph


class LinkedWidget(PackedWidget):
    """Base of the widgets that can be linked with a graph: what is selected in one is selected in the other.

    Neither side repeats a selection that the other already stands for, so a node stays selected in the graph while this
    widget selects the tensor that the node makes.
    """

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """What is selected: ``[{"kind": "tensor", "name": …}]``, empty for nothing."""

    _linked = traitlets.Unicode().tag(sync=True)
    """A sentence about the linked graph; empty without one."""

    _graph: ModelGraph | None = None

    @property
    def graph(self) -> ModelGraph | None:
        """The linked graph. Another one, or ``None`` to unlink, can be set at any time.

        Raises
        ------
        OnnxNbError
            If the graph's model has none of the tensors. The link stays as it was.
        """
        return self._graph

    @graph.setter
    def graph(self, graph: ModelGraph | None) -> None:
        if graph is self._graph:
            return
        linked = "" if graph is None else self._link_text(graph.model)
        if self._graph is not None:
            self._graph.unobserve(self._follow, "selection")
            self._leave()
        self._graph, self._linked = graph, linked
        if graph is None:
            return
        graph.observe(self._follow, "selection")
        self._enter(graph)
        if graph.selection:
            self._follow()
        else:
            self._lead()

    def close(self) -> None:
        """Remove the view, end its worker, and unlink the graph."""
        self.graph = None
        super().close()

    def _found(self, model: Model) -> tuple[int, int]:
        """Return how many of the tensors a model has, and how many there are."""
        raise NotImplementedError

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        """Return what is selected here as a graph of the model names it; None if the model has no such tensor."""
        raise NotImplementedError

    def _selected(self, tensor: str) -> dict[str, Any] | None:
        """Return a tensor of a model as it is selected here; None if there is no such tensor."""
        raise NotImplementedError

    def _enter(self, graph: ModelGraph) -> None:
        """Do what else a link does to a graph."""

    def _leave(self) -> None:
        """Undo that."""

    def _link_text(self, model: Model) -> str:
        found, count = self._found(model)
        if count and not found:
            message = f"none of the {count:,} tensors of {self!r} is in {label_of(model)}."
            raise OnnxNbError(message, advice="Link a graph of the model that they belong to.")
        part = "" if found == count else f", which has {found:,} of {count:,} tensors"
        return f"Linked with the graph of {label_of(model)}{part}"

    def _in_graph(self) -> list[dict[str, Any]]:
        """Return what is selected in the graph as it is selected here; empty if there is no such tensor."""
        if self._graph is None or not self._graph.selection:
            return []
        first = self._graph.selection[0]
        tensors = tensors_of(self._graph.model, str(first.get("kind")), str(first.get("name")), first.get("id"))
        found = (self._selected(tensor) for tensor in tensors)
        return next(([selected] for selected in found if selected is not None), [])

    @traitlets.observe("selection")
    def _lead(self, _change: Any = None) -> None:
        """Select in the graph what is selected here."""
        if self._graph is None or not self.selection or self.selection == self._in_graph():
            return
        wanted = self._tensor(self._graph.model)
        if wanted is not None:
            self._graph.selection = [wanted]

    def _follow(self, _change: Any = None) -> None:
        """Select here what is selected in the graph."""
        if found := self._in_graph():
            self.selection = found


def selected_name(selection: list[dict[str, Any]]) -> str:
    """Return the name of what is selected; empty for nothing."""
    return str(selection[0].get("name", "")) if selection else ""
