"""Every intermediate value of a model: statistics as the values pass, arrays only where asked for.

`windows` runs the model in small sessions and drops each value after its last reader, so that capturing everything
takes less memory than a plain run; `recording` turns the values into statistics, and `kept` holds or spills arrays.
Here feeds are run in turn, in a process apart or side by side, and what they gave is put together and searched.
"""

from __future__ import annotations

import concurrent.futures
import fnmatch
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.dataframes import data_frame
from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.graph.graph import BODY_INPUT, DANGLING, INITIALIZER, NODE_OUTPUT, Graph
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.progress import Done, count_of
from onnx_nb.analysis.run.array_store import Store, available_memory
from onnx_nb.analysis.run.executor import pickled, run_remote, spread
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.float16_casts import lowered, original_nodes, originals
from onnx_nb.analysis.run.statistics import Histogram, Statistics
from onnx_nb.analysis.run.subprocess_runner import isolated
from onnx_nb.analysis.run.value_recorder import Job, Partial, Predicate, Record, run_feed, statistics_pool
from onnx_nb.analysis.run.windows import Windows, can_look_inside

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.progress import Progress

_FATAL: Final = ("duplicate_name", "dangling_input", "cycle")


def capture(
    model: ModelLike,
    feeds: Any = None,
    *,
    tensors: str | Iterable[str] | None = None,
    keep: str | Iterable[str] | Predicate | None = None,
    stop_at: Predicate | None = None,
    bodies: bool = False,
    times: bool = False,
    memory_limit: int | None = None,
    providers: Sequence[str] | None = None,
    executor: concurrent.futures.Executor | None = None,
    isolate: bool = False,
    progress: Progress | None = None,
) -> Capture:
    """Run a model and see every value in it.

    Values are bit-identical to what onnxruntime gives with all of them added as outputs and graph optimization off
    (optimization fuses nodes, and changes values).

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    feeds
        What to run it on, as `read_feeds` takes it: a dict of arrays, arrays by position, a file or folder of test
        data, an iterable of feeds (a dataset, whose statistics are merged), or ``None`` for random values.
    tensors
        Names or patterns (``*``, ``?``, ``[…]``) of the values to see; all if ``None``. Only nodes on which they depend
        run.
    keep
        Which values to keep as arrays as well: names, patterns, or a function of name and array that says so.
    stop_at
        A function of name and array: where it is true first, in order of execution, the capture ends.
    bodies
        See values inside of If, Loop, Scan and SequenceMap bodies too, by iteration. Bodies are run once more for this,
        in windows of their own: where they draw random numbers these differ from the ones that the node itself drew.
    times
        Run each node by itself, so that `Capture.nodes` has its own time rather than a share of its window's.
    memory_limit
        Bytes that values may take, half of the available memory if ``None``. Windows shrink to a node to stay below it,
        and what is kept goes to memory-mapped files in a temporary folder. Values that must be alive at the same time
        are always held: a model may need more.
    providers
        Execution providers, best first; the CPU if ``None``.
    executor
        Any `concurrent.futures.Executor` (a process pool, Dask's ``client.get_executor()``) that runs the feeds of a
        dataset side by side. The numbers are the same to the last bit. Functions given must be picklable.
    isolate
        Run in a process of its own, so that a crash of onnxruntime, or running out of memory, is an error here that
        names the nodes, and not the end of this process.
    progress
        Called between windows with the part done and what comes next. What it raises ends the capture, and nothing is
        left behind.

    Returns
    -------
    Capture

    Raises
    ------
    CaptureError
        If the graph is broken, a name is unknown, onnxruntime refuses or fails on a node, or the process in which it
        ran ended.
    FeedError
        If a feed does not fit the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) { a = Neg(x)  b = Log(a)  y = Exp(b) }''')
    >>> cap = capture(model, {"x": np.array([1, -1], np.float32)}, keep="a")
    >>> cap
    Capture(4 values of 3 nodes, 1 kept)
    >>> cap["a"], cap.statistics("y").max
    (array([-1.,  1.], dtype=float32), 1.0)
    >>> print(cap.nonfinite().message)
    Log makes 1 NaN of 2 values in 'b', and its inputs are finite: 'a' (−1 … 1).
    """
    loaded = load(model)
    graph = Graph.of(loaded)
    wanted = _wanted(graph, tensors, bodies=bodies)
    limit = available_memory() // 2 if memory_limit is None else memory_limit
    if limit <= 0:
        raise CaptureError(f"memory_limit is {limit}.", advice="Give a number of bytes, or leave it out.")
    kept = keep if keep is None or callable(keep) else frozenset(named(graph, keep, wanted, "keep"))
    job = Job(loaded, tuple(wanted), kept, stop_at, limit, None if providers is None else tuple(providers), times)
    refuse_faults(graph, lambda: job.windows(reuse=False).runs)
    job, translation = _lowered(graph, job)
    if isolate and executor is not None:
        raise CaptureError("isolate and executor are both given.", advice="Leave out one of them.")
    done = Done(progress, count_of(feeds))
    store = Store(limit)
    given = read_feeds(loaded, feeds)
    try:
        if isolate:
            results = isolated(job, given, store, done)
        elif executor is not None:
            results = _spread(job, given, store, executor, done)
        else:
            results = _in_turn(job, given, store, done)
        merged = _merged(graph, results if translation is None else map(translation, results), store)
        results.close()
    except BaseException:
        store.close()
        raise
    return _captured(graph, merged, store)


