"""How a model is quantized: which numbers its regions compute with, and what each quantizer costs.

A `Quantizer` is judged on the reference's values: its error is compared with that of a scale that fits them. So a scale
that is four times too large stands out, though its error is small beside the values.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnx_nb.analysis.compare.operands import INTEGERS, Operand, constant_of, input_of, weight_of
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.model.tensors import attributes, listed

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Longs
    from onnx_nb.analysis.run.statistics import Floats

_BITS: Final[dict[int, int]] = {
    **dict.fromkeys((TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8), 8),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ), 4),
    **dict.fromkeys((TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 3),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4), 4),
    TensorProto.FLOAT16: 11,
    TensorProto.BFLOAT16: 8,
}
"""Significant bits of types that real numbers are rounded to."""
_PACKED: Final = frozenset(("MatMulNBits", "GatherBlockQuantized"))
"""Operators whose weights have as many bits as an attribute says."""


def precision_of(graph: Graph, nodes: Iterable[int]) -> float:
    """Return the relative precision of the coarsest numbers that nodes round to; 0 if none of them does."""
    known, names, bits = graph.model.initializers, graph.value_names, list[int]()
    for node in nodes:
        op, _ = graph.operators[int(graph.op_index[node])]
        if op in _PACKED:
            bits.append(int(attributes(graph.nodes[node]).get("bits", 4)))
        elif op == "Cast":
            target = int(attributes(graph.nodes[node]).get("to", 0))
            bits += [_BITS[target]] if target in (TensorProto.FLOAT16, TensorProto.BFLOAT16) else []
        elif "uantize" in op or "QLinear" in op or op.endswith("Integer") or op == "QGemm":
            read = [names[value] for value in graph.node_inputs(node).tolist() if value >= 0]
            of_weights = [_BITS[kind] for name in read if name in known and (kind := known[name].dtype) in _BITS]
            bits += of_weights or [8]
    return 2.0 ** -min(bits) if bits else 0.0


def quantizes(graph: Graph) -> bool:
    """Return whether any node of a model rounds to integers, or reads such weights."""
    return any(op in _PACKED or "uantize" in op or "QLinear" in op or op == "QGemm" for op, _ in graph.operators)


# --- what it costs --------------------------------------------------------------------------------------------------

Fault = Literal["", "mismatch", "channel", "values", "clipping", "coarse", "outliers"]
"""What is wrong with a quantizer: its DequantizeLinear disagrees with its QuantizeLinear; some channels or all values
of a weight are not their rounded values; values are clipped; the scale is too large; the scale of the tensor is set by
a few channels, and the others are lost."""

EXCESS: Final = 2.5
"""Factor over the error of a fitted scale above which a quantizer is faulty."""
_SAMPLED: Final = {"activation": 1 << 15, "weight": 1 << 17}
"""Maximum number of values that are rounded."""
_FEWEST_CLIPPED: Final = 0.002
"""Minimum share of clipped values of a faulty quantizer: a few belong to any calibration."""
_INTERVALS: Final = 64
"""Maximum number of intervals in the histogram of a quantizer's range."""
_LOST: Final = 4
"""Levels below which a channel is lost."""
_FEWEST_LOST: Final = 0.25
"""Minimum share of lost channels of a faulty quantizer."""
_FAR: Final = 12.0
"""Factor over the median range of all channels from which a channel is an outlier."""
_NATURAL: Final = {"Softmax": (0.0, 1.0), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
"""Operators whose scale quantizers derive from the range of the function, whatever its values."""


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
    count: int = 0
    """Number of values that were looked at."""
    below: int = 0
    """Values that are clipped because they are too small."""
    above: int = 0
    """Values that are clipped because they are too large."""
    levels: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """Values on each level, of integers of at most eight bits; shape (2**bits,)."""
    spread: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """Values before rounding in at most 64 intervals of levels, and half as many beyond: a quarter on either side, of
    which the outermost have all values further away. Each channel counts in its own scale."""
    signal: float = 0.0
    """Sum of squares of the values."""
    rounding: float = 0.0
    """Sum of squares of the errors of values that are rounded to a neighbor."""
    clipping: float = 0.0
    """The same of values that are clipped."""
    wrong: float = 0.0
    """The same of values that are not near their integer, nor clipped: the integers, scale or zero point are wrong."""
    fitted: float = 0.0
    """Sum of squares of the errors with a scale that fits the values, of the same granularity."""
    by_channel: float = 0.0
    """The same with a scale for each channel."""
    channels: tuple[int, ...] = ()
    """Channels that are wrong, or whose range is far beyond that of the others."""
    lost: float = 0.0
    """Fraction of the channels that have fewer than four levels because of the range of others."""
    disagreement: str = ""
    """How its DequantizeLinear differs from its QuantizeLinear."""
    factor: float = 1.0
    """Factor of the dequantized over the right values, if they are wrong."""
    shared: bool = False
    """Whether an earlier quantizer has the same scale."""

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
    def used(self) -> float:
        """Fraction of the levels between the smallest and the largest one with a value; NaN beyond eight bits."""
        found = np.flatnonzero(self.levels)
        return (int(found[-1]) - int(found[0]) + 1) / len(self.levels) if len(found) else math.nan

    @property
    def excess(self) -> float:
        """Error divided by the error with a scale that fits: one for each channel if channels are outliers."""
        best = self.by_channel if self.lost else self.fitted
        return math.sqrt(self.squares / best) if best else math.inf if self.squares else 1.0

    @property
    def fault(self) -> Fault:
        """What is wrong with it; empty if nothing is."""
        if self.disagreement:
            return "mismatch"
        least = 2.0 ** -max(self.bits, 1) / 4
        if self.shared or self.relative < least:
            return ""
        if self.wrong > self.squares / 2:
            return "channel" if self.channels else "values"
        if self.lost and self.excess >= EXCESS and self.clipping < self.squares / 2:
            return "outliers"
        if self.excess < EXCESS:
            return ""
        if self.clipping > self.squares / 2:
            return "clipping" if self.clipped >= _FEWEST_CLIPPED else ""
        return "coarse"

    @property
    def bits(self) -> int:
        """Bits of its integers or floats."""
        found = re.search(r"\d+", self.dtype)
        return int(found[0]) if found else 8

    @property
    def message(self) -> str:
        """What is wrong with it and what would help, or what it costs."""
        channels = f"channel{'s' * (len(self.channels) > 1)} {listed(self.channels, str, 4)}"
        what = f"weight {quoted(self.name)}" if self.role == "weight" else quoted(self.name)
        better = self._better
        match self.fault:
            case "mismatch":
                return f"{what} is quantized and dequantized differently: {self.disagreement}"
            case "channel":
                verb = "are not their" if len(self.channels) > 1 else "is not its"
                return f"{channels} of {what} {verb} rounded values"
            case "values":
                shifted = f"its values are {self.factor:.3g} times what they should be"
                is_scaled = not 0.9 < abs(self.factor) < 1.1
                return f"{what}: {shifted if is_scaled else 'its integers are not its rounded values'}"
            case "clipping":
                above = (self.above / self.count, f"values above {self.high:.3g}")
                below = (self.below / self.count, f"values below {self.low:.3g}")
                parts = " and ".join(f"{share:.2g}% of {text}" for share, text in _shares(above, below))
                return f"quantization of {what} clips {parts}{better}"
            case "coarse":
                levels = "" if math.isnan(self.used) else f" and uses {self.used:.0%} of its levels"
                return f"the scale {self.scale[1]:.3g} of {what} is too large{levels}{better}"
            case "outliers":
                lost = f"{self.lost:.0%} of the channels have fewer than {_LOST} levels"
                verb = "set" if len(self.channels) > 1 else "sets"
                return f"{channels} of {what} {verb} the scale {self.scale[1]:.2g} for all: {lost}{better}"
        return f"rounding {what} to {self.dtype} costs {self.relative:.1e} of its norm"

    @property
    def _better(self) -> str:
        """Return what a better scale would make of the error."""
        if self.granularity == "tensor" and self.by_channel and self.by_channel * 4 < self.fitted:
            best, how = self.by_channel, "a scale for each channel"
        elif self.granularity == "channel":
            best, how = self.fitted, "scales that fit"
        else:
            best, how = self.fitted, "a scale that fits"
        ratio = math.sqrt(best / self.squares) if self.squares else 1.0
        if ratio > 0.75:
            return ""
        what = "halve the error" if ratio >= 0.45 else f"make the error {1 / ratio:.2g} times smaller"
        return f"; {how} would {what}"

    def merge(self, other: Quantizer) -> Quantizer:
        """Return the quantizer over the values of both."""
        sums = ("count", "below", "above", "signal", "rounding", "clipping", "wrong", "fitted", "by_channel")
        counts: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in sums}
        for name in ("levels", "spread"):
            mine, yours = getattr(self, name), getattr(other, name)
            counts[name] = mine + yours if len(mine) == len(yours) else mine
        return replace(self, **counts, lost=min(self.lost, other.lost))

    __or__ = merge

    def __repr__(self) -> str:
        return f"Quantizer({self.message})"


