"""The states of a review by eye, in JupyterLab: pictures to look at, and what has to hold in each of them.

The pictures are build/screenshots/gallery/STATE-WIDTHxHEIGHT-THEME.png.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import SCREENSHOTS, await_rest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.jupyter import JupyterPage

# for eyes more than for numbers: `make rare`
pytestmark = pytest.mark.rare
SIZES = [(1440, 900), (1000, 700), (420, 800)]
# scrollbars of its own do no harm; what is cut off at an edge does
CUT_OFF = """root => [...root.querySelectorAll('header, .onnx-nb-bar, .onnx-nb-strip, [role="tablist"], .onnx-nb-menu')]
    .filter(each => each.offsetParent && getComputedStyle(each).overflowX !== 'auto')
    .flatMap(each => [...each.querySelectorAll('button')])
    .filter(each => each.offsetParent && each.getBoundingClientRect().right > root.getBoundingClientRect().right + 1)
    .map(each => each.textContent)"""

STILLS = ("calibration", "reduction")
"""Results that are a page without a widget, or above one."""
PANELS = {
    "profile": "onnx_nb.profile(bert, runs=3)",
    "int8": "onnx_nb.compare(bert, int8)",
    "simplify": "onnx_nb.simplify(segformer)",
    "capture": "onnx_nb.capture(bert)",
    "diff": "onnx_nb.diff(bert, int8)",
    "audit": "onnx_nb.AuditPanel(bert)",
    "calibration": "onnx_nb.calibrate(onnx_nb.capture(bert, ranges=True), 'percentile')",
    "reduction": "onnx_nb.reduce(bert, lambda part, _: 'Softmax' not in {n.op_type for n in part.proto.graph.node})",
    "before-after": "a = onnx_nb.profile(bert, runs=3, optimization='off')\na.compare(onnx_nb.profile(bert, runs=3))",
}


class Gallery:
    """A page of one size that is photographed."""

    def __init__(self, lab: JupyterPage, size: tuple[int, int]) -> None:
        lab.is_clean = False  # the next test expects another size
        lab.page.set_viewport_size({"width": size[0], "height": size[1]})
        self._lab = lab
        self._suffix = f"{size[0]}x{size[1]}-{lab.theme}"
        self._folder = SCREENSHOTS / "gallery"
        self._folder.mkdir(parents=True, exist_ok=True)

    def picture(self, state: str, root: Locator | None = None) -> None:
        """Save a picture of an element, or of the window, once it is at rest, and check that no button is cut off."""
        await_rest(self._lab.page)
        target = self._lab.page if root is None else root
        target.screenshot(path=self._folder / f"{state}-{self._suffix}.png")
        if root is not None:
            assert root.evaluate(CUT_OFF) == [], state


def prelude() -> str:
    bert, int8 = models.exported("bert", dynamo=True), models.transformed("bert", "qdq")
    segformer = models.exported("segformer", dynamo=True)
    return f"import onnx_nb\nbert, int8, segformer = {str(bert)!r}, {str(int8)!r}, {str(segformer)!r}"


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_states_of_the_graph(themed_lab: JupyterPage, size: tuple[int, int]) -> None:
    lab = themed_lab
    gallery = Gallery(lab, size)
    cells = prelude(), "model = onnx_nb.load(segformer)\nmodel", "g = onnx_nb.ModelGraph(segformer)\ng"
    lab.open(lab.server.write("gallery.ipynb", *cells)).run_cell(0)
    lab.run_cell(1)
    view = lab.cell(1)
    lab.widget("graph", within=view)
    gallery.picture("first")
    view.get_by_role("button", name="Details").click()
    gallery.picture("details")
    gallery.picture("details-whole", lab.widget("summary", within=view))
    lab.run_cell(2)
    graph = GraphWidget(lab.widget("graph", within=lab.cell(2)))
    root = graph.root
    gallery.picture("graph", root)
    graph.press("Expand all")
    graph.rest()
    graph.press("Fit")
    gallery.picture("expanded", root)
    graph.press("Collapse all")
    graph.rest()
    graph.press("Fit")
    scope = graph.scope(is_open=False)
    graph.click(scope, "scope")
    gallery.picture("scope", root)
    lab.page.keyboard.press("Space")
    lab.page.mouse.move(5, 5)
    gallery.picture("peek", root)
    lab.page.keyboard.press("Escape")
    root.get_by_role("button", name="Extract", exact=True).first.click()
    pane = root.locator('.onnx-nb[data-widget="submodel"]')
    expect(pane).to_have_attribute("data-state", "drawn")
    gallery.picture("extracted", root)
    root.get_by_role("button", name="Save…").first.click()
    gallery.picture("save", root)
    root.get_by_role("button", name="Close submodel").click()
    # one output with one input in the middle of a block: another input is missing
    adds = graph.call("""const {columns} = view;
        const nodes = [...Array(columns.nodeCount).keys()].filter(node => columns.opOf(node) === 'Add' &&
            columns.inputsOf(node).filter(value => !columns.isConstant(value)).length === 2);
        const node = nodes[nodes.length >> 1];
        const [input] = columns.inputsOf(node);
        return [input, columns.outputsOf(node)[0]].map(value => columns.valueNameOf(value));""")
    lab.kernel.run(f"g.inputs, g.outputs = [{adds[0]!r}], [{adds[1]!r}]")
    graph.reveal(adds[1], "tensor")
    graph.wait_for_plan()
    gallery.picture("missing", root)
    lab.kernel.run("g.inputs, g.outputs = [], []")
    search = root.get_by_role("combobox").first
    search.fill("q_proj")
    gallery.picture("search", root)
    search.fill("matmull")
    gallery.picture("search-nothing", root)
    search.fill("weights > 1 MB")
    gallery.picture("search-words", root)
    search.press("Escape")
    search.fill("")
    search.press("Escape")
    graph.press("Tree")
    gallery.picture("tree", root)
    graph.press("Tree")
    for lens in ("Size", "MACs"):
        root.get_by_role("button", name=f"Color by {lens}").click()
        expect(root.locator(".onnx-nb-top li").first).to_be_visible()
        gallery.picture(f"color-{lens}", root)
    root.get_by_role("button", name="Color by Kind").click()
    name = lab.kernel.evaluate("next(n.output[0] for n in g.model.proto.graph.node if n.op_type == 'MatMul')")
    graph.click(name, "tensor")
    graph.press("Capture")
    root.get_by_role("button", name="Values", exact=True).click()
    expect(root.locator(".onnx-nb-cells td").first).to_be_visible()
    gallery.picture("values", root)
    root.get_by_role("button", name="Save", exact=True).first.click()
    gallery.picture("menu", root)
    assert lab.errors == []


@pytest.mark.slow
def test_states_of_panels(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    lab.page.set_viewport_size({"width": 1440, "height": 1600})
    lab.open(lab.server.write("panels.ipynb", prelude(), *PANELS.values())).run_cell(0)
    for at, panel in enumerate(PANELS, 1):
        lab.run_cell(at)
        output = lab.cell(at).locator(".jp-Cell-outputArea")
        if panel not in STILLS:
            expect(output.locator(".onnx-nb").first).to_have_attribute("data-state", "drawn")
        for width in (1440, 1000, 420):
            gallery = Gallery(lab, (width, 1600))
            lab.cell(at)
            gallery.picture(panel, output)
        lab.page.set_viewport_size({"width": 1440, "height": 1600})
    assert lab.errors == []
