"""The one engine of comparisons: of two models, of a torch module and its export, and of operations in a submodule.

A `Proposal` lists pairs of values that may correspond. Both sides run in turn, window by window, and a value is kept
only until its counterpart is computed; the side that is behind runs next, and waiting values beyond a limit are moved
to temporary files (`run_sides`). The proposal then settles which pairs hold. The candidate runs once more with the
reference's value in place of every value of a pair, for the error that each region adds, and doubtful pairs are dropped
if all that is computed from them is right (`_isolate`). Other feeds run with the pairs of the first (`errors_of`). Each
pair that is left becomes a `Point` (`points_of`).
"""

from __future__ import annotations

import abc
import functools
import math
import os
import pickle
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.array_errors import as_floats, spread
from onnx_nb.analysis.compare.comparison import Point
from onnx_nb.analysis.compare.isolated import Scale, Settings, isolated_errors, nodes_between, unconfirmed
from onnx_nb.analysis.compare.metrics import ErrorStats, classes_axis
from onnx_nb.analysis.compare.quantization import Quantizer, activations, input_powers, precision_of, quantizes, weights
from onnx_nb.analysis.compare.sides import Feed, Recorded, Running, Side, fed
from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.formatting import shape_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.save import working_folder
from onnx_nb.analysis.progress import CountedWork, Progress, stage
from onnx_nb.analysis.run import value_recorder
from onnx_nb.analysis.run.statistics import Floats
from onnx_nb.analysis.run.value_recorder import SMALL, Spilled, Store, statistics_pool, unspilled

_SAMPLE_SIZE: Final = 64
"""Elements of each value in its `Sample`."""
_UNREAD: Final = 1 << 26
"""Bytes of arrays that stay in memory at most until somebody reads the statistics of their errors."""

Key = TypeVar("Key")
Sides = tuple[Side, Running | Recorded]
"""Reference and candidate."""
Values = tuple[frozenset[int], frozenset[int]]
"""Values of reference and candidate."""
Numbers = NDArray[Any]


class Option(NamedTuple):
    """A possible match of a value of the reference with one of the candidate."""

    reference: int
    candidate: int
    how: str
    """Method that matched them: that of `Point.matched`."""
    scale: tuple[str, str] = ("", "")
    """Names of the candidate's weights that hold its scale and zero point if its values are integers; else empty."""

    def of(self, side: int) -> int:
        """Return the value of the reference for 0, of the candidate for 1."""
        return self.candidate if side else self.reference


class Sample(NamedTuple):
    """The fingerprint of a value: its shape and evenly spaced elements."""

    shape: tuple[int, ...]
    values: Floats
    """Shape (n,)."""


class Plan(NamedTuple):
    """The pairs to compare, and how."""

    options: tuple[Option, ...]
    settings: Settings
    outputs: Values
    """Values of each side for which argmax is compared."""
    seen: Values
    """Values that each side passes on, the same for every feed: onnxruntime may compute a value that is not fetched in
    another precision."""
    held: frozenset[int] = frozenset()
    """Values of the reference that are held for the errors of regions; empty if these are not asked for."""
    sampled: bool = False
    """Whether to keep a `Sample` of every value of the first feed."""
    unread: float = 0.0
    """Bytes of permanent arrays of pairs whose statistics are computed only when somebody reads them."""

    @classmethod
    def of_options(
        cls, options: tuple[Option, ...], settings: Settings, candidate: Graph, *, isolated: bool, is_small: bool
    ) -> Plan:
        """Return the plan that compares options and nothing else; if ``is_small``, no array is read before it must."""
        references, candidates = (frozenset(option.of(side) for option in options) for side in (0, 1))
        outputs = frozenset[int](), frozenset(candidate.outputs.tolist())
        held = references if isolated else frozenset[int]()
        return cls(options, settings, outputs, (references, candidates), held, unread=math.inf if is_small else 0.0)


