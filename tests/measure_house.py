"""The size and the rules of the house, counted: ``python -m tests.measure_house [CHECKOUT …]``.

Prints one column for each checkout (this one if none is named): lines by folder, lines of code, names that are no
nouns, and how often a rule of CONTRIBUTING.md is broken. Then names each place in the last checkout that breaks one.
``tests/house_budget.toml`` has the lines that each folder may have; `tests/test_house.py` holds the house to both.
"""

from __future__ import annotations

import ast
import io
import math
import os
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

LONGEST_FILE: Final = 700
"""Lines of a source file."""
LONGEST_FUNCTION: Final = 120
"""Lines of a function, without its docstring."""
BANNED: Final = re.compile(
    r"(?<![a-z])(frame|group|chunk|answer|cuts?|kept|told|alike|tones?|voice|beside|alone)(?![a-z])", re.IGNORECASE
)
"""Words of no file, class or public function: what they meant has a name of the field."""
PARTICIPLES: Final = frozenset(
    re.findall(
        r"\w+",
        """begun broken built chosen done drawn driven fallen found given gone grown held hidden kept known lost
        made meant met seen sent shown spent taken thrown told worn written""",
    )
)
"""Irregular participles; every other word on -ed is one, apart from `NOUNS`."""
NOUNS: Final = frozenset(("bed", "embed", "feed", "need", "seed", "speed"))
"""Words on -ed that name a thing."""
PRONOUNS: Final = frozenset(("each", "mine", "ours", "own", "theirs", "yours"))
"""Words that stand for a thing instead of naming it."""
NAME_IN_TYPESCRIPT: Final = re.compile(
    r"\b(?:const|let|function|class|interface|type|enum)\s+(\w+)"  # declarations
    r"|[(,]\s*(?:readonly\s+)?(\w+)\??:(?!:)"  # parameters with a type
    r"|(?<![\w.])(\w+)\s*=>"  # the only parameter of an arrow
    r"|\(\(?(\w+)(?:,\s*(\w+))?(?:,\s*(\w+))?\)\s*=>"  # its parameters without types
    r"|^\s+(?:readonly\s+|static\s+|private\s+)*#?(\w+)\??:\s"  # fields
)
"""A name that a line of TypeScript binds; names inside of a pattern are found by `PATTERN`."""
PATTERN: Final = re.compile(r"(?s)(?:const|let)\s*[\[{]([^;]*?)[\]}]\s*(?:=(?![=>])|of\b)")
"""Names that one pattern of TypeScript binds."""
EXEMPT: Final = re.compile(r"to_frame|data_?frame|GroupNorm|GroupQuery|__\w+__", re.IGNORECASE)


class Function(NamedTuple):
    """A function and where it begins."""

    path: Path
    line: int
    name: str
    lines: int


