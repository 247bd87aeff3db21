"""The tables of a model in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def test_a_large_summary_counts_its_costs_when_it_is_opened(lab: JupyterPage) -> None:
    source = f"import onnx_nb\ns = onnx_nb.ModelSummary({str(models.chain(10_000))!r}, expanded=False)\ns"
    lab.open(lab.server.write("costs.ipynb", source)).run_all()
    summary = lab.widget("summary")
    assert "MACs" not in summary.inner_text()
    summary.get_by_role("button", name="Details").click()
    expect(summary).to_contain_text("MACs")
    lab.kernel.expect("s.expanded")
    lab.screenshot("summary-of-10000", summary)
    assert lab.errors == []


def test_a_large_summary_counts_its_costs_when_a_cell_opens_it(lab: JupyterPage) -> None:
    source = f"import onnx_nb\ns = onnx_nb.ModelSummary({str(models.chain(10_000))!r}, expanded=False)\ns"
    lab.open(lab.server.write("costs-by-cell.ipynb", source)).run_all()
    summary = lab.widget("summary")
    lab.kernel.run("s.expanded = True")
    expect(summary).to_contain_text("MACs")
    assert lab.errors == []
