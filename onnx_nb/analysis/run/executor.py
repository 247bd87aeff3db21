"""Feeds run by an executor: other processes, or other machines."""

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
"""So many feeds are given to an executor in advance: a dataset may be larger than memory."""


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
