"""A few calls of public functions: written as the Python that a person could run instead, and run."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onnx_nb.analysis.progress import Progress, stage

_MODULES: Final = ("onnx_nb", "pathlib")
_PATIENCE, _EVERY = 0.3, 0.1
"""Seconds before the progress is drawn, and between two drawings."""


class Source(str):
    """Python source, such as the name of a variable: written as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class ScriptCall:
    """``into = function(*args, **kwargs)``; the function is a dotted name."""

    function: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    into: str

    def __repr__(self) -> str:
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        call = f"{self.function}({', '.join(arguments)})"
        return f"{self.into} = {call}" if self.into else call


@dataclass
class Script:
    """Calls, in order."""

    calls: list[ScriptCall] = field(default_factory=list)

    def call(self, function: str, *args: Any, into: str = "", **kwargs: Any) -> Source:
        """Add a call, without the keywords that are None or empty; return its result as source."""
        options = {name: value for name, value in kwargs.items() if value is not None and value not in ((), {}, "")}
        self.calls.append(ScriptCall(function, args, options, into))
        return Source(into)

    def rename(self, old: str, new: str) -> None:
        """Rename a variable."""

        def renamed(argument: Any) -> Any:
            if isinstance(argument, Source):
                return Source(new) if argument == old else argument
            if isinstance(argument, Mapping):
                return {name: renamed(value) for name, value in argument.items()}
            return argument

        for at, call in enumerate(self.calls):
            first, dot, rest = call.function.partition(".")
            function = f"{new}{dot}{rest}" if first == old else call.function
            args = tuple(map(renamed, call.args))
            self.calls[at] = ScriptCall(function, args, renamed(call.kwargs), new if call.into == old else call.into)

    def code(self) -> str:
        """Return the calls as Python."""
        lines = [str(call) for call in self.calls]
        imports = [f"import {name}" for name in _MODULES if any(f"{name}." in line for line in lines)]
        return "\n".join([*imports, "", *lines])

    def run(self, variables: Mapping[str, Any] | None = None, progress: Progress | None = None) -> dict[str, Any]:
        """Run the calls; return their results by variable, that of the last one also as ``""``."""
        scope: dict[str, Any] = {**(variables or {})}
        results: dict[str, Any] = {}
        for at, call in enumerate(self.calls):
            part = stage(progress, at / len(self.calls), (at + 1) / len(self.calls))
            results[call.into] = results[""] = scope[call.into] = _run(call, scope, part)
        return results


def _run(call: ScriptCall, scope: Mapping[str, Any], progress: Progress | None) -> Any:
    function = _value(Source(call.function), scope)
    args = [_value(value, scope) for value in call.args]
    kwargs = {name: _value(value, scope) for name, value in call.kwargs.items()}
    if progress is not None and "progress" in inspect.signature(function).parameters:
        kwargs["progress"] = progress
    return function(*args, **kwargs)


def _value(argument: Any, scope: Mapping[str, Any]) -> Any:
    """Return the value of an argument: of source, of a call, of what has them inside, or itself."""
    if isinstance(argument, ScriptCall):
        return _run(argument, scope, None)
    if isinstance(argument, Mapping):
        return {name: _value(part, scope) for name, part in argument.items()}
    if isinstance(argument, tuple | list):
        return type(argument)(_value(part, scope) for part in argument)
    if not isinstance(argument, Source):
        return argument
    modules = {name: importlib.import_module(name) for name in _MODULES if f"{name}." in argument}
    return eval(argument, modules, scope)  # noqa: S307 (ours, or what a person wrote into a cell)


@contextlib.contextmanager
def shown_progress(draw: Progress, erase: Callable[[], None]) -> Iterator[Progress]:
    """Return a callback that draws at most every tenth of a second, and erase at the end what was drawn."""
    start = last = time.monotonic() + _PATIENCE - _EVERY

    def report(fraction: float, what: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            draw(fraction, what)

    try:
        yield report
    finally:
        if last != start:
            erase()
