"""Conditions on the errors of a point, such as ``sqnr < 20 dB``: the one language of `Comparison.failed`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted

_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_DECIBELS: Final = ("sqnr", "psnr")
_FRACTIONS: Final = ("outside", "argmax", "cosine", "rel_l2", "mean_rel", "max_rel")
_COUNT_MISMATCHES: Final = ("mismatches", "outside")
_SYNTAX: Final = re.compile(r"\s*(\w+)?\s*([<>]=?)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(dB|db|%)?\s*")


class Condition(NamedTuple):
    """A metric that is below or above a bound."""

    metric: str
    """One of `METRICS`."""
    sign: str
    """"<", "<=", ">" or ">="."""
    bound: float

    @classmethod
    def read(cls, text: str, metric: str = "") -> Condition:
        """Read a condition such as ``sqnr < 20 dB``; its metric may be given apart from its text."""
        match = _SYNTAX.fullmatch(text)
        name = metric or (match[1] if match and match[1] else "")
        if name and name not in METRICS:
            hint = closest_text(name, METRICS) or f"There are: {', '.join(METRICS)}."
            raise OnnxNbError(f"there is no metric called {quoted(name)}.", advice=hint)
        if match is None or not name or (metric and match[1] not in (None, metric)):
            advice = 'Write a metric, a sign and a number: "sqnr < 20 dB", "cosine < 0.99" or "max_abs >= 1e-3".'
            raise OnnxNbError(f"{quoted(text)} is no condition.", advice=advice)
        unit = match[4] or ""
        fitting = {"": True, "%": name in _FRACTIONS}.get(unit, name in _DECIBELS)
        if not fitting:
            raise OnnxNbError(f"{name} is not in {unit}.", advice=f'Write "{name} {match[2]} {match[3]}".')
        return cls(name, match[2], float(match[3]) / (100 if unit == "%" else 1))

    def holds(self, errors: ErrorStats) -> bool:
        """Return whether errors meet the condition; a metric that is not defined (NaN) meets none."""
        if errors.mismatches and self.metric not in _COUNT_MISMATCHES:
            # these metrics are over the finite pairs only: as bad as can be in their direction
            return _SIGNS[self.sign](-math.inf if METRICS[self.metric].higher_is_better else math.inf, self.bound)
        return _SIGNS[self.sign](errors.metric(self.metric), self.bound)

    def __str__(self) -> str:
        unit = " dB" if self.metric in _DECIBELS else ""
        return f"{self.metric} {self.sign} {self.bound:.15g}{unit}"
