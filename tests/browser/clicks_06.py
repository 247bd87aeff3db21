"""What notebooks 06a, 06b and 06f tell their reader to click, clicked after all of them ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    place = lab.cell_with("ComparisonPanel(")
    panel = lab.widget("comparison", within=lab.cell(place))
    culprit = "blocks.1.attention → softmax()"
    expect(panel.locator(".onnx-nb-said")).to_contain_text(f"First differs at '{culprit}' (softmax)")
    detail = panel.get_by_label("Errors of the point")
    expect(detail).to_contain_text(culprit)

    panel.get_by_placeholder("Filter").first.fill("norm1")
    panel.get_by_text("blocks.2.norm1", exact=True).first.click()
    expect(detail).to_contain_text("blocks.2.norm1")
    lab.screenshot("06a-panel-clicked")
    lab.kernel.expect("panel.point", "blocks.2.norm1")
    tensor = lab.kernel.evaluate("first['blocks.2.norm1'].candidate")
    lab.kernel.expect("[each['name'] for each in g.selection]", [tensor])

    panel.get_by_role("button", name="Show it").click()
    expect(detail).to_contain_text(culprit)
    panel.get_by_role("button", name="Drill down").click()
    expect(panel.locator(".onnx-nb-said")).to_contain_text("First differs in 'blocks.1.attention' at 'aten._softmax'")
    lab.screenshot("06a-panel-drilled")
    panel.get_by_role("button", name="All points").click()
    expect(panel.locator(".onnx-nb-said")).to_contain_text(f"'{culprit}'")

    panel.get_by_role("button", name="Unmatched (1)").click()
    expect(panel.get_by_role("grid", name="Unmatched")).to_contain_text("folded into BatchNorm1d 'stem.1'")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(place + 1)))
    graph.click("node_layer_norm_6", "node")
    lab.screenshot("06a-graph-clicked")
    lab.kernel.expect("panel.point", "norm")

    # Try it: down the color, from the row of blocks to the softmax
    scopes = graph.call(
        """const {columns} = view, names = [];
           for (let at = columns.scopeOf(columns.find(args[0], 'node')); at > 0; at = columns.scopeParent[at])
               names.unshift(columns.nameOf({kind: 'scope', id: at}));
           return names;""",
        "node_softmax_1",
    )
    assert len(scopes) == 3
    for scope in scopes:
        graph.reveal(scope, "scope")
        graph.toggle(scope)
    graph.click("node_softmax_1", "node")
    lab.screenshot("06a-followed-down")
    lab.kernel.expect("panel.point", culprit)
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    place = lab.cell_with("DiffPanel(")
    pair = PairWidget(lab.widget("pair", within=lab.cell(place)))

    pair.root.get_by_label("Filter differences").fill("gelu")
    rows = pair.root.locator(".onnx-nb-change")
    rows.filter(has_text="gelu_QuantizeLinear").first.click()
    pair.candidate.expect_selection("gelu_QuantizeLinear")
    pair.reference.expect_selection(None)
    expect(pair.root.locator(".onnx-nb-pair-note").first).to_contain_text("no such node")
    lab.screenshot("06b-pair-clicked")

    pair.root.get_by_role("button", name="Next difference").click()
    pair.candidate.expect_selection("gelu_DequantizeLinear")
    pair.root.get_by_role("button", name="Previous difference").click()
    pair.candidate.expect_selection("gelu_QuantizeLinear")

    pair.reference.click("node_gelu", "node")
    pair.candidate.expect_selection("node_gelu")
    lab.screenshot("06b-pair-followed")
    assert lab.errors == []


def click_f(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    place = lab.cell_with("ComparisonPanel(pair")
    panel = lab.widget("comparison", within=lab.cell(place))
    panel.get_by_role("button", name="Scales (").click()
    scales = panel.get_by_role("grid", name="Quantizers")
    expect(scales.locator("[data-row]").first).to_contain_text("nput channel 5 of weight")
    scales.locator("[data-row]").filter(has_text="channel 5 of 'layer_norm_2'").click()
    detail = panel.get_by_label("The quantizer")
    expect(detail.get_by_role("img", name="Values before and after rounding")).to_be_visible()
    lab.screenshot("06f-scales", panel)
    detail.get_by_role("button", name="Put back to float").click()
    expect(panel.get_by_role("status").first).to_contain_text(
        re.compile(r"With 4 nodes in float the outputs have 3\d\.\d dB")
    )
    panel.get_by_role("button", name="In float (1)").click()
    curve = panel.get_by_label("Outputs against regions in float").first
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    curve.get_by_role("button", name="Copy nodes_to_exclude").click()
    expect(curve.get_by_role("button", name="Copied")).to_be_visible()
    copied = lab.page.evaluate("navigator.clipboard.readText()").removeprefix("nodes_to_exclude=")
    lab.kernel.expect(f"set({copied}) >= set(nodes)")
    lab.screenshot("06f-in-float", panel)
    curve.get_by_role("button", name="Undo").click()
    expect(panel.get_by_role("button", name="In float (0)")).to_be_visible()
    assert lab.errors == []
