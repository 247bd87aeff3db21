"""Overlays: one number per node, aggregated per scope, from a dict, a capture, a comparison, a profile or the model."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.metrics import METRICS
from onnx_nb.analysis.cost.costs import Costs, costs, weights_read
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.graph.dataflow import upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, cached, load
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.run.random_feeds import feed_shapes
from onnx_nb.analysis.scopes.scopes import FUNCTION, scopes
from onnx_nb.analysis.view.graph_columns import columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.compare.comparison import Comparison, Which
    from onnx_nb.analysis.run.capture import Capture

    Source: TypeAlias = Mapping[str, float] | Capture | Comparison | Costs | str | os.PathLike[str]

Scale = Literal["linear", "log"]
Reduction = Literal["sum", "max"]

OWN: Final = ("parameters", "weight bytes", "MACs", "activation bytes")
"""Labels of the numbers that every model has; open dimensions have the sizes that `random_feeds` chooses."""
STATISTICS: Final = ("std", "mean", "min", "max", "nonfinite", "zeros")
"""Labels of a capture's numbers per tensor; a node has the largest number of its outputs."""
COSTS: Final = ("seconds", "bytes")
"""Labels of a capture's numbers per node."""


@dataclass(frozen=True, eq=False)
class Overlay:
    """A number for each node and each scope; NaN where it is unknown."""

    label: str
    scale: Scale
    reduce: Reduction
    nodes: NDArray[np.float64]
    """Number of each flat node of `Graph.opened`."""
    scopes: NDArray[np.float64]
    """Number of each scope of `Scopes`."""
    unmatched: tuple[str, ...]
    """Names that are not in the model."""

    def to_json(self) -> dict[str, Any]:
        """Return the description of the numbers, without them."""
        return {"label": self.label, "scale": self.scale, "reduce": self.reduce, "unmatched": len(self.unmatched)}

    def __repr__(self) -> str:
        known = int(np.isfinite(self.nodes).sum())
        lost = f", {len(self.unmatched)} names not in the model" if self.unmatched else ""
        return f"Overlay({self.label!r}, {known} of {len(self.nodes)} nodes{lost})"


@known_arguments
def overlay(
    model: ModelLike,
    values: Source,
    *,
    label: str | None = None,
    scale: Scale | None = None,
    reduce: Reduction | None = None,
) -> Overlay:
    """Return an overlay: a number for each node of a model, aggregated per scope.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    values
        One of: a number by name of node or tensor (a node has the largest of its outputs); a `Capture`; a
        `Comparison` with the model as a side; `Costs` of the model; the path of a profile that onnxruntime wrote; or
        one of `OWN`, such as ``"MACs"``.
    label
        Name of the numbers in the legend. It selects the number of a capture: ``"seconds"`` (the default),
        ``"bytes"``, ``"std"``, ``"mean"``, ``"min"``, ``"max"``, ``"nonfinite"`` or ``"zeros"``; or of a comparison:
        ``"isolated"`` (the default if known) or ``"cumulative"``, the relative L2 error, or one of `METRICS`; or of
        costs: ``"macs"`` (the default), ``"flops"``, ``"parameters"``, ``"parameter_bytes"``, ``"activation_bytes"``.
    scale
        ``"linear"`` or ``"log"``; by default chosen from the numbers.
    reduce
        Aggregate of a scope's nodes: ``"sum"`` or ``"max"``. By default the sum for times, bytes, parameters and costs,
        else the maximum. Shared weights count once.

    Raises
    ------
    OnnxNbError
        If none of the names is in the model, or the label is unknown.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { y = Relu(x)  z = Neg(y) }''')
    >>> overlay(model, {"y": 3.0, "w": 1.0}, label="error")
    Overlay('error', 1 of 2 nodes, 1 names not in the model)
    """
    loaded = load(model)
    graph = Graph.opened(loaded)
    unmatched: tuple[str, ...] = ()
    by_scope = None
    if isinstance(values, Costs):
        label, reduce = label or "macs", reduce or "sum"
        numbers, by_scope = _costed(graph, values, label)
    elif isinstance(values, str) and values in OWN:
        label, reduce = label or values, reduce or "sum"
        if values in ("MACs", "activation bytes"):
            numbers, by_scope = _costed(graph, run_costs(loaded)[0], values.lower().replace(" ", "_"))
        else:
            node, value, *sizes = weights_read(graph)
            size, name = (sizes[0], "scope_params") if values == "parameters" else (sizes[1], "scope_bytes")
            numbers = np.bincount(node, size[value], minlength=graph.node_count).astype(np.float64)
            by_scope = columns(loaded).arrays[name].astype(np.float64)
    elif isinstance(values, Mapping):
        label, reduce = label or "", reduce or "max"
        numbers, unmatched = _named(graph, values)
    elif hasattr(values, "first_divergent"):
        reduce = reduce or "max"
        label, numbers, unmatched = _compared(graph, values, label)
    elif hasattr(values, "statistics"):
        label = label or COSTS[0]
        reduce = reduce or ("sum" if label in COSTS else "max")
        numbers = _captured(graph, values, label)
    elif isinstance(values, str | os.PathLike):
        label, reduce = label or "seconds", reduce or "sum"
        numbers, unmatched = _named(graph, _profiled(path_of(values)))
    else:
        takes = f"a dict by name, a Capture, a Comparison, Costs, the path of a profile, or one of {', '.join(OWN)}"
        raise TypeError(f"overlay() takes values as {takes}, not {type(values).__name__}.")
    if by_scope is None or reduce != "sum":
        by_scope = _by_scope(graph, numbers, reduce)
    return Overlay(label, scale or _scale(numbers), reduce, numbers, by_scope, unmatched)


