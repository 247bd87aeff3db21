"""Weights with several integers in a byte are what onnxruntime multiplies by, and their errors are by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.compare.operands import Operand, block_reader
from onnx_nb.analysis.compare.quantization import block_errors
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run.session import run

RNG = np.random.default_rng(3)


def packed(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def scale(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def model_of(op: str, feeds: dict[str, Any], weights: dict[str, Any], inputs: list[str], **options: Any) -> Any:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    node = helper.make_node(op, inputs, ["y"], "node", domain="com.microsoft", **options)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "g", infos, [result], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def operand_of(model: Any, name: str) -> Operand:
    graph = Graph.of(model)
    pair = block_reader(graph, graph.value(name))
    assert pair is not None
    return pair[1]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_a_product_with_the_identity_is_the_weight(*, bits: int, zeros: bool) -> None:
    n, k, block = 24, 64, 16
    weights = {"w_Q4": packed(n, k // block, block * bits // 8), "s": scale(n, k // block)}
    if zeros:
        weights["z"] = packed(n, k // block * bits // 8)
    feeds = {"x": np.eye(k, dtype=np.float32)}
    options = {"N": n, "K": k, "bits": bits, "block_size": block}
    model = model_of("MatMulNBits", feeds, weights, ["x", *weights], **options)
    operand = operand_of(model, "w_Q4")
    np.testing.assert_allclose(operand.array, run(model, feeds)["y"], rtol=1e-6, atol=1e-7)
    assert operand.granularity == "block of 16"


def test_all_rows_of_a_table_are_the_weight() -> None:
    weights = {"w": packed(10, 32), "s": scale(10, 2)}
    feeds = {"i": np.arange(10)}
    options = {"bits": 4, "block_size": 32, "quantize_axis": 1, "gather_axis": 0}
    model = model_of("GatherBlockQuantized", feeds, weights, ["w", "i", "s"], **options)
    np.testing.assert_allclose(operand_of(model, "w").array, run(model, feeds)["y"], rtol=1e-6)


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_experts_on_identities_are_their_weights(*, block: int, bits: int, zeros: bool) -> None:
    experts, hidden, inner = 3, 32, 64
    sizes = {"up": (inner, hidden), "down": (hidden, inner)}
    weights: dict[str, Any] = {}
    for name, (rows, columns) in sizes.items():
        blocks = columns // block if block else 1
        weights[name] = packed(experts, rows, columns * bits // 8)
        weights[f"{name}_s"] = scale(experts, rows, blocks)[..., slice(None) if block else 0]
        if zeros:
            weights[f"{name}_z"] = packed(experts, *((rows, blocks * bits // 8) if block else (rows * bits // 8,)))
    feeds = {"x": np.tile(np.eye(hidden, dtype=np.float32), (experts, 1))}
    feeds["router"] = np.repeat(np.eye(experts, dtype=np.float32) * 100, hidden, axis=0)
    inputs = ["x", "router", "up", "up_s", "", "down", "down_s", *[""] * 4, *(["up_z", "down_z"] if zeros else [])]
    options = {"k": 1, "activation_type": "identity", "expert_weight_bits": bits} | (
        {"block_size": block} if block else {}
    )
    model = model_of("QMoE", feeds, weights, inputs, normalize_routing_weights=1, **options)
    up, down = (operand_of(model, name) for name in sizes)
    assert up.array.shape == (experts, inner, hidden)
    expected = run(model, feeds)["y"].reshape(experts, hidden, hidden)
    product = (down.array.astype(np.float64) @ up.array).swapaxes(1, 2)
    rounding = 1e-2 if bits == 8 and block else 1e-5  # of activations to int8
    np.testing.assert_allclose(product, expected, rtol=0, atol=np.abs(expected).max() * rounding)


def test_a_faulty_block_stands_out() -> None:
    n, k, block = 24, 64, 16
    right = RNG.normal(size=(k, n)).astype(np.float32)
    blocks = right.T.reshape(n, k // block, block)
    scales = np.abs(blocks).max(axis=-1) / 7
    integers = np.rint(blocks / scales[..., None]).astype(np.int64) + 8
    content = (integers[..., ::2] | integers[..., 1::2] << 4).astype(np.uint8)
    scales[5, 2] *= 2
    weights = {"w_Q4": content, "s": scales}
    options = {"N": n, "K": k, "bits": 4, "block_size": block}
    model = model_of("MatMulNBits", {"x": np.zeros((1, k), np.float32)}, weights, ["x", *weights], **options)
    reference = load(helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(right, "w")])))
    errors = block_errors(Graph.of(model), 0, operand_of(model, "w_Q4"), reference)
    assert errors.shape == (k // block, n)
    assert np.argwhere(errors == errors.max()).tolist() == [[2, 5]]
    assert errors.max() > 0.9  # twice of all values
    assert np.delete(errors.ravel(), errors.argmax()).max() < 0.15
    other = load(onnx.helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(right[1:], "w")])))
    with pytest.raises(OnnxNbError, match="has no weight 'w' of 64×24"):
        block_errors(Graph.of(model), 0, operand_of(model, "w_Q4"), other)
