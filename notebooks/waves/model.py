"""Noisy waves of four shapes, and a network that tells them apart."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

KINDS: Final = ["sine", "square", "sawtooth", "triangle"]


def waves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return sounds, count × 1 × 128, and the kind of each."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4, size=count)
    turn = (rng.random((count, 1)) + rng.uniform(2, 12, (count, 1)) * np.linspace(0, 1, 128)) % 1
    shapes = [np.sin(2 * np.pi * turn), np.sign(turn - 0.5), 2 * turn - 1, 1 - 4 * np.abs(turn - 0.5)]
    wave = np.stack(shapes)[kind, np.arange(count)] + 0.2 * rng.normal(size=(count, 128))
    return torch.tensor(wave[:, None], dtype=torch.float32), torch.tensor(kind)


class Attention(nn.Module):
    """Each piece reads from all pieces."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        """Return the channels of each head apart."""
        y: Tensor = x.unflatten(2, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Return what each piece reads."""
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        weights = scores.softmax(dim=-1)
        mixed = weights @ value
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y


class Block(nn.Module):
    """Attention, then a layer for each piece by itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the pieces with what they read, and what was made of it."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Listener(nn.Module):
    """From sounds to a score for each kind of wave."""

    def __init__(self, width: int = 32, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, width, kernel_size=8, stride=8), nn.BatchNorm1d(width), nn.ReLU())
        self.place = nn.Parameter(0.1 * torch.randn(16, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(KINDS))

    def forward(self, sound: Tensor) -> Tensor:
        """Return the scores of each sound."""
        x = self.stem(sound).transpose(1, 2) + self.place
        x = self.norm(self.blocks(x))
        scores: Tensor = self.head(x.mean(dim=1))
        return scores
