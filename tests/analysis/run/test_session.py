"""Sessions give what onnxruntime gives for the same file, wherever the weights lie."""

from __future__ import annotations

import copy
import gc
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.errors import ExternalDataError, FeedError, OnnxNbError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.session import _has_float16
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx_nb.analysis.model.model import ModelLike


def vector(name: str, size: int, seed: int) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(size).astype(np.float32), name)


def branches() -> ModelProto:
    """y = x·w + (value of a Constant node) + (weight of an If branch) + b, large and small weights."""
    then = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["picked"])],
        "branch",
        [],
        [helper.make_tensor_value_info("picked", TensorProto.FLOAT, [500])],
        [vector("inner", 500, 1)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "w"], ["product"]),
            helper.make_node("Constant", [], ["constant"], value=vector("value", 500, 2)),
            helper.make_node("If", ["condition"], ["chosen"], then_branch=then, else_branch=then),
            helper.make_node("Sum", ["product", "constant", "chosen", "b"], ["y"]),
        ],
        "branches",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [500]),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [500])],
        [vector("w", 500, 3), vector("b", 1, 4)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


PROTO = branches()
FEEDS: dict[str, Any] = {
    "x": np.random.default_rng(5).standard_normal(500).astype(np.float32),
    "condition": np.array(True),
}


def in_file(folder: Path) -> Path:
    onnx.save(PROTO, folder / "model.onnx")
    return folder / "model.onnx"


def external(folder: Path) -> Path:
    options: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0, "convert_attribute": True}
    onnx.save(copy.deepcopy(PROTO), folder / "model.onnx", location="model.data", **options)
    return folder / "model.onnx"


def elsewhere(folder: Path) -> ModelLike:
    (folder / "data").mkdir()
    path = external(folder / "data").replace(folder / "model.onnx")
    return load(path, data_dir=folder / "data")


def hub_cache(folder: Path) -> Path:
    blobs, snapshot = folder / "blobs", folder / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    external(blobs).rename(blobs / "aaaa")
    (blobs / "model.data").rename(blobs / "bbbb")
    (snapshot / "model.onnx").symlink_to("../blobs/aaaa")
    (snapshot / "model.data").symlink_to("../blobs/bbbb")
    return snapshot / "model.onnx"


def hub_cache_of_one_file(folder: Path) -> Path:
    (folder / "blobs").mkdir()
    (folder / "snapshot").mkdir()
    in_file(folder / "blobs")
    (folder / "snapshot" / "model.onnx").symlink_to("../blobs/model.onnx")
    return folder / "snapshot" / "model.onnx"


def oddly_named(folder: Path) -> Path:
    path = folder / "a:b\n🙂.onnx"
    in_file(folder).rename(path)
    return path


SOURCES: dict[str, Callable[[Path], ModelLike]] = {
    "file": in_file,
    "external data": external,
    "external data elsewhere": elsewhere,
    "hub cache": hub_cache,
    "hub cache of one file": hub_cache_of_one_file,
    "odd name": oddly_named,
    "bytes": lambda _: PROTO.SerializeToString(),
    "ModelProto": lambda _: PROTO,
    "onnx_ir": lambda _: onnx_ir.from_proto(PROTO),
    "onnx_ir with external data": lambda folder: onnx_ir.load(external(folder)),
}


def reference(proto: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found: list[Any] = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    return found


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_same_values_wherever_the_weights_lie(source: str, optimize: bool, tmp_path: Path) -> None:
    made = session.create(SOURCES[source](tmp_path), optimize=optimize, threads=1)
    found = session.run_session(made, FEEDS)
    assert list(found) == ["y"]
    assert np.array_equal(found["y"], reference(PROTO, FEEDS)[0])


def test_intermediate_values_as_outputs() -> None:
    found = session.run(PROTO, FEEDS, outputs=["chosen", "product", "x", "w", "product"])
    assert list(found) == ["chosen", "product", "x", "w"]
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in PROTO.graph.initializer}
    assert np.array_equal(found["product"], FEEDS["x"] * weights["w"])
    assert np.array_equal(found["chosen"], numpy_helper.to_array(vector("inner", 500, 1)))
    assert np.array_equal(found["w"], weights["w"])


