"""Match the nodes and values of two graphs: by name where names are reliable, else by structure.

The nodes that remain after `trusted_pairs` are matched by the weights that they read, by numbers for their ancestors
and their descendants (value numbering, as in compilers), by matched neighbors, and by topological order. Each
pass is linear in the number of nodes that remain.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.match.graph_lists import GraphLists, Left, Numbers, equal_names, trusted_pairs, unique
from onnx_nb.analysis.model.protofields import Ints

HOW: Final = ("", "mapping", "name", "weights", "structure", "neighbors", "order", "place")
"""Methods that find a match. "weights": both read the same; "place": another operator between the same tensors."""
NONE, MAPPING, NAME, WEIGHTS, STRUCTURE, NEIGHBORS, ORDER, PLACE = range(len(HOW))

ROUNDS: Final = 60
"""Maximum number of rounds of all passes over the unmatched nodes."""
ALIGNMENT_PAIRS: Final = 4_000_000
"""Maximum product of the lengths of two sequences that are aligned."""
DISTINCTIVE: Final = 16
"""Bytes below which two weights may be equal by chance."""
FUSION_NODES: Final = 8
"""Maximum number of nodes that a single node of the other model replaces."""

Link = tuple[int, int]
_SERIAL_NAME: Final = re.compile(r"[A-Za-z]*(?:_[A-Za-z]+)*_?\d+")
"""Names that an exporter numbers."""


@dataclass(frozen=True, eq=False)
class Matching:
    """The counterpart in the candidate of each node and value of the reference, −1 for none."""

    node: Ints
    value: Ints
    node_how: NDArray[np.uint8]
    """Index into `HOW`."""
    value_how: NDArray[np.uint8]
    attributes: Sequence[tuple[int, int]]
    """Matched nodes whose attributes differ."""


def match(reference: Graph, candidate: Graph, mapping: Mapping[str, str | None] | None = None) -> Matching:
    """Match the nodes and values of two graphs one to one; a mapping of names overrides everything else."""
    matcher = _Matcher(reference, candidate)
    matcher.apply(mapping or {})
    waiting = [(0, 0)]
    while waiting:
        waiting += matcher.match_subgraphs(*waiting.pop())
    a, b = matcher.sides
    nodes, values = (np.asarray(column, np.int32) for column in (a.node, a.value))
    node_how, value_how = (np.asarray(column, np.uint8) for column in (matcher.node_how, matcher.value_how))
    unlike = [(n, m) for n, m in enumerate(a.node) if m >= 0 and a.attributes[n] != b.attributes[m]]
    return Matching(nodes, values, node_how, value_how, unlike)


_WEIGHT, _MATCH, _OUTPUT, _ONLY, _END = range(5)


def _code(kind: int, number: int, slot: int = 0, place: int = 0) -> int:
    """Return a link as one number, which is fast to compare and sort: number | place (20 bits) | slot (20) | kind."""
    return kind | slot << 3 | place << 23 | number << 43


class _Matcher:
    """Matches node by node; results go into the two `GraphLists`."""

    def __init__(self, reference: Graph, candidate: Graph) -> None:
        number: Numbers = defaultdict(itertools.count().__next__)
        self.sides = GraphLists(reference, number), GraphLists(candidate, number)
        self.node_how = [NONE] * reference.node_count
        self.value_how = [NONE] * reference.value_count
        self._excluded: tuple[set[int], set[int]] = set(), set()
        """Nodes and values of the reference that have no counterpart, by the mapping."""
        self._ends: tuple[dict[int, int], dict[int, int]] = {}, {}
        """Outputs of the subgraph of each side, with equal numbers for those that match."""
        self._subgraphs = (0, 0)

    def _pair(self, n: int, m: int, how: int) -> bool:
        a, b = self.sides
        if a.node[n] >= 0 or b.node[m] >= 0 or n in self._excluded[0]:
            return False
        a.node[n], b.node[m], self.node_how[n] = m, n, how
        for v, w in zip(a.outputs[n], b.outputs[m], strict=False):
            if v >= 0 and w >= 0:
                self._pair_values(v, w, how)
        return True

    def _pair_all(self, pairs: Iterable[Link], how: int) -> bool:
        return sum(self._pair(n, m, how) for n, m in pairs) > 0

    def _pair_values(self, v: int, w: int, how: int) -> None:
        a, b = self.sides
        if a.value[v] < 0 and b.value[w] < 0 and v not in self._excluded[1]:
            a.value[v], b.value[w] = w, v
            self.value_how[v] = NAME if how != MAPPING and a.value_names[v] == b.value_names[w] else how

    # --- the mapping ---

    def apply(self, mapping: Mapping[str, str | None]) -> None:
        """Match by a mapping of names of tensors, or else of nodes."""
        values = [
            unique((side.value_names[v], v) for v in np.flatnonzero(side.graph.value_subgraph == 0).tolist())
            for side in self.sides
        ]
        nodes = [unique(zip(side.names, range(side.graph.main_count), strict=False)) for side in self.sides]
        for old, new in mapping.items():
            for at, (name, which) in enumerate(((old, "reference"), (new, "candidate"))):
                if name is not None and name not in values[at] and name not in nodes[at]:
                    message = f"no tensor and no node of the {which} is called {quoted(str(name))}."
                    names = [*self.sides[at].value_names, *self.sides[at].names]
                    raise AlignmentError(message, advice=closest_text(str(name), names))
            if new is None:
                value = values[0].get(old, -1)
                self._excluded[1].add(value)
                self._excluded[0].update((nodes[0].get(old, -1), self.sides[0].producer[value] if value >= 0 else -1))
                continue
            if old in values[0] and new in values[1]:
                is_free = self._map_values(values[0][old], values[1][new])
            elif old in nodes[0] and new in nodes[1]:
                is_free = self._pair(nodes[0][old], nodes[1][new], MAPPING)
            else:
                raise AlignmentError(f"{quoted(old)} and {quoted(new)} are not both tensors or both nodes.")
            if not is_free:
                message = f"the mapping of {quoted(old)} to {quoted(new)} contradicts another entry."
                raise AlignmentError(message, advice="Map each name to one other.")

    def _map_values(self, v: int, w: int) -> bool:
        """Match two values and the nodes that produce them; return False if either is already matched with another."""
        a, b = self.sides
        if a.value[v] >= 0 or b.value[w] >= 0:
            return a.value[v] == w and self.value_how[v] == MAPPING
        self._pair_values(v, w, MAPPING)
        n, m = a.producer[v], b.producer[w]
        if n >= 0 and m >= 0 and a.op[n] == b.op[m] and a.slot[v] == b.slot[w]:
            self._pair(n, m, MAPPING)
        return True

    # --- subgraphs ---

    def match_subgraphs(self, f: int, g: int) -> list[Link]:
        """Match the main graphs, or two bodies whose owners are matched; return the pairs of bodies inside."""
        self._subgraphs = f, g
        self._match_ends(f, g)
        self._pair_all(trusted_pairs(self.sides, self._subgraphs, self._left(), self._ends).items(), NAME)
        passes = (
            self._by_weights, self._by_structure, self._by_neighbors, self._by_rest_of_names, self._by_order,
            self._by_place,
        )  # fmt: skip
        for _ in range(ROUNDS):
            left = self._left()
            if not all(left) or not any(step(left) for step in passes):
                break
        self._rest_of_values()
        a, b = (side.graph for side in self.sides)
        links = []
        for n in range(a.subgraphs[f].start, a.subgraphs[f].stop):
            m = self.sides[0].node[n]
            others = {b.subgraphs[body].attribute: body for body in b.bodies(m)} if m >= 0 else {}
            names = [(body, a.subgraphs[body].attribute) for body in a.bodies(n)] if others else []
            links += [(body, others[name]) for body, name in names if name in others]
        return links

    def _match_ends(self, f: int, g: int) -> None:
        """Match the inputs of two subgraphs, and number the pairs of their outputs."""
        a, b = self.sides
        one, other = a.graph.subgraphs[f], b.graph.subgraphs[g]
        pair: Callable[..., Iterable[Link]] = zip if f else self._ports  # those of bodies match by position
        for v, w in pair(one.inputs.tolist(), other.inputs.tolist()):
            self._pair_values(v, w, STRUCTURE)
        self._ends = {}, {}
        for number, values in enumerate(pair(one.outputs.tolist(), other.outputs.tolist())):
            for ends, value in zip(self._ends, values, strict=True):
                if value >= 0:
                    ends.setdefault(value, number)

    def _ports(self, ports: Sequence[int], others: Sequence[int]) -> list[Link]:
        """Pair inputs or outputs: by name, then by type in order, then by order if equally many remain."""
        a, b = self.sides
        by_name = {b.value_names[w]: w for w in others if w >= 0 and b.value[w] < 0}
        free = dict.fromkeys(v for v in ports if v >= 0 and a.value[v] < 0)
        pairs = [(v, by_name.pop(a.value_names[v])) for v in free if a.value_names[v] in by_name]
        for by_type in (True, False):
            matches = {v for v, _ in pairs}, {w for _, w in pairs}
            rest = [v for v in free if v not in matches[0]]
            other = [w for w in others if w >= 0 and b.value[w] < 0 and w not in matches[1]]
            if by_type:
                pairs += _equal_keys({v: a.type[v] for v in rest}, {w: b.type[w] for w in other})
            elif len(rest) == len(other):
                pairs += zip(rest, other, strict=True)
        return pairs

    def _left(self) -> Left:
        nodes = []
        for side, subgraph in zip(self.sides, self._subgraphs, strict=True):
            order = side.graph.order if subgraph == 0 else side.graph.subgraph_order(subgraph)
            nodes.append([node for node in order.tolist() if side.node[node] < 0])
        return nodes[0], nodes[1]

    # --- passes over the unmatched nodes; each returns whether it matched any ---

    def _by_rest_of_names(self, left: Left) -> bool:
        """Match nodes with the same name and operator that were not trusted at first."""
        names = equal_names(self.sides, left)
        return self._pair_all(((n, m) for name, n, m in names if self._is_reliable(name, n, m)), NAME)

    def _is_reliable(self, name: str, n: int, m: int) -> bool:
        """Return whether a name counts: one that is numbered needs a matched input or reader, or no neighbor at all."""
        a, b = self.sides
        read = [(v, w) for v, w in zip(a.inputs[n], b.inputs[m], strict=False) if v >= 0 and w >= 0]
        if not _SERIAL_NAME.fullmatch(name) or not (read or any(a.consumers(n))):
            return True
        return any(a.value[a.unquantized[v]] == b.unquantized[w] for v, w in read) or self._have_common_reader(n, m)

    def _have_common_reader(self, n: int, m: int) -> bool:
        """Return whether outputs of two nodes have a matched reader at the same index, or are the same graph output."""
        a, b = self.sides
        if {(slot, a.node[reader], place) for slot, reader, place in a.consumers(n)} & set(b.consumers(m)):
            return True
        ends = {self._ends[0].get(v, -1) for v in a.outputs[n]} & {self._ends[1].get(w, -1) for w in b.outputs[m]}
        return bool(ends - {-1})

    def _by_weights(self, left: Left) -> bool:
        """Match the only nodes of an operator that read a weight with the same bytes, or the same descriptive name."""
        has_new = False
        for key in (_distinctive_bytes, _descriptive_name):
            keys = []
            for side, nodes in zip(self.sides, left, strict=True):
                reads = ((n, v, key(side, v)) for n in nodes if side.node[n] < 0 for v in side.weights(n))
                keys.append({(n, v): (side.op[n], content) for n, v, content in reads if content is not None})
            has_new |= self._pair_all(((n, m) for (n, _), (m, _) in _equal_keys(*keys, single=True)), WEIGHTS)
        return has_new

    def _by_structure(self, left: Left) -> bool:
        """Match nodes with the same ancestors and descendants; then those with the same ancestors or descendants."""
        up, down = self._ancestor_classes(left), self._descendant_classes(left)
        both = [{n: (x, down[side][n]) for n, x in up[side].items()} for side in (0, 1)]
        order = ((both, True), (both, False), (up, True), (down, True), (up, False), (down, False))
        return any(self._pair_classes(classes, STRUCTURE, single=single) for classes, single in order)

    def _pair_classes(self, classes: Sequence[Mapping[int, Hashable]], how: int, *, single: bool) -> bool:
        """Match classes of equal nodes that are the same size on both sides: one node, or several."""
        a, b = self.sides
        there = _by_key(classes[1])
        has_new = False
        for class_, nodes in _by_key(classes[0]).items():
            ones, others = nodes, there.get(class_, [])
            if len(ones) != len(others) or (len(ones) == 1) != single:
                continue
            # several nodes match by names, by weights, then in order
            for key in _DISTINGUISHING if len(ones) > 1 else ():
                pairs = _equal_keys({n: key(a, n) for n in ones}, {m: key(b, m) for m in others}, single=True)
                has_new |= self._pair_all(pairs, how)
                ones = [n for n in ones if a.node[n] < 0]
                others = [m for m in others if b.node[m] < 0]
            has_new |= self._pair_all(zip(ones, others, strict=False), how)
        return has_new

    def _ancestor_classes(self, left: Left) -> list[dict[int, int]]:
        """Return for each node a number for its operator and all its ancestors, equal in both graphs."""
        number: Numbers = defaultdict(itertools.count().__next__)
        tables = []
        for at, side in enumerate(self.sides):
            classes: dict[int, int] = {}
            kind, value_there, producer, types = side.kind, side.value, side.producer, side.type
            for node in left[at]:
                key = [side.op[node], side.attributes[node]]
                for value in side.inputs[node]:
                    if value < 0:
                        key.append(-1)
                    elif kind[value] == INITIALIZER:
                        key.append(_code(_WEIGHT, types[value]))
                    elif value_there[value] >= 0:
                        key.append(_code(_MATCH, value if at == 0 else value_there[value]))
                    elif producer[value] in classes:
                        key.append(_code(_OUTPUT, classes[producer[value]], side.slot[value]))
                    else:
                        key.append(_code(_ONLY, value, at))
                classes[node] = number[tuple(key[:2] + sorted(key[2:]) if side.commutes[node] else key)]
            tables.append(classes)
        return tables

    def _descendant_classes(self, left: Left) -> list[dict[int, int]]:
        """Return for each node a number for its operator, the types of its weights and all its descendants."""
        number: Numbers = defaultdict(itertools.count().__next__)
        tables = []
        for at, side in enumerate(self.sides):
            classes: dict[int, int] = {}
            ends, there = self._ends[at], side.node
            for node in reversed(left[at]):
                reads = []
                for slot, value in enumerate(side.outputs[node]):
                    if value < 0:
                        continue
                    if value in ends:
                        reads.append(_code(_END, ends[value], slot))
                    for reader, index in side.readers[value]:
                        place = 0 if side.commutes[reader] else index
                        if there[reader] < 0:
                            reads.append(_code(_OUTPUT, classes.get(reader, 0), slot, place))
                        else:
                            reads.append(_code(_MATCH, there[reader] if at else reader, slot, place))
                reads.sort()
                types = side.weight_types(node)
                classes[node] = number[side.op[node], side.attributes[node], len(types), *types, *reads]
            tables.append({node: classes[node] for node in left[at]})
        return tables

    def _by_neighbors(self, left: Left) -> bool:
        """Match nodes of one operator that are each other's best match by their matched neighbors."""
        free = (n for order in (left[0], left[0][::-1]) for n in order if self.sides[0].node[n] < 0)
        nearest = ((n, self._best(0, n)) for n in free)
        return self._pair_all(((n, m) for n, m in nearest if m >= 0 and self._best(1, m) == n), NEIGHBORS)

    def _best(self, at: int, node: int) -> int:
        """Return the unmatched node of the other graph that shares the most inputs and readers; −1 if there is none."""
        side, other = self.sides[at], self.sides[1 - at]
        good = [
            (
                count,
                side.names[node] == other.names[m] != "",
                side.attributes[node] == other.attributes[m],
                side.weight_types(node) == other.weight_types(m),
                -m,
            )
            for m, count in self._votes(at, node).items()
            if m >= 0 and other.node[m] < 0 and other.op[m] == side.op[node]
        ]
        return -max(good)[-1] if good else -1

    def _votes(self, at: int, node: int) -> Counter[int]:
        """Count the matched inputs and readers of a node that nodes of the other graph share."""
        side, other = self.sides[at], self.sides[1 - at]
        votes: Counter[int] = Counter()
        for slot, value in enumerate(side.inputs[node]):
            there = side.value[value] if value >= 0 and side.kind[value] != INITIALIZER else -1
            if there >= 0:
                anywhere = side.commutes[node]
                votes.update({reader for reader, place in other.readers[there] if place == slot or anywhere})
        for slot, reader, place in side.consumers(node):
            there = side.node[reader]
            if there >= 0:
                read = other.inputs[there]
                for value in read if side.commutes[reader] else read[place : place + 1]:
                    if value >= 0 and other.slot[value] == slot:
                        votes[other.producer[value]] += 1
        ends = self._ends
        for value in side.outputs[node]:
            if value in ends[at]:
                votes.update({other.producer[w] for w, there in ends[1 - at].items() if there == ends[at][value]})
        return votes

    def _by_order(self, left: Left) -> bool:
        """Match nodes with equal surroundings, in topological order."""
        keys = [{node: side.surroundings(node) for node in nodes} for side, nodes in zip(self.sides, left, strict=True)]
        if any(self._pair_classes(keys, ORDER, single=single) for single in (True, False)):
            return True
        if len(left[0]) * len(left[1]) > ALIGNMENT_PAIRS:
            return False
        number: Numbers = defaultdict(itertools.count().__next__)
        tokens = [[number[keys[at][node]] for node in left[at]] for at in (0, 1)]
        blocks = difflib.SequenceMatcher(None, tokens[0], tokens[1], autojunk=False).get_matching_blocks()
        steps = ((left[0][a + step], left[1][b + step]) for a, b, size in blocks for step in range(size))
        return self._pair_all(steps, ORDER)

    def _by_place(self, left: Left) -> bool:
        """Match nodes of different operators between the same tensors."""
        a, b = self.sides
        keys = [{n: self._matched_inputs(at, n) for n in left[at]} for at in (0, 1)]
        pairs = [(n, m) for n, m in _equal_keys(*keys, single=True) if len(a.outputs[n]) == len(b.outputs[m])]
        return self._pair_all(((n, m) for n, m in pairs if self._have_common_reader(n, m)), PLACE)

    def _matched_inputs(self, at: int, node: int) -> tuple[int, ...]:
        """Return the computed inputs of a node, as the reference numbers them; empty if one is not matched."""
        side = self.sides[at]
        read = side.computed_inputs(node)
        matches = tuple(v if at == 0 else side.value[v] for v in read if side.value[v] >= 0)
        return matches if len(matches) == len(read) else ()

    # --- values ---

    def _rest_of_values(self) -> None:
        """Match weights that matched nodes read at the same index, then outputs, then values with the same name."""
        a, b = self.sides
        votes = defaultdict[int, Counter[int]](Counter)
        subgraph = a.graph.subgraphs[self._subgraphs[0]]
        for n in range(subgraph.start, subgraph.stop):
            m = a.node[n]
            if m < 0:
                continue
            reads = (a.weights(n), b.weights(m)) if a.commutes[n] else (a.inputs[n], b.inputs[m])
            for v, w in zip(*reads, strict=False):
                if v >= 0 and w >= 0 and a.kind[v] == b.kind[w] == INITIALIZER:
                    votes[v][w] += 1
        pairs = [(v, w) for v, counts in votes.items() for w, _ in counts.most_common()]
        for v, w in sorted(pairs, key=lambda pair: a.value_names[pair[0]] != b.value_names[pair[1]]):
            self._pair_values(v, w, STRUCTURE)
        ends = [{number: value for value, number in side.items()} for side in self._ends]
        for number in ends[0].keys() & ends[1].keys():
            self._pair_values(ends[0][number], ends[1][number], STRUCTURE)
        values, others = (
            np.flatnonzero(side.graph.value_subgraph == subgraph).tolist()
            for side, subgraph in zip(self.sides, self._subgraphs, strict=True)
        )
        by_name = {b.value_names[w]: w for w in others if b.value[w] < 0}
        left: dict[str, int] = {}
        for v in values:
            w = by_name.get(a.value_names[v], -1)
            if a.value[v] < 0 and w >= 0:
                self._pair_values(v, w, NAME)
            elif a.value[v] < 0:
                left[a.value_names[v]] = v
        for v in values:
            if a.value[v] >= 0 and self.value_how[v] != MAPPING:
                # the output of a fused node has the name of the output of the last node it replaces
                w = a.value[v]
                last, other = left.get(b.value_names[w], -1), by_name.get(a.value_names[v], -1)
                if last >= 0 and _follows(a, last, v):
                    a.value[v], b.value[w], self.value_how[v] = -1, -1, NONE
                    self._pair_values(last, w, NAME)
                elif other >= 0 and _follows(b, other, w):
                    a.value[v], b.value[w] = -1, -1
                    self._pair_values(v, other, NAME)
        # weights that no node reads, by type and first bytes
        unread = []
        for side, at in zip(self.sides, self._subgraphs, strict=True):
            rest = (v for v in side.graph.subgraphs[at].weights.tolist() if side.value[v] < 0 and not side.readers[v])
            unread.append({v: (side.type[v], side.contents.head(v)) for v in rest})
        for v, w in _equal_keys(*unread):
            self._pair_values(v, w, STRUCTURE)


