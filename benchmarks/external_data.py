"""`onnx_nb.external_data` on large models: open and audit against onnx's checker, convert against `onnx.save_model`.

The 2.5 GB are a file of zeros that takes no disk; the 1 GB is random and written. Every measurement is a process of its
own; memory is how much its peak grows. Run ``python -m benchmarks.external_data``; it fails if opening and auditing
2.5 GB takes more than 100 ms or 10 MiB, or converting more than half the CPU time or a tenth of the memory of onnx.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_nb

ROOT = Path(__file__).parent.parent
TENSORS = 300
MOST_SECONDS = 0.1
MOST_GROWTH = 10.0

PREPARE = """
import json, re, sys, time, onnx, onnx.checker, onnx_nb
from onnx_nb import external_data
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024
source, target = sys.argv[1:]
# importing may have peaked higher than what is left of it: start from what is there now
open("/proc/self/clear_refs", "w").write("5")
before, start, cpu = peak(), time.perf_counter(), time.process_time()
"""
REPORT = """
print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, peak() - before]))
"""
OPEN = {
    "audit": "assert external_data.audit(onnx_nb.load(source)).ok",
    "onnx": "onnx.load(source, load_external_data=False); onnx.checker.check_model(source)",
}
CONVERT = {
    "convert": "external_data.convert(source, target)",
    "convert, checksums": "external_data.convert(source, target, checksums=True)",
    "onnx": "onnx.save_model(onnx.load(source), target, save_as_external_data=True, location='data')",
}


def make(folder: Path, nbytes: int, *, random: bool) -> Path:
    """Write a model of `TENSORS` weights in a file beside it: random numbers, or a hole."""
    size = nbytes // TENSORS // 4096 * 4096
    weights = []
    with (folder / "weights").open("xb") as file:
        for i in range(TENSORS):
            tensor = TensorProto(
                name=f"layers.{i}.weight",
                data_type=TensorProto.FLOAT,
                dims=[size // 4],
                data_location=TensorProto.EXTERNAL,
            )
            for key, value in (("location", "weights"), ("offset", i * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            weights.append(tensor)
            if random:
                file.write(np.random.default_rng(i).bytes(size))
        file.truncate(TENSORS * size)
    nodes = [
        helper.make_node("Add", [f"t{i}", f"layers.{i}.weight"], [f"t{i + 1}"], f"/layers.{i}/Add")
        for i in range(TENSORS)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size // 4]) for name in ("t0", f"t{TENSORS}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    return path


def measured(statement: str, source: Path, target: Path) -> list[float]:
    """Return seconds, CPU seconds and growth in MiB of a fresh process."""
    command = [sys.executable, "-c", PREPARE + statement + REPORT, str(source), str(target)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    numbers: list[float] = json.loads(done.stdout)
    return numbers


def table(statements: dict[str, str], source: Path, repeats: int) -> dict[str, list[float]]:
    """Measure all in turn, print the medians and give them."""
    runs: dict[str, list[list[float]]] = {name: [] for name in statements}
    for _ in range(repeats):
        for name, statement in statements.items():
            with tempfile.TemporaryDirectory(dir=source.parent) as folder:
                runs[name].append(measured(statement, source, Path(folder) / "out.onnx"))
    found = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in runs.items()}
    for name, (seconds, cpu, growth) in found.items():
        ratio = cpu / found["onnx"][1]
        print(
            f"  {name:<20}{seconds:>9.4f} s{cpu:>9.4f} CPU s{growth:>9.1f} MiB{ratio:>8.3f} of onnx's CPU s", flush=True
        )
    return found


def main() -> int:
    """Print two tables and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats: int = parser.parse_args().repeats
    print(f"onnx {onnx.__version__}, onnx_nb {onnx_nb.__version__}; medians of {repeats}, each in its own process")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), 2_500_000_000, random=False)
        print(f"open and audit 2.5 GB in {TENSORS} tensors")
        seconds, _, growth = table(OPEN, source, repeats)["audit"]
        if seconds > MOST_SECONDS or growth > MOST_GROWTH:
            failed.append(f"2.5 GB must be audited in {MOST_SECONDS} s and {MOST_GROWTH} MiB")
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), 1_000_000_000, random=True)
        print(f"convert 1 GB in {TENSORS} tensors")
        found = table(CONVERT, source, min(repeats, 3))
        if found["convert"][1] > found["onnx"][1] / 2 or found["convert"][2] > found["onnx"][2] / 10:
            failed.append("converting must take half the CPU time of onnx.save_model and a tenth of its memory")
    print("\n".join(f"FAILS: {reason}" for reason in failed) or "holds")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
