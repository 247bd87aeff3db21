"""Export the Writer as a package: ``python -m notebooks.writer.export build/writer`` writes the folder.

The package is laid out as the builder of onnxruntime-genai lays out its own: model.onnx, genai_config.json and
tokenizer.json. One graph reads the prompt and each token after it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import onnx
import torch
from torch import Tensor, nn

import onnx_nb

from . import HERE, trained
from .model import HEAD, HEADS, LAYERS, POSITIONS, VOCABULARY, WIDTH, Cache, Past, Writer

PARTS: Final = [(layer, part) for layer in range(LAYERS) for part in ("key", "value")]


class Flat(nn.Module):
    """The Writer with its cache as a list of tensors, which is what a graph takes and returns."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self.model = writer

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, pasts: list[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return the logits and the new cache, also as a list."""
        cache = Cache(tuple(map(Past, pasts[::2], pasts[1::2])))
        output = self.model(input_ids, attention_mask, position_ids, cache)
        return (output.logits, *(tensor for past in output.past_key_values.layers for tensor in past))


def exported(writer: Writer) -> onnx_nb.Model:
    """Return the graph of a decoder, in which batch, tokens and the length of the cache are dynamic."""
    # two tensors: given one twice, the exporter lets the embedding read the positions
    ids, positions = torch.zeros(2, 3, dtype=torch.int64), torch.arange(3).repeat(2, 1)
    mask, pasts = torch.ones(2, 8, dtype=torch.int64), [torch.zeros(2, HEADS, 5, HEAD) for _ in PARTS]
    tokens, cache = {0: "batch", 1: "sequence"}, {0: "batch", 2: "past"}
    inputs = ("input_ids", "attention_mask", "position_ids")
    return onnx_nb.export(
        Flat(writer).eval(),
        (ids, mask, positions, pasts),
        opset=20,
        input_names=[*inputs, *(f"past_key_values.{layer}.{part}" for layer, part in PARTS)],
        output_names=["logits", *(f"present.{layer}.{part}" for layer, part in PARTS)],
        dynamic_shapes=(tokens, {0: "batch", 1: "past + sequence"}, tokens, [cache] * len(PARTS)),
    )


def write(folder: Path, model: Any) -> Path:
    """Write a package with a graph, the tokenizer and the configuration; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    proto = onnx_nb.load(model).to_proto()
    for node in proto.graph.node:  # an eighth of the file
        kept = [entry for entry in node.metadata_props if not entry.key.endswith("stack_trace")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(proto, folder / "model.onnx")
    shutil.copy(HERE / "tokenizer.json", folder)
    decoder = {
        "filename": "model.onnx",
        "head_size": HEAD,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    sizes = {"type": "llama", "vocab_size": VOCABULARY, "context_length": POSITIONS}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    text = json.dumps({"model": {**sizes, **ends, "decoder": decoder}}, indent=1)
    (folder / "genai_config.json").write_text(text + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]), exported(trained()))
