"""What rounding costs: errors of arrays that are rounded to integers or small floats, and what is odd about them.

The mistake of a weight's quantizer is what it should be read with for the error to vanish.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare import thresholds
from onnx_nb.analysis.compare.operands import Operand
from onnx_nb.analysis.formatting import number_text, quoted
from onnx_nb.analysis.model.protofields import Longs
from onnx_nb.analysis.run.statistics import Floats

_SAMPLE_SIZES: Final = {"activation": 1 << 15, "weight": 1 << 17}
"""Maximum number of values that are rounded."""
_INTERVALS: Final = 64
"""Maximum number of intervals in the histogram of a quantizer's range."""
_CROP: Final = 512
"""Elements of each axis that are read again."""
_FEWEST: Final = 8
"""Elements of which zero point or scale may be fitted at least."""
_BLOCKS: Final = (16, 32, 64, 128, 256)
"""Usual sizes of blocks."""
_TINY: Final = float(np.finfo(np.float32).tiny)
Reading = tuple[str, "Floats", "Floats | float", "Floats"]
"""What it is, then integers, zero points and scales of all elements."""


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
    spans = ranges[ranges > 0]
    share = 0.0 if is_wide or len(spans) < 4 else float(np.mean(spans < thresholds.LEVELS_OF_CHANNEL * step))
    outliers = np.flatnonzero(ranges > thresholds.OUTLIER_RANGE * np.median(spans)) if len(spans) else ()
    is_lost = share >= thresholds.LOST_SHARE and len(outliers) > 0
    return (tuple(map(int, outliers)), share) if is_lost else ((), 0.0)


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


def mistake_of(right: NDArray[Any], operand: Operand, scales: Mapping[str, NDArray[Any]]) -> str:
    """Return what a weight should be read with for its error to vanish, or ""; ``scales`` are of other weights."""
    corner = tuple(slice(_CROP) for _ in right.shape)
    parts = right, operand.array, np.asarray(operand.steps), np.asarray(operand.integers)
    real, actual, steps, codes = (part[corner].astype(np.float64) for part in parts)
    steps = np.where(steps, steps, _TINY)
    zeros, before = np.rint(codes - actual / steps), np.square(actual - real).sum()
    block = int(operand.granularity.rpartition(" ")[2]) if operand.granularity.startswith("block") else 1
    # of a square matrix in an operator of another orientation, either may be meant
    for way in (real, real.T) if block > 1 and real.shape == real.T.shape else (real,):
        common = codes, zeros, steps, operand, block
        for what, levels, centers, widths in itertools.chain(_readings(*common, scales), _fits(way, *common)):
            squares = np.square((levels - centers) * widths - way)
            is_less = squares.sum() * thresholds.READING_GAIN < before
            if is_less and np.mean(squares / np.maximum(widths**2, steps**2)) < thresholds.READING_RESIDUE:
                return what
    return ""


