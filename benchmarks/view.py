"""How fast the graph view is: running a cell against opening Netron's page, and working in a large graph.

Both in the same Chromium without a GPU, on the same files, in turn, each in a fresh window with an empty cache. The
clock of Netron starts when its page is opened and stops at the first frame that holds nodes; ours starts when the cell
is run and stops at ``onnx_nb:drawn``: the first time in a fresh kernel, which has imported numpy, onnx and ipywidgets,
and the second time in the same kernel. Its modules are compiled, as pip leaves them. What follows is measured in
JupyterLab, once with an idle kernel and once while a cell runs; memory is that of the process that draws JupyterLab, or
an exported page.

``python -m benchmarks.view [rows …]`` prints every figure beside its limit and fails if one does not hold; rows are
``open``, ``document``, ``work``, ``memory``, ``profile`` and ``bundle``, by default all. ``document`` is a double-click
on a file in the file browser, from the click to ``onnx_nb:drawn``; ``profile`` is the panel of 10,000 kernels, from the
run of its cell to the frame that has its table and its timeline.
"""

from __future__ import annotations

import compileall
import importlib.util
import math
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from playwright.sync_api import ViewportSize, expect, sync_playwright

from benchmarks.measuring import Report, command_line
from onnx_nb import ModelGraph, load
from tests import models
from tests.browser.conftest import FLAGS, chromium_path
from tests.browser.jupyter import ROOT, JupyterPage, JupyterServer
from tests.browser.test_documents import sparse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page, Playwright

RUNS = 3
MEMORY = 300
"""MB of the process of JupyterLab's page with 50,000 nodes; shared libraries count, too."""
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
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
MARKS = ("clicked", "onnx_nb:asked", "onnx_nb:replied", "onnx_nb:drawn")
# opens a file in a tab of its own with a kernel that runs; resolves with milliseconds until it was drawn
OPENED = """async path => {
    const { id } = jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;
    const marks = () => performance.getEntriesByName('onnx_nb:drawn');
    const before = marks().length;
    const started = performance.now();
    jupyterapp.commands.execute('docmanager:open', {path, factory: 'ONNX model', kernel: {id}});
    while (marks().length === before) {
        if (performance.now() - started > 60000) throw new Error('not drawn in 60 s');
        await new Promise(resolve => setTimeout(resolve, 1));
    }
    return marks().at(-1).startTime - started;
}"""
# runs a cell, resolves with milliseconds until its panel was on the screen
PANEL_DRAWN = """index => new Promise((resolve, reject) => {
    const drawn = () => [...document.querySelectorAll('.onnx-nb[data-widget="profile"][data-state="drawn"]')];
    const before = new Set(drawn());
    jupyterapp.shell.currentWidget.content.activeCellIndex = index;
    const started = performance.now();
    const look = () => {
        const passed = performance.now() - started;
        if (passed > 60000) reject(new Error('not drawn in 60 s'));
        else if (drawn().every(each => before.has(each))) setTimeout(look, 1);
        // the next frame has the charts
        else requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - started)));
    };
    jupyterapp.commands.execute('notebook:run-cell');
    look();
})"""
# dispatches an action; returns when its picture was on the screen, and the longest task until then
ACT = """async (root, action) => {
    const marks = () => performance.getEntriesByName('onnx_nb:drawn');
    const before = marks().length;
    let longest = 0;
    const tasks = new PerformanceObserver(list => {
        for (const {duration} of list.getEntries()) longest = Math.max(longest, duration);
    });
    tasks.observe({type: 'longtask'});
    const started = performance.now();
    setTimeout(() => root.onnxNb.dispatch(action)); // a separate task: tasks of the protocol are not reported
    while (marks().length === before) {
        if (performance.now() - started > 60000) throw new Error('not drawn in 60 s');
        await new Promise(resolve => setTimeout(resolve, 1));
    }
    const {startTime, detail} = marks().at(-1);
    await new Promise(resolve => setTimeout(resolve, 300)); // what the action leaves to do later counts as a task too
    tasks.disconnect();
    return {ms: startTime - started, boxes: detail.boxes, longest};
}"""
# turns the wheel at every frame, first to pan and then to zoom in and out; returns the frames and the longest gap
TURN = """async (root, seconds) => {
    const canvas = root.querySelector('.onnx-nb-canvas');
    canvas.focus({preventScroll: true});
    root.onnxNb.dispatch({type: 'fit'});
    await new Promise(resolve => setTimeout(resolve, 1500));
    const {left, top, width, height} = canvas.getBoundingClientRect();
    const times = [];
    const wheel = options => canvas.dispatchEvent(new WheelEvent('wheel', {
        bubbles: true, cancelable: true, clientX: left + width / 2, clientY: top + height / 2, ...options}));
    await new Promise(resolve => {
        const frame = now => {
            times.push(now);
            const at = times.length;
            if (now - times[0] < 500 * seconds) wheel({deltaX: 40 * Math.cos(at / 9), deltaY: 39 * Math.sin(at / 9)});
            else wheel({ctrlKey: true, deltaY: at % 40 < 20 ? -60 : 60});
            if (now - times[0] < 1000 * seconds) requestAnimationFrame(frame);
            else resolve();
        };
        requestAnimationFrame(frame);
    });
    const gaps = times.slice(1).map((time, at) => time - times[at]);
    return {frames: gaps.length, seconds: (times.at(-1) - times[0]) / 1000, longest: Math.max(...gaps)};
}"""


