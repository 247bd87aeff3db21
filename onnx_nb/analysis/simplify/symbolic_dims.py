"""Sizes of dimensions as far as they are known before a model runs, small integers computed from them, axes of nodes.

A symbolic size is traced back to its origin, through nodes that keep it and through what exporters compute from shapes,
so that two sizes that are always equal compare equal. A result holds however the graph is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnx import TensorProto

if TYPE_CHECKING:
    from onnx_nb.analysis.model.tensors import Dims
    from onnx_nb.analysis.simplify.editor import Editor
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.types import ValueType

if TYPE_CHECKING:
    from onnx import FunctionProto

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.simplify.editor import Editor

DEPTH: Final = 64
"""Nodes through which a size is traced at most; each takes up to five frames of Python's stack."""

# operators whose output has the shape of the first input
_ALIKE: Final = """
    Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Cast Ceil Celu Clip Cos Cosh CumSum Dropout Elu Erf Exp
    Floor Gelu HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization
    LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not PRelu RMSNormalization Reciprocal Relu Round Selu Sigmoid
    Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu"""
_SHAPED_ALIKE: Final = frozenset(_ALIKE.split())
# operators that broadcast their inputs
_SPREAD: Final = (
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"
)
_SPREADING: Final = frozenset(_SPREAD.split())
# operators that keep the first axis, the batch
_BATCH: Final = "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool ConvInteger"
_BATCHED: Final = frozenset(_BATCH.split())


class Unknown(NamedTuple):
    """A number that is not known before the model runs; equal ones are known to be the same."""

    value: int
    place: int
    """An axis of the value, or the index of an element."""
    is_size: bool
    """Whether it is the size of an axis, so never negative."""


Size = int | str | Unknown
"""A number, a symbol of the model, or unknown."""


def sizes(net: Editor, value: int) -> tuple[Size, ...] | None:
    """Return the shape of a value; an unknown size is a symbol or `Unknown`; None if the rank is unknown."""
    return _sizes(net, value, 0)


def _sizes(net: Editor, value: int, depth: int) -> tuple[Size, ...] | None:
    shape = net.shape(value)
    if shape is None:
        return None
    return tuple([dim if isinstance(dim, int) else _size(net, value, axis, depth) for axis, dim in enumerate(shape)])


def elements(net: Editor, value: int) -> list[Size] | None:
    """Return the elements of a vector of sizes, or one size; None if there may be many, or they are no integers."""
    return _elements(net, value, 0)


def is_size(size: Size) -> bool:
    """Return whether a size is unknown but never negative."""
    return isinstance(size, str) or (isinstance(size, Unknown) and size.is_size)


def _size(net: Editor, value: int, axis: int, depth: int) -> Size:
    """Trace a dimension back to its origin."""
    shape = net.shape(value)
    if shape is None or not -len(shape) <= axis < len(shape):
        return Unknown(value, axis, is_size=True)
    known = shape[axis]
    if known is not None:
        return known
    key = ("size", value, axis % len(shape))
    if key not in net.memo:
        own = net.memo[key] = Unknown(value, axis % len(shape), is_size=True)  # in case the trace comes back here
        maker = net.maker(value)
        if maker is not None and not maker.domain and depth < DEPTH:
            net.memo[key] = _traced(net, maker, shape, own, depth + 1)
    found: Size = net.memo[key]
    return found


def _traced(net: Editor, maker: Op, shape: Dims, own: Unknown, depth: int) -> Size:
    """Return where a dimension of a node's output comes from; `own` if that is not known."""
    axis, kind = own.place, maker.op_type
    before = net.shape(maker.inputs[0]) if maker.inputs else None
    first = maker.outputs[0] == own.value
    if kind in _SHAPED_ALIKE:
        same = first and before is not None and len(before) == len(shape)
        return _size(net, maker.inputs[0], axis, depth) if same else own
    if kind in _SPREADING:
        return _spread(net, maker.inputs, axis - len(shape), own, depth)
    if kind == "MatMul":
        return _of_product(net, maker, axis - len(shape), own, depth)
    if before is None:
        return own
    if kind == "Transpose":
        order = perm(net, maker)
        return own if order is None else _size(net, maker.inputs[0], order[axis], depth)
    if kind in ("Squeeze", "Unsqueeze"):
        source = _unmoved(net, maker, len(before), len(shape))
        return own if source is None or source[axis] is None else _size(net, maker.inputs[0], source[axis] or 0, depth)
    if kind in ("Concat", "Split", "Slice") or kind.startswith("Reduce"):
        return _kept(net, maker, len(before), own, depth)
    if kind == "Gather":
        return _of_gather(net, maker, axis, own, depth)
    if kind in _BATCHED:
        return _size(net, maker.inputs[0], 0, depth) if axis == 0 else own
    return _of_asked(net, maker, shape, own, depth)


