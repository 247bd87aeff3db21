"""The output of a verb as blocks of text and tables: aligned on a terminal, Markdown for GitHub."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from onnx_nb.analysis.formatting import (
    bytes_text,
    count_text,
    duration_text,
    number_text,
    printable,
    scaled_text,
    shape_text,
    shortened,
)

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison, Point
    from onnx_nb.analysis.cost.summary import Summary
    from onnx_nb.analysis.edit.edit import Edit
    from onnx_nb.analysis.match.diff import Diff
    from onnx_nb.analysis.model.auditor import Audit
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.profile.result import Profile
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.simplify.simplify import Simplification
    from onnx_nb.analysis.submodel.reduction import Reduction

Look = Literal["", "title", "good", "bad", "faint"]

_STYLES: Final[Mapping[Look, Mapping[str, Any]]] = {
    "": {},
    "title": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "faint": {"dim": True},
}
ROWS: Final = 24
"""Maximum number of rows of a table on a terminal and in a summary; a pipe gets all."""
NARROWEST: Final = 12
"""Characters of a name that a narrow terminal still shows."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    look: Look = ""


@dataclass(frozen=True)
class Grid:
    """A table; columns of numbers stand right. A row may have a look."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    looks: Sequence[Look] = ()
    left: int = 1
    """Number of columns of text, which come first."""


Block = Text | Grid


# --- rendering -------------------------------------------------------------------------------------------------------


def for_terminal(blocks: Iterable[Block], *, width: int | None) -> str:
    """Return blocks as text: fitted to a width and with colors, or complete and plain for a pipe if that is None."""
    parts = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append(click.style(printable(block.text), **_STYLES[block.look]) if block.text else "")
        elif block.rows:
            parts.append(_aligned(block, width))
    return "\n".join(parts)


def _aligned(table: Grid, width: int | None) -> str:
    rows = [[printable(cell) for cell in row] for row in table.rows[: ROWS if width else None]]
    widths = [max(map(len, column)) for column in zip(table.heads, *rows, strict=True)]
    while width and sum(widths) + 2 * len(widths) > width and max(widths[: table.left]) > NARROWEST:
        widest = max(range(table.left), key=widths.__getitem__)
        widths[widest] -= 1

    def line(cells: Sequence[str]) -> str:
        padding = (
            _middle_out(cell, w).ljust(w) if at < table.left else cell.rjust(w)
            for at, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
        return f"  {'  '.join(padding)}".rstrip()

    lines = ["", click.style(table.title, bold=True)] if table.title else [""]
    lines += [click.style(line(table.heads), dim=True)] if any(table.heads) else []
    looks = itertools.chain(table.looks, itertools.repeat(""))
    lines += [click.style(line(row), **_STYLES[look]) for row, look in zip(rows, looks, strict=False)]  # type: ignore[index]
    if more := len(table.rows) - len(rows):
        lines.append(click.style(f"  … {more:,} more: --json or a pipe has all, --page shows them", dim=True))
    return "\n".join(lines)


def _middle_out(text: str, width: int) -> str:
    """Return a name without its middle, if it is too long: ends tell more."""
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def for_markdown(blocks: Iterable[Block]) -> str:
    """Return blocks as Markdown, in which no name of a model is markup."""
    parts = []
    for block in blocks:
        if isinstance(block, Text):
            mark = {"good": "✅ ", "bad": "❌ "}.get(block.look, "")
            text = _escaped(block.text)
            parts.append(f"### {text}" if block.look == "title" else f"{mark}{text}")
        elif block.rows:
            lines = [f"**{block.title}**\n"] if block.title else []
            lines.append(_row(block.heads))
            lines.append(_row(["---" if at < block.left else "---:" for at in range(len(block.heads))]))
            lines += [_row([_escaped(cell) for cell in row]) for row in block.rows[:ROWS]]
            more = len(block.rows) - ROWS
            parts.append("\n".join(lines) + (f"\n\n… {more:,} more" if more > 0 else ""))
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is: no links, mentions, images or HTML of a stranger's model."""
    plain = shortened(printable(text), 300)
    return "".join(f"&#{ord(letter)};" if letter in "&<>|`*_[]()!#@~\\$:" else letter for letter in plain)


