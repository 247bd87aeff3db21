"""The errors that each region of a candidate adds, against one session of onnxruntime for each region."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import onnx_nb
from onnx_nb.analysis.compare import isolated
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.run import session as sessions
from tests import models


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def all_values(path: Path, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    proto = onnx.load(path)
    del proto.graph.output[:]
    names = [name for node in proto.graph.node for name in node.output if name]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, session(proto).run(names, feeds), strict=True)) | feeds


def one_at_a_time(
    reference: Path, candidate: Path, feeds: dict[str, Any], c: Comparison
) -> dict[str, tuple[float, float]]:
    """Return the relative norm of the error of each region and of its values, from a session for each region."""
    right, proto = all_values(reference, feeds), onnx.load(candidate)
    wrong = all_values(candidate, {name: array.astype(kinds(proto)[name]) for name, array in feeds.items()})
    maker = {name: node for node in proto.graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    partner = {point.candidate: point for point in c.points}

    def integers(name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """The scale and zero point of a quantized value, by the names that onnxruntime gives them."""
        if not name.endswith("_quantized") or right[partner[name].reference].dtype == wrong[name].dtype:
            return None
        while (base := name.removesuffix("_quantized")) + "_scale" not in weights:
            name = maker[name].input[0]  # a node that only moves integers
        scale, zero = (onnx.numpy_helper.to_array(weights[base + end]) for end in ("_scale", "_zero_point"))
        return scale, zero

    def fed(name: str) -> np.ndarray:
        value = right[partner[name].reference]
        if (pair := integers(name)) is None:
            return value.astype(wrong[name].dtype)
        scale, zero = pair
        limits = np.iinfo(zero.dtype)
        nearest: np.ndarray = np.rint(value / scale) + zero.astype(np.float32)
        return nearest.clip(limits.min, limits.max).astype(zero.dtype)

    found = {}
    for name, point in partner.items():
        if name not in maker:
            continue
        nodes, borders, todo = [], {}, [name]
        while todo:
            node = maker[todo.pop()]
            if node in nodes:
                continue
            nodes.append(node)
            for read in filter(None, node.input):
                if read in partner or read in feeds:
                    borders[read] = fed(read) if read in partner else wrong[read]
                elif read in maker:
                    todo.append(read)
        nodes.sort(key=list(proto.graph.node).index)
        used = {read for node in nodes for read in node.input}
        inputs = [
            onnx.helper.make_tensor_value_info(each, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for each, array in borders.items()
        ]
        graph = onnx.helper.make_graph(
            nodes, "region", inputs, [onnx.ValueInfoProto(name=name)],
            [tensor for key, tensor in weights.items() if key in used and key not in borders],
        )  # fmt: skip
        # several outputs of one node may be borders of others, never of itself here
        region = onnx.helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
        region.functions.extend(proto.functions)
        made = session(region).run([name], borders)[0]
        wanted = right[point.reference].astype(np.float64)
        if (pair := integers(name)) is not None:
            scale, zero = pair
            made = (made.astype(np.float64) - zero) * scale
        found[point.name] = float(np.linalg.norm(made.astype(np.float64) - wanted)), float(np.linalg.norm(wanted))
    return found


def kinds(proto: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    return {
        entry.name: onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        for entry in proto.graph.input
    }


def fused(path: Path, folder: Path) -> Path:
    """Return a model as onnxruntime optimizes it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "fused.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return folder / "fused.onnx"


@pytest.mark.parametrize("how", ["qdq", "qoperator", "dynamic", "nbits", "blocks", "fp16", "simplified", "fused"])
def test_regions_in_one_session_have_the_errors_of_a_session_each(how: str, tmp_path: Path) -> None:
    reference = models.exported("bert", dynamo=True)
    if how == "simplified":
        candidate = tmp_path / "simplified.onnx"
        onnx_nb.simplify(reference).model.save(candidate)
    else:
        candidate = fused(reference, tmp_path) if how == "fused" else models.transformed("bert", how)
    feeds = onnx_nb.random_feeds(reference, 1, {"seq": 5})
    c = compare(reference, candidate, feeds)
    slow = one_at_a_time(reference, candidate, feeds, c)
    assert len(slow) > 100
    for name, (error, norm) in slow.items():
        mine = c[name].isolated
        assert mine is not None
        size = np.sqrt(mine.mse * mine.count)
        assert abs(size - error) <= 1e-6 * max(norm, 1e-30), (name, size, error)


@pytest.mark.parametrize("how", ["qdq", "qoperator", "dynamic", "nbits", "blocks", "fp16"])
def test_nothing_stands_out_where_all_is_rounded_as_it_should_be(how: str) -> None:
    c = compare(models.exported("bert", dynamo=True), models.transformed("bert", how))
    assert c.first_divergent() is None
    subject = "No point stands out" if how == "fp16" else "No layer stands out: '"
    assert c.message.startswith(subject)
    assert "the largest error is" in c.message
    precisions = {point.precision for point in c.points if point.region}
    bits = {"nbits": 4, "blocks": 4}.get(how, 8)
    assert how == "fp16" or precisions == {0.0, 2.0**-bits}


