"""How a model is quantized: which numbers its regions compute with, and what each quantizer costs.

A `Quantizer` is judged on the reference's values: its error is compared with that of a scale that fits them. So a scale
that is four times too large stands out, though its error is small beside the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnx_nb.analysis.compare import rounding
from onnx_nb.analysis.compare.operands import TRANSPARENT, Operand, constant_of, input_of, weights_at
from onnx_nb.analysis.compare.rounding import Rounded, mistake_of, rows_of, sampled, smoothing_of
from onnx_nb.analysis.compare.thresholds import CLIPPED_ERROR, LEVELS_OF_CHANNEL, SCALE_EXCESS, SMOOTHING_GAIN
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted, ratio_text, shape_text, share_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts, names_where, variants
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.protofields import Longs
from onnx_nb.analysis.model.saved import Count, Size
from onnx_nb.analysis.model.tensors import attribute, attributes, listed
from onnx_nb.analysis.run.statistics import Floats

_BITS: Final[dict[int, int]] = {
    **dict.fromkeys((TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8), 8),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ), 4),
    **dict.fromkeys((TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 3),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4), 4),
}
"""Significant bits of types that real numbers are rounded to."""
_HALVES: Final = {"float16": 11, "bfloat16": 8}


def precision_of(graph: Graph, nodes: Iterable[int]) -> float:
    """Return the relative precision of the coarsest numbers that nodes round to; 0 if none of them does."""
    infos, names, bits = graph.model.initializers, graph.value_names, list[int]()
    for node in nodes:
        op, _ = graph.operators[int(graph.op_index[node])]
        form = facts(op).quantized
        if form == "packed":
            bits.append(int(attributes(graph.nodes[node]).get("bits", 4)))
        elif op == "Cast":
            ends = input_of(graph, node, 0), *graph.node_outputs(node).tolist()
            bits += [_HALVES[dtype] for value in ends if (dtype := graph.type_of(value).dtype) in _HALVES]
        elif form:
            read = [names[value] for value in graph.node_inputs(node).tolist() if value >= 0]
            bits += [_BITS[kind] for name in read if name in infos and (kind := infos[name].dtype) in _BITS] or [8]
    return 2.0 ** -min(bits) if bits else 0.0


def quantizes(graph: Graph) -> bool:
    """Return whether any node of a model rounds to integers, or reads such weights."""
    return any(facts(op).quantized for op, _ in graph.operators)


# --- what it costs --------------------------------------------------------------------------------------------------

Fault = Literal["", "mismatch", "channel", "values", "clipping", "coarse", "outliers", "salient"]
"""What is wrong with a quantizer: its DequantizeLinear disagrees with its QuantizeLinear; some channels or all values
of a weight are not their rounded values; values are clipped; the scale is too large; the scale of the tensor is set by
a few channels, and the others are lost; a weight's input channels that are far larger than the others meet values that
are rounded as the others are."""


@dataclass(frozen=True, eq=False, repr=False)
class Quantizer:
    """How a tensor is quantized, and what that costs on the reference's values.

    Numbers are over evenly spaced values, about 32,768 of a tensor and 131,072 of a weight. Sums of squares and counts
    add up over feeds.
    """

    name: str
    """Tensor of the reference, or its weight."""
    node: str
    """The candidate's node that rounds it, or that reads the weight."""
    role: Literal["activation", "weight"]
    dtype: str
    """Type of the integers, such as "int8" or "uint4"; or "float8_e4m3fn"."""
    granularity: str
    """"tensor", "channel" or "block of 32"."""
    scale: Floats
    """Smallest and largest scale, shape (2,)."""
    zero_point: int
    """The first one, if there are several."""
    low: float
    """Smallest number that the integers stand for; the smallest of all channels."""
    high: float
    count: Count = 0
    """Number of values that were looked at."""
    below: Count = 0
    """Values that are clipped because they are too small."""
    above: Count = 0
    """Values that are clipped because they are too large."""
    levels: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """Values on each level, of integers of at most eight bits; shape (2**bits,)."""
    spread: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """Values before rounding in at most 64 intervals of levels, and half as many beyond: a quarter on either side, of
    which the outermost have all values further away. Each channel counts in its own scale."""
    signal: Size = 0.0
    """Sum of squares of the values."""
    rounding: Size = 0.0
    """Sum of squares of the errors of values that are rounded to a neighbor."""
    clipping: Size = 0.0
    """The same of values that are clipped."""
    wrong: Size = 0.0
    """The same of values that are not near their integer, nor clipped: the integers, scale or zero point are wrong."""
    fitted: Size = 0.0
    """Sum of squares of the errors with a scale that fits the values, of the same granularity."""
    by_channel: Size = 0.0
    """The same with a scale for each channel."""
    channels: tuple[int, ...] = ()
    """Channels that are wrong, or whose range is far beyond that of the others."""
    lost: float = 0.0
    """Fraction of the channels that have fewer than four levels because of the range of others."""
    disagreement: str = ""
    """How its DequantizeLinear differs from its QuantizeLinear."""
    mistake: str = ""
    """What the integers of a weight should be read with, if its error vanishes with it."""
    smoothing: float = 1.0
    """Factor by which the error of a weight's product would be smaller if channels of its input were scaled down and
    the weight up, as SmoothQuant and AWQ do."""
    shared: bool = False
    """Whether an earlier quantizer has the same scale."""

    def __post_init__(self) -> None:
        inside = len(self.spread) - 2 * (len(self.spread) // 6)
        if len(self.scale) != 2 or (len(self.levels) and inside and len(self.levels) % inside):
            raise ValueError(f"scale, levels and spread of {quoted(self.name)} have wrong lengths")

    @property
    def squares(self) -> float:
        """Sum of squares of all errors."""
        return self.rounding + self.clipping + self.wrong

    @property
    def relative(self) -> float:
        """Norm of the errors divided by that of the values."""
        return math.sqrt(self.squares / self.signal) if self.signal else 0.0

    @property
    def rmse_per_scale(self) -> float:
        """Root mean square of the errors divided by the scale: 0.29 if values are anywhere between two levels."""
        scale = float(self.scale[1])
        return math.sqrt(self.squares / self.count) / scale if self.count and scale else math.nan

    @property
    def clipped(self) -> float:
        """Fraction of the values that are clipped."""
        return (self.below + self.above) / self.count if self.count else 0.0

    @property
    def strays(self) -> bool:
        """Whether an activation is mostly off because its values are beyond the range of its integers."""
        return self.role == "activation" and self.clipping > self.squares / 2

    @property
    def used(self) -> float:
        """Fraction of the levels between the smallest and the largest one with a value; NaN beyond eight bits."""
        indices = np.flatnonzero(self.levels)
        return (int(indices[-1]) - int(indices[0]) + 1) / len(self.levels) if len(indices) else math.nan

    @property
    def excess(self) -> float:
        """Error divided by the error with a scale that fits: one for each channel if channels are outliers."""
        best = self.by_channel if self.lost else self.fitted
        ratio = math.sqrt(self.squares / best) if best else math.inf if self.squares else 1.0
        return max(ratio, self.smoothing)

    @property
    def fault(self) -> Fault:
        """What is wrong with it; empty if nothing is."""
        if self.disagreement:
            return "mismatch"
        least = 2.0 ** -max(self.bits, 1) / 4 if self.bits <= 16 else CLIPPED_ERROR
        if self.shared or self.relative < least:
            return ""
        if self.wrong > self.squares / 2:
            return "channel" if self.channels else "values"
        if self.bits > 16:
            return ""  # a bias in 32 bits has more levels than it needs
        if self.lost and self.excess >= SCALE_EXCESS and self.clipping < self.squares / 2:
            return "outliers"
        if self.smoothing >= SMOOTHING_GAIN:
            return "salient"
        if self.excess < SCALE_EXCESS:
            return ""
        if self.clipping > self.squares / 2:
            return "clipping" if self.clipped and self.relative >= CLIPPED_ERROR else ""
        return "coarse"

    @property
    def bits(self) -> int:
        """Bits of its integers or floats."""
        match = re.search(r"\d+", self.dtype)
        return int(match[0]) if match else 8

    @property
    def message(self) -> str:
        """What is wrong with it and what would help, or what it costs."""
        channels = f"channel{'s' * (len(self.channels) > 1)} {listed(self.channels, str, 4)}"
        what = f"weight {quoted(self.name)}" if self.role == "weight" else quoted(self.name)
        better = self._better
        if self.mistake:
            return f"{what} loses its error with {self.mistake}"
        match self.fault:
            case "mismatch":
                return f"{what} is quantized and dequantized differently: {self.disagreement}"
            case "channel":
                verb = "are not their" if len(self.channels) > 1 else "is not its"
                return f"{channels} of {what} {verb} rounded values"
            case "values":
                return f"{what}: its integers are not its rounded values"
            case "clipping":
                sides = (self.above, f"above {self.high:.3g}"), (self.below, f"below {self.low:.3g}")
                least = max(self.above, self.below) / 20
                parts = (f"{share_text(n / self.count)} of values {text}" for n, text in sides if n > least)
                return f"quantization of {what} clips {' and '.join(parts)}{better}"
            case "coarse":
                levels = "" if math.isnan(self.used) else f" and uses {self.used:.0%} of its levels"
                return f"the scale {self.scale[1]:.3g} of {what} is too large{levels}{better}"
            case "outliers":
                loss = f"{self.lost:.0%} of the channels have fewer than {LEVELS_OF_CHANNEL} levels"
                verb = "set" if len(self.channels) > 1 else "sets"
                return f"{channels} of {what} {verb} the scale {self.scale[1]:.2g} for all: {loss}{better}"
            case "salient":
                verb, them = ("are", "them") if len(self.channels) > 1 else ("is", "it")
                less = f"scaling {them} down and it up would make its error {ratio_text(self.smoothing)} smaller"
                return f"input {channels} of {what} {verb} far larger than the others; {less}"
        verb = "clipping" if self.clipping > self.squares / 2 else "rounding"
        return f"{verb} {what} to {self.dtype} costs {share_text(self.relative)} of its norm"

    @property
    def _better(self) -> str:
        """Return what a better scale would make of the error."""
        best, how = self.fitted, "scales that fit" if self.granularity == "channel" else "a scale that fits"
        if self.granularity == "tensor" and self.by_channel and self.by_channel * 4 < self.fitted:
            best, how = self.by_channel, "a scale for each channel"
        ratio = math.sqrt(best / self.squares) if self.squares else 1.0
        if ratio > 0.75:
            return ""
        less = f"make the error {ratio_text(1 / ratio)} smaller" if ratio else "lose nothing"
        return f"; {how} would {'halve the error' if ratio >= 0.45 else less}"

    def merge(self, other: Quantizer) -> Quantizer:
        """Return the quantizer over the values of both."""
        sums = ("count", "below", "above", "signal", "rounding", "clipping", "wrong", "fitted", "by_channel")
        counts: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in sums}
        for name in ("levels", "spread"):
            first, second = getattr(self, name), getattr(other, name)
            counts[name] = first + second if len(first) == len(second) else first
        return replace(self, **counts, lost=min(self.lost, other.lost))

    __or__ = merge

    def __repr__(self) -> str:
        return f"Quantizer({self.message})"


