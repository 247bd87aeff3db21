"""What a quantized model would compute with parts of it in float, and the fewest nodes that have to stay in float.

Rounding errors of different tensors add up like independent noise. So what each tensor alone does to the outputs, the
others being in float, says which nodes to put back (`ExclusionSearch`); runs of mixed models decide how many.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.comparison import Comparison, Point
from onnx_nb.analysis.compare.metrics import Condition, classes_axis
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, decibels_text, quoted
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.quantize.mixed import Mixer, flag_of
from onnx_nb.analysis.results import Table
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.statistics import Floats
from onnx_nb.analysis.submodel.partition import partition

_PARTS: Final = 12
"""Number of parts of a model, from one of which on it runs again."""
_TRIALS: Final = 4
"""Number of the most promising additions that are tried at each step."""
_FIRST_TRIALS: Final = 96
"""Number more at the first step, and fewer the more nodes are in float: there an estimate off by little costs most."""
_FULL_ROUNDS: Final = 2
"""Number of steps at which all additions are tried, if not only by estimates: what two tensors do together may be far
from the sum."""
_RETRIES: Final = 8
"""Number of times that the target is raised until held-out feeds reach it."""
Score = Callable[[Sequence[Mapping[str, NDArray[Any]]]], float]


@known_arguments
def mixed(comparison: Comparison, exclude: Iterable[str]) -> Model:
    """Return the quantized model with some nodes put back to float, with the scales that it has.

    Parameters
    ----------
    comparison
        Comparison of a float model with its quantized copy, from `compare`.
    exclude
        Names of nodes of the reference, as in ``quantize_static(nodes_to_exclude=…)``.

    Returns
    -------
    Model

    Raises
    ------
    OnnxNbError
        If the candidate is neither a QDQ model nor one with only its weights quantized, a name is not that of a
        quantized node, or the models are not known.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.compare.compare import compare
    >>> exact = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) { [exp] h = Exp(x)  y = Tanh(h) }''')
    >>> rough = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] y) <float s = {0.1}, int8 z = {0}> {
    ...   [exp] h = Exp(x)  q = QuantizeLinear(h, s, z)  d = DequantizeLinear(q, s, z)  y = Tanh(d) }''')
    >>> [node.op_type for node in mixed(compare(exact, rough), ["exp"]).proto.graph.node]
    ['Exp', 'Tanh']
    """
    return WhatIf(comparison).mixer.mixed(exclude)


@known_arguments
def suggest_exclusion(
    comparison: Comparison,
    *,
    sqnr: str | float | None = None,
    score: Score | None = None,
    minimum: float = math.nan,
    feeds: Any = None,
    held_out: Any = None,
    progress: Progress | None = None,
) -> list[str]:
    """Return few nodes that have to stay in float for the outputs to reach a signal to noise ratio, or a score.

    What each tensor does to the outputs if it alone is rounded says which nodes to try first; runs of mixed models
    decide which to put back, and in the end which can be quantized after all.

    Parameters
    ----------
    comparison
        Comparison of a float model with its quantized copy, from `compare`.
    sqnr
        Smallest SQNR of all outputs, such as ``"> 30 dB"`` or ``30``.
    score
        Instead of ``sqnr``: a function of the outputs, a dict of arrays by name for each feed, that returns a number
        such as the accuracy; larger is better.
    minimum
        Smallest value of ``score``.
    feeds
        Feeds of the reference, as `read_feeds` takes them; the first one of the comparison if ``None``.
    held_out
        Other feeds that have to reach the target, too. ``score`` has the outputs of these, or those of ``feeds``.
    progress
        Called with the fraction of the tensors that were tried and the next one. If it raises, the work ends.

    Returns
    -------
    list of str
        Names of nodes of the reference, ready for ``quantize_static(nodes_to_exclude=…)`` and `mixed`.

    Raises
    ------
    OnnxNbError
        If all quantized nodes in float do not reach it, not one of ``sqnr`` and ``score`` is given, or for the reasons
        of `mixed`.
    """
    if (sqnr is None) == (score is None) or (score is None) != math.isnan(minimum):
        raise OnnxNbError("one target is needed.", advice='sqnr="> 30 dB", or score=function and minimum=number.')
    others = None if held_out is None else WhatIf(comparison, held_out, score).runs
    return WhatIf(comparison, feeds, score).suggestion(minimum if sqnr is None else sqnr, others, progress)


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
    seconds: float = math.nan
    """How much longer a run takes than that of the quantized model; NaN if nothing was timed, see `sensitivity`."""


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

    @classmethod
    def of(
        cls,
        comparison: Comparison,
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
        comparison
            Comparison of a float model with its quantized copy, from `compare`.
        order
            Names of points that have quantizers, or of quantized nodes of the reference; by default those first that
            gain most for the number of nodes, as in `suggest_exclusion`.
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
        return WhatIf(comparison, feeds).curve(order, count, progress)

    def nodes(self, count: int | None = None) -> list[str]:
        """Return the nodes of the first regions, all if ``count`` is None, for `mixed` and ``nodes_to_exclude``."""
        return [name for step in self.steps[: None if count is None else count + 1] for name in step.nodes]

    _columns = ("regions", "name", "nodes", "sqnr", "kl", "top1", "seconds")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step: how many regions and nodes are in float, the region added last, the errors."""
        counts = itertools.accumulate(len(step.nodes) for step in self.steps)
        return [
            {"regions": number, **asdict(step), "nodes": count}
            for number, (step, count) in enumerate(zip(self.steps, counts, strict=True))
        ]

    def __repr__(self) -> str:
        texts = [decibels_text(step.sqnr) for step in self.steps[:1]]
        more = count_text(len(self.steps) - 1, "region")
        texts += [f"with {more} in float {decibels_text(self.steps[-1].sqnr)}"] if len(self.steps) > 1 else []
        return f"ExclusionCurve({', '.join(texts)})"


