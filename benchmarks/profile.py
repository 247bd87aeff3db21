"""Profiling: `onnx_nb.profile` against the same profiled session by hand, whose file is read and summed up by name.

``python -m benchmarks.profile`` runs ResNet-50 and a small vision transformer on one thread. "20 runs" is a whole call;
"each of 19 more runs" is what twenty runs cost more than one, without creating sessions and mapping kernels to nodes.
A run of the transformer takes a millisecond: of a whole call, mapping and costs are a large part, without a limit.
"""

from __future__ import annotations

from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

SETUP = """
import collections, json, tempfile, time
import onnxruntime, onnx_nb
model = onnx_nb.load(path)
feeds = onnx_nb.random_feeds(model)

def profiled(runs):
    onnx_nb.profile(model, feeds, runs=runs, warmup=0, threads=1, sessions=1)

def by_hand(runs):
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = tempfile.mkdtemp() + "/run"
    session = onnxruntime.InferenceSession(path, options)
    for _ in range(runs):
        session.run(None, feeds)
    times = collections.Counter()
    for event in json.load(open(session.end_profiling())):
        if event["cat"] == "Node":
            times[event["name"]] += event["dur"]

def seconds(work, runs):
    before = time.process_time()
    work(runs)
    return time.process_time() - before

seconds(profiled, 1), seconds(by_hand, 1)
"""
STATEMENT = (
    "more['20 runs'] = seconds({0}, 20); more['each of 19 more runs'] = (more['20 runs'] - seconds({0}, 1)) / 19"
)
WAYS = {name: Way(STATEMENT.format(work), SETUP) for name, work in (("onnx_nb", "profiled"), ("by hand", "by_hand"))}


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    each = Limit("each of 19 more runs", 1.1, "by hand")
    for name, small in (("resnet50", False), ("vit", True)):
        path = models.exported(name, dynamo=True, small=small)
        found = measured(WAYS, {"path": str(path)}, rounds=3)
        report.compare(f"profile {name}", found, [each] if small else [Limit("20 runs", 1.1, "by hand"), each])
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
