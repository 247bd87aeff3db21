"""Hosts that load widgets as VS Code and Colab do: with require.js, html-manager and anywidget's module for them.

The kernel is this process. It loses the buffers of messages, as Colab's manager may. npm brings the scripts, once.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tarfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import comm
import ipywidgets
import onnx.parser
import pytest
from comm.base_comm import BaseComm, CommManager
from ipywidgets.embed import embed_minimal_html
from playwright.sync_api import expect

import onnx_nb
from onnx_nb.widgets import _base
from onnx_nb.widgets._base import SharedCode
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import ROOT, SCREENSHOTS

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

SCRIPTS = ROOT / "build" / "hosts"
PACKAGES = {"@jupyter-widgets/html-manager@1.0.15": "dist/embed-amd.js", "requirejs@2.3.8": "require.js"}
"""npm's packages, and the file of each that a page loads."""
FILES = {
    "/require.min.js": SCRIPTS / "require.js",
    "/embed-amd.js": SCRIPTS / "embed-amd.js",
    "/index.js": Path(sys.prefix) / "share" / "jupyter" / "nbextensions" / "anywidget" / "index.js",
}
"""Ends of addresses, and the files that are there."""
TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y)
    { a = Sigmoid(x) b = Relu(a) c = Exp(b) y = Neg(c) }"""
PAGE = """<!DOCTYPE html><html style="color-scheme: light dark"><meta charset="utf-8"><body><div id="cell"></div>
<script src="https://host/require.min.js"></script>
<script src="https://host/embed-amd.js"></script>"""
# a manager with a live kernel, which loses the buffers of messages as Colab's may
LIVE = """() => new Promise((resolve, reject) => requirejs(["@jupyter-widgets/html-manager"], ({HTMLManager}) => {
    const load = name => new Promise((loaded, failed) => requirejs([`https://host/${name}/index.js`], loaded, failed));
    const manager = new HTMLManager({loader: load});
    const comms = new Map();
    const bytes = text => new DataView(Uint8Array.from(atob(text), each => each.charCodeAt(0)).buffer);
    const deliver = async ({type, id, data, metadata, buffers: sent}) => {
        const buffers = type === "comm_open" ? sent.map(bytes) : [];
        const message = {content: {comm_id: id, data}, metadata, buffers, parent_header: {}};
        if (type === "comm_msg") return void comms.get(id)?.heard?.(message);
        const comm = {
            comm_id: id,
            on_msg(heard) { this.heard = heard; },
            on_close() {},
            send(data) { void toKernel(id, JSON.stringify(data)); return ""; },
            close() {},
        };
        comms.set(id, comm);
        await manager.handle_comm_open(comm, message);
    };
    globalThis.show = async id => {
        const view = await manager.create_view(await manager.get_model(id));
        await manager.display_view(view, document.getElementById("cell"));
    };
    void (async () => {
        for (;;) {
            for (const message of JSON.parse(await fromKernel())) await deliver(message);
            await new Promise(later => setTimeout(later, 20));
        }
    })();
    resolve();
}, reject))"""

MARKS = {
    '{"body": {"data-jp-theme-light": "false"}}': True,
    '{"body": {"data-jp-theme-light": "true"}}': False,
    '{"body": {"class": "vscode-dark"}}': True,
    '{"body": {"data-vscode-theme-kind": "vscode-light"}}': False,
    '{"body": {"data-vscode-theme-kind": "vscode-high-contrast"}}': True,
    '{"body": {"class": "vscode-high-contrast vscode-high-contrast-light"}}': False,
    '{"html": {"theme": "dark"}}': True,
    '{"html": {"theme": "light"}}': False,
    '{"html": {"data-theme": "dark"}}': True,
    '{"html": {"style": "color-scheme: light", "class": "plain"}}': False,
    '{"#cell": {"class": "theme--dark", "style": "background: #1e1e1e"}}': True,
    '{"body": {"class": "dark", "style": "background: color(srgb 0.1 0.1 0.12)"}}': True,
    '{"body": {"class": "theme--light", "style": "background: white"}}': False,
}
"""What JupyterLab and Voilà, VS Code, Colab, Sphinx, Solara, marimo and Panel write into a page; whether it is dark."""
MARK = """marks => {
    const set = Object.entries(JSON.parse(marks)).flatMap(([where, attributes]) => Object.entries(attributes)
        .map(([name, value]) => ({element: document.querySelector(where), name, value})));
    const before = set.map(({element, name}) => element.getAttribute(name));
    for (const {element, name, value} of set) element.setAttribute(name, value);
    return () => set.forEach(({element, name}, at) =>
        before[at] === null ? element.removeAttribute(name) : element.setAttribute(name, before[at]));
}"""


class Kernel:
    """This process as a kernel: its widgets' messages wait until each page takes them."""

    def __init__(self, page: Page) -> None:
        self.manager = CommManager()
        self.pages: list[deque[dict[str, Any]]] = []
        self.sent_as_text: set[str] = set()
        self.attach(page)

    def attach(self, page: Page) -> None:
        """Give a page all messages from now on."""
        waiting: deque[dict[str, Any]] = deque()
        self.pages.append(waiting)
        page.expose_function("fromKernel", lambda: self.take(waiting))
        page.expose_function("toKernel", self.give)

    def open(self, *args: Any, **kwargs: Any) -> BaseComm:
        pages = self.pages

        class Comm(BaseComm):
            def publish_msg(
                self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any
            ) -> None:
                sent = [base64.b64encode(each).decode() for each in buffers or ()]
                about = {"type": msg_type, "id": self.comm_id, "data": data, "metadata": metadata or {}}
                for waiting in pages:
                    waiting.append({**about, "buffers": sent})

        return Comm(*args, **kwargs)

    def take(self, waiting: deque[dict[str, Any]]) -> str:
        return json.dumps([waiting.popleft() for _ in range(len(waiting))])

    def give(self, comm_id: str, data: str) -> None:
        message = json.loads(data)
        if message.get("content", {}).get("text"):
            self.sent_as_text.add(message["content"]["verb"])
        comm = self.manager.get_comm(comm_id)
        assert comm is not None
        comm.handle_msg({"content": {"data": message}, "buffers": []})


