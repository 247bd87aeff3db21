"""One pass over two arrays: counts, moments, norms, histograms and the largest errors, in blocks that fit a cache.

Everything is computed in float64 over the pairs in which both numbers are finite. NaN and infinities on one side only
are counted separately.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.run.statistics import LARGEST, LARGEST_CODE, Floats, LogTally, Tally

WORST: Final = 8
"""Elements whose position and values are recorded: those with the largest errors."""
CHANNELS: Final = 4096
"""Maximum length of an axis for which the largest error at each index is recorded."""

_BLOCK: Final = 1 << 15
"""Values processed at once: their float64 copies fit the cache of one core."""
_SAFE: Final = 400
"""Largest binary exponent, positive or negative, of numbers that are squared without scaling."""
_EXPONENT: Final = np.int64(0x7FF << 52)
_NO_CODES: Final = np.zeros(0, np.int64)


class Sums(NamedTuple):
    """Figures of finite pairs that need more than addition to merge, with the names that `ErrorStats` has."""

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
    def of(cls, errors: Any) -> Sums:
        """Return the sums of an `ErrorStats`."""
        return cls(*(getattr(errors, name) for name in cls._fields))

    def merge(self, other: Sums) -> Sums:
        """Return the sums over the pairs of both."""
        if not self.finite or not other.finite:
            return self if self.finite else other
        finite = self.finite + other.finite
        max_rel, mean_rel = self._merged_relative(other)
        return Sums(
            finite=finite,
            max_abs=max(self.max_abs, other.max_abs),
            mean_abs=self.mean_abs * (self.finite / finite) + other.mean_abs * (other.finite / finite),
            nonzero=self.nonzero + other.nonzero,
            max_rel=max_rel,
            mean_rel=mean_rel,
            error_norm=math.hypot(self.error_norm, other.error_norm),
            reference_norm=math.hypot(self.reference_norm, other.reference_norm),
            candidate_norm=math.hypot(self.candidate_norm, other.candidate_norm),
            cosine=self._merged_cosine(other),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    def _merged_relative(self, other: Sums) -> tuple[float, float]:
        if not self.nonzero or not other.nonzero:
            some = self if self.nonzero else other
            return some.max_rel, some.mean_rel
        nonzero = self.nonzero + other.nonzero
        mean = self.mean_rel * (self.nonzero / nonzero) + other.mean_rel * (other.nonzero / nonzero)
        return max(self.max_rel, other.max_rel), mean

    def _merged_cosine(self, other: Sums) -> float:
        reference = math.hypot(self.reference_norm, other.reference_norm)
        candidate = math.hypot(self.candidate_norm, other.candidate_norm)
        if not reference or not candidate:
            return math.nan
        return sum(
            part.cosine * (part.reference_norm / reference) * (part.candidate_norm / candidate)
            for part in (self, other)
            if part.reference_norm and part.candidate_norm
        )


# --- the size of the errors of finite floats ------------------------------------------------------------------------


def finite_sums(reference: NDArray[Any], candidate: NDArray[Any]) -> tuple[int, Sums] | None:
    """Return the number of equal pairs and the sums of `ErrorSize`; None if a value of the two arrays is not finite."""
    references, candidates = (np.ascontiguousarray(array).reshape(-1) for array in (reference, candidate))
    if references.size <= _BLOCK:
        return _block_sums(references, candidates)
    equal, sums = 0, Sums()
    for start, block, _ in _blocks(reference.shape, channel_axis(reference.shape)):
        stop = start + math.prod(block)
        found = _block_sums(references[start:stop], candidates[start:stop])
        if found is None:
            return None
        equal, sums = equal + found[0], sums.merge(found[1])
    return equal, sums


def _block_sums(reference: NDArray[Any], candidate: NDArray[Any]) -> tuple[int, Sums] | None:
    values = reference.astype(np.float64)
    errors = candidate - values
    np.abs(errors, out=errors)
    largest = np.maximum.reduce(errors).item()
    if not math.isfinite(largest):
        return None
    low, high = np.minimum.reduce(values).item(), np.maximum.reduce(values).item()
    norms = _norm(errors, largest), _norm(values, max(abs(low), abs(high)))
    sums = Sums(errors.size, largest, error_norm=norms[0], reference_norm=norms[1], low=low, high=high)
    return errors.size - int(np.count_nonzero(errors)), sums


# --- everything -----------------------------------------------------------------------------------------------------


class Pass:
    """One pass over two arrays of numbers of the same shape: its attributes are the results."""

    def __init__(self, reference: NDArray[Any], candidate: NDArray[Any], *, rtol: float, atol: float) -> None:
        # indices count in C order, which onnxruntime's arrays have
        self.reference, self.candidate = np.ascontiguousarray(reference), np.ascontiguousarray(candidate)
        self.rtol, self.atol = rtol, atol
        self.equal = self.nan_mismatch = self.inf_mismatch = self.outside = 0
        self.sums = Sums()
        size, dtypes = reference.size, (self.reference.dtype, self.candidate.dtype)
        self.signed = Tally(size)
        self.absolute, self.relative, self.ulp = LogTally(size), LogTally(size), LogTally(size)
        self.worst: list[tuple[float, int]] = []
        """Largest errors and their positions in the flat arrays, largest first."""
        self.axis = channel_axis(reference.shape)
        self.channels = np.zeros(reference.shape[self.axis] if self.axis >= 0 else 0)
        self.is_complex = any(dtype.kind == "c" for dtype in dtypes)
        self._one_dtype = dtypes[0] == dtypes[1]
        # float64 cannot represent every 64-bit integer
        self._exact_integers = self._one_dtype and dtypes[0].kind in "iu" and dtypes[0].itemsize == 8
        self._ulp_of = None if self.is_complex else coarser(*dtypes)
        with np.errstate(all="ignore"):
            self._run(reference.shape)

    def _run(self, shape: Sequence[int]) -> None:
        references, candidates = self.reference.ravel(), self.candidate.ravel()
        for start, block, first_channel in _blocks(shape, self.axis):
            size = math.prod(block)
            reference, candidate = references[start : start + size], candidates[start : start + size]
            if self._one_dtype and _identical(reference, candidate):
                self._add_identical(reference)
                continue
            errors = self._add(reference, candidate)
            self._note_worst(errors, start)
            if self.axis >= 0:
                rows = errors.reshape(block).max(axis=2) if block[2] > 1 else errors.reshape(block[:2])
                channels = self.channels[first_channel : first_channel + block[1]]
                np.maximum(channels, rows.max(axis=0), out=channels)

    def _wide(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.astype(np.complex128 if self.is_complex else np.float64)

    def _real(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.abs(values) if self.is_complex else values

    def _add_identical(self, reference: NDArray[Any]) -> None:
        """Add values that are equal bit by bit on both sides."""
        self.equal += reference.size
        values = self._wide(reference)
        low, high = _range(self._real(values))
        if not (math.isfinite(low) and math.isfinite(high)):
            values = values[np.isfinite(values)]
            if not values.size:
                return
            low, high = _range(self._real(values))
        norm = _norm(values, max(abs(low), abs(high)))
        nonzero = int(np.count_nonzero(values))
        no_error = 0.0 if nonzero else math.nan
        sums = Sums(
            finite=values.size,
            max_abs=0.0,
            mean_abs=0.0,
            nonzero=nonzero,
            max_rel=no_error,
            mean_rel=no_error,
            reference_norm=norm,
            candidate_norm=norm,
            cosine=1.0 if norm else math.nan,
            low=float(low),
            high=float(high),
        )
        self.sums = self.sums.merge(sums)
        if not self.is_complex:
            self.signed.add(np.zeros(values.size), 0.0, 0.0)
        self._tally_zeros(values.size, nonzero)

    def _tally_zeros(self, size: int, nonzero: int) -> None:
        """Count pairs without a difference, some of which have a relative error."""
        self.absolute.add(_NO_CODES, size)
        self.relative.add(_NO_CODES, nonzero)
        if self._ulp_of is not None:
            self.ulp.add(_NO_CODES, size)

    def _add(self, native_reference: NDArray[Any], native_candidate: NDArray[Any]) -> Floats:
        """Add a block of both; return the absolute errors, infinite where only one side is not finite."""
        reference, candidate = self._wide(native_reference), self._wide(native_candidate)
        delta = candidate - reference
        if self._exact_integers:
            _refine(delta, native_reference, native_candidate)
        absolute: Floats = np.abs(delta)
        largest = absolute.max().item()
        if math.isfinite(largest):
            self._add_finite(reference, candidate, delta, absolute, largest)
            return absolute
        finite = np.isfinite(reference) & np.isfinite(candidate)
        differ = self._count_nonfinite(reference, candidate, finite)
        errors = np.where(finite, np.minimum(absolute, LARGEST), np.where(differ, np.inf, 0.0))
        if finite.any():
            delta = delta[finite]
            if not self.is_complex:
                delta = np.clip(delta, -LARGEST, LARGEST)
            absolute = errors[finite]
            self._add_finite(reference[finite], candidate[finite], delta, absolute, absolute.max().item())
        return errors

    def _count_nonfinite(
        self, reference: NDArray[Any], candidate: NDArray[Any], finite: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Count the pairs that are not finite; return which of them differ."""
        nan, other_nan = np.isnan(reference), np.isnan(candidate)
        same = ~finite & ((nan & other_nan) | (reference == candidate))
        differ: NDArray[np.bool_] = ~finite & ~same
        mismatches = int(np.count_nonzero(differ))
        only_nan = int(np.count_nonzero(differ & (nan ^ other_nan)))
        self.nan_mismatch += only_nan
        self.inf_mismatch += mismatches - only_nan
        self.outside += mismatches
        self.equal += int(np.count_nonzero(same))
        return differ

    def _add_finite(
        self, reference: NDArray[Any], candidate: NDArray[Any], delta: NDArray[Any], absolute: Floats, largest: float
    ) -> None:
        size = absolute.size
        magnitude: Floats = np.abs(reference)
        low, high = _range(magnitude if self.is_complex else reference)
        peak = max(abs(low), abs(high))
        other_peak = max(map(abs, _range(self._real(candidate))))
        self.outside += int(np.count_nonzero(absolute > magnitude * self.rtol + self.atol))
        if not self.is_complex:
            self.signed.add(delta, *_range(delta))
        differing = int(np.count_nonzero(absolute))
        self.equal += size - differing
        nonzero = int(np.count_nonzero(magnitude))
        if differing:
            max_rel, mean_rel = self._add_logarithmic(absolute, magnitude, differing, nonzero)
        else:
            max_rel = mean_rel = 0.0
            self._tally_zeros(size, nonzero)
        sums = Sums(
            finite=size,
            max_abs=largest,
            mean_abs=_mean(absolute, largest),
            nonzero=nonzero,
            max_rel=max_rel if nonzero else math.nan,
            mean_rel=mean_rel if nonzero else math.nan,
            error_norm=_norm(absolute, largest),
            reference_norm=_norm(reference, peak),
            candidate_norm=_norm(candidate, other_peak),
            cosine=_cosine(reference, candidate, peak, other_peak),
            low=low,
            high=high,
        )
        self.sums = self.sums.merge(sums)

    def _add_logarithmic(
        self, absolute: Floats, magnitude: Floats, differing: int, nonzero: int
    ) -> tuple[float, float]:
        """Tally absolute, relative and ULP errors; return the largest and the mean relative error."""
        equal = absolute.size - differing
        if equal:
            differ = absolute != 0
            absolute, magnitude = absolute[differ], magnitude[differ]
        codes = absolute.view(np.int64)
        self.absolute.add(codes, equal)
        if self._ulp_of is not None:
            self.ulp.add(_in_ulp(codes, magnitude, self._ulp_of), equal)
        if nonzero < differing + equal:
            has_relative = magnitude != 0
            absolute, magnitude = absolute[has_relative], magnitude[has_relative]
        relative = absolute / magnitude
        largest = mean = 0.0
        if relative.size:
            largest = relative.max().item()
            if largest > LARGEST:
                np.minimum(relative, LARGEST, out=relative)
                largest = LARGEST
            mean = _mean(relative, largest) * (relative.size / nonzero)
        self.relative.add(relative.view(np.int64), nonzero - relative.size)
        return largest, mean

    def _note_worst(self, errors: Floats, start: int) -> None:
        least = self.worst[-1][0] if len(self.worst) == WORST else 0.0
        if errors.max() <= least:
            return
        if errors.size > WORST:
            least = max(least, float(np.partition(errors, errors.size - WORST)[errors.size - WORST]))
        # every error that equals the least one is a candidate, so that the first positions always win
        places = np.flatnonzero((errors >= least) & (errors > 0))
        places = places[np.argsort(-errors[places], kind="stable")[:WORST]]
        self.worst += [(float(errors[place]), start + int(place)) for place in places]
        self.worst = sorted(self.worst, key=lambda entry: -entry[0])[:WORST]


