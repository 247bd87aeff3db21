"""The packed graph: its layout byte by byte, and its columns against the proto."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view import graph_columns as columns_module
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.graph_columns import (
    CALLS,
    CONSTANT,
    FAULTY,
    FAULTY_VALUE,
    FOLDED,
    OUTPUT,
    SHAPES,
    columns,
)
from tests import models
from tests.analysis.scopes.test_scopes import EXPORTS, MODELS
from tests.conformance.cases import Case, Runnable
from tests.conformance.verbs import RIGHT, draw
from tests.dags import dags
from tests.depth import examples
from tests.packed import unpack_by_hand, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@pytest.mark.parametrize("name", MODELS)
def test_what_is_packed_is_what_comes_out(name: str) -> None:
    made = columns(MODELS[name]())
    packed = made.to_bytes()
    arrays, meta = unpack_by_hand(packed)
    assert meta == made.meta
    assert list(arrays) == list(made.arrays)
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, made.arrays[key])
    again = unpacked(packed)
    assert again.strings() == made.strings()
    assert again.meta == made.meta


@examples(30)
@given(dags())
def test_columns_of_models_of_every_kind_hold_their_nodes(proto: onnx.ModelProto) -> None:
    assert draw(Runnable(Case("", proto, [], []), proto, {}, {})) == RIGHT


@given(
    st.dictionaries(
        st.text(max_size=5),
        hypothesis_numpy.arrays(
            st.sampled_from([np.uint8, np.uint16, np.uint32, np.int32, np.float32, np.float64]), st.integers(0, 50)
        ),
    ),
    st.dictionaries(st.text(), st.text()),
)
def test_any_arrays_survive(arrays: dict[str, Any], meta: dict[str, str]) -> None:
    found, found_meta = unpack_by_hand(Columns(arrays, meta).to_bytes())
    assert found_meta == meta
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_large_payloads_are_one_stream() -> None:
    random = np.random.default_rng(0).integers(0, 256, 5_000_001, dtype=np.uint8)
    found, _ = unpack_by_hand(Columns({"a": random, "b": np.arange(3.0)}, {}).to_bytes())
    np.testing.assert_array_equal(found["a"], random)
    assert found["b"].tolist() == [0, 1, 2]


def proto_of(
    nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto] = (), outputs: Sequence[str] = ("y",)
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, None])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", inputs, ends, list(weights))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="me", producer_version="7")


class Read:
    """A packed graph with strings in place of numbers."""

    def __init__(self, model: Any) -> None:
        self.packed = unpacked(columns(model).to_bytes())
        self.table = self.packed.strings()

    def __getitem__(self, name: str) -> list[Any]:
        return list(self.packed.arrays[name].tolist())

    def text(self, name: str) -> list[str]:
        return [self.table[i] for i in self[name]]


@pytest.mark.parametrize("name", MODELS)
def test_columns_are_those_of_the_graph(name: str) -> None:
    path = MODELS[name]()
    read, graph = Read(path), Graph.opened(path)
    assert read.text("node_name") == graph.names
    assert read.text("value_name") == graph.value_names
    ops = list(zip(read.text("op_name"), read.text("op_domain"), strict=True))
    assert [ops[i] for i in read["node_op"]] == [(n.op_type, n.domain) for n in graph.nodes]
    for column in ("in_ptr", "in_value", "out_ptr", "out_value", "value_kind"):
        np.testing.assert_array_equal(read.packed.arrays[column], getattr(graph, column))
    assert read.text("value_dtype") == [graph.type_of(v).dtype for v in range(len(graph.value_names))]
    assert read["graph_inputs"] == graph.inputs.tolist()
    assert read["graph_outputs"] == graph.outputs.tolist()
    meta = read.packed.meta
    assert (meta["nodes"], meta["main_nodes"], meta["values"]) == (
        graph.node_count,
        len(graph.model.proto.graph.node),
        len(graph.value_names),
    )
    lengths = {len(read[c]) for c in read.packed.arrays if c.startswith("scope_")}
    assert len(lengths) == 1


def test_every_column_that_the_browser_takes_is_there() -> None:
    folder = models.ROOT / "onnx_nb" / "frontend" / "protocol"
    wanted = set(re.findall(r'this\.(?:column|#numbers)\("(\w+)"', (folder / "columns.ts").read_text()))
    arrays = columns(models.control_flow()).arrays
    assert wanted | {"string_shared"} == set(arrays)  # codec.ts reads it: what older versions saved has none
    assert len(wanted) > 30


def test_small_numbers_are_narrow() -> None:
    arrays = columns(models.chain(1_000)).arrays
    sizes = [arrays[name].itemsize for name in ("node_op", "node_attributes", "string_ptr")]
    assert sizes == [1, 2, 4]


def test_flags() -> None:
    function = helper.make_function(
        "my", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=1.0),
        helper.make_node("Twice", ["x"], ["t"], domain="my"),
        helper.make_node("Unheard", ["t", "c", "ghost"], ["y"]),
    ]
    proto = proto_of(nodes)
    proto.functions.append(function)
    read = Read(proto)
    assert read["node_flags"] == [FOLDED, CALLS, FAULTY, 0]
    flags = dict(zip(read.text("value_name"), read["value_flags"], strict=True))
    assert flags == {"x": 0, "c": CONSTANT, "t": 0, "y": OUTPUT, "ghost": FAULTY_VALUE, "t::b": 0}
    inputs = dict(zip(read.text("op_name"), read.text("op_inputs"), strict=True))
    assert inputs == {"Constant": "", "Twice": "a", "Unheard": "", "Add": "A,B"}


def test_nodes_that_compute_with_nothing_but_shapes_are_marked() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 8] x, int64[2] given) => (float[m, 8] y, float[p] z)
    <int64[1] four = {4}, int64 first = {0}> {
        reached = Add (size, one)
        shape = Shape (x)
        one = Gather (shape, first)
        size = Size (x)
        target = Concat <axis = 0> (more, four)
        more = Mul (reached, four)
        mixed = Add (target, given)
        flat = Reshape (x, target)
        y = Reshape (flat, mixed)
        condition = Greater (size, first)
        z = If (condition) <
            then_branch = t () => (float[p] a) { a = Flatten (x) },
            else_branch = e () => (float[p] b) { inner = Shape (flat)  b = ConstantOfShape (inner) }
        >
    }""")
    read = Read(proto)
    names = read.text("value_name")
    outputs = [names[value] for value in read["out_value"]]
    marked = {name for name, flag in zip(outputs, read["node_flags"], strict=True) if flag & SHAPES}
    # not the If, whose branch reads x, and nothing that reads an input
    assert marked == {"shape", "one", "size", "reached", "more", "target", "condition", "inner", "b"}


