"""A .onnx file is double-clicked in JupyterLab or Notebook 7: a tab with the live view and a kernel of its own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests import models
from tests.browser.graph import GraphWidget

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.jupyter import JupyterPage

SHOWN = "__import__('onnx_nb.notebook.document', fromlist=['view'])._shown"
"""In a tab's kernel: what it shows."""
GRAPH = f"next(iter({SHOWN}.values())).view.graph"


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
    graph.extract()
    lab.kernel.expect(f"[v.name for v in {GRAPH}.submodel.outputs]", ["r13"])
    assert lab.kernel.evaluate("__import__('os').getcwd()") == str(lab.server.root)
    assert [url for url in asked if name in url and "/api/contents/" in url and "content=1" in url] == []
    assert [path for path in lab.server.root.rglob(".ipynb_checkpoints/*") if path.suffix == ".onnx"] == []
    assert lab.errors == []


def test_a_tab_survives_a_reload_and_follows_its_file(lab: JupyterPage) -> None:
    copied(lab, "folder/before.onnx")
    graph = GraphWidget(lab.browse().double_click("folder").double_click("before.onnx").document())
    graph.click("r13")
    graph.root.get_by_role("button", name="Across").click()
    lab.kernel.expect(f"{GRAPH}.direction", "right")
    pid = lab.kernel.evaluate("__import__('os').getpid()")
    lab.page.reload()
    graph = GraphWidget(lab.document())
    assert lab.kernel.evaluate("__import__('os').getpid()") == pid
    graph.expect("view.state.direction", "right")
    assert graph.selection == "r13"

    lab.page.evaluate("jupyterapp.serviceManager.contents.rename('folder/before.onnx', 'folder/after it.onnx')")
    expect(lab.page.get_by_role("tab", name="after it.onnx")).to_be_visible()
    expect(lab.page.locator(".onnx-nb-document")).to_contain_text("after it.onnx")
    graph = GraphWidget(lab.document())
    graph.expect("view.state.direction", "right")
    lab.kernel.expect(f"[path.name for path in {SHOWN}]", ["after it.onnx"])
    assert lab.errors == []


def test_a_notebook_is_made_that_shows_cuts_and_compares(lab: JupyterPage) -> None:
    copied(lab, "made.onnx")
    lab.browse().double_click("made.onnx").document()
    lab.page.get_by_role("button", name="Open in a notebook").click()
    expect(lab.page.locator(".jp-NotebookPanel .jp-Cell").nth(2)).to_be_visible()
    assert (lab.server.root / "made.ipynb").exists()
    lab.page.evaluate("""async () => {
        const { sessionContext } = jupyterapp.shell.currentWidget;
        await sessionContext.ready;
        await sessionContext.session.kernel.info;
    }""")
    lab.run_all()
    kinds = [lab.widget(kind, within=lab.page.locator(".jp-NotebookPanel")) for kind in ("graph", "comparison")]
    assert len(kinds) == 2
    assert lab.errors == []


def test_a_file_that_is_no_model_says_so(themed_lab: JupyterPage) -> None:
    lab = themed_lab
    path = lab.server.root / f"text-{lab.theme}.onnx"
    path.write_text("a letter")
    lab.browse().double_click(path.name)
    notice = lab.page.locator(".onnx-nb-notice")
    expect(notice).to_contain_text(f"{path.name} is not an ONNX model: it is a text file.")
    lab.screenshot(f"document-text-{lab.theme}")
    shutil.copyfile(models.light("squeezenet"), path)
    notice.get_by_role("button", name="Open again").click()
    lab.document()
    expect(notice).to_be_empty()
    assert lab.errors == []
