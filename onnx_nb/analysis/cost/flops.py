"""The work of one node: multiply-accumulates and floating-point operations, by operator; see `costs`.

The count of products agrees with ``torch.utils.flop_counter``, which counts two operations for each multiply-accumulate
of matrix products, convolutions and attention, and nothing else.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx.defs

from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.shape_inference import BROKEN, Case
from onnx_nb.analysis.graph.types import broadcast
from onnx_nb.analysis.model.tensors import attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.operators import Operator


class UnknownCostError(Exception):
    """Raised for a node with an unknown cost; the message is the reason."""


def count(case: Case) -> tuple[float, float, str]:
    """Count the operations of a node in one run, without bodies and local functions."""
    op = plain_text(case.node.op_type)
    facts = operators.facts(op, case.domain)
    is_listed = facts.cost != "?" or operators.schema(op, "", onnx.defs.onnx_opset_version()) is not None
    if not case.known_operator and not (is_listed and operators.is_contributed(op, case.domain)):
        named = shortened(f"{case.domain}.{op}" if case.domain else op, 100)
        return math.nan, math.nan, f"what operator {named} computes is not known"
    # operators of other known categories have no multiply-accumulates
    has_products = facts.category in ("linear", "other", "control")
    try:
        macs, others = _counted(case, op, facts)
        return macs, 2 * macs + others, ""
    except UnknownCostError as unknown:
        return math.nan if has_products else 0.0, math.nan, str(unknown)
    except BROKEN:
        return math.nan, math.nan, f"attributes or shapes are not those of {op}"


def _counted(case: Case, op: str, facts: Operator) -> tuple[int, int]:
    """Return the products and the other steps of a node, by the rule of the table of operators."""
    if facts.cost == "?":
        raise UnknownCostError(f"the steps of {op} are not counted")
    if facts.cost in _RULES:
        return _RULES[facts.cost](case, facts)
    sum_, _, unit = facts.cost.partition("/")
    number, _, bias = sum_.partition("+")
    steps = int(number) + (bias != "" and _has(case, int(bias)))
    if unit == "input":
        return 0, steps * _read(case)
    if unit == "tap":
        taps: int = math.prod(attribute(case.node, "kernel_shape", ()))
        return 0, steps * _made(case) * taps
    if unit == "operand":
        return 0, _made(case) * (len(case.inputs) + steps)
    return 0, steps * _made(case) if steps else 0


def _shape(case: Case, place: int, rank: int = 0, *, output: bool = False) -> tuple[int, ...]:
    """Return the sizes of an input or output, which has at least ``rank`` axes."""
    kinds = case.outputs if output else case.inputs
    kind = kinds[place] if place < len(kinds) else None
    what = f"{'output' if output else 'input'} {place}"
    if kind is None:
        raise UnknownCostError(f"{what} is left out")
    if kind.shape is None:
        raise UnknownCostError(f"the shape of {what} is unknown")
    dims = []
    for axis, dim in enumerate(kind.shape):
        if isinstance(dim, str):
            raise UnknownCostError(f"{shortened(dim, 60)!r}, the size of axis {axis} of {what}, is not known")
        if dim is None or dim < 0:
            raise UnknownCostError(f"the size of axis {axis} of {what} is unknown")
        dims.append(dim)
    if len(dims) < rank:
        raise UnknownCostError(f"{what} has {len(dims)} axes, and {rank} are needed")
    return tuple(dims)


def _has(case: Case, place: int) -> bool:
    return 0 <= place < len(case.inputs) and case.inputs[place] is not None


def _read(case: Case, place: int = 0) -> int:
    """Return the elements of an input."""
    return math.prod(_shape(case, place))


def _made(case: Case) -> int:
    """Return the elements of the first output."""
    return math.prod(_shape(case, 0, output=True))


def _conv(case: Case, facts: Operator, *, is_transposed: bool = False) -> tuple[int, int]:
    """Count a filter for each element of the output; for each one of the input if it is transposed."""
    out = _made(case)
    filters = math.prod(_shape(case, facts.weights[0])[1:])
    return (_read(case) if is_transposed else out) * filters, out if _has(case, facts.bias) else 0


def _causal_conv(case: Case, facts: Operator) -> tuple[int, int]:
    """Count a convolution, and the Sigmoid and the product of an activation, whatever it is called."""
    macs, bias = _conv(case, facts)
    is_plain = plain_text(attribute(case.node, "activation", b"none")) == "none"
    return macs, bias + (0 if is_plain else 2 * _made(case))


def _deform_conv(case: Case, facts: Operator) -> tuple[int, int]:
    """Count a convolution whose taps are interpolated from four neighbors, each once for all filters that read it."""
    out, kernel = _shape(case, 0, 3, output=True), math.prod(_shape(case, 1)[2:])
    taps = math.prod(out) // max(out[1], 1) * _shape(case, 0, 3)[1] * kernel
    macs, bias = _conv(case, facts)
    return macs, bias + taps * (8 + _has(case, 4))  # a product and a sum for each neighbor, and the mask


def _matmul(case: Case, facts: Operator) -> tuple[int, int]:
    second = facts.weights[0]
    first, other = _shape(case, 0, 1), _shape(case, second, 1)
    rows, depth = (1, *first)[-2:]
    if len(first) > 1 and attribute(case.node, "transA", 0):
        rows, depth = depth, rows
    columns = 1 if len(other) < 2 else other[-2 if attribute(case.node, "transB", 0) else -1]
    batch = broadcast(first[:-2], other[:-2])
    if batch is None:
        raise UnknownCostError(f"input 0 and input {second} do not fit each other")
    size = math.prod(int(dim or 0) for dim in batch) * rows * columns
    return size * depth, size if attribute(case.node, "alpha", 1.0) != 1.0 else 0


def _gemm(case: Case, facts: Operator) -> tuple[int, int]:
    macs, others = _matmul(case, facts)
    if _has(case, facts.bias):
        out = _made(case)
        others += out + (_read(case, facts.bias) if attribute(case.node, "beta", 1.0) != 1.0 else 0)
    return macs, others


def _einsum(case: Case, _: Operator) -> tuple[int, int]:
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
        open_labels = set(_labels(result)) | {label for label in sizes if label.isdigit() and "..." in result}
    else:
        open_labels = {label for label in sizes if label.isdigit() or left.count(label) == 1}

    def extent(wanted: set[str]) -> int:
        return math.prod(sizes[label] for label in wanted)

    macs = others = 0
    done = labels[0]
    for place, more in enumerate(labels[1:], 1):
        needs = open_labels.union(*labels[place + 1 :])
        union = (done & more) | ((done | more) & needs)
        # labels of one operand that nobody needs are summed first
        others += sum(extent(operand) for operand in (done, more) if operand - union)
        done = union & needs
        if done == union:
            others += extent(union)
        else:
            macs += extent(union)
    return macs, others + (extent(done) if done - open_labels else 0)


def _labels(term: str, rank: int = 0) -> list[str]:
    """Return the label of each axis; axes of an ellipsis are numbered from the last."""
    before, dots, after = term.partition("...")
    hidden = max(rank - len(before) - len(after), 0) if dots else 0
    return [*before, *map(str, range(hidden, 0, -1)), *after]


def _attended(case: Case, scores: int, width: int, value_width: int, *added: int) -> tuple[int, int]:
    """Count scores, the terms added to them by present inputs, their softmax, and the weighted sum of values."""
    steps = 6 + sum(_has(case, place) for place in added)  # a scale, and the five of Softmax
    return scores * (width + value_width), scores * steps


def _attention(case: Case, _: Operator) -> tuple[int, int]:
    query, key, value = (_shape(case, place) for place in range(3))
    if len(query) == 4:
        batch, heads, rows, width = query
        value_width = _shape(case, 2, 4)[3]
        columns = _shape(case, 1, 4)[2]
    else:
        heads, shared = attribute(case.node, "q_num_heads", 0), attribute(case.node, "kv_num_heads", 0)
        if len(query) != 3 or len(key) != 3 or len(value) != 3 or not heads or not shared:
            raise UnknownCostError("the number of heads is not known")
        batch, rows, width = query[0], query[1], query[2] // heads
        columns, value_width = key[1], value[2] // shared
    if _has(case, 4):
        columns += _shape(case, 4, 4)[2]
    return _attended(case, batch * heads * rows * columns, width, value_width, 3)


def _multi_head(case: Case, facts: Operator, past: int = 6, added: tuple[int, ...] = (4, 5)) -> tuple[int, int]:
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
    columns += _past(case, past, 2)
    macs, others = _attended(case, batch * heads * rows * columns, width, value_width, *added)
    return macs, others + (math.prod(query) if _has(case, facts.bias) else 0)


def _past(case: Case, place: int, axis: int) -> int:
    """Return the tokens in a cache of keys; with a buffer for more of them, input `place` + 2 is their number."""
    if not _has(case, place):
        return 0
    if not attribute(case.node, "past_present_share_buffer", 0):
        return _shape(case, place, axis + 2)[axis]
    return int(_value(case, place + 2).item())


def _value(case: Case, place: int) -> NDArray[Any]:
    value = case.values[place] if place < len(case.values) else None
    if value is None or not value.size:
        raise UnknownCostError(f"how many tokens there are depends on input {place}")
    return value


def _packed_multi_head(case: Case, facts: Operator) -> tuple[int, int]:
    """Count an attention over sequences without padding, in one tensor (tokens, hidden)."""
    query, heads = _shape(case, 0, 2), max(attribute(case.node, "num_heads", 0), 1)
    is_joined = len(query) == 4  # query, key and value: (tokens, heads, 3, width)
    width = query[3] if is_joined else query[1] // heads
    value_width = width if is_joined else _shape(case, 2, 2)[1] // heads
    macs, others = _attended(case, heads * _pairs(case, 5), width, value_width, 6)
    return macs, others + (math.prod(query) if _has(case, facts.bias) else 0)


def _pairs(case: Case, place: int) -> int:
    """Return the pairs of tokens in the same sequence; the input holds where sequences begin and end."""
    return sum(int(length) ** 2 for length in np.diff(_value(case, place).reshape(-1)).tolist())


def _packed_attention(case: Case, facts: Operator, past: int = 4) -> tuple[int, int]:
    """Count com.microsoft's Attention, which also projects its input."""
    batch, rows, _ = _shape(case, 0, 3)
    return _projected(case, facts, batch * rows, batch * rows * (rows + _past(case, past, 3)))


