"""Graph against independent sources: a naive walk of the proto, networkx, onnx's own inference and checker."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph import diagnostics, names
from onnx_nb.analysis.graph import graph as graph_module
from onnx_nb.analysis.graph.dataflow import strongly_connected, topological
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import BODY_INPUT, DANGLING, GRAPH_INPUT, INITIALIZER, NODE_OUTPUT
from onnx_nb.analysis.graph.shape_inference import DEPTH
from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.model.model import Model, load
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LIGHT = ["densenet121", "inception_v2", "shufflenet"]


def proto_of(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **more: Any
) -> onnx.ModelProto:
    def float2(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    graph = helper.make_graph(
        list(nodes), "g", [float2(i) for i in inputs], [float2(o) for o in outputs], more.get("weights")
    )
    return helper.make_model(graph, opset_imports=more.get("opsets") or [helper.make_opsetid("", 20)], ir_version=10)


def relu(source: str, target: str, name: str = "", op: str = "Relu") -> onnx.NodeProto:
    return helper.make_node(op, [source], [target], name)


@st.composite
def protos(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs without bodies: optional inputs left out, several outputs, weights, and any order of nodes."""
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
    pool = draw(st.lists(names, min_size=3, max_size=25, unique=True))
    given_count = draw(st.integers(1, 2))
    inputs, weights, made = pool[:given_count], pool[given_count : given_count + 1], pool[given_count + 1 :]
    known, nodes = inputs + weights, []
    while made:
        outputs = [made.pop() for _ in range(min(len(made), draw(st.integers(1, 2))))]
        read = draw(st.lists(st.sampled_from([*known, ""]), max_size=4))
        nodes.append(helper.make_node(draw(st.sampled_from(["Add", "Mine", "Split"])), read, outputs, draw(names)))
        known += outputs
    if draw(st.booleans()):
        nodes = draw(st.permutations(nodes))
    tensors = [numpy_helper.from_array(np.ones((), np.float32), name) for name in weights]
    return proto_of(nodes, inputs, [draw(st.sampled_from(known))], weights=tensors)


def naive(proto: onnx.ModelProto) -> dict[str, Any]:
    """Producers and consumers by name, one access after the other."""
    makers = {name: i for i, node in enumerate(proto.graph.node) for name in node.output if name}
    readers: dict[str, set[int]] = {}
    for i, node in enumerate(proto.graph.node):
        for name in node.input:
            if name:
                readers.setdefault(name, set()).add(i)
    return {"makers": makers, "readers": readers}


def check_against_naive(graph: Graph, proto: onnx.ModelProto) -> None:
    expected = naive(proto)
    for i, node in enumerate(proto.graph.node):
        assert [graph.value_names[v] if v >= 0 else "" for v in graph.node_inputs(i)] == list(node.input)
        assert [graph.value_names[v] if v >= 0 else "" for v in graph.node_outputs(i)] == list(node.output)
        assert graph.names[i] == node.name
        assert graph.operators[graph.op_index[i]] == (node.op_type, node.domain)
    main = [v for v in range(len(graph.value_names)) if graph.value_subgraph[v] == 0]
    for v in main:
        name = graph.value_names[v]
        assert graph.producer[v] == expected["makers"].get(name, -1)
        assert {int(n) for n in graph.consumers(v) if n < graph.main_count} == expected["readers"].get(name, set())


@given(protos())
@settings(max_examples=150, deadline=None)
def test_columns_equal_a_naive_walk_of_the_proto(proto: onnx.ModelProto) -> None:
    check_against_naive(Graph.of(proto), proto)


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_equal_a_naive_walk(name: str) -> None:
    proto = onnx.load(models.light(name))
    graph = Graph.of(proto)
    check_against_naive(graph, proto)
    weights = {t.name for t in proto.graph.initializer}
    kinds = dict(zip(graph.value_names, graph.value_kind.tolist(), strict=True))
    assert {n for n, kind in kinds.items() if kind == INITIALIZER} == weights
    # before IR 4 every weight is an input too
    assert {graph.value_names[v] for v in graph.overridable} == weights
    assert [graph.value_names[v] for v in graph.inputs] == [i.name for i in proto.graph.input if i.name not in weights]
    assert not graph.problems


