"""The fields of nodes and weights as columns: where each name, operator, attribute and type lies in a buffer.

Messages are serialized by protobuf and taken apart by `fields`: access through protobuf objects, one field after the
other, takes several times as long at 100,000 nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnx_nb.analysis.graph.operators import canonical
from onnx_nb.analysis.model import protofields, wire
from onnx_nb.analysis.model.protofields import Ints, Longs, Spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    return buffer, protofields.find(buffer, ends[:-1], ends[1:])


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
