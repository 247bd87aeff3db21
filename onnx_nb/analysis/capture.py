"""Every intermediate value of a model: statistics as the values pass, arrays only where asked for.

`windows` runs the model in small sessions and drops each value after its last reader, so that capturing everything
takes less memory than a plain run. Here the values are turned into statistics, kept, spilled to disk, and searched.
"""

from __future__ import annotations

import concurrent.futures
import fnmatch
import functools
import importlib
import itertools
import os
import pickle
import shutil
import tempfile
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis import session as sessions
from onnx_nb.analysis.data_frames import data_frame
from onnx_nb.analysis.errors import CaptureError, closest, readable, shown
from onnx_nb.analysis.feeds import read_feeds
from onnx_nb.analysis.graph import BODY_INPUT, DANGLING, INITIALIZER, NODE_OUTPUT, Graph
from onnx_nb.analysis.lowering import lowered, original_nodes, originals
from onnx_nb.analysis.model import Model, ModelLike, load
from onnx_nb.analysis.statistics import Histogram, Statistics
from onnx_nb.analysis.tensors import dtype_name
from onnx_nb.analysis.windows import WINDOW_BYTES, Value, Windows, can_look_inside

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.progress import Progress

Predicate = Callable[[str, Any], bool]
"""Is given the name of a tensor and its array (read-only; a list of arrays for a sequence)."""

