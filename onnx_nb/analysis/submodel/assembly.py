"""Build a model from some nodes of another: their weights, functions and docs, with typed inputs and outputs.

A type is declared in the file, or inferred from the nearest declared ones; only on request are the nodes before a
tensor run on random inputs. Weights are never read: the new model refers to the same bytes.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper

from onnx_nb.analysis.errors import ExtractionError, FeedError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted, shortened
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.shape_inference import infer_values
from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.model import wire
from onnx_nb.analysis.model.functions import Key, called_by, calls_between
from onnx_nb.analysis.model.model import Model, cached, label_of, with_proto
from onnx_nb.analysis.model.tensors import as_tensor, dimensions, input_types, listed, numpy_dtype
from onnx_nb.analysis.run.feeds import validate_feeds


def assemble(
    model: Model,
    nodes: Iterable[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    name: str,
    constants: Sequence[TensorProto] = (),
    types: Mapping[int, TypeProto] | None = None,
    infer_by_running: bool = False,
    declare: bool = True,
) -> Model:
    """Build a model from some nodes; types of inner values are declared as in the original model, or not at all."""
    graph, source, origin = Graph.of(model), model.proto, model.proto.graph
    names, declared_types = graph.value_names, {} if types is None else types
    order = Flow.of(graph).sorted(nodes)
    weights = weights_of(graph, order, inputs, outputs)
    needs_all = source.ir_version < 4  # there every initializer must also be an input
    ports = [*inputs, *(weights if needs_all else ())]
    # one pass over everything that the file declares
    infos = [*origin.value_info] if declare else []
    results = {value for node in (order if infos else ()) for value in graph.results(node)}
    used_names = {names[value] for value in results.union(inputs, outputs)}
    infos = [info for info in infos if plain_text(info.name) in used_names]
    unknown = [value for value in (*ports, *outputs) if value not in declared_types]
    types = {**declared_types, **boundary_types(model, unknown, infos=infos, infer_by_running=infer_by_running)}
    proto = ModelProto()
    wire.copy_fields(source, proto, without=("graph", "functions", "training_info"))
    proto.functions.extend(graph.functions[key] for key in functions_of(graph, order))
    target = proto.graph
    for field in ("name", "doc_string"):
        wire.set_field(target, field, getattr(origin, field))
    target.metadata_props.extend(origin.metadata_props)
    target.node.extend(origin.node[node] for node in order)
    _rename_overwritten(graph, target, order, inputs)
    for tensor in weight_tensors(graph, weights):
        (target.sparse_initializer if isinstance(tensor, onnx.SparseTensorProto) else target.initializer).append(tensor)
    target.initializer.extend(constants)
    target.input.extend(onnx.ValueInfoProto(name=names[value], type=types[value]) for value in ports)
    if needs_all:
        target.input.extend(onnx.ValueInfoProto(name=entry.name, type=tensor_type(entry)) for entry in constants)
    target.output.extend(onnx.ValueInfoProto(name=names[value], type=types[value]) for value in outputs)
    border = {names[value] for value in (*inputs, *outputs, *weights)}
    notes = origin.quantization_annotation
    inner = {plain_text(name) for node in (target.node if infos or notes else ()) for name in node.output} - border
    target.value_info.extend(info for info in infos if plain_text(info.name) in inner)
    target.quantization_annotation.extend(entry for entry in notes if plain_text(entry.tensor_name) in inner | border)
    # `Graph` writes escapes such as "\\xff" for bytes that are not UTF-8: such a name is not the one in the file
    escapes = {info.name for info in (*target.input, *target.output) if "\\x" in info.name}
    if escapes:
        spellings = [entry.name for entry in (*origin.input, *origin.initializer)]
        spellings += [name for node in origin.node for name in (*node.input, *node.output)]
        for spelling in spellings:
            if isinstance(spelling, bytes) and plain_text(spelling) in escapes:
                what = f"the name of tensor {quoted(plain_text(spelling))} is not valid UTF-8"
                advice = "Choose a tensor next to it, or rename it in the model."
                raise ExtractionError(f"{what}, so it cannot be an input or output.", advice=advice)
    return with_proto(model, proto, name=name)


def weights_of(graph: Graph, nodes: Iterable[int], inputs: Iterable[int], outputs: Iterable[int] = ()) -> list[int]:
    """Return the weights that nodes read and the outputs that are weights, in the model's order."""
    flow = Flow.of(graph)
    read = {value for node in nodes for value in flow.reads(node)}.union(outputs).difference(inputs)
    return sorted(value for value in read if flow.kinds[value] == INITIALIZER)


