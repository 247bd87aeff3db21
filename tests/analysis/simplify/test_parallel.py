"""Products and sums of one tensor that become one, and those that must not."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import onnx_nb
from onnx_nb.analysis.run import session

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
WEIGHTS = "float[2, 2] a = {1, 2, 3, 4}, float[2, 2] b = {5, 6, 7, 8}, float[2, 2] c = {9, 8, 7, 6}"
SPLIT = "int64[2] s = {2, 2}, float[2] b = {1, 2}, float[2] c = {-3, 4}, float[1] d = {5}, float[4] e = {1, 2, 3, 4}"


def test_a_weight_that_layers_share_is_joined_once() -> None:
    layers = "  ".join(
        f"q{i} = MatMul(x{i}, a)  k{i} = MatMul(x{i}, b)  v{i} = MatMul(x{i}, c)  e{i} = Mul(q{i}, k{i})  "
        f"x{i + 1} = Sub(e{i}, v{i})"
        for i in range(2)
    )
    s = onnx_nb.simplify(
        onnx.parser.parse_model(f"{HEAD} g (float[n, 2] x0) => (float[n, 2] x2) <{WEIGHTS}> {{ {layers} }}")
    )
    assert s.verified, s.verification
    assert [node.op_type for node in s.model.proto.graph.node] == ["MatMul", "Split", "Mul", "Sub"] * 2
    assert len(s.model.proto.graph.initializer) == 2


def test_adding_nothing_to_a_part_keeps_the_sign_of_its_zeros() -> None:
    text = f"""g (float[6] x) => (float[2] y, float[2] z, float[2] w) <int64[3] t = {{2, 2, 2}}, {SPLIT}>
        {{ p, q, r = Split <axis = 0> (x, t)  y = Add(p, b)  z = Sub(q, b)  w = Add(c, r) }}"""
    s = onnx_nb.simplify(onnx.parser.parse_model(HEAD + text))
    assert s.verified, s.verification
    assert [node.op_type for node in s.model.proto.graph.node] == ["Add", "Split", "Sub"]
    kept = onnx_nb.simplify(onnx.parser.parse_model(HEAD + text.replace("z = Sub(q, b)", "z = Reciprocal(q)"))).model
    feed = {"x": np.array([0, 0, -0.0, 0.0, 0, 0], np.float32)}
    assert session.run(kept, feed)["z"].tolist() == [-np.inf, np.inf]


@pytest.mark.parametrize(
    "nodes",
    [
        "p, q = Split <axis = 0> (x, s)  y = Add(p, e)  z = Add(q, e)",
        "p, q = Split <axis = -1> (x, s)  y = Add(p, d)  z = Add(q, c)",
        "p, q = Split <axis = -1> (x, s)  y = Add(p, b)  u = Add(q, c)  z = Mul(u, q)",
        "p, q = Split <axis = -1> (x, s)  y = Add(p, b)  z = Add(q, q)",
        "p, q = Split <axis = -1> (x, s)  y = Add(p, b)  z = Sub(q, c)",
    ],
    ids=["another axis", "a broadcast number", "a part read twice", "no constant", "only one Add"],
)
def test_sums_of_parts_that_stay(nodes: str) -> None:
    outputs = "float[k, m] y, float[k, m] z"
    s = onnx_nb.simplify(onnx.parser.parse_model(f"{HEAD} g (float[4, 4] x) => ({outputs}) <{SPLIT}> {{ {nodes} }}"))
    assert s.verified, s.verification
    assert "fuse_parallel_adds" not in {change.rule for change in s.changes}
