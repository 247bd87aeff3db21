"""A small network that hears vowels: ``from vowels import trained, sounds`` in a notebook beside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .model import RATE, WORDS, Vowels, sound, sounds

__all__ = ["RATE", "WORDS", "Vowels", "sound", "sounds", "trained"]

HERE: Final = Path(__file__).parent


def trained() -> Vowels:
    """Return the network with the weights that `train` has written."""
    import numpy as np
    import torch

    net = Vowels()
    with np.load(HERE / "weights.npz") as saved:
        net.load_state_dict({name: torch.from_numpy(saved[name].astype(np.float32)) for name in saved.files})
    return net.eval()