@dataclass(frozen=True)
class NodeCost:
    """What a node took."""

    index: int
    """Its place in ``model.proto.graph.node``."""
    name: str
    op_type: str
    seconds: float
    """Of all feeds. The time of a window is measured and shared equally among its nodes; with ``times=True`` a window
    is one node."""
    nbytes: int
    """Of its outputs that were recorded or read later; of the feed with the most."""


@dataclass(frozen=True, eq=False)
class NonFinite:
    """The first node that made NaN or ±Inf out of finite values."""

    node: str
    """As ``Log '/head/Log'``; empty if a model input or weight holds them."""
    name: str
    """The tensor."""
    statistics: Statistics
    inputs: Mapping[str, Statistics]
    """Of what the node reads, weights included; without what was not captured."""
    arrays: Mapping[str, NDArray[Any]]
    """Those of its inputs that were kept, and weights."""

    @property
    def message(self) -> str:
        """Return which node it is and what it was given."""
        found = self.statistics
        counts = [(found.nan, "NaN"), (found.posinf, "Inf"), (found.neginf, "−Inf")]
        what = " and ".join(f"{count} {kind}" for count, kind in counts if count)
        if not self.node:
            return f"{quoted(self.name)} is given to the model with {what} of {found.count} values."
        message = f"{self.node} makes {what} of {found.count} values in {quoted(self.name)}"
        if not self.inputs:
            return f"{message}."
        read = ", ".join(
            f"{quoted(name)} ({_range(entry)})" for name, entry in itertools.islice(self.inputs.items(), 6)
        )
        return f"{message}, and its inputs are finite: {read}."

    def __repr__(self) -> str:
        return f"NonFinite({self.message})"


@dataclass(frozen=True)
class Stop:
    """Where ``stop_at`` ended a capture."""

    name: str
    """The tensor for which the function was true."""
    node: str
    """What made it, as ``Conv '/stem/Conv'``; empty for a model input."""
    feed: int
    """Number of the feed, from 0."""


