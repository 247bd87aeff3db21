"""Edits of a model: functions that return another model, which shares the weights of the first.

Names mean tensors, nodes and dimensions of the main graph and its bodies; "Block::t" is tensor t of function Block.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnx_nb.analysis.errors import EditError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, number_text, plain_text, quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.types import ValueType, is_small
from onnx_nb.analysis.model.functions import canonical, check_calls, check_nodes
from onnx_nb.analysis.model.model import Model, ModelLike, direct_weights, label_of, load, storage_of, with_proto
from onnx_nb.analysis.model.storage import MEMORY, Source, Sources, refer
from onnx_nb.analysis.model.tensors import all_nodes, all_weights, external, graphs_of, listed
from onnx_nb.analysis.model.wire import set_entries
from onnx_nb.analysis.quantize.headroom import headroom
from onnx_nb.analysis.run.capture import capture
from onnx_nb.analysis.run.session import run
from onnx_nb.analysis.simplify.editor import unused_name
from onnx_nb.analysis.simplify.simplify import with_shapes
from onnx_nb.analysis.submodel.assembly import boundary_types, main_value
from onnx_nb.analysis.submodel.extraction import nodes_of_scope, plan_extraction, ports, values_of

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.verification import Translation

Names = Mapping[str, str]
"""Names of tensors by others."""

_INSTEAD: Final = "Put another part in its place: replace(inputs, outputs, model)."
_numbers = itertools.count()  # of the places of weights: two threads may edit at once


@dataclass(frozen=True)
class EditResult:
    """The model that an edit makes, and how it is proved."""

    model: Model
    text: str
    """The edit, in words."""
    is_same: bool = False
    """Whether the model computes the same by design."""
    feeds_to: Translation = dict
    outputs_to: Translation = dict
    proof: str = ""
    """The proof, if the edit made one itself."""
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """New names by old ones, of tensors, nodes and dimensions."""


def rename(model: Model, names: Mapping[str, Any]) -> EditResult:
    """Rename tensors, nodes and dimensions, wherever they are named."""
    proto, whole = copy_of(model), Graph.of(model)
    graphs = _graphs(proto, whole)
    frames = {f"{f.name}::": (_bodies(f.node), _every(f.node)) for f in proto.functions}
    tensors = {prefix: _tensor_names(*frame) for prefix, frame in frames.items()}
    frames[""] = graphs, _around(whole, proto, names)
    tensors[""] = {*whole.value_names, *(info.name for graph in graphs for info in graph.value_info)}
    tensors[""].discard("")
    node_names = set(whole.names) - {""}
    has_dims = not all(name in node_names or name in tensors[""] for name in names)
    infos = [info for graph in graphs for info in _infos(graph)] if has_dims else []
    dims = [dim for info in infos for dim in info.type.tensor_type.shape.dim]
    symbols = {dim.dim_param for dim in dims if dim.dim_param}
    of_tensor: dict[str, dict[str, str]] = {prefix: {} for prefix in frames}
    of_node, of_dim = dict[str, str](), dict[str, str]()
    for old, new in names.items():
        prefix = next((p for p in frames if old.startswith(p) and old.removeprefix(p) in tensors[p]), None)
        if not isinstance(new, str) or not new:
            raise EditError(f"{quoted(old)} cannot be called {new!r:.80}.", advice="Give a name.")
        if prefix is not None:
            of_tensor[prefix][old.removeprefix(prefix)] = new.removeprefix(prefix)
        elif old not in node_names | symbols:
            candidates = [*(p + name for p, local in tensors.items() for name in local), *node_names, *symbols]
            raise EditError(f"{label_of(model)} has no {quoted(old)}.", advice=closest_text(old, candidates))
        else:
            (of_node if old in node_names else of_dim)[old] = new
    changes = [("tensors", tensors[prefix], mapping) for prefix, mapping in of_tensor.items()]
    for what, names_in_use, mapping in (*changes, ("nodes", node_names, of_node)):
        news = [*mapping.values()]
        for new in news:
            if news.count(new) > 1 or (new in names_in_use and new not in mapping):
                raise EditError(f"there would be two {what} {quoted(new)}.", advice="Choose another name.")
    for prefix, mapping in of_tensor.items():
        _rename_in(*frames[prefix], mapping)
    for function in proto.functions:
        for field in (function.input, function.output):
            field[:] = [of_tensor[f"{function.name}::"].get(name, name) for name in field]
    for node in _every(proto.graph.node) if of_node else ():
        node.name = of_node.get(node.name, node.name)
    for dim in dims:
        if dim.dim_param in of_dim:
            dim.dim_param = of_dim[dim.dim_param]
    text = f"renamed {', '.join(f'{old} → {new}' for old, new in names.items())}"
    back, forth = _renaming({new: old for old, new in of_tensor[""].items()}), _renaming(of_tensor[""])
    result = _edited(model, proto, of_tensor[""].values())
    return EditResult(result, text, is_same=True, feeds_to=back, outputs_to=forth, renames=dict(names))


def fix(model: Model, sizes: Mapping[str, Any]) -> EditResult:
    """Fix dimensions, or shapes of inputs."""
    try:
        result = with_shapes(model, sizes)
    except OnnxNbError as error:
        raise EditError(error.message, advice=error.advice) from None
    return EditResult(result, f"fixed {', '.join(f'{name} = {size}' for name, size in sizes.items())}", is_same=True)


def remove(model: Model, names: Sequence[str]) -> EditResult:
    """Remove nodes or scopes: who read what they make reads what they read."""
    graph, proto = Graph.of(model), copy_of(model)
    members = {node for name in names for node in _nodes(graph, name)}
    sources, results = ports(graph, members, constants=True)
    starts = [graph.value_names[value] for value in results]
    if len(results) > 1:
        raise EditError(f"others read {listed(starts)}, and one input cannot stand for all.", advice=_INSTEAD)
    changes = [*starts]
    constants = graph.constant_values
    for value in results:
        kind = graph.type_of(value)
        fitting = [source for source in sources if _fits(graph.type_of(source), kind)]
        fitting.sort(key=lambda source: (graph.type_of(source) != kind, constants[source]))
        if not fitting:
            reads = ", ".join(f"{quoted(graph.value_names[v])} ({graph.type_of(v)})" for v in sources) or "nothing"
            message = f"without {listed(names)} nothing makes {quoted(starts[0])} ({kind}); it reads {reads}."
            raise EditError(message, advice=_INSTEAD)
        changes.append(graph.value_names[fitting[0]])
        _redirect(proto, starts[0], changes[-1], graph)
    _delete(proto, members, graph, changes)
    is_same = {graph.op_type(node) for node in members} <= {"Identity", "Dropout"}
    return EditResult(_complete(model, proto, {}, changes), f"removed {listed(names)}", is_same=is_same)


def insert(
    model: Model, op_type: str, after: str, inputs: Sequence[Any], *, domain: str = "", **attributes: Any
) -> EditResult:
    """Insert a node behind a tensor: who read the tensor reads what the node makes."""
    graph, proto = Graph.of(model), copy_of(model)
    values = values_of(graph, [after, *(name for name in inputs if isinstance(name, str))], "source")
    names_in_use = _names_of(graph)
    result, name = (unused_name(base + op_type.lower(), names_in_use) for base in (f"{after}_", "insert_"))
    value = values[0]
    node = NodeProto(op_type=op_type, domain=domain, name=name, input=[after], output=[result])
    for place, source in enumerate(inputs, 1):
        node.input.append(source if isinstance(source, str) else f"{result}_input{place}")
        if not isinstance(source, str):
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray(source), node.input[-1]))
    _set(model, node, attributes)
    is_output = value in graph.outputs and graph.producer[value] >= 0
    if is_output:  # it keeps its name
        _rename_in([], [proto.graph.node[graph.producer[value]], node], {after: result, result: after})
    else:
        _redirect(proto, after, result, graph)
    proto.graph.node.insert(max(graph.producer[values]) + 1, node)
    starts = {after: after, result: after} if is_output else {result: after}
    return EditResult(_complete(model, proto, starts), f"inserted {op_type} after {after}")


def replace(model: Model, inputs: Sequence[str], outputs: Sequence[str], part: ModelLike) -> EditResult:
    """Put a model in the place of the nodes between tensors."""
    model, other = _of_one_opset(model, load(part))
    graph, proto = Graph.of(model), copy_of(model)
    plan = plan_extraction(model, inputs, outputs)
    if plan.missing:
        raise EditError(f"{plan.message}.", advice=f"Use inputs={list(plan.suggestion)}.")
    if (len(inputs), len(outputs)) != (len(other.inputs), len(other.outputs)):
        counts = f"{count_text(len(other.inputs), 'input')} and {count_text(len(other.outputs), 'output')}"
        message = f"{label_of(other)} has {counts}, and {len(inputs)} and {len(outputs)} are named."
        raise EditError(message, advice="Name as many tensors, in the same order.")
    flow, results, ends = Flow.of(graph), {graph.value(name) for name in outputs}, graph.outputs.tolist()
    removal = set[int]()
    for node in reversed(plan.nodes.tolist()):
        targets = {*graph.results(node)} - results
        if targets.isdisjoint(ends) and all(removal.issuperset(flow.readers(value)) for value in targets):
            removal.add(node)
    for number in set(plan.nodes.tolist()) - removal:  # others read what it makes beside what is replaced
        _rename_in([], [proto.graph.node[number]], {name: fresh(f"{name}_before", proto) for name in outputs})
    names_in_use = _names_of(graph).difference(*((graph.names[n], *graph.node(n).output) for n in removal))
    _delete(proto, removal, graph, outputs)
    names = dict(zip((entry.name for entry in (*other.inputs, *other.outputs)), (*inputs, *outputs), strict=True))
    sources = _graft(proto, other, names, names_in_use, min(removal, default=0))
    whole = _complete(model, proto, {name: name for name in outputs}, sources=sources)
    return EditResult(whole, f"replaced {listed(outputs)} by {label_of(other)}")


def join(model: Model, part: ModelLike, *, is_first: bool) -> EditResult:
    """Put a model before or after another, whose ends it makes or reads: by name, else in order.

    The proof lets it compute its part.
    """
    model, other = _of_one_opset(model, load(part))
    links, rest = (other.outputs, other.inputs) if is_first else (other.inputs, other.outputs)
    graph = Graph.of(model)
    ends = [graph.value_names[value] for value in (graph.inputs if is_first else graph.outputs)]
    pairs = {entry.name: entry.name for entry in links if entry.name in ends}
    pairs = pairs or dict(zip((entry.name for entry in links), ends, strict=False))
    if not is_first and len(pairs) < len(links):
        names = listed(entry.name for entry in links)
        message = f"{label_of(other)} reads {names}, and the outputs are {listed(ends)}."
        raise EditError(message, advice="Rename or drop some of them.")
    proto = copy_of(model)
    names_in_use = _names_of(graph)
    ports = {entry.name: unused_name(entry.name, names_in_use.difference(pairs.values())) for entry in rest}
    inner = {end: unused_name(f"{end}_inner", names_in_use) for end in pairs.values() if end in ports.values()}
    _rename_in(_graphs(proto, graph), _around(graph, proto, inner), inner)
    inner_links = {name: inner.get(end, end) for name, end in pairs.items()}
    names_in_use.update(inner.values())
    sources = _graft(proto, other, {**inner_links, **ports}, names_in_use, 0 if is_first else graph.main_count)
    field, others = (one.graph.input if is_first else one.graph.output for one in (proto, other.proto))
    infos = [info for info in field if info.name not in inner_links.values()]
    news = [onnx.ValueInfoProto(name=ports[info.name], type=info.type) for info in others if info.name in ports]
    set_entries(field, [*news, *infos])
    arguments, targets = (ports, pairs) if is_first else (pairs, ports)

    def through(arrays: dict[str, Any]) -> dict[str, Any]:
        results = run(other, {name: arrays[end] for name, end in arguments.items()})
        others = {name: array for name, array in arrays.items() if name not in arguments.values()}
        return others | {targets[name]: array for name, array in results.items() if name in targets}

    text = f"put {label_of(other)} {'before' if is_first else 'after'} {listed(pairs.values())}"
    starts = {inner_links[name]: end for name, end in pairs.items()}
    whole = _complete(model, proto, starts, ports.values(), sources)
    ways: dict[str, Any] = {"feeds_to" if is_first else "outputs_to": through}
    return EditResult(whole, text, is_same=True, **ways)


def output(model: Model, names: Sequence[str]) -> EditResult:
    """Make tensors outputs."""
    graph, proto = Graph.of(model), copy_of(model)
    for value in values_of(graph, names, "output"):
        if value not in graph.outputs:
            kind = graph.type_of(value)  # of the whole model: a part of it may call a dimension otherwise
            kind_proto = kind.proto if kind.is_complete else boundary_types(model, [value])[value]
            proto.graph.output.append(onnx.ValueInfoProto(name=graph.value_names[value], type=kind_proto))
    return EditResult(_edited(model, proto), f"made {listed(names)} an output", is_same=True)


def drop(model: Model, names: Sequence[str]) -> EditResult:
    """Drop outputs with what only they need, or inputs that nothing reads."""
    graph = Graph.of(model)
    inputs, outputs = ([*map(graph.value_names.__getitem__, ends)] for ends in (graph.inputs, graph.outputs))
    unknown = [name for name in names if name not in (*inputs, *outputs)]
    if unknown or not set(outputs) - set(names):
        message = f"{quoted(unknown[0])} is no input or output" if unknown else "every output would go"
        raise EditError(f"{message}.", advice=closest_text(unknown[0], [*inputs, *outputs]) if unknown else "Keep one.")
    flow = Flow.of(graph)
    proto = copy_of(model)
    nodes = flow.ancestors(value for value in graph.outputs.tolist() if graph.value_names[value] not in names)
    for name in set(names).intersection(inputs):
        if readers := nodes.intersection(flow.readers(graph.value(name))):
            message = f"input {quoted(name)} is read by {graph.node_labels(sorted(readers))}."
            raise EditError(message, advice="Remove what reads it first.")
    _delete(proto, {*range(graph.main_count)} - nodes, graph)
    _discard(proto.graph.output, names)
    _discard(proto.graph.input, names)
    return EditResult(_edited(model, proto), f"dropped {listed(names)}", is_same=True)


def set_attributes(model: Model, name: str, attributes: Mapping[str, Any]) -> EditResult:
    """Set attributes of a node; None removes one."""
    proto, graph = copy_of(model), Graph.of(model)
    numbers = [number for number, other in enumerate(graph.names) if other == name]
    is_plain = numbers and len(graph.subgraphs) == 1
    every = [proto.graph.node[number] for number in numbers] if is_plain else _every(proto.graph.node)
    nodes = [node for node in every if plain_text(node.name) == name] or [node for node in every if name in node.output]
    if len(nodes) != 1:
        many = f"{len(nodes)} nodes are called {quoted(name)}." if nodes else f"there is no node {quoted(name)}."
        names = [plain_text(node.name) for node in every]
        raise EditError(many, advice="Rename them first." if nodes else closest_text(name, names))
    _set(model, nodes[0], attributes)
    changes = ", ".join(f"{key} = {value}" for key, value in attributes.items())
    whole = _complete(model, proto, {output: output for output in nodes[0].output if output})
    return EditResult(whole, f"set {changes:.200} of {name}")


def weight(model: Model, name: str, values: Any) -> EditResult:
    """Change the values of a weight, perhaps its shape."""
    old, proto = model.tensor(name), copy_of(model)
    array = np.load(values, allow_pickle=False) if isinstance(values, str | Path) else np.asarray(values)
    if not np.can_cast(array.dtype, old.dtype, "same_kind"):
        message = f"weight {quoted(name)} is {old.dtype.name}, and the new values are {array.dtype.name}."
        raise EditError(message, advice=f"Convert them: array.astype({old.dtype.name!r}).")
    direct = (tensor for tensor in proto.graph.initializer if plain_text(tensor.name) == name)
    target = next(direct, None) or all_weights(proto)[name]
    tensor = target.t if isinstance(target, onnx.AttributeProto) else target
    if not isinstance(tensor, TensorProto) or (isinstance(target, onnx.AttributeProto) and not target.HasField("t")):
        raise EditError(f"{quoted(name)} is not stored as a dense tensor.", advice="Set the attribute that holds it.")
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array, old.dtype), tensor.name))
    whole = _edited(model, proto, [name]) if array.shape == old.shape else _complete(model, proto, {name: name})
    return EditResult(whole, f"changed weight {name}")


def tie(model: Model, name: str, to: str) -> EditResult:
    """Replace a weight by another one wherever it is read."""
    one, two, proto = model.tensor(name), model.tensor(to), copy_of(model)
    kinds = [f"{array.dtype.name} {list(array.shape)}" for array in (one, two)]
    if {name, to} - direct_weights(model).keys() or kinds[0] != kinds[1]:
        message = f"{quoted(name)} is {kinds[0]}, {quoted(to)} {kinds[1]}"
        raise EditError(f"{message}, and weights of the main graph that are tied are alike.")
    _redirect(proto, name, to, Graph.of(model))
    discard(proto.graph, {name} - {to})
    is_same = one.tobytes() == two.tobytes()
    return EditResult(_edited(model, proto, [name, to]), f"tied {name} to {to}", is_same=is_same)


def dtype(model: Model, types: Mapping[str, str]) -> EditResult:
    """Change the element types of inputs and outputs, with a Cast where the former begins or ends."""
    proto, graph, former = copy_of(model), Graph.of(model), dict[str, Any]()
    names_in_use = _names_of(graph)
    casts = list[NodeProto]()
    for name, wanted in types.items():
        info = next((info for info in (*proto.graph.input, *proto.graph.output) if info.name == name), None)
        if info is None or not info.type.HasField("tensor_type"):
            advice = closest_text(name, [info.name for info in (*proto.graph.input, *proto.graph.output)])
            raise EditError(f"{quoted(name)} is no tensor that is an input or output.", advice=advice)
        result, label = (unused_name(base, names_in_use) for base in (f"{name}_cast", f"cast_{name}"))
        element = info.type.tensor_type.elem_type
        former[name] = helper.tensor_dtype_to_np_dtype(element)
        node = helper.make_node("Cast", [name], [result], name=label, to=element)
        info.type.tensor_type.elem_type = _element(wanted)
        if graph.value(name) in graph.inputs:
            _redirect(proto, name, result, graph)
            casts.append(node)
        else:
            _rename_in([], [*_around(graph, proto, [name]), *casts, node], {name: result, result: name})
            node.attribute[0].i = info.type.tensor_type.elem_type
            proto.graph.node.append(node)
    _insert(proto, 0, casts)
    now = {name: helper.tensor_dtype_to_np_dtype(_element(wanted)) for name, wanted in types.items()}
    text = f"made {', '.join(f'{name} {wanted}' for name, wanted in types.items())}"
    whole = _complete(model, proto, {}, former)
    return EditResult(whole, text, is_same=True, feeds_to=_casting(former), outputs_to=_casting(now))


def convert(model: Model, opset: int | None, ir: int | None) -> EditResult:
    """Convert to another opset by onnx's version converter, and set the version of the format."""
    proto = copy_of(model)
    if opset is not None:
        check_calls(proto, label_of(model))
        check_nodes(proto, label_of(model))
        try:
            proto = onnx.version_converter.convert_version(proto, opset)
        except (RuntimeError, ValueError, TypeError) as error:
            message = f"onnx's version converter cannot bring {label_of(model)} to opset {opset}: {error}"
            raise EditError(f"{message:.600}.", advice="Try another opset, or export the model again.") from None
        former = {tuple(node.output): node for node in _every(model.proto.graph.node)}
        for node in _every(proto.graph.node):  # it forgets metadata
            if (same := former.get(tuple(node.output))) is not None and not node.metadata_props:
                node.metadata_props.extend(same.metadata_props)
        set_entries(proto.functions, model.proto.functions)
    least = helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, least) if ir is None else ir
    versions = [f"opset {opset}"] * (opset is not None) + [f"IR {ir}"] * (ir is not None)
    return EditResult(with_proto(model, proto), f"converted to {' and '.join(versions)}", is_same=True)


