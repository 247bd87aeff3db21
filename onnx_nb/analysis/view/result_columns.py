"""Results as packed columns: statistics of tensors, a comparison, a diff, and a simplification.

A row of statistics takes a few hundred bytes: nine numbers and at most `statistics.BINS` counts, with edges given by
two integers. A comparison has every metric of all points and the details, a few kilobytes each, of the worst points.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, number_text, quoted, shape_text, shortened
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import CATEGORIES, category
from onnx_nb.analysis.match.diff import FOLDED, ONLY, SAME, Counterparts, Diff, counterparts, inverse
from onnx_nb.analysis.model.model import ModelLike, load, weights_of
from onnx_nb.analysis.model.tensors import dtype_name
from onnx_nb.analysis.progress import CountedWork
from onnx_nb.analysis.run.statistics import Statistics
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.simplify.known_graph import identify
from onnx_nb.analysis.simplify.rounds import rules
from onnx_nb.analysis.view.columns import Columns, joined, numbers, texts
from onnx_nb.analysis.view.quantizer_columns import quantizer_columns

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison, Point, Which
    from onnx_nb.analysis.profile.changes import ProfileComparison
    from onnx_nb.analysis.profile.result import Profile
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.simplify.editor import Change
    from onnx_nb.analysis.simplify.simplify import Simplification

NUMBERS: Final = ("count", "nan", "posinf", "neginf", "zeros", "min", "max", "mean", "std")
"""Statistics of a tensor that are columns."""
WHICH: Final[tuple[Which, ...]] = ("cumulative", "isolated")
SPARK: Final = 24
"""Number of bars in the small histogram of a point."""
LONGEST: Final = 200
"""Maximum number of characters of a name or reason in a list."""

# ---------------------------------------------------------------- statistics of tensors


class Entry(NamedTuple):
    """One tensor and its statistics."""

    value: int
    """Index in `Graph`; −1 if it is not in the graph."""
    name: str
    node: str
    """Name of the node that produces it."""
    op: str
    dtype: str
    shape: str
    """Shape, such as "1×3×224"; empty if it varied."""
    nbytes: int
    statistics: Statistics | None
    """Statistics; ``None`` for a tensor without numbers."""
    source: str
    """Source of the numbers, in words."""


def statistics_columns(entries: Sequence[Entry], *, left_out: int = 0, **about: Any) -> Columns:
    """Return tensors as columns with plain JSON; ``frontend/protocol/capture.ts`` reads them."""
    stats = [entry.statistics or Statistics() for entry in entries]
    histograms = [part.histogram for part in stats]
    ptr, bins = joined([part.counts for part in histograms], np.float64)
    arrays: dict[str, Any] = {
        "value": np.asarray([entry.value for entry in entries], np.int32),
        "known": np.asarray([entry.statistics is not None for entry in entries], np.uint8),
        "exponent": np.asarray([part.exponent for part in histograms], np.int32),
        "ptr": ptr,
        "bins": bins,
    }
    arrays |= numbers(entries, ["nbytes"]) | numbers(histograms, ["first"]) | numbers(stats, NUMBERS)
    words = texts(entries, ("name", "node", "op", "dtype", "shape", "source"))
    return Columns.of(arrays, words, {"left_out": left_out, **about})


def captured_entries(capture: Capture) -> list[Entry]:
    """Return the tensors of a capture, in order of execution."""
    source = f"captured, {count_text(capture.feeds, 'run')}"
    entries = []
    for row in capture.rows():
        name, shape = row["name"], "" if row["shape"] is None else shape_text(row["shape"])
        stats = None if row["count"] is None else capture.statistics(name)
        about = row["node"], row["op_type"], row["dtype"], shape, row["nbytes"]
        entries.append(Entry(capture.values[name], name, *about, stats, source))
    return entries


def weight_entries(model: ModelLike, *, limit: int | None = None, progress: Progress | None = None) -> list[Entry]:
    """Return the weights, largest first, whose statistics fit ``limit`` bytes; broken weights have none."""
    source = load(model)
    values = {name: value for value, name in reversed([*enumerate(Graph.of(source).value_names)])}
    weights = sorted(weights_of(source).values(), key=lambda info: -info.nbytes)
    work = CountedWork(progress, sum(info.nbytes for info in weights))
    entries: list[Entry] = []
    start = size = 0
    for info in weights:
        if limit is not None and size >= limit:
            break

        def read(part: float, start: int = start, nbytes: int = info.nbytes, name: str = info.name) -> None:
            work.reached(start + part * nbytes, f"Reading {name[:80]}, {bytes_text(nbytes)}")

        read(0.0)
        try:
            stats = Statistics.of(source.tensor(info.name), progress=read)
        except OnnxNbError:  # its bytes are missing: `external_data.audit` has the reason
            stats = None
        about = "", "", dtype_name(info.dtype), shape_text(info.shape), info.nbytes
        entries.append(Entry(values.get(info.name, -1), info.name, *about, stats, ""))
        start += info.nbytes
        size += 8 * (len(NUMBERS) + 4 + (0 if stats is None else len(stats.histogram.counts)))
    return entries


# ---------------------------------------------------------------- a comparison

_DECADES: Final = 16
"""Maximum number of decades in the small histograms; smaller errors are counted in the first bar."""
_REPORT_POINTS: Final = 256
"""Number of points between two reports of progress."""
_UNKNOWN, _EQUAL, _DIFFERENT, _MISMATCH = range(4)
"""States of a point's errors."""


