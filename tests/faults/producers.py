"""``python -m tests.faults.producers``: what does `compare` say of what AIMET, modelopt and Quark quantize?

Each quantizes the trained networks of `tests.faults.trained` in its own ways, calibrated on 64 feeds, in an environment
of its own that stands on this one. What is said of a model on another feed is printed; docs/faults.md says what of it
is the quantizer's own choice.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

import numpy as np

import onnx_nb
from tests import models
from tests.faults import trained
from tests.faults.trained_faults import FEED

PACKAGES: Final = ("aimet-onnx==2.42.0", "nvidia-modelopt==0.47.0", "amd-quark==0.13")
NEEDS: Final = """
bokeh hvplot jsonschema osqp scikit-learn scipy joblib evaluate ninja plotly sentencepiece zstandard onnxslim
onnx-graphsurgeon polygraphy lief onnxconverter-common cppimport pandas onnx2torch pulp onnxruntime_extensions
xyzservices tornado contourpy panel holoviews colorcet param pyviz-comms datasets multiprocess dill pyarrow
xxhash fsspec requests huggingface_hub narwhals threadpoolctl jinja2 linkify-it-py markdown markdown-it-py
mdit-py-plugins referencing rpds-py jsonschema-specifications attrs nvidia-ml-py pydantic rich
"""
"""What they import, without what those need in turn: torch, onnx and onnxruntime are those of this environment."""
WAYS: Final = {
    "aimet": ("minmax", "sqnr", "16 bits"),
    "modelopt": ("int8 max", "int8 entropy", "int4 rtn_dq", "int4 awq_clip", "fp8 max"),
    "quark": ("XINT8", "A8W8", "A16W8", "INT8_CNN_DEFAULT", "INT8_TRANSFORMER_DEFAULT"),
}
QUANTIZE: Final = """
import sys, numpy as np, onnx
producer, way, source, feeds, target = sys.argv[1:]
(name, arrays), = np.load(feeds).items()
if producer == "aimet":
    import aimet_onnx
    from aimet_onnx.quantsim import QuantizationSimModel
    wide = aimet_onnx.int16 if way == "16 bits" else aimet_onnx.int8
    scheme = "tf_enhanced" if way == "sqnr" else "min_max"
    sim = QuantizationSimModel(
        onnx.load(source), param_type=aimet_onnx.int8, activation_type=wide, quant_scheme=scheme)
    sim.compute_encodings([{name: array} for array in arrays])
    onnx.save(sim.to_onnx_qdq(), target)
elif producer == "modelopt":
    from modelopt.onnx.quantization import quantize
    mode, method = way.split()
    data = {name: arrays.reshape(-1, *arrays.shape[2:])}
    quantize(source, quantize_mode=mode, calibration_data=data, calibration_method=method, output_path=target,
             calibration_eps=["cpu"], high_precision_dtype="fp32")
else:
    from quark.onnx import Config, ModelQuantizer
    from quark.onnx.quantization.config.custom_config import get_default_config
    config, rows = get_default_config(way), iter(arrays)
    config.include_cle = False  # weights that are scaled from layer to layer are others than those of the float model
    reader = type("Reader", (), {"get_next": lambda _: next(({name: row} for row in rows), None)})()
    ModelQuantizer(Config(global_quant_config=config)).quantize_model(source, target, reader)
"""


def environment() -> Path:
    """Return the interpreter of an environment with the three, made when it is first asked for."""
    folder = models.CACHE / "producers"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "this.pth").write_text(sysconfig.get_path("purelib"))
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *PACKAGES, *NEEDS.split()], check=True)
        (folder / "ready").touch()
    return python


def main() -> int:
    """Print a line for each model; return 0."""
    python, folder = environment(), models.CACHE / "producers" / "models"
    folder.mkdir(exist_ok=True)
    count = alarms = 0
    for name in trained.NETWORKS:
        if name == "outliers":  # it is quantized wrongly on purpose
            continue
        rows = [trained.feeds(name, seed) for seed in range(1, 65)]
        arrays: Any = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        np.savez(folder / "feeds.npz", **arrays)
        for producer, way in ((producer, way) for producer, ways in WAYS.items() for way in ways):
            target = folder / f"{name}-{producer}-{way.replace(' ', '-')}.onnx"
            if not target.exists():
                files = map(str, (trained.network(name), folder / "feeds.npz", target))
                words = [str(python), "-c", QUANTIZE, producer, way, *files]
                done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if not target.exists():
                reason = done.stderr.strip().splitlines()[-1][:120]
                sys.stdout.write(f"{name:12} {producer:9} {way:26} makes none: {reason}\n")
                continue
            try:
                c = onnx_nb.compare(trained.network(name), target, trained.feeds(name, FEED))
            except onnx_nb.OnnxNbError as error:
                sys.stdout.write(f"{name:12} {producer:9} {way:26} is not run: {str(error)[:120]}\n")
                continue
            count += 1
            alarms += c.first_divergent() is not None
            sys.stdout.write(f"{name:12} {producer:9} {way:26} {c.message}\n")
    sys.stdout.write(f"{count} models, something is named in {alarms}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