@dataclass
class House:
    """What was counted in one checkout."""

    lines: dict[str, int] = field(default_factory=dict)
    """Lines by folder."""
    code: int = 0
    """Lines of Python that are neither blank nor comment, docstring or import."""
    names: dict[str, Counter[str]] = field(default_factory=dict)
    """How often each name is bound, in "Python" and in "TypeScript"."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    """Places of the classes of Python, by their names."""
    broken: dict[str, list[str]] = field(default_factory=dict)
    """Places that break a rule, by rule."""

    @property
    def python(self) -> int:
        """Lines of Python."""
        return sum(count for folder, count in self.lines.items() if not folder.startswith("frontend"))

    @property
    def analysis(self) -> int:
        """Lines of the analysis module."""
        return sum(count for folder, count in self.lines.items() if folder.startswith("analysis"))

    @property
    def typescript(self) -> int:
        """Lines of TypeScript."""
        return sum(count for folder, count in self.lines.items() if folder.startswith("frontend"))

    def no_nouns(self, language: str) -> float:
        """Return the share of the names bound in a language that are participles or pronouns."""
        names = self.names[language]
        return sum(count for name, count in names.items() if not is_noun(name)) / names.total()

    def add(self, rule: str, place: str) -> None:
        """Count a place that breaks a rule."""
        self.broken.setdefault(rule, []).append(place)


def sources(root: Path) -> Iterator[Path]:
    """Yield the Python and TypeScript sources of the package, without tests."""
    for folder, folders, names in os.walk(root / "onnx_nb"):
        folders[:] = sorted(set(folders) - {"node_modules", "static"})
        for name in sorted(names):
            if name.endswith((".py", ".ts")) and not name.endswith((".test.ts", "testing.ts")):
                yield Path(folder, name)


def folder_of(path: Path) -> str:
    """Return the row of the table that a file counts in: a shelf of analysis, another folder, or "." for the face."""
    folders = path.parts[1:-1]
    return "/".join(folders[:2] if folders[:1] in (("analysis",), ("frontend",)) else folders[:1]) or "."


def is_noun(name: str) -> bool:
    """Return whether a name may be a noun: whether it is no participle and no pronoun.

    >>> [is_noun(name) for name in ("found", "wanted", "each", "_known", "feed", "matches")]
    [False, False, False, False, True, True]
    """
    word = name.strip("_").lower()
    return not (word in PARTICIPLES or word in PRONOUNS or (word.endswith("ed") and word not in NOUNS))


def python_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that assignments, loops, parameters and handlers bind, each time that they do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def typescript_names(text: str) -> Iterator[str]:
    """Yield the names that a formatted TypeScript file binds."""
    for line in text.split("\n"):
        if not line.lstrip().startswith(("*", "//", "/*")):
            for match in NAME_IN_TYPESCRIPT.finditer(line):
                yield from filter(None, match.groups())
    for match in PATTERN.finditer(text):
        for part in re.sub(r"\b\w+:\s*|=[^,]*|\.\.\.", "", match[1]).split(","):
            yield from re.findall(r"\w+", part)[:1]


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines of Python that hold code, apart from imports."""
    lines: set[int] = set()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if isinstance(node, ast.stmt) and (is_text or isinstance(node, ast.Import | ast.ImportFrom)):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def python_functions(path: Path, tree: ast.Module) -> Iterator[Function]:
    """Yield every function of a Python module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield Function(path, node.lineno, node.name, lines)


def typescript_functions(path: Path, text: str) -> Iterator[Function]:
    """Yield every function of a formatted TypeScript file, whose last brace is indented as its head is."""
    head = re.compile(
        r"^(?P<indent> *)(?:export |default |async |static |override |private |get |set |const )*"
        r"(?:function\*? (?P<function>\w+)"
        r"|(?P<arrow>\w+)(?:: [^=]+)? = (?:async )?\(.*(?:=> \{|\()$"
        r"|(?P<method>#?\w+)\([^;]*(?:\{|\()$)"
    )
    lines = text.split("\n")
    for start, line in enumerate(lines):
        match = head.match(line)
        name = match and (match["function"] or match["arrow"] or match["method"])
        if not match or name in ("if", "for", "while", "switch", "return", "catch", "expect", "it", "describe"):
            continue
        close = re.compile(rf"^{match['indent']}\}}(?![:,)] ?[^;]*[({{]$)")
        end = next((at for at in range(start + 1, len(lines)) if close.match(lines[at])), start)
        if match["method"] and not any(each.endswith("{") for each in lines[start : min(end, start + 30)]):
            continue
        yield Function(path, start + 1, str(name), end - start + 1)


def measure(root: Path) -> House:
    """Count everything in one checkout."""
    house = House()
    for path in sources(root):
        here, text = path.relative_to(root), path.read_text(encoding="utf-8")
        count = text.count("\n")
        house.lines[folder_of(here)] = house.lines.get(folder_of(here), 0) + count
        if count > LONGEST_FILE:
            house.add(f"files over {LONGEST_FILE} lines", f"{here} ({count})")
        if BANNED.search(path.stem):
            house.add("banned words in names", str(here))
        if path.suffix == ".ts":
            house.names.setdefault("TypeScript", Counter()).update(typescript_names(text))
            functions = list(typescript_functions(here, text))
            public = [(name, 0) for name in re.findall(r"(?m)^export (?:function|class|interface|type) (\w+)", text)]
        else:
            tree = ast.parse(text)
            house.names.setdefault("Python", Counter()).update(python_names(tree))
            house.code += code_lines(text, tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    house.classes.setdefault(node.name.strip("_"), []).append(f"{here}:{node.lineno}")
            functions = list(python_functions(here, tree))
            public = list(names_of(tree))
            for line in docstring_openings(tree, ("Give", "Say")):
                house.add("docstrings that begin with Give or Say", f"{here}:{line}")
        for function in functions:
            if function.lines > LONGEST_FUNCTION and path.name != "testing.ts":
                house.add(
                    f"functions over {LONGEST_FUNCTION} lines",
                    f"{here}:{function.line} {function.name} ({function.lines})",
                )
        for name, line in public:
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
            if BANNED.search(words) and not EXEMPT.search(name):
                house.add("banned words in names", f"{here}:{line} {name}")
    for name, places in house.classes.items():
        if len(places) > 1:
            house.add("classes of one name", f"{name}: {', '.join(places)}")
    return house


def names_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield classes, and public functions and methods, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")):
            yield node.name, node.lineno


def docstring_openings(tree: ast.Module, words: tuple[str, ...]) -> Iterator[int]:
    """Yield the lines of docstrings, also those of constants and fields, that begin with one of the words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            opening = node.value.value.split(maxsplit=1)
            if opening and opening[0] in words:
                yield node.lineno


