"""Which nodes of a model a kernel computes, found in the graph that onnxruntime optimized.

A kernel is a node of the optimized graph. Its outputs are tensors of the model, by name, or by the name that
onnxruntime derived from them (``x_nchwc``, ``/fc/MatMulAddFusion``). The kernel computes the nodes from which its
outputs come, back to tensors that other kernels compute. Kernels in between, whose tensors the model does not have,
share the nodes of the next tensor that it has. A copy, cast or change of layout that onnxruntime inserted stands on an
edge of the model: its input and output are the same tensor. A profile that another session wrote has copies between
providers that the graph which is optimized here has not: they stand on an edge from one provider to the other.

onnxruntime puts the nodes of a local function in the place of its call before all else. Then the kernels are those of
that longer graph; its nodes are those of `Graph.opened`, by their operators and what they read.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.dataflow import followers, shape_nodes
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model.protofields import Ints
from onnx_nb.analysis.model.tensors import attribute, fits
from onnx_nb.analysis.profile.trace import MEMCPY, Trace
from onnx_nb.analysis.run.session import CAST_PREFIX

How = Literal["name", "tensor", "edge", "between", ""]

_SUFFIX: Final = re.compile(r"_token_\d+$")
"""End of names that onnxruntime made up; a node of the model may have the part in front by chance."""
_AFFIXES: Final = re.compile(rf"^(?:fused |{CAST_PREFIX}|InsertedCast_)|_nchwc$|_nhwc$|_transformed$")


@dataclass(frozen=True, eq=False)
class KernelPlace:
    """The nodes of the model that a kernel computes."""

    nodes: tuple[int, ...]
    """Flat nodes of the model, in the order of the file; for an inserted kernel, those that its tensor connects."""
    how: How
    """How they were found: by the node's ``"name"``, by its output ``"tensor"``, on an ``"edge"``, or as what lies
    ``"between"`` tensors; empty if they were not."""
    edge: str = ""
    """Tensor of the model on whose edge onnxruntime inserted this kernel; empty for others."""
    edges: tuple[str, ...] = ()
    """Tensors of the model on one of which a copy between providers stands, if several fit; then `edge` is empty."""
    opened: tuple[int, ...] = ()
    """Flat nodes of `Graph.opened` that it computes inside the local functions which `nodes` call."""


UNKNOWN: Final = KernelPlace((), "")


def places(
    graph: Graph, ran: Graph, nodes: Sequence[int], trace: Trace, *, flat: Graph | None = None
) -> list[KernelPlace]:
    """Return the place in a model of each kernel of a profile.

    ``ran`` is the graph that onnxruntime made of the model, or ``graph`` itself, and ``nodes`` has the node there of
    each kernel, or −1; ``flat`` is the model with the nodes of local functions in the place of their calls, if any.
    """
    if flat is not None:
        sites = places(flat, ran, nodes, trace)
        return _in_calls(Graph.opened(graph.model), flat, sites)
    if ran is graph:
        where = [KernelPlace((node,), "name") for node in range(graph.node_count)]
        same: Sequence[int] = range(graph.value_count)
    else:
        mapping = _Mapping(graph, ran)
        where, same = mapping.places(), mapping.same
    sites = [where[node] if node >= 0 else UNKNOWN for node in nodes]
    for copy, values in _Copies(ran, nodes, trace).edges().items():
        tensors = [value for value in dict.fromkeys(same[value] for value in values) if value >= 0]
        names = tuple(graph.value_names[value] for value in tensors)
        if len(tensors) == 1:
            sites[copy] = KernelPlace(tuple(_ends(graph, tensors[0])), "edge", names[0])
        elif tensors:
            sites[copy] = KernelPlace((), "", edges=names)
    return sites


def _in_calls(graph: Graph, flat: Graph, sites: Sequence[KernelPlace]) -> list[KernelPlace]:
    """Return places of the inlined model in the model with calls, whose graph is that of `Graph.opened`."""
    inner, targets = _same_nodes(graph, flat), list[KernelPlace]()
    for place in sites:
        nodes, inside = list[int](), list[int]()
        for node in (inner[n] for n in place.nodes if inner[n] >= 0):
            around = calls_around(graph, node)
            nodes.append(around[-1] if around else node)
            inside += [node] if around else []
        calls = tuple(sorted(set(nodes)))
        targets.append(dataclasses.replace(place, nodes=calls, opened=tuple(sorted(inside))) if calls else UNKNOWN)
    return targets


def calls_around(graph: Graph, node: int) -> list[int]:
    """Return the opened calls of local functions that a node is inside, the innermost first."""
    frames = (graph.subgraphs[number] for number in graph.around(int(graph.node_subgraph[node])))
    return [frame.owner_node for frame in frames if frame.function is not None]


def _same_nodes(graph: Graph, flat: Graph) -> list[int]:
    """Return the node of a graph with opened calls for each node of the inlined one: of its operator, with its inputs.

    Of several nodes that compute the same from the same, the first is the first.
    """
    made_by: dict[int, int] = {}  # output of a call → the value inside it
    for frame in graph.subgraphs[1:]:
        if frame.function is not None:
            made_by |= dict(zip(graph.node_outputs(frame.owner_node).tolist(), frame.outputs.tolist(), strict=False))

    def origin(value: int) -> int:
        while value in made_by:
            value = made_by[value]
        # onnxruntime makes weights of constants, with names of its own
        maker = int(graph.producer[value]) if value >= 0 else -1
        return _CONSTANT if maker >= 0 and graph.op_type(maker) == "Constant" else value

    waiting = followers(
        ((graph.op_type(node), tuple(map(origin, graph.node_inputs(node).tolist()))), node)
        for node in reversed(range(graph.node_count))
        if graph.called(node) is None
    )
    values = {name: origin(value) for value, name in enumerate(graph.value_names) if not graph.value_subgraph[value]}
    same = [values.get(name, _CONSTANT) for name in flat.value_names]
    nodes = [-1] * flat.node_count
    for subgraph in range(len(flat.subgraphs)):
        for node in flat.subgraph_order(subgraph).tolist():
            key = flat.op_type(node), tuple(same[v] if v >= 0 else v for v in flat.node_inputs(node).tolist())
            if not (candidates := waiting.get(key)):
                continue
            nodes[node] = twin = candidates.pop()
            pairs = [(flat.node_outputs(node), graph.node_outputs(twin))]
            for body, other in zip(flat.bodies(node), graph.bodies(twin), strict=False):
                pairs.append((flat.subgraphs[body].inputs, graph.subgraphs[other].inputs))
            for left, right in pairs:
                for value, match in zip(left.tolist(), right.tolist(), strict=False):
                    same[value] = match
    return nodes


_CONSTANT: Final = -2
"""A value that a Constant makes, or onnxruntime in its place."""


def _ends(graph: Graph, value: int) -> list[int]:
    """Return the node that makes a tensor, or if it is an input those that read it."""
    maker = int(graph.producer[value])
    return [maker] if maker >= 0 else graph.consumers(value).tolist()


class _Mapping:
    def __init__(self, graph: Graph, ran: Graph) -> None:
        self._graph, self._ran = graph, ran
        self._nodes = by_name(graph.names)
        self._values = by_name(graph.value_names)
        self._constant = graph.constant_values
        self._shapes = shape_nodes(graph)
        self._fixed = (ran.value_kind == INITIALIZER) | ran.constant_values
        self._subgraph = [-1] * len(ran.subgraphs)
        """Subgraph of the model for each subgraph that ran."""
        self._subgraph[0] = 0
        self.same = [-1] * ran.value_count
        """Tensor of the model that each tensor of the graph that ran is, or −1."""
        self._names = set(ran.names)
        self._computed = set[int]()
        """Tensors of the model that the graph that ran computes or is fed."""

    def places(self) -> list[KernelPlace]:
        ran, sites = self._ran, [UNKNOWN] * self._ran.node_count
        graph = self._graph
        for subgraph, frame in enumerate(ran.subgraphs):  # an owner's subgraph comes before those of its bodies
            owners = sites[frame.owner_node].nodes if subgraph else ()
            for body in (body for owner in owners for body in graph.bodies(owner)):
                if graph.subgraphs[body].attribute == frame.attribute:
                    self._subgraph[subgraph] = body
            order = ran.subgraph_order(subgraph).tolist()
            self._name_values(subgraph, order)
            for node in order:
                sites[node] = self._place(node, subgraph)
        # a Cast that does nothing was removed in front of all its readers: it is part of none of them
        uses = Counter(node for place in sites if place.how in ("name", "tensor") for node in place.nodes)
        for number, place in enumerate(sites):
            if place.how in ("name", "tensor") and len(place.nodes) > 1:
                values = (self.same[value] for value in ran.results(number))
                makers = {self._node(ran.names[number], -1), *(int(graph.producer[value]) for value in values)}
                nodes = tuple(node for node in place.nodes if uses[node] == 1 or node in makers)
                sites[number] = dataclasses.replace(place, nodes=nodes or place.nodes)
        return sites

    def _name_values(self, subgraph: int, order: Sequence[int]) -> None:
        """Find the tensors of the model that those of a subgraph are, by their names and those of their nodes."""
        ran, graph, here = self._ran, self._graph, self._subgraph[subgraph]
        for value in (ran.value_subgraph == subgraph).nonzero()[0].tolist():
            if not self._fixed[value]:
                name = ran.value_names[value]  # float16 that onnxruntime computes in float32 has a longer one
                self._set(value, max(self._value(n, here) for n in (name, name.removeprefix(CAST_PREFIX))))
        for node in order:
            unknown = [value for value in ran.results(node) if self.same[value] < 0]
            if not unknown:
                continue
            name = ran.names[node]
            original = self._node(name, here)
            if original >= 0 and ran.operators[ran.op_index[node]] == graph.operators[graph.op_index[original]]:
                # another tensor of that name may follow, behind a change of layout
                outputs = ran.node_outputs(node).tolist(), graph.node_outputs(original).tolist()
                for value, same in zip(*outputs, strict=False):
                    if value in unknown:
                        self._set(value, same)
                continue
            plain = _AFFIXES.sub("", name)
            inputs = self._inputs(node)
            tensor = self._value(plain, here) if plain != name else self._made(name, here, inputs)
            if tensor >= 0 and len(unknown) == 1:
                self._set(unknown[0], self._fused(tensor, node))
            elif ran.op_type(node) in names_where("inserted") and len(unknown) == 1 and len(inputs) == 1:
                self._set(unknown[0], self.same[inputs[0]])

    def _made(self, name: str, subgraph: int, inputs: Sequence[int]) -> int:
        """Return the output of the node that a fusion is named after, if it comes from what the fusion reads."""
        node = self._node(self._longest(name), subgraph)
        outputs = self._graph.node_outputs(node).tolist() if node >= 0 else []
        if len(outputs) != 1:
            return -1
        read = {value for n in self._between(outputs) for value in self._graph.node_inputs(n).tolist()}
        return outputs[0] if inputs and all(self.same[value] in read for value in inputs) else -1

    def _fused(self, value: int, kernel: int) -> int:
        """Follow a tensor through nodes that were fused into its kernel later, when the kernel had its name already.

        These are the Add of a residual that the kernel reads, and the activation after it.
        """
        graph = self._graph
        outputs, read = set(graph.outputs.tolist()), {self.same[v] for v in self._inputs(kernel)}
        activation = plain_text(attribute(self._ran.node(kernel), "activation", ""))
        while value not in self._computed and value not in outputs:
            readers = graph.consumers(value).tolist()
            if len(readers) != 1 or graph.names[readers[0]] in self._names:
                break
            inputs, op = graph.node_inputs(readers[0]).tolist(), graph.op_type(readers[0])
            is_sum = op == "Add" and all(v == value or v in read for v in inputs)
            if not is_sum and (op != activation or graph.op_type(int(graph.producer[value])) == op):
                break
            value = int(graph.node_outputs(readers[0])[0])
        return value

    def _place(self, node: int, subgraph: int) -> KernelPlace:
        ran, graph, here = self._ran, self._graph, self._subgraph[subgraph]
        outputs = ran.results(node)
        targets = [self.same[value] for value in outputs if self.same[value] >= 0]
        read = {self.same[value] for value in self._inputs(node)}
        original = self._node(ran.names[node], here)
        common = [value for value in targets if value in read]
        if common and original < 0:
            return KernelPlace(tuple(_ends(graph, common[0])), "edge", graph.value_names[common[0]])
        how: How = "tensor"
        if not targets:
            how, targets = "between", self._next(outputs)
        nodes = self._between([value for value in targets if value not in read])
        if original >= 0 and (not nodes or original in nodes):
            return KernelPlace(tuple(sorted(nodes | {original})), "name")
        if nodes:
            return KernelPlace(tuple(sorted(nodes)), how)
        start = self._node(self._longest(ran.names[node]), here)
        return KernelPlace((start,), "name") if start >= 0 else UNKNOWN

    def _between(self, values: Iterable[int]) -> set[int]:
        """Return the nodes from which tensors come, back to what other kernels compute or was known at loading."""
        graph, nodes = self._graph, set[int]()
        todo = [int(graph.producer[value]) for value in values]
        while todo:
            node = todo.pop()
            if node < 0 or node in nodes:
                continue
            nodes.add(node)
            for value in graph.reads(node):
                maker = int(graph.producer[value])
                if maker < 0 or value in self._computed or self._constant[value]:
                    continue
                if graph.node_subgraph[maker] != graph.node_subgraph[node]:
                    continue
                if self._shapes[maker] and not self._shapes[node]:
                    continue  # computed from shapes that were known when the model was loaded
                todo.append(maker)
        return nodes

    def _next(self, values: Sequence[int]) -> list[int]:
        """Return the first tensors of the model that come from tensors that it does not have."""
        ran, targets, visits, todo = self._ran, dict[int, None](), set(values), deque(values)
        while todo:
            for reader in ran.consumers(todo.popleft()).tolist():
                for value in ran.results(reader):
                    if self.same[value] >= 0:
                        targets[self.same[value]] = None
                    elif value not in visits:
                        visits.add(value)
                        todo.append(value)
        return list(targets)

    def _inputs(self, node: int) -> list[int]:
        """Return the tensors that a node reads, without weights and constants."""
        return [value for value in self._ran.node_inputs(node).tolist() if value >= 0 and not self._fixed[value]]

    def _set(self, value: int, same: int) -> None:
        if same >= 0:
            self.same[value] = same
            self._computed.add(same)

    def _node(self, name: str, subgraph: int) -> int:
        """Return the node of a name, best in a given subgraph; −1 if there is none, or several elsewhere."""
        return _chosen(self._nodes.get(name, []), self._graph.node_subgraph, subgraph)

    def _value(self, name: str, subgraph: int) -> int:
        return _chosen(self._values.get(name, []), self._graph.value_subgraph, subgraph)

    def _longest(self, name: str) -> str:
        """Return the longest beginning of a name that is the name of a node of the model."""
        ends = [] if _SUFFIX.search(name) else [match.start() for match in re.finditer(r"[/_:. ]", name)]
        name = _AFFIXES.sub("", name)
        return next((name[:end] for end in (len(name), *reversed(ends)) if name[:end] in self._nodes), "")


_RUNTIME_NAMES: Final = {"float32": "float", "float64": "double"}
"""Types that onnxruntime's profiles call otherwise."""
_MEMCPY_NAME: Final = re.compile(r"Memcpy(?:_token_(\d+))?")


