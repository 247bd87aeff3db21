"""What several nodes and scopes are together, against extraction, costs and counting by hand."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from onnx_nb import OnnxNbError, extract
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.inspection import select
from onnx_nb.analysis.view.overlays import run_costs
from onnx_nb.types import Graph
from tests import models
from tests.analysis.submodel.test_extraction import BRANCHES


def numbers(graph: Graph, *ops: str) -> list[int]:
    return [node for node in range(graph.node_count) if graph.nodes[node].op_type in ops]


def test_the_border_of_a_selection_extracts_to_just_these_nodes() -> None:
    model = models.light("squeezenet")
    graph = Graph.of(model)
    chosen = [node for node in range(graph.node_count) if not graph.folded[node]][6:18]
    found = select(model, chosen)
    assert found.obstacle == ""
    submodel = extract(model, found.inputs, found.outputs)
    cut = Graph.of(submodel)
    assert sorted(cut.nodes[node].op_type for node in range(cut.node_count) if not cut.folded[node]) == sorted(
        graph.nodes[node].op_type for node in chosen
    )


def test_the_cost_of_all_nodes_is_that_of_the_model_and_shared_weights_count_once() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x) => (float[2, 3] z) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
        { a = MatMul(x, w)  b = MatMul(a, w)  z = Relu(b) }""")
    both = select(model, [0, 1]).cost
    assert (both.parameters, both.macs) == (9, 2 * 2 * 3 * 3)
    whole = select(model, range(3)).cost
    assert whole == run_costs(model)[0].total


def test_scopes_count_with_everything_in_them() -> None:
    model = models.exported("bert", dynamo=True)
    graph = Graph.of(model)
    tree = scopes(graph)
    scope = max(range(1, len(tree.scope_parent)), key=lambda each: int((tree.node_scope == each).sum()))
    found = select(model, [], [scope])
    assert set(found.nodes.tolist()) >= {n for n in range(graph.node_count) if int(tree.node_scope[n]) == scope}
    assert found.cost.parameters == run_costs(model)[0].of_scope(scope).parameters
    assert found.cost.known_macs == run_costs(model)[0].of_scope(scope).known_macs


def test_nodes_of_one_body_can_be_extracted_and_so_can_their_owner() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[2] x) => (float[2] z) {
            y = If(c) <then_branch = t () => (float[2] r) { r = Relu(x) },
                       else_branch = e () => (float[2] s) { s = Neg(x) }>
            z = Abs(y)
        }""")
    graph = Graph.of(model)
    (inner,) = numbers(graph, "Relu")
    inside = select(model, [inner])
    assert (inside.inputs, inside.outputs, inside.obstacle) == (("x",), ("r",), "")
    assert "is not in it" in select(model, [inner, *numbers(graph, "Neg")]).obstacle
    assert "Relu is in a body of If, and Abs is not in it." in select(model, [inner, *numbers(graph, "Abs")]).obstacle
    (owner,) = numbers(graph, "If")
    both = select(model, [inner, owner])
    assert both.nodes.tolist() == [owner]
    assert (both.inputs, both.outputs, both.obstacle) == (("c", "x"), ("y",), "")


def test_an_impossible_selection_is_explained() -> None:
    model = onnx.parser.parse_model(BRANCHES)
    assert select(model, []).obstacle.startswith("No node is selected")
    with pytest.raises(OnnxNbError, match="no node number 99"):
        select(model, [99])
    with pytest.raises(OnnxNbError, match="no scope number 99"):
        select(model, [], [99])
