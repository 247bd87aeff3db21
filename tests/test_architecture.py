"""Every import runs one way, including those inside functions and those for annotations."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import onnx_nb.analysis

ROOT = Path(__file__).parents[1]
LAYERS = ("analysis", "drawing", "widgets", "notebook")
SHARED = ("arguments", "errors", "formatting", "progress", "results", "foreign_names")
FOLDERS = re.findall(r"^- `(\w+)`:", onnx_nb.analysis.__doc__ or "", re.MULTILINE)


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    paths = (path for path in (ROOT / "onnx_nb").rglob("*.py") if "node_modules" not in path.parts)
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that any import statement under ``tree`` names."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            yield from (name.name for name in each.names if name.name.split(".")[0] == "onnx_nb")
        elif isinstance(each, ast.ImportFrom):
            assert not each.level, "imports are absolute"
            for name in each.names:
                inner = f"{each.module}.{name.name}"
                if (found := inner if inner in known else str(each.module)).split(".")[0] == "onnx_nb":
                    yield found


def rank(module: str) -> tuple[int, int]:
    """Return the layer of a module and, in analysis, the place of its folder."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] not in LAYERS:
        return len(LAYERS), 0  # the public face
    if parts[1] != "analysis" or len(parts) == 2:
        return LAYERS.index(parts[1]), 0
    return 0, -1 if parts[2] in SHARED else FOLDERS.index(parts[2])


def test_no_import_runs_upward() -> None:
    known = modules()
    upward = [
        f"{name} imports {other}"
        for name, path in known.items()
        if name != "onnx_nb"
        for other in imported(ast.parse(path.read_text()), known)
        if rank(other) > rank(name)
    ]
    assert not upward


def test_no_import_cycles() -> None:
    """Imports that run when a module is loaded form no cycle."""
    known = modules()

    def loaded(path: Path) -> list[str]:
        body = ast.parse(path.read_text()).body
        run = [each for each in body if not (isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test))]
        top = [each for each in run if isinstance(each, ast.Import | ast.ImportFrom | ast.If)]
        return [name for each in top for name in imported(each, known)]

    order = graphlib.TopologicalSorter({name: loaded(path) for name, path in known.items()})
    assert len(list(order.static_order())) == len(known) > 80


def test_folders_of_analysis_are_listed() -> None:
    found = {name.split(".")[2] for name in modules() if name.startswith("onnx_nb.analysis.")}
    assert found == {*FOLDERS, *SHARED}


@pytest.mark.parametrize("function", ["isolated_errors", "unconfirmed", "errors_of", "points_of"])
def test_comparisons_have_one_engine(function: str) -> None:
    """Points are made, regions isolated and pairs confirmed in one place, whatever the sides are."""
    calls = [
        path.name
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function
    ]
    fronts = ["compare.py", "compare_torch.py", "compare_torch.py"]  # the last of a module, and of a part of it
    assert sorted(calls) == (fronts if function.endswith("_of") else ["engine.py"])


def test_constants_of_verdicts_stand_in_one_file() -> None:
    """Comparisons and alignments take their numbers from thresholds.py, which says the row that each decides."""
    tree = ast.parse((ROOT / "onnx_nb/analysis/compare/thresholds.py").read_text())
    texts = [
        node.value.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assert all(
        re.search(r"[Rr]ow|exports without|quantized models|paired points|As the one", str(text)) for text in texts[1:]
    )
    fractions = [
        f"{name}: {node.target.id}"
        for name, path in modules().items()
        if name.startswith(("onnx_nb.analysis.compare.", "onnx_nb.analysis.pytorch.")) and path.stem != "thresholds"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, float)
    ]
    assert fractions == ["onnx_nb.analysis.compare.metrics: RTOL", "onnx_nb.analysis.compare.metrics: ATOL"]


WRITES_IN_PLACE = {
    "analysis/model/save.py": "writes what `together` renames when it is complete",
    "analysis/model/external_data.py": "a file of its own temporary folder",
    "analysis/run/value_recorder.py": "the same",
    "analysis/submodel/reduction.py": "the same",
    "cli/changes.py": "the same",
    "cli/shell.py": "the job summary, which is added to, and the null device",
}
"""File → why it opens files to write without `save.together`."""


def test_files_are_written_in_one_way() -> None:
    """A file appears when it is complete: whatever else writes is named with its reason."""
    writers = set()
    for path in modules().values():
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute)):
                continue
            name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
            modes = [str(argument.value) for argument in call.args if isinstance(argument, ast.Constant)]
            opens = name == "open" and any(re.match("[rab]*[wxa+]", mode) for mode in modes)
            if opens or name in ("write_text", "write_bytes"):
                writers.add(str(path.relative_to(ROOT / "onnx_nb")))
    assert writers == set(WRITES_IN_PLACE)


FRONTEND = ROOT / "onnx_nb" / "frontend"
# each uses only what stands after it
SHELVES: tuple[str, ...] = ("labextension", "entry", "stub", "widgets", "panels", "charts")
SHELVES += ("ui", "render", "layout", "search", "scene", "protocol", "hosts")
IMPORT = re.compile(r'^(?:import|export)\s[^;"]*?"(\.[^"]+\.ts)"', re.MULTILINE)
UNRANKED = (".test.ts", "testing.ts", ".d.ts", ".config.ts")


def shelf_of(path: Path) -> str:
    """Return the folder of a source file of the front end, or its own name if it stands above the folders."""
    return path.relative_to(FRONTEND).with_suffix("").parts[0]


def test_no_import_of_the_front_end_runs_upward() -> None:
    """The folders of the front end have an order, which type imports keep as well."""
    sources = [path for path in FRONTEND.glob("**/*.ts") if "node_modules" not in path.parts]
    sources = [path for path in sources if not path.name.endswith(UNRANKED)]
    assert {shelf_of(path) for path in sources} == set(SHELVES)
    imports = [
        (path, (path.parent / name).resolve())
        for path in sources
        for name in IMPORT.findall(path.read_text(encoding="utf-8"))
    ]
    upward = [
        f"{path.relative_to(FRONTEND)} imports {source.relative_to(FRONTEND)}"
        for path, source in imports
        if SHELVES.index(shelf_of(source)) < SHELVES.index(shelf_of(path))
    ]
    assert not upward
    assert len(imports) > 200
