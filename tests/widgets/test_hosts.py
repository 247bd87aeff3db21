"""The private parts of other packages that the widgets use are there, and nothing else of ours uses any."""

from __future__ import annotations

import functools
import importlib
import re
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "onnx_nb"
PRIVATE = tomllib.loads((PACKAGE / "widgets" / "private_parts.toml").read_text("utf-8"))


@pytest.mark.parametrize("part", PRIVATE)
def test_the_installed_version_has_it(part: str) -> None:
    module, _, path = part.partition(":")
    loaded = importlib.import_module(module)
    assert functools.reduce(getattr, path.split("."), loaded) is not None, PRIVATE[part]["without"]


def test_only_the_drawer_uses_them() -> None:
    names = "|".join(part.rpartition(".")[2] for part in PRIVATE)
    use = re.compile(rf"\.({names})\b|deletedCells|cellId|running_in_notebook|mimebundle_formatter\.for_type\b")
    used = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if use.search(path.read_text())}
    assert used == {"widgets/_hosts.py"}
