"""The result of a comparison: a `Point` for every value that both sides have, with its errors.

A point has cumulative errors, where both sides run independently, and isolated errors if they are known, where the
candidate's node reads the reference's values.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np

from onnx_nb.analysis.arguments import check_choice
from onnx_nb.analysis.compare import thresholds
from onnx_nb.analysis.compare.metrics import METRICS, Condition, ErrorSize, ErrorStats, precision
from onnx_nb.analysis.compare.quantization import DEQUANTIZED, Quantizer
from onnx_nb.analysis.compare.thresholds import MEDIAN_FLOOR, OUTLIER_FACTOR, ROUNDING_ULPS
from onnx_nb.analysis.errors import AlignmentError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, number_text, quoted, ratio_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.operators import facts
from onnx_nb.analysis.model import saved
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.tensors import listed
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.run.statistics import Floats, Histogram, LogHistogram

Kind = Literal["absolute", "signed", "relative", "ulp"]
"""Errors that a histogram counts."""
Which = Literal["cumulative", "isolated"]


@dataclass(frozen=True, eq=False, repr=False)
class Point:
    """A value that both sides have.

    Examples
    --------
    >>> point = Point("a", "a", "a", "name", 0, "Add", cumulative=ErrorStats.of(np.ones(4), np.full(4, 1.5)))
    >>> point
    Point('a', Add, cumulative 0.5)
    >>> point.cumulative.max_abs, point.isolated
    (0.5, None)
    """

    name: str
    """Name for a person: the path of a PyTorch module, else the reference's tensor."""
    reference: str
    """Tensor of the reference, or the call that produced it."""
    candidate: str
    """Tensor of the candidate."""
    matched: str
    """Method that matched the two: "name", "suffix", "values", "scope", "order" …"""
    depth: int
    """Position in the reference's order of execution."""
    op_type: str = ""
    """Type of the operator, or class of the module, that produces it; "" for a graph input."""
    node: str = ""
    """Name of the candidate's node that produces it."""
    scope: str = ""
    """Layer: path in the module tree of what computes it, or of what computes the data that it moves; "" if unknown."""
    source: str = ""
    """Line of Python source, such as ``modeling_bert.py:471``."""
    output: bool = False
    """Whether it is an output of the model."""
    difference: str = ""
    """Proven difference between the two sides here, such as ``epsilon is 1e-05 instead of 1e-12``."""
    between: tuple[str, ...] = ()
    """Names of the points or inputs where its region begins, if the region has more than its module or function."""
    inside: tuple[str, ...] = ()
    """Paths of the other modules whose results its region computes, and that have no tensor."""
    region: tuple[str, ...] = ()
    """Names of the candidate's nodes from the points before it to this one, in order of execution; empty where it is
    not known."""
    precision: float = 0.0
    """Relative precision of the coarsest numbers in that region, such as 2⁻⁸ for int8; 0 where it is not known."""
    quantizers: tuple[Quantizer, ...] = ()
    """Quantizers of the values and weights in that region."""
    cumulative: ErrorStats | None = None
    """`ErrorStats` with both sides running independently; ``None`` if not known."""
    isolated: ErrorStats | None = None
    """`ErrorStats` with the candidate's node reading the reference's values; ``None`` if not known."""

    def errors(self, which: Which | None = None) -> ErrorStats:
        """Return the cumulative or the isolated errors; by default the isolated ones if they are known."""
        check_choice("which", which, Which)
        stats: ErrorStats | None = getattr(self, which) if which else self.isolated or self.cumulative
        if stats is None:
            message = f"the {f'{which} ' if which else ''}errors of {quoted(self.name)} are not known."
            advice = "Compare with isolated=True, where the candidate is a model and not a capture."
            raise AlignmentError(message, advice=advice)
        return stats

    def error_size(self, which: Which | None = None) -> ErrorSize | None:
        """Return the size of these errors, which needs no histograms; ``None`` if not known."""
        size: ErrorSize | None = getattr(self, which) if which else self.isolated or self.cumulative
        return size

    @property
    def faulty(self) -> Quantizer | None:
        """The quantizer of its region with the largest error beyond that of a scale that fits, if one is faulty."""
        faulty = (q for q in self.quantizers if q.fault)
        return max(faulty, key=lambda q: (q.fault != "salient", q.excess), default=None)  # outliers come before it

    @property
    def blame(self) -> dict[str, float]:
        """Shares of the isolated error: "weights", "rounding" and "clipping" of activations, "other"; sum 1.

        What rounding and clipping of the point itself cost is known; the rest is divided between the weights and the
        quantized inputs of its region by their relative errors. Empty where nothing is quantized.

        Examples
        --------
        >>> Point("a", "a", "a", "name", 0).blame
        {}
        """
        size = self.error_size("isolated")
        if not self.quantizers or size is None or not size.error_norm or size.mismatches:
            return {}
        costs, inputs, weights = dict.fromkeys(("rounding", "clipping"), 0.0), [0.0, 0.0], 0.0
        for q in self.quantizers:
            if q.role == "weight":
                weights += q.relative**2
            elif q.name in (self.name, self.reference, self.candidate.removesuffix(DEQUANTIZED)) and q.count:
                ratio = size.count / q.count
                costs["clipping"] += q.clipping * ratio
                costs["rounding"] += (q.rounding + q.wrong) * ratio
            elif q.signal:
                inputs = [inputs[0] + q.rounding / q.signal, inputs[1] + q.clipping / q.signal]
        cost, whole = sum(costs.values()), max(size.error_norm * size.error_norm, sum(costs.values()))
        rest, parts = whole - cost, weights + sum(inputs)
        shares = {
            "weights": rest * weights / parts if parts else 0.0,
            "rounding": costs["rounding"] + (rest * inputs[0] / parts if parts else 0.0),
            "clipping": costs["clipping"] + (rest * inputs[1] / parts if parts else 0.0),
            "other": 0.0 if parts else rest,
        }
        return {name: share / whole for name, share in shares.items()}

    def __repr__(self) -> str:
        sizes = [(which, self.error_size(which)) for which in _WHICH]
        errors = "".join(f", {which} {size.relative_error:.2g}" for which, size in sizes if size is not None)
        return f"Point({quoted(self.name)}{f', {self.op_type}' if self.op_type else ''}{errors})"


