"""`Statistics.of` against the same figures by numpy: mean, std, min, max, NaN and a histogram, in CPU time.

Run ``python -m benchmarks.histograms``; it fails if ours is slower than numpy on float32, or below 0.3 GB/s.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnx_nb.analysis.run.statistics import BINS, Statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COUNT = 25_000_000
REPEATS = 3
FLOOR = 0.3


def by_numpy(values: NDArray[Any]) -> object:
    """Compute the same the usual way, each figure in a pass of its own."""
    missing = np.isnan(values).sum() if values.dtype.kind == "f" else 0
    moments = values.mean(dtype=np.float64), values.std(dtype=np.float64)
    return missing, moments, values.min(), values.max(), np.histogram(values, BINS)


def speed(work: Callable[[NDArray[Any]], object], values: NDArray[Any], nbytes: int) -> float:
    """Return gigabytes in a CPU second, the best of some runs."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        work(values)
        best = min(best, time.process_time() - start)
    return nbytes / best / 1e9


def main() -> int:
    """Print the table; 1 if a limit is missed."""
    random = np.random.default_rng(0).standard_normal(COUNT)
    types: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.int8]
    passed = True
    print(f"{'type':10} {'onnx_nb':>9} {'numpy':>9}   GB of {COUNT:,} values in a CPU second")
    for dtype in types:
        values = (random * 30).astype(dtype)
        ours = speed(Statistics.of, values, values.nbytes)
        wide = values.astype(np.float32) if values.dtype.isbuiltin == 2 else values
        theirs = speed(by_numpy, wide, values.nbytes)
        print(f"{values.dtype.name:10} {ours:9.2f} {theirs:9.2f}")
        if dtype == np.float32:
            passed = ours >= max(FLOOR, theirs)
    small = random[:100].astype(np.float32)
    start = time.process_time()
    for _ in range(10_000):
        Statistics.of(small)
    print(f"100 values: {(time.process_time() - start) * 100:.1f} µs")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
