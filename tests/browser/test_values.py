"""Captured values: capture by a click, statistics, the table of numbers, and the saved file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

from tests import models
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
