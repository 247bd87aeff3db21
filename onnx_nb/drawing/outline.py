"""Which boxes and edges a graph shows while some of its scopes are open: from `Graph` and `Scopes`."""

from __future__ import annotations

import fnmatch
import functools
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.graph.dataflow import upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import BODY_INPUT, GRAPH_INPUT
from onnx_nb.analysis.graph.operators import canonical
from onnx_nb.analysis.scopes.scopes import BODY, CHUNK, FUNCTION, REPEAT, SIBLINGS, scopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from onnx_nb.analysis.model.model import ModelLike

FEW, BUDGET, ENOUGH = 24, 60, 20
"""Nodes up to which all is open at first; boxes shown at first at most; boxes below which a repeat opens, too."""


class Box(NamedTuple):
    """An end of an edge; its text is an identifier."""

    kind: str
    """node, scope, input, output, result (of an open scope), missing (no node makes it) or enter (an open body)."""
    id: int
    """A node, scope or value; the position of a graph output; the node whose bodies are entered."""

    def __str__(self) -> str:
        return f"{self.kind}{self.id}"


class Edge(NamedTuple):
    """A tensor from the box that makes it to a box that reads it."""

    value: int
    source: Box
    target: Box
    outer: bool
    """Whether each reader in the target reads it as an outer-scope value."""


