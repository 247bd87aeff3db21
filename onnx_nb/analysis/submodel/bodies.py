"""The body of an If, Loop or Scan as a model of its own: what works on a main graph works on that model.

Its inputs are those of the body and the tensors that it reads from around it; weights and Constants from around it are
its own weights.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence

import onnx
from onnx import ModelProto, TensorProto

from onnx_nb.analysis.errors import ExtractionError
from onnx_nb.analysis.formatting import quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.model import Model, cached, with_proto
from onnx_nb.analysis.model.tensors import as_tensor
from onnx_nb.analysis.submodel.assembly import main_value


def home_of(model: Model, names: Sequence[str]) -> tuple[Model, int]:
    """Return the innermost body that defines one of some tensors and sees all, as a model, and its number.

    Where there is none, or all are in the main graph, these are the model itself and 0.

    Raises
    ------
    ExtractionError
        If the body does not read one of them.
    """
    graph = Graph.of(model)
    if len(graph.subgraphs) == 1 or all(main_value(graph, name) >= 0 for name in names):
        return model, 0
    homes = [{number for number, scope in enumerate(graph.names_by_subgraph) if name in scope} for name in names]
    paths = sorted((set(_around(graph, number)) for number in range(1, len(graph.subgraphs))), key=len, reverse=True)
    for path in paths:
        number = max(path)
        if all(path & home for home in homes) and any(number in home for home in homes):
            inner = of_body(model, number)
            unread = next((name for name in names if main_value(Graph.of(inner), name) < 0), None)
            if unread is not None:
                message = f"{quoted(unread)} is not read in {graph.subgraph_label(number)}."
                reads = ", ".join(quoted(entry.name) for entry in inner.inputs[:8])
                raise ExtractionError(message, advice=f"It reads {reads or 'nothing'}; choose among these.")
            return inner, number
    return model, 0


def of_body(model: Model, number: int) -> Model:
    """Return a subgraph of a model as a model; the model itself for 0.

    Raises
    ------
    ExtractionError
        If the type of a tensor that the body reads is not known.
    """
    return cached(model, (of_body, number), lambda: _of_body(model, number)) if number else model


def _of_body(model: Model, number: int) -> Model:
    graph = Graph.of(model)
    body = graph.subgraphs[number]
    inner = {number, *(n for n in range(number + 1, len(graph.subgraphs)) if number in _around(graph, n))}
    nodes = range(body.start, body.stop)
    columns = (column for node in nodes for column in (graph.node_inputs(node), graph.outer_values(node)))
    read = itertools.chain.from_iterable(columns)
    values = dict.fromkeys(value for value in (*read, *body.outputs.tolist()) if value >= 0)
    outer = [value for value in values if int(graph.value_subgraph[value]) not in inner]
    weights = {value: tensor for value in outer if (tensor := constant_weight(graph, value)) is not None}
    proto = ModelProto()
    wire.copy_fields(model.proto, proto, without=("graph", "training_info"))
    wire.copy_fields(body.graph, proto.graph, without=("input", "output"))
    proto.graph.initializer.extend(weights.values())
    inputs = (*body.inputs.tolist(), *(value for value in outer if value not in weights))
    proto.graph.input.extend(_typed(graph, value) for value in inputs)
    proto.graph.output.extend(_typed(graph, value) for value in body.outputs.tolist() if value >= 0)
    return with_proto(model, proto, name=f"{model.name} [{shortened(graph.subgraph_label(number), 60)}]")


def _around(graph: Graph, number: int) -> Iterator[int]:
    """Yield a subgraph and those around it."""
    while number >= 0:
        yield number
        number = graph.subgraphs[number].parent


def _typed(graph: Graph, value: int) -> onnx.ValueInfoProto:
    kind = graph.type_of(value)
    if not kind.dtype:
        name = quoted(graph.value_names[value])
        label = graph.subgraph_label(int(graph.value_subgraph[value]))
        message = f"the type of {name}, which {label} reads, is not known."
        raise ExtractionError(message, advice="Add its value_info to the model.")
    return onnx.ValueInfoProto(name=graph.value_names[value], type=kind.proto)


def constant_weight(graph: Graph, value: int) -> TensorProto | None:
    """Return an initializer, or a Constant's result as one, so that it need not be passed between parts."""
    weight = graph.weight(value)
    if weight is None or not isinstance(tensor := as_tensor(weight), TensorProto):
        return None
    if graph.producer[value] < 0:
        return tensor
    constant = copy.deepcopy(tensor)
    constant.name = graph.value_names[value]
    return constant
