"""The first view: the whole model, in view, at a readable size."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from playwright.sync_api import expect

from onnx_nb import ModelGraph
from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import SCREENSHOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

MODELS: dict[str, Callable[[], Path]] = {
    **{
        f"{name}-{'dynamo' if dynamo else 'torchscript'}": functools.partial(models.exported, name, dynamo=dynamo)
        for name in models.EXPORTED
        for dynamo in (True, False)
    },
    "vit-dynamo": functools.partial(models.exported, "vit", dynamo=True),
    "vgg19": functools.partial(models.light, "vgg19"),
    "squeezenet": functools.partial(models.light, "squeezenet"),
    "densenet121": functools.partial(models.light, "densenet121"),
    "inception_v2": functools.partial(models.light, "inception_v2"),
    "detection": models.detection,
    "functions": models.functions,
    "control_flow": models.control_flow,
}
# the height that a graph has in a notebook: a page leaves 190 px to the summary
HEIGHT = 640 + 190
SEEN = """
    const {viewport, state} = view;
    const {bounds, boxes} = viewport.scene;
    const {camera, view: size} = viewport.position;
    const inside = bounds.x >= camera.x - 1 && bounds.y >= camera.y - 1
        && bounds.x + bounds.w <= camera.x + size.w / camera.k + 1
        && bounds.y + bounds.h <= camera.y + size.h / camera.k + 1;
    // two boxes overlap unless one is the scope around the other
    const around = (a, b) => b >= 0 && (a === b || around(a, boxes.parent[b]));
    const meet = (a, b) => boxes.x[a] < boxes.x[b] + boxes.w[b] && boxes.x[b] < boxes.x[a] + boxes.w[a]
        && boxes.y[a] < boxes.y[b] + boxes.h[b] && boxes.y[b] < boxes.y[a] + boxes.h[a];
    const overlaps = [];
    for (let a = 0; a < boxes.count; a++) {
        for (let b = a + 1; b < boxes.count; b++) {
            const titles = [a, b].map((box) => viewport.scene.label(box).title);
            if (meet(a, b) !== around(a, b)) overlaps.push(titles);
        }
    }
    return {boxes: boxes.count, inside, overlaps, zoom: camera.k, open: [...state.open]};
"""


@pytest.fixture(params=[600, pytest.param(900, marks=pytest.mark.rare), 1400])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": request.param + 24, "height": HEIGHT})
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", MODELS)
def test_the_first_view_shows_the_whole_model_legibly(name: str, page: Page, tmp_path: Path) -> None:
    page.goto(ModelGraph(MODELS[name]()).to_html(tmp_path / "page.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    seen = graph.call(SEEN)
    width = page.viewport_size["width"] if page.viewport_size is not None else 0
    graph.root.screenshot(path=SCREENSHOTS / f"opening-{name}-{width - 24}.png")
    assert seen["inside"]
    assert seen["overlaps"] == []
    # a title is 12 px at life size
    assert 12 * seen["zoom"] >= 9
    # a box is what has a frame and a name: a node, a scope, open or closed, an input, an output
    assert 20 <= seen["boxes"] <= 60


def blocks(folder: Path) -> Path:
    """Write two equal layers, the second of which has a node more, a norm, and projections with and without a bias."""
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes: list[onnx.NodeProto] = []

    def add(op: str, name: str, *inputs: str) -> str:
        nodes.append(onnx.helper.make_node(op, [*inputs], [name], name))
        return name

    at = "x"
    for layer in ("/layers.0", "/layers.1"):
        for part, bias in (("q_proj", True), ("k_proj", False), ("v_proj", True)):
            made = add("MatMul", f"{layer}/{part}/MatMul", at, "w")
            at = add("Add", f"{layer}/{part}/Add", made, "w") if bias else made
        for step in range(24 + (layer == "/layers.1")):
            at = add("Relu" if step % 2 else "Neg", f"{layer}/step{step}", at)
    for step in range(8):
        at = add("Exp" if step % 2 else "Abs", f"/norm/step{step}", at)
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4]) for name in ("x", at)]
    graph = onnx.helper.make_graph(nodes, "blocks", ends[:1], ends[1:], [weight])
    path = folder / "blocks.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_first_of_equal_layers_opens_and_a_module_of_one_node_has_its_name(
    browser: Browser, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 924, "height": 700})
    page = context.new_page()
    page.goto(ModelGraph(blocks(tmp_path)).to_html(tmp_path / "page.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    opened = graph.call("return [...view.state.open].map(id => view.columns.nameOf({kind: 'scope', id}));")
    graph.root.screenshot(path=SCREENSHOTS / "opening-blocks.png")
    assert "layers.0" in opened
    assert "layers.1" not in opened
    label = """const {scene} = view.viewport, {boxes} = scene, {id} = view.columns.find(args[0], 'node');
        const box = [...Array(boxes.count).keys()].find(at => boxes.kind[at] === 0 && boxes.id[at] === id);
        return [scene.label(box).title, scene.label(box).sub];"""
    assert graph.call(label, "/layers.0/k_proj/MatMul") == ["MatMul", "k_proj"]
    graph.click("/layers.0/k_proj/MatMul", "node")
    expect(graph.root.get_by_label("Inspector")).to_contain_text("modulek_proj")
    context.close()


def test_an_untouched_view_opens_anew_in_a_new_size_and_a_touched_one_stays(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 1424, "height": HEIGHT})
    page = context.new_page()
    page.goto(ModelGraph(models.exported("resnet50", dynamo=True)).to_html(tmp_path / "page.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    wide = graph.call(SEEN)
    page.set_viewport_size({"width": 624, "height": HEIGHT})
    graph.expect("view.viewport.position.view.w < 640")
    graph.rest()
    narrow = graph.call(SEEN)
    assert narrow["inside"]
    assert narrow["boxes"] < wide["boxes"]
    graph.root.locator(".onnx-nb-canvas").focus()
    graph.call("view.dispatch({type: 'toggle', scope: view.columns.find('classifier', 'scope')?.id ?? 1});")
    chosen = graph.call(SEEN)["open"]
    page.set_viewport_size({"width": 1424, "height": HEIGHT})
    graph.expect("view.viewport.position.view.w > 800")
    graph.rest()
    assert graph.call(SEEN)["open"] == chosen
    context.close()


def test_a_tensor_that_goes_on_in_the_next_column_can_be_clicked_there(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 1424, "height": HEIGHT})
    page = context.new_page()
    page.goto(ModelGraph(models.exported("resnet50", dynamo=True)).to_html(tmp_path / "page.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]').first)
    # the longest upright piece of a line that runs against the flow lies between two columns
    tensor, x, y = graph.call(
        """const {edges} = view.viewport.scene;
           const {camera} = view.viewport.position;
           const {left, top} = view.viewport.element.getBoundingClientRect();
           let best = [null, 0, 0], rise = 100;
           for (let e = 0; e < edges.count; e++) {
               for (let p = edges.ptr[e]; p + 1 < edges.ptr[e + 1]; p++) {
                   const [x0, y0, x1, y1] = edges.points.subarray(2 * p, 2 * p + 4);
                   if (x0 !== x1 || y0 - y1 < rise) continue;
                   rise = y0 - y1;
                   best = [view.columns.valueNameOf(edges.value[e]),
                           left + (x0 - camera.x) * camera.k, top + ((y0 + y1) / 2 - camera.y) * camera.k];
               }
           }
           return best;"""
    )
    assert tensor is not None
    page.mouse.click(x, y)
    graph.expect_selection(tensor)
    context.close()
