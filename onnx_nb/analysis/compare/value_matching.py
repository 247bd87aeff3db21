"""Match the values of two models that have run: names and structure propose, the values decide.

After quantization, fusion or renaming, a value may have several possible counterparts. `options` lists them from the
two graphs, `chosen` picks one of them once the errors are known, and `matched_by_values` finds the rest by their shapes
and values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from onnx_nb.analysis.compare.metrics import by_norm
from onnx_nb.analysis.compare.node_matching import HOW, Matching
from onnx_nb.analysis.graph.names import DANGLING, INITIALIZER

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.metrics import ErrorStats
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.run.statistics import Floats

DEQUANTIZED: Final = "_DequantizeLinear_Output"
"""Suffix that onnxruntime's quantization appends to the name of a value for its dequantized copy."""
QUANTIZED: Final = "_quantized"
"""Suffix for its integers, where operators compute on these."""

DOUBT: Final = 0.1
"""Distance relative to the norm beyond which a match is doubtful."""
_FAR_BETTER: Final = 8.0
"""Factor by which the error of a later option must be smaller than that of the first to be preferred."""
_SAME: Final = 0.05
"""Maximum distance of two values that are matched without a common name."""
_FEWEST: Final = 8
"""Elements below which two values may be equal by chance."""
_ACTIVATIONS: Final = frozenset(("Relu", "Clip"))
"""Operators that quantization removes, as the range of the integers has the same effect."""

_WEAK: Final = ("", "order", "place")
"""Kinds of node matches that are ambiguous, and not used for values."""

# indices of a node's inputs that hold the scale and the zero point of its output
_SCALES: Final = {
    "QuantizeLinear": (1, 2), "QLinearConv": (6, 7), "QLinearMatMul": (6, 7), "QGemm": (7, 8), "QLinearAdd": (6, 7),
    "QLinearMul": (6, 7), "QLinearSigmoid": (3, 4), "QLinearLeakyRelu": (3, 4), "QLinearSoftmax": (3, 4),
    "QLinearAveragePool": (3, 4), "QLinearGlobalAveragePool": (3, 4), "QLinearReduceMean": (3, 4),
    "QLinearConcat": (0, 1), "QLinearWhere": (7, 8),
}  # fmt: skip
_MOVES: Final = frozenset((
    "MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Gather", "Slice", "Split", "Identity",
    "Resize", "Pad", "DepthToSpace", "SpaceToDepth", "Expand",
))  # fmt: skip
"""Operators that move integers without changing them, and so keep their scale."""


class Option(NamedTuple):
    """A possible match of a value of the reference with one of the candidate."""

    reference: int
    candidate: int
    how: str
    """name, dequantized, quantized (integers with a known scale), fused (an activation is part of the node that makes
    it), structure or values."""
    scale: tuple[str, str] = ("", "")
    """Names of the candidate's weights that hold scale and zero point if its values are integers; else empty."""

    def of(self, side: int) -> int:
        """Return the value of the reference for 0, of the candidate for 1."""
        return self.candidate if side else self.reference


def options(reference: Graph, candidate: Graph, structure: Matching) -> list[Option]:
    """Return the matches that names and graphs suggest for computed values of the main graphs, the likeliest first."""
    mine, yours = values(reference), values(candidate)
    if sum(name.endswith(DEQUANTIZED) for name in mine) > sum(name.endswith(DEQUANTIZED) for name in yours):
        turned = [
            option._replace(reference=option.candidate, candidate=option.reference)
            for option in _options(candidate, yours, mine)
        ]
        found = [option for option in turned if not option.scale[0]]
    else:
        found = _options(reference, mine, yours, candidate)
    there = {(option.reference, option.candidate) for option in found}
    computed = set(yours.values())
    for value in mine.values():
        other = int(structure.value[value])
        if other in computed and (value, other) not in there and HOW[structure.value_how[value]] not in _WEAK:
            found.append(Option(value, other, "structure"))
    return found


def values(graph: Graph) -> dict[str, int]:
    """Return the values of the main graph by name, in order of execution, without weights and constants."""
    producer, rank = graph.producer, graph.rank
    constant = np.asarray([op == "Constant" for op, _ in graph.operators], bool)
    found = np.flatnonzero(
        (graph.value_subgraph == 0) & (graph.value_kind != INITIALIZER) & (graph.value_kind != DANGLING)
    )
    makers = producer[found]
    order = np.where(makers >= 0, rank[makers], -1)
    if constant.any():
        keep = (makers < 0) | ~constant[graph.op_index[makers]]
        found, order = found[keep], order[keep]
    sorted_values = found[np.argsort(order, kind="stable")].tolist()
    return {graph.value_names[value]: value for value in sorted_values if graph.value_names[value]}


