"""The rewrites of `simplify`: each looks at one node and those around it, and says why it may change them.

All make standard operators of standard operators. A rule changes nothing before it is sure, and answers with the
reason, or with None. `RULES` has them in the order in which they are tried.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from onnx import TensorProto

from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.elements import LEFT_OUT, kind
from onnx_nb.analysis.simplify.rule import Rule, rule

if TYPE_CHECKING:
    from onnx_nb.analysis.model.value_info import Dims
    from onnx_nb.analysis.simplify.editor import Editor
    from onnx_nb.analysis.simplify.elements import Array, Op

RULES: list[Rule] = []
"""Every rewrite, in the order in which it is tried on a node."""

JOINED_AT_MOST: Final = 1 << 20
"""Weights of more bytes are not copied to be side by side with others."""

RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators that compute something else each time."""


_rule = functools.partial(rule, RULES)


# --- nodes that do nothing -------------------------------------------------------------------------------------------


@_rule("extract_constants", "Constant")
def _extract_constant(net: Editor, op: Op) -> str | None:
    """Turn a Constant node into an initializer."""
    if net.is_output(op.outputs[0]):
        return None
    tensor = op.attribute("value")
    if isinstance(tensor, TensorProto):
        net.make_constant(op.outputs[0], tensor)
        return "an initializer says the same"
    if op.attribute("sparse_value") is not None or op.attribute("value_string") or op.attribute("value_strings"):
        return None
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        given = op.attribute(name)
        if given is not None:
            net.make_constant(op.outputs[0], np.asarray(given, dtype))
            return "an initializer says the same"
    return None


@_rule("eliminate_identity", "Identity")
def _identity(net: Editor, op: Op) -> str | None:
    """Remove Identity nodes."""
    return _pass(net, op, "it copies")


@_rule("eliminate_nop_dropout", "Dropout")
def _nop_dropout(net: Editor, op: Op) -> str | None:
    """Leave out Dropout nodes, which do nothing but in training."""
    training = op.inputs[2] if len(op.inputs) > 2 else LEFT_OUT
    if training >= 0:
        value = net.constant(training)
        if value is None or bool(value):
            return None
    if net.opset() < 7 and not op.attribute("is_test", 0):
        return None
    if len(op.outputs) > 1 and op.outputs[1] >= 0 and (net.readers[op.outputs[1]] or net.is_output(op.outputs[1])):
        return None
    return _pass(net, op, "it does nothing but in training")


@_rule("eliminate_nop_cast", "Cast", "CastLike")
def _nop_cast(net: Editor, op: Op) -> str | None:
    """Leave out a Cast to the type that a tensor already has."""
    to = op.attribute("to") if op.op_type == "Cast" else net.dtype(op.inputs[1])
    if not to or net.dtype(op.inputs[0]) != to:
        return None
    return _pass(net, op, "the tensor already has that type")


@_rule("eliminate_nop_pad", "Pad")
def _nop_pad(net: Editor, op: Op) -> str | None:
    """Leave out a Pad by nothing."""
    pads = symbolic_dims.pads(net, op)
    return _pass(net, op, "it pads by nothing") if pads is not None and not any(pads) else None


@_rule("eliminate_nop_transpose", "Transpose")
def _nop_transpose(net: Editor, op: Op) -> str | None:
    """Leave out a Transpose that keeps the order of the axes."""
    perm = symbolic_dims.perm(net, op)
    return _pass(net, op, "it keeps the order of the axes") if perm == sorted(perm or [-1]) else None


