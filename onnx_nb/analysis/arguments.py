"""Checks of arguments: an unknown keyword is named with ours or the nearest, a value of a wrong type with what fits."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar, get_args

import numpy as np

from onnx_nb.analysis import foreign_names, progress
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, shortened

P = ParamSpec("P")
T = TypeVar("T")
Kind = tuple[str, Callable[[Any], bool]]
"""What a parameter takes, in words and as a test of a value."""


def _is_name_list(value: Any, *, has_lists: bool = False) -> bool:
    if isinstance(value, list | tuple | set | frozenset | dict):
        return all(isinstance(name, str) or (has_lists and _is_name_list(name)) for name in value)
    return isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | np.ndarray)


def _is_number(value: Any, kind: type = numbers.Integral) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_WHOLE: Final[Kind] = ("a whole number", _is_number)
TEXT: Final[Kind] = ("a str", lambda value: isinstance(value, str))
_DEFAULTS: Final[Mapping[type, Kind]] = {
    bool: ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: _WHOLE,
    float: ("a number", lambda value: _is_number(value, numbers.Real)),
    str: TEXT,
}
"""Type of a parameter's default → what it takes."""
_PARAMETERS: Final[Mapping[str, Kind]] = {
    name: kind
    for names, kind in {
        "around kind label location name optimization reduce scale which": TEXT,
        "at scopes": (
            "a whole number, or a list of names or of lists of names",
            lambda value: _is_number(value) or _is_name_list(value, has_lists=True),
        ),
        "capture": ("a Capture", lambda value: hasattr(value, "array_names")),
        "comparison": ("a Comparison", lambda value: hasattr(value, "points")),
        "custom_ops data_dir path": ("a path or a str", lambda value: isinstance(value, str | os.PathLike)),
        "executor": ("an executor with submit()", lambda value: hasattr(value, "submit")),
        "exclude highlight inputs open order outputs providers skip tensors": ("a list of names", _is_name_list),
        "keep": ("a list of names or a function", lambda value: callable(value) or _is_name_list(value)),
        "constants kwargs mapping parts shapes state"
        " align.feeds compare_torch.feeds dtype.types free.axes rename.names": (
            "a dict by name",
            lambda value: isinstance(value, Mapping) and all(isinstance(key, str | None) for key in value),
        ),
        "count ir memory_limit opset sessions shard_size threads undo.step": _WHOLE,
        "progress stop_at": ("a function", callable),
        "recording": ("what record() returns", lambda value: hasattr(value, "cls")),
        "compare_torch.alignment": ("what align() returns", lambda value: hasattr(value, "matches")),
    }.items()
    for name in names.split()
}
"""Parameter, or function and parameter → what it takes: a name means one thing in all functions."""


def known_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: an unknown keyword or a value of a wrong type is a `TypeError`; in a cell it shows a bar."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    kinds = {
        name: _DEFAULTS.get(type(p.default), _PARAMETERS.get(f"{function.__name__}.{name}", _PARAMETERS.get(name)))
        for name, p in parameters.items()
    }

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        unknown = next((name for name in kwargs if name not in parameters), None)
        if unknown is not None and not takes_any:
            uses = foreign_names.table("keywords").get(unknown, "").split(" ")
            counterparts = (use for use in uses if use.partition("=")[0] in parameters)
            hint = next((f"Use {use}." for use in counterparts), closest_text(unknown, parameters))
            hint = hint or f"Its arguments are {', '.join(parameters)}."
            raise TypeError(f"{function.__name__}() has no argument {unknown!r}. {hint}")
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            kind, default = kinds.get(name), parameters[name].default if name in parameters else None
            if kind is not None and value is not default and not kind[1](value):
                words = f"{kind[0]} or None" if default is None else kind[0]
                raise TypeError(f"{function.__name__}() takes {name} as {words}, not {_described(value)}.")
        if "progress" not in parameters or kwargs.get("progress") is not None:
            return function(*args, **kwargs)
        with progress.bars[-1]() as kwargs["progress"]:
            return function(*args, **kwargs)

    return checked


def check_choice(parameter: str, value: object, choices: Any) -> None:
    """Raise an `OnnxNbError` unless a value is None or one of those of a ``Literal``."""
    if value is not None and value not in get_args(choices):
        advice = f"Use {' or '.join(map(repr, get_args(choices)))}."
        raise OnnxNbError(f"there is no {parameter} {value!r}.", advice=advice)


def _described(value: Any) -> str:
    if isinstance(value, str | int | float | bytes | None):
        return shortened(repr(value), 60)
    if isinstance(value, list | tuple | set | frozenset):
        odd = [element for element in value if not isinstance(element, str)]
        return f"a {type(value).__name__} with {_described(odd[0])}" if odd else f"a {type(value).__name__}"
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
