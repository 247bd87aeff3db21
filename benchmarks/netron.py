"""ResNet-50 on the screen: running a cell with ModelGraph in JupyterLab, against opening Netron's page.

Both in the same Chromium, in turn, each in a fresh window with an empty cache. Netron's clock starts when its page is
opened and stops at the first frame that holds nodes; ours starts when the cell is run and stops at `onnx_nb:drawn`.
The cell runs in a fresh kernel twice: one that must import onnx_nb first, and one that has done so in an earlier cell,
which is the one that is held to the limit.

python -m benchmarks.netron [runs]
"""

from __future__ import annotations

import importlib.util
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from tests import models
from tests.browser.conftest import FLAGS, chromium_path
from tests.browser.jupyter import JupyterPage, JupyterServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

ALLOWED = 0.5
# whatever asks for a host outside hears at once that there is none
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
# writes into the page when the first frame with nodes was done, in milliseconds since the page was opened; it is there
# before the page, because Netron takes away the eval that asking later would need
NETRON_DRAWN = """(() => {
    const drawn = () => { document.documentElement.dataset.drawn = performance.now(); };
    const look = () => document.body?.classList.contains('default') && document.querySelector('#canvas .node')
        ? requestAnimationFrame(() => setTimeout(drawn))
        : requestAnimationFrame(look);
    look();
})()"""
# runs a cell, resolves with milliseconds until the graph was drawn
CELL_DRAWN = """index => new Promise((resolve, reject) => {
    const marks = performance.getEntriesByName('onnx_nb:drawn').length;
    jupyterapp.shell.currentWidget.content.activeCellIndex = index;
    const started = performance.now();
    new PerformanceObserver((list, observer) => {
        const mark = performance.getEntriesByName('onnx_nb:drawn')[marks];
        if (mark) { observer.disconnect(); resolve(mark.startTime - started); }
    }).observe({type: 'mark'});
    jupyterapp.commands.execute('notebook:run-cell');
    setTimeout(() => reject(new Error('not drawn in 60 s')), 60000);
})"""


def main(runs: int = 5) -> None:
    """Measure, print, and end with an error if the ratio is not met."""
    if importlib.util.find_spec("netron") is None:
        sys.exit("netron is not installed: `make bench` installs it")
    model = models.exported("resnet50", dynamo=True)
    times: dict[str, list[float]] = {"netron": [], "import and cell": [], "cell": []}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder, serve(model) as url:
        path = chromium_path(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, OFFLINE])
        server = JupyterServer(Path(folder))
        try:
            for _ in range(runs):
                times["netron"].append(netron_seconds(browser, url))
                cold, warm = notebook_seconds(browser, server, model)
                times["import and cell"].append(cold)
                times["cell"].append(warm)
        finally:
            server.stop()
            browser.close()
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"ResNet-50 ({model.stat().st_size / 1e6:.0f} MB), median of {runs}, seconds until drawn (least to most)")
    for name, seconds in times.items():
        ratio = f"  {medians[name] / medians['netron']:.2f} of netron" if name != "netron" else ""
        print(f"{name:16} {medians[name]:6.2f}  ({min(seconds):.2f} to {max(seconds):.2f}){ratio}")
    if medians["cell"] >= ALLOWED * medians["netron"]:
        sys.exit(f"ModelGraph must take less than {ALLOWED} of what Netron takes")


@contextmanager
def serve(model: Path) -> Iterator[str]:
    """Run Netron's own server in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (
        "import netron, sys; netron.start(sys.argv[1], ('127.0.0.1', int(sys.argv[2])), browse=False); netron.wait()"
    )
    server = subprocess.Popen([sys.executable, "-c", program, str(model), str(port)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def netron_seconds(browser: Browser, url: str) -> float:
    """Open Netron's page in a fresh window."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    # as for a person who has answered Netron's question about cookies
    page.context.add_cookies([{"name": "consent", "value": "1", "url": url}])
    page.add_init_script(NETRON_DRAWN)
    page.goto(url, wait_until="commit")
    html = page.locator("html[data-drawn]")
    html.wait_for(state="attached")
    seconds = float(html.get_attribute("data-drawn") or "nan") / 1000
    page.close()
    return seconds


def notebook_seconds(browser: Browser, server: JupyterServer, model: Path) -> tuple[float, float]:
    """Run the cell in a fresh kernel, and again in a fresh kernel where onnx_nb is imported already."""
    seconds = []
    for before in ("pass", "import onnx_nb\nonnx_nb.ModelGraph"):
        name = server.write("netron.ipynb", before, f"import onnx_nb\nonnx_nb.ModelGraph({str(model)!r})")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        with JupyterPage(server, page) as lab:
            lab.open(name).run_cell(0)
            seconds.append(page.evaluate(CELL_DRAWN, 1) / 1000)
        page.close()
    return seconds[0], seconds[1]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
