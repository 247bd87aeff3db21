"""Extraction against onnxruntime: a submodel fed with the values of the whole gives the values of the whole."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

import onnx_nb
from onnx_nb import ExtractionError, Graph, extract, load, plan_extraction
from onnx_nb.analysis.graph import NODE_OUTPUT
from tests import models

BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
branches (float[N,4] x, float[4] bias) => (float[N,4] z, float[N,4] w)
<float[4] scale = {1, 2, 3, 4}, float[1] unused = {0}> {
    [stem] a = Relu(x)
    [left] b = Mul(a, scale)
    [right] c = Neg(a)
    [two] d = Constant<value = float[4] {1, 1, 1, 1}>()
    [join] e = Add(b, c)
    [shift] f = Add(e, d)
    [late] g = Add(f, bias)
    [head] z = Sigmoid(g)
    [tail] w = Tanh(e)
}"""


def branches() -> onnx_nb.Model:
    return load(onnx.parser.parse_model(BRANCHES))


def values_of(
    model: onnx_nb.Model, feeds: dict[str, NDArray[np.float32]], names: list[str]
) -> list[NDArray[np.float32]]:
    found = onnx_nb.run(model, feeds, outputs=names)
    return [found[name] for name in names]


def feeds_for(model: onnx_nb.Model, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    random, graph = np.random.default_rng(seed), Graph.of(model)
    feeds = {}
    for value in graph.inputs:
        shape = graph.type_of(int(value)).shape
        assert shape is not None
        dims = [dim if isinstance(dim, int) and dim > 0 else 1 for dim in shape]
        feeds[graph.value_names[value]] = random.standard_normal(dims).astype(np.float32)
    return feeds


def assert_same_values(model: onnx_nb.Model, inputs: list[str], outputs: list[str]) -> onnx_nb.Model:
    feeds = feeds_for(model)
    at_cut = dict(zip(inputs, values_of(model, feeds, inputs), strict=True)) if inputs else {}
    expected = values_of(model, feeds, outputs)
    sub = extract(model, inputs, outputs)
    onnx.checker.check_model(sub.to_proto(), full_check=True)
    got = onnx_nb.run(sub, at_cut)
    for name, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got[name], want, err_msg=name)
    return sub


def test_takes_what_lies_between_and_the_constants_it_reads() -> None:
    plan = plan_extraction(branches(), ["a"], ["f"])
    taken = [branches().proto.graph.node[int(i)].name for i in plan.nodes]
    assert taken == ["left", "right", "two", "join", "shift"]
    assert plan.initializers == ("scale",)
    assert (plan.missing, plan.redundant, plan.suggestion, plan.nbytes) == ((), (), ("a",), 16)
    sub = assert_same_values(branches(), ["a"], ["f"])
    assert [t.name for t in sub.proto.graph.initializer] == ["scale"]


def names_that_are_not_utf8() -> onnx_nb.Model:
    """`branches`, with bytes that no text may hold in the name of the graph, of `a`, of `scale` and of `b`."""
    proto = onnx.parser.parse_model(BRANCHES)
    proto.graph.name, proto.graph.doc_string, proto.producer_name = "Q", "Qd", "Qp"
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, ["N", 4]))
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [{"a": "Qa", "scale": "Qs", "b": "Qb"}.get(name, name) for name in names]
    proto.graph.initializer[0].name, proto.graph.value_info[0].name = "Qs", "Qb"
    return load(proto.SerializeToString().replace(b"Q", b"\xff"))


def test_names_that_are_not_utf8_stay_as_they_are_inside() -> None:
    model = names_that_are_not_utf8()
    sub = extract(model, ["x"], ["e"])
    assert sub.tensor_names() == ["\\xffs"]
    graph = sub.to_proto().graph
    assert [node.output[0] for node in graph.node] == [b"\xffa", b"\xffb", "c", "e"]
    assert [info.name for info in graph.value_info] == [b"\xffb"]
    texts: list[object] = [graph.name, graph.doc_string, sub.proto.producer_name]
    assert texts == [b"\xff", b"\xffd", b"\xffp"]
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(onnx_nb.run(sub, {"x": x})["e"], x * [0, 1, 2, 3])


@pytest.mark.parametrize(("inputs", "outputs"), [(["\\xffa"], ["e"]), (["x"], ["\\xffa"]), (["\\xffs", "x"], ["e"])])
def test_a_name_that_is_not_utf8_cannot_be_an_input_or_output(inputs: list[str], outputs: list[str]) -> None:
    with pytest.raises(ExtractionError, match=r"tensor '\\\\xff[as]' is not valid UTF-8.*Choose a tensor next to it"):
        extract(names_that_are_not_utf8(), inputs, outputs)


def test_a_name_that_only_looks_so_can_be_an_input() -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = ["a\\xff" if name == "a" else name for name in names]
    assert_same_values(load(proto), ["a\\xff"], ["e"])


