"""The first minute of a newcomer: five ways to a live model, from an environment with nothing of the checkout.

`make routes` makes the environment in build/routes (a minute, 700 MB) and runs this; without it, all is skipped. Every
Python process there and every page notes each host that it asks for, and no test may find one outside this machine. The
fifth way, the gallery, is in `test_site.py`: its pages need no environment.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests import models
from tests.browser.fresh import environment, free_port, served
from tests.browser.graph import GraphWidget
from tests.browser.jupyter import ROOT, SCREENSHOTS, JupyterPage, JupyterServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.browser.jupyter import Theme

HOME = ROOT / "build" / "routes"
PYTHON = HOME / "venv" / "bin" / "python"
SITE = "onnx_nb_routes_site"
LOCAL = {"127.0.0.1", "::1", "localhost", "0.0.0.0", "", None, socket.gethostname()}  # noqa: S104 (nobody listens)
# in every Python process of the environment
WATCH = """import os, sys
def heard(event, args):
    host = ()
    if event == "socket.getaddrinfo":
        host = args[0],
    elif event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0],
    for each in host:
        with open(os.environ["ONNX_NB_ASKED"], "a") as file:
            file.write(f"{each.decode() if isinstance(each, bytes) else each or ''}\\n")
if "ONNX_NB_ASKED" in os.environ:
    sys.addaudithook(heard)
"""

pytestmark = pytest.mark.skipif(not os.environ.get("ONNX_NB_ROUTES"), reason="`make routes` makes the environment")


@pytest.fixture(scope="module")
def fresh() -> Path:
    """Return the Python of an environment into which pip put the wheel, JupyterLab and marimo."""
    environment(HOME, "jupyterlab", "marimo")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.run([PYTHON, "-c", where], check=True, capture_output=True, text=True).stdout.strip())
    (packages / "sitecustomize.py").write_text(WATCH)
    return PYTHON


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Page) -> Iterator[None]:
    """Fail if a process or a page asked for another machine."""
    noted = tmp_path / "asked"
    noted.touch()
    monkeypatch.setenv("ONNX_NB_ASKED", str(noted))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    pages: list[str] = []
    page.context.on("request", lambda request: pages.append(request.url))
    yield
    assert pages
    assert {urlsplit(url).hostname for url in pages if not url.startswith(("data:", "blob:"))} <= LOCAL
    assert set(noted.read_text().splitlines()) <= LOCAL


@pytest.fixture
def lab(fresh: Path, asked: None, page: Page, theme: Theme, tmp_path: Path) -> Iterator[JupyterPage]:
    server = JupyterServer(tmp_path, python=str(fresh))
    shutil.copyfile(models.light("squeezenet"), server.root / "model.onnx")
    with JupyterPage(server, page, theme) as lab:
        yield lab
    server.stop()


def test_a_double_click(lab: JupyterPage) -> None:
    GraphWidget(lab.browse().double_click("model.onnx").document())
    lab.screenshot(f"route-double-click-{lab.theme}")
    where = lab.kernel.evaluate("__import__('onnx_nb').__file__")
    assert Path(where).is_relative_to(HOME)
    assert lab.errors == []


def test_three_lines_in_a_cell(lab: JupyterPage) -> None:
    lines = 'import onnx_nb\nmodel = onnx_nb.load("model.onnx")\nmodel'
    lab.open(lab.server.write("three.ipynb", lines)).run_cell(0)
    graph = GraphWidget(lab.widget("graph"))
    graph.click("r13")
    lab.screenshot(f"route-cell-{lab.theme}")
    assert graph.selection == "r13"
    assert lab.errors == []


def test_one_line_in_a_terminal(fresh: Path, asked: None, page: Page, theme: Theme, tmp_path: Path) -> None:
    shutil.copyfile(models.light("squeezenet"), tmp_path / "m.onnx")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{tmp_path}/address"\n')
    browser.chmod(0o755)
    line = [str(fresh.with_name("onnx-nb")), "show", "m.onnx"]
    done = subprocess.run(
        line, cwd=tmp_path, env=os.environ | {"BROWSER": str(browser)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    page.emulate_media(color_scheme=theme)
    page.goto((tmp_path / "address").read_text())
    root = page.locator('.onnx-nb[data-widget="graph"][data-state="drawn"]')
    root.wait_for()
    GraphWidget(root).click("r13")
    page.screenshot(path=SCREENSHOTS / f"route-terminal-{theme}.png")


NOTEBOOK = """import marimo

app = marimo.App()


@app.cell
def _():
    import onnx_nb

    model = onnx_nb.load("m.onnx")
    model
    return


if __name__ == "__main__":
    app.run()
"""


def test_a_cell_of_marimo(fresh: Path, asked: None, page: Page, theme: Theme, tmp_path: Path) -> None:
    shutil.copyfile(models.light("squeezenet"), tmp_path / "m.onnx")
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    port = free_port()
    line = [str(fresh), "-m", "marimo", "run", "notebook.py", "--headless", "--no-token", "--host", "127.0.0.1"]
    with served([*line, "--port", str(port)], tmp_path, port):
        page.emulate_media(color_scheme=theme)
        page.goto(f"http://127.0.0.1:{port}")
        root = page.locator('.onnx-nb[data-widget="graph"][data-state="drawn"]')
        root.wait_for()
        graph = GraphWidget(root)
        graph.click("r13")
        graph.press("Output")
        graph.extract()
        page.screenshot(path=SCREENSHOTS / f"route-marimo-{theme}.png")
