"""Graders of "Intermediate values"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx

import onnx_nb

from . import Lesson, NotYet, expect, is_number, made

check: Final = Lesson()


def _layers(model: Any) -> tuple[list[Any], list[Any]]:
    """Return the results of each MatMul and each Relu of the deep network, computed with numpy."""
    sums, results = [], [made("x")]
    for layer in range(made("DEPTH")):
        sums.append(results[-1] @ model.tensor(f"layers.{layer}.weight") + model.tensor(f"layers.{layer}.bias"))
        results.append(np.maximum(sums[-1], 0))
    return sums, results[1:]


@check.exercise(
    1,
    "shares",
    "shares",
    {
        '[cap.statistics(name).zeros for name in cap if "Relu" in name]': "between 0 and 1",
        "[1 - share for share in shares]": "not zero",
        '[cap.statistics(name).zeros / 16384 for name in cap if "MatMul" in name]': "what `Relu` has",
        '[cap.statistics(name).zeros / 16384 for name in cap if "layers" in name]': "for each `Relu`",
        "sum(shares) / len(shares)": "This has type float",
    },
)
def _zeros(answer: Any) -> None:
    values = list(answer.values()) if isinstance(answer, Mapping) else answer
    expect(
        isinstance(values, list | tuple | np.ndarray) and all(is_number(value) for value in values),
        f"This has type {type(answer).__name__}; the answer is a list with a fraction for each `Relu`.",
    )
    _, results = _layers(made("model"))
    right = np.array([1 - np.count_nonzero(result) / result.size for result in results])
    # the result of the last Relu is `y`, an output of the model: its name says nothing of Relu
    expect(
        len(values) in (len(right), len(right) - 1),
        f"The list has {len(values)} numbers. Give one for each `Relu`, from the first layer to the last.",
    )
    given, right = np.asarray(values, float), right[: len(values)]
    expect(((given >= 0) & (given <= 1)).all(), "A fraction is between 0 and 1: divide by the number of all values.")
    if np.allclose(given, 1 - right, atol=2e-3) and not np.allclose(given, right, atol=2e-3):
        raise NotYet("These are the fractions of the values that are not zero.")
    expect(given.any(), "Hardly anything is zero before `Relu`: look at what `Relu` has made.")
    expect(
        np.allclose(given, right, atol=2e-3), "Not all of these fractions are right: count the zeros after each `Relu`."
    )


_EYES = 'model_of("eyes", eyes.proto.graph.node, {"image": [1, 1, 128, 128]}, {"scores": [1, 3]}, weights | %s)'


@check.exercise(
    2,
    "repaired",
    "repaired",
    {
        "eyes": "still dead",
        _EYES % '{"filters.bias": eyes.tensor("filters.bias") + 20}': "also changes",
        _EYES
        % '{"filters.weight": filters * np.where(np.arange(8) == culprit, 100, 1)[:, None, None, None].astype("f4")}': (
            "filter itself"
        ),
        _EYES % '{"mix.weight": 2 * weights["mix.weight"], "filters.bias": bias}': "mix.weight",
        "bias": "This has type ndarray",
    },
)
def _repaired(answer: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; the answer is the repaired model."
    expect(isinstance(answer, onnx_nb.Model | onnx.ModelProto), sentence)
    repaired, eyes, name = onnx_nb.load(answer), made("eyes"), "/filters/Relu_output_0"
    after, before = (onnx_nb.run(each, made("feeds"), outputs=[name])[name][0] for each in (repaired, eyes))
    dead = [number for number, channel in enumerate(after) if not channel.any()]
    expect(not dead, f"Channel {', '.join(map(str, dead))} is still dead: all its values are zero.")
    changed = [
        number
        for number in range(len(before))
        if before[number].any() and not np.allclose(after[number], before[number])
    ]
    expect(not changed, "No channel is dead now, but the repair also changes channels that were alive.")
    expect(
        np.array_equal(repaired.tensor("filters.weight"), eyes.tensor("filters.weight")),
        "The channel is alive, but the filter itself was fine: find the number that holds its sum below zero.",
    )
    for other in ("mix.weight", "head.weight"):
        same = np.array_equal(repaired.tensor(other), eyes.tensor(other))
        expect(same, f"The channels are right, but {other} has changed: it has nothing to do with the dead channel.")


@check.exercise(
    3,
    "scale",
    "scale",
    {
        "0.05": "fade",
        "0.1": "grow",
        "ratio": "fade",
        "network(scale)": "This has type Model",
        "-scale": "above zero",
    },
)
def _scale(answer: Any) -> None:
    expect(is_number(answer), f"This has type {type(answer).__name__}; the answer is a number, the scale.")
    expect(answer > 0, "A scale is above zero.")
    sums, _ = _layers(made("network")(answer))
    ratio = sums[-1].std(dtype=float) / sums[0].std(dtype=float)
    expect(ratio > 0.9, f"The values fade: layer 19 has {ratio:.2g} times the spread of layer 0.")
    expect(ratio < 1.1, f"The values grow: layer 19 has {ratio:.2g} times the spread of layer 0.")
