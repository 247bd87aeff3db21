"""Rules that remove a node which does nothing, or turn a Constant node into an initializer.

A rule changes nothing before it is sure, and returns the reason, or None.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.elements import LEFT_OUT
from onnx_nb.analysis.simplify.rule import Rule, rule

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.editor import Editor
    from onnx_nb.analysis.simplify.elements import Array, Op

NO_OPS: list[Rule] = []
"""Rules in the order in which they are tried on a node."""

_rule = functools.partial(rule, NO_OPS)


@_rule("extract_constants", "Constant")
def _extract_constant(net: Editor, op: Op) -> str | None:
    """Turn a Constant node into an initializer."""
    if net.is_output(op.outputs[0]):
        return None
    tensor = op.attribute("value")
    if isinstance(tensor, TensorProto):
        net.make_constant(op.outputs[0], tensor)
        return "an initializer stores the same"
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
            return "an initializer stores the same"
    return None


@_rule("eliminate_identity", "Identity")
def _identity(net: Editor, op: Op) -> str | None:
    """Remove Identity nodes."""
    return net.bypass(op, "it copies")


@_rule("eliminate_nop_dropout", "Dropout")
def _nop_dropout(net: Editor, op: Op) -> str | None:
    """Remove Dropout nodes, which only do something in training."""
    training = op.inputs[2] if len(op.inputs) > 2 else LEFT_OUT
    if training >= 0:
        value = net.constant(training)
        if value is None or bool(value):
            return None
    if net.opset() < 7 and not op.attribute("is_test", 0):
        return None
    if len(op.outputs) > 1 and op.outputs[1] >= 0 and (net.readers[op.outputs[1]] or net.is_output(op.outputs[1])):
        return None
    return net.bypass(op, "it only does something in training")


@_rule("eliminate_nop_cast", "Cast", "CastLike")
def _nop_cast(net: Editor, op: Op) -> str | None:
    """Remove a Cast to the type that a tensor already has."""
    to = op.attribute("to") if op.op_type == "Cast" else net.dtype(op.inputs[1])
    if not to or net.dtype(op.inputs[0]) != to:
        return None
    return net.bypass(op, "the tensor already has that type")


@_rule("eliminate_nop_pad", "Pad")
def _nop_pad(net: Editor, op: Op) -> str | None:
    """Remove a Pad by zero."""
    pads = symbolic_dims.pads(net, op)
    return net.bypass(op, "it pads by zero") if pads is not None and not any(pads) else None


@_rule("eliminate_nop_transpose", "Transpose")
def _nop_transpose(net: Editor, op: Op) -> str | None:
    """Remove a Transpose that keeps the order of the axes."""
    perm = symbolic_dims.perm(net, op)
    return net.bypass(op, "it keeps the order of the axes") if perm == sorted(perm or [-1]) else None


@_rule("eliminate_nop_reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _nop_reshape(net: Editor, op: Op) -> str | None:
    """Remove a Reshape, Flatten, Squeeze or Unsqueeze to the shape that a tensor already has."""
    before, after = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.sizes(net, op.outputs[0])
    if before is None or after is None or len(before) != len(after):
        return None
    # if all other sizes are equal, so is an unknown one
    differ = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    same_count = op.op_type in ("Reshape", "Flatten") and len(differ) == 1 and 0 not in before
    if differ and not (same_count and any(isinstance(each, symbolic_dims.Unknown) for each in differ[0])):
        return None
    return net.bypass(op, "the tensor already has that shape")


@_rule("eliminate_nop_slice", "Slice")
def _nop_slice(net: Editor, op: Op) -> str | None:
    """Remove a Slice of the whole tensor."""
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
    return net.bypass(op, "it takes the whole tensor")


@_rule("eliminate_nop_concat", "Concat", "Sum", "Max", "Min", "Mean")
def _nop_concat(net: Editor, op: Op) -> str | None:
    """Remove a Concat, Sum, Max, Min or Mean of one tensor."""
    return net.bypass(op, "it has one input") if len(op.inputs) == 1 else None


@_rule("eliminate_nop_split", "Split")
def _nop_split(net: Editor, op: Op) -> str | None:
    """Remove a Split into one part."""
    return net.bypass(op, "it makes one part") if len(op.outputs) == 1 else None


@_rule("eliminate_nop_arithmetic", "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", since=7)
def _nop_arithmetic(net: Editor, op: Op) -> str | None:
    """Remove arithmetic with a neutral element, as adding 0 or multiplying by 1."""
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1, "And": 1, "Or": 0}[op.op_type]
    for slot in (1, 0) if op.op_type in ("Add", "Mul", "And", "Or") else (1,):
        array = net.constant(op.inputs[slot])
        kept = op.inputs[1 - slot]
        if array is None or array.size > 1 << 16 or not _all_equal(array, neutral):
            continue
        shape = net.shape(kept)
        if shape is None or not symbolic_dims.broadcasts_into(array.shape, shape):
            continue
        if op.op_type == "Pow" and net.dtype(kept) != net.dtype(op.outputs[0]):
            continue
        if net.redirect(op.outputs[0], kept):
            word = {"Add": "adds 0", "Sub": "subtracts 0", "Mul": "multiplies by 1", "Div": "divides by 1"}
            return f"it {word.get(op.op_type, 'changes nothing')}"
    return None


@_rule("eliminate_nop_monotone_argmax", "ArgMax")
def _nop_monotone_argmax(net: Editor, op: Op) -> str | None:
    """Remove a monotone function before ArgMax."""
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
    """Remove a repeated idempotent operator: Relu after Relu, Floor after Floor."""
    before = net.maker(op.inputs[0])
    if before is None or before.op_type != op.op_type or before.domain:
        return None
    return net.bypass(op, f"{op.op_type} of {op.op_type} is the same")


def _all_equal(array: Array, number: int) -> bool:
    return bool(array.size and array.dtype.kind in "fiub" and (array == array.dtype.type(number)).all())
