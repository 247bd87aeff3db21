"""`onnx_nb.simplify` against onnxsim and onnxslim: nodes left, CPU time from a file to a model, growth of memory.

All tools fold without a budget and without verification while they are timed; the result of onnx_nb is verified
afterwards. Each run is a process of its own. onnxsim and onnxslim are not dependencies: one that is not installed is
reported and left out.
Run ``python -m benchmarks.simplification [NAME …]``; it fails if a limit is missed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_nb
from tests import models

ROOT = Path(__file__).parent.parent

MODELS: dict[str, Callable[[], Path]] = {
    **{f"light {name}": functools.partial(models.light, name) for name in models.LIGHT},
    **{
        f"{name}, {'dynamo' if dynamo else 'TorchScript'}": functools.partial(models.exported, name, dynamo=dynamo)
        for name in models.EXPORTABLE
        for dynamo in (True, False)
    },
    "chain of 10,033": functools.partial(models.chain, 10_033),
    "chain of 100,033": functools.partial(models.chain, 100_033),
}
TOOLS = {
    "onnx_nb": "result = onnx_nb.simplify(path, check_n=0, size_budget=1 << 40).model.proto",
    "onnxsim": "result, _ = onnxsim.simplify(onnx.load(path), check_n=0)",
    "onnxslim": "result = onnxslim.slim(onnx.load(path))",
}
SCRIPT = """
import json, re, sys, time, onnx, {imported}
path, repeats = json.loads(sys.argv[1])
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024
{warm}
# importing may have peaked higher than what is left of it: start from the current size
open("/proc/self/clear_refs", "w").write("5")
before, seconds = peak(), []
for _ in range(repeats):
    start = time.process_time()
    {statement}
    seconds.append(time.process_time() - start)
print(json.dumps([len(result.graph.node), min(seconds), peak() - before]))
"""
SMALL = 2000
"""Nodes below which the times of other tools are limits."""
LARGE = 50_000
"""Nodes above which onnxslim, whose time grows quadratically, would take hours."""
PATIENCE = 150
"""Seconds after which a tool is stopped on such models; its time is then a lower bound."""
RATIOS = {"onnxsim": 3.0, "onnxslim": 1.0}
LONG, GROWTH, MEMORY = 1 / 3, 13.0, 600.0


def measure(
    tool: str, path: Path, repeats: int, statement: str = "", limit: int = 1800
) -> tuple[int | None, float, float] | None:
    """Return nodes, CPU seconds of the best run and growth of memory in MiB; None if it failed.

    A tool that is stopped after ``limit`` seconds has no nodes: it takes more CPU seconds than those returned.
    """
    warm = "from onnx_nb.analysis.simplify import simplify; import onnxruntime" if tool == "onnx_nb" else ""
    script = SCRIPT.format(imported=tool, statement=statement or TOOLS[tool], warm=warm)
    command = [sys.executable, "-c", script, json.dumps([str(path), repeats])]
    before = _children()
    try:
        done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{tool} does not finish {path.name} in {limit} s")
        return None, _children() - before, 0.0
    if done.returncode:
        print(f"{tool} fails on {path.name}: {done.stderr.strip().splitlines()[-1:]}")
        return None
    nodes, seconds, growth = json.loads(done.stdout.splitlines()[-1])
    return int(nodes), float(seconds), float(growth)


def _children() -> float:
    """Return the CPU seconds of all child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def verified(path: Path) -> bool:
    """Return whether the result of onnx_nb computes the same, in a process of its own."""
    statement = f"import onnx_nb; raise SystemExit(not onnx_nb.simplify({str(path)!r}, size_budget=1 << 40).verified)"
    return subprocess.run([sys.executable, "-c", statement], check=False, cwd=ROOT).returncode == 0


def external(folder: Path) -> Path:
    """Write 40 layers whose weights, 2.5 GB in all, are holes in a file; every other node is an Identity."""
    side, layers, nodes, weights = 4096, 40, list[onnx.NodeProto](), list[onnx.TensorProto]()
    for layer in range(layers):
        nodes.append(helper.make_node("Identity", [f"t{layer}"], [f"i{layer}"]))
        nodes.append(helper.make_node("MatMul", [f"i{layer}", f"w{layer}"], [f"t{layer + 1}"]))
        tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[side, side])
        tensor.data_location = TensorProto.EXTERNAL
        size = side * side * np.dtype(np.float32).itemsize
        for key, value in (("location", "weights"), ("offset", layer * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
    with (folder / "weights").open("wb") as file:
        file.truncate(layers * side * side * 4)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, side]) for name in ("t0", f"t{layers}")]
    graph = helper.make_graph(nodes, "external", ends[:1], ends[1:], weights)
    path = folder / "external.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    return path


