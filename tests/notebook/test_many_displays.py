"""Displays that were closed leave nothing behind, however many there were."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import pytest

import onnx_nb
from onnx_nb.notebook.display import widget_of
from tests import models
from tests.depth import DEPTH
from tests.widgets.test_messages import WIDGETS, model

if TYPE_CHECKING:
    from collections.abc import Callable


def leftovers(make: Callable[[], Any], count: int) -> tuple[int, int, int, int]:
    """Return how many widgets, threads, objects and bytes stay after many displays."""

    def display() -> None:
        widget = make()
        widget._repr_mimebundle_()
        graph = getattr(widget, "graph", None) or widget
        graph._handle_custom_msg({"id": 1, "verb": "code"}, [])  # starts the worker
        worker = graph._channel._worker
        widget.close()
        graph.close()
        worker.join()

    def state() -> tuple[int, int, int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return len(ipywidgets.widgets.widget._instances), threading.active_count(), len(gc.get_objects()), pages * 4096

    for _ in range(4):  # what is loaded and cached once
        display()
    before = state()
    for _ in range(count):
        display()
    widgets, threads, objects, nbytes = (after - former for after, former in zip(state(), before, strict=True))
    return widgets, threads, objects, nbytes


SMALL: dict[str, Callable[[], Any]] = {
    **WIDGETS,
    "ComparisonPanel": lambda: onnx_nb.ComparisonPanel(onnx_nb.compare(model(), model())),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_closed_widget_is_freed(name: str) -> None:
    assert leftovers(SMALL[name], 5)[:2] == (0, 0)


def test_displays_leave_nothing_however_many() -> None:
    shown = model()
    widgets, threads, objects, nbytes = leftovers(lambda: widget_of(shown), 200 * DEPTH)
    assert (widgets, threads) == (0, 0)
    assert objects < 200  # less than one for each
    assert nbytes < 30 << 20


def test_the_model_of_a_closed_widget_is_freed() -> None:
    seen: list[weakref.ref[Any]] = []
    for _ in range(5):
        view = onnx_nb.ModelView(models.light("squeezenet"))
        seen += [weakref.ref(view), weakref.ref(view.model), weakref.ref(onnx_nb.types.Graph.of(view.model))]
        view.close()
        del view
    gc.collect()
    assert [reference() for reference in seen] == [None] * len(seen)


def test_pages_leave_no_widget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _address: True)
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path))
    shown = model()
    onnx_nb.show(shown)  # the model of the bundle stays
    before = set(ipywidgets.widgets.widget._instances)
    onnx_nb.show(shown)
    onnx_nb.show(onnx_nb.simplify(shown))
    onnx_nb.report(tmp_path / "report.html", {"Model": shown, "Differences": onnx_nb.diff(shown, shown)})
    assert set(ipywidgets.widgets.widget._instances) == before
