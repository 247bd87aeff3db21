"""What an attribute holds, in words: the same wherever attributes are read out or compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from onnx_nb.analysis.model.tensors import dtype_name

LONGEST = 2000
"""Longer texts are cut: a stranger's model may hold megabytes in an attribute."""


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """Return the value of an attribute in words: a number, a text, or the kind of thing it holds."""
    kind = onnx.AttributeProto
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    match attribute.type:
        case kind.GRAPH:
            return f"a graph of {len(attribute.g.node)} nodes"
        case kind.GRAPHS:
            return f"{len(attribute.graphs)} graphs"
        case kind.TENSOR:
            shape = "×".join(map(str, attribute.t.dims)) or "scalar"
            return f"{shape} {dtype_name(attribute.t.data_type)}"
        case kind.TENSORS | kind.SPARSE_TENSOR | kind.SPARSE_TENSORS | kind.TYPE_PROTO | kind.TYPE_PROTOS:
            return str(kind.AttributeType.Name(attribute.type)).lower().replace("_", " ")
        case kind.STRING:
            return attribute.s[:LONGEST].decode("utf-8", "replace")
        case kind.STRINGS:
            return ", ".join(text[:LONGEST].decode("utf-8", "replace") for text in attribute.strings[:100])
        case kind.INTS | kind.FLOATS:
            numbers = attribute.ints if attribute.type == kind.INTS else attribute.floats
            return ", ".join(_number(number) if isinstance(number, float) else str(number) for number in numbers[:200])
        case kind.INT:
            return str(attribute.i)
        case kind.FLOAT:
            return _number(attribute.f)
        case other:
            return f"of unknown type {other}"


def default_text(value: Any) -> str:
    """Write a default as `attribute_text` writes an attribute."""
    if isinstance(value, list | tuple):
        return ", ".join(map(default_text, value))
    return _number(value) if isinstance(value, float) else str(value)


def _number(number: float) -> str:
    """Write a float attribute, which is a float32, with no more digits than tell it from its neighbors."""
    return str(np.float32(number))
