"""Driver of JupyterLab: a server with private folders, a page in Chromium, and its kernel."""

from __future__ import annotations

import ast
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.utils import ensure_event_loop
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from playwright.sync_api import ConsoleMessage, Error, Locator, Page, WebSocket

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
Theme = Literal["light", "dark"]
# seconds until what has not come is taken as never coming: other workers may keep all cores busy
PATIENCE = 180
# JupyterLab's own, on every start: it asks for a workspace that was never saved, and the like; anywidget's, when a page
# took more than 2 s to start a widget, which works all the same; and those of Notebook 7.6: on every page, and when a
# page opens a notebook in another one
NOISE = re.compile(
    r"/lab/api/workspaces/|/api/me|favicon|static/base|ResizeObserver loop|Failed to initialize model"
    r"|undefined \(reading 'schema'\)|null \(reading 'updateRenderOption'\)"
)

# nothing on the page moves: every graph is laid out, and what can be clicked stood still for some frames
AT_REST = """async patience => {
    const started = performance.now();
    let [before, frames] = ['', 0];
    while (frames < 3) {
        await new Promise(requestAnimationFrame);
        const viewports = [...document.querySelectorAll('.onnx-nb-graph')].flatMap(root => root.onnxNb?.viewport ?? []);
        const places = [...document.querySelectorAll('.onnx-nb, .onnx-nb canvas')].map(each => {
            const {x, y, width, height} = each.getBoundingClientRect();
            return [x, y, width, height];
        });
        const now = JSON.stringify([innerWidth, innerHeight, places, viewports.map(({position}) => position)]);
        frames = now === before && !viewports.some(({busy, gliding}) => busy || gliding) ? frames + 1 : 0;
        before = now;
        if (performance.now() - started > 1000 * patience) throw new Error(`the page never came to rest: ${now}`);
    }
}"""

CLOSE_ALL = """async () => {
    for (const tab of [...window.jupyterapp?.shell.widgets('main') ?? []]) tab.dispose();
    await window.jupyterapp?.serviceManager.sessions.shutdownAll();
}"""
# the launcher, which JupyterLab shows where nothing is open, goes, and so do the marks of earlier drawings
OPEN_ALONE = """async ([path, theme]) => {
    const {commands, shell} = window.jupyterapp;
    if (document.body.dataset.jpThemeName !== theme) await commands.execute('apputils:change-theme', {theme});
    const opened = await commands.execute('docmanager:open', {path});
    for (const tab of [...shell.widgets('main')]) if (tab !== opened) tab.dispose();
    performance.clearMarks();
}"""

# JupyterLab may close what the address opened while it restores its empty workspace
OPEN_RESTORED = """async path => {
    await jupyterapp.restored;
    await jupyterapp.commands.execute('docmanager:open', {path});
}"""

# a dialog that nobody answers is an error with a picture
EXECUTED = """async ([command, args, patience]) => {
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error(`${command} never ended`)), 1000 * patience));
    await Promise.race([jupyterapp.commands.execute(command, args), late]);
}"""


def await_rest(page: Page) -> None:
    """Wait until nothing is laid out, animated or resized, so that coordinates stay valid."""
    page.evaluate(AT_REST, PATIENCE)


def await_value(look: Callable[[], Any], wanted: Any, what: str) -> None:
    """Poll until a value equals the expected one, compared as JSON; fail with both.

    Playwright's `wait_for_function` does not do: where a page lets nothing be evaluated, as those that we write do not,
    it may look only once.
    """
    wanted = json.loads(json.dumps(wanted))
    deadline = time.monotonic() + PATIENCE
    while (found := look()) != wanted:
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not become\n{wanted!r}\nwithin {PATIENCE} s, it is\n{found!r}")
        time.sleep(0.05)


