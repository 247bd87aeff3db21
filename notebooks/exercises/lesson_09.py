"""Graders of "A case from end to end"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import onnx_nb

from . import Lesson, expect, is_number, made, opened

check: Final = Lesson()
_KEPT: Final = 0.5
"""Share of the received file's nodes that a repaired file still has; a new export has none of them."""
_EDIT: Final = "onnx_nb.edit(received).insert"


@check.exercise(
    1,
    "repaired, level",
    "repaired, level",
    {
        "received, 19": "still those of the received file",
        "fixed, level": "a new export",
        f"{_EDIT}('Mul', after=culprit.candidate, inputs=[np.float32(0.5)]), level": "by which factor",
        f"{_EDIT}('Mul', after='scores', inputs=[np.float32(2)]), level": "by which factor",
        "3, level": "should be the repaired model",
        "repaired, culprit": "is a number",
        "repaired, decibels(scores)": "of the repaired file",
        "repaired, accuracy(better)": "of the repaired file",
    },
)
def _repair(repaired: Any, level: Any) -> None:
    if isinstance(repaired, onnx_nb.types.Edit):
        repaired = repaired.model
    model = opened(repaired, f"The first part is a {type(repaired).__name__}; it should be the repaired model.")
    theirs, feeds, expected = made("received"), made("feeds"), made("expected")
    names = {node.name for node in theirs.proto.graph.node}
    kept = sum(node.name in names for node in model.proto.graph.node)
    expect(kept >= _KEPT * len(names), "This is a new export: change the file that you received.")
    (scores,), (before,) = (onnx_nb.run(each, feeds).values() for each in (model, theirs))
    expect(not np.allclose(scores, before, atol=1e-4), "The scores are still those of the received file.")
    closer = "The scores are not the network's yet: which tensor is wrong, and by which factor?"
    expect(np.allclose(scores, expected, rtol=1e-3, atol=1e-3), closer)
    expect(is_number(level), f"The second part is a {type(level).__name__}; the signal to noise is a number.")
    ratio = -20 * np.log10(np.linalg.norm(scores - expected) / np.linalg.norm(expected))
    expect(
        abs(level - ratio) < 1, "This is not the signal to noise of the repaired file: give its scores to `decibels`."
    )
