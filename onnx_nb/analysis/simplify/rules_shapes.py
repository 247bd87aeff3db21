"""Rules about shapes: fold known sizes, simplify what exporters compute from shapes; and an If with a known branch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnx_nb.analysis.simplify import symbolic_dims
from onnx_nb.analysis.simplify.elements import kind
from onnx_nb.analysis.simplify.rule import Rule, rule

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.editor import Editor
    from onnx_nb.analysis.simplify.elements import Op

SHAPE_RULES: list[Rule] = []
"""Rules in the order in which they are tried on a node."""

_rule = functools.partial(rule, SHAPE_RULES)


@_rule("fold_shapes", "Slice", "Gather", "Concat", "Squeeze", "Unsqueeze", "Cast", "Shape")
def _known_sizes(net: Editor, op: Op) -> str | None:
    """Fold sizes taken out of a shape where they are known, even if other sizes are not."""
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
    """Make the shape of a Reshape constant where it keeps a dimension or leaves one to be inferred."""
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
        return None  # if a dimension that is kept is 0, as for an empty batch, the other size cannot be inferred
    net.set_input(op, 1, net.new_constant(np.asarray(target, np.int64), f"{net.names[op.outputs[0]]}_shape"))
    return f"its shape is always {target}"


@_rule("fuse_gather_into_shape", "Unsqueeze")
def _gather_into_shape(net: Editor, op: Op) -> str | None:
    """Replace Gather and Unsqueeze of one size by a Shape of that size."""
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
    return "Shape can return only this size"


@_rule("eliminate_nop_where", "Where")
def _nop_where(net: Editor, op: Op) -> str | None:
    """Remove a Where on sizes that always takes the same side, as exporters write for "or else -1"."""
    made = symbolic_dims.elements(net, op.outputs[0])
    if made is None or net.shape(op.outputs[0]) is None:
        return None
    for value in op.inputs[1:]:
        if net.shape(value) == net.shape(op.outputs[0]) and symbolic_dims.elements(net, value) == made:
            return "its condition is never true here" if net.redirect(op.outputs[0], value) else None
    return None


@_rule("eliminate_nop_expand", "Expand")
def _nop_expand(net: Editor, op: Op) -> str | None:
    """Remove an Expand to the shape that a tensor already has."""
    data, asked = symbolic_dims.sizes(net, op.inputs[0]), symbolic_dims.elements(net, op.inputs[1])
    if data is None or asked is None or len(asked) > len(data):
        return None
    if any(one not in (1, other) for one, other in zip(reversed(asked), reversed(data), strict=False)):
        return None
    return net.bypass(op, "the tensor already has that shape")


@_rule("scalars_for_range", "Range")
def _scalars(net: Editor, op: Op) -> str | None:
    """Make the inputs of a Range scalars where they are vectors of one element, which onnx refuses once it knows."""
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
    return "its inputs must be scalars"


@_rule("eliminate_if_with_const_cond", "If")
def _constant_if(net: Editor, op: Op) -> str | None:
    """Replace an If with a constant condition by the branch it takes."""
    condition = net.constant(op.inputs[0])
    if condition is None or condition.size != 1:
        return None
    chosen = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    body = next((frame for frame in op.bodies if net.graph.subgraphs[frame].attribute == chosen), None)
    if body is None:
        return None
    net.inline(op, body)
    return f"its condition is always {bool(condition.reshape(-1)[0])}"