def test_types_are_written_for_people() -> None:
    read = Read(
        proto_of([helper.make_node("Relu", ["x"], ["y"])], [numpy_helper.from_array(np.zeros((), np.int64), "s")])
    )
    shapes = dict(zip(read.text("value_name"), read.text("value_shape"), strict=True))
    assert shapes == {"x": "batch×2×?", "y": "batch×2×?", "s": "scalar"}


TABLE = numpy_helper.from_array(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            helper.make_node("Conv", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, dilations=[1, 1]),
            "kernel_shape 3×3 · pads [1, 1, 1, 1] · strides 2×2",
        ),
        (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1]), "perm [0, 2, 1]"),
        (helper.make_node("Cast", ["x"], ["y"], to=10), "to float16"),
        (helper.make_node("LayerNormalization", ["x", "w"], ["y"], epsilon=1e-12), "epsilon 1e-12"),
        (helper.make_node("Gelu", ["x"], ["y"], approximate="none"), ""),
        (helper.make_node("Gelu", ["x"], ["y"], approximate="tanh"), "approximate tanh"),
        (
            helper.make_node("Mine", ["x"], ["y"], domain="my", a=list(range(20)), t=TABLE),
            "a [0, 1, 2, 3, 4, 5, 6, 7, …] · t 2×3 float32",
        ),
        (helper.make_node("Mine", ["x"], ["y"], domain="my", html="<b>" * 100), ("html " + "<b>" * 100)[:79] + "…"),
        (helper.make_node("Mine", ["x"], ["y"], domain="my", bad=b"\xff\xfe"), "bad \\xff\\xfe"),
        (helper.make_node("If", ["x"], ["y"]), ""),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)  # fmt: skip
