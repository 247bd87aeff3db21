"""Where the time of a run goes: a real session, optimized as in production, profiled and mapped back to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, load, storage_of
from onnx_nb.analysis.model.save import working_folder
from onnx_nb.analysis.profile.mapping import places
from onnx_nb.analysis.profile.result import Profile, profile_of
from onnx_nb.analysis.profile.sessions import (
    CPU,
    Optimization,
    Profiled,
    assigned,
    inlined_graph,
    made_with,
    optimized_session,
    ran_nodes,
    record,
    settings,
    together,
    with_names,
)
from onnx_nb.analysis.profile.trace import read_trace
from onnx_nb.analysis.progress import CountedWork, Progress
from onnx_nb.analysis.run.random_feeds import feeds_text, on_random_feeds
from onnx_nb.analysis.run.session import one_feed, run_session

SESSIONS: Final = 3
"""Sessions over which `profile` spreads its runs by default."""


@known_arguments
@on_random_feeds
def profile(
    model: ModelLike,
    feeds: Any = None,
    *,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    runs: int = 20,
    warmup: int = 2,
    providers: Sequence[str] | None = None,
    session_options: Any = None,
    optimization: Optimization | None = None,
    threads: int | None = None,
    sessions: int | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Run a model as onnxruntime runs it in production, and find out which nodes of the model take the time.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    feeds, shapes
        One feed in any form that `read_feeds` takes; random values if ``None``, whose sizes ``shapes`` gives.
    runs
        Number of runs that are measured.
    warmup
        Number of runs before them.
    providers
        Execution providers, best first; those of ``session_options``, or the CPU, if ``None``.
    session_options
        ``onnxruntime.SessionOptions`` to profile with; they are left as they were but for the folder of the weights
        and the record of which provider has which node.
    optimization
        Level of graph optimization: ``"all"`` (as in production), ``"layout"``, ``"extended"``, ``"basic"`` or
        ``"off"``. By default that of ``session_options``, which is ``"all"`` unless they say otherwise.
    threads
        Threads of an operator; by default that of ``session_options``, or one for each core.
    sessions
        Number of sessions over which the runs are spread, one after the other; by default three, or one for each run
        of fewer. The speed of a kernel differs from session to session, by where its memory lies: with three on each
        side, `Profile.compare` knows by how much.
    progress
        Called as work advances, see `Progress`; an error that it raises ends the work.

    Raises
    ------
    FeedError
        If the feed does not fit the model.
    OnnxNbError
        If onnxruntime cannot run the model, or a provider cannot be started.

    Examples
    --------
    >>> import onnx.parser
    >>> found = profile(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2, 4] x, float[4, 4] w) => (float[2, 4] z) { y = MatMul(x, w)  z = Relu(y) }'''), runs=3)
    >>> sorted(kernel.op for kernel in found.kernels), round(found.mapped, 6), len(found.run_seconds)
    (['MatMul', 'Relu'], 1.0, 3)
    """
    if runs < 1 or warmup < 0:
        message = f"a profile of {runs} runs after {warmup} is empty."
        raise OnnxNbError(message, advice="Use runs=1 or more, and warmup=0 or more.")
    sessions = min(SESSIONS, runs) if sessions is None else sessions
    if not 1 <= sessions <= runs:
        message = f"{runs} runs cannot be spread over {sessions} sessions."
        raise OnnxNbError(message, advice="Use sessions=1 or more, and as many runs or more.")
    source = load(model, providers=providers)
    choices = storage_of(source).options.get("providers")
    feed = one_feed(source, feeds, shapes)
    twin = with_names(source, unique=True)
    graph, flat = Graph.of(twin), inlined_graph(twin)
    parts = list[Profiled]()
    total, count = sessions * warmup + runs, 0
    work = CountedWork(progress, total + 1)
    for number in range(sessions):
        with working_folder() as folder, settings(session_options, optimization) as options:
            options.enable_profiling, options.profile_file_prefix = True, str(folder / "run")
            about = made_with(options, threads)
            # the names that onnxruntime makes up differ from session to session: the graph must be the one that ran
            has_record = record(options, choices)
            is_given = session_options is not None
            session, program = optimized_session(twin, threads=threads or 0, options=options, is_given=is_given)
            owners = assigned(session) if has_record else {}
            active = session.get_providers()
            try:
                for _ in range(warmup + runs // sessions + (number < runs % sessions)):
                    work.reached(count, f"run {count + 1} of {total}")
                    run_session(session, feed, name=source.name)
                    count += 1
            finally:
                path = Path(session.end_profiling())
            del session
            trace = read_trace(path, warmup=warmup)
        ran = Graph.of(program)
        ran_as = ran_nodes(trace, ran)
        parts.append(Profiled(trace, places(graph, ran, ran_as, trace, flat=flat), program, ran_as))
    work.reached(total, "mapping kernels")
    part = together(parts, warmup=warmup)
    used = {details.get("provider", "") for details in part.trace.details}
    choices = choices or active
    idle = [provider for provider in choices if provider not in used and provider != CPU]
    fates = ((ep, "took no node" if ep in active else "could not be started") for ep in idle)
    silent = (f"{ep} was asked for and {fate}: other providers ran" for ep, fate in fates)
    notes = (*silent, *part.trace.notes, *([feeds_text(source, shapes)] if feeds is None else ()))
    result = profile_of(
        source,
        part,
        optimization=optimization or "",
        notes=notes,
        providers=tuple(choices),
        shapes={name: tuple(value.shape) for name, value in feed.items() if isinstance(value, np.ndarray)},
        fit=1.0,
        made_with=about,
        is_local=True,
        sessions=tuple(len(part.trace.seconds) for part in parts) if sessions > 1 else (),
        assigned={node: owners[name] for node, name in enumerate(graph.names) if name in owners},
    )
    work.finished()
    return result
