"""A comparison as columns for its panel and its page: a table of all points, and the details of one.

The table has every metric and a small histogram on an axis that all points share. The details, a few kilobytes for each
point, are packed for as many of the worst points as fit; the browser requests the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats, Number
from onnx_nb.analysis.formatting import number_text, quoted, shape_text, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.view.columns import Columns

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison, Point, Which
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress

WHICH: Final[tuple[Which, ...]] = ("cumulative", "isolated")
SPARK: Final = 24
"""Bars in the small histogram of a point."""

_DECADES: Final = 16
"""Decades that the small histograms span at most; smaller errors count into the first bar."""
_SECTIONS: Final = 64
"""Maximum number of labels below the axis of the error chart."""
_REPORTED: Final = 256
"""Points between two reports of progress."""
_FEW: Final = 8
"""Maximum number of points that are each labeled."""
_TEXTS: Final = ("name", "reference", "candidate", "op_type", "matched", "node", "scope", "source", "difference")


def columns_of(comparison: Comparison, *, details: int = 0, progress: Progress | None = None) -> Columns:
    """Return all points as columns, with packed details of the worst in at most ``details`` bytes."""
    points = comparison.points
    arrays: dict[str, Any] = {
        "output": np.asarray([point.output for point in points], np.uint8),
        "score": comparison.scores("isolated") if comparison.has_isolated else np.full(len(points), math.nan),
        **_metric_columns(points, progress),
        **_sparks(points),
    }
    meta: dict[str, Any] = {
        "reference": shortened(comparison.reference, 200),
        "candidate": shortened(comparison.candidate, 200),
        "feeds": comparison.feeds,
        "message": comparison.message,
        "first": _row(comparison, comparison.first_divergent()),
        "notable": _row(comparison, notable(comparison)),
        "outside": sum(errors.outside > 0 for errors in map(_best_known, points) if errors is not None),
        "isolated": comparison.has_isolated,
        "metrics": [
            {"key": name} | {part: getattr(metric, part) for part in ("label", "higher_is_better", "logarithmic")}
            for name, metric in METRICS.items()
        ],
        "parts": [list(section) for section in sections([point.name for point in points], _SECTIONS)],
    }
    arrays["missing_side"] = np.asarray([each.side == "candidate" for each in comparison.unmatched], np.uint8)
    packed, rows, left_out = _details(comparison, details, progress)
    arrays["details"] = np.frombuffer(b"".join(packed), np.uint8)
    arrays["detail_row"] = np.asarray(rows, np.uint32)
    arrays["detail_end"] = np.cumsum([len(each) for each in packed], dtype=np.uint32)
    return Columns.of(arrays, _text_columns(comparison), {**meta, "left_out": left_out})


def _best_known(point: Point) -> ErrorStats | None:
    return point.isolated or point.cumulative


def _metric_columns(points: Sequence[Point], progress: Progress | None) -> dict[str, Any]:
    """Return a column for each metric and the state of each point, for the errors that any point has."""
    numbers = {which: np.full((len(METRICS), len(points)), math.nan) for which in WHICH}
    states = {which: np.full(len(points), _UNKNOWN, np.uint8) for which in WHICH}
    for row, point in enumerate(points):
        if progress is not None and row % _REPORTED == 0:
            progress(0.5 * row / len(points), f"Reading point {row + 1:,} of {len(points):,}")
        for which in WHICH:
            errors: ErrorStats | None = getattr(point, which)
            if errors is not None:
                numbers[which][:, row] = [metric.of(errors) for metric in METRICS.values()]
                states[which][row] = _state(errors)
    arrays: dict[str, Any] = {}
    for which in WHICH:
        if states[which].any():
            arrays[f"{which}_state"] = states[which]
            arrays |= {f"{which}_{name}": column for name, column in zip(METRICS, numbers[which], strict=True)}
    return arrays


def _text_columns(comparison: Comparison) -> dict[str, list[str]]:
    texts = {name: [getattr(point, name) for point in comparison.points] for name in _TEXTS}
    sizes = [point.error_size() for point in comparison.points]
    texts["shape"] = ["" if size is None else shape_text(size.shape) for size in sizes]
    texts["dtype"] = ["" if size is None else " → ".join(dict.fromkeys(size.dtypes)) for size in sizes]
    missing = comparison.unmatched
    return texts | {
        f"missing_{name}": [getattr(each, name) for each in missing] for name in ("name", "reason", "op_type")
    }


def detail_of(point: Point) -> Columns:
    """Return the details of the errors of one point: histograms, worst elements, channels and a sample of values."""
    arrays: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    for which in WHICH:
        errors: ErrorStats | None = getattr(point, which)
        if errors is None:
            continue
        meta[which] = {
            "shape": list(errors.shape),
            "dtypes": list(errors.dtypes),
            "tolerance": [errors.rtol, errors.atol],
            "count": errors.count,
            "equal": errors.equal,
            "finite": errors.finite,
            "nan": errors.nan_mismatch,
            "inf": errors.inf_mismatch,
            "outside": errors.outside,
            "argmax": None if errors.argmax is None else list(errors.argmax),
            "axis": errors.channel_axis,
            "worst": [
                [f"[{', '.join(map(str, worst.index))}]", _text(worst.reference), _text(worst.candidate), worst.feed]
                for worst in errors.worst
            ],
            "zeros": {name: getattr(errors, name).zeros for name in ("absolute", "relative", "ulp")},
        }
        arrays[f"{which}_range"] = np.asarray([errors.low, errors.high], np.float64)
        arrays[f"{which}_worst"] = np.asarray([worst.error for worst in errors.worst], np.float64)
        arrays[f"{which}_channels"] = np.asarray(errors.channels, np.float32)
        arrays[f"{which}_sample"] = np.asarray(errors.sample, np.float64).ravel()
        for name in ("signed", "absolute", "relative", "ulp"):
            histogram = getattr(errors, name)
            arrays[f"{which}_{name}_counts"] = np.asarray(histogram.counts, np.float64)
            arrays[f"{which}_{name}_edges"] = np.asarray(histogram.edges, np.float64)
    return Columns(arrays, meta)


def notable(comparison: Comparison) -> Point | None:
    """Return the point to look at first: the first divergent one, else the worst; None if all are equal."""
    first = comparison.first_divergent()
    worst = comparison.ranked()[:1] if first is None else [first]
    return next((point for point in worst if not point.errors().is_equal), None)


def tensor_at(comparison: Comparison, name: str, model: Model) -> str | None:
    """Return the name of a point's tensor in a model: that of the candidate, else that of the reference."""
    if name not in comparison:
        return None
    values = Graph.of(model).value_names
    point = comparison[name]
    return next((tensor for tensor in (point.candidate, point.reference) if tensor in values), None)