def _readings(  # noqa: PLR0917
    codes: Floats, zeros: Floats, steps: Floats, operand: Operand, block: int, scales: Mapping[str, NDArray[Any]]
) -> Iterator[Reading]:
    """Yield what a file may be mistaken for, the most special first."""
    shape, middle = codes.shape, 2.0 ** (operand.bits - 1)
    is_natural = codes.min() >= 0
    folds = codes - 2 * middle * (codes >= middle) if is_natural else codes % (2 * middle)
    for zero in (0.0, middle):
        yield f"{'' if is_natural else 'un'}signed integers and a zero point of {zero:g}", folds, zero, steps
    for axis, size in enumerate(shape):
        if operand.bits < 8 and size % 2 == 0:
            pairs = np.flip(codes.reshape(*shape[:axis], -1, 2, *shape[axis + 1 :]), axis + 1)
            yield "the two nibbles of each byte swapped", pairs.reshape(shape), zeros, steps
        for shift in {1, -1, block, -block}:
            what = f"the scales shifted by 1 along axis {axis}"
            yield what, codes, np.roll(zeros, shift, axis), np.roll(steps, shift, axis)
    for axes in itertools.combinations(range(len(shape)), 2):
        if shape[axes[0]] == shape[axes[1]]:
            yield "the scales along the other axis", codes, zeros.swapaxes(*axes), steps.swapaxes(*axes)
            yield "its integers transposed", codes.swapaxes(*axes), zeros, steps
    for (name, scale), (axis, size) in itertools.product(scales.items(), enumerate(shape)):
        if operand.granularity == "channel" and scale.size == size:
            along = scale.astype(np.float64).reshape([-1 if at == axis else 1 for at in range(len(shape))])
            yield f"the scales of {quoted(name)}", codes, zeros, np.broadcast_to(along, shape)
    if block > 1 and len(shape) == 2:
        rows = steps[::block]
        for order in (rows.T.reshape(rows.shape), rows.reshape(rows.shape[::-1]).T):
            yield "the scales in the order of columns", codes, zeros, np.repeat(order, block, 0)[: shape[0]]
        for length in _BLOCKS:
            count = -(-shape[0] // length)
            if count < len(rows):
                longer = rows.T.reshape(-1)[: count * shape[1]].reshape(shape[1], count).T
                yield f"blocks of {length}", codes, zeros, np.repeat(longer, length, 0)[: shape[0]]


def _fits(  # noqa: PLR0917
    real: Floats, codes: Floats, zeros: Floats, steps: Floats, operand: Operand, block: int
) -> Iterator[Reading]:
    """Yield the zero points and scales that fit best: of all, of each index of an axis, of each block."""
    offsets, shape = codes - zeros, codes.shape
    actual = offsets * steps
    ratio = float(np.vdot(actual, real)) / max(float(np.vdot(actual, actual)), _TINY)
    yield f"scales {ratio:.3g} times as large", codes, zeros, steps * ratio
    axes = [axis for axis, size in enumerate(shape) if codes.size >= _FEWEST * size]
    for axis in (None, *axes, *((-1,) if block >= _FEWEST and len(shape) == 2 else ())):

        def total(values: Floats, axis: int | None = axis) -> Floats:
            if axis == -1:
                return np.repeat(np.add.reduceat(values, range(0, shape[0], block), 0), block, 0)[: shape[0]]
            others = None if axis is None else tuple(at for at in range(len(shape)) if at != axis)
            return np.broadcast_to(values.sum(axis=others, keepdims=True), shape)

        where = "" if axis is None else f" for each block of {block}" if axis == -1 else f" along axis {axis}"
        levels = np.rint(total(codes - real / steps) / total(np.ones(shape)))
        yield f"{_span('zero point', levels)} instead of {operand.zero_point}{where}", codes, levels, steps
        best = total(offsets * real) / np.maximum(total(offsets * offsets), 1.0)
        yield f"{_span('scale', best)}{where}", codes, zeros, np.where(best, best, _TINY)


def _span(noun: str, numbers: Floats) -> str:
    low, high = (number_text(float(end), 3) for end in (numbers.min(), numbers.max()))
    return f"a {noun} of {low}" if low == high else f"{noun}s from {low} to {high}"


def smoothing_of(
    right: NDArray[Any], operand: Operand, powers: Floats, output_axis: int, *, is_symmetric: bool
) -> tuple[float, tuple[int, ...]]:
    """Return how much smaller the error of a product would be with smoothing, and the input channels that it is for.

    ``powers`` are mean squares of the channels of the input. The scales that are tried are powers of their norms, as in
    AWQ (Lin et al., "AWQ: Activation-aware weight quantization", 2024).
    """
    rows = np.moveaxis(right, output_axis, 0).astype(np.float64)
    inputs, least = 1 if right.ndim > 2 else rows.ndim - 1, thresholds.SALIENT_POWER * float(np.median(powers))
    if rows.shape[inputs] != len(powers) or not least < powers.max() < np.inf:
        return 1.0, ()
    step = max(1, len(rows) // _CROP)
    rows, errors = rows[::step], (np.moveaxis(operand.array, output_axis, 0) - rows)[::step]
    norms = np.sqrt(powers / powers.max() + np.finfo(np.float32).eps)
    norms = norms.reshape([-1 if at == inputs else 1 for at in range(rows.ndim)])
    tries = [_fit_errors(rows * scale, operand, is_symmetric=is_symmetric) / scale for scale in (norms**0.5, norms)]
    best = min(float(np.square(norms * rounding).sum()) for rounding in tries)
    gain = float(np.sqrt(np.square(errors * norms).sum() / best)) if best else 1.0
    return gain, tuple(np.flatnonzero(powers > least).tolist())


def _fit_errors(rows: Floats, operand: Operand, *, is_symmetric: bool) -> Floats:
    """Return the errors of rows with scales that fit, of the granularity of an operand."""
    flat = rows.reshape(1 if operand.granularity == "tensor" else len(rows), -1)
    is_block = operand.granularity.startswith("block")
    length = int(operand.granularity.rpartition(" ")[2]) if is_block else flat.shape[1]
    blocks = np.pad(flat, ((0, 0), (0, -flat.shape[1] % length))).reshape(len(flat), -1, length)
    lows, highs = (end(axis=2, keepdims=True, initial=0.0) for end in (blocks.min, blocks.max))
    span = 2 * np.maximum(-lows, highs) if is_symmetric else highs - lows
    steps = np.maximum(span / (2**operand.bits - 1), _TINY)
    errors = blocks - steps * np.rint(blocks / steps)
    return np.asarray(errors.reshape(len(flat), -1)[:, : flat.shape[1]].reshape(rows.shape))
