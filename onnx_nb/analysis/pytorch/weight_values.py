"""The weight that a node reads as an input: traced back to its initializer, and dequantized.

Nodes between the initializer and the reader may transpose, reshape, cast, quantize or dequantize it. Operators on
integers name scale and zero point themselves, except MatMulInteger and ConvInteger, whose scale is a later Mul.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.tensors import attribute, numpy_dtype

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph

_LONGEST: Final = 8
"""Nodes between an initializer and its reader that are traced at most."""
_TRANSPARENT: Final = frozenset((
    "Identity", "Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "QuantizeLinear", "DequantizeLinear",
))  # fmt: skip
"""Operators through which a weight is traced."""


class Operand(NamedTuple):
    """A weight as a node reads it."""

    initializer: str
    """Name of its initializer; empty if the export left it out."""
    array: NDArray[Any]
    """Values, dequantized."""
    steps: NDArray[Any] | None = None
    """Quantization step of each element, of the shape of ``array``; None if it is not quantized."""

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Operand:
        """Return the operand with a change of axes or shape applied to its values and steps."""
        return Operand(self.initializer, change(self.array), None if self.steps is None else change(self.steps))

    def part(self, index: Any) -> Operand:
        """Return the part of the operand at an index."""
        return self.map(lambda array: array[index])


class _Inputs(NamedTuple):
    """Inputs of an operator on integers that hold its weight; −1 for those it does not have."""

    weight: int
    scale: int
    zero: int
    bias: int = -1
    data_scale: int = -1
    """Scale of the data; times that of the weight it is the scale of an int32 bias. −1 if the bias is float."""
    axis: int = -1
    """Axis of the weight along which there are several scales."""


_INTEGERS: Final[Mapping[str, _Inputs]] = {
    "QLinearConv": _Inputs(3, 4, 5, 8, 1, axis=0),
    "QLinearMatMul": _Inputs(3, 4, 5),
    "QGemm": _Inputs(3, 4, 5, 6, 1),
    "MatMulInteger": _Inputs(1, -1, 3),
    "ConvInteger": _Inputs(1, -1, 3, axis=0),
    "DynamicQuantizeMatMul": _Inputs(1, 2, 3, 4),
    "MatMulIntegerToFloat": _Inputs(1, 3, 5, 6),
}
INTEGERS: Final = frozenset(_INTEGERS)
"""Operators on integers; for `weight_of` their inputs 1 and 2 are weight and bias."""


def weight_of(graph: Graph, node: int, place: int) -> Operand | None:
    """Return the weight that a node reads, or None; of an operator on integers, 1 is the weight and 2 the bias."""
    op = operator(graph, node)
    if op == "QLinearAdd" and place in (0, 1):
        return _of_integers(graph, node, _Inputs(3 * place, 3 * place + 1, 3 * place + 2), bias=False)
    known = _INTEGERS.get(op)
    if known is not None and place in (1, 2, known.weight, known.bias):
        return _of_integers(graph, node, known, bias=place in (2, known.bias))
    if op == "DynamicQuantizeLSTM" and place in (1, 2):
        return _of_lstm(graph, node, place)
    found = _traced(graph, input_of(graph, node, place))
    if found is not None and op == "Gather" and found.array.dtype.kind in "iu":
        return _of_rows(graph, node, found)
    return found


def has_bias(graph: Graph, node: int) -> bool:
    """Return whether the operator of a layer has a bias itself."""
    known = _INTEGERS.get(operator(graph, node))
    return input_of(graph, node, 2 if known is None else known.bias) >= 0


def operator(graph: Graph, node: int) -> str:
    """Return the type of a node's operator."""
    return graph.operators[int(graph.op_index[node])][0]


def input_of(graph: Graph, node: int, place: int) -> int:
    """Return an input of a node; −1 if it has none there."""
    inputs = graph.node_inputs(node)
    return int(inputs[place]) if 0 <= place < len(inputs) else -1


def output_of(graph: Graph, node: int) -> int:
    """Return the first output of a node."""
    return int(graph.node_outputs(node)[0])


# --- traced to an initializer ---------------------------------------------------------------------------------------


