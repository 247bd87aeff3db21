"""Working in the graph: rectangle selection, paths between two nodes, bookmarks, undo, and touch."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Literal

import onnx.parser
import pytest
from playwright.sync_api import expect

import onnx_nb
from onnx_nb.analysis.view.inspection import select
from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import SCREENSHOTS, await_value

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, CDPSession

    from tests.browser.jupyter import JupyterPage

# two branches that meet, and one that goes its own way
FORK = """<ir_version: 8, opset_import: ["": 17]>
fork (float[2, 3] x) => (float[2, 3] z, float[2, 3] w) {
    a = Relu(x)  b = Neg(a)  c = Abs(a)  z = Add(b, c)  w = Exp(x)
}"""


def named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Name every node after its output, as exporters do."""
    for node in proto.graph.node:
        node.name = f"node_{node.output[0]}"
    return proto


def test_many_boxes_are_selected_measured_and_cut_out(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    path = models.exported("resnet50", dynamo=True)
    lab.open(lab.server.write("many.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    nodes = graph.call("""
        const { columns } = view;
        const convs = [...Array(columns.nodeCount).keys()].filter(n => columns.opOf(n) === 'Conv').slice(4, 6);
        for (const id of convs) await view.reveal(columns.nameOf({kind: 'node', id}));
        view.dispatch({type: 'fit'});
        return convs.map(id => [id, columns.nameOf({kind: 'node', id})]);""")
    (first, _), (second, _) = nodes
    lab.page.mouse.click(*graph.locate(nodes[0][1], "node"))
    lab.page.mouse.move(*graph.locate(nodes[1][1], "node"))
    lab.page.keyboard.down("Control")
    lab.page.mouse.click(*graph.locate(nodes[1][1], "node"))
    lab.page.keyboard.up("Control")
    panel = graph.root.get_by_role("complementary", name="Selection")
    expect(panel).to_contain_text("2 nodes")
    expect(panel.get_by_role("button", name="Extract these")).to_be_enabled()
    made = select(path, [first, second])
    for label, text in made.rows:
        expect(panel).to_contain_text(f"{label}{text}")
    lab.screenshot(f"selection-{lab.theme}", graph.root)
    lab.kernel.expect("[each['name'] for each in g.selection]", [name for _, name in nodes])

    panel.get_by_role("button", name="Extract these").click()
    lab.kernel.expect("g.submodel is not None")
    lab.kernel.expect("[g.inputs, g.outputs]", [made.inputs, made.outputs])
    assert lab.kernel.evaluate("len([n for n in g.submodel.proto.graph.node if n.op_type == 'Conv'])") == 2
    lab.page.get_by_role("button", name="Close submodel").click()
    graph.root.locator(".onnx-nb-canvas").focus()
    lab.page.keyboard.press("Control+z")
    lab.kernel.expect("[g.inputs, g.outputs]", [[], []])
    lab.page.keyboard.press("Control+z")
    graph.expect("view.state.others.length", 0)

    # a frame around all that is in view takes every box in it
    drawn = graph.call("return view.state.open.size;")
    graph.rest()
    box = graph.root.locator(".onnx-nb-canvas").bounding_box()
    assert box is not None
    lab.page.keyboard.down("Shift")
    lab.page.mouse.move(box["x"] + 3, box["y"] + 3)
    lab.page.mouse.down()
    lab.page.mouse.move(box["x"] + box["width"] - 3, box["y"] + box["height"] - 130, steps=4)
    lab.screenshot(f"frame-{lab.theme}", graph.root)
    lab.page.mouse.up()
    lab.page.keyboard.up("Shift")
    graph.expect("view.state.others.length > 5")
    graph.expect("view.state.open.size", drawn)
    expect(panel).to_contain_text("Conv")

    legend = graph.root.get_by_role("group", name="Colors of op categories")
    legend.get_by_role("button", name="activation").click()
    relus = sum(node.op_type == "Relu" for node in onnx_nb.load(path).proto.graph.node)
    graph.expect("view.state.hits.filter(h => view.columns.opOf(h.id) === 'Relu').length", relus)
    lab.screenshot(f"lit-{lab.theme}", graph.root)
    legend.get_by_role("button", name="activation").click()
    graph.expect("view.state.hits.length", 0)
    assert lab.errors == []


def test_a_submodel_is_cut_out_by_keys_alone_and_all_of_it_is_announced(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    path = models.light("resnet50")
    lab.open(lab.server.write("keys.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    keys = lab.page.keyboard
    voice = graph.root.locator(":scope > .onnx-nb-live")
    cut = "[g.inputs, g.outputs]"
    focused = "root => root.contains(document.activeElement) ? document.activeElement.className : ''"

    # from the notebook into the graph, and to its picture
    for _ in range(60):
        if "onnx-nb-canvas" in graph.root.evaluate(focused):
            break
        keys.press("Tab")
    assert "onnx-nb-canvas" in graph.root.evaluate(focused), "Tab leads to the picture"
    outline = graph.root.locator(".onnx-nb-canvas").evaluate("canvas => getComputedStyle(canvas).outlineStyle")
    assert outline != "none", "it is seen where the focus is"

    keys.press("?")
    expect(graph.root.get_by_role("dialog")).to_be_visible()
    keys.press("Escape")

    # find a Conv, then walk along the flow
    proto = onnx.load(path, load_external_data=False)
    conv = [node for node in proto.graph.node if node.op_type == "Conv"][5]
    keys.press("/")
    keys.type(f"op:Conv name:{conv.name}")
    keys.press("Enter")
    expect(voice).to_contain_text("node Conv")
    graph.rest()  # the keys walk along what is drawn
    keys.press("Escape")
    assert "onnx-nb-canvas" in graph.root.evaluate(focused), "back from the search"
    keys.press("Shift+ArrowUp")
    before = conv.input[0]
    graph.expect_selection(before)
    expect(voice).to_contain_text(f"tensor {before}")
    expect(voice).to_contain_text("read by")
    keys.press("i")
    expect(voice).to_have_text(f"{before} is an input")
    keys.press("x")
    expect(voice).to_contain_text("press o first")
    for _ in range(3):
        keys.press("ArrowDown")
    expect(voice).to_contain_text("node ")
    keys.press("Shift+ArrowDown")
    expect(voice).to_contain_text("tensor ")
    after = graph.selection
    assert after is not None
    expect(voice).to_contain_text(f"tensor {after}")
    keys.press("o")
    expect(voice).to_have_text(re.compile(r"The extraction takes \d+ nodes"))
    lab.kernel.expect(cut, [[before], [after]])
    keys.press("x")
    pane = graph.root.locator('.onnx-nb[data-widget="submodel"]')
    expect(pane).to_have_attribute("data-state", "drawn")
    lab.screenshot(f"keys-{lab.theme}", graph.root)
    expected = onnx_nb.extract(path, [before], [after]).proto.graph.node
    assert lab.kernel.evaluate("[n.op_type for n in g.submodel.proto.graph.node]") == [n.op_type for n in expected]

    # all of it undone
    assert "onnx-nb-canvas" in graph.root.evaluate(focused), "the picture kept the keys"
    keys.press("Control+z")
    expect(voice).to_contain_text("Undone")
    lab.kernel.expect("g.submodel is None")
    expect(pane).to_have_count(0)
    keys.press("Control+z")
    lab.kernel.expect(cut, [[before], []])
    keys.press("Control+z")
    lab.kernel.expect(cut, [[], []])
    keys.press("Control+Shift+Z")
    expect(voice).to_contain_text("Redone")
    lab.kernel.expect(cut, [[before], []])
    assert lab.errors == []


def test_the_keyboard_stays_in_the_graph_when_its_button_goes(lab: JupyterPage) -> None:
    path = models.exported("resnet50", dynamo=True)
    lab.open(lab.server.write("focus.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    # a residual block from the middle of its longer way: the way around it is missing
    add = next(node for node in onnx.load(path, load_external_data=False).graph.node if node.op_type == "Add")
    graph.click(add.input[0], "tensor")
    graph.press("Input")
    graph.click(add.output[0], "tensor")
    graph.press("Output")
    adding = graph.root.get_by_role("button", name=re.compile("^Add (it|them)$"))
    adding.click()
    expect(adding).to_be_hidden()
    within = "root => root.contains(document.activeElement)"
    lab.page.wait_for_function(within, arg=graph.root.element_handle())
    lab.page.keyboard.press("Control+z")
    expect(adding).to_be_visible()

    # a weight, the page of whose numbers takes the place of the button
    weight = next(iter(onnx_nb.load(path).tensor_names("*shortcut*weight")))
    graph.call("view.dispatch({type: 'select', target: view.columns.find(args[0], 'tensor')});", weight)
    graph.press("Values")
    expect(graph.root.get_by_label("Cells")).to_be_focused()
    expect(graph.root.get_by_role("img", name=re.compile("^Picture of one slice"))).to_be_visible()
    lab.page.keyboard.press("/")
    expect(graph.root.get_by_role("combobox", name="Search")).to_be_focused()
    assert lab.errors == []


def test_the_view_is_kept_with_the_widget_and_follows_the_kernel(lab: JupyterPage) -> None:
    source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.exported('bert', dynamo=True))!r})\ng"
    lab.open(lab.server.write("view.ipynb", source, "g")).run_cell(0)
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    scope = graph.call("""
        const { columns } = view;
        const group = [...Array(columns.scopeCount).keys()].find(g => g > 0 && !view.state.open.has(g));
        return columns.nameOf({kind: 'scope', id: group});""")
    graph.reveal(scope, "scope")
    graph.toggle(scope)
    graph.root.locator(".onnx-nb-canvas").focus()
    for key in ("+", "+", "b"):
        lab.page.keyboard.press(key)
    expect(graph.root.get_by_role("button", name="Bookmarks")).to_contain_text("1")
    graph.root.get_by_role("combobox", name="Search").fill("op:Softmax")
    graph.expect("view.state.hits.length > 0")
    graph.rest()
    lab.kernel.expect("g.view.get('camera')", graph.call("return view.viewport.viewpoint;"))
    lab.kernel.expect("g.view['search']", "op:Softmax")
    view = lab.kernel.evaluate("g.view")
    assert set(view) >= {"open", "camera", "search", "bookmarks"}

    # the same widget shown again, as in a notebook that is opened again
    lab.run_cell(1)
    again = GraphWidget(lab.widget("graph", within=lab.cell(1)))
    again.expect("view.state.hits.length > 0")
    again.expect("[...view.state.open].sort()", graph.call("return [...view.state.open].sort();"))
    expect(again.root.get_by_role("button", name="Bookmarks")).to_contain_text("1")
    lab.page.wait_for_timeout(900)  # for what must not come
    assert lab.kernel.evaluate("g.view") == view, "a second view changes nothing"

    # from a cell; what is not named stays
    lab.kernel.run("g.view = {'open': [], 'search': ''}")
    again.expect("view.state.open.size < 2")
    again.expect("[view.state.hits.length, view.state.bookmarks.length]", [0, 1])
    again.root.get_by_role("button", name="Bookmarks").click()
    again.root.locator(".onnx-nb-bookmark button").first.click()
    again.expect("view.state.open.size > 1")
    assert lab.errors == []


def test_a_closed_scope_is_looked_into_and_arithmetic_on_shapes_is_hidden(lab: JupyterPage) -> None:
    path = models.exported("detr", dynamo=False, small=True)
    lab.open(lab.server.write("peek.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph, keys = GraphWidget(lab.widget("graph")), lab.page.keyboard
    peek, voice = graph.root.locator(".onnx-nb-peek"), graph.root.locator(".onnx-nb-live").first
    graph.click("encoder", "scope")
    look = "[view.viewport.position.camera, view.viewport.scene.boxes.count, root.getBoundingClientRect().top]"
    before, drawn = graph.call(f"return {look};"), len(graph.drawn)
    keys.press("Space")
    expect(peek).to_be_visible()
    lab.page.screenshot(path=SCREENSHOTS / "peek.png")
    expect(voice).to_have_text(re.compile("^Inside encoder: [0-9]+ parts"))
    expect(graph.root.locator(".onnx-nb-canvas")).to_be_focused()
    assert graph.call(f"return {look};") == before, "neither the graph nor the notebook moves"
    keys.press("Escape")
    expect(peek).to_be_hidden()
    graph.expect_selection("encoder")
    keys.press("Space")
    peek.dblclick()
    expect(peek).to_be_hidden()
    graph.expect("view.state.open.has(view.columns.find('encoder', 'scope').id)")
    graph.expect_drawing_after(drawn)

    drawn = len(graph.drawn)
    count = "view.viewport.scene.boxes.count"
    boxes = graph.call(f"return {count};")
    graph.press("Hide shapes")
    graph.expect_drawing_after(drawn)
    assert graph.call(f"return {count};") < boxes
    lab.kernel.expect("g.view['plumbing']", value=False)
    graph.reveal(next(node.name for node in onnx.load(path).graph.node if node.op_type == "Shape"))
    lab.kernel.run("g.view = {'plumbing': True}")
    graph.expect(f"{count} >= args[0]", True, boxes)
    assert lab.errors == []


def test_the_first_graph_says_what_a_click_does_until_something_was_extracted(fresh_lab: JupyterPage) -> None:
    fresh_lab.page.add_init_script("localStorage.removeItem('onnx-nb-hints')")
    path = models.exported("bert", dynamo=False, small=True)
    source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng"
    fresh_lab.open(fresh_lab.server.write("hints.ipynb", source, "onnx_nb.ModelGraph(g.model)")).run_all()
    graph, later = (GraphWidget(fresh_lab.widget("graph", within=fresh_lab.cell(at))) for at in (0, 1))
    notes = graph.root.locator(".onnx-nb-note")
    expect(notes).to_have_text(["double-click opens", "click a wire for its tensor", re.compile("^i · o · x cuts out")])
    expect(later.root.locator(".onnx-nb-note")).to_have_count(0)
    graph.root.screenshot(path=SCREENSHOTS / "hints.png")
    graph.click(graph.scope(is_open=False), "scope")
    graph.root.get_by_label("Inspector").get_by_role("button", name="Extract").click()
    fresh_lab.kernel.expect("g.submodel is not None")
    expect(notes).to_have_count(0)
    assert fresh_lab.page.evaluate("localStorage.getItem('onnx-nb-hints')") == "read"
    assert fresh_lab.errors == []


def test_fingers_move_zoom_and_select(browser: Browser, tmp_path: Path) -> None:
    onnx_nb.ModelGraph(named(onnx.parser.parse_model(FORK))).to_html(tmp_path / "fork.html")
    context = browser.new_context(viewport={"width": 600, "height": 900}, has_touch=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto((tmp_path / "fork.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]'))
    fingers = context.new_cdp_session(page)
    selected = "[...view.state.others, view.state.selection].filter(Boolean).map(t => view.columns.nameOf(t))"

    page.touchscreen.tap(*graph.locate("node_a", "node"))
    graph.expect(selected, ["node_a"])
    touch(fingers, "touchStart", graph.locate("node_z", "node"))
    graph.expect(selected, ["node_a", "node_z"])  # a long press adds
    touch(fingers, "touchEnd")

    graph.root.get_by_role("button", name="Path between").click()
    between = ["node_a", "node_b", "node_c", "node_z"]
    graph.expect("view.state.hits.map(h => view.columns.nameOf(h)).sort()", between)
    page.screenshot(path="build/screenshots/path-between.png")

    x, y = graph.locate("node_a", "node")
    page.clock.install()
    page.clock.pause_at(time.time() + 3600)  # a finger that comes late to move is no long press
    touch(fingers, "touchStart", (x, y))
    touch(fingers, "touchMove", (x + 30, y + 40))
    touch(fingers, "touchMove", (x + 30, y + 40))
    touch(fingers, "touchEnd")
    page.clock.resume()
    away = "(([x, y]) => ({x: now, y: then}) => [Math.round(now - x), Math.round(then - y)])(args[0])"
    graph.expect(f"{away}(view.locate('node_a', 'node'))", [30, 40], [x, y])
    assert graph.call(f"return {selected};") == ["node_a", "node_z"], "a drag selects nothing"

    apart = distance(graph, "node_b", "node_c")
    touch(fingers, "touchStart", (250, 500), (350, 500))
    for step in range(1, 6):
        touch(fingers, "touchMove", (250 - 8 * step, 500), (350 + 8 * step, 500))
    touch(fingers, "touchEnd")
    await_value(lambda: distance(graph, "node_b", "node_c") > 1.5 * apart, wanted=True, what="zoomed by a pinch")

    graph.root.get_by_role("button", name="Fit").click()
    graph.root.get_by_role("button", name="Select boxes").click()
    graph.rest()
    box = graph.root.locator(".onnx-nb-canvas").bounding_box()
    assert box is not None
    page.clock.pause_at(time.time() + 7200)
    touch(fingers, "touchStart", (box["x"] + 5, box["y"] + 5))
    for part in (0.3, 0.7, 0.98):
        touch(fingers, "touchMove", (box["x"] + part * box["width"], box["y"] + part * box["height"]))
    touch(fingers, "touchEnd")
    graph.expect(f"{selected}.sort()", [f"node_{name}" for name in "abcwz"])
    context.close()


def test_a_trackpad_pinch_zooms_the_graph_about_the_pointer_and_not_the_page(browser: Browser, tmp_path: Path) -> None:
    onnx_nb.ModelGraph(named(onnx.parser.parse_model(FORK))).to_html(tmp_path / "fork.html")
    context = browser.new_context(viewport={"width": 900, "height": 700})
    page = context.new_page()
    page.goto((tmp_path / "fork.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]'))
    trackpad = context.new_cdp_session(page)
    x, y = graph.locate("node_a", "node")
    before = graph.call("return view.viewport.position.camera.k;")
    scrolled = page.evaluate("[scrollX, scrollY, visualViewport.scale, devicePixelRatio]")

    def pinch(delta: float) -> None:
        # as a trackpad's pinch arrives: a few pixels at a time, with Ctrl held though nobody holds it
        event = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "modifiers": 2}
        trackpad.send("Input.dispatchMouseEvent", event)

    for _ in range(10):
        pinch(-6)
    graph.expect("view.viewport.position.camera.k > 1.5 * args[0]", True, before)
    assert graph.locate("node_a", "node") == pytest.approx((x, y), abs=1.5), "what is under the pointer stays there"
    zoomed = graph.call("return view.viewport.position.camera.k;")
    for _ in range(10):
        pinch(6)
    graph.expect("view.viewport.position.camera.k < args[0] / 1.5", True, zoomed)
    assert page.evaluate("[scrollX, scrollY, visualViewport.scale, devicePixelRatio]") == scrolled
    context.close()


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_the_camera_glides_only_for_those_who_want_motion(
    motion: Literal["reduce", "no-preference"], browser: Browser, tmp_path: Path
) -> None:
    onnx_nb.ModelGraph(named(onnx.parser.parse_model(FORK))).to_html(tmp_path / "fork.html")
    context = browser.new_context(viewport={"width": 900, "height": 700}, reduced_motion=motion)
    page = context.new_page()
    page.goto((tmp_path / "fork.html").as_uri())
    graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"]'))
    # from now on time passes as the test lets it
    page.clock.install()
    page.clock.pause_at(time.time() + 3600)
    x = "return view.viewport.position.camera.x;"
    start = (
        "const {viewport} = view; viewport.moveTo({...viewport.position.camera, x: viewport.position.camera.x + 300});"
    )
    graph.call(f"{start} view.dispatch({{type: 'fit'}});")
    places = [graph.call(x)]
    for _ in range(20):
        page.clock.run_for(16)
        places.append(graph.call(x))
    if motion == "reduce":
        assert set(places) == {places[-1]}, "at once where it goes"
        # nothing on the page moves by itself either
        moving = (
            "[...document.querySelectorAll('*')].map(e => getComputedStyle(e)).filter(s => s.animationName !== 'none'"
        )
        moving += " || s.transitionDuration.split(',').some(t => parseFloat(t) > 0)).length"
        assert page.evaluate(moving) == 0
    else:
        assert len(set(places)) > 5, "through places in between"
        assert places == sorted(places, reverse=True)
        assert abs(places[0] - places[-1]) > 100
    context.close()


def touch(session: CDPSession, kind: str, *points: tuple[float, float]) -> None:
    """Send touch points to the page; an empty list ends the touch."""
    places: list[dict[str, Any]] = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(points)]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})


def distance(graph: GraphWidget, one: str, other: str) -> float:
    """Horizontal distance of two nodes on the screen, in pixels."""
    return abs(graph.locate(one, "node")[0] - graph.locate(other, "node")[0])
