"""Random feeds for a model: values that its operators accept, in shapes that its inputs allow."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TypeProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.formatting import bytes_text, quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import Operator, facts
from onnx_nb.analysis.graph.shape_inference import BROKEN, Inference, bound, infer
from onnx_nb.analysis.graph.types import ValueType, is_static, unwrapped
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.tensors import (
    attribute,
    dimensions,
    dimensions_text,
    elements,
    input_types,
    numpy_dtype,
    type_text,
)

Values = NDArray[Any]
Shape = tuple[int, ...]
_Said = TypeVar("_Said")

FEED_LIMIT: Final = 1 << 34
"""Bytes of random numbers, each a float64 at first, that are made for one input."""

_iinfo: Final[Callable[[Any], Any]] = ml_dtypes.iinfo  # also covers the types of numpy


@known_arguments
def random_feeds(
    model: ModelLike, seed: int = 0, shapes: Mapping[str, int | Sequence[int]] | None = None
) -> dict[str, Any]:
    """Return random values on which a model runs, for every input without an initializer.

    Floats are standard normal, masks are ones, indices are within bounds, axes and sizes fit the operators that read
    them. Other integers are between 1 and 7: dividing by 0 would end the process.

    Parameters
    ----------
    model
        Any `ModelLike`.
    seed
        Seed; equal seeds yield equal values.
    shapes
        Sizes of dimensions by symbol, and shapes by input name. Other dimensions are small.

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
    graph = Graph.opened(load(model))
    kinds = _fed(graph)
    sizes = _input_shapes(graph, kinds, shapes or {})
    for name, shape in sizes.items():
        if 16 * elements([size for size in shape if size]) >= 1 << 63:  # bytes of complex numbers; numpy's limit
            message = f"numpy has no array of the shape {dimensions_text(shape)} that input {quoted(name)} declares."
            raise FeedError(message, advice="Choose smaller sizes by shapes=.")
        if 8 * elements(shape) > FEED_LIMIT:
            message = f"random values for input {quoted(name)} of shape {dimensions_text(shape)} would take"
            advice = "Give it in feeds, or choose smaller sizes by shapes=."
            raise FeedError(f"{message} {bytes_text(8 * elements(shape))}.", advice=advice)
    types = infer(graph, {name: sizes[name] for name, kind in kinds.items() if kind.HasField("tensor_type")})
    try:
        return {
            name: _random(np.random.default_rng([seed, number]), types, name, kind, sizes[name])
            for number, (name, kind) in enumerate(kinds.items())
        }
    except MemoryError:
        message = f"there is no memory for random values of {sum(map(elements, sizes.values())):,} elements."
        raise FeedError(message, advice="Give feeds, or choose smaller sizes by shapes=.") from None


def feed_shapes(model: ModelLike) -> dict[str, Shape]:
    """Return the shapes that `random_feeds` chooses for tensors, without making the values."""
    graph = Graph.opened(load(model))
    kinds = _fed(graph)
    sizes = _input_shapes(graph, kinds, {})
    return {name: sizes[name] for name, kind in kinds.items() if kind.HasField("tensor_type")}


def _fed(graph: Graph) -> dict[str, TypeProto]:
    """Return the type of each input that has no weight."""
    weights = graph.model.initializers
    return {name: kind for name, kind in input_types(graph.model).items() if name not in weights}


