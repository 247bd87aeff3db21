"""Run a model as windows of consecutive nodes, each a small onnxruntime session, and hand out every value that passes.

What a window reads is what is still alive: onnxruntime's own values, which also tell their types, so that no types are
inferred. A value is dropped after its last reader. How many nodes make a window follows from the bytes that earlier
windows made, so that far less memory is needed than for all values at once, or even for a plain run.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, helper

from onnx_nb.analysis.errors import CaptureError, ExternalDataError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph.graph import BODY_INPUT, INITIALIZER, Graph
from onnx_nb.analysis.graph.subgraphs import key_of
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.nodes import all_nodes
from onnx_nb.analysis.model.value_info import input_types
from onnx_nb.analysis.run import session as sessions

if TYPE_CHECKING:
    import onnxruntime

    from onnx_nb.analysis.model.model import Model

Value: TypeAlias = "onnxruntime.OrtValue"
"""A value of onnxruntime; where it says ``Value | None``, None is an optional one that is not there."""

WINDOW_BYTES: Final = 32 << 20
"""Windows grow until they make so much: fewer would not be faster, larger ones cost memory."""
WINDOW_NODES: Final = 256
"""And never beyond so many nodes: progress is reported and a cancel is seen between windows."""
_MODEST: Final = WINDOW_BYTES // 16
"""From so many bytes of one window on, the next one's bytes are estimated from known shapes."""


_Iterate: TypeAlias = "Callable[[int, Sequence[Value | None]], list[Value | None]]"
"""Runs a body: is given the number of the iteration and the inputs, and gives the outputs."""


class Sink(Protocol):
    """Takes what passes. Whatever its methods raise ends the run."""

    def before(self, nodes: Sequence[int], done: float) -> None:
        """Hear of the nodes that run next, and which part of all nodes of the main graph (0 … 1) has run."""

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        """Take a value that was wanted; ``index`` counts the iterations of the bodies around it."""

    def ran(self, nodes: Sequence[int], seconds: float, nbytes: Sequence[int]) -> None:
        """Hear how long the nodes of a window took together, and how many bytes each made."""

    def held(self) -> int:
        """Tell how many bytes are kept in memory of what was recorded. Values are dropped after this."""


def can_look_inside(graph: Graph, node: int) -> bool:
    """Return whether the bodies of a node can be run by themselves."""
    op, domain = graph.operators[int(graph.op_index[node])]
    known = op in ("If", "Loop", "SequenceMap") or (op == "Scan" and graph.opsets.get("", 0) >= 9)
    return known and not domain


