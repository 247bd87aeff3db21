"""What the lessons on precision share: int8 by onnxruntime, and one rounding by hand.

``from waves.formats import quantized, to_int8`` in a notebook beside the folder of this file.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import quantization

import onnx_nb

from .model import waves


class Examples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Hands 256 of the training sounds to the calibration, 64 at a time."""

    def __init__(self) -> None:
        self.batches = iter(waves(4096, seed=0)[0][:256].split(64))  # type: ignore[no-untyped-call]

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """Return the next batch, or None behind the last one."""
        batch = next(self.batches, None)
        return None if batch is None else {"sound": batch.numpy()}


def quantized(model: onnx_nb.Model, path: Path, **options: Any) -> onnx_nb.Model:
    """Write a model in 8 bits, by onnxruntime's static quantization; return it."""
    exact = path.with_name("float.onnx")
    model.save(exact)
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # advice of the quantizer
    try:
        quantization.quantize_static(exact, path, Examples(), **options)
    finally:
        logging.disable(before)
    return onnx_nb.load(path)


def to_int8(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return values that are rounded to 256 levels between the smallest and the largest, and the step."""
    step = float(max(values.max(), 0) - min(values.min(), 0)) / 255
    return np.round(values / step) * step, step