@_rule("eliminate_nop_reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _nop_reshape(net: Editor, op: Op) -> str | None:
    """Leave out what gives a tensor the shape that it has."""
    before, after = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.sizes(net, op.outputs[0])
    if before is None or after is None or len(before) != len(after):
        return None
    # if all others are the same, so is one that is not known
    differ = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    same_count = op.op_type in ("Reshape", "Flatten") and len(differ) == 1 and 0 not in before
    if differ and not (same_count and any(isinstance(each, symbolic_dims.Unknown) for each in differ[0])):
        return None
    return _pass(net, op, "the tensor already has that shape")


@_rule("eliminate_nop_slice", "Slice")
def _nop_slice(net: Editor, op: Op) -> str | None:
    """Leave out a Slice that takes everything."""
    shape = net.shape(op.inputs[0])
    found = symbolic_dims.slices(net, op)
    if shape is None or found is None:
        return None
    for start, end, axis, step in found:
        if not -len(shape) <= axis < len(shape) or step != 1 or start != 0:
            return None
        size = shape[axis]
        if end < (size if isinstance(size, int) else 2**31 - 1):
            return None
    return _pass(net, op, "it takes everything")


@_rule("eliminate_nop_concat", "Concat", "Sum", "Max", "Min", "Mean")
def _nop_concat(net: Editor, op: Op) -> str | None:
    """Leave out a Concat, Sum, Max, Min or Mean of one tensor."""
    return _pass(net, op, "it has one input") if len(op.inputs) == 1 else None


@_rule("eliminate_nop_split", "Split")
def _nop_split(net: Editor, op: Op) -> str | None:
    """Leave out a Split into one part."""
    return _pass(net, op, "it makes one part") if len(op.outputs) == 1 else None


@_rule("eliminate_nop_arithmetic", "Add", "Sub", "Mul", "Div", "Pow", "And", "Or")
def _nop_arithmetic(net: Editor, op: Op) -> str | None:
    """Leave out adding 0, multiplying by 1 and the like."""
    if net.opset() < 7:  # what is read was not spread by itself
        return None
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1, "And": 1, "Or": 0}[op.op_type]
    for slot in (1, 0) if op.op_type in ("Add", "Mul", "And", "Or") else (1,):
        array = net.constant(op.inputs[slot])
        kept = op.inputs[1 - slot]
        if array is None or array.size > 1 << 16 or not _all_equal(array, neutral):
            continue
        shape = net.shape(kept)
        if shape is None or not _broadcasts_into(array.shape, shape):
            continue
        if op.op_type == "Pow" and net.dtype(kept) != net.dtype(op.outputs[0]):
            continue
        if net.redirect(op.outputs[0], kept):
            word = {"Add": "adds 0", "Sub": "takes away 0", "Mul": "multiplies by 1", "Div": "divides by 1"}
            return f"it {word.get(op.op_type, 'changes nothing')}"
    return None


@_rule("eliminate_nop_monotone_argmax", "ArgMax")
def _nop_monotone_argmax(net: Editor, op: Op) -> str | None:
    """Leave out a monotone function before ArgMax."""
    before = net.before(op, 0, "Softmax", "LogSoftmax")
    shape = net.shape(op.inputs[0])
    if before is None or not shape or net.opset() < 13:
        return None
    if before.attribute("axis", -1) % len(shape) != op.attribute("axis", 0) % len(shape):
        return None
    net.set_input(op, 0, before.inputs[0])
    return f"{before.op_type} keeps the order"


@_rule("eliminate_idempotent", "Relu", "Ceil", "Floor", "Round", "Abs", "Sign")
def _idempotent(net: Editor, op: Op) -> str | None:
    """Leave out what was just done: Relu after Relu, Floor after Floor."""
    before = net.maker(op.inputs[0])
    if before is None or before.op_type != op.op_type or before.domain:
        return None
    return _pass(net, op, f"{op.op_type} of {op.op_type} is the same")


# --- two nodes in a row that are one ---------------------------------------------------------------------------------


@_rule("fuse_consecutive_transposes", "Transpose")
def _transposes(net: Editor, op: Op) -> str | None:
    """Make one Transpose of two."""
    before = net.maker(op.inputs[0])
    if before is None or before.op_type != "Transpose" or before.domain:
        return None
    first, second = symbolic_dims.perm(net, before), symbolic_dims.perm(net, op)
    if first is None or second is None or len(first) != len(second):
        return None
    net.replace([before, op], "Transpose", before.inputs[:1], op.outputs, {"perm": [first[i] for i in second]})
    return "two Transposes in a row"


