"""One feed run through `windows`, and what is recorded of the values that pass: statistics, and arrays to keep."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.tensors import dtype_name
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.statistics import Statistics
from onnx_nb.analysis.run.windows import WINDOW_BYTES, Value, Windows

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.run.array_store import Store

Predicate = Callable[[str, Any], bool]
"""Is given the name of a tensor and its array (read-only; a list of arrays for a sequence)."""


SMALL: Final = 4096
"""Values of so few bytes are held instead of their statistics, which are not smaller, until these are asked for."""
ITERATIONS_KEPT: Final = 64
"""Of the iterations of a Loop or Scan, the first so many are kept as arrays; statistics are of all."""


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
    """Return threads for the statistics of large arrays: those cores that onnxruntime leaves, four at most.

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
        """Return the statistics; None if the value has no numbers."""
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
    """Return the type and the array (or arrays of a sequence) of a value, without copying where possible."""
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
