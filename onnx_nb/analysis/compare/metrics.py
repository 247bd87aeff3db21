"""Error statistics of two arrays: every usual metric from one pass, in a form that merges.

Numbers are computed in float64 over the pairs in which both values are finite. `ErrorStats` holds counts, norms,
histograms and the worst elements, so that errors of several feeds, or from other processes, can be merged.
`lazy_errors` computes only their size at first: of the histograms of hundreds of tensors, few are used.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare import array_errors
from onnx_nb.analysis.errors import AlignmentError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, quoted, shape_text
from onnx_nb.analysis.model.saved import Count, Size
from onnx_nb.analysis.run.statistics import EMPTY, NOTHING, Floats, Histogram, LogHistogram

RTOL: Final = 1e-3
"""Default relative tolerance, that of onnxruntime's own tests."""
ATOL: Final = 1e-5
"""Default absolute tolerance."""
LOOKED_AT: Final = 1 << 16
"""Elements of a tensor that `between` looks at, evenly spaced; `ErrorStats` has all of them."""

Number = bool | int | float | complex | str


@dataclass(frozen=True, slots=True)
class Worst:
    """An element of two arrays with both of its values."""

    index: tuple[int, ...]
    reference: Number
    candidate: Number
    error: float
    """Absolute; infinite where only one side is NaN or infinite, and where strings differ."""
    feed: int = 0
    """Index of the feed."""


class _LazyFields:
    """Base of errors whose fields may be computed when the first of those that lack is read."""

    __slots__ = ("_compute",)

    if not TYPE_CHECKING:  # any name would do

        def __getattr__(self, name: str) -> Any:
            if name not in self.__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__} has no attribute {name}")
            if (compute := self._compute) is not None:  # threads that do this at the same time compute the same
                stats = compute()
                for entry in dataclasses.fields(stats):
                    object.__setattr__(self, entry.name, getattr(stats, entry.name))
                object.__setattr__(self, "_compute", None)
            return object.__getattribute__(self, name)


