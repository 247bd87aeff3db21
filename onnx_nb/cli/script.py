"""A few calls of public functions: written as the Python that a person could run instead, and run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_MODULES: Final = ("onnx_nb", "pathlib")


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
        return f"{self.into} = {self.function}({', '.join(arguments)})"


@dataclass
class Script:
    """Calls, in order."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Variables to be called otherwise."""
    calls: list[ScriptCall] = field(default_factory=list)

    def call(self, function: str, *args: Any, into: str, **kwargs: Any) -> Source:
        """Add a call; return its result as source."""
        name = self.names.get(into, into)
        self.calls.append(ScriptCall(function, args, kwargs, name))
        return Source(name)

    def save(self, result: Source, path: str | None, original: str = "", **options: Any) -> Source:
        """Write a result to a file, if one is named, which may be that of the original; return the result."""
        if path:
            options |= {"replace": True} if original and os.path.realpath(path) == os.path.realpath(original) else {}
            self.call(f"{result}.save", path, **options, into="file")
        return result

    def code(self) -> str:
        """Return the calls as Python."""
        lines = [str(call) for call in self.calls]
        imports = [f"import {name}" for name in _MODULES if any(f"{name}." in line for line in lines)]
        return "\n".join([*imports, "", *lines])

    def run(self, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the calls; return their results by variable."""
        scope: dict[str, Any] = {**(variables or {})}
        results: dict[str, Any] = {}
        for call in self.calls:
            function, args, kwargs = (_value(part, scope) for part in (Source(call.function), call.args, call.kwargs))
            results[call.into] = scope[call.into] = function(*args, **kwargs)
        return results


def _value(argument: Any, scope: Mapping[str, Any]) -> Any:
    if isinstance(argument, Mapping):
        return {name: _value(part, scope) for name, part in argument.items()}
    if isinstance(argument, tuple | list):
        return type(argument)(_value(part, scope) for part in argument)
    if not isinstance(argument, Source):
        return argument
    modules = {name: importlib.import_module(name) for name in _MODULES if f"{name}." in argument}
    return eval(argument, modules, scope)  # noqa: S307 (ours, or what a person wrote into a cell)
