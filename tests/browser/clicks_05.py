"""What notebooks 05 and 05b tell their readers to click, clicked after all of each ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("g = onnx_nb.ModelGraph("))))
    # a tensor, its numbers, its channels, the dead one
    graph.click("/filters/Relu_output_0", "tensor")
    graph.press("Capture")
    values = graph.root.get_by_label("Values", exact=True)
    expect(values).to_contain_text("captured, 1 run on your feeds")
    expect(values).to_contain_text("mean ± std")
    expect(values.get_by_role("img", name="Histogram")).to_be_visible()
    graph.press("Values")
    graph.press("Channels")
    tiles = values.get_by_role("img", name="Picture of channels")
    expect(tiles).to_be_visible()
    lab.screenshot("05-channels", graph.root)
    # three in a row, and the dead one is the sixth
    box = tiles.bounding_box()
    assert box is not None
    tiles.click(position={"x": box["width"] * 5 / 6, "y": box["height"] / 2})
    expect(values.get_by_label("Index of dimension 1")).to_have_value("5")
    expect(values.locator("td").first).to_have_text("0")
    lab.screenshot("05-dead-channel", graph.root)

    # Try it: the input has a histogram too
    graph.click("image", "tensor")
    graph.press("Capture")
    expect(values.get_by_role("img", name="Histogram")).to_be_visible()
    lab.screenshot("05-image", graph.root)

    # everything, by a click on an empty place
    graph.press("Fit")
    canvas = graph.root.locator("canvas").first.bounding_box()
    assert canvas is not None
    lab.page.mouse.click(canvas["x"] + canvas["width"] - 12, canvas["y"] + canvas["height"] - 12)
    graph.expect_selection(None)
    graph.press("Capture")
    expect(graph.root.get_by_role("button", name="Capture again")).to_be_visible()
    graph.root.get_by_role("button", name="Color by Values").click()
    expect(graph.root.get_by_role("group", name="Colors: std")).to_be_visible()
    lab.screenshot("05-colored", graph.root)
    lab.kernel.expect("g.captured is not None and len(g.captured)", 9)

    # the table, linked with a graph
    panel = lab.widget("capture", within=lab.cell(lab.cell_with("onnx_nb.CapturePanel(")))
    panel.get_by_role("button", name="Std").click()
    expect(panel.get_by_role("columnheader", name="Std")).to_have_attribute("aria-sort", "descending")
    panel.get_by_role("searchbox").fill("std>0.1 -Relu")
    grid = panel.get_by_role("grid")
    expect(grid).to_have_attribute("aria-rowcount", "10")  # x, eight results and the heading
    grid.locator("[data-row]").filter(has_text="/layers.2/Add_output_0").click()
    expect(panel.get_by_label("Value", exact=True)).to_contain_text("/layers.2/Add_output_0")
    expect(panel.get_by_role("img", name="Histogram")).to_be_visible()
    lab.screenshot("05-panel", panel)
    lab.kernel.expect("view.selection[0]['name']", "/layers.2/Add_output_0")
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("view = onnx_nb.ModelGraph("))))
    graph.expect_selection("/layers.2/Add_output_0")
    lab.screenshot("05-linked", graph.root)
    graph.click("/layers.1/MatMul_output_0", "tensor")
    lab.kernel.expect("panel.selection[0]['name']", "/layers.1/MatMul_output_0")
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    broken = lab.widget("capture", within=lab.cell(lab.cell_with("broken = ")))
    expect(broken.get_by_role("status")).to_contain_text("Exp '/attention/Exp' makes 12 Inf")
    broken.get_by_role("button", name="Show it").click()
    expect(broken.get_by_role("grid").get_by_role("row", selected=True)).to_contain_text("powers")
    broken.get_by_role("button", name="Only NaN and Inf").click()
    rows = broken.get_by_role("grid").locator("[data-row]")
    expect(rows.first).to_contain_text("powers")
    lab.screenshot("05b-nan", broken)
    assert lab.errors == []
