"""Writes the dataclasses of `onnx_nb/widgets/protocol.py` as TypeScript: `python -m tests.wire` does it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
import typing
from pathlib import Path
from typing import Any, Final, Literal

from onnx_nb.analysis.view.array_preview import Look, Page
from onnx_nb.analysis.view.inspection import Inspection, Origin
from onnx_nb.analysis.view.overlays import Aggregate, Scale
from onnx_nb.widgets import protocol

FILE: Final = Path(__file__).parents[1] / "onnx_nb/frontend/protocol/wire.ts"
LITERALS: Final = {"Look": Look, "Origin": Origin, "Aggregate": Aggregate, "Scale": Scale}
WIDTH: Final = 120
"""Characters of a line; a class that fits is one."""
PLAIN: Final = {str: "string", int: "number", float: "number", bool: "boolean", types.NoneType: "null", Any: "unknown"}


def typescript() -> str:
    """Return the interfaces of all requests and replies, and the table of verbs."""
    classes = [each for each in vars(protocol).values() if dataclasses.is_dataclass(each) and isinstance(each, type)]
    classes.append(Inspection)
    parts = ["/** The wire, written by `python -m tests.wire` from `onnx_nb/widgets/protocol.py`: change it there. */"]
    parts += [f"export type {name} = {type_of(kind, named=False)};" for name, kind in LITERALS.items()]
    parts += [interface(each) for each in classes if each not in (protocol.EmptyRequest, Page)]
    none = {protocol.EmptyRequest: "Record<string, never>"}
    rows = [
        f"  readonly {verb}: readonly [{none.get(kind.request, kind.request.__name__)}, {type_of(kind.reply)}];"
        for verb, kind in protocol.VERBS.items()
    ]
    return "\n".join([*parts, "/** Request and reply of each verb. */", "export interface Verbs {", *rows, "}", ""])


def interface(kind: type) -> str:
    """Return a dataclass as an interface, with its docstrings."""
    hints, said = typing.get_type_hints(kind, {**vars(protocol), **LITERALS}), comments(kind)
    head = [f"/** {kind.__doc__} */"] if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}(") else []
    base = kind.__bases__[0]
    inherited = set() if base in (object, protocol.Wire, protocol.EmptyRequest) else set(typing.get_type_hints(base))
    lines = []
    for field in dataclasses.fields(kind):
        if field.name in inherited:
            continue
        if field.name in said:
            lines.append(f"  /** {said[field.name]} */")
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        lines.append(f"  readonly {field.name}{'?' * has_default}: {type_of(hints[field.name])};")
    fields = " ".join(map(str.strip, lines)).rstrip(";")
    line = f"export type {kind.__name__} = {f'{base.__name__} & ' * bool(inherited)}{{ {fields} }};"
    if not any("/**" in each for each in lines) and len(line) <= WIDTH:
        return "\n".join([*head, line])
    name = f"{kind.__name__} extends {base.__name__}" if inherited else kind.__name__
    return "\n".join([*head, f"export interface {name} {{", *lines, "}"])


def comments(kind: type) -> dict[str, str]:
    """Return the docstrings of the fields of a class and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(tree, ast.ClassDef)
        for one, other in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(one, ast.AnnAssign) and isinstance(other, ast.Expr) and isinstance(other.value, ast.Constant):
                texts[ast.unparse(one.target)] = str(other.value.value)
    return texts


def type_of(hint: Any, *, named: bool = True) -> str:
    """Return a type in TypeScript, a literal by its name."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal and named:
        return next(name for name, kind in LITERALS.items() if kind == hint)
    if origin is Literal:
        return " | ".join(f'"{each}"' for each in args)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_of, args))
    if origin is dict:
        return f"Readonly<Record<string, {type_of(args[1])}>>"
    if origin is list or (origin is tuple and args[-1] is Ellipsis):
        inner = type_of(args[0])
        return f"readonly {inner if inner.isalpha() else f'({inner})'}[]"
    if origin is tuple:
        return f"readonly [{', '.join(map(type_of, args))}]"
    if isinstance(hint, str):
        return hint
    return "null" if hint is None else PLAIN.get(hint) or str(hint.__name__)


if __name__ == "__main__":
    FILE.write_text(typescript(), encoding="utf-8")
