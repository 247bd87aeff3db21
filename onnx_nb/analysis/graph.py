"""Who makes and who reads each tensor, as columns: producers, consumers, bodies, functions, order, types, faults.

Nodes are serialised by protobuf and taken apart by `fields`: access through protobuf objects, one field after the
other, takes several times as long at 100,000 nodes. What is broken is described (`Graph.faults`) and drawn.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis import fields, operators, wire
from onnx_nb.analysis.errors import OnnxNbError, closest, cut, shown, text
from onnx_nb.analysis.fields import Longs, Spans
from onnx_nb.analysis.model import Model, ModelLike, load
from onnx_nb.analysis.tensors import dtype_name

NODE_OUTPUT, GRAPH_INPUT, INITIALIZER, DANGLING, BODY_INPUT = range(5)
"""What a value is, as in `Graph.value_kind`. DANGLING: somebody reads it, nobody makes it."""

INFERENCE_LIMIT = 20_000
"""Types of graphs with more nodes are not inferred, only declared ones are known: it would take seconds."""
FAULT_LIMIT = 100
"""At most so many faults of one kind are described."""
LARGE = 1 << 16
"""Of nodes with more bytes, as those with bodies or large constants, only small attributes are kept in columns."""

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Fault:
    """Something wrong in the graph; it is drawn all the same."""

    kind: str
    """duplicate_name, dangling_input, missing_output, cycle, unsorted, unknown_op, unknown_domain, empty_graph or
    inference."""
    message: str
    node: int = -1
    """The flat node it is about, or −1."""
    value: int = -1
    """The value it is about, or −1."""


@dataclass(frozen=True)
class ValueType:
    """The type of a value as far as it is known."""

    dtype: str = ""
    """As "float32", "seq(float32)"; empty if unknown."""
    shape: tuple[int | str | None, ...] | None = None
    """None if unknown; inside it None is a dimension of which nothing is known."""

    @property
    def shape_text(self) -> str:
        """The shape as "batch×3×224"; "scalar" for rank 0, empty if unknown."""
        if self.shape is None:
            return ""
        return "×".join("?" if dim is None else cut(str(dim), 24) for dim in self.shape[:16]) or "scalar"

    def __str__(self) -> str:
        return " ".join(part for part in (self.shape_text, self.dtype) if part)


@dataclass(frozen=True, eq=False)
class Frame:
    """The main graph, or the body of an If, Loop, Scan or another node with a graph as an attribute."""

    graph: onnx.GraphProto
    owner_node: int
    """The flat node whose body this is; −1 for the main graph."""
    attribute: str
    """Name of the attribute that holds the body, as "then_branch"."""
    parent: int
    """The frame of the owner; −1 for the main graph."""
    start: int
    stop: int
    """Its nodes are ``Graph.nodes[start:stop]``."""
    inputs: Ints
    """Values; for the main graph without inputs that have an initializer."""
    outputs: Ints
    """Values, in order; a body may name an outer value."""
    weights: Ints
    """Values of ``graph.initializer`` and ``graph.sparse_initializer``, in order."""


class Graph:
    """The structure of a model in columns; immutable, made once per `Model`.

    Examples
    --------
    >>> import onnx.parser
    >>> graph = Graph.of(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  z = Add(a, x) }'''))
    >>> graph.value_names, graph.producer.tolist()
    (['x', 'a', 'z'], [-1, 0, 1])
    >>> graph.consumers(graph.value("x")).tolist(), str(graph.type_of(graph.value("a")))
    ([0, 1], '2 float32')
    >>> graph
    Graph(2 nodes, 3 values)
    """

    model: Model
    main_count: int
    """Nodes of the main graph: ``nodes[i]`` is ``proto.graph.node[i]`` for every ``i`` below."""
    node_count: int
    operators: list[tuple[str, str]]
    """The distinct (op_type, domain)."""
    op_index: Ints
    """The operator of each flat node, an index into `operators`."""
    frames: tuple[Frame, ...]
    node_frame: Ints
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    """Local functions by (domain, name, overload)."""
    opsets: Mapping[str, int]
    value_count: int
    value_frame: Ints
    value_kind: NDArray[np.uint8]
    in_ptr: Ints
    in_value: Ints
    """Inputs of node ``i``: ``in_value[in_ptr[i]:in_ptr[i + 1]]``; −1 for an optional one left out."""
    out_ptr: Ints
    out_value: Ints
    producer: Ints
    """The node that makes a value, or −1."""
    consumer_ptr: Ints
    consumer_node: Ints
    """The nodes that name a value among their inputs, once each; see also `captured`."""
    inputs: Ints
    """Inputs of the main graph without those that have an initializer."""
    outputs: Ints
    overridable: Ints
    """Initializers that are graph inputs too, so that a caller may override them."""
    order: Ints
    """Main nodes in topological order, as close to file order as possible; nodes on cycles and behind them last."""
    rank: Ints
    """Position of a main node in `order`."""

    @classmethod
    def of(cls, model: ModelLike) -> Graph:
        """Give the graph of a model, made at the first call and kept with the model.

        Parameters
        ----------
        model
            Any `ModelLike`; it is not changed.
        """
        loaded = load(model)
        with loaded.lock:
            if cls not in loaded.memo:
                loaded.memo[cls] = cls(loaded)
            found: Graph = loaded.memo[cls]
        return found

    def __init__(self, model: Model) -> None:
        self.model = model
        proto = model.proto
        self.opsets = MappingProxyType({_domain(text(o.domain)): int(o.version) for o in proto.opset_import})
        self.functions = MappingProxyType(
            {(_domain(text(f.domain)), text(f.name), text(f.overload)): f for f in proto.functions}
        )
        main = _NodeTable(proto.graph.node)
        self.main_count = main.count
        owners = _owners(main, self.opsets)
        self._body_nodes, bodies = _bodies(proto.graph, owners, self.opsets)
        rest = _NodeTable(self._body_nodes)
        self.node_count = main.count + rest.count
        self._tables = (main, rest)
        self.operators = list(dict.fromkeys([*main.operators, *rest.operators]))
        number = {key: i for i, key in enumerate(self.operators)}
        merged = [_ints(map(number.__getitem__, table.operators))[table.op_index] for table in (main, rest)]
        self.op_index = np.concatenate(merged)
        self.in_ptr = _pointers(main.in_count, rest.in_count)
        self.out_ptr = _pointers(main.out_count, rest.out_count)

        names = _Names(main, rest, self.in_ptr, self.out_ptr)
        places = [_Body(proto.graph, -1, "", -1, 0, self.main_count), *bodies]
        for place in places:
            names.resolve(place)
        self._resolved = names
        self.value_count = len(names.kinds)
        self.value_kind = np.frombuffer(bytes(names.kinds), np.uint8)
        self.value_frame = np.repeat(np.arange(len(places), dtype=np.int32), np.diff(names.frame_ends, prepend=0))
        self.in_value, self.out_value = names.in_value, names.out_value
        self.frames = tuple(
            Frame(
                *place,
                inputs=_ints(names.inputs[f]),
                outputs=_ints(names.outputs[f]),
                weights=_ints(names.weights[f]),
            )
            for f, place in enumerate(places)
        )
        self.node_frame = np.repeat(
            np.arange(len(places), dtype=np.int32), [place.stop - place.start for place in places]
        )
        self.inputs, self.outputs = self.frames[0].inputs, self.frames[0].outputs
        self.overridable = _ints(names.overridable)
        self._connect()
        self.order = self.frame_order(0)
        self.rank = np.empty(self.main_count, np.int32)
        self.rank[self.order] = np.arange(self.main_count, dtype=np.int32)

    @functools.cached_property
    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes of the main graph in file order, then those of bodies, depth first."""
        return [*self.model.proto.graph.node, *self._body_nodes]

    @functools.cached_property
    def names(self) -> list[str]:
        """The name of each flat node; empty if it has none."""
        return self.name_spans.strings()

    @functools.cached_property
    def name_spans(self) -> Spans:
        """The name of each flat node, where it lies."""
        main, rest = (table.names for table in self._tables)
        return Spans.joined([main, rest]) if len(rest) else main

    @property
    def value_names(self) -> list[str]:
        """The name of each value."""
        return self._resolved.value_names

    @property
    def value_spans(self) -> Spans:
        """The name of each value, where it lies."""
        return self._resolved.value_spans

    def __repr__(self) -> str:
        nodes = f"{self.node_count} node{'' if self.node_count == 1 else 's'}"
        faults = f", {len(self._structural_faults)} faults" if self._structural_faults else ""
        return f"Graph({nodes}, {self.value_count} values{faults})"

    def value(self, name: str) -> int:
        """Give the index of a value of the main graph, or else of the first body that has the name.

        Raises
        ------
        OnnxNbError
            If there is none; the message names the closest ones.
        """
        for scope in self._resolved.scopes:
            found = scope.get(name, -1)
            if found >= 0:
                return found
        alike = ", ".join(map(shown, closest(name, self.value_names)))
        message = f"tensor {shown(name)} is not in the model."
        raise OnnxNbError(message, advice=f"Closest names: {alike}." if alike else "The model has no such tensors.")

    def node_inputs(self, node: int) -> Ints:
        """Give the values that a node names as inputs, −1 where an optional one is left out."""
        return self.in_value[self.in_ptr[node] : self.in_ptr[node + 1]]

    def node_outputs(self, node: int) -> Ints:
        """Give the values that a node makes, −1 where an optional one is left out."""
        return self.out_value[self.out_ptr[node] : self.out_ptr[node + 1]]

    def consumers(self, value: int) -> Ints:
        """Give the nodes that name a value among their inputs."""
        return self.consumer_node[self.consumer_ptr[value] : self.consumer_ptr[value + 1]]

    def captured(self, node: int) -> Ints:
        """Give the values of outer frames that the bodies of a node read, at any depth; empty without bodies."""
        return self._captured.get(node, _NOTHING)

    def called(self, node: int) -> onnx.FunctionProto | None:
        """Give the local function that a node calls."""
        if not self.functions:
            return None
        op, domain = self.operators[self.op_index[node]]
        return self.functions.get((_domain(domain), op, text(self.nodes[node].overload)))

    def bodies(self, node: int) -> tuple[int, ...]:
        """Give the frames that a node owns."""
        return self._bodies_of.get(node, ())

    def node_label(self, node: int) -> str:
        """Name a node for a message: "Conv '/stem/Conv'", or "Conv" if it has no name."""
        op, name = cut(self.operators[self.op_index[node]][0], 100) or "a node without op_type", self.names[node]
        return f"{op} {shown(name)}" if name else op

    def attribute_bytes(self, node: int) -> bytes:
        """Give a node's attributes as serialised in a NodeProto; equal bytes mean equal attributes.

        Bodies and large tensors may be left out: ask ``nodes[node]`` for them.
        """
        main, rest = self._tables
        return main.attributes(node) if node < self.main_count else rest.attributes(node - self.main_count)

    def with_attributes(self) -> Iterator[tuple[int, bytes]]:
        """Give each node that has attributes, and its `attribute_bytes`."""
        for base, table in zip((0, self.main_count), self._tables, strict=True):
            for row, serialised in table.rows_with_attributes():
                yield base + row, serialised

    def type_of(self, value: int) -> ValueType:
        """Give the type of a value: as declared, or else as inferred by onnx (up to `INFERENCE_LIMIT` nodes)."""
        return self._types.known[int(self._types.of_value[value])]

    def value_info(self, value: int) -> onnx.ValueInfoProto | None:
        """Give the declared or inferred type of a value as a ValueInfoProto of its own; None if nothing is known."""
        serialised = self._types.protos[int(self._types.of_value[value])]
        if serialised is None:
            return None
        info = onnx.ValueInfoProto(name=self.value_names[value])
        info.type.ParseFromString(serialised)
        return info

    @property
    def type_index(self) -> Ints:
        """The type of each value as an index into `known_types`."""
        return self._types.of_value

    @property
    def known_types(self) -> Sequence[ValueType]:
        """The distinct types; the first is "nothing known"."""
        return self._types.known

    @functools.cached_property
    def folded(self) -> NDArray[np.bool_]:
        """The nodes that only compute constants from constants: a drawing shows the result inside its readers.

        Never random or unknown operators, nodes with bodies, or the makers of an output; and if a model has no inputs,
        so that all of it is constant, only Constant nodes.
        """
        constant = self.value_kind == INITIALIZER
        value = np.repeat(np.arange(len(constant)), np.diff(self.consumer_ptr))
        waiting = np.bincount(self.consumer_node[~constant[value]], minlength=self.node_count)
        foldable = self._foldable()
        folded = np.zeros(self.node_count, bool)
        ready = np.flatnonzero(foldable & (waiting == 0)).tolist()
        while ready:
            node = ready.pop()
            folded[node] = True
            for made in self.node_outputs(node).tolist():
                for reader in self.consumers(made).tolist() if made >= 0 else ():
                    waiting[reader] -= 1
                    if not waiting[reader] and foldable[reader]:
                        ready.append(reader)
        return folded

    def _foldable(self) -> NDArray[np.bool_]:
        never = {operators.CATEGORIES.index(kind) for kind in ("random", "control")}
        good = [
            domain in operators.onnx_domains()
            and operators.category(op, domain) not in never
            and operators.schema(op, domain, self.opsets.get(domain, 0)) is not None
            and (op == "Constant" or len(self.inputs) > 0)
            for op, domain in self.operators
        ]
        constant = np.asarray([op == "Constant" for op, _ in self.operators], bool)
        kept = np.asarray(good, bool)[self.op_index] & ((np.diff(self.in_ptr) > 0) | constant[self.op_index])
        outputs = np.concatenate([frame.outputs for frame in self.frames])
        makers = self.producer[outputs[outputs >= 0]]
        kept[makers[makers >= 0]] = False
        kept[list(self._bodies_of)] = False
        return np.asarray(kept, bool)

    @functools.cached_property
    def lacking(self) -> frozenset[int]:
        """The nodes without an input that their operator needs: onnx's inference may crash the process on them."""
        required = np.zeros(len(self.operators), np.int64)
        single = onnx.defs.OpSchema.FormalParameterOption.Single
        for index, (op, domain) in enumerate(self.operators):
            found = operators.schema(op, domain, self.opsets.get(_domain(domain), 0))
            needed = [] if found is None else [at for at, port in enumerate(found.inputs) if port.option == single]
            required[index] = needed[-1] + 1 if needed else 0
        wanted = required[self.op_index]
        left_out = np.flatnonzero(self.in_value < 0)
        node = np.searchsorted(self.in_ptr, left_out, side="right") - 1
        omitted = node[left_out - self.in_ptr[node] < wanted[node]]
        short = np.flatnonzero(np.diff(self.in_ptr) < wanted)
        return frozenset([*short.tolist(), *omitted.tolist()])

    @property
    def constant_values(self) -> NDArray[np.bool_]:
        """The values that are weights or made by folded nodes."""
        made = self.producer >= 0
        constant = np.asarray(self.value_kind == INITIALIZER, bool)
        constant[made] = self.folded[self.producer[made]]
        return constant

    @functools.cached_property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong with the graph; at most `FAULT_LIMIT` of a kind."""
        return (*self._structural_faults, *self._types.faults)

    @property
    def faulty_nodes(self) -> Ints:
        """Every node that some fault is about, also those beyond the described ones."""
        return self._fault_finder.nodes

    @property
    def faulty_values(self) -> Ints:
        """Every value that some fault is about, also those beyond the described ones."""
        return self._fault_finder.values

    def frame_order(self, frame: int) -> Ints:
        """Give the nodes of a frame in topological order, as close to file order as possible; cycles last."""
        place = self.frames[frame]
        source, target = self.frame_edges(frame)
        if bool(np.all(source < target)):
            return np.arange(place.start, place.stop, dtype=np.int32)
        return _ints(topological(place.start, place.stop, zip(source.tolist(), target.tolist(), strict=True)))

    def frame_edges(self, frame: int) -> tuple[Ints, Ints]:
        """Give (producer, consumer) of every read inside a frame; what bodies capture counts as read by their owner."""
        place = self.frames[frame]
        begin, end = self.in_ptr[place.start], self.in_ptr[place.stop]
        counts = np.diff(self.in_ptr[place.start : place.stop + 1])
        target = np.repeat(np.arange(place.start, place.stop, dtype=np.int32), counts)
        value = self.in_value[begin:end]
        first, last = (bisect.bisect_left(self._capturing, node) for node in (place.start, place.stop))
        owners = self._capturing[first:last]
        if owners:
            read = [self._captured[node] for node in owners]
            target = np.concatenate([target, np.repeat(_ints(owners), [len(values) for values in read])])
            value = np.concatenate([value, *read])
        source = np.where(value >= 0, self.producer[value], -1) if len(self.producer) else np.full_like(value, -1)
        inside = (source >= place.start) & (source < place.stop)
        return source[inside].astype(np.int32), target[inside]

    def _connect(self) -> None:
        nodes, values = self.node_count, self.value_count
        self.producer = np.full(values, -1, np.int32)
        maker = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(self.out_ptr))
        made = self.out_value >= 0
        self.producer[self.out_value[made]] = maker[made]

        reader = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(self.in_ptr))
        read = self.in_value >= 0
        value, reader = self.in_value[read], reader[read]
        by_value = np.argsort(value, kind="stable")
        value, reader = value[by_value], reader[by_value]
        first = np.ones(len(value), bool)
        first[1:] = (value[1:] != value[:-1]) | (reader[1:] != reader[:-1])
        self.consumer_node = reader[first]
        self.consumer_ptr = _pointers(np.bincount(value[first], minlength=values))

        captured: dict[int, dict[int, None]] = {}
        if len(self.frames) > 1:
            outer = self.value_frame[value] != self.node_frame[reader]
            reads = [(int(v), int(self.node_frame[n])) for v, n in zip(value[outer], reader[outer], strict=True)]
            reads += [(int(v), f) for f, frame in enumerate(self.frames) for v in frame.outputs if f and v >= 0]
            for v, f in reads:
                while f != self.value_frame[v]:
                    owned = captured.setdefault(self.frames[f].owner_node, {})
                    if v in owned:
                        break
                    owned[v] = None
                    f = self.frames[f].parent  # noqa: PLW2901 (the walk up from the frame that reads)
        self._captured = {node: _ints(found) for node, found in captured.items()}
        self._capturing = sorted(captured)
        bodies: dict[int, list[int]] = {}
        for f, frame in enumerate(self.frames[1:], 1):
            bodies.setdefault(frame.owner_node, []).append(f)
        self._bodies_of = {node: tuple(found) for node, found in bodies.items()}

    @property
    def _structural_faults(self) -> tuple[Fault, ...]:
        return self._fault_finder.faults

    @functools.cached_property
    def _fault_finder(self) -> _FaultFinder:
        return _FaultFinder(self, self._resolved.duplicates)

    @functools.cached_property
    def _types(self) -> _Types:
        return _Types(self, self._resolved)


_NOTHING = np.empty(0, np.int32)
_NOTHING.setflags(write=False)


class _Body(NamedTuple):
    graph: onnx.GraphProto
    owner_node: int
    attribute: str
    parent: int
    start: int
    stop: int


class _NodeTable:
    """The fields of many NodeProtos as columns."""

    # Fields of NodeProto in onnx.proto; tags of length-delimited fields are field << 3 | 2.
    _INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = (field << 3 | 2 for field in (1, 2, 3, 4, 5, 7))

    def __init__(self, nodes: Sequence[onnx.NodeProto]) -> None:
        self.count = len(nodes)
        self._buffer, self._fields = _serialised(
            part if len(part := node.SerializeToString()) < LARGE else _without_large_attributes(node) for node in nodes
        )
        self.inputs, self.in_count = self._repeated(self._INPUT)
        self.outputs, self.out_count = self._repeated(self._OUTPUT)
        self.names = self._single(self._NAME)
        self.operators, self.op_index = self._operators()
        # Protobuf writes fields in order of their numbers, so a node's attributes are one span.
        row, tag, start, _, end = self._fields
        mine = np.flatnonzero(tag == self._ATTRIBUTE)
        self._attribute_start = np.zeros(self.count, np.int64)
        self._attribute_end = np.zeros(self.count, np.int64)
        self._attribute_end[row[mine]] = end[mine]
        self._attribute_start[row[mine[::-1]]] = start[mine[::-1]]
        del self._fields

    def attributes(self, row: int) -> bytes:
        return self._buffer[int(self._attribute_start[row]) : int(self._attribute_end[row])]

    def rows_with_attributes(self) -> Iterator[tuple[int, bytes]]:
        rows = np.flatnonzero(self._attribute_end)
        spans = Spans(self._buffer, self._attribute_start[rows], self._attribute_end[rows])
        return zip(rows.tolist(), spans.pieces(), strict=True)

    def _repeated(self, tag: int) -> tuple[Spans, Longs]:
        row, tags, _, begin, end = self._fields
        mine = np.flatnonzero(tags == tag)
        mine = mine[np.argsort(row[mine], kind="stable")]
        return Spans(self._buffer, begin[mine], end[mine]), np.bincount(row[mine], minlength=self.count)

    def _single(self, tag: int) -> Spans:
        row, tags, _, begin, end = self._fields
        mine = np.flatnonzero(tags == tag)
        begins, ends = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        begins[row[mine]], ends[row[mine]] = begin[mine], end[mine]
        return Spans(self._buffer, begins, ends)

    def _operators(self) -> tuple[list[tuple[str, str]], Ints]:
        """Give the distinct (op_type, domain) and which of them each node has."""
        coded, texts = [], []
        for spans in (self._single(self._OP_TYPE), self._single(self._DOMAIN)):
            number, first = spans.numbered()
            coded.append(number + 1)
            texts.append(["", *spans[first].strings()])
        pair, index = np.unique(coded[0] * len(texts[1]) + coded[1], return_inverse=True)
        keys = [divmod(code, len(texts[1])) for code in pair.tolist()]
        return [(texts[0][op], texts[1][domain]) for op, domain in keys], index.astype(np.int32)


class _WeightTable:
    """The names and types of the weights of a graph."""

    # Fields of TensorProto in onnx.proto: dims 1 and data_type 2 are varints, dims perhaps packed; name 8.
    _DIMS, _PACKED_DIMS, _DATA_TYPE, _NAME = 1 << 3, 1 << 3 | 2, 2 << 3, 8 << 3 | 2

    def __init__(self, graph: onnx.GraphProto) -> None:
        weights, self._sparse = graph.initializer, graph.sparse_initializer
        buffer, (row, tag, start, begin, end) = _serialised(
            part if len(part := tensor.SerializeToString()) < LARGE else _without_values(tensor) for tensor in weights
        )
        begins, ends, head_starts, head_ends = np.zeros((4, len(weights)), np.int64)
        mine = np.flatnonzero(tag == self._NAME)
        begins[row[mine]], ends[row[mine]] = begin[mine], end[mine]
        self.names = Spans(buffer, begins, ends)
        if self._sparse:
            self.names = Spans.joined([self.names, Spans.of(each.values.name for each in self._sparse)])
        # Dims and type come first in a message, so equal spans mean equal types.
        mine = np.flatnonzero((tag == self._DIMS) | (tag == self._PACKED_DIMS) | (tag == self._DATA_TYPE))
        head_ends[row[mine]] = end[mine]
        head_starts[row[mine[::-1]]] = start[mine[::-1]]
        self._heads = Spans(buffer, head_starts, head_ends)

    def types(self) -> tuple[Longs, list[tuple[int, ...]]]:
        """Give the type of each weight as an index, and the types as (element type, dimensions…)."""
        number, first = self._heads.numbered()
        heads = map(onnx.TensorProto.FromString, self._heads[first].pieces())
        kinds = [(0,), *((head.data_type, *head.dims) for head in heads)]
        sparse = np.arange(len(kinds), len(kinds) + len(self._sparse))
        kinds += [(each.values.data_type, *each.dims) for each in self._sparse]
        return np.concatenate([number + 1, sparse]), kinds


def _serialised(messages: Iterable[bytes]) -> tuple[bytes, fields.Fields]:
    """Put messages into one buffer and find their fields."""
    parts = list(messages)
    ends = np.cumsum(np.fromiter(map(len, [b"", *parts]), np.int64, len(parts) + 1))
    buffer = b"".join(parts)
    return buffer, fields.find(buffer, ends[:-1], ends[1:])


def _without_values(tensor: onnx.TensorProto) -> bytes:
    small = onnx.TensorProto()
    wire.copy_fields(tensor, small, without=tuple(f.name for f in tensor.DESCRIPTOR.fields if f.name not in _HEAD))
    serialised: bytes = small.SerializeToString()
    return serialised


_HEAD = ("dims", "data_type", "name")


def _without_large_attributes(node: onnx.NodeProto) -> bytes:
    small = onnx.NodeProto()
    wire.copy_fields(node, small, without=("attribute", "doc_string", "metadata_props"))
    small.attribute.extend(attribute for attribute in node.attribute if attribute.ByteSize() < LARGE // 16)
    serialised: bytes = small.SerializeToString()
    return serialised


def _owners(main: _NodeTable, opsets: Mapping[str, int]) -> list[int]:
    """Give the rows whose operator can hold graphs."""
    able = np.asarray([_may_hold_graphs(*key, opsets) for key in main.operators], bool)
    return np.flatnonzero(able[main.op_index]).tolist() if len(able) else []


def _may_hold_graphs(op: str | bytes, domain: str | bytes, opsets: Mapping[str, int]) -> bool:
    domain = _domain(text(domain))
    return operators.may_hold_graphs(text(op), domain, opsets.get(domain, 0))


def _bodies(
    main: onnx.GraphProto, owners: Sequence[int], opsets: Mapping[str, int]
) -> tuple[list[onnx.NodeProto], list[_Body]]:
    """Give the nodes of all bodies, depth first, and the bodies; without recursion, so that any depth goes."""
    nodes: list[onnx.NodeProto] = []
    found: list[_Body] = []
    base = len(main.node)
    waiting = [(graph, owner, name, 0) for owner in owners for name, graph in _graphs(main.node[owner])][::-1]
    while waiting:
        graph, owner, attribute, parent = waiting.pop()
        start = base + len(nodes)
        nodes.extend(graph.node)
        found.append(_Body(graph, owner, attribute, parent, start, base + len(nodes)))
        inner = [
            (body, start + i, name, len(found))
            for i, node in enumerate(graph.node)
            if _may_hold_graphs(node.op_type, node.domain, opsets)
            for name, body in _graphs(node)
        ]
        waiting.extend(reversed(inner))
    return nodes, found


def _graphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield text(attribute.name), attribute.g
        for index, graph in enumerate(attribute.graphs):
            yield f"{text(attribute.name)}[{index}]", graph


class _Names:
    """Turns the names of tensors into values, frame after frame; outer frames first."""

    def __init__(self, main: _NodeTable, rest: _NodeTable, in_ptr: Ints, out_ptr: Ints) -> None:
        self.in_value = np.empty(in_ptr[-1], np.int32)
        self.out_value = np.empty(out_ptr[-1], np.int32)
        self.kinds = bytearray()
        self.frame_ends: list[int] = []
        self.given: list[list[int]] = []
        """The value of each graph input of each frame, those with an initializer included."""
        self.inputs: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.weights: list[list[int]] = []
        self.tables: list[_WeightTable] = []
        self.overridable: list[int] = []
        self.duplicates: list[tuple[int, int]] = []
        """(value that takes an existing name, node that makes it or −1)"""
        self._main, self._rest, self._in_ptr, self._out_ptr = main, rest, in_ptr, out_ptr
        self._parents: list[int] = []
        # The names of the first values may lie in a buffer, those of the others are listed.
        self._spans: Spans | None = None
        self._listed: list[str] = []
        self._scopes: list[dict[str, int]] = []

    def resolve(self, place: _Body) -> None:
        """Make the values of one frame."""
        table = _WeightTable(place.graph)
        self.tables.append(table)
        self._parents.append(place.parent)
        if place.parent >= 0 or not self._resolve_unique(place.graph, table.names):
            self._resolve_in_turn(place, table.names.strings())
        self.frame_ends.append(len(self.kinds))

    @property
    def value_spans(self) -> Spans:
        """The names of all values in a buffer."""
        return self._spans if self._spans is not None and not self._listed else Spans.of(self.value_names)

    @functools.cached_property
    def value_names(self) -> list[str]:
        """The names of all values."""
        return [*(self._spans.strings() if self._spans is not None else ()), *self._listed]

    @property
    def scopes(self) -> list[dict[str, int]]:
        """What the names mean in each frame."""
        if self._spans is not None and len(self._scopes) < len(self.frame_ends):
            names = self._spans.strings()
            self._scopes.insert(0, {"": -1} | dict(zip(names, range(len(names)), strict=True)))
        return self._scopes

    @functools.cached_property
    def _in_names(self) -> list[str]:
        return self._main.inputs.strings() + self._rest.inputs.strings()

    @functools.cached_property
    def _out_names(self) -> list[str]:
        return self._main.outputs.strings() + self._rest.outputs.strings()

    def _resolve_unique(self, graph: onnx.GraphProto, weights: Spans) -> bool:
        """Resolve the main graph if every name is made once: without a Python loop over its nodes."""
        inputs = Spans.of(info.name for info in graph.input)
        outputs = Spans.of(info.name for info in graph.output)
        parts = (inputs, weights, self._main.outputs, self._main.inputs, outputs)
        every = Spans.joined(parts)
        number, first = every.numbered()
        ends = np.cumsum([len(part) for part in parts])
        of_inputs, of_weights, of_made, of_read, of_outputs = np.split(number, ends[:-1])
        new = np.zeros(len(every), bool)
        new[first] = True
        # a weight may have the name of an input, but no two weights one name
        again = of_weights[~new[ends[0] : ends[1]]]
        shared = bool(np.all((again >= 0) & (again < len(inputs)))) and len(sorted_unique(again)) == len(again)
        if not (shared and np.all(new[: ends[0]]) and np.all(new[ends[1] : ends[2]] | (of_made < 0))):
            return False
        kinds = np.asarray([GRAPH_INPUT, INITIALIZER, NODE_OUTPUT, DANGLING, DANGLING], np.uint8)
        kind = kinds[np.searchsorted(ends, first, side="right")]
        kind[of_weights] = INITIALIZER
        self.kinds = bytearray(kind.tobytes())
        self.in_value[: len(of_read)], self.out_value[: len(of_made)] = of_read, of_made
        self._spans = every[first]
        given = of_inputs.tolist()
        self.given.append(given)
        self.weights.append(of_weights.tolist())
        self.inputs.append([value for value in given if kind[value] != INITIALIZER])
        self.overridable = [value for value in given if kind[value] == INITIALIZER]
        self.outputs.append(of_outputs.tolist())
        return True

    def _resolve_in_turn(self, place: _Body, weights: list[str]) -> None:
        """Resolve a frame node by node: a name means its latest definition before the node that reads it."""
        inputs = [text(info.name) for info in place.graph.input]
        outputs = [text(info.name) for info in place.graph.output]
        now: dict[str, int] = {}
        main = place.parent < 0
        for name in inputs:
            if name in now:
                self.duplicates.append((now[name], -1))
            now[name] = self._new(name, GRAPH_INPUT if main else BODY_INPUT)
        self.given.append([now[name] for name in inputs])
        given = list(dict.fromkeys(self.given[-1]))
        seen: set[str] = set()
        for name in weights:
            if name in seen:
                self.duplicates.append((now[name], -1))
            elif name in now:
                self.kinds[now[name]] = INITIALIZER
                if main:
                    self.overridable.append(now[name])
            else:
                now[name] = self._new(name, INITIALIZER)
            seen.add(name)
        self.weights.append([now[name] for name in weights])

        out_ptr, in_ptr = self._out_ptr, self._in_ptr
        first: dict[str, int] = {}
        for node in range(place.start, place.stop):
            for slot in range(out_ptr[node], out_ptr[node + 1]):
                name = self._out_names[slot]
                if not name:
                    self.out_value[slot] = -1
                    continue
                value = self._new(name, NODE_OUTPUT)
                self.out_value[slot] = value
                if name in first or name in now:
                    self.duplicates.append((value, node))
                first.setdefault(name, value)
        for node in range(place.start, place.stop):
            for slot in range(in_ptr[node], in_ptr[node + 1]):
                self.in_value[slot] = self._meaning(self._in_names[slot], now, first, place.parent)
            for slot in range(out_ptr[node], out_ptr[node + 1]):
                if self.out_value[slot] >= 0:
                    now[self._out_names[slot]] = int(self.out_value[slot])
        self.inputs.append([value for value in given if self.kinds[value] != INITIALIZER])
        self.outputs.append([self._meaning(name, now, first, place.parent) for name in outputs])
        self._scopes.append(now)

    def _meaning(self, name: str, now: dict[str, int], first: dict[str, int], parent: int) -> int:
        if not name:
            return -1
        found, scopes = now.get(name), self.scopes if parent >= 0 else []
        while found is None and parent >= 0:
            found = scopes[parent].get(name)
            parent = self._parents[parent]
        if found is None:
            found = first.get(name)  # made further down the file: the graph is unsorted
        if found is None:
            found = now[name] = self._new(name, DANGLING)
        return found

    def _new(self, name: str, kind: int) -> int:
        self._listed.append(name)
        self.kinds.append(kind)
        return len(self.kinds) - 1


class _FaultFinder:
    """Looks for everything that is wrong with the structure of a graph."""

    def __init__(self, graph: Graph, duplicates: Sequence[tuple[int, int]]) -> None:
        self._graph = graph
        self._found: dict[str, list[Fault]] = {}
        self._nodes: set[int] = set()
        self._values: set[int] = set()
        if not graph.node_count:
            self._add("empty_graph", "the graph has no nodes.")
        self._names(duplicates)
        self._loose_ends()
        self._order()
        self._operators()
        self.faults = tuple(fault for found in self._found.values() for fault in found)
        self.nodes, self.values = _ints(sorted(self._nodes)), _ints(sorted(self._values))

    def _add(self, kind: str, message: str, node: int = -1, value: int = -1) -> None:
        found = self._found.setdefault(kind, [])
        if len(found) < FAULT_LIMIT:
            found.append(Fault(kind, message, node, value))
        if node >= 0:
            self._nodes.add(node)
        if value >= 0:
            self._values.add(value)

    def _names(self, duplicates: Sequence[tuple[int, int]]) -> None:
        graph = self._graph
        for value, node in duplicates:
            by = f" by {graph.node_label(node)}" if node >= 0 else ""
            name = shown(graph.value_names[value])
            self._add("duplicate_name", f"tensor {name} is made again{by}; names must be unique.", node, value)
        for frame in graph.frames:
            names = graph.names[frame.start : frame.stop]
            if len(set(names)) + names.count("") - ("" in names) == len(names):
                continue
            first: dict[str, int] = {}
            for node, name in enumerate(names, frame.start):
                if name and first.setdefault(name, node) != node:
                    message = f"{graph.node_label(node)} has the name of another node; onnxruntime refuses that."
                    self._add("duplicate_name", message, node)

    def _loose_ends(self) -> None:
        graph = self._graph
        outputs = {int(value) for frame in graph.frames for value in frame.outputs}
        for value in np.flatnonzero(graph.value_kind == DANGLING).tolist():
            name = shown(graph.value_names[value])
            readers = graph.consumers(value)
            if len(readers):
                label = graph.node_label(int(readers[0]))
                message = f"{label} reads tensor {name}, which no node makes and which is neither input nor weight."
                self._add("dangling_input", message, int(readers[0]), value)
                self._nodes.update(readers.tolist())
            if value in outputs:
                self._add("missing_output", f"graph output {name} is made by no node.", -1, value)
        for frame in graph.frames:
            if np.any(frame.outputs < 0):
                self._add("missing_output", "a graph output has no name.", frame.owner_node)

    def _order(self) -> None:
        graph = self._graph
        for f, frame in enumerate(graph.frames):
            source, target = graph.frame_edges(f)
            late = np.flatnonzero(source >= target)
            if not len(late):
                continue
            cycles = _cycles(frame.start, frame.stop, source, target)
            for members in cycles:
                circle = " → ".join(graph.node_label(node) for node in members[:4])
                more = f" and {len(members) - 4} more" if len(members) > 4 else ""
                self._add("cycle", f"nodes depend on each other in a circle: {circle}{more}.", members[0])
                self._nodes.update(members)
            if not cycles:
                node, maker = int(target[late[0]]), int(source[late[0]])
                message = f"nodes are not in topological order: {graph.node_label(node)} comes before "
                self._add("unsorted", f"{message}{graph.node_label(maker)}, whose result it reads.", node)

    def _operators(self) -> None:
        graph = self._graph
        local = {(domain, name) for domain, name, _ in graph.functions}
        for index, (op, domain) in enumerate(graph.operators):
            kind, message = _unknown(op, domain, local, graph.opsets)
            if kind:
                nodes = np.flatnonzero(graph.op_index == index).tolist()
                times = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
                self._add(kind, message + times, nodes[0])
                self._nodes.update(nodes)


def _unknown(op: str, domain: str, local: set[tuple[str, str]], opsets: Mapping[str, int]) -> tuple[str, str]:
    """Say what is wrong with an operator: the kind of fault and a message; empty if somebody defines it."""
    domain = _domain(domain)
    if (domain, op) in local:
        return "", ""
    if (domain, op) == operators.MARK:
        return "", ""
    named, where, version = f"operator {shown(op)}", shown(domain or "ai.onnx"), opsets.get(domain)
    if domain and domain not in operators.known_domains():
        return "unknown_domain", f"{named} is of the unknown domain {where}: it needs a custom-op library"
    if version is None:
        return "unknown_domain", f"{named}: its domain {where} is not among the model's opset imports"
    if domain in operators.onnx_domains() and operators.schema(op, domain, version) is None:
        return "unknown_op", f"{named} does not exist in domain {where} at opset {version}"
    return "", ""


class _Types:
    """The type of each value: an index into the distinct types."""

    def __init__(self, graph: Graph, names: _Names) -> None:
        self.of_value = np.zeros(graph.value_count, np.int32)
        self.known: list[ValueType] = [ValueType()]
        self.protos: list[bytes | None] = [None]
        self.faults: tuple[Fault, ...] = ()
        self._index: dict[bytes, int] = {}
        inferred: list[onnx.GraphProto] = []
        if 0 < graph.node_count <= INFERENCE_LIMIT:
            inferred = self._infer(graph)
        for f, frame in enumerate(graph.frames):
            for proto in [*inferred[f : f + 1], frame.graph]:
                # the main graph's dictionary of names is made only if it is needed
                scope = names.scopes[f] if proto.value_info else {}
                known = ((scope.get(text(info.name), -1), info) for info in proto.value_info)
                given = zip(names.given[f], proto.input, strict=True)
                made = zip(names.outputs[f], proto.output, strict=True)
                self._read(itertools.chain(known, given, made), inferred=proto is not frame.graph)
            index, kinds = names.tables[f].types()
            self.of_value[frame.weights] = np.asarray([self._of_weight(kind) for kind in kinds])[index]

    def _infer(self, graph: Graph) -> list[onnx.GraphProto]:
        if graph.lacking:
            node = min(graph.lacking)
            message = f"types are not inferred: {graph.node_label(node)} lacks an input that its operator needs"
            self.faults = (Fault("inference", message, node),)
            return []
        try:
            proto = onnx.shape_inference.infer_shapes(graph.model.proto)
        except Exception as error:  # noqa: BLE001 (the C++ side lets out any kind, on models that onnx never met)
            reason = cut(" ".join(str(error).split()), 200) or type(error).__name__
            self.faults = (Fault("inference", f"onnx cannot infer types: {reason}"),)
            return []
        owners = [node for node in graph._bodies_of if node < graph.main_count]  # noqa: SLF001
        return [proto.graph, *(body.graph for body in _bodies(proto.graph, owners, graph.opsets)[1])]

    def _read(self, infos: Iterable[tuple[int, onnx.ValueInfoProto]], *, inferred: bool) -> None:
        for value, info in infos:
            if value < 0 or not info.HasField("type"):
                continue
            new = self._add(info.type.SerializeToString(), inferred=inferred)
            old = self.known[self.of_value[value]]
            # what onnx infers may say more than what the file declares
            if old.shape is None or (self.known[new].shape is not None and not inferred):
                self.of_value[value] = new if self.known[new].dtype else self.of_value[value]

    def _of_weight(self, kind: tuple[int, ...]) -> int:
        return self._add(onnx.helper.make_tensor_type_proto(kind[0], kind[1:]).SerializeToString(), inferred=False)

    def _add(self, serialised: bytes, *, inferred: bool) -> int:
        index = self._index.get(serialised)
        if index is None:
            index = self._index[serialised] = len(self.known)
            self.known.append(_value_type(onnx.TypeProto.FromString(serialised), inferred=inferred))
            self.protos.append(serialised)
        return index


def _value_type(proto: onnx.TypeProto, *, inferred: bool) -> ValueType:
    wrappers: list[str] = []
    while len(wrappers) < 64:
        kind = proto.WhichOneof("value")
        if kind == "sequence_type":
            wrappers.append("seq")
            proto = proto.sequence_type.elem_type
        elif kind == "optional_type":
            wrappers.append("optional")
            proto = proto.optional_type.elem_type
        elif kind == "map_type":
            wrappers.append(f"map {dtype_name(proto.map_type.key_type)} →")
            proto = proto.map_type.value_type
        else:
            break
    tensor = proto.sparse_tensor_type if kind == "sparse_tensor_type" else proto.tensor_type
    if kind == "sparse_tensor_type":
        wrappers.append("sparse")
    dtype = dtype_name(tensor.elem_type)
    if kind not in ("tensor_type", "sparse_tensor_type"):
        dtype = text(proto.opaque_type.name) if kind == "opaque_type" else "?" if wrappers else ""
    shape: tuple[int | str | None, ...] | None = None
    if tensor.HasField("shape") and dtype and set(wrappers) <= {"sparse"}:
        shape = tuple(_dimension(dim, inferred=inferred) for dim in tensor.shape.dim)
    for wrapper in reversed(wrappers):
        dtype = f"{wrapper} {dtype}" if wrapper.endswith("→") else f"{wrapper}({dtype})"
    return ValueType(dtype, shape)


def _dimension(dim: onnx.TensorShapeProto.Dimension, *, inferred: bool) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value)
    name = text(dim.dim_param)
    # onnx's inference numbers the dimensions it knows nothing about
    return None if not name or (inferred and re.fullmatch(r"unk__\d+", name)) else name


def topological(start: int, stop: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Order the numbers from start to stop by edges, the lowest free one first; those on or behind cycles last.

    Examples
    --------
    >>> topological(0, 4, [(3, 0), (0, 2)])
    [1, 3, 0, 2]
    """
    readers: dict[int, list[int]] = {}
    waiting = dict.fromkeys(range(start, stop), 0)
    for maker, reader in dict.fromkeys(edges):
        readers.setdefault(maker, []).append(reader)
        waiting[reader] += 1
    free = [node for node, count in waiting.items() if not count]
    order = []
    while free:
        node = heapq.heappop(free)
        order.append(node)
        for reader in readers.get(node, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(free, reader)
    return order + [node for node, count in waiting.items() if count]


def _cycles(start: int, stop: int, source: Ints, target: Ints) -> list[list[int]]:
    """Give the cycles among nodes: each strongly connected set, in file order."""
    readers: dict[int, list[int]] = {}
    for maker, reader in zip(source.tolist(), target.tolist(), strict=True):
        readers.setdefault(maker, []).append(reader)
    return [
        sorted(members)
        for members in strongly_connected(range(start, stop), readers)
        if len(members) > 1 or members[0] in readers.get(members[0], ())
    ]


def strongly_connected(items: Iterable[int], after: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Give the strongly connected sets of a directed graph (Tarjan's algorithm without recursion).

    Parameters
    ----------
    items
        The vertices.
    after
        Vertex → vertices that an edge leads to; vertices without edges may be absent.

    Examples
    --------
    >>> strongly_connected(range(4), {0: [1], 1: [2], 2: [1, 3]})
    [[3], [2, 1], [0]]
    """
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in items:
        if root in number:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        entering = root
        while True:
            if entering >= 0:
                number[entering] = lowest[entering] = len(number)
                stack.append(entering)
                on_stack.add(entering)
                path.append((entering, iter(after.get(entering, ()))))
                entering = -1
            item, edges = path[-1]
            for reached in edges:
                if reached not in number:
                    entering = reached
                    break
                if reached in on_stack:
                    lowest[item] = min(lowest[item], number[reached])
            if entering >= 0:
                continue
            path.pop()
            if lowest[item] == number[item]:
                members: list[int] = []
                while not members or members[-1] != item:
                    members.append(stack.pop())
                    on_stack.discard(members[-1])
                found.append(members)
            if not path:
                break
            above = path[-1][0]
            lowest[above] = min(lowest[above], lowest[item])
    return found


def sorted_unique(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the distinct numbers, sorted; several times faster than ``np.unique``, which hashes.

    >>> sorted_unique(np.asarray([3, 1, 3])).tolist()
    [1, 3]
    """
    values = np.sort(values)
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return values[first]


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int32)


def _pointers(*counts: NDArray[np.int64]) -> Ints:
    return np.concatenate([np.zeros(1, np.int32), np.cumsum(np.concatenate(counts))]).astype(np.int32)
