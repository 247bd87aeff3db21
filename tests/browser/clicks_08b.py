"""What notebook 08b tells its reader to click, clicked after all of it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    last = lab.cell_with("stopped = external_data.audit(")
    panel = lab.widget("external_data", within=lab.cell(last))
    rows = panel.get_by_role("grid").locator("[data-row]")
    expect(rows).to_have_count(5)
    expect(panel.get_by_label("Problems")).to_contain_text("Error: bounds")
    show = panel.get_by_label("Problems").get_by_role("button", name="Show the 3 tensors")
    show.click()
    expect(rows.filter(has_text="bounds")).to_have_count(3)
    expect(rows).to_have_count(3)
    lab.screenshot("08b-short", panel)
    show.click()
    expect(rows).to_have_count(5)
    panel.get_by_role("button", name="Offset").click()
    expect(panel.get_by_role("columnheader", name="Offset")).to_have_attribute("aria-sort", "descending")
    panel.get_by_role("searchbox").fill("words")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("words")
    lab.screenshot("08b-filtered", panel)
    assert lab.errors == []
