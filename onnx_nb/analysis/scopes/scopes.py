"""The scope tree: it groups nodes, so that a person sees 20 boxes instead of 2,000.

Scopes come from the exporter's metadata, else from node names, else from weight names, else from the structure (cuts
where one tensor is alive, repeats of equal pieces). Any tree is then made readable: no scope has one child or more
than 64, consecutive equal layers form one REPEAT, and siblings form no cycle.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.graph.dataflow import depths, followers, lines, strongly_connected, upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts
from onnx_nb.analysis.model.model import cached
from onnx_nb.analysis.scopes import structure
from onnx_nb.analysis.scopes.structure import CHILDREN_LIMIT, MIN_REPEATS, Part, Row, Siblings

if TYPE_CHECKING:
    from onnx_nb.analysis.model.protofields import Ints, Longs

ROOT, SCOPE, REPEAT, GATHERED, BODY, BRANCH, FUNCTION, SIBLINGS = range(8)
"""Kind of a scope, as in `Scopes.scope_kind`. BODY is a node with subgraphs and BRANCH one of them; GATHERED is part
of a row, or the nodes of no module; FUNCTION holds an opened call; SIBLINGS are equal parallel branches."""

ROWS = (REPEAT, SIBLINGS)
"""Kinds of scopes with equal members."""

FLAT_BODY = 12
"""Nodes; smaller subgraphs have no scopes."""
SHOWN_OPERATORS = 3
"""Maximum number of operators in the name of equal branches."""
PREPARED = "shapes and masks"
"""Name of the scope of operators that only prepare shapes and masks."""
TOP_LIMIT = 50
"""Maximum number of children of the root after it replaces a scope that holds nearly everything."""


@dataclass(frozen=True, eq=False)
class Scopes:
    """A tree of scopes in columns; scope 0 is the root, in preorder, siblings in data-flow order."""

    source: str
    """Source of the main graph's scopes: metadata, names, weights or structure."""
    scope_parent: Ints
    """Parent of each scope; −1 for the root."""
    scope_name: list[str]
    """Name below the parent; "attention/self" for merged scopes."""
    scope_path: list[str]
    scope_class: list[str]
    """Class of the torch module, as "BertLayer", or name of the function; empty if unknown."""
    scope_kind: NDArray[np.uint8]
    scope_node: Ints
    """Node that owns a BODY or BRANCH or calls a FUNCTION, else −1."""
    scope_repeat: Ints
    """Number of equal children of a REPEAT or SIBLINGS, or in a GATHERED of one; else 1."""
    node_scope: Ints
    """Scope that directly contains each flat node of `Graph.opened`."""
    node_module: Mapping[int, str]
    """Node that is all of a module → name of the module, which has no scope."""

    def children(self, scope: int) -> Ints:
        """Return the scopes directly in a scope."""
        return np.flatnonzero(self.scope_parent == scope).astype(np.int32)

    def members(self, scope: int) -> Ints:
        """Return the nodes directly in a scope."""
        return np.flatnonzero(self.node_scope == scope).astype(np.int32)

    def named(self, name: str, *, by_end: bool = True) -> list[int]:
        """Return the outermost scopes of a name: a path in the drawing, or without scopes that only collect others.

        Parts are separated by ``/`` or ``.``. With ``by_end`` the end of a path will do if there is no whole one.
        """
        parts, parents = path_parts(name), self.scope_parent.tolist()
        plain: list[list[str]] = [[]]
        for number in range(1, len(parents)):
            parts_ = [] if self.scope_kind[number] in (*ROWS, GATHERED) else path_parts(self.scope_name[number])
            plain.append(plain[parents[number]] + parts_)
        paths = list(map(path_parts, self.scope_path))
        matches = {number for number in range(1, len(plain)) if parts in (plain[number], paths[number])}
        if by_end and parts and not matches:
            ends = [path and (path[-len(parts) :] == parts or parts[-len(path) :] == path) for path in plain]
            matches = {number for number, is_end in enumerate(ends) if is_end}
        return sorted(number for number in matches if parents[number] not in matches)

    def __repr__(self) -> str:
        return f"Scopes({len(self.scope_parent)} scopes from {self.source})"


def path_parts(path: str) -> list[str]:
    """Return the parts of the path of a scope, a module or a node."""
    return [part for part in re.split(r"[./]+", path) if part]


