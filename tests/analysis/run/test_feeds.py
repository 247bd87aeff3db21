"""Feeds are read from whatever holds them, checked against the model, or made so that the model runs on them."""

from __future__ import annotations

import io
import os
import struct
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.model import saved
from onnx_nb.analysis.model.tensors import numpy_dtype
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.feeds import read_feeds, validate_feeds
from onnx_nb.analysis.run.random_feeds import random_feeds
from tests import models


def parsed(graph: str, opset: int = 20) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


MODEL = parsed(
    "g (float[batch, 3] x, int64[batch] ids, float[4, 3] table) => (float[batch, 3] y)"
    "{ row = Gather(table, ids)  y = Add(x, row) }"
)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([3, 0])
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
FEED: dict[str, Any] = {"x": X, "ids": IDS, "table": TABLE}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return list(found) == list(expected) and all(
        found[name].dtype == expected[name].dtype and np.array_equal(found[name], expected[name]) for name in expected
    )


def as_dict(_: Path) -> Any:
    return FEED


def in_order(_: Path) -> Any:
    return [X, IDS, TABLE]


def as_tuple(_: Path) -> Any:
    return X, IDS, TABLE


def npz(folder: Path) -> Any:
    np.savez(folder / "feed.npz", **FEED)
    return folder / "feed.npz"


def packed_npz_without_names(folder: Path) -> Any:
    np.savez_compressed(folder / "feed.npz", X, IDS, TABLE)
    return str(folder / "feed.npz")


def npy_by_name(folder: Path) -> Any:
    for name, array in FEED.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def npy_by_number(folder: Path) -> Any:
    for index, array in enumerate(FEED.values()):
        np.save(folder / f"input_{index}.npy", array)
    return folder


