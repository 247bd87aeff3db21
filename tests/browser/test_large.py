"""A graph of 50,000 nodes: opening everything keeps the page responsive and can be cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests import models
from tests.browser.graph import COLORS, DRAWN, GraphWidget

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

# presses keys in one task, so that nothing can be laid out in between
PRESS = """for (const [key, shiftKey] of args[0])
    root.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key, shiftKey, bubbles: true}));"""
OPEN = "return [...view.state.open];"
# as soon as it is there: the layout does not wait for a slow hand
STOP = """const stop = [...root.querySelectorAll('button')].find(button => button.textContent === 'Stop');
    while (stop.offsetParent === null && view.viewport.busy) await new Promise(requestAnimationFrame);
    if (stop.offsetParent === null) throw new Error('nobody could stop it');
    stop.click();"""


@pytest.fixture
def graph(lab: JupyterPage) -> GraphWidget:
    name = lab.server.write("large.ipynb", f"import onnx_nb\ng = onnx_nb.ModelGraph({str(models.chain(50_000))!r})\ng")
    lab.open(name).run_all()
    return GraphWidget(lab.cell(0).locator('.onnx-nb[data-widget="graph"]'))


def test_all_of_a_large_graph_opens_and_the_kernel_knows(lab: JupyterPage, graph: GraphWidget) -> None:
    before = graph.drawn[-1]["boxes"]
    # what the canvas shows at every frame until all is drawn, and the longest time between two
    seen: Any = graph.call(
        f"""const colors = {COLORS};
        const drawn = () => {DRAWN}.length;
        const count = drawn();
        [...root.querySelectorAll('button')].find(button => button.textContent === 'Expand all').click();
        const frames = [];
        while (drawn() === count) {{
            await new Promise(resolve => requestAnimationFrame(resolve));
            frames.push(colors(root).length);
        }}
        return frames;"""
    )
    assert len(seen) > 3
    assert min(seen) > 4, "the old picture stays until the new one is there"
    assert graph.drawn[-1]["boxes"] > 50_000 > before
    graph.press("Collapse all")
    graph.expect(f"{DRAWN}.at(-1).detail.boxes < 100")
    assert graph.call(OPEN) == [0]
    lab.kernel.expect("g.view['open']", ["#0"])
    graph.press("Expand all")
    graph.expect(f"{DRAWN}.at(-1).detail.boxes > 50000")
    lab.kernel.expect("g.view['open']", ["*"])
    # one of many scopes is closed: the message stays small
    graph.call("view.dispatch({type: 'toggle', scope: 1});")
    graph.expect(f"{DRAWN}.at(-1).detail.boxes < 50000")
    lab.kernel.expect("(g.view['open'][0], len(g.view['open']))", ["*", 2])
    assert lab.errors == []


def test_a_long_layout_can_be_given_up(lab: JupyterPage, graph: GraphWidget) -> None:
    opened, drawn = graph.call(OPEN), len(graph.drawn)
    graph.call(PRESS, [["E", True]])
    graph.call(STOP)
    assert graph.call(OPEN) == opened
    graph.call(PRESS, [["E", True], ["Escape", False]])
    assert graph.call(OPEN) == opened
    graph.rest()
    assert len(graph.drawn) == drawn
    # and the graph is as alive as before
    graph.call("view.dispatch({type: 'toggle', scope: 1});")
    graph.expect_drawing_after(drawn)
    lab.kernel.expect("len(g.view['open'])", len(graph.call(OPEN)))
    assert lab.errors == []


def test_what_is_asked_for_while_all_opens_comes_after(lab: JupyterPage, graph: GraphWidget) -> None:
    name = "/layers.2000/attn/Softmax"
    graph.call("view.dispatch({type: 'expandAll'}); await view.reveal(args[0], 'node');", name)
    graph.click(name, "node")
    graph.expect(f"{DRAWN}.at(-1).detail.boxes > 50000")
    assert lab.errors == []
