"""Graders of "Extract a submodel"."""

from __future__ import annotations

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
