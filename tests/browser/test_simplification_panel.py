"""The simplification panel in JupyterLab: changes are selected, undone and redone, and the result is saved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import onnx
from playwright.sync_api import Locator, expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value
from tests.browser.test_accessibility import AXE, violations
from tests.browser.test_picture import SVG, pictures

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

# a Reshape to a computed shape, a BatchNormalization behind its Conv, and an Identity between
SMALL = """
import onnx_nb, onnx.parser, numpy as np
from onnx import helper as h, numpy_helper as n, TensorProto as t
rng = np.random.default_rng(0)
w = lambda name, *shape: n.from_array(np.abs(rng.standard_normal(shape)).astype("f"), name)
part = lambda o: "head" if o in ("s", "f", "z", "c", "y") else "stem"
node = lambda op, i, o, **k: h.make_node(op, i, o, f"/{part(o[0])}/{op}", **k)
nodes = [
    node("Conv", ["x", "w"], ["conv"]), node("BatchNormalization", ["conv", "g", "b", "m", "v"], ["bn"]),
    node("Relu", ["bn"], ["relu"]), node("Identity", ["relu"], ["same"]),
    node("Shape", ["same"], ["s"]), node("Gather", ["s", "zero"], ["f"]), node("Unsqueeze", ["f", "axes"], ["z"]),
    node("Concat", ["z", "rest"], ["c"], axis=0), node("Reshape", ["same", "c"], ["y"]),
]
i64 = lambda name, value: n.from_array(np.array(value, np.int64), name)
weights = [w("w", 4, 3, 3, 3), w("g", 4), w("b", 4), w("m", 4), w("v", 4)]
weights += [i64("zero", 0), i64("axes", [0]), i64("rest", [144])]
graph = h.make_graph(nodes, "small", [h.make_tensor_value_info("x", t.FLOAT, ["batch", 3, 8, 8])],
    [h.make_tensor_value_info("y", t.FLOAT, ["batch", 144])], weights)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
