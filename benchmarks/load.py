"""`onnx_nb.load` against `onnx.load`: time by ratio in one process, memory in processes of their own.

The models are made on the spot: 1 GB in one file, one of ResNet-50's size, and a chain of 100,000 nodes.
Run ``python -m benchmarks.load``; it fails if 1 GB does not open 50 times as fast as with onnx, or takes 20 MB or more.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_nb
from onnx_nb.analysis.model.model import load

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
MODELS = {
    # name: (weights, bytes of each, nodes)
    "1 GB": (256, 4 << 20, 256),
    "ResNet-50's size": (161, 600_000, 123),
    "100,000 nodes": (200, 4000, 100_000),
}
LEAST_RATIO = 50
MOST_GROWTH = 20.0


def make(path: Path, weights: int, nbytes: int, nodes: int) -> None:
    """Write a chain of Add nodes that read the weights in turn."""
    data = np.random.default_rng(0).bytes(nbytes // 4 * 4)
    names = [f"layers.{i}.weight" for i in range(weights)]
    chain = [
        helper.make_node("Add", [f"t{i}", names[i % weights]], [f"t{i + 1}"], f"/layers.{i}/Add") for i in range(nodes)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [nbytes // 4]) for name in ("t0", f"t{nodes}")]
    initializers = [
        TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[nbytes // 4], raw_data=data) for name in names
    ]
    graph = helper.make_graph(chain, "chain", ends[:1], ends[1:], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def seconds(action: Callable[[], object], repeats: int) -> float:
    """Return the median of the repeats; the result of each is dropped inside the measured time of the next."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        kept = action()
        times.append(time.perf_counter() - start)
        del kept
    return statistics.median(times)


def growth(statement: str, path: Path) -> float:
    """Return how much the peak memory of a fresh process grows, in MB, when it runs the statement."""
    script = (
        "import re, sys, onnx, onnx_nb; from onnx_nb.analysis.model.model import load;"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]);"
        # importing may have peaked higher than what is left of it: start from what is there now
        "open('/proc/self/clear_refs', 'w').write('5');"
        f"before = peak(); model = {statement}; print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, cwd=ROOT)
    return int(done.stdout) * 1024 / 1e6


def main() -> int:
    """Print a table; return whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats: int = parser.parse_args().repeats
    print(f"onnx {onnx.__version__}, onnx_nb {onnx_nb.__version__}; medians of {repeats}")
    print(f"{'model':<18}{'onnx.load':>11}{'onnx_nb':>11}{'ratio':>8}{'onnx MB':>10}{'onnx_nb MB':>12}")
    held = True
    with tempfile.TemporaryDirectory() as folder:
        for name, (weights, nbytes, nodes) in MODELS.items():
            path = Path(folder) / "model.onnx"
            make(path, weights, nbytes, nodes)
            ours = seconds(lambda path=path: load(path), repeats)  # type: ignore[misc]  # bound now, for ruff
            theirs = seconds(lambda path=path: onnx.load(path), repeats)  # type: ignore[misc]
            memory = growth("load(sys.argv[1])", path), growth("onnx.load(sys.argv[1])", path)
            print(
                f"{name:<18}{theirs:>10.4f}s{ours:>10.4f}s{theirs / ours:>8.1f}{memory[1]:>10.1f}{memory[0]:>12.1f}",
                flush=True,
            )
            if name == "1 GB":
                held = theirs / ours >= LEAST_RATIO and memory[0] < MOST_GROWTH
    print("holds" if held else f"FAILS: 1 GB must open {LEAST_RATIO} times as fast, with under {MOST_GROWTH:.0f} MB")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
