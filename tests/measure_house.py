"""The size and the rules of the house, counted: ``python -m tests.measure_house [CHECKOUT …]``.

Prints one column for each checkout (this one if none is named): lines by folder, modules, and how often a rule of
CONTRIBUTING.md is broken. Then names each place in the last checkout that breaks one.
"""

from __future__ import annotations

import ast
import re
import sys
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
NO_SOURCE: Final = (".test.ts", "testing.ts", ".config.ts", ".d.ts")
"""Ends of the names of files that the package does not ship."""
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
    broken: dict[str, list[str]] = field(default_factory=dict)
    """Places that break a rule, by rule."""

    def add(self, rule: str, place: str) -> None:
        """Count a place that breaks a rule."""
        self.broken.setdefault(rule, []).append(place)


def sources(root: Path) -> Iterator[Path]:
    """Yield the Python and TypeScript sources of the package, without tests."""
    for path in sorted((root / "onnx_nb").rglob("*")):
        inside = path.relative_to(root).parts
        is_source = path.suffix in (".py", ".pyi", ".ts") and not path.name.endswith(NO_SOURCE)
        if is_source and not {"node_modules", "static"} & set(inside):
            yield path


def folder_of(path: Path) -> str:
    """Return the row of the table that a file counts in."""
    parts = path.parts[:-1]
    if parts[:2] == ("onnx_nb", "frontend"):
        return "TypeScript"
    return "/".join(parts[:3]) if len(parts) > 1 else "onnx_nb"


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
            functions = list(typescript_functions(here, text))
            public = [(name, 0) for name in re.findall(r"(?m)^export (?:function|class|interface|type) (\w+)", text)]
        else:
            tree = ast.parse(text)
            functions = list(python_functions(here, tree))
            public = list(names_of(tree))
            for line in docstring_openings(tree, ("Give", "Say")):
                house.add("docstrings that begin with Give or Say", f"{here}:{line}")
        for function in functions:
            if function.lines > LONGEST_FUNCTION:
                house.add(
                    f"functions over {LONGEST_FUNCTION} lines",
                    f"{here}:{function.line} {function.name} ({function.lines})",
                )
        for name, line in public:
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
            if BANNED.search(words) and not EXEMPT.search(name):
                house.add("banned words in names", f"{here}:{line} {name}")
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
    python = [[count for row, count in house.lines.items() if row != "TypeScript"] for house in houses]
    rows["all Python"] = [sum(counts) for counts in python]
    modules = [
        [path for path in sources(root) if "analysis" in path.parts and path.stem != "__init__"] for root in roots
    ]
    rows["modules of analysis"] = [len([path for path in found if path.suffix == ".py"]) for found in modules]
    bundles = [(root / "onnx_nb" / "static").glob("*.js") for root in roots]
    rows["bundles, bytes"] = [sum(path.stat().st_size for path in found) for found in bundles]
    for rule in sorted({rule for house in houses for rule in house.broken}):
        rows[rule] = [len(house.broken.get(rule, [])) for house in houses]
    width = max(map(len, rows))
    for row, counts in rows.items():
        print(f"{row:<{width}}", *(f"{count:>9,}" for count in counts))
    for rule, places in sorted(houses[-1].broken.items()):
        print(f"\n{rule}:", *places, sep="\n  ")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or [Path(__file__).parents[1]])
