"""Error statistics agree with their formulas in numpy, and those of parts merge into those of the whole."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import functools
import gc
import math
import operator
import pickle
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from onnx_nb.analysis.compare import array_errors
from onnx_nb.analysis.compare.array_errors import CHANNELS, WORST
from onnx_nb.analysis.compare.comparison import Comparison, Point
from onnx_nb.analysis.compare.metrics import METRICS, ErrorSize, ErrorStats, lazy_errors
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.run.statistics import Histogram, LogHistogram

NUMBERS = [
    "bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4",
]  # fmt: skip
EXACT = ("count", "equal", "finite", "nan_mismatch", "inf_mismatch", "outside", "max_abs", "nonzero", "max_rel", "low",
         "high", "argmax", "signed", "absolute", "relative", "ulp", "channel_axis")  # fmt: skip
FLOATS = {"bfloat16": (7, -126), "float16": (10, -14), "float32": (23, -126)}
"""Bits of the mantissa and the least exponent."""
ROUNDED = ("mean_abs", "mean_rel", "error_norm", "reference_norm", "candidate_norm", "cosine")


def array_of(name: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    if name.startswith("complex"):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(name)
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "int" in name:
        low, high = (0 if name.startswith("u") else -8, 8)
        return random.integers(low, high, shape).astype(getattr(ml_dtypes, name, name))
    return random.standard_normal(shape).astype(getattr(ml_dtypes, name, name))


def wide(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers in a wider type than `ErrorStats` computes in."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)  # magnitudes in more digits would round in another way
    return (array.astype(np.float64) if array.dtype.isbuiltin == 2 else array).astype(np.longdouble)


@np.errstate(all="ignore")
def check(found: ErrorStats, reference: NDArray[Any], candidate: NDArray[Any]) -> None:
    """Compare each number with its formula."""
    x, y = wide(reference).ravel(), wide(candidate).ravel()
    finite = np.isfinite(x) & np.isfinite(y)
    nan = np.isnan(x) != np.isnan(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    assert found.count == x.size
    assert found.finite == finite.sum()
    assert found.equal == same.sum()
    assert found.nan_mismatch == nan.sum()
    assert found.inf_mismatch == (~finite & ~nan & ~same).sum()
    x, y = x[finite], y[finite]
    # float64 holds floats exactly, and rounds their difference once
    delta = y - x if reference.dtype.kind in "iuc" else y.astype(np.float64) - x.astype(np.float64)
    signed, delta = delta, np.abs(delta)
    if not x.size:
        assert math.isnan(found.max_abs)
        assert math.isnan(found.rmse)
        return
    assert found.max_abs == float(delta.max())
    assert found.mean_abs == pytest.approx(float(delta.mean()), rel=1e-12)
    assert found.mse == pytest.approx(float((delta**2).mean()), rel=1e-12)
    assert found.rmse == pytest.approx(float(np.sqrt((delta**2).mean())), rel=1e-12)
    some = x != 0
    if some.any():
        relative = delta[some] / np.abs(x[some])
        assert found.max_rel == pytest.approx(float(relative.max()), rel=1e-12)
        assert found.mean_rel == pytest.approx(float(relative.mean()), rel=1e-12)
    norm, other = float(np.sqrt((np.abs(x) ** 2).sum())), float(np.sqrt((np.abs(y) ** 2).sum()))
    if norm and other:
        assert found.cosine == pytest.approx(float((x * np.conj(y)).real.sum()) / norm / other, rel=1e-12, abs=1e-15)
    if norm and delta.any():
        noise = float(np.sqrt((delta**2).sum()))
        assert found.rel_l2 == pytest.approx(noise / norm, rel=1e-12)
        assert found.sqnr == pytest.approx(10 * math.log10(norm**2 / noise**2), abs=1e-9)
        if x.dtype.kind != "c" and x.max() > x.min():
            span = float(x.max() - x.min())
            assert found.psnr == pytest.approx(10 * math.log10(span**2 / float((delta**2).mean())), abs=1e-9)
    if not delta.any():
        assert found.sqnr == math.inf
    if x.dtype.kind != "c":
        assert found.signed == Histogram.of(signed.astype(np.float64))
    assert found.absolute == LogHistogram.of(delta.astype(np.float64))
    assert found.absolute.total == x.size


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_agrees_with_its_formula(name: str) -> None:
    reference, candidate = array_of(name, (4, 5, 7, 11), 1), array_of(name, (4, 5, 7, 11), 2)
    found = ErrorStats.of(reference, candidate)
    check(found, reference, candidate)
    outside = ~np.isclose(wide(candidate), wide(reference), rtol=found.rtol, atol=found.atol)
    assert found.outside == outside.sum()
    check(ErrorStats.of(reference, reference.copy()), reference, reference)


@settings(max_examples=150, deadline=None)
@given(
    npst.arrays(np.float32, npst.array_shapes(max_side=12)).flatmap(
        lambda one: st.tuples(st.just(one), npst.arrays(np.float32, one.shape))
    )
)
def test_floats_with_any_bits(pair: tuple[NDArray[Any], NDArray[Any]]) -> None:
    reference, candidate = pair
    check(ErrorStats.of(reference, candidate), reference, candidate)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_squares_stay_in_range(scale: float) -> None:
    reference, candidate = array_of("float64", (50, 70), 1) * scale, array_of("float64", (50, 70), 2) * scale
    found = ErrorStats.of(reference, candidate)
    check_at_one = ErrorStats.of(reference / scale, candidate / scale)
    for name in ("cosine", "sqnr", "psnr", "rel_l2"):
        assert found.metric(name) == pytest.approx(check_at_one.metric(name), rel=1e-9)
    assert found.rmse == pytest.approx(check_at_one.rmse * scale, rel=1e-9)


def test_a_norm_may_be_larger_than_any_number() -> None:
    found = ErrorStats.of(np.full(3, 1.7e308), np.full(3, -1.7e308))
    assert (found.error_norm, found.rmse) == (math.inf, math.inf)
    assert found.max_abs == np.finfo(np.float64).max
    assert found.cosine == pytest.approx(-1)


def test_differences_of_large_integers_are_exact() -> None:
    reference = np.array([2**62, -(2**62), 5, 2**63 - 1], np.int64)
    candidate = np.array([2**62 + 1, -(2**62) + 3, 5, -(2**63)], np.int64)
    found = ErrorStats.of(reference[:3], candidate[:3])
    assert (found.equal, found.max_abs) == (1, 3.0)
    assert found.mean_abs == pytest.approx(4 / 3)
    assert ErrorStats.of(reference, candidate).max_abs == 2.0**64
    assert ErrorStats.of(reference.view(np.uint64)[:1], candidate.view(np.uint64)[:1]).max_abs == 1


@pytest.mark.parametrize(
    ("name", "other"), [("float32", "float32"), ("float32", "float16"), ("float16", "bfloat16"), ("float64", "float32")]
)
def test_ulp_percentiles_agree_with_numpy_spacing(name: str, other: str) -> None:
    reference = array_of(name, (3000,), 1)
    noise = np.random.default_rng(2).standard_normal(3000) * 0.01 + 1
    candidate = (reference.astype(np.float64) * noise).astype(getattr(ml_dtypes, other, other))
    coarser = next(each for each in ("bfloat16", "float16", "float32") if each in (name, other))
    digits, least = FLOATS[coarser]
    values = np.abs(reference.astype(np.float64))
    spacing = 2.0 ** (np.maximum(np.floor(np.log2(values)), least) - digits)
    if coarser == "float32" and name == "float32":
        assert np.array_equal(spacing, np.spacing(np.abs(reference)).astype(np.float64))
    units = np.abs(candidate.astype(np.float64) - reference.astype(np.float64)) / spacing
    found = ErrorStats.of(reference, candidate)
    assert found.ulp == LogHistogram.of(units)
    for percent in (50, 90, 99):
        assert found.ulp_percentile(percent) == pytest.approx(np.percentile(units, percent), rel=0.1)
    assert math.isnan(ErrorStats.of(np.arange(3), np.arange(3)).ulp_percentile(50))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_argmax(axis: int) -> None:
    reference, candidate = array_of("float32", (5, 6, 7), 1), array_of("float32", (5, 6, 7), 2)
    agree = reference.argmax(axis) == candidate.argmax(axis)
    assert ErrorStats.of(reference, candidate, argmax=axis).argmax == (agree.sum(), agree.size)
    assert ErrorStats.of(reference, candidate, argmax=axis).argmax_agreement == pytest.approx(agree.mean())


@pytest.mark.parametrize("shape", [(70_000,), (3, 40_000), (300, 5, 40), (2, 3, 200, 200), (2, 5000, 9), (1, 40, 2000)])
def test_worst_elements_and_channels(shape: tuple[int, ...]) -> None:
    reference, candidate = array_of("float32", shape, 1), array_of("float32", shape, 2)
    found = ErrorStats.of(reference, candidate, feed=3)
    delta = np.abs(candidate.astype(np.float64) - reference)
    order = np.argsort(-delta, axis=None, kind="stable")[:WORST]
    assert [np.ravel_multi_index(worst.index, shape) for worst in found.worst] == order.tolist()
    for worst in found.worst:
        assert (worst.reference, worst.candidate) == (reference[worst.index], candidate[worst.index])
        assert (worst.error, worst.feed) == (delta[worst.index], 3)
    axis = 1 if len(shape) >= 4 else len(shape) - 1
    if shape[axis] <= CHANNELS:
        others = tuple(each for each in range(len(shape)) if each != axis)
        assert found.channel_axis == axis
        assert np.array_equal(found.channels, delta.max(axis=others))
    else:
        assert not found.channels.size
    assert len(found.sample) == array_errors.SAMPLE_SIZE
    assert np.array_equal(found.sample[[0, -1], 0], reference.ravel()[[0, -1]])


def test_of_equal_errors_the_first_elements_are_listed() -> None:
    found = ErrorStats.of(np.zeros(100_000, bool), np.ones(100_000, bool))
    assert [worst.index for worst in found.worst] == [(place,) for place in range(WORST)]


def test_nan_and_infinity() -> None:
    reference = np.array([np.nan, np.nan, 1, np.inf, np.inf, -np.inf, 2, 3], np.float32)
    candidate = np.array([np.nan, 1, np.nan, np.inf, -np.inf, 5, np.inf, 3.5], np.float32)
    found = ErrorStats.of(reference, candidate)
    check(found, reference, candidate)
    assert (found.nan_mismatch, found.inf_mismatch, found.mismatches, found.outside) == (2, 3, 5, 6)
    assert [worst.error for worst in found.worst] == [math.inf] * 5 + [0.5]
    assert np.isinf(found.channels).sum() == 5
    assert found.badness("max_abs") == math.inf
    assert ErrorStats.of(reference[:4], reference[:4]).is_equal


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("parts", [2, 5])
def test_parts_merge_into_the_whole(name: str, parts: int) -> None:
    reference, candidate = array_of(name, (60, 3, 4), 1), array_of(name, (60, 3, 4), 2)
    candidate[:20] = reference[:20]
    if name in ("float32", "float64"):
        reference[3, 0, 0] = reference[50, 1, 1] = np.nan
        candidate[55, 2, 2] = np.inf
    whole = ErrorStats.of(reference, candidate, argmax=-1)
    pieces = zip(np.array_split(reference, parts), np.array_split(candidate, parts), strict=True)
    merged = functools.reduce(operator.or_, [ErrorStats.of(*pair, argmax=-1) for pair in pieces])
    for field in EXACT:
        mine, yours = getattr(merged, field), getattr(whole, field)
        assert mine == yours or (mine != mine and yours != yours), field  # noqa: PLR0124
    for field in ROUNDED:
        assert getattr(merged, field) == pytest.approx(getattr(whole, field), rel=1e-12, nan_ok=True), field
    assert np.array_equal(merged.channels, whole.channels)
    assert [worst.error for worst in merged.worst] == [worst.error for worst in whole.worst]
    again = pickle.loads(pickle.dumps(merged))  # noqa: S301
    assert all(getattr(again, name) == getattr(merged, name) for name in ("signed", "absolute", "shape", "rmse"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e308), max_size=40), st.lists(st.floats(0, 1e308), max_size=40))
def test_logarithmic_histograms_merge_exactly(one: list[float], other: list[float]) -> None:
    merged = LogHistogram.of(one) | LogHistogram.of(other)
    assert merged == LogHistogram.of(one + other)
    positive = np.asarray([value for value in one + other if value > 0])
    assert merged.zeros == len(one + other) - len(positive)
    edges = merged.edges
    places = np.searchsorted(edges, positive, side="right") - 1
    assert np.array_equal(np.bincount(places, minlength=len(merged.counts)), merged.counts)


def test_arrays_that_are_not_contiguous() -> None:
    reference, candidate = array_of("float32", (6, 7, 8), 1), array_of("float32", (6, 7, 8), 2)
    found = ErrorStats.of(reference.transpose(2, 0, 1), candidate.transpose(2, 0, 1))
    assert found.worst == ErrorStats.of(reference.transpose(2, 0, 1).copy(), candidate.transpose(2, 0, 1).copy()).worst
    assert found.shape == (8, 6, 7)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (3, 1)])
def test_small_and_empty(shape: tuple[int, ...]) -> None:
    reference, candidate = array_of("float32", shape, 1), array_of("float32", shape, 2)
    reference, candidate = np.asarray(reference), np.asarray(candidate)
    found = ErrorStats.of(reference, candidate, argmax=-1)
    check(found, reference, candidate)
    assert found.shape == shape
    assert found.merge(found).count == 2 * reference.size


def same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, float):
        return isinstance(other, float) and np.float64(one).tobytes() == np.float64(other).tobytes()
    if isinstance(one, tuple):
        return repr(one) == repr(other)  # a NaN in it is as good as any other
    return bool(type(one) is type(other) and one == other)


def pairs() -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs whose errors can be computed later, and others: both must have the same results."""
    made = {
        f"{name} {shape}": (array_of(name, shape, 1), array_of(name, shape, 2))
        for name in NUMBERS
        for shape in ((2, 7, 48), (5,), ())
    }
    made = {key: (np.asarray(one), np.asarray(other)) for key, (one, other) in made.items()}
    large = array_of("float32", (3, 70, 1000), 1), array_of("float32", (3, 70, 1000), 2)
    half = large[0].copy()
    half[1:] = large[1][1:]
    broken = large[1].copy()
    broken[2, 3, 4], broken[1, 0, 0] = np.nan, np.inf
    wide, tiny = array_of("float64", (300, 200), 1) * 1e300, array_of("float64", (300, 200), 2) * 1e-300
    return made | {
        "several blocks": large,
        "blocks that are equal": (large[0], half),
        "equal": (large[0], large[0].copy()),
        "NaN": (large[0], broken),
        "the same NaN": (broken, broken.copy()),
        "float32 and float16": (large[0], large[1].astype(np.float16)),
        "float32 and float64": (large[0], large[1].astype(np.float64)),
        "longdouble": (large[0].astype(np.longdouble), large[1].astype(np.longdouble)),
        "the other end": (large[0].astype(">f4"), large[1]),
        "not contiguous": (large[0].transpose(2, 0, 1), large[1].transpose(2, 0, 1)),
        "huge": (wide, wide * 1.5),
        "huge, apart by more than there is": (np.full(3, 1.7e308), np.full(3, -1.7e308)),
        "tiny": (tiny, tiny * 0.5),
        "zeros of both signs": (np.array([0.0, -0.0, 0.0]), np.array([-0.0, 0.0, 0.0])),
        "nothing": (np.zeros((0, 3)), np.zeros((0, 3))),
    }


