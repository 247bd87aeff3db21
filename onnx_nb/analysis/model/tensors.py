"""Tensors and types of a proto: values as numpy arrays, element types, sizes, declared shapes, nested nodes.

The fields of a tensor are not trusted: type, shape and bytes must be consistent before they become an array.
`placed` walks over every tensor of a model, `all_nodes` over every node.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto

from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import bytes_text, plain_text, quoted, shortened
from onnx_nb.analysis.model import wire

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

_FAULTY: Final = "The file is damaged, or was written by a faulty tool."

DENSE_LIMIT: Final = 1 << 30
"""Bytes up to which a sparse weight is returned as a dense array."""
RANK: Final = 64
"""Axes that an array of numpy may have; a declared shape with more of them counts as unknown."""
LARGEST: Final = 1 << 63
"""Elements; the size of a shape that claims more is this number."""


def elements(dims: Sequence[int]) -> int:
    """Return the number of elements of a shape: at most `LARGEST`, −1 with a negative axis."""
    if min(dims, default=0) < 0:
        return -1
    count = 1
    for dim in dims:  # math.prod would take hours for the millions of axes that a damaged file may claim
        count = min(count * dim, LARGEST)
    return count


def values(tensor: TensorProto, what: str) -> NDArray[Any]:
    """Return the values inside a tensor, from whichever field holds them."""
    if tensor.HasField("segment"):
        raise ModelFileError(f"{what} is one segment of a tensor, which no version of ONNX defines how to join.")
    if tensor.data_type == TensorProto.STRING:
        count = _count(tensor, what)
        if len(tensor.string_data) != count:
            raise ModelFileError(f"{what} has {len(tensor.string_data)} strings for shape {_shape(tensor.dims)}.")
        return _reshaped(np.array([plain_text(data) for data in tensor.string_data], object), tensor, what)
    if tensor.HasField("raw_data"):
        return decoded(np.frombuffer(tensor.raw_data, np.uint8), tensor, what)
    _dtype(tensor, what)
    _count(tensor, what)
    try:
        return np.array(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{what} does not hold what its type and shape say: {error}.") from error


def decoded(data: NDArray[np.uint8], tensor: TensorProto, what: str) -> NDArray[Any]:
    """Return bytes as values of a tensor's type and shape; a view of them, except for values smaller than a byte."""
    nbytes = stored_bytes(tensor, what)
    if len(data) != nbytes:
        raise _wrong_length(tensor, len(data), nbytes, what)
    dtype = _dtype(tensor, what)
    if tensor.data_type not in _PACKED_BITS:
        return _reshaped(data.view(dtype), tensor, what)
    raw = TensorProto(data_type=tensor.data_type, dims=[elements(tensor.dims)], raw_data=data.tobytes())
    return _reshaped(onnx.numpy_helper.to_array(raw), tensor, what)


def _reshaped(values: NDArray[Any], tensor: TensorProto, what: str) -> NDArray[Any]:
    try:
        return values.reshape(tuple(tensor.dims))
    except ValueError as error:
        # No values, but dimensions whose product exceeds numpy's limit, or more than 64 dimensions.
        raise ModelFileError(f"{what} has shape {_shape(tensor.dims)}, which numpy cannot represent.") from error


def dense(sparse: SparseTensorProto, values: NDArray[Any], indices: NDArray[Any], what: str) -> NDArray[Any]:
    """Return a sparse tensor as a dense array, if that takes no more than `DENSE_LIMIT` bytes."""
    shape = tuple(sparse.dims)
    if any(dim < 0 for dim in shape):
        raise ModelFileError(f"{what} has a negative dimension: shape {_shape(sparse.dims)}.")
    nbytes = elements(shape) * values.dtype.itemsize
    if nbytes > DENSE_LIMIT:
        message = f"{what} would take {bytes_text(nbytes)} as a dense array of shape {_shape(sparse.dims)}."
        raise ModelFileError(message, advice="Read its values and indices from model.proto.graph.sparse_initializer.")
    fitting = {(values.size,), (values.size, len(shape))}
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in fitting:
        parts = f"values of shape {list(values.shape)} and {indices.dtype} indices of shape {list(indices.shape)}"
        raise ModelFileError(f"{what} has {parts}, which do not fit each other.")
    size = elements(shape)
    columns, sizes = (indices.reshape(-1, 1), (size,)) if indices.ndim == 1 else (indices, shape)
    if ((columns < 0) | (columns >= np.array(sizes, np.int64))).any():
        raise ModelFileError(f"{what} has indices outside its shape {_shape(sparse.dims)}.")
    flat = np.ravel_multi_index(tuple(columns.T), sizes) if sizes and len(values) else np.zeros(len(values), int)
    dense = np.full(size, "", object) if values.dtype == object else np.zeros(size, values.dtype)
    dense[flat] = values
    return dense.reshape(shape)