@pytest.mark.parametrize("name", ["densenet121", "squeezenet", "shufflenet"])
def test_the_light_models_of_onnx(name: str) -> None:
    path = models.light(name)
    proto = onnx.load(path)
    # IR 3: every weight is an input as well
    weights = {tensor.name for tensor in proto.graph.initializer}
    (value,) = (value for value in proto.graph.input if value.name not in weights)
    feeds = {value.name: np.ones([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)}
    (found,) = session.run(path, feeds).values()
    assert np.array_equal(found, reference(proto, feeds)[0])


@pytest.mark.parametrize("make", [models.control_flow, models.functions])
def test_bodies_and_functions_run(make: Callable[[], Path]) -> None:
    proto = onnx.load(make())
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or 2 for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds[value.name] = rng.integers(0, 2, shape).astype(dtype)
    for found, expected in zip(session.run(make(), feeds).values(), reference(proto, feeds), strict=True):
        assert np.array_equal(found, expected)


def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    size = (2 << 30) + 4096
    with (tmp_path / "data").open("xb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(b"last")
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[size], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="data")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "large",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [4])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [4])],
        [tensor],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    found = session.run(tmp_path / "model.onnx", {"i": np.arange(size - 4, size)})
    assert found["y"].tobytes() == b"last"


def identity(data_type: int, shape: list[Any] | None) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", data_type, shape)],
        [helper.make_tensor_value_info("y", data_type, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.5, -2], np.float64),
        np.array([1.5, -2], np.float16),
        np.array([1, -2], np.int8),
        np.array([1, 2], np.uint64),
        np.array([True, False]),
        np.array(["a", "é🙂"], object),
        np.array(["a", "bc"]),
        np.array([1.5, -2]).astype(ml_dtypes.bfloat16),
        np.array([1.5, -2]).astype(ml_dtypes.float8_e4m3fn),
        np.array([1.5, -2]).astype(ml_dtypes.float8_e5m2),
    ],
    ids=lambda values: str(values.dtype),
)
def test_values_of_every_type_pass_through(values: Any) -> None:
    data_type = TensorProto.STRING if values.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(values.dtype)
    found = session.run(identity(data_type, [2]), {"x": values})["y"]
    assert found.tolist() == values.tolist()
    assert found.dtype == values.dtype or values.dtype.kind == "U"


