"""Run two models in turn, window by window, and compare their values as soon as both are computed.

A value is kept only until its counterpart is computed; only the errors remain. The side that is behind runs next.
Waiting values beyond a limit are moved to temporary files.
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pickle
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.array_errors import as_floats, spread
from onnx_nb.analysis.compare.isolated import Scale, Settings, isolated_errors
from onnx_nb.analysis.compare.metrics import ErrorStats, LazyErrors, classes_axis
from onnx_nb.analysis.compare.quantization import Quantizer, activations
from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.formatting import quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import label_of
from onnx_nb.analysis.model.save import working_folder
from onnx_nb.analysis.model.tensors import input_types, numpy_dtype
from onnx_nb.analysis.progress import stage
from onnx_nb.analysis.run.capture import refuse_faults
from onnx_nb.analysis.run.feeds import validate_feeds
from onnx_nb.analysis.run.session import with_explicit_casts
from onnx_nb.analysis.run.value_recorder import SMALL, Spilled, Store, contents, statistics_pool, unspilled
from onnx_nb.analysis.run.windows import Sink, Windows

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.run.session import Value
    from onnx_nb.analysis.run.statistics import Floats

_SAMPLED: Final = 64
"""Number of elements of each value in its `Sample`."""


_UNREAD: Final = 1 << 26
"""Maximum number of bytes of arrays that stay in memory until somebody reads the statistics of their errors."""


class Option(NamedTuple):
    """A possible match of a value of the reference with one of the candidate."""

    reference: int
    candidate: int
    how: str
    """name, dequantized, quantized (integers with a known scale), fused (an activation is part of the node that
    produces it), structure or values."""
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


class Running:
    """A model that runs on each feed, without graph optimization so that no value is lost."""

    def __init__(self, model: Model, memory_limit: int, providers: Sequence[str] | None) -> None:
        self.graph = Graph.of(model)
        self.providers = None if providers is None else (providers,) if isinstance(providers, str) else tuple(providers)
        self._memory_limit = memory_limit
        self._runs: tuple[frozenset[int], Windows, Mapping[int, int]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Running, (self.graph.model, self._memory_limit, self.providers)

    def steps(
        self, feed: Mapping[str, Any], _number: int, wanted: frozenset[int], at: int, pairing: _Pairing
    ) -> Iterator[float]:
        """Pass on the wanted values of a feed, some in each step; yield the fraction of the run that is done."""
        if self._runs is None or self._runs[0] != wanted:
            self._runs = (wanted, *self._windows(wanted))
        _, windows, original = self._runs
        yield from windows.steps(fed(self.graph.model, feed), _Sink(windows.graph, original, at, pairing))

    def _windows(self, wanted: frozenset[int]) -> tuple[Windows, Mapping[int, int]]:
        graph = self.graph
        make = functools.partial(Windows, memory_limit=self._memory_limit, providers=self.providers)
        # as the model would run in one session, with the casts that onnxruntime inserts
        low, original = with_explicit_casts(graph, wanted, self.providers)
        refuse_faults(graph, lambda: make(graph, wanted, reuse=False).runs)
        lowest = {value for value, source in original.items() if source in wanted}
        return make(low, lowest, reuse=True), original


class Recorded:
    """The arrays of a `Capture`."""

    def __init__(self, capture: Capture) -> None:
        self.graph = Graph.of(capture.model)
        self.names = {self.graph.value(name): name for name in capture.array_names}
        self.feeds = capture.feeds
        self.label = f"the capture of {label_of(capture.model)}"
        self._capture = capture

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorded, (self._capture,)

    def steps(
        self, _feed: Mapping[str, Any], number: int, wanted: Collection[int], at: int, pairing: _Pairing
    ) -> Iterator[float]:
        """Pass on the wanted values of a feed, one in each step; yield the fraction that is done."""
        for done, (value, name) in enumerate(self.names.items(), 1):
            if value in wanted:
                pairing.take(at, value, self.array(name, number))
                yield done / len(self.names)

    def array(self, name: str, number: int) -> Any:
        """Return the array of a value for one feed."""
        return self._capture[(name, number) if self.feeds > 1 else name]


Side = Running | Recorded


def fed(model: Model, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a feed of the reference as the candidate takes it: by name, else by position, cast to its types."""
    kinds = input_types(model)
    needed = [name for name in kinds if name not in model.initializers]
    if not set(needed) <= set(feed):
        if len(needed) != len(feed):
            missing = ", ".join(quoted(name) for name in needed if name not in feed)
            message = f"{label_of(model)} also needs {missing}, which the reference does not have."
            raise FeedError(message, advice="Compare models with the same inputs.")
        feed = dict(zip(needed, feed.values(), strict=True))
    given = {}
    for name in filter(kinds.__contains__, feed):
        array = feed[name]
        dtype = numpy_dtype(kinds[name].tensor_type.elem_type) if kinds[name].HasField("tensor_type") else None
        if isinstance(array, np.ndarray) and dtype is not None and array.dtype != dtype and array.dtype.kind != "O":
            array = array.astype(dtype)  # a model in float16 takes float16
        given[name] = array
    try:
        return validate_feeds(model, given)
    except FeedError as error:
        message = f"the candidate, {label_of(model)}, does not take the feeds of the reference: {error.message}"
        raise FeedError(message, advice=error.advice) from None


