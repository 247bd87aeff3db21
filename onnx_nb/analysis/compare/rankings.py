"""Rankings of a comparison: layers by their share in the error, and points by their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_nb.analysis.formatting import number_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.operators import facts
from onnx_nb.analysis.results import StillTable

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison, Point


def layer_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the rows of `Comparison.layers`."""
    sizes = [point.error_size("isolated") for point in comparison.points]
    members = followers(
        (point.scope, place)
        for place, (point, size) in enumerate(zip(comparison.points, sizes, strict=True))
        if point.scope and size is not None and not math.isnan(size.relative_error)
    )
    errors = np.asarray([0.0 if size is None else np.nan_to_num(size.relative_error, posinf=np.inf) for size in sizes])
    moves = [0 in facts(point.op_type).moves for point in comparison.points]
    squares = np.square(np.where(np.isinf(errors).any(), np.isinf(errors), errors))
    rows: list[dict[str, Any]] = []
    for layer, places in members.items():
        makers = [place for place in places if not moves[place]]
        square = max(float(squares[makers].sum()), float(squares[places].max()))
        worst = comparison.points[max(makers or places, key=errors.__getitem__)]
        rows.append({"layer": layer, "share": square, "error": float(errors[places].max()), "points": len(places)})
        rows[-1] |= {"worst": worst.name, "op_type": worst.op_type}
    whole = sum(row["share"] for row in rows) or 1.0
    for row in rows:
        row["share"] /= whole
    return sorted(rows, key=lambda row: -row["share"])


def layers_table(rows: Sequence[Mapping[str, Any]]) -> StillTable:
    """Return the layers as a table for where no widget runs."""
    texts = [
        (row["layer"], row["worst"], row["op_type"], f"{row['share']:.1%}", number_text(row["error"], 2))
        for row in rows
    ]
    return StillTable(("Layer", "Worst point", "Op", "Share", "Its own error"), texts, "layer", 3)


def points_table(title: str, points: Sequence[Point]) -> StillTable:
    """Return the errors of points where both models run, and next to them those that a point adds by itself."""
    rows = []
    has_own = any(point.error_size("isolated") is not None for point in points)
    for point in points:
        errors, isolated = point.errors("cumulative"), point.error_size("isolated")
        numbers = [(errors.max_abs, 3), (errors.rel_l2, 2), (errors.sqnr, 3), (errors.cosine, 5)]
        texts = [number_text(number, digits) for number, digits in numbers]
        texts += ["" if isolated is None else number_text(isolated.rel_l2, 2)] if has_own else []
        rows.append((point.name, point.op_type, *texts, f"{errors.mismatches:,}" if errors.mismatches else ""))
    heads = ["Point", "Op", "max |Δ|", "‖Δ‖/‖x‖", "SQNR, dB", "cosine", *(["its own"] if has_own else []), "NaN, Inf"]
    return StillTable(heads, rows, "point", 2, title)
