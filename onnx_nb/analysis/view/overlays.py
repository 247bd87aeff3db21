"""Overlays: a number or a label per node, aggregated per scope, from a dict, a result or the model."""

from __future__ import annotations

import json
import math
import numbers as numeric
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from onnx_nb.analysis.arguments import check_choice, known_arguments
from onnx_nb.analysis.compare.metrics import METRICS
from onnx_nb.analysis.cost.costs import Costs, costs
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, quoted, shape_text
from onnx_nb.analysis.graph.dataflow import upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.types import unwrapped
from onnx_nb.analysis.model.model import ModelLike, cached, load
from onnx_nb.analysis.model.save import write_file
from onnx_nb.analysis.model.saved import read_json, reading
from onnx_nb.analysis.model.tensors import dimensions, input_types
from onnx_nb.analysis.profile.mapping import by_name
from onnx_nb.analysis.profile.result import Kernel, Profile
from onnx_nb.analysis.run.random_feeds import feed_shapes
from onnx_nb.analysis.scopes.scopes import FUNCTION, scopes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.run.capture import Capture

    Source: TypeAlias = (
        Mapping[str, Any] | Sequence[Any] | Capture | Comparison | Costs | Profile | str | os.PathLike[str]
    )
    Floats: TypeAlias = NDArray[np.float64]

Scale = Literal["linear", "log"]
Tool = Literal["model_explorer", "netron"]
Aggregate = Literal["sum", "max"]

_OF_KERNELS: Final[Mapping[str, Callable[[Kernel], float | None]]] = {
    "seconds": lambda kernel: kernel.median,
    "memory": lambda kernel: kernel.memory,
    "gflops": lambda kernel: kernel.rate(kernel.flops),
    "gbs": lambda kernel: kernel.rate(kernel.nbytes),
    "intensity": lambda kernel: kernel.intensity,
}
"""Labels of a profile's numbers per kernel."""
_UFUNCS: Final = {"sum": np.add, "max": np.maximum}
_NETRON: Final = "netron:attachment"
"""Signature of an attachment of Netron."""
_FROM_TORCH: Final = ("max_abs_diff", "max_rel_diff")
"""Numbers of torch's ``VerificationInfo``."""

OWN: Final = {
    "parameters": "parameters",
    "weight bytes": "parameter_bytes",
    "MACs": "macs",
    "activation bytes": "activation_bytes",
}
"""Label of a number that every model has → its name in `Costs`; for open dimensions of the sizes of `random_feeds`."""
STATISTICS: Final = ("std", "mean", "min", "max", "nonfinite", "zeros", "NaN")
"""Labels of a capture's numbers per tensor; a node has the largest number of its outputs. The last is a category."""
SPREAD: Final = ("begins here", "NaN or Inf", "finite")
"""Labels of where NaN and Inf come from, the gravest first: a scope has that of its gravest node."""
PROFILE_LABELS: Final = ("provider", "kernel")
"""Labels of a profile that name a category for each node."""
SEVERAL: Final = "several"
"""Label of a scope whose nodes have different ones."""
COSTS: Final = ("seconds", "bytes")
"""Labels of a capture's numbers per node."""


