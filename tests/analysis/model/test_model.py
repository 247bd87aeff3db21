"""What a person relies on when opening and saving models, against onnx itself as the independent source."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.errors import ExternalDataError, ModelFileError, OnnxNbError
from onnx_nb.analysis.model import storage, tensors, wire
from onnx_nb.analysis.model.external_data import convert, inline
from onnx_nb.analysis.model.model import Model, load, with_proto
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.run.session import for_onnxruntime
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import ModelLike

BACKEND = Path(onnx.__file__).parent / "backend" / "test" / "data"


def all_tensors(proto: ModelProto) -> list[TensorProto]:
    return [tensor for tensor, _ in tensors.placed(proto)]


def weight(name: str, size: int, start: int = 0) -> TensorProto:
    return numpy_helper.from_array(np.arange(start, start + size, dtype=np.float32), name)


def model_of(*weights: TensorProto, sparse: Iterable[onnx.SparseTensorProto] = (), ir_version: int = 10) -> ModelProto:
    """y = x + w0 + w1 + …, as far as they are vectors of floats."""
    nodes, last = [], "x"
    for i, tensor in enumerate(weights):
        nodes.append(helper.make_node("Add", [last, tensor.name], [f"y{i}"], f"add{i}"))
        last = f"y{i}"
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n"])],
        list(weights),
        sparse_initializer=list(sparse),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=ir_version)


def saved(proto: ModelProto, path: Path, **options: Any) -> Path:
    onnx.save(copy.deepcopy(proto), path, **options)
    return path


def external(proto: ModelProto, folder: Path, *, one_file: bool = True) -> Path:
    options: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0, "all_tensors_to_one_file": one_file}
    return saved(proto, folder / "model.onnx", **options, **({"location": "model.data"} if one_file else {}))


def run(path: Path, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found: list[NDArray[Any]] = session.run(None, feeds)
    return found


PROTO = model_of(weight("first.weight", 1000), weight("first.bias", 1), weight("second.weight", 1000, start=7))


# where a model comes from


def from_torch(folder: Path) -> tuple[ModelLike, dict[str, NDArray[Any]]]:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 4)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        program = torch.onnx.export(module, (torch.zeros(1, 32),), dynamo=True, verbose=False)
    return program, {name: value.numpy() for name, value in module.state_dict().items()}


SOURCES: dict[str, Callable[[Path], ModelLike]] = {
    "file": lambda folder: saved(PROTO, folder / "model.onnx"),
    "name of a file": lambda folder: str(saved(PROTO, folder / "model.onnx")),
    "external data": lambda folder: external(PROTO, folder),
    "external data in many files": lambda folder: external(PROTO, folder, one_file=False),
    "bytes": lambda _: PROTO.SerializeToString(),
    "ModelProto": lambda _: PROTO,
    "onnx_ir": lambda _: onnx_ir.from_proto(PROTO),
    "onnx_ir from a file": lambda folder: onnx_ir.load(saved(PROTO, folder / "model.onnx")),
    "onnx_ir with external data": lambda folder: onnx_ir.load(external(PROTO, folder)),
    "Model": lambda folder: load(saved(PROTO, folder / "model.onnx")),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_model(source: str, tmp_path: Path) -> None:
    model = load(SOURCES[source](tmp_path))
    assert model.tensor_names() == ["first.weight", "first.bias", "second.weight"]
    assert model.nbytes == 8004
    for tensor in PROTO.graph.initializer:
        array = model.tensor(tensor.name)
        assert np.array_equal(array, numpy_helper.to_array(tensor))
        assert not array.flags.writeable
    assert not any(len(tensor.raw_data) >= 1024 for tensor in model.proto.graph.initializer)
    assert [node.SerializeToString() for node in model.proto.graph.node] == [
        node.SerializeToString() for node in PROTO.graph.node
    ]


@pytest.mark.parametrize("external_data", [None, True, "other.bin"], ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_saving_from_every_source_keeps_the_values(
    source: str, external_data: bool | str | None, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    model = load(SOURCES[source](tmp_path / "in"))
    path = model.save(tmp_path / "out" / "copy.onnx", external_data=external_data)
    names = {None: [], True: ["copy.onnx.data"], "other.bin": ["other.bin"]}[external_data]
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["copy.onnx", *names]
    onnx.checker.check_model(path, full_check=True)
    again = onnx.load(path)
    assert [numpy_helper.to_array(tensor).tolist() for tensor in again.graph.initializer] == [
        numpy_helper.to_array(tensor).tolist() for tensor in PROTO.graph.initializer
    ]
    (found,) = run(path, {"x": np.ones(1, np.float32)})
    assert np.array_equal(found, 1 + np.arange(1000, dtype=np.float32) + np.arange(7, 1007, dtype=np.float32))


@pytest.mark.parametrize("source", SOURCES)
def test_a_proto_with_its_weights_inside(source: str, tmp_path: Path) -> None:
    proto = load(SOURCES[source](tmp_path)).to_proto()
    onnx.checker.check_model(proto)
    expected = copy.deepcopy(PROTO)
    for tensor in (*proto.graph.initializer, *expected.graph.initializer):
        tensor.raw_data = numpy_helper.to_array(tensor).tobytes()
    assert list(proto.graph.initializer) == list(expected.graph.initializer)


def test_a_file_and_its_copy_are_the_same_to_the_byte(tmp_path: Path) -> None:
    path = saved(PROTO, tmp_path / "model.onnx")
    assert load(path).save(tmp_path / "copy.onnx").read_bytes() == path.read_bytes()


def test_an_onnx_program_of_torch(tmp_path: Path) -> None:
    program, weights = from_torch(tmp_path)
    model = load(program)
    for name, value in weights.items():
        assert np.array_equal(model.tensor(name), value)
    path = model.save(tmp_path / "copy.onnx")
    onnx.checker.check_model(path, full_check=True)
    assert np.isfinite(run(path, {model.proto.graph.input[0].name: np.ones((1, 32), np.float32)})[0]).all()


def test_external_data_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mixed = copy.deepcopy(PROTO)
    path = external(mixed, tmp_path / "data").replace(tmp_path / "model.onnx")
    with pytest.raises(
        ExternalDataError, match=r"'first.weight' of model.onnx.*'model.data', which is not in.*data_dir"
    ):
        load(path).tensor("first.weight")
    for model in (load(path, data_dir=tmp_path / "data"), load(load(path), data_dir=tmp_path / "data")):
        assert np.array_equal(model.tensor("first.weight"), np.arange(1000))
    proto = onnx.load(path, load_external_data=False)
    assert np.array_equal(load(proto, data_dir=tmp_path / "data").tensor("first.weight"), np.arange(1000))
    with pytest.raises(ExternalDataError, match="a model from memory has no folder"):
        load(proto).tensor("first.weight")
    with pytest.raises(ExternalDataError, match=r"data_dir .*nowhere.* is not a folder"):
        load(path, data_dir=tmp_path / "nowhere")


def test_weights_inside_and_outside_one_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "model.onnx"
    proto = copy.deepcopy(PROTO)
    outside = proto.graph.initializer[0]
    (tmp_path / "data" / "w.bin").write_bytes(outside.raw_data)
    onnx.external_data_helper.set_external_data(outside, "w.bin")
    outside.ClearField("raw_data")
    path.write_bytes(proto.SerializeToString())
    model = load(path, data_dir=tmp_path / "data")
    assert np.array_equal(model.tensor("first.weight"), np.arange(1000))
    assert np.array_equal(model.tensor("second.weight"), np.arange(7, 1007))
    assert onnx.load(model.save(tmp_path / "copy.onnx")) == PROTO


def test_loading_again_gives_the_same_object() -> None:
    model = load(PROTO)
    assert load(model) is model


def test_sources_are_not_changed(tmp_path: Path) -> None:
    proto = copy.deepcopy(PROTO)
    load(proto).save(tmp_path / "a.onnx", external_data=True)
    assert proto == PROTO
    ir = onnx_ir.from_proto(copy.deepcopy(PROTO))
    tensors = [value.const_value for value in ir.graph.initializers.values()]
    # a value may be named unlike the tensor it holds
    tensors[0].name = "another"  # type: ignore[union-attr]
    before = onnx_ir.to_proto(onnx_ir.from_proto(PROTO))
    load(ir).save(tmp_path / "b.onnx")
    assert tensors[0].name == "another"  # type: ignore[union-attr]
    assert [value.const_value for value in ir.graph.initializers.values()] == tensors
    assert onnx_ir.to_proto(ir) == before


def test_a_model_proto_is_not_copied_with_its_weights() -> None:
    size = 64 << 20
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[size], raw_data=bytes(size))
    script = (
        "import resource, sys, onnx; from onnx_nb.analysis.model.model import load;"
        "proto = onnx.ModelProto.FromString(sys.stdin.buffer.read());"
        "high = lambda: next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmHWM'));"
        "open('/proc/self/clear_refs', 'w').write('5');"
        "before = high(); model = load(proto); print(high() - before)"
    )
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux")
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=model_of(tensor).SerializeToString(),
        capture_output=True,
        check=True,
        cwd=models.ROOT,
    )
    assert int(done.stdout) < 20_000  # kB


@pytest.mark.parametrize("source", SOURCES)
def test_a_model_travels_to_another_process(source: str, tmp_path: Path) -> None:
    model = pickle.loads(pickle.dumps(load(SOURCES[source](tmp_path))))  # noqa: S301  # our own
    assert np.array_equal(model.tensor("second.weight"), np.arange(7, 1007))
    assert repr(model) == repr(load(SOURCES[source](tmp_path)))


def test_another_graph_finds_the_same_weights(tmp_path: Path) -> None:
    for source in (saved(PROTO, tmp_path / "model.onnx"), PROTO):
        model = load(source)
        part = ModelProto()
        part.CopyFrom(model.proto)
        del part.graph.node[1:], part.graph.initializer[1:]
        part.graph.output[0].name = "y0"
        sub = with_proto(model, part, "part")
        assert sub.path is None
        assert sub.nbytes == 4000
        path = sub.save(tmp_path / "part.onnx")
        assert path.stat().st_size < 4300
        onnx.checker.check_model(path, full_check=True)
        assert np.array_equal(run(path, {"x": np.zeros(1, np.float32)})[0], np.arange(1000))


def test_inputs_and_outputs_are_described() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[batch, 3] x, seq(int64[2]) s, float16[4] w) => (float[batch, ?] y, int8 z) <float16[4] w = {1, 2, 3, 4}>
    { y = Relu(x) z = Constant <value_int = 1> () }"""
    model = load(onnx.parser.parse_model(text))
    assert [(info.name, info.dtype, info.shape) for info in model.inputs] == [
        ("x", "float32", ("batch", 3)),
        ("s", "seq(int64 [2])", None),
    ]
    assert [(info.name, info.dtype, info.shape) for info in model.outputs] == [
        ("y", "float32", ("batch", None)),
        ("z", "int8", ()),
    ]


