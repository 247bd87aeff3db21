"""Windows of nodes in execution order, the onnxruntime session of each, and the casts it adds for float16.

Inputs of a session are existing values, whose types need no inference.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, helper

from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.subgraphs import key_of
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.tensors import all_nodes
from onnx_nb.analysis.run import session as sessions

if TYPE_CHECKING:
    import onnxruntime

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.run.session import Value
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.run import session

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model


@dataclass(frozen=True, eq=False)
class WindowSession:
    """The session of consecutive nodes."""

    name: str
    session: onnxruntime.InferenceSession
    inputs: list[int]
    outputs: list[int]
    absent: frozenset[int]
    """Inputs that were absent optional values when the session was made: nodes inside the window make them."""
    shapes: Mapping[int, list[int | None]]
    """Declared shapes of inputs, where they matter."""
    nbytes: int
    """Bytes of the weights in it."""

    def fits(self, alive: Mapping[int, Value | None]) -> bool:
        """Return whether the session serves these values too."""
        for value in self.inputs:
            found = alive.get(value)
            if (found is None) != (value in self.absent):
                return False
            if found is not None and value in self.shapes and self.shapes[value] != _declared_shape(found):
                return False
        return True


class SessionMaker:
    """Makes the sessions of one graph's windows."""

    def __init__(self, graph: Graph, wanted: frozenset[int], providers: Sequence[str] | None) -> None:
        self.graph = graph
        self.optional: dict[int, str] = {}
        """Types of values that are optional, as far as seen."""
        self._wanted = wanted
        self._providers = providers
        self._overridable = frozenset(graph.overridable.tolist())
        constant = np.asarray([operator == ("Constant", "") for operator in graph.operators], bool)
        self._is_constant = constant[graph.op_index] if len(constant) else np.zeros(0, bool)
        proto = graph.model.proto
        nodes = all_nodes([*proto.graph.node, *(node for function in proto.functions for node in function.node)])
        op_types = {node.op_type for node in nodes}
        self.has_scans = "Scan" in op_types
        self._may_be_optional = "Optional" in op_types or any(
            info.type.HasField("optional_type") for info in proto.graph.input
        )
        self._weights: dict[int, dict[int, TensorProto | SparseTensorProto]] = {}

    def is_constant(self, value: int) -> bool:
        """Return whether a Constant node makes a value."""
        maker = int(self.graph.producer[value])
        return maker >= 0 and bool(self._is_constant[maker])

    def is_needed_after(self, order: ExecutionOrder, stop: int, value: int) -> bool:
        """Return whether a node behind ``stop`` reads a value, which therefore has to stay alive."""
        return order.last_reader.get(value, -1) >= stop and not self.is_constant(value)

    def is_overridable(self, value: int) -> bool:
        """Return whether a weight is a graph input too."""
        return value in self._overridable

    def window(self, order: ExecutionOrder, start: int, stop: int, alive: Mapping[int, Value | None]) -> WindowSession:
        """Make the session of the nodes from ``start`` to ``stop``; ``alive`` holds all values that they read."""
        graph, names = self.graph, self.graph.value_names
        nodes = order.nodes[start:stop]
        made = [value for node in nodes for value in order.makes[node]]
        inside = set(made)
        proto = self._new_proto("window")
        inputs: list[int] = []
        absent: set[int] = set()
        shapes: dict[int, list[int | None]] = {}
        nbytes = 0
        for value in dict.fromkeys(v for node in nodes for v in order.reads[node] if v not in inside):
            if value in alive:
                inputs.append(value)
                found = alive[value]
                if found is None:
                    absent.add(value)
                    proto.graph.node.append(_absent_optional(names[value], self.optional[value]))
                else:
                    shapes.update(self._add_input(proto.graph, value, found))
            elif graph.value_kind[value] == INITIALIZER:
                nbytes += self._add_weight(proto.graph, value)
            else:
                assert self.is_constant(value)  # all other values are alive  # noqa: S101
                proto.graph.node.append(graph.nodes[int(graph.producer[value])])
        proto.graph.node.extend(graph.nodes[node] for node in nodes)
        proto.functions.extend(self._functions_of(nodes))
        outputs = [v for v in made if v in self._wanted or self.is_needed_after(order, stop, v)] or made[:1]
        for value in outputs:
            proto.graph.output.add(name=names[value])
        name = graph.node_label(nodes[0])
        if len(nodes) > 1:
            name += f" … {graph.node_label(nodes[-1])}"
        session = sessions.create(
            with_proto(graph.model, proto, name),
            optimize=False,
            providers=self._providers,
            transient=True,
            shared_arena=True,
        )
        if self._may_be_optional:
            for value, entry in zip(outputs, session.get_outputs(), strict=True):
                if entry.type.startswith("optional("):
                    self.optional[value] = entry.type
        return WindowSession(name, session, inputs, outputs, frozenset(absent), shapes, nbytes)

    def constant(self, value: int) -> Value | None:
        """Return a weight or the result of a Constant node as a value."""
        name = self.graph.value_names[value]
        proto = self._new_proto("weight")
        if self.graph.value_kind[value] == INITIALIZER:
            self._add_weight(proto.graph, value)
        else:
            proto.graph.node.append(self.graph.nodes[int(self.graph.producer[value])])
        proto.graph.output.add(name=name)
        session = sessions.create(with_proto(self.graph.model, proto, quoted(name)), optimize=False, transient=True)
        return sessions.run_values(session, {}, name=quoted(name))[name]

    def _new_proto(self, name: str) -> ModelProto:
        source = self.graph.model.proto
        return ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, graph=GraphProto(name=name))

    def _add_input(self, target: GraphProto, value: int, found: Value) -> dict[int, list[int | None]]:
        """Declare an input; return the shape that it was declared with, where it matters."""
        info = target.input.add(name=self.graph.value_names[value])
        optional = self.optional.get(value, "")
        info.type.CopyFrom(_type_of(found, optional))
        if not self.has_scans or optional or not found.is_tensor():
            return {}
        # onnxruntime runs a Scan only if it could infer at least the rank of each output of its body
        shape = _declared_shape(found)
        info.type.tensor_type.shape.SetInParent()
        for size in shape:
            info.type.tensor_type.shape.dim.add(dim_value=size)
        return {value: shape}

    def _add_weight(self, target: GraphProto, value: int) -> int:
        """Add a weight; return its bytes, roughly."""
        tensor = self._weight(value)
        if isinstance(tensor, SparseTensorProto):
            target.sparse_initializer.append(tensor)
            return 0
        target.initializer.append(tensor)
        if self.is_overridable(value):
            # as in the whole model: onnxruntime may treat weights that can be overridden differently
            info = target.input.add(name=tensor.name)
            info.type.CopyFrom(helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        return int(math.prod(tensor.dims)) * 4

    def _weight(self, value: int) -> TensorProto | SparseTensorProto:
        subgraph = int(self.graph.value_subgraph[value])
        found = self._weights.get(subgraph)
        if found is None:
            place = self.graph.subgraphs[subgraph]
            tensors = [*place.graph.initializer, *place.graph.sparse_initializer]
            found = self._weights[subgraph] = dict(zip(place.weights.tolist(), tensors, strict=True))
        return found[value]

    def _functions_of(self, nodes: Sequence[int]) -> list[FunctionProto]:
        """Return the local functions that a window may call."""
        functions = self.graph.functions
        if not functions:
            return []
        if any(self.graph.bodies(node) for node in nodes):
            return list(functions.values())
        called: set[tuple[str, str]] = set()
        for operator in {int(self.graph.op_index[node]) for node in nodes}:
            op, domain = self.graph.operators[operator]
            called |= self._calls.get((domain, op), set())
        return [function for (domain, name, _), function in functions.items() if (domain, name) in called]

    @functools.cached_property
    def _calls(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """The functions that each function calls at any depth, itself included."""
        direct: dict[tuple[str, str], set[tuple[str, str]]] = {}
        known = {(domain, name) for domain, name, _ in self.graph.functions}
        for (domain, name, _), function in self.graph.functions.items():
            called = {key_of(node)[:2] for node in all_nodes(function.node)}
            direct.setdefault((domain, name), set()).update(called & known)
        closed: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for key in direct:
            found, waiting = {key}, [key]
            while waiting:
                new = direct[waiting.pop()] - found
                found |= new
                waiting.extend(new)
            closed[key] = found
        return closed


def _declared_shape(value: Value) -> list[int | None]:
    """Return the shape to declare a tensor with: its rank, so that a session serves other sizes."""
    shape = value.shape()
    return list(shape) if len(shape) == 1 and value.element_type() == TensorProto.INT64 else [None] * len(shape)


def _type_of(value: Value, optional: str) -> TypeProto:
    if optional:
        return sessions.parsed_type(optional)
    if value.is_tensor():
        return sessions.tensor_type(value.element_type())
    return sessions.parsed_type(value.data_type())


def _absent_optional(name: str, kind: str) -> NodeProto:
    """Return a node that makes an absent optional value; a session cannot be given one."""
    return helper.make_node("Optional", [], [name], type=sessions.parsed_type(kind).optional_type.elem_type)


@dataclass(frozen=True, eq=False)
class ExecutionOrder:
    """The nodes of one subgraph that run. Values and nodes are numbers of the graph."""

    subgraph: int
    nodes: list[int]
    reads: Mapping[int, list[int]]
    """Values that a node reads, outer-scope values of its subgraphs included."""
    makes: Mapping[int, list[int]]
    last_reader: dict[int, int]
    """Position of the last reader of each value; ``len(nodes)`` for outputs of the subgraph."""
    optional: Mapping[int, str]
    """Types of inputs that are optional, as onnxruntime writes them."""


def execution_order(graph: Graph, subgraph: int, wanted: Collection[int], opened: Collection[int]) -> ExecutionOrder:
    """Return which nodes of a subgraph run."""
    place = graph.subgraphs[subgraph]
    outputs = frozenset(v for v in place.outputs.tolist() if v >= 0) if subgraph else frozenset()
    nodes = graph.subgraph_order(subgraph).tolist()
    all_reads = _reads(graph, subgraph, nodes)
    wanted_here = {v for v in wanted if graph.value_subgraph[v] == subgraph}
    makers = {int(graph.producer[v]) for v in wanted_here | outputs}
    # what the subgraphs of opened nodes read is read by these nodes
    makers.update(node for node in opened if place.start <= node < place.stop)
    needed = _ancestors(graph, makers, all_reads)
    nodes = _constants_late(graph, [node for node in nodes if node in needed], all_reads)
    reads = {node: all_reads[node] for node in nodes}
    last_reader = {value: position for position, node in enumerate(nodes) for value in reads[node]}
    last_reader.update(dict.fromkeys(outputs, len(nodes)))
    optional = {
        value: sessions.type_name(info.type)
        for value, info in zip(place.inputs.tolist(), place.graph.input, strict=False)
        if subgraph and info.type.HasField("optional_type")
    }
    return ExecutionOrder(subgraph, nodes, reads, _makes(graph, place.start, place.stop), last_reader, optional)


def _reads(graph: Graph, subgraph: int, nodes: Sequence[int]) -> dict[int, list[int]]:
    place = graph.subgraphs[subgraph]
    in_value, in_ptr = graph.in_value.tolist(), graph.in_ptr[place.start : place.stop + 1].tolist()
    owners = {node for node in nodes if graph.bodies(node)} if len(graph.subgraphs) > 1 else set()
    reads = {}
    for node in nodes:
        at = node - place.start
        own = [v for v in in_value[in_ptr[at] : in_ptr[at + 1]] if v >= 0]
        reads[node] = [*own, *graph.outer_values(node).tolist()] if node in owners else own
    return reads


def _makes(graph: Graph, start: int, stop: int) -> dict[int, list[int]]:
    out_value, out_ptr = graph.out_value.tolist(), graph.out_ptr[start : stop + 1].tolist()
    return {
        start + at: [v for v in out_value[begin:end] if v >= 0]
        for at, (begin, end) in enumerate(itertools.pairwise(out_ptr))
    }


def _ancestors(graph: Graph, makers: set[int], reads: Mapping[int, Sequence[int]]) -> set[int]:
    """Return some nodes, and the nodes of the same subgraph that they depend on."""
    if len(makers & reads.keys()) == len(reads):
        return set(reads)
    producer = graph.producer
    found: set[int] = set()
    waiting = [node for node in makers if node in reads]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(maker for v in reads[node] if (maker := int(producer[v])) in reads)
    return found


def _constants_late(graph: Graph, nodes: list[int], reads: Mapping[int, Sequence[int]]) -> list[int]:
    """Move nodes that depend on no input right before their first reader: their values may be as large as weights."""
    kinds, producer = graph.value_kind, graph.producer
    constant = {node for node in nodes if all(kinds[v] == INITIALIZER for v in reads[node])}
    if not constant:
        return nodes
    for node in nodes:
        if node not in constant and all(kinds[v] == INITIALIZER or int(producer[v]) in constant for v in reads[node]):
            constant.add(node)
    number = {node: at for at, node in enumerate(nodes)}
    position = dict(number)
    first_reader: dict[int, int] = {}
    for node in reversed(nodes):
        if node in constant:
            position[node] = first_reader.get(node, position[node])
        for value in reads[node]:
            maker = int(producer[value])
            if maker in constant:
                first_reader[maker] = min(first_reader.get(maker, len(nodes)), position[node])
    return sorted(nodes, key=lambda node: (position[node], node not in constant, number[node]))


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