class Windows:
    """Runs one model, once or again and again with other feeds.

    Parameters
    ----------
    graph
        Of the model; it must have no faults that matter.
    wanted
        Values to hand out. Only their ancestors run. For values inside of a body it runs once more, in windows too.
    memory_limit
        Bytes that values alive, a window's results and what the sink holds should not exceed together.
    providers
        Execution providers, best first; the CPU if ``None``.
    single
        Make each node a window of its own, so that its time is measured.
    reuse
        Keep the sessions for further runs.
    """

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
        self.model: Model = graph.model
        self.wanted = frozenset(wanted)
        self.memory_limit = memory_limit
        # what one value leaves is kept for the next, where there is room for some that fits none
        self._shares_memory = memory_limit >= 32 * WINDOW_BYTES
        self._providers = providers
        self._single = single
        self._reuse = reuse
        self._reused_bytes = 0
        self._kinds = graph.value_kind
        constant = np.asarray([operator == ("Constant", "") for operator in graph.operators], bool)
        self._is_constant = constant[graph.op_index] if len(constant) else np.zeros(0, bool)
        self._overridable = frozenset(graph.overridable.tolist())
        self._interpreted = self._with_wanted_bodies()
        self._sections: dict[int, _Section] = {}
        self._optional: dict[int, str] = {}
        operators = _operators(self.model.proto)
        self._may_be_optional = "Optional" in operators or any(
            info.type.HasField("optional_type") for info in self.model.proto.graph.input
        )
        self._has_scans = "Scan" in operators
        self._planned: list[int] = []
        self._planned_bytes = -1
        self.section(0)

    @property
    def node_count(self) -> int:
        """How many nodes of the main graph run."""
        return len(self.section(0).order)

    @property
    def runs(self) -> list[int]:
        """The nodes of the main graph that run, in the order in which they do."""
        return self.section(0).order

    def run(self, feed: Mapping[str, Any], sink: Sink) -> None:
        """Run once.

        Parameters
        ----------
        feed
            An array for each input, as `validate_feeds` gives them.
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
        """Run once, as `run` does, a window for each step; give the part of all nodes that has run."""
        graph = self.graph
        given: dict[int, Value | None] = {}
        types = input_types(self.model)
        for name, array in feed.items():
            value, kind = graph.value(name), types[name]
            given[value] = None if array is None else sessions.to_value(array, data_type=_element_type(kind))
            if kind.HasField("optional_type"):
                self._optional[value] = _type_text(kind)
        for value, found in given.items():
            if value in self.wanted:
                sink.record(value, found, ())
        for value in sorted(self.wanted):
            # one that may be overridden is wanted only if it is
            if self._kinds[value] == INITIALIZER and not (value in given or value in self._overridable):
                sink.record(value, self._alone(value), ())
        sizes = _Sizes(graph, feed)
        try:
            yield from self._steps(self.section(0), given, {}, _Pass(sink, sizes), ())
        finally:
            if self._shares_memory:
                sessions.release_arena()

    def section(self, frame: int) -> _Section:
        """Return what there is to run of a frame."""
        found = self._sections.get(frame)
        if found is None:
            found = self._sections[frame] = self._make_section(frame)
        return found

    # --- what runs, and in which order ------------------------------------------------------------------------------

    def _with_wanted_bodies(self) -> dict[int, tuple[int, ...]]:
        """Return the nodes in whose bodies something is wanted, at any depth, and those bodies."""
        graph = self.graph
        frames = {int(f) for f in np.unique(graph.value_subgraph[list(self.wanted)]) if f} if self.wanted else set()
        for frame in list(frames):
            above = graph.subgraphs[frame].parent
            while above > 0:
                frames.add(above)
                above = graph.subgraphs[above].parent
        owners: dict[int, list[int]] = {}
        for frame in sorted(frames):
            owners.setdefault(graph.subgraphs[frame].owner_node, []).append(frame)
        return {owner: tuple(bodies) for owner, bodies in owners.items()}

    def _make_section(self, frame: int) -> _Section:
        graph = self.graph
        order = graph.subgraph_order(frame).tolist()
        place = graph.subgraphs[frame]
        kept = frozenset(v for v in place.outputs.tolist() if v >= 0) if frame else frozenset()
        in_value, in_ptr = graph.in_value.tolist(), graph.in_ptr[place.start : place.stop + 1].tolist()
        captured = graph.outer_values
        able = {node for node in order if graph.bodies(node)} if len(graph.subgraphs) > 1 else set()
        reads: dict[int, list[int]] = {}
        for node in order:
            at = node - place.start
            read = [v for v in in_value[in_ptr[at] : in_ptr[at + 1]] if v >= 0]
            reads[node] = [*read, *captured(node).tolist()] if node in able else read
        total = len(order)
        order = self._needed(frame, order, reads, kept)
        order = _deferred(graph, order, reads)
        makes = self._outputs_of(place.start, place.stop)
        last: dict[int, int] = {}
        for position, node in enumerate(order):
            for value in reads[node]:
                last[value] = position
        for value in kept:
            last[value] = len(order)
        if len(order) < total:
            reads = {node: reads[node] for node in order}
        optional = {
            value: _type_text(info.type)
            for value, info in zip(place.inputs.tolist(), place.graph.input, strict=False)
            if frame and info.type.HasField("optional_type")
        }
        return _Section(frame, order, reads, makes, last, kept, optional)

    def _outputs_of(self, start: int, stop: int) -> dict[int, list[int]]:
        graph = self.graph
        out_value, out_ptr = graph.out_value.tolist(), graph.out_ptr[start : stop + 1].tolist()
        return {
            start + at: [v for v in out_value[begin:end] if v >= 0]
            for at, (begin, end) in enumerate(itertools.pairwise(out_ptr))
        }

    def _needed(
        self, frame: int, order: list[int], reads: Mapping[int, Sequence[int]], kept: Collection[int]
    ) -> list[int]:
        """Leave out nodes on which nothing depends that is wanted."""
        graph = self.graph
        place = graph.subgraphs[frame]
        in_subgraph = [v for v in self.wanted if graph.value_subgraph[v] == frame]
        producer = graph.producer
        makers = {int(producer[v]) for v in (*in_subgraph, *kept)}
        makers.update(node for node in self._interpreted if place.start <= node < place.stop)
        # what wanted bodies read is read by their owners
        if len(makers & set(order)) == len(order):
            return order
        found: set[int] = set()
        todo = [node for node in makers if node >= 0]
        while todo:
            node = todo.pop()
            if node in found or not place.start <= node < place.stop:
                continue
            found.add(node)
            todo.extend(int(producer[v]) for v in reads[node] if producer[v] >= 0)
        return [node for node in order if node in found]

    # --- running ----------------------------------------------------------------------------------------------------

    def _run_section(
        self,
        section: _Section,
        given: Mapping[int, Value | None],
        outer: MutableMapping[int, Value | None],
        passing: _Pass,
        index: tuple[int, ...],
    ) -> MutableMapping[int, Value | None]:
        """Run a frame; give what is alive at its end: its outputs."""
        steps = self._steps(section, given, outer, passing, index)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                alive: MutableMapping[int, Value | None] = end.value
                return alive

    def _steps(
        self,
        section: _Section,
        given: Mapping[int, Value | None],
        outer: MutableMapping[int, Value | None],
        passing: _Pass,
        index: tuple[int, ...],
    ) -> Generator[float, None, MutableMapping[int, Value | None]]:
        """Run a frame, a window for each step."""
        alive = dict(given)
        last = section.last
        for value in [v for v in alive if last.get(v, -1) < 0]:
            del alive[value]
        passing.alive += sum(map(_nbytes, alive.values()))
        entered = passing.alive
        total = len(section.order)
        main = section.frame == 0
        planned = self._planned if main and self._planned_bytes >= passing.alive else []
        ends: list[int] = []
        start, most = 0, WINDOW_NODES
        while start < total:
            stop = planned[len(ends)] if planned else min(self._window_end(section, start, passing), start + most)
            nodes = section.order[start:stop]
            if main:
                passing.done = start / total
            passing.sink.before(nodes, passing.done)
            try:
                found, seconds = self._run_window(section, start, stop, alive, outer)
            except OnnxNbError as error:
                if isinstance(error, ExternalDataError):
                    raise
                if stop - start == 1:
                    raise self._failed(nodes[0], error, alive, outer) from error
                most, planned = (stop - start) // 2, []  # find the node by halves
                continue
            ends.append(stop)
            sizes = {value: _nbytes(result) for value, result in found.items()}
            passing.learn(len(nodes), sum(sizes.values()))
            passing.sink.ran(nodes, seconds, [sum(sizes.get(v, 0) for v in section.makes[node]) for node in nodes])
            for node in nodes:
                if node in self._interpreted:
                    self._run_bodies(node, ChainMap(alive, outer), passing, index)
                for value in section.makes[node]:
                    if value in self.wanted:
                        passing.sink.record(value, found[value], index)
            # from here on nothing but `alive` may hold a value
            for value, size in sizes.items():
                if last.get(value, -1) >= stop and not self._is_fixed(value):
                    alive[value] = found[value]
                    passing.alive += size
            del found
            for value in {v for node in nodes for v in section.reads[node] if last[v] < stop and v in alive}:
                passing.alive -= _nbytes(alive.pop(value))
            passing.held = passing.sink.held()
            passing.unused += sum(sizes.values()) if self._shares_memory else 0
            if passing.unused > self.memory_limit // 8:
                sessions.release_arena()
                passing.unused = 0
            start = stop
            yield start / total
        if main and self._reuse and not planned:
            self._planned, self._planned_bytes = ends, entered
        passing.alive -= sum(map(_nbytes, alive.values()))
        return ChainMap(alive, outer)

    def _window_end(self, section: _Section, start: int, passing: _Pass) -> int:
        """Return how far the next window goes."""
        order = section.order
        if self._single:
            return start + 1
        if start in section.ends:  # a body, whose sessions are kept for each iteration
            return section.ends[start]
        room = max(self.memory_limit - passing.alive - passing.held - passing.unused, 0)
        budget = min(WINDOW_BYTES, room // 2)
        limit = min(passing.most_nodes(budget), len(order) - start)
        stop, nbytes = start, 0
        typical = passing.typical
        careful = passing.largest > _MODEST or budget < _MODEST
        while stop < start + limit:
            node = order[stop]
            if self._starts_window(node) and (stop > start or node in self._interpreted):
                stop = max(stop, start + 1)
                break
            if careful:
                known = [passing.sizes.of(value) for value in section.makes[node]]
                nbytes += sum(math.ceil(typical) if size is None else size for size in known)
                if nbytes > budget and stop > start:
                    break
            stop += 1
        if section.frame:
            section.ends[start] = stop
        return stop

    def _starts_window(self, node: int) -> bool:
        """Return whether all that a node reads must come from other windows."""
        if node in self._interpreted:  # to be there for its bodies
            return True
        # so that the rank of it is known
        graph = self.graph
        return self._has_scans and bool(graph.outer_values(node).size or graph.bodies(node) or graph.called(node))

    def _run_window(
        self,
        section: _Section,
        start: int,
        stop: int,
        alive: Mapping[int, Value | None],
        outer: Mapping[int, Value | None],
    ) -> tuple[dict[int, Value | None], float]:
        window = section.windows.get((start, stop))
        if window is None or not window.fits(alive, outer):
            window = self._window(section, start, stop, alive, outer)
            if self._may_keep(section, window):
                section.windows[start, stop] = window
        names = self.graph.value_names
        given: dict[str, Value] = {}
        for value in window.inputs:
            found = alive[value] if value in alive else outer[value]
            if found is not None:
                given[names[value]] = found
        before = time.perf_counter()
        results = sessions.run_values(window.session, given, name=window.name)
        seconds = time.perf_counter() - before
        made: dict[int, Value | None] = {}
        for value in window.outputs:
            result = results[names[value]]
            # asking a missing optional for anything else ends the process
            made[value] = result if value not in self._optional or result.has_value() else None
        return made, seconds

    def _may_keep(self, section: _Section, window: _Window) -> bool:
        if section.frame:
            return True
        self._reused_bytes += window.nbytes if self._reuse else 0
        return self._reuse and self._reused_bytes <= self.memory_limit // 4

    # --- one window -------------------------------------------------------------------------------------------------

    def _window(
        self,
        section: _Section,
        start: int,
        stop: int,
        alive: Mapping[int, Value | None],
        outer: Mapping[int, Value | None],
    ) -> _Window:
        """Make the session of a window."""
        graph, names = self.graph, self.graph.value_names
        nodes = section.order[start:stop]
        makes, last, wanted = section.makes, section.last, self.wanted
        made = [value for node in nodes for value in makes[node]]
        inside = set(made)
        proto = ModelProto()
        proto.CopyFrom(self._base)
        target = proto.graph
        target.name = "window"
        inputs: list[int] = []
        missing: set[int] = set()
        shapes: dict[int, list[int | None]] = {}
        nbytes = 0
        for value in dict.fromkeys(v for node in nodes for v in section.reads[node] if v not in inside):
            if value in alive or value in outer:
                found = alive[value] if value in alive else outer[value]
                inputs.append(value)
                if found is None:
                    missing.add(value)
                    target.node.append(_nothing(names[value], self._optional[value]))
                    continue
                info = target.input.add(name=names[value])
                info.type.CopyFrom(_type_of(found, self._optional.get(value, "")))
                if self._has_scans and found.is_tensor() and value not in self._optional:
                    # onnxruntime runs a Scan only if it could infer at least the rank of all that leaves its body
                    shapes[value] = _declared(found)
                    info.type.tensor_type.shape.SetInParent()
                    for size in shapes[value]:
                        info.type.tensor_type.shape.dim.add(dim_value=size)
            elif self._kinds[value] == INITIALIZER:
                nbytes += self._add_weight(target, value)
            else:
                assert self._is_fixed(value)  # what else is read is alive  # noqa: S101
                target.node.append(graph.nodes[int(graph.producer[value])])
        target.node.extend(graph.nodes[node] for node in nodes)
        proto.functions.extend(self._functions_of(nodes))
        outputs = [v for v in made if v in wanted or (last.get(v, -1) >= stop and not self._is_fixed(v))] or made[:1]
        for value in outputs:
            target.output.add(name=names[value])
        name = graph.node_label(nodes[0])
        if len(nodes) > 1:
            name += f" … {graph.node_label(nodes[-1])}"
        made_session = sessions.create(
            with_proto(self.model, proto, name),
            optimize=False,
            providers=self._providers,
            transient=True,
            shared_arena=True,
        )
        if self._may_be_optional:
            for value, entry in zip(outputs, made_session.get_outputs(), strict=True):
                if entry.type.startswith("optional("):
                    self._optional[value] = entry.type
        return _Window(name, made_session, inputs, outputs, frozenset(missing), shapes, nbytes)

    def _is_fixed(self, value: int) -> bool:
        """Return whether a Constant node makes a value.

        It goes into every window that reads it, as weights do: onnxruntime treats constants in another way than inputs,
        and some operators insist on them.
        """
        maker = int(self.graph.producer[value])
        return maker >= 0 and bool(self._is_constant[maker])

    def _add_weight(self, target: onnx.GraphProto, value: int) -> int:
        tensor = self._tensor(value)
        if isinstance(tensor, SparseTensorProto):
            target.sparse_initializer.append(tensor)
            return 0
        target.initializer.append(tensor)
        if value in self._overridable:
            # as in the whole model: onnxruntime may treat weights that can be overridden in another way
            info = target.input.add(name=tensor.name)
            info.type.CopyFrom(helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        return int(math.prod(tensor.dims)) * 4

    def _tensor(self, value: int) -> TensorProto | SparseTensorProto:
        frame = int(self.graph.value_subgraph[value])
        found = self._weights.get(frame)
        if found is None:
            place = self.graph.subgraphs[frame]
            tensors = [*place.graph.initializer, *place.graph.sparse_initializer]
            found = self._weights[frame] = dict(zip(place.weights.tolist(), tensors, strict=True))
        return found[value]

    @functools.cached_property
    def _weights(self) -> dict[int, dict[int, TensorProto | SparseTensorProto]]:
        return {}

    @functools.cached_property
    def _base(self) -> ModelProto:
        source = self.model.proto
        return ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)

    def _alone(self, value: int) -> Value | None:
        """Return a weight or the result of a Constant node as a value."""
        proto = ModelProto()
        proto.CopyFrom(self._base)
        name = self.graph.value_names[value]
        if self._kinds[value] == INITIALIZER:
            self._add_weight(proto.graph, value)
        else:
            proto.graph.node.append(self.graph.nodes[int(self.graph.producer[value])])
        proto.graph.name = "weight"
        proto.graph.output.add(name=name)
        made = sessions.create(with_proto(self.model, proto, quoted(name)), optimize=False, transient=True)
        return sessions.run_values(made, {}, name=quoted(name))[name]

    def _functions_of(self, nodes: Sequence[int]) -> list[onnx.FunctionProto]:
        """Return the local functions that a window may call."""
        functions = self.graph.functions
        if not functions:
            return []
        if any(self.graph.bodies(node) for node in nodes):
            return list(functions.values())
        operators, calls = self.graph.operators, self._calls
        found: set[tuple[str, str]] = set()
        for operator in {int(self.graph.op_index[node]) for node in nodes}:
            op, domain = operators[operator]
            found |= calls.get((domain, op), set())
        return [function for (domain, name, _), function in functions.items() if (domain, name) in found]

    @functools.cached_property
    def _calls(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """The functions that each function calls, itself included."""
        direct: dict[tuple[str, str], set[tuple[str, str]]] = {}
        known = {(domain, name) for domain, name, _ in self.graph.functions}
        for (domain, name, _), function in self.graph.functions.items():
            called = {key_of(node)[:2] for node in all_nodes(function.node)}
            direct.setdefault((domain, name), set()).update(called & known)
        closed: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for key in direct:
            found, todo = {key}, [key]
            while todo:
                new = direct[todo.pop()] - found
                found |= new
                todo.extend(new)
            closed[key] = found
        return closed

    def _failed(
        self, node: int, error: OnnxNbError, alive: Mapping[int, Value | None], outer: Mapping[int, Value | None]
    ) -> CaptureError:
        graph = self.graph
        section = self.section(int(graph.node_subgraph[node]))
        read = []
        for value in dict.fromkeys(section.reads[node]):
            found = alive.get(value) or outer.get(value)
            if found is not None and found.is_tensor():
                shape = "×".join(map(str, found.shape())) or "scalar"
                read.append(f"{quoted(graph.value_names[value])} ({shape} {found.data_type()[7:-1]})")
        inputs = f" It reads {', '.join(read[:6])}." if read else ""
        return CaptureError(f"{error.message}{inputs}", advice=error.advice, node=graph.names[node])

    # --- bodies -----------------------------------------------------------------------------------------------------

    def _run_bodies(
        self, node: int, outer: MutableMapping[int, Value | None], passing: _Pass, index: tuple[int, ...]
    ) -> None:
        """Run the bodies of a node once more, node by node, to see the values inside."""
        graph = self.graph
        op, _ = graph.operators[int(graph.op_index[node])]
        proto = graph.nodes[node]
        read = [self._at(v, outer) if v >= 0 else None for v in graph.node_inputs(node).tolist()]
        bodies = {graph.subgraphs[frame].attribute: frame for frame in self._interpreted[node]}
        if op == "If":
            assert read[0] is not None  # noqa: S101
            taken = "then_branch" if bool(sessions.to_array(read[0])) else "else_branch"
            if taken in bodies:
                self._run_body(bodies[taken], [], outer, passing, index)
            return
        frame = next(iter(bodies.values()))

        def iterate(number: int, given: Sequence[Value | None]) -> list[Value | None]:
            return self._run_body(frame, given, outer, passing, (*index, number))

        if op == "Loop":
            _loop(read, iterate)
        elif op == "Scan":
            _scan(read, {plain_text(attribute.name): attribute for attribute in proto.attribute}, iterate)
        else:
            _sequence_map(read, iterate)

    def _run_body(
        self,
        frame: int,
        given: Sequence[Value | None],
        outer: MutableMapping[int, Value | None],
        passing: _Pass,
        index: tuple[int, ...],
    ) -> list[Value | None]:
        """Run a body once; give its outputs."""
        place = self.graph.subgraphs[frame]
        inputs = dict(zip(place.inputs.tolist(), given, strict=False))
        for value, found in inputs.items():
            if value in self.wanted and self._kinds[value] == BODY_INPUT:
                passing.sink.record(value, found, index)
        section = self.section(frame)
        self._optional.update(section.optional)
        alive = self._run_section(section, inputs, outer, passing, index)
        return [self._at(value, alive) for value in place.outputs.tolist()]

    def _at(self, value: int, alive: Mapping[int, Value | None]) -> Value | None:
        return alive[value] if value in alive else self._alone(value)


@dataclass(eq=False)
class _Section:
    """What runs of one frame."""

    frame: int
    order: list[int]
    reads: Mapping[int, list[int]]
    """Values that a node reads, those that its bodies capture included."""
    makes: Mapping[int, list[int]]
    last: dict[int, int]
    """Position of the last reader of each value."""
    kept: frozenset[int]
    """Values that are needed when all has run."""
    optional: Mapping[int, str]
    """Types of a body's inputs that are optional."""
    windows: dict[tuple[int, int], _Window] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Window:
    name: str
    session: onnxruntime.InferenceSession
    inputs: list[int]
    outputs: list[int]
    missing: frozenset[int]
    """Inputs that were optional values which were not there: they are written into the window."""
    shapes: Mapping[int, list[int | None]]
    """What inputs were declared with, where it matters."""
    nbytes: int

    def fits(self, alive: Mapping[int, Value | None], outer: Mapping[int, Value | None]) -> bool:
        """Return whether the same inputs are there as when it was made."""
        for value in self.inputs:
            found = alive.get(value) if value in alive else outer.get(value)
            if (found is None) != (value in self.missing):
                return False
            if found is not None and value in self.shapes and self.shapes[value] != _declared(found):
                return False
        return True


