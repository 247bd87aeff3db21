"""Graders of "Operators of your own"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from . import Lesson, expect
from .lesson_03 import input_shape, only_output, opened_model

check: Final = Lesson()


def _call(node: str = "my_lib.my_add(a, b)", name: str = "my_add", last: str = "y = Add(two_a, b)") -> str:
    """Return the expression of a model of one node with a function as its body."""
    text = (
        '<ir_version: 10, opset_import: ["": 20, "my_lib": 1]> '
        f"g (float[n, m] a, float[n, m] b) => (float[n, m] y) {{ y = {node} }} "
        f'<domain: "my_lib", opset_import: ["": 20]> {name} (a, b) => (y) '
        f"{{ two = Constant<value_float: float = 2.0>() two_a = Mul(a, two) two_b = Mul(b, two) {last} }}"
    )
    return f"onnx.parser.parse_model({text!r})"


@check.exercise(
    1,
    "by_hand",
    "by_hand",
    {
        "by_hand.functions[0]": "a model is expected",
        "models[1]": "one node",
        _call("Add(a, b)"): "one node",
        _call(name="your_add"): "no body",
        _call("my_lib.my_add(b, a)"): "doubles b",
        _call(last="y = Add(two_a, two_b)"): "something else",
    },
)
def _body(answer: Any) -> None:
    model = opened_model(answer, 2)
    proto = model.to_proto()
    nodes = [f"{node.domain or 'ai.onnx'}::{node.op_type}" for node in proto.graph.node]
    expect(nodes == ["my_lib::my_add"], f"Its graph should have one node, my_lib::my_add; it has {', '.join(nodes)}.")
    bodies = [f"{function.domain}::{function.name}" for function in proto.functions]
    expect("my_lib::my_add" in bodies, f"The node has no body: the functions of the model are {bodies}.")
    for seed in (1, 2):
        a, b = np.random.default_rng(seed).normal(size=(2, *input_shape(model, 2, 3)))
        value = only_output(model, a, b)
        expect(not np.allclose(value, a + 2 * b, atol=1e-5), "It doubles b, and `my_add` doubles a.")
        expect(np.allclose(value, 2 * a + b, atol=1e-5), "It runs, and computes something else than `my_add`.")
