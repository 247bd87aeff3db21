"""Arrays that another runtime computed, as a side of a comparison."""

from __future__ import annotations

import concurrent.futures
import warnings
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.errors import AlignmentError, FeedError

MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y) { a = Mul(x, x)  b = Tanh(a)  y = Neg(b) }""")
for node in MODEL.graph.node:  # the parser takes no names with slashes
    for names in (node.input, node.output):
        names[:] = [{"a": "/a/Mul_output_0", "b": "/b/Tanh"}.get(name, name) for name in names]
X = np.linspace(-1, 1, 18, dtype=np.float32).reshape(1, 2, 3, 3)


def right(x: np.ndarray = X) -> dict[str, np.ndarray]:
    """All values by onnx's own evaluator."""
    found: Any = ReferenceEvaluator(MODEL).run(None, {"x": x}, intermediate=True)
    return {name: np.asarray(array) for name, array in found.items() if name}


def written(how: str, folder: Path, arrays: dict[str, np.ndarray]) -> Any:
    if how == "dict":
        return arrays
    if how == "npz":
        renamed: dict[str, Any] = {name.replace("/", "."): array for name, array in arrays.items()}
        np.savez(folder / "dump.npz", **renamed)
        return folder / "dump.npz"
    for number, (name, array) in enumerate(arrays.items()):
        if how == "npy":
            np.save(folder / f"{name.replace('/', '_')}.npy", array)
        else:
            tensor = onnx.numpy_helper.from_array(array, name)
            (folder / f"output_{number}.pb").write_bytes(tensor.SerializeToString())
    return folder


@pytest.mark.parametrize("how", ["dict", "npz", "npy", "pb"])
def test_arrays_are_a_side_in_any_form(how: str, tmp_path: Path) -> None:
    wrong = right() | {"/b/Tanh": right()["/b/Tanh"] + 0.25}
    c = compare(MODEL, written(how, tmp_path, wrong), {"x": X})
    assert [point.name for point in c.points] == ["x", "/a/Mul_output_0", "/b/Tanh", "y"]
    assert not c.has_isolated  # arrays cannot run on other values
    first = c.first_divergent()
    assert first is not None
    assert first.name == "/b/Tanh"
    assert c["/b/Tanh"].errors().max_abs == pytest.approx(0.25)
    turned = compare(written(how, tmp_path, wrong), MODEL)  # whose input the dump has
    assert turned.has_isolated
    assert turned["y"].errors("cumulative").max_abs < 1e-6
    for name in ("/b/Tanh", "y"):  # what the model makes of the dump's value is not what the dump has
        assert turned[name].errors("isolated").max_abs == pytest.approx(0.25)
    assert turned["/a/Mul_output_0"].errors("isolated").max_abs < 1e-6


def test_many_feeds_and_an_executor() -> None:
    feeds = [{"x": X * factor} for factor in (1, 2, 3)]
    dump = [right(feed["x"]) for feed in feeds]
    with concurrent.futures.ProcessPoolExecutor(1) as executor:
        spread = compare(MODEL, dump, feeds, executor=executor)
    assert spread.feeds == 3
    assert str(spread.rows()) == str(compare(MODEL, dump, feeds).rows())
    assert max(spread.scores("max_abs")) < 1e-6


def test_what_differs_or_is_missing_is_named() -> None:
    c = compare(MODEL, right(), {"x": X + 1})
    first = c.first_divergent()
    assert first is not None
    assert first.name == "x"  # the dump is of another feed
    assert "The sides were not fed the same: in the dump, the input 'x' (by " in c.message
    wrong = right() | {"/a/Mul_output_0": X[..., :2], "engine_only": X, "y": right()["y"].astype(np.int8)}
    c = compare(MODEL, wrong, {"x": X})
    assert {each.name: each.reason for each in c.unmatched if each.side == "candidate"} == {
        "/a/Mul_output_0": "the shape is 1×2×3×3 in the reference and 1×2×3×2 in the candidate",
        "engine_only": "g has no tensor of that name",
        "y": "it is int8, and float32 in g",
    }
    assert {each.name for each in c.unmatched if each.side == "reference"} == {"/a/Mul_output_0", "y"}
    assert "In the dump, 3 of 5 arrays are not compared" in c.message
    nan = compare(MODEL, right() | {"y": np.full_like(X, np.nan)}, {"x": X})
    assert "NaN or infinite on one side only" in nan.message
    assert compare(MODEL, right(), {"x": X}).notes == ()
    for odd in (X.astype(np.int32), X[..., :2]):
        unknown = compare(MODEL, right() | {"engine_only": X, "x": odd}, {"x": X})
        assert (
            "Whether the sides were fed the same is not known: an input in the dump is not compared." in unknown.message
        )
        assert "In the dump, 2 of 5 arrays are not compared: 'x' (" in unknown.message


