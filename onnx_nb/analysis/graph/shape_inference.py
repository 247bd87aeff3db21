"""Infer the types of a model's values for given input shapes: one walk in topological order; nothing is run.

Each node is passed to onnx's inference, equal nodes with equal inputs once: the layers of a transformer cost as much
as one of them. Small integers are computed on the way, as exporters compute shapes from shapes; onnx's inference of
whole models knows fewer operators, and takes seconds where this takes one.
"""

from __future__ import annotations

import copy
import functools
import heapq
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray
from onnx import TensorProto, TypeProto

from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import closest, plain_text, quoted, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.diagnostics import Problem
from onnx_nb.analysis.graph.subgraphs import opsets_of
from onnx_nb.analysis.graph.types import (
    FLOATS_WANTED,
    DeclaredTypes,
    TypeTable,
    ValueType,
    computed,
    contrib_shape,
    is_integer,
    is_small,
    is_static,
    unwrapped,
)
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.functions import fatal
from onnx_nb.analysis.model.model import label_of, read_tensor
from onnx_nb.analysis.model.tensors import Dims, attribute, dimensions, dimensions_text, fits, input_types, listed

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints

DEPTH = 100
"""Levels of nested subgraphs that are walked; deeper ones are left out."""
SETTLED_DEPTH = 4
"""Levels of nesting up to which the types that a loop carries are iterated; deeper, they have any shape."""
STEPS = 200_000
"""Nodes, besides four times those of the graph, after which the bodies of loops are walked only once."""

BROKEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)
"""Errors that attributes of a wrong type or number raise; only broken models have them."""

Value = NDArray[Any]
Sizes = tuple[Mapping[str, int], Mapping[str, tuple[int, ...]]]
"""Sizes of symbols, and shapes of inputs."""
NO_SIZES: Sizes = ({}, {})
_NO_VALUE, _NOT_READ, _LEFT_OUT = -1, -2, -3
_NOTHING = 0
"""Number of the unknown type in a `TypeTable`."""
_UNKNOWN_KINDS = [onnx.helper.make_tensor_type_proto(elem, None) for elem in (TensorProto.FLOAT, TensorProto.INT64)]
"""Types that inputs of unknown type are given in turn; what both lead to does not depend on them."""


@dataclass(frozen=True, eq=False)
class Case:
    """Common properties of equal nodes: operator, attributes, types of inputs and outputs."""

    node: onnx.NodeProto
    """One of them."""
    domain: str
    version: int
    """The opset of the operator's domain; 0 if the model imports none."""
    inputs: tuple[ValueType | None, ...]
    """Types of the inputs, None where omitted; an unknown type is also a `ValueType`."""
    values: tuple[Value | None, ...]
    """Values of the inputs; None where unknown."""
    outputs: tuple[ValueType | None, ...]
    known_operator: bool = True
    """Whether onnx defines the operator at that opset."""


@dataclass(frozen=True, eq=False)
class Inference:
    """The types in a graph."""

    graph: Graph
    table: TypeTable
    of_value: Ints
    """Number in `table` of each value's type."""
    contents: Sequence[Value]
    """Distinct known values."""
    content_of: Ints
    """Number in `contents` of what each value is known to be; negative if it is unknown."""
    cases: Sequence[Case]
    case_of: Ints
    """The case of each node, −1 for those that were not reached."""
    trips: Mapping[int, int | None]
    """Number of times the body of a Loop, Scan or call runs; None if it is unknown before the run."""
    unbound: tuple[str, ...]
    """Symbols in the shapes of the inputs whose sizes are unknown."""
    problems: tuple[Problem, ...]
    """The first node that onnx's inference rejects, and the `fatal` one."""
    fatal: Problem | None = None
    """A Slice of a negative dimension, on which onnx's inference of whole models ends the process."""

    def type_of(self, value: int) -> ValueType:
        """Return the type of a value."""
        return self.table.known[int(self.of_value[value])]


