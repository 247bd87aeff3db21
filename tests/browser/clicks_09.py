"""What notebooks 09 and 09a tell their reader to click, clicked after all of them ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.jupyter import SCREENSHOTS
from tests.browser.test_simplification_panel import PanelWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})

    # 1. what is in the file
    cell = lab.cell(lab.cell_with("g = onnx_nb.ModelGraph(received"))
    graph = GraphWidget(lab.widget("graph", within=cell))
    node = "/blocks/blocks.0/attention/Div"
    scopes = graph.call(
        """const {columns} = view, names = [];
           for (let at = columns.scopeOf(columns.find(args[0], 'node')); at > 0; at = columns.scopeParent[at])
               names.unshift(columns.nameOf({kind: 'scope', id: at}));
           return names;""",
        node,
    )
    for scope in scopes[-2:]:
        graph.reveal(scope, "scope")
        graph.toggle(scope)
    graph.click(node, "node")
    for lens, what in {"Size": "weight bytes", "MACs": "MACs"}.items():
        graph.root.get_by_role("button", name=f"Color by {lens}").click()
        expect(graph.root.get_by_role("group", name=f"Colors: {what}")).to_be_visible()
        lab.screenshot(f"09-{what}", graph.root)

    # 2. the fault
    found = lab.cell_with("onnx_nb.ComparisonPanel(c, ")
    panel = lab.widget("comparison", within=lab.cell(found))
    said, detail = panel.locator(".onnx-nb-said"), panel.get_by_label("Errors of the point")
    expect(said).to_contain_text("Every value is 0.5 times what it should be")
    expect(detail).to_contain_text("blocks.1.attention → div()")
    lab.screenshot("09-panel")
    panel.get_by_role("button", name="Drill down").click()
    expect(said).to_contain_text("First differs in 'blocks.1.attention' at 'aten.div'")
    lab.screenshot("09-drilled")
    panel.get_by_role("button", name="All points").click()
    graph = GraphWidget(lab.widget("graph", within=lab.cell(found + 1)))
    graph.click("/blocks/blocks.1/attention/Div", "node")
    lab.screenshot("09-div", graph.root)
    graph.root.locator(".onnx-nb-inspector").get_by_role("button", name="Pow_output_0").click()
    graph.expect_selection("/blocks/blocks.1/attention/Pow_output_0")
    graph.press("Capture")
    expect(graph.root.get_by_label("Values", exact=True)).to_contain_text("6.928")
    lab.screenshot("09-captured", graph.root)
    assert lab.errors == []


def click_a(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})

    # 5. undo the change that the colleague does not want, and redo it
    changes = PanelWidget(lab, lab.cell(lab.cell_with("simpler = onnx_nb.SimplificationPanel(")))
    header = changes.root.locator("header").first
    expect(header).to_contain_text("99 → 90 nodes")
    changes.button("Undo this change").click()
    left_out = changes.root.get_by_role("group", name="Left out")
    expect(left_out).to_contain_text("fuse_parallel_matmuls: ")
    expect(header).to_contain_text("99 → 93 nodes")
    lab.screenshot("09a-undone")
    left_out.get_by_role("button", name=re.compile("^Redo fuse_parallel_matmuls")).click()
    expect(header).to_contain_text("99 → 90 nodes")
    assert lab.errors == []

    # 7. the page
    page = lab.page.context.new_page()
    page.goto(lab.kernel.evaluate("page.as_uri()"))
    expect(page.get_by_role("tab")).to_have_count(7)
    expect(page.get_by_role("tabpanel").first).to_contain_text("☑ Complete")
    page.screenshot(path=SCREENSHOTS / "09a-checklist.png")
    page.get_by_role("tab", name="Fault").click()
    shown = page.locator('.onnx-nb[data-widget="comparison"]:visible')
    expect(shown.locator(".onnx-nb-said")).to_contain_text("Every value is 0.5 times what it should be")
    shown.get_by_role("button", name="Show it").click()
    expect(shown.get_by_label("Errors of the point")).to_contain_text("blocks.1.attention → div()")
    page.screenshot(path=SCREENSHOTS / "09a-fault.png")
    page.get_by_role("tab", name="Model").click()
    GraphWidget(page.locator('.onnx-nb[data-widget="graph"]:visible').first).click("scores", "tensor")
    page.get_by_role("tab", name="8 bits").click()
    expect(
        page.locator('.onnx-nb[data-widget="comparison"]:visible').get_by_label("Errors of the point")
    ).to_contain_text("scores")
    page.screenshot(path=SCREENSHOTS / "09a-eight.png")
    page.close()
