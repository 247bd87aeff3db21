"""A page of an array's cells as text, and slices of it as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import shortened

ROWS: Final = 16
COLUMNS: Final = 6
PICTURE: Final = 192
"""Maximum pixels along a side of the picture of one slice."""
TILES: Final = 64
"""Maximum number of slices drawn in tiles."""
TILE: Final = 48
"""Minimum pixels along a side of a tile, where the slice is large enough."""

Look = Literal["slice", "channels", "color"]


@dataclass(frozen=True)
class Page:
    """Part of the last two dimensions of an array."""

    shape: tuple[int, ...]
    index: tuple[int, ...]
    """Index of the slice along each dimension except the last two."""
    row: int
    column: int
    """First cell of the page."""
    cells: tuple[tuple[str, ...], ...]
    trailing: int
    """Number of omitted trailing dimensions of size 1."""


def page(array: NDArray[Any], *, index: Sequence[int] = (), row: int = 0, column: int = 0) -> Page:
    """Return `ROWS` × `COLUMNS` cells of an array, beginning at ``row`` and ``column`` of the slice at ``index``.

    Missing numbers in ``index`` are 0, others are clipped to the shape. Trailing dimensions of size 1 are omitted if
    there are more than two dimensions, so that the weight of a 1×1 convolution is a matrix.
    """
    rank, array = array.ndim, array.reshape(_matrix(array.shape))
    place = _place(array.shape, index)
    flat = np.empty((0, 0), array.dtype)
    if 0 not in array.shape[:-2]:
        part = np.asarray(array[place] if place else array)
        flat = part.reshape(part.shape if part.ndim == 2 else (math.prod(part.shape), 1))
    row, column = _within(row, flat.shape[0]), _within(column, flat.shape[1])
    part = flat[row : row + ROWS, column : column + COLUMNS]
    cells = tuple(
        tuple(f"{x:.6g}" if isinstance(x, float | complex) else shortened(str(x), 40) for x in line)
        for line in part.tolist()
    )
    return Page(array.shape, place, row, column, cells, rank - array.ndim)


@dataclass(frozen=True, eq=False)
class Picture:
    """Slices of an array as an image: 0 for NaN and ±Inf, else 1 for `low` to 255 for `high`."""

    look: Look
    pixels: NDArray[np.uint8]
    """Shape (tiles, height, width), or (1, height, width, 3) for ``"color"``."""
    first: int
    """Index of the slice in the first tile, along the third last dimension."""
    low: float
    high: float
    """Range of the finite values of all tiles; NaN if there are none."""


def looks(shape: Sequence[int]) -> tuple[Look, ...]:
    """Return the ways to draw an array; empty for vectors and empty arrays.

    ``"slice"`` is one matrix of the last two dimensions, ``"channels"`` has all along the third last dimension as
    tiles (channels of an NCHW image, heads of an attention), ``"color"`` has three as red, green and blue.
    """
    shape = _matrix(shape)
    if len(shape) < 2 or min(shape[-2:]) < 2 or 0 in shape:
        return ()
    channels = shape[-3] if len(shape) > 2 else 1
    more: tuple[Look, ...] = ("channels", "color") if channels == 3 else ("channels",) if channels > 1 else ()
    return ("slice", *more)


def picture(array: NDArray[Any], *, index: Sequence[int] = (), look: Look = "slice") -> Picture | None:
    """Return slices of an array on one scale; None if there are fewer than two rows or columns, or no numbers.

    Large slices are subsampled evenly. Nothing is averaged, so an outlier row keeps its value but may be skipped.
    """
    array = array.reshape(_matrix(array.shape))
    possible = looks(array.shape)
    if not possible or array.dtype.kind in "OSU":
        return None
    look = look if look in possible else "slice"
    place = _place(array.shape, index)
    first = place[-1] if look == "slice" and place else 0
    if look == "slice":
        tiles, side = array[place][None], PICTURE
    else:
        first = place[-1] // TILES * TILES if look == "channels" else 0
        tiles = array[place[:-1]][first : first + TILES]
        side = PICTURE if look == "color" else max(TILE, PICTURE // math.isqrt(len(tiles)))
    rows, columns = (np.linspace(0, n - 1, min(n, side)).round().astype(np.int64) for n in tiles.shape[-2:])
    pixels, low, high = _levels(np.asarray(tiles[:, rows[:, None], columns]))
    return Picture(look, np.moveaxis(pixels, 0, -1)[None] if look == "color" else pixels, first, low, high)


def _levels(part: NDArray[Any]) -> tuple[NDArray[np.uint8], float, float]:
    """Return the gray level of each number, and the range of the levels."""
    numbers = (np.abs(part) if part.dtype.kind == "c" else part).astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.any():
        return np.zeros(numbers.shape, np.uint8), math.nan, math.nan
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    # half of each: the difference of the largest floats is infinite
    span = high / 2 - low / 2
    place = np.where(finite, numbers / 2 - low / 2, 0.0) / span if span > 0 else np.full(numbers.shape, 0.5)
    return np.where(finite, np.rint(1 + 254 * place), 0).astype(np.uint8), low, high


def _matrix(shape: Sequence[int]) -> Sequence[int]:
    """Return a shape without trailing ones; of two dimensions or more, at least two are left."""
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _place(shape: Sequence[int], index: Sequence[int]) -> tuple[int, ...]:
    """Return an index for each dimension except the last two."""
    pairs = zip([*index, *[0] * len(shape)], shape[:-2], strict=False)
    return tuple(_within(int(number), size) for number, size in pairs)


def _within(number: int, size: int) -> int:
    return max(0, min(number, size - 1))
