"""Graders of "Layouts, threads, memory"."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

import onnx_nb

from . import Lesson, expect, made

check: Final = Lesson()


def _is_whole(answer: Any) -> bool:
    return isinstance(answer, int | np.integer) and not isinstance(answer, bool)


@check.exercise(
    1,
    "kernels, alone",
    "len(plain.kernels), alone",
    {
        "plain.kernels, alone": "a number",
        "len(p3.kernels), alone": "With the optimization",
        "len(plain.kernels) + 1, alone": "Count the kernels",
        'len(plain.kernels), "Relu"': "a set or a list",
        'len(plain.kernels), {"Relu"}': "some are missing",
        'len(plain.kernels), {*alone, "Conv"}': "no new kernels",
    },
)
def _without_optimization(kernels: Any, alone: Any) -> None:
    expect(_is_whole(kernels), "The first answer is a number: how many kernels the profile has.")
    fast, optimized = made("fast"), made("p3")
    profile = onnx_nb.profile(fast, made("feeds"), runs=1, threads=1, optimization="off")
    expect(kernels != len(optimized.kernels), f"With the optimization, there are {kernels} kernels, and without it?")
    expect(kernels == len(profile.kernels), 'Count the kernels again, in a profile with `optimization="off"`.')
    is_collection = isinstance(alone, list | tuple | set | frozenset | Mapping)
    expect(is_collection, "The second answer is a set or a list of operators, such as {'Conv', 'Pad'}.")
    now = {kernel.op for kernel in profile.kernels} - {kernel.op for kernel in optimized.kernels}
    names = {node.name for node in fast.proto.graph.node if node.op_type in now}
    given = set(alone)
    right = names if given & names else now  # the nodes may be named one by one
    surplus = ", ".join(sorted(map(str, given - right)))
    expect(not surplus, f"These have no new kernels of their own: {surplus}.")
    expect(given == right, "These have kernels of their own now, but some are missing: compare the operators of `p3`.")


_FIELDS: Final = '(thread / "stat").read_text().rpartition(")")[2].split()'


def _reader(time: str) -> str:
    """Return the expression of a wrong function `ticks`."""
    return f'lambda: {{thread.name: {time} for thread in Path("/proc/self/task").iterdir()}}'


@check.exercise(
    2,
    "ticks, resize_threads, conv_threads",
    "ticks, 1, 2",
    {
        "{1: 5, 2: 3}, 1, 2": "is a function",
        "lambda: sum(ticks().values()), 1, 2": "a time for each thread",
        'lambda: {"all": sum(ticks().values())}, 1, 2': "of only 1",
        f"({_reader(f'int({_FIELDS}[11])')}), 1, 2": "system mode",
        f"({_reader(f'int({_FIELDS}[12])')}), 1, 2": "user mode",
        f"({_reader(f'sum(map(int, {_FIELDS}[13:15]))')}), 1, 2": "has no more time",
        f"({_reader('sum(ticks().values())')}), 1, 2": "only wait",
        "ticks, [20], [11, 9]": "numbers of threads",
        "ticks, 2, 1": "the other way round",
        "ticks, 2, 2": "wait in a loop",
        "ticks, 1, 1": "at least two",
    },
)
def _threads(ticks: Any, resize: Any, conv: Any) -> None:
    expect(callable(ticks), "The first answer is a function: call it before and after the work.")
    times = _read(ticks)
    is_table = isinstance(times, Mapping)
    expect(is_table, f"What the function returns is of type {type(times).__name__}; return a time for each thread.")
    count = threading.active_count()
    expect(
        len(times) >= count,
        f"The process has {count} threads or more, and the function returns the time of only {len(times)}.",
    )
    computing, calling = _risen(ticks, lambda: sum(range(1000))), _risen(ticks, lambda: os.urandom(2**18))
    expect(max(computing + calling) > 0, "A thread that was busy has no more time afterwards: count the fields again.")
    expect(max(calling) > max(computing) / 2, "The time in system mode is missing.")
    expect(max(computing) > max(calling) / 2, "The time in user mode is missing.")
    expect(
        sorted(computing)[-2] < max(computing) / 2, "One thread was busy, and the time of others rose that only wait."
    )
    are_whole = _is_whole(resize) and _is_whole(conv)
    expect(
        are_whole, "The other answers are numbers of threads: how many were busy in `Resize`, and how many in `Conv`."
    )
    expect(not resize > conv == 1, "These numbers belong the other way round.")
    expect(resize == 1, "In `Resize` one thread computes: does another one wait in a loop, or work for something else?")
    expect(conv > 1, "In `Conv` at least two threads are busy, if the session may use them and has enough to do.")


def _read(ticks: Callable[[], Any]) -> Any:
    """Call a function that reads the times of threads: again, if one of them has ended meanwhile."""
    for _ in range(9):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return ticks()
        time.sleep(0.01)
    return ticks()


def _risen(ticks: Callable[[], Mapping[Any, float]], work: Callable[[], object]) -> list[float]:
    """Return by how much the time of each thread rises while one more works for a fifth of a second."""
    start, worked, end = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        start.wait()
        while time.thread_time() < 0.2:
            work()
        worked.set()
        end.wait()  # the times of a thread are gone when it ends

    thread = threading.Thread(target=run)
    thread.start()
    try:
        before = _read(ticks)
        start.set()
        worked.wait()
        after = _read(ticks)
    finally:
        start.set()
        end.set()
        thread.join()
    return [count - before.get(name, 0) for name, count in after.items()]
