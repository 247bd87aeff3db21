"""A model's graph as DOT, for papers and for people who edit it; Graphviz measures the text and finds the layout.

An open scope is a cluster, a closed one a box. An edge runs from the box that makes a tensor to each box that reads it,
across the borders of clusters. Names come from untrusted files: no name is an identifier, all text is escaped, and full
names are in the tooltips.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import graphviz

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, shortened
from onnx_nb.analysis.graph.operators import CATEGORIES, category
from onnx_nb.analysis.scopes.scopes import BODY, ROWS
from onnx_nb.analysis.view.graph_columns import CONSTANT, DIFFERS, columns
from onnx_nb.drawing.outline import Box, Boxes, Edge, Outline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onnx_nb.analysis.model.model import ModelLike
    from onnx_nb.analysis.submodel.extraction import ExtractionPlan

BOX_LIMIT = 2000
"""Boxes in one drawing at most: dot may not finish with more."""

MANY = 8
"""Readers of a tensor above which named stubs replace its lines: dot may not finish with lines across a whole model."""

PAIRS = 4
"""Weights and attributes listed in a node's box."""

Direction = Literal["down", "right"]
Theme = Literal["light", "dark"]


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
    outline = Outline(model)
    marks = _Marks(outline)
    for name in [highlight] if isinstance(highlight, str) else highlight:
        marks.highlight(*outline.find(name))
    opened = outline.first_opening() if open is None else outline.matching(open)
    return _Drawing(outline, opened, marks, direction, theme).dot


def view_to_graphviz(
    model: ModelLike,
    view: Mapping[str, Any],
    *,
    selection: Sequence[Mapping[str, Any]] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    plan: ExtractionPlan | None = None,
    direction: Direction = "down",
    theme: Theme = "light",
) -> graphviz.Digraph:
    """Return a drawing of a model as a widget shows it.

    Parameters
    ----------
    model
        Any `ModelLike`.
    view, selection, inputs, outputs
        As in the traits of `ModelGraph`. Names that the model does not have are ignored.
    plan
        The planned extraction: its nodes are highlighted, missing inputs are red, redundant ones dashed.
    direction, theme
        As for `to_graphviz`.

    Raises
    ------
    OnnxNbError
        If the drawing would have more than 2,000 boxes.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
    >>> drawn = view_to_graphviz(onnx.parser.parse_model(text), {}, inputs=["x"])
    >>> "in &#160;scalar f32" in drawn.source
    True
    """
    outline = Outline(model)
    marks = _Marks(outline)
    for each in selection:
        names, number = outline.numbers.get(str(each.get("kind")), {}), each.get("id")
        if not (isinstance(number, int) and 0 <= number < outline.sizes.get(str(each.get("kind")), 0)):
            number = names.get(str(each.get("name")))  # nodes without a name have a number only
        if number is not None:
            marks.highlight(str(each["kind"]), number)
    tensors = outline.numbers["tensor"]
    for style, chosen in (("in", inputs), ("out", outputs)):
        marks.values.update({tensors[name]: style for name in chosen if name in tensors})
    if plan is not None:
        marks.plan(plan)
    opened = outline.first_opening() if view.get("open") is None else outline.at_paths(view["open"])
    return _Drawing(outline, opened, marks, direction, theme).dot


class _Marks:
    """What a drawing highlights."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self.nodes: set[int] = set()
        self.scopes: set[int] = set()
        self.values: dict[int, str] = {}
        """Value → its style: lit, in, out, taken, missing or redundant."""

    def highlight(self, kind: str, number: int) -> None:
        """Highlight a node, a scope, or a tensor with its producer and its readers."""
        if kind == "node":
            self.nodes.add(number)
        elif kind == "scope":
            self.scopes.add(number)
        else:
            self.values[number] = "lit"
            self.nodes.update(self._outline.ends(number))

    def plan(self, plan: ExtractionPlan) -> None:
        """Highlight the nodes that an extraction would take, and mark the inputs that it misses."""
        tensors, graph = self._outline.numbers["tensor"], self._outline.graph
        taken = plan.nodes.tolist()
        self.nodes.update(taken)
        for node in taken:
            for value in graph.node_outputs(node).tolist():
                self.values.setdefault(value, "taken")
        self.values.update({tensors[missing.name]: "missing" for missing in plan.missing})
        self.values.update({tensors[name]: "redundant" for name in plan.redundant if name in tensors})


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
_PLAIN = 'BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"'
_SPACE = "&#160;"
_BACKSLASH = "\\\u2060"
"""A backslash and an invisible word joiner: dot replaces "\\N" by the node's name, however it is escaped."""
_CONTROL = re.compile("[\x00-\x1f\x7f\u2028\u2029\ufffe\uffff\ud800-\udfff]+")