def input_powers(graph: Graph, arrays: Mapping[int, Callable[[], NDArray[Any]]]) -> dict[int, Floats]:
    """Return the mean square of each channel of the inputs of products with a weight, by node, from `activations`."""
    powers = {}
    for node in range(graph.main_count) if quantizes(graph) else ():
        if not {facts(graph.op_type(node)).like, graph.op_type(node)} & {"Conv", "MatMul", "Gemm", "MatMulNBits"}:
            continue
        value = input_of(graph, node, 0)
        while value >= 0 and value not in arrays:
            maker = _maker(graph, value)
            value = input_of(graph, maker, 0) if maker >= 0 and facts(graph.op_type(maker)).quantized else -1
        if value >= 0 and (array := arrays[value]()).ndim > 1 and array.dtype.kind == "f" and array.size:
            rows = rows_of(array, 1 if "Conv" in graph.op_type(node) else -1)
            powers[node] = np.square(sampled(rows, "activation").astype(np.float64)).mean(axis=1)
    return powers


def unrounded(graph: Graph) -> dict[int, int]:
    """Return, for each value that a QuantizeLinear and a DequantizeLinear have rounded, the value before."""
    sources = {}
    for node in range(graph.main_count):
        if graph.op_type(node) == "DequantizeLinear":
            maker = _maker(graph, input_of(graph, node, 0))
            if maker >= 0 and graph.op_type(maker) == "QuantizeLinear":
                sources[int(graph.node_outputs(node)[0])] = input_of(graph, maker, 0)
    return sources


