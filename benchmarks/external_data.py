"""Large models beside their weights: auditing against onnx's checker, converting against `onnx.save_model`.

``python -m benchmarks.external_data``: the 2.5 GB are a file of zeros that takes no disk; the 1 GB is random and
written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from benchmarks.measuring import Limit, Report, Way, measured

TENSORS = 300
WARM = "import onnx, onnx.checker, onnx_nb; from onnx_nb import external_data"
AUDIT = {
    "onnx_nb": Way("assert external_data.audit(onnx_nb.load(source)).ok", WARM),
    "onnx": Way("onnx.load(source, load_external_data=False); onnx.checker.check_model(source)", WARM),
}
FOLDER = WARM + "\nimport tempfile; folder = tempfile.TemporaryDirectory(dir=room); target = folder.name + '/out.onnx'"
CONVERT = {
    "onnx_nb": Way("external_data.convert(source, target)", FOLDER),
    "with checksums": Way("external_data.convert(source, target, checksums=True)", FOLDER),
    "onnx": Way("onnx.save_model(onnx.load(source), target, save_as_external_data=True, location='data')", FOLDER),
}


def make(folder: Path, nbytes: int, *, random: bool) -> Path:
    """Write a model of `TENSORS` weights in a file next to it: random numbers, or a hole."""
    size = nbytes // TENSORS // 4096 * 4096
    weights = []
    with (folder / "weights").open("xb") as file:
        for i in range(TENSORS):
            tensor = TensorProto(
                name=f"layers.{i}.weight",
                data_type=TensorProto.FLOAT,
                dims=[size // 4],
                data_location=TensorProto.EXTERNAL,
            )
            for key, value in (("location", "weights"), ("offset", i * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            weights.append(tensor)
            if random:
                file.write(np.random.default_rng(i).bytes(size))
        file.truncate(TENSORS * size)
    nodes = [
        helper.make_node("Add", [f"t{i}", f"layers.{i}.weight"], [f"t{i + 1}"], f"/layers.{i}/Add")
        for i in range(TENSORS)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size // 4]) for name in ("t0", f"t{TENSORS}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), 2_500_000_000, random=False)
        found = measured(AUDIT, {"source": str(source)})
        report.compare(f"audit 2.5 GB in {TENSORS} tensors", found, [Limit("wall", 0.1), Limit("memory", 10)])
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), 1_000_000_000, random=True)
        found = measured(CONVERT, {"source": str(source), "room": folder}, rounds=3)
        limits = [Limit("cpu", 1 / 2, "onnx"), Limit("memory", 1 / 10, "onnx")]
        report.compare(f"move 1 GB in {TENSORS} tensors out of the file", found, limits)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
