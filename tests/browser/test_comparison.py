"""The comparison panel in JupyterLab: linked with a graph, used by pointer and keyboard, saved, and responsive."""

from __future__ import annotations

import ast
import csv
import re
from typing import TYPE_CHECKING

import onnx
import pytest
from playwright.sync_api import expect

import onnx_nb
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import ROOT, await_rest
from tests.browser.test_accessibility import AXE, violations
from tests.faults.quantized import Sound, clipped

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

    from tests.browser.jupyter import JupyterPage

# a weight of the second of three layers is wrong
FAULTY = """
import onnx_nb, ipywidgets, numpy as np, onnx, onnx.parser
from onnx import helper as h, numpy_helper as n, TensorProto as t
rng = np.random.default_rng(0)
nodes, weights, last = [], [], "x"
for layer in range(12):
    w = rng.standard_normal((64, 64)).astype("f") / 8
    weights.append(n.from_array(w, f"enc.{layer}.w"))
    nodes += [h.make_node("MatMul", [last, f"enc.{layer}.w"], [f"/enc/{layer}/mm"], f"/enc/{layer}/MatMul"),
              h.make_node("Tanh", [f"/enc/{layer}/mm"], [f"/enc/{layer}/tanh"], f"/enc/{layer}/Tanh")]
    last = f"/enc/{layer}/tanh"
v = lambda name: h.make_tensor_value_info(name, t.FLOAT, [8, 64])
graph = h.make_graph(nodes, "exact", [v("x")], [v(last)], weights)
exact = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
rough = onnx.ModelProto(); rough.CopyFrom(exact); rough.graph.name = "rough"
w = n.to_array(rough.graph.initializer[5]).copy(); w[3, 7] += 0.5
rough.graph.initializer[5].CopyFrom(n.from_array(w, "enc.5.w"))
c = onnx_nb.compare(exact, rough)
"""
LINKED = FAULTY + (
    "g = onnx_nb.ModelGraph(rough, height=400)\n"
    "panel = onnx_nb.ComparisonPanel(c, graph=g)\nipywidgets.VBox([g, panel])"
)
CULPRIT = "/enc/5/mm"

TORCH = """
import onnx_nb, torch, warnings
warnings.simplefilter("ignore")
torch.manual_seed(0)
nn = torch.nn
block = lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32))
module = torch.nn.Sequential(block(), block(), block()).eval()
x = torch.randn(4, 32)
model = onnx_nb.export(module, (x,), exporter="torchscript").to_proto()
norm = [node for node in model.graph.node if node.op_type == "LayerNormalization"][1]
next(attribute for attribute in norm.attribute if attribute.name == "epsilon").f = 1e-2
c = onnx_nb.compare_torch(module, (x,), model=model)
panel = onnx_nb.ComparisonPanel(c)
panel
"""

MANY = """
import onnx_nb, numpy as np
from onnx_nb.analysis.compare.comparison import Comparison, Point
from onnx_nb.analysis.compare.metrics import ErrorStats
rng = np.random.default_rng(0)
v = rng.standard_normal((4, 64)).astype("f")
make = lambda size: ErrorStats.of(v, v + (rng.standard_normal(v.shape) * size).astype("f"))
small, large = [make(10 ** rng.uniform(-7, -6)) for _ in range(60)], make(1e-2)
points = tuple(
    Point(f"encoder.layer.{i // 200}.op{i % 200}", f"r{i}", f"t{i}", "scope", i, ("Linear", "Add", "Relu")[i % 3],
          cumulative=large if i >= 6000 else small[i % 60], isolated=large if i == 6000 else small[i * 7 % 60])
    for i in range(10_000))
c = Comparison("torch Big", "big.onnx", points)
panel = onnx_nb.ComparisonPanel(c)
panel
"""


def plot_of(panel: Locator) -> Locator:
    return panel.get_by_role("slider", name="Errors against depth")