s = onnx_nb.simplify(model, trace=True)
"""


class PanelWidget:
    def __init__(self, lab: JupyterPage, within: Locator | None = None) -> None:
        self.lab = lab
        self.root = lab.widget("simplification", within=within)
        self.root.scroll_into_view_if_needed()
        self.original = GraphWidget(self.root.locator('.onnx-nb[data-widget="reference"]'))
        self.simplified = GraphWidget(self.root.locator('.onnx-nb[data-widget="candidate"]'))
        self.changes = self.root.get_by_role("grid", name="Changes")

    def expect_selected(self, side: int, names: list[str]) -> None:
        """Wait until these nodes and no others are selected, in any order."""
        selected = """(root, side) => { const {state, columns} = root.onnxNb.pair.views[side];
            return [...state.others, state.selection].filter(t => t !== null).map(t => columns.nameOf(t)).sort(); }"""
        await_value(lambda: self.root.evaluate(selected, side), names, "the selection")

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.root.get_by_role("button", name=name)


def show(lab: JupyterPage, code: str, name: str = "simplified.ipynb") -> PanelWidget:
    lab.open(lab.server.write(name, code + "\np = onnx_nb.SimplificationPanel(s)\np")).run_all()
    return PanelWidget(lab)


def test_a_change_is_shown_in_both_graphs_undone_and_done_again(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    panel = show(lab, SMALL)
    lab.screenshot(f"simplification-{lab.theme}")
    expect(panel.root.locator("header").first).to_contain_text("✓ Verified")
    expect(panel.root.locator("header").first).to_contain_text("9 → 3 nodes")
    panel.button(re.compile("^Changes")).click()
    panel.changes.get_by_role("row").filter(has_text="fuse_bn_into_conv").click()
    panel.expect_selected(0, ["/stem/BatchNormalization", "/stem/Conv"])
    lab.screenshot(f"simplification-change-{lab.theme}")

    # the other way round: a box that is marked leads to its change
    panel.original.click("/stem/Identity", "node")
    expect(panel.changes.get_by_role("row", selected=True)).to_contain_text("eliminate_identity")
    lab.kernel.expect("p.change", "eliminate_identity: same")
    # and by the keyboard: what removes the most nodes comes first
    panel.changes.focus()
    lab.page.keyboard.press("Home")
    detail = panel.root.get_by_label("Change", exact=True)
    expect(detail).to_contain_text("its shape is always [0, 144]")
    panel.expect_selected(1, ["/head/Reshape"])
    lab.screenshot(f"simplification-folded-{lab.theme}")

    # undone by a key: the kernel simplifies without it
    lab.page.keyboard.press("u")
    expect(panel.root.locator("header").first).to_contain_text("9 → 5 nodes")
    expect(panel.changes.get_by_role("row").filter(has_text="fold_reshape")).to_have_count(0)
    lab.kernel.expect("(p.skipped, len(p.simplification.model.proto.graph.node))", [["fold_reshape: y"], 5])
    expect(panel.root.get_by_role("group", name="Left out")).to_contain_text("fold_reshape: y")
    lab.screenshot(f"simplification-undone-{lab.theme}")
    panel.button("Redo fold_reshape: y").click()
    expect(panel.root.locator("header").first).to_contain_text("9 → 3 nodes")
    expect(panel.root.get_by_role("group", name="Left out")).to_be_hidden()

    # a whole rule
    panel.changes.get_by_role("row").filter(has_text="fuse_bn_into_conv").click()
    panel.button("Undo the rule (1)").click()
    expect(panel.root.locator("header").first).to_contain_text("9 → 4 nodes")
    lab.page.add_script_tag(path=AXE)
    assert violations(panel.root) == []


def test_the_result_is_saved_and_no_file_is_lost(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    panel = show(lab, SMALL)
    panel.button("Save…").click()
    path = panel.root.get_by_label("Path of the file")
    expect(path).to_have_value("model.simplified.onnx")
    expect(path).to_be_focused()
    target = tmp_path / "simple.onnx"
    path.fill(str(target))
    lab.page.keyboard.press("Enter")
    save_dialog = panel.root.get_by_role("group", name="Save the model")
    expect(save_dialog).to_contain_text(f"to {target}")
    written = onnx.load(target)
    assert [node.op_type for node in written.graph.node] == ["Conv", "Relu", "Reshape"]

    target.write_bytes(b"mine")
    save_dialog.get_by_role("button", name="Save", exact=True).click()
    expect(save_dialog).to_contain_text(f"The file {target} already exists.")
    assert target.read_bytes() == b"mine"
    lab.screenshot(f"simplification-save-{lab.theme}")
    lab.page.add_script_tag(path=AXE)
    assert violations(panel.root) == []
    panel.button("Replace").click()
    expect(save_dialog).to_contain_text("Saved")
    assert onnx.load(target) == written

    path.fill(str(target / "below.onnx"))
    save_dialog.get_by_role("button", name="Save", exact=True).click()
    expect(save_dialog).to_contain_text(str(target))
    expect(save_dialog).not_to_contain_text("Saved")
    path.press("Escape")
    expect(save_dialog).to_be_hidden()
    expect(panel.button("Save…")).to_be_focused()


SLOW = """
import time
import onnx_nb.analysis.simplify.simplify as m
real = m.simplify
def slow(model, *, progress=None, **options):
    for number in range(2000):
        progress(number / 2000, "waiting")
        time.sleep(0.05)
def failing(model, *, progress=None, **options):
    raise onnx_nb.SimplificationError("the disk is full.", advice="Make room.")
