"""From a file of 100,000 nodes to the buffer that the browser draws from, stage by stage.

The file is a chain of transformer blocks with names as torch's exporter writes them. Every repeat loads the file anew,
so that nothing is kept. Run ``python -m benchmarks.payload``; it fails if the best of the repeats takes a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import onnx

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.graph_columns import columns
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT = 1.0
STAGES = ("load", "graph", "types", "scopes", "columns", "pack")


def measure(path: Path) -> dict[str, float]:
    """Return the seconds of each stage of one run."""
    seconds: dict[str, float] = {}

    def timed(stage: str, action: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = action()
        seconds[stage] = time.perf_counter() - start
        return result

    model = timed("load", lambda: load(path))
    graph = timed("graph", lambda: Graph.of(model))
    timed("types", lambda: graph.problems)
    timed("scopes", lambda: scopes(graph))
    made = timed("columns", lambda: columns(model))
    timed("pack", made.to_bytes)
    return seconds


def main() -> int:
    """Print the stages and compare the whole with the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    path = models.chain(chosen.nodes)

    start = time.perf_counter()
    onnx.load(path)
    peer = time.perf_counter() - start
    whole, busy, runs = [], [], []
    for _ in range(chosen.repeats):
        runs.append(measure(path))
        start, start_busy = time.perf_counter(), time.process_time()
        payload = columns(path).to_bytes()
        whole.append(time.perf_counter() - start)
        busy.append(time.process_time() - start_busy)
    print(
        f"{chosen.nodes:,} nodes, {path.stat().st_size / 1e6:.1f} MB, {os.cpu_count()} cores, best of {chosen.repeats}"
    )
    for stage in STAGES:
        print(f"  {stage:8} {min(run[stage] for run in runs):6.3f} s")
    print(f"  {'whole':8} {min(whole):6.3f} s, CPU {min(busy):.3f} s; limit {LIMIT:.0f} s")
    print(f"  payload  {len(payload) / 1e6:.1f} MB; for comparison onnx.load alone {peer:.3f} s")
    return int(min(whole) >= LIMIT and chosen.nodes <= 100_000)


if __name__ == "__main__":
    sys.exit(main())
