"""What notebook 00 tells its reader to click, clicked after all of it ran, and in the dark theme.

`ONNX_NB_DOCS=1` writes the README's picture too.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.jupyter import ROOT
from tests.browser.test_first_light import COMPUTES_THE_SAME

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

NAME = "00-first-light.ipynb"


@pytest.mark.parametrize("theme", ["dark"])
def test_a_reader_finds_the_way_around_and_cuts_a_block_out(themed_lab: JupyterPage) -> None:
    themed_lab.open_fresh(NAME).run_up_to("onnx_nb.ModelGraph(")
    click(themed_lab)


def click(lab: JupyterPage) -> None:
    cut = lab.cell_with("onnx_nb.ModelGraph(")
    lab.kernel.run("g.inputs, g.outputs, g.submodel = [], [], None")
    shown = lab.cell(lab.cell_with("onnx_nb.load(light"))
    lab.widget("summary", within=shown)
    graph = GraphWidget(lab.widget("graph", within=shown))
    lab.screenshot(f"first-light-model-{lab.theme}")
    graph.press("Fit")
    graph.click("data_0", "tensor")
    expect(graph.root.get_by_label("Inspector")).to_contain_text("1×3×224×224")
    scope = graph.scope(is_open=False)
    graph.toggle(scope)
    graph.toggle(scope)
    graph.root.get_by_role("combobox", name="Search").fill("op:Conv")
    graph.expect("view.state.hits.length", 121)
    lab.screenshot(f"first-light-search-{lab.theme}", graph.root)
    graph.root.get_by_role("combobox", name="Search").fill("op:GlobalAveragePool")
    graph.expect("view.state.hits.length", 1)
    graph.click("r907", "tensor")
    expect(graph.root.get_by_label("Inspector")).to_contain_text("1×1024×7×7")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(cut)))
    graph.expect("[view.state.boundary.inputs, view.state.boundary.outputs]", [[], []])
    graph.click("/blocks.1/Add_output_0", "tensor")
    graph.press("Input")
    graph.click("/blocks.2/Add_output_0", "tensor")
    lab.page.keyboard.press("o")
    graph.wait_for_plan()
    expect(graph.root.locator(".onnx-nb-extract").first).to_contain_text("4 nodes")
    lab.page.mouse.move(0, 0)
    picture = lab.screenshot(f"first-light-cut-{lab.theme}", graph.root)
    if os.environ.get("ONNX_NB_DOCS") and lab.theme == "light":
        shutil.copyfile(picture, ROOT / "docs" / "first-light.png")
    graph.extract()
    lab.screenshot(f"first-light-submodel-{lab.theme}", graph.root)

    lab.kernel.run(COMPUTES_THE_SAME)
    lab.kernel.expect("[g.inputs, g.outputs]", [["/blocks.1/Add_output_0"], ["/blocks.2/Add_output_0"]])
    assert lab.kernel.evaluate("len(g.submodel.proto.graph.node)") == 4
    assert lab.kernel.evaluate("computes_the_same(model, g.submodel)") is True

    # a missing input is named, and added with one click
    lab.kernel.run("g.submodel = None; g.inputs, g.outputs = ['/blocks.2/Relu_output_0'], ['/blocks.2/Add_output_0']")
    expect(graph.root).to_contain_text("'/blocks.1/Add_output_0'")
    expect(graph.root.get_by_role("button", name="Extract", exact=True)).to_be_disabled()
    lab.screenshot("missing-input", graph.root)
    graph.root.get_by_role("button", name="Add it", exact=True).click()
    expect(graph.root.get_by_role("button", name="Extract", exact=True)).to_be_enabled()
    lab.kernel.expect("sorted(g.inputs)", ["/blocks.1/Add_output_0", "/blocks.2/Relu_output_0"])
    assert lab.errors == []
