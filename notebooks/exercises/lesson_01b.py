"""Graders of "Weights and versions"."""

from __future__ import annotations

import itertools
import random
from typing import Any, Final

import numpy as np
import onnx

from . import Lesson, expect, made
from .lesson_01 import only_output, signed_feeds, valid_proto

check: Final = Lesson()

_LINEAR = """onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> linear '
'(float[2,2] a, float[2,2] x, float[2,2] b) => (float[2,2] y) { %s }')"""


@check.exercise(
    1,
    "edited",
    "edited",
    {
        'onnx.load(folder / "linear.onnx")': "still a·x + b",
        _LINEAR % "c = Mul(a, x)  r = Relu(c)  y = Add(c, b)": "still a·x + b",
        _LINEAR % "c = Mul(a, x)  s = Add(c, b)  y = Relu(s)": "after `Add`",
        _LINEAR % "r = Relu(x)  c = Mul(a, r)  y = Add(c, b)": "before `Mul`",
        _LINEAR % "c = Mul(a, x)  y = Add(r, b)  r = Relu(c)": "mind the order",
        _LINEAR % "c = Mul(a, x)  y = Add(r, b)": "which no node makes",
        "edited.graph.node[0]": "This has type NodeProto",
    },
)
def _edited(answer: Any) -> None:
    proto, feeds = valid_proto(answer), signed_feeds("axb", 2, 2, seed=4)
    computed, (a, x, b) = only_output(proto, feeds), feeds.values()
    others = {
        "The result is still a·x + b: does `Add` read what `Relu` makes?": a * x + b,
        "`Relu` comes after `Add` here, and belongs between the two.": np.maximum(a * x + b, 0),
        "`Relu` comes before `Mul` here, and belongs between the two.": a * np.maximum(x, 0) + b,
        "`Relu` reads `a` here, before `Mul`, and belongs between the two.": np.maximum(a, 0) * x + b,
        "`Relu` reads `b` here; it belongs between `Mul` and `Add`.": a * x + np.maximum(b, 0),
    }
    for sentence, values in others.items():
        expect(not np.allclose(computed, values, atol=1e-5), sentence)
    right = np.maximum(a * x, 0) + b
    expect(np.allclose(computed, right, atol=1e-5), "It is a valid model, but its result is not relu(a·x) + b.")


def _order(sort: Any, nodes: list[onnx.NodeProto], case: str) -> None:
    """Grade the order in which a function returns nodes."""
    result = sort(list(nodes))
    expect(result is not None, "The function returns nothing: return the nodes in their order.")
    order = list(result)
    expect(
        all(isinstance(node, onnx.NodeProto) for node in order),
        "The function should return the nodes themselves, not their names or positions.",
    )
    expect(len(order) >= len(nodes), f"Only {len(order)} of the {len(nodes)} nodes of {case} come back.")
    expect(
        sorted(node.SerializeToString() for node in order) == sorted(node.SerializeToString() for node in nodes),
        f"Each node of {case} should come back exactly once.",
    )
    made_by = {name: node.op_type for node in nodes for name in node.output}
    ready: set[str] = set()
    for node in order:
        for name in node.input:
            late = name in made_by and name not in ready
            expect(not late, f"In {case}, {node.op_type} comes before {made_by.get(name)}, whose result it reads.")
        ready.update(node.output)


@check.exercise(
    2,
    "topological",
    "topological",
    {
        "lambda nodes: nodes": "comes before",
        "lambda nodes: nodes[::-1]": "comes before",
        "lambda nodes: sorted(nodes, key=lambda node: node.op_type, reverse=True)": "comes before",
        "lambda nodes: topological(nodes)[:-1]": "come back",
        "lambda nodes: topological(nodes) + nodes[:1]": "exactly once",
        "lambda nodes: [node.op_type for node in topological(nodes)]": "the nodes themselves",
        "lambda nodes: nodes.sort(key=lambda node: node.op_type)": "returns nothing",
        "order": "is a function",
    },
)
def _topological(answer: Any) -> None:
    expect(callable(answer), f"This has type {type(answer).__name__}; `topological` is a function of a list of nodes.")
    steps = [("Mul", "ax", "c"), ("Mul", "cc", "d"), ("Add", "cb", "e"), ("Add", "de", "f"), ("Relu", "f", "y")]
    nodes = [onnx.helper.make_node(op, list(reads), [makes]) for op, reads, makes in steps]
    for shuffled in itertools.permutations(nodes):
        _order(answer, list(shuffled), "a small graph")
    _order(answer, [], "an empty graph")
    nodes = made("densenet").to_proto().graph.node
    _order(answer, random.Random(1).sample(list(nodes), len(nodes)), "DenseNet")  # noqa: S311 (no secret)
