"""Random feeds for a model: values that its operators accept, on shapes that its inputs allow."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TypeProto, inliner, numpy_helper

from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph.graph import INFERENCE_LIMIT, Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.shape_inference import requested_size
from onnx_nb.analysis.graph.subgraphs import INLINED
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.tensors import Dims, attribute, dimensions, input_types, numpy_dtype, type_text
from onnx_nb.analysis.run.validate_feeds import validate_feeds


def random_feeds(
    model: ModelLike, seed: int = 0, shapes: Mapping[str, int | Sequence[int]] | None = None
) -> dict[str, Any]:
    """Return random values on which a model runs, for every input without an initializer.

    Floats are standard normal, masks are ones, indices are within bounds, axes and sizes fit the operators that read
    them. Other integers are from 1 to 7: dividing by 0 would end the process.

    Parameters
    ----------
    model
        Any `ModelLike`.
    seed
        Seed; the same one makes the same values.
    shapes
        Sizes of dimensions by their symbol, and shapes by the name of their input. Other dimensions are small.

    Returns
    -------
    dict of str to numpy.ndarray
        A list of two arrays for a sequence.

    Raises
    ------
    FeedError
        If ``shapes`` does not fit the model, or an input is a map.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (int64[batch, seq] ids, float[9, 4] table) => (float[batch, seq, 4] y) { y = Gather(table, ids) }''')
    >>> feeds = random_feeds(model, shapes={"seq": 3})
    >>> feeds["ids"].shape, bool((feeds["ids"] < 9).all()), feeds["table"].shape
    ((1, 3), True, (9, 4))
    """
    loaded = load(model)
    kinds = {name: kind for name, kind in input_types(loaded).items() if name not in loaded.initializers}
    sizes = _Sizes(loaded, kinds, shapes or {})
    # types of a larger graph are not inferred, so known sizes would not help
    large = len(loaded.proto.graph.node) > INFERENCE_LIMIT and not loaded.proto.functions
    graph = Graph.of(loaded if large else _with_sizes(loaded, kinds, sizes))
    found: dict[str, Any] = {}
    for index, (name, kind) in enumerate(kinds.items()):
        random = np.random.default_rng([seed, index])
        found[name] = _random(random, graph, name, kind, sizes.of(name, kind))
    return validate_feeds(loaded, found)


class _Sizes:
    """Sizes of all dimensions of all inputs: as requested, or small."""

    def __init__(self, model: Model, kinds: Mapping[str, TypeProto], asked: Mapping[str, Any]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.symbols: dict[str, int] = {}
        declared = {name: dimensions(_innermost(kind)) for name, kind in kinds.items()}
        symbols = [dim for shape in declared.values() for dim in shape or () if isinstance(dim, str)]
        for key, size in asked.items():
            self._take(model, key, size, declared, symbols)
        self.required = {
            name: required_sizes(Graph.of(model), name, len(shape))
            for name, shape in declared.items()
            if shape is not None and not all(isinstance(dim, int) for dim in shape)
        }
        for name, required in self.required.items():
            for axis, size in required.items():
                dim = (declared[name] or ())[axis]
                if isinstance(dim, str):
                    self.symbols.setdefault(dim, size)
        for name, shape in declared.items():
            is_float = _is_float(_innermost(kinds[name]).tensor_type.elem_type)
            for axis, dim in enumerate(shape or ()):
                if isinstance(dim, str) and dim.isidentifier() and not _is_total(dim, symbols):
                    self.symbols.setdefault(dim, _small(dim, axis, len(shape or ()), is_float=is_float))

    def _take(
        self, model: Model, key: str, size: Any, declared: Mapping[str, Dims | None], symbols: Sequence[str]
    ) -> None:
        asked = requested_size(label_of(model), key, size, declared, symbols)
        if isinstance(asked, int):
            self.symbols[key] = asked
            return
        self.shapes[key] = asked
        for dim, one in zip(declared[key] or (), asked, strict=False):
            if isinstance(dim, str):
                self.symbols.setdefault(dim, one)

    def of(self, name: str, kind: TypeProto) -> tuple[int, ...]:
        """Return the shape of an input, or of an element of it."""
        if name in self.shapes:
            return self.shapes[name]
        tensor = _innermost(kind)
        is_float, shape = _is_float(tensor.tensor_type.elem_type), dimensions(tensor)
        if shape is None:
            return (1,)
        found = []
        for axis, dim in enumerate(shape):
            size = self._of_symbol(dim) if isinstance(dim, str) else dim
            if size is None:
                size = self.required[name].get(axis) or _small("", axis, len(shape), is_float=is_float)
            found.append(size)
        return tuple(found)

    def _of_symbol(self, symbol: str) -> int:
        if symbol in self.symbols:
            return self.symbols[symbol]
        if _is_total(symbol, self.symbols):
            return sum(self.symbols.get(part + symbol.removeprefix("total_"), 0) for part in ("past_", ""))
        # exporters name dimensions by formulas, such as "past_sequence_length + 1"
        return max(_evaluated(symbol, self.symbols), 0)


def _is_total(symbol: str, symbols: Iterable[str]) -> bool:
    return symbol.startswith("total_") and "past_" + symbol.removeprefix("total_") in symbols


def _small(symbol: str, axis: int, rank: int, *, is_float: bool) -> int:
    """Return the default size of a dimension: one example, eight tokens, or a small image."""
    if "batch" in symbol or (axis == 0 and rank > 1):
        return 1
    return 64 if is_float and axis > 1 and not re.search("seq|len|past", symbol) else 8


def _evaluated(formula: str, symbols: Mapping[str, int]) -> int:
    try:
        return _value_of(ast.parse(formula[:1000], mode="eval").body, symbols)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return 8  # a name, not a formula


def _value_of(tree: ast.expr, symbols: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return symbols.get(tree.id, 8)
    if isinstance(tree, ast.BinOp):
        left, right = _value_of(tree.left, symbols), _value_of(tree.right, symbols)
        if isinstance(tree.op, ast.Add):
            return left + right
        if isinstance(tree.op, ast.Sub):
            return left - right
        if isinstance(tree.op, ast.Mult):
            return left * right
        if isinstance(tree.op, ast.FloorDiv | ast.Div):
            return left // right
    raise ValueError(f"{type(tree).__name__} is in the formula")


def _with_sizes(model: Model, kinds: Mapping[str, TypeProto], sizes: _Sizes) -> Model:
    """Return the model with known input shapes and functions inlined, so that onnx infers what is indexed."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for value in proto.graph.input:
        kind = kinds.get(plain_text(value.name))
        if kind is not None and kind.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
            value.type.tensor_type.shape.dim.extend(
                onnx.TensorShapeProto.Dimension(dim_value=size) for size in sizes.of(plain_text(value.name), kind)
            )
    if proto.functions and Graph.of(model).inlined_count <= INLINED:
        try:
            proto = inliner.inline_local_functions(proto)
        except (onnx.checker.ValidationError, RuntimeError):
            # recursive functions, for instance: less is known then, and onnxruntime reports the fault
            return with_proto(model, proto)
    return with_proto(model, proto)


def _innermost(kind: TypeProto) -> TypeProto:
    """Return the type of the tensors in a sequence or an optional."""
    while kind.HasField("sequence_type") or kind.HasField("optional_type"):
        kind = (kind.sequence_type if kind.HasField("sequence_type") else kind.optional_type).elem_type
    return kind


def _random(random: np.random.Generator, graph: Graph, name: str, kind: TypeProto, shape: tuple[int, ...]) -> Any:
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return _random(random, graph, name, kind.optional_type.elem_type, shape)
    if which == "sequence_type":
        return [_random(random, graph, name, kind.sequence_type.elem_type, shape) for _ in range(2)]
    dtype = numpy_dtype(kind.tensor_type.elem_type) if which == "tensor_type" else None
    if dtype is None:
        message = f"no random values are made for input {quoted(name)}, which is {type_text(kind)}."
        raise FeedError(message, advice="Give it in feeds.")
    allowed = allowed_values(graph, name, shape)
    if isinstance(allowed, np.ndarray):
        return allowed.astype(dtype)
    if dtype.kind == "O":
        return _words(random, shape)
    if dtype.kind == "b":
        return np.ones(shape, dtype) if _is_mask(name) else random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4"):
        if allowed is None and _is_mask(name):
            return np.ones(shape, dtype)
        largest = int(_iinfo(dtype).max)
        # not 0: an integer division by 0 ends the process
        low, high = (1, 8) if allowed is None else (int(max(allowed.low, 0)), int(allowed.high))
        return random.integers(low, max(min(high, largest + 1), low + 1), shape).astype(dtype)
    if allowed is not None:
        return np.asarray(random.uniform(allowed.low, allowed.high, shape)).astype(dtype)
    if name.endswith("attention_mask"):
        return np.ones(shape, dtype)
    numbers = np.asarray(random.standard_normal(shape))
    if dtype.kind == "c":
        return (numbers + 1j * random.standard_normal(shape)).astype(dtype)
    # a type of powers of two only has no sign
    return (np.abs(numbers) if dtype.name == "float8_e8m0fnu" else numbers).astype(dtype)


def _is_mask(name: str) -> bool:
    return "mask" in name.lower()


def _is_float(data_type: int) -> bool:
    dtype = numpy_dtype(data_type)
    return dtype is not None and (dtype.kind == "f" or "float" in dtype.name)


def _words(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    words = np.empty(shape, object)
    for place in np.ndindex(shape):
        words[place] = "".join(map(chr, random.integers(ord("a"), ord("z") + 1, random.integers(1, 8)).tolist()))
    return words


_iinfo: Final[Callable[[Any], Any]] = ml_dtypes.iinfo  # covers the types of numpy too


Values = NDArray[Any]
Shape = tuple[int, ...]
Rule = Callable[["Use", Shape], "Range | Values | None"]


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` up to, but without, ``high``."""

    low: float
    high: float


@dataclass(frozen=True)
class Use:
    """A node that reads the values of an input, or these and a constant added to them."""

    graph: Graph
    node: int
    index: int
    """Which of the node's inputs it is."""
    added: int

    @property
    def op(self) -> str:
        """The operator's name, behind the domain if that is not the default one."""
        return _op(self.graph, self.node)

    def shape(self, index: int) -> Shape | None:
        """Return the shape of one of the node's inputs, if it is known."""
        return _shape(self.graph, self.node, index)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        return attribute(self.graph.nodes[self.node], name, default)

    def axis(self, index: int, default: int = 0) -> int:
        """Return the size of one of the node's inputs along its attribute ``axis``; 0 if it is not known."""
        shape, axis = self.shape(index), int(self.attribute("axis", default))
        return shape[axis] if shape and -len(shape) <= axis < len(shape) else 0


def allowed_values(graph: Graph, name: str, shape: Shape) -> Range | Values | None:
    """Return the values that an input may have."""
    low, high = -math.inf, math.inf
    for use in _uses(graph, graph.value(name)):
        rule = _RULES.get(use.op, {}).get(use.index)
        allowed = None if rule is None else rule(use, shape)
        if isinstance(allowed, np.ndarray):
            return allowed
        if allowed is not None:
            low, high = max(low, allowed.low - use.added), min(high, allowed.high - use.added)
    return Range(low, high) if low < high and math.isfinite(high - low) else None


def required_sizes(graph: Graph, name: str, rank: int) -> dict[int, int]:
    """Return the axis sizes an input must have to be compatible with the weights it is combined with."""
    found: dict[int, int] = {}
    seen, todo = set[int](), [graph.value(name)]
    while todo and len(seen) < _FOLLOWED:
        value = todo.pop()
        seen.add(value)
        for node in graph.consumers(value).tolist():
            if int(graph.node_inputs(node)[0]) != value:
                continue
            use = Use(graph, node, 0, 0)
            if use.op in _SAME_SHAPE:
                todo.extend(
                    output for output in graph.node_outputs(node).tolist() if output >= 0 and output not in seen
                )
            elif use.op in _WEIGHT_SIZES:
                axis, size = _WEIGHT_SIZES[use.op](use, use.shape(1) or ())
                if size and -rank <= axis < rank:
                    found.setdefault(axis % rank, size)
    return found


def _uses(graph: Graph, value: int) -> Iterator[Use]:
    """Yield the nodes that values reach unchanged, or with a constant added."""
    seen, todo = set[tuple[int, int]](), [(value, 0)]
    while todo and len(seen) < _FOLLOWED:
        value, added = todo.pop()
        if (value, added) in seen:
            continue
        seen.add((value, added))
        for node in graph.consumers(value).tolist():
            for index in np.flatnonzero(graph.node_inputs(node) == value).tolist():
                use = Use(graph, node, index, added)
                yield use
                more = _added(use)
                if more is not None:
                    todo.extend((output, added + more) for output in graph.node_outputs(node).tolist() if output >= 0)
                elif use.op in ("Loop", "Scan"):
                    # the first two inputs of a Loop are the trip count and the condition
                    for subgraph in graph.bodies(node):
                        inner = graph.subgraphs[subgraph].inputs.tolist()
                        if index < len(inner) and (use.op == "Scan" or index > 1):
                            todo.append((inner[index], added))


_FOLLOWED: Final = 2000
"""Maximum number of tensors to follow."""

_PASS_FIRST_INPUT: Final = frozenset(
    (
        *(
            "Cast",
            "CastLike",
            "Clip",
            "Compress",
            "Dropout",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
        ),
        *("Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        "onnx_nb.Mark",
    )
)
_PASS_ALL_INPUTS: Final = frozenset(("Concat", "Max", "Min"))


def _added(use: Use) -> int | None:
    """Return the number that a node adds to the values it passes on; ``None`` if it computes something else."""
    op, index = use.op, use.index
    if (index == 0 and op in _PASS_FIRST_INPUT) or op in _PASS_ALL_INPUTS or (op == "Where" and index > 0):
        return 0
    if op == "Add" or (op == "Sub" and index == 0):
        other = _constant(use.graph, use.node, 1 - index)
        if other is not None and other.size == 1 and other.dtype.kind in "iu":
            return int(other.item()) * (1 if op == "Add" else -1)
    return None


def _constant(graph: Graph, node: int, index: int) -> Values | None:
    value = int(graph.node_inputs(node)[index])
    if value < 0:
        return None
    producer = int(graph.producer[value])
    if producer >= 0:
        tensor = attribute(graph.nodes[producer], "value") if _op(graph, producer) == "Constant" else None
        return None if tensor is None else numpy_helper.to_array(tensor)
    if graph.value_kind[value] != INITIALIZER or graph.value_subgraph[value] != 0:
        return None
    try:
        return graph.model.tensor(graph.value_names[value])
    except OnnxNbError:  # reported when the model runs
        return None


def _shape(graph: Graph, node: int, index: int) -> Shape | None:
    values = graph.node_inputs(node)
    if index >= len(values) or values[index] < 0:
        return None
    if graph.value_kind[values[index]] == INITIALIZER and graph.value_subgraph[values[index]] == 0:
        # type_of would infer the types of all values
        weight = graph.model.initializers.get(graph.value_names[values[index]])
        return None if weight is None else weight.shape
    found = graph.type_of(int(values[index])).shape
    if found is not None and all(isinstance(dim, int) for dim in found):
        return tuple(dim for dim in found if isinstance(dim, int))
    constant = _constant(graph, node, index)
    if constant is not None:
        return constant.shape
    # onnx infers nothing of Reshape(…, Shape(x))
    reshape = int(graph.producer[values[index]])
    if _op(graph, reshape) == "Reshape":
        shape = int(graph.producer[graph.node_inputs(reshape)[1]])
        if _op(graph, shape) == "Shape" and not graph.nodes[shape].attribute:
            return _shape(graph, shape, 0)
    return None


def _op(graph: Graph, node: int) -> str:
    if node < 0:
        return ""
    op, domain = graph.operators[int(graph.op_index[node])]
    return f"{domain}.{op}" if domain else op


def _convolved(use: Use, weight: Shape) -> tuple[int, int]:
    return 1, weight[1] * int(use.attribute("group", 1)) if len(weight) > 1 else 0


def _multiplied(_: Use, weight: Shape) -> tuple[int, int]:
    return -1, weight[max(len(weight) - 2, 0)] if weight else 0


def _gemm(use: Use, weight: Shape) -> tuple[int, int]:
    size = weight[1 if use.attribute("transB", 0) else 0] if len(weight) == 2 else 0
    return 0 if use.attribute("transA", 0) else 1, size


def _along(axis: int, of_weight: int) -> Callable[[Use, Shape], tuple[int, int]]:
    return lambda _, weight: (axis, weight[of_weight] if -len(weight) <= of_weight < len(weight) else 0)


_SAME_SHAPE: Final = frozenset(("Cast", "Clip", "Identity", "Relu", "onnx_nb.Mark"))
_WEIGHT_SIZES: Final[Mapping[str, Callable[[Use, Shape], tuple[int, int]]]] = {
    "BatchNormalization": _along(1, 0),
    "Conv": _convolved,
    "ConvInteger": _convolved,
    "ConvTranspose": _along(1, 0),
    "GRU": _along(2, 2),
    "Gemm": _gemm,
    "InstanceNormalization": _along(1, 0),
    "LSTM": _along(2, 2),
    "LayerNormalization": _along(-1, -1),
    "MatMul": _multiplied,
    "MatMulInteger": _multiplied,
    "RNN": _along(2, 2),
}


def _below(limit: int) -> Range | None:
    return Range(0, limit) if limit > 0 else None


def _into_axis(use: Use, _: Shape) -> Range | None:
    return _below(use.axis(0))


def _into_leading(use: Use, shape: Shape) -> Range | None:
    data, batch = use.shape(0) or (), int(use.attribute("batch_dims", 0))
    return _below(min(data[batch : batch + (shape[-1] if shape else 1)], default=0))


def _into(index: int, axis: int) -> Callable[[Use, Shape], Range | None]:
    """Bound values by the size of another input along an axis."""

    def rule(use: Use, _: Shape) -> Range | None:
        other = use.shape(index)
        return _below(other[axis]) if other and -len(other) <= axis < len(other) else None

    return rule


def _upto(index: int, axis: int) -> Callable[[Use, Shape], Range | None]:
    def rule(use: Use, shape: Shape) -> Range | None:
        found = _into(index, axis)(use, shape)
        return found and Range(1, found.high + 1)

    return rule


def _each(value: float) -> Callable[[Use, Shape], Values]:
    return lambda _, shape: np.full(shape, value)


def _between(low: float, high: float) -> Callable[[Use, Shape], Range]:
    return lambda _, __: Range(low, high)


def _axes(_: Use, shape: Shape) -> Values:
    return np.arange(math.prod(shape)).reshape(shape)


def _axes_of_size_one(use: Use, shape: Shape) -> Values | None:
    units = [axis for axis, size in enumerate(use.shape(0) or ()) if size == 1][: math.prod(shape)]
    return np.array(units).reshape(shape) if len(units) == math.prod(shape) else None


def _same_size(_: Use, shape: Shape) -> Values:
    """Return a target shape of Reshape that fits any input."""
    sizes = np.ones(math.prod(shape), np.int64)
    sizes[:1] = -1
    return sizes.reshape(shape)


def _parts(use: Use, shape: Shape) -> Values | None:
    if not shape or use.shape(0) is None:
        return np.ones(shape)
    return np.array([len(part) for part in np.array_split(np.zeros(use.axis(0)), math.prod(shape) or 1)])


def _padding(use: Use, _: Shape) -> Range:
    # reflection cannot pad by more than there is
    return Range(0, 3 if use.attribute("mode", b"constant") == b"constant" else 1)


def _sizes(use: Use, shape: Shape) -> Values | None:
    data = use.shape(0)
    if data is None or len(shape) != 1:
        return None
    axes: Sequence[int] = use.attribute("axes", range(len(data)))
    return np.array([data[axis] for axis in axes]) if len(axes) == shape[0] else None


_POSITIVE: Final = _between(0.1, 2)
_PROBABILITY: Final = _between(0, 1)
_RECURRENT: Final = {4: _upto(0, 0)}

_RULES: Final[Mapping[str, Mapping[int, Rule]]] = {
    "Attention": {6: _upto(1, -2)},
    "BatchNormalization": {4: _POSITIVE},
    "ConstantOfShape": {0: _between(1, 4)},
    "CumSum": {1: _each(0)},
    "DequantizeLinear": {1: _POSITIVE},
    "Dropout": {1: _PROBABILITY},
    "Expand": {1: _each(1)},
    "GRU": _RECURRENT,
    "Gather": {1: _into_axis},
    "GatherElements": {1: _into_axis},
    "GatherND": {1: _into_leading},
    "LSTM": _RECURRENT,
    "Loop": {0: _between(1, 4), 1: _each(1)},
    "NonMaxSuppression": {2: _between(1, 4), 3: _PROBABILITY},
    "OneHot": {1: _between(3, 9)},
    "Pad": {1: _padding, 3: _axes},
    "QuantizeLinear": {1: _POSITIVE},
    "RNN": _RECURRENT,
    "Range": {0: _each(0), 1: _each(5), 2: _each(1)},
    "Reshape": {1: _same_size},
    "Resize": {2: _each(1), 3: _sizes},
    "RotaryEmbedding": {3: _into(1, 0)},
    "ScatterElements": {1: _into_axis},
    "ScatterND": {1: _into_leading},
    "Slice": {1: _each(0), 2: _each(1), 3: _axes, 4: _each(1)},
    "Split": {1: _parts},
    "Squeeze": {1: _axes_of_size_one},
    "Tile": {1: _each(1)},
    "TopK": {1: _each(1)},
    "Unsqueeze": {1: _axes},
    "ai.onnx.ml.ArrayFeatureExtractor": {1: _into(0, -1)},
    "com.microsoft.DequantizeLinear": {1: _POSITIVE},
    "com.microsoft.EmbedLayerNormalization": {0: _into(2, 0), 1: _into(4, 0)},
    "com.microsoft.GatherBlockQuantized": {1: _into_axis},
    "com.microsoft.QuantizeLinear": {1: _POSITIVE},
    "com.microsoft.RotaryEmbedding": {1: _into(2, 0)},
    **{
        f"Reduce{name}": {1: _axes}
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
