"""What notebooks 11b and 11c tell their reader to click, clicked after all of them ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click_b(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})

    # what the rule changed
    pair = PairWidget(lab.widget("pair", within=lab.cell(lab.cell_with("onnx_nb.diff(lifted"))))
    expect(pair.root).to_contain_text("5 differences")
    pair.root.locator(".onnx-nb-change").filter(has_text="Abs").click()
    expect(pair.candidate.root.locator(".onnx-nb-compared")).to_contain_text("added")
    lab.screenshot("11b-rule", pair.root)

    # where a wrong rule begins
    panel = lab.widget("comparison", within=lab.cell(lab.cell_with("c = onnx_nb.compare(lifted")))
    expect(panel.locator(".onnx-nb-said")).to_contain_text("First differs at '/Add_output_0'")
    detail = panel.get_by_label("Errors of the point")
    expect(detail).to_contain_text("/Add_output_0")
    panel.get_by_role("button", name="Points (12)").click()
    panel.get_by_role("grid").locator("[data-row]").filter(has_text="scores").click()
    detail.get_by_role("button", name="Cumulative").click()
    expect(detail).to_contain_text("scores")
    lab.screenshot("11b-wrong", panel)
    panel.get_by_role("button", name="Unmatched (3)").click()
    expect(panel).to_contain_text("/Neg_output_0")
    assert lab.errors == []


def click_c(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})

    # three edits, and one of them undone
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("g = onnx_nb.ModelGraph("))))
    inspector, bar = graph.root.get_by_label("Inspector"), graph.root.locator(".onnx-nb-extract")
    pane = graph.root.get_by_role("region", name="Submodel")
    graph.click("input.1", "tensor")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_role("button", name="Free the batch").click()
    expect(bar).to_contain_text("✓ freed batch of input.1, mended Reshape ×1: in batches")
    graph.click("/Add_output_0", "tensor")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_role("button", name="Make it an output").click()
    expect(bar).to_contain_text("✓ made '/Add_output_0' an output: equal on the same feeds")
    lab.screenshot("11c-edits", graph.root)
    graph.click("input.1", "tensor")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_label("New name").fill("image")
    inspector.get_by_role("button", name="Rename").click()
    expect(bar).to_contain_text("✓ renamed input.1 → image: equal on the same feeds")
    lab.kernel.expect("[output.name for output in g.edits.model.outputs]", ["scores", "/Add_output_0"])
    lab.kernel.expect("g.edits.model.inputs[0].name", "image")
    pane.get_by_role("button", name="Undo edit").click()
    lab.kernel.expect("g.edits.model.inputs[0].name", "input.1")
    lab.kernel.expect("list(g.edits.model.inputs[0].shape)", ["batch", 3, 32, 32])
    assert lab.errors == []