def _shares(*parts: tuple[float, str]) -> list[tuple[float, str]]:
    """Return percentages of those parts that matter."""
    least = max(share for share, _ in parts) / 20
    return [(100 * share, text) for share, text in parts if share > least]


def unrounded(graph: Graph) -> dict[int, int]:
    """Return, for each value that a QuantizeLinear and a DequantizeLinear have rounded, the value before."""
    found = {}
    for node in range(graph.main_count):
        if graph.op_type(node) == "DequantizeLinear":
            maker = _maker(graph, input_of(graph, node, 0))
            if maker >= 0 and graph.op_type(maker) == "QuantizeLinear":
                found[int(graph.node_outputs(node)[0])] = input_of(graph, maker, 0)
    return found


def activations(
    graph: Graph, arrays: Mapping[int, Callable[[], NDArray[Any]]], scales: Mapping[int, tuple[str, str]]
) -> dict[int, Quantizer]:
    """Return the quantizers of values that a model computes, by node, on the reference's values.

    ``arrays`` maps values of the model to functions that return the reference's values, ``scales`` to the names of the
    scale and the zero point of those that hold integers.
    """
    found: dict[int, Quantizer] = {}
    seen: set[str] = set()
    names = graph.value_names
    sites = [(int(graph.producer[value]), value, pair) for value, pair in scales.items() if value in arrays]
    rounding = ("QuantizeLinear", "DynamicQuantizeLinear")
    sites += [(node, -1, ("", "")) for node in range(graph.main_count) if graph.op_type(node) in rounding]
    for node, value, pair in sorted(sites, key=lambda site: int(graph.rank[site[0]])):
        read = _site(graph, node, arrays) if value < 0 else _known_site(graph, value, pair)
        if read is None:
            continue
        site, scale_name = read
        array = arrays[site.value]()
        if array.dtype.kind != "f" or not array.size:
            continue
        op = graph.op_type(node) if value >= 0 else graph.op_type(_maker(graph, input_of(graph, node, 0)))
        label = names[site.value].removesuffix(DEQUANTIZED)
        measured = _activation(label, graph.names[node], site, array, op)
        if measured is not None:
            found[node] = replace(measured, shared=scale_name in seen) if scale_name in seen else measured
        seen |= {scale_name} - {""}
    return found


