"""From a file to a file: `onnx_nb.extract` against `onnx.utils.extract_model`.

``python -m benchmarks.extraction`` takes parts of a chain of 100,033 nodes without and with declared types, of 400 MB
of weights in one file, and of 2.5 GB of external data in a file of holes, which is read without a disk.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import onnx

from benchmarks.chains import write_chain
from benchmarks.measuring import Limit, Report, Way, measured
from tests import models

WARM = "import onnx, onnx.utils, onnx_nb; from onnx_nb.analysis.run import session; onnx_nb.extract"
OURS = Way("onnx_nb.extract(path, inputs, outputs).save(target)", WARM, 3)
THEIRS = Way("onnx.utils.extract_model(path, target, inputs, outputs)", WARM)


class Case(NamedTuple):
    """An extraction and its limits."""

    name: str
    path: Path
    inputs: str
    outputs: str
    limits: tuple[Limit, ...]


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    with tempfile.TemporaryDirectory() as folder:
        inline, external = Path(folder) / "inline.onnx", Path(folder) / "external.onnx"
        write_chain(inline, 100, 4 << 20)
        write_chain(external, 40, 64 << 20, data="external.data", holes=True)
        chain, declared = models.chain(100_033), Path(folder) / "declared.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(onnx.load(chain)), declared)

        def limits(part: float, *memory: float) -> tuple[Limit, ...]:
            return Limit("cpu", part, "onnx"), *(Limit("memory", most) for most in memory)

        for case in (
            Case("9 nodes of 100,033, near the input", chain, *block(10), limits(1 / 3)),
            Case("9 nodes of 100,033, types declared", declared, *block(3000), limits(1 / 3)),
            # ours has to infer 51,000 nodes for the type of the input, theirs infers all
            Case("9 nodes of 100,033, types 51,000 nodes away", chain, *block(3000), limits(1 / 2)),
            Case("1 node of 400 MB inline weights", inline, "t50", "t51", limits(1 / 20, 20)),
            Case("2 nodes of 2.5 GB external data", external, "t20", "t22", limits(1 / 30, 10)),
        ):
            given = {"path": str(case.path), "inputs": [case.inputs], "outputs": [case.outputs]}
            given["target"] = str(Path(folder) / "part.onnx")
            rounds = 1 if case.path == external else 3
            report.compare(case.name, measured({"onnx_nb": OURS, "onnx": THEIRS}, given, rounds=rounds), case.limits)
    return report.close()


def block(layer: int) -> tuple[str, str]:
    """Return the ends of 9 nodes of a layer of the chain."""
    return f"/layers.{layer}/norm1/LayerNormalization_output_0", f"/layers.{layer}/attn/o/MatMul_output_0"


if __name__ == "__main__":
    raise SystemExit(main())
