"""How far the values of one array are from those of another: every usual figure in one pass, and mergeable.

Everything is computed in float64, a few thousand values at a time, over the pairs of which both are finite; NaN and
infinities that only one side has are counted apart. What is kept are moments, norms, histograms and the worst elements,
so that the errors of feeds, or of parts that ran elsewhere, merge. Of arrays that can be kept meanwhile only the size
of the error is computed at once: nobody looks at the histograms of hundreds of tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.run.log_histogram import LARGEST, LARGEST_CODE, NOTHING, Floats, LogHistogram, LogTally
from onnx_nb.analysis.run.statistics import EMPTY, Histogram, Tally

RTOL: Final = 1e-3
"""What may differ relative to the reference, unless told otherwise: what onnxruntime's own tests allow."""
ATOL: Final = 1e-5
"""What may differ besides."""
WORST: Final = 8
"""So many elements are kept with both values."""
SAMPLED: Final = 256
"""So many pairs of values are kept, from evenly spaced places."""
CHANNELS: Final = 4096
"""Of an axis with at most so many indices the largest error is kept for each."""

_CHUNK: Final = 1 << 15
"""Values taken at once: their float64 copies stay in a core's own cache."""
_SAFE: Final = 400
"""Squares of numbers below two to this, and above its inverse, neither overflow nor vanish."""
_EXPONENT: Final = np.int64(0x7FF << 52)

Number = bool | int | float | complex | str


@dataclass(frozen=True, slots=True)
class Worst:
    """An element with both of its values."""

    index: tuple[int, ...]
    reference: Number
    candidate: Number
    error: float
    """Absolute; infinite where only one side is NaN or infinite, and where strings differ."""
    feed: int = 0
    """Number of the feed, from 0."""


