"""Texts of the inspector: details of one node, tensor or scope, and the sums of several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.cost.costs import Cost
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, duration_text, plain_text, scaled_text, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import LONGEST, attribute_text, default_text
from onnx_nb.analysis.model.model import ModelLike, load, weight_info
from onnx_nb.analysis.pytorch.module_scopes import source_of
from onnx_nb.analysis.scopes.scopes import BRANCH, FUNCTION, Scopes, scopes
from onnx_nb.analysis.submodel.assembly import of_body
from onnx_nb.analysis.submodel.extraction import nodes_of_scopes, ports
from onnx_nb.analysis.view.overlays import Overlay, run_costs

ROUND = "one round of "

Origin = Literal["given", "default", "given default"]


@dataclass(frozen=True)
class Inspection:
    """Known facts about a node, tensor or scope, as plain text."""

    rows: tuple[tuple[str, str], ...]
    """Label and text."""
    attributes: tuple[tuple[str, str, Origin], ...]
    """Names and values of a node's attributes, and whether the node sets each, omits it, or sets it to the default."""
    documentation: str
    """Operator documentation of onnx; empty for tensors."""
    source: str
    """Line of the torch module, such as ``modeling_bert.py:312``; empty if unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return dict(vars(self))


def inspect(model: ModelLike, kind: str, index: int) -> Inspection:
    """Return the known facts about a node or tensor of `Graph.opened`; none for a scope: the columns have them."""
    graph = Graph.opened(load(model))
    if kind == "scope":
        return Inspection((), (), "", "")
    _check(kind, [index], {"node": graph.node_count, "tensor": graph.value_count}.get(kind, 0))
    return _node(graph, index) if kind == "node" else _value(graph, index)


def figures(model: ModelLike, kind: str, index: int, times: Overlay | None = None) -> list[tuple[str, str]]:
    """Return labels and texts of a node's or scope's costs in a run, and of its time if ``times`` has seconds."""
    if kind not in ("node", "scope"):
        return []
    totals, bound = run_costs(load(model))
    _check(kind, [index], totals.graph.node_count if kind == "node" else len(totals.scopes.scope_parent))
    cost = totals.of_node(index) if kind == "node" else totals.of_scope(index)
    rows = _cost_rows(cost, bare=kind == "node")
    if kind == "node":
        rows += [_parameters(cost)] if cost.parameters else []
        reason = totals.reasons[totals.reason_of[index]]
        rows += [("unknown as", reason)] if reason else []
    rows += _bound(bound)
    around = _enclosing(totals.graph, totals.scopes, kind, index)
    if around:
        rows.append(("counted in", around[0]))
    if times is not None:
        seconds, total = (times.nodes if kind == "node" else times.scopes)[index], times.scopes[0]
        if seconds > 0:
            rows.append(("time", f"{duration_text(seconds)}, {seconds / total:.1%} of the run"))
        elif around:
            rows.append(("time", f"measured for {around[-1].removeprefix(ROUND)} as a whole"))
    return [(label, shortened(text, LONGEST)) for label, text in rows]


def _check(kind: str, numbers: Iterable[int], count: int) -> None:
    for number in numbers:
        if not 0 <= number < count:
            message = f"the model has no {kind} number {number}."
            raise OnnxNbError(message, advice="Show the model again: it has changed.")


def _enclosing(graph: Graph, tree: Scopes, kind: str, index: int) -> list[str]:
    """Return the names of the subgraphs and calls around a node or scope, innermost first."""
    scope = int(tree.node_scope[index]) if kind == "node" else index
    names = []
    while scope > 0:
        if tree.scope_kind[scope] == BRANCH:
            owner = int(tree.scope_node[scope])
            rounds = graph.operators[graph.op_index[owner]][0] in ("Loop", "Scan")
            names.append(f"{ROUND if rounds else ''}{tree.scope_name[scope]} of {graph.node_label(owner)}")
        elif tree.scope_kind[scope] == FUNCTION and not (kind == "scope" and scope == index):
            names.append(f"the call {graph.node_label(int(tree.scope_node[scope]))}")
        scope = int(tree.scope_parent[scope])
    return names


def _cost_rows(cost: Cost, *, bare: bool = False) -> list[tuple[str, str]]:
    """Return label and text of each cost; ``bare`` omits zeros."""
    rows = []
    for label, text, unknown in (
        ("MACs", scaled_text(cost.known_macs), cost.unknown_macs),
        ("FLOPs", scaled_text(cost.known_flops), cost.unknown_flops),
        ("activations", bytes_text(cost.known_activation_bytes), cost.unknown_activation_bytes),
    ):
        if not bare or not text.startswith("0"):
            rows.append((label, f"at least {text}" if unknown else text))
        elif unknown:
            rows.append((label, "unknown"))
    return rows


def _parameters(cost: Cost) -> tuple[str, str]:
    return "parameters", f"{scaled_text(cost.parameters)}, {bytes_text(cost.parameter_bytes)}"


def _bound(bound: Mapping[str, str]) -> list[tuple[str, str]]:
    return [("counted for", ", ".join(f"{dim} = {size}" for dim, size in bound.items()))] if bound else []


def _node(graph: Graph, index: int) -> Inspection:
    node = graph.nodes[index]
    op, domain = graph.operators[graph.op_index[index]]
    opset = graph.opsets_of(index).get(domain, 0)
    metadata = {plain_text(entry.key): plain_text(entry.value) for entry in node.metadata_props}
    rows = [("domain", domain), ("overload", plain_text(node.overload))]
    if (schema := operators.schema(op, domain, opset)) is not None:
        rows.append(("since opset", str(schema.since_version)))
    if (function := graph.called(index)) is not None:
        nodes, reason = count_text(len(function.node), "node"), graph.closed_calls.get(index, "")
        rows.append(("function", f"{nodes}; not opened: {reason}" if reason else nodes))
        rows.append(("about it", plain_text(function.doc_string)))
    rows += _around(graph, int(graph.node_subgraph[index]), plain_text(node.name))
    rows.append(("outer-scope", ", ".join(graph.value_names[value] for value in graph.outer_values(index))))
    # a list as the exporter writes it: ['', 'encoder', 'encoder.layer.0']
    paths = re.findall(r"'([^']*)'", metadata.get("pkg.torch.onnx.name_scopes", "")[:LONGEST])
    rows.append(("torch module", paths[-2] if len(paths) > 1 else ""))
    # %relu : [num_users=2] = call_function[target=torch.ops.aten.relu.default](…
    call = metadata.get("pkg.torch.onnx.fx_node", "")[:LONGEST]
    target = re.search(r"target=(?:torch\.ops\.)?([^\](]+)", call)
    rows.append(("torch op", target[1] if target else call.split(" : ")[-1]))
    rows.append(("rewritten by", metadata.get("pkg.onnxscript.rewriter.rule_name", "")))
    rows.extend((key, value) for key, value in metadata.items() if not key.startswith("pkg.") and key != "namespace")
    source, about = source_of(node), operators.documentation(op, domain, opset)[: 4 * LONGEST]
    rows.append(("description", "" if source else plain_text(node.doc_string)))
    return Inspection(_clean(rows), tuple(_attributes(node, op, domain, opset)), about, source)


def _value(graph: Graph, index: int) -> Inspection:
    name = graph.value_names[index]
    rows: list[tuple[str, str]] = []
    if (weight := graph.weight(index)) is not None:
        info = weight_info(name, weight)
        rows.append(("bytes", f"{info.nbytes:,}"))
        if info.location is not None and not info.location.startswith("*"):
            rows.append(("stored in", f"{info.location}, at byte {info.offset:,}" if info.offset else info.location))
    subgraph = int(graph.value_subgraph[index])
    rows += _around(graph, subgraph, name.removeprefix(graph.prefixes[subgraph]))
    return Inspection(_clean(rows), (), "", "")


def _around(graph: Graph, subgraph: int, name: str) -> Iterable[tuple[str, str]]:
    """Return the subgraph or call around a node or tensor and, inside calls, its name in the file."""
    if subgraph:
        yield "inside", graph.subgraph_label(subgraph)
    if graph.prefixes[subgraph]:
        yield "name in the function", name


def _attributes(node: onnx.NodeProto, op: str, domain: str, opset: int) -> Iterable[tuple[str, str, Origin]]:
    defaults = operators.attribute_defaults(op, domain, opset)
    texts = {plain_text(attribute.name): attribute_text(attribute) for attribute in node.attribute}
    for name, text in texts.items():
        same = name in defaults and text == default_text(defaults[name])
        yield name, shortened(text, LONGEST), "given default" if same else "given"
    for name, value in defaults.items():
        if name not in texts:
            yield name, shortened(default_text(value), LONGEST), "default"


def _clean(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((shortened(label, 80), shortened(text, LONGEST)) for label, text in rows if text)


@dataclass(frozen=True, eq=False)
class Selection:
    """A set of nodes and scopes, with its cost and its boundary."""

    nodes: NDArray[np.int64]
    """Flat nodes in ascending order, including those of scopes, without nodes in subgraphs of another selected one."""
    cost: Cost
    """Cost of a run; each weight counts once."""
    inputs: tuple[str, ...]
    """Tensors from outside in the order in which they are read, without weights and constants."""
    outputs: tuple[str, ...]
    """Tensors that other nodes read or that are model outputs."""
    obstacle: str
    """Sentence with the reason why the selection cannot be extracted; empty if it can."""
    bound: Mapping[str, str]
    """Open dimensions of the model, and the sizes for which the cost is counted."""

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each figure."""
        return (_parameters(self.cost), *_cost_rows(self.cost), *_bound(self.bound))


