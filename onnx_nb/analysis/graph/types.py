"""The one representation of types: what is known of a value, and the table of the distinct types of a graph."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TypeProto

from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.model.tensors import Dims, dimensions, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.graph.names import Names
    from onnx_nb.analysis.model.protofields import Ints

_NUMBERED = re.compile(r"unk__\d+")


@dataclass(frozen=True)
class ValueType:
    """The type of a value as far as it is known."""

    dtype: str = ""
    """As "float32", "seq(float32)"; empty if unknown."""
    shape: Dims | None = None
    """Sizes, symbols, or None for an unknown dimension; None as a whole if even the rank is unknown."""
    elem_type: int = field(default=0, compare=False)
    """As in ``onnx.TensorProto.DataType``; 0 if unknown, or if the value is no dense tensor."""
    proto: TypeProto = field(default_factory=TypeProto, compare=False, repr=False)
    """The same as a message; it is not to be changed."""

    @classmethod
    def of(cls, proto: TypeProto) -> ValueType:
        """Return the type that a message describes."""
        wrappers, inner = _unwrapped(proto)
        kind = inner.WhichOneof("value")
        dtype = ""
        if kind in ("tensor_type", "sparse_tensor_type"):
            dtype = dtype_name((inner.tensor_type if kind == "tensor_type" else inner.sparse_tensor_type).elem_type)
        elif kind == "opaque_type":
            dtype = plain_text(inner.opaque_type.name)
        elif wrappers:
            dtype = "?"
        shape = dimensions(inner) if dtype and set(wrappers) <= {"sparse"} and kind != "opaque_type" else None
        if shape is not None and None in shape:  # negative sizes of broken models are shown as they are
            dims = (inner.tensor_type if kind == "tensor_type" else inner.sparse_tensor_type).shape.dim
            shape = tuple(
                old if old is not None else dim.dim_value or None for old, dim in zip(shape, dims, strict=True)
            )
        for wrapper in reversed(wrappers):
            dtype = f"{wrapper} {dtype}" if wrapper.endswith("→") else f"{wrapper}({dtype})"
        return cls(dtype, shape, proto.tensor_type.elem_type if proto.HasField("tensor_type") else 0, proto)

    @classmethod
    def of_tensor(cls, elem_type: int, shape: Sequence[int | str | None] | None) -> ValueType:
        """Return the type of a dense tensor."""
        return cls.of(onnx.helper.make_tensor_type_proto(elem_type, shape))

    @property
    def shape_text(self) -> str:
        """The shape as "batch×3×224"; "scalar" for rank 0, empty if unknown."""
        if self.shape is None:
            return ""
        return "×".join("?" if dim is None else shortened(str(dim), 24) for dim in self.shape[:16]) or "scalar"

    @property
    def size(self) -> int | None:
        """Number of elements of a dense tensor; None if the element type or a dimension is unknown."""
        return math.prod(self.shape) if self.elem_type and is_static(self.shape) else None

    @property
    def is_complete(self) -> bool:
        """Whether onnx's checker would accept the type for a graph input: it insists on the rank of tensors."""
        return bool(self.dtype) and (self.shape is not None or not self.proto.HasField("tensor_type"))

    def __str__(self) -> str:
        return " ".join(part for part in (self.shape_text, self.dtype) if part)


def is_static(shape: Dims | None) -> TypeGuard[tuple[int, ...]]:
    """Return whether every dimension of a shape is a number."""
    return shape is not None and all(isinstance(dim, int) and dim >= 0 for dim in shape)


def _unwrapped(proto: TypeProto) -> tuple[list[str], TypeProto]:
    """Return the sequences, optionals and maps around a type, outermost first, and what they hold."""
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
    return [*wrappers, "sparse"] if proto.HasField("sparse_tensor_type") else wrappers, proto


