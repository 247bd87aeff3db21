"""Compare two ONNX models that run on the same feeds, at every value that both have.

Both run on their own, for the cumulative errors. Then the candidate runs once more with the reference's value in place
of every value that both have, for the error that each region between them adds (`isolated_errors`).

After quantization, fusion or renaming, a value may have several possible counterparts. `options` lists them from names
and structure, `chosen` picks one of them once the errors are known, and `matched_by_values` finds the rest by their
shapes and values.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare import thresholds
from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched, explained
from onnx_nb.analysis.compare.engine import Option, PairErrors, Plan, Proposal, Sample, errors_of, points_of
from onnx_nb.analysis.compare.isolated import Settings, nodes_between
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, by_norm
from onnx_nb.analysis.compare.operands import input_of
from onnx_nb.analysis.compare.quantization import DEQUANTIZED, QUANTIZED, precision_of, quantizes, unrounded
from onnx_nb.analysis.compare.sides import Dump, Dumped, Feed, Recorded, Running, dumped, is_dump
from onnx_nb.analysis.compare.thresholds import MATCH_DISTANCE, PREFERENCE_FACTOR
from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.formatting import count_text, quoted, shape_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import DANGLING, INITIALIZER
from onnx_nb.analysis.graph.operators import facts, names_where
from onnx_nb.analysis.match.diff import diff
from onnx_nb.analysis.match.node_matching import HOW, Matching
from onnx_nb.analysis.model.model import ModelLike, label_of, load
from onnx_nb.analysis.model.storage import available_memory
from onnx_nb.analysis.model.tensors import input_types, listed
from onnx_nb.analysis.progress import CountedWork, Progress, count_of
from onnx_nb.analysis.run.capture import Capture, named
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.random_feeds import feeds_text, until_it_runs
from onnx_nb.analysis.scopes.scopes import layer_of
from onnx_nb.analysis.submodel.assembly import with_constants

_Side = Running | Recorded
_ROLES: Final[tuple[Literal["reference", "candidate"], ...]] = ("reference", "candidate")

_WEAK: Final = ("", "order", "place")
"""Kinds of node matches that are ambiguous, and not used for values."""


@known_arguments
def compare(
    reference: ModelLike | Capture | Dump,
    candidate: ModelLike | Capture | Dump,
    feeds: Any = None,
    *,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    tensors: str | Iterable[str] | None = None,
    isolated: bool = True,
    constants: Mapping[str, Any] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    memory_limit: int | None = None,
    providers: Sequence[str] | None = None,
    executor: concurrent.futures.Executor | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run two models on the same feeds and compare every value that both have, without keeping the values.

    Values match if their names are equal, or differ by a suffix that quantization appends. Where a name has several
    candidates, or denotes another value in the other model, the values decide. Values without a common name
    are matched by shape and values. `Point.matched` is the method that found a match.

    Parameters
    ----------
    reference
        The side assumed to be correct: any `ModelLike`, or a `Capture` that kept arrays.
    candidate
        The side that should compute the same: simplified, in float16, quantized, or a `Capture` that kept arrays. One
        of the two may also be arrays that another runtime computed, by the names of the other side's tensors or nodes:
        a dict, or an iterable with one for each feed, a ``.npz`` file, or a folder of ``.npy`` or ``.pb`` files named
        after tensors. `Comparison.notes` says what is unlike the model.
    feeds, shapes
        Feeds of the reference, as `read_feeds` takes them; the errors of several feeds are merged. Inputs that have
        another type in the candidate, such as float16, are cast; inputs of another name are passed by position. If
        ``None``, random values, whose sizes ``shapes`` gives, or the inputs that a `Capture` kept.
    tensors
        Names or patterns (``*``, ``?``, ``[…]``) of the reference's values to compare; all if ``None``.
    isolated
        Whether to compute the errors that each region of the candidate adds by itself, from one value that both have
        to the next: half of the time or more. Not known where the candidate is a `Capture`.
    constants
        Values of inputs that only one of the models has, or that never change, such as ``{"sr": 16000}``.
    rtol, atol
        Tolerances, for `ErrorStats.outside`.
    memory_limit
        Maximum number of bytes for the values of both sides; half of the available memory if ``None``. Beyond a quarter
        of it, values that wait for the other side are moved to temporary files.
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
    Comparison(5 points of 'g' and 'g', 3 equal, random feeds)
    >>> print(c.message.partition(". ")[2])
    Epsilon is 0.01 instead of 1e-12. Feeds: random, x 2×8, s 8, b 8.
    """
    limit = available_memory() // 2 if memory_limit is None else memory_limit
    if limit <= 0:
        raise AlignmentError(f"memory_limit is {limit}.", advice="Pass a number of bytes, or leave it out.")
    sides, unknown, notes = _sides((reference, candidate), limit, providers, constants or {})
    graphs = sides[0].graph, sides[1].graph
    proposal = ModelProposal(sides, tensors)
    has_regions = isolated and isinstance(sides[1], Running)
    outputs = frozenset(graphs[0].outputs.tolist()), frozenset[int]()
    held = proposal.seen[0] if has_regions else frozenset[int]()
    plan = Plan(proposal.options, Settings(rtol, atol, limit), outputs, proposal.seen, held, sampled=True)
    feed_count = next((side.feeds for side in sides if isinstance(side, Recorded)), None)
    work = CountedWork(progress, count_of(feeds) if feed_count is None else feed_count)

    def outcome() -> tuple[Feed | None, PairErrors]:
        queue = (Feed(number, feed) for number, feed in enumerate(_feeds(sides, feeds, shapes)))
        first = next(queue, None)
        all_feeds = queue if first is None else itertools.chain([first], queue)
        return first, errors_of(sides, proposal, plan, all_feeds, executor=executor, work=work)

    is_random = feeds is None and all(isinstance(side, Running) for side in sides)
    first, pairs = until_it_runs(graphs[0].model, outcome, shapes) if is_random else outcome()
    if not pairs.errors:
        labels = [side.label if isinstance(side, Dumped) else label_of(side.graph.model) for side in sides]
        message = f"{labels[0]} and {labels[1]} have no value in common."
        why = next(iter(pairs.misfits.values()), "") or next((f"of {quoted(e.name)}, {e.reason}" for e in unknown), "")
        message += f" The first values of one name cannot be compared: {why}." if why else ""
        raise AlignmentError(message, advice="Are they the same model, run on the same feeds?")
    points = points_of(graphs[1], outputs, proposal, pairs, isolated=has_regions)
    leftovers = (*_unmatched(graphs, pairs, proposal), *unknown)
    models = (graphs[0].model, graphs[1].model) if all(isinstance(side, Running) for side in sides) else None
    notes += _dump_notes(sides, pairs.errors, leftovers)
    notes += [f"F{feeds_text(graphs[0].model, shapes)[1:]}."] if is_random and first and first.inputs else []
    names = [side.label if isinstance(side, Dumped) else side.graph.model.name for side in sides]
    feed, about = first.inputs if models and first else None, (names[0], names[1], points, leftovers, pairs.feeds)
    comparison = Comparison(*about, models=models, feed=feed, notes=tuple(notes))
    return explained(comparison, functools.partial(_weight_differences, graphs))


