"""Reads packed columns, as the browser does."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np

from onnx_nb.analysis.view.columns import Columns

DTYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4", "f8": "<f8"}


class Unpacked(Columns):
    """Columns whose texts can be read."""

    def texts(self, name: str) -> list[str]:
        """Return a column of texts."""
        table = self.strings()
        return [table[number] for number in self.arrays[name].tolist()]


def unpack_by_hand(data: bytes) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """As the contract with the browser has it, without any code of the package."""
    assert data[:4] == b"ONB2"
    plain = zlib.decompress(data[8:])
    assert struct.unpack("<I", data[4:8]) == (len(plain),)
    (length,) = struct.unpack("<I", plain[:4])
    header = json.loads(plain[4 : 4 + length].decode())
    start = 4 + length
    assert start % 8 == 0
    arrays = {}
    for entry in header["arrays"]:
        assert entry["offset"] % 8 == 0
        kind = np.dtype(DTYPES[entry["dtype"]])
        at = start + entry["offset"]
        arrays[entry["name"]] = np.frombuffer(plain[at : at + kind.itemsize * entry["length"]], kind)
        assert len(arrays[entry["name"]]) == entry["length"]
    return arrays, header["meta"]


def unpacked(data: bytes) -> Unpacked:
    """Return the columns that `Columns.to_bytes` packed."""
    return Unpacked(*unpack_by_hand(data))