@dataclass(frozen=True, eq=False)
class Overlay:
    """A number for each node and each scope; NaN where it is unknown."""

    label: str
    scale: Scale
    reduce: Aggregate
    nodes: NDArray[np.float64]
    """Number of each flat node of `Graph.opened`."""
    scopes: NDArray[np.float64]
    """Number of each scope of `Scopes`."""
    unmatched: tuple[str, ...]
    """Names that are not in the model."""
    labels: tuple[str, ...]
    """Labels of an overlay by category: its numbers are indices into them. Empty for numbers."""
    structure: Graph
    """The graph of the model that it is of."""

    def by_name(self) -> dict[str, float | str]:
        """Return the number or label of each node that has one, by the name of its first output.

        `overlay` takes such a dict. Nodes inside functions, whose values have no name in the model, are left out.
        """
        graph = self.structure
        names = ((node, graph.node_outputs(node)) for node in np.flatnonzero(~np.isnan(self.nodes)).tolist())
        tensors = {node: graph.value_names[outputs[0]] for node, outputs in names if len(outputs) and outputs[0] >= 0}
        plain = set(Graph.of(graph.model).value_names)
        numbers = {name: float(self.nodes[node]) for node, name in tensors.items() if name in plain}
        return {name: self.labels[int(n)] for name, n in numbers.items()} if self.labels else {**numbers}

    def save(self, path: str | os.PathLike[str], tool: Tool) -> Path:
        """Write the numbers or labels for another tool, and return the path.

        Parameters
        ----------
        path
            The .json file to write.
        tool
            "model_explorer": node data of Model Explorer; or "netron": an attachment of Netron. `overlay` reads both.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        largest = np.finfo(np.float64).max  # JSON has no infinity
        values = {
            name: value if isinstance(value, str) else float(np.clip(value, -largest, largest))
            for name, value in self.by_name().items()
        }
        label = self.label or "value"
        if tool == "netron":
            rows = [{"kind": "value", "target": name, "name": label, "value": value} for name, value in values.items()]
            one, other = ("metadata", "metrics") if self.labels else ("metrics", "metadata")
            content: dict[str, Any] = {"signature": _NETRON, one: rows, other: []}
        elif tool == "model_explorer":
            content = {"name": label, "results": {name: {"value": value} for name, value in values.items()}}
            if not self.labels:
                content["gradient"] = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d62728"}]
        else:
            raise OnnxNbError(f"overlays are not written for {quoted(tool)}.", advice='"netron" or "model_explorer".')
        return write_file(path, json.dumps(content, indent=1).encode(), [self.structure.model])

    def buffers(self) -> list[bytes]:
        """Return the numbers of nodes and of scopes as the browser reads them."""
        return [column.astype("<f8").tobytes() for column in (self.nodes, self.scopes)]

    def to_json(self) -> dict[str, Any]:
        """Return the description of the numbers, without them."""
        about = {"label": self.label, "scale": self.scale, "reduce": self.reduce, "unmatched": len(self.unmatched)}
        return about | ({"labels": list(self.labels)} if self.labels else {})

    def __repr__(self) -> str:
        numbers = self.nodes[np.isfinite(self.nodes)]
        rest = f", {len(self.unmatched)} names not in the model" if self.unmatched else ""
        labels = f", {count_text(len(np.unique(numbers)), 'label')}" if self.labels else ""
        return f"Overlay({self.label!r}, {len(numbers)} of {len(self.nodes)} nodes{labels}{rest})"


@known_arguments
def overlay(
    model: ModelLike,
    values: Source,
    *,
    label: str | None = None,
    scale: Scale | None = None,
    reduce: Aggregate | None = None,
) -> Overlay:
    """Return an overlay: a number for each node of a model, aggregated per scope.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    values
        One of: a number by name of node or tensor (a node has the largest of its outputs), or a label of any other
        type; a `Capture`; a `Comparison` with the model as a side; `Costs` of the model; a `Profile` of it, or the path
        of one that onnxruntime wrote; one of `OWN`, such as ``"MACs"``; or what other tools made: a list of torch's
        ``VerificationInfo``, the errors of onnxruntime's ``qdq_loss_debug``, and the path of a ``.json`` file with node
        data of Model Explorer or an attachment of Netron. A weight stands for the nodes that read it.
    label
        Name of the numbers in the legend. It selects the number of a capture: ``"seconds"`` (the default),
        ``"bytes"``, ``"std"``, ``"mean"``, ``"min"``, ``"max"``, ``"nonfinite"``, ``"zeros"`` or ``"NaN"`` (one of
        `SPREAD`: where `Capture.nonfinite` says that it begins, and where it is); or of a comparison:
        ``"isolated"`` (the default if known) or ``"cumulative"``, the relative L2 error, or one of `METRICS`; or of
        costs: ``"macs"`` (the default), ``"flops"``, ``"parameters"``, ``"parameter_bytes"``, ``"activation_bytes"``;
        or of a profile: ``"seconds"`` (the default), ``"provider"``, ``"kernel"`` (the operator that ran),
        ``"memory"``, ``"gflops"``, ``"gbs"``, ``"intensity"`` (FLOPs for each byte). Nodes that one kernel computes all
        have its number; in their scope it counts once. Or ``"max_abs_diff"`` (the default) or ``"max_rel_diff"`` of
        torch, ``"qdq_err"`` (the default) or ``"xmodel_err"`` of onnxruntime, or one of the names in a file.
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
    >>> overlay(model, {"y": "CUDA", "z": "CPU"}, label="provider")
    Overlay('provider', 2 of 2 nodes, 2 labels)
    """
    check_choice("scale", scale, Scale)
    check_choice("reduce", reduce, Aggregate)
    source = load(model)
    graph = Graph.opened(source)
    label, values = _foreign(graph, values, label) or (label, values)
    if isinstance(values, Mapping) and not all(
        isinstance(value, numeric.Real) and not isinstance(value, bool) for value in values.values()
    ):
        return _labeled(graph, {str(name): value for name, value in values.items()}, label or "")
    if isinstance(values, str | os.PathLike) and values not in OWN:
        values = Profile.read(values, source)
    if isinstance(values, Profile) and label in PROFILE_LABELS:
        texts = {
            node: kernel.provider if label == "provider" else kernel.op
            # the last one counts: the longest that was not inserted
            for kernel in sorted(values.kernels, key=lambda kernel: (not kernel.edge, kernel.median))
            for node in (*kernel.nodes, *kernel.opened)
        }
        return _labeled(graph, texts, label)
    misses: tuple[str, ...] = ()
    by_scope = None
    default: Aggregate = "max"
    if isinstance(values, str):
        metric = OWN[values]
        totals = run_costs(source)[0] if metric in ("macs", "activation_bytes") else costs(source)
        label, default = label or values, "sum"
        numbers, by_scope = _costed(graph, totals, metric)
    elif isinstance(values, Costs):
        label, default = _one_of(label, (*values.scope_sums,), "costs have"), "sum"
        numbers, by_scope = _costed(graph, values, label)
    elif isinstance(values, Mapping):
        numbers, misses = _named(graph, values)
    elif hasattr(values, "first_divergent"):
        label, numbers, misses = _compared(graph, values, label)
    elif hasattr(values, "statistics"):
        label = _one_of(label, (*COSTS, *STATISTICS), "a capture has")
        if label == "NaN":
            return _spread(graph, values)
        default = "sum" if label in COSTS else "max"
        numbers = _captured(graph, values, label)
    elif isinstance(values, Profile):
        label = _one_of(label, (*_OF_KERNELS, *PROFILE_LABELS), "a profile has")
        default = "sum" if label == "seconds" else "max"
        numbers, by_scope = _profiled(graph, values, label, reduce or default)
    else:
        takes = "a dict by name, a Capture, a Comparison, Costs, a Profile, the path of a profile, a list of "
        takes += f"VerificationInfo, or one of {', '.join(OWN)}"
        raise TypeError(f"overlay() takes values as {takes}, not {type(values).__name__}.")
    reduce = reduce or default
    if by_scope is None or (reduce != "sum" and not isinstance(values, Profile)):
        by_scope = _by_scope(graph, numbers, reduce)
    return Overlay(label or "", scale or _scale(numbers), reduce, numbers, by_scope, misses, (), graph)


def _foreign(graph: Graph, values: Any, label: str | None) -> tuple[str, dict[str, Any]] | None:
    """Return the label and the numbers or labels by name in what another tool made; None if no other tool did."""
    if isinstance(values, list | tuple) and values:
        rows = [entry if isinstance(entry, Mapping) else getattr(entry, "__dict__", {}) for entry in values]
        if all("name" in row and _FROM_TORCH[0] in row for row in rows):
            label = _one_of(label, _FROM_TORCH, "verification infos have")
            return label, {str(row["name"]): float(row[label]) for row in rows}
    if isinstance(values, Mapping) and values and all(isinstance(entry, Mapping) for entry in values.values()):
        labels = dict.fromkeys(str(name) for entry in values.values() for name in entry)
        if labels.keys() & {"qdq_err", "xmodel_err"}:
            label = _one_of(label, tuple(labels), "errors of quantization have")
            return label, {str(name): float(entry[label]) for name, entry in values.items() if label in entry}
    if not isinstance(values, str | os.PathLike) or Path(values).suffix != ".json":
        return None
    path = Path(values)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(64).lstrip()[:1] != b"{":
            return None  # a profile of onnxruntime is a list
    with reading(path, "an overlay"):
        content = read_json(path)
        if content.get("signature") == _NETRON:
            rows = [*content.get("metrics", ()), *content.get("metadata", ())]
            rows = [row for row in rows if row.get("kind") in ("node", "value", "tensor") and row.get("target")]
            labels = dict.fromkeys(str(row["name"]) for row in rows)
            label = _one_of(label, tuple(labels) or ("",), "the rows of the attachment have")
            cells = {str(row["target"]): row["value"] for row in rows if row["name"] == label}
        else:  # of Model Explorer: the graph with most of the names, which are those of outputs or nodes
            graphs = {"": content} if "results" in content else content
            if not graphs or not all(isinstance(entry, dict) and "results" in entry for entry in graphs.values()):
                return None
            names = {*graph.names, *graph.value_names}
            best = max(graphs.values(), key=lambda part: len(names.intersection(part["results"])))
            label = label or str(best.get("name") or "")
            rows = best["results"].items()
            cells = {name: part["value"] if isinstance(part, Mapping) else part for name, part in rows}
        try:  # numbers may be written as text
            return label, {name: float(value) for name, value in cells.items()}
        except (TypeError, ValueError):
            return label, {name: str(value) for name, value in cells.items()}


def _one_of(label: str | None, labels: Sequence[str], owner: str) -> str:
    """Return a label, by default the first; raise unless it is one of those that an owner "has", or owners "have"."""
    label = label or labels[0]
    if label not in labels:
        pronoun = "It has" if owner.endswith("has") else "They have"
        raise OnnxNbError(f"{owner} no numbers {quoted(label)}.", advice=f"{pronoun} {', '.join(map(repr, labels))}.")
    return label


def _costed(graph: Graph, totals: Costs, metric: str) -> tuple[Floats, Floats]:
    numbers, tree = np.asarray(getattr(totals, metric), np.float64), totals.scopes
    if len(numbers) != graph.node_count:
        message = f"the costs are those of another model, with {len(numbers)} nodes instead of {graph.node_count}."
        raise OnnxNbError(message, advice="Compute them for this one: onnx_nb.costs(model).")
    inside = np.bincount(tree.node_scope[~np.isnan(numbers)], minlength=len(tree.scope_parent))
    return numbers, np.where(upward(np.add, inside, tree.scope_parent) > 0, totals.scope_sums[metric], np.nan)


def _named(graph: Graph, values: Mapping[str, float]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    nodes = by_name(graph.names)
    makers: dict[str, list[int]] = {}
    for value, name in enumerate(graph.value_names):
        if graph.value_kind[value] == INITIALIZER and name in values:
            makers.setdefault(name, []).extend(graph.consumers(value).tolist())
        else:
            makers.setdefault(name, []).append(int(graph.producer[value]))
    numbers = np.full(graph.node_count, np.nan)
    misses = []
    for name, number in values.items():
        matches = nodes.get(name) or makers.get(name)
        if matches is None:
            misses.append(str(name))
            continue
        for node in matches:
            if node >= 0 and not numbers[node] > float(number):
                numbers[node] = float(number)
    if values and len(misses) == len(values):
        message = f"no node or tensor of the model has any of the names, such as {quoted(misses[0])}."
        raise OnnxNbError(message, advice=closest_text(misses[0], [*nodes, *makers]))
    return numbers, tuple(misses)


def _captured(graph: Graph, capture: Any, label: str) -> NDArray[np.float64]:
    if label in COSTS:
        numbers = np.full(graph.node_count, np.nan)
        for cost in capture.nodes:
            numbers[cost.index] = cost.seconds if label == "seconds" else cost.nbytes
        return numbers
    names = ("nan", "posinf", "neginf") if label == "nonfinite" else (label,)
    counts = {row["name"]: [row[name] for name in names] for row in capture.rows() if row["count"]}
    return _named(graph, {name: sum(numbers) for name, numbers in counts.items() if None not in numbers})[0]


def _spread(graph: Graph, capture: Any) -> Overlay:
    """Return where NaN or Inf begins: at a node, or at the readers of a weight or an input that holds it."""
    counts = _captured(graph, capture, "nonfinite")
    numbers = np.where(np.isnan(counts), np.nan, np.where(counts > 0, 1.0, 2.0))
    if (first := capture.nonfinite()) is not None:
        value = graph.value(first.name)
        numbers[[int(graph.producer[value])] if first.node else graph.consumers(value)] = 0.0
    return Overlay("NaN", "linear", "max", numbers, -_by_scope(graph, -numbers, "max"), (), SPREAD, graph)


def _compared(graph: Graph, comparison: Any, label: str | None) -> tuple[str, NDArray[np.float64], tuple[str, ...]]:
    """Return the label, the error of each node's tensors (infinite where only one side is NaN), and unknown names."""
    if label == "isolated" and not comparison.has_isolated:
        raise OnnxNbError("isolated errors are unknown.", advice='Compare with isolated=True, or use "cumulative".')
    kinds = ("isolated", "cumulative")[not comparison.has_isolated :]
    label = _one_of(label or kinds[0], ("isolated", "cumulative", *METRICS), "a comparison has")
    which, metric = (label, "rel_l2") if label in kinds else (kinds[0], label)
    candidate, reference = dict[str, float](), dict[str, float]()
    for point in comparison.points:
        if (errors := getattr(point, which)) is not None:
            same = errors.is_equal and metric == "rel_l2"
            number = math.inf if errors.mismatches else 0.0 if same else errors.metric(metric)
            candidate[point.candidate] = reference[point.reference] = number
    there = set(graph.value_names)
    return label, *_named(graph, max(candidate, reference, key=lambda side: len(there.intersection(side))))


