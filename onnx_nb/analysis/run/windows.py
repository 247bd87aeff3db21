"""Run a model as windows of consecutive nodes, each a small onnxruntime session, and pass on every value.

A window reads live values: onnxruntime's own, which also hold their types, so that no types are inferred. A value is
dropped after its last reader. The size of a window follows from the bytes that earlier windows produced, so that far
less memory is needed than for all values together, or even for a plain run.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto

from onnx_nb.analysis.errors import CaptureError, ExternalDataError, OnnxNbError
from onnx_nb.analysis.formatting import quoted, shape_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.names import BODY_INPUT, INITIALIZER
from onnx_nb.analysis.graph.types import FLOATS_WANTED, unwrapped
from onnx_nb.analysis.model.functions import called_by, calls_between
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.tensors import all_nodes, attribute, dtype_name, elements, input_types, numpy_dtype
from onnx_nb.analysis.run import session as sessions

if TYPE_CHECKING:
    import onnxruntime

    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.run.session import Value

    RunBody: TypeAlias = Callable[[int, Sequence[Value | None]], list[Value | None]]

WINDOW_BYTES: Final = 32 << 20
"""Bytes; target size of a window's values. Larger windows cost memory and are no faster."""
WINDOW_NODES: Final = 256
"""Maximum number of nodes in a window: progress is reported and a cancel takes effect between windows."""
_MODEST: Final = WINDOW_BYTES // 16
"""Bytes; after a window of at least this size, the bytes of the next are estimated from known shapes."""


class Sink:
    """Receives the values of a run. An error that a method raises ends the run."""

    def before(self, nodes: Sequence[int], share: float) -> None:
        """Receive the nodes that run next, and the fraction of the main graph's nodes (0 … 1) that has run."""

    def record(self, value: int, ort_value: Value | None, index: tuple[int, ...]) -> None:
        """Receive a wanted value; ``index`` holds the iterations of the subgraphs around it."""
        raise NotImplementedError

    def ran(self, nodes: Sequence[int], seconds: float, nbytes: Sequence[int]) -> None:
        """Receive the seconds that a window took, and the bytes that each of its nodes produced."""

    def held(self) -> int:
        """Return the bytes of recorded values kept in memory. All other values are dropped after this call."""
        return 0