@given(protos())
@settings(max_examples=60, deadline=None)
def test_the_fast_and_the_careful_way_to_resolve_names_agree(proto: onnx.ModelProto) -> None:
    def by_name(graph: Graph) -> dict[str, Any]:
        names = graph.value_names
        return {
            "in": [[names[v] if v >= 0 else None for v in graph.node_inputs(n)] for n in range(graph.node_count)],
            "out": [[names[v] if v >= 0 else None for v in graph.node_outputs(n)] for n in range(graph.node_count)],
            "kinds": dict(zip(names, graph.value_kind.tolist(), strict=True)),
            "inputs": [names[v] for v in graph.inputs],
            "outputs": [names[v] for v in graph.outputs],
            "weights": [names[v] for v in graph.subgraphs[0].weights],
            "faults": {(f.kind, f.message) for f in graph.problems},
        }

    fast = Graph.of(proto)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names.Names, "_resolve_unique", lambda *_: False)
        careful = Graph.of(proto)
    assert by_name(fast) == by_name(careful)


@given(protos())
@settings(max_examples=100, deadline=None)
def test_order_is_topological_and_keeps_to_the_file(proto: onnx.ModelProto) -> None:
    graph = Graph.of(proto)
    order = graph.order.tolist()
    assert sorted(order) == list(range(graph.main_count))
    assert [order[r] for r in graph.rank] == list(range(graph.main_count))
    source, target = graph.subgraph_edges(0)
    assert all(graph.rank[a] < graph.rank[b] for a, b in zip(source, target, strict=True))
    if all(a < b for a, b in zip(source, target, strict=True)):
        assert order == list(range(graph.main_count))
    else:
        assert [fault.kind for fault in graph.problems if fault.kind in ("unsorted", "cycle")] == ["unsorted"]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=25))
@settings(max_examples=200, deadline=None)
def test_cycles_and_order_agree_with_networkx(edges: list[tuple[int, int]]) -> None:
    networkx = pytest.importorskip("networkx")
    peer = networkx.DiGraph(edges)
    peer.add_nodes_from(range(9))
    after: dict[int, list[int]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    found = strongly_connected(range(9), after)
    assert {frozenset(members) for members in found} == set(
        map(frozenset, networkx.strongly_connected_components(peer))
    )
    order = topological(0, 9, edges)
    assert sorted(order) == list(range(9))
    if networkx.is_directed_acyclic_graph(peer):
        assert order == list(networkx.lexicographical_topological_sort(peer))


def bodies_read(node: onnx.NodeProto, known: set[str]) -> set[str]:
    """Names that the bodies of a node read from outside, by plain recursion."""
    found = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            inside = {i.name for i in attribute.g.input} | {t.name for t in attribute.g.initializer}
            for inner in attribute.g.node:
                found |= {name for name in inner.input if name and name not in inside}
                found |= {name for name in bodies_read(inner, inside) if name not in inside}
                inside |= set(inner.output)
            found |= {o.name for o in attribute.g.output if o.name not in inside}
    return found


def test_captured_values_of_if_loop_and_scan() -> None:
    proto = onnx.load(models.control_flow())
    graph = Graph.of(proto)
    check_against_naive(graph, proto)
    expected = [bodies_read(node, set()) for node in proto.graph.node]
    assert [{graph.value_names[v] for v in graph.outer_values(i)} for i in range(graph.main_count)] == expected
    assert any(expected)
    assert not graph.problems
    inner_if = graph.names.index("/loop/If")
    assert {graph.value_names[v] for v in graph.outer_values(inner_if)} == {"carried", "two"}


def test_bodies_are_subgraphs_depth_first() -> None:
    graph = Graph.of(models.control_flow())
    owners = [(graph.names[f.owner_node] if f.owner_node >= 0 else "", f.attribute, f.parent) for f in graph.subgraphs]
    assert owners == [
        ("", "", -1),
        ("/choose/If", "else_branch", 0),
        ("/choose/If", "then_branch", 0),
        ("/loop/Loop", "body", 0),
        ("/loop/If", "else_branch", 3),
        ("/loop/If", "then_branch", 3),
        ("/scan/Scan", "body", 0),
    ]
    for f, frame in enumerate(graph.subgraphs):
        assert set(graph.node_subgraph[frame.start : frame.stop].tolist()) <= {f}
        assert [node.name for node in graph.nodes[frame.start : frame.stop]] == [n.name for n in frame.graph.node]
        kinds = {BODY_INPUT} if f else {GRAPH_INPUT}
        assert {int(graph.value_kind[v]) for v in frame.inputs} <= kinds
    assert graph.bodies(graph.names.index("/loop/Loop")) == (3,)


def test_a_body_may_hide_and_return_outer_values() -> None:
    def body(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
        return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, [2])])

    choose = helper.make_node(
        "If", ["flag"], ["y"], then_branch=body([relu("x", "h"), relu("h", "t")], "t"), else_branch=body([], "x")
    )
    graph = Graph.of(proto_of([relu("x", "h"), choose, relu("h", "z")], inputs=("x", "flag"), outputs=("y", "z")))
    hidden = [v for v, name in enumerate(graph.value_names) if name == "h"]
    assert [int(graph.value_subgraph[v]) for v in hidden] == [0, 2]
    assert {graph.value_names[v] for v in graph.outer_values(1)} == {"x"}
    assert graph.consumers(hidden[0]).tolist() == [2]
    assert graph.subgraphs[1].outputs.tolist() == [graph.value("x")]