m.simplify = slow
"""


def test_an_undo_can_be_cancelled_and_a_failure_is_told(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    panel = show(lab, SMALL + SLOW)
    panel.button(re.compile("^Changes")).click()
    panel.changes.get_by_role("row").filter(has_text="eliminate_identity").click()
    undo = panel.button("Undo this change")
    undo.click()
    strip = panel.root.locator(".onnx-nb-task")
    expect(strip).to_contain_text("waiting")
    expect(undo).to_be_disabled()
    lab.screenshot(f"simplification-busy-{lab.theme}")
    strip.get_by_role("button", name="Cancel").click()
    expect(strip).to_be_hidden()
    expect(undo).to_be_enabled()
    lab.kernel.expect("(len(p.simplification.changes), p.skipped)", [3, []])

    lab.kernel.evaluate("setattr(m, 'simplify', failing)")
    undo.click()
    expect(strip).to_have_attribute("role", "alert")
    expect(strip).to_contain_text("the disk is full. Make room.")
    expect(panel.root.locator("header").first).to_contain_text("9 → 3 nodes")
    lab.page.add_script_tag(path=AXE)
    assert violations(panel.root) == []

    lab.kernel.evaluate("setattr(m, 'simplify', real)")
    undo.click()
    expect(panel.root.locator("header").first).to_contain_text("9 → 4 nodes")
    expect(strip).to_be_hidden()


def test_a_model_of_which_nothing_can_be_simpler(lab: JupyterPage) -> None:
    panel = show(lab, f"import onnx_nb\ns = onnx_nb.simplify({str(models.one_node())!r}, check_n=0)", "nothing.ipynb")
    expect(panel.root.locator("header").first).to_contain_text("! Not verified")
    expect(panel.root.get_by_text("Nothing was changed")).to_be_visible()
    lab.screenshot("simplification-nothing")
    lab.page.add_script_tag(path=AXE)
    assert violations(panel.root) == []


def test_a_saved_notebook_shows_both_graphs_in_one_picture(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 760, "height": 1100})
    show(lab, SMALL, "simplified-picture.ipynb")
    expect(lab.page.locator("img.onnx-nb-picture")).to_have_count(1)
    lab.screenshot("simplification-narrow")
    lab.command("docmanager:save")
    (svg,) = pictures(lab.server.root / "simplified-picture.ipynb")
    texts = [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - we wrote it
    assert "− removed" in texts
    assert "+ new" in texts
    assert "◆ folded in" in texts


def test_steps_have_tabs(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 1150})
    code = f"import onnx_nb\ns = onnx_nb.simplify({str(models.light('squeezenet'))!r}, trace=True)"
    panel = show(lab, code, "steps.ipynb")
    lab.screenshot("simplification-squeezenet")
    panel.root.get_by_role("tab", name="1. fold constants").click()
    expect(panel.root.get_by_role("tab", name="1. fold constants")).to_have_attribute("aria-selected", "true")
    expect(panel.root.locator(".onnx-nb-pane").first).to_contain_text("105 nodes")
    expect(panel.root.locator(".onnx-nb-pane").last).to_contain_text("74 nodes")
    lab.screenshot("simplification-step")
    lab.page.keyboard.press("ArrowRight")
    expect(panel.root.locator(".onnx-nb-pane").first).to_contain_text("74 nodes")
    lab.kernel.expect("p.step", 2)


def test_a_large_model(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.page.set_viewport_size({"width": 1500, "height": 1150})
    code = f"import onnx_nb\ns = onnx_nb.simplify({str(models.exported('bert', dynamo=True))!r})"
    panel = show(lab, code, "large.ipynb")
    lab.screenshot(f"simplification-bert-{lab.theme}")
    panel.button(re.compile("^Changes")).click()
    panel.root.get_by_label("Rule", exact=True).select_option(index=4)
    panel.changes.get_by_role("row").nth(1).click()
    lab.screenshot(f"simplification-bert-change-{lab.theme}")
    panel.button(re.compile("^Operators")).click()
    lab.screenshot(f"simplification-bert-operators-{lab.theme}")
