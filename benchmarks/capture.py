"""Every intermediate value: `onnx_nb.capture` with its statistics against adding every value as an output.

``python -m benchmarks.capture``: the peer adds every value as an output of onnxruntime's session, and computes minimum,
maximum, mean and standard deviation of each with numpy, which is less than ours. Another row is the plain run, without
any intermediate value, and the last a model whose values take ten times its memory limit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

LIMIT = 64 << 20
"""Memory limit for the model whose values take ten times as much, in bytes."""
SLACK = 32 << 20
"""Bytes for a session, its code and onnxruntime's bookkeeping, in addition to values."""
SETUP = """
import numpy as np
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.capture import capture
from tests import models
feeds = {name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
# the first session of a process sets onnxruntime up
session.run(models.one_node(), {"x": np.zeros(2, np.float32)})
capture(models.one_node())

def every_output():
    model = load(path)
    names = [name for node in model.proto.graph.node for name in node.output if name]
    found = session.run_session(session.create(model, optimize=False, outputs=names), feeds)
    for array in found.values():
        array.min(), array.max(), array.mean(), array.std()
    return {"values": len(found), "MB of values": sum(array.nbytes for array in found.values()) / 1e6}

def captured(**options):
    found = capture(path, feeds, **options)
    return {"values": len(found), "windows": found.windows}
"""
WAYS = {
    "onnx_nb": Way("more.update(captured(**options))", SETUP),
    "every output and numpy": Way("more.update(every_output())", SETUP),
    "plain run": Way("session.run(path, feeds)", SETUP),
}


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


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    peer = "every output and numpy"
    with tempfile.TemporaryDirectory() as folder:
        wide(path := Path(folder) / "wide.onnx")
        resnet = models.exported("resnet50", dynamo=False)
        for what, model, name, shape, options, limits in (
            (
                "ResNet-50, a batch of 8",
                resnet,
                "pixel_values",
                (8, 3, 224, 224),
                {},
                [Limit("cpu", 0.8, peer), Limit("memory", 1, "plain run")],
            ),
            (
                "chain of 10,033 nodes",
                models.chain(10_033),
                "x",
                (2, 7, 4),
                {},
                [Limit("cpu", 1, peer), Limit("memory", 0.5, peer)],
            ),
            (
                f"values of ten memory limits of {LIMIT >> 20} MiB",
                path,
                "t0",
                (2 << 20,),
                {"memory_limit": LIMIT},
                [Limit("memory", (LIMIT + SLACK) / 2**20)],
            ),
        ):
            given = {"path": str(model), "name": name, "shape": shape, "options": options}
            report.compare(what, measured(WAYS, given, rounds=7), limits)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
