"""Where two models, or a model and what it was made from, stop computing the same.

A `Comparison` has a `Point` for every value that both sides have, in the order in which the reference computes them,
with its errors: the cumulative one, of both sides running by themselves, and where it is known the isolated one, of the
candidate being given the reference's values.
"""

from __future__ import annotations

import concurrent.futures
import csv
import dataclasses
import functools
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np

from onnx_nb.analysis.compare import lockstep, value_matching
from onnx_nb.analysis.compare.diff import Diff, diff
from onnx_nb.analysis.compare.distances import by_norm
from onnx_nb.analysis.compare.metrics import ATOL, METRICS, RTOL, ErrorStats, Worst, precision
from onnx_nb.analysis.dataframes import data_frame
from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.model import archive
from onnx_nb.analysis.model.model import ModelLike, label_of, load
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.model.value_info import input_types
from onnx_nb.analysis.progress import Done, count_of
from onnx_nb.analysis.run.array_store import available_memory
from onnx_nb.analysis.run.capture import Capture, named
from onnx_nb.analysis.run.executor import spread
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.log_histogram import Floats, LogHistogram
from onnx_nb.analysis.run.statistics import Histogram

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.compare.node_matching import Matching
    from onnx_nb.analysis.compare.value_matching import Option
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.progress import Progress

Kind = Literal["absolute", "signed", "relative", "ulp"]
"""Of which errors a histogram is."""
Which = Literal["cumulative", "isolated"]
_Sides = tuple[lockstep.Running | lockstep.Kept, lockstep.Running | lockstep.Kept]

STANDS_OUT: Final = 10.0
"""A point is told of if its error is so many times what is usual, or what came before."""
_NOISE: Final = 32
"""So many times the precision of a type is what rounding may do to a tensor."""
_SMALLEST_MEDIAN: Final = 2.0**-23
"""Isolated errors are not measured against less: where most are exact any rounding would stand out."""


