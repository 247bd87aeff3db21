"""Graders of "A channel that spoils the others"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from . import Lesson, NotYet, expect, is_number, made
from .lesson_06b import sqnr

check: Final = Lesson()


@check.exercise(
    1,
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
    right = [sqnr(values[..., others], each[..., others]) for each in (one_step, rounded)]
    if abs(sqnr_per_channel - right[0]) < 1 and abs(sqnr_per_tensor - right[1]) < 1:
        raise NotYet("These are the right numbers the other way round.")
    given = "signal to noise ratio is another: compute it without channel 5, which is far larger than the others."
    expect(abs(sqnr_per_tensor - right[0]) < 1, f"The first {given}")
    expect(abs(sqnr_per_channel - right[1]) < 0.2, f"The second {given}")


_BEST: Final = """[max(shares * stem.max(), key=lambda limit: decibels(stem, np.round(
    np.clip(stem, 0, limit) * (2**bits - 1) / limit) * limit / (2**bits - 1))) for bits in (8, 4)]"""


def _clipped(values: Any, limit: float, bits: int) -> float:
    """Return the signal to noise ratio of values that are clipped to a limit and rounded."""
    step = limit / (2**bits - 1)
    return sqnr(values, np.round(np.clip(values, 0, limit) / step) * step)


@check.exercise(
    2,
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
    stem = made("exact").recording["stem.2"].astype(np.float64)
    shares = np.linspace(0.2, 1, 41)
    for bits, limit in (8, limit8), (4, limit4):
        expect(0 < limit <= 1.001 * stem.max(), "A limit lies between 0 and the largest value of the stem's result.")
        found = [_clipped(stem, share * stem.max(), bits) for share in shares]
        if max(found) - _clipped(stem, limit, bits) > 0.2:
            is_share = limit <= 1 and max(found) - _clipped(stem, limit * stem.max(), bits) < 0.2
            expect(not is_share, "This seems to be a share of the largest value: multiply it by that.")
            better = "larger" if limit < shares[np.argmax(found)] * stem.max() else "smaller"
            raise NotYet(f"In {bits} bits, a {better} limit has a better signal to noise ratio.")