class Outline:
    """The scopes of a graph, their contents, and the texts of their boxes."""

    def __init__(self, model: ModelLike) -> None:
        self.graph = graph = Graph.opened(model)
        self.tree = tree = scopes(graph)
        self.scope_count = len(tree.scope_parent)
        self.sizes = {"tensor": graph.value_count, "node": graph.node_count, "scope": self.scope_count}
        self.constant = graph.constant_values
        self.parent: list[int] = tree.scope_parent.tolist()
        self.children: list[list[int]] = [[] for _ in self.parent]
        for scope, parent in enumerate(self.parent[1:], 1):
            self.children[parent].append(scope)
        owning = np.isin(tree.scope_kind, (BODY, FUNCTION))
        self.inside = np.full(graph.node_count, -1, np.int64)
        """The scope that shows the bodies of a node, or the function that it calls; −1 for other nodes."""
        self.inside[tree.scope_node[owning]] = np.flatnonzero(owning)
        drawn = np.flatnonzero(~graph.folded)
        counts = np.bincount(tree.node_scope[drawn], minlength=self.scope_count)
        self.node_counts = upward(np.add, counts, tree.scope_parent)
        """Nodes drawn in a scope, at any depth."""
        boxes = drawn[self.inside[drawn] < 0]
        boxes = boxes[np.argsort(tree.node_scope[boxes], kind="stable")]
        starts = np.searchsorted(tree.node_scope[boxes], np.arange(1, self.scope_count))
        self.members = np.split(boxes, starts)
        """Nodes drawn directly in a scope as boxes."""
        self.home: list[int] = []
        """The main graph or body of each subgraph; for a call the one around it."""
        for number, subgraph in enumerate(graph.subgraphs):
            self.home.append(number if subgraph.function is None else self.home[subgraph.parent])
        self.branch = {0: 0}
        """The scope of each body."""
        for scope in np.flatnonzero(tree.scope_kind == BODY).tolist():
            self.branch |= zip(graph.bodies(self.owner(scope)), self.children[scope], strict=True)
        self._subgraph_of = {scope: subgraph for subgraph, scope in self.branch.items()}
        self._used = np.zeros(graph.value_count + 1, bool)  # the last for omitted inputs
        self._used[np.concatenate([graph.in_value, *(subgraph.outputs for subgraph in graph.subgraphs[1:])])] = True

    @functools.cached_property
    def numbers(self) -> dict[str, dict[str, int]]:
        """The number of each tensor, node and scope by name; the first of equal names."""
        names = {"tensor": self.graph.value_names, "node": self.graph.names, "scope": self.tree.scope_path}
        return {kind: {name: at for at, name in [*enumerate(each)][::-1] if name} for kind, each in names.items()}

    def owner(self, scope: int) -> int:
        """Return the node whose bodies a scope shows, or that calls the function it shows; −1 for other scopes."""
        return int(self.tree.scope_node[scope]) if self.tree.scope_kind[scope] in (BODY, FUNCTION) else -1

    def is_body(self, scope: int) -> bool:
        """Return whether a scope shows the bodies of a node."""
        return bool(self.tree.scope_kind[scope] == BODY)

    def operator(self, node: int) -> tuple[str, str]:
        """Return the operator of a node and its domain, empty for the default one."""
        op, domain = self.graph.operators[self.graph.op_index[node]]
        return op, canonical(domain)

    def contents(self, scope: int) -> list[Box]:
        """Return the boxes directly in a scope: inputs, nodes and scopes in file order, outputs or results."""
        boxes = [(node, Box("node", node)) for node in self.members[scope].tolist()]
        boxes += [(self._first[child], Box("scope", child)) for child in self.children[scope]]
        inputs = [Box("input", value) for value in self._inputs(scope)]
        outputs = [Box("result", value) for value in self._results(scope)]
        outputs += [Box("output", place) for place in range(0 if scope else len(self.graph.outputs))]
        return [*inputs, *(box for _, box in sorted(boxes)), *outputs]

    @functools.cached_property
    def _first(self) -> list[int]:
        """The first node in each scope."""
        tree, first = self.tree, np.full(self.scope_count, self.graph.node_count, np.int64)
        np.minimum.at(first, tree.node_scope[~self.graph.folded], np.flatnonzero(~self.graph.folded))
        owned = np.flatnonzero(tree.scope_node >= 0)
        first[owned] = tree.scope_node[owned]
        found: list[int] = upward(np.minimum, first, tree.scope_parent).tolist()
        return found

    def _inputs(self, scope: int) -> list[int]:
        subgraph = self._subgraph_of.get(scope, -1)
        values: list[int] = self.graph.subgraphs[subgraph].inputs.tolist() if subgraph >= 0 else []
        return [value for value in values if not scope or self._used[value]]

    def _results(self, scope: int) -> list[int]:
        owner = self.owner(scope)
        values = self.graph.node_outputs(owner).tolist() if owner >= 0 else []
        return [value for value in values if value >= 0 and not self.constant[value]]

    def first_opening(self) -> set[int]:
        """Return the scopes that are open at first: all of few nodes, else from the outside in within `BUDGET`."""
        if self.graph.node_count <= FEW:
            return set(range(self.scope_count))
        opened, boxes, kinds = {0}, len(self.contents(0)), self.tree.scope_kind.tolist()

        def largest_first(scope: int) -> list[int]:
            return sorted(self.children[scope], key=lambda child: -self.node_counts[child])

        def opens(scope: int) -> bool:
            nonlocal boxes
            more = len(self.contents(scope))
            if boxes + more > BUDGET:
                return False
            opened.add(scope)
            boxes += more
            return True

        repeats, remainders, queue = [], [], deque(largest_first(0))
        while queue:
            scope = queue.popleft()
            if kinds[scope] == REPEAT:
                repeats.append(scope)
            elif kinds[scope] == CHUNK and self.tree.scope_repeat[scope] <= 1:
                remainders.append(scope)
            elif kinds[scope] != SIBLINGS and opens(scope):
                queue.extend(largest_first(scope))
        for repeat in repeats:  # grows: a repeat may hold others
            # one layer of a repeat explains more than none
            if boxes < ENOUGH and opens(repeat) and self.children[repeat] and opens(self.children[repeat][0]):
                for inner in largest_first(self.children[repeat][0]):
                    if kinds[inner] == REPEAT:
                        repeats.append(inner)
                    elif boxes < ENOUGH and kinds[inner] != SIBLINGS:
                        opens(inner)
        for scope in remainders:
            if boxes < ENOUGH:
                opens(scope)
        return opened

    def at_paths(self, paths: Iterable[str]) -> set[int]:
        """Return the scopes that a view's paths name ("encoder/layer.0#12"); after "*" all but those named ("-…")."""
        known = self.numbers["scope"] | {f"{path}#{scope}": scope for scope, path in enumerate(self.tree.scope_path)}
        given = list(paths)
        if given[:1] == ["*"]:
            closed = {known.get(path.removeprefix("-"), 0) for path in given[1:]}
            return {0} | set(range(self.scope_count)) - closed
        return {0} | {known[path] for path in given if path in known}

    def matching(self, patterns: Iterable[str]) -> set[int]:
        """Return the scopes whose paths match a pattern, and those around them.

        Raises
        ------
        OnnxNbError
            If a pattern matches no scope.
        """
        opened, paths = {0}, self.tree.scope_path
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            glob = pattern.replace("[", "[[]")
            found = self.at_paths([pattern]) - {0} if pattern != "*" else set()
            found = found or {scope for scope, path in enumerate(paths) if fnmatch.fnmatchcase(path, glob)}
            if not found:
                raise OnnxNbError(f"no scope is called {quoted(pattern)}.", advice=_advice(pattern, paths))
            for scope in found:
                while scope not in opened:
                    opened.add(scope)
                    scope = self.parent[scope]  # noqa: PLW2901 (the walk up to the root)
        return opened

    def find(self, name: str) -> tuple[str, int]:
        """Return the kind and number of the tensor, else the node, else the scope with a name.

        Raises
        ------
        OnnxNbError
            If there is none.
        """
        for kind, numbers in self.numbers.items():
            if name in numbers:
                return kind, numbers[name]
        every = [each for kind in ("scope", "node", "tensor") for each in self.numbers[kind]]
        raise OnnxNbError(
            f"no tensor, node or scope of the model is called {quoted(name)}.", advice=_advice(name, every)
        )

    def ends(self, value: int) -> list[int]:
        """Return the nodes at a tensor: its producer, if it has one, and its readers."""
        maker = int(self.graph.producer[value])
        return [*([maker] if maker >= 0 else ()), *self.graph.consumers(value).tolist()]

    def problems(self) -> dict[int, list[str]]:
        """Return the nodes that show a problem, with its message where it is described."""
        graph = self.graph

        def shown_at(node: int, value: int) -> list[int]:
            return [node] if node >= 0 else self.ends(value)[: 1 if graph.producer[value] >= 0 else None]

        found: dict[int, list[str]] = {node: [] for node in graph.problem_nodes.tolist()}
        found |= {node: [] for value in graph.problem_values.tolist() for node in shown_at(-1, value)}
        for problem in graph.problems:
            for node in shown_at(problem.node, problem.value) if max(problem.node, problem.value) >= 0 else ():
                found.setdefault(node, []).append(problem.message)
        return found