def sections(names: Sequence[str], most: int = 16) -> list[tuple[int, str]]:
    """Return where the sections of a model begin, from the longest common paths that form at most ``most`` sections."""
    if not names:
        return []
    separator = "/" if sum(name.startswith("/") for name in names) > len(names) // 2 else "."
    paths = [name.strip("/").split(separator) for name in names]
    best: list[tuple[int, str]] = []
    for depth in range(1, 6):
        found = _at_depth(paths, depth)
        ends = [place for place, _ in found[1:]] + [len(names)]
        # a few points between others do not form a section
        found = [entry for entry, end in zip(found, ends, strict=True) if end - entry[0] > len(names) / (3 * most)]
        if len(found) > most:
            break
        # prefer "layer.0" to the tenth "attention"
        best = max(best, found, key=lambda entries: 2 * len({label for _, label in entries}) - len(entries))
    hierarchical = any(len(path) > 1 for path in paths)
    if hierarchical and len(best) > 1:
        return [(place, shortened(label, 22)) for place, label in best]
    return [(place, shortened(name, 22)) for place, name in enumerate(names)] if len(names) <= _FEW else []


def _at_depth(paths: Sequence[list[str]], depth: int) -> list[tuple[int, str]]:
    """Return where the beginning of the paths changes, and its label."""
    found: list[tuple[int, str]] = []
    last: list[str] = []
    for place, path in enumerate(paths):
        # the last piece names the point itself; the result of a whole section belongs to it
        section = path[: min(depth, max(len(path) - 1, 1))]
        if last not in (section, path):
            found.append((place, ".".join(section[-2:]) if section[-1].isdigit() else section[-1]))
            last = section
    return found


def _text(value: Number) -> str:
    """Return a value of a tensor as text."""
    return repr(shortened(value, 60)) if isinstance(value, str) else number_text(value)


# the state of a point's errors
_UNKNOWN, _EQUAL, _DIFFERENT, _MISMATCHED = range(4)


def _state(errors: ErrorStats) -> int:
    return _EQUAL if errors.is_equal else _MISMATCHED if errors.mismatches else _DIFFERENT


def _row(comparison: Comparison, point: Point | None) -> int:
    return -1 if point is None else comparison.points.index(point)


def _details(comparison: Comparison, room: int, progress: Progress | None) -> tuple[list[bytes], list[int], int]:
    """Return packed details of the worst points that fit, their rows, and the number of the other points."""
    packed: list[bytes] = []
    rows: list[int] = []
    whole = room
    scores = comparison.scores() if comparison.points else np.zeros(0)
    for row in np.argsort(-np.nan_to_num(scores, nan=-math.inf), kind="stable").tolist() if room else ():
        if progress is not None:
            progress(1 - 0.5 * room / whole, f"Packing the errors of {quoted(comparison.points[row].name)}")
        made = detail_of(comparison.points[row]).to_bytes()
        if len(made) > room:
            break
        room -= len(made)
        packed.append(made)
        rows.append(row)
    return packed, rows, len(scores) - len(rows)


def _sparks(points: Iterable[Point]) -> dict[str, Any]:
    """Return a small histogram of each point's absolute errors on one common axis, heights from 0 to 255."""
    known = [_best_known(point) for point in points]
    histograms = {row: errors.absolute for row, errors in enumerate(known) if errors and len(errors.absolute.counts)}
    if not histograms:
        return {"sparks": np.zeros(len(known) * SPARK, np.uint8), "spark_ends": np.zeros(2)}
    high = math.ceil(math.log10(max(each.edges[-1] for each in histograms.values())))
    low = min(each.edges[0] for each in histograms.values())
    low = max(math.floor(math.log10(max(low, 5e-324))), high - _DECADES)
    heights = np.zeros((len(known), SPARK))
    for row, histogram in histograms.items():
        middle = np.log10(histogram.edges[:-1] / 2 + histogram.edges[1:] / 2)
        places = np.clip((middle - low) / (high - low or 1) * SPARK, 0, SPARK - 1).astype(np.intp)
        heights[row] = np.bincount(places, histogram.counts, SPARK)
    most = heights.max(axis=1, keepdims=True)
    sparks = np.ceil(np.divide(heights, most, out=np.zeros_like(heights), where=most > 0) * 255)
    return {"sparks": sparks.astype(np.uint8).ravel(), "spark_ends": np.asarray([low, high], np.float64)}
