"""Profiles that onnxruntime wrote, as columns: its kernels, and the time of each in every run.

A profile is a Chrome trace with an event a line. A model of 10,000 kernels that ran twenty times has 200 MB of them:
the start of a line is matched, and only events of the run that is shown are parsed. The event of a Loop, If or Scan
contains those of its bodies; here each kernel has the time that none of its bodies took.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, path_text, quoted
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model.protofields import Longs
from onnx_nb.analysis.model.saved import check_file

_EVENT: Final = re.compile(
    rb'\s*\{"cat" ?: ?"(\w+)" ?, ?"pid" ?: ?\d+ ?, ?"tid" ?: ?(\d{1,18}) ?, ?"dur" ?: ?(-?\d{1,18}) ?, ?'
    rb'"ts" ?: ?(\d{1,18}) ?, ?'
    rb'"ph" ?: ?"X" ?, ?'
    rb'"name" ?: ?"((?:[^"\\]|\\.)*)"'
)
_OP: Final = re.compile(rb'"op_name" ?: ?"([^"]*)"')
_INDEX: Final = re.compile(rb'"node_index" ?: ?"(\d{1,18})"')
OWNERS: Final = names_where("bodies")
"""Operators whose kernels run others."""
MEMCPY: Final = frozenset(("MemcpyFromHost", "MemcpyToHost"))
"""Operators of copies between the memory of two providers."""
_KERNEL: Final = "_kernel_time"
_SPARSE: Final = 32
"""Times the events that a table of all runs and kernels may have of numbers; each kernel of most models is in each."""
_TABLE: Final = 1 << 22
"""Numbers that it may have in any case."""


@dataclass(frozen=True, eq=False)
class Span:
    """One execution of a kernel in the run that is shown."""

    kernel: int
    start: float
    """Seconds since the start of the run."""
    seconds: float
    """With the bodies of a Loop, If or Scan."""
    thread: int
    """Thread that called the kernel, as the system numbers it; those that helped it are counted in `Kernel.threads`.

    All kernels of a device have one, also in parallel execution: onnxruntime runs the nodes of a device in a row, and
    with ``ORT_PARALLEL`` on a thread of the pool between operators, another one in each run.
    """


@dataclass(frozen=True, eq=False)
class Trace:
    """The kernels of a profile, and their times in every run."""

    names: list[str]
    ops: list[str]
    parents: list[int]
    """Kernel of the Loop, If or Scan whose body contains each kernel, or −1."""
    details: list[dict[str, Any]]
    """What onnxruntime says of each kernel: provider, shapes, bytes and memory."""
    seconds: NDArray[np.float64]
    """Seconds of each kernel (column) in each run (row), without its bodies."""
    calls: NDArray[np.int64]
    """How often each kernel ran in each run."""
    run_seconds: NDArray[np.float64]
    """Seconds of each run, from call to return."""
    load_seconds: float
    """Seconds that the session took to load and optimize the model; NaN if the profile does not say."""
    shown: int
    """Run in `spans`: the one whose kernels are nearest to their medians."""
    spans: list[Span]
    notes: tuple[str, ...]


def read_trace(path: Path, *, warmup: int = 0) -> Trace:
    """Read a profile; the first ``warmup`` runs are left out of all but `Trace.run_seconds`.

    Raises
    ------
    OnnxNbError
        If the file cannot be read, is no profile of onnxruntime, or has no complete run.
    """
    try:
        check_file(path)
        data = path.read_bytes()
    except OSError as error:
        message = f"{quoted(path_text(path))} cannot be read: {error.strerror or error}."
        raise OnnxNbError(message, advice="Use the file that InferenceSession.end_profiling() returns.") from error
    rows = _parsed(path, data)
    events = [(name, start, length) for category, _, length, start, name, *_ in rows if category == "Session"]
    runs = sorted((start, length) for name, start, length in events if name == "model_run")
    loads = [length for name, _, length in events if name.startswith(("model_loading", "session_initialization"))]
    kernels = [row for row in rows if row[0] == "Node" and row[4].endswith(_KERNEL)]
    if not kernels:
        message = f"{quoted(path_text(path))} has no node times."
        raise OnnxNbError(message, advice="Run the session before end_profiling().")
    _, *columns, names, ops, indexes, sources = map(list, zip(*kernels, strict=True))
    threads, durations, starts = np.asarray(columns, np.int64)
    names = [name.removesuffix(_KERNEL) for name in names]
    durations = np.maximum(durations, 0)
    is_whole = isinstance(sources[0], dict) or data.rstrip().endswith(b"\n]")  # a line may be cut after a list of it
    why = "" if is_whole or runs else ": it is truncated"
    run_starts, run_lengths = np.asarray(runs, np.int64).reshape(-1, 2).T
    run = np.searchsorted(run_starts, starts, side="right") - 1
    ends = np.append(run_starts + run_lengths, 0)  # the last one is for what began before all runs
    run[starts > ends[run]] = -1
    notes = []
    outside = int(np.count_nonzero(run < 0))
    if not is_whole:
        notes.append(f"the file is truncated: it has {count_text(len(runs), 'complete run')}")
    elif outside:
        notes.append(f"{count_text(outside, 'kernel event')} outside of all runs left out")
    run -= warmup
    parent = _parents(names, ops, threads, starts, durations)
    net = durations.astype(np.float64)
    inner = np.flatnonzero(parent >= 0)
    np.subtract.at(net, parent[inner], durations[inner])
    kernel, keys = _kernels(names, indexes, starts, parent)
    count = len(runs) - warmup
    if count <= 0 or not np.any(run >= 0):
        message = f"{quoted(path_text(path))} has no complete run of the model{why}."
        raise OnnxNbError(message, advice="Run the session, then call end_profiling().")
    if count * len(keys) > max(_SPARSE * len(kernel), _TABLE):
        message = f"{quoted(path_text(path))} has {count:,} runs and {len(keys):,} kernels, of which few are in a run."
        raise OnnxNbError(message, advice="Profile fewer runs: its tables would have no bound in its size.")
    seconds, calls = np.zeros((count, len(keys))), np.zeros((count, len(keys)), np.int64)
    inside = run >= 0
    np.add.at(seconds, (run[inside], kernel[inside]), np.maximum(net[inside], 0) / 1e6)
    np.add.at(calls, (run[inside], kernel[inside]), 1)
    usual = np.median(seconds, axis=0)  # a run in which a kernel waited for other work is far from it
    typical = int(np.argmin(np.abs(seconds - usual).sum(axis=1)))
    members = np.flatnonzero(run == typical)
    members = members[np.argsort(starts[members], kind="stable")]
    begin, _ = runs[typical + warmup]
    figures = (column[members].tolist() for column in (kernel, starts, durations, threads))
    spans = [
        Span(number, (start - begin) / 1e6, micros / 1e6, thread)
        for number, start, micros, thread in zip(*figures, strict=True)
    ]
    return Trace(
        names=[key[1] for key in keys],
        ops=[ops[first] for first in np.unique(kernel, return_index=True)[1].tolist()],
        parents=[key[0] for key in keys],
        details=_details(sources, kernel, members, len(keys)),
        seconds=seconds,
        calls=calls,
        run_seconds=run_lengths / 1e6,
        load_seconds=sum(loads) / 1e6 if loads else float("nan"),
        shown=typical,
        spans=spans,
        notes=tuple(notes),
    )


def _parsed(path: Path, data: bytes) -> list[tuple[Any, ...]]:
    """Return category, thread, length, start, name, operator and index of each event, and where the rest is."""
    rows = list[tuple[Any, ...]]()
    try:
        for line in data.splitlines():
            if match := _EVENT.match(line):
                category, thread, length, start, name = match.groups()
                op_name, number = _OP.search(line, match.end()), _INDEX.search(line, match.end())
                text = json.loads(b'"%s"' % name) if b"\\" in name else name.decode("utf-8", "replace")
                numbers = int(thread), int(length), int(start)
                rest = op_name[1].decode() if op_name else "", int(number[1]) if number else -1, line
                rows.append((category.decode(), *numbers, text, *rest))
        if rows:
            return rows
        events = json.loads(data)  # as another program wrote it
        events = events["traceEvents"] if isinstance(events, dict) else events
        for event in events:
            if event.get("ph", "X") == "X" and "cat" in event:
                args = event.get("args") or {}
                numbers = int(event.get("tid", 0)), int(event["dur"]), int(event["ts"])
                op, index = str(args.get("op_name", "")), int(args.get("node_index", -1))
                np.asarray((*numbers, index), np.int64)  # raises
                rows.append((str(event["cat"]), *numbers, str(event["name"]), op, index, event))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        advice = "Use the file that InferenceSession.end_profiling() returns."
        if data.startswith(b'{"onnx_nb profile"'):
            advice = "Profile.load(path, model) reads what Profile.save wrote."
        raise OnnxNbError(f"{quoted(path_text(path))} is not a profile of onnxruntime.", advice=advice) from error
    return rows


def _parents(names: Sequence[str], ops: Sequence[str], threads: Longs, begins: Longs, durations: Longs) -> Longs:
    """Return for each event the event of the Loop, If or Scan that it is inside, or −1."""
    starts = begins.tolist()
    owns = np.asarray([op in OWNERS for op in ops])
    parent = np.full(len(starts), -1, np.int64)
    if not owns.any():
        return parent
    waiting: dict[int, list[int]] = {}
    doubtful = []
    for event in np.lexsort((owns, begins + durations)).tolist():
        row = waiting.setdefault(int(threads[event]), [])
        if owns[event]:
            first = len(row)
            while first and starts[row[first - 1]] >= starts[event]:
                first -= 1
            for inner in row[first:]:
                parent[inner] = event
                if not durations[inner] and starts[inner] == starts[event]:
                    doubtful.append(inner)  # it may have ended in the microsecond in which the owner began
            del row[first:]
        row.append(event)
    if doubtful:
        places = Counter(zip(names, (parent >= 0).tolist(), strict=True))
        unsure = Counter(names[event] for event in doubtful)
        for event in doubtful:
            name = names[event]
            if places[name, False] > places[name, True] - unsure[name]:
                parent[event] = -1
    return parent


def _kernels(
    names: Sequence[str], indexes: Sequence[int], starts: Longs, parent: Longs
) -> tuple[Longs, list[tuple[int, str, int]]]:
    """Return the kernel of each event, and the parent, name and index of each kernel."""
    above = parent.tolist()
    depth = (parent >= 0).astype(np.int64)
    while np.any(parent >= 0):  # each step doubles how far up it looks
        depth, parent = depth + np.where(parent >= 0, depth[parent], 0), np.where(parent >= 0, parent[parent], -1)
    numbers: dict[tuple[int, str, int], int] = {}
    kernel = [-1] * len(above)
    for event in np.lexsort((starts, depth)).tolist():
        owner = kernel[above[event]] if above[event] >= 0 else -1
        kernel[event] = numbers.setdefault((owner, names[event], indexes[event]), len(numbers))
    return np.asarray(kernel, np.int64), list(numbers)


def _details(sources: Sequence[Any], kernel: Longs, rows: Longs, count: int) -> list[dict[str, Any]]:
    """Return the arguments of each kernel's event in the run that is shown, with the number of its threads."""
    table: list[dict[str, Any]] = [{}] * count
    before: dict[str, int] = {}
    absent = np.setdiff1d(np.arange(count), kernel[rows])
    firsts = np.unique(kernel, return_index=True)[1]
    for event in [*firsts[absent].tolist(), *rows.tolist()]:
        source = sources[event]
        try:
            content = json.loads(source.rstrip().rstrip(b",")) if isinstance(source, bytes) else source
            details = content.get("args", {})
            workers = (details.get("thread_scheduling_stats") or {}).get("sub_threads") or {}
            runs = {name: int(worker.get("num_run", 0)) for name, worker in workers.items()}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue  # the last line of a truncated file, or a damaged one
        details["threads"] = 1 + sum(number > before.get(name, number) for name, number in runs.items())
        before = runs
        table[kernel[event]] = details
    return table
