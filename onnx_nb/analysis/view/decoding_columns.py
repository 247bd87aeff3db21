"""A comparison of decoders as packed columns: steps across, halves of layers down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_nb.analysis.view.columns import Columns, numbers

if TYPE_CHECKING:
    from onnx_nb.analysis.generate.compare_decoding import DecodingComparison


def decoding_columns(comparison: DecodingComparison) -> Columns:
    """Return the steps, and the errors of all parts at each; ``frontend/panels/decoding.ts`` reads them."""
    rows, steps = comparison.rows(), comparison.steps
    arrays: dict[str, Any] = numbers(steps, ("position", "margin", "difference", "divergence")) | {
        "errors": comparison.errors.T.ravel().astype(np.float32),
        "faults": comparison.faults.T.ravel().astype(np.int32),
        "ties": np.asarray([row["near tie"] for row in rows], np.uint8),
        "worst": np.asarray([row["error"] for row in rows], np.float64),
    }
    words = {"part": [row["part"] for row in rows]}
    for side in ("reference", "candidate"):
        tokens = [getattr(step, side) for step in steps]
        arrays[side] = np.asarray(tokens, np.int32)
        words[f"{side}_text"] = comparison.texts(tokens)
    fault = comparison.first_fault
    meta = {
        "name": comparison.name,
        "message": comparison.message,
        "parts": comparison.parts,
        "first": None if fault is None else (fault[0], comparison.parts.index(fault[1])),
        "quantized": comparison.has_quantization,
        "drills": comparison.models is not None,
    }
    return Columns.of(arrays, words, meta)
