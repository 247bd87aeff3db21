"""Several selected nodes and scopes: what they cost together, and which tensors enter and leave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.scopes.scopes import Scopes, scopes
from onnx_nb.analysis.submodel.extraction import nodes_of_scopes, ports
from onnx_nb.analysis.view.inspection import bound_rows, cost_rows, parameters_row
from onnx_nb.analysis.view.overlays import run_costs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnx_nb.analysis.cost.costs import Cost


@dataclass(frozen=True, eq=False)
class Selection:
    """A set of nodes and scopes, with its cost and its boundary."""

    nodes: NDArray[np.int64]
    """Flat nodes in ascending order, those of scopes included. Nodes in subgraphs of another one are left out."""
    cost: Cost
    """Cost of a run; each weight counts once."""
    inputs: tuple[str, ...]
    """Tensors read from outside in reading order, without weights and constants."""
    outputs: tuple[str, ...]
    """Tensors that other nodes read or that are model outputs."""
    obstacle: str
    """Sentence on why the selection cannot be extracted; empty if it can."""
    bound: Mapping[str, int]
    """Open dimensions of the model, and the sizes that the cost is counted for."""

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each figure."""
        return (parameters_row(self.cost), *cost_rows(self.cost), *bound_rows(self.bound))


def select(model: ModelLike, nodes: Iterable[int], in_scopes: Iterable[int] = ()) -> Selection:
    """Return the cost and the boundary of a set of flat nodes and scopes."""
    loaded = load(model)
    graph = Graph.opened(loaded)
    tree = scopes(graph)
    members = _members(graph, tree, set(nodes), set(in_scopes))
    main = [node for node in members if node < graph.main_count]
    starts, ends = ports(graph.plain, main)
    found, bound = run_costs(loaded)
    names = graph.value_names
    return Selection(
        nodes=np.asarray(members, np.int64),
        cost=found.of_nodes(members),
        inputs=tuple(names[value] for value in starts),
        outputs=tuple(names[value] for value in ends),
        obstacle=_obstacle(graph, members, ends),
        bound=bound,
    )


def _members(graph: Graph, tree: Scopes, nodes: set[int], in_scopes: set[int]) -> list[int]:
    """Return the selected nodes and those in selected scopes, without those inside another one's subgraphs."""
    for kind, chosen, count in (("node", nodes, graph.node_count), ("scope", in_scopes, len(tree.scope_parent))):
        if odd := [number for number in chosen if not 0 <= number < count]:
            raise OnnxNbError(
                f"the model has no {kind} number {odd[0]}.", advice="Show the model again: it has changed."
            )
    found = nodes | nodes_of_scopes(tree, in_scopes, graph.node_count)
    owner = [subgraph.owner_node for subgraph in graph.subgraphs]

    def inside(node: int) -> bool:
        while (subgraph := int(graph.node_subgraph[node])) > 0:
            node = owner[subgraph]
            if node in found:
                return True
        return False

    return sorted(node for node in found if not inside(node))


def _obstacle(graph: Graph, members: list[int], ends: list[int]) -> str:
    if not members:
        return "No node is selected; an extraction needs nodes."
    for node in members:
        if subgraph := int(graph.node_subgraph[node]):
            where = "a call of" if graph.subgraphs[subgraph].function is not None else "a body of"
            body = graph.node_label(graph.subgraphs[subgraph].owner_node)
            return f"{graph.node_label(node)} is inside {where} {body}: select that node instead."
    return "" if ends else "No other node reads what the selection makes."


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
    made = (graph.value_names[value] for value in graph.node_outputs(index) if value >= 0)
    return [tensor for tensor in made if tensor]


def found_in(names: Iterable[str], model: ModelLike) -> tuple[int, int]:
    """Return how many of the distinct names are tensors of a model, and how many there are."""
    wanted = set(names)
    return len(wanted.intersection(Graph.of(load(model)).value_names)), len(wanted)