@_rule("fuse_consecutive_squeezes", "Squeeze", "Unsqueeze")
def _squeezes(net: Editor, op: Op) -> str | None:
    """Make one Squeeze of two, and one Unsqueeze of two."""
    before = net.before(op, 0, op.op_type)
    if before is None:
        return None
    inner = net.shape(before.inputs[0])
    first, second = symbolic_dims.axes(net, before), symbolic_dims.axes(net, op)
    if inner is None or first is None or second is None:
        return None
    if op.op_type == "Unsqueeze":
        middle = len(inner) + len(first)
        first, second = [a % middle for a in first], [a % (middle + len(second)) for a in second]
        kept = [place for place in range(middle + len(second)) if place not in second]
        axes = sorted([*second, *(kept[a] for a in first)])
    else:
        first = [a % len(inner) for a in first]
        kept = [place for place in range(len(inner)) if place not in first]
        axes = sorted([*first, *(kept[a % len(kept)] for a in second)])
    _with_axes(net, [before, op], before.inputs[0], op.outputs, axes)
    return f"two {op.op_type}s in a row"


@_rule("fuse_consecutive_reshapes", "Reshape", "Flatten")
def _reshapes(net: Editor, op: Op) -> str | None:
    """Let a Reshape of a Reshape, Flatten, Squeeze or Unsqueeze read the tensor itself."""
    before = net.maker(op.inputs[0])
    if before is None or before.op_type not in ("Reshape", "Flatten", "Squeeze", "Unsqueeze") or before.domain:
        return None
    if op.op_type == "Flatten":
        return None
    target = net.constant(op.inputs[1])
    # 0 stands for the size that the tensor between has
    if target is None or (0 in target.tolist() and not op.attribute("allowzero", 0)):
        return None
    net.set_input(op, 0, before.inputs[0])
    return "only the last shape counts"


@_rule("fuse_consecutive_concats", "Concat")
def _concats(net: Editor, op: Op) -> str | None:
    """Take the inputs of a Concat along the same axis into the Concat that reads it."""
    shape = net.shape(op.outputs[0])
    axis = op.attribute("axis", 0)
    for slot, value in enumerate(op.inputs):
        before = net.before(op, slot, "Concat")
        if before is None:
            continue
        other = before.attribute("axis", 0)
        if other != axis and (shape is None or other % len(shape) != axis % len(shape)):
            continue
        inputs = [each for v in op.inputs for each in (before.inputs if v == value else [v])]
        net.replace([before, op], "Concat", inputs, op.outputs, {"axis": axis})
        return "two Concats along one axis"
    return None


@_rule("fuse_consecutive_slices", "Slice")
def _slices_in_row(net: Editor, op: Op) -> str | None:
    """Make one Slice of two along different axes."""
    before = net.before(op, 0, "Slice")
    if before is None or net.opset() < 10:
        return None
    shape, first, second = net.shape(before.inputs[0]), symbolic_dims.slices(net, before), symbolic_dims.slices(net, op)
    if shape is None or first is None or second is None:
        return None
    both = [(start, end, axis % len(shape), step) for start, end, axis, step in (*first, *second)]
    if len({axis for _, _, axis, _ in both}) < len(both):
        return None
    columns = [
        net.new_constant(np.asarray(column, np.int64), f"{net.names[op.outputs[0]]}_slice")
        for column in zip(*both, strict=True)
    ]
    starts, ends, axes, steps = columns
    net.replace([before, op], "Slice", [before.inputs[0], starts, ends, axes, steps], op.outputs)
    return "two Slices along different axes"


_SUMS = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare"
_REDUCING: Final = (*_SUMS.split(), "ReduceMax", "ReduceMin", "ArgMax", "ArgMin")


@_rule("fuse_consecutive_reduce_unsqueeze", "Unsqueeze")
def _reduce_unsqueeze(net: Editor, op: Op) -> str | None:
    """Let a reduction keep the axes that an Unsqueeze puts back."""
    before = net.before(op, 0, *_REDUCING)
    if before is None or before.attribute("keepdims", 1) != 0:
        return None
    inner, back = net.shape(before.inputs[0]), symbolic_dims.axes(net, op)
    away = [before.attribute("axis", 0)] if before.op_type.startswith("ArgM") else symbolic_dims.axes(net, before)
    if inner is None or not away or back is None:
        return None
    rank = len(inner)
    if sorted(a % rank for a in away) != sorted(a % rank for a in back):
        return None
    net.replace([before, op], before.op_type, before.inputs, op.outputs, before.attribute_values() | {"keepdims": 1})
    return f"{before.op_type} can keep these axes"


