"""A comparison finds the first divergent point, ranks, merges, and is the same after saving and loading."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched, explained
from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.errors import AlignmentError, ModelFileError, OnnxNbError

VALUES = np.random.default_rng(0).standard_normal((4, 30)).astype(np.float32)
NOISE = np.random.default_rng(1).standard_normal((4, 30))


def errors(size: float, feed: int = 0) -> ErrorStats:
    return ErrorStats.of(VALUES.astype(np.float64), VALUES + NOISE * size, feed=feed)


def comparison(cumulative: list[float], isolated: list[float] | None = None, kinds: str = "") -> Comparison:
    points = tuple(
        Point(
            f"p{depth}",
            f"r{depth}",
            f"c{depth}",
            "name",
            depth,
            kinds[depth] if kinds else "Add",
            cumulative=errors(size),
            isolated=errors(isolated[depth]) if isolated else None,
        )
        for depth, size in enumerate(cumulative)
    )
    return Comparison("model.onnx", "model-fp16.onnx", points)


def test_the_first_divergent_point_is_where_the_error_jumps() -> None:
    c = comparison([0, 0, 1e-15, 3e-5, 4e-5, 1e-3, 2e-3])
    found = c.first_divergent()
    assert found is not None
    assert found.name == "p3"
    assert c.message.startswith("First differs at 'p3' (Add): an error of ")
    assert "e-16 before it." in c.message


def test_no_point_stands_out_where_all_is_rounding() -> None:
    c = comparison([0, 1e-16, 2e-16, 8e-16])
    assert c.first_divergent() is None
    assert c.message.startswith("No point stands out: the largest error is ")
    assert c.message.endswith("at 'p3'.")
    assert comparison([0, 0]).message == "All 2 points are equal."
    assert Comparison("a", "b").message == "No value of one side was found on the other."


def test_isolated_errors_are_ranked_against_their_kind() -> None:
    # all Softmax are inexact; the one Gemm is not worse than they are, but far worse than its like
    isolated = [1e-3, 1e-7, 1e-3, 5e-4, 1e-7, 2e-7]
    c = comparison([1e-3] * 6, isolated, "SGSGGG")
    assert c.ranked()[0].name == "p3"
    found = c.first_divergent()
    assert found is not None
    assert found.name == "p3"
    scores = c.scores("isolated")
    assert scores[3] == pytest.approx(errors(5e-4).rel_l2 * 2**23)
    assert scores[0] == pytest.approx(1)
    assert [point.name for point in c.ranked("max_abs")][:2] == ["p0", "p2"]


def test_rounding_ranks_below_a_kind_most_of_whose_points_are_wrong() -> None:
    c = comparison([0.3] * 5, [2e-7, 0.29, 0.14, 0.09, 2e-7], "APPPB")
    assert [point.name for point in c.ranked()][:3] == ["p1", "p2", "p3"]


def test_the_faulty_one_of_two_points_of_a_kind_stands_out() -> None:
    c = comparison([1e-7] * 4, [1e-7, 1e-2, 1e-7, 1e-7], "LLAB")
    found = c.first_divergent()
    assert found is not None
    assert found.name == "p1"
    assert "the next worst is " in c.message
    assert "100,000× smaller" in c.message


def test_a_kind_that_is_wrong_everywhere_stands_out_of_the_other_kinds() -> None:
    found = comparison([1e-3] * 5, [1e-16, 0.5, 1e-16, 0.6, 2e-16], "ACACA").first_divergent()
    assert found is not None
    assert found.name == "p1"
    assert comparison([1e-3] * 4, [1e-2, 2e-2, 1e-2, 2.5e-2], "ACAC").first_divergent() is None, "as quantized"
    assert comparison([1e-3] * 4, [0, 2e-12, 0, 2.5e-12], "ACAC").first_divergent() is None, "of a float32 epsilon"


def test_a_nan_on_one_side_diverges_before_all_else() -> None:
    c = comparison([1e-17, 1e-17, 0.5])
    broken = VALUES.astype(np.float64)
    broken[1, 2] = np.nan
    second = dataclasses.replace(c.points[1], cumulative=ErrorStats.of(VALUES, broken))
    c = dataclasses.replace(c, points=(c.points[0], second, c.points[2]))
    assert c.first_divergent() is second
    assert c.message == "First differs at 'p1' (Add): 1 of 120 values are NaN or infinite on one side only."
    assert c.ranked("sqnr")[0] is second


@pytest.mark.parametrize(
    ("candidate", "difference"),
    [
        (VALUES / 2, "every value is 0.5 times what it should be"),
        (VALUES * np.float32(-1.01), "every value is -1.01 times what it should be"),
        ((VALUES * 3).astype(np.float16), "every value is 3 times what it should be"),
        (VALUES + np.float32(0.5), ""),
        (VALUES[:, ::-1], ""),
        (np.where(VALUES > 0, VALUES, 0), ""),
        (VALUES / 2 + 0.05 * NOISE.astype(np.float32), ""),
    ],
)
def test_values_that_are_a_multiple_of_the_right_ones_are_said_to_be(candidate: np.ndarray, difference: str) -> None:
    exact = Point("x", "x", "x", "name", 0, cumulative=ErrorStats.of(VALUES, VALUES))
    wrong = Point("div", "div", "div", "name", 1, cumulative=ErrorStats.of(VALUES, candidate))
    found = explained(Comparison("a", "b", (exact, wrong)), lambda _first: [])
    assert found.points[1].difference == difference
    assert (f"{difference[:1].upper()}{difference[1:]}." in found.message) or not difference
    # what is known for certain is not joined by a guess
    assert explained(found, lambda _first: ["epsilon is 1"]).points[1].difference == (difference or "epsilon is 1")


def test_points_are_found_by_every_name() -> None:
    c = dataclasses.replace(comparison([0, 1]), unmatched=(Unmatched("gone", "reference", "no tensor has its values"),))
    assert c["p1"] is c["r1"] is c["c1"] is c.points[1]
    assert (list(c), len(c), "r0" in c) == (["p0", "p1"], 2, True)
    with pytest.raises(AlignmentError, match="'gone' is only in the reference: no tensor has its values"):
        c["gone"]
    with pytest.raises(AlignmentError, match="Closest names: 'p1'"):
        c["p11"]


def test_unknown_errors_and_metrics_raise_an_explanation() -> None:
    c = comparison([0, 1])
    with pytest.raises(AlignmentError, match="isolated errors are not known"):
        c.ranked("isolated")
    with pytest.raises(AlignmentError, match="cannot be ranked by 'worst'"):
        c.ranked("worst")
    with pytest.raises(OnnxNbError, match="no kind 'log'"):
        c.histogram("p0", "log")  # type: ignore[arg-type]
    with pytest.raises(AlignmentError, match="the isolated errors of 'p0' are not known"):
        c.histogram("p0", which="isolated")


def test_rows_have_every_metric() -> None:
    pd = pytest.importorskip("pandas")
    c = comparison([0, 1], [0, 2])
    frame = c.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert {*METRICS, *(f"isolated_{name}" for name in METRICS), "score", "shape"} <= set(frame.columns)
    assert frame.isolated_max_abs[1] == np.abs(VALUES + NOISE * 2 - VALUES.astype(np.float64)).max()
    assert list(frame.name) == ["p0", "p1"]
    assert frame["shape"][1] == (4, 30)
    assert "isolated_max_abs" not in comparison([0]).rows()[0]


def test_a_saved_comparison_comes_back(tmp_path: Path) -> None:
    c = comparison([0, 1e-3], [0, math.pi])
    complexes = ErrorStats.of(np.array([1 + 2j, np.inf]), np.array([1 + 3j, 2]))
    words = ErrorStats.of(np.array(["a"], object), np.array(["b"], object))
    extra = tuple(Point(f"x{at}", "x", "x", "name", 2, cumulative=each) for at, each in enumerate((complexes, words)))
    c = dataclasses.replace(c, points=c.points + extra, unmatched=(Unmatched("z", "candidate", "made by QDQ", "Cast"),))
    c.save(tmp_path / "c.npz")
    again = Comparison.load(tmp_path / "c.npz")
    assert again.unmatched == c.unmatched
    assert again.to_frame().equals(c.to_frame())
    for mine, yours in zip(c.points, again.points, strict=True):
        for one, other in ((mine.cumulative, yours.cumulative), (mine.isolated, yours.isolated)):
            assert (one is None) == (other is None)
            if one is None or other is None:
                continue
            for field in dataclasses.fields(ErrorStats):
                here, there = getattr(one, field.name), getattr(other, field.name)
                assert type(here) is type(there)
                assert repr(here) == repr(there), field.name


def test_a_file_that_is_not_a_comparison_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    with pytest.raises(ModelFileError, match="there is no file"):
        Comparison.load(path)
    path.write_bytes(b"PK nothing")
    with pytest.raises(ModelFileError, match="cannot be read as a saved comparison"):
        Comparison.load(path)
    np.savez(path, x=np.arange(3))
    with pytest.raises(ModelFileError, match="cannot be read as a saved comparison"):
        Comparison.load(path)
    np.savez(path, tree=np.array([{"a": 1}], object))
    with pytest.raises(ModelFileError, match="cannot be read as a saved comparison"):
        Comparison.load(path)
    comparison([0, 1]).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match="cannot be read as a saved comparison"):
        Comparison.load(path)


def test_comparisons_of_feeds_merge() -> None:
    merged = comparison([0, 1e-3]).merge(comparison([0, 2e-3]))
    found = merged["p1"].cumulative
    assert found is not None
    assert merged.feeds == 2
    assert found.count == 240
    assert found.worst[0].feed == 1
    assert found.max_abs == max(each.max_abs for each in (errors(1e-3), errors(2e-3)))
    other = Comparison("a", "b", (Point("q", "q", "q", "name", 0, cumulative=errors(0)),))
    with pytest.raises(AlignmentError, match="share no point"):
        merged.merge(other)


def test_layers_share_the_error_and_what_moves_data_counts_once() -> None:
    c = comparison([0, 0, 0, 0, 0], [1e-2, 1e-2, 2e-2, 1e-2, 1e-2])
    places = zip(c.points, ("a", "a", "b", "b", ""), ("Add", "Reshape", "MatMul", "Add", "Add"), strict=True)
    c = dataclasses.replace(c, points=tuple(dataclasses.replace(p, scope=s, op_type=op) for p, s, op in places))
    rows = c.layers()
    assert [(row["layer"], row["worst"], row["points"]) for row in rows] == [("b", "p2", 2), ("a", "p0", 2)]
    sizes = [point.error_size("isolated").rel_l2 for point in c.points]  # type: ignore[union-attr]
    assert [row["error"] for row in rows] == [sizes[2], sizes[0]]
    squares = [sizes[2] ** 2 + sizes[3] ** 2, sizes[0] ** 2]
    assert [row["share"] for row in rows] == pytest.approx([square / sum(squares) for square in squares])
    infinite = ErrorStats.of(VALUES, np.where(VALUES > 2, np.nan, VALUES))
    points = (dataclasses.replace(c.points[0], isolated=infinite), *c.points[1:])
    assert [row["share"] for row in dataclasses.replace(c, points=points).layers()] == [1.0, 0.0]
    assert comparison([0, 1]).layers() == []
