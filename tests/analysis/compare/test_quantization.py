"""What quantizers cost, against numpy and onnxruntime, and whether a faulty one is named."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.compare.operands import weight_of
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.quantize.what_if import WhatIf
from tests import models
from tests.faults.quantized import EXCLUDED, KINDS, NAMED, Sound, conv_network, exclusions, verdicts


def test_planted_faults_are_named_and_the_sound_model_is_not() -> None:
    made, alarms = verdicts(["conv"], list(KINDS), 2)
    assert alarms == {"conv": ""}
    assert len(made) == 2 * len(KINDS) == 10
    assert sum(not verdict.named for verdict in made) >= NAMED * len(made), made
    assert sum(not verdict.fault for verdict in made) >= NAMED * len(made), made


def rounded(scale: float, zero: int, *, back: int | None = None) -> onnx_nb.types.Comparison:
    """The comparison of a Neg with a copy that rounds its result."""
    names, extra = ("z", "") if back is None else ("w", f", int8 w = {{{back}}}")
    exact = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 8] x) => (float[n, 8] y) { y = Neg(x) }'
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 8] x) => (float[n, 8] y) <float s = {{{scale}}}, int8 z = {{{zero}}}{extra}>
        {{ before = Neg(x)  q = QuantizeLinear(before, s, z)  y = DequantizeLinear(q, s, {names}) }}"""
    return onnx_nb.compare(onnx.parser.parse_model(exact), onnx.parser.parse_model(text), {"x": VALUES})


VALUES = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)


def test_figures_of_a_quantizer_are_those_of_numpy() -> None:
    scale = 0.01
    (found,) = rounded(scale, 3).quantizers
    codes = np.rint(-VALUES / np.float32(scale)) + 3
    inside = codes.clip(-128, 127)
    errors = (inside - 3) * scale + VALUES.astype(np.float64)
    assert found.count == VALUES.size
    assert [found.low, found.high] == pytest.approx([-1.31, 1.24])
    far = np.abs(errors) > scale * 1.001
    assert (found.below, found.above) == (np.sum(far & (codes < -128)), np.sum(far & (codes > 127)))
    assert found.clipping == pytest.approx((errors[far] ** 2).sum(), rel=1e-4)
    assert found.rounding == pytest.approx((errors[~far] ** 2).sum(), rel=1e-4)
    assert found.levels.tolist() == np.bincount((inside + 128).astype(int).ravel(), minlength=256).tolist()
    assert found.rmse_per_scale == pytest.approx(np.sqrt((errors**2).mean()) / scale, rel=1e-4)
    assert found.fault == "clipping"
    assert found.message.startswith(
        f"quantization of 'y' clips {100 * found.above / found.count:.2g}% of values above 1.24"
    )
    twice = found | found
    assert (twice.count, twice.clipped, twice.excess) == (2 * found.count, found.clipped, found.excess)


def test_blame_and_faults_of_one_rounding(tmp_path: Path) -> None:
    fitting = 2 * float(np.abs(VALUES).max()) / 255
    c = rounded(fitting, 0)
    assert c.quantizers[0].fault == ""
    assert c.quantizers[0].rmse_per_scale == pytest.approx(12**-0.5, rel=0.1)
    assert c["y"].blame == {
        "weights": 0.0,
        "rounding": pytest.approx(1.0),
        "clipping": 0.0,
        "other": pytest.approx(0.0, abs=1e-4),
    }
    assert rounded(fitting / 4, 0)["y"].blame["clipping"] > 0.9
    coarse = rounded(4 * fitting, 0)
    assert coarse.first_divergent() is coarse["y"]
    assert coarse.quantizers[0].excess == pytest.approx(4, rel=0.1)
    assert "is too large and uses 23% of its levels" in coarse.message
    wrong = rounded(fitting, 0, back=9)
    assert "the zero point 9 instead of 0" in wrong.message
    wrong.save(tmp_path / "saved")
    again = onnx_nb.types.Comparison.load(tmp_path / "saved")
    assert again.message == wrong.message
    assert [str(each) for each in again.quantizers] == [str(each) for each in wrong.quantizers]


FORMATS: dict[str, list[tuple[str, str, str, dict[str, Any]]]] = {
    "block": [
        ("DequantizeLinear", "w_quantized blocks", "m", {"axis": 0, "block_size": 16}),
        ("MatMul", "h m", "y", {}),
    ],
    "dynamic": [
        ("DynamicQuantizeLinear", "h", "q s z", {}),
        ("MatMulInteger", "q w_quantized z", "i", {}),
        ("Cast", "i", "f", {"to": TensorProto.FLOAT}),
        ("Mul", "s w_scale", "both", {}),
        ("Mul", "f both", "y", {}),
    ],
    "operator": [
        ("QuantizeLinear", "h h_scale zero", "h_quantized", {}),
        ("QLinearMatMul", "h_quantized h_scale zero w_quantized w_scale zero y_scale zero", "y_quantized", {}),
        ("DequantizeLinear", "y_quantized y_scale zero", "y", {}),
    ],
}


