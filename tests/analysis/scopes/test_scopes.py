"""The scope tree: what holds for any graph, and what a person sees of real models."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.graph.dataflow import strongly_connected
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.scopes import scopes as scopes_module
from onnx_nb.analysis.scopes import structure
from onnx_nb.analysis.scopes.scopes import (
    BODY,
    BRANCH,
    FUNCTION,
    GATHERED,
    REPEAT,
    ROOT,
    ROWS,
    SCOPE,
    SIBLINGS,
    Scopes,
    layer_of,
    scopes,
)
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

EXPORTS = {
    f"{name}, {'dynamo' if dynamo else 'torchscript'}": functools.partial(models.exported, name, dynamo=dynamo)
    for name in models.EXPORTED
    for dynamo in (True, False)
}
MODELS: dict[str, Callable[[], Path]] = {
    **EXPORTS,
    **{name: functools.partial(models.light, name) for name in models.LIGHT},
    **{make.__name__: make for make in (models.control_flow, models.functions, models.one_node, models.empty)},
    "chain": functools.partial(models.chain, 10_000),
}


@functools.cache
def tree_of(name: str) -> tuple[Graph, Scopes]:
    graph = Graph.opened(MODELS[name]())
    return graph, scopes(graph)


def line_of(tree: Scopes, scope: int) -> list[int]:
    """The scopes above a scope, from the root to the scope itself."""
    line = [scope]
    while tree.scope_parent[line[-1]] >= 0:
        line.append(int(tree.scope_parent[line[-1]]))
    return line[::-1]


def sibling_cycles(graph: Graph, tree: Scopes) -> list[list[int]]:
    """Cycles among the children of one scope, found edge by edge; nodes are counted behind the scopes."""
    scopes = len(tree.scope_parent)
    lines = [line_of(tree, g) for g in range(scopes)]
    after: dict[int, list[int]] = {}
    for subgraph in range(len(graph.subgraphs)):
        ranks = {int(node): i for i, node in enumerate(graph.subgraph_order(subgraph))}
        for a, b in zip(*(ends.tolist() for ends in graph.subgraph_edges(subgraph)), strict=True):
            if graph.folded[a] or graph.folded[b] or ranks[a] >= ranks[b]:
                continue
            above_a, above_b = [*lines[tree.node_scope[a]], scopes + a], [*lines[tree.node_scope[b]], scopes + b]
            level = next(i for i, (x, y) in enumerate(zip(above_a, above_b, strict=False)) if x != y)
            after.setdefault(above_a[level], []).append(above_b[level])
    vertices = range(scopes + graph.node_count)
    return [members for members in strongly_connected(vertices, after) if len(members) > 1]


def check_tree(graph: Graph, tree: Scopes) -> None:
    """What a drawing relies on."""
    scopes = len(tree.scope_parent)
    assert tree.scope_parent[0] == -1
    assert tree.scope_kind[0] == ROOT
    assert all(0 <= tree.scope_parent[g] < g for g in range(1, scopes))
    assert {
        len(c) for c in (tree.scope_name, tree.scope_path, tree.scope_class, tree.scope_node, tree.scope_repeat)
    } == {scopes}
    assert len(tree.node_scope) == graph.node_count
    drawn = ~graph.folded
    direct = np.bincount(tree.node_scope[drawn], minlength=scopes)
    children = Counter(tree.scope_parent[1:].tolist())
    for scope in range(scopes):
        assert direct[scope] + children[scope] <= structure.CHILDREN_LIMIT
        if tree.scope_kind[scope] in (SCOPE, *ROWS, GATHERED):
            assert direct[scope] + children[scope] > 1, f"{tree.scope_path[scope]} is a subgraph around one box"
            assert tree.scope_name[scope]
        assert (tree.scope_node[scope] >= 0) == (tree.scope_kind[scope] in (BODY, BRANCH, FUNCTION))
        if scope and tree.scope_repeat[scope] > 1:
            assert tree.scope_kind[scope] in (*ROWS, GATHERED)
    for node in range(graph.node_count):
        # nodes of a subgraph are drawn there, folded nodes with their readers
        branches = [g for g in line_of(tree, int(tree.node_scope[node])) if tree.scope_kind[g] in (BRANCH, FUNCTION)]
        subgraph = int(graph.node_subgraph[node])
        if drawn[node]:
            assert len(branches) == len(subgraph_line(graph, subgraph)) - 1
        if branches and drawn[node]:
            assert tree.scope_node[branches[-1]] == graph.subgraphs[subgraph].owner_node
            called = graph.subgraphs[subgraph].function is not None
            assert (tree.scope_kind[branches[-1]] == FUNCTION) == called
            assert called or tree.scope_name[branches[-1]] == graph.subgraphs[subgraph].attribute
    for scope in np.flatnonzero(tree.scope_kind == BODY).tolist():
        owner = int(tree.scope_node[scope])
        assert tree.scope_parent[scope] == tree.node_scope[owner]
        assert [tree.scope_kind[g] for g in tree.children(scope)] == [BRANCH] * len(graph.bodies(owner))


def subgraph_line(graph: Graph, subgraph: int) -> list[int]:
    line = [subgraph]
    while graph.subgraphs[line[-1]].parent >= 0:
        line.append(graph.subgraphs[line[-1]].parent)
    return line


@pytest.mark.parametrize("name", MODELS)
def test_the_tree_of_real_models_can_be_drawn(name: str) -> None:
    graph, tree = tree_of(name)
    check_tree(graph, tree)
    assert not sibling_cycles(graph, tree)


@pytest.mark.parametrize("name", MODELS)
def test_the_first_view_is_readable(name: str) -> None:
    graph, tree = tree_of(name)
    top = len(tree.children(0))
    boxes = top + int(np.count_nonzero(tree.node_scope[~graph.folded] == 0))
    assert boxes <= 64
    if np.count_nonzero(~graph.folded) > 64:
        # a chain of equal layers is one box, and a person opens it
        assert 3 <= top <= 50 or tree.scope_kind[tree.children(0)[0]] == REPEAT


@pytest.mark.parametrize("name", MODELS)
def test_repeats_hold_equal_layers(name: str) -> None:
    graph, tree = tree_of(name)
    inside: dict[int, list[str]] = {}
    for node in graph.order.tolist() if len(graph.subgraphs) == 1 else []:
        if not graph.folded[node]:
            for scope in line_of(tree, int(tree.node_scope[node])):
                inside.setdefault(scope, []).append(graph.operators[graph.op_index[node]][0])
    for roof in np.flatnonzero(tree.scope_kind == REPEAT).tolist():
        members = []
        waiting = tree.children(roof).tolist()
        while waiting:
            scope = waiting.pop(0)
            if tree.scope_kind[scope] == GATHERED:
                waiting += tree.children(scope).tolist()
            else:
                members.append(scope)
        assert len(members) == tree.scope_repeat[roof]
        assert len({tuple(inside[scope]) for scope in members}) <= 1


def top_names(name: str) -> list[str]:
    _, tree = tree_of(name)
    return [tree.scope_name[g] for g in tree.children(0)]


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_bert_shows_embeddings_layers_pooler(exporter: str) -> None:
    _, tree = tree_of(f"bert, {exporter}")
    assert tree.source == {"dynamo": "metadata", "torchscript": "names"}[exporter]
    names = top_names(f"bert, {exporter}")
    assert [n for n in names if n in ("embeddings", "pooler")] == ["embeddings", "pooler"]
    layers = [g for g in tree.children(0) if tree.scope_name[g].startswith("layer")]
    assert sum(int(tree.scope_repeat[g]) for g in layers) == 12
    roof = max(layers, key=lambda g: tree.scope_repeat[g])
    assert tree.scope_repeat[roof] >= 11
    assert re.fullmatch(r"layer [01]–11", tree.scope_name[roof])
    assert tree.scope_class[roof] == ("BertLayer" if exporter == "dynamo" else "")
    first = int(tree.children(roof)[0])
    assert {"attention", "intermediate", "output"} <= {
        tree.scope_name[g].partition("/")[0] for g in tree.children(first)
    }


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_resnet_shows_its_stages(exporter: str) -> None:
    _, tree = tree_of(f"resnet50, {exporter}")
    assert top_names(f"resnet50, {exporter}") == [
        "embedder",
        "stages.0",
        "stages.1",
        "stages.2",
        "stages.3",
        "classifier",
    ]
    third = tree.scope_name.index("stages.2")
    assert [tree.scope_name[g] for g in tree.children(third)] == ["layers.0", "layers 1–5"]
    assert tree.scope_class[third] == ("ResNetStage" if exporter == "dynamo" else "")
    assert tree.scope_path[third].endswith("encoder/stages.2")


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_llama_shows_its_layers_as_one(exporter: str) -> None:
    _, tree = tree_of(f"llama, {exporter}")
    roof = int(np.argmax(tree.scope_repeat))
    assert tree.scope_parent[roof] == 0
    assert tree.scope_repeat[roof] >= 15
    assert re.fullmatch(r"layers [01]–15", tree.scope_name[roof])
    modules = Counter(tree.node_module.values())
    assert [modules[f"{name}_proj"] for name in "qkvo"] == [16] * 4


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_operators_that_prepare_masks_are_one_scope(name: str, exporter: str) -> None:
    graph, tree = tree_of(f"{name}, {exporter}")
    (scope,) = (g for g in tree.children(0) if tree.scope_name[g] == "shapes and masks")
    inside = {scope}
    for each in range(scope + 1, len(tree.scope_parent)):
        if tree.scope_parent[each] in inside:
            inside.add(each)
    nodes = [n for n in range(graph.node_count) if tree.node_scope[n] in inside and not graph.folded[n]]
    assert len(nodes) >= 20
    operators = {graph.operators[graph.op_index[n]][0] for n in nodes}
    assert "Range" in operators
    assert not operators & {"MatMul", "Gemm", "LayerNormalization", "Softmax", "Gelu", "Tanh"}
    # what is left outside the modules are layers of one node
    outside = {graph.operators[graph.op_index[n]][0] for n in tree.members(0) if not graph.folded[n]}
    assert outside <= {"Gather", "MatMul"}
    assert not sibling_cycles(graph, tree)


def prepared(*, feeds_back: bool) -> onnx.ModelProto:
    """Two modules, and between them eight operators on shapes; they read the first one's result, or its shape."""
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["a"], "/one/MatMul"), node("Relu", ["a"], ["b"], "/one/Relu")]
    if feeds_back:
        nodes.append(node("Abs", ["b"], ["s0"], "/Abs"))
    else:
        nodes.append(node("Shape", ["b"], ["s0"], "/Shape"))
    nodes += [node("Neg", [f"s{i}"], [f"s{i + 1}"], f"/Neg_{i}") for i in range(7)]
    nodes += [
        node("MatMul", ["b", "w"], ["c"], "/two/MatMul"), node("Relu", ["c"], ["d"], "/two/Relu"),
        node("Add" if feeds_back else "Expand", ["d", "s7"], ["y"], "/two/last"),
    ]  # fmt: skip
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [2, 2])], [info("y", TensorProto.FLOAT, None)], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_shape_carries_nothing_learned_and_a_result_does() -> None:
    assert "shapes and masks" in scopes(Graph.of(prepared(feeds_back=False))).scope_name
    assert "shapes and masks" not in scopes(Graph.of(prepared(feeds_back=True))).scope_name


