"""Fixtures of the browser tests: one JupyterLab server and one Chromium a worker.

Tests that open notebooks do it one after another in one page, as a person does; others have a fresh one.

`ONNX_NB_SLOW=300` makes every page as it is on a bad day: messages between it and the kernel arrive 300 ms later, and
it computes four times as slowly. No test may mind: what has not come yet is waited for.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.jupyter import PATIENCE, SCREENSHOTS, JupyterPage, JupyterServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Browser, BrowserContext, Page, Playwright, ViewportSize

    from tests.browser.jupyter import Theme

# Chromium takes the last list only, so Playwright's is repeated; the last four are pages that it draws in every window
WITHOUT = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "PreloadTopChromeWebUI",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
)
# no sandbox for root; the rest keeps Chromium from looking for Google's hosts
FLAGS = (
    f"--disable-features={','.join(WITHOUT)}",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

FAILED = pytest.StashKey[bool]()
SIZE: ViewportSize = {"width": 1280, "height": 900}
SLOW = int(os.environ.get("ONNX_NB_SLOW", "0"))
# messages stay in their order: timers of one length do
LATE = f"""{{
    const {{send}} = WebSocket.prototype;
    WebSocket.prototype.send = function (data) {{
        setTimeout(() => this.readyState === WebSocket.OPEN && send.call(this, data), {SLOW});
    }};
    const {{set, get}} = Object.getOwnPropertyDescriptor(WebSocket.prototype, 'onmessage');
    Object.defineProperty(WebSocket.prototype, 'onmessage', {{get, set(heard) {{
        set.call(this, heard && (event => setTimeout(() => heard.call(this, event), {SLOW})));
    }}}});
}}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test here `browser`, and run a test that fails once more."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")
            item.add_marker(pytest.mark.flaky(reruns=0 if SLOW else 1))


def chromium_path(playwright: Playwright) -> str | None:
    """Return the installed Chromium or, failing that, Playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    own = playwright.chromium.executable_path
    return found or (own if Path(own).exists() else None)


# a page without an origin has no storage
NO_HINTS = "try { localStorage.setItem('onnx-nb-hints', 'read'); } catch {}"


def be_patient(context: BrowserContext) -> None:
    """Set long timeouts for the pages of a context, and slow them down if ONNX_NB_SLOW is set; show no first hints."""
    context.set_default_timeout(PATIENCE * 1000)
    context.add_init_script(NO_HINTS)

    def throttle(page: Page) -> None:
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})

    if SLOW:
        context.add_init_script(LATE)
        context.on("page", throttle)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = chromium_path(playwright)
        if path is None:
            pytest.skip("no Chromium: `apt-get install chromium` or `playwright install chromium` (make test does it)")
        expect.set_options(timeout=PATIENCE * 1000)
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        browser.on("context", be_patient)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    server = JupyterServer(tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test failed, so that `page` can take a screenshot."""
    report = yield
    item.stash[FAILED] = report.failed
    return report


class Window:
    """A page in a browser context of its own, as large as that of a notebook."""

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context(viewport=SIZE)
        self.page = self.context.new_page()
        self.tests = 0
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text) if message.type == "error" else None)

    def show_failure(self, item: pytest.Item) -> bool:
        """Take a screenshot if the test failed; return whether it did."""
        failed = item.stash.get(FAILED, False)
        if failed:
            path = SCREENSHOTS / "failed" / f"{re.sub(r'[^A-Za-z0-9]+', '-', item.name)}.png"
            print(f"{path}\n" + "\n".join(self.said))  # noqa: T201 - printed with the failure
            self.page.screenshot(path=path)
        return failed


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Yield a page in a fresh browser context; take a screenshot of it if the test failed."""
    window = Window(browser)
    yield window.page
    window.show_failure(request.node)
    window.context.close()


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> Theme:
    chosen: Theme = request.param
    return chosen


@pytest.fixture(scope="package")
def windows(browser: Browser) -> list[Window]:
    """Keep the window that the next test uses, too; none where the last one left it in a state of its own."""
    return []


@contextmanager
def working(
    server: JupyterServer, browser: Browser, windows: list[Window], theme: Theme, item: pytest.Item
) -> Iterator[JupyterPage]:
    """Work in the window of the test before this one, or in a new one after a failure."""
    window = windows.pop() if windows else Window(browser)
    window.tests += 1
    window.said.clear()
    window.page.set_viewport_size(SIZE)
    window.page.mouse.move(0, 0)
    with JupyterPage(server, window.page, theme) as lab:
        yield lab
        failed = window.show_failure(item)
    # a page that shows one graph after another grows by some 20 MB with each
    if lab.is_clean and not failed and window.tests < 25:
        windows.append(window)
    else:
        window.context.close()


@pytest.fixture
def lab(
    server: JupyterServer, browser: Browser, windows: list[Window], request: pytest.FixtureRequest
) -> Iterator[JupyterPage]:
    """JupyterLab in the light theme; tests that use `themed_lab` run in both themes."""
    with working(server, browser, windows, "light", request.node) as lab:
        yield lab


@pytest.fixture
def themed_lab(
    server: JupyterServer, browser: Browser, windows: list[Window], theme: Theme, request: pytest.FixtureRequest
) -> Iterator[JupyterPage]:
    with working(server, browser, windows, theme, request.node) as lab:
        yield lab


@pytest.fixture
def fresh_lab(server: JupyterServer, page: Page) -> Iterator[JupyterPage]:
    """JupyterLab that is loaded for this test alone: it changes what is read at the start."""
    with JupyterPage(server, page) as lab:
        yield lab


@pytest.fixture(params=["light", "dark"])
def offline(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        offline=True, viewport={"width": 1280, "height": 900}, color_scheme=request.param, device_scale_factor=1.5
    )
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    context.close()