@_rule("fuse_consecutive_log_softmax", "Log")
def _log_softmax(net: Editor, op: Op) -> str | None:
    """Make LogSoftmax of the Log of a Softmax."""
    before = net.before(op, 0, "Softmax")
    if before is None:
        return None
    axis = before.attribute("axis", -1 if net.opset() >= 13 else 1)
    net.replace([before, op], "LogSoftmax", before.inputs, op.outputs, {"axis": axis})
    return "the logarithm of a Softmax"


# --- arithmetic taken into weights -----------------------------------------------------------------------------------


@_rule("fuse_bn_into_conv", "BatchNormalization")
def _bn_into_conv(net: Editor, op: Op) -> str | None:
    """Take a BatchNormalization into the weights of the Conv before it."""
    conv = net.before(op, 0, "Conv", "ConvTranspose")
    if conv is None or op.attribute("training_mode", 0) or any(v >= 0 for v in op.outputs[1:]):
        return None
    if conv.op_type == "ConvTranspose" and conv.attribute("group", 1) != 1:
        return None
    if not _normalizes_channels(net, op):
        return None
    read = [conv.inputs[1], *conv.inputs[2:3], *op.inputs[1:5]]
    if any(v >= 0 and not net.is_constant(v) for v in read) or net.dtype(conv.inputs[1]) not in _FLOATS:
        return None
    weight = net.read(conv.inputs[1])
    scale, shift, mean, variance = (net.read(v).astype(np.float64) for v in op.inputs[1:5])
    bias = net.read(conv.inputs[2]).astype(np.float64) if len(conv.inputs) > 2 and conv.inputs[2] >= 0 else 0.0
    factor = scale / np.sqrt(variance + op.attribute("epsilon", 1e-5))
    axis = 0 if conv.op_type == "Conv" else 1
    if weight.shape[axis] != len(factor):
        return None
    spread = factor.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    new_weight = (weight * spread).astype(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).astype(weight.dtype)
    if not (np.isfinite(new_weight.astype(np.float64)).all() and np.isfinite(new_bias.astype(np.float64)).all()):
        return None
    inputs = [
        conv.inputs[0],
        net.new_constant(new_weight, f"{net.names[conv.inputs[1]]}_bn"),
        net.new_constant(new_bias, f"{net.names[op.inputs[2]]}_bn"),
    ]
    _replace_keeping(net, [conv, op], conv, inputs, op.outputs)
    return "scale and shift can be part of the weights"


@_rule("fuse_add_bias_into_conv", "Add")
def _bias_into_conv(net: Editor, op: Op) -> str | None:
    """Take what is added to each channel into the bias of the Conv before it."""
    if net.opset() < 7:
        return None
    for conv, added in net.operands(op, "Conv", "ConvTranspose"):
        shape, weight = net.shape(conv.outputs[0]), net.shape(conv.inputs[1])
        if shape is None or weight is None or net.dtype(added) != net.dtype(conv.inputs[1]):
            continue
        channels = weight[0] if conv.op_type == "Conv" else shape[1]
        new = _per_channel(net, added, shape, channels) if isinstance(channels, int) else None
        if new is None:
            continue
        if len(conv.inputs) > 2 and conv.inputs[2] >= 0:
            old = net.constant(conv.inputs[2])
            if old is None:
                continue
            new = old + new
        inputs = [*conv.inputs[:2], net.new_constant(new, f"{net.names[added]}_bias")]
        _replace_keeping(net, [conv, op], conv, inputs, op.outputs)
        return "what is added to a channel is a bias"
    return None


