"""What the lessons on dynamic shapes share: ways to export the network that hears vowels, and judges of the files.

``from shapes import NAMES, shape_of, verdict`` in a notebook beside this file.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import onnx_nb

HEAD: Final = '<ir_version: 8, opset_import: ["": 18]> '
"""How the text of a model begins."""
NAMES: Final[dict[str, Any]] = {"input_names": ["sound"], "output_names": ["scores"]}
FREE: Final[dict[str, Any]] = {"dynamic_shapes": ({0: "batch", 1: "samples"},)}
OLD: Final[dict[str, Any]] = {
    "exporter": "torchscript",
    "dynamic_axes": {"sound": {0: "batch", 1: "samples"}, "scores": {0: "batch"}},
}
CPU: Final = ["CPUExecutionProvider"]
QUIET: Final = 4
"""Level of onnxruntime's log at which only fatal errors are written."""


class Variant(nn.Module):
    """The network with another way to take the mean of the pieces."""

    def __init__(self, net: Any, mean: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.mean = net, mean

    def forward(self, sound: Tensor) -> Any:
        """Return the scores [batch, words]."""
        return self.net.head(self.mean(self.net.pieces(sound)))


def exported(module: nn.Module, example: Tensor, **options: Any) -> tuple[onnx.ModelProto, list[str]]:
    """Export a module that takes sounds; return the file, and the warnings about sizes that became numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        proto = onnx_nb.export(module, example, **options, **NAMES).to_proto()
    said = [str(each.message) for each in caught]
    return proto, [text for text in said if "made a value constant" in text or "holds for" in text]


def shape_of(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...] | None:
    """Return a shape as its proto has it: numbers, names, None where a dimension is unknown; None without a shape."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in kind.shape.dim)


def run(proto: onnx.ModelProto, **feeds: NDArray[Any]) -> Any:
    """Run a model with onnxruntime alone; return its first output."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=CPU).run(None, feeds)[0]


def verdict(net: Any, proto: onnx.ModelProto, wave: NDArray[np.float32]) -> str:
    """Return how a file does with sounds, each of which PyTorch hears by itself."""
    with torch.no_grad():
        alone = np.concatenate([net(torch.from_numpy(each[None])).numpy() for each in wave])
    try:
        scores = run(proto, sound=wave)
    except Exception:  # noqa: BLE001 (onnxruntime has many)
        return "refused"
    return "right" if scores.shape == alone.shape and np.allclose(scores, alone, atol=1e-3) else "WRONG"


def told(text: str, **feeds: NDArray[Any]) -> str:
    """Run a model of one line; return the shape of its output, or the error, and whether there was a warning."""
    with tempfile.TemporaryFile() as log:
        screen = os.dup(2)
        os.dup2(log.fileno(), 2)  # onnxruntime writes there, past Python
        try:
            proto = onnx.parser.parse_model(HEAD + text)
            session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=CPU)
            said = f"runs, {session.run(None, feeds)[0].shape}"
        except Exception as error:  # noqa: BLE001 (onnxruntime has many)
            said = "refuses: " + str(error).split(" : ")[-1].split(" for ")[0]
        finally:
            os.dup2(screen, 2)
            os.close(screen)
        log.seek(0)
        return said + (" and warns" if b"[W:onnxruntime" in log.read() else "")


def optimized(proto: onnx.ModelProto, options: onnxruntime.SessionOptions) -> tuple[list[Any], list[str]]:
    """Return the input's shape in a session with these options, and the operators of the graph that it runs."""
    options.log_severity_level = QUIET
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=CPU)
        return session.get_inputs()[0].shape, [node.op_type for node in onnx.load(path).graph.node]


def copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy
