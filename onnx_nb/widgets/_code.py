"""The bundle in the browser: one copy a kernel and a saved notebook, which every widget refers to.

Each widget's own module is a stub of a kilobyte. It takes the bundle from the shared model by reference, as ipywidgets
refer to each other: tried in JupyterLab, html-manager, and marimo with its kernel. Where a reference cannot be
resolved, the stub asks the kernel for the code. marimo serves equal modules once by itself, so its widgets carry the
bundle, which its static exports then hold.
"""

from __future__ import annotations

import functools
import sys
from importlib import resources
from typing import Final

import ipywidgets
import traitlets

STATIC: Final = resources.files("onnx_nb") / "static"


@functools.cache
def bundle() -> str:
    """Return the text of the bundle."""
    return (STATIC / "widget.js").read_text(encoding="utf-8")


@functools.cache
def stub() -> str:
    """Return the text of the module that loads the bundle."""
    return (STATIC / "stub.js").read_text(encoding="utf-8")


class SharedCode(ipywidgets.Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A model without a view that holds the bundle."""

    code = traitlets.Unicode().tag(sync=True)
    """Text of the bundle."""


_shared: SharedCode | None = None


def shared_code() -> SharedCode | None:
    """Return this kernel's copy of the bundle; None in a host where models cannot refer to each other."""
    global _shared  # noqa: PLW0603 - one a kernel, as the widgets' own registry
    if _in_marimo():
        return None
    if _shared is None or _shared.comm is None:  # closed, as by Widget.close_all()
        _shared = SharedCode(code=bundle())
    return _shared


def _in_marimo() -> bool:
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())
