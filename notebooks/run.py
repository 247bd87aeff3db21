"""Run a notebook from top to bottom, then open it in JupyterLab as it stands, or write its model as a web page.

python notebooks/run.py                                   JupyterLab on 00-first-light.ipynb, everything already shown
python notebooks/run.py --html build/first-light.html     no JupyterLab: only the page with the live graph

JupyterLab shows copies of the notebooks, in a new folder under build, so that what git tracks stays as it is.
The page is written by `g.to_html`, so the notebook must leave a `ModelGraph` named `g`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import webbrowser
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_core.paths import jupyter_runtime_dir
from jupyter_server.serverapp import list_running_servers
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent


async def write_page(notebook: Path, page: Path) -> None:
    """Run the notebook in a kernel of its own and let its `g` write the page."""
    with tempfile.TemporaryDirectory() as folder:  # for what its cells write
        client = NotebookClient(
            nbformat.read(notebook, as_version=4),
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],
        )
        async with client.async_setup_kernel():
            path = f"import sys; sys.path.append({str(HERE)!r})"  # the graders of its exercises are there
            await client.async_execute_cell(nbformat.v4.new_code_cell(path), 0)
            await run_cells(client)
            await client.async_execute_cell(nbformat.v4.new_code_cell(f"g.to_html({str(page)!r})"), 0)
    print(f"wrote {page}")


def copied(notebook: Path) -> Path:
    """Copy the notebook's folder to a new one, which is kept: a person may go on working there."""
    build = HERE.parent / "build"
    build.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="demo-", dir=build)) / notebook.parent.name
    shutil.copytree(notebook.parent, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    return folder / notebook.name


def open_lab(notebook: Path) -> None:
    """Run a copy of the notebook in a kernel of JupyterLab's, save what it shows, and open it there, still alive."""
    notebook = copied(notebook)
    with jupyter_lab(notebook.parent) as (server, lab):
        session = {"path": notebook.name, "name": notebook.name, "type": "notebook", "kernel": {"name": "python3"}}
        request = urllib.request.Request(  # noqa: S310 - the server started above
            f"{lab['url']}api/sessions",
            json.dumps(session).encode(),
            {"Authorization": f"token {lab['token']}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as reply:  # noqa: S310
            kernel = json.load(reply)["kernel"]["id"]
        asyncio.run(show(notebook, Path(jupyter_runtime_dir()) / f"kernel-{kernel}.json"))
        url = f"{lab['url']}lab/tree/{notebook.name}?token={lab['token']}"
        print(f"\nJupyterLab shows {notebook.name} at\n\n    {url}\n", flush=True)
        print(f"What you change there is kept in {notebook.parent}. Stop it with Ctrl+C.", flush=True)
        if sys.platform in {"darwin", "win32"} or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
            webbrowser.open(url)
        server.wait()


async def show(notebook: Path, connection_file: Path) -> None:
    """Run the notebook in a kernel that is already there, and save it with what it shows."""
    client = NotebookClient(nbformat.read(notebook, as_version=4))
    client.kc = AsyncKernelClient(connection_file=str(connection_file))
    client.kc.load_connection_file()
    client.kc.start_channels(hb=False)  # on a busy machine a beat comes late, and nothing died
    await client.kc.wait_for_ready(timeout=300)
    try:
        await run_cells(client)
    except CellExecutionError as error:
        print(f"{notebook.name} stopped at an error, which it shows:\n{error}", file=sys.stderr)
    client.kc.stop_channels()
    # signed, so that JupyterLab shows widgets; it finds their state in the kernel, which goes on running
    nbformat.sign.NotebookNotary().sign(client.nb)
    nbformat.write(client.nb, notebook)


async def run_cells(client: NotebookClient) -> None:
    """Run every cell of the client's notebook."""
    for index, cell in enumerate(client.nb.cells):
        await client.async_execute_cell(cell, index)


@contextmanager
def jupyter_lab(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Start JupyterLab on a folder, wait until it serves, and end it afterwards."""
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.root_dir={folder}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    # not on the screen, where it would name another address before ours
    log = Path(tempfile.mkstemp(prefix="jupyterlab-", suffix=".log")[1])
    with log.open("wb") as written:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT)
    try:
        while server.poll() is None:
            # the file that tells of a server may be half written
            with suppress(json.JSONDecodeError):
                lab = next((each for each in list_running_servers() if each["pid"] == server.pid), None)
                if lab is not None:
                    break
            time.sleep(0.2)
        else:
            sys.exit(f"JupyterLab did not start. It says:\n{log.read_text()}")
        yield server, lab
    except KeyboardInterrupt:
        print("\nstopping JupyterLab")
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it waits for a kernel or a page that is still busy
            server.kill()
        log.unlink()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", nargs="?", type=Path, default=HERE / "00-first-light.ipynb")
    parser.add_argument("--html", type=Path, metavar="PATH", help="write the graph `g` as one page, open nothing")
    chosen = parser.parse_args()
    # what a script starts in its background ignores Ctrl+C, and could then be ended only by force
    signal.signal(signal.SIGINT, signal.default_int_handler)
    notebook = chosen.notebook.resolve()
    if chosen.html:
        asyncio.run(write_page(notebook, chosen.html.resolve()))
    else:
        open_lab(notebook)


if __name__ == "__main__":
    main()
