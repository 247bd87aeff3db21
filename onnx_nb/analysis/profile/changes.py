"""Two profiles compared: what got slower or faster, by the nodes that both have, and what is noise.

Kernels of two profiles are compared where they compute the same nodes. Where one profile fused what the other ran by
itself, the smallest sets of nodes are compared that each profile computes by kernels of its own.
`Profile.compare` says what is noise.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import check_choice
from onnx_nb.analysis.formatting import count_text, duration_text, quoted, shortened
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.profile.rows import kernels_by
from onnx_nb.analysis.results import Displayed, Still, StillTable, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.profile.result import Profile

Floats = NDArray[np.float64]
ChangeBy = Literal["nodes", "operator", "scope"]
Verdict = Literal["slower", "faster", "noise", "only before", "only after"]
_CLOCK_TICK: Final = 1e-6
"""Seconds in which onnxruntime counts."""
_MIN_RUNS: Final = 5
"""Runs below which nothing is called slower or faster."""
_MIN_RATIO: Final = 1.05
"""Ratio of two times up to which a difference is noise."""
_MIN_SETS: Final = 10
"""Sets of nodes from which the drift of the machine is estimated."""
_MIN_SECONDS: Final = 20 * _CLOCK_TICK
"""Seconds of the shortest set whose ratio is used for that."""
_SPREADS: Final = 4.5
"""Standard deviations of the ratios of all sets beyond which the ratio of one is no noise."""
_TO_DEVIATION: Final = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""


@dataclass(frozen=True)
class ProfileChange:
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
    difference: float
    """Seconds that it takes longer after, beyond `ProfileComparison.drift` and what all sets share of each run."""
    noise: float
    """Seconds that chance explains: the widest band of noise, and the resolution of the clock."""
    before_provider: str
    provider: str
    kernels: tuple[tuple[int, ...], tuple[int, ...]]
    """Indices of the kernels before and after."""


@dataclass(frozen=True, eq=False)
class ProfileComparison(Displayed, panel="profile.ProfilePanel"):
    """Two profiles, and what differs between them. Made by `Profile.compare`."""

    before: Profile
    after: Profile

    @functools.cached_property
    def changes(self) -> tuple[ProfileChange, ...]:
        """A change for each set of nodes, the largest difference first, noise last."""
        return self._changes("nodes")

    @functools.cached_property
    def differences(self) -> tuple[str, ...]:
        """What differs between the two besides times, in words: settings, versions, shapes and the model."""
        before, after = _settings(self.before), _settings(self.after)
        changed = [name for name, value in before.items() if value and after.get(name, "") not in ("", value)]
        texts = [f"{name} {before[name]} → {after[name]}" for name in changed]
        if before["nodes"] == after["nodes"] and self.before.graph.names != self.after.graph.names:
            texts.append("names of nodes")
        return tuple(texts)

    @property
    def drift(self) -> float:
        """Factor by which the machine was slower after: the median of all sets; 1 if settings differ or sets are few.

        Between profiles of different settings it may be the effect of these.
        """
        return self._machine[2]

    @functools.cached_property
    def _machine(self) -> tuple[Floats, Floats, float, float]:
        """Factors that all sets share: of each run before and after, the drift; and the spread of the ratios' logs."""
        factors = [np.ones(len(profile.kernel_seconds)) for profile in (self.before, self.after)]
        times = self._times([numbers for numbers in self._members("nodes").values() if all(numbers)])
        medians = [self._center(seconds, side) for side, seconds in enumerate(times)]
        is_long = np.minimum(*medians) >= _MIN_SECONDS
        if np.count_nonzero(is_long) < _MIN_SETS:
            return factors[0], factors[1], 1.0, 0.0
        for side, (seconds, median) in enumerate(zip(times, medians, strict=True)):
            scale = np.median(seconds[:, is_long] / median[is_long], axis=1)
            factors[side] = np.where(scale > 0, scale, 1.0)
            medians[side] = self._center(seconds[:, is_long] / factors[side][:, None], side)
        if self.differences:
            return factors[0], factors[1], 1.0, 0.0
        ratios = np.log(np.maximum(medians[1], _CLOCK_TICK) / np.maximum(medians[0], _CLOCK_TICK))
        drift = float(np.median(ratios))
        return factors[0], factors[1], math.exp(drift), _TO_DEVIATION * float(np.median(np.abs(ratios - drift)))

    @property
    def message(self) -> str:
        """What got slower or faster, in a sentence."""
        before, after = self.before, self.after
        totals = before.kernel_seconds[:, None], after.kernel_seconds[:, None]
        noise = sum(float(self._spread(seconds, side)[0]) for side, seconds in enumerate(totals)) + _CLOCK_TICK
        difference = after.seconds - before.seconds
        times = f"{duration_text(before.seconds)} → {duration_text(after.seconds)}"
        if abs(difference) <= noise:
            text = f"{times}: a difference within the noise of {duration_text(noise)}"
        else:
            ratio = max(before.seconds, after.seconds) / max(min(before.seconds, after.seconds), 1e-12)
            text = f"{times}: {ratio:.2f}× {'slower' if difference > 0 else 'faster'}"
        if abs(math.log(self.drift)) > math.log(_MIN_RATIO):
            text += f", with settings equal and all sets together {self.drift:.2f}× as long, which is the machine"
        real = [change for change in self.changes if change.verdict != "noise"]
        for word, sign in (("slower", 1), ("faster", -1)):
            if same := [change for change in real if change.difference * sign > 0]:
                first = same[0]
                size = duration_text(abs(first.difference))
                most = f"most {first.op or first.before_op} {quoted(shortened(first.name, 60))} by {size}"
                text += f"; {count_text(len(same), 'set')} of nodes {word}, {most}"
        if quiet := len(self.changes) - len(real):
            text += f"; {quiet:,} within the noise"
        if self.differences:
            text += f". What differs: {'; '.join(self.differences)}"
        runs = min(len(before.run_seconds), len(after.run_seconds))
        if runs < _MIN_RUNS:
            text += f". Only {count_text(runs, 'run')}: a change is known from noise by {_MIN_RUNS} or more of each"
        return f"{text}."

    def rows(self, by: ChangeBy = "nodes") -> list[dict[str, Any]]:
        """Return a row for each set of nodes, operator or scope, the largest difference first, noise last.

        Parameters
        ----------
        by
            ``"nodes"`` (the smallest sets that both profiles compute by kernels of their own), ``"operator"`` (of the
            kernels) or ``"scope"``.
        """
        check_choice("by", by, ChangeBy)
        changes = self.changes if by == "nodes" else self._changes(by)
        return [
            {field.name: getattr(change, field.name) for field in fields(change) if field.name != "kernels"}
            | {"ratio": change.after / change.before if change.before and change.after else None}
            for change in changes
        ]

    def to_frame(self, by: ChangeBy = "nodes") -> pd.DataFrame:
        """Return `rows` as a ``pandas.DataFrame`` (needs pandas)."""
        table = self.rows(by)
        return data_frame(table, [*table[0]])

    def _still(self) -> Still:
        rows = [
            (c.verdict, c.name, c.op or c.before_op, *map(duration_text, (c.before, c.after, c.noise)))
            for c in self.changes
        ]
        heads = ("", "Nodes", "Op", "Before", "After", "Noise")
        return Still(self.message, tables=(StillTable(heads, rows, "set of nodes", 3),))

    def __repr__(self) -> str:
        counts = Counter(change.verdict for change in self.changes)
        said = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
        times = f"{duration_text(self.before.seconds)} → {duration_text(self.after.seconds)}"
        return f"ProfileComparison({times}: {said})"

    def _members(self, by: ChangeBy) -> dict[str, tuple[list[int], list[int]]]:
        """Return the kernels before and after of each set of nodes, operator or scope."""
        sides = (self.before, self.after)
        sets = _node_sets(sides) if by == "nodes" else [kernels_by(side, by) for side in sides]
        return {name: (sets[0].get(name, []), sets[1].get(name, [])) for name in sets[0] | sets[1]}

    def _times(self, members: Sequence[tuple[list[int], list[int]]]) -> list[Floats]:
        """Return the seconds of each run (row) of each member (column), before and after."""
        times = []
        for side, profile in enumerate((self.before, self.after)):
            times.append(np.zeros((len(profile.kernel_seconds), len(members))))
            for column, numbers in enumerate(members):
                for number in numbers[side]:
                    times[-1][:, column] += profile.kernels[number].seconds
        return times

    def _changes(self, by: ChangeBy) -> tuple[ProfileChange, ...]:
        members = self._members(by)
        before, after = self._times(list(members.values()))
        medians = zip(self._center(before, 0).tolist(), self._center(after, 1).tolist(), strict=True)
        # beyond the drift and what all sets share of each run
        *factors, drift, spread = self._machine
        before, after = before / factors[0][:, None] * drift, after / factors[1][:, None]
        centers = self._center(before, 0), self._center(after, 1)
        ratio = max(_MIN_RATIO, math.exp(_SPREADS * spread))
        noise = np.maximum(self._spread(before, 0) + self._spread(after, 1), (ratio - 1) * np.minimum(*centers))
        noise += np.asarray([max(map(len, numbers)) for numbers in members.values()]) * _CLOCK_TICK
        profiles = self.before, self.after
        changes = []
        has_runs = min(len(profile.kernel_seconds) for profile in profiles) >= _MIN_RUNS
        rows = zip(members.items(), medians, (centers[1] - centers[0]).tolist(), noise.tolist(), strict=True)
        for (name, numbers), times, difference, band in rows:
            sides = [[profile.kernels[n] for n in side] for profile, side in zip(profiles, numbers, strict=True)]
            verdict: Verdict = "noise"
            if abs(difference) > band and not all(numbers):
                verdict = "only before" if numbers[0] else "only after"
            elif abs(difference) > band and has_runs:
                verdict = "slower" if difference > 0 else "faster"
            nodes = {
                profile.graph.names[node]
                for profile, side in zip(profiles, sides, strict=True)
                for kernel in side
                for node in kernel.opened or kernel.nodes
            }
            before_op, op = (", ".join(dict.fromkeys(kernel.op for kernel in side)) for side in sides)
            before_provider, provider = (", ".join(dict.fromkeys(kernel.provider for kernel in side)) for side in sides)
            about = before_op, len(nodes), *times, difference, band, before_provider, provider
            changes.append(ProfileChange(verdict, name, op, *about, (tuple(numbers[0]), tuple(numbers[1]))))
        return tuple(sorted(changes, key=lambda change: (change.verdict == "noise", -abs(change.difference))))

    def _by_session(self, times: Floats, side: int) -> Floats:
        """Return the median of each session (row) of each column."""
        ends = np.cumsum((self.before, self.after)[side].sessions or (len(times),))[:-1]
        return np.stack([np.median(part, axis=0) for part in np.split(times, ends)])

    def _center(self, times: Floats, side: int) -> Floats:
        """Return the time of each column: the mean of the medians of its sessions."""
        return np.asarray(self._by_session(times, side).mean(axis=0))

    def _spread(self, times: Floats, side: int) -> Floats:
        """Return the interquartile range of the runs of each column, or half the range of its sessions if wider."""
        runs = np.subtract(*np.quantile(times, (0.75, 0.25), axis=0))
        return np.asarray(np.maximum(runs, np.ptp(self._by_session(times, side), axis=0) / 2))


