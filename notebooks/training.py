"""What scripts of the course that train a small network share: the loop, and the file of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH: Final = 64
PEAK: Final = 4e-3
"""Highest rate of learning."""


def classify(net: nn.Module, inputs: Tensor, kinds: Tensor, steps: int) -> None:
    """Train a network to tell kinds apart, and print its loss every fifty steps."""
    optimizer = torch.optim.AdamW(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=PEAK, total_steps=steps)
    for step in range(steps):
        batch = torch.randint(len(inputs), (BATCH,))
        loss = functional.cross_entropy(net(inputs[batch]), kinds[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:4}: {loss.item():.2f}", flush=True)


def save(net: nn.Module, path: Path) -> None:
    """Write the weights of a network, those in float32 rounded to float16."""
    weights = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    halves = {name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in weights.items()}
    np.savez_compressed(path, **halves)
