"""Which members of a repeat differ from the others: equal operators, alike connected, but other attributes or weights.

Members are compared place by place. What most have at a place is the rule there, and who has something else differs;
where no value is that of most, as at the number of a layer, each has its own and nobody differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnx_nb.analysis.graph.algorithms import upward
from onnx_nb.analysis.scopes.scopes import CHUNK, ROWS, Scopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints, Longs

OMITTED, COMPUTED = -1, -2
"""What stands for the type of an input that is left out, and of one that is no constant."""


@dataclass(frozen=True)
class RepeatDifference:
    """A place at which a member of a repeat differs."""

    member: int
    """A group, or if the members are nodes −1 − the node."""
    roof: int
    """The REPEAT or SIBLINGS."""
    node: int
    like: int
    """A node at the same place in a member that is as most are."""
    slot: int
    """The input whose constant differs; −1 for the attributes."""


@dataclass(frozen=True, eq=False)
class RepeatDifferences:
    """What differs in all repeats."""

    scope_differs: Ints
    """For a REPEAT or SIBLINGS, and a CHUNK of one, the number of members that differ; 1 for a group that does."""
    nodes: NDArray[np.bool_]
    """The nodes at which members differ."""
    found: tuple[RepeatDifference, ...]
    """The first few of each member."""


TOLD = 3
"""So many differences of a member are told."""


def repeat_differences(graph: Graph, tree: Scopes, attributes: Longs, literals: Longs) -> RepeatDifferences:
    """Compare the members of each REPEAT and SIBLINGS.

    Parameters
    ----------
    graph
        As of `Graph.opened`.
    tree
        Its scopes.
    attributes
        For each node a number that it shares with nodes of the same attributes.
    literals
        For each value a number that it shares with constants of the same few elements.
    """
    groups = len(tree.scope_parent)
    ends = upward(np.maximum, np.arange(groups), tree.scope_parent) + 1  # groups stand in preorder
    by_group = np.flatnonzero(~graph.folded)
    by_group = by_group[np.argsort(tree.node_scope[by_group], kind="stable")]
    starts = np.searchsorted(tree.node_scope[by_group], np.arange(groups + 1))
    rank = np.arange(graph.node_count)
    rank[: graph.main_count] = graph.rank
    differs = np.zeros(groups, np.int32)
    nodes = np.zeros(graph.node_count, bool)
    found: list[RepeatDifference] = []
    constant = graph.constant_values
    for roof in np.flatnonzero(np.isin(tree.scope_kind, ROWS)).tolist():
        members = _members(tree, roof)
        if members:
            place = np.repeat(np.arange(len(members)), [starts[ends[g]] - starts[g] for g in members])
            inside = np.concatenate([by_group[starts[g] : starts[ends[g]]] for g in members])
            inside = inside[np.lexsort((rank[inside], place))]
        else:
            inside = np.sort(by_group[starts[roof] : starts[ends[roof]]])
            members = (-1 - inside).tolist()
        if len(members) < 2 or len(inside) % len(members):
            continue
        table = inside.reshape(len(members), -1)
        ports = graph.in_ptr[table + 1] - graph.in_ptr[table]
        if np.any(graph.op_index[table] != graph.op_index[table[0]]) or np.any(ports != ports[0]):
            continue
        odd_attributes, like_attributes = _odd(attributes[table])
        column = np.repeat(np.arange(table.shape[1]), ports[0])
        slot = np.arange(len(column)) - np.repeat(np.cumsum(ports[0]) - ports[0], ports[0])
        value = graph.in_value[graph.in_ptr[table[:, column]] + slot]
        kind = np.where(value < 0, OMITTED, np.where(constant[value], graph.type_index[value], COMPUTED))
        literal = np.where(kind >= 0, literals[value], 0)
        odd_kinds, like_kinds = _odd(kind.astype(np.int64) * (int(literals.max(initial=0)) + 1) + literal)
        different = odd_attributes.any(axis=1) | odd_kinds.any(axis=1)
        for at in np.flatnonzero(different).tolist():
            here = [(c, -1, int(like_attributes[c])) for c in np.flatnonzero(odd_attributes[at]).tolist()]
            inputs = np.flatnonzero(odd_kinds[at]).tolist()
            here += [(int(column[c]), int(slot[c]), int(like_kinds[c])) for c in inputs]
            nodes[table[at, [c for c, _, _ in here]]] = True
            found.extend(
                RepeatDifference(members[at], roof, int(table[at, c]), int(table[like, c]), s)
                for c, s, like in here[:TOLD]
            )
            group = members[at] if members[at] >= 0 else int(tree.node_scope[-1 - members[at]])
            if members[at] >= 0:
                differs[group] = 1
                group = int(tree.scope_parent[group])
            while group != roof:
                differs[group] += 1
                group = int(tree.scope_parent[group])
            differs[roof] += 1
    return RepeatDifferences(differs, nodes, tuple(found))


def _members(tree: Scopes, roof: int) -> list[int]:
    """Return the groups that a row holds, also in parts of its row; none if it holds nodes."""
    found: list[int] = []
    waiting = [roof]
    while waiting:
        inside = tree.children(waiting.pop()).tolist()
        waiting += [group for group in inside if tree.scope_kind[group] == CHUNK]
        found += [group for group in inside if tree.scope_kind[group] != CHUNK]
    return sorted(found)


def _odd(table: Longs) -> tuple[NDArray[np.bool_], Longs]:
    """Find what is not as in most rows, column by column, and a row for each column that is as most are."""
    rows = len(table)
    # what more than half have stands in the middle
    usual = np.sort(table, axis=0)[(rows - 1) // 2]
    alike = table == usual
    times = alike.sum(axis=0)
    ruled = times * 2 > rows if rows > 2 else times > 0
    return ~alike & ruled, alike.argmax(axis=0)