class JupyterServer:
    """`jupyter lab` on a copy of the notebooks, without the user's settings and without network access.

    It serves the pages of Notebook 7, too. Options are those of `ServerApp`. Another `python` is one of an environment
    that has a wheel of onnx_nb, whose extension is served instead of this checkout's.
    """

    def __init__(self, folder: Path, *, python: str = sys.executable, **options: Any) -> None:
        self.root = folder / "notebooks"
        shutil.copytree(ROOT / "notebooks", self.root, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        self.runtime = folder / "runtime"
        self.settings = folder / "settings"
        self.token = secrets.token_hex(16)
        self.log = folder / "server.log"
        self.setting("notification", {"fetchNews": "false", "checkForUpdates": False})
        homes = {
            "HOME": folder / "home",
            "IPYTHONDIR": folder / "ipython",
            "JUPYTER_CONFIG_DIR": folder / "config",
            "JUPYTER_DATA_DIR": folder / "data",
            "JUPYTER_RUNTIME_DIR": self.runtime,
            "JUPYTERLAB_SETTINGS_DIR": self.settings,
            "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
        }
        for home in homes.values():
            home.mkdir(exist_ok=True)
        # this checkout's extension, whether or not an older one is installed
        extensions = folder / "labextensions"
        extensions.mkdir()
        if python == sys.executable:
            (extensions / "onnx-nb").symlink_to(ROOT / "onnx_nb" / "static" / "labextension")
        settings = {
            "IdentityProvider.token": self.token,
            "JupyterNotebookApp.expose_app_in_browser": True,
            "JupyterNotebookApp.extra_labextensions_path": extensions,
            "LabApp.extra_labextensions_path": extensions,
            "LabApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": 0,  # whichever is free
            "ServerApp.root_dir": self.root,
            "ServerApp.terminals_enabled": False,
            **{f"ServerApp.{name}": value for name, value in options.items()},
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    python,
                    *("-m", "jupyterlab", "--no-browser", "--allow-root"),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                env={
                    # the tests' own choice; a kernel shows figures in its cells
                    **{name: value for name, value in os.environ.items() if name != "MPLBACKEND"},
                    **{name: str(home) for name, home in homes.items()},
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        self.url = self._address()

    def _address(self) -> str:
        # the server writes it down once it listens
        info = self.runtime / f"jpserver-{self.process.pid}.json"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if info.exists() and (text := info.read_text()).endswith("}"):
                return str(json.loads(text)["url"]).rstrip("/")
            time.sleep(0.1)
        self.process.kill()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()[-3000:]}")

    def setting(self, plugin: str, values: dict[str, Any]) -> None:
        """Override settings of `@jupyterlab/apputils-extension:PLUGIN` for pages opened from now on."""
        path = self.settings / "@jupyterlab" / "apputils-extension" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def write(self, name: str, *cells: str) -> str:
        """Write a notebook with the given code cells into the server's folder and return its name."""
        notebook = {
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{i}",
                    "metadata": {},
                    "execution_count": None,
                    "outputs": [],
                    "source": cell,
                }
                for i, cell in enumerate(cells)
            ],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.root / name).write_text(json.dumps(notebook))
        return name

    def stop(self) -> None:
        """Stop the server and its kernels."""
        self.process.terminate()
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Kernel:
    """The kernel of an open notebook, queried outside the page; it shares its state with the cells and the widgets."""

    def __init__(self, connection_file: Path) -> None:
        # a thread of its own, because Playwright keeps an event loop running in this one
        self._thread = ThreadPoolExecutor(1)
        self._client = BlockingKernelClient(connection_file=str(connection_file))
        self._thread.submit(self._start).result()

    def _start(self) -> None:
        self._client.load_connection_file()
        self._client.start_channels(hb=False)  # on a busy machine a beat comes late, and nothing died
        self._client.wait_for_ready(timeout=PATIENCE)

    def run(self, code: str, timeout: float = PATIENCE) -> None:
        """Run statements; an exception in the kernel is raised here with its traceback."""
        self._execute(code, {}, timeout)

    def expect(self, expression: str, value: Any = True) -> None:
        """Wait until an expression has the given value; a click may reach the kernel after a query."""
        await_value(lambda: self.evaluate(expression), value, expression)

    def evaluate(self, expression: str, timeout: float = PATIENCE) -> Any:
        """Return the value of an expression, converted through JSON.

        Effects of a click or a key that may still be on their way are awaited with `expect`.
        """
        encoded = {"value": f"__import__('json').dumps({expression})"}
        answer = self._execute("", encoded, timeout)["user_expressions"]["value"]
        if answer["status"] != "ok":
            raise RuntimeError("\n".join(answer["traceback"]))
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    def _execute(self, code: str, expressions: dict[str, str], timeout: float) -> Any:
        def ask() -> Any:
            return self._client.execute(
                code, store_history=False, user_expressions=expressions, reply=True, timeout=timeout
            )

        content = self._thread.submit(ask).result()["content"]
        if content["status"] != "ok":
            raise RuntimeError("\n".join(content["traceback"]))
        return content

    def close(self) -> None:
        """Disconnect from the kernel without ending it."""
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def _stop(self) -> None:
        self._client.stop_channels()
        # jupyter_core made it for this thread, and nobody else closes it
        ensure_event_loop().close()