DEQUANTIZED: Final = "_DequantizeLinear_Output"
"""Suffix that onnxruntime's quantization appends to the name of a value for its dequantized copy."""


class _Site(NamedTuple):
    value: int
    """Value whose reference is rounded."""
    scale: NDArray[Any] | None
    """Scale of the QuantizeLinear; None if it is computed from the values."""
    zero: NDArray[Any]
    back_scale: NDArray[Any] | None
    """Scale of the DequantizeLinear."""
    back_zero: NDArray[Any]
    axis: int


def _maker(graph: Graph, value: int) -> int:
    return int(graph.producer[value]) if value >= 0 else -1


def _known_site(graph: Graph, value: int, pair: tuple[str, str]) -> tuple[_Site, str]:
    scale, zero = map(graph.model.tensor, pair)
    return _Site(value, scale, zero, scale, zero, 1), pair[0]


def _site(graph: Graph, node: int, arrays: Mapping[int, object]) -> tuple[_Site, str] | None:
    """Return the value that a QuantizeLinear rounds with its parameters, and the name of its scale."""
    read, made = input_of(graph, node, 0), graph.node_outputs(node).tolist()
    if graph.op_type(node) == "DynamicQuantizeLinear":
        none = np.zeros((), np.uint8)
        return (_Site(read, None, none, None, none, 1), "") if read in arrays else None
    name = input_of(graph, node, 1)
    backs = [each for each in graph.consumers(made[0]).tolist() if graph.op_type(each) == "DequantizeLinear"]
    backs.sort(key=lambda each: int(graph.node_outputs(each)[0]) not in arrays)
    # the dequantized value first: where an activation is part of the range, what is read is not yet right
    known = [*(int(graph.node_outputs(each)[0]) for each in backs), read]
    value = next((each for each in known if each in arrays), -1)
    scale = constant_of(graph, node, 1)
    if value < 0 or scale is None:
        return None
    given = constant_of(graph, node, 2)
    zero: NDArray[Any] = np.zeros(1, np.uint8) if given is None else given
    pair = scale, zero
    if backs:
        read_back = [input_of(graph, backs[0], place) for place in (1, 2)]
        same = [each == input_of(graph, node, place) for place, each in enumerate(read_back, 1)]
        back = (
            scale if same[0] else constant_of(graph, backs[0], 1),
            zero if same[1] else constant_of(graph, backs[0], 2),
        )
        pair = (scale if back[0] is None else back[0]), (np.zeros_like(zero) if back[1] is None else back[1])
    axis = int(attributes(graph.nodes[node]).get("axis", 1))
    return _Site(value, scale, zero, *pair, axis), graph.value_names[name]


