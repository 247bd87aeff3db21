"""Quantizers of a comparison as packed columns, and what putting regions back to float gains as JSON."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.compare.quantization import Quantizer
from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.quantize.what_if import ExclusionCurve, WhatIf
from onnx_nb.analysis.view.columns import numbers, texts

NUMBERS: Final = ("zero_point", "low", "high", "clipped", "used", "rmse_per_scale", "relative", "excess")
"""Numbers of a quantizer that are columns."""
LONGEST: Final = 300
"""Maximum number of characters of a message."""


def quantizer_columns(comparison: Comparison) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return arrays and texts of all quantizers, and the shares of each point's error; none where nothing is quantized.

    ``frontend/protocol/comparison.ts`` reads them.
    """
    points = comparison.points
    # the worst fault first, then those without one in order of execution
    quantizers = sorted(comparison.quantizers, key=lambda entry: -entry.excess if entry.fault else 0.0)
    if not quantizers:
        return {}, {}
    reversal = [*enumerate(points)][::-1]
    region = {id(entry): place for place, point in reversal for entry in point.quantizers}
    rows = {point.reference: place for place, point in reversal} | {point.name: place for place, point in reversal}
    spread = [entry.spread for entry in quantizers]
    scales = np.asarray([entry.scale for entry in quantizers], np.float64)
    arrays: dict[str, Any] = {
        f"blame_{share}": np.asarray([point.blame.get(share, math.nan) for point in points])
        for share in ("weights", "rounding", "clipping")
    }
    arrays |= numbers(quantizers, NUMBERS, "quantizer_") | {
        "quantizer_scale": scales[:, 1].copy(),
        "quantizer_least": scales[:, 0].copy(),
        "quantizer_above": np.asarray([entry.above / max(entry.count, 1) for entry in quantizers]),
        "quantizer_point": np.asarray([rows.get(entry.name, region[id(entry)]) for entry in quantizers], np.int32),
        "quantizer_region": np.asarray([region[id(entry)] for entry in quantizers], np.int32),
        "quantizer_end": np.cumsum([len(entry) for entry in spread], dtype=np.uint32),
        "quantizer_before": np.concatenate(spread).astype(np.float64),
        "quantizer_after": np.concatenate([_rounded(entry) for entry in quantizers]).astype(np.float64),
    }
    names = ("name", "node", "role", "dtype", "granularity", "fault", "message")
    words = texts(quantizers, names, "quantizer_", LONGEST)
    # by themselves they are sentences
    words["quantizer_message"] = [f"{text[:1].upper()}{text[1:]}." for text in words["quantizer_message"]]
    reasons = WhatIf(comparison).always_quantized()
    words["fixed"] = [shortened(reasons.get(point.name, ""), LONGEST) for point in points]
    return arrays, words


def _rounded(quantizer: Quantizer) -> Any:
    """Return the counts of `Quantizer.spread` after rounding, of the integers themselves where they are known."""
    counts = np.array(quantizer.spread)
    beyond = len(counts) // 6
    inside = len(counts) - 2 * beyond
    if len(quantizer.levels) and inside:
        counts[:] = 0
        counts[beyond : beyond + inside] = quantizer.levels.reshape(inside, -1).sum(axis=1)
    elif beyond:
        counts[beyond] += counts[:beyond].sum()
        counts[-beyond - 1] += counts[-beyond:].sum()
        counts[:beyond] = counts[-beyond:] = 0
    return counts


def curve_steps(curve: ExclusionCurve | None) -> list[dict[str, Any]]:
    """Return the steps of a curve as JSON, where a number that is not finite is a text for JavaScript."""
    steps = () if curve is None else curve.steps
    return [
        {"name": step.name, "nodes": list(step.nodes)}
        | {name: _finite(getattr(step, name)) for name in ("sqnr", "kl", "top1", "seconds")}
        for step in steps
    ]


def _finite(number: float) -> float | str:
    return number if math.isfinite(number) else str(number).replace("inf", "Infinity").replace("nan", "NaN")