def to_float16(model: Model, keep: Sequence[str], feeds: Any) -> EditResult:
    """Store and compute in float16 by onnxruntime's converter, except what is kept and what would overflow."""
    from onnxruntime.transformers import float16

    graph, proto = Graph.of(model), model.to_proto()
    rest = {node for name in keep for node in _nodes(graph, name)}
    rows = headroom(capture(model, feeds)).rows()
    large = {value: row for row in rows if row["overflows"] and (value := graph.value(row["name"])) >= 0}
    for value in large:
        rest.update(node for node in (graph.producer[value], *graph.consumers(value)) if 0 <= node < graph.main_count)
    for number, node in enumerate(proto.graph.node):
        node.name = node.name or f"node_{number}"
    names = [proto.graph.node[node].name for node in sorted(rest)]
    proto = float16.convert_float_to_float16(proto, keep_io_types=True, node_block_list=names)
    # it casts between neighbors that are kept as well
    makers = {name: node for node in proto.graph.node for name in node.output}
    casts = [node for node in proto.graph.node if node.op_type == "Cast"]
    for node in [node for node in casts if node.attribute[0].i == TensorProto.FLOAT]:
        cast = makers.get(node.input[0], node)
        if cast.op_type == "Cast" and (cast.input[0] not in makers or makers[cast.input[0]].name in names):
            _redirect(proto, node.output[0], cast.input[0])
    half = load(proto)
    half = Model(half.proto, name=model.name, storage=storage_of(half))
    draft, graph = copy_of(half), Graph.of(half)
    _delete(draft, {*range(graph.main_count)} - Flow.of(graph).ancestors(graph.outputs.tolist()), graph)
    worst = max(large.values(), key=lambda row: row["largest"], default=None)
    why = f"; {quoted(worst['name'])} reaches {number_text(worst['largest'], 3)}" if worst else ""
    text = f"converted to float16, {count_text(len(names), 'node')} kept in float32{why}"
    return EditResult(_complete(half, draft, {}), text)  # the converter does not sort its Casts


