"""Sizes of dimensions that are known before a model runs, small integers computed from them, axes of nodes.

A symbolic size is traced back to its origin, through nodes that keep it and through the shape computations of
exporters, so that two sizes that are always equal compare equal. Results stay valid when the graph is rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from onnx import TensorProto

from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.graph.types import is_static
from onnx_nb.analysis.simplify.known_graph import KnownGraph, Op

DEPTH: Final = 64
"""Maximum number of nodes through which a size is traced; each takes up to five frames of Python's stack."""

POINTWISE: Final = names_where("pointwise")
"""Operators that compute each element of the output from the same element of the first input."""
BROADCASTING: Final = names_where("broadcast")
"""Operators that compute each element of the output from the same elements of all inputs, which are broadcast."""
ELEMENTWISE: Final = POINTWISE | BROADCASTING


class Unknown(NamedTuple):
    """A number that is unknown before the model runs; two that compare equal are known to be the same."""

    value: int
    place: int
    """An axis of the value, or the index of an element."""
    is_size: bool
    """Whether it is the size of an axis, and so never negative."""


Size = int | str | Unknown
"""A number, a symbol of the model, or unknown."""


def sizes(net: KnownGraph, value: int, depth: int = 0) -> tuple[Size, ...] | None:
    """Return the shape of a value; an unknown size is a symbol or `Unknown`; None if the rank is unknown."""
    shape = net.shape(value)
    if shape is None:
        return None
    return tuple([dim if isinstance(dim, int) else _size(net, value, axis, depth) for axis, dim in enumerate(shape)])


def elements(net: KnownGraph, value: int, depth: int = 0) -> list[Size] | None:
    """Return the elements of a vector of sizes, or one size; None if there may be many, or they are not integers."""
    key = ("elements", value)
    if key not in net.memo:
        net.memo[key] = None  # in case the trace comes back here
        net.memo[key] = _elements(net, value, depth + 1)
    sizes: list[Size] | None = net.memo[key]
    return sizes


def are_same(before: Sequence[Size] | None, after: Sequence[Size] | None, *, same_count: bool) -> bool:
    """Return whether two shapes are known to be equal, of tensors with the same number of elements if `same_count`."""
    if before is None or after is None or len(before) != len(after):
        return False
    # if all other sizes are equal, one unknown size is equal as well
    differ = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    is_equal = same_count and len(differ) == 1 and 0 not in before
    return not differ or (is_equal and any(isinstance(size, Unknown) for size in differ[0]))


def is_size(size: Size) -> bool:
    """Return whether a size is unknown but never negative."""
    return isinstance(size, str) or (isinstance(size, Unknown) and size.is_size)


def _size(net: KnownGraph, value: int, axis: int, depth: int) -> Size:
    """Trace a dimension back to its origin."""
    shape = net.shape(value)
    if shape is None or not -len(shape) <= axis < len(shape):
        return Unknown(value, axis, is_size=True)
    dim = shape[axis]
    if dim is not None:
        return dim
    key = ("size", value, axis % len(shape))
    if key not in net.memo:
        unknown = net.memo[key] = Unknown(value, axis % len(shape), is_size=True)  # in case the trace comes back here
        maker = net.maker(value)
        if maker is not None and not maker.domain and depth < DEPTH:
            net.memo[key] = _traced(net, maker, len(shape), unknown, depth + 1)
    size: Size = net.memo[key]
    return size


def _traced(net: KnownGraph, op: Op, rank: int, unknown: Unknown, depth: int) -> Size:
    """Return the origin of a dimension of a node's output of a given rank; `unknown` if unknown."""
    place = unknown.place - rank
    if op.op_type == "MatMul" and any(len(net.shape(value) or ()) < 2 for value in op.inputs):
        return unknown
    if op.op_type == "MatMul" and place >= -2:
        return _size(net, op.inputs[place + 2], place, depth)
    if op.op_type == "MatMul" or op.op_type in BROADCASTING:
        shapes = [(value, net.shape(value)) for value in op.inputs]
        if any(shape is None for _, shape in shapes):
            return unknown
        wide = [value for value, shape in shapes if shape and -place <= len(shape) and shape[place] != 1]
        sizes_ = {_size(net, value, place, depth) for value in wide}
        return sizes_.pop() if len(sizes_) == 1 else unknown
    if not op.inputs or net.shape(op.inputs[0]) is None:
        return unknown
    if op.op_type in ("Range", "Reshape", "Expand", "ConstantOfShape"):
        return _asked(net, op, rank, unknown, depth)
    source = _source(net, op, rank, unknown)
    return unknown if source is None else _size(net, *source, depth)