def test_values_smaller_than_a_byte_pass_through() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "scale"], ["y"]),
            helper.make_node("QuantizeLinear", ["y", "scale"], ["z"], output_dtype=TensorProto.INT4),
        ],
        "four bits",
        [helper.make_tensor_value_info("x", TensorProto.INT4, [5])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [5]),
            helper.make_tensor_value_info("z", TensorProto.INT4, [5]),
        ],
        [numpy_helper.from_array(np.array(1, np.float32), "scale")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = session.run(proto, {"x": np.array([-8, -1, 0, 3, 7]).astype(ml_dtypes.int4)})
    assert found["y"].tolist() == [-8, -1, 0, 3, 7]
    assert found["z"].astype(np.int64).tolist() == [-8, -1, 0, 3, 7]


@pytest.mark.parametrize(
    ("feeds", "problem"),
    [
        ({}, r"branches also needs 'x' \(float32 \[500\]\), 'condition' \(bool \[\]\)"),
        ({**FEEDS, "y": FEEDS["x"]}, "branches has no input 'y'"),
        ({"xx": FEEDS["x"]}, r"branches has no input 'xx'\. Its inputs: 'x'"),
        (
            {**FEEDS, "x": FEEDS["x"].astype(np.float64)},
            r"takes float32 \[500\], and is given float64 \[500\]\. Use array.astype",
        ),
        ({**FEEDS, "x": [1.0] * 500}, "is given a list, not an array"),
        ({**FEEDS, "x": FEEDS["x"][:5]}, r"input 'x' takes float32 \[500\], and is given float32 \[5\]"),
        ({**FEEDS, "x": FEEDS["x"][None]}, r"given float32 \[1, 500\]. There is one axis too many"),
    ],
)
def test_feeds_that_do_not_fit(feeds: dict[str, Any], problem: str) -> None:
    with pytest.raises(FeedError, match=problem):
        session.run(PROTO, feeds)


def test_free_dimensions_take_any_size() -> None:
    for shape in (["batch", 2], [None, 2], None):
        found = session.run(identity(TensorProto.FLOAT, shape), {"x": np.ones((3, 2), np.float32)})
        assert found["y"].shape == (3, 2)


def test_a_wrong_output_is_answered_with_the_closest() -> None:
    with pytest.raises(OnnxNbError, match=r"tensor 'prodct' is not in the model. Closest names: 'product'"):
        session.create(PROTO, outputs=["prodct"])
    with pytest.raises(OnnxNbError, match="If, Loop and Scan bodies cannot be outputs"):
        session.create(PROTO, outputs=["picked"])


def unknown_op() -> ModelProto:
    proto = copy.deepcopy(PROTO)
    proto.graph.node[0].op_type = "Nonsense"
    return proto


def cyclic() -> ModelProto:
    proto = copy.deepcopy(PROTO)
    proto.graph.node[0].input[0] = "y"
    return proto


def newer_ir() -> ModelProto:
    proto = copy.deepcopy(PROTO)
    proto.ir_version = 99
    return proto


@pytest.mark.parametrize("make", [unknown_op, cyclic, newer_ir, ModelProto])
def test_what_onnxruntime_refuses(make: Callable[[], ModelProto], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OnnxNbError, match=r"^onnxruntime cannot use (branches|model): ") as error:
        session.create(make())
    assert len(str(error.value)) < 1500
    if make is newer_ir:
        assert "ir_version=" in error.value.advice
    if make is unknown_op:
        assert "does not know this operator" in error.value.advice
    assert capfd.readouterr().err == ""


def test_a_failure_while_running_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], "reshaping")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(OnnxNbError, match=r"(?s)^onnxruntime could not run g: .*reshaping"):
        session.run(proto, {"x": np.ones(4, np.float32), "shape": np.array([3])})
    with pytest.raises(OnnxNbError) as raised:
        session.run_values(
            session.create(proto),
            {"x": session.to_value(np.ones(4, np.float32)), "shape": session.to_value(np.array([3]))},
            name="Reshape 'reshaping'",
        )
    assert "Status Message" in raised.value.message
    assert raised.value.message.count("Reshape 'reshaping'") == 1, "what onnxruntime says of the node is not said again"
    assert "Non-zero status" not in raised.value.message
    assert capfd.readouterr().err == ""


def test_missing_weights_are_named_before_onnxruntime_is_asked(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "model.data").unlink()
    with pytest.raises(ExternalDataError, match=r"weight 'w' of model.onnx.*'model.data', which is not in"):
        session.create(path)


def test_a_location_that_onnxruntime_takes_for_an_address_is_refused(tmp_path: Path) -> None:
    proto = copy.deepcopy(PROTO)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "*/_ORT_MEM_ADDR_/*"), ("offset", "140000000000000"), ("length", "2000")):
        tensor.external_data.add(key=key, value=value)
    with pytest.raises(ExternalDataError, match="_ORT_MEM_ADDR_"):
        session.create(load(proto, data_dir=tmp_path))


def test_onnxruntime_is_imported_only_for_a_session() -> None:
    script = "import sys, onnx_nb.analysis.run.session; print('onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=models.ROOT)
    assert done.stdout == b"False\n"


VALUES: dict[str, Any] = {
    **{
        name: np.array([[1, 0, 3], [1, 1, 0]]).astype(name)
        for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    },
    **{name: np.array([1.5, -2, np.inf]).astype(name) for name in ("float16", "float32", "float64")},
    **{
        name: np.array([1.5, -2, 0.5]).astype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn")
    },
    **{name: np.array([1, 0, 1, 1, 0]).astype(getattr(ml_dtypes, name)) for name in ("int2", "uint2", "int4", "uint4")},
    "strings": np.array([["a", "é🙂"], ["", "b"]], object),
    "scalar": np.array(3.0),
    "empty": np.zeros((0, 3), np.float32),
    "no strings": np.zeros(0, object),
    "another order": np.arange(6.0).reshape(2, 3).T,
    "another byte order": np.arange(3, dtype=">f4"),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_go_to_onnxruntime_and_back(name: str) -> None:
    array = VALUES[name]
    found = session.to_array(session.to_value(array))
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.shape == array.shape
    assert found.tolist() == array.tolist()


def test_sequences_go_to_onnxruntime_and_back() -> None:
    arrays = [np.arange(3.0), np.zeros((2, 0))]
    found = session.to_array(session.to_value(arrays))
    assert [array.tolist() for array in found] == [array.tolist() for array in arrays]
    assert session.to_array(session.to_value([np.array(["a"], object)]))[0].tolist() == ["a"]
    empty = session.to_value([], data_type=TensorProto.INT64)
    assert empty.data_type() == "seq(tensor(int64))"
    assert session.to_array(empty) == []


def test_an_array_outlives_the_value_whose_memory_it_is() -> None:
    made = session.create(identity(TensorProto.FLOAT, ["n"]), threads=1)
    arrays = []
    for number in range(20):
        value = session.to_value(np.full(100_000, number, np.float32))
        found = session.run_values(made, {"x": value})["y"]
        array = session.to_array(found)
        assert array.__array_interface__["data"][0] == found.data_ptr()
        assert not array.flags.writeable
        arrays.append(array)
        del value, found
    assert all((array == number).all() for number, array in enumerate(arrays))


def test_what_run_gives_may_be_written_to() -> None:
    for data_type, dtype in ((TensorProto.FLOAT, np.float32), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)):
        found = session.run(identity(data_type, [2]), [np.ones(2, dtype)])["y"]
        found[0] = 3
        assert found.tolist() == [3, 1]


