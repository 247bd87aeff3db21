"""Order and cycles of graphs of integers, sums over trees, and the flow of values through a model's main graph.

Values that the bodies of an If, Loop or Scan read count as read by their owner. Lists replace the columns of `Graph`,
as the walks below visit one node after another. The smallest separator is found by a maximum flow (Dinic's algorithm)
from the outputs to the inputs, so that only its surroundings are visited.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import ExtractionError
from onnx_nb.analysis.graph.names import DANGLING, GRAPH_INPUT
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model.model import cached

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints, Longs

NODES_PER_TENSOR: Final = 64
"""Nodes that cost as much as one more tensor when inputs are suggested."""

_STEPS_LIMIT: Final = 1_000_000
"""Edges visited in search of a smaller separator, about a second."""
_ENDLESS: Final = 1 << 60


class Flow:
    """Readers and producers of the main graph's values, computed once per graph."""

    @classmethod
    def of(cls, graph: Graph) -> Flow:
        """Return the flow of a graph, made at the first call and kept with its model."""
        return cached(graph.model, cls, lambda: cls(graph))

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer: list[int] = graph.producer.tolist()
        """Node that produces each value, or −1."""
        self.kinds = graph.value_kind.tobytes()
        """Kind of each value, as in `Graph.value_kind`."""
        reader, value = self.edges
        ends = np.cumsum(np.bincount(reader, minlength=graph.main_count)).tolist()
        self._read: list[int] = value.tolist()
        self._start: list[int] = [0, *ends]

    def reads(self, node: int) -> list[int]:
        """Return the values of the main graph that a main node reads, including those that only its bodies read."""
        return self._read[self._start[node] : self._start[node + 1]]

    @functools.cached_property
    def edges(self) -> tuple[Ints, Ints]:
        """Return (reader, value) of all reads by main nodes, sorted by reader."""
        value, reader = self.graph.subgraph_reads(0)
        by_reader = np.argsort(reader, kind="stable")
        by_reader = by_reader[value[by_reader] >= 0]
        return reader[by_reader].astype(np.int32), value[by_reader]

    @functools.cached_property
    def _is_sorted(self) -> bool:
        source, target = self.graph.subgraph_edges(0)
        return bool(np.all(source < target))

    def readers(self, value: int) -> list[int]:
        """Return the main nodes that read a value, including those whose bodies do."""
        graph = self.graph
        nodes = [node for node in graph.consumers(value).tolist() if node < graph.main_count]
        return nodes + self._capturing.get(value, [])

    @functools.cached_property
    def _capturing(self) -> dict[int, list[int]]:
        owners = sorted({frame.owner_node for frame in self.graph.subgraphs[1:] if frame.parent == 0})
        return followers((value, node) for node in owners for value in self.graph.outer_values(node).tolist())

    def is_open(self, value: int) -> bool:
        """Return whether a value comes from outside: a graph input, or a value that no node produces."""
        return self.kinds[value] in (GRAPH_INPUT, DANGLING)

    def is_runtime(self, value: int) -> bool:
        """Return whether a value depends on values from outside, not only on weights and constants."""
        maker = self.producer[value]
        return bool(self.runtime[maker]) if maker >= 0 else self.is_open(value)

    @functools.cached_property
    def runtime(self) -> bytearray:
        """Whether each main node depends on values from outside."""
        flags = bytearray(self.graph.main_count)
        producer, reads = self.producer, self.reads
        for node in self.graph.order.tolist():
            for value in reads(node):
                maker = producer[value]
                if flags[maker] if maker >= 0 else self.is_open(value):
                    flags[node] = 1
                    break
        return flags

    def sorted(self, nodes: Iterable[int]) -> list[int]:
        """Return main nodes in topological order."""
        if self._is_sorted:
            return sorted(nodes)
        members = sorted(nodes, key=self.graph.rank.__getitem__)
        place = {node: i for i, node in enumerate(members)}
        makers = ((self.producer[value], i) for i, node in enumerate(members) for value in self.reads(node))
        edges = [(place[maker], i) for maker, i in makers if maker in place]
        # the graph's order puts nodes on and after cycles last, in any order
        order = topological(0, len(members), edges)
        place = {node: i for i, node in enumerate(order)}
        if all(place[source] < place[target] for source, target in edges):
            return [members[i] for i in order]
        cycle = cycles(order, followers(edges))[0]
        labels = " → ".join(self.graph.node_label(members[i]) for i in cycle[:4][::-1])
        message = f"nodes form a cycle: {labels}{' …' if len(cycle) > 4 else ''}."
        raise ExtractionError(message, advice="Choose inputs after the cycle, or fix the model.")

    def ancestors(self, values: Iterable[int], stop: Collection[int] = ()) -> set[int]:
        """Return the nodes that values depend on, except those needed only for values in ``stop``."""
        producer, nodes = self.producer, set[int]()
        todo = [producer[value] for value in values]
        while todo:
            node = todo.pop()
            if node < 0 or node in nodes:
                continue
            nodes.add(node)
            todo.extend([producer[value] for value in self.reads(node) if value not in stop])
        return nodes

    def smallest_separator(self, nodes: Collection[int], starts: Collection[int] = ()) -> list[int]:
        """Find the fewest values that, together with the given ones, separate nodes from values from outside."""
        members = sorted(nodes, key=self.graph.rank.__getitem__)
        separator = _Separator(self, (value for node in members for value in self.reads(node)), nodes, starts)
        border = separator.border
        separation = set(separator.values() if len(border) > 1 else border)
        return [value for value in border if value in separation] + sorted(separation.difference(border))


