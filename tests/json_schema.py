"""Writes the schema of what ``onnx-nb --json`` prints, from the classes of results: `python -m tests.json_schema`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.cost.summary import Summary
from onnx_nb.analysis.edit.edit import Edit
from onnx_nb.analysis.match.diff import Diff
from onnx_nb.analysis.model.auditor import Audit
from onnx_nb.analysis.model.tensors import ValueInfo
from onnx_nb.analysis.profile.result import Profile
from onnx_nb.analysis.simplify.simplify import Simplification
from onnx_nb.analysis.submodel.reduction import Reduction
from onnx_nb.cli.record import _OBJECTS, _WRITING, FORMAT, _fields

FILE: Final = Path(__file__).parents[1] / "docs/json.schema.json"
MODEL: Final = {"inputs": list[ValueInfo], "outputs": list[ValueInfo], "nodes": int, "bytes": int}
VERBS: Final[Mapping[str, tuple[type | None, Mapping[str, Any]]]] = {
    "summary": (Summary, {"opsets": dict[str, int], "problems": list[dict[str, str]]}),
    "extract": (None, MODEL),
    "reduce": (Reduction, MODEL),
    "simplify": (Simplification, {}),
    "edit": (Edit, {}),
    "diff": (Diff, {}),
    "compare": (Comparison, {"first_divergent": str | None, "failed": list[str] | None, "points": list[object]}),
    "capture": (None, {"feeds": int, "random": str, "values": list[object]}),
    "audit": (Audit, {}),
    "show": (None, {"page": str}),
    "report": (None, {"page": str}),
    "profile": (Profile, dict.fromkeys(("kernels", "operators", "scopes", "providers"), list[object])),
}
"""Verb → class of its result, and the type of each other field."""


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of what ``onnx-nb --json`` prints, from the annotations of the results."""
    results = [kind for kind, _ in VERBS.values()]
    text, cell = {"type": "string"}, [bool, str, float, None, list[str], list[int]]
    definitions: dict[str, Any] = {
        "number": {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
        "row": {"type": "object", "additionalProperties": {"anyOf": [_schema_of(kind) for kind in cell]}},
        **{kind.__name__: _object(_types(kind)) for kind in _OBJECTS if kind not in results},
    }
    for verb, (kind, more) in VERBS.items():
        file = {"file": str | None} if verb in _WRITING else {}
        definitions[verb] = _object({**(_types(kind) if kind else {}), **more, **file}, verb)
        definitions[verb]["properties"]["page"] = text
    parts = {verb: {"anyOf": [_reference(verb), {"type": "null"}]} for verb in ("summary", "diff", "compare", "audit")}
    what = Literal["added", "removed", "changed"]
    model = _object({"path": str, "what": what, "ok": bool, "error": str | None, "excesses": list[str]})
    model = {**model, "properties": model["properties"] | parts, "required": [*model["required"], *parts]}
    changes = _object({"base": str, "models": list[Any]}, "changes")
    changes["properties"]["models"]["items"] = model
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What onnx-nb --json prints",
        "oneOf": [_reference(verb) for verb in (*VERBS, "changes")],
        "$defs": {**definitions, "changes": changes},
    }


def _object(types: Mapping[str, Any], command: str = "") -> dict[str, Any]:
    """Return the schema of an object with some fields; of a command, with its head."""
    first: dict[str, Any] = {"format": {"const": FORMAT}, "command": {"const": command}, "onnx_nb": {"type": "string"}}
    properties = (first if command else {}) | {name: _schema_of(kind) for name, kind in types.items()}
    return {"type": "object", "additionalProperties": False, "required": [*properties], "properties": properties}


def _types(kind: type) -> dict[str, Any]:
    """Return the type of each field of a class, from the annotations of its attributes and properties."""
    names = {class_.__name__: class_ for class_ in _OBJECTS} | {"Mapping": Mapping, "Sequence": Sequence}
    hints: dict[str, Any] = {}
    for name, attribute in _fields(kind):
        member = inspect.getattr_static(kind, attribute, None)
        getter = getattr(member, "fget", getattr(member, "func", None))
        text = getter.__annotations__["return"] if getter else inspect.get_annotations(kind)[attribute]
        holder = SimpleNamespace(__annotations__={name: text})
        hints |= get_type_hints(holder, {**names, **vars(sys.modules[kind.__module__])})
    return hints


def _schema_of(kind: Any) -> dict[str, Any]:
    """Return the schema of a type; of a row of a table, ``object``, that of its cells."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema_of(argument) for argument in arguments]}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    if kind in _OBJECTS or kind in (float, object):
        return _reference("number" if kind is float else "row" if kind is object else kind.__name__)
    names = {str: "string", int: "integer", bool: "boolean", NoneType: "null", None: "null"}
    return {"type": names[kind]} if kind in names else {}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


if __name__ == "__main__":
    FILE.write_text(f"{json.dumps(schema(), indent=1)}\n", encoding="utf-8")
