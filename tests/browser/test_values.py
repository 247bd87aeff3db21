"""Captured values: capture by a click, statistics, the table of numbers, and the saved file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper
from playwright.sync_api import expect

from tests import models
from tests.analysis.generate import packages
from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

FEEDS = "g.feeds = {'pixel_values': __import__('numpy').ones((1, 3, 224, 224), 'float32')}"


def test_a_click_captures_a_tensor_and_shows_its_numbers(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    path = models.exported("resnet50", dynamo=True)
    lab.open(lab.server.write("values.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    lab.kernel.run(FEEDS)
    name = lab.kernel.evaluate("next(n.output[0] for n in g.model.proto.graph.node if n.op_type == 'MaxPool')")
    graph.click(name, "tensor")
    graph.press("Capture")
    panel = graph.root.get_by_label("Values", exact=True)
    expect(panel).to_contain_text("captured, 1 run on your feeds")
    graph.press("Values")
    expect(panel.locator("td").first).to_be_in_viewport()
    lab.screenshot(f"values-{lab.theme}", graph.root)
    below = panel.get_by_role("button", name="Rows after")
    below.click()
    expect(panel.locator("tbody th").first).to_have_text("16")
    expect(below).to_be_in_viewport()
    panel.get_by_role("button", name="Rows before").click()
    expect(panel.locator("tbody th").first).to_have_text("0")
    with lab.page.expect_download() as download:
        graph.press("Save .npy")
    download.value.save_as(tmp_path / "value.npy")
    lab.kernel.run(f"expected = onnx_nb.capture(g.model, g.feeds, tensors={name!r}, keep={name!r})[{name!r}]")
    saved = np.load(tmp_path / "value.npy")
    assert list(saved.shape) == lab.kernel.evaluate("list(expected.shape)")
    assert saved.astype(np.float64).sum() == lab.kernel.evaluate("float(expected.astype('float64').sum())")
    assert panel.locator("td").first.inner_text() == f"{saved[0, 0, 0, 0]:.6g}"

    # a weight needs no run
    weight = lab.kernel.evaluate("g.model.tensor_names('*weight')[0]")
    graph.call("const t = view.columns.find(args[0], 'tensor'); view.dispatch({type: 'select', target: t});", weight)
    expect(panel).to_contain_text("mean ± std")
    expect(panel.get_by_role("img", name="Histogram")).to_be_visible()
    assert lab.errors == []


def test_everything_is_captured_with_progress_and_colored(lab: JupyterPage) -> None:
    path = models.exported("bert", dynamo=True)
    lab.open(lab.server.write("all.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    graph.press("Capture")
    expect(graph.root.get_by_role("button", name="Capture again")).to_be_visible()
    assert lab.kernel.evaluate("len(g.captured) > 100") is True
    graph.root.get_by_role("button", name="Color by Values").click()
    expect(graph.root.get_by_role("group", name="Colors: std")).to_be_visible()
    name = lab.kernel.evaluate("next(n.output[0] for n in g.model.proto.graph.node if n.op_type == 'Softmax')")
    graph.click(name, "tensor")
    expect(graph.root.get_by_label("Values", exact=True)).to_contain_text("random inputs")
    lab.screenshot("captured-all", graph.root)
    assert lab.errors == []


def test_the_heads_of_an_attention_and_packed_weights_are_seen(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    wrong = packages.four_bits(packages.decoder(2, window=8))
    name = "model/layers.0/attn/o_proj.weight"
    scales = next(tensor for tensor in wrong.graph.initializer if tensor.name == f"{name}_scales")
    array = numpy_helper.to_array(scales).copy()
    array[7, 1] *= 2
    scales.CopyFrom(numpy_helper.from_array(array, scales.name))
    onnx.save(packages.decoder(2, window=8), tmp_path / "right.onnx")
    onnx.save(wrong, tmp_path / "wrong.onnx")
    code = f"""import onnx_nb
c = onnx_nb.compare_decoding({str(tmp_path / "right.onnx")!r}, {str(tmp_path / "wrong.onnx")!r}, steps=4)
d = onnx_nb.decode({str(tmp_path / "wrong.onnx")!r}, list(range(20)), 3)
g = onnx_nb.ModelGraph(c.models[1])
g.feeds = d.feeds(0)
g"""
    lab.open(lab.server.write("inside.ipynb", code)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    node = "next(n for n in g.model.proto.graph.node if n.op_type == 'GroupQueryAttention')"
    select = "const t = view.columns.find(args[0], 'tensor'); view.dispatch({type: 'select', target: t});"
    graph.call(select, lab.kernel.evaluate(f"{node}.output[0]"))
    panel = graph.root.get_by_label("Values", exact=True)
    graph.press("Capture")
    panel.get_by_role("button", name="Values").click()
    panel.get_by_role("button", name="Attention").click()
    expect(panel.get_by_role("button", name="Channels")).to_have_attribute("aria-pressed", "true")
    panel.locator("canvas").scroll_into_view_if_needed()
    lab.screenshot(f"attention-{lab.theme}", graph.root)
    panel.locator("canvas.onnx-nb-tiles").click(position={"x": 5, "y": 5})
    expect(panel.get_by_role("button", name="One slice")).to_have_attribute("aria-pressed", "true")
    expect(panel.get_by_role("button", name="Attention")).to_have_attribute("aria-pressed", "true")
    lab.kernel.run(f"p = onnx_nb.capture(g.model, g.feeds, keep='*').attention({node}.name)")
    assert panel.locator("td").first.inner_text() == lab.kernel.evaluate("f'{p[0, 0, 0, 0]:.6g}'")
    lab.screenshot(f"attention-head-{lab.theme}", graph.root)
    graph.call(select, f"{name}_Q4")
    expect(panel).to_contain_text("dequantized to")
    panel.get_by_role("button", name="Values").click()
    expect(panel.get_by_role("button", name="Dequantized")).to_have_attribute("aria-pressed", "true")
    panel.locator("canvas").scroll_into_view_if_needed()
    lab.screenshot(f"dequantized-{lab.theme}", graph.root)
    panel.get_by_role("button", name="Error by block").click()
    expect(panel.get_by_role("button", name="Error by block")).to_have_attribute("aria-pressed", "true")
    panel.locator("canvas").scroll_into_view_if_needed()
    lab.screenshot(f"block-errors-{lab.theme}", graph.root)
    assert lab.errors == []
