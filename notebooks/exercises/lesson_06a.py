"""Graders of "Which part is wrong?"."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch

import onnx_nb

from . import Lesson, expect, made

check: Final = Lesson()


def scores_of(answer: Any) -> Any:
    """Return the scores of an exported model for the waves of the notebook."""
    is_model = isinstance(answer, onnx.ModelProto | onnx_nb.Model | str | Path)
    expect(is_model, f"The first part is a {type(answer).__name__}; it should be the spoiled export, a model.")
    (scores,) = onnx_nb.run(answer, [made("sound").numpy()]).values()
    return scores


def truth_of(network: Any) -> Any:
    """Return the scores of a network for the waves of the notebook."""
    with torch.no_grad():
        return network(made("sound")).numpy()


def is_close(scores: Any, truth: Any) -> bool:
    """Return whether two sides have the same scores, but for rounding."""
    return bool(np.allclose(scores, truth, atol=1e-4))


def first_name(answer: Any) -> str:
    """Return the name of the first difference, which may be given as a comparison, a point or a name."""
    if isinstance(answer, onnx_nb.types.Comparison):
        answer = answer.first_divergent()
        expect(answer is not None, "Nothing stands out in this comparison: pass your model to it, by `model=`.")
    return point_name(answer)


def point_name(answer: Any) -> str:
    """Return the name of a point, which may be given itself."""
    name = answer.name if isinstance(answer, onnx_nb.types.Point) else answer
    expect(isinstance(name, str), f"A {type(answer).__name__} stands where a point or its name is expected.")
    return str(name)


@check.exercise(
    1,
    "proto, turned, same",
    'proto, turned, turned["head"].cumulative.argmax_agreement',
    {
        "c.model.to_proto(), turned, 1.0": "still computes what the network does",
        "suspects[1], turned, 1.0": "no other weight",
        "proto, c, 1.0": "by `model=`",
        'proto, turned.ranked("cumulative")[-1], 0.5': "first of those that stand out",
        'proto, turned, 1 - turned["head"].cumulative.argmax_agreement': "largest score",
        "array, turned, 1.0": "should be the spoiled export",
    },
)
def _transposition(proto: Any, turned: Any, same: Any) -> None:
    scores, expected, network = scores_of(proto), truth_of(made("net")), copy.deepcopy(made("net"))
    expect(not is_close(scores, expected), "The model still computes what the network does: is the new weight in it?")
    weight = network.blocks[2].attention.key.weight
    with torch.no_grad():
        weight.copy_(weight.T.clone())
    truth = truth_of(network)
    right = (
        "The model computes something else than with this weight transposed: transpose it once, and no other weight."
    )
    expect(is_close(scores, truth), right)
    place = "This is not where the fault is: take the first of those that stand out."
    expect(first_name(turned) == "blocks.2.attention.key", place)
    is_number = isinstance(same, int | float | np.number) and not isinstance(same, bool)
    expect(is_number, "The last part is a number, the share of the waves that keep their class.")
    share = (truth.argmax(axis=1) == expected.argmax(axis=1)).mean()
    count = "The share of equal classes is another: count the waves whose largest score is at the same place in both."
    expect(min(abs(same - share), abs(same / 100 - share)) < 0.01, count)


@check.exercise(
    2,
    "largest",
    "largest",
    {
        "inner": "the name of an operation",
        'c.ranked("rel_l2")[0]': "no operation inside",
        'inner.ranked("rel_l2")[-1].name': "makes no error of its own",
        "min((p for p in inner.points if p.isolated.rel_l2), key=lambda p: p.isolated.rel_l2)": "less exact",
    },
)
def _operation(answer: Any) -> None:
    name = answer.name if isinstance(answer, onnx_nb.types.Point) else answer
    expect(
        isinstance(name, str), f"This is a {type(answer).__name__}; the answer is a point or the name of an operation."
    )
    inner = made("c").drill("blocks.0")
    expect(name in inner, f"{name!r} is no operation inside `blocks.0`: `drill` compares these.")
    error, largest = (errors.isolated.rel_l2 for errors in (inner[name], inner.ranked("rel_l2")[0]))
    expect(error > 0, "This operation makes no error of its own: look at the other end of the ranking.")
    expect(error >= largest, "Another operation is less exact: rank them by the relative L2 error.")
