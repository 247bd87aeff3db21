"""Sessions to profile: their options, the graph that onnxruntime makes of a model, and what this machine can do."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnx_nb.analysis.arguments import check_choice
from onnx_nb.analysis.formatting import count_text, plain_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, load, with_proto
from onnx_nb.analysis.model.save import working_folder
from onnx_nb.analysis.model.tensors import all_nodes, declared_bytes, graphs_of
from onnx_nb.analysis.profile.mapping import KernelPlace, by_name
from onnx_nb.analysis.profile.trace import MEMCPY, Trace
from onnx_nb.analysis.run.session import create, entry, runtime, set_entry, tiny

if TYPE_CHECKING:
    import onnxruntime

Optimization = Literal["all", "layout", "extended", "basic", "off"]

_LEVELS: Final = {level: f"ORT_ENABLE_{level.upper()}" for level in get_args(Optimization)} | {"off": "ORT_DISABLE_ALL"}
_RECORD: Final = "session.record_ep_graph_assignment_info"
CPU: Final = "CPUExecutionProvider"
_SMALL: Final = 1024
"""Bytes of a weight above which its values are dropped from an optimized graph."""
_INLINE_LIMIT: Final = 1_500_000_000
"""Bytes of weights up to which onnxruntime can write a model to one file."""
_OPTIONS: Final = (
    *("enable_profiling", "profile_file_prefix", "optimized_model_filepath", "graph_optimization_level"),
    *("intra_op_num_threads", "log_severity_level"),
)


@contextlib.contextmanager
def settings(base: Any, optimization: Optimization | None) -> Iterator[onnxruntime.SessionOptions]:
    """Yield session options with a level of optimization; given ones are put back as they were."""
    ort = runtime()
    check_choice("optimization", optimization, Optimization)
    options = base if base is not None else ort.SessionOptions()
    if not isinstance(options, ort.SessionOptions):
        raise TypeError(f"profile() takes session_options as onnxruntime.SessionOptions, not {type(base).__name__}.")
    before = {name: getattr(options, name) for name in _OPTIONS}
    if optimization is not None:
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[optimization])
    try:
        yield options
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def optimized_session(
    model: Model, *, options: onnxruntime.SessionOptions, threads: int = 0, is_given: bool = False
) -> tuple[onnxruntime.InferenceSession, Model]:
    """Return a session, and what onnxruntime made of the model for it, without large weights.

    Options that are given, not made for this, keep no entry if there is another way.
    """
    with working_folder() as folder:
        path = folder / "optimized.onnx"
        if not is_given or sum(map(declared_bytes, model.proto.graph.initializer)) > _INLINE_LIMIT:
            set_entry(options, "session.optimized_model_external_initializers_file_name", "weights")
        if os.name == "posix":  # what the weights hold is not asked for, and writing it takes longer than optimizing
            (folder / "weights").symlink_to(os.devnull)
        session = create(model, threads=threads, options=options, written_to=path)
        proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        if declared_bytes(tensor) > _SMALL:
            tensor.ClearField("raw_data")
            tensor.ClearField("external_data")
            tensor.data_location = TensorProto.EXTERNAL
    return session, load(proto)


def optimized(model: Model, optimization: Optimization) -> Model:
    """Return what onnxruntime makes of a model on the CPU, without large weights."""
    with settings(None, optimization) as options:
        return optimized_session(model, options=options)[1]


def inlined_graph(model: Model) -> Graph | None:
    """Return the graph with the nodes of local functions in the place of their calls; None if there are no calls."""
    return Graph.of(optimized(model, "off")) if model.proto.functions else None


def record(options: onnxruntime.SessionOptions, providers: Sequence[str] | None) -> bool:
    """Have a session remember which provider it gave each node to, if there are several; return whether it will."""
    if any(ep != CPU for ep in providers) if providers else options.has_providers():
        set_entry(options, _RECORD, "1")
    return entry(options, _RECORD) == "1"


def assigned(session: onnxruntime.InferenceSession) -> dict[str, str]:
    """Return the provider that onnxruntime gave each node to when it loaded the model, by the node's name."""
    groups = session.get_provider_graph_assignment_info()
    return {node.name: group.ep_name for group in groups for node in group.get_nodes()}