def test_public_attributes_of_a_model_are_few() -> None:
    public = {name for name in dir(load(PROTO)) if not name.startswith("_")}
    assert public == {
        *("inputs", "outputs", "name", "path", "proto", "initializers", "nbytes"),
        *("tensor", "tensor_names", "save", "to_proto"),
    }


def test_what_a_model_looks_like(tmp_path: Path) -> None:
    assert repr(load(saved(PROTO, tmp_path / "bert.onnx"))) == "Model('bert.onnx', 3 nodes, 8.0 kB, opset 21)"
    long = copy.deepcopy(PROTO)
    long.graph.name = "<b>\n" * 5000
    assert len(repr(load(long))) < 200
    assert repr(load(ModelProto())) == "Model('model', 0 nodes, 0 B, opset unknown)"


# what a model can hold

DTYPES = [name for name in TensorProto.DataType.keys() if name != "UNDEFINED"]  # noqa: SIM118  # a protobuf enum


def sample(name: str, size: int) -> TensorProto:
    """A tensor of all bit patterns of the type, made by onnx."""
    number = TensorProto.DataType.Value(name)
    rng = np.random.default_rng(number)
    if name == "STRING":
        strings: list[Any] = [f"s{i} é🙂".encode() for i in range(size)]
        return helper.make_tensor("w", number, [size], strings)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    bits = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}.get(name)
    if name == "BOOL":
        values = rng.integers(0, 2, size).astype(bool)
    elif bits is not None:
        values = (np.arange(size, dtype=np.uint8) % (1 << bits)).view(dtype)
    else:
        values = rng.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype)
    return numpy_helper.from_array(values, "w")


def equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Same type, shape and bits; NaN equals itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


@pytest.mark.parametrize("place", ["inside", "raw", "external"])
@pytest.mark.parametrize("size", [0, 1, 3, 6001])
@pytest.mark.parametrize("name", DTYPES)
def test_every_element_type_reads_as_onnx_reads_it(name: str, size: int, place: str, tmp_path: Path) -> None:
    tensor = sample(name, size)
    expected = numpy_helper.to_array(tensor)
    model = ModelProto(ir_version=onnx.IR_VERSION, opset_import=[helper.make_opsetid("", 21)])
    model.graph.name = "g"
    if place == "inside":
        source: ModelLike = model
    elif place == "raw":
        source = tmp_path / "model.onnx"
    elif name == "STRING":
        pytest.skip("strings cannot be external")
    else:
        source = tmp_path / "model.onnx"
        (tmp_path / "w.bin").write_bytes(bytes(13) + tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, "w.bin", 13, len(tensor.raw_data))
        tensor.ClearField("raw_data")
    model.graph.initializer.append(tensor)
    if isinstance(source, Path):
        source.write_bytes(model.SerializeToString())
    loaded = load(source)
    assert equal(loaded.tensor("w"), expected)
    again = onnx.load(loaded.save(tmp_path / "copy.onnx"))
    assert equal(numpy_helper.to_array(again.graph.initializer[0]), expected)
    if name != "STRING":
        assert loaded.nbytes == len(sample(name, size).raw_data)


@pytest.mark.parametrize("name", DTYPES)
def test_every_element_type_written_value_by_value(name: str) -> None:
    number = TensorProto.DataType.Value(name)
    values: list[Any] = [b"a", b"b", b"c", b"d"] if name == "STRING" else [1, 0, 1, 1]
    tensor = helper.make_tensor("w", number, [2, 2], values)
    assert not tensor.HasField("raw_data")
    model = load(model_of(tensor))
    assert equal(model.tensor("w"), numpy_helper.to_array(tensor))
    if name not in {"STRING", "INT2", "UINT2", "INT4", "UINT4", "FLOAT4E2M1"}:
        assert model.nbytes == 4 * model.tensor("w").dtype.itemsize


def test_a_type_without_a_name_says_so() -> None:
    proto = model_of(weight("w", 2))
    proto.graph.initializer[0].data_type = 99
    with pytest.raises(ModelFileError, match="'w' of sum has element type 99"):
        load(proto).tensor("w")


def test_a_string_that_is_no_text_is_shown_as_its_bytes() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a\xff"])
    assert load(model_of(tensor)).tensor("w").tolist() == ["a\\xff"]


def sparse_tensor(name: str, dims: list[int], indices: Any, values: list[float]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name),
        numpy_helper.from_array(np.array(indices, np.int64), ""),
        dims,
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["flat", "by dimension"])
def test_a_sparse_weight_is_given_dense(indices: Any) -> None:
    model = load(model_of(sparse=[sparse_tensor("s", [2, 3], indices, [5, 6])]))
    assert model.tensor("s").tolist() == [[0, 5, 0], [0, 0, 6]]
    assert model.tensor_names() == ["s"]
    info = model.initializers["s"]
    assert (info.shape, info.nbytes, info.sparse) == ((2, 3), 8 + 8 * np.size(indices), True)