def _source(net: KnownGraph, op: Op, rank: int, unknown: Unknown) -> tuple[int, int] | None:
    """Return the input and its axis with the same size as an axis of a node's output; None if unknown."""
    kind, data, axis = op.op_type, op.inputs[0], unknown.place
    before = net.shape(data) or ()
    if kind in POINTWISE or kind in names_where("shaped"):
        return (data, axis) if op.outputs[0] == unknown.value and len(before) == rank else None
    if kind in names_where("batched"):
        return (data, 0) if axis == 0 else None
    if kind == "Transpose":
        order = perm(net, op)
        return None if order is None else (data, order[axis])
    if kind == "Gather":
        index, along = net.shape(op.inputs[1]), op.attribute("axis", 0) % max(1, len(before))
        if index is None:
            return None
        if along <= axis < along + len(index):
            return op.inputs[1], axis - along
        return data, axis if axis < along else axis - len(index) + 1
    numbers: list[int] | None = None
    if kind in ("Concat", "Split"):
        numbers = [op.attribute("axis", 0)]
    elif kind == "Slice":
        numbers = [axis_[2] for axis_ in slices(net, op) or ()]
    elif kind in ("Squeeze", "Unsqueeze") or (kind.startswith("Reduce") and op.attribute("keepdims", 1)):
        numbers = axes(net, op)
    if not numbers:
        return None
    axes_ = {axis_ % max(rank, len(before)) for axis_ in numbers}
    rest = [axis_ for axis_ in range(max(rank, len(before))) if axis_ not in axes_]
    if kind == "Squeeze":
        return (data, rest[axis]) if len(rest) == rank else None
    if axis in axes_:
        return None
    return data, rest.index(axis) if kind == "Unsqueeze" else axis


def _asked(net: KnownGraph, op: Op, rank: int, unknown: Unknown, depth: int) -> Size:
    """Return the size of an axis of a tensor whose shape is computed."""
    kind, axis, before = op.op_type, unknown.place, net.shape(op.inputs[0]) or ()
    if kind == "Range":
        start, limit, delta = (elements(net, value, depth) for value in op.inputs)
        if start != [0] or delta != [1] or limit is None or len(limit) != 1:
            return unknown
        return limit[0] if is_size(limit[0]) else unknown
    sizes_ = elements(net, op.inputs[-1], depth)
    if sizes_ is None or len(sizes_) > rank or op.attribute("allowzero", 0):
        return unknown
    if kind != "Expand" and len(sizes_) != rank:
        return unknown
    place = axis - rank
    size: Size = sizes_[place] if -place <= len(sizes_) else 1
    if kind == "Reshape" and size == 0 and axis < len(before):
        return _size(net, op.inputs[0], axis, depth)
    if kind == "Expand":
        inner: Size = _size(net, op.inputs[0], place, depth) if -place <= len(before) else 1
        if inner not in (1, size):
            return inner if size == 1 else unknown
    return size if is_size(size) else unknown


def _elements(net: KnownGraph, value: int, depth: int) -> list[Size] | None:
    array = net.constant(value)
    if array is not None:
        return list(array.reshape(-1).tolist()) if array.ndim <= 1 and array.dtype.kind in "iu" else None
    shape, maker = net.shape(value), net.maker(value)
    if shape is None or len(shape) > 1 or net.dtype(value) != TensorProto.INT64:
        return None
    sizes = _computed(net, maker, depth) if maker is not None and not maker.domain and depth < DEPTH else None
    if sizes is None and is_static(shape) and math.prod(shape) <= 64:
        return [Unknown(value, place, is_size=False) for place in range(math.prod(shape))]
    return sizes


