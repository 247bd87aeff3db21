"""What notebooks 03 and 03d tell their readers to click, clicked after all of each ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    graphs = lab.cell_with("g = onnx_nb.ModelGraph(by_size")
    panel = lab.cell_with("difference = onnx_nb.diff(")
    pair = PairWidget(lab.widget("pair", within=lab.cell(panel)))
    expect(pair.root).to_contain_text("No differences")
    resize = lab.kernel.evaluate("baked.proto.graph.node[-1].name")
    pair.candidate.click(resize, "node")
    pair.reference.expect_selection(resize)
    expect(pair.candidate.root.get_by_label("Inspector")).to_contain_text("cubic_coeff_a")
    lab.screenshot("03-pair")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(graphs)))
    inspector = graph.root.get_by_label("Inspector")
    graph.click("factor", "tensor")
    expect(inspector).to_contain_text("int64")
    graph.click("y", "tensor")
    expect(inspector).to_contain_text("24*u0")
    lab.screenshot("03-factor", graph.root)
    assert lab.errors == []


def click_d(lab: JupyterPage) -> None:
    own, body = lab.cell_with("g_own = onnx_nb.ModelGraph("), lab.cell_with("g_body = onnx_nb.ModelGraph(")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(own)))
    call = lab.kernel.evaluate("own.proto.graph.node[-1].name")
    graph.click(call, "node")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("unknown domain 'custom'")
    lab.screenshot("03d-own", graph.root)
    graph.click("y", "tensor")
    expect(inspector).to_contain_text("240")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(body)))
    expect(graph.root).not_to_contain_text("unknown domain")
    opened = graph.scope(is_open=True)
    graph.toggle(opened)
    lab.screenshot("03d-body-closed", graph.root)
    graph.toggle(opened)
    lab.screenshot("03d-body", graph.root)

    # on a machine without a compiler, under a name that torch does not know yet
    lab.kernel.run("import os; os.environ['PATH'] = ''")
    for text in ("TORCH_LIBRARY(", "class MyAdd(", "by_hand = "):
        source = lab.page.evaluate(
            "at => jupyterapp.shell.currentWidget.content.model.sharedModel.cells[at].source", lab.cell_with(text)
        )
        lab.kernel.run(source.replace("my_lib", "without_compiler"))
    assert lab.kernel.evaluate("compiler") is None
    assert lab.errors == []
