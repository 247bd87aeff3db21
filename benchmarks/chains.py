"""Models of a given weight: chains of Adds that read the weights in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper


def write_chain(
    path: Path, weights: int, nbytes: int, nodes: int | None = None, *, data: str = "", holes: bool = False
) -> Path:
    """Write a chain of as many Adds as weights, or of ``nodes``, and return its path.

    Weights of ``nbytes`` random bytes are in the model, or in ``data``, a file next to it, which ``holes`` makes one of
    zeros that takes no disk.
    """
    names = [f"layers.{i}.weight" for i in range(weights)]
    count = weights if nodes is None else nodes
    chain = [
        helper.make_node("Add", [f"t{i}", names[i % weights]], [f"t{i + 1}"], f"/layers.{i}/Add") for i in range(count)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [nbytes // 4]) for name in ("t0", f"t{count}")]
    tensors = [TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[nbytes // 4]) for name in names]
    random = np.random.default_rng(0)
    if data:
        with (path.parent / data).open("xb") as file:
            for i, tensor in enumerate(tensors):
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", data), ("offset", i * nbytes), ("length", nbytes)):
                    tensor.external_data.add(key=key, value=str(value))
                if not holes:
                    file.write(random.bytes(nbytes))
            file.truncate(weights * nbytes)
    else:
        for tensor in tensors:
            tensor.raw_data = random.bytes(nbytes)
    graph = helper.make_graph(chain, "chain", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path
