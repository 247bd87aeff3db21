"""A network that sharpens scans of print: ``from scans import SRCNN, trained`` in a notebook beside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .model import SRCNN, printed, scanned

__all__ = ["SRCNN", "printed", "scanned", "trained"]

HERE: Final = Path(__file__).parent


def trained() -> SRCNN:
    """Return the network with the weights that `train` has written."""
    import numpy as np
    import torch

    net = SRCNN()
    with np.load(HERE / "weights.npz") as saved:
        weights = {name: torch.from_numpy(saved[name]) for name in saved.files}
    net.load_state_dict(weights)  # which it widens to float32
    return net.eval()
