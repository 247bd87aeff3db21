"""The house keeps within its budget, which only falls."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

import onnx_nb
from tests.measure_house import House, is_noun, measure, python_names, typescript_names

ROOT = Path(__file__).parents[1]
BUDGET: dict[str, Any] = tomllib.loads((ROOT / "tests/house_budget.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def house() -> House:
    return measure(ROOT)


def test_each_folder_keeps_within_its_lines(house: House) -> None:
    lines = BUDGET["lines"]
    assert lines.keys() == house.lines.keys(), "a new folder gets its lines from those of others"
    above = {
        folder: f"{count:,} of {lines[folder]:,}" for folder, count in house.lines.items() if count > lines[folder]
    }
    assert not above, "delete as many lines, or move the budget from another folder and say why in the commit"


def test_budgets_and_reserves_stay_below_the_totals() -> None:
    total = BUDGET["total"]
    python = sum(lines for folder, lines in BUDGET["lines"].items() if not folder.startswith("frontend"))
    typescript = sum(lines for folder, lines in BUDGET["lines"].items() if folder.startswith("frontend"))
    assert python + sum(issue["python"] for issue in BUDGET["reserve"].values()) <= total["python"]
    assert typescript + sum(issue["typescript"] for issue in BUDGET["reserve"].values()) <= total["typescript"]


def test_code_names_and_prose_keep_within_their_budget(house: House) -> None:
    total = BUDGET["total"]
    assert house.code <= total["code"]
    assert len(onnx_nb.__all__) <= total["public_names"]
    assert sum(path.stat().st_size for path in ROOT.glob("*.md")) <= total["markdown_bytes"]
    assert [rule for rule, places in house.broken.items() if len(places) > BUDGET["broken"].get(rule, 0)] == []


@pytest.mark.parametrize("language", ["Python", "TypeScript"])
def test_names_are_nouns(house: House, language: str) -> None:
    names = house.names[language]
    worst = [f"{name} ×{count}" for name, count in names.most_common() if not is_noun(name)][:20]
    assert house.no_nouns(language) <= BUDGET["total"]["no_nouns"][language], worst


def test_bound_names_are_counted_in_both_languages() -> None:
    python = "def f(a, *b, c=1):\n    for d, e in a: g = h.i = d\n    with a as j: pass\n"
    assert sorted(python_names(ast.parse(python))) == ["a", "b", "c", "d", "e", "g", "j"]
    typescript = """
export function f(a: number, b?: string): void {
  const { c, d = 1 } = a;
  const [e] = c;
  for (const [g, h] of b) use((i) => i, (j, k) => j + k);
}
interface L {
  readonly m: number;
}
"""
    assert sorted(typescript_names(typescript)) == ["L", *"abcdefghijkm"]
