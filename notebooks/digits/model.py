"""Digits in twelve fonts, and a network that reads them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

_FOLDER: Final = Path(mpl.get_data_path(), "fonts", "ttf")
FONTS: Final = [path for path in sorted(_FOLDER.glob("DejaVu*.ttf")) if "Display" not in path.name]
"""Files of the fonts; the two of displays have no digits."""
SIDE: Final = 32
"""Pixels of the side of an image."""


def digits(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images of digits, count × 1 × 32 × 32, shifted, turned and noisy, and what each shows."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    images = np.zeros((count, 1, SIDE, SIDE), np.float32)
    for image, digit in zip(images, labels, strict=True):
        font = ImageFont.truetype(FONTS[rng.integers(len(FONTS))], int(rng.integers(18, 27)))
        page = Image.new("L", (SIDE, SIDE))
        x, y = 16 + rng.uniform(-4, 4, 2)
        ImageDraw.Draw(page).text((x, y), str(digit), 255, font, anchor="mm")
        turned = page.rotate(rng.uniform(-25, 25), Image.Resampling.BILINEAR)
        image[0] = np.asarray(turned) / 255 + rng.normal(0, 0.15, (SIDE, SIDE))
    return torch.from_numpy(images), torch.from_numpy(labels)


class Attention(nn.Module):
    """Each token reads from all tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        """Return the channels of each head apart."""
        y: Tensor = x.unflatten(2, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Return what each token reads."""
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(2, 3)
        scores = scores / query.shape[3] ** 0.5
        weights = scores.softmax(dim=3)
        mixed = weights @ value
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y


class Block(nn.Module):
    """Attention, then a layer for each token by itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens with what they read, and what was made of it."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Reader(nn.Module):
    """From images of digits to a score for each of ten."""

    def __init__(self, width: int = 48, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential()
        for before, after in pairwise((1, 12, 24, width)):
            convolution = nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1)
            self.stem.extend([convolution, nn.BatchNorm2d(after), nn.ReLU()])
        self.position = nn.Parameter(0.1 * torch.randn(16, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Return the scores of each image."""
        tokens = self.stem(image).flatten(2).transpose(1, 2)
        x = tokens + self.position
        x = self.norm(self.blocks(x))
        y: Tensor = self.head(x.mean(dim=1))
        return y
