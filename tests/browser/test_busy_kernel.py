"""Clicks while a cell runs: answered at once by a kernel with subshells, else after the cell; none is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage, JupyterServer

RUNNING = "[*]:"
WAITING = "Waiting for the running cell…"


class BusyLab:
    """A graph in JupyterLab, and a cell that runs until it is told to stop."""

    def __init__(self, lab: JupyterPage, flag: Path) -> None:
        self.lab, self.flag = lab, flag
        # ipykernel by itself would pass clicks to the shell that sent the last message of the widget: the cell's
        wait = "g.theme = 'light'\nimport pathlib, time\n"
        wait += f"while not pathlib.Path({str(flag)!r}).exists():\n    time.sleep(0.05)"
        source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.light('squeezenet'))!r})\ng"
        lab.open(lab.server.write("busy.ipynb", source, wait)).run_cell(0)
        self.graph = GraphWidget(lab.widget("graph"))
        self.names: list[str] = lab.kernel.evaluate(
            "[n.output[0] for n in g.model.proto.graph.node if n.op_type == 'Relu']"
        )

    def start(self) -> None:
        self.flag.unlink(missing_ok=True)
        self.lab.page.evaluate(
            """() => { const {content} = jupyterapp.shell.currentWidget; content.activeCellIndex = 1;
                       void jupyterapp.commands.execute('notebook:run-cell'); }"""
        )
        expect(self.lab.page.get_by_text(RUNNING)).to_be_visible()
        expect(self.lab.page.locator('.jp-Notebook-ExecutionIndicator[data-status="busy"]')).to_be_visible()

    @property
    def running(self) -> bool:
        return self.lab.page.get_by_text(RUNNING).is_visible()

    def stop(self) -> None:
        self.flag.touch()
        expect(self.lab.page.get_by_text(RUNNING)).to_have_count(0)

    def capture(self, name: str) -> None:
        self.graph.click(name, "tensor")
        self.graph.press("Capture")

    def captured(self) -> str:
        """Return an expression of the names of the tensors that were captured one by one."""
        return "[g._values._name(value) for value in g._values.known.single]"


def test_a_click_is_answered_while_a_cell_runs(lab: JupyterPage, tmp_path: Path) -> None:
    busy = BusyLab(lab, tmp_path / "enough")
    root, first = busy.graph.root, busy.names[0]
    busy.start()
    busy.capture(first)
    expect(root.get_by_role("button", name="Capture again")).to_be_visible()
    busy.graph.press("Output")
    busy.graph.extract()
    assert busy.running
    busy.stop()
    lab.kernel.expect("g.submodel.outputs[0].name", first)
    lab.kernel.expect("g.outputs", [first])
    lab.kernel.expect(busy.captured(), [first])
    assert lab.errors == []


@pytest.fixture
def no_subshells(server: JupyterServer) -> Iterator[None]:
    """Send all messages to the shell that runs the cells."""
    server.setting("kernels-settings", {"commsOverSubshells": "disabled"})
    yield
    server.setting("kernels-settings", {})


@pytest.mark.usefixtures("no_subshells")
def test_clicks_wait_for_the_running_cell_and_are_answered_in_order(fresh_lab: JupyterPage, tmp_path: Path) -> None:
    lab = fresh_lab
    busy = BusyLab(lab, tmp_path / "enough")
    root, (first, second, third, fourth, *_) = busy.graph.root, busy.names
    note = root.get_by_role("status").filter(has_text=re.compile(WAITING))
    busy.start()
    busy.capture(first)
    expect(note).to_be_visible()
    busy.capture(second)
    busy.graph.press("Output")
    assert busy.running
    busy.stop()
    expect(root.get_by_role("button", name="Capture again")).to_be_visible()
    expect(note).to_have_count(0)
    lab.kernel.expect(busy.captured(), [first, second])
    lab.kernel.expect("g.outputs", [second])

    busy.start()
    busy.capture(third)
    expect(note).to_be_visible()
    busy.graph.press("Cancel")
    busy.stop()
    busy.capture(fourth)  # answered after what was asked before
    expect(note).to_have_count(0)
    expect(root.get_by_role("button", name="Capture again")).to_be_visible()
    lab.kernel.expect(busy.captured(), [first, second, fourth])
    expect(root.get_by_role("alert")).to_have_count(0)
    assert lab.errors == []