SMALL: Final = 4096
"""Values of so few bytes are held instead of their statistics, which are not smaller, until these are asked for."""
ITERATIONS_KEPT: Final = 64
"""Of the iterations of a Loop or Scan, the first so many are kept as arrays; statistics are of all."""
_FATAL: Final = ("duplicate_name", "dangling_input", "cycle")
_SUBMITTED: Final = 16
"""So many feeds are given to an executor in advance: a dataset may be larger than memory."""


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

    Values are bit-identical to what onnxruntime gives with all of them added as outputs and graph optimisation off
    (optimisation fuses nodes, and changes values).

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
            from onnx_nb.analysis.isolation import isolated

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
        """Say which node it is and what it was given."""
        found = self.statistics
        counts = [(found.nan, "NaN"), (found.posinf, "Inf"), (found.neginf, "−Inf")]
        what = " and ".join(f"{count} {kind}" for count, kind in counts if count)
        if not self.node:
            return f"{shown(self.name)} is given to the model with {what} of {found.count} values."
        message = f"{self.node} makes {what} of {found.count} values in {shown(self.name)}"
        if not self.inputs:
            return f"{message}."
        read = ", ".join(f"{shown(name)} ({_range(entry)})" for name, entry in itertools.islice(self.inputs.items(), 6))
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
        """Give a kept array: ``cap["name"]``, or of several iterations or feeds ``cap["name", 3]``, feed first.

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
            message = f"the array of {shown(name)} was not kept, only its statistics."
            raise CaptureError(message, advice=f"Capture again with keep={shown(name)}.")
        there = [place if self.feeds > 1 else place[1:] for place in places]
        listed = ", ".join(str(place[0] if len(place) == 1 else place) for place in there[:8])
        raise CaptureError(f"{shown(name)} was not kept at {numbers}.", advice=f"It was at {listed or 'no number'}.")

    def __contains__(self, name: object) -> bool:
        """Say whether a value of this name was seen."""
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        """Give the names of all values, in order of execution."""
        return iter(self._values)

    def __len__(self) -> int:
        """Give the number of values seen."""
        return len(self._values)

    def __repr__(self) -> str:
        kept = f", {len(self._store.places)} kept" if self._store.places else ""
        feeds = f", {self.feeds} feeds" if self.feeds != 1 else ""
        stop = f", stopped at {shown(self.stopped.name)}" if self.stopped else ""
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
        """Give the statistics of a value, merged over feeds and iterations; of a weight too."""
        value = self._value(name)
        found = self._weight(name) if value < 0 else self._records[value].settled()
        if found is None:
            raise CaptureError(f"{shown(name)} is a {self._records[value].dtype}: it has no statistics.")
        return found

    def histogram(self, name: str) -> Histogram:
        """Give the histogram of a value's finite numbers."""
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
        """Give a row for each value: name, node, op_type, dtype, shape, nbytes, then the statistics."""
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
        """Give `rows` as a pandas data frame.

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
        """Give the value of a name, −1 for a weight."""
        found = self._values.get(name)
        if found is not None:
            return found
        if name in self.model.initializers:
            return -1
        near = ", ".join(map(shown, closest(str(name), self._values)))
        at = f" The capture stopped at {shown(self.stopped.name)}." if self.stopped else ""
        message = f"tensor {shown(str(name))} was not captured.{at}"
        raise CaptureError(message, advice=f"Closest names: {near}." if near else "See cap.names.")

    def _weight(self, name: str) -> Statistics:
        return Statistics.of(self.model.tensor(name))

    def _read_by(self, node: int, names: Mapping[int, str]) -> dict[str, Statistics]:
        graph = self._graph
        read: dict[str, Statistics] = {}
        for value in dict.fromkeys([*graph.node_inputs(node).tolist(), *graph.captured(node).tolist()]):
            if value in self._records:
                found = self._records[value].settled()
                if found is not None:
                    read[names[value]] = found
            elif value >= 0 and graph.value_kind[value] == INITIALIZER and graph.value_frame[value] == 0:
                read[graph.value_names[value]] = self._weight(graph.value_names[value])
        return read


_NUMBERS: Final = ("count", "min", "max", "mean", "std", "zeros", "nan", "posinf", "neginf")


# --- what is asked for ----------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """All that a process needs to know to run feeds; value numbers are the same in every process."""

    model: Model
    wanted: tuple[int, ...]
    keep: frozenset[int] | Predicate | None
    stop_at: Predicate | None
    memory_limit: int
    providers: tuple[str, ...] | None
    times: bool

    def windows(self, *, reuse: bool) -> Windows:
        """Make what runs the model."""
        return Windows(
            Graph.of(self.model),
            self.wanted,
            memory_limit=self.memory_limit,
            providers=self.providers,
            single=self.times,
            reuse=reuse,
        )


def _wanted(graph: Graph, tensors: str | Iterable[str] | None, *, bodies: bool) -> list[int]:
    """Give the values to record."""
    kinds = graph.value_kind
    there = (kinds == NODE_OUTPUT) | (kinds == BODY_INPUT) | (graph.value_frame == 0) & (kinds != DANGLING)
    closed = _closed(graph)
    there &= ~closed[graph.value_frame] if bodies else graph.value_frame == 0
    if tensors is None:
        there &= kinds != INITIALIZER
        there[graph.overridable] = True
        found: list[int] = np.flatnonzero(there).tolist()
        return found
    # weights are in the model, and need not be recorded
    stay = set(np.flatnonzero(kinds == INITIALIZER).tolist()) - set(graph.overridable.tolist())
    return [value for value in named(graph, tensors, np.flatnonzero(there).tolist(), "tensors") if value not in stay]


def _closed(graph: Graph) -> NDArray[np.bool_]:
    """Give the bodies that can be run only by their owner."""
    closed = np.zeros(len(graph.frames), bool)
    for number, frame in enumerate(graph.frames[1:], 1):  # outer ones come first
        closed[number] = closed[frame.parent] or not can_look_inside(graph, frame.owner_node)
    return closed


def named(graph: Graph, patterns: str | Iterable[str], among: Sequence[int], what: str) -> list[int]:
    """Give the values whose names are given or match."""
    by_name: dict[str, list[int]] = {}
    names = graph.value_names
    for value in among:
        by_name.setdefault(names[value], []).append(value)
    found: set[int] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matching = [pattern] if pattern in by_name else fnmatch.filter(by_name, pattern)
        if not matching:
            near = ", ".join(map(shown, closest(pattern, by_name)))
            hint = " Values inside of If, Loop and Scan bodies need bodies=True." if len(graph.frames) > 1 else ""
            message = f"{what}: no value that is captured is called {shown(pattern)}."
            raise CaptureError(message, advice=(f"Closest names: {near}." if near else "See model.proto.") + hint)
        found.update(value for name in matching for value in by_name[name])
    return sorted(found)


def refuse_faults(graph: Graph, runs: Callable[[], Iterable[int]]) -> None:
    """Refuse a graph that is broken where it runs; ``runs`` gives the nodes that do."""
    if not len(graph.faulty_nodes) and not len(graph.faulty_values):
        return
    running = set(runs())
    for fault in graph.faults:
        node = fault.node
        while node >= graph.main_count:
            node = graph.frames[graph.node_frame[node]].owner_node
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
    """Say of the original model what is known of the lowered one, in which Constant nodes have become weights."""
    seconds, nbytes = Counter[int](), Counter[int]()
    for node, took, size in zip(partial.order, partial.seconds.tolist(), partial.nbytes.tolist(), strict=True):
        seconds[nodes.get(node, -1)] += took
        nbytes[nodes.get(node, -1)] += size
    place = {node: at for at, node in enumerate(order)}

    def at(value: int) -> int:
        node, frame = int(graph.producer[value]), int(graph.value_frame[value])
        while frame:  # of what is inside of a body, its owner in the main graph
            node, frame = graph.frames[frame].owner_node, graph.frames[frame].parent
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


def available_memory() -> int:
    """Give the bytes of memory that this process could still take."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        found += [max(int(limit) - int(used), 1 << 28)] if limit.isdigit() else []
    except OSError:  # another system, or no such group: what was found has to do
        pass
    return min(found, default=4 << 30)


