"""Problems in the structure of a graph, found and described; a broken graph is drawn nevertheless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import cycles, followers
from onnx_nb.analysis.graph.names import DANGLING
from onnx_nb.analysis.model.functions import calls_between

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints

PROBLEM_LIMIT = 100
"""Maximum number of problems described of each kind."""


@dataclass(frozen=True)
class Problem:
    """A problem in a graph; the graph is drawn nevertheless."""

    kind: str
    """duplicate_name, dangling_input, missing_output, cycle, recursion, unsorted, unknown_op, unknown_domain,
    empty_graph or inference."""
    message: str
    node: int = -1
    """Flat node with the problem, or −1."""
    value: int = -1
    """Value with the problem, or −1."""


class Problems(NamedTuple):
    """Problems in the structure of a graph."""

    described: tuple[Problem, ...]
    nodes: Ints
    """Every node with a problem, including those beyond the described ones."""
    values: Ints


def structural_problems(graph: Graph, duplicates: Iterable[tuple[int, int]]) -> Problems:
    """Find all problems in the structure of a graph."""
    by_kind: dict[str, list[Problem]] = {}
    nodes, values = set[int](), set[int]()

    def add(kind: str, message: str, about: Sequence[int] = (), value: int = -1) -> None:
        problems = by_kind.setdefault(kind, [])
        if len(problems) < PROBLEM_LIMIT:
            problems.append(Problem(kind, message, about[0] if len(about) else -1, value))
        nodes.update(about)
        values.update({value} - {-1})

    if not graph.node_count:
        add("empty_graph", "the graph has no nodes.")
    for value, node in duplicates:
        by = f" by {graph.node_label(node)}" if node >= 0 else ""
        message = f"tensor {quoted(graph.value_names[value])} is made again{by}; names must be unique."
        add("duplicate_name", message, [node] if node >= 0 else (), value)
    for frame in graph.subgraphs:
        names = graph.names[frame.start : frame.stop]
        if len(set(names)) + names.count("") - ("" in names) == len(names):
            continue
        first: dict[str, int] = {}
        for node, name in enumerate(names, frame.start):
            # onnxruntime makes weights of Constants first
            if name and not graph.is_constant[node] and first.setdefault(name, node) != node:
                message = f"{graph.node_label(node)} has the name of another node; onnxruntime refuses that."
                add("duplicate_name", message, [node])

    outputs = {int(value) for frame in graph.subgraphs for value in frame.outputs}
    for value in np.flatnonzero(graph.value_kind == DANGLING).tolist():
        name, readers = quoted(graph.value_names[value]), graph.consumers(value).tolist()
        if readers:
            label = graph.node_label(readers[0])
            message = f"{label} reads tensor {name}, which no node makes and which is neither input nor weight."
            add("dangling_input", message, readers, value)
        if value in outputs:
            add("missing_output", f"graph output {name} is made by no node.", (), value)
    for frame in graph.subgraphs:
        if np.any(frame.outputs < 0):
            add("missing_output", "a graph output has no name.", [frame.owner_node] if frame.owner_node >= 0 else ())

    for f, frame in enumerate(graph.subgraphs):
        source, target = graph.subgraph_edges(f)
        late = np.flatnonzero(source >= target)
        if not len(late):
            continue
        after = followers(zip(source.tolist(), target.tolist(), strict=True))
        circles = cycles(range(frame.start, frame.stop), after)
        for members in circles:
            labels = [graph.node_label(node) for node in members[:4]]
            add("cycle", f"nodes form a cycle: {_in_turn(labels, len(members) - 4)}.", members)
        if not circles:
            node, maker = int(target[late[0]]), int(source[late[0]])
            message = f"nodes are not in topological order: {graph.node_label(node)} comes before "
            add("unsorted", f"{message}{graph.node_label(maker)}, whose result it reads.", [node])

    local = {(name, domain) for domain, name, _ in graph.functions} | {operators.MARK[::-1]}
    for index, (op, domain) in enumerate(graph.operators):
        label_, where, version = f"operator {quoted(op)}", quoted(domain or "ai.onnx"), graph.opsets.get(domain)
        kind = "unknown_domain"
        if (op, domain) in local or (not domain and operators.is_contributed(op, domain)):
            continue
        if domain and domain not in operators.known_domains():
            message = f"{label_} is of the unknown domain {where}: it needs a custom-op library"
        elif version is None:
            message = f"{label_}: its domain {where} is not among the model's opset imports"
        elif operators.schema(op, domain, version) is None and domain in operators.onnx_domains():
            kind, message = "unknown_op", f"{label_} does not exist in domain {where} at opset {version}"
        else:
            continue
        those = np.flatnonzero(graph.op_index == index).tolist()
        add(kind, message + (f" ({len(those)} nodes)" if len(those) > 1 else ""), those)

    for keys in cycles(graph.functions, calls_between(graph.functions)):
        chain = _in_turn([quoted(name) for _, name, _ in [*keys[:4], keys[0]]], len(keys) - 4)
        called_names = {(name, domain) for domain, name, _ in keys}
        calls = [number for number, key in enumerate(graph.operators) if key in called_names]
        message = f"functions call each other in a cycle, which ONNX forbids: {chain}."
        add("recursion", message, np.flatnonzero(np.isin(graph.op_index, calls)).tolist())
    texts = tuple(problem for those in by_kind.values() for problem in those)
    return Problems(texts, *(np.asarray(sorted(problem), np.int32) for problem in (nodes, values)))


def _in_turn(labels: Sequence[str], more: int) -> str:
    return " → ".join(labels) + (f" and {more} more" if more > 0 else "")