def test_attributes_in_one_line(node: onnx.NodeProto, expected: str) -> None:
    assert Read(proto_of([node])).text("node_attributes") == [expected]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(0.125, np.float32), "0.125"),
        (np.array([0, 0, 768]), "[0, 0, 768]"),
        (np.array([[1.5, -2.0]], np.float64), "[1.5, -2]"),
        (np.array(True), "True"),
        (np.array([1e-12, np.inf, -np.inf, np.nan], np.float32), "[1e-12, inf, -inf, nan]"),
        (np.zeros(5, np.float32), ""),
        (np.zeros(0, np.float32), "[]"),
        (np.array([1, 2], np.uint8), "[1, 2]"),
        (np.array(0.5, np.float16), "0.5"),
        (np.array(["<b>", "x" * 50], object), "[<b>, " + "x" * 23 + "…]"),
    ],
)
def test_small_constants_are_written_out(array: Any, expected: str) -> None:
    weight = numpy_helper.from_array(np.asarray(array), "w")
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.asarray(array)))
    read = Read(proto_of([constant, helper.make_node("Mine", ["x", "w", "c"], ["y"], domain="my")], [weight]))
    literals = dict(zip(read.text("value_name"), read.text("value_literal"), strict=True))
    assert literals == {"x": "", "w": expected, "c": expected, "y": ""}


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value_int": 7}, "7"),
        ({"value_float": 0.25}, "0.25"),
        ({"value_ints": [1, 2]}, "[1, 2]"),
        ({"value_floats": [0.5]}, "[0.5]"),
        ({"value_string": "hi"}, "hi"),
        ({"value_strings": ["a", "b"]}, "[a, b]"),
        ({"value_ints": [0] * 5}, ""),
    ],
)
def test_constants_in_attributes_are_written_out(attribute: dict[str, Any], expected: str) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **attribute), helper.make_node("Mine", ["c"], ["y"], domain="my")]
    read = Read(proto_of(nodes))
    assert read.text("value_literal")[read.text("value_name").index("c")] == expected


def test_damaged_weights_have_no_preview() -> None:
    short = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=b"\0\0\0")
    weird = TensorProto(name="v", data_type=77, dims=[1], raw_data=b"\0")
    huge = TensorProto(name="h", data_type=TensorProto.FLOAT, dims=[2**62, 2**62, 2**62])
    negative = TensorProto(name="n", data_type=TensorProto.FLOAT, dims=[-1])
    read = Read(
        proto_of(
            [helper.make_node("Mine", ["x", "w", "v", "h", "n"], ["y"], domain="my")], [short, weird, huge, negative]
        )
    )
    assert set(read.text("value_literal")) <= {"", "[]"}
    assert all(math.isfinite(number) for number in read["scope_params"])


@pytest.mark.parametrize("name", [*EXPORTS, "densenet121", "control_flow"])
def test_parameters_of_a_scope_are_its_distinct_weights(name: str) -> None:
    path = MODELS[name]()
    model, graph = load(path), Graph.of(path)
    tree, read = scopes(graph), Read(path)
    above = tree.scope_parent.tolist()
    proto = onnx.load(path)
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    constants = [node for node in proto.graph.node if node.op_type == "Constant"]
    arrays |= {node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t) for node in constants}
    weights: dict[int, set[int]] = {group: set() for group in range(len(above))}
    drawn = dict.fromkeys(range(len(above)), 0)
    for node in range(graph.node_count):
        group = int(tree.node_scope[node])
        while group >= 0:
            weights[group] |= {int(v) for v in graph.node_inputs(node) if v >= 0 and graph.value_names[v] in arrays}
            drawn[group] += not graph.folded[node]
            group = above[group]
    sizes = {graph.value(n): array for n, array in arrays.items()}
    for group, values in weights.items():
        assert read["scope_params"][group] == sum(sizes[v].size for v in values)
        assert read["scope_bytes"][group] == sum(sizes[v].nbytes for v in values)
        assert read["scope_nodes"][group] == drawn[group]
    assert read.packed.meta["nbytes"] == model.nbytes


@pytest.mark.parametrize(
    "name",
    ["<img src=x onerror=alert(1)>", "😀", "n" * 10_000, "line\nbreak", "\u2028", "\\", '"', "a\0b"],
    ids=["html", "emoji", "long", "newline", "separator", "backslash", "quote", "nul"],
)
def test_names_arrive_as_they_are(name: str) -> None:
    read = Read(proto_of([helper.make_node("Relu", ["x"], [name], name), helper.make_node("Relu", [name], ["y"])]))
    assert read.text("node_name") == [name, ""]
    assert read.text("value_name") == ["x", name, "y"]


def test_faults_travel_along() -> None:
    read = Read(proto_of([helper.make_node("Add", ["x", "ghost"], ["y"], "add")]))
    (fault,) = read.packed.meta["faults"]
    assert (fault["kind"], fault["node"]) == ("dangling_input", 0)
    assert read.text("value_name")[fault["value"]] == "ghost"


def test_an_empty_graph_has_columns() -> None:
    read = Read(models.empty())
    assert read["node_op"] == []
    assert read["scope_parent"] == [-1]
    assert [fault["kind"] for fault in read.packed.meta["faults"]] == ["empty_graph"]


