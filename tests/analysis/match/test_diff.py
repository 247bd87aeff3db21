"""`diff` finds exactly the edits that were made to a model."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import onnx_nb
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.match.diff import CHANGED, ONLY, SAME
from onnx_nb.analysis.scopes.scopes import scopes
from tests import models
from tests.dags import dags
from tests.depth import examples

LIGHT = ("resnet50", "densenet121", "inception_v1", "squeezenet")


def parse(body: str, opset: int = 17) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2,3] x) => (float[2,3] z) '
    return onnx.parser.parse_model(head + body)


def copy_of(proto: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    return made


def renamed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model with other names for everything."""
    made = copy_of(proto)
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return names.setdefault(name, f"q{len(names)}") if name else ""  # no letter of a random model

    def graph(of: onnx.GraphProto, prefix: str) -> None:
        for tensor in (*of.input, *of.output, *of.initializer, *of.value_info):
            tensor.name = new(tensor.name)
        for number, node in enumerate(of.node):
            node.name = f"{prefix}{number}"
            node.input[:] = [new(name) for name in node.input]
            node.output[:] = [new(name) for name in node.output]
            del node.metadata_props[:]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    graph(attribute.g, f"{node.name}_")

    graph(made.graph, "N")
    return made


def kinds(found: onnx_nb.types.Diff) -> list[tuple[str, str]]:
    return [(change.kind, change.what) for change in found.changes]


def test_quantized_nodes_are_paired_by_names_that_an_exporter_numbers(tmp_path: Path) -> None:
    weights = "float[4,4] w_1 = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}, float[4,4] w_2 = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}"
    body = "h_0 = MatMul(x, w_1)  h_1 = Relu(h_0)  h_2 = MatMul(h_1, w_2)  h_3 = Sigmoid(h_2)  y = Add(h_3, h_1)"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x) => (float[2,4] y) <{weights}> {{ {body} }}'
    )
    for number, node in enumerate(proto.graph.node):
        node.name = f"node_{node.op_type}_{number}"
    onnx.save(proto, tmp_path / "float.onnx")
    reader = iter([{"x": np.ones((2, 4), np.float32)}])

    class Once(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            return next(reader, None)

    quantization.quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", Once())
    found = onnx_nb.diff(proto, tmp_path / "int8.onnx")
    pairs = {row["reference"]: row["candidate"] or "" for row in found.matches()}
    there = {node.name for node in onnx.load(tmp_path / "int8.onnx").graph.node}
    assert there.issuperset(pairs.keys() - {"node_Relu_1"})
    assert pairs == {name: name if name in there else "" for name in pairs}


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("rename", [False, True])
def test_a_model_matches_itself_under_any_names(name: str, rename: bool) -> None:
    proto = onnx.load(models.light(name))
    found = onnx_nb.diff(proto, renamed(proto) if rename else copy_of(proto))
    count = len(proto.graph.node)
    assert found.matching.node.tolist() == list(range(count))
    assert (found.matching.value >= 0).all()
    about_names = [change for change in found.changes if change.detail != "name"]
    assert not about_names
    assert {row["how"] for row in found.matches()} <= ({"structure", "weights"} if rename else {"name"})
    assert bool(found) == rename  # inputs and outputs of other names are a difference to who runs the model


@pytest.mark.parametrize("path", [models.control_flow, models.functions, models.one_node, models.empty])
def test_bodies_functions_and_tiny_models_match_renamed(path: Callable[[], Path]) -> None:
    proto = onnx.load(path())
    found = onnx_nb.diff(proto, renamed(proto))
    assert (found.matching.node >= 0).all()
    assert {change.detail for change in found.changes} <= {"name"}


@hypothesis.given(dags())
@examples(60)
def test_renaming_changes_nothing_but_names(proto: onnx.ModelProto) -> None:
    found = onnx_nb.diff(proto, renamed(proto))
    graph, other = Graph.of(found.reference), Graph.of(found.candidate)
    assert (found.matching.node >= 0).all(), found
    assert sorted(found.matching.node.tolist()) == list(range(other.node_count))
    assert {change.detail for change in found.changes} <= {"name"}, found.changes
    for node, there in enumerate(found.matching.node.tolist()):  # an isomorphism: what is read corresponds
        read, other_read = graph.node_inputs(node).tolist(), other.node_inputs(there).tolist()
        computed = [v for v in read if v >= 0 and graph.value_kind[v] != INITIALIZER]
        expected = [w for w in other_read if w >= 0 and other.value_kind[w] != INITIALIZER]
        assert [int(found.matching.value[v]) for v in computed] == expected


def readers_of(proto: onnx.ModelProto, name: str) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if name in node.input]


