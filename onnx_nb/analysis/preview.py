"""A look at an array a page at a time: cells as text, a slice as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import cut

ROWS: Final = 16
COLUMNS: Final = 6
PICTURE: Final = 192
"""A picture has at most so many pixels a side."""


@dataclass(frozen=True)
class Page:
    """Part of the last two dimensions of an array."""

    dtype: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    """The slice: a number for each dimension but the last two."""
    row: int
    column: int
    """The first cell of the page."""
    cells: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain JSON."""
        return asdict(self)


def page(array: NDArray[Any], *, index: Sequence[int] = (), row: int = 0, column: int = 0) -> Page:
    """Write out some cells of an array.

    Parameters
    ----------
    array
        Of any type and rank. One of rank 1 is one column, a scalar one cell.
    index
        A number for each dimension but the last two; those that are not there are 0, those outside are moved in.
    row, column
        The first cell, counted in the last two dimensions.

    Examples
    --------
    >>> shown = page(np.arange(24.0).reshape(2, 3, 4) / 3, index=[1], row=1)
    >>> shown.cells
    (('5.33333', '5.66667', '6', '6.33333'), ('6.66667', '7', '7.33333', '7.66667'))
    >>> page(np.asarray(["a", "b"], object)).cells
    (('a',), ('b',))
    """
    flat, place = _slice(array, index)
    row, column = _within(row, flat.shape[0]), _within(column, flat.shape[1])
    part = flat[row : row + ROWS, column : column + COLUMNS]
    cells = tuple(tuple(_text(item) for item in line) for line in part.tolist())
    return Page(array.dtype.name, array.shape, place, row, column, cells)


def picture(array: NDArray[Any], *, index: Sequence[int] = ()) -> NDArray[np.uint8] | None:
    """Draw a slice of an array: 1 for the least finite value to 255 for the largest, 0 for NaN and ±Inf.

    Larger slices are thinned out evenly; nothing is averaged, so that a single outlier row is not hidden by its
    neighbours but may be skipped.

    Returns
    -------
    numpy.ndarray or None
        Of shape (height, width), at most `PICTURE` a side; ``None`` if there is nothing to draw: fewer than two rows or
        columns, or no numbers.

    Examples
    --------
    >>> picture(np.asarray([[0.0, 1.0], [np.nan, 0.5]]))
    array([[  1, 255],
           [  0, 128]], dtype=uint8)
    """
    flat, _ = _slice(array, index)
    if min(flat.shape) < 2 or flat.dtype.kind in "OSU":
        return None
    rows, columns = (_thinned(size) for size in flat.shape)
    part = np.asarray(flat[np.ix_(rows, columns)])
    numbers = (np.abs(part) if part.dtype.kind == "c" else part).astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.any():
        return np.zeros(numbers.shape, np.uint8)
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    # halves, as the difference of the largest numbers is infinite
    span = high / 2 - low / 2
    place = np.where(finite, numbers / 2 - low / 2, 0.0) / span if span > 0 else np.full(numbers.shape, 0.5)
    return np.where(finite, np.rint(1 + 254 * place), 0).astype(np.uint8)


def _slice(array: NDArray[Any], index: Sequence[int]) -> tuple[NDArray[Any], tuple[int, ...]]:
    leading = array.shape[:-2]
    given = [*index, *[0] * len(leading)]
    place = tuple(_within(int(number), size) for number, size in zip(given, leading, strict=False))
    if 0 in leading:
        return np.empty((0, 0), array.dtype), place
    part = array[place] if leading else array
    return np.asarray(part).reshape(part.shape if part.ndim == 2 else (math.prod(part.shape), 1)), place


def _within(number: int, size: int) -> int:
    return max(0, min(number, size - 1))


def _thinned(size: int) -> NDArray[np.int64]:
    return np.linspace(0, size - 1, min(size, PICTURE)).round().astype(np.int64)


def _text(item: Any) -> str:
    if isinstance(item, float | complex):
        return f"{item:.6g}"
    return cut(str(item), 40)
