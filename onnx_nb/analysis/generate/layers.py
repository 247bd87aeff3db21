"""The layers of a decoder, and its graph with every half of a layer fed from outside.

No name and no value is looked at: the stream of residuals is the longest chain of sums of a value and of what is made
of it, by an Add or by a norm that adds (Skip…). A half that reads a state mixes tokens, and begins a layer. With the
stream given behind each sum, one run computes what every half of a layer makes of what it should have read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import onnx
from onnx import ModelProto, helper

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model, with_proto
from onnx_nb.analysis.model.tensors import attribute

CUT: Final = "onnx_nb.stream."
"""Prefix of the inputs that are added."""


@dataclass(frozen=True)
class Stem:
    """A place of the stream of residuals: behind the embedding, and behind each half of a layer."""

    tensor: str
    """The stream; empty at a fused norm that drops it."""
    norm: int
    """The node that adds and normalizes, if it is fused; −1 where the stream is made by another node."""
    label: str
    """What made it: "embedding", "layer 3 attention", "layer 3 mlp"; "mixer" for another half that reads a state."""
    layer: int = -1
    window: int = 0
    """Tokens that the attention sees; 0 for all."""
    presents: tuple[str, ...] = ()
    """The states that are written: the keys and the values of an attention."""
    nodes: frozenset[int] = frozenset()
    """The nodes that make what is added, and the one that adds it."""


class _Sum(NamedTuple):
    """A sum of a value and of what is made of it."""

    adder: int
    stream: int
    """The value that it adds to."""
    nodes: frozenset[int]
    """The nodes that make the other summand of it."""
    before: _Sum | None
    length: int


def stems_of(graph: Graph, states: Mapping[str, str]) -> tuple[Stem, ...]:
    """Return the stems of a decoder that carries states, input → output, in order; empty if none is known."""
    sums, longest = dict[int, _Sum](), None
    for node in graph.order.tolist():
        inputs, outputs, op = graph.node_inputs(node).tolist(), graph.node_outputs(node).tolist(), graph.op_type(node)
        if op in {"Cast", "Identity"} and inputs[0] in sums:
            sums[outputs[0]] = sums[inputs[0]]
        if node >= graph.main_count or len(inputs) < 2 or not (op == "Add" or op in names_where("sums")):
            continue
        for stream, branch in (inputs[:2], inputs[1::-1]):
            if nodes := _nodes_between(graph, stream, branch):
                before = sums.get(stream)
                link = _Sum(node, stream, nodes, before, before.length + 1 if before else 1)
                sums.update(dict.fromkeys((value for value in outputs if value >= 0), link))
                longest = link if longest is None or link.length > longest.length else longest
    chain = list[_Sum]()
    while longest is not None:
        chain.insert(0, longest)
        longest = longest.before
    pasts, is_constant = {graph.value(name) for name in states}, graph.constant_values
    for node in graph.order.tolist():  # also what is made of states and weights only
        inputs = [value for value in graph.node_inputs(node).tolist() if value >= 0 and not is_constant[value]]
        if inputs and pasts.issuperset(inputs):
            pasts.update(value for value in graph.node_outputs(node).tolist() if value >= 0)
    mixes = [any(not pasts.isdisjoint(graph.node_inputs(node).tolist()) for node in link.nodes) for link in chain]
    if not any(mixes):
        return ()
    streams = [graph.value_names[link.stream] for link in chain]
    outputs = graph.node_outputs(chain[-1].adder).tolist()
    place = 3 if graph.op_type(chain[-1].adder) in names_where("sums") else 0
    streams.append(graph.value_names[outputs[place]] if len(outputs) > place and outputs[place] >= 0 else "")
    maker = int(graph.producer[chain[0].stream])  # −1 where embeddings are an input
    is_fused = maker >= 0 and int(graph.node_outputs(maker)[0]) != chain[0].stream  # positions are added in a norm
    stems = [Stem(streams[0], maker if is_fused else -1, "embedding", nodes=frozenset({maker} - {-1}))]
    for link, tensor, (label, layer, window) in zip(chain, streams[1:], _halves(graph, chain, mixes), strict=True):
        values = {value for node in link.nodes for value in graph.node_outputs(node).tolist()}
        presents = tuple(name for name in states.values() if graph.value(name) in values)
        result = graph.value_names[int(graph.node_outputs(link.adder)[0])]
        is_fused = graph.op_type(link.adder) in names_where("sums") and tensor != result
        nodes = link.nodes | {link.adder}
        stems.append(Stem(tensor, link.adder if is_fused else -1, label, layer, window, presents, nodes))
    return tuple(stems)


def with_streams(model: Model, stems: tuple[Stem, ...], *, feed: bool) -> tuple[Model, list[str]]:
    """Return a model that also outputs the stream at each stem, and the names of these outputs.

    With ``feed`` what reads the stream there reads an input in its place, ``CUT`` and the number of the stem.
    """
    graph, proto = Graph.of(model), ModelProto()
    wire.copy_fields(model.proto, proto, without=("graph",))
    wire.copy_fields(model.proto.graph, proto.graph, without=("node",))
    proto.graph.node.extend(model.proto.graph.node)
    nodes, outputs, norms = proto.graph.node, list[str](), dict[int, onnx.NodeProto]()
    for number, stem in enumerate(stems):
        norm = nodes[stem.norm]
        if not stem.tensor:
            norm.output.extend([""] * (4 - len(norm.output)))
            norm.output[3] = f"{CUT}{number}.sum"
        stream = stem.tensor or norm.output[3]
        outputs.append(stream)
        kind = graph.type_of(graph.value(stem.tensor) if stem.tensor else int(graph.node_outputs(stem.norm)[0]))
        elem_type = kind.elem_type or onnx.TensorProto.FLOAT
        proto.graph.output.append(helper.make_tensor_value_info(stream, elem_type, None))
        if not feed:
            continue
        feed_name = f"{CUT}{number}"
        proto.graph.input.append(helper.make_tensor_value_info(feed_name, elem_type, ["batch", "length", "width"]))
        for node in nodes:
            for place, name in enumerate(node.input):
                if name == stream:
                    node.input[place] = feed_name
        if stem.norm >= 0:
            result, norm.output[0] = norm.output[0], f"{feed_name}.unused"
            scale = [name for name in norm.input[2 : 3 if "Simplified" in norm.op_type else 4] if name]
            plain = norm.op_type.removeprefix("Skip")
            norms[stem.norm] = helper.make_node(plain, [feed_name, *scale], [result], f"{feed_name}.norm", axis=-1)
            norms[stem.norm].attribute.extend(entry for entry in norm.attribute if entry.name == "epsilon")
    for place in sorted(norms, reverse=True):  # the last one first, so that the others keep their places
        nodes.insert(place + 1, norms[place])
    return with_proto(model, proto), outputs


def part_of_nodes(graph: Graph, stems: tuple[Stem, ...], logits: str) -> dict[int, int]:
    """Return the place among the stems of each node that works for one alone; behind them that of the logits."""
    places = {node: place for place, stem in reversed([*enumerate(stems)]) for node in stem.nodes}
    todo = [graph.value(logits)]
    while todo:
        value = todo.pop()
        node = int(graph.producer[value]) if value >= 0 else -1
        if node >= 0 and node not in places:
            places[node] = len(stems)
            todo += graph.node_inputs(node).tolist()
    streams = {stem.norm if not stem.tensor else int(graph.producer[graph.value(stem.tensor)]) for stem in stems}
    for node in sorted(places.keys() - streams, key=graph.rank.__getitem__, reverse=True):
        readers = (reader for value in graph.results(node) for reader in graph.consumers(value).tolist())
        if any(places.get(reader, places[node]) != places[node] for reader in readers):
            places[node] = -1  # such as the cosines of all layers
    return {node: place for node, place in places.items() if place >= 0}


def windows_of(graph: Graph) -> list[int]:
    """Return the window of the attention of each layer in tokens, 0 where it sees all."""
    return [_window(graph, node) for node in graph.order.tolist() if graph.op_type(node) in names_where("attends")]


def rounds_activations(graph: Graph) -> bool:
    """Return whether activations are rounded to int8, so that the last bit of one decides about steps of 1%."""
    return any(op in names_where("dynamic") for op, _ in graph.operators) or any(
        attribute(node, "accuracy_level", 0) == 4 for node in graph.nodes if node.op_type == "MatMulNBits"
    )


def _window(graph: Graph, node: int) -> int:
    return max(int(attribute(graph.nodes[node], "local_window_size", 0)), 0)


def _nodes_between(graph: Graph, stream: int, branch: int) -> frozenset[int]:
    """Return the nodes that make a value of another one and others; none if it is not made of that one."""
    if min(stream, branch) < 0 or stream == branch:
        return frozenset()
    maker = int(graph.producer[stream])
    floor, nodes, todo, is_reached = int(graph.rank[maker]) if maker >= 0 else -1, set[int](), [branch], False
    while todo:
        value = todo.pop()
        node = int(graph.producer[value]) if value >= 0 else -1
        is_reached = is_reached or value == stream or node == maker >= 0
        if node >= 0 and node not in nodes and graph.rank[node] > floor:
            nodes.add(node)
            todo += graph.node_inputs(node).tolist()
    return frozenset(nodes if is_reached else ())


def _halves(graph: Graph, chain: list[_Sum], mixes: list[bool]) -> Iterator[tuple[str, int, int]]:
    """Yield what each sum adds, as "layer 3 attention", its layer, and the window of its attention."""
    layer, counts, is_parallel = -1, dict[str, int](), all(mixes)
    for number, (link, is_mixer) in enumerate(zip(chain, mixes, strict=True)):
        if number == 0 or (is_mixer and (is_parallel or not mixes[number - 1])):
            layer, counts = layer + 1, {}
        attentions = [node for node in link.nodes if graph.op_type(node) in names_where("attends") | {"Softmax"}]
        part = ("attention" if attentions else "mixer") if is_mixer else "cross attention" if attentions else "mlp"
        part = f"{part} and mlp" if is_parallel else part
        counts[part] = counts.get(part, 0) + 1
        label = f"layer {layer} {part}" + (f" {counts[part]}" if counts[part] > 1 else "")
        yield label, layer, max((_window(graph, node) for node in attentions), default=0)
