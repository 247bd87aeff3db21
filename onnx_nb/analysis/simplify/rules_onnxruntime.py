"""Rules for ``simplify(…, target="onnxruntime")``, which use operators that onnxruntime has kernels for.

They find activations and normalizations that exporters write as several nodes, and steps that a MatMul or Conv can
include. The operators are standard where the model's opset has them, else of com.microsoft; only float32, for which
each has a kernel on every processor. onnxruntime's own optimizer does the same when it loads a model; here each change
has a name and a reason and can be undone, metadata is kept, and weights stay where they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import TensorProto

from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.editor import Editor, Rule, rule
from onnx_nb.analysis.simplify.known_graph import LEFT_OUT, Op

CONTRIB: list[Rule] = []
"""Rules for onnxruntime, in the order in which they are tried on a node."""
MICROSOFT: Final = "com.microsoft"

_rule = functools.partial(rule, CONTRIB)


# --- activations ------------------------------------------------------------------------------------------------------


@_rule("fuse_gelu", "Erf", "Tanh")
def _gelu(net: Editor, op: Op) -> str | None:
    """Replace x · ½ · (1 + erf(x / √2)), and its approximation by tanh, by Gelu."""
    scaled = _times(net, op.inputs[0])
    if scaled is None or not _is_float(net, op.outputs[0]):
        return None
    inner, factor, scaling = scaled
    olds, is_tanh = [scaling, op], op.op_type == "Tanh"
    if not math.isclose(factor, math.sqrt(2 / math.pi if is_tanh else 0.5), rel_tol=1e-5):
        return None
    if is_tanh:
        cubic = _plus_cube(net, inner)
        if cubic is None:
            return None
        inner, cubes = cubic
        olds = [*cubes, *olds]
    rest = _half_of_one_more(net, op, inner)
    if rest is None or (is_tanh and net.opset < 20 and not net.shape(inner)):  # FastGelu takes no scalar
        return None
    if net.opset >= 20:
        net.replace([*olds, *rest], "Gelu", [inner], {"approximate": "tanh" if is_tanh else None})
    else:
        net.replace([*olds, *rest], "FastGelu" if is_tanh else "Gelu", [inner], domain=MICROSOFT)
    return f"x · ½ · (1 + {op.op_type.lower()}(…)) is Gelu"


def _plus_cube(net: Editor, value: int) -> tuple[int, list[Op]] | None:
    """Return x and the nodes that compute a value if it is x + 0.044715 · x³."""
    add = net.made_by(value, "Add")
    if add is None:
        return None
    for slot in (0, 1):
        term, x = _times(net, add.inputs[slot]), add.inputs[1 - slot]
        cube = net.made_by(term[0], "Pow") if term is not None else None
        if term is None or cube is None or not math.isclose(term[1], 0.044715, rel_tol=1e-4):
            continue
        if cube.inputs[0] == x and _scalar(net, cube.inputs[1]) == 3:
            return x, [cube, term[2], add]
    return None


def _half_of_one_more(net: Editor, op: Op, x: int) -> list[Op] | None:
    """Return the nodes that compute x · ½ · (1 + y), in any order, from the output y of a node; None if absent."""
    plus = net.after(op, "Add")
    if plus is None or _scalar(net, _other(plus, op.outputs[0])) != 1:
        return None
    olds, factor, with_x = [plus], 1.0, False
    while not (with_x and math.isclose(factor, 0.5, rel_tol=1e-6)):
        product = net.after(olds[-1], "Mul")
        if product is None or len(olds) > 3:
            return None
        other = _other(product, olds[-1].outputs[0])
        number, term = _scalar(net, other), _times(net, other)
        if number is not None:
            factor *= number
        elif other == x and not with_x:
            with_x = True
        elif term is not None and term[0] == x and not with_x and net.only_use(other) is product:
            with_x, factor = True, factor * term[1]
            olds.insert(0, term[2])
        else:
            return None
        olds.append(product)
    return olds if _same_shape(net, olds[-1].outputs[0], x) else None


@_rule("fuse_quick_gelu", "Sigmoid")
def _quick_gelu(net: Editor, op: Op) -> str | None:
    """Replace x · sigmoid(α · x) by QuickGelu; also SiLU, where α is 1."""
    product = net.after(op, "Mul")
    if product is None or not _is_float(net, op.outputs[0]):
        return None
    x, olds, alpha = _other(product, op.outputs[0]), [op, product], 1.0
    if op.inputs[0] != x:
        term = _times(net, op.inputs[0])
        if term is None or term[0] != x:
            return None
        alpha = term[1]
        olds.insert(0, term[2])
    if not _same_shape(net, product.outputs[0], x):
        return None
    net.replace(olds, "QuickGelu", [x], {"alpha": alpha}, domain=MICROSOFT)
    return "x · sigmoid(α · x) is QuickGelu"


@_rule("fuse_bias_gelu", "Add")
def _bias_gelu(net: Editor, op: Op) -> str | None:
    """Fuse the Add of a bias into the Gelu after it."""
    gelu = net.after(op, "Gelu", domains=("", MICROSOFT))
    if gelu is None or gelu.attribute("approximate", "none") != "none" or not _is_float(net, op.outputs[0]):
        return None
    for bias, data in (op.inputs, op.inputs[::-1]):
        if _is_per_feature(net, bias, op.outputs[0]) and _same_shape(net, op.outputs[0], data):
            net.replace([op, gelu], "BiasGelu", [data, bias], domain=MICROSOFT)
            return "BiasGelu adds the bias"
    return None


# --- normalizations ---------------------------------------------------------------------------------------------------


class _Normalization(NamedTuple):
    """A LayerNormalization or RMSNormalization over the last axis: one node, or several that compute it."""

    data: int
    gamma: int | None
    """Value of the scale; None if it is all ones."""
    beta: int | None
    epsilon: float
    centered: bool
    """Whether it subtracts the mean."""
    olds: list[Op]


@_rule("fuse_layer_normalization", "Sqrt")
def _layer_normalization(net: Editor, op: Op) -> str | None:
    """Replace the nodes that compute a LayerNormalization or RMSNormalization, if the opset has it."""
    norm = _normalization(net, op)
    if norm is None or net.opset < (17 if norm.centered else 23):
        return None
    name = "LayerNormalization" if norm.centered else "RMSNormalization"
    net.replace(norm.olds, name, [norm.data, *_weights(net, norm)], {"axis": -1, "epsilon": norm.epsilon})
    return f"it computes a {name}"


@_rule("fuse_skip_layer_normalization", "LayerNormalization", "RMSNormalization", "Sqrt")
def _skip_layer_normalization(net: Editor, op: Op) -> str | None:
    """Fuse an Add into the LayerNormalization or RMSNormalization after it."""
    norm = _normalization(net, op) if op.op_type == "Sqrt" else _whole(net, op)
    add = net.made_by(norm.data, "Add") if norm is not None else None
    if norm is None or add is None or add.subgraph != op.subgraph:
        return None
    shape = net.shape(norm.data)
    if shape is None or len(shape) not in (2, 3) or not all(_same_shape(net, norm.data, v) for v in add.inputs):
        return None
    inputs, olds, bias = list(add.inputs), [add, *norm.olds], LEFT_OUT
    for slot in (0, 1):
        inner = net.before(add, slot, "Add")
        for one, other in (inner.inputs, inner.inputs[::-1]) if inner is not None else ():
            if inner is not None and bias < 0 and _is_per_feature(net, one, norm.data):
                bias, inputs[slot] = one, other
                olds.insert(0, inner)
    inputs += _weights(net, norm)
    if bias >= 0:
        inputs += [LEFT_OUT] * (norm.centered and norm.beta is None) + [bias]
    result = olds[-1].outputs[0]
    others = net.output_count[norm.data] or any(other not in olds for other in net.uses(norm.data))
    outputs = [result, LEFT_OUT, LEFT_OUT, norm.data] if others else [result]
    name = "SkipLayerNormalization" if norm.centered else "SkipSimplifiedLayerNormalization"
    # other nodes may read the sum, so the new node takes the position of the Add
    net.replace(olds, name, inputs, {"epsilon": norm.epsilon}, outputs=outputs, domain=MICROSOFT, at=add)
    return f"{name} computes the sum"


def _whole(net: Editor, op: Op) -> _Normalization | None:
    """Return the normalization of a standard node over the last axis with constant weights."""
    shape, axis = net.shape(op.inputs[0]), op.attribute("axis", -1)
    if not shape or axis % len(shape) != len(shape) - 1 or any(value >= 0 for value in op.outputs[1:]):
        return None
    beta = op.input(2) if op.input(2) >= 0 else None
    weights = [value for value in op.inputs[1:3] if value >= 0]
    if not _is_float(net, op.outputs[0]) or not all(_is_per_feature(net, w, op.inputs[0]) for w in weights):
        return None
    has_mean = op.op_type == "LayerNormalization"
    return _Normalization(op.inputs[0], op.inputs[1], beta, op.attribute("epsilon", 1e-5), has_mean, [op])


def _normalization(net: Editor, root: Op) -> _Normalization | None:
    """Return the normalization that a Sqrt is part of."""
    add = net.before(root, 0, "Add")
    if add is None or not _is_float(net, root.outputs[0]):
        return None
    for slot in (0, 1):
        epsilon, mean = _scalar(net, add.inputs[slot]), net.before(add, 1 - slot, "ReduceMean")
        square = net.before(mean, 0, "Pow", "Mul") if mean is not None and _is_of_last(net, mean) else None
        if epsilon is None or mean is None or square is None:
            continue
        if square.inputs[0] == square.inputs[1] if square.op_type == "Mul" else _scalar(net, square.inputs[1]) == 2:
            return _around(net, root, square.inputs[0], float(np.float32(epsilon)), [square, mean, add])
    return None


def _around(net: Editor, root: Op, base: int, epsilon: float, olds: list[Op]) -> _Normalization | None:
    """Return the normalization around a variance: the nodes before it, and those after its square root."""
    data, has_mean, sub = base, False, net.made_by(base, "Sub")
    if sub is not None and sub.subgraph == root.subgraph:
        mean = net.made_by(sub.inputs[1], "ReduceMean")
        if mean is not None and mean.subgraph == root.subgraph:
            if mean.inputs[0] != sub.inputs[0] or not _is_of_last(net, mean):
                return None
            data, has_mean, olds = sub.inputs[0], True, [mean, sub, *olds]
    quotient = _quotient(net, root, base)
    if quotient is None:
        return None
    olds = [*olds, root, *quotient]
    weights: dict[str, int] = {}
    for name, op_type in (("gamma", "Mul"), ("beta", "Add")) if has_mean else (("gamma", "Mul"),):
        after = net.after(olds[-1], op_type)
        other = _other(after, olds[-1].outputs[0]) if after is not None else LEFT_OUT
        if after is not None and _is_per_feature(net, other, data):
            weights[name] = other
            olds.append(after)
    shape = net.shape(data)
    if not shape or not isinstance(shape[-1], int) or not shape[-1]:
        return None
    return _Normalization(data, weights.get("gamma"), weights.get("beta"), epsilon, has_mean, olds)


def _quotient(net: Editor, root: Op, base: int) -> list[Op] | None:
    """Return the nodes that divide a value by a square root."""
    division = net.after(root, "Div", "Reciprocal")
    if division is None:
        return None
    if division.op_type == "Div" and division.inputs == [base, root.outputs[0]]:
        return [division]
    if division.op_type == "Div" and (division.inputs[1] != root.outputs[0] or _scalar(net, division.inputs[0]) != 1):
        return None
    product = net.after(division, "Mul")
    return [division, product] if product is not None and _other(product, division.outputs[0]) == base else None


def _is_of_last(net: Editor, mean: Op) -> bool:
    """Return whether a reduction is over the last axis and keeps that axis."""
    shape, axes = net.shape(mean.inputs[0]), symbolic_dims.axes(net, mean)
    if not shape or axes is None or len(axes) != 1:
        return False
    return axes[0] % len(shape) == len(shape) - 1 and bool(mean.attribute("keepdims", 1))


def _weights(net: Editor, norm: _Normalization) -> list[int]:
    """Return gamma, which is all ones by default, and beta if there is one."""
    gamma = norm.gamma
    if gamma is None:
        (*_, size) = net.shape(norm.data) or (0,)
        assert isinstance(size, int)  # noqa: S101 (checked when it was found)
        gamma = net.new_constant(np.ones(size, np.float32), f"{net.names[norm.data]}_ones")
    return [gamma] if norm.beta is None else [gamma, norm.beta]


# --- fused products and convolutions ---------------------------------------------------------------------


@_rule("fuse_scale_and_transpose_into_matmul", "MatMul")
def _into_matmul(net: Editor, op: Op) -> str | None:
    """Fuse nodes that transpose or scale the inputs of a MatMul, or scale its output, into FusedMatMul."""
    if not _is_float(net, op.outputs[0]) or any(len(net.shape(value) or ()) < 2 for value in op.inputs):
        return None
    inputs, olds, attributes, alpha = list(op.inputs), [op], dict[str, Any](), 1.0
    for slot, name in ((0, "transA"), (1, "transB")):
        reader, at = op, slot
        while True:
            before = net.before(reader, at, "Mul", "Div", "Transpose")
            if before is None:
                break
            term = _times(net, inputs[slot])
            if term is not None:
                inputs[slot], alpha = term[0], alpha * term[1]
            elif name not in attributes and _swaps_last(net, before):
                inputs[slot], attributes[name] = before.inputs[0], 1
            else:
                break
            olds.insert(0, before)
            reader, at = before, before.inputs.index(inputs[slot])
    after = net.after(op, "Mul", "Div")
    term = _times(net, after.outputs[0]) if after is not None else None
    if after is not None and term is not None and term[0] == op.outputs[0]:
        olds, alpha = [*olds, after], alpha * term[1]
    if len(olds) == 1 or not np.isfinite(np.float32(alpha)):
        return None
    net.replace(olds, "FusedMatMul", inputs, attributes | {"alpha": alpha}, like=op, domain=MICROSOFT)
    return "FusedMatMul scales and transposes"


def _swaps_last(net: Editor, op: Op) -> bool:
    perm = symbolic_dims.perm(net, op) if op.op_type == "Transpose" else None
    rank = len(perm or ())
    return rank > 1 and perm == [*range(rank - 2), rank - 1, rank - 2]


@_rule("fuse_add_into_conv", "Add")
def _add_into_conv(net: Editor, op: Op) -> str | None:
    """Fuse an Add to the output of a Conv into a FusedConv."""
    if not _is_float(net, op.outputs[0]):
        return None
    for conv, other in net.operands(op, "Conv"):
        if other == conv.outputs[0] or not _same_shape(net, conv.outputs[0], other) or not _is_plain(net, conv):
            continue
        inputs = [*conv.inputs, *[LEFT_OUT] * (3 - len(conv.inputs)), other]
        net.replace([conv, op], "FusedConv", inputs, conv.attributes(), like=conv, domain=MICROSOFT)
        return "FusedConv adds on its own"
    return None


_NUMBERS: Final[Mapping[str, Mapping[str, float]]] = {
    **{name: {} for name in ("Clip", "Relu", "Sigmoid", "Tanh")},
    "LeakyRelu": {"alpha": 0.01},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}
"""Activations of FusedConv and FusedGemm, and their attributes in order, with defaults."""


def _numbers(net: Editor, op: Op) -> list[float] | None:
    """Return the numbers of an activation; None if they are unknown."""
    if op.op_type != "Clip":
        return [float(op.attribute(name, usual)) for name, usual in _NUMBERS[op.op_type].items()]
    limits = np.finfo(np.float32)
    low = op.attribute("min", float(limits.min)) if op.input(1) < 0 else _scalar(net, op.inputs[1])
    high = op.attribute("max", float(limits.max)) if op.input(2) < 0 else _scalar(net, op.inputs[2])
    return None if low is None or high is None else [low, high]


@_rule("fuse_activation_into_conv", *_NUMBERS)
def _activation_into_conv(net: Editor, op: Op) -> str | None:
    """Fuse an activation into the Conv before it, as FusedConv."""
    conv = net.maker(op.inputs[0])
    if conv is None or net.only_use(op.inputs[0]) is not op or conv.subgraph != op.subgraph:
        return None
    plain = conv.op_type == "Conv" and not conv.domain and _is_plain(net, conv)
    if not plain and (conv.op_type, conv.domain, conv.attribute("activation")) != ("FusedConv", MICROSOFT, None):
        return None
    numbers = _numbers(net, op)
    if numbers is None or not _is_float(net, op.outputs[0]):
        return None
    attributes = conv.attributes() | {"activation": op.op_type, "activation_params": numbers or None}
    net.replace([conv, op], "FusedConv", conv.inputs, attributes, like=conv, domain=MICROSOFT)
    return f"FusedConv computes {op.op_type}"


@_rule("fuse_activation_into_gemm", "Relu", "Sigmoid", "Tanh", "LeakyRelu")
def _activation_into_gemm(net: Editor, op: Op) -> str | None:
    """Fuse an activation into the Gemm before it, as FusedGemm."""
    gemm = net.before(op, 0, "Gemm")
    if gemm is None or not _is_float(net, op.outputs[0]):
        return None
    alpha = next(iter(_numbers(net, op) or ()), None)
    attributes = gemm.attributes() | {"activation": op.op_type, "activation_alpha": alpha}
    net.replace([gemm, op], "FusedGemm", gemm.inputs, attributes, like=gemm, domain=MICROSOFT)
    return f"FusedGemm computes {op.op_type}"


# --- helpers of rules ------------------------------------------------------------------------------------------


def _is_float(net: Editor, value: int) -> bool:
    return net.dtype(value) == TensorProto.FLOAT


def _is_plain(net: Editor, conv: Op) -> bool:
    """Return whether onnxruntime can fuse a Conv: of images, with float32 weights."""
    return len(net.shape(conv.inputs[0]) or ()) == 4 and _is_float(net, conv.inputs[1])


def _scalar(net: Editor, value: int) -> float | None:
    """Return the number in a constant of one element; None for other values."""
    array = net.constant(value)
    return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None


def _times(net: Editor, value: int) -> tuple[int, float, Op] | None:
    """Return x, a number and the node if a value is x times that number and has the shape of x."""
    maker = net.made_by(value, "Mul", "Div")
    if maker is None:
        return None
    is_product = maker.op_type == "Mul"
    for x, scale in (maker.inputs, maker.inputs[::-1]) if is_product else (maker.inputs,):
        number = _scalar(net, scale)
        if number is not None and (number or is_product) and x not in net.constants and _same_shape(net, value, x):
            return x, number if is_product else 1 / number, maker
    return None


def _same_shape(net: Editor, value: int, other: int) -> bool:
    """Return whether two values are float32 and always have the same shape."""
    one, two = symbolic_dims.sizes(net, value), symbolic_dims.sizes(net, other)
    return one is not None and one == two and _is_float(net, value) and _is_float(net, other)


def _is_per_feature(net: Editor, weight: int, data: int) -> bool:
    """Return whether a value is a constant with one number for each element of the last axis of another."""
    shape, spread = net.shape(data), net.shape(weight)
    if not shape or spread is None or weight not in net.constants or not _is_float(net, weight):
        return False
    return len(spread) == 1 and spread[0] == shape[-1]


def _other(op: Op, value: int) -> int:
    """Return the other of the two inputs of a node."""
    return op.inputs[1 - op.inputs.index(value)]