class Done:
    """Tells ``progress`` how far it is.

    Parameters
    ----------
    progress
        Of `capture`.
    total
        How many feeds there are; None if only the last of them tells.
    """

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self.progress = progress
        self._total = total

    def __call__(self, feeds: float, what: str) -> None:
        """Say how many feeds are done; of an unknown number the next one is taken for half of the rest."""
        if self.progress is not None:
            self.progress(min(feeds / self._total, 1.0) if self._total else 1 - 0.5**feeds, what)

    def all(self) -> None:
        """Say that all is done."""
        if self.progress is not None:
            self.progress(1.0, "done")


def count_of(feeds: Any) -> int | None:
    """Give how many feeds there are, as far as that can be told without reading them."""
    if feeds is None or isinstance(feeds, Mapping) or hasattr(feeds, "__array__"):
        return 1
    if isinstance(feeds, list | tuple):
        return len(feeds) if feeds and all(isinstance(feed, Mapping) for feed in feeds) else 1
    return None


# --- running feeds --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Partial:
    """What one feed gave."""

    records: dict[int, Record]
    kept: dict[int, dict[tuple[int, ...], Any]]
    """Value → iteration → what the store gave for it."""
    order: list[int]
    seconds: NDArray[np.float64]
    nbytes: NDArray[np.int64]
    windows: int
    stopped: int = -1
    """The value at which ``stop_at`` was true."""


def run_feed(
    job: Job,
    windows: Windows,
    feed: Mapping[str, Any],
    *,
    store: Store,
    pool: concurrent.futures.Executor,
    before: Callable[[Sequence[int], float], None] | None = None,
) -> Partial:
    """Run one feed and record what passes."""
    recorder = _Recorder(Graph.of(job.model), job, store, before, pool)
    stopped = -1
    try:
        windows.run(feed, recorder)
    except _Stopped as stop:
        stopped = stop.value
    finally:
        recorder.settle()
    order = windows.runs
    return Partial(
        recorder.records,
        recorder.kept,
        order,
        np.asarray([recorder.seconds.get(node, 0.0) for node in order]),
        np.asarray([recorder.nbytes.get(node, 0) for node in order], np.int64),
        recorder.windows,
        stopped,
    )


def statistics_pool() -> concurrent.futures.Executor:
    """Give threads for the statistics of large arrays: those cores that onnxruntime leaves, four at most.

    Numpy lets them run side by side; two cores are onnxruntime's, and more threads would only wait for one another.
    """
    spare = min((os.cpu_count() or 1) - 2, 4)
    return concurrent.futures.ThreadPoolExecutor(spare, "onnx_nb statistics") if spare > 0 else _Here()


