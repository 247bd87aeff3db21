"""The layers of a decoder in a fused graph, and the graph with every layer fed from outside.

No name and no value is looked at: from each attention the walk goes back to the product that makes its queries, whose
input is the layer's first norm; the stream of residuals passes through the norms, whose fused form (a Skip…) also adds.
With the stream given at each norm, one run computes what every half of a layer makes of what it should have read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onnx
from onnx import ModelProto, helper

from onnx_nb.analysis.graph.dataflow import topological
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model, with_proto

ATTENTIONS: Final = ("GroupQueryAttention", "MultiHeadAttention", "Attention", "PagedAttention")
_NORMS: Final = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
"""Norms as they are alone; behind "Skip" those that add two tensors first."""
CUT: Final = "onnx_nb.stream."
"""Prefix of the inputs that are added."""


@dataclass(frozen=True)
class Stem:
    """A place where the stream of residuals is normalized: before an attention, before an MLP, or at the end."""

    tensor: str
    """The stream before the norm: the result of what is `part` of `layer`; empty at a fused norm that drops it."""
    norm: int
    """The node that normalizes it."""
    layer: int
    """The layer whose part made it; −1 for the embedding."""
    part: str
    """"embedding", "attention" or "mlp"."""

    @property
    def label(self) -> str:
        """As "layer 3 attention"."""
        return self.part if self.layer < 0 else f"layer {self.layer} {self.part}"


def stems_of(graph: Graph, logits: str) -> tuple[Stem, ...]:
    """Return the stems of a decoder, in order; empty if the graph has none that are known."""
    attentions = [node for node in graph.order.tolist() if graph.op_type(node) in ATTENTIONS]
    heads = [_norm_before(graph, node) for node in attentions] + [_norm_before(graph, -1, graph.value(logits))]
    if len(heads) < 2 or min(heads) < 0:
        return ()
    stems = list[Stem]()
    for layer, (head, following, attention) in enumerate(zip(heads, heads[1:], attentions, strict=False)):
        middle = _middle(graph, head, following, attention)
        if middle < 0:
            return ()
        stems.append(Stem(_stream(graph, head), head, layer - 1, "mlp" if layer else "embedding"))
        stems.append(Stem(_stream(graph, middle), middle, layer, "attention"))
    return (*stems, Stem(_stream(graph, heads[-1]), heads[-1], len(attentions) - 1, "mlp"))


def with_streams(model: Model, stems: tuple[Stem, ...], *, feed: bool) -> tuple[Model, list[str]]:
    """Return a model that also outputs the stream at each stem, and the names of these outputs.

    With ``feed`` what reads the stream there reads an input in its place, ``CUT`` and the number of the stem.
    """
    graph, proto = Graph.of(model), ModelProto()
    wire.copy_fields(model.proto, proto, without=("graph",))
    wire.copy_fields(model.proto.graph, proto.graph, without=("node",))
    proto.graph.node.extend(model.proto.graph.node)
    nodes, outputs, more = proto.graph.node, list[str](), list[onnx.NodeProto]()
    for number, stem in enumerate(stems):
        norm = nodes[stem.norm]
        is_fused = norm.op_type.startswith("Skip")
        if is_fused and not stem.tensor:
            norm.output.extend([""] * (4 - len(norm.output)))
            norm.output[3] = f"{CUT}{number}.sum"
        stream = stem.tensor or norm.output[3]
        outputs.append(stream)
        kind = graph.type_of(int(graph.node_outputs(stem.norm)[0]))
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
        if is_fused:
            result, norm.output[0] = norm.output[0], f"{feed_name}.unused"
            scale = [name for name in norm.input[2 : 3 if "Simplified" in norm.op_type else 4] if name]
            plain = norm.op_type.removeprefix("Skip")
            more.append(helper.make_node(plain, [feed_name, *scale], [result], f"{feed_name}.norm", axis=-1))
            more[-1].attribute.extend(entry for entry in norm.attribute if entry.name == "epsilon")
    nodes.extend(more)
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    edges = ((makers[name], place) for place, node in enumerate(nodes) for name in node.input if name in makers)
    ordered = [nodes[place] for place in topological(0, len(nodes), edges)]
    del nodes[:]
    nodes.extend(ordered)
    return with_proto(model, proto), outputs


def windows_of(graph: Graph) -> list[int]:
    """Return the window of the attention of each layer in tokens, 0 where it sees all."""
    sizes = []
    for node in graph.order.tolist():
        if graph.op_type(node) in ATTENTIONS:
            values = {entry.name: entry.i for entry in graph.nodes[node].attribute}
            sizes.append(max(values.get("local_window_size", 0), 0))
    return sizes


def _norm_before(graph: Graph, node: int, value: int = -1) -> int:
    """Return the norm before the product that makes the first input of a node, or a value; −1 if there is none."""
    value = int(graph.node_inputs(node)[0]) if node >= 0 else value
    has_product = False
    for _ in range(64):
        maker = int(graph.producer[value]) if value >= 0 else -1
        if maker < 0:
            return -1
        op = graph.op_type(maker)
        if has_product and op.removeprefix("Skip") in _NORMS:
            return maker
        has_product = has_product or op.startswith(("MatMul", "Gemm", "FusedMatMul", "QLinearMatMul"))
        value = int(graph.node_inputs(maker)[0])
    return -1


def _middle(graph: Graph, head: int, following: int, attention: int) -> int:
    """Return the norm between two heads that normalizes the stream after the attention; −1 if there is none."""
    rank = graph.rank
    reach, todo = set[int](), [int(graph.node_outputs(attention)[0])]
    while todo:
        for node in graph.consumers(todo.pop()).tolist():
            if node in reach or rank[node] >= rank[following]:
                continue
            reach.add(node)
            todo += [value for value in graph.node_outputs(node).tolist() if value >= 0]
    norms = [node for node in reach if graph.op_type(node).removeprefix("Skip") in _NORMS and node != head]
    fused = [node for node in norms if graph.op_type(node).startswith("Skip")]
    makers = {node: int(graph.producer[int(graph.node_inputs(node)[0])]) for node in norms}
    streams = fused or [node for node, maker in makers.items() if maker >= 0 and graph.op_type(maker) == "Add"]
    return min(streams, key=lambda node: int(rank[node]), default=-1)


def _stream(graph: Graph, norm: int) -> str:
    """Return the stream that a norm normalizes; empty if it is added inside and not given out."""
    if not graph.op_type(norm).startswith("Skip"):
        return graph.value_names[int(graph.node_inputs(norm)[0])]
    outputs = graph.node_outputs(norm).tolist()
    return graph.value_names[outputs[3]] if len(outputs) > 3 and outputs[3] >= 0 else ""
