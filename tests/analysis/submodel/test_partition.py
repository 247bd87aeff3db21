"""Partition against onnxruntime: the parts in order give, bit by bit, what the whole gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings

import onnx_nb
from onnx_nb import ExtractionError, load, partition
from onnx_nb.types import Graph
from tests import models
from tests.conformance.cases import same_bits
from tests.dags import FEEDS, all_values, dags, run, run_in_sequence
from tests.depth import examples

BLOCKS = """<ir_version: 8, opset_import: ["": 17]>
blocks (float[N,4] x) => (float[N,4] y)
<float[4] w0 = {1, 2, 3, 4}, float[4] w1 = {2, 2, 2, 2}, float[4] shared = {5, 5, 5, 5}> {
    [__stem__Mul] a = Mul(x, w0)
    [__stem__Add] b = Add(a, shared)
    [__block_D_0__Constant] two = Constant<value = float {2}>()
    [__block_D_0__Relu] c = Relu(b)
    [__block_D_0__Mul] d = Mul(c, two)
    [__block_D_0__Add] e = Add(d, b)
    [__block_D_1__Neg] f = Neg(e)
    [__block_D_1__Mul] g = Mul(f, w1)
    [__block_D_1__Div] h = Div(g, two)
    [__block_D_1__Add] i = Add(h, e)
    [__head__Add] j = Add(i, shared)
    [__head__Tanh] y = Tanh(j)
}"""


def parsed(text: str) -> onnx_nb.Model:
    """Parse a model; the parser knows no dots and slashes in names of nodes."""
    proto = onnx.parser.parse_model(text)
    for node in proto.graph.node:
        node.name = node.name.replace("__", "/").replace("_D_", ".")
    return load(proto)


def blocks() -> onnx_nb.Model:
    return parsed(BLOCKS)


def names(part: onnx_nb.Model) -> list[str]:
    return [node.output[0] for node in part.proto.graph.node]


def ports(part: onnx_nb.Model) -> tuple[list[str], list[str]]:
    graph = part.proto.graph
    return [port.name for port in graph.input], [port.name for port in graph.output]


def assert_partition(model: onnx_nb.Model, parts: list[onnx_nb.Model], feeds: dict[str, Any]) -> None:
    """Every node is in one part, every part is valid, and in order they give the outputs of the whole."""
    whole = Graph.of(model)
    made = [name for part in parts for node in part.proto.graph.node for name in node.output if name]
    assert sorted(made) == sorted(name for node in model.proto.graph.node for name in node.output if name)
    known = {whole.value_names[value] for value in whole.inputs}
    for part in parts:
        onnx.checker.check_model(part.to_proto(), full_check=True)
        graph = Graph.of(part)
        assert {graph.value_names[value] for value in graph.inputs} <= known
        known.update(graph.value_names[value] for value in graph.outputs)
    expected = run(model, feeds)
    found = run_in_sequence(parts, feeds)
    for name, want in expected.items():
        assert same_bits(found[name], want), name


X: dict[str, Any] = {"x": np.arange(8, dtype=np.float32).reshape(2, 4) - 3}


def test_a_part_ends_where_a_cut_tensor_is_made() -> None:
    parts = partition(blocks(), ["b", "e"])
    assert [names(part) for part in parts] == [["a", "b"], ["two", "c", "d", "e"], ["f", "g", "h", "i", "j", "y"]]
    assert [ports(part) for part in parts] == [(["x"], ["b"]), (["b"], ["e"]), (["e"], ["y"])]
    # a constant that a later part reads too is a weight there
    assert [part.tensor_names() for part in parts] == [["w0", "shared"], ["two"], ["w1", "shared", "two"]]
    assert_partition(blocks(), parts, X)


def test_names_may_come_in_any_order_and_twice() -> None:
    parts = partition(blocks(), ["e", "b", "e"])
    assert [names(part)[-1] for part in parts] == ["b", "e", "y"]


def test_a_stage_of_several_tensors_ends_when_all_are_made() -> None:
    parts = partition(blocks(), [["c", "b"], ["g", "d"]])
    assert [names(part)[-1] for part in parts] == ["c", "g", "y"]
    assert ports(parts[1]) == (["c", "b"], ["e", "g"])
    assert_partition(blocks(), parts, X)


def test_no_cut_gives_the_whole() -> None:
    (part,) = partition(blocks(), [])
    assert names(part) == names(blocks())


def test_scopes_become_parts_and_what_lies_between_them_too() -> None:
    parts = partition(blocks(), scopes=["block.0", "/block.1"])
    assert [sorted(names(part)) for part in parts] == [
        ["a", "b"],
        ["c", "d", "e", "two"],
        ["f", "g", "h", "i"],
        ["j", "y"],
    ]
    assert_partition(blocks(), parts, X)


def test_scopes_by_depth() -> None:
    parts = partition(blocks(), scopes=1)
    assert [names(part)[-1] for part in parts] == ["b", "e", "i", "y"]
    assert_partition(blocks(), parts, X)


def test_a_scope_that_is_left_and_entered_again_becomes_several_parts() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) {
        [__a__1] p = Neg(x)  [__b__1] q = Exp(p)  [__a__2] r = Abs(q)  [__b__2] s = Neg(r)  [__a__3] z = Exp(s)
    }"""
    parts = partition(parsed(text), scopes=["a", "b"])
    assert [names(part) for part in parts] == [["p"], ["q"], ["r"], ["s"], ["z"]]


