"""Imports run downward: no circles, and each folder of the analysis module takes only from those below it."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import onnx_nb.analysis

ROOT = Path(__file__).parents[1]
LAYERS = ("notebook", "widgets", "drawing", "analysis")
GROUND = ("errors", "progress", "formatting", "dataframes")
FOLDERS = re.findall(r"^- `(\w+)`:", onnx_nb.analysis.__doc__ or "", re.MULTILINE)


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    paths = (path for path in (ROOT / "onnx_nb").rglob("*.py") if "node_modules" not in path.parts)
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file takes from when it is imported: not for types alone, not in a function."""

    def statements(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
        for each in body:
            if isinstance(each, ast.Import | ast.ImportFrom):
                yield each
            elif isinstance(each, ast.If) and "TYPE_CHECKING" not in ast.unparse(each.test):
                yield from statements([*each.body, *each.orelse])

    for each in statements(ast.parse(path.read_text()).body):
        if isinstance(each, ast.Import):
            yield from (name.name for name in each.names if name.name in known)
        else:
            assert not each.level, f"{path}: whole names are written here"
            for name in each.names:
                inner = f"{each.module}.{name.name}"
                if (found := inner if inner in known else each.module) in known:
                    yield str(found)


def test_nothing_imports_itself_around_a_corner() -> None:
    known = modules()
    order = graphlib.TopologicalSorter({name: list(imported(path, known)) for name, path in known.items()})
    assert len(list(order.static_order())) == len(known) > 80


def test_layers_import_downward() -> None:
    known = modules()
    for name, path in known.items():
        if (layer := name.split(".")[1:2]) and layer[0] in LAYERS:
            for other in imported(path, known):
                if (below := other.split(".")[1:2]) and below[0] in LAYERS:
                    assert LAYERS.index(below[0]) >= LAYERS.index(layer[0]), f"{name} imports {other}"


def test_folders_of_analysis_take_from_those_listed_before_them() -> None:
    known = {name: path for name, path in modules().items() if name.startswith("onnx_nb.analysis.")}
    assert {name.split(".")[2] for name in known} == {*FOLDERS, *GROUND}
    for name, path in known.items():
        home = name.split(".")[2]
        for other in imported(path, known):
            there = other.split(".")[2]
            assert there in GROUND or (home not in GROUND and FOLDERS.index(there) <= FOLDERS.index(home)), (
                f"{name} imports {other}"
            )
