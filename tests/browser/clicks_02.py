"""What notebooks 02, 02a and 02b tell their readers to click, clicked after all of each ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with('ModelGraph(folder / "srcnn.onnx"'))))
    inspector = graph.root.get_by_label("Inspector")
    first = lab.kernel.evaluate("g.model.proto.graph.node[1].name")
    graph.click(first, "node")
    for text in ("kernel_shape 9, 9", "pads 4, 4, 4, 4", "conv1"):
        expect(inspector).to_contain_text(text)
    lab.screenshot("02-conv", graph.root)
    inspector.get_by_text("conv1.weight", exact=True).first.click()
    expect(inspector).to_contain_text("64×1×9×9")
    lab.screenshot("02-weight", graph.root)
    graph.click(lab.kernel.evaluate("g.model.proto.graph.node[0].name"), "node")
    expect(inspector).to_contain_text("mode cubic")
    lab.screenshot("02-resize", graph.root)
    graph.click("enlarged", "tensor")
    expect(inspector).to_contain_text("1×1×96×192")
    assert lab.errors == []


def click_a(lab: JupyterPage) -> None:
    # the two exporters
    place = lab.cell_with("by_torchscript = ")
    pair = PairWidget(lab.widget("pair", within=lab.cell(place)))
    pair.root.locator(".onnx-nb-change").filter(has_text="Constant").first.click()
    pair.reference.expect_selection("/Constant")
    pair.candidate.expect_selection(None)
    lab.screenshot("02a-pair", pair.root)
    pair.reference.click("/conv1/Conv", "node")
    pair.candidate.expect_selection(lab.kernel.evaluate("by_dynamo.proto.graph.node[1].name"))
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    # the loop, closed and opened
    loop = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("ModelGraph(kept"))))
    lab.screenshot("02b-loop", loop.root)
    body = loop.scope(is_open=True)
    loop.toggle(body)
    lab.screenshot("02b-loop-closed", loop.root)
    loop.toggle(body)
    convolution = lab.kernel.evaluate("next(n.name for n in onnx_nb.types.Graph.of(kept).nodes if n.op_type == 'Conv')")
    loop.click(convolution, "node")
    expect(loop.root.get_by_label("Inspector")).to_contain_text("weight")
    lab.screenshot("02b-loop-conv", loop.root)
    assert lab.errors == []
