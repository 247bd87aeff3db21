"""The memory that a run needs, counted by liveness: which tensors are alive at each node, and when most of them are.

A tensor is alive from the node that makes it to the last one that reads it; graph outputs until the end. A view shares
the memory of its input, and so does the output of some operators, as Relu, if nobody reads their input afterwards.
onnxruntime allocates exactly this if it neither optimizes the graph nor plans the reuse of memory
(``enable_mem_reuse`` and ``enable_mem_pattern`` off). With its plan it holds memory that a later tensor of the same
shape will take: 17% more in a ResNet-50, two to three times as much in small transformers.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from onnx import TensorProto

from onnx_nb.analysis.formatting import bytes_text, count_text, quoted
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.operators import facts
from onnx_nb.analysis.model.tensors import declared_bytes
from onnx_nb.analysis.run.random_feeds import required_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.graph.shape_inference import Inference
    from onnx_nb.analysis.model.protofields import Ints

_CACHE_NAME: Final = re.compile("past|cache", re.IGNORECASE)
"""Part of the names of inputs that exporters give to caches of keys and values."""
_LENGTHS: Final = (128, 512, 2048, 8192, 32768)
"""Tokens for which `Cache.rows` counts by default."""


@dataclass(frozen=True)
class Alive:
    """A tensor that is alive at the peak."""

    tensor: str
    nbytes: int


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory of a run for given shapes, without feeds and weights."""

    order: Ints
    """The main nodes in the order in which onnxruntime runs them."""
    alive: NDArray[np.float64]
    """Bytes alive while each of `order` runs, with its outputs and what its bodies need: the curve of a run."""
    peak: int
    """Most bytes alive at once."""
    peak_node: str
    """The node that runs then."""
    alive_at_peak: tuple[Alive, ...]
    """The tensors that are alive then, the largest first."""
    input_bytes: int
    """Bytes of the feeds, which the caller holds."""
    weight_bytes: int
    """Bytes of all weights."""
    unknown: int
    """Tensors of unknown size, which are counted as empty: with any, the peak is a lower bound."""

    @property
    def message(self) -> str:
        """The peak, in a sentence."""
        bound = "at least " if self.unknown else ""
        tensors = count_text(len(self.alive_at_peak), "tensor")
        while_ = f" while {quoted(self.peak_node)} runs" if self.peak_node else ""
        return f"Peak {bound}{bytes_text(self.peak)} in {tensors}{while_}"

    def __repr__(self) -> str:
        bound = "≥ " if self.unknown else ""
        rest = f"{bytes_text(self.weight_bytes)} of weights, {bytes_text(self.input_bytes)} of inputs"
        return f"Memory({bound}{bytes_text(self.peak)} at its peak, {rest})"


@dataclass(frozen=True)
class Cache:
    """Inputs that hold keys and values of earlier tokens, as ``past_key_values.0.key``: a KV cache."""

    length: str
    """Symbol of the number of tokens that they hold."""
    bytes_per_token: int
    """Bytes of all inputs for each token."""
    inputs: tuple[str, ...]
    counted_as_one: tuple[str, ...]
    """Other dimensions of unknown size, such as the batch, which count as 1."""

    def nbytes(self, tokens: int) -> int:
        """Return the bytes of the cache when it holds a number of tokens."""
        return self.bytes_per_token * tokens

    def rows(self, lengths: Sequence[int] = _LENGTHS) -> list[dict[str, int]]:
        """Return the bytes for each length: the curve of the cache."""
        return [{"tokens": tokens, "nbytes": self.nbytes(tokens)} for tokens in lengths]

    def __repr__(self) -> str:
        inputs = count_text(len(self.inputs), "input")
        return f"Cache({bytes_text(self.bytes_per_token)} for each token of {quoted(self.length)}, {inputs})"


def caches(inference: Inference) -> tuple[Cache, ...]:
    """Return the caches among the inputs, one for each symbol of a length; the one that grows fastest first.

    An input belongs to a cache if its name has "past" or "cache" and it has three axes or more, of which one, not the
    first (the batch), is a symbol. Its length may be bound in ``inference``.
    """
    graph = inference.graph
    members: dict[str, list[tuple[str, int, list[str]]]] = {}
    for value in graph.inputs.tolist():
        name, kind = graph.value_names[value], graph.type_of(value)
        if not _CACHE_NAME.search(name):
            continue
        asked = required_sizes(graph, name, len(kind.shape or ()))
        shape, bound = (
            tuple(asked.get(axis, dim) if isinstance(dim, str) else dim for axis, dim in enumerate(dims or ()))
            for dims in (kind.shape, inference.type_of(value).shape)
        )
        free = [axis for axis, dim in enumerate(shape) if axis > 0 and isinstance(dim, str)]
        is_sized = kind.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING)
        if len(shape) < 3 or len(free) != 1 or not is_sized:
            continue
        others = [dim for axis, dim in enumerate(bound or shape) if axis != free[0]]
        sizes = [dim for dim in others if isinstance(dim, int)]
        nbytes = declared_bytes(TensorProto(data_type=kind.elem_type, dims=sizes))
        open_dims = ["?" if dim is None else dim for dim in others if not isinstance(dim, int)]
        members.setdefault(str(shape[free[0]]), []).append((name, nbytes, open_dims))
    results = []
    for symbol, inputs in members.items():
        names, sizes_, dims = zip(*inputs, strict=True)
        results.append(Cache(symbol, sum(sizes_), names, tuple(dict.fromkeys(itertools.chain(*dims)))))
    return tuple(sorted(results, key=lambda cache: -cache.bytes_per_token))


