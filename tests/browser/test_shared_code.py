"""Ten widgets in one notebook: the bundle is sent and saved once, and all of them draw, also after reopening."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.jupyter import JupyterPage, JupyterServer

MODEL = (
    "import onnx_nb, onnx.parser\n"
    "text = '<ir_version: 8, opset_import: [\"\": 17]> g (float[4] x) => (float[4] y) { a = Exp(x) y = Relu(a) }'\n"
    "model = onnx_nb.load(onnx.parser.parse_model(text))"
)
KINDS = ("ModelGraph(model, height=160)", "ModelSummary(model, expanded=False)", "AuditPanel(model)")
TEN = [KINDS[at % 3] for at in range(10)]
DRAWN = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output > * > .onnx-nb[data-state=drawn]"


@pytest.fixture
def state_is_saved(server: JupyterServer) -> Iterator[None]:
    """Turn on JupyterLab's setting that saves widget state with the notebook."""
    setting = server.settings / "@jupyter-widgets" / "jupyterlab-manager" / "plugin.jupyterlab-settings"
    setting.parent.mkdir(parents=True, exist_ok=True)
    setting.write_text('{"saveState": true}')
    yield
    setting.unlink()


@pytest.mark.usefixtures("state_is_saved")
def test_ten_widgets_share_one_bundle(fresh_lab: JupyterPage) -> None:
    lab = fresh_lab
    name = lab.server.write("ten.ipynb", MODEL, "\n".join(f"display(onnx_nb.{widget})" for widget in TEN))
    lab.open(name).run_all()
    drawn = lab.page.locator(DRAWN)
    expect(drawn).to_have_count(len(TEN))
    assert lab.page.evaluate("onnxNbModules.size") == 1
    graphs = "[...document.querySelectorAll('.onnx-nb[data-widget=graph]')].map(root => root.onnxNb.columns)"
    assert lab.page.evaluate(f"new Set({graphs}).size") == 1
    size = lab.kernel.evaluate("len(__import__('onnx_nb.widgets._base').widgets._base.static_text('widget.js'))")
    lab.command("docmanager:save")
    saved = (lab.server.root / name).read_text(encoding="utf-8")
    models = json.loads(saved)["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    states = [model["state"] for model in models]
    assert [len(state["code"]) for state in states if "code" in state] == [size]
    stubs = [len(state["_esm"]) for state in states if "_esm" in state]
    assert len(stubs) == len(TEN) + 1  # the one with the code has the page compile it
    assert max(stubs) < 1500
    assert len(saved) < size + 150_000

    # the page is loaded again while the kernel lives
    lab.open(name)
    expect(drawn).to_have_count(len(TEN))
    assert lab.errors == []

    # the notebook is opened without its kernel
    lab.page.evaluate("async () => await jupyterapp.serviceManager.sessions.shutdownAll()")
    lab.open(name)
    expect(drawn).to_have_count(len(TEN))
