"""A few calls of public functions: written as the Python that a person could run instead, and run."""

from __future__ import annotations

import importlib
import math
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


@dataclass
class Script:
    """Calls, in order."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Variables to be called otherwise."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Variable, and the Python of its value."""

    def call(self, function: str, *args: Any, into: str, **kwargs: Any) -> Source:
        """Add a call; return its result as source."""
        name = self.names.get(into, into)
        arguments = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
        self.calls.append((name, f"{function}({', '.join(arguments)})"))
        return Source(name)

    def save(self, result: Source, path: str | None, original: str = "", **options: Any) -> Source:
        """Write a result to a file, if one is named, which may be that of the original; return the result."""
        if path:
            options |= {"replace": True} if original and os.path.realpath(path) == os.path.realpath(original) else {}
            self.call(f"{result}.save", path, **options, into="file")
        return result

    def code(self) -> str:
        """Return the calls as Python."""
        lines = [f"{name} = {call}" for name, call in self.calls]
        imports = [f"import {name}" for name in _MODULES if any(f"{name}." in line for line in lines)]
        return "\n".join([*imports, "", *lines])

    def run(self, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the calls; return their results by variable."""
        scope: dict[str, Any] = {**(variables or {})}
        results: dict[str, Any] = {}
        for name, call in self.calls:
            modules = {module: importlib.import_module(module) for module in _MODULES if f"{module}." in call}
            numbers = {"inf": math.inf, "nan": math.nan}  # as Python writes them
            results[name] = scope[name] = eval(call, modules | numbers, scope)  # noqa: S307 (what a person could run)
        return results
