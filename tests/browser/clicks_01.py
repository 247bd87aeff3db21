"""What notebooks 01, 01a and 01b tell their readers to click, clicked after all of each ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.graph import GraphWidget
from tests.browser.test_pair import PairWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def click(lab: JupyterPage) -> None:
    # the picture of a·x + b
    graph = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("ModelGraph(linear"))))
    inspector = graph.root.get_by_label("Inspector")
    click_box(graph, 0)
    for text in ("Mul", "a", "x", "c"):
        expect(inspector.get_by_text(text, exact=True).first).to_be_visible()
    inspector.get_by_text("Documentation").click()
    expect(inspector).to_contain_text("element-wise binary multiplication")
    lab.screenshot("01-mul", graph.root)
    graph.click("c", "tensor")
    for text in ("2×2", "float32", "Mul", "Add"):
        expect(inspector).to_contain_text(text)
    lab.kernel.expect("[each['name'] for each in g.selection]", ["c"])
    lab.screenshot("01-c", graph.root)
    graph.click("x", "tensor")
    expect(inspector).to_contain_text("input")
    lab.screenshot("01-x", graph.root)
    assert lab.errors == []


def click_a(lab: JupyterPage) -> None:
    wrong = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("misspelled = "))))
    expect(wrong.root.locator(".onnx-nb-warn")).to_contain_text("reads tensor 'd', which no node makes")
    wrong.press("1 fault")
    wrong.root.locator(".onnx-nb-faults").get_by_text("reads tensor 'd'").click()
    wrong.expect("view.state.selection", {"kind": "node", "id": 1})
    expect(wrong.root.get_by_label("Inspector")).to_contain_text("Add")
    lab.screenshot("01a-broken", wrong.root)
    assert lab.errors == []


def click_b(lab: JupyterPage) -> None:
    # a weight inside a node
    layer = GraphWidget(lab.widget("graph", within=lab.cell(lab.cell_with("ModelGraph(layer"))))
    click_box(layer, 0)
    panel = layer.root.get_by_label("Inspector")
    panel.get_by_text("W", exact=True).first.click()
    expect(panel).to_contain_text("2×3")
    lab.screenshot("01b-weight", layer.root)

    # the changed one beside the original
    pair = PairWidget(lab.widget("pair", within=lab.cell(lab.cell_with("DiffPanel(before, after, "))))
    row = pair.root.locator(".onnx-nb-change")
    expect(row).to_have_count(1)
    row.click()
    expect(pair.reference.root.get_by_label("Inspector").first).to_contain_text("Add")
    lab.screenshot("01b-pair", pair.root)
    assert lab.errors == []


def click_box(graph: GraphWidget, node: int) -> None:
    """Click a node that has no name."""
    graph.rest()
    point = graph.call("return view.viewport.locate({kind: 'node', id: args[0]});", node)
    graph.page.mouse.click(point["x"], point["y"])
    graph.expect("view.state.selection", {"kind": "node", "id": node})