def test_local_functions_are_found_by_their_callers() -> None:
    proto = onnx.load(models.functions())
    graph = Graph.of(proto)
    assert [called.name if (called := graph.called(n)) else None for n in range(graph.main_count)] == [
        n.op_type if n.domain else None for n in proto.graph.node
    ]
    assert not graph.problems


@pytest.mark.parametrize("name", LIGHT)
def test_types_are_those_onnx_infers(name: str) -> None:
    proto = onnx.load(models.light(name))
    graph = Graph.of(proto)
    inferred = onnx.shape_inference.infer_shapes(proto)
    for info in itertools.chain(inferred.graph.value_info, proto.graph.input, proto.graph.output):
        found = graph.type_of(graph.value(info.name))
        assert found.dtype == "int64" if info.type.tensor_type.elem_type == 7 else "float32"
        assert found.shape == tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        assert found.proto.SerializeToString() == info.type.SerializeToString()


def test_types_inside_bodies_and_of_sequences() -> None:
    graph = Graph.of(models.control_flow())
    inside = graph.names.index("/loop/then/Mul")
    assert str(graph.type_of(int(graph.node_outputs(inside)[0]))) == "2×3 float32"

    node = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    proto = proto_of([node, helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)])
    assert Graph.of(proto).type_of(Graph.of(proto).value("s")).dtype == "seq(float32)"


def test_how_types_are_written() -> None:
    assert str(ValueType("float32", ("batch", None, 768))) == "batch×?×768 float32"
    assert str(ValueType("int64", ())) == "scalar int64"
    assert str(ValueType("float16")) == "float16"
    assert not str(ValueType())
    assert len(ValueType("float32", ("d" * 10_000,) * 10).shape_text) < 700


def test_an_input_that_a_caller_omits_is_omitted_in_the_function() -> None:
    """mobius writes a LayerNormalization without a bias as a call of a function that has one."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "f": 1]>
        g (float[b, 6, 4] x, float[4] w) => (float[b, 6, 4] y) { n, m = f.Norm(x, w)  y = Add(n, m) }
        <domain: "f", opset_import: ["": 20]> Norm (a, weight, bias) => (n, m) {
            n, m = LayerNormalization<axis = -1>(a, weight, bias) }""")
    graph = Graph.opened(model)
    (norm,) = (node for node in range(graph.node_count) if graph.op_type(node) == "LayerNormalization")
    assert [str(graph.type_of(value)) for value in graph.results(norm)] == ["b×6×4 float32", "b×6×1 float32"]
    assert onnx_nb.costs(model, shapes={"b": 2}).unknown == ()


def test_nothing_is_inferred_in_very_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "INFERENCE_LIMIT", 1)
    graph = Graph.of(proto_of([relu("x", "a"), relu("a", "y")]))
    assert str(graph.type_of(graph.value("x"))) == "2 float32"
    assert graph.type_of(graph.value("a")) == ValueType()


def test_a_failing_inference_is_a_fault_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise onnx.shape_inference.InferenceError("out of\nluck")

    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", fail)
    graph = Graph.of(proto_of([relu("x", "a"), relu("a", "y")]))
    assert [(fault.kind, fault.message) for fault in graph.problems] == [
        ("inference", "onnx cannot infer the types of Relu: out of luck")
    ]
    assert str(graph.type_of(graph.value("y"))) == "2 float32"


