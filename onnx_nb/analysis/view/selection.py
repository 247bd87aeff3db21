"""Several nodes and scopes at once: what they cost together, and what flows into and out of them."""

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
    """What some nodes and scopes are together."""

    nodes: NDArray[np.int64]
    """Flat nodes, with all that lie in the scopes, in ascending order. Of a node and its bodies only the node."""
    cost: Cost
    """What they cost, each weight counted once."""
    inputs: tuple[str, ...]
    """Tensors that they read from outside, in the order of reading; no weights and constants."""
    outputs: tuple[str, ...]
    """Tensors of theirs that others read, or that are outputs of the model."""
    obstacle: str
    """Why they cannot be extracted, as a sentence; empty if they can."""

    bound: Mapping[str, int]
    """The open dimensions of the model, and the sizes that the cost is counted for."""

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each figure."""
        return (parameters_row(self.cost), *cost_rows(self.cost), *bound_rows(self.bound))


def select(model: ModelLike, nodes: Iterable[int], groups: Iterable[int] = ()) -> Selection:
    """Return what nodes and scopes are together.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    nodes
        Flat nodes, as in `Graph`.
    groups
        Groups, as in `Scopes`.

    Raises
    ------
    OnnxNbError
        If there is no such node or group.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  b = Neg(x)  z = Add(a, b) }''')
    >>> both = select(model, [0, 2])
    >>> both.inputs, both.outputs
    (('x', 'b'), ('z',))
    """
    loaded = load(model)
    graph = Graph.opened(loaded)
    tree = scopes(graph)
    members = _members(graph, tree, set(nodes), set(groups))
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


def _members(graph: Graph, tree: Scopes, nodes: set[int], groups: set[int]) -> list[int]:
    """Return the flat nodes meant: those of the groups too, without those inside a node that is meant itself."""
    for kind, chosen, count in (("node", nodes, graph.node_count), ("scope", groups, len(tree.scope_parent))):
        if odd := [number for number in chosen if not 0 <= number < count]:
            raise OnnxNbError(
                f"the model has no {kind} number {odd[0]}.", advice="Show the model again: it has changed."
            )
    found = nodes | nodes_of_scopes(tree, groups, graph.node_count)
    owner = [frame.owner_node for frame in graph.subgraphs]

    def inside(node: int) -> bool:
        while (frame := int(graph.node_subgraph[node])) > 0:
            node = owner[frame]
            if node in found:
                return True
        return False

    return sorted(node for node in found if not inside(node))


def _obstacle(graph: Graph, members: list[int], ends: list[int]) -> str:
    if not members:
        return "No node is selected: tensors alone cannot be extracted."
    for node in members:
        if frame := int(graph.node_subgraph[node]):
            where = "a call of" if graph.subgraphs[frame].function is not None else "a body of"
            body = graph.node_label(graph.subgraphs[frame].owner_node)
            return f"{graph.node_label(node)} lies inside {where} {body}: select that node instead."
    return "" if ends else "No other node reads what the selection makes."


def tensors_of(model: ModelLike, kind: str, name: str, index: int | None = None) -> list[str]:
    """Return the names of the tensors that something selected in a graph stands for.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    kind
        ``"tensor"``: that one; ``"node"``: those that it makes; of anything else none.
    name
        Of the tensor or the node.
    index
        Which node it is, if known: names of nodes may be empty, or the same.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[1] a, float[1] b) { a, b = Split(x) }'
    >>> model = load(onnx.parser.parse_model(text))
    >>> tensors_of(model, "node", "", 0), tensors_of(model, "tensor", "a"), tensors_of(model, "scope", "")
    (['a', 'b'], ['a'], [])
    """
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
    """Count the names that tensors of a model have, and all, each once."""
    wanted = set(names)
    return len(wanted.intersection(Graph.of(load(model)).value_names)), len(wanted)
