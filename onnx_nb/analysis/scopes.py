"""The scope tree: which nodes belong together, so that a person sees 20 boxes instead of 2,000.

Scopes come from the exporter's metadata, else from names of nodes, else from names of weights, else from the structure
(cuts where one tensor is alive, repeats of equal pieces). Any tree is then made readable: no group of one, no group of
more than 64, equal layers in a row under one roof, and no cycle between siblings.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.graph import Graph
from onnx_nb.analysis.topology import sorted_unique, strongly_connected, topological

if TYPE_CHECKING:
    from onnx_nb.analysis.fields import Ints, Longs

ROOT, SCOPE, REPEAT, CHUNK, BODY, BRANCH, FUNCTION = range(7)
"""What a group is, as in `Scopes.group_kind`. BODY is a node with bodies, BRANCH one of them, CHUNK part of a row,
FUNCTION what is inside of a call of a local function."""

CHILDREN_LIMIT = 64
"""A group with more children gets a level in between."""
FLAT_LIMIT = 48
"""A graph without scopes is shown flat up to so many nodes."""
FLAT_BODY = 12
"""The body of an If or Loop with fewer nodes is not looked at for scopes."""
TOP_LIMIT = 50
"""The root takes the place of a group that holds nearly everything if that gives at most so many groups."""
DEPTH_LIMIT = 24
"""Deeper names stay in the group at this depth."""
MIN_REPEATS = 3

Column = TypeVar("Column", NDArray[np.int64], NDArray[np.float64])


@dataclass(frozen=True, eq=False)
class Scopes:
    """A tree of groups in columns; group 0 is the root, parents come before children, siblings in order of the flow."""

    source: str
    """Where the scopes of the main graph come from: metadata, names, weights or structure."""
    group_parent: Ints
    """−1 for the root."""
    group_name: list[str]
    """Short, below the parent; of merged groups "attention/self"."""
    group_path: list[str]
    group_class: list[str]
    """Class of the torch module, as "BertLayer", or name of the function; empty if unknown."""
    group_kind: NDArray[np.uint8]
    group_node: Ints
    """The node that owns a BODY or BRANCH, or calls a FUNCTION, else −1."""
    group_repeat: Ints
    """How many equal children a REPEAT holds, else 1."""
    node_group: Ints
    """The group that directly contains a flat node of `Graph.opened`."""

    def children(self, group: int) -> Ints:
        """Give the groups directly in a group."""
        return np.flatnonzero(self.group_parent == group).astype(np.int32)

    def members(self, group: int) -> Ints:
        """Give the nodes directly in a group."""
        return np.flatnonzero(self.node_group == group).astype(np.int32)

    def __repr__(self) -> str:
        return f"Scopes({len(self.group_parent)} groups from {self.source})"


def scopes(graph: Graph) -> Scopes:
    """Group the nodes of a graph and those in its calls (`Graph.opened`); made once and kept with the model.

    Examples
    --------
    >>> import onnx
    >>> node = onnx.helper.make_node
    >>> nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"], f"/{'ab'[i // 3]}/Relu_{i}") for i in range(6)]
    >>> float2 = lambda name: onnx.helper.make_tensor_value_info(name, 1, [2])
    >>> model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [float2("t0")], [float2("t6")]))
    >>> found = scopes(Graph.of(model))
    >>> found.source, found.group_name, found.node_group.tolist()
    ('names', ['', 'a', 'b'], [1, 1, 1, 2, 2, 2])
    """
    model = graph.model
    with model.lock:
        if Scopes not in model.memo:
            model.memo[Scopes] = _scopes(Graph.opened(model))
        found: Scopes = model.memo[Scopes]
    return found


def _scopes(graph: Graph) -> Scopes:
    whole = _Whole(graph.node_count)
    source = "structure"
    roots = {0: 0}
    for f, frame in enumerate(graph.frames):
        if f and frame.stop - frame.start < FLAT_BODY and not any(map(graph.bodies, range(frame.start, frame.stop))):
            whole.node_group[frame.start : frame.stop] = roots[f]
            continue
        part = _Part(graph, f)
        kind = part.tree.fill(part)
        source = kind if f == 0 else source
        whole.adopt(part, roots[f])
        for node in part.owners:
            name = graph.operators[graph.op_index[node]][0]
            home, at, inside = int(whole.node_group[node]), part.position_of(node), graph.bodies(node)
            if graph.frames[inside[0]].function is not None:
                own = graph.names[node].removeprefix(graph.prefix(f)).rpartition("/")[2]
                roots[inside[0]] = call = whole.add(home, own or name, FUNCTION, node, at)
                whole.cls[call] = name if own != name else ""
                continue
            body = whole.add(home, name, BODY, node, at)
            for inner in inside:
                roots[inner] = whole.add(body, graph.frames[inner].attribute, BRANCH, node, inner)
    whole.place_folded(graph)
    return whole.finished(source)


class _Whole:
    """The tree of all frames."""

    def __init__(self, nodes: int) -> None:
        self.parent = [-1]
        self.name = [""]
        self.path = [""]
        self.cls = [""]
        self.kind = [ROOT]
        self.node = [-1]
        self.repeat = [1]
        self.key = [0]
        """Order among siblings."""
        self.node_group = np.zeros(nodes, np.int32)

    def add(self, parent: int, name: str, kind: int, node: int, key: int) -> int:
        self.parent.append(parent)
        self.name.append(name)
        self.path.append(f"{self.path[parent]}/{name}" if self.path[parent] else name)
        self.cls.append("")
        self.kind.append(kind)
        self.node.append(node)
        self.repeat.append(1)
        self.key.append(key)
        return len(self.parent) - 1

    def adopt(self, part: _Part, root: int) -> None:
        tree = part.tree
        alive = tree.alive()
        place = np.full(len(tree.parent), root, np.int64)
        place[alive] = np.arange(len(self.parent), len(self.parent) + len(alive))
        first = tree.first_items()
        above = f"{self.path[root]}/" if self.path[root] else ""
        listed = alive.tolist()
        self.parent += place[np.asarray(tree.parent)[alive]].tolist()
        self.name += [tree.name[group] for group in listed]
        self.path += [above + tree.path[group] for group in listed]
        self.cls += [tree.cls[group] for group in listed]
        self.kind += [tree.kind[group] for group in listed]
        self.node += [-1] * len(listed)
        self.repeat += [tree.repeat[group] for group in listed]
        self.key += first[alive].tolist()
        self.node_group[part.all_nodes] = root
        self.node_group[part.items] = place[tree.of_item]

    def place_folded(self, graph: Graph) -> None:
        """Put each folded node where it is drawn: into the innermost group that holds all its readers."""
        depth = depths(np.asarray(self.parent))
        parent, node_group = self.parent, self.node_group
        for node in _readers_first(graph, np.flatnonzero(graph.folded)):
            made = graph.node_outputs(node)
            groups = {int(node_group[reader]) for value in made[made >= 0] for reader in graph.consumers(value)}
            if groups:
                node_group[node] = functools.reduce(lambda a, b: _common(a, b, parent, depth), groups)

    def finished(self, source: str) -> Scopes:
        """Give the tree with its groups in preorder, siblings in order of their first node."""
        parent, key = np.asarray(self.parent), np.asarray(self.key)
        lines = _lines(parent)
        keys = [np.where(line >= 0, key[line], -1) for line in lines]
        order = np.lexsort([column for line, k in zip(lines[::-1], keys[::-1], strict=True) for column in (line, k)])
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        listed = order.tolist()
        return Scopes(
            source=source,
            group_parent=np.where(parent[order] >= 0, number[parent[order]], -1).astype(np.int32),
            group_name=[self.name[g] for g in listed],
            group_path=[self.path[g] for g in listed],
            group_class=[self.cls[g] for g in listed],
            group_kind=np.asarray(self.kind, np.uint8)[order],
            group_node=np.asarray(self.node, np.int32)[order],
            group_repeat=np.asarray(self.repeat, np.int32)[order],
            node_group=number[self.node_group],
        )


class _Part:
    """One frame: its drawn nodes ("items") in topological order, and the edges between them, from lower to higher."""

    def __init__(self, graph: Graph, frame: int) -> None:
        self.graph = graph
        self.prefix = graph.prefix(frame)
        place = graph.frames[frame]
        order = graph.order if frame == 0 else graph.frame_order(frame)
        self.all_nodes = order
        self.items = order[~graph.folded[order]]
        self.count = len(self.items)
        self._start = place.start
        self._position = position = np.full(place.stop - place.start + 1, -1, np.int64)
        position[self.items - place.start] = np.arange(self.count)
        source, target = graph.frame_edges(frame)
        a, b = position[source - place.start], position[target - place.start]
        kept = (a >= 0) & (b > a)  # what remains leads forward: edges that close a cycle are left out
        pairs = sorted_unique(a[kept] * max(self.count, 1) + b[kept])
        self.source, self.target = np.divmod(pairs, max(self.count, 1))
        self.owners = [node for node in order.tolist() if graph.bodies(node)] if len(graph.frames) > 1 else []
        inputs = (graph.in_ptr[self.items + 1] - graph.in_ptr[self.items]).astype(np.uint64)
        self.kind = graph.op_index[self.items].astype(np.uint64) << np.uint64(32) | inputs
        """What a node must share with another to count as equal: operator and number of inputs."""
        self.tree = _Tree(self.count)

    def position_of(self, node: int) -> int:
        """Give the position of a drawn node among the items."""
        return int(self._position[node - self._start])

    @functools.cached_property
    def constants(self) -> list[list[str]]:
        """Names of the constants that each item reads."""
        graph, names = self.graph, self.graph.value_names
        constant = graph.constant_values
        reads = (graph.node_inputs(node).tolist() for node in self.items.tolist())
        return [[names[v] for v in values if v >= 0 and constant[v]] for values in reads]

    @functools.cached_property
    def common_constant(self) -> str:
        """What the names of all constants start with."""
        return _common_start([name for names in self.constants for name in names])

    @functools.cached_property
    def before(self) -> list[list[int]]:
        """The items whose results each item reads."""
        return _rows(self.target, self.source, self.count)

    @functools.cached_property
    def after(self) -> list[list[int]]:
        """The items that read each item's results."""
        return _rows(self.source, self.target, self.count)