def _spread(net: Editor, read: Sequence[int], place: int, own: Unknown, depth: int) -> Size:
    """Return the size of an axis, counted from the last, after broadcasting."""
    found: set[Size] = set()
    for value in read:
        shape = net.shape(value)
        if shape is None:
            return own
        if -place <= len(shape) and shape[place] != 1:
            found.add(_size(net, value, place, depth))
    return found.pop() if len(found) == 1 else own


def _of_product(net: Editor, maker: Op, place: int, own: Unknown, depth: int) -> Size:
    shapes = [net.shape(value) for value in maker.inputs]
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return own
    if place >= -2:
        return _size(net, maker.inputs[place + 2], place, depth)
    return _spread(net, maker.inputs, place, own, depth)


def _unmoved(net: Editor, maker: Op, before: int, after: int) -> list[int | None] | None:
    """Return for each axis after a Squeeze or Unsqueeze which axis it was; None for a new one."""
    named = axes(net, maker)
    if named is None:
        return None
    rank = max(before, after)
    moved = {axis % rank for axis in named} if rank else set()
    if maker.op_type == "Squeeze":
        found: list[int | None] = [axis for axis in range(before) if axis not in moved]
    else:
        count = iter(range(before))
        found = [None if axis in moved else next(count, None) for axis in range(after)]
    return found if len(found) == after else None


def _kept(net: Editor, maker: Op, rank: int, own: Unknown, depth: int) -> Size:
    """Return the size of an axis that a node keeps while it changes others."""
    kind, axis = maker.op_type, own.place
    named: Sequence[int] | None
    if kind in ("Concat", "Split"):
        named = [maker.attribute("axis", 0)]
    elif kind == "Slice":
        named = [each[2] for each in slices(net, maker) or ()] or None
    else:
        named = axes(net, maker) if maker.attribute("keepdims", 1) else None
    if not named or axis in {each % rank for each in named}:
        return own
    return _size(net, maker.inputs[0], axis, depth)


def _of_gather(net: Editor, maker: Op, axis: int, own: Unknown, depth: int) -> Size:
    data, index = (net.shape(value) for value in maker.inputs)
    if data is None or index is None:
        return own
    along = maker.attribute("axis", 0) % max(1, len(data))
    if axis < along:
        return _size(net, maker.inputs[0], axis, depth)
    if axis < along + len(index):
        return _size(net, maker.inputs[1], axis - along, depth)
    return _size(net, maker.inputs[0], axis - len(index) + 1, depth)


def _of_asked(net: Editor, maker: Op, shape: Dims, own: Unknown, depth: int) -> Size:
    """Return the size of an axis of a tensor whose shape is computed."""
    axis, kind = own.place, maker.op_type
    if kind == "Range":
        start, limit, delta = (_elements(net, value, depth) for value in maker.inputs)
        plain = start == [0] and delta == [1] and limit is not None and len(limit) == 1
        return limit[0] if plain and limit is not None and is_size(limit[0]) else own
    if kind not in ("Reshape", "Expand", "ConstantOfShape") or (kind == "Reshape" and maker.attribute("allowzero", 0)):
        return own
    asked = _elements(net, maker.inputs[-1], depth)
    if asked is None or len(asked) > len(shape) or (kind != "Expand" and len(asked) != len(shape)):
        return own
    place = axis - len(shape)
    wanted: Size = asked[place] if -place <= len(asked) else 1
    if kind == "Reshape":
        before = net.shape(maker.inputs[0])
        if wanted == 0 and before is not None and axis < len(before):
            return _size(net, maker.inputs[0], axis, depth)
        return wanted if is_size(wanted) else own
    if kind == "ConstantOfShape":
        return wanted if is_size(wanted) else own
    data = net.shape(maker.inputs[0])
    if data is None:
        return own
    mine: Size = _size(net, maker.inputs[0], place, depth) if -place <= len(data) else 1
    if mine in (1, wanted):
        return wanted if is_size(wanted) else own
    return mine if wanted == 1 else own


