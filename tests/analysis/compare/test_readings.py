"""What is wrong with a quantized weight is found by reading it otherwise; its error is weighed by its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_nb

RANDOM = np.random.default_rng(5)
FEED = {"x": RANDOM.normal(size=(32, 64)).astype(np.float32)}
WEIGHT = (RANDOM.normal(size=(64, 64)) * np.exp(RANDOM.normal(0, 0.5, 64))).astype(np.float32)
HEAD = (RANDOM.normal(size=(64, 64)) / 8).astype(np.float32)


def network(nodes: list[onnx.NodeProto], weights: dict[str, Any], dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, dtype, [32, 64]) for name in "xy"]
    tensors = [
        w if isinstance(w, onnx.TensorProto) else numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def reference() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "one"), helper.make_node("MatMul", ["h", "v"], ["y"], "two")]
    return network(nodes, {"w": WEIGHT, "v": HEAD})


def dequantizing(integers: Any, scale: Any, zero: Any, **options: int) -> onnx.ModelProto:
    """Return the network with its first weight quantized."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w_quantized", "s", "z"], ["w"], "back", **options),  # type: ignore[arg-type]
        *reference().graph.node,
    ]
    return network(nodes, {"w_quantized": integers, "s": scale, "z": zero, "v": HEAD})


SCALE = np.abs(WEIGHT).max(axis=0) / np.float32(127)
INT8 = np.rint(WEIGHT / SCALE).astype(np.int8)
ZERO = np.zeros(64, np.int8)
UNSIGNED = (INT8.astype(int) + 128).astype(np.uint8)
ROLLED = np.roll(SCALE, 1)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (dequantizing(INT8, SCALE, ZERO, axis=1), ""),
        (dequantizing(INT8, ROLLED, ZERO, axis=1), "the scales shifted by 1 along axis 1"),
        (dequantizing(INT8, SCALE, ZERO, axis=0), "the scales along the other axis"),
        (dequantizing(np.ascontiguousarray(INT8.T), SCALE, ZERO, axis=1), "its integers transposed"),
        (dequantizing(INT8, SCALE * 2, ZERO, axis=1), "scales 0.5 times as large"),
        (dequantizing(UNSIGNED, SCALE, ZERO.astype(np.uint8), axis=1), "a zero point of 128 instead of 0"),
        (dequantizing(UNSIGNED.view(np.int8), SCALE, ZERO, axis=1), "unsigned integers and a zero point of 128"),
        (dequantizing(INT8, np.float32(SCALE.mean()), np.int8(0)), "scales from"),
    ],
    ids=["sound", "shifted", "axis", "transposed", "factor", "zero", "sign", "one for all"],
)  # fmt: skip
def test_the_mistake_is_the_one_without_which_the_error_vanishes(candidate: onnx.ModelProto, words: str) -> None:
    c = onnx_nb.compare(reference(), candidate, FEED)
    if not words:
        assert c.first_divergent() is None
        return
    first = c.first_divergent()
    assert first is not None
    assert first.name == "h"
    assert f"Weight 'w' loses its error with {words}" in c.message


def test_the_order_of_nibbles_is_named() -> None:
    steps = np.abs(WEIGHT).reshape(2, 32, 64).max(axis=1) / np.float32(7)
    codes = (np.rint(WEIGHT / np.repeat(steps, 32, 0)) + 8).astype(np.uint8)
    for low, words in ((0, ""), (1, "the two nibbles of each byte swapped")):
        packed = (codes[low::2] | codes[1 - low :: 2] << 4).T.reshape(64, 2, 16)
        node = helper.make_node(
            "MatMulNBits", ["x", "w_Q4", "s"], ["h"], "one", domain="com.microsoft", K=64, N=64, bits=4, block_size=32
        )
        weights = {"w_Q4": packed, "s": np.ascontiguousarray(steps.T), "v": HEAD}
        c = onnx_nb.compare(reference(), network([node, reference().graph.node[1]], weights), FEED)
        assert (f"loses its error with {words}" in c.message) == bool(words), c.message


def test_a_bias_with_another_scale_is_named() -> None:
    bias = RANDOM.normal(size=64).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "one")]
    exact = network(nodes, {"w": WEIGHT, "b": bias})
    for factor in (1, 3):
        back = helper.make_node("DequantizeLinear", ["b_quantized", "b_scale", "z"], ["b"], "back")
        integers = np.rint(bias / 1e-4).astype(np.int32)
        scale = np.float32(1e-4 * factor)
        weights = {"w": WEIGHT, "b_quantized": integers, "b_scale": scale, "z": np.int32(0)}
        c = onnx_nb.compare(exact, network([back, *nodes], weights), FEED)
        assert ("Weight 'b' loses its error with scales 0.333 times as large" in c.message) == (factor == 3), c.message


