"""A capture in a process of its own: when onnxruntime crashes or memory runs out, that process ends and not this one.

The child is started afresh (no fork, and nothing of ``__main__`` is imported again). It reads feeds from its standard
input, tells before each window which nodes run next, and gives what it recorded; kept arrays are files in our folder.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from onnx_nb.analysis.errors import CaptureError, OnnxNbError
from onnx_nb.analysis.formatting import shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.run.array_store import Store
from onnx_nb.analysis.run.executor import pickled
from onnx_nb.analysis.run.value_recorder import Job, Partial, run_feed, statistics_pool

if TYPE_CHECKING:
    from onnx_nb.analysis.progress import Done

_LENGTH = 8
"""Bytes before each message that tell its length."""


class _Starting(NamedTuple):
    """The child is about to run a window."""

    nodes: str
    first: str
    """Name of its first node."""
    done: float


class _Ended(NamedTuple):
    """The child has run a feed."""

    partial: Partial


class _Raised(NamedTuple):
    error: BaseException


def isolated(job: Job, feeds: Iterator[dict[str, Any]], store: Store, done: Done) -> Generator[Partial]:
    """Run feeds one after the other in a process of its own.

    Parameters
    ----------
    job
        What to run.
    feeds
        Read here, as they are needed.
    store
        In whose folder the child puts the kept arrays.
    done
        Is told how far it is.

    Yields
    ------
    Partial
        For each feed.

    Raises
    ------
    CaptureError
        If the process ends before it is done; it names the nodes that it was running.
    """
    with _Child(pickled(job), store.folder) as child:
        for number, feed in enumerate(feeds):
            child.send(pickle.dumps(feed))
            for message in child.messages():
                if isinstance(message, _Ended):
                    yield message.partial
                    break
                if isinstance(message, _Raised):
                    raise message.error
                done(number + message.done, message.nodes)
    done.all()


class _Child:
    """The process, and what is said to and by it."""

    def __init__(self, job: bytes, folder: str) -> None:
        self._job = job
        self._folder = folder
        self._last: _Starting | None = None
        self._errors: list[bytes] = []

    def __enter__(self) -> Self:
        command = [
            sys.executable,
            "-c",
            "from onnx_nb.analysis.run.subprocess_runner import serve; serve()",
            self._folder,
        ]
        # what can be imported here can be imported there, from wherever the path was set
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        self.send(self._job)
        return self

    def __exit__(self, *_: object) -> None:
        # whatever happened, also a cancel: nothing of it is left
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not yet written to the dead process
                    pipe.close()

    def send(self, data: bytes) -> None:
        """Write one message; if the process is dead, `messages` tells."""
        assert self._process.stdin is not None  # a pipe  # noqa: S101
        with contextlib.suppress(BrokenPipeError):
            _write(self._process.stdin, data)

    def messages(self) -> Iterator[_Starting | _Ended | _Raised]:
        """Return what it says."""
        assert self._process.stdout is not None  # a pipe  # noqa: S101
        while (data := _read(self._process.stdout)) is not None:
            message = pickle.loads(data)  # noqa: S301 (our own process)
            if isinstance(message, _Starting):
                self._last = message
            yield message
        raise self._death()

    def _death(self) -> CaptureError:
        code = self._process.wait()
        self._reader.join()
        signalled = f"was ended by signal {-code} ({_signal(-code)})"
        how = signalled if code < 0 else f"ended with status {code}"
        said = b"".join(self._errors).decode("utf-8", "replace").strip().splitlines()
        reason = f": {shortened(said[-1], 300)}" if said else ""
        if self._last is None:
            return CaptureError(f"the process of the capture {how} before it ran a node{reason}.")
        advice = "Give a memory_limit, or name the tensors= up to this node and see its inputs."
        if code == -9:  # SIGKILL, which Windows has not
            advice = f"The system ends processes so when memory runs out. {advice}"
        message = f"the process of the capture {how} while it ran {self._last.nodes}{reason}."
        return CaptureError(message, advice=advice, node=self._last.first)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None  # a pipe  # noqa: S101
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]


def _signal(number: int) -> str:
    return next((known.name for known in signal.Signals if known == number), "unknown")


def serve() -> None:
    """Be the child: read a job and feeds from standard input, and write messages to standard output."""
    source = sys.stdin.buffer
    # what anything prints must not get between the messages
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = _read(source)
    assert request is not None  # the first thing that the parent writes  # noqa: S101
    with statistics_pool() as pool:
        try:
            job: Job = pickle.loads(request)  # noqa: S301 (from the parent)
            windows, graph = job.windows(reuse=True), Graph.of(job.model)
        except Exception as error:  # noqa: BLE001 (whatever it is, the parent raises it)
            _write(target, _portable(error))
            return

        def before(nodes: Sequence[int], done: float) -> None:
            _write(target, pickle.dumps(_Starting(graph.node_labels(nodes), graph.names[nodes[0]], done)))

        number = 0
        while (data := _read(source)) is not None:
            feed: Mapping[str, Any] = pickle.loads(data)  # noqa: S301 (from the parent)
            # everything kept goes to files, which the parent finds in its own folder
            store = Store(0, sys.argv[1], prefix=f"{number}-")
            try:
                answer = pickle.dumps(_Ended(run_feed(job, windows, feed, store=store, pool=pool, before=before)))
            except BaseException as error:  # noqa: BLE001 (as above)
                answer = _portable(error)
            _write(target, answer)
            number += 1


def _portable(error: BaseException) -> bytes:
    """Pickle an error, or what can be said of it."""
    if isinstance(error, MemoryError):
        error = CaptureError(f"the process of the capture ran out of memory: {error}.", advice="Give a memory_limit.")
    try:
        return pickle.dumps(_Raised(error))
    except Exception:  # noqa: BLE001 (an error of any class may refuse)
        return pickle.dumps(_Raised(OnnxNbError(f"{type(error).__name__}: {error}")))


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(len(data).to_bytes(_LENGTH, "little"))
    file.write(data)
    file.flush()


def _read(file: IO[bytes]) -> bytes | None:
    """Read a message; None at the end."""
    head = file.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    length = int.from_bytes(head, "little")
    data = file.read(length)
    return data if len(data) == length else None