def test_a_map_has_no_array() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 2]> g (float[n, 2] x) => (seq(map(int64, float)) y)'
        "{ y = ai.onnx.ml.ZipMap<classlabels_int64s=[3, 4]>(x) }"
    )
    made = session.create(onnx.parser.parse_model(text))
    x = np.array([[1, 2]], np.float32)
    assert session.run_session(made, {"x": x})["y"] == [{3: 1.0, 4: 2.0}]
    value = session.run_values(made, {"x": session.to_value(x)})["y"]
    with pytest.raises(OnnxNbError, match=r"cannot convert a value of type seq\(map\(int64,tensor\(float\)\)\)"):
        session.to_array(value)


def test_an_optional_that_is_not_there_is_none() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    node = helper.make_node("Optional", [], ["y"], type=kind.optional_type.elem_type)
    graph = helper.make_graph([node], "g", [], [helper.make_value_info("y", kind)])
    made = session.create(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    assert session.run_session(made, {}) == {"y": None}
    assert session.to_array(session.run_values(made, {})["y"]) is None


def test_an_absent_optional_is_fed_where_an_output_has_a_type_that_numpy_lacks() -> None:
    given = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("Cast", ["has"], ["y"], to=TensorProto.BFLOAT16),
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [])]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("o", given)], made)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    assert session.run(proto, {"o": None})["y"] == 0
    assert session.run(proto, {"o": np.ones(2, np.float32)})["y"] == 1


def test_a_failure_on_values_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    made = session.create(identity(TensorProto.FLOAT, [2]))
    for values in ({}, {"x": session.to_value(np.ones(3, np.float32))}, {"x": session.to_value(np.ones(2))}):
        with pytest.raises(OnnxNbError, match="onnxruntime could not run pair: "):
            session.run_values(made, values, name="pair")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("ir_version", [3, 8, 10])
def test_marks_run_as_if_they_were_not_there(ir_version: int) -> None:
    text = (
        f'<ir_version: {ir_version}, opset_import: ["": 17, "onnx_nb": 1]> g (float[2] x, bool c) => (float[2] y)'
        '{ a = Neg(x)  b = onnx_nb.Mark<name="cut">(a)'
        '  y = If<then_branch=t() => (d) { d = onnx_nb.Mark<name="inner">(b) },'
        "       else_branch=e() => (f) { f = Abs(b) }>(c) }"
    )
    proto = onnx.parser.parse_model(text)
    before = proto.SerializeToString()
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(True)}
    assert session.run(proto, feeds)["y"].tolist() == [-1, 2]
    assert session.run(proto, feeds, outputs=["b"])["b"].tolist() == [-1, 2]
    made = session._with_marks(proto)
    assert made.ir_version >= 8
    onnx.checker.check_model(made, full_check=True)
    assert proto.SerializeToString() == before


