"""Two profiles compared: what got slower or faster, by the nodes that both have, and what is noise.

Kernels of two profiles are compared where they compute the same nodes. Where one profile fused what the other ran by
itself, the smallest sets of nodes are compared that each profile computes by kernels of its own.

A set is slower or faster if four tests agree: the rank test of Mann and Whitney on its runs, corrected for the number
of sets (Benjamini and Hochberg) and for runs that resemble the one before; a difference beyond the spread of both; at
least 5%; and, between profiles of equal settings, a ratio that stands out from those of all sets, which share the drift
of the machine and what differs from session to session. Between other settings a common factor may be their effect: it
is left in.

The speed of a kernel differs from session to session. If both profiles have runs of several, a set's time is the mean
of the medians of its sessions. Their variance is known then, drawn to that of sets which take about as long, and a test
of Student takes the place of the rank test, whose runs are not independent of each other.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, duration_text, quoted, shortened
from onnx_nb.analysis.results import Displayed, data_frame
from onnx_nb.analysis.scopes.scopes import scopes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from onnx_nb.analysis.profile.result import Kernel, Profile

ChangeBy = Literal["nodes", "operator", "scope"]
Verdict = Literal["slower", "faster", "noise", "only before", "only after"]
_COLUMNS: Final = (
    *("verdict", "name", "op", "before_op", "nodes", "before", "after", "difference", "noise"),
    *("before_provider", "provider", "ratio"),
)
_RESOLUTION: Final = 1e-6
"""Seconds in which onnxruntime counts."""
_FEW: Final = 5
"""Runs below which nothing is called slower or faster."""
_CHANCE: Final = 0.05
"""Share of false alarms among the changes that are called so; without any real change, the chance of one."""
_LEAST: Final = 0.05
"""Share of the time below which a difference is not worth a name."""
_MANY: Final = 10
"""Sets from which the drift of the machine is estimated."""
_TICKS: Final = 20
"""Resolutions of the clock that a set takes at least whose ratio is used for that."""
_OUTLYING: Final = 6.0
"""Standard deviations of the ratios of all sets, beyond which one of them stands out."""
_OUTLYING_MEANS: Final = 4.0
"""The same for means of several sessions, each of which is tested by itself."""
_TYPICAL: Final = 10
"""Degrees of freedom that the variance of sets which take about as long has beside that of a set."""
_LIKE: Final = 31
"""Sets that take about as long."""
_TO_DEVIATION: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


@dataclass(frozen=True)
class Change:
    """Time that a set of nodes took before and after."""

    verdict: Verdict
    """``"noise"`` if the difference may be chance."""
    name: str
    """First node of the set, or the operator or scope."""
    op: str
    """Operators of the kernels after."""
    before_op: str
    nodes: int
    before: float
    """Median of the seconds of a run; 0 if nothing ran."""
    after: float
    noise: float
    """Seconds that the spread of both and the resolution of the clock explain."""
    kernels: tuple[tuple[int, ...], tuple[int, ...]]
    """Indices of the kernels before and after."""
    before_provider: str
    provider: str
    difference: float
    """Seconds that it takes longer after, beyond `ProfileComparison.drift`."""


@dataclass(frozen=True, eq=False)
class ProfileComparison(Displayed):
    """Two profiles, and what differs between them. Made by `Profile.compare`."""

    before: Profile
    after: Profile

    @functools.cached_property
    def changes(self) -> tuple[Change, ...]:
        """A change for each set of nodes, the largest difference first, noise last."""
        return self._changes("nodes")

    @functools.cached_property
    def differences(self) -> tuple[str, ...]:
        """What differs between the two besides times, in words: settings, versions, shapes and the model."""
        about = [
            {
                "providers": ", ".join(profile.providers),
                "optimization": profile.optimization,
                "shapes": ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in profile.shapes.items()),
                "nodes": str(profile.graph.node_count),
                **profile.made_with,
            }
            for profile in (self.before, self.after)
        ]
        found = [
            f"{name} {value} → {about[1][name]}"
            for name, value in about[0].items()
            if value and about[1].get(name) and value != about[1][name]
        ]
        if about[0]["nodes"] == about[1]["nodes"] and self.before.graph.names != self.after.graph.names:
            found.append("names of nodes")
        return tuple(found)

    @property
    def drift(self) -> float:
        """Factor by which the machine was slower after: the median of all sets; 1 if settings differ or sets are few.

        Between profiles of different settings it may be the effect of these.
        """
        return self._common[2]

    @functools.cached_property
    def _common(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float, float]:
        """Factors that all sets share, of each run before and after; the drift; and the spread of the ratios' logs."""
        runs = [np.ones(len(profile.kernel_seconds)) for profile in (self.before, self.after)]
        both = {name: own for name, own in self._members("nodes").items() if all(own)}
        times = self._times(both)
        medians = [self._center(each, side) for side, each in enumerate(times)]
        long = np.minimum(*medians) >= _TICKS * _RESOLUTION
        if np.count_nonzero(long) < _MANY:
            return runs[0], runs[1], 1.0, 0.0
        for side, (each, median) in enumerate(zip(times, medians, strict=True)):
            shared = np.median(each[:, long] / median[long], axis=1)
            runs[side] = np.where(shared > 0, shared, 1.0)
        if self.differences:
            return runs[0], runs[1], 1.0, 0.0
        before, after = (
            self._center(each[:, long] / run[:, None], side)
            for side, (each, run) in enumerate(zip(times, runs, strict=True))
        )
        ratios = np.log(np.maximum(after, _RESOLUTION) / np.maximum(before, _RESOLUTION))
        middle = float(np.median(ratios))
        spread = _TO_DEVIATION * float(np.median(np.abs(ratios - middle)))
        return runs[0], runs[1], math.exp(middle), spread

    @property
    def message(self) -> str:
        """What got slower or faster, in a sentence."""
        before, after = self.before, self.after
        noise = _noise(before.kernel_seconds[:, None], after.kernel_seconds[:, None])[0] + _RESOLUTION
        difference = after.seconds - before.seconds
        times = f"{duration_text(before.seconds)} → {duration_text(after.seconds)}"
        if abs(difference) <= noise:
            text = f"{times}: a difference within the noise of {duration_text(noise)}"
        else:
            ratio = max(before.seconds, after.seconds) / max(min(before.seconds, after.seconds), 1e-12)
            text = f"{times}: {ratio:.2f}× {'slower' if difference > 0 else 'faster'}"
        if abs(math.log(self.drift)) > math.log1p(_LEAST):
            text += f", with settings equal and all sets together {self.drift:.2f}× as long, which is the machine"
        real = [change for change in self.changes if change.verdict != "noise"]
        for word, sign in (("slower", 1), ("faster", -1)):
            same = [change for change in real if change.difference * sign > 0]
            if same:
                first = same[0]
                size = duration_text(abs(first.difference))
                most = f"most {first.op or first.before_op} {quoted(shortened(first.name, 60))} by {size}"
                text += f"; {count_text(len(same), 'set')} of nodes {word}, {most}"
        if quiet := len(self.changes) - len(real):
            text += f"; {quiet:,} within the noise"
        if self.differences:
            text += f". What differs: {'; '.join(self.differences)}"
        runs = min(len(before.run_seconds), len(after.run_seconds))
        if runs < _FEW:
            text += f". Only {count_text(runs, 'run')}: a change is known from noise by {_FEW} or more of each"
        return f"{text}."

    def rows(self, by: ChangeBy = "nodes") -> list[dict[str, Any]]:
        """Return a row for each set of nodes, operator or scope, the largest difference first, noise last.

        Parameters
        ----------
        by
            ``"nodes"`` (the smallest sets that both profiles compute by kernels of their own), ``"operator"`` (of the
            kernels) or ``"scope"``.
        """
        if by not in get_args(ChangeBy):
            listed = ", ".join(map(repr, get_args(ChangeBy)))
            raise OnnxNbError(f"profiles are not compared by {by!r}.", advice=f"Use one of {listed}.")
        changes = self.changes if by == "nodes" else self._changes(by)
        return [
            {name: getattr(change, name) for name in _COLUMNS if name != "ratio"}
            | {"ratio": change.after / change.before if change.before and change.after else None}
            for change in changes
        ]

    def to_frame(self, by: ChangeBy = "nodes") -> pd.DataFrame:
        """Return `rows` as a ``pandas.DataFrame`` (needs pandas)."""
        return data_frame(self.rows(by), _COLUMNS)

    def __repr__(self) -> str:
        counts = Counter(change.verdict for change in self.changes)
        said = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
        times = f"{duration_text(self.before.seconds)} → {duration_text(self.after.seconds)}"
        return f"ProfileComparison({times}: {said})"

    def _members(self, by: ChangeBy) -> dict[str, tuple[list[int], list[int]]]:
        """Return the kernels before and after of each set of nodes, operator or scope."""
        sides = (self.before, self.after)
        sets = _node_sets(sides) if by == "nodes" else None
        members: dict[str, tuple[list[int], list[int]]] = {}
        for side, profile in enumerate(sides):
            for number in range(len(profile.kernels)):
                for name in _keys(profile, number, by) if sets is None else (sets[side][number],):
                    members.setdefault(name, ([], []))[side].append(number)
        return members

    def _times(self, members: Mapping[str, tuple[list[int], list[int]]]) -> list[NDArray[np.float64]]:
        """Return the seconds of each run (row) of each member (column), before and after."""
        found = []
        for side, profile in enumerate((self.before, self.after)):
            times = np.zeros((len(profile.kernel_seconds), len(members)))
            for column, own in enumerate(members.values()):
                for number in own[side]:
                    times[:, column] += profile.kernels[number].seconds
            found.append(times)
        return found

    def _changes(self, by: ChangeBy) -> tuple[Change, ...]:
        members = self._members(by)
        times = self._times(members)
        ticks = np.asarray([max(map(len, own)) for own in members.values()]) * _RESOLUTION
        noise, real = self._tested(times, ticks)
        medians = np.stack([self._center(each, side) for side, each in enumerate(times)], axis=1).tolist()
        found = [
            self._change(name, own, (first, then), float(noise[number]), is_real=bool(real[number]))
            for number, ((name, own), (first, then)) in enumerate(zip(members.items(), medians, strict=True))
        ]
        return tuple(sorted(found, key=lambda change: (change.verdict == "noise", -abs(change.difference))))

    def _tested(
        self, times: Sequence[NDArray[np.float64]], ticks: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the noise of each column's difference, and whether that is more than chance.

        ``ticks`` are the seconds that the clock may be wrong about a column.
        """
        runs_before, runs_after, drift, spread = self._common
        before, after = times[0] / runs_before[:, None], times[1] / (runs_after[:, None] * drift)
        noise = _noise(before, after) + ticks
        if min(len(before), len(after)) < _FEW:
            return noise, np.zeros(len(ticks), np.bool_)
        first, then = self._center(before, 0), self._center(after, 1)
        deviation, free = self._deviation(before, after)
        noise = np.maximum(noise, 2 * deviation)
        beyond = np.maximum(np.abs(then - first) - ticks, 0)
        ratio = np.log1p(beyond / np.maximum(np.minimum(first, then), _RESOLUTION))
        compared = (first > 0) & (then > 0)
        found = np.zeros(len(ticks), np.bool_)
        if free:
            found[compared] = _discoveries(student_test((beyond / deviation)[compared], free))
        else:
            found[compared] = _discoveries(rank_test(before[:, compared], after[:, compared]))
        outlying = _OUTLYING_MEANS if free else _OUTLYING
        is_large = (np.abs(then - first) > noise) & (ratio > max(math.log1p(_LEAST), outlying * spread))
        return noise, found & is_large

    def _by_session(self, times: NDArray[np.float64], side: int) -> NDArray[np.float64]:
        """Return the median of each session (row) of each column."""
        ends = np.cumsum((self.before, self.after)[side].sessions or (len(times),))[:-1]
        return np.stack([np.median(part, axis=0) for part in np.split(times, ends)])

    def _center(self, times: NDArray[np.float64], side: int) -> NDArray[np.float64]:
        """Return the time of each column: the mean of the medians of its sessions."""
        center: NDArray[np.float64] = self._by_session(times, side).mean(axis=0)
        return center

    def _deviation(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
        """Return the deviation of the difference of each column's times between sessions, and its degrees of freedom.

        Both are 0 if one side has a single session.
        """
        sides = [self._by_session(each, side) for side, each in enumerate((before, after))]
        counts = [len(each) for each in sides]
        if min(counts) < 2:
            return np.zeros(before.shape[1]), 0
        centers = [np.maximum(each.mean(axis=0), _RESOLUTION) for each in sides]
        free = sum(counts) - 2
        squares = [((each / center - 1) ** 2).sum(axis=0) for each, center in zip(sides, centers, strict=True)]
        own = np.sum(squares, axis=0) / free
        order = np.argsort(centers[0], kind="stable")
        around = np.pad(own[order], _LIKE // 2, mode="edge")
        usual = np.empty_like(own)
        # the median of a variance is below its mean
        usual[order] = np.median(sliding_window_view(around, _LIKE), axis=1) / (1 - 2 / (9 * free)) ** 3
        variance = (free * own + _TYPICAL * usual) / (free + _TYPICAL)
        means = [center**2 / count for center, count in zip(centers, counts, strict=True)]
        deviation: NDArray[np.float64] = np.sqrt(variance * np.sum(means, axis=0))
        return np.maximum(deviation, _RESOLUTION / 10), free + _TYPICAL

    def _change(
        self,
        name: str,
        numbers: tuple[Sequence[int], Sequence[int]],
        medians: tuple[float, float],
        noise: float,
        *,
        is_real: bool,
    ) -> Change:
        profiles = self.before, self.after
        sides = [[profile.kernels[n] for n in own] for profile, own in zip(profiles, numbers, strict=True)]
        difference = medians[1] - medians[0] * self.drift
        verdict: Verdict = "noise"
        if not all(numbers):
            if abs(difference) > noise:
                verdict = "only before" if numbers[0] else "only after"
        elif is_real:
            verdict = "slower" if difference > 0 else "faster"
        graphs = self.before.graph, self.after.graph
        nodes = {
            graph.names[node]
            for graph, own in zip(graphs, sides, strict=True)
            for kernel in own
            for node in kernel.opened or kernel.nodes
        }
        ops, providers = ([_joined(kernel, what) for kernel in sides] for what in ("op", "provider"))
        return Change(
            verdict=verdict,
            name=name,
            op=ops[1],
            before_op=ops[0],
            nodes=len(nodes),
            before=medians[0],
            after=medians[1],
            noise=noise,
            kernels=(tuple(numbers[0]), tuple(numbers[1])),
            before_provider=providers[0],
            provider=providers[1],
            difference=difference,
        )


def _joined(kernels: Sequence[Kernel], what: str) -> str:
    return ", ".join(dict.fromkeys(getattr(kernel, what) for kernel in kernels))


def _noise(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds that the medians of each column may differ by chance: half of both interquartile ranges."""
    spreads = [np.subtract(*np.quantile(each, (0.75, 0.25), axis=0)) / 2 for each in (before, after)]
    total: NDArray[np.float64] = np.add(*spreads)
    return total


def rank_test(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each column the two-sided p-value of the test of Mann and Whitney, by its normal approximation.

    Runs that resemble the one before say less: the variance grows by what their ranks have in common.
    """
    first, then = len(before), len(after)
    total = first + then
    ranks, ties = _ranks(np.concatenate((before, after)))
    statistic = ranks[first:].sum(axis=0) - then * (total + 1) / 2
    variance = first * then / 12 * (total + 1 - ties / (total * (total - 1)))
    repeated = min(max((_repeated(before) + _repeated(after)) / 2, 0.0), 0.9)
    variance *= (1 + repeated) / (1 - repeated)
    deviations = np.maximum(np.abs(statistic) - 0.5, 0) / np.sqrt(np.where(variance > 0, variance, np.inf))
    return np.asarray([math.erfc(each / math.sqrt(2)) for each in deviations.tolist()])


def student_test(deviations: NDArray[np.float64], free: int) -> NDArray[np.float64]:
    """Return the two-sided p-value of Student's t for a number of degrees of freedom, by its finite series."""
    angle = np.arctan(np.abs(deviations) / math.sqrt(free))
    cosine = np.cos(angle)
    term = np.ones_like(angle) if free % 2 == 0 else cosine
    total = np.zeros_like(angle) if free == 1 else term.copy()
    for step in range(2 + free % 2, free - 1, 2):
        term = term * cosine**2 * (step - 1) / step
        total += term
    inside = np.sin(angle) * total
    if free % 2:
        inside = 2 / np.pi * (angle + inside)
    chances: NDArray[np.float64] = np.clip(1 - inside, 0, 1)
    return chances


def _ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rank of each value in its column, the mean of equal ones, and the sum of t³ − t over these."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    place = np.arange(len(values))[:, None]
    is_new = np.ones(values.shape, np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(is_new, place, 0), axis=0)
    is_last = np.ones(values.shape, np.bool_)
    is_last[:-1] = is_new[1:]
    last = np.minimum.accumulate(np.where(is_last, place, len(values))[::-1], axis=0)[::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=0)
    ties: NDArray[np.float64] = ((last - first + 1.0) ** 2 - 1).sum(axis=0)
    return ranks, ties


def _repeated(values: NDArray[np.float64]) -> float:
    """Return how much the rank of a run resembles that of the run before: the mean of the columns' correlations."""
    ranks = _ranks(values)[0]
    ranks -= ranks.mean(axis=0)
    square = (ranks**2).sum(axis=0)
    some = square > 0
    each = (ranks[1:] * ranks[:-1]).sum(axis=0)[some] / square[some]
    return float(each.mean()) + 1 / len(values) if each.size else 0.0  # independent ranks have −1/n


def _discoveries(chances: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which p-values are more than chance, by the procedure of Benjamini and Hochberg."""
    order = np.sort(chances)
    passed = np.flatnonzero(order <= _CHANCE * np.arange(1, len(order) + 1) / max(len(order), 1))
    return chances <= (order[passed[-1]] if passed.size else -1.0)


def _keys(profile: Profile, number: int, by: ChangeBy) -> tuple[str, ...]:
    if by == "operator":
        return (profile.kernels[number].op,)
    tree, scope = scopes(profile.graph), profile.kernel_scopes[number]
    found = []
    while scope >= 0:
        found.append(tree.scope_path[scope])
        scope = int(tree.scope_parent[scope])
    return tuple(found)


def _node_sets(sides: tuple[Profile, Profile]) -> list[list[str]]:
    """Return for each kernel of both profiles the name of the smallest set of nodes that has kernels of its own."""
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = name = above[above[name]]
        return name

    own: list[list[str]] = []
    for profile in sides:
        names, firsts = profile.graph.names, []
        for kernel in profile.kernels:
            if kernel.edge:  # an inserted copy or change of layout is no node of the model
                listed = [f"{kernel.op} on {kernel.edge}"]
            else:
                listed = [names[node] or f"node {node}" for node in kernel.opened or kernel.nodes] or [kernel.name]
            firsts.append(listed[0])
            for name in listed[1:]:
                a, b = root(listed[0]), root(name)
                above[b] = a
        own.append(firsts)
    label: dict[str, str] = {}
    for firsts in own:
        for name in firsts:
            label.setdefault(root(name), name)
    return [[label[root(name)] for name in firsts] for firsts in own]