class _Pass:
    """What is learnt in one run about the sizes of values."""

    def __init__(self, sink: Sink, sizes: _Sizes) -> None:
        self.sink = sink
        self.sizes = sizes
        self.alive = 0
        self.held = 0
        self.unused = 0
        """So much may the sessions' arena hold besides."""
        self.done = 0.0
        self.typical = 0.0
        self.largest = 0
        self._nodes = 0

    def learn(self, nodes: int, nbytes: int) -> None:
        self.typical = nbytes / nodes
        self.largest = max(self.largest, nbytes)
        self._nodes = nodes

    def most_nodes(self, budget: int) -> int:
        """Return at how many nodes the next window ends: twice the last one's while there is room."""
        if not self._nodes:
            return 1
        fitting = int(budget / self.typical) if self.typical else WINDOW_NODES
        return max(1, min(2 * self._nodes, fitting, WINDOW_NODES))


class _Sizes:
    """The bytes of values as far as declared or inferred types tell, with the sizes of a feed for named dimensions."""

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
        dims = [self._dims.get(dim) if isinstance(dim, str) else dim for dim in known.shape]
        count = 1
        for dim in dims:
            if dim is None:
                return None
            count *= dim
        return count * _itemsize(known.dtype)


def _deferred(graph: Graph, order: list[int], reads: Mapping[int, Sequence[int]]) -> list[int]:
    """Put nodes that depend on no input right before their first reader: what they make may be as large as weights."""
    kinds, producer = graph.value_kind, graph.producer
    early = [node for node in order if all(kinds[v] == INITIALIZER for v in reads[node])]
    if not early:
        return order
    free = set(early)
    for node in order:
        if node not in free and all(kinds[v] == INITIALIZER or int(producer[v]) in free for v in reads[node]):
            free.add(node)
    number = {node: at for at, node in enumerate(order)}
    position = dict(number)
    first: dict[int, int] = {}
    for node in reversed(order):
        if node in free:
            position[node] = first.get(node, position[node])
        for value in reads[node]:
            maker = int(producer[value])
            if maker in free:
                first[maker] = min(first.get(maker, len(order)), position[node])
    return sorted(order, key=lambda node: (position[node], node not in free, number[node]))


