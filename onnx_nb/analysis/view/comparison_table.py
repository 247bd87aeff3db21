"""A comparison as columns: what its panel and its page show of all points, and of one of them in every detail.

Of all points there is what the table needs, every metric, and a small histogram on an axis that all share. The rest, a
few kilobytes for each point, is packed for as many of the worst as there is room for, and asked for otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats, Number
from onnx_nb.analysis.formatting import quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.view.capture_table import numbered
from onnx_nb.analysis.view.graph_columns import Columns

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison, Point, Which
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress

WHICH: Final[tuple[Which, ...]] = ("cumulative", "isolated")
SPARK: Final = 24
"""Bars of the small histogram of a point."""

_DECADES: Final = 16
"""Magnitudes that the small histograms span at most: smaller errors count into their first bar."""
_PARTS: Final = 64
"""At most so many places are named below the axis, where there is room for them."""
_TOLD: Final = 256
"""Points between two reports of progress."""
_FEW: Final = 8
"""So few points are all named."""
_TEXTS: Final = ("name", "reference", "candidate", "op_type", "matched", "node", "scope", "source", "difference")


def columns_of(comparison: Comparison, *, details: int = 0, progress: Progress | None = None) -> Columns:
    """Return all points as columns; `model/comparison.ts` reads them.

    Parameters
    ----------
    comparison
        Any.
    details
        Bytes that what `detail_of` gives may take, packed; that of the worst points comes first.
    progress
        Called with the part done and what is read; what it raises ends the work.

    Examples
    --------
    >>> from onnx_nb.analysis.compare.comparison import Comparison, Point
    >>> point = Point("a", "a", "a", "name", 0, "Add", cumulative=ErrorStats.of(np.ones(4), np.full(4, 1.5)))
    >>> packed = columns_of(Comparison("m.onnx", "m-int8.onnx", (point,)))
    >>> packed.arrays["cumulative_max_abs"].tolist(), packed.meta["names"], packed.meta["first"]
    ([0.5], ['a'], 0)
    """
    points = comparison.points
    numbers = {which: np.full((len(METRICS), len(points)), math.nan) for which in WHICH}
    for row, point in enumerate(points):
        if progress is not None and row % _TOLD == 0:
            progress(0.5 * row / len(points), f"Reading point {row + 1:,} of {len(points):,}")
        for which in WHICH:
            errors: ErrorStats | None = getattr(point, which)
            if errors is not None:
                numbers[which][:, row] = [metric.of(errors) for metric in METRICS.values()]
    arrays: dict[str, Any] = {
        "output": np.asarray([point.output for point in points], np.uint8),
        "score": comparison.scores("isolated") if comparison.has_isolated else np.full(len(points), math.nan),
        **_sparks(points),
    }
    meta: dict[str, Any] = {
        "reference": shortened(comparison.reference, 200),
        "candidate": shortened(comparison.candidate, 200),
        "feeds": comparison.feeds,
        "message": comparison.message,
        "first": _row(comparison, comparison.first_divergent()),
        "notable": _row(comparison, notable(comparison)),
        "outside": sum(point.errors().outside > 0 for point in points if point.isolated or point.cumulative),
        "isolated": comparison.has_isolated,
        "metrics": [
            {
                "key": name,
                "label": metric.label,
                "higher_is_better": metric.higher_is_better,
                "logarithmic": metric.logarithmic,
            }
            for name, metric in METRICS.items()
        ],
        "parts": [list(part) for part in parts([point.name for point in points], _PARTS)],
    }
    for which in WHICH:
        found: list[ErrorStats | None] = [getattr(point, which) for point in points]
        if not any(found):
            continue
        arrays[f"{which}_state"] = np.asarray([_state(errors) for errors in found], np.uint8)
        for name, column in zip(METRICS, numbers[which], strict=True):
            arrays[f"{which}_{name}"] = column
    texts = {name: [getattr(point, name) for point in points] for name in _TEXTS}
    known = [point.isolated or point.cumulative for point in points]
    texts["shape"] = ["" if errors is None else "×".join(map(str, errors.shape)) or "scalar" for errors in known]
    texts["dtype"] = ["" if errors is None else " → ".join(dict.fromkeys(errors.dtypes)) for errors in known]
    missing = comparison.unmatched
    texts |= {f"missing_{name}": [getattr(each, name) for each in missing] for name in ("name", "reason", "op_type")}
    for name, text in texts.items():
        meta[f"{name}s"], places = numbered(text)
        arrays[name] = np.asarray(places, np.uint32)
    arrays["missing_side"] = np.asarray([each.side == "candidate" for each in missing], np.uint8)
    packed, rows, left_out = _details(comparison, details, progress)
    arrays["details"] = np.frombuffer(b"".join(packed), np.uint8)
    arrays["detail_row"] = np.asarray(rows, np.uint32)
    arrays["detail_end"] = np.cumsum([len(each) for each in packed], dtype=np.uint32)
    return Columns(arrays, {**meta, "left_out": left_out})


def detail_of(point: Point) -> Columns:
    """Return what is known of the errors of one point: histograms, worst elements, channels, and a sample of values."""
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
                [f"[{', '.join(map(str, worst.index))}]", said(worst.reference), said(worst.candidate), worst.feed]
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
    """Return what to look at first: the first divergent point, else the worst; None where all are equal."""
    first = comparison.first_divergent()
    worst = comparison.ranked()[:1] if first is None else [first]
    return next((point for point in worst if not point.errors().is_equal), None)


def tensor_at(comparison: Comparison, name: str, model: Model) -> str | None:
    """Return what a model calls the tensor of a point: the candidate's name for it, else the reference's."""
    if name not in comparison:
        return None
    values = Graph.of(model).value_names
    point = comparison[name]
    return next((tensor for tensor in (point.candidate, point.reference) if tensor in values), None)


def parts(names: Sequence[str], most: int = 16) -> list[tuple[int, str]]:
    """Return where the parts of a model begin, by as much of the path as gives at most so many of them.

    Examples
    --------
    >>> parts(["embeddings", "encoder.layer.0.a", "encoder.layer.0.b", "encoder.layer.1.a", "pooler"])
    [(0, 'embeddings'), (1, 'layer.0'), (3, 'layer.1'), (4, 'pooler')]
    >>> parts(["stem", "blocks.0.a", "blocks.0", "blocks.1.a", "blocks.1"])
    [(0, 'stem'), (1, 'blocks.0'), (3, 'blocks.1')]
    >>> inner = ("norm1", "mix.a", "mix.b", "norm2", "mlp.0", "mlp.1")
    >>> parts([f"blocks.{number}.{name}" for number in (0, 1) for name in inner])
    [(0, 'blocks.0'), (6, 'blocks.1')]
    >>> parts(["add", "mul_1"]), parts([f"add_{number}" for number in range(9)])
    ([(0, 'add'), (1, 'mul_1')], [])
    """
    if not names:
        return []
    separator = "/" if sum(name.startswith("/") for name in names) > len(names) // 2 else "."
    paths = [name.strip("/").split(separator) for name in names]
    best: list[tuple[int, str]] = []
    for depth in range(1, 6):
        found: list[tuple[int, str]] = []
        last: list[str] = []
        for place, path in enumerate(paths):
            # the last piece names the point itself; what a part as a whole gives belongs to it
            part = path[: min(depth, max(len(path) - 1, 1))]
            if last not in (part, path):
                found.append((place, ".".join(part[-2:]) if part[-1].isdigit() else part[-1]))
                last = part
        ends = [place for place, _ in found[1:]] + [len(names)]
        # a few points between others are no part of the model
        found = [entry for entry, end in zip(found, ends, strict=True) if end - entry[0] > len(names) / (3 * most)]
        if len(found) > most:
            break
        # "layer.0" tells more than the tenth "attention"
        best = max(best, found, key=lambda entries: 2 * len({label for _, label in entries}) - len(entries))
    hierarchical = any(len(path) > 1 for path in paths)
    if hierarchical and len(best) > 1:
        return [(place, shortened(label, 22)) for place, label in best]
    return [(place, shortened(name, 22)) for place, name in enumerate(names)] if len(names) <= _FEW else []


def said(number: Number) -> str:
    """Write a value of a tensor for a person.

    Examples
    --------
    >>> said(0.1 + 0.2), said(float("-inf")), said(True), said("a")
    ('0.3', '−∞', 'true', "'a'")
    """
    if isinstance(number, str):
        return repr(shortened(number, 60))
    if isinstance(number, bool):
        return str(number).lower()
    if isinstance(number, complex):
        return f"{number:.6g}".replace("-", "−")
    if isinstance(number, int):
        return str(number).replace("-", "−")
    text = "NaN" if math.isnan(number) else f"{'−' if number < 0 else ''}∞" if math.isinf(number) else f"{number:.7g}"
    return text.replace("-", "−")


# what a point's errors are in one byte
_UNKNOWN, _EQUAL, _DIFFERENT, _MISMATCHED = range(4)


def _state(errors: ErrorStats | None) -> int:
    if errors is None:
        return _UNKNOWN
    return _EQUAL if errors.is_equal else _MISMATCHED if errors.mismatches else _DIFFERENT


def _row(comparison: Comparison, point: Point | None) -> int:
    return -1 if point is None else comparison.points.index(point)


def _details(comparison: Comparison, room: int, progress: Progress | None) -> tuple[list[bytes], list[int], int]:
    """Pack the worst points in detail, as many as there is room for; and count the others."""
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
    """Return a small histogram of each point's absolute errors, all over the same magnitudes, heights from 0 to 255."""
    found = [(point.isolated or point.cumulative) for point in points]
    histograms = [(errors.absolute.counts, errors.absolute.edges) if errors else (_NONE, _NONE) for errors in found]
    some = [edges for counts, edges in histograms if len(counts)]
    if not some:
        return {"sparks": np.zeros(len(found) * SPARK, np.uint8), "spark_ends": np.zeros(2)}
    high = math.ceil(math.log10(max(edges[-1] for edges in some)))
    low = max(math.floor(math.log10(max(min(edges[0] for edges in some), 5e-324))), high - _DECADES)
    heights = np.zeros((len(found), SPARK))
    for row, (counts, edges) in enumerate(histograms):
        if len(counts):
            middle = np.log10(edges[:-1] / 2 + edges[1:] / 2)
            places = np.clip((middle - low) / (high - low or 1) * SPARK, 0, SPARK - 1).astype(np.intp)
            heights[row] = np.bincount(places, counts, SPARK)
    most = heights.max(axis=1, keepdims=True)
    scaled = np.ceil(np.divide(heights, most, out=np.zeros_like(heights), where=most > 0) * 255)
    return {"sparks": scaled.astype(np.uint8).ravel(), "spark_ends": np.asarray([low, high], np.float64)}


_NONE: Final = np.zeros(0)