class _PutOff:
    """What `ErrorStats` have besides their figures."""

    __slots__ = ("_whole",)
    _whole: Callable[[], ErrorStats] | None
    """Computes all of them; None once it did."""
    _know = object.__setattr__
    """Sets what is frozen."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ErrorStats(_PutOff):
    """How far a candidate's array is from a reference's; numbers over the pairs that are finite on both sides.

    Complex numbers count by the magnitude of their difference. Strings are equal or not, and have no numbers.

    Examples
    --------
    >>> found = ErrorStats.of(np.array([1, 2, 3, np.nan]), np.array([1, 2.5, 3, 0]))
    >>> found
    ErrorStats(4 pairs, 2 equal, max |Δ| 0.5, 1 NaN on one side)
    >>> found.max_abs, found.nan_mismatch, found.worst[1]
    (0.5, 1, Worst(index=(1,), reference=2.0, candidate=2.5, error=0.5, feed=0))
    """

    shape: tuple[int, ...]
    """Of the first arrays."""
    dtypes: tuple[str, str]
    """Of reference and candidate."""
    rtol: float = RTOL
    atol: float = ATOL
    count: int = 0
    """Pairs of values."""
    equal: int = 0
    """Pairs that are the same number; NaN and NaN are the same, and so are infinities of one sign."""
    finite: int = 0
    """Pairs of which both are finite: what the numbers are over."""
    nan_mismatch: int = 0
    """Pairs of which one is NaN."""
    inf_mismatch: int = 0
    """Pairs of which one is infinite and the other is not, or has the other sign."""
    outside: int = 0
    """Pairs further apart than ``atol + rtol * abs(reference)``, and all mismatches."""
    max_abs: float = math.nan
    mean_abs: float = math.nan
    nonzero: int = 0
    """Finite pairs whose reference is not 0: relative errors are over these."""
    max_rel: float = math.nan
    mean_rel: float = math.nan
    error_norm: float = 0.0
    """The root of the sum of squares of the differences."""
    reference_norm: float = 0.0
    candidate_norm: float = 0.0
    cosine: float = math.nan
    """Of the angle between reference and candidate; NaN where either is all zeros."""
    low: float = math.nan
    """The smallest number of the reference; of complex ones by magnitude."""
    high: float = math.nan
    argmax: tuple[int, int] | None = None
    """Rows whose largest value is at the same place, and all rows; None where it was not asked for."""
    worst: tuple[Worst, ...] = ()
    """Those that differ most, at most `WORST`, the worst first."""
    signed: Histogram = EMPTY
    """Of candidate − reference; of complex numbers there is none."""
    absolute: LogHistogram = NOTHING
    relative: LogHistogram = NOTHING
    ulp: LogHistogram = NOTHING
    """Of errors in units in the last place of the reference, in the coarser of the two types; floats only."""
    channel_axis: int = -1
    """The axis of `channels`: 1 where there are four or more, as in NCHW, else the last; −1 if there is none."""
    channels: Floats = field(default_factory=lambda: np.zeros(0))
    """The largest error at each index of that axis, infinite where there is a mismatch; shape (n,) or (0,)."""
    sample: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """Reference and candidate at at most `SAMPLED` evenly spaced places, shape (n, 2); complex ones by magnitude."""

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
        """Compare two arrays of any types and one shape, without copying them.

        Parameters
        ----------
        reference, candidate
            Arrays, or what numpy can make one of: bool, integers, floats, those of ``ml_dtypes``, complex, strings.
        rtol, atol
            What may differ, as `numpy.isclose` has it.
        argmax
            An axis: count the rows along it whose largest value is at the same place.
        feed
            Number of the feed, for `worst`.

        Raises
        ------
        AlignmentError
            If the shapes differ, or one holds strings and the other numbers.
        """
        reference, candidate = np.asarray(reference), np.asarray(candidate)
        if reference.shape != candidate.shape:
            mine, yours = (("×".join(map(str, array.shape)) or "a scalar") for array in (reference, candidate))
            advice = "Compare values that mean the same, from the same feeds."
            raise AlignmentError(f"the reference is {mine} and the candidate is {yours}.", advice=advice)
        texts = [_is_text(array.dtype) for array in (reference, candidate)]
        if any(texts):
            if not all(texts):
                message = f"the reference is {reference.dtype.name} and the candidate is {candidate.dtype.name}."
                raise AlignmentError(message, advice="Strings can be compared with strings only.")
            return _of_texts(reference, candidate, rtol, atol, feed)
        with np.errstate(all="ignore"):
            return _Pass(reference, candidate, rtol=rtol, atol=atol, argmax=argmax, feed=feed).errors()

    @classmethod
    def of_kept(
        cls,
        reference: NDArray[Any],
        candidate: NDArray[Any],
        *,
        rtol: float = RTOL,
        atol: float = ATOL,
        argmax: int | None = None,
    ) -> ErrorStats:
        """Compare two arrays that nobody changes: the same figures as by `of`, to the last bit, most of them later.

        At once there are counts, `max_abs`, the norms of reference and error, and the range. The rest is computed when
        any of it is first asked for; both arrays are held until then.

        Raises
        ------
        AlignmentError
            As `of` does.

        Examples
        --------
        >>> found = ErrorStats.of_kept(np.array([1.0, 2, 3]), np.array([1, 2.5, 3]))
        >>> found.max_abs, found.worst[0].index
        (0.5, (1,))
        """
        dtypes = _plain(reference.dtype, candidate.dtype)
        if dtypes is not None and reference.shape == candidate.shape and reference.size:
            with np.errstate(all="ignore"):
                size = _size(reference, candidate)
            if size is not None:
                found = object.__new__(cls)
                known = found._know
                known("shape", reference.shape)
                known("dtypes", dtypes)
                known("rtol", rtol)
                known("atol", atol)
                known("count", reference.size)
                known("finite", reference.size)
                known("nan_mismatch", 0)
                known("inf_mismatch", 0)
                for name, value in zip(_Size._fields, size, strict=True):
                    known(name, value)
                known("_whole", functools.partial(cls.of, reference, candidate, rtol=rtol, atol=atol, argmax=argmax))
                return found
        return cls.of(reference, candidate, rtol=rtol, atol=atol, argmax=argmax)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Compute what was put off: only what has no value yet is asked for here."""
            if name not in self.__dataclass_fields__:
                raise AttributeError(f"'ErrorStats' object has no attribute {name!r}", name=name, obj=self)
            whole = self._whole
            if whole is not None:  # else another thread was faster
                found = whole()
                for each in self.__dataclass_fields__:
                    self._know(each, getattr(found, each))
                self._know("_whole", None)
            return object.__getattribute__(self, name)

    @property
    def mismatches(self) -> int:
        """Pairs of which only one side is NaN or infinite, or that are different strings."""
        return self.nan_mismatch + self.inf_mismatch + (self.outside if self.dtypes[0] == "string" else 0)

    @property
    def is_equal(self) -> bool:
        """Whether every value is the same."""
        return self.equal == self.count

    @property
    def mse(self) -> float:
        """The mean of the squares of the differences."""
        return self.rmse * self.rmse if self.finite else math.nan

    @property
    def rmse(self) -> float:
        """The root of `mse`."""
        return self.error_norm / math.sqrt(self.finite) if self.finite else math.nan

    @property
    def rel_l2(self) -> float:
        """The norm of the differences by the norm of the reference: errors of tensors of any scale compare by this."""
        return _ratio(self.error_norm, self.reference_norm) if self.finite else math.nan

    @property
    def sqnr(self) -> float:
        """Signal to quantization noise in dB: the reference's power by that of the differences; ∞ if there are none."""
        return _decibels(self.reference_norm, self.error_norm) if self.finite else math.nan

    @property
    def psnr(self) -> float:
        """The square of the reference's range (max − min) by `mse`, in dB; ∞ if there is no difference."""
        return _decibels(self.high - self.low, self.rmse) if self.finite else math.nan

    @property
    def outside_fraction(self) -> float:
        """The part of pairs that is `outside` of the tolerance."""
        return self.outside / self.count if self.count else 0.0

    @property
    def argmax_agreement(self) -> float:
        """The part of rows whose largest value is at the same place; NaN where it was not asked for."""
        return self.argmax[0] / self.argmax[1] if self.argmax and self.argmax[1] else math.nan

    def ulp_percentile(self, percent: float) -> float:
        """Return how many units in the last place so many percent of the pairs differ by at most; NaN if not floats."""
        return self.ulp.percentile(percent)

    def metric(self, name: str) -> float:
        """Return one of `METRICS` by name."""
        found = METRICS.get(name)
        if found is None:
            raise AlignmentError(f"there is no metric called {name!r}.", advice=f"There are: {', '.join(METRICS)}.")
        return found.of(self)

    def badness(self, name: str) -> float:
        """Return a number that is larger where one of `METRICS` is worse: infinite where there are `mismatches`."""
        if self.mismatches and name != "mismatches":
            return math.inf
        value = self.metric(name)
        return -value if METRICS[name].higher_is_better else value

    def merge(self, other: ErrorStats) -> ErrorStats:
        """Return the errors of the pairs of both: counts, extremes and histograms exactly, the rest to rounding.

        The same parts in the same order give the same bits. The shape is that of the first.

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
            message = (
                f"rtol and atol are {self.rtol:g} and {self.atol:g} here, {other.rtol:g} and {other.atol:g} there."
            )
            raise AlignmentError(message, advice="Errors with different tolerances cannot be merged.")
        sums = _Sums.of(self).merge(_Sums.of(other))
        argmax = None
        if self.argmax and other.argmax:
            argmax = (self.argmax[0] + other.argmax[0], self.argmax[1] + other.argmax[1])
        same_axis = self.channel_axis == other.channel_axis and len(self.channels) == len(other.channels)
        return ErrorStats(
            shape=self.shape,
            dtypes=self.dtypes,
            rtol=self.rtol,
            atol=self.atol,
            count=self.count + other.count,
            equal=self.equal + other.equal,
            nan_mismatch=self.nan_mismatch + other.nan_mismatch,
            inf_mismatch=self.inf_mismatch + other.inf_mismatch,
            outside=self.outside + other.outside,
            **sums._asdict(),
            argmax=argmax,
            worst=tuple(sorted(self.worst + other.worst, key=lambda worst: -worst.error)[:WORST]),
            signed=self.signed.merge(other.signed),
            absolute=self.absolute.merge(other.absolute),
            relative=self.relative.merge(other.relative),
            ulp=self.ulp.merge(other.ulp),
            channel_axis=self.channel_axis if same_axis else -1,
            channels=np.maximum(self.channels, other.channels) if same_axis else np.zeros(0),
            sample=_thinned(np.concatenate([self.sample, other.sample])),
        )

    __or__ = merge

    def __repr__(self) -> str:
        pairs = f"{self.count:,} pair{'' if self.count == 1 else 's'}"
        if self.is_equal:
            return f"ErrorStats({pairs}, all equal)"
        parts = [pairs, f"{self.equal:,} equal"]
        parts += [f"max |Δ| {self.max_abs:.3g}"] if self.finite else []
        parts += [f"{self.nan_mismatch:,} NaN on one side"] if self.nan_mismatch else []
        parts += [f"{self.inf_mismatch:,} Inf on one side"] if self.inf_mismatch else []
        return f"ErrorStats({', '.join(parts)})"


class Metric(NamedTuple):
    """A figure of `ErrorStats` that points can be ranked by."""

    label: str
    """For a person."""
    of: Callable[[ErrorStats], float]
    higher_is_better: bool = False
    logarithmic: bool = True
    """Decibels and parts of one are no matter of magnitudes."""


METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
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
        "argmax": Metric(
            "argmax agrees", lambda errors: errors.argmax_agreement, higher_is_better=True, logarithmic=False
        ),
        "mismatches": Metric("NaN or Inf on one side", lambda errors: float(errors.mismatches), logarithmic=False),
    }
)
"""What points can be ranked by, and tables have a column for."""


def classes_axis(output: NDArray[Any]) -> int | None:
    """Return the axis along which argmax of an output of a model is taken; None if it has none.

    Examples
    --------
    >>> classes_axis(np.zeros((8, 1000))), classes_axis(np.zeros((8, 21, 32, 32))), classes_axis(np.zeros(()))
    (-1, 1, None)
    """
    if not output.ndim or output.dtype.kind in "Ocb":
        return None
    return 1 if output.ndim >= 4 else -1


def precision(errors: ErrorStats) -> float:
    """Return the distance between 1 and the next number in the coarser of the two types; 0 where one is no float."""
    found = [_digits(dtype) for dtype in errors.dtypes]
    return 2.0 ** -min(found) if min(found) >= 0 else 0.0


@functools.cache
def _digits(dtype: str) -> int:
    try:
        return int(ml_dtypes.finfo(dtype).nmant)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return -1


# --- what is known at once ------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    """The fields of `ErrorStats` that tell how large they are."""

    equal: int
    max_abs: float
    error_norm: float
    reference_norm: float
    low: float
    high: float


@functools.cache
def _plain(one: np.dtype[Any], other: np.dtype[Any]) -> tuple[str, str] | None:
    """Return the names of two types; None if float64 or numpy cannot represent them."""
    plain = all(dtype.kind == "f" and dtype.itemsize <= 8 for dtype in (one, other))
    return (one.name, other.name) if plain else None


def _size(reference: NDArray[Any], candidate: NDArray[Any]) -> _Size | None:
    """Return the size of errors as `_Pass` finds it, to the last bit; None if not all is finite."""
    references, candidates = (np.ascontiguousarray(array).reshape(-1) for array in (reference, candidate))
    if references.size <= _CHUNK:
        return _block_size(references, candidates)
    found: _Size | None = None
    for start, block, _ in _blocks(reference.shape, _channel_axis(reference.shape)):
        stop = start + math.prod(block)
        own = _block_size(references[start:stop], candidates[start:stop])
        if own is None:
            return None
        found = (
            own
            if found is None
            else _Size(
                found.equal + own.equal,
                max(found.max_abs, own.max_abs),
                math.hypot(found.error_norm, own.error_norm),
                math.hypot(found.reference_norm, own.reference_norm),
                min(found.low, own.low),
                max(found.high, own.high),
            )
        )
    return found


def _block_size(reference: NDArray[Any], candidate: NDArray[Any]) -> _Size | None:
    values = reference.astype(np.float64)
    errors = candidate - values
    np.abs(errors, out=errors)
    largest = np.maximum.reduce(errors).item()
    if not math.isfinite(largest):
        return None
    low, high = np.minimum.reduce(values).item(), np.maximum.reduce(values).item()
    equal = errors.size - int(np.count_nonzero(errors))
    return _Size(equal, largest, _norm(errors, largest), _norm(values, max(abs(low), abs(high))), low, high)


# --- one pass -------------------------------------------------------------------------------------------------------


class _Sums(NamedTuple):
    """What is known of some finite pairs; the fields of `ErrorStats` that take more than adding to merge."""

    finite: int = 0
    max_abs: float = math.nan
    mean_abs: float = math.nan
    nonzero: int = 0
    max_rel: float = math.nan
    mean_rel: float = math.nan
    error_norm: float = 0.0
    reference_norm: float = 0.0
    candidate_norm: float = 0.0
    cosine: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of(cls, errors: ErrorStats) -> _Sums:
        return cls(*(getattr(errors, name) for name in cls._fields))

    def merge(self, other: _Sums) -> _Sums:
        if not self.finite or not other.finite:
            return self if self.finite else other
        finite, nonzero = self.finite + other.finite, self.nonzero + other.nonzero
        reference = math.hypot(self.reference_norm, other.reference_norm)
        candidate = math.hypot(self.candidate_norm, other.candidate_norm)
        cosine = math.nan
        if reference and candidate:
            cosine = sum(
                part.cosine * (part.reference_norm / reference) * (part.candidate_norm / candidate)
                for part in (self, other)
                if part.reference_norm and part.candidate_norm
            )
        max_rel, mean_rel = (self if self.nonzero else other)[4:6]
        if self.nonzero and other.nonzero:
            max_rel = max(self.max_rel, other.max_rel)
            mean_rel = self.mean_rel * (self.nonzero / nonzero) + other.mean_rel * (other.nonzero / nonzero)
        return _Sums(
            finite,
            max(self.max_abs, other.max_abs),
            self.mean_abs * (self.finite / finite) + other.mean_abs * (other.finite / finite),
            nonzero,
            max_rel,
            mean_rel,
            math.hypot(self.error_norm, other.error_norm),
            reference,
            candidate,
            cosine,
            min(self.low, other.low),
            max(self.high, other.high),
        )


class _Pass:
    """One walk over two arrays."""

    def __init__(
        self,
        reference: NDArray[Any],
        candidate: NDArray[Any],
        *,
        rtol: float,
        atol: float,
        argmax: int | None,
        feed: int,
    ) -> None:
        self.shape = reference.shape
        # in the order of C, as indices are counted; onnxruntime's arrays are
        self.reference, self.candidate = np.ascontiguousarray(reference), np.ascontiguousarray(candidate)
        self.rtol, self.atol, self.argmax, self.feed = rtol, atol, argmax, feed
        size = reference.size
        kinds = {self.reference.dtype.kind, self.candidate.dtype.kind}
        self.is_complex = "c" in kinds
        self.alike = self.reference.dtype == self.candidate.dtype
        # float64 cannot tell all of their neighbors apart
        self.wide = self.alike and self.reference.dtype.kind in "iu" and self.reference.dtype.itemsize == 8
        self.ulp_of = None if self.is_complex else _coarser(self.reference.dtype, self.candidate.dtype)
        self.sums = _Sums()
        self.equal = self.nan_mismatch = self.inf_mismatch = self.outside = 0
        self.signed = Tally(size)
        self.absolute, self.relative, self.ulp = LogTally(size), LogTally(size), LogTally(size)
        self.worst: list[tuple[float, int]] = []
        self.axis = _channel_axis(self.shape)
        self.channels = np.zeros(self.shape[self.axis] if self.axis >= 0 else 0)

    def errors(self) -> ErrorStats:
        references, candidates = self.reference.ravel(), self.candidate.ravel()
        for start, block, first in _blocks(self.shape, self.axis):
            size = math.prod(block)
            reference, candidate = references[start : start + size], candidates[start : start + size]
            if self.alike and _identical(reference, candidate):
                self._add_equal(reference)
                continue
            errors = self._add(reference, candidate)
            self._note_worst(errors, start)
            if self.axis >= 0:
                rows = errors.reshape(block).max(axis=2) if block[2] > 1 else errors.reshape(block[:2])
                largest = rows.max(axis=0)
                part = self.channels[first : first + block[1]]
                np.maximum(part, largest, out=part)
        return ErrorStats(
            shape=self.shape,
            dtypes=(self.reference.dtype.name, self.candidate.dtype.name),
            rtol=self.rtol,
            atol=self.atol,
            count=self.reference.size,
            equal=self.equal,
            nan_mismatch=self.nan_mismatch,
            inf_mismatch=self.inf_mismatch,
            outside=self.outside,
            **self.sums._asdict(),
            argmax=self._argmax(),
            worst=self._worst(references, candidates),
            signed=self.signed.histogram(),
            absolute=self.absolute.histogram(),
            relative=self.relative.histogram(),
            ulp=self.ulp.histogram(),
            channel_axis=self.axis,
            channels=self.channels,
            sample=_sampled(references, candidates),
        )

    def _add_equal(self, reference: NDArray[Any]) -> None:
        """Take values that are the same bit for bit on both sides."""
        self.equal += reference.size
        values = self._wide(reference)
        low, high = (values.min().item(), values.max().item()) if not self.is_complex else _range(np.abs(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            values = values[np.isfinite(values)]
            if not values.size:
                return
            low, high = _range(np.abs(values) if self.is_complex else values)
        norm = _norm(values, max(abs(low), abs(high)))
        nonzero = int(np.count_nonzero(values))
        none = 0.0 if nonzero else math.nan
        cosine = 1.0 if norm else math.nan
        size = values.size
        self.sums = self.sums.merge(
            _Sums(size, 0.0, 0.0, nonzero, none, none, 0.0, norm, norm, cosine, float(low), float(high))
        )
        if not self.is_complex:
            self.signed.add(np.zeros(size), 0.0, 0.0)
        self.absolute.add(_NO_CODES, size)
        self.relative.add(_NO_CODES, nonzero)
        if self.ulp_of is not None:
            self.ulp.add(_NO_CODES, size)

    def _wide(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.astype(np.complex128 if self.is_complex else np.float64)

    def _add(self, native_reference: NDArray[Any], native_candidate: NDArray[Any]) -> Floats:
        """Take a chunk of both; give the absolute errors, infinite where only one side is not finite."""
        reference, candidate = self._wide(native_reference), self._wide(native_candidate)
        delta = candidate - reference
        if self.wide:
            _refine(delta, native_reference, native_candidate)
        absolute: Floats = np.abs(delta)
        largest = absolute.max().item()
        every = absolute
        if not math.isfinite(largest):
            finite = np.isfinite(reference) & np.isfinite(candidate)
            nan, other_nan = np.isnan(reference), np.isnan(candidate)
            same = ~finite & ((nan & other_nan) | (reference == candidate))
            differ = ~finite & ~same
            mismatches = int(np.count_nonzero(differ))
            only_nan = int(np.count_nonzero(differ & (nan ^ other_nan)))
            self.nan_mismatch += only_nan
            self.inf_mismatch += mismatches - only_nan
            self.outside += mismatches
            self.equal += int(np.count_nonzero(same))
            every = np.where(finite, np.minimum(absolute, LARGEST), np.where(differ, np.inf, 0.0))
            reference, candidate, delta, absolute = (values[finite] for values in (reference, candidate, delta, every))
            if not self.is_complex:
                delta = np.clip(delta, -LARGEST, LARGEST)
            if not absolute.size:
                return every
            largest = absolute.max().item()
        self._add_finite(reference, candidate, delta, absolute, largest)
        return every

    def _add_finite(
        self, reference: NDArray[Any], candidate: NDArray[Any], delta: NDArray[Any], absolute: Floats, largest: float
    ) -> None:
        size = absolute.size
        magnitude: Floats = np.abs(reference)
        low, high = _range(magnitude if self.is_complex else reference)
        peak = max(abs(low), abs(high))
        other_peak = max(map(abs, _range(np.abs(candidate) if self.is_complex else candidate)))
        self.outside += int(np.count_nonzero(absolute > magnitude * self.rtol + self.atol))
        if not self.is_complex:
            self.signed.add(delta, *_range(delta))
        differing = int(np.count_nonzero(absolute))
        self.equal += size - differing
        nonzero = int(np.count_nonzero(magnitude))
        norm, other_norm = _norm(reference, peak), _norm(candidate, other_peak)
        some, base = absolute, magnitude
        if differing < size:
            which = absolute != 0
            some, base = absolute[which], magnitude[which]
        max_rel = mean_rel = 0.0 if nonzero else math.nan
        if differing:
            codes = some.view(np.int64)
            self.absolute.add(codes, size - differing)
            if self.ulp_of is not None:
                self.ulp.add(_in_ulp(codes, base, self.ulp_of), size - differing)
            if nonzero < size:
                some, base = some[base != 0], base[base != 0]
            relative = some / base
            if relative.size:
                max_rel = relative.max().item()
                if max_rel > LARGEST:
                    np.minimum(relative, LARGEST, out=relative)
                    max_rel = LARGEST
                mean_rel = _mean(relative, max_rel) * (relative.size / nonzero)
            self.relative.add(relative.view(np.int64), nonzero - relative.size)
        else:
            self.absolute.add(_NO_CODES, size)
            self.relative.add(_NO_CODES, nonzero)
            if self.ulp_of is not None:
                self.ulp.add(_NO_CODES, size)
        self.sums = self.sums.merge(
            _Sums(
                size,
                largest,
                _mean(absolute, largest),
                nonzero,
                max_rel,
                mean_rel,
                _norm(absolute, largest),
                norm,
                other_norm,
                _cosine(reference, candidate, peak, other_peak),
                low,
                high,
            )
        )

    def _note_worst(self, errors: Floats, start: int) -> None:
        bar = self.worst[-1][0] if len(self.worst) == WORST else 0.0
        if errors.max() <= bar:
            return
        if errors.size > WORST:
            bar = max(bar, float(np.partition(errors, errors.size - WORST)[errors.size - WORST]))
        # with all that are as bad as the last one, so that it is always the first of these that stays
        places = np.flatnonzero((errors >= bar) & (errors > 0))
        places = places[np.argsort(-errors[places], kind="stable")[:WORST]]
        self.worst += [(float(errors[place]), start + int(place)) for place in places]
        self.worst = sorted(self.worst, key=lambda entry: -entry[0])[:WORST]

    def _worst(self, references: NDArray[Any], candidates: NDArray[Any]) -> tuple[Worst, ...]:
        return tuple(
            Worst(_index(place, self.shape), _number(references[place]), _number(candidates[place]), error, self.feed)
            for error, place in self.worst
        )

    def _argmax(self) -> tuple[int, int] | None:
        if self.argmax is None or not self.shape or not self.reference.size or self.is_complex:
            return None
        places = [_comparable(array).argmax(axis=self.argmax) for array in (self.reference, self.candidate)]
        return int(np.count_nonzero(places[0] == places[1])), places[0].size


_NO_CODES: Final = np.zeros(0, np.int64)


def _blocks(shape: Sequence[int], axis: int) -> Iterator[tuple[int, tuple[int, int, int], int]]:
    """Cut an array into pieces that lie together in memory and are whole in one axis, or of one index of it.

    Gives where each starts, its extent before, in and after the axis, and the index in the axis at which it starts.
    """
    size = math.prod(shape)
    if not size:
        return
    if axis < 0:
        for start in range(0, size, _CHUNK):
            yield start, (1, 1, min(_CHUNK, size - start)), 0
        return
    outer, channels, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if channels * inner <= _CHUNK:
        rows = _CHUNK // (channels * inner)
        for row in range(0, outer, rows):
            yield row * channels * inner, (min(rows, outer - row), channels, inner), 0
        return
    step = max(_CHUNK // inner, 1)
    for row in range(outer):
        for channel in range(0, channels, step):
            some = min(step, channels - channel)
            start = (row * channels + channel) * inner
            if inner <= _CHUNK:
                yield start, (1, some, inner), channel
                continue
            for begin in range(0, inner, _CHUNK):
                yield start + begin, (1, 1, min(_CHUNK, inner - begin)), channel


def _channel_axis(shape: Sequence[int]) -> int:
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    return axis if axis >= 0 and 1 < shape[axis] <= CHANNELS else -1


def _identical(reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    """Return whether all bits are the same; where they are not, this is seen at once as a rule."""
    one, other = reference.view(np.uint8), candidate.view(np.uint8)
    if not np.array_equal(one[:64], other[:64]):
        return False
    wide = one.size % 8 == 0
    return np.array_equal(one.view(np.uint64), other.view(np.uint64)) if wide else np.array_equal(one, other)


def _range(values: NDArray[Any]) -> tuple[float, float]:
    return values.min().item(), values.max().item()


def _refine(delta: Floats, reference: NDArray[Any], candidate: NDArray[Any]) -> None:
    """Put in the exact differences of integers of 64 bits, where these are not huge."""
    exact = (candidate - reference).view(np.int64)
    near = np.abs(delta) < 2.0**62
    np.copyto(delta, exact, where=near, casting="unsafe")


def _norm(values: NDArray[Any], largest: float) -> float:
    """Return the root of the sum of squares of numbers of at most some magnitude."""
    exponent = _shift(largest)
    if exponent:
        values = values * math.ldexp(1, -exponent // 2) * math.ldexp(1, -exponent - -exponent // 2)
    if values.dtype.kind == "c":
        values = values.view(np.float64)
    # einsum adds fast, and always in one order, which the dot product of BLAS does not
    root = math.sqrt(float(np.einsum("i,i->", values, values)))
    try:
        return math.ldexp(root, exponent) if exponent else root
    except OverflowError:  # the norm of numbers that are may be beyond those that are
        return math.inf


def _cosine(reference: NDArray[Any], candidate: NDArray[Any], peak: float, other_peak: float) -> float:
    if not peak or not other_peak:
        return math.nan
    scaled = []
    for values, largest in ((reference, peak), (candidate, other_peak)):
        exponent = _shift(largest)
        if exponent:
            values = values * math.ldexp(1, -exponent // 2) * math.ldexp(1, -exponent - -exponent // 2)  # noqa: PLW2901
        scaled.append(values.view(np.float64) if values.dtype.kind == "c" else values)
    one, other = scaled
    norms = math.sqrt(float(np.einsum("i,i->", one, one))) * math.sqrt(float(np.einsum("i,i->", other, other)))
    return float(np.einsum("i,i->", one, other)) / norms


def _shift(largest: float) -> int:
    """Return by which power of two numbers are divided before they are squared: a change of no digit."""
    exponent = math.frexp(largest)[1]
    return exponent if abs(exponent) > _SAFE else 0


def _mean(values: Floats, largest: float) -> float:
    if largest > LARGEST / 2 / values.size:
        return float(np.einsum("i->", values / values.size))
    return float(np.einsum("i->", values)) / values.size


def _in_ulp(codes: NDArray[np.int64], magnitude: Floats, places: tuple[int, int]) -> NDArray[np.int64]:
    """Return the bit patterns of errors divided by the distance of neighbors of the reference in some type."""
    digits, least = places
    spacing = magnitude.view(np.int64) & _EXPONENT
    np.maximum(spacing, np.int64(least + 1023 << 52), out=spacing)
    spacing -= np.int64((1023 + digits) << 52)
    np.subtract(codes, spacing, out=spacing)
    return np.clip(spacing, 1, LARGEST_CODE, out=spacing)


@functools.cache
def _coarser(one: np.dtype[Any], other: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the mantissa bits and the least exponent of the coarser of two types; None if one is no float."""
    found = []
    for dtype in (one, other):
        try:
            info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        except ValueError:
            return None
        found.append((int(info.nmant), int(math.frexp(float(info.smallest_normal))[1]) - 1))
    digits, least = min(found)
    return digits, max(least, -1022)


