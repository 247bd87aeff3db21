"""Rules that remove redundancy: nodes without effect, computations of known sizes, equal or unused constants.

A rule changes nothing before it is certain to apply, and returns the reason or None.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto

from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.operators import facts, names_where
from onnx_nb.analysis.model.tensors import as_tensor, constants_of
from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.editor import Editor, Rule, rule
from onnx_nb.analysis.simplify.known_graph import LEFT_OUT, Array, Op, tensor_kind

NO_OPS: list[Rule] = []
SHAPE_RULES: list[Rule] = []
CLEANING: Final = {
    "eliminate_deadend": "Remove nodes whose outputs are unused",
    "eliminate_duplicate_initializer": "Keep one of several equal constants",
    "eliminate_unused_initializer": "Remove unused initializers",
}
"""Rules on whole graphs, with a description of each in one line."""

_rule = functools.partial(rule, NO_OPS)


@_rule("extract_constants", "Constant")
def _extract_constant(net: Editor, op: Op) -> str | None:
    """Turn a Constant node into an initializer."""
    if net.output_count[op.outputs[0]]:
        return None
    tensor = next((as_tensor(entry) for _, entry in constants_of(op.proto)), None)
    if not isinstance(tensor, TensorProto):
        return None
    net.make_constant(op.outputs[0], tensor)
    return "an initializer stores the same"


@_rule("eliminate_identity", "Identity")
def _identity(net: Editor, op: Op) -> str | None:
    """Remove Identity nodes."""
    return net.bypass(op, "it copies")


@_rule("eliminate_nop_dropout", "Dropout")
def _nop_dropout(net: Editor, op: Op) -> str | None:
    """Remove Dropout nodes, which only have an effect in training."""
    training = net.constant(op.input(2))
    may_train = op.input(2) >= 0 and (training is None or bool(training))
    if may_train or (net.opset < 7 and not op.attribute("is_test", 0)):
        return None
    return net.bypass(op, "it only does something in training")


@_rule("eliminate_nop_cast", "Cast", "CastLike")
def _nop_cast(net: Editor, op: Op) -> str | None:
    """Remove a Cast to the type that a tensor already has."""
    to = op.attribute("to") if op.op_type == "Cast" else net.dtype(op.inputs[1])
    return net.bypass(op, "the tensor already has that type") if to and net.dtype(op.inputs[0]) == to else None


@_rule("eliminate_nop_pad", "Pad")
def _nop_pad(net: Editor, op: Op) -> str | None:
    """Remove a Pad by zero."""
    pads = symbolic_dims.pads(net, op)
    return net.bypass(op, "it pads by zero") if pads is not None and not any(pads) else None


@_rule("eliminate_nop_transpose", "Transpose")
def _nop_transpose(net: Editor, op: Op) -> str | None:
    """Remove a Transpose that keeps the order of the axes."""
    perm = symbolic_dims.perm(net, op)
    return net.bypass(op, "it keeps the order of the axes") if perm is not None and perm == sorted(perm) else None


@_rule("eliminate_nop_reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _nop_reshape(net: Editor, op: Op) -> str | None:
    """Remove a Reshape, Flatten, Squeeze or Unsqueeze to the shape that a tensor already has."""
    before, after = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.sizes(net, op.outputs[0])
    is_same = symbolic_dims.are_same(before, after, same_count=op.op_type in ("Reshape", "Flatten"))
    return net.bypass(op, "the tensor already has that shape") if is_same else None


@_rule("eliminate_nop_slice", "Slice")
def _nop_slice(net: Editor, op: Op) -> str | None:
    """Remove a Slice of the whole tensor."""
    shape, slices = net.shape(op.inputs[0]), symbolic_dims.slices(net, op)
    if shape is None or slices is None:
        return None
    for start, end, axis, step in slices:
        size = shape[axis] if -len(shape) <= axis < len(shape) else None
        if step != 1 or start != 0 or end < (size if isinstance(size, int) else 2**31 - 1):
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
    """Remove arithmetic with a neutral element, such as adding 0 or multiplying by 1.

    −0.0 + 0.0 is 0.0: such an Add stays if −0.0 in its place may become another number, as 1 / −0.0 does.
    """
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1, "And": 1, "Or": 0}[op.op_type]
    for slot in (1, 0) if op.op_type in ("Add", "Mul", "And", "Or") else (1,):
        array, other = net.constant(op.inputs[slot]), op.inputs[1 - slot]
        shape = net.shape(other)
        if array is None or not 0 < array.size <= 1 << 16 or array.dtype.kind not in "fiub" or shape is None:
            continue
        if (array != array.dtype.type(neutral)).any() or not symbolic_dims.broadcasts_into(array.shape, shape):
            continue
        if op.op_type == "Pow" and net.dtype(other) != net.dtype(op.outputs[0]):
            continue
        makes_positive = neutral == 0 and array.dtype.kind == "f" and (np.signbit(array) != (op.op_type == "Add")).any()
        if makes_positive and not _hides_sign_of_zero(net, op.outputs[0], set()):
            addition = net.made_by(other, "Add")
            operands = [other, *(addition.inputs if addition else ())]
            if not any(_is_never_negative_zero(net, operand) for operand in operands):
                continue
        if net.redirect(op.outputs[0], other):
            word = {"Add": "adds 0", "Sub": "subtracts 0", "Mul": "multiplies by 1", "Div": "divides by 1"}
            return f"it {word.get(op.op_type, 'changes nothing')}"
    return None


_NEVER_NEGATIVE: Final = tuple(op for op in sorted(names_where("zeros_same")) if (facts(op).range or (-1,))[0] == 0)
"""Operators whose outputs are positive or 0.0."""
_FAR: Final = 64
"""Maximum values through which the sign of a zero is followed."""


def _hides_sign_of_zero(net: Editor, value: int, visited: set[int]) -> bool:
    """Return whether −0.0 in place of 0.0 changes no output of the graph, not even the sign of a zero."""
    visited.add(value)
    if net.output_count[value] or len(visited) > _FAR:
        return False
    for op in net.uses(value):
        row = facts(op.op_type)
        if op.domain or (op.op_type == "Div" and op.inputs[1] == value):
            return False
        bias = row.bias if row.category == "normalize" else len(op.inputs)
        addends = op.inputs if op.op_type == "Add" else op.inputs[bias : bias + 1]
        is_lost = any(addend != value and _is_never_negative_zero(net, addend) for addend in addends)
        if is_lost or "zeros_same" in row.traits:
            continue
        exponent = net.constant(op.inputs[1]) if op.op_type == "Pow" else None
        if "zeros_kept" not in row.traits and (exponent is None or not np.all(exponent > 0)):
            return False
        if not all(v < 0 or v in visited or _hides_sign_of_zero(net, v, visited) for v in op.outputs):
            return False
    return True


def _is_never_negative_zero(net: Editor, value: int) -> bool:
    """Return whether a value is a constant without −0.0, or a function that is positive or 0.0."""
    array = net.constant(value)
    if array is None:
        return net.made_by(value, *_NEVER_NEGATIVE) is not None
    return array.dtype.kind in "fiu" and not bool((np.signbit(array) & (array == 0)).any())


@_rule("eliminate_nop_monotone_argmax", "ArgMax")
def _nop_monotone_argmax(net: Editor, op: Op) -> str | None:
    """Remove a monotone function before ArgMax."""
    before = net.before(op, 0, "Softmax", "LogSoftmax")
    shape = net.shape(op.inputs[0])
    if before is None or not shape or net.opset < 13:
        return None
    if before.attribute("axis", -1) % len(shape) != op.attribute("axis", 0) % len(shape):
        return None
    net.set_input(op, 0, before.inputs[0])
    return f"{before.op_type} keeps the order"


@_rule("eliminate_idempotent", "Relu", "Ceil", "Floor", "Round", "Abs", "Sign")
def _idempotent(net: Editor, op: Op) -> str | None:
    """Remove a repeated idempotent operator: Relu after Relu, Floor after Floor."""
    before = net.made_by(op.inputs[0], op.op_type)
    return net.bypass(op, f"{op.op_type} of {op.op_type} is the same") if before is not None else None


# --- shapes and control flow ------------------------------------------------------------------------------------------

_rule = functools.partial(rule, SHAPE_RULES)


@_rule("fold_shapes", "Slice", "Gather", "Concat", "Squeeze", "Unsqueeze", "Cast", "Shape")
def _known_sizes(net: Editor, op: Op) -> str | None:
    """Fold known sizes that are read from a shape, even if other sizes are unknown."""
    result = op.outputs[0]
    shape = net.shape(result)
    if net.dtype(result) != TensorProto.INT64 or shape is None or len(shape) > 1 or net.output_count[result]:
        return None
    sizes = symbolic_dims.elements(net, result) if net.may_be_constant(result) else None
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    array = np.asarray(sizes, np.int64)
    net.make_constant(result, array if shape else array.reshape(()))
    return f"it is always {sizes if shape else sizes[0]}"


@_rule("fold_reshape", "Reshape")
def _partly_known(net: Editor, op: Op) -> str | None:
    """Make the shape of a Reshape constant where it keeps a dimension or infers one."""
    data, shape = op.inputs[:2]
    sizes = symbolic_dims.elements(net, shape)
    former = symbolic_dims.sizes(net, data) or ()
    if sizes is None or shape in net.constants or op.attribute("allowzero", 0) or not net.may_be_constant(shape):
        return None
    target = [size if isinstance(size, int) else -1 for size in sizes]
    for place, (size, before) in enumerate(zip(sizes, former, strict=False)):
        if size == before and not isinstance(size, int):
            target[place] = 0
    # if a dimension that is kept is 0, as for an empty batch, another size cannot be inferred
    if target.count(-1) > 1 or (-1 in target and -1 not in sizes and 0 in target):
        return None
    net.set_input(op, 1, net.new_constant(np.asarray(target, np.int64), f"{net.names[op.outputs[0]]}_shape"))
    return f"its shape is always {target}"


@_rule("fuse_gather_into_shape", "Unsqueeze", since=15)
def _gather_into_shape(net: Editor, op: Op) -> str | None:
    """Replace Gather and Unsqueeze of one size by a Shape of that size."""
    gather = net.before(op, 0, "Gather")
    shape = net.made_by(gather.inputs[0], "Shape") if gather is not None else None
    if gather is None or shape is None:
        return None
    index, rank = net.constant(gather.inputs[1]), len(net.shape(shape.inputs[0]) or ())
    if index is None or index.ndim or symbolic_dims.axes(net, op) not in ([0], [-1]):
        return None
    places = range(rank)[slice(shape.attribute("start", 0), shape.attribute("end"))]
    if not -len(places) <= int(index) < len(places):
        return None
    place = places[int(index)]
    net.replace([gather, op], "Shape", shape.inputs, {"start": place, "end": place + 1})
    return "Shape can return only this size"


@_rule("eliminate_nop_where", "Where")
def _nop_where(net: Editor, op: Op) -> str | None:
    """Remove a Where on sizes that always takes the same side; exporters write it for "or else -1"."""
    sizes = symbolic_dims.elements(net, op.outputs[0])
    if sizes is None or net.shape(op.outputs[0]) is None:
        return None
    for value in op.inputs[1:]:
        if net.shape(value) == net.shape(op.outputs[0]) and symbolic_dims.elements(net, value) == sizes:
            return "its condition is never true here" if net.redirect(op.outputs[0], value) else None
    return None


@_rule("eliminate_nop_expand", "Expand")
def _nop_expand(net: Editor, op: Op) -> str | None:
    """Remove an Expand to the shape that a tensor already has."""
    data, sizes = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.elements(net, op.inputs[1])
    if data is None or sizes is None or not symbolic_dims.broadcasts_into(sizes, data):
        return None
    return net.bypass(op, "the tensor already has that shape")


@_rule("scalars_for_range", "Range", since=13)
def _scalars(net: Editor, op: Op) -> str | None:
    """Turn vectors of one element into scalars as inputs of a Range; onnx rejects such vectors once it infers them."""
    slots = [slot for slot, value in enumerate(op.inputs) if net.shape(value) == (1,)]
    for slot in slots:
        value = op.inputs[slot]
        array, name = net.constant(value), f"{net.names[value]}_scalar"
        if array is not None:
            net.set_input(op, slot, net.new_constant(array.reshape(()), name))
            continue
        scalar = net.new_value(name, op.subgraph, tensor_kind(net.dtype(value), ()))
        first = net.new_constant(np.asarray([0], np.int64), f"{name}_axes")
        label = f"{op.name}_scalar_{slot}" if op.name else ""
        net.add([op], "Squeeze", [value, first], [scalar], name=label, before=True)
        net.set_input(op, slot, scalar)
    return "its inputs must be scalars" if slots else None


@_rule("eliminate_if_with_const_cond", "If")
def _constant_if(net: Editor, op: Op) -> str | None:
    """Replace an If with a constant condition by the branch it takes."""
    condition = net.constant(op.inputs[0])
    if condition is None or condition.size != 1:
        return None
    branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    for body in op.bodies:
        if net.graph.subgraphs[body].attribute == branch:
            net.inline(op, body)
            return f"its condition is always {branch == 'then_branch'}"
    return None


_Sizes = tuple[symbolic_dims.Size, ...]
_SHAPING: Final = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
REGION: Final = 32
"""Maximum number of elementwise nodes between a Reshape or Transpose and its inverse."""


@_rule("eliminate_inverse_pair", *_SHAPING, "Transpose", since=7)
def _inverse_pair(net: Editor, op: Op) -> str | None:
    """Remove a Reshape or Transpose that only undoes others before elementwise nodes, which can do without both."""
    if net.made_by(op.inputs[0], *symbolic_dims.ELEMENTWISE) is None:
        return None
    inner, outer = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.sizes(net, op.outputs[0])
    if inner is None or outer is None:
        return None
    region, swaps = dict[int, Op](), dict[int, int | Array]()
    waiting = [op.inputs[0]]
    while waiting:
        maker = net.made_by(waiting.pop(), *symbolic_dims.ELEMENTWISE)
        if maker is None or maker.subgraph != op.subgraph or len(region) >= REGION:
            return None
        if maker.number in region:
            continue
        if net.output_count[maker.outputs[0]] or symbolic_dims.sizes(net, maker.outputs[0]) != inner:
            return None
        region[maker.number] = maker
        for value in _data(maker):
            swap = _undone(net, value, op, inner, outer)
            if swap is None:
                waiting.append(value)
            else:
                swaps[value] = swap
    inside = {*region, op.number}
    if any(number not in inside for inner_op in region.values() for number in net.readers[inner_op.outputs[0]]):
        return None
    if not any(isinstance(swap, int) and swap != value for value, swap in swaps.items()):
        return None
    shape, twins = net.shape(op.outputs[0]), dict[int, int]()
    for value, swap in swaps.items():
        twins[value] = swap if isinstance(swap, int) else net.new_constant(swap, f"{net.names[value]}_moved")
    for inner_op in sorted(region.values(), key=lambda inner_op: inner_op.place):
        [result], attributes = inner_op.outputs, inner_op.attributes()
        inputs = [twins.get(value, value) for value in _data(inner_op)] + inner_op.inputs[len(_data(inner_op)) :]
        if result == op.inputs[0]:  # the last of them
            ends: Any = {"outputs": op.outputs, "at": inner_op, "like": inner_op}
            net.replace([inner_op, op], inner_op.op_type, inputs, attributes, **ends)
            break
        twins[result] = net.new_value(f"{net.names[result]}_moved", op.subgraph, tensor_kind(net.dtype(result), shape))
        net.add([inner_op], inner_op.op_type, inputs, [twins[result]], attributes)
    return f"another {op.op_type} is its inverse, and the nodes in between are elementwise"


def _data(op: Op) -> list[int]:
    """Return the inputs of an elementwise node that have the shape of its output, or are broadcast to it."""
    return op.inputs[:1] if op.op_type in symbolic_dims.POINTWISE else op.inputs


def _undone(net: Editor, value: int, op: Op, inner: _Sizes, outer: _Sizes) -> int | Array | None:
    """Return what an elementwise node between two inverse nodes reads instead of a value once both are gone."""
    before = net.made_by(value, *((op.op_type,) if op.op_type == "Transpose" else _SHAPING))
    if before is not None and symbolic_dims.sizes(net, value) == inner:
        if op.op_type == "Transpose":
            first, second = symbolic_dims.perm(net, before), symbolic_dims.perm(net, op)
            if first and second and [first[axis] for axis in second] == sorted(first):
                return before.inputs[0]
        elif symbolic_dims.are_same(symbolic_dims.sizes(net, before.inputs[0]), outer, same_count=True):
            return before.inputs[0]
    shape = net.shape(value)
    if shape is None or len(shape) > min(len(inner), len(outer)):
        return None
    # only the axes from the first that is not 1 matter, and these must stay where they are
    wide = max((len(shape) - axis for axis, size in enumerate(shape) if size != 1), default=0)
    order = symbolic_dims.perm(net, op) if op.op_type == "Transpose" else list(range(len(inner)))
    stay = list(range(len(inner)))[len(inner) - wide :]
    is_kept = inner[len(inner) - wide :] == outer[len(outer) - wide :]
    if is_kept and order is not None and order[len(order) - wide :] == stay:
        return value
    array = net.constant(value)
    if array is None or array.size > 1 << 16:
        return None
    if op.op_type == "Transpose" and order is not None:
        return array.reshape((1,) * (len(order) - array.ndim) + array.shape).transpose(order)
    static = [size for size in outer if isinstance(size, int)]
    return array.reshape(static) if array.shape == inner and len(static) == len(outer) else None


# --- whole graphs -----------------------------------------------------------------------------------------------------


def merge_constants(net: Editor) -> None:
    """Keep one of several equal constants."""
    rule = "eliminate_duplicate_initializer"
    # sparse constants and those of subgraphs are kept
    dense = (v for v, c in net.constants.items() if not (c.subgraph or isinstance(c.tensor, onnx.SparseTensorProto)))
    candidates = followers(((net.dtype(value), net.shape(value)), value) for value in dense if net.is_read(value))
    for values in candidates.values():
        first_of: dict[tuple[Any, ...], int] = {}
        for value in values if len(values) > 1 else ():
            array = net.constant(value)
            if array is None or array.dtype.hasobject:
                continue  # too large to read
            digest = hashlib.sha1(np.ascontiguousarray(array).tobytes(), usedforsecurity=False).digest()
            first = first_of.setdefault((array.dtype.name, array.shape, digest), value)
            if first != value and not net.output_count[value] and net.may(rule, value):
                with net.change(rule, value, f"{net.names[first]} is the same") as change:
                    net.same[value] = first
                    change.tensors[value] = None
                    net.move_readers(value, first)


def remove_unused_initializers(net: Editor) -> None:
    """Remove initializers that no node reads."""
    rule = "eliminate_unused_initializer"
    for value, constant in list(net.constants.items()):
        if constant.is_initializer and not net.is_read(value) and net.may(rule, value):
            with net.change(rule, value, "no node reads it") as change:
                change.tensors[value] = None
                net.mark(constant.subgraph)
                del net.constants[value]


def remove_unused_nodes(net: Editor) -> None:
    """Remove nodes whose outputs are unused, in subgraphs as well, in one change each."""
    rule = "eliminate_deadend"
    for op in sorted(net.ops, key=lambda op: op.place, reverse=True):
        if op.alive and not net.is_useful(op):
            result = next((value for value in op.outputs if value >= 0), LEFT_OUT)
            if result >= 0 and net.may(rule, result):
                with net.change(rule, result, "its outputs are unused"):
                    net.remove(op)
