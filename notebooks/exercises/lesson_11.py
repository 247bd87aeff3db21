"""Graders of "Surgery by hand"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
import onnx.parser
import onnxruntime

from . import Lesson, NotYet, expect, made

check: Final = Lesson()
HEAD: Final = '<ir_version: 8, opset_import: ["": 18]> g '


def proto_of(answer: Any) -> onnx.ModelProto:
    """Return the proto of an answer."""
    sentence = f"This has type {type(answer).__name__}; the answer is a model, as `ModelProto`."
    expect(isinstance(answer, onnx.ModelProto), sentence)
    proto: onnx.ModelProto = answer
    return proto


def run(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model with onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the sentence says what is wrong
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


_IF: Final = """(float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
    z = Mul(x, w)
    y = If (c) <
        then_branch = t () => (float[2] a) { a = Add(z, %s) },
        else_branch = e () => (float[2] b) { b = Neg(%s) }>
}"""
_LOOP: Final = """(float[2] x, int64 count, bool go) => (float[2] y) {
    y = Loop (count, go, x) <body = b (int64 i, bool before, float[2] old) => (bool after, float[2] new) {
        after = Identity(before)
        new = Add(old, %s)
    }>
}"""
# what a graph is about, its text, and what dangles in it
_GRAPHS: Final = (
    ("a graph in which nothing dangles", "(float[2] x) => (float[2] y) { z = Relu(x)  y = Neg(z) }", ()),
    ("a graph whose node reads `gone`", "(float[2] x) => (float[2] y) { z = Relu(gone)  y = Add(z, x) }", ("gone",)),
    ("a graph with a weight", "(float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }", ()),
    ("a graph with an input that is left out", "(float[2] x, float top) => (float[2] y) { y = Clip(x, , top) }", ()),
    ("an If whose bodies read what stands around them", _IF % ("w", "x"), ()),
    ("an If with a body that reads `lost`", _IF % ("lost", "z"), ("lost",)),
    ("an If with a body that reads `a`, which only the other body makes", _IF % ("w", "a"), ("a",)),
    ("a Loop whose body has inputs of its own", _LOOP % "x", ()),
    ("a Loop with a body that reads `lost`", _LOOP % "lost", ("lost",)),
)
_FLAT: Final = """lambda proto: {name for node in %s for name in node.input} - {""} - {
    value.name for value in (*proto.graph.input, *proto.graph.initializer)
} - {name for node in %s for name in node.output}"""


@check.exercise(
    1,
    "dangling",
    "dangling",
    {
        "lambda proto: set()": "`gone` is missing",
        _FLAT % ("proto.graph.node", "proto.graph.node"): "`lost` is missing",
        _FLAT % ("every_node(proto.graph)", "every_node(proto.graph)"): "`a` is missing",
        "lambda proto: dangling(proto) | {''}": "an empty name",
        "lambda proto: dangling(proto) | {weight.name for weight in proto.graph.initializer}": "`w` does not dangle",
        "lambda proto: [*dangling(proto)]": "set of names",
        "dangling(old)": "is a function",
    },
)
def _dangling(answer: Any) -> None:
    expect(callable(answer), f"This has type {type(answer).__name__}; `dangling` is a function of a model.")
    for title, text, names in _GRAPHS:
        found = answer(onnx.parser.parse_model(HEAD + text))
        expect(isinstance(found, set | frozenset), f"The result has type {type(found).__name__}, not a set of names.")
        expect("" not in found, f"In {title}, an empty name is in the result: it stands for an input that is left out.")
        for name in sorted(set(names) - found):
            raise NotYet(f"In {title}, `{name}` is missing from the result.")
        for name in sorted(found - set(names)):
            raise NotYet(f"In {title}, `{name}` does not dangle.")


_UNPINNED: Final = "onnx.parser.parse_model(onnx.printer.to_text(%s)%s)"


@check.exercise(
    2,
    "unpinned",
    "unpinned",
    {
        "stubborn": "takes one sample",
        _UNPINNED % ("stubborn", ".replace('float[1,6,4] x', 'float[n,6,4] x')"): "2 samples give 1 row",
        _UNPINNED % ("unpinned", ".replace('{0, 4}', '{1, 4}').replace('{0,4}', '{1,4}')"): "does not run",
        _UNPINNED % ("unpinned", ".replace('Reshape ', 'Reshape <allowzero = 1> ')"): "cannot be loaded",
        _UNPINNED % ("unpinned", ".replace('ReduceMean', 'ReduceMax')"): "other numbers",
        _UNPINNED % ("unpinned", ".replace('float[batch,6,4] x', 'float[batch,6,4] image')"): "input `x`",
        "None": "This has type NoneType",
    },
)
def _unpinned(answer: Any) -> None:
    proto, stubborn = proto_of(answer), made("stubborn")
    (value,) = proto.graph.input
    expect(value.name == "x", "The model should keep its input `x`.")
    is_free = not value.type.tensor_type.shape.dim[0].dim_value
    expect(is_free, "The model takes one sample, as it declares: the input still has a first dimension of 1.")
    rng = np.random.default_rng(3)
    for count in (1, 2, 3, 7):
        batch = (rng.normal(size=(count, 6, 4)) * 10.0 ** rng.integers(-2, 3, (count, 1, 1))).astype(np.float32)
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 (onnxruntime has many)
            reason = " ".join(str(error).split())[-150:]
            raise NotYet(f"The model cannot be loaded: {reason} What does 0 mean where `allowzero` is 1?") from None
        try:
            (found,) = run(proto, {"x": batch}).values()
        except Exception as error:  # noqa: BLE001 (onnxruntime has many)
            reason = " ".join(str(error).split())[-150:]
            raise NotYet(f"The model does not run on {count} samples: {reason}") from None
        alone = np.stack([run(stubborn, {"x": sample[None]})["y"][0] for sample in batch])
        sentence = f"{count} samples give {len(found)} row: the first `Reshape` puts them all into one."
        expect(found.shape == alone.shape, sentence)
        expect(np.allclose(found, alone, rtol=1e-4, atol=1e-4), f"{count} samples give other numbers than each alone.")