def test_nodes_with_flat_names_get_scopes_from_their_weights() -> None:
    _, tree = tree_of("densenet121")
    assert tree.source == "weights"
    assert top_names("densenet121") == [
        "conv1",
        "conv2 1–6",
        "conv2_blk",
        "conv3 1–12",
        "conv3_blk",
        "conv4 1–24",
        "conv4_blk",
        "conv5 1–16",
        "conv5_blk",
    ]  # fmt: skip


def test_constants_that_are_named_after_their_operator_name_no_scope() -> None:
    # as Paddle exports: weights are Constants with names of modules, sizes have names of the exporter
    nodes, last = [], "x"
    for i in range(6):
        for name in ("fc1", "fc2", "fc3"):
            weight = numpy_helper.from_array(np.full((4, 4), i, np.float32))
            nodes.append(helper.make_node("Constant", [], [f"blocks.{i}.{name}.weight"], value=weight))
            nodes.append(helper.make_node("MatMul", [last, f"blocks.{i}.{name}.weight"], [last := f"{name}_{i}"]))
            size = f"p2o.helper.constant.{i}{name[-1]}"
            nodes.append(helper.make_node("Constant", [], [size], value_ints=[-1, 4]))
            nodes.append(helper.make_node("Reshape", [last, size], [last := f"r_{name}_{i}"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", last))
    graph = helper.make_graph(nodes, "g", [x], [y])
    tree = scopes(Graph.of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    assert (tree.source, tree.scope_name[1]) == ("weights", "blocks 0–5")
    assert not [path for path in tree.scope_path if "p2o" in path]


def test_without_any_names_the_structure_gives_the_scopes() -> None:
    _, tree = tree_of("resnet50")
    assert tree.source == "structure"
    tops = tree.children(0)
    assert [int(tree.scope_repeat[g]) for g in tops] == [1, 2, 1, 3, 1, 5, 1, 2]


def anonymous(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, with every name replaced by a number and no metadata."""
    numbers: dict[str, str] = {"": ""}
    graph = proto.graph
    for node in graph.node:
        node.name = ""
        del node.metadata_props[:]
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = numbers.setdefault(name, str(len(numbers)))
    for named in (*graph.initializer, *graph.input, *graph.output):
        named.name = numbers.setdefault(named.name, str(len(numbers)))
    del graph.value_info[:]
    return proto


@pytest.mark.parametrize(("name", "times"), [("llama", 15), ("bert", 11)])
def test_layers_are_found_in_a_graph_without_names(name: str, times: int) -> None:
    proto = anonymous(onnx.load(models.exported(name, dynamo=True)))
    graph = Graph.of(proto)
    tree = scopes(graph)
    assert tree.source == "structure"
    assert tree.scope_repeat.max() >= times
    check_tree(graph, tree)
    assert not sibling_cycles(graph, tree)


def made(nodes: Sequence[onnx.NodeProto], weights: Sequence[str] = ()) -> onnx.ModelProto:
    def float2(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    tensors = [numpy_helper.from_array(np.ones(2, np.float32), name) for name in weights]
    graph = helper.make_graph(list(nodes), "g", [float2("x")], [float2(nodes[-1].output[0])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def row(*scopes_: str) -> list[onnx.NodeProto]:
    """Nodes one after another, each in the given scope."""
    outs = ["x", *(f"t{i}" for i in range(len(scopes_)))]
    return [helper.make_node("Relu", [outs[i]], [outs[i + 1]], f"{scope}/Relu_{i}") for i, scope in enumerate(scopes_)]


def members(graph: Graph, tree: Scopes) -> dict[str, list[int]]:
    return {tree.scope_path[g]: tree.members(g).tolist() for g in range(1, len(tree.scope_parent))}


def test_a_module_that_is_called_again_is_split_call_by_call() -> None:
    graph = Graph.of(made(row("/act", "/act", "/a", "/a", "/act", "/act", "/b", "/b", "/act", "/act")))
    tree = scopes(graph)
    found = members(graph, tree)
    assert found == {"act": [0, 1], "a": [2, 3], "act (2)": [4, 5], "b": [6, 7], "act (3)": [8, 9]}
    assert not sibling_cycles(graph, tree)


def test_two_modules_that_feed_each_other_are_split_even_if_neither_feeds_itself() -> None:
    node = helper.make_node
    nodes = [
        node("Relu", ["x"], ["a1"], "/a/1"), node("Relu", ["x"], ["b1"], "/b/1"),
        node("Relu", ["a1"], ["b2"], "/b/2"), node("Relu", ["b1"], ["a2"], "/a/2"),
        node("Relu", ["a2"], ["a3"], "/a/3"), node("Add", ["a3", "b2"], ["y"], "/Add"),
        *(node("Relu", ["y"], [f"z{i}"], f"/c/{i}") for i in range(3)),
    ]  # fmt: skip
    graph = Graph.of(made(nodes))
    tree = scopes(graph)
    check_tree(graph, tree)
    assert not sibling_cycles(graph, tree)
    assert members(graph, tree)["a (2)"] == [3, 4]


def test_nested_scopes_follow_a_split() -> None:
    inner = ["/m/p", "/m/p", "/m/q", "/m/q"]
    graph = Graph.of(made(row(*inner, *["/z"] * 4, *inner)))
    tree = scopes(graph)
    assert {path: len(nodes) for path, nodes in members(graph, tree).items()} == {
        "m": 0, "m/p": 2, "m/q": 2, "z": 4, "m (2)": 0, "m/p (2)": 2, "m/q (2)": 2
    }  # fmt: skip


def test_chains_of_single_scopes_are_one_scope() -> None:
    graph = Graph.of(made(row("/a/b/c", "/a/b/c", "/d", "/d", "/e/f", "/e/f")))
    tree = scopes(graph)
    assert tree.scope_name[1:] == ["a/b/c", "d", "e/f"]
    assert tree.scope_path[1:] == ["a/b/c", "d", "e/f"]


def test_a_scope_of_one_node_is_no_scope() -> None:
    graph = Graph.of(made(row("/a", "/b/x", "/b/y", "/c/z/w", "/c/z/w")))
    assert scopes(graph).scope_name[1:] == ["b", "c/z/w"]
    assert scopes(graph).node_module == {0: "a", 1: "x", 2: "y"}, "the node has its name"


def test_nodes_that_tflite_fused_have_the_scope_of_the_first_name() -> None:
    fused = [f"net/conv_{i};net/conv_{i}{end}" for i in (1, 2) for end in ("", "__55", "/Squeeze;net/add/Add")]
    nodes = row(*fused, "net/pool/Max", "net/pool/Neg")
    for node in nodes:
        node.name = node.name.rpartition("/")[0]
    assert scopes(Graph.of(made(nodes))).scope_name[1:] == ["conv_1", "conv_2", "pool"]


def test_the_scope_around_everything_is_the_root_itself() -> None:
    graph = Graph.of(made(row(*[f"model/net/{part}" for part in "aabbcc"])))
    assert scopes(graph).scope_name[1:] == ["a", "b", "c"]
    assert scopes(graph).scope_path[1] == "model/net/a"


def test_nodes_without_a_name_go_where_their_neighbors_are() -> None:
    nodes = row("/a/p", "/a/p", "?", "/a/q", "/a/q", "?", "/b", "/b")
    for node in nodes:
        node.name = "" if node.name.startswith("?") else node.name
    graph = Graph.of(made(nodes))
    tree = scopes(graph)
    assert tree.scope_path[tree.node_scope[2]] == "a"
    assert tree.node_scope[5] == 0


@pytest.mark.parametrize(("count", "levels"), [(3, 0), (64, 0), (65, 1), (4096, 1), (5000, 2)])
def test_long_rows_are_divided_in_levels(count: int, levels: int) -> None:
    graph = Graph.of(made(row(*[f"/h.{i // 2}" for i in range(2 * count)], "/end", "/end")))
    tree = scopes(graph)
    check_tree(graph, tree)
    roof = tree.scope_name.index(f"h 0–{count - 1}")
    assert tree.scope_repeat[roof] == count
    first_layer = tree.scope_name.index("h.0")
    line = line_of(tree, first_layer)
    assert [int(tree.scope_kind[g]) for g in line] == [ROOT, REPEAT, *[GATHERED] * levels, SCOPE]
    if levels:
        part = line[2]
        assert tree.scope_name[part] == f"h 0–{tree.scope_repeat[part] - 1}"


def test_nodes_between_repeated_layers_join_the_repeat() -> None:
    scopes_ = [s for i in range(4) for s in (f"/h.{i}", f"/h.{i}", "")]
    graph = Graph.of(made(row(*scopes_, "/end", "/end")))
    tree = scopes(graph)
    assert not sibling_cycles(graph, tree)
    roof = tree.scope_name.index("h 0–3")
    assert tree.members(roof).tolist() == [2, 5, 8]
    assert tree.node_scope[11] == 0


def test_layers_that_differ_are_not_repeats() -> None:
    nodes = row(*[f"/h.{i // 2}" for i in range(12)])
    nodes[5].op_type = "Tanh"
    graph = Graph.of(made(nodes))
    assert [n for n in scopes(graph).scope_name if "–" in n] == ["h 3–5"]


def test_only_layers_that_read_the_one_before_are_a_repeat() -> None:
    """The second and the third of five equal layers are parallel, as in a network with two branches."""

    def layer(number: int, source: str) -> list[onnx.NodeProto]:
        inner = helper.make_node("Relu", [source], [f"a{number}"], f"/convs.{number}/Relu")
        return [inner, helper.make_node("Tanh", [f"a{number}"], [f"t{number}"], f"/convs.{number}/Tanh")]

    nodes = [*layer(0, "x"), *layer(1, "t0"), *layer(2, "t0"), helper.make_node("Add", ["t1", "t2"], ["sum"], "/Add")]
    nodes += [*layer(3, "sum"), *layer(4, "t3"), *layer(5, "t4"), helper.make_node("Neg", ["t5"], ["y"], "/Neg")]
    tree = scopes(Graph.of(made(nodes)))
    assert [name for name in tree.scope_name if "–" in name] == ["convs 2–5"]
    assert {"convs.0", "convs.1"} <= set(tree.scope_name)


@pytest.mark.parametrize("more", [0, 40])
def test_a_row_of_bare_numbers_has_the_name_of_the_module_above(more: int) -> None:
    """Also where the module that holds nearly all of the model is not drawn."""
    graph = Graph.of(made(row(*[f"/net/blocks/{at // 2}" for at in range(8)], *["/net/head"] * more, "/end")))
    tree = scopes(graph)
    roof = int(np.argmax(tree.scope_repeat))
    assert tree.scope_name[roof] == "blocks 0–3"
    assert not any(name.isdigit() and tree.scope_parent[at] == 0 for at, name in enumerate(tree.scope_name))


def test_siblings_with_unrelated_names_are_not_repeats() -> None:
    graph = Graph.of(made(row("/query", "/query", "/key", "/key", "/value", "/value")))
    assert scopes(graph).scope_name[1:] == ["query", "key", "value"]


def test_a_flat_row_without_pattern_is_divided() -> None:
    ops = ["Relu", "Tanh", "Neg", "Abs", "Exp"]
    order = np.random.default_rng(0).integers(0, 5, 3000)
    nodes = [helper.make_node(ops[op], [f"t{i - 1}" if i else "x"], [f"t{i}"]) for i, op in enumerate(order)]
    graph = Graph.of(made(nodes))
    tree = scopes(graph)
    check_tree(graph, tree)
    assert not sibling_cycles(graph, tree)


def test_folded_nodes_are_with_their_readers() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], "/elsewhere/Constant", value_float=1.0),
        helper.make_node("Identity", ["c"], ["d"], "/elsewhere/Identity"),
        helper.make_node("Add", ["x", "d"], ["t"], "/a/Add"),
        helper.make_node("Relu", ["t"], ["u"], "/a/Relu"),
        helper.make_node("Mul", ["u", "c"], ["v"], "/b/Mul"),
        helper.make_node("Relu", ["v"], ["y"], "/b/Relu"),
    ]
    tree = scopes(Graph.of(made(nodes)))
    assert [tree.scope_path[tree.node_scope[n]] for n in range(6)] == ["", "a", "a", "a", "b", "b"]


def torch_node(source: str, target: str, scopes_: list[str], classes: list[str]) -> onnx.NodeProto:
    node = helper.make_node("Relu", [source], [target])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes_))
    node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=repr(classes))
    return node


def test_metadata_has_scopes_and_classes() -> None:
    classes = ["my.Net", "my.Encoder", "my.Layer", "aten.relu.default"]
    nodes = [
        torch_node(f"t{i - 1}" if i else "x", f"t{i}", ["", "enc", f"enc.layer.{i // 2}", f"relu_{i}"], classes)
        for i in range(6)
    ]
    tree = scopes(Graph.of(made(nodes)))
    assert tree.source == "metadata"
    assert tree.scope_name[1:] == ["layer 0–2", "layer.0", "layer.1", "layer.2"]
    assert set(tree.scope_class[1:]) == {"Layer"}


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_scopes_are_modules_and_only_operators_of_many_nodes(name: str) -> None:
    graph = Graph.of(models.exported(name, dynamo=True))
    tree = scopes(graph)
    written = [{entry.key: entry.value for entry in node.metadata_props} for node in graph.model.proto.graph.node]
    operators: Counter[str] = Counter()
    for entries in written:
        names, kinds = (
            re.findall("'([^']*)'", entries.get(f"pkg.torch.onnx.{key}", ""))
            for key in ("name_scopes", "class_hierarchy")
        )
        if kinds and kinds[-1].startswith("aten."):
            operators[names[-1]] += 1
    shown = {
        path.rpartition("/")[2] for path, kind in zip(tree.scope_path, tree.scope_kind, strict=True) if kind == SCOPE
    }
    assert all(operators[name] > structure.OPERATION for name in shown & set(operators))
    assert not [name for name in shown if name.startswith(("sym_size", "rsqrt", "linear_", "expand_"))]
    assert any(name.startswith("scaled_dot_product_attention") for name in shown)


@pytest.mark.parametrize("text", ["", "[", "[1, 2]", "['a'", "{}", "['<b>', 'x']", "[" * 100_000, "'" * 1001])
def test_metadata_of_other_tools_does_no_harm(text: str) -> None:
    nodes = [torch_node(f"t{i - 1}" if i else "x", f"t{i}", [], []) for i in range(6)]
    for node in nodes:
        node.metadata_props[0].value = text
    graph = Graph.of(made(nodes))
    check_tree(graph, scopes(graph))


@pytest.mark.parametrize("name", ["/" * 5000, "a/" * 5000, "<b>/x", "😀/😀", "\n/\n", "a//b", "/", "x" * 10_000 + "/y"])
def test_any_name_gives_a_tree(name: str) -> None:
    graph = Graph.of(made(row(*[name] * 4, "/b", "/b")))
    tree = scopes(graph)
    check_tree(graph, tree)
    assert max(len(line_of(tree, g)) for g in range(len(tree.scope_parent))) <= structure.DEPTH_LIMIT + 2


PARTS = st.lists(st.sampled_from(["a", "b", "h.0", "h.1", "h.2", "h.3", "c"]), min_size=0, max_size=3)


@st.composite
def scoped(draw: st.DrawFn) -> onnx.ModelProto:
    """Random directed acyclic graphs whose nodes are in random scopes: nearly all of them tangled."""
    nodes = []
    for i in range(draw(st.integers(4, 40))):
        read = draw(st.lists(st.integers(max(-1, i - 6), i - 1), min_size=1, max_size=3))
        scope = "/".join(["", *draw(PARTS)])
        op = draw(st.sampled_from(["Sum", "Max"]))
        nodes.append(helper.make_node(op, [f"t{r}" if r >= 0 else "x" for r in read], [f"t{i}"], f"{scope}/{op}_{i}"))
    return made(nodes)


@given(scoped())
@settings(max_examples=150, deadline=None)
def test_no_tree_has_cycles_between_siblings(proto: onnx.ModelProto) -> None:
    graph = Graph.of(proto)
    tree = scopes(graph)
    check_tree(graph, tree)
    assert not sibling_cycles(graph, tree)


@given(scoped())
@settings(max_examples=60, deadline=None)
def test_the_structure_of_any_graph_gives_a_tree(proto: onnx.ModelProto) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "FLAT_LIMIT", 3)
        for module in (scopes_module, structure):
            patch.setattr(module, "CHILDREN_LIMIT", 4)
        graph = Graph.of(anonymous(proto))
        tree = scopes(graph)
        assert tree.source == "structure"
        check_tree(graph, tree)
        assert not sibling_cycles(graph, tree)


def test_cycles_in_the_graph_itself_do_no_harm() -> None:
    nodes = row("/a", "/a", "/b", "/b", "/a", "/a")
    nodes[0].input[0] = "t5"
    graph = Graph.of(made(nodes))
    assert [fault.kind for fault in graph.problems] == ["cycle"]
    check_tree(graph, scopes(graph))


def fan_out(branches: Sequence[Sequence[str]], *, split: bool, named: bool = False) -> onnx.ModelProto:
    """Each branch a chain of operators, between one node (a Split, or a Relu) and a Sum."""
    count = len(branches)
    outs = [f"s{i}" for i in range(count)] if split else ["s"]
    nodes = [helper.make_node("Split" if split else "Relu", ["x"], outs, "first")]
    if split:
        nodes[0].attribute.append(helper.make_attribute("num_outputs", count))
    ends = []
    for i, ops in enumerate(branches):
        at = outs[i % len(outs)]
        for j, op in enumerate(ops):
            nodes.append(helper.make_node(op, [at], [f"b{i}_{j}"], f"/net/head.{i}/{op}_{j}" if named else ""))
            at = f"b{i}_{j}"
        ends.append(at)
    nodes.append(helper.make_node("Sum", ends, ["y"], "last"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("branches", "split", "expected"),
    [
        ([["Relu"]] * 1000, False, [("Relu", 1000)]),
        ([["Neg", "Exp"]] * 64, True, [("Neg → Exp", 64)]),
        ([["Neg", "Exp", "Abs", "Tanh"]] * 10, True, [("Neg → … → Tanh", 10)]),
        ([["Relu"]] * 30 + [["Tanh", "Neg"]] * 12 + [["Exp"]] * 3, True, [("Relu", 30), ("Tanh → Neg", 12)]),
        ([["Relu"]] * 7 + [["Tanh"] * i for i in range(1, 9)], True, []),
        ([["Relu"]] * 12, False, []),  # few enough to see them all
    ],
)
def test_equal_branches_side_by_side_are_one_box(
    branches: list[list[str]], split: bool, expected: list[tuple[str, int]]
) -> None:
    graph = Graph.of(fan_out(branches, split=split))
    tree = scopes(graph)
    check_tree(graph, tree)
    assert not sibling_cycles(graph, tree)
    roofs = [g for g in range(len(tree.scope_parent)) if tree.scope_kind[g] == SIBLINGS]
    assert [(tree.scope_name[g], int(tree.scope_repeat[g])) for g in roofs] == expected
    assert all(tree.scope_parent[g] == 0 for g in roofs)
    if expected:
        # the ends of the fan stay where they are
        assert tree.node_scope[[0, graph.node_count - 1]].tolist() == [0, 0]
    for roof, (_, times) in zip(roofs, expected, strict=True):
        inside = [n for n in range(graph.node_count) if roof in line_of(tree, int(tree.node_scope[n]))]
        chains = Counter(tuple(ops) for ops in branches)
        assert len(inside) == times * next(len(ops) for ops, n in chains.items() if n == times)


def test_equal_branches_that_read_other_tensors_are_distinct() -> None:
    """Two fans of one Relu each, then one of the readers of both: only what hangs in the same place is equal."""
    nodes = [helper.make_node("Relu", ["x"], [f"h{i}"], f"hub{i}") for i in range(2)]
    nodes += [helper.make_node("Neg", [f"h{i % 2}"], [f"n{i}"]) for i in range(20)]
    nodes += [helper.make_node("Add", ["h0", "h1"], [f"a{i}"]) for i in range(9)]
    nodes += [helper.make_node("Sum", [*(f"n{i}" for i in range(20)), *(f"a{i}" for i in range(9))], ["y"])]
    graph = Graph.of(proto_of_nodes(nodes))
    tree = scopes(graph)
    roofs = np.flatnonzero(tree.scope_kind == SIBLINGS).tolist()
    inside = {
        frozenset(tuple(graph.node_inputs(n).tolist()) for n in tree.members(g).tolist()): int(tree.scope_repeat[g])
        for g in roofs
    }
    h0, h1 = graph.value("h0"), graph.value("h1")
    assert inside == {frozenset({(h0,)}): 10, frozenset({(h1,)}): 10, frozenset({(h0, h1)}): 9}
    check_tree(graph, tree)


def proto_of_nodes(nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_heads_with_names_of_their_own_are_folded_where_they_are() -> None:
    graph = Graph.of(fan_out([["Neg", "Exp", "Abs"]] * 32, split=True, named=True))
    tree = scopes(graph)
    (roof,) = np.flatnonzero(tree.scope_kind == REPEAT).tolist()
    assert (tree.scope_name[roof], int(tree.scope_repeat[roof])) == ("head 0–31", 32)


@given(st.integers(8, 40), st.integers(1, 4), st.integers(0, 2**31), st.booleans())
@settings(max_examples=40, deadline=None)
def test_folding_does_not_depend_on_the_order_in_the_file(count: int, depth: int, seed: int, split: bool) -> None:
    proto = fan_out([["Relu", "Neg", "Exp", "Abs"][:depth]] * count, split=split)
    made = scopes(Graph.of(proto))
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(proto)
    inner = list(proto.graph.node[1:-1])
    depth_of = {node.output[0]: int(node.output[0].rpartition("_")[2]) for node in inner}
    order = np.random.default_rng(seed).permutation(len(inner)).tolist()
    inner = sorted((inner[i] for i in order), key=lambda node: depth_of[node.output[0]])
    del shuffled.graph.node[:]
    shuffled.graph.node.extend([proto.graph.node[0], *inner, proto.graph.node[-1]])
    other = scopes(Graph.of(shuffled))
    assert sorted(other.scope_name) == sorted(made.scope_name)
    assert (
        other.scope_repeat[other.scope_kind == SIBLINGS].tolist()
        == made.scope_repeat[made.scope_kind == SIBLINGS].tolist()
    )
    check_tree(Graph.of(shuffled), other)


def test_scopes_stay_after_the_optimizer_of_onnxruntime_transformers(tmp_path: Path) -> None:
    """Its fused nodes have names such as "SkipLayerNorm_AddBias_3"; their outputs keep those of the export."""
    from onnxruntime.transformers import optimizer

    plain = models.exported("bert", dynamo=False)
    fused = optimizer.optimize_model(str(plain), model_type="bert", opt_level=0)
    fused.save_model_to_file(str(tmp_path / "fused.onnx"))
    graph = Graph.of(tmp_path / "fused.onnx")
    tree, before = scopes(graph), scopes(Graph.of(plain))
    homes = {
        tree.scope_path[int(tree.node_scope[node])] for node in range(graph.node_count) if "Skip" in graph.op_type(node)
    }
    layers = {f"encoder/layer.{layer}/{part}" for layer in range(12) for part in ("attention/output", "output")}
    # the last one computes an output of the model, which has a name of its own
    assert homes - {""} == layers - {"encoder/layer.11/output"}
    assert homes <= set(before.scope_path)


def test_the_layer_of_a_value_is_the_module_that_computed_it() -> None:
    model = onnx.load(models.exported("bert", dynamo=True), load_external_data=False)
    graph = Graph.of(model)
    modules = {
        output: next(entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.name_scopes")
        for node in model.graph.node
        for output in node.output
    }
    producer = {output: node for node in model.graph.node for output in node.output}
    products = moves = 0
    for name, node in producer.items():
        path = "." + layer_of(graph, graph.value(name)).replace("/", ".")
        if node.op_type == "MatMul" and "linear" in modules[name]:
            assert path == f".{ast.literal_eval(modules[name])[-2]}"
            products += 1
        elif node.op_type in ("Reshape", "Transpose") and node.input[0] in producer:
            assert path == "." + layer_of(graph, graph.value(node.input[0])).replace("/", ".")
            moves += ast.literal_eval(modules[name])[-2] != path[1:]
    assert products == 12 * 6  # projections of twelve layers
    assert moves > 10
    assert layer_of(graph, graph.value("input_ids")) == ""
