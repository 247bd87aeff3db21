"""Build the points of a `Comparison`: one builder for two models, for a torch module, and for what is inside of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from onnx_nb.analysis.compare.comparison import Comparison, Point

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.metrics import ErrorStats, LazyErrors
    from onnx_nb.analysis.graph.graph import Graph

Compared = TypeVar("Compared", bound=Comparison)


def point_at(
    graph: Graph,
    value: int,
    name: str,
    matched: str,
    depth: int,
    *,
    op_type: str = "",
    scope: str = "",
    source: str = "",
    output: bool = False,
    difference: str = "",
    cumulative: ErrorStats | LazyErrors | None = None,
    isolated: ErrorStats | LazyErrors | None = None,
) -> Point:
    """Return the point of that name at which a value of the candidate's graph was compared."""
    maker = int(graph.producer[value])
    node = graph.names[maker] if maker >= 0 else ""
    tensor = graph.value_names[value]
    return Point(
        name, name, tensor, matched, depth, op_type, node, scope, source, output, difference, cumulative, isolated
    )


def explained(comparison: Compared, explain: Callable[[Point], Iterable[str]]) -> Compared:
    """Return the comparison with what ``explain`` finds to differ at the first divergent point, if it has nothing."""
    first = comparison.first_divergent()
    texts = [] if first is None or first.difference else list(explain(first))
    if first is None or not texts:
        return comparison
    better = dataclasses.replace(first, difference=", ".join(texts))
    points = tuple(better if point is first else point for point in comparison.points)
    return dataclasses.replace(comparison, points=points)
