"""Nodes and attributes of a model: nested nodes, subgraphs, attributes by name."""

from __future__ import annotations

import onnx
from onnx import helper

from onnx_nb.analysis.model.tensors import all_nodes, attribute, graphs_of


def test_an_attribute_is_read_by_name_or_has_its_default() -> None:
    node = helper.make_node("Gemm", ["a", "b"], ["c"], transA=1)
    assert attribute(node, "transA", 0) == 1
    assert attribute(node, "transB", 0) == 0


def test_nested_nodes_include_those_of_lists_of_graphs() -> None:
    leaf = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "leaf")], "leaf", [], [])
    middle = helper.make_graph([helper.make_node("Many", [], [], "middle", bodies=[leaf, leaf])], "middle", [], [])
    nodes = [
        helper.make_node("If", ["c"], ["z"], "outer", then_branch=middle),
        helper.make_node("Neg", ["z"], ["w"], "last"),
    ]
    assert [node.name for node in all_nodes(nodes)] == ["outer", "middle", "leaf", "leaf", "last"]
    assert [name for name, _ in graphs_of(middle.node[0])] == ["bodies[0]", "bodies[1]"]
    assert not list(graphs_of(onnx.NodeProto()))
