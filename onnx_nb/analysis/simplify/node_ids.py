"""Ids of nodes. ONNX gives nodes no identity, so the ids of a model's nodes are listed by the graph they are in.

A node keeps its id from the original model to the simplified one, however often the model is written in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onnx_nb.analysis.formatting import plain_text

if TYPE_CHECKING:
    from onnx import FunctionProto

    from onnx_nb.analysis.graph.graph import Graph

Place = tuple[int | str, str]
"""A graph: `MAIN`, a function ("function", its label), or a subgraph (id of the owner node, name of the attribute)."""
NodeIds = Mapping[Place, tuple[int, ...]]
"""The ids of the nodes of each graph, in order."""
Key = tuple[int, tuple[int, ...]]
"""Id of a node, and the ids of the calls of functions that it is inside of."""

MAIN: Final[Place] = ("", "")


def label(function: FunctionProto) -> str:
    """Return the label of a local function, as in keys of changes: "domain.name"."""
    overload = f":{plain_text(function.overload)}" if function.overload else ""
    return f"{plain_text(function.domain)}.{plain_text(function.name)}{overload}"


def place_of(function: FunctionProto) -> Place:
    """Return the place of the nodes of a local function."""
    return "function", label(function)


def first_ids(graph: Graph, start: int, main: Place = MAIN) -> dict[Place, tuple[int, ...]]:
    """Return consecutive ids for the nodes of a graph and its subgraphs."""
    return {
        (start + each.owner_node, each.attribute) if each.owner_node >= 0 else main: tuple(
            range(start + each.start, start + each.stop)
        )
        for each in graph.subgraphs
    }


def identify(graph: Graph, ids: NodeIds) -> list[Key]:
    """Return the key of each node of a graph, in which calls may be opened; id −1 for a node that `ids` lacks."""
    found: list[Key] = [(-1, ())] * graph.node_count
    calls: list[tuple[int, ...]] = []
    for each in graph.subgraphs:
        owner = found[each.owner_node][0] if each.owner_node >= 0 else -1
        around = calls[each.parent] if each.parent >= 0 else ()
        calls.append((*around, owner) if each.function is not None else around)
        place = MAIN if each.owner_node < 0 else (owner, each.attribute)
        listed = ids.get(place_of(each.function) if each.function is not None else place, ())
        if len(listed) == each.stop - each.start:
            found[each.start : each.stop] = [(id_, calls[-1]) for id_ in listed]
    return found