def last(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.moveaxis(array, 1, -1) for name, array in arrays.items()}


def test_channels_last_are_turned_and_said() -> None:
    for c in (compare(MODEL, last(right()), {"x": X}), compare(last(right()), MODEL, {"x": X})):
        assert max(c.scores("max_abs")) < 1e-6
        assert "In the dump, all 4 arrays, such as 'x': channels last, turned to compare." in c.message
    # as many channels as rows: the other arrays decide
    square = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 2, 3, 3] x) => (float[1, 3, 3, 3] y) <float[3, 2, 1, 1] w = {1, 2, 3, 4, 5, 6}> { y = Conv(x, w) }""")
    made = dict(zip("xy", (X, *ReferenceEvaluator(square).run(None, {"x": X})), strict=True))
    assert compare(square, last(made), {"x": X})["y"].errors().max_abs < 1e-5
    assert compare(square, made, {"x": X})["y"].errors().max_abs < 1e-5
    # by itself it is compared as it is
    assert compare(square, {"y": last(made)["y"]}, {"x": X})["y"].errors().max_abs > 1


def test_other_types_are_said_and_bfloat16_survives_a_file(tmp_path: Path) -> None:
    half = {name: array.astype(np.float16) for name, array in right().items()}
    c = compare(MODEL, half, {"x": X})
    assert c.notes == ("In the dump, all 4 arrays, such as 'x': float16 instead of float32.",)
    np.savez(tmp_path / "b.npz", y=right()["y"].astype(ml_dtypes.bfloat16))
    c = compare(MODEL, tmp_path / "b.npz", {"x": X})
    assert c.notes == ("In b.npz, 'y': bfloat16 instead of float32.",)
    assert c["y"].errors().rel_l2 < 0.01


def test_names_of_nodes_and_an_iterator_of_dicts() -> None:
    named = onnx.ModelProto()
    named.CopyFrom(MODEL)
    for node, name in zip(named.graph.node, ("first", "second", "third"), strict=True):
        node.name = name
    feeds = [{"x": X * factor} for factor in (1, 2)]
    dumps = ({"first": feed["x"] * feed["x"], "y": right(feed["x"])["y"]} for feed in feeds)
    c = compare(named, dumps, feeds)
    assert ([point.name for point in c.points], c.feeds) == (["/a/Mul_output_0", "y"], 2)
    assert max(c.scores("max_abs")) < 1e-6


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlignmentError, match="no array of the dump has the name of a tensor"):
        compare(MODEL, {"other": X}, {"x": X})
    for array, why in (
        (X.astype(complex), "of 'y', it is complex128"),
        (X[0, 0, 0], "1×2×3×3 in the reference and 3 in"),
    ):
        with pytest.raises(AlignmentError, match=f"g and the dump have no value in common.*{why}"):
            compare(MODEL, {"y": array}, {"x": X})
    with pytest.raises(AlignmentError, match="both sides are arrays"):
        compare(right(), right())
    with pytest.raises(AlignmentError, match="has no arrays"):
        compare(MODEL, {})
    with pytest.raises(AlignmentError, match="not an array"):
        compare(MODEL, {"y": "text"})  # type: ignore[arg-type]
    with pytest.raises(AlignmentError, match="are both '/a/Mul_output_0' of the model"):
        compare(MODEL, right() | {"a.Mul.output.0": X}, {"x": X})
    with pytest.raises(AlignmentError, match="of the dump is missing in feed 1"):
        compare(MODEL, [right(), {"x": X}], [{"x": X}] * 2)
    with pytest.raises(FeedError, match="the dump has no values of input 'x'"):
        compare(MODEL, {"y": right()["y"]})
    with pytest.raises(FeedError, match="is of 1 feed"):
        compare(MODEL, right(), [{"x": X}] * 2)
    with pytest.raises(FeedError, match=r"there is no file"):
        compare(MODEL, tmp_path / "missing.npz")
    with pytest.raises(AlignmentError, match="is int, not a dict of arrays"):
        compare(MODEL, iter([1]))  # type: ignore[arg-type]
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, on a name that is there
        np.save(tmp_path / "y.npy", X)
        archive.write(tmp_path / "y.npy", "y.npy")
        archive.write(tmp_path / "y.npy", "y.npy")
    with pytest.raises(FeedError, match="has two arrays called 'y'"):
        compare(MODEL, tmp_path / "twice.npz", {"x": X})
