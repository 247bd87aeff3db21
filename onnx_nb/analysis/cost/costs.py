"""The cost of a run of a model: MACs, FLOPs, parameters and activation bytes of every node and scope.

Shapes come from `shape_inference`, formulas from `flops.count`; costs are summed over bodies, calls and scopes.
An unknown cost is NaN, reported with the reason, and never taken for zero.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx.defs
from onnx import TensorProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.cost import flops
from onnx_nb.analysis.cost.memory import Cache, Memory, caches, liveness
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, closest_text, count_text, plain_text, quoted, scaled_text, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.shape_inference import Case, Inference, infer
from onnx_nb.analysis.graph.types import MOST, Column, ValueType, weight_sizes
from onnx_nb.analysis.model.model import ModelLike, cached
from onnx_nb.analysis.model.protofields import Ints, sorted_unique
from onnx_nb.analysis.results import data_frame
from onnx_nb.analysis.scopes.scopes import BODY, BRANCH, FUNCTION, Scopes, scopes
from onnx_nb.analysis.scopes.weights import scope_weights, weights_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd


By = Literal["node", "scope"]

_RUN = ("macs", "flops", "activation_bytes")
"""Metrics that depend on shapes and so may be unknown."""
_METRICS = ("macs", "flops", "parameters", "parameter_bytes", "activation_bytes")


@dataclass(frozen=True)
class Cost:
    """The cost of a node, a scope or the whole model."""

    macs: int | None
    """Multiply-accumulates; None if those of any node are unknown."""
    flops: int | None
    parameters: int
    """Elements of the weights that are read, each weight counted once."""
    parameter_bytes: int
    activation_bytes: int | None
    known_macs: int
    """Sum over nodes with known MACs: a lower bound of `macs`."""
    known_flops: int
    known_activation_bytes: int
    unknown_macs: int
    """Number of nodes with unknown MACs."""
    unknown_flops: int
    unknown_activation_bytes: int

    def __repr__(self) -> str:
        macs = f"{'≥ ' if self.unknown_macs else ''}{scaled_text(self.known_macs, 'MACs')}"
        flops_ = f"{'≥ ' if self.unknown_flops else ''}{scaled_text(self.known_flops, 'FLOPs')}"
        size = f"{'≥ ' if self.unknown_activation_bytes else ''}{bytes_text(self.known_activation_bytes)}"
        return f"Cost({macs}, {flops_}, {scaled_text(self.parameters)} parameters, {size} of activations)"


@dataclass(frozen=True)
class UnknownCost:
    """A node with an unknown cost."""

    node: int
    """Number of the flat node."""
    name: str
    op: str
    reason: str


@dataclass(frozen=True, eq=False)
class Costs:
    """The cost of a run. Columns have an entry for each flat node of `graph`, or each scope of `scopes`.

    `graph` is that of `Graph.opened`: nodes inside calls follow the others.
    """

    graph: Graph
    scopes: Scopes
    macs: Column
    """Multiply-accumulates of each node, NaN where unknown; `costs` defines them."""
    flops: Column
    parameters: Column
    """Elements of the weights that each node reads."""
    parameter_bytes: Column
    activation_bytes: Column
    """Bytes of the outputs of each node."""
    reasons: tuple[str, ...]
    reason_of: Ints
    """Index into `reasons`: the reason why a cost of each node is unknown; the first is empty."""
    scope_sums: Mapping[str, Column]
    """Sums over known costs in each scope, for macs, flops, parameters, parameter_bytes and activation_bytes; for a
    BRANCH, the cost of one run of it."""
    scope_unknown: Mapping[str, Ints]
    """Number of nodes in each scope with an unknown cost, for macs, flops and activation_bytes."""
    unbound: tuple[str, ...]
    """Dimensions of inputs without a known size: bind them by ``shapes={"batch": 1}``."""
    caches: tuple[Cache, ...]
    """The KV caches among the inputs, with their bytes for each token: one for each symbol of a length."""
    _nbytes: Column
    """Bytes of each value; NaN if unknown."""

    @functools.cached_property
    def memory(self) -> Memory:
        """What is alive when, and the peak."""
        return liveness(self.graph, self._nbytes, self.graph.model.nbytes)

    @property
    def total(self) -> Cost:
        """The cost of the whole model."""
        return self.of_scope(0)

    def scope(self, path: str) -> Cost:
        """Return the cost of a scope, by its path in `Scopes.scope_path`, such as ``"encoder/layer.0"``.

        Raises
        ------
        OnnxNbError
            If there is no such scope; the message names the closest ones.
        """
        paths = self.scopes.scope_path
        matches = [paths.index(path)] if path in paths else self.scopes.named(path)
        if not matches:
            advice = closest_text(path, paths) or "List them with costs.rows('scope')."
            raise OnnxNbError(f"the model has no scope {quoted(path)}.", advice=advice)
        if len(matches) > 1:
            names = ", ".join(quoted(paths[scope]) for scope in matches[:5])
            raise OnnxNbError(f"scope {quoted(path)} may be one of {names}.", advice="Name it in full.")
        return self.of_scope(matches[0])

    def of_scope(self, group: int) -> Cost:
        """Return the cost of a scope of `scopes`, by its number."""
        sums = {metric: float(column[group]) for metric, column in self.scope_sums.items()}
        return _cost(sums, {metric: int(column[group]) for metric, column in self.scope_unknown.items()})

    def node(self, name: str) -> Cost:
        """Return the cost of a node.

        Raises
        ------
        OnnxNbError
            If there is no node with that name; the message names the closest ones.
        """
        if not name or name not in self.graph.names:
            raise OnnxNbError(f"the model has no node {quoted(name)}.", advice=closest_text(name, self.graph.names))
        return self.of_node(self.graph.names.index(name))

    def of_node(self, node: int) -> Cost:
        """Return the cost of a flat node."""
        figures = {metric: float(getattr(self, metric)[node]) for metric in _METRICS}
        unknown = {metric: int(math.isnan(figures[metric])) for metric in _RUN}
        return _cost({metric: 0.0 if math.isnan(size) else size for metric, size in figures.items()}, unknown)

    def of_nodes(self, nodes: Sequence[int]) -> Cost:
        """Return the total cost of flat nodes, each weight counted once; a node with bodies includes those inside."""
        is_member = np.zeros(self.graph.node_count, bool)
        is_member[list(nodes)] = True
        reader, value, elements, nbytes = weights_read(self.graph)
        read = sorted_unique(value[is_member[reader]])
        run = {metric: getattr(self, metric)[is_member] for metric in _RUN}
        sums = {metric: float(np.nansum(column)) for metric, column in run.items()}
        sums |= {"parameters": float(elements[read].sum()), "parameter_bytes": float(nbytes[read].sum())}
        return _cost(sums, {metric: int(np.isnan(column).sum()) for metric, column in run.items()})

    @functools.cached_property
    def unknown(self) -> tuple[UnknownCost, ...]:
        """The nodes with an unknown cost, and the reasons."""
        return tuple(
            UnknownCost(node, self.graph.names[node], self.graph.op_type(node), self.reasons[self.reason_of[node]])
            for node in np.flatnonzero(self.reason_of).tolist()
        )

    def rows(self, by: By = "node") -> list[dict[str, Any]]:
        """Return a row for each node, or each scope; unknown costs are None.

        Returns
        -------
        list of dict
            By node: node, op, scope, macs, flops, parameters, parameter_bytes, activation_bytes, and in ``unknown`` the
            reason. By scope: scope, class, macs, … and in ``unknown`` the number of nodes.
        """
        if by == "scope":
            return [
                {"scope": path, "class": self.scopes.scope_class[group]}
                | {metric: getattr(cost := self.of_scope(group), metric) for metric in _METRICS}
                | {"unknown": max(cost.unknown_macs, cost.unknown_flops, cost.unknown_activation_bytes)}
                for group, path in enumerate(self.scopes.scope_path)
            ]
        places = np.asarray(self.scopes.scope_path, object)[self.scopes.node_scope].tolist()
        columns: dict[str, list[Any]] = {metric: _cells(getattr(self, metric)) for metric in _METRICS}
        columns["unknown"] = np.asarray(self.reasons, object)[self.reason_of].tolist()
        return [
            {"node": name, "op": self.graph.op_type(node), "scope": places[node]}
            | {key: column[node] for key, column in columns.items()}
            for node, name in enumerate(self.graph.names)
        ]

    def to_frame(self, by: By = "node") -> pd.DataFrame:
        """Return `rows` as a ``pandas.DataFrame`` (needs pandas)."""
        keys = ["node", "op", "scope"] if by == "node" else ["scope", "class"]
        return data_frame(self.rows(by), [*keys, *_METRICS, "unknown"]).astype(dict.fromkeys(_METRICS, "float64"))

    def __repr__(self) -> str:
        cost = self.total
        nodes = int(np.count_nonzero(self.reason_of[: self.graph.main_count]))
        unknown = f"; {count_text(nodes, 'node')} unknown" if nodes else ""
        named = ", ".join(quoted(shortened(symbol, 40)) for symbol in self.unbound[:4])
        bind = f"; bind {named} with shapes=" if named else ""
        return f"Costs({repr(cost)[5:-1]}{unknown}{bind})"


def _cells(column: Column) -> list[float | None]:
    return [None if math.isnan(x) else int(x) if x.is_integer() else x for x in column.tolist()]


@known_arguments
def costs(model: ModelLike, shapes: Mapping[str, int | Sequence[int]] | None = None) -> Costs:
    """Count the cost of one run of a model, for every node and scope. No weight is read, and nothing is run.

    MACs
        A multiply-accumulate is a product added to a sum. MACs are counted in Conv, ConvTranspose, Gemm, MatMul,
        Einsum, attention, LSTM, GRU and RNN, their quantized forms, and linear models. Taps on padding count like
        others, and causal masks subtract nothing. ``torch.utils.flop_counter`` counts twice the MACs.
    FLOPs
        Two for each multiply-accumulate, one for each element to which a bias is added or that a factor other than 1
        scales, and otherwise, for each element, the steps of the formula in the ONNX standard: 1 for elementwise
        functions and comparisons, 5 for Softmax (largest, difference, exponential, sum, quotient), 7 for
        LayerNormalization, 2 for BatchNormalization, 1 for each element that is reduced or each tap of a pooling
        window. Steps taken once per row do not count. Integers count like floats; moving, casting and looking up data
        cost nothing.
    weights
        Elements of the weights that a node reads, initializers or Constants, and of the lists in the attributes of
        trees, linear models and vocabularies. Sums count a weight once, even if many nodes read it.
    activations
        Bytes of the tensors that a node produces, including views such as those of Reshape: their sum is the bytes that
        a run writes if nothing is done in place, not its peak memory.

    The cost of an If is that of its larger branch; the cost of a Loop or Scan is that of its body times the number of
    iterations. Nodes inside a body have the cost of one run of it. A call of a local function has the cost of its whole
    body, and the nodes in it their share.
    Nodes that only compute constants from constants (`Graph.folded`) cost nothing: a runtime computes them once.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    shapes
        Sizes of dimensions by symbol, as ``{"batch": 1}``, and shapes by input name.

    Raises
    ------
    FeedError
        If ``shapes`` does not fit the inputs of the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[n, 4] x, float[4, 5] w) => (float[n, 5] z) { y = MatMul(x, w)  z = Relu(y) }''')
    >>> costs(model, shapes={"n": 3})
    Costs(60 MACs, 135 FLOPs, 0 parameters, 120 B of activations)
    >>> costs(model)
    Costs(≥ 0 MACs, ≥ 0 FLOPs, 0 parameters, ≥ 0 B of activations; 2 nodes unknown; bind 'n' with shapes=)
    >>> costs(model).unknown[0].reason
    "'n', the size of axis 0 of input 0, is not known"
    """
    graph = Graph.opened(model)
    return _counted(infer(graph, shapes)) if shapes else cached(graph.model, Costs, lambda: _counted(infer(graph)))


def _counted(types: Inference) -> Costs:
    graph = types.graph
    tree = scopes(graph)
    run, reasons, reason_of = _run_costs(types)
    node, value, parameters, nbytes = weights_read(graph)
    sums, unknown = _scope_sums(tree, run)
    columns = dict(zip(_RUN, run, strict=True))
    for metric, size in (("parameters", parameters), ("parameter_bytes", nbytes)):
        sums[metric] = scope_weights(tree, node, value, size)
        columns[metric] = np.bincount(node, size[value], graph.node_count).astype(np.float64)
    return Costs(
        graph=graph,
        scopes=tree,
        reasons=reasons,
        reason_of=reason_of,
        scope_sums={metric: sums[metric] for metric in _METRICS},
        scope_unknown=unknown,
        unbound=types.unbound,
        caches=caches(types),
        _nbytes=_sizes(types),
        **columns,
    )


def _bytes_of(kind: ValueType) -> float:
    """Return the bytes of a value; NaN if they are unknown."""
    is_sized = kind.size is not None and kind.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING)
    return min(float(kind.nbytes), MOST) if is_sized else math.nan


def _sizes(types: Inference) -> Column:
    """Return the bytes of each value; NaN where they are unknown."""
    used, of_value = np.unique(types.of_value, return_inverse=True)
    sizes = np.asarray([_bytes_of(types.table.known[number]) for number in used.tolist()], np.float64)
    is_weight, weights = types.graph.value_kind == INITIALIZER, weight_sizes(types.graph)[1]
    return np.where(is_weight, weights[: len(is_weight)], sizes[of_value]) if len(used) else np.zeros(0)


def _run_costs(types: Inference) -> tuple[Column, tuple[str, ...], Ints]:
    """Return MACs, FLOPs and activation bytes of each node as three rows, and the reasons why some are unknown."""
    graph = types.graph
    reasons = {"": 0, "it is in subgraphs that are nested too deep": 1}
    # the last entry is for nodes that were not reached
    of_case = np.full((3, len(types.cases) + 1), math.nan)
    reason_of_case = np.ones(len(types.cases) + 1, np.int32)
    for number, case in enumerate(types.cases):
        of_case[:, number], reason = _of_case(case)
        reason_of_case[number] = reasons.setdefault(reason, len(reasons))
    figures, reason_of = of_case[:, types.case_of], reason_of_case[types.case_of]
    for node, why in graph.closed_calls.items():
        reason_of[node] = reasons.setdefault(f"its call is not looked into: {why}", len(reasons))
    figures[:, graph.folded] = 0
    reason_of[graph.folded] = 0
    # nodes in subgraphs come after the node that owns them, so the innermost subgraphs are added first
    for owner in sorted({subgraph.owner_node for subgraph in graph.subgraphs[1:]}, reverse=True):
        subgraphs = [graph.subgraphs[number] for number in graph.bodies(owner)]
        if subgraphs[0].function is not None:  # the outputs of a call are counted inside it
            figures[:, owner] = 0
            reason_of[owner] = 0
        each = [figures[:, body.start : body.stop].sum(axis=1) for body in subgraphs]
        trips, reason = types.trips.get(owner), ""
        if graph.operators[graph.op_index[owner]] == ("If", ""):
            inside = functools.reduce(np.maximum, each)
        elif trips is None:  # zero stays zero for any number of iterations
            inside = np.sum([np.where(body == 0, 0.0, math.nan) for body in each], axis=0)
            reason = "how often its body runs is not known before the run"
        else:
            inside = trips * np.sum(each, axis=0) if trips else np.zeros(3)
        figures[:, owner] = np.minimum(figures[:, owner] + inside, MOST)
        first = next((n for body in subgraphs for n in range(body.start, body.stop) if reason_of[n]), -1)
        if first >= 0 and np.isnan(inside).any():
            op = shortened(graph.operators[graph.op_index[first]][0], 100)
            reason = f"inside it, {op}: {list(reasons)[reason_of[first]]}"
        if reason:
            reason_of[owner] = reasons.setdefault(reason, len(reasons))
    return figures, tuple(reasons), reason_of


def _of_case(case: Case) -> tuple[tuple[float, float, float], str]:
    """Return MACs, FLOPs and activation bytes, and the reason why one of them is unknown."""
    op = plain_text(case.node.op_type)
    has_bodies = op in operators.names_where("bodies") and not case.domain
    macs, steps, reason = (0.0, 0.0, "") if has_bodies else flops.count(case)
    if reason and operators.facts(op, case.domain).cost == "?" and (inside := _of_body(case)) is not None:
        macs, steps, reason = *inside, ""
    nbytes, no_bytes = 0.0, ""
    for place, kind in enumerate(case.outputs):
        size = 0.0 if kind is None else _bytes_of(kind)
        nbytes += size
        if kind is not None and math.isnan(size):
            what = "the shape" if kind.elem_type else "the type"
            what = "the length of the strings" if kind.size is not None else what
            no_bytes = no_bytes or f"{what} of output {place} is unknown"
    return (min(macs, MOST), min(steps, MOST), nbytes), reason or no_bytes


def _of_body(case: Case) -> tuple[float, float] | None:
    """Return MACs and FLOPs of the function that the specification defines a node by; None if they are unknown."""
    kinds = [onnx.TypeProto() if kind is None else kind.proto for kind in case.inputs]
    proto, version = onnx.NodeProto.FromString(case.node.SerializeToString()), case.version
    if case.domain == "com.microsoft":  # another operator of that name may have other attributes
        proto.domain, version = "", onnx.defs.onnx_opset_version()
        definition = operators.schema(proto.op_type, "", version)
        if definition is None or any(attribute.name not in definition.attributes for attribute in proto.attribute):
            return None
    function = operators.body(proto, version, kinds)
    if function is None:
        return None
    # names may be bytes
    names = [name and f"input {place}" for place, name in enumerate(case.node.input)]
    results = [name and f"output {place}" for place, name in enumerate(case.node.output)]
    node = onnx.NodeProto(op_type="Body", domain="body", input=names, output=results)
    node.attribute.extend(case.node.attribute)
    function.name, function.domain = node.op_type, node.domain
    read = zip(names, kinds, case.values, strict=True)
    constant = {name: onnx.numpy_helper.from_array(value, name) for name, _, value in read if value is not None}
    infos = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in zip(names, kinds, strict=True)]
    fed = [info for info in infos if info.name and info.name not in constant]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "body", fed, outputs, [*constant.values()])
    imports = [onnx.helper.make_opsetid(node.domain, 1), *function.opset_import]
    model = onnx.helper.make_model(graph, opset_imports=imports, functions=[function])
    macs, steps = _run_costs(infer(Graph.opened(model)))[0][:2, 0].tolist()
    return None if math.isnan(macs + steps) else (macs, steps)


def _scope_sums(tree: Scopes, run: Column) -> tuple[dict[str, Column], dict[str, Ints]]:
    """Sum the known costs in each scope, and count the unknown ones."""
    apart = np.isin(tree.scope_kind, (BODY, BRANCH, FUNCTION))
    # the node that owns a body is outside the body's scope, and includes its cost
    parent = np.where(apart, -1, tree.scope_parent)
    bodies = np.flatnonzero((tree.scope_kind == BODY) | (tree.scope_kind == FUNCTION))
    sums: dict[str, Column] = {}
    unknown: dict[str, Ints] = {}
    for metric, column in zip(_RUN, run, strict=True):
        missing = np.isnan(column)
        known = np.where(missing, 0.0, column)
        total = upward(np.add, np.bincount(tree.node_scope, known, len(parent)).astype(np.float64), parent)
        count = upward(np.add, np.bincount(tree.node_scope, missing, len(parent)).astype(np.int64), parent)
        total[bodies], count[bodies] = known[tree.scope_node[bodies]], missing[tree.scope_node[bodies]]
        sums[metric], unknown[metric] = total, count.astype(np.int32)
    return sums, unknown


def _cost(sums: Mapping[str, float], unknown: Mapping[str, int]) -> Cost:
    figures: dict[str, Any] = {metric: None if unknown.get(metric) else int(sums[metric]) for metric in _METRICS}
    for metric in _RUN:
        figures |= {f"known_{metric}": int(sums[metric]), f"unknown_{metric}": unknown[metric]}
    return Cost(**figures)
