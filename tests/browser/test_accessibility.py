"""axe reports no violation in any widget, in both themes and in every state a person meets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import onnx
from playwright.sync_api import expect

import onnx_nb
from tests import models
from tests.analysis.generate import packages
from tests.browser.graph import GraphWidget
from tests.browser.test_edits import PINNED, open_pinned

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.jupyter import JupyterPage

AXE = Path(__file__).parents[2] / "onnx_nb" / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
# the notebook around the widgets is JupyterLab's; best practices about whole pages do not concern a part of one
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def violations(root: Locator) -> list[dict[str, Any]]:
    """Return axe's violations: rule, help text and elements."""
    found: list[dict[str, Any]] = root.evaluate(
        """async (root, rules) => {
            const {violations} = await axe.run(root, {runOnly: {type: 'tag', values: rules}});
            return violations.map(({id, help, nodes}) =>
                ({id, help, elements: nodes.slice(0, 5).map(node => `${node.html} ${node.any[0]?.message ?? ''}`)}));
        }""",
        RULES,
    )
    return found


def test_axe_objects_to_nothing(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    path = models.light("resnet50")
    lab.open(lab.server.write("axe.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(path)!r})\ng")).run_all()
    graph = GraphWidget(lab.widget("graph"))
    root = graph.root
    lab.page.add_script_tag(path=AXE)
    assert violations(root) == [], "at first"

    graph.call("view.dispatch({type: 'selectAll', targets: [1, 2, 3].map(id => ({kind: 'node', id}))});")
    root.get_by_role("group", name="Colors of op categories").get_by_role("button").first.click()
    root.locator(".onnx-nb-canvas").focus()
    lab.page.keyboard.press("b")
    graph.root.get_by_role("button", name="Bookmarks").click()
    assert violations(root) == [], "many selected, a category lit, and the bookmarks"
    lab.screenshot(f"many-lit-{lab.theme}", root)
    lab.page.keyboard.press("Escape")

    names = [node.output[0] for node in onnx.load(path, load_external_data=False).graph.node if node.op_type == "Relu"]
    graph.click(names[1], "tensor")
    graph.press("Input")
    graph.click(names[4], "tensor")
    graph.press("Output")
    graph.wait_for_plan()
    graph.press("Capture")
    root.get_by_role("button", name="Values", exact=True).click()
    root.locator("td").first.wait_for()
    assert violations(root) == [], "a tensor, its values, and a plan"

    graph.press("Tree")
    root.get_by_label("Search").first.fill("Conv")
    root.get_by_role("option").first.wait_for()
    assert violations(root) == [], "tree and search"

    root.get_by_label("Color", exact=True).select_option("parameters")
    root.get_by_role("group", name="Colors: parameters").wait_for()
    graph.press("Save")
    assert violations(root) == [], "an overlay, and the menu of pictures"
    lab.page.keyboard.press("Escape")

    graph.press("Help")
    assert violations(root) == [], "the list of keys"
    lab.page.keyboard.press("Escape")
    graph.extract()
    assert violations(root) == [], "a submodel beside"


def test_a_graph_in_the_other_theme_than_its_page_is_readable(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    other = "light" if lab.theme == "dark" else "dark"
    source = f"import onnx_nb\nonnx_nb.ModelGraph({str(models.light('resnet50'))!r}, theme={other!r})"
    lab.open(lab.server.write("axe-other.ipynb", source)).run_all()
    root = lab.widget("graph")
    lab.page.add_script_tag(path=AXE)
    assert violations(root) == []
    # axe does not look at placeholders, which are as dim as other text that explains
    dim = root.locator(".onnx-nb-dim").first.evaluate("dim => getComputedStyle(dim).color")
    field = root.get_by_label("Search").first
    assert field.evaluate("field => getComputedStyle(field, '::placeholder').color") == dim


def test_axe_objects_to_nothing_in_a_summary(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    source = f"import onnx_nb\nonnx_nb.ModelSummary({str(models.light('resnet50'))!r})"
    lab.open(lab.server.write("axe-summary.ipynb", source)).run_all()
    root = lab.widget("summary")
    lab.page.add_script_tag(path=AXE)
    assert violations(root) == []


def test_axe_objects_to_nothing_while_a_person_edits(lab: JupyterPage, tmp_path: Path) -> None:
    open_pinned(lab, "axe-edits", tmp_path)
    graph, keys = GraphWidget(lab.widget("graph")), lab.page.keyboard
    root, pane = graph.root, graph.root.get_by_role("region", name="Submodel")
    lab.page.add_script_tag(path=AXE)
    graph.click("image", "tensor")
    keys.press("F2")
    field = root.get_by_role("dialog", name="Shape of image").get_by_role("textbox")
    expect(field).to_be_focused()
    assert violations(root) == [], "the shape of an input"
    field.fill("N×3×4")
    field.press("Enter")
    expect(pane.get_by_role("listitem")).to_have_count(1)
    graph.root.get_by_label("Inspector").last.get_by_text("Edit", exact=True).click()
    assert violations(root) == [], "the steps beside the graph, the marks, and the form of edits"
    root.locator("canvas").first.focus()
    keys.press("ContextMenu")
    expect(root.get_by_role("menuitem").first).to_be_focused()
    assert violations(root) == [], "the menu of a tensor"
    root.get_by_role("menuitem", name="Insert a node…").click()
    assert violations(root) == [], "the field of an edit"
    keys.press("Escape")
    pane.get_by_role("button", name="Save…").click()
    pane.get_by_role("combobox", name="Search").fill("Relu")
    pane.get_by_role("option").first.wait_for()
    assert violations(root) == [], "hits in the edited model, and where it is saved"
    lab.command("apputils:change-theme", {"theme": "JupyterLab Dark"})
    assert violations(root) == [], "the same in the dark"
    keys.press("Escape")
    lab.page.set_viewport_size({"width": 420, "height": 900})
    lab.page.wait_for_function("root => root.classList.contains('onnx-nb-narrow')", arg=root.element_handle())
    assert violations(root) == [], "narrow"


PANELS = {
    "ModelGraph": ("graph", "onnx_nb.ModelGraph(text)"),
    "ModelSummary": ("summary", "onnx_nb.ModelSummary(text)"),
    "ModelView": ("summary", "onnx_nb.ModelView(text)"),
    "AuditPanel": ("external_data", "onnx_nb.AuditPanel({gpt!r})"),
    "CapturePanel": ("capture", "onnx_nb.CapturePanel(onnx_nb.capture(text))"),
    "ComparisonPanel": ("comparison", "onnx_nb.ComparisonPanel(onnx_nb.compare(text, other))"),
    "DecodingPanel": ("decoding", "onnx_nb.DecodingPanel(onnx_nb.compare_decoding({gpt!r}, {gpt!r}, steps=4))"),
    "DiffPanel": ("pair", "onnx_nb.DiffPanel(text, other)"),
    "ProfilePanel": ("profile", "onnx_nb.ProfilePanel(onnx_nb.profile(text))"),
    "SimplificationPanel": ("simplification", "onnx_nb.SimplificationPanel(onnx_nb.simplify(text))"),
}
"""Each widget: its `data-widget`, and how a cell makes it."""


def test_axe_objects_to_nothing_in_any_widget(lab: JupyterPage, tmp_path: Path) -> None:
    classes = {name: getattr(onnx_nb, name) for name in onnx_nb.__all__}
    types = {name: made for name, made in classes.items() if isinstance(made, type)}
    assert set(PANELS) == {name for name, made in types.items() if issubclass(made, ipywidgets.DOMWidget)}
    path = tmp_path / "decoder.onnx"
    onnx.save(packages.decoder(2), path)
    first = f"import onnx.parser, onnx_nb\ntext = onnx.parser.parse_model({PINNED!r})\n"
    first += "other = onnx.parser.parse_model(onnx.printer.to_text(text).replace('Relu', 'Sigmoid'))"
    cells = [first, *(code.format(gpt=str(path)) for _, code in PANELS.values())]
    lab.open(lab.server.write("axe-all.ipynb", *cells)).run_all()
    lab.page.add_script_tag(path=AXE)
    found = {}
    for theme in ("Light", "Dark"):
        lab.command("apputils:change-theme", {"theme": f"JupyterLab {theme}"})
        for at, (name, (kind, _)) in enumerate(PANELS.items(), 1):
            root = lab.widget(kind, within=lab.cell(at))
            row = root.get_by_role("row").nth(1)  # its details are shown
            if row.is_visible():
                row.click()
            found[name, theme] = violations(root)
    assert {key: faults for key, faults in found.items() if faults} == {}
