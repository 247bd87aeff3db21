"""What a quantized model would compute with parts of it in float, and the fewest nodes that have to stay in float.

Rounding errors of different tensors add up like independent noise. So what each tensor alone does to the outputs, the
others being in float, says which nodes to put back (`Search`); runs of mixed models decide how many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.conditions import Condition
from onnx_nb.analysis.compare.metrics import classes_axis
from onnx_nb.analysis.compare.mixed import Mixer, flag_of
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, quoted
from onnx_nb.analysis.results import Table
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.submodel.partition import partition

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Point
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress

_PARTS: Final = 12
"""Number of parts of a model, from one of which on it runs again."""
_PRUNED: Final = 48
"""Maximum number of nodes in vain that are tried without, once the target is reached."""


def smallest(units: Sequence[frozenset[str]], reaches: Callable[[frozenset[str]], bool]) -> frozenset[str] | None:
    """Return nodes of few units that reach a target: the first ones, without those that are not needed.

    None if all of them do not reach it.
    """

    def union(some: Iterable[frozenset[str]]) -> frozenset[str]:
        return frozenset[str]().union(*some)

    if reaches(frozenset()):
        return frozenset()
    low, high = 0, 1
    while high < len(units) and not reaches(union(units[:high])):
        low, high = high, high * 2
    high = min(high, len(units))
    if high == len(units) and not reaches(union(units)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(union(units[:middle])) else (middle, high)
    chosen = list(units[:high])
    for unit in chosen[:-1][::-1][:_PRUNED]:
        less = [each for each in chosen if each is not unit]
        if union(less) != union(chosen) and reaches(union(less)):
            chosen = less
    return union(chosen)


@dataclass(frozen=True)
class ExclusionStep:
    """What the outputs are like once one more region is in float."""

    name: str
    """Point or node that is put back to float in this step; empty for the quantized model itself."""
    nodes: tuple[str, ...]
    """Names of the reference's nodes that this step puts back."""
    sqnr: float
    """Signal to noise ratio, in dB, of the worst output."""
    kl: float
    """Mean Kullback-Leibler divergence, in nats, of the softmax of the worst output from that of the reference.

    Over the axis of the classes: 1 where there are four or more, else the last."""
    top1: float
    """Fraction of the rows of the worst output whose largest value is at the same index."""


@dataclass(frozen=True, repr=False)
class ExclusionCurve(Table):
    """The errors of the outputs against the number of regions that are in float: what putting them back gains.

    Examples
    --------
    >>> curve = ExclusionCurve((ExclusionStep("", (), 18.0, 0.02, 0.9), ExclusionStep("y", ("mm",), 31.0, 0.001, 1.0)))
    >>> curve
    ExclusionCurve(18.0 dB, with 1 region in float 31.0 dB)
    >>> curve.nodes(1)
    ['mm']
    """

    steps: tuple[ExclusionStep, ...] = ()
    """The quantized model, then a step for each region that is put back, in addition to those before it."""

    def nodes(self, count: int | None = None) -> list[str]:
        """Return the nodes of the first regions, all if ``count`` is None, for `mixed` and ``nodes_to_exclude``."""
        return [name for step in self.steps[: None if count is None else count + 1] for name in step.nodes]

    @property
    def _columns(self) -> list[str]:
        return ["regions", "name", "nodes", "sqnr", "kl", "top1"]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step: how many regions and nodes are in float, the region added last, the errors."""
        rows, nodes = [], 0
        for number, step in enumerate(self.steps):
            nodes += len(step.nodes)
            known = {"regions": number, "name": step.name, "nodes": nodes}
            rows.append(known | {"sqnr": step.sqnr, "kl": step.kl, "top1": step.top1})
        return rows

    def __repr__(self) -> str:
        found = [f"{step.sqnr:.1f} dB" for step in self.steps[:1]]
        more = count_text(len(self.steps) - 1, "region")
        found += [f"with {more} in float {self.steps[-1].sqnr:.1f} dB"] if len(self.steps) > 1 else []
        return f"ExclusionCurve({', '.join(found)})"


class Outcome(NamedTuple):
    """How far the outputs of a mixed model are from those of the reference."""

    sqnr: float
    kl: float
    top1: float


class Runs:
    """Runs of mixed models on some feeds, each in the same sessions: only what lies behind a change runs again.

    The model is divided into parts with an input for each quantized tensor that says whether it is rounded. What a part
    computes stays until an input of it, or of an earlier part, changes.
    """

    def __init__(self, mixer: Mixer, feeds: Iterable[Mapping[str, Any]]) -> None:
        self.mixer = mixer
        self.executed = 0
        """Number of parts that have run, for each feed."""
        self._right = [(feed, sessions.run(mixer.reference, feed, optimize=False)) for feed in feeds]
        model = mixer.switchable()
        rounded = [node.output[0] for node in model.proto.graph.node if node.op_type == "If"]
        at = [rounded[len(rounded) * part // _PARTS] for part in range(1, _PARTS)]
        self._parts: list[tuple[Any, list[str], str]] = []
        for part in partition(model, list(dict.fromkeys(at))):
            read = [value.name for value in part.proto.graph.input if value.name not in part.initializers]
            self._parts.append((sessions.create(part, optimize=False), read, part.name))
        self._values = [dict(feed) for feed, _ in self._right]
        self._flags: dict[str, bool] = {}

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self._parts)

    def outcome(self, nodes: Iterable[str]) -> Outcome:
        """Return the errors of the outputs with some nodes of the reference in float."""
        excluded = self.mixer.completed(nodes)
        free = {tensor for tensor, touching in self.mixer.touched_by.items() if touching <= excluded}
        return _outcome(self.outputs(free))

    def outputs(self, free: Collection[str]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return the outputs of the reference and of the model with some tensors in float, for each feed."""
        flags = {flag_of(tensor): tensor in free for tensor in self.mixer.touched_by}
        changed = {name for name, flag in flags.items() if self._flags.get(name) != flag}
        places = [at for at, (_, read, _) in enumerate(self._parts) if changed.intersection(read) or not self._flags]
        self._flags = {}  # until all parts have run
        for session, read, name in self._parts[min(places, default=len(self._parts)) :]:
            self.executed += 1
            for values in self._values:
                given = {each: np.asarray(flags[each]) if each in flags else values[each] for each in read}
                values.update(sessions.run_session(session, given, name=name))
        self._flags = flags
        return [(right, values) for (_, right), values in zip(self._right, self._values, strict=True)]


