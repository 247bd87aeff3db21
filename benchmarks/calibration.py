"""Ranges for quantization: `onnx_nb.capture` and `calibrate` against onnxruntime's own calibraters.

``python -m benchmarks.calibration``: the same feeds through both, for each method. onnxruntime's keeps every value of
every feed for its histograms; ours are merged from feed to feed, so the last row is 10,000 feeds against 16.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser

from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

FEEDS = 16
METHODS = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
SETUP = """
import numpy as np, onnx_nb, tempfile
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator
from onnx_nb.analysis.run import session
from tests import models
session.run(models.one_node(), {"x": np.zeros(2, np.float32)})  # the first session of a process sets onnxruntime up
onnx_nb.calibrate(onnx_nb.capture(models.one_node(), ranges=True))
random = np.random.default_rng(0)
feeds = ({name: random.standard_normal(shape).astype(np.float32)} for _ in range(count))

def ours():
    return len(onnx_nb.calibrate(onnx_nb.capture(path, feeds, ranges=method != "minmax"), method))

def theirs():
    with tempfile.TemporaryDirectory() as folder:
        options = {"augmented_model_path": f"{folder}/augmented.onnx", "calibrate_method": CalibrationMethod[label]}
        calibrator = create_calibrator(path, None, **options)
        calibrator.collect_data(type("Reader", (), {"get_next": lambda _: next(feeds, None)})())
        return len(calibrator.compute_data().data)
"""
WAYS = {
    "onnx_nb": Way('more["ranges"] = ours()', SETUP),
    "onnxruntime": Way('more["ranges"] = theirs()', SETUP),
}
PEAK = 'ours(); more["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024'
MANY = {
    "onnx_nb": Way(PEAK, f"import resource\n{SETUP}"),
    "16 feeds": Way(PEAK, f"import resource\n{SETUP.replace('range(count)', 'range(16)')}"),
}
"""Ours with as many feeds as the row says, and with 16: the peak memory of the process in MiB."""


def small(path: Path) -> None:
    """Write a network of one convolution."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    net (float[4, 3, 6, 6] x) => (float[4, 8, 6, 6] y) { a = Conv<pads = [1, 1, 1, 1]>(x, w)  y = Relu(a) }""")
    weight = np.random.default_rng(0).normal(0, 0.4, (8, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, path)


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    peer = "onnxruntime"
    for what, model, shape, most in (
        ("ResNet-50", models.exported("resnet50", dynamo=False), (1, 3, 224, 224), 1.5),
        ("SegFormer", models.exported("segformer", dynamo=False), (1, 3, 128, 128), 1.5),
        # the most that the statistics of a value and feed may cost where computing it costs nothing
        ("ViT of 1,235 nodes with 1,000 numbers each", models.exported("vit", dynamo=False), (1, 3, 32, 32), 3.0),
    ):
        for method, label in METHODS.items():
            given = {"path": str(model), "name": "pixel_values", "shape": shape, "count": FEEDS}
            found = measured(WAYS, {**given, "method": method, "label": label}, rounds=3)
            report.compare(f"{what}, {method}, {FEEDS} feeds", found, [Limit("cpu", most, peer)])
    with tempfile.TemporaryDirectory() as folder:
        small(path := Path(folder) / "small.onnx")
        given = {"path": str(path), "name": "x", "shape": (4, 3, 6, 6), "count": 10_000, "method": "percentile"}
        found = measured(MANY, {**given, "label": ""}, rounds=1)
        report.compare("10,000 feeds of a small network", found, [Limit("peak", 1.1, "16 feeds")])
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
