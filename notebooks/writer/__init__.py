"""A small decoder trained on a dictionary: ``from writer import trained`` in a notebook beside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .model import Writer

HERE: Final = Path(__file__).parent


def trained() -> Writer:
    """Return the decoder with the weights that `train` has written."""
    import numpy as np
    import torch

    model = Writer()
    with np.load(HERE / "weights.npz") as saved:
        model.load_state_dict({name: torch.from_numpy(saved[name].astype(np.float32)) for name in saved.files})
    return model.eval()