def test_what_runs_in_the_middle_of_one_scope_becomes_part_of_it() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) {
        [__a__1] p = Neg(x)  [lost] q = Exp(p)  [__a__2] r = Abs(q)  [end] z = Neg(r)
    }"""
    parts = partition(parsed(text), scopes=["a"])
    assert [names(part) for part in parts] == [["p", "q", "r"], ["z"]]


def weighted(sizes: list[int]) -> onnx_nb.Model:
    """A chain of nodes that read weights of some sizes, with a shortcut over every second node."""
    nodes, weights, x = [], [], "x"
    for i, size in enumerate(sizes):
        weights.append(onnx.numpy_helper.from_array(np.ones(size, np.float32), f"w{i}"))
        nodes.append(onnx.helper.make_node("ReduceSum", [f"w{i}"], [f"s{i}"], keepdims=0))
        nodes.append(onnx.helper.make_node("Add", [x, f"s{i}"], [f"a{i}"]))
        x = f"a{i}"
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, [2])], [info(x, 1, [2])], weights)
    opset = [onnx.helper.make_opsetid("", 17)]
    return load(onnx.helper.make_model(graph, ir_version=8, opset_imports=opset))


def test_a_number_of_parts_is_balanced_by_bytes() -> None:
    model = weighted([1000, 1000, 1000, 3000, 1000, 1000, 1000])
    parts = partition(model, 3)
    assert [part.nbytes for part in parts] == [12000, 12000, 12000]
    assert_partition(model, parts, {"x": np.ones(2, np.float32)})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(1, 6))
def test_no_part_is_much_heavier_than_it_must_be(sizes: list[int], count: int) -> None:
    model = weighted(sizes)
    parts = partition(model, count)
    assert len(parts) <= count

    # the most that each of n parts has to hold at least, for n = 1, 2, …
    least = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    for _ in range(count - 1):
        least = [
            min([least[i], *(max(least[j], sum(sizes[j + 1 : i + 1])) for j in range(i))]) for i in range(len(sizes))
        ]
    assert max(part.nbytes for part in parts) <= least[-1] * 4 * 1.051


def test_a_cut_is_made_where_few_tensors_pass() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) {
        a = Neg(x)  b = Exp(x)  c = Abs(x)  d = Sum(a, b, c)  e = Neg(d)  f = Exp(d)  z = Add(e, f)
    }"""
    parts = partition(onnx.parser.parse_model(text), 2)
    assert len(ports(parts[1])[0]) <= 2


def test_more_parts_than_nodes_are_as_many_as_nodes() -> None:
    assert len(partition(blocks(), 1000)) <= 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either at or scopes"),
        ({"at": ["b"], "scopes": 1}, "either at or scopes"),
        ({"at": "b"}, "is a single name"),
        ({"at": ["bb"]}, "tensor 'bb' is not in the model"),
        ({"at": ["w0"]}, "it is a weight"),
        ({"at": ["x"]}, "it is an input of the model"),
        ({"at": [[]]}, "empty list of tensors"),
        ({"at": 0}, "divided into 0 parts"),
        ({"scopes": ["blok.0"]}, "scope 'blok.0' is not in the model. Closest names: 'block.0'"),
        ({"scopes": []}, "no scope is named"),
        ({"scopes": 0}, "depth 0"),
        ({"scopes": "stem"}, "is a single path"),
        ({"scopes": ["stem", "/stem"]}, "have nodes in common"),
    ],
)
def test_bad_arguments_are_explained(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ExtractionError, match=message) as caught:
        partition(blocks(), **arguments)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("a = Add(x, b)  b = Neg(a)  z = Neg(x)", "form a cycle"),
        ("a = Neg(x)  a = Exp(x)  z = Neg(a)", "tensor 'a' is made again by Exp"),
        ("a = Neg(gone)  z = Neg(a)", "Neg reads tensor 'gone', which no node makes"),
        ("", "no nodes"),
    ],
)
def test_broken_models_are_refused(nodes: str, message: str) -> None:
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) {{ {nodes} }}'
    )
    with pytest.raises(ExtractionError, match=message):
        partition(proto, 2)