class _Separator:
    """A network from the border of the needed nodes back to the inputs, which grows as the search reaches it.

    Vertices are numbers: values, the same values behind a cut of them, and the nodes that produce them.
    """

    _SOURCE, _SINK = -1, -2

    def __init__(self, flow: Flow, read: Iterable[int], nodes: Collection[int], starts: Collection[int]) -> None:
        self._flow, self._needed, self._given = flow, nodes, starts
        self._count = flow.graph.value_count
        self.border = self._crossing(read)
        """The values that the needed nodes read from outside of them."""
        self._edges: dict[int, dict[int, int]] = {}
        """How much more flow each edge takes, by its ends; its reverse takes what flows already."""
        self._grown = set[int]()
        self._steps = 0

    def _crossing(self, read: Iterable[int]) -> list[int]:
        flow, starts, nodes = self._flow, self._given, self._needed
        values = (v for v in dict.fromkeys(read) if v not in starts and flow.producer[v] not in nodes)
        return list(filter(flow.is_runtime, values))

    def values(self) -> list[int]:
        """Return the separating values: of all minimum sets, the one nearest to the needed nodes."""
        while self._SINK in (level := self._levels()):
            self._block(level)
            if self._steps > _STEPS_LIMIT:
                return self.border
        return [value for value in level if 0 <= value < self._count and value + self._count not in level]

    def _edges_of(self, vertex: int) -> dict[int, int]:
        edges = self._edges.setdefault(vertex, {})
        if vertex in self._grown:
            return edges
        self._grown.add(vertex)
        kind, number = divmod(vertex, self._count)
        if vertex == self._SOURCE:
            new = dict.fromkeys(self.border, _ENDLESS)
        elif kind == 0:
            new = {number + self._count: NODES_PER_TENSOR}
        elif kind == 1:
            maker = self._flow.producer[number]
            new = {maker + 2 * self._count if maker >= 0 else self._SINK: _ENDLESS}
        else:
            node = vertex - 2 * self._count
            new = {self._SINK: 1} | dict.fromkeys(self._crossing(self._flow.reads(node)), _ENDLESS)
        for target, capacity in new.items():
            edges[target] = capacity
            self._edges.setdefault(target, {})[vertex] = 0
        return edges

    def _levels(self) -> dict[int, int]:
        """Return the distance from the source of each vertex that more flow can reach, up to the sink's distance."""
        level, row = {self._SOURCE: 0}, [self._SOURCE]
        while row and self._SINK not in level:
            front = []
            for vertex in row:
                edges = self._edges_of(vertex)
                for target, left in edges.items():
                    if left and target not in level:
                        level[target] = level[vertex] + 1
                        front.append(target)
                self._steps += len(edges)
            row = front
        return level

    def _block(self, level: dict[int, int]) -> None:
        """Send as much flow as fits along shortest paths."""
        iterators: dict[int, Iterator[int]] = {}
        path = [self._SOURCE]
        while path:
            vertex = path[-1]
            if vertex == self._SINK:
                steps = list(itertools.pairwise(path))
                amount = min(self._edges[one][other] for one, other in steps)
                for one, other in steps:
                    self._edges[one][other] -= amount
                    self._edges[other][one] += amount
                del path[next(i for i, (one, other) in enumerate(steps, 1) if not self._edges[one][other]) :]
                continue
            if vertex not in iterators:
                iterators[vertex] = iter(list(self._edges_of(vertex)) if vertex in level else ())
            for target in iterators[vertex]:
                self._steps += 1
                if self._edges[vertex][target] and level.get(target, -1) == level[vertex] + 1:
                    path.append(target)
                    break
            else:
                path.pop()