def weight_tensors(graph: Graph, values: Iterable[int]) -> list[TensorProto | onnx.SparseTensorProto]:
    """Return the initializers of some values."""
    return [cast("onnx.TensorProto | onnx.SparseTensorProto", graph.weight(value)) for value in sorted(values)]


def functions_of(graph: Graph, nodes: Iterable[int]) -> tuple[Key, ...]:
    """Return the local functions that nodes call, including those called inside bodies and other functions."""
    if not graph.functions:
        return ()
    calls = cached(graph.model, called_by, lambda: calls_between(graph.functions))
    return called_by((graph.nodes[node] for node in nodes), calls)


def main_value(graph: Graph, name: str) -> int:
    """Return the value of the main graph that has a name, or −1; the last one if a broken model has several."""
    return graph.names_by_subgraph[0].get(name, -1) if name else -1


def _rename_overwritten(graph: Graph, target: onnx.GraphProto, nodes: Sequence[int], inputs: Collection[int]) -> None:
    """Rename results that are now inputs: one output of a Split may be an input, and the other computed."""
    makers, used_names = {Flow.of(graph).producer[value] for value in inputs}.intersection(nodes), set[str]()
    for place, node in enumerate(nodes) if makers else ():
        for slot, value in enumerate(graph.node_outputs(node).tolist()) if node in makers else ():
            if value in inputs:
                used_names = used_names or set(graph.value_names)
                base = f"{graph.value_names[value]}_made_again"
                fresh = next(name for i in itertools.count() if (name := f"{base}{i or ''}") not in used_names)
                used_names.add(fresh)
                target.node[place].output[slot] = fresh


def tensor_type(tensor: TensorProto | onnx.SparseTensorProto) -> TypeProto:
    """Return the type of a weight; onnxruntime converts sparse ones to dense."""
    dense = tensor.values if isinstance(tensor, onnx.SparseTensorProto) else tensor
    return onnx.helper.make_tensor_type_proto(dense.data_type, tensor.dims)


def boundary_types(
    model: Model, values: list[int], *, infos: Iterable[ValueInfoProto] | None = None, infer_by_running: bool = False
) -> dict[int, TypeProto]:
    """Find the types of values of the main graph: declared, else inferred, else (on request) observed in a run."""
    graph, flow, origin = Graph.of(model), Flow.of(Graph.of(model)), model.proto.graph
    kinds = dict.fromkeys(values, ValueType())
    names = {graph.value_names[value]: value for value in kinds}
    for info in itertools.chain(origin.input, origin.output, origin.value_info if infos is None else infos):
        value = names.get(plain_text(info.name), -1)
        if value >= 0 and not kinds[value].is_complete and (kind := ValueType.of(info.type)).dtype:
            kinds[value] = kind
    for value in kinds:
        if flow.kinds[value] == INITIALIZER:
            kinds[value] = ValueType.of(tensor_type(*weight_tensors(graph, [value])))
    lacking = [value for value, kind in kinds.items() if flow.producer[value] >= 0 and not kind.is_complete]
    if lacking:
        inference = infer_values(graph, lacking)
        kinds |= {value: kind for value in lacking if (kind := inference.type_of(value)).dtype}
        lacking = [value for value in lacking if not kinds[value].is_complete]
    failure = ""
    if lacking and infer_by_running:
        kinds_of_run, failure = _seen(model, lacking)
        kinds |= kinds_of_run
    for value, kind in kinds.items():
        if not kind.dtype:
            raise _unknown_type(graph, value, failure, infer_by_running=infer_by_running)
    return {value: kind.proto for value, kind in kinds.items()}


def _seen(model: Model, values: Sequence[int]) -> tuple[dict[int, ValueType], str]:
    """Run the nodes before values on random inputs; return the element types and ranks, or the reason for failure."""
    from onnx_nb.analysis.run import session  # imports onnxruntime; only on request

    graph, flow = Graph.of(model), Flow.of(Graph.of(model))
    names = [graph.value_names[value] for value in values]
    try:
        nodes = flow.sorted(flow.ancestors(values))
        read = dict.fromkeys(value for node in nodes for value in flow.reads(node))
        inputs = [value for value in read if flow.producer[value] < 0 and flow.kinds[value] != INITIALIZER]
        # without value_info: onnxruntime would reject a wrong one
        before = assemble(model, nodes, inputs, (), name=f"the nodes before {quoted(names[0])}", declare=False)
        arrays = session.run(before, outputs=names)
    except OnnxNbError as error:
        # perhaps only the nodes before one of them fail
        parts = [_seen(model, [value])[0] for value in values] if len(values) > 1 else []
        return {value: kind for kinds in parts for value, kind in kinds.items()}, error.message
    return {value: ValueType.of(type_of_result(arrays[name])) for value, name in zip(values, names, strict=True)}, ""


