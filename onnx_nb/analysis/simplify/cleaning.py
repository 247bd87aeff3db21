"""Rules that look at a whole graph: merge equal constants, remove unused initializers and unused nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx

from onnx_nb.analysis.simplify.elements import LEFT_OUT

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.editor import Editor
    from onnx_nb.analysis.simplify.elements import Constant

CLEANING: Final = {
    "eliminate_deadend": "Remove nodes whose outputs are unused",
    "eliminate_duplicate_initializer": "Keep one of several equal constants",
    "eliminate_unused_initializer": "Remove unused initializers",
}
"""The rules, with a line about each."""


def merge_constants(net: Editor) -> None:
    """Keep one of several equal constants."""
    candidates: dict[tuple[Any, ...], list[int]] = {}
    for value, constant in net.constants.items():
        if net.readers[value] or net.is_output(value):
            key = _type(constant)
            if key is not None:
                candidates.setdefault(key, []).append(value)
    for values in candidates.values():
        if len(values) > 1:
            _merge(net, values)


def _merge(net: Editor, values: Sequence[int]) -> None:
    rule = "eliminate_duplicate_initializer"
    known: dict[tuple[Any, ...], int] = {}
    for value in values:
        key = _content(net, value)
        first = known.setdefault(key, value) if key is not None else value
        if first == value or net.is_output(value) or not net.may(rule, value):
            continue
        with net.change(rule, value, f"{net.names[first]} is the same"):
            net.same[value] = first
            net.note_tensor(value)
            net.move_readers(value, first)


def _type(known: Constant) -> tuple[Any, ...] | None:
    """Return type and shape; None for a constant that is sparse, or in a subgraph."""
    if known.subgraph or isinstance(known.tensor, onnx.SparseTensorProto):
        return None
    if known.tensor is not None:
        return known.tensor.data_type, *known.tensor.dims
    assert known.array is not None  # noqa: S101 (one of the two)
    return onnx.helper.np_dtype_to_tensor_dtype(known.array.dtype), *known.array.shape


def _content(net: Editor, value: int) -> tuple[Any, ...] | None:
    """Return what equal constants have in common; None for a constant too large to look at."""
    array = net.constant(value)
    if array is None or array.dtype.hasobject:
        return None
    digest = hashlib.sha1(np.ascontiguousarray(array).tobytes(), usedforsecurity=False).digest()
    return array.dtype.name, array.shape, digest


def remove_unused_initializers(net: Editor) -> None:
    """Remove initializers that no node reads."""
    rule = "eliminate_unused_initializer"
    for value, constant in list(net.constants.items()):
        unused = not net.readers[value] and not net.is_output(value)
        if unused and constant.is_initializer and net.may(rule, value):
            with net.change(rule, value, "no node reads it"):
                net.note_tensor(value)
                net.mark(constant.subgraph)
                del net.constants[value]


def remove_unused_nodes(net: Editor) -> None:
    """Remove nodes whose outputs are unused, in one change each; those in subgraphs too."""
    rule = "eliminate_deadend"
    for op in sorted(net.ops, key=lambda op: op.place, reverse=True):
        if op.alive and not net.is_useful(op):
            made = next((value for value in op.outputs if value >= 0), LEFT_OUT)
            if made >= 0 and net.may(rule, made):
                with net.change(rule, made, "its outputs are unused"):
                    net.remove(op)