def stored_bytes(tensor: TensorProto, what: str) -> int:
    """Return the bytes that the values take as raw or external data."""
    count = _count(tensor, what)
    if tensor.data_type not in _BITS:
        message = f"{what} has element type {tensor.data_type}, which has no bytes of a known layout."
        raise ModelFileError(message, advice=_FAULTY)
    return (count * _BITS[tensor.data_type] + 7) // 8


def declared_bytes(tensor: TensorProto) -> int:
    """Return the same as `stored_bytes`, but 0 for unknown types and −1 for negative shapes."""
    bits = _BITS.get(tensor.data_type, 0)
    count = elements(tensor.dims)
    return -1 if count < 0 else (count * bits + 7) // 8


def may_be_shape(tensor: TensorProto) -> bool:
    """Return whether shapes may be computed from the values of a tensor: it is a short vector of integers, or scales.

    onnxruntime infers shapes before it opens data files, and refuses a model if it needs such values from one.
    """
    if len(tensor.dims) > 1 or tensor.data_type == TensorProto.STRING:
        return False
    is_integer = tensor.data_type in (TensorProto.INT32, TensorProto.INT64)
    return bool(elements(tensor.dims) <= (8192 if is_integer else 8))


def held_bytes(tensor: TensorProto) -> int:
    """Return the bytes of the values inside a tensor, in whichever field they are."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    if tensor.data_type == TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return 4 * len(tensor.float_data) + 8 * len(tensor.double_data)
    # One of the other fields is filled; each entry is one value, or as many small ones as a byte holds.
    fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    return sum(map(len, fields)) * max(_BITS.get(tensor.data_type, 0), 8) // 8


def raw_bytes(tensor: TensorProto, what: str) -> bytes:
    r"""Return the values inside a tensor as raw data, from whichever field holds them."""
    holder = tensor if tensor.HasField("raw_data") else onnx.numpy_helper.from_array(values(tensor, what))
    return bytes(holder.raw_data)


def whole_bytes(tensor: TensorProto, what: str) -> bytes:
    """Return the same as `raw_bytes`; raise if they are more or fewer than the shape takes."""
    data = raw_bytes(tensor, what)
    if len(data) != (nbytes := declared_bytes(tensor)):
        raise _wrong_length(tensor, len(data), nbytes, what)
    return data


def _wrong_length(tensor: TensorProto, length: int, nbytes: int, what: str) -> ModelFileError:
    return ModelFileError(f"{what} has {length} bytes, but {type_and_shape(tensor)} takes {nbytes}.", advice=_FAULTY)


VALUE_FIELDS: Final = [f.name for f in TensorProto.DESCRIPTOR.fields if re.fullmatch("(?!external).*_data", f.name)]
"""The fields of a TensorProto that may hold its values."""


def raw_length(tensor: TensorProto, rest: TensorProto) -> int | None:
    """Return the length of large raw data, and copy the rest to ``rest``; ``None`` if the tensor stays whole."""
    plain = tensor.data_location == TensorProto.DEFAULT and tensor.data_type != TensorProto.STRING
    if not plain or tensor.HasField("segment") or not tensor.HasField("raw_data"):
        return None
    length = declared_bytes(tensor)
    if not 1 << 20 <= length <= wire.PROTO_LIMIT:
        # Protobuf returns the length of bytes only by copying them. For large tensors the shape is trusted instead,
        # until the values are read.
        length = len(tensor.raw_data)
    if length < wire.THRESHOLD:
        return None
    for name in _OTHER_FIELDS:  # not ListFields, which copies the raw data
        value = getattr(tensor, name)
        if not isinstance(value, str | bytes | int):
            getattr(rest, name).MergeFrom(value)
        elif tensor.HasField(name):
            wire.set_field(rest, name, value)
    return length


_OTHER_FIELDS: Final = [f.name for f in TensorProto.DESCRIPTOR.fields if f.name not in {"raw_data", "segment"}]


def numpy_dtype(data_type: int) -> np.dtype[Any] | None:
    """Return the dtype of arrays of an ONNX element type; ``None`` if the installed onnx does not know the type."""
    return _DTYPES.get(data_type)


def dtype_name(data_type: int) -> str:
    """Return the name of an ONNX element type as people write it."""
    return _NAMES.get(data_type, f"dtype {data_type}")


_DTYPES: Final = {n: onnx.helper.tensor_dtype_to_np_dtype(n) for n in onnx.helper.get_all_tensor_dtypes()}
_PACKED_BITS: Final = {
    number: bits
    for bits, names in ((2, ("INT2", "UINT2")), (4, ("INT4", "UINT4", "FLOAT4E2M1")), (6, ("FLOAT6E2M3", "FLOAT6E3M2")))
    for name, number in TensorProto.DataType.items()
    if name in names
}
_BITS: Final = ChainMap(_PACKED_BITS, {n: 8 * dtype.itemsize for n, dtype in _DTYPES.items() if dtype.kind != "O"})
_NAMES: Final[dict[int, str]] = {number: name.lower() for name, number in TensorProto.DataType.items()} | {
    TensorProto.UNDEFINED: "",
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
}


def _dtype(tensor: TensorProto, what: str) -> np.dtype[Any]:
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        kind = f"element type {tensor.data_type}, which the installed onnx {onnx.__version__} does not know"
        raise ModelFileError(f"{what} has {kind}.", advice="A newer onnx may.")
    return dtype


def _count(tensor: TensorProto, what: str) -> int:
    count = elements(tensor.dims)
    if count < 0:
        raise ModelFileError(f"{what} has a negative dimension: shape {_shape(tensor.dims)}.", advice=_FAULTY)
    return count


def type_and_shape(tensor: TensorProto) -> str:
    """Return a tensor's type and shape for a message."""
    return f"{TensorProto.DataType.Name(tensor.data_type)} with shape {_shape(tensor.dims)}"


