"""Graders of "A simplifier in fifty lines"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()

_NOISE: Final[dict[str, dict[str, Any]]] = {
    "RandomNormal": {"shape": [4]},
    "RandomUniform": {"shape": [4]},
    "RandomNormalLike": {},
    "RandomUniformLike": {},
    "Bernoulli": {},
}


def _noisy(operator: str) -> Any:
    """Return a model that adds half of the noise of an operator to its input."""
    nodes = [
        helper.make_node(operator, ["half"] if not _NOISE[operator] else [], ["noise"], **_NOISE[operator]),
        helper.make_node("Mul", ["noise", "half"], ["less"]),
        helper.make_node("Add", ["x", "less"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    weights = [numpy_helper.from_array(np.full(4, 0.5, np.float32), "half")]
    graph = helper.make_graph(nodes, "noisy", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@check.exercise(
    1,
    "constant_nodes",
    "constant_nodes",
    {
        "allowed": "it should be the function",
        'lambda proto: fifty_lines(proto, {"x": [4]})': "a list of nodes",
        "lambda proto: constant_by_running(proto, False)": "The noise of `RandomNormal`",
        'lambda proto: [n for n in constant_by_running(proto, False) if "Random" not in n.op_type]': "from noise",
        """lambda proto: constant_by_running(
            changed(proto, node=[n for n in proto.graph.node if n.op_type != "RandomNormal"]), False)""": (
            "Another generator"
        ),
        "lambda proto: []": "are left of `JustReshape`",
        "lambda proto: [n for n in proto.graph.node if n.op_type in ALLOWED and n.op_type not in {'Add', 'Mul'} or "
        "n.op_type == 'Mul' and 'noise' not in n.input]": "depends on its input",
    },
)
def _constant_nodes(answer: Any) -> None:
    expect(callable(answer), f"This is a {type(answer).__name__}; it should be the function `constant_nodes`.")
    for operator in _NOISE:
        found = answer(made("with_shapes")(_noisy(operator), {"x": [4]}))
        is_list = isinstance(found, list | tuple) and all(isinstance(node, onnx.NodeProto) for node in found)
        expect(is_list, "The function should return a list of nodes, as before.")
        names = [node.op_type for node in found]
        first = f"The noise of `{operator}` counts as constant, though it is new in every run."
        other = (
            f"Another generator of noise, `{operator}`, counts as constant: think of operators that you do not know."
        )
        expect(operator not in names, first if operator == "RandomNormal" else other)
        expect("Mul" not in names, "What is computed from noise counts as constant, and is not.")
    model, x = made("model"), np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    fixed = made("with_shapes")(model.to_proto(), {"x": [2, 3, 4, 5]})
    values = made("computed")(fixed, answer(fixed))
    simple = made("eliminated")(made("replaced")(fixed, values))
    count = len(simple.graph.node)
    expect(count <= 1, f"{count} nodes are left of `JustReshape`: which of them are the same in every run?")
    is_same = count == 1 and np.array_equal(onnx_nb.run(simple, [x])["y"], x.reshape(2, 3, 20))
    expect(is_same, "The result of `JustReshape` depends on its input, so it is not constant.")


def _chain(*operators: str, other: str = "") -> Any:
    """Return a model of operators in a row, of whose values another one may be an output as well."""
    values = ["x", *(f"v{place}" for place in range(1, len(operators))), "y"]
    nodes = [
        helper.make_node(kind, [read], [written])
        for kind, read, written in zip(operators, values, values[1:], strict=False)
    ]
    x, *outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [6]) for name in ("x", "y", other) if name)
    graph = helper.make_graph(nodes, "chain", [x], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


_CHAINS: Final = (
    (_chain("Relu", "Relu", "Relu", "Neg"), 1, "of three in a row, one should stay"),
    (_chain("Relu", "Neg", "Relu", "Neg"), 2, "both change something"),
    (_chain("Neg", "Relu", "Relu"), 2, "the second makes the output `y`"),
    (_chain("Relu", "Relu", "Neg", other="v2"), 2, "the second makes an output as well"),
)
"""Models, how many `Relu` may be left of each, and why."""


@check.exercise(
    2,
    "fewer_relus",
    "fewer_relus",
    {
        "rewritten": "one should stay",
        "4": "should be a function",
        "lambda proto: [node.op_type for node in proto.graph.node]": "should return a model",
        """lambda proto: changed(proto, node=[n for n in proto.graph.node if n.op_type != "Relu"])""": "cannot be run",
        "lambda proto: fewer_relus(changed(proto, output=[*proto.graph.output][:1]))": "outputs of the model",
        ""
        """lambda proto: eliminated(changed(proto, node=[
            helper.make_node("Identity", n.input, n.output)
            if n.op_type == "Relu" and n.input[0] != "x" else n for n in proto.graph.node]))""": "something else",
        "lambda proto: proto.graph.node[1].CopyFrom(helper.make_node('Identity', proto.graph.node[1].input, "
        "proto.graph.node[1].output)) or proto": "stay as it is",
    },
)
def _fewer_relus(answer: Any) -> None:
    expect(callable(answer), f"This is a {type(answer).__name__}; it should be a function.")
    x = np.array([-2, -1, 0, 1, 2, 3], np.float32)
    for model, most, why in _CHAINS:
        given = onnx.ModelProto.FromString(model.SerializeToString())
        found = answer(given)
        expect(given == model, "The model of the caller should stay as it is: work on a copy.")
        expect(isinstance(found, onnx.ModelProto), "The function should return a model, as `rewritten` does.")
        row = " → ".join(f"`{node.op_type}`" for node in model.graph.node)
        try:
            values = onnx_nb.run(found, [x], optimize=False)
        except onnx_nb.OnnxNbError:
            raise NotYet(
                f"What it makes of {row} cannot be run: does each node still read a value that exists?"
            ) from None
        wanted = onnx_nb.run(model, [x], optimize=False)
        expect(values.keys() == wanted.keys(), f"The outputs of the model {row} have other names now.")
        is_same = all(np.array_equal(values[name], wanted[name]) for name in wanted)
        expect(is_same, f"What it makes of {row} computes something else.")
        count = sum(node.op_type == "Relu" for node in found.graph.node)
        expect(count <= most, f"{count} `Relu` are left of {row}: {why}.")
