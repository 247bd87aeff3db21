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
    """Return the point at which a value of the candidate's graph was compared.

    Parameters
    ----------
    graph, value
        The candidate and its value: its name and that of the node that makes it are part of the point.
    name
        Name of the point, which is also that of the reference's value.
    matched, depth, op_type, scope, source, output, difference, cumulative, isolated
        As `Point` has them.
    """
    maker = int(graph.producer[value])
    node = graph.names[maker] if maker >= 0 else ""
    tensor = graph.value_names[value]
    return Point(
        name, name, tensor, matched, depth, op_type, node, scope, source, output, difference, cumulative, isolated
    )


def explained(comparison: Compared, explain: Callable[[Point], Iterable[str]]) -> Compared:
    """Return the comparison with `Point.difference` of the first divergent point filled in, if a reason is found.

    Parameters
    ----------
    comparison
        Any.
    explain
        Returns proven differences at a point. It is called only if the point has none so far.
    """
    first = comparison.first_divergent()
    texts = [] if first is None or first.difference else list(explain(first))
    if first is None or not texts:
        return comparison
    better = dataclasses.replace(first, difference=", ".join(texts))
    points = tuple(better if point is first else point for point in comparison.points)
    return dataclasses.replace(comparison, points=points)
