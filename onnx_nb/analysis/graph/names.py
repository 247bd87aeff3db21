"""The fields of nodes and weights as columns, and the resolution of tensor names to the numbers of values.

Messages are serialized by protobuf and taken apart by `protofields`: access through protobuf objects, one field after
the other, takes several times as long at 100,000 nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.model import protofields, wire
from onnx_nb.analysis.model.functions import canonical
from onnx_nb.analysis.model.protofields import Ints, Longs, Spans, sorted_unique
from onnx_nb.analysis.model.tensors import RANK

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.subgraphs import Subgraph

# Fields of NodeProto in onnx.proto.
_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7

Resolved = tuple[list[int], list[int], list[int]]
"""The values of the inputs, outputs and weights of a subgraph."""

NODE_OUTPUT, GRAPH_INPUT, INITIALIZER, DANGLING, BODY_INPUT = range(5)
"""Kinds of values, as in `Graph.value_kind`. DANGLING: a node reads it, but nothing produces it."""

LONGEST_PREFIX = 200
"""Maximum characters of a call's name in the prefix of the names inside it."""


class Names:
    """Resolves tensor names to values, one subgraph after another, outer ones first."""

    def __init__(self, table: NodeTable, in_ptr: Ints, out_ptr: Ints) -> None:
        self.in_value = np.empty(in_ptr[-1], np.int32)
        self.out_value = np.empty(out_ptr[-1], np.int32)
        self.kinds = bytearray()
        self.subgraph_ends: list[int] = []
        self.given: list[list[int]] = []
        """The value of each graph input of each subgraph, including those with an initializer."""
        self.tables: list[WeightTable] = []
        self.overridable: list[int] = []
        self.duplicates: list[tuple[int, int]] = []
        """(value that takes an existing name, its producer or −1)"""
        self.prefixes: list[str] = []
        """Prefix of the names in each subgraph."""
        self._table, self._in_ptr, self._out_ptr = table, in_ptr, out_ptr
        self._parents: list[int] = []
        # The names of the first values may be in a buffer, those of the others are listed.
        self._spans = Spans.of([])
        self._listed: list[str] = []
        self._scopes: list[dict[str, int]] = []

    def resolve(self, place: Subgraph) -> Subgraph:
        """Make the values of a subgraph; return it with its inputs, outputs and weights."""
        table = WeightTable(place.graph)
        self.tables.append(table)
        # a function does not see the values around its call
        self._parents.append(place.parent if place.function is None else -1)
        self.prefixes.append(self._prefix(place))
        resolution = self._resolve_unique(place, table.names) if place.owner_node < 0 else None
        inputs, outputs, weights = resolution or self._resolve_in_turn(place, table.names.strings())
        self.subgraph_ends.append(len(self.kinds))
        return replace(place, inputs=ints(inputs), outputs=ints(outputs), weights=ints(weights))

    @property
    def value_spans(self) -> Spans:
        """The names of all values in a buffer."""
        return Spans.of(self.value_names) if self._listed else self._spans

    @functools.cached_property
    def value_names(self) -> list[str]:
        """The names of all values."""
        return [*self._strings, *self._listed]

    @functools.cached_property
    def _strings(self) -> list[str]:
        return self._spans.strings()

    @property
    def scopes(self) -> list[dict[str, int]]:
        """The value of each name in each subgraph."""
        if len(self._scopes) < len(self.subgraph_ends):
            names = self._strings
            self._scopes.insert(0, dict(zip(["", *names], range(-1, len(names)), strict=True)))
        return self._scopes

    @functools.cached_property
    def _port_names(self) -> tuple[list[str], list[str]]:
        return self._table.inputs.strings(), self._table.outputs.strings()

    def _resolve_unique(self, place: Subgraph, weights: Spans) -> Resolved | None:
        """Resolve the main graph if every name is defined once: without a Python loop over its nodes."""
        inputs = Spans.of(info.name for info in place.graph.input)
        outputs = Spans.of(info.name for info in place.graph.output)
        products = self._table.outputs[: self._out_ptr[place.stop]]
        parts = (inputs, weights, products, self._table.inputs[: self._in_ptr[place.stop]], outputs)
        every = Spans.joined(parts)
        number, first = every.numbered()
        ends = np.cumsum([len(part) for part in parts])
        of_inputs, of_weights, of_made, of_read, of_outputs = np.split(number, ends[:-1])
        new = np.zeros(len(every), bool)
        new[first] = True
        # a weight may share its name with an input, but not with another weight
        again = of_weights[~new[ends[0] : ends[1]]]
        is_shared = bool(np.all((again >= 0) & (again < len(inputs)))) and len(sorted_unique(again)) == len(again)
        if not (is_shared and np.all(new[: ends[0]]) and np.all(new[ends[1] : ends[2]] | (of_made < 0))):
            return None
        kinds = np.asarray([GRAPH_INPUT, INITIALIZER, NODE_OUTPUT, DANGLING, DANGLING], np.uint8)
        kind = kinds[np.searchsorted(ends, first, side="right")]
        kind[of_weights] = INITIALIZER
        self.kinds = bytearray(kind.tobytes())
        self.in_value[: len(of_read)], self.out_value[: len(of_made)] = of_read, of_made
        self._spans = every[first]
        self.given.append(of_inputs.tolist())
        is_fed = kind[of_inputs] != INITIALIZER
        self.overridable = of_inputs[~is_fed].tolist()
        return of_inputs[is_fed].tolist(), of_outputs.tolist(), of_weights.tolist()

    def _resolve_in_turn(self, place: Subgraph, weights: list[str]) -> Resolved:
        """Resolve a subgraph node by node: a name means its latest definition before the node that reads it."""
        out_ptr, in_ptr, function, main = self._out_ptr, self._in_ptr, place.function, place.owner_node < 0
        in_names, out_names = self._port_names
        now: dict[str, int] = {}
        first: dict[str, int] = {}
        """The first definition of each name by a node."""
        if function is None:
            names = [plain_text(info.name) for info in place.graph.input]
            for name in names:
                if name in now:
                    self.duplicates.append((now[name], -1))
                now[name] = self._new(name, GRAPH_INPUT if main else BODY_INPUT)
            self.given.append([now[name] for name in names])
        else:  # the inputs are those of the caller
            arguments = self.in_value[in_ptr[place.owner_node] : in_ptr[place.owner_node + 1]].tolist()
            now = dict(zip(map(plain_text, function.input), [*arguments, *[-1] * len(function.input)], strict=False))
            self.given.append([value for value in now.values() if value >= 0])
        visited: set[str] = set()
        for name in weights:
            if name in visited:
                self.duplicates.append((now[name], -1))
            elif name in now:
                self.kinds[now[name]] = INITIALIZER
                if main:
                    self.overridable.append(now[name])
            else:
                now[name] = self._new(name, INITIALIZER)
            visited.add(name)
        weight_values = [now[name] for name in weights]
        for node in range(place.start, place.stop):
            for slot in range(out_ptr[node], out_ptr[node + 1]):
                name = out_names[slot]
                self.out_value[slot] = value = self._new(name, NODE_OUTPUT) if name else -1
                if name and (name in first or name in now):
                    self.duplicates.append((value, node))
                first.setdefault(name, value)
        for node in range(place.start, place.stop):
            for slot in range(in_ptr[node], in_ptr[node + 1]):
                self.in_value[slot] = self._meaning(in_names[slot], now, first)
            for slot in range(out_ptr[node], out_ptr[node + 1]):
                if self.out_value[slot] >= 0:
                    now[out_names[slot]] = int(self.out_value[slot])
        inputs = [v for v in dict.fromkeys(self.given[-1]) if function is not None or self.kinds[v] != INITIALIZER]
        output_names = function.output if function is not None else [info.name for info in place.graph.output]
        outputs = [self._meaning(plain_text(name), now, first) for name in output_names]
        self._scopes.append(now)
        return inputs, outputs, weight_values

    def _meaning(self, name: str, now: dict[str, int], first: dict[str, int]) -> int:
        if not name:
            return -1
        value, parent = now.get(name), self._parents[-1]
        while value is None and parent >= 0:
            value = self.scopes[parent].get(name)
            parent = self._parents[parent]
        if value is None:
            value = first.get(name)  # defined further down the file: the graph is unsorted
        if value is None:
            value = now[name] = self._new(name, DANGLING)
        return value

    def _prefix(self, place: Subgraph) -> str:
        above = self.prefixes[place.parent] if place.parent >= 0 else ""
        if place.function is None:
            return above
        owner = place.owner_node
        name = plain_text(self._table.names[owner : owner + 1].pieces()[0])
        # a call without a name is named after its first output
        outputs = self.out_value[self._out_ptr[owner] : self._out_ptr[owner + 1]]
        name = above + name if name else next((self._value_name(value) for value in outputs if value >= 0), "")
        return f"{shortened(name, LONGEST_PREFIX)}::"

    def _value_name(self, value: int) -> str:
        count = len(self._spans)
        if value >= count:
            return self._listed[value - count]
        return plain_text(self._spans[value : value + 1].pieces()[0])

    def _new(self, name: str, kind: int) -> int:
        self._listed.append(f"{self.prefixes[-1]}{name}")
        self.kinds.append(kind)
        return len(self.kinds) - 1


