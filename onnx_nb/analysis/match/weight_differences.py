"""How the values of two weights differ, and those of quantizers by the factor that a scale moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Final

import numpy as np
import onnx

from onnx_nb.analysis.formatting import number_text
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.match.graph_lists import Weights, undocumented
from onnx_nb.analysis.model import tensors

ROLES: Final = ("scale", "zero point")
"""What a weight of a quantizer is."""


def unequal_values(one: Weights, other: Weights, v: int, w: int, check: Callable[[], None]) -> str:
    """Describe the difference between the values of two weights of one type; call ``check`` between pieces."""
    old, new = one.proto(v), other.proto(w)
    if isinstance(old, onnx.SparseTensorProto) or isinstance(new, onnx.SparseTensorProto):
        parts = [(undocumented(w.values), undocumented(w.indices)) for w in (old, new) if hasattr(w, "indices")]
        return "" if len(parts) == 2 and parts[0] == parts[1] else "other values"
    if old.data_type == onnx.TensorProto.STRING:
        strings = tensors.values(old, one.label(v)), tensors.values(new, other.label(w))
        count = int(np.sum(strings[0] != strings[1]))
        return f"{count} of {strings[0].size} differ" if count else ""
    if old.HasField("raw_data") and old.raw_data == new.raw_data:
        return ""
    content, others = one.content(v, old), other.content(w, new)
    if content.ctypes.data == others.ctypes.data:  # the same bytes of the same file, which are not read
        return ""
    is_subbyte = tensors.stored_bytes(onnx.TensorProto(data_type=old.data_type, dims=[8]), "a weight") < 8
    dtype = (None if is_subbyte else tensors.numpy_dtype(old.data_type)) or np.dtype(np.uint8)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    count, largest = 0, 0.0
    for pieces in zip(one.pieces(v, old), other.pieces(w, new), strict=True):
        if not np.array_equal(*pieces):
            differ = np.any(pieces[0].reshape(-1, dtype.itemsize) != pieces[1].reshape(-1, dtype.itemsize), axis=1)
            count += int(differ.sum())
            delta = np.abs(np.subtract(*(piece.view(dtype)[differ].astype(wide) for piece in pieces)))
            largest = max(largest, float(np.max(delta, initial=0.0, where=np.isfinite(delta))))
        check()
    if not count or is_subbyte:
        return "other values" if count else ""
    return f"{count:,} of {len(content) // dtype.itemsize:,} differ, by at most {largest:.3g}"


def quantizer_roles(graph: Graph) -> dict[int, str]:
    """Return which weights are the scales and zero points of quantizers."""
    roles = dict[int, str]()
    for index, operator in enumerate(graph.operators):
        row = operators.facts(*operator)
        slots = [*row.scales.values(), row.out]
        for node in np.flatnonzero(graph.op_index == index).tolist() if row.scales else ():
            inputs = graph.node_inputs(node).tolist()
            for slot, role in itertools.chain.from_iterable(zip(pair, ROLES, strict=True) for pair in slots):
                if 0 <= slot < len(inputs) and inputs[slot] >= 0:
                    roles[inputs[slot]] = role
    return roles


def requantization(one: Weights, other: Weights, v: int, w: int, role: str) -> tuple[float, tuple[str, str]] | None:
    """Return the logarithm of the largest factor between scales, and how scales or zero points of one type moved.

    The factor is infinite where there are more or fewer. None if this says less than that their values differ.
    """
    protos = one.proto(v), other.proto(w)
    kinds = {-1 if isinstance(proto, onnx.SparseTensorProto) else proto.data_type for proto in protos}
    if len(kinds) > 1 or kinds & {-1, onnx.TensorProto.STRING}:
        return None
    parts = zip((one, other), (v, w), protos, strict=True)
    arrays = [tensors.decoded(side.content(at, proto), proto, side.label(at)) for side, at, proto in parts]
    is_scale = role == "scale"
    if arrays[0].shape != arrays[1].shape:
        words = ["per tensor" if x.size == 1 else "per channel" if x.ndim == 1 else "in blocks" for x in arrays]
        return (math.inf if is_scale else 0.0, (words[0], words[1])) if words[0] != words[1] else None
    old, new = (array.astype(np.float64).ravel() for array in arrays)
    with np.errstate(all="ignore"):
        moves = np.abs(np.nan_to_num(np.log(new / old), posinf=0.0, neginf=0.0) if is_scale else new - old)
    at, more = int(moves.argmax()), ""
    if is_scale and moves[at]:
        more = f", {'×' if new[at] > old[at] else '÷'} {math.exp(moves[at]):.3g}"
    more += f" in channel {at} of {old.size:,}" if old.size > 1 else ""
    texts = number_text(float(old[at]), 3), number_text(float(new[at]), 3) + more
    return float(moves[at]) if is_scale else 0.0, texts
