"""Random models for hypothesis: branches, several outputs, omitted optional inputs, weights, subgraphs, functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_nb.analysis.run import session

if TYPE_CHECKING:
    import onnx_nb


KINDS = ("Neg", "Add", "Mul", "Sum", "Clip", "TopK", "Constant", "weight", "If", "Loop", "f")


@st.composite
def dags(draw: st.DrawFn) -> onnx.ModelProto:
    """Draw a model with two inputs of shape (2,) and a flag; every other tensor is float32."""
    values, weights = ["x0", "x1"], list[onnx.TensorProto]()
    nodes: list[onnx.NodeProto] = []

    def weight(values_of: list[float]) -> str:
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(np.asarray(values_of, np.float32), name))
        return name

    def pick(limit: int = 8) -> str:
        return draw(st.sampled_from(values[-limit:]))

    for number in range(draw(st.integers(1, 16))):
        made = f"v{number}"
        kind = draw(
            st.sampled_from(["Neg", "Add", "Mul", "Sum", "Clip", "TopK", "Constant", "weight", "If", "Loop", "f"])
        )
        outputs = [made]
        attributes: dict[str, Any] = {}
        domain = ""
        if kind == "Neg":
            reads = [pick()]
        elif kind in ("Add", "Mul"):
            reads = [pick(), pick(20)]
        elif kind == "Sum":
            reads = [pick() for _ in range(draw(st.integers(1, 3)))]
        elif kind == "Clip":  # the lower bound is left out
            reads = [pick(), "", weight_scalar(weights, 3.0)]
        elif kind == "TopK":  # two results; the second is cast by the next node
            weights.append(numpy_helper.from_array(np.array([2], np.int64), f"w{len(weights)}"))
            reads, outputs = [pick(), weights[-1].name], [made, f"{made}_index"]
        elif kind == "Constant":
            reads, attributes = [], {"value": numpy_helper.from_array(np.array([number, -1], np.float32), "c")}
        elif kind == "weight":
            kind, reads = "Add", [pick(), weight([number, 1])]
        elif kind == "f":
            reads, domain, kind = [pick(), pick()], "local", "Twice"
        elif kind == "If":  # both branches read values of the outer graph
            reads, outer, other = ["flag"], pick(20), pick(20)
            attributes = {
                "then_branch": _body(helper.make_node("Neg", [outer], [f"{made}_t"]), f"{made}_t"),
                "else_branch": _body(helper.make_node("Add", [other, weight([1, 2])], [f"{made}_e"]), f"{made}_e"),
            }
        else:
            kind, reads, outer = "Loop", [trips(weights), "", pick()], pick(20)
            attributes = {"body": _loop_body(made, outer)}
        nodes.append(helper.make_node(kind, reads, outputs, f"n{number}", domain=domain, **attributes))
        values.append(made)
        if kind == "TopK":
            nodes.append(helper.make_node("Cast", [f"{made}_index"], [f"{made}_cast"], f"n{number}c", to=1))
            values.append(f"{made}_cast")
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in values}
    declared = draw(st.booleans())
    results = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    graph = helper.make_graph(
        nodes,
        "dag",
        [infos["x0"], infos["x1"], helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [infos[name] for name in results],
        weights,
        value_info=[infos[name] for name in values[2:] if name not in results] if declared else [],
    )
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    twice = helper.make_function(
        "local", "Twice", ["a", "b"], ["c"], [helper.make_node("Sub", ["a", "b"], ["c"])], opset[:1]
    )
    return helper.make_model(graph, ir_version=8, opset_imports=opset, functions=[twice])


def weight_scalar(weights: list[onnx.TensorProto], value: float) -> str:
    weights.append(numpy_helper.from_array(np.array(value, np.float32), f"w{len(weights)}"))
    return weights[-1].name


def trips(weights: list[onnx.TensorProto]) -> str:
    weights.append(numpy_helper.from_array(np.array(2, np.int64), f"w{len(weights)}"))
    return weights[-1].name


def _body(node: onnx.NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph([node], "body", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, [2])])


def _loop_body(made: str, outer: str) -> onnx.GraphProto:
    names = [f"{made}_{port}" for port in ("step", "on", "carried", "on_out", "out")]
    step, on, carried, on_out, out = names
    nodes = [helper.make_node("Identity", [on], [on_out]), helper.make_node("Add", [carried, outer], [out])]
    info = helper.make_tensor_value_info
    inputs = [info(step, TensorProto.INT64, []), info(on, TensorProto.BOOL, []), info(carried, TensorProto.FLOAT, [2])]
    return helper.make_graph(
        nodes, "loop", inputs, [info(on_out, TensorProto.BOOL, []), info(out, TensorProto.FLOAT, [2])]
    )


FEEDS: dict[str, Any] = {
    "x0": np.array([0.5, -1.25], np.float32),
    "x1": np.array([2.0, 3.5], np.float32),
    "flag": np.array(True),
}


def run(model: onnx_nb.Model, feeds: dict[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
    """Run a model without optimization, on one thread, with those feeds that are its inputs."""
    made = session.create(model, optimize=False, outputs=outputs, threads=1)
    wanted = {entry.name for entry in made.get_inputs()}
    return session.run_session(made, {name: value for name, value in feeds.items() if name in wanted})


def run_in_sequence(parts: Iterable[onnx_nb.Model], feeds: dict[str, Any]) -> dict[str, Any]:
    """Run parts in sequence, each on the model's inputs and the outputs of the parts before it."""
    values = dict(feeds)
    for part in parts:
        values |= run(part, values)
    return values
