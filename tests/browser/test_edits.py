"""Edits by clicks: what is selected is edited, the result stands beside the graph, is saved, and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx.parser
from playwright.sync_api import expect

import onnx_nb
from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

PINNED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,4] image) => (float[1,12] scores) <int64[2] shape = {1,12}, float[12] b = {1,2,3,4,5,6,7,8,9,10,11,12}> {
    [act] a = Relu (image)  [drop] d = Dropout (a)  [flat] f = Reshape (d, shape)  [add] scores = Add (f, b) }"""


def open_pinned(lab: JupyterPage, notebook: str, folder: Path) -> None:
    """Show a model whose batch is fixed, as ``g``."""
    path = folder / "pinned.onnx"
    onnx.save(onnx.parser.parse_model(PINNED), path)
    code = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r}, height=520)\ng"
    lab.open(lab.server.write(f"{notebook}.ipynb", code))
    lab.run_all()


def test_a_batch_is_freed_and_a_node_removed_by_clicks(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    open_pinned(lab, "edits", tmp_path)
    graph = GraphWidget(lab.widget("graph"))
    inspector, pane = graph.root.get_by_label("Inspector"), graph.root.get_by_role("region", name="Submodel")
    bar = graph.root.locator(".onnx-nb-extract")
    height = bar.evaluate("bar => bar.clientHeight")

    graph.click("image", "tensor")
    lab.page.keyboard.press("F2")
    field = graph.root.get_by_role("dialog", name="Shape of image").get_by_role("textbox")
    label = graph.call(
        """const {viewport: {scene: {edges}, position: {camera}, scene}, columns} = view;
        const [edge] = scene.edgesOf(columns.find('image', 'tensor').id);
        const {left, top} = root.querySelector('canvas').getBoundingClientRect();
        return [left + (edges.labelX[edge] - camera.x) * camera.k, top + (edges.labelY[edge] - camera.y) * camera.k];"""
    )
    box = field.bounding_box()
    assert box is not None
    assert 0 < label[0] - box["x"] < 20, "the field lies over the label"
    assert abs(box["y"] + box["height"] / 2 - label[1]) < 4
    lab.screenshot(f"edits-shape-{lab.theme}")
    field.press("Escape")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_role("button", name="Free the batch").click()
    expect(bar).to_contain_text("✓ freed batch of image, mended Reshape ×1: in batches")
    expect(pane).to_contain_text("g.edits.model")
    lab.kernel.expect(
        "[list(i.shape) for i in (*g.edits.model.inputs, *g.edits.model.outputs)]", [["batch", 3, 4], ["batch", 12]]
    )

    graph.click("drop", "node")
    inspector.get_by_text("Edit", exact=True).click()
    inspector.get_by_role("button", name="Remove").click()
    expect(bar).to_contain_text("✓ removed 'drop': equal on the same feeds: g.edits.model")
    lab.screenshot("edits")
    assert bar.evaluate("bar => bar.clientHeight") == height, "the cells below do not move"
    lab.kernel.expect("[node.op_type for node in g.edits.model.proto.graph.node]", ["Relu", "Reshape", "Add"])
    pane.get_by_role("button", name="Save…").click()
    saving = pane.get_by_role("group", name="Save the model")
    target = tmp_path / "pinned-edited.onnx"
    expect(saving.get_by_label("Path of the file")).to_have_value(str(target))
    saving.get_by_role("button", name="Save", exact=True).click()
    expect(saving).to_contain_text("Saved")
    assert len(onnx_nb.load(target).proto.graph.node) == 3

    pane.get_by_role("button", name="Undo edit").click()
    expect(bar).to_contain_text("✓ freed batch of image")
    lab.kernel.expect("len(g.edits.model.proto.graph.node)", 4)
    assert lab.errors == []


def test_a_right_click_edits_and_the_list_beside_the_graph_takes_back(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    open_pinned(lab, "menus", tmp_path)
    graph, page = GraphWidget(lab.widget("graph")), lab.page
    pane, bar = graph.root.get_by_role("region", name="Submodel"), graph.root.locator(".onnx-nb-extract")
    menu, notebook_menu = graph.root.get_by_role("menu"), page.locator(".lm-Menu")

    graph.find("drop", "node")
    page.mouse.click(*graph.locate("drop", "node"), button="right")
    expect(menu).to_have_accessible_name("node Dropout")
    expect(menu.get_by_role("menuitem").first).to_be_focused()
    lab.screenshot("menu")
    page.keyboard.press("Escape")
    expect(menu).to_have_count(0)
    expect(notebook_menu).to_have_count(0)
    expect(graph.root.locator("canvas").first).to_be_focused()
    page.keyboard.press("Shift+F10")
    menu.get_by_role("menuitem", name="Remove").click()
    expect(bar).to_contain_text("✓ removed 'drop'")

    graph.click("image", "tensor")
    page.keyboard.press("ContextMenu")
    menu.get_by_role("menuitem", name="Reshape…").click()
    field = graph.root.get_by_role("textbox", name="Shape")
    expect(field).to_have_value("1×3×4")
    field.fill("batch×3×4")
    field.press("Enter")
    expect(bar).to_contain_text("✓ freed batch of image")
    edits = pane.get_by_role("region", name="Edits")
    expect(edits.get_by_role("listitem")).to_have_count(2)
    expect(edits.get_by_role("group", name="Marks")).to_contain_text("1 removed")
    edits.get_by_role("button", name="freed batch of image").click()
    expect(edits.get_by_role("group", name="Marks")).not_to_contain_text("removed")
    edits.get_by_role("button", name="freed batch of image").click()
    expect(edits.get_by_role("group", name="Marks")).to_contain_text("1 removed")
    lab.screenshot("steps")
    edits.get_by_role("button", name="Undo step 1").click()
    expect(edits.get_by_role("listitem")).to_have_count(1)
    lab.kernel.expect("len(g.edits.model.proto.graph.node)", 4)
    lab.kernel.expect("list(g.edits.model.outputs[0].shape)", ["batch", 12])
    pane.get_by_role("button", name="Redo edit").click()
    expect(edits.get_by_role("listitem")).to_have_count(2)

    inspector = graph.root.get_by_label("Inspector").last
    inspector.get_by_role("button", name="Dimension 0").click()
    inspector.get_by_role("textbox", name="Dimension 0").fill("4")
    inspector.get_by_role("textbox", name="Dimension 0").press("Enter")
    expect(bar).to_contain_text("✓ fixed batch = 4")
    lab.kernel.expect("list(g.edits.model.inputs[0].shape)", [4, 3, 4])
    edits.get_by_role("button", name="Undo step 2").click()
    expect(graph.root.get_by_role("alert").first).to_contain_text("step 3 needs step 2")

    edited = GraphWidget(pane.locator(".onnx-nb[data-widget=submodel]"))
    page.mouse.dblclick(*edited.locate("image", "tensor"))
    field = edited.root.get_by_role("textbox", name="Shape")
    expect(field).to_have_value("4×3×4")
    field.press("Escape")
    page.mouse.click(*edited.locate("act", "node"), button="right")
    edited.root.get_by_role("menuitem", name="Rename…").click()
    edited.root.get_by_role("textbox", name="New name").last.fill("first")
    page.keyboard.press("Enter")
    expect(bar).to_contain_text("✓ renamed act → first")
    lab.kernel.expect("g.edits.model.proto.graph.node[0].name", "first")
    assert lab.errors == []


HEAVY = f"""<ir_version: 8, opset_import: ["": 17]>
g (float[512,1024] image) => (float[512,1024] scores) <float[1] one = {{1}}> {{
    [act] a = Relu (image)  [drop] d = Dropout (a)  [turned] t = Transpose (d)  [scale] b0 = Mul (d, one)
    {" ".join(f"[mat{i}] m{i} = MatMul (t, b{i})  [mix{i}] b{i + 1} = MatMul (b{i}, m{i})" for i in range(10))}
    [end] scores = Identity (b10) }}"""


def test_edits_are_proved_in_the_background_and_another_goes_first(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    path = tmp_path / "heavy.onnx"
    onnx.save(onnx.parser.parse_model(HEAVY), path)
    code = "import onnx_nb\nfrom onnx_nb.widgets import _edits\n_edits.SMALL = (0, 0)\n"
    lab.open(lab.server.write("proofs.ipynb", f"{code}g = onnx_nb.ModelGraph({str(path)!r}, height=520)\ng"))
    lab.run_all()
    graph, page = GraphWidget(lab.widget("graph")), lab.page
    bar = graph.root.locator(".onnx-nb-extract")
    steps = graph.root.get_by_role("region", name="Edits").get_by_role("listitem")

    graph.click("drop", "node")
    page.keyboard.press("Shift+F10")
    graph.root.get_by_role("menuitem", name="Remove").click()
    expect(steps).to_have_text(["?removed 'drop' not proved yetUndo"])
    expect(bar).to_contain_text("running the original")
    lab.screenshot("proof")
    graph.click("act", "node")
    page.keyboard.press("Shift+F10")
    graph.root.get_by_role("menuitem", name="Rename…").click()
    graph.root.get_by_role("textbox", name="New name").last.fill("first")
    page.keyboard.press("Enter")
    expect(steps).to_have_count(2)
    expect(steps).to_have_text(
        ["✓removed 'drop' equal on the same feedsUndo", "✓renamed act → first equal on the same feedsUndo"]
    )
    expect(bar).to_contain_text("✓ renamed act → first: equal on the same feeds: g.edits.model")
    lab.screenshot("proved")
    lab.kernel.expect("[step.proof for step in g.edits.steps]", ["equal", "equal"])
    assert lab.errors == []
