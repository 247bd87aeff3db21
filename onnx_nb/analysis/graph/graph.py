"""The structure of a model as columns: producers, consumers, bodies, functions, order.

`Graph.of` has the nodes of a model and of the bodies in it, `Graph.opened` also those of local functions at each call.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, plain_text, quoted, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import followers, topological
from onnx_nb.analysis.graph.diagnostics import Problem, Problems, structural_problems
from onnx_nb.analysis.graph.names import INITIALIZER, Names, NodeTable, ints
from onnx_nb.analysis.graph.shape_inference import Inference, TypeWalk
from onnx_nb.analysis.graph.subgraphs import NO_VALUES, Inside, Subgraph, may_hold_graphs, opsets_of
from onnx_nb.analysis.graph.types import DeclaredTypes, ValueType
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.functions import Key, functions_of
from onnx_nb.analysis.model.model import Model, ModelLike, cached, load
from onnx_nb.analysis.model.protofields import Ints, Longs, Spans

INFERENCE_LIMIT = 20_000
"""Maximum number of nodes of a graph whose types are inferred for display; larger graphs have declared types only."""


class Graph:
    """The structure of a model in columns; immutable, made once per `Model`.

    Examples
    --------
    >>> import onnx.parser
    >>> graph = Graph.of(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  z = Add(a, x) }'''))
    >>> graph.value_names, graph.producer.tolist()
    (['x', 'a', 'z'], [-1, 0, 1])
    >>> graph.consumers(graph.value("x")).tolist(), str(graph.type_of(graph.value("a")))
    ([0, 1], '2 float32')
    >>> graph
    Graph(2 nodes, 3 values)
    """

    main_count: int
    """Number of nodes in the main graph: ``nodes[i]`` is ``proto.graph.node[i]`` for every smaller ``i``."""
    operators: list[tuple[str, str]]
    """The distinct (op_type, domain); the default domain is always ""."""
    op_index: Ints
    """The operator of each flat node, an index into `operators`."""
    subgraphs: tuple[Subgraph, ...]
    node_subgraph: Ints
    functions: Mapping[Key, onnx.FunctionProto]
    """Local functions by (domain, name, overload)."""
    closed_calls: Mapping[int, str]
    """Calls that `opened` had to leave closed, and the reasons."""
    opsets: Mapping[str, int]
    in_value: Ints
    """Inputs of node ``i``: ``in_value[in_ptr[i]:in_ptr[i + 1]]``; −1 for an optional one left out."""
    producer: Ints
    """Node that produces each value, or −1."""
    consumer_node: Ints
    """Nodes that name a value among their inputs, once each; see also `outer_values`."""
    inputs: Ints
    """Inputs of the main graph without those that have an initializer."""
    overridable: Ints
    """Initializers that are also graph inputs, so that a caller may override them."""
    order: Ints
    """Main nodes in topological order, as close to file order as possible; nodes on and after cycles come last."""
    rank: Ints
    """Position of a main node in `order`."""
    former: tuple[Graph, Sequence[str]] | None = None
    """The graph before an edit, whose types are taken over once they are asked for, and the tensors that changed."""

    @classmethod
    def of(cls, model: ModelLike) -> Graph:
        """Return the graph of a model, made at the first call and kept with the model."""
        source = load(model)
        return cached(source, cls, lambda: cls(source))

    @classmethod
    def opened(cls, model: ModelLike) -> Graph:
        """Return the graph of a model with its calls of local functions opened; the graph of `of` if there are none.

        The nodes of calls follow those of bodies, and so do their values: all that `of` has keeps its number here. The
        nodes inside a call read the caller's values as its inputs; the outputs of a call are values of their own. Names
        inside a call are prefixed with its name: "/block.0::h".

        Examples
        --------
        >>> import onnx.parser
        >>> graph = Graph.opened(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17, "my": 1]>
        ... g (float[2] x) => (float[2] z) { [call] z = my.Twice(x) }
        ... <domain: "my", opset_import: ["": 17]> Twice (a) => (b) { b = Add(a, a) }'''))
        >>> graph.value_names, [node.op_type for node in graph.nodes], graph.node_inputs(1).tolist()
        (['x', 'z', 'call::b'], ['Twice', 'Add'], [0, 0])
        """
        source = load(model)
        plain = cls.of(source)
        if not plain.functions:
            return plain
        return cached(source, (cls, "opened"), lambda: cls(source, plain))

    def __init__(self, model: Model, plain: Graph | None = None) -> None:
        self.model = model
        self.plain = plain or self
        """The graph without the nodes inside calls."""
        proto = model.proto
        self.functions = plain.functions if plain else MappingProxyType(functions_of(proto))
        # imports of the model override those of its functions
        importers = [*(self.functions.values() if plain else ()), proto]
        self.opsets = MappingProxyType(opsets_of(*importers))
        table = NodeTable.of(proto.graph.node)
        self.main_count = len(proto.graph.node)
        able = {key for key in table.operators if may_hold_graphs(*key, self.opsets)}
        inside = Inside(proto.graph, table.rows_of(able), self.opsets)
        if plain:
            inside.open_calls(self.functions, table.rows_of({(name, domain) for domain, name, _ in self.functions}))
        self.closed_calls = MappingProxyType(inside.closed)
        self._inner_nodes = inside.nodes
        self._table = table = table.joined(NodeTable.of(inside.nodes))
        self.node_count = len(table.names)
        self.operators, self.op_index = table.operators, table.op_index.astype(np.int32)
        self.in_ptr, self.out_ptr = _pointers(table.in_count), _pointers(table.out_count)

        self._resolved = names = Names(table, self.in_ptr, self.out_ptr)
        self.prefixes = names.prefixes
        """Prefix of the names of nodes and values in each subgraph: the name of its call, "call::"."""
        self.subgraphs = tuple(map(names.resolve, inside.subgraphs))
        self.value_count = len(names.kinds)
        self.value_kind = np.frombuffer(bytes(names.kinds), np.uint8)
        counts = np.diff(names.subgraph_ends, prepend=0)
        self.value_subgraph = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.in_value, self.out_value = names.in_value, names.out_value
        sizes = [place.stop - place.start for place in self.subgraphs]
        self.node_subgraph = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self.inputs, self.outputs = self.subgraphs[0].inputs, self.subgraphs[0].outputs
        self.overridable = ints(names.overridable)
        self._connect()
        self.order = self.subgraph_order(0)
        self.rank = np.empty(self.main_count, np.int32)
        self.rank[self.order] = np.arange(self.main_count, dtype=np.int32)

    @functools.cached_property
    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes of the main graph in file order, then those of bodies, depth first."""
        return [*self.model.proto.graph.node, *self._inner_nodes]

    def node(self, number: int) -> onnx.NodeProto:
        """Return one of `nodes` without building the list, which takes a second for ten million nodes."""
        inner = number - self.main_count
        return self._inner_nodes[inner] if inner >= 0 else self.model.proto.graph.node[number]

    def weight(self, value: int) -> onnx.TensorProto | onnx.SparseTensorProto | onnx.AttributeProto | None:
        """Return the message with the value of an initializer or a Constant; None for other values."""
        maker = int(self.producer[value])
        if maker < 0 or not self.is_constant[maker]:
            return self._weights.get(value)
        return next((entry for _, entry in tensors.constants_of(self.node(maker))), None)

    @functools.cached_property
    def _weights(self) -> dict[int, tensors.WeightProto]:
        values = (value for place in self.subgraphs for value in place.weights.tolist())
        graphs = (place.graph for place in self.subgraphs)
        return dict(zip(values, (w for g in graphs for w in (*g.initializer, *g.sparse_initializer)), strict=True))

    @functools.cached_property
    def is_constant(self) -> NDArray[np.bool_]:
        """Whether each node is a Constant."""
        return np.asarray([operator == ("Constant", "") for operator in (*self.operators, ())], bool)[self.op_index]

    @functools.cached_property
    def names(self) -> list[str]:
        """The name of each flat node; empty if it has none."""
        return self.name_spans.strings()

    @functools.cached_property
    def name_spans(self) -> Spans:
        """The name of each flat node, in a buffer; in a call, prefixed with the call's name."""
        names, count = self._table.names, self.plain.node_count
        if self.plain is self:
            return names
        prefixes = [prefix.encode() for prefix in self.prefixes]
        inner = zip(names[count:].pieces(), self.node_subgraph[count:].tolist(), strict=True)
        return Spans.joined([names[:count], Spans.of(prefixes[f] + name if name else b"" for name, f in inner)])

    @property
    def value_names(self) -> list[str]:
        """The name of each value."""
        return self._resolved.value_names

    @property
    def value_spans(self) -> Spans:
        """The name of each value, in a buffer."""
        return self._resolved.value_spans

    @property
    def names_by_subgraph(self) -> list[dict[str, int]]:
        """The values by name that each subgraph defines itself."""
        return self._resolved.scopes

    def __repr__(self) -> str:
        nodes = f"{self.node_count} node{'' if self.node_count == 1 else 's'}"
        count = len(self.structural_problems.described)
        return f"Graph({nodes}, {self.value_count} values{f', {count} problems' if count else ''})"

    def value(self, name: str) -> int:
        """Return the index of a value of the main graph, or else of the first body that has the name.

        Raises
        ------
        OnnxNbError
            If there is none; the message names the closest ones, or the outputs of a node of that name.
        """
        for frame, (scope, prefix) in enumerate(zip(self._resolved.scopes, self.prefixes, strict=True)):
            number = scope.get(name[len(prefix) :], -1) if name.startswith(prefix) else -1
            if name and number >= 0 and (not prefix or self.value_subgraph[number] == frame):
                return number
        node = self.names.index(name) if name and name in self.names else -1
        if node >= 0:
            outputs = ", ".join(quoted(self.value_names[v]) for v in self.node_outputs(node).tolist()[:4] if v >= 0)
            message = f"{quoted(name)} is no tensor but a node, {self.node_label(node)}."
            raise OnnxNbError(message, advice=f"Its outputs: {outputs or 'none'}.")
        advice = closest_text(name, self.value_names) or "The model has no such tensors."
        raise OnnxNbError(f"tensor {quoted(name)} is not in the model.", advice=advice)

    def node_inputs(self, node: int) -> Ints:
        """Return the values that a node names as inputs, −1 where an optional one is omitted."""
        return self.in_value[self.in_ptr[node] : self.in_ptr[node + 1]]

    def node_outputs(self, node: int) -> Ints:
        """Return the values that a node produces, −1 where an optional one is omitted."""
        return self.out_value[self.out_ptr[node] : self.out_ptr[node + 1]]

    def reads(self, node: int) -> list[int]:
        """Return the values that a node reads, those of outer subgraphs that only its bodies read at the end."""
        return [v for v in (*self.node_inputs(node).tolist(), *self.outer_values(node).tolist()) if v >= 0]

    def results(self, node: int) -> list[int]:
        """Return the values that a node produces."""
        return [v for v in self.node_outputs(node).tolist() if v >= 0]

    def consumers(self, value: int) -> Ints:
        """Return the nodes that name a value among their inputs."""
        return self.consumer_node[self.consumer_ptr[value] : self.consumer_ptr[value + 1]]

    def outer_values(self, node: int) -> Ints:
        """Return the values of outer subgraphs that the bodies of a node read, at any depth; empty without bodies."""
        return self._captured.get(node, NO_VALUES)

    def op_type(self, node: int) -> str:
        """Return the type of a node's operator, without its domain."""
        return str(self.operators[self.op_index[node]][0])

    def called(self, node: int) -> onnx.FunctionProto | None:
        """Return the local function that a node calls."""
        op, domain = self.operators[self.op_index[node]]
        return self.functions.get((domain, op, plain_text(self.node(node).overload))) if self.functions else None

    def bodies(self, node: int) -> tuple[int, ...]:
        """Return the subgraphs that a node owns."""
        return self._bodies_of.get(node, ())

    def opsets_of(self, node: int) -> Mapping[str, int]:
        """Return the opset version of each domain for a node; inside a function, those of the function."""
        functions = (self.subgraphs[number].function for number in self.around(int(self.node_subgraph[node])))
        function = next(filter(None, functions), None)
        return self.plain.opsets if function is None else opsets_of(function)

    def around(self, number: int) -> Iterator[int]:
        """Yield a subgraph and those around it, the innermost first."""
        while number >= 0:
            yield number
            number = self.subgraphs[number].parent

    def node_label(self, node: int) -> str:
        """Name a node for a message: "Conv '/stem/Conv'", or "Conv" if it has no name."""
        op, name = shortened(self.op_type(node), 100) or "a node without op_type", self.names[node]
        return f"{op} {quoted(name)}" if name else op

    def node_labels(self, nodes: Sequence[int]) -> str:
        """Name several nodes for a message: the first, the last, and their number."""
        first = self.node_label(nodes[0])
        return first if len(nodes) == 1 else f"{first} … {self.node_label(nodes[-1])} ({len(nodes)} nodes)"

    def subgraph_label(self, frame: int) -> str:
        """Name a body or call for a message: "then_branch of If '/choose/If'", "the call Block '/block.0'"."""
        inside = self.subgraphs[frame]
        owner = self.node_label(inside.owner_node) if frame else "the model"
        return f"{inside.attribute} of {owner}" if inside.attribute else f"the call {owner}" if frame else owner

    def attribute_bytes(self, node: int) -> bytes:
        """Return a node's attributes as serialized in a NodeProto; equal bytes mean equal attributes.

        Bodies and large tensors may be left out: ask ``nodes[node]`` for them.
        """
        attributes = self._table.attributes
        return attributes.buffer[int(attributes.begin[node]) : int(attributes.end[node])]

    @functools.cached_property
    def attribute_numbers(self) -> Longs:
        """A number for each node, the same for nodes of equal `attribute_bytes`; −1 without attributes."""
        return self._table.attributes.numbered()[0]

    def with_attributes(self) -> Iterator[tuple[int, bytes]]:
        """Yield each node that has attributes, and its `attribute_bytes`."""
        nodes = np.flatnonzero(self._table.attributes.end)
        yield from zip(nodes.tolist(), self._table.attributes[nodes].pieces(), strict=True)

    def type_of(self, value: int) -> ValueType:
        """Return the type of a value: as declared, else as inferred (in graphs of at most `INFERENCE_LIMIT` nodes)."""
        return self.known_types[int(self.type_index[value])]

    @property
    def type_index(self) -> Ints:
        """The type of each value, an index into `known_types`."""
        return self._types[0]

    @property
    def known_types(self) -> Sequence[ValueType]:
        """The distinct types; the first is the unknown one."""
        return self._types[1]

    @functools.cached_property
    def declared(self) -> DeclaredTypes:
        """The types that the file declares."""
        return DeclaredTypes.of(self, self._resolved)

    @functools.cached_property
    def inference(self) -> Inference:
        """The types of all values, inferred with the shapes that the inputs declare; see `shape_inference.infer`."""
        return TypeWalk(self, self.declared).run()

    @functools.cached_property
    def update(self) -> Inference:
        """`inference`; or, after an edit, the types before it and those that differ, without the cases of the rest."""
        (former, names), self.former = self.former or (self, ()), None
        is_plain = all(
            len(graph.subgraphs) == 1 and graph.value_count and not (graph.functions or graph._resolved.duplicates)  # noqa: SLF001
            for graph in (self, former)
        )
        if former is self or not is_plain or self.opsets != former.opsets:
            return self.inference
        return TypeWalk(self, self.declared).run_after(former.update, names)

    @functools.cached_property
    def _types(self) -> tuple[Ints, Sequence[ValueType]]:
        unfolded = type(self).opened(self.model)
        if self is not unfolded:
            index, kinds = unfolded._types  # noqa: SLF001 (its own class)
            return index[: self.value_count], kinds
        types = self.declared
        if self.node_count > INFERENCE_LIMIT or types.cover(self):
            return types.of_value, types.table.known
        # a complete declared type is shown, even if it contradicts the inferred one
        of_value = np.where(types.is_whole, types.of_value, self.update.of_value)
        return of_value.astype(np.int32), self.update.table.known

    @functools.cached_property
    def folded(self) -> NDArray[np.bool_]:
        """The nodes that only compute constants from constants: a drawing shows their results inside the readers.

        Random or unknown operators, nodes with bodies and producers of a model output are excluded. If a model has no
        inputs, so that all of it is constant, these are only its Constant nodes.
        """
        good = [
            operators.facts(op, domain).category not in ("random", "control")
            and operators.schema(op, domain, self.opsets.get(domain, 0)) is not None
            and (op == "Constant" or len(self.inputs) > 0)
            for op, domain in self.operators
        ]
        foldable = np.asarray(good, bool)[self.op_index] & ((np.diff(self.in_ptr) > 0) | self.is_constant)
        outputs = np.concatenate([frame.outputs for frame in self.subgraphs])
        makers = self.producer[outputs[outputs >= 0]]
        foldable[makers[makers >= 0]] = False
        foldable[list(self._bodies_of)] = False

        weight = self.value_kind == INITIALIZER
        value = np.repeat(np.arange(len(weight)), np.diff(self.consumer_ptr))
        waiting = np.bincount(self.consumer_node[~weight[value]], minlength=self.node_count)
        is_folded = np.zeros(self.node_count, bool)
        ready = np.flatnonzero(foldable & (waiting == 0)).tolist()
        while ready:
            node = ready.pop()
            is_folded[node] = True
            for output in self.node_outputs(node).tolist():
                for reader in self.consumers(output).tolist() if output >= 0 else ():
                    waiting[reader] -= 1
                    if not waiting[reader] and foldable[reader]:
                        ready.append(reader)
        return is_folded

    @property
    def constant_values(self) -> NDArray[np.bool_]:
        """The values that are weights or results of folded nodes."""
        is_output = self.producer >= 0
        constant = np.asarray(self.value_kind == INITIALIZER, bool)
        constant[is_output] = self.folded[self.producer[is_output]]
        return constant

    @functools.cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the graph; at most `PROBLEM_LIMIT` of a kind."""
        unfolded = type(self).opened(self.model)
        findings = () if unfolded.node_count > INFERENCE_LIMIT else unfolded.inference.problems
        inferred = [problem for problem in findings if problem.node < self.node_count]
        return (*self.structural_problems.described, *inferred)

    def subgraph_order(self, frame: int) -> Ints:
        """Return the nodes of a subgraph in topological order, as close to file order as possible; cycles last."""
        place = self.subgraphs[frame]
        source, target = self.subgraph_edges(frame)
        if bool(np.all(source < target)):
            return np.arange(place.start, place.stop, dtype=np.int32)
        return ints(topological(place.start, place.stop, zip(source.tolist(), target.tolist(), strict=True)))

    def subgraph_reads(self, frame: int) -> tuple[Ints, Ints]:
        """Return (value, reader) of every read in a subgraph; outer-scope values count as read by the owner."""
        place = self.subgraphs[frame]
        begin, end = self.in_ptr[place.start], self.in_ptr[place.stop]
        counts = np.diff(self.in_ptr[place.start : place.stop + 1])
        target = np.repeat(np.arange(place.start, place.stop, dtype=np.int32), counts)
        value = self.in_value[begin:end]
        first, last = (bisect.bisect_left(self._capturing, node) for node in (place.start, place.stop))
        owners = self._capturing[first:last]
        if owners:
            read = [self._captured[node] for node in owners]
            target = np.concatenate([target, np.repeat(ints(owners), [len(values) for values in read])])
            value = np.concatenate([value, *read])
        return value, target

    def subgraph_edges(self, frame: int) -> tuple[Ints, Ints]:
        """Return (producer, consumer) of every read in a subgraph; outer-scope values count as read by the owner."""
        place, (value, target) = self.subgraphs[frame], self.subgraph_reads(frame)
        source = np.where(value >= 0, self.producer[value], -1) if len(self.producer) else np.full_like(value, -1)
        inside = (source >= place.start) & (source < place.stop)
        return source[inside].astype(np.int32), target[inside]

    def _connect(self) -> None:
        nodes, values = self.node_count, self.value_count
        self.producer = np.full(values, -1, np.int32)
        maker = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(self.out_ptr))
        is_output = self.out_value >= 0
        self.producer[self.out_value[is_output]] = maker[is_output]

        reader = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(self.in_ptr))
        read = self.in_value >= 0
        value, reader = self.in_value[read], reader[read]
        by_value = np.argsort(value, kind="stable")
        value, reader = value[by_value], reader[by_value]
        first = np.ones(len(value), bool)
        first[1:] = (value[1:] != value[:-1]) | (reader[1:] != reader[:-1])
        self.consumer_node = reader[first]
        self.consumer_ptr = _pointers(np.bincount(value[first], minlength=values))

        outer_reads: dict[int, dict[int, None]] = {}
        if len(self.subgraphs) > 1:
            outer = self.value_subgraph[value] != self.node_subgraph[reader]
            reads = [(int(v), int(self.node_subgraph[n])) for v, n in zip(value[outer], reader[outer], strict=True)]
            reads += [(int(v), f) for f, frame in enumerate(self.subgraphs) for v in frame.outputs if f and v >= 0]
            for v, f in reads:
                while f != self.value_subgraph[v] and self.subgraphs[f].function is None:
                    outer_values = outer_reads.setdefault(self.subgraphs[f].owner_node, {})
                    if v in outer_values:
                        break
                    outer_values[v] = None
                    f = self.subgraphs[f].parent  # noqa: PLW2901 (the walk up from the subgraph that reads)
        self._captured = {node: ints(values_) for node, values_ in outer_reads.items()}
        self._capturing = sorted(outer_reads)
        bodies = followers((frame.owner_node, f) for f, frame in enumerate(self.subgraphs[1:], 1))
        self._bodies_of = {node: tuple(numbers) for node, numbers in bodies.items()}

    @functools.cached_property
    def structural_problems(self) -> Problems:
        """All nodes and values with a problem of structure, and descriptions of the first."""
        return structural_problems(self, self._resolved.duplicates)


def _pointers(counts: NDArray[np.int64]) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
