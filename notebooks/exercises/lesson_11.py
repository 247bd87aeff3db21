"""Graders of "Surgery"."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnxscript.rewriter import pattern, rewrite

from onnx_nb.types import Edit

from . import Lesson, NotYet, expect, is_number, made

check: Final = Lesson()
_HEAD: Final = '<ir_version: 8, opset_import: ["": 18]> g '


def _proto(answer: Any) -> onnx.ModelProto:
    """Return the proto of an answer."""
    sentence = f"This has type {type(answer).__name__}; the answer is a model, as `ModelProto`."
    expect(isinstance(answer, onnx.ModelProto), sentence)
    proto: onnx.ModelProto = answer
    return proto


def _run(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
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
        found = answer(onnx.parser.parse_model(_HEAD + text))
        expect(isinstance(found, set | frozenset), f"The result has type {type(found).__name__}, not a set of names.")
        expect("" not in found, f"In {title}, an empty name is in the result: it stands for an input that is left out.")
        for name in sorted(set(names) - found):
            raise NotYet(f"In {title}, `{name}` is missing from the result.")
        for name in sorted(found - set(names)):
            raise NotYet(f"In {title}, `{name}` does not dangle.")


_MERGED: Final = "compose.merge_models(freed, last, io_map=[('scores', 'decide/scores')], outputs=%s)"
_ARG: Final = (
    'onnx.parser.parse_model(\'<ir_version: 8, opset_import: ["": 18]> g (float[1, 3, 32, 32] image) => '
    "(float[n, 4] scores, int64[n] direction) { scores = Flatten(image)  direction = %s(scores) }')"
)

_TEXT: Final = "onnx.printer.to_text(deciding)"


@check.exercise(
    2,
    "deciding",
    "deciding",
    {
        "freed": "no output `direction`",
        _MERGED % "['direction']": "no output `scores`",
        "decide": "no input `image`",
        _ARG % "ArgMax<axis = 1, keepdims = 0>": "does not run on 4 images",
        "merged": "no input `image`",
        f"onnx.parser.parse_model({_TEXT}.replace('ArgMax', 'ArgMin'))": "not the largest score",
        f"onnx.parser.parse_model('keepdims: int = 1'.join({_TEXT}.rsplit('keepdims: int = 0', 1)))": "one number for",
        "'direction'": "This has type str",
    },
)
def _deciding(answer: Any) -> None:
    proto, images, expected = _proto(answer), made("images"), made("expected")
    expect([value.name for value in proto.graph.input] == ["image"], "The model has no input `image`, or others.")
    names = {value.name for value in proto.graph.output}
    for name in ("scores", "direction"):
        expect(name in names, f"The model has no output `{name}`: `merge_models` takes a list of those to keep.")
    try:
        found = _run(proto, {"image": images})
    except Exception as error:  # noqa: BLE001 (onnxruntime has many)
        sentence = " ".join(str(error).split())[:150]
        raise NotYet(f"This model does not run on {len(images)} images: {sentence}") from None
    expect(np.allclose(found["scores"], expected, atol=1e-5), "The scores are not those of `freed`.")
    expect(found["direction"].shape == (len(images),), "`direction` should have one number for each image.")
    right = (found["direction"] == expected.argmax(axis=1)).all()
    expect(right, "`direction` is not the largest score of each image.")


_UNPINNED: Final = "onnx.parser.parse_model(onnx.printer.to_text(%s)%s)"


@check.exercise(
    3,
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
    proto, stubborn = _proto(answer), made("stubborn")
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
            (found,) = _run(proto, {"x": batch}).values()
        except Exception as error:  # noqa: BLE001 (onnxruntime has many)
            reason = " ".join(str(error).split())[-150:]
            raise NotYet(f"The model does not run on {count} samples: {reason}") from None
        alone = np.stack([_run(stubborn, {"x": sample[None]})["y"][0] for sample in batch])
        sentence = f"{count} samples give {len(found)} row: the first `Reshape` puts them all into one."
        expect(found.shape == alone.shape, sentence)
        expect(np.allclose(found, alone, rtol=1e-4, atol=1e-4), f"{count} samples give other numbers than each alone.")


@check.exercise(
    4,
    "witness",
    "witness",
    {
        "some": "does not move",
        "np.repeat(witness[:1], 3, axis=0)": "does not move",
        "witness[:1]": "one row",
        "np.float32([[1e-4] * 4, [1] * 4])": "does not move",
        "np.float32([[0] * 4, [1e6] * 4])": "positive",
        "witness.astype(np.float64)": "float32",
        "witness[:, :3]": "four powers",
        "[1, 2]": "This has type list",
    },
)
def _witness(answer: Any) -> None:
    expect(isinstance(answer, np.ndarray), f"This has type {type(answer).__name__}; the answer is an array.")
    expect(answer.dtype == np.float32, f"The powers are {answer.dtype.name}, and the model takes float32.")
    expect(answer.ndim == 2 and answer.shape[1] == 4, "Each row has four powers.")
    expect(len(answer) > 1, "This batch has one row: nothing can stand beside it.")
    expect(bool((answer > 0).all() and np.isfinite(answer).all()), "Powers are positive and finite numbers.")
    decibels = made("decibels")
    alone = np.stack([_run(decibels, {"power": row[None]})["level"][0] for row in answer])
    moved = np.abs(_run(decibels, {"power": answer})["level"] - alone).max()
    expect(moved >= 10, f"No row moves far enough: the worst does not move by more than {moved:.1f} dB.")


_PERMS: Final = [
    ((0, 2, 3, 1), (0, 3, 1, 2)),
    ((1, 2, 0), (0, 2, 1)),
    ((2, 0, 1), (2, 0, 1)),
    ((3, 1, 0, 2), (1, 3, 2, 0)),
]
_RULE: Final = "pattern.RewriteRule(two_transposes, lambda op, x, first, second: %s)"


@check.exercise(
    5,
    "rule",
    "rule",
    {
        _RULE % "op.Identity(x)": "the same numbers",
        _RULE % "op.Transpose(x, perm=second.as_ints())": "the same numbers",
        _RULE % "op.Transpose(x, perm=[second.as_ints()[place] for place in first.as_ints()])": "the same numbers",
        "pattern.RewriteRule(two_halves, absolute)": "2 Transpose are left",
        "two_transposes": "This has type function",
    },
)
def _transposes(answer: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; the answer is a `pattern.RewriteRule`."
    expect(isinstance(answer, pattern.RewriteRule), sentence)
    for first, second in _PERMS:
        shape = ", ".join(map(str, range(2, 2 + len(first))))
        one, two = (", ".join(map(str, perm)) for perm in (first, second))
        nodes = f"t = Transpose<perm = [{one}]>(x)  y = Transpose<perm = [{two}]>(t)"
        text = f"(float[{shape}] x) => (float[{', '.join('abcd'[: len(first)])}] y) {{ {nodes} }}"
        before = onnx.parser.parse_model(_HEAD + text)
        after = rewrite(before, pattern_rewrite_rules=[answer])
        x = np.arange(np.prod(range(2, 2 + len(first))), dtype=np.float32).reshape(range(2, 2 + len(first)))
        (right,), (found,) = _run(before, {"x": x}).values(), _run(after, {"x": x}).values()
        sentence = f"With perm = {list(first)} and then {list(second)}, the result does not have the same numbers."
        expect(np.array_equal(right, found), sentence)
        left = sum(node.op_type == "Transpose" for node in after.graph.node)
        expect(left <= 1, f"With perm = {list(first)} and then {list(second)}, {left} Transpose are left.")


_EDITED: Final = "onnx_nb.edit(original).rename({'input.1': 'image'})%s, changed"


@check.exercise(
    6,
    "logits, changed",
    "logits, changed",
    {
        "onnx_nb.edit(original), 1": "an input `image`",
        _EDITED % ".free('batch').remove('/Softmax')": "an output `logits`",
        _EDITED % ".free('batch').rename({'scores': 'logits'}).dtype({'image': 'float16'})": "still the scores",
        _EDITED % ".free('batch').remove('/Softmax').rename({'scores': 'logits'})": "float32",
        _EDITED % ".remove('/Softmax').rename({'scores': 'logits'}).dtype({'image': 'float16'})": "batches of any size",
        "logits, 1": "another step",
        "logits, 9": "another step",
        "logits, 'remove'": "number of a step",
        "logits.model, changed": "This has type Model",
    },
)
def _logits(answer: Any, changed: Any) -> None:
    sentence = f"This has type {type(answer).__name__}; the answer is what `onnx_nb.edit` returns."
    expect(isinstance(answer, Edit), sentence)
    (port,), names = answer.model.inputs, [output.name for output in answer.model.outputs]
    expect(port.name == "image", "The model should have an input `image`.")
    expect(names == ["logits"], f"The model should have an output `logits`, and has {', '.join(names)}.")
    expect(port.dtype == "float16", f"The input is {port.dtype}, and should be float16.")
    expect(not isinstance(port.shape[0], int), "The model does not take batches of any size yet.")
    (found,) = _run(answer.model.to_proto(), {"image": made("images").astype(np.float16)}).values()
    powers = np.exp(found.astype(np.float64))
    scores = powers / powers.sum(axis=1, keepdims=True)
    expect(not np.allclose(found.sum(axis=1), 1, atol=1e-2), "These are still the scores, which add up to 1.")
    expect(np.allclose(scores, made("expected"), atol=5e-3), "The softmax of these numbers is not the scores.")
    expect(is_number(changed), "The second part of the answer is the number of a step.")
    proofs = [step.proof for step in answer.verify().steps]
    right = [number for number, proof in zip(itertools.count(1), proofs, strict=False) if proof == "changed"]
    expect(changed in right, "`verify` calls another step *changed*: look at `steps`.")
