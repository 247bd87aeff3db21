"""What is shown goes on, or says what to do: kernels end, views are hidden, doubled and zoomed, notebooks reopened."""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import signal
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests import models
from tests.browser.conftest import SIZE
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value
from tests.browser.test_picture import pictures

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.jupyter import JupyterPage

GRAPH = f"""import ipywidgets, onnx_nb
model = onnx_nb.load({str(models.light("squeezenet"))!r})
g = onnx_nb.ModelGraph(model, height=320)
g"""
PANEL = "p = onnx_nb.CapturePanel(onnx_nb.capture(model), graph=g)\np"
HIDDEN = f"""{GRAPH}
c = onnx_nb.capture(model)
new = lambda **more: onnx_nb.ModelGraph(model, height=320, **more)
ipywidgets.Tab([g, new(), onnx_nb.CapturePanel(c)], titles=("Shown", "Graph", "Values"))"""
FOLDED = "ipywidgets.Accordion([new()], titles=('Graph',))"
ABREAST = """half = {"layout": ipywidgets.Layout(width="50%")}
ipywidgets.HBox([new(**half), onnx_nb.CapturePanel(c, **half)])"""
GONE = "The kernel that this was made by is gone. Run the cell again"
# the view has the size of its element, and all of the graph is in it
FITS = """
    const {scene, position: {camera: {x, y, k}, view: {w, h}}} = view.viewport, {boxes} = scene;
    const canvas = root.querySelector('canvas');
    return [w === canvas.clientWidth, h === canvas.clientHeight, canvas.width === Math.round(w * devicePixelRatio),
            [...Array(boxes.count).keys()].every(box => boxes.x[box] >= x && boxes.y[box] >= y
                && boxes.x[box] + boxes.w[box] <= x + w / k && boxes.y[box] + boxes.h[box] <= y + h / k)];"""
SEEN = "image => image.complete && image.naturalWidth > 300 && image.naturalHeight > 200"
# nothing that the page sends arrives
LOSING = """() => {
    const { send } = WebSocket.prototype;
    WebSocket.prototype.send = () => undefined;
    globalThis.keep = () => { WebSocket.prototype.send = send; };
}"""
KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"


def fits(graph: GraphWidget) -> None:
    """Wait until a graph is drawn in the size of its place, as one that was never hidden is."""
    await_value(lambda: graph.root.evaluate(f"root => {{ const view = root.onnxNb; {FITS} }}"), [True] * 4, "its fit")


def no_overflow(root: Locator) -> None:
    """Check that nothing of a view stands out of it sideways."""
    assert root.evaluate("root => root.scrollWidth <= root.clientWidth + 2")


