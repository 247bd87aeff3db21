"""A result as JSON, as docs/json.md and schema.json describe it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import onnx_nb

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

FORMAT: Final = 1
"""Version of the schema: higher when a field is removed or means something else; new fields may come at any time."""


def record(command: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a verb made as plain JSON."""
    page = {"page": made["page"]} if "page" in made else {}
    file = {"file": made.get("file")} if command in ("extract", "reduce", "simplify") else {}
    found: dict[str, Any] = _plain({**head(command), **_RECORDS[command](made), **file, **page})
    return found


def head(command: str) -> dict[str, Any]:
    """Return the fields that every object has."""
    return {"format": FORMAT, "command": command, "onnx_nb": onnx_nb.__version__}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; floats that are no numbers become "NaN", "Infinity" and "-Infinity"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _rows(rows: Any, *names: str) -> list[dict[str, Any]]:
    """Return some attributes of each row."""
    return [{name: getattr(row, name) for name in names} for row in rows]


def _ports(ports: Any) -> list[dict[str, Any]]:
    """Return inputs or outputs of a model: dimensions are sizes, names, or null."""
    return [{"name": port.name, "dtype": port.dtype, "shape": port.shape} for port in ports]


def _model(model: Model) -> dict[str, Any]:
    graph = model.proto.graph
    return {
        "inputs": _ports(model.inputs),
        "outputs": _ports(model.outputs),
        "nodes": len(graph.node),
        "bytes": model.nbytes,
    }


def _summary(made: Mapping[str, Any]) -> dict[str, Any]:
    found = made["summary"]
    return {
        "name": found.name,
        "path": found.path,
        "ir_version": found.ir_version,
        "producer": found.producer,
        "opsets": dict(found.opsets),
        "inputs": _ports(found.inputs),
        "outputs": _ports(found.outputs),
        "nodes": found.nodes,
        "parameters": found.parameters,
        "bytes": found.nbytes,
        "macs": found.macs,
        "flops": found.flops,
        "activation_bytes": found.activation_bytes,
        "unbound": found.unbound,
        "caches": _rows(found.caches, "length", "bytes_per_token", "inputs"),
        "operators": _rows(found.op_counts, "op", "domain", "category", "count"),
        "weights": [{"dtype": e.dtype, "parameters": e.parameters, "bytes": e.nbytes} for e in found.by_dtype],
        "scopes": [
            {
                "scope": e.scope,
                "class": e.cls,
                "macs": e.macs,
                "parameters": e.parameters,
                "activation_bytes": e.activation_bytes,
            }
            for e in found.scopes
        ],
        "problems": [{"kind": kind, "message": message} for kind, message in found.faults],
    }


def _reduce(made: Mapping[str, Any]) -> dict[str, Any]:
    found = made["reduction"]
    return {
        **_model(found.model),
        "message": found.message,
        "labels": found.nodes,
        "total": found.total,
        "flaky": found.flaky,
        "minimal": found.minimal,
        "interrupted": found.interrupted,
        "trials": found.rows(),
    }


def _simplify(made: Mapping[str, Any]) -> dict[str, Any]:
    found = made["s"]
    return {
        "verdict": found.verdict,
        "verification": found.verification,
        "operators_before": found.before,
        "operators_after": found.after,
        "changes": _rows(found.changes, "rule", "key", "why", "before", "after", "tensors"),
        "not_folded": _rows(found.left, "node", "op_type", "why"),
    }


def _diff(made: Mapping[str, Any]) -> dict[str, Any]:
    found = made["d"]
    names = ("kind", "what", "name", "op", "detail", "reference", "candidate", "how", "message")
    return {
        "message": found.message,
        "weights_compared": found.weights_compared,
        "differences": _rows(found.changes, *names),
    }


def _compare(made: Mapping[str, Any]) -> dict[str, Any]:
    found, failed = made["c"], made.get("failed")
    first = found.first_divergent()
    return {
        "message": found.message,
        "reference": found.reference,
        "candidate": found.candidate,
        "feeds": found.feeds,
        "first_divergent": first and first.name,
        "failed": None if failed is None else [point.name for point in failed],
        "points": found.rows(),
        "unmatched": _rows(found.unmatched, "name", "side", "reason", "op_type"),
    }


def _capture(made: Mapping[str, Any]) -> dict[str, Any]:
    return {"feeds": made["capture"].feeds, "values": made["capture"].rows()}


def _profile(made: Mapping[str, Any]) -> dict[str, Any]:
    found = made["p"]
    return {
        "message": found.message,
        "notes": found.notes,
        "seconds": found.seconds,
        "run_seconds": found.run_seconds,
        "first_run_seconds": found.first_run_seconds,
        "load_seconds": found.load_seconds,
        "mapped": found.mapped,
        "memory_peak": found.memory_peak,
        "kernels": found.rows("kernel"),
        "operators": found.rows("operator"),
        "scopes": found.rows("scope"),
        "providers": found.rows("provider"),
    }


def _audit(made: Mapping[str, Any]) -> dict[str, Any]:
    found = made["audit"]
    return {
        "ok": found.ok,
        "files": [
            {
                "location": e.location,
                "bytes": e.nbytes,
                "tensors": e.tensors,
                "used": e.used,
                "padding": e.padding,
                "unused": e.orphan,
                "sha1": e.sha1,
            }
            for e in found.files
        ],
        "problems": _rows(found.problems, "kind", "severity", "message", "advice", "tensors", "location"),
    }


_RECORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "show": lambda _made: {},
    "summary": _summary,
    "extract": lambda made: _model(made["submodel"]),
    "reduce": _reduce,
    "simplify": _simplify,
    "diff": _diff,
    "compare": _compare,
    "capture": _capture,
    "profile": _profile,
    "audit": _audit,
    "report": lambda _made: {},
}
