"""The structure of a subgraph: its drawn nodes in order, the edges between their scopes, repeats, and names.

The names of scopes come from the exporter's metadata, from node names or from weight names.

The children of a scope are codes: the number of a scope, or ``-1 - i`` for an item ``i``.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.graph.dataflow import depths, followers, lines, rows, strongly_connected, topological, upward
from onnx_nb.analysis.graph.operators import CATEGORIES, category, names_where
from onnx_nb.analysis.model.protofields import Longs, sorted_unique

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.scopes.scopes import Tree

CHILDREN_LIMIT = 64
"""Maximum number of children of a scope; with more it gets another level."""
FLAT_LIMIT = 32
"""Maximum number of nodes of a graph that stays flat if it has no scopes."""
MIN_REPEATS = 3
"""Minimum number of members of a repeat."""
MIN_BRANCHES = 8
"""Minimum number of equal parallel branches that are folded."""
FEW = 24
"""Maximum number of boxes in a scope in which no branches are folded."""
MIN_PREPARED = 6
"""Minimum number of operators preparing shapes and masks that are folded."""

EDGE, TO_HUB, FROM_HUB = (np.uint64(1 << bit) for bit in (20, 40, 41))
"""Offsets that distinguish the hashes of edges inside a structure, to a hub and from a hub."""

_LAYERS = frozenset(map(CATEGORIES.index, ("linear", "normalize", "activation")))


class Part:
    """A subgraph: its drawn nodes ("items") in topological order, and the forward edges between them."""

    def __init__(self, graph: Graph, subgraph: int) -> None:
        self.graph = graph
        self.prefix = graph.prefixes[subgraph]
        place = graph.subgraphs[subgraph]
        order = graph.order if subgraph == 0 else graph.subgraph_order(subgraph)
        self.all_nodes = order
        self.items = order[~graph.folded[order]]
        self.count = len(self.items)
        self.position = position = np.full(place.stop - place.start + 1, -1, np.int64)
        position[self.items - place.start] = np.arange(self.count)
        """Position of each node of the subgraph among the items; −1 for one that is not drawn."""
        source, target = graph.subgraph_edges(subgraph)
        a, b = position[source - place.start], position[target - place.start]
        forward = (a >= 0) & (b > a)  # only forward edges: those that close a cycle are left out
        pairs = sorted_unique(a[forward] * max(self.count, 1) + b[forward])
        self.source, self.target = np.divmod(pairs, max(self.count, 1))
        self.owners = [node for node in order.tolist() if graph.bodies(node)] if len(graph.subgraphs) > 1 else []
        inputs = (graph.in_ptr[self.items + 1] - graph.in_ptr[self.items]).astype(np.uint64)
        self.kind = graph.op_index[self.items].astype(np.uint64) << np.uint64(32) | inputs
        """Operator and number of inputs of each item, the same for equal nodes."""

    def operator(self, item: int) -> str:
        """Return the operator of an item."""
        return self.graph.op_type(int(self.items[item]))

    def learned(self, item: int) -> bool:
        """Return whether an item is a layer or reads a floating-point constant of several elements."""
        graph, node = self.graph, int(self.items[item])
        if graph.bodies(node) or category(*graph.operators[graph.op_index[node]]) in _LAYERS:
            return True
        values = graph.node_inputs(node)
        types = map(graph.type_of, values[(values >= 0) & graph.constant_values[values]].tolist())
        return any("float" in kind.dtype and kind.shape not in ((), (1,)) for kind in types)

    @functools.cached_property
    def constants(self) -> list[list[str]]:
        """The names of the constants that each item reads, without "Constant_3" and the like: they say no module."""
        graph, names = self.graph, self.graph.value_names
        constant = graph.constant_values.copy()
        for value in np.flatnonzero(constant & (graph.producer >= 0)).tolist():
            constant[value] = graph.op_type(int(graph.producer[value])).lower() not in names[value].lower()
        reads = (graph.node_inputs(node).tolist() for node in self.items.tolist())
        return [[names[v] for v in values if v >= 0 and constant[v]] for values in reads]

    @functools.cached_property
    def common_constant(self) -> str:
        """The common start of the names of all constants."""
        return os.path.commonprefix([name for names in self.constants for name in names])  # noqa: RUF071 (by character)

    @functools.cached_property
    def before(self) -> list[list[int]]:
        """The items that each item reads from."""
        return rows(self.target, self.source, self.count)

    @functools.cached_property
    def after(self) -> list[list[int]]:
        """The items that read from each item."""
        return rows(self.source, self.target, self.count)


class Siblings:
    """The edges between the children of every scope, and a topological order of the children."""

    def __init__(self, tree: Tree, part: Part) -> None:
        self._tree, self._part = tree, part
        self._of_item = tree.of_item.copy()
        self._parent = np.asarray(tree.parent)
        self._depth = depths(self._parent)
        self._lines = lines(self._parent)
        positions = np.arange(part.count)
        last = np.zeros(len(self._parent), np.int64)
        last[tree.of_item] = positions
        self.key = np.concatenate([upward(np.maximum, last, self._parent), positions[::-1]])
        """Sort key of each code (items count from the end): children sorted by it are in topological order."""
        a, b = self._of_item[part.source], self._of_item[part.target]
        level = np.zeros(len(a), np.int64)
        for line in self._lines[1:]:
            level += (line[a] == line[b]) & (line[a] >= 0)
        table = np.stack([*self._lines, np.full_like(self._parent, -1)])
        scope = table[level, a]
        source = np.where(self._depth[a] > level, table[level + 1, a], -1 - part.source)
        target = np.where(self._depth[b] > level, table[level + 1, b], -1 - part.target)
        order = np.argsort(scope, kind="stable")
        self._scope, self._a, self._b = scope[order], source[order], target[order]
        self._sorted: dict[int, tuple[Longs, Longs]] = {}
        self.cycles: list[tuple[int, list[int]]] = []
        """(scope, codes of children on a cycle)"""
        late = sorted_unique(self._scope[self.key[self._a] >= self.key[self._b]])
        if len(late):
            self._sort(late[np.argsort(self._depth[late], kind="stable")])

    def _sort(self, scopes: Longs) -> None:
        """Sort the children of scopes for which the order of their last nodes is not topological."""
        first = np.concatenate([self._tree.first_items(), np.arange(self._part.count)[::-1]])
        for scope in scopes.tolist():
            a, b = self.edges(scope)
            codes = self.children(scope)
            if bool(np.all(first[a] < first[b])):
                self.key[codes] = first[codes]
                continue
            place = {code: i for i, code in enumerate(codes.tolist())}
            edges = dict.fromkeys(zip(a.tolist(), b.tolist(), strict=True))
            pairs = [(place[source], place[target]) for source, target in edges]
            components = strongly_connected(range(len(codes)), followers(pairs))
            self.cycles.extend((scope, codes[members].tolist()) for members in components if len(members) > 1)
            order = topological(0, len(codes), pairs)
            self.key[codes[order]] = np.arange(len(order))

    def line(self, scope: int) -> list[int]:
        """Return a scope and its ancestors."""
        return [int(line[scope]) for line in self._lines if line[scope] >= 0]

    def edges(self, scope: int) -> tuple[Longs, Longs]:
        """Return the edges between the children of a scope as codes."""
        start, stop = np.searchsorted(self._scope, [scope, scope + 1])
        return self._a[start:stop], self._b[start:stop]

    def _neighbors(self, scope: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Return the children before and after each child of a scope, as codes."""
        edges = dict.fromkeys(zip(*(codes.tolist() for codes in self.edges(scope)), strict=True))
        before = followers((target, source) for source, target in edges)
        return defaultdict(list, before), defaultdict(list, followers(edges))

    def children(self, scope: int) -> Longs:
        """Return the children of a scope as codes, in topological order."""
        codes = np.concatenate([np.flatnonzero(self._parent == scope), -1 - np.flatnonzero(self._of_item == scope)])
        return codes[np.argsort(self.key[codes], kind="stable")]

    def items_in(self, scope: int) -> Longs:
        """Return the items in a scope at any depth, in topological order."""
        level = int(self._depth[scope])
        if level not in self._sorted:
            label = self._lines[level][self._of_item]
            order = np.argsort(label, kind="stable")
            self._sorted[level] = label[order], order
        label, order = self._sorted[level]
        start, stop = np.searchsorted(label, [scope, scope + 1])
        return order[start:stop]

    def signatures(self, scopes: Longs) -> dict[int, int]:
        """Return a hash of each scope's structure: equal for equal operators, equally connected."""
        part, count = self._part, len(self._parent)
        is_asked = np.zeros(count, bool)
        is_asked[scopes] = True
        total = np.zeros(count, np.uint64)
        for level, line in enumerate(self._lines):
            here = is_asked & (self._depth == level)
            if here.any():
                label = line[self._of_item]
                label = np.where((label >= 0) & here[label], label, -1)
                total += _structures(label, part.kind, part.source, part.target, count)[0]
        return dict(zip(scopes.tolist(), total[scopes].tolist(), strict=True))

    def families(self) -> list[tuple[int, list[list[int]]]]:
        """Find equal parallel branches, such as the heads after a Split: (scope, codes of each branch) in order.

        A hub is a child with many predecessors or successors. Without hubs, a scope with more than `FEW` children
        separates into branches. Equal branches have equal operators, equally connected with each other and the same
        hubs, so that no path leads from one to another, and together they are on no cycle.
        """
        scopes = len(self._parent)
        home = np.concatenate([self._parent, self._of_item])  # the scope of each vertex: scopes first, then items
        count = len(home)
        wide = np.bincount(home[home >= 0], minlength=scopes) > FEW
        is_wide = wide[self._scope]
        a, b = (np.where(codes >= 0, codes, scopes - 1 - codes) for codes in (self._a[is_wide], self._b[is_wide]))
        a, b = np.divmod(sorted_unique(a * count + b), count)
        hub = (np.bincount(a, minlength=count) >= MIN_BRANCHES) | (np.bincount(b, minlength=count) >= MIN_BRANCHES)
        between_others = ~hub[a] & ~hub[b]
        first_of_branch = (home >= 0) & ~hub
        first_of_branch[b[between_others]] = False
        first_of_branch[first_of_branch] = wide[home[first_of_branch]]
        has_branches = np.bincount(home[first_of_branch], minlength=scopes) >= MIN_BRANCHES
        member = (home >= 0) & ~hub
        member[member] = has_branches[home[member]]
        if not bool(member.any()):
            return []

        key = np.concatenate([self.key[:scopes], self.key[scopes:][::-1]])
        vertices = np.flatnonzero(member)
        vertices = vertices[np.argsort(key[vertices], kind="stable")]
        place = np.zeros(count, np.int64)
        place[vertices] = np.arange(len(vertices))
        kind = np.zeros(count, np.uint64)
        kind[scopes:] = self._part.kind
        inside = vertices[vertices < scopes]
        signature = self.signatures(inside) if len(inside) else {}
        kind[inside] = np.fromiter((signature[scope] for scope in inside.tolist()), np.uint64, len(inside))

        inner = between_others & member[a]
        branch = _components(count, a[inner], b[inner])
        label = branch[vertices]
        total, places = _structures(label, kind[vertices], place[a[inner]], place[b[inner]], count)
        for edges, at, other in (
            (member[a] & hub[b], a, b.astype(np.uint64) + TO_HUB),
            (hub[a] & member[b], b, a.astype(np.uint64) + FROM_HUB),
        ):
            np.add.at(total, branch[at[edges]], mixed(places[place[at[edges]]] + np.uint64(1), other[edges]))

        codes = np.where(vertices < scopes, vertices, scopes - 1 - vertices)
        structures: dict[tuple[int, int], list[list[int]]] = {}
        order = np.argsort(label, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
            structure = int(home[vertices[members[0]]]), int(total[label[members[0]]])
            structures.setdefault(structure, []).append(codes[members].tolist())
        families = ((scope, family) for (scope, _), family in structures.items() if len(family) >= MIN_BRANCHES)
        return [(scope, sorted(family, key=lambda members: int(self.key[members[0]]))) for scope, family in families]

    def prepared(self) -> list[list[int]]:
        """Find connected children of the root that only prepare shapes, positions and masks: the codes of each piece.

        Nothing learned flows through them. They belong to no module, or to a call that an exporter turned into a scope;
        a transformer has dozens. The results of Shape and Size do not depend on the values that they read. A piece has
        at least `MIN_PREPARED` operators, and no path leaves and reenters it.
        """
        part = self._part
        codes = self.children(0).tolist()
        if sum(code < 0 for code in codes) < MIN_PREPARED or all(code < 0 for code in codes):
            return []
        before, _ = self._neighbors(0)
        of_shape = names_where("of_shape")
        has_weights: dict[int, bool] = {}
        level: dict[int, int] = {}
        for code in codes:
            items = [-1 - code] if code < 0 else self.items_in(code).tolist()
            is_source = len(items) > CHILDREN_LIMIT or any(map(part.learned, items))
            is_fed = any(has_weights.get(other, True) for other in before[code])
            has_weights[code] = is_source or (is_fed and not (code < 0 and part.operator(-1 - code) in of_shape))
            # the level rises after a path through a learned item, so that no piece holds both ends of one
            above = (level.get(other, 0) + (has_weights[other] and not has_weights[code]) for other in before[code])
            level[code] = max(above, default=0)
        # levels rise as far as the readers allow, which joins pieces
        ceiling: dict[int, int] = {}
        for code in reversed(codes):
            if not has_weights[code]:
                level[code] = ceiling.get(code, level[code])
            for other in before[code]:
                ceiling[other] = min(ceiling.get(other, level[code]), level[code])
        free = [code for code in codes if not has_weights[code]]
        place = {code: i for i, code in enumerate(free)}
        edges = ((other, code) for code in free for other in before[code] if other in place)
        pairs = [(place[other], place[code]) for other, code in edges if level[other] == level[code]]
        label = _components(len(free), *np.asarray(pairs, np.int64).reshape(-1, 2).T)
        pieces = followers(zip(label.tolist(), free, strict=True))
        return [piece for piece in pieces.values() if len(piece) >= MIN_PREPARED]

    def chains(self, run: list[int]) -> list[list[int]]:
        """Divide a run of equal children where one does not read the one before; a run of parallel ones stays whole."""
        codes = self.children(int(self._parent[run[0]])).tolist()
        members, before = set(run), self._neighbors(int(self._parent[run[0]]))[0]
        sources: dict[int, set[int]] = {}
        """Child → the members that it reads, directly or through children that are no members."""
        for code in codes[codes.index(run[0]) : codes.index(run[-1]) + 1]:
            read = ({other} if other in members else sources.get(other, set()) for other in before[code])
            sources[code] = set().union(*read)
        if not any(sources[member] for member in run):
            return [run]
        chains = [run[:1]]
        for last, member in itertools.pairwise(run):
            if last not in sources[member]:
                chains.append([])
            chains[-1].append(member)
        return chains

    def between(self, run: list[int]) -> list[int] | None:
        """Return the children on paths between members of a run; None if too many to add to it."""
        scope = int(self._parent[run[0]])
        codes = self.children(scope).tolist()
        codes = codes[codes.index(run[0]) : codes.index(run[-1]) + 1]
        if len(codes) == len(run):
            return []
        members = set(run)
        before, after = self._neighbors(scope)
        behind, feeding = set(run), set(run)
        for side, line, near in ((behind, codes, before), (feeding, codes[::-1], after)):
            for code in line:
                if not side.isdisjoint(near[code]):
                    side.add(code)
        inner = [code for code in codes if code in behind and code in feeding and code not in members]
        return inner if sum(code < 0 for code in inner) == len(inner) <= 4 * len(run) else None


class Row:
    """Children of a scope in topological order, the kind of each, and the edges between them."""

    def __init__(self, codes: Longs, kind: NDArray[np.uint64], source: Longs, target: Longs) -> None:
        self.codes, self._kind, self._source, self._target = codes, kind, source, target

    def part(self, start: int, stop: int) -> Row:
        """Return the children from ``start`` to ``stop``."""
        inside = (self._source >= start) & (self._target < stop)
        source, target = self._source[inside] - start, self._target[inside] - start
        return Row(self.codes[start:stop], self._kind[start:stop], source, target)

    def pieces(self) -> list[tuple[int, int, int]]:
        """Divide the row into (start, stop, unit): equal blocks of ``unit`` children; loose children have unit 0.

        Segments start after each child where at most one result is still to be read. Results that are read much later,
        such as those of a U-net's skips or a mask that every layer reads, do not count.
        """
        count = len(self.codes)
        last = np.zeros(count, np.int64)
        np.maximum.at(last, self._source, self._target)
        position = np.arange(count)
        is_local = (last > position) & (last - position <= max(FLAT_LIMIT, count // 20))
        change = np.bincount(position[is_local], minlength=count + 1) - np.bincount(last[is_local], minlength=count + 1)
        starts = np.append(0, np.flatnonzero(np.cumsum(change)[: count - 1] <= 1) + 1)
        ends = np.append(starts[1:], len(self.codes))
        if len(starts) == 1:
            return [(0, len(self.codes), 0)]
        label = np.repeat(np.arange(len(starts)), ends - starts)
        # a number for each segment, equal for segments of equal structure
        total, _ = _structures(label, self._kind, self._source, self._target, len(starts))
        tokens = np.unique(total, return_inverse=True)[1].astype(np.int64)
        pieces = []
        at = 0
        for start, stop, period in [*repeats(tokens, ends - starts), (len(starts), len(starts), 0)]:
            for segment in range(at, start):
                size = int(ends[segment] - starts[segment])
                # a segment of more than half stays loose; otherwise dividing it again would never end
                block = MIN_REPEATS <= size <= max(CHILDREN_LIMIT, len(self.codes) // 2)
                pieces.append((int(starts[segment]), int(ends[segment]), size if block else 0))
            if period:
                pieces.append((int(starts[start]), int(ends[stop - 1]), int(ends[start + period - 1] - starts[start])))
            at = stop
        return pieces


def repeats(tokens: Longs, sizes: Longs) -> list[tuple[int, int, int]]:
    """Find runs of equal neighbors among segments: (start, stop, period), sorted; the longest win."""
    count = len(tokens)
    offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    candidates: list[tuple[bool, int, int, int, int]] = []
    for period in range(1, min(count // 2, 256) + 1):
        equal = np.zeros(count - period + 2, np.int8)
        equal[1:-1] = tokens[:-period] == tokens[period:]
        edge = np.flatnonzero(np.diff(equal))
        starts, length = edge[0::2], edge[1::2] - edge[0::2]
        times = length // period + 1
        stops = starts + times * period
        unit = offset[starts + period] - offset[starts]
        good = (length >= period) & (unit >= MIN_REPEATS) & ((times >= MIN_REPEATS) | (unit >= 2 * MIN_REPEATS))
        rows = np.stack([offset[stops] - offset[starts], starts, stops])[:, good].T.tolist()
        candidates += [(stop - start < MIN_REPEATS * period, -size, period, start, stop) for size, start, stop in rows]
    is_covered, runs = np.zeros(count, bool), list[tuple[int, int, int]]()
    # runs of at least three members first: two equal halves of a network would hide the repeats in each
    for *_, period, start, stop in sorted(candidates)[:10_000]:
        if not is_covered[start:stop].any():
            is_covered[start:stop] = True
            runs.append((start, stop, period))
    return sorted(runs)


def levels(part: Part, inside: Longs, member: Mapping[int, Longs]) -> dict[int, int]:
    """Return for each item the number of times that the flow has left one of the scopes before it."""
    owner = dict.fromkeys(inside.tolist(), -1)
    for scope, items in member.items():
        owner.update(dict.fromkeys(items.tolist(), scope))
    level: dict[int, int] = {}
    for item, scope_ in owner.items():
        sources = [(level[other], owner[other]) for other in part.before[item] if other in owner]
        level[item] = max((before + (source not in (-1, scope_)) for before, source in sources), default=0)
    return level


def mixed(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each pair (the finalizer of splitmix64)."""
    x = a * np.uint64(0x9E3779B97F4A7C15) + b * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(0x165667B19E3779F9)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _structures(
    label: Longs, kind: NDArray[np.uint64], source: Longs, target: Longs, count: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a hash of each label's vertices (no label: −1), from their kinds and edges, and each vertex's position."""
    order = np.argsort(label, kind="stable")
    order = order[np.searchsorted(label[order], 0) :]
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    place = np.zeros(len(label), np.uint64)
    place[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    total = np.zeros(count, np.uint64)
    np.add.at(total, label[order], mixed(kind[order], place[order]))
    inner = (label[source] == label[target]) & (label[source] >= 0)
    source, target = source[inner], target[inner]
    np.add.at(total, label[source], mixed(place[source] + np.uint64(1), place[target] + EDGE))
    return total, place


def _components(count: int, a: Longs, b: Longs) -> Longs:
    """Return for each vertex the lowest vertex connected to it."""
    label = np.arange(count)
    while True:
        low = np.minimum(label[a], label[b])
        new = label.copy()
        np.minimum.at(new, label[a], low)
        np.minimum.at(new, label[b], low)
        while not np.array_equal(new, further := new[new]):
            new = further
        if np.array_equal(new, label):
            return label
        label = new


DEPTH_LIMIT = 24
"""Maximum depth of scopes; deeper names join the scope at this depth."""

OPERATION = 6
"""Maximum number of nodes of a torch operator's call that is not a scope: the exporter names every call."""


def named_scopes(part: Part) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield each source in a file: metadata, names or weights; the path of each item; the class of each path."""
    sources = ("metadata", _metadata, 0.5), ("names", _node_names, 0.5), ("weights", _weight_names, 0.1)
    for source, read, share in sources:
        classes: dict[str, str] = {}
        paths = read(part, classes)
        spread = None if paths is None else _spread(part, paths, share, follow=source == "weights")
        if spread is not None:
            yield source, spread, classes


def _metadata(part: Part, classes: dict[str, str]) -> list[str | None] | None:
    """Read the nested scopes and their classes from ``metadata_props`` of torch's exporter."""
    graph = part.graph
    if not any(graph.node(i).metadata_props for i in part.items[:: max(1, part.count // 64)].tolist()):
        return None
    paths: dict[tuple[str, str], tuple[str, str] | None] = {}
    places: list[tuple[str, str] | None] = []
    for item in part.items.tolist():
        entries = {plain_text(entry.key): plain_text(entry.value) for entry in graph.nodes[item].metadata_props}
        key = entries.get("pkg.torch.onnx.name_scopes", ""), entries.get("pkg.torch.onnx.class_hierarchy", "")
        if key not in paths:
            paths[key] = _torch_path(*key, classes)
        places.append(paths[key])
    size = Counter(places)
    names = {p: "/".join(filter(None, p)) if size[p] > OPERATION else p[0] for p in size if p is not None}
    return [None if place is None else names[place] for place in places]


def _torch_path(scopes: str, hierarchy: str, classes: dict[str, str]) -> tuple[str, str] | None:
    """Turn "['', 'encoder', 'encoder.layer.0', 'linear']" into "encoder/layer.0" and the operator's "linear"."""
    names = [a or b for a, b in _QUOTES.findall(scopes)]
    kinds = [a or b for a, b in _QUOTES.findall(hierarchy)]
    if not names:
        return None
    above, path = "", ""
    for name, kind in itertools.zip_longest(names[: DEPTH_LIMIT + 1], kinds[: len(names)], fillvalue=""):
        if not name or name.startswith("_empty_nn_module_stack"):
            continue
        short = name[len(above) + 1 :] if above and name.startswith(f"{above}.") else name
        short = short.replace("/", ".")
        if kind.startswith(_OPERATORS):
            return path, short
        path = f"{path}/{short}" if path else short
        if path not in classes:
            classes[path] = kind.rpartition(".")[2]
        above = name
    return path, ""


_OPERATORS = ("aten.", "prims.", "torchvision.", "quantized_decomposed.")
"""Prefixes of the class of a scope that is a torch operator."""
_QUOTES = re.compile(r"""'([^']*)'|"([^"]*)\"""")
"""An item of a list that the exporter wrote with Python's repr."""


def _node_names(part: Part, _: dict[str, str]) -> list[str | None]:
    """Read the scopes from node names: "/encoder/layer.0/MatMul"; of "a/conv;a/conv__55", fused by TFLite, "a/conv".

    A node that an optimizer has put in place of others has a name of its own, and their last output.
    """
    graph, length = part.graph, len(part.prefix)

    def name_of(node: int) -> str:
        name = graph.names[node][length:]
        value = -1 if "/" in name else next(iter(graph.node_outputs(node).tolist()), -1)
        output = graph.value_names[value][length:] if value >= 0 else ""
        return output if output[:1] == "/" else name

    names = map(name_of, part.items.tolist())
    stems = (name.partition(";")[0] + "/" if ";" in name else name for name in names)
    return [stem.rpartition("/")[0] if "/" in stem else None for stem in stems]


def _weight_names(part: Part, _: dict[str, str]) -> list[str | None] | None:
    """Read the scopes from weight names: "encoder.layer.0.dense.weight"."""
    if part.count <= FLAT_LIMIT:
        return None
    return [next((path for name in names if (path := _weight_path(name))), None) for names in part.constants]


@functools.lru_cache(maxsize=1 << 16)
def _weight_path(name: str) -> str:
    if name.startswith("onnx::") or len(name) > 500:  # names generated by a tool
        return ""
    if "/" in name:
        return name.rpartition("/")[0]
    # a number belongs to the part before it
    return tidy(re.sub(r"\.(?!\d+(?:\.|$))", "/", name.rpartition(".")[0]))


def _spread(part: Part, paths: list[str | None], share: float, *, follow: bool = False) -> list[str] | None:
    """Assign nodes without a path the scope that their neighbors share; None if too few nodes have a path.

    With ``follow`` a node may also join all the nodes that it reads from, as the Relu after a Conv.
    """
    missing = paths.count(None)
    if part.count - missing < share * part.count:
        return None
    if not missing:
        return [path or "" for path in paths]

    below = list(paths)
    for item in range(part.count - 1, -1, -1):
        if below[item] is None:
            below[item] = _deepest(below[other] for other in part.after[item])
    for item, path in enumerate(paths):
        if path is None:
            above = [path_ for other in part.before[item] if (path_ := paths[other]) is not None]
            common = functools.reduce(_common_path, above) if above and follow else ""
            lead = _deepest(above)
            through = _common_path(lead, below[item] or "") if lead else (below[item] or "").rpartition("/")[0]
            paths[item] = max(common, through, key=_length)
    return [path or "" for path in paths]


def _length(path: str) -> int:
    return path.count("/") + bool(path)


def _deepest(paths: Iterable[str | None]) -> str | None:
    return max((path for path in paths if path is not None), key=_length, default=None)


@functools.lru_cache(maxsize=1 << 14)
def _common_path(a: str, b: str) -> str:
    pairs = zip(a.split("/"), b.split("/"), strict=False)
    return "/".join(left for left, right in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def gathered(paths: list[str]) -> list[str]:
    """Move each item with a path of its own one scope up: most modules are a single node, not worth a scope."""
    count = Counter(paths)
    if any(path.count("/") > DEPTH_LIMIT for path in count):
        paths = [tidy(path) if path.count("/") > DEPTH_LIMIT else path for path in paths]
        count = Counter(paths)
    inner = {path[: slash.start()] for path in count for slash in re.finditer("/", path)} | {""}
    targets = {path: path.rpartition("/")[0] for path, times in count.items() if times == 1 and path not in inner}
    return [targets.get(path, path) for path in paths]


def tidy(path: str) -> str:
    """Return a path without empty parts, of limited depth."""
    if path.count("/") < DEPTH_LIMIT and path.strip("/") == path and "//" not in path:
        return path
    return "/".join([part for part in path.split("/") if part][:DEPTH_LIMIT])
