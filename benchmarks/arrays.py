"""Figures of arrays: `Statistics.of` and `ErrorStats.of` against the same by numpy, each figure a pass of its own.

``python -m benchmarks.arrays``: 25 million values of each dtype for statistics, two times 10 million for errors.
"""

from __future__ import annotations

from benchmarks.measuring import Limit, Report, Way, measured

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int8")
SETUP = """
import ml_dtypes, numpy as np
from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.run.statistics import BINS, Statistics
kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
random = np.random.default_rng(0)
values = (random.standard_normal(count) * 30).astype(kind)

def statistics_by_numpy(values):
    wide = values.astype(np.float32) if kind.isbuiltin == 2 else values
    missing = np.isnan(wide).sum() if wide.dtype.kind == "f" else 0
    return missing, wide.mean(dtype=np.float64), wide.std(dtype=np.float64), wide.min(), wide.max(), \
        np.histogram(wide, BINS)

def errors_by_numpy(reference, candidate):
    # no histograms, no worst elements, no NaN
    one, other = reference.astype(np.float64), candidate.astype(np.float64)
    delta = np.abs(other - one)
    with np.errstate(all="ignore"):
        relative = delta / np.abs(one)
    norms = np.linalg.norm(one), np.linalg.norm(other)
    outside = (~np.isclose(other, one, rtol=1e-3, atol=1e-5)).sum()
    return delta.max(), delta.mean(), (delta**2).mean(), relative.max(), one @ other / norms[0] / norms[1], outside
"""
PAIR = SETUP + "\nother = (values.astype(np.float64) + 0.01).astype(kind)"
STATISTICS = {
    "onnx_nb": Way("Statistics.of(values)", SETUP, 3),
    "numpy": Way("statistics_by_numpy(values)", SETUP, 3),
}
ERRORS = {
    "onnx_nb": Way("ErrorStats.of(values, other)", PAIR, 3),
    "numpy": Way("errors_by_numpy(values, other)", PAIR, 3),
    "equal arrays": Way("ErrorStats.of(values, values.copy())", PAIR, 3),
}
SMALL = {
    "statistics of 100 values, 10,000 times": Way("for _ in range(10_000): Statistics.of(values)", SETUP, 3),
    "errors of 672 values, 1,000 times": Way("for _ in range(1000): ErrorStats.of(values, other)", PAIR, 3),
}


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    for dtype in DTYPES:
        limits = [Limit("cpu", 1, "numpy")] if dtype == "float32" else []
        found = measured(STATISTICS, {"dtype": dtype, "count": 25_000_000}, rounds=3)
        report.compare(f"statistics, {dtype}", found, limits)
    for dtype in DTYPES:
        # 0.15 GB of both arrays in a second of one processor
        limits = [Limit("cpu", 2 * 10_000_000 * 4 / 0.15e9)] if dtype == "float32" else []
        found = measured(ERRORS, {"dtype": dtype, "count": 10_000_000}, rounds=3)
        report.compare(f"errors, {dtype}", found, limits)
    for (what, way), count in zip(SMALL.items(), (100, 672), strict=True):
        report.compare(what, measured({"onnx_nb": way}, {"dtype": "float32", "count": count}))
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