def _traced(graph: Graph, value: int) -> Operand | None:
    """Return the initializer or Constant that a value comes from, as it arrives there."""
    passed: list[int] = []
    for _ in range(_LONGEST):
        if value < 0:
            return None
        maker = int(graph.producer[value])
        if maker < 0 or operator(graph, maker) == "Constant":
            break
        if operator(graph, maker) not in _TRANSPARENT or maker >= graph.main_count:
            return None
        passed.append(maker)
        value = input_of(graph, maker, 0)
    name, maker = graph.value_names[value], int(graph.producer[value])
    if maker >= 0:
        tensor = attribute(graph.nodes[maker], "value")
        array = None if tensor is None else tensors.values(tensor, f"the value of Constant {quoted(name)}")
    else:
        array = graph.model.tensor(name) if name in graph.model.initializers else None
    found = None if array is None else Operand(name, array)
    for node in reversed(passed):
        found = None if found is None else _through(graph, node, found)
    return found


def _numbers(graph: Graph, value: int) -> NDArray[Any] | None:
    found = _traced(graph, value)
    return None if found is None else found.array


def _through(graph: Graph, node: int, read: Operand) -> Operand | None:
    """Return a weight as a node on the way outputs it."""
    proto = graph.nodes[node]
    match operator(graph, node):
        case "Identity":
            return read
        case "Transpose":
            axes = attribute(proto, "perm")
            return read.map(lambda array: array.transpose(axes))
        case "Cast":
            dtype = numpy_dtype(attribute(proto, "to", 1))
            with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
                return None if dtype is None else read._replace(array=read.array.astype(dtype))
        case "DequantizeLinear" | "QuantizeLinear" as op:
            scale, zero = (_numbers(graph, input_of(graph, node, place)) for place in (1, 2))
            axis = attribute(proto, "axis", 1)
            if op == "QuantizeLinear":
                return _quantized(read, scale, zero, axis)
            return _dequantized(read, scale, zero, axis, attribute(proto, "block_size", 0))
        case _:
            return _reshaped(graph, node, read)


def _reshaped(graph: Graph, node: int, read: Operand) -> Operand | None:
    """Return a weight as Reshape, Flatten, Squeeze or Unsqueeze outputs it."""
    known = graph.type_of(output_of(graph, node)).shape
    size = read.array.size
    if known is not None and all(isinstance(dim, int) for dim in known):
        shape = [int(dim) for dim in known]  # type: ignore[arg-type]
        return read.map(lambda array: array.reshape(shape)) if math.prod(shape) == size else None
    wanted = _numbers(graph, input_of(graph, node, 1)) if operator(graph, node) == "Reshape" else None
    if wanted is not None:
        dims = [read.array.shape[axis] if dim == 0 else int(dim) for axis, dim in enumerate(wanted.tolist())]
        return read.map(lambda array: array.reshape(dims)) if math.prod(map(abs, dims)) <= size else None
    return read if operator(graph, node) in ("Squeeze", "Unsqueeze") else None


# --- quantized ------------------------------------------------------------------------------------------------------


def _dequantized(
    read: Operand, scale: NDArray[Any] | None, zero: NDArray[Any] | None, axis: int, block: int = 0
) -> Operand | None:
    """Return floats for integers, as DequantizeLinear does."""
    if scale is None:
        return None
    scales = _per_element(scale, read.array.shape, axis, block)
    zeros = _per_element(0 if zero is None else zero, read.array.shape, axis, block)
    if scales is None or zeros is None:
        return None
    array = ((read.array.astype(np.float64) - zeros) * scales).astype(scale.dtype)
    return Operand(read.initializer, array, np.abs(scales))


def _quantized(read: Operand, scale: NDArray[Any] | None, zero: NDArray[Any] | None, axis: int) -> Operand | None:
    """Return integers for floats, as QuantizeLinear does."""
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    if scale is None or dtype.kind not in "iu":
        return None
    scales = _per_element(scale, read.array.shape, axis)
    zeros = _per_element(0 if zero is None else zero, read.array.shape, axis)
    if scales is None or zeros is None:
        return None
    limits = np.iinfo(dtype)
    rounded = np.rint(read.array.astype(np.float64) / scales) + zeros
    return read._replace(array=np.clip(rounded, limits.min, limits.max).astype(dtype))


