"""Vowels: what they sound like, and a network that tells eight of them apart.

The frequencies of the formants, the resonances of the mouth, are the means of men that Peterson and Barney measured
in 1952 (Control methods used in a study of the vowels).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

RATE: Final = 8000
"""Samples a second."""
FORMANTS: Final = {
    "heed": (270, 2290, 3010),
    "hid": (390, 1990, 2550),
    "head": (530, 1840, 2480),
    "had": (660, 1720, 2410),
    "hod": (730, 1090, 2440),
    "hut": (640, 1190, 2390),
    "hood": (440, 1020, 2240),
    "who'd": (300, 870, 2240),
}
"""Hertz of the three formants of the vowel in each word."""
WORDS: Final = tuple(FORMANTS)
WIDTHS: Final = np.array([80.0, 110.0, 160.0])
"""Hertz by which a resonance is wide."""
WIDTH: Final = 64
INNER: Final = 192
KERNEL: Final = 96
STRIDE: Final = 24


def sound(word: int, length: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a vowel of one of many speakers, with noise: so many samples, from a whisper to a shout."""
    pitch, size = rng.uniform(90, 240), rng.uniform(0.92, 1.12)
    harmonics = pitch * np.arange(1, int(RATE / 2 / pitch))
    centers = size * np.array(FORMANTS[WORDS[word]])
    resonances = 1 / np.abs(1 - (harmonics[:, None] / centers) ** 2 + 1j * harmonics[:, None] * WIDTHS / centers**2)
    strengths = resonances.prod(axis=1) / harmonics
    phases = rng.uniform(0, 2 * np.pi, len(harmonics))
    angles = 2 * np.pi * harmonics[:, None] * np.arange(length) / RATE
    wave = strengths @ np.sin(angles + phases[:, None])
    wave /= np.sqrt(np.mean(wave**2))
    wave += rng.uniform(0.1, 0.4) * rng.normal(size=length)
    loudness = 10 ** rng.uniform(-2.5, -0.3)
    return np.asarray(loudness * wave, np.float32)


def sounds(count: int, length: int = RATE // 5, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return vowels of one length, [count, length], and the number of the word of each."""
    rng = np.random.default_rng(seed)
    words = rng.integers(len(WORDS), size=count)
    return np.stack([sound(word, length, rng) for word in words]), words


class Block(nn.Module):
    """A convolution of each channel by itself, and two products for each piece of the sound."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, kernel_size=5, padding=2, groups=WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pieces [batch, pieces, width] with what the block adds to them."""
        mixed = self.norm(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        added: Tensor = self.down(functional.relu(self.up(mixed)))
        return x + added


class Vowels(nn.Module):
    """Sounds [batch, samples] in, a score for each word out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, WIDTH, kernel_size=KERNEL, stride=STRIDE)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.head = nn.Linear(WIDTH, len(WORDS))

    def pieces(self, sound: Tensor) -> Tensor:
        """Return what is known of each piece of a sound, [batch, pieces, width]."""
        cut = functional.relu(self.stem(sound[:, None]))
        known: Tensor = self.blocks(self.norm(cut.transpose(1, 2)))
        return known

    def forward(self, sound: Tensor) -> Any:
        """Return the scores [batch, words]."""
        return self.head(self.pieces(sound).mean(dim=1))