def pb_by_number(folder: Path) -> Any:
    for index, array in enumerate(FEED.values()):
        (folder / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    (folder / "output_0.pb").write_bytes(b"not read")
    return folder


def pb_by_the_name_in_it(folder: Path) -> Any:
    for index, name in enumerate(reversed(FEED)):
        (folder / f"input_{index}.pb").write_bytes(numpy_helper.from_array(FEED[name], name).SerializeToString())
    return folder


def test_data_set(folder: Path) -> Any:
    (folder / "test_data_set_0").mkdir()
    (folder / "model.onnx").write_bytes(MODEL.SerializeToString())
    pb_by_number(folder / "test_data_set_0")
    return folder


test_data_set.__test__ = False  # type: ignore[attr-defined]  # onnx calls it so


@pytest.mark.parametrize(
    "form",
    [
        as_dict,
        in_order,
        as_tuple,
        npz,
        packed_npz_without_names,
        npy_by_name,
        npy_by_number,
        pb_by_number,
        pb_by_the_name_in_it,
        test_data_set,
    ],
)
def test_one_feed_in_every_form(form: Callable[[Path], Any], tmp_path: Path) -> None:
    feed = form(tmp_path)
    (found,) = read_feeds(MODEL, feed)
    assert same(found, FEED)
    assert np.array_equal(session.run(MODEL, feed)["y"], X + TABLE[IDS])


def second() -> dict[str, Any]:
    return {"x": X[:1] + 1, "ids": IDS[:1], "table": TABLE}


def list_of_dicts(_: Path) -> Any:
    return [FEED, second()]


def tuple_of_positional(_: Path) -> Any:
    return tuple(FEED.values()), list(second().values())


def folder_of_npz(folder: Path) -> Any:
    np.savez(folder / "feed_10.npz", **second())
    np.savez(folder / "feed_9.npz", **FEED)
    return folder


def several_data_sets(folder: Path) -> Any:
    for number, feed in ((2, FEED), (10, second())):
        (folder / f"test_data_set_{number}").mkdir()
        for index, array in enumerate(feed.values()):
            path = folder / f"test_data_set_{number}" / f"input_{index}.pb"
            path.write_bytes(numpy_helper.from_array(array).SerializeToString())
    return folder


def list_of_paths(folder: Path) -> Any:
    several_data_sets(folder)
    return [str(folder / "test_data_set_2"), folder / "test_data_set_10"]


def mixed_generator(folder: Path) -> Any:
    yield FEED
    yield tuple(second().values())


@pytest.mark.parametrize(
    "form", [list_of_dicts, tuple_of_positional, folder_of_npz, several_data_sets, list_of_paths, mixed_generator]
)
def test_a_dataset_in_every_form(form: Callable[[Path], Any], tmp_path: Path) -> None:
    first, last = read_feeds(MODEL, form(tmp_path))
    assert same(first, FEED)
    assert same(last, second())
    (tmp_path / "again").mkdir()
    with pytest.raises(FeedError, match="more than one feed is given"):
        session.run(MODEL, form(tmp_path / "again"))


def test_a_generator_is_read_as_it_is_needed() -> None:
    asked: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            asked.append(len(asked))
            yield FEED

    found = read_feeds(MODEL, endless())
    next(found)
    assert asked == [0]
    next(found)
    assert asked == [0, 1]


def test_a_loader_of_torch_batches() -> None:
    torch = pytest.importorskip("torch")
    one = parsed("g (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X)), batch_size=1)
    assert [found["x"].tolist() for found in read_feeds(one, loader)] == [[row] for row in X.tolist()]

    class Rows:  # as a torch Dataset: it has no __iter__
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return {"x": torch.from_numpy(X[index : index + 1])}

    assert [found["x"].tolist() for found in read_feeds(one, Rows())] == [[row] for row in X.tolist()]


@pytest.mark.parametrize(
    "name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int64", "bool"]
)
def test_torch_tensors_of_every_type(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    values = np.array([0, 1, 3]).astype(dtype)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(dtype), ["n"])],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(dtype), ["n"])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    tensor = torch.tensor([0, 1, 3]).to(getattr(torch, name))
    if tensor.is_floating_point():
        tensor.requires_grad_()
    for feed in (tensor, {"x": tensor}, [tensor]):
        (found,) = read_feeds(proto, feed)
        assert found["x"].dtype == dtype
        assert found["x"].tobytes() == values.tobytes()
        assert session.run(proto, feed)["y"].tobytes() == values.tobytes()


def test_torch_tensors_that_numpy_would_not_take_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    proto = parsed("g (complex64[n] x, float[n] r) => (complex64[n] y, float[n] s) { y = Identity(x)  s = Neg(r) }")
    values = torch.tensor([1 + 2j, 3 - 4j])
    found = validate_feeds(proto, {"x": values.conj(), "r": values.conj().imag})
    assert found["x"].tolist() == [1 - 2j, 3 + 4j]
    assert found["r"].tolist() == [-2, 4]


