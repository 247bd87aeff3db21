"""The picture beside a live widget: what GitHub, an untrusted notebook or one without its kernel shows of it.

Such places ignore a widget's output, and what it brings along for the case, so the picture is an output of its own. It
starts empty, or as a table; the browser draws it when it has drawn the widget, and hides it as long as the widget is
alive there.
"""

from __future__ import annotations

import base64
import html
import secrets
import sys
from typing import Any

from onnx_nb.analysis.errors import OnnxNbError

LIMIT = 2_000_000
"""A picture of more bytes is not put into the notebook."""


class Picture:
    """The picture of one widget.

    Parameters
    ----------
    text
        What to say where pictures are not shown.
    still
        What is shown until the browser drew; HTML that runs nothing.

    Examples
    --------
    >>> Picture("of <g>").html("<svg/>")
    '<img class="onnx-nb-picture onnx-nb-picture-..." alt="of &lt;g&gt;" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """

    def __init__(self, text: str, still: str = "") -> None:
        self.id = secrets.token_hex(8)
        """By which the browser knows the picture of its widget, also when the notebook is opened again."""
        self._text = text
        self._still = still
        self._shown = False

    def show(self) -> None:
        """Put the output before the one that is about to show the widget; nothing outside a notebook."""
        if _in_notebook():
            from IPython.display import HTML, display

            display(HTML(self._place()), display_id=self._display_id, metadata={})
            self._shown = True

    def draw(self, svg: str) -> None:
        """Fill the output with what the browser drew.

        Raises
        ------
        OnnxNbError
            If it is no SVG, or larger than `LIMIT`.
        """
        if not svg.startswith("<svg ") or len(svg) > LIMIT:
            raise OnnxNbError("this is no picture that fits into a notebook.")
        if self._shown:
            from IPython.display import HTML, update_display

            update_display(HTML(self.html(svg)), display_id=self._display_id)

    def html(self, svg: str) -> str:
        """Return the picture as an element that runs nothing: scripts in an image are dead."""
        data = base64.b64encode(svg.encode("utf-8", "replace")).decode()
        source = f"data:image/svg+xml;base64,{data}"
        return f'<img class="{self._class}" alt="{html.escape(self._text)}" src="{source}">'

    def _place(self) -> str:
        return f'<div class="{self._class}">{self._still}</div>'

    @property
    def _class(self) -> str:
        return f"onnx-nb-picture onnx-nb-picture-{self.id}"

    @property
    def _display_id(self) -> str:
        return f"onnx_nb-{self.id}"


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell: Any = get_ipython()
    return getattr(shell, "kernel", None) is not None
