"""Graders of "Split, mark, debug"."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Final

import numpy as np
import onnx

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


def _random(*shape: int) -> Any:
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


@check.exercise(
    1,
    "halves",
    "halves",
    {
        "halves[::-1]": "before anything has made it",
        "onnx_nb.partition(model, 3)": "two parts",
        'onnx_nb.partition(model, ["add"])': "of the weights",
        "[halves[0], halves[0]]": "do not compute",
        "halves[0]": "This has type Model",
    },
)
def _halves(answer: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; `onnx_nb.partition` returns a list of models."
    expect(isinstance(answer, list | tuple), sentence)
    expect(len(answer) == 2, f"The list has {len(answer)} models, and the exercise asks for two parts.")
    expect(all(isinstance(part, onnx_nb.Model | onnx.ModelProto) for part in answer), "Each part is a model.")
    parts = [onnx_nb.load(part) for part in answer]
    values = {"image": _random(1, 3, 20, 20)}
    (right,) = onnx_nb.run(made("model"), values, optimize=False).values()
    for part in parts:
        lacking = [port.name for port in part.inputs if port.name not in values]
        expect(
            not lacking,
            f"A part reads {', '.join(lacking)} before anything has made it: mind the order of the parts.",
        )
        values |= onnx_nb.run(part, {port.name: values[port.name] for port in part.inputs}, optimize=False)
    expect(
        "result" in values and np.array_equal(values["result"], right), "Both parts together do not compute `result`."
    )
    share = max(part.nbytes for part in parts) / sum(part.nbytes for part in parts)
    expect(share < 0.6, f"The larger part has {share:.0%} of the weights; another tensor divides them more evenly.")


def _culprits(exported: Any) -> set[str]:
    """Return the parts of a spoiled export whose weights are not those of the network."""
    return {
        name.split(".")[0]
        for name, values in made("net").state_dict().items()
        if not np.array_equal(exported.tensor(name), values.numpy())
    }


@check.exercise(
    2,
    "found",
    "found",
    {
        "{file: errors_of_parts(exported) for file, exported in exports.items()}": "each part has an error",
        "{file: parts[0] for file, parts in found.items()}": "not all",
        '{file: [*parts, "convs4"] for file, parts in found.items()}': "healthy",
        '{"first.onnx": found["first.onnx"]}': "three exports",
        "list(found.values())": "This has type list",
    },
)
def _exports(answer: Any) -> None:
    expect(
        isinstance(answer, Mapping),
        f"This has type {type(answer).__name__}; the answer is a dictionary from file to list of wrong parts.",
    )
    exports = made("exports")
    expect(set(answer) == set(exports), f"There are three exports, and each has an entry: {', '.join(exports)}.")
    for file, parts in answer.items():
        named, right = {parts} if isinstance(parts, str) else set(parts), _culprits(exports[file])
        expect(
            len(named) < 4,
            f"{file}: each part has an error, and most of them are rounding. Which are larger than 1e-5?",
        )
        healthy = ", ".join(sorted(map(str, named - right)))
        expect(not healthy, f"{file}: listed but healthy: {healthy}. Give each part what PyTorch computed.")
        expect(named == right, f"{file}: these are not all the parts whose error is more than rounding.")


def _depending(graph: Any, name: str) -> set[int]:
    """Return the positions of the nodes that depend on a tensor, by a search along its readers."""
    found: set[int] = set()
    todo = [name]
    while todo:
        reading = todo.pop()
        for index, node in enumerate(graph.node):
            if reading in node.input and index not in found:
                found.add(index)
                todo += node.output
    return found


@check.exercise(
    3,
    "walk_forward, count",
    "walk_forward, count",
    {
        "walk_forward, count + 1": "right values",
        "walk_forward, 1": "read their results",
        "walk_forward, behind": "is a number",
        "lambda graph, name: [at for at, node in enumerate(graph.node) if name in node.input], 5": "also those that",
        "lambda graph, name: [*walk_forward(graph, name), 0], 5": "do not depend",
        "lambda graph, name: [graph.node[at].name for at in walk_forward(graph, name)], 5": "positions",
        "behind, 5": "This has type list",
    },
)
def _forward(walk: Any, count: Any) -> None:
    expect(callable(walk), f"This has type {type(walk).__name__}; `walk_forward` is a function of a graph and a name.")
    graph = made("model").proto.graph
    for name in ("conv2d_5", "conv2d_2", "conv2d_3", "add", "image", "result"):
        answer, right = walk(graph, name), _depending(graph, name)
        expect(
            isinstance(answer, list | tuple | set | np.ndarray) and all(isinstance(at, Integral) for at in answer),
            "`walk_forward` should return the positions of nodes: a list of whole numbers.",
        )
        expect(set(answer) <= right, f"For {name!r} the function finds nodes that do not depend on this tensor.")
        expect(
            set(answer) == right,
            f"For {name!r} some nodes are missing: those that read the tensor, and also those that read their results.",
        )
        expect(len(answer) == len(right), f"For {name!r} the function returns a node more than once.")
    expect(isinstance(count, Integral), "The second part of the answer is a number of nodes.")
    right_count = len(_depending(graph, "conv2d_5"))
    if count == right_count + 1:
        raise NotYet("The convolution that writes `conv2d_5` is not one of them: it reads right values.")
    expect(
        count == right_count,
        "This is not the number of nodes that read wrong values: those that read `conv2d_5`, and all that read their "
        "results.",
    )