def comparison_columns(comparison: Comparison, *, details: int = 0, progress: Progress | None = None) -> Columns:
    """Return all points as columns, with packed details of the worst in at most ``details`` bytes."""
    points, missing = comparison.points, comparison.unmatched
    best = [point.isolated or point.cumulative for point in points]
    of_quantizers, texts_of_quantizers = quantizer_columns(comparison)
    layers, row_of = comparison.layers(), {point.name: row for row, point in reversed(list(enumerate(points)))}
    arrays = _metric_columns(points, progress) | _sparks(best) | of_quantizers
    arrays |= {f"layer_{name}": np.asarray([row[name] for row in layers], np.float64) for name in ("share", "error")}
    blobs = _details(comparison, details, progress)
    arrays |= {
        "layer_point": np.asarray([row_of[row["worst"]] for row in layers], np.int32),
        "output": np.asarray([point.output for point in points], np.uint8),
        "score": comparison.scores("isolated") if comparison.has_isolated else np.full(len(points), math.nan),
        "missing_side": np.asarray([entry.side == "candidate" for entry in missing], np.uint8),
        "details": np.frombuffer(b"".join(blobs.values()), np.uint8),
        "detail_row": np.asarray(list(blobs), np.uint32),
        "detail_end": np.cumsum([len(entry) for entry in blobs.values()], dtype=np.uint32),
    }
    picks = comparison.first_divergent(), notable(comparison)
    first, salient = (-1 if point is None else points.index(point) for point in picks)
    meta: dict[str, Any] = {
        "reference": shortened(comparison.reference, LONGEST),
        "candidate": shortened(comparison.candidate, LONGEST),
        "feeds": comparison.feeds,
        "message": comparison.message,
        "first": first,
        "notable": salient,
        "outside": sum(errors is not None and errors.outside > 0 for errors in best),
        "isolated": comparison.has_isolated,
        "metrics": [
            {"key": name} | {part: getattr(metric, part) for part in ("label", "higher_is_better", "logarithmic")}
            for name, metric in METRICS.items()
        ],
        "parts": [list(section) for section in sections(point_paths(points), 64)],
        "left_out": len(points) - len(blobs),
    }
    names = ("name", "reference", "candidate", "op_type", "matched", "node", "scope", "source", "difference")
    words = texts(points, names) | texts(missing, ("name", "reason", "op_type"), "missing_") | texts_of_quantizers
    words["layer"] = [row["layer"] for row in layers]
    sizes = [point.error_size() for point in points]
    words["shape"] = ["" if size is None else shape_text(size.shape) for size in sizes]
    words["dtype"] = ["" if size is None else " → ".join(dict.fromkeys(size.dtypes)) for size in sizes]
    return Columns.of(arrays, words, meta)