class _Here(concurrent.futures.Executor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (whoever asks for the result hears of it)
            future.set_exception(error)
        return future


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
    done(number + part, described(graph, nodes))


def described(graph: Graph, nodes: Sequence[int]) -> str:
    """Name the nodes of a window."""
    first = graph.node_label(nodes[0])
    return first if len(nodes) == 1 else f"{first} … {graph.node_label(nodes[-1])} ({len(nodes)} nodes)"


def _spread(
    job: Job,
    feeds: Iterator[dict[str, Any]],
    store: Store,
    executor: concurrent.futures.Executor,
    done: Done,
) -> Generator[Partial]:
    """Give feeds to an executor, and their results in the order of the feeds."""
    for number, partial in enumerate(spread(executor, run_remote, pickled(job), feeds), 1):
        for found in partial.kept.values():
            found.update((index, store.put(content)) for index, content in found.items())
        yield partial
        done(number, f"{_counted(number, 'feed')} done")
    done.all()


def spread(
    executor: concurrent.futures.Executor, work: Callable[..., bytes], payload: bytes, feeds: Iterable[Any]
) -> Generator[Any]:
    """Let an executor call ``work(token, payload, feed)``; give what was pickled there, in the order of the feeds.

    The token is the same for all feeds, so that what was made of the payload can be kept for the next one.

    Raises
    ------
    CaptureError
        If a process of the executor ended.
    """
    token = uuid.uuid4().hex
    waiting: list[concurrent.futures.Future[bytes]] = []
    number = 0
    try:
        for feed in itertools.chain(feeds, [None]):
            if feed is not None:
                waiting.append(executor.submit(work, token, payload, feed))
            while waiting and (feed is None or len(waiting) >= _SUBMITTED):
                yield pickle.loads(waiting.pop(0).result())  # noqa: S301 (our own)
                number += 1
    except concurrent.futures.BrokenExecutor as error:
        message = f"a worker process of the executor ended while feed {number} ran: {error}"
        raise CaptureError(message, advice="isolate=True tells at which node.") from error
    finally:
        for future in waiting:
            future.cancel()


def pickled(job: Job) -> bytes:
    """Pickle what another process is to run; functions of a notebook too, if cloudpickle is installed."""
    given = [function for function in (job.keep, job.stop_at) if callable(function)]
    own = all(getattr(function, "__module__", "") != "__main__" for function in given)
    try:
        if own:
            return pickle.dumps(job)
    except Exception as error:  # noqa: BLE001 (objects of any class may refuse)
        reason = str(error)
    else:
        reason = "another process has not this notebook's or script's functions"
    try:
        data: bytes = importlib.import_module("cloudpickle").dumps(job)
    except Exception as error:
        message = f"keep, stop_at or the model cannot be sent to another process: {reason}."
        advice = "Use functions of a module, or install cloudpickle."
        raise CaptureError(message, advice=advice) from error
    return data


_kept_here = threading.local()


def run_remote(token: str, payload: bytes, feed: Mapping[str, Any]) -> bytes:
    """Run one feed wherever an executor runs it; sessions are kept for the next feed of the same capture."""
    if getattr(_kept_here, "token", "") != token:
        job: Job = pickle.loads(payload)  # noqa: S301 (our own)
        _kept_here.job, _kept_here.windows, _kept_here.token = job, job.windows(reuse=True), token
    store = Store(_kept_here.job.memory_limit)
    try:
        with statistics_pool() as pool:
            partial = run_feed(_kept_here.job, _kept_here.windows, feed, store=store, pool=pool)
        for found in partial.kept.values():
            found.update((index, unspilled(content)) for index, content in found.items())
        return pickle.dumps(partial)  # here, while the files of what was spilled are there
    finally:
        store.close()


# --- recording ------------------------------------------------------------------------------------------------------


class Record:
    """The statistics of one value so far."""

    __slots__ = ("_pending", "_statistics", "dtype", "nbytes", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...] | None, nbytes: int) -> None:
        self.dtype = dtype
        self.shape = shape
        """Of the first occurrence; None for what is no tensor."""
        self.nbytes = nbytes
        self._statistics: Statistics | None = None
        self._pending: NDArray[Any] | concurrent.futures.Future[Statistics] | None = None

    def add(self, array: NDArray[Any], pool: concurrent.futures.Executor) -> None:
        """Add an array, which may be gone after the next `wait`."""
        self.settled()
        if array.nbytes <= SMALL:
            self._pending = array.copy()
        else:
            self._pending = pool.submit(Statistics.of, array)

    def merge(self, other: Record) -> None:
        """Add what another feed gave."""
        mine, theirs = self.settled(), other.settled()
        self._statistics = theirs if mine is None else mine if theirs is None else mine.merge(theirs)
        self.nbytes = max(self.nbytes, other.nbytes)

    def settled(self) -> Statistics | None:
        """Give the statistics; None if the value has no numbers."""
        pending, self._pending = self._pending, None
        if pending is not None:
            new = Statistics.of(pending) if isinstance(pending, np.ndarray) else pending.result()
            self._statistics = new if self._statistics is None else self._statistics.merge(new)
        return self._statistics

    def wait(self) -> None:
        """Let go of the array."""
        if not isinstance(self._pending, np.ndarray):
            self.settled()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.dtype, self.shape, self.nbytes, self.settled()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.shape, self.nbytes, self._statistics = state
        self._pending = None


