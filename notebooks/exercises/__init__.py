"""Graders of the exercises: ``from exercises.lesson_00 import check``, then ``check(1, answer)`` in a cell.

A grader judges what an answer computes, not how it is written, and says what is not right yet. It reads what the cells
above have made from the notebook itself. Do not read the modules of this folder before you have solved the exercises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Final, NamedTuple

import onnx_nb

NONE: Final = "No answer yet: put yours in place of the dots."
"""What is said of an empty cell."""
PART: Final = "The first part is right."
"""How a sentence begins that asks for the rest of an answer."""


class NotYet(Exception):  # noqa: N818 (an answer is no error)
    """What is not right yet about an answer, in one sentence with a hint."""


class Exercise(NamedTuple):
    """How an answer is graded, and with what the tests try that."""

    grade: Callable[..., None]
    """Raises `NotYet` unless the answer is right."""
    names: str
    """Variables of the answer, as the empty cell of the notebook has them."""
    right: str
    """Expression of the right answer after the cell with the solution."""
    wrong: Mapping[str, str]
    """Expressions of wrong answers, each with words of its hint."""


class Lesson:
    """The exercises of one lesson."""

    def __init__(self) -> None:
        self.exercises: Final[dict[int, Exercise]] = {}

    def exercise(
        self, number: int, names: str, right: str, wrong: Mapping[str, str]
    ) -> Callable[[Callable[..., None]], None]:
        """Add an exercise, which the decorated function grades."""

        def add(grade: Callable[..., None]) -> None:
            self.exercises[number] = Exercise(grade, names, right, wrong)

        return add

    def __call__(self, number: int, *answer: Any) -> None:
        """Print whether an answer is right, and if it is not, what to do about it."""
        sentence = self.verdict(number, *answer)
        mark = "…" if sentence.startswith((NONE, PART)) else "✗" if sentence else "✓"
        print(f"{mark} {number}. {sentence or 'Right.'}")

    def verdict(self, number: int, *answer: Any) -> str:
        """Return what is not right yet; empty for a right answer."""
        if any(part is ... for part in answer):
            return NONE
        try:
            self.exercises[number].grade(*answer)
        except NotYet as sentence:
            return str(sentence)
        except Exception as error:  # noqa: BLE001 (an answer may be anything)
            return f"This answer cannot be judged, because {type(error).__name__}: {error}"
        return ""

    def cell(self, number: int) -> str:
        """Return the code of the empty cell for an answer."""
        names = self.exercises[number].names
        return "".join(f"{name} = ...\n" for name in names.split(", ")) + f"check({number}, {names})"

    def misjudged(self, number: int) -> list[str]:
        """Return what is wrong with the grader of an exercise whose solution the notebook has run: for the tests."""
        exercise, names = self.exercises[number], vars(sys.modules["__main__"])
        faults = [] if len(exercise.wrong) >= 3 else ["fewer than three wrong answers are tried"]
        for expression, words in {exercise.right: "", "...": NONE, **exercise.wrong}.items():
            answer = eval(expression, names)  # noqa: S307 (our own)
            sentence = self.verdict(number, *(answer if isinstance(answer, tuple) else (answer,)))
            if words not in sentence or bool(words) != bool(sentence):
                faults.append(f"{expression}: {sentence or 'right'}")
        return faults


def made(name: str) -> Any:
    """Return what a cell of the notebook has made.

    Raises
    ------
    NotYet
        If the cell did not run.
    """
    try:
        return vars(sys.modules["__main__"])[name]
    except KeyError:
        raise NotYet(f"The notebook has no {name!r}: run the cells above first.") from None


def opened(answer: Any, sentence: str) -> onnx_nb.Model:
    """Return the model of an answer, in whatever form it is given; raise `NotYet` with a sentence if it is none."""
    try:
        return onnx_nb.load(answer)
    except TypeError:
        raise NotYet(sentence) from None


def is_number(answer: Any) -> bool:
    """Return whether an answer is a real number, which a truth value is not."""
    return isinstance(answer, Real) and not isinstance(answer, bool)


def expect(condition: object, sentence: str) -> None:
    """Raise `NotYet` with a sentence unless a condition holds."""
    if not condition:
        raise NotYet(sentence)
