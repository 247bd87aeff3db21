"""`onnx_nb.simplify` against onnxsim and onnxslim: nodes left, CPU time from a file to a model, growth of memory.

All tools fold without a budget and without verification while they are timed; the result of onnx_nb is verified
afterwards. onnxsim and onnxslim are not dependencies: one that is not installed is reported and left out.
``python -m benchmarks.simplification [NAME …]`` fails if a limit does not hold.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_nb
from benchmarks.measuring import Figures, Limit, Report, Way, command_line, measured
from tests import models

MODELS: dict[str, Callable[[], Path]] = {
    **{f"light {name}": functools.partial(models.light, name) for name in models.LIGHT},
    **{
        f"{name}, {'dynamo' if dynamo else 'TorchScript'}": functools.partial(models.exported, name, dynamo=dynamo)
        for name in models.MEASURED
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
WARM = "from onnx_nb.analysis.simplify import simplify; import onnxruntime; import onnx_nb"
SMALL = 2000
"""Nodes below which the times of other tools are limits."""
LARGE = 50_000
"""Nodes above which onnxslim, whose time grows quadratically, would take hours."""
PATIENCE = 150
"""Seconds after which a tool is stopped on such models; a limit relative to its time is then relative to these."""
RATIOS = {"onnxsim": 3.0, "onnxslim": 1.0}
LONG, GROWTH, MEMORY = 1 / 3, 13.0, 600.0


def way(tool: str, statement: str = "", repeats: int = 1) -> Way:
    """Return how a tool simplifies the model at ``path``, and how many nodes it leaves."""
    code = f"{statement or TOOLS[tool]}\nmore['nodes'] = len(result.graph.node)"
    return Way(code, WARM if tool == "onnx_nb" else f"import onnx, {tool}", repeats)


def limits(count: int, found: Mapping[str, Figures]) -> list[Limit]:
    """Return the limits for a model of so many nodes."""
    chosen = []
    for tool in found.keys() - {"onnx_nb"}:
        ratio = RATIOS[tool] if count < SMALL else LONG if count > LARGE else None
        is_done = bool(found[tool].cpu)
        chosen += [Limit("nodes", 1, tool)] * is_done
        if ratio is not None and (is_done or count > LARGE):
            chosen.append(Limit("cpu", ratio, tool) if is_done else Limit("cpu", ratio * PATIENCE))
    return sorted(chosen)


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
    """Measure; 1 if a limit does not hold."""
    names, _ = command_line(__doc__, (*MODELS, "external"))
    report = Report(__spec__.name, __doc__)
    tools = [tool for tool in TOOLS if importlib.util.find_spec(tool) is not None]
    for missing in sorted(set(TOOLS) - set(tools)):
        report.row(missing, {missing: "not installed"})
    ours: dict[str, float] = {}
    for name in [name for name in names if name in MODELS]:
        path = MODELS[name]()
        count = len(onnx_nb.load(path).proto.graph.node)
        is_large = count > LARGE
        ways = {
            tool: way(tool, repeats=3 if count < SMALL else 1) for tool in tools if tool != "onnxslim" or not is_large
        }
        rounds, timeout = (1, PATIENCE) if is_large else (3, 1800)
        found = measured(ways, {"path": str(path)}, rounds=rounds, timeout=timeout)
        report.compare(f"{name}, {count:,} nodes", found, limits(count, found))
        is_equal = onnx_nb.simplify(path, size_budget=1 << 40).verified
        report.row("  its outputs", {"onnx_nb": "equal" if is_equal else "differ"}, "equal", holds=is_equal)
        ours[name] = found["onnx_nb"].median("cpu")
    if {"chain of 10,033", "chain of 100,033"} <= set(ours):
        growth = ours["chain of 100,033"] / ours["chain of 10,033"]
        report.most("time for ten times the nodes", growth, GROWTH, "times", 1)
    if "external" in names:
        with tempfile.TemporaryDirectory() as folder:
            given = {"path": str(external(Path(folder)))}
            for what, options in (("simplified", ", check_n=0"), ("and verified", "")):
                statement = f"result = onnx_nb.simplify(path{options}).model.proto"
                found = measured({"onnx_nb": way("onnx_nb", statement)}, given, rounds=1)
                report.compare(f"2.5 GB of external data, {what}", found, [Limit("memory", MEMORY)])
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
