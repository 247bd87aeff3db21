"""Graders of "Translations of operators"."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from . import Lesson, expect
from .lesson_03 import input_shape, only_output, opened_model

check: Final = Lesson()


def _formula(*steps: str) -> str:
    """Return the expression of a model that computes `z` of `x` and `y` in these steps."""
    head = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x, float[n] y) => (float[n] z) '
    return f"onnx.parser.parse_model({head + '{ ' + ' '.join(steps) + ' }'!r})"


_LENGTH: Final = "one = Constant<value_float: float = 1.0>()", "s = Mul(r, r)", "t = Add(s, one)", "u = Sqrt(t)"


@check.exercise(
    1,
    "hypot",
    "hypot",
    {
        "to_hypot": "a model is expected",
        "onnx_nb.export(Call(torch.abs), legs[0])": "number of inputs",
        _formula("z = Add(x, y)"): "3 and 4",
        _formula("m = Max(x, y)", "k = Min(x, y)", "r = Div(k, m)", *_LENGTH, "z = Mul(m, u)"): "negative",
        _formula(
            "a = Abs(x)", "b = Abs(y)", "m = Max(a, b)", "k = Min(a, b)", "r = Div(k, m)", *_LENGTH, "z = Mul(m, u)"
        ): "0 and 0",
        _formula("a = Mul(x, x)", "b = Mul(y, y)", "c = Add(a, b)", "z = Sqrt(c)"): "no longer holds",
    },
)
def _hypot(answer: Any) -> None:
    model = opened_model(answer, 2)
    sentences: dict[str, list[tuple[float, float]]] = {
        "It gives another length than `torch.hypot` for plain legs, such as 3 and 4.": [(3, 4), (12, 5), (1, 1)],
        "It gives another length where a leg is negative.": [(-3, 4), (3, -4), (-3, -4), (-12, -5)],
        "It is not right for 0 and 0, or where one of the legs is 0.": [(0, 0), (0, 7), (7, 0), (0, -7)],
        "It is not right for 1e30: there is a step whose result float32 no longer holds.": [(1e30, 1e30), (-1, 1e30)],
        "It is not right for 1e-30: there is a step whose result is 0 in float32.": [(1e-30, 1e-30), (0, -1e-30)],
    }
    for sentence, pairs in sentences.items():
        expected = [math.hypot(*pair) for pair in pairs]
        # an input may have as few values as the example had
        shape = input_shape(model, len(pairs))
        at_once = math.prod(shape)
        parts = [np.array(pairs[start : start + at_once]) for start in range(0, len(pairs), at_once)]
        lengths = [
            only_output(model, *(np.resize(leg, shape) for leg in part.T)).ravel()[: len(part)] for part in parts
        ]
        expect(np.allclose(np.concatenate(lengths), expected, rtol=1e-5, atol=0), sentence)
