"""A model in numbers: inputs and outputs, operators, weights, costs, versions. No weight is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.cost.costs import Cost, Costs, costs
from onnx_nb.analysis.formatting import path_text, plain_text, shape_text
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, load, weights_of
from onnx_nb.analysis.model.tensors import dtype_name, elements
from onnx_nb.analysis.results import Displayed, Table

if TYPE_CHECKING:
    from onnx_nb.analysis.cost.memory import Cache

LISTED = 20
"""Maximum number of weights, and of scopes, that are listed."""


@dataclass(frozen=True)
class Port:
    """An input or output of the model."""

    name: str
    dtype: str
    """Element type, as ``"float32"``; empty if not declared."""
    shape: str
    """Shape, as ``"batch×3×224×224"``; empty if not declared."""


@dataclass(frozen=True)
class OpCount:
    """Count of an operator, including bodies of If, Loop and Scan."""

    op: str
    domain: str
    category: str
    count: int


@dataclass(frozen=True)
class DtypeTotal:
    """The weights of one dtype."""

    dtype: str
    parameters: int
    nbytes: int


@dataclass(frozen=True)
class LargeWeight:
    """One weight."""

    name: str
    dtype: str
    shape: str
    nbytes: int


@dataclass(frozen=True)
class ScopeCost:
    """The cost of a scope at the top of the graph."""

    scope: str
    cls: str
    """Class of the torch module; empty if unknown."""
    macs: int | None
    """Multiply-accumulates; like the other costs, None if that of any node is unknown."""
    parameters: int
    activation_bytes: int | None


@dataclass(frozen=True)
class Summary(Displayed, Table, panel="summary.ModelSummary"):
    """A model in numbers."""

    name: str
    path: str
    ir_version: int
    producer: str
    opsets: tuple[tuple[str, int], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    op_counts: tuple[OpCount, ...]
    """Counts of operators, most frequent first."""
    nodes: int
    """Number of nodes, including bodies."""
    parameters: int
    """Elements of all weights."""
    nbytes: int
    """Bytes of all weights."""
    by_dtype: tuple[DtypeTotal, ...]
    largest: tuple[LargeWeight, ...]
    """The largest weights, at most twenty."""
    metadata: tuple[tuple[str, str], ...]
    functions: tuple[tuple[str, int], ...]
    """Local functions, each with its number of nodes."""
    doc: str
    faults: tuple[tuple[str, str], ...]
    """Problems of the graph: (kind, message)."""
    cost: Cost | None = None
    """The cost of a run; None if it was not counted."""
    scopes: tuple[ScopeCost, ...] = ()
    """The most expensive scopes at the top of the graph, at most twenty, in data-flow order."""
    unbound: tuple[str, ...] = ()
    """Dimensions of inputs without a known size: bind them by ``shapes={"batch": 1}``."""
    caches: tuple[Cache, ...] = ()
    """The KV caches among the inputs, whose bytes grow with the length of the sequence."""

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of a run; None if those of some node are unknown, see ``cost.unknown_macs``."""
        return None if self.cost is None else self.cost.macs

    @property
    def flops(self) -> int | None:
        """Floating-point operations of a run; None if those of some node are unknown."""
        return None if self.cost is None else self.cost.flops

    @property
    def activation_bytes(self) -> int | None:
        """Bytes of all tensors that a run produces; None if those of some node are unknown."""
        return None if self.cost is None else self.cost.activation_bytes

    def __repr__(self) -> str:
        nodes = f"{self.nodes} node{'' if self.nodes == 1 else 's'}"
        return f"Summary({self.name!r}, {nodes}, {self.parameters:,} parameters, {self.nbytes:,} bytes)"

    _columns = tuple(OpCount.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return the operator counts as rows."""
        return [asdict(row) for row in self.op_counts]

    def without_folder(self) -> Summary:
        """Return the same with the name of the file as its path: a page is for others, the folders here are not."""
        return replace(self, path=Path(self.path).name)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON: each row of a table is a list of its cells."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [row if isinstance(row, str) else list(row if isinstance(row, tuple) else astuple(row)) for row in value]
    return asdict(value) if isinstance(value, Cost) else value


@known_arguments
def summarize(model: ModelLike, shapes: Mapping[str, int | Sequence[int]] | None = None) -> Summary:
    """Summarize a model.

    Parameters
    ----------
    model
        Any `ModelLike`.
    shapes
        Sizes of dimensions by symbol, and shapes by input name, on which MACs, FLOPs and activations depend; see
        `costs`.

    Raises
    ------
    ModelFileError
        If the model cannot be read.
    FeedError
        If ``shapes`` does not fit the inputs of the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) <float[2] w = {1, 2}> { y = Relu(x)  z = Add(y, w) }''')
    >>> summary = summarize(model)
    >>> summary
    Summary('g', 2 nodes, 2 parameters, 8 bytes)
    >>> [(row.op, row.count) for row in summary.op_counts]
    [('Add', 1), ('Relu', 1)]
    >>> summary.macs, summary.flops, summary.activation_bytes
    (0, 4, 16)
    """
    source = load(model)
    return with_costs(outline(source), costs(source, shapes))


def with_costs(summary: Summary, totals: Costs) -> Summary:
    """Return a summary with the cost of a run."""
    tree, sums = totals.scopes, totals.scope_sums
    top = sorted(tree.children(0).tolist(), key=lambda g: (-sums["macs"][g], -sums["activation_bytes"][g], g))
    paths, classes = tree.scope_path, tree.scope_class
    costs_of = {group: totals.of_scope(group) for group in sorted(top[:LISTED])}
    rows = (ScopeCost(paths[g], classes[g], c.macs, c.parameters, c.activation_bytes) for g, c in costs_of.items())
    return replace(summary, cost=totals.total, scopes=tuple(rows), unbound=totals.unbound, caches=totals.caches)


def outline(model: ModelLike) -> Summary:
    """Summarize a model without counting the cost of a run, which takes a second for large graphs."""
    source = load(model)
    graph, proto = Graph.of(source), source.proto
    weights = list(weights_of(source).values())
    parameters: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for weight in weights:
        dtype = dtype_name(weight.dtype)
        parameters[dtype] += max(elements(weight.shape), 0)  # broken models: below 0
        nbytes[dtype] += weight.nbytes
    counts = np.bincount(graph.op_index, minlength=len(graph.operators)).tolist()
    op_counts = [
        OpCount(op, domain, operators.CATEGORIES[operators.category(op, domain)], count)
        for (op, domain), count in zip(graph.operators, counts, strict=True)
    ]

    def ports(values: list[int]) -> tuple[Port, ...]:
        kinds = map(graph.type_of, values)
        return tuple(Port(graph.value_names[v], k.dtype, k.shape_text) for v, k in zip(values, kinds, strict=True))

    producer = " ".join(part for part in map(plain_text, (proto.producer_name, proto.producer_version)) if part)
    return Summary(
        name=source.name,
        path=path_text(source.path or ""),
        ir_version=proto.ir_version,
        producer=producer,
        opsets=tuple((plain_text(entry.domain), entry.version) for entry in proto.opset_import),
        inputs=ports(graph.inputs.tolist()),
        outputs=ports(graph.outputs.tolist()),
        op_counts=tuple(sorted(op_counts, key=lambda row: (-row.count, row.op, row.domain))),
        nodes=graph.node_count,
        parameters=sum(parameters.values()),
        nbytes=sum(nbytes.values()),
        by_dtype=tuple(DtypeTotal(d, parameters[d], nbytes[d]) for d, _ in nbytes.most_common()),
        largest=tuple(
            LargeWeight(w.name, dtype_name(w.dtype), shape_text(w.shape), w.nbytes)
            for w in sorted(weights, key=lambda w: -w.nbytes)[:LISTED]
        ),
        metadata=tuple((plain_text(entry.key), plain_text(entry.value)) for entry in proto.metadata_props),
        functions=tuple((":".join(p for p in key if p), len(f.node)) for key, f in graph.functions.items()),
        doc=plain_text(proto.doc_string or proto.graph.doc_string),
        faults=tuple((fault.kind, fault.message) for fault in graph.problems),
    )
