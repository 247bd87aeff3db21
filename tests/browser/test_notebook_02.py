"""What notebook 02 tells its reader to click, done in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

NAME = "02-export-from-pytorch.ipynb"
# in place of the training, which takes ten seconds
UNTRAINED = "torch.manual_seed(0)\nnet, image = SRCNN().eval(), torch.rand(1, 1, 32, 64)"
EXPORTED = """
example = torch.rand(1, 3, 10, 10)
kept = onnx_nb.export(WhileLoop().eval(), (example, torch.tensor(2)), input_names=["x", "n"], output_names=["y"])
"""


def test_what_the_lists_of_notebook_02_say_happens(lab: JupyterPage) -> None:
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    lab.open_fresh(NAME)
    lab.run("%matplotlib inline")
    lab.run("class SRCNN(")
    lab.kernel.run(UNTRAINED)
    lab.run('onnx.load(folder / "srcnn.onnx")')
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.run('ModelGraph(folder / "srcnn.onnx"'))))
    inspector = graph.root.get_by_label("Inspector")
    first = lab.kernel.evaluate("model.graph.node[1].name")
    graph.click(first, "node")
    for text in ("kernel_shape 9, 9", "pads 4, 4, 4, 4", "conv1"):
        expect(inspector).to_contain_text(text)
    lab.screenshot("02-conv", graph.root)
    inspector.get_by_text("conv1.weight", exact=True).first.click()
    expect(inspector).to_contain_text("64×1×9×9")
    lab.screenshot("02-weight", graph.root)
    graph.click(lab.kernel.evaluate("model.graph.node[0].name"), "node")
    expect(inspector).to_contain_text("mode cubic")
    lab.screenshot("02-resize", graph.root)
    graph.click("enlarged", "tensor")
    expect(inspector).to_contain_text("1×1×96×192")

    # the two exporters
    place = lab.run("by_torchscript = ")
    pair = PairWidget(lab.widget("pair", within=lab.cell(place)))
    pair.root.locator(".onnx-nb-change").filter(has_text="Constant").first.click()
    pair.reference.expect_selection("/Constant")
    pair.candidate.expect_selection(None)
    lab.screenshot("02-pair", pair.root)
    pair.reference.click("/conv1/Conv", "node")
    pair.candidate.expect_selection(first)

    # the loop, closed and opened
    lab.run("class WhileLoop(")
    lab.kernel.run(EXPORTED)
    loop = GraphWidget(lab.widget("graph", within=lab.cell(lab.run("ModelGraph(kept"))))
    lab.screenshot("02-loop", loop.root)
    body = loop.scope(is_open=True)
    loop.toggle(body)
    lab.screenshot("02-loop-closed", loop.root)
    loop.toggle(body)
    convolution = lab.kernel.evaluate("next(n.name for n in onnx_nb.Graph.of(kept).nodes if n.op_type == 'Conv')")
    loop.click(convolution, "node")
    expect(loop.root.get_by_label("Inspector")).to_contain_text("weight")
    lab.screenshot("02-loop-conv", loop.root)
    assert lab.errors == []