class _Stopped(Exception):  # noqa: N818 (nothing is wrong)
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class _Recorder:
    """The sink of one feed."""

    def __init__(
        self,
        graph: Graph,
        job: Job,
        store: Store,
        before: Callable[[Sequence[int], float], None] | None,
        pool: concurrent.futures.Executor,
    ) -> None:
        self.records: dict[int, Record] = {}
        self.kept: dict[int, dict[tuple[int, ...], Any]] = {}
        self.seconds: dict[int, float] = {}
        self.nbytes: dict[int, int] = {}
        self.windows = 0
        self._names = graph.value_names
        self._keep = job.keep
        self._stop_at = job.stop_at
        self._store = store
        self._report = before
        self._pool = pool
        self._spare = job.memory_limit // 8
        self._waiting: list[tuple[Record, int]] = []

    def before(self, nodes: Sequence[int], done: float) -> None:
        if self._report is not None:
            self._report(nodes, done)

    def ran(self, nodes: Sequence[int], seconds: float, nbytes: Sequence[int]) -> None:
        self.windows += 1
        share = seconds / len(nodes)
        for node, size in zip(nodes, nbytes, strict=True):
            self.seconds[node] = self.seconds.get(node, 0.0) + share
            self.nbytes[node] = max(self.nbytes.get(node, 0), size)

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        dtype, content = contents(found)
        arrays = [content] if isinstance(content, np.ndarray) else content or []
        record = self.records.get(value)
        if record is None:
            shape = content.shape if isinstance(content, np.ndarray) else None
            record = self.records[value] = Record(dtype, shape, sum(array.nbytes for array in arrays))
        for array in arrays:
            record.add(array, self._pool)
            if array.nbytes > SMALL:
                self._waiting.append((record, array.nbytes))
        if self._keep is not None and content is not None and self._is_kept(value, content, index):
            self.kept.setdefault(value, {})[index] = self._store.put(content)
        if self._stop_at is not None and content is not None and self._stop_at(self._names[value], content):
            raise _Stopped(value)

    def held(self) -> int:
        # statistics of this window are computed while the next one runs, but not those of several windows
        waiting = sum(nbytes for _, nbytes in self._waiting)
        if waiting > WINDOW_BYTES or waiting > self._spare:
            self.settle()
            waiting = 0
        return self._store.held + waiting

    def settle(self) -> None:
        """Wait for the statistics of the arrays so far."""
        waiting, self._waiting = self._waiting, []
        for record, _ in waiting:
            record.wait()

    def _is_kept(self, value: int, content: Any, index: tuple[int, ...]) -> bool:
        if any(number >= ITERATIONS_KEPT for number in index):
            return False
        keep = self._keep
        return keep(self._names[value], content) if callable(keep) else value in (keep or ())


# those that numpy and onnxruntime both have
_SHARED: Final = frozenset(range(1, 14)) - {8}


