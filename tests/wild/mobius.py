"""``python -m tests.wild.mobius``: do packages that mobius builds pass through every verb, and write what torch writes?

mobius (``mobius-onnx``, the builder of the onnxruntime organisation) writes opset 24 with Attention nodes, a folder for
each model, and no configuration. Sixteen decoders and two models with an encoder, all with random weights. It prints a
line for each; the exit status is 1 if a verb fails, a cost is unknown, or a token differs from that of transformers.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers

import onnx_nb
from onnx_nb.analysis.run.random_feeds import feed_shapes
from tests.wild import collection

BUILDER: Final = ("mobius-onnx==0.1.0", "onnx-shape-inference==0.4.0")
STEPS: Final = 16
PROMPT: Final = [7 * n % 290 + 3 for n in range(9)]
TINY: Final = {"vocab_size": 120, "d_model": 32, "decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 2}
DECODERS: Final[dict[str, dict[str, Any]]] = {
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "n_inner": 128, "num_key_value_heads": 4},
    "gpt_neox": {"num_key_value_heads": 4},
    "granite": {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 1},
    "mixtral": {"num_local_experts": 4},
    "nemotron": {},
    "olmo2": {},
    "stablelm": {},
    "starcoder2": {"sliding_window": None},
}
"""Further decoders of transformers, and their sizes beside `collection.SIZES`."""
SEQUENCES: Final = {
    "whisper": (
        "WhisperConfig",
        {
            **TINY, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 16,
            "max_source_positions": 50, "max_target_positions": 64, "init_std": 0.4,
        },
        "WhisperForConditionalGeneration",
        {"input_features": np.random.default_rng(0).normal(size=(1, 16, 100)).astype(np.float32)},
    ),
    "t5": (
        "T5Config",
        {**TINY, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "initializer_factor": 4.0},
        "T5ForConditionalGeneration",
        {"input_ids": np.array([PROMPT]) % 120},
    ),
}  # fmt: skip
"""Name → configuration, its sizes, the class of the model, and what its encoder reads."""
BUILD: Final = "import mobius, sys; mobius.build(sys.argv[1], dtype='f32').save(sys.argv[2])"


def built(checkpoint: Path, name: str) -> Path:
    """Return the folder of a package, built if it is not here yet."""
    folder = collection.CACHE / "mobius" / name
    if not folder.exists():
        python = collection.environment()
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *BUILDER], check=True)
        subprocess.run([python, "-c", BUILD, str(checkpoint), str(folder)], check=True, capture_output=True)
    return folder


def modules() -> Iterator[tuple[str, Any, Path, dict[str, Any]]]:
    """Yield each name, the module, the folder of its package, and what its encoder reads."""
    collection.generators()
    for name in collection.ARCHITECTURES:
        checkpoint = collection.CACHE / "generators" / name / "checkpoint"
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
        yield name, loaded.float().eval(), built(checkpoint, name), {}
    for name, more in DECODERS.items():
        torch.manual_seed(0)
        configuration = transformers.AutoConfig.for_model(name, **{**collection.SIZES, **more})
        kind: Any = transformers.AutoModelForCausalLM
        module = kind.from_config(configuration, attn_implementation="eager")
        checkpoint = collection.CACHE / "checkpoints" / name
        module.float().eval().save_pretrained(checkpoint)
        yield name, module, built(checkpoint, name), {}
    for name, (config, sizes, architecture, feeds) in SEQUENCES.items():
        torch.manual_seed(0)
        module = getattr(transformers, architecture)(getattr(transformers, config)(**sizes)).eval()
        checkpoint = collection.CACHE / "checkpoints" / name
        module.save_pretrained(checkpoint)
        yield name, module, built(checkpoint, name), feeds


def tokens_of(module: Any, feeds: dict[str, Any], start: list[int]) -> list[int]:
    """Return the greedy tokens of a module that reads all tokens at each step."""
    ids = list(start)
    arrays = {name: torch.tensor(array) for name, array in feeds.items()}
    with torch.no_grad():
        for _ in range(STEPS):
            row = {"decoder_input_ids" if feeds else "input_ids": torch.tensor([ids])}
            ids.append(int(module(**arrays, **row).logits[0, -1].argmax()))
    return ids[len(start) :]


def problems(module: Any, folder: Path, feeds: dict[str, Any]) -> Iterator[str]:
    """Yield what fails of a package."""
    package, start = onnx_nb.load(folder), [1] if feeds else PROMPT
    verbs: dict[str, Callable[[], Any]] = {
        "run": lambda: onnx_nb.run(package),
        "capture": lambda: onnx_nb.capture(package),
        "profile": lambda: onnx_nb.profile(package, runs=1),
        "compare": lambda: onnx_nb.compare(package, package),
        "check_cache": lambda: onnx_nb.check_cache(package, start * 6, feeds=feeds).passed or 1 / 0,
        "audit": lambda: onnx_nb.external_data.audit(folder),
    }
    for name, verb in verbs.items():
        try:
            verb()
        except Exception as error:  # noqa: BLE001 (each is printed, and counts)
            yield f"{name}: {str(error) or type(error).__name__:.200}"
    if not onnx_nb.simplify(package).verified:
        yield "simplify: not verified"
    costs = onnx_nb.costs(package, shapes=feed_shapes(package))
    if costs.unknown:
        yield f"costs: {len(costs.unknown)} unknown, such as {costs.unknown[0].op} ({costs.unknown[0].reason})"
    if not costs.caches and any("key" in info.name for info in package.inputs):
        yield "costs: no caches"
    ours, expected = onnx_nb.decode(package, start, STEPS, feeds=feeds, stop=()).tokens, tokens_of(module, feeds, start)
    if ours.tolist() != [expected]:
        yield f"decode: {ours.tolist()}, and transformers {expected}"
    if not feeds:
        comparison = onnx_nb.compare_decoding(module, package, steps=8)
        if comparison.first_fault is not None or not comparison.parts:
            yield f"compare_decoding: {comparison.message}"
        first = onnx_nb.compare_torch(module, torch.tensor([PROMPT]), model=folder).first_divergent()
        if first is not None:
            yield f"compare_torch: an alarm at {first.name}"


def main() -> int:
    """Print what fails of each package; return 1 if anything does."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    count = 0
    for name, module, folder, feeds in modules():
        failures = list(problems(module, folder, feeds))
        count += len(failures)
        sys.stdout.write("\n    ".join([f"{name}: {'' if failures else 'all right'}", *failures]) + "\n")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
