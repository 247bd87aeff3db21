"""Graders of "PyTorch against ONNX"."""

from __future__ import annotations

import inspect
from typing import Any, Final

import numpy as np

from . import Lesson, expect, made

check: Final = Lesson()


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
    1,
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