def test_columns_are_made_once() -> None:
    model = load(models.control_flow())
    assert columns(model) is columns(model)


def test_bodies_belong_to_their_nodes() -> None:
    read, graph = Read(models.control_flow()), Graph.of(models.control_flow())
    owners = [node for node in range(graph.node_count) if graph.bodies(node)]
    assert [node for node, group in enumerate(read["node_body"]) if group >= 0] == owners
    assert [read["scope_node"][read["node_body"][node]] for node in owners] == owners


def test_meta_names_the_model() -> None:
    meta = columns(proto_of([helper.make_node("Relu", ["x"], ["y"])])).meta
    assert meta["version"] == columns_module.VERSION
    assert meta["opsets"] == {"": 20, "my": 3}
    assert (meta["producer"], meta["ir_version"], meta["name"]) == ("me 7", 10, "g")
    json.dumps(meta)


def test_what_bodies_give_is_paired_with_the_outputs_of_their_owner() -> None:
    model = load(models.control_flow())
    graph = Graph.of(model)
    made = columns(model).arrays
    found = {
        (graph.value_names[value], graph.value_names[output])
        for value, output in zip(made["yield_value"].tolist(), made["yield_output"].tolist(), strict=True)
    }
    expected: set[tuple[str, str]] = set()

    def walk(nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.type != onnx.AttributeProto.GRAPH:
                    continue
                given = [port.name for port in attribute.g.output][node.op_type == "Loop" :]
                expected.update(zip(given, node.output, strict=True))
                walk(attribute.g.node)

    walk(model.proto.graph.node)
    assert found == expected
    assert len(expected) > 5


def test_defaults_of_attributes_are_those_of_onnx_and_of_functions() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "my": 1]>
    g (float[1,3,8,8] x, float[4,3,1,1] w) => (float[1,4,8,8] z) {
        a = Conv(x, w)  b = Softmax(a)  c = LeakyRelu(b)  d = my.scale(c)  z = Frob(d)
    }
    <domain: "my", opset_import: ["": 17]> scale <alpha: float = 2.0> (x) => (y) { y = Neg(x) }""")
    read = Read(proto)
    defaults = dict(zip(read.text("op_name"), read.text("op_defaults"), strict=True))
    assert defaults["Softmax"] == "axis -1"
    assert defaults["LeakyRelu"] == "alpha 0.01"
    assert defaults["Conv"].split(" · ") == ["auto_pad NOTSET", "group 1", "dilations 1…", "strides 1…", "pads 0…"]
    assert defaults["scale"] == "alpha 2"
    assert defaults["Frob"] == ""
    for op in ("Softmax", "LeakyRelu"):
        schema = onnx.defs.get_schema(op, 17)
        for name, attribute in schema.attributes.items():
            value = onnx.helper.get_attribute_value(attribute.default_value)
            assert defaults[op] == f"{name} {value:.6g}"


def test_a_text_is_stored_without_what_the_one_before_it_begins_with() -> None:
    # also beyond eight bytes, beyond 255, within a character, and all of it
    texts = [
        "a/b",
        "a/bc",
        "a",
        "ä",
        "ö",
        "layers.1.attn.q",
        "layers.1.attn.k",
        "layers.1",
        "x" * 300,
        "x" * 301,
        "yß",
        "",
    ]
    texts += [f"/layers.{number}/{name}" for number in range(40) for name in ("Mul", "MatMul", "norm/Add")]
    made = Columns.of({}, {"name": texts}, {})
    stored = made.strings()
    assert stored[0] == ""
    assert set(stored) == set(texts)
    begin = made.arrays["string_ptr"].tolist()
    for number, (before, text) in enumerate(itertools.pairwise([b"", *(each.encode() for each in stored)])):
        shared = int(made.arrays["string_shared"][number])
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, text[:255], strict=False))
        assert shared == (len([*same]) if number % 8 else 0)
        assert made.arrays["string_bytes"][begin[number] : begin[number + 1]].tobytes() == text[shared:]
    assert unpacked(made.to_bytes()).texts("name") == texts
    assert len(made.arrays["string_bytes"]) < sum(map(len, texts)) / 2


def test_texts_are_stored_once_and_come_back() -> None:
    made = Columns.of({"size": np.arange(4.0)}, {"op": ["Conv", "Relu", "Conv", ""]}, {"version": 1})
    again = unpacked(made.to_bytes())
    assert again.arrays["op"].tolist() == [1, 2, 1, 0]
    assert again.texts("op") == ["Conv", "Relu", "Conv", ""]
    assert again.strings() == ["", "Conv", "Relu"]
    assert again.meta == {"version": 1}
