"""The summary's numbers, counted again by other means."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import onnx
import onnx.parser
import pandas as pd
import pytest

import onnx_nb
from tests import models
from tests.widgets.test_widgets import ask


@pytest.mark.parametrize("name", ["squeezenet", "densenet121"])
def test_counts_are_those_of_the_proto(name: str) -> None:
    path = models.light(name)
    proto = onnx.load(path)
    summary = onnx_nb.summarize(path)
    assert {row.op: row.count for row in summary.op_counts} == Counter(node.op_type for node in proto.graph.node)
    assert summary.parameters == sum(math.prod(t.dims) for t in proto.graph.initializer)
    weights = {t.name for t in proto.graph.initializer}
    assert [port.name for port in summary.inputs] == [i.name for i in proto.graph.input if i.name not in weights]
    assert [port.name for port in summary.outputs] == [o.name for o in proto.graph.output]
    assert sum(row.parameters for row in summary.by_dtype) == summary.parameters
    assert sum(row.nbytes for row in summary.by_dtype) == summary.nbytes
    sizes = [row.nbytes for row in summary.largest]
    assert sizes == sorted(sizes, reverse=True)


def test_bodies_and_functions_are_counted() -> None:
    summary = onnx_nb.summarize(models.control_flow())
    assert summary.nodes > len(onnx.load(models.control_flow()).graph.node)
    assert onnx_nb.summarize(models.functions()).functions


def test_it_is_plain_json_and_a_frame() -> None:
    summary = onnx_nb.summarize(models.light("squeezenet"))
    data = json.loads(json.dumps(summary.to_json()))
    assert data["op_counts"][0] == list(vars(summary.op_counts[0]).values())
    frame = summary.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert int(frame["count"].sum()) == summary.nodes


def test_broken_shapes_have_no_elements_and_absurd_ones_at_most_two_to_the_63() -> None:
    weights = [
        onnx.TensorProto(name="negative", data_type=onnx.TensorProto.FLOAT, dims=[-3, 5]),
        onnx.TensorProto(name="twice", data_type=onnx.TensorProto.FLOAT, dims=[-3, -5]),
        onnx.TensorProto(name="huge", data_type=onnx.TensorProto.INT8, dims=[2**62, 2**62]),
        onnx.helper.make_tensor("sound", onnx.TensorProto.FLOAT, [2], [1, 2]),
    ]
    summary = onnx_nb.summarize(onnx.helper.make_model(onnx.helper.make_graph([], "broken", [], [], weights)))
    assert {row.dtype: row.parameters for row in summary.by_dtype} == {"float32": 2, "int8": 2**63}
    assert (summary.parameters, summary.nbytes) == (2**63 + 2, 8)
    json.dumps(summary.to_json())


def test_texts_that_are_not_utf8_are_readable() -> None:
    proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []), producer_name="Qp", doc_string="Qd")
    onnx.helper.set_model_props(proto, {"Qk": "Qv"})
    summary = onnx_nb.summarize(proto.SerializeToString().replace(b"Q", b"\xff"))
    assert (summary.producer, summary.doc, summary.metadata) == ("\\xffp", "\\xffd", (("\\xffk", "\\xffv"),))


def test_an_empty_model_has_a_summary() -> None:
    summary = onnx_nb.summarize(models.empty())
    assert (summary.nodes, summary.parameters, summary.op_counts) == (0, 0, ())


def test_it_says_what_a_run_costs() -> None:
    path = models.exported("resnet50", dynamo=True)
    summary = onnx_nb.summarize(path, shapes={"batch": 1})
    costs = onnx_nb.costs(path, {"batch": 1})
    assert summary.cost == costs.total
    assert summary.macs == costs.total.macs == 4_087_140_352  # torch.utils.flop_counter on one picture, halved
    assert summary.flops == costs.total.flops
    assert summary.activation_bytes == costs.total.activation_bytes
    stages = [row for row in summary.scopes if row.cls == "ResNetStage"]
    assert [row.macs for row in stages] == [costs.scope(row.scope).macs for row in stages]
    assert len(stages) == 4
    assert json.loads(json.dumps(summary.to_json()))["scopes"][0] == list(vars(summary.scopes[0]).values())


def test_costs_that_depend_on_sizes_are_none() -> None:
    summary = onnx_nb.summarize(models.exported("resnet50", dynamo=True))
    assert (summary.macs, summary.flops, summary.activation_bytes) == (None, None, None)
    assert summary.unbound == ("batch",)
    assert summary.cost is not None
    assert summary.cost.unknown_macs == 54  # 53 convolutions and the classifier
    data = json.loads(json.dumps(summary.to_json()))
    assert data["unbound"] == ["batch"]
    assert data["cost"]["unknown_macs"] == 54


def test_a_widget_counts_costs_of_large_graphs_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_nb.widgets.summary.PROMPT", 0)
    model = onnx_nb.load(models.light("squeezenet"))
    widget: Any = onnx_nb.ModelSummary(model, expanded=False)
    assert widget.summary.macs is None
    assert widget._summary.get("cost") is None
    widget.expanded = True
    ask(widget, "costs", shapes={})  # as the browser does for tables that are opened
    assert widget.summary == onnx_nb.summarize(model)
    assert widget._summary["cost"]["known_macs"] == widget.summary.macs
    assert onnx_nb.ModelSummary(model).summary.macs == widget.summary.macs


def test_a_widget_takes_shapes() -> None:
    widget = onnx_nb.ModelSummary(models.functions(), shapes={"rows": 5}, expanded=False)
    assert widget.summary.macs == 90


def test_a_wrong_declared_type_is_named() -> None:
    """onnxruntime refuses such a model (as onnxconverter's float16 writes it); without the declaration it runs."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) <float16[2] a> { a = Relu(x)  y = Neg(a) }""")
    ((kind, message),) = onnx_nb.summarize(model).faults
    assert (kind, message.partition(", which")[0]) == (
        "inference",
        "Relu makes 'a' as float32, and the model declares it as float16",
    )
    with pytest.raises(onnx_nb.OnnxNbError, match="drop it from graph"):
        onnx_nb.run(model)
    del model.graph.value_info[:]
    assert onnx_nb.summarize(model).faults == ()
    assert onnx_nb.run(model)["y"].shape == (2,)
