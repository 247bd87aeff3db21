"""What is wrong with the structure of a graph, found and described; a broken graph is drawn all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import cycles, followers
from onnx_nb.analysis.graph.subgraphs import recursive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx_nb.analysis.graph.graph import Graph

PROBLEM_LIMIT = 100
"""Problems described of each kind."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in the graph; it is drawn all the same."""

    kind: str
    """duplicate_name, dangling_input, missing_output, cycle, recursion, unsorted, unknown_op, unknown_domain,
    empty_graph or inference."""
    message: str
    node: int = -1
    """The flat node it is about, or −1."""
    value: int = -1
    """The value it is about, or −1."""


class ProblemFinder:
    """Looks for everything that is wrong with the structure of a graph."""

    def __init__(self, graph: Graph, duplicates: Sequence[tuple[int, int]], dangling: Sequence[int]) -> None:
        self._graph = graph
        self._found: dict[str, list[Problem]] = {}
        self._nodes: set[int] = set()
        self._values: set[int] = set()
        if not graph.node_count:
            self._add("empty_graph", "the graph has no nodes.")
        self._names(duplicates)
        self._loose_ends(dangling)
        self._order()
        self._operators()
        self._recursion()
        self.problems = tuple(each for found in self._found.values() for each in found)
        self.nodes, self.values = (np.asarray(sorted(found), np.int32) for found in (self._nodes, self._values))

    def _add(self, kind: str, message: str, node: int = -1, value: int = -1) -> None:
        found = self._found.setdefault(kind, [])
        if len(found) < PROBLEM_LIMIT:
            found.append(Problem(kind, message, node, value))
        if node >= 0:
            self._nodes.add(node)
        if value >= 0:
            self._values.add(value)

    def _names(self, duplicates: Sequence[tuple[int, int]]) -> None:
        graph = self._graph
        for value, node in duplicates:
            by = f" by {graph.node_label(node)}" if node >= 0 else ""
            name = quoted(graph.value_names[value])
            self._add("duplicate_name", f"tensor {name} is made again{by}; names must be unique.", node, value)
        for frame in graph.subgraphs:
            names = graph.names[frame.start : frame.stop]
            if len(set(names)) + names.count("") - ("" in names) == len(names):
                continue
            first: dict[str, int] = {}
            for node, name in enumerate(names, frame.start):
                if name and first.setdefault(name, node) != node:
                    message = f"{graph.node_label(node)} has the name of another node; onnxruntime refuses that."
                    self._add("duplicate_name", message, node)

    def _loose_ends(self, dangling: Sequence[int]) -> None:
        graph = self._graph
        outputs = {int(value) for frame in graph.subgraphs for value in frame.outputs}
        for value in dangling:
            name = quoted(graph.value_names[value])
            readers = graph.consumers(value)
            if len(readers):
                label = graph.node_label(int(readers[0]))
                message = f"{label} reads tensor {name}, which no node makes and which is neither input nor weight."
                self._add("dangling_input", message, int(readers[0]), value)
                self._nodes.update(readers.tolist())
            if value in outputs:
                self._add("missing_output", f"graph output {name} is made by no node.", -1, value)
        for frame in graph.subgraphs:
            if np.any(frame.outputs < 0):
                self._add("missing_output", "a graph output has no name.", frame.owner_node)

    def _order(self) -> None:
        graph = self._graph
        for f, frame in enumerate(graph.subgraphs):
            source, target = graph.subgraph_edges(f)
            late = np.flatnonzero(source >= target)
            if not len(late):
                continue
            after = followers(zip(source.tolist(), target.tolist(), strict=True))
            circles = cycles(range(frame.start, frame.stop), after)
            for members in circles:
                circle = " → ".join(graph.node_label(node) for node in members[:4])
                more = f" and {len(members) - 4} more" if len(members) > 4 else ""
                self._add("cycle", f"nodes form a cycle: {circle}{more}.", members[0])
                self._nodes.update(members)
            if not circles:
                node, maker = int(target[late[0]]), int(source[late[0]])
                message = f"nodes are not in topological order: {graph.node_label(node)} comes before "
                self._add("unsorted", f"{message}{graph.node_label(maker)}, whose result it reads.", node)

    def _operators(self) -> None:
        graph = self._graph
        local = {(domain, name) for domain, name, _ in graph.functions}
        for index, (op, domain) in enumerate(graph.operators):
            kind, message = _unknown(op, domain, local, graph.opsets)
            if kind:
                nodes = np.flatnonzero(graph.op_index == index).tolist()
                times = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
                self._add(kind, message + times, nodes[0])
                self._nodes.update(nodes)

    def _recursion(self) -> None:
        graph = self._graph
        for members in recursive(graph.functions):
            circle = " → ".join(quoted(name) for _, name, _ in [*members[:4], members[0]])
            more = f" and {len(members) - 4} more" if len(members) > 4 else ""
            message = f"functions call each other in a cycle, which ONNX forbids: {circle}{more}."
            names = {(name, domain) for domain, name, _ in members}
            calls = [number for number, key in enumerate(graph.operators) if key in names]
            nodes = np.flatnonzero(np.isin(graph.op_index, calls)).tolist()
            self._add("recursion", message, nodes[0] if nodes else -1)
            self._nodes.update(nodes)


def _unknown(op: str, domain: str, local: set[tuple[str, str]], opsets: Mapping[str, int]) -> tuple[str, str]:
    """Return what is wrong with an operator: the kind of problem and a message; empty if somebody defines it."""
    if (domain, op) in local:
        return "", ""
    if (domain, op) == operators.MARK:
        return "", ""
    named, where, version = f"operator {quoted(op)}", quoted(domain or "ai.onnx"), opsets.get(domain)
    if domain and domain not in operators.known_domains():
        return "unknown_domain", f"{named} is of the unknown domain {where}: it needs a custom-op library"
    if version is None:
        return "unknown_domain", f"{named}: its domain {where} is not among the model's opset imports"
    if domain in operators.onnx_domains() and operators.schema(op, domain, version) is None:
        return "unknown_op", f"{named} does not exist in domain {where} at opset {version}"
    return "", ""