def activations(
    graph: Graph, arrays: Mapping[int, Callable[[], NDArray[Any]]], scales: Mapping[int, tuple[str, str]]
) -> dict[int, Quantizer]:
    """Return the quantizers of values that a model computes, by node, on the reference's values.

    ``arrays`` maps values of the model to functions that return the reference's values, ``scales`` to the names of the
    scale and the zero point of those that hold integers.
    """
    quantizers: dict[int, Quantizer] = {}
    scale_names: set[str] = set()
    sites = {
        int(graph.producer[value]): _Site(value, names[0], tuple(map(graph.model.tensor, names)) * 2)
        for value, names in scales.items()
        if value in arrays
    }
    quantizing = (node for node in range(graph.main_count) if graph.op_type(node) in _ROUNDING)
    sites |= {node: site for node in quantizing if (site := _site(graph, node, arrays)) is not None}
    for node, site in sorted(sites.items(), key=lambda entry: int(graph.rank[entry[0]])):
        if (array := arrays[site.value]()).dtype.kind != "f" or not array.size:
            continue
        if (ends := _ends_behind(graph, node)) != (-math.inf, math.inf):
            array = np.clip(array, *ends)
        quantizer = _activation(graph, node, site, array, is_shared=site.scale_name in scale_names)
        if quantizer is not None:
            quantizers[node] = quantizer
        scale_names |= {site.scale_name} - {""}
    return quantizers


