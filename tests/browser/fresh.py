"""Environments with the wheel of this checkout and nothing else of it, and servers that run there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.jupyter import PATIENCE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


def environment(home: Path, *packages: str) -> Path:
    """Return the Python of an environment into which pip put the wheel and some packages."""
    python = home / "venv" / "bin" / "python"
    shutil.rmtree(home / "dist", ignore_errors=True)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home / "dist")]
    subprocess.run(build, cwd=ROOT, check=True)
    (wheel,) = (home / "dist").glob("*.whl")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home / "venv")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, str(wheel), *packages], check=True, env=clean)
    subprocess.run([*install, "--force-reinstall", "--no-deps", str(wheel)], check=True, env=clean)
    return python


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def served(line: list[str], folder: Path, port: int) -> Iterator[None]:
    """Run a server in a folder, which is its home as well, from when it can be reached at its port."""
    home = {name: str(folder) for name in ("HOME", "IPYTHONDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = folder / "log"
    with said.open("wb") as log:
        server = subprocess.Popen(line, cwd=folder, env=clean | home, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline, said.read_text()
                assert server.poll() is None, said.read_text()
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait()