def compare(
    reference: ModelLike | Capture,
    candidate: ModelLike | Capture,
    feeds: Any = None,
    *,
    tensors: str | Iterable[str] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    memory_limit: int | None = None,
    providers: Sequence[str] | None = None,
    executor: concurrent.futures.Executor | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run two models on the same feeds and measure every value that both have, without keeping any.

    Values are the same if their names are, or differ by what quantization appends to them; where several values may be
    meant, or a name means something else in the other model, the values themselves decide. What has no common name is
    matched by its shape and values. `Point.matched` says how it was.

    Parameters
    ----------
    reference
        What is taken to be right: any `ModelLike`, or a `Capture` that kept arrays.
    candidate
        What should compute the same: simplified, in float16, quantized, or a `Capture` that kept arrays.
    feeds
        What to run them on, as `read_feeds` takes it for the reference; several feeds merge. Inputs that the candidate
        has in another type, as float16, are cast; those of another name are given by position. If ``None``, random
        values, or what a `Capture` kept of its inputs.
    tensors
        Names or patterns (``*``, ``?``, ``[…]``) of the reference's values to compare; all if ``None``.
    rtol, atol
        What may differ, for `ErrorStats.outside`.
    memory_limit
        Bytes that values of both sides may take, half of the available memory if ``None``. Values that wait for the
        other side go to files of a temporary folder beyond a quarter of it.
    providers
        Execution providers, best first; the CPU if ``None``.
    executor
        Any `concurrent.futures.Executor` that runs the feeds after the first side by side. The numbers are the same
        to the last bit.
    progress
        Called between windows with the part done and what runs next. What it raises ends the comparison.

    Returns
    -------
    Comparison

    Raises
    ------
    AlignmentError
        If the two have no value in common.
    FeedError
        If a feed does not fit one of the models.
    CaptureError
        If a model is broken, or onnxruntime fails on a node.

    Examples
    --------
    >>> import onnx.parser
    >>> exact, rough = (onnx.parser.parse_model(f'''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2, 8] x, float[8] s, float[8] b) => (float[2, 8] y)
    ... {{ n = LayerNormalization<epsilon = {epsilon}>(x, s, b)  y = Tanh(n) }}''') for epsilon in (1e-12, 1e-2))
    >>> c = compare(exact, rough)
    >>> c
    Comparison(5 points of 'g' and 'g', 3 equal)
    >>> print(c.message.partition(". ")[2])
    Epsilon is 0.01 instead of 1e-12.
    """
    limit = available_memory() // 2 if memory_limit is None else memory_limit
    if limit <= 0:
        raise AlignmentError(f"memory_limit is {limit}.", advice="Give a number of bytes, or leave it out.")
    sides = _side(reference, limit // 2, providers), _side(candidate, limit // 2, providers)
    differing = diff(sides[0].graph.model, sides[1].graph.model, weights=False)
    job, there = _job(sides, differing.matching, tensors, rtol=rtol, atol=atol, limit=limit)
    done = Done(progress, _feed_count(sides, feeds))
    given = enumerate(_feeds(sides, feeds))
    _, first = next(given, (0, None))
    if first is None:
        raise FeedError("no feed was given.", advice="The iterable is empty: a generator can be used only once.")
    errors, misfits = _first(sides, job, first, done)
    proposed, job = job.options, job._replace(options=tuple(errors))
    feeds_run = 1
    for found in _rest(sides, job, given, executor, done):
        feeds_run += 1
        errors = {option: mine | found.errors[option] for option, mine in errors.items() if option in found.errors}
        misfits |= {option: f"{why} (feed {feeds_run - 1})" for option, why in found.misfits.items()}
    done.all()
    return _compared(sides, differing, errors=errors, misfits=misfits, proposed=proposed, there=there, feeds=feeds_run)


@dataclass(frozen=True, repr=False)
class Point:
    """A value that both sides have."""

    name: str
    """What a person calls it: the path of a PyTorch module, else the reference's tensor."""
    reference: str
    """The tensor of the reference, or the call that made it."""
    candidate: str
    """The tensor of the candidate."""
    matched: str
    """How it was found to be the same: "name", "suffix", "values", "scope", "order" …"""
    depth: int
    """Its number in the order in which the reference computes."""
    op_type: str = ""
    """What makes it: an operator's type, or a module's class; "" for an input of the model."""
    node: str = ""
    """The candidate's node that makes it."""
    scope: str = ""
    """Where in the module tree it is, if that is known."""
    source: str = ""
    """A place in the Python source, as ``modeling_bert.py:471``."""
    output: bool = False
    """Whether it is an output of the model."""
    difference: str = ""
    """In what the two sides are proven to differ here, as ``epsilon is 1e-05 instead of 1e-12``."""
    cumulative: ErrorStats | None = None
    isolated: ErrorStats | None = None

    def errors(self, which: Which | None = None) -> ErrorStats:
        """Return its errors; where it is not said which, the isolated ones if they are known."""
        if which not in (None, "cumulative", "isolated"):
            raise AlignmentError(f"there are no {which!r} errors.", advice="There are: cumulative, isolated.")
        found: ErrorStats | None = getattr(self, which) if which else self.isolated or self.cumulative
        if found is None:
            message = f"the {which or ''} errors of {quoted(self.name)} are not known.".replace("  ", " ")
            raise AlignmentError(message, advice="compare_torch gives both.")
        return found

    def __repr__(self) -> str:
        known = (("cumulative", self.cumulative), ("isolated", self.isolated))
        errors = "".join(f", {name} {found.rel_l2:.2g}" for name, found in known if found is not None)
        return f"Point({quoted(self.name)}{f', {self.op_type}' if self.op_type else ''}{errors})"


@dataclass(frozen=True)
class Unmatched:
    """A value that only one side has."""

    name: str
    side: Literal["reference", "candidate"]
    reason: str
    """Why nothing on the other side was found to be the same."""
    op_type: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found: ``c["name"]`` is a `Point`, by its name or by the tensor's on either side.

    Examples
    --------
    >>> exact = ErrorStats.of(np.arange(4.0), np.arange(4.0))
    >>> wrong = ErrorStats.of(np.arange(4.0), np.arange(4.0) + 0.1)
    >>> points = [Point(name, name, name, "name", depth, "Add", cumulative=errors)
    ...           for depth, (name, errors) in enumerate({"a": exact, "b": exact, "c": wrong, "y": wrong}.items())]
    >>> c = Comparison("model.onnx", "model-int8.onnx", tuple(points))
    >>> c
    Comparison(4 points of 'model.onnx' and 'model-int8.onnx', 2 equal)
    >>> c.first_divergent()
    Point('c', Add, cumulative 0.053)
    >>> print(c.message)
    First differs at 'c' (Add): an error of 5.3e-02 of its norm, none before it.
    """

    reference: str
    """What to call the side that is taken to be right."""
    candidate: str
    points: tuple[Point, ...] = ()
    """In order of `Point.depth`."""
    unmatched: tuple[Unmatched, ...] = ()
    feeds: int = 1
    """How many were run."""

    def __getitem__(self, name: str) -> Point:
        found = self._by_name.get(name)
        if found is not None:
            return found
        for missing in self.unmatched:
            if missing.name == name:
                raise AlignmentError(f"{quoted(name)} is only in the {missing.side}: {missing.reason}.")
        near = ", ".join(map(quoted, closest(str(name), self._by_name)))
        message = f"there is no point called {quoted(str(name))}."
        raise AlignmentError(message, advice=f"Closest names: {near}." if near else "See comparison.names.")

    def __contains__(self, name: object) -> bool:
        """Return whether a point has this name."""
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """Return the names of all points, in order of execution."""
        return (point.name for point in self.points)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    def __repr__(self) -> str:
        points = f"{len(self.points):,} point{'' if len(self.points) == 1 else 's'}"
        equal = sum(all(errors.is_equal for errors in _known(point)) for point in self.points)
        feeds = f", {self.feeds:,} feeds" if self.feeds != 1 else ""
        sides = f"{quoted(self.reference)} and {quoted(self.candidate)}"
        return f"{type(self).__name__}({points} of {sides}, {equal:,} equal{feeds})"

    @property
    def names(self) -> list[str]:
        """The names of all points, in order of execution."""
        return list(self)

    @functools.cached_property
    def has_isolated(self) -> bool:
        """Whether isolated errors are known."""
        return any(point.isolated is not None for point in self.points)

    def first_divergent(self) -> Point | None:
        """Find where the candidate first computes something else; None if no point stands out.

        Where isolated errors are known it is the first point whose own is unusual for its kind (see `scores`), among
        those of two faults the far larger one. Else the first whose error is ten times all before it, and more than
        rounding explains.
        """
        if self.has_isolated:
            scores = self.scores("isolated")
            finite = scores[np.isfinite(scores)]
            bar = max(STANDS_OUT, math.sqrt(finite.max(initial=0.0)))
            found = np.flatnonzero(scores >= bar)
            return self.points[found[0]] if len(found) else None
        before = 0.0
        for point in self.points:
            if point.cumulative is None:
                continue
            if point.cumulative.mismatches:
                return point
            size = point.cumulative.rel_l2
            if size > max(_NOISE * precision(point.cumulative), STANDS_OUT * before):
                return point
            before = max(before, 0.0 if math.isnan(size) else size)
        return None

    @property
    def message(self) -> str:
        """Where the sides first differ, by how much, and why if attributes prove it."""
        if not self.points:
            return "No value of one side was found on the other."
        first = self.first_divergent()
        if first is None:
            which: Which = "isolated" if self.has_isolated else "cumulative"
            known = [point for point in self.points if getattr(point, which) is not None]
            worst = max(known, key=lambda point: _size(point.errors(which)))
            size = _size(worst.errors(which))
            if not size:
                return f"All {len(known):,} points are equal." if len(known) > 1 else "The only point is equal."
            if len(known) == 1:
                return f"{quoted(worst.name)}, the only point, has an error of {_figure(size)} of its norm."
            return f"No point stands out: the largest error is {_figure(size)} of the norm, at {quoted(worst.name)}."
        what = f" ({first.op_type})" if first.op_type not in ("", first.name.partition("#")[0]) else ""
        errors = first.errors()
        why = f" {first.difference[:1].upper()}{first.difference[1:]}." if first.difference else ""
        if errors.mismatches:
            many = f"{errors.mismatches:,} of {errors.count:,} values"
            kind = "different" if errors.dtypes[0] == "string" else "NaN or infinite on one side only"
            return f"First differs at {quoted(first.name)}{what}: {many} are {kind}.{why}"
        if first.isolated is None:
            before = [_size(point.cumulative) for point in self.points[: self.points.index(first)] if point.cumulative]
            after = f"at most {_figure(max(before))} before it" if any(before) else "none before it"
            own = f"an error of {_figure(errors.rel_l2)} of its norm"
            return f"First differs at {quoted(first.name)}{what}: {own}, {after}.{why}"
        others = [point.isolated for point in self.points if point is not first and point.isolated is not None]
        rest = max((_size(other) for other in others), default=0.0)
        ratio = errors.rel_l2 / rest if rest else math.inf
        next_worst = f"the next worst is {f'{_times(ratio)} smaller' if ratio > 1 else _figure(rest)}"
        own = f"its own error is {_figure(errors.rel_l2)} of its norm, {next_worst if rest else 'no other has one'}"
        return f"First differs at {quoted(first.name)}{what}: {own}.{why}"

    def ranked(self, by: str = "") -> list[Point]:
        """Return the points that have such errors, the worst first.

        Parameters
        ----------
        by
            As `scores` takes it.
        """
        scores = self.scores(by)
        order = np.argsort(-scores, kind="stable")
        return [self.points[place] for place in order if not math.isnan(scores[place])]

    def scores(self, by: str = "") -> Floats:
        """Return a number for each point that is the larger the worse it is; NaN where there is none.

        Parameters
        ----------
        by
            "isolated": the norm of the point's own error by that of its values, against the median of all points of
            the same `Point.op_type`; "cumulative": the same of the cumulative error, against nothing; or the name of
            one of `METRICS`, of the isolated errors where they are known. If it is empty, "isolated" where known.

        Returns
        -------
        numpy.ndarray
            Float64, shape (points,); infinite where there are NaN or infinities on one side only.

        Raises
        ------
        AlignmentError
            If there is no such metric, or isolated errors are not known.
        """
        by = by or ("isolated" if self.has_isolated else "cumulative")
        if by == "isolated" and not self.has_isolated:
            raise AlignmentError("isolated errors are not known.", advice='compare_torch gives them; use "cumulative".')
        if by in ("isolated", "cumulative"):
            sizes = np.asarray([_size(getattr(point, by)) for point in self.points])
            return sizes / self._usual(sizes) if by == "isolated" else sizes
        if by not in METRICS:
            known = ", ".join(["isolated", "cumulative", *METRICS])
            raise AlignmentError(f"points cannot be ranked by {by!r}.", advice=f"There are: {known}.")
        known_errors = [next(iter(_known(point)), None) for point in self.points]
        return np.asarray([math.nan if errors is None else errors.badness(by) for errors in known_errors])

    def histogram(self, name: str, kind: Kind = "absolute", which: Which | None = None) -> Histogram | LogHistogram:
        """Return the histogram of a point's errors.

        Parameters
        ----------
        name
            Of the point, or of its tensor on either side.
        kind
            "signed" (candidate − reference; a `Histogram`), "absolute", "relative" or "ulp" (each a `LogHistogram`).
        which
            "cumulative" or "isolated"; the latter where known if it is not said.
        """
        if kind not in ("absolute", "signed", "relative", "ulp"):
            message = f"there is no histogram of {kind!r} errors."
            raise AlignmentError(message, advice="There are: absolute, signed, relative, ulp.")
        found: Histogram | LogHistogram = getattr(self[name].errors(which), kind)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each point: what it is, then each metric of its cumulative and its isolated errors.

        The columns of isolated errors start with ``isolated_`` and are there where any are known.
        """
        rows = []
        scores = self.scores("isolated") if self.has_isolated else np.zeros(len(self.points))
        for point, score in zip(self.points, scores.tolist(), strict=True):
            row = {name: getattr(point, name) for name in _COLUMNS}
            row["shape"] = next((errors.shape for errors in _known(point)), None)
            if self.has_isolated:
                row["score"] = score
            for prefix, errors in (("", point.cumulative), ("isolated_", point.isolated)):
                if not prefix or self.has_isolated:
                    row |= {f"{prefix}{name}": errors.metric(name) if errors else math.nan for name in METRICS}
            rows.append(row)
        return rows

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a pandas data frame.

        Raises
        ------
        OnnxNbError
            If pandas is not installed.
        """
        return data_frame(self.rows(), self._columns)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `rows` as a file of comma separated values.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns)
        writer.writeheader()
        writer.writerows(
            {**row, "shape": "×".join(map(str, row["shape"])) if row["shape"] is not None else ""}
            for row in self.rows()
        )
        with together() as files:
            files.add(Path(path), [text.getvalue().encode()])

    def save(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Write all of it to a file that `load` reads; the models and their values are not in it.

        Parameters
        ----------
        path
            An existing file is replaced, once all is written.
        progress
            Called with the part done and what is done next. What it raises ends the work, and nothing is written.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        known = Comparison(self.reference, self.candidate, self.points, self.unmatched, self.feeds)
        archive.write(path, known, "comparison", progress)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote.

        Raises
        ------
        ModelFileError
            If there is no such file, or it is something else.
        """
        classes = (Comparison, Point, Unmatched, ErrorStats, Worst, Histogram, LogHistogram)
        found: Comparison = archive.read(path, "comparison", {each.__name__: each for each in classes})
        return found

    def merge(self, other: Comparison) -> Self:
        """Return the comparison of the feeds of both; points that only one has stay as they are.

        Raises
        ------
        AlignmentError
            If they have no point in common, or were made with different tolerances.
        """
        theirs = {(point.reference, point.candidate): point for point in other.points}
        merged = []
        common = 0
        for mine in self.points:
            yours = theirs.pop((mine.reference, mine.candidate), None)
            common += yours is not None
            merged.append(mine if yours is None else _merged(mine, yours, self.feeds))
        if not common and self.points and other.points:
            message = f"the comparisons of {quoted(self.candidate)} and {quoted(other.candidate)} share no point."
            raise AlignmentError(message, advice="Merge comparisons of the same two models.")
        merged += [
            _merged(dataclasses.replace(point, cumulative=None, isolated=None), point, self.feeds)
            for point in theirs.values()
        ]
        merged.sort(key=lambda point: point.depth)
        there = {(point.name, side) for point in merged for side in ("reference", "candidate")}
        missing = tuple(each for each in self.unmatched if (each.name, each.side) not in there)
        return dataclasses.replace(self, points=tuple(merged), unmatched=missing, feeds=self.feeds + other.feeds)

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Point]:
        found: dict[str, Point] = {}
        for attribute in ("name", "reference", "candidate"):
            for point in self.points:
                found.setdefault(getattr(point, attribute), point)
        return found

    @property
    def _columns(self) -> list[str]:
        isolated = [f"isolated_{name}" for name in METRICS] if self.has_isolated else []
        return [*_COLUMNS, "shape", *(["score"] if isolated else []), *METRICS, *isolated]

    def _usual(self, sizes: Floats) -> Floats:
        """Return for each point the median error of its kind; of all where it is the only one."""
        members: dict[str, list[int]] = {}
        for place, point in enumerate(self.points):
            if math.isfinite(sizes[place]):
                members.setdefault(point.op_type, []).append(place)
        every = _lower_median(sizes[np.isfinite(sizes)])
        usual = {kind: _lower_median(sizes[places]) if len(places) > 1 else every for kind, places in members.items()}
        return np.asarray([max(usual.get(point.op_type, every), _SMALLEST_MEDIAN) for point in self.points])