@hypothesis.given(dags(), st.data())
@examples(60)
def test_an_inserted_node_is_the_only_difference(proto: onnx.ModelProto, data: st.DataObject) -> None:
    made = copy_of(proto)
    able = [number for number, node in enumerate(made.graph.node) if node.output[0].startswith(("v", "r"))]
    at = data.draw(st.sampled_from(able)) if able else hypothesis.reject()
    name = made.graph.node[at].output[0]
    for node in readers_of(made, name):
        node.input[:] = ["put_in" if read == name else read for read in node.input]
    made.graph.node.insert(at + 1, helper.make_node("Abs", [name], ["put_in"], "new"))
    found = onnx_nb.diff(proto, made)
    assert found.added == ["Abs 'new'"]
    assert not found.removed
    assert kinds(found) == [("node", "added")], found.changes
    back = onnx_nb.diff(made, proto)
    assert kinds(back) == [("node", "removed")], back.changes
    assert back.removed == ["Abs 'new'"]


@hypothesis.given(dags(), st.data(), st.booleans())
@examples(60)
def test_a_changed_weight_is_the_only_difference(proto: onnx.ModelProto, data: st.DataObject, rename: bool) -> None:
    hypothesis.assume(len(proto.graph.initializer) > 0)
    made = copy_of(proto)
    weight = data.draw(st.sampled_from(list(made.graph.initializer)))
    hypothesis.assume(weight.data_type != TensorProto.BOOL)
    hypothesis.assume(any(weight.name in node.input for node in made.graph.node))
    values = numpy_helper.to_array(weight)
    weight.CopyFrom(numpy_helper.from_array(values + np.asarray(1, values.dtype), weight.name))
    changed = made.graph.node[[weight.name in node.input for node in made.graph.node].index(True)].name
    found = onnx_nb.diff(proto, renamed(made) if rename else made)
    # of a target shape what follows has another type
    differing = [change for change in found.changes if change.detail != "name" and change.kind != "type"]
    assert [(change.kind, change.what) for change in differing] == [("weight", "changed")]
    assert f"{values.size} of {values.size} differ, by at most 1" in differing[0].candidate
    if not rename:
        assert differing[0].name == weight.name
        state = found.side("candidate").node_state
        assert state[Graph.of(made).names.index(changed)] == CHANGED
    assert {kind for kind, _ in kinds(onnx_nb.diff(proto, made, weights=False))} <= {"type"}


@hypothesis.given(dags(), st.data())
@examples(60)
def test_a_changed_attribute_is_the_only_difference(proto: onnx.ModelProto, data: st.DataObject) -> None:
    made = copy_of(proto)
    able = [node for node in made.graph.node if node.op_type in ("TopK", "Cast", "Constant")]
    hypothesis.assume(able)
    node = data.draw(st.sampled_from(able))
    if node.op_type == "TopK":
        node.attribute.append(helper.make_attribute("largest", 0))
    elif node.op_type == "Cast":
        node.attribute[0].i = TensorProto.FLOAT if node.attribute[0].i == TensorProto.DOUBLE else TensorProto.DOUBLE
    else:
        values = numpy_helper.to_array(node.attribute[0].t) + np.float32(1)
        node.attribute[0].t.CopyFrom(numpy_helper.from_array(values))
    found = onnx_nb.diff(proto, made)
    # of a Cast what follows has another type
    attributes = [change for change in found.changes if change.kind not in ("type", "model output")]
    assert [(change.kind, change.what, change.name) for change in attributes] == [("attribute", "changed", node.name)]
    if node.op_type == "TopK":
        assert (attributes[0].detail, attributes[0].reference, attributes[0].candidate) == (
            "largest",
            "1 (default)",
            "0",
        )
    if node.op_type == "Constant":
        assert attributes[0].candidate.endswith("other values")