def test_weights_of_a_dynamic_lstm_are_judged(tmp_path: Any) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    weights = {
        name: RANDOM.normal(size=size).astype(np.float32) / 4
        for name, size in {"w": (1, 32, 64), "r": (1, 32, 8)}.items()
    }
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], "lstm", hidden_size=8)
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, [6, 2, 64]), ("y", 1, [6, 1, 2, 8]))]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    exact = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], tensors), ir_version=10)
    exact.opset_import[0].version = 17
    feed = {"x": RANDOM.normal(size=(6, 2, 64)).astype(np.float32)}
    onnx.save(exact, tmp_path / "exact.onnx")
    for per_channel in (False, True):
        quantization.quantize_dynamic(tmp_path / "exact.onnx", tmp_path / "int8.onnx", per_channel=per_channel)
        rough = onnx.load(tmp_path / "int8.onnx")
        c = onnx_nb.compare(exact, rough, feed)
        assert {q.name: q.fault for q in c.quantizers} == {"w": "", "r": ""}
        wrong = next(tensor for tensor in rough.graph.initializer if tensor.name == "r_scale")
        wrong.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(wrong) * 2, "r_scale"))
        assert "Weight 'r' loses its error with scales 0.5 times" in onnx_nb.compare(exact, rough, feed).message


def test_clipping_of_few_values_is_said_where_it_costs() -> None:
    values = RANDOM.normal(size=(32, 64)).astype(np.float32)
    values[3, 7] = 60.0  # one in 2,048
    exact = network([helper.make_node("Tanh", ["x"], ["h"], "t"), helper.make_node("Neg", ["x"], ["y"], "n")], {})
    for limit, is_faulty in ((60.0, False), (6.0, True)):
        scale = np.float32(2 * limit / 255)
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "d"),
            helper.make_node("Tanh", ["d"], ["h"], "t"),
            helper.make_node("Neg", ["d"], ["y"], "n"),
        ]
        c = onnx_nb.compare(exact, network(nodes, {"s": scale, "z": np.int8(0)}), {"x": values})
        assert ("clips 0.049% of values above 5.98" in c.message) == is_faulty, c.message


def test_an_overflow_of_float16_is_named_and_rounding_to_it_is_no_difference() -> None:
    halves = {name: array.astype(np.float16) for name, array in {"w": WEIGHT, "v": HEAD}.items()}
    nodes = [
        helper.make_node("Cast", ["x"], ["x16"], "in", to=10),
        helper.make_node("MatMul", ["x16", "w"], ["h"], "one"),
    ]
    nodes += [
        helper.make_node("MatMul", ["h", "v"], ["y16"], "two"),
        helper.make_node("Cast", ["y16"], ["y"], "out", to=1),
    ]
    candidate = network(nodes, halves)
    assert onnx_nb.compare(reference(), candidate, FEED).first_divergent() is None
    message = onnx_nb.compare(reference(), candidate, {"x": FEED["x"] * 5000}).message
    assert "are beyond 65,504, the largest float16" in message
    assert "differs in" not in message


@pytest.mark.parametrize("factor", [1, 60])
def test_the_error_of_a_weight_is_weighed_by_its_input(factor: int) -> None:
    channels = np.ones(64, np.float32)
    channels[[5, 40]] = factor
    weight = np.ascontiguousarray(WEIGHT / channels[:, None])
    exact = reference()
    exact.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    scale = np.abs(weight).max(axis=0) / np.float32(7)
    nodes = [helper.make_node("DequantizeLinear", ["w_quantized", "s"], ["w"], "back", axis=1), *exact.graph.node]
    integers = helper.make_tensor(
        "w_quantized", TensorProto.INT4, [64, 64], np.rint(weight / scale).astype(int).ravel()
    )
    c = onnx_nb.compare(exact, network(nodes, {"q": integers, "s": scale, "v": HEAD}), {"x": FEED["x"] * channels})
    (quantizer,) = c.quantizers
    assert (quantizer.fault == "salient") == (factor > 1)
    assert (quantizer.channels == (5, 40)) == (factor > 1)
    if factor > 1:  # what smoothing makes of the error of the product, done here
        t = channels[:, None] / factor
        step = np.abs(weight * t).max(axis=0) / 7.5
        smooth = np.rint(weight * t / step) * step / t
        errors = [
            np.linalg.norm(FEED["x"] * channels @ (w - weight)) for w in (smooth, np.rint(weight / scale) * scale)
        ]
        assert quantizer.smoothing == pytest.approx(errors[1] / errors[0], rel=0.25)


def test_a_feed_that_is_not_contiguous_stays_what_it_is() -> None:
    """onnxruntime's value views a copy of it, which nothing else holds."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y) { y = Tanh(x) }'
    )
    x = np.arange(64, dtype=np.float32).reshape(4, 16).T
    capture = onnx_nb.capture(model, {"x": x}, keep="*")
    _ = [np.full((16, 4), 7.0, np.float32) for _ in range(64)]
    np.testing.assert_array_equal(capture["x"], x)


@pytest.mark.parametrize("way", ["tensor", "qoperator", "dynamic", "int4", "float16"])
def test_a_quantized_model_with_itself_is_equal_and_with_another_has_no_alarm(way: str) -> None:
    pytest.importorskip("torch")
    from tests.faults import trained

    model, feeds = trained.quantized("lstm", way), trained.feeds("lstm", 100)
    c = onnx_nb.compare(model, model, feeds)
    assert c.message.startswith("All ")
    assert {quantizer.fault for quantizer in c.quantizers} <= {""}
    assert onnx_nb.compare(model, trained.quantized("lstm", "channel"), feeds).first_divergent() is None