def test_names_each_missing_input_its_maker_and_the_output_that_needs_it() -> None:
    plan = plan_extraction(branches(), ["b"], ["w", "z"])
    assert [(m.name, m.output, m.producer) for m in plan.missing] == [("c", "w", "Neg 'right'"), ("bias", "z", "")]
    assert plan.suggestion == ("b", "c", "bias")
    with pytest.raises(ExtractionError, match=r"output 'w' also needs 'c' \(made by Neg 'right'\)") as caught:
        extract(branches(), ["b"], ["w", "z"])
    assert caught.value.missing == ("c", "bias")
    assert "inputs=['b', 'c', 'bias']" in caught.value.advice
    assert_same_values(branches(), list(plan.suggestion), ["w", "z"])


def test_an_output_that_no_input_reaches_asks_for_what_its_maker_reads() -> None:
    plan = plan_extraction(branches(), [], ["g"])
    assert [m.name for m in plan.missing] == ["f", "bias"]
    assert [branches().proto.graph.node[int(i)].name for i in plan.nodes] == ["late"]


def test_a_redundant_input_is_reported_kept_with_a_warning_or_dropped() -> None:
    plan = plan_extraction(branches(), ["a", "x"], ["w"])
    assert plan.redundant == ("x",)
    assert "'x'" in plan.message
    with pytest.warns(UserWarning, match="no node of the submodel reads 'x'"):
        kept = extract(branches(), ["a", "x"], ["w"])
    assert [i.name for i in kept.proto.graph.input] == ["a", "x"]
    dropped = extract(branches(), ["a", "x"], ["w"], keep_redundant=False)
    assert [i.name for i in dropped.proto.graph.input] == ["a"]


def test_an_extra_output_between_the_others_and_order_are_kept() -> None:
    sub = assert_same_values(branches(), ["c", "b"], ["w", "e", "f"])
    assert [i.name for i in sub.proto.graph.input] == ["c", "b"]
    assert [o.name for o in sub.proto.graph.output] == ["w", "e", "f"]


def test_a_weight_can_be_the_border() -> None:
    sub = assert_same_values(branches(), ["a", "scale"], ["b"])
    assert [i.name for i in sub.proto.graph.input] == ["a", "scale"]
    assert not sub.proto.graph.initializer


def test_the_whole_is_a_submodel_too() -> None:
    sub = assert_same_values(branches(), ["x", "bias"], ["z", "w"])
    assert len(sub.proto.graph.node) == len(branches().proto.graph.node)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["a"], ["zz"], "output tensor 'zz' is not in the model"),
        (["lef"], ["z"], "input tensor 'lef' is not in the model"),
        (["a"], ["a"], "both as an input and as an output"),
        (["a"], ["x"], "is a graph input: no node makes it"),
        (["a"], ["scale"], "is a weight: no node makes it"),
        (["a"], [], "no output is chosen"),
        ("a", ["z"], "is a single name, 'a', not a list"),
    ],
)
def test_bad_choices_are_explained(inputs: list[str], outputs: list[str], message: str) -> None:
    with pytest.raises(ExtractionError, match=message) as caught:
        extract(branches(), inputs, outputs)
    assert caught.value.advice


def test_the_given_model_is_not_changed() -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    before = proto.SerializeToString(deterministic=True)
    extract(proto, ["a"], ["f"])
    assert proto.SerializeToString(deterministic=True) == before


def test_metadata_names_docs_and_opsets_are_kept() -> None:
    proto = onnx.parser.parse_model(BRANCHES)
    proto.doc_string, proto.producer_name = "about it", "me"
    proto.metadata_props.add(key="k", value="v")
    proto.graph.node[1].metadata_props.add(key="scope", value="left")
    proto.graph.node[1].doc_string = "why"
    sub = extract(proto, ["a"], ["b"]).proto
    assert (sub.doc_string, sub.producer_name, sub.metadata_props[0].value) == ("about it", "me", "v")
    assert sub.graph.node[0] == proto.graph.node[1]
    assert list(sub.opset_import) == list(proto.opset_import)


def test_functions_that_are_called_come_along_and_others_stay() -> None:
    model = load(models.functions())
    graph = Graph.of(model)
    outputs = [graph.value_names[v] for v in graph.outputs]
    inputs = [graph.value_names[v] for v in graph.inputs]
    assert plan_extraction(model, inputs, outputs).functions
    assert_same_values(model, inputs, outputs)