@_rule("fuse_mul_into_conv", "Mul")
def _mul_into_conv(net: Editor, op: Op) -> str | None:
    """Take what multiplies each channel into the weights of the Conv before it."""
    if net.opset() < 7:
        return None
    for conv, factor in net.operands(op, "Conv"):
        if any(v >= 0 and not net.is_constant(v) for v in (*conv.inputs[1:], factor)):
            continue
        weight = net.read(conv.inputs[1])
        scale = _per_channel(net, factor, net.shape(conv.outputs[0]), weight.shape[0])
        if scale is None or weight.dtype != scale.dtype or net.dtype(factor) not in _FLOATS:
            continue
        spread = scale.astype(np.float64).reshape(-1, *[1] * (weight.ndim - 1))
        inputs = [
            conv.inputs[0],
            net.new_constant((weight * spread).astype(weight.dtype), f"{net.names[conv.inputs[1]]}_scaled"),
        ]
        if len(conv.inputs) > 2 and conv.inputs[2] >= 0:
            bias = net.read(conv.inputs[2])
            scaled = (bias * scale.astype(np.float64)).astype(bias.dtype)
            inputs.append(net.new_constant(scaled, f"{net.names[conv.inputs[2]]}_scaled"))
        _replace_keeping(net, [conv, op], conv, inputs, op.outputs)
        return "a factor of a channel can be part of the weights"
    return None


@_rule("fuse_scale_into_bn", "Mul", "Add")
def _scale_into_bn(net: Editor, op: Op) -> str | None:
    """Take what multiplies or is added to each channel into the BatchNormalization before it."""
    for norm, other in net.operands(op, "BatchNormalization"):
        if norm.attribute("training_mode", 0) or any(v >= 0 for v in norm.outputs[1:]):
            continue
        if not _normalizes_channels(net, norm) or not all(net.is_constant(v) for v in (*norm.inputs[1:3], other)):
            continue
        scale, shift = net.read(norm.inputs[1]), net.read(norm.inputs[2])
        own = _per_channel(net, other, net.shape(norm.outputs[0]), len(scale))
        if own is None or own.dtype != scale.dtype:
            continue
        if op.op_type == "Mul":
            scale = scale * own
            shift = shift * own
        else:
            shift = shift + own
        inputs = [
            norm.inputs[0],
            net.new_constant(scale, f"{net.names[norm.inputs[1]]}_scaled"),
            net.new_constant(shift, f"{net.names[norm.inputs[2]]}_scaled"),
            *norm.inputs[3:],
        ]
        _replace_keeping(net, [norm, op], norm, inputs, op.outputs)
        return "a factor or summand of a channel can be part of the normalization"
    return None


def _normalizes_channels(net: Editor, norm: Op) -> bool:
    """Return whether a BatchNormalization has one number for each channel, and uses the given mean and variance."""
    return net.opset() >= 7 and norm.attribute("spatial", 1) == 1


def _per_channel(net: Editor, value: int, shape: Dims | None, channels: int) -> Array | None:
    """Return a constant that is one number for each channel of a tensor of some shape, shape (channels,)."""
    array = net.constant(value)
    if array is None or shape is None or array.ndim > len(shape):
        return None
    wide = (1,) * (len(shape) - array.ndim) + array.shape
    if len(wide) < 2 or any(size != 1 for axis, size in enumerate(wide) if axis != 1) or wide[1] not in (1, channels):
        return None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (channels,)))


@_rule("fuse_matmul_add_bias_into_gemm", "Add")
def _matmul_add(net: Editor, op: Op) -> str | None:
    """Make a Gemm of a MatMul of two matrices and the bias that is added."""
    if net.opset() < 7:
        return None
    for product, bias in net.operands(op, "MatMul"):
        a, b, c = (net.shape(v) for v in (*product.inputs, bias))
        if a is None or b is None or c is None or (len(a), len(b)) != (2, 2):
            continue
        if net.dtype(bias) not in _FLOATS or net.dtype(bias) != net.dtype(product.inputs[0]):
            continue
        # only what spreads over the rows: the product is not to be spread over the bias
        if not (len(c) <= 1 or (len(c) == 2 and c[0] == 1)) or not _broadcasts_into(c[-1:], (b[1],)):
            continue
        net.replace([product, op], "Gemm", [*product.inputs, bias], op.outputs)
        return "a product of matrices and a bias"
    return None


