"""The handle that `ModelGraph.overlay` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_nb.analysis.view.overlays import Overlay

if TYPE_CHECKING:
    from onnx_nb.widgets.graph import ModelGraph


@dataclass(frozen=True, eq=False, repr=False)
class ShownOverlay(Overlay):
    """The numbers that color a graph, as `ModelGraph.overlay` returns them."""

    graph: ModelGraph
    """The graph that shows them."""

    def remove(self) -> None:
        """Color the graph by categories again, unless other colors have been chosen since."""
        graph = self.graph
        is_shown = graph._shown is self and graph._overlay is not None  # noqa: SLF001 - the graph made this handle
        if is_shown and graph.view.get("color") is None:
            graph.overlay(None)