def select(model: ModelLike, nodes: Iterable[int], in_scopes: Iterable[int] = ()) -> Selection:
    """Return the cost and the boundary of a set of flat nodes and scopes."""
    source = load(model)
    graph = Graph.opened(source)
    tree, picks, groups = scopes(graph), set(nodes), set(in_scopes)
    _check("node", picks, graph.node_count)
    _check("scope", groups, len(tree.scope_parent))
    picks |= nodes_of_scopes(tree, groups, graph.node_count)

    def is_inside(node: int) -> bool:
        while (subgraph := int(graph.node_subgraph[node])) > 0:
            node = graph.subgraphs[subgraph].owner_node
            if node in picks:
                return True
        return False

    members = sorted(node for node in picks if not is_inside(node))
    homes = {int(graph.node_subgraph[node]) for node in members}
    number = homes.pop() if len(homes) == 1 else 0
    obstacle = _obstacle(graph, members)
    inner = Graph.of(of_body(source, 0 if obstacle else number))
    starts, ends = ports(inner, [] if obstacle else [node - graph.subgraphs[number].start for node in members])
    totals, bound = run_costs(source)
    obstacle = obstacle or ("" if ends else "No other node reads what the selection makes.")
    inputs, outputs = (tuple(inner.value_names[value] for value in values) for values in (starts, ends))
    return Selection(np.asarray(members, np.int64), totals.of_nodes(members), inputs, outputs, obstacle, bound)


