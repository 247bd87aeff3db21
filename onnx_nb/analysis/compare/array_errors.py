"""One pass over two arrays: counts, norms, histograms and the largest errors, in blocks that fit a cache."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.run.statistics import LARGEST, LARGEST_CODE, Floats, LogTally, Tally

SAMPLE_SIZE: Final = 256
"""Maximum number of pairs of values in `ErrorStats.sample`."""
WORST: Final = 8
"""Maximum number of elements whose position and values are recorded: those with the largest errors."""
CHANNELS: Final = 4096
"""Maximum length of an axis for which the largest error at each index is recorded."""

_BLOCK: Final = 1 << 15
"""Number of values in a block: their float64 copies fit the cache of one core."""
_SAFE: Final = 400
"""Largest binary exponent, positive or negative, of numbers that are squared without scaling."""
_EXPONENT: Final = np.int64(0x7FF << 52)
_ZEROS: Final = np.zeros(_BLOCK)
COUNTS: Final = ("equal", "nan_mismatch", "inf_mismatch", "outside")
HISTOGRAMS: Final = ("signed", "absolute", "relative", "ulp")


class Sums(NamedTuple):
    """Statistics of finite pairs that need more than addition to merge, with the names of fields of `ErrorStats`."""

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

    def merge(self, other: Sums) -> Sums:
        """Return the sums over the pairs of both."""
        if not self.finite or not other.finite:
            return self if self.finite else other
        reference = math.hypot(self.reference_norm, other.reference_norm)
        candidate = math.hypot(self.candidate_norm, other.candidate_norm)
        cosines = [
            part.cosine * (part.reference_norm / reference) * (part.candidate_norm / candidate)
            for part in (self, other)
            if part.reference_norm and part.candidate_norm
        ]
        return Sums(
            finite=self.finite + other.finite,
            max_abs=max(self.max_abs, other.max_abs),
            mean_abs=_merged_mean(self.mean_abs, self.finite, other.mean_abs, other.finite),
            nonzero=self.nonzero + other.nonzero,
            max_rel=float(np.fmax(self.max_rel, other.max_rel)),
            mean_rel=_merged_mean(self.mean_rel, self.nonzero, other.mean_rel, other.nonzero),
            error_norm=math.hypot(self.error_norm, other.error_norm),
            reference_norm=reference,
            candidate_norm=candidate,
            cosine=sum(cosines) if reference and candidate else math.nan,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )


def _merged_mean(mean: float, size: int, other: float, other_size: int) -> float:
    if not size or not other_size:
        return mean if size else other
    return mean * (size / (size + other_size)) + other * (other_size / (size + other_size))


def finite_sums(reference: NDArray[Any], candidate: NDArray[Any]) -> tuple[int, Sums] | None:
    """Return the number of equal pairs and the sums of `ErrorSize`; None unless both arrays are finite floats."""
    is_plain = all(array.dtype.kind == "f" and array.dtype.itemsize <= 8 for array in (reference, candidate))
    if not is_plain or reference.shape != candidate.shape or not reference.size:
        return None
    references, candidates = (np.ascontiguousarray(array).reshape(-1) for array in (reference, candidate))
    equal, sums, size = 0, Sums(), reference.size
    blocks = _blocks(reference.shape, _channel_axis(reference.shape)) if size > _BLOCK else [(0, (size,), 0)]
    for start, block, _ in blocks:
        here = slice(start, start + math.prod(block))
        values = references[here].astype(np.float64)
        errors = candidates[here] - values
        np.abs(errors, out=errors)
        largest = np.maximum.reduce(errors).item()
        if not math.isfinite(largest):
            return None
        low, high = _range(values)
        equal += errors.size - int(np.count_nonzero(errors))
        norms = _norm(errors, largest), _norm(values, max(abs(low), abs(high)))
        sums = sums.merge(Sums(errors.size, largest, error_norm=norms[0], reference_norm=norms[1], low=low, high=high))
    return equal, sums


class Pass:
    """One pass over two arrays of numbers of the same shape, in blocks that fit a cache."""

    def __init__(
        self, reference: NDArray[Any], candidate: NDArray[Any], *, rtol: float, atol: float, argmax: int | None
    ) -> None:
        # indices count in C order, which onnxruntime's arrays have
        self._arrays = np.ascontiguousarray(reference), np.ascontiguousarray(candidate)
        self._flat = [array.reshape(-1) for array in self._arrays]
        self._rtol, self._atol, self._argmax = rtol, atol, argmax
        self.equal = self.nan_mismatch = self.inf_mismatch = self.outside = 0
        self._sums = Sums()
        size, dtypes = reference.size, (reference.dtype, candidate.dtype)
        self.signed = Tally(size)
        self.absolute, self.relative, self.ulp = LogTally(size), LogTally(size), LogTally(size)
        self.worst: list[tuple[float, int]] = []
        """Largest errors and their positions in the flat arrays, largest first."""
        self._axis = _channel_axis(reference.shape)
        self._channels = np.zeros(reference.shape[self._axis] if self._axis >= 0 else 0)
        self._is_complex = any(dtype.kind == "c" for dtype in dtypes)
        self._wide = np.dtype(np.complex128 if self._is_complex else np.float64)
        self._one_dtype = dtypes[0] == dtypes[1]
        # float64 cannot represent every 64-bit integer
        self._exact_integers = self._one_dtype and dtypes[0].kind in "iu" and dtypes[0].itemsize == 8
        self._ulp_of = None if self._is_complex else coarser(*dtypes)
        with np.errstate(all="ignore"):
            self._run(reference.shape)

    def fields(self) -> dict[str, Any]:
        """Return the results by the names of `ErrorStats`, except `worst`."""
        argmax = None
        if self._argmax is not None and self._arrays[0].size and self._arrays[0].ndim and not self._is_complex:
            # numpy has no argmax for the types of ml_dtypes
            arrays = [array.astype(np.float32) if array.dtype.isbuiltin == 2 else array for array in self._arrays]
            places = [array.argmax(axis=self._argmax) for array in arrays]
            argmax = int(np.count_nonzero(places[0] == places[1])), places[0].size
        return {
            **{name: getattr(self, name) for name in COUNTS},
            **self._sums._asdict(),
            "argmax": argmax,
            **{name: getattr(self, name).histogram() for name in HISTOGRAMS},
            "channel_axis": self._axis,
            "channels": self._channels,
            "sample": np.stack([as_floats(spread(array, SAMPLE_SIZE)) for array in self._flat], axis=1),
        }

    def _run(self, shape: Sequence[int]) -> None:
        references, candidates = self._flat
        for start, block, first_channel in _blocks(shape, self._axis):
            size = math.prod(block)
            errors = self._add(references[start : start + size], candidates[start : start + size])
            if errors is None:
                continue
            self._note_worst(errors, start)
            if self._axis >= 0:
                rows = errors.reshape(block).max(axis=2) if block[2] > 1 else errors.reshape(block[:2])
                channels = self._channels[first_channel : first_channel + block[1]]
                np.maximum(channels, rows.max(axis=0), out=channels)

    def _add(self, one: NDArray[Any], other: NDArray[Any]) -> Floats | None:
        """Add a block; return the absolute errors, infinite where only one side is not finite; None for equal bits."""
        reference = one.astype(self._wide)
        # most arrays that differ do so in the first bytes
        bits = [array.view(np.uint8 if array.nbytes % 8 else np.uint64) for array in (one, other)]
        if self._one_dtype and np.array_equal(bits[0][:8], bits[1][:8]) and np.array_equal(bits[0], bits[1]):
            self._add_finite(reference, reference, _ZEROS[: reference.size], _ZEROS[: reference.size], 0.0)
            return None
        candidate = other.astype(self._wide)
        delta = candidate - reference
        if self._exact_integers:
            # the exact differences, where these are not huge
            np.copyto(delta, (other - one).view(np.int64), where=np.abs(delta) < 2.0**62, casting="unsafe")
        absolute: Floats = np.abs(delta)
        largest = absolute.max().item()
        if math.isfinite(largest):
            self._add_finite(reference, candidate, delta, absolute, largest)
            return absolute
        finite = np.isfinite(reference) & np.isfinite(candidate)
        nan, other_nan = np.isnan(reference), np.isnan(candidate)
        differ = ~finite & ~(nan & other_nan) & (reference != candidate)
        mismatches, only_nan = int(np.count_nonzero(differ)), int(np.count_nonzero(nan ^ other_nan))
        self.nan_mismatch += only_nan
        self.inf_mismatch += mismatches - only_nan
        self.outside += mismatches
        self.equal += int(np.count_nonzero(~finite)) - mismatches
        errors = np.where(finite, np.minimum(absolute, LARGEST), np.where(differ, np.inf, 0.0))
        if finite.any():
            delta = delta[finite]
            if not self._is_complex:
                delta = np.clip(delta, -LARGEST, LARGEST)
            absolute = errors[finite]
            self._add_finite(reference[finite], candidate[finite], delta, absolute, absolute.max().item())
        return errors

    def _add_finite(
        self, reference: NDArray[Any], candidate: NDArray[Any], delta: NDArray[Any], absolute: Floats, largest: float
    ) -> None:
        size = absolute.size
        low, high = _range(reference)
        peak = max(abs(low), abs(high))
        if not math.isfinite(peak):  # equal bits, some of them NaN or infinite
            finite = np.isfinite(reference)
            self.equal += size - int(np.count_nonzero(finite))
            if finite.any():
                self._add_finite(reference[finite], candidate[finite], delta[finite], absolute[finite], largest)
            return
        norm, nonzero = _norm(reference, peak), int(np.count_nonzero(reference))
        relative, cosine = 0.0 if nonzero else math.nan, 1.0 if norm else math.nan
        sums = Sums(size, largest, 0.0, nonzero, relative, relative, 0.0, norm, norm, cosine, low, high)
        if not self._is_complex:
            self.signed.add(delta, *(_range(delta) if largest else (0.0, 0.0)))
        if largest:
            magnitude: Floats = np.abs(reference)
            self.outside += int(np.count_nonzero(absolute > magnitude * self._rtol + self._atol))
            other_peak = max(map(abs, _range(candidate)))
            sums = sums._replace(
                mean_abs=_mean(absolute, largest),
                error_norm=_norm(absolute, largest),
                candidate_norm=_norm(candidate, other_peak),
                cosine=_cosine(reference, candidate, peak, other_peak),
                **self._add_logarithmic(absolute, magnitude, nonzero),
            )
        else:
            self.equal += size
            zeros = (self.absolute, size), (self.relative, nonzero), (self.ulp, size if self._ulp_of else 0)
            for tally, count in zeros:
                tally.add(_ZEROS[:0].view(np.int64), count)
        self._sums = self._sums.merge(sums)

    def _add_logarithmic(self, absolute: Floats, magnitude: Floats, nonzero: int) -> dict[str, Any]:
        """Tally absolute and relative errors and those in ULP; return the largest and the mean relative error."""
        size, equal = absolute.size, absolute.size - int(np.count_nonzero(absolute))
        self.equal += equal
        if equal:
            differ = absolute != 0
            absolute, magnitude = absolute[differ], magnitude[differ]
        codes = absolute.view(np.int64)
        self.absolute.add(codes, equal)
        if self._ulp_of is not None:
            self.ulp.add(_in_ulp(codes, magnitude, self._ulp_of), equal)
        if nonzero < size:
            has_relative = magnitude != 0
            absolute, magnitude = absolute[has_relative], magnitude[has_relative]
        relative = absolute / magnitude
        largest = relative.max(initial=0.0).item()
        if largest > LARGEST:
            largest = np.minimum(relative, LARGEST, out=relative).max().item()
        self.relative.add(relative.view(np.int64), nonzero - relative.size)
        mean = _mean(relative, largest) * (relative.size / nonzero) if relative.size else 0.0
        return {"max_rel": largest, "mean_rel": mean} if nonzero else {}

    def _note_worst(self, errors: Floats, start: int) -> None:
        least = self.worst[-1][0] if len(self.worst) == WORST else 0.0
        if errors.max() <= least:
            return
        if errors.size > WORST:
            least = max(least, float(np.partition(errors, errors.size - WORST)[errors.size - WORST]))
        # every error equal to the smallest one is a candidate, so that the first positions always win
        places = np.flatnonzero((errors >= least) & (errors > 0))
        places = places[np.argsort(-errors[places], kind="stable")[:WORST]]
        self.worst += [(float(errors[place]), start + int(place)) for place in places]
        self.worst = sorted(self.worst, key=lambda entry: -entry[0])[:WORST]


def _blocks(shape: Sequence[int], axis: int) -> Iterator[tuple[int, tuple[int, int, int], int]]:
    """Yield contiguous blocks of an array: start, lengths before, along and after the axis, first index along it."""
    if not math.prod(shape):
        return
    outer, channels, inner = 1, 1, math.prod(shape)
    if axis >= 0:
        outer, channels, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if channels * inner <= _BLOCK:
        rows = _BLOCK // (channels * inner)
        for row in range(0, outer, rows):
            yield row * channels * inner, (min(rows, outer - row), channels, inner), 0
        return
    step = max(_BLOCK // inner, 1)
    for row, channel in itertools.product(range(outer), range(0, channels, step)):
        count = min(step, channels - channel)
        for begin in range(0, inner, min(inner, _BLOCK)):
            yield (row * channels + channel) * inner + begin, (1, count, min(_BLOCK, inner - begin)), channel


def _channel_axis(shape: Sequence[int]) -> int:
    """Return 1 for four or more axes, as in NCHW, else the last axis; −1 if it is too long or has one index."""
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    return axis if axis >= 0 and 1 < shape[axis] <= CHANNELS else -1


def _range(values: NDArray[Any]) -> tuple[float, float]:
    values = np.abs(values) if values.dtype.kind == "c" else values
    return np.minimum.reduce(values).item(), np.maximum.reduce(values).item()


def _scaled(values: NDArray[Any], largest: float) -> tuple[Floats, int]:
    """Return numbers that can be squared, complex ones as two parts each, and the power of two that divided them."""
    exponent = math.frexp(largest)[1]
    if abs(exponent) <= _SAFE:
        exponent = 0
    else:
        values = values * math.ldexp(1, -exponent // 2) * math.ldexp(1, -exponent - -exponent // 2)
    return values.view(np.float64) if values.dtype.kind == "c" else values, exponent


def _dot(one: Floats, other: Floats) -> float:
    # einsum is fast and always adds in the same order, unlike the dot product of BLAS
    return float(np.einsum("i,i->", one, other))


def _norm(values: NDArray[Any], largest: float) -> float:
    """Return the root of the sum of squares of numbers whose largest magnitude is known."""
    mantissas, exponent = _scaled(values, largest)
    try:
        return math.ldexp(math.sqrt(_dot(mantissas, mantissas)), exponent)
    except OverflowError:  # the norm of representable numbers may not be representable
        return math.inf


def _cosine(reference: NDArray[Any], candidate: NDArray[Any], peak: float, other_peak: float) -> float:
    if not peak or not other_peak:
        return math.nan
    one, other = _scaled(reference, peak)[0], _scaled(candidate, other_peak)[0]
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
    """Return the mantissa bits and the smallest exponent of the coarser of two types; None if one is not a float."""
    try:
        infos: list[Any] = [ml_dtypes.finfo(dtype) for dtype in (one, other)]  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    digits, least = min((int(info.nmant), math.frexp(float(info.smallest_normal))[1] - 1) for info in infos)
    return digits, max(least, -1022)


def spread(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return at most ``count`` evenly spaced rows."""
    return np.asarray(values[np.linspace(0, len(values) - 1, min(len(values), count)).astype(np.intp)])


def as_floats(values: NDArray[Any]) -> Floats:
    """Return numbers as float64, complex ones as their magnitudes."""
    return (np.abs(values) if values.dtype.kind == "c" else values).astype(np.float64)
