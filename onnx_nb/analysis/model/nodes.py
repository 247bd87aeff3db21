"""Contents of a NodeProto: its attributes by name, its subgraphs, and their nodes at any depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from onnx import GraphProto, NodeProto

from onnx_nb.analysis.formatting import plain_text


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, or a default if the node does not have it."""
    for found in node.attribute:
        if plain_text(found.name) == name:
            return onnx.helper.get_attribute_value(found)
    return default


def graphs_of(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yield the subgraphs of a node, each after the name of its attribute."""
    for found in node.attribute:
        if found.HasField("g"):
            yield plain_text(found.name), found.g
        for index, graph in enumerate(found.graphs):
            yield f"{plain_text(found.name)}[{index}]", graph


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes and those in their subgraphs, depth first; without recursion, so that any depth works."""
    waiting = [iter(nodes)]
    while waiting:
        for node in waiting[-1]:
            yield node
            inner = [iter(graph.node) for _, graph in graphs_of(node)]
            if inner:
                waiting.extend(reversed(inner))
                break
        else:
            waiting.pop()
