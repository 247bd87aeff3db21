"""``python -m tests.wild.fused``: does `compare_torch` raise no alarm on what the builder made of a sound module?

Each package that the builder makes, with the module that it was made of; the module's token ids are all that is given.
Prints what is said, and how many of the module's values have a tensor. Then a quarter of each weight of a layer in
float32 is changed, one weight after another, and the layer has to be named. The exit status is 1 if something is said
to differ in a package in four bits, or in one whose logits are the module's, or if a layer is not named.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper

import onnx_nb
from tests.wild import collection

IDS = torch.tensor([[7 * n % 290 + 3 for n in range(40)]])


def faults(path: Path) -> Iterator[tuple[str, str, onnx.ModelProto]]:
    """Yield each weight of a layer by name, what has to be named, and a copy in which a quarter of it is changed."""
    for place, weight in enumerate(onnx.load(path).graph.initializer):
        layer, array = re.search(r"layers\.\d+", weight.name), numpy_helper.to_array(weight).copy()
        if layer is None or array.dtype != np.float32 or array.size < 8:
            continue
        part = array.reshape(-1)[: array.size // 4]
        part[:] = part * 1.3 + 0.05 * (not part.any())
        proto = onnx.load(path)
        proto.graph.initializer[place].CopyFrom(numpy_helper.from_array(array, weight.name))
        yield weight.name, "norm" if "final_norm" in weight.name else layer[0], proto


def named(module: Any, proto: onnx.ModelProto) -> str:
    """Return where the first difference is said to be: the point, and the submodules in its region."""
    comparison = onnx_nb.compare_torch(module, IDS, model=proto)
    first = comparison.first_divergent()
    return "" if first is None else " ".join((f"model.{first.scope}", first.name, *first.inside))


def main() -> int:
    """Print a line for each package; return 1 if one is sound and said to differ, or a fault is not named."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    alarms = count = 0
    unnamed: list[str] = []
    for path in collection.generators()[0]:
        in_float = path.parent.name == "fp32"
        checkpoint = path.parent.parent / "checkpoint"
        loaded = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
        module = loaded.float().eval()  # type: ignore[no-untyped-call]
        comparison = onnx_nb.compare_torch(module, IDS, model=path.parent)
        with torch.no_grad():
            right = module(IDS).logits.numpy()
        far = float(np.abs(onnx_nb.decode(path.parent, IDS.numpy(), 1).logits[:, 0] - right[:, -1]).max())
        is_sound = not in_float or far < 1e-4 * np.abs(right).max()
        alarms += is_sound and comparison.first_divergent() is not None
        points = (
            f"{len(comparison.points)} of {len(comparison.points) + len(comparison.unmatched)} values have a tensor"
        )
        sys.stdout.write(
            f"{path.parent.parent.name} {path.parent.name}: logits off by {far:.1e}; {points}. {comparison.message}\n"
        )
        for name, place, proto in faults(path) if in_float else ():
            count += 1
            unnamed += [] if f"model.{place}" in named(module, proto) else [f"{path.parent.parent.name}: {name}"]
    sys.stdout.write(f"{count - len(unnamed)} of {count} faults named{''.join(f', not {name}' for name in unnamed)}\n")
    return int(alarms > 0 or bool(unnamed))


if __name__ == "__main__":
    sys.exit(main())