def main() -> int:
    """Measure, print, and return whether every limit holds."""
    rows, _ = command_line(__doc__, ("open", "document", "work", "memory", "profile", "bundle"))
    if "open" in rows and importlib.util.find_spec("netron") is None:
        sys.exit("netron is not installed: `make bench` installs it")
    report = Report(__spec__.name, __doc__)
    compileall.compile_dir(ROOT / "onnx_nb", rx=re.compile("/node_modules/"), quiet=1)
    expect.set_options(timeout=60_000)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: times are longer where others work too")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        server = JupyterServer(Path(folder))
        try:
            if "bundle" in rows:
                sizes = [path.stat().st_size for path in sorted((ROOT / "onnx_nb" / "static").glob("*.js"))]
                said = " and ".join(f"{size / 1000:.0f}" for size in sizes)
                report.row("bundles", {"onnx_nb": f"{said} kB"}, "400 kB together", holds=sum(sizes) <= 400_000)
            if "open" in rows:
                opening(playwright, server, report)
            if "document" in rows:
                documents(playwright, server, report)
            if "work" in rows:
                working(playwright, server, report)
            if "memory" in rows:
                memory(playwright, Path(folder), report)
            if "profile" in rows:
                profiles(playwright, server, report)
        finally:
            server.stop()
    return report.close()


# ---------------------------------------------------------------- opening


class Most(NamedTuple):
    """The most that showing a model may take: a part of Netron's time, or seconds that are few by themselves."""

    part: float
    seconds: float = 0.0

    def row(self, report: Report, what: str, seconds: float, peer: float) -> None:
        """Add a line."""
        figures = {"onnx_nb": f"{seconds:.2f} s"}
        limits = [f"{self.seconds:g} s"] if self.seconds else []
        if self.part:
            figures |= {"Netron": f"{peer:.2f} s", "ratio": f"{seconds / peer:.3f}"}
            limits.insert(0, f"{self.part:.3g} of Netron's {peer:.2f} s")
        most = max(self.seconds, self.part * peer if self.part else 0)
        report.row(what, figures, " or ".join(limits), holds=seconds <= most)


