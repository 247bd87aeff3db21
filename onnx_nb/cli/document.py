"""The output of a verb as blocks of text and tables: aligned on a terminal, Markdown for GitHub."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from onnx_nb.analysis.formatting import bytes_text, count_text, printable, scaled_text, shape_text, shortened
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.results import Still, StillTable
from onnx_nb.cli.verbs import VERBS

if TYPE_CHECKING:
    from onnx_nb.analysis.cost.summary import Summary

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


Block = Text | StillTable


def for_terminal(blocks: Iterable[Block], *, width: int | None) -> str:
    """Return blocks as text: fitted to a width and with colors, or complete and plain for a pipe if that is None."""
    parts = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append(click.style(printable(block.text), **_STYLES[block.look]) if block.text else "")
        elif block.rows:
            parts.append(_aligned(block, width))
    return "\n".join(parts)


def _aligned(table: StillTable, width: int | None) -> str:
    rows = [[printable(cell) for cell in row] for row in table.rows[: ROWS if width else None]]
    widths = [max(map(len, column)) for column in zip(table.heads, *rows, strict=True)]
    while width and sum(widths) + 2 * len(widths) > width and max(widths[: table.labels]) > NARROWEST:
        widths[max(range(table.labels), key=widths.__getitem__)] -= 1

    def line(cells: Sequence[str]) -> str:
        padding = (
            _middle_out(cell, w).ljust(w) if at < table.labels else cell.rjust(w)
            for at, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
        return f"  {'  '.join(padding)}".rstrip()

    lines = ["", click.style(table.title, bold=True)] if table.title else [""]
    lines += [click.style(line(table.heads), dim=True)] if any(table.heads) else []
    looks: list[Look] = ["bad" if is_alarm else "" for is_alarm in table.alarms] or [""] * len(rows)
    lines += [click.style(line(row), **_STYLES[look]) for row, look in zip(rows, looks, strict=False)]
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
            parts.append({"title": "### ", "good": "✅ ", "bad": "❌ "}.get(block.look, "") + _escaped(block.text))
        elif block.rows:
            lines = [f"**{block.title}**\n"] if block.title else []
            lines.append(_row(block.heads))
            lines.append(_row(["---" if at < block.labels else "---:" for at in range(len(block.heads))]))
            lines += map(_row, block.rows[:ROWS])
            more = len(block.rows) - ROWS
            parts.append("\n".join(lines) + (f"\n\n… {more:,} more" if more > 0 else ""))
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is: no links, mentions, images or HTML of a stranger's model."""
    plain = shortened(printable(text), 300)
    return "".join(f"&#{ord(letter)};" if letter in "&<>|`*_[]()!#@~\\$:" else letter for letter in plain)


def _bar(share: float, width: int = 20) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _of_summary(values: Mapping[str, Any]) -> list[Block]:
    model: Summary = values["summary"]
    opsets = ", ".join(f"{domain or 'onnx'} {version}" for domain, version in model.opsets)
    facts = [count_text(model.nodes, "node"), f"{scaled_text(model.parameters)} parameters", bytes_text(model.nbytes)]
    facts += [f"opset {opsets}", *([model.producer] if model.producer else [])]
    blocks: list[Block] = [Text(model.name or "model", "title"), Text(" · ".join(facts))]
    for title, ports in (("Inputs", model.inputs), ("Outputs", model.outputs)):
        rows = [(port.name, port.dtype, port.shape) for port in ports]
        blocks.append(StillTable(("", "", ""), rows, labels=3, title=title))
    if model.cost:
        numbers = (("MACs", model.macs), ("FLOPs", model.flops), ("activations, bytes", model.activation_bytes))
        costs = [(name, scaled_text(number)) for name, number in numbers if number is not None]
        blocks.append(StillTable(("", ""), costs, title="Cost of a run"))
        for cache in model.caches:
            curve = ", ".join(f"{bytes_text(row['nbytes'])} at {row['tokens']:,}" for row in cache.rows())
            blocks.append(Text(f"  KV cache: {curve} tokens ({cache.length})"))
        if model.unbound:
            sizes = " ".join(f"--shape {name}=1" for name in model.unbound[:4])
            blocks.append(Text(f"  Dimensions without a size count as unknown: add {sizes}", "faint"))
    most = max((row.count for row in model.op_counts), default=1)
    counts = [(row.op, row.domain, _bar(row.count / most), f"{row.count:,}") for row in model.op_counts]
    blocks.append(StillTable(("", "", "", ""), counts, labels=3, title="Operators"))
    if len(model.by_dtype) > 1:
        types = [(row.dtype, f"{row.parameters:,}", bytes_text(row.nbytes)) for row in model.by_dtype]
        blocks.append(StillTable(("", "elements", "bytes"), types, title="Weights by type"))
    if model.scopes:
        scopes = [
            (row.scope, row.cls, "?" if row.macs is None else scaled_text(row.macs), scaled_text(row.parameters))
            for row in model.scopes
        ]
        blocks.append(StillTable(("", "", "MACs", "parameters"), scopes, labels=2, title="Scopes"))
    blocks += [Text(message, "bad") for _, message in model.faults]
    return blocks


def _wrote(values: Mapping[str, Any], what: str = "") -> list[Block]:
    return [Text(f"Wrote {values['file']}{what}", "good")] if values.get("file") else []


def _of_extract(values: Mapping[str, Any]) -> list[Block]:
    model: Model = values["submodel"]
    size = f"{count_text(len(model.proto.graph.node), 'node')}, {bytes_text(model.nbytes)}"
    ports = [
        StillTable(("", "Type", "Shape"), [(p.name, p.dtype, shape_text(p.shape or ())) for p in infos], title=title)
        for title, infos in (("Inputs", model.inputs), ("Outputs", model.outputs))
    ]
    return [*(_wrote(values, f": {size}") or [Text(f"{size}; -o FILE writes it")]), *ports]


def _of_compare(values: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a `Comparison`, and of the points that failed."""
    from onnx_nb.analysis.compare.comparison import points_table

    blocks = _of_result("c", values)
    if (misses := values.get("failed")) is not None:
        text = f"{count_text(len(misses), 'point')} of {len(values['c']):,} failed" if misses else "No point failed"
        blocks += [Text(""), Text(text, "bad" if misses else "good"), points_table("Failed", misses)]
    return blocks


def _of_result(variable: str, values: Mapping[str, Any]) -> list[Block]:
    """Return what a result shows where no widget runs, and the line about the file that was written."""
    still: Still = values[variable]._still()  # noqa: SLF001 - of our results
    look: Look = "title" if still.ok is None else "good" if still.ok else "bad"
    facts = [Text(still.facts, "faint")] if still.facts else []
    return [Text(still.message, look), *facts, *still.tables, *_wrote(values)]


BLOCKS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[Block]]]] = {
    **{name: functools.partial(_of_result, verb.result) for name, verb in VERBS.items()},
    "show": lambda values: [Text(str(values["page"]))],
    "summary": _of_summary,
    "extract": _of_extract,
    "compare": _of_compare,
    "report": lambda values: [Text(f"Wrote {values['page']}", "good")],
}
"""Verb → the blocks of what its script made."""
