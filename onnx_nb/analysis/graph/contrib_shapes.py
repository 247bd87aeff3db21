"""Shapes of operators of onnxruntime (``com.microsoft``), which onnx knows nothing about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.model.nodes import attribute

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.shape_walk import Case
    from onnx_nb.analysis.model.value_info import Dims

# Operators without inference in onnx whose output has the shape of their first input…
_UNCHANGED = """
    GroupNormalization MeanVarianceNormalization
    BiasAdd BiasGelu BiasSoftmax DequantizeBFP FastGelu Gelu GroupNorm QLinearLeakyRelu QLinearSigmoid QLinearSoftmax
    QuickGelu RotaryEmbedding SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization"""
# … or the shape that a standard operator makes of some of their inputs.
STAND_INS: dict[str, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys(_UNCHANGED.split(), ("Identity", (0,))),
    "EmbedLayerNormalization": ("Gather", (2, 0)),
    "FusedConv": ("Conv", (0, 1)),
    "FusedGemm": ("Gemm", (0, 1)),
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QLinearMul": ("Mul", (0, 3)),
}


def broadcast(*shapes: Dims) -> Dims | None:
    """Return the shape that shapes are broadcast to; None if they do not fit."""
    result: list[int | str | None] = []
    for axis in range(max(map(len, shapes))):
        sizes = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) > 1:
            return None
        result.append(numbers[0] if numbers else 1 if not sizes else sizes.pop() if len(sizes) == 1 else None)
    return tuple(result[::-1])


def contrib_shape(case: Case) -> Dims | None:
    """Return the shape of the first output of an operator; None if it is unknown."""
    op, node = plain_text(case.node.op_type), case.node
    shapes = [kind.shape if kind is not None else None for kind in case.inputs] + [None] * 3
    first, second, third = shapes[:3]
    if first is None:
        return None
    if op in ("FusedMatMul", "TransposeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        if second is None or len(first) < 2 or len(second) < 2:
            return None
        rows = first[-1] if attribute(node, "transA", 0) else first[-2]
        columns = second[-2] if attribute(node, "transB", 0) else second[-1]
        batch = broadcast(first[:-2], second[:-2]) if len(first) > 2 or len(second) > 2 else ()
        return None if batch is None else (*batch, rows, columns)
    if op == "MatMulNBits":
        return (*first[:-1], attribute(node, "N"))
    if op == "MultiHeadAttention" and len(first) == 3 and third is not None:
        hidden = third[-1] if len(third) == 3 else _product(third[1], third[3]) if len(third) == 4 else None
        return (*first[:2], hidden)
    if op == "Attention" and len(first) == 3:
        sizes = attribute(node, "qkv_hidden_sizes")
        thirds = second[-1] if second else None
        return (*first[:2], sizes[2] if sizes else thirds // 3 if isinstance(thirds, int) else None)
    if op == "GroupQueryAttention" and len(first) == 3:
        if second is not None:
            return first
        heads, shared, hidden = attribute(node, "num_heads", 0), attribute(node, "kv_num_heads", 0), first[2]
        if isinstance(hidden, int) and heads:
            return (*first[:2], hidden * heads // (heads + 2 * shared))
    return None


def _product(one: int | str | None, other: int | str | None) -> int | None:
    return one * other if isinstance(one, int) and isinstance(other, int) else None