_WHICH: Final[tuple[Which, ...]] = ("cumulative", "isolated")


@dataclass(frozen=True)
class Unmatched:
    """A value that only one side has."""

    name: str
    side: Literal["reference", "candidate"]
    reason: str
    """Reason why it has no counterpart on the other side."""
    op_type: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Displayed, Table, panel="comparison.ComparisonPanel"):
    """The result of `compare`; ``c["name"]`` is a `Point`, by its name or by the tensor's on either side.

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
    """Label of the side assumed to be correct."""
    candidate: str
    points: tuple[Point, ...] = ()
    """Points in order of `Point.depth`."""
    unmatched: tuple[Unmatched, ...] = ()
    feeds: int = 1
    """Number of feeds that were run."""
    models: tuple[Model, Model] | None = dataclasses.field(default=None, kw_only=True)
    """Reference and candidate, if both ran; a saved comparison does not have them."""
    feed: Mapping[str, Any] | None = dataclasses.field(default=None, kw_only=True)
    """The first feed, in the form that the reference takes."""
    notes: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    """Made-up feeds, and what is remarkable about arrays of another runtime: feeds, types, layout, arrays left out."""

    def __getitem__(self, name: str) -> Point:
        if (point := self._by_name.get(name)) is not None:
            return point
        for missing in self.unmatched:
            if missing.name == name:
                raise AlignmentError(f"{quoted(name)} is only in the {missing.side}: {missing.reason}.")
        message = f"there is no point called {quoted(str(name))}."
        raise AlignmentError(message, advice=closest_text(str(name), self._by_name) or "See comparison.names.")

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return (point.name for point in self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        sizes = [[point.error_size(which) for which in _WHICH] for point in self.points]
        equal = sum(all(size is None or size.is_equal for size in both) for both in sizes)
        feeds = f", {self.feeds:,} feeds" if self.feeds != 1 else ""
        feeds += ", random feeds" if self.has_random_feeds else ""
        sides = f"{quoted(self.reference)} and {quoted(self.candidate)}"
        return f"{type(self).__name__}({count_text(len(self.points), 'point')} of {sides}, {equal:,} equal{feeds})"

    @property
    def names(self) -> list[str]:
        """Names of all points, in order of execution."""
        return list(self)

    @functools.cached_property
    def has_isolated(self) -> bool:
        """Whether any isolated errors are known."""
        return any(point.error_size("isolated") is not None for point in self.points)

    def first_divergent(self) -> Point | None:
        """Return the first point at which the candidate diverges; None if no point stands out.

        Where isolated errors are known, it is the first point whose isolated error is unusual for its kind (see
        `scores`), unless another fault is far larger; if there is none, the first whose whole kind is unusual. Else it
        is the first point whose error is ten times all earlier ones and larger than rounding explains.
        """
        if self.has_isolated:
            scores = self.scores("isolated")
            bar = max(OUTLIER_FACTOR, math.sqrt(scores[np.isfinite(scores)].max(initial=0.0)))
            if len(places := np.flatnonzero(scores >= bar)):
                return self.points[int(places[0])]
            sizes, kinds = self._sizes("isolated"), np.asarray([point.op_type for point in self.points])
            rest = {kind: sizes[(kinds != kind) & (sizes > 0) & np.isfinite(sizes)] for kind in set(kinds)}
            usual = {kind: _lower_median(values) for kind, values in rest.items()}
            for point, size in zip(self.points, sizes, strict=True):
                if size > OUTLIER_FACTOR * max(usual[point.op_type], _rounding(point)):
                    return point
            return None
        before = 0.0
        for point in self.points:
            errors = point.error_size("cumulative")
            if errors is None:
                continue
            if errors.mismatches or errors.rel_l2 > max(ROUNDING_ULPS * precision(errors), OUTLIER_FACTOR * before):
                return point
            before = max(before, 0.0 if math.isnan(errors.rel_l2) else errors.rel_l2)
        return None

    @property
    def message(self) -> str:
        """The first difference between the sides, its size, its cause if attributes or weights prove it, and notes."""
        alone, count = sum(value.side == "reference" for value in self.unmatched), len(self.points)
        text = f"{alone:,} of {alone + count:,} values of the reference have no counterpart."
        return " ".join([self._verdict, *([text] if alone > count > 0 else ()), *self.notes])

    @property
    def _verdict(self) -> str:
        if not self.points:
            return "No value of one side was found on the other."
        sizes = self._sizes("isolated" if self.has_isolated else "cumulative")
        first = self.first_divergent()
        if first is None:
            whole = self._sizes("cumulative")
            sizes = np.where(np.isnan(sizes), whole, sizes)
            count, worst = int(np.count_nonzero(~np.isnan(sizes))), int(np.argmax(np.nan_to_num(sizes, nan=-1)))
            name, errors = quoted(self.points[worst].name), self.points[worst].error_size()
            if errors is None or not sizes[worst] > 0 or not whole.any():  # a region alone may round more than all do
                said = "All {:,} points are equal." if count > 1 else "The only point is equal."
                return said.format(count) if count else "The errors of no point are known."
            if count == 1:
                return f"{name}, the only point, has an error of {_amount(errors)}."
            text = f"the largest error is {_amount(errors, 'the')}, at {name}."
            if not self.quantizers or not (layers := self.layers()):
                return f"No point stands out: {text}"
            layer = layers[0]
            return f"No layer stands out: {quoted(layer['layer'])} adds the most, {layer['share']:.0%} of all; {text}"
        op_type = f" ({first.op_type})" if first.op_type not in ("", first.name.partition("#")[0]) else ""
        layer_text = f"in {quoted(first.scope)} " if first.scope not in first.name else ""
        begin = f"First differs {layer_text}at {quoted(first.name)}{op_type}"
        if first.between:
            begins = listed([*map(quoted, first.between)], str, 4)
            others = f", which includes {listed([*map(quoted, first.inside)], str, 4)}" if first.inside else ""
            begin = f"First differs somewhere between {begins} and {quoted(first.name)}{op_type}{others}"
        why = f" {first.difference[:1].upper()}{first.difference[1:]}." if first.difference else ""
        errors = first.error_size()
        assert errors is not None  # noqa: S101 (else it would not be the first)
        if errors.mismatches:
            kind = "different" if errors.dtypes[0] == "string" else "NaN or infinite on one side only"
            return f"{begin}: {errors.mismatches:,} of {errors.count:,} values are {kind}.{why}"
        place = self.points.index(first)
        if not self.has_isolated:
            before = float(np.nanmax(sizes[:place], initial=0.0))
            rest = f"at most {before:.1e} before it" if before else "none before it"
            return f"{begin}: an error of {_amount(errors)}, {rest}.{why}"
        sizes[place] = 0.0
        worst = int(np.argmax(np.nan_to_num(sizes)))
        next_worst, rest = float(sizes[worst]), "no other has one"
        if next_worst > 0:  # a faulty quantizer is named first, also where what is behind it has a larger error
            rest = f"the {'largest' if next_worst > errors.rel_l2 else 'next worst'} is {next_worst:.1e}"
        if math.isinf(next_worst):
            rest = f"that of {quoted(self.points[worst].name)} is infinite"
        elif errors.rel_l2 > next_worst > 0:
            rest = f"the next worst is {ratio_text(errors.rel_l2 / next_worst)} smaller"
        return f"{begin}: its own error is {_amount(errors)}, {rest}.{why}"

    def ranked(self, by: str = "") -> list[Point]:
        """Return the points that have such errors, the worst first; ``by`` is that of `scores`."""
        scores = self.scores(by)
        return [self.points[place] for place in np.argsort(-scores, kind="stable") if not math.isnan(scores[place])]

    def scores(self, by: str = "") -> Floats:
        """Return a number for each point, larger for worse points; NaN where it is not known.

        Parameters
        ----------
        by
            "isolated": the norm of the point's isolated error divided by that of its values, relative to the median of
            all points of the same `Point.op_type`, or to `Point.precision` if that is larger; below one where rounding
            explains it, and at least ten where a quantizer is faulty; "cumulative": the same ratio of the cumulative
            error, not relative to a median; or one of `METRICS`, of the isolated errors where they are known. Empty
            means "isolated" where known, else "cumulative".

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
            message = "isolated errors are not known."
            raise AlignmentError(message, advice='Compare with isolated=True, or use "cumulative".')
        if by == "cumulative":
            return self._sizes("cumulative")
        if by == "isolated":
            sizes = self._sizes("isolated")
            places = np.flatnonzero(np.isfinite(sizes)).tolist()
            members = followers((self.points[place].op_type, place) for place in places)
            overall = _lower_median(sizes[np.isfinite(sizes)])
            usual = {kind: _lower_median(sizes[them]) for kind, them in members.items() if len(them) > 1}
            # a quarter of a unit is the mean error of rounding
            least = (max(MEDIAN_FLOOR, point.precision, _unit(point) / 4) for point in self.points)
            usually = (usual.get(point.op_type, overall) for point in self.points)
            ratios = sizes / list(map(max, usually, least))
            # where most of a kind are wrong, their median is no standard: rounding elsewhere is not worse than they are
            limits = sizes / [_rounding(point) for point in self.points]
            ratios = np.where(ratios < OUTLIER_FACTOR, np.minimum(ratios, limits), ratios)
            for place, point in enumerate(self.points):
                # what a sound quantizer of its own costs needs no other reason, nor do a few values beyond a range
                sound = [q for q in point.quantizers if (q.name == point.name or q.strays) and not q.fault]
                if sizes[place] < 2 * max((q.relative for q in sound), default=0.0):
                    ratios[place] = min(ratios[place], 1.0)
                # its error may be small beside the values
                if sizes[place] > 0 and (faulty := point.faulty) is not None:
                    excess = max(faulty.excess / thresholds.SCALE_EXCESS, 1.0)
                    ratios[place] = max(ratios[place], OUTLIER_FACTOR * excess)
            return ratios
        if by not in METRICS:
            choices = ", ".join(["isolated", "cumulative", *METRICS])
            raise AlignmentError(f"points cannot be ranked by {by!r}.", advice=f"There are: {choices}.")
        errors = [point.isolated or point.cumulative for point in self.points]
        return np.asarray([math.nan if stats is None else stats.badness(by) for stats in errors])

    @property
    def has_random_feeds(self) -> bool:
        """Whether the feeds were made up."""
        return any(note.startswith("Feeds: random") for note in self.notes)

    def layers(self) -> list[dict[str, Any]]:
        """Return a row for each layer (`Point.scope`) whose isolated errors are known, the largest share first.

        ``error`` is the largest relative norm of the isolated errors of its points, and ``worst`` the name of that
        point. ``share`` is the layer's part of the sum of all squares of these norms: what a layer adds, not what
        reaches the outputs. Points that only move data count once, with the layer that computes it.
        """
        sizes = self._sizes("isolated")
        errors = np.nan_to_num(sizes, posinf=np.inf)
        squares = np.square(np.where(np.isinf(errors).any(), np.isinf(errors), errors))
        moves = [0 in facts(point.op_type).moves for point in self.points]
        members = (place for place, point in enumerate(self.points) if point.scope and not math.isnan(sizes[place]))
        rows: list[dict[str, Any]] = []
        for layer, places in followers((self.points[place].scope, place) for place in members).items():
            makers = [place for place in places if not moves[place]]
            square = max(float(squares[makers].sum()), float(squares[places].max()))
            worst = self.points[max(makers or places, key=errors.__getitem__)]
            rows.append({"layer": layer, "share": square, "error": float(errors[places].max()), "points": len(places)})
            rows[-1] |= {"worst": worst.name, "op_type": worst.op_type}
        whole = sum(row["share"] for row in rows) or 1.0
        return sorted(({**row, "share": row["share"] / whole} for row in rows), key=lambda row: -row["share"])

    def _still(self) -> Still:
        points = self.ranked("cumulative")
        worst = [point for point in points if not point.errors("cumulative").is_equal]
        outputs = [point for point in points if point.output]
        layers = [
            (row["layer"], row["worst"], row["op_type"], f"{row['share']:.1%}", number_text(row["error"], 2))
            for row in self.layers()
        ]
        heads = "Layer", "Worst point", "Op", "Share", "Its own error"
        tables = points_table("Worst points", worst), points_table("Outputs", outputs)
        return Still(self.message, repr(self), (StillTable(heads, layers, "layer", 3), *tables))

    def failed(
        self, *conditions: str, which: Which = "cumulative", outputs: bool = False, **by_metric: str
    ) -> list[Point]:
        """Return the points that meet any of the conditions, in order of execution; empty if all is well.

        Parameters
        ----------
        *conditions
            Such as ``"sqnr < 20 dB"`` or ``"outside > 1 %"``: one of `METRICS`, ``<``, ``<=``, ``>`` or ``>=``, and a
            number.
        which
            "cumulative", how far the value is from the reference's, or "isolated", how much of that its region adds.
        outputs
            Whether to look only at outputs of the model.
        **by_metric
            The same by metric: ``sqnr="< 20 dB"``.

        Returns
        -------
        list of Point
            A point with NaN or infinities on one side only counts as worse than any bound. None, with a warning, if
            the feeds were made up and lie outside the ranges for which the candidate was calibrated.

        Raises
        ------
        OnnxNbError
            If there is no condition, it cannot be read, or names no metric.

        Examples
        --------
        >>> exact, wrong = (ErrorStats.of(np.ones(4), np.full(4, value)) for value in (1.0, 1.1))
        >>> c = Comparison("a", "b", (Point("x", "x", "x", "name", 0, cumulative=exact),
        ...                           Point("y", "y", "y", "name", 1, cumulative=wrong)))
        >>> c.failed(sqnr="< 40 dB"), c.failed("sqnr < 10")
        ([Point('y', cumulative 0.1)], [])
        """
        tests = [*map(Condition.read, conditions), *(Condition.read(text, name) for name, text in by_metric.items())]
        if not tests:
            advice = 'Such as failed(sqnr="< 20 dB") or failed("max_abs > 1").'
            raise OnnxNbError("failed needs a condition.", advice=advice)
        points = [point for point in self.points if point.error_size(which) and (point.output or not outputs)]
        bad = [point for point in points if any(test.holds(point.errors(which)) for test in tests)]
        if bad and self.has_random_feeds and (strays := [q for q in self.quantizers if q.strays]):
            first = max(strays, key=lambda quantizer: quantizer.clipped)
            message = f"the made-up feeds lie outside the ranges that the model was calibrated for: {first.message}. "
            warnings.warn(f"{message}Nothing is judged: give feeds from your data.", UserWarning, stacklevel=2)
            return []
        return bad

    def histogram(self, name: str, kind: Kind = "absolute", which: Which | None = None) -> Histogram | LogHistogram:
        """Return the histogram of a point's errors.

        Parameters
        ----------
        name
            Name of the point, or of its tensor on either side.
        kind
            "signed" (candidate − reference; a `Histogram`), "absolute", "relative" or "ulp" (each a `LogHistogram`).
        which
            "cumulative" or "isolated"; by default the latter where it is known.
        """
        check_choice("kind", kind, Kind)
        bins: Histogram | LogHistogram = getattr(self[name].errors(which), kind)
        return bins

    @property
    def quantizers(self) -> tuple[Quantizer, ...]:
        """The quantizers of all regions, in order of execution, each once."""
        by_site: dict[tuple[str, str], Quantizer] = {}
        for point in self.points:
            for quantizer in point.quantizers:
                by_site.setdefault((quantizer.node, quantizer.name), quantizer)
        return tuple(by_site.values())

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each point: its fields, then each metric of its cumulative and its isolated errors.

        The columns of isolated errors start with ``isolated_`` and are present if any are known.
        """
        rows = []
        scores = self.scores("isolated") if self.has_isolated else np.zeros(len(self.points))
        for point, score in zip(self.points, scores.tolist(), strict=True):
            row = {name: getattr(point, name) for name in _COLUMNS}
            size = point.error_size()
            row["shape"] = None if size is None else size.shape
            if self.has_isolated:
                row["score"] = score
            for prefix, errors in (("", point.cumulative), ("isolated_", point.isolated)):
                if not prefix or self.has_isolated:
                    row |= {f"{prefix}{name}": errors.metric(name) if errors else math.nan for name in METRICS}
            rows.append(row)
        return rows

    def save(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Write the comparison, without the models and their values, to a file that `load` reads.

        An existing file is replaced once everything is written; an error that ``progress`` raises ends the work before.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        fields = self.reference, self.candidate, self.points, self.unmatched, self.feeds
        saved.write(path, Comparison(*fields, notes=self.notes), "comparison", progress, self.models or ())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Read a file that `save` wrote; raise `ModelFileError` if it is missing or not a comparison."""
        comparison: Comparison = saved.read(path, "comparison", Comparison)
        return comparison

    def merge(self, other: Comparison) -> Self:
        """Return the comparison over the feeds of both; points that only one of them has are unchanged.

        Raises
        ------
        AlignmentError
            If they have no point in common, or their tolerances differ.
        """
        others = {(point.reference, point.candidate): point for point in other.points}
        pairs = [(point.reference, point.candidate) for point in self.points]
        if pairs and others and others.keys().isdisjoint(pairs):
            message = f"the comparisons of {quoted(self.candidate)} and {quoted(other.candidate)} share no point."
            raise AlignmentError(message, advice="Merge comparisons of the same two models.")
        left = zip(self.points, pairs, strict=True)
        points = [_merged(point, others.pop(pair, None), self.feeds) for point, pair in left]
        points += [_merged(None, entry, self.feeds) for entry in others.values()]
        points.sort(key=lambda point: point.depth)
        matches = {(point.name, side) for point in points for side in ("reference", "candidate")}
        missing = tuple(entry for entry in self.unmatched if (entry.name, entry.side) not in matches)
        return dataclasses.replace(self, points=tuple(points), unmatched=missing, feeds=self.feeds + other.feeds)

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Point]:
        by = "candidate", "reference", "name"  # a later one of these goes first, and then an earlier point
        return {getattr(point, attribute): point for attribute in by for point in reversed(self.points)}

    @property
    def _columns(self) -> list[str]:
        names = [f"isolated_{name}" for name in METRICS] if self.has_isolated else []
        return [*_COLUMNS, "shape", *(["score"] if names else []), *METRICS, *names]

    def _sizes(self, which: Which) -> Floats:
        """Return the relative norm of each point's error: infinite if there are mismatches, NaN if it is not known."""
        sizes = (point.error_size(which) for point in self.points)
        return np.asarray([math.nan if errors is None else errors.relative_error for errors in sizes])


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


