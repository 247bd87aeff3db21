"""What one node computes: multiply-accumulates and floating-point operations, by operator.

`MACS` and `FLOPS` say what is counted. The count of products agrees with ``torch.utils.flop_counter``, which counts
two operations for each multiply-accumulate of matrix products, convolutions and attention, and nothing else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx.defs

from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.shape_inference import BROKEN, Case
from onnx_nb.analysis.graph.types import broadcast
from onnx_nb.analysis.model.tensors import attribute

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx_nb.analysis.model.tensors import Dims

MACS = """A multiply-accumulate is one product that is added to a sum: in Conv, ConvTranspose, Gemm, MatMul, Einsum,
attention, LSTM, GRU and RNN, their quantized forms, and LinearClassifier and LinearRegressor. Taps on padding count
like others, and causal masks take nothing away."""

FLOPS = """Two for each multiply-accumulate, one for each element to which a bias is added or that a factor other than 1
scales, and for other operators, for each element, the steps of their formula in the ONNX standard: 1 for elementwise
functions and comparisons, whatever the function, 5 for Softmax (largest, difference, exponential, sum, quotient), 7 for
LayerNormalization (sum, difference, square, sum, product, scale, bias), 2 for BatchNormalization (a scale and a bias
each channel), one for each element that is reduced or each tap of a pooling window. What happens once a row does not
count. Integers count like floats. Moving, copying, casting and looking up data counts nothing."""


class UnknownCostError(Exception):
    """The cost of a node cannot be told; the message says why."""


def count(case: Case) -> tuple[float, float, str]:
    """Count what a node computes in one run, bodies and local functions apart."""
    op = plain_text(case.node.op_type)
    if not _is_known(case, op):
        named = shortened(f"{case.domain}.{op}" if case.domain else op, 100)
        return math.nan, math.nan, f"what operator {named} computes is not known"
    product = _PRODUCTS.get((op, case.domain))
    # what is neither a product nor of an unknown sort multiplies nothing into sums
    unknown_kinds = ("linear", "other", "control")
    has_products = product is not None or operators.CATEGORIES[operators.category(op, case.domain)] in unknown_kinds
    try:
        macs, others = product(case) if product is not None else (0, _others(case, op))
        return macs, 2 * macs + others, ""
    except UnknownCostError as unknown:
        return math.nan if has_products else 0.0, math.nan, str(unknown)
    except BROKEN:
        return math.nan, math.nan, f"attributes or shapes are not those of {op}"


def _is_known(case: Case, op: str) -> bool:
    if case.domain in operators.onnx_domains():
        return case.known_operator
    if case.domain == "com.microsoft":
        tabled = (op, case.domain) in _PRODUCTS or op in _BY_OUTPUT or op in _BY_INPUT or op in _WINDOWS
        return tabled or operators.schema(op, "", onnx.defs.onnx_opset_version()) is not None
    return False


def _shape(case: Case, place: int, *, output: bool = False) -> tuple[int, ...]:
    kinds = case.outputs if output else case.inputs
    kind = kinds[place] if place < len(kinds) else None
    what = f"{'output' if output else 'input'} {place}"
    if kind is None:
        raise UnknownCostError(f"{what} is left out")
    if kind.shape is None:
        raise UnknownCostError(f"the shape of {what} is unknown")
    return _sizes(kind.shape, what)


def _sizes(shape: Dims, what: str) -> tuple[int, ...]:
    found = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, str):
            raise UnknownCostError(f"{shortened(dim, 60)!r}, the size of axis {axis} of {what}, is not known")
        if dim is None or dim < 0:
            raise UnknownCostError(f"the size of axis {axis} of {what} is unknown")
        found.append(dim)
    return tuple(found)


def _has(case: Case, place: int) -> bool:
    return place < len(case.inputs) and case.inputs[place] is not None


def _elements(case: Case, place: int = 0, *, output: bool = True) -> int:
    return math.prod(_shape(case, place, output=output))


def _ranked(shape: tuple[int, ...], rank: int, what: str) -> tuple[int, ...]:
    if len(shape) < rank:
        raise UnknownCostError(f"{what} has {len(shape)} axes, and {rank} are needed")
    return shape


def _conv(weight: int, bias: int) -> Callable[[Case], tuple[int, int]]:
    def counted(case: Case) -> tuple[int, int]:
        out = _elements(case)
        return out * math.prod(_shape(case, weight)[1:]), out if _has(case, bias) else 0

    return counted


def _conv_transpose(case: Case) -> tuple[int, int]:
    # each element of the input is multiplied with the whole kernel
    macs = _elements(case, output=False) * math.prod(_shape(case, 1)[1:])
    return macs, _elements(case) if _has(case, 2) else 0


def _matmul(case: Case, second: int = 1) -> tuple[int, int]:
    first = _ranked(_shape(case, 0), 1, "input 0")
    other = _ranked(_shape(case, second), 1, f"input {second}")
    depth = first[-2] if len(first) > 1 and attribute(case.node, "transA", 0) else first[-1]
    rows = first[-1] if len(first) > 1 and attribute(case.node, "transA", 0) else math.prod(first[-2:-1])
    columns = 1 if len(other) < 2 else other[-2] if attribute(case.node, "transB", 0) else other[-1]
    batch = broadcast(first[:-2], other[:-2]) if len(first) > 2 or len(other) > 2 else ()
    if batch is None:
        raise UnknownCostError(f"input 0 and input {second} do not fit each other")
    size = math.prod(_sizes(batch, "the batch")) * rows * columns
    scaled = size if attribute(case.node, "alpha", 1.0) != 1.0 else 0
    return size * depth, scaled


def _gemm(case: Case) -> tuple[int, int]:
    macs, others = _matmul(case)
    if _has(case, 2):
        out = _elements(case)
        others += out + (_elements(case, 2, output=False) if attribute(case.node, "beta", 1.0) != 1.0 else 0)
    return macs, others


def _matmul_nbits(case: Case) -> tuple[int, int]:
    columns = attribute(case.node, "N", 0)
    rows = _elements(case, output=False)
    return rows * columns, 0


def _einsum(case: Case) -> tuple[int, int]:
    """Count the contraction of the operands from left to right, as onnxruntime does it."""
    left, arrow, result = plain_text(attribute(case.node, "equation", b"")).replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(case.inputs):
        raise UnknownCostError(f"the equation has {len(terms)} operands and the node {len(case.inputs)}")
    sizes: dict[str, int] = {}
    labels: list[set[str]] = []
    for place, term in enumerate(terms):
        shape = _shape(case, place)
        named = _labels(term, len(shape))
        if len(named) != len(shape):
            raise UnknownCostError(f"input {place} has {len(shape)} axes and {len(named)} labels")
        for label, size in zip(named, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
        labels.append(set(named))
    if arrow:
        kept = set(_labels(result, None)) | {label for label in sizes if label.isdigit() and "..." in result}
    else:
        kept = {label for label in sizes if label.isdigit() or left.count(label) == 1}

    def extent(wanted: set[str]) -> int:
        return math.prod(sizes[label] for label in wanted)

    macs = others = 0
    done = labels[0]
    for place, more in enumerate(labels[1:], 1):
        needed = kept.union(*labels[place + 1 :])
        both = []
        for one, other in ((done, more), (more, done)):
            alone = one - other - needed
            others += extent(one) if alone else 0  # these are summed before
            both.append(one - alone)
        union = both[0] | both[1]
        contracted = union - needed
        if contracted:
            macs += extent(union)
        else:
            others += extent(union)
        done = union - contracted
    if done - kept:
        others += extent(done)
    return macs, others


def _labels(term: str, rank: int | None) -> list[str]:
    """Return the label of each axis; axes of an ellipsis are numbered from the last."""
    before, dots, after = term.partition("...")
    hidden = max((rank or 0) - len(before) - len(after), 0) if dots else 0
    return [*before, *map(str, range(hidden, 0, -1)), *after]


def _attended(scores: int, width: int, value_width: int) -> tuple[int, int]:
    """Count scores and their softmax, and the weighted sum of values."""
    return scores * (width + value_width), 6 * scores  # a scale, and the five of Softmax


def _attention(case: Case) -> tuple[int, int]:
    query, key, value = (_shape(case, place) for place in range(3))
    if len(query) == 4:
        batch, heads, rows, width = query
        value_width = _ranked(value, 4, "input 2")[3]
        columns = _ranked(key, 4, "input 1")[2]
    else:
        heads, shared = attribute(case.node, "q_num_heads", 0), attribute(case.node, "kv_num_heads", 0)
        if len(query) != 3 or len(key) != 3 or len(value) != 3 or not heads or not shared:
            raise UnknownCostError("heads are not told")
        batch, rows, width = query[0], query[1], query[2] // heads
        columns, value_width = key[1], value[2] // shared
    if _has(case, 4):
        columns += _ranked(_shape(case, 4), 4, "input 4")[2]
    macs, others = _attended(batch * heads * rows * columns, width, value_width)
    return macs, others + (batch * heads * rows * columns if _has(case, 3) else 0)


def _multi_head(case: Case) -> tuple[int, int]:
    heads = max(attribute(case.node, "num_heads", 0), 1)
    query = _shape(case, 0)
    batch, rows = query[:2]
    if len(query) == 5:  # query, key and value in one: (batch, rows, heads, 3, width)
        width = value_width = query[4]
        columns = rows
    else:
        width = query[2] // heads
        key = _shape(case, 1)
        if len(key) == 5:  # key and value in one: (batch, columns, heads, 2, width)
            columns, value_width = key[1], key[4]
        else:
            value = _shape(case, 2)
            columns = key[2] if len(key) == 4 else key[1]
            value_width = value[3] if len(value) == 4 else value[2] // heads
    if _has(case, 6):
        columns += _ranked(_shape(case, 6), 4, "input 6")[2]
    macs, others = _attended(batch * heads * rows * columns, width, value_width)
    others += math.prod(query) if _has(case, 3) else 0
    return macs, others + sum(batch * heads * rows * columns for place in (4, 5) if _has(case, place))


def _packed_attention(case: Case) -> tuple[int, int]:
    """Count com.microsoft's Attention, which projects its input too."""
    batch, rows, _ = _ranked(_shape(case, 0), 3, "input 0")
    hidden, width = _ranked(_shape(case, 1), 2, "input 1")
    heads = max(attribute(case.node, "num_heads", 0), 1)
    sizes = attribute(case.node, "qkv_hidden_sizes") or [width // 3] * 3
    columns = rows + (_ranked(_shape(case, 4), 5, "input 4")[3] if _has(case, 4) else 0)
    macs, others = _attended(batch * heads * rows * columns, sizes[0] // heads, sizes[2] // heads)
    projected = batch * rows * width
    return macs + projected * hidden, others + (projected if _has(case, 2) else 0)


def _grouped_attention(case: Case) -> tuple[int, int]:
    heads, shared = attribute(case.node, "num_heads", 0), attribute(case.node, "kv_num_heads", 0)
    batch, rows, hidden = _ranked(_shape(case, 0), 3, "input 0")
    if not heads:
        raise UnknownCostError("heads are not told")
    width = hidden // (heads if _has(case, 1) else heads + 2 * shared)
    total = case.values[6] if len(case.values) > 6 else None
    if total is not None and total.size == 1:
        columns = int(total.reshape(-1)[0])
    elif not _has(case, 3) or 0 in _shape(case, 3):
        columns = rows
    else:
        raise UnknownCostError("how much of the past is in use depends on input 6")
    return _attended(batch * heads * rows * columns, width, width)


def _recurrent(gates: int, per_cell: int) -> Callable[[Case], tuple[int, int]]:
    """Count a recurrent layer; ``per_cell`` are the steps of one cell behind its products and biases."""

    def counted(case: Case) -> tuple[int, int]:
        steps = math.prod(_ranked(_shape(case, 0), 3, "input 0")[:2])
        directions, _, cells = _ranked(_shape(case, 2), 3, "input 2")
        macs = steps * (_elements(case, 1, output=False) + _elements(case, 2, output=False))
        others = steps * directions * cells * per_cell
        if _has(case, 3):
            others += steps * directions * cells * gates * 2
        if gates == 4 and _has(case, 7):  # peepholes: three products and three sums
            others += steps * directions * cells * 6
        return macs, others

    return counted


def _linear_model(case: Case) -> tuple[int, int]:
    rows = math.prod(_shape(case, 0)[:-1])
    coefficients = len(attribute(case.node, "coefficients", ()))
    return rows * coefficients, rows * len(attribute(case.node, "intercepts", ()))


_PRODUCTS: dict[tuple[str, str], Callable[[Case], tuple[int, int]]] = {
    ("Attention", ""): _attention,
    ("Conv", ""): _conv(1, 2),
    ("ConvInteger", ""): _conv(1, 9),
    ("ConvTranspose", ""): _conv_transpose,
    ("Einsum", ""): _einsum,
    ("Gemm", ""): _gemm,
    ("GRU", ""): _recurrent(3, 11),  # 2 sums, 3 functions, reset: product and sum, update: difference, 2 products, sum
    ("LSTM", ""): _recurrent(
        4, 13
    ),  # 4 sums, 5 functions, 2 products and a sum for the state, a product for the output
    ("MatMul", ""): _matmul,
    ("MatMulInteger", ""): _matmul,
    ("QLinearConv", ""): _conv(3, 8),
    ("QLinearMatMul", ""): lambda case: _matmul(case, 3),
    ("RNN", ""): _recurrent(1, 2),
    ("LinearClassifier", "ai.onnx.ml"): _linear_model,
    ("LinearRegressor", "ai.onnx.ml"): _linear_model,
    ("Attention", "com.microsoft"): _packed_attention,
    ("DynamicQuantizeMatMul", "com.microsoft"): _matmul,
    ("FusedConv", "com.microsoft"): _conv(1, 2),
    ("FusedGemm", "com.microsoft"): _gemm,
    ("FusedMatMul", "com.microsoft"): _matmul,
    ("GroupQueryAttention", "com.microsoft"): _grouped_attention,
    ("MatMulIntegerToFloat", "com.microsoft"): _matmul,
    ("MatMulNBits", "com.microsoft"): _matmul_nbits,
    ("MultiHeadAttention", "com.microsoft"): _multi_head,
    ("TransposeMatMul", "com.microsoft"): _matmul,
}

# Steps for each element of the first output…
_BY_OUTPUT = {
    "BatchNormalization": 2,
    "BiasAdd": 1,
    "BiasGelu": 2,
    "BiasSoftmax": 6,
    "DequantizeLinear": 2,
    "EmbedLayerNormalization": 9,
    "FastGelu": 1,
    "GroupNormalization": 7,
    "GroupNorm": 7,
    "InstanceNormalization": 7,
    "LayerNormalization": 7,
    "LogSoftmax": 5,
    "LpNormalization": 3,
    "MeanVarianceNormalization": 5,
    "QuantizeLinear": 3,
    "QLinearAdd": 1,
    "QLinearConcat": 0,
    "QLinearLeakyRelu": 1,
    "QLinearMul": 1,
    "QLinearSigmoid": 1,
    "QLinearSoftmax": 5,
    "QuickGelu": 1,
    "RMSNormalization": 4,
    "RotaryEmbedding": 3,
    "SimplifiedLayerNormalization": 4,
    "SkipLayerNormalization": 8,
    "SkipSimplifiedLayerNormalization": 5,
    "Softmax": 5,
}
# … or of the first input.
_BY_INPUT = {
    "ArgMax": 1,
    "ArgMin": 1,
    "CumProd": 1,
    "CumSum": 1,
    "DynamicQuantizeLinear": 5,
    "GlobalAveragePool": 1,
    "GlobalLpPool": 2,
    "GlobalMaxPool": 1,
    "QLinearGlobalAveragePool": 1,
    "ReduceL1": 2,
    "ReduceL2": 2,
    "ReduceLogSum": 1,
    "ReduceLogSumExp": 2,
    "ReduceMax": 1,
    "ReduceMean": 1,
    "ReduceMin": 1,
    "ReduceProd": 1,
    "ReduceSum": 1,
    "ReduceSumSquare": 2,
}
_WINDOWS = {"AveragePool": 1, "MaxPool": 1, "LpPool": 2, "QLinearAveragePool": 1}
_VARIADIC = {"Max": -1, "Mean": 0, "Min": -1, "Sum": -1}
# What these do depends on the values that they get, or is no formula of few steps.
_OPEN = """
    Bernoulli CDist Det DFT Inverse MaxRoiPool MaxUnpool Multinomial NegativeLogLikelihoodLoss NonMaxSuppression
    RoiAlign SoftmaxCrossEntropyLoss TopK Unique"""
_NOTHING = frozenset({"Cast", "CastLike", "BitCast", "CastMap", "Dropout", "Imputer"})


def _others(case: Case, op: str) -> int:
    """Count the steps of an operator that is no product."""
    kind = operators.CATEGORIES[operators.category(op, case.domain)]
    if op in _OPEN.split():
        raise UnknownCostError(f"the steps of {op} are not counted")
    if op in ("Resize", "Upsample", "GridSample"):
        return _interpolated(case, op)
    if kind in ("shape", "input") or op in _NOTHING:
        return 0
    if op == "LRN":
        return _elements(case) * (int(attribute(case.node, "size", 1)) + 5)
    if op in _WINDOWS:
        taps: int = math.prod(attribute(case.node, "kernel_shape", ()))
        return _elements(case) * taps * _WINDOWS[op]
    if op in _VARIADIC:
        return _elements(case) * (len(case.inputs) + _VARIADIC[op])
    if op in _BY_INPUT:
        return _elements(case, output=False) * _BY_INPUT[op]
    if op in _BY_OUTPUT:
        return _elements(case) * (_BY_OUTPUT[op] - _without_bias(case, op))
    if kind in ("activation", "arithmetic", "random"):
        return _elements(case)
    raise UnknownCostError(f"the steps of {op} are not counted")


def _without_bias(case: Case, op: str) -> int:
    return 1 if op == "LayerNormalization" and not _has(case, 2) else 0


def _interpolated(case: Case, op: str) -> int:
    """Count the taps of an interpolation: a product and a sum each."""
    mode = plain_text(attribute(case.node, "mode", b"nearest" if op != "GridSample" else b"linear"))
    if mode == "nearest":
        return 0
    out, given = _shape(case, 0, output=True), _shape(case, 0)
    axes = sum(a != b for a, b in zip(out, given, strict=False)) if op != "GridSample" else len(out) - 2
    taps: int = (4 if mode in ("cubic", "bicubic") else 2) ** axes
    return 2 * math.prod(out) * taps
