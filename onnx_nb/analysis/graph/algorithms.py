"""Order, cycles and other facts of directed graphs, and of trees, whose vertices are numbers."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onnx_nb.analysis.model.protofields import Ints, Longs

Column = TypeVar("Column", NDArray[np.int64], NDArray[np.float64])


def topological(start: int, stop: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Order the numbers from start to stop by edges, the lowest free one first; those on or behind cycles last."""
    readers: dict[int, list[int]] = {}
    waiting = dict.fromkeys(range(start, stop), 0)
    for maker, reader in dict.fromkeys(edges):
        readers.setdefault(maker, []).append(reader)
        waiting[reader] += 1
    free = [node for node, count in waiting.items() if not count]
    order = []
    while free:
        node = heapq.heappop(free)
        order.append(node)
        for reader in readers.get(node, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(free, reader)
    return order + [node for node, count in waiting.items() if count]


def cycles(start: int, stop: int, source: Ints, target: Ints) -> list[list[int]]:
    """Return the cycles among nodes: each strongly connected set, in file order."""
    readers: dict[int, list[int]] = {}
    for maker, reader in zip(source.tolist(), target.tolist(), strict=True):
        readers.setdefault(maker, []).append(reader)
    return [
        sorted(members)
        for members in strongly_connected(range(start, stop), readers)
        if len(members) > 1 or members[0] in readers.get(members[0], ())
    ]


def strongly_connected(items: Iterable[int], after: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected sets of a directed graph (Tarjan's algorithm without recursion)."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in items:
        if root in number:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        entering = root
        while True:
            if entering >= 0:
                number[entering] = lowest[entering] = len(number)
                stack.append(entering)
                on_stack.add(entering)
                path.append((entering, iter(after.get(entering, ()))))
                entering = -1
            item, edges = path[-1]
            for reached in edges:
                if reached not in number:
                    entering = reached
                    break
                if reached in on_stack:
                    lowest[item] = min(lowest[item], number[reached])
            if entering >= 0:
                continue
            path.pop()
            if lowest[item] == number[item]:
                members: list[int] = []
                while not members or members[-1] != item:
                    members.append(stack.pop())
                    on_stack.discard(members[-1])
                found.append(members)
            if not path:
                break
            above = path[-1][0]
            lowest[above] = min(lowest[above], lowest[item])
    return found


def sorted_unique(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct numbers, sorted; several times faster than ``np.unique``, which hashes."""
    values = np.sort(values)
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return values[first]


def upward(combine: np.ufunc, column: Column, parent: Ints | Longs) -> Column:
    """Fold a column of groups, which is changed and given, into their parents, from the leaves to the root."""
    depth = depths(parent)
    for level in range(int(depth.max()), 0, -1):
        groups = np.flatnonzero(depth == level)
        combine.at(column, parent[groups], column[groups])
    return column


def depths(parent: Ints | Longs) -> Longs:
    """Count the groups above each group."""
    depth = np.zeros(len(parent), np.int64)
    above = parent
    while bool(np.any(above >= 0)):
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth


def lines(parent: Longs) -> list[Longs]:
    """Return for each depth the group above each group at that depth, itself included; −1 where there is none."""
    depth = depths(parent)
    lines = [np.full(len(parent), -1, np.int64) for _ in range(int(depth.max()) + 1)]
    groups = np.arange(len(parent))
    above = groups
    while len(groups):
        for level, line in enumerate(lines):
            here = depth[above] == level
            line[groups[here]] = above[here]
        above = parent[above]
        groups, above = groups[above >= 0], above[above >= 0]
    return lines


def rows(row: Longs, column: Longs, count: int) -> list[list[int]]:
    """Return for each row what stands in it, in order."""
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=count)).tolist()
    items = column[order].tolist()
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]