@dataclass
class PairErrors:
    """Errors of pairs over one feed, or several."""

    errors: dict[Option, ErrorStats] = field(default_factory=dict)
    misfits: dict[Option, str] = field(default_factory=dict)
    """Reason why two values could not be compared, or do not correspond."""
    samples: tuple[dict[int, Sample], dict[int, Sample]] = field(default_factory=lambda: ({}, {}))
    """Samples of the values of each side, if requested."""
    references: dict[int, Any] = field(default_factory=dict)
    """Values of the reference, for `unspilled`."""
    dtypes: dict[int, np.dtype[Any]] = field(default_factory=dict)
    """Types of the candidate's tensors."""
    isolated: dict[int, ErrorStats] = field(default_factory=dict)
    """Errors that regions add, by the value of the candidate that they end with."""
    quantizers: dict[int, Quantizer] = field(default_factory=dict)
    """Quantizers of activations, by the candidate's nodes."""
    powers: dict[int, Floats] = field(default_factory=dict)
    """Mean squares of the channels of the first feed that nodes of the candidate read."""
    feeds: int = 1

    def merge(self, later: PairErrors) -> PairErrors:
        """Return the errors of the pairs that both have, with those of a later feed."""
        misfits = {option: f"{reason} (feed {self.feeds})" for option, reason in later.misfits.items()}
        return replace(
            self,
            errors=_merged(self.errors, later.errors),
            isolated=_merged(self.isolated, later.isolated),
            quantizers={key: first | later.quantizers.get(key, first) for key, first in self.quantizers.items()},
            misfits=self.misfits | misfits,
            feeds=self.feeds + later.feeds,
        )


def _merged(earlier: Mapping[Key, ErrorStats], later: Mapping[Key, ErrorStats]) -> dict[Key, ErrorStats]:
    return {key: errors | later[key] for key, errors in earlier.items() if key in later}


class Proposal(abc.ABC):
    """Pairs of values that may correspond, which of them do, and what is known of each."""

    options: tuple[Option, ...]
    doubtful: tuple[str, ...] = ()
    """Ways of matching, see `Option.how`, for which only what is computed from a value can speak."""
    has_casts = False
    """Whether the candidate may cast to float16 on purpose: an export does so by mistake, unless it was quantized."""

    @abc.abstractmethod
    def settle(self, pairs: PairErrors, run: Callable[[Sequence[Option]], PairErrors]) -> dict[Option, ErrorStats]:
        """Return the pairs that hold, with their errors; ``run`` runs the first feed again for other pairs."""

    def is_doubtful(self, option: Option) -> bool:
        """Return whether a pair may be wrong where what is computed from it is right."""
        return option.how in self.doubtful

    @abc.abstractmethod
    def points(self, options: Iterable[Option]) -> Iterable[tuple[Option, int, str, Mapping[str, Any]]]:
        """Yield pairs in the reference's order with the depth, the name and further fields of the point of each."""

    def weight(self, _name: str) -> Numbers | None:
        """Return the reference's weight of a name; None if it has none."""
        return None

    def weights_near(self, _option: Option) -> Iterable[str]:
        """Return the names of the reference's weights that the region of a pair may read."""
        return ()


def errors_of(
    sides: Sides, proposal: Proposal, plan: Plan, feeds: Iterable[Feed], *, executor: Executor | None, work: CountedWork
) -> PairErrors:
    """Run all feeds, the first of which settles the pairs, here or on an executor; return the merged errors."""
    rest = iter(feeds)
    feed = next(rest, None)
    if feed is None:
        raise FeedError("no feed was given.", advice="The iterable is empty: a generator can be used only once.")
    pairs = _run_both_ways(sides, plan, feed, work.reached, proposal)
    references = plan.held & {option.reference for option in pairs.errors}
    plan = plan._replace(options=tuple(pairs.errors), held=references, sampled=False, unread=0.0)

    def run(other: Feed) -> PairErrors:
        return _run_both_ways(sides, plan, other, lambda part, what: work.reached(other.number + part, what))

    later: Iterable[PairErrors] = map(run, rest)
    if executor is not None:
        later = value_recorder.spread(executor, _run_remote, pickle.dumps((sides, plan)), rest)
    for number, errors in enumerate(later, 2):
        pairs = pairs.merge(errors)
        work.reached(number, f"{number} feeds done")
    work.finished()
    return pairs