def _costed(graph: Graph, found: Costs, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return one of the costs of each node, and of each scope."""
    if metric not in found.scope_sums:
        raise OnnxNbError(
            f"costs have no numbers {quoted(metric)}.", advice=f"They have {', '.join(found.scope_sums)}."
        )
    numbers, tree = np.asarray(getattr(found, metric), np.float64), found.scopes
    if len(numbers) != graph.node_count:
        message = f"the costs are those of another model, with {len(numbers)} nodes instead of {graph.node_count}."
        raise OnnxNbError(message, advice="Compute them for this one: onnx_nb.costs(model).")
    inside = np.bincount(tree.node_scope[~np.isnan(numbers)], minlength=len(tree.scope_parent))
    known = upward(np.add, inside, tree.scope_parent) > 0
    return numbers, np.where(known, found.scope_sums[metric], np.nan)


def _named(graph: Graph, values: Mapping[str, float]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    nodes: dict[str, list[int]] = {}
    for node, name in enumerate(graph.names):
        if name:
            nodes.setdefault(name, []).append(node)
    makers: dict[str, list[int]] = {}
    for value, name in enumerate(graph.value_names):
        makers.setdefault(name, []).append(int(graph.producer[value]))
    numbers = np.full(graph.node_count, np.nan)
    unmatched = []
    for name, number in values.items():
        found = nodes.get(name) or makers.get(name)
        if found is None:
            unmatched.append(str(name))
            continue
        for node in found:
            if node >= 0 and not numbers[node] > float(number):
                numbers[node] = float(number)
    if values and len(unmatched) == len(values):
        near = ", ".join(map(quoted, closest(unmatched[0], [*nodes, *makers])))
        message = f"no node or tensor of the model has any of the names, such as {quoted(unmatched[0])}."
        raise OnnxNbError(message, advice=f"Closest names: {near}." if near else "")
    return numbers, tuple(unmatched)


def _captured(graph: Graph, capture: Any, label: str) -> NDArray[np.float64]:
    if label in COSTS:
        numbers = np.full(graph.node_count, np.nan)
        for cost in capture.nodes:
            numbers[cost.index] = cost.seconds if label == "seconds" else cost.nbytes
        return numbers
    if label not in STATISTICS:
        listed = ", ".join(map(repr, (*COSTS, *STATISTICS)))
        raise OnnxNbError(f"a capture has no numbers {quoted(label)}.", advice=f"It has {listed}.")
    names = ("nan", "posinf", "neginf") if label == "nonfinite" else (label,)
    found = {row["name"]: [row[name] for name in names] for row in capture.rows() if row["count"]}
    return _named(graph, {name: sum(numbers) for name, numbers in found.items() if None not in numbers})[0]


def _compared(graph: Graph, comparison: Any, label: str | None) -> tuple[str, NDArray[np.float64], tuple[str, ...]]:
    """Return the label, the error of each node's tensors (infinite where only one side is NaN), and unknown names."""
    label = label or ("isolated" if comparison.has_isolated else "cumulative")
    which: Which = "isolated" if comparison.has_isolated and label != "cumulative" else "cumulative"
    if label == "isolated" and not comparison.has_isolated:
        raise OnnxNbError("isolated errors are unknown.", advice='compare_torch computes them; use "cumulative".')
    metric = "rel_l2" if label in ("isolated", "cumulative") else label
    if metric not in METRICS:
        listed = ", ".join(map(repr, ("isolated", "cumulative", *METRICS)))
        raise OnnxNbError(f"a comparison has no numbers {quoted(label)}.", advice=f"It has {listed}.")
    candidate, reference = dict[str, float](), dict[str, float]()
    for point in comparison.points:
        if (errors := getattr(point, which)) is not None:
            same = errors.is_equal and metric == "rel_l2"
            number = math.inf if errors.mismatches else 0.0 if same else errors.metric(metric)
            candidate[point.candidate] = reference[point.reference] = number
    there = set(graph.value_names)
    return label, *_named(graph, max(candidate, reference, key=lambda side: len(there.intersection(side))))


def run_costs(model: ModelLike) -> tuple[Costs, Mapping[str, int]]:
    """Return `costs` with the sizes that `random_feeds` chooses for open dimensions, and these sizes."""
    loaded = load(model)

    def made() -> tuple[Costs, Mapping[str, int]]:
        found, bound = costs(loaded), dict[str, int]()
        if found.unbound:
            shapes = feed_shapes(loaded)
            graph = Graph.of(loaded)
            for value in graph.inputs:
                shape = graph.type_of(int(value)).shape or ()
                sizes = zip(shape, shapes.get(graph.value_names[value], ()), strict=False)
                bound.update({str(dim): size for dim, size in sizes if dim in found.unbound})
            found = costs(loaded, shapes)
        return found, bound

    return cached(loaded, run_costs, made)


def _profiled(path: Path) -> Mapping[str, float]:
    """Return the seconds of each node from a profile of onnxruntime (a Chrome trace)."""
    try:
        events = json.loads(path.read_bytes())
        spans = [(str(event["name"]), float(event["dur"])) for event in events if event.get("cat") == "Node"]
        spans = [(name, time) for name, time in spans if name.endswith("_kernel_time")]
    except OSError as error:
        raise OnnxNbError(f"{quoted(str(path))} cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        advice = "Use the file that InferenceSession.end_profiling() returns."
        raise OnnxNbError(f"{quoted(str(path))} is not a profile of onnxruntime.", advice=advice) from error
    if not spans:
        raise OnnxNbError(f"{quoted(str(path))} has no node times.", advice="Run the session before end_profiling().")
    seconds: Counter[str] = Counter()
    for name, microseconds in spans:
        seconds[name.removesuffix("_kernel_time")] += microseconds / 1e6  # type: ignore[assignment]  # counts floats
    return seconds


def _by_scope(graph: Graph, numbers: NDArray[np.float64], reduce: Reduction) -> NDArray[np.float64]:
    tree = scopes(graph)
    known = ~np.isnan(numbers)
    count = len(tree.scope_parent)
    there = upward(np.add, np.bincount(tree.node_scope[known], minlength=count), tree.scope_parent) > 0
    own = np.full(count, 0.0 if reduce == "sum" else -np.inf)
    combine = np.add if reduce == "sum" else np.maximum
    combine.at(own, tree.node_scope[known], numbers[known])
    by_scope = np.where(there, upward(combine, own, tree.scope_parent), np.nan)
    # in a run a call is one node: the scope of an opened call has its number
    calls = np.flatnonzero((tree.scope_kind == FUNCTION) & ~there)
    by_scope[calls] = numbers[tree.scope_node[calls]]
    return by_scope


def _scale(numbers: NDArray[np.float64]) -> Scale:
    """Return ``log`` for positive numbers that span more than two orders of magnitude."""
    found = numbers[np.isfinite(numbers) & (numbers > 0)]
    if len(found) < 2 or np.any(numbers < 0):
        return "linear"
    return "log" if np.quantile(found, 0.95) > 100 * np.quantile(found, 0.05) else "linear"
