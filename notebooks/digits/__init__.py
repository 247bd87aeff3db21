"""A small network that reads digits: ``from digits import digits, trained`` in a notebook beside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .model import Reader, digits

__all__ = ["Reader", "digits", "trained"]

HERE: Final = Path(__file__).parent


def trained() -> Reader:
    """Return the network with the weights that `train` has written."""
    import numpy as np
    import torch

    net = Reader()
    with np.load(HERE / "weights.npz") as saved:
        weights = {name: torch.from_numpy(saved[name]) for name in saved.files}
    net.load_state_dict(weights)  # which it widens to float32
    return net.eval()