def with_names(model: Model, *, unique: bool) -> Model:
    """Return a model whose nodes all have names: onnxruntime's own for those without, different ones if ``unique``."""
    proto = copy.deepcopy(model.proto)
    uses = Counter(plain_text(node.name) for node in all_nodes(proto.graph.node))
    if all(uses) and (not unique or len(uses) == uses.total()):
        return model
    for graph in (proto.graph, *(g for node in all_nodes(proto.graph.node) for _, g in graphs_of(node))):
        index = 0
        for node in graph.node:
            label = plain_text(node.name)
            name = label or f"{plain_text(node.op_type)}_{index}"
            # onnxruntime makes weights of constants before it counts
            index += plain_text(node.op_type) != "Constant"
            while unique and name != label and uses[name]:
                name += "_"
            if unique and label and uses[name] > 1:
                uses[name] -= 1
                name = next(other for number in itertools.count(2) if not uses[other := f"{name}_{number}"])
            node.name = name
            uses[name] += not uses[name]
    return with_proto(model, proto)


def made_with(options: onnxruntime.SessionOptions, threads: int | None) -> dict[str, str]:
    """Return in words what decides on the times of a session, besides its model, providers and feeds."""
    ort = runtime()
    levels = {getattr(ort.GraphOptimizationLevel, long): name for name, long in _LEVELS.items()}
    count = threads or options.intra_op_num_threads
    is_parallel = options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    return {
        "optimization": levels[options.graph_optimization_level],
        "threads": str(count) if count else "one for each core",
        "execution": "parallel" if is_parallel else "sequential",
        "onnxruntime": str(ort.__version__),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
    }


def ran_nodes(trace: Trace, ran: Graph, *, is_other: bool = False) -> list[int]:
    """Return the node of the optimized graph for each kernel, or −1; ``is_other`` if another session made the graph."""
    inside = followers(
        ((ran.subgraphs[ran.node_subgraph[node]].owner_node, name), node) for node, name in enumerate(ran.names)
    )
    anywhere, matches = by_name(ran.names), list[int]()
    for name, op, parent in zip(trace.names, trace.ops, trace.parents, strict=True):
        if is_other and _is_made_up(name, op):
            matches.append(-1)  # such a name means another node in each session
            continue
        candidates = inside.get((matches[parent] if parent >= 0 else -1, name)) or anywhere.get(name, [])
        if not candidates and is_other:  # a copy of a node for another layout has its name
            plain = re.sub(r"_token_\d+$", "", name)
            candidates = [node for node in anywhere.get(plain, []) if ran.op_type(node) == op]
        same = [node for node in candidates if ran.op_type(node) == op] or candidates
        matches.append(same[0] if same else -1)
    _match_by_order(trace, ran, matches)
    return matches


def _is_made_up(name: str, op: str) -> bool:
    return op in MEMCPY or re.fullmatch(rf"{re.escape(op)}(_token_\d+)?", name) is not None


def _match_by_order(trace: Trace, ran: Graph, matches: list[int]) -> None:
    """Match kernels whose names onnxruntime made up: by what runs before and after, if operators are the same there."""
    for parent in dict.fromkeys(trace.parents):
        if parent >= 0 and matches[parent] < 0:
            continue
        kernels = [kernel for kernel, above in enumerate(trace.parents) if above == parent]
        claims = {matches[kernel] for kernel in kernels}
        for frame in (0,) if parent < 0 else ran.bodies(matches[parent]):
            nodes = [node for node in ran.subgraph_order(frame).tolist() if ran.op_type(node) != "Constant"]
            place = {node: number for number, node in enumerate(nodes)}
            start, gap = -1, list[int]()
            for kernel in [*kernels, -1]:
                if kernel >= 0 and matches[kernel] < 0:
                    gap.append(kernel)
                    continue
                stop = len(nodes) if kernel < 0 else place.get(matches[kernel], -1)
                free = [node for node in nodes[start + 1 : max(stop, 0)] if node not in claims]
                for op in {trace.ops[k] for k in gap} - MEMCPY:
                    waiting = [k for k in gap if trace.ops[k] == op]
                    same = [node for node in free if ran.op_type(node) == op]
                    if len(waiting) == len(same):
                        for k, node in zip(waiting, same, strict=True):
                            # nodes of functions that onnxruntime put in the place of a node have no names
                            matches[k] = node if _is_made_up(trace.names[k], op) or not ran.names[node] else -1
                start, gap = stop, []


