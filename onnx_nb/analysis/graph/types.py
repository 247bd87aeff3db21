"""Types of values, the types that a file declares, and inference rules that onnx lacks.

The rules cover integers from which exporters compute shapes, and operators of onnxruntime.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, TypeProto

from onnx_nb.analysis.formatting import plain_text, shape_text
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.names import INITIALIZER, Names
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import weight_info
from onnx_nb.analysis.model.tensors import RANK, Dims, attribute, declared_bytes, dimensions, elements, type_text

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.graph.shape_inference import Case
    from onnx_nb.analysis.model.protofields import Ints

Column = NDArray[np.float64]

MOST = 1e300
"""Maximum of any size or cost; larger numbers, which only broken models have, are clipped to it."""
_INVENTED = re.compile(r"_dim_\d+$")
"""End of the names that torch's TorchScript exporter gives to dimensions it does not know, some of which are fixed."""
LONGEST_SYMBOL = 1000
"""Characters; a dimension with a longer name counts as unknown."""


@dataclass(frozen=True)
class ValueType:
    """The type of a value as far as it is known."""

    dtype: str = ""
    """As "float32", "seq(float32)"; empty if unknown."""
    shape: Dims | None = None
    """Sizes, symbols, or None for an unknown dimension; None as a whole if even the rank is unknown."""
    elem_type: int = field(default=0, compare=False)
    """As in ``onnx.TensorProto.DataType``; 0 if unknown, or if the value is no dense tensor."""
    proto: TypeProto = field(default_factory=TypeProto, compare=False, repr=False)
    """The same as a message; do not change it."""

    @classmethod
    def of(cls, proto: TypeProto) -> ValueType:
        """Return the type that a message describes."""
        kind = proto.WhichOneof("value")
        dtype = type_text(proto, shapes=False) if kind else ""
        tensor = getattr(proto, kind) if kind in ("tensor_type", "sparse_tensor_type") else None
        shape = dimensions(proto) if dtype and tensor is not None else None
        return cls(dtype, shape, tensor.elem_type if kind == "tensor_type" and tensor is not None else 0, proto)

    @property
    def shape_text(self) -> str:
        """The shape as "batch×3×224"; "scalar" for rank 0, empty if unknown."""
        return "" if self.shape is None else shape_text(self.shape)

    @functools.cached_property
    def size(self) -> int | None:
        """Number of elements of a dense tensor; None if the element type or a dimension is unknown."""
        return elements(self.shape) if self.elem_type and is_static(self.shape) else None

    @property
    def nbytes(self) -> int:
        """Bytes of a dense tensor whose size is known; 0 if those of an element are not."""
        return declared_bytes(TensorProto(data_type=self.elem_type, dims=[int(dim or 0) for dim in self.shape or ()]))

    @property
    def is_complete(self) -> bool:
        """Whether onnx's checker would accept the type for a graph input: it requires the rank of tensors."""
        return bool(self.dtype) and (self.shape is not None or not self.proto.HasField("tensor_type"))

    def __str__(self) -> str:
        return " ".join(part for part in (self.shape_text, self.dtype) if part)


def is_static(shape: Dims | None) -> TypeGuard[tuple[int, ...]]:
    """Return whether every dimension of a shape is a number."""
    return shape is not None and all(isinstance(dim, int) and dim >= 0 for dim in shape)


def unwrapped(proto: TypeProto) -> TypeProto:
    """Return the innermost type of nested sequences, optionals and maps."""
    inner = {"sequence_type": "elem_type", "optional_type": "elem_type", "map_type": "value_type"}
    while (kind := proto.WhichOneof("value")) in inner:
        proto = getattr(getattr(proto, kind), inner[kind])
    return proto


class TypeTable:
    """Distinct types, numbered in the order in which they are added; number 0 is the unknown type."""

    def __init__(self) -> None:
        self.known: list[ValueType] = [ValueType()]
        self._number: dict[bytes, int] = {b"": 0}

    def copy(self) -> TypeTable:
        """Return a table with the same types and numbers, to which other types can be added."""
        table = TypeTable()
        table.known, table._number = list(self.known), dict(self._number)
        return table

    def add(self, proto: TypeProto) -> int:
        """Return the number of a type, which is added if it is new."""
        key = proto.SerializeToString(deterministic=True)
        number = self._number.setdefault(key, len(self.known))
        if number == len(self.known):
            self.known.append(ValueType.of(_bounded(TypeProto.FromString(key))))
        return number

    def tensor(self, elem_type: int, shape: Sequence[int | str | None] | None) -> int:
        """Return the number of a tensor type."""
        is_ranked = shape is not None and len(shape) <= RANK
        return self.add(onnx.helper.make_tensor_type_proto(elem_type, shape if is_ranked else None))


