"""The wire is one: requests, replies and buffers of the kernel are those of the browser and of `protocol`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from onnx_nb.widgets.protocol import VERBS, EmptyRequest
from tests import wire

WIDGETS = Path(__file__).parents[2] / "onnx_nb/widgets"


def methods() -> dict[str, list[ast.FunctionDef]]:
    """Return the methods that answer each verb."""
    answers: dict[str, list[ast.FunctionDef]] = {}
    names = {"capture": "capture", "statistics": "statistics", "page": "values", "npy": "npy"}
    for path in WIDGETS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_on_"):
                answers.setdefault(node.name[4:], []).append(node)
            elif isinstance(node, ast.FunctionDef) and path.name == "_values.py" and node.name in names:
                answers.setdefault(names[node.name], []).append(node)
    return answers


def test_the_browser_has_the_same_interfaces() -> None:
    assert wire.FILE.read_text(encoding="utf-8") == wire.typescript(), "python -m tests.wire"


def test_every_verb_is_declared_and_answered() -> None:
    assert methods().keys() == VERBS.keys() - {"ping"}


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"ping"}))
def test_a_verb_takes_and_replies_what_is_declared(verb: str) -> None:
    kind = VERBS[verb]
    for method in methods()[verb]:
        calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
        (annotation,) = (ast.unparse(entry.annotation) for entry in method.args.args[1:] if entry.annotation)
        assert annotation == ("Call[Any]" if kind.request is EmptyRequest else f"Call[{kind.request.__name__}]")
        replies = {ast.unparse(call.func) for call in calls if ast.unparse(call.func).endswith("Reply")} - {"Reply"}
        assert replies <= {part.strip() for part in wire.type_of(kind.reply).split("|")} | {"PictureReply"}
