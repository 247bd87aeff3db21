"""Correctness of `onnx_nb.simplify`, onnxsim and onnxslim on every node case that onnx ships, its inputs initializers.

A result is valid if onnx's checker accepts it and onnxruntime runs it, and right if its outputs equal those of the
case, both without optimization. Each tool works in a process of its own, so that a crash is seen; random operators must
remain. Run ``python -m benchmarks.simplification_truth [TOOL …]``; it fails if onnx_nb is
wrong anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import queue
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

import onnx_nb
from benchmarks.measuring import Report
from tests.conformance.cases import RANDOM, Runnable, node_cases, plain, runnable
from tests.conformance.verbs import draws, fault, feeds_of, with_constant_inputs

ROOT = Path(__file__).parent.parent
TOOLS = ("onnx_nb", "onnxsim", "onnxslim")
KINDS = ("right", "crash", "raises", "invalid", "wrong", "left out")
LIMIT = 120.0
"""Seconds for one case."""


def write_cases(folder: Path) -> list[str]:
    """Write each case that runs with constant inputs, or draws random numbers, as a file; return their names."""
    chosen = [*runnable("node")[0]]
    chosen += [Runnable(case, case.model, feeds_of(case), {}) for case in node_cases() if RANDOM.search(case.name)]
    names = []
    for one in chosen:
        proto = with_constant_inputs(one)
        if proto is not None:
            (folder / f"{one.case.name}.onnx").write_bytes(proto.SerializeToString())
            names.append(one.case.name)
    return names


def simplified(tool: str, proto: ModelProto) -> ModelProto:
    """Simplify with one of the tools, without a budget and without its own verification."""
    if tool == "onnx_nb":
        return onnx_nb.simplify(proto, check_n=0, size_budget=1 << 40).model.to_proto()
    other: Any = importlib.import_module(tool)
    found: ModelProto = other.simplify(proto, check_n=0)[0] if tool == "onnxsim" else other.slim(proto)
    return found


def judged(tool: str, name: str, path: Path) -> str:
    """Return what is wrong with a tool's result for a case; "" if nothing is."""
    proto = onnx.load(path)
    random = RANDOM.search(name) is not None
    try:
        expected = {} if random else plain(proto, {}, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        return "left out: onnxruntime does not run it so"
    before = ModelProto.FromString(proto.SerializeToString())
    try:
        result = simplified(tool, proto)
    except Exception as error:  # noqa: BLE001  # whatever a tool raises
        return f"raises: {type(error).__name__}: {error}"
    if random:
        return "" if draws(result) == draws(before) else "wrong: a random output became constant"
    return fault(before, result, {}, expected)


def work(tool: str, folder: Path) -> None:
    """Judge the cases named on standard input, one a line, and print a line of JSON for each."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        said = judged(tool, line.strip(), folder / f"{line.strip()}.onnx")
        print(f"\n@{json.dumps(said[:300])}", flush=True)


class Worker:
    """A process that judges one case after another."""

    def __init__(self, tool: str, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.simplification_truth", "--work", str(folder), tool]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            if line.startswith("@"):
                self.lines.put(line[1:])
        self.lines.put(None)

    def judge(self, name: str) -> str:
        """Judge a case; a process that ends meanwhile has crashed."""
        print(name, file=self.process.stdin, flush=True)
        try:
            line = self.lines.get(timeout=LIMIT)
        except queue.Empty:
            self.end()
            return f"crash: not finished in {LIMIT:.0f} s"
        if line is None:
            return f"crash: the process ends with {self.process.wait()}"
        return str(json.loads(line))

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def count(tool: str, folder: Path, names: list[str]) -> dict[str, list[str]]:
    """Return the names of the cases by outcome."""
    found: dict[str, list[str]] = defaultdict(list)
    worker = Worker(tool, folder)
    for name in names:
        said = worker.judge(name)
        found[said.partition(":")[0] or "right"].append(f"{name}: {said.partition(': ')[2]}" if said else name)
        if worker.process.poll() is not None:
            worker = Worker(tool, folder)
    worker.end()
    return found


def main() -> int:
    """Print a table and check that onnx_nb is right everywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}; all if none")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--verbose", action="store_true", help="also list the cases that go wrong, and how")
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.tools[0], chosen.work)
        return 0
    report = Report(__spec__.name, __doc__)
    with tempfile.TemporaryDirectory() as folder:
        names = write_cases(Path(folder))
        for tool in chosen.tools or TOOLS:
            what = f"{tool}, {len(names):,} cases of onnx {onnx.__version__}"
            if importlib.util.find_spec(tool) is None:
                report.row(what, {"right": "not installed"})
                continue
            found = count(tool, Path(folder), names)
            bad = [each for kind in KINDS[1:-1] for each in found[kind]]
            ruled = tool == "onnx_nb"
            report.row(
                what,
                {kind: f"{len(found[kind]):,}" for kind in KINDS},
                "none goes wrong" if ruled else "",
                holds=not (ruled and bad),
            )
            if chosen.verbose or ruled:
                print("".join(f"    {each:.160}\n" for each in bad), end="")
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