def _activation(name: str, node: str, site: _Site, array: NDArray[Any], op: str) -> Quantizer | None:
    is_wide = site.scale is not None and site.scale.size > 1
    axis = site.axis if is_wide else 1 if array.ndim >= 4 else -1
    rows = _rows(array, axis).astype(np.float32, copy=False)
    lows, highs = rows.min(axis=1), rows.max(axis=1)
    if not (np.isfinite(lows).all() and np.isfinite(highs).all()):
        return None
    lowest, highest = levels_of(site.zero.dtype)
    if site.scale is None or site.back_scale is None:  # DynamicQuantizeLinear: what fits the values
        low, high = min(float(lows.min()), 0.0), max(float(highs.max()), 0.0)
        scale = np.asarray((high - low) / 255 or 1.0)
        zero = np.rint(-low / scale)
        back_scale, back_zero = scale, zero
    else:
        scale, zero, back_scale, back_zero = (
            np.asarray(each, np.float64).reshape(-1, 1) if is_wide else np.asarray(each, np.float64).reshape(-1)[0]
            for each in (site.scale, site.zero, site.back_scale, site.back_zero)
        )
    sample = _sampled(rows, "activation")
    rounding = _rounding(site.zero.dtype)
    codes = np.clip(rounding(np.clip(sample / scale, -(2.0**24), 2.0**24)) + zero, lowest, highest)
    back = (codes - back_zero) * back_scale
    steps = np.abs(back_scale) * _spacing(codes, site.zero.dtype)
    natural = next((ends for key, ends in _NATURAL.items() if key in op), None)
    if natural is not None:
        lows, highs = np.minimum(lows, natural[0]), np.maximum(highs, natural[1])
    measured = _measured(
        _Rounded(sample, back, codes, np.broadcast_to(steps, sample.shape), lows, highs),
        (lowest, highest),
        site.zero.dtype,
        is_symmetric=float(np.ravel(zero)[0]) == (lowest + highest + 1) // 2,
        is_wide=is_wide,
    )
    apart = []
    if not np.array_equal(scale, back_scale):
        apart.append(f"the scale {np.ravel(back_scale)[0]:.3g} is {np.ravel(back_scale / scale)[0]:.3g} times as large")
    if not np.array_equal(zero, back_zero):
        apart.append(f"the zero point {int(np.ravel(back_zero)[0])} instead of {int(np.ravel(zero)[0])}")
    return Quantizer(
        name,
        node,
        "activation",
        site.zero.dtype.name,
        "channel" if is_wide else "tensor",
        np.asarray([np.min(scale), np.max(scale)], np.float64),
        int(np.ravel(zero)[0]),
        float(np.min((lowest - zero) * scale)),
        float(np.max((highest - zero) * scale)),
        disagreement=", ".join(apart),
        **measured,
    )