def points_of(
    candidate: Graph, outputs: Values, proposal: Proposal, pairs: PairErrors, *, isolated: bool
) -> tuple[Point, ...]:
    """Return a point for each pair; with ``isolated``, the error of a value that no node computes is its own."""
    begins = pairs.isolated.keys()
    has_quantizers = quantizes(candidate)
    points = []
    for option, depth, name, about in proposal.points(pairs.errors):
        value = option.candidate
        nodes = nodes_between(candidate, [value], begins)[0] if value in begins else set[int]()
        region = sorted(nodes, key=candidate.rank.item)
        near = proposal.weights_near(option) if has_quantizers else ()
        quantizers = weights(candidate, region if has_quantizers else (), proposal.weight, near, pairs.powers)
        maker = int(candidate.producer[value])
        here = precision_of(candidate, region) if has_quantizers or proposal.has_casts else 0.0
        fields = {**about, "precision": max(here, about.get("precision", 0.0))}
        names = name, name, candidate.value_names[value]
        points.append(
            Point(
                *names,
                option.how,
                depth,
                node=candidate.names[maker] if maker >= 0 else "",
                output=option.reference in outputs[0] or value in outputs[1],
                cumulative=pairs.errors[option],
                isolated=pairs.errors[option] if isolated and maker < 0 else pairs.isolated.get(value),
                region=tuple(candidate.names[node] for node in region),
                quantizers=(*quantizers, *(pairs.quantizers[node] for node in region if node in pairs.quantizers)),
                **fields,
            )
        )
    return tuple(points)


