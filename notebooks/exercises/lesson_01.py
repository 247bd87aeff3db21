"""Graders of "What is an ONNX model?"."""

from __future__ import annotations

import itertools
import random
from typing import Any, Final

import numpy as np
import onnx

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


def _proto(answer: Any) -> onnx.ModelProto:
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


def _feeds(names: str, *shape: int, seed: int = 1) -> dict[str, Any]:
    """Return values of both signs."""
    numbers = np.random.default_rng(seed)
    return {name: numbers.normal(size=shape).astype(np.float32) for name in names}


def _computed(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
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
    proto = _proto(answer)
    expect(set(_ports(proto)) == {"x", "y"}, f"The inputs are {', '.join(_ports(proto))}; they should be `x` and `y`.")
    for value in onnx_nb.load(proto).inputs:
        expect(value.dtype == "float32", f"{value.name} is {value.dtype}, and should be float32.")
        shape = value.shape or ()
        expect(len(shape) == 1, f"{value.name} has {len(shape)} dimensions, and a vector has one.")
        expect(
            not isinstance(shape[0], int), f"{value.name} takes {shape[0]} numbers only; give it any length by a name."
        )
    for count in (1, 3, 7):
        feeds = _feeds("xy", count)
        computed = _computed(proto, feeds)
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
    proto, feeds = _proto(answer), _feeds("axb", 2, 2)
    computed, linear = _computed(proto, feeds), feeds["a"] * feeds["x"] + feeds["b"]
    expect((computed >= 0).all(), "Some results are below zero, which Relu does not let through.")
    expect(np.allclose(computed, np.maximum(linear, 0), atol=1e-5), "It is valid now, but it computes something else.")


@check.exercise(
    3,
    "edited",
    "edited",
    {
        'onnx.load(folder / "linear.onnx")': "still a·x + b",
        _LINEAR % "c = Mul(a, x)  r = Relu(c)  y = Add(c, b)": "still a·x + b",
        _LINEAR % "c = Mul(a, x)  s = Add(c, b)  y = Relu(s)": "after `Add`",
        _LINEAR % "r = Relu(x)  c = Mul(a, r)  y = Add(c, b)": "before `Mul`",
        _LINEAR % "c = Mul(a, x)  y = Add(r, b)  r = Relu(c)": "mind the order",
        _LINEAR % "c = Mul(a, x)  y = Add(r, b)": "which no node makes",
        "mul": "This has type NodeProto",
    },
)
def _edited(answer: Any) -> None:
    proto, feeds = _proto(answer), _feeds("axb", 2, 2, seed=4)
    computed, (a, x, b) = _computed(proto, feeds), feeds.values()
    others = {
        "The result is still a·x + b: does `Add` read what `Relu` makes?": a * x + b,
        "`Relu` comes after `Add` here, and belongs between the two.": np.maximum(a * x + b, 0),
        "`Relu` comes before `Mul` here, and belongs between the two.": a * np.maximum(x, 0) + b,
        "`Relu` reads `a` here, before `Mul`, and belongs between the two.": np.maximum(a, 0) * x + b,
        "`Relu` reads `b` here; it belongs between `Mul` and `Add`.": a * x + np.maximum(b, 0),
    }
    for sentence, values in others.items():
        expect(not np.allclose(computed, values, atol=1e-5), sentence)
    right = np.maximum(a * x, 0) + b
    expect(np.allclose(computed, right, atol=1e-5), "It is a valid model, but its result is not relu(a·x) + b.")


def _order(sort: Any, nodes: list[onnx.NodeProto], case: str) -> None:
    """Grade the order in which a function returns nodes."""
    result = sort(list(nodes))
    expect(result is not None, "The function returns nothing: return the nodes in their order.")
    order = list(result)
    expect(
        all(isinstance(node, onnx.NodeProto) for node in order),
        "The function should return the nodes themselves, not their names or positions.",
    )
    expect(len(order) >= len(nodes), f"Only {len(order)} of the {len(nodes)} nodes of {case} come back.")
    expect(
        sorted(node.SerializeToString() for node in order) == sorted(node.SerializeToString() for node in nodes),
        f"Each node of {case} should come back exactly once.",
    )
    made_by = {name: node.op_type for node in nodes for name in node.output}
    ready: set[str] = set()
    for node in order:
        for name in node.input:
            late = name in made_by and name not in ready
            expect(not late, f"In {case}, {node.op_type} comes before {made_by.get(name)}, whose result it reads.")
        ready.update(node.output)


@check.exercise(
    4,
    "topological",
    "topological",
    {
        "lambda nodes: nodes": "comes before",
        "lambda nodes: nodes[::-1]": "comes before",
        "lambda nodes: sorted(nodes, key=lambda node: node.op_type, reverse=True)": "comes before",
        "lambda nodes: topological(nodes)[:-1]": "come back",
        "lambda nodes: topological(nodes) + nodes[:1]": "exactly once",
        "lambda nodes: [node.op_type for node in topological(nodes)]": "the nodes themselves",
        "lambda nodes: nodes.sort(key=lambda node: node.op_type)": "returns nothing",
        "order": "is a function",
    },
)
def _topological(answer: Any) -> None:
    expect(callable(answer), f"This has type {type(answer).__name__}; `topological` is a function of a list of nodes.")
    steps = [("Mul", "ax", "c"), ("Mul", "cc", "d"), ("Add", "cb", "e"), ("Add", "de", "f"), ("Relu", "f", "y")]
    nodes = [onnx.helper.make_node(op, list(reads), [makes]) for op, reads, makes in steps]
    for shuffled in itertools.permutations(nodes):
        _order(answer, list(shuffled), "a small graph")
    _order(answer, [], "an empty graph")
    nodes = made("densenet").to_proto().graph.node
    _order(answer, random.Random(1).sample(list(nodes), len(nodes)), "DenseNet")  # noqa: S311 (no secret)


_SOFTMAX = 'onnx.parser.parse_model(softmax_head + "{ axes = Constant<value = int64[1] {-1}>()  %s }")'


@check.exercise(
    5,
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
    proto = _proto(answer)
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
    computed = _computed(proto, {port.name: values})
    powers = np.exp(values)
    right = powers / powers.sum(axis=-1, keepdims=True)
    expect(computed.shape == right.shape, "The result has another shape than the input: keep the axis that is summed.")
    expect(not np.allclose(computed, 1 / right, rtol=1e-3), "Div reads its inputs the wrong way round.")
    expect(np.allclose(computed.sum(axis=-1), 1, atol=1e-3), "The results do not add up to 1 along the last axis.")
    expect(np.allclose(computed, right, atol=1e-5), "The results add up to 1, but they are not those of Softmax.")
