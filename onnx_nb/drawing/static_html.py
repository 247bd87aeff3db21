"""Results as static HTML: what a saved notebook shows of a panel where no widget runs."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from onnx_nb.analysis.formatting import bytes_text, number_text, printable, shortened

if TYPE_CHECKING:
    from onnx_nb.analysis.model.external_data import Audit
    from onnx_nb.analysis.run.capture import Capture

ROWS: Final = 24
"""Maximum number of rows; the rest is counted."""


def capture_still(capture: Capture) -> str:
    """Return a table of the values of a capture, non-finite ones first."""
    rows = capture.rows()
    odd = [bool((row["nan"] or 0) + (row["posinf"] or 0) + (row["neginf"] or 0)) for row in rows]
    order = sorted(range(len(rows)), key=lambda place: not odd[place])
    first = capture.nonfinite()
    table = _table(
        ("Value", "Op", "Type", "Min", "Max", "Mean", "NaN, Inf"),
        3,
        (
            (
                row["name"],
                row["op_type"] or "input",
                f"{row['dtype']} {'' if row['shape'] is None else '×'.join(map(str, row['shape']))}".strip(),
                *(_number(row[key]) for key in ("min", "max", "mean")),
                str(row["nan"] + row["posinf"] + row["neginf"]) if odd[place] else "",
            )
            for place in order[:ROWS]
            if (row := rows[place])
        ),
    )
    return _whole(repr(capture), "" if first is None else first.message, table, len(rows) - ROWS, "value")


def audit_still(audit: Audit) -> str:
    """Return the problems and the files of an audit as tables."""
    problems = [(problem.severity, problem.kind, f"{problem.message} {problem.advice}") for problem in audit.problems]
    problems.sort(key=lambda row: row[0] != "error")
    tables = []
    if problems:
        tables.append(_table(("", "Problem", "What"), 3, problems[:ROWS], most=400))
    if audit.files:
        files = ((file.location, bytes_text(file.nbytes), str(file.tensors)) for file in audit.files[:ROWS])
        tables.append(_table(("File", "Size", "Tensors"), 1, files))
    return _whole(repr(audit), "", "".join(tables), len(problems) - ROWS, "problem")


def _whole(title: str, message: str, table: str, more: int, noun: str) -> str:
    parts = [f"<p><b>{_escaped(title, 400)}</b></p>"]
    if message:
        parts.append(f"<p>{_escaped(message, 600)}</p>")
    parts.append(table)
    if more > 0:
        parts.append(f"<p>and {more:,} more {noun}{'' if more == 1 else 's'}</p>")
    return "".join(parts)


def _table(heads: Sequence[str], texts: int, rows: Iterable[Sequence[str]], most: int = 120) -> str:
    """Return a table whose first ``texts`` columns are left-aligned."""
    # notebooks align all cells to the right
    looks = [' style="text-align:left"' if place < texts else "" for place in range(len(heads))]
    head = "".join(f"<th{look}>{each}</th>" for each, look in zip(heads, looks, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{look}>{_escaped(cell, most)}</td>" for cell, look in zip(row, looks, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(text: str, most: int) -> str:
    return html.escape(shortened(printable(text), most))


def _number(x: float | None) -> str:
    return "–" if x is None or math.isnan(x) else number_text(x, 4)
