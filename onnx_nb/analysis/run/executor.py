"""Feeds run in other processes: by an executor, or in one process whose crash is an error here.

For a crash-safe capture the process is a `ProcessPoolExecutor` of one. Before each window it writes the nodes that run
next to a status file, which this process reads for progress, and to name the nodes after a crash.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from onnx_nb.analysis.errors import CaptureError, OnnxNbError
from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.run.value_recorder import Job, Partial, Store, run_feed, statistics_pool, unspilled

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from onnx_nb.analysis.progress import CountedWork
    from onnx_nb.analysis.run.windows import Windows

_SUBMITTED: Final = 16
"""Feeds that are submitted in advance: a dataset may be larger than memory."""


def spread(
    executor: concurrent.futures.Executor, work: Callable[..., bytes], payload: bytes, feeds: Iterable[Any]
) -> Generator[Any]:
    """Let an executor call ``work(token, payload, feed)``; yield the unpickled results in the order of the feeds."""
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
        raise CaptureError(message, advice="subprocess=True names the node.") from error
    finally:
        for future in waiting:
            future.cancel()


def pickled(job: Job) -> bytes:
    """Pickle a job for another process; functions of a notebook too, if cloudpickle is installed."""
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
        data: bytes = importlib.import_module("cloudpickle").dumps(job)
    except Exception as error:
        message = f"keep, stop_at or the model cannot be sent to another process: {reason}."
        advice = "Use functions of a module, or install cloudpickle."
        raise CaptureError(message, advice=advice) from error
    return data


_cache = threading.local()
"""The job and windows of this thread's last feed: sessions are kept for the next feed of the same capture."""


def run_remote(token: str, payload: bytes, feed: Mapping[str, Any]) -> bytes:
    """Run one feed in a worker of an executor; return the pickled `Partial`."""
    if getattr(_cache, "token", "") != token:
        job: Job = pickle.loads(payload)  # noqa: S301 (our own)
        _cache.job, _cache.windows, _cache.token = job, job.windows(reuse=True), token
    store = Store(_cache.job.memory_limit)
    try:
        with statistics_pool() as pool:
            partial = run_feed(_cache.job, _cache.windows, feed, store=store, pool=pool)
        for found in partial.arrays.values():
            found.update((index, unspilled(array)) for index, array in found.items())
        return pickle.dumps(partial)  # here, while the files of spilled arrays exist
    finally:
        store.close()


_POLL_SECONDS: Final = 0.05
_STATUS, _OUTPUT = "status.jsonl", "output.txt"


class Status(NamedTuple):
    """A line of the status file: the window that is about to run."""

    done: float
    """Part of all nodes that has run."""
    nodes: str
    """Label of the nodes."""
    first: str
    """Name of the first node."""


def run_in_subprocess(job: Job, feeds: Iterator[dict[str, Any]], store: Store, work: CountedWork) -> Generator[Partial]:
    """Run feeds one after another in a process of its own."""
    with _Process(pickled(job), store.folder) as process:
        for number, feed in enumerate(feeds):
            future = process.submit(number, feed)
            finished = False
            while not finished:
                finished = bool(concurrent.futures.wait([future], _POLL_SECONDS).done)
                for status in process.statuses():
                    work.reached(number + status.done, status.nodes)
            try:
                yield future.result()
            except BrokenProcessPool:
                raise process.death() from None
    work.finished()


_starting: Final = threading.Lock()


