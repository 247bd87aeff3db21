"""DecodingPanel: what it hands to the browser, and the operations of a step."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import onnx_nb
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.widgets._channel import Call
from tests.analysis.generate import packages
from tests.analysis.generate.test_compare_decoding import scale
from tests.packed import unpacked

IDS = [5, 17, 3, 28]


@pytest.fixture(scope="module")
def comparison() -> onnx_nb.types.DecodingComparison:
    wrong = packages.decoder(3)
    scale(wrong)
    return onnx_nb.compare_decoding(packages.decoder(3), wrong, IDS, 4)


def ask(panel: onnx_nb.DecodingPanel, verb: str, **given: Any) -> Any:
    return panel._verbs()[verb](Call(1, verb, given, lambda _content, _buffers: None))


def test_the_columns_are_those_of_the_comparison(comparison: onnx_nb.types.DecodingComparison) -> None:
    panel = onnx_nb.DecodingPanel(comparison)
    packed = unpacked(panel._parts["columns"])
    count, parts = comparison.errors.shape
    errors = packed.arrays["errors"].reshape(parts, count).T
    assert np.array_equal(errors, comparison.errors.astype(np.float32))
    assert np.array_equal(packed.arrays["faults"].reshape(parts, count).T, comparison.faults)
    rows = comparison.rows()
    for name in ("position", "margin", "difference", "divergence", "reference", "candidate"):
        assert packed.arrays[name].tolist() == [row[name] for row in rows]
    assert packed.arrays["ties"].tolist() == [row["near tie"] for row in rows]
    assert packed.texts("part") == [row["part"] for row in rows]
    assert packed.texts("reference_text") == [""] * count  # without a tokenizer
    step, part = comparison.first_fault or (-1, "")
    assert packed.meta["first"] == [step, comparison.parts.index(part)]
    assert packed.meta["message"] == comparison.message
    assert (packed.meta["drills"], packed.meta["quantized"]) == (True, False)
    assert "layer 2 attention" in panel._still


def test_the_operations_of_a_step_are_shown_with_their_details(comparison: onnx_nb.types.DecodingComparison) -> None:
    panel = onnx_nb.DecodingPanel(comparison)
    with pytest.raises(onnx_nb.OnnxNbError, match="Compare its operations again"):
        ask(panel, "detail", row=0)
    (columns,) = ask(panel, "drill", name="2").buffers
    expected = comparison.drill(2)
    assert panel.drilled is not None
    assert panel.drilled.message == expected.message
    assert unpacked(columns).meta["message"] == expected.message
    (detail,) = ask(panel, "detail", row=3).buffers
    assert unpacked(detail).arrays
    for name in ("6", "-1", "x", "9" * 5000, ""):
        with pytest.raises(onnx_nb.OnnxNbError, match="there is no step"):
            ask(panel, "drill", name=name)


def test_the_graph_has_the_part_of_each_node_and_of_each_scope(comparison: onnx_nb.types.DecodingComparison) -> None:
    (packed,) = ask(onnx_nb.DecodingPanel(comparison), "columns", part="graph").buffers
    columns, graph = unpacked(packed), Graph.opened(comparison.model)
    parts = dict(zip(graph.names, columns.arrays["node_part"].tolist(), strict=True))
    labels = {name: comparison.parts[part] for name, part in parts.items() if part >= 0}
    for name, label in labels.items():
        layer = re.search(r"layers\.(\d)", name)
        half = "attention" if "attn" in name else "mlp" if "mlp" in name else ""
        if layer and half and int(layer[1]) < 3:  # what belongs to no layer has another name, and a norm one of either
            assert label == f"layer {layer[1]} {half}", name
    assert set(labels.values()) == set(comparison.parts)
    pairs = columns.arrays["scope_parts"].reshape(-1, 2).tolist()
    scopes, inside = columns.arrays["node_scope"], set[tuple[int, int]]()
    for node, part in enumerate(columns.arrays["node_part"].tolist()):
        scope = int(scopes[node])
        while part >= 0 and scope >= 0:
            inside.add((scope, part))
            scope = int(columns.arrays["scope_parent"][scope])
    assert {tuple(pair) for pair in pairs} == inside


def test_what_all_layers_read_belongs_to_none() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (int64[batch, seq] input_ids, float[batch, past, 4] p0, float[batch, past, 4] p1)
      => (float[batch, seq, 4] logits, float[batch, n, 4] n0, float[batch, n, 4] n1) <float[9, 4] table, float[4] bias>
    { x = Gather(table, input_ids)
      shared = Exp(bias)  twice = Mul(shared, shared)
      a = Mul(x, twice)  n0 = Concat<axis = 1>(p0, a)  b = ReduceMean<axes = [1]>(n0)  y = Add(x, b)
      c = Mul(y, twice)  n1 = Concat<axis = 1>(p1, c)  d = ReduceMean<axes = [1]>(n1)  z = Add(y, d)
      logits = Tanh(z) }"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    arrays = {"table": weights[:36].reshape(9, 4), "bias": weights[36:]}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    found = onnx_nb.compare_decoding(model, model, [3], 2, state={"p0": "n0", "p1": "n1"})
    assert found.parts == ("embedding", "layer 0 mixer and mlp", "layer 1 mixer and mlp", "logits")
    places = {"x": 0, **dict.fromkeys(["a", "n0", "b", "y"], 1), **dict.fromkeys(["c", "n1", "d", "z"], 2), "logits": 3}
    assert found.part_of_tensors() == places


def test_two_that_agree_only_by_their_logits_have_no_layers() -> None:
    logits = np.random.default_rng(0).standard_normal((3, packages.VOCABULARY)).astype(np.float32)
    found = onnx_nb.compare_decoding(logits, packages.decoder(1), IDS)
    meta = unpacked(onnx_nb.DecodingPanel(found)._parts["columns"]).meta
    assert (meta["parts"], meta["drills"], meta["first"]) == ([], False, None)
