"""Local functions opened where they are called, against what onnx's inliner makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.cost.costs import costs
from onnx_nb.analysis.errors import ExtractionError
from onnx_nb.analysis.graph import subgraphs
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.scopes.scopes import FUNCTION, scopes
from onnx_nb.analysis.submodel.extraction import nodes_of_scope, plan_extraction
from onnx_nb.analysis.view.graph_columns import CONSTANT, columns
from onnx_nb.analysis.view.inspection import inspect
from onnx_nb.analysis.view.overlays import overlay
from tests import models

if TYPE_CHECKING:
    from collections.abc import Sequence

OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]


def float2(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def model_of(
    nodes: Sequence[onnx.NodeProto], functions: Sequence[onnx.FunctionProto], outputs: Sequence[str] = ("y",)
) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    graph = helper.make_graph(list(nodes), "g", [float2("x")], [float2(name) for name in outputs], [weight])
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=10)


def function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], nodes: Sequence[onnx.NodeProto], **more: Any
) -> onnx.FunctionProto:
    return helper.make_function("my", name, inputs, outputs, list(nodes), OPSETS, **more)


@st.composite
def calling(draw: st.DrawFn) -> onnx.ModelProto:
    """Random functions, each calling those before it; some inputs left out, some bodies, some attributes handed on."""
    made: list[onnx.FunctionProto] = []

    def some_nodes(known: list[str], callable_: int) -> list[onnx.NodeProto]:
        nodes = []
        for number in range(draw(st.integers(1, 5))):
            out = f"t{number}"
            kind = draw(st.sampled_from(["Add", "Relu", "call", "If", "LeakyRelu"]))
            if kind == "call" and not callable_:
                kind = "Relu"
            if kind == "call":
                called = made[draw(st.integers(0, callable_ - 1))]
                taken = [draw(st.sampled_from(known)) for _ in called.input]
                name = draw(st.sampled_from(["", f"c{number}"]))
                nodes.append(helper.make_node(called.name, taken, [out], name, domain="my", slope=0.25))
            elif kind == "If":
                bodies = {
                    branch: helper.make_graph(
                        [helper.make_node(op, [draw(st.sampled_from(known))], [f"{out}_{branch}"])],
                        branch,
                        [],
                        [helper.make_tensor_value_info(f"{out}_{branch}", TensorProto.FLOAT, None)],
                    )
                    for branch, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
                }
                nodes.append(helper.make_node("Cast", [known[0]], [f"{out}_c"], to=TensorProto.BOOL))
                nodes.append(helper.make_node("If", [f"{out}_c"], [out], f"if{number}", **bodies))
            else:
                nodes.append(
                    helper.make_node(
                        kind, [draw(st.sampled_from(known)) for _ in range(2 if kind == "Add" else 1)], [out]
                    )
                )
            known = [*known, out]
        return nodes

    for number in range(draw(st.integers(1, 4))):
        inputs = [f"a{i}" for i in range(draw(st.integers(1, 3)))]
        nodes = some_nodes(inputs, number)
        for node in nodes:
            if node.op_type == "LeakyRelu":
                node.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
        made.append(function(f"F{number}", inputs, [nodes[-1].output[0]], nodes, attributes=["slope"]))
    nodes = some_nodes(["x", "w"], len(made))
    return model_of(nodes, made, [nodes[-1].output[0]])


def flat(graph: Graph, frame: int) -> list[int]:
    """The nodes of a frame with those of calls in place of the calls."""
    found: list[int] = []
    for node in range(graph.subgraphs[frame].start, graph.subgraphs[frame].stop):
        inner = [f for f in graph.bodies(node) if graph.subgraphs[f].function is not None]
        if inner:
            found += flat(graph, inner[0])
        else:
            found.append(node)
    return found


def structure(graph: Graph, frame: int) -> list[Any]:
    """Operators, attributes and connections of a frame, whatever names things have."""
    results: dict[int, int] = {}  # what a call gives is what its function makes
    for each in graph.subgraphs[1:]:
        if each.function is not None:
            made = graph.node_outputs(each.owner_node).tolist()
            results |= dict(zip(made, each.outputs.tolist(), strict=False))

    def source(value: int) -> Any:
        while value in results:
            value = results[value]
        producer = int(graph.producer[value]) if value >= 0 else -1
        if value < 0:
            return None
        return graph.value_names[value] if producer < 0 else place[producer]

    place: dict[int, Any] = {}
    for f in range(len(graph.subgraphs)):
        for number, node in enumerate(flat(graph, f) if graph.subgraphs[f].function is None else ()):
            place[node] = (f if f == 0 else graph.subgraphs[f].attribute, number)
    found = []
    for node in flat(graph, frame):
        bodies = [structure(graph, f) for f in graph.bodies(node)]
        attributes = sorted((a.name, a.f, a.i) for a in graph.nodes[node].attribute if not a.HasField("g"))
        reads = [source(value) for value in graph.node_inputs(node).tolist()]
        found.append((graph.operators[graph.op_index[node]], attributes, reads, bodies))
    return found


@given(calling())
@settings(max_examples=150, deadline=None)
def test_opened_calls_are_what_the_inliner_makes_of_them(proto: onnx.ModelProto) -> None:
    opened = Graph.opened(proto)
    inlined = Graph.of(onnx.inliner.inline_local_functions(proto))
    assert structure(opened, 0) == structure(inlined, 0)
    assert not opened.closed_calls
    assert opened.problems == ()


@given(calling())
@settings(max_examples=60, deadline=None)
def test_opening_keeps_the_numbers_of_what_was_there(proto: onnx.ModelProto) -> None:
    plain, opened = Graph.of(proto), Graph.opened(proto)
    assert opened.names[: plain.node_count] == plain.names
    assert opened.value_names[: plain.value_count] == plain.value_names
    assert opened.in_value[: len(plain.in_value)].tolist() == plain.in_value.tolist()
    assert opened.subgraphs[0].stop == plain.subgraphs[0].stop
    assert [opened.type_of(v) for v in range(plain.value_count)] == [plain.type_of(v) for v in range(plain.value_count)]
    # names inside are told apart, however often a function is called
    assert len(set(opened.value_names)) == opened.value_count


@given(calling())
@settings(max_examples=60, deadline=None)
def test_types_inside_of_calls_are_those_of_the_inlined_model(proto: onnx.ModelProto) -> None:
    opened = Graph.opened(proto)
    inlined = Graph.of(onnx.inliner.inline_local_functions(proto))
    for mine, theirs in zip(flat(opened, 0), range(inlined.main_count), strict=True):
        kinds = [
            [graph.type_of(value) for value in graph.node_outputs(node).tolist()]
            for graph, node in ((opened, mine), (inlined, theirs))
        ]
        assert kinds[0] == kinds[1]


@given(calling())
@settings(max_examples=60, deadline=None)
def test_costs_inside_of_calls_add_up_to_those_of_the_call(proto: onnx.ModelProto) -> None:
    found = costs(proto)
    tree, graph = found.scopes, found.graph
    inlined = costs(onnx.inliner.inline_local_functions(proto))
    if not inlined.graph.folded.any():  # a call is not folded, what is in it may be
        assert found.total.flops == inlined.total.flops
    for group in np.flatnonzero(tree.scope_kind == FUNCTION).tolist():
        call = int(tree.scope_node[group])
        place = graph.subgraphs[graph.bodies(call)[0]]
        assert found.scope_sums["flops"][group] == np.nan_to_num(found.flops[call])
        if not np.isnan(found.flops[call]):
            inside = found.flops[place.start : place.stop]
            folded_outside = graph.folded[place.start : place.stop]
            assert inside.sum() == found.flops[call] or folded_outside.any()
    assert overlay(proto, "MACs").nodes.shape == (graph.node_count,)


def test_a_call_is_a_scope_with_the_callers_values_inside() -> None:
    model = models.functions()
    graph = Graph.opened(model)
    tree = scopes(graph)
    made = columns(model)
    groups = np.flatnonzero(tree.scope_kind == FUNCTION).tolist()
    assert [(tree.scope_name[g], tree.scope_class[g]) for g in groups] == [
        ("block.0", "Block"),
        ("scale", "Scaled"),
        ("block.1", "Block"),
        ("scale", "Scaled"),
        ("scaled", "Scaled"),
    ]
    project = graph.names.index("/block.1::project")
    assert [graph.value_names[v] for v in graph.node_inputs(project)] == ["h", "block.1.weight"]
    weight = graph.value("block.1.weight")
    assert made.arrays["value_flags"][weight] & CONSTANT
    pairs = zip(made.arrays["yield_value"].tolist(), made.arrays["yield_output"].tolist(), strict=True)
    named = {(graph.value_names[a], graph.value_names[b]) for a, b in pairs}
    assert ("/block.0::y", "h") in named
    assert ("/block.0::scale::y", "/block.0::s") in named
    block = groups[0]
    assert made.arrays["scope_params"][block] == 9 + 1


def test_attributes_of_a_call_reach_the_nodes_inside() -> None:
    body = helper.make_node("LeakyRelu", ["a"], ["b"], "leaky")
    body.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    default = helper.make_attribute("slope", 0.5)
    functions = [
        function("Given", ["a"], ["b"], [body], attributes=["slope"]),
        function("Default", ["a"], ["b"], [body], attribute_protos=[default]),
    ]
    nodes = [
        helper.make_node("Given", ["x"], ["p"], "first", domain="my", slope=0.25),
        helper.make_node("Given", ["p"], ["q"], "second", domain="my"),
        helper.make_node("Default", ["q"], ["y"], "third", domain="my"),
    ]
    proto = model_of(nodes, functions)
    graph = Graph.opened(proto)
    shown = [inspect(proto, "node", graph.names.index(f"{name}::leaky")) for name in ("first", "second", "third")]
    assert [each.attributes for each in shown] == [
        (("alpha", "0.25", "given"),),
        (("alpha", "0.01", "default"),),
        (("alpha", "0.5", "given"),),
    ]
    assert ("inside", "the call Given 'first'") in shown[0].rows
    assert ("name in the function", "leaky") in shown[0].rows
    value = inspect(proto, "tensor", graph.value("third::b"))
    assert ("inside", "the call Default 'third'") in value.rows
    assert Graph.of(proto).nodes[0].op_type == "Given"
    assert functions[0].node[0].attribute[0].ref_attr_name == "slope"


def test_functions_have_opsets_of_their_own() -> None:
    inner = helper.make_node("ReduceSum", ["a"], ["b"], "sum")
    old = helper.make_function("my", "Old", ["a"], ["b"], [inner], [helper.make_opsetid("", 11)])
    proto = model_of([helper.make_node("Old", ["x"], ["y"], "call", domain="my")], [old])
    graph = Graph.opened(proto)
    assert graph.opsets_of(0)[""] == 20
    assert graph.opsets_of(1)[""] == 11
    assert ("since opset", "11") in inspect(proto, "node", 1).rows


RECURSIVE = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
    g (float[2] x) => (float[2] z) { [call] z = my.F(x) }
    <domain: "my", opset_import: ["": 17, "my": 1]> F (a) => (b) { c = Relu(a)  [again] b = my.G(c) }
    <domain: "my", opset_import: ["": 17, "my": 1]> G (a) => (b) { c = Neg(a)  [back] b = my.F(c) }"""