class TypeWalk:
    """One walk; types and known values are numbers into lists, so that they compare quickly."""

    def __init__(self, graph: Graph, types: DeclaredTypes, asked: Sizes = NO_SIZES) -> None:
        self._graph, self._table = graph, types.table.copy()
        self._types = self._table.known
        symbols, shapes = asked
        bound = [self._bound(kind, symbols) for kind in list(self._types)]
        self._declared = [bound[number] for number in types.of_value.tolist()]
        for value in graph.inputs.tolist():
            shape, kind = shapes.get(graph.value_names[value]), self._types[self._declared[value]]
            if shape is not None and kind.elem_type:
                self._declared[value] = self._table.tensor(kind.elem_type, shape)
        self._type_of = list(self._declared)
        self._values: list[Value] = []
        self._value_index: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._value_of = [_NO_VALUE] * graph.value_count
        for subgraph in graph.subgraphs:
            for value in subgraph.weights.tolist():
                self._value_of[value] = _NOT_READ
        self._index: dict[tuple[Any, ...], int] = {}
        self._cases: list[Case] = []
        self._made: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        """The types and the known values of the outputs of each case."""
        self._case_of = np.full(graph.node_count, -1, np.int32)
        self._trips: dict[int, int | None] = {}
        self._in, self._in_ptr = graph.in_value.tolist(), graph.in_ptr.tolist()
        self._out, self._out_ptr = graph.out_value.tolist(), graph.out_ptr.tolist()
        self._op = graph.op_index.tolist()
        self._special = [
            tensors.may_hold(op, domain) or operators.may_hold_graphs(op, domain, graph.opsets.get(domain, 0))
            for op, domain in graph.operators
        ]
        self._depth = self._steps = 0
        self._scopes: list[Mapping[str, int]] = [graph.plain.opsets]
        """Distinct opset imports; a function has its own."""
        self._scope = 0
        self._problem: Problem | None = None
        self._fatal: Problem | None = None
        self._negative_cases: set[int] = set()
        """Cases of which an output has a negative dimension, by onnx's arithmetic."""
        self._negative: dict[int, int] = {}
        """The node that first made a negative dimension, for each value that may have it."""
        self._nodes: Collection[int] | None = None

    def run(self, nodes: Collection[int] | None = None) -> Inference:
        """Walk through the graph, or some nodes of its main graph and the nodes inside them."""
        self._nodes = nodes
        self._walk(0)
        return self._result()

    def run_after(self, former: Inference, names: Sequence[str]) -> Inference:
        """Take over the types before an edit of some tensors, and walk where they change; without subgraphs."""
        graph, old, places = self._graph, former.graph, former.graph.names_by_subgraph[0]
        same = np.fromiter(map(places.get, graph.value_names, itertools.repeat(-1)), np.int32)
        number = np.asarray([self._table.add(kind.proto) for kind in former.table.known])
        # from the end: what has no value, is not read, is left out
        content = np.asarray([*map(self._value, former.contents), _LEFT_OUT, _NOT_READ, _NO_VALUE])
        is_new = (same < 0) | (graph.value_kind != old.value_kind[same])
        is_new |= number[old.declared.of_value[same]] != self._declared
        is_new[[value for name in names if (value := graph.names_by_subgraph[0].get(name, -1)) >= 0]] = True
        self._type_of = np.where(is_new, self._declared, number[former.of_value[same]]).tolist()
        self._value_of = np.where(is_new, self._value_of, content[former.content_of[same]]).tolist()
        values = np.flatnonzero(is_new)
        nodes = np.concatenate([graph.producer[values], *map(graph.consumers, values.tolist())])
        ranks = set(graph.rank[nodes[nodes >= 0]].tolist())
        waiting = sorted(ranks)
        while waiting:
            node = int(graph.order[heapq.heappop(waiting)])
            before = [(value, self._type_of[value], self._value_of[value]) for value in graph.results(node)]
            self._step(node)
            for value, kind, content_number in before:
                if (kind, content_number) != (self._type_of[value], self._value_of[value]):
                    for rank in {*graph.rank[graph.consumers(value)].tolist()} - ranks:
                        ranks.add(rank)
                        heapq.heappush(waiting, rank)
        return self._result()

    def _result(self) -> Inference:
        graph = self._graph
        dims = (dim for value in graph.inputs.tolist() for dim in self._types[self._declared[value]].shape or ())
        unbound = tuple(dict.fromkeys(dim for dim in dims if isinstance(dim, str)))
        problems = tuple(problem for problem in (self._problem, self._fatal) if problem is not None)
        known = np.asarray(self._type_of, np.int32), self._values, np.asarray(self._value_of, np.int32)
        nodes = self._cases, self._case_of, self._trips
        return Inference(graph, self._table, *known, *nodes, unbound, problems, self._fatal)

    def _bound(self, kind: ValueType, symbols: Mapping[str, int]) -> int:
        """Return the number of a type with sizes for its symbols."""
        if not kind.elem_type or kind.shape is None or not symbols:
            return self._table.add(kind.proto)
        shape = [_sum_of(dim, symbols) if isinstance(dim, str) else dim for dim in kind.shape]
        return self._table.tensor(kind.elem_type, shape)

    def _walk(self, subgraph: int) -> None:
        self._depth += 1
        if self._depth <= DEPTH:
            order = self._graph.order if subgraph == 0 else self._graph.subgraph_order(subgraph)
            for node in order.tolist():
                if self._nodes is None or subgraph or node in self._nodes:
                    self._steps += 1
                    self._step(node)
        else:
            message = f"types are not inferred in subgraphs that are nested more than {DEPTH} deep"
            self._problem = self._problem or Problem("inference", message, self._graph.subgraphs[subgraph].owner_node)
        self._depth -= 1

    def _step(self, node: int) -> None:
        graph = self._graph
        read = self._in[self._in_ptr[node] : self._in_ptr[node + 1]]
        outputs = self._out[self._out_ptr[node] : self._out_ptr[node + 1]]
        operator = self._op[node]
        kinds = tuple([self._type_of[value] if value >= 0 else _LEFT_OUT for value in read])
        values = self._known(read, kinds, operator)
        attributes = graph.attribute_bytes(node)
        declarations = tuple([self._declared[value] if value >= 0 else _LEFT_OUT for value in outputs])
        key: tuple[Any, ...] = (operator, self._scope, attributes, kinds, values, declarations)
        has_subgraphs = False
        if self._special[operator]:
            has_subgraphs = bool(graph.bodies(node))
            op, domain = graph.operators[operator]
            # the bytes of large attributes are not in the columns
            if has_subgraphs or domain == "ai.onnx.ml" or (op == "Constant" and not attributes):
                key = (*key, node)
            elif graph.functions:
                key = (*key, graph.node(node).overload)
        number = self._index.get(key)
        # the body of a loop may be walked again with other types of its outer-scope values
        if number is None or has_subgraphs:
            number = self._index[key] = self._add(node, kinds, values, declarations)
        self._case_of[node] = number
        if self._negative or self._negative_cases:
            self._pass_negative(node, number, read, outputs)
        for value, kind, value_number in zip(outputs, *self._made[number], strict=True):
            if value >= 0:
                self._type_of[value], self._value_of[value] = kind, value_number

    def _pass_negative(self, node: int, number: int, read: Sequence[int], products: Sequence[int]) -> None:
        """Note that outputs have negative dimensions, or may have those of an input."""
        graph, by = self._graph, self._negative
        bodies = [graph.subgraphs[body].outputs.tolist() for body in graph.bodies(node)]
        if graph.operators[self._op[node]] == ("If", ""):  # onnx frees a dimension in which its branches differ
            for value, *ends in zip(products, *bodies, strict=False):
                if value >= 0 and all(end in by for end in ends):
                    by[value] = by[ends[0]]
            return
        inner = [value for outputs in bodies for value in outputs]
        maker = next((by[value] for value in (*read, *inner) if value in by), -1)
        if maker >= 0 and graph.operators[self._op[node]] == ("Slice", "") and self._fatal is None and read[0] in by:
            label, source = graph.node_label(node), graph.node_label(by[read[0]])
            message = f"onnx and onnxruntime end the process on {label}: {source} makes a negative dimension"
            self._fatal = Problem("inference", message, node)
        if number in self._negative_cases:
            maker = node
        if maker >= 0:
            by.update(dict.fromkeys([value for value in products if value >= 0], maker))

    def _known(self, read: Sequence[int], kinds: Sequence[int], operator: int) -> tuple[int, ...]:
        """Return the known values among inputs; floats only where they matter, since each factor is a new case."""
        numbers = [self._value_of[value] if value >= 0 else _LEFT_OUT for value in read]
        is_float_read = self._graph.operators[operator][0] in FLOATS_WANTED
        unknown = _NO_VALUE in numbers
        for slot, number in enumerate(numbers):
            if number == _NOT_READ:
                if unknown and not is_float_read and not is_integer(self._types[kinds[slot]]):
                    numbers[slot] = _NO_VALUE
                else:
                    numbers[slot] = self._value_of[read[slot]] = self._read(read[slot], kinds[slot])
        if is_float_read or _NO_VALUE not in numbers:
            return tuple(numbers)
        return tuple([v if v < 0 or self._values[v].dtype.kind in "iub" else _NO_VALUE for v in numbers])

    def _read(self, value: int, kind: int) -> int:
        tensor = self._graph.weight(value)
        if not isinstance(tensor, TensorProto) or not is_small(self._types[kind]):
            return _NO_VALUE
        try:
            return self._value(read_tensor(self._graph.model, tensor, self._graph.value_names[value]))
        except OnnxNbError:
            # damaged, or its file is missing: the shapes that depend on it stay unknown, and are reported so
            return _NO_VALUE

    def _value(self, array: Value) -> int:
        key = (array.dtype.str, array.shape, array.tobytes())
        number = self._value_index.setdefault(key, len(self._values))
        if number == len(self._values):
            self._values.append(array)
        return number

    def _merged(self, inference: int, declaration: int) -> int:
        """Merge the inferred and the declared type of one value; the inferred one takes precedence."""
        one, other = self._types[inference], self._types[declaration]
        if inference == _NOTHING or (one.dtype == other.dtype and one.shape is None):
            return declaration
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape) or is_static(one.shape):
            return inference
        # a number before a symbol before nothing
        pairs = zip(one.shape, other.shape, strict=True)
        shape = [a if isinstance(a, int) or (a is not None and not isinstance(b, int)) else b for a, b in pairs]
        return self._table.tensor(one.elem_type, shape)

    def _either(self, first: int, second: int) -> int:
        """Return the type of a value that has one type or another."""
        if first == second:
            return first
        one, other = self._types[first], self._types[second]
        if one.dtype == other.dtype and one.proto.HasField("sequence_type"):
            return self._table.add(self._without_inner_shape(one.proto))
        if not one.elem_type or one.elem_type != other.elem_type:
            return _NOTHING
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return self._table.tensor(one.elem_type, None)
        shape = tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))
        return self._table.tensor(one.elem_type, shape)

    @staticmethod
    def _without_inner_shape(proto: TypeProto) -> TypeProto:
        """Return the type of a sequence of tensors that have one element type, but not one shape."""
        plain = copy.deepcopy(proto)
        plain.sequence_type.elem_type.tensor_type.ClearField("shape")
        return plain

    def _add(self, node: int, kinds: Sequence[int], values: tuple[int, ...], declarations: tuple[int, ...]) -> int:
        """Add the case of a node that is the first of its kind, with some declared types of outputs."""
        proto = self._graph.node(node)
        op, domain = self._graph.operators[self._op[node]]
        version = self._scopes[self._scope].get(domain, 0)
        inputs = tuple(self._types[kind] if kind >= 0 else None for kind in kinds)
        contents = tuple(self._values[value] if value >= 0 else None for value in values)
        exists = operators.schema(op, domain, version) is not None
        case = Case(proto, domain, version, inputs, contents, (), exists)
        # attributes that refer to those of the function are known only in a call
        open_attributes = any(attribute.ref_attr_name for attribute in proto.attribute)
        try:
            results = self._outputs(node, case) if not open_attributes else []
        except BROKEN:
            results = []
        pairs = list(zip([*results, *[_NOTHING] * len(declarations)], declarations, strict=False))
        is_settled = all(self._types[kind].size is not None for kind, other in pairs if other >= 0)
        for name, (kind, other) in zip(map(plain_text, proto.output), pairs, strict=True):
            one, two = self._types[kind], self._types[max(other, _NOTHING)]
            if one.elem_type and two.elem_type and one.elem_type != two.elem_type:
                label = self._graph.node_label(node)
                message = f"{label} makes {quoted(name)} as {one.dtype}, and the model declares it as "
                message += f"{two.dtype}, which onnxruntime refuses: drop it from graph.value_info or correct it"
                self._problem = self._problem or Problem("inference", message, node)
        outputs = tuple(self._merged(kind, other) if other >= 0 else _LEFT_OUT for kind, other in pairs)
        case = replace(case, outputs=tuple(self._types[kind] if kind >= 0 else None for kind in outputs))
        nothing = (_NO_VALUE,) * len(declarations)
        subgraphs = self._graph.bodies(node)
        if subgraphs and self._graph.subgraphs[subgraphs[0]].function is not None:
            inner = self._graph.subgraphs[subgraphs[0]].outputs.tolist()
            numbers = [max(self._value_of[value], _NO_VALUE) if value >= 0 else _NO_VALUE for value in inner]
            value_numbers = (*numbers, *nothing)[: len(nothing)]
        else:
            # a size that is only declared may not be that of the array
            is_known = _NO_VALUE not in values or "of_shape" in operators.facts(op).traits
            try:
                arrays = computed(case) if is_settled and not open_attributes and is_known else None
            except BROKEN:
                arrays = None
            value_numbers = nothing if arrays is None else tuple(map(self._value, arrays))
        self._made.append((outputs, value_numbers))
        self._cases.append(case)
        return len(self._cases) - 1

    def _outputs(self, node: int, case: Case) -> list[int]:
        subgraphs = self._graph.bodies(node)
        if subgraphs and self._graph.subgraphs[subgraphs[0]].function is not None:
            return self._call(node, subgraphs[0])
        if subgraphs:
            return self._control(node, case, subgraphs)
        if not case.known_operator:
            if operators.is_contributed(plain_text(case.node.op_type), case.domain):
                return self._contributed(case)
            first = case.inputs[0] if case.inputs and (case.domain, case.node.op_type) == operators.MARK else None
            return [] if first is None else [self._table.add(first.proto)]  # a mark returns its input
        # onnx's inference may crash the process on nodes without an input
        reason = "it lacks an input that its operator needs" if _lacks_input(case) else fatal(case.node)
        if reason:
            self._refused(node, reason)
        return [] if reason else self._infer(node, case)

    def _infer(self, node: int, case: Case, like: onnx.NodeProto | None = None, version: int = 0) -> list[int]:
        """Ask onnx for the types of the outputs of a node, or of a standard operator in its place."""
        proto, version = like or case.node, version or case.version
        op = plain_text(proto.op_type)
        # a Constant is declared as a float before opset 9, where onnxruntime takes each type
        schema = operators.schema(op, plain_text(proto.domain), max(version, 9) if op == "Constant" else version)
        if schema is None:
            return []
        if not schema.has_type_and_shape_inference_function:
            return self._contributed(case)
        read = list(zip(map(plain_text, proto.input), case.inputs, case.values, strict=True))
        complete = all(kind.dtype for _, kind, _ in read if kind is not None)
        data = {name: onnx.numpy_helper.from_array(value, name) for name, _, value in read if value is not None}
        proto = _with_plain_names(proto, case.inputs)
        imports = [onnx.helper.make_opsetid(*entry) for entry in self._scopes[self._scope].items()]
        options: Any = {"opset_imports": imports, "ir_version": onnx.IR_VERSION}
        results = []
        try:
            # on inputs without a type onnx's inference may crash the process, on tensors of no element type it raises
            for unknown in _UNKNOWN_KINDS[: 1 if complete else 2]:
                kinds = {name: kind.proto if kind.dtype else unknown for name, kind, _ in read if kind is not None}
                results.append(onnx.shape_inference.infer_node_outputs(schema, proto, kinds, data, **options))
        except Exception as error:  # noqa: BLE001 (the C++ side raises any kind; unknown types are reported)
            if complete:
                self._refused(node, " ".join(str(error).split()) or type(error).__name__)
            return []
        agreements = {name: kind for name, kind in results[0].items() if results[-1].get(name) == kind}
        if any(dim.dim_value < 0 for kind in agreements.values() for dim in unwrapped(kind).tensor_type.shape.dim):
            self._negative_cases.add(len(self._cases))
        numbers = [self._table.add(agreements[name]) if name in agreements else _NOTHING for name in proto.output]
        # onnx infers no shape for the mask of a Dropout, which was a float in these versions
        return numbers[:1] * len(numbers) if op == "Dropout" and version < 10 else numbers

    def _refused(self, node: int, reason: str) -> None:
        if node >= 0:
            message = f"onnx cannot infer the types of {self._graph.node_label(node)}: {shortened(reason, 200)}"
            self._problem = self._problem or Problem("inference", message, node)

    def _call(self, node: int, subgraph: int) -> list[int]:
        """Walk through a call of a local function, whose nodes read the caller's values."""
        function = self._graph.subgraphs[subgraph].function
        imports = opsets_of(function) if function else {}
        if imports not in self._scopes:
            self._scopes.append(imports)
        before, self._scope = self._scope, self._scopes.index(imports)
        self._walk(subgraph)
        self._scope = before
        self._trips[node] = 1
        return self._types_of(self._graph.subgraphs[subgraph].outputs)

    def _control(self, node: int, case: Case, subgraphs: Sequence[int]) -> list[int]:
        op = plain_text(case.node.op_type)
        if op == "Loop" and len(subgraphs) == 1:
            return self._loop(node, case, subgraphs[0])
        if op == "Scan" and len(subgraphs) == 1 and case.version >= 9:
            return self._scan(node, case, subgraphs[0])
        for subgraph in subgraphs:
            self._walk(subgraph)
        ends = [self._types_of(self._graph.subgraphs[body].outputs) for body in subgraphs]
        if op == "If":
            return [functools.reduce(self._either, kinds) for kinds in zip(*ends, strict=False)]
        self._trips[node] = None
        if op == "SequenceMap":
            sequences = (onnx.helper.make_sequence_type_proto(self._types[kind].proto) for kind in ends[0])
            return [self._table.add(self._without_inner_shape(part)) for part in sequences]
        bare = onnx.NodeProto.FromString(case.node.SerializeToString())
        del bare.attribute[:]
        bare.attribute.extend(part for part in case.node.attribute if not part.HasField("g") and not part.graphs)
        return self._infer(-1, case, bare)

    def _types_of(self, values: Ints) -> list[int]:
        return [self._type_of[value] if value >= 0 else _NOTHING for value in values.tolist()]

    def _loop(self, node: int, case: Case, subgraph: int) -> list[int]:
        body, tensor = self._graph.subgraphs[subgraph], self._table.tensor
        limit, start = [*case.values, None, None][:2]
        # whether the condition stays true after an iteration that began with it true
        before = [tensor(TensorProto.INT64, ()), tensor(TensorProto.BOOL, ())]
        stays = self._iterate(subgraph, before, self._types_of(self._graph.node_inputs(node)[2:]))
        first = True if not [*case.node.input, "", ""][1] else None if start is None else bool(start.all())
        trips = max(int(limit.reshape(-1)[0]), 0) if limit is not None and limit.size == 1 else None
        if first is False:
            trips = 0
        elif first and stays is False:
            trips = 1 if trips is None else min(1, trips)
        elif not first or not stays:
            trips = None
        self._trips[node] = trips
        kinds = self._types_of(body.outputs[1:])
        state_count = max(len(case.inputs) - 2, 0)
        return [*kinds[:state_count], *(self._stacked(kind, trips, 0) for kind in kinds[state_count:])]

    def _scan(self, node: int, case: Case, subgraph: int) -> list[int]:
        row_count = min(max(attribute(case.node, "num_scan_inputs", 0), 0), len(case.inputs))
        states = len(case.inputs) - row_count
        axes = [*attribute(case.node, "scan_input_axes", ()), *[0] * row_count]
        rows, sizes = [], []
        for kind, axis in zip(case.inputs[states:], axes, strict=False):
            shape = None if kind is None else kind.shape
            rest: Dims | None = None
            if shape is not None and -len(shape) <= axis < len(shape):
                at = axis % len(shape)
                rest = shape[:at] + shape[at + 1 :]
                sizes.append(shape[at])
            rows.append(_NOTHING if kind is None else self._table.tensor(kind.elem_type, rest))
        self._iterate(subgraph, [], self._types_of(self._graph.node_inputs(node)[:states]), rows)
        trips = self._trips[node] = next((size for size in sizes if isinstance(size, int)), None)
        kinds = self._types_of(self._graph.subgraphs[subgraph].outputs)
        out_axes = [*attribute(case.node, "scan_output_axes", ()), *[0] * len(kinds)]
        row_kinds = zip(kinds[states:], out_axes, strict=False)
        return [*kinds[:states], *(self._stacked(kind, trips, axis) for kind, axis in row_kinds)]

    def _iterate(self, subgraph: int, before: list[int], states: list[int], after: Sequence[int] = ()) -> bool | None:
        """Walk through a body until the types that it carries from one iteration to the next are stable."""
        body = self._graph.subgraphs[subgraph]
        # a condition precedes the outputs that a Loop carries
        offset = 1 if before else 0
        few = self._steps < STEPS + 4 * self._graph.node_count
        rounds = 4 if few and self._depth <= SETTLED_DEPTH else 1
        for left in range(rounds, 0, -1):
            if left == 1:
                states = [self._table.tensor(elem, None) if (elem := self._types[k].elem_type) else k for k in states]
            for value, kind in zip(body.inputs.tolist(), [*before, *states, *after], strict=False):
                self._type_of[value], self._value_of[value] = self._merged(kind, self._declared[value]), _NO_VALUE
            if before and len(body.inputs) > 1:
                self._value_of[int(body.inputs[1])] = self._value(np.asarray(True))  # noqa: FBT003
            self._walk(subgraph)
            wider = [self._either(*pair) for pair in zip(states, self._types_of(body.outputs[offset:]), strict=False)]
            if wider == states:
                break
            states = wider + states[len(wider) :]
        if not before or not len(body.outputs) or body.outputs[0] < 0:
            return None
        condition = self._value_of[int(body.outputs[0])]
        return bool(self._values[condition].all()) if condition >= 0 else None

    def _stacked(self, kind: int, trips: int | None, axis: int) -> int:
        """Return the type of an output that gathers one value an iteration."""
        one = self._types[kind]
        if not one.elem_type or one.shape is None:
            return kind
        axis = axis + len(one.shape) + 1 if axis < 0 else axis
        return self._table.tensor(one.elem_type, (*one.shape[:axis], trips, *one.shape[axis:]))

    def _contributed(self, case: Case) -> list[int]:
        """Return the types of the outputs of operators that onnx infers nothing of."""
        facts = operators.facts(plain_text(case.node.op_type), case.domain)
        is_alike = not facts.traits.isdisjoint(("pointwise", "shaped")) and facts.category != "cast"  # of another type
        if facts.infer or is_alike:
            op, _, places = facts.infer.partition(":")
            return self._like(case, op or "Identity", tuple(map(int, (places or "0").split(","))))
        shape = contrib_shape(case)
        first = case.inputs[0] if case.inputs else None
        if shape is None or first is None:
            return []
        # integers with a scale are dequantized, unless the output has one
        scale = facts.scales[0][0] if 0 in facts.scales and facts.out[0] < 0 else 0
        source = case.inputs[scale] if scale < len(case.inputs) else None
        kinds = [self._table.tensor((source or first).elem_type, shape)]
        # a window has as many slots after the step as before it
        pasts = facts.past if attribute(case.node, "sliding_window_cache", 0) else ()
        states = [case.inputs[place] for place in pasts if place < len(case.inputs)]
        return kinds + [self._table.tensor(state.elem_type, state.shape) if state else _NOTHING for state in states]

    def _like(self, case: Case, op: str, places: tuple[int, ...]) -> list[int]:
        """Infer a standard operator on some of the inputs of a node."""
        if len(case.inputs) <= max(places):
            return []
        version = onnx.defs.onnx_opset_version()
        schema_ = operators.schema(op, "", version)
        node = onnx.helper.make_node(op, [case.node.input[place] for place in places], case.node.output[:1])
        node.attribute.extend(a for a in case.node.attribute if schema_ is not None and a.name in schema_.attributes)
        inputs, values = tuple(case.inputs[at] for at in places), tuple(case.values[at] for at in places)
        kinds = self._infer(-1, replace(case, inputs=inputs, values=values), node, version)
        # the fourth output of SkipLayerNormalization is the sum that it normalizes
        return [*kinds, _NOTHING, _NOTHING, *kinds] if op == "Identity" else kinds


