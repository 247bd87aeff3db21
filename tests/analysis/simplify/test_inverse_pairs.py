"""A Reshape or Transpose and its inverse around elementwise nodes: where both go, and where they must stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import onnx_nb
from onnx_nb.analysis.run import session

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
FLAT = "int64[2] flat = {-1, 8}, int64[3] back = {2, 3, 8}, float half = {0.5}, float three = {3}"
TURN = "Transpose <perm = [0, 2, 3, 1]>"
BACK = "Transpose <perm = [0, 3, 1, 2]>"
SIZE = "int64 i = {0}, int64 j = {1}, int64[1] first = {0}, int64[1] eight = {8}, int64[2] flat = {-1, 8}"
SAME = """s = Shape(x)  b = Gather(s, i)  t = Gather(s, j)  u = Unsqueeze(b, first)  v = Unsqueeze(t, first)
    back = Concat <axis = 0> (u, v, eight)  a = Reshape(x, flat)  e = Exp(a)"""

GO = {
    "tanh Gelu": (
        f"""g (float[6, 8] x) => (float[6, 8] y) <{FLAT}> {{ a = Reshape(x, back)  p = Pow(a, three)  l = Mul(p, half)
        i = Add(a, l)  t = Tanh(i)  u = Add(t, half)  v = Mul(a, u)  y = Reshape(v, flat) }}""",
        ["Pow", "Mul", "Add", "Tanh", "Add", "Mul"],
    ),
    "last axis stays": (
        f"""g (float[6, 8] x) => (float[6, 8] y) <{FLAT}, float[8] w = {{1, 2, 3, 4, 5, 6, 7, 8}}>
        {{ a = Reshape(x, back)  b = Add(w, a)  y = Reshape(b, flat) }}""",
        ["Add"],
    ),
    "whole constant": (
        """g (float[2, 2] x) => (float[2, 2] y) <int64[1] flat = {4}, int64[2] back = {2, 2}, float[4] w = {1, 2, 3, 4}>
        { a = Reshape(x, flat)  b = Sub(w, a)  y = Reshape(b, back) }""",
        ["Sub"],
    ),
    "two tensors": (
        f"""g (float[6, 8] x, float[6, 8] z) => (float[6, 8] y) <{FLAT}>
        {{ a = Reshape(x, back)  b = Reshape(z, back)  c = Div(a, b)  y = Reshape(c, flat) }}""",
        ["Div"],
    ),
    "another reader of the first": (
        f"""g (float[6, 8] x) => (float[6, 8] y, float[2, 3, 8] z) <{FLAT}>
        {{ a = Reshape(x, back)  b = Exp(a)  z = Softmax(a)  y = Reshape(b, flat) }}""",
        ["Reshape", "Exp", "Softmax"],
    ),
    "Squeeze and Unsqueeze": (
        """g (float[n, 1, 3] x) => (float[n, 1, 3] y) <int64[1] one = {1}>
        { a = Squeeze(x, one)  b = Cast <to = 11> (a)  c = Cos(b)  d = Cast <to = 1> (c)  y = Unsqueeze(d, one) }""",
        ["Cast", "Cos", "Cast"],
    ),
    "Transpose, constant of a channel": (
        f"""g (float[n, 4, h, w] x) => (float[n, 4, h, w] y) <float[4] c = {{1, 2, 3, 4}}, float low = {{0}}>
        {{ a = {TURN} (x)  b = Mul(a, c)  d = Clip(b, low)  y = {BACK} (d) }}""",
        ["Mul", "Clip"],
    ),
    "dynamic sizes, computed from the same shape": (
        f"g (float[n, m, 8] x) => (float[n, m, 8] y) <{SIZE}> {{ {SAME}  y = Reshape(e, back) }}",
        ["Exp"],
    ),
    "Where": (
        f"""g (float[6, 8] x, bool[6, 8] c) => (float[6, 8] y) <{FLAT}>
        {{ a = Reshape(x, back)  b = Reshape(c, back)  d = Where(b, a, half)  y = Reshape(d, flat) }}""",
        ["Where"],
    ),
}

STAY = {
    "another shape at the end": (
        f"""g (float[6, 8] x) => (float[8, 6] y) <{FLAT}, int64[2] other = {{8, 6}}>
        {{ a = Reshape(x, back)  b = Exp(a)  y = Reshape(b, other) }}"""
    ),
    "unknown sizes": (
        """g (float[n, m] x, int64[2] s) => (float[a, b] y) <int64[1] flat = {-1}>
        { a = Reshape(x, flat)  b = Exp(a)  y = Reshape(b, s) }"""
    ),
    "two dynamic sizes swapped": (
        f"""g (float[n, m, 8] x) => (float[p, q, 8] y) <{SIZE}> {{ {SAME}  r = Concat <axis = 0> (v, u, eight)
        y = Reshape(e, r) }}"""
    ),
    "not elementwise": (
        f"""g (float[6, 8] x) => (float[6, 8] y) <{FLAT}>
        {{ a = Reshape(x, back)  b = Softmax <axis = 1> (a)  y = Reshape(b, flat) }}"""
    ),
    "another tensor": (
        f"""g (float[6, 8] x, float[2, 3, 8] z) => (float[6, 8] y) <{FLAT}>
        {{ a = Reshape(x, back)  b = Add(a, z)  y = Reshape(b, flat) }}"""
    ),
    "a vector along an axis that moves": (
        f"""g (float[6, 8] x, float[2, 1, 1] z) => (float[6, 8] y) <{FLAT}>
        {{ a = Reshape(x, back)  b = Add(a, z)  y = Reshape(b, flat) }}"""
    ),
    "a vector along an axis that a Transpose moves, all of one size": (
        f"""g (float[4, 4, 4, 4] x, float[4] c) => (float[4, 4, 4, 4] y)
        {{ a = {TURN} (x)  b = Mul(a, c)  y = {BACK} (b) }}"""
    ),
    "ones of a higher rank": (
        """g (float[6] x, float[1, 1] z) => (float[6] y) <int64[2] back = {2, 3}, int64[1] flat = {6}>
        { a = Reshape(x, back)  b = Add(a, z)  y = Reshape(b, flat) }"""
    ),
    "broadcast to a larger shape": (
        """g (float[1, 8] x, float[6, 8] z) => (float[3, 2, 8] y)
        <int64[3] wide = {3, 2, 8}, int64[3] slim = {1, 1, 8}, int64[2] flat = {6, 8}>
        { a = Reshape(x, slim)  b = Reshape(z, wide)  c = Add(a, b)  d = Reshape(c, flat)  e = Softmax(d)
        y = Reshape(e, wide) }"""
    ),
    "a reader in between": (
        f"""g (float[6, 8] x) => (float[6, 8] y, float[2, 3, 8] z) <{FLAT}>
        {{ a = Reshape(x, back)  b = Exp(a)  z = Softmax(b)  c = Neg(b)  y = Reshape(c, flat) }}"""
    ),
    "an output in between": (
        f"""g (float[6, 8] x) => (float[6, 8] y, float[2, 3, 8] b) <{FLAT}>
        {{ a = Reshape(x, back)  b = Exp(a)  c = Neg(b)  y = Reshape(c, flat) }}"""
    ),
    "not the inverse": (
        f"""g (float[2, 2, 2, 2] x) => (float[2, 2, 2, 2] y)
        {{ a = {TURN} (x)  b = Exp(a)  y = {TURN} (b) }}"""
    ),
    "a random node": (
        f"""g (float[6, 8] x) => (float[6, 8] y) <{FLAT}>
        {{ a = Reshape(x, back)  b = Bernoulli(a)  y = Reshape(b, flat) }}"""
    ),
}


@pytest.mark.parametrize("name", GO)
def test_an_inverse_pair_goes(name: str) -> None:
    text, after = GO[name]
    model = onnx.parser.parse_model(HEAD + text)
    s = onnx_nb.simplify(model)
    assert s.verified, s.verification
    assert "eliminate_inverse_pair" in {change.rule for change in s.changes}
    assert [node.op_type for node in s.model.proto.graph.node] == after
    feed = onnx_nb.random_feeds(model, 7)
    # the very same: nothing is computed in another order
    expected, found = (session.run(each, feed, optimize=False) for each in (model, s.model))
    assert all(np.array_equal(found[each], expected[each], equal_nan=True) for each in expected)
    # each tensor that the result maps to is the same, though shapes in between changed
    asked = [name for name, now in s.mapping.items() if now and name not in feed and name not in model_weights(model)]
    before = session.run(model, feed, outputs=asked, optimize=False)
    now = session.run(s.model, feed, outputs=[str(s.mapping[name]) for name in asked], optimize=False)
    assert all(np.array_equal(before[name], now[str(s.mapping[name])], equal_nan=True) for name in asked)


def model_weights(model: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in model.graph.initializer}


@pytest.mark.parametrize("name", STAY)
def test_a_pair_stays(name: str) -> None:
    s = onnx_nb.simplify(onnx.parser.parse_model(HEAD + STAY[name]))
    assert "eliminate_inverse_pair" not in {change.rule for change in s.changes}
    assert s.verified or "random" in name, s.verification