def test_values_that_only_a_body_reads_are_not_lost() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (bool cond, float[2] x) => (float[2] z) <float[2] w = {5, 6}> {
        a = Relu(x)
        b = Neg(x)
        z = If(cond) <then_branch = t () => (float[2] r) { r = Add(a, w) },
                      else_branch = e () => (float[2] s) { s = Mul(b, w) }>
    }"""
    model = load(onnx.parser.parse_model(text))
    plan = plan_extraction(model, ["cond", "a"], ["z"])
    assert [m.name for m in plan.missing] == ["b"]
    assert plan.initializers == ("w",)
    sub = extract(model, ["cond", "a", "b"], ["z"])
    onnx.checker.check_model(sub.to_proto())
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    for cond, want in ((True, a + np.array([5, 6], np.float32)), (False, b * np.array([5, 6], np.float32))):
        got = onnx_nb.run(sub, {"cond": np.array(cond), "a": a, "b": b})["z"]
        np.testing.assert_array_equal(got, want)


def test_a_tensor_inside_a_body_cannot_be_the_border() -> None:
    model = load(models.control_flow())
    graph = Graph.of(model)
    inside = next(i for i, frame in enumerate(graph.value_frame) if frame and graph.value_kind[i] == NODE_OUTPUT)
    name = graph.value_names[inside]
    assert name not in {n for n, f in zip(graph.value_names, graph.value_frame, strict=True) if f == 0}
    with pytest.raises(ExtractionError, match="lies inside a body of"):
        plan_extraction(model, [], [name])


@pytest.mark.parametrize("name", ["squeezenet", "densenet121", "shufflenet"])
def test_cuts_of_ir3_models_are_valid_and_equal(name: str, tmp_path: Path) -> None:
    model = load(models.light(name))
    graph = Graph.of(model)
    # the light models compute their weights from a seedless generator in the graph: cut after it
    middle = [i for i in range(graph.main_count) if graph.nodes[i].op_type in {"Relu", "Concat", "MaxPool"}]
    first, last = middle[len(middle) // 3], middle[len(middle) // 2]
    start = graph.value_names[graph.node_outputs(first)[0]]
    end = graph.value_names[graph.node_outputs(last)[0]]
    plan = plan_extraction(model, [start], [end])
    sub = extract(model, plan.suggestion, [end])
    saved = sub.save(tmp_path / "sub.onnx")
    onnx.checker.check_model(str(saved), full_check=True)
    feeds = feeds_for(sub, seed=1)
    got = onnx_nb.run(load(saved), feeds)
    assert np.isfinite(got[end]).all()
    if name == "squeezenet":
        (expected,) = map(np.asarray, onnx.reference.ReferenceEvaluator(sub.to_proto()).run(None, feeds))
        np.testing.assert_allclose(got[end], expected, rtol=1e-4, atol=1e-4)


def test_the_saved_submodel_holds_only_its_own_weights(tmp_path: Path) -> None:
    big = onnx.numpy_helper.from_array(np.ones((1000, 1000), np.float32), "big")
    small = onnx.numpy_helper.from_array(np.full((1000,), 2, np.float32), "small")
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "big"], ["y"]),
        onnx.helper.make_node("Add", ["y", "small"], ["z"]),
    ]
    ports = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 1000]) for n in ("x", "y", "z")]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[2:], [big, small], value_info=ports[1:2])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opset), tmp_path / "m.onnx")
    sub = extract(tmp_path / "m.onnx", ["y"], ["z"])
    saved = sub.save(tmp_path / "sub.onnx")
    assert 4000 < saved.stat().st_size < 5000
    got = onnx_nb.run(load(saved), {"y": np.zeros((1, 1000), np.float32)})["z"]
    np.testing.assert_array_equal(got, np.full((1, 1000), 2, np.float32))


@st.composite
def dags(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[str], list[str]]:
    """A random graph of adds and negations with weights, and a random cut through it."""
    values, nodes, weights = ["x0", "x1"], [], []
    for number in range(draw(st.integers(1, 14))):
        reads = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
        if draw(st.integers(0, 4)) == 0:
            weights.append(onnx.numpy_helper.from_array(np.array([number, 1], np.float32), f"w{number}"))
            reads = [reads[0], f"w{number}"]
        op = "Neg" if len(reads) == 1 else "Add"
        nodes.append(onnx.helper.make_node(op, reads, [f"v{number}"], name=f"n{number}"))
        values.append(f"v{number}")
    made = values[2:]
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in values]
    outputs = info[-1:]
    graph = onnx.helper.make_graph(nodes, "dag", info[:2], outputs, weights, value_info=info[2:-1])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opset)
    ends = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    starts = draw(st.lists(st.sampled_from([v for v in values if v not in ends]), max_size=4, unique=True))
    return model, starts, ends


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dags())
def test_random_cuts_give_the_values_of_the_whole(case: tuple[onnx.ModelProto, list[str], list[str]]) -> None:
    proto, starts, ends = case
    model = load(proto)
    plan = plan_extraction(model, starts, ends)
    complete = plan_extraction(model, plan.suggestion, ends)
    assert not complete.missing
    np.testing.assert_array_equal(plan.nodes, complete.nodes)
    inputs = [name for name in complete.inputs if name not in complete.redundant]
    assert_same_values(model, inputs, ends)


def test_plans_agree_with_onnx_on_what_a_cut_takes() -> None:
    model = load(models.light("squeezenet"))
    graph = Graph.of(model)
    nodes = [i for i in range(graph.main_count) if graph.nodes[i].op_type == "Concat"]
    start, end = (graph.value_names[graph.node_outputs(nodes[i])[0]] for i in (1, 3))
    proto = onnx.shape_inference.infer_shapes(model.to_proto())
    theirs = onnx.utils.Extractor(proto).extract_model([start], [end])
    plan = plan_extraction(model, [start], [end])
    assert [graph.nodes[int(i)].output[0] for i in plan.nodes] == [node.output[0] for node in theirs.graph.node]
    assert set(plan.initializers) == {t.name for t in theirs.graph.initializer}