def _elements(net: Editor, value: int, depth: int) -> list[Size] | None:
    key = ("elements", value)
    if key not in net.memo:
        net.memo[key] = None  # in case the trace comes back here
        net.memo[key] = _found_elements(net, value, depth + 1)
    found: list[Size] | None = net.memo[key]
    return found


def _found_elements(net: Editor, value: int, depth: int) -> list[Size] | None:
    array = net.constant(value)
    if array is not None:
        return [int(x) for x in array.reshape(-1)] if array.ndim <= 1 and array.dtype.kind in "iu" else None
    shape = net.shape(value)
    maker = net.maker(value)
    if shape is None or len(shape) > 1 or net.dtype(value) != TensorProto.INT64:
        return None
    found: list[Size] | None = None
    if maker is not None and not maker.domain and depth < DEPTH:
        found = _computed_elements(net, maker, depth)
    if found is None and (not shape or (isinstance(shape[0], int) and shape[0] <= 64)):
        count = shape[0] if shape and isinstance(shape[0], int) else 1
        return [Unknown(value, place, is_size=False) for place in range(count)]
    return found


def _computed_elements(net: Editor, op: Op, depth: int) -> list[Size] | None:
    if op.op_type == "Shape":
        shape = _sizes(net, op.inputs[0], depth)
        return None if shape is None else list(shape)[slice(op.attribute("start", 0), op.attribute("end"))]
    if op.op_type in ("Unsqueeze", "Squeeze", "Identity", "Cast", "Reshape"):
        return _elements(net, op.inputs[0], depth)
    if op.op_type == "Concat":
        parts = [_elements(net, read, depth) for read in op.inputs]
        return None if None in parts else [size for part in parts for size in part or ()]
    if op.op_type == "Slice":
        inner, cuts = _elements(net, op.inputs[0], depth), slices(net, op)
        if inner is None or cuts is None or len(cuts) != 1 or cuts[0][3] <= 0:
            return None
        start, end, _, step = cuts[0]
        return inner[slice(start, end, step)]
    if op.op_type == "Gather":
        inner, index = _elements(net, op.inputs[0], depth), net.constant(op.inputs[1])
        if inner is None or index is None or index.ndim > 1 or len(net.shape(op.inputs[0]) or ()) != 1:
            return None
        places = [int(place) for place in index.reshape(-1)]
        return [inner[place] for place in places] if all(-len(inner) <= p < len(inner) for p in places) else None
    if op.op_type in ("Where", "Mul"):
        return _combined(net, op, depth)
    return None


def _product(one: Size, other: Size) -> Size | None:
    if one == 1 or other == 1:
        return other if one == 1 else one
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def _combined(net: Editor, op: Op, depth: int) -> list[Size] | None:
    """Return the elements of a product with ones, and of what exporters write for "this size, or else that of x"."""
    if op.op_type == "Mul":
        one, other = (_elements(net, read, depth) for read in op.inputs)
        if one is None or other is None or len(one) != len(other):
            return None
        products = list(map(_product, one, other))
        return None if None in products else [size for size in products if size is not None]
    test = net.maker(op.inputs[0])
    if test is None or test.op_type != "Equal" or test.domain:
        return None
    sides = [_elements(net, read, depth) for read in (*test.inputs, *op.inputs[1:])]
    if any(side is None for side in sides):
        return None
    left, right, then, other_ = (side or [] for side in sides)
    count = max(map(len, (left, right, then, other_)))
    columns = [side * count if len(side) == 1 else side for side in (left, right, then, other_)]
    if any(len(column) != count for column in columns):
        return None
    found: list[Size] = []
    for one, two, yes, no in zip(*columns, strict=True):
        # a size is never negative, so it is never the -1 that means "unchanged"
        differs = (isinstance(one, int) and isinstance(two, int) and one != two) or (
            -1 in (one, two) and any(map(is_size, (one, two)))
        )
        if not differs and one != two:
            return None
        found.append(no if differs else yes)
    return found