LARGE = 1 << 16
"""Bytes; larger nodes (with bodies or large constants) keep only their small attributes in columns."""


class NodeTable(NamedTuple):
    """The fields of many NodeProtos as columns."""

    inputs: Spans
    in_count: Longs
    outputs: Spans
    out_count: Longs
    names: Spans
    operators: list[tuple[str, str]]
    """The distinct (op_type, domain)."""
    op_index: Longs
    """The operator of each node."""
    attributes: Spans
    """The attributes of each node, as in its message."""

    @classmethod
    def of(cls, nodes: Sequence[onnx.NodeProto]) -> NodeTable:
        """Read the fields of nodes."""
        pairs = zip(nodes, map(onnx.NodeProto.SerializeToString, nodes), strict=True)
        parts = [part if len(part) < LARGE else _without_large_attributes(node) for node, part in pairs]
        buffer, (row, tags, start, begin, end) = _serialized(parts)

        def repeated(field: int) -> tuple[Spans, Longs]:
            rows = (tags == field << 3 | 2).nonzero()[0]
            rows = rows[np.argsort(row[rows], kind="stable")]
            return Spans(buffer, begin[rows], end[rows]), np.bincount(row[rows], minlength=len(nodes))

        def single(field: int, starts: Longs = begin) -> Spans:
            which = tags == field << 3 | 2
            return _spanned(buffer, len(nodes), row[which], starts[which], end[which])

        codes, texts = [], []
        for spans in (single(_OP_TYPE), single(_DOMAIN)):
            number, first = spans.numbered()
            codes.append(number + 1)
            texts.append(["", *spans[first].strings()])
        pair, op_index = np.unique(codes[0] * len(texts[1]) + codes[1], return_inverse=True)
        keys = [divmod(code, len(texts[1])) for code in pair.tolist()]
        operators = [(texts[0][op], canonical(texts[1][domain])) for op, domain in keys]
        # Protobuf writes fields in order of their numbers, so a node's attributes are one span.
        return cls(*repeated(_INPUT), *repeated(_OUTPUT), single(_NAME), operators, op_index, single(_ATTRIBUTE, start))

    def rows_of(self, operators: Collection[tuple[str, str]]) -> list[int]:
        """Return the nodes of some operators."""
        numbers = [number for number, key in enumerate(self.operators) if key in operators]
        return np.flatnonzero(np.isin(self.op_index, numbers)).tolist()

    def joined(self, other: NodeTable) -> NodeTable:
        """Return the nodes of two tables."""
        if not len(other.names):
            return self
        buffer, shift = self.names.buffer + other.names.buffer, len(self.names.buffer)
        operators = list(dict.fromkeys([*self.operators, *other.operators]))
        number = {key: i for i, key in enumerate(operators)}
        of_other = np.asarray([number[key] for key in other.operators])[other.op_index]

        def both(a: Any, b: Any) -> Any:
            if isinstance(a, Spans):
                return Spans(buffer, np.concatenate([a.begin, b.begin + shift]), np.concatenate([a.end, b.end + shift]))
            return np.concatenate([a, b]) if isinstance(a, np.ndarray) else b

        return NodeTable(*map(both, self, other._replace(operators=operators, op_index=of_other)))