_ROUNDING: Final = ("QuantizeLinear", "DynamicQuantizeLinear")
DEQUANTIZED: Final = "_DequantizeLinear_Output"
"""Suffix that onnxruntime's quantization appends to the name of a value for its dequantized copy."""
QUANTIZED: Final = "_quantized"
"""Suffix that it appends where operators compute on integers, and to a weight that it quantizes without turning it."""


class _Site(NamedTuple):
    value: int
    """Value whose reference is rounded."""
    scale_name: str
    numbers: tuple[NDArray[Any], ...]
    """Scale and zero point of the QuantizeLinear, then of the DequantizeLinear; empty if they come from the values."""
    axis: int = 1


def _maker(graph: Graph, value: int) -> int:
    return int(graph.producer[value]) if value >= 0 else -1


def _site(graph: Graph, node: int, arrays: Mapping[int, object]) -> _Site | None:
    read, outputs = input_of(graph, node, 0), graph.node_outputs(node).tolist()
    if graph.op_type(node) == "DynamicQuantizeLinear":
        return _Site(read, "", ()) if read in arrays else None
    backs = [reader for reader in graph.consumers(outputs[0]).tolist() if graph.op_type(reader) == "DequantizeLinear"]
    backs.sort(key=lambda reader: int(graph.node_outputs(reader)[0]) not in arrays)
    # the dequantized value first: where an activation is part of the range, what is read is not yet right
    candidates = [*(int(graph.node_outputs(reader)[0]) for reader in backs), read]
    value = next((v for v in candidates if v in arrays), read)
    scale, zero = (constant_of(graph, node, place) for place in (1, 2))
    # another shape that only the candidate has is rounded as the value that it is made of
    while value not in arrays and scale is not None and scale.size == 1 and (maker := _maker(graph, value)) >= 0:
        value = input_of(graph, maker, 0) if "view" in facts(graph.op_type(maker)).traits else -1
    if value not in arrays or scale is None:
        return None
    zero = np.zeros(1, np.uint8) if zero is None else zero
    then = [scale, zero]
    for place in (1, 2) if backs else ():
        if input_of(graph, backs[0], place) != input_of(graph, node, place):
            constant, missing = constant_of(graph, backs[0], place), (scale, np.zeros_like(zero))
            then[place - 1] = missing[place - 1] if constant is None else constant
    axis = int(attributes(graph.nodes[node]).get("axis", 1))
    return _Site(value, graph.value_names[input_of(graph, node, 1)], (scale, zero, *then), axis)


