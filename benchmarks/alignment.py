"""Share of submodule outputs that are matched with a tensor, for every kind of model and both exporters.

``python -m benchmarks.alignment [conv bert …]`` prints the share and, beside it, the one that a prototype of the
algorithm reached on such models; outputs without a tensor are counted by their reason. It fails if a share is lower.
That no match is wrong is what tests/analysis/pytorch/test_align.py tests, by the values of all tensors.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from typing import Any

import torch
from torch import nn

import onnx_nb
from benchmarks.measuring import Report, command_line
from tests import modules

# TorchScript, dynamo, dynamo without optimization: percent of module outputs that the prototype matched
PROTOTYPE = {
    "conv": (100, 100, 100),
    "conv_bn": (81, 81, 100),
    "resnet": (81, 81, 100),
    "bert": (95, 100, 100),
    "bert_eager": (96, 100, 100),
    "llama": (100, 96, 100),
    "shared": (100, 100, 100),
    "tuples": (75, 70, 75),
}


class StemAndBlocks(nn.Module):
    """Twenty-one outputs, four of a convolution before a normalization: a fusion leaves 17."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.act, self.smaller = nn.ReLU(), nn.MaxPool2d(2)
        self.blocks = nn.ModuleList([modules.Residual(8), modules.Residual(8)])
        self.pool, self.flat, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        """Return four numbers for each picture."""
        x = self.smaller(self.act(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.fc(self.flat(self.pool(x)))


def reason(why: str) -> str:
    """Return the reason why an output has no tensor, shortened."""
    return "folded into a normalization" if why.startswith("folded") else why.partition(":")[0]


def add(report: Report, name: str) -> None:
    """Add one model's shares."""
    module, kwargs = modules.fresh(name)
    if name == "conv_bn":
        torch.manual_seed(0)
        module = StemAndBlocks().eval()
    recording = onnx_nb.record(module, (), kwargs)
    for (how, options), least in zip(modules.EXPORTS.items(), PROTOTYPE[name], strict=True):
        found = onnx_nb.align(recording, onnx_nb.export(module, (), kwargs, **options))
        percent = 100 * len(found.matched) / len(found)
        without = Counter(reason(match.why) for match in found.unmatched)
        figures = {
            "onnx_nb": f"{len(found.matched)} of {len(found)}: {percent:.1f} %",
            "without a tensor": ", ".join(f"{count} {why}" for why, count in without.items()) or "none",
        }
        report.row(f"{name}, {how}", figures, f"at least {least} %", holds=round(percent) >= least)


def main() -> int:
    """Count; 1 if a share is lower than it was."""
    names, _ = command_line(__doc__, PROTOTYPE)
    logging.disable(logging.CRITICAL)
    report = Report(__spec__.name, __doc__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            add(report, name)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