class TypeTable:
    """Distinct types, numbered in the order in which they are met; number 0 means that nothing is known."""

    def __init__(self) -> None:
        self.known: list[ValueType] = [ValueType()]
        self._number: dict[bytes, int] = {b"": 0}

    def copy(self) -> TypeTable:
        """Return a table with the same types and numbers, to which other types can be added."""
        table = TypeTable()
        table.known, table._number = list(self.known), dict(self._number)
        return table

    def add(self, proto: TypeProto) -> int:
        """Return the number of a type, which is added if it is new."""
        key = proto.SerializeToString(deterministic=True)
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.known)
            self.known.append(ValueType.of(TypeProto.FromString(key)))
        return number

    def tensor(self, elem_type: int, shape: Sequence[int | str | None] | None) -> int:
        """Return the number of a tensor type."""
        return self.add(onnx.helper.make_tensor_type_proto(elem_type, shape))


@dataclass(frozen=True, eq=False)
class DeclaredTypes:
    """What a file declares of its values, in the main graph and in subgraphs."""

    table: TypeTable
    of_value: Ints
    """The number in `table` of each value's type."""

    @classmethod
    def of(cls, graph: Graph, names: Names) -> DeclaredTypes:
        """Read inputs, outputs, value_info and initializers of every subgraph."""
        table, of_value = TypeTable(), np.zeros(graph.value_count, np.int32)
        inputs = graph.model.proto.graph.input
        symbols = {plain_text(dim.dim_param) for info in inputs for dim in info.type.tensor_type.shape.dim}
        numbers: dict[bytes, int] = {}

        def read(infos: Iterable[tuple[int, onnx.ValueInfoProto]]) -> None:
            for value, info in infos:
                if value < 0 or not info.HasField("type"):
                    continue
                key = info.type.SerializeToString()
                if (number := numbers.get(key)) is None:
                    number = numbers[key] = table.add(_without_numbered(info.type, symbols))
                new, old = table.known[number], table.known[of_value[value]]
                if new.dtype and (old.shape is None or new.shape is not None):
                    of_value[value] = number

        for s, subgraph in enumerate(graph.subgraphs):
            proto = subgraph.graph
            # the main graph's dictionary of names is made only if it is needed
            scope = names.scopes[s] if proto.value_info else {}
            known = [(scope.get(plain_text(info.name), -1), info) for info in proto.value_info]
            if s >= len(graph.plain.subgraphs):
                # the inputs of a call have their types from the caller
                known = [(value, info) for value, info in known if value >= 0 and graph.value_subgraph[value] == s]
            read(known)
            if subgraph.function is None:
                read(zip(names.given[s], proto.input, strict=True))
                read(zip(names.outputs[s], proto.output, strict=True))
            index, kinds = names.tables[s].types()
            of_value[subgraph.weights] = np.asarray([table.tensor(kind[0], kind[1:]) for kind in kinds])[index]
        return cls(table, of_value)

    def cover(self, graph: Graph) -> bool:
        """Return whether inference would add nothing: every made value has a complete shape, as torch exports it."""
        if len(graph.subgraphs) > 1 or len(graph.model.proto.graph.value_info) < graph.node_count // 2:
            return False
        return bool(self.is_whole[graph.producer >= 0].all())

    @functools.cached_property
    def is_whole(self) -> NDArray[np.bool_]:
        """Whether the declared type of each value has a shape without unknown dimensions."""
        whole = np.asarray([kind.shape is not None and None not in kind.shape for kind in self.table.known], bool)
        return np.asarray(whole[self.of_value], bool)


def _without_numbered(proto: TypeProto, symbols: set[str]) -> TypeProto:
    """Return a type without dimensions named "unk__7": onnx's inference numbers those it knows nothing about."""
    dims = proto.tensor_type.shape.dim if proto.HasField("tensor_type") else ()
    places = [
        place
        for place, dim in enumerate(dims)
        if _NUMBERED.fullmatch(name := plain_text(dim.dim_param)) and name not in symbols
    ]
    if places:
        copy = TypeProto()
        copy.CopyFrom(proto)
        for place in places:
            copy.tensor_type.shape.dim[place].Clear()
        return copy
    return proto
