"""Overlays: set from the kernel, set in the toolbar, filtered, and exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import COLORS, GraphWidget
from tests.browser.jupyter import await_value

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage


def test_numbers_color_the_boxes(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    source = f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.exported('resnet50', dynamo=True))!r})\ng"
    lab.open(lab.server.write("overlay.ipynb", source)).run_all()
    graph = GraphWidget(lab.widget("graph"))
    plain = set(graph.root.evaluate(COLORS))

    lab.kernel.run("cap = onnx_nb.capture(g.model)\nmade = g.overlay(cap, label='seconds')")
    legend = graph.root.get_by_role("group", name="Colors: seconds")
    expect(legend).to_be_visible()
    await_value(lambda: len(set(graph.root.evaluate(COLORS)) - plain) > 5, wanted=True, what="new colors")
    lab.screenshot(f"overlay-seconds-{lab.theme}", graph.root)

    # only the upper half of the scale
    slider = graph.root.get_by_label("Show from")
    slider.focus()
    for _ in range(120):
        slider.press("ArrowRight")
    graph.expect("view.state.overlay.range.from > 0.5")
    lab.screenshot(f"overlay-filtered-{lab.theme}", graph.root)

    graph.root.get_by_label("Color", exact=True).select_option("parameters")
    expect(graph.root.get_by_role("group", name="Colors: parameters")).to_be_visible()
    node = graph.call(
        """const {nodes} = view.state.overlay.data;
           const node = nodes.indexOf(Math.max(...nodes.filter(x => !Number.isNaN(x))));
           return view.columns.nameOf({kind: 'node', id: node});"""
    )
    graph.click(node, "node")
    expect(graph.root.locator(".onnx-nb-inspector")).to_contain_text("parameters")
    lab.screenshot(f"overlay-parameters-{lab.theme}", graph.root)

    kind = graph.root.get_by_role("button", name="Color by Kind")
    kind.click()
    expect(kind).to_have_attribute("aria-pressed", "true")
    lab.kernel.expect("g._overlay is None")

    # more labels than colors: the less frequent ones share a color, and are listed once it is pressed
    lab.kernel.run("names = [n.output[0] for n in g.model.proto.graph.node]")
    lab.kernel.run("g.overlay({n: f'part {min(i // 12, 10)}' for i, n in enumerate(names)}, label='part')")
    legend = graph.root.get_by_role("group", name="Colors: part")
    expect(legend.locator("i")).to_have_count(9)  # seven labels, the others, and scopes of several
    assert len(set(legend.locator("i").evaluate_all("all => all.map(each => each.style.background)"))) == 9
    lab.screenshot(f"overlay-labels-{lab.theme}", graph.root)
    legend.get_by_role("button", name="4 others").click()
    last = legend.get_by_role("button", name="part 9")
    last.click()
    expect(last).to_have_attribute("aria-pressed", "true")
    graph.expect("view.state.overlay.data.labels.filter((_, at) => !view.state.overlay.leavesOut(at)).join()", "part 9")
    lab.screenshot(f"overlay-label-filtered-{lab.theme}", graph.root)
    last.click()
    graph.expect("view.state.overlay.range.to - view.state.overlay.range.from", 1)
    assert lab.errors == []