# --- parts of an edit -------------------------------------------------------------------------------------------------


def copy_of(model: Model) -> ModelProto:
    """Return a proto to edit; its weights stay where they are."""
    return copy.deepcopy(model.proto)


def _every(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Return nodes and those in their bodies."""
    outer = [*nodes]
    may_hold = any(node.domain or node.op_type in ("If", "Loop", "Scan", "SequenceMap") for node in outer)
    return [*all_nodes(outer)] if may_hold else outer


def _bodies(nodes: Sequence[NodeProto]) -> list[GraphProto]:
    inner = _every(nodes)
    return [] if len(inner) == len(nodes) else [body for node in inner for _, body in graphs_of(node)]


def _graphs(proto: ModelProto, former: Graph | None = None) -> list[GraphProto]:
    """Return the main graph and the bodies in it; a copy of a model without bodies is not searched."""
    return [proto.graph, *(_bodies(proto.graph.node) if former is None or len(former.subgraphs) > 1 else ())]


def _infos(graph: GraphProto) -> Iterator[onnx.ValueInfoProto]:
    return itertools.chain(graph.input, graph.output, graph.value_info)


def _tensor_names(graphs: Iterable[GraphProto], nodes: Iterable[NodeProto]) -> set[str]:
    ends = {name for node in nodes for field in (node.input, node.output) for name in field if name}
    return ends | {entry.name for graph in graphs for entry in (*_infos(graph), *graph.initializer)}


def fresh(base: str, proto: ModelProto) -> str:
    """Return a name that no tensor or node has."""
    nodes = _every(proto.graph.node)
    return unused_name(base, _tensor_names(_graphs(proto), nodes) | {node.name for node in nodes})


def _names_of(graph: Graph) -> set[str]:
    return {*graph.value_names, *graph.names, *(info.name for info in graph.model.proto.graph.value_info)}


def _renaming(names: Mapping[str, str]) -> Translation:
    return lambda arrays: {names.get(name, name): array for name, array in arrays.items()}


def _casting(dtypes: Mapping[str, Any]) -> Translation:
    return lambda arrays: {n: array.astype(dtypes[n]) if n in dtypes else array for n, array in arrays.items()}


def _rename_in(graphs: Iterable[GraphProto], nodes: Iterable[NodeProto], names: Mapping[str, str]) -> None:
    for graph in graphs if names else ():
        for entry in (*_infos(graph), *graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            if entry.name in names:
                entry.name = names[entry.name]
        for note in graph.quantization_annotation:
            note.tensor_name = names.get(note.tensor_name, note.tensor_name)
            for pair in note.quant_parameter_tensor_names:
                pair.value = names.get(pair.value, pair.value)
    for node in nodes if names else ():
        for field in (node.input, node.output):
            if not names.keys().isdisjoint(field):
                field[:] = [names.get(name, name) for name in field]


def _around(graph: Graph, proto: ModelProto, names: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that make or read tensors, in a copy with the same nodes; with bodies, all of them."""
    if len(graph.subgraphs) > 1:
        return _every(proto.graph.node)
    values = [value for name in names if (value := main_value(graph, name)) >= 0]
    numbers = {number for value in values for number in (graph.producer[value], *graph.consumers(value))}
    return [proto.graph.node[number] for number in sorted(numbers - {-1})]


def _redirect(proto: ModelProto, old: str, new: str, graph: Graph | None = None) -> None:
    """Replace a tensor by another one wherever it is read; an output keeps its name."""
    for node in _around(graph, proto, [old]) if graph else _every(proto.graph.node):
        if old in node.input:
            node.input[:] = [new if name == old else name for name in node.input]
    ends = {info.name for info in proto.graph.output}
    if old not in ends:
        return
    for node in proto.graph.node:  # who makes the output makes it no more
        node.output[:] = ["" if name == old else name for name in node.output]
    if new in ends or not any(new in node.output for node in proto.graph.node):
        proto.graph.node.append(helper.make_node("Identity", [new], [old], name=fresh(f"identity_{old}", proto)))
    else:
        _rename_in([], _every(proto.graph.node), {new: old})


def _insert(proto: ModelProto, place: int, nodes: Iterable[NodeProto]) -> None:
    for number, node in enumerate(nodes, place):
        proto.graph.node.insert(number, node)


def _discard(field: Any, names: Collection[str]) -> list[str]:
    """Remove the entries with some names, and return those that there were; faster than `set_entries` for a few."""
    numbers = [number for number, entry in enumerate(field) if entry.name in names] if names else []
    return [field.pop(number).name for number in reversed(numbers)]


def discard(graph: GraphProto, names: Collection[str]) -> None:
    """Remove weights and types of tensors; before IR 4 a weight is an input, too."""
    for field in (graph.initializer, graph.input, graph.value_info):
        _discard(field, names)


def _delete(proto: ModelProto, removal: Collection[int], graph: Graph, kept: Collection[str] = ()) -> None:
    """Delete nodes from a copy of a graph, their types, and the weights that only they read, except names kept."""
    flow = Flow.of(graph)
    members = set(removal)
    weights = {value for node in members for value in flow.reads(node) if flow.kinds[value] == INITIALIZER}
    values = [value for value in weights.difference(graph.outputs.tolist()) if members.issuperset(flow.readers(value))]
    values += [value for node in members for value in graph.results(node)]
    names = {graph.value_names[value] for value in values}.difference(kept)
    for number in sorted(members, reverse=True):
        del proto.graph.node[number]
    discard(proto.graph, names)


def _edited(model: Model, proto: ModelProto, changes: Iterable[str] = (), sources: Sources | None = None) -> Model:
    """Return the edited model, which has the types of the former where no change reaches."""
    whole, former = with_proto(model, proto, sources=sources), Graph.of(model)
    if former.former is not None:
        _ = former.update  # else one edit would wait for another
    Graph.of(whole).former = former, [*changes]
    return whole


def _complete(
    model: Model, proto: ModelProto, starts: Names, changes: Iterable[str] = (), sources: Sources | None = None
) -> Model:
    """Return the edited model: sorted, and without the declared types of what comes after changed tensors.

    ``starts`` are the changed tensors, each with the one that was read in its place: where both have the same type,
    what comes after keeps its own. Of ``changes``, the producer or readers are others.
    """
    infos = proto.graph.value_info
    outputs = {entry.name for entry in proto.graph.output}
    news = {*_discard(infos, starts), *(name for name, old in starts.items() if name != old)}
    changes = {*starts, *changes}
    graph = Graph.of(whole := _edited(model, proto, changes, sources))
    if (np.diff(graph.order) < 0).any():
        set_entries(proto.graph.node, [proto.graph.node[number] for number in graph.order.tolist()])
        graph = Graph.of(whole := _edited(model, proto, changes, sources))
    former = Graph.of(model)
    kinds = {name: former.type_of(former.value(old)) for name, old in starts.items()}
    if outputs.isdisjoint(starts) and all(
        kind.is_complete and not is_small(kind) and graph.type_of(graph.value(name)) == kind
        for name, kind in kinds.items()
    ):
        infos.extend(onnx.ValueInfoProto(name=name, type=kinds[name].proto) for name in starts if name in news)
        return whole
    names = set(changes)
    for node in proto.graph.node:
        if not all(names.isdisjoint(part.input) for part in _every([node])):
            names.update(node.output)
    set_entries(infos, [entry for entry in infos if entry.name not in names])
    ends = [(entry, copy.deepcopy(entry.type)) for entry in proto.graph.output if entry.name in names]
    for entry, _ in ends:
        entry.ClearField("type")
    graph = Graph.of(_edited(model, proto, names, sources))
    for entry, old in ends:
        kind = graph.type_of(graph.value(entry.name))
        is_better = kind.dtype and (kind.is_complete or kind.dtype != ValueType.of(old).dtype)
        entry.type.CopyFrom(kind.proto if is_better else old)
    return _edited(model, proto, names, sources)


def _fits(one: ValueType, other: ValueType) -> bool:
    """Return whether two types may be the same, as far as both are known."""
    if one.dtype != other.dtype or one.shape is None or other.shape is None:
        return one.dtype == other.dtype or "" in (one.dtype, other.dtype)
    pairs = zip(one.shape, other.shape, strict=False)
    return len(one.shape) == len(other.shape) and all(a == b or None in (a, b) for a, b in pairs)


def _nodes(graph: Graph, name: str) -> set[int]:
    """Return the nodes of the main graph that a name of a node or scope means."""
    same = {number for number, other in enumerate(graph.names[: graph.main_count]) if other == name}
    if not same and (value := main_value(graph, name)) >= 0 and graph.producer[value] >= 0:
        return {int(graph.producer[value])}  # a node without a name is known by what it makes
    try:
        return same or nodes_of_scope(graph, name)[0]
    except OnnxNbError as error:
        advice = closest_text(name, graph.names[: graph.main_count]) or error.advice
        raise EditError(f"{label_of(graph.model)} has no node or scope {quoted(name)}.", advice=advice) from None


def _element(name: str) -> int:
    """Return the number of a type of elements."""
    try:
        return helper.np_dtype_to_tensor_dtype(np.dtype(name or "")) if name != "bfloat16" else TensorProto.BFLOAT16
    except (TypeError, ValueError, KeyError):
        raise EditError(f"there is no type {name!r:.80}.", advice='For example "uint8" or "float16".') from None


def _set(model: Model, node: NodeProto, attributes: Mapping[str, Any]) -> None:
    """Set attributes of a node that its operator has; a type is given by its name."""
    domain = canonical(node.domain)
    version = Graph.of(model).opsets.get(domain, 1)
    schema = operators.schema(node.op_type, domain, version)
    if schema is None and not domain:
        names = {entry.name for entry in onnx.defs.get_all_schemas()}
        message = f"opset {version} has no operator {quoted(node.op_type)}."
        raise EditError(message, advice=closest_text(node.op_type, names))
    for key, value in attributes.items():
        if schema is not None and key not in schema.attributes:
            message = f"{node.op_type} has no attribute {quoted(key)}."
            raise EditError(message, advice=closest_text(key, schema.attributes) or "It has none.")
        set_entries(node.attribute, (entry for entry in node.attribute if entry.name != key))
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)  # noqa: PLW2901
        if key in ("to", "dtype") and isinstance(value, str):
            value = _element(value)  # noqa: PLW2901
        if value is not None:
            node.attribute.append(helper.make_attribute(key, value))