class WeightTable:
    """The names and types of the weights of a graph."""

    # Fields of TensorProto in onnx.proto: dims 1 and data_type 2 are varints, dims perhaps packed; name 8.
    _DIMS, _PACKED_DIMS, _DATA_TYPE, _NAME = 1 << 3, 1 << 3 | 2, 2 << 3, 8 << 3 | 2

    def __init__(self, graph: onnx.GraphProto) -> None:
        weights, self._sparse = graph.initializer, graph.sparse_initializer
        pairs = zip(weights, map(onnx.TensorProto.SerializeToString, weights), strict=True)
        parts = [part if len(part) < LARGE else _without_values(tensor) for tensor, part in pairs]
        buffer, (row, tag, start, begin, end) = _serialized(parts)
        which = tag == self._NAME
        self.names = _spanned(buffer, len(weights), row[which], begin[which], end[which])
        if self._sparse:
            self.names = Spans.joined([self.names, Spans.of(weight.values.name for weight in self._sparse)])
        # Dims and type come first in a message, so equal spans mean equal types.
        which = (tag == self._DIMS) | (tag == self._PACKED_DIMS) | (tag == self._DATA_TYPE)
        self._heads = _spanned(buffer, len(weights), row[which], start[which], end[which])

    def types(self) -> tuple[Longs, list[tuple[int, ...]]]:
        """Return the type of each weight as an index, and the types as (element type, dimensions…)."""
        number, first = self._heads.numbered()
        heads = map(onnx.TensorProto.FromString, self._heads[first].pieces())
        kinds = [(0,), *((head.data_type, *head.dims) for head in heads)]
        sparse = np.arange(len(kinds), len(kinds) + len(self._sparse))
        kinds += [(weight.values.data_type, *weight.dims) for weight in self._sparse]
        return np.concatenate([number + 1, sparse]), kinds


