"""Graders of "Edits with a record"."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from onnx_nb.types import Edit

from . import Lesson, expect, is_number, made
from .lesson_11 import run

check: Final = Lesson()


@check.exercise(
    1,
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
    alone = np.stack([run(decibels, {"power": row[None]})["level"][0] for row in answer])
    moved = np.abs(run(decibels, {"power": answer})["level"] - alone).max()
    expect(moved >= 10, f"No row moves far enough: the worst does not move by more than {moved:.1f} dB.")


_EDITED: Final = "onnx_nb.edit(original).rename({'input.1': 'image'})%s, changed"


@check.exercise(
    2,
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
    (found,) = run(answer.model.to_proto(), {"image": made("images").astype(np.float16)}).values()
    powers = np.exp(found.astype(np.float64))
    scores = powers / powers.sum(axis=1, keepdims=True)
    expect(not np.allclose(found.sum(axis=1), 1, atol=1e-2), "These are still the scores, which add up to 1.")
    expect(np.allclose(scores, made("expected"), atol=5e-3), "The softmax of these numbers is not the scores.")
    expect(is_number(changed), "The second part of the answer is the number of a step.")
    proofs = [step.proof for step in answer.verify().steps]
    right = [number for number, proof in zip(itertools.count(1), proofs, strict=False) if proof == "changed"]
    expect(changed in right, "`verify` calls another step *changed*: look at `steps`.")
