"""Run the feeds of a capture, here or in other processes, and record their values: statistics, and arrays to keep.

Arrays beyond a limit go to disk. Other processes are those of an executor, or a single one whose crash is an error
here: before each window it sends the next nodes through a pipe, from which this process reports progress, and names the
nodes after a crash.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import io
import itertools
import os
import pickle
import queue
import signal
import subprocess
import tempfile
import threading
import traceback
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, BinaryIO, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import CaptureError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.save import ending, python_command, temporary_folder
from onnx_nb.analysis.model.tensors import RANK, dtype_name
from onnx_nb.analysis.progress import CountedWork
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.session import Value
from onnx_nb.analysis.run.statistics import Ranges, Statistics
from onnx_nb.analysis.run.windows import WINDOW_BYTES, Sink, Windows

Predicate = Callable[[str, Any], bool]
"""Function of a tensor's name and its array (read-only; a list of arrays for a sequence)."""
Report = Callable[[Sequence[int], float], None]
"""Function called before each window with its nodes, and the fraction of all nodes that has run."""

SMALL: Final = 4096
"""Bytes; copies of smaller values are held until their statistics, which are no smaller, are needed."""
TOGETHER: Final = 1 << 26
"""Bytes of all values that are held in order to be measured together; of each value at most 65,536."""
ITERATIONS_KEPT: Final = 64
"""Maximum number of iterations of a Loop or Scan whose arrays are kept; statistics cover all iterations."""


class Job(NamedTuple):
    """Everything that a process needs to run feeds; value numbers are the same in every process."""

    model: Model
    values: tuple[int, ...]
    keep: frozenset[int] | Predicate
    stop_at: Predicate | None
    memory_limit: int
    times: bool
    ranges: bool = False
    """Whether statistics have what thresholds are computed from."""

    def windows(self, *, reuse: bool) -> Windows:
        """Return the windows that run the model."""
        graph, limit = Graph.of(self.model), self.memory_limit
        return Windows(graph, self.values, memory_limit=limit, single=self.times, reuse=reuse)


@dataclass(eq=False)
class Partial:
    """Results of one feed, or of several consecutive ones."""

    order: list[int]
    """Nodes in order of execution."""
    seconds: NDArray[np.float64]
    """Seconds of each node of the main graph, summed over feeds."""
    nbytes: NDArray[np.int64]
    """Bytes that each node of the main graph produced; the maximum over feeds."""
    records: dict[int, Record] = field(default_factory=dict)
    arrays: dict[int, dict[tuple[int, ...], Any]] = field(default_factory=dict)
    """Value → (feed, iterations…) → array, as `Store.put` returned it."""
    windows: int = 0
    """Number of sessions; the maximum over feeds."""
    stopped: int = -1
    """The value at which ``stop_at`` was true; −1 if it never was."""
    feeds: int = 1

    def merge(self, later: Partial) -> None:
        """Add the results of the following feeds."""
        for value, record in later.records.items():
            if value in self.records:
                self.records[value].merge(record)
            else:
                self.records[value] = record
        for value, entries in later.arrays.items():
            arrays = self.arrays.setdefault(value, {})
            arrays.update(((self.feeds + feed, *index), array) for (feed, *index), array in entries.items())
        self.seconds = self.seconds + later.seconds
        self.nbytes = np.maximum(self.nbytes, later.nbytes)
        self.windows = max(self.windows, later.windows)
        self.stopped = later.stopped
        self.feeds += later.feeds


def run_feed(
    job: Job, windows: Windows, feed: Mapping[str, Any], store: Store, report: Report | None = None
) -> Partial:
    """Run one feed and record its values."""
    with statistics_pool() as pool:
        recorder = _ValueRecorder(job, windows, store, pool, report)
        with contextlib.suppress(_Stopped):
            for _ in windows.steps(feed, recorder):
                pass
        recorder.settle()
    return recorder.partial


def statistics_pool() -> concurrent.futures.Executor:
    """Return up to four threads for the statistics of large arrays; two cores are left for onnxruntime."""
    return _SpareThreads(min((os.cpu_count() or 1) - 2, 4))


