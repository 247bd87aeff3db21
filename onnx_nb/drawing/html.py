"""The graph as one HTML file: live, offline, nothing fetched, and nothing in it but our bundle may run.

The page's content security policy forbids everything except the very bytes of the bundle (by hash) and inline styles;
what comes from the model is data in elements that the browser does not interpret.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_nb.analysis.errors import OnnxNbError, shown
from onnx_nb.analysis.writing import together

if TYPE_CHECKING:
    from onnx_nb.analysis.summary import Summary

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
<noscript>This page draws the graph of {title} with JavaScript, all of which is in the page itself.</noscript>
<script type="application/json" id="onnx-nb-summary">{summary}</script>
<script type="text/plain" id="onnx-nb-columns">{columns}</script>
<script type="module">{bundle}</script>
</body>
</html>
"""
_STYLE = "html{color-scheme:light dark}body{margin:0;padding:12px;font-family:system-ui,sans-serif}"


def page(*, summary: Summary, columns: bytes) -> str:
    """Give the page as text.

    Parameters
    ----------
    summary
        Of the model.
    columns
        Of the model, as ``Columns.to_bytes`` packs them.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.columns import columns
    >>> from onnx_nb.analysis.summary import summarize
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
    >>> model = onnx.parser.parse_model(text)
    >>> "default-src 'none'" in page(summary=summarize(model), columns=columns(model).to_bytes())
    True
    """
    # in a script element only "</script" and "<!--" could end or change it; the bundle is ours and built without them
    bundle = resources.files("onnx_nb").joinpath("static/widget.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(bundle.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    data = json.dumps(summary.to_json(), ensure_ascii=True)
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return _PAGE.format(
        policy=policy,
        title=html.escape(summary.name[:200]),
        style=_STYLE,
        summary=data,
        columns=base64.b64encode(columns).decode(),
        bundle=bundle,
    )


def write_page(path: str | os.PathLike[str], *, summary: Summary, columns: bytes) -> Path:
    """Write the page; the file appears whole or not at all.

    Parameters
    ----------
    path
        Where; folders on the way are made.
    summary, columns
        As for `page`.

    Raises
    ------
    OnnxNbError
        If the file cannot be written.
    """
    target = Path(path)
    text = page(summary=summary, columns=columns)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {shown(str(target.parent))} cannot be made: {error.strerror or error}."
        raise OnnxNbError(message, advice="Choose a folder that you may write to.") from error
    with together() as files:
        files.add(target, [text.encode()])
    return target
