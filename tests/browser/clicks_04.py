"""What notebooks 04 and 04b tell their reader to click, clicked after all of it ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    graphs = lab.cell_with("onnx_nb.ModelGraph(")
    lab.kernel.run("g.inputs, g.outputs, g.submodel = [], [], None")
    graph = GraphWidget(lab.widget("graph", within=lab.cell(graphs)))
    graph.expect("[view.state.boundary.inputs, view.state.boundary.outputs]", [[], []])
    bar = graph.root.locator(".onnx-nb-extract").first
    graph.click("conv2d_2", "tensor")
    expect(graph.root.get_by_label("Inspector")).to_contain_text("conv2d_2")
    graph.press("Input")
    graph.click("add", "tensor")
    lab.page.keyboard.press("o")
    expect(bar).to_contain_text("5 nodes")
    lab.screenshot("04-cut", graph.root)
    graph.extract()
    lab.kernel.expect("g.submodel is not None and len(g.submodel.proto.graph.node)", 5)
    lab.screenshot("04-extracted", graph.root)

    # Try it: an input inside a branch, and back
    graph.click("conv2d_3", "tensor")
    graph.press("Input")
    expect(bar).to_contain_text("4 nodes")
    graph.press("Undo")
    expect(bar).to_contain_text("5 nodes")

    graph.press("Clear")
    graph.click("conv2d_4", "tensor")
    graph.press("Input")
    graph.click("add", "tensor")
    graph.press("Output")
    expect(graph.root).to_contain_text("conv2d_6")
    expect(bar.get_by_role("button", name="Extract", exact=True)).to_be_disabled()
    lab.screenshot("04-missing", graph.root)
    graph.press("Add it")
    expect(bar.get_by_role("button", name="Extract", exact=True)).to_be_enabled()
    lab.kernel.expect("sorted(g.inputs)", ["conv2d_4", "conv2d_6"])
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("onnx_nb.ModelGraph("))))
    graph.click("convs4", "scope")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("convs4")
    expect(inspector).to_contain_text(re.compile(r"nodes\s*2"))
    lab.screenshot("04b-module", graph.root)
    inspector.get_by_role("button", name="Extract", exact=True).click()
    lab.kernel.expect("g.submodel is not None and len(g.submodel.proto.graph.node)", 2)
    lab.screenshot("04b-extracted", graph.root)
    assert lab.errors == []
