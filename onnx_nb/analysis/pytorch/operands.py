"""What a node computes with where an input is a weight: followed back to the initializer, and dequantized.

On the way there may be what only turns, reshapes, casts or dequantizes it. Operators that work on integers name scale
and zero point themselves; of the two that do not, MatMulInteger and ConvInteger, the scale is multiplied in behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.nodes import attribute
from onnx_nb.analysis.model.tensors import numpy_dtype

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph

_LONGEST: Final = 8
"""So many nodes may lie between an initializer and who computes with it."""


class Operand(NamedTuple):
    """A weight as a node gets it."""

    initializer: str
    """Its name."""
    array: NDArray[Any]
    """Floats where it is quantized."""
    steps: NDArray[Any] | None
    """The quantization step of each element, of the shape of ``array``; None where it is not quantized."""

    def turned(self) -> Operand:
        """Return it transposed."""
        return Operand(self.initializer, self.array.T, None if self.steps is None else self.steps.T)

    def shaped(self, shape: tuple[int, ...]) -> Operand:
        """Return it in another shape."""
        steps = None if self.steps is None else self.steps.reshape(shape)
        return Operand(self.initializer, self.array.reshape(shape), steps)

    def part(self, place: Any) -> Operand:
        """Return the part of it that an index says."""
        return Operand(self.initializer, self.array[place], None if self.steps is None else self.steps[place])


class _Integers(NamedTuple):
    """Where an operator on integers has a weight; −1 for what it does not have."""

    weight: int
    scale: int
    zero: int
    bias: int = -1
    data_scale: int = -1
    """What the scale of the bias, an int32, is the product of with that of the weight; −1 where the bias is floats."""
    axis: int = -1
    """Of the weight, along which there are several scales."""


_INTEGERS: Final[Mapping[str, _Integers]] = {
    "QLinearConv": _Integers(3, 4, 5, 8, 1, axis=0),
    "QLinearMatMul": _Integers(3, 4, 5),
    "QGemm": _Integers(3, 4, 5, 6, 1),
    "MatMulInteger": _Integers(1, -1, 3),
    "ConvInteger": _Integers(1, -1, 3, axis=0),
    "DynamicQuantizeMatMul": _Integers(1, 2, 3, 4),
    "MatMulIntegerToFloat": _Integers(1, 3, 5, 6),
}
INTEGERS: Final = frozenset(_INTEGERS)
"""Operators whose weights are integers, see `weight_of`."""


def weight_of(graph: Graph, node: int, place: int) -> Operand | None:
    """Return the weight that an input of a node is; of an operator on integers 1 is its weight, too, and 2 its bias.

    Parameters
    ----------
    graph
        Of the model.
    node, place
        Which input of which node.

    Returns
    -------
    Operand or None
        ``None`` if that input is computed from what the model gets, or in some other way than is followed, or is not
        there.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.graph.graph import Graph
    >>> graph = Graph.of(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ...     g (float[1, 2] x) => (float[1, 1] y) <int8[1, 2] q = {10, -20}, float s = {0.5}>
    ...     { d = DequantizeLinear(q, s)  w = Transpose(d)  y = MatMul(x, w) }'''))
    >>> found = weight_of(graph, 2, 1)
    >>> found.initializer, found.array.ravel().tolist(), found.steps.ravel().tolist()
    ('q', [5.0, -10.0], [0.5, 0.5])
    """
    op = operator(graph, node)
    if op == "QLinearAdd" and place in (0, 1):
        packed = _Integers(3 * place, 3 * place + 1, 3 * place + 2)
        return _integers(graph, node, packed, bias=False)
    known = _INTEGERS.get(op)
    if known is not None and place in (1, 2, known.weight, known.bias):
        return _integers(graph, node, known, bias=place in (2, known.bias))
    if op == "DynamicQuantizeLSTM" and place in (1, 2):
        return _of_lstm(graph, node, place)
    found = _followed(graph, input_of(graph, node, place))
    if found is not None and op == "Gather" and found.array.dtype.kind in "iu":
        return _dequantized_behind(graph, node, found)
    return found


def has_bias(graph: Graph, node: int) -> bool:
    """Return whether the operator of a layer itself adds something."""
    known = _INTEGERS.get(operator(graph, node))
    return input_of(graph, node, 2 if known is None else known.bias) >= 0


def operator(graph: Graph, node: int) -> str:
    """Return the type of a node's operator."""
    return graph.operators[int(graph.op_index[node])][0]


def input_of(graph: Graph, node: int, place: int) -> int:
    """Return the value that an input of a node is; −1 if it is left out."""
    inputs = graph.node_inputs(node)
    return int(inputs[place]) if 0 <= place < len(inputs) else -1


def _followed(graph: Graph, value: int) -> Operand | None:
    """Return the initializer, or Constant, that a value is, as it arrives there."""
    way: list[int] = []
    for _ in range(_LONGEST):
        if value < 0:
            return None
        maker = int(graph.producer[value])
        if maker < 0 or operator(graph, maker) == "Constant":
            break
        if operator(graph, maker) not in _ON_THE_WAY or maker >= graph.main_count:
            return None
        way.append(maker)
        value = input_of(graph, maker, 0)
    name = graph.value_names[value]
    if int(graph.producer[value]) >= 0:
        tensor = attribute(graph.nodes[int(graph.producer[value])], "value")
        if tensor is None:
            return None
        found: Operand | None = Operand(name, tensors.values(tensor, f"the value of Constant {quoted(name)}"), None)
    elif name in graph.model.initializers:
        found = Operand(name, graph.model.tensor(name), None)
    else:
        return None
    for node in reversed(way):
        found = _passed(graph, node, found) if found is not None else None
    return found


def _numbers(graph: Graph, value: int) -> NDArray[Any] | None:
    found = _followed(graph, value)
    return None if found is None else found.array


_ON_THE_WAY: Final = frozenset((
    "Identity", "Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "QuantizeLinear", "DequantizeLinear",
))  # fmt: skip


def _passed(graph: Graph, node: int, got: Operand) -> Operand | None:
    """Return what a node makes of a weight."""
    proto = graph.nodes[node]
    match operator(graph, node):
        case "Transpose":
            axes = attribute(proto, "perm")
            steps = None if got.steps is None else got.steps.transpose(axes)
            return Operand(got.initializer, got.array.transpose(axes), steps)
        case "Cast":
            dtype = numpy_dtype(attribute(proto, "to", 1))
            if dtype is None:
                return None
            with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
                return got._replace(array=got.array.astype(dtype))
        case "DequantizeLinear":
            return _dequantized(
                got,
                _numbers(graph, input_of(graph, node, 1)),
                _numbers(graph, input_of(graph, node, 2)),
                attribute(proto, "axis", 1),
                attribute(proto, "block_size", 0),
            )
        case "QuantizeLinear":
            return _quantized(
                got,
                _numbers(graph, input_of(graph, node, 1)),
                _numbers(graph, input_of(graph, node, 2)),
                attribute(proto, "axis", 1),
            )
        case "Identity":
            return got
        case _:  # Reshape and the like
            return _reshaped(graph, node, got)


def _reshaped(graph: Graph, node: int, got: Operand) -> Operand | None:
    known = graph.type_of(int(graph.node_outputs(node)[0])).shape
    if known is not None and all(isinstance(size, int) for size in known):
        shape = tuple(int(size) for size in known)  # type: ignore[arg-type]
        return got.shaped(shape) if math.prod(shape) == got.array.size else None
    wanted = _numbers(graph, input_of(graph, node, 1)) if operator(graph, node) == "Reshape" else None
    if wanted is not None:
        sizes = [got.array.shape[axis] if size == 0 else int(size) for axis, size in enumerate(wanted.tolist())]
        return got.shaped(tuple(sizes)) if math.prod(abs(size) for size in sizes) <= got.array.size else None
    return got if operator(graph, node) in ("Squeeze", "Unsqueeze") else None


def _dequantized(
    got: Operand, scale: NDArray[Any] | None, zero: NDArray[Any] | None, axis: int, block: int = 0
) -> Operand | None:
    """Return floats for integers, as DequantizeLinear does."""
    shape = got.array.shape
    if scale is None:
        return None
    steps = _spread(np.abs(scale.astype(np.float64)), shape, axis, block)
    scales = _spread(scale.astype(np.float64), shape, axis, block)
    zeros = _spread(np.float64(0) if zero is None else zero.astype(np.float64), shape, axis, block)
    if steps is None or scales is None or zeros is None:
        return None
    array = ((got.array.astype(np.float64) - zeros) * scales).astype(scale.dtype)
    return Operand(got.initializer, array, steps)


def _quantized(got: Operand, scale: NDArray[Any] | None, zero: NDArray[Any] | None, axis: int) -> Operand | None:
    """Return integers for floats, as QuantizeLinear does."""
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    if scale is None or dtype.kind not in "iu":
        return None
    scales = _spread(scale, got.array.shape, axis, 0)
    zeros = _spread(np.float64(0) if zero is None else zero, got.array.shape, axis, 0)
    if scales is None or zeros is None:
        return None
    limits = np.iinfo(dtype)
    rounded = np.rint(got.array.astype(np.float64) / scales) + zeros
    return got._replace(array=np.clip(rounded, limits.min, limits.max).astype(dtype))


def _spread(numbers: Any, shape: tuple[int, ...], axis: int, block: int) -> NDArray[np.float64] | None:
    """Return a scale or zero point for each element; None if there are not as many as there should be."""
    found = np.asarray(numbers, np.float64)
    if found.size == 1:
        return np.broadcast_to(found.reshape(()), shape)
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if found.ndim == 1 and len(found) == shape[axis]:
        return np.broadcast_to(found.reshape([-1 if at == axis else 1 for at in range(len(shape))]), shape)
    if block and found.ndim == len(shape):
        return np.repeat(found, block, axis)[tuple(map(slice, shape))]
    return np.broadcast_to(found, shape) if found.ndim == len(shape) and found.shape[axis] == shape[axis] else None


def _integers(graph: Graph, node: int, packed: _Integers, *, bias: bool) -> Operand | None:
    """Return weight or bias of an operator on integers."""
    given = packed.scale >= 0
    scale = _numbers(graph, input_of(graph, node, packed.scale)) if given else _scale_behind(graph, node)
    if scale is None:
        return None
    if not bias:
        found = _followed(graph, input_of(graph, node, packed.weight))
        turned = bool(attribute(graph.nodes[node], "transB", 0))
        axis = 0 if turned else packed.axis
        zero = _numbers(graph, input_of(graph, node, packed.zero))
        return None if found is None else _dequantized(found, scale, zero, axis)
    found = _followed(graph, input_of(graph, node, packed.bias)) if packed.bias >= 0 else None
    if found is None or packed.data_scale < 0:
        return found
    data = _numbers(graph, input_of(graph, node, packed.data_scale))
    return None if data is None else _dequantized(found, np.asarray(scale * data), None, -1)


def _scale_behind(graph: Graph, node: int) -> NDArray[Any] | None:
    """Return the scale of the weight where a Mul behind a Cast brings the integers back to floats."""
    value = int(graph.node_outputs(node)[0])
    for _ in range(3):
        readers = graph.consumers(value).tolist()
        if len(readers) != 1 or readers[0] >= graph.main_count:
            return None
        op = operator(graph, readers[0])
        if op == "Cast":
            value = int(graph.node_outputs(readers[0])[0])
            continue
        if op != "Mul":
            return None
        for other in graph.node_inputs(readers[0]).tolist():
            if other != value:
                return _factor(graph, other)
    return None


def _factor(graph: Graph, value: int) -> NDArray[Any] | None:
    """Return the constant that a value is, or that it is the product of with something computed."""
    known = _numbers(graph, value)
    maker = int(graph.producer[value])
    if known is not None or maker < 0 or operator(graph, maker) != "Mul":
        return known
    found = [_numbers(graph, each) for each in graph.node_inputs(maker).tolist()]
    return next((each for each in found if each is not None), None)


def _of_lstm(graph: Graph, node: int, place: int) -> Operand | None:
    """Return W or R of a DynamicQuantizeLSTM: directions × inputs × gates; scales for a direction, or for its gates."""
    found = _followed(graph, input_of(graph, node, place))
    scale, zero = (_numbers(graph, input_of(graph, node, 6 + 2 * place + each)) for each in (0, 1))
    if found is None or scale is None or found.array.ndim != 3:
        return None
    shape = (scale.shape[0], 1, -1) if scale.ndim else (1, 1, 1)
    zero = (
        None
        if zero is None
        else np.broadcast_to(zero.reshape(shape if zero.size > 1 else (1, 1, 1)), found.array.shape)
    )
    return _dequantized(found, np.broadcast_to(scale.reshape(shape), found.array.shape), zero, 0)


def _dequantized_behind(graph: Graph, node: int, found: Operand) -> Operand | None:
    """Return floats for a table of integers of which a Gather takes rows."""
    value = int(graph.node_outputs(node)[0])
    for _ in range(_LONGEST):
        readers = graph.consumers(value).tolist()
        behind = [reader for reader in readers if operator(graph, reader) == "DequantizeLinear"]
        if behind:
            scale, zero = (_numbers(graph, input_of(graph, behind[0], place)) for place in (1, 2))
            return _dequantized(found, scale, zero, -1) if scale is not None and scale.size == 1 else None
        if len(readers) != 1 or operator(graph, readers[0]) not in _ON_THE_WAY:
            break
        value = int(graph.node_outputs(readers[0])[0])
    # rows that are worked on as integers: the names are onnxruntime's
    base = found.initializer.removesuffix("_quantized")
    kept = graph.model.initializers.keys()
    if base == found.initializer or not {f"{base}_scale", f"{base}_zero_point"} <= kept:
        return None
    scale, zero = graph.model.tensor(f"{base}_scale"), graph.model.tensor(f"{base}_zero_point")
    return _dequantized(found, scale, zero, -1) if scale.size == 1 else None
