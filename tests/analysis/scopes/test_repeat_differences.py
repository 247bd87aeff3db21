"""Which members of a repeat differ, against models of which that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.scopes.scopes import REPEAT, SIBLINGS, scopes
from onnx_nb.analysis.view.graph_columns import DIFFERS, columns
from tests import models

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 8


def layers(count: int, *, changed: Mapping[int, str], named: bool = True) -> onnx.ModelProto:
    """Layers of MatMul, Softmax, Mul; those in `changed` have something else."""
    nodes, weights = [], []
    at = "x"
    random = np.random.default_rng(0)
    for i in range(count):
        what = changed.get(i, "")
        scope = f"/net/layer.{i}/" if named else ""
        wide = 2 * WIDTH if what == "shape" else WIDTH
        dtype = np.float16 if what == "dtype" else np.float32
        weights += [
            numpy_helper.from_array(random.normal(size=(WIDTH, wide)).astype(dtype), f"w{i}"),
            numpy_helper.from_array(np.asarray(0.5 if what != "scalar" else 0.25, np.float32), f"s{i}"),
            # what is learned is another number in each layer
            numpy_helper.from_array(random.normal(size=(1,)).astype(np.float32), f"learned{i}"),
        ]
        axis = 1 if what == "axis" else 2
        factor = f"m{i}" if what == "computed" else f"s{i}"
        nodes += [
            helper.make_node("MatMul", [at, f"w{i}"], [f"m{i}"], f"{scope}MatMul" if named else ""),
            helper.make_node("Softmax", [f"m{i}"], [f"t{i}"], f"{scope}Softmax" if named else "", axis=axis),
            helper.make_node("Mul", [f"t{i}", factor], [f"u{i}"], f"{scope}Mul" if named else ""),
            helper.make_node("Add", [f"u{i}", f"learned{i}"], [f"h{i}"], f"{scope}Add" if named else ""),
        ]
        at = f"h{i}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, WIDTH])
    y = helper.make_tensor_value_info(at, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def differences_of(model: Any) -> tuple[dict[str, str], list[str], dict[str, int]]:
    """Return texts by scope, the nodes that are marked, and the rows with how many of them differ."""
    made, graph = columns(model), Graph.opened(model)
    tree = scopes(graph)
    table = made.strings()
    texts = {tree.scope_name[g]: table[n] for g, n in enumerate(made.arrays["scope_difference"].tolist()) if n}
    marked = [graph.names[n] for n in np.flatnonzero(made.arrays["node_flags"] & DIFFERS).tolist()]
    rows = np.flatnonzero(np.isin(tree.scope_kind, (REPEAT, SIBLINGS))).tolist()
    return texts, marked, {tree.scope_name[g]: int(made.arrays["scope_differs"][g]) for g in rows}


@pytest.mark.parametrize(
    ("what", "node", "text"),
    [
        ("axis", "Softmax", "Softmax axis 1, others axis 2"),
        ("shape", "MatMul", "MatMul B 8×16 float32, others 8×8 float32"),
        ("dtype", "MatMul", "MatMul B 8×8 float16, others 8×8 float32"),
        ("scalar", "Mul", "Mul B 0.25, others 0.5"),
    ],
)
def test_differences_are_described_and_marked(what: str, node: str, text: str) -> None:
    texts, marked, rows = differences_of(layers(12, changed={3: what, 7: what}))
    assert rows == {"layer 0–11": 2}
    assert texts["layer.3"] == texts["layer.7"] == text
    assert texts["layer 0–11"] == "layer.3, layer.7"
    assert marked == [f"/net/layer.3/{node}", f"/net/layer.7/{node}"]


def test_equal_layers_with_other_weights_do_not_differ() -> None:
    texts, marked, rows = differences_of(layers(12, changed={}))
    assert rows == {"layer 0–11": 0}
    assert (texts, marked) == ({}, [])


def test_a_computed_input_differs_from_a_weight() -> None:
    # one more edge is another structure: that layer is no member of the row
    _, marked, rows = differences_of(layers(12, changed={11: "computed"}))
    assert (rows, marked) == ({"layer 0–10": 0}, [])


def test_without_names_layers_are_compared_too() -> None:
    proto = layers(40, changed={5: "axis"}, named=False)
    _, _, rows = differences_of(proto)
    assert list(rows.values()) == [1]
    made, graph = columns(proto), Graph.of(proto)
    (marked,) = np.flatnonzero(made.arrays["node_flags"] & DIFFERS).tolist()
    assert graph.nodes[marked].output[0] == "t5"


def test_rows_of_nodes_are_compared_and_parts_of_long_rows_counted() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"], "hub")]
    nodes += [
        helper.make_node("LeakyRelu", ["h"], [f"a{i}"], f"leaky{i}", alpha=0.5 if i in (5, 90) else 0.25)
        for i in range(100)
    ]
    nodes += [helper.make_node("Sum", [f"a{i}" for i in range(100)], ["y"], "sum")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    texts, marked, rows = differences_of(proto)
    assert rows == {"LeakyRelu": 2}
    assert marked == ["leaky5", "leaky90"]
    assert texts == {"LeakyRelu": "leaky5, leaky90"}
    differs = columns(proto).arrays["scope_differs"].tolist()
    assert sorted(number for number in differs if number) == [1, 1, 2]  # two parts and the row


@given(
    st.integers(6, 20),
    st.dictionaries(st.integers(0, 5), st.sampled_from(["axis", "shape", "dtype", "scalar"]), max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_exactly_the_changed_layers_differ(count: int, changed: dict[int, str]) -> None:
    texts, marked, rows = differences_of(layers(count, changed=changed))
    assert list(rows.values()) == [len(changed)]
    assert {name for name in texts if name.startswith("layer.")} == {f"layer.{i}" for i in changed}
    assert {name.split("/")[2] for name in marked} == {f"layer.{i}" for i in changed}


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_layers_of_real_models_do_not_differ(name: str, dynamo: bool) -> None:
    _, _, rows = differences_of(models.exported(name, dynamo=dynamo))
    assert rows
    assert max(rows.values()) == 0