def _follows(side: GraphLists, value: int, source: int) -> bool:
    """Return whether a value is computed from another by a chain of unmatched nodes."""
    for _ in range(FUSION_NODES):
        node = side.producer[value]
        if node < 0 or side.node[node] >= 0:
            return value == source
        inputs = side.computed_inputs(node)
        if source in inputs:
            return True
        if not inputs:
            return False
        value = inputs[0]
    return False


_Thing = TypeVar("_Thing")


def _by_key(keys: Mapping[_Thing, Hashable]) -> dict[Hashable, list[_Thing]]:
    """Group items by key; an empty key matches nothing."""
    return followers((key, thing) for thing, key in keys.items() if key not in ("", ()))


def _equal_keys(
    keys: Mapping[_Thing, Hashable], others: Mapping[_Thing, Hashable], *, single: bool = False
) -> list[tuple[_Thing, _Thing]]:
    """Pair items with equal keys in order; if ``single``, only where each side has one."""
    there = _by_key(others)
    return [
        pair
        for key, ones in _by_key(keys).items()
        if not single or len(ones) == len(there.get(key, ())) == 1
        for pair in zip(ones, there.get(key, ()), strict=False)
    ]


def _distinctive_bytes(side: GraphLists, value: int) -> Hashable:
    """Return the type and first bytes of a weight; None if it is too small to be distinguished by them."""
    sample = side.contents.head(value)
    return ("bytes", side.type[value], sample) if len(sample) >= DISTINCTIVE else None


def _descriptive_name(side: GraphLists, value: int) -> Hashable:
    """Return the name of a weight; None if an exporter numbered it."""
    name = side.value_names[value]
    return None if "::" in name or _SERIAL_NAME.fullmatch(name) else ("name", name)


_DISTINGUISHING: Final[tuple[Callable[[GraphLists, int], Hashable], ...]] = (
    lambda side, node: side.names[node],
    lambda side, node: tuple(side.value_names[value] for value in side.weights(node)),
    lambda side, node: tuple(side.contents.head(value) for value in side.weights(node)),
)
"""Keys for nodes that are otherwise equal: the name, the names of the weights, their first bytes."""
