"""What notebook 08 tells its reader to click, clicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
from playwright.sync_api import expect

from tests.browser.jupyter import ROOT

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

NAME = "08-external-data.ipynb"


def test_a_reader_sees_what_a_broken_download_lacks(lab: JupyterPage) -> None:
    lab.open(lab.server.fresh(NAME))
    cells = nbformat.read(ROOT / "notebooks" / NAME, as_version=4).cells
    last = lab.cell_with("stopped = external_data.audit(")
    for index, cell in enumerate(cells[: last + 1]):
        if cell.cell_type == "code":
            lab.run_cell(index)
    panel = lab.widget("external_data", within=lab.cell(last))
    rows = panel.get_by_role("grid").locator("[data-row]")
    expect(rows).to_have_count(5)
    expect(panel.get_by_label("Problems")).to_contain_text("Error: bounds")
    show = panel.get_by_label("Problems").get_by_role("button", name="Show the 3 tensors")
    show.click()
    expect(rows.filter(has_text="bounds")).to_have_count(3)
    expect(rows).to_have_count(3)
    lab.screenshot("08-short", panel)
    show.click()
    expect(rows).to_have_count(5)
    panel.get_by_role("button", name="Offset").click()
    expect(panel.get_by_role("columnheader", name="Offset")).to_have_attribute("aria-sort", "descending")
    panel.get_by_role("searchbox").fill("words")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("words")
    lab.screenshot("08-filtered", panel)
    assert lab.errors == []
