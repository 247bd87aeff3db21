"""Declared types of a model's inputs and outputs: shapes as tuples, types as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import TypeProto, ValueInfoProto

from onnx_nb.analysis.formatting import plain_text, quoted, shortened
from onnx_nb.analysis.model.tensors import dtype_name

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

Dims = tuple[int | str | None, ...]
"""Sizes of a declared shape: a number, a symbol, or ``None`` where the size is not declared."""


@dataclass(frozen=True)
class ValueInfo:
    """Declared type of a graph input or output."""

    name: str
    dtype: str
    """Element type, as ``"float32"``; of a sequence, optional or map its whole type, as ``"seq(float32 [n, 3])"``."""
    shape: Dims | None
    """``None`` if the rank is not declared, or the value is not a tensor."""


def value_info(proto: ValueInfoProto) -> ValueInfo:
    """Return the declared type of a graph input or output."""
    if proto.type.WhichOneof("value") not in ("tensor_type", "sparse_tensor_type"):
        return ValueInfo(plain_text(proto.name), type_text(proto.type), None)
    return ValueInfo(plain_text(proto.name), dtype_name(_tensor(proto.type).elem_type), dimensions(proto.type))


def input_types(model: Model) -> dict[str, TypeProto]:
    """Return the declared type of each input, those that have an initializer included."""
    return {plain_text(value.name): value.type for value in model.proto.graph.input}


def type_text(kind: TypeProto) -> str:
    """Write a type as ``float32 [batch, 3, ?]``."""
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return f"seq({type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({dtype_name(kind.map_type.key_type)}, {type_text(kind.map_type.value_type)})"
    if which not in ("tensor_type", "sparse_tensor_type"):
        return "a value of unknown type"
    declared = dimensions(kind)
    shape = "" if declared is None else " " + dimensions_text(declared)
    return f"{'sparse ' if which == 'sparse_tensor_type' else ''}{dtype_name(_tensor(kind).elem_type)}{shape}"


def dimensions(kind: TypeProto) -> Dims | None:
    """Return the declared shape of a tensor type; ``None`` if even the rank is unknown."""
    tensor = _tensor(kind)
    if not tensor.HasField("shape"):
        return None
    return tuple(
        # a negative size says nothing, as onnxruntime has it
        (dim.dim_value if dim.dim_value >= 0 else None)
        if dim.HasField("dim_value")
        else plain_text(dim.dim_param) or None
        for dim in tensor.shape.dim
    )


def _tensor(kind: TypeProto) -> TypeProto.Tensor | TypeProto.SparseTensor:
    return kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else kind.tensor_type


def dimensions_text(shape: Sequence[int | str | None]) -> str:
    """Return a declared shape as ``[batch, 3, ?]``."""
    return f"[{listed(shape, lambda dim: '?' if dim is None else shortened(str(dim), 60), 12)}]"


def listed(items: Iterable[Any], write: Callable[[Any], str] = quoted, limit: int = 8) -> str:
    """Write the first of what may be many."""
    written = list(items)
    more = [f"… ({len(written) - limit} more)"] if len(written) > limit else []
    return ", ".join([*map(write, written[:limit]), *more])


def fits(declared: Dims, shape: Sequence[int]) -> bool:
    """Return whether an array of ``shape`` fits a declared shape, symbols taken as any size."""
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True)
    )
