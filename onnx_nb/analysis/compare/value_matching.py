"""Which value of one model is which of another, once both have run: names and structure suggest, the values decide.

A tool that quantizes, fuses or renames leaves several values that may be meant. `options` lists them from the graphs
alone; `chosen` decides once all of them were seen; `alike` finds those that only their shape and values give away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from onnx_nb.analysis.compare.distances import by_norm
from onnx_nb.analysis.compare.node_matching import HOW, Matching
from onnx_nb.analysis.graph.graph import DANGLING, INITIALIZER, Graph

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.metrics import ErrorStats
    from onnx_nb.analysis.run.log_histogram import Floats

DEQUANTIZED: Final = "_DequantizeLinear_Output"
"""What onnxruntime's quantization appends to the name of a value for what its readers get."""
QUANTIZED: Final = "_quantized"
"""And for the integers where operators work on these."""

DOUBT: Final = 0.1
"""A value further away than this, relative to the norm, may not be the one that is meant."""
_FAR_BETTER: Final = 8.0
"""One that was not expected is preferred if its error is so many times smaller."""
_ALIKE: Final = 0.05
"""Values without a common name are the same if they are at most so far apart."""
_FEWEST: Final = 8
"""Of fewer elements others have the same by chance."""
_ACTIVATIONS: Final = frozenset(("Relu", "Clip"))
"""What quantization removes, as the range of the integers does the same."""

_WEAK: Final = ("", "order", "place")
"""What of `match` is not believed, as it may be any of several."""

# where a node has the scale and the zero point of what it makes
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
"""What leaves integers as they are, and so their scale."""


class Option(NamedTuple):
    """A value of the candidate that may be a value of the reference."""

    reference: int
    candidate: int
    how: str
    """name, dequantized, quantized (integers with a known scale), fused (an activation is part
    of what makes it), structure, values."""
    scale: tuple[str, str] = ("", "")
    """Names of weights of the candidate, where its values are integers: scale and zero point; else empty."""

    def of(self, side: int) -> int:
        """Return the value of the reference for 0, of the candidate for 1."""
        return self.candidate if side else self.reference


def options(reference: Graph, candidate: Graph, structure: Matching) -> list[Option]:
    """List what names and graphs suggest, of each value of the reference what is most likely first.

    Only computed values of the main graphs. A value may have several options, and be one of several.
    """
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
    """Return the values of the main graph by name, in order of execution; weights and constants left out."""
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
    """Return what has a name, or what quantization makes of it."""
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
    """Return the name of what an activation makes of a value, if nothing else reads it."""
    readers = graph.consumers(value).tolist()
    if len(readers) != 1 or graph.operators[int(graph.op_index[readers[0]])][0] not in _ACTIVATIONS:
        return ""
    outputs = graph.node_outputs(readers[0]).tolist()
    return graph.value_names[outputs[0]] if outputs else ""


def _before_activation(graph: Graph, value: int) -> str:
    """Return the name of what an activation was given that made a value; empty if something else made it."""
    maker = int(graph.producer[value])
    if maker < 0 or graph.operators[int(graph.op_index[maker])][0] not in _ACTIVATIONS:
        return ""
    given = int(graph.node_inputs(maker)[0])
    return graph.value_names[given] if given >= 0 else ""


def _scale(graph: Graph, value: int) -> tuple[str, str] | None:
    """Return the names of the weights that say what integers stand for."""
    for _ in range(64):  # a chain of Reshape and the like is never so long
        node = int(graph.producer[value])
        if node < 0:  # a weight, of which a row was looked up
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
    """What is kept of a value to know it again by: its shape and what it is at evenly spaced places."""

    shape: tuple[int, ...]
    dtype: str
    values: Floats = field(repr=False)
    """Float64, shape (n,)."""


def chosen(found: Mapping[Option, ErrorStats], listed: Iterable[Option]) -> list[Option]:
    """Choose one option for each value of the reference, each value of the candidate at most once.

    Parameters
    ----------
    found
        The errors of the options of which both values were seen and have one shape.
    listed
        As `options` gives them.
    """
    by_value: dict[int, list[Option]] = {}
    for option in listed:
        if option in found:
            by_value.setdefault(option.reference, []).append(option)
    apart = {option: by_norm(errors) for option, errors in found.items()}
    # what a value of the candidate is rather than what its name says
    explained: dict[int, float] = {}
    for option in found:
        explained[option.candidate] = min(apart[option], explained.get(option.candidate, DOUBT))
    picked = {value: _picked(several, apart) for value, several in by_value.items()}
    picked = {
        value: option
        for value, option in picked.items()
        if apart[option] <= DOUBT
        or (option.how not in ("structure", "fused") and not _is_another(apart[option], explained[option.candidate]))
    }
    taken: dict[int, Option] = {}
    for option in picked.values():
        rival = taken.get(option.candidate)
        if rival is None or _claim(option, apart) < _claim(rival, apart):
            taken[option.candidate] = option
    # who lost may have another
    for value, option in picked.items():
        if taken[option.candidate] is option:
            continue
        for other in by_value[value]:
            if other.candidate not in taken and apart[other] <= DOUBT:
                taken[other.candidate] = other
                break
    return sorted(taken.values())


