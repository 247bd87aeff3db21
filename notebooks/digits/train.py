"""Train the network that reads digits: ``python -m notebooks.digits.train`` writes weights.npz in ten seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from notebooks.training import classify, save

from .model import Reader, digits

HERE: Final = Path(__file__).parent
STEPS: Final = 400


def main() -> None:
    """Write the weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Reader()
    classify(net, *digits(4000, seed=0), STEPS)
    save(net, HERE / "weights.npz")


if __name__ == "__main__":
    main()
