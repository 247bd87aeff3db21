"""Every intermediate value of a model: statistics as the values pass, arrays only on request.

`windows` runs the model, `value_recorder` turns values into statistics and keeps arrays, and this module merges the
results of feeds that ran one after another, in another process or in parallel.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import fnmatch
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.formatting import closest_text, count_text, number_text, quoted, shape_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import BODY_INPUT, DANGLING, INITIALIZER, NODE_OUTPUT
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.storage import available_memory
from onnx_nb.analysis.model.tensors import attribute
from onnx_nb.analysis.progress import CountedWork, Progress, count_of
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.run import value_recorder
from onnx_nb.analysis.run.attention import attention_probabilities
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.random_feeds import feeds_text, on_random_feeds
from onnx_nb.analysis.run.session import CAST_PREFIX, with_explicit_casts
from onnx_nb.analysis.run.statistics import Histogram, Statistics
from onnx_nb.analysis.run.value_recorder import ABSENT, Job, Partial, Predicate, Store, unspilled
from onnx_nb.analysis.run.windows import can_look_inside


@known_arguments
@on_random_feeds
def capture(
    model: ModelLike,
    feeds: Any = None,
    *,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    tensors: str | Iterable[str] | None = None,
    keep: str | Iterable[str] | Predicate | None = None,
    stop_at: Predicate | None = None,
    bodies: bool = False,
    times: bool = False,
    ranges: bool = False,
    memory_limit: int | None = None,
    providers: Sequence[str] | None = None,
    executor: concurrent.futures.Executor | None = None,
    subprocess: bool = False,
    progress: Progress | None = None,
) -> Capture:
    """Run a model and record every value in it.

    Values are bit-identical to those of onnxruntime with all of them added as outputs and graph optimization off
    (optimization fuses nodes, and changes values).

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    feeds, shapes
        Inputs in any form that `read_feeds` takes: a dict of arrays, arrays by position, files, an iterable of feeds (a
        dataset, whose statistics are merged), or ``None`` for random values, whose sizes ``shapes`` gives.
    tensors
        Names or patterns (``*``, ``?``, ``[…]``) of the values to record; all if ``None``. Only nodes that they depend
        on run.
    keep
        Values whose arrays are kept too: names, patterns, or a function of name and array that returns a bool.
    stop_at
        A function of name and array. The capture ends at the first value, in order of execution, where it is true.
    bodies
        Also record values inside the subgraphs of If, Loop, Scan and SequenceMap, by iteration. The subgraphs run once
        more for this, in windows of their own: their random numbers differ from those of the node's own run.
    times
        Run each node by itself, so that `Capture.nodes` has the node's own time instead of a share of its window's.
    ranges
        Also count values in 2,048 bins, and by channel, as `calibrate` needs for percentiles and entropy.
    memory_limit
        Bytes that values may take; half of the available memory if ``None``. Windows shrink down to one node to stay
        below it, and arrays to keep go to memory-mapped files in a temporary folder. Values that are needed at the same
        time are always in memory: a model may need more.
    providers
        Execution providers, best first; the CPU if ``None``.
    executor
        Any `concurrent.futures.Executor` (a process pool, Dask's ``client.get_executor()``), which runs the feeds of a
        dataset in parallel. The numbers are the same to the last bit. Functions must be picklable.
    subprocess
        Run in a separate process. A crash of onnxruntime, or running out of memory, then raises an error that names
        the nodes, and does not end this process.
    progress
        Called before each window with the fraction done and the nodes that run next. An error that it raises ends the
        capture; nothing is left behind.

    Returns
    -------
    Capture

    Raises
    ------
    CaptureError
        If the graph is broken, a name is unknown, onnxruntime rejects or fails on a node, or the process that ran it
        ended.
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
    source = load(model, providers=providers)
    graph = Graph.of(source)
    values = _wanted(graph, tensors, bodies=bodies)
    limit = available_memory() // 2 if memory_limit is None else memory_limit
    if limit <= 0:
        raise CaptureError(f"memory_limit is {limit}.", advice="Give a number of bytes, or leave it out.")
    patterns = () if keep is None else keep
    selection = patterns if callable(patterns) else frozenset(named(graph, patterns, values, "keep"))
    job = Job(source, tuple(values), selection, stop_at, limit, times, ranges)
    refuse_faults(graph, lambda: job.windows(reuse=False).runs)
    job, translate = _with_casts(graph, job)
    if subprocess and executor is not None:
        raise CaptureError("subprocess and executor are both given.", advice="Leave out one of them.")
    work = CountedWork(progress, count_of(feeds))
    store = Store(limit)
    inputs = read_feeds(source, feeds, shapes)
    try:
        if subprocess:
            partials = value_recorder.run_in_subprocess(job, inputs, store, work)
        elif executor is not None:
            partials = value_recorder.run_in_executor(job, inputs, store, work, executor)
        else:
            partials = value_recorder.run_in_turn(job, inputs, store, work)
        partial = _merged(map(translate, partials))
        partials.close()
    except BaseException:
        store.close()
        raise
    return Capture(source, partial, store, feeds_text(source, shapes) if feeds is None else "")


@dataclass(frozen=True)
class NodeCost:
    """Time and memory of a node."""

    index: int
    """Position in ``model.proto.graph.node``."""
    name: str
    op_type: str
    seconds: float
    """Seconds for all feeds. The time of a window is measured and shared equally among its nodes; with ``times=True`` a
    window is one node."""
    nbytes: int
    """Bytes of its outputs that were recorded or read later; the maximum over feeds."""


@dataclass(frozen=True)
class Stop:
    """The point at which ``stop_at`` ended a capture."""

    name: str
    """The tensor for which the function was true."""
    node: str
    """Label of the node that produced it, as ``Conv '/stem/Conv'``; empty for a graph input."""
    feed: int
    """Number of the feed, from 0."""


@dataclass(frozen=True, eq=False)
class NonFinite:
    """The first node that produced NaN or ±Inf from finite values."""

    node: str
    """Label of the node, as ``Log '/head/Log'``; empty if a graph input or weight holds the numbers."""
    name: str
    """Name of the tensor."""
    statistics: Statistics
    """Statistics of the tensor."""
    inputs: Mapping[str, Statistics]
    """Statistics of the node's inputs, weights included, as far as they were captured."""
    arrays: Mapping[str, NDArray[Any]]
    """Arrays of its inputs that were kept, and of weights."""

    @property
    def message(self) -> str:
        """The node, the counts, and the ranges of its inputs."""
        stats = self.statistics
        counts = [(stats.nan, "NaN"), (stats.posinf, "Inf"), (stats.neginf, "−Inf")]
        what = " and ".join(f"{count} {kind}" for count, kind in counts if count)
        if not self.node:
            return f"{quoted(self.name)} is given to the model with {what} of {stats.count} values."
        message = f"{self.node} makes {what} of {stats.count} values in {quoted(self.name)}"
        if not self.inputs:
            return f"{message}."
        read = []
        for name, entry in itertools.islice(self.inputs.items(), 6):
            span = f"{entry.min:g} … {entry.max:g}".replace("-", "−") if entry.finite else "no finite value"
            read.append(f"{quoted(name)} ({span})")
        return f"{message}, and its inputs are finite: {', '.join(read)}."

    def __repr__(self) -> str:
        return f"NonFinite({self.message})"


_NUMBERS: Final = ("count", "min", "max", "mean", "std", "zeros", "nan", "posinf", "neginf")


class Capture(Displayed, Table, panel="capture.CapturePanel"):
    """Statistics of every value of a run, and the arrays that were kept. Made by `capture`.

    ``cap["name"]`` is an array, ``cap.names`` lists every value in order of execution. Weights are also available.
    Values inside subgraphs that share their name with another value are called ``owner/attribute/name``.
    """

    def __init__(self, model: Model, partial: Partial, store: Store | None = None, random: str = "") -> None:
        graph = Graph.of(model)
        self.model: Final = model
        self.feeds: Final = partial.feeds
        """Number of feeds."""
        self.random: Final = random
        """What was made up as feeds, such as "feeds: random, x 1×3×640×640"; empty if they were given."""
        self.windows: Final = partial.windows
        """Number of sessions that the nodes ran in; the maximum over feeds."""
        at, maker = partial.stopped, int(graph.producer[partial.stopped]) if partial.stopped >= 0 else -1
        label = graph.node_label(maker) if maker >= 0 else ""
        self.stopped: Final = Stop(graph.value_names[at], label, partial.feeds - 1) if at >= 0 else None
        """The point at which ``stop_at`` ended the capture; ``None`` if it did not."""
        self._graph = graph
        self._values = _names(graph, partial.records)
        self._partial = partial
        self._store = store

    def __getitem__(self, key: str | tuple[Any, ...]) -> Any:
        """Return an array that was kept: ``cap["name"]``, or one of several iterations or feeds: ``cap["name", 3]``.

        With both, the feed comes first; without a number, the first array that was kept is returned. For a weight it is
        ``model.tensor(name)``, and for an optional value that was absent ``None``.
        """
        name, *numbers = key if isinstance(key, tuple) else (key,)
        value = self._value(name)
        if value < 0:
            return self.model.tensor(name)
        arrays = self._partial.arrays.get(value, {})
        position = tuple(int(number) for number in numbers)
        if self.feeds == 1 and position:
            position = (0, *position)
        array = arrays.get(position) if position else next(iter(arrays.values()), None)
        if array is not None:
            return unspilled(array)
        if not arrays and self._partial.records[value].dtype == ABSENT:
            return None
        if "map(" in (kind := self._partial.records[value].dtype):
            message = f"{quoted(name)} is a {kind}, which onnxruntime only hands over as an output of the model."
            raise CaptureError(message, advice="Run it: onnx_nb.run(model, feeds).")
        if not arrays:
            message = f"the array of {quoted(name)} was not kept, only its statistics."
            raise CaptureError(message, advice=f"Capture again with keep={quoted(name)}.")
        indexes = [index if self.feeds > 1 else index[1:] for index in arrays]
        places = ", ".join(str(index[0] if len(index) == 1 else index) for index in indexes[:8])
        message = f"{quoted(name)} was not kept at {numbers}."
        raise CaptureError(message, advice=f"It was at {places or 'no number'}.")

    def __contains__(self, name: object) -> bool:
        """Return whether `statistics` accepts this name: the name of a captured value or of a weight."""
        return name in self._values or name in self.model.initializers

    def __iter__(self) -> Iterator[str]:
        """Return the names of all values, in order of execution."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of captured values."""
        return len(self._values)

    def __repr__(self) -> str:
        arrays = f", {len(self._partial.arrays)} kept" if self._partial.arrays else ""
        feeds = f", {self.random}" if self.random else f", {self.feeds} feeds" if self.feeds != 1 else ""
        stop = f", stopped at {quoted(self.stopped.name)}" if self.stopped else ""
        nodes = count_text(len(self._partial.order), "node")
        return f"Capture({count_text(len(self), 'value')} of {nodes}{feeds}{arrays}{stop})"

    @property
    def names(self) -> list[str]:
        """The names of all captured values, in order of execution: the graph inputs first."""
        return list(self._values)

    @property
    def values(self) -> Mapping[str, int]:
        """The number of each captured value in `Graph`, by name."""
        return self._values

    @property
    def array_names(self) -> list[str]:
        """The names of values with kept arrays."""
        return [name for name, value in self._values.items() if value in self._partial.arrays]

    def statistics(self, name: str) -> Statistics:
        """Return the statistics of a value, merged over feeds and iterations, or of a weight."""
        value = self._value(name)
        stats = Statistics.of(self.model.tensor(name)) if value < 0 else self._partial.records[value].settled()
        if stats is None:
            raise CaptureError(f"{quoted(name)} is a {self._partial.records[value].dtype}: it has no statistics.")
        return stats

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of a value's finite numbers."""
        return self.statistics(name).histogram

    def _still(self) -> Still:
        rows = []
        for row in self.rows():
            odd = sum(row[key] or 0 for key in ("nan", "posinf", "neginf"))
            shape = "" if row["shape"] is None else shape_text(row["shape"])
            numbers = (row[key] for key in ("min", "max", "mean", "std"))
            texts = ("–" if x is None or math.isnan(x) else number_text(x, 4) for x in numbers)
            about = row["name"], row["op_type"] or "input", f"{row['dtype']} {shape}".strip()
            rows.append((*about, *texts, f"{odd:,}" if odd else ""))
        rows.sort(key=lambda row: not row[-1])
        heads = ("Value", "Op", "Type", "Min", "Max", "Mean", "Std", "NaN, Inf")
        table = StillTable(heads, rows, "value", 3, "", [row[-1] != "" for row in rows])
        first = self.nonfinite()
        return Still(repr(self), "" if first is None else first.message, (table,))

    @functools.cached_property
    def nodes(self) -> tuple[NodeCost, ...]:
        """Time and memory of each node of the main graph, in order of execution."""
        graph, partial = self._graph, self._partial
        seconds, nbytes = partial.seconds.tolist(), partial.nbytes.tolist()
        return tuple(NodeCost(n, graph.names[n], graph.op_type(n), seconds[n], nbytes[n]) for n in partial.order)

    def nonfinite(self) -> NonFinite | None:
        """Return the first node, in order of execution, that produced NaN or ±Inf from finite inputs.

        Without such a node, the result describes the first graph input or weight that holds such numbers; it is
        ``None`` if every value is finite. Inputs of a node that were not captured count as finite.
        """
        graph = self._graph
        names = {value: name for name, value in self._values.items()}
        made_of_constants = graph.constant_values
        origin: tuple[str, Statistics] | None = None
        for value, record in self._partial.records.items():
            stats = record.settled()
            if stats is None or not stats.nonfinite:
                continue
            node = int(graph.producer[value])
            if node < 0 or made_of_constants[value]:
                origin = origin or (names[value], stats)
                continue
            inputs = self._read_by(node, names)
            source = next((name for name, entry in inputs.items() if entry.nonfinite), None)
            if source is None:
                arrays = {name: self[name] for name in inputs if name not in self._values or name in self.array_names}
                return NonFinite(graph.node_label(node), names[value], stats, inputs, arrays)
            if origin is None and source not in self._values:
                origin = source, inputs[source]
        return None if origin is None else NonFinite("", *origin, {}, {})

    def attention(
        self,
        node: str,
        heads: Sequence[int] | slice = slice(None),
        queries: Sequence[int] | slice = slice(None),
        *,
        feed: int = 0,
    ) -> NDArray[np.float32]:
        """Return the probabilities of an attention, float32 [batch, heads, queries, keys], of some heads and queries.

        The node is named, or its output: a GroupQueryAttention, MultiHeadAttention or Attention whose inputs were kept.
        Keys are the slots of the past, then the tokens of this run. A sink takes what is missing to a sum of 1.
        """
        return attention_probabilities(self._graph, *self._inputs(node, feed), heads, queries)

    def experts(self, node: str, *, feed: int = 0) -> NDArray[np.int64]:
        """Return the experts [tokens, k] that a MoE or QMoE chooses for each token, that of most weight first."""
        number, arrays = self._inputs(node, feed)
        if self._graph.op_type(number) not in ("MoE", "QMoE"):
            raise CaptureError(f"{self._graph.node_label(number)} is no MoE: it sends no tokens to experts.")
        order = np.argsort(-arrays[1].astype(np.float32), axis=-1, kind="stable")
        return order[:, : attribute(self._graph.nodes[number], "k", 1)]

    _columns = ("name", "node", "op_type", "dtype", "shape", "nbytes", *_NUMBERS)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each value: name, node, op_type, dtype, shape, nbytes, then the statistics."""
        graph = self._graph
        rows = []
        for name, value in self._values.items():
            record = self._partial.records[value]
            node = int(graph.producer[value])
            stats = record.settled()
            numbers = {key: None if stats is None else getattr(stats, key) for key in _NUMBERS}
            label, op = (graph.names[node], graph.op_type(node)) if node >= 0 else ("", "")
            about = {"dtype": record.dtype, "shape": record.shape, "nbytes": record.nbytes}
            rows.append({"name": name, "node": label, "op_type": op, **about, **numbers})
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        # another process gets the arrays: the files may be gone by then, or be on another machine
        pairs = self._partial.arrays.items()
        arrays = {value: {index: unspilled(array) for index, array in entries.items()} for value, entries in pairs}
        return Capture, (self.model, dataclasses.replace(self._partial, arrays=arrays), None, self.random)

    def close(self) -> None:
        """Remove the temporary files of arrays now, not only when this object is no longer used."""
        if self._store is not None:
            self._store.close()

    def _value(self, name: str) -> int:
        """Return the value of a name, −1 for a weight."""
        if (value := self._values.get(name)) is not None:
            return value
        if name in self.model.initializers:
            return -1
        at = f" The capture stopped at {quoted(self.stopped.name)}." if self.stopped else ""
        message = f"tensor {quoted(str(name))} was not captured.{at}"
        raise CaptureError(message, advice=closest_text(str(name), self._values) or "See cap.names.")

    def _inputs(self, name: str, feed: int) -> tuple[int, list[Any]]:
        """Return a node by its name or that of its output, and the arrays that it read; None for those omitted."""
        graph = self._graph
        node = graph.names.index(name) if name in graph.names else int(graph.producer[graph.value(name)])
        if not 0 <= node < graph.main_count:
            raise CaptureError(f"{quoted(name)} is neither a node of the main graph nor an output of one.")
        names = graph.nodes[node].input
        missing = [key for key in dict.fromkeys(names) if key in self._values and key not in self.array_names]
        if missing:
            message = f"the capture lacks {count_text(len(missing), 'input')} of the node {quoted(name)}."
            raise CaptureError(message, advice=f"Capture again with keep={missing}.")
        return node, [self[(key, feed) if self.feeds > 1 else key] if key else None for key in names]

    def _read_by(self, node: int, names: Mapping[int, str]) -> dict[str, Statistics]:
        graph = self._graph
        read: dict[str, Statistics] = {}
        for value in dict.fromkeys(graph.reads(node)):
            if value in self._partial.records:
                if (stats := self._partial.records[value].settled()) is not None:
                    read[names[value]] = stats
            elif graph.value_kind[value] == INITIALIZER and graph.value_subgraph[value] == 0:
                name = graph.value_names[value]
                read[name] = Statistics.of(self.model.tensor(name))
        return read


def _names(graph: Graph, numbers: Iterable[int]) -> dict[str, int]:
    """Return the value of each name, unique also for values inside subgraphs."""
    names = graph.value_names
    times = Counter(names[value] for value in numbers)
    values: dict[str, int] = {}
    for value in numbers:
        name, subgraph = names[value], graph.value_subgraph[value]
        if subgraph and times[name] > 1:
            place = graph.subgraphs[subgraph]
            owner = graph.names[place.owner_node] or f"{graph.node_label(place.owner_node)}#{place.owner_node}"
            name = f"{owner}/{place.attribute}/{name}"
        values[name] = value
    return values


# --- values to capture ------------------------------------------------------------------------------------------------


def _wanted(graph: Graph, tensors: str | Iterable[str] | None, *, bodies: bool) -> list[int]:
    kinds = graph.value_kind
    there = (kinds == NODE_OUTPUT) | (kinds == BODY_INPUT) | (graph.value_subgraph == 0) & (kinds != DANGLING)
    is_opaque = np.arange(len(graph.subgraphs)) > 0
    if bodies:  # outer subgraphs come first
        for number, subgraph in enumerate(graph.subgraphs[1:], 1):
            is_opaque[number] = is_opaque[subgraph.parent] or not can_look_inside(graph, subgraph.owner_node)
    there &= ~is_opaque[graph.value_subgraph]
    if tensors is None:
        there &= kinds != INITIALIZER
        there[graph.overridable] = True
        return np.flatnonzero(there).tolist()
    # weights need not be recorded: they are in the model
    stay = set(np.flatnonzero(kinds == INITIALIZER).tolist()) - set(graph.overridable.tolist())
    return [value for value in named(graph, tensors, np.flatnonzero(there).tolist(), "tensors") if value not in stay]


def named(graph: Graph, patterns: str | Iterable[str], among: Sequence[int], what: str) -> list[int]:
    """Return the values whose names match."""
    names = graph.value_names
    by_name = followers((names[value], value) for value in among)
    matches: set[int] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matching = [pattern] if pattern in by_name else fnmatch.filter(by_name, pattern)
        if not matching:
            hint = " Values inside If, Loop and Scan bodies need bodies=True." if len(graph.subgraphs) > 1 else ""
            message = f"{what}: no captured value is called {quoted(pattern)}."
            raise CaptureError(message, advice=(closest_text(pattern, by_name) or "See model.proto.") + hint)
        matches.update(value for name in matching for value in by_name[name])
    return sorted(matches)


def refuse_faults(graph: Graph, runs: Callable[[], Iterable[int]]) -> None:
    """Reject a graph with problems in the nodes that run, which ``runs`` returns."""
    if not len(graph.structural_problems.nodes) and not len(graph.structural_problems.values):
        return
    running = set(runs())
    for fault in graph.problems:
        node = fault.node
        while node >= graph.main_count:
            node = graph.subgraphs[graph.node_subgraph[node]].owner_node
        if fault.kind in ("duplicate_name", "dangling_input", "cycle") and (node < 0 or node in running):
            advice = "Repair the model, or name tensors= that do not depend on it."
            raise CaptureError(fault.message, advice=advice, node=graph.names[node] if node >= 0 else None)


def _with_casts(graph: Graph, job: Job) -> tuple[Job, Callable[[Partial], Partial]]:
    """Return a job on the model with onnxruntime's casts as nodes, and a function that translates its results back."""
    cast, values = with_explicit_casts(graph, job.values)
    if cast is graph:
        return job, lambda partial: partial
    numbers = {original: value for value, original in values.items()}
    keep = job.keep if callable(job.keep) else frozenset(numbers[v] for v in job.keep)
    makers, cast_makers = (
        {name: node for name, node in zip(g.value_names, g.producer.tolist(), strict=True) if 0 <= node < g.main_count}
        for g in (graph, cast)
    )
    # an added cast belongs to the node that it serves
    pairs = ((name.removeprefix(CAST_PREFIX), node) for name, node in cast_makers.items())
    nodes = {node: makers[name] for name, node in pairs if name in makers}
    order = job.windows(reuse=False).runs
    position = {node: at for at, node in enumerate(order)}

    def place(value: int) -> int:
        *around, _ = graph.around(int(graph.value_subgraph[value]))
        # a value inside a subgraph takes the place of its owner in the main graph
        return position.get(graph.subgraphs[around[-1]].owner_node if around else int(graph.producer[value]), -1)

    def translate(partial: Partial) -> Partial:
        """Renumber the results of a model with casts, in which Constant nodes have become weights."""
        seconds, nbytes = np.zeros(graph.main_count), np.zeros(graph.main_count, np.int64)
        for node in partial.order:
            if node in nodes:
                seconds[nodes[node]] += partial.seconds[node]
                nbytes[nodes[node]] += partial.nbytes[node]
        records = {values[value]: record for value, record in partial.records.items()}
        records = {value: records[value] for value in sorted(records, key=place)}
        arrays = {values[value]: entries for value, entries in partial.arrays.items()}
        stopped = partial.stopped if partial.stopped < 0 else values[partial.stopped]
        return dataclasses.replace(
            partial, order=order, seconds=seconds, nbytes=nbytes, records=records, arrays=arrays, stopped=stopped
        )

    return job._replace(model=cast.model, values=tuple(numbers[value] for value in job.values), keep=keep), translate


def _merged(partials: Iterator[Partial]) -> Partial:
    """Merge the results of feeds, in their order, so that it does not matter where they ran."""
    total = next(partials, None)
    if total is None:
        raise CaptureError("no feed was given.", advice="The iterable is empty: a generator can be used only once.")
    while total.stopped < 0 and (partial := next(partials, None)) is not None:
        total.merge(partial)
    return total
