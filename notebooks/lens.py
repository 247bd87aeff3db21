"""A lens out of a deformable convolution: ``from lens import Lens, deform_conv2d`` in a notebook beside this file."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
from matplotlib import cbook
from torch import nn


def deform_conv2d(x: torch.Tensor, offset: torch.Tensor, weight: torch.Tensor, padding: Any) -> torch.Tensor:
    """Return a convolution that reads its input at places moved by offsets: `torchvision::deform_conv2d` in Python."""
    n, _, height, width = offset.shape
    outputs, channels, rows, columns = weight.shape
    offset = offset.view(n, -1, 2, height, width)
    row = torch.arange(rows).repeat_interleave(columns).view(-1, 1, 1) - padding
    column = torch.arange(columns).repeat(rows).view(-1, 1, 1) - padding
    down = torch.arange(height).view(-1, 1) + row + offset[:, :, 0]
    right = torch.arange(width) + column + offset[:, :, 1]
    grid = torch.stack([2 * right / (x.shape[3] - 1) - 1, 2 * down / (x.shape[2] - 1) - 1], dim=-1)
    taken = F.grid_sample(x, grid.view(n, -1, width, 2), align_corners=True)
    taken = taken.view(n, channels * rows * columns, height * width)
    return (weight.view(outputs, -1) @ taken).view(n, outputs, height, width)


class Lens(nn.Module):
    """The mean of nine taps, which lie as far apart as a map says."""

    taps: torch.Tensor
    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        taps = torch.tensor([[down, right] for down in (-1.0, 0, 1) for right in (-1.0, 0, 1)])
        self.register_buffer("taps", taps.view(1, 18, 1, 1))
        self.register_buffer("weight", torch.full((1, 1, 3, 3), 1 / 9))

    def convolve(self, x: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        """Return the convolution, which a lesson replaces by an operator."""
        return deform_conv2d(x, offset, self.weight, 1)

    def forward(self, x: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        """Return the picture through the lens."""
        return self.convolve(x, self.taps * spread)


def portrait() -> torch.Tensor:
    """Return a gray picture of 240 × 240 pixels that comes with matplotlib."""
    photo = plt.imread(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)))
    gray = photo[40:280, 130:370].mean(axis=-1) / 255
    return torch.tensor(gray, dtype=torch.float32)[None, None]


def map_of_spread() -> torch.Tensor:
    """Return how far apart the taps lie at each pixel: not at all in the middle, where the picture is sharp."""
    away = np.hypot(*(np.mgrid[:240, :240] - np.array([135, 120]).reshape(2, 1, 1)))
    return torch.tensor(np.clip(away / 25 - 3, -1, 4), dtype=torch.float32)[None, None]
