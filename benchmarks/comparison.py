"""The cost of comparing: `ErrorStats.of` in GB/s, and `compare` in time and memory against keeping both runs.

Run ``python -m benchmarks.comparison``; it fails if errors are slower than 0.15 GB of both arrays in a CPU second, or
if a comparison takes more memory than keeping everything.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.run.random_feeds import random_feeds
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 10_000_000
BATCH = 4
FLOOR = 0.15


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return CPU seconds, the best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def by_numpy(reference: Any, candidate: Any) -> object:
    """Compute some of the same the usual way: no histograms, no worst elements, no NaN."""
    one, other = reference.astype(np.float64), candidate.astype(np.float64)
    delta = np.abs(other - one)
    norms = np.linalg.norm(one), np.linalg.norm(other)
    relative = delta / np.abs(one)
    outside = (~np.isclose(other, one, rtol=1e-3, atol=1e-5)).sum()
    return delta.max(), delta.mean(), (delta**2).mean(), relative.max(), one @ other / norms[0] / norms[1], outside


def all_values(path: Path, feed: dict[str, Any]) -> dict[str, Any]:
    """Run a model with every value as an output."""
    proto = onnx.load(path)
    there = {output.name for output in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name and name not in there]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [output.name for output in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, feed), strict=True))


def keep_all(pair: tuple[Path, Path], feed: dict[str, Any]) -> None:
    """Compare what has the same name, with all values of both in memory."""
    mine, yours = all_values(pair[0], feed), all_values(pair[1], feed)
    for name in mine.keys() & yours.keys():
        if mine[name].shape == yours[name].shape and mine[name].dtype.kind == "f":
            by_numpy(mine[name].ravel(), yours[name].ravel())


def measured(how: str, kind: str) -> None:
    """Run in a process of its own: print seconds, CPU seconds and MiB over the start."""
    pair = models.exported("resnet50", dynamo=True), models.transformed("resnet50", kind)
    feed = random_feeds(pair[0], shapes={"batch": BATCH})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    if how == "ours":
        compare(*pair, feed)
    else:
        keep_all(pair, feed)
    taken = time.perf_counter() - start, time.process_time() - cpu
    print(*taken, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main() -> int:
    """Print the tables; 1 if a limit is missed."""
    passed = True
    random = np.random.default_rng(0)
    reference = random.standard_normal(COUNT)
    candidate = reference + random.standard_normal(COUNT) * 1e-6
    types: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8]
    print(f"{'type':10} {'onnx_nb':>9} {'numpy':>9} {'equal':>9}   GB of both arrays in a CPU second")
    for dtype in types:
        one, other = (reference * 30).astype(dtype), (candidate * 30 + 0.01).astype(dtype)
        nbytes = (one.nbytes + other.nbytes) / 1e9
        same = one.copy()
        speeds = [
            nbytes / cpu_seconds(work)
            for work in (
                lambda one=one, other=other: ErrorStats.of(one, other),
                lambda one=one, other=other: by_numpy(one, other),
                lambda one=one, same=same: ErrorStats.of(one, same),
            )
        ]
        print(f"{one.dtype.name:10} {speeds[0]:9.2f} {speeds[1]:9.2f} {speeds[2]:9.2f}")
        passed &= dtype != np.float32 or speeds[0] >= FLOOR
    small = reference[:672].astype(np.float32), candidate[:672].astype(np.float32)
    print(f"672 values: {cpu_seconds(lambda: [ErrorStats.of(*small) for _ in range(300)]) / 300 * 1e6:.0f} µs")
    print(f"\nResNet-50, batch {BATCH}: seconds, CPU seconds, MiB over the start")
    for kind in ("fp16", "qdq"):
        found = {}
        for how in ("ours", "keep all"):
            command = [sys.executable, "-m", "benchmarks.comparison", how, kind]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
            found[how] = [float(number) for number in done.stdout.split()]
            print(f"{kind:6} {how:9} {found[how][0]:8.2f} {found[how][1]:8.2f} {found[how][2]:8.0f}")
        passed &= found["ours"][2] <= found["keep all"][2]
    return 0 if passed else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measured(sys.argv[1], sys.argv[2])
    else:
        sys.exit(main())
