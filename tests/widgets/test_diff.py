"""The widget that shows two graphs side by side: what it sends, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import traitlets

import onnx_nb
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.overlays import overlay
from tests import models
from tests.packed import unpacked
from tests.widgets.test_widgets import ask as ask_graph

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] z) '
ONE = onnx.parser.parse_model(HEAD + "{ y = Softmax<axis = 1>(x)  z = Neg(y) }")
OTHER = onnx.parser.parse_model(HEAD + "{ a = Softmax<axis = 0>(x)  b = Relu(a)  z = Neg(b) }")


def ask(pair: Any, verb: str, **args: Any) -> tuple[dict[str, Any], list[bytes]]:
    return ask_graph(pair, verb, **args)


def test_the_columns_say_what_corresponds_and_what_differs() -> None:
    pair = onnx_nb.DiffPanel(ONE, OTHER)
    sent = unpacked(pair._parts["differences"])
    assert sent.arrays["node_0"].tolist() == [0, 2]
    assert sent.arrays["node_1"].tolist() == [0, -1, 1]
    assert sent.arrays["node_state_0"].tolist() == [2, 0]
    assert sent.arrays["node_state_1"].tolist() == [2, 1, 0]
    assert sent.arrays["scope_only_1"].tolist() == [1]
    assert sent.arrays["scope_changed_1"].tolist() == [1]
    graphs = Graph.of(onnx_nb.load(ONE)), Graph.of(onnx_nb.load(OTHER))
    names = [graph.value_names for graph in graphs]
    pairs = {(names[0][v], names[1][w]) for v, w in enumerate(sent.arrays["value_0"].tolist()) if w >= 0}
    assert pairs == {("x", "x"), ("y", "a"), ("z", "z")}
    assert sent.meta["counts"] == {"changed": 1, "added": 1}
    assert [row[:8] for row in sent.meta["changes"]] == [
        ["changed", "attribute", "y", "Softmax", "axis", "1", "0", "neighbors"],
        ["added", "node", "b", "Relu", "", "", "", ""],
    ]
    assert unpacked(pair._parts["reference"]).meta["name"] == "g"
    assert pair.differences.added == ["Relu 'b'"]


def test_what_a_side_is_asked_is_answered_of_that_side() -> None:
    pair = onnx_nb.DiffPanel(ONE, OTHER)
    try:
        for part, axis in (("reference", "1"), ("candidate", "0")):
            reply, _ = ask(pair, "inspect", part=part, kind="node", id=0)
            assert ["axis", axis, "given"] in [list(row) for row in reply["value"]["attributes"]]
            rows, _ = ask(pair, "figures", part=part, kind="node", id=0)
            assert rows["value"]
            side = onnx_nb.load(ONE if part == "reference" else OTHER)
            about, (nodes, _) = ask(pair, "overlay", part=part, name="MACs")
            assert about["value"]["label"] == "MACs"
            assert np.array_equal(np.frombuffer(nodes), overlay(side, "MACs").nodes, equal_nan=True)
        reply, _ = ask(pair, "overlay", part="reference", name="seconds")
        assert "no numbers called 'seconds'" in reply["error"]["message"]
        reply, _ = ask(pair, "inspect", part="both", kind="node", id=0)
        assert "no part called 'both'" in reply["error"]["message"]
    finally:
        pair.close()


def test_large_graphs_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_nb.widgets._base.COLUMNS_IN_STATE", 1000)
    path = models.chain(340)
    pair = onnx_nb.DiffPanel(path, path)
    try:
        assert pair._parts == {}
        reply, buffers = ask(pair, "columns", part="candidate")
        assert "value" in reply
        assert unpacked(bytes(buffers[0])).meta["nodes"] == 340
        assert bytes(buffers[0]) == columns(path).to_bytes()
    finally:
        pair.close()


def test_a_changed_owner_of_bodies_shows_on_its_scope() -> None:
    proto = onnx.load(models.control_flow())
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    owner = next(node for node in made.graph.node if node.op_type == "If")
    owner.attribute.append(onnx.helper.make_attribute("note", "changed"))
    found = onnx_nb.diff(proto, made)
    side = found.side("candidate")
    tree = scopes(Graph.of(found.candidate))
    node = Graph.of(found.candidate).names.index(owner.name)
    assert found.changed == [f"If {owner.name!r}"]
    assert side.scope_changed[np.flatnonzero(tree.scope_node == node)[0]] == 1


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(TypeError, match=r"DiffPanel has no argument 'sinced'\. Did you mean 'synced'"):
        onnx_nb.DiffPanel(ONE, OTHER, sinced=True)
    with pytest.raises(traitlets.TraitError, match="height"):
        onnx_nb.DiffPanel(ONE, OTHER, height=3)


def test_differences_of_other_models_are_refused() -> None:
    found = onnx_nb.diff(ONE, OTHER)
    assert onnx_nb.DiffPanel(ONE, OTHER, found).differences is found
    with pytest.raises(onnx_nb.OnnxNbError, match="the differences given are not those of g"):
        onnx_nb.DiffPanel(OTHER, OTHER, found)


def test_models_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "out" / "model.onnx" for folder in ("a", "b")]
    for path, proto in zip(paths, (ONE, OTHER), strict=True):
        path.parent.mkdir(parents=True)
        onnx.save(proto, path)
    assert onnx_nb.DiffPanel(paths[0], paths[1])._names == ["a/out/model.onnx", "b/out/model.onnx"]
    assert onnx_nb.DiffPanel(paths[0], paths[0])._names == ["model.onnx"] * 2
    assert onnx_nb.DiffPanel(ONE, OTHER)._names == ["g", "g"]


def test_a_changed_constant_shows_on_what_reads_it() -> None:
    body = "{ c = Constant<value_floats = [1.0, 2.0, 3.0]>()  y = Add(x, c)  z = Neg(y) }"
    one, other = (onnx.parser.parse_model(HEAD + text) for text in (body, body.replace("3.0", "4.0")))
    found = onnx_nb.diff(one, other)
    assert [change.message for change in found.changes] == ["Constant 'c': value_floats 1.0, 2.0, 3.0 → 1.0, 2.0, 4.0"]
    side = found.side("reference")
    assert side.node_state.tolist() == [2, 2, 0]
    assert side.scope_changed.tolist() == [1]  # what is drawn
