"""Where a model may hold float16."""

from __future__ import annotations

from onnx import TensorProto, helper

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.run.session import _has_float16


def test_float16_is_found_in_lists_of_subgraphs_inside_functions() -> None:
    body = helper.make_graph([helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT16)], "body", [], [])
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    inside = helper.make_node("Choose", ["a"], ["b"], domain="my", bodies=[body])
    function = helper.make_function("my", "F", ["a"], ["b"], [inside], opset)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="my")], "g", ports[:1], ports[1:])
    assert _has_float16(Graph.of(helper.make_model(graph, opset_imports=opset, functions=[function])))
