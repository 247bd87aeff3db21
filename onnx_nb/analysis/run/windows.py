"""Run a model as windows of consecutive nodes, each a small onnxruntime session, and hand out every value that passes.

A window reads values that are alive: onnxruntime's own, which also know their types, so that no types are inferred. A
value is dropped after its last reader. The size of a window follows from the bytes that earlier windows made, so that
far less memory is needed than for all values at once, or even for a plain run.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto

from onnx_nb.analysis.errors import CaptureError, ExternalDataError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted, shape_text
from onnx_nb.analysis.graph.names import BODY_INPUT, INITIALIZER
from onnx_nb.analysis.model.tensors import dtype_name, input_types
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.window_sessions import ExecutionOrder, SessionMaker, WindowSession, execution_order

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.run.session import Value

    RunBody: TypeAlias = Callable[[int, Sequence[Value | None]], list[Value | None]]

WINDOW_BYTES: Final = 32 << 20
"""Bytes that a window's values should take: larger windows cost memory and gain no speed."""
WINDOW_NODES: Final = 256
"""Maximum number of nodes in a window: progress is reported and a cancel is seen between windows."""
_MODEST: Final = WINDOW_BYTES // 16
"""Bytes of one window from which on the bytes of the next are estimated from known shapes."""


class Sink:
    """Takes the values that pass. An error that a method raises ends the run."""

    def __init__(self, graph: Graph | None = None, progress: Progress | None = None) -> None:
        self.graph = graph
        self.progress = progress

    def before(self, nodes: Sequence[int], done: float) -> None:
        """Take note of the nodes that run next, and of the part of the main graph's nodes (0 … 1) that has run."""
        if self.progress is not None and self.graph is not None:
            self.progress(done, self.graph.node_labels(nodes))

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        """Take a wanted value; ``index`` holds the iterations of the subgraphs around it."""
        raise NotImplementedError

    def ran(self, nodes: Sequence[int], seconds: float, nbytes: Sequence[int]) -> None:
        """Take note of the seconds that a window took, and of the bytes that each of its nodes made."""

    def held(self) -> int:
        """Return the bytes of recorded values kept in memory. All other values are dropped after this call."""
        return 0


def can_look_inside(graph: Graph, node: int) -> bool:
    """Return whether the subgraphs of a node can be run by themselves."""
    op, domain = graph.operators[int(graph.op_index[node])]
    known = op in ("If", "Loop", "SequenceMap") or (op == "Scan" and graph.opsets.get("", 0) >= 9)
    return known and not domain


