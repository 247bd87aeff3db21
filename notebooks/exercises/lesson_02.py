"""Graders of "Export from PyTorch"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import nn

import onnx_nb

from . import Lesson, expect, made, opened

check: Final = Lesson()


def model_of(answer: Any) -> onnx_nb.Model:
    """Return the model of an answer, which has one input and one output, in whatever form it is given."""
    model = opened(answer, f"The answer is of type {type(answer).__name__}; `onnx_nb.export` returns a model.")
    for side, values in {"input": model.inputs, "output": model.outputs}.items():
        expect(len(values) == 1, f"The model has {len(values)} {side}s; this exercise needs one.")
    return model


def only_output(model: onnx_nb.Model, given: Any) -> Any:
    """Return the one output of a model for one input."""
    (value,) = onnx_nb.run(model, [given]).values()
    return value


def random_image(shape: tuple[int, ...]) -> torch.Tensor:
    """Return the same random values in each run."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


def enlarges_as_net(model: onnx_nb.Model, shape: tuple[int, ...]) -> bool:
    """Return whether a model computes what `net` of the notebook computes, for a random image of a shape."""
    given = random_image(shape)
    with torch.no_grad():
        expected = made("net")(given).numpy()
    value = only_output(model, given.numpy())
    return value.shape == expected.shape and np.allclose(value, expected, atol=1e-4)


@check.exercise(
    1,
    "renamed, exported",
    "renamed, exported",
    {
        "checkpoint, exported": "the first answer is a network",
        "net, exported": "a fresh `SRCNN`",
        "SRCNN().eval(), exported": "skips each key",
        "renamed, renamed": "returns a model",
        "renamed, product": "takes shape",
        "renamed, onnx_nb.export(SRCNN().eval(), image)": "the model computes something else",
    },
)
def _checkpoint(network: Any, answer: Any) -> None:
    kind = type(network).__name__
    expect(
        isinstance(network, nn.Module),
        f"It is of type {kind}; the first answer is a network with the weights of the checkpoint.",
    )
    expect(network is not made("net"), "This is `net` itself; load the checkpoint into a fresh `SRCNN`.")
    weights, own = made("net").state_dict(), network.state_dict()
    expect(own.keys() == weights.keys(), f"The weights of this {kind} have other names than those of an `SRCNN`.")
    expect(
        all(torch.equal(own[name], weight) for name, weight in weights.items()),
        "Its weights are not those of the checkpoint: `load_state_dict(..., strict=False)` skips each key it does not "
        "know, without a word.",
    )
    model = model_of(answer)
    declared = model.inputs[0].shape or ()
    expect(len(declared) == 4, f"The model takes shape {declared}; export the network as it is, for N × C × H × W.")
    shape = tuple(
        size if isinstance(size, int) else least for size, least in zip(declared, (1, 1, 12, 16), strict=True)
    )
    expect(enlarges_as_net(model, shape), "The network is right, but the model computes something else than `net`.")


_CHANNELS: Final = "self.net((1 - page.float() / 255).permute(2, 0, 1)[:, None])[:, 0].permute(1, 2, 0)"


def _exported(result: str) -> str:
    """Return the expression of the export of a `DeployedColor` that returns something else, by the faster exporter."""
    network = f'type("Other", (DeployedColor,), {{"forward": lambda self, page: {result}}})(net).eval()'
    options = 'exporter="torchscript", input_names=["page"], dynamic_axes={"page": {0: "height", 1: "width"}}'
    return f"onnx_nb.export({network}, scan, {options})"


@check.exercise(
    2,
    "in_color",
    "in_color",
    {
        "DeployedColor(net)": "returns a model",
        "product": "height × width × 3",
        'onnx_nb.export(DeployedColor(net).eval(), scan, exporter="torchscript")': "sizes are fixed",
        _exported(f"(255 * (1 - {_CHANNELS})).round().to(torch.uint8)"): "range",
        _exported(f"(255 * (1 - {_CHANNELS}).clamp(0, 1)).to(torch.uint8)"): "rounded",
        _exported(f"(255 * ({_CHANNELS}).clamp(0, 1)).round().to(torch.uint8)"): "black for white",
        _exported(f"(255 * (1 - {_CHANNELS}).clamp(0, 1)).round().to(torch.uint8).permute(2, 0, 1)"): "has shape",
    },
)
def _color(answer: Any) -> None:
    model = model_of(answer)
    declared = model.inputs[0]
    shape = declared.shape or ()
    is_page = declared.dtype == "uint8" and len(shape) == 3 and (shape[2] == 3 or not isinstance(shape[2], int))
    expect(is_page, f"It takes {declared.dtype} {shape}; a color image is uint8, height × width × 3.")
    is_dynamic = not any(isinstance(size, int) for size in shape[:2])
    expect(is_dynamic, f"It takes {shape}, so its sizes are fixed: height and width have to be dynamic.")
    for sizes in ((20, 30, 3), (17, 11, 3)):
        page = np.random.default_rng(1).integers(0, 256, sizes, dtype=np.uint8)
        ink = torch.tensor(1 - page / np.float32(255)).permute(2, 0, 1)[:, None]
        with torch.no_grad():
            exact = 255 * (1 - made("net")(ink)[:, 0].permute(1, 2, 0).numpy())
        value = only_output(model, page)
        expect(value.dtype == np.uint8, f"It gives {value.dtype}; an image comes as uint8, and has to leave as uint8.")
        expect(
            value.shape == exact.shape,
            f"For an image of {sizes}, the result has shape {value.shape}; three times as large is {exact.shape}.",
        )
        _check_bytes(value, exact)


def _check_bytes(value: Any, exact: Any) -> None:
    """Compare the bytes of an image with its numbers before clamping and rounding."""
    expected = exact.clip(0, 255)
    off, off_as_negative = (np.abs(bytes_ - expected) for bytes_ in (value, 255 - value))
    is_near = off < 1.01  # rounding and cutting off differ less, and so does another order of operations
    expect(off_as_negative.max() > 1.01, "It gives black for white: after `net`, ink has to become paper again.")
    is_between = (exact > 0) & (exact < 255)
    expect(
        is_near.all() or not is_near[is_between].all(),
        "Values that leave the range from 0 to 255 come back at its other end: keep them in it.",
    )
    expect(is_near.all(), "It computes something else than `net` does for the image, channel by channel.")
    expect(off[is_between].mean() < 0.35, "The values are too dark by half a step: they have to be rounded to bytes.")
