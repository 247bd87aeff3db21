"""The network of four stacks that the lessons on extraction cut up, and what they try extractors with.

``from branches import NAMES, Branches, network, verdict`` in a notebook beside this file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import onnx
import torch
from torch import Tensor, nn

import onnx_nb

NAMES: Final = {"input_names": ["image"], "output_names": ["result"]}
"""What an export calls the ends of the network."""


def stack(count: int, channels: int = 8) -> nn.Sequential:
    """Return some convolutions, one after the other."""
    sizes = [channels] + [8] * (count - 1)
    return nn.Sequential(*(nn.Conv2d(size, 8, kernel_size=3, padding=1) for size in sizes))


class Branches(nn.Module):
    """A stem, two stacks side by side, and one with a path around it."""

    def __init__(self, stem: int = 3) -> None:
        super().__init__()
        self.convs1 = stack(stem, channels=3)
        self.convs2 = stack(2)
        self.convs3 = stack(2)
        self.convs4 = stack(2)

    def forward(self, image: Tensor) -> Tensor:
        """Return a tensor with 8 channels, of the size of the image."""
        stem = self.convs1(image)
        joined = self.convs2(stem) + self.convs3(stem)
        result: Tensor = self.convs4(joined) + joined
        return result


def network(stem: int = 3) -> tuple[Branches, Tensor]:
    """Return the network with a stem of some convolutions, and an image for it; always the same numbers."""
    torch.manual_seed(0)
    return Branches(stem).eval(), torch.randn(1, 3, 20, 20)


def verdict(extract: Callable[[], Any]) -> str:
    """Return what an extraction gives or says, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = onnx_nb.load(extract())
        except (onnx_nb.ExtractionError, onnx.checker.ValidationError) as error:
            return f"{type(error).__name__}: {error}"
    return f"{len(made.proto.graph.node)} nodes" + "".join(f", and a warning: {each.message}" for each in caught)
