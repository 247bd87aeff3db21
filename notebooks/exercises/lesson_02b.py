"""Graders of "What a trace loses"."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np

from . import Lesson, expect
from .lesson_02 import model_of, only_output, random_image

check: Final = Lesson()


@check.exercise(
    1,
    "keeper, model",
    '"scripted", tall["scripted"]',
    {
        'True, tall["scripted"]': "one of the names",
        '"dynamo", tall["scripted"]': "does not keep",
        '"scripted", Tall()': "returns a model",
        '"scripted", onnx.parser.parse_model(\''
        '<ir_version: 10, opset_import: ["": 20]> g (float[rows, 10] x) => (float[rows, 10] y) { y = Add(x, x) }\')': (
            "four axes"
        ),
        '"scripted", onnx_nb.export(Tall(), example)': "axis 2",
        '"scripted", tall["dynamo"]': "For 40 rows",
        '"scripted", onnx.parser.parse_model(\''
        '<ir_version: 10, opset_import: ["": 20]> g (float[1, 3, rows, 10] x) => (float[1, 3, rows, 10] y) '
        "{ y = Add(x, x) }')": "For 10 rows",
    },
)
def _branch(keeper: Any, answer: Any) -> None:
    ways = "TorchScript", "dynamo", "scripted"
    expect(isinstance(keeper, str) and keeper in ways, f"The first answer is one of the names {', '.join(ways)}.")
    expect(
        hashlib.sha256(keeper.encode()).hexdigest()[:12] == "f4e1a209c132",
        f"The file of {keeper} does not keep the branch: compare its numbers with PyTorch's, for 10 rows and for 40.",
    )
    model = model_of(answer)
    shape = model.inputs[0].shape or ()
    expect(len(shape) == 4, f"It takes shape {shape}; export it with `example`, which has four axes.")
    expect(not isinstance(shape[2], int), f"Its input {shape} has a fixed number of rows: axis 2 has to be dynamic.")
    for rows in (10, 40, 32, 33):
        sizes = [size if isinstance(size, int) else 2 for size in shape]
        given = random_image((*sizes[:2], rows, sizes[3])).numpy()
        expected = 2 * given if rows > 32 else given + 1
        value = only_output(model, given)
        expect(
            value.shape == expected.shape and np.allclose(value, expected, atol=1e-6),
            f"For {rows} rows, it does not compute what `forward` says.",
        )
