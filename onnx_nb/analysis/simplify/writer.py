"""Write an editor's graph as a model: only what changed is made anew, and weights stay where they are."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import ModelProto, NodeProto, TensorProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.model import storage, wire
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.value_info import dimensions
from onnx_nb.analysis.simplify.elements import LEFT_OUT, MAIN, Constant, NodeIds, Op, Place

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.types import ValueType
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.simplify.editor import Editor

PROVENANCE: Final = "onnx_nb.merged"
"""Key in the metadata of a node that lists, in JSON, the names of the nodes that it was made of."""


def write(net: Editor) -> tuple[Model, NodeIds]:
    """Return the graph as a model whose weights are where they were, and the ids of its nodes."""
    proto = ModelProto()
    wire.copy_fields(net.source.proto, proto, without=("graph",))
    if 0 < proto.ir_version < 4:
        proto.ir_version = 4
    for domain in sorted(set(net.opsets) - set(net.graph.opsets)):
        proto.opset_import.add(domain=domain, version=net.opset(domain))
    ids: dict[Place, tuple[int, ...]] = {}
    _write_graph(net, proto.graph, 0, MAIN, ids)
    return with_proto(net.source, proto, net.source.name, net.large), ids


def _write_graph(
    net: Editor, target: onnx.GraphProto, subgraph: int, place: Place, ids: dict[Place, tuple[int, ...]]
) -> None:
    origin = net.graph.subgraphs[subgraph].graph
    wire.copy_fields(origin, target, without=("node", "initializer", "sparse_initializer", "value_info"))
    written: list[int] = []
    for value in net.subgraph_outputs[subgraph]:
        if net.needs_node(value):
            tensor = onnx.numpy_helper.from_array(net.read(value))
            node = target.node.add(op_type="Constant", output=[net.names[value]])
            node.attribute.append(onnx.helper.make_attribute("value", tensor))
            written.append(net.constant_ids[value])
    ops = net.ops_of(subgraph)
    for op in ops:
        _write_op(net, op, target.node.add(), ids)
    ids[place] = (*written, *(op.id for op in ops))
    for value, known in net.constants.items():
        if known.subgraph == subgraph and not net.needs_node(value) and net.is_read(value):
            write_constant(net, known, target, net.names[value])
    live = {value for op in ops for value in op.outputs if value >= 0}
    ends = set(net.subgraph_outputs[subgraph]) | set(net.graph.subgraphs[subgraph].inputs.tolist())
    for value in sorted(live - ends):
        kind, info = net.kinds.get(value), net.info(value)
        if kind is not None and kind.elem_type and kind.shape is not None:
            target.value_info.add(name=net.names[value], type=kind.proto)
        elif info is not None:
            target.value_info.append(info)
    if subgraph == 0:
        _write_ends(net, target)


def _write_ends(net: Editor, target: onnx.GraphProto) -> None:
    """Declare the types of outputs as far as they are known; remove inputs that are weights."""
    values = {net.names[value]: value for value in net.subgraph_outputs[0]}
    weights = {net.names[value] for value in net.graph.subgraphs[0].weights.tolist()}
    given = [info for info in target.input if plain_text(info.name) not in weights]
    if len(given) < len(target.input):
        del target.input[:]
        target.input.extend(given)
    for info in target.output:
        kind = net.kind(values.get(plain_text(info.name), LEFT_OUT))
        if kind is not None and kind.elem_type:
            _refine(info.type, kind)


def _refine(declared: onnx.TypeProto, found: ValueType) -> None:
    """Write sizes that were found into a declared type where it has none."""
    if not declared.HasField("tensor_type"):
        if not declared.WhichOneof("value"):
            declared.CopyFrom(found.proto)
        return
    if not declared.tensor_type.elem_type:
        declared.tensor_type.elem_type = found.elem_type
    before = dimensions(declared)
    if before is None or found.shape is None or len(before) != len(found.shape):
        if before is None and found.shape is not None and found.proto.HasField("tensor_type"):
            declared.tensor_type.shape.CopyFrom(found.proto.tensor_type.shape)
        return
    for dim, old, new in zip(declared.tensor_type.shape.dim, before, found.shape, strict=True):
        if isinstance(new, int) and not isinstance(old, int):
            dim.dim_value = new
        elif isinstance(new, str) and old is None:
            dim.dim_param = new


def _write_op(net: Editor, op: Op, target: NodeProto, ids: dict[Place, tuple[int, ...]]) -> None:
    target.CopyFrom(op.proto)
    if op.number in net.dirty:
        target.name = op.name
        if op.attributes is not None:
            target.op_type, target.domain = op.op_type, op.domain
            del target.attribute[:]
            target.attribute.extend(op.attributes.values())
        for names, values in ((target.input, op.inputs), (target.output, op.outputs)):
            del names[:]
            names.extend(net.names[value] if value >= 0 else "" for value in _without_tail(values))
        if op.origins:
            _write_origins(target, op.origins)
    for subgraph in op.bodies:
        name = net.graph.subgraphs[subgraph].attribute
        if subgraph not in net.marked:
            _list_ids(net, op, subgraph, ids)
            continue
        attribute = next(each for each in target.attribute if each.name == name)
        attribute.g.Clear()
        _write_graph(net, attribute.g, subgraph, (op.id, name), ids)


def _list_ids(net: Editor, owner: Op, subgraph: int, ids: dict[Place, tuple[int, ...]]) -> None:
    """List the ids of a subgraph that did not change."""
    ops = net.ops_of(subgraph)
    ids[owner.id, net.graph.subgraphs[subgraph].attribute] = tuple(op.id for op in ops)
    for op in ops:
        for inner in op.bodies:
            _list_ids(net, op, inner, ids)


def write_node(op: Op, target: NodeProto, named: Callable[[int], str]) -> None:
    """Write a node without subgraphs, with other names for its inputs and outputs."""
    target.op_type, target.domain, target.name = op.op_type, op.domain, op.name
    target.input.extend(named(value) for value in _without_tail(op.inputs))
    target.output.extend(named(value) for value in _without_tail(op.outputs))
    target.attribute.extend(op.all_attributes().values())


def write_constant(net: Editor, known: Constant, target: onnx.GraphProto, name: str) -> None:
    """Write a constant as an initializer."""
    tensor = known.tensor
    if tensor is None and _refer(net, known, target, name):
        return
    if tensor is None:
        assert known.array is not None  # noqa: S101 (one of the two)
        tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(known.array).reshape(known.array.shape))
    if isinstance(tensor, TensorProto):
        target.initializer.append(tensor)
        target.initializer[-1].name = name
    else:
        target.sparse_initializer.append(tensor)
        target.sparse_initializer[-1].values.name = name


def _refer(net: Editor, known: Constant, target: onnx.GraphProto, name: str) -> bool:
    """Write a large constant of the main graph as a reference to this process' memory; return whether it is one."""
    array = known.array
    if array is None or known.subgraph or array.nbytes < wire.THRESHOLD or array.dtype.kind not in "fiubc":
        return False
    if not known.location:
        known.location = f"{storage.MEMORY}/{uuid.uuid4().hex}"
        net.large[known.location] = storage.Memory(array, array.nbytes, "a folded constant")
    tensor = target.initializer.add(name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor.dims.extend(array.shape)
    storage.refer(tensor, known.location, 0, array.nbytes)
    return True


def _without_tail(values: list[int]) -> list[int]:
    """Return values without those left out at the end."""
    return values[: max((end for end, value in enumerate(values, 1) if value >= 0), default=0)]


def origins(op: Op) -> tuple[str, ...]:
    """Return the names of the nodes that a node was made of, by this editor or before."""
    if op.origins:
        return op.origins
    return merged(op.proto) or ((op.name,) if op.name else ())


def merged(node: NodeProto) -> tuple[str, ...]:
    """Return the names of the nodes that `simplify` made a node of; empty if its metadata lists none."""
    text = next((plain_text(entry.value) for entry in node.metadata_props if entry.key == PROVENANCE), "")
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return ()
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _write_origins(target: NodeProto, names: Sequence[str]) -> None:
    """List in the metadata the nodes that a node was made of."""
    if len(names) < 2:
        return
    others = [entry for entry in target.metadata_props if entry.key != PROVENANCE]
    del target.metadata_props[:]
    target.metadata_props.extend(others)
    target.metadata_props.add(key=PROVENANCE, value=json.dumps(names, ensure_ascii=False))
