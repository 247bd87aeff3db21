"""Graders of "Broken models"."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

import onnx_nb

from . import Lesson, expect
from .lesson_01 import only_output, signed_feeds, valid_proto

check: Final = Lesson()


_LINEAR = 'onnx.parser.parse_model(HEAD + THREE + "{ %s }")'


@check.exercise(
    1,
    "mended",
    "faulty",
    {
        _LINEAR % "s = Add(p, b)  c = Mul(a, x)  y = Relu(s)": "which no node makes",
        _LINEAR % "s = Add(c, b)  c = Mul(a, x)  y = Relu(s)": "mind the order",
        _LINEAR % "s = Add(a, b)  c = Mul(a, x)  y = Relu(s)": "something else",
        _LINEAR % "c = Mul(a, x)  y = Add(c, b)": "below zero",
        "add_node": "This has type NodeProto",
    },
)
def _mended(answer: Any) -> None:
    proto, feeds = valid_proto(answer), signed_feeds("axb", 2, 2)
    computed, linear = only_output(proto, feeds), feeds["a"] * feeds["x"] + feeds["b"]
    expect((computed >= 0).all(), "Some results are below zero, which Relu does not let through.")
    expect(np.allclose(computed, np.maximum(linear, 0), atol=1e-5), "It is valid now, but it computes something else.")


_SOFTMAX = 'onnx.parser.parse_model(softmax_head + "{ axes = Constant<value = int64[1] {-1}>()  %s }")'


@check.exercise(
    2,
    "by_hand",
    "by_hand",
    {
        "ready_made": "is made of",
        _SOFTMAX % "e = Exp(x)  m = ReduceMean<keepdims = 1>(e, axes)  y = Div(e, m)": "is made of",
        _SOFTMAX % "e = Exp(x)  s = ReduceSum<keepdims = 1>(e, axes)  y = Div(s, e)": "the wrong way round",
        _SOFTMAX % "e = Exp(x)  s = ReduceSum<keepdims = 1>(x, axes)  y = Div(e, s)": "do not add up to 1",
        _SOFTMAX.replace("softmax_head", 'softmax_head.replace("[n]", "[m, n]")').replace("{-1}", "{0}")
        % "e = Exp(x)  s = ReduceSum<keepdims = 1>(e, axes)  y = Div(e, s)": "along the last axis",
        "small": "This has type ndarray",
    },
)
def _softmax(answer: Any) -> None:
    proto = valid_proto(answer)
    used = {node.op_type for node in proto.graph.node} - {"Constant"}
    expect(
        used == {"Exp", "ReduceSum", "Div"},
        f"This softmax is made of {', '.join(sorted(used))}, and should be made of Exp, ReduceSum and Div.",
    )
    inputs = onnx_nb.load(proto).inputs
    expect(len(inputs) == 1, f"The model has {len(inputs)} inputs, and softmax has one.")
    (port,) = inputs
    sizes = itertools.count(3)
    shape = [size if isinstance(size, int) else next(sizes) for size in port.shape or ["n"]]
    values = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    computed = only_output(proto, {port.name: values})
    powers = np.exp(values)
    right = powers / powers.sum(axis=-1, keepdims=True)
    expect(computed.shape == right.shape, "The result has another shape than the input: keep the axis that is summed.")
    expect(not np.allclose(computed, 1 / right, rtol=1e-3), "Div reads its inputs the wrong way round.")
    expect(np.allclose(computed.sum(axis=-1), 1, atol=1e-3), "The results do not add up to 1 along the last axis.")
    expect(np.allclose(computed, right, atol=1e-5), "The results add up to 1, but they are not those of Softmax.")
