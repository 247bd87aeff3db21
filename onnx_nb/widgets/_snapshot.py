"""The snapshot of a widget for GitHub, untrusted notebooks, and notebooks without their kernel.

Such places ignore a widget's output and its fallbacks, so the picture is an output of its own. It starts empty or as a
table. The browser draws it after the widget, and hides it while the widget is shown.
"""

from __future__ import annotations

import base64
import html
import secrets
import sys
from typing import Any

from onnx_nb.analysis.errors import OnnxNbError

LIMIT = 2_000_000
"""Bytes of a picture up to which it is put into the notebook."""


class Picture:
    """The picture of one widget.

    Parameters
    ----------
    text
        Description for places that show no pictures.
    still
        Static HTML that is shown until the browser has drawn the picture.

    Examples
    --------
    >>> Picture("of <g>").html("<svg/>")
    '<img class="onnx-nb-picture onnx-nb-picture-..." alt="of &lt;g&gt;" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """

    def __init__(self, text: str, still: str = "") -> None:
        self.id = secrets.token_hex(8)
        """Id by which the browser finds the picture of its widget, also in a reopened notebook."""
        self._text = text
        self._still = still
        self._shown = False

    def show(self) -> None:
        """Put the output before that of the widget; does nothing outside a notebook."""
        if _in_notebook():
            from IPython.display import HTML, display

            display(HTML(self._place()), display_id=self._display_id, metadata={})
            self._shown = True

    def draw(self, svg: str) -> None:
        """Fill the output with the SVG that the browser drew; raise `OnnxNbError` for anything else."""
        if not svg.startswith("<svg ") or len(svg) > LIMIT:
            raise OnnxNbError("the picture is not an SVG, or too large for a notebook.")
        if self._shown:
            from IPython.display import HTML, update_display

            update_display(HTML(self.html(svg)), display_id=self._display_id)

    def html(self, svg: str) -> str:
        """Return the picture as an image, in which scripts do not run."""
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