def _sides(
    sources: tuple[Any, Any], limit: int, providers: Sequence[str] | None, constants: Mapping[str, Any]
) -> tuple[tuple[_Side, _Side], tuple[Unmatched, ...], list[str]]:
    """Return both sides, the arrays of a dump that are not compared, and notes on the others."""
    sides: list[_Side | None] = [None, None]
    names: set[str] = set()
    for at, (role, one) in enumerate(zip(_ROLES, sources, strict=True)):
        try:
            if isinstance(one, Capture):
                sides[at] = Recorded(one)
            elif not is_dump(one):
                model = load(one, providers=providers)
                names = {*input_types(model)} | ({*constants} - names if at else set())
                model = with_constants(model, {name: constants[name] for name in constants if name in names})
                sides[at] = Running(model, limit // 2)
        except TypeError as error:
            raise TypeError(f"compare() cannot use the {role}: {error}") from None
        side = sides[at]
        if isinstance(side, Recorded) and not side.names:
            message = f"{side.label} kept no arrays."
            raise AlignmentError(message, advice='Capture with keep="*", or pass the model itself.')
    first, second = sides
    if first is not None and second is not None:
        return (first, second), (), []
    other = first or second
    if other is None:
        message = "both sides are arrays, and no model says in which order they are computed."
        raise AlignmentError(message, advice="Pass the model of one of them, with feeds=.")
    at = sides.index(None)
    dump, unfit, notes = dumped(other.graph, values(other.graph), sources[at])
    unknown = tuple(Unmatched(name, _ROLES[at], reason) for name, reason in unfit.items())
    return (first or dump, second or dump), unknown, notes


def _feeds(sides: Sequence[_Side], feeds: Any, shapes: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the feeds in the form that the reference takes, if it runs."""
    captures = [side for side in sides if isinstance(side, Recorded)]
    running = next((side for side in sides if isinstance(side, Running)), None)
    if not captures:
        yield from read_feeds(sides[0].graph.model, feeds, shapes)
        return
    if shapes and feeds is None:
        raise FeedError(f"shapes= are sizes of made-up feeds, and {captures[0].label} has its own.")
    count = captures[0].feeds
    if captures[-1].feeds != count:
        message = f"{captures[0].label} is of {count} feeds, {captures[-1].label} of {captures[-1].feeds}."
        raise AlignmentError(message, advice="Use the same feeds for both.")
    if running is None:
        yield from ({} for _ in range(count))
        return
    if feeds is None:
        model = captures[0].graph.model
        inputs = {name: captures[0].graph.value(name) for name in input_types(model)}
        names = [name for name, value in inputs.items() if value in captures[0].names]
        missing = next((n for n in input_types(model) if n not in names and n not in model.initializers), None)
        if missing is not None:
            message = f"{captures[0].label} has no values of input {quoted(missing)}."
            raise FeedError(message, advice="Pass its feeds=, or keep the inputs as well.")
        yield from ({name: captures[0].array(inputs[name], number) for name in names} for number in range(count))
        return
    number = 0
    for number, feed in enumerate(read_feeds(running.graph.model, feeds, shapes), 1):
        if number > count:
            break
        yield feed
    if number != count:
        message = f"{captures[0].label} is of {count_text(count, 'feed')}, not of those given."
        raise FeedError(message, advice="Pass the feeds that it was computed from.")


class ModelProposal(Proposal):
    """Values of two models that correspond by their names, their structure or their values."""

    doubtful = ("structure", "values")
    has_casts = True

    def __init__(self, sides: Sequence[_Side], tensors: str | Iterable[str] | None) -> None:
        graphs = self._graphs = sides[0].graph, sides[1].graph
        differing = diff(graphs[0].model, graphs[1].model, weights=False)
        self._changes = followers(
            (one.nodes, f"{one.detail} is {one.candidate or 'not given'} instead of {one.reference or 'not given'}")
            for one in differing.changes
            if one.kind == "attribute"
        )
        """Attributes that differ, by the pairs of nodes that have them."""
        # the values of each side, in order of execution
        self.values = [
            [value for value in values(side.graph).values() if isinstance(side, Running) or value in side.names]
            for side in sides
        ]
        if tensors is not None:
            selection = set(named(graphs[0], tensors, self.values[0], "tensors"))
            self.values[0] = [value for value in self.values[0] if value in selection]
        usable = set(self.values[0]), set(self.values[1])
        every = options(*graphs, differing.matching)
        proposals = [option for option in every if all(option.of(at) in usable[at] for at in (0, 1))]
        # a value and the same one rounded: a faulty quantizer must not make the first look right
        before = unrounded(graphs[1])
        rounds = {(option.reference, before.get(option.candidate)) for option in proposals}
        self.options = tuple(option for option in proposals if (option.reference, option.candidate) not in rounds)
        if tensors is not None and {option.reference for option in self.options} == usable[0]:
            candidates = {option.candidate for option in self.options}
            self.values[1] = [value for value in self.values[1] if value in candidates]  # the rest need not run
        self.seen = frozenset(self.values[0]), frozenset(self.values[1])

    def settle(self, pairs: PairErrors, run: Callable[[Sequence[Option]], PairErrors]) -> dict[Option, ErrorStats]:
        """Return the options that hold, and further pairs that are alike, with their errors."""
        errors = {option: pairs.errors[option] for option in chosen(pairs.errors, self.options)}
        distances = ((option.reference, by_norm(error)) for option, error in errors.items())
        doubtful = {value: far for value, far in distances if far > MATCH_DISTANCE}
        samples: list[dict[int, Sample]] = []
        for at in (0, 1):
            sure = {option.of(at) for option in errors if option.reference not in doubtful}
            samples.append({value: sample for value, sample in pairs.samples[at].items() if value not in sure})
        before = unrounded(self._graphs[1])
        for option in errors:
            samples[1].pop(before.get(option.candidate, -1), None)
        by_values = tuple(matched_by_values(self._graphs, samples, doubtful))
        if not by_values:
            return errors
        claims = {(at, option.of(at)) for option in by_values for at in (0, 1)}
        rest = {o: error for o, error in errors.items() if claims.isdisjoint(((0, o.reference), (1, o.candidate)))}
        return rest | run(by_values).errors

    def weight(self, name: str) -> NDArray[Any] | None:
        """Return a weight of the reference by its name."""
        model = self._graphs[0].model
        return model.tensor(name) if name in model.initializers else None

    def weights_near(self, option: Option) -> list[str]:
        """Return the names of the values that the reference's node of a pair reads."""
        graph = self._graphs[0]
        maker = int(graph.producer[option.reference])
        read = graph.node_inputs(maker).tolist() if maker >= 0 else []
        return [graph.value_names[value] for value in read if value >= 0]

    def points(self, options: Iterable[Option]) -> Iterator[tuple[Option, int, str, Mapping[str, Any]]]:
        """Yield pairs in the reference's order of execution, with what their points report."""
        reference, candidate = self._graphs
        by_reference, has_quantizers = {option.reference: option for option in options}, quantizes(reference)
        for depth, value in enumerate(self.values[0]):
            if (option := by_reference.get(value)) is not None:
                nodes = int(reference.producer[value]), int(candidate.producer[option.candidate])
                region = nodes_between(reference, [value], by_reference.keys())[0] if has_quantizers else ()
                about = {
                    "op_type": _operator(reference, value),
                    "scope": layer_of(reference, value),
                    "difference": ", ".join(self._changes.get(nodes, ())),
                    "precision": precision_of(reference, region),
                }
                yield option, depth, reference.value_names[value], about


def _dump_notes(
    sides: Sequence[_Side], errors: Mapping[Option, ErrorStats], leftovers: Sequence[Unmatched]
) -> Iterator[str]:
    for role, side in zip(_ROLES, sides, strict=True):
        if not isinstance(side, Dumped):
            continue
        graph = sides[0].graph
        wrong = {
            graph.value_names[pair.reference]: error.rel_l2
            for pair, error in errors.items()
            if (error.mismatches or error.rel_l2 > thresholds.FEED_DISTANCE)
            and all(both.graph.producer[pair.of(at)] < 0 for at, both in enumerate(sides))
        }
        if wrong:
            names = listed((f"{quoted(name)} (by {far:.1g} of its norm)" for name, far in wrong.items()), str)
            what = f"in {side.label}, the input {names} is another, and so may be all values"
            yield f"The sides were not fed the same: {what}."
        ports = {value.name for value in graph.model.inputs}
        left = sorted((entry for entry in leftovers if entry.side == role), key=lambda entry: entry.name not in ports)
        if left and left[0].name in ports:
            yield f"Whether the sides were fed the same is not known: an input in {side.label} is not compared."
        if left:
            many = f"{len(left)} of {count_text(len(left) + len(errors), 'array')}"
            more = f", and {len(left) - 1} more" if left[1:] else ""
            yield f"In {side.label}, {many} are not compared: {quoted(left[0].name)} ({left[0].reason}){more}."


def _operator(graph: Graph, value: int) -> str:
    maker = int(graph.producer[value])
    return graph.op_type(maker) if maker >= 0 else ""


def _unmatched(graphs: tuple[Graph, Graph], pairs: PairErrors, proposal: ModelProposal) -> Iterator[Unmatched]:
    reasons: tuple[dict[int, str], dict[int, str]] = {}, {}
    for option, why in pairs.misfits.items():
        for at in (0, 1):
            reasons[at].setdefault(option.of(at), why)
    owner = {option.candidate: option.reference for option in pairs.errors}
    matches = set(owner.values()), set(owner)
    for option in proposal.options:
        if option.candidate in owner:
            names = graphs[1].value_names[option.candidate], graphs[0].value_names[owner[option.candidate]]
            why = f"the candidate's {quoted(names[0])} is what {quoted(names[1])} is in the reference"
            reasons[0].setdefault(option.reference, why)
    for at, (side, other, graph) in enumerate(zip(_ROLES, _ROLES[::-1], graphs, strict=True)):
        unknown = f"the {other} has no value of its name or structure, nor one with its values"
        for value in proposal.values[at]:
            if value not in matches[at]:
                reason = reasons[at].get(value, unknown)
                yield Unmatched(graph.value_names[value], side, reason, _operator(graph, value))


def _weight_differences(graphs: tuple[Graph, Graph], point: Point) -> Iterator[str]:
    """Yield the differences between the weights that the two nodes of a point read, if their operators are the same."""
    pair = [graph.value(name) for graph, name in zip(graphs, (point.reference, point.candidate), strict=True)]
    operators = [_operator(graph, value) for graph, value in zip(graphs, pair, strict=True)]
    if not operators[0] or operators[0] != operators[1]:
        return
    inputs = [graph.node_inputs(int(graph.producer[value])).tolist() for graph, value in zip(graphs, pair, strict=True)]
    for read in zip(*inputs, strict=False):
        names = [graph.value_names[value] if value >= 0 else "" for graph, value in zip(graphs, read, strict=True)]
        if not all(name in graph.model.initializers for graph, name in zip(graphs, names, strict=True)):
            continue
        right, actual = (graph.model.tensor(name) for graph, name in zip(graphs, names, strict=True))
        if right.shape != actual.shape:
            yield f"weight {quoted(names[0])} is {shape_text(actual.shape)} instead of {shape_text(right.shape)}"
            continue
        with np.errstate(over="ignore"):
            errors = ErrorStats.of(right.astype(actual.dtype), actual)  # rounding to float16 is no difference
        if not errors.is_equal:
            many = f"{errors.count - errors.equal:,} of {errors.count:,} values"
            yield f"weight {quoted(names[0])} differs in {many}, by at most {errors.max_abs:.3g}"


def options(reference: Graph, candidate: Graph, structure: Matching) -> list[Option]:
    """Return the matches that names and graphs suggest for computed values of the main graphs, the likeliest first."""
    sources, targets = values(reference), values(candidate)
    if sum(name.endswith(DEQUANTIZED) for name in sources) > sum(name.endswith(DEQUANTIZED) for name in targets):
        swaps = _options(candidate, targets, sources)
        pairs = [option._replace(reference=option.candidate, candidate=option.reference) for option in swaps]
    else:
        pairs = _options(reference, sources, targets, candidate)
    there = {(option.reference, option.candidate) for option in pairs}
    candidates = set(targets.values())
    for value in sources.values():
        other = int(structure.value[value])
        if other in candidates and (value, other) not in there and HOW[structure.value_how[value]] not in _WEAK:
            pairs.append(Option(value, other, "structure"))
    return pairs


def values(graph: Graph) -> dict[str, int]:
    """Return the values of the main graph by name, in order of execution, without weights and constants."""
    indices = np.flatnonzero((graph.value_subgraph == 0) & ~np.isin(graph.value_kind, (INITIALIZER, DANGLING)))
    order = np.append(graph.rank, -1)[graph.producer[indices]]  # the last one is for values that no node makes
    names = graph.value_names
    every = indices[np.argsort(order, kind="stable")].tolist()
    return {names[value]: value for value in every if names[value] and _operator(graph, value) != "Constant"}


def _options(
    graph: Graph, sources: Mapping[str, int], targets: Mapping[str, int], candidate: Graph | None = None
) -> list[Option]:
    """Return the options that names suggest for values of a graph; with integers, only if the candidate is known."""
    pairs = []
    for name, value in sources.items():
        matches = list(_named(name, value, sources, targets, candidate))
        readers = graph.consumers(value).tolist() if name not in targets else []
        if len(readers) == 1:
            outputs = graph.node_outputs(readers[0]).tolist()
            after = targets.get(graph.value_names[outputs[0]], -1) if outputs else -1
            if after >= 0 and _operator(graph, outputs[0]) in names_where("clips"):
                matches.append(Option(value, after, "fused"))
        if _operator(graph, value) in names_where("clips"):
            read = input_of(graph, int(graph.producer[value]), 0)
            others = _named(graph.value_names[read] if read >= 0 else "", value, sources, targets, candidate)
            matches += [option._replace(how="fused") for option in others if option.how != "name" or not matches]
        pairs += matches
    return pairs


def _named(
    name: str, value: int, sources: Mapping[str, int], targets: Mapping[str, int], candidate: Graph | None
) -> Iterator[Option]:
    """Yield the options that have a name, with or without the suffixes of quantization."""
    if name + DEQUANTIZED in targets and name + DEQUANTIZED not in sources:
        yield Option(value, targets[name + DEQUANTIZED], "dequantized")
    if name in targets:
        yield Option(value, targets[name], "name")
    if name + QUANTIZED in targets and name + QUANTIZED not in sources and candidate is not None:
        scale = _scale(candidate, targets[name + QUANTIZED])
        if scale:
            yield Option(value, targets[name + QUANTIZED], "quantized", scale)


def _scale(graph: Graph, value: int) -> tuple[str, str] | None:
    """Return the names of the weights that hold scale and zero point of a value."""
    for _ in range(64):  # no chain of moving operators is longer
        op, maker = _operator(graph, value), int(graph.producer[value])
        row = facts(op)
        if not op:  # a weight, from which a row was gathered
            base = graph.value_names[value].removesuffix(QUANTIZED)
            names = [f"{base}_scale", f"{base}_zero_point"]
        else:
            read = (input_of(graph, maker, place) for place in row.out)
            names = [graph.value_names[index] if index >= 0 else "" for index in read]
        if not op or row.out[0] >= 0:
            return (names[0], names[1]) if all(name in graph.model.initializers for name in names) else None
        value = input_of(graph, maker, 0) if row.moves == (0,) and row.category != "cast" else -1
        if value < 0:
            break
    return None


def chosen(by_option: Mapping[Option, ErrorStats], preference: Iterable[Option]) -> list[Option]:
    """Return one option for each value of the reference, each value of the candidate at most once."""
    by_value = followers((option.reference, option) for option in preference if option in by_option)
    distance = {option: by_norm(errors) for option, errors in by_option.items()}
    # the candidate's value may be nearer to another value of the reference than to the one of the same name
    nearest: dict[int, float] = {}
    for option in by_option:
        nearest[option.candidate] = min(distance[option], nearest.get(option.candidate, MATCH_DISTANCE))
    choices: dict[int, Option] = {}
    for value, several in by_value.items():
        best = several[0]
        for option in several[1:]:
            if distance[best] > MATCH_DISTANCE / 2 and distance[option] * PREFERENCE_FACTOR < distance[best]:
                best = option
        near = nearest[best.candidate]
        is_another = near < MATCH_DISTANCE and near * PREFERENCE_FACTOR / 2 < distance[best]
        if distance[best] <= MATCH_DISTANCE or (best.how not in ("structure", "fused") and not is_another):
            choices[value] = best

    def claim(option: Option) -> tuple[bool, bool, float]:
        return distance[option] > MATCH_DISTANCE, option.how == "fused", distance[option]

    owners: dict[int, Option] = {}
    for option in sorted(choices.values(), key=claim):
        owners.setdefault(option.candidate, option)
    # a value that lost its option may have another
    for value, option in choices.items():
        if owners[option.candidate] is not option:
            free = (o for o in by_value[value] if o.candidate not in owners and distance[o] <= MATCH_DISTANCE)
            other = next(free, option)
            owners.setdefault(other.candidate, other)
    return sorted(owners.values())


def matched_by_values(
    graphs: tuple[Graph, Graph], samples: Sequence[Mapping[int, Sample]], doubtful: Mapping[int, float]
) -> Iterator[Option]:
    """Match values that are each other's nearest, by sampled elements; ``doubtful`` ones only by a far better match."""
    by_shape: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
    for at, of_side in enumerate(samples):
        for value, sample in of_side.items():
            if len(sample.values) >= thresholds.VALUE_MATCH_ELEMENTS:
                by_shape.setdefault(sample.shape, ([], []))[at].append(value)
    for sources, targets in by_shape.values():
        if not sources or not targets:
            continue
        other = np.stack([samples[1][value].values for value in targets])
        norms = np.linalg.norm(other, axis=1)
        usable = np.isfinite(norms) & (norms > 0)
        claims: dict[int, list[tuple[float, int]]] = {}
        for value in sources:
            one = samples[0][value].values
            norm = np.linalg.norm(one)
            # a constant resembles any other constant
            if not np.isfinite(norm) or not norm or np.ptp(one) == 0:
                continue
            with np.errstate(invalid="ignore"):  # of infinite ones, which are not usable
                distance = np.linalg.norm(other - one, axis=1) / np.maximum(norms, norm)
            distance[~usable] = np.inf
            least, limit = float(distance.min()), thresholds.VALUE_MATCH_DISTANCE
            if least > limit or least * PREFERENCE_FACTOR >= doubtful.get(value, math.inf):
                continue
            near = [targets[row] for row in np.flatnonzero(distance <= max(least * 2, 1e-12))]
            if len(near) > 1:  # copies: only one produced by the same operator can be the match
                near = [twin for twin in near if _operator(graphs[1], twin) == _operator(graphs[0], value)]
            if len(near) == 1:
                claims.setdefault(near[0], []).append((least, value))
        for twin, claiming in claims.items():
            best = min(claiming)[0]
            left = [value for far, value in claiming if far <= max(best * 2, 1e-12)]
            if len(left) > 1:
                left = [value for value in left if _operator(graphs[0], value) == _operator(graphs[1], twin)]
            if len(left) == 1:
                yield Option(left[0], twin, "values")
