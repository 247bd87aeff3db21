"""A cell that runs again closes what it displayed before, and nothing that is shown elsewhere: in a real kernel."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

import onnx.printer
import pytest
from jupyter_client.manager import start_new_kernel

from tests.widgets.test_messages import model

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP = f"""
import ipywidgets, onnx, onnx.parser, onnx_nb
from IPython.display import display
model = onnx_nb.load(onnx.parser.parse_model({onnx.printer.to_text(model().proto)!r}))
def make(kept=[]):
    kept.append(onnx_nb.ModelGraph(model))
    return kept[-1]
kept = make.__defaults__[0]
"""


class Page:
    """Runs cells of a kernel as a page does: each request names its cell."""

    def __init__(self) -> None:
        self._manager, self._client = start_new_kernel(kernel_name="python3")
        self.run("setup", SETUP)

    def run(self, cell: str, code: str, value: str = "None", *, may_fail: bool = False) -> Any:
        """Run a cell, without an id if that is empty; return the value of an expression after it."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        content |= {"user_expressions": {"value": f"__import__('json').dumps({value})"}, "stop_on_error": False}
        metadata = {"cellId": cell, "deletedCells": []} if cell else {}
        request = self._client.session.msg("execute_request", content, metadata=metadata)
        self._client.shell_channel.send(request)
        while (reply := self._client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != request["header"][
            "msg_id"
        ]:
            pass
        if reply["content"]["status"] != "ok":
            assert may_fail, "\n".join(reply["content"]["traceback"])
            return None
        return json.loads(ast.literal_eval(reply["content"]["user_expressions"]["value"]["data"]["text/plain"]))

    def open(self) -> list[bool]:
        """Return which of the graphs that were made are open."""
        states: list[bool] = self.run("", "", "[graph.comm is not None for graph in kept]")
        return states

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Page]:
    page = Page()
    yield page
    page.close()


@pytest.fixture
def page(kernel: Page) -> Page:
    kernel.run("", "kept.clear()")
    return kernel


COMMS = "len(get_ipython().kernel.comm_manager.comms)"


@pytest.mark.parametrize(
    "code", ["make()", "model", "onnx_nb.ModelView(model)", "onnx_nb.diff(model, model)", "onnx_nb.capture(model)"]
)
def test_two_hundred_runs_leave_what_one_leaves(page: Page, code: str) -> None:
    page.run("A", code)
    first = page.run("", "", COMMS)
    for _ in range(200 if code == "make()" else 5):
        page.run("A", code)
    assert page.run("", "", COMMS) == first


def test_a_run_closes_what_the_one_before_displayed_however_it_ends(page: Page) -> None:
    page.run("A", "display(make()); display(make()); make()")
    assert page.open() == [True, True, True]
    page.run("A", "display(make()); 1 / 0", may_fail=True)
    assert page.open() == [False, False, False, True]
    page.run("B", "make()")
    page.run("A", "syntax error", may_fail=True)
    assert page.open() == [False, False, False, False, True]


@pytest.mark.parametrize(
    "code",
    [
        "kept[0]",
        "box = ipywidgets.Tab([ipywidgets.VBox([kept[0]])]); box",
        "box = ipywidgets.VBox([kept[0]])",
        "with ipywidgets.Output() as out: display(kept[0])",
        "out = ipywidgets.Output(); out.append_display_data(kept[0])",
    ],
)
def test_what_another_cell_or_widget_shows_stays(page: Page, code: str) -> None:
    page.run("A", "make()")
    page.run("B", code)
    page.run("A", "make()")
    assert page.open() == [True, True]


def test_the_same_widget_displayed_again_stays(page: Page) -> None:
    page.run("A", "graph = make()\ngraph")
    page.run("A", "graph")
    assert page.open() == [True]


def test_where_no_cell_is_named_nothing_is_closed(page: Page) -> None:
    page.run("", "make()")
    page.run("", "make()")
    page.run("A", "with ipywidgets.Output(): display(make())")
    page.run("A", "%%capture kept_output\ndisplay(make())")
    page.run("A", "make()")
    assert page.open() == [True] * 5


def test_widgets_of_others_are_left_alone(page: Page) -> None:
    page.run("A", "slider = ipywidgets.IntSlider(); display(slider); box = ipywidgets.VBox([make()]); box")
    page.run("A", "1")
    parts = "[part.comm is not None for part in (slider, box, box.layout, kept[0])]"
    assert page.run("", "", parts) == [True] * 4, "what a box of others holds is its owner's"


def test_a_closed_widget_that_is_displayed_opens_again_and_answers(page: Page) -> None:
    page.run(
        "A", "graph = make(); panel = onnx_nb.CapturePanel(onnx_nb.capture(model), graph=graph); display(panel)\ngraph"
    )
    page.run("A", "1")
    assert page.run("", "", "[panel.comm is None, graph.comm is None, panel.graph is None]") == [True] * 3
    page.run("B", "box = ipywidgets.HBox([panel]); display(box); graph")
    assert page.run("", "", "[panel.comm is None, graph.comm is None, panel.graph is graph]") == [False, False, True]
    answered = "sent = []; graph.send = lambda content, _buffers=None: sent.append(content)\n"
    answered += "graph._handle_custom_msg({'id': 1, 'verb': 'ping'}, [])"
    assert page.run("", answered, "sent") == [{"id": 1, "value": None}]
    page.run("A", "onnx_nb.ModelView(model)")
    view = "view = onnx_nb.ModelView(model)\nview"
    page.run("C", view)
    page.run("D", "view.graph")
    page.run("C", "1")
    parts = "[part.comm is not None for part in (view, view.summary, view.graph)]"
    assert page.run("", "", parts) == [True] * 3
    page.run("D", "1")
    assert page.run("", "", parts) == [False] * 3
    assert page.run("C", "view", parts) == [True] * 3
