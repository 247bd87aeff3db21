"""A look at an array a page at a time: cells as text, a slice as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.model.model import read_tensor

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph

ROWS: Final = 16
COLUMNS: Final = 6
PICTURE: Final = 192
"""A picture of one slice has at most so many pixels a side."""
TILES: Final = 64
"""So many slices are drawn side by side."""
TILE: Final = 48
"""Each of them has at least so many pixels a side, if there are as many numbers."""

Look = Literal["slice", "channels", "color"]


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
    trailing: int = 0
    """So many dimensions of size 1 were taken from the end of the shape; see `page`."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return asdict(self)


def page(array: NDArray[Any], *, index: Sequence[int] = (), row: int = 0, column: int = 0) -> Page:
    """Write out some cells of an array.

    Of an array of more than two dimensions those of size 1 at the end are left out, so that the weight of a 1×1
    convolution is the matrix that it is.

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
    >>> pointwise = page(np.arange(6.0).reshape(2, 3, 1, 1))
    >>> pointwise.shape, pointwise.trailing, pointwise.cells
    ((2, 3), 2, (('0', '1', '2'), ('3', '4', '5')))
    """
    given, array = array.ndim, _squeezed(array)
    flat, place = _slice(array, index)
    row, column = _within(row, flat.shape[0]), _within(column, flat.shape[1])
    part = flat[row : row + ROWS, column : column + COLUMNS]
    cells = tuple(tuple(_text(item) for item in line) for line in part.tolist())
    return Page(array.dtype.name, array.shape, place, row, column, cells, given - array.ndim)


@dataclass(frozen=True, eq=False)
class Picture:
    """Slices of an array as an image: 0 for NaN and ±Inf, else 1 for `low` to 255 for `high`."""

    look: Look
    pixels: NDArray[np.uint8]
    """Of shape (tiles, height, width); of the look ``"color"`` (1, height, width, 3)."""
    first: int
    """The slice that the first tile shows, counted in the third last dimension."""
    low: float
    high: float
    """The least and the largest finite value of all tiles, NaN if there is none."""

    def to_json(self) -> dict[str, Any]:
        """Return everything but the pixels as plain JSON; NaN as text."""
        low, high = (x if math.isfinite(x) else str(x) for x in (self.low, self.high))
        shape = list(self.pixels.shape[:3])
        return {"look": self.look, "shape": shape, "first": self.first, "low": low, "high": high}


def looks(shape: Sequence[int]) -> tuple[Look, ...]:
    """Return the ways in which an array can be shown.

    Returns
    -------
    tuple of str
        ``"slice"``: one matrix of its last two dimensions. ``"channels"``: those along the third last dimension side by
        side, as the channels of an image (NCHW) or the heads of an attention. ``"color"``: three of them as red, green
        and blue. Empty for vectors and what has no elements.

    Examples
    --------
    >>> looks((1, 3, 224, 224)), looks((8, 8)), looks((8,))
    (('slice', 'channels', 'color'), ('slice',), ())
    """
    shape = shape[: _rank(shape)]
    if len(shape) < 2 or min(shape[-2:]) < 2 or 0 in shape:
        return ()
    channels = shape[-3] if len(shape) > 2 else 1
    more: tuple[Look, ...] = ("channels", "color") if channels == 3 else ("channels",) if channels > 1 else ()
    return ("slice", *more)


def picture(array: NDArray[Any], *, index: Sequence[int] = (), look: Look = "slice") -> Picture | None:
    """Draw slices of an array, all of them on one scale.

    Larger slices are thinned out evenly; nothing is averaged, so that a single outlier row is not hidden by its
    neighbors but may be skipped.

    Parameters
    ----------
    array
        Of any type and rank.
    index
        A number for each dimension but the last two, as for `page`.
    look
        One of `looks`; another one is drawn as ``"slice"``. ``"channels"`` has at most `TILES` tiles, that of `index`
        among them.

    Returns
    -------
    Picture or None
        ``None`` if there is nothing to draw: fewer than two rows or columns, or no numbers.

    Examples
    --------
    >>> picture(np.asarray([[0.0, 1.0], [np.nan, 0.5]])).pixels
    array([[[  1, 255],
            [  0, 128]]], dtype=uint8)
    >>> picture(np.arange(24).reshape(1, 6, 2, 2), look="channels").pixels.shape
    (6, 2, 2)
    """
    array = _squeezed(array)
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
    rows, columns = (_thinned(size, side) for size in tiles.shape[-2:])
    pixels, low, high = _levels(np.asarray(tiles[:, rows[:, None], columns]))
    return Picture(look, np.moveaxis(pixels, 0, -1)[None] if look == "color" else pixels, first, low, high)


def weight(graph: Graph, value: int) -> NDArray[Any]:
    """Return the array of a weight, of the main graph or of a body.

    Parameters
    ----------
    graph
        The graph.
    value
        A value of the kind ``INITIALIZER``.

    Raises
    ------
    ModelFileError, ExternalDataError
        If its bytes are not there.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import Graph
    >>> graph = Graph.of(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) <float[2] w = {1, 3}> { y = Mul(x, w) }'''))
    >>> weight(graph, graph.value("w"))
    array([1., 3.], dtype=float32)
    """
    name, frame = graph.value_names[value], graph.subgraphs[int(graph.value_subgraph[value])]
    if frame.parent < 0:
        return graph.model.tensor(name)
    held = [*frame.graph.initializer, *frame.graph.sparse_initializer]
    return read_tensor(graph.model, held[int(np.flatnonzero(frame.weights == value)[0])], name)


def _levels(part: NDArray[Any]) -> tuple[NDArray[np.uint8], float, float]:
    """Return the gray level of each number, and the range they are levels of."""
    numbers = (np.abs(part) if part.dtype.kind == "c" else part).astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.any():
        return np.zeros(numbers.shape, np.uint8), math.nan, math.nan
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    # halves, as the difference of the largest numbers is infinite
    span = high / 2 - low / 2
    place = np.where(finite, numbers / 2 - low / 2, 0.0) / span if span > 0 else np.full(numbers.shape, 0.5)
    return np.where(finite, np.rint(1 + 254 * place), 0).astype(np.uint8), low, high


def _rank(shape: Sequence[int]) -> int:
    """Return the number of dimensions without those of size 1 at the end, two at least if there are as many."""
    rank = len(shape)
    while rank > 2 and shape[rank - 1] == 1:
        rank -= 1
    return rank


def _squeezed(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(array.shape[: _rank(array.shape)])


def _slice(array: NDArray[Any], index: Sequence[int]) -> tuple[NDArray[Any], tuple[int, ...]]:
    place = _place(array.shape, index)
    if 0 in array.shape[:-2]:
        return np.empty((0, 0), array.dtype), place
    part = array[place] if place else array
    return np.asarray(part).reshape(part.shape if part.ndim == 2 else (math.prod(part.shape), 1)), place


def _place(shape: Sequence[int], index: Sequence[int]) -> tuple[int, ...]:
    """Return a number for each dimension but the last two."""
    leading = shape[:-2]
    given = [*index, *[0] * len(leading)]
    return tuple(_within(int(number), size) for number, size in zip(given, leading, strict=False))


def _within(number: int, size: int) -> int:
    return max(0, min(number, size - 1))


def _thinned(size: int, most: int) -> NDArray[np.int64]:
    return np.linspace(0, size - 1, min(size, most)).round().astype(np.int64)


def _text(item: Any) -> str:
    if isinstance(item, float | complex):
        return f"{item:.6g}"
    return shortened(str(item), 40)