Column = TypeVar("Column", NDArray[np.int64], NDArray[np.float64])
Source = TypeVar("Source")
Target = TypeVar("Target")
Vertex = TypeVar("Vertex", int, tuple[str, str, str])
"""A number, or the key of a function."""


def shape_nodes(graph: Graph) -> NDArray[np.bool_]:
    """Return whether each node computes with nothing but shapes of tensors and constants; none with a body does."""
    flags = np.asarray([name in names_where("of_shape") for name, _ in graph.operators], bool)[graph.op_index]
    reader = graph.consumer_node[np.repeat(~graph.constant_values, np.diff(graph.consumer_ptr))]
    waiting = np.bincount(reader, minlength=graph.node_count).tolist()
    done = np.flatnonzero(flags).tolist()
    for node in done:
        for reader in (reader for value in graph.results(node) for reader in graph.consumers(value).tolist()):
            waiting[reader] -= 1
            if waiting[reader] == 0 and not flags[reader] and not graph.bodies(reader):
                flags[reader] = True
                done.append(reader)
    return flags


def topological(start: int, stop: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Sort the numbers from start to stop by edges, the lowest ready one first; those on or after cycles come last."""
    readers = followers(distinct := dict.fromkeys(edges))
    waiting = dict.fromkeys(range(start, stop), 0)
    for _, reader in distinct:
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


def followers(edges: Iterable[tuple[Source, Target]]) -> dict[Source, list[Target]]:
    """Return the targets of each vertex with edges, of whatever kind both are."""
    targets: dict[Source, list[Target]] = {}
    for source, target in edges:
        targets.setdefault(source, []).append(target)
    return targets


def cycles(items: Iterable[Vertex], after: Mapping[Vertex, Collection[Vertex]]) -> list[list[Vertex]]:
    """Return the strongly connected components that contain a cycle, each sorted."""
    components = strongly_connected(items, after)
    return [sorted(members) for members in components if len(members) > 1 or members[0] in after.get(members[0], ())]


def strongly_connected(items: Iterable[Vertex], after: Mapping[Vertex, Collection[Vertex]]) -> list[list[Vertex]]:
    """Return the strongly connected components of a directed graph (Tarjan's algorithm without recursion)."""
    number: dict[Vertex, int] = {}
    lowest: dict[Vertex, int] = {}
    """The lowest number that each vertex on the stack reaches, as far as it is known."""
    edges: dict[Vertex, Iterator[Vertex]] = {}
    stack: list[Vertex] = []
    components = []
    for root in items:
        path = [root] if root not in number else []
        while path:
            item: Vertex = path[-1]
            if item not in number:
                number[item] = lowest[item] = len(number)
                stack.append(item)
                edges[item] = iter(after.get(item, ()))
            successor = next((target for target in edges[item] if target not in number), None)
            if successor is not None:
                path.append(successor)
                continue
            path.pop()
            lowest[item] = min(lowest[target] for target in (item, *after.get(item, ())) if target in lowest)
            members: list[Vertex] = []
            while lowest.get(item) == number[item]:
                members.append(stack.pop())
                del lowest[members[-1]]
            components += [members] if members else []
    return components


def upward(combine: np.ufunc, column: Column, parent: Ints | Longs) -> Column:
    """Fold a column of scopes into their parents, from the leaves to the root; the column is changed and returned."""
    depth = depths(parent)
    for level in range(int(depth.max()), 0, -1):
        groups = np.flatnonzero(depth == level)
        combine.at(column, parent[groups], column[groups])
    return column


def depths(parent: Ints | Longs) -> Longs:
    """Count the ancestors of each scope."""
    depth = np.zeros(len(parent), np.int64)
    above = parent
    while bool(np.any(above >= 0)):
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth


def lines(parent: Longs) -> list[Longs]:
    """Return for each depth every scope's ancestor at that depth, which may be itself; −1 where there is none."""
    depth = depths(parent)
    lines = np.full((int(depth.max()) + 1, len(parent)), -1, np.int64)
    scopes = above = np.arange(len(parent))
    while len(scopes):
        lines[depth[above], scopes] = above
        above = parent[above]
        scopes, above = scopes[above >= 0], above[above >= 0]
    return list(lines)


def rows(row: Longs, column: Longs, count: int) -> list[list[int]]:
    """Return the columns of each row, in order."""
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=count)).tolist()
    items = column[order].tolist()
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]
