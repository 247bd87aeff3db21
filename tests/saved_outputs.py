"""What the cells of a notebook were saved with, compared with what a run puts out.

Solutions and plain ways, which do without onnx_nb, are text, folded where GitHub, nbconvert and JupyterLab show them; a
run has them as cells that it leaves out of what it saves.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import nbformat

CHANGES: Final = {"timing", "versions", "processor"}
"""Tags of cells whose text is another one in each run, or where another processor rounds and trains otherwise."""
MAGIC: Final = re.compile(r"^\s*[%!].*", re.MULTILINE)
"""Lines of a cell that are no Python."""
NUMBER: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
# another processor rounds differently: a fraction may differ by a tenth, and an error of rounding in each of its digits
RELATIVE: Final = 0.1
ABSOLUTE: Final = 1e-5


SOLUTION: Final = re.compile(r"<details><summary>Solution</summary>\n\n```python\n(.*?)\n```\n\n</details>", re.DOTALL)
PLAIN_SUMMARY: Final = "<summary>In plain onnx and onnxruntime</summary>"
PLAIN: Final = re.compile(
    rf"<details>{PLAIN_SUMMARY}\n\n(?:(?!```|</details>)[^\n]*\n)*?```python\n(.*?)\n```\n(?:(?!```|</details>)[^\n]*\n)*?</details>",
    re.DOTALL,
)
"""How a call of ours is written without onnx_nb: one block of code, with sentences around it."""


def with_solutions(notebook: Any) -> Any:
    """Return a copy in which a cell with the code follows each solution, and one in which its grader judges it.

    A cell also follows each plain way. It reads what the notebook has made, and leaves it as it is.
    """
    cells, number = [], ""
    for cell in notebook.cells:
        number = (re.findall(r"^check\((\d+)", cell.source, re.MULTILINE) or [number])[0]
        codes = SOLUTION.findall(cell.source)
        judged = [f"assert check.misjudged({number}) == []"] if codes and number else []
        judged += [f"exec({code!r}, dict(globals()))" for code in PLAIN.findall(cell.source)]
        cells += [cell, *(nbformat.v4.new_code_cell(code, metadata={"tags": ["run"]}) for code in (*codes, *judged))]
        number = "" if codes else number
    return _with_cells(notebook, cells)


def without_solutions(notebook: Any) -> Any:
    """Return a copy without the cells that `with_solutions` adds."""
    return _with_cells(notebook, (cell for cell in notebook.cells if "run" not in cell.metadata.get("tags", ())))


def _with_cells(notebook: Any, cells: Iterable[Any]) -> Any:
    changed = copy.copy(notebook)
    changed.cells = list(cells)
    return changed


def fingerprint(notebook: Any, folder: Path) -> str:
    """Return a number for all that a run depends on and is compared with: code, outputs, and modules of the course."""
    cells = [cell for cell in with_solutions(notebook).cells if cell.cell_type == "code"]
    number = hashlib.sha256()
    for cell in cells:
        number.update(json.dumps([cell.source, *map(text_of, cell.get("outputs", ()))]).encode())
    for path in sorted(set().union(*(modules(MAGIC.sub("pass", cell.source), folder) for cell in cells))):
        number.update(path.read_bytes())
    return number.hexdigest()[:16]


def modules(source: str, folder: Path) -> set[Path]:
    """Return the files of the course that some code imports, those that these import, and the data of packages."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse(source)):
        module = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        for name in (*module, *(".".join((*module, name)) for name in names)):
            path = folder.joinpath(*name.split("."))
            data = [file for file in path.glob("*") if file.suffix != ".py"]
            code = path.with_suffix(".py"), path / "__init__.py", path.parent / "__init__.py"
            files |= {file for file in (*code, *data) if file.is_file()}
    return files.union(*(modules(file.read_text(encoding="utf-8"), folder) for file in files if file.suffix == ".py"))


def differences(saved: Any, run: Any) -> Iterator[str]:
    """Yield the cells of a notebook that, run, put out something else than what was saved."""
    for before, after in zip(saved.cells, run.cells, strict=True):
        if CHANGES & set(before.metadata.get("tags", ())):
            continue
        pairs = itertools.zip_longest(shown(before), shown(after), fillvalue="nothing")
        yield from (f"{before.id}: saved\n{one}\nput out\n{two}" for one, two in pairs if not equal(one, two))


def shown(cell: Any) -> list[str]:
    """Return the outputs of a cell as text: a picture by its description, consecutive lines of a stream as one."""
    found: list[tuple[str, str]] = []
    for output in cell.get("outputs", ()):
        kind, text = output.get("name", ""), text_of(output)
        if kind and found and found[-1][0] == kind:
            text = found.pop()[1] + text
        found.append((kind, text))
    return [text for _, text in found]


def text_of(output: Any) -> str:
    """Return one output as text, without what is drawn by lot for each display."""
    if output.output_type == "stream":
        return str(output.text)
    data = output.get("data", {})
    if "image/png" in data:
        return "plot"
    text = "".join(next((data[kind] for kind in ("text/html", "text/markdown", "text/plain") if kind in data), "error"))
    text = re.sub(r"data:image/[^\"]*", "", text)
    return re.sub(r"onnx-nb-picture-\w+| at 0x[0-9a-f]+", "", text)


def equal(saved: str, put_out: str) -> bool:
    """Return whether two texts have the same words and whole numbers, and the same fractions but for rounding."""
    if NUMBER.sub("0", saved).split() != NUMBER.sub("0", put_out).split():
        return False
    return all(map(close, NUMBER.findall(saved), NUMBER.findall(put_out)))


def close(saved: str, put_out: str) -> bool:
    """Return whether two numbers, as they are written, are equal but for rounding."""
    first, second = (float(number.replace(",", "")) for number in (saved, put_out))
    if re.search("[.e]", saved + put_out):
        return math.isclose(first, second, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return first == second
