"""The graphs inside of nodes: bodies of If, Loop and Scan as they lie in the file, and local functions where called.

A call is opened like a body: its nodes follow all others, with the attributes that the call gives. Functions may call
each other so often that no memory would hold them; the outermost calls are opened first, up to a budget.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import onnx

from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import strongly_connected
from onnx_nb.analysis.graph.operators import canonical
from onnx_nb.analysis.model.tensors import all_nodes, graphs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Key = tuple[str, str, str]
"""Domain, name and overload of a local function."""

NODES_OPENED = 50_000
"""Nodes that calls are opened to, besides twice those of the functions themselves."""
BYTES_OPENED = 64_000_000
"""Bytes that calls are opened to: names and attributes of each copy count again."""
INLINED = 100_000
"""Nodes that calls are inlined to when random feeds are made."""
DEPTH_OPENED = 32
"""Levels of calls in calls that are opened."""


class Body(NamedTuple):
    """A graph inside of a node, and where its nodes are among all."""

    graph: onnx.GraphProto
    """Of a function an empty one: see `function`."""
    owner_node: int
    attribute: str
    parent: int
    start: int
    stop: int
    function: onnx.FunctionProto | None = None


def bodies(
    graph: onnx.GraphProto, owners: Sequence[int], opsets: Mapping[str, int]
) -> tuple[list[onnx.NodeProto], list[Body]]:
    """Return the nodes of all bodies in a graph, depth first, and the bodies."""
    nodes: list[onnx.NodeProto] = []
    found: list[Body] = []
    _add_bodies([(graph.node[owner], owner, 0) for owner in owners], nodes, found, len(graph.node), opsets)
    return nodes, found


def _add_bodies(
    owners: Iterable[tuple[onnx.NodeProto, int, int]],
    nodes: list[onnx.NodeProto],
    found: list[Body],
    base: int,
    opsets: Mapping[str, int],
) -> None:
    """Add what lies in the bodies of nodes (node, its number, its frame); without recursion, so that any depth goes."""
    waiting = [(graph, owner, name, parent) for node, owner, parent in owners for name, graph in graphs_of(node)][::-1]
    while waiting:
        graph, owner, attribute, outer = waiting.pop()
        start = base + len(nodes)
        nodes.extend(graph.node)
        found.append(Body(graph, owner, attribute, outer, start, base + len(nodes)))
        inner = [
            (body, start + i, name, len(found))
            for i, node in enumerate(graph.node)
            if may_hold_graphs(node.op_type, node.domain, opsets)
            for name, body in graphs_of(node)
        ]
        waiting.extend(reversed(inner))


def may_hold_graphs(op: str | bytes, domain: str | bytes, opsets: Mapping[str, int]) -> bool:
    """Return whether nodes of an operator may have bodies."""
    domain = canonical(plain_text(domain))
    return operators.may_hold_graphs(plain_text(op), domain, opsets.get(domain, 0))


def functions_of(proto: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """Return the local functions of a model."""
    return {(canonical(plain_text(f.domain)), plain_text(f.name), plain_text(f.overload)): f for f in proto.functions}


def key_of(node: onnx.NodeProto) -> Key:
    """Return the key of the function that a node would call."""
    return canonical(plain_text(node.domain)), plain_text(node.op_type), plain_text(node.overload)


def recursive(functions: Mapping[Key, onnx.FunctionProto]) -> list[list[Key]]:
    """Return the sets of functions that call each other in a cycle, which ONNX forbids."""
    return [members for members, circle, _ in _callees_first(functions) if circle]


def inlined_sizes(functions: Mapping[Key, onnx.FunctionProto]) -> dict[Key, float]:
    """Count the nodes of each function with all calls in it replaced by what they call; infinite if recursive."""
    sizes: dict[Key, float] = {}
    for members, circle, called in _callees_first(functions):
        for key in members:
            sizes[key] = math.inf if circle else sum(sizes.get(each, 1.0) for each in called)
    return sizes


def _callees_first(functions: Mapping[Key, onnx.FunctionProto]) -> Iterator[tuple[list[Key], bool, list[Key]]]:
    """Return functions after those they call, mutually recursive ones together, and the keys of their nodes."""
    number = {key: i for i, key in enumerate(functions)}
    keys = list(functions)
    inside = [[key_of(node) for node in all_nodes(function.node)] for function in functions.values()]
    after = {i: [number[key] for key in each if key in number] for i, each in enumerate(inside)}
    for members in strongly_connected(range(len(keys)), after):
        circle = len(members) > 1 or members[0] in after[members[0]]
        yield [keys[i] for i in sorted(members)], circle, [] if circle else inside[members[0]]


class _Call(NamedTuple):
    node: onnx.NodeProto
    owner: int
    frame: int
    around: tuple[Key, ...]
    """The functions it is in, the outermost first."""


class Calls:
    """The calls of local functions, opened: appends to the nodes and bodies that it is given."""

    def __init__(
        self,
        functions: Mapping[Key, onnx.FunctionProto],
        opsets: Mapping[str, int],
        base: int,
        nodes: list[onnx.NodeProto],
        found: list[Body],
    ) -> None:
        self._functions, self._opsets, self._base = functions, opsets, base
        self._nodes, self._found = nodes, found
        self._sizes = {key: _size(function) for key, function in functions.items()}
        self._refers: dict[Key, list[bool]] = {}
        self._nodes_left = NODES_OPENED + 2 * sum(size for size, _ in self._sizes.values())
        self._bytes_left = BYTES_OPENED + 2 * sum(size for _, size in self._sizes.values())
        self.closed: dict[int, str] = {}
        """Calls that stay closed, and why."""

    def open(self, called: Iterable[tuple[onnx.NodeProto, int]]) -> None:
        """Open calls of the main graph, those in the bodies that were there, and calls in them, outermost first."""
        waiting = deque(_Call(node, owner, 0, ()) for node, owner in called)
        for frame, body in enumerate(self._found, 1):
            waiting.extend(self._calls(body.start, body.stop, frame, ()))
        while waiting:
            call = waiting.popleft()
            key = key_of(call.node)
            reason = self._refusal(key, call)
            if reason:
                self.closed[call.owner] = reason
            else:
                waiting.extend(self._opened(key, call))

    def _refusal(self, key: Key, call: _Call) -> str:
        if key in call.around:
            circle = " → ".join(quoted(name) for _, name, _ in [*call.around[call.around.index(key) :], key])
            return f"it calls itself: {circle}"
        if len(call.around) >= DEPTH_OPENED:
            return f"it is nested more than {DEPTH_OPENED} calls deep"
        nodes, nbytes = self._sizes[key]
        if nodes > self._nodes_left or nbytes > self._bytes_left:
            return "calls before it already show as many nodes as can be shown"
        self._nodes_left -= nodes
        self._bytes_left -= nbytes
        return ""

    def _opened(self, key: Key, call: _Call) -> Iterator[_Call]:
        function = self._functions[key]
        if key not in self._refers:
            self._refers[key] = [
                any(a.ref_attr_name for n in all_nodes([node]) for a in n.attribute) for node in function.node
            ]
        given = {a.name: a for a in (*function.attribute_proto, *call.node.attribute)}
        start = self._base + len(self._nodes)
        self._nodes.extend(
            _bound(node, given) if refers else node
            for node, refers in zip(function.node, self._refers[key], strict=True)
        )
        stop = self._base + len(self._nodes)
        name = onnx.GraphProto(name=function.name)
        self._found.append(Body(name, call.owner, "", call.frame, start, stop, function))
        first = len(self._found)
        around = (*call.around, key)
        mine = [(node, start + i, first) for i, node in enumerate(self._nodes[start - self._base :])]
        _add_bodies(mine, self._nodes, self._found, self._base, self._opsets)
        for frame, body in enumerate(self._found[first - 1 :], first):
            yield from self._calls(body.start, body.stop, frame, around)

    def _calls(self, start: int, stop: int, frame: int, around: tuple[Key, ...]) -> list[_Call]:
        nodes = self._nodes[start - self._base : stop - self._base]
        return [
            _Call(node, owner, frame, around)
            for owner, node in enumerate(nodes, start)
            if key_of(node) in self._functions
        ]


def _size(function: onnx.FunctionProto) -> tuple[int, int]:
    """Return nodes, with so many inputs and outputs counted as one more, and bytes."""
    ports = len(function.input) + len(function.output) + 4
    nodes = 1
    for node in all_nodes(function.node):
        nodes += 1
        ports += len(node.input) + len(node.output)
    return nodes + ports // 8, function.ByteSize()


def _bound(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Copy a node with what a call gives in place of references to the function's attributes."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    waiting = [copy]
    while waiting:
        at = waiting.pop()
        if any(attribute.ref_attr_name for attribute in at.attribute):
            kept = [
                new
                for old in at.attribute
                # what the caller leaves out has the operator's default
                if (new := _named(given.get(old.ref_attr_name), old.name) if old.ref_attr_name else old) is not None
            ]
            other = onnx.NodeProto(attribute=kept)
            del at.attribute[:]
            at.attribute.extend(other.attribute)
        waiting.extend(inner for _, graph in graphs_of(at) for inner in graph.node)
    return copy


def _named(attribute: onnx.AttributeProto | None, name: str) -> onnx.AttributeProto | None:
    if attribute is None:
        return None
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy
