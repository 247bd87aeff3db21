"""How far two values are apart, in one number, to tell which value is which; `metrics` has what a person is told.

By the peak, where rounding is all that may differ: one wrong element counts in full. By the norm, where all elements
may be off a bit, as after quantization.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.metrics import ErrorStats

LOOKED_AT: Final = 1 << 16
"""So many numbers of a tensor are looked at to tell it from another."""


def between(reference: NDArray[Any], candidate: NDArray[Any]) -> float:
    """Return how far two arrays are apart, relative to the largest value; infinite if their shapes differ.

    >>> between(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    0.25
    """
    if reference.shape != candidate.shape or not reference.size:
        return 0.0 if reference.shape == candidate.shape else math.inf
    step = max(1, reference.size // LOOKED_AT)
    kind = np.complex128 if reference.dtype.kind == "c" else np.float64
    a, b = reference.reshape(-1)[::step].astype(kind), candidate.reshape(-1)[::step].astype(kind)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0  # infinities and NaN
        scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        found = float(apart.max()) / (scale or 1.0)
    return math.inf if math.isnan(found) else found


def by_peak(errors: ErrorStats) -> float:
    """Return the same, over all elements, from errors that are known."""
    if errors.mismatches:
        return float("inf")
    scale = max(abs(errors.low), abs(errors.high)) if errors.finite else 0.0
    return errors.max_abs / (scale or 1.0) if errors.finite else 0.0


def by_norm(errors: ErrorStats) -> float:
    """Return how far two values are apart, relative to the larger of both; infinite where one is not finite."""
    if errors.mismatches:
        return math.inf
    if errors.is_equal:
        return 0.0
    largest = max(errors.reference_norm, errors.candidate_norm)
    return errors.error_norm / largest if largest else 0.0
