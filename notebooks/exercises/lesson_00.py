"""Graders of "First light"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import onnx_nb

from . import Lesson, NotYet, expect, made

check: Final = Lesson()


def _part_of(answer: Any, nodes: int, start: str, end: str) -> None:
    """Grade a part of the model: it takes as many nodes, and computes what the model does."""
    expect(isinstance(answer, onnx_nb.Model), f"This is a {type(answer).__name__}; `onnx_nb.extract` returns a model.")
    inputs, outputs = ([value.name for value in side] for side in (answer.inputs, answer.outputs))
    expect(outputs == [end], f"It ends at {', '.join(outputs)}. Where does the part of this exercise end?")
    expect(len(inputs) == 1, f"It has {len(inputs)} inputs, and one is enough: start where all paths are one.")
    count = len(answer.proto.graph.node)
    expect(count <= nodes, f"It has {count} nodes, some of them from before the part: start later.")
    expect(count >= nodes, f"It has {count} nodes, and the part has more: start earlier.")
    image = np.random.default_rng(1).normal(size=(1, 3, 32, 32)).astype(np.float32)
    whole = onnx_nb.run(made("model"), {"image": image}, outputs=[start, end])
    values = onnx_nb.run(answer, {inputs[0]: whole[start]})[end]
    expect(np.allclose(values, whole[end], atol=1e-5), "It computes something else than the model does there.")


@check.exercise(
    1,
    "head",
    "head",
    {
        'onnx_nb.extract(model, ["/blocks.2/Add_output_0"], ["scores"])': "start later",
        'onnx_nb.extract(model, ["/head/Flatten_output_0"], ["scores"])': "start earlier",
        "operations": "This is a list",
    },
)
def _head(answer: Any) -> None:
    _part_of(answer, 3, "/blocks.3/Add_output_0", "scores")


@check.exercise(
    2,
    "both",
    "both",
    {
        'onnx_nb.extract(model, ["/blocks.1/Add_output_0"], ["/blocks.2/Add_output_0"])': "start earlier",
        'onnx_nb.extract(model, ["/blocks.0/Add_output_0"], ["/blocks.1/Add_output_0"])': "Where does the part",
        'onnx_nb.extract(model, ["/blocks.1/Relu_output_0", "/blocks.0/Add_output_0"], ["/blocks.2/Add_output_0"])': (
            "one is enough"
        ),
    },
)
def _blocks(answer: Any) -> None:
    _part_of(answer, 8, "/blocks.0/Add_output_0", "/blocks.2/Add_output_0")


@check.exercise(
    3,
    "images, scores",
    "images, scores",
    {
        "images[:1], scores[:1]": "five images",
        "images[2:3].repeat(5, 0), scores": "The scores are not those",
        "images, single": "a row of ten scores for each image",
    },
)
def _batch(pictures: Any, rows: Any) -> None:
    pictures, rows = np.asarray(pictures), np.asarray(rows)
    expect(pictures.shape == (5, 3, 32, 32), f"The images have shape {pictures.shape}; five images are [5, 3, 32, 32].")
    expect(rows.shape == (5, 10), f"The scores have shape {rows.shape}; there is a row of ten scores for each image.")
    alone = [onnx_nb.run(made("model"), {"image": pictures[n : n + 1]})["scores"][0] for n in range(5)]
    expect(np.allclose(rows, alone, atol=1e-5), "The scores are not those that the images have alone.")


@check.exercise(
    4,
    "convolutions, generated",
    'counts["Conv"], counts["ConstantOfShape"]',
    {
        'counts["ConstantOfShape"], counts["Conv"]': "the other way round",
        'counts["Conv"] - 1, counts["ConstantOfShape"]': "Count the convolutions",
        'counts["Conv"], "ConstantOfShape"': "two numbers",
    },
)
def _operations(convolutions: Any, generated: Any) -> None:
    expect(all(isinstance(number, int) for number in (convolutions, generated)), "The answer is two numbers.")
    nodes = [node.op_type for node in made("densenet").proto.graph.node]
    right = nodes.count("Conv"), nodes.count("ConstantOfShape")
    if (generated, convolutions) == right:
        raise NotYet("These are the right numbers the other way round.")
    expect(convolutions == right[0], "Count the convolutions again: `op_counts` has a row for each operator.")
    expect(generated == right[1], "Count the nodes that generate weights again: look for `ConstantOfShape`.")


@check.exercise(
    5,
    "mine, part",
    "mine, part",
    {
        "densenet, part": "a model of this lesson",
        "mine, mine": "all nodes of the model",
        "part, onnx_nb.extract(mine, ['r9'], ['r11'])": "is no tensor of your model",
        "mine, onnx_nb.extract(mine, ['r9'], ['r10'])": "one operation",
    },
)
def _own(whole: Any, part: Any) -> None:
    expect(all(isinstance(model, onnx_nb.Model) for model in (whole, part)), "Both are models: `load` and `extract`.")
    of_lesson = any(whole.name == made(name).name for name in ("model", "densenet"))
    expect(not of_lesson, f"{whole.name} is a model of this lesson: take another one.")
    ends = [value.name for value in (*part.inputs, *part.outputs)]
    nodes = [node for node in whole.proto.graph.node if node.op_type not in ("Constant", "ConstantOfShape")]
    names = {name for node in whole.proto.graph.node for name in node.output} | {value.name for value in whole.inputs}
    for name in ends:
        expect(name in names, f"{name} is no tensor of your model, so this is a part of another one.")
    count = sum(node.op_type not in ("Constant", "ConstantOfShape") for node in part.proto.graph.node)
    expect(count < len(nodes), "The part has all nodes of the model: choose inputs or outputs inside.")
    expect(count > 1, "The part has one operation: choose tensors that are further apart.")
    feeds = onnx_nb.random_feeds(whole)
    values = {**feeds, **onnx_nb.run(whole, feeds, outputs=[name for name in ends if name not in feeds])}
    results = onnx_nb.run(part, {value.name: values[value.name] for value in part.inputs})
    for name, result in results.items():
        close = np.allclose(result, values[name], rtol=1e-3, atol=1e-3, equal_nan=True)
        expect(close, f"The part computes another {name} than your model does.")
