"""Graders of "Quantization in practice"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from . import Lesson, NotYet, expect, is_number, made

check: Final = Lesson()


def scores_of(proto: onnx.ModelProto, waves: Any) -> Any:
    """Run a model with onnxruntime alone, 50 sounds at a time."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the sentence says what is wrong
    options.intra_op_num_threads = 1  # as the lesson has it
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (feed,) = session.get_inputs()
    return np.concatenate([session.run(None, {feed.name: part})[0] for part in np.split(waves, len(waves) // 50)])


_ARRAYS: Final = {
    "values of both signs": np.linspace(-1, 3, 41, dtype=np.float32),
    "positive values that do not reach 0": np.linspace(2, 5, 31, dtype=np.float32),
    "negative values": np.linspace(-7, -1, 31, dtype=np.float32),
    "zeros": np.zeros(5, np.float32),
}
_BY_HAND: Final = """lambda v: (lambda low, high: (
    np.clip(np.round(v / ((high - low) / 255 or 1)) + %s, 0, 255).astype(%s), (high - low) / 255 or 1, %s))(%s)"""
_ENDS: Final = "min(v.min(), 0), max(v.max(), 0)"
_ZERO: Final = "int(np.round(-low / ((high - low) / 255 or 1)))"


@check.exercise(
    1,
    "quantize",
    "quantize",
    {
        _BY_HAND % (_ZERO, "np.int8", _ZERO, _ENDS): "unsigned 8 bits",
        _BY_HAND % (_ZERO, "np.uint8", _ZERO, "v.min(), v.max()"): "positive values that do not reach 0",
        _BY_HAND % ("0", "np.uint8", "0", _ENDS): "off by more than half a step",
        _BY_HAND % ("-low * 255 / (high - low or 1)", "np.uint8", "-low * 255 / (high - low or 1)", _ENDS): "integer",
        "lambda v: (quantize(v)[0], 2 * quantize(v)[1], quantize(v)[2])": "off by more than half a step",
        "lambda v: quantize(v)[0]": "three things",
        "quantize(pieces)[0]": "is a function",
    },
)
def _quantize(answer: Any) -> None:
    expect(callable(answer), f"This has type {type(answer).__name__}; `quantize` is a function of an array.")
    for title, values in _ARRAYS.items():
        parts = answer(values)
        is_triple = isinstance(parts, tuple) and len(parts) == 3
        expect(is_triple, "The function should return three things: integers, scale, zero point.")
        q, scale, zero = parts
        is_bytes = isinstance(q, np.ndarray) and q.dtype == np.uint8
        expect(is_bytes, "The first part should be an array of unsigned 8 bits, `uint8`.")
        expect(is_number(zero) and zero == int(zero), f"For {title}, the zero point is {zero}, and no integer.")
        expect(0 <= zero <= 255, f"For {title}, the zero point is {zero}; it should lie from 0 to 255, so that 0 fits.")
        back = scale * (q.astype(np.float64) - zero)
        width = float(max(values.max(), 0) - min(values.min(), 0)) / 255
        off = np.abs(back - values).max()
        expect(off <= 0.51 * width + 1e-6, f"For {title}, the result is off by more than half a step.")


@check.exercise(
    2,
    "gigabytes",
    "gigabytes",
    {
        "3.5": "scales take space, too",
        "7e9 * (4 + 32 / 32) / 8 / 1e9": "16 bits",
        "31.5": "in bits",
        "gigabytes * 1e9": "10⁹ bytes",
        "gigabytes * 1e9 / 2**30": "not 2³⁰",
        "'3.9'": "number",
        "14": "another number",
    },
)
def _gigabytes(answer: Any) -> None:
    expect(is_number(answer), f"This has type {type(answer).__name__}; the answer is a number.")
    hints = {
        3.5: "These are the weights alone: the scales take space, too.",
        4.375: "That would be a scale of 32 bits for each block; here it has 16 bits.",
        31.5: "This is the size in bits; a byte has 8.",
        3.9375e9: "This is in bytes; a gigabyte has 10⁹ bytes.",
        3.9375e9 / 2**30: "Here a gigabyte is 10⁹ bytes, and not 2³⁰.",
    }
    for wrong, hint in hints.items():
        expect(not np.isclose(answer, wrong, rtol=1e-3), hint)
    expect(np.isclose(answer, 3.9375, rtol=5e-3), "It is another number: how many bits has one weight with its share?")


@check.exercise(
    3,
    "product_name",
    "product_name",
    {
        "gains": "name of a node",
        "min(gains, key=gains.get)": "gains more",
        "'node_conv1d'": "no MatMul",
        "'MatMul'": "no node of that name",
    },
)
def _product(answer: Any) -> None:
    expect(isinstance(answer, str), f"This has type {type(answer).__name__}; the answer is the name of a node.")
    proto = onnx.load(made("prepared"))
    kinds = {node.name: node.op_type for node in proto.graph.node}
    expect(answer in kinds, "The file has no node of that name.")
    expect(kinds[answer] == "MatMul", f"{answer} is a {kinds[answer]}, and no MatMul.")
    waves = made("test")[:600]
    exact, gains = scores_of(proto, waves), dict[str, float]()
    for name in (name for name, kind in kinds.items() if kind == "MatMul"):
        quantizer = MatMulNBitsQuantizer(
            onnx.load(made("prepared")), bits=4, block_size=32, is_symmetric=True, nodes_to_exclude=[name]
        )
        quantizer.process()
        gains[name] = -float(np.linalg.norm(scores_of(quantizer.model.model, waves) - exact))
    if gains[answer] < 1.03 * max(gains.values()):  # both are negative
        raise NotYet("Another product gains more, if it is the one that stays in float.")
