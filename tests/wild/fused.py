"""``python -m tests.wild.fused``: does `compare_torch` raise no alarm on what the builder made of a sound module?

Each float32 package that the builder makes, with the module that it was made of; the module's token ids are all that is
given. Prints what is said, and how many of the module's values have a tensor. The exit status is 1 if something is said
to differ in a package whose logits are the module's.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import torch
import transformers

import onnx_nb
from tests.wild import collection

IDS = torch.tensor([[7 * n % 290 + 3 for n in range(40)]])


def main() -> int:
    """Print a line for each package; return 1 if one is sound and said to differ."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    alarms = 0
    for path in (path for path in collection.generators()[0] if path.parent.name == "fp32"):
        checkpoint = path.parent.parent / "checkpoint"
        loaded = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
        module = loaded.float().eval()
        comparison = onnx_nb.compare_torch(module, IDS, model=path.parent)
        with torch.no_grad():
            right = module(IDS).logits.numpy()
        far = float(np.abs(onnx_nb.decode(path.parent, IDS.numpy(), 1).logits[:, 0] - right[:, -1]).max())
        is_sound = far < 1e-4 * np.abs(right).max()
        alarms += is_sound and comparison.first_divergent() is not None
        points = (
            f"{len(comparison.points)} of {len(comparison.points) + len(comparison.unmatched)} values have a tensor"
        )
        sys.stdout.write(f"{path.parent.parent.name}: logits off by {far:.1e}; {points}. {comparison.message}\n")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
