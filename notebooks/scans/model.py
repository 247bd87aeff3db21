"""Pages of print, their scans, and a network that makes them sharper."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn
from torch.nn import functional

TEXT: Final = (
    "the quick brown fox jumps over lazy dog; pack my box with five dozen jugs. "
    "Sphinx of black quartz, judge 0123456789 vow How vexingly daft zebras"
)
WORDS: Final = TEXT.split()
FONTS: Final = [
    ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", name), 15)
    for name in ("DejaVuSans.ttf", "DejaVuSerif.ttf")
]


class SRCNN(nn.Module):
    """The first network that was trained to enlarge images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, kernel_size=9, padding=4)
        self.conv2 = nn.Conv2d(64, 32, kernel_size=1)
        self.conv3 = nn.Conv2d(32, 1, kernel_size=5, padding=2)

    def forward(self, image: Tensor) -> Tensor:
        """Return the image, three times as high and as wide."""
        x = functional.interpolate(image, scale_factor=3, mode="bicubic", align_corners=False)
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        sharp: Tensor = self.conv3(x)
        return sharp


def printed(rng: np.random.Generator, height: int = 96, width: int = 96) -> np.ndarray:
    """Return a page with lines of words: 0 for paper, 1 for ink."""
    page = Image.new("L", (width, height), color=255)
    draw = ImageDraw.Draw(page)
    for top in range(int(rng.integers(-12, 1)), height, 21):
        line = " ".join(rng.choice(WORDS, 12))
        draw.text((int(rng.integers(-20, 1)), top), line, font=FONTS[rng.integers(2)], fill=0)
    return 1 - np.asarray(page, dtype=np.float32) / 255


def scanned(page: Tensor) -> Tensor:
    """Return the scan of pages: the mean of each 3 × 3 pixels."""
    return functional.avg_pool2d(page, 3)
