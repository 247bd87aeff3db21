"""The panels of a capture, a profile and an audit in JupyterLab: responsive, linked with a graph, in both themes."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import await_value
from tests.browser.test_accessibility import AXE, violations

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage


def test_a_capture_is_a_table_that_goes_with_the_graph(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    path = models.exported("resnet50", dynamo=True)
    cells = (
        f"import onnx_nb, ipywidgets\ng = onnx_nb.ModelGraph({str(path)!r}, height=400)\n"
        "cap = onnx_nb.capture(g.model)\npanel = onnx_nb.CapturePanel(cap, graph=g)\nipywidgets.VBox([g, panel])"
    )
    lab.open(lab.server.write("capture.ipynb", cells)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    panel = lab.widget("capture")
    grid = panel.get_by_role("grid")
    expect(panel).to_contain_text(f"{lab.kernel.evaluate('len(cap)')} values")
    panel.get_by_role("button", name="Std").click()
    expect(panel.get_by_role("columnheader", name="Std")).to_have_attribute("aria-sort", "descending")
    panel.get_by_role("searchbox").fill("Relu std>0")
    grid.focus()
    lab.page.keyboard.press("ArrowDown")
    name = lab.kernel.evaluate("max((r for r in cap.rows() if r['op_type'] == 'Relu'), key=lambda r: r['std'])['name']")
    expect(panel.get_by_label("Value", exact=True)).to_contain_text(name)
    expect(panel.get_by_role("img", name="Histogram")).to_be_visible()
    expect(graph.root.get_by_label("Inspector")).to_contain_text(name)
    lab.kernel.expect("g.selection[0]['name']", name)
    lab.screenshot(f"capture-panel-{lab.theme}", panel)
    lab.page.add_script_tag(path=AXE)
    assert violations(panel) == []

    other = lab.kernel.evaluate("next(n.output[0] for n in g.model.proto.graph.node if n.op_type == 'MaxPool')")
    graph.reveal(other, "tensor")
    graph.click(other, "tensor")
    expect(panel.get_by_label("Value", exact=True)).to_contain_text(other)
    with lab.page.expect_download() as download:
        panel.get_by_role("button", name="Save CSV").click()
    download.value.save_as(tmp_path / "values.csv")
    lines = (tmp_path / "values.csv").read_text().splitlines()
    assert lines[0] == "name,op,type,min,max,mean,std,bytes"
    assert len(lines) == lab.kernel.evaluate("len(cap)") + 1
    lab.page.set_viewport_size({"width": 900, "height": 1000})
    lab.screenshot(f"capture-panel-narrow-{lab.theme}", panel)
    assert lab.errors == []


def test_a_profile_goes_with_the_graph_and_shows_what_was_fused(lab: JupyterPage) -> None:
    cells = (
        f"import onnx_nb, ipywidgets\ng = onnx_nb.ModelGraph({str(models.detection())!r}, height=400)\n"
        "p = onnx_nb.profile(g.model, runs=3, threads=1)\npanel = onnx_nb.ProfilePanel(p, graph=g)\n"
        "fused = next(n for n, k in enumerate(p.kernels) if len(k.nodes) > 1)\nipywidgets.VBox([g, panel])"
    )
    lab.open(lab.server.write("profile.ipynb", cells)).run_all()
    panel, detail = lab.widget("profile"), lab.widget("profile").get_by_label("Kernel", exact=True)
    expect(panel).to_contain_text(lab.kernel.evaluate("p.facts[0]"))
    panel.get_by_role("button", name="Kernels (").click()
    panel.get_by_label("Filter the kernels").fill(lab.kernel.evaluate("p.kernels[fused].name"))
    panel.get_by_role("grid", name="Kernels").press("ArrowDown")
    lab.kernel.expect("panel.kernel == fused", True)
    lab.kernel.expect("[each['id'] for each in g.selection] == list(p.kernels[fused].nodes)", True)
    expect(detail).to_contain_text("at once")
    panel.get_by_label("Filter the kernels").fill("")
    lab.screenshot("profile-panel", panel)

    # the colors that came with the link go with it, or where the person chooses others
    graph = GraphWidget(lab.widget("graph"))
    seconds = graph.root.get_by_role("group", name="Colors: seconds")
    expect(seconds).to_be_visible()
    lab.kernel.run("panel.graph = None")
    expect(seconds).to_be_hidden()
    lab.kernel.run("panel.graph = g")
    expect(seconds).to_be_visible()
    graph.root.get_by_label("Color", exact=True).select_option("parameters")
    parameters = graph.root.get_by_role("group", name="Colors: parameters")
    expect(parameters).to_be_visible()
    lab.kernel.expect("g.view['color']", "parameters")
    lab.kernel.run("panel.graph = None\ng.selection = []")
    graph.rest()
    expect(parameters).to_be_visible()
    lab.kernel.run("panel.graph = g")
    graph.press("Color by Kind")
    expect(seconds).to_be_hidden()
    lab.kernel.expect("g._overlay is None")

    # a node of the graph chooses its kernel
    single = lab.kernel.evaluate("next(n for n, k in enumerate(p.kernels) if k.op == 'NonMaxSuppression')")
    lab.kernel.evaluate(f"setattr(g, 'selection', [dict(panel._nodes_of({single})[0])])")
    expect(detail).to_contain_text("NonMaxSuppression")
    panel.get_by_role("button", name="Treemap").click()
    expect(panel.get_by_role("slider", name="Kernels by scope")).to_be_visible()
    lab.screenshot("profile-treemap", panel)

    # a tensor that is alive at the peak is the tensor of the graph
    panel.get_by_role("button", name="Memory curve").click()
    held = lab.kernel.evaluate("[each.tensor for each in p.costs.memory.alive_at_peak]")
    expect(detail.get_by_role("listitem").get_by_role("button")).to_have_text(held)
    detail.get_by_role("button", name=held[-1], exact=True).click()
    graph.expect_selection(held[-1])
    lab.kernel.expect("[(each['kind'], each['name']) for each in g.selection]", [["tensor", held[-1]]])
    panel.get_by_role("button", name="Before and after").click()
    lab.kernel.evaluate("setattr(panel, 'kernel', fused)")
    optimized = panel.locator("[data-widget=candidate]")
    expect(optimized).to_have_attribute("data-state", "drawn")
    states = "[...document.querySelectorAll('[data-widget=profile] .onnx-nb-graph')].map(each => each.onnxNb.state)"
    look = f"{states}.filter(({{selection}}) => selection?.kind === 'node').length"
    await_value(lambda: lab.page.evaluate(look), 2, "the number of graphs in which a node is selected")
    lab.screenshot("profile-pair", panel)
    lab.page.add_script_tag(path=AXE)
    assert violations(panel) == []
    assert lab.errors == []


CALIBRATION = """
import numpy as np, onnx.parser, onnx_nb
model = onnx_nb.load(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    g (float[64, 64] x) => (float[64, 64] y) { a = Neg(x)  b = Log(a)  y = Exp(b) }'''))
feeds = {"x": -np.random.default_rng(0).lognormal(0, 1, (64, 64)).astype("f")}
ranges = onnx_nb.calibrate(onnx_nb.capture(model, feeds, ranges=True), "percentile", percentile=98)
ranges"""
REDUCTION = """
def check(part, feeds):
    return not any(np.isnan(each).any() for each in onnx_nb.run(part, feeds).values())
onnx_nb.reduce(model, check, {"x": -feeds["x"]})"""


def test_a_calibration_and_a_reduction_show_themselves_in_a_cell(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.open(lab.server.write("calibration.ipynb", CALIBRATION, REDUCTION)).run_all()
    cell = lab.cell(0)
    expect(cell).to_contain_text(lab.kernel.evaluate("ranges.message"))
    picture = cell.get_by_role("img", name="Histogram of")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 400
    heads = ["Tensor", "Low", "High", "Min", "Max", "Clipped", "SQNR, 8 bits"]
    expect(cell.locator("th")).to_have_text(heads)
    first = lab.kernel.evaluate("ranges.worst[0].name")
    expect(cell.locator("tbody tr").first).to_contain_text(first)
    lab.screenshot(f"calibration-{lab.theme}", cell)
    cell = lab.cell(1)
    expect(cell).to_contain_text("The check fails on 1 of 3 nodes: Log")
    expect(cell).to_contain_text("run.py")
    lab.widget("graph", within=cell)
    lab.screenshot(f"reduction-{lab.theme}", cell)
    lab.page.set_viewport_size({"width": 400, "height": 900})
    # what is too wide is scrolled to, and nothing shrinks below what can be read
    assert lab.cell(0).get_by_role("img", name="Histogram of").evaluate("image => image.clientWidth") >= 480
    assert lab.errors == []


def test_a_profile_is_read_in_a_narrow_window(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    cells = (
        f"import onnx_nb\np = onnx_nb.profile({str(models.detection())!r}, runs=3, threads=1)\nonnx_nb.ProfilePanel(p)"
    )
    lab.open(lab.server.write("narrow.ipynb", cells)).run_all()
    panel = lab.widget("profile")
    lab.page.set_viewport_size({"width": 400, "height": 900})
    lab.screenshot(f"profile-narrow-scopes-{lab.theme}", panel)
    panel.get_by_role("button", name="Kernels (").click()
    expect(panel.get_by_role("columnheader", name="Op", exact=True)).to_be_hidden()
    inside = """(panel, inner) => {
        const {left, right, top, bottom} = panel.querySelector(inner).getBoundingClientRect();
        const within = ({x, y, width, height}) =>
            x >= left && x + width <= right + 1 && y >= top && y + height <= bottom;
        return selector => [...panel.querySelectorAll(selector)].filter(each => within(each.getBoundingClientRect()));
    }"""
    rows = f"panel => ({inside})(panel, '[aria-label^=Kernels][role=grid]')('[data-row]').length"
    await_value(lambda: panel.evaluate(rows) >= 5, wanted=True, what="five rows in view")
    heads = rows.replace("[data-row]", "[role=columnheader]").replace(".length", ".map(each => each.textContent)")
    assert panel.evaluate(heads) == ["Kernel", "Time", "Share"]
    assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    facts, room = (panel.locator(each).bounding_box() for each in (".onnx-nb-announced", ".onnx-nb-profile-left"))
    assert facts is not None
    assert room is not None
    assert facts["width"] > 0.85 * room["width"]
    for view in ("Timeline", "Treemap", "Memory curve", "Roofline"):
        panel.get_by_role("button", name=view).click()
        expect(panel.get_by_text("Measuring this machine…")).to_have_count(0)
        lab.screenshot(f"profile-400-{view.split()[0].lower()}-{lab.theme}", panel)
    panel.get_by_role("button", name="Before and after").click()
    expect(panel.locator("[data-widget=candidate]")).to_have_attribute("data-state", "drawn")
    expect(panel.locator(".onnx-nb-map:visible")).to_have_count(0)
    lab.screenshot(f"profile-400-pair-{lab.theme}", panel)
    assert lab.errors == []


def test_a_profile_is_worked_with_by_keys_alone(lab: JupyterPage, tmp_path: Path) -> None:
    cells = (
        f"import onnx_nb, dataclasses\np = onnx_nb.profile({str(models.detection())!r}, runs=3, threads=1)\n"
        "spans = tuple(dataclasses.replace(each, thread=n % 3) for n, each in enumerate(p.spans))\n"
        "p = dataclasses.replace(p, spans=spans)\npanel = onnx_nb.ProfilePanel(p)\npanel"
    )
    lab.open(lab.server.write("keys.ipynb", cells)).run_all()
    panel, press = lab.widget("profile"), lab.page.keyboard.press
    detail = panel.get_by_label("Kernel", exact=True)
    panel.get_by_role("button", name="Kernels (").click()
    panel.get_by_role("button", name="Save CSV").focus()
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    stops = []
    for _ in range(11):
        press("Tab")
        stops.append(str(lab.page.evaluate(focused)).partition(" (")[0])
    views = ["Timeline", "Treemap", "Roofline", "Memory curve", "Before and after", "Kernels of one run, in order"]
    assert stops == [
        *views,
        "Scopes",
        "Operators",
        "Kernels",
        "Filter the kernels",
        f"Kernels of {models.detection().name}",
    ]

    # the table: the longest first; Enter goes to its details, Escape chooses none
    press("ArrowDown")
    lab.kernel.expect("panel.kernel == int(p.shares.argmax())")
    press("End")
    lab.kernel.expect("bool(p.shares[panel.kernel] == p.shares.min())")
    press("Enter")
    expect(detail).to_be_focused()
    press("Shift+Tab")
    panel.get_by_role("grid", name="Kernels").focus()
    press("Escape")
    lab.kernel.expect("panel.kernel", -1)

    # the timeline: in order of time, a lane for each thread
    timeline = panel.get_by_role("slider", name="Kernels of one run")
    timeline.focus()
    order = "list(dict.fromkeys(each.kernel for each in sorted(p.spans, key=lambda each: each.start)))"
    for key, place in (("ArrowRight", 0), ("ArrowRight", 1), ("End", -1), ("ArrowLeft", -2), ("Home", 0)):
        press(key)
        lab.kernel.expect(f"panel.kernel == {order}[{place}]")
    expect(timeline).to_have_attribute("aria-valuetext", re.compile(lab.kernel.evaluate(f"p.kernels[{order}[0]].op")))
    assert panel.get_by_role("grid", name="Kernels").get_by_role("row", selected=True).count() == 1
    colors = """(canvas, lane) => {
        const third = canvas.height / 3.53;  // what calls others has rows below its own, which threads share unequally
        const {data} = canvas.getContext('2d').getImageData(0, lane * third, canvas.width, third);
        return data.some((x, at) => at % 4 === 3 && x > 0);
    }"""
    painted = [timeline.locator("canvas").evaluate(colors, lane) for lane in range(3)]
    assert painted == [True] * 3
    press("Escape")
    lab.kernel.expect("panel.kernel", -1)

    # the treemap
    panel.get_by_role("button", name="Treemap").press("Enter")
    press("Tab")
    treemap = panel.get_by_role("slider", name="Kernels by scope")
    treemap.focus()
    press("ArrowDown")
    lab.kernel.expect("panel.kernel >= 0")
    first = lab.kernel.evaluate("panel.kernel")
    press("ArrowRight")
    lab.kernel.expect(f"panel.kernel not in (-1, {first})")
    press("ArrowUp")
    lab.kernel.expect("panel.kernel", first)

    # a name is copied, and the rows that are shown are saved
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    detail.get_by_role("button", name="Copy name").press("Enter")
    expect(detail.get_by_role("button", name="Copied")).to_be_visible()
    assert lab.page.evaluate("navigator.clipboard.readText()") == lab.kernel.evaluate(f"p.kernels[{first}].name")
    panel.get_by_label("Filter the kernels").fill("share>0.03")
    with lab.page.expect_download() as download:
        panel.get_by_role("button", name="Save CSV").press("Enter")
    download.value.save_as(tmp_path / "kernels.csv")
    with (tmp_path / "kernels.csv").open(encoding="utf-8", newline="") as file:
        saved = [(row["kernel"], float(row["time"])) for row in csv.DictReader(file)]
    wanted = lab.kernel.evaluate("[(row['kernel'], row['seconds']) for row in p.rows() if row['share'] > 0.03]")
    assert 1 < len(wanted) < lab.kernel.evaluate("len(p.kernels)")
    assert sorted(saved) == sorted(map(tuple, wanted))
    assert lab.errors == []


def test_profiles_are_compared_saved_and_opened_in_another_notebook(lab: JupyterPage, tmp_path: Path) -> None:
    path, file = models.exported("resnet50", dynamo=True), tmp_path / "profile.json"
    cells = (
        f"import onnx_nb\np = onnx_nb.profile({str(path)!r}, runs=5, threads=1)\np.save({str(file)!r})\np",
        f"q = onnx_nb.profile({str(path)!r}, runs=5, threads=1, optimization='off')\nchange = p.compare(q)\nchange",
    )
    lab.open(lab.server.write("compare.ipynb", *cells)).run_all()
    panel = lab.widget("profile", within=lab.cell(1))
    expect(panel).to_contain_text(lab.kernel.evaluate("change.message")[:80])
    expect(panel.get_by_role("button", name="Changes")).to_have_attribute("aria-pressed", "true")
    rows = panel.get_by_role("grid", name="Changes").locator("[data-row]")
    name = lab.kernel.evaluate("next(each.name for each in change.changes if each.kernels[1])")
    panel.get_by_label("Filter the sets").fill(f'"{name}"')
    rows.first.click()
    expect(panel.get_by_label("Kernel", exact=True)).to_contain_text(name)
    panel.get_by_label("Filter the sets").fill("")
    lab.screenshot("profile-changes", panel)
    message = lab.kernel.evaluate("p.message")
    lab.command("docmanager:save")

    reading = f"import onnx_nb\np = onnx_nb.types.Profile.load({str(file)!r}, {str(path)!r})\nonnx_nb.ProfilePanel(p)"
    lab.open(lab.server.write("loaded.ipynb", reading)).run_all()
    panel = lab.widget("profile")
    expect(panel).to_contain_text(message)
    expect(panel.get_by_role("button", name="Before and after")).to_have_count(0)  # of the run, not of its file
    panel.get_by_role("button", name="Memory curve").click()
    expect(panel.get_by_label("Kernel", exact=True).get_by_role("listitem")).not_to_have_count(0)
    panel.get_by_role("button", name="Kernels (").click()
    panel.get_by_role("grid", name="Kernels").press("ArrowDown")
    expect(panel.get_by_label("Kernel", exact=True)).to_contain_text("GFLOP/s")
    lab.screenshot("profile-loaded", panel)
    assert lab.errors == []


def test_ten_thousand_values_scroll_and_the_first_nan_is_told(lab: JupyterPage) -> None:
    cells = (
        "import onnx_nb, numpy as np\nfrom onnx import helper as h, TensorProto as t\n"
        "n = 10_000\nops = ['Relu', 'Neg', 'Abs']\n"
        "nodes = [h.make_node('Log' if i == 7000 else ops[i % 3], [f't{i}'], [f't{i + 1}']) for i in range(n)]\n"
        "v = lambda name: h.make_tensor_value_info(name, t.FLOAT, [8])\n"
        "m = h.make_model(h.make_graph(nodes, 'g', [v('t0')], [v(f't{n}')]),\n"
        "                 opset_imports=[h.make_opsetid('', 17)], ir_version=8)\n"
        "cap = onnx_nb.capture(m, {'t0': np.linspace(-1, 1, 8, dtype='f')})\ncap"
    )
    lab.open(lab.server.write("many.ipynb", cells)).run_all()
    panel = lab.widget("capture")
    expect(panel.get_by_role("status")).to_contain_text("Log makes")
    grid = panel.get_by_role("grid")
    assert grid.get_attribute("aria-rowcount") == "10002"
    panel.get_by_role("button", name="Show it").click()
    expect(grid.get_by_role("row", selected=True)).to_contain_text("t7001")
    # what is asked of a frame: rows in view are there, and few others are
    frames = grid.evaluate("""async grid => {
        const seen = [];
        for (let at = 0; at < 60; at++) {
            grid.scrollTop = at * 4000;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            const top = Math.floor(grid.scrollTop / 26);
            const rows = [...grid.querySelectorAll('[data-row]')].map(row => Number(row.dataset.row));
            seen.push([rows.includes(Math.min(top + 2, 10000)), rows.length]);
        }
        return seen;
    }""")
    assert all(there and count < 60 for there, count in frames)
    panel.get_by_role("button", name="Only NaN and Inf").click()
    lab.screenshot("capture-panel-10000", panel)
    assert lab.errors == []


def test_an_audit_shows_problems_first_and_files(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    path = models.exported("bert", dynamo=True)
    made = (
        f"import onnx_nb, tempfile, pathlib\nfolder = pathlib.Path(tempfile.mkdtemp())\n"
        f"onnx_nb.external_data.convert({str(path)!r}, folder / 'm.onnx')\n"
        "onnx_nb.external_data.audit(folder / 'm.onnx')"
    )
    cut = (
        "data = next(p for p in folder.iterdir() if p.suffix != '.onnx')\n"
        "data.write_bytes(data.read_bytes()[:-200_000])\nonnx_nb.external_data.audit(folder / 'm.onnx')"
    )
    cells = (made, cut, f"onnx_nb.AuditPanel({str(path)!r})")
    lab.open(lab.server.write("audit.ipynb", *cells)).run_all()
    well, broken, inside = (lab.widget("external_data", within=lab.cell(at)) for at in range(3))
    expect(well).to_contain_text("✓ No problems")
    expect(inside).to_contain_text("all in the model's own file")
    expect(broken).to_contain_text("✕")
    expect(broken.get_by_label("Problems")).to_contain_text("Error: bounds")
    lab.screenshot(f"external-data-well-{lab.theme}", well)
    broken.get_by_role("button", name="Show").first.click()
    rows = broken.get_by_role("grid").locator("[data-row]")
    expect(rows.filter(has_text="bounds")).to_have_count(rows.count())
    lab.screenshot(f"external-data-broken-{lab.theme}", broken)
    lab.screenshot(f"external-data-inside-{lab.theme}", inside)
    lab.page.add_script_tag(path=AXE)
    for panel in (well, broken, inside):
        assert violations(panel) == []
    assert lab.errors == []


def test_a_saved_notebook_shows_tables_where_no_widget_lives(lab: JupyterPage) -> None:
    cell = (
        "import onnx_nb, onnx.parser, numpy as np\n"
        "text = '<ir_version: 8, opset_import: [\"\": 17]> g (float[4] x) => (float[4] y) { a = Log(x) y = Relu(a) }'\n"
        "onnx_nb.capture(onnx.parser.parse_model(text), {'x': np.array([-1, 1, 2, 3], 'f')})"
    )
    name = lab.server.write("still.ipynb", cell, f"onnx_nb.AuditPanel({str(models.light('vgg19'))!r})")
    lab.open(name).run_all()
    for at, kind in enumerate(("capture", "external_data")):
        lab.widget(kind, within=lab.cell(at))
        picture = lab.cell(at).locator(".onnx-nb-picture")
        expect(picture).to_have_count(1)
        expect(picture).to_be_hidden()
    lab.command("docmanager:save")

    # opened again: no widget state
    saved = json.loads((lab.server.root / name).read_text(encoding="utf-8"))
    saved["metadata"].pop("widgets", None)
    (lab.server.root / "still-elsewhere.ipynb").write_text(json.dumps(saved), encoding="utf-8")
    lab.open("still-elsewhere.ipynb")
    table = lab.cell(0).locator(".onnx-nb-picture table")
    expect(table).to_be_visible()
    expect(table.get_by_role("row").nth(1)).to_contain_text("Log")
    expect(lab.cell(0)).to_contain_text("Log makes 1 NaN of 4 values in 'a'")
    expect(lab.cell(1).locator(".onnx-nb-picture")).to_contain_text("no problems")
    lab.screenshot("panels-without-kernel")