@pytest.mark.parametrize(
    ("dims", "indices", "problem"),
    [
        ([10**6, 10**6], [1, 2], "4000.0 GB as a dense array"),
        ([2, -3], [1, 2], "negative dimension"),
        ([2, 3], [1, 6], "outside its shape"),
        ([2, 3], [-1, 5], "outside its shape"),
        ([2, 3], [[0, 1], [2, 0]], "outside its shape"),
        ([2, 3], [1, 2, 3], "do not fit each other"),
        ([2, 3], [[0, 0, 1], [0, 0, 1]], "do not fit each other"),
    ],
)
def test_a_broken_sparse_weight(dims: list[int], indices: Any, problem: str) -> None:
    with pytest.raises(ModelFileError, match=f"sparse weight 's' of sum .*{problem}"):
        load(model_of(sparse=[sparse_tensor("s", dims, indices, [5, 6])])).tensor("s")


@pytest.mark.parametrize("make", [models.control_flow, models.functions, models.empty, models.one_node])
def test_bodies_and_functions_are_kept(make: Callable[[], Path], tmp_path: Path) -> None:
    path = make()
    model = load(path)
    assert model.to_proto() == onnx.load(path)
    assert onnx.load(model.save(tmp_path / "copy.onnx")) == onnx.load(path)


def everywhere(folder: Path) -> Path:
    """External data in a Constant node, an If branch, a function, a sparse weight and the main graph."""
    branch = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["picked"])],
        "branch",
        [],
        [helper.make_tensor_value_info("picked", TensorProto.FLOAT, [1000])],
        [weight("inner", 1000, 1)],
    )
    nodes = [
        helper.make_node("Constant", [], ["constant"], value=weight("value", 1000, 2)),
        helper.make_node("If", ["condition"], ["chosen"], then_branch=branch, else_branch=branch),
        helper.make_node("F", ["chosen"], ["called"], domain="local"),
        helper.make_node("Sum", ["constant", "called", "main", "x"], ["y"]),
    ]
    function = helper.make_function(
        "local",
        "F",
        ["a"],
        ["c"],
        [
            helper.make_node("Constant", [], ["b"], value=weight("f", 1000, 3)),
            helper.make_node("Add", ["a", "b"], ["c"]),
        ],
        [helper.make_opsetid("", 21)],
    )
    graph = helper.make_graph(
        nodes,
        "everywhere",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1000])],
        [weight("main", 1000, 4)],
        sparse_initializer=[sparse_tensor("s", [1000], list(range(500)), [1.0] * 500)],
    )
    proto = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("local", 1)],
        ir_version=10,
    )
    data = b""
    for tensor in all_tensors(proto):
        onnx.external_data_helper.set_external_data(tensor, "data", len(data), len(tensor.raw_data))
        data += tensor.raw_data
        tensor.ClearField("raw_data")
    folder.mkdir()
    (folder / "data").write_bytes(data)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("external_data", [False, True])
def test_external_data_is_found_wherever_a_model_can_hold_it(external_data: bool, tmp_path: Path) -> None:
    path = everywhere(tmp_path / "in")
    model = load(path)
    assert np.array_equal(model.tensor("s")[:500], np.ones(500))
    (tmp_path / "out").mkdir()
    copied = model.save(tmp_path / "out" / "copy.onnx", external_data=external_data)
    shutil.rmtree(tmp_path / "in")
    expected = [(1, 1000), (2, 1000), (3, 1000), (4, 1000)]
    proto = onnx.load(copied)
    everything = all_tensors(proto)
    found = {tensor.name: numpy_helper.to_array(tensor, str(copied.parent)) for tensor in everything}
    for name, (start, size) in zip(("inner", "value", "f", "main"), expected, strict=True):
        assert np.array_equal(found[name], np.arange(start, start + size))
    assert len(list(copied.parent.iterdir())) == 1 + external_data


@pytest.mark.parametrize("name", models.LIGHT)
def test_the_light_models_of_onnx(name: str, tmp_path: Path) -> None:
    path = models.light(name)
    expected = onnx.load(path)
    model = load(path)
    assert model.proto.ir_version == 3
    assert model.to_proto() == expected
    copied = model.save(tmp_path / "copy.onnx")
    assert onnx.load(copied) == expected
    assert load(load(copied).save(tmp_path / "again.onnx")).to_proto() == expected


def test_every_model_of_onnxs_own_backend_tests(tmp_path: Path) -> None:
    paths = sorted(BACKEND.rglob("*.onnx"))
    assert len(paths) > 100
    for path in paths:
        expected = onnx.load(path)
        model = load(path)
        assert model.to_proto() == expected, path
        for tensor in expected.graph.initializer:
            assert equal(model.tensor(tensor.name), numpy_helper.to_array(tensor)), path
        assert load(expected).to_proto() == expected, path
        assert onnx.load(model.save(tmp_path / "copy.onnx")) == expected, path


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # while onnx makes them
def test_every_generated_case_of_onnxs_backend_tests() -> None:
    from onnx.backend.test.loader import load_model_tests

    count = 0
    for case in load_model_tests(kind="node"):
        if case.model is None and case.model_dir is not None:
            path = Path(case.model_dir) / "model.onnx"
            assert load(path).to_proto() == onnx.load(path)
            count += 1
        elif case.model is not None:
            assert load(case.model.SerializeToString()).to_proto() == case.model, case.name
            count += 1
    if count == 0:
        pytest.skip("this onnx package generates its node tests elsewhere")


@pytest.mark.parametrize("ir_version", range(3, onnx.IR_VERSION + 1))
def test_ir_versions(ir_version: int, tmp_path: Path) -> None:
    proto = model_of(weight("w", 1000), ir_version=ir_version)
    if ir_version < 4:
        proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1000]))
    path = load(saved(proto, tmp_path / "model.onnx")).save(tmp_path / "copy.onnx")
    onnx.checker.check_model(path)
    assert onnx.load(path) == proto


