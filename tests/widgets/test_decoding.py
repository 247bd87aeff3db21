"""DecodingPanel: what it hands to the browser, and the operations of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_nb
from onnx_nb.widgets._channel import Call
from tests.analysis.generate import packages
from tests.analysis.generate.test_compare_decoding import scale
from tests.packed import unpacked

IDS = [5, 17, 3, 28]


@pytest.fixture(scope="module")
def comparison() -> onnx_nb.types.DecodingComparison:
    wrong = packages.decoder(3)
    scale(wrong)
    return onnx_nb.compare_decoding(packages.decoder(3), wrong, IDS, 4)


def ask(panel: onnx_nb.DecodingPanel, verb: str, **given: Any) -> Any:
    return panel._verbs()[verb](Call(1, verb, given, lambda _content, _buffers: None))


def test_the_columns_are_those_of_the_comparison(comparison: onnx_nb.types.DecodingComparison) -> None:
    panel = onnx_nb.DecodingPanel(comparison)
    packed = unpacked(panel._parts["columns"])
    count, parts = comparison.errors.shape
    errors = packed.arrays["errors"].reshape(parts, count).T
    assert np.array_equal(errors, comparison.errors.astype(np.float32))
    assert np.array_equal(packed.arrays["faults"].reshape(parts, count).T, comparison.faults)
    rows = comparison.rows()
    for name in ("position", "margin", "difference", "divergence", "reference", "candidate"):
        assert packed.arrays[name].tolist() == [row[name] for row in rows]
    assert packed.arrays["ties"].tolist() == [row["near tie"] for row in rows]
    assert packed.texts("part") == [row["part"] for row in rows]
    assert packed.texts("reference_text") == [""] * count  # without a tokenizer
    step, part = comparison.first_fault or (-1, "")
    assert packed.meta["first"] == [step, comparison.parts.index(part)]
    assert packed.meta["message"] == comparison.message
    assert (packed.meta["drills"], packed.meta["quantized"]) == (True, False)
    assert "layer 2 attention" in panel._still


def test_the_operations_of_a_step_are_shown_with_their_details(comparison: onnx_nb.types.DecodingComparison) -> None:
    panel = onnx_nb.DecodingPanel(comparison)
    with pytest.raises(onnx_nb.OnnxNbError, match="Compare its operations again"):
        ask(panel, "detail", row=0)
    (columns,) = ask(panel, "drill", name="2").buffers
    expected = comparison.drill(2)
    assert panel.drilled is not None
    assert panel.drilled.message == expected.message
    assert unpacked(columns).meta["message"] == expected.message
    (detail,) = ask(panel, "detail", row=3).buffers
    assert unpacked(detail).arrays
    for name in ("6", "-1", "x", "9" * 5000, ""):
        with pytest.raises(onnx_nb.OnnxNbError, match="there is no step"):
            ask(panel, "drill", name=name)


def test_two_that_agree_only_by_their_logits_have_no_layers() -> None:
    logits = np.random.default_rng(0).standard_normal((3, packages.VOCABULARY)).astype(np.float32)
    found = onnx_nb.compare_decoding(logits, packages.decoder(1), IDS)
    meta = unpacked(onnx_nb.DecodingPanel(found)._parts["columns"]).meta
    assert (meta["parts"], meta["drills"], meta["first"]) == ([], False, None)
