"""What the lessons on intermediate values share: a model of nodes, and a deep network with weights of any scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import onnx_nb

WIDTH: Final = 256
"""Numbers that a layer of the network returns for each input."""
DEPTH: Final = 20
"""Layers of the network."""


def model_of(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    weights: Mapping[str, NDArray[np.generic]] | None = None,
) -> onnx_nb.Model:
    """Return a model of nodes, with inputs and outputs as dictionaries from name to shape."""
    given, results = (
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each, shape in side.items()]
        for side in (inputs, outputs)
    )
    initializers = [numpy_helper.from_array(values, each) for each, values in (weights or {}).items()]
    graph = helper.make_graph(nodes, name, given, results, initializers)
    return onnx_nb.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def network(scale: float, seed: int = 0) -> onnx_nb.Model:
    """Return layers of MatMul, Add and Relu, with random weights of a standard deviation and biases of zero."""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, NDArray[np.generic]] = {}
    value = "x"
    for layer in range(DEPTH):
        weights[f"layers.{layer}.weight"] = random.normal(scale=scale, size=(WIDTH, WIDTH)).astype(np.float32)
        weights[f"layers.{layer}.bias"] = np.zeros(WIDTH, np.float32)
        for op, *extra in ("MatMul", f"layers.{layer}.weight"), ("Add", f"layers.{layer}.bias"), ("Relu",):
            output = "y" if (layer, op) == (DEPTH - 1, "Relu") else f"/layers.{layer}/{op}_output_0"
            nodes.append(helper.make_node(op, [value, *extra], [output], f"/layers.{layer}/{op}"))
            value = output
    return model_of("network", nodes, {"x": ["batch", WIDTH]}, {"y": ["batch", WIDTH]}, weights)
