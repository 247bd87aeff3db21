"""Differences between members of a repeat: equal operators, equally connected, but other attributes or constants.

Members are compared position by position. The majority value of a position is the norm; members with another value
differ. A position without a majority value (a layer index) has no norm, and no member differs there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.graph.dataflow import upward
from onnx_nb.analysis.scopes.scopes import GATHERED, ROWS, Scopes, scopes_around

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints, Longs

ABSENT, COMPUTED = -1, -2
"""Type numbers of an omitted input, and of an input that is not constant."""

LISTED = 3
"""Maximum number of differences listed per member."""


@dataclass(frozen=True)
class RepeatDifference:
    """A node at which a member of a repeat differs from the majority."""

    member: int
    """Scope that is the member; if the members are nodes, −1 − the node."""
    roof: int
    """Scope (REPEAT or SIBLINGS) of the members."""
    node: int
    like: int
    """Node at the same position in a member of the majority."""
    slot: int
    """Input whose constant differs; −1 for the attributes."""


def repeat_differences(
    graph: Graph, tree: Scopes, attributes: Longs, literals: Longs
) -> tuple[Ints, NDArray[np.bool_], list[RepeatDifference]]:
    """Compare the members of each REPEAT and SIBLINGS of an opened graph.

    Return the number of members that differ in each REPEAT, SIBLINGS or GATHERED of one, and 1 for a scope that
    differs; whether each node differs; and up to `LISTED` differences of each member.
    Equal numbers mean equal attributes in ``attributes``, equal constants of a few elements in ``literals``.
    """
    nodes_drawn = np.flatnonzero(~graph.folded)
    nodes_drawn = nodes_drawn[np.argsort(tree.node_scope[nodes_drawn], kind="stable")]
    numbers = np.arange(len(tree.scope_parent) + 1)
    starts = np.searchsorted(tree.node_scope[nodes_drawn], numbers)
    stops = starts[upward(np.maximum, numbers[:-1], tree.scope_parent) + 1]  # scopes are in preorder
    constants = np.where(graph.constant_values, graph.type_index, COMPUTED)
    rank = np.arange(graph.node_count)
    rank[: graph.main_count] = graph.rank
    differs = np.zeros(len(tree.scope_parent), np.int32)
    nodes = np.zeros(graph.node_count, bool)
    differences: list[RepeatDifference] = []
    for roof in np.flatnonzero(np.isin(tree.scope_kind, ROWS)).tolist():
        members, waiting = list[int](), [roof]
        while waiting:  # through the gathered parts of the row
            inside = tree.children(waiting.pop())
            is_gathered = tree.scope_kind[inside] == GATHERED
            waiting += inside[is_gathered].tolist()
            members += inside[~is_gathered].tolist()
        members.sort()
        lines = [nodes_drawn[starts[member] : stops[member]] for member in members]
        lines = lines or list(np.sort(nodes_drawn[starts[roof] : stops[roof]])[:, np.newaxis])
        members = members or [-1 - int(line[0]) for line in lines]
        if len(members) < 2 or len({len(line) for line in lines}) > 1:
            continue
        table = np.stack(lines)  # member × position → node
        table = np.take_along_axis(table, np.argsort(rank[table], axis=1, kind="stable"), axis=1)
        inputs = graph.in_ptr[table + 1] - graph.in_ptr[table]
        if np.any(graph.op_index[table] != graph.op_index[table[0]]) or np.any(inputs != inputs[0]):
            continue
        position = np.repeat(np.arange(table.shape[1]), inputs[0])  # of each input of a member
        slot = np.arange(len(position)) - np.repeat(np.cumsum(inputs[0]) - inputs[0], inputs[0])
        value = graph.in_value[graph.in_ptr[table[:, position]] + slot]
        odd_attributes, usual_attributes = _odd(attributes[table])
        # a number for each input, equal for constants of one type and literal
        kind = np.where(value < 0, ABSENT, constants[value]).astype(np.int64)
        literal = np.where(kind >= 0, literals[value], 0)
        odd_constants, usual_constants = _odd(kind * (int(literals.max(initial=0)) + 1) + literal)
        for at in np.flatnonzero(odd_attributes.any(axis=1) | odd_constants.any(axis=1)).tolist():
            here = [(c, -1, int(usual_attributes[c])) for c in np.flatnonzero(odd_attributes[at]).tolist()]
            odd = np.flatnonzero(odd_constants[at]).tolist()
            here += [(int(position[c]), int(slot[c]), int(usual_constants[c])) for c in odd]
            nodes[table[at, [c for c, _, _ in here]]] = True
            pairs = ((int(table[at, c]), int(table[like, c]), which) for c, which, like in here[:LISTED])
            differences.extend(RepeatDifference(members[at], roof, *pair) for pair in pairs)
            if members[at] >= 0:
                differs[members[at]] = 1
            scope = int(tree.scope_parent[members[at]] if members[at] >= 0 else tree.node_scope[-1 - members[at]])
            line = scopes_around(tree, scope)
            differs[line[: line.index(roof) + 1]] += 1  # and gathered parts of the row
    return differs, nodes, differences


def _odd(table: Longs) -> tuple[NDArray[np.bool_], Longs]:
    """Return a mask of the cells that differ from the majority of their column, and a row of each column's majority."""
    rows = len(table)
    usual = table == np.sort(table, axis=0)[(rows - 1) // 2]  # the majority value, if there is one
    times = usual.sum(axis=0)
    has_majority = times * 2 > rows if rows > 2 else times > 0
    return ~usual & has_majority, usual.argmax(axis=0)
