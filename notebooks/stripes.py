"""A network that tells the direction of stripes, its photos, and what the lessons on surgery do with models.

``from stripes import Stripes, photo, run`` in a notebook beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

import onnx_nb

DIRECTIONS: Final = ["horizontal", "rising", "vertical", "falling"]
ANGLES: Final = np.deg2rad([0, 45, 90, 135])
MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
STD: Final = np.array([0.229, 0.224, 0.225], np.float32)


class Stripes(nn.Module):
    """Four filters, each a wave in one direction, and the mean of their responses."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, kernel_size=7, padding=3, bias=False)
        rows, columns = np.mgrid[-3:4, -3:4]
        bell = np.exp(-(rows**2 + columns**2) / 8)
        waves = [bell * np.cos((rows * np.cos(angle) + columns * np.sin(angle)) * np.pi / 3) for angle in ANGLES]
        waves = [wave - bell * wave.sum() / bell.sum() for wave in waves]  # no response to an even gray
        self.conv.weight.data = torch.tensor(np.stack(waves) / 8, dtype=torch.float32)[:, None].repeat(1, 3, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the score of each direction."""
        wave = self.conv(image)
        votes = functional.relu(wave) + functional.relu(-wave)
        return votes.permute(0, 2, 3, 1).reshape(1, -1, 4).mean(dim=1).softmax(dim=1)


class Normalize(nn.Module):
    """What turns the bytes of photos into the floats that `Stripes` reads."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None])
        self.register_buffer("std", torch.tensor(STD)[:, None, None])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return normalized images."""
        return (pixels.permute(0, 3, 1, 2).to(torch.float32) / 255 - self.mean) / self.std


def network() -> onnx_nb.Model:
    """Return the network as it was exported years ago, for one image at a time."""
    names: dict[str, Any] = {"input_names": ["input.1"], "output_names": ["scores"]}
    return onnx_nb.export(
        Stripes().eval(), torch.zeros(1, 3, 32, 32), exporter="torchscript", opset_version=18, **names
    )


def normalization() -> onnx_nb.Model:
    """Return the model of `Normalize`, with the opset that its other users need, and for batches of any size."""
    names: dict[str, Any] = {"input_names": ["pixels"], "output_names": ["normalized"]}
    axes = {"pixels": {0: "batch"}, "normalized": {0: "batch"}}
    pixels = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    return onnx_nb.export(Normalize(), pixels, exporter="torchscript", opset_version=17, dynamic_axes=axes, **names)


def photo(angle: float, seed: int, contrast: float = 90) -> Any:
    """Return a noisy photo of stripes, 32 × 32 pixels of three bytes."""
    rows, columns = np.mgrid[:32, :32]
    wave = np.sin((rows * np.cos(angle) + columns * np.sin(angle)) * np.pi / 3)
    noise = np.random.default_rng(seed).normal(0, 20, (32, 32, 3))
    return np.clip(128 + contrast * wave[..., None] + noise, 0, 255).astype(np.uint8)


def normalized(pixels: Any) -> Any:
    """Return a batch of photos as the floats that the network reads."""
    return ((pixels / np.float32(255) - MEAN) / STD).transpose(0, 3, 1, 2)


def run(proto: onnx.ModelProto, optimize: bool = True, **feeds: Any) -> dict[str, Any]:  # noqa: FBT001, FBT002
    """Run a model with onnxruntime alone; return its outputs by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what matters is raised
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def verdict(action: Callable[[], object]) -> str:
    """Return what an action raises, in one line."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 (the lessons show whatever it is)
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    return "accepted"


def with_free_batch(old: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network as it is at the end of lesson 11: its input is an `image`, and its batch is free."""
    freed = copied(old)
    del freed.graph.value_info[:]
    freed.graph.input[0].name = "image"
    for value in (*freed.graph.input, *freed.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for node in freed.graph.node:
        node.input[:] = ["image" if name == "input.1" else name for name in node.input]
    (target,) = (node.input[1] for node in freed.graph.node if node.op_type == "Reshape")
    (constant,) = (node for node in freed.graph.node if node.output[0] == target)
    constant.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([0, -1, 4])))
    return freed