class _Process:
    """The other process."""

    def __init__(self, job: bytes, arrays: str) -> None:
        self._job = job
        self._arrays = arrays
        self._process: BaseProcess | None = None
        self._last: Status | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="onnx_nb-subprocess-")
        status = Path(self._folder.name) / _STATUS
        status.touch()
        self._reader = status.open("rb")
        self._executor = concurrent.futures.ProcessPoolExecutor(
            1,
            multiprocessing.get_context("spawn"),
            initializer=_initialize,
            initargs=(self._job, self._arrays, self._folder.name),
        )
        return self

    def __exit__(self, *_: object) -> None:
        # also after an error or a cancel: nothing is left behind
        if self._process is not None:
            self._process.kill()
        self._executor.shutdown(cancel_futures=True)
        self._reader.close()
        self._folder.cleanup()

    def submit(self, number: int, feed: Mapping[str, Any]) -> concurrent.futures.Future[Partial]:
        """Run a feed; the first one starts the process."""
        if self._process is not None:
            return self._executor.submit(_run, number, feed)
        with _starting:
            others = set(multiprocessing.active_children())
            future = self._executor.submit(_run, number, feed)
            self._process = next(iter(set(multiprocessing.active_children()) - others), None)
        return future

    def statuses(self) -> Iterator[Status]:
        """Yield the lines of the status file since the last call."""
        for line in self._reader:
            self._last = Status(*json.loads(line))
            yield self._last

    def death(self) -> CaptureError:
        """Return how the process ended, and what it was running."""
        self._executor.shutdown()  # waits until the exit code is known
        code = None if self._process is None else self._process.exitcode
        if code is None:
            how = "ended"
        elif code < 0:
            how = f"was ended by signal {-code} ({_signal_name(-code)})"
        else:
            how = f"ended with status {code}"
        output = Path(self._folder.name) / _OUTPUT
        lines = output.read_text("utf-8", "replace").strip().splitlines() if output.exists() else []
        reason = f": {shortened(lines[-1], 300)}" if lines else ""
        if self._last is None:
            advice = "In a script, call capture under if __name__ == '__main__': the process imports the script."
            return CaptureError(f"the process of the capture {how} before it ran a node{reason}.", advice=advice)
        advice = "Give a memory_limit, or name the tensors= up to this node and see its inputs."
        if code == -9:  # SIGKILL, which Windows has not
            advice = f"The system ends processes so when memory runs out. {advice}"
        message = f"the process of the capture {how} while it ran {self._last.nodes}{reason}."
        return CaptureError(message, advice=advice, node=self._last.first)


def _signal_name(number: int) -> str:
    return next((known.name for known in signal.Signals if known == number), "unknown")


# --- in the other process ---------------------------------------------------------------------------------------------


class _Worker:
    """Runs the feeds of one job."""

    def __init__(self, job: bytes, arrays: str, folder: str) -> None:
        output = os.open(Path(folder) / _OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        self._status = (Path(folder) / _STATUS).open("ab", buffering=0)
        self._pickled = job
        self._arrays = arrays

    @functools.cached_property
    def _job(self) -> Job:
        job: Job = pickle.loads(self._pickled)  # noqa: S301 (our own)
        return job

    @functools.cached_property
    def _windows(self) -> Windows:
        return self._job.windows(reuse=True)

    def run(self, number: int, feed: Mapping[str, Any]) -> Partial:
        # all arrays to keep go to files, which the parent finds in its own folder
        store = Store(0, self._arrays, prefix=f"{number}-")
        with statistics_pool() as pool:
            return run_feed(self._job, self._windows, feed, store=store, pool=pool, before=self._before)

    def _before(self, nodes: Sequence[int], done: float) -> None:
        graph = self._windows.graph
        status = Status(done, graph.node_labels(nodes), graph.names[nodes[0]])
        self._status.write(json.dumps(status).encode() + b"\n")


_workers: Final[list[_Worker]] = []
"""The worker of this process."""


def _initialize(job: bytes, arrays: str, folder: str) -> None:
    _workers.append(_Worker(job, arrays, folder))


def _run(number: int, feed: Mapping[str, Any]) -> Partial:
    try:
        return _workers[0].run(number, feed)
    except BaseException as error:  # noqa: BLE001 (it is raised in the parent)
        raise _portable(error) from None


def _portable(error: BaseException) -> BaseException:
    """Return an error that can be pickled."""
    if isinstance(error, MemoryError):
        return CaptureError(f"the process of the capture ran out of memory: {error}.", advice="Give a memory_limit.")
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
    except Exception:  # noqa: BLE001 (an error of any class may refuse)
        return OnnxNbError(f"{type(error).__name__}: {error}")
    return error
