"""Graders of "PyTorch against ONNX"."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch

import onnx_nb

from . import Lesson, expect, made

check: Final = Lesson()


def _scores_of(answer: Any) -> Any:
    """Return the scores of an exported model for the waves of the notebook."""
    is_model = isinstance(answer, onnx.ModelProto | onnx_nb.Model | str | Path)
    expect(is_model, f"The first part is a {type(answer).__name__}; it should be the spoiled export, a model.")
    (scores,) = onnx_nb.run(answer, [made("sound").numpy()]).values()
    return scores


def _truth(network: Any) -> Any:
    with torch.no_grad():
        return network(made("sound")).numpy()


def _is_close(scores: Any, truth: Any) -> bool:
    return bool(np.allclose(scores, truth, atol=1e-4))


def _first_name(answer: Any) -> str:
    """Return the name of the first difference, which may be given as a comparison, a point or a name."""
    if isinstance(answer, onnx_nb.types.Comparison):
        answer = answer.first_divergent()
        expect(answer is not None, "Nothing stands out in this comparison: pass your model to it, by `model=`.")
    return _point_name(answer)


def _point_name(answer: Any) -> str:
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
    scores, expected, network = _scores_of(proto), _truth(made("net")), copy.deepcopy(made("net"))
    expect(not _is_close(scores, expected), "The model still computes what the network does: is the new weight in it?")
    weight = network.blocks[2].attention.key.weight
    with torch.no_grad():
        weight.copy_(weight.T.clone())
    truth = _truth(network)
    right = (
        "The model computes something else than with this weight transposed: transpose it once, and no other weight."
    )
    expect(_is_close(scores, truth), right)
    place = "This is not where the fault is: take the first of those that stand out."
    expect(_first_name(turned) == "blocks.2.attention.key", place)
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
    3,
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
    scores = _scores_of(proto)
    expect(not _is_close(scores, _truth(_spoiled([1]))), "The model lacks fault 3, the approximation of a `Gelu`.")
    expect(not _is_close(scores, _truth(_spoiled([3]))), "The model lacks fault 1, the axis of a `Softmax`.")
    is_both = _is_close(scores, _truth(_spoiled([1, 3])))
    expect(is_both, "The model does not compute what the network does with both faults: change nothing else.")
    c, net, sound, suspects = map(made, ("c", "net", "sound", "suspects"))
    names = []
    for fault in 3, 1:
        alone = onnx_nb.compare_torch(net, sound, model=suspects[fault], alignment=c.alignment)
        names.append(_first_name(alone))
    expect(
        _first_name(both) == names[0], "Of two faults, `first_divergent` names the one that is earlier in the network."
    )
    is_list = isinstance(found, list | tuple | set) and len(found) == 2
    expect(is_list, "The last part should be two points or their names: those at the head of the ranking.")
    ranked = "These are not the two faults: rank by the isolated errors, which do not propagate."
    expect({_point_name(point) for point in found} == set(names), ranked)


@check.exercise(
    4,
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


_GIVEN: Final = {"debug", "extract_debug_model", "run_debug_model", "print_debug_result", "comparison"}


def _new_method(kind: type) -> str:
    """Return the name of the one method that the notebook's debugger does not have."""
    found = []
    for name, method in inspect.getmembers(kind, callable):
        if not name.startswith("_") and name not in _GIVEN:
            others = list(inspect.signature(method).parameters.values())[1:]
            found += [name] if all(each.default is not inspect.Parameter.empty for each in others) else []
    expect(found, "The class has no new method that takes nothing but `self`.")
    expect(len(found) == 1, f"Which of {', '.join(found)} is it? Begin the names of the others with an underscore.")
    return found[0]


def _finding(condition: str, name: str = "n", nothing: str = "None") -> str:
    """Return the expression of a debugger that finds the first name for which a condition holds."""
    values = "(x := self.torch_value[n].astype(float), d := self.onnx_value[n] - x)"
    body = f"next(({name} for n in self.output_debug_name if {values} and {condition}), {nothing})"
    return f'type("Finder", (Debugger,), {{"first_wrong": lambda self: {body}}})'


_IS_WRONG: Final = "np.linalg.norm(d) > 1e-5 * np.linalg.norm(x)"


@check.exercise(
    5,
    "Finder, wrong",
    "Finder, debugger.first_wrong()",
    {
        'debugger.first_wrong(), "block 1"': "should be a class",
        'Debugger, "block 1"': "no new method",
        f'{_finding(_IS_WRONG, "self.output_debug_name[-1]")}, "block 1"': "the first of these",
        f'{_finding(_IS_WRONG, nothing="True")}, "block 1"': "nothing is wrong",
        f'{_finding("np.mean(d**2) > 1e-5")}, "block 1"': "values are small",
        f'{_finding("abs(d).max() > 1e-7")}, "block 1"': "values are large",
        f'{_finding("(abs(d) > 1e-5 * abs(x)).any()")}, "block 1"': "all differences",
        f'{_finding(_IS_WRONG.replace("1e-5", "1e-3"))}, "block 1"': "1e-5 of the norm",
        "Finder, None": "run `forward` in PyTorch",
        'Finder, "block 2"': "not the first name",
    },
)
def _finder(kind: Any, wrong: Any) -> None:
    kind = type(kind) if hasattr(kind, "torch_value") else kind
    is_class = isinstance(kind, type)
    expect(is_class, f"The first part is a {type(kind).__name__}; it should be a class, a debugger with a new method.")
    method, ramp = _new_method(kind), np.linspace(1, 2, 100, dtype=np.float32)
    debugger = kind()

    def found(*errors: tuple[Any, Any]) -> Any:
        """Return what the method finds where a, b and c have values and an error each."""
        names = ["a", "b", "c"][: len(errors)]
        debugger.output_debug_name = names
        debugger.torch_value = {name: values for name, (values, _) in zip(names, errors, strict=True)}
        debugger.onnx_value = {name: sum(each).astype(np.float32) for name, each in zip(names, errors, strict=True)}
        return getattr(debugger, method)()

    exact, spike = (ramp, 0), np.where(ramp == 2, 5e-5, 0)
    expect(
        found(exact, (ramp, 0.1), (ramp, 1)) == "b", "If two of three are wrong, it should return the first of these."
    )
    expect(not found(exact, exact), "If nothing is wrong, it should return None.")
    expect(
        found((1e-4 * ramp, 1e-6), exact) == "a", "It overlooks a difference of 1e-6 where the values are small, 1e-4."
    )
    expect(not found((1e4 * ramp, 1e-2)), "It reports a difference of 0.01 where the values are large, 10,000.")
    expect(not found((ramp, spike)), "It reports one value of a hundred: divide the norm of all differences.")
    is_limit = found((ramp, 2e-5 * ramp)) == "a" and not found((ramp, 5e-6 * ramp))
    expect(is_limit, "The limit is another: a difference is an error beyond 1e-5 of the norm.")
    expect(
        wrong is not None, "A value in `spoiled.onnx` is wrong: run `forward` in PyTorch with the new debugger first."
    )
    start = made("places").first_divergent().name
    expect(wrong == start, f"{wrong!r} is not the first name whose values are wrong in `spoiled.onnx`.")
