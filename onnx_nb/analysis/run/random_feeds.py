"""Random feeds for a model: values that its operators accept, in shapes that its inputs allow."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TypeProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, quoted, shape_text, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import EVERY, Operator, facts
from onnx_nb.analysis.graph.shape_inference import BROKEN, Inference, bound, infer
from onnx_nb.analysis.graph.types import ValueType, is_static, unwrapped
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import Model, ModelLike, cached, load
from onnx_nb.analysis.model.tensors import Dims, dimensions, elements, input_types, listed, numpy_dtype

Values = NDArray[Any]
Shape = tuple[int, ...]
Key = str | tuple[str, int]
"""A size that a model leaves open: the name of a dimension, or an input and its axis; empty for the largest integer."""
_Said = TypeVar("_Said")
_Verb = TypeVar("_Verb", bound=Callable[..., Any])

FEED_LIMIT: Final = 1 << 34
"""Bytes of random numbers, each a float64 at first, that are made for one input."""

_iinfo: Final[Callable[[Any], Any]] = ml_dtypes.iinfo  # also covers the types of numpy


@known_arguments
def random_feeds(
    model: ModelLike, seed: int = 0, shapes: Mapping[str, int | Sequence[int]] | None = None
) -> dict[str, Any]:
    """Return random values on which a model runs, for every input without an initializer.

    Floats are standard normal, masks are ones, indices are within bounds, axes and sizes fit the operators that read
    them, caches the attention, lengths another input; a sample rate is 16,000. Other integers are between 1 and 7:
    dividing by 0 would end the process. Where a verb without feeds has tried other sizes, they are kept.

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
    kinds, sizes, _ = _input_shapes(graph, shapes)
    for name, shape in sizes.items():
        if 16 * elements([size for size in shape if size]) >= 1 << 63:  # bytes of complex numbers; numpy's limit
            message = (
                f"numpy has no array of the shape {tensors.dimensions_text(shape)} that input {quoted(name)} declares."
            )
            raise FeedError(message, advice="Choose smaller sizes by shapes=.")
        if 8 * elements(shape) > FEED_LIMIT:
            message = f"random values for input {quoted(name)} of shape {tensors.dimensions_text(shape)} would take"
            advice = "Give it in feeds, or choose smaller sizes by shapes=."
            raise FeedError(f"{message} {bytes_text(8 * elements(shape))}.", advice=advice)
    types = infer(graph, {name: sizes[name] for name, kind in kinds.items() if kind.HasField("tensor_type")})
    try:
        generators = {name: np.random.default_rng([seed, number]) for number, name in enumerate(kinds)}
        return {name: _random(generators[name], types, name, kind, sizes[name]) for name, kind in kinds.items()}
    except MemoryError:
        message = f"there is no memory for random values of {sum(map(elements, sizes.values())):,} elements."
        raise FeedError(message, advice="Give feeds, or choose smaller sizes by shapes=.") from None


def feed_shapes(model: ModelLike, shapes: Mapping[str, Any] | None = None) -> dict[str, Shape]:
    """Return the shapes that `random_feeds` chooses for tensors, without making the values."""
    kinds, sizes, _ = _input_shapes(Graph.opened(load(model)), shapes)
    return {name: sizes[name] for name, kind in kinds.items() if kind.HasField("tensor_type")}


def open_sizes(model: Model, shapes: Mapping[str, Any] | None = None) -> dict[Key, int]:
    """Return each size that neither a model nor ``shapes`` fixes, as `random_feeds` chooses it."""
    return _input_shapes(Graph.opened(model), shapes)[2] | {"": _preferences(model).get("", 8)}


def feeds_text(model: ModelLike, shapes: Mapping[str, Any] | None = None) -> str:
    """Return what results and errors say of feeds that `random_feeds` made: "feeds: random, x 1×3×640×640"."""
    texts = [f"{shortened(name, 60)} {shape_text(shape)}" for name, shape in feed_shapes(model, shapes).items()]
    return f"feeds: {listed(['random', *texts], str, 5)}" if texts else ""


def _fed(graph: Graph) -> dict[str, TypeProto]:
    """Return the type of each input that has no weight."""
    return {name: kind for name, kind in input_types(graph.model).items() if name not in graph.model.initializers}


