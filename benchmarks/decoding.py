"""Generators: `compare_decoding` with the isolated error of every layer at every step, against decoding on both sides.

``python -m benchmarks.decoding``: 8 layers of width 256, a prompt of 256 tokens, 64 steps. The package is as
onnxruntime-genai's builder writes it; the reference is a second package, or transformers' module of the same weights.
"""

from __future__ import annotations

from benchmarks.measuring import Limit, Report, Way, measured

SETUP = """
import numpy as np, torch, onnx_nb, tempfile
from pathlib import Path
from tests.analysis.generate import packages
packages.POSITIONS = 512
torch.set_num_threads(1)
sound = packages.decoder(8, hidden=256)
folder = packages.write(Path(tempfile.mkdtemp()), sound)
package = onnx_nb.load(folder)
other = packages.write(Path(tempfile.mkdtemp()), sound)
reference = packages.llama(sound) if against == "transformers" else onnx_nb.load(other)
ids = [7 * number % packages.VOCABULARY for number in range(256)]
onnx_nb.decode(package, ids[:4], 2)  # the first session of a process sets onnxruntime up
"""
WAYS = {
    "onnx_nb": Way(
        "c = onnx_nb.compare_decoding(reference, package, ids, 64); more['steps'] = len(c.steps); "
        "more['layers'] = c.errors.shape[1]",
        SETUP,
    ),
    "decoding both": Way(
        """
onnx_nb.decode(package, ids, 64, stop=())
if against == "transformers":
    with torch.no_grad():
        reference.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)
else:
    onnx_nb.decode(reference, ids, 64, stop=())
""",
        SETUP,
    ),
}


def main() -> int:
    """Measure; 1 if a limit does not hold."""
    report = Report(__spec__.name, __doc__)
    for against in ("another package", "transformers"):
        found = measured(WAYS, {"against": against}, rounds=3)
        report.compare(f"256 tokens and 64 steps, against {against}", found, [Limit("cpu", 5, "decoding both")])
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