def _advice(name: str, names: Iterable[str]) -> str:
    return closest_text(name, names) or "onnx_nb.ModelGraph(model) shows the names."


class Boxes:
    """The boxes that show while some scopes are open, and the edges between them."""

    def __init__(self, outline: Outline, opened: set[int]) -> None:
        self._outline = outline
        self.front: list[int] = []
        """The outermost closed scope at or around each scope; −1 if the scope shows open."""
        for scope, parent in enumerate(outline.parent):
            above = self.front[parent] if scope else -1
            self.front.append(above if above >= 0 or scope in opened or not scope else scope)

    def count(self) -> int:
        """Return the number of boxes; open scopes are not boxes."""
        shown = [scope for scope, front in enumerate(self.front) if front < 0]
        return sum(len(self._outline.contents(scope)) for scope in shown) - len(shown) + 1

    def is_open(self, box: Box) -> bool:
        """Return whether a box is an open scope."""
        return box.kind == "scope" and self.front[box.id] < 0

    def of_scope(self, scope: int) -> Box:
        """Return the box that shows a scope: itself, or the closed one around it."""
        return Box("scope", scope if self.front[scope] < 0 else self.front[scope])

    def of_node(self, node: int) -> Box:
        """Return the box that shows a node; for a node with bodies, or a call, the scope that shows these."""
        inside = int(self._outline.inside[node])
        front = self.front[inside if inside >= 0 else int(self._outline.tree.node_scope[node])]
        return Box("scope", front if front >= 0 else inside) if front >= 0 or inside >= 0 else Box("node", node)

    def of_value(self, value: int) -> Box:
        """Return the box that a tensor comes from."""
        graph = self._outline.graph
        if graph.producer[value] >= 0:
            box = self.of_node(int(graph.producer[value]))
            return Box("result", value) if self.is_open(box) else box
        if graph.value_kind[value] == BODY_INPUT:
            front = self.front[self._outline.branch[int(graph.value_subgraph[value])]]
            return Box("scope", front) if front >= 0 else Box("input", value)
        return Box("input" if graph.value_kind[value] == GRAPH_INPUT else "missing", value)

    def edges(self) -> list[Edge]:
        """Return an edge for each tensor and each box that reads it from outside."""
        found: dict[tuple[int, Box], Edge] = {}
        for value, target, outer in (*self._reads(), *self._results(), *self._outputs()):
            edge = Edge(value, self.of_value(value), target, outer)
            if edge.source != target and (outer < found.setdefault((value, target), edge).outer):
                found[value, target] = edge
        return list(found.values())

    def _reads(self) -> Iterator[tuple[int, Box, bool]]:
        outline, graph = self._outline, self._outline.graph
        scope_of, home = outline.tree.node_scope, np.asarray(outline.home)
        reader = np.repeat(np.arange(graph.node_count), np.diff(graph.in_ptr))
        reads = np.flatnonzero((graph.in_value >= 0) & ~graph.folded[reader])
        reads = reads[~outline.constant[graph.in_value[reads]]]
        value, reader = graph.in_value[reads], reader[reads]
        # reads inside one closed scope do not show
        front, maker = np.asarray(self.front)[scope_of], graph.producer[value]
        hidden = (front[reader] >= 0) & (maker >= 0) & (front[reader] == np.where(maker >= 0, front[maker], -1))
        outer = home[graph.value_subgraph[value]] != home[graph.node_subgraph[reader]]
        outer &= graph.value_kind[value] != BODY_INPUT  # drawn in the body that it belongs to, as in the browser
        passed_on = functools.cache(lambda scope: set(value[self._below(scope)[scope_of[reader]]].tolist()))
        for read, node, is_outer in zip(*(each[~hidden].tolist() for each in (value, reader, outer)), strict=True):
            box = self.of_node(node)
            if not self.is_open(box):
                yield read, box, is_outer
            elif outline.is_body(box.id) or read not in passed_on(box.id):  # else nodes inside an open call read it
                yield read, Box("enter", node), is_outer

    def _below(self, scope: int) -> NDArray[np.bool_]:
        """Return which scopes are inside a scope."""
        inside = np.zeros(self._outline.scope_count, bool)
        inside[scope] = True
        for each in range(scope + 1, len(inside)):  # parents come before children
            inside[each] = inside[self._outline.parent[each]]
        return inside

    def _results(self) -> Iterator[tuple[int, Box, bool]]:
        """Return what open bodies and calls yield, and the outputs of their nodes that it becomes."""
        outline, graph = self._outline, self._outline.graph
        for subgraph, (owner, given) in enumerate((each.owner_node, each.outputs) for each in graph.subgraphs):
            if owner < 0 or self.front[int(outline.inside[owner])] >= 0:
                continue
            loop = outline.operator(owner) == ("Loop", "")  # its body's first output is the condition
            for value, made in zip(given[loop:].tolist(), graph.node_outputs(owner).tolist(), strict=False):
                if value >= 0 and made >= 0 and not (outline.constant[value] or outline.constant[made]):
                    outer = outline.home[graph.value_subgraph[value]] != outline.home[subgraph]
                    yield value, Box("result", made), outer

    def _outputs(self) -> Iterator[tuple[int, Box, bool]]:
        for place, value in enumerate(self._outline.graph.outputs.tolist()):
            if value >= 0 and not self._outline.constant[value]:
                yield value, Box("output", place), False
