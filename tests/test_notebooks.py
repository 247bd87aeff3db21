"""The demo makes a page of the first notebook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_demo_writes_a_page_that_asks_for_nothing(tmp_path: Path) -> None:
    page = tmp_path / "first-light.html"
    command = [sys.executable, str(ROOT / "notebooks" / "run.py"), "--html", str(page)]
    subprocess.run(command, check=True, timeout=300, env=os.environ | {"JUPYTER_PLATFORM_DIRS": "1"})
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert re.findall(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?!data:)[^"'\s>]+""", text) == []