# reading and writing


def test_only_the_bytes_of_one_weight_are_mapped(tmp_path: Path) -> None:
    model = load(saved(PROTO, tmp_path / "model.onnx"))
    array = model.tensor("second.weight")
    assert array.base is not None
    assert not array.flags.owndata
    data = (tmp_path / "model.onnx").read_bytes()
    info = model.initializers["second.weight"]
    assert info.offset is not None
    assert data[info.offset : info.offset + info.nbytes] == array.tobytes()


def test_a_thousand_weights_take_no_thousand_file_handles(tmp_path: Path) -> None:
    model = load(saved(model_of(*(weight(f"w{i}", 300) for i in range(1000))), tmp_path / "model.onnx"))
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux")
    before = len(list(Path("/proc/self/fd").iterdir()))
    arrays = [model.tensor(name) for name in model.tensor_names()]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    del arrays
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_names_by_pattern() -> None:
    model = load(PROTO)
    assert model.tensor_names("*.weight") == ["first.weight", "second.weight"]
    assert model.tensor_names("nothing*") == []


def test_a_wrong_name_is_answered_with_the_closest() -> None:
    model = load(PROTO)
    with pytest.raises(
        OnnxNbError, match=r"'frst.weight' is not in sum. Closest names: 'first.weight'.*tensor_names\('"
    ):
        model.tensor("frst.weight")
    with pytest.raises(OnnxNbError, match="'y0' of sum is not a weight: Add 'add0' computes it"):
        model.tensor("y0")
    with pytest.raises(OnnxNbError, match="'x' of sum is not a weight: it is an input"):
        model.tensor("x")
    with pytest.raises(OnnxNbError, match="tensor 'zzz' is not in model"):
        load(ModelProto()).tensor("zzz")