@_rule("fuse_transpose_into_gemm", "Gemm")
def _transpose_into_gemm(net: Editor, op: Op) -> str | None:
    """Let a Gemm transpose what it reads."""
    for slot, name in ((0, "transA"), (1, "transB")):
        before = net.before(op, slot, "Transpose")
        if before is None or symbolic_dims.perm(net, before) != [1, 0]:
            continue
        inputs = [before.inputs[0] if place == slot else v for place, v in enumerate(op.inputs)]
        net.replace([before, op], "Gemm", inputs, op.outputs, op.attribute_values() | {name: 1 - op.attribute(name, 0)})
        return "Gemm transposes on its own"
    return None


@_rule("fuse_pad_into_conv", "Conv")
def _pad_into_conv(net: Editor, op: Op) -> str | None:
    """Take zeros that are put around a tensor into the padding of the Conv that reads it."""
    pad = net.before(op, 0, "Pad")
    if pad is None or pad.attribute("mode", "constant") != "constant":
        return None
    pads, shape = symbolic_dims.pads(net, pad), net.shape(op.inputs[0])
    if pads is None or shape is None:
        return None
    if len(pads) != 2 * len(shape) or any(p < 0 for p in pads) or op.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    filler = pad.attribute("value", 0.0) if net.opset() < 11 else _optional(net, pad, 2)
    if filler is None or (np.asarray(filler) != 0).any():
        return None
    rank = len(shape)
    if any(pads[axis] or pads[axis + rank] for axis in (0, 1)):
        return None
    own = op.attribute("pads", [0] * 2 * (rank - 2))
    added = [*pads[2:rank], *pads[rank + 2 :]]
    both = [one + other for one, other in zip(own, added, strict=True)]
    net.replace([pad, op], "Conv", [pad.inputs[0], *op.inputs[1:]], op.outputs, op.attribute_values() | {"pads": both})
    return "a Conv pads with zeros on its own"


# --- the same thing twice --------------------------------------------------------------------------------------------


@_rule("eliminate_common_subexpression")
def _common(net: Editor, op: Op) -> str | None:
    """Compute once what several nodes compute alike."""
    if op.bodies or op.op_type in RANDOM or op.op_type == "Constant" or op.domain not in ("", "ai.onnx.ml"):
        return None
    if not op.inputs or (op.op_type == "Dropout" and (len(op.inputs) > 2 or net.opset() < 7)):
        return None
    twin = net.twin(op)
    if twin is None or len(twin.outputs) < len(op.outputs):
        return None
    pairs = [(made, twin.outputs[slot]) for slot, made in enumerate(op.outputs) if made >= 0]
    if any(other < 0 for _, other in pairs) or any(net.is_output(made) for made, _ in pairs):
        return None
    net.credit(twin, op)
    for made, other in pairs:
        net.redirect(made, other)
    return f"{twin.name or twin.op_type} computes the same"


@_rule("fuse_parallel_matmuls", "MatMul")
def _parallel_matmuls(net: Editor, op: Op) -> str | None:
    """Make one MatMul and a Split of three or more that multiply one tensor by constant matrices."""
    if net.opset() < 13:
        return None
    beside = [other for other in net.uses(op.inputs[0]) if _is_linear(net, other, op)] if len(op.inputs) == 2 else []
    if len(beside) < 3 or op is not min(beside, key=lambda each: each.place):
        return None
    weights = [net.read(each.inputs[1]) for each in beside]
    if len({(weight.dtype, weight.shape[0]) for weight in weights}) > 1:
        return None
    kind_of_product, sizes = net.kind(op.outputs[0]), [weight.shape[1] for weight in weights]
    if kind_of_product is None or not kind_of_product.shape:
        return None
    name = net.names[op.inputs[1]]
    joined = net.new_constant(np.concatenate(weights, axis=1), f"{name}_joined")
    shape = (*kind_of_product.shape[:-1], sum(sizes))
    wide = net.new_value(f"{net.names[op.outputs[0]]}_joined", op.subgraph, kind(kind_of_product.elem_type, shape))
    made = [each.outputs[0] for each in beside]
    beside.sort(key=lambda each: each.place, reverse=True)  # the new nodes stand where the first stood
    net.add(beside, "MatMul", [op.inputs[0], joined], [wide])
    parts = net.new_constant(np.asarray(sizes, np.int64), f"{name}_sizes")
    net.replace(beside, "Split", [wide, parts], made, {"axis": -1}, name=f"{op.name}_split" if op.name else "")
    return f"{len(beside)} products of one tensor"