class Profiled(NamedTuple):
    """What a session ran, and where it is in the model."""

    trace: Trace
    places: list[KernelPlace]
    optimized: Model
    ran_as: list[int]


def together(parts: Sequence[Profiled], *, warmup: int) -> Profiled:
    """Return the runs of several sessions as those of the one in the middle, kernels paired by what they compute."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort([np.median(part.trace.seconds.sum(axis=1)) for part in parts], kind="stable")
    middle = int(order[(len(parts) - 1) // 2])
    base = parts[middle]
    columns = {key: number for number, key in enumerate(_kernel_keys(base))}
    run_count = sum(len(part.trace.seconds) for part in parts)
    seconds, calls = np.zeros((run_count, len(columns))), np.zeros((run_count, len(columns)), np.int64)
    gaps = run = 0
    for part in parts:
        to = np.asarray([columns.get(key, -1) for key in _kernel_keys(part)])
        there = to >= 0
        gaps += int(np.count_nonzero(~there))
        rows = slice(run, run := run + len(part.trace.seconds))
        seconds[rows, to[there]] = part.trace.seconds[:, there]
        calls[rows, to[there]] = part.trace.calls[:, there]
    notes = list(dict.fromkeys(note for part in parts for note in part.trace.notes))
    if gaps:
        notes.append(f"{count_text(gaps, 'kernel')} of other sessions left out: the one shown has none of their nodes")
    first = parts[0].trace
    trace = dataclasses.replace(
        base.trace,
        seconds=seconds,
        calls=calls,
        run_seconds=np.concatenate([first.run_seconds[:1], *(part.trace.run_seconds[warmup:] for part in parts)]),
        load_seconds=float(np.median([part.trace.load_seconds for part in parts])),
        shown=base.trace.shown + sum(len(part.trace.seconds) for part in parts[:middle]),
        notes=tuple(notes),
    )
    return base._replace(trace=trace)


def _kernel_keys(part: Profiled) -> list[tuple[Any, ...]]:
    """Return what each kernel computes and its number among those that compute the same: equal in each session."""
    keys, uses = list[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for op, parent, place in zip(part.trace.ops, part.trace.parents, part.places, strict=True):
        key = keys[parent] if parent >= 0 else (), op, place.nodes, place.opened, place.edge, place.edges
        keys.append((*key, uses[key]))
        uses[key] += 1
    return keys


@functools.cache
def measured_peak() -> tuple[float, float]:
    """Return the FLOP/s of a MatMul and the bytes/s of a copy on the CPU here: the best of many short runs.

    Short ones fit between other programs. A kernel whose tensors stay in the cache may exceed the bytes/s.
    """
    length = 1 << 22
    flops = max(_best("MatMul", (side, side)) * 2 * side**3 for side in (512, 1024))
    return flops, _best("Neg", (length,)) * 8 * length


def _best(op: str, shape: tuple[int, ...]) -> float:
    """Return how often an operator runs in a second at best, on one thread or all, into memory that is there."""
    names = ["a", "b"] if op == "MatMul" else ["a"]
    nodes = [helper.make_node(op, names, ["y"])]
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, shape)
    times = list[float]()
    for threads in (1, 0):
        session = tiny(nodes, dict.fromkeys(names, kind), threads=threads)
        binding = session.io_binding()
        for name in names:
            binding.bind_ortvalue_input(name, runtime().OrtValue.ortvalue_from_numpy(np.ones(shape, np.float32)))
        binding.bind_ortvalue_output("y", runtime().OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)))
        stop = time.perf_counter() + 0.05
        for run in itertools.count():
            start = time.perf_counter()
            if run >= 8 and start > stop:
                break
            session.run_with_iobinding(binding)
            times.append(time.perf_counter() - start)
    return 1 / min(times)