def test_a_tensor_inside_a_body_is_no_cut() -> None:
    with pytest.raises(ExtractionError, match="lies inside a body"):
        partition(models.control_flow(), ["m"])


def test_outputs_that_no_node_makes_are_given_by_the_last_part() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z, float[2] x, float[2] w)
    <float[2] w = {1, 2}> { a = Neg(x)  z = Exp(a) }"""
    parts = partition(onnx.parser.parse_model(text), ["a"])
    found = run_in_sequence(parts, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(found["w"], [1, 2])
    assert ports(parts[-1]) == (["a", "x"], ["z", "x", "w"])


def test_weights_are_referred_to_and_never_read(tmp_path: Path) -> None:
    big = onnx.numpy_helper.from_array(np.ones((500, 500), np.float32), "big")
    nodes = [onnx.helper.make_node("MatMul", [a, "big"], [b]) for a, b in (("x", "a"), ("a", "b"))]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, [1, 500])], [info("b", 1, [1, 500])], [big])
    onnx.save(
        onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]),
        tmp_path / "m.onnx",
    )
    parts = partition(tmp_path / "m.onnx", ["a"])
    assert [part.proto.ByteSize() < 1000 for part in parts] == [True, True]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.onnx")
    saved = [load(tmp_path / f"{i}.onnx") for i in range(2)]
    assert_partition(load(tmp_path / "m.onnx"), saved, {"x": np.ones((1, 500), np.float32)})


@pytest.mark.parametrize("model", ["control_flow", "functions"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_bodies_and_functions_stay_whole(model: str, count: int) -> None:
    loaded = load(getattr(models, model)())
    feeds = onnx_nb.random_feeds(loaded)
    assert_partition(loaded, partition(loaded, count), feeds)


@pytest.mark.parametrize("name", ["densenet121", "shufflenet", "squeezenet"])
def test_light_models_of_ir_version_3(name: str) -> None:
    model = load(models.light(name))
    assert_partition(model, partition(model, 3), onnx_nb.random_feeds(model))


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_exports_in_parts_are_bit_identical(name: str, dynamo: bool) -> None:
    model = load(models.exported(name, dynamo=dynamo))
    feeds = onnx_nb.random_feeds(model)
    parts = partition(model, 4)
    assert len(parts) == 4
    assert max(part.nbytes for part in parts) <= 0.45 * model.nbytes
    assert_partition(model, parts, feeds)
    assert_partition(model, partition(model, scopes=2), feeds)


@examples(80)
@given(dags(), st.data())
def test_random_models_in_parts_are_bit_identical(proto: onnx.ModelProto, data: st.DataObject) -> None:
    made = [name for node in proto.graph.node for name in node.output]
    before = proto.SerializeToString(deterministic=True)
    points: Any
    if data.draw(st.booleans()):
        points = data.draw(st.integers(1, 6))
    else:
        several = st.lists(st.sampled_from(made), min_size=1, max_size=3)
        points = data.draw(st.lists(st.one_of(st.sampled_from(made), several), max_size=4))
    model = load(proto)
    parts = partition(model, points)
    assert_partition(model, parts, FEEDS)
    values = all_values(proto)
    for name, found in run_in_sequence(parts, FEEDS).items():
        assert same_bits(found, values.get(name, FEEDS.get(name))), name
    assert proto.SerializeToString(deterministic=True) == before


def test_a_chain_of_100_000_nodes_is_divided() -> None:
    model = load(models.chain(100_000))
    parts = partition(model, 5)
    assert sum(len(part.proto.graph.node) for part in parts) == 100_000
    assert [len(ports(part)[0]) for part in parts] == [1] * 5
    assert max(part.nbytes for part in parts) < 1.5 * min(part.nbytes for part in parts)