def _bounded(proto: TypeProto) -> TypeProto:
    """Remove from a type what is too large to be repeated at each value: a rank above `RANK`, megabytes of a symbol.

    A negative dimension ends the process in onnx's inference, and names such as "?" would count as one size.
    """
    inner = unwrapped(proto)
    for kind in ("tensor_type", "sparse_tensor_type"):
        if inner.HasField(kind):
            tensor, sizes = getattr(inner, kind), dimensions(inner)
            if sizes is None:
                tensor.ClearField("shape")
            for dim, size in zip(tensor.shape.dim, sizes or (), strict=True):
                if size is None or len(dim.dim_param) > LONGEST_SYMBOL:
                    dim.Clear()
    return proto


@dataclass(frozen=True, eq=False)
class DeclaredTypes:
    """Types that a file declares for its values, in the main graph and in subgraphs."""

    table: TypeTable
    of_value: Ints
    """The number in `table` of each value's type."""

    @classmethod
    def of(cls, graph: Graph, names: Names) -> DeclaredTypes:
        """Read inputs, outputs, value_info and initializers of every subgraph."""
        table, of_value = TypeTable(), np.zeros(graph.value_count, np.int32)
        numbers: dict[bytes, int] = {}

        def read(infos: Iterable[tuple[int, onnx.ValueInfoProto]]) -> None:
            for value, info in infos:
                if value < 0 or not info.HasField("type"):
                    continue
                key = info.type.SerializeToString()
                if (number := numbers.get(key)) is None:
                    number = numbers[key] = table.add(info.type)
                new, old = table.known[number], table.known[of_value[value]]
                if new.dtype and (old.shape is None or new.shape is not None):
                    of_value[value] = number

        for s, subgraph in enumerate(graph.subgraphs):
            proto = subgraph.graph
            # the main graph's dictionary of names is built only if needed
            scope = names.scopes[s] if proto.value_info else {}
            pairs = [(scope.get(plain_text(info.name), -1), info) for info in proto.value_info]
            if s >= len(graph.plain.subgraphs):
                # the inputs of a call have their types from the caller
                pairs = [(value, info) for value, info in pairs if value >= 0 and graph.value_subgraph[value] == s]
            read(pairs)
            if subgraph.function is None:
                read(zip(names.given[s], proto.input, strict=True))
                read(zip(subgraph.outputs.tolist(), proto.output, strict=True))
            index, kinds = names.tables[s].types()
            of_value[subgraph.weights] = np.asarray([table.tensor(kind[0], kind[1:]) for kind in kinds])[index]
        return cls(table, of_value)

    def cover(self, graph: Graph) -> bool:
        """Return whether inference would add nothing: every node output has a complete shape, as torch exports it."""
        if len(graph.subgraphs) > 1 or len(graph.subgraphs[0].graph.value_info) < graph.node_count // 2:
            return False
        return bool(self.is_whole[graph.producer >= 0].all())

    @functools.cached_property
    def is_whole(self) -> NDArray[np.bool_]:
        """Whether the declared type of each value has a shape without unknown dimensions, some of which have names."""
        shapes = [(None,) if kind.shape is None else kind.shape for kind in self.table.known]
        whole = [all(dim is not None and not _INVENTED.search(str(dim)) for dim in shape) for shape in shapes]
        return np.asarray(np.asarray(whole, bool)[self.of_value], bool)


def weight_sizes(graph: Graph) -> tuple[Column, Column]:
    """Return elements and bytes of every value that is an initializer, then of what each node holds; 0 for others."""
    types = graph.declared
    # broken models have negative dimensions
    of_type = [(0, 0) if kind.size is None else (min(kind.size, MOST), kind.nbytes) for kind in types.table.known]
    of_value = np.where(graph.value_kind == INITIALIZER, np.asarray(of_type, float).T[:, types.of_value], 0.0)
    of_node, sizes = np.zeros((2, graph.node_count)), dict[bytes | int, tuple[int, int]]()
    may_hold = np.asarray([tensors.may_hold(*operator) for operator in graph.operators], bool)
    for node in np.flatnonzero(may_hold[graph.op_index]).tolist() if len(may_hold) else ():
        key = (graph.is_constant[node] and graph.attribute_bytes(node)) or node  # many Constants are equal
        if key not in sizes:
            infos = [weight_info(*entry) for entry in tensors.constants_of(graph.node(node))]
            sizes[key] = sum(max(elements(info.shape), 0) for info in infos), sum(info.nbytes for info in infos)
        of_node[:, node] = sizes[key]
    count, nbytes = np.minimum(np.concatenate([of_value, of_node], axis=1), MOST)
    return count, nbytes


