"""A small network that hears the shape of a wave: ``from waves import trained, waves`` in a notebook beside this."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .model import KINDS, Listener, waves

__all__ = ["KINDS", "Listener", "trained", "waves"]

HERE: Final = Path(__file__).parent


def trained() -> Listener:
    """Return the network with the weights that `train` has written."""
    import numpy as np
    import torch

    net = Listener()
    with np.load(HERE / "weights.npz") as saved:
        weights = {name: torch.from_numpy(saved[name]) for name in saved.files}
    net.load_state_dict(weights)  # which it widens to float32
    return net.eval()