def _options(
    graph: Graph, mine: Mapping[str, int], yours: Mapping[str, int], candidate: Graph | None = None
) -> list[Option]:
    found = []
    for name, value in mine.items():
        known = _named(name, value, mine, yours, candidate)
        if name not in yours:
            fused = yours.get(_activated(graph, value), -1)
            if fused >= 0:
                known.append(Option(value, fused, "fused"))
        before = _before_activation(graph, value)
        if before:
            known += [
                option._replace(how="fused")
                for option in _named(before, value, mine, yours, candidate)
                if option.how != "name" or not known
            ]
        found += known
    return found


def _named(
    name: str, value: int, mine: Mapping[str, int], yours: Mapping[str, int], candidate: Graph | None
) -> list[Option]:
    """Return the options that have a name, with or without the suffixes of quantization."""
    found = []
    twin = yours.get(name + DEQUANTIZED, -1)
    if twin >= 0 and name + DEQUANTIZED not in mine:
        found.append(Option(value, twin, "dequantized"))
    if name in yours:
        found.append(Option(value, yours[name], "name"))
    integers = yours.get(name + QUANTIZED, -1)
    if integers >= 0 and name + QUANTIZED not in mine and candidate is not None:
        scale = _scale(candidate, integers)
        if scale:
            found.append(Option(value, integers, "quantized", scale))
    return found


def _activated(graph: Graph, value: int) -> str:
    """Return the name of the output of the activation that reads a value, if it is the only reader."""
    readers = graph.consumers(value).tolist()
    if len(readers) != 1 or graph.operators[int(graph.op_index[readers[0]])][0] not in _ACTIVATIONS:
        return ""
    outputs = graph.node_outputs(readers[0]).tolist()
    return graph.value_names[outputs[0]] if outputs else ""


def _before_activation(graph: Graph, value: int) -> str:
    """Return the name of the input of the activation that makes a value; empty if another operator makes it."""
    maker = int(graph.producer[value])
    if maker < 0 or graph.operators[int(graph.op_index[maker])][0] not in _ACTIVATIONS:
        return ""
    given = int(graph.node_inputs(maker)[0])
    return graph.value_names[given] if given >= 0 else ""


def _scale(graph: Graph, value: int) -> tuple[str, str] | None:
    """Return the names of the weights that hold scale and zero point of a value."""
    for _ in range(64):  # no chain of moving operators is longer
        node = int(graph.producer[value])
        if node < 0:  # a weight, from which a row was gathered
            base = graph.value_names[value].removesuffix(QUANTIZED)
            scale, zero = f"{base}_scale", f"{base}_zero_point"
            return (scale, zero) if {scale, zero} <= graph.model.initializers.keys() else None
        inputs = graph.node_inputs(node).tolist()
        op = graph.operators[int(graph.op_index[node])][0]
        places = _SCALES.get(op)
        if places is None:
            if op not in _MOVES or not inputs or inputs[0] < 0:
                return None
            value = inputs[0]
            continue
        found = [inputs[place] if place < len(inputs) else -1 for place in places]
        weights = [graph.value_names[each] if each >= 0 else "" for each in found]
        known = graph.model.initializers
        return (weights[0], weights[1]) if weights[0] in known and weights[1] in known else None
    return None


# --- deciding -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The fingerprint of a value: its shape, type, and evenly spaced elements."""

    shape: tuple[int, ...]
    dtype: str
    values: Floats = field(repr=False)
    """Float64, shape (n,)."""


def chosen(found: Mapping[Option, ErrorStats], listed: Iterable[Option]) -> list[Option]:
    """Return one option for each value of the reference, each value of the candidate at most once."""
    by_value: dict[int, list[Option]] = {}
    for option in listed:
        if option in found:
            by_value.setdefault(option.reference, []).append(option)
    distance = {option: by_norm(errors) for option, errors in found.items()}
    # the candidate's value may be nearer to another value of the reference than to that of its name
    nearest: dict[int, float] = {}
    for option in found:
        nearest[option.candidate] = min(distance[option], nearest.get(option.candidate, DOUBT))
    picked = {value: _picked(several, distance) for value, several in by_value.items()}
    picked = {
        value: option
        for value, option in picked.items()
        if distance[option] <= DOUBT
        or (option.how not in ("structure", "fused") and not _is_another(distance[option], nearest[option.candidate]))
    }
    taken: dict[int, Option] = {}
    for option in picked.values():
        rival = taken.get(option.candidate)
        if rival is None or _claim(option, distance) < _claim(rival, distance):
            taken[option.candidate] = option
    # a value that lost its option may have another
    for value, option in picked.items():
        if taken[option.candidate] is option:
            continue
        for other in by_value[value]:
            if other.candidate not in taken and distance[other] <= DOUBT:
                taken[other.candidate] = other
                break
    return sorted(taken.values())