@pytest.mark.parametrize("kind", pairs())
def test_lazy_errors_have_the_same_bits(kind: str) -> None:
    reference, candidate = pairs()[kind]
    expected = ErrorStats.of(reference, candidate, rtol=1e-2, atol=1e-3, argmax=-1)
    found = lazy_errors(reference, candidate, rtol=1e-2, atol=1e-3, argmax=-1)
    for name in (field.name for field in dataclasses.fields(ErrorSize)):
        assert same_bits(getattr(found, name), getattr(expected, name)), name
    for name in ("mismatches", "is_equal", "rel_l2", "rmse", "sqnr", "psnr"):
        assert same_bits(getattr(found, name), getattr(expected, name)), name
    for name in (field.name for field in dataclasses.fields(ErrorStats)):
        assert same_bits(getattr(found, name), getattr(expected, name)), name
    for metric in METRICS:
        assert same_bits(found.metric(metric), expected.metric(metric)), metric
    with pytest.raises(AttributeError, match="ErrorStats has no attribute largest"):
        _ = found.largest  # type: ignore[attr-defined]


def lazy_point(reference: NDArray[Any], candidate: NDArray[Any]) -> Point:
    return Point("p", "p", "p", "name", 0, cumulative=lazy_errors(reference, candidate))


def test_the_size_of_lazy_errors_is_known_at_once_and_the_rest_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[array_errors.Pass] = []

    class Counted(array_errors.Pass):
        def __init__(self, *args: Any, **options: Any) -> None:
            passes.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(array_errors, "Pass", Counted)
    reference, candidate = array_of("float32", (2, 7, 48), 1), array_of("float32", (2, 7, 48), 2)
    point = lazy_point(reference, candidate)
    size = point.error_size()
    assert size is not None
    delta = candidate.astype(np.float64) - reference
    assert (size.count, size.equal, size.mismatches, size.is_equal) == (672, 0, 0, False)
    assert size.max_abs == np.abs(delta).max()
    assert size.rel_l2 == pytest.approx(np.linalg.norm(delta) / np.linalg.norm(reference.astype(np.float64)), rel=1e-6)
    assert size.rmse == pytest.approx(np.sqrt((delta**2).mean()), rel=1e-12)
    assert (size.low, size.high) == (reference.min(), reference.max())
    comparison = Comparison("a", "b", (point,))
    assert "1 point " in repr(comparison)
    assert comparison.first_divergent() is point
    assert comparison.ranked("cumulative") == [point]
    assert comparison.message.startswith("First differs at 'p'")
    assert not passes
    found = point.cumulative
    assert found is not None
    assert found.absolute.total == found.relative.total == 672
    assert found.mean_abs == pytest.approx(np.abs(delta).mean(), rel=1e-12)
    assert point.cumulative is found
    assert len(passes) == 1