def opening(playwright: Playwright, server: JupyterServer, report: Report) -> None:
    """Run a cell twice in a fresh kernel, and open Netron's page, on the same files in turn."""
    cases: list[tuple[str, Path, Most, Most, int]] = [
        ("SegFormer", models.exported("segformer", dynamo=False), Most(1 / 4), Most(1 / 8), RUNS),
        ("ResNet-50", models.exported("resnet50", dynamo=True), Most(1 / 3, 0.6), Most(1 / 3, 0.4), RUNS),
        ("Llama", models.exported("llama-32", dynamo=True), Most(1 / 3, 0.7), Most(1 / 3, 0.5), RUNS),
        ("chain", models.chain(10_000), Most(0.15), Most(0.15), RUNS),
        ("chain", models.chain(50_000), Most(0, 1.5), Most(0.05), 1),
        ("chain", models.chain(100_000), Most(0, 2.5), Most(0, 2), RUNS),
    ]
    imports = []
    for kind, model, first, second, runs in cases:
        name = f"{kind}, {len(load(model).proto.graph.node):,} nodes"
        ours, netron = [], []
        for _ in range(runs):
            if first.part or second.part:
                with launched(playwright) as browser, serve(model) as url:
                    netron.append(netron_seconds(browser, url))
            with launched(playwright) as browser:
                ours.append(notebook(browser, server, model))
        peer = statistics.median(netron) if netron else math.nan
        bare, *uses, before, memory = (statistics.median(each) for each in zip(*ours, strict=True))
        imports.append(bare)
        first.row(report, f"{name}: first use in a kernel, after the imports below", uses[0], peer)
        second.row(report, f"{name}: second use", uses[1], peer)
        figures = {"onnx_nb": f"{memory:.0f} MB", "JupyterLab before": f"{before:.0f} MB"}
        large = "50,000" in name
        limit = f"{MEMORY} MB" if large else ""
        report.row(f"{name}: memory of JupyterLab's page", figures, limit, holds=not large or memory <= MEMORY)
    report.row("import numpy, onnx, ipywidgets", {"seconds": f"{statistics.median(imports):.2f} s"})


@contextmanager
def launched(playwright: Playwright) -> Iterator[Browser]:
    """Start a Chromium of its own."""
    browser = playwright.chromium.launch(executable_path=chromium_path(playwright), args=[*FLAGS, OFFLINE])
    yield browser
    browser.close()


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
    page = browser.new_page(viewport=VIEWPORT)
    # as for a person who has answered Netron's question about cookies
    page.context.add_cookies([{"name": "consent", "value": "1", "url": url}])
    page.add_init_script(NETRON_DRAWN)
    page.goto(url, wait_until="commit")
    html = page.locator("html[data-drawn]")
    html.wait_for(state="attached", timeout=300_000)
    seconds = float(html.get_attribute("data-drawn") or "nan") / 1000
    page.close()
    return seconds


def notebook(browser: Browser, server: JupyterServer, model: Path) -> tuple[float, float, float, float, float]:
    """Show a model twice in a fresh kernel.

    Returns the seconds of the imports that everyone who has a model and a notebook needs, those of the first cell after
    them, and of the second, and the MB of the page before and after the first.
    """
    bare = (
        "import time\nbegan = time.perf_counter()\nimport numpy, onnx, ipywidgets\nbare = time.perf_counter() - began"
    )
    show = f"import onnx_nb\nonnx_nb.ModelGraph({str(model)!r})"
    page = browser.new_page(viewport=VIEWPORT)
    with JupyterPage(server, page) as lab:
        lab.open(server.write("netron.ipynb", bare, show, show)).run_cell(0)
        imports = float(lab.kernel.evaluate("bare"))
        page.wait_for_timeout(5000)  # JupyterLab is still loading after its kernel has answered
        before = Renderer(browser).memory() / 1e6
        first = page.evaluate(CELL_DRAWN, 1) / 1000
        page.wait_for_timeout(1500)  # the picture for the notebook is drawn and sent
        memory = Renderer(browser).memory() / 1e6
        lab.cell(2)
        second = page.evaluate(CELL_DRAWN, 2) / 1000
    page.close()
    return imports, first, second, before, memory


