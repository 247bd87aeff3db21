"""A thousand tensors between two boxes, and one tensor with a thousand consumers: both stay legible."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper
from playwright.sync_api import expect

from onnx_nb import ModelGraph
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import SCREENSHOTS

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

MANY = 1000


def bundled() -> onnx.ModelProto:
    """A Split into a thousand tensors and a Concat that reads all of them."""
    parts = [f"part_{i}" for i in range(MANY)]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        helper.make_node("Split", ["r"], parts, "split", axis=1, num_outputs=MANY),
        helper.make_node("Concat", parts, ["c"], "concat", axis=1),
        helper.make_node("Neg", ["c"], ["y"], "last"),
    ]
    info = helper.make_tensor_value_info
    shape = [1, 4 * MANY]
    graph = helper.make_graph(
        nodes, "bundle", [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, shape)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def fanned() -> onnx.ModelProto:
    """A tensor that a thousand different chains read."""
    nodes = [helper.make_node("Relu", ["x"], ["wide"], "hub")]
    for i in range(MANY):
        op = ("Neg", "Abs", "Exp", "Sin", "Cos", "Tanh", "Sigmoid")[i % 7]
        nodes.append(helper.make_node(op, ["wide"], [f"a{i}"], f"reader_{i}"))
    nodes.append(helper.make_node("Sum", [f"a{i}" for i in range(MANY)], ["y"], "sum"))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "fan", [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_thousand_tensors_between_two_boxes_are_one_bundle_that_says_so(page: Page, tmp_path: Path) -> None:
    page.goto(ModelGraph(bundled()).to_html(tmp_path / "bundle.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    texts = graph.call(
        "return Array.from({length: view.viewport.scene.edges.count}, (_, e) => view.viewport.scene.edgeLabel(e));"
    )
    assert any(text.startswith("1,000 tensors 1×4 f32") for text in texts), sorted(set(texts))
    bounds = graph.call("return view.viewport.scene.bounds;")
    assert bounds["w"] < 1200
    page.screenshot(path=SCREENSHOTS / "bundle-1000.png")
    # each tensor of it can be chosen: the inspector lists them, some at a time
    graph.click("split", "node")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("1,000")
    rows = inspector.get_by_role("button", name=re.compile(r"^part_\d+$")).or_(
        inspector.locator(".onnx-nb-link").filter(has_text=re.compile(r"^part_\d+$"))
    )
    assert 0 < rows.count() < 200
    page.screenshot(path=SCREENSHOTS / "bundle-1000-inspector.png")
    before = rows.count()
    inspector.get_by_role("button", name="show all 1,000").first.click()
    expect(rows).not_to_have_count(before)
    graph.call("view.dispatch({type: 'select', target: view.columns.find('part_777', 'tensor')});")
    expect(inspector).to_contain_text("part_777")
    expect(inspector).to_contain_text("778 of 1,000 parallel tensors")


def test_a_tensor_with_a_thousand_readers_stays_legible(page: Page, tmp_path: Path) -> None:
    page.goto(ModelGraph(fanned()).to_html(tmp_path / "fan.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    seen = graph.call("return {boxes: view.viewport.scene.boxes.count, edges: view.viewport.scene.edges.count};")
    assert seen["boxes"] <= 60
    page.screenshot(path=SCREENSHOTS / "fan-1000.png")
    graph.call("view.dispatch({type: 'select', target: view.columns.find('wide', 'tensor')});")
    inspector = graph.root.get_by_label("Inspector")
    expect(inspector).to_contain_text("1,000")
    inspector.get_by_role("button", name="show all 1,000").first.click()
    page.screenshot(path=SCREENSHOTS / "fan-1000-inspector.png")