class _Copies:
    """The edges on which copies between providers may stand, if the graph that ran is not there to ask.

    onnxruntime adds a copy for each tensor that one provider makes and another reads, of the tensor's type and shape.
    """

    def __init__(self, ran: Graph, nodes: Sequence[int], trace: Trace) -> None:
        self._ran, self._nodes, self._trace = ran, nodes, trace
        self._kernel = {node: kernel for kernel, node in reversed([*enumerate(nodes)]) if node >= 0}

    def edges(self) -> dict[int, list[int]]:
        """Return for each copy that has no node the tensors of the graph that ran which it may copy."""
        copies = (kernel for kernel, op in enumerate(self._trace.ops) if op in MEMCPY and self._nodes[kernel] < 0)
        inputs = self._ran.subgraphs[0].inputs.tolist()
        edges = dict[int, list[int]]()
        for values, members in followers((tuple(self._candidates(copy)), copy) for copy in copies).items():
            edges |= {copy: [*values] for copy in members}
            numbers = {copy: _MEMCPY_NAME.fullmatch(self._trace.names[copy]) for copy in members}
            if len(values) == len(members) and all(numbers.values()):  # named in the order of inputs, then of names
                order = sorted(members, key=lambda copy: int((numbers[copy] or [0, None])[1] or -1))
                names = self._ran.value_names
                ranks = sorted(values, key=lambda v: (inputs.index(v) if v in inputs else len(inputs), names[v]))
                edges |= {copy: [value] for copy, value in zip(order, ranks, strict=True)}
        return edges

    def _candidates(self, copy: int) -> list[int]:
        """Return the tensors that pass from one provider to another where a copy stands, and fit it."""
        ran, parent = self._ran, self._trace.parents[copy]
        if parent >= 0 and self._nodes[parent] < 0:
            return []
        frames = (0,) if parent < 0 else ran.bodies(self._nodes[parent])
        source, target = "host", "device"
        if self._trace.ops[copy] == "MemcpyToHost":
            source, target = target, source
        return [
            value
            for frame in frames
            for value in (ran.value_subgraph == frame).nonzero()[0].tolist()
            if not (ran.value_kind[value] == INITIALIZER or ran.constant_values[value])
            and source in self._sides(copy, int(ran.producer[value]))
            and any(
                target in self._sides(copy, reader) and ran.node_subgraph[reader] == frame  # a body copies by itself
                for reader in ran.consumers(value).tolist()
            )
            and self._fits(copy, value)
        ]

    def _sides(self, copy: int, node: int) -> set[str]:
        """Return where a node computes, seen from a copy: on its provider's "device", the "host", or perhaps both."""
        if node < 0 or self._ran.op_type(node) in names_where("host_output"):
            return {"host"}
        if (kernel := self._kernel.get(node)) is None:
            return {"device", "host"}
        providers = [self._trace.details[one].get("provider") for one in (kernel, copy)]
        return {"device"} if providers[0] == providers[1] else {"host"}

    def _fits(self, copy: int, value: int) -> bool:
        """Return whether a tensor of the model's type and shape, as far as they are known, was copied."""
        details = self._trace.details[copy]
        types = details.get("input_type_shape") or details.get("output_type_shape") or [{}]
        first = types[0] if isinstance(types, list) else {}
        kind = self._ran.type_of(value)
        if not isinstance(first, dict) or not first or not kind.dtype:
            return True
        dtype, shape = next(iter(first.items()))
        is_shape = isinstance(shape, list) and (kind.shape is None or fits(kind.shape, shape))
        return dtype == _RUNTIME_NAMES.get(kind.dtype, kind.dtype) and is_shape


def by_name(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of each name, without empty ones."""
    return followers((name, number) for number, name in enumerate(names) if name)


def _chosen(numbers: Sequence[int], subgraphs: Ints, subgraph: int) -> int:
    candidates = [number for number in numbers if subgraphs[number] == subgraph] or numbers
    return candidates[0] if len(candidates) == 1 else -1
