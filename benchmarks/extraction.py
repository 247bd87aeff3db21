"""`onnx_nb.extract` against `onnx.utils.extract_model`, from a file to a file: CPU time and growth of memory.

Each run is a process of its own. The models are made on the spot: a chain of 100,033 nodes without and with declared
types, 400 MB of weights in one file, and 2.5 GB of external data in a file of holes, which is read without a disk.
Run ``python -m benchmarks.extraction``; it fails if a limit of the table is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_nb
from tests import models

ROOT = Path(__file__).parent.parent

OURS = "onnx_nb.extract(path, inputs, outputs).save(target)"
THEIRS = "onnx.utils.extract_model(path, target, inputs, outputs)"

SCRIPT = """
import json, re, sys, time, onnx, onnx.utils, onnx_nb
from onnx_nb.analysis.run import capture, session
from onnx_nb.analysis.submodel import extraction
path, target, inputs, outputs, repeats = json.loads(sys.argv[1])
peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])
# importing may have peaked higher than what is left of it: start from what is there now
open('/proc/self/clear_refs', 'w').write('5')
before, seconds, growth = peak(), [], 0
for _ in range(repeats):
    start = time.process_time()
    result = STATEMENT
    seconds.append(time.process_time() - start)
    growth = growth or peak() - before
    del result
print(json.dumps([min(seconds), growth * 1024 / 2**20]))
"""


@dataclass
class Case:
    """An extraction and its limits."""

    name: str
    path: Path
    inputs: list[str]
    outputs: list[str]
    ratio: float
    """Maximum CPU time relative to onnx."""
    growth: float | None = None
    """Maximum growth of memory in MiB."""


def make(path: Path, weights: int, nbytes: int, *, data: str = "") -> None:
    """Write a chain of Adds that read a weight each; in ``data`` beside it the weights are holes."""
    names = [f"layers.{i}.weight" for i in range(weights)]
    chain = [helper.make_node("Add", [f"t{i}", name], [f"t{i + 1}"]) for i, name in enumerate(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [nbytes // 4]) for name in ("t0", f"t{weights}")]
    tensors = [TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[nbytes // 4]) for name in names]
    random = np.random.default_rng(0)
    for i, tensor in enumerate(tensors):
        if data:
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data), ("offset", i * nbytes), ("length", nbytes)):
                tensor.external_data.add(key=key, value=str(value))
        else:
            tensor.raw_data = random.bytes(nbytes)
    if data:
        with (path.parent / data).open("wb") as file:
            file.truncate(weights * nbytes)
    graph = helper.make_graph(chain, "chain", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def measure(statement: str, case: Case, target: Path, repeats: int) -> tuple[float, float]:
    """Return the CPU seconds of the best run and the growth of the first in MiB."""
    arguments = json.dumps([str(case.path), str(target), case.inputs, case.outputs, repeats])
    script = SCRIPT.replace("STATEMENT", statement)
    done = subprocess.run(
        [sys.executable, "-c", script, arguments], check=False, capture_output=True, cwd=ROOT, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds, growth = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), float(growth)


def main() -> int:
    """Print a table; return whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats: int = parser.parse_args().repeats
    print(f"onnx {onnx.__version__}, onnx_nb {onnx_nb.__version__}; CPU time, best of {repeats} (2.5 GB by onnx: once)")
    heads = ("onnx", "onnx_nb", "ratio", "at most", "onnx MiB", "ours MiB", "at most")
    print(f"{'cut':<44}" + "".join(f"{head:>10}" for head in heads))
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        inline, external = Path(folder) / "inline.onnx", Path(folder) / "external.onnx"
        make(inline, 100, 4 << 20)
        make(external, 40, 64 << 20, data="external.data")
        chain, declared = models.chain(100_033), Path(folder) / "declared.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(onnx.load(chain)), declared)
        cases = [
            Case("9 nodes of 100,033, near the input", chain, *_block(10), 1 / 3),
            Case("9 nodes of 100,033, types declared", declared, *_block(3000), 1 / 3),
            # ours has to infer 51,000 nodes for the type of the input, theirs infers all
            Case("9 nodes of 100,033, types 51,000 nodes away", chain, *_block(3000), 1 / 2),
            Case("1 node of 400 MB inline weights", inline, ["t50"], ["t51"], 1 / 20, 20),
            Case("2 nodes of 2.5 GB external data", external, ["t20"], ["t22"], 1 / 30, 10),
        ]
        for case in cases:
            often = 1 if case.path == external else repeats
            theirs = measure(THEIRS, case, Path(folder) / "theirs.onnx", often)
            ours = measure(OURS, case, Path(folder) / "ours.onnx", repeats)
            limit = "" if case.growth is None else f"{case.growth:.0f}"
            print(
                f"{case.name:<44}{theirs[0]:>9.3f}s{ours[0]:>9.4f}s{ours[0] / theirs[0]:>10.4f}{case.ratio:>10.4f}"
                f"{theirs[1]:>10.1f}{ours[1]:>10.1f}{limit:>10}",
                flush=True,
            )
            if ours[0] > case.ratio * theirs[0] or (case.growth is not None and ours[1] > case.growth):
                missed.append(case.name)
    print(f"MISSED: {'; '.join(missed)}" if missed else "holds")
    return 1 if missed else 0


def _block(layer: int) -> tuple[list[str], list[str]]:
    """Return the ends of 9 nodes of a layer of the chain."""
    return [f"/layers.{layer}/norm1/LayerNormalization_output_0"], [f"/layers.{layer}/attn/o/MatMul_output_0"]


if __name__ == "__main__":
    raise SystemExit(main())