def main() -> int:
    """Print a table and check the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}, external; all if none")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    tools = [tool for tool in TOOLS if importlib.util.find_spec(tool) is not None]
    for missing in sorted(set(TOOLS) - set(tools)):
        print(f"{missing} is not installed and is left out: pip install {missing}")
    print(f"onnx_nb {onnx_nb.__version__}, onnx {onnx.__version__}; nodes, and CPU seconds, best of {chosen.repeats}")
    print(f"{'model':<24}{'nodes':>8}" + "".join(f"{tool:>9}{'s':>8}" for tool in tools) + f"{'verified':>10}")
    missed: list[str] = []
    ours: dict[str, float] = {}
    for name, make in MODELS.items():
        if chosen.names and name not in chosen.names:
            continue
        path = make()
        count = len(onnx_nb.load(path).proto.graph.node)
        repeats = chosen.repeats if count < LARGE else 1
        if count > LARGE:
            print(f"{name}: onnxslim is left out, as its time grows quadratically with the nodes")
        chosen_tools = [tool for tool in tools if not (tool == "onnxslim" and count > LARGE)]
        limit = PATIENCE if count > LARGE else 1800
        found = {tool: measure(tool, path, repeats, limit=limit) for tool in chosen_tools}
        equal = verified(path)
        missed += [f"outputs of {name}"] * (not equal)
        cells = "".join(map(_cells, map(found.get, tools)))
        print(f"{name:<24}{count:>8}{cells}{'yes' if equal else 'NO':>10}", flush=True)
        missed += _misses(name, count, found)
        if found["onnx_nb"]:
            ours[name] = found["onnx_nb"][1]
    if {"chain of 10,033", "chain of 100,033"} <= set(ours):
        growth = ours["chain of 100,033"] / ours["chain of 10,033"]
        print(f"ten times the nodes take {growth:.1f} times the time, at most {GROWTH:.0f}")
        missed += ["growth"] * (growth > GROWTH)
    if not chosen.names or "external" in chosen.names:
        with tempfile.TemporaryDirectory() as folder:
            missed += _memory(external(Path(folder)))
    print(f"MISSED: {'; '.join(missed)}" if missed else "holds")
    return 1 if missed else 0


def _cells(found: tuple[int | None, float, float] | None) -> str:
    if found is None:
        return f"{'–':>9}{'–':>8}"
    nodes, seconds, _ = found
    return f"{'–':>9}{f'>{seconds:.0f}':>8}" if nodes is None else f"{nodes:>9}{seconds:>8.3f}"


def _misses(name: str, count: int, found: dict[str, tuple[int | None, float, float] | None]) -> list[str]:
    mine = found["onnx_nb"]
    if mine is None or mine[0] is None:
        return [f"{name} fails"]
    others = {tool: result for tool, result in found.items() if result is not None and tool != "onnx_nb"}
    missed = [
        f"nodes of {name}, {tool}" for tool, result in others.items() if result[0] is not None and mine[0] > result[0]
    ]
    for tool, result in others.items():
        limit = RATIOS[tool] if count < SMALL else LONG if count > LARGE else None
        if limit is not None and mine[1] > limit * result[1]:
            missed.append(f"time of {name}: {mine[1] / result[1]:.2f} of {tool}'s, at most {limit:.2f}")
    return missed


def _memory(path: Path) -> list[str]:
    missed = []
    for what, statement in (
        ("simplified", "result = onnx_nb.simplify(path, check_n=0).model.proto"),
        ("and verified", "result = onnx_nb.simplify(path).model.proto"),
    ):
        found = measure("onnx_nb", path, 1, statement)
        if found is None:
            return ["2.5 GB fail"]
        print(
            f"2.5 GB of external data, {what}: {found[0]} nodes, {found[1]:.2f} s, {found[2]:.0f} MiB of {MEMORY:.0f}"
        )
        missed += [f"memory, {what}"] * (found[2] > MEMORY)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