def _outcome(found: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Outcome:
    """Return the errors of outputs over all feeds, of the worst output each."""
    squares: dict[str, list[float]] = {}
    rows: dict[str, list[float]] = {}
    for right, actual in found:
        for name, array in right.items():
            if getattr(array, "dtype", np.dtype(object)).kind != "f" or not array.size:
                continue
            mine, yours = array.astype(np.float64), actual[name].astype(np.float64)
            both = squares.setdefault(name, [0.0, 0.0])
            both[0] += float(np.vdot(mine, mine))
            both[1] += float(np.vdot(mine - yours, mine - yours))
            axis = classes_axis(array)
            if axis is None or array.shape[axis] < 2:
                continue
            logs = [_log_softmax(each, axis) for each in (mine, yours)]
            apart = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=axis)
            same = mine.argmax(axis=axis) == yours.argmax(axis=axis)
            sums = rows.setdefault(name, [0.0, 0.0, 0])
            for at, each in enumerate((apart.sum(), same.sum(), same.size)):
                sums[at] += float(each)
    ratios = [_ratio(*both) for both in squares.values()]
    return Outcome(
        min(ratios, default=math.inf),
        max((sums[0] / sums[2] for sums in rows.values()), default=math.nan),
        min((sums[1] / sums[2] for sums in rows.values()), default=math.nan),
    )


def _ratio(signal: float, noise: float) -> float:
    if math.isnan(noise):
        return -math.inf
    return 10 * math.log10(signal / noise) if signal and noise else math.inf if not noise else -math.inf


