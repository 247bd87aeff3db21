"""What `load` relies on: weights are found without being read, and a file that is no model is recognized."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.storage import Extent, MemorySource

if TYPE_CHECKING:
    from pathlib import Path


def model_of(*initializers: TensorProto, nodes: int = 1, doc: str = "") -> onnx.ModelProto:
    inner = [helper.make_node("Relu", ["x"], [f"y{i}"], doc_string=doc) for i in range(nodes)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y0", TensorProto.FLOAT, [2])
    graph = helper.make_graph(inner, "g", [x], [y], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def weight(name: str, size: int) -> TensorProto:
    return numpy_helper.from_array(np.arange(size, dtype=np.float32), name)


def part(data: bytes) -> Extent:
    """A part of a buffer, for `splice`."""
    return Extent(MemorySource(data, len(data), "it"), 0, len(data), "it")


def lengths(stripped: bytes) -> list[int]:
    """Return the bytes of each weight that is a reference."""
    weights = onnx.ModelProto.FromString(stripped).graph.initializer
    entries = [{entry.key: entry.value for entry in each.external_data} for each in weights]
    return [int(each["length"]) for each in entries if each.get("location") == "here"]


def spliced(stripped: bytes, original: bytes) -> bytes:
    def weight_of(tensor: TensorProto) -> Extent:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        assert entries["location"] == "here"
        start = int(entries["offset"])
        return part(original[start : start + int(entries["length"])])

    file = io.BytesIO()
    wire.write(file, wire.splice(stripped, weight_of))
    return file.getvalue()


def test_large_weights_become_references_and_small_ones_stay() -> None:
    data = model_of(weight("large", 1000), weight("small", 10)).SerializeToString()
    stripped = wire.scan(data, location="here")
    large, small = onnx.ModelProto.FromString(stripped).graph.initializer
    assert lengths(stripped) == [4000]
    assert large.data_location == TensorProto.EXTERNAL
    assert list(large.dims) == [1000]
    assert not large.HasField("raw_data")
    assert small == weight("small", 10)
    entries = {entry.key: entry.value for entry in large.external_data}
    start = int(entries["offset"])
    assert np.array_equal(np.frombuffer(data[start : start + 4000], np.float32), np.arange(1000))


def test_everything_but_the_weights_is_kept_to_the_byte() -> None:
    model = model_of(weight("w", 1000), nodes=50, doc="é" * 100)
    model.metadata_props.add(key="k", value="v" * 5000)
    model.graph.quantization_annotation.add(tensor_name="w")
    expected = onnx.ModelProto.FromString(model.SerializeToString())
    stripped = onnx.ModelProto.FromString(wire.scan(model.SerializeToString(), location="here"))
    for proto in (expected, stripped):
        del proto.graph.initializer[:]
    assert stripped == expected


@given(
    sizes=st.lists(st.integers(0, 3000), max_size=12),
    # lengths of a node that take one, two, three and four bytes to write
    doc=st.sampled_from([0, 90, 200, 20_000, 2_200_000]),
    nodes=st.integers(0, 6),
)
@settings(max_examples=40, deadline=None)
def test_splicing_undoes_stripping_to_the_byte(sizes: list[int], doc: int, nodes: int) -> None:
    data = model_of(
        *(weight(f"w{i}", size) for i, size in enumerate(sizes)), nodes=nodes, doc="d" * doc
    ).SerializeToString()
    stripped = wire.scan(data, location="here")
    assert lengths(stripped) == [4 * size for size in sizes if 4 * size >= wire.THRESHOLD]
    assert spliced(stripped, data) == data
    from_file = wire.scan(io.BytesIO(data), location="here")
    assert from_file == stripped


def test_packed_floats_are_the_bytes_of_the_array() -> None:
    floats = helper.make_tensor("f", TensorProto.FLOAT, [500], np.arange(500.0))
    doubles = helper.make_tensor("d", TensorProto.DOUBLE, [500], np.arange(500.0))
    pairs = helper.make_tensor("c", TensorProto.COMPLEX64, [300], np.arange(300) * (1 + 2j))
    data = model_of(floats, doubles, pairs).SerializeToString()
    stripped = wire.scan(data, location="here")
    assert lengths(stripped) == [2000, 4000, 2400]
    again = onnx.ModelProto.FromString(spliced(stripped, data)).graph.initializer
    for tensor, original in zip(again, (floats, doubles, pairs), strict=True):
        assert np.array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(original))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.external_data.add(key="location", value="other"),
        lambda tensor: setattr(tensor, "data_location", TensorProto.DEFAULT),
    ],
    ids=["leftover reference", "explicit default"],
)
def test_a_reference_replaces_what_was_said_about_the_place(change: Any) -> None:
    tensor = weight("w", 1000)
    change(tensor)
    (stripped,) = onnx.ModelProto.FromString(
        wire.scan(model_of(tensor).SerializeToString(), location="here")
    ).graph.initializer
    assert [entry.value for entry in stripped.external_data if entry.key == "location"] == ["here"]
    assert stripped.data_location == TensorProto.EXTERNAL


@pytest.mark.parametrize("field", ["int32_data", "int64_data", "segment", "external", "twice"])
def test_what_cannot_be_referred_to_stays_as_it_is(field: str) -> None:
    tensor = weight("w", 1000)
    if field == "int64_data":
        tensor = helper.make_tensor("w", TensorProto.INT64, [1000], range(1000))
    elif field == "int32_data":
        tensor = helper.make_tensor("w", TensorProto.INT8, [2000], [5] * 2000)
    elif field == "segment":
        tensor.segment.begin = 0
    elif field == "external":
        tensor.data_location = TensorProto.EXTERNAL
    else:
        tensor.float_data.append(1)
    model = model_of(tensor)
    stripped = wire.scan(model.SerializeToString(), location="here")
    assert lengths(stripped) == []
    assert onnx.ModelProto.FromString(stripped) == model


class Counting(io.BytesIO):
    """A file that is nearly all hole, and counts what is read of it."""

    def __init__(self, head: bytes, hole: int, tail: bytes) -> None:
        super().__init__(head)
        self.head, self.hole, self.tail = head, hole, tail
        self.reads = self.bytes_read = self.position = 0

    def seek(self, position: int, whence: int = 0) -> int:
        total = len(self.head) + self.hole + len(self.tail)
        self.position = total + position if whence == io.SEEK_END else position
        return self.position

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        self.reads += 1
        start, end = self.position, self.position + size
        after = len(self.head) + self.hole
        data = self.head[start:end]
        data += bytes(max(0, min(end, after) - max(start, len(self.head))))
        data += self.tail[max(0, start - after) : max(0, end - after)]
        self.bytes_read += len(data)
        self.position = start + len(data)
        return data


def varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def test_a_weight_of_three_gigabytes_is_stepped_over() -> None:
    size = 3 << 30  # no file of protobuf's own may be so large; reading one is still no reason to fail
    tensor = b"\x08\x80\x80\x80\x80\x03\x10\x01\x42\x01w\x4a" + varint(size)
    graph = b"\x12\x01g\x2a" + varint(len(tensor) + size) + tensor
    head = b"\x08\x09\x3a" + varint(len(graph) + size) + graph
    file = Counting(head, size, b"\x42\x02\x10\x11")
    stripped = wire.scan(cast("Any", file), location="here")
    proto = onnx.ModelProto.FromString(stripped)
    assert lengths(stripped) == [size]
    assert proto.opset_import[0].version == 17
    assert proto.graph.initializer[0].external_data[1].value == str(len(head))
    assert file.bytes_read < 100_000
    assert file.reads < 20


def test_a_model_cut_anywhere_is_refused() -> None:
    data = model_of(weight("w", 300), nodes=3, doc="note").SerializeToString()
    for cut in range(len(data)):
        with pytest.raises(ModelFileError, match=r"the model.*(only a part|is empty)"):
            wire.scan(data[:cut], location="here", name="the model")


def zip_archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", "x" * 100)
    return file.getvalue()


NOT_MODELS = {
    "empty": (b"", "is empty"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git-LFS.*git lfs pull"),
    "html": (b"\n<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
    "html after a mark": (b"\xef\xbb\xbf<html>", "HTML page"),
    "xml": (b"<?xml version='1.0'?><net/>", "XML"),
    "zip": (zip_archive(), r"zip archive.*torch\.onnx\.export"),
    "pickle": (pickle.dumps({"a": [1, 2, 3]}), "pickle"),
    "json": (json.dumps({"irVersion": "8", "graph": {}}).encode(), "JSON.*format='json'"),
    "textproto": (b'ir_version: 8\ngraph {\n  name: "g"\n}\n', "text form.*format='textproto'"),
    "onnxtxt": (b'<ir_version: 8, opset_import: ["" : 17]> g () => () {}', "text form.*format='onnxtxt'"),
    "text": (b"model.onnx", "text file"),
    "zeros": (bytes(5000), "zeros.*interrupted"),
    "gzip": (b"\x1f\x8b\x08" + bytes(100), "gzip"),
    "numpy": (b"\x93NUMPY\x01\x00", "numpy array"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(20), "HDF5"),
    "tflite": (b"\x1c\x00\x00\x00TFL3" + bytes(20), "TensorFlow Lite"),
    "ort": (b"\x1c\x00\x00\x00ORTM" + bytes(20), "ORT-format"),
    "safetensors": (b"\x40\x00\x00\x00\x00\x00\x00\x00{" + b'"a":{}' * 10, "safetensors"),
    "gguf": (b"GGUF\x03\x00\x00\x00", "GGUF"),
    "tensor": (weight("w", 10).SerializeToString(), r"onnx\.load_tensor"),
    "random": (bytes(np.random.default_rng(0).integers(0, 256, 4000, np.uint8)), "not an ONNX model"),
    "no graph": (onnx.ModelProto(ir_version=9, producer_name="me").SerializeToString(), "holds no graph"),
}


@pytest.mark.parametrize("kind", NOT_MODELS)
def test_a_file_that_is_no_model_is_named(kind: str, tmp_path: Path) -> None:
    data, expected = NOT_MODELS[kind]
    with pytest.raises(ModelFileError, match=f"(?s)^file.onnx.*{expected}"):
        wire.scan(data, location="here", name="file.onnx")


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_result_or_the_one_error(data: bytes) -> None:
    try:
        wire.scan(data, location="here")
    except ModelFileError:
        return


def test_a_length_beyond_the_file_costs_no_memory() -> None:
    with pytest.raises(ModelFileError, match="goes on to byte"):
        wire.scan(b"\x08\x09\x3a" + varint(2**62) + b"rest", location="here")


def test_runs_of_zeros_are_written_as_holes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    zeros = 64 << 20
    with path.open("xb") as file:
        wire.write(file, [b"head", part(bytes(zeros)), b"tail", part(bytes(zeros))])
    assert path.read_bytes() == b"head" + bytes(zeros) + b"tail" + bytes(zeros)
    assert path.stat().st_blocks * 512 < zeros


def test_fields_are_copied_with_texts_that_are_not_utf8() -> None:
    node = helper.make_node("Q", ["Qa", "b"], ["Qc", "d"], name="Qn", doc_string="e" * 200, alpha=1.5)
    node = onnx.NodeProto.FromString(node.SerializeToString().replace(b"Q", b"\xff"))
    copy, part = onnx.NodeProto(), onnx.NodeProto()
    wire.copy_fields(node, copy)
    assert copy == node
    wire.copy_fields(node, part, without=["attribute", "doc_string"])
    assert [field.name for field, _ in part.ListFields()] == ["input", "output", "name", "op_type"]
    assert list(part.input) == [b"\xffa", "b"]
