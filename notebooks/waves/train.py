"""Train the network that hears the shape of a wave: ``python -m notebooks.waves.train`` writes weights.npz."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from .model import Listener, waves

HERE: Final = Path(__file__).parent
STEPS: Final = 200
BATCH: Final = 64
PEAK: Final = 4e-3


def main() -> None:
    """Write the weights, rounded to float16."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Listener()
    heard, kinds = waves(4096, seed=0)
    optimizer = torch.optim.AdamW(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=PEAK, total_steps=STEPS)
    for step in range(STEPS):
        batch = torch.randint(len(heard), (BATCH,))
        loss = functional.cross_entropy(net(heard[batch]), kinds[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4}: {loss.item():.2f}", flush=True)
    weights = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    halves = {name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in weights.items()}
    np.savez_compressed(HERE / "weights.npz", **halves)


if __name__ == "__main__":
    main()