@pytest.fixture(scope="module")
def scripts() -> None:
    for package, name in PACKAGES.items():
        path = SCRIPTS / Path(name).name
        if path.exists():
            continue
        SCRIPTS.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "pack", "--silent", package], cwd=SCRIPTS, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"npm brings no {package} here: {done.stderr.strip()[-200:]}")
        with tarfile.open(SCRIPTS / done.stdout.strip()) as archive:
            path.write_bytes(archive.extractfile(f"package/{name}").read())  # type: ignore[union-attr]


@pytest.fixture
def kernel(page: Page, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(page)
    monkeypatch.setattr(comm, "create_comm", kernel.open)
    monkeypatch.setattr(comm, "get_comm_manager", lambda: kernel.manager)
    monkeypatch.setattr(SharedCode, "_this", None)
    return kernel


def serve(route: Route) -> None:
    """Answer what a page asks of a content delivery network with the same file from this machine."""
    url = route.request.url.partition("?")[0]
    found = [path for end, path in FILES.items() if url.endswith(end)]
    if found:
        route.fulfill(path=found[0], headers={"Access-Control-Allow-Origin": "*"})
    else:
        route.fulfill(status=404)


def open_page(page: Page) -> None:
    page.route("https://**/*", serve)
    page.route("**/page", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
    page.goto("https://host/page")
    page.evaluate(LIVE)


@pytest.mark.usefixtures("scripts")
def test_a_graph_is_alive_where_require_js_loads_it_and_buffers_are_lost(
    page: Page, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_page(page)
    model = onnx_nb.load(onnx.parser.parse_model(TEXT))
    monkeypatch.setattr(_base, "COLUMNS_IN_STATE", 0)  # as if the model were too large to be saved in the notebook
    graph = onnx_nb.ModelGraph(model)
    page.evaluate("show", graph.model_id)
    view = GraphWidget(page.locator("#cell .onnx-nb").first)
    view.click("b", "tensor")
    view.press("Capture")
    expect(view.root.get_by_label("Values", exact=True)).to_contain_text("captured, 1 run")
    view.press("Output")
    view.extract()
    page.screenshot(path=SCREENSHOTS / "host-amd-light.png")
    assert graph.submodel is not None
    assert [node.op_type for node in graph.submodel.proto.graph.node] == ["Relu"]
    assert {"columns", "plan", "extract"} <= kernel.sent_as_text
    page.emulate_media(color_scheme="dark")
    expect(view.root).to_have_class(re.compile("onnx-nb-dark"))
    view.rest()
    page.screenshot(path=SCREENSHOTS / "host-amd-dark.png")
    for mark, dark in MARKS.items():
        # against what the system wishes, so that only the mark can be the reason
        page.emulate_media(color_scheme="light" if dark else "dark")
        unmark = page.evaluate_handle(MARK, mark)
        classes = re.compile(r"onnx-nb-dark" if dark else r"^(?!.*onnx-nb-dark)")
        expect(view.root, mark).to_have_class(classes)
        unmark.evaluate("unmark => unmark()")


@pytest.mark.usefixtures("scripts")
def test_a_panel_goes_with_a_graph_in_another_page_of_its_kernel(page: Page, kernel: Kernel) -> None:
    """Colab has a page and a manager of widgets for each output."""
    other = page.context.new_page()
    kernel.attach(other)
    model = onnx_nb.load(onnx.parser.parse_model(TEXT))
    for each in (page, other):
        open_page(each)
    graph = onnx_nb.ModelGraph(model)
    linked = onnx_nb.CapturePanel(onnx_nb.capture(model), graph=graph)
    page.evaluate("show", graph.model_id)
    other.evaluate("show", linked.model_id)
    view, panel = GraphWidget(page.locator("#cell .onnx-nb").first), other.locator("#cell .onnx-nb")
    view.click("b", "tensor")
    expect(panel.get_by_label("Value", exact=True).get_by_text("b", exact=True).first).to_be_visible()
    panel.get_by_role("searchbox").fill("c")
    panel.get_by_role("grid").focus()
    other.keyboard.press("ArrowDown")
    view.expect_selection("c")
    other.screenshot(path=SCREENSHOTS / "host-other-page.png")


@pytest.mark.usefixtures("scripts")
def test_widgets_in_boxes_draw_from_a_page_of_ipywidgets_without_a_kernel(page: Page, tmp_path: Path) -> None:
    model = onnx_nb.load(onnx.parser.parse_model(TEXT))
    capture = onnx_nb.capture(model)
    half = {"layout": ipywidgets.Layout(width="50%")}
    row = ipywidgets.HBox([onnx_nb.ModelGraph(model, **half), onnx_nb.ModelGraph(model, **half)])
    hidden = ipywidgets.Tab([onnx_nb.ModelSummary(model), onnx_nb.CapturePanel(capture)], titles=("Summary", "Capture"))
    folded = ipywidgets.Accordion([onnx_nb.ModelGraph(model)], titles=("Graph",))
    path = tmp_path / "page.html"
    embed_minimal_html(path, [row, hidden, folded])
    # npm has the script unpacked, so with another checksum
    path.write_text(re.sub(r'integrity="[^"]*"', "", path.read_text(encoding="utf-8")), encoding="utf-8")
    page.route("https://**/*", serve)
    page.route("**/page", lambda route: route.fulfill(path=path))
    page.goto("https://host/page")
    roots = page.locator(".onnx-nb")
    expect(roots).to_have_count(5)
    for graph in page.locator(".widget-hbox .onnx-nb").all():
        GraphWidget(graph)
    page.get_by_role("tab", name="Capture").click()
    expect(page.locator(".onnx-nb[data-widget=capture]")).to_be_visible()
    page.locator(".jupyter-widget-Collapse-header").click()
    GraphWidget(roots.last).click("b", "tensor")
    page.screenshot(path=SCREENSHOTS / "host-page-of-ipywidgets.png", full_page=True)
