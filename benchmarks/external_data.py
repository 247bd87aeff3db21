"""Large models beside their weights: auditing against onnx's checker, converting against `onnx.save_model`.

``python -m benchmarks.external_data``: the 2.5 GB are a file of zeros that takes no disk; the 1 GB is random and
written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.chains import write_chain
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


def size(nbytes: int) -> int:
    """Return the bytes of each of `TENSORS` weights, whole pages, that take so many together."""
    return nbytes // TENSORS // 4096 * 4096


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    with tempfile.TemporaryDirectory() as folder:
        source = write_chain(Path(folder) / "model.onnx", TENSORS, size(2_500_000_000), data="weights", holes=True)
        found = measured(AUDIT, {"source": str(source)})
        report.compare(f"audit 2.5 GB in {TENSORS} tensors", found, [Limit("wall", 0.1), Limit("memory", 10)])
    with tempfile.TemporaryDirectory() as folder:
        source = write_chain(Path(folder) / "model.onnx", TENSORS, size(1_000_000_000), data="weights")
        found = measured(CONVERT, {"source": str(source), "room": folder}, rounds=3)
        limits = [Limit("cpu", 1 / 2, "onnx"), Limit("memory", 1 / 10, "onnx")]
        report.compare(f"move 1 GB in {TENSORS} tensors out of the file", found, limits)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