def test_a_saved_file_is_an_ordinary_one(tmp_path: Path) -> None:
    path = load(PROTO).save(tmp_path / "copy.onnx", external_data=True)
    mask = os.umask(0)
    os.umask(mask)
    for written in (path, tmp_path / "copy.onnx.data"):
        assert stat.S_IMODE(written.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("how", ["name", "link", "hard link", "data", "longer way"])
def test_a_file_that_is_read_from_is_not_overwritten(how: str, tmp_path: Path) -> None:
    path = external(PROTO, tmp_path) if how == "data" else saved(PROTO, tmp_path / "model.onnx")
    before = {entry: entry.read_bytes() for entry in tmp_path.iterdir()}
    target = {"data": tmp_path / "model.data", "longer way": tmp_path / ".." / tmp_path.name / "model.onnx"}.get(
        how, path
    )
    if how == "link":
        target = tmp_path / "link.onnx"
        target.symlink_to(path)
    elif how == "hard link":
        target = tmp_path / "link.onnx"
        target.hardlink_to(path)
    model = load(path)
    part = with_proto(model, model.proto)
    for each in (model, part):
        with pytest.raises(ModelFileError, match=r"is read from it\. Save under another name"):
            each.save(target)
    with pytest.raises(ModelFileError, match="is read from it"):
        model.save(tmp_path / "copy.onnx", external_data=target.name)
    assert {entry: entry.read_bytes() for entry in before} == before
    assert not (tmp_path / "copy.onnx").exists()


def test_a_save_that_fails_leaves_everything_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "copy.onnx"
    target.write_bytes(b"from before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wire, "write", full)
    for external_data in (None, True):
        with pytest.raises(ModelFileError, match=r"copy.onnx.*cannot be written: No space left on device"):
            load(PROTO).save(target, external_data=external_data)
        assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"from before"


def test_an_interrupted_save_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wire, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(PROTO).save(tmp_path / "copy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_from_before_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "copy.onnx"
    target.write_bytes(b"from before")
    assert onnx.load(load(PROTO).save(str(target))) == PROTO


@pytest.mark.parametrize("external_data", ["", "../out.bin", "a/b", "copy.onnx"])
def test_weights_go_only_beside_the_model(external_data: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"cannot hold the weights|is read from it"):
        load(PROTO).save(tmp_path / "copy.onnx", external_data=external_data)
    assert list(tmp_path.iterdir()) == []


def test_places_where_nothing_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder"):
        load(PROTO).save(tmp_path)
    with pytest.raises(ModelFileError, match=r"the folder .*nowhere.* does not exist"):
        load(PROTO).save(tmp_path / "nowhere" / "copy.onnx")
    with pytest.raises(ModelFileError, match="cannot be written: File name too long"):
        load(PROTO).save(tmp_path / ("n" * 300))


def test_more_than_two_gigabytes_go_to_external_data_by_themselves(tmp_path: Path) -> None:
    half = 1 << 30
    folder = tmp_path / "in"
    folder.mkdir()
    with (folder / "weights").open("xb") as file:
        file.write(b"first")
        file.seek(2 * half)
        file.write(b"second")
        file.truncate(2 * half + half // 2)
    proto = model_of()
    for name, offset, size in (("a", 0, 2 * half), ("b", 2 * half, half // 2)):
        tensor = proto.graph.initializer.add(name=name, data_type=TensorProto.UINT8, dims=[size])
        storage.refer(tensor, "weights", offset, size)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    model = load(folder / "model.onnx")
    with pytest.raises(ModelFileError, match="at most 2 GB"):
        model.to_proto()
    with pytest.raises(ModelFileError, match=r"one .onnx file holds at most 2 GB"):
        model.save(tmp_path / "big.onnx", external_data=False)
    path = model.save(tmp_path / "big.onnx")
    data = tmp_path / "big.onnx.data"
    assert path.stat().st_size < 1000
    assert data.stat().st_size == 2 * half + half // 2
    assert data.stat().st_blocks * 512 < half // 8  # zeros became a hole
    again = load(path)
    assert again.tensor("a")[:5].tobytes() == b"first"
    assert again.tensor("b")[:6].tobytes() == b"second"
    assert again.tensor("b").shape == (half // 2,)
    onnx.checker.check_model(path)


def test_a_file_changed_after_loading_is_noticed(tmp_path: Path) -> None:
    path = saved(PROTO, tmp_path / "model.onnx")
    model = load(path)
    model.tensor("first.weight")
    saved(model_of(weight("first.weight", 2000)), path)
    with pytest.raises(
        ModelFileError, match=r"model.onnx.* was changed after the model was loaded. Load the model again"
    ):
        model.tensor("first.weight")
    with pytest.raises(ModelFileError, match="was changed after"):
        model.save(tmp_path / "copy.onnx")
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be opened: No such file"):
        model.tensor("first.weight")


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("size", [1000, 2000, 4000])
def test_a_model_written_again_is_not_run_on_other_bytes(tmp_path: Path, size: int, *, separate: bool) -> None:
    def written(size: int) -> Path:
        value = onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Neg", ["w"], ["y"])], "g" * size, [], [value], [weight("w", size)]
        )
        proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / "model.onnx"
        (tmp_path / "model.data").unlink(missing_ok=True)  # onnx would append to it
        onnx.save(proto, path, save_as_external_data=separate, location="model.data", size_threshold=0)
        return path

    model = load(written(2000))
    os.utime(written(size), ns=(1, 1))  # also where the clock is too coarse to tell
    for use in (
        onnx_nb.run,
        onnx_nb.capture,
        lambda m: onnx_nb.compare(m, m),
        lambda m: m.save(tmp_path / "copy.onnx"),
    ):
        with pytest.raises(OnnxNbError, match=r"weight 'w'.*model.onnx' was changed after.* Load the model again"):
            use(model)
    assert not onnx_nb.external_data.audit(model).ok


def test_a_proto_changed_after_loading_is_noticed() -> None:
    proto = copy.deepcopy(PROTO)
    model = load(proto)
    proto.graph.initializer[0].raw_data = b"short"
    with pytest.raises(ModelFileError, match="has 5 bytes, and had 4000 when the model was loaded"):
        model.tensor("first.weight")


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    external(PROTO, tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    model = load("a/model.onnx")
    monkeypatch.chdir(tmp_path / "a")
    assert np.array_equal(model.tensor("first.weight"), np.arange(1000))


# bad input


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert load(PROTO).save("~/saved.onnx") == tmp_path / "saved.onnx"
    assert load("~/saved.onnx").path == tmp_path / "saved.onnx"
    assert convert(PROTO, "~/outside.onnx") == tmp_path / "outside.onnx"
    assert inline("~/outside.onnx", "~/inside.onnx") == tmp_path / "inside.onnx"
    assert load((tmp_path / "outside.onnx").read_bytes(), data_dir="~").name
    assert not Path("~").exists(), "no folder of that name"
    assert path_of("~nobody-has-this-name/x") == Path("~nobody-has-this-name/x")


def test_a_missing_file_is_answered_with_the_closest(tmp_path: Path) -> None:
    saved(PROTO, tmp_path / "resnet50.onnx")
    with pytest.raises(ModelFileError, match=r"there is no file '.*resnet.onnx'. Closest names: 'resnet50.onnx'"):
        load(tmp_path / "resnet.onnx")
    with pytest.raises(ModelFileError, match="there is no file"):
        load(tmp_path / "no" / "folder.onnx")
    with pytest.raises(ModelFileError, match=r"'https://example\.com/model\.onnx' is a web address"):
        load("https://example.com/model.onnx")
    for name in ("nul\0.onnx", "n" * 5000, ""):
        with pytest.raises(ModelFileError):
            load(name)


def test_a_folder_opens_its_model_or_lists_several(tmp_path: Path) -> None:
    saved(PROTO, tmp_path / "resnet50.onnx")
    assert load(tmp_path).path == tmp_path / "resnet50.onnx"
    saved(PROTO, tmp_path / "vgg.onnx")
    with pytest.raises(ModelFileError, match=r"is a folder\. Models in it: 'resnet50.onnx', 'vgg.onnx'"):
        load(tmp_path)


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero", "/dev/null"):
        with pytest.raises(ModelFileError, match="is not an ordinary file"):
            load(path)
    proto = model_of(weight("w", 1000))
    storage.refer(proto.graph.initializer[0], "pipe.onnx", 0, 4000)
    proto.graph.initializer[0].ClearField("raw_data")
    with pytest.raises(ExternalDataError, match=r"'w' of sum: .*pipe.onnx' is not an ordinary file"):
        load(proto, data_dir=tmp_path).tensor("w")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = saved(PROTO, tmp_path / "model.onnx")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
        load(path)


def test_what_is_no_model_at_all() -> None:
    with pytest.raises(TypeError, match=r"not builtins.int"):
        load(3)  # type: ignore[arg-type]

    class Module:
        state_dict = None

    with pytest.raises(TypeError, match=r"onnx_nb\.compare_torch"):
        load(Module())  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["file", "bytes"])
def test_a_truncated_model_is_refused(form: str, tmp_path: Path) -> None:
    data = PROTO.SerializeToString()
    path = tmp_path / "model.onnx"
    for cut in [*range(200), *range(200, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:cut])
        with pytest.raises(ModelFileError, match=r"only a part of one|is empty"):
            load(path if form == "file" else data[:cut])


SMALL = model_of(weight("w", 300), weight("v", 2)).SerializeToString()


@given(changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=400, deadline=None)
def test_a_damaged_model_gives_a_model_or_our_error(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    # most of the file is weights, where nothing can go wrong: change the rest
    structure = [*range(200), *range(len(SMALL) - 150, len(SMALL))]
    for position, byte in changes:
        data[structure[position % len(structure)]] = byte
    try:
        model = load(bytes(data))
        assert repr(model).isprintable()
        for name in model.tensor_names():
            model.tensor(name)
        model.to_proto()
    except OnnxNbError:
        return


@given(
    dims=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    data_type=st.integers(-1, 40),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "raw_data": st.binary(max_size=20),
            "float_data": st.lists(st.floats(width=32), max_size=5),
            "int32_data": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
            "int64_data": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
            "uint64_data": st.lists(st.integers(0, 2**64 - 1), max_size=5),
            "double_data": st.lists(st.floats(), max_size=5),
            "string_data": st.lists(st.binary(max_size=5), max_size=5),
        },
    ),
)
@settings(max_examples=400, deadline=None)
def test_any_tensor_gives_values_or_our_error(dims: list[int], data_type: int, fields: dict[str, Any]) -> None:
    tensor = TensorProto(name="w", dims=dims, data_type=data_type, **fields)
    model = load(model_of(tensor))
    assert model.nbytes <= wire.PROTO_LIMIT
    try:
        array = model.tensor("w")
    except ModelFileError as error:
        problem = str(error)
    else:
        assert array.shape == tuple(dims)
        return
    assert "'w' of sum" in problem


def with_entries(**entries: str) -> ModelProto:
    proto = model_of(weight("w", 1000))
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return proto


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"offset": "-4096"}, "offset '-4096', which is not a number"),
        ({"offset": "1e3"}, "offset '1e3', which is not a number"),
        ({"offset": "\u0664"}, "which is not a number"),
        ({"offset": "9" * 5000}, "which is not a number"),
        ({"offset": "4097"}, "is at bytes 4097 to 8097 of 'data', which has only 5000"),
        ({"offset": "9000000000000000000"}, "which has only 5000"),
        ({"length": "-1"}, "length '-1', which is not a number"),
        ({"length": "3999"}, r"has 3999 bytes of external data, but FLOAT with shape \[1000\] takes 4000"),
        ({"length": "9000000000000000000"}, "takes 4000"),
        ({"location": "dta"}, "'dta', which is not in .* Closest names: 'data'.*data_dir"),
        ({"location": ""}, "without a usable location"),
        ({"location": "a\0b"}, "without a usable location"),
        ({"location": "/etc/passwd"}, "leads out of the model's folder"),
        ({"location": "C:\\data"}, "leads out of the model's folder"),
        ({"location": "\\\\server\\data"}, "leads out of the model's folder"),
        ({"location": "../data"}, "leads out of the model's folder"),
        ({"location": "sub/../../data"}, "leads out of the model's folder"),
        ({"location": "sub\\..\\..\\data"}, "leads out of the model's folder"),
        ({"location": "outside"}, "a symbolic link that leads out of the model's folder"),
        ({"location": "linked/secret"}, "a symbolic link that leads out of the model's folder"),
        ({"location": "loop"}, "cannot be used|cannot be opened|is not in"),
        ({"location": "n" * 5000}, "cannot be used: File name too long"),
        ({"location": "sub"}, "is not an ordinary file"),
        ({"location": "onnx_nb.memory/0"}, "is not in"),
        ({"location": "*/_ORT_MEM_ADDR_/*", "offset": "4096"}, "is not in"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_external_data_is_not_trusted(entries: dict[str, str], problem: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(5000))
    (folder / "data").write_bytes(bytes(5000))
    (folder / "outside").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    path = folder / "model.onnx"
    path.write_bytes(with_entries(**entries).SerializeToString())
    model = load(path)
    assert repr(model)
    for use in (
        lambda: model.tensor("w"),
        lambda: model.save(tmp_path / "copy.onnx"),
        model.to_proto,
        lambda: for_onnxruntime(model),
    ):
        with pytest.raises(ExternalDataError, match=f"(?s)weight 'w' of model.onnx.*({problem})"):
            use()
    assert not (tmp_path / "copy.onnx").exists()


def test_links_within_the_folder_and_below_it_are_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    (tmp_path / "link").symlink_to("sub/data")
    for location in ("link", "sub/data", "./sub/data"):
        model = load(with_entries(location=location), data_dir=tmp_path)
        assert np.array_equal(model.tensor("w"), np.arange(1000))


def test_a_hub_cache_of_links_is_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "aaaa").write_bytes(with_entries().SerializeToString())
    (blobs / "bbbb").write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    (tmp_path / "secret").write_bytes(bytes(4000))
    (snapshot / "model.onnx").symlink_to("../../../blobs/aaaa")
    (snapshot / "data").symlink_to("../../../blobs/bbbb")
    model = load(snapshot / "model.onnx")
    assert np.array_equal(model.tensor("w"), np.arange(1000))
    assert model.name == "model.onnx"
    unread = load(snapshot / "model.onnx")
    assert np.array_equal(with_proto(unread, unread.proto, "made of it").tensor("w"), np.arange(1000))
    onnx.checker.check_model(model.save(tmp_path / "copy.onnx"))
    (snapshot / "data").unlink()
    (snapshot / "data").symlink_to("../../../secret")
    with pytest.raises(ExternalDataError, match="leads out of the model's folder"):
        load(snapshot / "model.onnx").tensor("w")


def test_a_missing_length_means_what_the_shape_takes(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(np.arange(2000, dtype=np.float32).tobytes())
    model = load(with_entries(offset="16"), data_dir=tmp_path)
    assert np.array_equal(model.tensor("w"), np.arange(4, 1004))
    assert model.nbytes == 4000


@pytest.mark.parametrize(
    ("dims", "problem"),
    [
        ([10**9, 10**9], "takes 4000000000000000000"),
        ([-1], "negative dimension"),
        ([999], "has 4000 bytes, but FLOAT with shape"),
        ([2**62, 2**62, 2**62], "takes"),
        ([0], "takes 0"),
    ],
)
@pytest.mark.parametrize("form", ["proto", "file"])
def test_a_shape_that_does_not_fit_the_bytes(dims: list[int], problem: str, form: str, tmp_path: Path) -> None:
    proto = model_of(weight("w", 1000))
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend(dims)
    model = load(proto if form == "proto" else proto.SerializeToString())
    assert model.nbytes == 4000
    with pytest.raises(OnnxNbError, match=f"'w' of sum.*({problem}|has 4000 bytes)"):
        model.tensor("w")


def test_names_of_any_kind(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "🙂", "line\nbreak", "n" * 10_000, "%s {0}", "\u202e\x00", " "]
    proto = model_of(*(weight(name, 400) for name in names))
    model = load(load(saved(proto, tmp_path / "🙂 <b>.onnx")).save(tmp_path / "line\nbreak.onnx"))
    assert model.tensor_names() == names
    for name in names:
        assert np.array_equal(model.tensor(name), np.arange(400))
    with pytest.raises(OnnxNbError) as error:
        model.tensor("m" * 10_000)
    assert len(str(error.value)) < 2000
    assert "\n" not in str(error.value)


def test_a_name_that_is_no_text_is_shown_as_its_bytes() -> None:
    proto = model_of(weight("name", 400))
    proto.graph.name = "name"
    data = proto.SerializeToString().replace(b"name", b"\xff\xfem\x80")
    for model in (load(data), load(ModelProto.FromString(data))):
        assert model.tensor_names() == ["\\xff\\xfem\\x80"]
        assert np.array_equal(model.tensor("\\xff\\xfem\\x80"), np.arange(400))
        assert model.to_proto().SerializeToString() == data
        with pytest.raises(OnnxNbError):
            model.tensor("other")


def test_of_two_weights_of_one_name_the_last_counts() -> None:
    # as in onnxruntime
    assert load(model_of(weight("w", 1000), weight("w", 1000, 5))).tensor("w")[0] == 5


def test_graphs_nested_too_deeply_are_refused() -> None:
    graph = onnx.GraphProto(name="innermost")
    for _ in range(60):
        outer = onnx.GraphProto()
        outer.node.add(op_type="If").attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g.CopyFrom(graph)
        graph = outer
    proto = ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 17)])
    proto.graph.CopyFrom(graph)
    with pytest.raises(ModelFileError, match="nests graphs more deeply than protobuf can read"):
        load(proto.SerializeToString())


def test_threads_see_one_mapping(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = load(saved(model_of(*(weight(f"w{i}", 300, i) for i in range(200))), tmp_path / "model.onnx"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: int(model.tensor(f"w{i}")[0]), list(range(200)) * 5))
    assert found == list(range(200)) * 5


def test_loading_imports_neither_onnxruntime_nor_torch_nor_onnx_ir(tmp_path: Path) -> None:
    path = saved(PROTO, tmp_path / "model.onnx")
    script = (
        "import sys; from onnx_nb.analysis.model.model import load; load(sys.argv[1]).tensor('first.weight');"
        "print(*{'onnxruntime', 'torch', 'onnx_ir', 'IPython', 'matplotlib'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script, path], check=True, cwd=models.ROOT, capture_output=True)
    assert done.stdout == b"\n"


def test_types_of_ml_dtypes_are_the_ones_handed_out() -> None:
    assert tensors.numpy_dtype(TensorProto.BFLOAT16) == np.dtype(ml_dtypes.bfloat16)
    for name in DTYPES:
        assert tensors.numpy_dtype(TensorProto.DataType.Value(name)) is not None, name
    assert isinstance(load(PROTO), Model)


@pytest.mark.parametrize("levels", [10, 300])
def test_graphs_nested_in_memory_are_loaded_or_refused_clearly(levels: int) -> None:
    proto = onnx.ModelProto(ir_version=8, opset_import=[onnx.helper.make_opsetid("", 17)])
    graph = proto.graph
    for _ in range(levels):
        node = graph.node.add(op_type="If", input=["c"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    if levels == 10:
        assert load(proto).proto == proto
    else:
        with pytest.raises(ModelFileError, match="nests graphs more deeply than protobuf can read"):
            load(proto)
