"""The errors that each region of a candidate adds, against one session of onnxruntime for each region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import onnx_nb
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.compare.comparison import Comparison
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
        return tuple(onnx.numpy_helper.to_array(weights[base + end]) for end in ("_scale", "_zero_point"))

    def fed(name: str) -> np.ndarray:
        value = right[partner[name].reference]
        if integers(name) is None:
            return value.astype(wrong[name].dtype)
        scale, zero = integers(name)
        limits = np.iinfo(zero.dtype)
        return np.clip(np.rint(value / scale) + zero.astype(np.float32), limits.min, limits.max).astype(zero.dtype)

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
        if integers(name) is not None:
            scale, zero = integers(name)
            made = (made.astype(np.float64) - zero) * scale
        found[point.name] = float(np.linalg.norm(made.astype(np.float64) - wanted)), float(np.linalg.norm(wanted))
    return found


def kinds(proto: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    return {
        entry.name: onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        for entry in proto.graph.input
    }


@pytest.mark.parametrize("how", ["qdq", "qoperator", "dynamic", "fp16"])
def test_regions_in_one_session_have_the_errors_of_a_session_each(how: str) -> None:
    reference, candidate = models.exported("bert", dynamo=True), models.transformed("bert", how)
    feeds = onnx_nb.random_feeds(reference, 1, {"seq": 5})
    c = compare(reference, candidate, feeds)
    slow = one_at_a_time(reference, candidate, feeds, c)
    assert len(slow) > 100
    for name, (error, norm) in slow.items():
        mine = c[name].isolated
        assert mine is not None
        size = np.sqrt(mine.mse * mine.count)
        assert abs(size - error) <= 1e-6 * max(norm, 1e-30), (name, size, error)
