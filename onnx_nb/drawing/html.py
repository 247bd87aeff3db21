"""A graph, two of them, a simplification or a comparison as one HTML file: live, offline, and only our bundle runs.

The page's content security policy forbids everything except the very bytes of the bundle (by hash) and inline styles;
what comes from the model is data in elements that the browser does not interpret.
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
from onnx_nb.analysis.view.capture_table import joined, of_capture, of_weights
from onnx_nb.analysis.view.comparison_table import columns_of
from onnx_nb.analysis.view.graph_columns import Columns
from onnx_nb.analysis.view.inspection import figures, inspect
from onnx_nb.analysis.view.overlays import COSTS, OWN, STATISTICS, Overlay, overlay

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
"""Characters that what the inspector says of nodes may take in a page."""
STATISTICS_BYTES: Final = 8_000_000
"""Bytes that statistics and histograms may take in a page, before they are compressed."""

DETAILS: Final = 3_000_000
"""Bytes that histograms of the worst points of a comparison may take in a page."""


def bake(
    model: Model,
    *,
    statistics: bool = False,
    captured: Capture | None = None,
    shown_overlay: Overlay | None = None,
    limit: int = STATISTICS_BYTES,
    progress: Progress | None = None,
) -> bytes:
    """Return what a page without a kernel can say of nodes, scopes and tensors when they are clicked.

    Parameters
    ----------
    model
        The model.
    statistics
        Also look at every value of every weight.
    captured
        A capture of the model; with ``statistics`` those of its values too.
    shown_overlay
        The numbers that color the page when it is opened. The menu offers them, and those that every model has or the
        capture gives.
    limit
        Bytes that statistics may take before they are compressed. Those of the capture are kept, then those of the
        largest weights; the page says of the others that they were left out.
    progress
        Called with the part done and what is read; what it raises ends the work.
    """
    replies, arrays = _replies(model, captured, progress if statistics is False else stage(progress, 0.0, 0.0))
    parts = []
    if statistics:
        parts = [] if captured is None else [of_capture(captured)]
        used = sum(array.nbytes for part in parts for array in part.columns().arrays.values())
        parts.append(of_weights(model, limit=max(0, limit - used), progress=progress))
    colors, numbers = _colors(model, captured, shown_overlay)
    packed = joined(parts).columns(asked=statistics, **replies, overlays=colors)
    return Columns({**packed.arrays, **arrays, **numbers}, packed.meta).to_bytes()


def _colors(
    model: Model, captured: Capture | None, chosen: Overlay | None
) -> tuple[list[dict[str, Any]], dict[str, NDArray[np.float64]]]:
    """Return what a page can be colored by: of each what it is, and its columns by its number."""
    found = [("own", overlay(model, name)) for name in OWN]
    if captured is not None:
        found += [("captured", overlay(model, captured, label=label)) for label in (*COSTS, *STATISTICS)]
    if chosen is not None:
        found = [(kind, made) for kind, made in found if made.label != chosen.label]
        found.append(("shown", chosen))
    found = [(kind, made) for kind, made in found if np.isfinite(made.nodes).any()]
    about = [
        {
            "kind": kind,
            "label": made.label,
            "scale": made.scale,
            "reduce": made.reduce,
            "unmatched": len(made.unmatched),
        }
        for kind, made in found
    ]
    columns = {}
    for number, (_, made) in enumerate(found):
        columns[f"overlay_{number}_nodes"], columns[f"overlay_{number}_groups"] = made.nodes, made.groups
    return about, columns


def _replies(
    model: Model, captured: Capture | None, progress: Progress | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the inspector says of each node and scope, equal texts once."""
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
    """Return the page as text.

    Parameters
    ----------
    summary
        Of the model.
    columns
        Of the model, as ``Columns.to_bytes`` packs them.
    baked
        What `bake` gives; the inspector says less without it.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.view.graph_columns import columns
    >>> from onnx_nb.analysis.cost.summary import summarize
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
    >>> model = onnx.parser.parse_model(text)
    >>> "default-src 'none'" in page(summary=summarize(model), columns=columns(model).to_bytes())
    True
    """
    return _document(summary.name, summary.to_json(), "summary", {"columns": columns, "baked": baked})


def pair_page(*, names: Sequence[str], parts: Mapping[str, bytes]) -> str:
    """Return a page with two graphs in step as text.

    Parameters
    ----------
    names
        Of the reference and the candidate.
    parts
        ``"reference"``, ``"candidate"`` and ``"differences"``, as ``Columns.to_bytes`` packs them, and what `bake`
        gives of each model, as ``"baked-reference"`` and ``"baked-candidate"``.
    """
    return _document(" and ".join(names), {"names": list(names)}, "pair", parts)


def simplification_page(account: Mapping[str, Any], parts: Mapping[str, bytes]) -> str:
    """Return a page with what a simplification did as text.

    Parameters
    ----------
    account
        What `onnx_nb.analysis.simplify.provenance.account` gives.
    parts
        As for `pair_page`. Those of a step that can be looked at have its number behind the name, ``"reference-1"``.
    """
    return _document(f"{account['name']} simplified", dict(account), "simplification", parts)


def comparison_page(comparison: Comparison, *, limit: int = DETAILS, progress: Progress | None = None) -> str:
    """Return a comparison as a page.

    Parameters
    ----------
    comparison
        Any.
    limit
        Bytes that histograms and the like of the worst points may take.
    progress
        Called with a fraction and a message; what it raises ends the work.

    Examples
    --------
    >>> from onnx_nb.analysis.compare.comparison import Comparison
    >>> "default-src 'none'" in comparison_page(Comparison("a.onnx", "b.onnx"))
    True
    """
    title = f"{comparison.reference} and {comparison.candidate}"
    parts = {"points": columns_of(comparison, details=limit, progress=progress).to_bytes()}
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
    """Write the page; the file appears whole or not at all.

    Parameters
    ----------
    path
        Where; folders on the way are made.
    text
        What `page`, `pair_page`, `simplification_page` or `comparison_page` gives.

    Raises
    ------
    OnnxNbError
        If the file cannot be written.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {quoted(str(target.parent))} cannot be made: {error.strerror or error}."
        raise OnnxNbError(message, advice="Choose a folder that you may write to.") from error
    with together() as files:
        files.add(target, [text.encode()])
    return target