class _SpareThreads(concurrent.futures.ThreadPoolExecutor):
    """Runs a task when it is submitted if there are no threads, or the system allows no more."""

    def __init__(self, count: int) -> None:
        super().__init__(max(count, 1), "onnx_nb statistics")
        self._has_threads = count > 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        if self._has_threads:
            with contextlib.suppress(RuntimeError):
                return super().submit(fn, *args, **kwargs)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Record:
    """The statistics of one value so far."""

    __slots__ = ("_future", "_measure", "_statistics", "_together", "_waiting", "dtype", "nbytes", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...] | None, nbytes: int, together: int = 0) -> None:
        self.dtype = dtype
        self.shape = shape
        """Shape of the first occurrence; None for a value that is not a tensor."""
        self.nbytes = nbytes
        self._together = max(together, SMALL)
        self._statistics: Statistics | None = None
        self._waiting: list[NDArray[Any]] = []  # of one shape: each by itself takes as long as 50,000 values
        self._future: concurrent.futures.Future[Statistics] | None = None

    def add(self, array: NDArray[Any], pool: concurrent.futures.Executor, measure: Callable[[Any], Statistics]) -> bool:
        """Add an array; return whether its memory may be reused only once it is `settled`."""
        self._measure = measure
        if array.nbytes <= max(SMALL, self._together // 4):
            self._wait([array.copy()])
            return False
        self.settled()
        self._future = pool.submit(measure, array)
        return True

    def _wait(self, arrays: list[NDArray[Any]]) -> None:
        held = (self._waiting or arrays)[0]
        count = len(self._waiting) + len(arrays)
        if self._future or held.shape != arrays[0].shape or count * held.nbytes > self._together:
            self.settled()
        self._waiting += arrays

    def merge(self, other: Record) -> None:
        """Add the statistics of another feed."""
        self.nbytes = max(self.nbytes, other.nbytes)
        if other._waiting and other._statistics is None:
            self._measure = other._measure
            self._wait(other._waiting)
        else:
            self._count(other.settled())

    def settled(self) -> Statistics | None:
        """Return the statistics so far; None if the value has no numbers."""
        waiting, self._waiting, future, self._future = self._waiting, [], self._future, None
        if waiting:
            self._count(self._measure(np.stack(waiting) if waiting[0].ndim < 2 else np.concatenate(waiting)))
        elif future:
            self._count(future.result())
        return self._statistics

    def _count(self, statistics: Statistics | None) -> None:
        left = self.settled()
        self._statistics = statistics if left is None else left if statistics is None else left.merge(statistics)


class _Stopped(Exception):  # noqa: N818 (not an error)
    pass


class _ValueRecorder(Sink):
    def __init__(
        self, job: Job, windows: Windows, store: Store, pool: concurrent.futures.Executor, report: Report | None
    ) -> None:
        count = windows.graph.main_count
        self.partial = Partial(windows.runs, np.zeros(count), np.zeros(count, np.int64))
        self._names = windows.graph.value_names
        self._job, self._store, self._pool, self._report = job, store, pool, report
        self._waiting: list[tuple[Record, int]] = []

    def before(self, nodes: Sequence[int], share: float) -> None:
        if self._report is not None:
            self._report(nodes, share)

    def ran(self, nodes: Sequence[int], seconds: float, nbytes: Sequence[int]) -> None:
        self.partial.windows += 1
        if nodes[0] < len(self.partial.seconds):  # those of subgraphs count with their owner
            self.partial.seconds[list(nodes)] = seconds / len(nodes)
            self.partial.nbytes[list(nodes)] = nbytes

    def record(self, value: int, ort_value: Value | None, index: tuple[int, ...]) -> None:
        dtype, content = contents(ort_value)
        arrays = [content] if isinstance(content, np.ndarray) else content or []
        record = self.partial.records.get(value)
        if record is None:
            shape = content.shape if isinstance(content, np.ndarray) else None
            nbytes, together = sum(array.nbytes for array in arrays), TOGETHER // len(self._job.values)
            record = self.partial.records[value] = Record(dtype, shape, nbytes, min(together, 1 << 16))
        for array in arrays:
            if record.add(array, self._pool, Ranges.of if self._job.ranges else Statistics.of):
                self._waiting.append((record, array.nbytes))
        if content is None:
            return
        keep, stop_at, name = self._job.keep, self._job.stop_at, self._names[value]
        is_early = all(number < ITERATIONS_KEPT for number in index)
        if is_early and (keep(name, content) if callable(keep) else value in keep):
            self.partial.arrays.setdefault(value, {})[0, *index] = self._store.put(content)
        if stop_at is not None and stop_at(name, content):
            self.partial.stopped = value
            raise _Stopped

    def held(self) -> int:
        # statistics of this window are computed while the next one runs, but not those of several windows
        waiting = sum(nbytes for _, nbytes in self._waiting)
        if waiting > WINDOW_BYTES or waiting > self._job.memory_limit // 8:
            self.settle()
            waiting = 0
        return self._store.held + waiting

    def settle(self) -> None:
        """Wait for the statistics of the arrays so far."""
        waiting, self._waiting = self._waiting, []
        for record, _ in waiting:
            record.settled()


ABSENT: Final = "optional"
"""Type of a value that an optional lacks."""


def contents(ort_value: Value | None) -> tuple[str, NDArray[Any] | list[NDArray[Any]] | None]:
    """Return the type and the array (or arrays of a sequence) of a value, without copying where possible."""
    if ort_value is None:
        return ABSENT, None
    if ort_value.is_tensor():
        data_type = ort_value.element_type()
        if len(ort_value.shape()) > RANK:
            return dtype_name(data_type), None  # numpy has no such arrays
        # ort_value.numpy() does not keep alive an array of which the value is a view
        return dtype_name(data_type), sessions.to_array(ort_value)
    kind = ort_value.data_type()
    element = sessions.element_type(kind)
    if element is None:
        return kind, None  # a map, which onnxruntime does not convert to an array
    arrays: list[NDArray[Any]] = [np.asarray(array) for array in sessions.to_array(ort_value)]
    return f"seq({dtype_name(element)})", arrays


class Spilled(NamedTuple):
    """An array in a file."""

    path: str
    dtype: Any
    """Type as which to view the file's bytes if numpy cannot write it, else None."""


class Store:
    """Keeps arrays in memory up to a limit, then in memory-mapped files."""

    def __init__(self, memory_limit: int, folder: str | None = None) -> None:
        self.held = 0
        """Bytes of arrays in memory."""
        self._limit = memory_limit // 2
        self._folder = folder
        self._removal: weakref.finalize[..., Store] | None = None
        self._count = 0

    @property
    def folder(self) -> str:
        """Folder of the files."""
        if self._folder is None:
            cleanup = contextlib.ExitStack()
            self._folder = str(temporary_folder(None, cleanup))
            self._removal = weakref.finalize(self, cleanup.close)
        return self._folder

    def put(self, content: NDArray[Any] | list[Any] | Spilled) -> Any:
        """Keep an array, or the arrays of a sequence; pass the result to `unspilled` to get them back."""
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
        path = str(Path(self.folder) / f"{self._count}.npy")
        foreign = content.dtype.isbuiltin != 1
        try:
            with Path(path).open("wb") as file:
                # through `write`, whose error has the reason: numpy's own writing of files reports only a count
                writer = cast("BinaryIO", SimpleNamespace(write=file.write))
                np.lib.format.write_array(writer, content.view(f"u{content.dtype.itemsize}") if foreign else content)
        except OSError as error:
            what = f"an array of {bytes_text(content.nbytes)} cannot be kept in {quoted(path)}"
            message = f"{what}: {error.strerror or error}."
            raise CaptureError(message, advice="Keep fewer values, or set TMPDIR to a larger disk.") from error
        return Spilled(path, content.dtype if foreign else None)

    def close(self) -> None:
        """Remove the files; arrays in use stay usable."""
        if self._removal is not None:
            self._removal()


def unspilled(content: Any) -> Any:
    """Return the array or arrays that `Store.put` was given."""
    if isinstance(content, list):
        return [unspilled(item) for item in content]
    if not isinstance(content, Spilled):
        return content
    try:
        array: NDArray[Any] = np.load(content.path, mmap_mode="r")
    except FileNotFoundError:
        raise CaptureError("the array was kept in a file that is gone.", advice="Do not close the capture.") from None
    return array if content.dtype is None else array.view(content.dtype)


_MAX_FEEDS: Final = 16
"""Maximum number of feeds submitted in advance: a dataset may be larger than memory."""


def spread(
    executor: concurrent.futures.Executor, work: Callable[..., bytes], payload: bytes, feeds: Iterable[Any]
) -> Generator[Any]:
    """Call ``work(token, payload, feed)`` on an executor; yield the unpickled results in the order of the feeds."""
    token = uuid.uuid4().hex
    waiting: list[concurrent.futures.Future[bytes]] = []
    number = 0
    try:
        for feed in itertools.chain(feeds, [None]):
            if feed is not None:
                waiting.append(executor.submit(work, token, payload, feed))
            while waiting and (feed is None or len(waiting) >= _MAX_FEEDS):
                yield pickle.loads(waiting.pop(0).result())  # noqa: S301 (our own)
                number += 1
    except Exception as error:
        # Dask runs the feeds of a worker that died again, and gives up one that has ended several workers
        if not isinstance(error, concurrent.futures.BrokenExecutor) and type(error).__name__ != "KilledWorker":
            raise
        message = f"a worker process of the executor ended while feed {number} ran: {shortened(str(error), 300)}"
        raise CaptureError(message, advice="subprocess=True names the node.") from error
    finally:
        for future in waiting:
            future.cancel()


def _pickled(job: Job) -> bytes:
    """Pickle a job for another process, including functions of a notebook if cloudpickle is installed."""
    functions = [function for function in (job.keep, job.stop_at) if callable(function)]
    importable = all(getattr(function, "__module__", "") != "__main__" for function in functions)
    try:
        if importable:
            return pickle.dumps(job)
    except Exception as error:  # noqa: BLE001 (objects of any class may refuse)
        reason = str(error)
    else:
        reason = "another process cannot import functions of this notebook or script"
    try:
        return bytes(importlib.import_module("cloudpickle").dumps(job))
    except Exception as error:
        message = f"keep, stop_at or the model cannot be sent to another process: {reason}."
        advice = "Use functions of a module, or install cloudpickle."
        raise CaptureError(message, advice=advice) from error


_cache = threading.local()
"""The job and windows of this thread's last feed: sessions are kept for the next feed of the same capture."""


def _cached(token: str, payload: bytes) -> tuple[Job, Windows]:
    """Return a job that was pickled, and its windows."""
    if getattr(_cache, "token", "") != token:
        job: Job = pickle.loads(payload)  # noqa: S301 (our own)
        _cache.job, _cache.windows, _cache.token = job, job.windows(reuse=True), token
    return _cache.job, _cache.windows


def run_in_turn(job: Job, feeds: Iterator[dict[str, Any]], store: Store, work: CountedWork) -> Generator[Partial]:
    """Run feeds one after another in this process."""
    windows: Windows | None = None
    pairs: Iterator[tuple[Any, Any]] = itertools.pairwise(itertools.chain(feeds, [None]))
    for number, (feed, following) in enumerate(pairs):
        windows = windows or job.windows(reuse=following is not None)
        yield run_feed(job, windows, feed, store, functools.partial(_report, job, work, number))
    work.finished()


def _report(job: Job, work: CountedWork, number: int, nodes: Sequence[int], share: float) -> None:
    work.reached(number + share, Graph.of(job.model).node_labels(nodes))


def run_in_executor(
    job: Job, feeds: Iterator[dict[str, Any]], store: Store, work: CountedWork, executor: concurrent.futures.Executor
) -> Generator[Partial]:
    """Submit feeds to an executor; yield their results in the order of the feeds."""
    for number, partial in enumerate(spread(executor, _run_remote, _pickled(job), feeds), 1):
        for arrays in partial.arrays.values():
            arrays.update((index, store.put(array)) for index, array in arrays.items())
        yield partial
        work.reached(number, f"{count_text(number, 'feed')} done")
    work.finished()


def _run_remote(token: str, payload: bytes, feed: Mapping[str, Any]) -> bytes:
    """Run one feed in a worker of an executor; return the pickled `Partial`."""
    job, windows = _cached(token, payload)
    store = Store(job.memory_limit)
    try:
        partial = run_feed(job, windows, feed, store)
        for arrays in partial.arrays.values():
            arrays.update((index, unspilled(array)) for index, array in arrays.items())
        return pickle.dumps(partial)  # here, while the files of spilled arrays exist
    finally:
        store.close()


_CHILD: Final = """
import importlib.util
spec = importlib.util.spec_from_file_location("onnx_nb", sys.argv[1])
sys.modules["onnx_nb"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from onnx_nb.analysis.run import value_recorder
value_recorder.serve()
"""
"""Program of the other process. It runs this very package, even if ``sys.path`` leads to another one."""


def run_in_subprocess(job: Job, feeds: Iterator[dict[str, Any]], store: Store, work: CountedWork) -> Generator[Partial]:
    """Run feeds one after another in a separate process; nothing is left behind, even after an error or a cancel."""
    payload, nodes = _pickled(job), list[int]()
    with tempfile.TemporaryFile() as output, _started(output) as process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)  # before Popen waits for its end
        requests, replies = cast("io.FileIO", process.stdin), io.BufferedReader(cast("io.FileIO", process.stdout))
        _send(requests, (payload, store.folder))
        for number, feed in enumerate(feeds):
            _send(requests, feed)
            while not isinstance(reply := _received(replies), Partial):
                if reply is None:
                    raise _death(Graph.of(job.model), nodes, process.wait(), output)
                if isinstance(reply, BaseException):
                    raise reply
                share, *nodes = reply
                _report(job, work, number, nodes, share)
            yield reply
    work.finished()