def weight_quantizer(graph: Graph, node: int, held: Operand, right: NDArray[Any]) -> Quantizer | None:
    """Return the quantizer of a weight that a node reads; ``right`` is the reference's weight, of the same shape."""
    if held.steps is None or held.integers is None or held.bits > 8:
        return None
    rows = {
        key: _sampled(_rows(array, _output_axis(graph, node, right.ndim)), "weight")
        for key, array in {"x": right, "y": held.array, "q": held.integers, "s": held.steps}.items()
    }
    real = rows["x"].astype(np.float64)
    dtype = held.integers.dtype
    is_float = not _is_integer(dtype)
    is_whole = is_float or dtype.name.endswith(str(held.bits))
    ends: tuple[float, float] = levels_of(dtype) if is_whole else (0, 2**held.bits - 1)
    if not np.isfinite(real).all() or not real.size:
        return None
    codes = rows["q"].astype(np.float64)
    apart = rows["s"] * _spacing(codes, dtype)
    rounded = _Rounded(real, rows["y"], codes, apart, real.min(axis=1), real.max(axis=1))
    middle = (ends[0] + ends[1] + 1) // 2
    is_wide = held.granularity != "tensor"
    is_symmetric = held.zero_point in (0, middle)
    measured = _measured(rounded, ends, dtype, is_symmetric=is_symmetric, is_wide=is_wide)
    norm = float(np.vdot(real, real))
    factor = float(np.vdot(rows["y"].astype(np.float64), real)) / norm if norm else 1.0
    steps = rows["s"]
    return Quantizer(
        held.initializer.removesuffix("_quantized"),
        graph.names[node],
        "weight",
        dtype.name if is_float else f"{'u' if ends[0] == 0 else ''}int{held.bits}",
        held.granularity,
        np.asarray([steps.min(), steps.max()], np.float64),
        held.zero_point,
        float(np.min((ends[0] - held.zero_point) * steps)),
        float(np.max((ends[1] - held.zero_point) * steps)),
        factor=factor,
        **measured,
    )