@dataclass(frozen=True, eq=False, repr=False)
class Capture:
    """What `capture` saw: statistics of every value, and the arrays that were to be kept; weights can be asked for too.

    ``cap["name"]`` is a kept array, ``names`` lists every value in order of execution. Values inside of bodies that
    share their name with another value are called ``owner/attribute/name``.
    """

    model: Model
    feeds: int
    """How many were run."""
    windows: int
    """How many sessions the nodes were run in, per feed at most."""
    stopped: Stop | None
    """Where ``stop_at`` ended it, if it did."""
    _graph: Graph
    _values: Mapping[str, int]
    _records: Mapping[int, Record]
    _store: Store
    _costs: Costs

    def __getitem__(self, key: str | tuple[Any, ...]) -> Any:
        """Return a kept array: ``cap["name"]``, or of several iterations or feeds ``cap["name", 3]``, feed first.

        Without a number it is the first that was kept.
        """
        name, *numbers = key if isinstance(key, tuple) else (key,)
        value = self._value(name)
        if value < 0:
            return self.model.tensor(name)
        places = self._store.places.get(value, ())
        wanted = tuple(int(number) for number in numbers)
        if self.feeds == 1 and wanted:
            wanted = (0, *wanted)
        for place in places:
            if not wanted or place == wanted:
                return self._store.array(value, place)
        if not places:
            message = f"the array of {quoted(name)} was not kept, only its statistics."
            raise CaptureError(message, advice=f"Capture again with keep={quoted(name)}.")
        there = [place if self.feeds > 1 else place[1:] for place in places]
        listed = ", ".join(str(place[0] if len(place) == 1 else place) for place in there[:8])
        raise CaptureError(f"{quoted(name)} was not kept at {numbers}.", advice=f"It was at {listed or 'no number'}.")

    def __contains__(self, name: object) -> bool:
        """Return whether a value of this name was seen."""
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        """Return the names of all values, in order of execution."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of values seen."""
        return len(self._values)

    def __repr__(self) -> str:
        kept = f", {len(self._store.places)} kept" if self._store.places else ""
        feeds = f", {self.feeds} feeds" if self.feeds != 1 else ""
        stop = f", stopped at {quoted(self.stopped.name)}" if self.stopped else ""
        return (
            f"Capture({_counted(len(self), 'value')} of {_counted(len(self._costs.order), 'node')}{feeds}{kept}{stop})"
        )

    @property
    def names(self) -> list[str]:
        """The names of all values seen, in order of execution: the model's inputs first."""
        return list(self._values)

    @property
    def values(self) -> Mapping[str, int]:
        """The number that `Graph` gives each value seen, by name."""
        return self._values

    @property
    def kept(self) -> list[str]:
        """The names of the values of which arrays were kept."""
        return [name for name, value in self._values.items() if value in self._store.places]

    def statistics(self, name: str) -> Statistics:
        """Return the statistics of a value, merged over feeds and iterations; of a weight too."""
        value = self._value(name)
        found = self._weight(name) if value < 0 else self._records[value].settled()
        if found is None:
            raise CaptureError(f"{quoted(name)} is a {self._records[value].dtype}: it has no statistics.")
        return found

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of a value's finite numbers."""
        return self.statistics(name).histogram

    @functools.cached_property
    def nodes(self) -> tuple[NodeCost, ...]:
        """What each node of the main graph took, in order of execution."""
        graph, costs = self._graph, self._costs
        operators, names = graph.operators, graph.names
        return tuple(
            NodeCost(node, names[node], operators[graph.op_index[node]][0], seconds, nbytes)
            for node, seconds, nbytes in zip(costs.order, costs.seconds.tolist(), costs.nbytes.tolist(), strict=True)
        )

    def nonfinite(self) -> NonFinite | None:
        """Find the first node, in order of execution, that made NaN or ±Inf although all it reads is finite.

        Where there is none, but the model was given such numbers, the first input or weight that has them; ``None``
        if every value is finite. Inputs of a node that were not captured count as finite.
        """
        graph = self._graph
        names = {value: name for name, value in self._values.items()}
        made_of_constants = graph.constant_values
        given: tuple[str, Statistics] | None = None
        for value, record in self._records.items():
            found = record.settled()
            if found is None or not found.nonfinite:
                continue
            node = int(graph.producer[value])
            if node < 0 or made_of_constants[value]:
                given = given or (names[value], found)
                continue
            inputs = self._read_by(node, names)
            source = next((name for name, entry in inputs.items() if entry.nonfinite), None)
            if source is None:
                arrays = {name: self[name] for name in inputs if name not in self or name in self.kept}
                return NonFinite(graph.node_label(node), names[value], found, inputs, arrays)
            if given is None and source not in self._values:
                given = source, inputs[source]
        return None if given is None else NonFinite("", *given, {}, {})

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each value: name, node, op_type, dtype, shape, nbytes, then the statistics."""
        graph = self._graph
        rows = []
        for name, value in self._values.items():
            record = self._records[value]
            node = int(graph.producer[value])
            found = record.settled()
            numbers = {key: None if found is None else getattr(found, key) for key in _NUMBERS}
            op = graph.operators[graph.op_index[node]][0] if node >= 0 else ""
            label = graph.names[node] if node >= 0 else ""
            about = {"dtype": record.dtype, "shape": record.shape, "nbytes": record.nbytes}
            rows.append({"name": name, "node": label, "op_type": op, **about, **numbers})
        return rows

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a pandas data frame.

        Raises
        ------
        OnnxNbError
            If pandas is not installed.
        """
        columns = ["name", "node", "op_type", "dtype", "shape", "nbytes", *_NUMBERS]
        return data_frame(self.rows(), columns)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_graph": None}  # it is made again from the model

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _graph=Graph.of(state["model"]))

    def close(self) -> None:
        """Remove the temporary files of kept arrays now, rather than when nobody refers to this any more."""
        self._store.close()

    def _value(self, name: str) -> int:
        """Return the value of a name, −1 for a weight."""
        found = self._values.get(name)
        if found is not None:
            return found
        if name in self.model.initializers:
            return -1
        near = ", ".join(map(quoted, closest(str(name), self._values)))
        at = f" The capture stopped at {quoted(self.stopped.name)}." if self.stopped else ""
        message = f"tensor {quoted(str(name))} was not captured.{at}"
        raise CaptureError(message, advice=f"Closest names: {near}." if near else "See cap.names.")

    def _weight(self, name: str) -> Statistics:
        return Statistics.of(self.model.tensor(name))

    def _read_by(self, node: int, names: Mapping[int, str]) -> dict[str, Statistics]:
        graph = self._graph
        read: dict[str, Statistics] = {}
        for value in dict.fromkeys([*graph.node_inputs(node).tolist(), *graph.outer_values(node).tolist()]):
            if value in self._records:
                found = self._records[value].settled()
                if found is not None:
                    read[names[value]] = found
            elif value >= 0 and graph.value_kind[value] == INITIALIZER and graph.value_subgraph[value] == 0:
                read[graph.value_names[value]] = self._weight(graph.value_names[value])
        return read


