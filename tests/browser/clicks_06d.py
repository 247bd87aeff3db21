"""What notebook 06d tells its reader to click, clicked after all of it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    panel = lab.widget("comparison", within=lab.cell(lab.cell_with("onnx_nb.ComparisonPanel(c)")))
    expect(panel.locator(".onnx-nb-said")).to_contain_text("First differs at 'unsqueeze'")
    panel.get_by_role("button", name="Scales (").click()
    scales = panel.get_by_role("grid", name="Quantizers")
    expect(scales.locator("[data-row]").first).to_contain_text("uses 3% of its levels")
    scales.locator("[data-row]").filter(has_text="unsqueeze").first.click()
    expect(
        panel.get_by_label("The quantizer").get_by_role("img", name="Values before and after rounding")
    ).to_be_visible()
    lab.screenshot("06d-scales", panel)
    panel.get_by_role("button", name="In float (0)").click()
    panel.get_by_role("button", name="Suggest").click()
    expect(panel).to_contain_text("nodes in float the outputs have 3")
    lab.screenshot("06d-suggest", panel)
    assert lab.errors == []