@pytest.mark.parametrize("name", FORMATS)
def test_blame_of_every_format_is_what_each_part_costs_in_numpy(name: str) -> None:
    random = np.random.default_rng(3)
    matrix, x = random.normal(size=(32, 8)).astype(np.float32), random.normal(size=(64, 32)).astype(np.float32)
    scale, h_scale = (np.abs(each).max() / np.float32(127) for each in (matrix, x))
    rows = np.abs(matrix).reshape(2, 16, 8).max(axis=1) / np.float32(127)
    each = np.repeat(rows, 16, axis=0) if name == "block" else scale
    integers = np.rint(matrix / each)
    weights = {
        "w_quantized": integers.astype(np.int8), "w_scale": scale, "blocks": rows, "h_scale": h_scale,
        "y_scale": np.abs(x @ matrix).max() / np.float32(127), "zero": np.zeros((), np.int8),
    }  # fmt: skip

    def model(nodes: list[tuple[str, str, str, dict[str, Any]]], arrays: dict[str, Any]) -> onnx.ModelProto:
        made = [helper.make_node(op, read.split(), to.split(), **rest) for op, read, to, rest in nodes]
        ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, [64, 32]), ("y", 1, [64, 8]))]
        held = [numpy_helper.from_array(np.asarray(array), key) for key, array in arrays.items()]
        graph = helper.make_graph([helper.make_node("Neg", ["x"], ["h"]), *made], "g", ends[:1], ends[1:], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    used = {read for _, reads, _, _ in FORMATS[name] for read in reads.split()}
    candidate = model(FORMATS[name], {key: array for key, array in weights.items() if key in used})
    c = onnx_nb.compare(model([("MatMul", "h w", "y", {})], {"w": matrix}), candidate, {"x": x})
    held = next(each for each in c.quantizers if each.role == "weight")
    assert held.squares == pytest.approx(((integers * each - matrix.astype(np.float64)) ** 2).sum(), rel=1e-3)
    assert c.first_divergent() is None
    by_weights = float((np.square(x @ (integers * each - matrix))).sum())
    step = {"block": 0.0, "dynamic": np.ptp(x) / 255, "operator": h_scale}[name]
    by_values = float(np.square((np.rint(x / step) * step - x) @ matrix).sum()) if step else 0.0
    assert c["y"].blame["weights"] == pytest.approx(by_weights / (by_weights + by_values), abs=0.15)
    assert sum(c["y"].blame.values()) == pytest.approx(1)


def packed(matrix: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bytes, the scales and the values of four bits for each block along the last axis."""
    blocks = matrix.reshape(len(matrix), -1, block)
    scales = np.abs(blocks).max(axis=2) / np.float32(7)
    codes = (np.rint(blocks / scales[..., None]).clip(-8, 7) + 8).astype(np.uint8)
    values = ((codes.astype(np.float64) - 8) * scales[..., None]).reshape(matrix.shape)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales, values


@pytest.mark.parametrize("op", ["MatMulNBits", "GatherBlockQuantized"])
def test_blame_of_packed_weights_is_what_they_cost_in_numpy(op: str) -> None:
    random = np.random.default_rng(4)
    matrix = random.normal(size=(12, 32)).astype(np.float32)
    data, scales, values = packed(matrix, 16)
    if op == "MatMulNBits":
        x: np.ndarray = random.normal(size=(20, 32)).astype(np.float32)
        held = matrix.T
        exact, right, rough = helper.make_node("MatMul", ["h", "w"], ["y"]), x @ matrix.T, x @ values.T
        made: dict[str, Any] = {"K": 32, "N": 12, "bits": 4, "block_size": 16}
        reads = ["h", "w_Q4G16", "scales"]
    else:
        x, held, data = random.integers(0, 12, 40), matrix, data.reshape(12, -1)
        exact, right, rough = helper.make_node("Gather", ["w", "h"], ["y"]), matrix[x], values[x]
        made = {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
        reads = ["w_Q4G16", "h", "scales"]

    def model(node: onnx.NodeProto, arrays: dict[str, np.ndarray]) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        ends = [helper.make_tensor_value_info(*end) for end in (("x", kind, x.shape), ("y", 1, right.shape))]
        weights = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in arrays.items()]
        first = helper.make_node("Identity", ["x"], ["h"])
        graph = helper.make_graph([first, node], "g", ends[:1], ends[1:], weights)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    exact.name = "the node"
    node = helper.make_node(op, reads, ["y"], domain="com.microsoft", **made)
    c = onnx_nb.compare(model(exact, {"w": held}), model(node, {"w_Q4G16": data, "scales": scales}), {"x": x})
    (found,) = c.quantizers
    assert (found.name, found.dtype, found.granularity, found.fault) == ("w", "uint4", "block of 16", "")
    assert found.squares == pytest.approx(np.square(values - matrix).sum(), rel=1e-3)
    assert c["y"].blame["weights"] > 0.99
    assert c["y"].cumulative is not None
    assert c["y"].cumulative.sqnr == pytest.approx(
        10 * np.log10(np.square(right).sum() / np.square(rough - right).sum()), abs=0.05
    )
    assert np.allclose(onnx_nb.run(onnx_nb.mixed(c, ["the node"]), {"x": x}, optimize=False)["y"], right, atol=1e-5)
    assert onnx_nb.types.ExclusionCurve.of(c, ["y"]).nodes() == ["the node"]
    node.name = exact.name = ""
    c = onnx_nb.compare(model(exact, {"w": held}), model(node, {"w_Q4G16": data, "scales": scales}), {"x": x})
    with pytest.raises(onnx_nb.OnnxNbError, match=r"a named node of g .* each of whose nodes needs a name"):
        onnx_nb.mixed(c, [])


def test_blame_of_a_convolution_of_integers_is_what_each_part_costs_in_numpy() -> None:
    random = np.random.default_rng(5)
    kernel, x = random.normal(size=(6, 4, 3, 3)).astype(np.float32), random.normal(size=(2, 4, 9, 9)).astype(np.float32)

    def convolved(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(values.astype(np.float64), (3, 3), axis=(2, 3))
        return np.asarray(np.einsum("nchwij,ocij->nohw", windows, weights))

    right = convolved(x, kernel)
    scales = np.abs(kernel).max(axis=(1, 2, 3)) / np.float32(127)
    steps = {"h": np.abs(x).max() / np.float32(127), "y": np.float32(np.abs(right).max() / 127)}
    wide = scales.reshape(-1, 1, 1, 1)
    integers = np.rint(kernel / wide)
    arrays = {
        "w_quantized": integers.astype(np.int8), "w_scale": scales, "zeros": np.zeros(6, np.int8),
        "zero": np.zeros((), np.int8), **{f"{key}_scale": step for key, step in steps.items()},
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["h", "h_scale", "zero"], ["h_quantized"]),
        helper.make_node(
            "QLinearConv",
            ["h_quantized", "h_scale", "zero", "w_quantized", "w_scale", "zeros", "y_scale", "zero"],
            ["y_quantized"],
        ),
        helper.make_node("DequantizeLinear", ["y_quantized", "y_scale", "zero"], ["y"]),
    ]

    def model(nodes: list[onnx.NodeProto], arrays: dict[str, Any]) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, x.shape), ("y", 1, right.shape))]
        weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
        made = [helper.make_node("Neg", ["x"], ["minus"]), helper.make_node("Neg", ["minus"], ["h"]), *nodes]
        graph = helper.make_graph(made, "g", ends[:1], ends[1:], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    c = onnx_nb.compare(
        model([helper.make_node("Conv", ["h", "w"], ["y"])], {"w": kernel}), model(nodes, arrays), {"x": x}
    )
    found = {each.name: each for each in c.quantizers}
    rounded = {key: np.rint(array / steps[key]) * steps[key] - array for key, array in (("h", x), ("y", right))}
    assert found["w"].granularity == "channel"
    assert found["w"].squares == pytest.approx(np.square(integers * wide - kernel).sum(), rel=1e-3)
    assert found["h"].squares == pytest.approx(np.square(rounded["h"]).sum(), rel=1e-3)
    by_weights = np.square(convolved(x, integers * wide - kernel)).sum()
    by_values = np.square(convolved(rounded["h"], kernel)).sum() + np.square(rounded["y"]).sum()
    assert c.first_divergent() is None
    assert c["y"].blame["weights"] == pytest.approx(by_weights / (by_weights + by_values), abs=0.15)


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
@pytest.mark.parametrize("scale", [0.01, 0.002])
def test_floats_of_eight_bits_cost_what_numpy_says(kind: str, scale: float) -> None:
    elem_type, dtype = getattr(TensorProto, kind), helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    matrix = np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32)
    exact = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 19]>
        g (float[64, 8] x, float[8, 6] w) => (float[64, 6] y) { h = Neg(x)  y = MatMul(h, w) }""")
    exact.graph.initializer.append(numpy_helper.from_array(matrix, "w"))
    del exact.graph.input[1]
    candidate = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 19]>
        g (float[64, 8] x) => (float[64, 6] y) <float s = {{{scale}}}> {{ h = Neg(x)  q = QuantizeLinear(h, s, z)
        h_DequantizeLinear_Output = DequantizeLinear(q, s, z)  m = DequantizeLinear(w_quantized, s, z)
        y = MatMul(h_DequantizeLinear_Output, m) }}""")
    limit = 448.0 if kind == "FLOAT8E4M3FN" else 57344.0

    def codes(values: np.ndarray) -> np.ndarray:
        return (values / np.float32(scale)).clip(-limit, limit).astype(dtype)

    candidate.graph.initializer.extend(
        helper.make_tensor(name, elem_type, array.shape, array.tobytes(), raw=True)
        for name, array in (("z", np.zeros((), dtype)), ("w_quantized", codes(matrix)))
    )
    c = onnx_nb.compare(exact, candidate, {"x": VALUES})
    found = {each.name: each for each in c.quantizers}
    for name, values in (("h", -VALUES), ("w", matrix)):
        errors = codes(values).astype(np.float64) * scale - values
        beyond = np.abs(values) > limit * scale * (1 + 2.0**-5)
        assert found[name].squares == pytest.approx((errors**2).sum(), rel=1e-3)
        assert found[name].clipping == pytest.approx((errors[beyond] ** 2).sum(), rel=0.05, abs=1e-9)
        assert (found[name].wrong, found[name].bits, found[name].dtype) == (0, 8, dtype.name)
        assert found[name].fault == ("clipping" if beyond.mean() > 0.01 else "")


@pytest.mark.parametrize("zeros", [True, False])
def test_weights_of_blocks_are_those_that_onnxruntime_multiplies_with(zeros: bool) -> None:
    random = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {
        "b": random.integers(0, 256, (6, 3, 8), dtype=np.uint8),
        "s": random.uniform(0.1, 1, (18,)).astype(np.float32),
        **({"z": random.integers(0, 256, (6 * 2,), dtype=np.uint8)} if zeros else {}),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", K=40, N=6, bits=4, block_size=16
    )
    ends = [helper.make_tensor_value_info(*each) for each in (("x", 1, [40, 40]), ("y", 1, [40, 6]))]
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    proto = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:], weights),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    graph = Graph.of(onnx_nb.load(proto))
    held = weight_of(graph, 0, 1)
    assert held is not None
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (right,) = session.run(None, {"x": np.eye(40, dtype=np.float32)})
    assert np.allclose(held.array, right, atol=1e-5)
    assert (held.granularity, held.bits) == ("block of 16", 4)


def test_mixed_models_are_those_of_onnxruntime_and_reach_the_target(tmp_path: Path) -> None:
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    sound, source = Sound("conv"), conv_network()
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    right = onnx_nb.run(sound.reference, sound.feeds)["y"]

    def noise(model: onnx_nb.types.ModelLike) -> float:
        error = onnx_nb.run(model, sound.feeds, optimize=False)["y"] - right
        return float(20 * np.log10(np.linalg.norm(right) / np.linalg.norm(error)))

    before = noise(sound.candidate)
    names = onnx_nb.suggest_exclusion(c, sqnr=f"{before + 3:.1f} dB")
    assert 0 < len(names) < 5
    assert noise(onnx_nb.mixed(c, names)) >= before + 3
    assert onnx_nb.suggest_exclusion(c, sqnr=before - 1) == []
    for exclude in (names, ["conv0", "relu0"], [node.name for node in sound.reference.graph.node]):
        feeds = iter([onnx_nb.random_feeds(source, seed) for seed in range(2)])
        reader = type(
            "Reader", (quantization.CalibrationDataReader,), {"get_next": lambda _, feeds=feeds: next(feeds, None)}
        )()
        quantization.quantize_static(source, tmp_path / "mixed.onnx", reader, nodes_to_exclude=exclude)
        theirs = onnx_nb.run(tmp_path / "mixed.onnx", sound.feeds, optimize=False)["y"]
        assert np.array_equal(onnx_nb.run(onnx_nb.mixed(c, exclude), sound.feeds, optimize=False)["y"], theirs)


@pytest.mark.parametrize("how", ["nbits", "blocks"])
def test_quantized_weights_are_put_back_as_onnxruntime_leaves_them_out(how: str) -> None:
    source = models.exported("bert", dynamo=True)
    feeds = onnx_nb.random_feeds(source, 0)
    c = onnx_nb.compare(source, models.transformed("bert", how), feeds)
    right = onnx_nb.run(source, feeds, optimize=False)
    nodes = onnx_nb.types.ExclusionCurve.of(c).nodes()
    assert len(nodes) == {"nbits": 75, "blocks": 72}[how]
    for exclude in ([], nodes[::5], nodes):
        found = onnx_nb.run(onnx_nb.mixed(c, exclude), feeds, optimize=False)
        theirs = onnx_nb.run(models.weight_only(source, how, exclude), feeds, optimize=False)
        assert all(np.array_equal(found[name], theirs[name]) for name in right)
    assert all(np.array_equal(found[name], right[name]) for name in right)

    def ratio(name: str, found: dict[str, Any]) -> float:
        return float(20 * np.log10(np.linalg.norm(right[name]) / np.linalg.norm(found[name] - right[name])))

    curve = onnx_nb.types.ExclusionCurve.of(c, nodes[:2])
    for count, step in enumerate(curve.steps):
        found = onnx_nb.run(onnx_nb.mixed(c, nodes[:count]), feeds, optimize=False)
        assert step.sqnr == pytest.approx(min(ratio(name, found) for name in right), abs=0.01)
    target = curve.steps[0].sqnr + 3
    names = onnx_nb.suggest_exclusion(c, sqnr=target)
    assert 0 < len(names) < 20
    found = onnx_nb.run(onnx_nb.mixed(c, names), feeds, optimize=False)
    assert min(ratio(name, found) for name in right) >= target - 1e-6


def test_tied_and_transposed_weights_are_put_back_one_by_one() -> None:
    random = np.random.default_rng(2)
    table = random.normal(size=(12, 32)).astype(np.float32)
    data, scales, _ = packed(table, 16)
    exact = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (int64[5] x) => (float[5, 12] y, float[5, 12] z) <float[12] b = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
        { [embed] h = Gather(t, x)  [head] y = Gemm<transB = 1>(h, t, b)
          m = Transpose(t)  [other] z = MatMul(h, m) }""")
    quantized = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (int64[5] x) => (float[5, 12] y, float[5, 12] z) <float[12] b = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
        { h = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 16, quantize_axis = 1>(t_Q4, x, s)
          y = com.microsoft.MatMulNBits<K = 32, N = 12, bits = 4, block_size = 16>(h, t_Q4_1, s, , , b)
          d = DequantizeLinear<axis = 1, block_size = 16>(t_DQ_Q4, s)  m = Transpose(d)  z = MatMul(h, m) }""")
    codes = np.stack([data & 15, data >> 4], axis=-1).reshape(12, 32).astype(np.int8) - 8
    arrays = {"t_Q4": data.reshape(12, -1), "t_Q4_1": data, "s": scales, "t_DQ_Q4": codes}
    exact.graph.initializer.append(numpy_helper.from_array(table, "t"))
    quantized.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    feeds = {"x": np.asarray([0, 3, 3, 11, 7])}
    c = onnx_nb.compare(exact, quantized, feeds)
    rough, right = (onnx_nb.run(model, feeds, optimize=False) for model in (quantized, exact))
    found = onnx_nb.run(onnx_nb.mixed(c, ["embed"]), feeds, optimize=False)
    assert not any(np.allclose(found[name], rough[name], atol=1e-4) for name in right)
    assert not any(np.allclose(found[name], right[name], atol=1e-4) for name in right)
    half = onnx_nb.run(onnx_nb.mixed(c, ["embed", "head"]), feeds, optimize=False)
    assert np.allclose(half["y"], right["y"], atol=1e-5)
    assert np.array_equal(half["z"], found["z"])
    assert onnx_nb.types.ExclusionCurve.of(c, ["embed", "head", "other"]).steps[-1].sqnr > 120
    assert onnx_nb.types.ExclusionCurve.of(c, ["h"]).nodes() == ["embed"]


def test_curve_of_regions_in_float_is_that_of_mixed_models() -> None:
    sound = Sound("conv")
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    right = onnx_nb.run(sound.reference, sound.feeds)["y"].astype(np.float64)
    curve = onnx_nb.types.ExclusionCurve.of(c)
    assert [step.name for step in curve.steps[:1]] == [""]
    assert len(curve.steps) > 3
    for count in (0, 2, len(curve.steps) - 1):
        found = onnx_nb.run(onnx_nb.mixed(c, curve.nodes(count)), sound.feeds, optimize=False)["y"].astype(np.float64)
        step, error = curve.steps[count], float(np.linalg.norm(found - right))
        ratio = 20 * np.log10(np.linalg.norm(right) / error) if error else np.inf
        assert step.sqnr == pytest.approx(ratio, abs=0.01 if ratio < 100 else np.inf)
        logs = [each - np.log(np.exp(each).sum(axis=1, keepdims=True)) for each in (right, found)]
        divergence = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=1).mean()
        assert step.kl == pytest.approx(divergence, rel=0.01, abs=1e-12)
        assert step.top1 == (right.argmax(axis=1) == found.argmax(axis=1)).mean()
    chosen = onnx_nb.types.ExclusionCurve.of(c, ["conv1", curve.steps[1].name], count=1)
    assert [step.name for step in chosen.steps] == ["", "conv1"]
    assert onnx_nb.types.ExclusionCurve.of(c, ["conv1"]).nodes() == chosen.nodes() == list(chosen.steps[1].nodes)
    assert chosen.rows()[1] | {"regions": 1, "nodes": len(chosen.nodes())} == chosen.rows()[1]
    with pytest.raises(onnx_nb.OnnxNbError, match=r"'conf1' is no quantized region or node .*'conv1'"):
        onnx_nb.types.ExclusionCurve.of(c, ["conf1"])


def test_few_nodes_are_suggested_and_only_what_lies_behind_a_change_runs() -> None:
    sound = Sound("conv")
    for each in exclusions(sound, (1, 6, 10)):
        assert 0 < each.ours <= EXCLUDED * each.greedy, each
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    what_if = WhatIf(c)
    runs = what_if.runs
    before = runs.outcome(()).sqnr
    parts = runs.executed
    assert runs.outcome(["classify"]).sqnr > before
    assert parts < runs.executed < parts + 4
    last = runs.executed
    runs.outcome(["classify", "conv0", "relu0"])
    assert runs.executed == last + parts
    what_if.curve(["conv1", "conv2"])
    last = runs.executed
    what_if.curve(["conv1", "conv2", "classify"])
    assert runs.executed < last + 4  # what the first two gain is known
    what_if.curve(count=0)
    last = runs.executed
    what_if.curve(count=0)
    assert runs.executed == last  # what each tensor costs is known, too


@pytest.mark.slow
@pytest.mark.rare  # two and a half minutes
def test_few_nodes_are_suggested_where_errors_do_not_add_up() -> None:
    (found,) = exclusions(Sound("vit"), (3,), count=4)
    assert 0 < found.ours <= EXCLUDED * found.greedy, found


def test_bounds_of_activations_that_quantization_removed_are_put_back(tmp_path: Path) -> None:
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    text = """<ir_version: 9, opset_import: ["": 17]>
        g (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[1, 4, 5, 5] y) <float low = {0}, float high = {6}>
        { c = Conv(x, w)  r = Clip(c, low, high)  y = MaxPool<kernel_shape = [2, 2]>(r) }"""
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    proto.graph.initializer.append(numpy_helper.from_array(random.normal(size=(4, 3, 3, 3)).astype(np.float32), "w"))
    del proto.graph.input[1]
    for node in proto.graph.node:
        node.name = f"a {node.op_type}"
    onnx.save(proto, tmp_path / "exact.onnx")
    feed = {"x": 4 * random.normal(size=(1, 3, 8, 8)).astype(np.float32)}
    feeds = iter([feed])
    reader = type("Reader", (quantization.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
    quantization.quantize_static(tmp_path / "exact.onnx", tmp_path / "q.onnx", reader)
    c = onnx_nb.compare(tmp_path / "exact.onnx", tmp_path / "q.onnx", feed)
    assert not any(node.op_type == "Clip" for node in onnx.load(tmp_path / "q.onnx").graph.node)
    found = onnx_nb.run(onnx_nb.mixed(c, ["a Conv", "a MaxPool"]), feed, optimize=False)["y"]
    assert np.array_equal(found, onnx_nb.run(tmp_path / "exact.onnx", feed, optimize=False)["y"])
    assert onnx_nb.types.ExclusionCurve.of(c, ["a Conv", "a MaxPool"]).steps[-1].sqnr == np.inf


def test_what_cannot_be_put_back_to_float_is_said(tmp_path: Path) -> None:
    sound = Sound("conv")
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    with pytest.raises(onnx_nb.OnnxNbError, match=r"'conf1' is no quantized node of .*Closest names: 'conv1'"):
        onnx_nb.mixed(c, ["conf1"])
    sound.candidate.graph.node[-1].output[0] = "almost"
    sound.candidate.graph.initializer.append(numpy_helper.from_array(np.asarray(1.01, np.float32), "factor"))
    sound.candidate.graph.node.append(helper.make_node("Mul", ["almost", "factor"], ["y"]))
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    with pytest.raises(onnx_nb.OnnxNbError, match="do not reach 500 dB"):
        onnx_nb.suggest_exclusion(c, sqnr=500)
    c.save(tmp_path / "saved")
    with pytest.raises(onnx_nb.OnnxNbError, match="the models of this comparison are not known"):
        onnx_nb.mixed(onnx_nb.types.Comparison.load(tmp_path / "saved"), [])
    plain = onnx_nb.compare(sound.reference, sound.reference, sound.feeds)
    with pytest.raises(onnx_nb.OnnxNbError, match=r"has no pairs of QuantizeLinear and DequantizeLinear, "):
        onnx_nb.suggest_exclusion(plain, sqnr="30 dB")


NORMS = {
    "merged": "h = LayerNormalization(a, gamma, beta)",
    "scaled": "n = LayerNormalization(a, ones)  m = Mul(n, gamma)  h = Add(m, beta)",
    "split": """mean = ReduceMean<axes = [-1]>(a)  c = Sub(a, mean)  s = Mul(c, c)  v = ReduceMean<axes = [-1]>(s)
        e = Add(v, epsilon)  d = Sqrt(e)  n = Div(c, d)  m = Mul(n, gamma)  h = Add(m, beta)""",
}


def with_large_gamma(norm: str, shape: str, channel: int) -> onnx.ModelProto:
    """Return matrices with a normalization in between that makes a channel 300 times as large as the others."""
    random = np.random.default_rng(0)
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{shape}, 48] x) => (float[{shape}, 48] y)
        {{ a = MatMul(x, w1)  {NORMS[norm]}  p = MatMul(h, w2)  t = Tanh(p)  y = MatMul(t, w3) }}""")
    arrays = {f"w{at}": random.normal(size=(48, 48)) / 7 for at in (1, 2, 3)} | {"epsilon": np.asarray(1e-5)}
    arrays |= {"gamma": random.normal(1, 0.1, 48), "beta": random.normal(0, 0.1, 48), "ones": np.ones(48)}
    arrays["gamma"][channel] *= 300
    arrays["w2"][channel] /= 300
    read = {name for node in proto.graph.node for name in node.input}
    tensors = [numpy_helper.from_array(arrays[name].astype(np.float32), name) for name in arrays if name in read]
    proto.graph.initializer.extend(tensors)
    return proto