_COLUMNS: Final = (
    "name", "op_type", "reference", "candidate", "matched", "depth", "node", "scope", "source", "output", "difference",
)  # fmt: skip


def _known(point: Point) -> list[ErrorStats]:
    return [errors for errors in (point.isolated, point.cumulative) if errors is not None]


def _size(errors: ErrorStats | None) -> float:
    """Return what points of any scale are compared by."""
    if errors is None:
        return math.nan
    return math.inf if errors.mismatches else 0.0 if errors.is_equal else errors.rel_l2


def _lower_median(values: Floats) -> float:
    """Return the median, of two the smaller: one that is faulty shall not speak for its kind."""
    return float(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 0.0


def _merged(mine: Point, yours: Point, feeds: int) -> Point:
    both = {}
    for which in ("cumulative", "isolated"):
        one, other = getattr(mine, which), getattr(yours, which)
        if other is not None:
            later = tuple(dataclasses.replace(worst, feed=worst.feed + feeds) for worst in other.worst)
            other = dataclasses.replace(other, worst=later)
        both[which] = one.merge(other) if one and other else one or other
    return dataclasses.replace(mine, **both)


def _figure(value: float) -> str:
    return f"{value:.1e}"


def _times(ratio: float) -> str:
    if math.isinf(ratio):
        return "infinitely"
    return f"{float(f'{ratio:.2g}'):,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


# --- comparing ------------------------------------------------------------------------------------------------------


def _side(given: ModelLike | Capture, limit: int, providers: Sequence[str] | None) -> lockstep.Running | lockstep.Kept:
    if not isinstance(given, Capture):
        return lockstep.Running(load(given), memory_limit=limit, providers=providers)
    side = lockstep.Kept(given)
    if not side.names:
        message = f"the capture of {label_of(given.model)} kept no arrays."
        raise AlignmentError(message, advice='Capture with keep="*", or give the model itself.')
    return side


def _job(
    sides: _Sides,
    matching: Matching,
    tensors: str | Iterable[str] | None,
    *,
    rtol: float,
    atol: float,
    limit: int,
) -> tuple[lockstep.Job, tuple[list[int], list[int]]]:
    """Return what is to be compared; give also the values that either side has, in order of execution."""
    graphs = sides[0].graph, sides[1].graph
    mine, yours = (list(value_matching.values(graph).values()) for graph in graphs)
    there = [set(side.names) if isinstance(side, lockstep.Kept) else None for side in sides]
    mine = [value for value in mine if there[0] is None or value in there[0]]
    yours = [value for value in yours if there[1] is None or value in there[1]]
    if tensors is not None:
        asked = set(named(graphs[0], tensors, mine, "tensors"))
        mine = [value for value in mine if value in asked]
    options = value_matching.options(*graphs, matching)
    usable = set(mine), set(yours)
    options = [option for option in options if option.reference in usable[0] and option.candidate in usable[1]]
    if tensors is not None and {option.reference for option in options} == usable[0]:
        yours = sorted({option.candidate for option in options}, key=yours.index)  # the rest need not run
    outputs = frozenset(graphs[0].outputs.tolist())
    seen = frozenset(mine), frozenset(yours)
    return lockstep.Job(tuple(options), rtol, atol, limit, outputs, seen), (mine, yours)


def _first(
    sides: _Sides,
    job: lockstep.Job,
    feed: Mapping[str, Any],
    done: Done,
) -> tuple[dict[Option, ErrorStats], dict[Option, str]]:
    """Run the first feed, and decide what is what."""
    found = lockstep.run(sides, job, feed, 0, sampled=True, progress=done)
    picked = value_matching.chosen(found.errors, job.options)
    apart = {option: by_norm(found.errors[option]) for option in picked}
    doubtful = {
        option.reference: (option.candidate, apart[option]) for option in picked if apart[option] > value_matching.DOUBT
    }
    sure = [option for option in picked if option.reference not in doubtful]
    settled = {option.reference for option in sure}, {option.candidate for option in sure}
    left = [
        {value: sample for value, sample in found.samples[side].items() if value not in settled[side]}
        for side in (0, 1)
    ]
    operators = [
        {value: _operator(side.graph, value) for value in samples} for side, samples in zip(sides, left, strict=True)
    ]
    alike = value_matching.alike(left[0], left[1], doubtful, (operators[0], operators[1]))
    errors = {option: found.errors[option] for option in picked}
    if alike:
        again = lockstep.run(
            sides, job._replace(options=tuple(alike)), feed, 0, progress=lambda _, what: done(1.0, what)
        )
        gone = {option.reference for option in alike}, {option.candidate for option in alike}
        errors = {
            option: each
            for option, each in errors.items()
            if option.reference not in gone[0] and option.candidate not in gone[1]
        } | again.errors
    return errors, found.misfits


def _rest(
    sides: _Sides,
    job: lockstep.Job,
    feeds: Iterator[tuple[int, dict[str, Any]]],
    executor: concurrent.futures.Executor | None,
    done: Done,
) -> Iterator[lockstep.Found]:
    """Run the other feeds, here or wherever an executor runs them; in their order."""
    if executor is None:
        for number, feed in feeds:
            before = functools.partial(_report, done, number)
            yield lockstep.run(sides, job, feed, number, progress=before)
        return
    results = spread(executor, lockstep.run_remote, lockstep.pickled(sides, job), feeds)
    for number, found in enumerate(results, 2):
        yield found
        done(number, f"{number} feeds done")


def _report(done: Done, number: int, part: float, what: str) -> None:
    done(number + part, what)


def _compared(
    sides: _Sides,
    differing: Diff,
    *,
    errors: Mapping[Option, ErrorStats],
    misfits: Mapping[Option, str],
    proposed: Sequence[Option],
    there: tuple[list[int], list[int]],
    feeds: int,
) -> Comparison:
    """Put together what was found."""
    graphs = sides[0].graph, sides[1].graph
    labels = [graph.model.name for graph in graphs]
    options = {option.reference: option for option in errors}
    changes = _changes(differing)
    outputs = frozenset(graphs[0].outputs.tolist())
    points = []
    for depth, value in enumerate(there[0]):
        option = options.get(value)
        if option is None:
            continue
        maker = int(graphs[1].producer[option.candidate])
        points.append(
            Point(
                name=graphs[0].value_names[value],
                reference=graphs[0].value_names[value],
                candidate=graphs[1].value_names[option.candidate],
                matched=option.how,
                depth=depth,
                op_type=_operator(graphs[0], value),
                node=graphs[1].names[maker] if maker >= 0 else "",
                output=value in outputs,
                difference=changes.get((int(graphs[0].producer[value]), maker), ""),
                cumulative=errors[option],
            )
        )
    if not points:
        message = f"{label_of(graphs[0].model)} and {label_of(graphs[1].model)} have no value in common."
        why = next(iter(misfits.values()), "")
        advice = "Are they the same model, run on the same feeds?"
        raise AlignmentError(f"{message} Of the first of the same name, {why}." if why else message, advice=advice)
    reasons: list[dict[int, str]] = [{}, {}]
    for option, why in misfits.items():
        for side in (0, 1):
            reasons[side].setdefault(option.of(side), why)
    matched = {option.reference for option in errors}, {option.candidate for option in errors}
    owner = {option.candidate: option.reference for option in errors}
    for option in proposed:
        if option.reference not in matched[0] and option.candidate in owner:
            names = graphs[1].value_names[option.candidate], graphs[0].value_names[owner[option.candidate]]
            why = f"the candidate's {quoted(names[0])} is what {quoted(names[1])} is in the reference"
            reasons[0].setdefault(option.reference, why)
    unmatched = [
        Unmatched(
            graphs[at].value_names[value],
            side,
            reasons[at].get(value, f"the {other} has no value of its name or structure, nor one with its values"),
            _operator(graphs[at], value),
        )
        for at, side, other in _SIDES
        for value in there[at]
        if value not in matched[at]
    ]
    comparison = Comparison(labels[0], labels[1], tuple(points), tuple(unmatched), feeds)
    return _with_weights(comparison, graphs)


_SIDES: Final[tuple[tuple[int, Literal["reference", "candidate"], str], ...]] = (
    (0, "reference", "candidate"),
    (1, "candidate", "reference"),
)


def _operator(graph: Graph, value: int) -> str:
    maker = int(graph.producer[value])
    return graph.operators[int(graph.op_index[maker])][0] if maker >= 0 else ""


def _changes(differing: Diff) -> dict[tuple[int, int], str]:
    """Describe, of pairs of nodes which attributes differ."""
    found: dict[tuple[int, int], list[str]] = {}
    for change in differing.changes:
        if change.kind == "attribute":
            text = f"{change.detail} is {change.candidate or 'not given'} instead of {change.reference or 'not given'}"
            found.setdefault(change.nodes, []).append(text)
    return {nodes: ", ".join(texts) for nodes, texts in found.items()}


def _with_weights(comparison: Comparison, graphs: tuple[Graph, Graph]) -> Comparison:
    """Describe, of the first point that differs which weights do, if its node is the same one."""
    first = comparison.first_divergent()
    if first is None or first.difference:
        return comparison
    makers = [
        int(graph.producer[graph.value(name)])
        for graph, name in zip(graphs, (first.reference, first.candidate), strict=True)
    ]
    if min(makers) < 0:
        return comparison
    operators = [graph.operators[int(graph.op_index[maker])] for graph, maker in zip(graphs, makers, strict=True)]
    if operators[0] != operators[1]:
        return comparison
    inputs_of = [graph.node_inputs(maker).tolist() for graph, maker in zip(graphs, makers, strict=True)]
    texts = []
    for pair in zip(*inputs_of, strict=False):
        names = [graph.value_names[value] if value >= 0 else "" for graph, value in zip(graphs, pair, strict=True)]
        if not all(name in graph.model.initializers for graph, name in zip(graphs, names, strict=True)):
            continue
        mine, yours = (graph.model.initializers[name] for graph, name in zip(graphs, names, strict=True))
        if mine.shape != yours.shape:
            texts.append(f"weight {quoted(names[0])} is {_shape(yours.shape)} instead of {_shape(mine.shape)}")
            continue
        errors = ErrorStats.of(*(graph.model.tensor(name) for graph, name in zip(graphs, names, strict=True)))
        if not errors.is_equal:
            many = f"{errors.count - errors.equal:,} of {errors.count:,} values"
            texts.append(f"weight {quoted(names[0])} differs in {many}, by at most {errors.max_abs:.3g}")
    if not texts:
        return comparison
    better = dataclasses.replace(first, difference=", ".join(texts))
    return dataclasses.replace(
        comparison, points=tuple(better if point is first else point for point in comparison.points)
    )


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "a scalar"


def _feeds(sides: _Sides, feeds: Any) -> Iterator[dict[str, Any]]:
    """Return what to run; as the reference takes it, if it runs."""
    captures = [side for side in sides if isinstance(side, lockstep.Kept)]
    counts = {side.feeds for side in captures}
    if len(counts) > 1:
        message = f"the captures were run on {captures[0].feeds} and {captures[1].feeds} feeds."
        raise AlignmentError(message, advice="Capture both on the same feeds.")
    runs = next((side for side in sides if isinstance(side, lockstep.Running)), None)
    if not captures:
        yield from read_feeds(sides[0].graph.model, feeds)
        return
    count = counts.pop()
    if runs is None:
        yield from ({} for _ in range(count))
        return
    if feeds is None:
        yield from (_kept_feed(captures[0], number) for number in range(count))
        return
    number = 0
    for number, feed in enumerate(read_feeds(runs.graph.model, feeds), 1):
        if number > count:
            break
        yield feed
    if number != count:
        message = (
            f"the capture of {label_of(captures[0].graph.model)} was run on {count} feeds, and not on those given."
        )
        raise FeedError(message, advice="Give the feeds of the capture.")


def _kept_feed(side: lockstep.Kept, number: int) -> dict[str, Any]:
    model = side.graph.model
    feed = {}
    for name in input_types(model):
        if side.graph.value(name) in side.names:
            feed[name] = side.array(name, number)
        elif name not in model.initializers:
            message = f"the capture of {label_of(model)} did not keep its input {quoted(name)}."
            raise FeedError(message, advice="Give feeds= on which it was run, or keep the inputs as well.")
    return feed


def _feed_count(sides: _Sides, feeds: Any) -> int | None:
    captured = next((side.feeds for side in sides if isinstance(side, lockstep.Kept)), None)
    return count_of(feeds) if captured is None else captured