class JupyterPage:
    """A notebook open in JupyterLab; as a context manager it ends its kernel on exit.

    What opens first uses the JupyterLab that is in the page: to load it takes longer than most tests.
    """

    def __init__(self, server: JupyterServer, page: Page, theme: Theme = "light") -> None:
        self.server = server
        self.page = page
        self.theme = theme
        self.errors: list[str] = []
        self.is_clean = True
        """Whether the next test may use this page, too, as far as is known here."""
        self._opened = 0  # number of documents so far
        self._answered = 0  # number of the last one whose kernel has answered
        self._kernel: Kernel | None = None
        page.on("console", self._on_console)
        page.on("pageerror", self._on_error)
        page.on("websocket", self._on_websocket)
        server.setting("themes", {"theme": self._theme_name})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kernel:
            self._kernel.close()
        self.page.evaluate(CLOSE_ALL)
        for event, heard in (
            ("console", self._on_console),
            ("pageerror", self._on_error),
            ("websocket", self._on_websocket),
        ):
            self.page.remove_listener(event, heard)

    @property
    def _theme_name(self) -> str:
        return "JupyterLab Dark" if self.theme == "dark" else "JupyterLab Light"

    def open(self, name: str) -> Self:
        """Open a notebook of the server's folder and wait until its kernel replies over the page's websocket."""
        self._opened += 1
        if self._opened == 1 and self.page.evaluate("window.jupyterapp !== undefined"):
            self.page.evaluate(OPEN_ALONE, [name, self._theme_name])
        else:
            # the name in `workspaces` keeps what an earlier page had open out of this one
            workspace = secrets.token_hex(4)
            self.page.goto(f"{self.server.url}/lab/workspaces/{workspace}/tree/{quote(name)}?token={self.server.token}")
            self.page.wait_for_function("window.jupyterapp")
            self.page.evaluate(OPEN_RESTORED, name)
        expect(self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").first).to_be_visible()
        expect(self.page.locator("body")).to_have_attribute(
            "data-jp-theme-light", "false" if self.theme == "dark" else "true"
        )
        deadline = time.monotonic() + PATIENCE
        while self._answered < self._opened:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no kernel for {name}:\n{self.server.log.read_text()[-3000:]}")
            self.page.wait_for_timeout(50)
        if self.page.locator("#jp-left-stack").is_visible():
            self.command("application:toggle-left-area")
        return self

    def browse(self) -> Self:
        """Open JupyterLab with its file browser and without a document."""
        self._opened, self.is_clean = self._opened + 1, False  # the next test may not expect a file browser
        self.page.goto(f"{self.server.url}/lab/workspaces/{secrets.token_hex(4)}?token={self.server.token}")
        expect(self.page.locator(".jp-DirListing-item").first).to_be_visible()
        return self

    def double_click(self, name: str) -> Self:
        """Open a file or a folder of the file browser as a person does."""
        self.page.locator(".jp-DirListing-itemName").get_by_text(name, exact=True).dblclick()
        return self

    def document(self) -> Locator:
        """Wait until the model in the current tab is drawn; return its graph."""
        tab = self.page.locator(".onnx-nb-document:visible")
        expect(tab).to_be_visible()
        return self.widget("graph", within=tab)

    def open_fresh(self, name: str) -> Self:
        """Open a copy of a notebook as it is in the repository: a test that ran before may have saved its own."""
        copy = f"{secrets.token_hex(4)}-{name}"
        shutil.copyfile(ROOT / "notebooks" / name, self.server.root / copy)
        return self.open(copy)

    @property
    def kernel(self) -> Kernel:
        """The kernel of the notebook, or of the other document that is open."""
        if self._kernel is None:
            kernel_id = self.page.evaluate(
                """() => {
                    const { currentWidget } = jupyterapp.shell;
                    return (currentWidget.sessionContext ?? currentWidget.context.sessionContext).session.kernel.id;
                }"""
            )
            self._kernel = Kernel(self.server.runtime / f"kernel-{kernel_id}.json")
        return self._kernel

    def command(self, command: str, args: dict[str, Any] | None = None) -> None:
        """Run a command of JupyterLab's palette and wait until it is done."""
        self.page.evaluate(EXECUTED, [command, args or {}, 5 * PATIENCE])

    def run_all(self) -> None:
        """Run every cell; fail with the traceback of the first one that raised."""
        self.command("notebook:run-all-cells")
        self._raise_errors()

    def run_cell(self, index: int) -> None:
        """Run one cell, given by its index in the notebook."""
        self.page.evaluate("index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }", index)
        self.command("notebook:run-cell")
        self._raise_errors()

    def run(self, text: str) -> int:
        """Run the code cell with a text; return its index."""
        self.run_cell(index := self.cell_with(text))
        return index

    def run_up_to(self, text: str) -> int:
        """Run the code cells up to the one with a text; return its index."""
        last = self.cell_with(text)
        kinds = self.page.evaluate(
            "() => jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(cell => cell.cell_type)"
        )
        for index in (index for index, kind in enumerate(kinds[: last + 1]) if kind == "code"):
            self.run_cell(index)
        return last

    def _raise_errors(self) -> None:
        outputs = self.page.evaluate(
            """() => jupyterapp.shell.currentWidget.content.model.sharedModel.cells
                .flatMap(cell => cell.cell_type === 'code' ? cell.getOutputs() : [])
                .filter(output => output.output_type === 'error').map(output => output.traceback.join('\\n'))"""
        )
        if outputs:
            raise AssertionError("a cell raised:\n" + outputs[0])

    def cell(self, index: int) -> Locator:
        """Return a cell, scrolled into view: JupyterLab renders only those near the viewport."""
        self.page.evaluate(
            "async index => { await jupyterapp.shell.currentWidget.content.scrollToItem(index, 'start'); }", index
        )
        cell = self.page.locator(f'.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell[data-windowed-list-index="{index}"]')
        cell.wait_for()
        return cell

    def cell_with(self, text: str) -> int:
        """Return the index of the first code cell whose source contains a text."""
        index: int = self.page.evaluate(
            """text => jupyterapp.shell.currentWidget.content.model.sharedModel.cells
                .findIndex(cell => cell.cell_type === 'code' && cell.source.includes(text))""",
            text,
        )
        assert index >= 0, f"no cell has {text!r}"
        return index

    def widget(self, kind: str, *, within: Locator | None = None) -> Locator:
        """Wait for the first drawn widget of that `data-widget` and return it."""
        root = (within or self.page).locator(f'.onnx-nb[data-widget="{kind}"]').first
        expect(root).to_have_attribute("data-state", re.compile("drawn|error"))
        if root.get_attribute("data-state") == "error":
            raise AssertionError(f"the {kind} widget shows an error: {root.inner_text()}")
        return root

    def screenshot(self, name: str, target: Locator | None = None) -> Path:
        """Write build/screenshots/NAME.png of one element or of the whole window, once all graphs are at rest."""
        await_rest(self.page)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        (target or self.page).screenshot(path=path)
        return path

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not NOISE.search(f"{message.text} {message.location.get('url', '')}"):
            self.errors.append(message.text)

    def _on_error(self, error: Error) -> None:
        if not NOISE.search(str(error)):
            self.errors.append(str(error))

    def _on_websocket(self, socket: WebSocket) -> None:
        if re.search(r"/api/kernels/[^/]+/channels", socket.url):
            # what the kernel before it has said may be heard late
            opened = self._opened
            socket.on("framereceived", lambda _: setattr(self, "_answered", max(self._answered, opened)))
