"""Graders of "NaN, loops, datasets"."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Final

import numpy as np

import onnx_nb

from . import Lesson, expect, is_number, made

check: Final = Lesson()


def _breaks(factor: float) -> bool:
    """Return whether the naive softmax makes infinities of a scaled query."""
    inputs = made("inputs")
    feeds = inputs | {"query": inputs["query"] * np.float32(factor)}
    values = onnx_nb.run(made("naive"), feeds, outputs=["powers", "total"], optimize=False)
    return not all(np.isfinite(value).all() for value in values.values())


@check.exercise(
    1,
    "factor",
    "factor",
    {
        "factor / 2": "still finite",
        "factor * 2": "half of this factor",
        "0.01": "still finite",
        "1": "half of this factor",
        "True": "This has type bool",
        "-factor": "above zero",
    },
)
def _factor(answer: Any) -> None:
    expect(is_number(answer), f"This has type {type(answer).__name__}; the answer is a number, the factor of `query`.")
    expect(answer > 0, "The factor is above zero: begin at 0.01 and double it.")
    expect(_breaks(answer), f"With the factor {answer:g} everything is still finite: go on doubling.")
    expect(not _breaks(answer / 2), "With half of this factor there are infinities already: it begins earlier.")


@check.exercise(
    2,
    "settled",
    "settled",
    {
        "settled - 1": "still changes",
        "settled + 1": "final before that",
        "20": "final before that",
        "guesses[settled]": "the root",
        "guesses": "This has type list",
    },
)
def _settled(answer: Any) -> None:
    expect(is_number(answer), f"This has type {type(answer).__name__}; the answer is a number of iterations.")
    expect(not np.isclose(answer, 1000**0.5, atol=0.01), "This is the root itself. How many iterations does it take?")
    expect(isinstance(answer, Integral), "A number of iterations is a whole number.")
    guess, count = np.float32(1000), 0
    while (better := np.float32(0.5) * (guess + np.float32(1000) / guess)) != guess:
        guess, count = better, count + 1
    expect(answer >= count, f"After {answer} iterations the value still changes: the next one improves it.")
    expect(
        answer <= count,
        "The value is final before that: mind that iteration 0 has already returned one.",
    )
