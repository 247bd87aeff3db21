"""Share of the time of kernels that `onnx_nb.profile` gives to nodes of the model, at every level of optimization.

``python -m benchmarks.mapping [resnet50 bert …]``: exports by both exporters of torch, and a detection model with If
and Loop. "Read" is `Profile.read` of a file that a session made by hand wrote; its sum of kernels is that of the
file's events which are inside of no other, so that bodies that counted twice would be seen. A row has the worst of the
exporters' figures; a limit fails if less than 99% is mapped, or the sums differ by more than 1%.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final, get_args

import onnxruntime

import onnx_nb
from benchmarks.measuring import Report, command_line
from onnx_nb.analysis.profile.sessions import Optimization
from tests import models

LEVELS: Final = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
NAMES: Final = ("resnet50", "bert", "llama", "vit", "whisper", "detection")


def files(name: str) -> list[Path]:
    """Return the files of a model, by each exporter."""
    if name == "detection":
        return [models.detection()]
    return [models.exported(name, dynamo=dynamo, small=name != "resnet50") for dynamo in (True, False)]


def by_hand(path: Path, feeds: Any, level: str, folder: Path) -> tuple[Path, float]:
    """Return the file of a session of two runs, and the seconds of the kernels of the last that are in no other."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "by-hand")
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    session = onnxruntime.InferenceSession(path, options)
    for _ in range(2):
        session.run(None, feeds)
    file = Path(session.end_profiling())
    events = json.loads(file.read_text("utf-8"))
    begin = max(event["ts"] for event in events if event["name"] == "model_run")
    spans = sorted(
        (event["ts"], -event["dur"])
        for event in events
        if event["cat"] == "Node" and event["ts"] >= begin and event["name"].endswith("_kernel_time")
    )
    total, end = 0, 0
    for start, length in spans:
        if start - length > end:  # else it is inside of the one before
            total, end = total - length, start - length
    return file, total / 1e6


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    names, _ = command_line(__doc__, NAMES)
    report = Report(__spec__.name, __doc__)
    for name in names:
        for level in get_args(Optimization):
            mapped, read, sums, kernels = [], [], [], []
            for path in files(name):
                feeds = onnx_nb.random_feeds(onnx_nb.load(path))
                found = onnx_nb.profile(path, feeds, runs=2, threads=1, optimization=level)
                mapped.append(found.mapped)
                kernels.append(str(len(found.kernels)))
                with tempfile.TemporaryDirectory() as folder:
                    file, seconds = by_hand(path, feeds, level, Path(folder))
                    again = onnx_nb.types.Profile.read(file, path)
                read.append(again.mapped)
                sums.append(abs(float(again.kernel_seconds[-1]) / seconds - 1))
            figures = {
                "onnx_nb": f"{min(mapped):.2%} mapped",
                "read": f"{min(read):.2%} mapped",
                "sum": f"{max(sums):.2%} from that of the file",
                "kernels": ", ".join(kernels),
            }
            holds = min(*mapped, *read) >= 0.99 and max(sums) <= 0.01
            report.row(f"{name}, {level}", figures, "99% mapped, sum within 1%", holds=holds)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