def _shape(dims: Sequence[int]) -> str:
    return str(list(dims)) if len(dims) <= 12 else f"[{', '.join(map(str, dims[:12]))}, …]"


def external(proto: ModelProto) -> Iterator[TensorProto]:
    """Return every tensor of a model that is external data."""
    return (tensor for tensor, _ in placed(proto) if tensor.data_location == TensorProto.EXTERNAL)


class Place(NamedTuple):
    """Place of a tensor in a model."""

    kind: str
    """"weight", "sparse values", "sparse indices" or "attribute"."""
    name: str
    """Name of the weight, or of the attribute."""
    within: str
    """The subgraph, function or node around it, as " in then_branch of If 'choose'"; empty in the main graph."""
    in_attribute: bool = False
    """Whether it is the value of an attribute, not an initializer."""
    in_body: bool = False
    """Whether it is in a subgraph of If, Loop or Scan."""

    @property
    def label(self) -> str:
        """Label in messages."""
        return f"{_KINDS.get(self.kind, self.kind)} {quoted(self.name)}{self.within}"


_KINDS: Final = {"sparse values": "sparse weight", "sparse indices": "the indices of sparse weight"}


def placed(proto: ModelProto) -> Iterator[tuple[TensorProto, Place]]:
    """Yield every tensor of a model with its place, the initializers of its main graph first."""
    yield from _graph_tensors(proto.graph, Place("", "", ""))
    for function in proto.functions:
        where = Place("", "", f" in function {quoted(plain_text(function.name))}")
        yield from _node_tensors(function.node, where)
        for attribute in function.attribute_proto:
            yield from _tensors_of(attribute, where)
    for training in proto.training_info:
        yield from _graph_tensors(training.initialization, Place("", "", " in the training initialization"))
        yield from _graph_tensors(training.algorithm, Place("", "", " in the training algorithm"))


def _graph_tensors(graph: GraphProto, where: Place) -> Iterator[tuple[TensorProto, Place]]:
    for tensor in graph.initializer:
        yield tensor, where._replace(kind="weight", name=plain_text(tensor.name))
    for sparse in graph.sparse_initializer:
        yield from _sparse_tensors(sparse, where._replace(name=plain_text(sparse.values.name)))
    yield from _node_tensors(graph.node, where)


def _sparse_tensors(sparse: SparseTensorProto, where: Place) -> Iterator[tuple[TensorProto, Place]]:
    yield sparse.values, where._replace(kind="sparse values")
    yield sparse.indices, where._replace(kind="sparse indices")


def _node_tensors(nodes: Iterable[NodeProto], where: Place) -> Iterator[tuple[TensorProto, Place]]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in _WITH_TENSORS:
                label = plain_text(node.name) or next(filter(None, map(plain_text, node.output)), "")
                within = f" of {plain_text(node.op_type)} {quoted(label)}{where.within}"
                yield from _tensors_of(attribute, where._replace(within=within))