_NUMBERS: Final = ("count", "min", "max", "mean", "std", "zeros", "nan", "posinf", "neginf")


# --- what is asked for ----------------------------------------------------------------------------------------------


def _wanted(graph: Graph, tensors: str | Iterable[str] | None, *, bodies: bool) -> list[int]:
    """Return the values to record."""
    kinds = graph.value_kind
    there = (kinds == NODE_OUTPUT) | (kinds == BODY_INPUT) | (graph.value_subgraph == 0) & (kinds != DANGLING)
    closed = _closed(graph)
    there &= ~closed[graph.value_subgraph] if bodies else graph.value_subgraph == 0
    if tensors is None:
        there &= kinds != INITIALIZER
        there[graph.overridable] = True
        found: list[int] = np.flatnonzero(there).tolist()
        return found
    # weights are in the model, and need not be recorded
    stay = set(np.flatnonzero(kinds == INITIALIZER).tolist()) - set(graph.overridable.tolist())
    return [value for value in named(graph, tensors, np.flatnonzero(there).tolist(), "tensors") if value not in stay]


def _closed(graph: Graph) -> NDArray[np.bool_]:
    """Return the bodies that can be run only by their owner."""
    closed = np.zeros(len(graph.subgraphs), bool)
    for number, frame in enumerate(graph.subgraphs[1:], 1):  # outer ones come first
        closed[number] = closed[frame.parent] or not can_look_inside(graph, frame.owner_node)
    return closed