Source = tuple[list[str], Mapping[str, str]]
"""The path of each item, and the class of each path."""


def _metadata(part: _Part) -> Source | None:
    """Read what torch's exporter writes into ``metadata_props``: nested scopes and their classes."""
    nodes = part.graph.nodes if any(n.metadata_props for n in _sample(part.graph, part.items)) else []
    if not nodes:
        return None
    classes: dict[str, str] = {}
    seen: dict[tuple[str, str], str | None] = {}
    paths: list[str | None] = []
    for item in part.items.tolist():
        entries = {entry.key: entry.value for entry in nodes[item].metadata_props}
        key = entries.get("pkg.torch.onnx.name_scopes", ""), entries.get("pkg.torch.onnx.class_hierarchy", "")
        if key not in seen:
            seen[key] = _torch_path(*key, classes)
        paths.append(seen[key])
    found = _spread(part, paths, 0.5)
    return None if found is None else (found, classes)


def _torch_path(scopes: str, hierarchy: str, classes: dict[str, str]) -> str | None:
    """Turn "['', 'encoder', 'encoder.layer.0', 'linear']" into "encoder/layer.0/linear"."""
    names = [a or b for a, b in _QUOTED.findall(scopes)]
    kinds = [a or b for a, b in _QUOTED.findall(hierarchy)]
    if not names:
        return None
    above, path = "", ""
    for name, kind in itertools.zip_longest(names[: DEPTH_LIMIT + 1], kinds[: len(names)], fillvalue=""):
        if not name or name.startswith("_empty_nn_module_stack"):
            continue
        short = name[len(above) + 1 :] if above and name.startswith(f"{above}.") else name
        short = short.replace("/", ".")
        path = f"{path}/{short}" if path else short
        if path not in classes and not kind.startswith("aten."):
            classes[path] = kind.rpartition(".")[2]
        above = name
    return path


