"""The *Writer*: a decoder of half a million weights, built as the large ones are.

One module reads the prompt (prefill) and then one token at a time (step). What tells the two apart is only how many
tokens it is given, and how many its cache holds. Arguments and results are named as in transformers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY: Final = 1024
WIDTH: Final = 96
INNER: Final = 256
HEADS: Final = 4
HEAD: Final = WIDTH // HEADS
LAYERS: Final = 4
POSITIONS: Final = 512
"""Tokens that the tables of the rotary embedding are made for."""


class Past(NamedTuple):
    """What one layer keeps of the tokens so far, each [batch, heads, tokens, head size]."""

    keys: Tensor
    values: Tensor


class Cache(NamedTuple):
    """The past of every layer."""

    layers: tuple[Past, ...]


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of the angles of each token, [batch, 1, tokens, half of the head size]."""


class Output(dict[str, Any]):
    """Results by name, which are attributes, too."""

    __getattr__ = dict.__getitem__


class Attention(nn.Module):
    """Every token reads the tokens before it, and itself."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor, rotation: Rotation, mask: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """Return what is added to the stream, and the past with these tokens."""
        batch, length, _ = x.shape
        query, key, value = (
            project(x).view(batch, length, HEADS, HEAD).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotated(query, rotation), rotated(key, rotation)
        if past is not None:
            key, value = torch.cat([past.keys, key], dim=2), torch.cat([past.values, value], dim=2)
        scores = query @ key.transpose(2, 3) * HEAD**-0.5 + mask
        mixed = (scores.softmax(dim=3) @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        return self.o_proj(mixed), Past(key, value)


class Mlp(nn.Module):
    """Every token by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to the stream."""
        added: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return added


class Layer(nn.Module):
    """Two halves, each of which adds to the stream what it makes of a norm of it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.mlp_norm, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x: Tensor, rotation: Rotation, mask: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """Return the stream after this layer, and its past with these tokens."""
        added, present = self.attention(self.attention_norm(x), rotation, mask, past)
        x = x + added
        return x + self.mlp(self.mlp_norm(x)), present


class Writer(nn.Module):
    """Tokens in, a score for each token that may come next out."""

    cos: Tensor
    sin: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        rates = 10_000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.arange(POSITIONS)[:, None] * rates
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        *,
        use_cache: bool = True,
    ) -> Output:
        """Read tokens [batch, n] after those of the cache; the mask [batch, past + n] is 0 where a row is padded."""
        batch, length = input_ids.shape
        pasts = past_key_values.layers if past_key_values else (None,) * LAYERS
        start = past_key_values.layers[0].keys.shape[2] if past_key_values else 0
        places = torch.arange(start + length)
        if attention_mask is None:
            attention_mask = torch.ones(batch, start + length, dtype=torch.int64)
        if position_ids is None:
            position_ids = places[start:].expand(batch, length)
        sees = (places <= places[start:, None]) & (attention_mask[:, None, None, :] > 0)
        mask = torch.where(sees, 0.0, -1e9)
        cos, sin = (functional.embedding(position_ids, table)[:, None] for table in (self.cos, self.sin))
        x, presents = self.embedding(input_ids), []
        for layer, past in zip(self.layers, pasts, strict=True):
            x, present = layer(x, (cos, sin), mask, past)
            presents.append(present)
        logits = functional.linear(self.norm(x), self.embedding.weight)  # the table is read both ways
        return Output(logits=logits, past_key_values=Cache(tuple(presents)) if use_cache else None)


def rotated(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn pairs of numbers by an angle that grows with the position: the rotary embedding."""
    (cos, sin), (first, second) = rotation, x.chunk(2, dim=3)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=3)
