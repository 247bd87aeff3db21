"""What four bits cost a decoder: which products to leave in float, and what their levels of accuracy change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnx_nb
from tests.analysis.generate import packages

if TYPE_CHECKING:
    from collections.abc import Sequence

IDS = [7 * n % packages.VOCABULARY for n in range(24)]
STEPS = 6


def four_bits(exclude: Sequence[str] = (), level: int = 4) -> onnx.ModelProto:
    return packages.four_bits(packages.decoder(3), exclude, level)


def divergence(candidate: onnx_nb.types.ModelLike) -> float:
    c = onnx_nb.compare_decoding(packages.decoder(3), candidate, IDS, STEPS)
    return float(np.mean([step.divergence for step in c.steps]))


@pytest.mark.parametrize("share", [0.6, 0.2])
def test_the_excluded_products_reach_the_divergence_step_by_step(share: float) -> None:
    c = onnx_nb.compare_decoding(packages.decoder(3), four_bits(), IDS, STEPS)
    bound = share * divergence(four_bits())
    names = c.exclusion(bound)
    every = [node.name for node in packages.decoder(3).graph.node if node.op_type == "MatMul"]
    assert set(names) < set(every)
    # the quantizer is run again, and the decoder step by step, with caches of its own
    assert divergence(four_bits(names)) <= bound * 1.02
    assert all(divergence(four_bits([name for name in names if name != each])) > bound for each in names[:3])


def test_a_divergence_that_nothing_reaches_is_an_error() -> None:
    c = onnx_nb.compare_decoding(packages.decoder(3), four_bits(), IDS, STEPS)
    with pytest.raises(onnx_nb.OnnxNbError, match="with all quantized nodes in float"):
        c.exclusion(-1.0)


def test_levels_of_accuracy_are_those_of_onnxruntime() -> None:
    c = onnx_nb.compare_decoding(packages.decoder(3), four_bits(), IDS, STEPS)
    rows = c.accuracy_levels()
    assert sorted(level for row in rows for level in row["levels"]) == [0, 1, 2, 3, 4]
    assert [row["levels"] for row in rows if row["in file"]] == [row["levels"] for row in rows if 4 in row["levels"]]
    assert rows[0]["difference"] == 0
    assert rows[0]["tokens"] == 0
    # all tokens in one run of onnxruntime, the level as the quantizer writes it
    tokens, places = c.tokens[:, : c.steps[-1].position], [step.position - 1 for step in c.steps]
    logits = []
    for level in (0, 4):
        session = ort.InferenceSession(four_bits(level=level).SerializeToString(), providers=["CPUExecutionProvider"])
        feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        for entry in session.get_inputs()[2:]:
            feeds[entry.name] = np.zeros((1, packages.KV_HEADS, 0, packages.HEAD), np.float32)
        logits.append(session.run(["logits"], feeds)[0][0, places])
    (row,) = (row for row in rows if 4 in row["levels"])
    assert row["difference"] == pytest.approx(float(np.abs(logits[0] - logits[1]).max()), rel=0.05)


def test_both_need_models_that_have_what_they_ask_about() -> None:
    c = onnx_nb.compare_decoding(packages.decoder(3), packages.decoder(3), IDS, 2)
    with pytest.raises(onnx_nb.OnnxNbError, match="has no MatMulNBits"):
        c.accuracy_levels()
    logits = np.zeros((3, packages.VOCABULARY), np.float32)
    with pytest.raises(onnx_nb.AlignmentError, match="the reference is no ONNX model"):
        onnx_nb.compare_decoding(logits, four_bits(), IDS, 2).exclusion()