def _computed(net: KnownGraph, op: Op, depth: int) -> list[Size] | None:
    """Return the elements that a node computes from sizes, in the forms that exporters write."""
    kind = op.op_type
    if kind == "Shape":
        shape = sizes(net, op.inputs[0], depth)
        return None if shape is None else list(shape)[slice(op.attribute("start", 0), op.attribute("end"))]
    if kind in ("Unsqueeze", "Squeeze", "Identity", "Cast", "Reshape"):
        return elements(net, op.inputs[0], depth)
    if kind in ("Concat", "Mul"):
        parts = [part for read in op.inputs if (part := elements(net, read, depth)) is not None]
        if len(parts) < len(op.inputs):
            return None
        if kind == "Concat":
            return [size for part in parts for size in part]
        products = [size for pair in zip(*parts, strict=False) if (size := _product(*pair)) is not None]
        return products if len(products) == len(parts[0]) == len(parts[1]) else None
    if kind == "Slice":
        inner, cuts = elements(net, op.inputs[0], depth), slices(net, op)
        if inner is None or cuts is None or len(cuts) != 1 or cuts[0][3] <= 0:
            return None
        start, end, _, step = cuts[0]
        return inner[slice(start, end, step)]
    if kind == "Gather":
        inner, index = elements(net, op.inputs[0], depth), net.constant(op.inputs[1])
        if inner is None or index is None or index.ndim > 1 or len(net.shape(op.inputs[0]) or ()) != 1:
            return None
        places = index.reshape(-1).tolist()
        return [inner[place] for place in places] if all(-len(inner) <= p < len(inner) for p in places) else None
    return _chosen(net, op, depth) if kind == "Where" else None


def _product(one: Size, other: Size) -> Size | None:
    if one == 1 or other == 1:
        return other if one == 1 else one
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def _chosen(net: KnownGraph, op: Op, depth: int) -> list[Size] | None:
    """Return the elements of a Where that exporters write for "this size, or else that of x"."""
    test = net.made_by(op.inputs[0], "Equal")
    read = (*test.inputs, *op.inputs[1:]) if test is not None else ()
    sides = [side for value in read if (side := elements(net, value, depth)) is not None]
    if test is None or len(sides) < len(read):
        return None
    count = max(map(len, sides))
    columns = [side * count if len(side) == 1 else side for side in sides]
    if any(len(column) != count for column in columns):
        return None
    sizes_: list[Size] = []
    for one, two, yes, no in zip(*columns, strict=True):
        # a size is never negative, so it is never the -1 that means "unchanged"
        differ = isinstance(one, int) and isinstance(two, int) and one != two
        differ = differ or (-1 in (one, two) and any(map(is_size, (one, two))))
        if not differ and one != two:
            return None
        sizes_.append(no if differ else yes)
    return sizes_


# --- axes of nodes ----------------------------------------------------------------------------------------------------


def _integers(net: KnownGraph, op: Op, slot: int) -> list[int] | None:
    """Return the integers of a constant input; None if it is omitted or not constant."""
    array = net.constant(op.input(slot))
    return None if array is None else [int(x) for x in array.reshape(-1)]


def pads(net: KnownGraph, op: Op) -> list[int] | None:
    """Return the padding of a Pad, all starts before all ends; None if unknown."""
    if net.opset < 11:
        numbers: list[int] | None = op.attribute("pads") or op.attribute("paddings")
        return numbers
    return None if op.input(3) >= 0 else _integers(net, op, 1)


def perm(net: KnownGraph, op: Op) -> list[int] | None:
    """Return the permutation of a Transpose; None if the rank is unknown."""
    order, shape = op.attribute("perm"), net.shape(op.inputs[0])
    if order is not None:
        return list(order)
    return None if shape is None else list(range(len(shape)))[::-1]


def axes(net: KnownGraph, op: Op) -> list[int] | None:
    """Return the axes of a Squeeze, Unsqueeze or reduction; None if they are omitted or unknown."""
    numbers = op.attribute("axes")
    return list(numbers) if numbers is not None else _integers(net, op, 1)


def slices(net: KnownGraph, op: Op) -> list[tuple[int, int, int, int]] | None:
    """Return (start, end, axis, step) for each axis of a Slice; None if they are unknown."""
    if any(value >= 0 and net.constant(value) is None for value in op.inputs[1:]):
        return None
    columns = [_integers(net, op, slot) for slot in range(1, 5)]
    if net.opset < 10:
        columns = [*(op.attribute(name) for name in ("starts", "ends", "axes")), None]
    starts, ends, along, steps = columns
    if starts is None or ends is None:
        return None
    along, steps = along or list(range(len(starts))), steps or [1] * len(starts)
    if len({len(starts), len(ends), len(along), len(steps)}) > 1:
        return None
    return list(zip(starts, ends, along, steps, strict=True))


def broadcasts_into(shape: Sequence[Size | None], target: Sequence[Size | None]) -> bool:
    """Return whether a tensor of one shape can be broadcast to another shape."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(one is not None and one in (1, other) for one, other in pairs)
