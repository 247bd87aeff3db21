"""Other ways to read a quantized weight: the mistake of a quantizer is the one without which the error vanishes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.thresholds import READING_GAIN, READING_RESIDUE, SALIENT_POWER
from onnx_nb.analysis.formatting import number_text, quoted

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.operands import Operand
    from onnx_nb.analysis.run.statistics import Floats

_CROP: Final = 512
"""Elements of each axis that are read again."""
_FITTED: Final = 8
"""Elements of which zero point or scale may be fitted at least."""
_BLOCKS: Final = (16, 32, 64, 128, 256)
"""Usual sizes of blocks."""


class _Reading(NamedTuple):
    what: str
    codes: Floats
    zeros: Floats | float
    steps: Floats


def mistake_of(right: NDArray[Any], operand: Operand, scales: Mapping[str, NDArray[Any]]) -> str:
    """Return what a weight should be read with, if its error vanishes with it; empty if with nothing that is tried.

    ``scales`` are those of other weights, by name.
    """
    assert operand.steps is not None and operand.integers is not None  # noqa: PT018, S101 (it is quantized)
    corner = tuple(slice(_CROP) for _ in right.shape)
    parts = right, operand.array, operand.steps, operand.integers
    real, actual, steps, codes = (part[corner].astype(np.float64) for part in parts)
    steps = np.where(steps, steps, np.finfo(np.float32).tiny)
    zeros, before = np.rint(codes - actual / steps), np.square(actual - real).sum()
    # of a square matrix in an operator of another orientation, either may be meant
    for way in (real, real.T) if operand.granularity.startswith("block") and real.shape == real.T.shape else (real,):
        for reading in _readings(way, _Reading("", codes, zeros, steps), operand, scales):
            squares = np.square((reading.codes - reading.zeros) * reading.steps - way)
            if squares.sum() * READING_GAIN < before and np.mean(squares / np.square(reading.steps)) < READING_RESIDUE:
                return reading.what
    return ""


def _readings(real: Floats, read: _Reading, operand: Operand, scales: Mapping[str, NDArray[Any]]) -> Iterator[_Reading]:
    """Yield other readings, the most special first."""
    _, codes, zeros, steps = read
    shape, middle, old = codes.shape, 2.0 ** (operand.bits - 1), operand.zero_point
    is_unsigned = codes.min() >= 0
    wrapped = codes - 2 * middle * (codes >= middle) if is_unsigned else codes % (2 * middle)
    for zero in (0.0, middle):
        sign = "signed" if is_unsigned else "unsigned"
        yield read._replace(what=f"{sign} integers and a zero point of {zero:g}", codes=wrapped, zeros=zero)
    block = int(operand.granularity.rpartition(" ")[2]) if operand.granularity.startswith("block") else 1
    for axis, size in enumerate(shape):
        if operand.bits < 8 and size % 2 == 0:
            pairs = np.flip(codes.reshape(*shape[:axis], -1, 2, *shape[axis + 1 :]), axis + 1)
            yield read._replace(what="the two nibbles of each byte swapped", codes=pairs.reshape(shape))
        for shift in {1, -1, block, -block}:
            what = f"the scales shifted by 1 along axis {axis}"
            yield _Reading(what, codes, np.roll(zeros, shift, axis), np.roll(steps, shift, axis))
    for first, second in itertools.combinations(range(len(shape)), 2):
        if shape[first] == shape[second]:
            turned = np.asarray(zeros).swapaxes(first, second), steps.swapaxes(first, second)
            yield _Reading("the scales along the other axis", codes, *turned)
            yield read._replace(what="its integers transposed", codes=codes.swapaxes(first, second))
    if block > 1 and len(shape) == 2:
        compact = steps[::block]
        for order in (compact.T.reshape(compact.shape), compact.reshape(compact.shape[::-1]).T):
            wide = np.repeat(order, block, 0)[: shape[0]]
            yield read._replace(what="the scales in the order of columns", steps=wide)
        for length in _BLOCKS:
            count = -(-shape[0] // length)
            if count < len(compact):
                rows = compact.T.reshape(-1)[: count * shape[1]].reshape(shape[1], count)
                yield read._replace(what=f"blocks of {length}", steps=np.repeat(rows.T, length, 0)[: shape[0]])
    for (name, scale), (axis, size) in itertools.product(scales.items(), enumerate(shape)):
        if operand.granularity == "channel" and scale.size == size:
            along = scale.reshape([-1 if at == axis else 1 for at in range(len(shape))]).astype(np.float64)
            yield read._replace(what=f"the scales of {quoted(name)}", steps=np.broadcast_to(along, shape))
    yield from _fits(real, read, block, old)


def _fits(real: Floats, read: _Reading, block: int, old: int) -> Iterator[_Reading]:
    """Yield readings with the zero points and scales that fit best: of all, of the indices of an axis, of blocks."""
    _, codes, zeros, steps = read
    centered, shape = codes - zeros, codes.shape
    actual = centered * steps
    ratio = float(np.vdot(actual, real) / max(np.vdot(actual, actual), np.finfo(np.float32).tiny))
    yield read._replace(what=f"scales {ratio:.3g} times as large", steps=steps * ratio)
    axes = [axis for axis, size in enumerate(shape) if codes.size >= _FITTED * size]
    for axis in (None, *axes, *((-1,) if block >= _FITTED and len(shape) == 2 else ())):
        others = None if axis is None else tuple(at for at in range(len(shape)) if at != axis)

        def total(values: Floats, axis: int | None = axis, others: tuple[int, ...] | None = others) -> Floats:
            if axis == -1:
                sums = np.add.reduceat(values, range(0, shape[0], block), 0)
                return np.repeat(sums, block, 0)[: shape[0]]
            return np.broadcast_to(values.sum(axis=others, keepdims=True), shape)

        where = "" if axis is None else f" for each block of {block}" if axis == -1 else f" along axis {axis}"
        levels = np.rint(total(codes - real / steps) / total(np.ones(shape)))
        yield read._replace(what=f"{_span('zero point', levels)} instead of {old}{where}", zeros=levels)
        best = total(centered * real) / np.maximum(total(centered * centered), 1.0)
        best = np.where(best, best, np.finfo(np.float32).tiny)
        yield read._replace(what=f"{_span('scale', best)}{where}", steps=best)


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
    errors = np.moveaxis(operand.array, output_axis, 0) - rows
    inputs, least = 1 if right.ndim > 2 else rows.ndim - 1, SALIENT_POWER * float(np.median(powers))
    if rows.shape[inputs] != len(powers) or not least < powers.max() < np.inf:
        return 1.0, ()
    step = max(1, len(rows) // _CROP)
    rows, errors = rows[::step], errors[::step]
    norms = np.sqrt(powers / powers.max() + np.finfo(np.float32).eps)
    norms = norms.reshape([-1 if at == inputs else 1 for at in range(rows.ndim)])
    tries = [_rounding(rows * scale, operand, is_symmetric=is_symmetric) / scale for scale in (norms**0.5, norms)]
    best = min(float(np.square(norms * rounding).sum()) for rounding in tries)
    squares = np.square(errors * norms).sum()
    channels = tuple(np.flatnonzero(powers > least).tolist())
    return float(np.sqrt(squares / best)) if best else 1.0, channels


def _rounding(rows: Floats, operand: Operand, *, is_symmetric: bool) -> Floats:
    """Return the errors of rows with scales that fit, of the granularity of an operand."""
    flat = rows.reshape(1 if operand.granularity == "tensor" else len(rows), -1)
    length = flat.shape[1]
    if operand.granularity.startswith("block"):
        length = int(operand.granularity.rpartition(" ")[2])
    blocks = np.pad(flat, ((0, 0), (0, -flat.shape[1] % length))).reshape(len(flat), -1, length)
    lows, highs = (end(axis=2, keepdims=True, initial=0.0) for end in (blocks.min, blocks.max))
    span = 2 * np.maximum(-lows, highs) if is_symmetric else highs - lows
    steps = np.maximum(span / (2**operand.bits - 1), np.finfo(np.float32).tiny)
    errors = blocks - steps * np.rint(blocks / steps)
    return np.asarray(errors.reshape(len(flat), -1)[:, : flat.shape[1]].reshape(rows.shape))