def test_marks_inside_functions_run() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "own": 1]>
    g (float[2] x) => (float[2] y) { y = own.F(x) }
    <domain: "own", opset_import: ["": 20]> F (a) => (b) { c = onnx_nb.Mark<name="cut">(a)  b = Neg(c) }""")
    assert session.run(proto, [np.array([1, 2], np.float32)])["y"].tolist() == [-1, -2]


def test_a_model_with_its_own_function_for_marks_keeps_it() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "onnx_nb": 1]>
    g (float[2] x) => (float[2] y) { y = onnx_nb.Mark(x) }
    <domain: "onnx_nb", opset_import: ["": 20]> Mark (a) => (b) { b = Neg(a) }""")
    assert session.run(proto, [np.array([1, 2], np.float32)])["y"].tolist() == [-1, -2]


def test_run_takes_providers() -> None:
    assert session.run(PROTO, FEEDS, providers=["CPUExecutionProvider"])["y"].shape == (500,)
    with pytest.raises(OnnxNbError, match=r"has no 'NoSuchProvider' here\. It has: .*CPUExecutionProvider"):
        session.run(PROTO, FEEDS, providers=["NoSuchProvider"])
    for verb in (onnx_nb.run, onnx_nb.capture, onnx_nb.profile, lambda model: onnx_nb.compare(PROTO, model)):
        with pytest.raises(OnnxNbError, match=r"has no 'NoSuchProvider' here"):
            verb(load(PROTO, providers="NoSuchProvider"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells how much memory a process has so")
def test_shared_memory_is_taken_again_and_given_back() -> None:
    code = (
        "import gc, re, numpy as np, onnx.parser\n"
        "from onnx_nb.analysis.run import session\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "text = '<ir_version: 8, opset_import: [\"\": 17]> g (int64[1] n) => (float[m] y) { y = ConstantOfShape(n) }'\n"
        "model = onnx.parser.parse_model(text)\n"
        "def made(size):\n"
        "    own = session.create(model, optimize=False, transient=True, shared_arena=True)\n"
        "    return session.run_values(own, {'n': session.to_value(np.array([size >> 2]))})['y']\n"
        "session.release_arena(); made(8)\n"
        "before = resident()\n"
        "for _ in range(20): value = made(32 << 20)\n"
        "print(resident() - before)\n"
        "del value; session.release_arena()\n"
        "print(resident() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    held, left = map(int, done.stdout.split())
    assert 32 << 20 < held < 80 << 20  # the next value is made before the last one is dropped
    assert left < 8 << 20


def test_float16_is_found_in_lists_of_subgraphs_inside_functions() -> None:
    body = helper.make_graph([helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT16)], "body", [], [])
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    inside = helper.make_node("Choose", ["a"], ["b"], domain="my", bodies=[body])
    function = helper.make_function("my", "F", ["a"], ["b"], [inside], opset)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="my")], "g", ports[:1], ports[1:])
    assert _has_float16(Graph.of(helper.make_model(graph, opset_imports=opset, functions=[function])))


