"""Hosts of widgets that are no notebooks: each shows the same app, from an environment with the wheel and the host.

`make hosts` makes the environments in build/hosts (three minutes, 2 GB) and runs this; without it, all is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests import models
from tests.browser.fresh import environment, free_port, served
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import ROOT, SCREENSHOTS

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from tests.browser.jupyter import Theme

HOME = ROOT / "build" / "hosts"
APP = """import onnx_nb
model = onnx_nb.load("model.onnx")
graph = onnx_nb.ModelGraph(model)
panel = onnx_nb.CapturePanel(onnx_nb.capture(model), graph=graph)
"""
VOILA = "import ipywidgets\n" + APP + "ipywidgets.VBox([graph, panel])"
PANEL = (
    "import panel as pn\npn.extension('ipywidgets', theme='THEME')\n"
    + APP
    + "wide = {'sizing_mode': 'stretch_width'}\n"
    "pn.Column(pn.pane.IPyWidget(graph, **wide), pn.pane.IPyWidget(panel, **wide)).servable()\n"
)
SOLARA = """import onnx_nb
import solara

model = onnx_nb.load("model.onnx")


def widgets():
    graph = onnx_nb.ModelGraph(model)
    return graph, onnx_nb.CapturePanel(onnx_nb.capture(model), graph=graph)


@solara.component
def Page():
    for widget in solara.use_memo(widgets, []):
        solara.display(widget)
"""
MARIMO = (
    "import marimo\n\napp = marimo.App()\n\n\n@app.cell\ndef _():\n    import marimo as mo\n    "
    + APP.replace("\n", "\n    ")
    + "mo.vstack([mo.ui.anywidget(graph), mo.ui.anywidget(panel)])\n    return\n"
)


class Host(NamedTuple):
    packages: tuple[str, ...]
    """What a user installs with onnx-nb."""

    app: str
    line: str
    """The server's command line after `python -m`, with PORT and THEME."""

    asks: frozenset[str] = frozenset()
    """The machines that the host's own pages ask for, above all for fonts."""


HOSTS = {
    "voila": Host(
        ("voila", "ipykernel"),
        VOILA,
        "voila app.ipynb --no-browser --port=PORT --theme=THEME --Voila.ip=127.0.0.1",
        frozenset({"cdn.jsdelivr.net"}),
    ),
    "panel": Host(
        ("panel", "ipywidgets_bokeh"),
        PANEL,
        "panel serve app.py --port PORT --address 127.0.0.1 --allow-websocket-origin 127.0.0.1:PORT",
        frozenset({"cdnjs.cloudflare.com", "cdn.holoviz.org", "unpkg.com"}),
    ),
    "solara": Host(
        # the assets have the files of the older Vuetify alone
        ("solara", "solara-assets", "ipyvuetify<3"),
        SOLARA,
        "solara run app.py --no-open --production --host 127.0.0.1 --port PORT --theme-variant THEME",
    ),
    "marimo": Host(("marimo",), MARIMO, "marimo run app.py --headless --no-token --host 127.0.0.1 --port PORT"),
}

pytestmark = pytest.mark.skipif(not os.environ.get("ONNX_NB_HOSTS"), reason="`make hosts` makes the environments")


@pytest.fixture(scope="module", params=HOSTS)
def name(request: pytest.FixtureRequest) -> str:
    host: str = request.param
    return host


@pytest.fixture(scope="module")
def python(name: str) -> Path:
    return environment(HOME / name, *HOSTS[name].packages)


def test_an_app_is_alive(name: str, python: Path, page: Page, theme: Theme, tmp_path: Path) -> None:
    host = HOSTS[name]
    shutil.copyfile(models.light("squeezenet"), tmp_path / "model.onnx")
    (tmp_path / "app.py").write_text(host.app.replace("THEME", theme.replace("light", "default")))
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "app",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": host.app,
    }
    notebook = {"cells": [cell], "metadata": {"kernelspec": {"name": "python3", "display_name": "Python"}}}
    (tmp_path / "app.ipynb").write_text(json.dumps(notebook | {"nbformat": 4, "nbformat_minor": 5}))
    port = free_port()
    line = host.line.replace("PORT", str(port)).replace("THEME", theme).split()
    address = f"http://127.0.0.1:{port}/"
    asked: set[str | None] = set()
    # anywidget's own wheel has what Panel's page takes from a network
    module = python.parents[1] / "share" / "jupyter" / "nbextensions" / "anywidget" / "index.js"

    def outside(route: Route) -> None:
        asked.add(urlsplit(route.request.url).hostname)
        if "/anywidget@" in route.request.url:
            route.fulfill(path=module, headers={"Access-Control-Allow-Origin": "*"})
        else:
            route.abort()

    page.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), outside)
    # where marimo looks for a choice of theme
    (tmp_path / "pyproject.toml").write_text(f'[tool.marimo.display]\ntheme = "{theme}"\n')
    # against what the system wishes, so that only the host can be the reason
    page.emulate_media(color_scheme="light" if theme == "dark" else "dark")
    with served([str(python), "-m", *line], tmp_path, port):
        page.goto(address if name != "panel" else f"{address}app")
        graph = GraphWidget(page.locator('.onnx-nb[data-widget="graph"][data-state="drawn"]'))
        panel = page.locator('.onnx-nb[data-widget="capture"]')
        expect(graph.root).to_have_class(re.compile("onnx-nb-dark" if theme == "dark" else r"^(?!.*onnx-nb-dark)"))
        page.screenshot(path=SCREENSHOTS / f"host-{name}-{theme}.png")
        graph.click("r13", "tensor")
        expect(panel.get_by_label("Value", exact=True)).to_contain_text("r13")
        graph.press("Capture")
        expect(graph.root.get_by_label("Values", exact=True)).to_contain_text("captured, 1 run")
        panel.get_by_role("searchbox").fill("r20")
        panel.get_by_role("grid").focus()
        page.keyboard.press("ArrowDown")
        graph.expect_selection("r20")
        graph.press("Output")
        graph.extract()
        page.screenshot(path=SCREENSHOTS / f"host-{name}-extracted-{theme}.png")
    assert asked <= host.asks