def _of_one_opset(*models: Model) -> list[Model]:
    """Return models, each converted to the highest opset among them."""
    opsets = [Graph.of(model).opsets.get("", 0) for model in models]
    pairs = zip(models, opsets, strict=True)
    return [convert(model, max(opsets), None).model if 0 < opset < max(opsets) else model for model, opset in pairs]


def _graft(proto: ModelProto, other: Model, names: Names, names_in_use: Collection[str], place: int) -> Sources:
    """Add the nodes and weights of a model, some of whose tensors have names here; return where its weights are."""
    versions = {canonical(entry.domain): entry for entry in proto.opset_import}
    for domain, version in Graph.of(other).opsets.items():
        if domain and domain in versions and versions[domain].version != version:
            message = f"{label_of(other)} uses version {version} of {quoted(domain)}, not {versions[domain].version}."
            raise EditError(message, advice="Convert one of the two.")
        if domain not in versions:
            proto.opset_import.add(domain=domain, version=version)
    part, sources = copy_of(other), dict[str, Source]()
    for tensor, extent in zip(external(part), storage_of(other).extents(other.proto, label_of(other)), strict=True):
        location = f"{MEMORY}/edit{next(_numbers)}"
        sources[location] = extent.source
        refer(tensor, location, extent.offset, extent.nbytes)
    nodes, graphs = _every(part.graph.node), _graphs(part)
    names_in_use = {*names_in_use, *names.values()}
    mapping = dict(names)
    for name in sorted(_names_of(Graph.of(other)) - {""}):
        if name not in mapping and name in names_in_use:
            mapping[name] = unused_name(name, names_in_use)
            names_in_use.add(mapping[name])
    _rename_in(graphs, nodes, mapping)
    for node in nodes:
        node.name = mapping.get(node.name, node.name) if node.name not in names else node.name
    _insert(proto, place, part.graph.node)
    for field in ("initializer", "sparse_initializer", "value_info", "quantization_annotation"):
        getattr(proto.graph, field).extend(getattr(part.graph, field))
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    for function in part.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions and functions[key] != function:
            message = f"both models have a function {quoted(function.name)}, and they differ."
            raise EditError(message, advice="Inline one.")
        proto.functions.extend([] if key in functions else [function])
    proto.ir_version = max(proto.ir_version, part.ir_version)
    return sources
