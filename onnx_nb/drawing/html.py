"""Results as HTML: one file that is interactive offline, and static tables for notebooks that run no widgets.

A page's content security policy allows only the bytes of our bundle (by hash) and inline styles; everything from the
model is data in elements that the browser does not interpret.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from onnx_nb.analysis.formatting import bytes_text, count_text, printable, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.save import folder_at, write_file
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.results import Still, StillTable
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.columns import STATISTICS_BYTES, Columns
from onnx_nb.analysis.view.inspection import figures, inspect
from onnx_nb.analysis.view.overlays import COSTS, OWN, STATISTICS, Overlay, overlay
from onnx_nb.analysis.view.result_columns import captured_entries, statistics_columns, weight_entries

if TYPE_CHECKING:
    from onnx_nb.analysis.run.capture import Capture

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>html{{color-scheme:light dark}}[data-theme=light]{{color-scheme:light}}[data-theme=dark]{{color-scheme:dark}}
body{{margin:0;padding:12px;font-family:system-ui,sans-serif}}</style>
</head>
<body>
<noscript>This page draws {title} with JavaScript, all of which is in the page itself.</noscript>
{data}
<script type="module">{bundle}</script>
</body>
</html>
"""

_THEME: Final = """{const follow = () => {
  const [, theme = ""] = /^#theme=(light|dark)$/.exec(location.hash) ?? [];
  document.documentElement.dataset.theme = theme;
}; follow(); addEventListener("hashchange", follow);}
"""
"""Makes ``page.html#theme=dark`` dark in any system: a page that shows it in a frame cannot say so otherwise."""

REPLIES: Final = 4_000_000
"""Maximum number of characters of the inspector's texts in a page."""
ROWS: Final = 24
"""Maximum number of rows of a static table; the rest is counted."""
MOST_ROWS: Final = 2000
"""Maximum number of rows of a table in a report."""


def bake(
    model: Model,
    *,
    statistics: bool = False,
    capture: Capture | None = None,
    shown_overlay: Overlay | None = None,
    limit: int = STATISTICS_BYTES,
    progress: Progress | None = None,
) -> bytes:
    """Return the packed replies of a page without a kernel to clicks on nodes, scopes and tensors.

    With ``statistics`` every weight is read, and ``limit`` bytes of statistics are kept: those of ``capture``, then
    those of the largest weights; the page names the others. ``shown_overlay`` colors the page when it opens.
    """
    replies, arrays = _replies(model, capture, stage(progress, 0.0, 0.0) if statistics else progress)
    entries = captured_entries(capture) if statistics and capture is not None else []
    left_out = 0
    if statistics:
        nbytes = sum(array.nbytes for array in statistics_columns(entries).arrays.values()) if entries else 0
        weights = weight_entries(model, limit=max(0, limit - nbytes), progress=progress)
        entries, left_out = entries + weights, len(model.tensor_names()) - len(weights)
    overlays = [("own", overlay(model, name)) for name in OWN]
    if capture is not None:
        overlays += [("captured", overlay(model, capture, label=label)) for label in (*COSTS, *STATISTICS)]
    if shown_overlay is not None:
        overlays = [(kind, layer) for kind, layer in overlays if layer.label != shown_overlay.label]
        overlays.append(("shown", shown_overlay))
    overlays = [(kind, layer) for kind, layer in overlays if np.isfinite(layer.nodes).any()]
    for number, (_, layer) in enumerate(overlays):
        arrays[f"overlay_{number}_nodes"], arrays[f"overlay_{number}_scopes"] = layer.nodes, layer.scopes
    about = [{"kind": kind, **layer.to_json()} for kind, layer in overlays]
    table = statistics_columns(entries, left_out=left_out, asked=statistics, overlays=about, **replies)
    return Columns({**table.arrays, **arrays}, table.meta).to_bytes()


