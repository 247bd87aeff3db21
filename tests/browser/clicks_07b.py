"""What notebook 07b tells its reader to click, clicked after all of it ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.test_simplification_panel import PanelWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    panel = PanelWidget(lab, lab.cell(lab.cell_with("SimplificationPanel(")))
    header, detail = panel.root.locator("header").first, panel.root.get_by_label("Change", exact=True)
    nodes = lab.kernel.evaluate("len(smaller.model.proto.graph.node)")
    expect(header).to_contain_text(f"530 → {nodes} nodes")

    # it opens at the change that the cell chose
    expect(detail).to_contain_text("fuse_parallel_matmuls")
    panel.expect_selected(0, sorted(lab.kernel.evaluate("joined[2].before")))
    lab.screenshot("07b-panel-opened")

    rules = panel.root.get_by_label("Rule", exact=True)
    rules.select_option(label=rules.locator("option", has_text="fold_reshape").inner_text())
    panel.changes.get_by_role("row").nth(1).click()
    expect(detail).to_contain_text("its shape is always")
    lab.screenshot("07b-panel-chosen")
    key = lab.kernel.evaluate("panel.change")
    assert key.startswith("fold_reshape: ")
    panel.button("Undo this change").click()
    left_out = panel.root.get_by_role("group", name="Left out")
    expect(left_out).to_contain_text(key[:30])
    expect(header).not_to_contain_text(f"530 → {nodes} nodes")
    lab.kernel.expect("panel.skipped", [key])

    left_out.get_by_role("button", name=re.compile("^Redo fold_reshape")).click()
    expect(left_out).to_be_hidden()
    expect(header).to_contain_text(f"530 → {nodes} nodes")

    tab = panel.root.get_by_role("tab", name="1. fold constants")
    tab.click()
    expect(tab).to_have_attribute("aria-selected", "true")
    lab.kernel.expect("panel.step", 1)
    lab.screenshot("07b-panel-step")
    panel.root.get_by_role("tab", name="All", exact=True).click()
    lab.kernel.expect("panel.step", 0)
    assert lab.errors == []
