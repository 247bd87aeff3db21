"""Fixtures of the browser tests: one JupyterLab server and one Chromium a worker, a fresh page for each test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.jupyter import PATIENCE, JupyterPage, JupyterServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, Playwright

    from tests.browser.jupyter import Theme

# no sandbox for root; the rest keeps Chromium from looking for Google's hosts
FLAGS = (
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, so that `pytest -m "not browser"` is the quick run."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


def chromium_path(playwright: Playwright) -> str | None:
    """Return the installed Chromium or, failing that, Playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    own = playwright.chromium.executable_path
    return found or (own if Path(own).exists() else None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = chromium_path(playwright)
        if path is None:
            pytest.skip("no Chromium: `apt-get install chromium` or `playwright install chromium` (make test does it)")
        expect.set_options(timeout=PATIENCE * 1000)
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    server = JupyterServer(tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window of its own: no cookies or storage of an earlier test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
    yield context.new_page()
    context.close()


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> Theme:
    chosen: Theme = request.param
    return chosen


@pytest.fixture
def lab(server: JupyterServer, page: Page) -> Iterator[JupyterPage]:
    """JupyterLab in the light theme; a test that asks for `themed_lab` runs in both."""
    with JupyterPage(server, page) as lab:
        yield lab


@pytest.fixture
def themed_lab(server: JupyterServer, page: Page, theme: Theme) -> Iterator[JupyterPage]:
    with JupyterPage(server, page, theme) as lab:
        yield lab
