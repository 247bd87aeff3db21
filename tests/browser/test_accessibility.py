"""axe reports no violation in any widget, in both themes and in every state a person meets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from tests import models
from tests.browser.graph import GraphWidget

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
