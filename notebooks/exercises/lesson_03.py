"""Graders of "Numbers that stay inputs"."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import onnx
import torch
from onnx import helper

import onnx_nb

from . import Lesson, NotYet, expect, made, opened

check: Final = Lesson()


def opened_model(answer: Any, inputs: int) -> onnx_nb.Model:
    """Return the model of an answer, which has so many inputs and one output, in whatever form it is given."""
    model = opened(answer, f"An answer is of type {type(answer).__name__}; a model is expected there.")
    for side, values, count in (("inputs", model.inputs, inputs), ("outputs", model.outputs, 1)):
        expect(len(values) == count, f"The number of {side} of the model is {len(values)}; here it is {count}.")
    return model


def input_shape(model: onnx_nb.Model, *dynamic: int) -> tuple[int, ...]:
    """Return the shape of the first input, with sizes for its dynamic axes: these, and then 1."""
    left = iter(dynamic)
    return tuple(size if isinstance(size, int) else next(left, 1) for size in model.inputs[0].shape or ())


def only_output(model: onnx_nb.Model, *given: Any) -> Any:
    """Run a model of one output on arrays, in the types that it declares."""
    typed = [array.astype(each.dtype) for array, each in zip(given, model.inputs, strict=True)]
    (value,) = onnx_nb.run(model, typed).values()
    return value


@check.exercise(
    1,
    "kind",
    '"attribute"',
    {
        "schema": "one word",
        '"cubic"': "is none of the kinds",
        '"input"': "lists no input",
        '"output"': "lists no output",
    },
)
def _kind(answer: Any) -> None:
    expect(isinstance(answer, str), "The answer is one word: what is the mode in the schema of `Resize`?")
    schema = onnx.defs.get_schema("Resize", 20)
    names = {
        "input": [value.name for value in schema.inputs],
        "output": [value.name for value in schema.outputs],
        "attribute": list(schema.attributes),
    }
    kind = answer.strip().lower().removeprefix("an ")
    expect(kind in names, f"{answer!r} is none of the kinds of things that a schema lists: {', '.join(names)}.")
    expect("mode" in names[kind], f"The schema of `Resize` lists no {kind} of the name `mode`.")


@check.exercise(
    2,
    "attribute",
    '"coordinate_transformation_mode"',
    {
        "change": "as a text",
        '"mode"': "the same in both",
        '"cubic_coeff_a"': "the same in both",
        '"scales"': "has no attribute",
        '"asymmetric"': "a value",
    },
)
def _attribute(answer: Any) -> None:
    expect(isinstance(answer, str), "The answer is the name of an attribute, as a text.")
    schema = onnx.defs.get_schema("Resize", 20)
    ours, theirs = (_attributes(made(name), schema) for name in ("exported", "shifted"))
    expect(answer not in {*ours.values(), *theirs.values()}, f"{answer!r} is a value; which attribute has it?")
    expect(answer in schema.attributes, f"`Resize` has no attribute of the name {answer!r}.")
    expect(ours[answer] != theirs[answer], f"{answer!r} is the same in both models.")


def _attributes(model: onnx_nb.Model, schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Return the attributes of a `Resize`, where it has none their default."""
    (node,) = (node for node in model.proto.graph.node if node.op_type == "Resize")
    given = {attribute.name: attribute for attribute in node.attribute}
    protos = {name: given.get(name, attribute.default_value) for name, attribute in schema.attributes.items()}
    values = {name: helper.get_attribute_value(proto) if proto.type else None for name, proto in protos.items()}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


_HONEST: Final = (
    "(lambda op: op.register_fake(lambda x: x.new_empty(*x.shape[:2], *(2 * n for n in x.shape[2:]))) and op)("
    'torch.library.custom_op("course::honest", lambda x: F.interpolate(x, scale_factor=2.0), mutates_args=(), '
    'schema="(Tensor x) -> Tensor"))'
)


@check.exercise(
    3,
    "double, doubled, finder",
    "double, doubled, torch.library.opcheck",
    {
        "F.interpolate, doubled, torch.library.opcheck": "is no custom operator",
        f"{_HONEST}, doubled, torch.library.opcheck": "does not forget",
        'torch.library.custom_op("course::bare", lambda x: F.interpolate(x, scale_factor=2.0), mutates_args=(), '
        'schema="(Tensor x) -> Tensor"), doubled, torch.library.opcheck': "no fake function",
        'torch.library.custom_op("course::same", torch.clone, mutates_args=(), schema="(Tensor x) -> Tensor"), '
        "doubled, torch.library.opcheck": "does not double",
        "double, by_size, torch.library.opcheck": "number of inputs",
        "double, onnx_nb.export(Call(torch.abs), small), torch.library.opcheck": "another image",
        "double, onnx_nb.export(Call(lambda x: F.interpolate(x, scale_factor=2.0)), small), torch.library.opcheck": (
            "declares the shape that it gives"
        ),
        "double, doubled, onnx.checker.check_model": "Another function",
        "double, doubled, 5": "a function of PyTorch",
    },
)
def _forgetful(operator: Any, answer: Any, finder: Any) -> None:
    # what the decorator returns, torch.ops.library.name, torch.ops.library.name.default
    is_operator = any(hasattr(operator, name) for name in ("register_fake", "overloads", "overloadpacket"))
    expect(is_operator, f"{operator!r} is no custom operator: decorate a function with `torch.library.custom_op`.")
    image = torch.rand(1, 1, 5, 7)
    expect(operator(image).shape == (1, 1, 10, 14), "The operator itself does not double height and width.")
    try:
        fake = operator(image.to("meta"))  # a tensor without data reaches the fake function
    except Exception:  # noqa: BLE001 (its kind depends on the version of PyTorch)
        raise NotYet("The operator has no fake function, or one that fails.") from None
    expect(fake.shape != (1, 1, 10, 14), "Its fake function does not forget the doubling; here it should.")
    model = opened_model(answer, 1)
    given = np.random.default_rng(1).random(input_shape(model, 1, 1, 5, 7), dtype=np.float32)
    value, declared = only_output(model, given), model.outputs[0].shape
    expected = operator(torch.tensor(given)).numpy()
    is_same = value.shape == expected.shape and np.allclose(value, expected, atol=1e-5)
    expect(is_same, "The model makes another image than the operator: look at the translation.")
    expect(
        declared != value.shape, f"The file declares the shape that it gives, {declared}: export the operator itself."
    )
    name = finder if isinstance(finder, str) else getattr(finder, "__name__", None)
    expect(name, "The third answer is a function of PyTorch, or its name.")
    digest = hashlib.sha256(str(name).rpartition(".")[2].encode()).hexdigest()[:12]
    expect(
        digest == "ada47e1b43a2", "Another function compares a fake function with the operator: see `torch.library`."
    )
