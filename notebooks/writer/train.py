"""Make the tokenizer and train the Writer: ``python -m notebooks.writer.train`` writes tokenizer.json and weights.npz.

It takes five minutes on one core. The lesson runs the first twenty steps and loads the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional

from .model import VOCABULARY, Writer

HERE: Final = Path(__file__).parent
END: Final = "<|end|>"
"""Token before and after each entry of the dictionary; its number is 0."""
STEPS: Final = 1250
ROWS: Final = 8
LENGTH: Final = 256
RATE: Final = 4e-3
"""Of the table and the norms, which AdamW trains."""
MATRIX_RATE: Final = 0.02
"""Of the matrices, which Muon trains: it needs half the steps."""


def entries() -> list[str]:
    """Return the entries of the dictionary, each with its word, what it says and its verses."""
    return (HERE / "devils-dictionary.txt").read_text(encoding="utf-8").strip().split("\n\n\n")


def made_tokenizer() -> Tokenizer:
    """Return a tokenizer whose pieces of words are the most frequent ones of the text, and the 256 bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(entries(), trainer)
    return tokenizer


def rows(tokenizer: Tokenizer) -> Iterator[Tensor]:
    """Yield batches of rows of tokens without end: the entries in another order each time, one behind the other."""
    random = np.random.default_rng(0)
    numbers = [[0, *encoded.ids] for encoded in tokenizer.encode_batch(entries())]
    size, left = ROWS * (LENGTH + 1), np.zeros(0, np.int64)
    while True:
        while len(left) < size:
            left = np.concatenate([left, *(numbers[place] for place in random.permutation(len(numbers)))])
        yield torch.from_numpy(left[:size].reshape(ROWS, LENGTH + 1))
        left = left[size:]


def training(model: Writer, tokenizer: Tokenizer, steps: int = STEPS) -> Iterator[float]:
    """Train a model step by step; yield the loss of each, in nats a token."""
    matrices = [weight for name, weight in model.named_parameters() if name.endswith("proj.weight")]
    others = [weight for name, weight in model.named_parameters() if not name.endswith("proj.weight")]
    optimizers: tuple[Any, ...] = (
        torch.optim.Muon(matrices, MATRIX_RATE),
        torch.optim.AdamW(others, RATE, betas=(0.9, 0.98)),
    )
    model.train()
    for step, tokens in zip(range(steps), rows(tokenizer), strict=False):
        share = min((step + 1) / 20, 1 - step / STEPS)
        for optimizer, rate in zip(optimizers, (MATRIX_RATE, RATE), strict=True):
            optimizer.param_groups[0]["lr"] = share * rate
            optimizer.zero_grad()
        logits = model(tokens[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
        yield loss.item()
    model.eval()


def main() -> None:
    """Write the tokenizer and the weights."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = made_tokenizer()
    tokenizer.save(str(HERE / "tokenizer.json"))
    model = Writer()
    for step, loss in enumerate(training(model, tokenizer)):
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4}: {loss:.2f} nats a token", flush=True)
    weights = {name: tensor.numpy().astype(np.float16) for name, tensor in model.state_dict().items()}
    np.savez_compressed(HERE / "weights.npz", **weights)


if __name__ == "__main__":
    main()
