"""Conditions on errors, against the metrics computed in numpy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_nb
from onnx_nb.analysis.compare.metrics import Condition

RNG = np.random.default_rng(5)
VALUES = RNG.standard_normal(400)
NOISE = {"clean": 1e-6, "noisy": 1e-3, "bad": 0.1}


@pytest.fixture
def comparison() -> onnx_nb.types.Comparison:
    points = []
    for depth, (name, noise) in enumerate(NOISE.items()):
        errors = onnx_nb.types.ErrorStats.of(VALUES, VALUES + noise * np.sign(VALUES))
        points.append(onnx_nb.types.Point(name, name, name, "name", depth, cumulative=errors, output=name == "bad"))
    broken = VALUES.copy()
    broken[7] = math.nan
    errors = onnx_nb.types.ErrorStats.of(VALUES, broken)
    points.append(onnx_nb.types.Point("broken", "broken", "broken", "name", 3, cumulative=errors))
    return onnx_nb.types.Comparison("a", "b", tuple(points))


def decibels(noise: float) -> float:
    return float(20 * np.log10(np.linalg.norm(VALUES) / np.linalg.norm(np.full(400, noise))))


@pytest.mark.parametrize("bound", [10.0, 30.0, 70.0, 130.0])
def test_points_below_a_bound_are_those_of_the_formula(comparison: onnx_nb.types.Comparison, bound: float) -> None:
    expected = [name for name, noise in NOISE.items() if decibels(noise) < bound]
    found = comparison.failed(sqnr=f"< {bound} dB")
    assert [point.name for point in found] == [*expected, "broken"]
    assert comparison.failed(f"sqnr<{bound}") == found
    assert [point.name for point in comparison.failed(f"sqnr >= {bound}")] == [n for n in NOISE if n not in expected]


def test_bounds_can_change_on_a_saved_comparison(comparison: onnx_nb.types.Comparison, tmp_path: Path) -> None:
    comparison.save(tmp_path / "saved")
    saved = onnx_nb.types.Comparison.load(tmp_path / "saved")
    several: list[dict[str, Any]] = [{"sqnr": "< 20 dB"}, {"sqnr": "< 80 dB", "cosine": "< 0.99"}, {"cosine": "< 0.5"}]
    for bounds in several:
        names = [point.name for point in comparison.failed(**bounds)]
        assert [point.name for point in saved.failed(**bounds)] == names
    assert [point.name for point in saved.failed(sqnr="< 10 dB")] == ["broken"]


def test_conditions_are_joined_by_or_and_can_look_at_outputs_only(comparison: onnx_nb.types.Comparison) -> None:
    assert [p.name for p in comparison.failed(max_abs="> 0.05", mismatches="> 0")] == ["bad", "broken"]
    assert [p.name for p in comparison.failed("max_abs > 5e-4", outputs=True)] == ["bad"]
    fractions = {n: float(np.mean(noise > 1e-5 + 1e-3 * np.abs(VALUES))) for n, noise in NOISE.items()}
    expected = [n for n, fraction in {**fractions, "broken": 1 / 400}.items() if fraction > 0.8]
    assert 0 < len(expected) < 3
    assert [p.name for p in comparison.failed("outside > 80 %", which="cumulative")] == expected
    assert comparison.failed("max_abs > 0", which="isolated") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sqrn < 3", r"metric called 'sqrn'. Closest names: 'sqnr'"),
        ("sqnr 3", "is no condition. Write a metric, a sign and a number"),
        ("< 3", "is no condition"),
        ("sqnr < twenty", "is no condition"),
        ("sqnr < nan", "is no condition"),
        ("max_abs > 3 dB", r'max_abs is not in dB. Write "max_abs > 3"'),
        ("sqnr < 3 %", "sqnr is not in %"),
        ("", "is no condition"),
    ],
)
def test_a_text_that_is_no_condition_is_refused(comparison: onnx_nb.types.Comparison, text: str, words: str) -> None:
    with pytest.raises(onnx_nb.OnnxNbError, match=words):
        comparison.failed(text)


def test_conditions_are_needed_and_named_once(comparison: onnx_nb.types.Comparison) -> None:
    with pytest.raises(onnx_nb.OnnxNbError, match="needs a condition"):
        comparison.failed()
    with pytest.raises(onnx_nb.OnnxNbError, match="is no condition"):
        comparison.failed(sqnr="cosine < 1")
    assert str(Condition.read("sqnr <20db")) == "sqnr < 20 dB"
