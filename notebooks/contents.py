"""Write what the index derives from the lessons: its table, the map, the ways through the course, and the glossary.

    python -m notebooks.contents            writes it, then run: python -m notebooks.translation
    python -m notebooks.contents --check    names the cells that it would change, and ends with 1 if there are any

A lesson says in its first cell how long it takes and which lessons its reader should know. A box of a lesson defines
terms: ``> **term**: what it is. · **another term**: what that is.`` The glossary has the first sentence of the first
box of each term, with its Chinese name from the translation of the box in zh.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nbformat

from notebooks.navigation import HERE, Stop, course
from notebooks.translation import WORDS, all_words, blocks

WAYS: Final = {
    "Deploy something today": (
        "00",
        "01",
        "01a",
        "02",
        "02a",
        "02b",
        "03",
        "03a",
        "03b",
        "03c",
        "03d",
        "07",
        "07b",
        "10",
        "10b",
        "11",
        "11b",
        "11c",
    ),
    "Find what is wrong": (
        "00",
        "01",
        "01a",
        "02",
        "02a",
        "04",
        "04b",
        "05",
        "05b",
        "06",
        "06a",
        "06b",
        "06c",
        "06d",
        "06e",
        "06f",
        "12",
        "12b",
    ),
    "Understand the format": ("01", "01a", "01b", "08", "08b"),
}
"""The ways through the course, each a list of lessons."""
DEFINITION: Final = re.compile(r"((?:\*\*[^*`.]+\*\*(?: \([^)]*\))?(?: and )?)+): (.+)")
NEW_LINE: Final = "\n"
CHINESE: Final = re.compile(r"[\u4e00-\u9fff]")


@dataclass(frozen=True)
class Term:
    """A word that a box of a lesson defines."""

    name: str
    meaning: str
    """The first sentence about it."""
    box: str
    """All of the box, on one line."""
    stop: Stop

    def row(self, words: Mapping[str, str]) -> str:
        """Return its row of the glossary; its Chinese name is empty as long as its box has no translation."""
        chinese = _chinese(self, words)[0]
        return f"| {self.name} | {chinese} | {self.meaning} | [{self.stop.name}]({self.stop.path.name}) |"

    def chinese_row(self, words: Mapping[str, str]) -> str:
        """Return its row of the Chinese glossary; empty as long as its box or its notebook has no translation."""
        chinese, meaning = _chinese(self, words)
        title = words.get(f"# {self.stop.name}", "").removeprefix("# ")
        return (
            f"| {self.name} | {chinese} | {meaning} | [{title}]({self.stop.path.name}) |" if meaning and title else ""
        )


def requirements(stop: Stop) -> list[str]:
    """Return the numbers of the lessons that a lesson says one should know."""
    text = nbformat.read(stop.path, as_version=4).cells[0].source
    known = re.search(r"\*\*You should know\*\* (.*)", text)
    return re.findall(r"\b\d\d[a-z]?\b", re.sub(r"\]\([^)]*\)", "]", known[1])) if known else []


def terms(stops: list[Stop]) -> list[Term]:
    """Return the terms of all lessons in the order of the alphabet, each where it is defined first."""
    found: dict[str, Term] = {}
    for stop in stops:
        for box in boxes(stop):
            for names, meaning in definitions(box):
                for name in names:
                    singular = name.removesuffix("s")
                    if name not in found and singular not in found:
                        found[name] = Term(name, meaning, box, stop)
    return sorted(found.values(), key=lambda term: term.name.lower())


def boxes(stop: Stop) -> Iterator[str]:
    """Yield the boxes of a lesson, each on one line."""
    for cell in nbformat.read(stop.path, as_version=4).cells:
        if cell.cell_type == "markdown":
            yield from (block for block in blocks(cell.source) if block.startswith("> **"))


def definitions(box: str) -> Iterator[tuple[list[str], str]]:
    """Yield what a box defines: the terms and the first sentence about them."""
    for part in re.split(r" ?· ?(?=\*\*)", box.removeprefix("> ")):
        if found := DEFINITION.match(part):
            sentence = re.split(r"(?<=[.])\s|;\s", found[2].strip())[0]
            yield re.findall(r"\*\*(.+?)\*\*", found[1]), sentence.rstrip(".")


def _chinese(term: Term, words: Mapping[str, str]) -> tuple[str, str]:
    """Return the Chinese name of a term and what it means, both from the translation of its box."""
    for part in re.split(r" ?· ?(?=\*\*)", words.get(term.box, "").removeprefix("> ")):
        head, _, rest = part.partition("：")
        for name, note in re.findall(r"\*\*(.+?)\*\*(?:（(.+?)）)?", head):
            if term.name in (name, note):
                chosen = [each for each in f"{name}，{note}".split("，") if CHINESE.search(each)]
                return "".join(chosen[:1]), re.split(r"[。；]", rest)[0]
    return "", ""


def written(index: Any, stops: list[Stop], words: Mapping[str, str]) -> None:
    """Write the cells of the index that are derived from the lessons."""
    for cell in index.cells:
        if "| notebook | about | time |" in cell.source:
            about = {row[1]: row[2] for row in re.finditer(r"(?m)^\| \[.*?\]\((.*?)\) \| (.*?) \|", cell.source)}
            texts = [about.get(stop.path.name, "") for stop in stops]
            rows = [
                f"| [{stop.name}]({stop.path.name}) | {text} | {stop.minutes}\N{NO-BREAK SPACE}min |"
                for stop, text in zip(stops, texts, strict=True)
            ]
            cell.source = _with_rows(cell.source, "| notebook | about | time |\n|---|---|---|\n", rows)
        elif cell.source.startswith("COURSE = ["):
            lines = [f'    ("{stop.number}", "{stop.title}", {stop.minutes}),' for stop in stops]
            ways = [
                f"    {json.dumps(name.replace(' ', NEW_LINE, 1))}: {json.dumps(numbers)},"
                for name, numbers in WAYS.items()
            ]
            source = "\n".join(["COURSE = [", *lines, "]", "WAYS = {", *ways, "}"])
            cell.source = source + cell.source[cell.source.index("\n}\n") + 2 :]
        elif cell.source.startswith("**Three ways through**"):
            for name, numbers in WAYS.items():
                paths = {stop.number: stop.path.name for stop in stops}
                line = " → ".join(f"[{number}]({paths[number]})" for number in numbers)
                cell.source = re.sub(rf"(?m)^(- \*\*{name}\*\*.*?: )\[.*$", rf"\1{line}", cell.source)
        elif cell.source.startswith("## Glossary"):
            heading = "| term | 中文 | meaning | defined in |\n|---|---|---|---|\n"
            cell.source = _with_rows(cell.source, heading, [term.row(words) for term in terms(stops)])


def _with_rows(text: str, heading: str, rows: list[str]) -> str:
    before, _, behind = text.partition(heading)
    rest = re.sub(r"(?:\|.*(?:\n|$))+", "", behind, count=1)
    return (before + heading + "\n".join(rows) + (f"\n{rest}" if rest else "")).rstrip("\n")


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--folder", type=Path, default=HERE, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    target, store = chosen.folder / "index.ipynb", chosen.folder / WORDS
    index, stops = nbformat.read(target, as_version=4), course(chosen.folder)[1:]
    words = all_words(chosen.folder)
    before = [cell.source for cell in index.cells]
    written(index, stops, words)
    rows = {term.row(words): term.chinese_row(words) for term in terms(stops)}
    old = [cell.id for cell, source in zip(index.cells, before, strict=True) if cell.source != source]
    old += [WORDS] if any(words.get(row) != chinese for row, chinese in rows.items()) else []
    for place in old:
        print(f"{place}: {'old, run: python -m notebooks.contents' if chosen.check else 'written'}")
    if old and not chosen.check:
        target.write_text(nbformat.writes(index) + "\n", encoding="utf-8")
        own = json.loads(store.read_text(encoding="utf-8"))
        store.write_text(json.dumps({**own, **rows}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 1 if chosen.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
