"""Simplification: where each rule applies and where it must not, what is kept, explained and verified."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.foreign_names import table
from onnx_nb.analysis.model.tensors import all_nodes
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.simplify import editor, known_graph, rounds, simplify
from tests import dags, models
from tests.conformance.cases import plain
from tests.conformance.verbs import close, fault
from tests.depth import examples

HEAD = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'


def parsed(text: str, head: str = HEAD) -> ModelProto:
    return onnx.parser.parse_model(head + text)


def operators(model: Any) -> list[str]:
    return [node.op_type for node in onnx_nb.load(model).proto.graph.node]


def same_outputs(before: Any, after: Any, feed: dict[str, Any] | None = None) -> bool:
    feed = random_feeds(before, 7) if feed is None else feed
    expected = session.run(before, feed, optimize=False)
    found = session.run(after, feed, optimize=False)
    return list(found) == list(expected) and all(
        np.allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, equal_nan=True) for name in expected
    )


W = "float[2,2,3,3] w = {" + ",".join(str(i / 10 - 1) for i in range(36)) + "}"
BN = "float[2] s = {2, 3}, float[2] b = {1, -1}, float[2] m = {0.5, 0.25}, float[2] v = {1, 4}"

# (rule, a graph in which it applies, operators after, one in which it must not)
APPLIES: list[tuple[str, str, list[str], str]] = [
    (
        "extract_constants",
        "g (float[2] x) => (float[2] y) { c = Constant <value = float[2] {1, 2}> ()  y = Add(x, c) }",
        ["Add"],
        "g (float[2] x) => (float[2] y, float[2] c) { c = Constant <value = float[2] {1, 2}> ()  y = Add(x, c) }",
    ),
    (
        "eliminate_identity",
        "g (float[2] x) => (float[2] y) { a = Identity(x)  y = Exp(a) }",
        ["Exp"],
        "g (float[2] x) => (float[2] y) { y = Identity(x) }",
    ),
    (
        "eliminate_nop_dropout",
        "g (float[2] x) => (float[2] y) { a = Dropout(x)  y = Exp(a) }",
        ["Exp"],
        "g (float[2] x) => (float[2] y, bool[2] mask) { a, mask = Dropout(x)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_cast",
        "g (float[2] x) => (float[2] y) { a = Cast <to = 1> (x)  y = Exp(a) }",
        ["Exp"],
        "g (float[2] x) => (double[2] y) { a = Cast <to = 11> (x)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_pad",
        "g (float[2] x) => (float[2] y) <int64[2] p = {0, 0}> { a = Pad(x, p)  y = Exp(a) }",
        ["Exp"],
        "g (float[2] x) => (float[3] y) <int64[2] p = {0, 1}> { a = Pad(x, p)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_transpose",
        "g (float[2, 3] x) => (float[2, 3] y) { a = Transpose <perm = [0, 1]> (x)  y = Exp(a) }",
        ["Exp"],
        "g (float[2, 2] x) => (float[2, 2] y) { a = Transpose <perm = [1, 0]> (x)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_reshape",
        "g (float[n, 3] x) => (float[n, 3] y) <int64[2] s = {-1, 3}> { a = Reshape(x, s)  y = Exp(a) }",
        ["Exp"],
        "g (float[n, 4] x) => (float[m, 2] y) <int64[2] s = {-1, 2}> { a = Reshape(x, s)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_slice",
        (
            "g (float[n] x) => (float[n] y) <int64[1] s = {0}, int64[1] e = {9223372036854775807}> "
            "{ a = Slice(x, s, e)  y = Exp(a) }"
        ),
        ["Exp"],
        "g (float[n] x) => (float[m] y) <int64[1] s = {0}, int64[1] e = {5}> { a = Slice(x, s, e)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_concat",
        "g (float[2] x) => (float[2] y) { a = Concat <axis = 0> (x)  y = Exp(a) }",
        ["Exp"],
        "g (float[2] x) => (float[4] y) { a = Concat <axis = 0> (x, x)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_split",
        "g (float[4] x) => (float[4] y) { a = Split(x)  y = Exp(a) }",
        ["Exp"],
        "g (float[4] x) => (float[2] y, float[2] z) { y, z = Split(x) }",
    ),
    (
        "eliminate_nop_arithmetic",
        "g (float[2, 3] x) => (float[2, 3] y) <float[3] one = {1, 1, 1}> { a = Mul(one, x)  y = Exp(a) }",
        ["Exp"],
        "g (float[3] x) => (float[2, 3] y) <float[2, 3] one = {1, 1, 1, 1, 1, 1}> { a = Mul(one, x)  y = Exp(a) }",
    ),
    (
        "eliminate_nop_monotone_argmax",
        "g (float[2, 3] x) => (int64[2] y) { a = Softmax <axis = 1> (x)  y = ArgMax <axis = 1, keepdims = 0> (a) }",
        ["ArgMax"],
        "g (float[2, 3] x) => (int64[3] y) { a = Softmax <axis = 1> (x)  y = ArgMax <axis = 0, keepdims = 0> (a) }",
    ),
    (
        "eliminate_idempotent",
        "g (float[2] x) => (float[2] y) { a = Relu(x)  y = Relu(a) }",
        ["Relu"],
        "g (float[2] x) => (float[2] y) { a = Neg(x)  y = Neg(a) }",
    ),
    (
        "fuse_consecutive_transposes",
        (
            "g (float[2, 3, 4] x) => (float[4, 2, 3] y) { a = Transpose <perm = [1, 2, 0]> (x)  "
            "y = Transpose <perm = [1, 2, 0]> (a) }"
        ),
        ["Transpose"],
        "g (float[2, 3] x, float[3, 2] z) => (float[2, 3] y) { a = Transpose(x)  b = Add(a, z)  y = Transpose(b) }",
    ),
    (
        "fuse_consecutive_squeezes",
        (
            "g (float[1, 2, 1, 3] x) => (float[2, 3] y) <int64[1] p = {0}, int64[1] q = {1}> "
            "{ a = Squeeze(x, p)  y = Squeeze(a, q) }"
        ),
        ["Squeeze"],
        (
            "g (float[1, 2, 1, 3] x) => (float[2, 3] y, float[2, 1, 3] a) <int64[1] p = {0}, int64[1] q = {1}> "
            "{ a = Squeeze(x, p)  y = Squeeze(a, q) }"
        ),
    ),
    (
        "fuse_consecutive_reshapes",
        (
            "g (float[n, 4] x) => (float[m, 2, 2] y) <int64[1] p = {-1}, int64[3] q = {-1, 2, 2}> "
            "{ a = Reshape(x, p)  y = Reshape(a, q) }"
        ),
        ["Reshape"],
        (
            "g (float[n, 4] x) => (float[m, 2] y) <int64[2] p = {2, -1}, int64[3] q = {0, -1, 2}> "
            "{ a = Reshape(x, p)  y = Reshape(a, q) }"
        ),
    ),
    (
        "fuse_consecutive_concats",
        "g (float[2] x, float[2] z) => (float[6] y) { a = Concat <axis = 0> (x, z)  y = Concat <axis = -1> (a, x) }",
        ["Concat"],
        "g (float[2, 2] x) => (float[4, 4] y) { a = Concat <axis = 0> (x, x)  y = Concat <axis = 1> (a, a) }",
    ),
    (
        "fuse_consecutive_slices",
        (
            "g (float[4, 4] x) => (float[2, 2] y) <int64[1] o = {1}, int64[1] t = {3}, "
            "int64[1] p = {0}, int64[1] q = {1}> "
            "{ a = Slice(x, o, t, p)  y = Slice(a, o, t, q) }"
        ),
        ["Slice"],
        (
            "g (float[4, 4] x) => (float[1, 4] y) <int64[1] o = {1}, int64[1] t = {3}, int64[1] p = {0}> "
            "{ a = Slice(x, o, t, p)  y = Slice(a, o, t, p) }"
        ),
    ),
    (
        "fuse_consecutive_reduce_unsqueeze",
        (
            "g (float[2, 3] x) => (float[2, 1] y) <int64[1] p = {1}> "
            "{ a = ReduceMax <axes = [1], keepdims = 0> (x)  y = Unsqueeze(a, p) }"
        ),
        ["ReduceMax"],
        (
            "g (float[2, 3] x) => (float[1, 2] y) <int64[1] p = {0}> "
            "{ a = ReduceMax <axes = [1], keepdims = 0> (x)  y = Unsqueeze(a, p) }"
        ),
    ),
    (
        "fuse_consecutive_log_softmax",
        "g (float[2, 3] x) => (float[2, 3] y) { a = Softmax <axis = 0> (x)  y = Log(a) }",
        ["LogSoftmax"],
        "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] a) { a = Softmax <axis = 0> (x)  y = Log(a) }",
    ),
    (
        "fuse_bn_into_conv",
        (
            f"g (float[1,2,5,5] x) => (float[1,2,3,3] y) <{W}, {BN}> "
            "{ a = Conv(x, w)  y = BatchNormalization(a, s, b, m, v) }"
        ),
        ["Conv"],
        (
            f"g (float[1,2,5,5] x) => (float[1,2,3,3] y, float[1,2,3,3] z) <{W}, {BN}> "
            "{ a = Conv(x, w)  y = BatchNormalization(a, s, b, m, v)  z = Exp(a) }"
        ),
    ),
    (
        "fuse_add_bias_into_conv",
        (
            f"g (float[1,2,5,5] x) => (float[1,2,3,3] y) <{W}, float[2,1,1] s = {{1, 2}}> "
            "{ a = Conv(x, w)  y = Add(s, a) }"
        ),
        ["Conv"],
        (
            f"g (float[1,2,5,5] x) => (float[1,2,3,3] y) <{W}, float[3] s = {{1, 2, 3}}> "
            "{ a = Conv(x, w)  y = Add(a, s) }"
        ),
    ),
    (
        "fuse_mul_into_conv",
        (
            f"g (float[1,2,5,5] x) => (float[1,2,3,3] y) <{W}, float[1,2,1,1] s = {{3, 2}}> "
            "{ a = Conv(x, w)  y = Mul(a, s) }"
        ),
        ["Conv"],
        f"g (float[1,2,5,5] x, float[1,2,1,1] s) => (float[1,2,3,3] y) <{W}> {{ a = Conv(x, w)  y = Mul(a, s) }}",
    ),
    (
        "fuse_scale_into_bn",
        (
            f"g (float[1,2,3,3] x) => (float[1,2,3,3] y) <{BN}, float[2,1,1] f = {{3, 2}}> "
            "{ a = BatchNormalization(x, s, b, m, v)  c = Mul(a, f)  y = Add(c, f) }"
        ),
        ["BatchNormalization"],
        (
            f"g (float[1,2,3,3] x) => (float[1,2,3,3] y) <{BN}, float[3] f = {{3, 2, 1}}> "
            "{ a = BatchNormalization(x, s, b, m, v)  y = Mul(a, f) }"
        ),
    ),
    (
        "fuse_matmul_add_bias_into_gemm",
        (
            "g (float[2, 3] x, float[3, 2] w) => (float[2, 2] y) <float[2] b = {1, 2}> "
            "{ a = MatMul(x, w)  y = Add(a, b) }"
        ),
        ["Gemm"],
        (
            "g (float[1, 3] x, float[3, 2] w) => (float[4, 2] y) <float[4, 1] b = {1, 2, 3, 4}> "
            "{ a = MatMul(x, w)  y = Add(a, b) }"
        ),
    ),
    (
        "fuse_transpose_into_gemm",
        "g (float[2, 3] x, float[4, 3] w) => (float[2, 4] y) { a = Transpose(w)  y = Gemm(x, a) }",
        ["Gemm"],
        "g (float[2, 3] x, float[3, 4] w) => (float[2, 4] y) { a = Exp(w)  y = Gemm(x, a) }",
    ),
    (
        "fuse_pad_into_conv",
        (
            f"g (float[1,2,5,5] x) => (float[1,2,5,6] y) <{W}, int64[8] p = {{0,0,1,1,0,0,1,2}}> "
            "{ a = Pad(x, p)  y = Conv(a, w) }"
        ),
        ["Conv"],
        (
            f"g (float[1,2,5,5] x) => (float[1,2,5,6] y) <{W}, int64[8] p = {{0,0,1,1,0,0,1,2}}, float one = {{1}}> "
            "{ a = Pad(x, p, one)  y = Conv(a, w) }"
        ),
    ),
    (
        "eliminate_common_subexpression",
        "g (float[2] x) => (float[2] y) { a = Exp(x)  b = Exp(x)  y = Add(a, b) }",
        ["Exp", "Add"],
        (
            "g (float[2, 2] x) => (float[2, 2] y) "
            "{ a = Softmax <axis = 0> (x)  b = Softmax <axis = 1> (x)  y = Add(a, b) }"
        ),
    ),
    (
        "fuse_parallel_matmuls",
        (
            "g (float[2, 2] x) => (float[2, 2] q, float[2, 1] k, float[2, 2] z) "
            "<float[2, 2] a = {1, 2, 3, 4}, float[2, 1] b = {1, 2}, float[2, 2] c = {5, 6, 7, 8}> "
            "{ q = MatMul(x, a)  k = MatMul(x, b)  v = MatMul(x, c)  z = Exp(v) }"
        ),
        ["MatMul", "Split", "Exp"],
        (
            "g (float[2, 2] x) => (float[2, 2] q, float[2, 1] k) "
            "<float[2, 2] a = {1, 2, 3, 4}, float[2, 1] b = {1, 2}> "
            "{ q = MatMul(x, a)  k = MatMul(x, b) }"
        ),
    ),
    (
        "fuse_parallel_adds",
        (
            "g (float[n, 2, 4] x) => (float[n, 2, 1] y, float[n, 2, 2] z, float[n, 2, 1] k) "
            "<int64[3] s = {1, 2, 1}, float[1] b = {1}, float[2] c = {2, -3}> "
            "{ p, q, r = Split <axis = -1> (x, s)  y = Add(b, p)  z = Add(q, c)  k = Exp(r) }"
        ),
        ["Add", "Split", "Exp"],
        (
            "g (float[n, 2, 4] x) => (float[n, 2, 1] y, float[n, 2, 2] z, float[n, 2, 1] k) "
            "<int64[3] s = {1, 2, 1}, float[1] b = {1}, float[2] c = {2, -3}> "
            "{ p, q, r = Split <axis = -1> (x, s)  y = Add(b, p)  t = Mul(q, c)  z = Add(q, t)  k = Exp(r) }"
        ),
    ),
    (
        "fold_reshape",
        (
            "g (float[n, 2, 3] x) => (float[n, 6] y) <int64 z = {0}, int64[1] p = {0}, int64[1] six = {6}> "
            "{ s = Shape(x)  n = Gather(s, z)  u = Unsqueeze(n, p)  t = Concat <axis = 0> (u, six)  y = Reshape(x, t) }"
        ),
        ["Reshape"],
        "g (float[n, m, 6] x, int64[3] t) => (float[a, b, c] y) { y = Reshape(x, t) }",
    ),
    (
        "fuse_gather_into_shape",
        (
            "g (float[2, n, m] x) => (int64[2] y) <int64 i = {-2}, int64[1] p = {0}, int64[1] six = {6}> "
            "{ s = Shape(x)  a = Gather(s, i)  u = Unsqueeze(a, p)  y = Concat <axis = 0> (u, six) }"
        ),
        ["Shape", "Concat"],
        (
            "g (float[2, n, m] x) => (int64[2] y, int64 a) <int64 i = {-2}, int64[1] p = {0}, int64[1] six = {6}> "
            "{ s = Shape(x)  a = Gather(s, i)  u = Unsqueeze(a, p)  y = Concat <axis = 0> (u, six) }"
        ),
    ),
    (
        "eliminate_nop_where",
        (
            "g (float[n, 1] x, float[n, 3] z) => (float[n, 3] y) <int64[2] minus = {-1, -1}, int64[2] one = {1, 1}> "
            "{ s = Shape(z)  e = Equal(s, minus)  t = Where(e, one, s)  y = Expand(x, t) }"
        ),
        ["Shape", "Expand"],
        (
            "g (float[n, 1] x, int64[2] s) => (float[a, b] y) <int64[2] minus = {-1, -1}, int64[2] one = {1, 1}> "
            "{ e = Equal(s, minus)  t = Where(e, one, s)  y = Expand(x, t) }"
        ),
    ),
    (
        "eliminate_nop_expand",
        "g (float[n, 3] x) => (float[n, 3] y) { s = Shape(x)  a = Expand(x, s)  y = Exp(a) }",
        ["Exp"],
        "g (float[n, 3] x, float[m, 3] z) => (float[k, 3] y) { s = Shape(z)  a = Expand(x, s)  y = Exp(a) }",
    ),
    (
        "fold_shapes",
        "g (float[n, 4] x) => (int64[1] y) <int64[1] one = {1}> { s = Shape(x)  a = Gather(s, one)  y = Neg(a) }",
        ["Constant"],
        "g (float[n, 4] x) => (int64[1] y) <int64[1] zero = {0}> { s = Shape(x)  a = Gather(s, zero)  y = Neg(a) }",
    ),
    (
        "eliminate_inverse_pair",
        "g (float[2, 3] x) => (float[2, 3] y) { a = Transpose(x)  b = Exp(a)  y = Transpose(b) }",
        ["Exp"],
        "g (float[2, 3] x, float[3, 2] z) => (float[2, 3] y) { a = Transpose(x)  b = Add(a, z)  y = Transpose(b) }",
    ),
    (
        "fold_constants",
        "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { a = Exp(c)  y = Add(x, a) }",
        ["Add"],
        "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { a = Exp(x)  y = Add(a, c) }",
    ),
    (
        "eliminate_if_with_const_cond",
        (
            "g (float[2] x) => (float[2] y) <bool c = {1}> "
            "{ y = If(c) <then_branch = t () => (float[2] a) { a = Exp(x) }, "
            "else_branch = e () => (float[2] b) { b = Neg(x) }> }"
        ),
        ["Exp"],
        (
            "g (float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] a) { a = Exp(x) }, "
            "else_branch = e () => (float[2] b) { b = Neg(x) }> }"
        ),
    ),
    (
        "eliminate_deadend",
        "g (float[2] x) => (float[2] y) { a = Neg(x)  b = Abs(a)  y = Exp(x) }",
        ["Exp"],
        "g (float[2] x) => (float[2] y, float[2] b) { a = Neg(x)  b = Abs(a)  y = Exp(x) }",
    ),
    (
        "eliminate_duplicate_initializer",
        "g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {1, 2}> { c = Sub(x, a)  y = Div(c, b) }",
        ["Sub", "Div"],
        "g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {1, 3}> { c = Sub(x, a)  y = Div(c, b) }",
    ),
    (
        "eliminate_unused_initializer",
        "g (float[2] x) => (float[2] y) <float[2] a = {1, 2}> { y = Exp(x) }",
        ["Exp"],
        "g (float[2] x) => (float[2] y, float[2] a) <float[2] a = {1, 2}> { y = Exp(x) }",
    ),
]
TESTED_ELSEWHERE = {"scalars_for_range"}


@pytest.mark.parametrize(("rule", "text", "after", "other"), APPLIES, ids=[case[0] for case in APPLIES])
def test_a_rule_applies_where_it_should_and_nowhere_else(rule: str, text: str, after: list[str], other: str) -> None:
    model = parsed(text)
    s = onnx_nb.simplify(model)
    assert rule in {change.rule for change in s.changes}
    assert operators(s.model) == after
    assert s.verified, s.verification
    assert same_outputs(model, s.model)
    onnx.checker.check_model(s.model.to_proto(), full_check=True)
    untouched = onnx_nb.simplify(parsed(other))
    assert rule not in {change.rule for change in untouched.changes}
    assert untouched.verified, untouched.verification
    # it can be skipped by its name, and by the key of each change
    assert rule not in {change.rule for change in onnx_nb.simplify(model, skip=[rule]).changes}
    keys = [change.key for change in s.changes if change.rule == rule]
    assert not set(keys) & {change.key for change in onnx_nb.simplify(model, skip=keys).changes}


FLOATS = "float[2,3,4] x"
HALF = "float half = {0.5}, float one = {1}, float root = {1.41421356}, float two = {2}, float e = {0.001}"
VECTORS = "float[4] g = {1, 2, 3, 4}, float[4] b = {0.5, 1, 1.5, 2}, int64[1] last = {-1}"
ERF = "a = Div(x, root)  c = Erf(a)  d = Add(c, one)  f = Mul(x, d)"
NORM = (
    "m = ReduceMean <axes = [-1]> (x)  s = Sub(x, m)  p = Pow(s, two)  v = ReduceMean <axes = [-1]> (p)  "
    "w = Add(v, e)  r = Sqrt(w)  n = Div(s, r)  o = Mul(n, g)"
)
IMAGE = "float[1,2,5,5] x, float[1,2,3,3] z"
HEAD_16 = '<ir_version: 8, opset_import: ["": 16]>'
HEAD_20 = '<ir_version: 9, opset_import: ["": 20]>'


def test_every_rule_is_tested_and_listed() -> None:
    assert set(onnx_nb.rules()) == {case[0] for case in APPLIES} | TESTED_ELSEWHERE
    assert all(line and "\n" not in line and not line.endswith(".") for line in onnx_nb.rules().values())


def test_a_range_of_vectors_runs_once_their_shapes_are_known() -> None:
    text = "g (int64[1] n) => (int64[k] y) <int64[1] z = {0}, int64 one = {1}> { y = Range(z, n, one) }"
    s = onnx_nb.simplify(parsed(text), check_n=0)
    assert {change.rule for change in s.changes} == {"scalars_for_range"}
    assert session.run(s.model, {"n": np.array([3])})["y"].tolist() == [0, 1, 2]
    # two of them: each Squeeze has a name of its own, which onnxruntime asks for
    two = "g (int64[1] m, int64[1] n) => (int64[k] y) <int64 one = {1}> { [range] y = Range(m, n, one) }"
    s = onnx_nb.simplify(parsed(two), check_n=0)
    assert session.run(s.model, {"m": np.array([2]), "n": np.array([4])})["y"].tolist() == [2, 3]
    scalars = "g (int64 n) => (int64[k] y) <int64 z = {0}, int64 one = {1}> { y = Range(z, n, one) }"
    assert not onnx_nb.simplify(parsed(scalars)).changes


@pytest.mark.parametrize("allowzero", [0, 1])
def test_a_reshape_still_takes_an_empty_batch(allowzero: int) -> None:
    text = f"""g (float[n, 3, h, w] x) => (float[n, 3, hw] y)
        <int64 zero = {{0}}, int64 two = {{2}}, int64 three = {{3}}, int64[1] c = {{3}}, int64[1] axes = {{0}}> {{
        s = Shape(x)  n = Gather(s, zero)  h = Gather(s, two)  w = Gather(s, three)  hw = Mul(h, w)
        a = Unsqueeze(n, axes)  b = Unsqueeze(hw, axes)  t = Concat <axis = 0> (a, c, b)
        y = Reshape <allowzero = {allowzero}> (x, t) }}"""
    s = onnx_nb.simplify(parsed(text))
    # [0, 3, -1] would do for every other batch
    for shape in ((0, 3, 4, 5), (2, 3, 4, 5)):
        assert session.run(s.model, {"x": np.ones(shape, np.float32)}, optimize=False)["y"].shape == (shape[0], 3, 20)


# --- what must stay --------------------------------------------------------------------------------------------------


def test_initializers_that_a_caller_may_override_are_not_constants() -> None:
    model = parsed(
        "g (float[2] x, float[2] w, int64[2] t) => (float[j, k] y) "
        "<float[2] w = {1, 1}, int64[2] t = {1, 2}, float[2] c = {0, 0}> "
        "{ a = Mul(x, w)  b = Exp(w)  d = Add(a, b)  e = Add(d, c)  y = Reshape(e, t) }"
    )
    s = onnx_nb.simplify(model)
    assert s.verified
    assert operators(s.model) == ["Mul", "Exp", "Add", "Reshape"]
    proto = s.model.proto
    assert [value.name for value in proto.graph.input] == ["x", "w", "t"]
    assert {tensor.name for tensor in proto.graph.initializer} == {"w", "t"}
    replaced = {"x": np.array([1, 2], np.float32), "w": np.array([3, 4], np.float32), "t": np.array([2, -1])}
    assert same_outputs(model, s.model, replaced)


def test_weights_of_version_3_are_constants_and_no_longer_inputs() -> None:
    model = parsed(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { a = Exp(w)  y = Add(x, a) }",
        '<ir_version: 3, opset_import: ["": 8]>',
    )
    s = onnx_nb.simplify(model)
    assert s.verified
    assert operators(s.model) == ["Add"]
    assert [value.name for value in s.model.proto.graph.input] == ["x"]
    onnx.checker.check_model(s.model.to_proto(), full_check=True)


def test_random_nodes_are_neither_merged_nor_folded() -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y, float[3] d) "
        "{ a = RandomNormal <shape = [3]> ()  b = RandomNormal <shape = [3]> ()  "
        "d = Sub(a, b)  y = Exp(x) }"
    )
    s = onnx_nb.simplify(model)
    assert operators(s.model).count("RandomNormal") == 2
    assert s.verified
    assert "'d' is random" in s.verification
    found = session.run(s.model, {"x": np.zeros(2, np.float32)})
    assert (found["d"] != 0).any()


def test_quantization_is_folded_only_if_asked() -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(w, s, z)  d = DequantizeLinear(q, s, z)  y = Add(x, d) }"
    )
    assert operators(onnx_nb.simplify(model).model) == ["QuantizeLinear", "DequantizeLinear", "Add"]
    folded = onnx_nb.simplify(model, fold_quantization=True)
    assert operators(folded.model) == ["Add"]
    assert folded.verified


def test_names_metadata_and_documentation_stay_and_merged_nodes_list_their_origins() -> None:
    model = onnx.load(models.exported("bert", dynamo=True))
    before = {node.name: node for node in model.graph.node}
    s = onnx_nb.simplify(model, check_n=1)
    assert s.verified
    graph = s.model.proto.graph
    assert [value.name for value in graph.input] == [value.name for value in model.graph.input]
    assert [value.name for value in graph.output] == [value.name for value in model.graph.output]
    survivors = [node for node in graph.node if node.name in before]
    assert len(survivors) > 400
    for node in survivors:
        kept = {entry.key: entry.value for entry in node.metadata_props}
        merged = json.loads(kept.pop(known_graph.PROVENANCE, json.dumps([node.name])))
        assert node.name in merged
        assert set(merged) <= set(before)
        assert kept == {entry.key: entry.value for entry in before[node.name].metadata_props}
        assert node.doc_string == before[node.name].doc_string
    joined = [node for node in graph.node if node.op_type == "Split" and node.name.endswith("_split")]
    assert joined
    assert all(len(_merged(node)) >= 3 for node in joined)


@pytest.mark.parametrize(
    "make",
    [
        *(
            (lambda name=name, d=d: models.exported(name, dynamo=d))
            for name in models.EXPORTABLE
            for d in (True, False)
        ),
        models.control_flow,
        models.detection,
        lambda: models.light("densenet121"),
    ],
    ids=[
        *(f"{name} {'dynamo' if d else 'torchscript'}" for name in models.EXPORTABLE for d in (True, False)),
        *("control flow", "detection", "densenet"),
    ],
)
def test_every_node_that_stays_keeps_its_metadata(make: Any) -> None:
    model = onnx.load(make())
    before = {node.name: node for node in all_nodes(model.graph.node) if node.name}
    for number, node in enumerate(before.values()):
        node.doc_string = f"documentation {number}"
        node.metadata_props.add(key="a key of the user's", value=f"value {number}")
    s = onnx_nb.simplify(model, check_n=0)
    stayed = 0
    for node in all_nodes(s.model.proto.graph.node):
        if node.name not in before:
            continue
        stayed += 1
        kept = {entry.key: entry.value for entry in node.metadata_props}
        merged = json.loads(kept.pop(known_graph.PROVENANCE, json.dumps([node.name])))
        assert node.name in merged
        assert set(merged) <= set(before)
        assert kept == {entry.key: entry.value for entry in before[node.name].metadata_props}
        assert node.doc_string == before[node.name].doc_string
    assert stayed >= (0.5 if before else 0) * len(s.model.proto.graph.node)


def test_merged_nodes_list_origins_of_any_name() -> None:
    model = parsed("g (float[2, 3] x) => (float[3, 2] y) { a = Transpose(x)  b = Transpose(a)  y = Transpose(b) }")
    first, _, last = model.graph.node
    first.name, last.name = "one, of, these", '["'
    # what a file says of this is not trusted
    first.metadata_props.add(key=known_graph.PROVENANCE, value="[" * 100_000)
    last.metadata_props.add(key=known_graph.PROVENANCE, value='["p, q", "r"]')
    (node,) = onnx_nb.simplify(model).model.proto.graph.node
    assert _merged(node) == ["one, of, these", "p, q", "r"]


def _merged(node: onnx.NodeProto) -> list[str]:
    (said,) = [entry.value for entry in node.metadata_props if entry.key == known_graph.PROVENANCE]
    return list(json.loads(said))


def test_the_callers_model_is_not_changed() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { a = Identity(x)  y = Exp(a) }")
    before = model.SerializeToString()
    onnx_nb.simplify(model, shapes={"x": [2]}, keep_inputs=False)
    assert model.SerializeToString() == before


# --- bodies and functions --------------------------------------------------------------------------------------------


def test_bodies_of_if_and_loop_are_simplified() -> None:
    model = parsed(
        """g (float[2] x, bool c) => (float[2] y, float[2] z) <int64 n = {3}, bool on = {1}, float[2] w = {1, 2}> {
        y = If(c) <then_branch = t () => (float[2] a) { k = Exp(w)  i = Identity(x)  a = Add(i, k) },
                   else_branch = e () => (float[2] b) { f = Constant <value = float[2] {3, 4}> ()  b = Mul(x, f) }>
        z = Loop(n, on, x) <body = l (int64 i, bool on_in, float[2] v) => (bool on_out, float[2] v_out) {
            on_out = Identity(on_in)  k = Exp(w)  u = Identity(v)  v_out = Add(u, k) }> }"""
    )
    s = onnx_nb.simplify(model, feeds=[{"x": np.array([1, 2], np.float32), "c": np.array(c)} for c in (True, False)])
    assert s.verified, s.verification
    bodies = [
        [node.op_type for node in attribute.g.node] for node in s.model.proto.graph.node for attribute in node.attribute
    ]
    assert bodies == [["Add"], ["Mul"], ["Identity", "Add"]]


def test_functions_are_simplified_and_attribute_references_stay() -> None:
    inner = parsed(
        """g (float[2] x) => (float[2] y) { y = local.f <alpha = 0.5> (x) }
        <domain: "local", opset_import: ["": 17]> f <alpha> (a) => (d) {
            one = Constant <value = float[2] {1, 2}> ()  two = Exp(one)  b = Identity(a)
            c = LeakyRelu <alpha: float = @alpha> (b)  e = Add(c, two)  d = Identity(e) }"""
    )
    s = onnx_nb.simplify(inner)
    assert s.verified, s.verification
    (function,) = s.model.proto.functions
    assert [node.op_type for node in function.node] == ["Constant", "LeakyRelu", "Add"]
    assert function.node[1].attribute[0].ref_attr_name == "alpha"
    assert all(change.key.partition(": ")[2].startswith("local.f/") for change in s.changes)
    keys = [change.key for change in s.changes if change.rule == "fold_constants"]
    undone = onnx_nb.simplify(inner, skip=keys).model.proto.functions[0]
    assert "Exp" in [node.op_type for node in undone.node]


def test_attributes_that_only_a_call_knows_are_not_taken_for_their_defaults() -> None:
    model = parsed(
        """g (float[1] x) => (float[1] y) { y = local.f <start = 1> (x) }
        <domain: "local", opset_import: ["": 17]> f <start> (a) => (d) {
            c = Constant <value = float[2, 3] {1, 2, 3, 4, 5, 6}> ()  s = Shape <start: int = @start> (c)
            n = Neg(s)  t = Cast <to = 1> (n)  d = Add(a, t) }"""
    )
    s = onnx_nb.simplify(model)
    assert s.verified, s.verification
    assert [node.op_type for node in s.model.proto.functions[0].node] == ["Constant", "Shape", "Neg", "Cast", "Add"]
    assert same_outputs(model, s.model)


# --- arguments -------------------------------------------------------------------------------------------------------

FLATTEN = (
    "g (float[n, 2, 3] x) => (float[n, 6] y) <int64 z = {0}, int64[1] p = {0}, int64[1] six = {6}> "
    "{ s = Shape(x)  n = Gather(s, z)  u = Unsqueeze(n, p)  t = Concat <axis = 0> (u, six)  y = Reshape(x, t) }"
)


@pytest.mark.parametrize("asked", [{"x": [4, 2, 3]}, {None: [4, None, 3]}, {"n": 4}])
def test_shapes_that_are_asked_for(asked: dict[str | None, Any]) -> None:
    s = onnx_nb.simplify(parsed(FLATTEN), shapes=asked)
    assert s.verified, s.verification
    shape = [dim.dim_value for dim in s.model.proto.graph.input[0].type.tensor_type.shape.dim]
    assert shape == [4, 2, 3]
    assert [dim.dim_value for dim in s.model.proto.graph.output[0].type.tensor_type.shape.dim] == [4, 6]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"z": [1]}, r"neither an input nor a dimension 'z'.*'x'"),
        ({"x": [1, 2]}, r"is \[1, 2\], and the input takes \[n, 2, 3\]"),
        ({"x": [1, 5, 3]}, r"keeps it; onnx_nb\.edit\(model\)\.free\(\) frees a batch"),
        ({"x": ["a", 2, 3]}, "whole numbers"),
        ({"m": 4}, "nor a dimension 'm'.*'n'"),
        ({"n": 4, "x": [5, 2, 3]}, "sizes 4 and 5"),
    ],
)
def test_shapes_that_do_not_fit(asked: dict[str | None, Any], said: str) -> None:
    with pytest.raises(onnx_nb.SimplificationError, match=said):
        onnx_nb.simplify(parsed(FLATTEN), shapes=asked)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shapes": {"x": None}}, "whole numbers from 0"),
        ({"shapes": {"x": [1 << 70, 2, 3]}}, "whole numbers from 0"),
        ({"check_n": -1}, "check_n is -1"),
        ({"rtol": float("nan")}, "rtol is nan"),
        ({"atol": -1}, "atol is -1"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(onnx_nb.SimplificationError, match=said):
        onnx_nb.simplify(parsed(FLATTEN), **options)


def test_feeds_that_do_not_fit_are_refused_rather_than_left_out() -> None:
    with pytest.raises(onnx_nb.FeedError, match="no input 'z'"):
        onnx_nb.simplify(parsed(FLATTEN), feeds={"z": np.zeros(3, np.float32)})


BROKEN_MODELS = [
    ("{ a = Relu(b)  b = Relu(a)  y = Relu(b) }", onnx_nb.SimplificationError, "form a cycle"),
    ("{ y = Relu(y) }", onnx_nb.SimplificationError, "form a cycle"),
    ("{ a = Relu(x)  a = Abs(x)  y = Relu(a) }", onnx_nb.SimplificationError, "'a' is made again by Abs"),
    ("{ a = Reshape(x)  y = Relu(a) }", onnx_nb.ModelFileError, "Reshape"),
    ("{ c = Erf()  y = Relu(x) }", None, ""),
]


@pytest.mark.parametrize(("body", "error", "said"), BROKEN_MODELS, ids=[case[0] for case in BROKEN_MODELS])
def test_broken_models_are_named_as_such(body: str, error: type[Exception] | None, said: str) -> None:
    model = parsed(f"g (float[2, 3] x) => (float[2, 3] y) {body}")
    if error is None:
        assert operators(onnx_nb.simplify(model, check_n=0).model) == ["Relu"]
        return
    with pytest.raises(error, match=said):
        onnx_nb.simplify(model)


def test_results_that_would_fill_memory_are_not_folded() -> None:
    model = parsed(
        "g (float x) => (float[a, b] y) <int64[2] huge = {4611686018427387904, 2}, int64[2] far = {1099511627776, 1}> "
        "{ c = ConstantOfShape(huge)  d = Expand(x, far)  e = ConstantOfShape(far)  f = Add(c, d)  y = Add(f, e) }"
    )
    s = onnx_nb.simplify(model, check_n=0)
    assert operators(s.model) == operators(model)
    assert {left.op_type for left in s.left} >= {"ConstantOfShape"}


def test_none_names_an_input_only_if_it_is_the_only_one() -> None:
    model = parsed("g (float[n] x, float[n] z) => (float[n] y) { y = Add(x, z) }")
    with pytest.raises(onnx_nb.SimplificationError, match=r"has 2 inputs.*'x'.*'z'"):
        onnx_nb.simplify(model, shapes={None: [2]})


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(onnx_nb.SimplificationError, match=r"no rule 'fuse_bn'.*'fuse_bn_into_conv'"):
        onnx_nb.simplify(models.one_node(), skip=["fuse_bn"])


def test_rule_names_of_other_tools_are_accepted() -> None:
    model = parsed("g (float[2] x) => (float[2] y) <float[1] one = {1}> { a = Mul(x, one)  y = Exp(a) }")
    assert operators(onnx_nb.simplify(model).model) == ["Exp"]
    s = onnx_nb.simplify(model, skip=["eliminate_nop_with_unit", "fuse_pad_into_pool"])
    assert operators(s.model) == ["Mul", "Exp"]
    assert s.options["skip"] == ("eliminate_nop_arithmetic",)
    known = {*onnx_nb.rules(), *rounds.STAGES}
    assert all(set(ours.split()) <= known for ours in table("rules").values())
    assert not set(table("rules")) & known


def test_stages_are_skipped_and_unused_inputs_removed() -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { a = Exp(c)  i = Identity(x)  y = Add(i, a) }"
    )
    assert operators(onnx_nb.simplify(model, skip=["constant_folding"]).model) == ["Exp", "Add"]
    assert operators(onnx_nb.simplify(model, skip=["rewrites"]).model) == ["Identity", "Add"]
    assert operators(onnx_nb.simplify(model, skip=["shape_inference"]).model) == ["Exp", "Add"]
    unread = parsed("g (float[2] x, float[2] unread) => (float[2] y) { y = Exp(x) }")
    assert len(onnx_nb.simplify(unread).model.proto.graph.input) == 2
    dropped = onnx_nb.simplify(unread, keep_inputs=False)
    assert [value.name for value in dropped.model.proto.graph.input] == ["x"]
    assert dropped.verified


def test_a_budget_keeps_a_generated_model_small() -> None:
    path = models.light("vgg19")
    s = onnx_nb.simplify(path, check_n=0)
    size = s.model.to_proto().ByteSize()
    assert size < path.stat().st_size + simplify.BUDGET + 100_000
    assert any(left.op_type == "ConstantOfShape" and left.nbytes > simplify.BUDGET for left in s.left)
    assert all("budget" in left.why for left in s.left)
    assert "Not folded" in s.report()


# --- reports ----------------------------------------------------------------------------------------------------


def test_a_simplification_explains_itself() -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) { a = Identity(x)  b = Exp(a)  c = Exp(x)  d = Add(b, c)  y = Identity(d) }"
    )
    s = onnx_nb.simplify(model, trace=True)
    assert s.verified
    assert dict(s.mapping) == {"x": "x", "a": "x", "b": "b", "c": "b", "d": "y", "y": "y"}
    assert repr(s) == f"Simplification(5 → 2 nodes, {len(s.changes)} changes, 0 left, verified)"
    assert s.report().splitlines()[-1].split() == ["all", "5", "2"]
    assert [row["rule"] for row in s.rows()] == [change.rule for change in s.changes]
    assert len(s.to_frame()) == len(s.changes)
    assert [(step.name, step.done) for step in s.steps] == [("original", 0), ("rewrite", len(s.changes))]
    assert all(same_outputs(model, step.model) for step in s.steps)
    mapped = {name for name in s.mapping.values() if name}
    values = session.run(s.model, {"x": np.array([1, 2], np.float32)}, outputs=sorted(mapped - {"x"}))
    original = session.run(model, {"x": np.array([1, 2], np.float32)}, outputs=["a", "b", "c", "d"], optimize=False)
    for name, array in original.items():
        now = s.mapping[name]
        assert np.array_equal(array, values[now] if now in values else np.array([1, 2], np.float32))


def test_steps_begin_at_the_original_and_end_at_the_result() -> None:
    model = parsed(
        """g (float[n] x, float[2] w) => (float[k] y) <float[2] w = {1, 2}> {
        p = Constant <value = int64[1] {2}> ()  q = Constant <value = int64[1] {-1}> ()
        t = Concat <axis = 0> (p, q)  a = Reshape(x, t)  f = local.Twice(a)  g = Mul(f, w)  y = Flatten <axis = 0> (g) }
        <domain: "local", opset_import: ["": 17]> Twice (a) => (b) { i = Identity(a)  b = Add(i, i) }"""
    )
    s = onnx_nb.simplify(model, shapes={"n": 4}, trace=True)
    names = [step.name for step in s.steps]
    assert names[:3] == ["original", "set shapes", "fold constants"]
    assert names[-1] == "local functions"
    assert [step.done for step in s.steps[:2]] == [0, 0]
    assert s.steps[-1].done == len(s.changes)
    assert operators(s.steps[-1].model) == operators(s.model)
    feed = {"x": np.arange(4, dtype=np.float32), "w": np.array([3, 5], np.float32)}
    assert all(same_outputs(model, step.model, feed) for step in s.steps)


def test_progress_is_reported_and_can_cancel() -> None:
    reported: list[tuple[float, str]] = []
    onnx_nb.simplify(models.one_node(), progress=lambda done, what: reported.append((done, what)))
    assert reported[-1] == (1.0, "done")
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)

    def stop(_done: float, _what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        onnx_nb.simplify(models.one_node(), progress=stop)


def test_a_wrong_rule_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(net: editor.Editor, op: known_graph.Op) -> str | None:
        """Break the model."""
        return "it is wrong" if net.redirect(op.outputs[0], op.inputs[0]) else None

    broken = editor.Rule("wrong", "Break the model", wrong, ("Abs",))
    monkeypatch.setattr(rounds, "RULES", [*rounds.RULES, broken])
    model = parsed("g (float[64] x) => (float[64] y) { a = Abs(x)  y = Neg(a) }")
    with pytest.warns(UserWarning, match="output 'y' differs by up to"):
        s = onnx_nb.simplify(model)
    assert not s.verified
    assert "NOT verified" in repr(s)
    assert s.differences["y"].outside > 0
    with pytest.raises(onnx_nb.SimplificationError, match="output 'y' differs"):
        onnx_nb.simplify(model, strict=True)
    assert onnx_nb.simplify(model, skip=["wrong"]).verified


def test_what_cannot_be_verified_is_not_called_verified() -> None:
    assert not onnx_nb.simplify(models.one_node(), check_n=0).verified
    own = parsed(
        "g (float[2] x) => (float[2] y) { a = Identity(x)  y = unknown.Op(a) }",
        '<ir_version: 8, opset_import: ["": 17, "unknown": 1]>',
    )
    s = onnx_nb.simplify(own)
    assert not s.verified
    assert "the original does not run" in s.verification
    assert operators(s.model) == ["Op"]
    with pytest.raises(onnx_nb.SimplificationError, match=r"asks for a verified result.*as the original does not run"):
        onnx_nb.simplify(own, strict=True)


def test_nan_equals_nan() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { a = Identity(x)  y = Log(a) }")
    s = onnx_nb.simplify(model, feeds={"x": np.array([-1, 2], np.float32)})
    assert s.verified


@pytest.mark.parametrize("size", [2, 1000])
@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize(("number", "divisor"), [(1, 0), (-(2**31), -1), (7, 2)])
def test_integers_are_divided_only_where_that_is_defined(op: str, number: int, divisor: int, size: int) -> None:
    """A division by 0 has no value to store, and in onnxruntime it may end the process."""
    names = {"a": number, "b": divisor}
    weights = [numpy_helper.from_array(np.full(size, of, np.int32), name) for name, of in names.items()]
    nodes = [helper.make_node(op, ["a", "b"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.INT32, [size]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    s = onnx_nb.simplify(proto, check_n=0)
    assert operators(s.model) == (["Add"] if divisor == 2 else [op, "Add"])
    assert any("divide an integer" in left.why for left in s.left) == (divisor != 2)


# --- whole models ----------------------------------------------------------------------------------------------------


@examples(60)
@hypothesis.given(dags.dags())
def test_random_models_compute_the_same(model: ModelProto) -> None:
    s = onnx_nb.simplify(model, check_n=2)
    assert s.verified, s.verification
    made, feeds = s.model.to_proto(), {value.name: dags.FEEDS[value.name] for value in model.graph.input}
    assert fault(model, made, feeds, plain(model, feeds, optimize=False)) == ""
    assert not onnx_nb.simplify(s.model, check_n=0).changes


@examples(15)
@hypothesis.given(dags.dags(by_reference=True))
def test_random_models_compute_the_same_in_the_reference_evaluator(model: ModelProto) -> None:
    """Also with types for which onnxruntime has no kernels."""
    simpler = onnx_nb.simplify(model, check_n=0).model
    expected, found = (dags.run_by_reference(onnx_nb.load(each), dags.FEEDS) for each in (model, simpler))
    assert all(close(found[name], value) for name, value in expected.items())


WHOLE = [
    *((f"light {name}", lambda name=name: models.light(name)) for name in models.LIGHT if name != "vgg19"),
    *(
        (
            f"{name} {'dynamo' if dynamo else 'torchscript'}",
            lambda name=name, dynamo=dynamo: models.exported(name, dynamo=dynamo),
        )
        for name in models.EXPORTABLE
        for dynamo in (True, False)
    ),
    ("control flow", models.control_flow),
    ("detection", models.detection),
    ("functions", models.functions),
    ("chain", lambda: models.chain(1000)),
]


@pytest.mark.parametrize("path", [make for _, make in WHOLE], ids=[name for name, _ in WHOLE])
def test_whole_models_compute_the_same(path: Any) -> None:
    s = onnx_nb.simplify(path())
    assert s.verified, s.verification
    assert sum(s.after.values()) <= sum(s.before.values())
    assert same_outputs(path(), s.model)


def test_weights_outside_the_file_stay_there(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((100, 100), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 100])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 100])],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    s = onnx_nb.simplify(tmp_path / "m.onnx")
    assert s.verified
    assert operators(s.model) == ["MatMul"]
    (kept,) = s.model.proto.graph.initializer
    assert kept.data_location == TensorProto.EXTERNAL
    assert same_outputs(tmp_path / "m.onnx", s.model.save(tmp_path / "simplified.onnx"))


def test_large_folded_constants_are_saved_and_pickled(tmp_path: Path) -> None:
    text = (
        "g (float[300] x) => (float[300, 300] y) <int64[2] s = {300, 300}> "
        "{ w = ConstantOfShape <value = float[1] {0.5}> (s)  e = Exp(w)  y = Mul(x, e) }"
    )
    s = onnx_nb.simplify(parsed(text))
    assert s.verified
    assert operators(s.model) == ["Mul"]
    (large,) = s.model.tensor_names()
    assert np.allclose(s.model.tensor(large), np.exp(np.float32(0.5)))
    for copy in (s.model.save(tmp_path / "m.onnx"), s.model.to_proto(), pickle.loads(pickle.dumps(s.model))):  # noqa: S301 (own)
        assert same_outputs(parsed(text), copy)
    again = onnx_nb.simplify(s.model)
    assert again.verified
    assert not again.changes


def test_sizes_are_traced_far_without_a_deep_stack() -> None:
    """A chain of thousands of nodes of unknown size, called as deep in the stack as a notebook may be."""
    lines = "  ".join(
        f"s{i} = Shape(x{i})  y{i} = Reshape(x{i}, s{i})  x{i + 1} = Mul(y{i}, x{max(0, i - 1)})" for i in range(900)
    )
    model = parsed(f"g (float[a, b] x0) => (float[c, d] x900) {{ {lines} }}")
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")

    def deeper(frames: int) -> onnx_nb.types.Simplification:
        return deeper(frames - 1) if frames else onnx_nb.simplify(model, check_n=1)

    s = deeper(300)
    assert s.verified
    assert operators(s.model) == ["Mul"] * 900


def test_importing_the_engine_loads_no_onnxruntime() -> None:
    code = "import sys, onnx_nb; onnx_nb.rules(); raise SystemExit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_constants_are_folded_in_sessions_of_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    # nothing can interrupt the creation of a session; a node may read what an earlier session made
    nodes = [onnx.helper.make_node("ConstantOfShape", ["s"], ["c0"], value=onnx.helper.make_tensor("v", 1, [1], [2.0]))]
    nodes += [onnx.helper.make_node("Sqrt", [f"c{i}"], [f"c{i + 1}"]) for i in range(10)]
    nodes += [onnx.helper.make_node("Sum", ["x", "c2", "c7", "c10"], ["y"])]
    ports = [onnx.helper.make_tensor_value_info(name, 1, [300]) for name in "xy"]
    weight = onnx.numpy_helper.from_array(np.asarray([300]), "s")
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    sizes = []
    create = session.create

    def counted(model: onnx_nb.Model, **options: Any) -> Any:
        sizes.append(len(model.proto.graph.node))
        return create(model, **options)

    monkeypatch.setattr(rounds, "TOGETHER", 4)
    monkeypatch.setattr(session, "create", counted)
    found = simplify.simplify(proto, check_n=0)
    assert [node.op_type for node in found.model.proto.graph.node] == ["Sum"]
    assert sizes == [4, 4, 3]
    x = np.arange(300, dtype=np.float32)
    expected, given = (create(each).run(None, {"x": x})[0] for each in (proto, found.model))
    assert np.array_equal(expected, given)


def test_transposes_of_a_scalar_are_removed() -> None:
    """They have no axes to write as a permutation, which onnx.helper refuses."""
    head = '<ir_version: 8, opset_import: ["": 17]> g '
    model = onnx.parser.parse_model(head + "(float x) => (float y) { a = Transpose(x) b = Transpose(a) y = Neg(b) }")
    report = onnx_nb.simplify(model)
    assert report.verdict == "verified"
    assert [node.op_type for node in report.model.proto.graph.node] == ["Neg"]


# --- inputs that never change -----------------------------------------------------------------------------------------

RATES = """g (float[n] x, int64 sr, float[2] gain, bool[1] loud) => (float[n] y) <int64 high = {16000}> {
    is = Equal(sr, high)
    r = If(is) <then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[n] b) { b = Abs(x) }>
    g = ReduceMax(gain)  s = Mul(r, g)  l = Cast <to = 1> (loud)  y = Mul(s, l) }"""


@pytest.mark.parametrize(("rate", "left"), [(16000, ["Neg"]), (8000, ["Abs"])])
def test_an_input_that_never_changes_takes_the_branches_that_die_with_it(rate: int, left: list[str]) -> None:
    model = parsed(RATES)
    s = onnx_nb.simplify(model, constants={"sr": rate, "gain": [0.5, 0.25], "loud": True})
    assert s.verified, s.verification
    assert operators(s.model) == [*left, "Mul"]
    assert [info.name for info in s.model.inputs] == ["x"]
    x = np.array([1, -2], np.float32)
    gain, loud = np.array([0.5, 0.25], np.float32), np.ones(1, bool)
    feed: dict[str, Any] = {"x": x, "sr": np.array(rate, np.int64), "gain": gain, "loud": loud}
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, feed)
    assert np.array_equal(onnx_nb.run(s.model, {"x": x}, optimize=False)["y"], expected)
    assert eval(s.call(), {"onnx_nb": onnx_nb, "model": model}).verified  # noqa: S307 (what the panel shows)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"rate": 1}, r"no input 'rate'.*Its inputs: 'x', 'sr', 'gain', 'loud'"),
        ({"sr": 1.5}, r"input 'sr' takes int64 \[\], and is given float64 \[\]"),
        ({"sr": "fast"}, r"input 'sr' takes int64"),
        ({"gain": [1, 2, 3]}, r"input 'gain' takes float32 \[2\], and is given float32 \[3\]"),
        ({"loud": 3}, r"takes bool \[1\], and is given int64 \[1\]"),
    ],
)
def test_a_constant_that_its_input_does_not_take_is_named(constants: dict[str, Any], message: str) -> None:
    with pytest.raises(onnx_nb.OnnxNbError, match=message):
        onnx_nb.simplify(parsed(RATES), constants=constants)
