"""What a notebook lends to analysis, which knows none: how results are displayed, and what its cells are called.

``onnx_nb/__init__.py`` sets both hooks to functions of `onnx_nb.notebook.display`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _as_text(result: Any, _include: Any, _exclude: Any) -> Any:
    return {"text/plain": repr(result)}


def _no_cell(_file: str) -> str:
    return ""


display: Callable[[Any, Any, Any], Any] = _as_text
"""Return the MIME bundle of a model or a result."""

cell_name: Callable[[str], str] = _no_cell
"""Return the name of the cell that a file is, as ``In[2]``; empty for any other file."""


class Displayed:
    """Base of models and results: they display as widgets in a notebook and as text elsewhere."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return display(self, include, exclude)
