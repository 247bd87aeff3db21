"""Who frees a fixed batch: ``python -m tests.wild.batches``.

Each architecture of `tests.architectures` is exported by both exporters with a free batch, which `simplify` fixes to 1,
so that everything that follows from it is folded. Then `Edit.free` and the scripts that people post make it free again.
The judge is the export with its free batch, and onnxruntime: three different samples must give what it gives.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, numpy_helper

import onnx_nb
from tests import models
from tests.architectures import ARCHITECTURES


def declared(proto: ModelProto) -> ModelProto:
    """Name the first dimension of every input, output and value, as many posts do."""
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if info.type.tensor_type.shape.dim:
            info.type.tensor_type.shape.dim[0].dim_param = "batch"
    return proto


def reshaped(proto: ModelProto, *, is_careful: bool = False) -> ModelProto:
    """Also put −1 into the first place of the shape of every Reshape where it is 1, as in onnx#2182.

    The careful way, which nobody seems to post, puts 0 there beside another −1, and lets 0 copy.
    """
    shapes = {node.input[1] for node in proto.graph.node if node.op_type == "Reshape"}
    for entry in (entry for node in proto.graph.node for entry in node.attribute):
        if entry.name == "allowzero" and is_careful:
            entry.i = 0
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if tensor.name in shapes and tensor.dims and array[0] == 1:
            array[0] = 0 if is_careful and -1 in array else -1
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return declared(proto)


def onnx_nb_free(proto: ModelProto) -> ModelProto:
    return onnx_nb.edit(proto).free("batch").model.to_proto()


WAYS: dict[str, Callable[[ModelProto], ModelProto]] = {
    "onnx_nb.edit(model).free()": onnx_nb_free,
    "the batch declared": declared,
    "and −1 in each Reshape": reshaped,
    "or 0 beside another −1": functools.partial(reshaped, is_careful=True),
}


def outcome(way: Callable[[ModelProto], ModelProto], fixed: onnx_nb.Model, feeds: Any, expected: Any) -> str:
    """Return "right", "refused", "fails" or "wrong"."""
    try:
        proto = way(fixed.to_proto())
    except onnx_nb.EditError as error:
        return f"refused: {error.message}"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        runner = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [entry.name for entry in runner.get_outputs()]
        outputs = dict(zip(names, runner.run(names, feeds), strict=True))
    except Exception:  # noqa: BLE001  # onnxruntime has many
        return "fails"
    right = all(
        outputs[name].shape == array.shape and np.allclose(outputs[name], array, 1e-3, 1e-4 * np.abs(array).max())
        for name, array in expected.items()
    )
    return "right" if right else "wrong"


def main() -> None:
    counts = {name: Counter[str]() for name in WAYS}
    for name in ARCHITECTURES:
        for dynamo in (False, True):
            try:
                model = onnx_nb.load(models.exported(name, dynamo=dynamo, small=True))
            except BaseException as error:  # noqa: BLE001  # torch's exporters have many
                print(f"{name} {dynamo}: not exported: {str(error).splitlines()[0]:.100}")  # noqa: T201
                continue
            symbols = [str(info.shape[0]) for info in model.inputs if info.shape]
            fixed = onnx_nb.simplify(model, shapes=dict.fromkeys(symbols, 1), check_n=0).model
            feeds = onnx_nb.random_feeds(model, 5, dict.fromkeys(symbols, 3))
            expected = onnx_nb.run(model, feeds)
            for label, way in WAYS.items():
                said = outcome(way, fixed, feeds, expected)
                counts[label][said.partition(":")[0]] += 1
                if label.startswith("onnx_nb") and said != "right":
                    print(f"{name} {'dynamo' if dynamo else 'torchscript'}: {said[:200]}", flush=True)  # noqa: T201
    for label, results in counts.items():
        print(f"{label:30} {dict(results)}")  # noqa: T201


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
