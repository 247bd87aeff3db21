"""Small trained networks, and their copies by onnxruntime's quantizers: what `trained_faults` plants faults in.

A convolutional network with depthwise convolutions, a transformer, also with a few channels far larger than the others,
and an LSTM learn tasks whose rules are known, from fixed seeds. Values are those of a trained network: skewed,
correlated, with dead channels.
"""

from __future__ import annotations

import functools
import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from tests import models

Arrays = dict[str, NDArray[Any]]
OUTLIER: Final = 60.0
"""Factor of the channels of the transformer that are larger than the others; the weights behind undo it."""


class Depthwise(nn.Module):
    """Convolutions of MobileNet: a depthwise and a pointwise one in turn."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU6()]
        for width, stride in ((16, 1), (16, 2), (16, 1)):
            layers += [nn.Conv2d(width, width, 3, stride, 1, groups=width), nn.BatchNorm2d(width), nn.ReLU6()]
            layers += [nn.Conv2d(width, 16, 1), nn.BatchNorm2d(16)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        """Return logits, shape (batch, 8)."""
        return self.head(self.layers(x).mean((2, 3)))


class Block(nn.Module):
    """A layer of a transformer without dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any) -> Any:
        """Return the hidden state, shape (batch, length, width)."""
        h = self.norms[0](x)
        scores = self.q(h) @ self.k(h).transpose(1, 2) * 64**-0.5
        x = x + self.o(torch.softmax(scores, -1) @ self.v(h))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """Two layers, which find the class of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Linear(8, 64), nn.ModuleList(Block(64) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x: Any) -> Any:
        """Return logits, shape (batch, length, 8)."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    """An LSTM that sums up a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.mix, self.head = nn.LSTM(8, 32), nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        """Return logits, shape (length, batch, 8)."""
        return self.head(torch.relu(self.mix(self.lstm(x)[0])))


NETWORKS: Final[dict[str, Callable[[], nn.Module]]] = {
    "depthwise": Depthwise, "transformer": Transformer, "lstm": Recurrent, "outliers": Transformer,
}  # fmt: skip


def feeds(name: str, seed: int) -> Arrays:
    """Return a feed of a network's task."""
    return {"x": _task(name, np.random.default_rng(seed))[0]}


