"""A result as JSON, as docs/json.md describes it, and the JSON schema of all verbs."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

import onnx_nb
from onnx_nb.analysis.compare.comparison import Comparison, Unmatched
from onnx_nb.analysis.cost.memory import Cache
from onnx_nb.analysis.cost.summary import DtypeTotal, OpCount, Port, ScopeCost, Summary
from onnx_nb.analysis.edit.edit import Edit, EditStep
from onnx_nb.analysis.match.diff import Diff, Difference
from onnx_nb.analysis.model.auditor import Audit, DataFile, DataProblem
from onnx_nb.analysis.model.tensors import ValueInfo
from onnx_nb.analysis.profile.result import Profile
from onnx_nb.analysis.simplify.editor import Change
from onnx_nb.analysis.simplify.rounds import Unfolded
from onnx_nb.analysis.simplify.simplify import Simplification
from onnx_nb.analysis.submodel.reduction import Reduction, Trial

FORMAT: Final = 1
"""Version of the schema: higher when a field is removed or means something else; new fields may come at any time."""

_OBJECTS: Final[Mapping[type, str]] = {
    Audit: "ok files problems",
    Cache: "length bytes_per_token inputs",
    Change: "rule key why before after tensors",
    Comparison: "message reference candidate feeds unmatched",
    DataFile: "location bytes=nbytes tensors used padding unused=orphan sha1",
    Diff: "message weights_compared differences=changes",
    Difference: "kind what name op detail reference candidate how message",
    Edit: "message steps",
    EditStep: "call text proof reason",
    DtypeTotal: "dtype parameters bytes=nbytes",
    OpCount: "op domain category count",
    Port: "name dtype shape",
    DataProblem: "kind severity message advice tensors location",
    Profile: "message notes seconds run_seconds first_run_seconds load_seconds mapped memory_peak",
    Reduction: "message labels=nodes total flaky minimal interrupted trials",
    ScopeCost: "scope class=cls macs parameters activation_bytes",
    Simplification: "verdict verification operators_before=before operators_after=after changes not_folded=left",
    Summary: "name path ir_version producer inputs outputs nodes parameters bytes=nbytes macs flops activation_bytes"
    " unbound caches operators=op_counts weights=by_dtype scopes",
    Trial: "phase nodes inputs outputs result seconds why",
    Unfolded: "node op_type why",
    Unmatched: "name side reason op_type",
    ValueInfo: "name dtype shape",
}
"""Class → its fields in JSON, each with the name of the attribute if that is another."""

_MODEL: Final = {"inputs": list[ValueInfo], "outputs": list[ValueInfo], "nodes": int, "bytes": int}
_VERBS: Final[Mapping[str, tuple[type | None, str, Mapping[str, Any]]]] = {
    "summary": (Summary, "summary", {"opsets": dict[str, int], "problems": list[dict[str, str]]}),
    "extract": (None, "submodel", _MODEL),
    "reduce": (Reduction, "reduction", _MODEL),
    "simplify": (Simplification, "s", {}),
    "edit": (Edit, "e", {}),
    "diff": (Diff, "d", {}),
    "compare": (Comparison, "c", {"first_divergent": str | None, "failed": list[str] | None, "points": list[object]}),
    "capture": (None, "capture", {"feeds": int, "random": str, "values": list[object]}),
    "audit": (Audit, "audit", {}),
    "show": (None, "page", {"page": str}),
    "report": (None, "page", {"page": str}),
    "profile": (Profile, "p", dict.fromkeys(("kernels", "operators", "scopes", "providers"), list[object])),
}
"""Verb → class of its result and the variable that holds it, and the type of each field of `_more`."""
_WRITING: Final = ("extract", "reduce", "simplify", "edit")
"""Verbs that write a file."""


def record(command: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a verb made as plain JSON."""
    kind, variable, _ = _VERBS[command]
    result = variables.get(variable)
    fields = {} if kind is None else _plain(result)
    page = {"page": variables["page"]} if "page" in variables else {}
    file = {"file": variables.get("file")} if command in _WRITING else {}
    return {**head(command), **fields, **_plain({**_more(command, result, variables), **file, **page})}


def head(command: str) -> dict[str, Any]:
    """Return the fields that every object has."""
    return {"format": FORMAT, "command": command, "onnx_nb": onnx_nb.__version__}


def _more(command: str, result: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are no attributes of a result."""
    if command == "summary":
        problems = [{"kind": kind, "message": message} for kind, message in result.faults]
        return {"opsets": dict(result.opsets), "problems": problems}
    if command in ("extract", "reduce"):
        model = result.model if command == "reduce" else result
        nodes = len(model.proto.graph.node)
        return {"inputs": model.inputs, "outputs": model.outputs, "nodes": nodes, "bytes": model.nbytes}
    if command == "compare":
        first, names = result.first_divergent(), variables.get("failed")
        names = None if names is None else [point.name for point in names]
        return {"first_divergent": first and first.name, "failed": names, "points": result.rows()}
    if command == "capture":
        return {"feeds": result.feeds, "random": result.random, "values": result.rows()}
    if command == "profile":
        return {f"{table}s": result.rows(table) for table in ("kernel", "operator", "scope", "provider")}
    return {}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; floats that are no numbers become "NaN", "Infinity" and "-Infinity"."""
    if type(value) in _OBJECTS:
        return {name: _plain(getattr(value, attribute)) for name, attribute in _fields(type(value))}
    if isinstance(value, Mapping):
        return {str(key): _plain(element) for key, element in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(element) for element in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _fields(kind: type) -> list[tuple[str, str]]:
    """Return the fields of a class in JSON and the attributes that they are."""
    pairs = (text.partition("=") for text in _OBJECTS[kind].split())
    return [(name, attribute or name) for name, _, attribute in pairs]


# --- schema ---------------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of what ``onnx-nb --json`` prints, from the annotations of the results.

    Examples
    --------
    >>> schema()["$defs"]["extract"]["required"]
    ['format', 'command', 'onnx_nb', 'inputs', 'outputs', 'nodes', 'bytes', 'file']
    """
    results = [kind for kind, _, _ in _VERBS.values()]
    text, cell = {"type": "string"}, [bool, str, float, None, list[str], list[int]]
    definitions: dict[str, Any] = {
        "number": {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
        "row": {"type": "object", "additionalProperties": {"anyOf": [_schema_of(kind) for kind in cell]}},
        **{kind.__name__: _object(_types(kind)) for kind in _OBJECTS if kind not in results},
    }
    for verb, (kind, _, more) in _VERBS.items():
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
        "oneOf": [_reference(verb) for verb in (*_VERBS, "changes")],
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