def test_a_fault_of_a_quantized_model_is_named_where_it_is_made(tmp_path: Path) -> None:
    proto = onnx.load(models.transformed("bert", "qdq"))
    (norm,) = [node for node in proto.graph.node if node.op_type == "LayerNormalization"][2:3]
    del norm.attribute[:]
    norm.attribute.append(onnx.helper.make_attribute("epsilon", 30.0))
    onnx.save(proto, tmp_path / "faulty.onnx")
    c = compare(models.exported("bert", dynamo=True), tmp_path / "faulty.onnx")
    first = c.first_divergent()
    assert first is not None
    assert first.candidate in {norm.output[0], f"{norm.output[0]}_DequantizeLinear_Output"}
    assert norm.name in first.region
    assert norm.output[0] in c.message
    # the exporter's own words for the layer, without the call of the norm
    exported = onnx.load(models.exported("bert", dynamo=True), load_external_data=False)
    names = next(node.metadata_props for node in exported.graph.node if norm.output[0] in node.output)
    path = ast.literal_eval({entry.key: entry.value for entry in names}["pkg.torch.onnx.name_scopes"])[-2]
    assert c.message.startswith(f"First differs in '{first.scope}' at '")
    assert first.scope.replace("/", ".") == path
    assert max(c.layers(), key=lambda row: row["error"])["layer"] == first.scope
    alone = compare(models.exported("bert", dynamo=True), tmp_path / "faulty.onnx", isolated=False).first_divergent()
    assert alone is not None
    assert alone.name != first.name  # what the cumulative error says
    c.save(tmp_path / "saved")
    again = Comparison.load(tmp_path / "saved")
    assert again.message == c.message
    assert [point.region for point in again.points] == [point.region for point in c.points]


def test_fused_and_simplified_regions_run_between_what_is_left(tmp_path: Path) -> None:
    path = models.exported("bert", dynamo=True)
    for candidate in (fused(path, tmp_path), onnx_nb.simplify(path).model):
        c = compare(path, candidate)
        assert c.first_divergent() is None
        assert c.has_isolated
        assert max(c.scores("rel_l2")) < 1e-5
        assert any(len(point.region) > 1 for point in c.points) or candidate != tmp_path / "fused.onnx"


def test_little_memory_divides_the_regions_into_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = models.exported("bert", dynamo=True), models.transformed("bert", "qdq")
    whole = compare(*pair)
    counted = []
    create = sessions.create

    def counting(model: onnx_nb.Model, **options: Any) -> onnxruntime.InferenceSession:
        counted.append(model.name)
        return create(model, **options)

    monkeypatch.setattr(sessions, "create", counting)
    monkeypatch.setattr(isolated, "_BATCH", 1 << 16)
    small = compare(*pair)
    assert str(small.rows()) == str(whole.rows())
    assert sum(name.startswith("regions of") for name in counted) > 5


def test_without_isolated_errors_nothing_runs_twice() -> None:
    pair = models.exported("bert", dynamo=True), models.transformed("bert", "qdq")
    c = compare(*pair, isolated=False)
    assert not c.has_isolated
    assert not any(point.region or point.precision for point in c.points)


def test_integers_of_a_scale_and_back() -> None:
    scale = isolated.Scale(np.float32(0.5), np.asarray(10, np.uint8))
    given = np.asarray([-9.0, -5.0, 0.2, 0.3, 122.5, 999.0], np.float32)
    assert scale.integers(given).tolist() == [0, 0, 10, 11, 255, 255]
    assert scale.real(np.asarray([0, 10, 255], np.uint8)).tolist() == [-5.0, 0.0, 122.5]


def test_regions_of_sequences_and_of_branches_that_cannot_run() -> None:
    of_sequence = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (seq(float[2]) s, float[2] x) => (int64 n, float[2] y) { n = SequenceLength(s)  y = Neg(x) }""")
    feeds = {"s": [np.ones(2, np.float32)], "x": np.ones(2, np.float32)}
    c = compare(of_sequence, of_sequence, feeds)
    assert c["n"].isolated is None  # it reads no tensor
    assert c["y"].errors("isolated").is_equal
    branches = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (bool b, float[n, 3] x) => (float[m, k] y) { a = Neg(x)
        y = If(b)<then_branch = t () => (float[k] p) <int64[1] zero = {0}> { p = Squeeze(a, zero) },
                  else_branch = e () => (float[m, k] q) { q = Neg(a) }> }""")
    c = compare(branches, branches, {"b": np.asarray(False), "x": np.ones((2, 3), np.float32)})
    assert c["y"].errors("isolated").is_equal


def test_pairs_of_two_models_that_the_rest_contradicts_are_dropped() -> None:
    """Only the order of two nodes pairs them, which is another one here, and all that reads them is right."""

    def model(factors: tuple[str, str], end: str) -> onnx.ModelProto:
        v, w = (", ".join([factor] * 32) for factor in factors)
        weights = f"float[32] v{end} = {{{v}}}, float[32] w{end} = {{{w}}}"
        return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
            g (float[2, 32] x) => (float[2, 32] y) <{weights}> {{
            a{end} = Mul(x, v{end})  b{end} = Mul(x, w{end})  sum{end} = Add(a{end}, b{end})  y = Tanh(sum{end}) }}""")

    c = compare(model(("2.0", "2.05"), "1"), model(("2.0500002", "2.0000002"), "2"))
    assert list(c) == ["x", "sum1", "y"]
    assert {missing.reason for missing in c.unmatched} == {"all that the candidate computes from it is right"}
    assert {missing.name for missing in c.unmatched} == {"a1", "b1", "a2", "b2"}
    assert c.first_divergent() is None
    right = compare(model(("2.0", "2.05"), "1"), model(("2.0000002", "2.0500002"), "2"))
    assert list(right) == ["x", "a1", "b1", "sum1", "y"]
