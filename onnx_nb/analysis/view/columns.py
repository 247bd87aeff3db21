"""Packed columns: the only format in which tables reach the browser. `frontend/protocol/codec.ts` reads it.

Columns are typed arrays. Texts are indices into one string table. The rest, which is small, is JSON.
"""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.model.protofields import Longs, Spans

MAGIC: Final = b"ONB2"
STATISTICS_BYTES: Final = 8_000_000
"""Maximum bytes of statistics and histograms in a page before compression."""

_CODES: Final = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "int32": "i4", "float32": "f4", "float64": "f8"}
_ALONE: Final = 8
"""Every so many strings one is stored in full: a reader begins there."""
_BYTES: Final = np.uint64(1) << np.arange(0, 64, 8, dtype=np.uint64)


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """Typed arrays by name, with plain JSON."""

    arrays: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any]

    @classmethod
    def of(
        cls, arrays: Mapping[str, NDArray[Any]], texts: Mapping[str, Sequence[str]], meta: Mapping[str, Any]
    ) -> Columns:
        """Return columns, some of which hold texts."""
        table = StringTable()
        numbers = {name: table.each(column) for name, column in texts.items()}
        return cls({**table.arrays(), **arrays, **numbers}, meta)

    def strings(self) -> list[str]:
        """Return the string table."""
        data, ends = self.arrays["string_bytes"].tobytes(), self.arrays["string_ptr"].tolist()
        texts = [b""]
        for (begin, end), prefix in zip(itertools.pairwise(ends), self.arrays["string_shared"].tolist(), strict=True):
            texts.append(texts[-1][:prefix] + data[begin:end])
        return [text.decode() for text in texts[1:]]

    def to_bytes(self) -> bytes:
        """Return ``ONB2``, a length, and one zlib stream of that length.

        The stream is [header length][header][arrays, each aligned to 8 bytes].
        """
        entries, offset = [], 0
        for name, array in self.arrays.items():
            entries.append({"name": name, "dtype": _CODES[array.dtype.name], "length": len(array), "offset": offset})
            offset += -(-array.nbytes // 8) * 8
        header = json.dumps({"meta": self.meta, "arrays": entries}, separators=(",", ":")).encode()
        header += b" " * (-(4 + len(header)) % 8)
        parts = [struct.pack("<I", len(header)) + header]
        for array in self.arrays.values():
            parts += [array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(), b"\0" * (-array.nbytes % 8)]
        plain = b"".join(parts)
        return MAGIC + struct.pack("<I", len(plain)) + zlib.compress(plain, 1)


def numbers(rows: Sequence[object], names: Iterable[str], prefix: str = "") -> dict[str, NDArray[np.float64]]:
    """Return columns of attributes of rows; NaN for None."""
    return {f"{prefix}{name}": np.asarray([getattr(row, name) for row in rows], np.float64) for name in names}


def texts(rows: Sequence[object], names: Iterable[str], prefix: str = "", limit: int = 100_000) -> dict[str, list[str]]:
    """Return columns of attributes of rows as texts."""
    return {f"{prefix}{name}": [shortened(str(getattr(row, name)), limit) for row in rows] for name in names}


def joined(lists: Sequence[Sequence[Any] | NDArray[Any]], dtype: type[np.generic]) -> tuple[NDArray[np.uint32], Any]:
    """Return one column of several lists, after where each begins, and where the last one ends."""
    ends = np.cumsum([0, *map(len, lists)]).astype(np.uint32)
    return ends, np.concatenate([np.zeros(0, dtype), *lists]).astype(dtype)


class StringTable:
    """Strings that columns hold as numbers; 0 is the empty string."""

    def __init__(self) -> None:
        self._count = 1
        self._index = {"": 0}
        self._texts = {0: ""}
        self._data: list[bytes] = []
        self._lengths: list[Longs] = [np.zeros(1, np.int64)]
        # numbered strings that are not yet in the data
        self._open = [""]

    def one(self, string: str) -> int:
        """Return the number of a string; equal strings are stored once."""
        number = self._index.get(string)
        if number is None:
            number = self._index[string] = self._count
            self._texts[number] = string
            self._open.append(string)
            self._count += 1
        return number

    def text(self, number: int) -> str:
        """Return the string for a number from `one` or `each`."""
        return self._texts[number]

    def each(self, strings: Sequence[str]) -> NDArray[np.uint32]:
        """Return the numbers of strings; equal strings are stored once."""
        numbers = {string: self.one(string) for string in dict.fromkeys(strings)}
        return np.fromiter(map(numbers.__getitem__, strings), np.uint32, len(strings))

    def block(self, strings: Spans) -> NDArray[np.uint32]:
        """Add many mostly distinct strings, without a search for equal ones, and return their numbers."""
        self._append(Spans.of(self._open))
        self._open = []
        self._append(strings)
        numbers = np.arange(self._count, self._count + len(strings), dtype=np.uint32)
        self._count += len(strings)
        numbers[strings.begin == strings.end] = 0
        return numbers

    def _append(self, strings: Spans) -> None:
        data = b"".join(strings.pieces())
        if not data.isascii():
            # names in a file may be invalid UTF-8
            strings = Spans.of(strings.strings())
            data = strings.buffer
        self._data.append(data)
        self._lengths.append(strings.end - strings.begin)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns that hold the strings."""
        self._append(Spans.of(self._open))
        self._open = []
        data, ends = b"".join(self._data), np.cumsum(np.concatenate(self._lengths))
        prefixes = _shared(data, ends)
        # 1 where a shared beginning starts, −1 where it ends
        turns = np.zeros(len(data) + 1, np.int8)
        some = np.flatnonzero(prefixes)
        turns[ends[some]] += 1
        turns[ends[some] + prefixes[some]] -= 1
        ends[1:] -= np.cumsum(prefixes, dtype=np.int64)
        return {
            "string_bytes": np.frombuffer(data, np.uint8)[np.cumsum(turns[:-1], dtype=np.int8) == 0],
            "string_ptr": ends.astype(np.uint32),
            "string_shared": prefixes,
        }


def _shared(data: bytes, ends: Longs) -> NDArray[np.uint8]:
    """Return how many bytes at its beginning each string has in common with the one before it, for most strings."""
    lengths = np.diff(ends)
    most = np.minimum(np.minimum(lengths[1:], lengths[:-1]), 255)
    most[_ALONE - 1 :: _ALONE] = 0
    prefixes = np.zeros(len(lengths), np.uint8)
    # eight bytes at a time, beginning at any byte
    words = np.ndarray(len(data) + 1, "<u8", data + bytes(8), strides=(1,))
    open_, at = np.flatnonzero(most), 0
    while len(open_):
        differ = words[ends[open_] + at] ^ words[ends[open_ + 1] + at]
        lowest = differ & (~differ + np.uint64(1))
        same = np.where(differ == 0, 8, np.searchsorted(_BYTES, lowest, "right") - 1)
        prefixes[open_ + 1] = np.minimum(at + same, most[open_])
        at += 8
        open_ = open_[(same == 8) & (most[open_] > at)]
    return prefixes