def main(roots: list[Path]) -> None:
    """Print the table and the places."""
    houses = [measure(root) for root in roots]
    rows: dict[str, list[int]] = {}
    for row in sorted({row for house in houses for row in house.lines}):
        rows[row] = [house.lines.get(row, 0) for house in houses]
    rows["all Python"] = [house.python for house in houses]
    rows["of it code"] = [house.code for house in houses]
    rows["all of analysis"] = [house.analysis for house in houses]
    rows["all TypeScript"] = [house.typescript for house in houses]
    modules = [
        [path for path in sources(root) if "analysis" in path.parts and path.stem != "__init__"] for root in roots
    ]
    rows["modules of analysis"] = [len([path for path in paths if path.suffix == ".py"]) for paths in modules]
    bundles = [(root / "onnx_nb" / "static").glob("*.js") for root in roots]
    rows["bundles, bytes"] = [sum(path.stat().st_size for path in paths) for paths in bundles]
    for rule in sorted({rule for house in houses for rule in house.broken}):
        rows[rule] = [len(house.broken.get(rule, [])) for house in houses]
    width = max(map(len, rows))
    for row, counts in rows.items():
        print(f"{row:<{width}}", *(f"{count:>9,}" for count in counts))
    for language in ("Python", "TypeScript"):
        title = f"names that are no nouns, {language}"
        print(f"{title:<{width}}", *(f"{house.no_nouns(language):>9.1%}" for house in houses))
    for rule, places in sorted(houses[-1].broken.items()):
        print(f"\n{rule}:", *places, sep="\n  ")


def lower(root: Path) -> None:
    """Set each line of the budget to what the house has, where that is less."""
    path, house = root / "tests/house_budget.toml", measure(root)
    text = path.read_text(encoding="utf-8")
    shares = {language: math.ceil(house.no_nouns(language) * 1000) / 1000 for language in house.names}
    rules = dict.fromkeys(tomllib.loads(text)["broken"], 0)
    sizes = house.lines | shares | rules | {rule: len(places) for rule, places in house.broken.items()}
    sizes |= {"code": house.code, "markdown_bytes": sum(page.stat().st_size for page in root.glob("*.md"))}

    def lowered(match: re.Match[str]) -> str:
        size = min(float(match[3]), sizes.get(match[2], math.inf))
        return match[1] + (f"{size:.3f}" if size < 1 and "." in match[3] else f"{size:_.0f}")

    path.write_text(re.sub(r'(?m)^("?([^"\n#=]+?)"? = )([\d._]+)$', lowered, text), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        lower(Path(__file__).parents[1])
    else:
        main([Path(argument) for argument in sys.argv[1:]] or [Path(__file__).parents[1]])