def named(graph: Graph, patterns: str | Iterable[str], among: Sequence[int], what: str) -> list[int]:
    """Return the values whose names are given or match."""
    by_name: dict[str, list[int]] = {}
    names = graph.value_names
    for value in among:
        by_name.setdefault(names[value], []).append(value)
    found: set[int] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matching = [pattern] if pattern in by_name else fnmatch.filter(by_name, pattern)
        if not matching:
            near = ", ".join(map(quoted, closest(pattern, by_name)))
            hint = " Values inside of If, Loop and Scan bodies need bodies=True." if len(graph.subgraphs) > 1 else ""
            message = f"{what}: no value that is captured is called {quoted(pattern)}."
            raise CaptureError(message, advice=(f"Closest names: {near}." if near else "See model.proto.") + hint)
        found.update(value for name in matching for value in by_name[name])
    return sorted(found)


def refuse_faults(graph: Graph, runs: Callable[[], Iterable[int]]) -> None:
    """Refuse a graph that is broken where it runs; ``runs`` gives the nodes that do."""
    if not len(graph.problem_nodes) and not len(graph.problem_values):
        return
    running = set(runs())
    for fault in graph.problems:
        node = fault.node
        while node >= graph.main_count:
            node = graph.subgraphs[graph.node_subgraph[node]].owner_node
        if fault.kind in _FATAL and (node < 0 or node in running):
            advice = "Repair the model, or name tensors= that do not depend on it."
            raise CaptureError(fault.message, advice=advice, node=graph.names[node] if node >= 0 else None)


def _lowered(graph: Graph, job: Job) -> tuple[Job, Callable[[Partial], Partial] | None]:
    """Let the model run with the casts that onnxruntime would put in; give also what translates the results back."""
    model = lowered(job.model, job.providers)
    if model is job.model:
        return job, None
    low = Graph.of(model)
    values = originals(graph, low)
    numbers = {original: value for value, original in values.items()}
    if any(value not in numbers for value in job.wanted):  # functions with bodies: their nodes round one by one
        return job, None
    keep = frozenset(numbers[v] for v in job.keep) if isinstance(job.keep, frozenset) else job.keep
    nodes = original_nodes(graph, low)
    wanted = tuple(numbers[value] for value in job.wanted)
    order = job.windows(reuse=False).runs
    translation = functools.partial(_translated, graph, order, values, nodes)
    return job._replace(model=model, wanted=wanted, keep=keep), translation


def _translated(
    graph: Graph, order: list[int], values: Mapping[int, int], nodes: Mapping[int, int], partial: Partial
) -> Partial:
    """Describe, of the original model what is known of the lowered one, in which Constant nodes have become weights."""
    seconds, nbytes = Counter[int](), Counter[int]()
    for node, took, size in zip(partial.order, partial.seconds.tolist(), partial.nbytes.tolist(), strict=True):
        seconds[nodes.get(node, -1)] += took
        nbytes[nodes.get(node, -1)] += size
    place = {node: at for at, node in enumerate(order)}

    def at(value: int) -> int:
        node, frame = int(graph.producer[value]), int(graph.value_subgraph[value])
        while frame:  # of what is inside of a body, its owner in the main graph
            node, frame = graph.subgraphs[frame].owner_node, graph.subgraphs[frame].parent
        return place.get(node, -1)

    original = {values[value]: record for value, record in partial.records.items()}
    return Partial(
        {value: original[value] for value in sorted(original, key=at)},
        {values[value]: found for value, found in partial.kept.items()},
        order,
        np.asarray([seconds[node] for node in order], np.float64),
        np.asarray([nbytes[node] for node in order], np.int64),
        partial.windows,
        partial.stopped if partial.stopped < 0 else values[partial.stopped],
    )


# --- running feeds --------------------------------------------------------------------------------------------------


