"""One page with several results: tabs, one copy of the bundle and of each model, no network."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.cost.costs import Costs
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.results import Displayed, Table
from onnx_nb.drawing.html import Content, image_of, report_page, still_html, table_of, write_page
from onnx_nb.notebook.display import widget_of

_KINDS = (
    "a model or its path as a pathlib.Path, a result of onnx_nb, one of its widgets, a matplotlib figure, a DataFrame, "
    "a list of dicts, or Markdown as a str"
)


@known_arguments
def report(path: str | os.PathLike[str], parts: Mapping[str, Any], *, title: str = "") -> Path:
    """Write several results as one page with tabs, which needs neither kernel nor network.

    The page holds the program and the columns of each model once. Its tabs have addresses: ``report.html#errors`` opens
    the part "Errors". A tensor that is selected in one part is selected in each other part that has it.

    Parameters
    ----------
    path
        The file to write. Missing folders are created; the file appears only when complete.
    parts
        Title → part: a model or its path as a `pathlib.Path`, a result that has a widget, a widget as it is, another
        result with ``rows()``, a matplotlib figure, a DataFrame, a list of dicts, or Markdown as a ``str``.
    title
        Title of the page; by default that of the file.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    OnnxNbError
        If there is no part, a part cannot be shown, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { z = Relu(x) }'
    >>> model = onnx.parser.parse_model(text)
    >>> page = report(Path(tempfile.mkdtemp()) / "report.html", {"Model": model, "Notes": "*Relu* only."})
    >>> page.name
    'report.html'
    """
    if not parts:
        raise OnnxNbError("a report needs parts.", advice='Pass a dict: {"Model": model, "Errors": comparison}.')
    contents: list[tuple[str, Content | str]] = []
    sources: list[Model] = []
    for name, part in parts.items():
        if not name.strip():
            raise OnnxNbError("a part of the report has no title.", advice="Use a text for each key of parts.")
        content, models = _content(name, part)
        contents.append((name.strip(), content))
        sources += models
    return write_page(path, report_page(title or Path(path).stem, contents), sources)


def _content(name: str, part: Any) -> tuple[Content | str, Iterable[Model]]:
    """Return a part as the content of a widget or as HTML, and the models that it shows."""
    from onnx_nb.widgets._base import PackedWidget
    from onnx_nb.widgets.graph import ModelView

    if isinstance(part, str):
        return markdown(part), ()
    if hasattr(part, "savefig"):
        return image_of(part, name), ()
    if hasattr(part, "columns") and hasattr(part, "itertuples"):
        rows = [tuple(map(str, row)) for row in part.itertuples(index=False, name=None)]
        return table_of([str(column) for column in part.columns], rows), ()
    if isinstance(part, Sequence) and part and all(isinstance(row, Mapping) for row in part):
        return _rows(part), ()
    if not isinstance(part, PackedWidget | ModelView):
        if isinstance(part, Displayed) and part._panel() is None:  # noqa: SLF001
            return still_html(part), ()
        if isinstance(part, Table | Costs) and not isinstance(part, Displayed):
            return _rows(part.rows()), ()
        try:
            widget = widget_of(part)
        except TypeError as error:
            message = f"the part {quoted(name)} is a {type(part).__name__}, which a page cannot show."
            raise OnnxNbError(message, advice=f"A part is {_KINDS}.") from error
        with contextlib.closing(widget):
            return _content(name, widget)
    if isinstance(part, ModelView):
        part = part.graph  # a page of a graph has the summary as well
    return part._content(), part._sources()  # noqa: SLF001 - of our widgets


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    return table_of(heads, [tuple("" if row.get(head) is None else str(row[head]) for head in heads) for row in rows])


def markdown(text: str) -> str:
    r"""Return Markdown as HTML, with tables and check boxes; tags in it are text, and it loads nothing.

    Examples
    --------
    >>> markdown("# Done\n- [x] `int8` & **fast**")
    '<h2>Done</h2>\n<ul>\n<li>☑ <code>int8</code> &amp; <strong>fast</strong></li>\n</ul>\n'
    """
    # the preset takes HTML as text and refuses links that run; a picture would ask another host
    parser = MarkdownIt("js-default").disable(["image", "lheading"])
    # rules of lists see characters, not check boxes
    text = re.sub(r"(?m)^(\s*(?:[-*+]|\d+\.) +)\[ \] ", "\\1☐ ", text)
    tokens = parser.parse(re.sub(r"(?m)^(\s*(?:[-*+]|\d+\.) +)\[[xX]\] ", "\\1☑ ", text))
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"  # the title of the page is the only h1
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noreferrer")
    return str(parser.renderer.render(tokens, parser.options, {}))