def test_the_culprit_is_announced_and_goes_with_the_graph(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    lab.open(lab.server.write("comparison.ipynb", LINKED)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    panel = lab.widget("comparison")
    detail = panel.get_by_label("Errors of the point")
    expect(panel.locator("header.onnx-nb-bar")).to_contain_text(f"First differs at '{CULPRIT}' (MatMul)")
    expect(detail).to_contain_text(CULPRIT)
    expect(detail.get_by_role("img", name="Histogram")).to_have_count(3)
    expect(detail).to_contain_text("most in 7")
    expect(graph.root.get_by_label("Inspector")).to_contain_text(CULPRIT)
    assert lab.kernel.evaluate("g._overlay['label']") == "isolated"
    expect(graph.root.get_by_role("group", name="Colors: isolated")).to_be_visible()
    lab.screenshot(f"comparison-{lab.theme}", panel)
    lab.page.add_script_tag(path=AXE)
    assert violations(panel) == []

    plot = plot_of(panel)
    plot.focus()
    lab.page.keyboard.press("End")
    last = lab.kernel.evaluate("c.names[-1]")
    expect(detail).to_contain_text(last)
    expect(plot).to_have_attribute("aria-valuetext", re.compile(re.escape(last)))
    expect(graph.root.get_by_label("Inspector")).to_contain_text(last)
    lab.kernel.expect("(panel.point, g.selection[0]['name'])", [last, last])

    graph.root.scroll_into_view_if_needed()
    graph.reveal("/enc/2/Tanh", "node")
    graph.click("/enc/2/Tanh", "node")
    expect(detail).to_contain_text("✓ Every value is the same.")
    layer = lab.kernel.evaluate("c['/enc/2/tanh'].scope")
    expect(panel.get_by_role("grid", name="Layers").get_by_role("row", selected=True)).to_contain_text(layer)
    panel.get_by_role("button", name="Points (").click()
    expect(panel.get_by_role("grid", name="Points").get_by_role("row", selected=True)).to_contain_text("/enc/2/tanh")

    panel.get_by_label("Metric").select_option("max_abs")
    expect(graph.root.get_by_role("group", name="Colors: max_abs")).to_be_visible()
    panel.get_by_role("searchbox", name="Filter the points").fill("Tanh cumulative>0")
    panel.get_by_role("button", name="Save").click()
    with lab.page.expect_download() as download:
        panel.get_by_role("menuitem", name="CSV of the table").click()
    download.value.save_as(tmp_path / "errors.csv")
    rows = list(csv.DictReader((tmp_path / "errors.csv").read_text().splitlines()))
    wanted = lab.kernel.evaluate(
        "[[r['name'], r['rmse']] for r in c.rows() if r['op_type'] == 'Tanh' and r['rel_l2'] > 0]"
    )
    assert [[row["point"], float(row["cumulative_rmse"])] for row in rows] == wanted
    assert len(wanted) == 7
    for name, start in (("SVG of the plot", b"<svg "), ("PNG of the plot", b"\x89PNG")):
        panel.get_by_role("button", name="Save").click()
        with lab.page.expect_download() as download:
            panel.get_by_role("menuitem", name=name).click()
        download.value.save_as(tmp_path / "plot")
        saved = (tmp_path / "plot").read_bytes()
        assert saved.startswith(start)
        assert start != b"<svg " or all(said in saved.decode() for said in ("First differs at", "cumulative", "enc.5"))
    lab.page.set_viewport_size({"width": 900, "height": 1000})
    lab.screenshot(f"comparison-narrow-{lab.theme}", panel)
    assert violations(panel) == []
    assert lab.errors == []


def test_a_click_and_a_drag_on_the_plot(lab: JupyterPage) -> None:
    lab.open(lab.server.write("plot.ipynb", FAULTY + "panel = onnx_nb.ComparisonPanel(c)\npanel")).run_all()
    panel = lab.widget("comparison")
    plot = plot_of(panel)
    plot.scroll_into_view_if_needed()
    await_rest(lab.page)
    box = plot.bounding_box()
    assert box is not None
    # a row's place: the axis is 62 px, then 8 px of room on either side
    place = {row: box["x"] + 70 + (box["width"] - 62 - 14 - 16) * row / 24 for row in (0, 8, 20)}
    lab.page.mouse.move(place[20], box["y"] + 60)
    expect(panel.locator(".onnx-nb-depth .onnx-nb-tooltip")).to_contain_text(lab.kernel.evaluate("c.names[20]"))
    lab.page.mouse.click(place[20], box["y"] + 60)
    expect(panel.get_by_label("Errors of the point")).to_contain_text(lab.kernel.evaluate("c.names[20]"))
    lab.page.mouse.move(place[0], box["y"] + 60)
    lab.page.mouse.down()
    lab.page.mouse.move(place[8] + 3, box["y"] + 90, steps=4)
    lab.page.mouse.up()
    range_bar = panel.locator(".onnx-nb-range-bar")
    expect(range_bar).to_contain_text("8 nodes from x to /enc/3/tanh")
    range_bar.get_by_role("button", name="Zoom in").click()
    whole = panel.get_by_role("button", name="Show all")
    expect(whole).to_be_visible()
    # rows 0 to 8 take the whole width now
    lab.page.mouse.click((place[0] + place[20] + 4 * (place[20] - place[0]) / 20) / 2, box["y"] + 60)
    expect(panel.get_by_label("Errors of the point")).to_contain_text(lab.kernel.evaluate("c.names[4]"))
    whole.click()
    expect(whole).to_be_hidden()
    plot.press("Escape")
    expect(range_bar).to_be_hidden()
    assert lab.errors == []


def test_the_graph_beside_the_curve_is_lit_chosen_and_extracted_from(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.open(lab.server.write("beside.ipynb", FAULTY + "panel = onnx_nb.ComparisonPanel(c)\npanel")).run_all()
    panel = lab.widget("comparison")
    graph = GraphWidget(panel.get_by_label("Graph", exact=True).locator(".onnx-nb"))
    graph.expect("view.state.overlay.data.label", "isolated")
    graph.expect("view.columns.nameOf(view.state.selection)", "/enc/5/MatMul")
    plot, detail = plot_of(panel), panel.get_by_label("Errors of the point")
    plot.focus()
    lab.page.keyboard.press("End")
    graph.expect("view.columns.nameOf(view.state.selection)", "/enc/11/Tanh")
    graph.click("/enc/2/Tanh", "node")
    expect(detail).to_contain_text("/enc/2/tanh")
    lab.kernel.expect("panel.point", "/enc/2/tanh")
    plot.focus()
    for _ in range(4):
        lab.page.keyboard.press("Shift+ArrowRight")
    expect(panel).to_contain_text("5 nodes from /enc/2/tanh to /enc/4/tanh")
    lab.screenshot(f"comparison-range-{lab.theme}", panel)
    panel.get_by_role("button", name="Extract this range").click()
    expect(panel).to_contain_text("Extracted 5 nodes")
    assert lab.kernel.evaluate("[node.op_type for node in panel.submodel.proto.graph.node]") == [
        *("Tanh", "MatMul", "Tanh", "MatMul", "Tanh"),
    ]
    box = plot.bounding_box()
    assert box is not None
    lab.page.mouse.move(box["x"] + 70, box["y"] + 60)
    lab.page.mouse.move(box["x"] + 70 + (box["width"] - 92) / 24, box["y"] + 60)
    graph.expect("view.columns.nameOf(view.state.hover)", "/enc/0/MatMul")
    lab.page.add_script_tag(path=AXE)
    assert violations(panel) == []
    assert lab.errors == []


def test_a_region_goes_back_to_float(themed_lab: JupyterPage, tmp_path: Path) -> None:
    lab = themed_lab
    sound = Sound("conv")
    planted = clipped(sound, 2)
    for name, proto in (("float", planted.reference), ("int8", planted.candidate)):
        onnx.save(proto, tmp_path / f"{name}.onnx")
    code = f"""
import ipywidgets, onnx_nb
exact, rough = (onnx_nb.load({str(tmp_path)!r} + f"/{{name}}.onnx") for name in ("float", "int8"))
c = onnx_nb.compare(exact, rough, onnx_nb.random_feeds(exact, 0))
g = onnx_nb.ModelGraph(rough, height=300)
panel = onnx_nb.ComparisonPanel(c, graph=g)
ipywidgets.VBox([g, panel])"""
    lab.open(lab.server.write("float.ipynb", code)).run_all()
    panel = lab.widget("comparison")
    expect(panel.locator("header.onnx-nb-bar")).to_contain_text("First differs at 'r1' (Relu)")
    panel.scroll_into_view_if_needed()
    lab.screenshot(f"quantized-{lab.theme}", panel)
    panel.get_by_role("button", name="Scales (").click()
    scales = panel.get_by_role("grid", name="Quantizers")
    row = scales.locator("[data-row]").first
    expect(row).to_contain_text("Quantization of 'r1' clips 9.9% of values above 0.906")
    row.click()
    detail = panel.get_by_label("The quantizer", exact=True)
    expect(detail.get_by_role("img", name="Values before and after rounding, 9.89 % of them clipped")).to_be_visible()
    lab.kernel.expect("(panel.point, g.selection[0]['name'])", ["r1", "r1_DequantizeLinear_Output"])
    lab.screenshot(f"quantized-scales-{lab.theme}", panel)
    lab.page.add_script_tag(path=AXE)
    assert violations(panel) == []

    detail.get_by_role("button", name="Put back to float").click()
    expect(panel.get_by_role("status").first).to_contain_text(
        "With 4 nodes in float the outputs have 37.8 dB instead of 13.7 dB."
    )
    wanted = "onnx_nb.compare(exact, onnx_nb.mixed(c, panel.curve.nodes()), c.feed)['y'].cumulative.sqnr"
    assert lab.kernel.evaluate(f"abs(panel.curve.steps[-1].sqnr - {wanted}) < 0.01")
    panel.get_by_role("button", name="In float (1)").click()
    curve = panel.get_by_label("Outputs against regions in float").first
    expect(curve.get_by_role("status")).to_contain_text("1 region, 4 nodes in float: 37.8 dB")
    lab.screenshot(f"quantized-float-{lab.theme}", panel)
    curve.get_by_role("button", name="Undo").click()
    expect(panel.get_by_role("button", name="In float (0)")).to_be_visible()
    assert lab.kernel.evaluate("panel.curve") is None
    curve.get_by_label("SQNR that the outputs").fill("about 40")
    curve.get_by_role("button", name="Suggest").click()
    expect(panel.get_by_role("alert")).to_contain_text("about 40")
    curve.get_by_label("SQNR that the outputs").fill("40 dB")
    curve.get_by_role("button", name="Suggest").click()
    expect(panel.get_by_role("status").first).to_contain_text("nodes in float the outputs have 4")
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    curve.get_by_role("button", name="Copy nodes_to_exclude").click()
    expect(curve.get_by_role("button", name="Copied")).to_be_visible()
    copied = lab.page.evaluate("navigator.clipboard.readText()")
    nodes = lab.kernel.evaluate("onnx_nb.suggest_exclusion(c, sqnr='40 dB')")
    assert copied.partition("=")[0] == "nodes_to_exclude"
    # suggest_exclusion leaves out nodes that change nothing; the panel puts whole regions back
    assert set(ast.literal_eval(copied.partition("=")[2])) >= set(nodes)
    curve.get_by_role("button", name="Worst first").click()
    count = lab.kernel.evaluate("len(onnx_nb.types.ExclusionCurve.of(c).steps) - 1")
    expect(panel.get_by_role("button", name=f"In float ({count})")).to_be_visible()
    lab.page.set_viewport_size({"width": 900, "height": 1000})
    lab.screenshot(f"quantized-curve-{lab.theme}", panel)
    assert violations(panel) == []
    assert lab.errors == []


def test_thresholds_of_a_loaded_comparison_are_changed_in_the_panel(lab: JupyterPage, tmp_path: Path) -> None:
    planted = clipped(Sound("conv"), 2)
    c = onnx_nb.compare(planted.reference, planted.candidate, onnx_nb.random_feeds(planted.reference, 0))
    c.save(tmp_path / "c.errors")
    code = f"import onnx_nb\nc = onnx_nb.types.Comparison.load({str(tmp_path / 'c.errors')!r})\nc"
    lab.open(lab.server.write("loaded.ipynb", code)).run_all()
    panel = lab.widget("comparison")
    panel.get_by_role("button", name="Points (").click()
    points = panel.get_by_role("grid", name="Points")
    field = panel.get_by_role("searchbox", name="Filter the points")
    counts = set()
    for condition in ("sqnr < 20 dB", "sqnr < 40 dB", "cosine < 0.999", "outside > 1 %"):
        names = lab.kernel.evaluate(f"[point.name for point in c.failed({condition!r})]")
        counts.add(len(names))
        field.fill(f"cumulative_{condition}")
        expect(points).to_have_attribute("aria-rowcount", str(len(names) + 1))
        shown = points.locator("[data-row] > :first-child").all_inner_texts()
        assert sorted(shown) == sorted(names)
    assert len(counts) > 2
    field.fill("")
    # without the models nothing is put back to float, but the scales are there
    expect(panel.get_by_role("button", name="In float")).to_have_count(0)
    panel.get_by_role("button", name="Scales (").click()
    panel.get_by_role("grid", name="Quantizers").locator("[data-row]").first.click()
    detail = panel.get_by_label("The quantizer", exact=True)
    expect(detail.get_by_role("img", name="Values before and after rounding")).to_be_visible()
    expect(detail.get_by_role("button", name="Put back to float")).to_have_count(0)
    expect(detail).to_contain_text("To put regions back to float, compare both models again")
    assert lab.errors == []


def test_a_module_is_drilled_into(themed_lab: JupyterPage) -> None:
    pytest.importorskip("torch")
    lab = themed_lab
    lab.open(lab.server.write("drill.ipynb", TORCH)).run_all()
    panel = lab.widget("comparison")
    expect(panel.locator("header.onnx-nb-bar")).to_contain_text("First differs at '1.3' (LayerNorm)")
    expect(panel.get_by_role("grid", name="Layers").locator("[data-row]").first).to_contain_text("1.3")
    detail = panel.get_by_label("Errors of the point")
    lab.screenshot(f"comparison-torch-{lab.theme}", panel)
    detail.get_by_role("button", name="Reproduce", exact=True).click()
    expect(panel.get_by_role("status").first).to_contain_text("panel.reproduction")
    assert lab.kernel.evaluate("panel.reproduction.path") == "1.3"
    detail.get_by_role("button", name="Cumulative").click()
    expect(detail).to_contain_text("all metrics, cumulative")
    detail.get_by_role("button", name="Drill down").click()
    back = panel.get_by_role("button", name="← All points")
    expect(back).to_be_visible()
    count = lab.kernel.evaluate("len(panel.drilled)")
    panel.get_by_role("button", name="Points (").click()
    expect(panel.get_by_role("grid", name="Points")).to_have_attribute("aria-rowcount", str(count + 1))
    lab.screenshot(f"comparison-drilled-{lab.theme}", panel)
    lab.page.add_script_tag(path=AXE)
    assert violations(panel) == []
    back.click()
    expect(panel.locator("header.onnx-nb-bar")).to_contain_text("First differs at '1.3' (LayerNorm)")
    plot_of(panel).focus()
    lab.page.keyboard.press("Home")
    expect(detail).to_contain_text(lab.kernel.evaluate("c.names[0]"))
    assert lab.errors == []


def test_ten_thousand_points_stay_fluent(lab: JupyterPage) -> None:
    lab.open(lab.server.write("many.ipynb", MANY)).run_all()
    panel = lab.widget("comparison")
    grid = panel.get_by_role("grid", name="Points")
    expect(panel.locator("header.onnx-nb-bar")).to_contain_text("First differs at 'encoder.layer.30.op0'")
    assert grid.get_attribute("aria-rowcount") == "10001"
    seen = grid.evaluate("""async grid => {
        const seen = [];
        for (let at = 0; at < 60; at++) {
            grid.scrollTop = at * 4000;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            const top = Math.floor(grid.scrollTop / 26);
            const rows = [...grid.querySelectorAll('[aria-rowindex][data-row]')];
            const places = rows.map(row => Number(row.getAttribute('aria-rowindex')) - 2);
            seen.push([places.includes(Math.min(top + 2, 9999)), rows.length]);
        }
        return seen;
    }""")
    assert all(there and count < 60 for there, count in seen)
    hovered = plot_of(panel).evaluate("""async plot => {
        const box = plot.getBoundingClientRect(), tip = plot.parentElement.querySelector('.onnx-nb-tooltip');
        const texts = new Set();
        for (let at = 0; at < 60; at++) {
            const point = {clientX: box.x + 80 + at * (box.width - 120) / 60, clientY: box.y + 100, bubbles: true};
            plot.dispatchEvent(new PointerEvent('pointermove', point));
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            texts.add(tip.textContent);
        }
        return texts.size;
    }""")
    assert hovered == 60
    # of a point that did not come along everything is asked for
    grid.focus()
    lab.page.keyboard.press("End")
    detail = panel.get_by_label("Errors of the point")
    expect(detail.get_by_role("img", name="Histogram")).to_have_count(3)
    lab.screenshot("comparison-10000", panel)
    assert lab.errors == []


SLOW = """
import time
from onnx_nb.widgets import comparison as module
def slowly(comparison, *, progress, **_):
    for step in range(6000):
        progress(step / 6000, f"Reading point {step}")
        time.sleep(0.05)
packed, module.comparison_columns = module.comparison_columns, slowly
"""


def test_work_is_stopped_and_a_kernel_that_is_gone_is_told(lab: JupyterPage) -> None:
    lab.open(lab.server.write("work.ipynb", MANY)).run_all()
    panel = lab.widget("comparison")
    lab.kernel.run(SLOW)
    strip = panel.locator(".onnx-nb-task")
    panel.get_by_role("button", name="Save").click()
    panel.get_by_role("menuitem", name="HTML page").click()
    expect(strip).to_contain_text("Reading point")
    expect(strip.get_by_role("progressbar")).to_be_visible()
    lab.screenshot("comparison-working", panel)
    strip.get_by_role("button", name="Cancel").click()
    expect(strip).to_be_hidden()
    # its one worker is free again
    lab.kernel.run("module.comparison_columns = packed")
    panel.get_by_role("button", name="Save").click()
    with lab.page.expect_download() as download:
        panel.get_by_role("menuitem", name="HTML page").click()
    assert download.value.suggested_filename == "big errors.html"

    lab.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    grid = panel.get_by_role("grid", name="Points")
    grid.focus()
    lab.page.keyboard.press("End")
    detail = panel.get_by_label("Errors of the point")
    expect(detail).to_contain_text("The kernel that this was made by is gone.")
    expect(detail).to_contain_text("all metrics, isolated")
    lab.command("notebook:run-all-cells")
    panel = lab.widget("comparison")
    expect(panel.get_by_label("Errors of the point")).to_contain_text("encoder.layer.30.op0")
    assert lab.errors == []


def test_two_views_of_a_panel_stay_in_step(lab: JupyterPage) -> None:
    lab.open(lab.server.write("twice.ipynb", FAULTY + "panel = onnx_nb.ComparisonPanel(c)\npanel", "panel")).run_all()
    one, other = (lab.widget("comparison", within=lab.cell(at)) for at in (0, 1))
    other.get_by_label("Metric").select_option("max_abs")
    plot_of(other).focus()
    lab.page.keyboard.press("Home")
    for view in (one, other):
        expect(view.get_by_label("Errors of the point")).to_contain_text("✓ Every value is the same.")
        expect(view.get_by_label("Metric")).to_have_value("max_abs")
    lab.kernel.expect("[panel.point, panel.metric]", ["x", "max_abs"])
    assert lab.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_works_from_disk(browser: Browser, tmp_path: Path, theme: str) -> None:
    names: dict[str, object] = {}
    exec(FAULTY.replace("ipywidgets, ", ""), names)  # noqa: S102 - the cell above
    from onnx_nb import ComparisonPanel
    from onnx_nb.types import Comparison

    c = names["c"]
    assert isinstance(c, Comparison)
    path = ComparisonPanel(c).to_html(tmp_path / "page.html")
    context = browser.new_context(
        offline=True,
        viewport={"width": 1400, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
    )
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    panel = page.locator('.onnx-nb[data-widget="comparison"][data-state="drawn"]')
    detail = panel.get_by_label("Errors of the point")
    expect(detail).to_contain_text(CULPRIT)
    expect(detail.get_by_role("img", name="Histogram")).to_have_count(3)
    page.screenshot(path=ROOT / "build" / "screenshots" / f"comparison-page-{theme}.png")
    panel.get_by_role("button", name="Save").click()
    expect(panel.get_by_role("menuitem", name="HTML page")).to_have_count(0)
    assert said == []
    context.close()