INTEGERS = 256
"""Maximum number of elements of the integer or boolean tensors that are computed."""
FLOATS = 8
"""Maximum number of elements of the float tensors that are computed: scales become sizes."""

# Operators whose float inputs decide their shapes.
FLOATS_WANTED = frozenset({"Resize", "Upsample"})


def is_integer(kind: ValueType) -> bool:
    """Return whether a tensor holds integers or booleans, few enough that their values may be known."""
    dtype, size = tensors.numpy_dtype(kind.elem_type), kind.size
    return dtype is not None and size is not None and dtype.kind in "iub" and size <= INTEGERS


def is_small(kind: ValueType) -> bool:
    """Return whether a tensor is small enough that its values may be known."""
    size = kind.size
    return is_integer(kind) or (size is not None and size <= FLOATS and tensors.numpy_dtype(kind.elem_type) is not None)


def may_divide(divisor: NDArray[Any] | None) -> bool:
    """Return whether any number can be divided by these; integers by 0, and the smallest by −1, end the process."""
    return divisor is not None and (divisor.dtype.kind not in "iu" or not np.isin(divisor, (0, -1)).any())


def computed(case: Case) -> list[NDArray[Any]] | None:
    """Compute small outputs of a node whose inputs are known; None if not. Broken nodes raise any of `BROKEN`."""
    op = plain_text(case.node.op_type)
    outputs = [kind for kind in case.outputs if kind is not None]
    if case.domain or not outputs or len(outputs) < len(case.outputs) or (op != "Split" and len(outputs) > 1):
        return None
    shape = case.inputs[0].shape if case.inputs and case.inputs[0] is not None else None
    if op == "Shape" and shape is not None:
        part = shape[slice(attribute(case.node, "start", 0), attribute(case.node, "end"))]
        return [np.asarray(part, np.int64)] if is_static(part) else None
    if op == "Size" and is_static(shape) and math.prod(shape) < 2**63:
        return [np.asarray(math.prod(shape), np.int64)]
    if op == "Range":  # onnx's inference counts its elements in integers that may overflow
        start, limit, delta = (math.nan if n is None or n.size != 1 else float(n.item()) for n in case.values[:3])
        if not abs(limit - start) <= INTEGERS * abs(delta):
            return None
    unread = any(kind is not None and value is None for kind, value in zip(case.inputs, case.values, strict=True))
    elsewhere = any(attribute_.t.data_location == onnx.TensorProto.EXTERNAL for attribute_ in case.node.attribute)
    if "sizes" not in operators.facts(op).traits or unread or elsewhere or not all(map(is_small, outputs)):
        return None
    if op in ("Div", "Mod") and not may_divide(case.values[-1]):
        return None
    if op == "GatherElements":  # to indices outside of an axis onnx's reference adds its size, without end
        data, indices = case.values
        size = 0 if data is None else data.shape[attribute(case.node, "axis", 0)]
        if indices is None or not ((indices >= -size) & (indices < size)).all():
            return None
    if all(kind.dtype != "string" for kind in outputs):
        results = _computed_directly(case, op)
        if results is not None:
            return [np.asarray(results)]
    from onnx.reference import ReferenceEvaluator  # imports a module for every operator, for 0.1 s

    names = list(dict.fromkeys(plain_text(name) for name in case.node.input if name))
    infos = [onnx.ValueInfoProto(name=name) for name in names]
    graph = onnx.helper.make_graph([case.node], "", infos, [onnx.ValueInfoProto(name=n) for n in case.node.output])
    feeds = {plain_text(name): value for name, value in zip(case.node.input, case.values, strict=True) if name}
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(graph, opsets={"": case.version}).run(None, feeds)
    except Exception:  # noqa: BLE001 (onnx's reference raises any kind; unknown values are reported)
        return None
    return [np.asarray(array) for array in results] if len(results) == len(outputs) else None


_SAME_IN_NUMPY = {"Add": np.add, "And": np.logical_and, "Equal": np.equal, "Mul": np.multiply, "Sub": np.subtract}


