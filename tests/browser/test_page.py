"""The exported page: a single file that works from disk and offline, and runs nothing that a model contains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import expect

from onnx_nb import DiffPanel, ModelGraph, SimplificationPanel, capture, simplify
from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import ROOT
from tests.browser.test_accessibility import AXE, violations
from tests.browser.test_pair import PairWidget, edited

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.browser.jupyter import JupyterPage

EVIL = '</script><img src=x onerror="window.broken=1"><script>window.broken=1</script><!--'


def test_a_page_with_statistics_answers_from_disk(offline: Page, tmp_path: Path) -> None:
    g = ModelGraph(models.exported("bert", dynamo=True))
    g._values.known.whole = capture(g.model)
    page = g.to_html(tmp_path / "bert.html", statistics=True)
    offline.goto(page.as_uri())
    graph = GraphWidget(offline.locator('.onnx-nb[data-widget="graph"]').first)
    inspector = graph.root.get_by_label("Inspector")
    weight = max(g.model.initializers.values(), key=lambda info: info.nbytes).name
    graph.call("const t = view.columns.find(args[0], 'tensor'); view.dispatch({type: 'select', target: t});", weight)
    array = g.model.tensor(weight).astype(np.float64)
    expect(inspector).to_contain_text(f"{array.max():.4g}".replace("-", "−"))
    expect(inspector.get_by_role("img", name="Histogram")).to_be_visible()

    node = next(node for node in g.model.proto.graph.node if node.op_type == "Softmax")
    graph.root.get_by_role("searchbox").or_(graph.root.get_by_placeholder("Search")).first.fill("op:Softmax")
    offline.keyboard.press("Enter")
    # else what is found might come after the click, and be selected
    graph.expect("view.columns.opOf(view.state.selection.id)", "Softmax")
    graph.click(node.output[0], "tensor")
    expect(inspector).to_contain_text("captured, 1 run")
    graph.click(node.name, "node")
    for text in ("modeling_bert.py:", "axis", "FLOPs", "of the run"):
        expect(inspector).to_contain_text(text)
    inspector.get_by_text("Documentation").click()
    expect(inspector).to_contain_text("normalized exponential")
    theme = "dark" if offline.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    offline.screenshot(path=ROOT / "build" / "screenshots" / f"page-statistics-{theme}.png")


def test_texts_of_a_model_are_dead_in_its_page(offline: Page, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.arange(40, dtype=np.float32), EVIL)
    info = helper.make_tensor_value_info
    node = helper.make_node("Mul", ["x", EVIL], [f"y{EVIL}"], f"/{EVIL}/Mul", doc_string=EVIL)
    custom = helper.make_node("Mine", [f"y{EVIL}"], ["z"], EVIL, domain="evil", text=EVIL)
    graph = helper.make_graph(
        [node, custom],
        EVIL,
        [info("x", TensorProto.FLOAT, [40])],
        [info("z", TensorProto.FLOAT, [EVIL])],
        [weight],
        doc_string=EVIL,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("evil", 1)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name=EVIL, doc_string=EVIL)
    onnx.save(model, tmp_path / "evil.onnx")
    path = ModelGraph(tmp_path / "evil.onnx").to_html(tmp_path / "evil.html", statistics=True)
    offline.goto(path.as_uri())
    view = GraphWidget(offline.locator('.onnx-nb[data-widget="graph"]').first)
    inspector = view.root.get_by_label("Inspector")
    select = "const t = view.columns.find(args[0], args[1]); view.dispatch({type: 'select', target: t});"
    for name, kind in ((EVIL, "tensor"), (f"y{EVIL}", "tensor"), (f"/{EVIL}/Mul", "node"), (EVIL, "node")):
        view.call(select, name, kind)
        expect(inspector).to_contain_text("onerror")
    view.call(select, EVIL, "tensor")
    expect(inspector).to_contain_text("19.5 ± 11.54")
    assert offline.evaluate("window.broken") is None
    assert offline.locator("img, .onnx-nb script").count() == 0


def test_a_pair_is_one_page_from_disk(offline: Page, tmp_path: Path) -> None:
    path = models.light("resnet50")
    pair = DiffPanel(path, edited(path, tmp_path))
    offline.goto(pair.to_html(tmp_path / "pair.html").as_uri())
    view = PairWidget(offline.locator('.onnx-nb[data-widget="pair"]'))
    expect(view.root.locator(".onnx-nb-change")).to_have_count(len(pair.differences.changes))
    attribute = view.root.locator(".onnx-nb-change").filter(has_text="auto_pad")
    attribute.click()
    for side in (view.reference, view.candidate):
        side.expect("view.state.selection !== null")
        expect(side.root.locator(".onnx-nb-compared")).to_contain_text("NOTSET (default) → SAME_UPPER")
    expect(view.candidate.root.get_by_label("Inspector")).to_contain_text("MACs")
    view.reference.rest()
    theme = "dark" if offline.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    view.root.get_by_role("button", name="Color by MACs").filter(visible=True).click()
    expect(view.candidate.root.get_by_role("group", name="Colors: MACs")).to_be_visible()
    offline.screenshot(path=ROOT / "build" / "screenshots" / f"page-pair-color-{theme}.png")
    view.root.get_by_role("button", name="Color by Kind").filter(visible=True).click()
    expect(view.candidate.root.get_by_role("group", name="Colors: MACs")).to_have_count(0)
    before = view.camera(1)
    view.reference.root.locator(".onnx-nb-canvas").focus()
    offline.keyboard.press("+")
    view.candidate.expect("view.viewport.position.camera.k > args[0]", True, before["k"])
    offline.evaluate(AXE.read_text(encoding="utf-8"))
    assert violations(view.root) == []
    offline.screenshot(path=ROOT / "build" / "screenshots" / f"page-pair-{theme}.png")


def test_a_simplification_is_one_page_from_disk(offline: Page, tmp_path: Path) -> None:
    panel = SimplificationPanel(simplify(models.light("resnet50"), trace=True))
    offline.goto(panel.to_html(tmp_path / "simplified.html").as_uri())
    root = offline.locator('.onnx-nb[data-widget="simplification"]')
    expect(root).to_have_attribute("data-state", "drawn")
    expect(root).to_contain_text("Verified")
    root.get_by_role("button", name="Changes (").click()
    root.get_by_role("grid", name="Changes").locator("[data-row]").first.click()
    # the other rules remove constants only, which are drawn inside the nodes that read them
    expect(root.get_by_label("Change", exact=True)).to_contain_text("fuse_bn_into_conv")
    for name in ("Save…", "Undo"):
        expect(root.get_by_role("button", name=name).first).to_be_disabled()
    expect(root.get_by_role("button", name="Save…")).to_have_attribute("title", re.compile("no kernel"))
    tabs = root.get_by_role("tab")
    expect(tabs).to_have_count(len(panel.simplification.steps))
    tabs.nth(1).click()
    expect(root).to_have_attribute("data-state", "drawn")
    expect(root.locator(".onnx-nb-pane > header").first).to_contain_text("original")
    offline.evaluate(AXE.read_text(encoding="utf-8"))
    assert violations(root) == []
    theme = "dark" if offline.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    offline.screenshot(path=ROOT / "build" / "screenshots" / f"page-simplification-{theme}.png")


def test_a_page_is_saved_from_the_menu_with_what_the_kernel_knows(lab: JupyterPage, tmp_path: Path) -> None:
    path = models.exported("bert", dynamo=True)
    lab.open(lab.server.write("page.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    graph.press("Save")
    with lab.page.expect_download() as download:
        graph.root.get_by_role("menuitem", name="HTML page with statistics").click()
    download.value.save_as(tmp_path / "page.html")
    assert download.value.suggested_filename == "bert.html"
    page = ModelGraph(path).to_html(tmp_path / "other.html", statistics=True)
    saved, written = ((tmp_path / name).read_text() for name in ("page.html", page.name))
    assert saved.split('id="onnx-nb-columns"')[1] == written.split('id="onnx-nb-columns"')[1]
    assert lab.errors == []
