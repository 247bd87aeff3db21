"""Write the links in the first cell of each notebook: to its neighbors, to Binder and to Colab.

    python -m notebooks.navigation            writes them
    python -m notebooks.navigation --check    names the notebooks that it would change, and ends with 1 if there are any

The course is the notebooks of this folder in the order of their names, after `index.ipynb`. The repository's address
is set in `[tool.onnx-nb]` of pyproject.toml; Binder and Colab are left out while it is empty.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nbformat

HERE: Final = Path(__file__).resolve().parent
LINKS: Final = re.compile(r"(?:!?\[(?:!\[[^]]*\]\([^)]*\)|[^]]*)\]\([^)]*\)(?: · | |$))+")
"""A line that holds nothing but links."""
BRANCH: Final = "main"
COLAB_CELL: Final = "install-on-colab"
COLAB: Final = """\
import sys

if "google.colab" in sys.modules:  # installs the library on Colab; elsewhere this cell does nothing
    %pip install --quiet "onnx-nb[torch] @ git+{repository}"
    !git clone --quiet --depth 1 {repository} course && cp -r course/notebooks/[!0-9]* .
    from google.colab import output

    output.enable_custom_widget_manager()"""


@dataclass(frozen=True)
class Stop:
    """A notebook of the course and what its first cell says about it."""

    path: Path
    number: str
    """"06b"; empty for the index."""
    title: str
    """Without the number."""
    minutes: int | None
    """What a reader needs."""

    @property
    def name(self) -> str:
        """What links to the notebook are called."""
        return f"{self.number} {self.title}" if self.number else "Map of the course"


def course(folder: Path = HERE) -> list[Stop]:
    """Return the notebooks in the order in which they are read; translations (`index.zh.ipynb`) are not among them."""
    paths = [path for path in folder.glob("*.ipynb") if "." not in path.stem]
    return [stop_of(path) for path in sorted(paths, key=lambda path: (path.stem != "index", path.stem))]


def stop_of(path: Path) -> Stop:
    """Read what the first cell says."""
    text = nbformat.read(path, as_version=4).cells[0].source
    heading = re.match(r"# (.+)", text)
    if heading is None:
        raise SystemExit(f"{path.name}: the first cell does not begin with a title. Write '# {path.stem[:2]} Title'.")
    number = found[1] if (found := re.match(r"(\d+\w?)-", path.stem)) else ""
    time = re.search(r"\*\*Time\*\* (\d+) minutes", text)
    return Stop(path, number, heading[1].removeprefix(number).strip(), int(time[1]) if time else None)


def repository() -> str:
    """Return the address of the repository on GitHub; empty while it has none."""
    with (HERE.parent / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["tool"]["onnx-nb"]["repository"]).rstrip("/")


def links(stops: list[Stop], place: int) -> str:
    """Return the line that leads to the notebooks before and after one, and to the map."""
    before, after = stops[max(place - 1, 0) : place], stops[place + 1 : place + 2]
    own = stops[place].path
    map_of_all = [stop for stop in stops[:1] if stop.path.stem == "index" and stop not in (*before, stops[place])]
    translated = [f"zh/{own.name}"] if translation_of(own).exists() else []
    translated += [f"{own.stem}.zh.ipynb"] if own.with_suffix(".zh.ipynb").exists() else []
    return " · ".join(
        (
            *(f"[← {stop.name}]({stop.path.name})" for stop in before),
            *(f"[{stop.name}]({stop.path.name})" for stop in map_of_all),
            *(f"[{stop.name} →]({stop.path.name})" for stop in after),
            *(f"[简体中文]({path})" for path in translated),
        )
    )


def badges(name: str, address: str) -> str:
    """Return the line with links that open a notebook on Binder and on Colab."""
    place = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", address)
    if place is None:
        raise SystemExit(f"repository = {address!r}: Binder and Colab open https://github.com/OWNER/NAME only.")
    binder = f"https://mybinder.org/v2/gh/{place[1]}/{BRANCH}?urlpath=lab/tree/notebooks/{name}"
    colab = f"https://colab.research.google.com/github/{place[1]}/blob/{BRANCH}/notebooks/{name}"
    return (
        f"[![Open in Binder](https://mybinder.org/badge_logo.svg)]({binder}) "
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
    )


def navigated(notebook: Any, name: str, line: str, address: str) -> Any:
    """Replace the links at the end of the first cell, and the cell that installs the library on Colab."""
    first, *others = notebook.cells
    text = first.source.rstrip().split("\n")
    while text and (not text[-1].strip() or LINKS.fullmatch(text[-1])):
        text.pop()
    first.source = "\n".join([*text, "", *([badges(name, address), ""] if address else []), line])
    others = [cell for cell in others if cell.id != COLAB_CELL]
    if address:
        look = {"jupyter": {"source_hidden": True}, "tags": ["colab"]}
        source = COLAB.format(repository=address)
        others.insert(0, nbformat.v4.new_code_cell(source, id=COLAB_CELL, metadata=look))
    notebook.cells = [first, *others]
    return notebook


def written(folder: Path, address: str) -> dict[Path, str]:
    """Return the text of each notebook with its links as they should be."""
    stops = course(folder)
    lines = {stop.path: links(stops, place) for place, stop in enumerate(stops)}
    lines |= dict.fromkeys(folder.glob("index.zh.ipynb"), "[English](index.ipynb)")
    return {
        path: nbformat.writes(navigated(nbformat.read(path, as_version=4), path.name, own, address)) + "\n"
        for path, own in lines.items()
    }


def translation_links(path: Path) -> str:
    """Return the line that leads from a lesson in Chinese, in the folder zh, to its neighbors and to English."""
    paths = [stop.path for stop in course(path.parent.parent) if translation_of(stop.path).exists()]
    place = [one.name for one in paths].index(path.name)
    before, after = (
        [(re.search(r"(?m)^# (.+)", translation_of(one).read_text(encoding="utf-8")), one.name) for one in those]
        for those in (paths[max(place - 1, 0) : place], paths[place + 1 : place + 2])
    )
    return " · ".join(
        (
            *(f"[← {title[1]}]({name})" for title, name in before if title),
            "[课程地图](../index.zh.ipynb)",
            *(f"[{title[1]} →]({name})" for title, name in after if title),
            f"[English](../{path.name})",
        )
    )


def translation_of(path: Path) -> Path:
    """Return the file with the texts of a notebook in Chinese."""
    return path.parent / "zh" / f"{path.stem}.md"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--folder", type=Path, default=HERE, help=argparse.SUPPRESS)
    parser.add_argument("--repository", default=repository(), help="instead of the address in pyproject.toml")
    chosen = parser.parse_args(arguments)
    texts = written(chosen.folder, chosen.repository.rstrip("/"))
    changed = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        if not chosen.check:
            path.write_text(texts[path], encoding="utf-8")
        print(f"{path.name}: {'the links are old' if chosen.check else 'written'}")
    return 1 if chosen.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
