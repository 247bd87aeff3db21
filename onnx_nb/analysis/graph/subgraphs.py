"""The graphs inside nodes: bodies of If, Loop and Scan, and local functions at each call.

A call is opened like a body: its nodes follow all others, with the attributes that the call passes. Nested calls may
need more memory than there is; the outermost calls are opened first, up to a budget.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx

from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.model.functions import Key, canonical, key_of
from onnx_nb.analysis.model.tensors import all_nodes, graphs_of

if TYPE_CHECKING:
    from onnx_nb.analysis.model.protofields import Ints

NODES_OPENED = 50_000
"""Maximum number of nodes in opened calls, in addition to twice those of the functions themselves."""
BYTES_OPENED = 64_000_000
"""Bytes that opened calls may take: names and attributes of each copy count again."""
DEPTH_OPENED = 32
"""Levels of nested calls that are opened."""


NO_VALUES: Ints = np.empty(0, np.int32)
NO_VALUES.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The main graph, the body of an If, Loop, Scan or another node with a graph as an attribute, or an opened call."""

    graph: onnx.GraphProto
    """The subgraph's proto; empty for an opened call."""
    owner_node: int
    """Flat node that owns the body or is the call; −1 for the main graph."""
    attribute: str
    """Name of the attribute that holds the body, as "then_branch"; empty for a call."""
    parent: int
    """The subgraph of the owner; −1 for the main graph."""
    start: int
    stop: int
    """Its nodes are ``Graph.nodes[start:stop]``."""
    function: onnx.FunctionProto | None = None
    """The local function that `owner_node` calls. Its inputs are the values that the call names."""
    inputs: Ints = field(default_factory=lambda: NO_VALUES)
    """Values; for the main graph without inputs that have an initializer."""
    outputs: Ints = field(default_factory=lambda: NO_VALUES)
    """Values, in order; a body may name an outer value."""
    weights: Ints = field(default_factory=lambda: NO_VALUES)
    """Values of ``graph.initializer`` and ``graph.sparse_initializer``, in order."""


