"""Checks of arguments: unknown keywords and values of a wrong type, by the signature of a function."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin

import numpy as np

from onnx_nb.analysis.foreign_names import KEYWORDS
from onnx_nb.analysis.formatting import closest_text, shortened

P = ParamSpec("P")
T = TypeVar("T")


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _are_names(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset | dict):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | np.ndarray)


def _are_points(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(each, str) or _are_names(each) for each in value)
    return _are_names(value)


def _has_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_a(name: str) -> _Kind:
    """Return the kind of a class of ours, which is not imported here."""
    return _Kind(f"a {name}", lambda value: any(base.__name__ == name for base in type(value).__mro__))


_NAMES: Final = _Kind("a list of names", _are_names)
_KINDS: Final[Mapping[str, _Kind]] = {
    "None": _Kind("None", lambda value: value is None),
    "bool": _Kind("True or False", lambda value: isinstance(value, bool | np.bool_)),
    "int": _Kind("a whole number", lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool)),
    "float": _Kind("a number", _is_number),
    "str": _Kind("a str", lambda value: isinstance(value, str)),
    "os.PathLike[str]": _Kind("a path", lambda value: isinstance(value, os.PathLike)),
    "Iterable[str]": _NAMES,
    "Sequence[str]": _NAMES,
    "Iterable[str | Iterable[str]]": _Kind("a list of names or of lists of names", _are_points),
    "Mapping": _Kind("a dict", lambda value: isinstance(value, Mapping)),
    "Mapping[str": _Kind("a dict by name", _has_names),
    **dict.fromkeys(("Predicate", "Progress"), _Kind("a function", callable)),
    "concurrent.futures.Executor": _Kind("an executor with submit()", lambda value: hasattr(value, "submit")),
    **{name: _is_a(name) for name in ("Alignment", "Capture", "Comparison", "Recording")},
}
"""Part of an annotation → what it accepts. Other types are checked where they are used."""


def known_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: it raises a `TypeError` that names ours for an unknown keyword argument, and what fits.

    Examples
    --------
    >>> @known_arguments
    ... def count(model: str, *, shapes: int = 0) -> int:
    ...     return shapes
    >>> count("m", input_shapes=1)
    Traceback (most recent call last):
    TypeError: count() has no argument 'input_shapes'. Use shapes=.
    >>> count("m", shapes="2")
    Traceback (most recent call last):
    TypeError: count() takes shapes as a whole number, not '2'.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())

    @functools.cache
    def kinds() -> dict[str, list[_Kind]]:
        found = {name: _kinds_of(str(each.annotation), function) for name, each in signature.parameters.items()}
        return {name: each for name, each in found.items() if each}

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        unknown = next((name for name in kwargs if name not in parameters), None)
        if unknown is not None and not takes_any:
            ours = (each for each in KEYWORDS.get(unknown, "").split(" ") if each.partition("=")[0] in parameters)
            hint = next((f"Use {each}." for each in ours), closest_text(unknown, parameters))
            hint = hint or f"Its arguments are {', '.join(parameters)}."
            msg = f"{function.__name__}() has no argument {unknown!r}. {hint}"
            raise TypeError(msg)
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            accepted = kinds().get(name)
            if accepted is not None and not any(kind.fits(value) for kind in accepted):
                words = " or ".join(dict.fromkeys(kind.words for kind in accepted))
                msg = f"{function.__name__}() takes {name} as {words}, not {_described(value)}."
                raise TypeError(msg)
        return function(*args, **kwargs)

    return checked


def _kinds_of(annotation: str, function: Callable[..., Any]) -> list[_Kind]:
    """Return what an annotation accepts; empty if a part of it is unknown."""
    parts, depth = [""], 0
    for piece in re.split(r"(\[|\]| \| )", annotation):
        depth += (piece == "[") - (piece == "]")
        parts[-1:] = [parts[-1], ""] if piece == " | " and not depth else [parts[-1] + piece]
    found = []
    for part in parts:
        named = getattr(inspect.getmodule(function), part, None)
        if get_origin(named) is Literal:
            choices = get_args(named)
            found.append(_Kind(" or ".join(map(repr, choices)), functools.partial(_is_choice, choices)))
        elif keys := [key for key in (part, part.partition(", ")[0], part.partition("[")[0]) if key in _KINDS]:
            found.append(_KINDS[keys[0]])
        else:
            return []
    return found


def _is_choice(choices: tuple[Any, ...], value: Any) -> bool:
    return isinstance(value, str) and value in choices


def _described(value: Any) -> str:
    if isinstance(value, str | int | float | bytes | None):
        return shortened(repr(value), 60)
    if isinstance(value, list | tuple | set | frozenset):
        others = [each for each in value if not isinstance(each, str)]
        return f"a {type(value).__name__} with {_described(others[0])}" if others else f"a {type(value).__name__}"
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