def contents(found: Value | None) -> tuple[str, NDArray[Any] | list[NDArray[Any]] | None]:
    """Give the type and the array, or the arrays of a sequence, of a value; without copying where that can be done."""
    if found is None:
        return "optional", None
    if found.is_tensor():
        data_type = found.element_type()
        if data_type in _SHARED:
            array = found.numpy()  # as sessions.to_array, in a tenth of the time
            array.flags.writeable = False
        else:
            array = sessions.to_array(found)
        return dtype_name(data_type), array
    kind = found.data_type()
    if not kind.startswith("seq(tensor("):
        return kind, None  # a map, which onnxruntime gives as no array
    arrays: list[NDArray[Any]] = [np.asarray(array) for array in sessions.to_array(found)]
    return f"seq({_NAMES.get(kind[11:-2], kind[11:-2])})", arrays


_NAMES: Final = {"float": "float32", "double": "float64"}


# --- keeping arrays -------------------------------------------------------------------------------------------------


class Spilled(NamedTuple):
    """An array in a file."""

    path: str
    dtype: Any
    """What numpy cannot write is written as bytes and viewed as this; else None."""

    def array(self) -> NDArray[Any]:
        """Map it."""
        array: NDArray[Any] = np.load(self.path, mmap_mode="r")
        return array if self.dtype is None else array.view(self.dtype)


class Store:
    """Kept arrays: in memory up to a limit, then in memory-mapped files of a temporary folder.

    Parameters
    ----------
    memory_limit
        Half of it may be taken by arrays in memory.
    folder
        Where to put files, of which somebody else takes care; a temporary folder if ``None``.
    prefix
        What their names start with.
    """

    def __init__(self, memory_limit: int, folder: str | None = None, prefix: str = "") -> None:
        self.places: dict[int, dict[tuple[int, ...], Any]] = {}
        """Value → (feed, iterations…) → what `put` gave."""
        self.held = 0
        self._limit = memory_limit // 2
        self._folder = folder
        self._removal: weakref.finalize[..., Store] | None = None
        self._prefix = prefix
        self._count = 0

    @property
    def folder(self) -> str:
        """Where the files are."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="onnx_nb-capture-")
            self._removal = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def put(self, content: NDArray[Any] | list[Any] | Spilled) -> Any:
        """Take an array, or the arrays of a sequence; give what stands for it."""
        if isinstance(content, Spilled):
            return content
        if isinstance(content, list):
            return [self.put(array) for array in content]
        if content.dtype.kind == "O":
            return content
        if self.held + content.nbytes <= self._limit:
            self.held += content.nbytes
            copy = content.copy()
            copy.flags.writeable = False
            return copy
        self._count += 1
        path = str(Path(self.folder) / f"{self._prefix}{self._count}.npy")
        foreign = content.dtype.isbuiltin != 1
        try:
            np.save(path, content.view(f"u{content.dtype.itemsize}") if foreign else content)
        except OSError as error:
            message = f"an array of {readable(content.nbytes)} cannot be kept in {shown(path)}: {error.strerror}."
            raise CaptureError(message, advice="Keep fewer values, or set TMPDIR to a larger disk.") from error
        return Spilled(path, content.dtype if foreign else None)

    def array(self, value: int, place: tuple[int, ...]) -> Any:
        """Give what was kept."""
        return unspilled(self.places[value][place])

    def close(self) -> None:
        """Remove the files; arrays that somebody still has stay usable."""
        if self._removal is not None:
            self._removal()

    def __getstate__(self) -> dict[str, Any]:
        # another process gets the values: the files may be gone by then, or be on another machine
        places = {
            value: {place: unspilled(content) for place, content in found.items()}
            for value, found in self.places.items()
        }
        return {**self.__dict__, "places": places, "_folder": None, "_removal": None}


def unspilled(found: Any) -> Any:
    """Give what `Store.put` was given."""
    if isinstance(found, list):
        return [unspilled(item) for item in found]
    if not isinstance(found, Spilled):
        return found
    try:
        return found.array()
    except FileNotFoundError:
        raise CaptureError("the array was kept in a file that is gone.", advice="Do not close the capture.") from None


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
        name, frame = names[value], graph.value_frame[value]
        if frame and times[name] > 1:
            place = graph.frames[frame]
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
