"""What a release needs besides the code.

python .ci/release.py check [--tag v0.1.0]       names what is unset or disagrees; ends with 1 if anything is
python .ci/release.py lowest                     prints the lowest version of each requirement, as constraints of pip
python .ci/release.py recipe dist/*.tar.gz       prints the recipe of conda-forge for that file
python .ci/release.py notes                      prints what the changelog says of this version
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def settings(root: Path = ROOT) -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def lacks(root: Path = ROOT, tag: str = "") -> list[str]:
    """Return a sentence for each thing that a release lacks."""
    setting = settings(root)
    version, address = setting["project"]["version"], setting["tool"]["onnx-nb"]["repository"]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    described = json.loads((root / "onnx_nb/static/labextension/package.json").read_text(encoding="utf-8"))
    stated = {
        "the tag": tag.removeprefix("v") or version,
        "__version__ of onnx_nb/__init__.py": _found(r'^__version__ = "(.+)"', root / "onnx_nb/__init__.py"),
        "version of CITATION.cff": _found(r"^version: (.+)", root / "CITATION.cff"),
        "version of conda/recipe.yaml": _found(r'^  version: "(.+)"', root / "conda/recipe.yaml"),
        "JupyterLab's extension (`make bundle` writes it)": described["version"],
    }
    found = [
        f"{where} is {said!r}, pyproject.toml says {version}." for where, said in stated.items() if said != version
    ]
    if not address:
        found.append(
            "repository in [tool.onnx-nb] of pyproject.toml is empty: the package page has no links and no picture."
        )
    elif f"repository-code: {address}" not in citation:
        found.append(f"CITATION.cff has no line 'repository-code: {address}'.")
    if "The authors of onnx_nb" in citation:
        found.append("CITATION.cff names no author.")
    if "authors" not in setting["project"]:
        found.append("authors in [project] of pyproject.toml are missing.")
    if not notes(root):
        found.append(f"CHANGELOG.md has no heading '## {version}'.")
    if "recipe-maintainers: []" in (root / "conda/recipe.yaml").read_text(encoding="utf-8"):
        found.append("conda/recipe.yaml names no maintainer.")
    return found


def _found(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "missing"


def lowest(root: Path = ROOT) -> list[str]:
    """Return each requirement at its lowest version."""
    return [
        requirement.partition(";")[0].strip().replace(">=", "==")
        for requirement in settings(root)["project"]["dependencies"]
    ]


def recipe(sdist: Path, root: Path = ROOT) -> str:
    """Return conda-forge's recipe of a release."""
    text = (root / "conda/recipe.yaml").read_text(encoding="utf-8")
    address = settings(root)["tool"]["onnx-nb"]["repository"]
    about = f"homepage: {address}\n  repository: {address}" if address else "homepage: UNSET"
    checksum = hashlib.sha256(sdist.read_bytes()).hexdigest()
    return (
        text.partition("\n")[2]
        .partition("\n")[2]
        .replace("sha256: UNSET", f"sha256: {checksum}")
        .replace("homepage: UNSET", about)
    )


def notes(root: Path = ROOT) -> str:
    """Return what the changelog says of this version; empty if it has no such heading."""
    heading = re.escape(settings(root)["project"]["version"])
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\b.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def main(words: list[str] | None = None) -> int:
    """Print what was asked for; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check").add_argument("--tag", default="")
    verbs.add_parser("lowest")
    verbs.add_parser("recipe").add_argument("sdist", type=Path)
    verbs.add_parser("notes")
    chosen = parser.parse_args(words)
    if chosen.verb == "check":
        found = lacks(tag=chosen.tag)
        print(*found or ["Nothing is unset."], sep="\n")
        return int(bool(found))
    print(
        recipe(chosen.sdist) if chosen.verb == "recipe" else notes() if chosen.verb == "notes" else "\n".join(lowest())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
