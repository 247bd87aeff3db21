"""A .onnx file is double-clicked in JupyterLab or Notebook 7: a tab with the live view and a kernel of its own."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx.parser
import pytest
from onnx import TensorProto
from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import JupyterPage, JupyterServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from tests.browser.jupyter import Theme

SHOWN = "__import__('onnx_nb.notebook.document', fromlist=['view'])._shown"
"""In a tab's kernel: what it shows."""
GRAPH = f"next(iter({SHOWN}.values())).view.graph"


# the kernel of a notebook that was just opened
READY = """async () => {
    const { sessionContext } = jupyterapp.shell.currentWidget;
    await sessionContext.ready;
    await sessionContext.session.kernel.info;
}"""


def copied(lab: JupyterPage, name: str) -> Path:
    """Copy squeezenet into the server's folder under another name."""
    path = lab.server.root / name
    path.parent.mkdir(exist_ok=True)
    shutil.copyfile(models.light("squeezenet"), path)
    return path


def test_a_double_click_shows_a_live_model(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    name = copied(lab, f"live-{lab.theme}.onnx").name
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    graph = GraphWidget(lab.browse().double_click(name).document())
    row = lab.page.locator(".jp-DirListing-item", has_text=name)
    expect(row.locator('[data-icon="onnx-nb:model"]')).to_be_visible()
    lab.screenshot(f"document-{lab.theme}")
    box, tab = graph.root.bounding_box(), lab.page.locator(".onnx-nb-document").bounding_box()
    assert box is not None
    assert tab is not None
    assert abs(box["y"] + box["height"] - tab["y"] - tab["height"]) < 2, "the graph fills the tab"

    graph.click("r13")
    lab.kernel.expect(f"[each['name'] for each in {GRAPH}.selection]", ["r13"])
    graph.press("Output")
    pane = graph.extract()
    lab.kernel.expect(f"[v.name for v in {GRAPH}.submodel.outputs]", ["r13"])
    expect(graph.root).to_contain_text("Copy Python copies the call")
    expect(pane.locator("xpath=..").locator("header").first).to_contain_text("Submodel")
    lab.screenshot(f"document-extracted-{lab.theme}")

    lab.page.mouse.click(*graph.locate("r13"), button="right")
    graph.root.get_by_role("menuitem", name="Make it an output").click()
    edits = graph.root.get_by_role("region", name="Edits")
    expect(edits.get_by_role("listitem")).to_contain_text("✓made 'r13' an output equal on the same feeds")
    expect(lab.page.locator(".lm-Menu")).to_have_count(0)
    lab.kernel.expect(f"[v.name for v in {GRAPH}.edits.model.outputs][-1]", "r13")
    lab.screenshot(f"document-edited-{lab.theme}")
    lab.page.set_viewport_size({"width": 1000, "height": 700})
    lab.page.wait_for_function("root => root.classList.contains('onnx-nb-narrow')", arg=graph.root.element_handle())
    for panel in (graph.root.get_by_role("region", name="Submodel"), graph.root.get_by_label("Inspector").last):
        panel.scroll_into_view_if_needed()
        expect(panel).to_be_in_viewport(ratio=0.9)  # the tab scrolls where its panels are below each other
    lab.screenshot(f"document-narrow-{lab.theme}")
    assert lab.kernel.evaluate("__import__('os').getcwd()") == str(lab.server.root)
    assert [url for url in asked if name in url and "/api/contents/" in url and "content=1" in url] == []
    assert [path for path in lab.server.root.rglob(".ipynb_checkpoints/*") if path.suffix == ".onnx"] == []
    assert lab.errors == []


def test_no_python_beside_the_model_runs(lab: JupyterPage) -> None:
    copied(lab, "stranger/model.onnx")
    folder = lab.server.root / "stranger"
    for name in (
        "onnx_nb",
        "numpy",
        "google",
        "onnx",
        "onnxruntime",
        "ipywidgets",
        "anywidget",
        "matplotlib",
        "graphviz",
    ):
        (folder / f"{name}.py").write_text("import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()")
    graph = GraphWidget(lab.browse().double_click("stranger").double_click("model.onnx").document())
    graph.click("r13")
    graph.press("Output")
    graph.extract()
    assert lab.kernel.evaluate("__import__('os').getcwd()") == str(folder)
    assert list(folder.glob("*.ran")) == []
    assert lab.errors == []


def test_a_tab_survives_a_reload_and_follows_its_file(lab: JupyterPage) -> None:
    shutil.rmtree(lab.server.root / "folder", ignore_errors=True)  # of a run before this one
    copied(lab, "folder/before.onnx")
    graph = GraphWidget(lab.browse().double_click("folder").double_click("before.onnx").document())
    graph.click("r13")
    graph.root.get_by_role("button", name="Turn").click()
    lab.kernel.expect(f"{GRAPH}.direction", "right")
    pid = lab.kernel.evaluate("__import__('os').getpid()")
    # JupyterLab asks for the path of its address once more when all is restored, and the file is renamed below
    lab.page.reload(wait_until="networkidle")
    graph = GraphWidget(lab.document())
    assert lab.kernel.evaluate("__import__('os').getpid()") == pid
    graph.expect("view.state.direction", "right")
    graph.expect_selection("r13")

    old = graph.root.element_handle()
    lab.page.evaluate("jupyterapp.serviceManager.contents.rename('folder/before.onnx', 'folder/after it.onnx')")
    lab.page.wait_for_function("root => !root.isConnected", arg=old)
    expect(lab.page.get_by_role("tab", name="after it.onnx")).to_be_visible()
    expect(lab.page.locator(".onnx-nb-document")).to_contain_text("after it.onnx")
    graph = GraphWidget(lab.document())
    graph.expect("view.state.direction", "right")
    lab.kernel.expect(f"[path.name for path in {SHOWN}]", ["after it.onnx"])
    assert lab.errors == []


@contextmanager
def asking(page: Page, button: str, answer: str) -> Iterator[Locator]:
    """Press a button, yield the field of the dialog that asks for a path, and press a button of it."""
    page.get_by_role("button", name=button).click()
    dialog = page.locator(".jp-Dialog")
    yield dialog.locator("input")
    dialog.get_by_role("button", name=answer).click()


def test_a_notebook_is_made_that_shows_cuts_and_compares(lab: JupyterPage) -> None:
    copied(lab, "made.onnx")
    lab.browse().double_click("made.onnx").document()
    made, other = lab.server.root / "made.ipynb", lab.server.root / "other.ipynb"
    made.unlink(missing_ok=True)
    other.unlink(missing_ok=True)
    with asking(lab.page, "Open in a notebook", "Cancel") as path:
        expect(path).to_have_value("made.ipynb")
    assert not made.exists(), "a person who cancels has no file"
    made.write_text("mine")
    with asking(lab.page, "Open in a notebook", "Make the notebook") as path:
        expect(path).to_have_value("made-1.ipynb")
        path.fill("made")
    dialog = lab.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("made.ipynb exists already")
    lab.screenshot("document-name")
    dialog.locator("input").fill("other")
    dialog.get_by_role("button", name="Make the notebook").click()
    expect(lab.page.locator(".jp-NotebookPanel .jp-Cell").nth(2)).to_be_visible()
    assert other.exists()
    assert made.read_text() == "mine"
    lab.page.evaluate(READY)
    lab.run_all()
    kinds = [lab.widget(kind, within=lab.page.locator(".jp-NotebookPanel")) for kind in ("graph", "comparison")]
    assert len(kinds) == 2
    assert lab.errors == []


DROP = """(canvas, [name, content]) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(atob(content), char => char.charCodeAt(0))], name));
    const isRefused = type =>
        canvas.dispatchEvent(new DragEvent(type, {dataTransfer, bubbles: true, cancelable: true}));
    return ['dragover', 'drop'].filter(isRefused);
}"""
"""Drops a file on an element; returns the events for which the browser would leave the page."""


def drop(graph: GraphWidget, name: str, content: bytes) -> None:
    assert graph.root.locator("canvas").first.evaluate(DROP, [name, base64.b64encode(content).decode()]) == []


@pytest.mark.parametrize("place", ["cell", "tab"])
def test_a_model_that_is_dropped_on_a_graph_is_uploaded_and_shown(lab: JupyterPage, place: str) -> None:
    folder = copied(lab, "drops/shown.onnx").parent
    for old in (*folder.glob("new*.onnx"), *folder.glob("bert*.onnx")):
        old.unlink()
    model = models.exported("bert", dynamo=True).read_bytes()
    assert len(model) > 1 << 20, "it is sent in parts"
    if place == "tab":
        graph = GraphWidget(lab.browse().double_click("drops").double_click("shown.onnx").document())
    else:
        source = "import onnx_nb\nonnx_nb.ModelGraph('shown.onnx')"
        lab.open(lab.server.write("drops/cell.ipynb", source)).run_all()
        graph = GraphWidget(lab.widget("graph"))
    drop(graph, "bert.onnx", model)
    dialog = lab.page.locator(".jp-Dialog")
    expect(dialog.locator("input")).to_have_value("drops/bert.onnx")
    lab.screenshot(f"drop-{place}")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert not list(folder.glob("bert*.onnx")), "a person who cancels has no file"

    drop(graph, "bert.onnx", model)
    dialog.get_by_role("button", name="Upload and show").click()
    expect(lab.page.get_by_role("tab", name="bert.onnx")).to_be_visible()
    GraphWidget(lab.document())
    assert (folder / "bert.onnx").read_bytes() == model
    assert lab.errors == []


def test_a_dropped_file_that_is_no_model_stays_where_it_is(lab: JupyterPage) -> None:
    copied(lab, "plain.onnx")
    graph = GraphWidget(lab.browse().double_click("plain.onnx").document())
    before = set(lab.server.root.iterdir())
    drop(graph, "notes.txt", b"a letter")
    alert = graph.root.get_by_role("alert").first
    expect(alert).to_contain_text("notes.txt is on your computer. Upload it")
    lab.screenshot("drop-refused")
    assert set(lab.server.root.iterdir()) == before
    assert lab.errors == []


FOREIGN = {
    "light": ("letter.onnx", b"a letter", "it is a text file. Give the path of a model"),
    "dark": ("packed.onnx.gz", b"\x1f\x8b\x08", "it is a gzip archive. Unpack it first."),
}
"""By theme: a file, what is in it, and what the tab says of it."""


def test_a_file_that_is_no_model_says_so(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    name, content, said = FOREIGN[lab.theme]
    path = lab.server.root / name
    path.write_bytes(content)
    lab.browse().double_click(path.name)
    notice = lab.page.locator(".onnx-nb-notice")
    what, now = said.split(". ")
    expect(notice.locator("h2")).to_have_text(re.compile(re.escape(f"{path.name} is not an ONNX model: {what}.")))
    expect(notice.locator("p")).to_contain_text(now)
    lab.screenshot(f"document-text-{lab.theme}")
    shutil.copyfile(models.light("squeezenet"), path)
    notice.get_by_role("button", name="Open again").click()
    lab.document()
    expect(notice).to_be_empty()
    assert lab.errors == []


def sparse(path: Path, size: int) -> Path:
    """Write a model with one weight of that many bytes inside the file, which take no space on the disk."""
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    proto = onnx.parser.parse_model(text)
    graph = proto.graph.SerializeToString()
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[size]).SerializeToString()
    tensor += b"\x4a" + varint(size)
    initializer = b"\x2a" + varint(len(tensor) + size) + tensor
    proto.ClearField("graph")
    head = proto.SerializeToString() + b"\x3a" + varint(len(graph) + len(initializer) + size) + graph + initializer
    with path.open("xb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


def varint(number: int) -> bytes:
    """Encode a number as protobuf does."""
    digits = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])