@hypothesis.given(dags(), st.data())
@examples(60)
def test_a_rewired_input_is_the_only_difference(proto: onnx.ModelProto, data: st.DataObject) -> None:
    made = copy_of(proto)
    able = [node for node in made.graph.node if node.op_type in ("Neg", "Add", "Mul", "Sum")]
    hypothesis.assume(able)
    node = data.draw(st.sampled_from(able))
    slot = data.draw(st.integers(0, len(node.input) - 1))
    before = node.input[slot]
    hypothesis.assume(before.startswith(("v", "x")))
    hypothesis.assume(before != "x1")
    node.input[slot] = "x1"
    found = onnx_nb.diff(proto, made)
    changes = [change for change in found.changes if change.kind != "weight"]
    assert [(change.kind, change.name) for change in changes] == [("input", node.name)], found.changes
    assert (changes[0].reference, changes[0].candidate) == (repr(before), "'x1'")


@pytest.mark.parametrize("name", LIGHT)
def test_edits_of_a_real_model_are_found_without_names(name: str) -> None:
    proto = onnx.load(models.light(name))
    made = copy_of(proto)
    convs = [node for node in made.graph.node if node.op_type == "Conv"]
    relus = [node for node in made.graph.node if node.op_type == "Relu"]
    convs[3].attribute.append(helper.make_attribute("dilations", [2, 2]))
    made.graph.node.remove(relus[2])
    for node in readers_of(made, relus[2].output[0]):
        node.input[:] = [relus[2].input[0] if read == relus[2].output[0] else read for read in node.input]
    made.graph.node.insert(
        list(made.graph.node).index(convs[8]) + 1, helper.make_node("Tanh", [convs[8].output[0]], ["put_in"], "new")
    )
    for node in readers_of(made, convs[8].output[0]):
        if node.op_type != "Tanh":
            node.input[:] = ["put_in" if read == convs[8].output[0] else read for read in node.input]
    for candidate in (made, renamed(made)):
        found = onnx_nb.diff(proto, candidate, weights=False)
        changes = [change for change in found.changes if change.kind not in ("model input", "model output", "type")]
        assert sorted((change.kind, change.what, change.op) for change in changes) == [
            ("attribute", "changed", "Conv"),
            ("node", "added", "Tanh"),
            ("node", "removed", "Relu"),
        ], changes


def test_numbered_names_that_shifted_do_not_mislead() -> None:
    def chain(ops: list[str]) -> onnx.ModelProto:
        nodes, read, counts = [], "x", dict[str, int]()
        for op in ops:
            counts[op] = counts.get(op, 0) + 1
            made = f"{op.lower()}_{counts[op]}"
            nodes.append(helper.make_node(op, [read, "x"] if op == "Add" else [read], [made], f"node_{made}"))
            read = made
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", read)]
        return helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]))

    ops = ["Relu", "Add", "Tanh", "Exp", "Add", "Relu", "Sin", "Cos", "Add", "Tanh"]
    # another Add in front shifts the names of all others
    found = onnx_nb.diff(chain(ops), chain([*ops[:3], "Add", *ops[3:]]))
    about_nodes = [change for change in found.changes if change.kind in ("node", "input", "attribute")]
    assert [(change.kind, change.what, change.op) for change in about_nodes] == [("node", "added", "Add")], about_nodes
    assert found.matching.node.tolist() == [0, 1, 2, *range(4, 11)]