def _ends_behind(graph: Graph, node: int) -> tuple[float, float]:
    """Return the ends at which all that reads the rounded values clips them anyway, as a Relu does at 0."""
    ends, outputs = list[tuple[float, float]](), set(graph.outputs.tolist())
    for back in graph.consumers(int(graph.node_outputs(node)[0])).tolist():
        value = int(graph.node_outputs(back)[0])
        for reader in graph.consumers(value).tolist() if graph.op_type(back) == "DequantizeLinear" else ():
            if graph.op_type(reader) not in names_where("clips") or value in outputs:
                return -math.inf, math.inf
            options = attributes(graph.nodes[reader])
            least, most = (constant_of(graph, reader, place) for place in (1, 2))
            low = 0.0 if graph.op_type(reader) == "Relu" else options.get("min", -math.inf) if least is None else least
            high = options.get("max", math.inf) if most is None else most
            ends.append((float(low), float(high)))
    return min((low for low, _ in ends), default=-math.inf), max((high for _, high in ends), default=math.inf)


def _activation(graph: Graph, node: int, site: _Site, array: NDArray[Any], *, is_shared: bool) -> Quantizer | None:
    is_wide = bool(site.numbers) and site.numbers[0].size > 1
    axis = site.axis if is_wide else _channel_axis(graph, site.value, array.ndim)
    rows = rows_of(array, axis).astype(np.float32, copy=False)
    lows, highs = rows.min(axis=1), rows.max(axis=1)
    if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
        return None
    numbers, dtype = site.numbers, np.dtype(np.uint8)
    if not numbers:  # DynamicQuantizeLinear: what fits the values
        low, high = min(float(lows.min()), 0.0), max(float(highs.max()), 0.0)
        scale = np.full(1, (high - low) / 255 or 1.0)
        numbers = (scale, np.rint(-low / scale)) * 2
    else:
        if is_wide and not all(term.size in (1, len(rows)) for term in numbers):
            return None
        if not all((scale > 0).all() for scale in numbers[::2]):
            return None  # onnxruntime runs such a model; its integers have no meaning
        dtype = numbers[1].dtype
    count = len(rows) if is_wide else 1
    columns = (term.reshape(-1, 1)[:count].astype(np.float64) for term in numbers)
    scale, zero, back_scale, back_zero = (np.broadcast_to(column, (count, 1)) for column in columns)
    lowest, highest = rounding.levels_of(dtype)
    sample = sampled(rows, "activation")
    quotients = rounding.rounding_to(dtype)(np.clip(sample / scale, -(2.0**24), 2.0**24))
    codes = np.clip(quotients + zero, lowest, highest)
    back, steps = (codes - back_zero) * back_scale, np.abs(back_scale) * rounding.spacing(codes, dtype)
    maker = _maker(graph, input_of(graph, node, 0)) if graph.op_type(node) in _ROUNDING else node
    ends = facts(graph.op_type(maker)).range
    if ends is not None and math.isfinite(ends[1]):  # the scale comes from the range of the function
        lows, highs = np.minimum(lows, ends[0]), np.maximum(highs, ends[1])
    values = Rounded(sample, back, codes, np.broadcast_to(steps, sample.shape), lows, highs)
    is_symmetric = float(zero[0, 0]) == (lowest + highest + 1) // 2
    costs = rounding.costs_of(values, (lowest, highest), dtype, is_symmetric=is_symmetric, is_wide=is_wide)
    apart = []
    if (scale != back_scale).any():
        apart.append(f"the scale {back_scale[0, 0]:.3g} instead of {scale[0, 0]:.3g}")
    if (zero != back_zero).any():
        apart.append(f"the zero point {int(back_zero[0, 0])} instead of {int(zero[0, 0])}")
    costs |= {"disagreement": ", ".join(apart), "shared": is_shared}
    name = graph.value_names[site.value].removesuffix(DEQUANTIZED).removesuffix(QUANTIZED)
    low, high = float(((lowest - zero) * scale).min()), float(((highest - zero) * scale).max())
    form = dtype.name, "channel" if is_wide else "tensor", np.asarray([scale.min(), scale.max()]), int(zero[0, 0])
    return Quantizer(name, graph.names[node], "activation", *form, low, high, **costs)


