"""What the lessons on quantization share: a test set that judges a file, and files in other formats.

``from vowels.formats import accuracy, exported, static, tested`` in a notebook beside the folder of this file.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime import quantization

import onnx_nb

from .model import sounds


@functools.cache
def tested() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the 1,000 sounds of the test set, and the number of the word of each."""
    return sounds(1000, length=800, seed=5)


def scores(path: Path) -> NDArray[np.float32]:
    """Return what a file makes of the test set, by onnxruntime alone, a hundred sounds at a time."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # in a network this small, threads only wait for each other
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"sound": part})[0] for part in np.split(tested()[0], 10)])


def accuracy(path: Path) -> float:
    """Return the share of the test set that a file hears right."""
    return float(np.mean(scores(path).argmax(axis=1) == tested()[1]))


def decibels(exact: NDArray[np.floating], rounded: NDArray[np.floating]) -> float:
    """Return the signal to noise ratio of rounded values."""
    return float(20 * np.log10(np.linalg.norm(exact) / np.linalg.norm(rounded - exact)))


def exported(net: Any, path: Path) -> Path:
    """Export a network for any number of sounds of any length; return the path of the file."""
    names: dict[str, Any] = {"input_names": ["sound"], "output_names": ["scores"]}
    example, dynamic = torch.from_numpy(tested()[0][:2]), ({0: "batch", 1: "samples"},)
    proto = onnx_nb.export(net, example, dynamic_shapes=dynamic, **names).to_proto()
    for node in proto.graph.node:
        del node.metadata_props[:]  # notes of the exporter, a tenth of the file
    onnx.save(proto, path)
    return path


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Hands one sound after the other to the calibration."""

    def __init__(self, waves: Iterable[NDArray[np.float32]]) -> None:
        self.waves = iter(waves)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """Return the next sound, or None behind the last one."""
        wave = next(self.waves, None)
        return None if wave is None else {"sound": wave[None]}


def static(model: Path, path: Path, waves: Iterable[NDArray[np.float32]], **options: Any) -> Path:
    """Quantize a file statically with some calibration data; return the path of the new file."""
    with contextlib.redirect_stdout(io.StringIO()):  # a calibration by histograms prints its steps
        quantization.quantize_static(model, path, Reader(waves), **options)
    return path