@dataclass(frozen=True, eq=False, slots=True)
class ErrorSize(_LazyFields):
    """Size of the errors of two arrays, sufficient to rank points and to find the first divergent one."""

    shape: tuple[Count, ...]
    """Shape of the arrays; after a merge, of the first ones."""
    dtypes: tuple[str, str]
    """Types of reference and candidate."""
    count: Count = 0
    """Number of pairs of values."""
    equal: Count = 0
    """Pairs with equal values; two NaN are equal, and so are infinities of the same sign."""
    finite: Count = 0
    """Pairs in which both values are finite: the numbers below are over these."""
    nan_mismatch: Count = 0
    """Pairs in which one value is NaN."""
    inf_mismatch: Count = 0
    """Pairs in which one value is infinite and the other is not, or has the other sign."""
    max_abs: Size = math.nan
    error_norm: Size = 0.0
    """Root of the sum of squares of the differences."""
    reference_norm: Size = 0.0
    low: float = math.nan
    """Smallest value of the reference; smallest magnitude if it is complex."""
    high: float = math.nan

    def __post_init__(self) -> None:
        _ = [name == "string" or np.dtype(name) for name in self.dtypes]  # raises

    @property
    def mismatches(self) -> int:
        """Pairs in which only one side is NaN or infinite, or strings differ."""
        return self.nan_mismatch + self.inf_mismatch + (self.count - self.equal if self.dtypes[0] == "string" else 0)

    @property
    def is_equal(self) -> bool:
        """Whether all pairs are equal."""
        return self.equal == self.count

    @property
    def mse(self) -> float:
        """Mean of the squares of the differences."""
        return self.rmse * self.rmse if self.finite else math.nan

    @property
    def rmse(self) -> float:
        """Root of `mse`."""
        return self.error_norm / math.sqrt(self.finite) if self.finite else math.nan

    @property
    def rel_l2(self) -> float:
        """Norm of the differences divided by the norm of the reference: comparable between tensors of any scale."""
        if not self.finite or not self.reference_norm:
            return math.nan if not self.finite else math.inf if self.error_norm else 0.0
        return self.error_norm / self.reference_norm

    @property
    def relative_error(self) -> float:
        """`rel_l2`; infinite if there are mismatches, and 0 if all pairs are equal."""
        return math.inf if self.mismatches else 0.0 if self.is_equal else self.rel_l2

    @property
    def sqnr(self) -> float:
        """Signal to quantization noise ratio in dB: power of the reference over that of the differences."""
        return _decibels(self.reference_norm, self.error_norm) if self.finite else math.nan

    @property
    def psnr(self) -> float:
        """Peak signal to noise ratio in dB: squared range of the reference (max − min) over `mse`."""
        return _decibels(self.high - self.low, self.rmse) if self.finite else math.nan


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ErrorStats(ErrorSize):
    """Error statistics of a candidate's array against a reference's; numbers are over the finite pairs.

    For complex numbers the error is the magnitude of the difference. Strings are equal or not, and have no numbers.

    Examples
    --------
    >>> found = ErrorStats.of(np.array([1, 2, 3, np.nan]), np.array([1, 2.5, 3, 0]))
    >>> found
    ErrorStats(4 pairs, 2 equal, max |Δ| 0.5, 1 NaN on one side)
    >>> found.max_abs, found.nan_mismatch, found.worst[1]
    (0.5, 1, Worst(index=(1,), reference=2.0, candidate=2.5, error=0.5, feed=0))
    """

    rtol: Size = RTOL
    atol: Size = ATOL
    outside: Count = 0
    """Pairs whose difference exceeds ``atol + rtol * abs(reference)``, and all mismatches."""
    mean_abs: Size = math.nan
    nonzero: Count = 0
    """Finite pairs whose reference is not 0: relative errors are computed over these."""
    max_rel: Size = math.nan
    mean_rel: Size = math.nan
    candidate_norm: Size = 0.0
    cosine: float = math.nan
    """Cosine of the angle between reference and candidate; NaN where either is all zeros."""
    argmax: tuple[Count, Count] | None = None
    """Rows whose largest value is at the same index, and all rows; None if it was not computed."""
    worst: tuple[Worst, ...] = ()
    """Elements with the largest errors, at most eight, largest first."""
    signed: Histogram = EMPTY
    """Histogram of candidate − reference; empty for complex numbers."""
    absolute: LogHistogram = NOTHING
    relative: LogHistogram = NOTHING
    ulp: LogHistogram = NOTHING
    """Histogram of errors in units in the last place of the reference, in the coarser of two float types."""
    channel_axis: int = -1
    """Axis of `channels`: 1 for four or more axes, as in NCHW, else the last; −1 if there is none."""
    channels: Floats = field(default_factory=lambda: np.zeros(0))
    """Largest error at each index of that axis, infinite where there is a mismatch; shape (n,) or (0,)."""
    sample: Annotated[Floats, 2] = field(default_factory=lambda: np.zeros((0, 2)))
    """Reference and candidate at evenly spaced elements, shape (n, 2), n ≤ 256; magnitudes of complex numbers."""

    @classmethod
    def of(
        cls,
        reference: Any,
        candidate: Any,
        *,
        rtol: float = RTOL,
        atol: float = ATOL,
        argmax: int | None = None,
        feed: int = 0,
    ) -> ErrorStats:
        """Compute the statistics of two arrays of any types and one shape, without copying them.

        Parameters
        ----------
        reference, candidate
            Anything that numpy converts to an array: bool, integers, floats, those of ``ml_dtypes``, complex, strings.
        rtol, atol
            Tolerances, as `numpy.isclose` defines them.
        argmax
            Axis along which to count the rows whose largest value is at the same index.
        feed
            Index of the feed, for `worst`.

        Raises
        ------
        AlignmentError
            If the shapes differ, or one holds strings and the other numbers.
        """
        reference, candidate = np.asarray(reference), np.asarray(candidate)
        shape = reference.shape
        if shape != candidate.shape:
            message = f"the reference is {shape_text(shape)} and the candidate is {shape_text(candidate.shape)}."
            raise AlignmentError(message, advice="Compare the same values, computed from the same feeds.")
        texts = [array.dtype.kind in "OSUT" for array in (reference, candidate)]
        if any(texts) and not all(texts):
            message = f"the reference is {reference.dtype.name} and the candidate is {candidate.dtype.name}."
            raise AlignmentError(message, advice="Strings can be compared with strings only.")
        if any(texts):
            reference, candidate = (array.astype(object) for array in (reference, candidate))
            places = np.flatnonzero(reference != candidate)
            dtypes, errors = ("string", "string"), [(math.inf, int(place)) for place in places[: array_errors.WORST]]
            fields: dict[str, Any] = {"equal": reference.size - places.size, "outside": places.size}
        else:
            scan = array_errors.Pass(reference, candidate, rtol=rtol, atol=atol, argmax=argmax)
            dtypes, errors, fields = (reference.dtype.name, candidate.dtype.name), scan.worst, scan.fields()
        one, other = reference.reshape(-1), candidate.reshape(-1)
        worst = []
        for error, place in errors:
            index = tuple(map(int, np.unravel_index(place, shape)))
            worst.append(Worst(index, _number(one[place]), _number(other[place]), error, feed))
        return cls(shape, dtypes, reference.size, rtol=rtol, atol=atol, worst=tuple(worst), **fields)

    @property
    def outside_fraction(self) -> float:
        """Fraction of the pairs that are `outside` the tolerance."""
        return self.outside / self.count if self.count else 0.0

    @property
    def argmax_agreement(self) -> float:
        """Fraction of the rows whose largest value is at the same index; NaN if it was not computed."""
        return self.argmax[0] / self.argmax[1] if self.argmax and self.argmax[1] else math.nan

    def ulp_percentile(self, percent: float) -> float:
        """Return a percentile of the errors in units in the last place; NaN if the values are not floats."""
        return self.ulp.percentile(percent)

    def metric(self, name: str) -> float:
        """Return one of `METRICS` by name."""
        entry = METRICS.get(name)
        if entry is None:
            raise AlignmentError(f"there is no metric called {name!r}.", advice=f"There are: {', '.join(METRICS)}.")
        return entry.of(self)

    def badness(self, name: str) -> float:
        """Return a number that is larger where one of `METRICS` is worse: infinite where there are `mismatches`."""
        if self.mismatches and name != "mismatches":
            return math.inf
        value = self.metric(name)
        return -value if METRICS[name].higher_is_better else value

    def merge(self, other: ErrorStats) -> ErrorStats:
        """Return the statistics over the pairs of both: counts, extremes, histograms exactly, the rest up to rounding.

        Merging the same parts in the same order returns the same bits. The shape is that of the first.

        Raises
        ------
        AlignmentError
            If the tolerances differ.
        """
        if not other.count:
            return self
        if not self.count:
            return other
        if (self.rtol, self.atol) != (other.rtol, other.atol):
            message = f"rtol and atol are {self.rtol:g}, {self.atol:g} here and {other.rtol:g}, {other.atol:g} there."
            raise AlignmentError(message, advice="Errors with different tolerances cannot be merged.")
        argmax = None
        if self.argmax and other.argmax:
            argmax = self.argmax[0] + other.argmax[0], self.argmax[1] + other.argmax[1]
        sums = [array_errors.Sums(*(getattr(one, name) for name in array_errors.Sums._fields)) for one in (self, other)]
        same_axis = self.channel_axis == other.channel_axis and len(self.channels) == len(other.channels)
        return dataclasses.replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in ("count", *array_errors.COUNTS)},
            **sums[0].merge(sums[1])._asdict(),
            argmax=argmax,
            worst=tuple(sorted(self.worst + other.worst, key=lambda worst: -worst.error)[: array_errors.WORST]),
            **{name: getattr(self, name).merge(getattr(other, name)) for name in array_errors.HISTOGRAMS},
            channel_axis=self.channel_axis if same_axis else -1,
            channels=np.maximum(self.channels, other.channels) if same_axis else np.zeros(0),
            sample=array_errors.spread(np.concatenate([self.sample, other.sample]), array_errors.SAMPLE_SIZE),
        )

    __or__ = merge

    def __repr__(self) -> str:
        pairs = count_text(self.count, "pair")
        if self.is_equal:
            return f"ErrorStats({pairs}, all equal)"
        parts = [pairs, f"{self.equal:,} equal"]
        parts += [f"max |Δ| {self.max_abs:.3g}"] if self.finite else []
        parts += [f"{self.nan_mismatch:,} NaN on one side"] if self.nan_mismatch else []
        parts += [f"{self.inf_mismatch:,} Inf on one side"] if self.inf_mismatch else []
        return f"ErrorStats({', '.join(parts)})"