def _sum_of(dim: str, symbols: Mapping[str, int]) -> int | str:
    """Return the size of a symbol or of a sum, such as "past + 1"; the text of others."""
    terms = [int(term) if term.isdecimal() else symbols.get(term) for term in dim.split(" + ")]
    return dim if any(term is None for term in terms) else sum(term or 0 for term in terms)


def _lacks_input(case: Case) -> bool:
    """Return whether a node of an operator that onnx defines is without an input that the operator needs."""
    schema = operators.schema(plain_text(case.node.op_type), case.domain, case.version)
    ports = () if schema is None else schema.inputs
    needs = [port.option == onnx.defs.OpSchema.FormalParameterOption.Single for port in ports]
    return any(need and kind is None for need, kind in itertools.zip_longest(needs, case.inputs))


def _with_plain_names(node: onnx.NodeProto, kinds: Sequence[Any]) -> onnx.NodeProto:
    """Return a node that onnx's inference accepts: it rejects bytes, and omitted outputs before others.

    An input of a function that its caller omits has a name and no kind, and is omitted here.
    """
    inputs = ["" if kind is None else plain_text(name) for name, kind in zip(node.input, kinds, strict=True)]
    if "" not in node.output and inputs == [*node.input] and all(isinstance(n, str) for n in (*node.output, node.name)):
        return node
    outputs = [plain_text(name) or f" {slot}" for slot, name in enumerate(node.output)]
    plain = onnx.helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
    plain.attribute.extend(node.attribute)
    return plain


