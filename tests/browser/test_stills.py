"""Stills: what a saved notebook shows on a page that runs no widgets, as GitHub's."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import nbconvert
import nbformat
from playwright.sync_api import expect

from tests.browser.jupyter import SCREENSHOTS, await_value
from tests.browser.test_comparison import FAULTY
from tests.browser.test_picture import SVG, pictures

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.jupyter import JupyterPage

CHAIN = """
import onnx_nb, onnx.parser
lines = [f"v{at + 1} = {'Relu' if at % 2 else 'Sigmoid'}(v{at})" for at in range(40)]
text = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] v0) => (float[2, 3] v40) { ' + " ".join(lines) + " }"
chain = onnx.parser.parse_model(text)
g = onnx_nb.ModelGraph(chain, inputs=["v8"], outputs=["v28"])
g
"""
FOLDED = """
small = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> small (float[N, 4] x) => (float[N, 4] y) '
    '<float c = {2.0}, float d = {3.0}> { a = Identity(x) e = Add(c, d) y = Mul(a, e) }')
s = onnx_nb.simplify(small)
panel = onnx_nb.SimplificationPanel(s)
panel.change = s.changes[0].key
panel
"""
# what each cell shows, and texts that its picture must hold
CELLS = {
    "graph": (CHAIN, {"in  v8  2×3 f32", "out  v28  2×3 f32", "v0", "v40", "activation", "Extract"}),
    "overlay": (
        "o = onnx_nb.ModelGraph(chain)\no.overlay({f'v{at}': at for at in range(1, 41)}, label='made up')\no",
        {"made up", "v40"},
    ),
    "comparison": (
        FAULTY + "onnx_nb.ComparisonPanel(c, point='/enc/5/mm')",
        {"/enc/5/mm", "isolated", "Points (25)", "Unmatched (0)", "cumulative", "absolute error (log)"},
    ),
    "simplification": (
        FOLDED,
        {"Changes (2)", "eliminate_identity", "original", "Identity", "− removed", "✓ Verified"},
    ),
    "diff": ("onnx_nb.diff(exact, rough)", {"enc.5.w", "exact", "rough"}),
    "summary": ("onnx_nb.ModelSummary(chain)", {"v0", "v40", "Sigmoid"}),
    "capture": ("onnx_nb.capture(exact)", {"/enc/0/mm"}),
    "profile": (
        "p = onnx_nb.profile(chain, runs=2, warmup=0, threads=1, optimization='off')\np",
        {"Timeline", "Kernels (40)", "Operators (2)", "Sigmoid", "activation 100.0%"},
    ),
    "profile-overlay": ("c = onnx_nb.ModelGraph(chain)\nc.overlay(p)\nc", {"seconds", "v40"}),
    "box": ("import ipywidgets\nipywidgets.HBox([ipywidgets.Tab([onnx_nb.ModelGraph(chain)])])", {"v0", "v40"}),
}
GITHUB = {"light": "#ffffff", "dark": "#0d1117"}


def texts(svg: str) -> set[str]:
    return {"".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{SVG}text")}  # noqa: S314 - ours


def test_a_saved_notebook_shows_whole_graphs_and_whole_panels(lab: JupyterPage) -> None:
    name = lab.server.write("stills.ipynb", *(source for source, _ in CELLS.values()))
    lab.open(name).run_all()
    lab.cell(len(CELLS) - 1)  # JupyterLab renders no output below the window
    expect(lab.page.locator("img.onnx-nb-picture")).to_have_count(len(CELLS))

    def missing() -> dict[str, list[str]]:
        lab.command("docmanager:save")
        saved = pictures(lab.server.root / name)
        return {kind: sorted(CELLS[kind][1] - texts(svg)) for kind, svg in zip(CELLS, saved, strict=True)}

    await_value(missing, wanted={kind: [] for kind in CELLS}, what="pictures with everything in them")
    page = lab.page.context.new_page()
    page.set_viewport_size({"width": 1012, "height": 900})
    for kind, svg in zip(CELLS, pictures(lab.server.root / name), strict=True):
        assert "color(" not in svg, "only browsers know it"
        source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        for theme, ground in GITHUB.items():
            page.set_content(f'<body style="background:{ground}"><img style="max-width:100%" src="{source}">')
            page.wait_for_function("document.images[0].complete")
            assert page.locator("img").evaluate("image => image.naturalWidth") > 100, kind
            page.screenshot(path=SCREENSHOTS / f"still-{kind}-{theme}.png", full_page=True)
    notebook = nbformat.read(lab.server.root / name, 4)
    for exporter in (nbconvert.HTMLExporter(), nbconvert.SlidesExporter()):  # type: ignore[no-untyped-call]
        document, _ = exporter.from_notebook_node(notebook)
        _assert_pictures(page, document, type(exporter).__name__)
    page.close()


def _assert_pictures(page: Page, document: str, name: str) -> None:
    """Assert that a page shows each picture without a network, and so does the PDF that it is printed to."""
    page.route("**/*", lambda route: route.abort())
    page.set_content(document)
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    shown = page.locator("img.onnx-nb-picture")
    expect(shown).to_have_count(len(CELLS))
    widths = shown.evaluate_all("images => images.map((image) => image.checkVisibility() ? image.naturalWidth : 0)")
    assert min(widths) > 100, widths
    page.screenshot(path=SCREENSHOTS / f"nbconvert-{name}.png", full_page=True)
    printed = page.pdf(path=SCREENSHOTS / f"nbconvert-{name}.pdf")
    shown.evaluate_all("images => images.forEach((image) => image.remove())")
    assert len(printed) - len(page.pdf()) > 2_000 * len(CELLS), "a picture of some lines and words takes more bytes"