_name = functools.cache(lambda dtype: dtype.name)
"""numpy composes the name of a dtype anew at each call."""


def lazy_errors(reference: NDArray[Any], candidate: NDArray[Any], **options: Any) -> ErrorStats:
    """Return `ErrorStats.of` two arrays that nobody changes: its size is computed now, the rest when first read."""
    compute = functools.partial(ErrorStats.of, reference, candidate, **options)
    with np.errstate(all="ignore"):
        parts = array_errors.finite_sums(reference, candidate)
    if parts is None:
        return compute()
    equal, sums = parts
    of_sums = {name: number for name, number in sums._asdict().items() if name in ErrorSize.__slots__}
    dtypes = _name(reference.dtype), _name(candidate.dtype)
    size, errors = ErrorSize(reference.shape, dtypes, reference.size, equal, **of_sums), object.__new__(ErrorStats)
    for name in ErrorSize.__slots__:
        object.__setattr__(errors, name, getattr(size, name))
    object.__setattr__(errors, "_compute", compute)
    return errors


class Metric(NamedTuple):
    """A number of `ErrorStats` by which points can be ranked."""

    label: str
    """Text for tables and axes."""
    of: Callable[[ErrorStats], float]
    higher_is_better: bool = False
    logarithmic: bool = True
    """Whether an axis of it is logarithmic; false for decibels and fractions."""


