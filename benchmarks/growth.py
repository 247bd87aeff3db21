"""Growth of CPU time from 1,000 to 100,000 nodes, fitted as a power of the number of nodes.

``python -m benchmarks.growth [VERB …]``: chains of transformer blocks, for each verb of ours and the peer that does the
same. A power of 1 is linear. Peers whose time would be hours stop earlier.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.measuring import Figures, Report, Way, command_line, measured
from tests import models

NODES = (1_000, 3_000, 10_000, 30_000, 100_000)
WARM = """
import numpy as np, onnx, onnx.utils, onnxruntime, onnx_nb, tempfile, os
from onnx_nb.analysis.run import session
from onnx_nb.analysis.simplify import simplify as _
from onnx_nb.analysis.view.graph_columns import columns
folder = tempfile.TemporaryDirectory(); target = os.path.join(folder.name, "target")
feeds = {"x": np.zeros((2, 7, 4), np.float32)}
block = [f"/layers.{layer}/norm1/LayerNormalization_output_0"], [f"/layers.{layer}/attn/o/MatMul_output_0"]

def every_output():
    model = onnx.load(path)
    there = {output.name for output in model.graph.output}
    names = {name for node in model.graph.node for name in node.output if name} - there
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
"""
POWER = 1.2
"""The most that ours may grow by."""
VERBS: dict[str, tuple[str, dict[str, tuple[str, int]]]] = {
    # verb: ours, and peers with the most nodes that they are asked for
    "open": ("onnx_nb.load(path)", {"onnx.load": ("onnx.load(path)", 100_000)}),
    "draw": ("columns(path).to_bytes()", {}),
    "summarize": ("onnx_nb.summarize(path)", {}),
    "costs": ("onnx_nb.costs(path)", {}),
    "extract": (
        "onnx_nb.extract(path, *block).save(target)",
        {"onnx.utils": ("onnx.utils.extract_model(path, target, *block)", 100_000)},
    ),
    "capture": ("onnx_nb.capture(path, feeds)", {"every output": ("every_output()", 10_000)}),
    "simplify": (
        "onnx_nb.simplify(path, check_n=0)",
        {"onnxsim": ("import onnxsim; onnxsim.simplify(onnx.load(path), check_n=0)", 100_000)},
    ),
    "diff": ("onnx_nb.diff(path, path)", {}),
    "export a page": ("onnx_nb.ModelGraph(path).to_html(target)", {}),
}


def power(seconds: dict[int, float]) -> float:
    """Return the exponent of the power law through the figures of at least 3,000 nodes, by least squares of logs."""
    large = {nodes: taken for nodes, taken in seconds.items() if nodes >= 3_000 and math.isfinite(taken) and taken > 0}
    if len(large) < 2:
        return math.nan
    return float(np.polyfit(np.log([*large]), np.log([*large.values()]), 1)[0])


def main() -> int:
    """Measure; 1 if something of ours grows faster than it may."""
    verbs, _ = command_line(__doc__, VERBS)
    report = Report(__spec__.name, __doc__)
    for verb in verbs:
        ours, peers = VERBS[verb]
        seconds: dict[str, dict[int, float]] = {}
        for nodes in NODES:
            ways = {"onnx_nb": Way(ours, WARM)}
            ways |= {name: Way(statement, WARM) for name, (statement, most) in peers.items() if nodes <= most}
            given = {"path": str(models.chain(nodes)), "layer": nodes // 50}
            found: dict[str, Figures] = measured(ways, given, rounds=3, timeout=300)
            for name, figures in found.items():
                if figures.cpu:
                    seconds.setdefault(name, {})[nodes] = figures.median("cpu")
        for name, taken in seconds.items():
            texts = {f"{nodes:,}": f"{taken[nodes]:.3g} s" for nodes in NODES if nodes in taken}
            exponent = power(taken)
            texts["power"] = f"{exponent:.2f}"
            ruled = name == "onnx_nb"
            limit = f"power {POWER:g}" if ruled else ""
            report.row(f"{verb}, {name}", texts, limit, holds=not ruled or exponent <= POWER)
        report.series[verb] = seconds
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