def _channel_axis(graph: Graph, value: int, ndim: int) -> int:
    """Return the axis of a value's channels: that of the nearest node around it which has channels."""
    near = [value] if ndim > 2 else []
    for tensor in near:
        for node in (int(graph.producer[tensor]), *graph.consumers(tensor).tolist()):
            if not 0 <= node < graph.main_count or len(near) > 32:  # those around it are many
                continue
            row, inputs = facts(graph.op_type(node)), graph.node_inputs(node).tolist()
            if row.channels is not None:
                return row.channels
            shapes = {read: _weight_shape(graph, read) for read in inputs if read >= 0}
            weights = [shape for shape in shapes.values() if shape is not None and max(shape, default=1) > 1]
            has_matrix = any(len(shape) == 2 for shape in weights)
            if graph.op_type(node) in variants("MatMul") and has_matrix and shapes[inputs[0]] is None:
                return -1
            is_rounding = row.quantized in ("rounds", "dequantizes")
            if not is_rounding and row.traits.isdisjoint(("pointwise", "broadcast")):
                continue
            if weights and not is_rounding:
                return -1 if weights[0][-1] > 1 else 1
            values = [*(read for read, shape in shapes.items() if shape is None), *graph.node_outputs(node).tolist()]
            near += [v for v in values if v not in near]
    return 1 if ndim >= 4 else -1


def _weight_shape(graph: Graph, value: int) -> Sequence[int] | None:
    """Return the shape of the initializer that a value is computed from; None if it is from none."""
    maker = int(graph.producer[value])
    while maker >= 0:
        if graph.op_type(maker) not in TRANSPARENT or (value := input_of(graph, maker, 0)) < 0:
            return None
        maker = int(graph.producer[value])
    info = graph.model.initializers.get(graph.value_names[value])
    return None if info is None else info.shape


def weight_quantizer(
    graph: Graph, node: int, operand: Operand, right: NDArray[Any], powers: Floats | None = None
) -> Quantizer | None:
    """Return the quantizer of a weight that a node reads, against the reference's; ``powers`` are of `input_powers`."""
    if operand.steps is None or operand.integers is None:
        return None
    axis = 0 if "Conv" in graph.op_type(node) or (right.ndim < 3 and attribute(graph.nodes[node], "transB", 0)) else -1
    parts = right, operand.array, operand.integers, np.abs(operand.steps)
    values, back, integers, steps = (sampled(rows_of(array, axis), "weight") for array in parts)
    real = values.astype(np.float64)
    codes = integers.astype(np.float64)
    dtype = operand.integers.dtype
    is_float = not rounding.is_integer(dtype)
    is_whole = is_float or dtype.name.endswith(str(operand.bits))
    ends: tuple[float, float] = rounding.levels_of(dtype) if is_whole else (0, 2**operand.bits - 1)
    if not np.isfinite(real).all() or not real.size:
        return None
    apart = np.maximum(steps * rounding.spacing(codes, dtype), np.abs(real) * np.finfo(np.float32).eps * 4)
    sample = Rounded(real, back, codes, apart, real.min(axis=1), real.max(axis=1))
    middle = (ends[0] + ends[1] + 1) // 2
    is_wide = operand.granularity != "tensor"
    is_symmetric = operand.zero_point in (0, middle)
    costs = rounding.costs_of(sample, ends, dtype, is_symmetric=is_symmetric, is_wide=is_wide)
    name, zero = operand.initializer.removesuffix(QUANTIZED), operand.zero_point
    low, high = float(np.min((ends[0] - zero) * steps)), float(np.max((ends[1] - zero) * steps))
    kind = dtype.name if is_float else f"{'u' if ends[0] == 0 else ''}int{operand.bits}"
    form = kind, operand.granularity, np.asarray([steps.min(), steps.max()], np.float64), zero
    quantizer = Quantizer(name, graph.names[node], "weight", *form, low, high, **costs)
    if quantizer.fault in ("values", "channel"):
        infos, weight = graph.model.initializers, operand.initializer
        # the scales of other weights, of at most 64 KiB
        sizes = {w.shape for w in infos.values() if w.nbytes <= 1 << 16 and max(w.shape, default=0) > 1}
        scales = {key: graph.model.tensor(key) for key in infos if key != weight and infos[key].shape in sizes}
        return replace(quantizer, mistake=mistake_of(right, operand, scales))
    if powers is not None and not is_float and operand.bits <= 8:
        gain, channels = smoothing_of(right, operand, powers, axis, is_symmetric=is_symmetric)
        return replace(quantizer, smoothing=gain, channels=channels or quantizer.channels)
    return quantizer