def _metric_columns(points: Sequence[Point], progress: Progress | None) -> dict[str, Any]:
    """Return a column for each metric and the states of the points, for the kinds of errors that any point has."""
    metrics = {which: np.full((len(METRICS), len(points)), math.nan) for which in WHICH}
    states = {which: np.full(len(points), _UNKNOWN, np.uint8) for which in WHICH}
    for row, point in enumerate(points):
        if progress is not None and row % _REPORT_POINTS == 0:
            progress(0.5 * row / len(points), f"Reading point {row + 1:,} of {len(points):,}")
        for which in WHICH:
            errors: ErrorStats | None = getattr(point, which)
            if errors is not None:
                metrics[which][:, row] = [metric.of(errors) for metric in METRICS.values()]
                states[which][row] = _EQUAL if errors.is_equal else _MISMATCH if errors.mismatches else _DIFFERENT
    arrays: dict[str, Any] = {}
    for which in WHICH:
        if states[which].any():
            arrays[f"{which}_state"] = states[which]
            arrays |= {f"{which}_{name}": column for name, column in zip(METRICS, metrics[which], strict=True)}
    return arrays


def _sparks(stats: Sequence[ErrorStats | None]) -> dict[str, Any]:
    """Return a small histogram of each point's absolute errors on a common axis, with heights from 0 to 255."""
    histograms = {row: errors.absolute for row, errors in enumerate(stats) if errors and len(errors.absolute.counts)}
    if not histograms:
        return {"sparks": np.zeros(len(stats) * SPARK, np.uint8), "spark_ends": np.zeros(2)}
    high = math.ceil(math.log10(max(part.edges[-1] for part in histograms.values())))
    low = min(part.edges[0] for part in histograms.values())
    low = max(math.floor(math.log10(max(low, 5e-324))), high - _DECADES)
    heights = np.zeros((len(stats), SPARK))
    for row, histogram in histograms.items():
        middle = np.log10(histogram.edges[:-1] / 2 + histogram.edges[1:] / 2)
        places = np.clip((middle - low) / (high - low or 1) * SPARK, 0, SPARK - 1).astype(np.intp)
        heights[row] = np.bincount(places, histogram.counts, SPARK)
    most = heights.max(axis=1, keepdims=True)
    sparks = np.ceil(np.divide(heights, most, out=np.zeros_like(heights), where=most > 0) * 255)
    return {"sparks": sparks.astype(np.uint8).ravel(), "spark_ends": np.asarray([low, high], np.float64)}


def _details(comparison: Comparison, room: int, progress: Progress | None) -> dict[int, bytes]:
    """Return packed details of the worst points that fit, by their rows."""
    blobs: dict[int, bytes] = {}
    whole, work = room, CountedWork(progress, 2 * room)
    scores = comparison.scores() if comparison.points else np.zeros(0)
    for row in np.argsort(-np.nan_to_num(scores, nan=-math.inf), kind="stable").tolist() if room else ():
        work.reached(2 * whole - room, f"Packing the errors of {quoted(comparison.points[row].name)}")
        blob = detail_columns(comparison.points[row]).to_bytes()
        if len(blob) > room:
            break
        room -= len(blob)
        blobs[row] = blob
    return blobs


