"""Match nodes by name, except where what surrounds them shows that a name moved on to another node.

Exporters number tensors: a node inserted in front shifts the names of all that follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from onnx_nb.analysis.graph.names import INITIALIZER

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.graph_lists import GraphLists

Ends = tuple[Mapping[int, int], Mapping[int, int]]
"""For each graph: the outputs of the subgraph, and which of them match, by number."""


def trusted_pairs(
    sides: tuple[GraphLists, GraphLists], subgraphs: tuple[int, int], left: tuple[list[int], list[int]], ends: Ends
) -> dict[int, int]:
    """Return nodes of equal name and operator, unless more of their surroundings contradict than confirm it."""
    names = _Names(sides, subgraphs, left)
    while True:
        doubtful = names.doubtful(ends)
        if not doubtful:
            return names.pairs
        names.remove(doubtful)


def by_node_name(side: GraphLists, nodes: Iterable[int]) -> dict[str, int]:
    """Return nodes by name; −1 for a name of several nodes."""
    return unique((side.names[node], node) for node in nodes)


def by_output_name(side: GraphLists, nodes: Iterable[int]) -> dict[str, int]:
    """Return nodes by the name of their first output; −1 for a name of several."""
    return unique((side.value_names[v], node) for node in nodes for v in side.outputs[node][:1] if v >= 0)


def unique(named: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return a dictionary of things by name; −1 for a name of several things."""
    found: dict[str, int] = {}
    for name, thing in named:
        if name:
            found[name] = thing if name not in found else -1
    return found


class _Names:
    """Nodes of equal names, and the values that match if these nodes do."""

    def __init__(
        self, sides: tuple[GraphLists, GraphLists], subgraphs: tuple[int, int], left: tuple[list[int], list[int]]
    ) -> None:
        self._sides = a, b = sides
        self.pairs: dict[int, int] = {}
        self._back: dict[int, int] = {}
        for key in (by_node_name, by_output_name):
            others = key(b, left[1])
            for name, n in key(a, left[0]).items():
                m = others.get(name, -1)
                if n >= 0 and m >= 0 and n not in self.pairs and m not in self._back and a.op[n] == b.op[m]:
                    self.pairs[n], self._back[m] = m, n
        self._value = {v: w for v, w in enumerate(a.value) if w >= 0}
        self._value_back = {w: v for v, w in self._value.items()}
        weights = {b.value_names[w]: w for w in b.graph.subgraphs[subgraphs[1]].weights.tolist()}
        for v in a.graph.subgraphs[subgraphs[0]].weights.tolist():
            self._match_values(v, weights.get(a.value_names[v], -1))
        for n, m in self.pairs.items():
            for v, w in zip(a.outputs[n], b.outputs[m], strict=False):
                self._match_values(v, w)

    def _match_values(self, v: int, w: int) -> None:
        if v >= 0 and w >= 0 and v not in self._value and w not in self._value_back:
            self._value[v], self._value_back[w] = w, v

    def remove(self, nodes: Iterable[int]) -> None:
        """Remove nodes of the reference and their outputs."""
        a, b = self._sides
        for n in nodes:
            m = self.pairs.pop(n)
            del self._back[m]
            for v, w in zip(a.outputs[n], b.outputs[m], strict=False):
                if self._value.get(v, -2) == w:
                    del self._value[v], self._value_back[w]

    def doubtful(self, ends: Ends) -> list[int]:
        """Return the nodes of the reference whose match is contradicted, or confirmed by nothing."""
        evidence = _Evidence()
        for n, m in self.pairs.items():
            self._weigh_inputs(n, m, evidence)
        a, b = self._sides
        for v, number in ends[0].items():
            n = a.producer[v]
            m = self.pairs.get(n, -1)
            if m >= 0 and any(ends[1].get(w, -1) == number for w in b.outputs[m]):
                evidence.confirm((n,), 1)
        return [n for n in self.pairs if evidence.is_doubtful(n)]

    def _weigh_inputs(self, n: int, m: int, evidence: _Evidence) -> None:
        """Take the inputs of a pair as evidence for it, and for the nodes that make them."""
        a, b = self._sides
        for v, w in zip(a.inputs[n], b.inputs[m], strict=False):
            if v < 0 or w < 0:
                continue
            weight = 2 if a.kind[v] == INITIALIZER else 1  # names of weights are those of parameters
            if self._value.get(v, -1) == w:
                evidence.confirm((n, a.producer[v]), weight)
            elif v in self._value and w in self._value_back:  # both belong to other values
                makers = {a.producer[v], self._back.get(b.producer[w], -1)}
                evidence.contradict((n, *(maker for maker in makers if maker in self.pairs)), weight)
            else:
                evidence.uncertain.add(n)


class _Evidence:
    """What confirms and contradicts the matches of nodes."""

    def __init__(self) -> None:
        self.uncertain: set[int] = set()
        self._confirmed: set[int] = set()
        self._contradicted: set[int] = set()
        self._balance: Counter[int] = Counter()

    def confirm(self, nodes: Iterable[int], weight: int) -> None:
        for node in nodes:
            self._balance[node] += weight
            self._confirmed.add(node)

    def contradict(self, nodes: Iterable[int], weight: int) -> None:
        for node in nodes:
            self._balance[node] -= weight
            self._contradicted.add(node)

    def is_doubtful(self, node: int) -> bool:
        """Return whether more contradicts than confirms a match, or nothing confirms one that is not certain."""
        if node in self._contradicted:
            return self._balance[node] < 0 or node not in self._confirmed
        return node in self.uncertain and node not in self._confirmed