def _computed_directly(case: Case, op: str) -> Any:
    """Compute constants and small integers as most shapes need them, without onnx's slow reference; else None."""
    node, values = case.node, case.values
    if op == "Constant":
        tensor = attribute(node, "value")
        return None if tensor is None else onnx.numpy_helper.to_array(tensor)
    if op == "ConstantOfShape" and values[0] is not None:
        tensor = attribute(node, "value")
        fill = np.zeros(1, np.float32) if tensor is None else onnx.numpy_helper.to_array(tensor)
        return np.full(values[0].tolist(), fill.reshape(())[()], fill.dtype)
    arrays = [value for value in values if value is not None]
    if len(arrays) < len(values) or any(value.dtype.kind not in "ib" for value in arrays):
        return None
    if op in _SAME_IN_NUMPY and len(arrays) == 2 and case.version >= 7:
        return _SAME_IN_NUMPY[op](*arrays)
    if op == "Concat" and arrays and attribute(node, "axis") is not None:
        return np.concatenate(arrays, attribute(node, "axis"))
    if op == "Gather" and len(arrays) == 2:
        return np.take(arrays[0], arrays[1], attribute(node, "axis", 0))
    if op in ("Squeeze", "Unsqueeze"):
        axes = tuple(arrays[1].tolist()) if len(arrays) == 2 else attribute(node, "axes")
        if axes is not None:
            return (np.squeeze if op == "Squeeze" else np.expand_dims)(arrays[0], tuple(axes))
    if op == "Slice" and 3 <= len(arrays) <= 5:
        data, starts, *others = arrays
        usual = (np.arange(len(starts)), np.ones(len(starts), np.int64))[len(others) - 1 :]  # axes and steps
        parts = [slice(None)] * data.ndim
        for start, end, axis, step in zip(*(column.tolist() for column in (starts, *others, *usual)), strict=True):
            parts[axis] = slice(start, end, step)
        return data[tuple(parts)]
    return None


def broadcast(*shapes: Dims) -> Dims | None:
    """Return the shape that shapes are broadcast to; None if they do not fit."""
    result: list[int | str | None] = []
    for axis in range(max(map(len, shapes))):
        sizes = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) > 1:
            return None
        result.append(numbers[0] if numbers else 1 if not sizes else sizes.pop() if len(sizes) == 1 else None)
    return tuple(result[::-1])


def contrib_shape(case: Case) -> Dims | None:
    """Return the shape of an operator's first output; None if it is unknown."""
    op, node = plain_text(case.node.op_type), case.node
    op = operators.facts(op, case.domain).like.rpartition(".")[2] or op
    first, second, third = ([kind.shape if kind is not None else None for kind in case.inputs] + [None] * 3)[:3]
    if first is None:
        return None
    if op == "MatMul":
        if second is None or len(first) < 2 or len(second) < 2:
            return None
        rows = first[-1] if attribute(node, "transA", 0) else first[-2]
        columns = second[-2] if attribute(node, "transB", 0) else second[-1]
        batch = broadcast(first[:-2], second[:-2]) if len(first) > 2 or len(second) > 2 else ()
        return None if batch is None else (*batch, rows, columns)
    if op == "GatherBlockQuantized" and second is not None:
        axis, bits = attribute(node, "gather_axis", 0) % max(len(first), 1), attribute(node, "bits", 4)
        is_dense = case.inputs[0] is not None and case.inputs[0].elem_type == onnx.TensorProto.UINT8
        *rest, last = (*first[:axis], *second, *first[axis + 1 :])
        return (*rest, last * (8 // bits) if is_dense and isinstance(last, int) else last)
    if op == "MatMulNBits":
        return (*first[:-1], attribute(node, "N"))
    if op == "MultiHeadAttention" and len(first) == 3 and third is not None:
        width = third[-1] if len(third) == 3 else None
        if len(third) == 4 and isinstance(third[1], int) and isinstance(third[3], int):
            width = third[1] * third[3]
        return (*first[:2], width)
    if op == "Attention" and len(first) == 3:
        sizes = attribute(node, "qkv_hidden_sizes")
        thirds = second[-1] if second else None
        return (*first[:2], sizes[2] if sizes else thirds // 3 if isinstance(thirds, int) else None)
    if op == "GroupQueryAttention" and len(first) == 3:
        if second is not None:
            return first
        heads, kv_heads, width = attribute(node, "num_heads", 0), attribute(node, "kv_num_heads", 0), first[2]
        if isinstance(width, int) and heads:
            return (*first[:2], width * heads // (heads + 2 * kv_heads))
    return None