def liveness(graph: Graph, nbytes: NDArray[np.float64], weight_bytes: int) -> Memory:
    """Count the memory of a run of an opened graph, from the bytes of each value (NaN: unknown) and of all weights."""
    walk = _Walk(graph, nbytes)
    order, alive, buffers = walk.subgraph(0)
    tensors = sorted(buffers, key=lambda value: -walk.size(value))
    return Memory(
        order=order,
        alive=alive,
        peak=int(alive.max(initial=0.0)),
        peak_node=graph.names[order[np.argmax(alive)]] if len(order) else "",
        alive_at_peak=tuple(Alive(graph.value_names[value], int(walk.size(value))) for value in tensors),
        input_bytes=int(sum(walk.size(value) for value in graph.inputs.tolist())),
        weight_bytes=weight_bytes,
        unknown=len(walk.unknown),
    )


class _Walk:
    def __init__(self, graph: Graph, nbytes: NDArray[np.float64]) -> None:
        self._graph = graph
        self._nbytes: list[float] = nbytes.tolist()
        self.unknown = set[int]()

    def size(self, value: int) -> float:
        """Return the bytes of a value; 0 if they are unknown."""
        if math.isnan(self._nbytes[value]):
            self.unknown.add(value)
            return 0.0
        return self._nbytes[value]

    def subgraph(self, number: int) -> tuple[Ints, NDArray[np.float64], list[int]]:
        """Return the nodes of a subgraph in order, the bytes alive at each, and the values alive at the peak."""
        graph, place = self._graph, self._graph.subgraphs[number]
        order = self._order(number)
        last = {value: len(order) for value in place.outputs.tolist() if value >= 0}
        for step, node in reversed(list(enumerate(order.tolist()))):
            for value in graph.reads(node):
                last.setdefault(value, step)
        buffer: dict[int, int] = {}  # value → the value whose memory it has
        starts: dict[int, int] = {}  # buffer → the step at which it is made
        ends: dict[int, int] = {}  # buffer → the last step at which it is read
        for step, node in enumerate(order.tolist()):
            for at, value in enumerate(graph.node_outputs(node).tolist()):
                if value < 0:
                    continue
                is_view = at == 0 and _has_trait(graph, node, "view")
                source = buffer.get(int(graph.node_inputs(node)[0]), -1) if is_view else -1
                if at == 0 and source < 0:
                    source = self._overwritten(node, value, step, buffer, ends)
                buffer[value] = source if source >= 0 else value
                starts.setdefault(buffer[value], step)
                ends[buffer[value]] = max(ends.get(buffer[value], step), last.get(value, step))
        change = np.zeros(len(order) + 2)
        for value, step in starts.items():
            change[step] += self.size(value)
            change[ends[value] + 1] -= self.size(value)
        bodies = [[self.subgraph(body)[1].max(initial=0.0) for body in graph.bodies(node)] for node in order.tolist()]
        alive = np.cumsum(change)[: len(order)] + [max(inner, default=0.0) for inner in bodies]
        peak = int(np.argmax(alive)) if len(order) else -1
        return order, alive, [value for value, step in starts.items() if step <= peak <= ends[value]]

    def _order(self, number: int) -> Ints:
        """Return the nodes of a subgraph in the order of onnxruntime: depth first from those whose outputs are unused.

        Of several that a node waits for, the one that comes last in the file runs first.
        """
        graph, place = self._graph, self._graph.subgraphs[number]
        members = [node for node in graph.subgraph_order(number).tolist() if not graph.folded[node]]
        source, target = graph.subgraph_edges(number)
        edges = sorted(set(zip(source.tolist(), target.tolist(), strict=True)))
        before = followers((reader, maker) for maker, reader in edges)
        sources = set(source.tolist())
        todo = [(node, False) for node in range(place.start, place.stop) if node not in sources]
        history, order = set[int](), list[int]()
        while todo:
            node, is_ready = todo.pop()
            if is_ready:
                order.append(node)
            elif node not in history:
                history.add(node)
                todo.append((node, True))
                todo += [(maker, False) for maker in before.get(node, ()) if maker not in history]
        nodes = [node for node in order if not graph.folded[node]]
        return np.asarray(nodes if len(nodes) == len(members) else members, np.int32)  # on cycles: any order

    def _overwritten(self, node: int, output: int, step: int, buffer: dict[int, int], ends: dict[int, int]) -> int:
        """Return the buffer of a node's first input if its output takes its place; −1 if not."""
        inputs = self._graph.node_inputs(node).tolist()
        source = buffer.get(inputs[0], -1) if _has_trait(self._graph, node, "in_place") else -1
        if source < 0 or ends[source] != step or sum(buffer.get(value) == source for value in inputs) > 1:
            return -1
        return source if self._nbytes[inputs[0]] == self._nbytes[output] else -1


def _has_trait(graph: Graph, node: int, trait: str) -> bool:
    """Return whether a standard operator has a trait, and the node an input."""
    op, domain = graph.operators[graph.op_index[node]]
    return not domain and trait in facts(op).traits and len(graph.node_inputs(node)) > 0