def _per_element(numbers: Any, shape: tuple[int, ...], axis: int, block: int = 0) -> NDArray[np.float64] | None:
    """Return the scale or zero point of each element; None if their number does not fit."""
    found = np.asarray(numbers).astype(np.float64)
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


def _of_integers(graph: Graph, node: int, inputs: _Inputs, *, bias: bool) -> Operand | None:
    """Return weight or bias of an operator on integers."""
    scale = _numbers(graph, input_of(graph, node, inputs.scale)) if inputs.scale >= 0 else _later_scale(graph, node)
    if scale is None:
        return None
    if not bias:
        found = _traced(graph, input_of(graph, node, inputs.weight))
        axis = 0 if attribute(graph.nodes[node], "transB", 0) else inputs.axis
        zero = _numbers(graph, input_of(graph, node, inputs.zero))
        return None if found is None else _dequantized(found, scale, zero, axis)
    found = _traced(graph, input_of(graph, node, inputs.bias)) if inputs.bias >= 0 else None
    if found is None or inputs.data_scale < 0:
        return found
    data = _numbers(graph, input_of(graph, node, inputs.data_scale))
    return None if data is None else _dequantized(found, np.asarray(scale * data), None, -1)


def _later_scale(graph: Graph, node: int) -> NDArray[Any] | None:
    """Return the scale of the weight from the Mul that turns the integers of a node into floats."""
    value = output_of(graph, node)
    for _ in range(3):
        readers = graph.consumers(value).tolist()
        if len(readers) != 1 or readers[0] >= graph.main_count:
            return None
        if operator(graph, readers[0]) == "Mul":
            other = next((each for each in graph.node_inputs(readers[0]).tolist() if each != value), -1)
            return _constant_factor(graph, other)
        if operator(graph, readers[0]) != "Cast":
            return None
        value = output_of(graph, readers[0])
    return None


def _constant_factor(graph: Graph, value: int) -> NDArray[Any] | None:
    """Return a constant, or the constant factor of a product with something computed."""
    known = _numbers(graph, value)
    maker = int(graph.producer[value]) if value >= 0 else -1
    if known is not None or maker < 0 or operator(graph, maker) != "Mul":
        return known
    factors = (_numbers(graph, each) for each in graph.node_inputs(maker).tolist())
    return next((factor for factor in factors if factor is not None), None)


def _of_lstm(graph: Graph, node: int, place: int) -> Operand | None:
    """Return W or R of a DynamicQuantizeLSTM: directions × inputs × gates, with scales per direction or per gate."""
    found = _traced(graph, input_of(graph, node, place))
    scale, zero = (_numbers(graph, input_of(graph, node, 6 + 2 * place + each)) for each in (0, 1))
    if found is None or scale is None or found.array.ndim != 3:
        return None
    directions, size = (scale.shape[0] if scale.ndim else 1), found.array.shape

    def per_element(numbers: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(numbers.reshape((directions, 1, -1) if numbers.size > 1 else (1, 1, 1)), size)

    return _dequantized(found, per_element(scale), None if zero is None else per_element(zero), 0)


def _of_rows(graph: Graph, node: int, found: Operand) -> Operand | None:
    """Return floats for a table of integers whose rows a Gather reads."""
    value = output_of(graph, node)
    for _ in range(_LONGEST):
        readers = graph.consumers(value).tolist()
        behind = [reader for reader in readers if operator(graph, reader) == "DequantizeLinear"]
        if behind:
            scale, zero = (_numbers(graph, input_of(graph, behind[0], place)) for place in (1, 2))
            return _dequantized(found, scale, zero, -1) if scale is not None and scale.size == 1 else None
        if len(readers) != 1 or operator(graph, readers[0]) not in _TRANSPARENT:
            break
        value = output_of(graph, readers[0])
    # the rows are used as integers: onnxruntime's quantizer names the scale after the table
    base = found.initializer.removesuffix("_quantized")
    if base == found.initializer or not {f"{base}_scale", f"{base}_zero_point"} <= graph.model.initializers.keys():
        return None
    scale, zero = graph.model.tensor(f"{base}_scale"), graph.model.tensor(f"{base}_zero_point")
    return _dequantized(found, scale, zero, -1) if scale.size == 1 else None
