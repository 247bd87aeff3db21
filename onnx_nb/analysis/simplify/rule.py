"""A rule, and how a function registers as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.editor import Editor
    from onnx_nb.analysis.simplify.elements import Op

    Apply = Callable[[Editor, Op], str | None]


@dataclass(frozen=True)
class Rule:
    """A way to rewrite a node and its neighbors."""

    name: str
    does: str
    """What it does, in one line."""
    apply: Apply
    """Rewrites the graph and returns the reason; returns None, with nothing changed, where the rule does not apply."""
    ops: tuple[str, ...]
    """Standard operators that the rule starts from; all if empty."""
    since: int = 0
    """Lowest opset for which the rule holds."""


def rule(rules: list[Rule], name: str, *ops: str, since: int = 0) -> Callable[[Apply], Apply]:
    """Register a function as a rule; the first line of its docstring says what it does."""

    def register(apply: Apply) -> Apply:
        does = (apply.__doc__ or "").strip().split("\n")[0].rstrip(".")
        rules.append(Rule(name, does, apply, ops, since))
        return apply

    return register
