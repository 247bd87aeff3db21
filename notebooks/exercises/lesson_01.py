"""Graders of "What is an ONNX model?"."""

from __future__ import annotations

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


_VECTORS = """onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> length %s')"""


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