def test_an_explicit_mapping_wins() -> None:
    one = parse("{ a = Relu(x)  b = Relu(x)  z = Sub(a, b) }")
    assert onnx_nb.diff(one, copy_of(one)).counterpart("a") == "a"
    found = onnx_nb.diff(one, copy_of(one), {"a": "b", "b": "a"})
    assert (found.counterpart("a"), found.counterpart("b")) == ("b", "a")
    assert [(change.detail, change.reference, change.candidate) for change in found.changes] == [
        ("A", "'a'", "'a'"),
        ("B", "'b'", "'b'"),
    ]
    none = onnx_nb.diff(one, copy_of(one), {"b": None})
    assert none.counterpart("b") is None
    assert none.removed == ["Relu 'b'"]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"q": "a"}, "no tensor and no node of the reference is called 'q'"),
        ({"a": "q"}, "no tensor and no node of the candidate is called 'q'"),
        ({"a": "a", "b": "a"}, "mapping of 'b' to 'a' contradicts"),
    ],
)
def test_a_wrong_mapping_is_an_error(mapping: dict[str, str | None], message: str) -> None:
    one = parse("{ a = Relu(x)  b = Relu(x)  z = Sub(a, b) }")
    with pytest.raises(onnx_nb.AlignmentError, match=message):
        onnx_nb.diff(one, copy_of(one), mapping)


def test_another_operator_in_the_same_place_is_a_difference() -> None:
    found = onnx_nb.diff(parse("{ a = Relu(x)  z = Neg(a) }"), parse("{ q = Tanh(x)  z = Neg(q) }"))
    assert [change.message for change in found.changes] == ["Relu 'a': Relu → Tanh"]
    assert found.changes[0].how == "place"


def test_an_explicit_default_is_not_a_difference() -> None:
    found = onnx_nb.diff(parse("{ z = Softmax<axis = -1>(x) }"), parse("{ z = Softmax(x) }"))
    assert not found
    assert repr(found) == "Diff('g' → 'g': no differences)"


def test_types_ports_opsets_and_metadata() -> None:
    one = parse("{ a = Cast<to = 1>(x)  z = Neg(a) }")
    other = parse("{ a = Cast<to = 1>(x)  z = Neg(a) }", opset=18)
    other.graph.input.append(helper.make_tensor_value_info("more", TensorProto.INT64, ["n"]))
    other.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    other.metadata_props.add(key="by", value="hand")
    found = onnx_nb.diff(one, other)
    assert [(c.kind, c.what, c.name, c.detail, c.reference, c.candidate) for c in found.changes] == [
        ("model input", "added", "more", "", "", "n int64"),
        ("model output", "changed", "z", "type", "2×3 float32", "5×3 float32"),
        ("opset", "changed", "ai.onnx", "", "17", "18"),
        ("metadata", "added", "by", "", "", "hand"),
    ]


