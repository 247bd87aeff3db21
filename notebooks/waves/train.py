"""Train the network that hears the shape of a wave: ``python -m notebooks.waves.train`` writes weights.npz."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from notebooks.training import classify, save

from .model import Listener, waves

HERE: Final = Path(__file__).parent
STEPS: Final = 200


def main() -> None:
    """Write the weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Listener()
    classify(net, *waves(4096, seed=0), STEPS)
    save(net, HERE / "weights.npz")


if __name__ == "__main__":
    main()
