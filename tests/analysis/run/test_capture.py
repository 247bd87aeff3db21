"""Captured values are what onnxruntime gives with every value added as an output, in less memory."""

from __future__ import annotations

import concurrent.futures
import gc
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_nb.analysis.errors import CaptureError, FeedError, OnnxNbError
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.capture import capture
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.run.statistics import Statistics
from onnx_nb.analysis.run.value_recorder import ITERATIONS_KEPT
from tests import dags as random_models
from tests import models
from tests.conformance.cases import same_bits
from tests.depth import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_nb
    from onnx_nb.analysis.model.model import ModelLike

RANDOM = np.random.default_rng(0)


def parsed(text: str, opset: int = 18) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


def truth(model: ModelLike, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of the main graph, as onnxruntime gives it when all are outputs."""
    loaded = load(model)
    made = [name for node in loaded.proto.graph.node for name in node.output if name]
    return session.run_session(session.create(loaded, optimize=False, outputs=made), feeds)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if one.dtype.kind in "OU":
        return bool(one.shape == other.shape and (one == other).all())
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())


def check(model: ModelLike, feeds: Mapping[str, Any], **options: Any) -> None:
    expected = truth(model, feeds)
    cap = capture(model, feeds, keep="*", **options)
    assert set(expected) <= set(cap.names)
    assert [name for name in expected if not same(cap[name], expected[name])] == []
    for name, values in expected.items():
        if not isinstance(values, list) and values.nbytes <= 1 << 20:
            assert cap.statistics(name) == Statistics.of(values), name


def image(model: str) -> dict[str, Any]:
    """One picture, as the light models take it."""
    graph = onnx.load(models.light(model)).graph
    weights = {weight.name for weight in graph.initializer}
    entry = next(info for info in graph.input if info.name not in weights)
    shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
    return {entry.name: RANDOM.standard_normal(shape).astype(np.float32)}


TOKENS = {"input_ids": RANDOM.integers(0, 100, (2, 7)), "attention_mask": np.ones((2, 7), np.int64)}
PICTURES = {"pixel_values": RANDOM.standard_normal((1, 3, 224, 224)).astype(np.float32)}


HEAVY = {"bvlc_alexnet", "vgg19", "zfnet512"}  # large weights, and operators that the others have, too


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rare] if name in HEAVY else []) for name in models.LIGHT]
)
def test_bit_identical_to_adding_every_output_light(name: str) -> None:
    check(models.light(name), image(name))


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize(("name", "feeds"), [("resnet50", PICTURES), ("bert", TOKENS), ("llama", TOKENS)])
def test_bit_identical_to_adding_every_output_exported(name: str, feeds: dict[str, Any], dynamo: bool) -> None:
    check(models.exported(name, dynamo=dynamo), feeds)


@pytest.mark.parametrize("limit", [None, 1000])
def test_bit_identical_to_adding_every_output(limit: int | None) -> None:
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    check(models.chain(300), {"x": x}, memory_limit=limit)
    check(models.functions(), {"x": x[0, :, :3]}, memory_limit=limit)
    for flag in (True, False):
        feeds = {"x": x[0, :2, :3].copy(), "flag": np.array(flag)}
        check(models.control_flow(), feeds, memory_limit=limit)
        check(models.control_flow(), feeds, memory_limit=limit, bodies=True)
    check(models.one_node(), {"x": x[0, 0, :2]})


# numpy has no such type of its own: float64 to it and back is exact enough to compare bits
TYPES = {
    kind: helper.tensor_dtype_to_np_dtype(kind)
    for kind in TensorProto.DataType.values()
    if kind not in (TensorProto.UNDEFINED, TensorProto.STRING)
}


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
def test_every_type_is_captured(kind: int) -> None:
    values = np.array([0, 1, 1, 0, 1]).astype(TYPES[kind])
    nodes = [
        helper.make_node("Constant", [], ["c"], "c", value=numpy_helper.from_array(values)),
        helper.make_node("Identity", ["c"], ["i"], "i"),
        helper.make_node("Identity", ["w"], ["j"], "j"),
        helper.make_node("Reshape", ["i", "shape"], ["y"], "r"),
    ]
    weights = [numpy_helper.from_array(values, "w"), numpy_helper.from_array(np.array([5, 1]), "shape")]
    graph = helper.make_graph(nodes, "types", [], [onnx.ValueInfoProto(name="y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    try:
        expected = truth(model, {})
    except OnnxNbError as error:
        with pytest.raises(CaptureError):
            capture(model)
        pytest.skip(f"onnxruntime: {error}")
    for limit in (1 << 20, 2):  # in memory, and in files
        cap = capture(model, keep="*", memory_limit=limit)
        for name, array in expected.items():
            assert same(cap[name], array)
            assert cap.statistics(name) == Statistics.of(array)
    assert same(cap["w"], values)


def test_strings_sequences_and_optionals_go_through() -> None:
    model = parsed(
        """g (string[2] s, float[2] x) => (string[2] t, seq(float[2]) q, float z) {
        t = Identity(s)  q = SequenceConstruct(x, x)  empty = SequenceEmpty()
        l = SequenceLength(q)  n = SequenceLength(empty)  one = Constant<value_int = 1>()  z = SequenceAt(q, one) }"""
    )
    feeds = {"s": np.array(["a", "ö"], object), "x": np.ones(2, np.float32)}
    for limit in (None, 1):
        cap = capture(model, feeds, keep="*", memory_limit=limit)
        assert cap["t"].tolist() == ["a", "ö"]
        assert [array.tolist() for array in cap["q"]] == [[1, 1], [1, 1]]
        assert cap["empty"] == []
        assert int(cap["l"]) == 2
        assert int(cap["n"]) == 0
        assert cap["z"].tolist() == [1, 1]
    assert cap.statistics("t").count == 2
    assert cap.statistics("q").mean == 1


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("limit", [None, 1])
def test_optional_values_that_are_there_or_not(there: bool, limit: int | None) -> None:
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    optional = helper.make_optional_type_proto(floats)
    nodes = [
        helper.make_node("Identity", ["o"], ["p"], "pass"),
        helper.make_node("Optional", ["x"], ["full"], "full"),
        helper.make_node("Optional", [], ["none"], "none", type=floats),
        *(
            helper.make_node("OptionalHasElement", [name], [f"has_{name}"], f"has_{name}")
            for name in ("p", "full", "none")
        ),
        helper.make_node("OptionalGetElement", ["full"], ["y"], "get"),
    ]
    outputs = [helper.make_tensor_value_info(f"has_{name}", TensorProto.BOOL, []) for name in ("p", "full", "none")]
    graph = helper.make_graph(
        nodes,
        "optional",
        [helper.make_value_info("o", optional), helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [*outputs, helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.ones(2, np.float32)
    cap = capture(model, {"o": x if there else None, "x": x}, keep="*", memory_limit=limit)
    assert [bool(cap[f"has_{name}"]) for name in ("p", "full", "none")] == [there, True, False]
    assert cap["y"].tolist() == [1, 1]
    assert cap["none"] is None
    assert (cap["p"] is None) == (not there)
    with pytest.raises(CaptureError, match="has no statistics"):
        cap.statistics("none")


UNARY = ("Relu", "Neg", "Sigmoid", "Identity", "Floor", "Softmax", "Sqrt")
BINARY = ("Add", "Mul", "Sub", "Div", "Max")


@st.composite
def arithmetic(draw: st.DrawFn) -> ModelProto:
    """Random graphs: some nodes read weights, Constant nodes or generated values, some results are read by nobody."""
    kind = draw(st.sampled_from([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16]))
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    value = numpy_helper.from_array(RANDOM.standard_normal(3).astype(dtype), "value")
    names, nodes = ["x", "w"], []
    for number in range(draw(st.integers(1, 25))):
        made = f"t{number}"
        which = draw(st.integers(0, 9))
        if which == 0:
            nodes.append(helper.make_node("Constant", [], [made], value=value))
        elif which == 1:
            nodes.append(
                helper.make_node("ConstantOfShape", ["shape"], [made], value=numpy_helper.from_array(np.ones(1, dtype)))
            )
        elif which < 6:
            nodes.append(helper.make_node(draw(st.sampled_from(UNARY)), [draw(st.sampled_from(names))], [made]))
        else:
            read = [draw(st.sampled_from(names)) for _ in range(2)]
            nodes.append(helper.make_node(draw(st.sampled_from(BINARY)), read, [made]))
        names.append(made)
    outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    weights = [
        numpy_helper.from_array(RANDOM.standard_normal(3).astype(dtype), "w"),
        numpy_helper.from_array(np.array([3]), "shape"),
    ]
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", kind, ["n"])],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@settings(max_examples=60)
@given(arithmetic(), st.sampled_from([None, 1, 60]), st.booleans())
def test_bit_identical_on_random_graphs(model: ModelProto, limit: int | None, times: bool) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feeds = {"x": np.array([-2.5, 0.5, 60000], np.float64).astype(dtype)}
    check(model, feeds, memory_limit=limit, times=times)


@settings(max_examples=40)
@given(arithmetic(), st.data())
def test_only_what_was_asked_for_runs(model: ModelProto, data: st.DataObject) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feeds = {"x": np.array([-2.5, 0.5, 7], np.float64).astype(dtype)}
    expected = truth(model, feeds)
    asked = data.draw(st.lists(st.sampled_from(list(expected)), min_size=1, max_size=3, unique=True))
    cap = capture(model, feeds, tensors=asked, keep=asked)
    assert set(cap.names) == set(asked)
    assert all(same(cap[name], expected[name]) for name in asked)
    needed, todo = set(), list(asked)
    makers = {name: node for node in model.graph.node for name in node.output}
    while todo:
        name = todo.pop()
        if name in makers and name not in needed:
            needed.add(name)
            todo.extend(makers[name].input)
    assert {makers_of.index for makers_of in cap.nodes} == {
        index for index, node in enumerate(model.graph.node) if node.output[0] in needed
    }


@examples(40)
@given(random_models.dags(), st.sampled_from([None, 1, 60]))
def test_bit_identical_on_models_of_every_kind(proto: ModelProto, limit: int | None) -> None:
    feeds = {value.name: random_models.FEEDS[value.name] for value in proto.graph.input}
    expected = random_models.all_values(proto)
    cap = capture(proto, feeds, keep="*", memory_limit=limit)
    assert expected.keys() <= {*cap.names}
    assert [name for name, value in expected.items() if not same_bits(cap[name], value)] == []


def test_inputs_weights_and_overridden_weights() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] x, float[2] w, float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    model = parsed(text)
    x, w = np.ones(2, np.float32), np.array([5, 6], np.float32)
    cap = capture(model, {"x": x}, keep="*")
    assert [cap[name].tolist() for name in ("x", "w", "y")] == [[1, 1], [1, 2], [2, 3]]
    cap = capture(model, {"x": x, "w": w}, keep="*")
    assert [cap[name].tolist() for name in ("x", "w", "y")] == [[1, 1], [5, 6], [6, 7]]
    x[:] = 9
    assert cap["x"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="read-only"):
        cap["y"][0] = 1


def test_an_empty_graph() -> None:
    cap = capture(models.empty())
    assert len(cap) == 0
    assert cap.nonfinite() is None
    assert cap.rows() == []
    assert repr(cap) == "Capture(0 values of 0 nodes)"


def test_weights_that_are_generated_are_made_when_they_are_read() -> None:
    """One after another, so that they need not be alive together."""
    layers = 6
    text = "".join(f" w{i} = ConstantOfShape(s)" for i in range(layers))
    text += "".join(f" t{i + 1} = Add(t{i}, w{i})" for i in range(layers))
    model = parsed(f"g (float[4] t0) => (float[4] t{layers}) <int64[1] s = {{4}}> {{ {text} }}")
    order = [node.index for node in capture(model, {"t0": np.ones(4, np.float32)}).nodes]
    assert order == [index for i in range(layers) for index in (i, layers + i)]


def test_random_operators_run_once() -> None:
    model = parsed(
        """g () => (float[100] y) { r = RandomNormal<shape = [100]>()
        a = Identity(r)  b = Neg(r)  c = Identity(a)  d = Identity(b)  y = Add(c, d) }"""
    )
    cap = capture(model, keep="*", memory_limit=1)
    assert same(cap["a"], cap["r"])
    assert not cap["y"].any()
    assert np.ptp(cap["r"]) > 0


# --- keeping --------------------------------------------------------------------------------------------------------

ABC = parsed("g (float[n] x) => (float[n] c) { a = Neg(x)  b = Exp(a)  c = Add(a, b) }")
X = {"x": np.arange(4, dtype=np.float32)}


def test_keep_names_patterns_and_functions() -> None:
    assert capture(ABC, X).array_names == []
    assert capture(ABC, X, keep="a").array_names == ["a"]
    assert capture(ABC, X, keep=["[bc]", "x"]).array_names == ["x", "b", "c"]
    cap = capture(ABC, X, keep=lambda name, array: name != "x" and array.max() > 0)
    assert cap.array_names == ["b", "c"]
    with pytest.raises(CaptureError, match=r"'a' was not kept, only its statistics\. Capture again with keep='a'"):
        cap["a"]
    with pytest.raises(CaptureError, match="Closest names"):
        capture(ABC, X, keep="aa")
    with pytest.raises(CaptureError, match="no captured value is called 'nothing'"):
        capture(ABC, X, tensors=["a", "nothing"])
    with pytest.raises(CaptureError, match="tensor 'b' was not captured"):
        capture(ABC, X, tensors="a").statistics("b")


def test_a_name_that_looks_like_a_pattern_is_a_name() -> None:
    model = onnx.ModelProto.FromString(ABC.SerializeToString())
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = model.graph.node[2].input[0] = "a[0]*"
    assert capture(model, X, keep="a[0]*").array_names == ["a[0]*"]


def test_kept_arrays_beyond_the_limit_are_files_that_go_with_the_capture() -> None:
    cap = capture(ABC, {"x": np.arange(1000, dtype=np.float32)}, keep="*", memory_limit=10_000)
    mapped = [name for name in cap.names if isinstance(cap[name], np.memmap)]
    assert mapped == ["a", "b", "c"]
    folder = Path(cap["c"].filename).parent
    assert len(list(folder.iterdir())) == 3
    copied = pickle.loads(pickle.dumps(cap))  # noqa: S301 (our own)
    array = cap["c"]
    del cap
    gc.collect()
    assert not folder.exists()
    assert same(np.asarray(array), copied["c"])
    assert copied.statistics("c") == Statistics.of(copied["c"])


def test_a_closed_capture_says_that_its_files_are_gone() -> None:
    cap = capture(ABC, X, keep="c", memory_limit=1)
    cap.close()
    with pytest.raises(CaptureError, match="file that is gone"):
        cap["c"]
    assert cap.statistics("c").count == 4


# --- looking --------------------------------------------------------------------------------------------------------


def test_nonfinite_finds_the_node_that_made_them() -> None:
    model = parsed(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 0}> {
        a = Relu(x)  [bad] b = Div(a, w)  c = Add(b, a)  y = Sub(c, c) }"""
    )
    found = capture(model, {"x": np.array([1, 2], np.float32)}, keep="a").nonfinite()
    assert found is not None
    assert (found.node, found.name, found.statistics.posinf) == ("Div 'bad'", "b", 1)
    assert found.arrays["a"].tolist() == [1, 2]
    assert found.inputs["w"].zeros == 1
    assert found.message == (
        "Div 'bad' makes 1 Inf of 2 values in 'b', and its inputs are finite: 'a' (1 … 2), 'w' (0 … 1)."
    )