def test_nothing_of_a_large_file_goes_over_the_wire_or_is_copied(lab: JupyterPage) -> None:
    folder = lab.server.root / "large"
    shutil.rmtree(folder, ignore_errors=True)  # of a run before this one
    folder.mkdir()
    path = sparse(folder / "5 GB.onnx", 5 << 30)
    received: list[int] = []
    lab.browse().double_click("large")
    lab.page.on("response", lambda response: received.append(int(response.headers.get("content-length", 0))))
    lab.page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    lab.double_click(path.name).document()
    lab.kernel.expect(f"{GRAPH}.model.nbytes", 5 << 30)
    lab.page.get_by_role("tab", name=path.name).get_by_title("Close").click()
    assert sum(received) < 3_000_000
    copies = [each for each in folder.rglob("*") if each.is_file() and each != path]
    assert copies == []
    assert path.stat().st_blocks * 512 < 1_000_000
    path.unlink()
    assert lab.errors == []


def test_a_file_and_a_kernel_that_go_away(lab: JupyterPage) -> None:
    path = copied(lab, "fleeting.onnx")
    # the tab looks at its file every 4 s
    lab.page.add_init_script(
        "{ const { setInterval } = window; window.setInterval = (f, ms, ...args) => setInterval(f, ms / 10, ...args); }"
    )
    lab.browse().double_click(path.name).document()
    notice = lab.page.locator(".onnx-nb-notice")
    path.rename(path.with_name("hidden"))
    expect(notice).to_contain_text("fleeting.onnx is gone: it was removed or renamed.")
    path.with_name("hidden").rename(path)
    expect(notice).to_be_empty()
    path.write_bytes(path.read_bytes() + onnx.ModelProto(doc_string="exported again").SerializeToString())
    expect(notice).to_contain_text("fleeting.onnx has changed since it was opened.")
    notice.get_by_role("button", name="Open again").click()
    expect(notice).to_be_empty()
    lab.document()

    os.kill(lab.kernel.evaluate("__import__('os').getpid()"), signal.SIGKILL)
    expect(notice).to_contain_text("The kernel stopped unexpectedly")
    lab.screenshot("document-died")
    notice.get_by_role("button", name="Open again").click()
    expect(notice).to_be_empty()
    lab.document()

    lab.page.get_by_role("button", name="Restart the kernel").click()
    lab.page.get_by_role("button", name="Confirm Kernel Restart").click()
    expect(notice).to_contain_text("…")
    expect(notice).to_be_empty()
    lab.document()