class Outcome(NamedTuple):
    """How far the outputs of a mixed model are from those of the reference."""

    sqnr: float
    kl: float
    top1: float
    noise: Floats
    """Power of the error of each output divided by that of the output."""
    score: float
    """What is to reach a target: the user's score, or ``sqnr``."""


class Runs:
    """Runs of mixed models on some feeds, each in the same sessions: only what lies behind a change runs again.

    The model is divided into parts with an input for each quantized tensor that says whether it is rounded. What a part
    computes stays until an input of it, or of an earlier part, changes. An outcome that is known does not run again.
    """

    def __init__(self, mixer: Mixer, feeds: Iterable[Mapping[str, Any]], score: Score | None = None) -> None:
        self.mixer, self.score = mixer, score
        self.executed = 0
        """Number of parts that have run, for each feed."""
        self._right = [(feed, sessions.run(mixer.reference, feed, optimize=False)) for feed in feeds]
        places = [len(mixer.rounded) * part // _PARTS for part in range(1, _PARTS)]
        at = dict.fromkeys(mixer.rounded[place] for place in places if mixer.rounded)
        model = mixer.switchable()
        self._parts: list[tuple[Any, list[str], str]] = []
        for part in partition(model, list(at)) if at else [model]:
            read = [value.name for value in part.proto.graph.input if value.name not in part.initializers]
            self._parts.append((sessions.create(part, optimize=False, transient=True), read, part.name))
        self._lock = threading.Lock()
        self._values = [dict(feed) for feed, _ in self._right]
        self._flags: dict[str, bool] = {}
        self._known: dict[bytes, Outcome] = {}
        """Outcomes by the flags of all tensors."""

    def outcome(self, nodes: Iterable[str]) -> Outcome:
        """Return the errors of the outputs with some nodes of the reference in float."""
        return self.with_tensors(self.mixer.free(nodes))

    def with_tensors(self, free: Collection[str]) -> Outcome:
        """Return the errors of the outputs with some tensors and weights of the reference in float."""
        with self._lock:
            flags = {flag_of(tensor): tensor in free for tensor in self.mixer.touched_by}
            key = bytes(flags.values())
            if key in self._known:
                return self._known[key]
            delta = {name for name, flag in flags.items() if self._flags.get(name) != flag}
            places = [at for at, (_, read, _) in enumerate(self._parts) if delta.intersection(read) or not self._flags]
            self._flags = {}  # until all parts have run
            for session, read, name in self._parts[min(places, default=len(self._parts)) :]:
                self.executed += 1
                for values in self._values:
                    feeds = {port: np.asarray(flags[port]) if port in flags else values[port] for port in read}
                    values.update(sessions.run_session(session, feeds, name=name))
            self._flags = flags
            outcome = _outcome((right, values) for (_, right), values in zip(self._right, self._values, strict=True))
            if self.score is not None:
                names = self._right[0][1].keys()
                outputs = [{name: values[name] for name in names} for values in self._values]
                outcome = outcome._replace(score=float(self.score(outputs)))
            self._known[key] = outcome
            return outcome


def _outcome(pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Outcome:
    """Return the errors of outputs over all feeds, of the worst output each."""
    squares = defaultdict[str, Floats](lambda: np.zeros(2))
    rows = defaultdict[str, Floats](lambda: np.zeros(3))
    for right, actual in pairs:
        for name, array in right.items():
            if getattr(array, "dtype", np.dtype(object)).kind != "f" or not array.size:
                continue
            reference, candidate = array.astype(np.float64), actual[name].astype(np.float64)
            squares[name] += [np.vdot(term, term) for term in (reference, reference - candidate)]
            axis = classes_axis(array)
            if axis is None or array.shape[axis] < 2:
                continue
            logs = [_log_softmax(term, axis) for term in (reference, candidate)]
            # not below 0 but for rounding
            apart = np.maximum((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=axis), 0.0)
            same = reference.argmax(axis=axis) == candidate.argmax(axis=axis)
            rows[name] += apart.sum(), same.sum(), same.size
    noise = np.asarray([_ratio(*both.tolist()) for both in squares.values()])
    worst = float(noise.max(initial=0.0))
    sqnr = -10 * math.log10(worst) if worst else math.inf  # of infinite noise minus infinity
    kl = float(max((sums[0] / sums[2] for sums in rows.values()), default=math.nan))
    top1 = float(min((sums[1] / sums[2] for sums in rows.values()), default=math.nan))
    return Outcome(sqnr, kl, top1, noise, sqnr)


def _ratio(signal: float, noise: float) -> float:
    if math.isnan(noise):
        return math.inf
    return noise / signal if signal else math.inf if noise else 0.0


def _log_softmax(array: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    logits = array - array.max(axis=axis, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=axis, keepdims=True)))


class ExclusionSearch:
    """Puts nodes back to float one after another: first those that gain most for the number of nodes."""

    def __init__(self, runs: Runs, progress: Progress | None = None) -> None:
        self._runs, nodes_of = runs, runs.mixer.touched_by
        report = progress or (lambda _part, _what: None)
        tensors = [tensor for tensor in nodes_of if tensor not in runs.mixer.exact]
        self._costs: dict[str, Floats] = {}
        """What rounding a tensor and nothing else does to the outputs: `Outcome.noise`."""
        self._of_node: dict[str, list[str]] = {}
        for number, tensor in enumerate(tensors):
            report(number / len(tensors), f"only {quoted(tensor)} rounded")
            self._costs[tensor] = runs.with_tensors(nodes_of.keys() - {tensor}).noise
            for node in nodes_of[tensor]:
                self._of_node.setdefault(node, []).append(tensor)

    def steps(
        self, bound: float = math.inf, progress: Progress | None = None, *, by_node: bool = False
    ) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield what to put back next, a tensor and its nodes, until the outputs reach a bound.

        With a bound, the most promising additions are tried at each step; ``by_node``, single nodes, all in the first.
        """
        exclusion, outcome = frozenset[str](), self._runs.outcome(())
        every, report = frozenset(self._runs.mixer.nodes), progress or (lambda _part, _what: None)
        gains: dict[str, float] = {}  # of each addition, when it was tried last
        for step in itertools.count():
            if outcome.score >= bound or exclusion == every:
                return
            moves = self._promising(exclusion, outcome.noise, bound, by_node=by_node) or [("", every)]
            several = 1 if math.isinf(bound) else max(_TRIALS, _FIRST_TRIALS // (1 + len(exclusion)))
            likely = moves[:several]
            if by_node:  # what was measured is right also where errors do not add up
                by_gain = sorted(moves, key=lambda move: -gains.get(move[0], 0.0))
                likely = moves if step < _FULL_ROUNDS else [*likely, *by_gain[:several]]
            for name, nodes in dict.fromkeys(likely):
                report(len(exclusion) / len(every), f"{quoted(name)} tried in float")
                score = self._runs.outcome(exclusion | nodes).score
                gains[name] = math.inf if score >= bound else (score - outcome.score) / (1 if by_node else len(nodes))
            best = max(likely, key=lambda move: (gains[move[0]], -len(move[1])))
            exclusion |= best[1]
            outcome = self._runs.outcome(exclusion)
            yield best

    def fewest(self, bound: float, progress: Progress | None = None) -> frozenset[str] | None:
        """Return few nodes that have to be in float to reach a bound; None if all of them do not reach it."""
        best: frozenset[str] | None = None
        for by_node in (False, True):
            nodes = frozenset[str]()
            for _, more in self.steps(bound, stage(progress, by_node / 2, (by_node + 1) / 2), by_node=by_node):
                nodes |= more
                if best is not None and len(nodes) >= len(best):
                    break
            if self._runs.outcome(nodes).score >= bound:
                nodes = self._pruned(nodes, bound)
                best = nodes if best is None or len(nodes) < len(best) else best
            if best is None or len(best) < 2:
                break
        return best

    def _promising(
        self, exclusion: frozenset[str], noise: Floats, bound: float, *, by_node: bool
    ) -> list[tuple[str, frozenset[str]]]:
        """Return tensors or nodes with what puts them back, first those that should gain most for each node."""
        mixer = self._runs.mixer
        weights = np.where(noise > (10 ** (-bound / 10) if self._runs.score is None else 0.0), noise, 0.0)
        weights = np.nan_to_num(weights / weights.max(initial=np.finfo(float).tiny), nan=1.0)
        scores: dict[frozenset[str], tuple[float, str]] = {}
        for name in mixer.nodes if by_node else self._costs:
            extra = (mixer.completed({name}) if by_node else mixer.touched_by[name]) - exclusion
            if extra and extra not in scores:
                near = {entry for node in extra for entry in self._of_node.get(node, ())}
                free = [entry for entry in near if mixer.touched_by[entry] - exclusion <= extra]
                scores[extra] = sum(float(self._costs[entry] @ weights) for entry in free) / len(extra), name
        return [(scores[extra][1], extra) for extra in sorted(scores, key=lambda extra: -scores[extra][0])]

    def _pruned(self, nodes: frozenset[str], bound: float) -> frozenset[str]:
        """Return the nodes in float without those that are not needed to reach a ratio in dB."""
        nodes_of = self._runs.mixer.touched_by

        def loss(node: str) -> float:
            free = [tensor for tensor in self._of_node.get(node, ()) if nodes_of[tensor] <= nodes]
            return sum(float(self._costs[tensor].max(initial=0.0)) for tensor in free)

        left = nodes
        for node in sorted(nodes, key=loss):
            less = left - self._runs.mixer.completed({node})
            if self._runs.outcome(less).score >= bound:
                left = less
        # what another one brings about too: the activation behind a node, where rounding is what both stand for
        for node in reversed(self._runs.mixer.nodes):
            if self._runs.mixer.free(left - {node}) == self._runs.mixer.free(left):
                left -= {node}
        return left


def units(mixer: Mixer, points: Iterable[Point]) -> dict[str, frozenset[str]]:
    """Return the nodes that put each point back to float, by its name."""
    regions: dict[str, frozenset[str]] = {}
    for point in points:
        nodes = {mixer.makers.get(point.reference, "")} & mixer.nodes.keys()
        around = {node for one in point.quantizers for node in mixer.touching(one.name)}
        if point.quantizers and (nodes or around):
            regions[point.name] = mixer.completed(nodes | around)
    return regions


class WhatIf:
    """A comparison with a quantized candidate, and the sessions in which parts of the candidate run in float.

    ``feeds`` are those of the reference, as `read_feeds` takes them; the first one of the comparison if ``None``.
    ``score`` is that of `suggest_exclusion`.
    """

    def __init__(self, comparison: Comparison, feeds: Any = None, score: Score | None = None) -> None:
        self._points, self._feeds, self._score = comparison.points, feeds, score
        self.comparison = comparison

    @functools.cached_property
    def mixer(self) -> Mixer:
        """The nodes that can be put back to float; raises `OnnxNbError` if the models are not known or not fit."""
        if self.comparison.models is None:
            raise OnnxNbError("the models of this comparison are not known.", advice="Call compare(…) of both again.")
        return Mixer(*self.comparison.models, self._points)

    @functools.cached_property
    def runs(self) -> Runs:
        """Runs of mixed models, which share what is already known."""
        first = [dict(self.comparison.feed or {})]
        feeds = first if self._feeds is None else read_feeds(self.mixer.reference, self._feeds)
        return Runs(self.mixer, feeds, self._score)

    def suggestion(self, target: str | float, more: Runs | None = None, progress: Progress | None = None) -> list[str]:
        """Return nodes that have to be in float to reach a target, also on the feeds of other runs."""
        text = str(target).strip()
        bound = Condition.read(text if text.startswith(">") else f">= {text}", "sqnr").bound
        search, reach = ExclusionSearch(self.runs, stage(progress, 0.0, 0.5)), bound
        for _ in range(_RETRIES):
            exclusion = search.fewest(reach, stage(progress, 0.5, 1.0))
            if exclusion is None:
                break
            lack = 0.0 if more is None else bound - more.outcome(exclusion).score
            if lack <= 0:
                return [name for name in self.mixer.nodes if name in exclusion]
            reach = max(reach, self.runs.outcome(exclusion).score) + 1.1 * lack
        what = f"reach {bound:g}{' dB' if self._score is None else ''} with all quantized nodes in float"
        if exclusion is not None:
            what = f"reach {bound:g} on the held-out feeds where they reach {reach:.4g} on the others"
        raise OnnxNbError(f"the outputs do not {what}.", advice="What differs is not only quantization: see c.message.")

    def always_quantized(self) -> dict[str, str]:
        """Return the names of quantized points that cannot be put back to float, and why not."""
        names = [point.name for point in self._points if point.quantizers]
        if self.comparison.models is None:
            why = "To put regions back to float, compare both models again: this comparison does not have them."
            return dict.fromkeys(names, why)
        try:
            free = units(self.mixer, self._points) if names else {}
        except OnnxNbError as error:
            return dict.fromkeys(names, str(error))
        why = "This cannot be put back to float: no pair of QuantizeLinear and DequantizeLinear rounds it."
        return dict.fromkeys([name for name in names if name not in free], why)

    def curve(
        self, order: Iterable[str] | None = None, count: int | None = None, progress: Progress | None = None
    ) -> ExclusionCurve:
        """Return what `ExclusionCurve.of` does."""
        mixer = self.mixer
        moves: Iterable[tuple[str, frozenset[str]]]
        if order is None:
            names = {one.name: point.name for point in reversed(self._points) for one in point.quantizers}
            search = ExclusionSearch(self.runs, stage(progress, 0.0, 0.5))
            moves = ((names.get(tensor, tensor), nodes) for tensor, nodes in search.steps())
            progress = stage(progress, 0.5, 1.0)
        else:
            regions = units(mixer, self._points)
            moves = [(name, mixer.nodes_of(name, regions)) for name in order]
        report = progress or (lambda _part, _what: None)
        report(0.0, "quantized")
        steps = [ExclusionStep("", (), *self.runs.outcome(())[:3])]
        exclusion = frozenset[str]()
        for name, nodes in moves if count is None or count > 0 else ():
            extra = tuple(node for node in mixer.nodes if node in nodes - exclusion)
            if not extra:
                continue
            report(len(exclusion) / len(mixer.nodes), f"{quoted(name)} in float")
            exclusion |= nodes
            steps.append(ExclusionStep(name, extra, *self.runs.outcome(exclusion)[:3]))
            if count is not None and len(steps) > count:
                break
        return ExclusionCurve(tuple(steps))
