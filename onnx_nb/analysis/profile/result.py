"""The result of a profile: kernels of onnxruntime, and the nodes of the model that each computes.

A kernel may compute several nodes at once: its time belongs to its set of nodes, and is not divided.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.cost.costs import Costs, costs
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, duration_text, path_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.shape_inference import bound
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.save import write_file
from onnx_nb.analysis.model.saved import Count, Size, read_json, reading, typed
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.profile.changes import ProfileComparison
from onnx_nb.analysis.profile.mapping import KernelPlace, places
from onnx_nb.analysis.profile.rows import FALLBACK, By, rows, short, spread_of
from onnx_nb.analysis.profile.sessions import (
    CPU,
    Optimization,
    Profiled,
    inlined_graph,
    measured_peak,
    optimized,
    ran_nodes,
    with_names,
)
from onnx_nb.analysis.profile.trace import MEMCPY, OWNERS, Span, read_trace
from onnx_nb.analysis.results import Displayed, Still, StillTable, data_frame
from onnx_nb.analysis.scopes.scopes import scopes, scopes_around

if TYPE_CHECKING:
    import pandas as pd

_WHOLE: Final = 0.6
"""Share of the time above which the name of a scope with others in it says too little."""
_MAX_SLOWDOWN: Final = 1.25
"""Times the sum of the kernels' medians from which on a run's kernels took so long because of other work."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel(KernelPlace):
    """A kernel that onnxruntime ran, and the nodes of the model that it computes: all together take its time."""

    name: str
    """Its name in onnxruntime."""
    op: str
    provider: str
    parent: int
    """Index in `Profile.kernels` of the Loop, If or Scan whose body contains the kernel, or −1."""
    seconds: NDArray[np.float64]
    """Seconds in each run, all calls together, without those of bodies."""
    calls: int
    """Calls in the run that `Profile.spans` shows."""
    flops: float | None
    """Floating-point operations of its nodes in one call, as `costs` counts them; None if unknown or shared."""
    nbytes: int | None
    """Bytes of its inputs, weights and outputs."""
    memory: int | None
    """Bytes in use in onnxruntime's arena when it ended."""
    threads: int
    """Threads that took part."""
    shapes: str
    """Types and shapes of its inputs and outputs, as onnxruntime writes them."""
    optimized: int = -1
    """Flat node of `Profile.optimized` that it runs, or −1."""

    @property
    def median(self) -> float:
        """Median of the seconds of a run."""
        return self._quantiles[1]

    @property
    def spread(self) -> float:
        """Half the interquartile range of the seconds of a run."""
        return (self._quantiles[2] - self._quantiles[0]) / 2

    @functools.cached_property
    def _quantiles(self) -> tuple[float, float, float]:
        """The quartiles, as numpy's: many times faster for a few numbers, of which there are many."""
        times = self.seconds.tolist() * (2 if len(self.seconds) == 1 else 1)  # two at least
        low, median, high = statistics.quantiles(times, n=4, method="inclusive")
        return low, median, high

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte that it reads or writes."""
        return None if self.flops is None or not self.nbytes else self.flops / self.nbytes

    @property
    def types(self) -> str:
        """Types and shapes of its inputs and outputs in words, as "float[1,3,8,8] → float[1,64,4,4]"."""
        sides, texts = json.loads(self.shapes), list[str]()
        for side in ("inputs", "outputs"):
            pairs = [pair for entry in sides[side] for pair in entry.items()]
            texts.append(", ".join(f"{dtype}{json.dumps(shape, separators=(',', ':'))}" for dtype, shape in pairs))
        return " → ".join(texts)

    def rate(self, amount: float | None) -> float | None:
        """Return an amount of one call in billions a second: GFLOP/s of `flops`, GB/s of `nbytes`."""
        seconds = self.median / max(self.calls, 1)
        return None if amount is None or not seconds else amount / seconds / 1e9

    def __repr__(self) -> str:
        nodes = count_text(len(self.nodes), "node")
        return f"Kernel({self.op} {quoted(self.name)}, {duration_text(self.median)}, {nodes})"


@dataclass(frozen=True, eq=False)
class Profile(Displayed, panel="profile.ProfilePanel"):
    """Where the time of a run goes. Made by `profile`, or by `Profile.read` from a file of onnxruntime."""

    model: Model
    kernels: tuple[Kernel, ...]
    spans: tuple[Span, ...]
    """The executions of kernels in the most usual run, in order."""
    run_seconds: tuple[Size, ...]
    """Seconds of each measured run from call to return."""
    first_run_seconds: Size
    """Seconds of the first run of all, which allocates memory; the first measured one if there is no warm-up."""
    load_seconds: Size
    """Seconds to load and optimize the model."""
    providers: tuple[str, ...]
    """Providers that were asked for, best first; empty if unknown."""
    optimization: str
    """Level of graph optimization; empty if it was not chosen, or is unknown."""
    shapes: Mapping[str, tuple[Count, ...]]
    """Shapes of the inputs; empty if unknown."""
    fit: Size
    """Share of kernels whose names occur in the model as onnxruntime optimizes it here; 1 for a profile made here."""
    notes: tuple[str, ...]
    """What a reader should know: made-up feeds, a truncated file, names that do not fit, an idle provider."""
    optimized: Model | None = None
    """What onnxruntime made of the model, without large weights; None for a profile that was loaded."""
    made_with: Mapping[str, str] = field(default_factory=dict)
    """Optimization, threads, execution, version of onnxruntime and cores, in words; empty if unknown."""
    speeds: tuple[Size, Size] | None = None
    """FLOP/s and bytes/s of the machine that it was made on, as its file says; None for one made or read here."""
    is_local: bool = False
    """Whether it was made on this machine, by `profile`."""
    sessions: tuple[Count, ...] = ()
    """Number of measured runs of each session; empty if there was one."""
    assigned: Mapping[int, str] = field(default_factory=dict)
    """Provider that onnxruntime says it gave each flat node to, before it fused them; empty unless several were asked
    for in a profile made here."""

    @functools.cached_property
    def kernel_seconds(self) -> NDArray[np.float64]:
        """Seconds of all kernels together in each run; each is counted once."""
        return np.asarray(np.sum([kernel.seconds for kernel in self.kernels], axis=0))

    @property
    def seconds(self) -> float:
        """Median of `kernel_seconds`."""
        return float(np.median(self.kernel_seconds))

    @functools.cached_property
    def medians(self) -> NDArray[np.float64]:
        """Median seconds of each kernel."""
        return np.asarray([kernel.median for kernel in self.kernels])

    @functools.cached_property
    def shares(self) -> NDArray[np.float64]:
        """Share of each kernel in the sum of `medians`; their sum is 1."""
        return self.medians / (self.medians.sum() or 1.0)

    @property
    def mapped(self) -> float:
        """Share of the time of kernels that was given to nodes of the model."""
        total = sum(share for share, kernel in zip(self.shares.tolist(), self.kernels, strict=True) if kernel.nodes)
        return float(min(total, 1.0))

    @property
    def inserted(self) -> tuple[Kernel, ...]:
        """The kernels that onnxruntime inserted on an edge: copies, casts and changes of layout."""
        return tuple(kernel for kernel in self.kernels if kernel.edge)

    @property
    def fused(self) -> tuple[Kernel, ...]:
        """The kernels that compute several nodes."""
        return tuple(kernel for kernel in self.kernels if len(kernel.nodes) > 1 and not kernel.edge)

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph whose flat nodes `Kernel.nodes` names."""
        return Graph.opened(self.model)

    @functools.cached_property
    def costs(self) -> Costs:
        """What the model costs for the shapes that ran: ``p.costs.memory`` is its memory, counted."""
        return costs(self.model, self.shapes or None)

    @property
    def memory_peak(self) -> int | None:
        """Most bytes in use in onnxruntime's arena after a kernel; None if the profile does not say."""
        return max([kernel.memory for kernel in self.kernels if kernel.memory is not None], default=None)

    @property
    def peak(self) -> tuple[float, float] | None:
        """FLOP/s of a MatMul and bytes/s of a copy on the machine that made it: its roofline; None if they are unknown.

        Of a profile made here they are measured at first use, and saved with it. A file of onnxruntime has none.
        """
        return measured_peak() if self.is_local else self.speeds

    @property
    def message(self) -> str:
        """The layer that takes the most time of a run, its slowest kernel, and where they ran."""
        text = self._slowest_text()
        by_provider = [row for row in self.rows("provider") if row["provider"]]
        if len(by_provider) > 1:
            counts = (f"{count_text(row['nodes'], 'node')} on {short(row['provider'])}" for row in by_provider)
            text += f"; {', '.join(counts)}{self._fallback_text()}"
        elif by_provider:
            text += f"; all on {short(by_provider[0]['provider'])}"
        copies = sum(float(s) for s, k in zip(self.shares, self.kernels, strict=True) if k.op in MEMCPY and not k.nodes)
        if (unknown := 1 - self.mapped - copies) > 0.01:
            text += f"; {unknown:.0%} of the time is of unknown nodes"
        return f"{'. '.join(sorted((*self.notes, text), key=lambda note: note.startswith('feeds: ')))}."

    def _slowest_text(self) -> str:
        total, number = duration_text(float(self.medians.sum())), int(np.argmax(self.shares))
        kernel, share = self.kernels[number], f"{self.shares[number]:.0%}"
        tree, scope = scopes(self.graph), max(self.kernel_scopes[number], 0)
        name = quoted(shortened(self.graph.names[kernel.nodes[0]] or kernel.name if kernel.nodes else kernel.name, 60))
        table = {row["scope"]: row["share"] for row in self.rows("scope")}
        pairs = zip(tree.scope_parent.tolist(), tree.scope_path, strict=True)
        outer = {tree.scope_path[around] for around, path in pairs if path in table}
        layers = [path for path, share in table.items() if path and (share < _WHOLE or path not in outer)]
        layer = max(layers, key=lambda path: table[path], default="")
        if table.get(layer, 0.0) <= self.shares[number]:  # the kernel says more
            return f"{kernel.op} {name} takes {share} of a run of {total}"
        place = name if tree.scope_path[scope] in ("", layer) else f"in {quoted(shortened(tree.scope_path[scope], 60))}"
        text = f"{quoted(shortened(layer, 60))} takes {table[layer]:.0%} of a run of {total}"
        return f"{text}; the slowest kernel, {kernel.op} {place}, {share} ({duration_text(kernel.median)})"

    @property
    def wanted(self) -> str:
        """The provider that was asked for first; of a profile that does not say, the one that is not the CPU's."""
        names = dict.fromkeys(kernel.provider for kernel in self.kernels if kernel.provider)
        return next(iter(self.providers), "") or next((name for name in names if name != CPU), next(iter(names), ""))

    @property
    def copies(self) -> tuple[Kernel, ...]:
        """The kernels that copy a tensor from the memory of one provider to that of another."""
        return tuple(kernel for kernel in self.kernels if kernel.op in MEMCPY)

    def _fallback_text(self) -> str:
        rows = self.rows("fallback")
        text = ""
        for reason in dict.fromkeys(row["reason"] for row in rows):
            ops = Counter(row["op"] for row in rows if row["reason"] == reason).most_common()
            names = ", ".join(f"{op} ×{count}" if count > 1 else op for op, count in ops[:4])
            text += f"; {names}{', …' if len(ops) > 4 else ''}: {reason}"
        if self.copies:
            share = sum(float(s) for s, k in zip(self.shares, self.kernels, strict=True) if k.op in MEMCPY)
            text += f"; {count_text(len(self.copies), 'copy', 'copies')} between providers, {share:.0%} of the time"
            if several := [kernel for kernel in self.copies if kernel.edges]:
                names = " or ".join(quoted(shortened(edge, 60)) for edge in several[0].edges[:3])
                more = " or others" if len(several[0].edges) > 3 else ""
                text += f", {len(several)} of them on one of several edges: {quoted(several[0].name)} on {names}{more}"
        return text

    @property
    def facts(self) -> tuple[str, ...]:
        """What else was measured, in words: runs, loading, memory, threads, and what was fused or inserted."""
        spread = spread_of(np.asarray(self.run_seconds))
        run = f"a run takes {duration_text(float(np.median(self.run_seconds)))}"
        texts = [f"{run} ± {duration_text(spread)} ({count_text(len(self.run_seconds), 'run')})"]
        texts.append(f"the first took {duration_text(self.first_run_seconds)}")
        busy = self.seconds / (float(np.median(self.run_seconds)) or math.nan)
        if busy > 1:  # as in parallel execution
            texts.append(f"kernels overlap: together they take {busy:.2f}× as long as a run")
        elif not math.isnan(busy):
            texts.append(f"kernels take {busy:.0%} of a run")
        if self.seconds > _MAX_SLOWDOWN * (usual := float(self.medians.sum())):
            texts.append(f"disturbed by other work: {duration_text(usual)} if no kernel had waited for it")
        if not math.isnan(self.load_seconds):
            texts.append(f"loading {duration_text(self.load_seconds)}")
        if self.memory_peak:
            texts.append(f"at most {bytes_text(self.memory_peak)} in use")
        texts.append(f"up to {count_text(max((kernel.threads for kernel in self.kernels), default=1), 'thread')}")
        if self.fused:
            nodes = sum(len(kernel.nodes) for kernel in self.fused)
            texts.append(f"{nodes:,} nodes fused into {count_text(len(self.fused), 'kernel')}")
        if self.inserted:
            texts.append(f"{count_text(len(self.inserted), 'kernel')} inserted")
        if self.made_with.get("execution") == "parallel" and len({span.thread for span in self.spans}) == 1:
            texts.append(
                "parallel execution, but all on one thread: onnxruntime overlaps only kernels of different devices"
            )
        if not self.is_local and self.speeds is None:
            texts.append("what its machine can do is unknown: no roofline")
        return (*texts, f"{self.mapped:.0%} mapped")

    def rows(self, by: By = "kernel") -> list[dict[str, Any]]:
        """Return a row for each kernel, node, operator, scope or provider, the longest first; nodes in file order.

        Parameters
        ----------
        by
            ``"kernel"``, ``"node"``, ``"operator"`` (of kernels), ``"scope"``, ``"provider"``, or ``"fallback"``
            (kernels that are not on the provider that was asked for first; ``assigned`` is where onnxruntime says it
            put their nodes, if it was asked, and ``reason`` is inferred). A scope has the time of those
            kernels whose nodes are all inside it. The time of a kernel that computes several nodes is in
            ``set_seconds`` of each of them, and ``seconds`` is None.
        """
        return rows(self, by)

    def _still(self) -> Still:

        def table(by: By, *columns: str) -> StillTable:
            rows = [row for row in self.rows(by) if row[columns[0]]]
            times = [(duration_text(row["seconds"]), f"± {duration_text(row['spread'])}") for row in rows]
            cells = [
                (*(str(row[name]) for name in columns), *pair, f"{row['share']:.1%}")
                for row, pair in zip(rows, times, strict=True)
            ]
            return StillTable((*map(str.capitalize, columns), "Time", "Spread", "Share"), cells, by, len(columns))

        tables = (table("scope", "scope", "class"), table("operator", "op"), table("kernel", "kernel", "op"))
        providers = table("provider", "provider")
        return Still(self.message, " · ".join(self.facts), (*tables, providers) if len(providers.rows) > 1 else tables)

    def to_frame(self, by: By = "kernel") -> pd.DataFrame:
        """Return `rows` as a ``pandas.DataFrame`` (needs pandas)."""
        table = self.rows(by)
        return data_frame(table, [*table[0]] if table else FALLBACK)

    def compare(self, after: Profile) -> ProfileComparison:
        """Compare with a later profile: other threads, providers or versions, or the model simplified.

        Nodes are paired by their names. A difference within the band of noise of its nodes is called noise: the spread
        of their runs and sessions, 5% of their time, and the spread of all nodes, from five runs of each. Between
        profiles of equal settings, the drift of the machine, which all kernels share, is no difference of any of them.

        What differs from session to session is known if both profiles have runs of several, as `profile` makes them.

        Parameters
        ----------
        after
            Profile of the same model, or of one that has most of its names.

        Raises
        ------
        OnnxNbError
            If the two have no node in common.
        """
        names = [{p.graph.names[node] for kernel in p.kernels for node in kernel.nodes} for p in (self, after)]
        if names[0].isdisjoint(names[1]):
            message = f"the profiles of {self.model.name} and {after.model.name} have no node in common."
            raise OnnxNbError(message, advice="Compare profiles of one model, or of one and its simplified form.")
        return ProfileComparison(self, after)

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the most usual run as a Chrome trace with the model's nodes, for Perfetto or ``chrome://tracing``."""
        graph, events = self.graph, []
        for span in self.spans:
            kernel = self.kernels[span.kernel]
            args = {"nodes": [graph.names[node] for node in kernel.nodes], "op": kernel.op, "shapes": kernel.shapes}
            times = {"ts": span.start * 1e6, "dur": span.seconds * 1e6, "pid": 1, "tid": span.thread}
            events.append({"name": kernel.name, "cat": kernel.provider or "kernel", "ph": "X", **times, "args": args})
        return write_file(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode(), [self.model])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the profile to a JSON file, which `Profile.load` reads; the model is not in it."""
        kernels = [
            {f.name: getattr(kernel, f.name) for f in fields(kernel)} | {"seconds": kernel.seconds.tolist()}
            for kernel in self.kernels
        ]
        content = {"onnx_nb profile": 1, "names": _digest(self.model)}
        content |= {name: getattr(self, name) for name in _FIELDS}
        content |= {"kernels": kernels, "made_with": dict(self.made_with), "assigned": dict(self.assigned)}
        content["spans"] = [[span.kernel, span.start, span.seconds, span.thread] for span in self.spans]
        return write_file(path, json.dumps(content).encode(), [self.model])

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: ModelLike) -> Profile:
        """Read a profile that `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is no such profile.
        OnnxNbError
            If it is one of another model.
        """
        origin, source = load(model), path_of(path)
        with reading(source, "a saved profile (Profile.read reads onnxruntime's)"):
            content = read_json(source)
            if content["names"] != _digest(origin):
                message = f"{quoted(path_text(source))} is a profile of a model with other nodes than {origin.name}."
                raise OnnxNbError(message, advice="Pass the model that was profiled.")
            content |= {"model": None, "optimized": None, "is_local": False, "speeds": content.get("peak")}
            profile: Profile = typed(content, cls, "")
            _check(profile, Graph.opened(origin).node_count)
            bound(Graph.of(origin), profile.shapes)
            return replace(profile, model=origin)

    @classmethod
    @known_arguments
    def read(
        cls, path: str | os.PathLike[str], model: ModelLike, *, warmup: int = 0, peak: tuple[float, float] | None = None
    ) -> Profile:
        """Read a profile that onnxruntime wrote, here or elsewhere, for example by ``onnxruntime_perf_test -p``.

        The names of its kernels are looked up in the model as onnxruntime optimizes it here, at the level that fits
        best; `fit` is the share of names that are there.

        Parameters
        ----------
        path
            The file that ``InferenceSession.end_profiling()`` returned.
        model
            The model that ran: any `ModelLike`.
        warmup
            Number of runs at the beginning to leave out.
        peak
            FLOP/s and bytes/s of its machine, as `peak` of a profile made there; without, no roofline is drawn.

        Raises
        ------
        OnnxNbError
            If the file is no profile of onnxruntime, has no complete run, or has no name that fits the model.
        """
        source = load(model)
        trace = read_trace(path_of(path), warmup=warmup)
        twin = with_names(source, unique=False)
        graph, flat = Graph.of(twin), inlined_graph(twin)
        best, level, part = 0.0, "", Profiled(trace, [], twin, [])
        levels: tuple[Optimization, ...] = ("off", "all", "extended", "basic")
        for optimization in levels:
            plain = flat.model if flat else twin
            candidate = plain if optimization == "off" else optimized(twin, optimization)
            ran = Graph.of(candidate)
            there = ran_nodes(trace, ran, is_other=True)
            named_here = [node >= 0 for node, op in zip(there, trace.ops, strict=True) if op not in MEMCPY]
            fit = sum(named_here) / max(len(named_here), 1)
            if fit > best:
                sites = places(graph, ran, there, trace, flat=flat)
                best, level, part = fit, optimization, Profiled(trace, sites, candidate, there)
            if fit == 1:
                break
        name = quoted(path_text(path_of(path)))
        if best <= 0:
            names = [label for label, op in zip(trace.names, trace.ops, strict=True) if op not in MEMCPY]
            first = quoted((names or trace.names)[0])
            message = f"no kernel in {name} has a name of {source.name}: the first is {first}."
            raise OnnxNbError(message, advice="Pass the model that was profiled.")
        notes = trace.notes + ((f"{best:.0%} of the names in {name} fit {source.name}",) if best < 1 else ())
        about: dict[str, Any] = {"optimization": level if best == 1 else "", "notes": notes, "speeds": peak}
        return profile_of(source, part, providers=(), fit=best, **about)

    def __repr__(self) -> str:
        runs = count_text(len(self.run_seconds), "run")
        kernels = count_text(len(self.kernels), "kernel")
        feeds = "".join(f", {note}" for note in self.notes if note.startswith("feeds: "))
        return f"Profile({duration_text(self.seconds)}, {kernels}, {runs}, {self.mapped:.0%} mapped{feeds})"

    @functools.cached_property
    def kernel_scopes(self) -> tuple[int, ...]:
        """The innermost scope of `scopes` that contains all nodes of each kernel; −1 if its nodes are unknown.

        One that adds what two layers give and normalizes it for the next belongs to the norm.
        """
        tree = scopes(self.graph)
        places = []
        for kernel in self.kernels:
            nodes = kernel.opened or kernel.nodes
            norms = [node for node in nodes if "Norm" in self.graph.op_type(node)] if kernel.op[:4] == "Skip" else []
            inner = {int(tree.node_scope[node]) for node in norms or nodes}
            lines = [{*scopes_around(tree, scope)} for scope in inner]
            places.append(max(set.intersection(*lines)) if lines else -1)  # an outer scope has a smaller number
        return tuple(places)


_FIELDS: Final = (
    *("run_seconds", "first_run_seconds", "load_seconds", "providers", "optimization", "shapes", "fit", "notes"),
    *("sessions", "made_with", "assigned", "peak"),
)


def _check(profile: Profile, nodes: int) -> None:
    """Raise `ValueError` if an index is out of range for a model of so many nodes, or lengths differ."""
    kernels, runs = profile.kernels, len(profile.run_seconds)
    if not kernels or not runs or sum(profile.sessions or (runs,)) != runs:
        raise ValueError(f"{'sessions are' if kernels and runs else 'kernels or run_seconds are'} wrong")
    for number, kernel in enumerate(kernels):
        seconds = kernel.seconds
        right = {
            "nodes": all(0 <= node < nodes for node in (*kernel.nodes, *kernel.opened)),
            "parent": -1 <= kernel.parent < number,
            "seconds": len(seconds) == runs and bool(np.all((seconds >= 0) & np.isfinite(seconds))),
        }
        if not all(right.values()):
            raise ValueError(f"kernels[{number}].{min(right, key=lambda name: right[name])} does not fit")
        _ = kernel.types  # raises
    has_places = all(0 <= span.kernel < len(kernels) for span in profile.spans)
    if not has_places or not all(0 <= node < nodes for node in profile.assigned):
        raise ValueError("spans or assigned are of other kernels or nodes")


def profile_of(
    model: Model, part: Profiled, *, shapes: Mapping[str, tuple[int, ...]] | None = None, **about: Any
) -> Profile:
    """Return the profile of what a session ran; ``about`` are further fields of `Profile`."""
    trace, sites, program, ran_as = part
    totals = costs(model, shapes) if shapes else costs(model)
    inside = [place.opened or place.nodes for place in sites]
    uses, owners = Counter(inside), {*trace.parents}
    kernels = []
    for number, (place, details) in enumerate(zip(sites, trace.details, strict=True)):
        sizes = [details.get(key) for key in ("activation_size", "parameter_size", "output_size")]
        owns = number in owners or trace.ops[number] in OWNERS
        countable = place.nodes and not place.edge and uses[inside[number]] == 1 and not owns
        flops = float(totals.flops[list(inside[number])].sum()) if countable else math.nan
        shape = {"inputs": details.get("input_type_shape", []), "outputs": details.get("output_type_shape", [])}
        kernels.append(
            Kernel(
                **vars(place),
                name=trace.names[number],
                op=trace.ops[number],
                provider=str(details.get("provider", "")),
                parent=trace.parents[number],
                seconds=trace.seconds[:, number],
                calls=int(trace.calls[trace.shown, number]),
                flops=None if math.isnan(flops) else flops,
                nbytes=None if owns or None in sizes else sum(int(size) for size in sizes if size),
                memory=int(details["mem_bytes_in_use"]) if "mem_bytes_in_use" in details else None,
                threads=int(details.get("threads", 1)),
                shapes=json.dumps(shape),
                optimized=ran_as[number],
            )
        )
    return Profile(
        model=model,
        kernels=tuple(kernels),
        spans=tuple(trace.spans),
        run_seconds=tuple(trace.run_seconds[-len(trace.seconds) :].tolist()),
        first_run_seconds=float(trace.run_seconds[0]),
        load_seconds=trace.load_seconds,
        shapes=dict(shapes or {}),
        optimized=program,
        **about,
    )


def _digest(model: Model) -> str:
    """Return a hash of the names and operators of a model's nodes."""
    graph = Graph.of(model)
    ops = (graph.operators[number][0] for number in graph.op_index.tolist())
    lines = (f"{name}\t{op}\n".encode() for name, op in zip(graph.names, ops, strict=True))
    return hashlib.sha256(b"".join(lines)).hexdigest()