def _settings(profile: Profile) -> dict[str, str]:
    return {
        "providers": ", ".join(profile.providers),
        "optimization": profile.optimization,
        "shapes": ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in profile.shapes.items()),
        "nodes": str(profile.graph.node_count),
        **profile.made_with,
    }


def _node_sets(sides: tuple[Profile, Profile]) -> list[dict[str, list[int]]]:
    """Return the kernels of both profiles by the smallest sets of nodes that have kernels of their own."""
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = name = above[above[name]]
        return name

    first_nodes: tuple[list[str], list[str]] = [], []
    for profile, firsts in zip(sides, first_nodes, strict=True):
        names = profile.graph.names
        for kernel in profile.kernels:
            nodes = [names[node] or f"node {node}" for node in kernel.opened or kernel.nodes] or [kernel.name]
            if kernel.edge:  # an inserted copy or change of layout is no node of the model
                nodes = [f"{kernel.op} on {kernel.edge}"]
            firsts.append(nodes[0])
            for name in nodes[1:]:
                above[root(name)] = root(nodes[0])
    label: dict[str, str] = {}
    for name in itertools.chain(*first_nodes):
        label.setdefault(root(name), name)
    return [followers((label[root(name)], number) for number, name in enumerate(firsts)) for firsts in first_nodes]
