"""Types as onnxruntime writes them, for instance "seq(tensor(float))"."""

from __future__ import annotations

import functools
import re

from onnx import TensorProto, TypeProto, helper


@functools.cache
def parsed(text: str) -> TypeProto:
    """Return a type that onnxruntime wrote as a TypeProto; tensors have no shape."""
    kind, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    if kind == "seq":
        return helper.make_sequence_type_proto(parsed(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(parsed(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        return helper.make_map_type_proto(_data_type(key), parsed(value.strip()))
    if kind == "sparse_tensor":
        return helper.make_sparse_tensor_type_proto(_data_type(inner), None)
    return tensor_type(_data_type(inner))


@functools.cache
def tensor_type(data_type: int) -> TypeProto:
    """Return the type of a tensor of unknown shape."""
    return helper.make_tensor_type_proto(data_type, None)


@functools.cache
def element_type(text: str) -> int | None:
    """Return the element type of a tensor, or of the tensors in a sequence or optional; ``None`` of other types."""
    found = re.fullmatch(r"(?:optional\(|seq\()*tensor\((\w+)\)+", text)
    return None if found is None else dict(TensorProto.DataType.items()).get(found[1].upper())


def written(proto: TypeProto) -> str:
    """Return the type of a tensor, sequence or optional as onnxruntime writes it."""
    kind = proto.WhichOneof("value")
    if kind == "optional_type":
        return f"optional({written(proto.optional_type.elem_type)})"
    if kind == "sequence_type":
        return f"seq({written(proto.sequence_type.elem_type)})"
    return f"tensor({TensorProto.DataType.Name(proto.tensor_type.elem_type).lower()})"


def _data_type(name: str) -> int:
    return int(TensorProto.DataType.Value(name.strip().upper()))
