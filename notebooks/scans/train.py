"""Train the network that sharpens scans: ``python -m notebooks.scans.train`` writes weights.npz in ten seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from notebooks.training import save

from .model import SRCNN, printed, scanned

HERE: Final = Path(__file__).parent
STEPS: Final = 400
BATCH: Final = 8
PEAK: Final = 6e-3


def main() -> None:
    """Write the weights."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pages = torch.tensor(np.stack([printed(rng) for _ in range(64)]))[:, None]
    torch.manual_seed(0)
    net = SRCNN()
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=PEAK, total_steps=STEPS)
    for step in range(STEPS):
        chosen = torch.randint(len(pages), (BATCH,))
        top, left = 3 * torch.randint(0, 20, (2,))
        wanted = pages[chosen, :, top : top + 36, left : left + 36]
        loss = functional.mse_loss(net(scanned(wanted)), wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4}: {loss.item():.4f}", flush=True)
    save(net, HERE / "weights.npz")


if __name__ == "__main__":
    main()