def _is_linear(net: Editor, op: Op, like: Op) -> bool:
    """Return whether a node multiplies what another one does by a constant matrix of moderate size."""
    if op.op_type != "MatMul" or op.domain or op.subgraph != like.subgraph or op.inputs[0] != like.inputs[0]:
        return False
    weight = op.inputs[1]
    if not net.is_constant(weight) or len(net.readers[weight]) != 1 or net.is_output(weight):
        return False
    return len(net.shape(weight) or ()) == 2 and net.constant_bytes(weight) <= JOINED_AT_MOST


# --- shapes ----------------------------------------------------------------------------------------------------------


@_rule("fold_shapes", "Slice", "Gather", "Concat", "Squeeze", "Unsqueeze", "Cast", "Shape")
def _known_sizes(net: Editor, op: Op) -> str | None:
    """Fold what is taken out of a shape where these sizes are known, though others are not."""
    made = op.outputs[0]
    shape = net.shape(made)
    if net.dtype(made) != TensorProto.INT64 or shape is None or len(shape) > 1 or net.is_output(made):
        return None
    sizes = symbolic_dims.elements(net, made)
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    array = np.asarray(sizes, np.int64)
    net.make_constant(made, array if shape else array.reshape(()))
    return f"it is always {sizes if shape else sizes[0]}"


@_rule("fold_reshape", "Reshape")
def _partly_known(net: Editor, op: Op) -> str | None:
    """Make the shape of a Reshape constant where it only keeps a dimension, or leaves one to be worked out."""
    if net.is_constant(op.inputs[1]) or op.attribute("allowzero", 0):
        return None
    asked = symbolic_dims.elements(net, op.inputs[1])
    data = symbolic_dims.sizes(net, op.inputs[0])
    if asked is None:
        return None
    target: list[int] = []
    for place, size in enumerate(asked):
        if isinstance(size, int):
            target.append(size)
        else:
            target.append(0 if data is not None and place < len(data) and data[place] == size else -1)
    if target.count(-1) > 1:
        return None
    if -1 in target and -1 not in asked and 0 in target:
        return None  # where what is kept is empty, as a batch of none, the other size cannot be worked out
    net.set_input(op, 1, net.new_constant(np.asarray(target, np.int64), f"{net.names[op.outputs[0]]}_shape"))
    return f"its shape is always {target}"


@_rule("fuse_gather_into_shape", "Unsqueeze")
def _gather_into_shape(net: Editor, op: Op) -> str | None:
    """Let Shape give one size as a list, in place of a Gather and an Unsqueeze."""
    gather = net.before(op, 0, "Gather")
    shape = net.maker(gather.inputs[0]) if gather is not None else None
    if gather is None or shape is None or shape.op_type != "Shape" or shape.domain or net.opset() < 15:
        return None
    index, rank = net.constant(gather.inputs[1]), len(net.shape(shape.inputs[0]) or ())
    if index is None or index.ndim or symbolic_dims.axes(net, op) not in ([0], [-1]):
        return None
    places = range(rank)[slice(shape.attribute("start", 0), shape.attribute("end"))]
    if not -len(places) <= int(index) < len(places):
        return None
    place = places[int(index)]
    net.replace([gather, op], "Shape", shape.inputs, op.outputs, {"start": place, "end": place + 1})
    return "Shape can give this size alone"


@_rule("eliminate_nop_where", "Where")
def _nop_where(net: Editor, op: Op) -> str | None:
    """Leave out a Where that takes one side of sizes whatever they are, as exporters write for "or else -1"."""
    made = symbolic_dims.elements(net, op.outputs[0])
    if made is None or net.shape(op.outputs[0]) is None:
        return None
    for value in op.inputs[1:]:
        if net.shape(value) == net.shape(op.outputs[0]) and symbolic_dims.elements(net, value) == made:
            return "its condition is never true here" if net.redirect(op.outputs[0], value) else None
    return None