def scopes(graph: Graph) -> Scopes:
    """Return the scopes of a graph and of its opened calls (`Graph.opened`); computed once and kept with the model."""
    return cached(graph.model, Scopes, lambda: _scopes(Graph.opened(graph.model)))


def _scopes(graph: Graph) -> Scopes:
    whole = _AllScopes(graph.node_count)
    source = "structure"
    roots = {0: 0}
    for f, subgraph in enumerate(graph.subgraphs):
        nodes = range(subgraph.start, subgraph.stop)
        if f and len(nodes) < FLAT_BODY and not any(map(graph.bodies, nodes)):
            whole.node_scope[nodes.start : nodes.stop] = roots[f]
            continue
        part = Part(graph, f)
        tree, kind = Tree.of(part)
        source = kind if f == 0 else source
        whole.adopt(part, tree, roots[f])
        for node in part.owners:
            name = graph.operators[graph.op_index[node]][0]
            home, at, inside = int(whole.node_scope[node]), int(part.position[node - nodes.start]), graph.bodies(node)
            if graph.subgraphs[inside[0]].function is not None:
                label = graph.names[node].removeprefix(graph.prefixes[f]).rpartition("/")[2]
                cls = name if label != name else ""
                roots[inside[0]] = whole.add(home, label or name, cls, kind=FUNCTION, node=node, key=at)
                continue
            body = whole.add(home, name, kind=BODY, node=node, key=at)
            for inner in inside:
                roots[inner] = whole.add(body, graph.subgraphs[inner].attribute, kind=BRANCH, node=node, key=inner)
    whole.place_folded(graph)
    return whole.finished(source)


class _ScopeColumns:
    """Scopes in the order in which they are added; scope 0 is the root."""

    def __init__(self) -> None:
        self.parent, self.kind, self.repeat, self.node, self.key = [-1], [ROOT], [1], [-1], [0]
        self.name, self.path, self.cls = [""], [""], [""]

    def add(self, parent: int, name: str, cls: str = "", *, path: str = "", **more: int) -> int:
        """Add a scope and return its number; ``more`` are its kind, repeat, node and key, which orders siblings."""
        texts = {"name": name, "cls": cls, "path": path or f"{self.path[parent]}/{name}".removeprefix("/")}
        numbers = {"parent": parent, "kind": SCOPE, "repeat": 1, "node": -1, "key": 0}
        for column, value in (numbers | more | texts).items():
            getattr(self, column).append(value)
        return len(self.parent) - 1


class _AllScopes(_ScopeColumns):
    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.node_scope = np.zeros(nodes, np.int32)
        self.node_module: dict[int, str] = {}

    def adopt(self, part: Part, tree: Tree, root: int) -> None:
        alive = tree.alive()
        scopes = alive.tolist()
        place = np.full(len(tree.parent), root, np.int64)
        place[alive] = np.arange(len(self.parent), len(self.parent) + len(alive))
        above = f"{self.path[root]}/" if self.path[root] else ""
        self.parent += place[np.asarray(tree.parent)[alive]].tolist()
        self.key += tree.first_items()[alive].tolist()
        self.path += [above + tree.path[scope] for scope in scopes]
        for column in ("node", "kind", "repeat", "name", "cls"):
            getattr(self, column).extend(getattr(tree, column)[scope] for scope in scopes)
        self.node_scope[part.all_nodes] = root
        self.node_scope[part.items] = place[tree.of_item]
        items = part.items.tolist()
        self.node_module |= {items[item]: name for item, name in tree.module_of_item.items()}

    def place_folded(self, graph: Graph) -> None:
        """Put each folded node into the innermost scope that holds all its readers, where it is drawn."""
        depth = depths(np.asarray(self.parent))
        parent, node_scope = self.parent, self.node_scope

        def common(a: int, b: int) -> int:
            while a != b:
                a, b = (parent[a], b) if depth[a] >= depth[b] else (a, parent[b])
            return a

        nodes = np.flatnonzero(graph.folded).tolist()
        outputs = [(node, value) for node in nodes for value in graph.results(node)]
        readers = followers((node, reader) for node, value in outputs for reader in graph.consumers(value).tolist())
        # readers come before what they read
        for node in itertools.chain.from_iterable(strongly_connected(nodes, readers)):
            if node in readers:
                node_scope[node] = functools.reduce(common, {int(node_scope[reader]) for reader in readers[node]})

    def finished(self, source: str) -> Scopes:
        """Return the tree with its scopes in preorder, siblings in order of their first node."""
        parent, key = np.asarray(self.parent), np.asarray(self.key)
        above = lines(parent)
        keys = [np.where(line >= 0, key[line], -1) for line in above]
        order = np.lexsort([column for line, k in zip(above[::-1], keys[::-1], strict=True) for column in (line, k)])
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        parents = np.where(parent[order] >= 0, number[parent[order]], -1).astype(np.int32)
        name, path, cls = ([texts[scope] for scope in order.tolist()] for texts in (self.name, self.path, self.cls))
        node, repeat = (np.asarray(column, np.int32)[order] for column in (self.node, self.repeat))
        kind, node_scope = np.asarray(self.kind, np.uint8)[order], number[self.node_scope]
        return Scopes(source, parents, name, path, cls, kind, node, repeat, node_scope, self.node_module)


