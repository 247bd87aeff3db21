"""What onnx's inference leaves out: integers by which exporters compute shapes, and operators of onnxruntime."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.types import ValueType, is_static
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.tensors import attribute

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.shape_walk import Case
    from onnx_nb.analysis.model.tensors import Dims

INTEGERS = 256
"""Elements of the largest tensors of integers or booleans that are computed."""
FLOATS = 8
"""Elements of the largest tensors of floats that are computed: they become sizes after a factor."""

# Operators by which exporters compute shapes; they are computed if all their inputs are known.
_ARITHMETIC = """
    Abs Add And Cast Ceil Concat Constant ConstantOfShape CumSum Div Equal Expand Flatten Floor Gather
    GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range
    ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Sign Slice Split Sqrt Squeeze
    Sub Sum Tile Transpose Trilu Unsqueeze Where Xor"""
_COMPUTED = frozenset(_ARITHMETIC.split())
# Operators whose float inputs decide their shapes.
FLOATS_WANTED = frozenset({"Resize", "Upsample"})


def is_integer(kind: ValueType) -> bool:
    """Return whether a tensor holds integers or booleans, few enough that their values may be known."""
    dtype, size = tensors.numpy_dtype(kind.elem_type), kind.size
    return dtype is not None and size is not None and dtype.kind in "iub" and size <= INTEGERS


def is_small(kind: ValueType) -> bool:
    """Return whether a tensor is small enough that its values may be known."""
    size = kind.size
    return is_integer(kind) or (size is not None and size <= FLOATS and tensors.numpy_dtype(kind.elem_type) is not None)


def computed(case: Case) -> list[NDArray[Any]] | None:
    """Compute the outputs of a node if all its inputs are known and everything is small; None if not."""
    op = plain_text(case.node.op_type)
    outputs = [kind for kind in case.outputs if kind is not None]
    if case.domain or not outputs or len(outputs) < len(case.outputs) or (op != "Split" and len(outputs) > 1):
        return None
    shape = case.inputs[0].shape if case.inputs and case.inputs[0] is not None else None
    if op == "Shape" and shape is not None:
        part = shape[slice(attribute(case.node, "start", 0), attribute(case.node, "end"))]
        return [np.asarray(part, np.int64)] if is_static(part) else None
    if op == "Size" and is_static(shape) and math.prod(shape) < 2**63:
        return [np.asarray(math.prod(shape), np.int64)]
    unread = any(kind is not None and value is None for kind, value in zip(case.inputs, case.values, strict=True))
    if op not in _COMPUTED or unread or not all(map(is_small, outputs)):
        return None
    names = list(dict.fromkeys(plain_text(name) for name in case.node.input if name))
    infos = [onnx.ValueInfoProto(name=name) for name in names]
    graph = onnx.helper.make_graph([case.node], "", infos, [onnx.ValueInfoProto(name=n) for n in case.node.output])
    feeds = {plain_text(name): value for name, value in zip(case.node.input, case.values, strict=True) if name}
    try:
        with np.errstate(all="ignore"):
            made = _evaluator()(graph, opsets={"": case.version}).run(None, feeds)
    except Exception:  # noqa: BLE001 (onnx's reference raises any kind; what is unknown then is reported)
        return None
    return [np.asarray(array) for array in made] if len(made) == len(outputs) else None


def _evaluator() -> Any:
    from onnx.reference import ReferenceEvaluator  # imports a module for every operator

    return ReferenceEvaluator


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
