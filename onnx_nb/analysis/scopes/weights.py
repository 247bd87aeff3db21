"""Which weights are read in each node and scope, each counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnx_nb.analysis.graph.dataflow import depths, upward
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.types import Column, weight_sizes
from onnx_nb.analysis.model.protofields import Ints, sorted_unique

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.scopes.scopes import Scopes


def weights_read(graph: Graph) -> tuple[Ints, Ints, Column, Column]:
    """Return pairs of nodes and weights they read, those that a node holds behind all values, and `weight_sizes`."""
    size, nbytes = weight_sizes(graph)
    number = np.where(graph.value_kind == INITIALIZER, np.arange(graph.value_count), -1)
    holder = np.arange(graph.value_count, len(size))
    first: dict[int, int] = {}
    for place in range(graph.plain.node_count, graph.node_count):  # a function has one, however often it is called
        holder[place] = first.setdefault(id(graph.node(place)), holder[place])
    is_result = np.append(graph.is_constant, values=False)[graph.producer]
    number[is_result] = holder[graph.producer[is_result]]
    read = np.append(number, -1)[graph.in_value]
    node = np.repeat(np.arange(graph.node_count), np.diff(graph.in_ptr))
    own = np.flatnonzero((size[graph.value_count :] > 0) & ~graph.is_constant)
    reader, value = np.concatenate([node[read >= 0], own]), np.concatenate([read[read >= 0], holder[own]])
    reader, value = _unique_pairs(reader, value, len(size))
    owner = np.asarray([subgraph.owner_node for subgraph in graph.subgraphs], np.int32)
    inner, inside = reader, value
    while (subgraph := graph.node_subgraph[inner]).any():  # the nodes that own bodies read what is read in these
        inner, inside = _unique_pairs(owner[subgraph[subgraph > 0]], inside[subgraph > 0], len(size))
        reader, value = np.concatenate([reader, inner]), np.concatenate([value, inside])
    return *_unique_pairs(reader, value, len(size)), size, nbytes


def scope_weights(tree: Scopes, reader: Ints, value: Ints, size: Column) -> Column:
    """Sum the weights that are read in each scope, at any depth, each once."""
    parent = tree.scope_parent
    depth = depths(parent)
    scope, value = _unique_pairs(tree.node_scope[reader], value, len(size))
    is_common = np.bincount(value, minlength=len(size))[value] > 1
    direct = np.bincount(scope[~is_common], size[value[~is_common]], minlength=len(parent)).astype(np.float64)
    total = upward(np.add, direct, parent)
    scope, value = scope[is_common], value[is_common]
    for level in range(int(depth.max()), -1, -1):
        here = depth[scope] == level
        np.add.at(total, scope[here], size[value[here]])
        scope = np.where(here, parent[scope], scope)
        scope, value = _unique_pairs(scope[scope >= 0], value[scope >= 0], len(size))
    return total


def _unique_pairs(first: Ints, second: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the distinct pairs of numbers, of which the second is below `count`, in order."""
    firsts, seconds = np.divmod(sorted_unique(first.astype(np.int64) * max(count, 1) + second), max(count, 1))
    return firsts.astype(np.int32), seconds.astype(np.int32)
