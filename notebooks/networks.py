"""Two small networks that lessons look at: of residual blocks, and a transformer; their weights are always the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

WIDTH: Final = 32
"""Numbers of a token in the transformer."""
LENGTH: Final = 24
"""Tokens that it reads."""


class _Builder:
    """Nodes and weights of a network, named as PyTorch's exporter names them."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.random = np.random.default_rng(seed=0)

    def weight(self, name: str, values: ArrayLike) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), f"{name.replace('/', '.')}.weight"))
        return self.weights[-1].name

    def node(self, scope: str, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"/{scope}/{op_type}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}_output_0"], name, **attributes))
        return str(self.nodes[-1].output[0])

    def model(self, name: str, given: ValueInfoProto, result: ValueInfoProto) -> ModelProto:
        self.nodes[-1].output[0] = result.name
        graph = helper.make_graph(self.nodes, name, [given], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def scores_of(count: str | int) -> ValueInfoProto:
    """Return an output of ten scores for each image or token."""
    return helper.make_tensor_value_info("scores", TensorProto.FLOAT, [count, 10])


def residual_network() -> ModelProto:
    """Return a network for images of 32 × 32 pixels: a stem of one convolution, four blocks, a head of ten scores."""
    build = _Builder()

    def weight(name: str, *shape: int) -> str:
        return build.weight(name, build.random.normal(scale=(2 / np.prod(shape[1:])) ** 0.5, size=shape))

    def convolution(scope: str, x: str, channels: int) -> str:
        return build.node(scope, "Conv", x, weight(scope, 16, channels, 3, 3), pads=[1, 1, 1, 1])

    x = build.node("stem", "Relu", convolution("stem/conv", "image", 3))
    for block in (f"blocks.{number}" for number in range(4)):
        inside = build.node(block, "Relu", convolution(f"{block}/conv1", x, 16))
        x = build.node(block, "Add", convolution(f"{block}/conv2", inside, 16), x)  # the residual connection
    pooled = build.node("head", "Flatten", build.node("head", "GlobalAveragePool", x))
    build.node("head", "Gemm", pooled, weight("head", 10, 16), transB=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])
    return build.model("tiny residual net", image, scores_of("batch"))


def transformer() -> ModelProto:
    """Return a transformer of two layers that reads 24 tokens; each of them attends to its neighbors."""
    build = _Builder()

    def linear(scope: str, x: str, values: ArrayLike) -> str:
        return build.node(scope, "MatMul", x, build.weight(scope, values))

    def norm(scope: str, x: str) -> str:
        return build.node(scope, "LayerNormalization", x, build.weight(scope, np.ones(WIDTH)))

    waves = np.outer(np.arange(LENGTH), 0.6 ** np.arange(WIDTH // 2))
    table = build.weight("embedding", np.hstack([np.sin(waves), np.cos(waves)]))
    x = build.node("embedding", "Gather", table, "tokens")
    for layer in ("layers.0", "layers.1"):
        same, value, output = (np.linalg.qr(build.random.normal(size=(WIDTH, WIDTH)))[0] for _ in range(3))
        attention = f"{layer}/attention"
        query, key = (linear(f"{attention}/{name}", x, same) for name in ("query", "key"))  # so near tokens match
        scores = build.node(attention, "MatMul", query, build.node(attention, "Transpose", key, perm=[1, 0]))
        scores = build.node(attention, "Mul", scores, build.weight(f"{attention}/scale", 0.5))
        shares = build.node(attention, "Softmax", scores)
        mixed = build.node(f"{attention}/mix", "MatMul", shares, linear(f"{attention}/value", x, value))
        x = norm(f"{layer}/norm1", build.node(f"{layer}/skip1", "Add", x, linear(f"{attention}/output", mixed, output)))
        wide = linear(f"{layer}/mlp/up", x, build.random.normal(size=(WIDTH, 64)) / 6)
        wide = build.node(f"{layer}/mlp", "Gelu", wide)
        narrow = linear(f"{layer}/mlp/down", wide, build.random.normal(size=(64, WIDTH)) / 8)
        x = norm(f"{layer}/norm2", build.node(f"{layer}/skip2", "Add", x, narrow))
    linear("head", x, build.random.normal(size=(WIDTH, 10)))
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, [LENGTH])
    return build.model("tiny transformer", tokens, scores_of(LENGTH))