METRICS: Final[Mapping[str, Metric]] = {
    "max_abs": Metric("max |Δ|", lambda errors: errors.max_abs),
    "mean_abs": Metric("mean |Δ|", lambda errors: errors.mean_abs),
    "rmse": Metric("RMSE", lambda errors: errors.rmse),
    "mse": Metric("MSE", lambda errors: errors.mse),
    "max_rel": Metric("max |Δ|/|x|", lambda errors: errors.max_rel),
    "mean_rel": Metric("mean |Δ|/|x|", lambda errors: errors.mean_rel),
    "rel_l2": Metric("relative error ‖Δ‖/‖x‖", lambda errors: errors.rel_l2),
    "cosine": Metric("cosine", lambda errors: errors.cosine, higher_is_better=True, logarithmic=False),
    "sqnr": Metric("SQNR, dB", lambda errors: errors.sqnr, higher_is_better=True, logarithmic=False),
    "psnr": Metric("PSNR, dB", lambda errors: errors.psnr, higher_is_better=True, logarithmic=False),
    "ulp50": Metric("ULP, median", lambda errors: errors.ulp_percentile(50)),
    "ulp99": Metric("ULP, 99 %", lambda errors: errors.ulp_percentile(99)),
    "outside": Metric("outside tolerance", lambda errors: errors.outside_fraction, logarithmic=False),
    "argmax": Metric("argmax agrees", lambda errors: errors.argmax_agreement, higher_is_better=True, logarithmic=False),
    "mismatches": Metric("NaN or Inf on one side", lambda errors: float(errors.mismatches), logarithmic=False),
}
"""Metrics by name: points can be ranked by each, and tables have a column for it."""


_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_DECIBELS: Final = ("sqnr", "psnr")
_FRACTIONS: Final = ("outside", "argmax", "cosine", "rel_l2", "mean_rel", "max_rel")
_COUNT_MISMATCHES: Final = ("mismatches", "outside")
_NUMBER: Final = r"[-+]?(?:inf|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_SYNTAX: Final = re.compile(rf"\s*(\w+)?\s*([<>]=?)\s*({_NUMBER})\s*(dB|db|%)?\s*")