@pytest.mark.rare
def test_a_kernel_without_the_package_says_what_to_install(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    spec = lab.server.runtime.parent / "data" / "kernels" / "bare"
    spec.mkdir(parents=True, exist_ok=True)
    # an environment that has everything else
    without = (
        "import sys, importlib.abc\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'onnx_nb': raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from ipykernel import kernelapp; kernelapp.launch_new_instance()"
    )
    argv = [sys.executable, "-c", without, "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Bare", "language": "python"}))
    name = copied(lab, f"bare-{lab.theme}.onnx").name
    lab.browse().command("docmanager:open", {"path": name, "kernel": {"name": "bare"}})
    notice = lab.page.locator(".onnx-nb-notice")
    expect(notice).to_contain_text("onnx_nb is not installed where the kernel runs.")
    expect(notice).to_contain_text(f"{sys.executable} -m pip install --upgrade onnx-nb")
    lab.screenshot(f"document-bare-{lab.theme}")
    notice.get_by_role("button", name="Choose a kernel").click()
    dialog = lab.page.locator(".jp-Dialog")
    dialog.locator("select").first.select_option(label="Python 3 (ipykernel)")
    dialog.get_by_role("button", name="Select Kernel").last.click()
    lab.document()
    expect(notice).to_be_empty()


