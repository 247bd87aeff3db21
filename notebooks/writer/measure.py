"""What a package expects next: ``probabilities(package, tokenizer)``, by which lesson 12b compares two packages."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import onnx_nb

from .export import PARTS
from .model import HEAD, HEADS
from .train import LENGTH, ROWS, rows


def probabilities(package: Any, tokenizer: Any) -> Tensor:
    """Return the logarithms of the probabilities of each token after each of 2,048 tokens of the dictionary."""
    tokens = next(rows(tokenizer))[:, :LENGTH].numpy()
    positions = np.broadcast_to(np.arange(LENGTH), tokens.shape)
    empty = {f"past_key_values.{layer}.{part}": np.zeros((ROWS, HEADS, 0, HEAD), np.float32) for layer, part in PARTS}
    feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "position_ids": positions, **empty}
    return torch.from_numpy(onnx_nb.run(package, feeds)["logits"]).log_softmax(dim=2)
