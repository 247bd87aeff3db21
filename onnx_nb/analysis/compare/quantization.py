"""How a model is quantized: which numbers each region computes with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from onnx import TensorProto

from onnx_nb.analysis.model.tensors import attributes

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph

_BITS: Final[dict[int, int]] = {
    **dict.fromkeys((TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8), 8),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ), 4),
    **dict.fromkeys((TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 3),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4), 4),
    TensorProto.FLOAT16: 11,
    TensorProto.BFLOAT16: 8,
}
"""Significant bits of types that real numbers are rounded to."""
_PACKED: Final = frozenset(("MatMulNBits", "GatherBlockQuantized"))
"""Operators whose weights have as many bits as an attribute says."""


def precision_of(graph: Graph, nodes: Iterable[int]) -> float:
    """Return the relative precision of the coarsest numbers that nodes round to; 0 if none of them does."""
    known, names, bits = graph.model.initializers, graph.value_names, list[int]()
    for node in nodes:
        op, _ = graph.operators[int(graph.op_index[node])]
        if op in _PACKED:
            bits.append(int(attributes(graph.nodes[node]).get("bits", 4)))
        elif op == "Cast":
            target = int(attributes(graph.nodes[node]).get("to", 0))
            bits += [_BITS[target]] if target in (TensorProto.FLOAT16, TensorProto.BFLOAT16) else []
        elif "Quantize" in op or "QLinear" in op or op.endswith("Integer") or op == "QGemm":
            read = [names[value] for value in graph.node_inputs(node).tolist() if value >= 0]
            of_weights = [_BITS[kind] for name in read if name in known and (kind := known[name].dtype) in _BITS]
            bits += of_weights or [8]
    return 2.0 ** -min(bits) if bits else 0.0