def _tensors_of(attribute: AttributeProto, where: Place) -> Iterator[tuple[TensorProto, Place]]:
    name = plain_text(attribute.name)
    place = where._replace(kind="attribute", name=name, in_attribute=True)
    for tensor in [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]:
        yield tensor, place
    sparse_ones = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for sparse in [*sparse_ones, *attribute.sparse_tensors]:
        yield from _sparse_tensors(sparse, place)
    for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
        yield from _graph_tensors(graph, Place("", "", f" in {name}{where.within}", in_body=True))


WeightProto: TypeAlias = TensorProto | SparseTensorProto | AttributeProto
"""A message that holds a weight."""


def all_weights(proto: ModelProto) -> dict[str, WeightProto]:
    """Return every weight of a model by name: initializers, constants and lists in attributes, see `constants_of`.

    A constant has the name of its output, a list that of its node and attribute: "trees.nodes_values". A weight of a
    function has the name of the function before its own, and one whose name is taken, in a body, a number behind it.
    """
    weights: dict[str, WeightProto] = {}
    waiting: list[tuple[str, GraphProto | onnx.FunctionProto]] = [("", proto.graph)]
    waiting += ((f"{plain_text(function.name)}::", function) for function in proto.functions)
    for prefix, graph in waiting:
        pairs = [*initializers_of(graph).items()] if isinstance(graph, GraphProto) else []
        for node in graph.node:
            if may_hold(node.op_type, node.domain):
                pairs += constants_of(node)
            elif any(entry.type in _GRAPHS for entry in node.attribute):  # `graphs_of` takes longer
                waiting += ((prefix, body) for _, body in graphs_of(node))
        for name, weight in pairs:
            path = prefix + name
            weights[f"{path} #{len(weights)}" if path in weights else path] = weight
    return weights


def initializers_of(graph: GraphProto) -> dict[str, WeightProto]:
    """Return the initializers of a graph by name; of two of one name the last counts."""
    weights: dict[str, WeightProto] = {plain_text(tensor.name): tensor for tensor in graph.initializer}
    return weights | {plain_text(sparse.values.name): sparse for sparse in graph.sparse_initializer}


_KIND: Final = AttributeProto
_GRAPHS: Final = (_KIND.UNDEFINED, _KIND.GRAPH, _KIND.GRAPHS)  # IR versions before 2 leave the type out
_WITH_TENSORS: Final = frozenset((*_GRAPHS, _KIND.TENSOR, _KIND.TENSORS, _KIND.SPARSE_TENSOR, _KIND.SPARSE_TENSORS))
_LISTS: Final = {_KIND.FLOATS: np.float32, _KIND.INTS: np.int64, _KIND.STRINGS: object}
_NUMBERS: Final = {_KIND.FLOAT: np.float32, _KIND.INT: np.int64, _KIND.STRING: object} | _LISTS
"""Type of an attribute that is no tensor → dtype of its values."""


def may_hold(op: str, domain: str) -> bool:
    """Return whether attributes of an operator hold weights: Constants, trees, linear models, vocabularies."""
    return op in ("Constant", "TfIdfVectorizer") or domain == "ai.onnx.ml"


def constants_of(node: NodeProto) -> Iterator[tuple[str, AttributeProto]]:
    """Yield the attributes of a node that hold weights, the value of a Constant or lists, each after its name."""
    if may_hold(node.op_type, node.domain) and node.output:
        is_constant, label = node.op_type == "Constant", plain_text(node.name or node.output[0])
        kinds = (_KIND.SPARSE_TENSOR, *_NUMBERS) if is_constant else _LISTS
        for entry in node.attribute:
            if entry.type in (_KIND.TENSOR, *kinds) and not entry.ref_attr_name:
                yield plain_text(node.output[0]) if is_constant else f"{label}.{plain_text(entry.name)}", entry


def as_tensor(weight: WeightProto) -> TensorProto | SparseTensorProto:
    """Return the tensor of a weight, or its numbers or strings as one."""
    if not isinstance(weight, AttributeProto):
        return weight
    if weight.type not in _NUMBERS or weight.HasField("t"):
        return weight.sparse_tensor if weight.HasField("sparse_tensor") else weight.t
    return onnx.numpy_helper.from_array(np.asarray(onnx.helper.get_attribute_value(weight), _NUMBERS[weight.type]))


Dims = tuple[int | str | None, ...]
"""Sizes of a declared shape: a number, a symbol, or ``None`` where the size is not declared."""


@dataclass(frozen=True)
class ValueInfo:
    """Declared type of a graph input or output."""

    name: str
    dtype: str
    """Element type, as ``"float32"``; for a sequence, optional or map the whole type: ``"seq(float32 [n, 3])"``."""
    shape: Dims | None
    """Declared shape; ``None`` if the rank is not declared, or the value is not a tensor."""