def test_functions_that_call_each_other_are_a_fault() -> None:
    proto = onnx.parser.parse_model(RECURSIVE)
    graph = Graph.opened(proto)
    (fault,) = (fault for fault in graph.problems if fault.kind == "recursion")
    assert "'F' → 'G' → 'F'" in fault.message
    assert fault.node == 0
    assert {fault.kind for fault in Graph.of(proto).problems} >= {"recursion"}
    assert [node.op_type for node in graph.nodes] == ["F", "Relu", "G", "Neg", "F"]
    assert graph.closed_calls == {4: "it calls itself: 'F' → 'G' → 'F'"}
    assert "not opened: it calls itself" in dict(inspect(proto, "node", 4).rows)["function"]
    assert columns(proto).arrays["node_body"].tolist() == [1, -1, 2, -1, -1]
    assert costs(proto).total.macs is None


def doubling(levels: int) -> onnx.ModelProto:
    """Each function calls the one before twice: 2 ** levels nodes in all."""
    functions = [function("F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])])]
    for level in range(1, levels):
        calls = [helper.make_node(f"F{level - 1}", [i], [o], domain="my") for i, o in (("a", "m"), ("m", "b"))]
        functions.append(function(f"F{level}", ["a"], ["b"], calls))
    return model_of([helper.make_node(f"F{levels - 1}", ["x"], ["y"], "call", domain="my")], functions)


def test_calls_that_multiply_are_opened_up_to_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraphs, "NODES_OPENED", 500)
    proto = doubling(40)
    graph = Graph.opened(proto)
    assert 300 < graph.node_count < 1000
    assert graph.closed_calls
    assert "as many nodes as can be shown" in next(iter(graph.closed_calls.values()))
    assert columns(proto).meta["nodes"] == graph.node_count
    assert costs(proto).total.macs is None
    # the outermost calls come first
    depth = [0] * graph.node_count
    for frame in graph.subgraphs[1:]:
        depth[frame.start : frame.stop] = [depth[frame.owner_node] + 1] * (frame.stop - frame.start)
    assert min(depth[node] for node in graph.closed_calls) >= max(depth) - 1


def test_deep_calls_end() -> None:
    functions = [function("F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])])]
    functions += [
        function(f"F{i}", ["a"], ["b"], [helper.make_node(f"F{i - 1}", ["a"], ["b"], domain="my")])
        for i in range(1, 200)
    ]
    graph = Graph.opened(model_of([helper.make_node("F199", ["x"], ["y"], domain="my")], functions))
    assert list(graph.closed_calls.values()) == [f"it is nested more than {subgraphs.DEPTH_OPENED} calls deep"]


def test_many_calls_of_a_large_function_stay_within_the_budget() -> None:
    inside = [helper.make_node("Relu", ["a" if i == 0 else f"t{i}"], [f"t{i + 1}"]) for i in range(1000)]
    large = function("Large", ["a"], ["t1000"], inside)
    nodes = [helper.make_node("Large", ["x" if i == 0 else f"h{i}"], [f"h{i + 1}"], domain="my") for i in range(300)]
    proto = model_of(nodes, [large], ["h300"])
    made = columns(proto)
    assert made.meta["nodes"] <= subgraphs.NODES_OPENED + 2 * 1300
    assert made.meta["nodes"] > 40_000


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [(["x"], ["x", None]), (["x", ""], ["x", None]), (["", "x"], [None, "x"]), (["x", "w", "x"], ["x", "w"])],
)
def test_inputs_that_a_call_leaves_out_are_left_out_inside(inputs: list[str], expected: list[str | None]) -> None:
    both = function("Both", ["a", "b"], ["c"], [helper.make_node("Mine", ["a", "b"], ["c"], domain="my")])
    graph = Graph.opened(model_of([helper.make_node("Both", inputs, ["y"], domain="my")], [both]))
    assert [graph.value_names[v] if v >= 0 else None for v in graph.node_inputs(1).tolist()] == expected


def test_a_function_may_hand_its_input_on() -> None:
    through = function("Through", ["a"], ["a"], [])
    proto = model_of([helper.make_node("Through", ["x"], ["y"], "call", domain="my")], [through])
    graph = Graph.opened(proto)
    assert graph.subgraphs[1].outputs.tolist() == [graph.value("x")]
    assert columns(proto).meta["nodes"] == 1


def test_a_function_does_not_see_what_is_around_its_call() -> None:
    blind = function("Blind", ["a"], ["b"], [helper.make_node("Add", ["a", "w"], ["b"], "add")])
    graph = Graph.opened(model_of([helper.make_node("Blind", ["x"], ["y"], "call", domain="my")], [blind]))
    assert [graph.value_names[v] for v in graph.node_inputs(1).tolist()] == ["x", "call::w"]
    assert [fault.kind for fault in graph.problems] == ["dangling_input"]


def test_extraction_inside_of_a_call_says_what_to_do() -> None:
    with pytest.raises(ExtractionError, match=r"inside the call Block '/block.0'.*inline_local_functions"):
        plan_extraction(models.functions(), ["x"], ["/block.0::h"])
    with pytest.raises(ExtractionError, match=r"inside a call of Block '/block.0'"):
        nodes_of_scope(Graph.of(models.functions()), "block.0/scale")