class _Words:
    """The texts of boxes: those of the browser, so its columns are read."""

    def __init__(self, outline: Outline) -> None:
        made = columns(outline.graph.model)
        self._outline, self._column, self._strings = outline, made.arrays, made.strings()

    def _string(self, name: str, row: int) -> str:
        return self._strings[int(self._column[name][row])]

    def node(self, node: int) -> tuple[str, str, list[tuple[str, str]]]:
        """Return a node's operator, a note after it (its domain), and its weights and attributes."""
        op, domain = self._outline.operator(node)
        note = f"differs {domain}" if self._column["node_flags"][node] & DIFFERS else domain
        attributes = filter(None, self._string("node_attributes", node).split(" · "))
        pairs = [
            *self._constants(node),
            *((key, value) for key, _, value in (each.partition(" ") for each in attributes)),
        ]
        return op, note.strip(), pairs

    def _constants(self, node: int) -> Iterator[tuple[str, str]]:
        graph = self._outline.graph
        names = self._string("op_inputs", int(graph.op_index[node])).split(",")
        for place, value in enumerate(graph.node_inputs(node).tolist()):
            if value >= 0 and self._column["value_flags"][value] & CONSTANT:
                name = names[place] if place < len(names) else ""
                kind = graph.type_of(value)
                yield name, self._string("value_literal", value) or kind.shape_text or kind.dtype or "constant"

    def scope(self, scope: int) -> tuple[str, str, list[str]]:
        """Return a scope's title, a note after it (class, "×32") and lines: its contents, its path, how it differs."""
        tree, column = self._outline.tree, self._column
        title, note, owner = tree.scope_name[scope], tree.scope_class[scope], int(tree.scope_node[scope])
        if tree.scope_kind[scope] == BODY:
            op = self._outline.operator(owner)[0]
            title, note = op, "" if title == op else title
        repeat, differing = int(tree.scope_repeat[scope]), int(column["scope_differs"][scope])
        if repeat > 1 or tree.scope_kind[scope] in ROWS:
            note += f" ×{repeat}" + (f", {differing} {'differs' if differing == 1 else 'differ'}" if differing else "")
        elif differing:
            note += " differs"
        nodes, parameters = int(column["scope_nodes"][scope]), float(column["scope_params"][scope])
        share = repeat if repeat > 1 and nodes % repeat == 0 and tree.scope_kind[scope] in ROWS else 1
        contents = count_text(nodes // share, "op") + (" each" if share > 1 else "")
        contents += f" · {count_text(round(parameters / share), 'parameter')}" if parameters else ""
        return title or "…", note.strip(), [contents, tree.scope_path[scope], self._string("scope_difference", scope)]

    def value(self, value: int, *, short: bool = False) -> tuple[str, str]:
        """Return the name and the type of a tensor."""
        kind = self._outline.graph.type_of(value)
        dtype = kind.dtype
        for long, abbreviated in _SHORT if short else ():
            dtype = dtype.replace(long, abbreviated, 1)
        return self._outline.graph.value_names[value], f"{kind.shape_text} {dtype}".strip()


class _Drawing:
    """One drawing: clusters and boxes first, then edges."""

    def __init__(self, outline: Outline, opened: set[int], marks: _Marks, direction: str, theme: str) -> None:
        if direction not in ("down", "right"):
            raise OnnxNbError(f"there is no direction {direction!r}.", advice="Use 'down' or 'right'.")
        if theme not in ("light", "dark"):
            raise OnnxNbError(f"there is no theme {theme!r}.", advice="Use 'light' or 'dark'.")
        self._outline, self._words, self._marks = outline, _Words(outline), marks
        self._color = {name: pair[theme == "dark"] for name, pair in _COLORS.items()}
        self._down = direction == "down"
        self._boxes = boxes = Boxes(outline, opened)
        count = boxes.count()
        if count > BOX_LIMIT:
            raise OnnxNbError(
                f"the drawing would have {count:,} boxes; dot may not finish with more than {BOX_LIMIT:,}.",
                advice="Close scopes: name the few to open, as in open=['encoder/layer.0'], or none with open=[].",
            )
        self._edges = boxes.edges()
        self._many = {value for value, n in Counter(edge.value for edge in self._edges).items() if n > MANY}
        self._stubs: dict[Box, dict[str, int]] = {}
        for value, source, target, _ in (edge for edge in self._edges if edge.value in self._many):
            self._stubs.setdefault(source, {})[_stub(value)] = value
            self._stubs.setdefault(target, {})[_stub(value, target)] = value
        self._ends = {end for edge in self._edges for end in (edge.source, edge.target)}
        self._ports = self._ports_of_nodes()
        self._lit = {boxes.of_node(node) for node in marks.nodes} | {boxes.of_scope(scope) for scope in marks.scopes}
        self._problems: dict[Box, list[str]] = {}
        for node, messages in outline.problems().items():
            self._problems.setdefault(boxes.of_node(node), []).extend(messages)
        color = self._color
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
            if self._boxes.is_open(box):
                inner = self._draw_cluster(dot, box, depth)
            else:
                inner = str(box)
                draw = {"node": self._draw_node, "scope": self._draw_closed_scope}.get(box.kind, self._draw_pill)
                draw(dot, box)
                self._draw_stubs(dot, box)
            first = first or inner
        if not first:
            first = f"empty{scope}"
            dot.node(first, label="", shape="point", style="invis")
        if enter in self._ends:
            self._draw_stubs(dot, enter)
            dot.edge(str(enter), first, style="invis")
        return first

    def _draw_cluster(self, dot: Any, box: Box, depth: int) -> str:
        color, (title, note, lines) = self._color, self._words.scope(box.id)
        style = {"style": "rounded,filled", "labeljust": "l", "margin": "12", "fontsize": "12"}
        style |= {"label": f"<{self._heading(title, note)}>", "fontcolor": color["text"]}
        style |= {"fillcolor": color[f"scope{depth % 2}"], "tooltip": _tooltip("\n".join([f"{title} {note}", *lines]))}
        cluster = graphviz.Digraph(f"cluster{box.id}", graph_attr=style | self._border(box))
        first = self._draw_scope_contents(cluster, box.id, depth + 1)
        dot.subgraph(cluster)
        return first

    def _draw_node(self, dot: Any, box: Box) -> None:
        outline, color = self._outline, self._color
        op, note, pairs = self._words.node(box.id)
        shown = pairs[:PAIRS] + [("", "…")] * (len(pairs) > PAIRS)
        texts = [(f'<I><FONT COLOR="{color["dim"]}">{_text(k)}</FONT></I> ' if k else "") + _text(v) for k, v in shown]
        lines = [f"{_SPACE} ".join(texts[at : at + 2]) for at in range(0, len(texts), 2)]
        text = _table([self._heading(op, note, box), *(_small(line) for line in lines)])
        border = self._border(box)
        cells = self._with_ports(box, text, color[CATEGORIES[category(*outline.operator(box.id))]])
        label = (
            f'<<TABLE BORDER="{border["penwidth"]}" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"'
            f' BGCOLOR="{color["card"]}" COLOR="{border["color"]}">{cells}</TABLE>>'
        )
        full = [f"{op} {note}", outline.graph.names[box.id], *(f"{key} {value}" for key, value in pairs)]
        dot.node(str(box), label=label, tooltip=_tooltip("\n".join([*full, *self._warnings(box)])))

    def _with_ports(self, box: Box, words: str, color: str) -> str:
        """Return the rows of a node's table: a stripe in its color, its words, and ports where it has several."""
        ins, outs = (_cells(side, self._ports.get((side, box), ()), down=self._down) for side in "io")
        if not self._down:  # the stripe holds the input ports
            after = f"<TD>{outs}</TD>" if outs else ""
            return f'<TR><TD WIDTH="5" BGCOLOR="{color}">{ins}</TD><TD CELLPADDING="4">{words}</TD>{after}</TR>'
        rows = (
            [f"<TD>{ins}</TD>"] * bool(ins) + [f'<TD CELLPADDING="4">{words}</TD>'] + [f"<TD>{outs}</TD>"] * bool(outs)
        )
        stripe = f'<TD WIDTH="5" ROWSPAN="{len(rows)}" BGCOLOR="{color}"></TD>'
        return "".join(f"<TR>{'' if at else stripe}{row}</TR>" for at, row in enumerate(rows))

    def _draw_closed_scope(self, dot: Any, box: Box) -> None:
        title, note, lines = self._words.scope(box.id)
        dot.node(
            str(box),
            label=f"<{_table([self._heading(title, note, box), _small(_text(lines[0]), self._color['dim'])])}>",
            shape="box",
            style="rounded,filled",
            fillcolor=self._color["scope0"],
            peripheries="2" if self._outline.tree.scope_repeat[box.id] > 1 else "1",
            margin="0.13,0.07",
            height="0.2",
            tooltip=_tooltip("\n".join([f"{title} {note}", *lines, *self._warnings(box)])),
            **self._border(box),
        )

    def _draw_pill(self, dot: Any, box: Box) -> None:
        """Draw an input or output of the graph, or of an open body or call."""
        color, value = self._color, int(self._outline.graph.outputs[box.id]) if box.kind == "output" else box.id
        name, kind = self._words.value(value)
        sub = f"{_SPACE} {_text(kind)}" if kind else ""
        lit = self._marks.values.get(value) in ("lit", "in", "out")
        dot.node(
            str(box),
            label=f'<<FONT POINT-SIZE="11.5" COLOR="{color["background"]}"><B>{_text(name, 60)}</B>{sub}</FONT>>',
            shape="box",
            style="rounded,filled",
            fillcolor=color["text"],
            color=color["accent" if lit else "text"],
            penwidth="2.6" if lit else "1",
            margin="0.17,0.04",
            height="0.33",
            width="0.4",
            tooltip=_tooltip(f"{name}\n{kind}"),
        )

    def _draw_stubs(self, dot: Any, box: Box) -> None:
        """Draw the names at a box of the tensors with too many readers for lines."""
        for identifier, value in self._stubs.get(box, {}).items():
            self._draw_name(dot, identifier, value)

    def _draw_name(self, dot: Any, identifier: str, value: int) -> None:
        """Draw a tensor as its name: at a stub, or where no node makes it."""
        name, kind = self._words.value(value)
        style = self._marks.values.get(value, "")
        bad = style == "missing" or self._boxes.of_value(value).kind == "missing"
        color = self._color["bad" if bad else "accent" if style in ("lit", "in", "out") else "dim"]
        dot.node(identifier, label=f"<{_small(_text(name, 24) or '?', color)}>", tooltip=_tooltip(f"{name}\n{kind}"))

    def _draw_edges(self) -> None:
        named: set[int] = set()
        for edge in self._edges:
            value, many = edge.value, edge.value in self._many
            made, first = edge.source.kind != "missing", value not in named
            named.add(value)
            if first and many and made:
                style = self._edge_style(edge) | {"arrowhead": "none"}
                self._draw_line(value, self._end("o", value, edge.source), _stub(value), style)
            elif first and not many and not made:
                self._draw_name(self.dot, str(edge.source), value)
            # type and name at the first reader only
            words = self._edge_words(value) if first and not many else ""
            tail = _stub(value, edge.target) if many else self._end("o", value, edge.source)
            self._draw_line(value, tail, self._end("i", value, edge.target), self._edge_style(edge), words)

    def _draw_line(self, value: int, tail: str, head: str, style: Mapping[str, str], words: str = "") -> None:
        tooltip = _tooltip("\n".join(self._words.value(value, short=True)))
        self.dot.edge(tail, head, label=f"<{_SPACE}{words}>" if words else None, tooltip=tooltip, **style)

    def _edge_words(self, value: int) -> str:
        style, (name, kind) = self._marks.values.get(value, ""), self._words.value(value, short=True)
        words = _text(name if style == "missing" else kind, 40)
        words = f"{style} {_SPACE}{words}" if style in ("in", "out") else words
        return f"<B>{words}</B>" if words and style in ("lit", "in", "out") else words

    def _edge_style(self, edge: Edge) -> dict[str, str]:
        style = self._marks.values.get(edge.value, "")
        dashed = {"style": "dashed"} if edge.outer or style in ("missing", "redundant") else {}
        if style == "missing" or (not style and edge.source.kind == "missing"):
            return (
                dashed | dict.fromkeys(("color", "fontcolor"), self._color["bad"]) | {"penwidth": "2" if style else "1"}
            )
        if style in ("lit", "in", "out") or (style == "taken" and edge.target in self._lit):
            width = "1.6" if style == "taken" else "2.4"
            return dashed | dict.fromkeys(("color", "fontcolor"), self._color["accent"]) | {"penwidth": width}
        return dashed

    def _end(self, side: str, value: int, box: Box) -> str:
        """Return the end of an edge: a box with the side it is met at, and a port where it has several."""
        if box.kind not in ("node", "input", "output", "result"):
            return str(box)
        values = self._ports.get((side, box), ())
        port = f":{side}{values.index(value)}" if value in values else ""
        return f"{box}{port}:{({'i': 'n', 'o': 's'} if self._down else {'i': 'w', 'o': 'e'})[side]}"

    def _ports_of_nodes(self) -> dict[tuple[str, Box], list[int]]:
        """Return the values, in the node's own order, at each side of a node with several edges there."""
        found: dict[tuple[str, Box], set[int]] = {}
        for edge in self._edges:
            found.setdefault(("o", edge.source), set()).add(edge.value)
            found.setdefault(("i", edge.target), set()).add(edge.value)
        graph = self._outline.graph
        return {
            (side, box): [value for value in dict.fromkeys(values_of(box.id).tolist()) if value in values]
            for (side, box), values in found.items()
            if len(values) > 1 and box.kind == "node"
            for values_of in [graph.node_inputs if side == "i" else graph.node_outputs]
        }

    def _border(self, box: Box) -> dict[str, str]:
        lit = box in self._lit
        color = "accent" if lit else "warn" if self._warnings(box) and not self._boxes.is_open(box) else "line"
        return {"color": self._color[color], "penwidth": "2" if lit else "1"}

    def _warnings(self, box: Box) -> list[str]:
        return [f"⚠ {message}" for message in self._problems.get(box, ())[:5]]

    def _heading(self, title: str, note: str, box: Box | None = None) -> str:
        after = f"{_SPACE} {_small(_text(note), self._color['dim'])}" if note else ""
        sign = f'{_SPACE} <FONT COLOR="{self._color["warn"]}">⚠</FONT>' if box in self._problems else ""
        return f"<B>{_text(title) or _SPACE}</B>{after}{sign}"


def _stub(value: int, reader: Box | None = None) -> str:
    return f"stub{value}_{reader}" if reader else f"stub{value}"


def _cells(side: str, values: Sequence[int], *, down: bool) -> str:
    """Return a table of invisible ports along a side of a node; empty without values."""
    if not values:
        return ""
    size = 'HEIGHT="1"' if down else 'WIDTH="5"'
    cells = [f'<TD PORT="{side}{place}" {size}></TD>' for place in range(len(values))]
    return f"<TABLE {_PLAIN}><TR>{('' if down else '</TR><TR>').join(cells)}</TR></TABLE>"


def _table(rows: Iterable[str]) -> str:
    cells = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="0">{cells}</TABLE>'


def _small(words: str, color: str = "") -> str:
    colored = f' COLOR="{color}"' if color else ""
    return f'<FONT POINT-SIZE="10.5"{colored}>{words or _SPACE}</FONT>'


def _text(words: str, limit: int = 40) -> str:
    """Return text for an HTML label: one line, no control characters, escaped."""
    return html.escape(_CONTROL.sub(" ", shortened(words, limit))).replace("\\", _BACKSLASH)


def _tooltip(words: str) -> str:
    """Return text for any other attribute, in which dot reads entities."""
    lines = [_CONTROL.sub(" ", shortened(line, 1500)) for line in words.strip().split("\n") if line][:12]
    text = "\n".join(lines).replace("&", "&amp;").replace("\\", _BACKSLASH)
    plain: str = graphviz.escape(text)
    return plain
