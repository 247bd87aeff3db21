"""Graders of "Small and handed over"."""

from __future__ import annotations

from typing import Any, Final

from . import Lesson, expect

check: Final = Lesson()


def _picked(key: str, condition: str = 'row["SQNR in dB"] >= least', name: str = '["model"]') -> str:
    """Return the expression of a function that picks a row."""
    return (
        f"lambda rows, least: (lambda good: min(good, key=lambda row: {key}){name} if good else None)"
        f"([row for row in rows if {condition}])"
    )


_LEAST: Final = _picked('row["kB"]')


@check.exercise(
    1,
    "smallest",
    "smallest",
    {
        '"simplified"': "should be a function",
        _picked('row["kB"]', name=""): "the name of a model",
        _picked('row["kB"]', "True"): "has too few decibels",
        _picked('row["kB"]', 'row["SQNR in dB"] > least'): "just so many decibels",
        _picked('-row["SQNR in dB"]'): "a smaller model",
        _picked('row["nodes"]'): "a smaller model",
        f'lambda rows, least: ({_LEAST})(rows, least) or rows[0]["model"]': "should return None",
    },
)
def _smallest(smallest: Any) -> None:
    expect(callable(smallest), f"This is a {type(smallest).__name__}; it should be a function.")
    table = (("a", 900, 10, 20), ("b", 500, 30, 140), ("c", 400, 40, 100), ("d", 200, 50, 40), ("e", 250, 20, 45))
    rows = [dict(zip(("model", "kB", "nodes", "SQNR in dB"), row, strict=True)) for row in table]
    levels = {name: level for name, _, _, level in table}
    for least, right in ((90, "c"), (30, "d"), (100, "c"), (44, "e")):
        name = smallest([dict(row) for row in rows], least)
        expect(isinstance(name, str), f"It returns a {type(name).__name__}; it should return the name of a model.")
        expect(name in levels, "It returns the name of no model of the table.")
        expect(levels[name] >= least, "For some limit it returns a model that has too few decibels.")
        few = "It overlooks a model that has just so many decibels as the limit."
        expect(least != levels[right] or name == right, few)
        expect(name == right, "For some limit there is a smaller model with enough decibels.")
    expect(smallest(rows, 200) is None, "Where no model has so many decibels, it should return None.")
