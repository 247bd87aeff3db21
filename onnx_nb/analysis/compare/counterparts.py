"""Columns that relate two models: the counterpart and the state of each node, value and scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.graph.dataflow import upward
from onnx_nb.analysis.scopes.scopes import BODY, Scopes, scopes

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.node_matching import Matching
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints

SAME, ONLY, CHANGED, FOLDED = range(4)
"""States of a node or value. ONLY: the other model has no counterpart. FOLDED: it is constant in the simplified model,
or reads a value that became constant; a `Diff` has no such state."""

States = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""States of nodes and of values."""


@dataclass(frozen=True, eq=False)
class Counterparts:
    """Columns of one of two models."""

    node: Ints
    """Counterpart of each node, −1 for none."""
    value: Ints
    scope: Ints
    """Scope of the other model that shares most nodes with it, −1 for none."""
    node_state: NDArray[np.uint8]
    """SAME, ONLY, CHANGED or FOLDED."""
    value_state: NDArray[np.uint8]
    scope_only: Ints
    """Drawn nodes in each scope, at any depth, that the other model does not have."""
    scope_changed: Ints
    scope_folded: Ints


def inverse(there: Ints, count: int) -> Ints:
    """Return the inverse of a column of counterparts."""
    back = np.full(count, -1, np.int32)
    mine = np.flatnonzero(there >= 0)
    back[there[mine]] = mine
    return back


def counterparts(
    graphs: tuple[Graph, Graph], node: tuple[Ints, Ints], value: tuple[Ints, Ints], states: tuple[States, States]
) -> tuple[Counterparts, Counterparts]:
    """Return the columns of both models from the counterparts and states of nodes and values of the opened graphs."""
    trees = scopes(graphs[0]), scopes(graphs[1])
    scope = _matched_scopes(trees[0], trees[1], node[0]), _matched_scopes(trees[1], trees[0], node[1])
    first, second = (
        Counterparts(node[at], value[at], scope[at], *states[at], *_scope_counts(graphs[at], trees[at], states[at][0]))
        for at in (0, 1)
    )
    return first, second


def _scope_counts(graph: Graph, tree: Scopes, node_state: NDArray[np.uint8]) -> Iterator[Ints]:
    """Yield the number of drawn nodes in each scope that are ONLY, CHANGED and FOLDED."""
    drawn = ~graph.folded
    # a node with bodies is drawn as a scope, whose box shows the state of the node as well
    owners = np.flatnonzero(tree.scope_kind == BODY)
    for state in (ONLY, CHANGED, FOLDED):
        direct = np.bincount(tree.node_scope[(node_state == state) & drawn], minlength=len(tree.scope_parent))
        count = upward(np.add, direct, tree.scope_parent).astype(np.int32)
        count[owners] += node_state[tree.scope_node[owners]] == state
        yield count


def with_calls(graph: Graph, other: Graph, matching: Matching) -> tuple[Ints, Ints]:
    """Return the counterparts of nodes and values of opened graphs: also inside calls of equal functions."""
    node, value = np.full(graph.node_count, -1, np.int32), np.full(graph.value_count, -1, np.int32)
    node[: len(matching.node)], value[: len(matching.value)] = matching.node, matching.value
    for subgraph in graph.subgraphs[len(graph.plain.subgraphs) :]:
        owner = int(node[subgraph.owner_node])
        candidates = [other.subgraphs[each] for each in other.bodies(owner)] if owner >= 0 else []
        # an If has several bodies, told apart by their attribute; a call has one without an attribute
        twin = next((each for each in candidates if each.attribute == subgraph.attribute), None)
        if twin is None or _operators(graph, subgraph.start, subgraph.stop) != _operators(other, twin.start, twin.stop):
            continue
        node[subgraph.start : subgraph.stop] = np.arange(twin.start, twin.stop)
        for n, m in zip(range(subgraph.start, subgraph.stop), range(twin.start, twin.stop), strict=True):
            for v, w in zip(graph.node_outputs(n).tolist(), other.node_outputs(m).tolist(), strict=False):
                if v >= 0 and w >= 0:
                    value[v] = w
    return node, value


def _operators(graph: Graph, start: int, stop: int) -> list[tuple[str, str]]:
    return [graph.operators[index] for index in graph.op_index[start:stop].tolist()]


def mark_readers(graph: Graph, state: NDArray[np.uint8]) -> None:
    """Mark readers of a changed constant as changed: constants are drawn inside their readers."""
    waiting = np.flatnonzero((state == CHANGED) & graph.folded).tolist()
    while waiting:
        made = graph.node_outputs(waiting.pop())
        for reader in {reader for value in made[made >= 0].tolist() for reader in graph.consumers(value).tolist()}:
            if state[reader] == SAME:
                state[reader] = CHANGED
                if graph.folded[reader]:
                    waiting.append(reader)


def _matched_scopes(tree: Scopes, other: Scopes, there: Ints) -> Ints:
    """Return for each scope the one that shares most nodes, by Dice's coefficient; one of the same path first."""
    count, others = len(tree.scope_parent), len(other.scope_parent)
    matched = np.flatnonzero(there >= 0)
    direct = tree.node_scope[matched].astype(np.int64) * others + other.node_scope[there[matched]]
    direct, nodes = np.unique(direct, return_counts=True)
    codes, shares = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for mine in _ancestors(direct // others, tree.scope_parent):
        for theirs in _ancestors(direct % others, other.scope_parent):
            both = (mine >= 0) & (theirs >= 0)
            codes.append(mine[both] * others + theirs[both])
            shares.append(nodes[both])
    pairs, index = np.unique(np.concatenate(codes), return_inverse=True)
    shared = np.bincount(index, np.concatenate(shares), minlength=len(pairs))
    mine, theirs = pairs // others, pairs % others
    sizes = [
        upward(np.add, np.bincount(each.node_scope, minlength=len(each.scope_parent)), each.scope_parent)
        for each in (tree, other)
    ]
    score = 2 * shared / (sizes[0][mine] + sizes[1][theirs])
    paths = zip(mine.tolist(), theirs.tolist(), strict=True)
    score += np.asarray([tree.scope_path[g] == other.scope_path[h] != "" for g, h in paths], float)
    order = np.lexsort((-theirs, score, mine))
    found = np.full(count, -1, np.int32)
    found[mine[order]] = theirs[order]  # the last entry of a scope, its best, is the one that stays
    found[0] = 0
    return found


def _ancestors(scope: NDArray[np.int64], parent: Ints) -> Iterator[NDArray[np.int64]]:
    """Yield scopes, their parents, and so on until all are above the root: −1."""
    while np.any(scope >= 0):
        yield scope
        scope = np.where(scope >= 0, parent[scope], -1).astype(np.int64)
