"""Graders of "Where a simplifier is wrong"."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


@check.exercise(
    1,
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
    2,
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
    3,
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
