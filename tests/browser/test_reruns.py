"""A cell that runs again closes what it showed before: neither the kernel nor the page grows with its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import models

if TYPE_CHECKING:
    from tests.browser.jupyter import JupyterPage

RUNS = 60
BOUND = 0.1
"""MB that a run may leave beyond what one leaves of a cell with a slider."""
TIMERS = 3000
"""Milliseconds until anywidget gives up the timer of each model, which holds its view."""

SETUP = f"""import gc, ipywidgets, onnx_nb
model = onnx_nb.load({str(models.light("squeezenet"))!r})
def kernel():
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 / 1e6, len(get_ipython().kernel.comm_manager.comms)"""
SLIDER = "ipywidgets.IntSlider()"
GRAPH = "g = onnx_nb.ModelGraph(model)\ng"

RERUN = """async ([index, runs, shown]) => {
    const {content} = jupyterapp.shell.currentWidget;
    for (let run = 0; run < runs; run++) {
        content.activeCellIndex = index;
        await jupyterapp.commands.execute('notebook:run-cell');
        while (content.widgets[index].node.querySelector(shown) === null) await new Promise(requestAnimationFrame);
    }
}"""
MODELS = """async () => {
    const {rendermime} = jupyterapp.shell.currentWidget.content;
    const renderer = rendermime.createRenderer('application/vnd.jupyter.widget-view+json');
    return Object.keys((await renderer._manager.promise)._models).length;
}"""


@pytest.mark.rare
def test_neither_kernel_nor_page_grows_when_a_cell_runs_again(lab: JupyterPage) -> None:
    lab.open(lab.server.write("reruns.ipynb", SETUP, SLIDER, GRAPH)).run_cell(0)
    profiler = lab.page.context.new_cdp_session(lab.page)

    def state() -> tuple[float, float, int, int]:
        """Return the MB of the kernel and of the page, the comms and the models."""
        lab.page.wait_for_timeout(TIMERS)
        profiler.send("HeapProfiler.collectGarbage")
        heap = profiler.send("Runtime.getHeapUsage")
        resident, comms = lab.kernel.evaluate("kernel()")
        page = sum(heap.get(part, 0) for part in ("usedSize", "embedderHeapUsedSize", "backingStorageSize")) / 1e6
        return resident, page, comms, lab.page.evaluate(MODELS)

    def growth(index: int, shown: str) -> list[float]:
        lab.page.evaluate(RERUN, [index, 10, shown])  # what is loaded and cached once
        before = state()
        lab.page.evaluate(RERUN, [index, RUNS, shown])
        return [after - former for after, former in zip(state(), before, strict=True)]

    slider = growth(1, ".widget-slider")
    kernel, page, comms, views = growth(2, '.onnx-nb[data-state="drawn"]')
    print(f"slider {slider}, graph {kernel, page, comms, views}")  # noqa: T201 - printed with a failure
    assert (comms, views) == (0, 0)
    assert kernel - slider[0] < BOUND * RUNS
    assert page - slider[1] < BOUND * RUNS
    # jupyterlab_widgets' own, where a view goes before Lumino's message to it: logged, and nothing stops
    assert [error for error in lab.errors if "processLuminoMessage" not in error] == []