class Condition(NamedTuple):
    """A metric that is below or above a bound."""

    metric: str
    """One of `METRICS`."""
    sign: str
    """"<", "<=", ">" or ">="."""
    bound: float

    @classmethod
    def read(cls, text: str, metric: str = "") -> Condition:
        """Read a condition such as ``sqnr < 20 dB``; its metric may be given apart from its text."""
        match = _SYNTAX.fullmatch(text)
        name = metric or (match[1] if match and match[1] else "")
        if name and name not in METRICS:
            hint = closest_text(name, METRICS) or f"There are: {', '.join(METRICS)}."
            raise OnnxNbError(f"there is no metric called {quoted(name)}.", advice=hint)
        if match is None or not name or (metric and match[1] not in (None, metric)):
            advice = 'Write a metric, a sign and a number: "sqnr < 20 dB", "cosine < 0.99" or "max_abs >= 1e-3".'
            raise OnnxNbError(f"{quoted(text)} is no condition.", advice=advice)
        unit = match[4] or ""
        fitting = {"": True, "%": name in _FRACTIONS}.get(unit, name in _DECIBELS)
        if not fitting:
            raise OnnxNbError(f"{name} is not in {unit}.", advice=f'Write "{name} {match[2]} {match[3]}".')
        return cls(name, match[2], float(match[3]) / (100 if unit == "%" else 1))

    def holds(self, errors: ErrorStats) -> bool:
        """Return whether errors meet the condition; a metric that is not defined (NaN) meets none."""
        if errors.mismatches and self.metric not in _COUNT_MISMATCHES:
            # these metrics are over the finite pairs only: as bad as can be in their direction
            return _SIGNS[self.sign](-math.inf if METRICS[self.metric].higher_is_better else math.inf, self.bound)
        return _SIGNS[self.sign](errors.metric(self.metric), self.bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:.15g}{' dB' if self.metric in _DECIBELS else ''}"


def classes_axis(output: NDArray[Any]) -> int | None:
    """Return the axis of the classes in an output of a model: 1 for four or more axes, else −1; None if it has none."""
    if not output.ndim or output.dtype.kind in "Ocb":
        return None
    return 1 if output.ndim >= 4 else -1


def precision(errors: ErrorSize) -> float:
    """Return the distance from 1 to the next number in the coarser of the two types; 0 if one is not a float."""
    bits = None if "string" in errors.dtypes else array_errors.coarser(*map(np.dtype, errors.dtypes))
    return 2.0 ** -bits[0] if bits is not None else 0.0


@functools.cache
def kind_of(dtype: str) -> str:
    """Return "float" for "float16" and "bfloat16", "int" for "uint8": a value may be in another width."""
    match = re.fullmatch(r"b?u?(float|int|complex)\d.*", dtype)
    return match[1] if match else "text" if dtype.startswith(("str", "bytes", "object")) else dtype


# --- distances, for deciding which values match ----------------------------------------------------------------------


def between(reference: NDArray[Any], candidate: NDArray[Any]) -> float:
    """Return the largest difference of two arrays divided by the largest value; infinite if their shapes differ."""
    if reference.shape != candidate.shape or not reference.size:
        return 0.0 if reference.shape == candidate.shape else math.inf
    step = max(1, reference.size // LOOKED_AT)
    kind = np.complex128 if reference.dtype.kind == "c" else np.float64
    a, b = reference.reshape(-1)[::step].astype(kind), candidate.reshape(-1)[::step].astype(kind)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0  # infinities and NaN
        scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        distance = float(apart.max()) / (scale or 1.0)
    return math.inf if math.isnan(distance) else distance


def by_peak(errors: ErrorSize) -> float:
    """Return the same as `between`, over all elements, from known errors."""
    if errors.mismatches:
        return math.inf
    scale = max(abs(errors.low), abs(errors.high)) if errors.finite else 0.0
    return errors.max_abs / (scale or 1.0) if errors.finite else 0.0


def by_norm(errors: ErrorStats) -> float:
    """Return the norm of the errors divided by the larger of both norms; infinite where only one is not finite."""
    if errors.mismatches:
        return math.inf
    if errors.is_equal:
        return 0.0
    largest = max(errors.reference_norm, errors.candidate_norm)
    return errors.error_norm / largest if largest else 0.0


def _number(value: Any) -> Number:
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, bool | int | float | complex | str) else float(number)


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 20 * (math.log10(signal) - math.log10(noise)) if not signal <= 0 else -math.inf