def test_points_with_lazy_errors_are_copied_merged_and_sent_as_any_other() -> None:
    reference, candidate = array_of("float32", (2, 7, 48), 1), array_of("float32", (2, 7, 48), 2)
    expected = ErrorStats.of(reference, candidate)

    def lazy() -> Point:
        return lazy_point(reference, candidate)

    made = {
        "pickle": (pickle.loads(pickle.dumps(lazy())), expected),  # noqa: S301
        "copy": (copy.copy(lazy()), expected),
        "deepcopy": (copy.deepcopy(lazy()), expected),
        "replace": (dataclasses.replace(lazy(), name="q"), expected),
        "merge": (Comparison("a", "b", (lazy(),)).merge(Comparison("a", "b", (lazy(),)))["p"], expected | expected),
    }
    for how, (point, wanted) in made.items():
        for field in dataclasses.fields(ErrorStats):
            if field.name != "worst":
                assert same_bits(getattr(point.cumulative, field.name), getattr(wanted, field.name)), (how, field.name)
    asked = lazy()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: asked.errors(), range(64)):
            assert found.ulp == expected.ulp
    with pytest.raises(AlignmentError, match="the reference is 2×3 and the candidate is 3×2"):
        lazy_errors(np.zeros((2, 3)), np.zeros((3, 2)))


