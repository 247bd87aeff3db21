"""A graph, two of them, a simplification or a comparison as one HTML file that is live offline.

The page's content security policy allows only the bytes of our bundle (by hash) and inline styles; what comes from the
model is data in elements that the browser does not interpret.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.inspection import figures, inspect
from onnx_nb.analysis.view.overlays import COSTS, OWN, STATISTICS, Overlay, overlay
from onnx_nb.analysis.view.result_columns import (
    captured_entries,
    comparison_columns,
    statistics_columns,
    weight_entries,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.cost.summary import Summary
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.run.capture import Capture

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page draws {title} with JavaScript, all of which is in the page itself.</noscript>
{data}
<script type="module">{bundle}</script>
</body>
</html>
"""
_STYLE = "html{color-scheme:light dark}body{margin:0;padding:12px;font-family:system-ui,sans-serif}"

REPLIES: Final = 4_000_000
"""Characters of the inspector's texts in a page, at most."""
STATISTICS_BYTES: Final = 8_000_000
"""Bytes of statistics and histograms in a page before compression, at most."""
DETAILS: Final = 3_000_000
"""Bytes of histograms of a comparison's worst points in a page, at most."""


def bake(
    model: Model,
    *,
    statistics: bool = False,
    captured: Capture | None = None,
    shown_overlay: Overlay | None = None,
    limit: int = STATISTICS_BYTES,
    progress: Progress | None = None,
) -> bytes:
    """Return, packed, what a page without a kernel says about nodes, scopes and tensors that are clicked.

    With ``statistics`` every weight is read, and ``limit`` bytes of statistics are kept: those of ``captured``, then
    those of the largest weights; the page names the others. ``shown_overlay`` colors the page when it is opened.
    """
    replies, arrays = _replies(model, captured, progress if statistics is False else stage(progress, 0.0, 0.0))
    entries = captured_entries(captured) if statistics and captured is not None else []
    left_out = 0
    if statistics:
        used = sum(array.nbytes for array in statistics_columns(entries).arrays.values()) if entries else 0
        weights = weight_entries(model, limit=max(0, limit - used), progress=progress)
        entries, left_out = entries + weights, len(model.initializers) - len(weights)
    colors, numbers = _colors(model, captured, shown_overlay)
    packed = statistics_columns(entries, left_out=left_out, asked=statistics, **replies, overlays=colors)
    return Columns({**packed.arrays, **arrays, **numbers}, packed.meta).to_bytes()


def _colors(
    model: Model, captured: Capture | None, chosen: Overlay | None
) -> tuple[list[dict[str, Any]], dict[str, NDArray[np.float64]]]:
    """Return what a page can be colored by: a description of each overlay, and its columns by its number."""
    found = [("own", overlay(model, name)) for name in OWN]
    if captured is not None:
        found += [("captured", overlay(model, captured, label=label)) for label in (*COSTS, *STATISTICS)]
    if chosen is not None:
        found = [(kind, made) for kind, made in found if made.label != chosen.label]
        found.append(("shown", chosen))
    found = [(kind, made) for kind, made in found if np.isfinite(made.nodes).any()]
    about = [
        {"kind": kind, "label": o.label, "scale": o.scale, "reduce": o.reduce, "unmatched": len(o.unmatched)}
        for kind, o in found
    ]
    columns = {}
    for number, (_, made) in enumerate(found):
        columns[f"overlay_{number}_nodes"], columns[f"overlay_{number}_groups"] = made.nodes, made.scopes
    return about, columns


def _replies(
    model: Model, captured: Capture | None, progress: Progress | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inspector's texts of each scope and node, equal ones once."""
    graph = Graph.opened(model)
    texts: dict[str, int] = {}
    documentation: dict[str, int] = {}
    size = 0
    arrays = {}
    times = None if captured is None else overlay(model, captured, label="seconds")
    # scopes first: there are fewer
    for kind, count in (("scope", len(scopes(graph).scope_parent)), ("node", graph.node_count)):
        numbers = np.full(count, -1, np.int32)
        for index in range(count):
            if size > REPLIES:
                break
            if progress is not None and index % 1000 == 0:
                progress(index / count, f"Looking at {kind} {index:,} of {count:,}")
            reply = inspect(model, kind, index).to_json()
            reply["documentation"] = documentation.setdefault(reply["documentation"], len(documentation))
            # of a node with the same text: names and numbers repeat from layer to layer
            text = json.dumps({**reply, "figures": figures(model, kind, index, times)}, separators=(",", ":"))
            number = texts.setdefault(text, len(texts))
            size += len(text) if number == len(texts) - 1 else 4
            numbers[index] = number
        arrays[f"{kind}_reply"] = numbers
    return {"replies": [json.loads(text) for text in texts], "documentation": list(documentation)}, arrays


def page(*, summary: Summary, columns: bytes, baked: bytes = b"") -> str:
    """Return the page of a model: its summary, its packed columns, and what `bake` returned."""
    return _document(summary.name, summary.to_json(), "summary", {"columns": columns, "baked": baked})


def diff_page(*, names: Sequence[str], parts: Mapping[str, bytes]) -> str:
    """Return the page of a `Diff`: two graphs in step.

    ``parts`` are the packed columns ``"reference"``, ``"candidate"`` and ``"differences"``, and what `bake` returned
    for each model, ``"baked-reference"`` and ``"baked-candidate"``.
    """
    return _document(" and ".join(names), {"names": list(names)}, "pair", parts)


def simplification_page(account: Mapping[str, Any], parts: Mapping[str, bytes]) -> str:
    """Return the page of a `Simplification`, with parts as in `diff_page`.

    Parts of its steps end with the step's number, as ``"reference-1"``.
    """
    return _document(f"{account['name']} simplified", dict(account), "simplification", parts)


def comparison_page(comparison: Comparison, *, limit: int = DETAILS, progress: Progress | None = None) -> str:
    """Return the page of a comparison, with histograms of its worst points in up to ``limit`` bytes."""
    title = f"{comparison.reference} and {comparison.candidate}"
    parts = {"points": comparison_columns(comparison, details=limit, progress=progress).to_bytes()}
    return _document(title, {}, "comparison", parts)


def _document(title: str, about: Any, kind: str, parts: Mapping[str, bytes]) -> str:
    """Return a page on which the bundle mounts ``kind``, with plain JSON and named packed columns."""
    # in a script element only "</script" and "<!--" could end or change it; the bundle is ours and built without them
    script = resources.files("onnx_nb").joinpath("static", "widget.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    data = json.dumps(about, ensure_ascii=True)
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    elements = [f'<script type="application/json" id="onnx-nb-{kind}">{data}</script>']
    for name, packed in parts.items():
        encoded = base64.b64encode(packed).decode()
        elements.append(f'<script type="text/plain" id="onnx-nb-{name}">{encoded}</script>')
    return _PAGE.format(
        policy=policy, title=html.escape(title[:200]), style=_STYLE, data="\n".join(elements), bundle=script
    )


def write_page(path: str | os.PathLike[str], text: str) -> Path:
    """Write a page; the file appears whole or not at all."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {quoted(str(target.parent))} cannot be made: {error.strerror or error}."
        raise OnnxNbError(message, advice="Choose a folder that you may write to.") from error
    with together() as files:
        files.add(target, [text.encode()])
    return target