def _operators(proto: ModelProto) -> set[str]:
    """Return all types of operators, those inside of bodies and functions too."""
    nodes = itertools.chain(proto.graph.node, *(function.node for function in proto.functions))
    return {node.op_type for node in all_nodes(nodes)}


def _loop(read: Sequence[Value | None], iterate: _Iterate) -> None:
    """Do the iterations of a Loop."""
    trips, goes_on, carried = read[0], read[1] if len(read) > 1 else None, list(read[2:])
    most = math.inf if trips is None else int(sessions.to_array(trips).reshape(()))
    if goes_on is None:
        goes_on = sessions.to_value(np.array(True))  # noqa: FBT003
    for i in itertools.count():
        if i >= most or not bool(sessions.to_array(goes_on).reshape(())):
            return
        results = iterate(i, [sessions.to_value(np.array(i, np.int64)), goes_on, *carried])
        again, carried = results[0], list(results[1 : 1 + len(carried)])
        assert again is not None  # the condition is not optional  # noqa: S101
        goes_on = again


def _scan(read: Sequence[Value | None], attributes: Mapping[str, onnx.AttributeProto], iterate: _Iterate) -> None:
    """Do the iterations of a Scan of opset 9 or later."""
    count = int(attributes["num_scan_inputs"].i)
    axes = _numbers(attributes.get("scan_input_axes"), count)
    backward = _numbers(attributes.get("scan_input_directions"), count)
    states, scanned = list(read[: len(read) - count]), read[len(read) - count :]
    arrays = []
    for value, axis, back in zip(scanned, axes, backward, strict=True):
        assert value is not None  # Scan has no optional inputs  # noqa: S101
        array = np.moveaxis(sessions.to_array(value), axis, 0)
        arrays.append(array[::-1] if back else array)
    for i in range(len(arrays[0])):
        rows = [sessions.to_value(np.ascontiguousarray(array[i])) for array in arrays]
        states = iterate(i, [*states, *rows])[: len(states)]