def _input_shapes(graph: Graph, kinds: Mapping[str, TypeProto], requests: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the shape of each input, or of its elements: as requested, as the weights require, or small."""
    sizes_of_symbols, overrides = bound(graph, requests)
    symbols = dict(sizes_of_symbols)
    inner = {name: unwrapped(kind) for name, kind in kinds.items()}
    shapes = {name: dimensions(kind) for name, kind in inner.items()}
    dim_names = {dim for shape in shapes.values() for dim in shape or () if isinstance(dim, str)}
    inputs = {name: (1,) for name, shape in shapes.items() if shape is None} | dict(overrides)
    dims = {name: shape for name, shape in shapes.items() if shape is not None and name not in inputs}
    sizes: dict[str, list[int]] = {}
    for name, shape in dims.items():
        axes = {} if is_static(shape) else _required_sizes(graph, name, len(shape))
        for axis, size in axes.items():
            symbols.setdefault(str(shape[axis]), size)
        dtype = numpy_dtype(inner[name].tensor_type.elem_type)
        is_float = dtype is not None and (dtype.kind == "f" or "float" in dtype.name)
        sizes[name] = [
            axes.get(axis) or _small(str(dim or ""), axis, len(shape), is_float=is_float)
            for axis, dim in enumerate(shape)
        ]
    for name, shape in dims.items():
        for dim, size in zip(shape, sizes[name], strict=True):
            if isinstance(dim, str) and dim.isidentifier() and not _is_total(dim, dim_names):
                symbols.setdefault(dim, size)
    for name, shape in dims.items():
        inputs[name] = tuple(
            _evaluated(dim, symbols) if isinstance(dim, str) else size if dim is None else dim
            for dim, size in zip(shape, sizes[name], strict=True)
        )
    return inputs


def _is_total(symbol: str, symbols: Collection[str]) -> bool:
    """Return whether a symbol is the sum of two others, as "total_length" of "past_length" and "length"."""
    return symbol.startswith("total_") and "past_" + symbol.removeprefix("total_") in symbols


def _small(symbol: str, axis: int, rank: int, *, is_float: bool) -> int:
    """Return the default size of a dimension: one example, eight tokens, or a small image."""
    if "batch" in symbol or (axis == 0 and rank > 1):
        return 1
    return 64 if is_float and axis > 1 and not re.search("seq|len|past", symbol) else 8


def _evaluated(symbol: str, symbols: Mapping[str, int]) -> int:
    """Return the size of a symbol; exporters name dimensions by formulas, such as "past_sequence_length + 1"."""
    if symbol in symbols:
        return symbols[symbol]
    if _is_total(symbol, symbols):
        return sum(symbols.get(part + symbol.removeprefix("total_"), 0) for part in ("past_", ""))

    def value_of(tree: ast.expr) -> int:
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
            return tree.value
        if isinstance(tree, ast.Name):
            return symbols.get(tree.id, 8)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
            return _ARITHMETIC[type(tree.op)](value_of(tree.left), value_of(tree.right))
        raise ValueError(f"{type(tree).__name__} is in the formula")

    try:
        return max(value_of(ast.parse(symbol[:1000], mode="eval").body), 0)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return 8  # a name, not a formula


_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def _random(random: np.random.Generator, types: Inference, name: str, kind: TypeProto, shape: Shape) -> Any:
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return _random(random, types, name, kind.optional_type.elem_type, shape)
    if which == "sequence_type":
        return [_random(random, types, name, kind.sequence_type.elem_type, shape) for _ in range(2)]
    dtype = numpy_dtype(kind.tensor_type.elem_type) if which == "tensor_type" else None
    if dtype is None:
        message = f"no random values are made for input {quoted(name)}, which is {type_text(kind)}."
        raise FeedError(message, advice="Give it in feeds.")
    # the rules are for numbers
    domain = None if dtype.kind == "O" else _allowed_values(types, name, shape)
    is_mask = "mask" in name.lower()
    if isinstance(domain, np.ndarray):
        return domain.astype(dtype)
    if dtype.kind == "O":
        words = np.empty(shape, object)
        # digits where a Cast reads numbers
        is_number = any(use.op == ("Cast", "") for use in _uses(types, types.graph.value(name)))
        first, last = map(ord, "19" if is_number else "az")
        for place in np.ndindex(shape):
            words[place] = "".join(map(chr, random.integers(first, last + 1, random.integers(1, 8)).tolist()))
        return words
    if dtype.kind == "b":
        return np.ones(shape, dtype) if is_mask else random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4"):
        if domain is None and is_mask:
            return np.ones(shape, dtype)
        largest = int(_iinfo(dtype).max)
        # not 0: an integer division by 0 ends the process
        low, high = (1, 8) if domain is None else (int(max(domain.low, 0)), int(domain.high))
        return random.integers(low, max(min(high, largest + 1), low + 1), shape).astype(dtype)
    if domain is not None:
        return np.asarray(random.uniform(domain.low, domain.high, shape)).astype(dtype)
    if name.endswith("attention_mask"):
        return np.ones(shape, dtype)
    numbers = np.asarray(random.standard_normal(shape))
    if dtype.kind == "c":
        return (numbers + 1j * random.standard_normal(shape)).astype(dtype)
    # a type of powers of two only has no sign
    return (np.abs(numbers) if dtype.name == "float8_e8m0fnu" else numbers).astype(dtype)


class Interval(NamedTuple):
    """Numbers from ``low`` (inclusive) to ``high`` (exclusive)."""

    low: float
    high: float


@dataclass(frozen=True)
class InputUse:
    """A node that reads the values of an input, possibly with a constant added."""

    graph: Graph
    node: int
    index: int
    """Position among the node's inputs."""
    type_of: Callable[[int], ValueType]
    offset: int = 0

    @property
    def op(self) -> tuple[str, str]:
        """The operator and its domain."""
        return self.graph.operators[int(self.graph.op_index[self.node])]

    @property
    def facts(self) -> Operator:
        """What is known of the operator."""
        return facts(*self.op)

    def shape(self, index: int) -> Shape | None:
        """Return the shape of one of the node's inputs, if known."""
        values, types = self.graph.node_inputs(self.node), self.graph.declared
        if index >= len(values) or values[index] < 0:
            return None
        dims = types.table.known[int(types.of_value[values[index]])].shape
        if not is_static(dims):
            dims = self.type_of(int(values[index])).shape
        return dims if is_static(dims) else None

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        return attribute(self.graph.nodes[self.node], name, default)


def _allowed_values(types: Inference, name: str, shape: Shape) -> Interval | Values | None:
    """Return the values that an input may have."""
    low, high = -math.inf, math.inf
    for use in _uses(types, types.graph.value(name)):
        domain = _asked(_valid, use, shape) if use.index in use.facts.feeds else None
        if isinstance(domain, np.ndarray):
            return domain
        if domain is not None:
            low, high = max(low, domain.low - use.offset), min(high, domain.high - use.offset)
    return Interval(low, high) if low < high and math.isfinite(high - low) else None


def _required_sizes(graph: Graph, name: str, rank: int) -> dict[int, int]:
    """Return the axis sizes an input must have to be compatible with the weights it is combined with."""
    sizes: dict[int, int] = {}
    visits, todo = set[int](), [graph.value(name)]
    while todo and len(visits) < _MAX_TENSORS:
        value = todo.pop()
        visits.add(value)
        for node in graph.consumers(value).tolist():
            use = InputUse(graph, node, 0, graph.type_of)
            if int(graph.node_inputs(node)[0]) != value:
                continue
            if "pointwise" in use.facts.traits:
                todo.extend(out for out in graph.node_outputs(node).tolist() if out >= 0 and out not in visits)
            elif use.facts.fits:
                axis, size = _asked(_fitting, use, use.shape(use.facts.weights[0]) or ()) or (0, 0)
                if size and -rank <= axis < rank:
                    sizes.setdefault(axis % rank, size)
    return sizes


def _asked(rule: Callable[[InputUse, Shape], _Said], use: InputUse, shape: Shape) -> _Said | None:
    """Return what a rule says of a node; ``None`` if the node is broken."""
    try:
        return rule(use, shape)
    except BROKEN:
        return None


def _uses(types: Inference, value: int) -> Iterator[InputUse]:
    """Yield the nodes that read the values, unchanged or with a constant added."""
    graph = types.graph
    visits, todo = set[tuple[int, int]](), [(value, 0)]
    while todo and len(visits) < _MAX_TENSORS:
        value, offset = todo.pop()
        if (value, offset) in visits:
            continue
        visits.add((value, offset))
        for node in graph.consumers(value).tolist():
            for index in np.flatnonzero(graph.node_inputs(node) == value).tolist():
                use = InputUse(graph, node, index, types.type_of, offset)
                yield use
                more = _asked(lambda use, _: _added(use, types), use, ())
                if more is not None:
                    todo.extend((output, offset + more) for output in graph.node_outputs(node).tolist() if output >= 0)
                elif use.op in (("Loop", ""), ("Scan", "")):
                    # the first two inputs of a Loop are the trip count and the condition
                    for subgraph in graph.bodies(node):
                        inner = graph.subgraphs[subgraph].inputs.tolist()
                        if index < len(inner) and (use.op[0] == "Scan" or index > 1):
                            todo.append((inner[index], offset))


_MAX_TENSORS: Final = 2000
"""Maximum number of tensors to follow."""


def _added(use: InputUse, types: Inference) -> int | None:
    """Return the number that a node adds to the values it passes on; ``None`` if it computes something else."""
    (op, domain), index = use.op, use.index
    if use.facts.does_move(index):
        return 0
    is_sum = not domain and (op == "Add" or (op == "Sub" and index == 0))
    if is_sum and types.case_of[use.node] >= 0:
        other = types.cases[types.case_of[use.node]].values[1 - index]
        if other is not None and other.size == 1 and other.dtype.kind in "iu":
            return int(other.item()) * (1 if op == "Add" else -1)
    return None


def _fitting(use: InputUse, weight: Shape) -> tuple[int, int]:
    """Return the axis of the first input that has to fit a weight, and its size; 0 if that is unknown."""
    match use.facts.fits:
        case "conv":
            return 1, weight[1] * int(use.attribute("group", 1)) if len(weight) > 1 else 0
        case "matmul":
            return -1, weight[max(len(weight) - 2, 0)] if weight else 0
        case "gemm":
            size = weight[1 if use.attribute("transB", 0) else 0] if len(weight) == 2 else 0
            return 0 if use.attribute("transA", 0) else 1, size
        case axes:
            axis, of_weight = map(int, axes.split(":"))
            return axis, weight[of_weight] if -len(weight) <= of_weight < len(weight) else 0


def _valid(use: InputUse, shape: Shape) -> Interval | Values | None:
    """Return the values that an operator accepts at an input, in the words of the table of operators."""
    kind, _, place = use.facts.feeds[use.index].partition(":")
    data = use.shape(0)
    match kind:
        case "index" | "length":
            index, _, axis = place.partition(",")
            sizes, at = use.shape(int(index)) or (), int(axis) if axis else int(use.attribute("axis", 0))
            size, first = sizes[at] if -len(sizes) <= at < len(sizes) else 0, int(kind == "length")
            return Interval(first, size + first) if size > 0 else None
        case "leading":
            batch = int(use.attribute("batch_dims", 0))
            limit = min((data or ())[batch : batch + (shape[-1] if shape else 1)], default=0)
            return Interval(0, limit) if limit > 0 else None
        case "target":
            target = np.ones(math.prod(shape), np.int64)
            target[:1] = -1
            return target.reshape(shape)
        case "axes":
            return np.arange(math.prod(shape)).reshape(shape)
        case "sizes":
            axes: Sequence[int] = use.attribute("axes", range(len(data or ())))
            is_full = data is not None and len(shape) == 1 and len(axes) == shape[0]
            return np.array([data[axis] for axis in axes]) if data is not None and is_full else None
        case "pads":  # reflection cannot pad by more than the axis has
            return Interval(0, 3 if use.attribute("mode", b"constant") == b"constant" else 1)
        case numbers:
            low, is_range, high = numbers.partition("..")
            return Interval(float(low), float(high)) if is_range else np.full(shape, float(low))