def pads(net: Editor, op: Op) -> list[int] | None:
    """Return the padding of a Pad, all beginnings before all ends; None if it is not known."""
    if net.opset() < 11:
        found = op.attribute("pads") or op.attribute("paddings")
        return list(found) if found is not None else None
    if len(op.inputs) > 3 and op.inputs[3] >= 0:
        return None
    array = net.constant(op.inputs[1])
    return None if array is None else [int(x) for x in array]


def perm(net: Editor, op: Op) -> list[int] | None:
    """Return the permutation of a Transpose; None if the rank is not known."""
    found = op.attribute("perm")
    if found is not None:
        return list(found)
    shape = net.shape(op.inputs[0])
    return None if shape is None else list(range(len(shape)))[::-1]


def axes(net: Editor, op: Op) -> list[int] | None:
    """Return the axes of a Squeeze, Unsqueeze or reduction; None if they are left out or not known."""
    found = op.attribute("axes")
    if found is not None:
        return list(found)
    if len(op.inputs) < 2 or op.inputs[1] < 0:
        return None
    array = net.constant(op.inputs[1])
    return None if array is None else [int(x) for x in array.reshape(-1)]


def slices(net: Editor, op: Op) -> list[tuple[int, int, int, int]] | None:
    """Return (start, end, axis, step) for each axis of a Slice."""
    if net.opset() < 10:
        starts, ends = op.attribute("starts"), op.attribute("ends")
        if starts is None or ends is None:
            return None
        along = op.attribute("axes", list(range(len(starts))))
        return [(int(s), int(e), int(a), 1) for s, e, a in zip(starts, ends, along, strict=True)]
    columns: list[list[int]] = []
    for slot in range(1, 5):
        if slot >= len(op.inputs) or op.inputs[slot] < 0:
            columns.append(list(range(len(columns[0]))) if slot == 3 else [1] * len(columns[0]))
            continue
        array = net.constant(op.inputs[slot])
        if array is None:
            return None
        columns.append([int(x) for x in array.reshape(-1)])
    if len({len(column) for column in columns}) > 1:
        return None
    return [(s, e, a, step) for s, e, a, step in zip(*columns, strict=True)]


def broadcasts_into(shape: Sequence[int | str | None], target: Dims) -> bool:
    """Return whether a tensor of some shape can be broadcast to another shape."""
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(one == 1 or (one is not None and one == other) for one, other in pairs)


Array = NDArray[Any]
Apply = Callable[["Editor", "Op"], str | None]

LEFT_OUT: Final = -1
"""An optional input or output that is left out."""


@dataclass(frozen=True)
class Change:
    """One change made to the graph."""

    rule: str
    """A name of `rules`, as "fuse_bn_into_conv"."""
    key: str
    """Unique name of this change: the rule and the tensor where it happened."""
    why: str
    """Reason in words."""
    before: tuple[str, ...]
    """Names of the nodes that were removed."""
    after: tuple[str, ...]
    """Names of the nodes that were added."""
    tensors: tuple[str, ...]
    """Names of the tensors that became constant, or are made by another node now."""
    taken: tuple[int, ...]
    """Ids of the nodes that were removed."""
    made: tuple[int, ...]
    """Ids of the nodes that were added."""
    rewired: tuple[int, ...]
    """Ids of the nodes that stay and read another tensor, or one that became constant."""


@dataclass(slots=True, eq=False)
class Op:
    """A node."""

    number: int
    """Position in `Editor.ops`."""
    id: int
    """Identity of the node, from the original model to the result."""
    op_type: str
    domain: str
    name: str
    inputs: list[int]
    """Values; `LEFT_OUT` for an optional input that is left out."""
    outputs: list[int]
    subgraph: int
    place: tuple[int, ...]
    """Position among the nodes of its subgraph, in an order in which they can run."""
    proto: NodeProto
    """The node from which attributes, documentation and metadata are taken."""
    attributes: Mapping[str, AttributeProto] | None = None
    """Attributes of a node that was added; None for those of `proto`."""
    origins: tuple[str, ...] = ()
    """Names of the nodes that this node was made of."""
    bodies: tuple[int, ...] = ()
    """Subgraphs of an If, Loop or Scan."""
    alive: bool = True

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        if self.attributes is not None:
            found = self.attributes.get(name)
        else:
            found = next((each for each in self.proto.attribute if each.name == name), None)
        if found is None:
            return default
        value = onnx.helper.get_attribute_value(found)
        return plain_text(value) if isinstance(value, bytes) else value

    def all_attributes(self) -> dict[str, AttributeProto]:
        """Return all attributes by name."""
        if self.attributes is not None:
            return dict(self.attributes)
        return {each.name: each for each in self.proto.attribute}

    def attribute_values(self) -> dict[str, Any]:
        """Return the values of all attributes by name."""
        return {name: onnx.helper.get_attribute_value(each) for name, each in self.all_attributes().items()}