def _started(output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the other process, whose errors and prints go to a file."""
    try:
        command = python_command(_CHILD, str(Path(__file__).parents[2] / "__init__.py"))
        return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)
    except OSError as error:
        message = f"no process for the capture can be started: {error.strerror}."
        raise CaptureError(message, advice="Capture without subprocess=True.") from error


def _send(stream: io.RawIOBase, message: Any) -> None:
    """Send a message; do nothing if the other process has ended, which the next `_received` shows."""
    data = memoryview(pickle.dumps(message))
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[stream.write(data) :]


def _received(stream: BinaryIO) -> Any:
    """Wait for a message; return ``None`` if the other process has ended."""
    try:
        return pickle.load(stream)  # noqa: S301 (our own)
    except (EOFError, pickle.UnpicklingError):
        return None


def _death(graph: Graph, nodes: list[int], code: int, output: IO[bytes]) -> CaptureError:
    """Describe how the process ended, and the nodes that it was running."""
    how = ending(code)
    output.seek(max(0, output.seek(0, os.SEEK_END) - 10_000))
    lines = output.read().decode("utf-8", "replace").strip().splitlines()
    reason = f": {shortened(lines[-1], 300)}" if lines else ""
    if not nodes:
        return CaptureError(f"the process of the capture {how} before it ran a node{reason}.")
    advice = "Give a memory_limit, or name the tensors= up to this node and see its inputs."
    if code == -9:  # SIGKILL, which Windows lacks
        advice = f"The system ends processes so when memory runs out. {advice}"
    message = f"the process of the capture {how} while it ran {graph.node_labels(nodes)}{reason}."
    return CaptureError(message, advice=advice, node=graph.names[nodes[0]])


def serve() -> None:
    """Run the feeds that arrive on stdin and reply on stdout, as the other process, until its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes: the parent decides
    stdin, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what is printed must not come between the replies
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(stdin, requests), daemon=True).start()
    payload, folder = requests.get()
    store = Store(0, folder)

    def report(nodes: Sequence[int], share: float) -> None:
        _send(replies, [share, *nodes])

    while True:
        _send(replies, _served(payload, requests.get(), store, report))


def _listen(stdin: BinaryIO, requests: queue.SimpleQueue[Any]) -> None:
    """Take requests while others run; end the process when its parent has ended."""
    while (request := _received(stdin)) is not None:
        requests.put(request)
    os._exit(1)


def _served(payload: bytes, feed: Mapping[str, Any], store: Store, report: Report) -> Partial | BaseException:
    """Run one feed in the other process; return an error that can be pickled if it fails."""
    try:
        # all arrays to keep go to files, which the parent finds in its own folder
        return run_feed(*_cached("own", payload), feed, store, report)
    except MemoryError as error:
        message = f"the process of the capture ran out of memory: {error}."
        return CaptureError(message, advice="Give a memory_limit.")
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        if not isinstance(error, OnnxNbError):
            error.add_note("".join(["In the process of the capture: ", *traceback.format_exception(error)]))
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
        except Exception:  # noqa: BLE001 (an error of any class may refuse)
            return OnnxNbError(f"{type(error).__name__}: {error}")
        return error
