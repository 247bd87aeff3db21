"""Feeds run by an executor: in other processes, or on other machines."""

from __future__ import annotations

import concurrent.futures
import importlib
import itertools
import pickle
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.run.array_store import Store, unspilled
from onnx_nb.analysis.run.value_recorder import Job, run_feed, statistics_pool

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
