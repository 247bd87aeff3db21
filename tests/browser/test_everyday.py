"""What people do on an ordinary day: each of these once led nowhere, or left them without a reply."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

# nodes of the submodel in the kernel; none without one
SUBMODEL = "g.submodel and len(g.submodel.proto.graph.node)"


def test_a_graph_inside_an_output_widget_is_seen_and_so_is_all_around_it(lab: JupyterPage) -> None:
    path = models.light("squeezenet")
    source = f"""
        import ipywidgets, onnx_nb
        from IPython.display import display
        output = ipywidgets.Output()
        with output:
            print("before the graph")
            display(onnx_nb.ModelGraph({str(path)!r}, height=300))
        ipywidgets.VBox([ipywidgets.Label("around the graph"), output])""".replace("\n        ", "\n")
    lab.open(lab.server.write("output.ipynb", source.strip())).run_all()
    GraphWidget(lab.widget("graph"))
    for text in ("before the graph", "around the graph"):
        expect(lab.cell(0).get_by_text(text, exact=True)).to_be_visible()
    picture = lab.cell(0).locator('.onnx-nb-picture, img[src^="data:image/gif"]')  # drawn, or still empty
    expect(picture).to_have_count(1)
    expect(picture).to_be_hidden()
    lab.screenshot("in-output")
    assert lab.errors == []


def test_one_click_extracts_a_node_a_scope_and_a_selection_and_undo_takes_it_back(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1400, "height": 900})
    path = models.exported("resnet50", dynamo=True)
    lab.open(lab.server.write("extract.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    pane = graph.root.get_by_role("region", name="Submodel")
    bar = graph.root.locator(".onnx-nb-extract")
    nodes, scope = graph.call("""
        const {columns} = view, ids = [...Array(columns.nodeCount).keys()];
        const nameOf = (kind, id) => columns.nameOf({kind, id});
        const nodes = ids.filter(id => nameOf('node', id) !== '' && view.locate(nameOf('node', id), 'node'));
        const scopes = [...Array(columns.scopeCount).keys()].filter(id => id > 0 && columns.scopeNodes[id] > 4);
        return [nodes.slice(0, 2).map(id => nameOf('node', id)),
                nameOf('scope', scopes.find(id => view.locate(nameOf('scope', id), 'scope')))];""")

    graph.click(nodes[0], "node")
    graph.root.get_by_label("Inspector").get_by_role("button", name="Extract", exact=True).click()
    expect(pane).to_contain_text("g.submodel")
    expect(bar).to_be_in_viewport()
    expect(bar).to_contain_text("✓ Extracted 1 node")
    lab.kernel.expect(SUBMODEL, 1)
    lab.screenshot("extract-node")

    graph.click(scope, "scope")
    graph.root.get_by_label("Inspector").get_by_role("button", name="Extract", exact=True).click()
    count = graph.call("return view.columns.scopeNodes[view.columns.find(args[0], 'scope').id];", scope)
    lab.kernel.expect(SUBMODEL, count)
    expect(pane).to_contain_text(f"{count} nodes")
    lab.screenshot("extract-scope")

    graph.root.get_by_role("button", name="Undo", exact=True).click()
    lab.kernel.expect(SUBMODEL, 1)
    expect(pane).to_contain_text("1 node")
    graph.root.get_by_role("button", name="Undo", exact=True).click()
    lab.kernel.expect("[g.submodel is None, g.inputs, g.outputs]", [True, [], []])
    expect(pane).to_be_hidden()

    graph.click(nodes[0], "node")
    lab.page.keyboard.down("Control")
    lab.page.mouse.click(*graph.locate(nodes[1], "node"))
    lab.page.keyboard.up("Control")
    graph.root.get_by_role("button", name="Extract these").click()
    lab.kernel.expect(SUBMODEL, 2)
    expect(pane).to_be_visible()
    assert lab.errors == []


def test_a_node_inside_a_body_is_extracted_by_one_click(lab: JupyterPage) -> None:
    """The parts of an If can be taken out as those of the main graph."""
    source = (
        f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.control_flow())!r}, height=420, view={{'open': ['*']}})\ng"
    )
    lab.open(lab.server.write("body.ipynb", source)).run_cell(0)
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    graph.click("/loop/then/Mul", "node")
    graph.root.get_by_label("Inspector").get_by_role("button", name="Extract", exact=True).click()
    expect(graph.root.get_by_role("region", name="Submodel")).to_contain_text("1 node")
    lab.kernel.expect("[g.inputs, g.outputs, len(g.submodel.proto.graph.node)]", [["carried"], ["m"], 1])
    lab.screenshot("extract-in-a-body")
    assert lab.errors == []


def test_a_second_view_shows_the_selection_as_the_first_one_does(lab: JupyterPage) -> None:
    path = models.exported("bert", dynamo=True)
    source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r}, height=420)\ng"
    lab.open(lab.server.write("second.ipynb", source, "g")).run_cell(0)
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    node = graph.call("""
        const {columns} = view, nameOf = id => columns.nameOf({kind: 'node', id});
        return [...Array(columns.nodeCount).keys()].map(nameOf).findLast(name => view.locate(name, 'node'));""")
    graph.click(node, "node")
    lab.run_cell(1)
    second = GraphWidget(lab.widget("graph", within=lab.cell(1)))
    second.expect_selection(node)
    assert second.find(node, "node") is not None
    second.expect("view.viewport.layout", graph.call("return view.viewport.layout;"))
    lab.screenshot("second-view", second.root)

    # a module is selected as a whole: all of it is in view
    scope = second.call("return view.columns.nameOf({kind: 'scope', id: view.columns.childrenOf(0)[0]});")
    largest = second.call("""
        const {columns} = view, scopes = [...Array(columns.scopeCount).keys()].slice(1);
        const nameOf = id => columns.nameOf({kind: 'scope', id});
        scopes.sort((a, b) => columns.scopeNodes[b] - columns.scopeNodes[a]);
        return nameOf(scopes.find(id => !view.state.open.has(id) && view.locate(nameOf(id), 'scope')));""")
    assert scope
    second.click(largest, "scope")
    second.press("Select all in it")
    second.expect("view.state.others.length > 0")
    second.rest()
    outside = """
        const {scene, position: {camera: {x, y, k}, view: {w, h}}} = view.viewport, {boxes} = scene;
        const scope = view.columns.find(args[0], 'scope').id;
        return [...Array(boxes.count).keys()].filter(box => boxes.id[box] === scope && boxes.kind[box] === 2)
            .filter(box => boxes.x[box] < x || boxes.y[box] < y || boxes.x[box] + boxes.w[box] > x + w / k
                || boxes.y[box] + boxes.h[box] > y + h / k).length;"""
    # each view would undo what was done in the other, if it reported where that took it
    at = "return [view.viewport.position.camera, view.state.others.length];"
    await_value(lambda: graph.call(at) == second.call(at), True, "the first view at the place of the second")
    assert second.call(outside, largest) == 0
    lab.screenshot("select-all", second.root)
    assert lab.errors == []


def test_a_capture_says_when_it_is_done_and_the_numbers_that_color_are_on_the_picture(
    lab: JupyterPage, tmp_path: Path
) -> None:
    path = models.light("squeezenet")
    lab.open(lab.server.write("done.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    graph.press("Capture")
    bar = graph.root.locator(".onnx-nb-extract")
    expect(bar).to_contain_text(re.compile(r"✓ Captured \d+ values in 1 run on random inputs"))
    expect(bar).to_be_in_viewport()
    lab.screenshot("captured", graph.root)
    graph.root.get_by_label("Color", exact=True).select_option("seconds")
    legend = graph.root.get_by_role("group", name="Colors: seconds")
    expect(legend).to_be_visible()
    graph.root.get_by_role("button", name="Save", exact=True).click()
    with lab.page.expect_download() as download:
        graph.root.get_by_role("menuitem", name="SVG, this view").click()
    download.value.save_as(tmp_path / "colored.svg")
    svg = (tmp_path / "colored.svg").read_text(encoding="utf-8")
    low, high = legend.locator(".onnx-nb-scale-range > span").all_inner_texts()
    for text in ("seconds", low, high):
        assert f">{text}<" in svg
    with lab.page.expect_download() as download:
        graph.root.get_by_role("button", name="Save", exact=True).click()
        graph.root.get_by_role("menuitem", name="PNG, this view").click()
    download.value.save_as("build/screenshots/colored.png")
    assert lab.errors == []


def test_a_capture_and_a_profile_run_on_the_sizes_that_are_typed_in(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    source = """
        import onnx, onnx_nb
        model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
        g (float[batch, 3, h, w] picture, float[a, b] mask) => (float[batch, 3, h, w] y) { y = Relu(picture) }''')
        for dim in model.graph.input[1].type.tensor_type.shape.dim:
            dim.dim_param = "?"
        g = onnx_nb.ModelGraph(model)
        g""".replace("\n        ", "\n")
    lab.open(lab.server.write("sizes.ipynb", source.strip())).run_all()
    graph = GraphWidget(lab.widget("graph"))
    sizes = graph.root.get_by_role("group", name="Sizes of inputs")
    batch, mask = sizes.get_by_label("Size of batch"), sizes.get_by_label("Size of mask")
    lab.kernel.expect(
        "[*onnx_nb.random_feeds(model)['picture'].shape[:1]]", [int(batch.get_attribute("placeholder") or 0)]
    )
    expect(mask).to_have_attribute("placeholder", re.compile(r"^\d+×\d+$"))
    batch.focus()
    batch.press("2")  # no command to the notebook
    batch.press("Tab")
    expect(sizes.get_by_label("Size of h")).to_be_focused()
    mask.fill("4x5")
    graph.press("Capture")
    expect(graph.root.locator(".onnx-nb-extract")).to_contain_text(re.compile("✓ Captured 3 values in 1 run"))
    lab.kernel.expect("g.shapes", {"batch": 2, "mask": [4, 5]})
    lab.kernel.expect("[g.captured.statistics('mask').count, g.captured.statistics('y').count % 2]", [20, 0])
    lab.screenshot(f"sizes-{lab.theme}", graph.root)
    graph.press("Profile")
    expect(graph.root.locator(".onnx-nb-extract")).to_contain_text("feeds: random")
    expect(graph.root.locator(".onnx-nb-scale-range")).to_be_visible()
    lab.kernel.expect("g.view.get('color')", "time")
    lab.screenshot(f"profiled-{lab.theme}", graph.root)
    batch.fill("two")
    batch.press("Enter")
    expect(sizes.get_by_role("alert")).to_contain_text("sizes are whole numbers from 0")
    lab.screenshot(f"sizes-wrong-{lab.theme}", graph.root)
    lab.kernel.expect("g.shapes", {"batch": 2, "mask": [4, 5]})
    assert lab.errors == []


def test_help_opens_at_its_top_and_a_shut_tree_is_no_tab_stop(lab: JupyterPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 700})
    path = models.light("squeezenet")
    lab.open(lab.server.write("help.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    graph.press("Help")
    dialog = graph.root.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert dialog.evaluate("dialog => [dialog.scrollTop, dialog.scrollHeight > dialog.clientHeight]") == [0, True]
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    lab.screenshot("help", graph.root)
    lab.page.keyboard.press("Escape")

    focused = "root => [...root.querySelectorAll('[role=tree]')].includes(document.activeElement)"
    graph.root.get_by_role("button", name="Tree").focus()
    for _ in range(25):
        lab.page.keyboard.press("Tab")
        assert not graph.root.evaluate(focused)
    graph.press("Tree")
    lab.page.keyboard.press("Shift+Tab")
    graph.root.get_by_role("button", name="Help").focus()
    lab.page.keyboard.press("Tab")
    assert graph.root.evaluate(focused), "an open tree is one"

    # all of it fits the window: the colors and the bar for extraction, too
    for part in (".onnx-nb-bar", ".onnx-nb-legend", ".onnx-nb-extract"):
        expect(graph.root.locator(part).first).to_be_in_viewport(ratio=1)
    assert lab.errors == []


def test_a_missing_data_file_is_in_the_audit_and_a_warning_at_the_graph(lab: JupyterPage) -> None:
    path = models.exported("bert", dynamo=True)
    made = (
        "import onnx_nb, pathlib, tempfile\nfolder = pathlib.Path(tempfile.mkdtemp())\n"
        f"onnx_nb.external_data.convert({str(path)!r}, folder / 'm.onnx', location='weights.bin')\n"
        "(folder / 'weights.bin').unlink()\nonnx_nb.ModelGraph(folder / 'm.onnx', height=300)"
    )
    lab.open(lab.server.write("lost.ipynb", made, "onnx_nb.external_data.audit(folder / 'm.onnx')")).run_all()
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    warning = graph.root.locator(".onnx-nb-warn")
    expect(warning).to_contain_text("weights.bin")
    lab.screenshot("lost-graph", graph.root)
    warning.get_by_role("button", name="1 fault").click()
    expect(warning.locator("li")).to_contain_text("Put the file there")
    panel = lab.widget("external_data", within=lab.cell(1))
    row = panel.get_by_role("table", name="Files").get_by_role("row").filter(has_text="weights.bin")
    expect(row).to_contain_text("missing")
    lab.screenshot("lost-audit", panel)
    assert lab.errors == []


def test_hundreds_of_changes_are_listed_by_rule_and_place_and_undone_by_kind(lab: JupyterPage, tmp_path: Path) -> None:
    path = models.exported("bert", dynamo=False)
    source = f"import onnx_nb\np = onnx_nb.SimplificationPanel(onnx_nb.simplify({str(path)!r}))\np"
    lab.open(lab.server.write("changes.ipynb", source)).run_all()
    panel = lab.widget("simplification")
    panel.get_by_role("button", name="Changes (").click()
    grid = panel.get_by_role("grid", name="Changes")
    rows, changes = (
        int(grid.get_attribute("aria-rowcount") or 0) - 1,
        lab.kernel.evaluate("len(p.simplification.changes)"),
    )
    assert 5 < rows < 0.2 * changes
    rules = grid.locator("[data-row] > :nth-child(2)").all_inner_texts()
    assert len(set(rules)) > 2, "the first screen is not of one rule"
    lab.screenshot("changes", panel)
    clipped = "grid => grid.scrollWidth > grid.clientWidth + 1"
    assert not grid.evaluate(clipped), "no column is cut off"

    first = grid.get_by_role("row").filter(has=lab.page.locator("[data-kind]")).first
    times = int(re.sub(r"\D", "", first.locator("button").inner_text()))
    first.locator("button").click()
    expect(grid).to_have_attribute("aria-rowcount", str(rows + times))
    first.get_by_role("gridcell").nth(1).click()
    lab.screenshot("changes-opened", panel)

    # saved, then changed: what was said of the other result is gone
    panel.get_by_role("button", name="Save…").click()
    panel.get_by_label("Path of the file").fill(str(tmp_path / "simple.onnx"))
    lab.page.keyboard.press("Enter")
    saved = panel.get_by_role("group", name="Save the model")
    expect(saved).to_contain_text("Saved")
    panel.get_by_role("button", name=f"Undo all of this kind ({times})").click()
    lab.kernel.expect("len(p.skipped)", times)
    expect(saved).not_to_contain_text("Saved")
    assert lab.errors == []