# ---------------------------------------------------------------- a file in a tab


def documents(playwright: Playwright, server: JupyterServer, report: Report) -> None:
    """Double-click a file, which starts a kernel, and open another file with that kernel."""
    resnet = models.exported("resnet50", dynamo=False)
    large = [sparse(server.root / f"5 GB{number}.onnx", 5 << 30) for number in ("", " again")]
    small = [shutil.copyfile(resnet, server.root / f"ResNet-50{number}.onnx") for number in ("", " again")]
    for first, second in (small, large):
        times = []
        for _ in range(RUNS):
            with launched(playwright) as browser:
                times.append(document(browser, server, first.name, second.name))
        cold, started, replied, warm = (statistics.median(each) for each in zip(*times, strict=True))
        report.most(f"{first.name}: from the double-click to the picture", cold, 3, "s", digits=2)
        report.row("  of it until the kernel is asked, and replies", {"onnx_nb": f"{started:.2f}, {replied:.2f} s"})
        report.most(f"{first.name}: in a kernel that has shown another file", warm, 1, "s", digits=2)
    for path in (*small, *large):
        path.unlink()


def document(browser: Browser, server: JupyterServer, first: str, second: str) -> tuple[float, float, float, float]:
    """Return the seconds to a picture, until the kernel was asked and replied, and to another picture from it."""
    page = browser.new_page(viewport=VIEWPORT)
    with JupyterPage(server, page) as lab:
        lab.browse()
        page.wait_for_timeout(5000)  # JupyterLab is still loading
        page.evaluate("addEventListener('dblclick', () => performance.mark('clicked'), {capture: true, once: true})")
        lab.double_click(first)
        page.wait_for_function("performance.getEntriesByName('onnx_nb:drawn').length > 0", timeout=60_000)
        clicked, *later = (page.evaluate(f"performance.getEntriesByName({mark!r})[0].startTime") for mark in MARKS)
        asked, replied, drawn = ((each - clicked) / 1000 for each in later)
        page.wait_for_timeout(1500)  # the picture for the notebook is drawn and sent
        warm = page.evaluate(OPENED, second) / 1000
    page.close()
    return drawn, asked, replied, warm


# ---------------------------------------------------------------- working


def working(playwright: Playwright, server: JupyterServer, report: Report) -> None:
    """Expand, collapse, pan and zoom in JupyterLab."""
    deep, wide, flat = models.chain(50_000), models.experts(128, 64), models.chain(50_000, named=False)
    for name, model in (("50,000 in a row", deep), ("49,664 side by side", wide), ("50,000 unnamed", flat)):
        with shown(playwright, server, model) as graph:
            large(name, graph, report)
    with shown(playwright, server, models.chain(100_000)) as graph:
        scopes("100,000 in a row", graph, report)
    with shown(playwright, server, wide, busy=True) as graph:
        large("kernel busy", graph, report)


@contextmanager
def shown(playwright: Playwright, server: JupyterServer, model: Path, *, busy: bool = False) -> Iterator[Graph]:
    """Show a model in JupyterLab, optionally with a cell that keeps running."""
    busily = "from itertools import count\nfor _ in count(): pass"
    name = server.write("work.ipynb", f"import onnx_nb\nonnx_nb.ModelGraph({str(model)!r})", busily)
    with launched(playwright) as browser:
        page = browser.new_page(viewport=VIEWPORT)
        with JupyterPage(server, page) as lab:
            lab.open(name).run_cell(0)
            root = lab.widget("graph")
            if busy:
                page.evaluate("""() => {
                    jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
                    jupyterapp.commands.execute('notebook:run-cell'); // and never ends
                }""")
                page.locator('.jp-Notebook-ExecutionIndicator[data-status="busy"]').wait_for()
            lab.cell(0)
            yield Graph(page, root, Renderer(browser))
            if busy:
                page.evaluate(
                    "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()",
                )