def test_weights_are_compared_in_any_storage(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(3, 1000)).astype(np.float32)
    graph = parse("{ y = MatMul(x, w)  z = MatMul(y, v) }").graph
    graph.initializer.append(numpy_helper.from_array(values, "w"))
    held = onnx.TensorProto(name="v", data_type=TensorProto.FLOAT, dims=[1000, 3])
    held.float_data.extend(values.reshape(-1).tolist())
    graph.initializer.append(held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    raw = copy_of(proto)
    raw.graph.initializer[1].CopyFrom(numpy_helper.from_array(values.reshape(1000, 3), "v"))
    path = onnx_nb.load(raw).save(tmp_path / "external.onnx", external_data=True)
    assert not onnx_nb.diff(proto, path)
    values[1, 7] += 0.5
    raw.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    (change,) = onnx_nb.diff(path, raw).changes
    assert (change.kind, change.name, change.reference) == ("weight", "w", "3×1000 float32")
    assert change.candidate == "1 of 3,000 differ, by at most 0.5"
    raw.graph.initializer[0].CopyFrom(numpy_helper.from_array(values.astype(np.float16), "w"))
    (change,) = onnx_nb.diff(path, raw).changes
    assert (change.detail, change.candidate) == ("type", "3×1000 float16")


def test_progress_can_end_the_comparison_of_weights() -> None:
    proto = parse("{ z = Neg(x) }")
    proto.graph.initializer.extend(numpy_helper.from_array(np.ones(2000), f"w{number}") for number in range(40))
    reported: list[float] = []

    def progress(part: float, message: str) -> None:
        reported.append(part)
        assert "comparing" in message
        if len(reported) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        onnx_nb.diff(proto, copy_of(proto), progress=progress)
    assert reported == sorted(reported)


@pytest.mark.parametrize("name", ["resnet50", "squeezenet"])
def test_a_model_optimized_by_onnxruntime_matches(name: str) -> None:
    path = models.light(name)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        options.log_severity_level = 3
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found = onnx_nb.diff(path, f"{folder}/optimized.onnx", weights=False)
        graph, other = Graph.of(found.reference), Graph.of(found.candidate)
        # every tensor whose name survived is the same tensor
        survived = set(graph.value_names) & set(other.value_names)
        for tensor in survived:
            assert found.counterpart(tensor) == tensor
        fused = [name for name in found.added if name.startswith("FusedConv")]
        assert len(fused) == sum(op == "FusedConv" for op, _ in (other.operators[i] for i in other.op_index))
        # a Conv that took in a BatchNormalization has a bias now; nothing else reads something else
        assert {(change.op, change.detail) for change in found.changes if change.kind == "input"} <= {("Conv", "B")}


def test_columns_of_both_sides_agree() -> None:
    one = onnx.load(models.chain(340))
    other = copy_of(one)
    tanh = helper.make_node("Tanh", [other.graph.node[20].output[0]], ["put_in"], f"{other.graph.node[20].name}_more")
    for node in readers_of(other, other.graph.node[20].output[0]):
        node.input[:] = ["put_in" if read == other.graph.node[20].output[0] else read for read in node.input]
    other.graph.node.insert(21, tanh)
    other.graph.node[60].attribute.append(helper.make_attribute("epsilon", 0.5))
    found = onnx_nb.diff(one, renamed(other))
    left, right = found.side("reference"), found.side("candidate")
    assert (right.node[left.node[left.node >= 0]] == np.flatnonzero(left.node >= 0)).all()
    assert np.flatnonzero(right.node_state == ONLY).tolist() == [21]
    assert (left.node_state == CHANGED).sum() == (right.node_state == CHANGED).sum()
    assert (left.node_state == SAME).sum() == (right.node_state == SAME).sum()
    trees = scopes(Graph.of(found.reference)), scopes(Graph.of(found.candidate))
    for side, tree in ((left, trees[0]), (right, trees[1])):
        assert side.scope_only[0] == (side.node_state == ONLY).sum()
        assert side.scope_changed[0] == (side.node_state == CHANGED).sum()
        assert len(side.scope) == len(tree.scope_parent)
    same = onnx_nb.diff(one, copy_of(one)).side("reference")
    assert same.scope.tolist() == list(range(len(same.scope)))


def test_rows_and_frame() -> None:
    pandas = pytest.importorskip("pandas")
    found = onnx_nb.diff(parse("{ a = Relu(x)  z = Neg(a) }"), parse("{ z = Neg(x) }"))
    assert [row["kind"] for row in found.rows()] == ["node"]
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["name"].tolist() == ["a"]
    with pytest.raises(onnx_nb.OnnxNbError, match="no tensor and no node 'q'"):
        found.counterpart("q")


@pytest.mark.parametrize("rename", [False, True])
def test_swapped_inputs_of_a_commutative_operator_are_not_a_difference(rename: bool) -> None:
    one = parse("{ a = Relu(x)  b = Neg(x)  c = Add(a, b)  z = Sub(c, a) }")
    swapped = parse("{ a = Relu(x)  b = Neg(x)  c = Add(b, a)  z = Sub(c, a) }")
    other = parse("{ a = Relu(x)  b = Neg(x)  c = Add(a, b)  z = Sub(a, c) }")
    candidates = [renamed(proto) if rename else proto for proto in (swapped, other)]
    same, different = (onnx_nb.diff(one, candidate) for candidate in candidates)
    assert {change.detail for change in same.changes} <= {"name"}
    assert [(change.kind, change.op) for change in different.changes if change.detail != "name"] == [
        ("input", "Sub")
    ] * 2


def test_merged_weights_of_equal_values_are_not_a_difference() -> None:
    zeros = [numpy_helper.from_array(np.zeros((2, 3), np.float32), name) for name in ("u", "v")]
    one, merged = parse("{ a = Sub(x, u)  z = Div(a, v) }"), parse("{ a = Sub(x, u)  z = Div(a, u) }")
    one.graph.initializer.extend(zeros)
    merged.graph.initializer.append(zeros[0])
    found = onnx_nb.diff(one, merged)
    assert [(change.kind, change.what, change.name) for change in found.changes] == [("weight", "removed", "v")]


def test_both_exporters_of_bert_correspond_without_any_common_name() -> None:
    """Layer by layer, although one of them writes more than twice as many nodes as the other."""
    paths = [models.exported("bert", dynamo=dynamo) for dynamo in (False, True)]
    found = onnx_nb.diff(paths[0], paths[1], weights=False)
    graph, other = Graph.of(found.reference), Graph.of(found.candidate)

    def of(graph: Graph, op: str) -> list[int]:
        return [node for node in graph.order.tolist() if graph.operators[graph.op_index[node]][0] == op]

    for op in ("MatMul", "Softmax", "LayerNormalization", "Tanh"):
        mine, others = of(graph, op), of(other, op)
        assert len(mine) == len(others) > 0
        matched = [int(found.matching.node[node]) for node in mine]
        if op == "MatMul":  # query, key and value may come in any order
            assert sorted(matched) == sorted(others)
        else:
            assert matched == others


def test_an_omitted_input_is_a_difference_unless_it_has_no_elements() -> None:
    one, other = parse("{ high = Constant<value_float = 1.0>()  z = Clip(x, , high) }"), parse("{ z = Clip(x) }")
    found = [(each.kind, each.detail, each.reference, each.candidate) for each in onnx_nb.diff(one, other).changes]
    assert ("input", "max", "'high'", "") in found
    found = [(each.kind, each.detail, each.reference, each.candidate) for each in onnx_nb.diff(other, one).changes]
    assert ("input", "max", "", "'high'") in found
    sizes = parse("{ z = Resize(x, , , sizes) }")
    sizes.graph.initializer.append(numpy_helper.from_array(np.asarray([2, 3]), "sizes"))
    empty = copy_of(sizes)
    empty.graph.node[0].input[1] = "roi"
    empty.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), "roi"))
    assert [each.kind for each in onnx_nb.diff(sizes, empty).changes] == ["weight"]