class Windows:
    """Runs one model, once or repeatedly with different feeds."""

    def __init__(
        self,
        graph: Graph,
        wanted: Collection[int],
        *,
        memory_limit: int,
        providers: Sequence[str] | None = None,
        single: bool = False,
        reuse: bool = False,
    ) -> None:
        self.graph = graph
        self.wanted = frozenset(wanted)
        self.memory_limit = memory_limit
        # the arena reuses memory of dropped values, and may hold some that fits no other value
        self._shares_memory = memory_limit >= 32 * WINDOW_BYTES
        self._single = single
        self._reuse = reuse
        self._reused_bytes = 0
        self._maker = SessionMaker(graph, self.wanted, providers)
        self._opened = _opened(graph, self.wanted)
        self._orders: dict[int, ExecutionOrder] = {}
        self._sessions: dict[tuple[int, int, int], WindowSession] = {}
        self._ends: dict[tuple[int, int], int] = {}
        """Ends of windows in subgraphs, by subgraph and start: each iteration uses the same sessions."""
        self._plan: list[int] = []
        """Ends of the main graph's windows in an earlier run."""
        self._plan_bytes = -1
        """Bytes alive when that run began; a run with fewer can follow the plan."""
        self._order(0)

    @property
    def node_count(self) -> int:
        """Number of nodes of the main graph that run."""
        return len(self.runs)

    @property
    def runs(self) -> list[int]:
        """The nodes of the main graph that run, in order of execution."""
        return self._order(0).nodes

    def run(self, feed: Mapping[str, Any], sink: Sink) -> None:
        """Run once.

        Parameters
        ----------
        feed
            An array for each input, as `validate_feeds` returns them.
        sink
            Takes the values.

        Raises
        ------
        CaptureError
            If onnxruntime refuses or fails on a node; it names the node.
        """
        for _ in self.steps(feed, sink):
            pass

    def steps(self, feed: Mapping[str, Any], sink: Sink) -> Iterator[float]:
        """Run once, as `run` does, a window for each step; yield the part of all nodes that has run."""
        graph, kinds = self.graph, self.graph.value_kind
        given: dict[int, Value | None] = {}
        types = input_types(graph.model)
        for name, array in feed.items():
            value, kind = graph.value(name), types[name]
            given[value] = None if array is None else sessions.to_value(array, data_type=_element_type(kind))
            if kind.HasField("optional_type"):
                self._maker.optional[value] = sessions.type_name(kind)
        for value, found in given.items():
            if value in self.wanted:
                sink.record(value, found, ())
        for value in sorted(self.wanted):
            # a weight that may be overridden is wanted only where it is overridden
            if kinds[value] == INITIALIZER and not (value in given or self._maker.is_overridable(value)):
                sink.record(value, self._maker.constant(value), ())
        try:
            yield from self._steps(self._order(0), given, {}, _RunState(sink, _ValueSizes(graph, feed)), ())
        finally:
            if self._shares_memory:
                sessions.release_arena()

    def _order(self, subgraph: int) -> ExecutionOrder:
        if subgraph not in self._orders:
            self._orders[subgraph] = execution_order(self.graph, subgraph, self.wanted, self._opened)
        return self._orders[subgraph]

    # --- the windows of a subgraph ------------------------------------------------------------------------------------

    def _steps(
        self,
        order: ExecutionOrder,
        given: Mapping[int, Value | None],
        outer: MutableMapping[int, Value | None],
        state: _RunState,
        index: tuple[int, ...],
    ) -> Generator[float, None, MutableMapping[int, Value | None]]:
        """Run a subgraph, a window for each step; return the values alive at its end: its outputs."""
        is_main, total = order.subgraph == 0, len(order.nodes)
        alive = {value: found for value, found in given.items() if value in order.last_reader}
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
                state.done = start / total
            state.sink.before(nodes, state.done)
            try:
                made, seconds = self._run_window(order, start, stop, scope)
            except ExternalDataError:
                raise
            except OnnxNbError as error:
                if len(nodes) == 1:
                    raise self._failed(order, nodes[0], error, scope) from error
                most, plan = len(nodes) // 2, []  # find the failing node by halves
                continue
            ends.append(stop)
            sizes = {value: _nbytes(found) for value, found in made.items()}
            state.learn(len(nodes), sum(sizes.values()))
            state.sink.ran(nodes, seconds, [sum(sizes.get(v, 0) for v in order.makes[node]) for node in nodes])
            self._record(order, nodes, made, scope, state, index=index)
            for value, size in sizes.items():
                if self._maker.is_needed_after(order, stop, value):
                    alive[value] = made[value]
                    state.alive += size
            del made  # from here on nothing but `alive` may hold a value
            for value in {v for node in nodes for v in order.reads[node] if order.last_reader[v] < stop and v in alive}:
                state.alive -= _nbytes(alive.pop(value))
            state.held = state.sink.held()
            if self._shares_memory:
                state.free_arena(sum(sizes.values()), limit=self.memory_limit // 8)
            start = stop
            yield start / total
        if is_main and self._reuse and not plan:
            self._plan, self._plan_bytes = ends, bytes_at_entry
        state.alive -= sum(map(_nbytes, alive.values()))
        return scope

    def _record(
        self,
        order: ExecutionOrder,
        nodes: Sequence[int],
        made: Mapping[int, Value | None],
        scope: MutableMapping[int, Value | None],
        state: _RunState,
        *,
        index: tuple[int, ...],
    ) -> None:
        """Hand out the wanted values of nodes that ran, those of their subgraphs included."""
        for node in nodes:
            if node in self._opened:
                self._run_subgraphs(node, scope, state, index)
            for value in order.makes[node]:
                if value in self.wanted:
                    state.sink.record(value, made[value], index)

    def _window_end(self, order: ExecutionOrder, start: int, state: _RunState) -> int:
        """Return the end of the window that begins at ``start``."""
        if self._single:
            return start + 1
        known_end = self._ends.get((order.subgraph, start))
        if known_end is not None:
            return known_end
        room = max(self.memory_limit - state.alive - state.held - state.unused, 0)
        budget = min(WINDOW_BYTES, room // 2)
        limit = min(start + state.most_nodes(budget), len(order.nodes))
        must_estimate = state.largest > _MODEST or budget < _MODEST
        stop, nbytes = start, 0
        while stop < limit:
            node = order.nodes[stop]
            if self._starts_window(node) and (stop > start or node in self._opened):
                stop = max(stop, start + 1)
                break
            if must_estimate:
                sizes = [state.sizes.of(value) for value in order.makes[node]]
                nbytes += sum(math.ceil(state.typical) if size is None else size for size in sizes)
                if nbytes > budget and stop > start:
                    break
            stop += 1
        if order.subgraph:
            self._ends[order.subgraph, start] = stop
        return stop

    def _starts_window(self, node: int) -> bool:
        """Return whether all values that a node reads must come from other windows."""
        if node in self._opened:  # its subgraphs read them too
            return True
        # where there are Scans, the ranks of what a node with subgraphs reads must be known
        graph = self.graph
        return self._maker.has_scans and bool(graph.outer_values(node).size or graph.bodies(node) or graph.called(node))

    def _run_window(
        self, order: ExecutionOrder, start: int, stop: int, scope: Mapping[int, Value | None]
    ) -> tuple[dict[int, Value | None], float]:
        """Run a window; return the values that it made, and seconds."""
        key = order.subgraph, start, stop
        window = self._sessions.get(key)
        if window is None or not window.fits(scope):
            window = self._maker.window(order, start, stop, scope)
            if order.subgraph or self._has_room_for(window):
                self._sessions[key] = window
        names, optional = self.graph.value_names, self._maker.optional
        given = {names[value]: found for value in window.inputs if (found := scope[value]) is not None}
        before = time.perf_counter()
        results = sessions.run_values(window.session, given, name=window.name)
        seconds = time.perf_counter() - before
        made: dict[int, Value | None] = {}
        for value in window.outputs:
            result = results[names[value]]
            # asking an absent optional for anything else ends the process
            made[value] = result if value not in optional or result.has_value() else None
        return made, seconds

    def _has_room_for(self, window: WindowSession) -> bool:
        if not self._reuse:
            return False
        self._reused_bytes += window.nbytes
        return self._reused_bytes <= self.memory_limit // 4

    def _failed(
        self, order: ExecutionOrder, node: int, error: OnnxNbError, scope: Mapping[int, Value | None]
    ) -> CaptureError:
        read = []
        for value in dict.fromkeys(order.reads[node]):
            found = scope.get(value)
            if found is not None and found.is_tensor():
                kind = f"{shape_text(found.shape())} {dtype_name(found.element_type())}"
                read.append(f"{quoted(self.graph.value_names[value])} ({kind})")
        inputs = f" It reads {', '.join(read[:6])}." if read else ""
        return CaptureError(f"{error.message}{inputs}", advice=error.advice, node=self.graph.names[node])

    # --- subgraphs of If, Loop, Scan and SequenceMap ------------------------------------------------------------------

    def _run_subgraphs(
        self, node: int, outer: MutableMapping[int, Value | None], state: _RunState, index: tuple[int, ...]
    ) -> None:
        """Run the subgraphs of a node once more, in windows, to see the values inside."""
        graph = self.graph
        op, _ = graph.operators[int(graph.op_index[node])]
        inputs = [self._value(v, outer) if v >= 0 else None for v in graph.node_inputs(node).tolist()]
        if op == "If":
            assert inputs[0] is not None  # the condition is not optional  # noqa: S101
            taken = "then_branch" if bool(sessions.to_array(inputs[0])) else "else_branch"
            for subgraph in self._opened[node]:
                if graph.subgraphs[subgraph].attribute == taken:
                    self._run_subgraph(subgraph, [], outer, state, index)
            return
        (body,) = self._opened[node]
        iterate(
            op,
            graph.nodes[node],
            inputs,
            lambda number, given: self._run_subgraph(body, given, outer, state, (*index, number)),
        )

    def _run_subgraph(
        self,
        subgraph: int,
        given: Sequence[Value | None],
        outer: MutableMapping[int, Value | None],
        state: _RunState,
        index: tuple[int, ...],
    ) -> list[Value | None]:
        """Run a subgraph once; return its outputs."""
        place = self.graph.subgraphs[subgraph]
        inputs = dict(zip(place.inputs.tolist(), given, strict=False))
        for value, found in inputs.items():
            if value in self.wanted and self.graph.value_kind[value] == BODY_INPUT:
                state.sink.record(value, found, index)
        order = self._order(subgraph)
        self._maker.optional.update(order.optional)
        steps = self._steps(order, inputs, outer, state, index)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return [self._value(value, end.value) for value in place.outputs.tolist()]

    def _value(self, value: int, scope: Mapping[int, Value | None]) -> Value | None:
        return scope[value] if value in scope else self._maker.constant(value)


def _opened(graph: Graph, wanted: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Return the nodes with wanted values in their subgraphs, at any depth, and these subgraphs."""
    subgraphs = {int(each) for each in np.unique(graph.value_subgraph[list(wanted)]) if each} if wanted else set()
    for subgraph in list(subgraphs):
        above = graph.subgraphs[subgraph].parent
        while above > 0:
            subgraphs.add(above)
            above = graph.subgraphs[above].parent
    owners: dict[int, list[int]] = {}
    for subgraph in sorted(subgraphs):
        owners.setdefault(graph.subgraphs[subgraph].owner_node, []).append(subgraph)
    return {owner: tuple(inside) for owner, inside in owners.items()}


class _RunState:
    """Bytes in use during one run, and the sizes of windows so far."""

    def __init__(self, sink: Sink, sizes: _ValueSizes) -> None:
        self.sink = sink
        self.sizes = sizes
        self.alive = 0
        """Bytes of values that later windows read."""
        self.held = 0
        """Bytes that the sink keeps."""
        self.unused = 0
        """Bytes freed since the arena was last shrunk; it may still hold them."""
        self.done = 0.0
        self.typical = 0.0
        """Bytes that a node of the last window made on average."""
        self.largest = 0
        """Bytes of the largest window."""
        self._nodes = 0

    def learn(self, nodes: int, nbytes: int) -> None:
        """Take note of the number of nodes in a window, and of the bytes that they made."""
        self.typical = nbytes / nodes
        self.largest = max(self.largest, nbytes)
        self._nodes = nodes

    def most_nodes(self, budget: int) -> int:
        """Return the maximum number of nodes of the next window: twice the last one's while there is room."""
        if not self._nodes:
            return 1
        fitting = int(budget / self.typical) if self.typical else WINDOW_NODES
        return max(1, min(2 * self._nodes, fitting, WINDOW_NODES))

    def free_arena(self, nbytes: int, limit: int) -> None:
        """Count bytes that a window left in the arena, and shrink the arena where there are too many."""
        self.unused += nbytes
        if self.unused > limit:
            sessions.release_arena()
            self.unused = 0


class _ValueSizes:
    """Bytes of values by their declared or inferred types, with the sizes of a feed for named dimensions."""

    def __init__(self, graph: Graph, feed: Mapping[str, Any]) -> None:
        self._graph = graph
        self._feed = feed

    @functools.cached_property
    def _dims(self) -> dict[str, int]:
        dims: dict[str, int] = {}
        for name, array in self._feed.items():
            shape = self._graph.type_of(self._graph.value(name)).shape
            if isinstance(array, np.ndarray) and shape is not None:
                dims.update((dim, size) for dim, size in zip(shape, array.shape, strict=False) if isinstance(dim, str))
        return dims

    def of(self, value: int) -> int | None:
        known = self._graph.type_of(value)
        if known.shape is None:
            return None
        count = _itemsize(known.dtype)
        for dim in known.shape:
            size = self._dims.get(dim) if isinstance(dim, str) else dim
            if size is None:
                return None
            count *= size
        return count


def _element_type(kind: TypeProto) -> int:
    """Return the element type of an empty sequence."""
    kind = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    return int(kind.sequence_type.elem_type.tensor_type.elem_type) or TensorProto.FLOAT


def _nbytes(value: Value | None) -> int:
    return int(value.tensor_size_in_bytes()) if value is not None and value.is_tensor() else 0


@functools.cache
def _itemsize(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 8


def iterate(op_type: str, node: NodeProto, inputs: Sequence[Value | None], run_body: RunBody) -> None:
    """Run the body of a node as often as the node does."""
    if op_type == "Loop":
        _loop(inputs, run_body)
    elif op_type == "Scan":
        _scan(inputs, {plain_text(attribute.name): attribute for attribute in node.attribute}, run_body)
    else:
        _sequence_map(inputs, run_body)


def _loop(inputs: Sequence[Value | None], run_body: RunBody) -> None:
    trips, condition, carried = inputs[0], inputs[1] if len(inputs) > 1 else None, list(inputs[2:])
    count = math.inf if trips is None else int(sessions.to_array(trips).reshape(()))
    if condition is None:
        condition = sessions.to_value(np.array(True))  # noqa: FBT003
    for i in itertools.count():
        if i >= count or not bool(sessions.to_array(condition).reshape(())):
            return
        results = run_body(i, [sessions.to_value(np.array(i, np.int64)), condition, *carried])
        condition, carried = results[0], list(results[1 : 1 + len(carried)])
        assert condition is not None  # the condition is not optional  # noqa: S101


def _scan(inputs: Sequence[Value | None], attributes: Mapping[str, AttributeProto], run_body: RunBody) -> None:
    count = int(attributes["num_scan_inputs"].i)
    axes = _numbers(attributes.get("scan_input_axes"), count)
    backward = _numbers(attributes.get("scan_input_directions"), count)
    states, scanned = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    arrays = []
    for value, axis, back in zip(scanned, axes, backward, strict=True):
        assert value is not None  # Scan has no optional inputs  # noqa: S101
        array = np.moveaxis(sessions.to_array(value), axis, 0)
        arrays.append(array[::-1] if back else array)
    for i in range(len(arrays[0])):
        rows = [sessions.to_value(np.ascontiguousarray(array[i])) for array in arrays]
        states = run_body(i, [*states, *rows])[: len(states)]


def _sequence_map(inputs: Sequence[Value | None], run_body: RunBody) -> None:
    given = [value if value is None or value.is_tensor() else sessions.to_array(value) for value in inputs]
    assert isinstance(given[0], list)  # noqa: S101
    for i in range(len(given[0])):
        run_body(i, [sessions.to_value(item[i]) if isinstance(item, list) else item for item in given])


def _numbers(attribute: AttributeProto | None, count: int) -> list[int]:
    return [0] * count if attribute is None else list(attribute.ints)
