"""What notebook 11 tells its reader to click, clicked after all of it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})

    # every tensor of two opsets
    panel = lab.widget("comparison", within=lab.cell(lab.cell_with("c = onnx_nb.compare(merged")))
    rows = panel.get_by_role("grid").locator("[data-row]")
    expect(rows).to_have_count(15)
    rows.filter(has_text="scores").click()
    expect(panel.get_by_label("Errors of the point")).to_contain_text("scores")
    lab.screenshot("11-opsets", panel)

    # what the rule changed
    pair = PairWidget(lab.widget("pair", within=lab.cell(lab.cell_with("onnx_nb.diff(lifted"))))
    expect(pair.root).to_contain_text("5 differences")
    pair.root.locator(".onnx-nb-change").filter(has_text="Abs").click()
    expect(pair.candidate.root.locator(".onnx-nb-compared")).to_contain_text("added")
    lab.screenshot("11-rule", pair.root)

    # three edits, and one of them undone
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("g = onnx_nb.ModelGraph("))))
    inspector, bar = graph.root.get_by_label("Inspector"), graph.root.locator(".onnx-nb-extract")
    pane = graph.root.get_by_role("region", name="Submodel")
    graph.click("input.1", "tensor")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_label("New name").fill("image")
    inspector.get_by_role("button", name="Rename").click()
    expect(bar).to_contain_text("✓ renamed input.1 → image: equal on the same feeds")
    lab.screenshot("11-renamed", graph.root)
    graph.click("image", "tensor")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_role("button", name="Free the batch").click()
    expect(bar).to_contain_text("mended Reshape ×1: in batches")
    graph.click("/Add_output_0", "tensor")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_role("button", name="Make it an output").click()
    expect(bar).to_contain_text("made '/Add_output_0' an output")
    lab.kernel.expect("[output.name for output in g.edits.model.outputs]", ["scores", "/Add_output_0"])
    lab.screenshot("11-edits", graph.root)
    pane.get_by_role("button", name="Undo edit").click()
    lab.kernel.expect("[output.name for output in g.edits.model.outputs]", ["scores"])
    lab.kernel.expect("list(g.edits.model.inputs[0].shape)", ["batch", 3, 32, 32])
    assert lab.errors == []
