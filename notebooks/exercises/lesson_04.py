"""Graders of "Extract, split, debug"."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Final

import numpy as np
import onnx
import torch

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


def _random(*shape: int) -> Any:
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def _convolved(module: Any, values: Any) -> Any:
    with torch.no_grad():
        return module(torch.from_numpy(values)).numpy()


@check.exercise(
    1,
    "second",
    "second",
    {
        'onnx_nb.extract(model, ["conv2d_2"], ["conv2d_3"])': "the first convolution of `convs2`",
        'onnx_nb.extract(model, around="convs2")': "2 nodes",
        'onnx_nb.extract(model, ["conv2d_5"], ["conv2d_6"])': "something else",
        'onnx_nb.extract(model, ["image"], ["conv2d"])': "takes 8 channels",
        "net.convs2[1]": "This has type Conv2d",
    },
)
def _second(answer: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; `onnx_nb.extract` returns a model."
    expect(isinstance(answer, onnx_nb.Model | onnx.ModelProto), sentence)
    part = onnx_nb.load(answer)
    count = len(part.proto.graph.node)
    expect(count == 1, f"It has {count} nodes, and one convolution is one node.")
    expect(len(part.inputs) == 1, f"It has {len(part.inputs)} inputs: the weights belong inside the part.")
    values = _random(1, 8, 20, 20)
    expect(
        (part.inputs[0].shape or values.shape)[1] == 8,
        "The second convolution of `convs2` takes 8 channels, and this one does not.",
    )
    (computed,) = onnx_nb.run(part, [values]).values()
    first, second = (_convolved(module, values) for module in made("net").convs2)
    if np.allclose(computed, first, atol=1e-5):
        raise NotYet("This is the first convolution of `convs2`: the second one reads its result.")
    expect(np.allclose(computed, second, atol=1e-5), "It computes something else than `net.convs2[1]`.")


@check.exercise(
    2,
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


@check.exercise(
    3,
    "inputs, outputs",
    "inputs, outputs",
    {
        '["conv2d_2"], ["add"]': "two inputs",
        '["conv2d_2", "conv2d_1"], ["add"]': "no node of it reads",
        '["conv2d_4", "conv2d_7"], ["result"]': "lacks an input",
        '["conv2d_4", "conv2d_2"], ["add"]': "takes 3 nodes",
        '["conv2d_2", "conv2d_4"], ["add", "result"]': "one output",
        '["convs2", "convs3"], ["add"]': "cannot be planned",
        "plan, plan": "two lists of names",
    },
)
def _two_inputs(inputs: Any, outputs: Any) -> None:
    outputs = [outputs] if isinstance(outputs, str) else outputs
    expect(
        all(
            isinstance(side, list | tuple | set) and all(isinstance(name, str) for name in side)
            for side in (inputs, outputs)
        ),
        "The answer is two lists of names of tensors: the inputs of the cut, and its output.",
    )
    expect(len(inputs) == 2, f"The cut should have two inputs, and this one has {len(inputs)}.")
    expect(len(outputs) == 1, f"The cut should have one output, and this one has {len(outputs)}.")
    try:
        plan = onnx_nb.plan_extraction(made("model"), inputs, outputs)
    except onnx_nb.ExtractionError as error:
        raise NotYet(f"This cut cannot be planned: {error}") from None
    expect(not plan.missing, "The cut lacks an input: its walk reaches the image along another path.")
    expect(not plan.redundant, f"The cut does not use {', '.join(plan.redundant)}: no node of it reads this input.")
    expect(len(plan.nodes) == 5, f"The cut takes {len(plan.nodes)} nodes, and the exercise asks for five.")


def _culprits(exported: Any) -> set[str]:
    """Return the parts of a spoiled export whose weights are not those of the network."""
    return {
        name.split(".")[0]
        for name, values in made("net").state_dict().items()
        if not np.array_equal(exported.tensor(name), values.numpy())
    }


@check.exercise(
    4,
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
    5,
    "walk_forward, count",
    "walk_forward, len(between)",
    {
        "walk_forward, len(far.nodes)": "came along",
        "walk_forward, len(between) + 1": "made from",
        "walk_forward, between": "is a number",
        "lambda graph, name: [at for at, node in enumerate(graph.node) if name in node.input], 2": "also those that",
        "lambda graph, name: walk_back(graph, [], [name])[0], 2": "do not depend",
        "lambda graph, name: [graph.node[at].name for at in walk_forward(graph, name)], 2": "positions",
        "between, 2": "This has type set",
    },
)
def _forward(walk: Any, count: Any) -> None:
    expect(callable(walk), f"This has type {type(walk).__name__}; `walk_forward` is a function of a graph and a name.")
    graph = made("model").proto.graph
    for name in ("conv2d_7", "conv2d_2", "conv2d_3", "add", "image", "result"):
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
    needed = onnx_nb.plan_extraction(made("model"), ["image"], ["result"]).nodes.tolist()
    right_count = len(_depending(graph, "conv2d_7").intersection(needed))
    if count == len(made("far").nodes):
        raise NotYet("This is the number of nodes of the cut with `image`; most of them came along through `add`.")
    expect(
        count == right_count,
        "This is not the number of nodes between them: they depend on `conv2d_7`, and `result` is made from them.",
    )
