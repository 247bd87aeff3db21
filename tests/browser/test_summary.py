"""The tables of a model in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget

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


def test_the_rows_of_a_summary_lead_to_the_graph_below(lab: JupyterPage) -> None:
    path = str(models.light("squeezenet"))
    lab.open(lab.server.write("rows.ipynb", f"import onnx_nb\nv = onnx_nb.ModelView({path!r})\nv")).run_all()
    graph, summary = GraphWidget(lab.widget("graph")), lab.widget("summary")
    summary.get_by_role("button", name="Details").click()
    summary.get_by_role("row", name="MaxPool").click()
    lab.kernel.expect("[target['kind'] for target in v.graph.selection]", ["node"] * 3)
    assert all(graph.find(f"n{number}", "node") for number in (2, 17))
    summary.get_by_role("button", name="fire3/expand1x1_b_0").press("Enter")
    lab.kernel.expect("v.graph.selection[0]['name']", "fire3/expand1x1_b_0")
    summary.get_by_role("button", name="fire9", exact=True).click()
    lab.kernel.expect("v.graph.selection", [{"kind": "scope", "name": "fire9", "id": 9}])
    lab.screenshot("summary-rows", summary)
    assert lab.errors == []


def test_a_summary_by_itself_has_no_links(lab: JupyterPage) -> None:
    path = str(models.light("squeezenet"))
    lab.open(lab.server.write("alone.ipynb", f"import onnx_nb\nonnx_nb.ModelSummary({path!r})")).run_all()
    summary = lab.widget("summary")
    expect(summary.get_by_role("row", name="MaxPool")).to_be_visible()
    expect(summary.get_by_role("button", name="MaxPool")).to_have_count(0)
    assert lab.errors == []
