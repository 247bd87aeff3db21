"""Graders of "Tools for surgery"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import onnx.parser
from onnxscript.rewriter import pattern, rewrite

from . import Lesson, NotYet, expect, made
from .lesson_11 import HEAD, proto_of, run

check: Final = Lesson()


_MERGED: Final = "compose.merge_models(freed, last, io_map=[('scores', 'decide/scores')], outputs=%s)"
_ARG: Final = (
    'onnx.parser.parse_model(\'<ir_version: 8, opset_import: ["": 18]> g (float[1, 3, 32, 32] image) => '
    "(float[n, 4] scores, int64[n] direction) { scores = Flatten(image)  direction = %s(scores) }')"
)

_TEXT: Final = "onnx.printer.to_text(deciding)"


@check.exercise(
    1,
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
    proto, images, expected = proto_of(answer), made("images"), made("expected")
    expect([value.name for value in proto.graph.input] == ["image"], "The model has no input `image`, or others.")
    names = {value.name for value in proto.graph.output}
    for name in ("scores", "direction"):
        expect(name in names, f"The model has no output `{name}`: `merge_models` takes a list of those to keep.")
    try:
        found = run(proto, {"image": images})
    except Exception as error:  # noqa: BLE001 (onnxruntime has many)
        sentence = " ".join(str(error).split())[:150]
        raise NotYet(f"This model does not run on {len(images)} images: {sentence}") from None
    expect(np.allclose(found["scores"], expected, atol=1e-5), "The scores are not those of `freed`.")
    expect(found["direction"].shape == (len(images),), "`direction` should have one number for each image.")
    right = (found["direction"] == expected.argmax(axis=1)).all()
    expect(right, "`direction` is not the largest score of each image.")


_PERMS: Final = [
    ((0, 2, 3, 1), (0, 3, 1, 2)),
    ((1, 2, 0), (0, 2, 1)),
    ((2, 0, 1), (2, 0, 1)),
    ((3, 1, 0, 2), (1, 3, 2, 0)),
]
_RULE: Final = "pattern.RewriteRule(two_transposes, lambda op, x, first, second: %s)"


@check.exercise(
    2,
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
        before = onnx.parser.parse_model(HEAD + text)
        after = rewrite(before, pattern_rewrite_rules=[answer])
        x = np.arange(np.prod(range(2, 2 + len(first))), dtype=np.float32).reshape(range(2, 2 + len(first)))
        (right,), (found,) = run(before, {"x": x}).values(), run(after, {"x": x}).values()
        sentence = f"With perm = {list(first)} and then {list(second)}, the result does not have the same numbers."
        expect(np.array_equal(right, found), sentence)
        left = sum(node.op_type == "Transpose" for node in after.graph.node)
        expect(left <= 1, f"With perm = {list(first)} and then {list(second)}, {left} Transpose are left.")