def test_nonfinite_numbers_given_to_the_model() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {-inf, 0}> { y = Add(x, w) }"
    weight = parsed(text.replace("-inf", "0"))
    weight.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([-np.inf, 0], np.float32), "w"))
    found = capture(weight, {"x": np.zeros(2, np.float32)}).nonfinite()
    assert found is not None
    assert found.message == "'w' is given to the model with 1 −Inf of 2 values."
    found = capture(ABC, {"x": np.array([np.nan], np.float32)}).nonfinite()
    assert found is not None
    assert found.message == "'x' is given to the model with 1 NaN of 1 values."
    assert capture(ABC, X).nonfinite() is None


def test_stop_at() -> None:
    seen = []

    def stop(name: str, array: Any) -> bool:
        seen.append(name)
        return bool((array > 0.9).any()) and name != "x"

    cap = capture(ABC, X, stop_at=stop)
    assert seen == cap.names == ["x", "a", "b"]
    assert cap.stopped is not None
    assert (cap.stopped.name, cap.stopped.node, cap.stopped.feed) == ("b", "Exp", 0)
    with pytest.raises(CaptureError, match=r"'c' was not captured\. The capture stopped at 'b'"):
        cap.statistics("c")
    cap = capture(ABC, [X, {"x": X["x"] - 9}, X], stop_at=lambda name, array: name == "b" and array.max() > 9)
    assert cap.feeds == 2
    assert cap.stopped is not None
    assert cap.stopped.feed == 1