def weights(
    graph: Graph,
    nodes: Iterable[int],
    named: Callable[[str], NDArray[Any] | None],
    known: Callable[[], Mapping[str, NDArray[Any]]],
) -> list[Quantizer]:
    """Return the quantizers of the weights that nodes read, against the weights of the reference.

    ``named`` returns the weight of the reference with the name that onnxruntime's quantizer derives its names from, if
    there is one; ``known`` returns others that may be meant, if one has the only fitting shape.
    """
    found = []
    for node in nodes:
        for place in _WEIGHT_PLACES.get(graph.op_type(node), range(len(graph.node_inputs(node)))):
            if graph.op_type(node) in _NO_READERS:
                continue
            held = weight_of(graph, node, place)
            if held is None or held.integers is None:
                continue
            name = _BASE.sub("", held.initializer)
            right = named(name)
            if right is not None:
                right = _turned(right, held.array)
            else:
                ways = {key: _turned(array, held.array) for key, array in known().items()}
                fitting = [(key, array) for key, array in ways.items() if array is not None]
                name, right = fitting[0] if len(fitting) == 1 else (name, None)
            if right is None or right.dtype.kind != "f":
                continue
            measured = weight_quantizer(graph, node, held, right)
            found += [] if measured is None else [replace(measured, name=name)]
    return found