def _obstacle(graph: Graph, members: list[int]) -> str:
    """Return why nodes cannot be cut out: they are in a call, or not all in one body."""
    if not members:
        return "No node is selected; an extraction needs nodes."
    for node in members:
        subgraph = int(graph.node_subgraph[node])
        inside, body = graph.subgraphs[subgraph], graph.node_label(graph.subgraphs[subgraph].owner_node)
        if inside.function is not None:
            return f"{graph.node_label(node)} is inside a call of {body}: select that node instead."
        if subgraph != graph.node_subgraph[members[0]]:
            return f"{graph.node_label(node)} is in a body of {body}, and {graph.node_label(members[0])} is not in it."
    return ""


def tensors_of(model: ModelLike, kind: str, name: str, index: int | None = None) -> list[str]:
    """Return the tensors of a selected tensor or node; ``index`` distinguishes nodes without a name."""
    if kind != "node":
        return [name] if kind == "tensor" else []
    graph = Graph.of(load(model))
    names = graph.names
    if index is None or not 0 <= index < len(names) or names[index] != name:
        if not name or name not in names:
            return []
        index = names.index(name)
    return [tensor for value in graph.results(index) if (tensor := graph.value_names[value])]


def found_in(names: Iterable[str], model: ModelLike) -> tuple[int, int]:
    """Return the number of distinct names that are tensors of a model, and the number of distinct names."""
    targets = set(names)
    return len(targets.intersection(Graph.of(load(model)).value_names)), len(targets)
