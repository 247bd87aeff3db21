"""Every state of the graph view on every kind of model, narrow and wide, light and dark: screenshots to look at, and
checks that hold in all of them with any font.

The pictures are build/screenshots/states/MODEL-WIDTH-THEME-STATE.png.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onnx_nb import ModelGraph
from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import SCREENSHOTS, await_rest
from tests.browser.test_accessibility import AXE, violations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

MODELS: dict[str, Callable[[], Path]] = {
    "resnet50": lambda: models.exported("resnet50", dynamo=False),
    "densenet121": lambda: models.light("densenet121"),
    "bert": lambda: models.exported("bert", dynamo=True),
    "llama": lambda: models.exported("llama", dynamo=True),
    "detection": models.detection,
    "one_node": models.one_node,
    "empty": models.empty,
}

# what is drawn, as numbers: rectangles of boxes and, for every tensor that has a line, whether it can be hit
HITTABLE = """
    const wanted = [];
    for (let value = 0; value < view.columns.valueCount && wanted.length < 400; value++) {
        if (!view.columns.isConstant(value) && view.locate(view.columns.valueNameOf(value), 'tensor') !== null) {
            wanted.push(value);
        }
    }
    return wanted.map(value => ({ ...view.locate(view.columns.valueNameOf(value), 'tensor'),
                                  name: view.columns.valueNameOf(value) }));
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the address of the exported page of a model, which is written once."""
    folder = tmp_path_factory.mktemp("pages")
    known: dict[str, str] = {}

    def page(name: str) -> str:
        if name not in known:
            known[name] = ModelGraph(MODELS[name]()).to_html(folder / f"{name}.html").as_uri()
        return known[name]

    return page


WINDOWS = ("light-600", "dark-1400", "dark-600", "light-1400")
"""Theme and width of the window."""


@pytest.fixture
def window(request: pytest.FixtureRequest, browser: Browser) -> Iterator[tuple[Page, str]]:
    theme, width = request.param.split("-")
    context = browser.new_context(viewport={"width": int(width), "height": 900}, color_scheme=theme)
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page, f"{width}-{theme}"
    assert said == []
    context.close()


# one window of a model after the other in `make test`, all in `make rare`
@pytest.mark.parametrize(
    ("window", "name"),
    [
        pytest.param(window, name, marks=[] if window == WINDOWS[at % 2] else [pytest.mark.rare])
        for window in WINDOWS
        for at, name in enumerate(MODELS)
    ],
    indirect=["window"],
)
def test_states(name: str, window: tuple[Page, str], pages: Callable[[str], str]) -> None:
    page, which = window
    page.goto(pages(name))
    root = page.locator('.onnx-nb[data-widget="graph"]').first
    if name == "empty":
        root.scroll_into_view_if_needed()
        root.get_by_text("This model has no nodes.").wait_for()
        picture(root, name, which, "first")
        return
    graph = GraphWidget(root)
    picture(root, name, which, "first")

    # every tensor with a line can be clicked, and a click there selects it and nothing else
    tensors: list[dict[str, Any]] = graph.call(HITTABLE)
    assert tensors
    for tensor in tensors[:: max(1, len(tensors) // 12)]:
        page.mouse.click(tensor["x"], tensor["y"])
        graph.expect_selection(tensor["name"])
        graph.call("view.dispatch({type: 'select', target: null});")
        graph.rest()

    chosen = tensors[len(tensors) // 2]["name"]
    graph.call("view.dispatch({type: 'select', target: view.columns.find(args[0], 'tensor')});", chosen)
    picture(root, name, which, "tensor")
    graph.call(
        """const target = {kind: 'node', id: view.columns.producer[view.columns.graphOutputs[0]]};
           view.dispatch({type: 'reveal', target});
           view.dispatch({type: 'select', target});"""
    )
    picture(root, name, which, "node")
    graph.call(
        """const numbers = count => Float64Array.from({length: count}, (_, at) => (at * 7919) % 1000 + 1);
           view.apply({overlay: {label: 'error', scale: 'log', reduce: 'max', unmatched: 0,
                                 nodes: numbers(view.columns.nodeCount), scopes: numbers(view.columns.scopeCount)}});"""
    )
    picture(root, name, which, "colored")
    graph.call(
        "view.dispatch({type: 'overlay', overlay: null}); view.dispatch({type: 'direction', direction: 'right'});"
    )
    picture(root, name, which, "across")
    graph.call("view.dispatch({type: 'direction', direction: 'down'});")
    scope: str | None = graph.call(
        """const shown = view.columns.childrenOf(0).find(group => !view.state.open.has(group));
           if (shown === undefined) return null;
           view.dispatch({type: 'open', scope: shown});
           return view.columns.nameOf({kind: 'scope', id: shown});"""
    )
    if scope is not None:
        graph.reveal(scope, "scope")
        graph.call("view.dispatch({type: 'select', target: view.columns.find(args[0], 'scope')});", scope)
        picture(root, name, which, "scope")
    search = root.get_by_role("searchbox").or_(root.get_by_placeholder("Search")).first
    query = "op:MatMul" if name in ("bert", "llama") else "op:Relu"
    search.fill(query)
    search.press("Enter")
    graph.expect("view.state.search", query)
    picture(root, name, which, "search")


def picture(root: Any, name: str, which: str, state: str) -> None:
    """Wait until the view is at rest, save a screenshot, and check it with axe."""
    await_rest(root.page)
    folder = SCREENSHOTS / "states"
    folder.mkdir(parents=True, exist_ok=True)
    root.screenshot(path=folder / f"{name}-{which}-{state}.png")
    if root.page.evaluate("() => window.axe === undefined"):
        root.page.evaluate(AXE.read_text(encoding="utf-8"))  # the page's policy lets no element bring it
    assert violations(root) == [], f"{name}, {which}, {state}"
