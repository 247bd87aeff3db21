"""What rules can ask about a graph (nodes, readers, types, constants), and its way back to a proto.

Values are numbered as in `Graph`, those of the main graph and of all subgraphs in one table, so that a rule sees a
reader in a branch of an If like any other. Nothing of the model is copied, and weights stay where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TensorProto

from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import read_tensor
from onnx_nb.analysis.simplify.symbolic_dims import Array, Constant, NodeIds, Op, identify, kind

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.shape_inference import Case, Inference
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.model.tensors import Dims
import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx.numpy_helper
from onnx import ModelProto, NodeProto

from onnx_nb.analysis.model import storage, wire
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.tensors import dimensions
from onnx_nb.analysis.simplify.symbolic_dims import LEFT_OUT, MAIN, Place

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.simplify.editor import Editor

READ_AT_MOST: Final = 1 << 24
"""Bytes of the largest constant that rules look at."""
DEPENDS_ON_CALL: Final = "(depends on the call)"
"""Domain of a node with attributes that only a call of its function knows, so that no rule takes it for standard."""


class KnownGraph:
    """A graph and what is known about it; ``prefix`` is empty for the main graph, "domain.name/" for a function."""

    def __init__(self, model: Model, ids: NodeIds, prefix: str) -> None:
        graph = self.graph = Graph.of(model)
        self.source = model
        self.prefix = prefix
        self.opsets = dict(graph.opsets)
        self.names: list[str] = list(graph.value_names)
        self.ops: list[Op] = []
        self.producer: list[int] = graph.producer.tolist()
        self.readers: list[dict[int, int]] = [{} for _ in range(graph.value_count)]
        """The nodes that name a value among their inputs, and how often."""
        self.subgraph_of: list[int] = graph.value_subgraph.tolist()
        self.subgraph_outputs: list[list[int]] = [each.outputs.tolist() for each in graph.subgraphs]
        self.parent = [each.parent for each in graph.subgraphs]
        self.kinds: dict[int, ValueType | None] = {}
        self.cases: list[tuple[Op, Case]] = []
        """What type inference found about nodes."""
        self.memo: dict[Any, Any] = {}
        """What `symbolic_dims` found about values during one run; a value never becomes another."""
        self.constants: dict[int, Constant] = {}
        self.constant_ids: dict[int, int] = {}
        """Ids of the Constant nodes that constants need in a function, or as outputs of a graph."""
        self._is_output = Counter(value for outputs in self.subgraph_outputs for value in outputs)
        self._since: dict[tuple[str, ...], set[int]] = {}
        """For rules that ran, the nodes to look at again."""
        self._computed: dict[tuple[Any, ...], int] = {}
        """A node for each computation that was seen."""
        self._infos: dict[int, dict[str, onnx.ValueInfoProto]] = {}
        self._by_subgraph: dict[int, list[Op]] = {}
        self._counted = -1
        for number, each in enumerate(graph.subgraphs):
            stored = [*each.graph.initializer, *each.graph.sparse_initializer]
            for value, tensor in zip(each.weights.tolist(), stored, strict=False):
                self.constants[value] = Constant(tensor, subgraph=number, is_initializer=True)
        self._read_ops([key[0] for key in identify(graph, ids)])
        self._by_id = {op.id: op for op in self.ops}

    def _read_ops(self, ids: Sequence[int]) -> None:
        graph = self.graph
        ins, in_ptr = graph.in_value.tolist(), graph.in_ptr.tolist()
        outs, out_ptr = graph.out_value.tolist(), graph.out_ptr.tolist()
        operators, subgraphs = graph.op_index.tolist(), graph.node_subgraph.tolist()
        # nodes in an order in which they can run; a longer place leaves room for nodes that leave a subgraph
        place = np.arange(graph.node_count)
        place[graph.order] = np.arange(len(graph.order))
        places = place.tolist()
        owned: dict[int, list[int]] = {}
        for number, each in enumerate(graph.subgraphs[1:], 1):
            owned.setdefault(each.owner_node, []).append(number)
        names = graph.names
        for number, proto in enumerate(graph.nodes):
            op_type, domain = graph.operators[operators[number]]
            if self.prefix and any(attribute.ref_attr_name for attribute in proto.attribute):
                domain = DEPENDS_ON_CALL
            op = Op(
                number=number,
                id=ids[number],
                op_type=op_type,
                domain=domain,
                name=names[number],
                inputs=ins[in_ptr[number] : in_ptr[number + 1]],
                outputs=outs[out_ptr[number] : out_ptr[number + 1]],
                subgraph=subgraphs[number],
                place=(places[number],),
                proto=proto,
                bodies=tuple(owned.get(number, ())),
            )
            self.ops.append(op)
            for value in op.inputs:
                if value >= 0:
                    self._note(op, value)

    def _note(self, op: Op, value: int) -> None:
        found = self.readers[value]
        found[op.number] = found.get(op.number, 0) + 1

    def learn(self, types: Inference, ids: NodeIds | None) -> None:
        """Take over types inferred for this graph as it was written with ``ids``, and look at every node again."""
        self._since.clear()
        self._computed.clear()
        ops = self.ops if ids is None else [self._by_id.get(key[0]) for key in identify(types.graph, ids)]
        self.cases = []
        for op, case in zip(ops, types.case_of.tolist(), strict=False):
            if op is None or case < 0:
                continue
            found = types.cases[case]
            self.cases.append((op, found))
            for values, kinds in ((op.inputs, found.inputs), (op.outputs, found.outputs)):
                for value, known in zip(values, kinds, strict=False):
                    if value >= 0 and known is not None:
                        self.kinds[value] = known

    def opset(self, domain: str = "") -> int:
        """Return the version of a domain that the model imports; 0 if it imports none."""
        return self.opsets.get(domain, 0)

    def maker(self, value: int) -> Op | None:
        """Return the node that makes a value."""
        number = self.producer[value] if value >= 0 else -1
        return self.ops[number] if number >= 0 else None

    def uses(self, value: int) -> list[Op]:
        """Return the nodes that read a value, once each."""
        return [self.ops[number] for number in self.readers[value]]

    def is_output(self, value: int) -> bool:
        """Return whether a value is an output of the main graph or of a subgraph."""
        return value in self._is_output

    def only_use(self, value: int) -> Op | None:
        """Return the only node that reads a value, if it reads it once and the value is no output."""
        if len(self.readers[value]) != 1 or value in self._is_output:
            return None
        [(number, times)] = self.readers[value].items()
        return self.ops[number] if times == 1 else None

    def before(self, op: Op, slot: int, *op_types: str) -> Op | None:
        """Return the node whose first output only this input reads, if it is one of some standard operators."""
        maker = self.maker(op.inputs[slot]) if slot < len(op.inputs) else None
        if maker is None or maker.op_type not in op_types or maker.domain or maker.subgraph != op.subgraph:
            return None
        made = op.inputs[slot]
        return maker if maker.outputs[0] == made and self.only_use(made) is op else None

    def operands(self, op: Op, *op_types: str) -> Iterator[tuple[Op, int]]:
        """Yield, for each of two inputs for which `before` finds a node, that node and the other input."""
        for slot in (0, 1):
            maker = self.before(op, slot, *op_types)
            if maker is not None:
                yield maker, op.inputs[1 - slot]

    def kind(self, value: int) -> ValueType | None:
        """Return the type of a value as far as it is known."""
        if value < 0:
            return None
        if value not in self.kinds:
            self.kinds[value] = self._declared(value)
        return self.kinds[value]

    def _declared(self, value: int) -> ValueType | None:
        known = self.constants.get(value)
        if known is not None and isinstance(known.tensor, TensorProto):
            return kind(known.tensor.data_type, known.tensor.dims)
        info = self.info(value)
        if info is None or not info.type.HasField("tensor_type"):
            return None
        return ValueType.of(info.type)

    def info(self, value: int) -> onnx.ValueInfoProto | None:
        """Return what the model declares about a value."""
        if value >= self.graph.value_count:
            return None
        subgraph = int(self.graph.value_subgraph[value])
        if subgraph not in self._infos:
            graph = self.graph.subgraphs[subgraph].graph
            self._infos[subgraph] = {plain_text(i.name): i for i in (*graph.value_info, *graph.output, *graph.input)}
        return self._infos[subgraph].get(self.graph.value_names[value])

    def shape(self, value: int) -> Dims | None:
        """Return the shape of a value, with symbols for dimensions of unknown size."""
        kind = self.kind(value)
        return None if kind is None else kind.shape

    def dtype(self, value: int) -> int:
        """Return the element type as in ``onnx.TensorProto.DataType``; 0 if it is unknown."""
        kind = self.kind(value)
        return 0 if kind is None else kind.elem_type

    def constant(self, value: int) -> Array | None:
        """Return a constant value; None if it is not constant, or too large to look at."""
        known = self.constants.get(value) if value >= 0 else None
        if known is None:
            return None
        if known.array is None:
            known.array = self.read(value) if self.constant_bytes(value) <= READ_AT_MOST else None
        return known.array

    def is_constant(self, value: int) -> bool:
        """Return whether a value is constant."""
        return value in self.constants

    def constant_bytes(self, value: int) -> int:
        """Return the size of a constant in bytes."""
        known = self.constants[value]
        if known.tensor is None:
            assert known.array is not None  # noqa: S101 (one of the two)
            return known.array.nbytes
        if isinstance(known.tensor, TensorProto):
            return tensors.declared_bytes(known.tensor)
        return tensors.declared_bytes(known.tensor.values) + tensors.declared_bytes(known.tensor.indices)

    def read(self, value: int) -> Array:
        """Return the values of a constant of any size."""
        known = self.constants[value]
        if known.array is not None:
            return known.array
        what = f"tensor {quoted(self.names[value])}"
        if isinstance(known.tensor, TensorProto) and known.tensor.data_location != TensorProto.EXTERNAL:
            return tensors.values(known.tensor, what)
        assert known.tensor is not None  # noqa: S101 (one of the two)
        return read_tensor(self.source, known.tensor, self.names[value])

    def is_read(self, value: int) -> bool:
        """Return whether a node reads a value, or it is an output."""
        return bool(self.readers[value]) or value in self._is_output

    def needs_node(self, value: int) -> bool:
        """Return whether a value is constant and still needs a node that makes it, as it is an output of a graph."""
        return value in self.constant_ids and value in self._is_output and self.producer[value] < 0

    def is_useful(self, op: Op) -> bool:
        """Return whether an output of a node is used."""
        return any(
            v >= 0 and self.producer[v] == op.number and (self.readers[v] or v in self._is_output) for v in op.outputs
        )

    def ops_of(self, subgraph: int) -> list[Op]:
        """Return the nodes of a subgraph, in an order in which they can run."""
        if self._counted != len(self.ops):
            self._by_subgraph = {}
            self._counted = len(self.ops)
            for op in self.ops:
                self._by_subgraph.setdefault(op.subgraph, []).append(op)
        found = [op for op in self._by_subgraph.get(subgraph, ()) if op.alive]
        return sorted(found, key=lambda op: (op.place, op.number))

    def in_order(self) -> list[Op]:
        """Return all nodes, those of a subgraph after what it captures, and each node after what it reads."""
        places: dict[int, tuple[tuple[int, ...], ...]] = {}

        def path(op: Op) -> tuple[tuple[int, ...], ...]:
            if op.subgraph == 0:
                return (op.place,)
            if op.subgraph not in places:
                places[op.subgraph] = path(self.owner(op.subgraph))
            return (*places[op.subgraph], op.place)

        return sorted((op for op in self.ops if op.alive), key=path)

    def owner(self, subgraph: int) -> Op:
        """Return the node that a subgraph belongs to."""
        return self.ops[self.graph.subgraphs[subgraph].owner_node]

    def repeats(self, subgraph: int) -> bool:
        """Return whether a subgraph is inside of one that may run more than once."""
        while subgraph > 0:
            if self.owner(subgraph).op_type != "If":
                return True
            subgraph = self.parent[subgraph]
        return False


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
