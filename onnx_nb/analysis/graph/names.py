"""The fields of nodes and weights as columns, and what the names of tensors mean: each becomes the number of a value.

Messages are serialized by protobuf and taken apart by `protofields`: access through protobuf objects, one field after
the other, takes several times as long at 100,000 nodes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph.operators import canonical
from onnx_nb.analysis.model import protofields, wire
from onnx_nb.analysis.model.protofields import Ints, Longs, Spans, sorted_unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onnx_nb.analysis.graph.graph import Subgraph
    from onnx_nb.analysis.graph.subgraphs import Body


NODE_OUTPUT, GRAPH_INPUT, INITIALIZER, DANGLING, BODY_INPUT = range(5)
"""Kinds of values, as in `Graph.value_kind`. DANGLING: a node reads it, but nothing makes it."""

LONGEST_PREFIX = 200
"""Characters of the name of a call that precede the names inside it."""


class Names:
    """Turns the names of tensors into values, frame after frame; outer frames first."""

    def __init__(self, main: NodeTable, rest: NodeTable, in_ptr: Ints, out_ptr: Ints) -> None:
        self.in_value = np.empty(in_ptr[-1], np.int32)
        self.out_value = np.empty(out_ptr[-1], np.int32)
        self.kinds = bytearray()
        self.subgraph_ends: list[int] = []
        self.given: list[list[int]] = []
        """The value of each graph input of each frame, those with an initializer included."""
        self.inputs: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.weights: list[list[int]] = []
        self.tables: list[WeightTable] = []
        self.overridable: list[int] = []
        self.duplicates: list[tuple[int, int]] = []
        """(value that takes an existing name, node that makes it or −1)"""
        self.prefixes: list[str] = []
        """What the names of each frame begin with."""
        self._main, self._rest, self._in_ptr, self._out_ptr = main, rest, in_ptr, out_ptr
        self._parents: list[int] = []
        # The names of the first values may lie in a buffer, those of the others are listed.
        self._spans: Spans | None = None
        self._listed: list[str] = []
        self._scopes: list[dict[str, int]] = []

    def resolve(self, place: Body) -> None:
        """Make the values of one frame."""
        table = WeightTable(place.graph)
        self.tables.append(table)
        # a function does not see what is around its call
        self._parents.append(place.parent if place.function is None else -1)
        self.prefixes.append(self._prefix(place))
        if place.function is not None:
            self._resolve_call(place, place.function)
        elif place.parent >= 0 or not self._resolve_unique(place.graph, table.names):
            self._resolve_in_turn(place, table.names.strings())
        self.subgraph_ends.append(len(self.kinds))

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
        if self._spans is not None and len(self._scopes) < len(self.subgraph_ends):
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

    def _resolve_in_turn(self, place: Body, weights: list[str]) -> None:
        """Resolve a frame node by node: a name means its latest definition before the node that reads it."""
        inputs = [plain_text(info.name) for info in place.graph.input]
        outputs = [plain_text(info.name) for info in place.graph.output]
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
        first = self._resolve_nodes(place, now)
        self.inputs.append([value for value in given if self.kinds[value] != INITIALIZER])
        self.outputs.append([self._meaning(name, now, first, place.parent) for name in outputs])
        self._scopes.append(now)

    def _resolve_call(self, place: Body, function: onnx.FunctionProto) -> None:
        """Resolve a function whose inputs are those of its caller."""
        begin, end = self._in_ptr[place.owner_node], self._in_ptr[place.owner_node + 1]
        given = [*self.in_value[begin:end].tolist(), *[-1] * len(function.input)]
        now = dict(zip(map(plain_text, function.input), given, strict=False))
        self.given.append([])
        self.weights.append([])
        self.inputs.append(list(dict.fromkeys(value for value in now.values() if value >= 0)))
        first = self._resolve_nodes(place, now)
        self.outputs.append([self._meaning(plain_text(name), now, first, -1) for name in function.output])
        self._scopes.append(now)

    def _resolve_nodes(self, place: Body, now: dict[str, int]) -> dict[str, int]:
        """Resolve the nodes of a frame; give the first definition of each name."""
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
                self.in_value[slot] = self._meaning(self._in_names[slot], now, first, self._parents[-1])
            for slot in range(out_ptr[node], out_ptr[node + 1]):
                if self.out_value[slot] >= 0:
                    now[self._out_names[slot]] = int(self.out_value[slot])
        return first

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

    def _prefix(self, place: Body) -> str:
        if place.function is None:
            return self.prefixes[place.parent] if place.parent >= 0 else ""
        owner = place.owner_node
        name = self._node_name(owner)
        made = self.out_value[self._out_ptr[owner] : self._out_ptr[owner + 1]]
        # outputs have names of their own where calls have none
        name = (
            f"{self.prefixes[place.parent]}{name}" if name else next((self._value_name(v) for v in made if v >= 0), "")
        )
        return f"{shortened(name, LONGEST_PREFIX)}::"

    def _node_name(self, node: int) -> str:
        table, row = (self._main, node) if node < self._main.count else (self._rest, node - self._main.count)
        return plain_text(table.names[row : row + 1].pieces()[0])

    def called_names(self, subgraphs: Sequence[Subgraph], names: Spans, base: int) -> Spans:
        """Return the names of the nodes in calls, behind those of their calls."""
        first = next((f for f, subgraph in enumerate(subgraphs) if subgraph.function is not None), len(subgraphs))
        inside = [
            self.prefixes[f].encode() + name if name else b""
            for f in range(first, len(subgraphs))
            for name in names[subgraphs[f].start - base : subgraphs[f].stop - base].pieces()
        ]
        return Spans.of(inside)

    def _value_name(self, value: int) -> str:
        count = len(self._spans) if self._spans is not None else 0
        if value >= count or self._spans is None:
            return self._listed[value - count]
        return plain_text(self._spans[value : value + 1].pieces()[0])

    def _new(self, name: str, kind: int) -> int:
        self._listed.append(f"{self.prefixes[-1]}{name}")
        self.kinds.append(kind)
        return len(self.kinds) - 1


LARGE = 1 << 16
"""Of nodes with more bytes, as those with bodies or large constants, only small attributes are kept in columns."""


class NodeTable:
    """The fields of many NodeProtos as columns."""

    # Fields of NodeProto in onnx.proto; tags of length-delimited fields are field << 3 | 2.
    _INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = (field << 3 | 2 for field in (1, 2, 3, 4, 5, 7))

    def __init__(self, nodes: Sequence[onnx.NodeProto]) -> None:
        self.count = len(nodes)
        self._buffer, self._fields = _serialized(
            part if len(part := node.SerializeToString()) < LARGE else _without_large_attributes(node) for node in nodes
        )
        self.inputs, self.in_count = self._repeated(self._INPUT)
        self.outputs, self.out_count = self._repeated(self._OUTPUT)
        self.names = self._single(self._NAME)
        self.operators, self.op_index = self._operators()
        # Protobuf writes fields in order of their numbers, so a node's attributes are one span.
        row, tag, start, _, end = self._fields
        mine = (tag == self._ATTRIBUTE).nonzero()[0]
        self._attribute_start = np.zeros(self.count, np.int64)
        self._attribute_end = np.zeros(self.count, np.int64)
        self._attribute_end[row[mine]] = end[mine]
        self._attribute_start[row[mine[::-1]]] = start[mine[::-1]]
        del self._fields

    def attributes(self, row: int) -> bytes:
        """Return the attributes of a node as they lie in its message."""
        return self._buffer[int(self._attribute_start[row]) : int(self._attribute_end[row])]

    @property
    def attribute_spans(self) -> Spans:
        """The attributes of each node."""
        return Spans(self._buffer, self._attribute_start, self._attribute_end)

    def rows_with_attributes(self) -> Iterator[tuple[int, bytes]]:
        """Return each node that has attributes, and these."""
        rows = np.flatnonzero(self._attribute_end)
        spans = Spans(self._buffer, self._attribute_start[rows], self._attribute_end[rows])
        return zip(rows.tolist(), spans.pieces(), strict=True)

    def _repeated(self, tag: int) -> tuple[Spans, Longs]:
        row, tags, _, begin, end = self._fields
        mine = (tags == tag).nonzero()[0]
        mine = mine[np.argsort(row[mine], kind="stable")]
        return Spans(self._buffer, begin[mine], end[mine]), np.bincount(row[mine], minlength=self.count)

    def _single(self, tag: int) -> Spans:
        row, tags, _, begin, end = self._fields
        mine = (tags == tag).nonzero()[0]
        begins, ends = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        begins[row[mine]], ends[row[mine]] = begin[mine], end[mine]
        return Spans(self._buffer, begins, ends)

    def _operators(self) -> tuple[list[tuple[str, str]], Ints]:
        """Return the distinct (op_type, domain) and which of them each node has."""
        coded, texts = [], []
        for spans in (self._single(self._OP_TYPE), self._single(self._DOMAIN)):
            number, first = spans.numbered()
            coded.append(number + 1)
            texts.append(["", *spans[first].strings()])
        pair, index = np.unique(coded[0] * len(texts[1]) + coded[1], return_inverse=True)
        keys = [divmod(code, len(texts[1])) for code in pair.tolist()]
        return [(texts[0][op], canonical(texts[1][domain])) for op, domain in keys], index.astype(np.int32)


class WeightTable:
    """The names and types of the weights of a graph."""

    # Fields of TensorProto in onnx.proto: dims 1 and data_type 2 are varints, dims perhaps packed; name 8.
    _DIMS, _PACKED_DIMS, _DATA_TYPE, _NAME = 1 << 3, 1 << 3 | 2, 2 << 3, 8 << 3 | 2

    def __init__(self, graph: onnx.GraphProto) -> None:
        weights, self._sparse = graph.initializer, graph.sparse_initializer
        buffer, (row, tag, start, begin, end) = _serialized(
            part if len(part := tensor.SerializeToString()) < LARGE else _without_values(tensor) for tensor in weights
        )
        begins, ends, head_starts, head_ends = np.zeros((4, len(weights)), np.int64)
        mine = (tag == self._NAME).nonzero()[0]
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
        """Return the type of each weight as an index, and the types as (element type, dimensions…)."""
        number, first = self._heads.numbered()
        heads = map(onnx.TensorProto.FromString, self._heads[first].pieces())
        kinds = [(0,), *((head.data_type, *head.dims) for head in heads)]
        sparse = np.arange(len(kinds), len(kinds) + len(self._sparse))
        kinds += [(each.values.data_type, *each.dims) for each in self._sparse]
        return np.concatenate([number + 1, sparse]), kinds


def _serialized(messages: Iterable[bytes]) -> tuple[bytes, protofields.Fields]:
    """Put messages into one buffer and find their fields."""
    parts = list(messages)
    ends = np.cumsum(np.fromiter(map(len, [b"", *parts]), np.int64, len(parts) + 1))
    buffer = b"".join(parts)
    try:
        return buffer, protofields.find(buffer, ends[:-1], ends[1:])
    except wire.NotProtobufError:
        message = "a node or weight holds a protobuf group, which ONNX does not use."
        advice = "Save the model again with onnx.save after DiscardUnknownFields()."
        raise ModelFileError(message, advice=advice) from None


def _without_values(tensor: onnx.TensorProto) -> bytes:
    small = onnx.TensorProto()
    wire.copy_fields(tensor, small, without=tuple(f.name for f in tensor.DESCRIPTOR.fields if f.name not in _HEAD))
    serialized: bytes = small.SerializeToString()
    return serialized


_HEAD = ("dims", "data_type", "name")


def _without_large_attributes(node: onnx.NodeProto) -> bytes:
    small = onnx.NodeProto()
    wire.copy_fields(node, small, without=("attribute", "doc_string", "metadata_props"))
    small.attribute.extend(attribute for attribute in node.attribute if attribute.ByteSize() < LARGE // 16)
    serialized: bytes = small.SerializeToString()
    return serialized
