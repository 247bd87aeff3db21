"""What notebooks 03a and 03b tell their readers to click, clicked after all of each ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})

    # names that went all the way through
    graph = GraphWidget(
        lab.widget("graph", within=lab.cell(lab.cell_with("model = onnx_nb.export(net, example, dynamic_shapes=")))
    )
    inspector = graph.root.get_by_label("Inspector")
    graph.click("conv1d", "tensor")
    expect(inspector).to_contain_text("((samples//24)) - 3")
    graph.click("scores", "tensor")
    expect(inspector).to_contain_text("batch×8")
    lab.screenshot("03a-names", graph.root)

    # a number in a file that declares two names
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("g = onnx_nb.ModelGraph("))))
    inspector = graph.root.get_by_label("Inspector")
    graph.root.get_by_role("combobox", name="Search").fill("op:Div")
    graph.expect("view.state.hits.length", 1)
    graph.root.get_by_role("combobox", name="Search").press("Enter")
    expect(inspector).to_contain_text("63")
    lab.screenshot("03a-number", graph.root)
    graph.click("sound", "tensor")
    expect(inspector).to_contain_text("batch×samples")

    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    # what mended a batch
    shown = lab.cell(lab.cell_with('freed = onnx_nb.edit(one).free("batch")'))
    expect(shown).to_contain_text("mended Reshape")
    lab.screenshot("03b-freed", shown)
    assert lab.errors == []
