"""The clicks that notebook 03 tells a reader to make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

NAME = "03-dynamic-behaviour-and-custom-operators.ipynb"


def test_a_lost_factor_and_one_that_stays_are_seen_by_clicks(lab: JupyterPage) -> None:
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    graphs = lab.open_fresh(NAME).run_up_to("g = onnx_nb.ModelGraph(by_size")
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


def test_an_operator_of_ones_own_is_unknown_until_it_has_a_body(lab: JupyterPage) -> None:
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    lab.open_fresh(NAME)
    for text in ("import inspect", "photo = plt.imread(", "class Lens(nn.Module)", "sharp = Lens()"):
        lab.run(text)
    for text in ("class LensOperator(", "class LensSymbolic("):
        lab.run(text)
    own, body = lab.run("g_own = onnx_nb.ModelGraph("), lab.run("g_body = onnx_nb.ModelGraph(")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(own)))
    call = lab.kernel.evaluate("own.proto.graph.node[-1].name")
    graph.click(call, "node")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("unknown domain 'custom'")
    lab.screenshot("03-own", graph.root)
    graph.click("y", "tensor")
    expect(inspector).to_contain_text("240")

    graph = GraphWidget(lab.widget("graph", within=lab.cell(body)))
    expect(graph.root).not_to_contain_text("unknown domain")
    opened = graph.scope(is_open=True)
    graph.toggle(opened)
    lab.screenshot("03-body-closed", graph.root)
    graph.toggle(opened)
    lab.screenshot("03-body", graph.root)

    # on a machine without a compiler
    lab.kernel.run("import os; os.environ['PATH'] = ''")
    for text in ("TORCH_LIBRARY(", "class MyAdd(", "by_hand = "):
        lab.run(text)
    assert lab.errors == []
