"""What the inspector says of nodes and tensors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_nb import OnnxNbError, capture, load
from onnx_nb.analysis.formatting import duration_text, scaled_text
from onnx_nb.analysis.graph.operators import LONGEST
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.inspection import figures, inspect
from onnx_nb.analysis.view.overlays import overlay, run_costs
from onnx_nb.types import Graph
from tests import models


def model_of(node: onnx.NodeProto) -> onnx.ModelProto:
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in ("x", "y")]
    return onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", info[:1], info[1:]),
        opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mine", 1)],
    )


def test_set_attributes_and_omitted_defaults_are_distinguished() -> None:
    node = onnx.helper.make_node("LeakyRelu", ["x"], ["y"])
    assert inspect(model_of(node), "node", 0).attributes == (("alpha", "0.01", "default"),)
    node = onnx.helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    found = inspect(model_of(node), "node", 0)
    assert found.attributes == (("alpha", "0.5", "given"),)
    node = onnx.helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.01)
    assert inspect(model_of(node), "node", 0).attributes == (("alpha", "0.01", "given default"),)
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], axis=-1, other="-1")
    assert inspect(model_of(node), "node", 0).attributes == (
        ("axis", "-1", "given default"),
        ("other", "-1", "given"),
    )
    assert found.documentation.startswith("LeakyRelu takes input data")
    assert dict(found.rows)["since opset"] == "16"


def test_every_kind_of_attribute_has_a_text() -> None:
    tensor = onnx.numpy_helper.from_array(np.zeros((2, 3), np.float32), "t")
    given: dict[str, Any] = {
        "f": 0.25,
        "i": 3,
        "s": "text",
        "t": tensor,
        "fs": [1.5, 2.0],
        "is": [1, 2],
        "ss": ["a", "b"],
        "ts": [tensor],
        "g": onnx.helper.make_graph([], "body", [], []),
        "tp": onnx.helper.make_tensor_type_proto(1, [2]),
    }
    node = onnx.helper.make_node("Mine", ["x"], ["y"], domain="mine", **given)
    texts = {name: text for name, text, _ in inspect(model_of(node), "node", 0).attributes}
    assert texts["f"] == "0.25"
    assert (texts["i"], texts["s"], texts["t"]) == ("3", "text", "2×3 float32")
    assert (texts["fs"], texts["is"], texts["ss"]) == ("1.5, 2.0", "1, 2", "a, b")
    assert (texts["g"], texts["ts"], texts["tp"]) == ("a graph of 0 nodes", "tensors", "type proto")


def test_a_megabyte_of_text_is_shortened() -> None:
    node = onnx.helper.make_node("Mine", ["x"], ["y"], domain="mine", s="<script>" * 100_000, doc_string="d" * 10**6)
    found = inspect(model_of(node), "node", 0)
    assert len(json.dumps(found.to_json())) < 3 * LONGEST


def test_a_weight_names_the_location_of_its_bytes() -> None:
    path = models.light("densenet121")
    model = load(path)
    name = max(model.initializers.values(), key=lambda info: info.nbytes).name
    rows = dict(inspect(model, "tensor", Graph.of(model).value(name)).rows)
    assert int(rows["bytes"].replace(",", "")) == model.initializers[name].nbytes


def test_the_torch_line_is_that_of_the_module_not_of_torch_itself() -> None:
    for dynamo in (True, False):
        model = load(models.exported("bert", dynamo=dynamo))
        graph = Graph.of(model)
        found = [inspect(model, "node", node) for node in range(graph.main_count)]
        sources = {each.source.split(":")[0] for each in found if each.source}
        if dynamo:
            assert "modeling_bert.py" in sources
            assert "aten.embedding.default" in {dict(each.rows).get("torch op") for each in found}
        assert not any(source.startswith("_ops") for source in sources)


@pytest.mark.parametrize(("kind", "index"), [("node", 99), ("tensor", -1), ("constructor", 0)])
def test_a_wrong_number_is_a_clear_error(kind: str, index: int) -> None:
    with pytest.raises(OnnxNbError, match="the model has no"):
        inspect(models.one_node(), kind, index)


def test_figures_of_a_scope_are_those_of_its_nodes() -> None:
    model = load(models.exported("bert", dynamo=True))
    found, bound = run_costs(model)
    paths = found.scopes.scope_path
    scope = next(group for group, path in enumerate(paths) if path.endswith(("layer.0", "layer.0.0")))
    rows = dict(figures(model, "scope", scope))
    inside = found.scopes.node_scope == scope
    for group, path in enumerate(paths):
        if path.startswith(f"{paths[scope]}/"):
            inside |= found.scopes.node_scope == group
    assert rows["MACs"] == scaled_text(np.nansum(found.macs[inside]))
    assert bound.keys() == set() or "counted for" in rows


def test_figures_include_the_time_of_a_node() -> None:
    model = load(models.one_node())
    captured = capture(model)
    rows = dict(figures(model, "node", 0, overlay(model, captured)))
    assert rows["time"] == f"{duration_text(captured.nodes[0].seconds)}, 100.0% of the run"
    assert figures(model, "tensor", 0) == []
    with pytest.raises(OnnxNbError, match="no node number 9"):
        figures(model, "node", 9)


def test_figures_inside_subgraphs_and_calls_name_what_they_are_counted_in() -> None:
    model = load(models.control_flow())
    graph = Graph.opened(model)
    times = overlay(model, capture(model), label="seconds")
    counted = {
        name: dict(figures(model, "node", node, times))
        for node, name in enumerate(graph.names)
        if name in ("/Mul", "/choose/then/Add", "/loop/Add", "/loop/then/Mul", "/scan/Add")
    }
    assert "counted in" not in counted["/Mul"]
    assert counted["/Mul"]["time"].endswith("of the run")
    assert counted["/choose/then/Add"]["counted in"] == "then_branch of If '/choose/If'"
    assert counted["/choose/then/Add"]["time"] == "measured for then_branch of If '/choose/If' as a whole"
    assert counted["/loop/Add"]["counted in"] == "one round of body of Loop '/loop/Loop'"
    assert counted["/loop/then/Mul"]["counted in"] == "then_branch of If '/loop/If'"
    assert counted["/loop/then/Mul"]["time"] == "measured for body of Loop '/loop/Loop' as a whole"
    # what the number is: 2 × 3 elements, once
    assert counted["/loop/Add"]["FLOPs"] == "6"
    assert counted["/scan/Add"]["FLOPs"] == "3"

    called = load(models.functions())
    graph = Graph.opened(called)
    inside = graph.names.index("/block.0::project")
    assert dict(figures(called, "node", inside))["counted in"] == "the call Block '/block.0'"
    tree = scopes(graph)
    call = next(g for g in tree.children(0) if tree.scope_name[g].endswith("block.0"))
    assert "counted in" not in dict(figures(called, "scope", int(call)))


def test_the_torch_module_of_a_node_is_the_innermost_around_its_operation() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'encoder', 'encoder.layer.0', 'relu']")
    assert dict(inspect(model_of(node), "node", 0).rows)["torch module"] == "encoder.layer.0"
    node.metadata_props[0].value = "['', 'relu']"
    assert "torch module" not in dict(inspect(model_of(node), "node", 0).rows)