_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
"""The exporter writes lists of names as Python does."""


def _sample(graph: Graph, items: Ints) -> Iterable[onnx.NodeProto]:
    nodes = graph.model.proto.graph.node
    chosen = items[:: max(1, len(items) // 64)].tolist()
    return [nodes[i] if i < graph.main_count else graph.nodes[i] for i in chosen]


def _node_names(part: _Part) -> Source | None:
    """Read the scopes from node names: "/encoder/layer.0/MatMul"."""
    names, start = part.graph.names, len(part.prefix)
    paths: list[str | None] = [
        name[start:].rpartition("/")[0] if "/" in (name := names[item])[start:] else None
        for item in part.items.tolist()
    ]
    found = _spread(part, paths, 0.5)
    return None if found is None else (found, {})


def _weight_names(part: _Part) -> Source | None:
    """Read the scopes from the names of weights: "encoder.layer.0.dense.weight"."""
    if part.count <= FLAT_LIMIT:
        return None
    paths = [next((path for name in names if (path := _weight_path(name))), None) for names in part.constants]
    found = _spread(part, paths, 0.1, follow=True)
    return None if found is None else (found, {})


@functools.lru_cache(maxsize=1 << 16)
def _weight_path(name: str) -> str:
    if name.startswith("onnx::") or len(name) > 500:  # names that a tool made up
        return ""
    if "/" in name:
        return name.rpartition("/")[0]
    parts: list[str] = []
    for each in name.split(".")[:-1]:
        if each.isdigit() and parts:
            parts[-1] += f".{each}"
        elif each:
            parts.append(each)
    return "/".join(parts[:DEPTH_LIMIT])


def _spread(part: _Part, paths: list[str | None], share: float, *, follow: bool = False) -> list[str] | None:
    """Give nodes without a path the scope that their neighbours have in common; None if too few nodes have one.

    With `follow` a node may also go where all are whose results it reads, as the Relu behind a Conv.
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
            above = [found for other in part.before[item] if (found := paths[other]) is not None]
            shared = functools.reduce(_common_path, above) if above and follow else ""
            lead = _deepest(above)
            through = _common_path(lead, below[item] or "") if lead else (below[item] or "").rpartition("/")[0]
            paths[item] = max(shared, through, key=_length)
    return [path or "" for path in paths]


def _length(path: str) -> int:
    return path.count("/") + bool(path)


def _deepest(paths: Iterable[str | None]) -> str | None:
    return max((path for path in paths if path is not None), key=_length, default=None)


@functools.lru_cache(maxsize=1 << 14)
def _common_path(a: str, b: str) -> str:
    shared = []
    for left, right in zip(a.split("/"), b.split("/"), strict=False):
        if left != right:
            break
        shared.append(left)
    return "/".join(shared)


def _gathered(paths: list[str]) -> list[str]:
    """Move each item that is alone in its path one up: most modules are a single node, not worth a group."""
    count = Counter(paths)
    deep = {path: _tidy(path) for path in count if path.count("/") > DEPTH_LIMIT}
    if deep:
        paths = [deep.get(path, path) for path in paths]
        count = Counter(paths)
    above: dict[str, str] = {}
    new: Iterable[str] = list(count)
    while new:
        above.update(zip(new, [path.rpartition("/")[0] for path in new], strict=True))
        inner = set(above.values())
        new = list(inner.difference(above))
    moved = {path: above[path] for path, times in count.items() if times == 1 and path not in inner}
    return [moved.get(path, path) for path in paths]


def _tidy(path: str) -> str:
    if path.count("/") < DEPTH_LIMIT and not path.startswith("/") and "//" not in path:
        return path
    return "/".join([part for part in path.split("/") if part][:DEPTH_LIMIT])


class _Tree:
    """The groups of one frame. Group 0 is its root; dissolved groups keep their number, with parent −2.

    What lies in a group is written as codes: a group by its number, an item ``i`` as ``-1 - i``.
    """

    def __init__(self, items: int) -> None:
        self.of_item = np.zeros(items, np.int64)
        self._clear()

    def _clear(self) -> None:
        self.parent = [-1]
        self.name = [""]
        self.path = [""]
        self.cls = [""]
        self.kind = [ROOT]
        self.repeat = [1]
        self.of_item = np.zeros(len(self.of_item), np.int64)

    def fill(self, part: _Part) -> str:
        """Group the items by the first source that gives a useful tree; say which."""
        for source, paths in (("metadata", _metadata), ("names", _node_names), ("weights", _weight_names)):
            found = paths(part) if part.count >= MIN_REPEATS else None
            if found is None:
                continue
            self._clear()
            self._plant(*found)
            self._prune()
            siblings = self._untangled(part, split=source != "weights") if self._useful() else None
            if siblings is None:
                continue
            if self._wrap_repeats(siblings):
                self._prune()
            self._limit(part, CHILDREN_LIMIT)
            return source
        self._clear()
        self._limit(part, FLAT_LIMIT)
        return "structure"

    def add(self, parent: int, name: str, path: str, cls: str = "", *, kind: int = SCOPE, repeat: int = 1) -> int:
        self.parent.append(parent)
        self.name.append(name)
        self.path.append(path)
        self.cls.append(cls)
        self.kind.append(kind)
        self.repeat.append(repeat)
        return len(self.parent) - 1

    def alive(self) -> Longs:
        """Give the groups in use, parents before children, without the root."""
        parent = np.asarray(self.parent)
        used = np.flatnonzero(parent >= 0)
        return used[np.argsort(depths(parent)[used], kind="stable")]

    def first_items(self) -> Longs:
        """Give the position of the first item inside each group."""
        count = len(self.of_item)
        first = np.full(len(self.parent), count, np.int64)
        first[self.of_item[::-1]] = np.arange(count - 1, -1, -1)
        return upward(np.minimum, first, np.asarray(self.parent))

    def _plant(self, paths: list[str], classes: Mapping[str, str]) -> None:
        paths = _gathered(paths)
        tidy = {path: _tidy(path) for path in dict.fromkeys(paths)}
        known = {"": 0}

        def group_of(path: str) -> int:
            missing = []
            while path not in known:
                missing.append(path)
                path = path.rpartition("/")[0]
            found = known[path]
            for each in reversed(missing):
                found = known[each] = self.add(found, each.rpartition("/")[2], each, classes.get(each, ""))
            return found

        groups = {path: group_of(neat) for path, neat in tidy.items()}
        self.of_item = np.fromiter(map(groups.__getitem__, paths), np.int64, len(paths))

    def _useful(self) -> bool:
        direct = np.bincount(self.of_item)
        return max(self.parent) >= 0 and bool(direct.max() <= max(CHILDREN_LIMIT, direct.sum() // 2))

    def _prune(self) -> None:
        """Dissolve groups of one item, groups around a single group, and a group that holds nearly everything."""
        size = upward(np.add, np.bincount(self.of_item, minlength=len(self.parent)), np.asarray(self.parent))
        alive = self.alive()
        home = np.arange(len(self.parent))
        small = alive[size[alive] < 2]  # a frame around one box
        for group in small.tolist():
            home[group] = home[self.parent[group]]
        for group in small.tolist():
            self.parent[group] = -2
        self.of_item = home[self.of_item]

        direct = np.bincount(self.of_item, minlength=len(self.parent))
        parent = np.asarray(self.parent)
        inner = np.bincount(parent[parent >= 0], minlength=len(parent))
        only = np.zeros(len(parent), np.int64)
        only[parent[parent >= 0]] = np.flatnonzero(parent >= 0)
        for group in alive[::-1][(inner[alive[::-1]] == 1) & (direct[alive[::-1]] == 0)].tolist():
            if self.parent[group] < 0 or self.kind[group] == REPEAT:
                continue
            child = int(only[group])
            self.name[child] = f"{self.name[group]}/{self.name[child]}"
            self.parent[child] = self.parent[group]
            self.parent[group] = -2
            if inner[self.parent[child]] == 1:
                only[self.parent[child]] = child
        self._unwrap(size)

    def _unwrap(self, size: Longs) -> None:
        """Dissolve a group that holds nearly everything: the root itself stands for it."""
        while True:
            parent = np.asarray(self.parent)
            top = np.flatnonzero(parent == 0)
            if not len(top):
                return
            largest = int(top[np.argmax(size[top])])
            children = np.flatnonzero(parent == largest)
            if self.kind[largest] != SCOPE or size[largest] < 0.8 * size[0] or len(top) + len(children) > TOP_LIMIT:
                return
            for child in children.tolist():
                self.parent[child] = 0
            self.parent[largest] = -2
            self.of_item[self.of_item == largest] = 0

    def _untangled(self, part: _Part, *, split: bool) -> _Siblings | None:
        """Split groups that lie on a cycle of siblings, call by call; None if there are cycles but no leave."""
        work = 4 * part.count + 100_000
        for _ in range(200):
            siblings = _Siblings(self, part)
            if not siblings.cycles or work < 0:
                return siblings  # out of work: the layout turns an edge around
            if not split:
                return None
            touched: set[int] = set()
            for scope, members in siblings.cycles:
                if not touched.isdisjoint(siblings.line(scope)):
                    continue  # a group above it was split just now: look again in the next round
                groups = [code for code in members if code >= 0]
                touched.update(groups)
                inside = siblings.items_in(scope)
                work -= len(inside) * self._split(part, inside, groups, siblings)
            self._prune()
        return siblings

    def _split(self, part: _Part, inside: Longs, groups: list[int], siblings: _Siblings) -> int:
        """Split a group of a cycle where the flow leaves it and comes back, or else all; give the passes made."""
        member = {group: siblings.items_in(group) for group in groups}
        for passes, group in enumerate(sorted(groups, key=lambda group: len(member[group])), 1):
            level = _levels(part, inside, {group: member[group]})
            if self._divide(group, member[group].tolist(), level):
                return passes
            if passes * len(inside) > 1_000_000:  # seconds
                break
        level = _levels(part, inside, member)
        for group in groups:
            self._divide(group, member[group].tolist(), level)
        return len(groups) + 1

    def _divide(self, group: int, items: list[int], level: Mapping[int, int]) -> bool:
        """Move all but the lowest level of a group into copies of it, one a level; say whether there are any."""
        calls = {value: call for call, value in enumerate(sorted({level[item] for item in items}), 1)}
        copies: dict[int, dict[int, int]] = {}
        for item in items:
            call = calls[level[item]]
            if call > 1:
                known = copies.setdefault(call, {})
                self.of_item[item] = self._copied(int(self.of_item[item]), group, call, known)
        return len(calls) > 1

    def _copied(self, group: int, top: int, call: int, copies: dict[int, int]) -> int:
        line: list[int] = []
        while group not in copies and (not line or line[-1] != top):
            line.append(group)
            group = self.parent[group]
        for each in reversed(line):
            name = f"{self.name[each]} ({call})" if each == top else self.name[each]
            parent = self.parent[top] if each == top else copies[self.parent[each]]
            copies[each] = self.add(parent, name, f"{self.path[each]} ({call})", self.cls[each], kind=self.kind[each])
        return copies[line[0]] if line else copies[group]

    def _wrap_repeats(self, siblings: _Siblings) -> bool:
        """Put runs of equal numbered siblings under one roof: layers.0 … layers.31. Say whether there are any."""
        parent = np.asarray(self.parent)
        many = np.bincount(parent[parent >= 0], minlength=len(parent)) >= MIN_REPEATS
        numbered: dict[int, tuple[str, int]] = {}
        for group in np.flatnonzero((parent >= 0) & many[parent]).tolist():
            found = _NUMBERED.fullmatch(self.name[group])
            if found:
                numbered[group] = found[1], int(found[2])
        if len(numbered) < MIN_REPEATS:
            return False
        alike = siblings.signatures(np.fromiter(numbered, np.int64, len(numbered)))
        runs: list[list[int]] = []
        for group in sorted(numbered, key=lambda group: (parent[group], siblings.key[group])):
            if runs:
                last = runs[-1][-1]
                (stem, number), (other, before) = numbered[group], numbered[last]
                same = (parent[group], stem, number, alike[group]) == (parent[last], other, before + 1, alike[last])
                if same:
                    runs[-1].append(group)
                    continue
            runs.append([group])
        found_any = False
        for run in runs:
            between = siblings.between(run) if len(run) >= MIN_REPEATS else None
            if between is not None:
                found_any = True
                self._roof(int(parent[run[0]]), run, between)
        return found_any

    def _roof(self, scope: int, run: list[int], between: Sequence[int] = ()) -> int:
        classes = {self.cls[group] for group in run}
        name = _range_name(self.name[run[0]], self.name[run[-1]])
        above = self.path[run[0]].rpartition("/")[0]
        path = f"{above}/{name}" if above else name
        roof = self.add(scope, name, path, classes.pop() if len(classes) == 1 else "", kind=REPEAT, repeat=len(run))
        self._move([*run, *between], roof)
        return roof

    def _move(self, codes: Iterable[int], group: int) -> None:
        for code in codes:
            if code >= 0:
                self.parent[code] = group
            else:
                self.of_item[-1 - code] = group

    def _limit(self, part: _Part, limit: int) -> None:
        """Give groups with too many children a level in between."""
        parent = np.asarray(self.parent)
        count = np.bincount(np.concatenate([self.of_item, parent[parent >= 0]]), minlength=len(parent))
        wide = np.flatnonzero(count > limit).tolist()
        if not wide:
            return
        siblings = _Siblings(self, part)
        uneven = any(self.kind[scope] != REPEAT for scope in wide)
        signature = siblings.signatures(np.flatnonzero(parent >= 0)) if uneven else {}
        for scope in wide:
            codes = siblings.children(scope)
            if self.kind[scope] == REPEAT:
                self._chunk(scope, codes.tolist())
                continue
            place = {code: i for i, code in enumerate(codes.tolist())}
            a, b = siblings.edges(scope)
            source = np.fromiter(map(place.__getitem__, a.tolist()), np.int64, len(a))
            target = np.fromiter(map(place.__getitem__, b.tolist()), np.int64, len(b))
            kinds = (signature[code] if code >= 0 else int(part.kind[-1 - code]) for code in codes.tolist())
            kind = np.fromiter(kinds, np.uint64, len(codes))
            forward = source < target
            self._structure(part, scope, _Row(codes, kind, source[forward], target[forward]))

    def _structure(self, part: _Part, scope: int, row: _Row) -> None:
        """Cut a long row where one tensor is alive, and put equal pieces in a row under one roof."""
        waiting = [(scope, row)]
        while waiting:
            scope, row = waiting.pop()
            top: list[int] = []
            number = 0
            for start, stop, unit in row.pieces():
                if not unit:
                    top.extend(row.codes[start:stop].tolist())
                    continue
                blocks = []
                for at in range(start, stop, unit):
                    number += 1
                    blocks.append(self._block(part, scope, row.codes[at : at + unit].tolist(), number))
                    if unit > CHILDREN_LIMIT:
                        waiting.append((blocks[-1], row.part(at, at + unit)))
                top.append(self._roof(scope, blocks) if len(blocks) > 1 else blocks[0])
                if len(blocks) > CHILDREN_LIMIT:
                    self._chunk(top[-1], blocks)
            self._chunk(scope, top)

    def _block(self, part: _Part, scope: int, codes: list[int], number: int) -> int:
        names = [name for code in codes if code < 0 for name in part.constants[-1 - code]]
        shared = _common_start(names) if len(names) > 1 else ""
        told = len(shared) > len(part.common_constant) and not shared.startswith("onnx::")
        shared = re.sub(r"[^./_]*$", "", shared).strip("./_").rpartition("/")[2]
        name = shared if told and shared else f"block {number}"
        above = self.path[scope]
        group = self.add(scope, name, f"{above}/{name}" if above else name)
        self._move(codes, group)
        return group

    def _chunk(self, scope: int, codes: list[int]) -> None:
        """Divide a row of more than `CHILDREN_LIMIT` into groups of neighbours, in levels of about equal width."""
        waiting = [(scope, codes)]
        while waiting:
            scope, codes = waiting.pop()
            if len(codes) <= CHILDREN_LIMIT:
                continue
            levels = 2
            while CHILDREN_LIMIT**levels < len(codes):
                levels += 1
            width = int(np.ceil(len(codes) ** (1 / levels)))
            width = next((round_ for round_ in (10, 16, 20, 25, 32, 50) if width <= round_ <= CHILDREN_LIMIT), width)
            size = width ** (levels - 1)
            parts = [codes[at : at + size] for at in range(0, len(codes), size)]
            for number, inside in enumerate(parts, 1):
                if len(inside) == 1:
                    break  # the last one alone stays where it is
                first, last = (self.name[code] if code >= 0 else "" for code in (inside[0], inside[-1]))
                name = _range_name(first, last) if self.kind[scope] in (REPEAT, CHUNK) else ""
                name = name or f"part {number} of {len(parts)}"
                above = self.path[scope]
                repeat = len(inside) if self.repeat[scope] > 1 else 1
                group = self.add(
                    scope, name, f"{above}/{name}" if above else name, self.cls[scope], kind=CHUNK, repeat=repeat
                )
                self._move(inside, group)
                waiting.append((group, inside))


class _Siblings:
    """The edges between the children of every group, and an order of the children along them."""

    def __init__(self, tree: _Tree, part: _Part) -> None:
        self._tree, self._part = tree, part
        self._of_item = tree.of_item.copy()
        self._parent = np.asarray(tree.parent)
        self._depth = depths(self._parent)
        self._lines = _lines(self._parent)
        positions = np.arange(part.count)
        last = np.zeros(len(self._parent), np.int64)
        last[tree.of_item] = positions
        self.key = np.concatenate([upward(np.maximum, last, self._parent), positions[::-1]])
        """Children sorted by it are in topological order. By code: items are counted from the end."""
        self._connect(part)
        self._sorted: dict[int, tuple[Longs, Longs]] = {}
        self.cycles: list[tuple[int, list[int]]] = []
        """(group, codes of children that lie on cycles)"""
        late = np.unique(self._scope[self.key[self._a] >= self.key[self._b]])
        if len(late):
            self._sort(late[np.argsort(self._depth[late], kind="stable")])

    def _connect(self, part: _Part) -> None:
        a, b = self._of_item[part.source], self._of_item[part.target]
        level = np.zeros(len(a), np.int64)
        for line in self._lines[1:]:
            at = line[a]
            level += (at == line[b]) & (at >= 0)
        lines = np.stack([*self._lines, np.full_like(self._parent, -1)])
        scope = lines[level, a]
        source = np.where(self._depth[a] > level, lines[level + 1, a], -1 - part.source)
        target = np.where(self._depth[b] > level, lines[level + 1, b], -1 - part.target)
        order = np.argsort(scope, kind="stable")
        self._scope, self._a, self._b = scope[order], source[order], target[order]

    def _sort(self, scopes: Longs) -> None:
        """Sort the children of groups where their last nodes do not give the order."""
        first = np.concatenate([self._tree.first_items(), np.arange(self._part.count)[::-1]])
        for scope in scopes.tolist():
            a, b = self.edges(scope)
            codes = self.children(scope)
            if bool(np.all(first[a] < first[b])):
                self.key[codes] = first[codes]
                continue
            place = {code: i for i, code in enumerate(codes.tolist())}
            edges = dict.fromkeys(zip(a.tolist(), b.tolist(), strict=True))
            after: dict[int, list[int]] = {}
            for source, target in edges:
                after.setdefault(place[source], []).append(place[target])
            found = [members for members in strongly_connected(range(len(codes)), after) if len(members) > 1]
            self.cycles.extend((scope, codes[members].tolist()) for members in found)
            order = topological(0, len(codes), ((place[s], place[t]) for s, t in edges))
            self.key[codes[order]] = np.arange(len(order))

    def line(self, group: int) -> list[int]:
        """Give a group and those above it."""
        return [int(line[group]) for line in self._lines if line[group] >= 0]

    def edges(self, scope: int) -> tuple[Longs, Longs]:
        """Give the edges between the children of a group as codes."""
        start, stop = np.searchsorted(self._scope, [scope, scope + 1])
        return self._a[start:stop], self._b[start:stop]

    def children(self, scope: int) -> Longs:
        """Give the children of a group as codes, in topological order."""
        codes = np.concatenate([np.flatnonzero(self._parent == scope), -1 - np.flatnonzero(self._of_item == scope)])
        return codes[np.argsort(self.key[codes], kind="stable")]

    def items_in(self, group: int) -> Longs:
        """Give the items in a group at any depth, in topological order."""
        level = int(self._depth[group])
        if level not in self._sorted:
            label = self._lines[level][self._of_item]
            order = np.argsort(label, kind="stable")
            self._sorted[level] = label[order], order
        label, order = self._sorted[level]
        start, stop = np.searchsorted(label, [group, group + 1])
        return order[start:stop]

    def signatures(self, groups: Longs) -> dict[int, int]:
        """Give a number for the structure of each group: equal for equal operators, equally connected."""
        part = self._part
        wanted = np.zeros(len(self._parent), bool)
        wanted[groups] = True
        total = np.zeros(len(self._parent), np.uint64)
        for level, line in enumerate(self._lines):
            if not np.any(wanted & (self._depth == level)):
                continue
            label = line[self._of_item]
            label = np.where((label >= 0) & wanted[label] & (self._depth[label] == level), label, -1)
            order = np.argsort(label, kind="stable")
            order = order[np.searchsorted(label[order], 0) :]
            ordered = label[order]
            new = np.flatnonzero(np.diff(ordered, prepend=-1))
            place = np.zeros(part.count, np.uint64)
            place[order] = np.arange(len(order)) - np.repeat(new, np.diff(new, append=len(order)))
            np.add.at(total, ordered, _mixed(part.kind[order], place[order]))
            inner = (label[part.source] == label[part.target]) & (label[part.source] >= 0)
            source, target = part.source[inner], part.target[inner]
            np.add.at(total, label[source], _mixed(place[source] + np.uint64(1), place[target] + np.uint64(1 << 20)))
        return dict(zip(groups.tolist(), total[groups].tolist(), strict=True))

    def between(self, run: list[int]) -> list[int] | None:
        """Give what lies on the ways from one member of a run to another; None if that is too much to take in."""
        scope = int(self._parent[run[0]])
        codes = self.children(scope).tolist()
        codes = codes[codes.index(run[0]) : codes.index(run[-1]) + 1]
        if len(codes) == len(run):
            return []
        members, inside = set(run), set(codes)
        a, b = self.edges(scope)
        before: dict[int, list[int]] = {}
        after: dict[int, list[int]] = {}
        for source, target in dict.fromkeys(zip(a.tolist(), b.tolist(), strict=True)):
            if source in inside and target in inside:
                before.setdefault(target, []).append(source)
                after.setdefault(source, []).append(target)
        fed, feeding = set(run), set(run)
        for code in codes:
            if any(other in fed for other in before.get(code, ())):
                fed.add(code)
        for code in reversed(codes):
            if any(other in feeding for other in after.get(code, ())):
                feeding.add(code)
        taken = [code for code in codes if code in fed and code in feeding and code not in members]
        return taken if sum(code < 0 for code in taken) == len(taken) <= 4 * len(run) else None


class _Row:
    """Children of one group in topological order, what each is, and the edges between them."""

    def __init__(self, codes: Longs, kind: NDArray[np.uint64], source: Longs, target: Longs) -> None:
        self.codes, self._kind, self._source, self._target = codes, kind, source, target

    def part(self, start: int, stop: int) -> _Row:
        inside = (self._source >= start) & (self._target < stop)
        source, target = self._source[inside] - start, self._target[inside] - start
        return _Row(self.codes[start:stop], self._kind[start:stop], source, target)

    def pieces(self) -> list[tuple[int, int, int]]:
        """Divide the row: (start, stop, unit); unit divides a piece into equal blocks, 0 stands for loose children."""
        starts = self._cuts()
        ends = np.append(starts[1:], len(self.codes))
        if len(starts) == 1:
            return [(0, len(self.codes), 0)]
        tokens = self._tokens(starts)
        pieces = []
        at = 0
        for start, stop, period in [*_repeats(tokens, ends - starts), (len(starts), len(starts), 0)]:
            for segment in range(at, start):
                size = int(ends[segment] - starts[segment])
                # a segment of more than half stays loose: cutting again and again what hardly shrinks would never end
                block = MIN_REPEATS <= size <= max(CHILDREN_LIMIT, len(self.codes) // 2)
                pieces.append((int(starts[segment]), int(ends[segment]), size if block else 0))
            if period:
                pieces.append((int(starts[start]), int(ends[stop - 1]), int(ends[start + period - 1] - starts[start])))
            at = stop
        return pieces

    def _cuts(self) -> Longs:
        """Give where segments start: behind each child at which at most one result is still to be read.

        Results that are read much later, as those of a U-net's skips or a mask that every layer reads, do not count.
        """
        count = len(self.codes)
        last = np.zeros(count, np.int64)
        np.maximum.at(last, self._source, self._target)
        position = np.arange(count)
        counted = (last > position) & (last - position <= max(FLAT_LIMIT, count // 20))
        change = np.bincount(position[counted], minlength=count + 1) - np.bincount(last[counted], minlength=count + 1)
        cut = np.cumsum(change)[: count - 1] <= 1
        return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(cut) + 1])

    def _tokens(self, starts: Longs) -> Longs:
        """Give each segment a number that it shares with segments of equal structure."""
        segment = np.zeros(len(self.codes), np.int64)
        segment[starts[1:]] = 1
        segment = np.cumsum(segment)
        place = (np.arange(len(self.codes)) - starts[segment]).astype(np.uint64)
        total = np.zeros(len(starts), np.uint64)
        np.add.at(total, segment, _mixed(self._kind, place))
        inner = segment[self._source] == segment[self._target]
        source, target = self._source[inner], self._target[inner]
        np.add.at(total, segment[source], _mixed(place[source] + np.uint64(1), place[target] + np.uint64(1 << 20)))
        return np.unique(total, return_inverse=True)[1].astype(np.int64)


def _repeats(tokens: Longs, sizes: Longs) -> list[tuple[int, int, int]]:
    """Find rows of equal neighbours among segments: (start, stop, period), sorted; the longest win."""
    count = len(tokens)
    offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    found: list[tuple[bool, int, int, int, int]] = []
    for period in range(1, min(count // 2, 256) + 1):
        equal = np.zeros(count - period + 2, np.int8)
        equal[1:-1] = tokens[:-period] == tokens[period:]
        edge = np.flatnonzero(np.diff(equal))
        starts, length = edge[0::2], edge[1::2] - edge[0::2]
        times = length // period + 1
        stops = starts + times * period
        unit = offset[starts + period] - offset[starts]
        good = (length >= period) & (unit >= MIN_REPEATS) & ((times >= MIN_REPEATS) | (unit >= 2 * MIN_REPEATS))
        covered = offset[stops[good]] - offset[starts[good]]
        rows = zip(covered.tolist(), starts[good].tolist(), stops[good].tolist(), strict=True)
        found.extend((stop - start < MIN_REPEATS * period, -size, period, start, stop) for size, start, stop in rows)
    taken = np.zeros(count, bool)
    chosen = []
    # rows of three and more first: two equal halves of a network would hide the repeats in each
    for *_, period, start, stop in sorted(found)[:10_000]:
        if not taken[start:stop].any():
            taken[start:stop] = True
            chosen.append((start, stop, period))
    return sorted(chosen)


_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


def _range_name(first: str, last: str) -> str:
    """Name a row by its ends: "layers.0" and "layers.31" give "layers 0–31"."""
    a, b = _NUMBERED.fullmatch(first), _NUMBERED.fullmatch(last)
    if a and b and a[1] == b[1]:
        return f"{a[1].rstrip('._- ')} {a[2]}–{b[2]}".strip()
    return f"{first} – {last}" if first and last else ""


def _levels(part: _Part, inside: Longs, member: Mapping[int, Longs]) -> dict[int, int]:
    """Count for each item of a scope how often the flow has left one of the groups on its way there."""
    owner = dict.fromkeys(inside.tolist(), -1)
    for group, items in member.items():
        owner.update(dict.fromkeys(items.tolist(), group))
    level: dict[int, int] = {}
    for item, mine in owner.items():
        highest = 0
        for other in part.before[item]:
            theirs = owner.get(other)
            if theirs is not None:
                highest = max(highest, level[other] + (theirs not in (-1, mine)))
        level[item] = highest
    return level


def upward(combine: np.ufunc, column: Column, parent: Ints | Longs) -> Column:
    """Fold a column of groups, which is changed and given, into their parents, from the leaves to the root.

    >>> upward(np.add, np.asarray([0, 1, 2]), np.asarray([-1, 0, 1])).tolist()
    [3, 3, 2]
    """
    depth = depths(parent)
    for level in range(int(depth.max()), 0, -1):
        groups = np.flatnonzero(depth == level)
        combine.at(column, parent[groups], column[groups])
    return column


def depths(parent: Ints | Longs) -> Longs:
    """Count the groups above each group.

    >>> depths(np.asarray([-1, 0, 1, 0])).tolist()
    [0, 1, 2, 1]
    """
    depth = np.zeros(len(parent), np.int64)
    above = parent
    while bool(np.any(above >= 0)):
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth


def _lines(parent: Longs) -> list[Longs]:
    """Give for each depth the group above each group at that depth, itself included; −1 where there is none."""
    depth = depths(parent)
    lines = [np.full(len(parent), -1, np.int64) for _ in range(int(depth.max()) + 1)]
    groups = np.arange(len(parent))
    above = groups
    while len(groups):
        for level, line in enumerate(lines):
            here = depth[above] == level
            line[groups[here]] = above[here]
        above = parent[above]
        groups, above = groups[above >= 0], above[above >= 0]
    return lines


def _rows(row: Longs, column: Longs, count: int) -> list[list[int]]:
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=count)).tolist()
    items = column[order].tolist()
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _common_start(names: Sequence[str]) -> str:
    """Give what all names start with, character by character."""
    low, high = min(names, default=""), max(names, default="")
    return low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))]


def _mixed(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash pairs (the finaliser of splitmix64)."""
    x = a * np.uint64(0x9E3779B97F4A7C15) + b * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(0x165667B19E3779F9)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _common(a: int, b: int, parent: Sequence[int], depth: Longs) -> int:
    """Give the innermost group that holds two groups."""
    while a != b:
        if depth[a] >= depth[b]:
            a = parent[a]
        else:
            b = parent[b]
    return a


def _readers_first(graph: Graph, nodes: Longs) -> list[int]:
    """Sort folded nodes so that those who read come before those who are read."""
    after: dict[int, list[int]] = {}
    for node in nodes.tolist():
        made = [value for value in graph.node_outputs(node).tolist() if value >= 0]
        after[node] = [reader for value in made for reader in graph.consumers(value).tolist()]
    return [node for members in strongly_connected(nodes.tolist(), after) for node in members if node in after]
