"""Graders of "Fix or free a dimension"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import onnx.parser
import onnxruntime

from . import Lesson, NotYet, expect, is_number, made

check: Final = Lesson()
_HEAD: Final = '<ir_version: 8, opset_import: ["": 18]> g '


def _run(proto: onnx.ModelProto, value: Any) -> Any:
    """Run a model of one input with onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the sentence says what is wrong
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: value})[0]


def _parsed(text: str) -> onnx.ModelProto:
    """Return a graph with what onnx infers of it."""
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(_HEAD + text))


_BARE: Final = onnx.parser.parse_model(_HEAD + "(float[n] x) => (float[n] y) { y = Relu(x) }")
_BARE.graph.output[0].type.tensor_type.ClearField("shape")
# what a graph is about, the graph, and the names in it
_GRAPHS: Final[tuple[tuple[str, onnx.ModelProto, tuple[str, ...]], ...]] = (
    ("a graph of numbers alone", _parsed("(float[2] x) => (float[2] y) { y = Relu(x) }"), ()),
    (
        "a graph with other names in its output",
        _parsed("(float[a, 3, ?] x) => (float[b, c] y) { y = Flatten(x) }"),
        ("a", "b", "c"),
    ),
    (
        "a graph with a name in its value_info",
        _parsed("(float[a] x) => (float[1, b] y) { z = NonZero(x)  y = Cast<to = 1>(z) }"),
        ("a", "b", "unk__0"),
    ),
    ("a graph whose output has no shape", _BARE, ("n",)),
)
_LISTS: Final = "lambda proto: {dim for value in %s for dim in shape_of(value) or () if isinstance(dim, str)}"


@check.exercise(
    1,
    "symbols",
    "symbols",
    {
        _LISTS % "proto.graph.input": "`b` is missing",
        _LISTS % "(*proto.graph.input, *proto.graph.output)": "`unk__0` is missing",
        "lambda proto: symbols(proto) | {None}": "no name",
        "lambda proto: symbols(proto) | {'3'}": "no dimension is called",
        "lambda proto: sorted(symbols(proto))": "set of names",
        "symbols(old)": "is a function",
        (_LISTS % "(*proto.graph.input, *proto.graph.output, *proto.graph.value_info)").replace(
            " or ()", ""
        ): "TypeError",
    },
)
def _symbols(answer: Any) -> None:
    expect(callable(answer), f"This has type {type(answer).__name__}; `symbols` is a function of a model.")
    for title, proto, names in _GRAPHS:
        found = answer(proto)
        expect(isinstance(found, set | frozenset), f"The result has type {type(found).__name__}, not a set of names.")
        for name in sorted(set(names) - found):
            raise NotYet(f"In {title}, `{name}` is missing from the result.")
        for name in found - set(names):
            expect(isinstance(name, str), f"In {title}, {name!r} is in the result, which is no name.")
            raise NotYet(f"In {title}, no dimension is called `{name}`.")


@check.exercise(
    2,
    "smallest",
    "smallest",
    {
        "95": "no scores",
        "24": "no scores",
        "97": "One sample less",
        "120": "One sample less",
        "'96'": "number of samples",
        "96.5": "number of samples",
    },
)
def _smallest(answer: Any) -> None:
    expect(is_number(answer) and answer == int(answer), "The answer is a whole number of samples.")

    def gives(length: int) -> bool:
        try:
            return bool(np.isfinite(_run(made("model").to_proto(), np.zeros((1, length), np.float32))).all())
        except Exception:  # noqa: BLE001 (onnxruntime has many)
            return False

    expect(answer > 0 and gives(int(answer)), f"With {answer} samples there are no scores: the run ends with an error.")
    expect(not gives(int(answer) - 1), "One sample less gives scores, too.")


_BAKED: Final = "exported(Variant(net, lambda x: x.sum(1) / int(x.shape[1])).eval(), example, **FREE)[0]"


@check.exercise(
    3,
    "for_npu",
    "for_npu",
    {
        "model.to_proto()": "the input still takes",
        "edit.model.to_proto()": "4 sounds of 2,400 samples",
        "onnx_nb.edit(model).fix(batch=4, samples=2400).model.to_proto()": "still has the shape",
        "onnx_nb.edit(old).fix(batch=4, samples=2400).model.to_proto()": "no shape",
        f"onnx_nb.edit({_BAKED}).fix(batch=4, samples=2400).model.to_proto()": "other",
        "'for_npu.onnx'": "ModelProto",
    },
)
def _for_npu(answer: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; the answer is a model, as `ModelProto`."
    expect(isinstance(answer, onnx.ModelProto), sentence)
    graph, shape_of = answer.graph, made("shape_of")
    taken = shape_of(graph.input[0])
    is_free = any(not isinstance(dim, int) for dim in taken)
    expect(not is_free, f"A dimension of the input still takes any size: the input still takes {taken}.")
    expect(taken == (4, 2400), f"The input takes {taken}, and should take 4 sounds of 2,400 samples.")
    waves = made("sounds")(4, 2400, seed=8)[0]
    is_equal = np.allclose(_run(answer, waves), _run(made("model").to_proto(), waves), atol=1e-3)
    expect(is_equal, "The scores are other ones than those of `model`.")
    notes = {value.name: shape_of(value) for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        for name in node.output:
            expect(node.op_type == "Constant" or notes.get(name) is not None, f"The value {name} has no shape.")
            dims = notes.get(name) or ()
            is_fixed = all(isinstance(dim, int) for dim in dims)
            expect(is_fixed, f"The value {name} still has the shape {dims}: delete the notes and infer them again.")
