"""What the widgets use of other packages without a promise of theirs: all of it, and what becomes of us without it.

Each part is named in ``private_parts.toml``; `tests/widgets/test_hosts.py` looks for it in the versions that are
installed, and names the one that is gone.
The browser's are in ``frontend/hosts/``.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import anywidget
import ipywidgets


def in_marimo() -> bool:
    return "marimo" in sys.modules and bool(sys.modules["marimo"].running_in_notebook())


def model_version() -> str:
    """Return the version of anywidget's own models, which a model of ours without a view has to state."""
    return str(anywidget.AnyWidget._model_module_version.default_value)  # noqa: SLF001 - private_parts.toml


class ReopeningWidget(ipywidgets.Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A widget that opens again, after `close`, when it is displayed or another widget refers to it."""

    @property
    def model_id(self) -> str:
        if self.comm is None:
            self.open()
        return str(super().model_id)

    def close(self) -> None:
        """Disconnect from the browser, which removes the views."""
        super().close()
        self.__dict__.pop("_repr_mimebundle_", None)  # ipywidgets would display it no more

    def show_picture(self) -> None:
        """Output a picture before the widget is displayed, if it has one; do nothing outside a notebook."""

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        self.show_picture()
        self.open()
        _note_display(self)
        return super()._repr_mimebundle_(**kwargs)


class HostedWidget(ReopeningWidget, anywidget.AnyWidget):
    """A widget that hears its browser while cells run, on a thread of its own, and shares no lock with them."""

    def __init__(self, **traits: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(**traits)

    def open(self) -> None:
        """Connect the widget to the browser; a kernel with subshells receives its messages while cells run.

        Without this, ipykernel ≥ 7.4 passes them to the shell that sent last: the one that runs the cells.
        """
        is_new = self.comm is None
        super().open()
        if is_new and hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = lambda _message, subshell: subshell  # noqa: SLF001 - private_parts.toml
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


def running_shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def prepare_shell() -> None:
    """Make IPython output the pictures of our widgets in boxes, and close what a cell displayed in its last run."""
    shell = running_shell()
    display = getattr(shell, "display_formatter", None)
    if display is not None and ipywidgets.Box not in display.mimebundle_formatter:
        display.mimebundle_formatter.for_type(ipywidgets.Box, _box_bundle)
        shell.events.register("post_run_cell", lambda _result: _close_former(*_cell(shell)))


def _box_bundle(box: ipywidgets.Box) -> Any:
    """Return what a box displays by itself, after the pictures of what it holds."""
    if not hasattr(box, "show_picture"):
        _show_pictures(box)
    return box._repr_mimebundle_()


def _show_pictures(box: Any) -> None:
    for child in getattr(box, "children", ()):
        if hasattr(child, "show_picture"):
            child.show_picture()
        else:
            _show_pictures(child)


_places: Final[WeakKeyDictionary[Any, dict[str, str]]] = WeakKeyDictionary()
"""Widget of ours that was displayed → cells that show it, and the last run of each that displayed it."""


def _cell(shell: Any) -> tuple[str, str]:
    """Return the id of the running cell, empty if the page sends none, and the id of this run."""
    request: dict[str, Any] = getattr(shell, "get_parent", dict)()
    return (request.get("metadata") or {}).get("cellId") or "", (request.get("header") or {}).get("msg_id", "")


def _parts(widget: Any) -> list[Any]:
    return [widget, *getattr(widget, "children", ())]


def _note_display(widget: Any) -> None:
    shell = running_shell()
    cell, run = _cell(shell)
    # what an Output or %%capture keeps may be holders by other cells later: no cell closes it
    is_capture = type(getattr(shell, "display_pub", None)).__name__.startswith("Capturing")
    if is_capture or any(getattr(other, "msg_id", None) == run for other in list(_open_widgets().values())):
        cell = ""
    for part in _parts(widget):
        _places.setdefault(part, {})[cell] = run


def _open_widgets() -> dict[str, Any]:
    return getattr(ipywidgets.widgets.widget, "_instances", {})  # private_parts.toml


def _close_former(cell: str, run: str) -> None:
    """Close our widgets that earlier runs of a cell displayed, unless another cell or widget shows them."""
    for places in list(_places.values()) if cell else ():
        if places.get(cell, run) != run:
            del places[cell]
    former, holders = {}, []
    for name, widget in list(_open_widgets().items()):
        if any(_places.get(part, True) for part in _parts(widget)):
            holders.append(widget)
        else:
            former[name] = widget
    while holders and former:
        holder = holders.pop()
        if not isinstance(holder, HostedWidget):  # those hold no other
            state = repr(holder.get_state())
            holders += [former.pop(name) for name in list(former) if name in state]
    for widget in former.values():
        if all(part.comm is None or part in former.values() for part in _parts(widget)):
            widget.close()
