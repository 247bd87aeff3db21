"""A result as JSON, as docs/json.md describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

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
from onnx_nb.cli.verbs import VERBS

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

_WRITING: Final = ("extract", "reduce", "simplify", "edit")


def record(command: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a verb made as plain JSON."""
    result = variables.get(VERBS[command].result)
    fields = _plain(result) if type(result) in _OBJECTS else {}
    page = {"page": variables["page"]} if "page" in variables else {}
    file = {"file": variables.get("file")} if command in _WRITING else {}
    return {**head(command), **fields, **_plain({**_more(command, result, variables), **file, **page})}


def head(command: str) -> dict[str, Any]:
    """Return the fields that every object has."""
    return {"format": FORMAT, "command": command, "onnx_nb": onnx_nb.__version__}


def _more(command: str, result: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
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