@pytest.mark.rare
def test_a_drive_of_shared_editing_shows_the_same_file(lab: JupyterPage) -> None:
    """`RTC` is the name of the drive of jupyter-collaboration; here it serves the same files without it."""
    copied(lab, "shared/together.onnx")
    lab.browse().page.evaluate("""() => {
        const { contents } = jupyterapp.serviceManager;
        contents.addDrive(new contents.defaultDrive.constructor({ name: 'RTC' }));
    }""")
    lab.command("docmanager:open", {"path": "RTC:shared/together.onnx"})
    GraphWidget(lab.document())
    with asking(lab.page, "Open in a notebook", "Make the notebook") as path:
        expect(path).to_have_value("RTC:shared/together.ipynb")
    expect(lab.page.locator(".jp-NotebookPanel .jp-Cell").nth(2)).to_be_visible()
    assert (lab.server.root / "shared" / "together.ipynb").exists()
    assert lab.errors == []


def test_what_no_tab_can_show_is_said_in_it(lab: JupyterPage) -> None:
    """A path that only the page knows, weights that are missing, and folders."""
    shutil.rmtree(lab.server.root / "broken.onnx", ignore_errors=True)  # of a run before this one
    copied(lab, "far/away.onnx")
    folder = copied(lab, "folder.onnx/inner.onnx").parent
    copied(lab, "folder.onnx/other.onnx")
    model = onnx.load(models.light("squeezenet"))
    onnx.save(
        model, lab.server.root / "broken.onnx", save_as_external_data=True, location="lost.data", size_threshold=0
    )
    (lab.server.root / "lost.data").unlink()
    notice = lab.page.locator(".onnx-nb-document:visible .onnx-nb-notice")
    lab.browse().page.evaluate("""() => {
        const { contents } = jupyterapp.serviceManager;
        contents.addDrive(new contents.defaultDrive.constructor({ name: 'Cloud' }));
    }""")
    lab.command("docmanager:open", {"path": "Cloud:far/away.onnx"})
    expect(notice.locator("h2")).to_contain_text(f"sees no file 'away.onnx': it looked for '{lab.server.root}/away.")
    expect(notice.locator("p")).to_contain_text("Choose a kernel that runs where the file is, or copy the file into")
    lab.screenshot("document-far")
    before = lab.page.evaluate("jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.id")

    lab.command("docmanager:open", {"path": "broken.onnx", "kernel": {"id": before}})
    graph = GraphWidget(lab.document())
    expect(graph.root.locator(".onnx-nb-warn")).to_contain_text("external data in 'lost.data', which is not in")
    graph.root.get_by_role("button", name=re.compile("^[0-9]+ fault")).click()
    expect(graph.root.locator(".onnx-nb-warn li").first).to_contain_text("Put the file there")
    lab.screenshot("document-broken")

    # a double-click goes into a folder; one that took the place of a file is called one
    lab.double_click(folder.name)
    expect(lab.page.locator(".jp-DirListing-itemName").get_by_text("inner.onnx", exact=True)).to_be_visible()
    (lab.server.root / "broken.onnx").unlink()
    folder.rename(lab.server.root / "broken.onnx")
    notice.get_by_role("button", name="Open again").click()
    expect(notice.locator("h2")).to_contain_text("broken.onnx' is a folder.")
    expect(notice.locator("p")).to_have_text("Models in it: 'inner.onnx', 'other.onnx'.")
    lab.screenshot("document-folder")
    shutil.rmtree(lab.server.root / "broken.onnx")


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """A server below a path, as behind JupyterHub."""
    server = JupyterServer(tmp_path_factory.mktemp("nested"), base_url="/user/ada/")
    yield server
    server.stop()