def _sequence_map(read: Sequence[Value | None], iterate: _Iterate) -> None:
    """Do the iterations of a SequenceMap."""
    given = [value if value is None or value.is_tensor() else sessions.to_array(value) for value in read]
    assert isinstance(given[0], list)  # noqa: S101
    for i in range(len(given[0])):
        iterate(i, [sessions.to_value(item[i]) if isinstance(item, list) else item for item in given])


def _numbers(attribute: onnx.AttributeProto | None, count: int) -> list[int]:
    return [0] * count if attribute is None else list(attribute.ints)


def _nbytes(value: Value | None) -> int:
    if value is None or not value.is_tensor():
        return 0
    return int(value.tensor_size_in_bytes())


def _declared(value: Value) -> list[int | None]:
    """Return the shape to declare a tensor with: its rank, so that a session serves other sizes.

    Of a vector of int64 also how long it is: if it is a shape, that is the rank of what gets it.
    """
    shape = value.shape()
    return list(shape) if len(shape) == 1 and value.element_type() == TensorProto.INT64 else [None] * len(shape)


def _type_of(value: Value, optional: str) -> TypeProto:
    if optional:
        return _parsed_type(optional)
    if value.is_tensor():
        return _tensor_type(value.element_type())
    return _parsed_type(value.data_type())


