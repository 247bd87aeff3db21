"""The live pages of the gallery, made from models that need no download: ``python -m docs.gallery FOLDER``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx

import onnx_nb
from tests import models
from tests.faults.quantized import Sound, clipped


class Card(NamedTuple):
    """A page of the gallery."""

    title: str
    text: str
    write: Callable[[Path], object]


def _network(path: Path) -> object:
    g = onnx_nb.ModelGraph(onnx_nb.load(models.exported("resnet50", dynamo=True)))
    return g.to_html(path)


def _language_model(path: Path) -> object:
    model = onnx_nb.load(models.exported("llama", dynamo=True))
    g = onnx_nb.ModelGraph(model)
    g.overlay(onnx_nb.costs(model, shapes={"batch": 1, "seq": 128}))
    return g.to_html(path)


def _export(path: Path) -> object:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    net = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    args = (torch.randn(2, 9, 32),)
    changed = _with_epsilon(onnx_nb.export(net, args).to_proto(), 4)
    return onnx_nb.ComparisonPanel(onnx_nb.compare_torch(net, args, model=changed)).to_html(path)


def _with_epsilon(model: onnx.ModelProto, place: int) -> onnx.ModelProto:
    """Return the model with another epsilon in one of its normalizations."""
    found = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    next(attribute for attribute in found[place].attribute if attribute.name == "epsilon").f = 0.1
    return model


def _quantization(path: Path) -> object:
    sound = Sound("conv")
    planted = clipped(sound, 2)
    panel = onnx_nb.ComparisonPanel(onnx_nb.compare(planted.reference, planted.candidate, sound.feeds))
    panel.put_back("r1", "r2", "r3")
    return panel.to_html(path)


def _simplification(path: Path) -> object:
    model = onnx_nb.load(models.exported("bert", dynamo=False))
    return onnx_nb.SimplificationPanel(onnx_nb.simplify(model)).to_html(path)


def _difference(path: Path) -> object:
    former = onnx_nb.load(models.exported("vit", dynamo=True))
    later = _with_epsilon(former.to_proto(), 1)
    weight = next(each for each in later.graph.initializer if each.name == "pooler.dense.weight")
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.5), weight.name))
    next(node for node in later.graph.node if node.op_type == "Softmax").op_type = "LogSoftmax"
    return onnx_nb.DiffPanel(former, later).to_html(path)


def _values(path: Path) -> object:
    model = onnx_nb.load(models.exported("vit", dynamo=True))
    feeds = {"pixel_values": np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)}
    return onnx_nb.CapturePanel(onnx_nb.capture(model, feeds)).to_html(path)


CARDS: Final[Mapping[str, Card]] = {
    "network": Card(
        "A network, whole.",
        "ResNet-50 as PyTorch exported it. Open a layer by a double-click, click two tensors, search with /.",
        _network,
    ),
    "language-model": Card(
        "Where the work is.",
        "2,000 nodes of a Llama, colored by the multiplications of a run with 128 tokens.",
        _language_model,
    ),
    "export": Card(
        "Which layer is wrong after export.",
        "An epsilon was changed in the export of a transformer: the panel names the module and the attribute.",
        _export,
    ),
    "quantization": Card(
        "Which layer quantization hurts.",
        "A range that clips a tenth of the values: every scale, and what the outputs gain if regions go back to float.",
        _quantization,
    ),
    "simplification": Card(
        "What a simplifier did.",
        "Every change to a BERT with its reason, the graphs before and after in step.",
        _simplification,
    ),
    "difference": Card(
        "What changed between two versions.",
        "A vision transformer before and after an edit: an attribute, an operator and a weight, side by side.",
        _difference,
    ),
    "values": Card(
        "Every intermediate value.",
        "Range, mean, share of zeros and histogram of each tensor of one run.",
        _values,
    ),
}


def write_gallery(folder: Path) -> None:
    """Write each page that is missing or older than the program in it."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in (Path(__file__), *Path(onnx_nb.__file__).parent.rglob("*.[pj][ys]")))
    for name, card in CARDS.items():
        page = folder / f"{name}.html"
        if not page.exists() or page.stat().st_mtime < newest:
            card.write(page)


if __name__ == "__main__":
    write_gallery(Path(sys.argv[1]))
