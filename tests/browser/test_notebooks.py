"""The notebooks in JupyterLab: each runs from top to bottom, once, shows what it was saved with, and answers clicks.

`ONNX_NB_DOCS=1` copies the saved notebooks back into notebooks/, so that GitHub shows their results too, and notes in
notebooks/coverage.md what their kernels took. A lesson whose code, outputs and modules are those of its last run is
left to `make course`; the index and the first lesson always run.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from playwright.sync_api import expect

from notebooks.navigation import Stop, course
from tests.browser import (
    clicks_01,
    clicks_02,
    clicks_03,
    clicks_03a,
    clicks_04,
    clicks_05,
    clicks_06,
    clicks_06d,
    clicks_07b,
    clicks_08b,
    clicks_09,
    clicks_10,
    clicks_11,
    clicks_12,
    clicks_index,
    test_notebook_00,
)
from tests.browser.jupyter import await_value
from tests.saved_outputs import differences, fingerprint, with_solutions, without_solutions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.jupyter import JupyterPage

FOLDER = Path(__file__).parents[2] / "notebooks"
COSTS = FOLDER / "coverage.md"
WIDGET = "application/vnd.jupyter.widget-view+json"
MOST_MEMORY = 1_800_000  # kB: Binder has 2 GB, of which JupyterLab takes 100 MB; solutions and graders count here too

RUN = "onnx_nb_run"
"""Where the metadata of a lesson say what it was made of when it last ran."""
ALWAYS = ("", "00")

# for each cell of the page, how many widgets and how many of our pictures it has put out
SHOWN = f"""() => jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(cell => {{
    const outputs = cell.cell_type === 'code' ? cell.getOutputs().map(({{data}}) => data ?? {{}}) : [];
    const isPicture = data => [data['text/html'] ?? ''].flat().join('').includes('onnx-nb-picture');
    return [outputs.filter(data => data['{WIDGET}']).length, outputs.filter(isPicture).length];
}})"""

CLICKS: dict[str, Callable[[JupyterPage], None]] = {
    "": clicks_index.click,
    "00": test_notebook_00.click,
    "01": clicks_01.click,
    "01a": clicks_01.click_a,
    "01b": clicks_01.click_b,
    "02": clicks_02.click,
    "02a": clicks_02.click_a,
    "02b": clicks_02.click_b,
    "03": clicks_03.click,
    "03a": clicks_03a.click,
    "03b": clicks_03a.click_b,
    "03d": clicks_03.click_d,
    "04": clicks_04.click,
    "04b": clicks_04.click_b,
    "05": clicks_05.click,
    "05b": clicks_05.click_b,
    "06a": clicks_06.click,
    "06b": clicks_06.click_b,
    "06d": clicks_06d.click,
    "06f": clicks_06.click_f,
    "07b": clicks_07b.click,
    "08b": clicks_08b.click,
    "09": clicks_09.click,
    "09a": clicks_09.click_a,
    "10": clicks_10.click,
    "10b": clicks_10.click_b,
    "11b": clicks_11.click_b,
    "11c": clicks_11.click_c,
    "12": clicks_12.click,
    "12b": clicks_12.click_b,
}
"""What the readers of notebooks are told to click, by number; some tell them nothing."""


def lesson(stop: Stop) -> Any:
    """Return the argument of the test for a lesson."""
    saved = nbformat.read(stop.path, as_version=4)
    is_known = saved.metadata.get(RUN) == fingerprint(saved, FOLDER) and stop.number not in ALWAYS
    return pytest.param(stop, id=stop.path.stem, marks=[pytest.mark.rare] if is_known else [])


@pytest.mark.parametrize("stop", [lesson(stop) for stop in course()])
def test_a_notebook_runs_shows_what_it_was_saved_with_and_answers_clicks(stop: Stop, lab: JupyterPage) -> None:
    if "import torch" in stop.path.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    files = names(lab.server.root)
    # as it is in the repository, also where the test runs once more
    nbformat.write(with_solutions(nbformat.read(stop.path, as_version=4)), lab.server.root / stop.path.name)
    lab.open(stop.path.name).run_all()
    # of the processor, which hardly depend on other load, but on the machine: noted below, no limit
    seconds = lab.kernel.evaluate("sum(__import__('os').times()[:4])")
    kilobytes = lab.kernel.evaluate("__import__('resource').getrusage(0).ru_maxrss")
    assert kilobytes < MOST_MEMORY
    wanted = 0
    for index, (live, pictures) in enumerate(lab.page.evaluate(SHOWN)):
        if not live and not pictures:
            continue
        shown = lab.cell(index)
        for kind in ("capture", "comparison", "external_data", "graph", "pair", "simplification", "summary"):
            if shown.locator(f'.onnx-nb[data-widget="{kind}"]').count():
                lab.widget(kind, within=shown)
        # a live widget draws its picture a moment later, and hides it
        await_value(partial(pictured, lab, index, live), wanted=True, what=f"each widget of cell {index} is pictured")
        beside = shown.locator(".onnx-nb-picture")
        count = lab.page.evaluate(SHOWN)[index][1]
        expect(beside).to_have_count(count)
        for picture in beside.all():
            expect(picture).to_be_hidden()
        expect(shown.locator("img.onnx-nb-picture")).to_have_count(count)
        wanted += count
        lab.screenshot(f"{stop.path.stem}-{index:02d}")
    lab.command("docmanager:save")
    run = nbformat.read(lab.server.root / stop.path.name, as_version=4)
    outputs = [output for cell in run.cells for output in cell.get("outputs", [])]
    assert all(output.get("name") != "stderr" for output in outputs)
    assert sum(is_drawing(output) for output in outputs) == wanted
    assert [cell.source for cell in run.cells if widgets(cell) > stills(cell)] == []
    everything = nbformat.writes(run)
    for folder in (FOLDER.parent, Path.home(), Path(tempfile.gettempdir()), lab.server.root):
        assert f"{folder}/" not in everything
    # so that notebooks can be read in any order, each leaves nothing for the next
    assert names(lab.server.root) == files
    assert lab.errors == []
    saved = without_solutions(run)
    if os.environ.get("ONNX_NB_DOCS"):
        nbformat.write(for_reading(saved), stop.path)
        note_cost(stop, seconds, kilobytes / 1024)
    else:
        found = list(differences(nbformat.read(stop.path, as_version=4), saved))
        assert not found, "\n\n".join(found)
    if stop.number in CLICKS:
        CLICKS[stop.number](lab)


def pictured(lab: JupyterPage, index: int, live: int) -> bool:
    return bool(lab.page.evaluate(SHOWN)[index][1] >= live)


def note_cost(stop: Stop, seconds: float, megabytes: float) -> None:
    """Write what a run took into the notebook's row of notebooks/coverage.md."""
    table = "| notebook | CPU s | peak MiB |\n|---|---|---|\n"
    before, heading, rows = COSTS.read_text(encoding="utf-8").partition(table)
    costs = {row.split("](")[1].split(")")[0]: row for row in rows.splitlines()}
    costs[stop.path.name] = f"| [{stop.name}]({stop.path.name}) | {seconds:.0f} | {megabytes:.0f} |"
    rows = "\n".join(costs[each.path.name] for each in course() if each.path.name in costs)
    COSTS.write_text(f"{before}{heading}{rows}\n", encoding="utf-8")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".ipynb_checkpoints"}


def is_drawing(output: Any) -> bool:
    return "data:image/svg+xml;base64," in "".join(output.get("data", {}).get("text/html", ""))


def widgets(cell: Any) -> int:
    return sum(WIDGET in output.get("data", {}) for output in cell.get("outputs", []))


def stills(cell: Any) -> int:
    """Count the pictures and tables that stand for a widget where none is shown."""
    texts = ("".join(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", []))
    return sum("onnx-nb-picture" in text and ("data:image/" in text or "<table" in text) for text in texts)


def for_reading(notebook: Any) -> Any:
    """Remove outputs that need a live kernel or change with every run."""
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    counts = itertools.count(1)
    for cell in notebook.cells:
        if cell.get("execution_count"):  # as if no solution had been run between
            cell.execution_count = next(counts)
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = cell.execution_count
        cell.metadata.pop("execution", None)
        cell.metadata.pop("trusted", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    notebook.metadata[RUN] = fingerprint(notebook, FOLDER)
    return notebook
