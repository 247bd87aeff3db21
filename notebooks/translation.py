"""Write the course in Chinese: the index, with every heading and box (`index.zh.ipynb`), and lessons (`zh/NN-….ipynb`).

    python -m notebooks.translation                writes them, and names what is not translated, or is old
    python -m notebooks.translation --check        writes nothing, and ends with 1 if there is anything
    python -m notebooks.translation --accept 03b   takes what zh/03b-….md says as the translation of the lesson as it is

`zh.json` maps each English block of the index (a heading, paragraph, item, row or box, on one line) to its translation.
`zh/NN-….md` has the text cells of a lesson: each begins with the cell's name and a number for the English text that was
translated. Code stays as it is: ``⟦1⟧`` stands for the first fenced block of Python in the cell, and code cells and
outputs are those of the English lesson; a cell in front of them goes to its folder, where its modules and files are. A
text that changes in a lesson is old here until somebody has looked at its translation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import nbformat

from notebooks.navigation import HERE, LINKS, Stop, course, navigated, repository, translation_links, translation_of

WORDS: Final = "zh.json"
TARGET: Final = "index.zh.ipynb"
HEADING: Final = re.compile(r"#{1,6} ")
NEW_BLOCK: Final = re.compile(r"#{1,6} |[-*] |\d+\. |\||> |<")
OUTLINE: Final = "## What each notebook teaches"
FENCE: Final = re.compile(r"(?ms)^```python\n.*?^```$")
MARK: Final = re.compile(r"(?m)^<!-- (\S+) ([0-9a-f]{8}) -->\n")
"""The line above each translated cell: its name, and a number for its English text."""
CHINESE: Final = re.compile(r"[\u4e00-\u9fff]")
RELATIVE: Final = re.compile(r"\]\((?!\w+:|[#/])([^()#\s]+)((?:#[^()\s]*)?\))")
"""The target of a link to a file."""
FOLDER_CELL: Final = "folder-of-the-course"
FOLDER: Final = """\
import os

if os.path.basename(os.getcwd()) == "zh":  # 课程的模块和文件在上一级文件夹
    os.chdir("..")"""
NEW: Final = "00000000"
"""The number of a text that nobody has translated."""


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


def english(cell: Any) -> str:
    """Return the text of a cell without the links to other notebooks, which are written by `notebooks.navigation`."""
    return "\n".join(line for line in cell.source.split("\n") if not LINKS.fullmatch(line)).rstrip()


def number(text: str) -> str:
    """Return a number for an English text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def template(text: str) -> str:
    """Return a text with marks in the place of its fenced Python."""
    places = iter(range(1, 100))
    return FENCE.sub(lambda _: f"⟦{next(places)}⟧", text)


def texts_of(stop: Stop) -> dict[str, tuple[str, str]]:
    """Return the number and the translation of each text cell of a lesson, by the cell's name."""
    path = translation_of(stop.path)
    _, *parts = MARK.split(path.read_text(encoding="utf-8")) if path.exists() else [""]
    return {name: (mark, text.strip("\n")) for name, mark, text in zip(*[iter(parts)] * 3, strict=True)}


def with_code(text: str, source: str) -> str:
    """Put the fenced Python of the English text in the place of its marks."""
    for place, code in enumerate(FENCE.findall(source), 1):
        text = text.replace(f"⟦{place}⟧", code)
    return text


def complaints(stop: Stop) -> list[str]:
    """Return what the translation of a lesson lacks: texts that are new, or that changed since they were translated."""
    texts, problems = texts_of(stop), list[str]()
    cells = {cell.id: cell for cell in nbformat.read(stop.path, as_version=4).cells if cell.cell_type == "markdown"}
    for name, cell in cells.items():
        mark, text = texts.get(name, (NEW, ""))
        source = english(cell)
        if mark == NEW:
            problems.append(f"not translated: {name}")
        elif mark != number(source):
            problems.append(f"changed since it was translated: {name}")
        elif [template(source).count(f"⟦{place}⟧") != text.count(f"⟦{place}⟧") for place in range(1, 20)].count(True):
            problems.append(f"lacks a block of code, or has one twice: {name}")
        elif len(outline_of(source)) != len(outline_of(text)):
            problems.append(f"has other headings or boxes: {name}")
    problems += [f"no such cell: {name}" for name in texts if name not in cells]
    return [f"{translation_of(stop.path).name}: {problem}" for problem in problems]