def test_a_graph_and_its_panel_outlive_views_zoom_and_kernels(lab: JupyterPage) -> None:
    lab.open(lab.server.write("outlive.ipynb", GRAPH, PANEL)).run_all()
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    panel = lab.widget("capture", within=lab.cell(1))
    expect(panel).to_contain_text("Linked with the graph of light_squeezenet.onnx")

    # a second view of one widget, in a tab of its own
    lab.cell(0)
    graph.root.locator(".onnx-nb-legend").click(button="right")
    lab.page.get_by_role("menuitem", name="Create New View for Cell Output").click()
    output = lab.page.locator(".jp-LinkedOutputView")
    view = GraphWidget(lab.widget("graph", within=output))
    expect(output.locator("img")).to_be_hidden()
    fits(view)
    view.click("r13", "tensor")
    graph.expect_selection("r13")
    lab.screenshot("survival-new-view")
    lab.page.get_by_role("tab", name="Output View").locator(".lm-TabBar-tabCloseIcon").click()
    expect(output).to_have_count(0)
    graph.rest()

    # 200%: half as many pixels of a page, twice as many of the screen in each
    session = lab.page.context.new_cdp_session(lab.page)
    zoomed = {"width": SIZE["width"] // 2, "height": SIZE["height"] // 2, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", zoomed)
    await_value(lambda: lab.page.evaluate("devicePixelRatio"), 2, "the zoom")
    graph.root.evaluate("root => root.scrollIntoView()")
    graph.press("Fit")
    fits(graph)
    for root in (graph.root, panel, lab.page.locator("html")):
        no_overflow(root)
    graph.click("r5", "tensor")
    lab.kernel.expect("[each['name'] for each in g.selection]", ["r5"])
    session.send("Emulation.setDeviceMetricsOverride", {**zoomed, **SIZE, "deviceScaleFactor": 1.5})
    await_value(lambda: lab.page.evaluate("devicePixelRatio"), 1.5, "the zoom")
    graph.press("Fit")
    fits(graph)
    session.detach()

    # the page loses its connection, and with it a click, and gets a new one to the same kernel
    lab.page.evaluate(LOSING)
    graph.click("r7", "tensor")
    lab.page.evaluate("keep()")
    lab.command("kernelmenu:reconnect-to-kernel")
    graph.expect_selection("r5")  # as the kernel knows it
    graph.rest()
    graph.click("r13")
    expect(panel.get_by_label("Value", exact=True)).to_contain_text("r13")  # the kernel has answered
    graph.press("Output")
    lab.kernel.expect("g.outputs", ["r13"])
    graph.extract()
    lab.kernel.expect("[each.name for each in g.submodel.outputs]", ["r13"])
    expect(panel).to_contain_text("Linked with the graph of light_squeezenet.onnx")

    # a page that is loaded again asks the kernel, which kept them
    lab.command("docmanager:save")
    lab.page.reload()
    lab.widget("graph")
    panel = lab.widget("capture", within=lab.cell(1))
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    graph.expect_selection("r13")
    graph.click("r5")
    lab.kernel.expect("[each['name'] for each in g.selection]", ["r5"])

    assert lab.errors == []  # later ones are Jupyter's, about replies of a kernel that is no more

    # a new kernel knows nothing of them: both say so at once, and stay what they were
    lab.page.evaluate(f"() => {KERNEL}.restart()")
    for root in (graph.root, panel):
        expect(root).to_contain_text(GONE)
    expect(graph.root.get_by_role("button", name="Extract", exact=True).last).to_be_disabled()
    graph.click("r5")
    panel.get_by_role("searchbox").fill("r1 ")
    expect(panel.get_by_role("row", name=re.compile("^r1 "))).to_be_visible()
    lab.screenshot("survival-restarted")
    lab.run_all()
    graph = GraphWidget(lab.widget("graph", within=lab.cell(0)))
    graph.click("r5")
    lab.kernel.expect("[each['name'] for each in g.selection]", ["r5"])

    os.kill(lab.kernel.evaluate("__import__('os').getpid()"), signal.SIGKILL)
    lab.page.get_by_role("dialog").get_by_role("button", name="Ok").click()
    for kind in ("graph", "capture"):
        expect(lab.widget(kind)).to_contain_text(GONE)
    expect(lab.page.get_by_text("Waiting for the kernel")).to_have_count(0)
    lab.screenshot("survival-killed")


def test_what_was_hidden_is_drawn_in_the_size_of_its_place(lab: JupyterPage) -> None:
    lab.open(lab.server.write("hidden.ipynb", HIDDEN, FOLDED, ABREAST)).run_all()
    tabs, folded, abreast = (lab.cell(at) for at in range(3))
    lab.cell(0)
    shown = GraphWidget(tabs.locator(".onnx-nb:visible"))
    fits(shown)
    size = shown.root.bounding_box()
    tabs.get_by_role("tab", name="Graph").click()
    second = GraphWidget(tabs.locator(".onnx-nb:visible"))
    fits(second)
    assert second.root.bounding_box() == size
    second.expect("view.viewport.viewpoint", shown.call("return view.viewport.viewpoint;"))
    second.click("r5", "tensor")
    lab.screenshot("survival-tab")
    tabs.get_by_role("tab", name="Values").click()
    table = tabs.get_by_role("grid")
    expect(table.get_by_role("row").nth(8)).to_be_in_viewport()
    no_overflow(table)
    lab.screenshot("survival-tab-values")

    lab.cell(1)
    folded.locator(".jupyter-widget-Collapse-header").click()
    graph = GraphWidget(folded.locator(".onnx-nb:visible"))
    fits(graph)
    graph.click("r5", "tensor")
    lab.screenshot("survival-accordion")

    lab.cell(2)
    graph = GraphWidget(abreast.locator('.onnx-nb[data-widget="graph"]'))
    fits(graph)
    panel = abreast.locator('.onnx-nb[data-widget="capture"]')
    for root in (graph.root, panel):
        no_overflow(root)
    left, right = graph.root.bounding_box(), panel.bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"] + 1
    assert abs(left["width"] - right["width"]) < 4
    lab.screenshot("survival-abreast")
    assert lab.errors == []

    lab.command("kernelmenu:shutdown")
    expect(graph.root).to_contain_text(GONE)


def test_a_saved_notebook_is_reopened_with_and_without_state_and_trust(lab: JupyterPage) -> None:
    name = lab.server.write("saved.ipynb", GRAPH, PANEL)
    lab.open(name).run_all()
    for at, kind in enumerate(("graph", "capture")):
        lab.widget(kind, within=lab.cell(at))
    path = lab.server.root / name

    def saved() -> dict[str, Any]:
        lab.command("docmanager:save")
        notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return notebook

    await_value(lambda: "widgets" not in saved()["metadata"] and len(pictures(path)), 2, "the pictures")
    graph, panel = pictures(path)
    assert ">softmaxout_1<" in graph
    assert ">Constan…<" in panel, "a text that is cut off ends in dots"
    keep = "@jupyter-widgets/jupyterlab-manager:saveWidgetState"
    without = saved()
    lab.command(keep)
    complete = saved()
    lab.command(keep)
    assert "widgets" in complete["metadata"]

    kernel = ""
    for state, notebook in (("with", complete), ("without", without)):
        for trust in ("trusted", "untrusted"):
            copy = lab.server.root / f"{state}-{trust}.ipynb"
            text = json.dumps(notebook)
            if trust == "untrusted":  # nobody signed this
                script = "<img src='x' onerror='globalThis.hostile = 1'><script>globalThis.hostile = 1</script>"
                changed = json.loads(text)
                changed["metadata"]["from"] = secrets.token_hex(8)
                html = changed["cells"][0]["outputs"][0]["data"]
                html["text/html"] = ["".join(html["text/html"]) + script]
                text = json.dumps(changed)
            copy.write_text(text, encoding="utf-8")
            if kernel:  # the kernel of the first one, which has run nothing
                lab.page.evaluate("jupyterapp.shell.currentWidget.dispose()")  # it has the same pictures
                lab.command("docmanager:open", {"path": copy.name, "kernel": {"id": kernel}})
            else:
                kernel = lab.open(copy.name).page.evaluate(f"{KERNEL}.id")
            reopened(lab, state, trust)
            lab.screenshot(f"survival-{state}-{trust}")


def reopened(lab: JupyterPage, state: str, trust: str) -> None:
    """Check what a notebook shows that was saved with or without the state of widgets, and is trusted or not."""
    graph, panel = lab.cell(0), lab.cell(1)
    if (state, trust) == ("with", "trusted"):
        drawn = GraphWidget(lab.widget("graph", within=graph))
        drawn.click("r5", "tensor")
        expect(drawn.root).to_contain_text(GONE)
        expect(lab.widget("capture", within=panel)).to_contain_text(GONE)
        expect(graph.locator("img.onnx-nb-picture")).to_be_hidden()
        return
    for cell in (graph, panel):
        picture = cell.locator("img.onnx-nb-picture")
        expect(picture).to_be_visible()
        await_value(functools.partial(picture.evaluate, SEEN), wanted=True, what="a picture")
        expect(cell.locator(".onnx-nb")).to_have_count(0)
    expect(panel.get_by_text("As a table")).to_be_visible()
    if trust == "trusted":
        said = graph.locator(".jp-OutputArea-output").last
        expect(said).to_have_text("Error displaying widget: model not found")  # Jupyter's, which nobody sees
        expect(said).to_have_css("font-size", "0px")
        assert "Run the cell for the live view" in said.evaluate("each => getComputedStyle(each, '::after').content")
    else:
        expect(graph).to_contain_text("ModelGraph(Model('light_squeezenet.onnx'")
        assert lab.page.evaluate("globalThis.hostile") is None
