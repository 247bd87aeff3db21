"""What the lessons on external data share: a network, and what shows rows, errors and files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from IPython.display import Markdown
from onnx import TensorProto, helper, numpy_helper

SHAPES: Final = {
    "words": (400, 64),
    "first.weight": (64, 300),
    "first.bias": (300,),
    "second.weight": (300, 100),
    "second.bias": (100,),
}
"""The shape of each weight of the network."""


def network() -> onnx.ModelProto:
    """Return a table of word vectors and two layers, with random weights."""
    random = np.random.default_rng(seed=0)
    weights = [
        numpy_helper.from_array(random.normal(scale=0.1, size=shape).astype(np.float32), name)
        for name, shape in SHAPES.items()
    ]
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["vectors"]),
        helper.make_node("Gemm", ["vectors", "first.weight", "first.bias"], ["before"]),
        helper.make_node("Relu", ["before"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "second.weight", "second.bias"], ["scores"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 100])
    return model_of(helper.make_graph(nodes, "words to scores", [ids], [scores], weights))


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    """Return a model of opset 20."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def table(rows: Iterable[Mapping[str, object]], *columns: str) -> Markdown:
    """Return some columns of rows as a table."""
    lines = [columns, ["---"] * len(columns), *([str(row[column]) for column in columns] for row in rows)]
    return Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


def expect(kind: type[Exception], action: Callable[[], Any]) -> None:
    """Run something that must fail, and print how; the name of a temporary folder is left out."""
    try:
        action()
    except kind as error:
        temporary = re.escape(tempfile.gettempdir()) + r"[/\\][^/\\']+"
        print(re.sub(temporary, "…", f"{kind.__name__}: {error}"))
    else:
        raise AssertionError(f"no {kind.__name__}")


def files(place: Path) -> dict[str, int]:
    """Return the size of each file in a folder, by name."""
    return {path.name: path.stat().st_size for path in sorted(place.iterdir()) if path.is_file()}
