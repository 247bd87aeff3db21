"""Statistics agree with numpy in float64, and those of parts merge into those of the whole."""

from __future__ import annotations

import functools
import math
import operator
import pickle
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from onnx_nb.analysis.run.statistics import BINS, FINE, Histogram, Ranges, Statistics, _pieces

INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SMALL = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
    "int4",
    "uint4",
    "float4_e2m1fn",
]
DTYPES = [*INTEGERS, "float16", "float32", "float64", "complex64", "complex128", ">f4", ">i8", *SMALL]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if name in SMALL else name)


def arrays(name: str) -> st.SearchStrategy[NDArray[Any]]:
    shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=20)
    if name not in SMALL:
        return npst.arrays(name, shapes)
    dtype = dtype_of(name)
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4}.get(name, 8 * dtype.itemsize)
    raw = npst.arrays("uint16" if bits == 16 else "uint8", shapes, elements=st.integers(0, 2**bits - 1))
    return raw.map(lambda values: values.view(dtype) if values.ndim else values[None].view(dtype)[0])


def as_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """The same values in a type in which numpy is an independent opinion."""
    with np.errstate(all="ignore"):
        return as_numbers_of(values)


def as_numbers_of(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "c":
        return np.abs(values.astype(np.complex128))
    return (
        values.astype(np.int64)
        if values.dtype.name in ("int4", "uint4", "bool")
        else (values if values.dtype.kind in "iu" else values.astype(np.float64))
    )


def longdouble_moments(finite: NDArray[Any]) -> tuple[float, float]:
    wide = finite.astype(np.longdouble)
    return float(wide.mean()), float(wide.std())


def close(found: float, expected: float, scale: float) -> bool:
    """Equal to 1e-12, relative to the values where the result is small only because they cancel."""
    return math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12 * scale)


def check(found: Statistics, values: NDArray[Any]) -> None:
    numbers = as_numbers(values).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    assert found.count == values.size
    assert found.nan == np.isnan(numbers).sum()
    assert found.posinf == (numbers == np.inf).sum()
    assert found.neginf == (numbers == -np.inf).sum()
    assert found.nonfinite == values.size - finite.size
    assert found.zeros == (finite == 0).sum()
    assert found.histogram.total == found.finite == finite.size
    if not finite.size:
        assert all(map(math.isnan, (found.min, found.max, found.mean, found.std)))
        return
    assert (found.min, found.max) == (finite.min(), finite.max())
    assert isinstance(found.min, int) == (finite.dtype.kind in "iu")
    mean, std = longdouble_moments(finite)
    scale = float(np.abs(finite.astype(np.longdouble)).max())
    assert close(found.mean, mean, scale)
    assert close(found.std, std, scale)
    check_bins(found.histogram, finite)


def check_bins(histogram: Histogram, finite: NDArray[Any]) -> None:
    assert 1 <= len(histogram.counts) <= BINS
    assert histogram.counts[0] > 0
    assert histogram.counts[-1] > 0
    # exact integers: floor of value / width
    places = [math.floor(fraction(value) / fraction(2.0) ** histogram.exponent) for value in finite.tolist()]
    counts = np.bincount(
        np.array(places, dtype=object).astype(np.int64) - histogram.first, minlength=len(histogram.counts)
    )
    assert np.array_equal(counts, histogram.counts)


def fraction(value: float) -> Any:
    from fractions import Fraction

    return Fraction(value)