class Renderer:
    """The process that draws: the largest of Chromium's page processes; the others are idle."""

    def __init__(self, browser: Browser) -> None:
        about = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        folders = [Path("/proc") / str(process["id"]) for process in about if process["type"] == "renderer"]
        self.folder = max(folders, key=resident)

    def cpu(self) -> float:
        """Return the seconds of all its threads."""
        fields = (self.folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Return the bytes that are resident, shared libraries among them."""
        return resident(self.folder)


def resident(process: Path) -> int:
    """Return the bytes of a process that are resident."""
    found = re.search(r"VmRSS:\s*(\d+)", (process / "status").read_text(encoding="ascii"))
    assert found is not None  # noqa: S101 (Linux has it)
    return int(found[1]) * 1024


class Graph:
    """A graph view on a page."""

    def __init__(self, page: Page, root: Locator, renderer: Renderer) -> None:
        self.root = root
        self.renderer = renderer
        self._cdp = page.context.new_cdp_session(page)
        self._cdp.send("Performance.enable")

    def act(self, **action: Any) -> dict[str, float]:
        """Dispatch an action and wait for its picture."""
        figures: dict[str, float] = self.root.evaluate(ACT, action)
        return figures

    def turn(self, seconds: float) -> dict[str, float]:
        """Pan and zoom around all of the graph; milliseconds are those of a frame."""
        tasks, cpu = self._tasks(), self.renderer.cpu()
        figures: dict[str, float] = self.root.evaluate(TURN, seconds)
        # fitting and settling before the first frame counts too: it can only make it worse
        tasks, cpu = self._tasks() - tasks, self.renderer.cpu() - cpu
        return {
            "fps": figures["frames"] / figures["seconds"],
            "main": 1000 * tasks / figures["frames"],
            "process": 1000 * cpu / figures["frames"],
            "longest": figures["longest"],
        }

    def closed(self, count: int) -> list[int]:
        """Return some closed scopes that show, from all over the graph."""
        found: list[int] = self.root.evaluate(
            """(root, count) => {
                const {columns, state: {open}} = root.onnxNb;
                const groups = [];
                for (let group = 1; group < columns.scopeCount; group++) {
                    if (!open.has(group) && columns.ancestry(group).slice(0, -1).every(around => open.has(around)))
                        groups.push(group);
                }
                return groups.filter((_, at) => at % Math.max(1, Math.floor(groups.length / count)) === 0)
                    .slice(0, count);
            }""",
            count,
        )
        return found

    def largest(self, count: int) -> list[int]:
        """Return some scopes that hold only nodes, from all over the graph."""
        found: list[int] = self.root.evaluate(
            """(root, count) => {
                const {columns} = root.onnxNb;
                const leaves = [];
                for (let group = 1; group < columns.scopeCount; group++)
                    if (columns.childrenOf(group).length === 0) leaves.push(group);
                return leaves.filter((_, at) => at % Math.floor(leaves.length / count) === 0).slice(0, count);
            }""",
            count,
        )
        return found

    def reveal(self, group: int) -> None:
        """Bring a scope into view at a readable size."""
        self.root.evaluate("(root, id) => root.onnxNb.dispatch({type: 'reveal', target: {kind: 'scope', id}})", group)
        self.root.page.wait_for_timeout(600)

    def _tasks(self) -> float:
        metrics = self._cdp.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def scopes(name: str, graph: Graph, report: Report) -> None:
    """Expand and collapse single scopes in the first view."""
    times = []
    for group in graph.closed(5):
        times += [graph.act(type="toggle", group=group)["ms"] for _ in range(4)]
    report_times(f"{name}, first view: expand or collapse a scope", times, report)


def large(name: str, graph: Graph, report: Report) -> None:
    """All of the above with everything open."""
    scopes(name, graph, report)
    opened = graph.act(type="expandAll")
    boxes = f"{opened['boxes']:,.0f} boxes"
    report.most(f"{name}: expand all → {boxes} drawn", opened["ms"], 2000, "ms")
    report.most("  the longest task", opened["longest"], 200, "ms")
    turned = graph.turn(4)
    seen = f"{name}: pan and zoom, all {boxes} in view"
    report.row(seen, {"onnx_nb": f"{turned['fps']:.0f} fps"}, "55 fps", holds=turned["fps"] >= 55)
    report.most("  processor time of all threads, a frame", turned["process"], 10, "ms")
    report.row("  main thread, a frame, also while others have the processor", {"onnx_nb": f"{turned['main']:.1f} ms"})
    report.row("  the longest between two frames", {"onnx_nb": f"{turned['longest']:.0f} ms"})
    times = []
    for group in graph.largest(5):
        graph.reveal(group)
        times += [graph.act(type="toggle", group=group)["ms"] for _ in range(4)]
    report_times(f"{name}, all open: collapse or expand a scope", times, report)
    report.row(f"{name}: memory of JupyterLab's page", {"onnx_nb": f"{graph.renderer.memory() / 1e6:.0f} MB"})


def report_times(what: str, times: list[float], report: Report) -> None:
    """Print the median and the longest of several times; the limit applies to the median."""
    median = statistics.median(times)
    report.row(what, {"onnx_nb": f"{median:.0f} ms (to {max(times):.0f})"}, "50 ms", holds=median <= 50)


# ---------------------------------------------------------------- memory


def memory(playwright: Playwright, folder: Path, report: Report) -> None:
    """Open an exported page of 50,000 nodes, expand all of it and move around."""
    path = ModelGraph(models.chain(50_000)).to_html(folder / "graph.html")
    with launched(playwright) as browser:
        page = browser.new_page(viewport=VIEWPORT)
        page.goto(path.as_uri())
        root = page.locator('.onnx-nb[data-widget="graph"][data-state="drawn"]')
        root.wait_for()
        graph = Graph(page, root, Renderer(browser))
        page.wait_for_timeout(1000)
        report.most("memory at 50,000 nodes, as opened", graph.renderer.memory() / 1e6, 300, "MB")
        graph.act(type="expandAll")
        graph.turn(4)
        report.most("memory at 50,000 nodes, all open and moved", graph.renderer.memory() / 1e6, 300, "MB")


# ---------------------------------------------------------------- a profile


def profiles(playwright: Playwright, server: JupyterServer, report: Report) -> None:
    """Show the panel of 10,000 kernels twice in a fresh kernel: the first also starts what all widgets need."""
    runs = "runs=3, warmup=0, threads=1, optimization='off'"
    made = f"import numpy, onnx, ipywidgets\nimport onnx_nb\np = onnx_nb.profile({str(models.chain(10_000))!r}, {runs})"
    cells = made, *2 * ("assert len(p.kernels) == 10_000\nonnx_nb.ProfilePanel(p)",)
    times = []
    for _ in range(RUNS):
        with launched(playwright) as browser:
            page = browser.new_page(viewport=VIEWPORT)
            with JupyterPage(server, page) as lab:
                lab.open(server.write("profile.ipynb", *cells)).run_cell(0)
                page.wait_for_timeout(3000)  # JupyterLab is still loading after its kernel has answered
                times.append([page.evaluate(PANEL_DRAWN, cell) / 1000 for cell in (1, 2)])
            page.close()
    first, second = (statistics.median(each) for each in zip(*times, strict=True))
    what = "panel of a profile of 10,000 kernels"
    report.most(what, second, 0.5, "s", digits=2)
    report.row(f"{what}, with the start of widgets in kernel and page", {"onnx_nb": f"{first:.2f} s"})


if __name__ == "__main__":
    raise SystemExit(main())