def test_rows_and_frame() -> None:
    cap = capture(ABC, X)
    row = cap.rows()[1]
    assert row == {
        "name": "a", "node": "", "op_type": "Neg", "dtype": "float32", "shape": (4,), "nbytes": 16,
        "count": 4, "min": -3.0, "max": 0.0, "mean": -1.5, "std": np.arange(4).std(), "zeros": 1,
        "nan": 0, "posinf": 0, "neginf": 0,
    }  # fmt: skip
    pandas = pytest.importorskip("pandas")
    frame = cap.to_frame()
    pandas.testing.assert_frame_equal(frame, pandas.DataFrame(cap.rows()))
    assert [node.op_type for node in cap.nodes] == ["Neg", "Exp", "Add"]
    assert [node.nbytes for node in cap.nodes] == [16, 16, 16]
    assert all(node.seconds > 0 for node in cap.nodes)
    assert capture(ABC, X, times=True).windows == 3


# --- bodies ---------------------------------------------------------------------------------------------------------


def loop_with(body: str, trips: int) -> ModelProto:
    """Carry x through so many iterations of: float[2] carried, int64 i -> float[2] next, float[2] row."""
    inner = parsed(f"g (int64 i, bool c, float[2] carried) => (bool d, float[2] next, float[2] row) {{ {body} }}").graph
    node = helper.make_node("Loop", ["trips", "", "x"], ["last", "rows"], "loop", body=inner)
    graph = helper.make_graph(
        [node],
        "loop",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("last", TensorProto.FLOAT, None), onnx.ValueInfoProto(name="rows")],
        [numpy_helper.from_array(np.array(trips), "trips")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_values_inside_a_loop_by_iteration() -> None:
    model = loop_with("d = Identity(c)  f = Cast<to = 1>(i)  next = Add(carried, f)  row = Sqrt(next)", 5)
    feeds = {"x": np.array([1, 2], np.float32)}
    cap = capture(model, feeds, bodies=True, keep="*")
    assert [cap["i", i].item() for i in range(5)] == list(range(5))
    assert [cap["next", i].tolist() for i in range(5)] == [[1, 2], [2, 3], [4, 5], [7, 8], [11, 12]]
    assert same(np.stack([cap["row", i] for i in range(5)]), cap["rows"])
    assert same(cap["next", 4], cap["last"])
    assert cap.statistics("next").count == 10
    with pytest.raises(CaptureError, match="'row' was not kept at"):
        cap["row", 5]
    assert set(capture(model, feeds).names) == {"x", "last", "rows"}
    cap = capture(model, feeds, bodies=True, tensors="f", keep="f")
    assert cap.names == ["f"]
    assert cap["f", 4] == 4


def test_iterations_kept_are_bounded() -> None:
    model = loop_with("d = Identity(c)  f = Cast<to = 1>(i)  next = Add(carried, f)  row = Sqrt(next)", 100)
    cap = capture(model, {"x": np.zeros(2, np.float32)}, bodies=True, keep="*")
    assert cap["i", ITERATIONS_KEPT - 1] == ITERATIONS_KEPT - 1
    assert cap.statistics("i").count == 100
    with pytest.raises(CaptureError, match="was not kept at"):
        cap["i", ITERATIONS_KEPT]


def test_a_loop_that_ends_itself_and_one_that_never_starts() -> None:
    body = "two = Constant<value_int = 2>()  d = Less(i, two)  next = Identity(carried)  row = Identity(carried)"
    cap = capture(loop_with(body, 9), {"x": np.zeros(2, np.float32)}, bodies=True, keep="*")
    assert cap.statistics("i").count == 3
    assert cap["rows"].shape == (3, 2)
    cap = capture(loop_with(body, 0), {"x": np.zeros(2, np.float32)}, bodies=True, keep="*")
    assert "i" not in cap
    assert cap["rows"].shape[0] == 0


def test_branches_loops_and_scans_of_the_model_with_control_flow() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    cap = capture(models.control_flow(), {"x": x, "flag": np.array(False)}, bodies=True, keep="*")
    assert "then_out" not in cap
    assert same(cap["else_out"], cap["chosen"])
    assert same(cap["carried", 0], cap["chosen"])
    assert same(cap["carried_out", 2], cap["looped"])
    assert same(np.stack([cap["row_out", i] for i in range(2)]), cap["sums"])
    assert same(cap["sum_out", 1], cap["total"])
    assert same(cap["m", 1], cap["carried", 1] * 2)
    found = capture(models.control_flow(), {"x": x, "flag": np.array(True)}, tensors="m", bodies=True)
    assert found.names == ["m"]
    assert found.statistics("m").count == 18


def test_values_inside_a_sequence_map() -> None:
    body = parsed(
        "g (float[n] item, float[n] more) => (float[n] out) { inner = Add(item, more)  out = Neg(inner) }"
    ).graph
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["both"]),
        helper.make_node("SequenceMap", ["both", "x"], ["mapped"], body=body),
    ]
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    graph = helper.make_graph(nodes, "map", info, [onnx.ValueInfoProto(name="mapped")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    cap = capture(model, {"x": np.ones(2, np.float32)}, bodies=True, keep="*")
    assert [array.tolist() for array in cap["mapped"]] == [cap["out", i].tolist() for i in range(2)]
    assert cap["inner", 1].tolist() == [2, 2]


def test_names_that_two_bodies_share() -> None:
    def branch(op: str) -> onnx.GraphProto:
        return parsed(f"g () => (float[2] y) {{ inner = {op}(x)  y = Identity(inner) }}").graph

    node = helper.make_node("If", ["c"], ["z"], "choose", then_branch=branch("Exp"), else_branch=branch("Neg"))
    info = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_tensor_value_info("x", 1, [2])]
    graph = helper.make_graph([node], "g", info, [helper.make_tensor_value_info("z", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.ones(2, np.float32)
    cap = capture(model, [{"c": np.array(flag), "x": x} for flag in (True, False)], bodies=True, keep="*")
    assert np.allclose(cap["choose/then_branch/inner", 0], np.exp(x))
    assert cap["choose/else_branch/inner", 1].tolist() == [-1, -1]


# --- datasets -------------------------------------------------------------------------------------------------------


def dataset(count: int = 7) -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal((5 + i, 100)).astype(np.float32)} for i in range(count)]


SET_MODEL = parsed("g (float[n, 100] x) => (float[n, 100] c) { a = Neg(x)  b = Exp(a)  c = Add(a, b) }")


def equal(one: onnx_nb.types.Capture, other: onnx_nb.types.Capture) -> bool:
    numbers = [[cap.statistics(name) for name in cap.names] for cap in (one, other)]
    bits = [[(entry.mean.hex(), entry.std.hex()) for entry in found] for found in numbers]
    return one.names == other.names and numbers[0] == numbers[1] and bits[0] == bits[1]


def test_a_dataset_is_merged_feed_by_feed() -> None:
    feeds = dataset()
    cap = capture(SET_MODEL, iter(feeds), keep="c")
    assert cap.feeds == len(feeds)
    apart = [capture(SET_MODEL, feed, keep="c") for feed in feeds]
    for name in cap.names:
        merged = apart[0].statistics(name)
        for other in apart[1:]:
            merged = merged.merge(other.statistics(name))
        assert cap.statistics(name) == merged
    assert all(same(cap["c", i], one["c"]) for i, one in enumerate(apart))
    assert same(cap["c"], apart[0]["c"])


@pytest.mark.parametrize("kind", [concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor])
def test_an_executor_gives_the_same_bits(kind: Any) -> None:
    feeds = dataset(20)
    options = {"mp_context": __import__("multiprocessing").get_context("spawn")} if "Process" in kind.__name__ else {}
    with kind(2, **options) as executor:
        cap = capture(SET_MODEL, iter(feeds), executor=executor, keep="b", memory_limit=30_000)
    single = capture(SET_MODEL, feeds, keep="b")
    assert equal(cap, single)
    assert all(same(cap["b", i], single["b", i]) for i in range(len(feeds)))


def test_a_dask_cluster_gives_the_same_bits(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    feeds = dataset(9)
    with (
        # a busy machine is long at starting workers
        __import__("dask").config.set({"distributed.comm.timeouts.connect": "300s"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=tmp_path
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        cap = capture(SET_MODEL, feeds, executor=executor)
    assert equal(cap, capture(SET_MODEL, feeds))


def test_errors_and_stops_of_an_executor() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        with pytest.raises(FeedError):
            capture(SET_MODEL, [*dataset(3), {"x": np.zeros(3)}], executor=executor)
        failing = parsed("g (float[n] x, int64[k] s) => (float[m] y) { [here] y = Reshape(x, s) }")
        with pytest.raises(CaptureError, match="here") as caught:
            capture(failing, {"x": np.zeros(3, np.float32), "s": np.array([4])}, executor=executor)
        assert caught.value.node == "here"
        cap = capture(SET_MODEL, dataset(5), executor=executor, stop_at=of_six_rows)
        assert cap.stopped is not None
        assert (cap.feeds, cap.stopped.feed) == (2, 1)
        with pytest.raises(CaptureError, match="Leave out one of them"):
            capture(SET_MODEL, dataset(5), executor=executor, subprocess=True)


def of_six_rows(name: str, array: Any) -> bool:
    return name == "b" and len(array) == 6


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_node_that_fails_is_named() -> None:
    text = " ".join(f"t{i + 1} = Neg(t{i})" for i in range(20))
    model = parsed(f"g (float[n] t0, int64[k] s) => (float[m] y) {{ {text} [bad] y = Reshape(t20, s) }}")
    with pytest.raises(CaptureError, match=r"Reshape 'bad'.*'t20' \(3 float32\)") as caught:
        capture(model, {"t0": np.zeros(3, np.float32), "s": np.array([4])})
    assert caught.value.node == "bad"
    model = parsed(f"g (float[n] t0) => (float[m] y) {{ {text} [odd] y = my.own.Thing(t20) }}")
    model.opset_import.add(domain="my.own", version=1)
    with pytest.raises(CaptureError, match="Thing 'odd'") as caught:
        capture(model, {"t0": np.zeros(3, np.float32)})
    assert caught.value.node == "odd"
    assert capture(model, {"t0": np.zeros(3, np.float32)}, tensors="t20").statistics("t20").count == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ a = Neg(x)  a = Exp(x)  y = Neg(a) }", "made again"),
        ("{ a = Neg(y)  y = Exp(a) }", "cycle"),
        ("{ a = Neg(nowhere)  y = Exp(a) }", "'nowhere', which no node makes"),
    ],
)
def test_a_broken_graph_is_refused_before_anything_runs(text: str, message: str) -> None:
    model = parsed(f"g (float[2] x) => (float[2] y) {text}")
    with pytest.raises(CaptureError, match=message):
        capture(model, {"x": np.zeros(2, np.float32)}, progress=lambda *_: pytest.fail("it ran"))


def test_a_broken_part_does_not_matter_where_it_does_not_run() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { a = Neg(x)  y = Add(a, nowhere) }")
    assert capture(model, {"x": np.zeros(2, np.float32)}, tensors="a").statistics("a").count == 2


def test_nodes_in_any_order() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { y = Neg(b)  b = Exp(a)  a = Abs(x) }")
    cap = capture(model, {"x": np.ones(2, np.float32)}, keep="*")
    assert cap.names == ["x", "a", "b", "y"]
    assert same(cap["y"], -cap["b"])


def test_wrong_arguments() -> None:
    with pytest.raises(FeedError, match="takes float32"):
        capture(ABC, {"x": np.zeros(2)})
    with pytest.raises(CaptureError, match="memory_limit is 0"):
        capture(ABC, X, memory_limit=0)
    with pytest.raises(CaptureError, match="no feed was given"):
        capture(ABC, iter(()))


class Cancelled(Exception):  # noqa: N818
    pass


def test_a_cancel_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def progress(done: float, what: str) -> None:
        seen.append((done, what))
        if done > 0.5:
            assert list(tmp_path.iterdir())
            raise Cancelled

    x = {"x": np.zeros((2, 3, 4), np.float32)}
    with pytest.raises(Cancelled):
        capture(models.chain(300), x, keep="*", memory_limit=500, progress=progress)
    assert list(tmp_path.iterdir()) == []
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert "LayerNormalization '/layers.0/norm1/LayerNormalization'" in seen[0][1]


def test_progress_of_a_dataset_ends_at_one() -> None:
    seen: list[float] = []
    capture(ABC, [X, X, X], progress=lambda done, _: seen.append(done))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 1)
    seen.clear()
    capture(ABC, iter([X, X, X]), progress=lambda done, _: seen.append(done))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 1)


def test_a_cancel_is_seen_inside_a_loop() -> None:
    model = loop_with("d = Identity(c)  f = Cast<to = 1>(i)  next = Add(carried, f)  row = Sqrt(next)", 50)
    seen: list[str] = []

    def progress(_: float, what: str) -> None:
        seen.append(what)
        if len(seen) == 20:
            raise Cancelled

    with pytest.raises(Cancelled):
        capture(model, {"x": np.zeros(2, np.float32)}, bodies=True, progress=progress)
    assert "Cast" in " ".join(seen)


@pytest.mark.parametrize("home", ["memory", "one file", "beside", "moved"])
def test_weights_wherever_they_are(home: str, tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(RANDOM.standard_normal((100, 100)).astype(np.float32), name) for name in "uvw"]
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Constant", [], ["c"], value=weights[2]),
        helper.make_node("MatMul", ["b", "c"], ["d"]),
        helper.make_node("MatMul", ["d", "u"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 100]) for name in "xy"]
    graph = helper.make_graph(nodes, "weights", info[:1], info[1:], weights[:2])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model: ModelLike = proto
    if home == "one file":
        onnx.save(proto, model := tmp_path / "model.onnx")
    elif home != "memory":
        folder = tmp_path / "weights"
        folder.mkdir()
        onnx.save(
            proto,
            model := folder / "model.onnx",
            save_as_external_data=True,
            location="model.data",
            convert_attribute=True,
            size_threshold=0,
        )
        if home == "moved":
            model = load(model.rename(tmp_path / "model.onnx"), data_dir=folder)
    feeds = {"x": RANDOM.standard_normal((3, 100)).astype(np.float32)}
    for limit in (None, 1):
        check(model, feeds, memory_limit=limit)
    with concurrent.futures.ProcessPoolExecutor(1, __import__("multiprocessing").get_context("spawn")) as executor:
        assert equal(capture(model, [feeds, feeds], executor=executor), capture(model, [feeds, feeds]))
    assert capture(model, [feeds, feeds], tensors=["u", "a"]).statistics("u").count == 10_000


