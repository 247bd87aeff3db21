"""What the index tells its reader to click, clicked after all of it ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    place = lab.cell_with("ModelGraph(")
    graph = GraphWidget(lab.widget("graph", within=lab.cell(place)))
    lab.screenshot("index-graph", graph.root)
    graph.toggle("layers.0/attention")
    lab.screenshot("index-open", graph.root)
    inspector = graph.root.get_by_label("Inspector")
    graph.click("/layers.0/attention/Softmax", "node")
    for text in ("/layers.0/attention/Mul_output_0", "/layers.0/attention/Softmax_output_0"):
        expect(inspector).to_contain_text(text)
    graph.click("/layers.0/attention/Softmax_output_0", "tensor")
    inspector.get_by_role("button", name="Capture", exact=True).click()
    expect(inspector).to_contain_text("captured, 1 run on your feeds")
    inspector.get_by_role("button", name="Values", exact=True).click()
    expect(inspector.get_by_role("img", name=re.compile("^Picture of"))).to_be_visible()
    lab.screenshot("index-captured", graph.root)
    lab.run("onnx_nb.run(")  # the same by a call
    expect(inspector.locator("td").first).to_have_text(lab.kernel.evaluate("f'{attention[0, 0]:.6g}'"))
    assert lab.errors == []