@pytest.mark.parametrize("name", DTYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_every_type_as_numpy_has_it(name: str, data: st.DataObject) -> None:
    values = data.draw(arrays(name))
    check(Statistics.of(values), values)
    assert Histogram.of(values) == Statistics.of(values).histogram


@pytest.mark.parametrize("name", DTYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_parts_merge_into_the_whole(name: str, data: st.DataObject) -> None:
    values = data.draw(arrays(name)).reshape(-1)
    cuts = sorted(data.draw(st.lists(st.integers(0, values.size), max_size=5)))
    parts = [Statistics.of(part) for part in np.split(values, cuts)]
    merged = functools.reduce(operator.or_, parts)
    whole = Statistics.of(values)
    for field in ("count", "nan", "posinf", "neginf", "zeros", "histogram"):
        assert getattr(merged, field) == getattr(whole, field)
    if not whole.finite:
        assert math.isnan(merged.mean)
        return
    assert (merged.min, merged.max) == (whole.min, whole.max)
    scale = max(abs(whole.min), abs(whole.max))
    assert close(merged.mean, whole.mean, scale)
    assert close(merged.std, whole.std, scale)
    # the same parts in the same order: the same bits
    assert functools.reduce(operator.or_, [Statistics.of(part) for part in np.split(values, cuts)]) == merged


@given(data=st.data())
def test_histograms_merge_in_any_order(data: st.DataObject) -> None:
    values = data.draw(npst.arrays("float64", st.integers(0, 40)))
    order = data.draw(st.permutations(range(values.size)))
    single = [Histogram.of(values[i : i + 1]) for i in order]
    half = len(single) // 2
    by_halves = functools.reduce(operator.or_, single[:half], Histogram.of([])) | functools.reduce(
        operator.or_, single[half:], Histogram.of([])
    )
    whole = Histogram.of(values)
    assert by_halves == whole
    assert hash(by_halves) == hash(whole)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
@example([1e-40, 1e300, -1e300])
@example([-1e-300, 1e300])
@example([5e-324, -5e-324])
@example([-1.7976931348623157e308, 1.7976931348623157e308])
def test_each_value_lies_between_the_edges_of_its_bin(values: list[float]) -> None:
    histogram = Histogram.of(values)
    assert np.all(np.diff(histogram.edges) > 0)
    within = (np.array(values)[:, None] >= histogram.edges[:-1]) & (np.array(values)[:, None] < histogram.edges[1:])
    assert np.array_equal(within.sum(axis=0)[:-1], histogram.counts[:-1])


def special(name: str, size: int) -> Any:
    random = np.random.default_rng(0)
    values = random.standard_normal(size)
    if name == "shifted":
        return values.astype(np.float32) + np.float32(1000)
    if name == "far":
        return (values * 10).astype(np.float32) + np.float32(3e7)
    if name == "wide":
        return (values * 10.0 ** random.integers(-30, 30, size)).astype(np.float32)
    if name == "huge":
        return values * 1e300
    if name == "tiny":
        return values * 1e-310
    if name == "holes":
        values[::7], values[1::70], values[2::71] = np.nan, np.inf, -np.inf
        return values.astype(np.float32)
    if name == "limits":
        return random.choice(np.array([-(2**63), 2**63 - 1, 0, 5]), size)
    if name == "unsigned limits":
        return random.choice(np.array([2**64 - 1, 2**63, 0], np.uint64), size)
    return np.full(size, 0.1)


SPECIAL = ("shifted", "far", "wide", "huge", "tiny", "holes", "limits", "unsigned limits", "constant")


@pytest.mark.parametrize("name", SPECIAL)
def test_more_values_than_are_taken_at_once(name: str) -> None:
    values = special(name, 100_003)
    found = Statistics.of(values)
    check(found, values)
    parts = [Statistics.of(part) for part in np.array_split(values, 7)]
    assert functools.reduce(operator.or_, parts).histogram == found.histogram
    if name == "constant":
        assert (found.mean, found.std) == (0.1, 0.0)


def test_large_float32_arrays_to_the_precision_of_their_values() -> None:
    random = np.random.default_rng(0)
    normal, peak = random.standard_normal(200_000).astype(np.float32), np.float32(2.0**41)
    for name, values in {
        "normal": normal,
        "rectified": np.maximum(normal, 0),
        "shifted": normal + np.float32(0.9),
        "far": normal + np.float32(1000),
        "wide": np.exp(4 * normal),
        "sparse": normal * (random.random(normal.size) < 0.001),
        "periodic": np.tile(normal[:64], 3125),
        "ramp": np.linspace(0, 1, normal.size, dtype=np.float32),
        "huge": normal * peak * peak,
        "tiny": normal / peak / peak,
        "float16": normal.astype(np.float16),
    }.items():
        found, (mean, std) = Statistics.of(values), longdouble_moments(values)
        assert abs(found.mean - mean) < 1e-7 * std, name
        assert abs(found.std - std) < 1e-7 * std, name


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a.transpose(2, 0, 1),
        lambda a: np.broadcast_to(a[0, 0, 0], (5, 5)),
        lambda a: a[:, :, 1],
        lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype),
    ],
)
def test_arrays_in_any_order_in_memory(view: Any) -> None:
    values = view(np.random.default_rng(0).standard_normal((30, 40, 50)))
    check(Statistics.of(values), values)