def free_sizes(model: ModelLike) -> dict[str, int | tuple[int, ...]]:
    """Return what `random_feeds` chooses, as ``shapes=``: sizes by name, and shapes of inputs with nameless axes."""
    kinds, sizes = input_types(load(model)), dict[str, int | tuple[int, ...]]()
    for name, shape in feed_shapes(model).items():
        dims = dimensions(unwrapped(kinds[name])) or (None,)
        named = {dim: size for dim, size in zip(dims, shape, strict=False) if isinstance(dim, str)}
        sizes.update({name: shape} if None in dims and shape else named)
    return sizes


def run_costs(model: ModelLike) -> tuple[Costs, Mapping[str, str]]:
    """Return `costs` with the sizes that `random_feeds` chooses for open dimensions, and these sizes as text."""

    def compute() -> tuple[Costs, Mapping[str, str]]:
        free = free_sizes(model)
        return costs(model, free), {name: shape_text(size) for name, size in free.items()}

    return cached(load(model), run_costs, compute)


def _profiled(graph: Graph, profile: Profile, label: str, reduce: Aggregate) -> tuple[Floats, Floats]:
    """Return a number of each node's kernels, and of each scope: those of the kernels inside it."""
    if profile.graph.names != graph.names:
        raise OnnxNbError("the profile is that of another model.", advice="Profile this one: onnx_nb.profile(model).")
    numbers = np.full(graph.node_count, np.nan)
    by_kernel = np.asarray([_OF_KERNELS[label](kernel) for kernel in profile.kernels], np.float64)  # None becomes NaN
    by_kernel[np.asarray(profile.kernel_scopes, np.int64) < 0] = np.nan
    for kernel, number in zip(profile.kernels, by_kernel.tolist(), strict=True):
        if not math.isnan(number):
            nodes = [*kernel.nodes, *kernel.opened]
            numbers[nodes] = _UFUNCS[reduce](np.where(np.isnan(numbers[nodes]), 0.0, numbers[nodes]), number)
    return numbers, _by_scope(graph, numbers, reduce, (profile.kernel_scopes, by_kernel))


