"""A torch module that fails, shown in a cell: what ran, and the function that fails, marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

CODE = """import torch, onnx_nb
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
view = onnx_nb.show(net, torch.ones(1, 2))
view"""


def test_the_function_that_fails_is_marked_and_named(lab: JupyterPage) -> None:
    lab.open(lab.server.write("forward.ipynb", CODE)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    expect(lab.page.locator(".jp-OutputArea").first).to_contain_text("forward of Sequential fails at linear of '2'")
    expect(graph.root.get_by_role("group", name="Colors: forward")).to_contain_text("fails here")
    expect(graph.root.get_by_label("Inspector")).to_contain_text("fails here")
    assert lab.kernel.evaluate("view.graph.selection") == [{"kind": "node", "name": "2.linear"}]
    lab.screenshot("forward", graph.root)
    assert lab.errors == []