def infer(graph: Graph, shapes: Mapping[str, int | Sequence[int]] | None = None) -> Inference:
    """Infer the types of all values of a graph for given input shapes, by default the declared ones."""
    whole = graph.opened(graph.model)
    inference = TypeWalk(whole, whole.declared, bound(whole, shapes)).run() if shapes else whole.inference
    values, nodes = inference.of_value[: graph.value_count], inference.case_of[: graph.node_count]
    return replace(inference, graph=graph, of_value=values, case_of=nodes)


def infer_values(graph: Graph, values: Collection[int]) -> Inference:
    """Infer the types of some values of the main graph, from the nearest values with declared types."""
    graph = graph.opened(graph.model)
    if graph.former or not vars(graph).keys().isdisjoint(("inference", "update")):
        return graph.update
    flow, types = Flow.of(graph.plain), graph.declared
    # small integers may determine shapes, so their producers are walked even if their types are declared
    is_complete = [kind.is_complete and not is_integer(kind) for kind in types.table.known]
    complete = set(np.flatnonzero(np.asarray(is_complete)[types.of_value]).tolist())
    nodes = flow.ancestors([value for value in values if value not in complete], complete)
    return TypeWalk(graph, types).run(nodes)


def bound(graph: Graph, shapes: Mapping[str, Any], *, partial: bool = False) -> Sizes:
    """Return the sizes of symbols and shapes of inputs that ``shapes=`` asks for; if ``partial``, None changes none."""
    kinds = input_types(graph.model)
    names = [graph.value_names[value] for value in graph.inputs.tolist()]
    shapes_ = {name: dimensions(unwrapped(kinds[name])) for name in names}
    symbols = dict.fromkeys(dim for shape in shapes_.values() for dim in shape or () if isinstance(dim, str))
    sizes_: dict[str, dict[int, str]] = {}
    input_shapes: dict[str, tuple[Any, ...]] = {}
    for key, size in shapes.items():
        number = isinstance(size, int | np.integer)
        sizes = tuple(size) if isinstance(size, Iterable) else (size,)
        new = [one for one in sizes if not partial or one is not None]
        if size is None or any(not isinstance(one, int | np.integer) or not 0 <= one < 1 << 63 for one in new):
            raise FeedError(f"shapes[{key!r}] is {size!r:.80}, and sizes are whole numbers from 0.")
        dims: Dims | None = (key,)
        if not number or key not in symbols:
            if key not in shapes_:
                names_ = shapes_ | symbols
                message = f"{label_of(graph.model)} has neither an input nor a dimension {quoted(key)}."
                raise FeedError(message, advice=f"It has {listed(closest(key, names_) or names_) or 'none'}.")
            dims = shapes_[key]
            if number or (dims is not None and not fits(dims, sizes)):
                message = f"shapes[{key!r}] is {size!r:.80}, and the input takes {dimensions_text(dims or ())}."
                raise FeedError(message, advice="Give a size for each of its axes.")
            input_shapes[key] = sizes
        for dim, one in zip(dims or (), sizes, strict=False):
            if isinstance(dim, str) and one is not None:
                sizes_.setdefault(dim, {}).setdefault(int(one), key)
    for dim, keys in sizes_.items():
        if len(keys) > 1 and dim in keys.values():
            message = f"dimension {quoted(dim)} is given sizes {' and '.join(map(str, keys))}."
            raise FeedError(message, advice="Give shapes that agree.")
    # inputs may differ where a file calls their axes by one name
    return {dim: next(iter(keys)) for dim, keys in sizes_.items() if len(keys) == 1}, input_shapes