# --- verbs -----------------------------------------------------------------------------------------------------------


def _names(title: str, rows: Sequence[Sequence[str]]) -> Grid:
    """Return a table of three columns of text."""
    return Grid(title, ("", "", ""), rows, left=3)


def _bar(share: float, width: int = 20) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def of_summary(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Summary`."""
    model: Summary = values["summary"]
    opsets = ", ".join(f"{domain or 'onnx'} {version}" for domain, version in model.opsets)
    facts = [count_text(model.nodes, "node"), f"{scaled_text(model.parameters)} parameters", bytes_text(model.nbytes)]
    facts += [f"opset {opsets}", *([model.producer] if model.producer else [])]
    blocks: list[Block] = [Text(model.name or "model", "title"), Text(" · ".join(facts))]
    for title, ports in (("Inputs", model.inputs), ("Outputs", model.outputs)):
        blocks.append(_names(title, [(port.name, port.dtype, port.shape) for port in ports]))
    if model.cost:
        numbers = (("MACs", model.macs), ("FLOPs", model.flops), ("activations, bytes", model.activation_bytes))
        costs = [(name, scaled_text(number)) for name, number in numbers if number is not None]
        blocks.append(Grid("Cost of a run", ("", ""), costs))
        for cache in model.caches:
            curve = ", ".join(f"{bytes_text(row['nbytes'])} at {row['tokens']:,}" for row in cache.rows())
            blocks.append(Text(f"  KV cache: {curve} tokens ({cache.length})"))
        if model.unbound:
            sizes = " ".join(f"--shape {name}=1" for name in model.unbound[:4])
            blocks.append(Text(f"  Dimensions without a size count as unknown: add {sizes}", "faint"))
    most = max((row.count for row in model.op_counts), default=1)
    rows = [(row.op, row.domain, _bar(row.count / most), f"{row.count:,}") for row in model.op_counts]
    if not any(row.domain for row in model.op_counts):
        rows = [(op, bar, count) for op, _, bar, count in rows]  # type: ignore[misc]
    if rows:
        blocks.append(Grid("Operators", ("",) * len(rows[0]), rows, left=len(rows[0]) - 1))
    if len(model.by_dtype) > 1:
        types = [(row.dtype, f"{row.parameters:,}", bytes_text(row.nbytes)) for row in model.by_dtype]
        blocks.append(Grid("Weights by type", ("", "elements", "bytes"), types))
    if model.scopes:
        scopes = [
            (row.scope, row.cls, "?" if row.macs is None else scaled_text(row.macs), scaled_text(row.parameters))
            for row in model.scopes
        ]
        blocks.append(Grid("Scopes", ("", "", "MACs", "parameters"), scopes, left=2))
    blocks += [Text(message, "bad") for _, message in model.faults]
    return blocks


def _wrote(values: Mapping[str, Any], what: str = "") -> list[Block]:
    """Return the line about the file that a verb wrote, if it wrote one."""
    return [Text(f"Wrote {values['file']}{what}", "good")] if values.get("file") else []


def of_extract(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a submodel."""
    model: Model = values["submodel"]
    size = f"{count_text(len(model.proto.graph.node), 'node')}, {bytes_text(model.nbytes)}"
    ports = [
        _names(title, [(port.name, port.dtype, shape_text(port.shape or ())) for port in infos])
        for title, infos in (("Inputs", model.inputs), ("Outputs", model.outputs))
    ]
    return [*(_wrote(values, f": {size}") or [Text(f"{size}; -o FILE writes it")]), *ports]


def of_reduce(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Reduction`."""
    search: Reduction = values["reduction"]
    rows = [
        (trial.phase, trial.result, trial.why, f"{trial.nodes:,}", f"{trial.inputs:,}", duration_text(trial.seconds))
        for trial in search.trials
    ]
    looks: list[Look] = ["bad" if trial.result == "fails" else "" for trial in search.trials]
    blocks: list[Block] = [Text(search.message, "title")]
    blocks.append(Grid("Calls of the check", ("", "", "", "nodes", "inputs", "time"), rows, looks, left=3))
    return blocks + _wrote(values, ": model.onnx, inputs.npz and run.py, which shows the failure")


def of_simplify(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Simplification`."""
    from onnx_nb.analysis.simplify.rounds import rules

    s: Simplification = values["s"]
    look: Look = {"verified": "good", "wrong": "bad"}.get(s.verdict, "")  # type: ignore[assignment]
    before, after = sum(s.before.values()), sum(s.after.values())
    blocks: list[Block] = [Text(f"{before:,} → {after:,} nodes, {s.verdict}", look), Text(s.verification)]
    texts = rules()
    uses = Counter(change.rule for change in s.changes)
    blocks.append(Grid("Changes", ("", "", ""), [(r, texts[r], f"{n:,}") for r, n in uses.most_common()], left=2))
    names = sorted({*s.before, *s.after}, key=lambda op: s.after.get(op, 0) - s.before.get(op, 0))
    counts = [(op, s.before.get(op, 0), s.after.get(op, 0)) for op in names]
    differences = [(op, f"{b:,}", f"{a:,}") for op, b, a in counts if a != b]
    blocks.append(Grid("Operators", ("", "before", "after"), differences))
    blocks.append(_names("Not folded", [(node.op_type, node.node, node.why) for node in s.left]))
    return blocks + _wrote(values)


def of_edit(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of an `Edit`."""
    e: Edit = values["e"]
    looks: list[Look] = ["bad" if step.proof == "wrong" else "" for step in e.steps]
    rows = [(step.proof, step.text, step.reason) for step in e.steps]
    return [*_wrote(values), Text(e.message, "title"), Grid("", ("", "", ""), rows, looks, left=3)]


_SIGNS: Final[Mapping[str, tuple[str, Look]]] = {"added": ("+", "good"), "removed": ("-", "bad"), "changed": ("~", "")}


def of_diff(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Diff`."""
    diff: Diff = values["d"]
    title = diff.message[:1].upper() + diff.message[1:]
    rows = [(_SIGNS[change.what][0], change.kind, change.message) for change in diff.changes]
    looks = [_SIGNS[change.what][1] for change in diff.changes]
    return [Text(title, "good" if not diff else "title"), Grid("", ("", "", ""), rows, looks, left=3)]


def of_compare(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Comparison`, and of the points that failed."""
    c: Comparison = values["c"]
    blocks: list[Block] = [Text(c.message, "title"), Text(repr(c), "faint")]
    # errors as the models run: these are what --fail looks at
    points = [point for point in c.ranked("cumulative") if point.error_size("cumulative") is not None]
    blocks.append(_points("Worst points", [point for point in points if not point.errors("cumulative").is_equal]))
    blocks.append(_points("Outputs", [point for point in points if point.output]))
    if (misses := values.get("failed")) is not None:
        text = f"{count_text(len(misses), 'point')} of {len(c.points):,} failed" if misses else "No point failed"
        blocks += [Text(""), Text(text, "bad" if misses else "good"), _points("Failed", misses)]
    return blocks


def _points(title: str, points: Sequence[Point]) -> Grid:
    """Return the errors of points where both models run, and next to them those that a point adds by itself."""
    rows = []
    has_own = any(point.error_size("isolated") is not None for point in points)
    for point in points:
        errors, isolated = point.errors("cumulative"), point.error_size("isolated")
        numbers = [(errors.max_abs, 3), (errors.rel_l2, 2), (errors.sqnr, 3), (errors.cosine, 5)]
        texts = [number_text(number, digits) for number, digits in numbers]
        texts += ["" if isolated is None else number_text(isolated.rel_l2, 2)] if has_own else []
        rows.append((point.name, point.op_type, *texts, f"{errors.mismatches:,}" if errors.mismatches else ""))
    heads = ["", "", "max |Δ|", "‖Δ‖/‖x‖", "SQNR, dB", "cosine", *(["its own"] if has_own else []), "NaN, Inf"]
    return Grid(title, heads, rows, left=2)


def of_capture(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Capture`."""
    capture: Capture = values["capture"]
    rows, looks = [], []
    for row in capture.rows():
        numbers = [row.get(key) for key in ("min", "max", "mean", "std")]
        texts = ["" if n is None or math.isnan(n) else number_text(float(n), 3) for n in numbers]
        bad = sum(row[key] or 0 for key in ("nan", "posinf", "neginf"))
        shape = "" if row["shape"] is None else shape_text(row["shape"])
        rows.append((row["name"], row["op_type"], row["dtype"], shape, *texts, f"{bad:,}" if bad else ""))
        looks.append("bad" if bad else "")
    heads = ("", "", "", "", "min", "max", "mean", "std", "NaN, Inf")
    return [Text(repr(capture), "title"), Grid("", heads, rows, looks, left=4)]  # type: ignore[arg-type]


def of_profile(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Profile`."""
    p: Profile = values["p"]

    def times(row: Mapping[str, Any]) -> tuple[str, ...]:
        return duration_text(row["seconds"]), f"± {duration_text(row['spread'])}", f"{row['share']:.1%}"

    def measured(head: str, rows: Sequence[Mapping[str, Any]], *columns: str) -> Grid:
        most = max((row["share"] for row in rows), default=1.0) or 1.0
        cells = [(*(str(row[name]) for name in columns), _bar(row["share"] / most, 12), *times(row)) for row in rows]
        return Grid(head, ("",) * (len(columns) + 1) + ("time", "", "share"), cells, left=len(columns) + 1)

    blocks: list[Block] = [Text(p.message, "title")]
    blocks += [Text(note) for note in p.notes]
    loaded = "" if math.isnan(p.load_seconds) else f"loaded in {duration_text(p.load_seconds)}, "
    first = f"{loaded}first run {duration_text(p.first_run_seconds)}"
    blocks.append(Text(f"{count_text(len(p.run_seconds), 'run')}; {first}", "faint"))
    blocks.append(measured("Operators", p.rows("operator"), "op"))
    scopes = [row for row in p.rows("scope") if row["scope"]]
    blocks.append(measured("Scopes", scopes, "scope", "class"))
    blocks.append(measured("Kernels", p.rows("kernel"), "kernel", "op"))
    providers = p.rows("provider")
    blocks.append(measured("Providers", providers if len(providers) > 1 else [], "provider"))
    return blocks


def of_audit(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of an `Audit`."""
    audit: Audit = values["audit"]
    blocks: list[Block] = [Text(repr(audit), "good" if audit.ok else "bad")]
    files = [
        (file.location, f"{file.tensors:,}", *(bytes_text(n or 0) for n in (file.nbytes, file.padding, file.orphan)))
        for file in audit.files
    ]
    blocks.append(Grid("Files", ("", "tensors", "size", "padding", "unused"), files))
    blocks += [Text(str(problem), "bad" if problem.severity == "error" else "") for problem in audit.problems]
    return blocks


BLOCKS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[Block]]]] = {
    "show": lambda values: [Text(str(values["page"]))],
    "summary": of_summary,
    "extract": of_extract,
    "reduce": of_reduce,
    "simplify": of_simplify,
    "edit": of_edit,
    "diff": of_diff,
    "compare": of_compare,
    "capture": of_capture,
    "profile": of_profile,
    "audit": of_audit,
    "report": lambda values: [Text(f"Wrote {values['page']}", "good")],
}
"""Verb → the blocks of what its script made."""
