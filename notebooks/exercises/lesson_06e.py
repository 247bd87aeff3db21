"""Graders of "Fault or rounding?"."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

import torch

import onnx_nb

from . import Lesson, expect, made
from .lesson_06a import first_name, is_close, point_name, scores_of, truth_of

check: Final = Lesson()


def _spoiled(faults: Iterable[int]) -> Any:
    """Return the network with faults of the lesson."""
    network = copy.deepcopy(made("net"))
    for fault in faults:
        if fault == 1:
            attention = network.blocks[1].attention
            attention.forward = lambda x, attention=attention: _mixed_along_queries(attention, x)
        else:
            network.blocks[0].mlp[1] = torch.nn.GELU(approximate="tanh")
    return network


def _mixed_along_queries(attention: Any, x: Any) -> Any:
    query, key, value = (attention.split(part(x)) for part in (attention.query, attention.key, attention.value))
    weights = (query @ key.transpose(2, 3) / query.shape[3] ** 0.5).softmax(dim=2)
    return attention.out((weights @ value).transpose(1, 2).flatten(2))


@check.exercise(
    1,
    "proto, both, found",
    "proto, both, found",
    {
        "suspects[1], both, found": "lacks fault 3",
        "suspects[3], both, found": "lacks fault 1",
        "suspects[2], both, found": "does not compute",
        "proto, first, found": "earlier",
        'proto, both, both.ranked("cumulative")[:2]': "isolated errors",
        "proto, both, found[:1]": "two points",
    },
)
def _two_faults(proto: Any, both: Any, found: Any) -> None:
    scores = scores_of(proto)
    expect(not is_close(scores, truth_of(_spoiled([1]))), "The model lacks fault 3, the approximation of a `Gelu`.")
    expect(not is_close(scores, truth_of(_spoiled([3]))), "The model lacks fault 1, the axis of a `Softmax`.")
    is_both = is_close(scores, truth_of(_spoiled([1, 3])))
    expect(is_both, "The model does not compute what the network does with both faults: change nothing else.")
    c, net, sound, suspects = map(made, ("c", "net", "sound", "suspects"))
    names = []
    for fault in 3, 1:
        alone = onnx_nb.compare_torch(net, sound, model=suspects[fault], alignment=c.alignment)
        names.append(first_name(alone))
    expect(
        first_name(both) == names[0], "Of two faults, `first_divergent` names the one that is earlier in the network."
    )
    is_list = isinstance(found, list | tuple | set) and len(found) == 2
    expect(is_list, "The last part should be two points or their names: those at the head of the ranking.")
    ranked = "These are not the two faults: rank by the isolated errors, which do not propagate."
    expect({point_name(point) for point in found} == set(names), ranked)


@check.exercise(
    2,
    "optimized, left",
    "optimized, len(optimized)",
    {
        "onnx_nb.compare_torch(net, sound, model=c.model, alignment=c.alignment), len(c)": "nothing was fused",
        "optimized, len(c)": "before the optimization",
        "optimized, len(optimized.unmatched)": "have no counterpart",
        "optimized, len(optimized) - 1": "Count the points",
        "optimized.model, 1": "`compare_torch` returns a comparison",
    },
)
def _rest(optimized: Any, left: Any) -> None:
    kind, c = type(optimized).__name__, made("c")
    expect(hasattr(optimized, "recording"), f"The first part is a {kind}; `compare_torch` returns a comparison.")
    beyond = (
        "Every point is left, so nothing was fused: compare the file that onnxruntime wrote beyond its basic level."
    )
    expect(len(optimized) < len(c), beyond)
    is_right = optimized["head"].cumulative.rel_l2 < 1e-5
    expect(is_right, "The scores differ from those of PyTorch: optimize the export that is right, `c.model`.")
    count = len(left) if isinstance(left, list | tuple | set) else left
    expect(count != len(c), "That many points there were before the optimization.")
    expect(count != len(optimized.unmatched), "That many values have no counterpart: the question is what is left.")
    expect(count == len(optimized), "Count the points that this comparison has.")
