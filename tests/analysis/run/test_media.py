"""Pictures, sounds and texts become what an input takes; a bad file is named, and none is decoded beyond a bound."""

from __future__ import annotations

import os
import struct
import wave
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.run import feeds as feeding
from onnx_nb.analysis.run.feeds import read_feeds

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def model_of(dims: list[Any], dtype: int = TensorProto.FLOAT) -> Any:
    x, y = helper.make_tensor_value_info("x", dtype, dims), helper.make_tensor_value_info("y", dtype, None)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def value_of(model: Any, feeds: Any, said: str, shapes: Any = None) -> Any:
    with pytest.warns(UserWarning, match=said):
        (feed,) = read_feeds(model, feeds, shapes)
    return feed["x"]


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "cat.png")
    return tmp_path / "cat.png"


def test_a_picture_takes_the_layout_of_the_input(cat: Path) -> None:
    first, last = PIXELS.transpose(2, 0, 1)[None], PIXELS[None]
    x = value_of(
        model_of(["n", 3, "h", "w"]), {"x": str(cat)}, "'x' is cat.png: 8×6 pixels, RGB, 0 to 1, CHW, as 1×3×6×8"
    )
    assert x.dtype == np.float32
    assert np.array_equal(x, first / np.float32(255))
    x = value_of(model_of(["?", "?", "?", 3], TensorProto.UINT8), {"x": cat}, "RGB, 0 to 255, HWC, as 1×6×8×3")
    assert np.array_equal(x, last)
    assert np.array_equal(value_of(model_of([3, 6, 8]), {"x": cat}, "CHW, as 3×6×8")[None], first / np.float32(255))
    assert value_of(model_of([1, 1, 6, 8]), cat, "L, 0 to 1, CHW, as 1×1×6×8").shape == (1, 1, 6, 8)
    half = value_of(model_of([1, 3, 6, 8], TensorProto.FLOAT16), cat, "0 to 1")
    assert np.array_equal(half, (first / np.float32(255)).astype(np.float16))
    upper = cat.rename(cat.with_suffix(".PNG"))
    assert np.array_equal(value_of(model_of([1, 3, 6, 8], TensorProto.UINT8), upper, "cat.PNG"), first)


def test_a_picture_takes_the_size_of_the_input_or_that_asked_for(cat: Path) -> None:
    right = np.asarray(Image.fromarray(PIXELS).resize((4, 3), Image.Resampling.BILINEAR)).transpose(2, 0, 1)[None]
    x = value_of(model_of([1, 3, 3, 4], TensorProto.UINT8), {"x": cat}, "8×6 .*as 1×3×3×4")
    assert np.array_equal(x, right)
    x = value_of(model_of([1, 3, 3, "w"], TensorProto.UINT8), {"x": cat}, "8×6 .*as 1×3×3×4")  # its proportions
    assert np.array_equal(x, right)
    for shapes in ({"h": 3, "w": 4}, {"h": 3}, {"x": (1, 3, 3, 4)}):
        x = value_of(model_of(["n", 3, "h", "w"], TensorProto.UINT8), {"x": cat}, "8×6 .*as 1×3×3×4", shapes)
        assert np.array_equal(x, right)