def _input_shapes(
    graph: Graph, requests: Mapping[str, Any] | None
) -> tuple[dict[str, TypeProto], dict[str, Shape], dict[Key, int]]:
    """Return the type and shape of each input, or of its elements: as requested, needed, or small; and open sizes."""
    kinds, (sizes_of_symbols, overrides) = _fed(graph), bound(graph, requests or {})
    preferences = _preferences(graph.model)
    symbols = {key: size for key, size in preferences.items() if isinstance(key, str)} | dict(sizes_of_symbols)
    shapes = {name: dimensions(unwrapped(kind)) for name, kind in kinds.items()}
    dim_names = {dim for shape in shapes.values() for dim in shape or () if isinstance(dim, str)}
    # the sum of two others, as "total_length" of "past_length" and "length"
    totals = {f"total_{dim[5:]}": f"{dim} + {dim[5:]}" for dim in dim_names if dim.startswith("past_")}
    inputs = {name: (1,) for name, shape in shapes.items() if shape is None} | dict(overrides)
    dims = {name: shape for name, shape in shapes.items() if shape is not None and name not in inputs}
    sizes: dict[str, list[int]] = {}
    for name, shape in dims.items():
        axes = {} if is_static(shape) else required_sizes(graph, name, len(shape))
        for axis, size in axes.items():
            symbols.setdefault(str(shape[axis]), size)
        is_float = "float" in str(numpy_dtype(unwrapped(kinds[name]).tensor_type.elem_type))
        sizes[name] = [
            preferences.get((name, axis)) or axes.get(axis) or _small(name, shape, axis, is_float)
            for axis in range(len(shape))
        ]
    for name, shape in dims.items():
        for dim, size in zip(shape, sizes[name], strict=True):
            if isinstance(dim, str) and dim.replace(".", "").isidentifier() and dim not in totals:
                symbols.setdefault(dim, size)
    symbols = {dim: _evaluated(text, symbols, 8) for dim, text in totals.items()} | symbols
    choices: dict[Key, int] = {}
    for name, shape in dims.items():
        inputs[name] = tuple(
            _evaluated(dim, symbols, size) if isinstance(dim, str) else size if dim is None else dim
            for dim, size in zip(shape, sizes[name], strict=True)
        )
        for axis, dim in enumerate(shape):
            if dim is None or (isinstance(dim, str) and dim in symbols and dim not in {**totals, **sizes_of_symbols}):
                choices[dim or (name, axis)] = inputs[name][axis]
    return kinds, inputs, choices


def _small(name: str, shape: Dims, axis: int, is_float: bool) -> int:  # noqa: FBT001
    """Return the default size of a dimension: one example, eight tokens, a small image or a second of sound."""
    symbol, rank, last = str(shape[axis] or ""), len(shape), shape[-1]
    if "batch" in symbol or (axis == 0 and rank > 1):
        return 1
    if is_float and axis == rank - 1 < 2 and re.search("audio|wav|pcm|speech|sound", name.lower()):
        return 16_000
    first = 1 if rank == 4 and isinstance(last, int) and last < 5 else 2  # channels may come last
    return 64 if is_float and axis >= first and not re.search("seq|len|past", symbol) else 8


def _evaluated(symbol: str, symbols: Mapping[str, int], size: int) -> int:
    """Return the size of a symbol, which may be a formula, such as "past_sequence_length + 1"; ``size`` if not."""
    if symbol in symbols:
        return symbols[symbol]

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
        return size  # no formula