def test_notebook_7_opens_a_model_in_a_page_of_its_own(nested: JupyterServer, page: Page, theme: Theme) -> None:
    with JupyterPage(nested, page, theme) as tree:
        name = copied(tree, f"in a folder/paged {theme}.onnx").name
        page.goto(f"{nested.url}/tree/in a folder?token={nested.token}")
        with page.context.expect_page() as opened:
            tree.double_click(name)
        with JupyterPage(nested, opened.value, theme) as lab:
            graph = GraphWidget(lab.document())
            assert "/user/ada/edit/" in lab.page.url
            assert "factory" not in lab.page.url
            graph.click("r13")
            lab.kernel.expect(f"[each['name'] for each in {GRAPH}.selection]", ["r13"])
            lab.screenshot(f"document-notebook-7-{theme}")
            lab.page.reload()
            GraphWidget(lab.document()).expect_selection("r13")
            with page.context.expect_page() as made, asking(lab.page, "Open in a notebook", "Make the notebook"):
                pass
            expect(made.value.locator(".jp-Cell").nth(2)).to_be_visible()
            with JupyterPage(nested, made.value, theme) as cells:
                cells.page.evaluate(READY)
                cells.run_cell(0)
                graph = GraphWidget(cells.widget("graph"))
                graph.click("r13")
                graph.press("Output")
                graph.extract()
                cells.kernel.expect("[each.name for each in g.submodel.outputs]", ["r13"])
                cells.screenshot(f"cells-notebook-7-{theme}")
            assert lab.errors == []


def test_a_tab_leaves_the_kernel_of_a_notebook_running(lab: JupyterPage) -> None:
    name = copied(lab, "guest.onnx").name
    lab.open(lab.server.write("host.ipynb", "1"))
    pid = lab.kernel.evaluate("__import__('os').getpid()")
    of_notebook = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
    lab.command("docmanager:open", {"path": name, "kernel": {"id": lab.page.evaluate(f"{of_notebook}.id")}})
    lab.document()
    lab.kernel.expect(f"[path.name for path in {SHOWN}]", [name])
    lab.page.get_by_role("tab", name=name).locator(".lm-TabBar-tabCloseIcon").click()
    expect(lab.page.locator(".onnx-nb-document")).to_have_count(0)
    lab.run_all()
    assert lab.kernel.evaluate("__import__('os').getpid()") == pid
    lab.command("docmanager:open", {"path": name, "kernel": {"id": lab.page.evaluate(f"{of_notebook}.id")}})
    lab.document()


@pytest.fixture
def no_anywidget(server: JupyterServer) -> Iterator[None]:
    config = server.runtime.parent / "config" / "labconfig" / "page_config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text('{"disabledExtensions": {"anywidget": true}}')
    yield
    config.unlink()


@pytest.mark.rare
@pytest.mark.usefixtures("no_anywidget")
def test_a_server_without_anywidget_says_what_to_install(lab: JupyterPage) -> None:
    name = copied(lab, "unseen.onnx").name
    lab.browse().double_click(name)
    expect(lab.page.locator(".onnx-nb-notice")).to_contain_text("Jupyter shows no widgets here.")
    expect(lab.page.locator(".onnx-nb-notice pre")).to_have_text("python -m pip install --upgrade ipywidgets anywidget")
