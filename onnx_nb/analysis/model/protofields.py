"""The fields of many protobuf messages as columns, with equal strings identified: numpy, not Python loops.

All messages are read in lock step, the first field of each, then the second of each; equal strings are found by
hashes of their words and compared. A string becomes a `str` only on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.model.wire import NotProtobufError, Window

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_VARINT, _BYTES = 0, 2
_LENGTHS = np.asarray([0, 8, 0, -1, -1, 4, -1, -1], np.int64)
"""Bytes of a payload, by wire type; −1 for types that ONNX does not use. Strings state their length."""
# With fewer messages left after this many fields, lock step costs more per field than one message after another.
_FEW, _MANY_FIELDS = 30, 100


class Fields(NamedTuple):
    """Fields of many messages: those of one message in file order, messages interleaved."""

    row: Longs
    """The message."""
    tag: Longs
    """Field number << 3 | wire type."""
    start: Longs
    """Position of the tag."""
    begin: Longs
    """Position of the payload."""
    end: Longs


class Spans:
    """Strings as spans of a buffer."""

    def __init__(self, buffer: bytes, begin: Longs, end: Longs) -> None:
        self.buffer, self.begin, self.end = buffer, begin, end

    @classmethod
    def of(cls, strings: Iterable[str | bytes]) -> Spans:
        """Put strings into a buffer."""
        parts = [string.encode("utf-8", "replace") if isinstance(string, str) else string for string in strings]
        ends = np.cumsum([0, *map(len, parts)])
        return cls(b"".join(parts), ends[:-1], ends[1:])

    @classmethod
    def joined(cls, parts: Sequence[Spans]) -> Spans:
        """Concatenate the strings of several buffers in one buffer."""
        offsets: dict[int, int] = {}
        buffers: list[bytes] = []
        size = 0
        for part in parts:
            if id(part.buffer) not in offsets:
                offsets[id(part.buffer)] = size
                buffers.append(part.buffer)
                size += len(part.buffer)
        shifts = [offsets[id(part.buffer)] for part in parts]
        begin = np.concatenate([part.begin + shift for part, shift in zip(parts, shifts, strict=True)])
        end = np.concatenate([part.end + shift for part, shift in zip(parts, shifts, strict=True)])
        return cls(buffers[0] if len(buffers) == 1 else b"".join(buffers), begin, end)

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, rows: slice | Longs) -> Spans:
        return Spans(self.buffer, self.begin[rows], self.end[rows])

    def pieces(self) -> list[bytes]:
        """Return the strings as bytes."""
        buffer = self.buffer
        return [buffer[b:e] for b, e in zip(self.begin.tolist(), self.end.tolist(), strict=True)]

    def strings(self) -> list[str]:
        """Return the strings; bytes that are not UTF-8 become backslash escapes."""
        whole = self.buffer.decode("latin-1")
        texts = [whole[b:e] for b, e in zip(self.begin.tolist(), self.end.tolist(), strict=True)]
        if not "".join(texts).isascii():
            texts = [string if string.isascii() else plain_text(string.encode("latin-1")) for string in texts]
        return texts

    def numbered(self) -> tuple[Longs, Longs]:
        """Return a number for each string, in order of first appearance: the same for equal ones, −1 for empty ones."""
        rows = (self.begin < self.end).nonzero()[0]
        begin, end = self.begin[rows], self.end[rows]
        words = _words(self.buffer)
        hashes = _hashed(words, begin, end)
        order = np.argsort(hashes)
        sorted_hashes = hashes[order]
        new = np.ones(len(order), bool)
        new[1:] = sorted_hashes[1:] != sorted_hashes[:-1]
        first = np.minimum.reduceat(order, new.nonzero()[0]) if len(order) else order
        by_appearance = np.argsort(first)
        rank = np.empty(len(first), np.int64)
        rank[by_appearance] = np.arange(len(first))
        numbers = np.empty(len(order), np.int64)
        numbers[order] = rank[np.cumsum(new) - 1]
        first = first[by_appearance]
        again = (first[numbers] != np.arange(len(numbers))).nonzero()[0]
        like = first[numbers[again]]
        if not _all_equal(words, begin[again], end[again], begin[like], end[like]):
            # two strings with the same hash: a file made to cause this
            index: dict[bytes, int] = {}
            strings = Spans(self.buffer, begin, end).pieces()
            numbers = np.asarray([index.setdefault(string, len(index)) for string in strings])
            first = np.unique(numbers, return_index=True)[1]
        number = np.full(len(self), -1, np.int64)
        number[rows] = numbers
        return number, rows[first]


def find(buffer: bytes, begin: Longs, end: Longs) -> Fields:
    """Return the fields of many serialized messages; raise `NotProtobufError` if there is a protobuf group."""
    data = np.frombuffer(buffer, np.uint8)
    alive = begin < end
    row, at, end = alive.nonzero()[0], begin[alive], end[alive]
    columns: list[tuple[Longs, ...]] = []
    while len(row):
        start = at
        tag, at = _varints(data, start)
        wire = tag & 7
        bytes_ = wire == _BYTES
        if bytes_.all():
            length, begin = _varints(data, at)
        else:
            length = _LENGTHS[wire]
            if (length < 0).any():
                raise NotProtobufError
            varint = (bytes_ | (wire == _VARINT)).nonzero()[0]
            begin = at.copy()
            value, begin[varint] = _varints(data, at[varint])
            lengths = bytes_[varint]
            length[varint[lengths]] = value[lengths]
        at = begin + length
        columns.append((row, tag, start, begin, at))
        alive = at < end
        if not alive.all():
            row, at, end = row[alive], at[alive], end[alive]
        if len(columns) > _MANY_FIELDS and len(row) < _FEW:
            window = Window(buffer, "a node or weight")
            for one, begin_, end_ in zip(row.tolist(), at.tolist(), end.tolist(), strict=True):
                rest = [(one, n << 3 | kind, *places) for n, kind, *places in window.fields(begin_, end_)]
                columns.append(tuple(np.asarray(rest, np.int64).T))
            break
    if not columns:
        return Fields(*[np.empty(0, np.int64)] * 5)
    return Fields(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _varints(data: NDArray[np.uint8], at: Longs) -> tuple[Longs, Longs]:
    """Read the varint at each position; return the values and the positions after them."""
    value = data[at].astype(np.int64)
    after = at + 1
    more = (value >= 128).nonzero()[0]
    if len(more):
        value[more] &= 127
    shift = 7
    while len(more) and shift < 70:
        byte = data[after[more]].astype(np.int64)
        value[more] |= (byte & 127) << min(shift, 63)
        after[more] += 1
        more = more[byte >= 128]
        shift += 7
    return value, after


def _words(buffer: bytes) -> NDArray[np.uint64]:
    """Return the eight bytes at every position of a buffer as a number, without copying them."""
    content = np.concatenate([np.frombuffer(buffer, np.uint8), np.zeros(8, np.uint8)])
    return np.ndarray((len(buffer) + 1,), "<u8", content, strides=(1,))


def _hashed(words: NDArray[np.uint64], begin: Longs, end: Longs) -> NDArray[np.uint64]:
    """Hash each string, eight bytes at a time (multiply and shift, as splitmix64 does)."""
    value = (end - begin).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    row, at, left, state = np.arange(len(begin)), begin, end - begin, value
    while len(row):
        state = (state ^ _word(words, at, left)) * np.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> np.uint64(29)
        value[row] = state
        alive = left > 8
        row, at, left, state = row[alive], at[alive] + 8, left[alive] - 8, state[alive]
    return value


def _all_equal(words: NDArray[np.uint64], begin: Longs, end: Longs, other: Longs, other_end: Longs) -> bool:
    left = end - begin
    if (left != other_end - other).any():
        return False
    while len(left):
        if (_word(words, begin, left) != _word(words, other, left)).any():
            return False
        alive = left > 8
        begin, other, left = begin[alive] + 8, other[alive] + 8, left[alive] - 8
    return True


def _word(words: NDArray[np.uint64], at: Longs, left: Longs) -> NDArray[np.uint64]:
    word = words[at]
    short = (left < 8).nonzero()[0]
    word[short] &= (np.uint64(1) << (left[short].astype(np.uint64) * np.uint64(8))) - np.uint64(1)
    return word


def sorted_unique(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct numbers, sorted; several times faster than ``np.unique``, which imports ``numpy.ma``."""
    values = np.sort(values)
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return values[first]