_COLUMNS: Final = (
    "name", "op_type", "reference", "candidate", "matched", "depth", "node", "scope", "source", "output", "difference",
)  # fmt: skip


def _rounding(point: Point) -> float:
    """Return the relative isolated error up to which rounding explains it."""
    # a few values beyond a calibrated range are usual, and of 16 bits they cost more than all rounding
    clipping = max((q.relative for q in point.quantizers if q.strays and not q.fault), default=0.0)
    # attributes are float32, such as an epsilon, also where values are more precise
    return max(ROUNDING_ULPS * _unit(point), MEDIAN_FLOOR, point.precision, clipping)


def _unit(point: Point) -> float:
    errors = point.error_size("isolated")
    return 0.0 if errors is None else precision(errors)


def _amount(errors: ErrorSize, whose: str = "its") -> str:
    """Return the size of an error for a sentence; one of values that should all be 0 is no share of a norm."""
    if 0 < errors.rel_l2 < math.inf:
        return f"{errors.rel_l2:.1e} of {whose} norm"
    if errors.mismatches:
        return "infinite"
    return f"up to {errors.max_abs:.1e}{'' if errors.reference_norm else ' in values that should be 0'}"


def _lower_median(values: Floats) -> float:
    """Return the median; the smaller of two, so that a faulty point does not set the standard for its kind."""
    return float(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 0.0


def _merged(first: Point | None, second: Point | None, feeds: int) -> Point:
    """Return a point with the errors of both; those of the second are from later feeds."""
    point = first or second
    assert point is not None  # noqa: S101 (one of them has it)
    both: dict[str, Any] = {}
    for which in _WHICH:
        one, other = getattr(first, which, None), getattr(second, which, None)
        if other is not None:
            later = tuple(dataclasses.replace(worst, feed=worst.feed + feeds) for worst in other.worst)
            other = dataclasses.replace(other, worst=later)
        both[which] = one.merge(other) if one and other else one or other
    others = {(q.node, q.name): q for q in second.quantizers} if first and second else {}
    pairs = [(q, others.get((q.node, q.name)) if q.role == "activation" else None) for q in point.quantizers]
    both["quantizers"] = tuple(q if other is None else q.merge(other) for q, other in pairs)
    return dataclasses.replace(point, **both)


ComparisonT = TypeVar("ComparisonT", bound=Comparison)


def explained(comparison: ComparisonT, explain: Callable[[Point], Iterable[str]]) -> ComparisonT:
    """Return the comparison with the differences that ``explain`` finds at a first divergent point without any."""
    first = comparison.first_divergent()
    if first is None or first.difference:
        texts = []
    elif first.faulty is not None:
        texts = [first.faulty.message]
    else:
        texts = _overflow(first) or list(explain(first)) or _factor(first)
    if first is None or not texts:
        return comparison
    better = dataclasses.replace(first, difference=", ".join(texts))
    points = tuple(better if point is first else point for point in comparison.points)
    return dataclasses.replace(comparison, points=points)


def _overflow(point: Point) -> list[str]:
    errors = point.errors()
    largest = max((abs(float(worst.reference)) for worst in errors.worst), default=0.0)  # type: ignore[arg-type]
    if errors.dtypes[1] != "float16" or not errors.inf_mismatch or not _LARGEST_HALF < largest < math.inf:
        return []
    return [f"values up to {largest:.3g} are beyond {_LARGEST_HALF:,.0f}, the largest float16"]


_LARGEST_HALF: Final = float(np.finfo(np.float16).max)


def _factor(point: Point) -> list[str]:
    """Return the factor of values that differ by nothing else: a divisor or a scale is wrong."""
    errors = point.isolated or point.cumulative
    if errors is None or errors.mismatches or errors.nonzero < thresholds.FACTOR_ELEMENTS:
        return []
    # what is left of the difference once the candidate is scaled
    residue = math.sqrt(max(2 - 2 * abs(errors.cosine), 0))
    if not (errors.rel_l2 > thresholds.FACTOR_ERROR and residue < errors.rel_l2 * thresholds.FACTOR_RESIDUE):
        return []
    factor = math.copysign(errors.candidate_norm / errors.reference_norm, errors.cosine)
    return [f"every value is {factor:.4g} times what it should be"]
