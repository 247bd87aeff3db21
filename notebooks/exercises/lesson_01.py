"""Graders of "What is an ONNX model?"."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import onnx

import onnx_nb

from . import Lesson, NotYet, expect

check: Final = Lesson()


def valid_proto(answer: Any) -> onnx.ModelProto:
    """Return the proto of a model that the checker accepts."""
    sentence = f"This has type {type(answer).__name__}; the answer is a model, as `ModelProto`."
    expect(isinstance(answer, onnx_nb.Model | onnx.ModelProto), sentence)
    proto = answer.to_proto() if isinstance(answer, onnx_nb.Model) else answer
    known = {value.name for value in (*proto.graph.input, *proto.graph.initializer)} | {""}
    results = {name for node in proto.graph.node for name in node.output}
    for node in proto.graph.node:
        for name in node.input:
            expect(name in known | results, f"{node.op_type} reads {name!r}, which no node makes.")
            expect(
                name in known, f"{node.op_type} reads {name!r}, which is made only later: mind the order of the nodes."
            )
        known.update(node.output)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception as error:  # noqa: BLE001 (the checker and shape inference have exceptions of their own)
        raise NotYet(f"The checker refuses this model: {str(error).strip().splitlines()[0]}") from None
    return proto


def _ports(proto: onnx.ModelProto) -> list[str]:
    weights = {weight.name for weight in proto.graph.initializer}
    return [value.name for value in proto.graph.input if value.name not in weights]


def signed_feeds(names: str, *shape: int, seed: int = 1) -> dict[str, Any]:
    """Return values of both signs."""
    numbers = np.random.default_rng(seed)
    return {name: numbers.normal(size=shape).astype(np.float32) for name in names}


def only_output(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    """Return the one output of a model, computed on feeds."""
    expect(len(proto.graph.output) == 1, f"The model has {len(proto.graph.output)} outputs, and one is asked for.")
    try:
        (value,) = onnx_nb.run(proto, feeds).values()
    except onnx_nb.OnnxNbError:
        raise NotYet("The checker accepts this model, but it cannot run: do all shapes fit together?") from None
    return value


_VECTORS = 'onnx.parser.parse_model(HEAD.replace("linear", "length") + "%s")'


@check.exercise(
    1,
    "length",
    "length",
    {
        _VECTORS
        % "(float[3] x, float[3] y) => (float[3] z) { a = Mul(x, x)  b = Mul(y, y)  c = Add(a, b)  z = Sqrt(c) }": (
            "any length"
        ),
        _VECTORS
        % "(float[n] x, float[n] y) => (float[n] z) { a = Mul(x, x)  b = Mul(y, y)  z = Add(a, b) }": "square of",
        _VECTORS
        % "(float[n] x, float[n] y) => (float[n] z) { a = Mul(x, y)  b = Add(a, a)  z = Sqrt(b) }": "something else",
        _VECTORS % "(float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }": "something else",
        _VECTORS % "(float[n] x, float[n] y) => (float[n] z) { z = Sqrt(c)  c = Add(x, y) }": "mind the order",
        _VECTORS % "(float[n] x) => (float[n] z) { a = Mul(x, x)  z = Sqrt(a) }": "The inputs are",
        _VECTORS % "(double[n] x, double[n] y) => (double[n] z) { z = Add(x, y) }": "float32",
        "pair": "This has type dict",
    },
)
def _length(answer: Any) -> None:
    proto = valid_proto(answer)
    expect(set(_ports(proto)) == {"x", "y"}, f"The inputs are {', '.join(_ports(proto))}; they should be `x` and `y`.")
    for value in onnx_nb.load(proto).inputs:
        expect(value.dtype == "float32", f"{value.name} is {value.dtype}, and should be float32.")
        shape = value.shape or ()
        expect(len(shape) == 1, f"{value.name} has {len(shape)} dimensions, and a vector has one.")
        expect(
            not isinstance(shape[0], int), f"{value.name} takes {shape[0]} numbers only; give it any length by a name."
        )
    for count in (1, 3, 7):
        feeds = signed_feeds("xy", count)
        computed = only_output(proto, feeds)
        if np.allclose(computed, feeds["x"] ** 2 + feeds["y"] ** 2, atol=1e-5):
            raise NotYet("This is the square of the length: a step is missing.")
        right = np.hypot(feeds["x"], feeds["y"])
        expect(np.allclose(computed, right, atol=1e-5), "It is a valid model, but it computes something else.")


_LINEAR = 'onnx.parser.parse_model(HEAD + THREE + "{ %s }")'


@check.exercise(
    2,
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
    3,
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
