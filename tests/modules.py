"""Small torch modules with every structure that an alignment has to handle, and their exports, made once a session."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import onnx_nb

EXPORTS: dict[str, dict[str, Any]] = {
    "torchscript": {"exporter": "torchscript"},
    "dynamo": {"exporter": "dynamo"},
    "plain": {"exporter": "dynamo", "optimize": False},
}


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Sigmoid(), nn.AvgPool2d(2),
        )  # fmt: skip
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.pool(self.features(x)))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.act(self.bn1(self.conv1(x)))
        return self.act(self.bn2(self.conv2(y)) + x)


class ConvBN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.blocks = nn.ModuleList([Residual(8), Residual(8)])
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.fc(self.pool(x).flatten(1))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Linear(6, 6)
        self.c_1 = nn.Linear(6, 6)
        self.act = nn.Tanh()

    def forward(self, x: torch.Tensor) -> Any:
        return self.c_1(self.act(self.c(self.act(self.c(x)))))


class Shared(nn.Module):
    """Repeated, shared, aliased and nested modules, one called twice in a row, and one with an unused result."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Inner()
        self.alias = self.block
        self.lin = nn.Linear(6, 6)
        self.two = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 6)))
        self.again = self.two[0]
        self.same = nn.Identity()

    def forward(self, x: torch.Tensor) -> Any:
        x = self.alias(self.block(x))
        x = self.lin(self.lin(x))
        return self.again(self.two(self.same(x))) + 1


class Tuples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True)
        self.gru = nn.GRU(6, 6, batch_first=True)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.split = Split()
        self.head = nn.Linear(3, 2)

    def forward(self, tokens: torch.Tensor) -> Any:
        x, (hidden, _) = self.lstm(self.embed(tokens))
        x, _ = self.gru(x)
        y, weights = self.attention(x, x, x)
        low, high = self.split(self.norm(x + y))
        return self.head(low * high["high"]), weights, hidden


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        low, high = x.chunk(2, -1)
        return low, {"high": high}


def _transformers() -> Any:
    return importlib.import_module("transformers")


_TOKENS = {"num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64}


def _bert(attention: str) -> Any:
    config = _transformers().BertConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=4, attn_implementation=attention, **_TOKENS
    )
    return _transformers().BertModel(config)


def _llama() -> Any:
    config = _transformers().LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_key_value_heads=2, use_cache=False, **_TOKENS
    )
    return _transformers().LlamaForCausalLM(config)


def _resnet() -> Any:
    config = _transformers().ResNetConfig(embedding_size=8, hidden_sizes=[16, 24, 32, 40])
    return _transformers().ResNetModel(config)


MODULES: dict[str, tuple[Callable[[], Any], str]] = {
    "conv": (ConvNet, "image"),
    "conv_bn": (ConvBN, "image"),
    "resnet": (_resnet, "large image"),
    "bert": (lambda: _bert("sdpa"), "tokens"),
    "bert_eager": (lambda: _bert("eager"), "tokens"),
    "llama": (_llama, "tokens"),
    "shared": (Shared, "vector"),
    "tuples": (Tuples, "tokens"),
}


def fresh(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a module in eval mode, with normalizations far from identities, and its keyword arguments."""
    make, kind = MODULES[name]
    torch.manual_seed(0)
    module = make().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.uniform_(part.bias, -0.5, 0.5)
    if kind == "tokens":
        tokens = torch.randint(0, 20, (2, 7))
        if name == "tuples":
            return module, {"tokens": tokens}
        return module, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if kind == "vector":
        return module, {"x": torch.randn(3, 6)}
    argument = "pixel_values" if name == "resnet" else "x"
    size = 64 if kind == "large image" else 12
    return module, {argument: torch.randn(2, 3, size, size)}


@functools.cache
def exported(name: str, how: str) -> tuple[Any, dict[str, torch.Tensor], onnx_nb.Model, onnx_nb.types.Recording]:
    module, kwargs = fresh(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = onnx_nb.export(module, (), kwargs, **EXPORTS[how])
    return module, kwargs, model, onnx_nb.record(module, (), kwargs)