def test_the_model_is_not_changed() -> None:
    before = ABC.SerializeToString()
    capture(ABC, X, keep="*")
    assert ABC.SerializeToString() == before


def test_bfloat16_statistics() -> None:
    model = parsed("g (bfloat16[3] x) => (bfloat16[3] y) { y = Identity(x) }")
    values = np.array([1, -2, np.inf], ml_dtypes.bfloat16)
    found = capture(model, {"x": values}).statistics("y")
    assert (found.min, found.max, found.posinf) == (-2, 1, 1)


def test_float16_keeps_the_precision_that_onnxruntime_keeps() -> None:
    """It has no float16 kernels for most operators, and does not round between them."""
    text = "g (float16[n] x, bool c) => (float16[n] y) <float16[3] w = {1, 2, 3}> { k = Constant<value_float = 0.3>() "
    text += "h = Cast<to = 10>(k) t0 = Mul(x, h) " + " ".join(f"t{i + 1} = Sin(t{i})" for i in range(30))
    model = parsed(text + " z = Mul(t30, w)  y = Exp(z) }")
    feeds = {"x": RANDOM.standard_normal(3).astype(np.float16), "c": np.array(True)}
    for options in ({}, {"memory_limit": 1}, {"times": True}):
        check(model, feeds, **options)
    cap = capture(model, feeds, bodies=True)
    assert cap.names[:6] == ["x", "c", "k", "h", "t0", "t1"]
    assert [node.index for node in cap.nodes] == list(range(len(model.graph.node)))
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        assert equal(capture(model, [feeds, feeds], executor=executor), capture(model, [feeds, feeds]))
    stop = capture(model, feeds, stop_at=lambda name, _: name == "t3").stopped
    assert stop is not None
    assert stop.node == "Sin"