class Windows:
    """Runs one model, once or repeatedly with different feeds."""

    def __init__(
        self, graph: Graph, values: Collection[int], *, memory_limit: int, single: bool = False, reuse: bool = False
    ) -> None:
        self.graph = graph
        self.values = values = frozenset(values)
        self.memory_limit = memory_limit
        # the arena reuses memory of dropped values, and may hold blocks that fit no other value
        self._shares_memory = memory_limit >= 32 * WINDOW_BYTES
        self._single, self._reuse = single, reuse
        self._reused_bytes = 0
        self._maker = _SessionMaker(graph, self.values)
        self._opened = bodies = _opened(graph, values)
        # without self: sessions end with the last reference, since a forked process hangs if it collects one
        self._order = functools.cache(lambda subgraph: _execution_order(graph, subgraph, values, bodies))
        self._sessions: dict[tuple[int, int, int], _WindowSession] = {}
        self._ends: dict[tuple[int, int], int] = {}
        """Ends of windows in subgraphs, by subgraph and start: each iteration uses the same sessions."""
        self._plan: list[int] = []
        """Ends of the main graph's windows in an earlier run."""
        self._plan_bytes = -1
        """Bytes alive when that run began; a run with fewer can follow the plan."""

    @property
    def runs(self) -> list[int]:
        """The nodes of the main graph that run, in order of execution."""
        return self._order(0).nodes

    def steps(self, feed: Mapping[str, Any], sink: Sink) -> Iterator[float]:
        """Run once on a feed of `validate_feeds`, a window for each step; yield the fraction of all nodes that has run.

        If onnxruntime rejects or fails on a node, the message of the `CaptureError` names it.
        """
        graph, types = self.graph, input_types(self.graph.model)
        inputs: dict[int, Value | None] = {}
        for name, array in feed.items():
            # the element type of an empty sequence
            data_type = unwrapped(types[name]).tensor_type.elem_type or TensorProto.FLOAT
            inputs[graph.value(name)] = None if array is None else sessions.to_value(array, data_type=data_type)
        for value, ort_value in inputs.items():
            if value in self.values:
                sink.record(value, ort_value, ())
        for value in sorted(self.values):
            # a weight that may be overridden is wanted only where it is overridden
            if graph.value_kind[value] == INITIALIZER and not (value in inputs or value in self._maker.overridable):
                sink.record(value, self._maker.constant(value), ())
        try:
            yield from self._steps(self._order(0), inputs, {}, _RunState(graph, feed, sink), ())
        finally:
            if self._shares_memory:
                sessions.release_arena()

    def _steps(
        self,
        order: _ExecutionOrder,
        inputs: Mapping[int, Value | None],
        outer: MutableMapping[int, Value | None],
        state: _RunState,
        index: tuple[int, ...],
    ) -> Generator[float, None, MutableMapping[int, Value | None]]:
        """Run a subgraph, a window for each step; return the values alive at its end: its outputs."""
        is_main, total = order.subgraph == 0, len(order.nodes)
        alive = {value: ort_value for value, ort_value in inputs.items() if value in order.last_reader}
        scope = ChainMap(alive, outer) if outer else alive
        state.alive += sum(map(_nbytes, alive.values()))
        bytes_at_entry = state.alive
        plan = self._plan if is_main and self._plan_bytes >= state.alive else []
        ends: list[int] = []
        start, most = 0, WINDOW_NODES
        while start < total:
            stop = plan[len(ends)] if plan else min(self._window_end(order, start, state), start + most)
            nodes = order.nodes[start:stop]
            if is_main:
                state.share = start / total
            state.sink.before(nodes, state.share)
            try:
                outputs, seconds = self._run_window(order, start, stop, scope)
            except ExternalDataError:
                raise
            except OnnxNbError as error:
                if len(nodes) == 1:
                    raise self._failed(order, nodes[0], error, scope) from error
                most, plan = len(nodes) // 2, []  # find the failing node by bisection
                continue
            ends.append(stop)
            sizes = {value: _nbytes(ort_value) for value, ort_value in outputs.items()}
            nbytes = sum(sizes.values())
            state.nodes, state.typical, state.largest = len(nodes), nbytes / len(nodes), max(state.largest, nbytes)
            state.sink.ran(nodes, seconds, [sum(sizes.get(v, 0) for v in order.makes[node]) for node in nodes])
            for node in nodes:
                if node in self._opened:
                    self._run_subgraphs(node, scope, state, index)
                for value in order.makes[node]:
                    if value in self.values:
                        state.sink.record(value, outputs[value], index)
            for value, size in sizes.items():
                if self._maker.is_needed_after(order, stop, value):
                    alive[value] = outputs[value]
                    state.alive += size
            del outputs  # from here on only `alive` may hold a value
            for value in {v for node in nodes for v in order.reads[node] if order.last_reader[v] < stop and v in alive}:
                state.alive -= _nbytes(alive.pop(value))
            state.sink_bytes = state.sink.held()
            if self._shares_memory:
                state.spare += nbytes
                if state.spare > self.memory_limit // 8:
                    sessions.release_arena()
                    state.spare = 0
            start = stop
            yield start / total
        if is_main and self._reuse and not plan:
            self._plan, self._plan_bytes = ends, bytes_at_entry
        state.alive -= sum(map(_nbytes, alive.values()))
        return scope

    def _window_end(self, order: _ExecutionOrder, start: int, state: _RunState) -> int:
        if self._single:
            return start + 1
        if (known_end := self._ends.get((order.subgraph, start))) is not None:
            return known_end
        budget = min(WINDOW_BYTES, max(self.memory_limit - state.alive - state.sink_bytes - state.spare, 0) // 2)
        # twice the last one's nodes while there is room
        fitting = int(budget / state.typical) if state.typical else WINDOW_NODES
        limit = min(start + max(1, min(2 * state.nodes, fitting, WINDOW_NODES)), len(order.nodes))
        must_estimate = state.largest > _MODEST or budget < _MODEST
        graph = self.graph
        stop, nbytes = start, 0
        while stop < limit:
            node = order.nodes[stop]
            # subgraphs that run again read live values too; if there are Scans, the ranks of those must be known
            may_split = stop > start and self._maker.has_scans
            has_bodies = may_split and (graph.outer_values(node).size or graph.bodies(node) or graph.called(node))
            if node in self._opened or has_bodies:
                stop = max(stop, start + 1)
                break
            if must_estimate:
                sizes = [state.size_of(value) for value in order.makes[node]]
                nbytes += sum(math.ceil(state.typical) if size is None else size for size in sizes)
                if nbytes > budget and stop > start:
                    break
            stop += 1
        if order.subgraph:
            self._ends[order.subgraph, start] = stop
        return stop

    def _run_window(
        self, order: _ExecutionOrder, start: int, stop: int, scope: Mapping[int, Value | None]
    ) -> tuple[dict[int, Value | None], float]:
        """Run a window; return the values that it produced, and the seconds that it took."""
        key = order.subgraph, start, stop
        window = self._sessions.get(key)
        type_of = self._maker.declared_type
        if window is None or any(kind != type_of(value, scope[value]) for value, kind in window.inputs.items()):
            window = self._maker.window(order, start, stop, scope)
            self._reused_bytes += 0 if order.subgraph else window.nbytes
            if order.subgraph or (self._reuse and self._reused_bytes <= self.memory_limit // 4):
                self._sessions[key] = window
        names, optional = self.graph.value_names, self._maker.optional
        inputs = {names[value]: ort_value for value in window.inputs if (ort_value := scope[value]) is not None}
        before = time.perf_counter()
        results = sessions.run_values(window.session, inputs, name=window.name)
        seconds = time.perf_counter() - before
        pairs = ((value, results[names[value]]) for value in window.outputs)
        # asking an absent optional for anything else ends the process
        return {value: one if value not in optional or one.has_value() else None for value, one in pairs}, seconds

    def _failed(
        self, order: _ExecutionOrder, node: int, error: OnnxNbError, scope: Mapping[int, Value | None]
    ) -> CaptureError:
        read = []
        for value in dict.fromkeys(order.reads[node]):
            ort_value = scope.get(value)
            if ort_value is not None and ort_value.is_tensor():
                kind = f"{shape_text(ort_value.shape())} {dtype_name(ort_value.element_type())}"
                read.append(f"{quoted(self.graph.value_names[value])} ({kind})")
        inputs = f" It reads {', '.join(read[:6])}." if read else ""
        return CaptureError(f"{error.message}{inputs}", advice=error.advice, node=self.graph.names[node])

    def _run_subgraphs(
        self, node: int, outer: MutableMapping[int, Value | None], state: _RunState, index: tuple[int, ...]
    ) -> None:
        """Run the subgraphs of a node once more, in windows, to record the values inside."""
        graph = self.graph
        op, _ = graph.operators[int(graph.op_index[node])]
        inputs = [self._value(v, outer) if v >= 0 else None for v in graph.node_inputs(node).tolist()]
        if op == "If":
            assert inputs[0] is not None  # the condition is not optional  # noqa: S101
            branch = "then_branch" if bool(sessions.to_array(inputs[0])) else "else_branch"
            for subgraph in self._opened[node]:
                if graph.subgraphs[subgraph].attribute == branch:
                    self._run_subgraph(subgraph, [], outer, state, index)
            return
        (body,) = self._opened[node]

        def run_body(number: int, values: Sequence[Value | None]) -> list[Value | None]:
            return self._run_subgraph(body, values, outer, state, (*index, number))

        _ITERATIONS[op](graph.node(node), inputs, run_body)

    def _run_subgraph(
        self,
        subgraph: int,
        values: Sequence[Value | None],
        outer: MutableMapping[int, Value | None],
        state: _RunState,
        index: tuple[int, ...],
    ) -> list[Value | None]:
        place = self.graph.subgraphs[subgraph]
        inputs = dict(zip(place.inputs.tolist(), values, strict=False))
        for value, ort_value in inputs.items():
            if value in self.values and self.graph.value_kind[value] == BODY_INPUT:
                state.sink.record(value, ort_value, index)
        steps = self._steps(self._order(subgraph), inputs, outer, state, index)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return [self._value(value, end.value) for value in place.outputs.tolist()]

    def _value(self, value: int, scope: Mapping[int, Value | None]) -> Value | None:
        return scope[value] if value in scope else self._maker.constant(value)


def _opened(graph: Graph, values: Collection[int]) -> dict[int, list[int]]:
    """Return the nodes with wanted values in their subgraphs, at any depth, and these subgraphs."""
    has_values = np.zeros(len(graph.subgraphs), bool)
    has_values[graph.value_subgraph[list(values)]] = True
    for number in range(len(has_values) - 1, 0, -1):  # outer subgraphs come first
        has_values[graph.subgraphs[number].parent] |= has_values[number]
    numbers = (np.flatnonzero(has_values[1:]) + 1).tolist()
    return followers((graph.subgraphs[number].owner_node, number) for number in numbers)


@dataclass(eq=False)
class _RunState:
    """Bytes in use during one run, the size of its last window, and the sizes of values as far as known."""

    graph: Graph
    feed: Mapping[str, Any]
    sink: Sink
    alive: int = 0
    """Bytes of values that later windows read."""
    sink_bytes: int = 0
    """Bytes that the sink keeps."""
    spare: int = 0
    """Bytes freed since the arena was last shrunk; it may still hold them."""
    share: float = 0.0
    """Fraction of the main graph's nodes that has run."""
    nodes: int = 0
    """Number of nodes in the last window."""
    typical: float = 0.0
    """Mean bytes produced per node of the last window."""
    largest: int = 0
    """Bytes of the largest window."""

    def size_of(self, value: int) -> int | None:
        """Return the bytes of a value by its declared or inferred type, with the feed's sizes for named dimensions."""
        kind = self.graph.type_of(value)
        sizes = [self._dims.get(dim) if isinstance(dim, str) else dim for dim in kind.shape or ()]
        if kind.shape is None or None in sizes:
            return None
        dtype = numpy_dtype(kind.elem_type)
        return elements([size for size in sizes if size is not None]) * (8 if dtype is None else dtype.itemsize)

    @functools.cached_property
    def _dims(self) -> dict[str, int]:
        dims: dict[str, int] = {}
        for name, array in self.feed.items():
            shape = self.graph.type_of(self.graph.value(name)).shape
            if isinstance(array, np.ndarray) and shape is not None:
                dims.update((dim, size) for dim, size in zip(shape, array.shape, strict=False) if isinstance(dim, str))
        return dims


def _nbytes(value: Value | None) -> int:
    return int(value.tensor_size_in_bytes()) if value is not None and value.is_tensor() else 0


def _loop(_: NodeProto, inputs: Sequence[Value | None], run_body: RunBody) -> None:
    trips, condition, states = inputs[0], inputs[1] if len(inputs) > 1 else None, list(inputs[2:])
    count = math.inf if trips is None else int(sessions.to_array(trips).reshape(()))
    if condition is None:
        condition = sessions.to_value(np.array(True))  # noqa: FBT003
    for i in itertools.count():
        if i >= count or not bool(sessions.to_array(condition).reshape(())):
            return
        results = run_body(i, [sessions.to_value(np.array(i, np.int64)), condition, *states])
        condition, states = results[0], list(results[1 : 1 + len(states)])
        assert condition is not None  # the condition is not optional  # noqa: S101


def _scan(node: NodeProto, inputs: Sequence[Value | None], run_body: RunBody) -> None:
    count = attribute(node, "num_scan_inputs")
    axes, backward = (attribute(node, f"scan_input_{name}", [0] * count) for name in ("axes", "directions"))
    states, scans = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    arrays = []
    for value, axis, back in zip(scans, axes, backward, strict=True):
        assert value is not None  # Scan has no optional inputs  # noqa: S101
        array = np.moveaxis(sessions.to_array(value), axis, 0)
        arrays.append(array[::-1] if back else array)
    for i in range(len(arrays[0])):
        rows = [sessions.to_value(np.ascontiguousarray(array[i])) for array in arrays]
        states = run_body(i, [*states, *rows])[: len(states)]


def _sequence_map(_: NodeProto, inputs: Sequence[Value | None], run_body: RunBody) -> None:
    sequences = [value if value is None or value.is_tensor() else sessions.to_array(value) for value in inputs]
    assert isinstance(sequences[0], list)  # noqa: S101
    for i in range(len(sequences[0])):
        run_body(i, [sessions.to_value(item[i]) if isinstance(item, list) else item for item in sequences])


_ITERATIONS: Final = {"Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
"""Functions of a node, its inputs, and a function that runs the body once."""


def can_look_inside(graph: Graph, node: int) -> bool:
    """Return whether the subgraphs of a node can be run by themselves."""
    op, domain = graph.operators[int(graph.op_index[node])]
    return not domain and (op == "If" or (op in _ITERATIONS and (op != "Scan" or graph.opsets.get("", 0) >= 9)))


class _WindowSession(NamedTuple):
    name: str
    session: onnxruntime.InferenceSession
    inputs: Mapping[int, TypeProto | None]
    """Values to feed, and their types; None for an absent optional, which a node in the session creates."""
    outputs: list[int]
    nbytes: int
    """Bytes of the weights in it."""


class _SessionMaker:
    def __init__(self, graph: Graph, values: frozenset[int]) -> None:
        self.graph = graph
        self._values = values
        sessions.check_dimensions(graph.opened(graph.model))
        self.overridable = frozenset(graph.overridable.tolist())
        """Weights that are also graph inputs."""
        proto = graph.model.proto
        nodes = all_nodes([*proto.graph.node, *(node for function in proto.functions for node in function.node)])
        op_types = {node.op_type for node in nodes}
        self.has_scans, self._has_loops = "Scan" in op_types, "Loop" in op_types
        self.optional: dict[int, TypeProto] = {}
        """Types of values that are optional, as far as seen."""
        has_optional = any(info.type.HasField("optional_type") for info in proto.graph.input)
        self._may_be_optional = has_optional or "Optional" in op_types
        if self._may_be_optional:
            kinds = [kind.proto for kind in graph.declared.table.known]
            types = enumerate(map(kinds.__getitem__, graph.declared.of_value.tolist()))
            self.optional = {value: kind for value, kind in types if kind.HasField("optional_type")}
        self._calls = calls_between(graph.functions)

    def is_constant(self, value: int) -> bool:
        maker = int(self.graph.producer[value])
        return maker >= 0 and bool(self.graph.is_constant[maker])

    def is_needed_after(self, order: _ExecutionOrder, stop: int, value: int) -> bool:
        """Return whether a node after ``stop`` reads a value, which therefore has to stay alive."""
        return order.last_reader.get(value, -1) >= stop and not self.is_constant(value)

    def declared_type(self, value: int, ort_value: Value | None) -> TypeProto | None:
        """Return the type to declare an input of a session with; None for an absent optional value."""
        if ort_value is None or value in self.optional:
            return None if ort_value is None else self.optional[value]
        is_vector = ort_value.is_tensor() and len(ort_value.shape()) == 1
        if is_vector and any(self.graph.op_type(n) in FLOATS_WANTED for n in self.graph.consumers(value).tolist()):
            # onnxruntime counts the sizes that a Resize reads
            return onnx.helper.make_tensor_type_proto(ort_value.element_type(), ort_value.shape())
        if not (self.has_scans or self._has_loops) or not ort_value.is_tensor():
            return sessions.parsed_type(ort_value.data_type())
        data_type, shape = ort_value.element_type(), ort_value.shape()
        dims = self.graph.type_of(value).shape
        if self._has_loops and dims is not None and len(dims) == len(shape):
            # the rows of a Loop that runs 0 times have the shape that onnxruntime infers for them
            return onnx.helper.make_tensor_type_proto(
                data_type, [size if size == dim else None for size, dim in zip(shape, dims, strict=True)]
            )
        if not self.has_scans:
            return sessions.parsed_type(ort_value.data_type())
        # onnxruntime runs a Scan only if it could infer at least the rank of each output of its body
        is_exact = len(shape) == 1 and data_type == TensorProto.INT64
        return onnx.helper.make_tensor_type_proto(data_type, shape if is_exact else [None] * len(shape))

    def window(
        self, order: _ExecutionOrder, start: int, stop: int, alive: Mapping[int, Value | None]
    ) -> _WindowSession:
        """Create the session of the nodes from ``start`` to ``stop``; ``alive`` holds all values that they read."""
        graph, names = self.graph, self.graph.value_names
        nodes = order.nodes[start:stop]
        products = [value for node in nodes for value in order.makes[node]]
        inside = set(products)
        proto = self._new_proto("window")
        inputs: dict[int, TypeProto | None] = {}
        nbytes = 0
        for value in dict.fromkeys(v for node in nodes for v in order.reads[node] if v not in inside):
            if value in alive:
                kind = inputs[value] = self.declared_type(value, alive[value])
                if kind is not None:
                    proto.graph.input.add(name=names[value]).type.CopyFrom(kind)
                else:  # a session cannot be given one
                    element = self.optional[value].optional_type.elem_type
                    proto.graph.node.append(onnx.helper.make_node("Optional", [], [names[value]], type=element))
            elif graph.value_kind[value] == INITIALIZER:
                nbytes += self._add_weight(proto.graph, value)
            else:
                assert self.is_constant(value)  # all other values are alive  # noqa: S101
                proto.graph.node.append(graph.node(int(graph.producer[value])))
        proto.graph.node.extend(graph.node(node) for node in nodes)
        if self._calls:
            proto.functions.extend(graph.functions[key] for key in called_by(map(graph.node, nodes), self._calls))
        outputs = [v for v in products if v in self._values or self.is_needed_after(order, stop, v)] or products[:1]
        for value in outputs:
            proto.graph.output.add(name=names[value])
        name = " … ".join(graph.node_label(node) for node in dict.fromkeys((nodes[0], nodes[-1])))
        model = with_proto(graph.model, proto, name)
        session = sessions.create(model, optimize=False, transient=True, shared_arena=True, checked=True)
        if self._may_be_optional:
            for value, entry in zip(outputs, session.get_outputs(), strict=True):
                if entry.type.startswith("optional("):
                    self.optional[value] = sessions.parsed_type(entry.type)
        return _WindowSession(name, session, inputs, outputs, nbytes)

    def constant(self, value: int) -> Value | None:
        """Return a weight or the result of a Constant node as a value."""
        name = self.graph.value_names[value]
        proto = self._new_proto("weight")
        if self.graph.value_kind[value] == INITIALIZER:
            self._add_weight(proto.graph, value)
        else:
            proto.graph.node.append(self.graph.node(int(self.graph.producer[value])))
        proto.graph.output.add(name=name)
        model = with_proto(self.graph.model, proto, quoted(name))
        session = sessions.create(model, optimize=False, transient=True, checked=True)
        return sessions.run_values(session, {}, name=quoted(name))[name]

    def _new_proto(self, name: str) -> ModelProto:
        source = self.graph.model.proto
        return ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, graph=GraphProto(name=name))

    def _add_weight(self, target: GraphProto, value: int) -> int:
        """Add a weight; return its approximate bytes."""
        tensor = self.graph.weight(value)
        if not isinstance(tensor, TensorProto):
            target.sparse_initializer.append(cast("SparseTensorProto", tensor))
            return 0
        target.initializer.append(tensor)
        if value in self.overridable:
            # as in the whole model: onnxruntime may treat weights that can be overridden differently
            info = target.input.add(name=tensor.name)
            info.type.CopyFrom(onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        return elements(tensor.dims) * 4


class _ExecutionOrder(NamedTuple):
    """The nodes of one subgraph that run. Values and nodes are numbers of the graph."""

    subgraph: int
    nodes: list[int]
    reads: Mapping[int, list[int]]
    """Values that each node reads, including outer-scope values of its subgraphs."""
    makes: Mapping[int, list[int]]
    last_reader: dict[int, int]
    """Position of the last reader of each value; ``len(nodes)`` for outputs of the subgraph."""


def _execution_order(graph: Graph, subgraph: int, values: Collection[int], owners: Collection[int]) -> _ExecutionOrder:
    place = graph.subgraphs[subgraph]
    outputs = frozenset(v for v in place.outputs.tolist() if v >= 0) if subgraph else frozenset()
    nodes = graph.subgraph_order(subgraph).tolist()
    reads = {node: graph.reads(node) for node in nodes}
    makes = {node: graph.results(node) for node in nodes}
    makers = {int(graph.producer[v]) for v in outputs.union(v for v in values if graph.value_subgraph[v] == subgraph)}
    # opened nodes read what their subgraphs read
    makers.update(node for node in owners if place.start <= node < place.stop)
    ancestors = makers & reads.keys()
    waiting = list(ancestors) if len(ancestors) < len(reads) else []
    while waiting:
        sources = {int(graph.producer[v]) for v in reads[waiting.pop()]} & reads.keys() - ancestors
        ancestors |= sources
        waiting += sources
    nodes = _constants_late(graph, [node for node in nodes if node in ancestors], reads)
    last_reader = {value: position for position, node in enumerate(nodes) for value in reads[node]}
    last_reader.update(dict.fromkeys(outputs, len(nodes)))
    return _ExecutionOrder(subgraph, nodes, {node: reads[node] for node in nodes}, makes, last_reader)


def _constants_late(graph: Graph, nodes: list[int], reads: Mapping[int, Sequence[int]]) -> list[int]:
    """Move nodes that depend on no input right before their first reader: their values may be as large as weights."""
    kinds, producer = graph.value_kind, graph.producer
    constant = {node for node in nodes if all(kinds[v] == INITIALIZER for v in reads[node])}
    if not constant:
        return nodes
    for node in nodes:
        if node not in constant and all(kinds[v] == INITIALIZER or int(producer[v]) in constant for v in reads[node]):
            constant.add(node)
    number = {node: at for at, node in enumerate(nodes)}
    position = dict(number)
    first_reader: dict[int, int] = {}
    for node in reversed(nodes):
        if node in constant:
            position[node] = first_reader.get(node, position[node])
        for value in reads[node]:
            maker = int(producer[value])
            if maker in constant:
                first_reader[maker] = min(first_reader.get(maker, len(nodes)), position[node])
    return sorted(nodes, key=lambda node: (position[node], node not in constant, number[node]))