def _labeled(graph: Graph, values: Mapping[str, Any] | Mapping[int, str], label: str) -> Overlay:
    """Return an overlay of labels, the most frequent first; a scope has the label of all nodes in it, or `SEVERAL`.

    The values are those of names, or of nodes by position, which need no name.
    """
    texts = {key: str(value) for key, value in values.items()}
    count = Counter(texts.values())
    labels = [text for text, _ in count.most_common() if text != SEVERAL]
    index = {text: float(number) for number, text in enumerate((*labels, SEVERAL))}
    by_name = {key: index[text] for key, text in texts.items() if isinstance(key, str)}
    numbers, misses = _named(graph, by_name) if by_name else (np.full(graph.node_count, np.nan), ())
    for key, text in texts.items():
        if isinstance(key, int):
            numbers[key] = index[text]
    most = _by_scope(graph, numbers, "max")
    least = -_by_scope(graph, -numbers, "max")
    by_scope = np.where(np.isnan(most) | (most == least), most, index[SEVERAL])
    if SEVERAL in count or np.any(by_scope == index[SEVERAL]):
        labels.append(SEVERAL)
    return Overlay(label, "linear", "max", numbers, by_scope, misses, tuple(labels), graph)


def _by_scope(
    graph: Graph, numbers: Floats, reduce: Aggregate, entries: tuple[ArrayLike, Floats] | None = None
) -> Floats:
    """Return the number of each scope: of its nodes, or of entries, each with its scope and its number."""
    tree = scopes(graph)
    places, values = (tree.node_scope, numbers) if entries is None else (np.asarray(entries[0], np.int64), entries[1])
    places, values = places[~np.isnan(values)], values[~np.isnan(values)]
    count, combine = len(tree.scope_parent), _UFUNCS[reduce]
    has_number = upward(np.add, np.bincount(places, minlength=count), tree.scope_parent) > 0
    direct = np.full(count, 0.0 if reduce == "sum" else -np.inf)
    combine.at(direct, places, values)
    by_scope = np.where(has_number, upward(combine, direct, tree.scope_parent), np.nan)
    # in a run a call is one node: the scope of an opened call has its number
    calls = np.flatnonzero((tree.scope_kind == FUNCTION) & ~has_number)
    by_scope[calls] = numbers[tree.scope_node[calls]]
    return by_scope


def _scale(numbers: NDArray[np.float64]) -> Scale:
    """Return ``log`` for positive numbers that span more than two orders of magnitude."""
    sizes = numbers[np.isfinite(numbers) & (numbers > 0)]
    if len(sizes) < 2 or np.any(numbers < 0):
        return "linear"
    return "log" if np.quantile(sizes, 0.95) > 100 * np.quantile(sizes, 0.05) else "linear"