def ints(values: Iterable[int]) -> Ints:
    """Return numbers as a column."""
    return np.fromiter(values, np.int32)


def _spanned(buffer: bytes, count: int, row: Longs, start: Longs, end: Longs) -> Spans:
    """Return for each of so many messages the span from the first to the last of its fields; empty if it has none."""
    starts, ends = np.zeros((2, count), np.int64)
    ends[row], starts[row[::-1]] = end, start[::-1]
    return Spans(buffer, starts, ends)


def _serialized(parts: Sequence[bytes]) -> tuple[bytes, protofields.Fields]:
    """Put messages into one buffer and find their fields."""
    ends = np.cumsum(np.fromiter(map(len, [b"", *parts]), np.int64, len(parts) + 1))
    buffer = b"".join(parts)
    try:
        return buffer, protofields.find(buffer, ends[:-1], ends[1:])
    except wire.NotProtobufError:
        message = "a node or weight holds a protobuf group, which ONNX does not use."
        advice = "Save the model again with onnx.save after DiscardUnknownFields()."
        raise ModelFileError(message, advice=advice) from None


def _without_values(tensor: onnx.TensorProto) -> bytes:
    # of too many axes so many that the shape stays unknown
    small = onnx.TensorProto(dims=tensor.dims[: RANK + 1], data_type=tensor.data_type)
    wire.set_field(small, "name", tensor.name)
    return bytes(small.SerializeToString())


def _without_large_attributes(node: onnx.NodeProto) -> bytes:
    small = onnx.NodeProto()
    wire.copy_fields(node, small, without=("attribute", "doc_string", "metadata_props"))
    small.attribute.extend(attribute for attribute in node.attribute if attribute.ByteSize() < LARGE // 16)
    return bytes(small.SerializeToString())