def weights(
    graph: Graph,
    nodes: Iterable[int],
    by_name: Callable[[str], NDArray[Any] | None],
    others: Iterable[str],
    powers: Mapping[int, Floats],
) -> list[Quantizer]:
    """Return the quantizers of the weights that nodes read, against the weights of the reference.

    ``by_name`` returns the reference's weight with the name that onnxruntime's quantizer derives its names from, if
    there is one; ``others`` are names of weights that may be meant, if one has the only fitting shape; ``powers`` is
    what `input_powers` returns.
    """
    quantizers = []
    for node in nodes:
        for operand in weights_at(graph, node) if graph.op_type(node) not in TRANSPARENT else ():
            if operand.integers is None:
                continue
            name = _BASE.sub("", operand.initializer)
            right = by_name(name)
            if right is None:
                candidates = ((key, array) for key in others if (array := by_name(key)) is not None)
                ways = [(key, way) for key, array in candidates if (way := turned(array, operand.array)) is not None]
                name, right = ways[0] if len(ways) == 1 else (name, None)
            elif name + QUANTIZED != operand.initializer or right.shape != operand.array.shape:
                right = turned(right, operand.array)
            if right is None or right.dtype.kind != "f":
                continue
            quantizer = weight_quantizer(graph, node, operand, right, powers.get(node))
            quantizers += [] if quantizer is None else [replace(quantizer, name=name)]
    return quantizers


def block_errors(graph: Graph, node: int, operand: Operand, reference: Model) -> NDArray[np.float64]:
    """Return the root mean square of the error of each block of a weight, by that of the reference's weight."""
    name = _BASE.sub("", operand.initializer)
    right = turned(reference.tensor(name), operand.array) if name in reference.initializers else None
    if right is None:
        raise OnnxNbError(f"{reference.name} has no weight {quoted(name)} of {shape_text(operand.array.shape)}.")
    axis = {"MatMulNBits": 0, "QMoE": -1}.get(graph.op_type(node), attribute(graph.nodes[node], "quantize_axis", 1))
    size = int(operand.granularity.rpartition(" ")[2]) if "block" in operand.granularity else right.shape[axis]
    starts = range(0, right.shape[axis], size)
    parts = (np.square(array.astype(np.float64)) for array in (operand.array - right, right))
    error, power = (np.add.reduceat(part, starts, axis) for part in parts)
    return np.sqrt(error / np.where(power, power, 1.0))


def turned(right: NDArray[Any], target: NDArray[Any]) -> NDArray[Any] | None:
    """Return a weight in the orientation of another one; None if its shape fits neither way."""
    transpose = right.swapaxes(-1, -2) if right.ndim in (2, 3) else right  # of an LSTM, each direction
    ways = [array for array in (right, transpose) if array.shape == target.shape]
    if len(ways) == 2 and right.ndim in (2, 3):
        step = max(1, len(target) // 64)
        return min(ways, key=lambda way: float(np.abs(way[::step].astype(np.float64) - target[::step]).sum()))
    return ways[0] if ways else None


_BASE: Final = re.compile(r"(_quantized|_Q\d+(G\d+)?|_DQ_Q\d+)$")
"""Suffixes that onnxruntime's quantizers append to the name of a float weight for that of the quantized one."""
