"""The weights that nodes read, as numbers: traced to their initializers and dequantized."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts, names_where
from onnx_nb.analysis.model.model import read_tensor
from onnx_nb.analysis.model.tensors import attribute, attributes, numpy_dtype

_LONGEST: Final = 8
"""Maximum number of nodes traced between an initializer and its reader."""
TRANSPARENT: Final = frozenset((
    *names_where("view") - {"Dropout"}, "Transpose", "Cast", "QuantizeLinear", "DequantizeLinear",
))  # fmt: skip
"""Operators through which a weight is traced."""


class Operand(NamedTuple):
    """A weight in the form in which a node reads it."""

    initializer: str
    """Name of its initializer; empty if the export omits it."""
    array: NDArray[Any]
    """Values, dequantized."""
    steps: NDArray[Any] | None = None
    """Scale of each element, negative where that of its block is, of the shape of ``array``; None if not quantized."""
    integers: NDArray[Any] | None = None
    """The stored integers, of the same shape; None if it is not quantized."""
    granularity: str = ""
    """"tensor", "channel" or "block of 32": how many elements have one scale; empty if it is not quantized."""
    zero_point: int = 0
    """The zero point of the first element."""
    bits: int = 0
    """Bits of the integers; 0 if it is not quantized."""

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Operand:
        """Return the operand with a change of axes or shape applied to its values, steps and integers."""
        steps, integers = (None if part is None else change(part) for part in (self.steps, self.integers))
        return self._replace(array=change(self.array), steps=steps, integers=integers)


INTEGERS: Final = frozenset(
    op for op in names_where("integers") if len((row := facts(op)).weights) == 1 and row.weights[0] in row.scales
)
"""Operators on integers; for `weight_of` their inputs 1 and 2 are weight and bias."""
BLOCKS: Final = {op: facts(op).weights for op in names_where("blocks")}
"""Operator with several integers in a byte → its inputs that hold them."""


def weight_of(graph: Graph, node: int, place: int) -> Operand | None:
    """Return the weight that a node reads, or None; for operators on integers, 1 is the weight and 2 the bias."""
    op = graph.op_type(node)
    if op in BLOCKS:
        return _of_blocks(graph, node, place) if place in BLOCKS[op] else None
    row = facts(op)
    slots = list(row.scales.items())
    is_recurrent = row.like == "LSTM" and place in row.scales
    weight = row.weights[0] if op in INTEGERS else place if is_recurrent else -1
    is_sum = weight < 0 and row.quantized == "integers" and len(slots) == 2  # QLinearAdd
    if is_sum and place in (0, 1):
        weight, place = slots[place][0], 1
    if weight < 0 or place not in (1, 2, weight, row.bias):
        operand = _traced(graph, input_of(graph, node, place))
        is_table = operand is not None and op == "Gather" and operand.array.dtype.kind in "iu"
        return _of_rows(graph, node, operand) if operand is not None and is_table else operand
    scale_place, zero_place = row.scales[weight]
    scale = constant_of(graph, node, scale_place) if scale_place >= 0 else _later_scale(graph, node)
    if scale is None:
        return None
    if is_recurrent:  # a scale for each direction, or also for each of its columns
        zero = constant_of(graph, node, zero_place)
        columns = [part if part is None else part.reshape(len(part), 1, -1) for part in (scale, zero)]
        return _dequantized(_traced(graph, input_of(graph, node, weight)), columns[0], columns[1], -1)
    if place not in (2, row.bias):
        axis = 0 if attribute(graph.nodes[node], "transB", 0) or row.like == "Conv" else -1
        operand = _traced(graph, input_of(graph, node, weight))
        return _dequantized(operand, scale, constant_of(graph, node, zero_place), axis)
    operand = _traced(graph, input_of(graph, node, row.bias))
    if row.out[0] < 0 or 0 not in row.scales:  # the bias is float
        return operand
    data = constant_of(graph, node, row.scales[0][0])  # its product with that of the weight is the scale of the bias
    return None if data is None else _dequantized(operand, np.asarray(scale * data), None, -1)


def weights_at(graph: Graph, node: int) -> Iterator[Operand]:
    """Yield the weights that a node reads."""
    places = (1, 2) if graph.op_type(node) in INTEGERS else range(len(graph.node_inputs(node)))
    return (operand for place in places if (operand := weight_of(graph, node, place)) is not None)


def block_reader(graph: Graph, value: int) -> tuple[int, Operand] | None:
    """Return a node that reads a weight with several integers in a byte, and what it reads, without the integers."""
    for node in graph.consumers(value).tolist():
        place = graph.node_inputs(node).tolist().index(value)
        operand = weight_of(graph, node, place) if place in BLOCKS.get(graph.op_type(node), ()) else None
        if operand is not None:
            return node, operand._replace(steps=None, integers=None)
    return None


def _of_blocks(graph: Graph, node: int, place: int) -> Operand | None:
    """Return the weight of an operator whose integers have a scale for each block, as MatMul, Gather or MoE read it."""
    options, op = attributes(graph.nodes[node]), graph.op_type(node)
    bits = int(options.get("bits", options.get("expert_weight_bits", 4)))
    bits = int(options.get(f"fc{(place + 1) // 3}_expert_weight_bits", bits))
    block = int(options.get("block_size", {"GatherBlockQuantized": 128, "MatMulNBits": 32}.get(op, 0)))
    axis = {"MatMulNBits": 1, "QMoE": -1}.get(op, int(options.get("quantize_axis", 1)))
    blocks = _traced(graph, input_of(graph, node, place))
    scales, zeros = (constant_of(graph, node, slot) for slot in facts(op).scales[place])
    if blocks is None or scales is None or bits not in (2, 4, 8) or options.get("quant_type", b"int") != b"int":
        return None
    integers = blocks.array
    if op == "MatMulNBits":
        integers, scales = integers.reshape(int(options["N"]), -1), scales.reshape(int(options["N"]), -1)
        zeros = None if zeros is None else zeros.reshape(int(options["N"]), -1)
    has_bytes = integers.dtype == np.uint8
    integers = _unpacked(integers, bits)[..., : options.get("K")] if has_bytes else integers
    if zeros is None:
        zeros = np.full(scales.shape, 1 << bits - 1 if has_bytes else 0)
    elif zeros.dtype == np.uint8:
        zeros = _unpacked(zeros, bits)[tuple(map(slice, scales.shape))]
    if op == "QMoE" and not block:
        scales, zeros = scales[..., None], zeros[..., None]
    operand = _dequantized(Operand(blocks.initializer, integers), scales, zeros, axis, block)
    if operand is None:
        return None
    operand = operand._replace(bits=bits)
    return operand.map(np.transpose) if op == "MatMulNBits" else operand


def _unpacked(blocks: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return the integers of some bits that bytes hold, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (blocks[..., None] >> shifts & np.uint8((1 << bits) - 1)).reshape(*blocks.shape[:-1], -1)


def input_of(graph: Graph, node: int, place: int) -> int:
    """Return the input of a node at an index; −1 if it has none there."""
    inputs = graph.node_inputs(node)
    return int(inputs[place]) if 0 <= place < len(inputs) else -1


def _traced(graph: Graph, value: int, longest: int = _LONGEST) -> Operand | None:
    """Return the initializer or Constant that a value comes from, as transformed by the nodes in between."""
    if value < 0 or not longest:
        return None
    name, maker = graph.value_names[value], int(graph.producer[value])
    weight = graph.weight(value)
    if weight is not None or maker < 0:
        return None if weight is None else Operand(name, read_tensor(graph.model, weight, name))
    proto, op = graph.nodes[maker], graph.op_type(maker)
    is_view = op in TRANSPARENT and maker < graph.main_count
    read = _traced(graph, input_of(graph, maker, 0), longest - 1) if is_view else None
    if read is None or op == "Identity":
        return read
    if op == "Transpose":
        return read.map(lambda array: array.transpose(attribute(proto, "perm")))
    if op == "Cast":
        dtype = numpy_dtype(attribute(proto, "to", 1))
        with np.errstate(over="ignore"):  # values beyond float16 are infinite there, too
            return None if dtype is None else read._replace(array=read.array.astype(dtype))
    if op in ("DequantizeLinear", "QuantizeLinear"):
        scale, zero, axis = constant_of(graph, maker, 1), constant_of(graph, maker, 2), attribute(proto, "axis", 1)
        if op == "DequantizeLinear":
            return _dequantized(read, scale, zero, axis, attribute(proto, "block_size", 0))
        dtype = np.dtype(np.uint8) if zero is None else zero.dtype
        scales, zeros = _per_element(scale, read.array.shape, axis), _per_element(zero, read.array.shape, axis)
        if scale is None or scales is None or zeros is None or dtype.kind not in "iu":
            return None
        codes = np.rint(read.array.astype(np.float64) / scales) + zeros
        return read._replace(array=codes.clip(np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype))
    shape = graph.type_of(value).shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        return read if op in ("Squeeze", "Unsqueeze") else None
    sizes = [int(size) for size in shape]  # type: ignore[arg-type]
    return read.map(lambda array: array.reshape(sizes)) if math.prod(sizes) == read.array.size else None


def constant_of(graph: Graph, node: int, place: int) -> NDArray[Any] | None:
    """Return the constant that a node reads; None if that input is not constant."""
    operand = _traced(graph, input_of(graph, node, place))
    return None if operand is None else operand.array


def _dequantized(
    read: Operand | None, scale: NDArray[Any] | None, zero: NDArray[Any] | None, axis: int, block: int = 0
) -> Operand | None:
    """Convert integers to floats, as DequantizeLinear does."""
    if read is None or scale is None:
        return None
    scales, zeros = (_per_element(numbers, read.array.shape, axis, block) for numbers in (scale, zero))
    if scales is None or zeros is None:
        return None
    array = ((read.array.astype(np.float64) - zeros) * scales).astype(scale.dtype)
    granularity = "tensor" if scale.size == 1 else f"block of {block}" if block else "channel"
    zero_point = int(zeros.reshape(-1)[:1].sum())
    dtype = read.array.dtype.name
    bits = int("".join(filter(str.isdigit, dtype)) or 8) if "int" in dtype else 8  # of numpy or ml_dtypes
    return Operand(read.initializer, array, scales, read.array, granularity, zero_point, bits)


def _per_element(
    numbers: NDArray[Any] | None, shape: tuple[int, ...], axis: int, block: int = 0
) -> NDArray[np.float64] | None:
    """Return the scale or zero point of each element, 0 if there are none; None if their number does not fit."""
    array = np.asarray(0.0 if numbers is None else numbers).astype(np.float64)
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), shape)
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if array.ndim == 1 and len(array) == shape[axis]:
        return np.broadcast_to(array.reshape([-1 if at == axis else 1 for at in range(len(shape))]), shape)
    if array.ndim != len(shape):
        return None
    if block > 0:
        return np.repeat(array, block, axis)[tuple(map(slice, shape))]
    fits = all(size in (1, whole) for size, whole in zip(array.shape, shape, strict=True))
    return np.broadcast_to(array, shape) if fits else None


def _later_scale(graph: Graph, node: int) -> NDArray[Any] | None:
    """Return the scale of the weight from the Mul, perhaps by two scales, that converts a node's integers to floats."""
    for _ in range(3):
        value = int(graph.node_outputs(node)[0])
        readers = graph.consumers(value).tolist()
        if len(readers) != 1 or readers[0] >= graph.main_count:
            return None
        node = readers[0]
        if graph.op_type(node) == "Mul":
            place = next((at for at, read in enumerate(graph.node_inputs(node).tolist()) if read != value), -1)
            factor, other = constant_of(graph, node, place), input_of(graph, node, place)
            maker = int(graph.producer[other]) if other >= 0 else -1
            if factor is not None or maker < 0 or graph.op_type(maker) != "Mul":
                return factor
            return next((scale for at in (0, 1) if (scale := constant_of(graph, maker, at)) is not None), None)
        if graph.op_type(node) != "Cast":
            return None
    return None


def _of_rows(graph: Graph, node: int, operand: Operand) -> Operand | None:
    """Convert to floats a table of integers whose rows a Gather reads."""
    for _ in range(_LONGEST):
        readers = graph.consumers(int(graph.node_outputs(node)[0])).tolist()
        for reader in readers:
            if graph.op_type(reader) == "DequantizeLinear":
                scale = constant_of(graph, reader, 1)
                is_one = scale is not None and scale.size == 1
                return _dequantized(operand, scale, constant_of(graph, reader, 2), -1) if is_one else None
        if len(readers) != 1 or graph.op_type(readers[0]) not in TRANSPARENT:
            break
        node = readers[0]
    # the rows are read as integers: onnxruntime's quantizer names the scale after the table
    base = operand.initializer.removesuffix("_quantized")
    if base == operand.initializer or not {f"{base}_scale", f"{base}_zero_point"} <= graph.model.initializers.keys():
        return None
    scale, zero = graph.model.tensor(f"{base}_scale"), graph.model.tensor(f"{base}_zero_point")
    return _dequantized(operand, scale, zero, -1) if scale.size == 1 else None
