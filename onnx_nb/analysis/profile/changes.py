"""Two profiles compared: what got slower or faster, by the nodes that both have, and what is noise.

Kernels of two profiles are compared where they compute the same nodes. Where one profile fused what the other ran by
itself, the smallest sets of nodes are compared that each profile computes by kernels of its own.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, duration_text, quoted, shortened
from onnx_nb.analysis.results import Displayed, data_frame
from onnx_nb.analysis.scopes.scopes import scopes

if TYPE_CHECKING:
    from collections.abc import Sequence

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
"""Runs below which a spread says little."""


@dataclass(frozen=True)
class Change:
    """Time that a set of nodes took before and after."""

    verdict: Verdict
    """``"noise"`` if the difference is within the spread of both."""
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
    """Seconds that the spread of both explains."""
    kernels: tuple[tuple[int, ...], tuple[int, ...]]
    """Indices of the kernels before and after."""
    before_provider: str
    provider: str

    @property
    def difference(self) -> float:
        """Seconds that it takes longer after."""
        return self.after - self.before


@dataclass(frozen=True, eq=False)
class ProfileComparison(Displayed):
    """Two profiles, and what differs between them. Made by `Profile.compare`."""

    before: Profile
    after: Profile

    @functools.cached_property
    def changes(self) -> tuple[Change, ...]:
        """A change for each set of nodes, the largest difference first, noise last."""
        return self._changes("nodes")

    @property
    def message(self) -> str:
        """What got slower or faster, in a sentence."""
        before, after = self.before, self.after
        noise = _noise(before.kernel_seconds, after.kernel_seconds, 1)
        difference = after.seconds - before.seconds
        times = f"{duration_text(before.seconds)} → {duration_text(after.seconds)}"
        if abs(difference) <= noise:
            text = f"{times}: a difference within the noise of {duration_text(noise)}"
        else:
            ratio = max(before.seconds, after.seconds) / max(min(before.seconds, after.seconds), 1e-12)
            text = f"{times}: {ratio:.2f}× {'slower' if difference > 0 else 'faster'}"
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
        runs = min(len(before.run_seconds), len(after.run_seconds))
        if runs < _FEW:
            text += f". Only {count_text(runs, 'run')}: the noise is hardly known"
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

    def _changes(self, by: ChangeBy) -> tuple[Change, ...]:
        sides = (self.before, self.after)
        sets = _node_sets(sides) if by == "nodes" else None
        members: dict[str, tuple[list[int], list[int]]] = {}
        for side, profile in enumerate(sides):
            for number in range(len(profile.kernels)):
                for name in _keys(profile, number, by) if sets is None else (sets[side][number],):
                    members.setdefault(name, ([], []))[side].append(number)
        found = [self._change(name, *both) for name, both in members.items()]
        return tuple(sorted(found, key=lambda change: (change.verdict == "noise", -abs(change.difference))))

    def _change(self, name: str, before: Sequence[int], after: Sequence[int]) -> Change:
        sides = [[profile.kernels[n] for n in own] for profile, own in ((self.before, before), (self.after, after))]
        times = [np.sum([kernel.seconds for kernel in own], axis=0) if own else np.zeros(1) for own in sides]
        medians = [float(np.median(each)) for each in times]
        noise = _noise(times[0], times[1], max(len(before), len(after)))
        difference = medians[1] - medians[0]
        verdict: Verdict = "noise" if abs(difference) <= noise else "slower" if difference > 0 else "faster"
        if verdict != "noise" and not (before and after):
            verdict = "only before" if before else "only after"
        graphs = self.before.graph, self.after.graph
        nodes = {
            graph.names[n] for graph, own in zip(graphs, sides, strict=True) for kernel in own for n in kernel.nodes
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
            kernels=(tuple(before), tuple(after)),
            before_provider=providers[0],
            provider=providers[1],
        )


def _joined(kernels: Sequence[Kernel], what: str) -> str:
    return ", ".join(dict.fromkeys(getattr(kernel, what) for kernel in kernels))


def _noise(before: NDArray[np.float64], after: NDArray[np.float64], kernels: int) -> float:
    """Return the seconds that two medians may differ by chance: both spreads, at least the clock's resolution."""
    spreads = (np.subtract(*np.quantile(each, (0.75, 0.25))) / 2 for each in (before, after))
    return float(max(sum(spreads), _RESOLUTION * kernels))


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
                listed = [names[node] or f"node {node}" for node in kernel.nodes] or [kernel.name]
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