@dataclass(slots=True, eq=False)
class Constant:
    """A value that is known before the model runs."""

    tensor: TensorProto | onnx.SparseTensorProto | None
    """The tensor in the model; None if it was computed."""
    array: Array | None = None
    """The values, once they were read or computed."""
    subgraph: int = 0
    """Subgraph whose initializer it is or becomes."""
    is_initializer: bool = False
    """Whether it was an initializer in the original."""
    location: str = ""
    """Location under which the process holds the values of a large computed constant."""


def kind(elem_type: int, shape: Sequence[int | str | None] | None) -> ValueType:
    """Return the type of a tensor."""
    proto = onnx.helper.make_tensor_type_proto(elem_type, shape)
    return ValueType.of(proto)


def kind_of(array: Array) -> ValueType:
    """Return the type of an array."""
    return kind(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A way to rewrite a node and its neighbors."""

    name: str
    does: str
    """What it does, in one line."""
    apply: Apply
    """Rewrites the graph and returns the reason; returns None, with nothing changed, where the rule does not apply."""
    ops: tuple[str, ...]
    """Standard operators that the rule starts from; all if empty."""
    since: int = 0
    """Lowest opset for which the rule holds."""


def rule(rules: list[Rule], name: str, *ops: str, since: int = 0) -> Callable[[Apply], Apply]:
    """Register a function as a rule; the first line of its docstring says what it does."""

    def register(apply: Apply) -> Apply:
        does = (apply.__doc__ or "").strip().split("\n")[0].rstrip(".")
        rules.append(Rule(name, does, apply, ops, since))
        return apply

    return register


# --- ids of nodes -----------------------------------------------------------------------------------------------------

# ONNX gives nodes no identity: a node keeps its id however often the model is written between the rounds.
Place = tuple[int | str, str]
"""A graph: `MAIN`, a function ("function", its label), or a subgraph (id of the owner node, name of the attribute)."""
NodeIds = Mapping[Place, tuple[int, ...]]
"""The ids of the nodes of each graph, in order."""
Key = tuple[int, tuple[int, ...]]
"""Id of a node, and the ids of the calls of functions that it is inside of."""

MAIN: Final[Place] = ("", "")


def label(function: FunctionProto) -> str:
    """Return the label of a local function, as in keys of changes: "domain.name"."""
    overload = f":{plain_text(function.overload)}" if function.overload else ""
    return f"{plain_text(function.domain)}.{plain_text(function.name)}{overload}"


def place_of(function: FunctionProto) -> Place:
    """Return the place of the nodes of a local function."""
    return "function", label(function)


def first_ids(graph: Graph, start: int, main: Place = MAIN) -> dict[Place, tuple[int, ...]]:
    """Return consecutive ids for the nodes of a graph and its subgraphs."""
    return {
        (start + each.owner_node, each.attribute) if each.owner_node >= 0 else main: tuple(
            range(start + each.start, start + each.stop)
        )
        for each in graph.subgraphs
    }


def identify(graph: Graph, ids: NodeIds) -> list[Key]:
    """Return the key of each node of a graph, in which calls may be opened; id −1 for a node that `ids` lacks."""
    found: list[Key] = [(-1, ())] * graph.node_count
    calls: list[tuple[int, ...]] = []
    for each in graph.subgraphs:
        owner = found[each.owner_node][0] if each.owner_node >= 0 else -1
        around = calls[each.parent] if each.parent >= 0 else ()
        calls.append((*around, owner) if each.function is not None else around)
        place = MAIN if each.owner_node < 0 else (owner, each.attribute)
        listed = ids.get(place_of(each.function) if each.function is not None else place, ())
        if len(listed) == each.stop - each.start:
            found[each.start : each.stop] = [(id_, calls[-1]) for id_ in listed]
    return found
