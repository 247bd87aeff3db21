"""Models with faults, for the lessons that let their reader find them.

Each function makes what a lesson needs, so that neither the lesson nor its outputs tell what is wrong. Do not read on
if you want to find it yourself.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

import onnx_nb
from onnx_nb import external_data


def export_of_04(model: onnx_nb.Model, name: str) -> onnx_nb.Model:
    """Return a copy of a model with slightly wrong weights, as a faulty converter would write it."""
    wrong = {
        "received": ("convs3.1.weight",),
        "first.onnx": ("convs4.0.weight",),
        "second.onnx": ("convs1.2.bias", "convs3.0.weight"),
        "third.onnx": ("convs2.1.bias",),
    }[name]
    proto = model.to_proto()
    for tensor in proto.graph.initializer:
        if tensor.name in wrong:
            values = numpy_helper.to_array(tensor).copy()
            values[0] *= 1.05
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return onnx_nb.load(proto)


def suspect_of_06(model: onnx_nb.Model, number: int) -> onnx_nb.Model:
    """Return a copy of a model with the first, the second or the third fault."""
    proto = model.to_proto()
    nodes: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        nodes.setdefault(node.op_type, []).append(node)
    if number == 1:  # the wrong axis: each piece's weights no longer sum to one
        (axis,) = nodes["Softmax"][1].attribute
        axis.i = 2
    elif number == 2:  # 1e-2 instead of 1e-5
        next(entry for entry in nodes["LayerNormalization"][4].attribute if entry.name == "epsilon").f = 1e-2
    else:  # the fast approximation instead of the exact function
        gelu = nodes["Gelu"][0]
        del gelu.attribute[:]
        gelu.attribute.append(onnx.helper.make_attribute("approximate", "tanh"))
    return onnx_nb.load(proto)


def export_of_09(net: Any, example: Any, folder: Path) -> None:
    """Write the colleague's file, with its weights beside it, into a folder."""
    import torch

    attention = type(net.blocks[1].attention)

    class Colleague(attention):  # type: ignore[misc, valid-type]
        def forward(self, x: Any) -> Any:
            query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = query @ key.transpose(2, 3)
            scores = scores / x.shape[2] ** 0.5  # the width of the network, not of a head
            return self.out((scores.softmax(dim=3) @ value).transpose(1, 2).flatten(2))

    theirs = copy.deepcopy(net)
    theirs.blocks[1].attention.__class__ = Colleague
    free = {"image": {0: "batch"}, "scores": {0: "batch"}}
    names: dict[str, Any] = {"input_names": ["image"], "output_names": ["scores"], "dynamic_axes": free}
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        model = onnx_nb.export(theirs, example, exporter="torchscript", **names)
    external_data.convert(model, folder / "digits.onnx")
