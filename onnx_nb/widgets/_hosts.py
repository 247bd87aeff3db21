"""What the widgets use of other packages without a promise of theirs: all of it, and what becomes of us without it.

`tests/widgets/test_hosts.py` looks for each part in the versions that are installed, and names the one that is gone.
The browser's are in ``frontend/hosts/``.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anywidget
import ipywidgets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class PrivatePart(NamedTuple):
    """A part of another package that may change without notice."""

    name: str
    """Where it is: module and attributes, as ``"ipywidgets:Widget._handle_msg"``."""
    tried: str
    """Versions with which our tests ran."""
    upstream: str
    """Where its package discusses it; empty if it does not, as far as we know."""
    without: str
    """What happens when it goes away."""


PRIVATE: Final = (
    PrivatePart(
        "anywidget:AnyWidget._model_module_version",
        "anywidget 0.9.18 to 0.11.0",
        "https://github.com/manzt/anywidget/issues/613",
        "The model that holds the bundle needs another version; without one, each widget carries 400 kB of its own.",
    ),
    PrivatePart(
        "ipykernel.comm:Comm._reply_subshell_for",
        "ipykernel 7.4 (older ones have none, and need none)",
        "https://github.com/jupyterlab/jupyterlab/pull/17363",
        "A click while a cell runs waits for the cell.",
    ),
    PrivatePart(
        "ipywidgets:Widget._handle_msg",
        "ipywidgets 8.1.0 to 8.1.9",
        "https://github.com/ipython/ipykernel/issues/1564",
        "A click while a cell runs draws and closes the figures that the cell is still making.",
    ),
    PrivatePart(
        "ipywidgets:Widget._property_lock",
        "ipywidgets 8.1.0 to 8.1.9",
        "",
        "A trait that a cell sets while a click sets it may not reach the page.",
    ),
)


def in_marimo() -> bool:
    """Return whether this runs in a marimo notebook."""
    return "marimo" in sys.modules and bool(sys.modules["marimo"].running_in_notebook())


def model_version() -> str:
    """Return the version of anywidget's own models, which a model of ours without a view has to state."""
    return str(anywidget.AnyWidget._model_module_version.default_value)  # noqa: SLF001 - PRIVATE


class HostedWidget(anywidget.AnyWidget):
    """A widget that hears its browser while cells run, on a thread of its own, and shares no lock with them."""

    def __init__(self, **traits: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(**traits)

    def open(self) -> None:
        """Connect the widget to the browser; a kernel with subshells receives its messages while cells run.

        Without this, ipykernel ≥ 7.4 passes them to the shell that sent last: the one that runs the cells.
        """
        super().open()
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = lambda _message, subshell: subshell  # noqa: SLF001 - PRIVATE
            self.comm.handle_msg = functools.partial(self._receive, self.comm.handle_msg)

    def _receive(self, handle: Any, message: Any) -> None:
        """Pass a message on; on the thread of a subshell without IPython's events.

        After each message ipykernel triggers `post_execute`, at which the inline backend draws and closes the figures:
        while a cell runs, those that it is still making.
        """
        if threading.current_thread() is threading.main_thread():
            handle(message)
        else:
            self._handle_msg(message)

    @property
    def _property_lock(self) -> dict[str, Any]:
        """The traits that a page is setting on this thread; ipywidgets would share them with a cell that sets one."""
        return getattr(self._of_thread, "property_lock", {})

    @_property_lock.setter
    def _property_lock(self, traits: dict[str, Any]) -> None:
        self._of_thread.property_lock = traits


def is_from_page(request: Mapping[str, Any]) -> bool:
    """Return whether a page, which draws what a cell displays, asked to run the cell; nbconvert sends no such key."""
    return "deletedCells" in (request.get("metadata") or {})


def show_pictures_of_boxes() -> None:
    """Make IPython output the pictures of our widgets when a box of ipywidgets that holds them is displayed."""
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    display = getattr(get_ipython(), "display_formatter", None)
    if display is not None and ipywidgets.Box not in display.mimebundle_formatter:
        display.mimebundle_formatter.for_type(ipywidgets.Box, _box_bundle)


def _box_bundle(box: ipywidgets.Box) -> Any:
    """Return what a box displays by itself, after the pictures of what it holds."""
    if not hasattr(box, "show_picture"):
        for widget in _pictured(box):
            widget.show_picture()
    return box._repr_mimebundle_()


def _pictured(box: Any) -> Iterator[Any]:
    """Yield the widgets in a box that have a picture."""
    for child in getattr(box, "children", ()):
        if hasattr(child, "show_picture"):
            yield child
        else:
            yield from _pictured(child)