def quantized(proto: onnx.ModelProto, folder: Path, **options: Any) -> Path:
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    onnx.save(proto, folder / "exact.onnx")
    feeds = iter([onnx_nb.random_feeds(proto, seed) for seed in range(2)])
    reader = type("Reader", (quantization.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
    quantization.quantize_static(folder / "exact.onnx", folder / "quantized.onnx", reader, **options)
    return folder / "quantized.onnx"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", ["36", "4, 9", "4, 3, 3"])
def test_outlier_channels_are_those_of_the_tensor_that_is_rounded(norm: str, shape: str, tmp_path: Path) -> None:
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    proto = with_large_gamma(norm, shape, 16)
    of_all = {"gamma", "m", "h"} if norm != "merged" else {"gamma", "h"}
    integers = of_all - ({"gamma"} if norm == "merged" else set())  # LayerNormalization stays in float
    for options, expected in (
        ({}, of_all),
        ({"quant_format": quantization.QuantFormat.QOperator}, integers),
        ({"op_types_to_quantize": ["MatMul"]}, {"h"}),
    ):
        candidate = quantized(proto, tmp_path, **options)
        c = onnx_nb.compare(proto, candidate, onnx_nb.random_feeds(proto, 0))
        first = c.first_divergent()
        assert first is not None
        assert first.faulty is not None
        assert {each.name for each in c.quantizers if each.fault == "outliers"} == expected
        assert {each.channels for each in c.quantizers if each.name in expected} == {(16,)}
        assert first.faulty.name in expected & {"gamma", first.reference, "h"}
        assert first.reference == ("m" if "m" in expected else "p" if "quant_format" in options else "h")
        assert "hannel 16 of " in c.message
        worst = max(c.scores("rel_l2"))
        assert (f"the largest is {worst:.1e}." in c.message) == (worst > first.errors().rel_l2)


@pytest.mark.parametrize("shape", ["3, 40", "3, 6, 6"])
def test_outlier_channels_of_a_convolution_are_its_filters(shape: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes = "1, 3, 40" if shape == "3, 40" else "1, 3, 6, 6"
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{sizes}] x) => (y) {{ c = Conv(x, w)  s = Sigmoid(c)  r = Add(c, s)  y = Conv(r, v) }}""")
    kernel = random.normal(size=(32, 3, *[1] * (shape.count(",")))).astype(np.float32)
    kernel[5] *= 400
    last = random.normal(size=(4, 32, *[1] * (shape.count(",")))).astype(np.float32)
    proto.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in (("w", kernel), ("v", last)))
    candidate = quantized(proto, tmp_path, per_channel=True)
    c = onnx_nb.compare(proto, candidate, onnx_nb.random_feeds(proto, 0))
    found = {each.name: (each.fault, each.channels) for each in c.quantizers if each.name in "cr"}
    assert found == {"c": ("outliers", (5,)), "r": ("outliers", (5,))}


@pytest.mark.parametrize("way", ["dynamic", "float16"])
def test_nodes_of_dynamic_and_float16_models_are_put_back(way: str) -> None:
    pytest.importorskip("torch")
    from tests.faults import trained

    feeds = trained.feeds("lstm", 100)
    c = onnx_nb.compare(trained.network("lstm"), trained.quantized("lstm", way), feeds)
    right = onnx_nb.run(trained.network("lstm"), feeds, optimize=False)["y"]
    curve = onnx_nb.types.ExclusionCurve.of(c)
    for count in (0, 1, len(curve.steps) - 1):
        actual = onnx_nb.run(onnx_nb.mixed(c, curve.nodes(count)), feeds, optimize=False)["y"]
        noise = float(np.linalg.norm(actual - right))
        ratio = 20 * np.log10(np.linalg.norm(right) / noise) if noise else np.inf
        # onnxruntime's processor computes float16 in float32 and rounds where it has to; here each node is rounded
        apart = curve.steps[count].sqnr - ratio if noise else 0.0
        assert -10 * (way == "float16") - 0.01 < apart < 0.01
    assert np.array_equal(actual, right)  # nothing is rounded between two nodes in float


def test_an_exclusion_reaches_a_score_and_has_no_node_without_effect() -> None:
    sound = Sound("conv")
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    feeds = [onnx_nb.random_feeds(sound.reference, seed) for seed in range(3)]
    right = [onnx_nb.run(sound.reference, feed, optimize=False)["y"] for feed in feeds]

    def score(outputs: Any) -> float:
        return -max(float(np.abs(one["y"] - y).max()) for one, y in zip(outputs, right, strict=True))

    models_outputs = [onnx_nb.run(sound.candidate, feed, optimize=False) for feed in feeds]
    minimum = score(models_outputs) / 2
    names = onnx_nb.suggest_exclusion(c, score=score, minimum=minimum, feeds=feeds)
    mixed = onnx_nb.mixed(c, names)
    assert names
    assert score([onnx_nb.run(mixed, feed, optimize=False) for feed in feeds]) >= minimum
    for name in names:
        less = onnx_nb.mixed(c, [other for other in names if other != name])
        outputs = [onnx_nb.run(less, feed, optimize=False) for feed in feeds]
        assert score(outputs) < minimum, name
    with pytest.raises(onnx_nb.OnnxNbError, match="one target is needed"):
        onnx_nb.suggest_exclusion(c, sqnr=30, score=score, minimum=1)


def test_held_out_feeds_reach_the_target_too() -> None:
    sound = Sound("conv")
    c = onnx_nb.compare(sound.reference, sound.candidate, sound.feeds)
    held_out = [onnx_nb.random_feeds(sound.reference, seed) for seed in range(10, 14)]

    def ratio(names: list[str]) -> float:
        return onnx_nb.types.ExclusionCurve.of(c, names, feeds=held_out).steps[-1].sqnr

    target = next(
        sqnr for sqnr in np.arange(33, 60, 0.25) if ratio(onnx_nb.suggest_exclusion(c, sqnr=float(sqnr))) < sqnr
    )
    names = onnx_nb.suggest_exclusion(c, sqnr=float(target), held_out=held_out)
    assert ratio(names) >= target


def test_made_up_feeds_beyond_the_calibrated_ranges_fail_nothing() -> None:
    """Calibrated on values within ±0.5, where made-up ones reach 3: not the model is wrong but the feeds."""
    exact = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 16] x) => (float[4, 16] y) { y = Relu(x) }""")
    rounded = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 16] x) => (float[4, 16] y) <float s = {0.004}, int8 z = {0}>
        { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Relu(d) }""")
    c = onnx_nb.compare(exact, rounded)
    with pytest.warns(UserWarning, match=r"made-up feeds lie outside .* 'x' clips .*Nothing is judged: give feeds"):
        assert c.failed(sqnr="< 30 dB") == []
    with pytest.warns(UserWarning, match="Nothing is judged"):
        assert c.failed("sqnr < 30", outputs=True) == []
    feeds = {"x": np.random.default_rng(0).uniform(-0.5, 0.5, (4, 16)).astype(np.float32)}
    assert onnx_nb.compare(exact, rounded, feeds).failed(sqnr="< 30 dB") == []
    assert [point.name for point in onnx_nb.compare(exact, rounded, feeds).failed(sqnr="< 90 dB")] == ["y"]
    # given feeds are judged, wherever they lie
    feeds = {"x": 10 * feeds["x"]}
    assert [point.name for point in onnx_nb.compare(exact, rounded, feeds).failed(sqnr="< 30 dB")] == ["y"]


@pytest.mark.parametrize(
    ("reader", "fault"),
    [
        ("Relu(d)", ""),
        ("Clip(d, zero, six)", ""),
        ("Clip(d)", "clipping"),
        ("Clip(d, , six)", "clipping"),
        ("Neg(d)", "clipping"),
    ],
)
def test_values_that_an_activation_cuts_anyway_are_not_clipped_by_rounding(reader: str, fault: str) -> None:
    # as AIMET leaves it: the range of the activation at the convolution in front of it
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[4, 32] x) => (float[4, 32] y)'
    ends = "float zero = {0}, float six = {6}, float two = {2}"
    exact = onnx.parser.parse_model(f"{head} <{ends}> {{ m = Mul(x, two)  y = {reader.replace('d', 'm', 1)} }}")
    rough = onnx.parser.parse_model(f"""{head} <{ends}, float s = {{0.0236}}, uint8 z = {{0}}> {{
        m = Mul(x, two)  q = QuantizeLinear(m, s, z)  d = DequantizeLinear(q, s, z)  y = {reader} }}""")
    feeds = {"x": np.random.default_rng(0).uniform(-3, 3, (4, 32)).astype(np.float32)}
    c = onnx_nb.compare(exact, rough, feeds)
    (quantizer,) = c.quantizers
    assert (quantizer.name, quantizer.fault) == ("m", fault)
    assert (c.first_divergent() is None) == (not fault)


@pytest.mark.parametrize(
    ("scale", "best"), [(1 / 128, 1 / 64), (1 / 64, 1 / 64), (1 / 16, 1 / 64), (0.02, 1.01 / 127.5)]
)
def test_a_scale_that_is_a_power_of_two_is_judged_by_others(scale: float, best: float) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4096] x) => (float[1, 4096] y)'
    exact = onnx.parser.parse_model(f"{head} {{ h = Neg(x)  y = Exp(h) }}")
    rough = onnx.parser.parse_model(f"""{head} <float s = {{{scale}}}, int8 z = {{0}}> {{
        h = Neg(x)  q = QuantizeLinear(h, s, z)  d = DequantizeLinear(q, s, z)  y = Exp(d) }}""")
    values = np.linspace(-1.01, 1.01, 4096, dtype=np.float32)  # 1/128 is too small for them

    def error(step: float) -> float:
        return float(np.linalg.norm(values - np.clip(np.rint(values / step), -128, 127) * step))

    (quantizer,) = onnx_nb.compare(exact, rough, {"x": values.reshape(1, -1)}).quantizers
    assert quantizer.excess == pytest.approx(max(error(scale) / error(best), 1.0), rel=0.02)


def test_what_is_rounded_in_another_shape_is_judged_by_its_values() -> None:
    # as Quark rounds the input of a MatMul that it makes a Gemm
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 4, 8] x) => (float[2, 4, 8] y)'
    exact = onnx.parser.parse_model(f"{head} {{ m = MatMul(x, w)  y = Tanh(m) }}")
    rough = onnx.parser.parse_model(f"""{head} <float s = {{0.01}}, int8 z = {{0}}, int64[2] flat = {{8, 8}},
        int64[3] back = {{2, 4, 8}}> {{ r = Reshape(x, flat)  q = QuantizeLinear(r, s, z)  d = DequantizeLinear(q, s, z)
        p = MatMul(d, w)  m = Reshape(p, back)  y = Tanh(m) }}""")
    weight = numpy_helper.from_array((np.eye(8) / 4).astype(np.float32), "w")
    for model in (exact, rough):
        model.graph.initializer.append(weight)
    feeds = {"x": np.random.default_rng(0).uniform(-3, 3, (2, 4, 8)).astype(np.float32)}
    c = onnx_nb.compare(exact, rough, feeds)
    assert [(quantizer.name, quantizer.fault) for quantizer in c.quantizers] == [("x", "clipping")]
    assert c.first_divergent() is not None
    assert "Quantization of 'x' clips" in c.message
    assert c["m"].blame["clipping"] > 0.95
