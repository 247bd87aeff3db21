"""A model's graph as DOT, for papers and for editing; Graphviz measures the text and computes the layout.

An open scope is a cluster, a closed one a box. An edge runs from the box that produces a tensor to each box that reads
it, across the borders of clusters. Names come from untrusted files: no name is used as an identifier, all text is
escaped, and full names are in the tooltips.
"""

from __future__ import annotations

import fnmatch
import functools
import html
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import graphviz
import numpy as np

from onnx_nb.analysis.arguments import check_choice, known_arguments
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import BODY_INPUT, GRAPH_INPUT
from onnx_nb.analysis.graph.operators import CATEGORIES, category
from onnx_nb.analysis.model.model import ModelLike
from onnx_nb.analysis.scopes.scopes import BODY, FUNCTION, GATHERED, REPEAT, ROWS, SIBLINGS, scopes, scopes_around
from onnx_nb.analysis.view.graph_columns import CONSTANT, DIFFERS, columns, yields

BOX_LIMIT = 2000
"""Maximum number of boxes in one drawing: dot may not finish with more."""
FEW, BUDGET, ENOUGH = 24, 60, 20
"""Maximum nodes to open everything at first; maximum boxes shown at first; boxes below which a repeat also opens."""
MANY = 8
"""Maximum readers of a tensor with lines, else named stubs: dot may not finish with lines across a whole model."""
PAIRS = 4
"""Maximum number of weights and attributes listed in a node's box."""
_NAMES = "onnx_nb.ModelGraph(model) shows the names."
Direction = Literal["down", "right"]
Theme = Literal["light", "dark"]


@known_arguments
def to_graphviz(
    model: ModelLike,
    *,
    open: Iterable[str] | None = None,  # noqa: A002 (the widget's word for it)
    direction: Direction = "down",
    theme: Theme = "light",
    highlight: Iterable[str] = (),
) -> graphviz.Digraph:
    """Return a drawing of a model as DOT.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed and no weight is read.
    open
        Paths of the scopes to open, together with the scopes around them. ``*`` and ``?`` are wildcards: ``["*"]``
        opens every scope and ``[]`` none. By default the scopes that the widget opens first: all of them in a graph of
        at most 24 nodes, else from the outside in while the drawing has at most 60 boxes.
    direction
        Direction of the data flow: ``"down"`` or ``"right"``.
    theme
        ``"light"`` or ``"dark"``, in the widget's colors.
    highlight
        Names of tensors, nodes or scopes to highlight. A node in a closed scope highlights that scope.

    Returns
    -------
    graphviz.Digraph
        ``source`` is the DOT text. The drawing displays itself in a cell, and ``render`` writes a file; both need the
        program ``dot`` and raise ``graphviz.ExecutableNotFound`` without it.

    Raises
    ------
    OnnxNbError
        If a scope or a name is not in the model, or if the drawing would have more than 2,000 boxes.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { h = Relu(x) y = Add(h, x) }'
    >>> drawn = to_graphviz(onnx.parser.parse_model(text), highlight=["h"])
    >>> [line.split(" [")[0].strip() for line in drawn.source.splitlines() if "->" in line]
    ['input0:s -> node0:n', 'node0:s -> node1:i0:n', 'input0:s -> node1:i1:n', 'node1:s -> output0:n']
    """
    outline = _Outline(model)
    for name in [highlight] if isinstance(highlight, str) else highlight:
        outline.highlight(*outline.find(name))
    return _Drawing(outline, outline.first_opening() if open is None else outline.matching(open), direction, theme).dot


def view_to_graphviz(
    model: ModelLike, spread: Sequence[str] | None, targets: Iterable[Mapping[str, Any]], *, direction: str, theme: str
) -> graphviz.Digraph:
    """Return a drawing of a model as a widget shows it, from the open scopes of its view and from what it highlights.

    Names that are not in the model are ignored; see `to_graphviz`.
    """
    outline = _Outline(model)
    for target in targets:
        kind, number = str(target.get("kind")), target.get("id")
        if kind in outline.numbers and not (isinstance(number, int) and 0 <= number < len(outline.names[kind])):
            number = outline.numbers[kind].get(str(target.get("name")))  # nodes without a name only have a number
        if kind in outline.numbers and number is not None:
            outline.highlight(kind, number)
    scopes = outline.first_opening() if spread is None else outline.at_paths(spread)
    return _Drawing(outline, scopes, direction, theme).dot