def test_thin_slices_are_taken_together() -> None:
    values = np.random.default_rng(0).standard_normal((100_000, 2))[:, ::2]
    assert len(list(_pieces(values))) < 5
    wide = np.random.default_rng(0).standard_normal((3, 400_000))[:, ::2]
    assert max(piece.size for piece in _pieces(wide)) <= 1 << 17
    for array in (values, wide):
        check(Statistics.of(array), array)


def test_strings_are_only_counted() -> None:
    for values in (np.array(["a", "b"], object), np.array(["a", "b"]), np.array([b"a", b"b"])):
        found = Statistics.of(values)
        assert (found.count, found.finite, found.nonfinite) == (2, 0, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_signalling_nan_is_nan(dtype: Any) -> None:
    # all exponent bits, and one bit of the mantissa that is not the first
    bits = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[np.dtype(dtype).itemsize]
    values = (np.array([np.inf, 1], dtype).view(bits) + np.array([1, 0], bits)).view(dtype)
    assert Statistics.of(values) == Statistics.of(np.array([np.nan, 1], dtype))


def test_no_warning_and_no_copy_of_a_large_array() -> None:
    import tracemalloc

    values = np.random.default_rng(0).standard_normal(4_000_000)
    values[5] = np.nan
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Statistics.of(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < values.nbytes // 4


def test_results_travel_between_processes() -> None:
    found = Statistics.of(np.array([1.0, 2.0, np.nan]))
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301  # our own bytes
    with pytest.raises(ValueError, match="read-only"):
        found.histogram.counts[0] = 5


def test_a_result_says_what_it_is() -> None:
    assert repr(Histogram.of([1.0, 2.0])) == "Histogram(2 values in 65 bins from 1 to 2.01562)"
    assert repr(Histogram.of([])) == "Histogram(empty)"
    assert Statistics.of(3).histogram == Histogram.of([3])
    assert Statistics.of([]) | Statistics.of([1]) == Statistics.of([1])


@pytest.mark.parametrize("values", [[0.0, 5e-324], [5e-324, 1e-323, 1.5e-323], [-5e-324, 5e-324], [-1.7e308, 1.7e308]])
def test_the_smallest_and_the_largest_numbers_merge_like_others(values: list[float]) -> None:
    whole = Histogram.of(np.asarray(values))
    merged = functools.reduce(Histogram.merge, (Histogram.of(np.asarray([value])) for value in values))
    assert merged == whole


def test_statistics_without_finite_values_equal_themselves() -> None:
    found = Statistics.of(np.asarray([np.inf, np.nan]))
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 (our own)
    assert found != Statistics.of(np.asarray([np.inf, np.inf]))


@pytest.mark.parametrize("exponent", [-149, -140, -30, 0, 9, 60, 100])
@pytest.mark.parametrize("offset", [0.0, 1000.0, 1e7])
def test_fine_bins_hold_each_number_exactly(exponent: int, offset: float) -> None:
    random = np.random.default_rng(exponent % 97)
    array = np.ldexp(random.standard_normal(3000) + offset, exponent).astype(np.float32)
    array[:3] = -np.float32(1e-45), np.float32(1e-45), 0.0
    array = array[np.isfinite(array)]
    fine = Ranges.of(array).fine
    width = Fraction(2) ** fine.exponent
    places = Counter(math.floor(Fraction(float(number)) / width) - fine.first for number in array)
    assert {place: count for place, count in enumerate(fine.counts.tolist()) if count} == places
    assert len(fine.counts) <= FINE
