"""Random feeds for a model: values that its operators accept, on shapes that its inputs allow."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TypeProto, inliner

from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph.graph import INFERENCE_LIMIT, Graph
from onnx_nb.analysis.graph.shape_inference import requested_size
from onnx_nb.analysis.graph.subgraphs import INLINED
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, with_proto
from onnx_nb.analysis.model.tensors import numpy_dtype
from onnx_nb.analysis.model.value_info import Dims, dimensions, input_types, type_text
from onnx_nb.analysis.run import input_constraints
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
            name: input_constraints.required_sizes(Graph.of(model), name, len(shape))
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
    allowed = input_constraints.allowed_values(graph, name, shape)
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