def opsets_of(*importers: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Return the version of each domain that models or functions import; the last one that imports it decides."""
    return {canonical(plain_text(o.domain)): int(o.version) for importer in importers for o in importer.opset_import}


def may_hold_graphs(op: str | bytes, domain: str | bytes, opsets: Mapping[str, int]) -> bool:
    """Return whether nodes of an operator may have bodies."""
    domain = canonical(plain_text(domain))
    return operators.may_hold_graphs(plain_text(op), domain, opsets.get(domain, 0))


class _OpenCall(NamedTuple):
    node: onnx.NodeProto
    owner: int
    subgraph: int
    around: tuple[Key, ...]
    """Functions around the call, the outermost first."""


class Inside:
    """The subgraphs of the main graph and their nodes: bodies, depth first, and then the calls that are opened."""

    def __init__(self, graph: onnx.GraphProto, owners: Iterable[int], opsets: Mapping[str, int]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.subgraphs = [Subgraph(graph, -1, "", -1, 0, len(graph.node))]
        self.closed: dict[int, str] = {}
        """Calls that stay closed, and the reasons."""
        self._opsets, self._base = opsets, len(graph.node)
        self._add_bodies((graph.node[owner], owner, 0) for owner in owners)

    def _add_bodies(self, owners: Iterable[tuple[onnx.NodeProto, int, int]]) -> None:
        """Add the bodies of nodes (node, its number, its subgraph); without recursion, so that any depth works."""
        waiting = [(graph, owner, name, parent) for node, owner, parent in owners for name, graph in graphs_of(node)]
        waiting.reverse()
        while waiting:
            graph, owner, attribute, outer = waiting.pop()
            start, number = self._base + len(self.nodes), len(self.subgraphs)
            self.nodes.extend(graph.node)
            self.subgraphs.append(Subgraph(graph, owner, attribute, outer, start, self._base + len(self.nodes)))
            inner = [
                (body, start + i, name, number)
                for i, node in enumerate(graph.node)
                if may_hold_graphs(node.op_type, node.domain, self._opsets)
                for name, body in graphs_of(node)
            ]
            waiting.extend(reversed(inner))

    def open_calls(self, functions: Mapping[Key, onnx.FunctionProto], main: Iterable[int]) -> None:
        """Open calls among nodes of the main graph, those in its bodies, and calls in them, outermost first."""
        self._functions = functions
        self._sizes = {key: _size(function) for key, function in functions.items()}
        self._refers: dict[Key, list[bool]] = {}
        nodes_left = NODES_OPENED + 2 * sum(size for size, _ in self._sizes.values())
        bytes_left = BYTES_OPENED + 2 * sum(size for _, size in self._sizes.values())
        graph = self.subgraphs[0].graph
        waiting = deque(_OpenCall(graph.node[n], n, 0, ()) for n in main if key_of(graph.node[n]) in functions)
        waiting.extend(self._calls(1, ()))
        while waiting:
            call = waiting.popleft()
            key = key_of(call.node)
            nodes, nbytes = self._sizes[key]
            if key in call.around:
                names = (name for _, name, _ in [*call.around[call.around.index(key) :], key])
                self.closed[call.owner] = f"it calls itself: {' → '.join(map(quoted, names))}"
            elif len(call.around) >= DEPTH_OPENED:
                self.closed[call.owner] = f"it is nested more than {DEPTH_OPENED} calls deep"
            elif nodes > nodes_left or nbytes > bytes_left:
                self.closed[call.owner] = "calls before it already show as many nodes as can be shown"
            else:
                nodes_left, bytes_left = nodes_left - nodes, bytes_left - nbytes
                waiting.extend(self._opened(key, call))

    def _opened(self, key: Key, call: _OpenCall) -> list[_OpenCall]:
        """Add the nodes of a call and of the bodies in it; return the calls in them."""
        function = self._functions[key]
        if key not in self._refers:
            self._refers[key] = [
                any(a.ref_attr_name for n in all_nodes([node]) for a in n.attribute) for node in function.node
            ]
        attributes = {a.name: a for a in (*function.attribute_proto, *call.node.attribute)}
        start, number = self._base + len(self.nodes), len(self.subgraphs)
        pairs = zip(function.node, self._refers[key], strict=True)
        self.nodes.extend(_bound(node, attributes) if refers else node for node, refers in pairs)
        stop = self._base + len(self.nodes)
        empty = onnx.GraphProto(name=plain_text(function.name))
        self.subgraphs.append(Subgraph(empty, call.owner, "", call.subgraph, start, stop, function))
        self._add_bodies((self.nodes[node - self._base], node, number) for node in range(start, stop))
        return self._calls(number, (*call.around, key))

    def _calls(self, first: int, around: tuple[Key, ...]) -> list[_OpenCall]:
        """Return the calls in the subgraphs from ``first`` on."""
        return [
            _OpenCall(self.nodes[node - self._base], node, number, around)
            for number, inside in enumerate(self.subgraphs[first:], first)
            for node in range(inside.start, inside.stop)
            if key_of(self.nodes[node - self._base]) in self._functions
        ]


def _size(function: onnx.FunctionProto) -> tuple[int, int]:
    """Return the nodes of a function, where eight inputs and outputs count as one more, and its bytes."""
    ports = len(function.input) + len(function.output) + 4
    nodes = 1
    for node in all_nodes(function.node):
        nodes += 1
        ports += len(node.input) + len(node.output)
    return nodes + ports // 8, function.ByteSize()


def _bound(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Copy a node with the attributes of a call in place of references to the function's attributes."""
    result = copy.deepcopy(node)
    for at in all_nodes([result]):
        if not any(attribute.ref_attr_name for attribute in at.attribute):
            continue
        before = onnx.NodeProto(attribute=at.attribute)
        del at.attribute[:]
        for old in before.attribute:
            # an attribute that the caller omits has the operator's default
            new = attributes.get(old.ref_attr_name) if old.ref_attr_name else old
            if new is not None:
                at.attribute.add().CopyFrom(new)
                at.attribute[-1].name = old.name
    return result