def type_of_result(result: Any) -> TypeProto:
    """Return the type of a result without sizes of dimensions, which may differ in another run."""
    if isinstance(result, list):
        inner = type_of_result(result[0]).tensor_type.elem_type if result else TensorProto.UNDEFINED
        tensor = onnx.helper.make_tensor_type_proto(inner, None)
        return onnx.helper.make_sequence_type_proto(tensor) if inner else TypeProto()
    if not isinstance(result, np.ndarray):
        return TypeProto()
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(result.dtype), [None] * result.ndim)


def _unknown_type(graph: Graph, value: int, failure: str, *, infer_by_running: bool) -> ExtractionError:
    """Return an error that names the nodes that prevent inferring a type."""
    flow, inference = Flow.of(graph), infer_values(graph, [value])
    blocking, path = value, set[int]()
    why = "the nodes before it form a cycle"
    while blocking not in path:
        path.add(blocking)
        node = flow.producer[blocking]
        unknown = [read for read in flow.reads(node) if not inference.type_of(read).dtype] if node >= 0 else []
        if not unknown:
            why = f"onnx cannot infer what {graph.node_label(node)} makes" if node >= 0 else ""
            why = why or f"it depends on {quoted(graph.value_names[blocking])}, whose type is not known either"
            break
        blocking = unknown[0]
    message = f"the type of {quoted(graph.value_names[value])} is not known: the model does not declare it, and {why}"
    message += f"; a run on random inputs fails ({shortened(failure, 300).removesuffix('.')})" if failure else ""
    more = "" if infer_by_running else ", or allow a run on random inputs: infer_by_running=True"
    advice = f"Choose a tensor next to it, or add its value_info to the model{more}."
    return ExtractionError(f"{message}.", advice=advice)


def with_weights(
    model: Model, weights: Sequence[TensorProto], inputs: Iterable[ValueInfoProto] | None = None, *, add: bool = False
) -> Model:
    """Return a model with other or more initializers, and with other inputs if some are given."""
    if add and not weights:
        return model
    proto = ModelProto()
    wire.copy_fields(model.proto, proto, without=("graph",))
    wire.copy_fields(model.proto.graph, proto.graph, without=() if add else ("initializer",))
    proto.graph.initializer.extend(weights)
    if inputs is not None:
        wire.set_entries(proto.graph.input, inputs)
    return with_proto(model, proto)


def with_constants(model: Model, constants: Mapping[str, Any]) -> Model:
    """Return a model whose inputs of these names are weights."""
    kinds, arrays = input_types(model), {}
    for name, value in constants.items():
        if name not in kinds:
            message = f"{label_of(model)} has no input {quoted(str(name))}."
            raise FeedError(message, advice=f"Its inputs: {listed(kinds) or 'none'}.")
        kind, array = kinds[name], np.asarray(value)
        dims, dtype = dimensions(kind) or (), numpy_dtype(kind.tensor_type.elem_type) or array.dtype
        sizes = [dim for dim in dims if isinstance(dim, int)]
        array = np.full(sizes, array) if not array.ndim and len(sizes) == len(dims) else array
        arrays[name] = array.astype(dtype) if np.can_cast(array.dtype, dtype, "same_kind") else array
    ends, others = ([info for info in model.proto.graph.input if (info.name in arrays) is way] for way in (True, False))
    arrays = validate_feeds(with_weights(model, (), ends), arrays)
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    rest = [tensor for tensor in model.proto.graph.initializer if tensor.name not in arrays]
    return with_weights(model, [*weights, *rest], others) if weights else model


# --- bodies of If, Loop and Scan as models: what works on a main graph works on them ----------------------------------


def home_of(model: Model, names: Sequence[str]) -> tuple[Model, int]:
    """Return the innermost body that defines one of some tensors and sees all, as a model, and its number.

    Where there is none, or all are in the main graph, these are the model itself and 0.
    """
    graph = Graph.of(model)
    if len(graph.subgraphs) == 1 or all(main_value(graph, name) >= 0 for name in names):
        return model, 0
    homes = [{number for number, scope in enumerate(graph.names_by_subgraph) if name in scope} for name in names]
    paths = sorted((set(graph.around(number)) for number in range(1, len(graph.subgraphs))), key=len, reverse=True)
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
    """Return a subgraph of a model as a model; the model itself for 0."""
    return cached(model, (of_body, number), lambda: _of_body(model, number)) if number else model


def _of_body(model: Model, number: int) -> Model:
    graph = Graph.of(model)
    body = graph.subgraphs[number]
    inner = {n for n in range(number, len(graph.subgraphs)) if number in graph.around(n)}
    read = (value for node in range(body.start, body.stop) for value in graph.reads(node))
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