class Box(NamedTuple):
    """An end of an edge; its string is an identifier."""

    kind: str
    """node, scope, input, output, result (of an open scope), missing (no node produces it) or enter (an open body)."""
    id: int
    """Index of a node, scope or value; position of a graph output; index of the node whose bodies are entered."""

    def __str__(self) -> str:
        return f"{self.kind}{self.id}"


Edge = tuple[int, Box, Box, bool]
"""A tensor, its producing box, a box that reads it, and whether that box only reads it as an outer-scope value."""


class _Outline:
    """The scopes of a graph, their contents, the texts of their boxes, and the highlights."""

    def __init__(self, model: ModelLike) -> None:
        self.graph = graph = Graph.opened(model)
        self.tree = tree = scopes(graph)
        table = columns(graph.model)
        self.column, self._strings = table.arrays, table.strings()
        self.inside = self.column["node_body"]
        """Scope that shows the bodies of each node, or the function that it calls; −1 for other nodes."""
        self.parent: list[int] = tree.scope_parent.tolist()
        self.names = {"tensor": graph.value_names, "node": graph.names, "scope": tree.scope_path}
        self._boxes: list[dict[Box, None]] = [{} for _ in self.parent]
        """Nodes and scopes directly in each scope, in file order."""
        whole = [Box("scope", scope) for scope in range(len(self.parent))]
        nodes = np.flatnonzero(~graph.folded)
        for node, scope, inside in np.stack([nodes, tree.node_scope[nodes], self.inside[nodes]], axis=1).tolist():
            box = Box("node", node) if inside < 0 else whole[inside]
            while scope >= 0 and box not in self._boxes[scope]:
                self._boxes[scope][box] = None
                box, scope = whole[scope], self.parent[scope]  # noqa: PLW2901 (the walk up to the root)
        for scope, parent in enumerate(self.parent[1:], 1):
            self._boxes[parent].setdefault(whole[scope])  # branches without nodes
        self.home: list[int] = []
        """The main graph or body that each subgraph belongs to; for a call, the one around it."""
        for number, subgraph in enumerate(graph.subgraphs):
            self.home.append(number if subgraph.function is None else self.home[subgraph.parent])
        self.branch = {0: 0}
        """Scope of each body."""
        for scope in np.flatnonzero(tree.scope_kind == BODY).tolist():
            self.branch |= zip(graph.bodies(self.owner(scope)), sorted(self.children(scope)), strict=True)
        self._subgraph_of = {scope: subgraph for subgraph, scope in self.branch.items()}
        self.front: list[int] = []
        """Outermost closed scope at or around each scope; −1 if the scope is shown open."""
        self.lit: dict[str, set[int]] = {"node": set(), "scope": set()}
        self.accents: set[int] = set()
        results = (value for subgraph_ in graph.subgraphs[1:] for value in subgraph_.outputs.tolist())
        self._used = {*graph.in_value.tolist(), *results}

    @functools.cached_property
    def numbers(self) -> dict[str, dict[str, int]]:
        """Number of each tensor, node and scope by name; the first of equal names."""
        return {kind: {name: at for at, name in [*enumerate(row)][::-1] if name} for kind, row in self.names.items()}

    def owner(self, scope: int) -> int:
        """Return the node whose bodies a scope shows, or that calls the function it shows; −1 for other scopes."""
        return int(self.tree.scope_node[scope]) if self.tree.scope_kind[scope] in (BODY, FUNCTION) else -1

    def operator(self, node: int) -> tuple[str, str]:
        return self.graph.operators[int(self.graph.op_index[node])]

    def children(self, scope: int) -> list[int]:
        return [box.id for box in self._boxes[scope] if box.kind == "scope"]

    def contents(self, scope: int) -> list[Box]:
        """Return the boxes directly in a scope: inputs, nodes and scopes in file order, outputs or results."""
        graph, subgraph, owner = self.graph, self._subgraph_of.get(scope, -1), self.owner(scope)
        inputs = graph.subgraphs[subgraph].inputs.tolist() if subgraph >= 0 else []
        results = graph.node_outputs(owner).tolist() if owner >= 0 else []
        return [
            *(Box("input", value) for value in inputs if not scope or value in self._used),
            *self._boxes[scope],
            *(Box("result", value) for value in results if value >= 0 and not self.graph.constant_values[value]),
            *(Box("output", place) for place in range(0 if scope else len(graph.outputs))),
        ]

    def open(self, spread: set[int]) -> int:
        """Open the given scopes and close the others; return the number of boxes, which excludes open scopes."""
        for scope, parent in enumerate(self.parent):
            above = self.front[parent] if scope else -1
            self.front.append(above if above >= 0 or scope in spread or not scope else scope)
        insides = [scope for scope, front in enumerate(self.front) if front < 0]
        return sum(len(self.contents(scope)) for scope in insides) - len(insides) + 1

    def first_opening(self) -> set[int]:
        """Return the scopes that are open at first: all in a small graph, else from the outside in, within `BUDGET`.

        A repeat opens, with its first layer, only if there are few boxes without it; each GATHERED
        without repeated members opens last.
        """
        if self.graph.node_count <= FEW:
            return set(range(len(self.parent)))
        spread, boxes, rank, inside, waiting = {0}, len(self.contents(0)), 0, 0, list[tuple[int, int]]()
        kinds, repeat, size = self.tree.scope_kind, self.tree.scope_repeat, self.column["scope_nodes"]
        while True:
            for scope in sorted(self.children(inside) if inside >= 0 else (), key=lambda child: -int(size[child])):
                last = {REPEAT: 1, GATHERED: 2 * int(repeat[scope] <= 1)}.get(int(kinds[scope]), 0)
                waiting += [(max(rank, last), scope)] if kinds[scope] != SIBLINGS else []
            waiting.sort(key=operator.itemgetter(0))
            if not waiting or (waiting[0][0] and boxes >= ENOUGH):
                return spread
            rank, inside = waiting.pop(0)
            for scope in (inside, *(self.children(inside)[:1] if kinds[inside] == REPEAT else ())):
                if boxes + len(self.contents(scope)) > BUDGET:
                    inside = -1
                    break
                spread.add(scope)
                boxes += len(self.contents(scope))
                inside = scope

    def at_paths(self, paths: Iterable[str]) -> set[int]:
        """Return the scopes named by a view's paths ("encoder/layer.0#12"); after "*" all except those named ("-…")."""
        numbers = self.numbers["scope"] | {f"{path}#{scope}": scope for scope, path in enumerate(self.tree.scope_path)}
        names = list(paths)
        if names[:1] == ["*"]:
            return {0} | set(range(len(self.parent))) - {numbers.get(path.removeprefix("-"), 0) for path in names[1:]}
        return {0} | {numbers[path] for path in names if path in numbers}

    def matching(self, patterns: Iterable[str]) -> set[int]:
        """Return the scopes whose paths match a pattern, and those around them; raise `OnnxNbError` without a match."""
        spread, paths = {0}, self.tree.scope_path
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            glob = pattern.replace("[", "[[]")
            matches = self.at_paths([pattern]) - {0} if pattern != "*" else set()
            matches = matches or {scope for scope, path in enumerate(paths) if fnmatch.fnmatchcase(path, glob)}
            if not (matches := matches or set(self.tree.named(pattern))):
                near = closest_text(pattern, paths) or _NAMES
                raise OnnxNbError(f"no scope is called {quoted(pattern)}.", advice=near)
            spread |= {around for scope in matches for around in scopes_around(self.tree, scope)}
        return spread

    def find(self, name: str) -> tuple[str, int]:
        """Return kind and number of the tensor, else node, else scope with a name; raise `OnnxNbError` without any."""
        for kind, numbers in self.numbers.items():
            if name in numbers:
                return kind, numbers[name]
        if matches := self.tree.named(name):
            return "scope", matches[0]
        near = closest_text(name, [label for kind in ("scope", "node", "tensor") for label in self.numbers[kind]])
        raise OnnxNbError(f"no tensor, node or scope of the model is called {quoted(name)}.", advice=near or _NAMES)

    def highlight(self, kind: str, number: int) -> None:
        """Highlight a node, a scope, or a tensor with its producer and readers."""
        if kind == "tensor":
            self.accents.add(number)
            self.lit["node"].update(self.ends(number))
        else:
            self.lit[kind].add(number)

    def ends(self, value: int) -> list[int]:
        maker = int(self.graph.producer[value])
        return [*([maker] if maker >= 0 else ()), *self.graph.consumers(value).tolist()]

    def problems(self) -> dict[int, list[str]]:
        """Return the nodes that show a problem, with its message where there is one."""
        graph, texts = self.graph, dict[int, list[str]]()
        rows = [(node, -1, "") for node in graph.structural_problems.nodes.tolist()]
        rows += [(-1, value, "") for value in graph.structural_problems.values.tolist()]
        rows += [(problem.node, problem.value, problem.message) for problem in graph.problems]
        for node, value, message in rows:
            ends = self.ends(value)[: 1 if graph.producer[value] >= 0 else None] if value >= 0 else []
            for at in [node] if node >= 0 else ends:
                texts.setdefault(at, []).extend([message] if message else [])
        return texts

    def _string(self, name: str, row: int) -> str:
        return self._strings[int(self.column[name][row])]

    def node_text(self, node: int) -> tuple[str, str, list[tuple[str, str]]]:
        """Return a node's operator, a note after it (its domain), and its weights and attributes."""
        graph, (op, domain) = self.graph, self.operator(node)
        note = f"differs {domain}" if self.column["node_flags"][node] & DIFFERS else domain
        names, inputs = self._string("op_inputs", int(graph.op_index[node])), graph.node_inputs(node).tolist()
        pairs = []
        for name, value in zip([*names.split(","), *[""] * len(inputs)], inputs, strict=False):
            if value >= 0 and self.column["value_flags"][value] & CONSTANT:
                kind = graph.type_of(value)
                text = self._string("value_literal", value) or kind.shape_text or kind.dtype or "constant"
                pairs.append((name, text))
        attributes = filter(None, self._string("node_attributes", node).split(" · "))
        pairs += [(key, value) for key, _, value in (attribute.partition(" ") for attribute in attributes)]
        return op, note.strip(), pairs

    def scope_text(self, scope: int) -> tuple[str, str, list[str]]:
        """Return a scope's title, a note after it (class, "×32") and lines: its contents, path and differences."""
        tree, column = self.tree, self.column
        title, note, in_row = tree.scope_name[scope], tree.scope_class[scope], tree.scope_kind[scope] in ROWS
        if tree.scope_kind[scope] == BODY:
            op = self.operator(self.owner(scope))[0]
            title, note = op, "" if title == op else title
        repeat, differing = int(tree.scope_repeat[scope]), int(column["scope_differs"][scope])
        if repeat > 1 or in_row:
            note += f" ×{repeat}" + (f", {differing} {'differs' if differing == 1 else 'differ'}" if differing else "")
        elif differing:
            note += " differs"
        nodes, parameters = int(column["scope_nodes"][scope]), float(column["scope_params"][scope])
        share = repeat if repeat > 1 and nodes % repeat == 0 and in_row else 1
        contents = count_text(nodes // share, "op") + (" each" if share > 1 else "")
        contents += f" · {count_text(round(parameters / share), 'parameter')}" if parameters else ""
        return title or "…", note.strip(), [contents, tree.scope_path[scope], self._string("scope_difference", scope)]

    def value_text(self, value: int, *, short: bool = False) -> tuple[str, str]:
        kind = self.graph.type_of(value)
        dtype = kind.dtype
        for long, abbreviation in _SHORT if short else ():
            dtype = dtype.replace(long, abbreviation, 1)
        return self.graph.value_names[value], f"{kind.shape_text} {dtype}".strip()

    def is_open(self, box: Box) -> bool:
        return box.kind == "scope" and self.front[box.id] < 0

    def of_scope(self, scope: int) -> Box:
        """Return the box that shows a scope: the scope itself, or the closed one around it."""
        return Box("scope", scope if self.front[scope] < 0 else self.front[scope])

    def of_node(self, node: int) -> Box:
        """Return the box that shows a node; for a node with bodies or a call, the scope that shows them."""
        inside = int(self.inside[node])
        scope = inside if inside >= 0 else int(self.tree.node_scope[node])
        return self.of_scope(scope) if inside >= 0 or self.front[scope] >= 0 else Box("node", node)

    def of_value(self, value: int) -> Box:
        """Return the box that a tensor comes from."""
        graph = self.graph
        if graph.producer[value] >= 0:
            box = self.of_node(int(graph.producer[value]))
            return Box("result", value) if self.is_open(box) else box
        if graph.value_kind[value] == BODY_INPUT:
            front = self.front[self.branch[int(graph.value_subgraph[value])]]
            return Box("scope", front) if front >= 0 else Box("input", value)
        return Box("input" if graph.value_kind[value] == GRAPH_INPUT else "missing", value)

    def edges(self) -> list[Edge]:
        """Return an edge for each tensor and each box that reads it from outside the box."""
        graph, home = self.graph, self.home
        by_end: dict[tuple[int, Box], Edge] = {}
        for value, target, subgraph in self._reads():
            # a body input is drawn in the body that it belongs to
            outer = home[graph.value_subgraph[value]] != home[subgraph] and graph.value_kind[value] != BODY_INPUT
            edge = (value, self.of_value(value), target, outer)
            if edge[1] != target and outer < by_end.setdefault((value, target), edge)[-1]:
                by_end[value, target] = edge
        return list(by_end.values())

    def _reads(self) -> Iterator[tuple[int, Box, int]]:
        """Yield each value with a box that reads it, and the subgraph of the reader."""
        graph, tree = self.graph, self.tree
        front = [self.front[scope] for scope in tree.node_scope.tolist()]
        maker, skips, hides = graph.producer.tolist(), graph.folded.tolist(), graph.constant_values.tolist()
        read, ends = graph.in_value.tolist(), graph.in_ptr.tolist()
        for node in range(graph.node_count):
            for value in () if skips[node] else read[ends[node] : ends[node + 1]]:
                is_inner = front[node] >= 0 and maker[value] >= 0 and front[maker[value]] == front[node]
                if value < 0 or hides[value] or is_inner:
                    continue
                box = self.of_node(node)
                if self.is_open(box):
                    readers = graph.consumers(value).tolist() if tree.scope_kind[box.id] == FUNCTION else []
                    places = {int(tree.node_scope[reader]) for reader in readers if not skips[reader]}
                    if any(box.id in scopes_around(tree, place) for place in places):
                        continue  # nodes inside the open call read it
                    box = Box("enter", node)
                yield value, box, int(graph.node_subgraph[node])
        # results of open bodies and calls, and the outputs of their nodes that they become
        for subgraph, value, result in yields(graph):
            inside = int(self.inside[graph.subgraphs[subgraph].owner_node])
            if self.front[inside] < 0 and not (hides[value] or hides[result]):
                yield value, Box("result", result), subgraph
        for place, value in enumerate(graph.outputs.tolist()):
            if value >= 0 and not hides[value]:
                yield value, Box("output", place), int(graph.value_subgraph[value])


_COLORS = {
    "background": ("#ffffff", "#16191d"),
    "text": ("#1f2328", "#e4e8ec"),
    "accent": ("#0b6bcb", "#58a6ff"),
    "bad": ("#c62828", "#ff7b72"),
    "warn": ("#9a6700", "#e3b341"),
    "line": ("#d2dbe4", "#313943"),
    "card": ("#ffffff", "#22282e"),
    "scope0": ("#f4f6f8", "#1b1f24"),
    "scope1": ("#ecf0f4", "#1f2429"),
    "dim": ("#5e6164", "#9ea2a6"),
    "edge": ("#9c9ea0", "#6d7074"),
    "linear": ("#0072b2", "#2f93d6"),
    "activation": ("#d55e00", "#e8742c"),
    "normalize": ("#009e73", "#22b389"),
    "arithmetic": ("#7a8794", "#8996a3"),
    "shape": ("#b3669b", "#c67fb0"),
    "pool": ("#3f9bd1", "#79c2ee"),
    "cast": ("#d99000", "#e5a428"),
    "control": ("#5b4fa0", "#978be0"),
    "random": ("#8a7a1f", "#bdaa48"),
    "input": ("#4a5560", "#9aa5b0"),
    "other": ("#a0a8b0", "#6d7782"),
}
"""Colors of ``frontend/style/base.css`` in the light and the dark theme, those of operators by category."""

_SHORT = (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"), ("string", "str"))
_FONT = "Helvetica,Arial,sans-serif"
_PLAIN = 'CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"'
_SPACE = "&#160;"
_BACKSLASH = "\\\u2060"
"""Backslash and an invisible word joiner: dot replaces "\\N" by the node's name, however it is escaped."""
_CONTROL = re.compile("[\x00-\x1f\x7f\u2028\u2029\ufffe\uffff\ud800-\udfff]+")


class _Drawing:
    def __init__(self, outline: _Outline, spread: set[int], direction: str, theme: str) -> None:
        check_choice("direction", direction, Direction)
        check_choice("theme", theme, Theme)
        self._outline = outline
        self._color = color = {name: pair[theme == "dark"] for name, pair in _COLORS.items()}
        self._down = direction == "down"
        count = outline.open(spread)
        if count > BOX_LIMIT:
            raise OnnxNbError(
                f"the drawing would have {count:,} boxes; dot may not finish with more than {BOX_LIMIT:,}.",
                advice="Close scopes: name the few to open, as in open=['encoder/layer.0'], or none with open=[].",
            )
        self._edges = outline.edges()
        self._many = {value for value, n in Counter(edge[0] for edge in self._edges).items() if n > MANY}
        self._stubs: dict[Box, dict[str, int]] = {}
        values_at: dict[tuple[str, Box], set[int]] = {}
        for value, source, target, _ in self._edges:
            values_at.setdefault(("o", source), set()).add(value)
            values_at.setdefault(("i", target), set()).add(value)
            if value in self._many:
                self._stubs.setdefault(source, {})[f"stub{value}"] = value
                self._stubs.setdefault(target, {})[f"stub{value}_{target}"] = value
        self._ends = {box for _, box in values_at}
        self._ports: dict[tuple[str, Box], dict[int, int]] = {}
        """Value → its place in the node's own order, at each side of a node with several edges there."""
        for (side, box), values in values_at.items():
            if len(values) > 1 and box.kind == "node":
                ports = (outline.graph.node_inputs if side == "i" else outline.graph.node_outputs)(box.id).tolist()
                order = (value for value in dict.fromkeys(ports) if value in values)
                self._ports[side, box] = {value: place for place, value in enumerate(order)}
        self._lit = {*map(outline.of_node, outline.lit["node"]), *map(outline.of_scope, outline.lit["scope"])}
        self._problems: dict[Box, list[str]] = {}
        for node, messages in outline.problems().items():
            self._problems.setdefault(outline.of_node(node), []).extend(messages)
        graph = {"bgcolor": color["background"], "fontname": _FONT, "nodesep": "0.3", "pad": "0.15"}
        graph |= {"rankdir": "TB", "ranksep": "0.32"} if self._down else {"rankdir": "LR", "ranksep": "0.4"}
        node_style = {"shape": "plain", "fontname": _FONT, "fontsize": "12"}
        edge_style = {"arrowhead": "vee", "arrowsize": "0.6", "fontname": _FONT, "fontsize": "10"}
        self.dot = graphviz.Digraph(
            "model",
            graph_attr=graph | {"tooltip": _tooltip(outline.graph.model.name)},
            node_attr=node_style | {"fontcolor": color["text"], "color": color["line"]},
            edge_attr=edge_style | {"color": color["edge"], "fontcolor": color["dim"]},
        )
        if count:
            self._draw_scope_contents(self.dot, 0, 0)
        else:
            self.dot.node("empty", label="This model has no nodes.", fontcolor=color["dim"])
        self._draw_edges()

    def _draw_scope_contents(self, dot: Any, scope: int, depth: int) -> str:
        """Draw the contents of an open scope; return the identifier of its first box."""
        first, enter = "", Box("enter", self._outline.owner(scope))
        if enter in self._ends:  # where tensors enter the bodies of a node
            dot.node(str(enter), label="", shape="point", width="0.06", color=self._color["edge"])
        for box in self._outline.contents(scope):
            if self._outline.is_open(box):
                title, note, lines = self._outline.scope_text(box.id)
                style = {"style": "rounded,filled", "labeljust": "l", "margin": "12", "fontsize": "12"}
                style |= {"label": f"<{self._heading(title, note)}>", "fontcolor": self._color["text"]}
                style |= {"fillcolor": self._color[f"scope{depth % 2}"], "tooltip": _tooltip(f"{title} {note}", *lines)}
                cluster = graphviz.Digraph(f"cluster{box.id}", graph_attr=style | self._border(box))
                inner = self._draw_scope_contents(cluster, box.id, depth + 1)
                dot.subgraph(cluster)
            else:
                inner = str(box)
                {"node": self._draw_node, "scope": self._draw_closed_scope}.get(box.kind, self._draw_pill)(dot, box)
                self._draw_names(dot, self._stubs.get(box, {}))
            first = first or inner
        if not first:
            first = f"empty{scope}"
            dot.node(first, label="", shape="point", style="invis")
        if enter in self._ends:
            self._draw_names(dot, self._stubs.get(enter, {}))
            dot.edge(str(enter), first, style="invis")
        return first

    def _draw_node(self, dot: Any, box: Box) -> None:
        outline, color = self._outline, self._color
        op, note, pairs = outline.node_text(box.id)
        entries = pairs[:PAIRS] + [("", "…")] * (len(pairs) > PAIRS)
        keys = [f'<I><FONT COLOR="{color["dim"]}">{_text(key)}</FONT></I> ' if key else "" for key, _ in entries]
        texts = [key + _text(value) for key, (_, value) in zip(keys, entries, strict=True)]
        lines = [f"{_SPACE} ".join(texts[at : at + 2]) for at in range(0, len(texts), 2)]
        words = f'<TD CELLPADDING="4">{_table([self._heading(op, note, box), *(_small(line) for line in lines)])}</TD>'
        stripe = f'WIDTH="5" BGCOLOR="{color[CATEGORIES[category(*outline.operator(box.id))]]}"'
        ins, outs = (_cells(side, self._ports.get((side, box), ()), down=self._down) for side in "io")
        after = f"<TD>{outs}</TD>" if outs else ""
        if self._down:
            rows = [row for row in (f"<TD>{ins}</TD>" if ins else "", words, after) if row]
            rows[0] = f'<TD ROWSPAN="{len(rows)}" {stripe}></TD>{rows[0]}'
        else:  # the stripe holds the input ports
            rows = [f"<TD {stripe}>{ins}</TD>{words}{after}"]
        border = self._border(box)
        table = f'BORDER="{border["penwidth"]}" {_PLAIN} BGCOLOR="{color["card"]}" COLOR="{border["color"]}"'
        label = f"<<TABLE {table}>{''.join(f'<TR>{row}</TR>' for row in rows)}</TABLE>>"
        full = [f"{op} {note}", outline.graph.names[box.id], *(f"{key} {value}" for key, value in pairs)]
        dot.node(str(box), label=label, tooltip=_tooltip(*full, *self._warnings(box)))

    def _draw_closed_scope(self, dot: Any, box: Box) -> None:
        title, note, lines = self._outline.scope_text(box.id)
        style = {"shape": "box", "style": "rounded,filled", "margin": "0.13,0.07", "height": "0.2"}
        style |= {"peripheries": "2" if self._outline.tree.scope_repeat[box.id] > 1 else "1", **self._border(box)}
        label = f"<{_table([self._heading(title, note, box), _small(_text(lines[0]), self._color['dim'])])}>"
        tooltip = _tooltip(f"{title} {note}", *lines, *self._warnings(box))
        dot.node(str(box), label=label, tooltip=tooltip, fillcolor=self._color["scope0"], **style)

    def _draw_pill(self, dot: Any, box: Box) -> None:
        """Draw an input or output of the graph, or of an open body or call."""
        color, value = self._color, int(self._outline.graph.outputs[box.id]) if box.kind == "output" else box.id
        name, kind = self._outline.value_text(value)
        sub = f"{_SPACE} {_text(kind)}" if kind else ""
        lit = value in self._outline.accents
        style = {"shape": "box", "style": "rounded,filled", "margin": "0.17,0.04", "height": "0.33", "width": "0.4"}
        style |= {"color": color["accent" if lit else "text"], "penwidth": "2.6" if lit else "1"}
        label = f'<<FONT POINT-SIZE="11.5" COLOR="{color["background"]}"><B>{_text(name, 60)}</B>{sub}</FONT>>'
        dot.node(str(box), label=label, tooltip=_tooltip(name, kind), fillcolor=color["text"], **style)

    def _draw_names(self, dot: Any, tensors: Mapping[str, int]) -> None:
        """Draw tensors, by identifier, as their names: at stubs, or where no node produces them."""
        for identifier, value in tensors.items():
            name, kind = self._outline.value_text(value)
            bad = self._outline.of_value(value).kind == "missing"
            color = self._color["bad" if bad else "accent" if value in self._outline.accents else "dim"]
            dot.node(identifier, label=f"<{_small(_text(name, 24) or '?', color)}>", tooltip=_tooltip(name, kind))

    def _draw_edges(self) -> None:
        labels: set[int] = set()
        for value, source, target, is_outer in self._edges:
            many, starts, first = value in self._many, source.kind != "missing", value not in labels
            labels.add(value)
            is_lit = value in self._outline.accents
            style = {"style": "dashed"} if is_outer else {}
            if is_lit or not starts:
                color = self._color["accent" if is_lit else "bad"]
                style |= {"color": color, "fontcolor": color, "penwidth": "2.4" if is_lit else "1"}
            name, kind = self._outline.value_text(value, short=True)
            tooltip = _tooltip(name, kind)
            if first and many and starts:
                tail = self._end("o", value, source)
                self.dot.edge(tail, f"stub{value}", tooltip=tooltip, **style | {"arrowhead": "none"})
            elif first and not many and not starts:
                self._draw_names(self.dot, {str(source): value})
            label = None
            if first and not many:  # type and name only at the first reader
                words = _text(kind, 40)
                label = f"<{_SPACE}{f'<B>{words}</B>' if is_lit else words}>" if words else None
            tail = f"stub{value}_{target}" if many else self._end("o", value, source)
            self.dot.edge(tail, self._end("i", value, target), label=label, tooltip=tooltip, **style)

    def _end(self, side: str, value: int, box: Box) -> str:
        """Return the end of an edge: a box with its side, and a port where that side has several edges."""
        if box.kind not in ("node", "input", "output", "result"):
            return str(box)
        place = self._ports.get((side, box), {}).get(value)
        port = "" if place is None else f":{side}{place}"
        return f"{box}{port}:{({'i': 'n', 'o': 's'} if self._down else {'i': 'w', 'o': 'e'})[side]}"

    def _border(self, box: Box) -> dict[str, str]:
        lit = box in self._lit
        color = "accent" if lit else "warn" if self._warnings(box) and not self._outline.is_open(box) else "line"
        return {"color": self._color[color], "penwidth": "2" if lit else "1"}

    def _warnings(self, box: Box) -> list[str]:
        return [f"⚠ {message}" for message in self._problems.get(box, ())[:5]]

    def _heading(self, title: str, note: str, box: Box | None = None) -> str:
        after = f"{_SPACE} {_small(_text(note), self._color['dim'])}" if note else ""
        sign = f'{_SPACE} <FONT COLOR="{self._color["warn"]}">⚠</FONT>' if box in self._problems else ""
        return f"<B>{_text(title) or _SPACE}</B>{after}{sign}"


def _cells(side: str, values: Collection[int], *, down: bool) -> str:
    """Return a table of invisible ports along a side of a node; empty without values."""
    size, between = ('HEIGHT="1"', "") if down else ('WIDTH="5"', "</TR><TR>")
    cells = [f'<TD PORT="{side}{place}" {size}></TD>' for place in range(len(values))]
    return f'<TABLE BORDER="0" {_PLAIN}><TR>{between.join(cells)}</TR></TABLE>' if cells else ""


def _table(rows: Iterable[str]) -> str:
    cells = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="0">{cells}</TABLE>'


def _small(words: str, color: str = "") -> str:
    attribute = f' COLOR="{color}"' if color else ""
    return f'<FONT POINT-SIZE="10.5"{attribute}>{words or _SPACE}</FONT>'


def _text(words: str, limit: int = 40) -> str:
    """Return text for an HTML label: one line, no control characters, escaped."""
    return html.escape(_CONTROL.sub(" ", shortened(words, limit))).replace("\\", _BACKSLASH)


def _tooltip(*texts: str) -> str:
    """Return lines of text for any other attribute, in which dot interprets entities."""
    lines = "\n".join(texts).strip().split("\n")
    text = "\n".join([_CONTROL.sub(" ", shortened(line, 1500)) for line in lines if line][:12])
    return str(graphviz.escape(text.replace("&", "&amp;").replace("\\", _BACKSLASH)))