def _replies(model: Model, capture: Capture | None, progress: Progress | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inspector's texts of each scope and node, equal ones once."""
    graph = Graph.opened(model)
    texts: dict[str, int] = {}
    documentation: dict[str, int] = {}
    size = 0
    arrays: dict[str, Any] = {}
    times = None if capture is None else overlay(model, capture, label="seconds")
    # scopes first: there are fewer
    for kind, count in (("scope", len(scopes(graph).scope_parent)), ("node", graph.node_count)):
        arrays[f"{kind}_reply"] = numbers = np.full(count, -1, np.int32)
        for index in range(count):
            if size > REPLIES:
                break
            if progress is not None and index % 1000 == 0:
                progress(index / count, f"Looking at {kind} {index:,} of {count:,}")
            reply = inspect(model, kind, index).to_json()
            reply["documentation"] = documentation.setdefault(reply["documentation"], len(documentation))
            # share the text of an equal node: names and numbers repeat from layer to layer
            text = json.dumps({**reply, "figures": figures(model, kind, index, times)}, separators=(",", ":"))
            size += 4 if text in texts else len(text)
            numbers[index] = texts.setdefault(text, len(texts))
    return {"replies": [json.loads(text) for text in texts], "documentation": list(documentation)}, arrays


class Content(NamedTuple):
    """The content of a page that shows a widget: its title and kind, JSON about it, and its parts, packed columns.

    Besides its columns, a graph has what `bake` returns as the part ``"baked"``, and a pair as ``"baked-reference"``
    and ``"baked-candidate"``. The parts of one step of a simplification have its number at the end: ``"reference-1"``.
    """

    title: str
    about: Any
    kind: str
    parts: Mapping[str, bytes]


def page(content: Content) -> str:
    """Return a page on which the bundle mounts a widget."""
    elements = [_json(content.kind, content.about), *(_packed(*part) for part in content.parts.items())]
    return _with_bundle(content.title, "\n".join(elements))


def report_page(title: str, parts: Sequence[tuple[str, Content | str]]) -> str:
    """Return a page with a tab for each titled part, which is a widget or HTML; equal packed columns are in it once."""
    numbers: dict[bytes, str] = {}
    about, sections, ids = [], [], set[str]()
    for name, content in parts:
        slug = re.sub(r"\W+", "-", name.lower()).strip("-") or "part"
        section_id = next(element for at in itertools.count() if (element := f"{slug}-{at}" if at else slug) not in ids)
        ids.add(section_id)
        inner = content if isinstance(content, str) else ""
        page = Content("", None, "", {}) if isinstance(content, str) else content
        data = {key: numbers.setdefault(part, f"data-{len(numbers)}") for key, part in page.parts.items()}
        size = len(inner) + len(json.dumps(page.about)) + sum(4 * len(part) // 3 for part in page.parts.values())
        more = {"kind": page.kind, "about": page.about, "data": data}
        about.append({"title": name, "id": section_id, "size": bytes_text(size), **more})
        sections.append(f'<section id="onnx-nb-section-{section_id}"><h2>{html.escape(name)}</h2>{inner}</section>')
    elements = [_packed(key, element) for element, key in numbers.items()]
    size = sum(map(len, [*sections, *elements]))
    program = bytes_text(len(_bundle()))
    facts = f"{count_text(len(parts), 'part')}, {bytes_text(size)}, and {program} of program; works offline."
    head = f"<header><h1>{html.escape(title[:200])}</h1><p>{facts}</p></header>"
    return _with_bundle(title, "\n".join([head, *sections, _json("report", about), *elements]))


def _json(name: str, about: Any) -> str:
    data = json.dumps(about).translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&"})
    return f'<script type="application/json" id="onnx-nb-{name}">{data}</script>'


def _packed(name: str, part: bytes) -> str:
    return f'<script type="text/plain" id="onnx-nb-{name}">{base64.b64encode(part).decode()}</script>'


def _bundle() -> str:
    return resources.files("onnx_nb").joinpath("static", "widget.js").read_text(encoding="utf-8")


def _with_bundle(title: str, data: str) -> str:
    # only "</script" and "<!--" could end or change a script element; the bundle is ours and built without them
    script = _THEME + _bundle()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    return _PAGE.format(policy=policy, title=html.escape(title[:200]), data=data, bundle=script)


def write_page(path: str | os.PathLike[str], text: str, models: Iterable[Model] = ()) -> Path:
    """Write a page; the file appears only when complete, and never in place of one of the models."""
    target = path_of(path)
    folder_at(target.parent)
    # names of files may hold surrogates
    return write_file(target, text.encode(errors="replace"), models)


def still_html(result: Any) -> str:
    """Return what a result shows where no widget runs: its sentences, at most `ROWS` rows of each table, and steps."""
    still: Still = result._still()  # noqa: SLF001 - of our results
    parts = [f"<p><b>{_escaped(still.message, 900)}</b></p>"]
    parts += [f"<p>{_escaped(still.facts, 600)}</p>"] if still.facts else []
    if still.histogram_of:
        from onnx_nb.drawing.plots import plot_histogram  # matplotlib takes longer to import than all else here

        parts.append(image_of(plot_histogram(result, still.histogram_of), f"Histogram of {still.histogram_of}"))
    parts += [_table(table, ROWS, 400) for table in still.tables if table.rows]
    steps = (re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(step)) for step in still.steps)
    return "".join([*parts, f"<ul>{''.join(f'<li>{step}</li>' for step in steps)}</ul>" if still.steps else ""])


def image_of(figure: Any, alt: str) -> str:
    """Return a matplotlib figure as HTML."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    source = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(printable(alt))}" style="min-width:480px" src="data:image/svg+xml;base64,{source}">'


def table_of(heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return any table as HTML, with at most `MOST_ROWS` rows."""
    return _table(StillTable(tuple(heads), rows, "row", len(heads)), MOST_ROWS, 120)


def _table(table: StillTable, most: int, longest: int) -> str:
    # notebooks right-align all cells
    looks = [' style="text-align:left"' if place < table.labels else "" for place in range(len(table.heads))]
    head, *body = (
        "".join(f"<{tag}{look}>{_escaped(cell, longest)}</{tag}>" for cell, look in zip(row, looks, strict=True))
        for tag, row in [("th", table.heads), *(("td", row) for row in table.rows[:most])]
    )
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    rest = len(table.rows) - most
    more = f"<p>and {count_text(rest, f'more {table.noun}')}</p>" if rest > 0 else ""
    title = f"<p><b>{html.escape(table.title)}</b></p>" if table.title else ""
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}"


def _escaped(text: str, most: int) -> str:
    return html.escape(shortened(printable(text), most))
