"""The page of the package index: hatchling asks here for its text and links.

The repository's address is `repository` of `[tool.onnx-nb]` in pyproject.toml and nowhere else. While it is empty, the
page has no links into the repository and no pictures, since the index has none of the files that they name.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")
"""A link or a picture, in Markdown, that leads to a file of the repository."""


def repository(root: Path) -> str:
    """Return the address of the repository; empty while it has none."""
    with (root / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["tool"]["onnx-nb"]["repository"]).rstrip("/")


def links(address: str) -> dict[str, str]:
    """Return what the index lists beside the text."""
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/blob/main/docs/index.md",
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }


def page(text: str, address: str, tag: str) -> str:
    """Return the README with absolute links to the files of one release; without an address, with their texts alone."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not address:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(absolute, text))


class Hook(MetadataHookInterface):
    """Fills in `readme` and `urls`, which pyproject.toml leaves open."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata of a wheel or an sdist."""
        root = Path(self.root)
        address = repository(root)
        text = page((root / "README.md").read_text(encoding="utf-8"), address, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = links(address)
