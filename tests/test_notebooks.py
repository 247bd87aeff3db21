"""Every notebook runs from top to bottom on a fresh kernel, and the demo page is made from it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_SECONDS = 60


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_in_a_minute(notebook: Path, tmp_path: Path) -> None:
    if "import torch" in notebook.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    copy = Path(shutil.copy(notebook, tmp_path))
    client = NotebookClient(
        nbformat.read(copy, as_version=4),
        timeout=5 * MOST_SECONDS,
        startup_timeout=5 * MOST_SECONDS,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    before = seconds_of_children()
    with ThreadPoolExecutor(1) as thread:  # this one may have an event loop already: the browser tests' Playwright
        thread.submit(asyncio.run, client.async_execute()).result()
    assert seconds_of_children() - before < MOST_SECONDS
    printed = "".join(
        output.get("text", "")
        for cell in client.nb.cells
        for output in cell.get("outputs", [])
        if output.get("name") == "stderr"
    )
    assert printed == ""


def seconds_of_children() -> float:
    """Return the CPU seconds of kernels that have ended, which hardly depend on other load."""
    times = os.times()
    return times.children_user + times.children_system


def test_the_demo_writes_a_page_that_asks_for_nothing(tmp_path: Path) -> None:
    page = tmp_path / "first-light.html"
    command = [sys.executable, str(ROOT / "notebooks" / "run.py"), "--html", str(page)]
    subprocess.run(command, check=True, timeout=5 * MOST_SECONDS, env=os.environ | {"JUPYTER_PLATFORM_DIRS": "1"})
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert re.findall(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?!data:)[^"'\s>]+""", text) == []