def test_a_picture_has_the_channels_that_the_weights_take(cat: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?"] * 4)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 3, 1, 1], np.zeros(6))
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert value_of(model, {"x": cat}, "RGB, 0 to 1, CHW, as 1×3×6×8").shape == (1, 3, 6, 8)


def test_a_picture_stands_as_its_camera_was_held(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6  # turned by a quarter
    Image.fromarray(PIXELS).save(tmp_path / "phone.png", exif=exif)
    x = value_of(model_of([1, 3, "h", "w"], TensorProto.UINT8), tmp_path / "phone.png", "6×8 .*as 1×3×8×6")
    assert np.array_equal(x[0].transpose(1, 2, 0), np.rot90(PIXELS, -1))


def sound(path: Path, frames: np.ndarray[Any, Any], width: int) -> Path:
    data = frames.astype("<i4").tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(frames.shape[1])
        file.setsampwidth(width)
        file.setframerate(16000)
        file.writeframes(b"".join(data[at : at + width] for at in range(0, len(data), 4)))
    return path


@pytest.mark.parametrize(("width", "offset"), [(1, 128), (2, 0), (3, 0), (4, 0)])
def test_a_sound_of_any_width(width: int, offset: int, tmp_path: Path) -> None:
    largest = 1 << (8 * width - 1)
    numbers = np.array([[0], [largest // 2], [-largest], [largest - 1]], np.int64)
    path = sound(tmp_path / "a.wav", numbers + offset, width)
    x = value_of(model_of(["n", "t"]), {"x": path}, "1 channel, 16000 Hz, −1 to 1, as 1×4")
    assert np.allclose(x[0], numbers[:, 0] / largest, atol=1e-7)
    assert x.dtype == np.float32


def test_a_sound_has_the_channels_and_samples_of_the_input(tmp_path: Path) -> None:
    stereo = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, (20, 2))
    path, right = sound(tmp_path / "a.wav", stereo, 2), (stereo / (1 << 15)).T.astype(np.float32)
    mono = right.mean(axis=0)
    assert np.allclose(value_of(model_of(["t"]), path, "2 channels, .* as 20"), mono)
    assert np.allclose(value_of(model_of(["n", 1, "t"]), path, "as 1×1×20"), mono)
    assert np.array_equal(value_of(model_of(["n", 2, "t"]), path, "as 1×2×20")[0], right)
    assert np.array_equal(value_of(model_of([2, "t"]), path, "as 2×20"), right)


def test_a_text_is_one_string_or_lines(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("eins\nzwei", "utf-8")
    (tmp_path / "a picture.jpg").write_bytes(b"")
    one = model_of([1], TensorProto.STRING)
    assert value_of(one, {"x": tmp_path / "x.txt"}, "1 string, as 1").tolist() == ["eins\nzwei"]
    assert value_of(model_of(["n"], TensorProto.STRING), tmp_path, "2 strings, as 2").tolist() == ["eins", "zwei"]
    lines = value_of(model_of(["n", 1], TensorProto.STRING), tmp_path / "x.txt", "2 strings, as 2×1")
    assert lines.tolist() == [["eins"], ["zwei"]]


def test_arrays_of_single_inputs(tmp_path: Path) -> None:
    right = np.arange(3, dtype=np.float32)
    np.save(tmp_path / "a.npy", right)
    np.savez(tmp_path / "b.npz", x=right, other=right + 1)
    np.savez(tmp_path / "c.npz", right)
    for name in ("a.npy", "b.npz", "c.npz"):
        (feed,) = read_feeds(model_of([3]), {"x": tmp_path / name})
        assert np.array_equal(feed["x"], right)
    np.savez(tmp_path / "d.npz", one=right, two=right)
    with pytest.raises(FeedError, match=r"d.npz' holds 'one', 'two', not input 'x'\."):
        next(read_feeds(model_of([3]), {"x": tmp_path / "d.npz"}))


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def test_files_that_are_refused(cat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bomb.png").write_bytes(png(60_000, 60_000))
    (tmp_path / "large.png").write_bytes(png(9_000, 9_000))
    (tmp_path / "cut.png").write_bytes(cat.read_bytes()[:60])
    (tmp_path / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")  # for Ghostscript
    (tmp_path / "float.wav").write_bytes(b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x03\0\x01\0" + bytes(20))
    (tmp_path / "latin.txt").write_bytes(b"\xe4")
    Image.fromarray(PIXELS[..., 0].astype(np.uint16)).save(tmp_path / "deep.png")
    os.mkfifo(tmp_path / "pipe.png")
    short = sound(tmp_path / "a.wav", np.zeros((20, 1)), 2)
    picture, speech, words = model_of([1, 3, 4, 4]), model_of([1, "t"]), model_of(["n"], TensorProto.STRING)
    for model, path, message in (
        (picture, tmp_path / "bomb.png", "bomb.png' cannot be read as input 'x', float32 .* exceeds limit"),
        (picture, tmp_path / "large.png", "large.png' .* has 9,000×9,000 pixels of mode RGB; give an array"),
        (picture, tmp_path / "cut.png", "cut.png' cannot be read as input 'x', float32"),
        (picture, tmp_path / "script.png", "cannot identify image file"),
        (picture, tmp_path / "deep.png", "pixels of mode I;16; give an array"),
        (picture, tmp_path / "pipe.png", "is not an ordinary file"),
        (picture, tmp_path / "cats.png", r"there is no file '.*cats.png'\. Closest names: 'cat.png'"),
        (picture, tmp_path / "latin.pdf", "there is no file"),
        (speech, cat, "a picture is for float or uint8 with 1, 3 or 4 channels"),
        (words, cat, "a picture is for float or uint8"),
        (model_of([1, 3, 1 << 20, 1 << 20]), cat, "the input takes 1,048,576×1,048,576 pixels"),
        (model_of([1, 3, 4, 4], TensorProto.INT32), cat, "a picture is for float or uint8"),
        (speech, tmp_path / "float.wav", "float.wav' cannot be read as input 'x', .*: unknown format: 3"),
        (words, short, "a sound is for float"),
        (words, tmp_path / "latin.txt", "latin.txt' cannot be read as input 'x', string .*utf-8"),
        (speech, tmp_path / "latin.txt", "a text is for strings"),
    ):
        with pytest.raises(FeedError, match=message):
            next(read_feeds(model, {"x": path}))
    batch = pytest.raises(FeedError, match=r"takes float32 \[8, 3, 6, 8\], and is given float32 \[1, 3, 6, 8\]")
    with pytest.warns(UserWarning, match="cat.png"), batch:
        next(read_feeds(model_of([8, 3, 6, 8]), {"x": cat}))
    tone = pytest.raises(FeedError, match=r"takes float32 \[1, 16\], and is given float32 \[1, 20\]")
    with pytest.warns(UserWarning, match="a.wav"), tone:
        next(read_feeds(model_of([1, 16]), {"x": short}))
    with pytest.raises(FeedError, match="shapes= are sizes of feeds that are made up, and feeds are given"):
        next(read_feeds(speech, {"x": np.zeros((1, 2), np.float32)}, {"t": 2}))
    monkeypatch.setattr(feeding, "LARGEST", 1 << 4)
    (tmp_path / "latin.txt").write_bytes(b"a" * 17)
    with pytest.raises(FeedError, match="it holds 17 B, more than a file that is read may"):
        next(read_feeds(words, {"x": tmp_path / "latin.txt"}))