def value_info(proto: onnx.ValueInfoProto) -> ValueInfo:
    """Return the declared type of a graph input or output."""
    if proto.type.WhichOneof("value") not in ("tensor_type", "sparse_tensor_type"):
        return ValueInfo(plain_text(proto.name), type_text(proto.type), None)
    return ValueInfo(plain_text(proto.name), dtype_name(_tensor(proto.type).elem_type), dimensions(proto.type))


def input_types(model: Model) -> dict[str, TypeProto]:
    """Return the declared type of each input, including those that have an initializer."""
    return {plain_text(value.name): value.type for value in model.proto.graph.input}


def type_text(kind: TypeProto, *, shapes: bool = True) -> str:
    """Write a type as ``float32 [batch, 3, ?]``, or ``float32`` without shapes."""
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        inner = type_text(getattr(kind, which).elem_type, shapes=shapes)
        return f"{'seq' if which == 'sequence_type' else 'optional'}({inner})"
    if which == "map_type":
        return f"map({dtype_name(kind.map_type.key_type)}, {type_text(kind.map_type.value_type, shapes=shapes)})"
    if which not in ("tensor_type", "sparse_tensor_type"):
        return plain_text(kind.opaque_type.name) or "a value of unknown type"
    dims = dimensions(kind) if shapes else None
    shape = "" if dims is None else " " + dimensions_text(dims)
    return f"{'sparse ' if which == 'sparse_tensor_type' else ''}{dtype_name(_tensor(kind).elem_type)}{shape}"


def dimensions(kind: TypeProto) -> Dims | None:
    """Return the declared shape of a tensor type; ``None`` if even the rank is unknown, or above `RANK`."""
    tensor = _tensor(kind)
    if not tensor.HasField("shape") or len(tensor.shape.dim) > RANK:
        return None
    return tuple(
        # a negative size means unknown, as in onnxruntime
        (dim.dim_value if dim.dim_value >= 0 else None) if dim.HasField("dim_value") else _symbol(dim.dim_param)
        for dim in tensor.shape.dim
    )


def _symbol(text: str | bytes) -> str | None:
    """Return the name of a dimension; ``None`` for what exporters write at each axis of which they know nothing."""
    return None if re.fullmatch(r"(\?+|-\d+|None|unk__\d+)?", name := plain_text(text)) else name


def _tensor(kind: TypeProto) -> TypeProto.Tensor | TypeProto.SparseTensor:
    return kind.sparse_tensor_type if kind.HasField("sparse_tensor_type") else kind.tensor_type


def dimensions_text(shape: Sequence[int | str | None]) -> str:
    """Return a declared shape as ``[batch, 3, ?]``."""
    return f"[{listed(shape, lambda dim: '?' if dim is None else shortened(str(dim), 60), 12)}]"


def listed(items: Iterable[Any], write: Callable[[Any], str] = quoted, limit: int = 8) -> str:
    """Write the first items of a list that may be long."""
    texts = list(items)
    more = [f"… ({len(texts) - limit} more)"] if len(texts) > limit else []
    return ", ".join([*map(write, texts[:limit]), *more])


def fits(dims: Dims, shape: Sequence[int | None]) -> bool:
    """Return whether an array of ``shape`` fits a declared shape, in which a symbol accepts any size; None fits all."""
    pairs = zip(dims, shape, strict=False)
    return len(dims) == len(shape) and all(not isinstance(dim, int) or size in (dim, None) for dim, size in pairs)


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, or a default if the node does not have it."""
    for candidate in node.attribute:
        if plain_text(candidate.name) == name and _has_value(candidate):
            return onnx.helper.get_attribute_value(candidate)
    return default


def attributes(node: NodeProto) -> dict[str, Any]:
    """Return the values of the attributes of a node by name."""
    entries = filter(_has_value, node.attribute)
    return {plain_text(entry.name): onnx.helper.get_attribute_value(entry) for entry in entries}


def _has_value(attribute: AttributeProto) -> bool:
    """Return whether an attribute has a type, and does not refer to one of a function."""
    return bool(attribute.type) and not attribute.ref_attr_name


def graphs_of(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yield the subgraphs of a node, each after the name of its attribute."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield plain_text(attribute.name), attribute.g
        for index, graph in enumerate(attribute.graphs):
            yield f"{plain_text(attribute.name)}[{index}]", graph


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes and those in their subgraphs, depth first; without recursion, so that any depth works."""
    waiting = [iter(nodes)]
    while waiting:
        for node in waiting[-1]:
            yield node
            inner = [iter(graph.node) for _, graph in graphs_of(node)]
            if inner:
                waiting.extend(reversed(inner))
                break
        else:
            waiting.pop()
