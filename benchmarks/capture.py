"""`onnx_nb.capture` against adding every value as an output, and against a plain run: CPU time and peak memory.

Each figure comes from a process of its own: CPU seconds of all its threads, and how much its peak memory (VmHWM) grows.
Statistics are part of ours; of the peer's, numpy's minimum, maximum, mean and standard deviation are listed separately.
Run ``python -m benchmarks.capture``; it fails if capturing takes longer than adding every output, more memory than a
plain run (ResNet-50, batch 8) or half of that of all outputs (chain), or exceeds its memory limit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.capture import capture
from tests import models

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
LIMIT = 64 << 20
"""Memory limit for the model whose values take ten times as much."""
SLACK = 32 << 20
"""Bytes for a session, its code and onnxruntime's bookkeeping, in addition to values."""
REPEATS = 7
"""Number of processes; the fastest counts. With three the result varies by three percent."""


def wide(path: Path) -> None:
    """Write a model of 80 nodes, each making 8 MiB; up to three of them must be alive."""
    nodes = []
    for i in range(40):
        nodes += [
            helper.make_node("Neg", [f"t{i}"], [f"n{i}"], f"neg{i}"),
            helper.make_node("Max", [f"t{i}", f"n{i}"], [f"t{i + 1}"], f"max{i}"),
        ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("t0", "t40")]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def feeds(kind: str) -> dict[str, Any]:
    """Return the feeds of a model."""
    random = np.random.default_rng(0)
    shapes = {"resnet": ("pixel_values", (8, 3, 224, 224)), "chain": ("x", (2, 7, 4)), "wide": ("t0", (2 << 20,))}
    name, shape = shapes[kind]
    return {name: random.standard_normal(shape).astype(np.float32)}


def plain(path: str, kind: str) -> dict[str, float]:
    """Run the model, nothing else."""
    session.run(path, feeds(kind))
    return {}


def every_output(path: str, kind: str) -> dict[str, float]:
    """Add every value as an output, and compute statistics of them after the time is taken."""
    model = load(path)
    names = [name for node in model.proto.graph.node for name in node.output if name]
    found = session.run_session(session.create(model, optimize=False, outputs=names), feeds(kind))
    before = time.process_time()
    for array in found.values():
        array.min(), array.max(), array.mean(), array.std()
    return {"numpy": time.process_time() - before, "bytes": sum(array.nbytes for array in found.values())}


def captured(path: str, kind: str) -> dict[str, float]:
    """Capture every value with its statistics."""
    options: dict[str, Any] = {"memory_limit": LIMIT} if kind == "wide" else {}
    cap = capture(path, feeds(kind), **options)
    return {"windows": cap.windows, "values": len(cap)}


WAYS: dict[str, Callable[[str, str], dict[str, float]]] = {
    "plain": plain,
    "every output": every_output,
    "capture": captured,
}


def child(way: str, path: str, kind: str) -> None:
    """Run one way in this process and print its figures."""
    # the first session of a process sets onnxruntime up
    session.run(models.one_node(), {"x": np.zeros(2, np.float32)})
    capture(models.one_node())
    # importing may have peaked higher than what is left of it: start from what is there now
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    memory, cpu, wall = peak(), time.process_time(), time.perf_counter()
    more = WAYS[way](path, kind)
    cpu, wall = time.process_time() - cpu - more.get("numpy", 0), time.perf_counter() - wall - more.get("numpy", 0)
    print(json.dumps({"cpu": cpu, "wall": wall, "memory": peak() - memory, **more}))


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None  # noqa: S101 (Linux has it)
    return int(found[1]) * 1024


def measured(way: str, path: Path, kind: str) -> dict[str, float]:
    """Return the figures of the best of a few processes."""
    command = [sys.executable, "-m", "benchmarks.capture", "--child", way, str(path), kind]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout) for _ in range(REPEATS)
    ]
    best: dict[str, float] = min(runs, key=lambda run: run["cpu"])
    return best


def main() -> int:
    """Print a table; return whether the limits hold."""
    held = []
    with tempfile.TemporaryDirectory() as folder:
        wide(path := Path(folder) / "wide.onnx")
        paths = {"resnet": models.exported("resnet50", dynamo=False), "chain": models.chain(10_033), "wide": path}
        print(f"{'model':<8}{'way':<14}{'CPU s':>8}{'wall s':>8}{'MB':>8}  more")
        found = {}
        for kind, model in paths.items():
            for way in WAYS:
                took = found[kind, way] = measured(way, model, kind)
                more = ", ".join(f"{key} {value:.4g}" for key, value in list(took.items())[3:])
                memory = took["memory"] / 1e6
                print(f"{kind:<8}{way:<14}{took['cpu']:>8.2f}{took['wall']:>8.2f}{memory:>8.0f}  {more}", flush=True)

    def at_most(kind: str, key: str, factor: float, peer: str) -> None:
        ours, theirs = found[kind, "capture"][key], found[kind, peer][key]
        held.append(ours <= factor * theirs)
        limit = f"{factor:g} of {peer}" if factor != 1 else peer
        print(f"{'holds' if held[-1] else 'FAILS'}: {kind} {key} at most that of {limit}: {ours / theirs:.2f}")

    at_most("resnet", "cpu", 1, "every output")
    at_most("resnet", "memory", 1, "plain")
    at_most("chain", "cpu", 1, "every output")
    at_most("chain", "memory", 0.5, "every output")
    grown, made = found["wide", "capture"]["memory"], found["wide", "every output"]["bytes"]
    held.append(grown <= LIMIT + SLACK and made >= 10 * LIMIT)
    print(f"{'holds' if held[-1] else 'FAILS'}: {made / LIMIT:.1f} limits of values within {grown / LIMIT:.2f} of it")
    return 0 if all(held) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
    else:
        raise SystemExit(main())