_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = dict.fromkeys(
    (ast.Div, ast.FloorDiv), operator.floordiv
) | {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def _random(random: np.random.Generator, types: Inference, name: str, kind: TypeProto, shape: Shape) -> Any:
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return _random(random, types, name, kind.optional_type.elem_type, shape)
    if which == "sequence_type":
        return [_random(random, types, name, kind.sequence_type.elem_type, shape) for _ in range(2)]
    dtype = numpy_dtype(kind.tensor_type.elem_type) if which == "tensor_type" else None
    if dtype is None:
        message = f"no random values are made for input {quoted(name)}, which is {tensors.type_text(kind)}."
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
        return np.full(shape, "pad" not in name.lower()) if is_mask else random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4"):
        if domain is None and is_mask:
            return np.ones(shape, dtype)
        largest = int(_iinfo(dtype).max)
        # not 0: an integer division by 0 ends the process
        low, high = (int(max(limit, 0)) for limit in domain or (1, _preferences(types.graph.model).get("", 8)))
        if shape and re.search("position_?ids?$", name):
            return np.broadcast_to(np.arange(shape[-1]) % (max(high, 1) if domain else 1 << 20), shape).astype(dtype)
        if domain is None and len(shape) < 2 and (number := _convention(types, name)):
            return np.full(shape, min(number, largest), dtype)
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


def _convention(types: Inference, name: str) -> int:
    """Return the integer that a name promises: a sample rate, or the length of another input; 0 if it does not."""
    if re.search(r"(^|_)(sr|sampl(e|ing)_?rate)$", name, re.IGNORECASE):
        return 16_000
    inputs = _fed(types.graph).items() if re.search("(^|_)(lens?|lengths?)$", name) else ()
    for other, kind in inputs:
        shape = types.type_of(types.graph.value(other)).shape or ()
        for dim, size in zip(dimensions(unwrapped(kind)) or (), shape, strict=False):
            if not isinstance(dim, int) and isinstance(size, int) and size > 1:
                return size
    return 0


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
        return tensors.attribute(self.graph.nodes[self.node], name, default)


def _allowed_values(types: Inference, name: str, shape: Shape) -> Interval | Values | None:
    low, high = -math.inf, math.inf
    for use in _uses(types, types.graph.value(name)):
        domain = _asked(_valid, use, shape) if use.index in use.facts.feeds else None
        if isinstance(domain, np.ndarray):
            return domain
        if domain is not None:
            low, high = max(low, domain.low - use.offset), min(high, domain.high - use.offset)
    return Interval(low, high) if low < high and math.isfinite(high - low) else None


def required_sizes(graph: Graph, name: str, rank: int) -> dict[int, int]:
    """Return the axis sizes an input must have to be compatible with the weights it is combined with."""
    sizes: dict[int, int] = {}
    visits, todo = set[int](), [graph.value(name)]
    while todo and len(visits) < _MAX_TENSORS:
        value = todo.pop()
        visits.add(value)
        for node in graph.consumers(value).tolist():
            use, inputs = InputUse(graph, node, 0, graph.type_of), graph.node_inputs(node).tolist()
            if value in [inputs[place] for place in use.facts.past if place < len(inputs)] and rank == 4:
                sizes |= _asked(_cache_sizes, use, ()) or {}
            if inputs[0] != value:
                continue
            if "pointwise" in use.facts.traits:
                todo.extend(out for out in graph.results(node) if out not in visits)
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
                    todo.extend((output, offset + more) for output in graph.results(node))
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
    if not {index, EVERY}.isdisjoint(use.facts.moves):
        return 0
    is_sum = not domain and (op == "Add" or (op == "Sub" and index == 0))
    if is_sum and types.case_of[use.node] >= 0:
        other = types.cases[types.case_of[use.node]].values[1 - index]
        if other is not None and other.size == 1 and other.dtype.kind in "iu":
            return int(other.item()) * (1 if op == "Add" else -1)
    return None


def _cache_sizes(use: InputUse, _: Shape) -> dict[int, int]:
    """Return sizes of the axes of an attention's cache: its heads, its window and the numbers of a head."""
    inputs = use.graph.node_inputs(use.node).tolist()
    *axes, width = use.graph.type_of(inputs[0]).shape or (None,)
    heads = int(use.attribute("num_heads", 0) or use.attribute("q_num_heads", 0))
    own = int(use.attribute("kv_num_heads", heads))
    parts = 1 if len(axes) != 2 else heads if len(inputs) > 1 and inputs[1] >= 0 else heads + 2 * own
    window = int(use.attribute("local_window_size", 0)) * int(use.attribute("sliding_window_cache", 0))
    sizes = {1: own, 2: window, 3: width // max(parts, 1) if isinstance(width, int) else 0}
    return {axis: size for axis, size in sizes.items() if size > 0}


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


REFUSAL: Final = "onnxruntime could not run"
"""Beginning of the message of an error of a run."""
_USUAL: Final = (224, 320, 640, 16, 32, 48, 80, 64, 128, 256, 384, 416, 512, 1024, 2048, 1, 2, 4)
"""Usual sizes, in the order in which they are tried."""


def on_random_feeds(verb: _Verb) -> _Verb:
    """Decorate a verb whose first two parameters are a model and its feeds: see `until_it_runs`."""

    @functools.wraps(verb)
    def attempt(*args: Any, **options: Any) -> Any:
        if (args[1] if len(args) > 1 else options.get("feeds")) is not None or not (args or "model" in options):
            return verb(*args, **options)
        source = load(args[0] if args else options.pop("model"))
        return until_it_runs(source, functools.partial(verb, source, *args[1:], **options), options.get("shapes"))

    return cast("_Verb", attempt)


def until_it_runs(model: Model, work: Callable[[], _Said], shapes: Mapping[str, Any] | None = None) -> _Said:
    """Return the result of ``work``, which runs a model on `random_feeds`, if need be on others; an error says it."""
    try:
        return work()
    except OnnxNbError as error:
        if (is_refusal := error.message.startswith(REFUSAL)) and _has_other_sizes(model, shapes):
            return until_it_runs(model, work, shapes)  # the next time it begins with them, so this ends
        if is_refusal and (text := feeds_text(model, shapes)):
            sizes = {key: size for key, size in open_sizes(model, shapes).items() if key and isinstance(key, str)}
            how = f"Give feeds=, or sizes: shapes={dict([*sizes.items()][:4]) or '{input: shape}'}."
            error.message, error.advice = f"{text}; {error.message}", f"{error.advice} {how}".strip()
        raise


def _preferences(model: Model) -> dict[Key, int]:
    """Return the sizes that `random_feeds` prefers to its own, as a model ran on them."""
    return cached(model, _preferences, dict)


def _has_other_sizes(model: Model, shapes: Mapping[str, Any] | None) -> bool:
    """Look for sizes on which a model runs, and keep them; return whether they are others than before."""
    from onnx_nb.analysis.run import session  # whose verb uses this

    preferences, start = _preferences(model), open_sizes(model, shapes)
    before, numbers = dict(preferences), {name: node for node, name in enumerate(Graph.of(model).names) if name}
    queue, history, frontier, kinds = iter([start]), list[dict[Key, int]](), list[int](), set[str]()
    while len(history) < 24 and (sizes := next(queue, None)) is not None:
        is_repeated, history = sizes in history, [*history, sizes]
        preferences.update(sizes)
        if is_repeated or any(elements(shape) > 1 << 22 for shape in feed_shapes(model, shapes).values()):
            continue
        try:
            session.run(model, random_feeds(model, shapes=shapes), optimize=False)
        except OnnxNbError as error:
            # onnxruntime says which node failed, what it read and mostly what it wanted: does it come further?
            place = [numbers[name] for name in re.findall(r"Name:'([^']*)'", error.message) if name in numbers]
            if place >= frontier and (kind := re.sub(r"\d+", "", error.message)) not in kinds:
                frontier, kinds = place, kinds | {kind}
                queue = itertools.chain(_proposals(error.message, sizes), queue)
        else:
            return sizes != start
    preferences.clear()
    preferences.update(before)
    return False


def _proposals(message: str, sizes: Mapping[Key, int]) -> Iterator[dict[Key, int]]:
    """Yield sizes that onnxruntime may accept, those that its message suggests first."""
    text = re.sub(r"'[^']*'|\S+\.(h|cc|cpp):\d+", "", message.rpartition("Status Message:")[2])
    numbers = [int(number) for number in re.findall(r"\d{1,7}", text)]
    groups = {size: [key for key in sizes if key and sizes[key] == size] for size in {*sizes.values()} - {0, 1}}
    for key in (key for size in groups if size in numbers for key in groups[size]):
        larger = [size for size in sorted(_USUAL) if size > max(numbers)][:1]  # "got 64 expected 16", "post-pad (64) …"
        yield from ({**sizes, key: n} for n in [*numbers[-1:], *larger, *numbers[-2::-1]] if n not in (0, sizes[key]))
    yield from ({**sizes, **dict.fromkeys(keys, size)} for keys in groups.values() for size in _USUAL)
    yield from ({**sizes, "": largest} for largest in (5, 2))