def test_constants_are_no_inputs_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """To some operators of onnxruntime it makes a difference whether a value is a constant or given."""
    create, windows = session.create, []

    def spy(model: Any, **options: Any) -> Any:
        windows.append(model.proto.graph)
        return create(model, **options)

    monkeypatch.setattr(session, "create", spy)
    text = "c = Constant<value = float[2] {1, 2}>() a = Add(x, c) b = Add(a, w) d = Add(b, c) y = Add(d, v)"
    weights = "<float[2] w = {1, 2}, float[2] v = {3, 4}>"
    model = parsed(f"g (float[2] x, float[2] v) => (float[2] y) {weights} {{ {text} }}")
    cap = capture(model, {"x": np.ones(2, np.float32)}, keep="*", times=True)
    assert cap["y"].tolist() == [7, 11]
    inputs = [[info.name for info in window.input] for window in windows]
    assert inputs == [[], ["x"], ["a"], ["b"], ["d", "v"]]
    # one that may be overridden is not treated as a constant, here as there
    assert [weight.name for weight in windows[-1].initializer] == ["v"]


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN])
@pytest.mark.parametrize("limit", [None, 1])
def test_types_smaller_than_a_byte_go_from_window_to_window(kind: int, limit: int | None) -> None:
    zero = np.zeros((), helper.tensor_dtype_to_np_dtype(kind))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    weights = [numpy_helper.from_array(np.array(0.5, np.float32), "s"), numpy_helper.from_array(zero, "z")]
    graph = helper.make_graph(nodes, "small", info[:1], info[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.array([0, 0.5, 1, 1.5, 3], np.float32)
    check(model, {"x": x}, memory_limit=limit)
    cap = capture(model, {"x": x}, keep="*", memory_limit=limit)
    assert cap["q"].dtype == zero.dtype
    assert cap["q"].astype(np.float32).tolist() == [0, 1, 2, 3, 6]
    assert cap["y"].tolist() == x.tolist()
    assert cap.statistics("q").max == 6


@pytest.mark.parametrize("limit", [None, 1])
def test_a_scan_whose_body_declares_no_shapes(limit: int | None) -> None:
    """Onnxruntime runs it only where it could infer ranks, which in a window only the values tell."""
    body = parsed("g (float s, float row) => (float t, float out) { t = Add(s, row)  out = Neg(t) }").graph
    for info in (*body.input, *body.output):
        info.type.tensor_type.ClearField("shape")
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "reshape"),
        helper.make_node("Relu", ["zero"], ["start"], "relu"),
        helper.make_node("Scan", ["start", "r"], ["last", "rows"], "scan", body=body, num_scan_inputs=1),
    ]
    graph = helper.make_graph(
        nodes,
        "scan",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("last", "rows")],
        [
            numpy_helper.from_array(np.array([-1, 3]), "shape"),
            numpy_helper.from_array(np.zeros(3, np.float32), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    check(model, {"x": np.arange(6, dtype=np.float32)}, memory_limit=limit)
    cap = capture(model, {"x": np.arange(6, dtype=np.float32)}, memory_limit=limit, bodies=True, keep="*")
    assert cap["t", 1].tolist() == cap["last"].tolist() == [3, 5, 7]


@pytest.mark.parametrize("cores", [1, 8])
def test_any_number_of_cores_gives_the_same_statistics(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models.exported("resnet50", dynamo=False)
    feeds = random_feeds(path, seed=0)
    there = capture(path, feeds)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    here = capture(path, feeds)
    assert list(here) == list(there)
    assert all(here.statistics(name) == there.statistics(name) for name in there)


@pytest.mark.parametrize("cores", [1, 8])
def test_what_statistics_raise_ends_the_capture(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("onnx_nb.analysis.run.value_recorder.Statistics.of", fails)
    with pytest.raises(MemoryError):
        capture(ABC, {"x": np.zeros(5000, np.float32)})


@pytest.mark.parametrize("trips", [0, 2])
@pytest.mark.parametrize(("shape", "step"), [("3", "Identity(vo)"), ("n, 3", "Transpose(t)"), ("n, 3", "Identity(v)")])
def test_rows_of_a_loop_that_never_runs_have_the_shape_of_the_whole(trips: int, shape: str, step: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{shape}] x) => (float[{shape}] y, float[] s) {{
            t = Relu(x)  k = Constant <value_int = {trips}> ()
            y, s = Loop(k, "", t) <body = b (int64 i, bool c, float[] v) => (bool co, float[] vo, float[] so) {{
                co = Identity(c)  vo = Tanh(t)  so = {step} }}> }}""")
    check(model, {"x": np.ones((3,) * len(shape.split(",")), np.float32)})


def test_strings_that_are_not_utf8_are_an_error_of_ours() -> None:
    """The format allows any bytes, and onnxruntime hands over none but UTF-8."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (string[1] x) => (string[n] y) { c = Constant <value = string[1] {"a"}> ()  y = Concat <axis = 0> (c, x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[0].attribute[0].t.string_data[0] = b"\xfe\xff"
    with pytest.raises(OnnxNbError, match=r"holds b'\\xfe\\xff', which is not valid UTF-8"):
        capture(model, {"x": np.array(["a"], object)})


def assert_captured_as_it_runs(model: ModelProto, feeds: Mapping[str, Any]) -> None:
    expected = truth(model, feeds)
    values = capture(model, feeds, keep=list(expected))
    assert {name: values[name].tolist() for name in expected} == {name: v.tolist() for name, v in expected.items()}


def test_constants_of_one_name_run_as_in_onnxruntime() -> None:
    nodes = [helper.make_node("Constant", [], [name], "add", value_float=2.0) for name in "ab"]
    nodes += [helper.make_node("Add", ["x", "a"], ["s"], "add"), helper.make_node("Mul", ["s", "b"], ["y"], "mul")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    assert_captured_as_it_runs(model, {"x": np.ones(2, np.float32)})
    model.graph.node[3].name = "add"
    with pytest.raises(CaptureError, match="has the name of another node; onnxruntime refuses that"):
        capture(model, {"x": np.ones(2, np.float32)})


def test_a_resize_of_a_constant_to_computed_sizes() -> None:
    text = """g (int64[2] hw) => (float[n, c, h, w] y) <float[1, 1, 2, 2] pos = {1, 2, 3, 4}, int64[2] nc = {1, 1}> {
        hw2 = Add(hw, hw)  sizes = Concat<axis = 0>(nc, hw2)  y = Resize<mode = "linear">(pos, , , sizes) }"""
    assert_captured_as_it_runs(parsed(text, 14), {"hw": np.array([4, 3])})


@pytest.mark.parametrize("count", [1, 2])
def test_ranges_of_the_largest_integer(count: int) -> None:
    model = parsed("g (int64[1] s) => (int64[1] e) <int64[1] big = {9223372036854775807}> { e = Add(s, big) }")
    feeds = [{"s": np.zeros(1, np.int64)}] * count
    stats = capture(model, feeds, ranges=True).statistics("e")
    assert (stats.count, stats.max, stats.fine.total) == (count, 2**63 - 1, count)  # type: ignore[attr-defined]


def test_a_map_is_handed_over_by_run_alone() -> None:
    node = helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    output = helper.make_value_info("z", helper.make_sequence_type_proto(kind))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph([node], "g", [x], [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)
    feeds = {"x": np.ones((1, 2), np.float32)}
    values = capture(model, feeds, keep=["z"])
    with pytest.raises(CaptureError, match=r"'z' is a seq\(map.*hands over as an output.*onnx_nb\.run"):
        _ = values["z"]
    assert session.run(model, feeds)["z"] == [{0: 1.0, 1: 1.0}]
