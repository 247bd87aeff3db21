"""Graders of "Where the accuracy goes"."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from . import Lesson, expect, made
from .lesson_06c import scores_of

check: Final = Lesson()
_ENOUGH: Final = 0.96


def _file(answer: Any) -> onnx.ModelProto:
    """Return the model of an answer that is a path."""
    sentence = f"This has type {type(answer).__name__}; the answer is the path of a file."
    expect(isinstance(answer, str | os.PathLike), sentence)
    expect(Path(answer).is_file(), f"There is no file {Path(answer).name}.")
    return onnx.load(answer)


def _right(proto: onnx.ModelProto) -> float:
    """Return the share of new sounds that a model hears right."""
    waves, words = made("sounds")(600, 800, seed=42)
    return float(np.mean(scores_of(proto, waves).argmax(axis=1) == words))


def _expect_quantized(proto: onnx.ModelProto) -> None:
    """Expect that every convolution and product reads rounded values."""
    makers = {name: node.op_type for node in proto.graph.node for name in node.output}
    products = [node for node in proto.graph.node if node.op_type in ("Conv", "MatMul", "Gemm")]
    expect(products, "This file has no convolution and no product: quantize in the format QDQ, which is the default.")
    for node in products:
        is_rounded = all(makers.get(name) == "DequantizeLinear" for name in node.input[:2])
        expect(is_rounded, f"The {node.op_type} {node.name} still reads float values.")


def _expect_accurate(proto: onnx.ModelProto) -> None:
    share = _right(proto)
    expect(share >= _ENOUGH - 0.01, f"Only {share:.0%} of new sounds are heard right.")


@check.exercise(
    1,
    "all_integer",
    "all_integer",
    {
        "prepared": "still reads float",
        "files['static']": "Only",
        "kept": "still reads float",
        "static(prepared, folder / 'wide.onnx', heard, weight_type=QuantType.QInt16)": "Only",
        "static(prepared, folder / 'percentile.onnx', heard, **METHODS['Percentile'])": "Only",
        "files['dynamic']": "format QDQ",
        "folder / 'nothing.onnx'": "There is no file",
        "42": "path of a file",
    },
)
def _all_integer(answer: Any) -> None:
    proto = _file(answer)
    _expect_quantized(proto)
    _expect_accurate(proto)


@check.exercise(
    2,
    "same_loudness",
    "same_loudness",
    {
        "even": "still reads float",
        "files['static']": "still depend on the loudness",
        "all_integer": "more than 8 bits",
        "kept": "still reads float",
        "42": "path of a file",
    },
)
def _same_loudness(answer: Any) -> None:
    proto = _file(answer)
    _expect_quantized(proto)
    wide = {onnx.TensorProto.INT16, onnx.TensorProto.UINT16}
    is_wide = any(weight.data_type in wide for weight in proto.graph.initializer)
    expect(not is_wide, "Some values have more than 8 bits here.")
    waves = made("sounds")(100, 800, seed=43)[0]
    loud, quiet = (scores_of(proto, factor * waves).argmax(axis=1) for factor in (1, 0.02))
    expect(np.mean(loud == quiet) > 0.95, "The answers still depend on the loudness of a sound.")
    _expect_accurate(proto)