def _comparable(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if array.dtype.isbuiltin == 2 else array


def _is_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "OSUT"


def _of_texts(reference: NDArray[Any], candidate: NDArray[Any], rtol: float, atol: float, feed: int) -> ErrorStats:
    differ = np.asarray(reference.astype(object) != candidate.astype(object), bool).ravel()
    places = np.flatnonzero(differ)[:WORST].tolist()
    one, other = reference.ravel(), candidate.ravel()
    different = int(np.count_nonzero(differ))
    return ErrorStats(
        shape=reference.shape,
        dtypes=("string", "string"),
        rtol=rtol,
        atol=atol,
        count=reference.size,
        equal=reference.size - different,
        outside=different,
        worst=tuple(
            Worst(_index(place, reference.shape), str(one[place]), str(other[place]), math.inf, feed)
            for place in places
        ),
    )


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(place, shape)) if shape else ()


def _number(value: Any) -> Number:
    found = value.item() if hasattr(value, "item") else value
    return found if isinstance(found, bool | int | float | complex) else float(found)


def _sampled(reference: NDArray[Any], candidate: NDArray[Any]) -> Floats:
    if reference.size > SAMPLED:
        places = np.linspace(0, reference.size - 1, SAMPLED).astype(np.intp)
        reference, candidate = reference[places], candidate[places]
    pairs = [np.abs(array) if array.dtype.kind == "c" else array for array in (reference, candidate)]
    return np.stack([array.astype(np.float64) for array in pairs], axis=1)


def _thinned(sample: Floats) -> Floats:
    if len(sample) <= SAMPLED:
        return sample
    return np.asarray(sample[np.linspace(0, len(sample) - 1, SAMPLED).astype(np.intp)])


def _ratio(one: float, other: float) -> float:
    if other:
        return one / other
    return math.inf if one else 0.0


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 20 * (math.log10(signal) - math.log10(noise)) if signal else -math.inf
