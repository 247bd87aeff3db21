"""Graders of "What precision costs"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

import onnx_nb

from . import Lesson, expect, is_number, made

check: Final = Lesson()


def sqnr(values: Any, rounded: Any) -> float:
    """Return the signal to noise ratio of rounded values, in decibels."""
    values, rounded = np.asarray(values, np.float64), np.asarray(rounded, np.float64)
    return float(-20 * np.log10(np.linalg.norm(rounded - values) / np.linalg.norm(values)))


_CHOSEN: Final = {"MatMul", "Gemm", "Conv"}


def _expect_chosen(proto: Any) -> None:
    """Expect that a model rounds what the chosen operators read and return, and nothing else."""
    nodes, readers = proto.graph.node, dict[str, list[Any]]()
    makers = {name: node.op_type for node in nodes for name in node.output}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in nodes:
        exact = [name for name in node.input[:2] if makers.get(name) != "DequantizeLinear"]
        is_exact = node.op_type in _CHOSEN and exact
        expect(not is_exact, f"A `{node.op_type}` reads values that are not rounded: quantize all three operators.")
        if node.op_type == "QuantizeLinear":
            pairs = readers.get(node.output[0], [])
            ends = {reader.op_type for pair in pairs for reader in readers.get(pair.output[0], [])}
            is_chosen = not _CHOSEN.isdisjoint(ends | {makers.get(node.input[0])})
            expect(is_chosen, f"What {', '.join(sorted(ends))} reads is rounded as well, and should stay in float.")


@check.exercise(
    1,
    "only, gain, largest",
    'only, gain, fewer.ranked("rel_l2")[0].name',
    {
        'fewer, gain, "stem.1"': "it should be the quantized model",
        'c.model, gain, "stem.1"': "all three operators",
        'eight, gain, "stem.1"': "should stay in float",
        'only, fewer["head"].cumulative.sqnr, "stem.1"': "before and after",
        'only, -gain, "stem.1"': "The better model",
        'only, 2.5 * gain, "stem.1"': "the difference of two",
        "only, gain, fewer": "name of a point",
        'only, gain, "blocks.0.softmax"': "no point",
        "only, gain, min(fewer.points, key=lambda point: point.isolated.rel_l2)": "larger relative error",
    },
)
def _float_between(only: Any, gain: Any, largest: Any) -> None:
    is_model = isinstance(only, onnx_nb.Model)
    expect(is_model, f"The first part is a {type(only).__name__}; it should be the quantized model.")
    _expect_chosen(only.proto)
    expect(is_number(gain), "The second part is a number of decibels.")
    c, net, sound, gains = made("c"), made("net"), made("sound"), []
    for optimize in False, True:
        before, after = (
            sqnr(made("expected"), *onnx_nb.run(model, made("feeds"), optimize=optimize).values())
            for model in (made("eight"), only)
        )
        expect(after > 20, "The model computes something else than the network: quantize `c.model`.")
        expect(
            abs(gain - after) > 0.2, "That is what is left of the signal; what is gained is between before and after."
        )
        gains.append(after - before)
    expect(gain > 0, "The better model has the larger signal to noise ratio: the gain is positive.")
    is_gain = any(abs(gain - right) < 0.3 for right in gains)
    expect(
        is_gain, "The gain is the difference of two signal to noise ratios at the head: those of `eight` and of yours."
    )
    name = largest.name if isinstance(largest, onnx_nb.types.Point) else largest
    expect(isinstance(name, str), f"The last part is a {type(largest).__name__}; it should be the name of a point.")
    compared = onnx_nb.compare_torch(net, sound, model=only, alignment=c.alignment)
    expect(name in compared, f"A comparison of this model with PyTorch has no point {name!r}.")
    expect(compared[name] is compared.ranked("rel_l2")[0], "Another point has a larger relative error of its own.")


@check.exercise(
    2,
    "divisor",
    "2**power",
    {
        "raw / 4": "This is a Tensor",
        "largest / np.finfo(np.float16).max": "no power of two",
        "2 ** (power - 1)": "still overflow",
        "2 ** (power + 1)": "half of that",
    },
)
def _divisor(answer: Any) -> None:
    expect(is_number(answer), f"This is a {type(answer).__name__}; the answer is a number.")
    expect(answer > 0 and np.log2(answer) % 1 == 0, f"{answer:.6g} is no power of two.")
    with torch.no_grad():
        largest, smaller = (
            made("net").stem[:2](made("raw") / divisor).abs().max().item() for divisor in (answer, answer / 2)
        )
    limit = float(np.finfo(np.float16).max)
    expect(largest <= limit, "Divided by that, some values still overflow: look at the largest one of `stem.1`.")
    expect(smaller > limit, "Divided by half of that, nothing overflows either.")