def _log_softmax(array: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    shifted = array - array.max(axis=axis, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return found


def units(mixer: Mixer, points: Iterable[Point]) -> dict[str, frozenset[str]]:
    """Return the nodes that put each point back to float, by its name, the largest isolated error first."""

    def size(point: Point) -> float:
        found = point.error_size("isolated")
        return found.rel_l2 if found is not None and not math.isnan(found.rel_l2) else 0.0

    found: dict[str, frozenset[str]] = {}
    for point in sorted(points, key=size, reverse=True):
        own = {mixer.makers.get(point.reference, "")} & mixer.nodes.keys()
        around = {each for one in point.quantizers for each in mixer.touching(one.name)}
        if point.quantizers and (own or around):
            found[point.name] = mixer.completed(own | around)
    return found


def curve(
    ordered: Iterable[tuple[str, frozenset[str]]], runs: Runs, count: int, progress: Progress | None
) -> ExclusionCurve:
    """Return the curve of putting back the nodes of regions one after another, of those that add any."""
    report = progress or (lambda _done, _what: None)
    steps = [ExclusionStep("", (), *runs.outcome(()))]
    excluded: set[str] = set()
    for name, nodes in ordered:
        if len(steps) > count:
            break
        if nodes <= excluded:
            continue
        report(len(steps) / (count + 1), f"{quoted(name)} in float")
        added = tuple(each for each in runs.mixer.nodes if each in nodes - excluded)
        excluded |= nodes
        steps.append(ExclusionStep(name, added, *runs.outcome(excluded)))
    return ExclusionCurve(tuple(steps))


class WhatIf:
    """Base of comparisons: what the candidate would compute with parts of it in float."""

    points: tuple[Point, ...]
    models: tuple[Model, Model] | None
    feed: Mapping[str, Any] | None

    def mixed(self, exclude: Iterable[str]) -> Model:
        """Return the quantized model with some nodes put back to float, with the scales that it has.

        Parameters
        ----------
        exclude
            Names of nodes of the reference, as in ``quantize_static(nodes_to_exclude=…)``.

        Raises
        ------
        OnnxNbError
            If the candidate is no QDQ model, a name is not that of a quantized node, or the models are not known.
        """
        return Mixer(*self._known_models()).mixed(exclude)

    def suggest_exclusion(self, target: str | float) -> list[str]:
        """Return few nodes that have to stay in float for the outputs to reach a signal to noise ratio.

        Points are put back to float, the one with the largest isolated error first, until the target is reached on the
        first feed; then those that are not needed are quantized again. Each step runs a mixed model.

        Parameters
        ----------
        target
            Smallest SQNR of all outputs, such as ``"30 dB"`` or ``30``.

        Returns
        -------
        list of str
            Names of nodes of the reference, ready for ``quantize_static(nodes_to_exclude=…)`` and `mixed`.

        Raises
        ------
        OnnxNbError
            If all quantized nodes in float do not reach it, or for the reasons of `mixed`.
        """
        bound = Condition.read(f"sqnr >= {str(target).strip()}").bound
        runs, regions = self._what_if(None)
        units = [*dict.fromkeys(regions.values()), frozenset(runs.mixer.nodes)]
        found = smallest(units, lambda nodes: runs.outcome(nodes).sqnr >= bound)
        if found is None:
            message = f"the outputs do not reach {bound:g} dB with all quantized nodes in float."
            raise OnnxNbError(message, advice="What differs is not only quantization: see c.message.")
        return [name for name in runs.mixer.nodes if name in found]

    def nodes_to_exclude(self, names: Iterable[str]) -> list[str]:
        """Return the nodes of the reference that have to stay in float for regions to be in float.

        Parameters
        ----------
        names
            Names of points that have quantizers, or of quantized nodes of the reference.

        Raises
        ------
        OnnxNbError
            If one of them is not quantized, or for the reasons of `mixed`.
        """
        mixer = Mixer(*self._known_models())
        regions = units(mixer, self.points)
        found = {node for name in names for node in mixer.nodes_of(name, regions)}
        return [name for name in mixer.nodes if name in found]

    def exclusion_curve(
        self,
        order: Iterable[str] | None = None,
        *,
        count: int | None = None,
        feeds: Any = None,
        progress: Progress | None = None,
    ) -> ExclusionCurve:
        """Put regions back to float one after another, and return the errors of the outputs after each.

        Only what lies behind a region runs again.

        Parameters
        ----------
        order
            Names of points that have quantizers, or of quantized nodes of the reference; by default all such points,
            the one with the largest isolated error first.
        count
            Maximum number of regions that are put back; all if ``None``.
        feeds
            Feeds of the reference, as `read_feeds` takes them; the first one of the comparison if ``None``.
        progress
            Called before each step with the fraction done and what comes next. If it raises, the work ends.

        Returns
        -------
        ExclusionCurve
            The first step is the quantized model. Regions that are in float already have no step.

        Raises
        ------
        OnnxNbError
            If a name is that of no quantized region, or for the reasons of `mixed`.
        """
        runs, regions = self._what_if(feeds)
        names = list(regions if order is None else order)
        ordered = [(name, runs.mixer.nodes_of(name, regions)) for name in names]
        return curve(ordered, runs, len(names) if count is None else count, progress)

    def _what_if(self, feeds: Any) -> tuple[Runs, dict[str, frozenset[str]]]:
        """Return runs of mixed models, and the nodes that put each point back to float, the worst first."""
        reference, candidate = self._known_models()
        given = [dict(self.feed or {})] if feeds is None else read_feeds(reference, feeds)
        mixer = Mixer(reference, candidate)
        return Runs(mixer, given), units(mixer, self.points)

    def _known_models(self) -> tuple[Model, Model]:
        if self.models is None:
            raise OnnxNbError("the models of this comparison are not known.", advice="Call compare(…) of both again.")
        return self.models