def test_torch_tensors_without_values_are_refused() -> None:
    torch = pytest.importorskip("torch")
    one = parsed("g (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }")
    with pytest.raises(FeedError, match="input 'x' is given a torch tensor that has no values for numpy"):
        validate_feeds(one, {"x": torch.empty((1, 3), device="meta")})
    assert validate_feeds(one, {"x": torch.eye(3).to_sparse()})["x"].tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": X}, r"g has no input 'y'\. Its inputs: 'x', 'ids', 'table'\."),
        ({"idx": X}, r"g has no input 'idx'\. Its inputs: 'ids'"),
        (
            {"x": X.astype(np.float64)},
            r"input 'x' takes float32 \[batch, 3\], and is given float64 \[2, 3\]\. .*'float32'",
        ),
        (
            {"ids": IDS.astype(np.int32)},
            r"takes int64 \[batch\], and is given int32 \[2\]\. Use array.astype\('int64'\)",
        ),
        ({"x": X[0]}, r"given float32 \[3\]\. The first axis is missing: use array\[None\]\."),
        ({"x": X[None]}, r"given float32 \[1, 2, 3\]\. There is one axis too many: use array\[0\]\."),
        ({"x": X[:, :2]}, r"takes float32 \[batch, 3\], and is given float32 \[2, 2\]"),
        ({"table": TABLE.T}, r"takes float32 \[4, 3\], and is given float32 \[3, 4\]"),
        ({"x": None}, r"given a NoneType, not an array"),
        ({"x": [1.0]}, r"given a list, not an array\. Use numpy.asarray\(…, dtype='float32'\)"),
        ({"x": np.array([["a", "b", "c"]])}, r"is given str"),
    ],
)
def test_what_does_not_fit_is_told(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(FeedError, match=message):
        validate_feeds(MODEL, {**FEED, **changed})


def test_other_wrong_feeds_are_told() -> None:
    with pytest.raises(FeedError, match=r"g also needs 'ids' \(int64 \[batch\]\), 'table' \(float32 \[4, 3\]\)"):
        validate_feeds(MODEL, {"x": X})
    with pytest.raises(FeedError, match="g has 3 inputs, and 4 arrays are given"):
        next(read_feeds(MODEL, [X, IDS, TABLE, X]))
    with pytest.raises(FeedError, match="an int is given"):
        next(read_feeds(MODEL, 3))
    picture = parsed("g (float[n, 3, 8, 9] x) => (float[n, 3, 8, 9] y) { y = Neg(x) }")
    with pytest.raises(FeedError, match=r"The channels come first: use array\.transpose"):
        validate_feeds(picture, {"x": np.zeros((1, 8, 9, 3), np.float32)})
    small = parsed("g (bfloat16[n] x) => (bfloat16[n] y) { y = Identity(x) }")
    with pytest.raises(FeedError, match=r"Use array.astype\(ml_dtypes.bfloat16\)"):
        validate_feeds(small, {"x": X[0]})


def test_messages_stay_readable() -> None:
    names = [f"{'x' * 3000}{index}" for index in range(500)]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n" * 3000, *[1] * 40]) for name in names]
    proto = helper.make_model(helper.make_graph([], "g", kinds, []))
    for feed in ({}, {"y": X}, {names[0]: X}, [X] * 501, 5):
        with pytest.raises(FeedError) as error:
            next(read_feeds(proto, feed))
        assert len(str(error.value)) < 4000
    with pytest.raises(FeedError, match=r"\(492 more\)"):
        validate_feeds(proto, {})
    with pytest.raises(FeedError, match=r"\(493 more\)"):
        random_feeds(proto, shapes={"m": 3})


def test_what_need_not_be_given() -> None:
    with_default = parsed("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Mul(x, w) }")
    x = np.array([3, 4], np.float32)
    assert session.run(with_default, [x])["y"].tolist() == [3, 8]
    assert session.run(with_default, {"w": x, "x": x})["y"].tolist() == [9, 16]
    optional = parsed("g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }")
    assert not session.run(optional, {})["y"]
    assert session.run(optional, {"x": x})["y"]


def test_what_is_the_same_in_other_clothes_is_taken() -> None:
    swapped = validate_feeds(MODEL, {**FEED, "x": X.astype(">f4")})["x"]
    assert swapped.dtype == np.float32
    assert np.array_equal(swapped, X)
    strings = parsed("g (string[n] x) => (string[n] y) { y = Identity(x) }")
    for values in (np.array(["a", "é"]), np.array(["a", "é"], object), np.array([b"a", "é".encode()])):
        assert session.run(strings, [values])["y"].tolist() == ["a", "é"]
    with pytest.raises(FeedError, match="None is in it, which is not a str"):
        validate_feeds(strings, {"x": np.array(["a", None], object)})
    sequence = parsed("g (seq(float[n]) x) => (int64 n) { n = SequenceLength(x) }")
    assert session.run(sequence, {"x": [X[0], X[0, :1]]})["n"] == 2
    assert session.run(sequence, [[X[0]]])["n"] == 1
    with pytest.raises(FeedError, match=r"element 1 of input 'x' takes float32 \[n\], and is given int64"):
        validate_feeds(sequence, {"x": [X[0], IDS]})
    with pytest.raises(FeedError, match=r"takes seq\(float32 \[n\]\), and is given an ndarray\. Give a list"):
        validate_feeds(sequence, {"x": X[0]})


BAD_FILES = (
    *("missing.npz", "cut.npz", "empty.npz", "pickle.npz", "cut.npy", "head.npy", "text.npy", "pickle.npy", "bomb.npy"),
    *("text.pb", "short.pb", "external.pb", "negative.pb"),
)


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("unpickled",))

    whole = npz(folder).read_bytes()
    np.save(folder / "whole.npy", X)
    array = (folder / "whole.npy").read_bytes()
    np.save(folder / "pickle.npy", np.array([Evil()], object), allow_pickle=True)
    np.savez(folder / "pickle.npz", x=np.array([Evil()], object))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 40},), }}\n".encode()
    contents = {
        "missing.npz": (None, "there is no file"),
        "cut.npz": (whole[: len(whole) // 2], "cannot be read as a .npz file"),
        "empty.npz": (b"", "cannot be read as a .npz file"),
        "pickle.npz": (None, "holds pickled objects"),
        "cut.npy": (array[:-4], "cannot be read as a .npy file"),
        "head.npy": (array[:20], "cannot be read as a .npy file"),
        "text.npy": (b"1 2 3", "cannot be read as a .npy file"),
        "pickle.npy": (None, "holds pickled objects"),
        "bomb.npy": (b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header, "4398.0 GB are announced"),
        "text.pb": (b"hello", "cannot be read as a serialized"),
        "short.pb": (TensorProto(dims=[3], data_type=1, raw_data=b"1234").SerializeToString(), "has 4 bytes"),
        "external.pb": (
            TensorProto(dims=[1], data_type=1, data_location=TensorProto.EXTERNAL).SerializeToString(),
            "refers to another file",
        ),
        "negative.pb": (TensorProto(dims=[-3], data_type=1).SerializeToString(), "negative dimension"),
    }
    for name, (content, _) in contents.items():
        if content is not None:
            (folder / name).write_bytes(content)
    return {name: (folder / name, message) for name, (_, message) in contents.items()}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_cannot_be_trusted(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, message = bad_files(tmp_path)[name]
    one = parsed("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    with pytest.raises(FeedError) as error:
        next(read_feeds(one, path))
    assert name in str(error.value)
    assert message in str(error.value)
    assert capsys.readouterr().out == ""


def test_what_a_file_is_packed_of_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what no input needs; zeros are packed a thousand times, and what computes values never a hundred times."""
    model = parsed("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(9, np.float32), unused=np.zeros(100_000, np.float32))
    with pytest.raises(FeedError, match="has no input 'unused'"):
        next(read_feeds(model, tmp_path / "x.npz"))
    monkeypatch.setattr(saved, "_LEAST", 100_000)
    with pytest.raises(FeedError, match=r"x.npz' cannot be read as a .npz file: 400.3 kB are packed into \d+ B of it"):
        next(read_feeds(model, tmp_path / "x.npz"))


def test_paths_that_hold_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_bytes(b"")
    with pytest.raises(FeedError, match=r"notes.md' is not a known kind of feed file\. Give a .npz"):
        next(read_feeds(MODEL, tmp_path / "notes.md"))
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(FeedError, match="is not an ordinary file"):
        next(read_feeds(MODEL, tmp_path / "pipe.npz"))
    (tmp_path / "feeds.npz").write_bytes(b"")
    with pytest.raises(FeedError, match=r"there is no file '.*feed.npz'\. Closest names: 'feeds.npz'"):
        next(read_feeds(MODEL, str(tmp_path / "feed.npz")))
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(FeedError, match="cannot be read as a file"):
            next(read_feeds(MODEL, name))


@pytest.mark.parametrize("name", ["x.npy", "input_0.pb", "x.pb"])
def test_a_folder_of_feeds_holds_no_fifo_or_device(name: str, tmp_path: Path) -> None:
    model = parsed("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    os.mkfifo(tmp_path / name)
    with pytest.raises(FeedError, match=rf"{name}' cannot be read .* is not an ordinary file"):
        next(read_feeds(model, tmp_path))
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(FeedError, match=rf"{name}' cannot be read .* is not an ordinary file"):
        next(read_feeds(model, tmp_path))


def test_folders_that_hold_no_feed(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="holds no feed"):
        next(read_feeds(MODEL, tmp_path))
    np.save(tmp_path / "something.npy", X)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(FeedError, match=r"which input '.*something.npy' belongs. Name it after one of 'x', 'ids'"):
        next(read_feeds(MODEL, tmp_path))
    (tmp_path / "something.npy").unlink()
    with pytest.raises(FeedError, match="g also needs 'ids'"):
        next(read_feeds(MODEL, tmp_path))


def test_the_name_of_a_file_counts_before_that_in_it(tmp_path: Path) -> None:
    for name, array in FEED.items():
        (tmp_path / f"{name}.pb").write_bytes(numpy_helper.from_array(array, "x").SerializeToString())
    assert same(next(read_feeds(MODEL, tmp_path)), FEED)


def test_files_of_types_that_numpy_does_not_know(tmp_path: Path) -> None:
    small = parsed("g (bfloat16[n] x) => (bfloat16[n] y) { y = Identity(x) }")
    values = np.array([1.5, -2]).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", x=values)
    for name in ("x.npy", "x.npz"):
        (found,) = read_feeds(small, tmp_path / name)
        assert found["x"].dtype == ml_dtypes.bfloat16
        assert found["x"].tolist() == [1.5, -2]


def test_sequences_and_optionals_from_files(tmp_path: Path) -> None:
    sequence = parsed("g (seq(float[n]) x) => (int64 n) { n = SequenceLength(x) }")
    arrays = [X[0], X[1, :2]]
    (tmp_path / "input_0.pb").write_bytes(numpy_helper.from_list(arrays).SerializeToString())
    (found,) = read_feeds(sequence, tmp_path)
    assert [array.tolist() for array in found["x"]] == [array.tolist() for array in arrays]
    optional = parsed("g (optional(float[3]) x) => (bool y) { y = OptionalHasElement(x) }")
    (tmp_path / "input_0.pb").write_bytes(numpy_helper.from_optional(X[0]).SerializeToString())
    (found,) = read_feeds(optional, tmp_path)
    assert found["x"].tolist() == X[0].tolist()
    (tmp_path / "input_0.pb").write_bytes(onnx.OptionalProto().SerializeToString())
    assert next(read_feeds(optional, tmp_path)) == {"x": None}


def test_random_feeds_are_reproducible() -> None:
    first, again, other = random_feeds(MODEL), random_feeds(MODEL, 0), random_feeds(MODEL, 1)
    assert same(first, again)
    assert not np.array_equal(first["x"], other["x"])
    assert same(next(read_feeds(MODEL, None)), first)


def test_random_words_that_a_cast_reads_are_numbers() -> None:
    model = parsed("g (string[n] x) => (float[n] y) { a = Identity(x)  y = Cast<to = 1>(a) }")
    for seed in range(5):
        found = session.run(model, random_feeds(model, seed))["y"]
        assert np.isfinite(found).all()


def test_random_feeds_have_the_shapes_asked_for() -> None:
    assert random_feeds(MODEL, shapes={"batch": 5})["ids"].shape == (5,)
    assert random_feeds(MODEL, shapes={"ids": (6,)})["x"].shape == (6, 3)
    found = random_feeds(MODEL)
    assert found["x"].shape[0] == found["ids"].shape[0]
    for shapes, message in (
        ({"batc": 3}, r"neither an input nor a dimension 'batc'\. It has 'batch'"),
        ({"x": (3, 4)}, r"shapes\['x'\] is \(3, 4\), and the input takes \[batch, 3\]"),
        ({"x": 3}, r"shapes\['x'\] is 3, and the input takes"),
        ({"batch": -1}, "sizes are whole numbers from 0"),
        ({"batch": 1.5}, "sizes are whole numbers from 0"),
        ({"x": (2, 3), "batch": 3}, "dimension 'batch' is given sizes 2 and 3"),
    ):
        with pytest.raises(FeedError, match=message):
            random_feeds(MODEL, shapes=shapes)  # type: ignore[arg-type]


def test_dimensions_named_by_formulas() -> None:
    cached = parsed(
        "g (float[batch, 2, past, 4] cache, int64[batch, n] ids, int64[batch, m] mask) => (float[b, 2, p, 4] y)"
        "{ y = Identity(cache) }"
    )
    for formula, size in (("past + n", 9), ("2*n - 1", 7), ("past//2", 2), ("past.x", 8), ("n**9", 8)):
        cached.graph.input[2].type.tensor_type.shape.dim[1].dim_param = formula
        assert random_feeds(cached, shapes={"past": 5, "n": 4})["mask"].shape == (1, size)
    names = ("past_sequence_length", "sequence_length", "total_sequence_length")
    for value, axis, name in zip(cached.graph.input, (2, 1, 1), names, strict=True):
        value.type.tensor_type.shape.dim[axis].dim_param = name
    found = random_feeds(cached)
    assert found["mask"].shape[1] == found["cache"].shape[2] + found["ids"].shape[1]
    assert (found["mask"] == 1).all()


@pytest.mark.parametrize(
    ("shape", "body", "weight", "expected"),
    [
        ("n, c, h, w", "y = Conv(x, w)", (5, 6, 3, 3), (1, 6, 64, 64)),
        ("n, c, h, w", "y = Conv<group=2>(x, w)", (4, 3, 3, 3), (1, 6, 64, 64)),
        ("n, c, h, w", "y = ConvTranspose(x, w)", (6, 2, 3, 3), (1, 6, 64, 64)),
        ("n, ?, ?", "a = Relu(x)  y = Conv(a, w)", (5, 6, 3), (1, 6, 64)),
        ("n, s, d", "y = MatMul(x, w)", (7, 3), (1, 8, 7)),
        ("d", "y = MatMul(x, w)", (7, 3), (7,)),
        ("n, d", "y = Gemm<transB=1>(x, w)", (3, 7), (1, 7)),
        ("d, n", "y = Gemm<transA=1>(x, w)", (7, 3), (7, 8)),
        ("n, s, ?", "y = LayerNormalization(x, w)", (7,), (1, 8, 7)),
        ("s, n, ?", "y = RNN<hidden_size=2>(x, w, r)", (1, 2, 7), (1, 8, 7)),
    ],
)
def test_sizes_fit_the_weights(shape: str, body: str, weight: tuple[int, ...], expected: tuple[int, ...]) -> None:
    free = [None if dim == "?" else dim for dim in shape.split(", ")]
    proto = parsed(f"g (float[n] x) => (y) {{ {body} }}")
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, free))
    proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    random = np.random.default_rng(0)
    proto.graph.initializer.append(numpy_helper.from_array(random.standard_normal(weight).astype(np.float32), "w"))
    if "RNN" in body:
        proto.graph.output.add(name="h")
        proto.graph.node[-1].output.append("h")
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 2, 2), np.float32), "r"))
    found = random_feeds(proto)
    assert found["x"].shape == expected
    session.run(proto, found)


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Gather(table, ids) }",
        "{ a = Cast<to=6>(ids)  y = Gather(table, a) }",
        "{ one = Constant<value_ints=[-1]>()  a = Reshape(ids, one)  y = Gather(table, a) }",
        "{ zero = Constant<value_ints=[0]>()  a = Unsqueeze(ids, zero)  b = Squeeze(a, zero)  y = Gather(table, b) }",
        # as the position embeddings of OPT and RoBERTa
        "{ two = Constant<value=int64[1] {2}>()  a = Add(ids, two)  y = Gather(table, a) }",
        (
            "{ yes = Constant<value=bool[1] {1}>()  y = If<then_branch=t() => (z) { z = Gather(table, ids) },"
            " else_branch=e() => (w) { w = Gather(table, ids) }>(yes) }"
        ),
        "{ zero = Sub(ids, ids)  some = Equal(zero, ids)  a = Where(some, zero, ids)  y = Gather(table, a) }",
        (
            "{ n = Constant<value_int=3>()  yes = Constant<value=bool {1}>()  zero = Constant<value_ints=[0]>()"
            "  a, r = Loop<body=b(int64 i, bool c, int64[n] j) => (bool d, int64[n] k, float[n, 2] z)"
            "  { d = Identity(c)  k = Identity(j)  z = Gather(table, j) }>(n, yes, ids)"
            "  y = ReduceSum<keepdims=0>(r, zero) }"
        ),
        "{ a = Identity(ids)  y = GatherElements(table, a) }",
    ],
)
def test_indices_are_within_what_they_index(body: str) -> None:
    rank = 2 if "GatherElements" in body else 1
    proto = parsed(f"g (int64[{'n, m' if rank == 2 else 'n'}] ids, float[5, 2] table) => (float[p, q] y) {body}")
    seen = Counter[int]()
    for seed in range(30):
        shapes = {"n": 5, "m": 2} if rank == 2 else {"n": 9}
        found = random_feeds(proto, seed, shapes)
        session.run(proto, found)
        seen.update(found["ids"].reshape(-1).tolist())
    assert set(seen) == set(range(3 if "two" in body else 5))


def test_indices_of_operators_of_other_domains() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "ai.onnx.ml": 3, "onnx_nb": 1]>
    g (int64[n] at, float[1, 5] data) => (float[1, n] y)
    { i = onnx_nb.Mark<name="here">(at)  y = ai.onnx.ml.ArrayFeatureExtractor(data, i) }""")
    found = random_feeds(proto, shapes={"n": 50})
    assert set(found["at"].tolist()) == set(range(5))
    session.run(proto, found)


def test_recursive_functions_have_feeds_and_do_not_run() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "own": 1]>
    g (int64[2] x) => (int64[2] y) { y = own.F(x) }
    <domain: "own", opset_import: ["": 20, "own": 1]> F (a) => (b) { c = own.F(a)  b = Neg(c) }""")
    assert random_feeds(proto)["x"].shape == (2,)
    with pytest.raises(OnnxNbError, match="function 'F' of g calls itself"):
        session.run(proto, None)


def test_indices_inside_functions_and_loops() -> None:
    nested = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "own": 1]>
    g (int64[n] ids, float[5, 2] table) => (float[p, q] y) { y = own.Look(table, ids) }
    <domain: "own", opset_import: ["": 20, "own": 1]> Look (data, at) => (out)
    { i = Cast<to=6>(at)  out = own.In(data, i) }
    <domain: "own", opset_import: ["": 20]> In (data, at) => (out) { out = Gather(data, at) }""")
    found = random_feeds(nested, shapes={"n": 50})
    assert set(found["ids"].tolist()) == set(range(5))
    session.run(nested, found)
    scanned = parsed(
        "g (int64[n] ids, float[5, 2] table) => (float[n, 2] y)"
        "{ y = Scan<num_scan_inputs=1, body=b(int64 i) => (float[2] r) { r = Gather(table, i) }>(ids) }"
    )
    assert set(random_feeds(scanned, shapes={"n": 50})["ids"].tolist()) == set(range(5))


@pytest.mark.parametrize("data_type", sorted(set(TensorProto.DataType.values()) - {0}))
def test_random_values_of_every_type(data_type: int) -> None:
    dtype = numpy_dtype(data_type)
    assert dtype is not None
    graph = helper.make_graph([], "g", [helper.make_tensor_value_info("x", data_type, ["n"])], [])
    found = random_feeds(helper.make_model(graph), shapes={"n": 40})["x"]
    assert (found.dtype, found.shape) == (dtype, (40,))
    if dtype.kind in "iu":
        assert 1 <= found.min() < found.max() <= 7
    elif dtype == np.float32:
        assert abs(found.mean()) < 1
        assert 0.5 < found.std() < 2
    assert len(set(map(str, found.tolist()))) > 1 or dtype.name == "int2"  # which has only one number above 0


def test_random_sequences_and_what_is_not_made() -> None:
    sequence = parsed("g (seq(float[n]) x, optional(int64[2]) o) => (int64 n) { n = SequenceLength(x) }")
    found = random_feeds(sequence)
    assert [array.dtype for array in found["x"]] == [np.float32] * 2
    assert found["o"].shape == (2,)
    assert session.run(sequence, found)["n"] == 2
    kind = onnx.TypeProto()
    kind.map_type.key_type = TensorProto.INT64
    kind.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    mapped = helper.make_model(helper.make_graph([], "g", [helper.make_value_info("x", kind)], []))
    with pytest.raises(FeedError, match=r"no random values are made for input 'x', which is map\(int64, float32\)"):
        random_feeds(mapped)


@pytest.mark.parametrize("name", models.LIGHT)
def test_light_models_run_on_random_feeds(name: str) -> None:
    path = models.light(name)
    assert all(np.isfinite(value).all() for value in session.run(path, None).values())


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("name", models.EXPORTED)
def test_exported_models_run_on_random_feeds(name: str, dynamo: bool) -> None:
    path = models.exported(name, dynamo=dynamo)
    found = session.run(path, random_feeds(path))
    assert all(np.isfinite(value).all() for value in found.values())


@pytest.mark.parametrize("make", [models.control_flow, models.functions, models.one_node, lambda: models.chain(1000)])
def test_made_models_run_on_random_feeds(make: Callable[[], Path]) -> None:
    session.run(make(), random_feeds(make()))


def packed(method: int) -> bytes:
    array = io.BytesIO()
    np.save(array, np.arange(50, dtype=np.float32))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("x.npy", array.getvalue())
    return made.getvalue()


WHOLE = [
    ("x.npz", packed(zipfile.ZIP_STORED)),
    ("x.npz", packed(zipfile.ZIP_DEFLATED)),
    ("x.npz", packed(zipfile.ZIP_BZIP2)),
    ("x.npz", packed(zipfile.ZIP_LZMA)),
    ("x.npy", packed(zipfile.ZIP_STORED)[35:300]),
    ("x.pb", numpy_helper.from_array(X, "x").SerializeToString()),
    ("x.pb", b""),
]


@settings(max_examples=500)
@given(st.data())
def test_damaged_files_are_told_and_no_crash(data: st.DataObject) -> None:
    name, whole = data.draw(st.sampled_from(WHOLE))
    damaged = bytearray(whole)
    places = st.integers(0, max(len(whole) - 1, 0))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        damaged[place : place + 1] = bytes([value])
    del damaged[data.draw(st.integers(0, len(damaged))) if data.draw(st.booleans()) else len(damaged) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(damaged)
        one = parsed("g (float[n] x) => (float[n] y) { y = Neg(x) }")
        try:
            found = list(read_feeds(one, path))
        except FeedError as error:
            # of the array in it, where the file itself is whole
            assert name in str(error)  # noqa: PT017  # damage may also leave another valid array
        else:
            assert found[0]["x"].dtype == np.float32


def test_members_of_an_archive_that_lie_about_their_size(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    with pytest.raises(FeedError, match=r"8796\.1 GB are announced"):
        next(read_feeds(MODEL, tmp_path / "x.npz"))