class _Sink(Sink):
    """Passes on the values of one side's windows."""

    def __init__(self, graph: Graph, original: Mapping[int, int], at: int, pairing: _Pairing) -> None:
        report = pairing.progress
        super().__init__(graph, report and (lambda _, what: report(sum(pairing.done) / 2, what)))
        self._original, self._at, self._pairing = original, at, pairing

    def held(self) -> int:
        return self._pairing.held()

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:  # noqa: ARG002
        self._pairing.take(self._at, self._original[value], contents(found)[1])


# --- both sides ------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The values to compare, and the options for their comparison."""

    options: tuple[Option, ...]
    rtol: float
    atol: float
    memory_limit: int
    outputs: frozenset[int]
    """Values of the reference for which argmax is compared."""
    seen: tuple[frozenset[int], frozenset[int]]
    """Values that each side passes on, the same for every feed: onnxruntime may compute a value that is not fetched in
    another precision."""
    held: frozenset[int] = frozenset()
    """Values of the reference that are held for `isolated`."""


@dataclass
class Found:
    """The results of one feed."""

    errors: dict[Option, ErrorStats] = field(default_factory=dict)
    misfits: dict[Option, str] = field(default_factory=dict)
    """Reason why two values could not be compared."""
    samples: tuple[dict[int, Sample], dict[int, Sample]] = field(default_factory=lambda: ({}, {}))
    """Samples of the values of each side, if requested."""
    held: dict[int, Any] = field(default_factory=dict)
    """Values of the reference, for `unspilled`."""
    dtypes: dict[int, np.dtype[Any]] = field(default_factory=dict)
    """Types of the candidate's tensors."""
    isolated: dict[Option, ErrorStats | LazyErrors] = field(default_factory=dict)
    quantizers: dict[int, Quantizer] = field(default_factory=dict)
    """Quantizers of activations, by the candidate's nodes."""


def run(
    sides: Sequence[Side],
    plan: Plan,
    feed: Mapping[str, Any],
    number: int,
    folder: str,
    *,
    sampled: bool = False,
    progress: Callable[[float, str], None] | None = None,
) -> Found:
    """Run reference and candidate on one numbered feed; ``sampled`` keeps a sample of every value.

    ``folder`` receives values beyond the memory limit.
    """
    with statistics_pool() as pool:
        pairing = _Pairing(sides[1].graph.model, plan, number, pool, Store(0, folder), progress, sampled)
        steps = [side.steps(feed, number, plan.seen[at], at, pairing) for at, side in enumerate(sides)]
        done, over = pairing.done, [not seen for seen in plan.seen]
        while not all(over):
            behind = int((pairing.waiting[0], done[0]) > (pairing.waiting[1], done[1]))
            turn = int(over[0]) if any(over) else behind
            try:
                done[turn] = next(steps[turn])
            except StopIteration:
                done[turn], over[turn] = 1.0, True
        pairing.settle()
        return pairing.found


