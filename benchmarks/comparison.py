"""Two models, tensor by tensor: `onnx_nb.compare` against keeping all values of both runs and numpy.

``python -m benchmarks.comparison``: ResNet-50, a batch of 4, against its float16 and its quantized version.
"""

from __future__ import annotations

from benchmarks.arrays import SETUP
from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

BATCH = 4
FEEDS = (
    SETUP
    + """
import onnx, onnxruntime
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.run.random_feeds import random_feeds
feeds = random_feeds(paths[0], shapes={"batch": batch})

def all_values(path):
    proto = onnx.load(path)
    there = {output.name for output in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name and name not in there]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [output.name for output in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, feeds), strict=True))

def keep_all():
    mine, yours = map(all_values, paths)
    for name in mine.keys() & yours.keys():
        if mine[name].shape == yours[name].shape and mine[name].dtype.kind == "f":
            errors_by_numpy(mine[name].ravel(), yours[name].ravel())
"""
)
WAYS = {"onnx_nb": Way("compare(*paths, feeds)", FEEDS), "keeping all": Way("keep_all()", FEEDS)}


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    for kind in ("fp16", "qdq"):
        paths = models.exported("resnet50", dynamo=True), models.transformed("resnet50", kind)
        given = {"paths": [*map(str, paths)], "batch": BATCH, "count": 1, "dtype": "float32"}
        limits = [Limit("memory", 1, "keeping all")]
        report.compare(f"ResNet-50 against {kind}, a batch of {BATCH}", measured(WAYS, given, rounds=3), limits)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