def _run_both_ways(
    sides: Sides, plan: Plan, feed: Feed, progress: Progress | None = None, proposal: Proposal | None = None
) -> PairErrors:
    """Run both sides on a feed, then the regions on the values held; a proposal settles the pairs in between."""
    plan = plan._replace(settings=plan.settings._replace(feed=feed.number))
    running, isolating = stage(progress, 0.0, 0.6 if plan.held else 1.0), stage(progress, 0.6, 1.0)
    doubtful: list[Option] = []
    with working_folder() as folder:
        pairs = run_sides(sides, plan, feed, str(folder), running)

        def again(options: Sequence[Option]) -> PairErrors:
            retry = plan._replace(options=tuple(options), held=frozenset(), sampled=False)
            return run_sides(sides, retry, feed, str(folder), stage(running, 1.0, 1.0))

        if proposal is not None:
            pairs.errors = proposal.settle(pairs, again)
            doubtful = [option for option in pairs.errors if proposal.is_doubtful(option)]
            plan = plan._replace(unread=plan.unread or min(_UNREAD, plan.settings.memory_limit // 8))
        _isolate(sides, plan, pairs, feed, isolating, doubtful)
        pairs.references.clear()
    return pairs


_local = threading.local()


def _run_remote(token: str, payload: bytes, feed: Feed) -> bytes:
    """Run the pickled sides and plan on a feed in a worker of an executor, which reuses sessions for the next feed."""
    if getattr(_local, "token", "") != token:
        _local.sides, _local.plan = pickle.loads(payload)  # noqa: S301 (our own)
        _local.token = token
    return pickle.dumps(_run_both_ways(_local.sides, _local.plan, feed))


def _isolate(  # noqa: PLR0917
    sides: Sides, plan: Plan, pairs: PairErrors, feed: Feed, progress: Progress | None, doubtful: Iterable[Option]
) -> None:
    """Add the errors of the candidate's regions and its quantizers, and drop doubtful pairs that are contradicted."""
    side = sides[1]
    options = {option.candidate: option for option in reversed(pairs.errors) if option.reference in pairs.references}
    if not plan.held or not options or not isinstance(side, Running):
        return
    graph, model = side.graph, side.graph.model
    arrays = {value: functools.partial(unspilled, pairs.references[o.reference]) for value, o in options.items()}
    scales = {value: scale_of(model, option) for value, option in options.items() if option.scale[0]}
    settings = plan.settings._replace(memory_limit=plan.settings.memory_limit // 2)
    inputs = fed(model, feed.inputs)

    def of_regions(skip: Collection[int] = (), uncut: Collection[int] = ()) -> dict[int, ErrorStats]:
        rest = {value: array for value, array in arrays.items() if value not in skip}
        return isolated_errors(
            graph, rest, pairs.dtypes, inputs, settings, keep=plan.unread, uncut=uncut, scales=scales, progress=progress
        )

    pairs.isolated = of_regions()
    values = {option.candidate for option in doubtful}
    wrong = unconfirmed(graph, pairs.isolated, values, lambda: of_regions(uncut=values))
    if wrong:
        pairs.isolated = of_regions(skip=wrong)
        for option in [option for option in pairs.errors if option.candidate in wrong]:
            del pairs.errors[option]
            pairs.misfits[option] = "all that the candidate computes from it is right"
    integers = {value: option.scale for value, option in options.items() if option.scale[0]}
    arrays = {value: array for value, array in arrays.items() if value not in wrong}
    pairs.quantizers, pairs.powers = activations(graph, arrays, integers), input_powers(graph, arrays)


def scale_of(model: Model, option: Option) -> Scale:
    """Return the scale and zero point of an option's integers."""
    scale, zero_point = map(model.tensor, option.scale)
    return Scale(np.float32(scale), zero_point)


def run_sides(sides: Sides, plan: Plan, feed: Feed, folder: str, progress: Progress | None = None) -> PairErrors:
    """Run reference and candidate on a feed; ``folder`` receives values beyond the memory limit."""
    with statistics_pool() as pool:
        pairing = _Pairing(sides[1].graph.model, plan, pool, Store(0, folder), progress)
        steps = [side.steps(feed, plan.seen[at], at, pairing) for at, side in enumerate(sides)]
        shares, over = pairing.done, [not values for values in plan.seen]
        while not all(over):
            behind = int((pairing.waiting[0], shares[0]) > (pairing.waiting[1], shares[1]))
            turn = int(over[0]) if any(over) else behind
            share = next(steps[turn], None)
            shares[turn], over[turn] = 1.0 if share is None else share, share is None
        pairing.settle()
        return pairing.pairs


@dataclass
class _Waiting:
    content: Any
    nbytes: int
    """Bytes in memory."""
    uses: int


class _Pairing:
    """Compares values of both sides; the first of a pair waits for the second."""

    def __init__(self, candidate: Model, plan: Plan, pool: Executor, files: Store, progress: Progress | None) -> None:
        self._candidate, self._plan, self._pool, self._files, self.progress = candidate, plan, pool, files, progress
        self.pairs, self.done, self.waiting = PairErrors(), [0.0, 0.0], [0, 0]
        """What was compared, fractions of both sides that ran, and bytes of their values that wait for the other."""
        self._arrived: tuple[dict[int, _Waiting], dict[int, _Waiting]] = {}, {}
        self._busy: list[tuple[Option, Future[ErrorStats], int]] = []
        """Pairs that are being compared, and their bytes."""
        self._held_bytes, self._limit, self._unread = 0, plan.settings.memory_limit, plan.unread
        self._permanent: set[tuple[int, int]] = set()
        self._options = [followers((option.of(side), option) for option in plan.options) for side in (0, 1)]

    def take(self, side: int, value: int, content: Any, *, permanent: bool = False) -> None:
        options = self._options[side].get(value, ())
        if not isinstance(content, np.ndarray):
            self.pairs.misfits.update((option, "it is not a tensor") for option in options)
            return
        if permanent:
            self._permanent.add((side, value))
        if side:
            self.pairs.dtypes[value] = content.dtype
        elif value in self._plan.held and content.dtype.kind != "O":
            self.pairs.references[value], nbytes = self._stored(content, self._held_bytes, permanent=permanent)
            self._held_bytes += nbytes
        if self._plan.sampled:
            elements = content.reshape(-1)[: 0 if content.dtype.kind == "O" else None]
            self.pairs.samples[side][value] = Sample(content.shape, as_floats(spread(elements, _SAMPLE_SIZE)))
        counterparts = self._arrived[1 - side]
        uses = 0
        for option in options:
            counterpart = counterparts.get(option.of(1 - side))
            if counterpart is None:
                uses += option not in self.pairs.misfits
                continue
            both = content, unspilled(counterpart.content)
            self._compare(option, both[side], both[1 - side])
            counterpart.uses -= 1
            if not counterpart.uses:
                del counterparts[option.of(1 - side)]
                self.waiting[1 - side] -= counterpart.nbytes
                if isinstance(counterpart.content, Spilled) and os.name == "posix":  # which can remove a mapped file
                    Path(counterpart.content.path).unlink()
        if uses:
            content, nbytes = self._stored(content, sum(self.waiting), permanent=permanent)
            self._arrived[side][value] = _Waiting(content, nbytes, uses)
            self.waiting[side] += nbytes

    def _stored(self, content: Numbers, others: int, *, permanent: bool) -> tuple[Any, int]:
        """Return what stands for a value beside so many bytes: itself or a file, and its bytes in memory."""
        nbytes = 0 if permanent or isinstance(content, np.memmap) else content.nbytes
        is_large = nbytes > SMALL and others + nbytes > self._limit // 4
        return (self._files.put(content), 0) if is_large else (content, nbytes)

    def nbytes(self) -> int:
        if sum(nbytes for *_, nbytes in self._busy) > self._limit // 8:
            self.settle()
        return self._held_bytes + sum(self.waiting) + sum(nbytes for *_, nbytes in self._busy)

    def settle(self) -> None:
        for option, future, _ in self._busy:
            self.pairs.errors[option] = future.result()
        self._busy.clear()

    def _compare(self, option: Option, reference: Numbers, candidate: Numbers) -> None:
        if reference.shape != candidate.shape:
            shapes = shape_text(reference.shape), shape_text(candidate.shape)
            reason = f"the shape is {shapes[0]} in the reference and {shapes[1]} in the candidate"
            if candidate.ndim > 2 and np.moveaxis(candidate, -1, 1).shape == reference.shape:
                reason += ", which seems to have its channels last"
            self.pairs.misfits[option] = reason
            return
        if (reference.dtype.kind == "O") != (candidate.dtype.kind == "O"):
            self.pairs.misfits[option] = "one side has strings, the other numbers"
            return
        outputs, settings = self._plan.outputs, self._plan.settings
        axis = classes_axis(reference) if option.reference in outputs[0] or option.candidate in outputs[1] else None
        nbytes = reference.nbytes + candidate.nbytes
        are_permanent = {(0, option.reference), (1, option.candidate)} <= self._permanent
        if nbytes <= self._unread and not option.scale[0] and are_permanent:
            self._unread -= nbytes
            self.pairs.errors[option] = settings.errors(reference, candidate, keep=True, argmax=axis)
            return

        def compute() -> ErrorStats:
            # the real numbers that quantized integers represent
            actual = scale_of(self._candidate, option).real(candidate) if option.scale[0] else candidate
            return settings.errors(reference, actual, keep=False, argmax=axis)

        if nbytes <= 2 * SMALL:
            self.pairs.errors[option] = compute()
        else:
            self._busy.append((option, self._pool.submit(compute), nbytes))