def run_both_ways(
    sides: Sequence[Side],
    plan: Plan,
    feed: Mapping[str, Any],
    number: int,
    progress: Callable[[float, str], None] | None = None,
) -> Found:
    """Run both sides on one numbered feed, then the regions of the candidate on the values held, if any."""
    with working_folder() as folder:
        first, second = (stage(progress, 0.0, 0.6), stage(progress, 0.6, 1.0)) if plan.held else (progress, None)
        found = run(sides, plan, feed, number, str(folder), progress=first)
        found.isolated = isolated(sides, plan, found, feed, number, second)
        found.held.clear()
    return found


def isolated(  # noqa: PLR0917
    sides: Sequence[Side],
    plan: Plan,
    found: Found,
    feed: Mapping[str, Any],
    number: int,
    progress: Callable[[float, str], None] | None = None,
    *,
    keep: bool = False,
) -> dict[Option, ErrorStats | LazyErrors]:
    """Return the errors of the candidate's regions on the values held; none where no node produces the value.

    With ``keep``, some arrays stay in memory until their statistics are read.
    """
    side = sides[1]
    usable = {option.candidate: option for option in plan.options if option.reference in found.held}
    if not usable or not isinstance(side, Running):
        return {}
    model = side.graph.model
    arrays = {value: functools.partial(unspilled, found.held[option.reference]) for value, option in usable.items()}
    integers = {value: option.scale for value, option in usable.items() if option.scale[0]}
    found.quantizers = activations(side.graph, arrays, integers)
    errors = isolated_errors(
        side.graph,
        arrays,
        found.dtypes,
        fed(model, feed),
        Settings(plan.rtol, plan.atol, side.providers, plan.memory_limit // 2, number),
        keep=min(_UNREAD, plan.memory_limit // 8) if keep else 0,
        scales={value: scale_of(model, option) for value, option in usable.items() if option.scale[0]},
        progress=progress,
    )
    return {usable[value]: each for value, each in errors.items()}


def scale_of(model: Model, option: Option) -> Scale:
    """Return the scale and zero point of an option's integers."""
    scale, zero_point = map(model.tensor, option.scale)
    return Scale(np.float32(scale), zero_point)


@dataclass
class _Waiting:
    content: Any
    nbytes: int
    """Bytes in memory."""
    uses: int


@dataclass
class _Pairing:
    """Compares values of both sides; the first of a pair waits for the second."""

    candidate: Model
    plan: Plan
    number: int
    """Index of the feed."""
    pool: concurrent.futures.Executor
    files: Store
    progress: Callable[[float, str], None] | None
    sampled: bool
    found: Found = field(default_factory=Found)
    done: list[float] = field(default_factory=lambda: [0.0, 0.0])
    waiting: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes of the values of each side that wait for the other."""
    arrived: tuple[dict[int, _Waiting], dict[int, _Waiting]] = field(default_factory=lambda: ({}, {}))
    busy: list[tuple[Option, concurrent.futures.Future[ErrorStats], int]] = field(default_factory=list)
    """Pairs that are being compared, and their bytes."""

    def __post_init__(self) -> None:
        self._held_bytes = 0
        self._options: tuple[dict[int, list[Option]], dict[int, list[Option]]] = ({}, {})
        for option in self.plan.options:
            for side in (0, 1):
                self._options[side].setdefault(option.of(side), []).append(option)

    def take(self, side: int, value: int, content: Any) -> None:
        """Compare a value with those that wait for it, or make it wait."""
        options = self._options[side].get(value, ())
        if not isinstance(content, np.ndarray):
            self.found.misfits.update((option, "it is not a tensor") for option in options)
            return
        if side:
            self.found.dtypes[value] = content.dtype
        elif value in self.plan.held and content.dtype.kind != "O":
            self._hold(value, content)
        if self.sampled:
            elements = content.reshape(-1)[: 0 if content.dtype.kind == "O" else None]
            self.found.samples[side][value] = Sample(content.shape, as_floats(spread(elements, _SAMPLED)))
        others = self.arrived[1 - side]
        uses = 0
        for option in options:
            other = others.get(option.of(1 - side))
            if other is None:
                uses += option not in self.found.misfits
                continue
            pair = content, unspilled(other.content)
            self._compare(option, pair[side], pair[1 - side])
            other.uses -= 1
            if not other.uses:
                del others[option.of(1 - side)]
                self.waiting[1 - side] -= other.nbytes
                if isinstance(other.content, Spilled) and os.name == "posix":  # which can remove a mapped file
                    Path(other.content.path).unlink()
        if uses:
            nbytes = 0 if isinstance(content, np.memmap) else content.nbytes
            if sum(self.waiting) + nbytes > self.plan.memory_limit // 4 and nbytes > SMALL:
                content, nbytes = self.files.put(content), 0
            self.arrived[side][value] = _Waiting(content, nbytes, uses)
            self.waiting[side] += nbytes

    def _hold(self, value: int, content: NDArray[Any]) -> None:
        if not isinstance(content, np.memmap) and content.nbytes > SMALL:
            if self._held_bytes + content.nbytes > self.plan.memory_limit // 4:
                content = self.files.put(content)
            else:
                self._held_bytes += content.nbytes
        self.found.held[value] = content

    def held(self) -> int:
        """Return the number of bytes of values that wait, are held or are being compared."""
        if sum(nbytes for *_, nbytes in self.busy) > self.plan.memory_limit // 8:
            self.settle()
        return self._held_bytes + sum(self.waiting) + sum(nbytes for *_, nbytes in self.busy)

    def settle(self) -> None:
        """Wait until all pairs are compared."""
        for option, future, _ in self.busy:
            self.found.errors[option] = future.result()
        self.busy.clear()

    def _compare(self, option: Option, reference: NDArray[Any], candidate: NDArray[Any]) -> None:
        if reference.shape != candidate.shape:
            shapes = shape_text(reference.shape), shape_text(candidate.shape)
            why = f"the shape is {shapes[0]} in the reference and {shapes[1]} in the candidate"
            if candidate.ndim > 2 and np.moveaxis(candidate, -1, 1).shape == reference.shape:
                why += ", which seems to have its channels last"
            self.found.misfits[option] = why
            return
        if (reference.dtype.kind == "O") != (candidate.dtype.kind == "O"):
            self.found.misfits[option] = "one side has strings, the other numbers"
            return
        plan = self.plan
        axis = classes_axis(reference) if option.reference in plan.outputs else None

        def compute() -> ErrorStats:
            actual = candidate
            if option.scale[0]:  # the real numbers that quantized integers represent
                actual = scale_of(self.candidate, option).real(candidate)
            return ErrorStats.of(reference, actual, rtol=plan.rtol, atol=plan.atol, argmax=axis, feed=self.number)

        nbytes = reference.nbytes + candidate.nbytes
        if nbytes <= 2 * SMALL:
            self.found.errors[option] = compute()
        else:
            self.busy.append((option, self.pool.submit(compute), nbytes))


# --- in a worker ----------------------------------------------------------------------------------------------------

_local = threading.local()


def run_remote(token: str, payload: bytes, numbered: tuple[int, Mapping[str, Any]]) -> bytes:
    """Run the pickled sides and plan on a feed in a worker of an executor, which reuses sessions for the next feed."""
    if getattr(_local, "token", "") != token:
        _local.sides, _local.plan = pickle.loads(payload)  # noqa: S301 (our own)
        _local.token = token
    number, feed = numbered
    return pickle.dumps(run_both_ways(_local.sides, _local.plan, feed, number))
