"""Train the network that hears vowels: ``python -m notebooks.vowels.train`` writes weights.npz in two minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from .model import RATE, Vowels, sounds

HERE: Final = Path(__file__).parent
STEPS: Final = 900
BATCH: Final = 64
LENGTHS: Final = (RATE // 20, RATE // 4)
"""Samples of the shortest and of the longest sound."""
PEAK: Final = 4e-3


def training(net: Vowels, steps: int = STEPS) -> Iterator[float]:
    """Train a network step by step, on new sounds each; yield the loss."""
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=PEAK, total_steps=steps)
    rng = np.random.default_rng(1)
    net.train()
    for step in range(steps):
        waves, words = sounds(BATCH, int(rng.integers(*LENGTHS)), seed=1000 + step)
        loss = functional.cross_entropy(net(torch.from_numpy(waves)), torch.from_numpy(words))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        yield loss.item()
    net.eval()


def main() -> None:
    """Write the weights, rounded to float16."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Vowels()
    for step, loss in enumerate(training(net)):
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4}: {loss:.2f}", flush=True)
    weights = {name: tensor.numpy().astype(np.float16) for name, tensor in net.state_dict().items()}
    np.savez_compressed(HERE / "weights.npz", **weights)


if __name__ == "__main__":
    main()
