"""Two graphs side by side in JupyterLab: a model and its changed version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import onnx
from onnx import helper
from playwright.sync_api import Locator, expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value
from tests.browser.test_accessibility import AXE, violations
from tests.browser.test_picture import SVG, pictures

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage


def edited(path: Path, folder: Path) -> Path:
    """A model with a node added, one removed, and an attribute and a weight changed."""
    made = onnx.load(path)
    nodes = made.graph.node
    convs = [node for node in nodes if node.op_type == "Conv"]
    relus = [node for node in nodes if node.op_type == "Relu"]
    for node in nodes:
        node.input[:] = [relus[1].input[0] if name == relus[1].output[0] else name for name in node.input]
    nodes.remove(relus[1])
    for node in nodes:
        node.input[:] = ["put_in" if name == convs[4].output[0] else name for name in node.input]
    nodes.insert(list(nodes).index(convs[4]) + 1, helper.make_node("Tanh", [convs[4].output[0]], ["put_in"], "put_in"))
    convs[2].attribute.append(helper.make_attribute("auto_pad", "SAME_UPPER"))
    target = folder / f"edited_{path.name}"
    onnx.save(made, target)
    return target


class PairWidget:
    def __init__(self, root: Locator) -> None:
        self.root = root
        expect(root).to_have_attribute("data-state", re.compile("drawn|error"))
        root.scroll_into_view_if_needed()
        self.reference = GraphWidget(root.locator('.onnx-nb[data-widget="reference"]'))
        self.candidate = GraphWidget(root.locator('.onnx-nb[data-widget="candidate"]'))

    def camera(self, side: int) -> dict[str, Any]:
        found: dict[str, Any] = self.root.evaluate(
            "(root, side) => root.onnxNb.views[side].viewport.position.camera", side
        )
        return found


def show(lab: JupyterPage, reference: Path, candidate: Path, name: str = "pair.ipynb") -> PairWidget:
    lab.server.write(name, f"import onnx_nb\np = onnx_nb.DiffPanel({str(reference)!r}, {str(candidate)!r})\np")
    lab.open(name).run_all()
    return PairWidget(lab.widget("pair"))


def test_differences_are_listed_shown_and_gone_through(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    reference = models.light("squeezenet")
    pair = show(lab, reference, edited(reference, tmp_path))
    lab.screenshot(f"pair-{lab.theme}")
    # from the first node to the last, as one graph opens
    for side in (pair.reference, pair.candidate):
        assert all(side.find(name, "tensor") for name in ("data_0", "softmaxout_1"))
    rows = pair.root.locator(".onnx-nb-change")
    expect(rows).to_have_count(3)
    expect(pair.root.get_by_text("3 differences")).to_be_visible()

    # click a difference: both sides show it, and say what it is
    rows.filter(has_text="auto_pad").click()
    for side in (pair.reference, pair.candidate):
        expect(side.root.locator(".onnx-nb-compared")).to_contain_text("auto_pad: NOTSET (default) → SAME_UPPER")
    await_value(lambda: pair.reference.selection == pair.candidate.selection, wanted=True, what="selected in both")
    lab.screenshot(f"pair-changed-{lab.theme}")

    # the keys go on through the list from a graph
    pair.reference.root.locator("canvas").first.focus()
    lab.page.keyboard.press("n")
    expect(pair.root.locator('.onnx-nb-change[aria-current="true"]')).to_contain_text("Tanh")
    pair.candidate.expect_selection("put_in")
    pair.reference.expect_selection(None)
    expect(pair.root.locator(".onnx-nb-pair-note").first).to_contain_text("no such node: Tanh")
    lab.screenshot(f"pair-added-{lab.theme}")
    lab.page.keyboard.press("p")
    expect(pair.root.locator('.onnx-nb-change[aria-current="true"]')).to_contain_text("auto_pad")

    # a filter and the chips
    pair.root.get_by_role("button", name="1 added").click()
    expect(rows).to_have_count(2)
    pair.root.get_by_label("Filter differences").fill("relu")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("removed")


def test_both_graphs_move_open_and_search_in_step(lab: JupyterPage, tmp_path: Path) -> None:
    lab.page.set_viewport_size({"width": 1500, "height": 1000})
    path = models.chain(340)
    made = onnx.load(path)
    tanh = [node for node in made.graph.node if node.op_type == "Gelu"][12]
    tanh.op_type = "Tanh"
    made.graph.node[40].attribute.append(helper.make_attribute("doc", "changed"))
    onnx.save(made, tmp_path / "edited.onnx")
    pair = show(lab, path, tmp_path / "edited.onnx")
    lab.screenshot("pair-scopes")

    def drag(side: GraphWidget, dy: int) -> None:
        side.rest()
        box = side.root.locator("canvas.onnx-nb-canvas").bounding_box()
        assert box is not None
        x, y = box["x"] + 30, box["y"] + box["height"] / 2
        lab.page.mouse.move(x, y)
        lab.page.mouse.down()
        lab.page.mouse.move(x, y + dy, steps=4)
        lab.page.mouse.up()

    def top_of(side: GraphWidget, name: str) -> float:
        box = side.root.locator("canvas.onnx-nb-canvas").bounding_box()
        assert box is not None
        return side.locate(name, "scope")[1] - box["y"]

    # both open as an overview; what is opened on one side is open on the other
    assert pair.reference.find("y", "tensor")
    assert pair.candidate.find("y", "tensor")
    pair.reference.reveal("layers.0/mlp", "scope")
    pair.reference.rest()
    start = pair.camera(0)
    drag(pair.reference, -60)
    assert abs(top_of(pair.reference, "layers.0/mlp") - top_of(pair.candidate, "layers.0/mlp")) < 2
    assert pair.camera(0)["y"] > start["y"]
    lab.page.mouse.move(*pair.candidate.locate("layers.0/mlp", "scope"))
    lab.page.keyboard.down("Control")
    lab.page.mouse.wheel(0, 120)
    lab.page.keyboard.up("Control")
    pair.candidate.expect("view.viewport.position.camera.k < args[0]", True, start["k"])
    pair.reference.rest()
    assert pair.camera(0)["k"] == pair.camera(1)["k"] < start["k"]

    # a scope opened on one side is open on the other, and one closed is closed
    pair.reference.toggle("layers.0/attn")
    is_open = "view.state.open.has(view.columns.find('layers.0/attn', 'scope').id)"
    for side in (pair.reference, pair.candidate):
        side.expect(is_open)
    pair.candidate.click("/layers.0/attn/Softmax")
    lab.page.keyboard.press("Escape")
    pair.candidate.call(
        "view.dispatch({type: 'close', scope: view.columns.find(args[0], 'scope').id})", "layers.0/attn"
    )
    for side in (pair.reference, pair.candidate):
        side.expect(is_open, False)

    # what is selected on one side is on the other, and the kernel knows
    pair.candidate.click("/layers.0/attn/Softmax", "node")
    pair.reference.expect_selection("/layers.0/attn/Softmax")
    expected = [{"side": "candidate", "kind": "node", "name": "/layers.0/attn/Softmax"}]
    lab.kernel.expect("[{k: s[k] for k in ('side', 'kind', 'name')} for s in p.selection]", expected)

    # a search in one is a search in both
    expect(pair.root.get_by_role("button", name="Fit")).to_have_count(1)  # one bar serves both
    pair.root.get_by_role("combobox", name="Search").fill("op:Softmax")
    lab.page.keyboard.press("Enter")
    for side in (pair.reference, pair.candidate):
        side.expect("view.state.hits.length", 20)

    # alone again
    pair.root.get_by_role("button", name="Linked views").click()
    lab.kernel.expect("p.synced", False)
    expect(pair.root.get_by_role("button", name="Fit")).to_have_count(2)
    pair.reference.rest()
    before = [pair.camera(side) for side in (0, 1)]
    drag(pair.reference, -80)
    pair.reference.expect("view.viewport.position.camera.y !== args[0]", True, before[0]["y"])
    pair.reference.rest()
    assert pair.camera(1) == before[1]
    lab.screenshot("pair-alone")


def test_narrow_cells_stack_the_graphs(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    lab.page.set_viewport_size({"width": 700, "height": 1300})
    reference = models.light("squeezenet")
    pair = show(lab, reference, edited(reference, tmp_path))
    pair.reference.rest()
    upper = pair.reference.root.bounding_box()
    lower = pair.candidate.root.bounding_box()
    assert upper is not None
    assert lower is not None
    assert lower["y"] >= upper["y"] + upper["height"]
    pair.root.locator(".onnx-nb-change").first.click()
    lab.screenshot(f"pair-narrow-{lab.theme}")


def test_axe_objects_to_nothing(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    reference = models.light("squeezenet")
    pair = show(lab, reference, edited(reference, tmp_path))
    lab.page.add_script_tag(path=AXE)
    assert violations(pair.root) == [], "at first"
    pair.root.locator(".onnx-nb-change").last.click()
    pair.root.get_by_role("button", name="1 changed").click()
    assert violations(pair.root) == [], "a difference, and a filter"


def test_a_saved_notebook_shows_both_graphs_in_one_picture(lab: JupyterPage, tmp_path: Path) -> None:
    reference = models.light("squeezenet")
    show(lab, reference, edited(reference, tmp_path), "pair-picture.ipynb")
    expect(lab.page.locator("img.onnx-nb-picture")).to_have_count(1)
    lab.command("docmanager:save")
    (svg,) = pictures(lab.server.root / "pair-picture.ipynb")
    texts = [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - we wrote it
    assert {"reference", "candidate"} <= set(texts)
    assert "− removed" in texts
    assert "~ changed" in texts


def test_two_exports_of_one_model(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.page.set_viewport_size({"width": 1600, "height": 1000})
    pair = show(lab, models.exported("bert", dynamo=False), models.exported("bert", dynamo=True))
    lab.screenshot(f"pair-bert-{lab.theme}")
    pair.root.get_by_label("Filter differences").fill("LayerNormalization")
    pair.reference.click("/encoder/layer.3/output/LayerNorm/LayerNormalization", "node")
    pair.candidate.expect("view.state.selection !== null")
    lab.screenshot(f"pair-bert-selected-{lab.theme}")