def test_what_a_file_declares_wholly_is_not_inferred_and_what_is_wrong_with_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proto = onnx.shape_inference.infer_shapes(proto_of([relu("x", "a"), relu("a", "y")]))
    ran: list[object] = []

    def fail(*args: object, **_: object) -> None:
        ran.append(args)
        raise onnx.shape_inference.InferenceError("out of luck")

    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", fail)
    graph = Graph.of(proto)
    assert [str(graph.type_of(graph.value(name))) for name in "xay"] == ["2 float32"] * 3
    assert not ran
    assert [fault.message for fault in graph.problems] == ["onnx cannot infer the types of Relu: out of luck"]


@pytest.mark.parametrize(
    ("op", "dtype", "dims", "found"),
    [("Relu", 1, None, "2 float32"), ("NonZero", 7, [1, "unk__3"], "1×? int64"), ("NonZero", 7, [1, "n"], "1×n int64")],
)
def test_what_a_file_declares_in_part_is_inferred(op: str, dtype: int, dims: list[int | str], found: str) -> None:
    proto = proto_of([helper.make_node(op, ["x"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=1)])
    proto.graph.value_info.append(helper.make_tensor_value_info("a", dtype, dims))
    graph = Graph.of(proto)
    assert str(graph.type_of(graph.value("a"))) == found


def test_constant_nodes_are_folded_as_far_as_they_are_constant() -> None:
    nodes = [
        helper.make_node("Constant", [], ["shape"], value_ints=[2]),
        helper.make_node("ConstantOfShape", ["shape"], ["w"]),
        helper.make_node("Identity", ["w"], ["w2"]),
        helper.make_node("RandomNormalLike", ["w"], ["r"]),
        helper.make_node("Mine", ["w"], ["m"], domain="my"),
        helper.make_node("Sum", ["x", "w2", "r", "m"], ["y"]),
        helper.make_node("Identity", ["w"], ["z"]),
    ]
    graph = Graph.of(proto_of(nodes, outputs=("y", "z")))
    assert graph.folded.tolist() == [True, True, True, False, False, False, False]
    assert [n for n, c in zip(graph.value_names, graph.constant_values, strict=True) if c] == ["shape", "w", "w2"]


def test_a_model_without_inputs_is_not_folded_away() -> None:
    nodes = [helper.make_node("Constant", [], ["c"], value_float=1.0), relu("c", "a"), relu("a", "y")]
    assert Graph.of(proto_of(nodes, inputs=())).folded.tolist() == [True, False, False]


def test_the_graph_is_made_once() -> None:
    model = load(models.control_flow())
    assert Graph.of(model) is Graph.of(model)


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    graph = Graph.of(proto_of([relu("x", "hidden_state"), relu("hidden_state", "y")]))
    with pytest.raises(OnnxNbError, match=r"'hidden_stat' is not in the model.*Closest names: 'hidden_state'"):
        graph.value("hidden_stat")


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


def add(a: str, b: str, target: str, name: str = "") -> onnx.NodeProto:
    return helper.make_node("Add", [a, b], [target], name)


OPSET_13 = [helper.make_opsetid("", 13)]
BROKEN: dict[str, tuple[Callable[[], onnx.ModelProto], str, str]] = {
    "empty": (lambda: proto_of([], inputs=(), outputs=()), "empty_graph", "no nodes"),
    "two makers": (
        lambda: proto_of([relu("x", "y"), relu("x", "y", "again")]),
        "duplicate_name",
        "'y' is made again by Relu 'again'",
    ),
    "input made": (lambda: proto_of([relu("x", "x"), relu("x", "y")]), "duplicate_name", "'x' is made again"),
    "input twice": (lambda: proto_of([relu("x", "y")], inputs=("x", "x")), "duplicate_name", "'x'"),
    "weight twice": (lambda: proto_of([relu("w", "y")], weights=[weight("w", 2)] * 2), "duplicate_name", "'w'"),
    "node name twice": (
        lambda: proto_of([relu("x", "a", "n"), relu("a", "y", "n")]),
        "duplicate_name",
        "name of another node",
    ),
    "dangling": (
        lambda: proto_of([add("x", "ghost", "y", "add")]),
        "dangling_input",
        "Add 'add' reads tensor 'ghost'",
    ),
    "cycle": (
        lambda: proto_of([relu("x", "p"), add("p", "b", "a", "A"), relu("a", "b", "B"), relu("b", "y")]),
        "cycle",
        "Add 'A' → Relu 'B'",
    ),
    "self loop": (lambda: proto_of([add("x", "y", "y", "A")]), "cycle", "Add 'A'"),
    "unsorted": (
        lambda: proto_of([relu("a", "y", "second"), relu("x", "a", "first")]),
        "unsorted",
        "'second' comes before Relu 'first'",
    ),
    "unknown op": (lambda: proto_of([relu("x", "y", op="Rulu")]), "unknown_op", "'Rulu' does not exist"),
    "not onnxruntime's": (
        lambda: proto_of([relu("x", "y", op="SkipSimplifiedLayerNormalization")]),
        "unknown_op",
        "does not exist",
    ),
    "too new": (lambda: proto_of([relu("x", "y", op="Gelu")], opsets=OPSET_13), "unknown_op", "at opset 13"),
    "unknown domain": (
        lambda: proto_of([helper.make_node("Mine", ["x"], ["y"], domain="my.ops")]),
        "unknown_domain",
        "'my.ops'",
    ),
    "domain not imported": (
        lambda: proto_of([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]),
        "unknown_domain",
        "opset imports",
    ),
    "output of nobody": (lambda: proto_of([relu("x", "a")]), "missing_output", "'y' is made by no node"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_told_and_the_graph_is_there(name: str) -> None:
    build, kind, message = BROKEN[name]
    proto = build()
    graph = Graph.of(proto)
    found = [fault for fault in graph.problems if fault.kind == kind]
    assert found, graph.problems
    assert message in found[0].message
    assert graph.main_count == len(proto.graph.node)
    assert sorted(graph.order.tolist()) == list(range(graph.main_count))
    assert {fault.node for fault in found} - {-1} <= set(graph.structural_problems.nodes.tolist())
    assert {fault.value for fault in found} - {-1} <= set(graph.structural_problems.values.tolist())


def test_a_sound_graph_has_no_faults() -> None:
    graph = Graph.of(proto_of([relu("x", "a"), relu("a", "y")]))
    assert graph.problems == ()
    assert not len(graph.structural_problems.nodes)
    assert not len(graph.structural_problems.values)


def test_a_name_made_twice_means_its_latest_maker() -> None:
    nodes = [
        relu("x", "t", "first"),
        relu("t", "a", "reads first"),
        relu("x", "t", "second"),
        relu("t", "y", "reads second"),
    ]
    graph = Graph.of(proto_of(nodes))
    assert [int(graph.producer[graph.node_inputs(n)[0]]) for n in (1, 3)] == [0, 2]
    assert graph.value_names == ["x", "t", "a", "t", "y"]
    assert len(graph.producer) == len(graph.value_subgraph) == len(graph.value_kind) == 5


def test_the_number_of_described_faults_is_limited() -> None:
    graph = Graph.of(
        proto_of([helper.make_node("Add", ["x", f"ghost{i}"], [f"y{i}"]) for i in range(300)], outputs=("y0",))
    )
    assert sum(fault.kind == "dangling_input" for fault in graph.problems) == diagnostics.PROBLEM_LIMIT
    assert len(graph.structural_problems.nodes) == 300
    assert (graph.value_kind == DANGLING).sum() == 300


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "😀" * 50,
    "n" * 10_000,
    "line\nbreak\ttab",
    "\u202eevil",
    "a\0b",
    "/" * 5000,
    " ",
]


@pytest.mark.parametrize("name", HOSTILE, ids=["html", "emoji", "long", "newline", "bidi", "nul", "slashes", "space"])
def test_any_name_is_kept_as_it_is(name: str) -> None:
    proto = proto_of([helper.make_node("Mine", ["x"], [name], name, domain=name), relu(name, "y")])
    graph = Graph.of(proto)
    assert graph.names[0] == name
    assert graph.value_names[graph.value(name)] == name
    assert all(len(fault.message) < 1000 for fault in graph.problems)


def test_names_that_are_not_utf8_are_readable_and_distinct() -> None:
    data = proto_of([relu("x", "AAA", "NNN"), relu("AAA", "BBB"), relu("BBB", "y")]).SerializeToString()
    data = data.replace(b"AAA", b"\xffA\xfe").replace(b"BBB", b"\xffB\xfe").replace(b"NNN", b"\xff\xff\xff")
    graph = Graph.of(data)
    assert "\\xffA\\xfe" in graph.value_names
    assert graph.names[0] == "\\xff\\xff\\xff"
    assert graph.producer[graph.node_inputs(1)[0]] == 0


def test_a_large_node_may_have_a_name_that_is_not_utf8() -> None:
    large = helper.make_node("Constant", [], ["AAA"], "NNN", value_floats=np.ones(20_000).tolist())
    data = proto_of([large, helper.make_node("Add", ["x", "AAA"], ["y"])]).SerializeToString()
    graph = Graph.of(data.replace(b"AAA", b"\xffA\xfe").replace(b"NNN", b"\xff\xff\xff"))
    assert graph.names[0] == "\\xff\\xff\\xff"
    assert graph.value_names[graph.node_outputs(0)[0]] == "\\xffA\\xfe"


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If; the innermost reads a value of the main graph. Made top-down: deep ones cannot be copied."""
    proto = proto_of([], inputs=("x", "flag"), outputs=("t0",))
    graph = proto.graph
    for level in range(depth):
        node = graph.node.add(op_type="If", input=["flag"], output=[f"t{level}"], name=f"if{level}")
        for branch in ("else_branch", "then_branch"):
            graph = node.attribute.add(name=branch, type=onnx.AttributeProto.GRAPH).g
            graph.output.add(name=f"t{level + 1}")
            if branch == "else_branch":
                graph.node.add(op_type="Relu", input=["x"], output=[f"t{level + 1}"])
    graph.node.add(op_type="Relu", input=["x"], output=[f"t{depth}"])
    return proto


@pytest.mark.parametrize("depth", [1, 5, 25])
def test_deep_nesting(depth: int) -> None:
    graph = Graph.of(nested(depth))
    assert len(graph.subgraphs) == 1 + 2 * depth
    assert {graph.value_names[v] for v in graph.outer_values(0)} >= {"x"} | ({"flag"} if depth > 1 else set())
    assert not [fault for fault in graph.problems if fault.kind != "inference"]


@pytest.mark.parametrize("depth", [50, 300])
def test_nesting_deeper_than_protobuf_reads(depth: int) -> None:
    # no file can hold it, but a proto in memory can
    graph = Graph(Model(nested(depth), name="deep"))
    assert len(graph.subgraphs) == 1 + 2 * depth
    assert [fault.kind for fault in graph.problems] == ["inference"] * (depth > DEPTH)
    assert {graph.value_names[v] for v in graph.outer_values(0)} == {"x", "flag"}


def test_many_inputs_and_large_attributes() -> None:
    big = numpy_helper.from_array(np.zeros(100_000, np.float32), "big")
    nodes = [
        helper.make_node("Constant", [], ["c"], "constant", value=big),
        helper.make_node("Concat", ["x", "c"] * 3000, ["y"], "cat", axis=0),
    ]
    graph = Graph.of(proto_of(nodes))
    assert len(graph.node_inputs(1)) == 6000
    assert len(graph.attribute_bytes(0)) < 1000
    assert onnx.NodeProto.FromString(graph.attribute_bytes(1)).attribute[0].i == 0
    assert graph.consumers(graph.value("c")).tolist() == [1]


def test_fields_that_onnx_does_not_have_are_passed_over() -> None:
    node = relu("x", "y", "n")
    # field 99 as varint, 98 as 64 bit, 97 as 32 bit, 96 as bytes
    extra = b"\x98\x06\x96\x01" + b"\x91\x06" + b"\1" * 8 + b"\x8d\x06" + b"\1" * 4 + b"\x82\x06\x02ab"
    node.MergeFromString(extra)
    graph = Graph.of(proto_of([node, relu("y", "z")], outputs=("z",)))
    assert graph.names[0] == "n"
    assert graph.producer.tolist() == [-1, 0, 1]
    wide = helper.make_node("Sum", ["x"] * 500, ["y"], "n")
    wide.MergeFromString(extra)
    graph = Graph.of(proto_of([wide, relu("y", "z")], outputs=("z",)))
    assert graph.names[0] == "n"
    assert len(graph.node_inputs(0)) == 500


def test_a_protobuf_group_is_refused_clearly() -> None:
    node = relu("x", "y")
    node.MergeFromString(b"\x9b\x06\x9c\x06")
    for inputs in (1, 500):
        del node.input[:]
        node.input.extend(["x"] * inputs)
        with pytest.raises(OnnxNbError, match="holds a protobuf group"):
            Graph.of(proto_of([relu("x", "a"), node]))


def test_sparse_weights_are_weights() -> None:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [1], [2.0]), helper.make_tensor("", TensorProto.INT64, [1], [1]), [4]
    )
    proto = proto_of([helper.make_node("Add", ["x", "s"], ["y"])])
    proto.graph.sparse_initializer.append(sparse)
    graph = Graph.of(proto)
    assert graph.value_kind[graph.value("s")] == INITIALIZER
    assert str(graph.type_of(graph.value("s"))) == "4 float32"


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", models.EXPORTED)
def test_exported_models_have_no_faults_and_known_types(name: str, dynamo: bool) -> None:
    path = models.exported(name, dynamo=dynamo)
    graph = Graph.of(path)
    assert graph.problems == ()
    made = graph.value_kind == NODE_OUTPUT
    typed = [bool(graph.type_of(v).dtype) for v in np.flatnonzero(made).tolist()]
    assert np.mean(typed) == 1
    check_against_naive(graph, onnx.load(path, load_external_data=False))


MODELS: dict[str, Callable[[], Path]] = {
    **{name: functools.partial(models.light, name) for name in models.LIGHT},
    **{make.__name__: make for make in (models.control_flow, models.functions, models.one_node, models.empty)},
    "chain": functools.partial(models.chain, 10_000),
}


@pytest.mark.parametrize("name", MODELS)
def test_csr_arrays_are_consistent(name: str) -> None:
    graph = Graph.of(MODELS[name]())
    for pointer, items in ((graph.in_ptr, graph.in_value), (graph.out_ptr, graph.out_value)):
        assert len(pointer) == graph.node_count + 1
        assert pointer[-1] == len(items)
        assert np.all(np.diff(pointer) >= 0)
    pairs = set()
    for node in range(graph.node_count):
        pairs |= {(int(v), node) for v in graph.node_inputs(node) if v >= 0}
    listed = [(v, int(n)) for v in range(len(graph.value_names)) for n in graph.consumers(v)]
    assert len(listed) == len(set(listed))
    assert set(listed) == pairs
    assert len(graph.nodes) == graph.node_count


@pytest.mark.parametrize("inputs", [[], [""], ["x", ""]])
def test_a_node_that_lacks_an_input_is_told_and_does_not_reach_the_inference_of_onnx(inputs: list[str]) -> None:
    # the inference of LabelEncoder crashes the process where its only input is ""
    op, domain = ("LabelEncoder", "ai.onnx.ml") if len(inputs) < 2 else ("MatMul", "")
    node = helper.make_node(op, inputs, ["y"], "broken", domain=domain)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    proto = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=opsets)
    graph = Graph.of(proto)
    (fault,) = [fault for fault in graph.problems if fault.kind == "inference"]
    assert "broken" in fault.message
    assert "lacks an input" in fault.message
    assert fault.node == 0


def test_optional_inputs_may_be_left_out() -> None:
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in ("x", "high", "y")]
    proto = helper.make_model(helper.make_graph([clip], "g", ports[:2], ports[2:]))
    assert not [problem for problem in Graph.of(proto).problems if problem.kind == "inference"]


def test_names_that_the_exporter_invented_yield_to_known_sizes() -> None:
    """TorchScript's exporter names dimensions that it did not infer, even where everything is fixed."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x, float[n_dim_0, 3] v) => (float[Addy_dim_0, Addy_dim_1] y, float[k] z)
        <float[Relua_dim_0, 3] a> { a = Relu(x)  b = Neg(a)  y = Add(a, b)  c = Neg(v)  z = NonZero(c) }""")
    graph = Graph.of(model)
    shapes = {name: graph.type_of(graph.value(name)).shape for name in "xvabcy"}
    assert shapes == {**dict.fromkeys("xaby", (2, 3)), **dict.fromkeys("vc", ("n_dim_0", 3))}