def lesson(stop: Stop) -> Any:
    """Return a lesson in Chinese."""
    notebook, texts = nbformat.read(stop.path, as_version=4), texts_of(stop)

    def target(match: re.Match[str]) -> str:
        path, rest = match.groups()
        if path == "index.ipynb":
            return f"](../index.zh.ipynb{rest}"
        return match[0] if translation_of(stop.path.parent / path).exists() else f"](../{path}{rest}"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_code(RELATIVE.sub(target, texts[cell.id][1]), cell.source)
    look = {"jupyter": {"source_hidden": True}}
    notebook.cells.insert(1, nbformat.v4.new_code_cell(FOLDER, id=FOLDER_CELL, metadata=look))
    notebook.metadata.pop("onnx_nb_run", None)
    return navigated(notebook, f"zh/{stop.path.name}", translation_links(chinese(stop)), repository())


def chinese(stop: Stop) -> Path:
    """Return the path of a lesson in Chinese."""
    return stop.path.parent / "zh" / stop.path.name


def all_words(folder: Path) -> dict[str, str]:
    """Return the translation of each block of the index, and of each heading and box of the lessons."""
    store = folder / WORDS
    words: dict[str, str] = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    for stop in course(folder)[1:]:
        texts = texts_of(stop)
        for cell in nbformat.read(stop.path, as_version=4).cells:
            if cell.id in texts and texts[cell.id][0] != NEW:
                words |= dict(zip(outline_of(cell.source), outline_of(texts[cell.id][1]), strict=False))
    return words


def outline_of(text: str) -> list[str]:
    """Return the headings and boxes of a text."""
    return [block for block in blocks(text) if HEADING.match(block) or block.startswith("> ")]


def translated(folder: Path, words: dict[str, str]) -> tuple[Any, list[str], list[str]]:
    """Return the index in Chinese, the blocks that it needs in the order of their appearance, and which are its own."""
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
    own = list(needed)
    for stop in course(folder)[1:]:
        cells = nbformat.read(stop.path, as_version=4).cells
        title, *others = [block for cell in cells if cell.cell_type == "markdown" for block in outline_of(cell.source)]
        own += [] if translation_of(stop.path).exists() else [title, *others]
        link = f"zh/{stop.path.name}" if translation_of(stop.path).exists() else stop.path.name
        parts.append(f"### [{put(title).removeprefix('# ')}]({link})")
        parts += [f"**{put(each).lstrip('# ')}**" if HEADING.match(each) else put(each) for each in others]
    index.cells.append(nbformat.v4.new_markdown_cell("\n\n".join(parts), id="index-outline"))
    path = folder / TARGET
    return navigated(index, path.name, "[English](index.ipynb)", repository()), list(needed), own


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
    parser.add_argument("--accept", metavar="LESSON", help="take the translation of this lesson as that of its text")
    parser.add_argument("--folder", type=Path, default=HERE, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.folder
    for stop in course(folder)[1:]:
        if chosen.accept == stop.number:
            accept(stop)
    words = all_words(folder)
    index, needed, own = translated(folder, words)
    missing = [f"not translated: {block}" for block in needed if not words.get(block)]
    texts = {folder / TARGET: nbformat.writes(index) + "\n"}
    stops = [stop for stop in course(folder)[1:] if translation_of(stop.path).exists()]
    for stop in stops:
        problems = complaints(stop)
        missing += problems
        if not problems:
            texts[chinese(stop)] = nbformat.writes(lesson(stop)) + "\n"
    old = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if not chosen.check:
        kept = {block: words.get(block, "") for block in own if is_wording(block)}
        store = json.dumps(kept, ensure_ascii=False, indent=1) + "\n"
        (folder / WORDS).write_text(store, encoding="utf-8")
        for path in old:
            path.write_text(texts[path], encoding="utf-8")
    for problem in missing:
        print(problem)
    for path in old if chosen.check else ():
        print(f"{path.name} is old: run: python -m notebooks.translation")
    return 1 if missing or (old and chosen.check) else 0


def accept(stop: Stop) -> None:
    """Write the numbers of the English texts above the translations of a lesson, and what has none yet as it is."""
    texts, lines = texts_of(stop), list[str]()
    for cell in nbformat.read(stop.path, as_version=4).cells:
        if cell.cell_type == "markdown":
            source = english(cell)
            _, text = texts.get(cell.id, (NEW, template(source)))
            mark = number(source) if CHINESE.search(text) or not is_wording(FENCE.sub("", source)) else NEW
            lines += [f"<!-- {cell.id} {mark} -->", text, ""]
    translation_of(stop.path).parent.mkdir(exist_ok=True)
    translation_of(stop.path).write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
