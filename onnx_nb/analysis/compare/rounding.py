"""What rounding costs: errors of arrays that are rounded to integers or small floats, and what is odd about them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.thresholds import LEVELS_OF_CHANNEL, LOST_SHARE, OUTLIER_RANGE
from onnx_nb.analysis.model.protofields import Longs

_SAMPLE_SIZES: Final = {"activation": 1 << 15, "weight": 1 << 17}
"""Maximum number of values that are rounded."""
_INTERVALS: Final = 64
"""Maximum number of intervals in the histogram of a quantizer's range."""


class Rounded(NamedTuple):
    """Values of a tensor by channel, shape (channels, n)."""

    real: NDArray[Any]
    back: NDArray[Any]
    """What they are after rounding."""
    codes: NDArray[Any]
    steps: NDArray[Any]
    lows: NDArray[Any]
    """Smallest value of each channel, of all values, shape (channels,)."""
    highs: NDArray[Any]


def costs_of(
    sample: Rounded, ends: tuple[float, float], dtype: np.dtype[Any], *, is_symmetric: bool, is_wide: bool
) -> dict[str, Any]:
    """Return the fields of a tensor's quantizer that its values decide."""
    rounding, is_float = rounding_to(dtype), not is_integer(dtype)
    real, codes = sample.real, sample.codes
    errors = (sample.back - real).astype(np.float64)
    squares = errors * errors
    far = np.abs(errors) > sample.steps * 1.001
    too_small, too_large = far & (codes <= ends[0]) & (errors > 0), far & (codes >= ends[1]) & (errors < 0)
    clips = too_small | too_large
    wrongs = squares.sum(axis=1, where=far & ~clips)
    lows, highs = np.minimum(sample.lows, 0.0), np.maximum(sample.highs, 0.0)
    ranges, span = highs - lows, ends[1] - ends[0]
    is_power = not is_float and bool((np.frexp(sample.steps)[0] == 0.5).all())  # hardware that shifts has no others

    def fit(lows: NDArray[Any], highs: NDArray[Any]) -> float:
        widths = 2 * np.maximum(-lows, highs) if is_symmetric else highs - lows
        steps = np.maximum(widths / span, np.finfo(np.float32).tiny)[..., None]
        steps = np.exp2(np.ceil(np.log2(steps))) if is_power else steps
        return _norm(real - steps * rounding(real / steps))

    by_channel = fit(lows, highs)
    step = float(sample.steps.min() if is_float else sample.steps.max())
    channels, loss = _odd_channels(wrongs, squares.sum(axis=1), ranges, step, is_wide=is_wide)
    bins = int(span) + 1
    has_levels = bins <= 256 and not is_float
    nothing = np.zeros(0, np.int64)
    return {
        "count": real.size,
        "below": int(too_small.sum()),
        "above": int(too_large.sum()),
        "signal": _norm(real),
        "rounding": float(squares.sum(where=~far)),
        "clipping": float(squares.sum(where=clips)),
        "wrong": float(wrongs.sum()),
        "fitted": by_channel if is_wide else fit(lows.min(keepdims=True), highs.max(keepdims=True)),
        "by_channel": by_channel,
        "levels": np.bincount((codes - ends[0]).astype(np.int64).ravel(), minlength=bins) if has_levels else nothing,
        "spread": nothing if is_float else _spread(sample, ends),
        "channels": channels,
        "lost": loss,
    }


def _norm(values: NDArray[Any]) -> float:
    """Return the sum of squares."""
    flat = values.ravel().astype(np.float64, copy=False)
    return float(flat @ flat)


def _spread(sample: Rounded, ends: tuple[float, float]) -> Longs:
    """Return the counts of values in intervals of levels, which rounding does not leave."""
    inside = min(_INTERVALS, int(ends[1] - ends[0]) + 1)
    beyond = inside // 4
    steps = np.maximum(sample.steps, np.finfo(np.float32).tiny)
    levels = (sample.real - sample.back) / steps + (sample.codes - ends[0] + 0.5)
    places = np.floor(levels * (inside / (ends[1] - ends[0] + 1)))
    places = np.clip(places + beyond, 0, inside + 2 * beyond - 1).astype(np.int64)
    return np.bincount(places.ravel(), minlength=inside + 2 * beyond)


def _odd_channels(
    wrongs: NDArray[Any], squares: NDArray[Any], ranges: NDArray[Any], step: float, *, is_wide: bool
) -> tuple[tuple[int, ...], float]:
    """Return the channels that are wrong or outliers, and the share of those that are lost because of them."""
    if wrongs.sum() > squares.sum() / 2:
        bad = np.flatnonzero(wrongs > squares.sum() / len(wrongs) / 10)
        return (tuple(bad.tolist()) if len(bad) <= max(1, len(wrongs) // 4) else ()), 0.0
    has_range = ranges > 0
    if is_wide or np.count_nonzero(has_range) < 4:
        return (), 0.0
    share = np.count_nonzero(has_range & (ranges < LEVELS_OF_CHANNEL * step)) / np.count_nonzero(has_range)
    outliers = np.flatnonzero(ranges > OUTLIER_RANGE * np.median(ranges[has_range])) if share >= LOST_SHARE else ()
    return (tuple(map(int, outliers)), float(share)) if len(outliers) else ((), 0.0)


@functools.cache
def levels_of(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the smallest and the largest finite number of a type of numpy or ml_dtypes."""
    if is_integer(dtype):
        integers = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return int(integers.min), int(integers.max)
    floats = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(floats.min), float(floats.max)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a type of numpy or ml_dtypes holds integers."""
    return dtype.kind in "iu" or "int" in dtype.name


def rounding_to(dtype: np.dtype[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that rounds numbers of levels to a type: to integers, or to floats of eight bits."""
    if is_integer(dtype):
        return np.rint
    lowest, highest = levels_of(dtype)
    return lambda levels: levels.clip(lowest, highest).astype(dtype).astype(np.float64)


def spacing(codes: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | float:
    """Return the distance of a type's numbers around each code: 1 between integers."""
    if is_integer(dtype):
        return 1.0
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    exponents = np.floor(np.log2(np.maximum(np.abs(codes), float(info.smallest_normal))))
    return np.asarray(2.0 ** (exponents - info.nmant))


def rows_of(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return an array as rows, one for each channel."""
    if not array.ndim:
        return array.reshape(1, 1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def sampled(rows: NDArray[Any], role: str) -> NDArray[Any]:
    """Return evenly spaced columns."""
    width = max(16, _SAMPLE_SIZES[role] // max(rows.shape[-2], 1))
    return rows[..., :: max(1, rows.shape[-1] // width)]
