"""Pages and pictures of arrays of any type and rank."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from onnx_nb import load
from onnx_nb.analysis.model.model import read_tensor
from onnx_nb.analysis.view.array_preview import COLUMNS, PICTURE, ROWS, TILES, page, picture
from onnx_nb.types import Graph

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=20)
TYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_, np.complex64, np.float16])


@given(
    arrays.arrays(TYPES, SHAPES), st.lists(st.integers(-3, 30), max_size=4), st.integers(-5, 50), st.integers(-5, 50)
)
def test_a_page_shows_the_cells_of_the_array(array: NDArray[Any], index: list[int], row: int, column: int) -> None:
    shown = page(array, index=index, row=row, column=column)
    assert len(shown.cells) <= ROWS
    assert all(len(line) <= COLUMNS for line in shown.cells)
    part = array[shown.index] if array.ndim > 2 and array.size else array
    for i, line in enumerate(shown.cells):
        for j, text in enumerate(line):
            at = {0: (), 1: (shown.row + i,)}.get(part.ndim, (shown.row + i, shown.column + j))
            item = part[at].item()
            assert text == (f"{item:.6g}" if isinstance(item, float | complex) else str(item))


@given(arrays.arrays(TYPES, SHAPES))
def test_a_picture_is_bright_where_the_array_is_large(array: NDArray[Any]) -> None:
    drawn = picture(array)
    while array.ndim > 2 and array.shape[-1] == 1:  # the weight of a 1×1 convolution is a matrix
        array = array[..., 0]
    if array.ndim < 2 or min(array.shape[-2:]) < 2 or 0 in array.shape:
        assert drawn is None
        return
    assert drawn is not None
    numbers = np.abs(array) if array.dtype.kind == "c" else array
    flat = np.asarray(numbers.reshape(-1, *array.shape[-2:])[0], np.float64)
    (pixels,) = drawn.pixels
    assert pixels.shape == flat.shape
    finite = np.isfinite(flat)
    assert np.array_equal(pixels == 0, ~finite)
    order = np.argsort(flat[finite], kind="stable")
    assert np.all(np.diff(pixels[finite][order].astype(int)) >= 0)
    if finite.any():
        assert (drawn.low, drawn.high) == (flat[finite].min(), flat[finite].max())


# sizes of 1 at the end are no axes of a picture: see the test before
@given(arrays.arrays(np.float32, st.tuples(*[st.integers(1, 5)] * 3, st.integers(2, 5))), st.integers(0, 9))
def test_channels_are_slices_on_one_scale(array: NDArray[Any], channel: int) -> None:
    drawn = picture(array, index=[array.shape[0] - 1, channel], look="channels")
    if min(array.shape[2:]) < 2:
        assert drawn is None
        return
    assert drawn is not None
    image = array[-1].astype(np.float64)
    assert drawn.look == ("channels" if array.shape[1] > 1 else "slice")
    assert drawn.pixels.shape == image.shape
    finite = np.isfinite(image)
    assert np.array_equal(drawn.pixels == 0, ~finite)
    if finite.any():
        half = image[finite].max() / 2 - image[finite].min() / 2
        shares = (image[finite] / 2 - image[finite].min() / 2) / half if half else np.full(finite.sum(), 0.5)
        assert np.allclose(drawn.pixels[finite], 1 + 254 * shares, atol=0.51)


def test_many_channels_are_drawn_in_parts_with_the_chosen_one_among_them() -> None:
    array = np.arange(100.0)[None, :, None, None] * np.ones((1, 100, 4, 4))
    drawn = picture(array, index=[0, 70], look="channels")
    assert drawn is not None
    assert (drawn.first, len(drawn.pixels)) == (TILES, 100 - TILES)
    assert (drawn.low, drawn.high) == (TILES, 99)


def test_three_channels_are_a_picture_in_color() -> None:
    array = np.zeros((2, 3, 4, 5), np.uint8)
    array[1, 0] = 255
    drawn = picture(array, index=[1, 2], look="color")
    assert drawn is not None
    assert drawn.pixels.shape == (1, 4, 5, 3)
    assert drawn.pixels[0, 0, 0].tolist() == [255, 1, 1]
    four = picture(np.zeros((1, 4, 4, 5)), look="color")
    assert four is not None
    assert four.look == "slice"


def test_large_slices_are_thinned() -> None:
    drawn = picture(np.arange(1_000_000.0).reshape(1000, 1000))
    assert drawn is not None
    assert drawn.pixels.shape == (1, PICTURE, PICTURE)
    assert (drawn.pixels[0, 0, 0], drawn.pixels[0, -1, -1]) == (1, 255)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_small_types_are_shown_too(dtype: Any) -> None:
    array = np.asarray([[1, 2], [3, 4]]).astype(dtype)
    assert page(array).cells == (("1", "2"), ("3", "4"))
    assert picture(array) is not None


def test_strings_are_shown_and_shortened() -> None:
    assert page(np.asarray(["a", "b" * 100], object)).cells[1][0].endswith("…")
    assert picture(np.asarray([["a", "b"], ["c", "d"]], object)) is None


def test_a_weight_in_a_subgraph_is_read() -> None:
    inner = numpy_helper.from_array(np.asarray([5.0, 7.0], np.float32), "w")
    outer = numpy_helper.from_array(np.asarray([1.0, 2.0], np.float32), "w0")
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    then = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "then", [], [info], [inner])
    other = helper.make_graph([helper.make_node("Add", ["x", "w0"], ["y"])], "else", [], [info])
    node = helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other)
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
    ]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])]
    proto = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs, [outer]), opset_imports=[helper.make_opsetid("", 17)]
    )
    graph = Graph.of(load(proto))
    for name, numbers in (("w", [5.0, 7.0]), ("w0", [1.0, 2.0])):
        weight = graph.weight(graph.value_names.index(name))
        assert weight is not None
        assert read_tensor(graph.model, weight, name).tolist() == numbers
