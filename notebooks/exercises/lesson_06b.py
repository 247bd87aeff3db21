"""Graders of "What precision costs"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

import onnx_nb

from . import Lesson, NotYet, expect, is_number, made

check: Final = Lesson()


def _sqnr(values: Any, rounded: Any) -> float:
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
            _sqnr(made("expected"), *onnx_nb.run(model, made("feeds"), optimize=optimize).values())
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
    "per_channel, sqnr_per_tensor, sqnr_per_channel",
    "(per_channel, *(decibels(outlier[..., others], each[..., others]) for each in (per_tensor, per_channel)))",
    {
        "[to_int8(outlier[..., i])[0] for i in range(32)], 0, 0": "last axis",
        "outlier, 0, 0": "Nothing is rounded",
        "per_tensor, 0, 0": "range of its own channel",
        "np.apply_along_axis(lambda piece: to_int8(piece)[0], 1, outlier), 0, 0": "different values",
        "per_channel, decibels(outlier, per_tensor), decibels(outlier, per_channel)": "without channel 5",
        "(per_channel, *(decibels(outlier[..., others], x[..., others]) for x in (per_channel, per_tensor)))": (
            "the other way round"
        ),
        'per_channel, "0", "45"': "two numbers",
    },
)
def _step_per_channel(per_channel: Any, sqnr_per_tensor: Any, sqnr_per_channel: Any) -> None:
    values = made("spoiled").recording["blocks.1.norm1"].astype(np.float64)
    rounded = np.asarray(per_channel, np.float64)
    shapes = f"{list(rounded.shape)} instead of {list(values.shape)}"
    expect(rounded.shape == values.shape, f"The rounded values have the shape {shapes}: channels are the last axis.")
    expect(not np.array_equal(rounded, values), "Nothing is rounded in this array.")
    low, high = (np.broadcast_to(edge(values, axis=(0, 1)), values.shape) for edge in (np.min, np.max))
    limits = np.maximum(np.abs(low), np.abs(high))
    own = "Some values are off by more than a step: take each step from the range of its own channel."
    expect((np.abs(rounded - values) <= limits / 127).all(), own)
    most = max(len(np.unique(rounded[..., place].round(9))) for place in range(values.shape[-1]))
    expect(
        most <= 256, f"One channel has {most:,} different values, and an int8 has 256: one step for a whole channel."
    )
    expect(is_number(sqnr_per_tensor) and is_number(sqnr_per_channel), "The signal to noise ratios are two numbers.")
    one_step = made("to_int8")(values)[0]
    others = np.arange(values.shape[-1]) != 5
    right = [_sqnr(values[..., others], each[..., others]) for each in (one_step, rounded)]
    if abs(sqnr_per_channel - right[0]) < 1 and abs(sqnr_per_tensor - right[1]) < 1:
        raise NotYet("These are the right numbers the other way round.")
    given = "signal to noise ratio is another: compute it without channel 5, which is far larger than the others."
    expect(abs(sqnr_per_tensor - right[0]) < 1, f"The first {given}")
    expect(abs(sqnr_per_channel - right[1]) < 0.2, f"The second {given}")


@check.exercise(
    3,
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


_BEST: Final = """[max(shares * stem.max(), key=lambda limit: decibels(stem, np.round(
    np.clip(stem, 0, limit) * (2**bits - 1) / limit) * limit / (2**bits - 1))) for bits in (8, 4)]"""


def _clipped(values: Any, limit: float, bits: int) -> float:
    """Return the signal to noise ratio of values that are clipped to a limit and rounded."""
    step = limit / (2**bits - 1)
    return _sqnr(values, np.round(np.clip(values, 0, limit) / step) * step)


@check.exercise(
    4,
    "limit8, limit4",
    f"tuple({_BEST})",
    {
        "shares, stem": "two numbers",
        f"tuple(limit / stem.max() for limit in {_BEST})": "share of the largest value",
        f"tuple({_BEST}[::-1])": "In 8 bits, a larger limit",
        "stem.max(), stem.max()": "In 4 bits, a smaller limit",
        "stem.max(), stem.max() / 2": "In 4 bits, a larger limit",
        "stem.max(), 0.0": "lies between 0 and the largest value",
    },
)
def _limits(limit8: Any, limit4: Any) -> None:
    expect(is_number(limit8) and is_number(limit4), "The answer is two numbers, the limits in 8 and in 4 bits.")
    stem = made("c").recording["stem.2"].astype(np.float64)
    shares = np.linspace(0.2, 1, 41)
    for bits, limit in (8, limit8), (4, limit4):
        expect(0 < limit <= 1.001 * stem.max(), "A limit lies between 0 and the largest value of the stem's result.")
        found = [_clipped(stem, share * stem.max(), bits) for share in shares]
        if max(found) - _clipped(stem, limit, bits) > 0.2:
            is_share = limit <= 1 and max(found) - _clipped(stem, limit * stem.max(), bits) < 0.2
            expect(not is_share, "This seems to be a share of the largest value: multiply it by that.")
            better = "larger" if limit < shares[np.argmax(found)] * stem.max() else "smaller"
            raise NotYet(f"In {bits} bits, a {better} limit has a better signal to noise ratio.")
