"""Weights are counted, listed, read and balanced wherever a model keeps them, as the protos themselves say."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.view.graph_columns import columns

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]


def floats(name: str, *shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def array(seed: int, *shape: int) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def constant(name: str, value: Any, **attributes: Any) -> onnx.NodeProto:
    given = attributes or {"value": numpy_helper.from_array(value)}
    return helper.make_node("Constant", [], [name], **given)


def everywhere() -> tuple[ModelProto, dict[str, NDArray[Any]]]:
    """Return a model with a weight in every place, and each of them by its name."""
    weights = {name: array(i, 4, 4) for i, name in enumerate(("w", "c", "inner", "other", "Block::k"))}
    weights |= {
        "few": np.array([1, 2, 3, 4], np.float32),
        "one": np.array(2, np.float32),
        "Block::n": np.array([4, -1], np.int64),
    }

    def branch(name: str, *nodes: onnx.NodeProto, weight: str) -> onnx.GraphProto:
        made = helper.make_node("MatMul", ["x", weight], [f"{name}_y"])
        return helper.make_graph([*nodes, made], name, [], [floats(f"{name}_y", "n", 4)])

    then = branch("then", constant("inner", weights["inner"]), weight="inner")
    orelse = branch("else", constant("also", weights["other"]), weight="other")
    orelse.initializer.append(numpy_helper.from_array(weights["other"], "other"))
    nodes = [
        constant("c", weights["c"]),
        constant("few", None, value_floats=[1.0, 2.0, 3.0, 4.0]),
        constant("one", None, value_float=2.0),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "c"], ["b"]),
        helper.make_node("Add", ["b", "few"], ["d"]),
        helper.make_node("Mul", ["d", "one"], ["e"]),
        helper.make_node("If", ["f"], ["h"], then_branch=then, else_branch=orelse),
        helper.make_node("Add", ["e", "h"], ["i"]),
        helper.make_node("Block", ["i"], ["j"], domain="my"),
        helper.make_node("Block", ["j"], ["k"], domain="my"),
        helper.make_node(
            *("LinearRegressor", ["k"], ["y"]),
            name="linear",
            domain="ai.onnx.ml",
            coefficients=[1.0, 2, 3, 4],
            intercepts=[0.5],
        ),
        helper.make_node(
            *("LabelEncoder", ["s"], ["t"]),
            domain="ai.onnx.ml",
            keys_strings=["one", "two"],
            values_int64s=[1, 2],
            default_int64=-1,
        ),
    ]
    weights |= {
        "linear.coefficients": np.array([1, 2, 3, 4], np.float32),
        "linear.intercepts": np.array([0.5], np.float32),
    }
    weights |= {"t.keys_strings": np.array(["one", "two"], object), "t.values_int64s": np.array([1, 2], np.int64)}
    weights["also"] = weights["other"]
    inputs = [floats("x", "n", 4), helper.make_tensor_value_info("f", TensorProto.BOOL, [])]
    inputs.append(helper.make_tensor_value_info("s", TensorProto.STRING, ["m"]))
    outputs = [floats("y", "n", 1), helper.make_tensor_value_info("t", TensorProto.INT64, ["m"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weights["w"], "w")])
    body = [
        constant("k", weights["Block::k"]),
        constant("n", weights["Block::n"]),
        helper.make_node("MatMul", ["p", "k"], ["q"]),
        helper.make_node("Reshape", ["q", "n"], ["r0"]),
        helper.make_node("Reshape", ["r0", "m"], ["r"]),
        constant("m", np.array([-1, 4], np.int64)),
    ]
    body.insert(0, body.pop())
    weights["Block::m"] = np.array([-1, 4], np.int64)
    function = helper.make_function("my", "Block", ["p"], ["r"], body, OPSETS[:1])
    imports = [*OPSETS, helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8), weights


def test_weights_are_counted_listed_and_read_wherever_they_are() -> None:
    proto, weights = everywhere()
    model = onnx_nb.load(proto)
    assert set(model.tensor_names()) == set(weights)
    for name, expected in weights.items():
        read = model.tensor(name)
        assert (read.dtype, read.shape) == (expected.dtype, expected.shape)
        assert read.tolist() == expected.tolist()
    size = sum(weight.size for weight in weights.values())
    nbytes = sum(weight.nbytes for weight in weights.values() if weight.dtype != object) + len("onetwo")
    summary = onnx_nb.summarize(model)
    assert (summary.parameters, summary.nbytes, model.nbytes) == (size, nbytes, nbytes)
    cost = onnx_nb.costs(model, {"n": 2, "m": 2})
    # the else branch has a constant that no node reads; a function that is called twice has its weights once
    assert cost.total.parameters == size - weights["also"].size
    assert cost.node("linear").parameters == 5
    assert cost.memory.weight_bytes == nbytes


def test_of_two_bodies_with_a_weight_of_one_name_both_count() -> None:
    graphs = [
        helper.make_graph(
            [constant("w", array(seed, 3)), helper.make_node("Add", ["x", "w"], [f"y{seed}"])],
            *(f"b{seed}", [], [floats(f"y{seed}", 3)]),
        )
        for seed in (0, 1)
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])
    inputs = [floats("x", 3), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph([node], "g", inputs, [floats("y", 3)])
    model = onnx_nb.load(helper.make_model(graph, opset_imports=OPSETS, ir_version=8))
    names = model.tensor_names()
    assert [model.tensor(name).tolist() for name in names] == [array(1, 3).tolist(), array(0, 3).tolist()]
    assert onnx_nb.summarize(model).parameters == onnx_nb.costs(model).total.parameters == 6


def test_parts_have_the_same_bytes_of_constants() -> None:
    sizes = [900, 100, 100, 100, 100, 100, 100, 100]
    nodes, last = [], "x"
    for i, size in enumerate(sizes):
        nodes += [constant(f"w{i}", array(i, size, 1)), helper.make_node("Add", [last, f"w{i}"], [f"a{i}"])]
        nodes.append(helper.make_node("ReduceMean", [f"a{i}"], [f"y{i}"], axes=[0]))
        last = f"y{i}"
    graph = helper.make_graph(nodes, "g", [floats("x", 1, 1)], [floats(last, 1, 1)])
    parts = onnx_nb.partition(helper.make_model(graph, opset_imports=OPSETS, ir_version=8), 2)
    assert [part.nbytes for part in parts] == [3600, 2800]


def forest(trees: int) -> ModelProto:
    """Return an ensemble of trees of three nodes each."""
    number, nodes = np.repeat(np.arange(trees), 3), np.tile(np.arange(3), trees)
    leaf = nodes > 0
    rng = np.random.default_rng(0)
    node = helper.make_node(
        *("TreeEnsembleRegressor", ["x"], ["y"]),
        domain="ai.onnx.ml",
        name="trees",
        n_targets=1,
        nodes_treeids=number.tolist(),
        nodes_nodeids=nodes.tolist(),
        nodes_featureids=np.where(leaf, 0, rng.integers(0, 4, 3 * trees)).tolist(),
        nodes_values=np.where(leaf, 0, rng.normal(size=3 * trees)).tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_truenodeids=np.where(leaf, 0, 1).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, 2).tolist(),
        target_treeids=number[leaf].tolist(),
        target_nodeids=nodes[leaf].tolist(),
        target_ids=[0] * int(leaf.sum()),
        target_weights=rng.normal(size=int(leaf.sum())).tolist(),
    )
    graph = helper.make_graph([node], "g", [floats("x", "n", 4)], [floats("y", "n", 1)])
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trees") / "trees.onnx"
    onnx.save(forest(80_000), path)
    return path


def test_long_lists_are_counted(trees: Path) -> None:
    proto, model = onnx.load(trees), onnx_nb.load(trees)
    attributes = {a.name: a for a in proto.graph.node[0].attribute if a.name != "n_targets"}
    summary = onnx_nb.summarize(model)
    lists = {name: [*a.floats, *a.ints, *a.strings] for name, a in attributes.items()}
    assert summary.parameters == summary.cost.parameters == sum(map(len, lists.values()))  # type: ignore[union-attr]
    assert summary.nbytes == sum(
        4 * len(a.floats) + 8 * len(a.ints) + sum(map(len, a.strings)) for a in attributes.values()
    )
    assert [row.parameters for row in summary.by_dtype] == [
        sum(len(a.ints) for a in attributes.values()),
        sum(len(a.floats) for a in attributes.values()),
        len(attributes["nodes_modes"].strings),
    ]
    assert model.inputs[0].shape == ("n", 4)
    table = columns(model)
    drawn = table.strings()[int(table.arrays["node_attributes"][0])]
    assert drawn == "n_targets 1"  # the inspector shows the first entries of the lists
    assert onnx_nb.load(pickle.loads(pickle.dumps(model))).nbytes == summary.nbytes  # noqa: S301  # our own
    for name, entries in lists.items():
        numbers = model.tensor(f"trees.{name}").tolist()
        assert numbers == [entry.decode() if isinstance(entry, bytes) else entry for entry in entries]
    assert model.proto == proto


def test_a_model_with_long_lists_runs_and_is_saved_as_it_is(trees: Path, tmp_path: Path) -> None:
    feeds = {"x": array(1, 3, 4)}
    expected = onnxruntime.InferenceSession(trees).run(None, feeds)[0]
    assert np.array_equal(onnx_nb.run(onnx_nb.load(trees), feeds)["y"], expected)
    assert onnx_nb.load(trees).save(tmp_path / "copy.onnx").read_bytes() == trees.read_bytes()