def _picked(several: Sequence[Option], distance: Mapping[Option, float]) -> Option:
    """Return the first option, unless it is doubtful and a later one is far better."""
    first = several[0]
    for other in several[1:]:
        if distance[first] > DOUBT / 2 and distance[other] * _FAR_BETTER < distance[first]:
            first = other
    return first


def _is_another(distance: float, best: float) -> bool:
    """Return whether a value of the candidate at this distance is another value of the reference."""
    return best < DOUBT and best * _FAR_BETTER / 2 < distance


def _claim(option: Option, distance: Mapping[Option, float]) -> tuple[bool, bool, float]:
    """Return the rank of an option among those that share a value of the candidate; the smallest wins."""
    return distance[option] > DOUBT, option.how == "fused", distance[option]


def matched_by_values(
    references: Mapping[int, Sample],
    candidates: Mapping[int, Sample],
    doubtful: Mapping[int, tuple[int, float]],
    operators: tuple[Mapping[int, str], Mapping[int, str]],
) -> list[Option]:
    """Match by shape and sampled elements values that are each other's nearest."""
    by_shape: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
    for side, samples in enumerate((references, candidates)):
        for value, sample in samples.items():
            if len(sample.values) >= _FEWEST:
                by_shape.setdefault(sample.shape, ([], []))[side].append(value)
    found: list[Option] = []
    for mine, yours in by_shape.values():
        if not mine or not yours:
            continue
        nearest = _nearest(
            (mine, _stacked(mine, references)),
            (yours, _stacked(yours, candidates)),
            {value: distance for value, (_, distance) in doubtful.items()},
            operators,
        )
        found += _unambiguous(nearest, operators)
    return found


_Rows = tuple[list[int], "Floats"]
"""Values of one shape and their samples, one in each row."""
_Near = dict[int, tuple[int, float]]
"""Value of the candidate and its distance, for values of the reference."""


def _nearest(
    references: _Rows, candidates: _Rows, limits: Mapping[int, float], operators: tuple[Mapping[int, str], ...]
) -> _Near:
    """Return the nearest value of the candidate for each of the reference that has only one."""
    (mine, one), (yours, other) = references, candidates
    norms, other_norms = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    usable = np.isfinite(other_norms) & (other_norms > 0)
    found: _Near = {}
    for row, value in enumerate(mine):
        # a constant resembles any other constant
        if not np.isfinite(norms[row]) or not norms[row] or np.ptp(one[row]) == 0:
            continue
        distance = np.linalg.norm(other - one[row], axis=1) / np.maximum(other_norms, norms[row])
        distance[~usable] = np.inf
        least = float(distance.min())
        if least > _SAME or least * _FAR_BETTER >= limits.get(value, math.inf):
            continue
        nearest = [yours[at] for at in np.flatnonzero(distance <= max(least * 2, 1e-12))]
        if len(nearest) > 1:  # copies: only one that the same operator makes can be the match
            nearest = [each for each in nearest if operators[1].get(each) == operators[0].get(value)]
        if len(nearest) == 1:
            found[value] = nearest[0], least
    return found


def _unambiguous(nearest: _Near, operators: tuple[Mapping[int, str], ...]) -> Iterator[Option]:
    """Yield a match for each value of the candidate that is clearly nearest to one value of the reference."""
    claims: dict[int, list[int]] = {}
    for value, (other, _) in nearest.items():
        claims.setdefault(other, []).append(value)
    for other, claiming in claims.items():
        best = min(nearest[value][1] for value in claiming)
        left = [value for value in claiming if nearest[value][1] <= max(best * 2, 1e-12)]
        if len(left) > 1:
            left = [value for value in left if operators[0].get(value) == operators[1].get(other)]
        if len(left) == 1:
            yield Option(left[0], other, "values")


def _stacked(values: Sequence[int], samples: Mapping[int, Sample]) -> Floats:
    return np.stack([samples[value].values for value in values])