def _projected(case: Case, facts: Operator, tokens: int, pairs: int, *added: int) -> tuple[int, int]:
    hidden, width = _shape(case, 1, 2)
    heads = max(attribute(case.node, "num_heads", 0), 1)
    sizes = attribute(case.node, "qkv_hidden_sizes") or [width // 3] * 3
    macs, others = _attended(case, heads * pairs, sizes[0] // heads, sizes[2] // heads, *added)
    projected = tokens * width
    return macs + projected * hidden, others + (projected if _has(case, facts.bias) else 0)


def _grouped_attention(case: Case, _: Operator) -> tuple[int, int]:
    heads, shared = attribute(case.node, "num_heads", 0), attribute(case.node, "kv_num_heads", 0)
    batch, rows, hidden = _shape(case, 0, 3)
    if not heads:
        raise UnknownCostError("the number of heads is not known")
    width = hidden // (heads if _has(case, 1) else heads + 2 * shared)
    total = case.values[6] if len(case.values) > 6 else None
    if total is not None and total.size == 1:
        columns = int(total.reshape(-1)[0])
    elif not _has(case, 3) or 0 in _shape(case, 3):
        columns = rows
    else:
        raise UnknownCostError("how much of the past is in use depends on input 6")
    return _attended(case, batch * heads * rows * columns, width, width)


# gates, and the steps of one cell after its products and biases
_CELLS: Final = {
    # 2 sums, 3 functions, a product and a sum for the reset; a difference, 2 products and a sum for the update
    "GRU": (3, 11),
    # 4 sums, 5 functions, 2 products and a sum for the state, a product for the output
    "LSTM": (4, 13),
    "RNN": (1, 2),
}


def _recurrent(case: Case, facts: Operator) -> tuple[int, int]:
    gates, per_cell = _CELLS[facts.like or plain_text(case.node.op_type)]
    steps = math.prod(_shape(case, 0, 3)[:2])
    directions, first, second = _shape(case, 2, 3)
    cells = min(first, second)  # the other axis has them for each gate
    biases = 2 * gates if _has(case, facts.bias) else 0
    peepholes = 6 if gates == 4 and _has(case, 7) else 0  # three products and three sums
    return steps * (_read(case, 1) + _read(case, 2)), steps * directions * cells * (per_cell + biases + peepholes)


def _linear_model(case: Case, _: Operator) -> tuple[int, int]:
    rows = math.prod(_shape(case, 0)[:-1])
    return rows * len(attribute(case.node, "coefficients", ())), rows * len(attribute(case.node, "intercepts", ()))


def _matmul_gelu(case: Case, facts: Operator) -> tuple[int, int]:
    macs, others = _matmul(case, facts)
    return macs, others + _made(case) * (1 + _has(case, facts.bias))


def _normed_matmuls(case: Case, facts: Operator) -> tuple[int, int]:
    """Count products of one input, normalized and added to another one before; two of them are gate and value."""
    first, last = attribute(case.node, "Nq", attribute(case.node, "N", 0)), attribute(case.node, "Nkv", 0)
    widths = (first, last, last) if last else (first, first)
    size, rows = _read(case), math.prod(_shape(case, 0, 1)[:-1])
    biases = sum(width for width, place in zip(widths, facts.weights, strict=True) if _has(case, place + 2))
    gating = 0 if last else 2 * first  # the activation and a product
    return size * sum(widths), rows * (biases + gating) + size * (_has(case, 1) + 4 * _has(case, 2))


def _experts(case: Case, facts: Operator) -> tuple[int, int]:
    """Count a mixture of experts: the router's Softmax, the layers of the chosen experts, and their weighted sum."""
    packed = "packed" in facts.traits
    up, down, gate = facts.weights
    *batch, hidden = _shape(case, 0, 2)
    bits = attribute(case.node, "fc2_expert_weight_bits", 0) or attribute(case.node, "expert_weight_bits", 4)
    wide, inner = _shape(case, up, 3)[1], _shape(case, down, 3)[2] * (8 // bits if packed else 1)
    is_gated = wide == 2 * inner or _has(case, gate)
    sizes = {up: wide, down: hidden, gate: inner}
    biases = sum(size for place, size in sizes.items() if _has(case, place + 1 + packed))
    rows, chosen = math.prod(batch), attribute(case.node, "k", 1)
    products = hidden * (wide + inner + inner * _has(case, gate))
    scaling = 2 * chosen - 1 if attribute(case.node, "normalize_routing_weights", 0) else 0
    others = chosen * (biases + inner * (1 + is_gated) + hidden) + (chosen - 1) * hidden + scaling
    return rows * chosen * products, rows * (5 * _shape(case, 1, 2)[-1] + others)


def _interpolated(case: Case, _: Operator) -> tuple[int, int]:
    """Count the taps of an interpolation: a product and a sum each."""
    is_grid = plain_text(case.node.op_type) == "GridSample"
    mode = plain_text(attribute(case.node, "mode", b"linear" if is_grid else b"nearest"))
    if mode == "nearest":
        return 0, 0
    out, before = _shape(case, 0, output=True), _shape(case, 0)
    axes = len(out) - 2 if is_grid else sum(a != b for a, b in zip(out, before, strict=False))
    taps: int = (4 if mode in ("cubic", "bicubic") else 2) ** axes
    return 0, 2 * math.prod(out) * taps


_RULES: Final[Mapping[str, Callable[[Case, Operator], tuple[int, int]]]] = {
    "attention": _attention,
    "causal_conv": _causal_conv,
    "conv": _conv,
    "conv_transpose": functools.partial(_conv, is_transposed=True),
    "decoder_multi_head": functools.partial(_multi_head, past=5, added=(3, 4)),
    "deform_conv": _deform_conv,
    "einsum": _einsum,
    "experts": _experts,
    "gemm": _gemm,
    # the sine and cosine of the angles, and two products and a sum for each element of query and key
    "gemma_rotary": lambda case, _: (0, 2 * _read(case) + 3 * (_read(case, 1) + _read(case, 3))),
    "grouped_attention": _grouped_attention,
    "interpolation": _interpolated,
    "linear_model": _linear_model,
    "lrn": lambda case, _: (0, _made(case) * (int(attribute(case.node, "size", 1)) + 5)),
    "matmul": _matmul,
    "matmul_gelu": _matmul_gelu,
    "multi_head": _multi_head,
    "normed_matmuls": _normed_matmuls,
    "packed_attention": _packed_attention,
    "packed_matmul": lambda case, _: (_read(case) * attribute(case.node, "N", 0), 0),
    "packed_multi_head": _packed_multi_head,
    # `_packed_attention` over sequences without padding
    "packed_tokens": lambda case, facts: _projected(case, facts, _shape(case, 0, 2)[0], _pairs(case, 4), 5),
    # a product with a weight whose layout does not matter
    "projection": lambda case, facts: (_made(case) * _shape(case, 0, 1)[-1], _made(case) * _has(case, facts.bias)),
    "quantized_attention": functools.partial(_packed_attention, past=8),
    "recurrent": _recurrent,
}
"""Rules of operators that no number describes; they return the multiply-accumulates and the other steps."""
