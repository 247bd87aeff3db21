"""Compare the values of two weights: streamed, and not at all where both are the same bytes of the same file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import label_of, storage_of

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph

CHUNK: Final = 1 << 22
"""Bytes of a weight that are compared at a time."""

Weight = onnx.TensorProto | onnx.SparseTensorProto


class Weights:
    """The weights of a graph by value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._by_value: dict[int, Weight] = {}
        for subgraph in graph.subgraphs:
            protos = [*subgraph.graph.initializer, *subgraph.graph.sparse_initializer]
            self._by_value.update(zip(subgraph.weights.tolist(), protos, strict=True))

    def proto(self, value: int) -> Weight | None:
        """Return the proto of a weight."""
        return self._by_value.get(value)

    def type_text(self, value: int) -> str:
        """Return the type and shape of a weight."""
        sparse = "sparse " if isinstance(self.proto(value), onnx.SparseTensorProto) else ""
        return f"{sparse}{self.graph.type_of(value)}"

    def label(self, value: int) -> str:
        """Return what to call a weight in an error."""
        return f"weight {quoted(self.graph.value_names[value])} of {label_of(self.graph.model)}"

    def head(self, value: int, nbytes: int) -> bytes:
        """Return the first bytes of a weight; none if they cannot be read, as those of strings."""
        tensor = self.proto(value)
        if not isinstance(tensor, onnx.TensorProto):
            return b""
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                return storage_of(self.graph.model).extent(tensor, self.label(value)).array()[:nbytes].tobytes()
            return tensors.raw_bytes(tensor, self.label(value))[:nbytes]
        except (OnnxNbError, ValueError):
            return b""

    def content(self, value: int, tensor: onnx.TensorProto) -> tuple[object, Iterator[bytes | memoryview]]:
        """Return the location of a weight's bytes, which is None inside the model, and the bytes in pieces."""
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            extent = storage_of(self.graph.model).extent(tensor, self.label(value))
            source = extent.source
            location = (source.path, extent.offset) if source.path is not None else (id(source), extent.offset)
            return location, extent.stream(CHUNK)
        data = memoryview(tensors.raw_bytes(tensor, self.label(value)))
        return None, (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))


def equal_inside(one: Weight | None, other: Weight | None) -> bool:
    """Return whether two weights inside their models have equal bytes; False if that takes a closer look."""
    if not isinstance(one, onnx.TensorProto) or not isinstance(other, onnx.TensorProto):
        return False
    return one.HasField("raw_data") and other.HasField("raw_data") and bool(one.raw_data == other.raw_data)


def difference(one: Weights, v: int, other: Weights, w: int, check: Callable[[], None]) -> str:
    """Return how the values of two weights of one type differ; ``check`` is called between pieces."""
    old, new = one.proto(v), other.proto(w)
    if not isinstance(old, onnx.TensorProto) or not isinstance(new, onnx.TensorProto):
        return "" if _without_names(old) == _without_names(new) else "other values"
    if old.data_type == onnx.TensorProto.STRING:
        strings = tensors.values(old, one.label(v)), tensors.values(new, other.label(w))
        count = int(np.sum(strings[0] != strings[1]))
        return f"{count} of {strings[0].size} differ" if count else ""
    (here, mine), (there, others) = one.content(v, old), other.content(w, new)
    if here is not None and here == there:
        return ""
    tally = _Tally(old.data_type)
    for pair in zip(_rechunked(mine), _rechunked(others), strict=True):
        tally.add(*(np.frombuffer(piece, np.uint8) for piece in pair))
        check()
    return tally.message


def _without_names(weight: Weight | None) -> bytes:
    plain = onnx.SparseTensorProto()
    if isinstance(weight, onnx.SparseTensorProto):
        plain.CopyFrom(weight)
        for field in ("name", "doc_string"):
            plain.values.ClearField(field)
            plain.indices.ClearField(field)
    serialized: bytes = plain.SerializeToString(deterministic=True)
    return serialized


def _rechunked(pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield pieces of `CHUNK` bytes, the last shorter; a stream may return less than it was asked for."""
    waiting = bytearray()
    for piece in pieces:
        if not waiting and len(piece) == CHUNK:
            yield piece
            continue
        waiting += piece
        if len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)


class _Tally:
    """Counts the elements that differ, and finds the largest difference."""

    def __init__(self, data_type: int) -> None:
        is_packed = tensors.stored_bytes(onnx.TensorProto(data_type=data_type, dims=[8]), "a weight") < 8
        self._dtype = None if is_packed else tensors.numpy_dtype(data_type)
        self._count = self._total = 0
        self._largest = 0.0
        self._differ = False

    def add(self, one: NDArray[np.uint8], other: NDArray[np.uint8]) -> None:
        """Compare a piece of both."""
        size = 1 if self._dtype is None else self._dtype.itemsize
        self._total += len(one) // size
        if np.array_equal(one, other):
            return
        self._differ = True
        if self._dtype is None:
            return
        old, new = one.view(self._dtype), other.view(self._dtype)
        differ = np.any(one.reshape(-1, size) != other.reshape(-1, size), axis=1)
        self._count += int(differ.sum())
        wide = np.complex128 if self._dtype.kind == "c" else np.float64
        delta = np.abs(old[differ].astype(wide) - new[differ].astype(wide))
        self._largest = max(self._largest, float(np.max(delta, initial=0.0, where=np.isfinite(delta))))

    @property
    def message(self) -> str:
        """How the two differ; empty if they do not."""
        if not self._differ:
            return ""
        if self._dtype is None:
            return "other values"
        return f"{self._count:,} of {self._total:,} differ, by at most {self._largest:.3g}"