def _task(name: str, random: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return inputs and classes."""
    if name == "depthwise":  # which of eight gratings it is
        kinds = random.integers(0, 8, 16)
        at = np.arange(16) / 16
        waves = np.sin(
            2 * np.pi * (1 + kinds % 4)[:, None, None] * np.where((kinds < 4)[:, None, None], at, at[:, None])
        )
        x = waves[:, None] * random.normal(1, 0.3, (16, 3, 1, 1)) + random.normal(0, 0.4, (16, 3, 16, 16))
        return x.astype(np.float32), kinds
    x = random.normal(size=(8, 12, 8)) * np.exp(random.normal(0, 0.5, (8, 12, 1)))
    if name == "lstm":  # where the sum of all so far is largest
        x = x.transpose(1, 0, 2)
        return x.astype(np.float32), np.cumsum(x, 0).argmax(-1)
    return x.astype(np.float32), (x + x.mean(1, keepdims=True)).argmax(-1)


@functools.cache
def network(name: str) -> Path:
    """Return the trained float model, of opset 17."""
    return models.cached(f"trained-{name}-2.onnx", functools.partial(_train, name))


def _train(name: str, path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other on a busy machine, in each of these small steps
    torch.manual_seed(0)
    random, module = np.random.default_rng(0), NETWORKS[name]()
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    for _ in range(250):
        x, kinds = map(torch.from_numpy, _task(name, random))
        loss = nn.functional.cross_entropy(module(x).flatten(0, -2), kinds.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.set_num_threads(threads)
    module.eval()
    if name == "outliers" and isinstance(module, Transformer):
        with torch.no_grad():
            for block in cast("list[Any]", module.blocks):
                for norm, behind in ((block.norms[0], (block.q, block.k, block.v)), (block.norms[1], (block.up,))):
                    for channel in (5, 40):
                        norm.weight[channel] *= OUTLIER
                        norm.bias[channel] *= OUTLIER
                        for layer in behind:
                            layer.weight[:, channel] /= OUTLIER
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's age
        torch.onnx.export(
            module, (torch.from_numpy(feeds(name, 1)["x"]),), path, dynamo=False, opset_version=17,
            input_names=["x"], output_names=["y"],
        )  # fmt: skip
    proto = onnx.load(path)
    proto.ir_version = 10
    onnx.save(proto, path)


def _quantization() -> Any:
    return importlib.import_module("onnxruntime.quantization")


def _static(name: str, path: Path, **options: Any) -> None:
    theirs = _quantization()
    rows: Iterator[Arrays] = iter([feeds(name, seed) for seed in range(1, 65)])
    reader = type("Reader", (theirs.CalibrationDataReader,), {"get_next": lambda _: next(rows, None)})()
    extra = {
        key: options.pop(key) for key in ("ActivationSymmetric", "UseQDQContribOps", "QuantizeBias") if key in options
    }
    formats, methods = theirs.QuantFormat, theirs.CalibrationMethod
    theirs.quantize_static(
        network(name), path, reader, formats[options.pop("form", "QDQ")], calibrate_method=methods[
            options.pop("method", "MinMax")], extra_options=extra, **options,
    )  # fmt: skip


def _dynamic(name: str, path: Path, **options: Any) -> None:
    theirs = _quantization()
    types = ["MatMul", "Gemm", "LSTM"] + ["Conv"] * (name == "depthwise")
    theirs.quantize_dynamic(network(name), path, op_types_to_quantize=types, **options)


def _blocks(name: str, path: Path, **options: Any) -> None:
    matmul = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    form = _quantization().QuantFormat[options.pop("form", "QOperator")]
    quantizer = matmul.MatMulNBitsQuantizer(onnx.load(network(name)), quant_format=form, **options)
    quantizer.process()
    proto = quantizer.model.model
    onnx.save(proto, path)


def _halves(name: str, path: Path) -> None:
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    onnx.save(float16.convert_float_to_float16(onnx.load(network(name)), keep_io_types=True), path)


WAYS: Final[dict[str, Callable[[str, Path], None]]] = {
    "tensor": _static,
    "channel": functools.partial(_static, per_channel=True),
    "symmetric": functools.partial(_static, ActivationSymmetric=True, per_channel=True),
    "percentile": functools.partial(_static, method="Percentile"),
    "entropy": functools.partial(_static, method="Entropy", per_channel=True),
    "unsigned": lambda name, path: _static(name, path, activation_type=_quantization().QuantType.QUInt8),
    "contrib": functools.partial(_static, UseQDQContribOps=True),
    "int16": lambda name, path: _static(
        name, path, activation_type=_quantization().QuantType.QUInt16, UseQDQContribOps=True
    ),
    "qoperator": functools.partial(_static, form="QOperator"),
    "qoperator-channel": functools.partial(_static, form="QOperator", per_channel=True),
    "dynamic": _dynamic,
    "dynamic-unsigned": lambda name, path: _dynamic(name, path, weight_type=_quantization().QuantType.QUInt8),
    "dynamic-channel": functools.partial(_dynamic, per_channel=True),
    "int4": functools.partial(_blocks, block_size=32, is_symmetric=True),
    "int4-asymmetric": functools.partial(_blocks, block_size=16, is_symmetric=False),
    "int4-qdq": functools.partial(_blocks, block_size=32, is_symmetric=True, form="QDQ"),
    "int8-blocks": functools.partial(_blocks, block_size=32, is_symmetric=True, bits=8),
    "float16": _halves,
}  # fmt: skip
"""Ways to quantize: the name → a function that writes the model."""


@functools.cache
def quantized(name: str, way: str) -> Path:
    """Return the model that one of `WAYS` makes of a trained network."""
    return models.cached(f"trained-{name}-{way}-2.onnx", functools.partial(WAYS[way], name))


def sounds() -> Iterator[tuple[str, str]]:
    """Yield networks and the ways in which they can be quantized."""
    for name in NETWORKS:
        for way in WAYS if name != "outliers" else ():
            if not (way.startswith("int") and way != "int16" and name == "depthwise"):
                yield name, way
