"""Queries of rules about a graph (nodes, readers, types, constants), and its conversion to a proto.

Values are numbered as in `Graph`, in one table for the main graph and all subgraphs, so that a rule sees a reader in a
branch of an If like any other. Nothing in the model is copied, and weights stay where they are.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.shape_inference import Case, Inference
from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.model import storage, tensors, wire
from onnx_nb.analysis.model.functions import canonical
from onnx_nb.analysis.model.model import Model, read_tensor, with_proto
from onnx_nb.analysis.model.tensors import Dims

READ_AT_MOST: Final = 1 << 24
"""Bytes of the largest constant that rules read."""
DEPENDS_ON_CALL: Final = "(depends on the call)"
"""Domain of a node whose attributes depend on the call of its function, so that no rule treats it as standard."""
PROVENANCE: Final = "onnx_nb.merged"
"""Key in the metadata of a node that lists, in JSON, the names of the nodes it was merged from."""
FLOATS: Final = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
LEFT_OUT: Final = -1
"""Index of an omitted optional input or output."""

Array = NDArray[Any]

# ONNX nodes have no identity: here a node keeps its id however often the model is written between the rounds.
Place = tuple[int | str, str]
"""A graph: `MAIN`, a function ("function", its label), or a subgraph (id of the owner node, name of the attribute)."""
NodeIds = Mapping[Place, tuple[int, ...]]
"""The ids of the nodes of each graph, in order."""
Key = tuple[int, tuple[int, ...]]
"""Id of a node, and the ids of the function calls around it."""

MAIN: Final[Place] = ("", "")


@dataclass(slots=True, eq=False)
class Op:
    """A node."""

    number: int
    """Position in `KnownGraph.ops`."""
    id: int
    """Identity of the node, from the original model to the result."""
    op_type: str
    domain: str
    name: str
    inputs: list[int]
    """Values; `LEFT_OUT` for an omitted optional input."""
    outputs: list[int]
    subgraph: int
    place: tuple[int, ...]
    """Position among the nodes of its subgraph, in topological order."""
    proto: NodeProto
    """The node with its attributes, documentation and metadata; inputs and outputs may have changed."""
    bodies: tuple[int, ...] = ()
    made_of: list[str] = field(default_factory=list)
    """Names of the nodes that the editor merged into this one."""
    alive: bool = True

    def input(self, slot: int) -> int:
        """Return an input; `LEFT_OUT` if there are fewer."""
        return self.inputs[slot] if slot < len(self.inputs) else LEFT_OUT

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        value = tensors.attribute(self.proto, name, default)
        return plain_text(value) if isinstance(value, bytes) else value

    def attributes(self) -> dict[str, Any]:
        """Return the values of all attributes by name."""
        return tensors.attributes(self.proto)

    def origins(self) -> list[str]:
        """Return the names of the nodes that `simplify` merged into this one; its own name if none are known."""
        if self.made_of:
            return self.made_of
        text = next((plain_text(entry.value) for entry in self.proto.metadata_props if entry.key == PROVENANCE), "[]")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = []
        names = [name for name in content if isinstance(name, str)] if isinstance(content, list) else []
        return names or [self.name] * bool(self.name)

    def credit(self, origins: Iterable[str]) -> None:
        """List, in the metadata of a node that we added, the nodes it was merged from."""
        self.made_of = list(dict.fromkeys(origins))
        if len(self.made_of) > 1:
            notes = self.proto.metadata_props
            entry = next((note for note in notes if note.key == PROVENANCE), None) or notes.add(key=PROVENANCE)
            entry.value = json.dumps(self.made_of, ensure_ascii=False)

    def write_ports(self, target: NodeProto, name_of: Callable[[int], str]) -> None:
        """Write the names of inputs and outputs into a proto."""
        for names, values in ((target.input, self.inputs), (target.output, self.outputs)):
            end = max((end for end, value in enumerate(values, 1) if value >= 0), default=0)
            names[:] = [name_of(value) if value >= 0 else "" for value in values[:end]]


def tensor_kind(elem_type: int, shape: Sequence[int | str | None] | None) -> ValueType:
    """Return the type of a tensor."""
    return ValueType.of(onnx.helper.make_tensor_type_proto(elem_type, shape))


@dataclass(slots=True, eq=False)
class Constant:
    """A value that is known before the model runs."""

    tensor: TensorProto | SparseTensorProto | None
    """The tensor in the model; None if it was computed."""
    array: Array | None = None
    """The values, once they have been read or computed."""
    subgraph: int = 0
    """Subgraph whose initializer it is or becomes."""
    is_initializer: bool = False
    """Whether it is an initializer in the original."""
    location: str = ""
    """Location under which this process holds the values of a large computed constant."""


class KnownGraph:
    """A graph and the known facts about it; ``prefix`` is empty for the main graph, "domain.name/" for a function."""

    def __init__(self, model: Model, ids: NodeIds, prefix: str) -> None:
        graph = self.graph = Graph.of(model)
        self.source = model
        self.prefix = prefix
        self.opset = graph.opsets.get("", 0)
        """Version of the standard operators; 0 if the model imports none."""
        self.names: list[str] = list(graph.value_names)
        self.ops: list[Op] = []
        self.members: list[list[Op]] = [[] for _ in graph.subgraphs]
        """The nodes of each subgraph, including removed ones."""
        self.producer: list[int] = graph.producer.tolist()
        self.readers: list[dict[int, int]] = [{} for _ in range(graph.value_count)]
        """The nodes that have a value among their inputs, with the number of times."""
        self.subgraph_of: list[int] = graph.value_subgraph.tolist()
        self.subgraph_outputs: list[list[int]] = [subgraph.outputs.tolist() for subgraph in graph.subgraphs]
        self.output_count = [0] * graph.value_count
        """Number of times that each value is an output of the main graph or of a subgraph."""
        self.parent = [subgraph.parent for subgraph in graph.subgraphs]
        self.kinds: dict[int, ValueType] = {}
        self.cases: list[tuple[Op, Case]] = []
        self.memo: dict[Any, Any] = {}
        """Results of `symbolic_dims` for values during one run; the content of a value never changes."""
        self.constants: dict[int, Constant] = {}
        self.constant_ids: dict[int, int] = {}
        """Ids of the Constant nodes that constants need in a function, or as outputs of a graph."""
        self.large: dict[str, storage.Source] = {}
        """Large computed constants by the location that tensors name."""
        self.dirty: set[int] = set()
        """Nodes whose inputs or outputs differ from those in their proto."""
        self.marked: set[int] = set()
        """Subgraphs in which something changed."""
        self._since: dict[tuple[str, ...], set[int]] = {}
        """For rules that ran, the nodes to visit again."""
        self._computed: dict[tuple[Any, ...], int] = {}
        """A node for each computation that was seen."""
        for number, subgraph in enumerate(graph.subgraphs):
            for value in subgraph.weights.tolist():
                tensor = cast("TensorProto", graph.weight(value))
                self.constants[value] = Constant(tensor, subgraph=number, is_initializer=True)
            for value in self.subgraph_outputs[number]:
                self.output_count[value] += 1
        self._by_id: dict[int, Op] = {}
        # nodes in topological order; a longer place leaves room for nodes that leave a subgraph
        place = np.arange(graph.node_count)
        place[graph.order] = np.arange(len(graph.order))
        rows = zip(graph.nodes, identify(graph, ids), graph.node_subgraph.tolist(), place.tolist(), strict=True)
        for number, (proto, (id_, *_), subgraph, at) in enumerate(rows):
            inputs, outputs = graph.node_inputs(number).tolist(), graph.node_outputs(number).tolist()
            self._join(proto, id_, inputs, outputs, subgraph=subgraph, place=(at,), bodies=graph.bodies(number))

    def _join(
        self, proto: NodeProto, id_: int, inputs: list[int], outputs: list[int], *, subgraph: int, **more: Any
    ) -> Op:
        """Add a node to the lists of nodes, members and readers; ``more`` are fields of `Op`."""
        domain, name = canonical(plain_text(proto.domain)), plain_text(proto.name)
        if self.prefix and any(attribute.ref_attr_name for attribute in proto.attribute):
            domain = DEPENDS_ON_CALL
        op_type, number = plain_text(proto.op_type), len(self.ops)
        op = Op(number, id_, op_type, domain, name, inputs, outputs, subgraph, proto=proto, **more)
        self.ops.append(op)
        self._by_id[id_] = op
        self.members[subgraph].append(op)
        for value in inputs:
            if value >= 0:
                self._note(op, value)
        return op

    def _note(self, op: Op, value: int) -> None:
        counts = self.readers[value]
        counts[op.number] = counts.get(op.number, 0) + 1

    def learn(self, types: Inference, ids: NodeIds | None) -> None:
        """Adopt the types inferred for this graph as written with ``ids``, and visit every node again."""
        self._since.clear()
        self._computed.clear()
        ops = self.ops if ids is None else [self._by_id.get(key[0]) for key in identify(types.graph, ids)]
        self.cases = []
        for op, case in zip(ops, types.case_of.tolist(), strict=False):
            if op is None or case < 0:
                continue
            inference = types.cases[case]
            self.cases.append((op, inference))
            for values, kinds in ((op.inputs, inference.inputs), (op.outputs, inference.outputs)):
                for value, kind in zip(values, kinds, strict=False):
                    if value >= 0 and kind is not None:
                        self.kinds[value] = kind

    # --- nodes ------------------------------------------------------------------------------------------------------

    def maker(self, value: int) -> Op | None:
        """Return the node that produces a value."""
        number = self.producer[value] if value >= 0 else -1
        return self.ops[number] if number >= 0 else None

    def made_by(self, value: int, *op_types: str) -> Op | None:
        """Return the node that produces a value, if it is one of the given standard operators."""
        maker = self.maker(value)
        return maker if maker is not None and maker.op_type in op_types and not maker.domain else None

    def before(self, op: Op, slot: int, *op_types: str) -> Op | None:
        """Return the node whose first output only this input reads, if it is one of the given standard operators."""
        value = op.input(slot)
        maker = self.made_by(value, *op_types)
        if maker is None or maker.subgraph != op.subgraph or maker.outputs[0] != value:
            return None
        return maker if self.only_use(value) is op else None

    def operands(self, op: Op, *op_types: str) -> Iterator[tuple[Op, int]]:
        """Yield for each of two inputs the node that `before` finds, if any, and the other input."""
        for slot in (0, 1):
            maker = self.before(op, slot, *op_types)
            if maker is not None:
                yield maker, op.inputs[1 - slot]

    def uses(self, value: int) -> list[Op]:
        """Return the nodes that read a value, once each."""
        return [self.ops[number] for number in self.readers[value]]

    def only_use(self, value: int) -> Op | None:
        """Return the only node that reads a value, if it reads it once and the value is not an output."""
        if len(self.readers[value]) != 1 or self.output_count[value]:
            return None
        [(number, times)] = self.readers[value].items()
        return self.ops[number] if times == 1 else None

    def is_read(self, value: int) -> bool:
        """Return whether a node reads a value, or it is an output."""
        return bool(self.readers[value] or self.output_count[value])

    def is_useful(self, op: Op) -> bool:
        """Return whether an output of a node is used."""
        return any(v >= 0 and self.producer[v] == op.number and self.is_read(v) for v in op.outputs)

    def in_order(self, subgraph: int | None = None) -> list[Op]:
        """Return the nodes of one or each subgraph in topological order, after those of the subgraph around it."""
        ops = self.ops if subgraph is None else self.members[subgraph]
        return sorted((op for op in ops if op.alive), key=lambda op: (op.place, op.number))

    def owner(self, subgraph: int) -> Op:
        """Return the node that a subgraph belongs to."""
        return self.ops[self.graph.subgraphs[subgraph].owner_node]

    def repeats(self, subgraph: int) -> bool:
        """Return whether a subgraph is inside one that may run more than once."""
        while subgraph > 0:
            if self.owner(subgraph).op_type != "If":
                return True
            subgraph = self.parent[subgraph]
        return False

    # --- types and constants ----------------------------------------------------------------------------------------

    def kind(self, value: int) -> ValueType:
        """Return the type of a value, which may be partly known."""
        if value not in self.kinds:
            self.kinds[value] = self._declared(value)
        return self.kinds[value]

    def _declared(self, value: int) -> ValueType:
        if not 0 <= value < self.graph.value_count:
            return ValueType()
        return self.graph.declared.table.known[int(self.graph.declared.of_value[value])]

    def shape(self, value: int) -> Dims | None:
        """Return the shape of a value, with symbols for dimensions of unknown size."""
        return self.kind(value).shape

    def dtype(self, value: int) -> int:
        """Return the element type as in ``onnx.TensorProto.DataType``; 0 if unknown."""
        return self.kind(value).elem_type

    def constant(self, value: int) -> Array | None:
        """Return a constant value; None if it is not constant, or too large to read."""
        holder = self.constants.get(value)
        if holder is not None and holder.array is None and self.constant_bytes(value) <= READ_AT_MOST:
            holder.array = self.read(value)
        return None if holder is None else holder.array

    def may_be_constant(self, value: int) -> bool:
        """Return whether a value can be stored: some need a Constant node, which holds only floats before opset 9."""
        return self.opset >= 9 or not (self.prefix or self.output_count[value]) or self.dtype(value) in FLOATS

    def constant_bytes(self, value: int) -> int:
        """Return the size of a constant in bytes."""
        constant = self.constants[value]
        if isinstance(constant.tensor, SparseTensorProto):
            return sum(map(tensors.declared_bytes, (constant.tensor.values, constant.tensor.indices)))
        return self.read(value).nbytes if constant.tensor is None else tensors.declared_bytes(constant.tensor)

    def read(self, value: int) -> Array:
        """Return the values of a constant of any size."""
        constant = self.constants[value]
        if constant.array is not None:
            return constant.array
        assert constant.tensor is not None  # noqa: S101 (one of the two)
        return read_tensor(self.source, constant.tensor, self.names[value])

    # --- conversion to a proto --------------------------------------------------------------------------------------

    def model(self) -> tuple[Model, NodeIds]:
        """Return the graph as a model that refers to the weights where they were, and the ids of its nodes."""
        proto = ModelProto()
        wire.copy_fields(self.source.proto, proto, without=("graph",))
        if 0 < proto.ir_version < 4:
            proto.ir_version = 4
        ids: dict[Place, tuple[int, ...]] = {}
        orders = [self.in_order(subgraph) for subgraph in range(len(self.members))]
        for number, order in enumerate(orders):
            if number == 0 or self.owner(number).alive:
                place = (self.owner(number).id, self.graph.subgraphs[number].attribute) if number else MAIN
                nodes = [self.constant_ids[value] for value in self._written_as_nodes(number)]
                ids[place] = (*nodes, *(op.id for op in order))
        waiting = [(proto.graph, 0)]
        while waiting:
            waiting += self._write_graph(*waiting.pop(), orders)
        return with_proto(self.source, proto, self.source.name, self.large), ids

    def _written_as_nodes(self, subgraph: int) -> list[int]:
        """Return the constants that need a node because they are outputs of a subgraph."""
        return [v for v in self.subgraph_outputs[subgraph] if v in self.constant_ids and self.producer[v] < 0]

    def _write_graph(self, target: GraphProto, subgraph: int, orders: list[list[Op]]) -> list[tuple[GraphProto, int]]:
        """Write a subgraph, and return those in it that are still to be written."""
        inside: list[tuple[GraphProto, int]] = []
        source, ops = self.graph.subgraphs[subgraph], orders[subgraph]
        wire.copy_fields(source.graph, target, without=("node", "initializer", "sparse_initializer", "value_info"))
        nodes = self._written_as_nodes(subgraph)
        for value in nodes:
            node = target.node.add(op_type="Constant", output=[self.names[value]])
            node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(self.read(value))))
        for op in ops:
            node_ = target.node.add()
            node_.CopyFrom(op.proto)
            if op.number in self.dirty:
                op.write_ports(node_, self.names.__getitem__)
            for inner in self.marked.intersection(op.bodies):
                name = self.graph.subgraphs[inner].attribute
                attribute = next(candidate for candidate in node_.attribute if candidate.name == name)
                attribute.g.Clear()
                inside.append((attribute.g, inner))
        for value, constant in self.constants.items():
            if constant.subgraph == subgraph and value not in nodes and self.is_read(value):
                self.write_constant(constant, target, self.names[value])
        ends = set(self.subgraph_outputs[subgraph]) | set(source.inputs.tolist())
        for value in sorted({value for op in ops for value in op.outputs if value >= 0} - ends):
            kind = self.kinds.get(value)
            if kind is None or not kind.elem_type or kind.shape is None:
                kind = self._declared(value)
            if kind.dtype:
                target.value_info.add(name=self.names[value], type=kind.proto)
        if subgraph == 0:
            # weights are no longer inputs, and outputs have the inferred types
            weights = {self.names[value] for value in source.weights.tolist()}
            wire.set_entries(target.input, (info for info in target.input if plain_text(info.name) not in weights))
            for info, value in zip(target.output, self.subgraph_outputs[0], strict=True):
                if value >= 0 and self.kind(value).elem_type:
                    _refine(info.type, self.kind(value))
        return inside

    def write_constant(self, constant: Constant, target: GraphProto, name: str) -> None:
        """Write a constant as an initializer; a large computed one stays in the memory of this process."""
        tensor, array = constant.tensor, constant.array
        if tensor is None:
            assert array is not None  # noqa: S101 (one of the two)
            if constant.subgraph or array.nbytes < wire.THRESHOLD or array.dtype.kind not in "fiubc":
                tensor = onnx.numpy_helper.from_array(array)
            else:
                constant.location = constant.location or f"{storage.MEMORY}/{uuid.uuid4().hex}"
                self.large[constant.location] = storage.MemorySource(array, array.nbytes, "a folded constant")
                tensor = TensorProto(data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
                storage.refer(tensor, constant.location, 0, array.nbytes)
        if isinstance(tensor, TensorProto):
            target.initializer.append(tensor)
            target.initializer[-1].name = name
        else:
            target.sparse_initializer.append(tensor)
            target.sparse_initializer[-1].values.name = name


def _refine(target: onnx.TypeProto, kind: ValueType) -> None:
    """Write the inferred element type and sizes into a declared type where it has none."""
    if not target.WhichOneof("value"):
        target.CopyFrom(kind.proto)
    if not target.HasField("tensor_type"):
        return
    tensor = target.tensor_type
    tensor.elem_type = tensor.elem_type or kind.elem_type
    if kind.shape is not None and not tensor.HasField("shape"):
        tensor.shape.CopyFrom(kind.proto.tensor_type.shape)
    before, after = tensors.dimensions(target) or (), kind.shape or ()
    for dim, old, new in zip(tensor.shape.dim, before, after, strict=True) if len(before) == len(after) else ():
        if isinstance(new, int) and not isinstance(old, int):
            dim.dim_value = new
        elif isinstance(new, str) and old is None:
            dim.dim_param = new


def label(function: FunctionProto) -> str:
    """Return the label of a local function in keys of changes: "domain.name"."""
    overload = f":{plain_text(function.overload)}" if function.overload else ""
    return f"{plain_text(function.domain)}.{plain_text(function.name)}{overload}"


def identify(graph: Graph, ids: NodeIds) -> list[Key]:
    """Return the key of each node of a graph, in which calls may be opened; id −1 for a node that `ids` lacks."""
    keys: list[Key] = [(-1, ())] * graph.node_count
    calls: list[tuple[int, ...]] = []
    for subgraph in graph.subgraphs:
        owner = keys[subgraph.owner_node][0] if subgraph.owner_node >= 0 else -1
        around = calls[subgraph.parent] if subgraph.parent >= 0 else ()
        calls.append((*around, owner) if subgraph.function is not None else around)
        place: Place = MAIN if subgraph.owner_node < 0 else (owner, subgraph.attribute)
        numbers = ids.get(place if subgraph.function is None else ("function", label(subgraph.function)), ())
        if len(numbers) == subgraph.stop - subgraph.start:
            keys[subgraph.start : subgraph.stop] = [(id_, calls[-1]) for id_ in numbers]
    return keys
