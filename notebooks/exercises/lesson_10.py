"""Graders of "Where the time goes"."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

import onnx_nb

from . import Lesson, expect, made, opened

check: Final = Lesson()


def _enlarged(mode: str) -> Any:
    """Return what the network makes of the image with another interpolation."""
    net, image = made("net"), made("image")
    with torch.no_grad():
        small = net.blocks(net.stem(image))
        return net.colors(functional.interpolate(small, scale_factor=made("FACTOR"), mode=mode)).numpy()


@check.exercise(
    1,
    "cheap, difference",
    "cheap, difference",
    {
        "bilinear, difference": "returns a model",
        "early, difference": "still computes",
        "onnx_nb.export(Bilinear().eval(), image, **NAMES), difference": "the weights of `net`",
        "cheap, False": "is a number",
        "cheap, 0.0": "not the same",
        'cheap, np.abs(onnx_nb.run(cheap, feeds)["enlarged"] - expected).mean()': "the mean",
        "cheap, 2 * difference": "has to be",
    },
)
def _bilinear(answer: Any, difference: Any) -> None:
    model = opened(answer, f"The first answer is of type {type(answer).__name__}; `onnx_nb.export` returns a model.")
    (result,) = onnx_nb.run(model, [made("image").numpy()]).values()
    bicubic, bilinear = _enlarged("bicubic"), _enlarged("bilinear")
    expect(result.shape == bilinear.shape, f"The result has shape {result.shape}; it should be {bilinear.shape}.")
    expect(not np.allclose(result, bicubic, atol=1e-4), "The model still computes the bicubic interpolation.")
    expect(
        np.allclose(result, bilinear, atol=1e-4),
        "The model does not compute the bilinear interpolation with the weights of `net`: did you load them?",
    )
    number = np.asarray(difference)
    is_number = number.size == 1 and number.dtype.kind in "fiu"
    expect(is_number, "The second answer is a number: the largest difference between the new and the old images.")
    off = np.abs(bilinear - bicubic)
    found = float(number.item())
    expect(abs(found) > 1e-4, "The images are not the same: subtract them, and take the largest difference.")
    expect(not np.isclose(found, off.mean(), rtol=1e-3), "This is the mean of the differences, and not the largest.")
    expect(
        np.isclose(abs(found), off.max(), rtol=1e-3),
        "This is not the largest difference: it has to be between what `cheap` computes of `image` and `expected`.",
    )


@check.exercise(
    2,
    "longest",
    "longest",
    {
        'longest["dur"]': "one of the dictionaries",
        "events": "one of the dictionaries",
        '{"traceEvents": events}': "the whole file",
        "min(events, key=lambda event: event['dur'])": "takes longer",
        "max(events, key=lambda event: event['ts'])": "begins last",
    },
)
def _time_line(answer: Any) -> None:
    expect(isinstance(answer, dict), "The answer is an event, which is one of the dictionaries of the list.")
    expect("traceEvents" not in answer, "This is the whole file; the answer is one of its `traceEvents`.")
    expect("dur" in answer and "args" in answer, "This is no event of the file: an event has `dur` and `args`.")
    with tempfile.TemporaryDirectory() as folder:
        trace = made("p").to_chrome_trace(Path(folder, "slow.json"))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    # a profile made anew has other times, but the same kernel takes by far the most of them
    longest = max(events, key=lambda event: event["dur"])
    is_right = answer["args"]["op"] == longest["args"]["op"]
    last = max(events, key=lambda event: event["ts"])
    expect(is_right or answer != last, "This event begins last; the longest one has the largest `dur`.")
    expect(is_right, "Another event takes longer: compare `dur`.")