@np.errstate(over="ignore")  # errors beyond float32 are infinite in a chart
def detail_columns(point: Point) -> Columns:
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
            **{name: getattr(errors, name) for name in ("count", "equal", "finite", "outside")},
            "nan": errors.nan_mismatch,
            "inf": errors.inf_mismatch,
            "argmax": None if errors.argmax is None else list(errors.argmax),
            "axis": errors.channel_axis,
            "worst": [
                [f"[{', '.join(map(str, w.index))}]", *map(_value_text, (w.reference, w.candidate)), w.feed]
                for w in errors.worst
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


def _value_text(value: Any) -> str:
    return repr(shortened(value, 60)) if isinstance(value, str) else number_text(value)


def notable(comparison: Comparison) -> Point | None:
    """Return the point to inspect first: the first divergent, else of the layer that adds most; None if all equal."""
    first = comparison.first_divergent()
    layers = comparison.layers()[:1] if comparison.quantizers and first is None else []
    worst = [first] if first else [comparison[row["worst"]] for row in layers] or comparison.ranked()[:1]
    return next((point for point in worst if not point.errors().is_equal), None)


def point_paths(points: Sequence[Point]) -> list[str]:
    """Return the path of each point: its name where that is one, else its name in its layer."""
    return [point.name if point.scope in point.name else f"/{point.scope}/{point.name}" for point in points]


def sections(names: Sequence[str], most: int = 16) -> list[tuple[int, str]]:
    """Return the starts of a model's sections, from the longest common paths that form at most ``most`` sections."""
    if not names:
        return []
    separator = "/" if sum(name.startswith("/") for name in names) > len(names) // 2 else "."
    # an operation of a module, "blocks.0 → add()", is in the module
    whole = [name.strip("/").partition(" → ") for name in names]
    paths = [[*module.split(separator), *([operation] if operation else [])] for module, _, operation in whole]
    best: list[tuple[int, str]] = []
    for depth in range(1, 6):
        starts = _at_depth(paths, depth)
        ends = [place for place, _ in starts[1:]] + [len(names)]
        # a few points between others do not form a section
        starts = [entry for entry, end in zip(starts, ends, strict=True) if end - entry[0] > len(names) / (3 * most)]
        if len(starts) > most:
            break
        # prefer "layer.0" to the tenth "attention"
        best = max(best, starts, key=lambda entries: 2 * len({label for _, label in entries}) - len(entries))
    if len(best) < 2 or all(len(path) == 1 for path in paths):
        best = list(enumerate(names)) if len(names) <= 8 else []
    return [(place, shortened(label, 22)) for place, label in best]


def _at_depth(paths: Sequence[list[str]], depth: int) -> list[tuple[int, str]]:
    """Return the positions where the prefix of the paths changes, with its label."""
    starts: list[tuple[int, str]] = []
    last: list[str] = []
    for place, path in enumerate(paths):
        # the last part names the point itself; the result of a whole section belongs to that section
        section = path[: min(depth, max(len(path) - 1, 1))]
        if last not in (section, path):
            starts.append((place, ".".join(section[-2:]) if section[-1].isdigit() else section[-1]))
            last = section
    return starts


# ---------------------------------------------------------------- a diff and a simplification

Target = int
"""A node, or −1 − v for the value v."""

_FOLDING: Final = frozenset({"fold_constants", "fold_shapes", "fold_reshape", "extract_constants"})
"""Rules that replace nodes by a constant."""
_ENDS: Final = {**dict.fromkeys(_FOLDING, "a constant"), "eliminate_duplicate_initializer": "an equal one"}


_NO_CHANGES: Final[Mapping[str, Any]] = {"changes": [], "total": 0, "counts": {}, "message": ""}
"""What a diff has of its changes, for columns that have none."""


def diff_columns(differences: Diff) -> Columns:
    """Return both sides and the first 5,000 changes."""
    names = ("what", "kind", "name", "op", "detail", "reference", "candidate", "how")
    first = differences.changes[:5000]
    changes = [[*(getattr(change, name) for name in names), *change.nodes, *change.tensors] for change in first]
    counts = Counter(change.what for change in differences.changes)
    meta = {"changes": changes, "total": counts.total(), "counts": counts, "message": differences.message}
    return Columns(_side_columns(differences.sides), meta)


def _side_columns(sides: tuple[Counterparts, Counterparts]) -> dict[str, Any]:
    names = [field.name for field in fields(Counterparts)]
    return {f"{name}_{at}": getattr(side, name) for at, side in enumerate(sides) for name in names}


class Provenance:
    """The fate of each node in a simplification, or in one of its steps, counted from 1.

    Nodes keep their ids from the original to the result, and a `Change` has the ids of the nodes that it removed and
    added, so that all of this is looked up.
    """

    LIMIT: Final = 64
    """Maximum number of nodes of a change that are shown on each side."""

    sides: tuple[Counterparts, Counterparts]
    """State of each node and value: SAME in both models, ONLY in this one (removed or added), or FOLDED."""
    targets: tuple[list[list[Target]], list[list[Target]]]
    """Targets to show in each graph for each change, at most `LIMIT`: removed or added ones, else the changed place."""

    def __init__(self, report: Simplification, step: int | None = None) -> None:
        if step is None:
            models, ids, self.changes = (report.original, report.model), report.node_ids, report.changes
        else:
            first, last = report.steps[step - 1], report.steps[step]
            models, ids = (first.model, last.model), (first.node_ids, last.node_ids)
            self.changes = report.changes[first.done : last.done]
        self.before, self.after = models
        self._graphs = one, other = Graph.opened(models[0]), Graph.opened(models[1])
        keys = identify(one, ids[0]), identify(other, ids[1])
        there = {key: m for m, key in enumerate(keys[1]) if key[0] >= 0}
        self._node = node = np.asarray([there.get(key, -1) for key in keys[0]], np.int32)
        back = inverse(node, other.node_count)
        # a node of a function occurs in the opened graph once for each call
        self._nodes = [followers((id_, n) for n, (id_, _) in enumerate(side)) for side in keys]
        self._values = [{name: v for v, name in reversed(list(enumerate(g.value_names)))} for g in self._graphs]
        # the equal value in the second graph: by name, else by the mapping
        same = [self._values[1].get(name, -1) for name in one.value_names]
        for v in np.flatnonzero((np.asarray(same, np.int32) < 0) & (one.value_subgraph == 0)).tolist():
            same[v] = self._values[1].get(report.mapping.get(one.value_names[v]) or "", -1)
        self._value = np.asarray(same, np.int32)
        value = self._value, inverse(self._value, other.value_count)
        pairs = (node, back), value
        state, value_state = ([np.where(row < 0, ONLY, SAME).astype(np.uint8) for row in pair] for pair in pairs)
        self.change_of = np.full(one.node_count, -1, np.int32), np.full(other.node_count, -1, np.int32)
        """The change that removed, folded or added each node of each graph; −1 for none."""
        for number, change in enumerate(self.changes):
            for n in self._listed(0, change.taken):
                if node[n] < 0:
                    self.change_of[0][n] = number
                    state[0][n] = FOLDED if change.rule in _FOLDING else ONLY
            self.change_of[1][self._listed(1, change.made)] = number
        self.targets = left, right = self._targets(0), self._targets(1)
        additions = [[m for m in row if m >= 0 and back[m] < 0] for row in right]
        for number, (change, targets) in enumerate(zip(self.changes, right, strict=True)):
            for m in targets if change.rule in _FOLDING else ():
                if m >= 0 and state[1][m] == SAME and not other.folded[m]:
                    state[1][m], self.change_of[1][m] = FOLDED, number
        # the counterpart of a removed node is a node added in its place, preferably one of the same name
        for old, new in zip(left, additions, strict=True):
            for n in old if new else ():
                if n >= 0 and node[n] < 0:
                    node[n] = next((m for m in new if one.names[n] and one.names[n] == other.names[m]), new[-1])
        states = (state[0], value_state[0]), (state[1], value_state[1])
        self.sides = counterparts(self._graphs, (node, inverse(node, other.node_count)), value, states)

    def columns(self) -> Columns:
        """Return all columns for the browser; see ``frontend/protocol/simplification.ts``."""
        arrays = _side_columns(self.sides)
        for at, (lists, change) in enumerate(zip(self.targets, self.change_of, strict=True)):
            arrays[f"targets_end_{at}"], arrays[f"targets_{at}"] = joined(lists, np.int32)
            arrays[f"change_{at}"] = change
        meanings, counts = rules(), Counter(change.rule for change in self.changes)
        row = {rule: row for row, rule in enumerate(counts)}
        arrays["rule"] = np.asarray([row[change.rule] for change in self.changes], np.uint32)
        words = {
            "what": [self._what(number, change) for number, change in enumerate(self.changes)],
            "why": [shortened(change.why, LONGEST) for change in self.changes],
            "key": [change.key.partition(": ")[2] for change in self.changes],
        }
        states = [side.node_state for side in self.sides]
        meta = {
            **_NO_CHANGES,
            "made": "new",
            "rules": [[rule, meanings.get(rule, ""), count] for rule, count in counts.items()],
            "nodes": [[len(part), *(int(np.sum(part == state)) for state in (ONLY, FOLDED))] for part in states],
        }
        return Columns.of(arrays, words, meta)

    def _what(self, number: int, change: Change) -> str:
        """Describe a change by operators: "Conv + BatchNormalization → Conv"."""
        sides, texts = zip(self._graphs, self.targets, self.change_of, strict=True), list[str]()
        for (graph, targets, change_of), ids in zip(sides, (change.taken, change.after), strict=True):
            nodes = [node for node in targets[number] if node >= 0 and change_of[node] >= 0] if ids else []
            texts.append(_operators(map(graph.op_type, nodes)))
        old, new = texts
        begin, end = "nothing" if new else "a constant", _ENDS.get(change.rule, "nothing")
        return f"{old or begin} → {new or end}"

    def _listed(self, side: int, ids: Iterable[int]) -> list[int]:
        """Return the nodes of a graph with the given ids."""
        return [n for id_ in ids for n in self._nodes[side].get(id_, ())]

    def _tensor(self, side: int, change: Change) -> list[Target]:
        """Return the tensor to which a change was applied, if the graph has it."""
        value = self._values[side].get(change.key.partition(": ")[2], -1)
        return [-1 - value] if value >= 0 else []

    def _targets(self, side: int) -> list[list[Target]]:
        """Return the targets of each change in a graph, including those found through earlier or later changes.

        In the first graph these are the nodes that it removed; in the second the nodes that it added, or the tensors
        that replace the removed ones.
        """
        targets: list[list[Target]] = [[] for _ in self.changes]
        other: dict[int, int] = {}
        """The change that added a node (before this one), or that removed it (after this one)."""
        order = range(len(self.changes))
        for number in reversed(order) if side else order:
            change = self.changes[number]

            def resolved(ids: Iterable[int]) -> list[Target]:
                by_way_of = (targets[other[id_]] for id_ in ids if id_ in other)
                return list(dict.fromkeys([*self._listed(side, ids), *itertools.chain.from_iterable(by_way_of)]))

            if side == 0:
                nodes = sorted(n for n in resolved(change.taken) if n >= 0 and self._node[n] < 0)
                picks = nodes or self._tensor(0, change) or resolved(change.rewired)
            else:
                nodes = resolved(change.made) or ([] if change.rule in _FOLDING else self._replacing(change))
                picks = nodes or resolved(change.rewired) or self._tensor(1, change)
            targets[number] = picks[: self.LIMIT]
            other.update(dict.fromkeys(change.taken if side else change.made, number))
        return targets

    def _replacing(self, change: Change) -> list[Target]:
        """Return the tensors that replace the outputs of the nodes that a change removed, or its own tensor."""
        values = [v for n in self._listed(0, change.taken) for v in self._graphs[0].results(n)]
        values = values or [-1 - target for target in self._tensor(0, change)]
        return list(dict.fromkeys(-1 - int(self._value[v]) for v in values if self._value[v] >= 0))


def _operators(names: Iterable[str]) -> str:
    """Return at most four operators as text, with the number of equal ones."""
    counts = list(Counter(names).items())
    parts = [name if count == 1 else f"{count} {name}" for name, count in counts[:4]]
    rest = sum(count for _, count in counts[4:])
    return " + ".join([*parts, *([f"{rest} more"] if rest else [])])


def account(report: Simplification) -> dict[str, Any]:
    """Return the JSON that a panel shows in addition to the changes: sizes, operators, unfolded nodes."""
    left = sorted(report.left, key=lambda row: -row.nbytes)[:1000]
    before, after = report.before, report.after
    file = report.original.path or Path("model.onnx")
    return {
        "name": shortened(report.original.name, LONGEST),
        "verdict": report.verdict,
        "said": shortened(report.verification, 2000),
        "call": report.call(),
        "nodes": [sum(before.values()), sum(after.values())],
        "bytes": [model.nbytes for model in (report.original, report.model)],
        "operators": [[op, before.get(op, 0), after.get(op, 0)] for op in sorted({*before, *after})],
        "left": [[shortened(row.node, LONGEST), row.op_type, row.nbytes, shortened(row.why, LONGEST)] for row in left],
        "left_count": len(report.left),
        "skipped": list(report.options.get("skip", ())),
        "outputs": [
            [shortened(name, LONGEST), f"{errors.max_abs:.3g}", errors.outside, errors.count]
            for name, errors in list(report.differences.items())[:1000]
        ],
        "steps": [[step.name, len(step.model.proto.graph.node), step.done] for step in report.steps],
        "path": f"{file.stem}.simplified{file.suffix or '.onnx'}",
    }


# ---------------------------------------------------------------- a profile

SPANS: Final = 50_000
"""Maximum number of executions in a timeline: the longest."""


def profile_columns(profile: Profile, comparison: ProfileComparison | None = None) -> Columns:
    """Return the kernels of a profile, its scopes, the most usual run, and what changed from another profile."""
    kernels, graph = profile.kernels, profile.graph
    tree = scopes(graph)
    spans = sorted(profile.spans, key=lambda span: -span.seconds)[:SPANS]
    spans.sort(key=lambda span: span.start)
    threads = list(dict.fromkeys(span.thread for span in spans))
    changes = () if comparison is None else comparison.changes
    node_ptr, node = joined([kernel.nodes for kernel in kernels], np.int32)
    arrays: dict[str, Any] = {
        "seconds": np.asarray([kernel.median for kernel in kernels], np.float64),
        "share": profile.shares,
        "gflops": np.asarray([kernel.rate(kernel.flops) for kernel in kernels], np.float64),
        "gbs": np.asarray([kernel.rate(kernel.nbytes) for kernel in kernels], np.float64),
        "category": np.asarray([category(kernel.op) for kernel in kernels], np.uint8),
        "parent": np.asarray([kernel.parent for kernel in kernels], np.int32),
        "scope": np.asarray(profile.kernel_scopes, np.int32),
        "optimized": np.asarray([kernel.optimized for kernel in kernels], np.int32),
        "node_ptr": node_ptr,
        "node": node,
        "span_kernel": np.asarray([span.kernel for span in spans], np.uint32),
        "span_thread": np.asarray([threads.index(span.thread) for span in spans], np.uint32),
        "scope_parent": np.asarray(tree.scope_parent, np.int32),
        "change_kernel": np.asarray([(*change.kernels[1], -1)[0] for change in changes], np.int32),
    }
    arrays |= numbers(kernels, ("spread", "calls", "intensity", "memory", "threads"))
    arrays |= numbers(spans, ("start", "seconds"), "span_")
    arrays |= numbers(changes, ("before", "after", "difference", "noise", "nodes"), "change_")
    words = texts(kernels, ("name", "op", "provider", "edge", "how"))
    words |= texts(changes, ("verdict", "name", "op", "before_op"), "change_")
    words["inside"] = [kernels[kernel.parent].name if kernel.parent >= 0 else "" for kernel in kernels]
    types = {kernel.shapes: kernel.types for kernel in {kernel.shapes: kernel for kernel in kernels}.values()}
    words["types"] = [types[kernel.shapes] for kernel in kernels]
    words["node_name"] = [graph.node_label(number) for number in node.tolist()]
    words |= {"scope_path": tree.scope_path, "scope_class": tree.scope_class}
    meta = {
        "model": shortened(profile.model.name, LONGEST),
        "message": profile.message if comparison is None else comparison.message,
        "facts": profile.facts,
        "compared": comparison is not None,
        "pair": profile.optimized is not None,
        "categories": list(CATEGORIES),
        "left_out": len(profile.spans) - len(spans),
    }
    return Columns.of(arrays, words, meta)


def resource_columns(profile: Profile) -> Columns:
    """Return what kernels are measured against: speeds of this machine, and the memory of a run as counted."""
    memory = profile.costs.memory
    kernels = {node: number for number, kernel in enumerate(profile.kernels) for node in kernel.nodes}
    on_cpu = any(kernel.provider in ("", "CPUExecutionProvider") for kernel in profile.kernels)
    arrays: dict[str, Any] = {
        "step_kernel": np.asarray([kernels.get(node, -1) for node in memory.order.tolist()], np.int32),
        "step_bytes": memory.alive,
        "held_bytes": np.asarray([entry.nbytes for entry in memory.alive_at_peak], np.float64),
    }
    meta = {"speeds": (on_cpu and profile.peak) or (0, 0), "message": memory.message}
    return Columns.of(arrays, texts(memory.alive_at_peak, ["tensor"]), meta)


def ran_columns(profile: Profile) -> Columns:
    """Return which node of the optimized model each node is part of, in the form of a diff without changes."""
    if profile.optimized is None:
        raise OnnxNbError("the optimized model is not in a profile that was loaded.", advice="Profile the model again.")
    graphs = profile.graph, Graph.opened(profile.optimized)
    node = [np.full(graph.node_count, -1, np.int32) for graph in graphs]
    for kernel in profile.kernels:
        if kernel.optimized >= 0 and kernel.nodes and not kernel.edge:
            node[0][list(kernel.nodes)] = kernel.optimized
            node[1][kernel.optimized] = kernel.nodes[-1]
    index = {name: number for number, name in enumerate(graphs[1].value_names)}
    value = np.asarray([index.get(name, -1) for name in graphs[0].value_names], np.int32)
    inserts = [kernel.optimized for kernel in profile.kernels if kernel.edge and kernel.optimized >= 0]
    counts = [(graph.node_count, graph.value_count) for graph in graphs]
    before, after = ((np.full(nodes, SAME, np.uint8), np.full(values, SAME, np.uint8)) for nodes, values in counts)
    after[0][inserts] = ONLY
    sides = counterparts(graphs, (node[0], node[1]), (value, inverse(value, graphs[1].value_count)), (before, after))
    return Columns(_side_columns(sides), {**_NO_CHANGES, "counts": {"added": len(inserts)}})
