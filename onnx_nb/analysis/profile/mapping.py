"""Which nodes of a model a kernel computes, found in the graph that onnxruntime optimized.

A kernel is a node of the optimized graph. Its outputs are tensors of the model, by name, or by the name that
onnxruntime derived from them (``x_nchwc``, ``/fc/MatMulAddFusion``). The kernel computes the nodes from which its
outputs come, back to tensors that other kernels compute. Kernels in between, whose tensors the model does not have,
share the nodes of the next tensor that it has. A copy, cast or change of layout that onnxruntime inserted stands on an
edge of the model: its input and output are the same tensor.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.tensors import attribute

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.protofields import Ints

How = Literal["name", "tensor", "edge", "between", ""]

_INSERTED: Final = frozenset(
    ("Transpose", "Cast", "ReorderInput", "ReorderOutput", "MemcpyFromHost", "MemcpyToHost", "Identity", "Gather")
)
"""Operators of nodes that onnxruntime inserts; their output is their input, elsewhere or in another layout.

A Gather permutes the shape of a transposed tensor."""
_GENERATED: Final = re.compile(r"_token_\d+$")
"""End of names that onnxruntime made up; a node of the model may have the part in front by chance."""
_ADDED: Final = re.compile(r"^(?:fused |InsertedPrecisionFreeCast_|InsertedCast_)|_nchwc$|_nhwc$|_transformed$")


@dataclass(frozen=True)
class Place:
    """The nodes of the model that a kernel computes."""

    nodes: tuple[int, ...]
    """Flat nodes of the model, in the order of the file; for an inserted kernel, those that its tensor connects."""
    how: How
    """How they were found: by the node's ``"name"``, by its output ``"tensor"``, on an ``"edge"``, or as what lies
    ``"between"`` tensors; empty if they were not."""
    edge: str = ""
    """Tensor of the model on whose edge onnxruntime inserted this kernel."""


UNKNOWN: Final = Place((), "")


def places(graph: Graph, ran: Graph) -> list[Place]:
    """Return the place in a model of each node of the graph that ran.

    Parameters
    ----------
    graph
        The model as loaded.
    ran
        The graph that onnxruntime made of it, or ``graph`` itself.
    """
    if ran is graph:
        return [Place((node,), "name") for node in range(graph.node_count)]
    return _Mapping(graph, ran).places()


class _Mapping:
    def __init__(self, graph: Graph, ran: Graph) -> None:
        self._graph, self._ran = graph, ran
        self._nodes = _by_name(graph.names)
        self._values = _by_name(graph.value_names)
        self._constant = graph.constant_values
        self._shapes = shape_nodes(graph)
        self._fixed = (ran.value_kind == INITIALIZER) | ran.constant_values
        self._subgraph = [-1] * len(ran.subgraphs)
        """Subgraph of the model for each subgraph that ran."""
        self._subgraph[0] = 0
        self._same = [-1] * ran.value_count
        """Tensor of the model that each tensor of the graph that ran is, or −1."""
        self._names = set(ran.names)
        self._computed = set[int]()
        """Tensors of the model that the graph that ran computes or is fed."""

    def places(self) -> list[Place]:
        ran, found = self._ran, [UNKNOWN] * self._ran.node_count
        for subgraph in range(len(ran.subgraphs)):  # an owner's subgraph comes before those of its bodies
            self._pair(subgraph, found)
            order = ran.subgraph_order(subgraph).tolist()
            self._name_values(subgraph, order)
            for node in order:
                found[node] = self._place(node, subgraph)
        # a Cast that does nothing was removed in front of all its readers: it is part of none of them
        uses = Counter(node for place in found if place.how in ("name", "tensor") for node in place.nodes)
        for number, place in enumerate(found):
            if place.how in ("name", "tensor") and len(place.nodes) > 1:
                own = {self._node(ran.names[number], -1), *self._makers(number)}
                nodes = tuple(node for node in place.nodes if uses[node] == 1 or node in own)
                found[number] = dataclasses.replace(place, nodes=nodes or place.nodes)
        return found

    def _pair(self, subgraph: int, found: Sequence[Place]) -> None:
        """Find the body of the model that a body that ran is."""
        if not subgraph:
            return
        place, graph = self._ran.subgraphs[subgraph], self._graph
        for owner in found[place.owner_node].nodes:
            for body in graph.bodies(owner):
                if graph.subgraphs[body].attribute == place.attribute:
                    self._subgraph[subgraph] = body

    def _name_values(self, subgraph: int, order: Sequence[int]) -> None:
        """Find the tensors of the model that those of a subgraph are, by their names and those of their nodes."""
        ran, graph, here = self._ran, self._graph, self._subgraph[subgraph]
        for value in (ran.value_subgraph == subgraph).nonzero()[0].tolist():
            if not self._fixed[value]:
                self._set(value, self._value(ran.value_names[value], here))
        for node in order:
            unknown = [value for value in self._outputs(node) if self._same[value] < 0]
            if not unknown:
                continue
            name = ran.names[node]
            original = self._node(name, here)
            if original >= 0 and ran.operators[ran.op_index[node]] == graph.operators[graph.op_index[original]]:
                # another tensor of that name may follow, behind a change of layout
                for value, same in zip(
                    ran.node_outputs(node).tolist(), graph.node_outputs(original).tolist(), strict=False
                ):
                    if value in unknown:
                        self._set(value, same)
                continue
            plain = _ADDED.sub("", name)
            inputs = self._inputs(node)
            tensor = self._value(plain, here) if plain != name else self._made(name, here, inputs)
            if tensor >= 0 and len(unknown) == 1:
                self._set(unknown[0], self._fused(tensor, node))
            elif self._may_be_inserted(node) and len(unknown) == 1 and len(inputs) == 1:
                self._set(unknown[0], self._same[inputs[0]])

    def _made(self, name: str, subgraph: int, inputs: Sequence[int]) -> int:
        """Return the output of the node that a fusion is named after, if it comes from what the fusion reads."""
        node = self._node(self._longest(name), subgraph)
        outputs = self._graph.node_outputs(node).tolist() if node >= 0 else []
        if len(outputs) != 1:
            return -1
        inside = self._between(outputs)
        read = {value for each in inside for value in self._graph.node_inputs(each).tolist()}
        return outputs[0] if inputs and all(self._same[value] in read for value in inputs) else -1

    def _fused(self, value: int, kernel: int) -> int:
        """Follow a tensor through nodes that were fused into its kernel later, when the kernel had its name already.

        These are the Add of a residual that the kernel reads, and the activation after it.
        """
        graph = self._graph
        outputs, read = set(graph.outputs.tolist()), {self._same[each] for each in self._inputs(kernel)}
        activation = plain_text(attribute(self._ran.node(kernel), "activation", ""))
        while value not in self._computed and value not in outputs:
            readers = graph.consumers(value).tolist()
            if len(readers) != 1 or graph.names[readers[0]] in self._names:
                break
            inputs, op = graph.node_inputs(readers[0]).tolist(), graph.operators[graph.op_index[readers[0]]][0]
            is_sum = op == "Add" and all(each == value or each in read for each in inputs)
            if not is_sum and (op != activation or graph.operators[graph.op_index[graph.producer[value]]][0] == op):
                break
            value = int(graph.node_outputs(readers[0])[0])
        return value

    def _place(self, node: int, subgraph: int) -> Place:
        ran, graph, here = self._ran, self._graph, self._subgraph[subgraph]
        outputs = self._outputs(node)
        wanted = [self._same[value] for value in outputs if self._same[value] >= 0]
        read = {self._same[value] for value in self._inputs(node)}
        original = self._node(ran.names[node], here)
        passed = [value for value in wanted if value in read]
        if passed and original < 0:
            return Place(tuple(self._edge(passed[0])), "edge", graph.value_names[passed[0]])
        how: How = "tensor"
        if not wanted:
            how, wanted = "between", self._next(outputs)
        nodes = self._between([value for value in wanted if value not in read])
        if original >= 0 and (not nodes or original in nodes):
            return Place(tuple(sorted(nodes | {original})), "name")
        if nodes:
            return Place(tuple(sorted(nodes)), how)
        start = self._node(self._longest(ran.names[node]), here)
        return Place((start,), "name") if start >= 0 else UNKNOWN

    def _between(self, wanted: Iterable[int]) -> set[int]:
        """Return the nodes from which tensors come, back to what other kernels compute or was known at loading."""
        graph, found = self._graph, set[int]()
        todo = [int(graph.producer[value]) for value in wanted]
        while todo:
            node = todo.pop()
            if node < 0 or node in found:
                continue
            found.add(node)
            for value in (*graph.node_inputs(node).tolist(), *graph.outer_values(node).tolist()):
                maker = int(graph.producer[value]) if value >= 0 else -1
                if maker < 0 or value in self._computed or self._constant[value]:
                    continue
                if graph.node_subgraph[maker] != graph.node_subgraph[node]:
                    continue
                if self._shapes[maker] and not self._shapes[node]:
                    continue  # computed from shapes that were known when the model was loaded
                todo.append(maker)
        return found

    def _next(self, values: Sequence[int]) -> list[int]:
        """Return the first tensors of the model that come from tensors that it does not have."""
        ran, found, seen, todo = self._ran, dict[int, None](), set(values), deque(values)
        while todo:
            for reader in ran.consumers(todo.popleft()).tolist():
                for value in self._outputs(reader):
                    if self._same[value] >= 0:
                        found[self._same[value]] = None
                    elif value not in seen:
                        seen.add(value)
                        todo.append(value)
        return list(found)

    def _edge(self, value: int) -> list[int]:
        """Return the node that makes a tensor, or if it is an input those that read it."""
        maker = int(self._graph.producer[value])
        return [maker] if maker >= 0 else self._graph.consumers(value).tolist()

    def _may_be_inserted(self, node: int) -> bool:
        op: str = self._ran.operators[self._ran.op_index[node]][0]
        return op in _INSERTED

    def _makers(self, node: int) -> list[int]:
        """Return the nodes of the model that make a kernel's outputs."""
        return [int(self._graph.producer[self._same[value]]) for value in self._outputs(node)]

    def _outputs(self, node: int) -> list[int]:
        return [value for value in self._ran.node_outputs(node).tolist() if value >= 0]

    def _inputs(self, node: int) -> list[int]:
        """Return the tensors that a node reads, without weights and constants."""
        return [value for value in self._ran.node_inputs(node).tolist() if value >= 0 and not self._fixed[value]]

    def _set(self, value: int, same: int) -> None:
        if same >= 0:
            self._same[value] = same
            self._computed.add(same)

    def _node(self, name: str, subgraph: int) -> int:
        """Return the node of a name, best in a given subgraph; −1 if there is none, or several elsewhere."""
        return _chosen(self._nodes.get(name, []), self._graph.node_subgraph, subgraph)

    def _value(self, name: str, subgraph: int) -> int:
        return _chosen(self._values.get(name, []), self._graph.value_subgraph, subgraph)

    def _longest(self, name: str) -> str:
        """Return the longest beginning of a name that is the name of a node of the model."""
        ends = [] if _GENERATED.search(name) else [match.start() for match in re.finditer(r"[/_:. ]", name)]
        name = _ADDED.sub("", name)
        return next((name[:end] for end in (len(name), *reversed(ends)) if name[:end] in self._nodes), "")


def _by_name(names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if name:
            found.setdefault(name, []).append(number)
    return found


def _chosen(numbers: Sequence[int], subgraphs: Ints, wanted: int) -> int:
    inside = [number for number in numbers if subgraphs[number] == wanted]
    found = inside or numbers
    return found[0] if len(found) == 1 else -1


def shape_nodes(graph: Graph) -> list[bool]:
    """Return whether each node computes with nothing but shapes of tensors and constants."""
    found = [False] * graph.node_count
    constant = graph.constant_values
    for subgraph in range(len(graph.subgraphs)):
        for node in graph.subgraph_order(subgraph).tolist():
            if graph.operators[graph.op_index[node]][0] in ("Shape", "Size"):
                found[node] = True
                continue
            read = [value for value in graph.node_inputs(node).tolist() if value >= 0 and not constant[value]]
            makers = [int(graph.producer[value]) for value in read]
            found[node] = bool(makers) and all(maker >= 0 and found[maker] for maker in makers)
    return found
