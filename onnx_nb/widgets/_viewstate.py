"""The trait `ModelGraph.view`: what a person sees of a graph, checked so that a typing error does not pass silently."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from traitlets import TraitError

from onnx_nb.analysis.formatting import quoted

_CAMERA = ("x", "y", "zoom")
_BOOKMARK = ("name", "selection", "open", "camera")
_KEYS = ("open", "camera", "column_height", "brief", "search", "color", "bookmarks")


def checked(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return a view as the browser takes it; raise `TraitError` for an unknown key or a wrong value."""
    _known(view, _KEYS, "view")
    found: dict[str, Any] = {}
    if "open" in view:
        found["open"] = _names(view["open"], "view['open']")
    if "camera" in view:
        found["camera"] = _camera(view["camera"], "view['camera']")
    if "column_height" in view:
        height = view["column_height"]
        if isinstance(height, bool) or not isinstance(height, int | float) or not 0 <= height < math.inf:
            raise TraitError(f"view['column_height'] is a number, 0 or more, not {quoted(repr(height))}.")
        found["column_height"] = height
    if "brief" in view:
        if not isinstance(view["brief"], bool):
            raise TraitError(f"view['brief'] is True or False, not {quoted(repr(view['brief']))}.")
        found["brief"] = view["brief"]
    if "search" in view:
        found["search"] = _text(view["search"], "view['search']")
    if "color" in view:
        found["color"] = None if view["color"] is None else _text(view["color"], "view['color']")
    if "bookmarks" in view:
        given = view["bookmarks"]
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise TraitError(f"view['bookmarks'] is a list, not {quoted(repr(given))}.")
        found["bookmarks"] = [_bookmark(each, f"view['bookmarks'][{at}]") for at, each in enumerate(given)]
    return found


def _bookmark(given: object, what: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise TraitError(f"{what} is a dict with {', '.join(_BOOKMARK)}, not {quoted(repr(given))}.")
    _known(given, _BOOKMARK, what)
    if missing := [key for key in ("name", "open", "camera") if key not in given]:
        raise TraitError(f"{what} lacks {', '.join(missing)}.")
    selection = given.get("selection")
    if selection is not None and not (isinstance(selection, Mapping) and {"kind", "name"} <= set(selection)):
        raise TraitError(f"{what}['selection'] is None or a dict with kind and name, not {quoted(repr(selection))}.")
    return {
        "name": _text(given["name"], f"{what}['name']"),
        "selection": None if selection is None else dict(selection),
        "open": _names(given["open"], f"{what}['open']"),
        "camera": _camera(given["camera"], f"{what}['camera']"),
    }


def _camera(given: object, what: str) -> dict[str, float]:
    if not isinstance(given, Mapping) or set(given) != set(_CAMERA):
        raise TraitError(f"{what} is a dict with {', '.join(_CAMERA)}, not {quoted(repr(given))}.")
    numbers = {key: given[key] for key in _CAMERA}
    odd = [key for key, number in numbers.items() if isinstance(number, bool) or not isinstance(number, int | float)]
    if odd or not 0 < numbers["zoom"] < float("inf") or not abs(numbers["x"] + numbers["y"]) < float("inf"):
        raise TraitError(f"{what} holds finite numbers, zoom above 0, not {quoted(repr(given))}.")
    return numbers


def _known(given: Mapping[str, Any], keys: tuple[str, ...], what: str) -> None:
    for key in given:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TraitError(f"{what} has no {quoted(str(key))}.{hint} It has {', '.join(keys)}.")


def _names(given: object, what: str) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TraitError(f"{what} is a list of paths of scopes, not {quoted(repr(given))}.")
    return [_text(name, f"an entry of {what}") for name in given]


def _text(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise TraitError(f"{what} is a str, not {quoted(repr(given))}.")
    return given
