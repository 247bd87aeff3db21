"""What notebooks 12 and 12b tell their reader to click, clicked after all of them ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    shown = lab.cell(lab.cell_with("package = onnx_nb.load(write("))
    expect(shown).to_contain_text("Configuration and graph agree")
    graph = GraphWidget(lab.widget("graph", within=shown))
    graph.root.get_by_role("combobox", name="Search").fill("past_key_values.1.key")
    graph.expect("view.state.hits.length", 1)
    graph.root.get_by_role("combobox", name="Search").press("Enter")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("Concat")
    lab.screenshot("12-package", graph.root)
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    shown = lab.cell(lab.cell_with("onnx_nb.DecodingPanel(faulty)"))
    panel = lab.widget("decoding", within=shown)
    expect(panel.locator(".onnx-nb-said")).to_contain_text("look at its past")
    pane = panel.get_by_role("complementary", name="Step")
    expect(pane).to_contain_text("layer 1 attention")
    lab.screenshot("12b-faulty", panel)
    panel.get_by_role("slider", name="Errors of layers by step").press("ArrowRight")
    expect(pane).to_contain_text("step 2")

    shown = lab.cell(lab.cell_with("q = onnx_nb.compare_decoding(package, four"))
    panel = lab.widget("decoding", within=shown)
    expect(panel.locator(".onnx-nb-said")).to_contain_text("costs most")
    lab.screenshot("12b-rounded", panel)
    assert lab.errors == []