@_rule("eliminate_nop_expand", "Expand")
def _nop_expand(net: Editor, op: Op) -> str | None:
    """Leave out an Expand to the sizes that a tensor already has."""
    data, asked = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.elements(net, op.inputs[1])
    if data is None or asked is None or len(asked) > len(data):
        return None
    if any(one not in (1, other) for one, other in zip(reversed(asked), reversed(data), strict=False)):
        return None
    return _pass(net, op, "the tensor already has that shape")


@_rule("scalars_for_range", "Range")
def _scalars(net: Editor, op: Op) -> str | None:
    """Return a Range scalars where it reads vectors of one element, which is refused once their shapes are known."""
    slots = [slot for slot, value in enumerate(op.inputs) if net.shape(value) == (1,)]
    if not slots or net.opset() < 13:
        return None
    for slot in slots:
        value = op.inputs[slot]
        array, name = net.constant(value), f"{net.names[value]}_scalar"
        if array is not None:
            net.set_input(op, slot, net.new_constant(array.reshape(()), name))
            continue
        scalar = net.new_value(name, op.subgraph, kind(net.dtype(value), ()))
        first = net.new_constant(np.asarray([0], np.int64), f"{name}_axes")
        net.add([op], "Squeeze", [value, first], [scalar], name=f"{op.name}_scalar" if op.name else "", before=True)
        net.set_input(op, slot, scalar)
    return "its inputs are to be scalars"


# --- control flow ----------------------------------------------------------------------------------------------------


@_rule("eliminate_if_with_const_cond", "If")
def _constant_if(net: Editor, op: Op) -> str | None:
    """Put the branch of an If whose condition is constant in its place."""
    condition = net.constant(op.inputs[0])
    if condition is None or condition.size != 1:
        return None
    chosen = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    body = next((frame for frame in op.bodies if net.graph.subgraphs[frame].attribute == chosen), None)
    if body is None:
        return None
    net.inline(op, body)
    return f"its condition is always {bool(condition.reshape(-1)[0])}"


# --- what several rules ask ------------------------------------------------------------------------------------------

_FLOATS: Final = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def _pass(net: Editor, op: Op, why: str) -> str | None:
    """Let all read what a node reads, in place of what it makes."""
    return why if net.redirect(op.outputs[0], op.inputs[0]) else None


def _replace_keeping(net: Editor, olds: Sequence[Op], like: Op, inputs: Sequence[int], outputs: Sequence[int]) -> Op:
    """Replace nodes by one with the attributes of one of them."""
    return net.replace(olds, like.op_type, inputs, outputs[:1], like.attribute_values())


def _all_equal(array: Array, number: int) -> bool:
    return bool(array.size and array.dtype.kind in "fiub" and (array == array.dtype.type(number)).all())


def _broadcasts_into(shape: Sequence[int | str | None], target: Dims) -> bool:
    """Return whether a tensor of some shape, spread over one of another shape, leaves that shape as it is."""
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(one == 1 or (one is not None and one == other) for one, other in pairs)


def _optional(net: Editor, op: Op, slot: int, default: float = 0.0) -> Array | None:
    """Return the constant that an optional input is, or what stands for it if it is left out."""
    if slot >= len(op.inputs) or op.inputs[slot] < 0:
        return np.asarray(default)
    return net.constant(op.inputs[slot])


def _with_axes(net: Editor, olds: Sequence[Op], data: int, outputs: Sequence[int], axes: Sequence[int]) -> None:
    """Put one Squeeze or Unsqueeze in the place of some."""
    op_type = olds[-1].op_type
    if net.opset() < 13:
        net.replace(olds, op_type, [data], outputs, {"axes": list(axes)})
        return
    given = net.new_constant(np.asarray(axes, np.int64), f"{net.names[outputs[0]]}_axes")
    net.replace(olds, op_type, [data, given], outputs)