def test_lazy_errors_release_the_arrays_once_everything_is_computed() -> None:
    reference, candidate = array_of("float32", (2, 7, 48), 1), array_of("float32", (2, 7, 48), 2)
    held = weakref.ref(candidate)
    found = lazy_errors(reference, candidate)
    del candidate
    gc.collect()
    assert held() is not None
    assert found.worst
    gc.collect()
    assert held() is None


def test_strings_are_equal_or_not() -> None:
    found = ErrorStats.of(np.array([["a", "b"], ["c", "d"]], object), np.array([["a", "x"], ["c", "d"]]))
    assert (found.equal, found.mismatches, found.outside_fraction) == (3, 1, 0.25)
    assert found.worst[0].index == (0, 1)
    assert (found.worst[0].reference, found.worst[0].candidate) == ("b", "x")
    assert (found | found).mismatches == 2


def test_arrays_that_cannot_be_compared_raise_an_explanation() -> None:
    with pytest.raises(AlignmentError, match="the reference is 2×3 and the candidate is 3×2"):
        ErrorStats.of(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(AlignmentError, match="Strings can be compared with strings only"):
        ErrorStats.of(np.array(["a"]), np.zeros(1))
    with pytest.raises(AlignmentError, match="different tolerances cannot be merged"):
        ErrorStats.of([1.0], [2.0], rtol=1).merge(ErrorStats.of([1.0], [2.0]))
    with pytest.raises(AlignmentError, match="There are: max_abs"):
        ErrorStats.of([1.0], [2.0]).metric("mape")


def test_every_metric_is_worse_for_a_worse_candidate() -> None:
    reference = array_of("float32", (20, 30), 1)
    noise = np.random.default_rng(5).standard_normal(reference.shape).astype(np.float32)
    near, far = (ErrorStats.of(reference, reference + noise * scale, argmax=-1) for scale in (1e-3, 1.0))
    for name in METRICS:
        if name != "mismatches":
            assert near.badness(name) < far.badness(name), name


def test_error_statistics_are_frozen_and_have_a_short_repr() -> None:
    found = ErrorStats.of([1.0, np.nan], [1.5, 0.0])
    assert repr(found) == "ErrorStats(2 pairs, 0 equal, max |Δ| 0.5, 1 NaN on one side)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.count = 3  # type: ignore[misc]
