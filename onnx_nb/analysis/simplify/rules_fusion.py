"""Rules that fuse nodes: consecutive ones, arithmetic into weights, equal and parallel ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx

from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model.tensors import Dims
from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.editor import Editor, Rule, rule
from onnx_nb.analysis.simplify.known_graph import FLOATS, Array, Op, tensor_kind

FUSIONS: list[Rule] = []
"""Rules in the order in which they are tried on a node."""

JOINED_AT_MOST: Final = 1 << 20
"""Maximum bytes of a weight that is concatenated with others.

What is joined is a copy, in memory and in the new file, and saves nodes rather than time: onnxruntime takes as long for
the parts on their own (0.92 to 1.16 of their CPU time joined, for weights from 16 KiB to 4 MiB and 1 to 128 rows).
"""
_rule = functools.partial(rule, FUSIONS)


@_rule("fuse_consecutive_transposes", "Transpose")
def _transposes(net: Editor, op: Op) -> str | None:
    """Merge two Transposes."""
    before = net.made_by(op.inputs[0], "Transpose")
    first, second = symbolic_dims.perm(net, before) if before is not None else None, symbolic_dims.perm(net, op)
    if before is None or not first or not second or len(first) != len(second):
        return None
    net.replace([before, op], "Transpose", before.inputs[:1], {"perm": [first[i] for i in second]})
    return "two Transposes in a row"


def _only_before_its_like(net: Editor, op: Op) -> Op | None:
    """Return the node before this one if both and all its readers have one operator: merged into all, it goes."""
    before = net.made_by(op.inputs[0], op.op_type)
    if before is None or before.subgraph != op.subgraph or net.output_count[before.outputs[0]]:
        return None
    like = {(use.op_type, use.domain, use.subgraph) for use in net.uses(before.outputs[0])}
    return before if len(like) == 1 else None


@_rule("fuse_consecutive_squeezes", "Squeeze", "Unsqueeze")
def _squeezes(net: Editor, op: Op) -> str | None:
    """Merge two Squeezes or two Unsqueezes."""
    before = _only_before_its_like(net, op)
    if before is None:
        return None
    inner = net.shape(before.inputs[0])
    first, second = symbolic_dims.axes(net, before), symbolic_dims.axes(net, op)
    if inner is None or first is None or second is None:
        return None
    rank = len(inner)
    if op.op_type == "Unsqueeze":  # in reverse, they are two Squeezes of the result
        first, second, rank = second, first, rank + len(first) + len(second)
    first = [axis % rank for axis in first]
    rest = [axis for axis in range(rank) if axis not in first]
    axes = sorted([*first, *(rest[axis % len(rest)] for axis in second)])
    if net.opset < 13:
        net.replace([before, op], op.op_type, before.inputs[:1], {"axes": axes})
    else:
        axes_value = net.new_constant(np.asarray(axes, np.int64), f"{net.names[op.outputs[0]]}_axes")
        net.replace([before, op], op.op_type, [before.inputs[0], axes_value])
    return f"two {op.op_type}s in a row"


@_rule("fuse_consecutive_reshapes", "Reshape")
def _reshapes(net: Editor, op: Op) -> str | None:
    """Make a Reshape after a Reshape, Flatten, Squeeze or Unsqueeze read the tensor before it."""
    before, target = net.made_by(op.inputs[0], "Reshape", "Flatten", "Squeeze", "Unsqueeze"), net.constant(op.inputs[1])
    # 0 means the size in the tensor in between
    if before is None or target is None or (0 in target.tolist() and not op.attribute("allowzero", 0)):
        return None
    net.set_input(op, 0, before.inputs[0])
    return "only the last shape matters"


@_rule("fuse_consecutive_concats", "Concat")
def _concats(net: Editor, op: Op) -> str | None:
    """Merge two Concats along the same axis."""
    shape, axis = net.shape(op.outputs[0]), op.attribute("axis", 0)
    for slot, value in enumerate(op.inputs):
        before = net.before(op, slot, "Concat")
        if before is None:
            continue
        apart = before.attribute("axis", 0) - axis
        if apart == 0 or (shape is not None and apart % len(shape) == 0):
            inputs = [operand for v in op.inputs for operand in (before.inputs if v == value else [v])]
            net.replace([before, op], "Concat", inputs, {"axis": axis})
            return "two Concats along one axis"
    return None


@_rule("fuse_consecutive_slices", "Slice", since=10)
def _slices_in_row(net: Editor, op: Op) -> str | None:
    """Merge two Slices along different axes."""
    before = _only_before_its_like(net, op)
    if before is None:
        return None
    shape, first, second = net.shape(before.inputs[0]), symbolic_dims.slices(net, before), symbolic_dims.slices(net, op)
    if shape is None or first is None or second is None:
        return None
    both = [(start, end, axis % len(shape), step) for start, end, axis, step in (*first, *second)]
    if len({axis for _, _, axis, _ in both}) < len(both):
        return None
    name, columns = f"{net.names[op.outputs[0]]}_slice", zip(*both, strict=True)
    parameters = [net.new_constant(np.asarray(column, np.int64), name) for column in columns]
    net.replace([before, op], "Slice", [before.inputs[0], *parameters])
    return "two Slices along different axes"


@_rule("fuse_consecutive_reduce_unsqueeze", "Unsqueeze")
def _reduce_unsqueeze(net: Editor, op: Op) -> str | None:
    """Keep the axes of a reduction that an Unsqueeze restores."""
    before = net.before(op, 0, *names_where("reduces"))
    if before is None or before.attribute("keepdims", 1) != 0:
        return None
    inner, back = net.shape(before.inputs[0]), symbolic_dims.axes(net, op)
    away = [before.attribute("axis", 0)] if before.op_type.startswith("ArgM") else symbolic_dims.axes(net, before)
    if inner is None or not away or back is None:
        return None
    if sorted(axis % len(inner) for axis in away) != sorted(axis % len(inner) for axis in back):
        return None
    net.replace([before, op], before.op_type, before.inputs, before.attributes() | {"keepdims": 1})
    return f"{before.op_type} can keep these axes"


@_rule("fuse_consecutive_log_softmax", "Log")
def _log_softmax(net: Editor, op: Op) -> str | None:
    """Replace Log of Softmax by LogSoftmax."""
    before = net.before(op, 0, "Softmax")
    if before is None:
        return None
    axis = before.attribute("axis", -1 if net.opset >= 13 else 1)
    net.replace([before, op], "LogSoftmax", before.inputs, {"axis": axis})
    return "the logarithm of a Softmax"


# --- arithmetic into weights ------------------------------------------------------------------------------------------


@_rule("fuse_bn_into_conv", "BatchNormalization")
def _bn_into_conv(net: Editor, op: Op) -> str | None:
    """Fuse a BatchNormalization into the weights of the Conv before it."""
    conv = net.before(op, 0, "Conv", "ConvTranspose")
    if conv is None or not _normalizes_channels(net, op):
        return None
    if conv.op_type == "ConvTranspose" and conv.attribute("group", 1) != 1:
        return None
    if not _are_constant(net, *conv.inputs[1:], *op.inputs[1:5]) or net.dtype(conv.inputs[1]) not in FLOATS:
        return None
    weight = net.read(conv.inputs[1])
    scale, shift, mean, variance = (net.read(v).astype(np.float64) for v in op.inputs[1:5])
    bias = net.read(conv.inputs[2]).astype(np.float64) if conv.input(2) >= 0 else 0.0
    factor = scale / np.sqrt(variance + op.attribute("epsilon", 1e-5))
    axis = 0 if conv.op_type == "Conv" else 1
    if weight.shape[axis] != len(factor):
        return None
    spread = factor.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    new_weight = (weight * spread).astype(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).astype(weight.dtype)
    if not (np.isfinite(new_weight.astype(np.float64)).all() and np.isfinite(new_bias.astype(np.float64)).all()):
        return None
    _absorb(net, conv, op, {1: (conv.inputs[1], new_weight), 2: (op.inputs[2], new_bias)}, "bn")
    return "scale and shift can be part of the weights"


@_rule("fuse_add_bias_into_conv", "Add", since=7)
def _bias_into_conv(net: Editor, op: Op) -> str | None:
    """Fuse an Add to each channel into the bias of the Conv before it."""
    for conv, addend in net.operands(op, "Conv", "ConvTranspose"):
        shape, weight = net.shape(conv.outputs[0]), net.shape(conv.inputs[1])
        if shape is None or weight is None or net.dtype(addend) != net.dtype(conv.inputs[1]):
            continue
        channels = weight[0] if conv.op_type == "Conv" else shape[1]
        new = _per_channel(net, addend, shape, channels) if isinstance(channels, int) else None
        old = net.constant(conv.input(2))
        if new is None or (old is None and conv.input(2) >= 0):
            continue
        _absorb(net, conv, op, {2: (addend, new if old is None else old + new)}, "bias")
        return "an addend of each channel is a bias"
    return None


@_rule("fuse_mul_into_conv", "Mul", since=7)
def _mul_into_conv(net: Editor, op: Op) -> str | None:
    """Fuse a Mul of each channel into the weights of the Conv before it."""
    for conv, factor in net.operands(op, "Conv"):
        if not _are_constant(net, *conv.inputs[1:], factor):
            continue
        weight = net.read(conv.inputs[1])
        scale = _per_channel(net, factor, net.shape(conv.outputs[0]), weight.shape[0])
        if scale is None or weight.dtype != scale.dtype or net.dtype(factor) not in FLOATS:
            continue
        spread = scale.astype(np.float64).reshape(-1, *[1] * (weight.ndim - 1))
        weights = {1: (conv.inputs[1], (weight * spread).astype(weight.dtype))}
        if conv.input(2) >= 0:
            bias = net.read(conv.inputs[2])
            weights[2] = (conv.inputs[2], (bias * scale.astype(np.float64)).astype(bias.dtype))
        _absorb(net, conv, op, weights, "scaled")
        return "a factor of each channel can be part of the weights"
    return None


@_rule("fuse_scale_into_bn", "Mul", "Add")
def _scale_into_bn(net: Editor, op: Op) -> str | None:
    """Fuse a Mul or Add of each channel into the BatchNormalization before it."""
    for norm, other in net.operands(op, "BatchNormalization"):
        if not _normalizes_channels(net, norm) or not _are_constant(net, *norm.inputs[1:3], other):
            continue
        scale, shift = net.read(norm.inputs[1]), net.read(norm.inputs[2])
        factors = _per_channel(net, other, net.shape(norm.outputs[0]), len(scale))
        if factors is None or factors.dtype != scale.dtype:
            continue
        scale, shift = (scale * factors, shift * factors) if op.op_type == "Mul" else (scale, shift + factors)
        _absorb(net, norm, op, {1: (norm.inputs[1], scale), 2: (norm.inputs[2], shift)}, "scaled")
        return "a factor or addend of each channel can be part of the normalization"
    return None


def _absorb(net: Editor, into: Op, op: Op, weights: Mapping[int, tuple[int, Array]], suffix: str) -> None:
    """Replace two nodes by the first with new constants at some of its inputs, each named after a value."""
    inputs = list(into.inputs)
    for slot, (value, array) in weights.items():
        inputs[slot : slot + 1] = [net.new_constant(array, f"{net.names[value]}_{suffix}")]
    net.replace([into, op], into.op_type, inputs, into.attributes(), outputs=op.outputs[:1])


def _are_constant(net: Editor, *values: int) -> bool:
    return all(value < 0 or value in net.constants for value in values)


def _normalizes_channels(net: Editor, norm: Op) -> bool:
    """Return whether a BatchNormalization has one scale for each channel and is not in training mode."""
    is_training = norm.attribute("training_mode", 0) or any(value >= 0 for value in norm.outputs[1:])
    return net.opset >= 7 and norm.attribute("spatial", 1) == 1 and not is_training


def _per_channel(net: Editor, value: int, shape: Dims | None, channels: int) -> Array | None:
    """Return a constant with one number for each channel of a tensor, in shape (channels,); None for others."""
    array = net.constant(value)
    if array is None or shape is None or array.ndim > len(shape):
        return None
    wide = (1,) * (len(shape) - array.ndim) + array.shape
    if len(wide) < 2 or any(size != 1 for axis, size in enumerate(wide) if axis != 1) or wide[1] not in (1, channels):
        return None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (channels,)))


@_rule("fuse_matmul_add_bias_into_gemm", "Add", since=7)
def _matmul_add(net: Editor, op: Op) -> str | None:
    """Replace a MatMul of two matrices and an Add of a bias by Gemm."""
    for product, bias in net.operands(op, "MatMul"):
        a, b, c = (net.shape(v) for v in (*product.inputs, bias))
        if a is None or b is None or c is None or (len(a), len(b)) != (2, 2):
            continue
        if net.dtype(bias) not in FLOATS or net.dtype(bias) != net.dtype(product.inputs[0]):
            continue
        # only a bias that broadcasts over the rows: the product must not be broadcast to the bias
        if not (len(c) <= 1 or (len(c) == 2 and c[0] == 1)) or not symbolic_dims.broadcasts_into(c[-1:], (b[1],)):
            continue
        net.replace([product, op], "Gemm", [*product.inputs, bias])
        return "a matrix product and a bias"
    return None


@_rule("fuse_transpose_into_gemm", "Gemm")
def _transpose_into_gemm(net: Editor, op: Op) -> str | None:
    """Fuse a Transpose into the Gemm that reads it."""
    for slot, name in ((0, "transA"), (1, "transB")):
        before = net.before(op, slot, "Transpose")
        if before is not None and symbolic_dims.perm(net, before) == [1, 0]:
            inputs = [before.inputs[0] if place == slot else v for place, v in enumerate(op.inputs)]
            net.replace([before, op], "Gemm", inputs, op.attributes() | {name: 1 - op.attribute(name, 0)})
            return "Gemm can transpose its inputs"
    return None


@_rule("fuse_pad_into_conv", "Conv")
def _pad_into_conv(net: Editor, op: Op) -> str | None:
    """Fuse a Pad with zeros into the Conv that reads it."""
    pad, shape = net.before(op, 0, "Pad"), net.shape(op.inputs[0])
    pads = symbolic_dims.pads(net, pad) if pad is not None else None
    if pad is None or pads is None or shape is None or pad.attribute("mode", "constant") != "constant":
        return None
    if len(pads) != 2 * len(shape) or min(pads, default=0) < 0 or op.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    filler = net.constant(pad.input(2)) if net.opset >= 11 and pad.input(2) >= 0 else pad.attribute("value", 0.0)
    rank = len(shape)
    if filler is None or np.any(filler) or any(pads[axis] or pads[axis + rank] for axis in (0, 1)):
        return None
    conv_pads, margins = op.attribute("pads", [0] * 2 * (rank - 2)), [*pads[2:rank], *pads[rank + 2 :]]
    sums = [one + other for one, other in zip(conv_pads, margins, strict=True)]
    net.replace([pad, op], "Conv", [pad.inputs[0], *op.inputs[1:]], op.attributes() | {"pads": sums})
    return "a Conv can pad with zeros"


# --- equal and parallel nodes -----------------------------------------------------------------------------------------


@_rule("eliminate_common_subexpression")
def _common(net: Editor, op: Op) -> str | None:
    """Replace several equal nodes by one."""
    varies = op.bodies or op.domain not in ("", "ai.onnx.ml") or op.op_type in names_where("random") | {"Constant"}
    if varies or not op.inputs or (op.op_type == "Dropout" and (len(op.inputs) > 2 or net.opset < 7)):
        return None
    twin = net.twin(op)
    if twin is None or len(twin.outputs) < len(op.outputs):
        return None
    pairs = [(result, other) for result, other in zip(op.outputs, twin.outputs, strict=False) if result >= 0]
    if any(other < 0 or net.output_count[result] for result, other in pairs):
        return None
    net.credit(twin, op)
    for result, other in pairs:
        net.redirect(result, other)
    return f"{twin.name or twin.op_type} computes the same"


@_rule("fuse_parallel_matmuls", "MatMul", since=13)
def _parallel_matmuls(net: Editor, op: Op) -> str | None:
    """Merge three or more MatMuls of one tensor with constant matrices into a MatMul and a Split."""
    readers = net.uses(op.inputs[0]) if len(op.inputs) == 2 else []
    parallel = [reader for reader in readers if _is_linear(net, reader, op)]
    if len(parallel) < 3 or op is not min(parallel, key=lambda reader: reader.place):
        return None
    weights, product = [net.read(reader.inputs[1]) for reader in parallel], net.kind(op.outputs[0])
    if len({(weight.dtype, weight.shape[0]) for weight in weights}) > 1 or not product.shape:
        return None
    sizes, name = [weight.shape[1] for weight in weights], net.names[op.inputs[1]]
    weight_value = net.new_constant(np.concatenate(weights, axis=1), f"{name}_joined")
    kind = tensor_kind(product.elem_type, (*product.shape[:-1], sum(sizes)))
    wide = net.new_value(f"{net.names[op.outputs[0]]}_joined", op.subgraph, kind)
    results = [reader.outputs[0] for reader in parallel]
    parallel.sort(key=lambda reader: reader.place, reverse=True)  # the new nodes take the position of the first
    net.add(parallel, "MatMul", [op.inputs[0], weight_value], [wide])
    parts = net.new_constant(np.asarray(sizes, np.int64), f"{name}_sizes")
    split_name = f"{op.name}_split" if op.name else ""
    net.replace(parallel, "Split", [wide, parts], {"axis": -1}, outputs=results, name=split_name)
    return f"{len(parallel)} products of one tensor"


def _is_linear(net: Editor, op: Op, like: Op) -> bool:
    """Return whether a node multiplies the same tensor as another by a constant matrix of moderate size."""
    if op.op_type != "MatMul" or op.domain or op.subgraph != like.subgraph or op.inputs[0] != like.inputs[0]:
        return False
    weight = op.inputs[1]
    if weight not in net.constants or net.output_count[weight]:
        return False
    # layers may share a weight: joined for each of them, it is one constant again
    if any(use.op_type != "MatMul" or use.domain or use.inputs[0] == weight for use in net.uses(weight)):
        return False
    return len(net.shape(weight) or ()) == 2 and net.constant_bytes(weight) <= JOINED_AT_MOST


@_rule("fuse_parallel_adds", "Split", since=13)
def _parallel_adds(net: Editor, op: Op) -> str | None:
    """Merge the Adds of constant vectors to two or more parts of a Split into an Add before it."""
    shape, kind = net.shape(op.inputs[0]), net.kind(op.inputs[0])
    if not shape or op.attribute("axis", 0) not in (-1, len(shape) - 1) or kind.elem_type not in FLOATS:
        return None
    adds, biases, outputs = list[Op](), list[Array | int](), list[int]()
    for result in op.outputs:
        size = (net.shape(result) or (None,))[-1] if result >= 0 else None
        if not isinstance(size, int):
            return None
        add = net.only_use(result)
        is_add = add is not None and (add.op_type, add.domain, add.subgraph) == ("Add", "", op.subgraph)
        read = [value for value in add.inputs if value != result] if add is not None and is_add else []
        bias = net.constant(read[0]) if read else None
        if add is not None and bias is not None and bias.shape == (size,):
            adds.append(add)
            biases.append(bias)
            outputs += add.outputs
        else:
            biases.append(size)
            outputs.append(result)
    others = sum(part for part in biases if isinstance(part, int))
    # a file may claim any size for the other parts
    if len(adds) < 2 or others > sum(part.size for part in biases if not isinstance(part, int)):
        return None
    name = net.names[op.inputs[0]]
    wide = net.new_value(f"{name}_biased", op.subgraph, kind)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    # adding −0.0 changes nothing
    vectors = [np.full(part, -0.0, dtype) if isinstance(part, int) else part for part in biases]
    bias_value = net.new_constant(np.concatenate(vectors), f"{name}_bias")
    net.add(adds, "Add", [op.inputs[0], bias_value], [wide], at=op, before=True)
    net.replace([*adds, op], "Split", [wide, *op.inputs[1:]], op.attributes(), outputs=outputs)
    return f"{len(adds)} vectors are added to parts of one tensor"