def _in_turn(job: Job, feeds: Iterator[dict[str, Any]], store: Store, done: Done) -> Generator[Partial]:
    """Run feeds one after the other in this process."""
    graph = Graph.of(job.model)
    feed = next(feeds, None)
    number = 0
    windows: Windows | None = None
    with statistics_pool() as pool:
        while feed is not None:
            following = next(feeds, None)
            windows = windows or job.windows(reuse=following is not None)
            before = functools.partial(_report, graph, done, number) if done.progress is not None else None
            yield run_feed(job, windows, feed, store=store, pool=pool, before=before)
            feed, number = following, number + 1
    done.all()


def _report(graph: Graph, done: Done, number: int, nodes: Sequence[int], part: float) -> None:
    done(number + part, graph.node_labels(nodes))


def _spread(
    job: Job,
    feeds: Iterator[dict[str, Any]],
    store: Store,
    executor: concurrent.futures.Executor,
    done: Done,
) -> Generator[Partial]:
    """Return feeds to an executor, and their results in the order of the feeds."""
    for number, partial in enumerate(spread(executor, run_remote, pickled(job), feeds), 1):
        for found in partial.kept.values():
            found.update((index, store.put(content)) for index, content in found.items())
        yield partial
        done(number, f"{_counted(number, 'feed')} done")
    done.all()


# --- putting together -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Costs:
    """What the nodes took."""

    order: list[int]
    seconds: NDArray[np.float64]
    nbytes: NDArray[np.int64]


@dataclass(eq=False)
class _Merged:
    records: dict[int, Record] = field(default_factory=dict)
    costs: Costs = field(default_factory=lambda: Costs([], np.zeros(0), np.zeros(0, np.int64)))
    feeds: int = 0
    windows: int = 0
    stopped: Stop | None = None


def _merged(graph: Graph, partials: Iterator[Partial], store: Store) -> _Merged:
    """Merge what the feeds gave, in their order, so that it does not matter where they ran."""
    merged = _Merged()
    for partial in partials:
        for value, record in partial.records.items():
            if value in merged.records:
                merged.records[value].merge(record)
            else:
                merged.records[value] = record
        for value, found in partial.kept.items():
            places = store.places.setdefault(value, {})
            places.update(((merged.feeds, *index), stored) for index, stored in found.items())
        if merged.feeds:
            merged.costs.seconds += partial.seconds
            merged.costs.nbytes = np.maximum(merged.costs.nbytes, partial.nbytes)
        else:
            merged.costs = Costs(partial.order, partial.seconds, partial.nbytes)
        merged.windows = max(merged.windows, partial.windows)
        merged.feeds += 1
        if partial.stopped >= 0:
            maker = int(graph.producer[partial.stopped])
            label = graph.node_label(maker) if maker >= 0 else ""
            merged.stopped = Stop(graph.value_names[partial.stopped], label, merged.feeds - 1)
            break
    if not merged.feeds:
        raise CaptureError("no feed was given.", advice="The iterable is empty: a generator can be used only once.")
    return merged


def _captured(graph: Graph, merged: _Merged, store: Store) -> Capture:
    names = graph.value_names
    values: dict[str, int] = {}
    times = Counter(names[value] for value in merged.records)
    for value in merged.records:
        name, frame = names[value], graph.value_subgraph[value]
        if frame and times[name] > 1:
            place = graph.subgraphs[frame]
            owner = graph.names[place.owner_node] or f"{graph.node_label(place.owner_node)}#{place.owner_node}"
            name = f"{owner}/{place.attribute}/{name}"
        values[name] = value
    return Capture(
        model=graph.model,
        feeds=merged.feeds,
        windows=merged.windows,
        stopped=merged.stopped,
        _graph=graph,
        _values=values,
        _records=merged.records,
        _store=store,
        _costs=merged.costs,
    )


def _range(found: Statistics) -> str:
    if found.count == found.nonfinite:
        return "no finite value"
    return f"{found.min:g} … {found.max:g}".replace("-", "−")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
