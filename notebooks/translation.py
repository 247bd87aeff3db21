"""Write `index.zh.ipynb`: the index in Chinese, with the headings and boxes of every notebook.

    python -m notebooks.translation            writes it, and adds to zh.json what has no translation yet
    python -m notebooks.translation --check    names what is missing or old, and ends with 1 if there is anything

`zh.json` maps each English block (a heading, paragraph, item, row or box, on one line) to its translation. A block that
changes in a notebook is missing there until somebody translates it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import nbformat

from notebooks.navigation import HERE, LINKS, course, navigated, repository, translation_links

WORDS: Final = "zh.json"
TARGET: Final = "index.zh.ipynb"
HEADING: Final = re.compile(r"#{1,6} ")
NEW_BLOCK: Final = re.compile(r"#{1,6} |[-*] |\d+\. |\||> |<")
OUTLINE: Final = "## What each notebook teaches"


def blocks(text: str) -> Iterator[str]:
    """Yield headings, paragraphs, items of lists, rows of tables and boxes, each on one line; code is left out."""
    text = re.sub(r"(?ms)^```.*?^```\n?", "", text)
    for empty, lines in groupby(text.split("\n"), lambda line: line.strip() in ("", ">")):
        if empty:
            continue
        block = ""
        for line in lines:
            in_box = line.startswith("> ") and not line.startswith("> |") and block.startswith("> ")
            if block and (not NEW_BLOCK.match(line) or in_box):
                block += " " + line.removeprefix("> ").strip()
                continue
            if block:
                yield block
            block = line.strip()
        yield block


def is_wording(block: str) -> bool:
    """Return whether a block has words to translate, unlike the rule of a table."""
    return bool(re.search(r"[A-Za-z]{2}", block))


def outline(cells: list[Any]) -> list[str]:
    """Return the headings and boxes of a notebook."""
    found = [block for cell in cells if cell.cell_type == "markdown" for block in blocks(cell.source)]
    return [block for block in found if HEADING.match(block) or block.startswith("> ")]


def translated(folder: Path, words: dict[str, str]) -> tuple[Any, list[str]]:
    """Return the notebook in Chinese, and the blocks that it needs in the order of their appearance."""
    index = nbformat.read(folder / "index.ipynb", as_version=4)
    needed: dict[str, None] = {}

    def put(block: str) -> str:
        if not is_wording(block):
            return block
        needed[block] = None
        return words.get(block) or block

    for cell in index.cells:
        if cell.cell_type == "markdown":
            cell.source = joined([put(block) for block in blocks(cell.source) if not LINKS.fullmatch(block)])
    parts = [put(OUTLINE)]
    for stop in course(folder)[1:]:
        title, *others = outline(nbformat.read(stop.path, as_version=4).cells)
        parts.append(f"### [{put(title).removeprefix('# ')}]({stop.path.name})")
        parts += [f"**{put(each).lstrip('# ')}**" if HEADING.match(each) else put(each) for each in others]
    index.cells.append(nbformat.v4.new_markdown_cell("\n\n".join(parts), id="index-outline"))
    path = folder / TARGET
    return navigated(index, path.name, translation_links(path), repository()), list(needed)


def joined(lines: list[str]) -> str:
    """Join blocks with empty lines, except between items of one list or rows of one table."""
    text = ""
    for before, line in zip(["", *lines], lines, strict=False):
        together = [re.match(r"(?:> )?\||[-*] |\d+\. ", each) for each in (before, line)]
        text += ("\n" if all(together) else "\n\n") + line
    return text.strip()


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--folder", type=Path, default=HERE, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    store, target = chosen.folder / WORDS, chosen.folder / TARGET
    words: dict[str, str] = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    notebook, needed = translated(chosen.folder, words)
    missing = [block for block in needed if not words.get(block)]
    text = nbformat.writes(notebook) + "\n"
    if not chosen.check:
        kept = {block: words.get(block, "") for block in needed}
        store.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        target.write_text(text, encoding="utf-8")
    for block in missing:
        print(f"not translated: {block}")
    old = chosen.check and target.read_text(encoding="utf-8") != text
    if old:
        print(f"{TARGET} is old: run: python -m notebooks.translation")
    return 1 if missing or old else 0


if __name__ == "__main__":
    sys.exit(main())