@functools.cache
def _tensor_type(data_type: int) -> TypeProto:
    return helper.make_tensor_type_proto(data_type, None)


@functools.cache
def _parsed_type(written: str) -> TypeProto:
    """Read a type as onnxruntime writes it: "seq(tensor(float))", "map(int64,tensor(float))"."""
    kind, _, rest = written.partition("(")
    inner = rest.removesuffix(")")
    if kind == "seq":
        return helper.make_sequence_type_proto(_parsed_type(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(_parsed_type(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        return helper.make_map_type_proto(_data_type(key), _parsed_type(value.strip()))
    if kind == "sparse_tensor":
        return helper.make_sparse_tensor_type_proto(_data_type(inner), None)
    return _tensor_type(_data_type(inner))


def _data_type(name: str) -> int:
    return int(TensorProto.DataType.Value(name.strip().upper()))


def _type_text(proto: TypeProto) -> str:
    """Write a type as onnxruntime does."""
    kind = proto.WhichOneof("value")
    if kind == "optional_type":
        return f"optional({_type_text(proto.optional_type.elem_type)})"
    if kind == "sequence_type":
        return f"seq({_type_text(proto.sequence_type.elem_type)})"
    return f"tensor({TensorProto.DataType.Name(proto.tensor_type.elem_type).lower()})"


def _element_type(kind: TypeProto) -> int:
    """Return what an empty list is a sequence of."""
    kind = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    return int(kind.sequence_type.elem_type.tensor_type.elem_type) or TensorProto.FLOAT


def _nothing(name: str, written: str) -> NodeProto:
    """Return a node that makes an optional value which is not there; sessions cannot be given one."""
    inner = _parsed_type(written).optional_type.elem_type
    return helper.make_node("Optional", [], [name], type=inner)


@functools.cache
def _itemsize(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 8