def test_a_weight_with_more_bytes_than_its_shape_takes_is_named() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }""")
    for data in (b"\1" * 20, b"\1" * 12):
        other = copy.deepcopy(proto)
        other.graph.initializer[0].CopyFrom(onnx.TensorProto(name="w", data_type=1, dims=[4], raw_data=data))
        with pytest.raises(onnx_nb.ModelFileError, match=rf"weight 'w' of .* has {len(data)} bytes, but .* takes 16"):
            onnx_nb.diff(proto, other)


def test_models_that_differ_in_names_only_say_so() -> None:
    """A re-export with other names: the first line says what happened, instead of no difference."""
    one = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { [a] h = Neg(x)  [b] z = Exp(h) }'
    )
    other = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { [c] k = Neg(x)  [b] z = Exp(k) }'
    )
    assert onnx_nb.diff(one, other).message == "only names differ: 1 of 2 nodes"
    assert not onnx_nb.diff(one, other)
    assert onnx_nb.diff(one, one).message == "no differences"


def _quantized(scales: list[np.ndarray], zero: int = 0, kind: int = onnx.TensorProto.INT8) -> onnx.ModelProto:
    """Return a chain of quantizers with these scales."""
    lines = "".join(
        f"q{n} = QuantizeLinear<axis = 1>(a{n}, s{n}, z{n})  a{n + 1} = DequantizeLinear<axis = 1>(q{n}, s{n}, z{n})  "
        for n in range(len(scales))
    )
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2, 3] a0) => (float[2, 3] y)'
    model = onnx.parser.parse_model(f"{text} {{ {lines} y = Neg(a{len(scales)}) }}")
    for n, scale in enumerate(scales):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(scale, np.float32), f"s{n}"))
        values = np.full(np.shape(scale), zero).ravel().tolist()
        model.graph.initializer.append(onnx.helper.make_tensor(f"z{n}", kind, np.shape(scale), values))
    return model


def test_a_requantization_is_said_by_its_factor_worst_first() -> None:
    before = [np.asarray(0.1), np.asarray([0.1, 0.2, 0.4]), np.asarray(0.5), np.asarray(0.5)]
    after = [np.asarray(0.2), np.asarray([0.1, 0.05, 0.4]), np.asarray(0.5), np.asarray([0.5, 0.5, 0.5])]
    found = onnx_nb.diff(_quantized(before), _quantized(after))
    assert [change.message for change in found.changes] == [
        "'s3': scale per tensor → per channel",
        "'s1': scale 0.2 → 0.05, ÷ 4 in channel 1 of 3",
        "'s0': scale 0.1 → 0.2, × 2",
        "'z3': zero point per tensor → per channel",
    ]
    assert found.message == "3 scales changed, 1 zero point changed; most: 's3': scale per tensor → per channel"
    assert {change.kind for change in found.changes} == {"weight"}
    (zero, *_) = onnx_nb.diff(_quantized(before), _quantized(before, zero=3)).changes
    assert zero.message == "'z0': zero point 0 → 3"
    (zero, *_) = onnx_nb.diff(_quantized(before), _quantized(before, kind=onnx.TensorProto.UINT8)).changes
    assert (zero.detail, zero.reference, zero.candidate) == ("type", "scalar int8", "scalar uint8")
    four = [_quantized(before, zero=zero, kind=onnx.TensorProto.INT4) for zero in (0, -3)]
    assert [change.message for change in onnx_nb.diff(*four).changes] == [
        "'z0': zero point 0 → −3",
        "'z1': zero point 0 → −3 in channel 0 of 3",
        "'z2': zero point 0 → −3",
        "'z3': zero point 0 → −3",
    ]


def test_a_scale_that_is_zero_or_not_finite_is_no_factor() -> None:
    one, other = ([np.asarray(scale, np.float32)] for scale in (0.0, np.nan))
    assert onnx_nb.diff(_quantized(one), _quantized(other)).message.endswith("'s0': scale 0 → NaN")


def test_many_differences_of_one_kind_are_one_row() -> None:
    before = [np.asarray(0.1)] * 30
    found = onnx_nb.diff(_quantized(before), _quantized([scale * (n + 1) for n, scale in enumerate(before)], zero=1))
    (table,) = found._still().tables
    assert [row[1:] for row in table.rows] == [
        ("scale", "29 scales changed, first 's29': scale 0.1 → 3, × 30"),
        ("zero point", "30 zero points: 0 → 1 ('z0', 'z1', 'z2', …)"),
    ]
    assert len(found) == 59


def test_differences_are_grouped_by_kind_and_layer() -> None:
    """A row is a layer at the depth at which all of them fit into the table; a short list has its own rows."""

    def network(blocks: int, parts: int, least: float) -> onnx.ModelProto:
        places = [f"/net/block.{block}/part.{part}" for block in range(blocks) for part in range(parts)]
        nodes = "".join(f"b{n + 1} = Mul(b{n}, w{n})  " for n in range(len(places)))
        text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] b0) => (float[2] '
        model = onnx.parser.parse_model(f"{text} b{len(places)}) {{ {nodes} }}")
        for n, (place, node) in enumerate(zip(places, model.graph.node, strict=True)):
            node.name = f"{place}/Mul"
            weight = np.full(2, n + least, np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{n}"))
        return model

    layers = {}
    for blocks, parts in ((2, 2), (4, 10), (30, 2)):
        found = onnx_nb.diff(network(blocks, parts, 1), network(blocks, parts, 2))
        (table,) = found._still().tables
        layers[blocks, parts] = [row[3] for row in table.rows]
        assert found.rows()[3]["layer"] == f"net/block.{3 // parts}/part.{3 % parts}"
    assert layers[2, 2] == [f"net/block.{n}/part.{m}" for n in range(2) for m in range(2)]
    assert layers[4, 10] == [f"net/block.{n}" for n in range(4)]
    assert layers[30, 2] == ["net"]