def _blocks(shape: Sequence[int], axis: int) -> Iterator[tuple[int, tuple[int, int, int], int]]:
    """Yield contiguous blocks of an array: start, lengths before, along and after the axis, first index along it."""
    size = math.prod(shape)
    if not size:
        return
    if axis < 0:
        for start in range(0, size, _BLOCK):
            yield start, (1, 1, min(_BLOCK, size - start)), 0
        return
    outer, channels, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if channels * inner <= _BLOCK:
        rows = _BLOCK // (channels * inner)
        for row in range(0, outer, rows):
            yield row * channels * inner, (min(rows, outer - row), channels, inner), 0
        return
    step = max(_BLOCK // inner, 1)
    for row in range(outer):
        for channel in range(0, channels, step):
            count = min(step, channels - channel)
            start = (row * channels + channel) * inner
            if inner <= _BLOCK:
                yield start, (1, count, inner), channel
                continue
            for begin in range(0, inner, _BLOCK):
                yield start + begin, (1, 1, min(_BLOCK, inner - begin)), channel


def channel_axis(shape: Sequence[int]) -> int:
    """Return 1 for four or more axes, as in NCHW, else the last axis; −1 if it is too long or has one index."""
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    return axis if axis >= 0 and 1 < shape[axis] <= CHANNELS else -1


def _identical(reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    """Return whether all bits are equal; arrays that differ mostly do so in the first bytes."""
    one, other = reference.view(np.uint8), candidate.view(np.uint8)
    if not np.array_equal(one[:64], other[:64]):
        return False
    wide = one.size % 8 == 0
    return np.array_equal(one.view(np.uint64), other.view(np.uint64)) if wide else np.array_equal(one, other)


def _range(values: NDArray[Any]) -> tuple[float, float]:
    return values.min().item(), values.max().item()


def _refine(delta: Floats, reference: NDArray[Any], candidate: NDArray[Any]) -> None:
    """Replace differences of 64-bit integers by the exact ones where these are not huge."""
    exact = (candidate - reference).view(np.int64)
    near = np.abs(delta) < 2.0**62
    np.copyto(delta, exact, where=near, casting="unsafe")


def _exponent(largest: float) -> int:
    """Return the power of two by which numbers are divided before they are squared, which changes no digit."""
    exponent = math.frexp(largest)[1]
    return exponent if abs(exponent) > _SAFE else 0


def _scaled(values: NDArray[Any], exponent: int) -> Floats:
    """Return numbers divided by a power of two; complex ones as real and imaginary parts."""
    if exponent:
        values = values * math.ldexp(1, -exponent // 2) * math.ldexp(1, -exponent - -exponent // 2)
    return values.view(np.float64) if values.dtype.kind == "c" else values


def _dot(one: Floats, other: Floats) -> float:
    # einsum is fast and always adds in the same order, unlike the dot product of BLAS
    return float(np.einsum("i,i->", one, other))


def _norm(values: NDArray[Any], largest: float) -> float:
    """Return the root of the sum of squares of numbers whose largest magnitude is known."""
    exponent = _exponent(largest)
    values = _scaled(values, exponent)
    root = math.sqrt(_dot(values, values))
    try:
        return math.ldexp(root, exponent) if exponent else root
    except OverflowError:  # the norm of representable numbers may not be representable
        return math.inf


def _cosine(reference: NDArray[Any], candidate: NDArray[Any], peak: float, other_peak: float) -> float:
    if not peak or not other_peak:
        return math.nan
    one, other = _scaled(reference, _exponent(peak)), _scaled(candidate, _exponent(other_peak))
    return _dot(one, other) / (math.sqrt(_dot(one, one)) * math.sqrt(_dot(other, other)))


def _mean(values: Floats, largest: float) -> float:
    if largest > LARGEST / 2 / values.size:
        return float(np.einsum("i->", values / values.size))
    return float(np.einsum("i->", values)) / values.size


def _in_ulp(codes: NDArray[np.int64], magnitude: Floats, precision: tuple[int, int]) -> NDArray[np.int64]:
    """Return the bit patterns of errors divided by the spacing of numbers at the reference's magnitude."""
    digits, least = precision
    spacing = magnitude.view(np.int64) & _EXPONENT
    np.maximum(spacing, np.int64(least + 1023 << 52), out=spacing)
    spacing -= np.int64((1023 + digits) << 52)
    np.subtract(codes, spacing, out=spacing)
    return np.clip(spacing, 1, LARGEST_CODE, out=spacing)


@functools.cache
def coarser(one: np.dtype[Any], other: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the mantissa bits and the least exponent of the coarser of two types; None if one is not a float."""
    found = []
    for dtype in (one, other):
        try:
            info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        except ValueError:
            return None
        found.append((int(info.nmant), int(math.frexp(float(info.smallest_normal))[1]) - 1))
    digits, least = min(found)
    return digits, max(least, -1022)
