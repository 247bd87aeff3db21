"""Marks against torch: a marked model gives what it gave, and can be cut where it is marked."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import onnx_nb
from onnx_nb import ExtractionError, extract, load, partition, plan_extraction
from onnx_nb.types import Graph

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

MARKED = """<ir_version: 8, opset_import: ["": 17, "onnx_nb": 1]>
marked (float[N,2] x) => (float[N,2] z) <float[2] w = {3, 5}> {
    [first] a = Mul(x, w)
    [here] b = onnx_nb.Mark <name = "half"> (a)
    [second] c = Add(b, x)
    [there] d = onnx_nb.Mark <name = "late"> (c)
    [third] z = Neg(d)
}"""


def marked() -> onnx_nb.Model:
    return load(onnx.parser.parse_model(MARKED))


def run_in_sequence(parts: list[onnx_nb.Model], feeds: dict[str, Any]) -> dict[str, Any]:
    values = dict(feeds)
    for part in parts:
        values |= onnx_nb.run(part, {port.name: values[port.name] for port in part.proto.graph.input})
    return values


def test_parts_divided_at_marks_contain_no_marks() -> None:
    before = marked().proto.SerializeToString(deterministic=True)
    model = marked()
    parts = partition(model, "marks")
    assert [[node.op_type for node in part.proto.graph.node] for part in parts] == [["Mul"], ["Add"], ["Neg"]]
    assert [[port.name for port in part.proto.graph.input] for part in parts] == [["x"], ["a", "x"], ["c"]]
    for part in parts:
        onnx.checker.check_model(part.to_proto(), full_check=True)
    x = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(run_in_sequence(parts, {"x": x})["z"], -(x * [3, 5] + x))
    assert model.proto.SerializeToString(deterministic=True) == before


def test_a_mark_is_found_by_its_name() -> None:
    plan = plan_extraction(marked(), ["half", "x"], ["late"])
    # the marks themselves stay outside: what is read is behind the one, what is given is before the other
    assert (plan.inputs, plan.outputs) == (("b", "x"), ("c",))
    sub = extract(marked(), ["half", "x"], ["late"])
    x = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(onnx_nb.run(sub, {"b": x, "x": x})["c"], 2 * x)
    assert len(partition(marked(), ["half"])) == 2


def test_a_mark_at_the_input_and_the_output_keeps_both_names() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "onnx_nb": 1]>
    g (float[2] x) => (float[2] z, float[2] y) {
        m = onnx_nb.Mark <name = "in"> (x)
        z = onnx_nb.Mark <name = "through"> (m)
        a = Neg(m)
        b = onnx_nb.Mark <name = "out"> (a)
        y = onnx_nb.Mark <name = "out again"> (b)
    }"""
    parts = partition(onnx.parser.parse_model(text), ["out"])
    x = np.array([1, 2], np.float32)
    found = run_in_sequence(parts, {"x": x})
    np.testing.assert_array_equal(found["z"], x)
    np.testing.assert_array_equal(found["y"], -x)


def test_marks_of_one_name_divide_a_sequence_and_parallel_branches() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "onnx_nb": 1]>
    g (float[2] x, float[2] y) => (float[2] z) {
        start = onnx_nb.Mark <name = "step"> (x)
        a = Neg(start)  m = onnx_nb.Mark <name = "step"> (a)
        b = Abs(y)      n = onnx_nb.Mark <name = "step"> (b)
        c = Add(m, n)   o = onnx_nb.Mark <name = "step"> (c)
        z = Exp(o)
    }"""
    parts = partition(onnx.parser.parse_model(text), "marks")
    assert [[node.op_type for node in part.proto.graph.node] for part in parts] == [["Neg", "Abs"], ["Add"], ["Exp"]]


def test_a_marked_tensor_may_be_an_outer_scope_value() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "onnx_nb": 1]>
    g (bool c, float[2] x) => (float[2] z) {
        a = Neg(x)
        b = onnx_nb.Mark <name = "half"> (a)
        z = If(c) <then_branch = t () => (float[2] r) { r = Add(b, x) },
                   else_branch = e () => (float[2] b) { b = Abs(x) }>
    }"""
    parts = partition(onnx.parser.parse_model(text), "marks")
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(run_in_sequence(parts, {"x": x, "c": np.array(True)})["z"], x - x)
    np.testing.assert_array_equal(run_in_sequence(parts, {"x": x, "c": np.array(False)})["z"], np.abs(x))


def test_a_model_without_marks_is_an_error() -> None:
    with pytest.raises(ExtractionError, match="has no marks"):
        partition(
            onnx.parser.parse_model(
                MARKED.replace('onnx_nb.Mark <name = "half">', "Neg").replace('onnx_nb.Mark <name = "late">', "Neg")
            ),
            "marks",
        )


def test_a_marked_model_runs_as_it_is() -> None:
    x = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(onnx_nb.run(marked(), {"x": x})["z"], -(x * [3, 5] + x))


def test_types_are_inferred_through_a_mark() -> None:
    sub = extract(marked(), ["b", "x"], ["z"])
    assert [str(Graph.of(sub).type_of(int(v))) for v in Graph.of(sub).inputs] == ["N×2 float32"] * 2


@needs_torch
@pytest.mark.parametrize("dynamo", [False, True])
def test_both_exporters_write_marks(dynamo: bool, tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = onnx_nb.mark(torch.relu(self.a(x)), "hidden")
            return torch.tanh(self.b(hidden))

    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 3)
    assert onnx_nb.mark(x, "anything") is x
    options: dict[str, Any] = {"external_data": False} if dynamo else {"custom_opsets": {"onnx_nb": 1}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), tmp_path / "m.onnx", dynamo=dynamo, opset_version=18, **options)
    model = load(tmp_path / "m.onnx")
    nodes = [node for node in model.proto.graph.node if node.domain == "onnx_nb"]
    assert [(node.op_type, node.attribute[0].name, node.attribute[0].s) for node in nodes] == [
        ("Mark", "name", b"hidden")
    ]
    assert {o.domain: o.version for o in model.proto.opset_import}["onnx_nb"] == 1
    parts = partition(model, "marks")
    assert len(parts) == 2
    name = parts[0].proto.graph.input[0].name
    found = run_in_sequence(parts, {name: x.numpy()})
    with torch.no_grad():
        want = net(x).numpy(), torch.relu(net.a(x)).numpy()
    outputs = parts[1].proto.graph.output[0].name, parts[0].proto.graph.output[0].name
    for output, expected in zip(outputs, want, strict=True):
        np.testing.assert_allclose(found[output], expected, rtol=1e-5, atol=1e-6)


@needs_torch
def test_a_mark_does_not_change_a_program_of_torch_export() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(onnx_nb.mark(x * 2, "twice"))

    program = torch.export.export(Net(), (torch.ones(2),))
    assert program.module()(torch.ones(2)).tolist() == [2, 2]


@needs_torch
def test_gradients_pass_and_a_wrong_name_is_refused() -> None:
    import torch

    x = torch.ones(2, requires_grad=True)
    onnx_nb.mark(x * 3, "three").sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(TypeError, match="must be a string, not int"):
        onnx_nb.mark(x, 1)  # type: ignore[arg-type]