@pytest.mark.parametrize("name", ["a", "y"])
def test_a_wrong_declared_type_is_named_with_what_to_drop(name: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    x, y, wrong = (helper.make_tensor_value_info(n, kind, [2]) for n, kind in (("x", 1), ("y", 1), (name, 10)))
    graph = helper.make_graph(nodes, "g", [x], [wrong if name == "y" else y], value_info=[wrong] if name == "a" else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(OnnxNbError, match=rf"The model declares '{name}' as tensor\(float16\): drop it from graph"):
        session.run(model, {"x": np.ones(2, np.float32)})
    model.graph.ClearField("value_info")
    model.graph.output[0].CopyFrom(y)
    assert session.run(model, {"x": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]


FORKED = '<ir_version: 8, opset_import: ["": 17]> g (float[9,9] x) => (float[9,9] y) { y = MatMul(x, x) }'

# --- sessions that last ----------------------------------------------------------------------------------------------


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the sessions that are created from now on, weakly."""
    sessions: list[Any] = []
    create = session.create

    def noted(*args: Any, **options: Any) -> onnxruntime.InferenceSession:
        made = create(*args, **options)
        sessions.append(weakref.ref(made))
        return made

    monkeypatch.setattr(session, "create", noted)
    return sessions


def test_run_keeps_the_session_of_a_model_as_long_as_that_lives(created: list[Any]) -> None:
    model = load(PROTO)
    first = session.run(model, FEEDS)["y"]
    for _ in range(3):
        assert np.array_equal(session.run(model, FEEDS)["y"], first)
    assert len(created) == 1
    session.run(model, FEEDS, outputs=["product"])
    assert [kept() is None for kept in created] == [True, False]
    session.run(model, FEEDS, outputs=iter(["product"]))
    assert len(created) == 2
    del model
    gc.collect()
    assert created[1]() is None


def test_sessions_are_kept_for_few_models_and_while_there_is_memory(
    created: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    models_ = [load(PROTO) for _ in range(6)]
    for model in models_:
        session.run(model, FEEDS)
    assert [kept() is None for kept in created] == [True, True, False, False, False, False]
    monkeypatch.setattr(session, "available_memory", lambda: 4 * models_[0].nbytes - 1)
    session.run(models_[0], FEEDS)
    assert all(kept() is None for kept in created)


def test_a_file_written_again_ends_the_session_of_its_model(tmp_path: Path) -> None:
    path = external(tmp_path)
    model = load(path)
    session.run(model, FEEDS)
    os.utime(tmp_path / "model.data", ns=(1, 1))
    with pytest.raises(OnnxNbError, match=r"model.data' was changed after the model was loaded"):
        session.run(model, FEEDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_neither_runs_nor_ends_the_sessions_that_it_inherits() -> None:
    code = f"""import gc, os, onnx, onnx_nb, signal
from onnx_nb.analysis.run import session
create = session.create
session.create = lambda *args, **options: create(*args, **options, threads=4)
model = onnx_nb.load(onnx.parser.parse_model({FORKED!r}))
expected = onnx_nb.run(model)["y"].shape
for _ in range(2):
    if not (child := os.fork()):
        signal.alarm(60)
        assert onnx_nb.run(model)["y"].shape == expected
        del model
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert onnx_nb.run(model)["y"].shape == expected
print(len(session._sessions))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


def test_a_loop_carries_the_state() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] state, int64 rate) =>
        (float[2] y, float[2] stateN)
        { r = Cast<to = 1>(rate)  s = Mul(x, r)  stateN = Add(state, s)  y = Neg(stateN) }"""
    proto = onnx.parser.parse_model(text)
    native = onnxruntime.InferenceSession(proto.SerializeToString())
    step = session.session(proto, state={"state": "stateN"})
    state, rate = np.zeros(2, np.float32), np.array(3)
    first: dict[str, Any] = {"state": state, "rate": rate}
    for x in np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32):
        y, state = native.run(None, {"x": x, "state": state, "rate": rate})
        assert np.array_equal(step({"x": x, **first})["y"], y)
        first = {}
    with pytest.raises(FeedError, match=r"takes float32 \[2\], and is given float64 \[2\]"):
        step({"x": np.zeros(2)})
    with pytest.raises(
        FeedError, match=r"state names 'stat', which is no input of g\. Its inputs: 'x', 'state', 'rate'"
    ):
        session.session(proto, state={"stat": "stateN"})
    with pytest.raises(FeedError, match="state names 'z', which is no output"):
        session.session(proto, state={"state": "z"})


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_library_of_operators_is_loaded_only_where_a_person_names_it(tmp_path: Path) -> None:
    library, sign = tmp_path / "library.so", tmp_path / "sign"
    code = f"""#include <stdio.h>
        void *RegisterCustomOps(void *options, const void *api)
        {{ FILE *sign = fopen("{sign}", "a"); fputs("1", sign); fclose(sign); return 0; }}"""
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=code, text=True, check=True)
    session.run(PROTO, FEEDS)
    assert not sign.exists()
    model = load(load(external(tmp_path), custom_ops=library), data_dir=tmp_path)
    counts = []
    for use in (
        lambda: session.run(model, FEEDS),
        lambda: onnx_nb.capture(model, FEEDS),
        lambda: onnx_nb.capture(model, FEEDS, subprocess=True),
        lambda: onnx_nb.compare(model, PROTO, FEEDS),
        lambda: onnx_nb.simplify(model, feeds=FEEDS),
        lambda: onnx_nb.profile(model, FEEDS, runs=1),
    ):
        sign.write_text("")
        use()
        counts.append(len(sign.read_text()))
    assert all(counts)
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    with pytest.raises(OnnxNbError, match=r"onnxruntime cannot use .*broken\.so"):
        session.run(load(PROTO, custom_ops=broken), FEEDS)
    with pytest.raises(TypeError, match="takes custom_ops as a path or a str"):
        load(PROTO, custom_ops=3)  # type: ignore[arg-type]
