"""Graders of "Simplification"."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()

_NOISE: Final[dict[str, dict[str, Any]]] = {
    "RandomNormal": {"shape": [4]},
    "RandomUniform": {"shape": [4]},
    "RandomNormalLike": {},
    "RandomUniformLike": {},
    "Bernoulli": {},
}


def _noisy(operator: str) -> Any:
    """Return a model that adds half of the noise of an operator to its input."""
    nodes = [
        helper.make_node(operator, ["half"] if not _NOISE[operator] else [], ["noise"], **_NOISE[operator]),
        helper.make_node("Mul", ["noise", "half"], ["less"]),
        helper.make_node("Add", ["x", "less"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    weights = [numpy_helper.from_array(np.full(4, 0.5, np.float32), "half")]
    graph = helper.make_graph(nodes, "noisy", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@check.exercise(
    1,
    "constant_nodes",
    "constant_nodes",
    {
        "allowed": "it should be the function",
        'lambda proto: fifty_lines(proto, {"x": [4]})': "a list of nodes",
        "lambda proto: constant_by_running(proto, False)": "The noise of `RandomNormal`",
        'lambda proto: [n for n in constant_by_running(proto, False) if "Random" not in n.op_type]': "from noise",
        """lambda proto: constant_by_running(
            changed(proto, node=[n for n in proto.graph.node if n.op_type != "RandomNormal"]), False)""": (
            "Another generator"
        ),
        "lambda proto: []": "are left of `JustReshape`",
        "lambda proto: [n for n in proto.graph.node if n.op_type in ALLOWED and n.op_type not in {'Add', 'Mul'} or "
        "n.op_type == 'Mul' and 'noise' not in n.input]": "depends on its input",
    },
)
def _constant_nodes(answer: Any) -> None:
    expect(callable(answer), f"This is a {type(answer).__name__}; it should be the function `constant_nodes`.")
    for operator in _NOISE:
        found = answer(made("with_shapes")(_noisy(operator), {"x": [4]}))
        is_list = isinstance(found, list | tuple) and all(isinstance(node, onnx.NodeProto) for node in found)
        expect(is_list, "The function should return a list of nodes, as before.")
        names = [node.op_type for node in found]
        first = f"The noise of `{operator}` counts as constant, though it is new in every run."
        other = (
            f"Another generator of noise, `{operator}`, counts as constant: think of operators that you do not know."
        )
        expect(operator not in names, first if operator == "RandomNormal" else other)
        expect("Mul" not in names, "What is computed from noise counts as constant, and is not.")
    model, x = made("model"), np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    fixed = made("with_shapes")(model.to_proto(), {"x": [2, 3, 4, 5]})
    values = made("computed")(fixed, answer(fixed))
    simple = made("eliminated")(made("replaced")(fixed, values))
    count = len(simple.graph.node)
    expect(count <= 1, f"{count} nodes are left of `JustReshape`: which of them are the same in every run?")
    is_same = count == 1 and np.array_equal(onnx_nb.run(simple, [x])["y"], x.reshape(2, 3, 20))
    expect(is_same, "The result of `JustReshape` depends on its input, so it is not constant.")


_SIZES: Final = {0: "batch", 2: "height", 3: "width"}


def _sizes_in(choice: Any) -> set[str]:
    """Return the names of the sizes in a choice: a name, names in one text, an axis, or several of them."""
    if isinstance(choice, str):
        found = set(re.findall(r"\w+", choice)) - {"and", "all", "fixed", "none"}
    elif isinstance(choice, Iterable):
        found = set().union(*map(_sizes_in, choice))
    else:
        found = {_SIZES.get(choice, str(choice))}
    for name in found - {*_SIZES.values()}:
        raise NotYet(f"{name!r} is none of the sizes of this exercise: they are batch, height and width.")
    return found


@check.exercise(
    2,
    "one_node",
    "[axes for count in range(4) for axes in combinations(free_sizes.values(), count)"
    ' if "batch" not in axes or count == 1]',
    {
        "4": "should be a list",
        '["channels"]': "none of the sizes",
        '["batch", "height", "width"]': "at least one more",
        '[("batch",), ("height",), ("width",), ("batch", "width"), ("height", "width")]': "an empty batch",
    },
)
def _free_sizes(answer: Any) -> None:
    is_list = isinstance(answer, list | tuple | set | frozenset)
    expect(
        is_list, f"This is a {type(answer).__name__}; it should be a list of choices, each with the names of its sizes."
    )
    given = {frozenset(_sizes_in(choice)) for choice in answer}
    right = {frozenset[str]()}
    for count in 1, 2, 3:
        for axes in combinations(_SIZES, count):
            exported = made("export")("torchscript", {axis: _SIZES[axis] for axis in axes})
            if len(onnx_nb.simplify(exported, check_n=0).model.proto.graph.node) == 1:
                right.add(frozenset(_SIZES[axis] for axis in axes))
    expect(given <= right, "With one of these choices more nodes are left: what would 0 and -1 make of an empty batch?")
    expect(given >= right - {frozenset()}, "These are right, and there is at least one more.")


@check.exercise(
    3,
    "cured, error",
    "cured, error",
    {
        "centered_model, error": "`simplify` returns",
        "onnx_nb.simplify(onnx_nb.export(nn.Sequential(sensor[0], *sensor[2:]), kelvin, **names)), error": "the mean",
        "onnx_nb.simplify(thermometer, feeds=measured, skip=[fused.key]), error": "no more exact",
        'onnx_nb.simplify(centered_model, feeds=measured, skip=["fuse_bn_into_conv"]), error': "not fused",
        "onnx_nb.simplify(centered_model), error": "random feeds",
        'cured, np.abs(errors["fused"]).max()': "of the new model",
        "cured, truth": "largest difference",
    },
)
def _cure(cured: Any, error: Any) -> None:
    is_result = isinstance(cured, onnx_nb.types.Simplification)
    expect(is_result, f"The first part is a {type(cured).__name__}; it should be what `simplify` returns.")
    sensor, kelvin = copy.deepcopy(made("sensor")).double().eval(), made("kelvin")
    with torch.no_grad():
        truth = sensor(kelvin.double()).numpy()
    differences = next(iter(onnx_nb.run(cured.model, [kelvin.numpy()], optimize=False).values())) - truth
    largest, before = np.abs(differences).max(), np.abs(made("errors")["fused"]).max()
    same = (
        "It computes something else than the sensor: what subtracting 293 changes, the mean of BatchNorm has to undo."
    )
    expect(largest < 0.01 * truth.std(), same)
    expect(largest < 0.1 * before, "It is no more exact than before: subtract 293 before the first weight.")
    names = {node.op_type for node in cured.model.proto.graph.node}
    expect("BatchNormalization" not in names, "The BatchNorm is not fused with the convolution.")
    is_measured = cured.options.get("feeds") is not None
    expect(is_measured, "It was compared on random feeds only: pass `measured` to `simplify`.")
    expect(
        cured.verified, "The comparison on these feeds found a difference: pass `strict=True`, and read what it says."
    )
    is_number = isinstance(error, int | float | np.number)
    expect(is_number, "The second part is a number, the largest difference from the network in float64.")
    # the spread and the largest difference are both a size of the error, and float64 can be that of either network
    is_size = 0.3 * differences.std() <= error <= 3 * largest
    expect(is_size, "The error is another: take the difference of the new model from the network in float64.")


def _expect_models(*answers: Any) -> None:
    for answer in answers:
        is_model = isinstance(answer, onnx.ModelProto | onnx_nb.Model | str | Path)
        expect(is_model, f"This is a {type(answer).__name__}; the first two parts are models.")


def _feed(model: Any, seed: int) -> dict[str, Any]:
    """Return a feed of a model: around 0, and the larger the seed, the wider."""
    draw = np.random.default_rng(seed)
    shapes = {value.name: [size if isinstance(size, int) else 8 for size in value.shape] for value in model.inputs}
    return {name: (2 + 4 * seed) * draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _result(model: Any, feed: Any) -> Any:
    (value,) = onnx_nb.run(model, feed).values()
    return value


def _is_close(one: Any, other: Any) -> bool:
    return one.shape == other.shape and np.allclose(one, other, atol=1e-5)


@check.exercise(
    4,
    "right, wrong, agreeing, differing",
    'right, wrong, {"a": np.abs(line), "b": np.abs(line)}, {"a": line, "b": line}',
    {
        'before, behind, {"a": line, "b": line}, {"a": line, "b": line}': "are models",
        'wrong, right, {"a": line, "b": line}, {"a": line, "b": line}': "the other way round",
        'wrong, wrong, {"a": line, "b": line}, {"a": line, "b": line}': "The first model",
        'right, right, {"a": line, "b": line}, {"a": line, "b": line}': "The second model",
        'small_model(before, ["b", "a"]), small_model([behind[1]], ["s"]), {}, {}': "inputs `a` and `b`",
        'right, wrong, {"a": line, "b": line}, {"a": line, "b": line}': "On the first feed",
        'right, wrong, {"a": np.abs(line), "b": 0 * line}, {"a": line, "b": 0 * line}': "On the second feed",
    },
)
def _moved(right: Any, wrong: Any, agreeing: Any, differing: Any) -> None:
    _expect_models(right, wrong)
    both = [onnx_nb.load(each) for each in (right, wrong)]
    is_named = all({value.name for value in model.inputs} == {"a", "b"} for model in both)
    expect(is_named, "Each of the models should have the two inputs `a` and `b`.")
    feed = _feed(both[0], 0)
    a, b = feed["a"], feed["b"]
    truths = np.maximum(a, 0) + b, np.maximum(a + b, 0)
    found = [_result(model, feed) for model in both]
    if all(map(_is_close, found[::-1], truths)):
        raise NotYet("These are the right models the other way round.")
    for place, formula, one, truth in zip(
        ("first", "second"), ("Relu(a) + b", "Relu(a + b)"), found, truths, strict=True
    ):
        expect(_is_close(one, truth), f"The {place} model does not compute {formula}.")
    agree, differ = (_is_close(*(_result(model, each) for model in both)) for each in (agreeing, differing))
    expect(
        agree, "On the first feed the models differ: for which a and b does the Relu change nothing in either place?"
    )
    expect(not differ, "On the second feed the models agree: which results can Relu(a) + b have, and Relu(a + b) not?")


@check.exercise(
    5,
    "right, wrong, revealing",
    'right, wrong, {"x": np.linspace(-4, 4, 81, dtype=np.float32)}',
    {
        "right, wrong, loud": "should be a feed",
        'double, wrong, {"x": line}': "are models",
        'wrong, right, {"x": line}': "the other way round",
        'right, right, {"x": line}': "has no upper limit",
        'small_model([helper.make_node("Add", ["x", "x"], ["y"])], ["x"]), wrong, {"x": line}': "between 0 and 6",
        'right, small_model([helper.make_node("Add", ["x", "x"], ["y"])], ["x"]), {"x": line}': "negative",
        'right, small_model([helper.make_node("Relu", ["x"], ["y"])], ["x"]), {"x": line}': "same values before",
        "right, wrong, onnx_nb.random_feeds(right, 0)": "return the same",
    },
)
def _clip(right: Any, wrong: Any, revealing: Any) -> None:
    _expect_models(right, wrong)
    both = [onnx_nb.load(each) for each in (right, wrong)]
    feeds = [_feed(both[0], seed) for seed in range(12)]
    clipped, limited = (np.concatenate([_result(model, feed).ravel() for feed in feeds]) for model in both)
    bounds = [(values.min() >= 0, values.max() <= 6) for values in (clipped, limited)]
    expect(bounds != [(True, False), (True, True)], "These are the right models the other way round.")
    expect(all(bounds[0]), "The first model should return values between 0 and 6, whatever it reads.")
    expect(bounds[1][0], "The second model returns negative values, and a Relu does not.")
    expect(not bounds[1][1], "The second model never exceeds 6, and a Relu has no upper limit.")
    expect(_is_close(np.minimum(limited, 6), clipped), "The Clip and the Relu do not read the same values before them.")
    is_feed = isinstance(revealing, dict | list | tuple | np.ndarray)
    expect(is_feed, f"The last part is a {type(revealing).__name__}; it should be a feed.")
    is_same = _is_close(*(_result(model, revealing) for model in both))
    expect(not is_same, "On this feed both return the same: what has to exceed 6?")
