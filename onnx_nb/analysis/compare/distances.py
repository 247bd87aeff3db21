"""The distance of two values as one number, to decide which values match; `metrics` has the errors that are reported.

Relative to the peak where only rounding may differ: one wrong element counts in full. Relative to the norm where every
element may be slightly off, as after quantization.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.metrics import ErrorSize, ErrorStats

LOOKED_AT: Final = 1 << 16
"""Elements of a tensor that are compared at most."""


def between(reference: NDArray[Any], candidate: NDArray[Any]) -> float:
    """Return the largest difference of two arrays divided by the largest value; infinite if their shapes differ."""
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


def by_peak(errors: ErrorSize) -> float:
    """Return the same as `between`, over all elements, from known errors."""
    if errors.mismatches:
        return math.inf
    scale = max(abs(errors.low), abs(errors.high)) if errors.finite else 0.0
    return errors.max_abs / (scale or 1.0) if errors.finite else 0.0


def by_norm(errors: ErrorStats) -> float:
    """Return the norm of the errors divided by the larger of both norms; infinite where only one is not finite."""
    if errors.mismatches:
        return math.inf
    if errors.is_equal:
        return 0.0
    largest = max(errors.reference_norm, errors.candidate_norm)
    return errors.error_norm / largest if largest else 0.0