def _turned(right: NDArray[Any], held: NDArray[Any]) -> NDArray[Any] | None:
    """Return a weight in the orientation of another one; None if its shape fits neither way."""
    ways = [each for each in (right, right.T) if each.shape == held.shape]
    if len(ways) == 2 and right.ndim == 2:
        step = max(1, len(held) // 64)
        return min(ways, key=lambda way: float(np.abs(way[::step].astype(np.float64) - held[::step]).sum()))
    return ways[0] if ways else None


_BASE: Final = re.compile(r"(_quantized|_Q\d+(G\d+)?|_DQ_Q\d+)$")
"""Suffixes of the names of quantized weights."""
_NO_READERS: Final = frozenset(("QuantizeLinear", "DequantizeLinear", "Transpose", "Reshape", "Cast", "Identity"))
"""Operators that pass a weight on."""
_WEIGHT_PLACES: Final[Mapping[str, Iterable[int]]] = {
    **dict.fromkeys(INTEGERS, (1,)),
    "MatMulNBits": (1,),
    "GatherBlockQuantized": (0,),
}


def _output_axis(graph: Graph, node: int, ndim: int) -> int:
    """Return the axis of a weight's output channels."""
    if ndim > 2 or "Conv" in graph.op_type(node):
        return 0 if "Conv" in graph.op_type(node) else -1
    return 0 if attributes(graph.nodes[node]).get("transB", 0) else -1


class _Rounded(NamedTuple):
    """Values by channel, as rows of (channels, n)."""

    real: NDArray[Any]
    back: NDArray[Any]
    """What they are after rounding."""
    codes: NDArray[Any]
    steps: NDArray[Any]
    lows: NDArray[Any]
    """Smallest value of each channel, of all values."""
    highs: NDArray[Any]


def _measured(
    rounded: _Rounded, ends: tuple[float, float], dtype: np.dtype[Any], *, is_symmetric: bool, is_wide: bool
) -> dict[str, Any]:
    """Return the fields of a quantizer that its values decide."""
    rounding, is_float = _rounding(dtype), not _is_integer(dtype)
    real, codes = rounded.real, rounded.codes
    errors = (rounded.back - real).astype(np.float64)
    squares = errors * errors
    far = np.abs(errors) > rounded.steps * 1.001
    too_small, too_large = far & (codes <= ends[0]) & (errors > 0), far & (codes >= ends[1]) & (errors < 0)
    clipped = too_small | too_large
    wrong = far & ~clipped
    wrongs = (squares * wrong).sum(axis=1)
    lows, highs = np.minimum(rounded.lows, 0.0), np.maximum(rounded.highs, 0.0)
    ranges, span = highs - lows, ends[1] - ends[0]

    def fit(lows: NDArray[Any], highs: NDArray[Any]) -> float:
        widths = 2 * np.maximum(-lows, highs) if is_symmetric else highs - lows
        steps = np.maximum(widths / span, np.finfo(np.float32).tiny).reshape(-1, 1)
        rest = real - steps * rounding(real / steps)
        return float(np.vdot(rest, rest))

    by_channel = fit(lows, highs)
    whole = fit(lows.min(keepdims=True), highs.max(keepdims=True)) if not is_wide else by_channel
    step = float(rounded.steps.min() if is_float else rounded.steps.max())
    marked, lost = _odd_channels(wrongs, squares.sum(axis=1), ranges, step, is_wide=is_wide)
    bins = int(span) + 1
    has_levels = bins <= 256 and not is_float
    return {
        "count": real.size,
        "below": int(np.count_nonzero(too_small)),
        "above": int(np.count_nonzero(too_large)),
        "levels": np.bincount((codes - ends[0]).astype(np.int64).ravel(), minlength=bins)
        if has_levels
        else np.zeros(0, np.int64),
        "spread": np.zeros(0, np.int64) if is_float else _spread(rounded, ends),
        "signal": float(np.vdot(real, real)),
        "rounding": float(squares[~far].sum()),
        "clipping": float(squares[clipped].sum()),
        "wrong": float(wrongs.sum()),
        "fitted": whole,
        "by_channel": by_channel,
        "channels": marked,
        "lost": lost,
    }


def _spread(rounded: _Rounded, ends: tuple[float, float]) -> Longs:
    """Return the counts of values in intervals of levels, which rounding does not leave."""
    inside = min(_INTERVALS, int(ends[1] - ends[0]) + 1)
    beyond = inside // 4
    steps = np.maximum(rounded.steps, np.finfo(np.float32).tiny)
    levels = (rounded.real - rounded.back) / steps + (rounded.codes - ends[0] + 0.5)
    places = np.floor(levels * (inside / (ends[1] - ends[0] + 1))).ravel()
    return np.bincount(
        np.clip(places + beyond, 0, inside + 2 * beyond - 1).astype(np.int64), minlength=inside + 2 * beyond
    )


def _odd_channels(
    wrongs: NDArray[Any], squares: NDArray[Any], ranges: NDArray[Any], step: float, *, is_wide: bool
) -> tuple[tuple[int, ...], float]:
    """Return the channels that are wrong or outliers, and the share of those that are lost because of them."""
    if wrongs.sum() > squares.sum() / 2:
        bad = np.flatnonzero(wrongs > squares.sum() / len(wrongs) / 10)
        return (tuple(bad.tolist()) if len(bad) <= max(1, len(wrongs) // 4) else ()), 0.0
    used = ranges > 0
    if is_wide or np.count_nonzero(used) < 4:
        return (), 0.0
    lost = np.count_nonzero(used & (ranges < _LOST * step)) / np.count_nonzero(used)
    outliers = np.flatnonzero(ranges > _FAR * np.median(ranges[used])) if lost >= _FEWEST_LOST else ()
    return (tuple(map(int, outliers)), float(lost)) if len(outliers) else ((), 0.0)


@functools.cache
def levels_of(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the smallest and the largest finite number of a type of numpy or ml_dtypes."""
    if _is_integer(dtype):
        integers = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return int(integers.min), int(integers.max)
    floats = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(floats.min), float(floats.max)


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or "int" in dtype.name


def _rounding(dtype: np.dtype[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that rounds numbers of levels to a type: to integers, or to floats of eight bits."""
    if _is_integer(dtype):
        return np.rint
    lowest, highest = levels_of(dtype)
    return lambda levels: levels.clip(lowest, highest).astype(dtype).astype(np.float64)


def _spacing(codes: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | float:
    """Return the distance of a type's numbers around each code: 1 between integers."""
    if _is_integer(dtype):
        return 1.0
    found = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    exponents = np.floor(np.log2(np.maximum(np.abs(codes), float(found.smallest_normal))))
    return np.asarray(2.0 ** (exponents - found.nmant))


def _rows(array: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return an array as rows, one for each channel."""
    if not array.ndim:
        return array.reshape(1, 1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _sampled(rows: NDArray[Any], role: str) -> NDArray[Any]:
    """Return evenly spaced columns."""
    width = max(16, _SAMPLED[role] // max(len(rows), 1))
    return rows[:, :: max(1, rows.shape[1] // width)]
