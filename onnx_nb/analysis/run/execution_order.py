"""The nodes of a subgraph that have to run for some values, in which order, and how long each value is needed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.run import ort_types

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph


@dataclass(frozen=True, eq=False)
class ExecutionOrder:
    """The nodes of one subgraph that run. Values and nodes are numbers of the graph."""

    subgraph: int
    nodes: list[int]
    reads: Mapping[int, list[int]]
    """Values that a node reads, outer-scope values of its subgraphs included."""
    makes: Mapping[int, list[int]]
    last_reader: dict[int, int]
    """Position of the last reader of each value; ``len(nodes)`` for outputs of the subgraph."""
    optional: Mapping[int, str]
    """Types of inputs that are optional, as onnxruntime writes them."""


def execution_order(graph: Graph, subgraph: int, wanted: Collection[int], opened: Collection[int]) -> ExecutionOrder:
    """Return which nodes of a subgraph run."""
    place = graph.subgraphs[subgraph]
    outputs = frozenset(v for v in place.outputs.tolist() if v >= 0) if subgraph else frozenset()
    nodes = graph.subgraph_order(subgraph).tolist()
    all_reads = _reads(graph, subgraph, nodes)
    wanted_here = {v for v in wanted if graph.value_subgraph[v] == subgraph}
    makers = {int(graph.producer[v]) for v in wanted_here | outputs}
    # what the subgraphs of opened nodes read is read by these nodes
    makers.update(node for node in opened if place.start <= node < place.stop)
    needed = _ancestors(graph, makers, all_reads)
    nodes = _constants_late(graph, [node for node in nodes if node in needed], all_reads)
    reads = {node: all_reads[node] for node in nodes}
    last_reader = {value: position for position, node in enumerate(nodes) for value in reads[node]}
    last_reader.update(dict.fromkeys(outputs, len(nodes)))
    optional = {
        value: ort_types.written(info.type)
        for value, info in zip(place.inputs.tolist(), place.graph.input, strict=False)
        if subgraph and info.type.HasField("optional_type")
    }
    return ExecutionOrder(subgraph, nodes, reads, _makes(graph, place.start, place.stop), last_reader, optional)


def _reads(graph: Graph, subgraph: int, nodes: Sequence[int]) -> dict[int, list[int]]:
    place = graph.subgraphs[subgraph]
    in_value, in_ptr = graph.in_value.tolist(), graph.in_ptr[place.start : place.stop + 1].tolist()
    owners = {node for node in nodes if graph.bodies(node)} if len(graph.subgraphs) > 1 else set()
    reads = {}
    for node in nodes:
        at = node - place.start
        own = [v for v in in_value[in_ptr[at] : in_ptr[at + 1]] if v >= 0]
        reads[node] = [*own, *graph.outer_values(node).tolist()] if node in owners else own
    return reads


def _makes(graph: Graph, start: int, stop: int) -> dict[int, list[int]]:
    out_value, out_ptr = graph.out_value.tolist(), graph.out_ptr[start : stop + 1].tolist()
    return {
        start + at: [v for v in out_value[begin:end] if v >= 0]
        for at, (begin, end) in enumerate(itertools.pairwise(out_ptr))
    }


def _ancestors(graph: Graph, makers: set[int], reads: Mapping[int, Sequence[int]]) -> set[int]:
    """Return some nodes, and the nodes of the same subgraph that they depend on."""
    if len(makers & reads.keys()) == len(reads):
        return set(reads)
    producer = graph.producer
    found: set[int] = set()
    waiting = [node for node in makers if node in reads]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(maker for v in reads[node] if (maker := int(producer[v])) in reads)
    return found


def _constants_late(graph: Graph, nodes: list[int], reads: Mapping[int, Sequence[int]]) -> list[int]:
    """Move nodes that depend on no input right before their first reader: their values may be as large as weights."""
    kinds, producer = graph.value_kind, graph.producer
    constant = {node for node in nodes if all(kinds[v] == INITIALIZER for v in reads[node])}
    if not constant:
        return nodes
    for node in nodes:
        if node not in constant and all(kinds[v] == INITIALIZER or int(producer[v]) in constant for v in reads[node]):
            constant.add(node)
    number = {node: at for at, node in enumerate(nodes)}
    position = dict(number)
    first_reader: dict[int, int] = {}
    for node in reversed(nodes):
        if node in constant:
            position[node] = first_reader.get(node, position[node])
        for value in reads[node]:
            maker = int(producer[value])
            if maker in constant:
                first_reader[maker] = min(first_reader.get(maker, len(nodes)), position[node])
    return sorted(nodes, key=lambda node: (position[node], node not in constant, number[node]))