class Tree(_ScopeColumns):
    """The scopes of one subgraph. Dissolved scopes keep their number, with parent −2.

    The children of a scope are codes: the number of a scope, or ``-1 - i`` for an item ``i``.
    """

    def __init__(self, items: int) -> None:
        super().__init__()
        self.of_item = np.zeros(items, np.int64)
        self.module_of_item: dict[int, str] = {}

    @classmethod
    def of(cls, part: Part) -> tuple[Tree, str]:
        """Form scopes from the first source that has a useful tree; return the tree and the name of the source."""
        for source, paths, classes in structure.named_scopes(part) if part.count >= MIN_REPEATS else ():
            tree = cls(part.count)
            tree._plant(paths, classes)
            tree._prune()
            direct = np.bincount(tree.of_item)
            useful = max(tree.parent) >= 0 and bool(direct.max() <= max(CHILDREN_LIMIT, direct.sum() // 2))
            siblings = tree._untangled(part, split=source != "weights") if useful else None
            if siblings is None:
                continue
            if tree._wrap_repeats(siblings):
                tree._prune()
            if np.count_nonzero(tree.of_item == 0) >= structure.MIN_PREPARED:
                # operators that only prepare shapes and masks hide the modules between them
                for number, codes in enumerate(Siblings(tree, part).prepared(), 1):
                    name = PREPARED if number == 1 else f"{PREPARED} ({number})"
                    tree._move(codes, tree.add(0, name, kind=GATHERED))
            tree._limit(part, CHILDREN_LIMIT, tree._fold_branches(part))
            return tree, source
        tree = cls(part.count)
        tree._limit(part, structure.FLAT_LIMIT, tree._fold_branches(part))
        return tree, "structure"

    def alive(self) -> Longs:
        """Return the scopes in use, parents before children, without the root."""
        parent = np.asarray(self.parent)
        scopes = np.flatnonzero(parent >= 0)
        return scopes[np.argsort(depths(parent)[scopes], kind="stable")]

    def first_items(self) -> Longs:
        """Return the position of the first item in each scope."""
        count = len(self.of_item)
        first = np.full(len(self.parent), count, np.int64)
        first[self.of_item[::-1]] = np.arange(count - 1, -1, -1)
        return upward(np.minimum, first, np.asarray(self.parent))

    def _plant(self, paths: list[str], classes: Mapping[str, str]) -> None:
        sources, paths = paths, structure.gathered(paths)
        for item, (before, after) in enumerate(zip(sources, paths, strict=True)):
            above, _, name = before.rpartition("/")
            if name and after == above:
                self.module_of_item[item] = name
        neat = {path: structure.tidy(path) for path in dict.fromkeys(paths)}
        scopes_by_path = {"": 0}

        def scope_of(path: str) -> int:
            if path not in scopes_by_path:  # of at most `DEPTH_LIMIT` parts
                above, _, name = path.rpartition("/")
                scopes_by_path[path] = self.add(scope_of(above), name, classes.get(path, ""))
            return scopes_by_path[path]

        scopes = {path: scope_of(short) for path, short in neat.items()}
        self.of_item = np.fromiter(map(scopes.__getitem__, paths), np.int64, len(paths))

    def _prune(self) -> None:
        """Dissolve scopes of one item, scopes around a single scope, and a scope that holds nearly everything."""
        size = upward(np.add, np.bincount(self.of_item, minlength=len(self.parent)), np.asarray(self.parent))
        alive = self.alive()
        home = np.arange(len(self.parent))
        for scope in alive[size[alive] < 2].tolist():
            home[scope] = home[self.parent[scope]]
            self.parent[scope] = -2
        self.of_item = home[self.of_item]

        direct = np.bincount(self.of_item, minlength=len(self.parent))
        parent = np.asarray(self.parent)
        inner = np.bincount(parent[parent >= 0], minlength=len(parent))
        only = np.zeros(len(parent), np.int64)
        only[parent[parent >= 0]] = np.flatnonzero(parent >= 0)
        for scope in alive[::-1][(inner[alive[::-1]] == 1) & (direct[alive[::-1]] == 0)].tolist():
            if self.parent[scope] < 0 or self.kind[scope] in ROWS:
                continue
            child = int(only[scope])
            if not self.name[child].startswith(f"{self.name[scope]} "):  # a row that has the name already
                self.name[child] = f"{self.name[scope]}/{self.name[child]}"
            self.parent[child] = self.parent[scope]
            self.parent[scope] = -2
            if inner[self.parent[child]] == 1:
                only[self.parent[child]] = child
        while True:  # dissolve a scope that holds nearly everything
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
                self.name[child] = _with_stem(self.name[child], self.path[child])
            self.parent[largest] = -2
            self.of_item[self.of_item == largest] = 0

    def _untangled(self, part: Part, *, split: bool) -> Siblings | None:
        """Split scopes on cycles of siblings, call by call; None if there are cycles but ``split`` is not set."""
        work = 4 * part.count + 100_000
        for _ in range(200):
            siblings = Siblings(self, part)
            if not siblings.cycles or work < 0:
                return siblings  # out of work: the layout reverses an edge
            if not split:
                return None
            changes: set[int] = set()
            for scope, members in siblings.cycles:
                if not changes.isdisjoint(siblings.line(scope)):
                    continue  # an outer scope was split in this round: retry in the next
                scopes = [code for code in members if code >= 0]
                changes.update(scopes)
                inside = siblings.items_in(scope)
                work -= len(inside) * self._split(part, inside, scopes, siblings)
            self._prune()
        return siblings

    def _split(self, part: Part, inside: Longs, scopes: list[int], siblings: Siblings) -> int:
        """Split a scope of a cycle where the flow leaves and reenters it, or else all; return the number of passes."""
        member = {scope: siblings.items_in(scope) for scope in scopes}
        for passes, scope in enumerate(sorted(scopes, key=lambda scope: len(member[scope])), 1):
            if self._divide(scope, member[scope].tolist(), structure.levels(part, inside, {scope: member[scope]})):
                return passes
            if passes * len(inside) > 1_000_000:  # seconds
                break
        level = structure.levels(part, inside, member)
        for scope in scopes:
            self._divide(scope, member[scope].tolist(), level)
        return len(scopes) + 1

    def _divide(self, scope: int, items: list[int], level: Mapping[int, int]) -> bool:
        """Move all but the lowest level of a scope into copies of it, one per level; return whether any exist."""
        calls = {value: call for call, value in enumerate(sorted({level[item] for item in items}), 1)}
        copies: dict[int, dict[int, int]] = {}
        for item in items:
            call = calls[level[item]]
            if call > 1:
                self.of_item[item] = self._copied(int(self.of_item[item]), scope, call, copies.setdefault(call, {}))
        return len(calls) > 1

    def _copied(self, scope: int, top: int, call: int, copies: dict[int, int]) -> int:
        """Return the copy of a scope in ``top``, or of that itself, made with those around it if it is missing."""
        if scope not in copies:
            name = f"{self.name[scope]} ({call})" if scope == top else self.name[scope]
            parent = self.parent[top] if scope == top else self._copied(self.parent[scope], top, call, copies)
            path = f"{self.path[scope]} ({call})"
            copies[scope] = self.add(parent, name, self.cls[scope], kind=self.kind[scope], path=path)
        return copies[scope]

    def _wrap_repeats(self, siblings: Siblings) -> bool:
        """Put rows of equal numbered siblings (layers.0 … layers.31) into a REPEAT; return whether any exist."""
        parent = np.asarray(self.parent)
        many = np.bincount(parent[parent >= 0], minlength=len(parent)) >= MIN_REPEATS
        scopes = np.flatnonzero((parent >= 0) & many[parent]).tolist()
        matches = ((scope, _NUMBER.fullmatch(self.name[scope])) for scope in scopes)
        candidates = {scope: (match[1], int(match[2])) for scope, match in matches if match}
        if len(candidates) < MIN_REPEATS:
            return False
        alike = siblings.signatures(np.fromiter(candidates, np.int64, len(candidates)))
        rows: list[list[int]] = []
        last: tuple[object, ...] = ()
        for scope in sorted(candidates, key=lambda scope: (parent[scope], siblings.key[scope])):
            stem, number = candidates[scope]
            if last != (parent[scope], stem, alike[scope], number - 1):
                rows.append([])
            rows[-1].append(scope)
            last = (parent[scope], stem, alike[scope], number)
        runs = [run for row in rows if len(row) >= MIN_REPEATS for run in siblings.chains(row)]
        betweens = [(run, siblings.between(run)) for run in runs if len(run) >= MIN_REPEATS]
        repeats = [(run, between) for run, between in betweens if between is not None]
        for run, between in repeats:
            self._roof(int(parent[run[0]]), run, between)
        return bool(repeats)

    def _fold_branches(self, part: Part) -> Siblings | None:
        """Put equal branches into SIBLINGS; return the edges between siblings if computed and still valid."""
        parent = np.asarray(self.parent)
        if np.bincount(np.concatenate([self.of_item, parent[parent >= 0]])).max(initial=0) <= structure.FEW:
            return None
        siblings = Siblings(self, part)
        families = siblings.families()
        for scope, family in families:
            if self.kind[scope] in ROWS:
                continue  # it already holds equal members
            operators = [self.name[code] if code >= 0 else part.operator(-1 - code) for code in family[0]]
            name = " → ".join(operators if len(operators) <= SHOWN_OPERATORS else [operators[0], "…", operators[-1]])
            if len(family[0]) > 1:
                branches = enumerate(family, 1)
                members = [self._block(part, scope, branch, f"{name} {number}") for number, branch in branches]
            else:
                members = [code for (code,) in family]
                name = self._range_name(members) or name
            self._roof(scope, members, name=name, kind=SIBLINGS)
        return None if families else siblings

    def _roof(self, scope: int, run: list[int], more: Sequence[int] = (), *, name: str = "", kind: int = REPEAT) -> int:
        classes = {self.cls[code] if code >= 0 else "" for code in run}
        name = name or self._range_name(run)
        above = self.path[run[0]].rpartition("/")[0] if run[0] >= 0 else self.path[scope]
        path = f"{above}/{name}" if above else name
        cls = classes.pop() if len(classes) == 1 else ""
        roof = self.add(scope, _with_stem(name, path), cls, kind=kind, path=path, repeat=len(run))
        self._move([*run, *more], roof)
        return roof

    def _move(self, codes: Iterable[int], scope: int) -> None:
        for code in codes:
            if code >= 0:
                self.parent[code] = scope
            else:
                self.of_item[-1 - code] = scope

    def _limit(self, part: Part, limit: int, siblings: Siblings | None) -> None:
        """Add a level to scopes that have too many children."""
        parent = np.asarray(self.parent)
        count = np.bincount(np.concatenate([self.of_item, parent[parent >= 0]]), minlength=len(parent))
        wide = np.flatnonzero(count > limit).tolist()
        if not wide:
            return
        siblings = siblings or Siblings(self, part)
        uneven = any(self.kind[scope] not in ROWS for scope in wide)
        signature = siblings.signatures(np.flatnonzero(parent >= 0)) if uneven else {}
        for scope in wide:
            codes = siblings.children(scope)
            if self.kind[scope] in ROWS:
                self._chunk(scope, codes.tolist())
                continue
            place = {code: i for i, code in enumerate(codes.tolist())}
            ends = [[place[code] for code in column.tolist()] for column in siblings.edges(scope)]
            source, target = np.asarray(ends, np.int64)
            kinds = (signature[code] if code >= 0 else int(part.kind[-1 - code]) for code in codes.tolist())
            kind = np.fromiter(kinds, np.uint64, len(codes))
            forward = source < target
            self._structure(part, scope, Row(codes, kind, source[forward], target[forward]))

    def _structure(self, part: Part, scope: int, row: Row) -> None:
        """Cut a long row where only one tensor is alive, and put runs of equal pieces into a REPEAT."""
        top: list[int] = []
        number = itertools.count(1)
        for start, stop, unit in row.pieces():
            if not unit:
                top.extend(row.codes[start:stop].tolist())
                continue
            blocks = []
            for at in range(start, stop, unit):
                codes = row.codes[at : at + unit].tolist()
                blocks.append(self._block(part, scope, codes, f"block {next(number)}"))
                if unit > CHILDREN_LIMIT:  # at most half of the row
                    self._structure(part, blocks[-1], row.part(at, at + unit))
            top.append(self._roof(scope, blocks) if len(blocks) > 1 else blocks[0])
            self._chunk(top[-1], blocks)
        self._chunk(scope, top)

    def _block(self, part: Part, scope: int, codes: list[int], name: str) -> int:
        names = [name for code in codes if code < 0 for name in part.constants[-1 - code]]
        stem = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071 (by character)
        is_specific = len(stem) > len(part.common_constant) and not stem.startswith("onnx::")
        stem = re.sub(r"[^./_]*$", "", stem).strip("./_").rpartition("/")[2]
        inner = self.add(scope, stem if is_specific and stem else name)
        self._move(codes, inner)
        return inner

    def _chunk(self, scope: int, codes: list[int]) -> None:
        """Divide a row of more than `CHILDREN_LIMIT` into scopes of neighbors, in levels of about equal width."""
        if len(codes) <= CHILDREN_LIMIT:
            return
        levels = next(number for number in itertools.count(2) if CHILDREN_LIMIT**number >= len(codes))
        width = int(np.ceil(len(codes) ** (1 / levels)))
        width = next((round_ for round_ in (10, 16, 20, 25, 32, 50) if width <= round_ <= CHILDREN_LIMIT), width)
        size = width ** (levels - 1)
        parts = [codes[at : at + size] for at in range(0, len(codes), size)]
        for number, inside in enumerate(parts, 1):
            if len(inside) == 1:
                break  # a single last one is not moved
            name = self._range_name(inside) if self.kind[scope] in (*ROWS, GATHERED) else ""
            place = (number - 1) * size
            span = f"{place + 1}–{place + len(inside)}" if self.kind[scope] == SIBLINGS else ""
            name = name or span or f"part {number} of {len(parts)}"
            repeat = len(inside) if self.repeat[scope] > 1 else 1
            inner = self.add(scope, name, self.cls[scope], kind=GATHERED, repeat=repeat)
            self._move(inside, inner)
            self._chunk(inner, inside)

    def _range_name(self, codes: Sequence[int]) -> str:
        """Return a name for a row from its ends: "layers.0" and "layers.31" become "layers 0–31"."""
        first, last = (self.name[code] if code >= 0 else "" for code in (codes[0], codes[-1]))
        a, b = _NUMBER.fullmatch(first), _NUMBER.fullmatch(last)
        if a and b and a[1] == b[1]:
            return f"{a[1].rstrip('._- ')} {a[2]}–{b[2]}".strip()
        return f"{first} – {last}" if first and last else ""


def _with_stem(name: str, path: str) -> str:
    """Return the name of a scope that is only a number, or a range of them, with the module above: "blocks 0–2"."""
    stem = path.rpartition("/")[0].rpartition("/")[2]
    if not stem or not _BARE.fullmatch(name):
        return name
    return f"{stem}.{name}" if name.isdigit() else f"{stem} {name}"


_BARE = re.compile(r"\d{1,9}(–\d{1,9})?")
_NUMBER = re.compile(r"(.*?)(\d{1,9})")


def scopes_around(tree: Scopes, scope: int) -> list[int]:
    """Return a scope and those around it, the innermost first; none for −1."""
    line = []
    while scope >= 0:
        line.append(scope)
        scope = int(tree.scope_parent[scope])
    return line


def layer_of(graph: Graph, value: int) -> str:
    """Return the path of the layer that computes a value, or the data that it moves; "" where nothing names layers."""
    maker = int(graph.producer[value])
    while maker >= 0 and 0 in facts(graph.op_type(maker)).moves:
        read = graph.node_inputs(maker).tolist()
        if not read or read[0] < 0 or graph.producer[read[0]] < 0:
            break
        maker = int(graph.producer[read[0]])
    return layer_with(graph, maker) if maker >= 0 else ""


def layer_with(graph: Graph, node: int) -> str:
    """Return the path of the layer that a node belongs to."""
    tree = scopes(graph)
    return "/".join(filter(None, (tree.scope_path[tree.node_scope[node]], tree.node_module.get(node, ""))))
