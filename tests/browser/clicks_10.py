"""What notebooks 10 and 10b tell their readers to click, clicked after all of each ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("g.overlay(p)"))))
    expect(graph.root.get_by_role("group", name="Colors: seconds")).to_be_visible()
    graph.click("node_upsample_bicubic2d", "node")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("cubic")
    expect(inspector).to_contain_text("seconds")
    lab.screenshot("10-seconds", graph.root)
    scope = graph.scope(is_open=True)
    graph.toggle(scope)
    graph.expect("view.state.open.has(view.columns.find(args[0], 'scope').id)", False, scope)
    lab.screenshot("10-blocks", graph.root)
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("g2.overlay(p2"))))
    only = graph.root.get_by_role("group", name="Colors: kernel").get_by_role("button", name="Transpose")
    only.click()
    expect(only).to_have_attribute("aria-pressed", "true")
    lab.screenshot("10b-transpose", graph.root)
    only.click()
    expect(only).to_have_attribute("aria-pressed", "false")
    for node, ran in ("node_permute", "ReorderOutput"), ("node_permute_1", "Transpose"):
        graph.click(node, "node")
        expect(graph.root.get_by_label("Inspector")).to_contain_text(f"kernel{ran}")
    lab.screenshot("10b-kernel", graph.root)

    panel = lab.widget("profile", within=lab.cell(lab.cell_with("ProfilePanel(")))
    panel.get_by_role("button", name="Kernels (").click()
    panel.get_by_role("grid", name="Kernels").locator("[data-row]").first.click()
    lab.kernel.expect(
        "panel.kernel >= 0 and {e['id'] for e in g3.selection} == {*p3.kernels[panel.kernel].nodes}", True
    )
    panel.get_by_role("button", name="Treemap").click()
    expect(panel.get_by_role("slider", name="Kernels by scope")).to_be_visible()
    lab.screenshot("10b-treemap", panel)
    panel.get_by_role("button", name="Roofline").click()
    expect(panel.get_by_role("slider", name="Speed of kernels by their intensity")).to_be_visible()
    panel.get_by_role("button", name="Memory curve").click()
    held = panel.get_by_label("Kernel", exact=True).get_by_role("listitem").first.get_by_role("button")
    held.click()
    peak = "onnx_nb.costs(fast).memory.alive_at_peak[0].tensor"
    lab.kernel.expect(f"[e['name'] for e in g3.selection] == [{peak}]", True)
    lab.screenshot("10b-memory", panel)
    panel.get_by_role("button", name="Roofline").click()
    lab.screenshot("10b-roofline", panel)
    panel.get_by_role("button", name="Before and after").click()
    expect(panel.locator("[data-widget=candidate]")).to_have_attribute("data-state", "drawn")
    lab.screenshot("10b-before-and-after", panel)
    assert lab.errors == []
