"""The graph that onnxruntime really runs where operators have no kernel for float16.

It puts casts to float32 around such nodes and omits those between neighbors, so that a node may read a value before it
is rounded to float16. If the graph were first split into windows, each window would round, and values would differ. So
onnxruntime itself adds the casts first, in the whole graph, and writes the result.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.nodes import all_nodes
from onnx_nb.analysis.run import session

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

_ADDED: Final = "InsertedPrecisionFreeCast_"
"""Prefix of the name of a value's float32 copy in onnxruntime."""


def with_explicit_casts(model: Model, providers: Sequence[str] | None = None) -> Model:
    """Return a model with onnxruntime's casts as nodes; the model itself if it needs none."""
    if not _has_float16(Graph.of(model)):
        return model
    with tempfile.TemporaryDirectory(prefix="onnx_nb-casts-") as folder:
        path = Path(folder) / "casts.onnx"
        try:
            session.create(
                _without_weights(model), optimize=False, providers=providers, transient=True, written_to=path
            )
        except OnnxNbError:
            return model  # running it in windows finds the node that fails
        proto = onnx.load(path)
    source, target = model.proto.graph, proto.graph
    target.output.clear()
    target.output.extend(source.output)
    target.input.clear()
    target.input.extend(source.input)
    there = {tensor.name for tensor in target.initializer}
    target.initializer.extend(tensor for tensor in source.initializer if tensor.name not in there)
    return with_proto(model, proto)


def original_values(graph: Graph, cast: Graph) -> dict[int, int]:
    """Return the original of each value of the graph with casts."""
    by_name: dict[tuple[int, str], int] = {}
    for value, (name, frame) in enumerate(zip(graph.value_names, graph.value_subgraph.tolist(), strict=True)):
        by_name[frame, name] = value
    # where functions were inlined, their subgraphs come in between
    same_subgraphs = [place.attribute for place in graph.subgraphs] == [place.attribute for place in cast.subgraphs]
    found = {}
    for value, (name, frame) in enumerate(zip(cast.value_names, cast.value_subgraph.tolist(), strict=True)):
        original = by_name.get((frame, name)) if same_subgraphs or not frame else None
        if original is not None:
            found[value] = original
    return found


def original_nodes(graph: Graph, cast: Graph) -> dict[int, int]:
    """Return the original of each node of the main graph with casts; of an added cast the node that it serves."""
    maker = {
        graph.value_names[value]: node
        for node in range(graph.main_count)
        for value in graph.node_outputs(node).tolist()
        if value >= 0
    }
    found = {}
    for node in range(cast.main_count):
        for value in cast.node_outputs(node).tolist():
            name = cast.value_names[value].removeprefix(_ADDED) if value >= 0 else ""
            if name in maker:
                found[node] = maker[name]
    return found


def _without_weights(model: Model) -> Model:
    """Turn weights into inputs, as only types matter, and every value into an output."""
    source = model.proto
    proto = ModelProto()
    proto.CopyFrom(source)
    graph = proto.graph
    graph.initializer.clear()
    given = {info.name for info in source.graph.input}
    for tensor in source.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in given:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            graph.input.add(name=tensor.name, type=kind)
    graph.output.clear()
    for name in dict.fromkeys(name for node in source.graph.node for name in node.output if name):
        graph.output.add(name=name)
    return with_proto(model, proto)


_MAKERS: Final = frozenset(
    (
        *("Cast", "Constant", "ConstantOfShape", "EyeLike", "QuantizeLinear", "DequantizeLinear", "Bernoulli"),
        *("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
        *("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"),
    )
)
"""Operators that may make float16 from inputs of other types."""


def _has_float16(graph: Graph) -> bool:
    proto = graph.model.proto
    if any(info.type.tensor_type.elem_type == TensorProto.FLOAT16 for info in proto.graph.input):
        return True
    if any(tensor.data_type == TensorProto.FLOAT16 for place in graph.subgraphs for tensor in place.graph.initializer):
        return True
    able = np.asarray([op in _MAKERS for op, _ in graph.operators], bool)
    makers = np.flatnonzero(able[graph.op_index]).tolist() if len(able) else []
    inside = (node for function in proto.functions for node in all_nodes(function.node))
    return any(map(_makes_float16, itertools.chain((graph.nodes[node] for node in makers), inside)))


def _makes_float16(node: NodeProto) -> bool:
    return any(
        (attribute.i == TensorProto.FLOAT16 and plain_text(attribute.name) in _TYPES)
        or (attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT16)
        for attribute in node.attribute
    )


_TYPES: Final = ("to", "dtype", "output_dtype", "output_datatype")
