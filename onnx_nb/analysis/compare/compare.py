"""Compare two ONNX models that run on the same feeds, at every value that both have."""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from onnx_nb.analysis.compare import lockstep, value_matching
from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched, explained, point_at
from onnx_nb.analysis.compare.diff import Diff, diff
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, by_norm
from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.foreign_names import known_keywords
from onnx_nb.analysis.formatting import quoted, shape_text
from onnx_nb.analysis.model.model import ModelLike, label_of, load
from onnx_nb.analysis.model.tensors import input_types
from onnx_nb.analysis.progress import CountedWork, count_of
from onnx_nb.analysis.run.capture import Capture, named
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.value_recorder import available_memory, spread

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.node_matching import Matching
    from onnx_nb.analysis.compare.value_matching import Option
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.progress import Progress

_Sides = tuple[lockstep.Side, lockstep.Side]
_SIDES: Final[tuple[tuple[int, Literal["reference", "candidate"], str], ...]] = (
    (0, "reference", "candidate"),
    (1, "candidate", "reference"),
)


@known_keywords
def compare(
    reference: ModelLike | Capture,
    candidate: ModelLike | Capture,
    feeds: Any = None,
    *,
    tensors: str | Iterable[str] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    memory_limit: int | None = None,
    providers: Sequence[str] | None = None,
    executor: concurrent.futures.Executor | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run two models on the same feeds and compare every value that both have, without keeping the values.

    Values match if their names are equal, or differ by what quantization appends to them. Where a name has several
    candidates, or means something else in the other model, the values themselves decide. Values without a common name
    are matched by shape and values. `Point.matched` says how a match was found.

    Parameters
    ----------
    reference
        The side that is taken to be right: any `ModelLike`, or a `Capture` that kept arrays.
    candidate
        The side that should compute the same: simplified, in float16, quantized, or a `Capture` that kept arrays.
    feeds
        Feeds of the reference, as `read_feeds` takes them; the errors of several feeds are merged. Inputs that have
        another type in the candidate, as float16, are cast; inputs of another name are passed by position. If ``None``,
        random values, or the inputs that a `Capture` kept.
    tensors
        Names or patterns (``*``, ``?``, ``[…]``) of the reference's values to compare; all if ``None``.
    rtol, atol
        Tolerances, for `ErrorStats.outside`.
    memory_limit
        Maximum number of bytes for values of both sides, half of the available memory if ``None``. Values that wait for
        the other side go to temporary files beyond a quarter of it.
    providers
        Execution providers, best first; the CPU if ``None``.
    executor
        Any `concurrent.futures.Executor`, which runs all feeds but the first in parallel. The results are the same to
        the last bit.
    progress
        Called between windows with the fraction done and the next step. If it raises, the comparison ends.

    Returns
    -------
    Comparison

    Raises
    ------
    AlignmentError
        If the two have no value in common.
    FeedError
        If a feed does not fit one of the models.
    CaptureError
        If a model is broken, or onnxruntime fails on a node.

    Examples
    --------
    >>> import onnx.parser
    >>> exact, rough = (onnx.parser.parse_model(f'''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2, 8] x, float[8] s, float[8] b) => (float[2, 8] y)
    ... {{ n = LayerNormalization<epsilon = {epsilon}>(x, s, b)  y = Tanh(n) }}''') for epsilon in (1e-12, 1e-2))
    >>> c = compare(exact, rough)
    >>> c
    Comparison(5 points of 'g' and 'g', 3 equal)
    >>> print(c.message.partition(". ")[2])
    Epsilon is 0.01 instead of 1e-12.
    """
    limit = available_memory() // 2 if memory_limit is None else memory_limit
    if limit <= 0:
        raise AlignmentError(f"memory_limit is {limit}.", advice="Pass a number of bytes, or leave it out.")
    sides = _side(reference, limit // 2, providers), _side(candidate, limit // 2, providers)
    differing = diff(sides[0].graph.model, sides[1].graph.model, weights=False)
    plan, there = _plan(sides, differing.matching, tensors, rtol=rtol, atol=atol, limit=limit)
    done = CountedWork(progress, _feed_count(sides, feeds))
    numbered = enumerate(_feeds(sides, feeds))
    _, first = next(numbered, (0, None))
    if first is None:
        raise FeedError("no feed was given.", advice="The iterable is empty: a generator can be used only once.")
    errors, misfits = _first(sides, plan, first, done)
    proposed, plan = plan.options, plan._replace(options=tuple(errors))
    feeds_run = 1
    for found in _rest(sides, plan, numbered, executor, done):
        feeds_run += 1
        errors = {option: mine | found.errors[option] for option, mine in errors.items() if option in found.errors}
        misfits |= {option: f"{why} (feed {feeds_run - 1})" for option, why in found.misfits.items()}
    done.finished()
    graphs = sides[0].graph, sides[1].graph
    points = _points(graphs, differing, errors, there[0])
    if not points:
        message = f"{label_of(graphs[0].model)} and {label_of(graphs[1].model)} have no value in common."
        why = next(iter(misfits.values()), "")
        advice = "Are they the same model, run on the same feeds?"
        raise AlignmentError(
            f"{message} The first values of one name cannot be compared: {why}." if why else message, advice=advice
        )
    unmatched = _unmatched(graphs, errors, misfits, proposed, there)
    labels = [graph.model.name for graph in graphs]
    comparison = Comparison(labels[0], labels[1], tuple(points), tuple(unmatched), feeds_run)
    return explained(comparison, functools.partial(_weight_differences, graphs))


# --- running --------------------------------------------------------------------------------------------------------


def _side(given: ModelLike | Capture, limit: int, providers: Sequence[str] | None) -> lockstep.Side:
    if not isinstance(given, Capture):
        return lockstep.Running(load(given), memory_limit=limit, providers=providers)
    side = lockstep.Recorded(given)
    if not side.names:
        message = f"the capture of {label_of(given.model)} kept no arrays."
        raise AlignmentError(message, advice='Capture with keep="*", or pass the model itself.')
    return side


def _plan(
    sides: _Sides,
    matching: Matching,
    tensors: str | Iterable[str] | None,
    *,
    rtol: float,
    atol: float,
    limit: int,
) -> tuple[lockstep.Plan, tuple[list[int], list[int]]]:
    """Return what to compare, and the values that either side has in order of execution."""
    graphs = sides[0].graph, sides[1].graph
    mine, yours = (
        [
            value
            for value in value_matching.values(side.graph).values()
            if not isinstance(side, lockstep.Recorded) or value in side.names
        ]
        for side in sides
    )
    if tensors is not None:
        asked = set(named(graphs[0], tensors, mine, "tensors"))
        mine = [value for value in mine if value in asked]
    usable = set(mine), set(yours)
    options = [
        option
        for option in value_matching.options(*graphs, matching)
        if option.reference in usable[0] and option.candidate in usable[1]
    ]
    if tensors is not None and {option.reference for option in options} == usable[0]:
        yours = sorted({option.candidate for option in options}, key=yours.index)  # the rest need not run
    outputs = frozenset(graphs[0].outputs.tolist())
    seen = frozenset(mine), frozenset(yours)
    return lockstep.Plan(tuple(options), rtol, atol, limit, outputs, seen), (mine, yours)


def _first(
    sides: _Sides,
    plan: lockstep.Plan,
    feed: Mapping[str, Any],
    done: CountedWork,
) -> tuple[dict[Option, ErrorStats], dict[Option, str]]:
    """Run the first feed and decide which values match; return their errors, and why others cannot be compared."""
    found = lockstep.run(sides, plan, feed, 0, sampled=True, progress=done.reached)
    errors = {option: found.errors[option] for option in value_matching.chosen(found.errors, plan.options)}
    distance = {option: by_norm(each) for option, each in errors.items()}
    doubtful = {
        option.reference: (option.candidate, far) for option, far in distance.items() if far > value_matching.DOUBT
    }
    sure = [option for option in errors if option.reference not in doubtful]
    settled = {option.reference for option in sure}, {option.candidate for option in sure}
    samples, operators = [], []
    for side, graph in enumerate((sides[0].graph, sides[1].graph)):
        left = {value: sample for value, sample in found.samples[side].items() if value not in settled[side]}
        samples.append(left)
        operators.append({value: _operator(graph, value) for value in left})
    by_values = value_matching.matched_by_values(samples[0], samples[1], doubtful, (operators[0], operators[1]))
    if not by_values:
        return errors, found.misfits
    again = lockstep.run(
        sides, plan._replace(options=tuple(by_values)), feed, 0, progress=lambda _, what: done.reached(1.0, what)
    )
    replaced = {option.reference for option in by_values}, {option.candidate for option in by_values}
    rest = {
        option: each
        for option, each in errors.items()
        if option.reference not in replaced[0] and option.candidate not in replaced[1]
    }
    return rest | again.errors, found.misfits


def _rest(
    sides: _Sides,
    plan: lockstep.Plan,
    feeds: Iterator[tuple[int, dict[str, Any]]],
    executor: concurrent.futures.Executor | None,
    done: CountedWork,
) -> Iterator[lockstep.Found]:
    """Run the other feeds, here or on an executor; yield their results in order."""
    if executor is None:
        for number, feed in feeds:
            report = functools.partial(lambda number, part, what: done.reached(number + part, what), number)
            yield lockstep.run(sides, plan, feed, number, progress=report)
        return
    results = spread(executor, lockstep.run_remote, lockstep.pickled(sides, plan), feeds)
    for number, found in enumerate(results, 2):
        yield found
        done.reached(number, f"{number} feeds done")


# --- results --------------------------------------------------------------------------------------------------------


def _points(
    graphs: tuple[Graph, Graph], differing: Diff, errors: Mapping[Option, ErrorStats], values: Sequence[int]
) -> list[Point]:
    """Return the points of the matched values, in the reference's order of execution."""
    options = {option.reference: option for option in errors}
    differences = _attribute_differences(differing)
    outputs = set(graphs[0].outputs.tolist())
    points = []
    for depth, value in enumerate(values):
        option = options.get(value)
        if option is None:
            continue
        makers = int(graphs[0].producer[value]), int(graphs[1].producer[option.candidate])
        point = point_at(
            graphs[1],
            option.candidate,
            graphs[0].value_names[value],
            option.how,
            depth,
            op_type=_operator(graphs[0], value),
            output=value in outputs,
            difference=differences.get(makers, ""),
            cumulative=errors[option],
        )
        points.append(point)
    return points


def _unmatched(
    graphs: tuple[Graph, Graph],
    errors: Mapping[Option, ErrorStats],
    misfits: Mapping[Option, str],
    proposed: Sequence[Option],
    there: tuple[list[int], list[int]],
) -> Iterator[Unmatched]:
    """Yield the values that only one side has, with the reason."""
    reasons: list[dict[int, str]] = [{}, {}]
    for option, why in misfits.items():
        for at in (0, 1):
            reasons[at].setdefault(option.of(at), why)
    matched = {option.reference for option in errors}, {option.candidate for option in errors}
    owner = {option.candidate: option.reference for option in errors}
    for option in proposed:
        if option.reference not in matched[0] and option.candidate in owner:
            names = graphs[1].value_names[option.candidate], graphs[0].value_names[owner[option.candidate]]
            why = f"the candidate's {quoted(names[0])} is what {quoted(names[1])} is in the reference"
            reasons[0].setdefault(option.reference, why)
    for at, side, other in _SIDES:
        unknown = f"the {other} has no value of its name or structure, nor one with its values"
        for value in there[at]:
            if value not in matched[at]:
                reason = reasons[at].get(value, unknown)
                yield Unmatched(graphs[at].value_names[value], side, reason, _operator(graphs[at], value))


def _operator(graph: Graph, value: int) -> str:
    maker = int(graph.producer[value])
    return graph.operators[int(graph.op_index[maker])][0] if maker >= 0 else ""


def _attribute_differences(differing: Diff) -> dict[tuple[int, int], str]:
    """Return which attributes of matched nodes differ, as text."""
    found: dict[tuple[int, int], list[str]] = {}
    for each in differing.changes:
        if each.kind == "attribute":
            text = f"{each.detail} is {each.candidate or 'not given'} instead of {each.reference or 'not given'}"
            found.setdefault(each.nodes, []).append(text)
    return {nodes: ", ".join(texts) for nodes, texts in found.items()}


def _weight_differences(graphs: tuple[Graph, Graph], point: Point) -> Iterator[str]:
    """Yield how the weights differ that the nodes of a point read, if these have the same operator."""
    makers = [
        int(graph.producer[graph.value(name)])
        for graph, name in zip(graphs, (point.reference, point.candidate), strict=True)
    ]
    if min(makers) < 0:
        return
    operators = [graph.operators[int(graph.op_index[maker])] for graph, maker in zip(graphs, makers, strict=True)]
    if operators[0] != operators[1]:
        return
    inputs = [graph.node_inputs(maker).tolist() for graph, maker in zip(graphs, makers, strict=True)]
    for pair in zip(*inputs, strict=False):
        names = [graph.value_names[value] if value >= 0 else "" for graph, value in zip(graphs, pair, strict=True)]
        if not all(name in graph.model.initializers for graph, name in zip(graphs, names, strict=True)):
            continue
        mine, yours = (graph.model.initializers[name] for graph, name in zip(graphs, names, strict=True))
        if mine.shape != yours.shape:
            yield f"weight {quoted(names[0])} is {shape_text(yours.shape)} instead of {shape_text(mine.shape)}"
            continue
        errors = ErrorStats.of(*(graph.model.tensor(name) for graph, name in zip(graphs, names, strict=True)))
        if not errors.is_equal:
            many = f"{errors.count - errors.equal:,} of {errors.count:,} values"
            yield f"weight {quoted(names[0])} differs in {many}, by at most {errors.max_abs:.3g}"


# --- feeds ----------------------------------------------------------------------------------------------------------


def _feeds(sides: _Sides, feeds: Any) -> Iterator[dict[str, Any]]:
    """Yield the feeds, as the reference takes them if it runs."""
    captures = [side for side in sides if isinstance(side, lockstep.Recorded)]
    counts = {side.feeds for side in captures}
    if len(counts) > 1:
        message = f"the captures were run on {captures[0].feeds} and {captures[1].feeds} feeds."
        raise AlignmentError(message, advice="Capture both on the same feeds.")
    running = next((side for side in sides if isinstance(side, lockstep.Running)), None)
    if not captures:
        yield from read_feeds(sides[0].graph.model, feeds)
        return
    count = counts.pop()
    if running is None:
        yield from ({} for _ in range(count))
        return
    if feeds is None:
        yield from (_captured_feed(captures[0], number) for number in range(count))
        return
    number = 0
    for number, feed in enumerate(read_feeds(running.graph.model, feeds), 1):
        if number > count:
            break
        yield feed
    if number != count:
        message = f"the capture of {label_of(captures[0].graph.model)} was run on {count} feeds, not on those given."
        raise FeedError(message, advice="Pass the feeds of the capture.")


def _captured_feed(side: lockstep.Recorded, number: int) -> dict[str, Any]:
    model = side.graph.model
    feed = {}
    for name in input_types(model):
        if side.graph.value(name) in side.names:
            feed[name] = side.array(name, number)
        elif name not in model.initializers:
            message = f"the capture of {label_of(model)} did not keep its input {quoted(name)}."
            raise FeedError(message, advice="Pass the feeds= of the capture, or keep the inputs as well.")
    return feed


def _feed_count(sides: _Sides, feeds: Any) -> int | None:
    captured = next((side.feeds for side in sides if isinstance(side, lockstep.Recorded)), None)
    return count_of(feeds) if captured is None else captured