def _picked(several: Sequence[Option], apart: Mapping[Option, float]) -> Option:
    first = several[0]
    for other in several[1:]:
        if apart[first] > DOUBT / 2 and apart[other] * _FAR_BETTER < apart[first]:
            first = other
    return first


def _is_another(mine: float, best: float) -> bool:
    """Return whether a value of the candidate, this far away, is another value of the reference."""
    return best < DOUBT and best * _FAR_BETTER / 2 < mine


def _claim(option: Option, apart: Mapping[Option, float]) -> tuple[bool, bool, float]:
    """Return the rank of a claim where two reference values want one of the candidate; smaller wins."""
    return apart[option] > DOUBT, option.how == "fused", apart[option]


def alike(
    references: Mapping[int, Sample],
    candidates: Mapping[int, Sample],
    doubtful: Mapping[int, tuple[int, float]],
    operators: tuple[Mapping[int, str], Mapping[int, str]],
) -> list[Option]:
    """Match values by shape and what they are at some places: where both are each other's nearest, and nothing else is.

    Parameters
    ----------
    references, candidates
        Values of either side that are not matched, or not well.
    doubtful
        Those of the reference that are matched, with the value of the candidate and how far away it is: another has to
        be far nearer.
    operators
        What makes each value, on either side, to tell values apart that are the same.
    """
    groups: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
    for side, samples in enumerate((references, candidates)):
        for value, sample in samples.items():
            if len(sample.values) >= _FEWEST:
                groups.setdefault(sample.shape, ([], []))[side].append(value)
    found = []
    for mine, yours in groups.values():
        if mine and yours:
            found += _nearest(mine, yours, references, candidates, doubtful, operators)
    return found


def _nearest(  # noqa: PLR0917
    mine: list[int],
    yours: list[int],
    references: Mapping[int, Sample],
    candidates: Mapping[int, Sample],
    doubtful: Mapping[int, tuple[int, float]],
    operators: tuple[Mapping[int, str], Mapping[int, str]],
) -> list[Option]:
    one, other = _stacked(mine, references), _stacked(yours, candidates)
    norms, other_norms = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    usable = np.isfinite(other_norms) & (other_norms > 0)
    pairs: dict[int, tuple[int, float]] = {}
    for row, value in enumerate(mine):
        # what is constant is like any other constant
        if not np.isfinite(norms[row]) or not norms[row] or np.ptp(one[row]) == 0:
            continue
        apart = np.linalg.norm(other - one[row], axis=1) / np.maximum(other_norms, norms[row])
        apart[~usable] = np.inf
        nearest = np.flatnonzero(apart <= max(float(apart.min()) * 2, 1e-12))
        least = float(apart.min())
        if least > _ALIKE or least * _FAR_BETTER >= doubtful.get(value, (-1, math.inf))[1]:
            continue
        if len(nearest) > 1:  # copies, of which the one is meant that is made in the same way
            nearest = np.asarray([at for at in nearest if operators[1].get(yours[at]) == operators[0].get(value)])
            if len(nearest) != 1:
                continue
        pairs[value] = int(nearest[0]), least
    claims: dict[int, list[int]] = {}
    for value, (at, _) in pairs.items():
        claims.setdefault(at, []).append(value)
    found = []
    for at, values in claims.items():
        alone = values
        if len(values) > 1:
            best = min(pairs[value][1] for value in values)
            alone = [value for value in values if pairs[value][1] <= max(best * 2, 1e-12)]
            if len(alone) > 1:
                alone = [value for value in alone if operators[0].get(value) == operators[1].get(yours[at])]
        if len(alone) == 1:
            found.append(Option(alone[0], yours[at], "values"))
    return found


def _stacked(values: Sequence[int], samples: Mapping[int, Sample]) -> Floats:
    return np.stack([samples[value].values for value in values])
