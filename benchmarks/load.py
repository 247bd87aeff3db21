"""Opening a file: `onnx_nb.load` against `onnx.load`, and on to the columns that the browser draws from.

``python -m benchmarks.load`` makes 1 GB in one file, a file of ResNet-50's size and a chain of 100,000 nodes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.chains import write_chain
from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

MODELS = {
    # name: (weights, bytes of each, nodes)
    "1 GB": (256, 4 << 20, 256),
    "ResNet-50's size": (161, 600_000, 123),
    "100,000 nodes": (200, 4000, 100_000),
}
LIMITS = {"1 GB": (Limit("cpu", 1 / 50, "onnx"), Limit("memory", 20))}
WARM = "import onnx, onnx_nb; onnx_nb.load"
OPEN = {
    "onnx_nb": Way("model = onnx_nb.load(path)", WARM, 5),
    "onnx": Way("model = onnx.load(path)", WARM, 5),
}
STAGES = {
    "graph": "graph = Graph.of(model)",
    "types": "graph.problems",
    "scopes": "scopes(graph)",
    "columns": "packed = columns(model)",
    "bytes": "more['bytes'] = len(packed.to_bytes())",
}
"""From a model to what the browser draws, in order."""
IMPORTS = """
import time
import onnx_nb
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.scopes.scopes import scopes
from onnx_nb.analysis.view.graph_columns import columns
"""


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for name, (weights, nbytes, nodes) in MODELS.items():
            write_chain(path, weights, nbytes, nodes)
            report.compare(f"open {name}", measured(OPEN, {"path": str(path)}), LIMITS.get(name, ()))
    given = {"path": str(models.chain(100_000))}
    drawn = Way("more['bytes'] = len(columns(load(path)).to_bytes())", IMPORTS)
    found = measured({"onnx_nb": drawn, "onnx": Way("model = onnx.load(path)", WARM)}, given)
    report.compare("100,000 nodes, from file to the browser's columns", found, [Limit("cpu", 1.0)])
    before = IMPORTS + "model = load(path)\n"
    for stage, statement in STAGES.items():
        report.compare(f"  of it {stage}", measured({"onnx_nb": Way(statement, before)}, given, rounds=3))
        before += statement.replace("more[", "_ = {}; _[") + "\n"
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
