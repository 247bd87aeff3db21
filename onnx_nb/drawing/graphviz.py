"""The graph as DOT, for papers and for people who edit it: what the widget shows, laid out by Graphviz.

Open scopes are clusters, everything else is a node. Names come from files that are not trusted: none is ever an
identifier, all text is escaped, and whole names are in tooltips.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import graphviz

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.drawing.boxes import (
    Box,
    Boxes,
    Edge,
    Label,
    Pair,
    Sheet,
    edge_text,
    elide,
    node_label,
    pill_label,
    scope_label,
    type_text,
)

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import ModelLike
    from onnx_nb.analysis.submodel.extraction import ExtractionPlan

BOX_LIMIT = 2000
"""Of more boxes than this dot would hardly find an end."""

MANY = 8
"""A tensor with more readers is drawn as stubs with its name: dot hardly ends if such lines pass a whole model."""

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
    """Draw a model as DOT.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed and no weight is read.
    open
        Paths of the scopes to open, with those around them; ``*`` and ``?`` stand for any characters, so that ``["*"]``
        opens everything and ``[]`` nothing. By default what the widget opens at first: everything in a graph of at most
        24 nodes, else from the outside in as long as that gives at most 60 boxes.
    direction
        Where the data flows to: ``"down"`` or ``"right"``.
    theme
        ``"light"`` or ``"dark"``, in the widget's colors.
    highlight
        Names of tensors, nodes or scopes to light up. What lies in a closed scope lights up that scope.

    Returns
    -------
    graphviz.Digraph
        Its ``source`` is the text, to edit or save. It shows itself in a cell, and ``render`` writes a file: these
        need the program ``dot``, without which graphviz raises ``ExecutableNotFound``.

    Raises
    ------
    OnnxNbError
        If a scope or a name is not in the model, or if the picture would have more than 2,000 boxes.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { h = Relu(x) y = Add(h, x) }'
    >>> drawn = to_graphviz(onnx.parser.parse_model(text), highlight=["h"])
    >>> [line.split(" [")[0].strip() for line in drawn.source.splitlines() if "->" in line]
    ['input0:s -> node0:n', 'node0:s -> node1:i0:n', 'input0:s -> node1:i1:n', 'node1:s -> output0:n']
    """
    sheet = Sheet(columns(model))
    marks = _Marks()
    for name in [highlight] if isinstance(highlight, str) else highlight:
        marks.light(sheet, *sheet.find(name))
    opened = sheet.first_opening() if open is None else sheet.matching(open)
    return _Drawing(sheet, opened, marks, direction, theme).made


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
    """Draw a model as a widget shows it.

    Parameters
    ----------
    model
        Any `ModelLike`.
    view, selection, inputs, outputs
        As in the traits of `ModelGraph`. What the model does not have is left out.
    plan
        The planned extraction: what it would take glows, missing inputs are red, redundant ones gray.
    direction, theme
        As for `to_graphviz`.

    Raises
    ------
    OnnxNbError
        If the picture would have more than 2,000 boxes.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Abs(x) }'
    >>> drawn = view_to_graphviz(onnx.parser.parse_model(text), {}, inputs=["x"])
    >>> "in &#160;scalar f32" in drawn.source
    True
    """
    sheet = Sheet(columns(model))
    marks = _Marks()
    for chosen in selection:
        kind, number = str(chosen.get("kind")), chosen.get("id")
        # a node need not have a name
        there = isinstance(number, int) and 0 <= number < sheet.sizes.get(kind, 0)
        at = number if there else sheet.named(kind).get(str(chosen.get("name")))
        if isinstance(at, int):
            marks.light(sheet, kind, at)
    marks.cut(sheet, inputs, outputs)
    if plan is not None:
        marks.plan(sheet, plan)
    opened = sheet.first_opening() if view.get("open") is None else sheet.at_paths(view["open"])
    return _Drawing(sheet, opened, marks, direction, theme).made


@dataclass
class _Marks:
    """What is lit up."""

    nodes: set[int] = field(default_factory=set)
    groups: set[int] = field(default_factory=set)
    values: dict[int, str] = field(default_factory=dict)
    """Value → how it is drawn: lit, in, out, glow, missing or redundant."""

    def light(self, sheet: Sheet, kind: str, number: int) -> None:
        """Light up a node, a scope, or a tensor with what makes and reads it."""
        if kind == "node":
            self.nodes.add(number)
        elif kind == "scope":
            self.groups.add(number)
        else:
            self.values[number] = "lit"
            maker = int(sheet.producer[number])
            self.nodes.update(sheet.readers(number), [maker] if maker >= 0 else [])

    def cut(self, sheet: Sheet, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        """Mark what was chosen for an extraction."""
        numbers = sheet.named("tensor")
        for how, names in (("in", inputs), ("out", outputs)):
            self.values.update({numbers[name]: how for name in names if name in numbers})

    def plan(self, sheet: Sheet, plan: ExtractionPlan) -> None:
        """Let glow what an extraction would take, and mark what it misses."""
        numbers = sheet.named("tensor")
        taken = plan.nodes.tolist()
        self.nodes.update(taken)
        for node in taken:
            for value in sheet.outputs(node):
                self.values.setdefault(value, "glow")
        for missing in plan.missing:
            self.values[numbers[missing.name]] = "missing"
        for name in plan.redundant:
            if name in numbers:
                self.values[numbers[name]] = "redundant"


@dataclass(frozen=True)
class _Look:
    """The colors of ``frontend/style/base.css``, of which some are mixed of others there and here."""

    background: str
    text: str
    accent: str
    bad: str
    warn: str
    tint: str
    shares: tuple[float, float, float, float, float, float]
    """Of tint in lines, cards and the two scopes, of text in dim text and edges; the rest is background."""
    category: Mapping[str, str]

    @property
    def line(self) -> str:
        return _mixed(self.tint, self.background, self.shares[0])

    @property
    def card(self) -> str:
        return _mixed(self.tint, self.background, self.shares[1])

    @property
    def scopes(self) -> tuple[str, str]:
        return _mixed(self.tint, self.background, self.shares[2]), _mixed(self.tint, self.background, self.shares[3])

    @property
    def dim(self) -> str:
        return _mixed(self.text, self.background, self.shares[4])

    @property
    def edge(self) -> str:
        return _mixed(self.text, self.background, self.shares[5])


def _mixed(a: str, b: str, share: float) -> str:
    """Mix two colors as CSS's color-mix in sRGB does.

    >>> _mixed("#000000", "#ffffff", 0.25)
    '#bfbfbf'
    """
    parts = ((int(a[at : at + 2], 16), int(b[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(x * share + y * (1 - share)):02x}" for x, y in parts)


_LOOKS = {
    "light": _Look(
        background="#ffffff",
        text="#1f2328",
        accent="#0b6bcb",
        bad="#c62828",
        warn="#9a6700",
        tint="#45698f",
        shares=(0.24, 0, 0.06, 0.10, 0.72, 0.44),
        category={
            "linear": "#0072b2",
            "activation": "#d55e00",
            "normalize": "#009e73",
            "arithmetic": "#7a8794",
            "shape": "#b3669b",
            "pool": "#3f9bd1",
            "cast": "#d99000",
            "control": "#5b4fa0",
            "random": "#8a7a1f",
            "input": "#4a5560",
            "other": "#a0a8b0",
        },
    ),
    "dark": _Look(
        background="#16191d",
        text="#e4e8ec",
        accent="#58a6ff",
        bad="#ff7b72",
        warn="#e3b341",
        tint="#9dbbdb",
        shares=(0.20, 0.09, 0.035, 0.065, 0.66, 0.42),
        category={
            "linear": "#2f93d6",
            "activation": "#e8742c",
            "normalize": "#22b389",
            "arithmetic": "#8996a3",
            "shape": "#c67fb0",
            "pool": "#79c2ee",
            "cast": "#e5a428",
            "control": "#978be0",
            "random": "#bdaa48",
            "input": "#9aa5b0",
            "other": "#6d7782",
        },
    ),
}
_FONT = "Helvetica,Arial,sans-serif"
_PLAIN = 'BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"'
_SPACE = "&#160;"
_BACKSLASH = "\\\u2060"
"""With a word joiner, which is invisible: dot puts a node's own name for a backslash and N, however it is escaped."""


class _Drawing:
    """Writes one graph."""

    def __init__(self, sheet: Sheet, opened: set[int], marks: _Marks, direction: str, theme: str) -> None:
        if direction not in ("down", "right"):
            raise OnnxNbError(f"there is no direction {direction!r}.", advice="It is 'down' or 'right'.")
        if theme not in _LOOKS:
            raise OnnxNbError(f"there is no theme {theme!r}.", advice="It is 'light' or 'dark'.")
        self._sheet, self._marks, self._look, self._down = sheet, marks, _LOOKS[theme], direction == "down"
        self._boxes = Boxes(sheet, opened)
        count = self._boxes.count()
        if count > BOX_LIMIT:
            raise OnnxNbError(
                f"the picture would have {count:,} boxes; of more than {BOX_LIMIT:,} dot hardly finds an end.",
                advice="Close scopes: name the few to open, as in open=['encoder/layer.0'], or none with open=[].",
            )
        self._edges = self._boxes.edges()
        readers = Counter(edge.value for edge in self._edges)
        self._many = {value for value, count in readers.items() if count > MANY}
        self._stubs: dict[Box, dict[str, int]] = {}
        for edge in self._edges:
            if edge.value in self._many:
                self._stubs.setdefault(edge.target, {})[_stub(edge.value, edge.target)] = edge.value
                self._stubs.setdefault(edge.source, {})[_stub(edge.value)] = edge.value
        self._ends = {end for edge in self._edges for end in (edge.source, edge.target)}
        self._ports = self._ports_of_nodes()
        self._lit = {self._boxes.of_node(node) for node in marks.nodes} | {
            Box("scope", self._boxes.front[group] if self._boxes.front[group] >= 0 else group) for group in marks.groups
        }
        self._faulty = {self._boxes.of_node(node) for node in sheet.faulty()}
        self.made = graphviz.Digraph("model", graph_attr=self._graph(), node_attr=self._node(), edge_attr=self._edge())
        if count:
            self._fill(self.made, 0, 0)
        else:
            self.made.node("empty", label="This model has no nodes.", fontcolor=self._look.dim)
        self._draw_edges()

    def _graph(self) -> dict[str, str]:
        name = str(self._sheet.meta["name"])
        return {
            "bgcolor": self._look.background,
            "fontname": _FONT,
            "nodesep": "0.3",
            "pad": "0.15",
            "rankdir": "TB" if self._down else "LR",
            "ranksep": "0.32" if self._down else "0.4",
            "tooltip": _tooltip(name),
        }

    def _node(self) -> dict[str, str]:
        look = self._look
        return {"shape": "plain", "fontname": _FONT, "fontsize": "12", "fontcolor": look.text, "color": look.line}

    def _edge(self) -> dict[str, str]:
        look = self._look
        return {
            "arrowhead": "vee",
            "arrowsize": "0.6",
            "color": look.edge,
            "fontcolor": look.dim,
            "fontname": _FONT,
            "fontsize": "10",
        }

    def _fill(self, dot: Any, group: int, depth: int) -> str:
        """Draw what lies in an open group; give the identifier of the first box."""
        sheet, first = self._sheet, ""
        owner = sheet.owner(group)
        enter = Box("enter", owner)
        if enter in self._ends:
            self._draw(dot, enter)
        for box in self._boxes.inside(group):
            if box.kind == "scope" and self._boxes.front[box.id] < 0:
                inner = self._open(dot, box.id, depth)
            else:
                inner = _id(box)
                self._draw(dot, box)
            first = first or inner
        if not first:
            first = f"empty{group}"
            dot.node(first, label="", shape="point", style="invis")
        if enter in self._ends:
            dot.edge(_id(enter), first, style="invis")
        return first

    def _open(self, dot: Any, group: int, depth: int) -> str:
        label, look = scope_label(self._sheet, group), self._look
        lit = Box("scope", group) in self._lit
        cluster = graphviz.Digraph(
            f"cluster{group}",
            graph_attr={
                "label": f"<{_heading(label, look)}>",
                "labeljust": "l",
                "style": "rounded,filled",
                "fillcolor": look.scopes[depth % 2],
                "color": look.accent if lit else look.line,
                "penwidth": "2" if lit else "1",
                "fontcolor": look.text,
                "fontsize": "12",
                "margin": "12",
                "tooltip": _tooltip(label.full),
            },
        )
        first = self._fill(cluster, group, depth + 1)
        dot.subgraph(cluster)
        return first

    def _draw(self, dot: Any, box: Box) -> None:
        if box.kind == "node":
            self._draw_node(dot, box)
        elif box.kind == "scope":
            self._draw_scope(dot, box)
        elif box.kind == "enter":
            # where values enter a node that shows its bodies
            dot.node(_id(box), label="", shape="point", width="0.06", color=self._look.edge)
        else:
            self._draw_pill(dot, box)
        for name, value in self._stubs.get(box, {}).items():
            self._draw_name(dot, name, value)

    def _draw_node(self, dot: Any, box: Box) -> None:
        sheet, look = self._sheet, self._look
        label = node_label(sheet, box.id)
        category = sheet.meta["categories"][int(sheet.column["op_category"][sheet.column["node_op"][box.id]])]
        words = _words(_heading(label, look, warning=box in self._faulty), label.lines, look)
        lit, faulty = box in self._lit, box in self._faulty
        table = (
            f'<TABLE BORDER="{2 if lit else 1}" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"'
            f' BGCOLOR="{look.card}" COLOR="{look.accent if lit else look.warn if faulty else look.line}">'
            f"{self._with_ports(box, words, look.category.get(category, look.category['other']))}</TABLE>"
        )
        dot.node(_id(box), label=f"<{table}>", tooltip=_tooltip(label.full + self._faults(box)))

    def _with_ports(self, box: Box, words: str, color: str) -> str:
        """Put the words beside the stripe, and rows of ports before and behind them where there are several."""
        ins, outs = self._ports.get(("i", box), ()), self._ports.get(("o", box), ())
        if self._down:
            cells = [cell for cell in (_row("i", ins), f'<TD CELLPADDING="4">{words}</TD>', _row("o", outs)) if cell]
            stripe = f'<TD WIDTH="5" ROWSPAN="{len(cells)}" BGCOLOR="{color}"></TD>'
            return "".join(f"<TR>{stripe if not at else ''}{cell}</TR>" for at, cell in enumerate(cells))
        # the stripe itself holds the ports of what comes in
        stripe = f'<TD WIDTH="5" BGCOLOR="{color}">{_column("i", ins)}</TD>'
        after = f"<TD>{_column('o', outs)}</TD>" if outs else ""
        return f'<TR>{stripe}<TD CELLPADDING="4">{words}</TD>{after}</TR>'

    def _draw_scope(self, dot: Any, box: Box) -> None:
        look, label = self._look, scope_label(self._sheet, box.id)
        lit, faulty = box in self._lit, box in self._faulty
        words = _words(_heading(label, look, warning=faulty), label.lines, look, dim=True)
        dot.node(
            _id(box),
            label=f"<{words}>",
            shape="box",
            style="rounded,filled",
            fillcolor=look.scopes[0],
            color=look.accent if lit else look.warn if faulty else look.line,
            penwidth="2" if lit else "1",
            peripheries="2" if int(self._sheet.column["scope_repeat"][box.id]) > 1 else "1",
            margin="0.13,0.07",
            height="0.2",
            tooltip=_tooltip(label.full + self._faults(box)),
        )

    def _draw_pill(self, dot: Any, box: Box) -> None:
        look = self._look
        value = int(self._sheet.column["graph_outputs"][box.id]) if box.kind == "output" else box.id
        label = pill_label(self._sheet, value)
        sub = f"{_SPACE} {_text(label.sub)}" if label.sub else ""
        text = f'<FONT POINT-SIZE="11.5" COLOR="{look.background}"><B>{_text(label.title)}</B>{sub}</FONT>'
        lit = self._marks.values.get(value) in ("lit", "in", "out")
        dot.node(
            _id(box),
            label=f"<{text}>",
            shape="box",
            style="rounded,filled",
            fillcolor=look.text,
            color=look.accent if lit else look.text,
            penwidth="2.6" if lit else "1",
            margin="0.17,0.04",
            height="0.33",
            width="0.4",
            tooltip=_tooltip(label.full),
        )

    def _faults(self, box: Box) -> str:
        """Return what is wrong in a box."""
        sheet, lines = self._sheet, []
        for fault in sheet.meta["faults"] if box in self._faulty else ():
            nodes = [fault["node"]] if fault["node"] >= 0 else []
            if not nodes and fault["value"] >= 0:
                maker = int(sheet.producer[fault["value"]])
                nodes = [maker] if maker >= 0 else sheet.readers(fault["value"])
            if any(self._boxes.of_node(node) == box for node in nodes):
                lines.append(f"\n⚠ {fault['message']}")
        return "".join(lines[:5])

    def _draw_edges(self) -> None:
        named: set[int] = set()
        for edge in self._edges:
            how = self._marks.values.get(edge.value, "")
            first, many = edge.value not in named, edge.value in self._many
            named.add(edge.value)
            if first and many and edge.source.kind != "missing":
                style = self._styled(edge, how) | {"arrowhead": "none"}
                self._line(edge.value, self._end("o", edge, edge.source), _stub(edge.value), style)
            elif first and not many and edge.source.kind == "missing":
                self._draw_name(self.made, _id(edge.source), edge.value)
            # the words once a tensor, where it is read first
            words = self._words_of(edge.value, how) if first and not many else ""
            tail = _stub(edge.value, edge.target) if many else self._end("o", edge, edge.source)
            self._line(edge.value, tail, self._end("i", edge, edge.target), self._styled(edge, how), words)

    def _line(self, value: int, tail: str, head: str, style: Mapping[str, str], words: str = "") -> None:
        tooltip = _tooltip(f"{self._sheet.text('value_name', value)}\n{type_text(self._sheet, value)}")
        self.made.edge(tail, head, label=f"<{_SPACE}{words}>" if words else None, tooltip=tooltip, **style)

    def _draw_name(self, dot: Any, name: str, value: int) -> None:
        """Draw a tensor by its name alone: at a stub, or where nobody makes it."""
        look, how = self._look, self._marks.values.get(value, "")
        source = self._boxes.of_value(value)
        bad = how == "missing" or (source is not None and source.kind == "missing")
        color = look.bad if bad else look.accent if how in ("lit", "in", "out") else look.dim
        text = _text(elide(self._sheet.text("value_name", value), 110, 10, middle=True)) or "?"
        label = f'<<FONT POINT-SIZE="10" COLOR="{color}">{text}</FONT>>'
        dot.node(name, label=label, tooltip=_tooltip(pill_label(self._sheet, value).full))

    def _words_of(self, value: int, how: str) -> str:
        if how == "missing":
            return _text(elide(self._sheet.text("value_name", value), 170, 10, middle=True))
        words = _text(edge_text(self._sheet, value))
        if how in ("in", "out"):
            words = f"{how} {_SPACE}{words}"
        return f"<B>{words}</B>" if words and how in ("lit", "in", "out") else words

    def _styled(self, edge: Edge, how: str) -> dict[str, str]:
        look = self._look
        dashed = edge.captured or how in ("missing", "redundant")
        style = {"style": "dashed"} if dashed else {}
        if how == "missing" or (not how and edge.source.kind == "missing"):
            return style | {"color": look.bad, "fontcolor": look.bad, "penwidth": "2" if how else "1"}
        if how in ("lit", "in", "out") or (how == "glow" and edge.target in self._lit):
            return style | {
                "color": look.accent,
                "fontcolor": look.accent,
                "penwidth": "1.6" if how == "glow" else "2.4",
            }
        return style

    def _end(self, side: str, edge: Edge, box: Box) -> str:
        """Name the end of an edge: a box, or one of its ports."""
        if box.kind not in ("node", "input", "output", "result"):
            return _id(box)
        compass = {"i": "n" if self._down else "w", "o": "s" if self._down else "e"}[side]
        values = self._ports.get((side, box), ())
        port = f":{side}{values.index(edge.value)}" if edge.value in values else ""
        return f"{_id(box)}{port}:{compass}"

    def _ports_of_nodes(self) -> dict[tuple[str, Box], list[int]]:
        """For each side of a node the values that need ports: where there are several, in order of the node's own."""
        found: dict[tuple[str, Box], set[int]] = {}
        for edge in self._edges:
            found.setdefault(("o", edge.source), set()).add(edge.value)
            found.setdefault(("i", edge.target), set()).add(edge.value)
        return {
            (side, box): [value for value in dict.fromkeys(self._slots(side, box)) if value in values]
            for (side, box), values in found.items()
            if len(values) > 1 and box.kind == "node"
        }

    def _slots(self, side: str, box: Box) -> list[int]:
        return self._sheet.inputs(box.id) if side == "i" else self._sheet.outputs(box.id)


def _id(box: Box) -> str:
    return f"{box.kind}{box.id}"


def _stub(value: int, reader: Box | None = None) -> str:
    return f"stub{value}_{_id(reader)}" if reader else f"stub{value}"


def _row(side: str, values: Sequence[int]) -> str:
    """Return a row of invisible ports across a node, nothing for none."""
    cells = "".join(f'<TD PORT="{side}{place}" HEIGHT="1"></TD>' for place in range(len(values)))
    return f"<TD><TABLE {_PLAIN}><TR>{cells}</TR></TABLE></TD>" if cells else ""


def _column(side: str, values: Sequence[int]) -> str:
    """Return a column of invisible ports along a side of a node, nothing for none."""
    rows = "".join(f'<TR><TD PORT="{side}{place}" WIDTH="5"></TD></TR>' for place in range(len(values)))
    return f"<TABLE {_PLAIN}>{rows}</TABLE>" if rows else ""


def _heading(label: Label, look: _Look, *, warning: bool = False) -> str:
    sub = f'{_SPACE} <FONT POINT-SIZE="10.5" COLOR="{look.dim}">{_text(label.sub)}</FONT>' if label.sub else ""
    sign = f'{_SPACE} <FONT COLOR="{look.warn}">⚠</FONT>' if warning else ""
    return f"<B>{_text(label.title) or _SPACE}</B>{sub}{sign}"


def _words(heading: str, lines: Iterable[Iterable[Pair]], look: _Look, *, dim: bool = False) -> str:
    """Set a heading and the rows under it."""
    color = f' COLOR="{look.dim}"' if dim else ""
    rows = [heading]
    for line in lines:
        words = f"{_SPACE} ".join(
            (f'<I><FONT COLOR="{look.dim}">{_text(key)}</FONT></I> ' if key else "") + _text(value)
            for key, value in line
        )
        rows.append(f'<FONT POINT-SIZE="10.5"{color}>{words or _SPACE}</FONT>')
    cells = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="0">{cells}</TABLE>'


def _text(words: str) -> str:
    r"""Escape text for a label in HTML.

    >>> _text('<b>"&\\N')
    '&lt;b&gt;&quot;&amp;\\\u2060N'
    """
    return html.escape(words).replace("\\", _BACKSLASH)


def _tooltip(words: str) -> str:
    """Escape text for any other attribute; dot reads entities in it."""
    lines = [elide(line, 1500, 10, middle=True) for line in words.strip().split("\n")[:12]]
    text = "\n".join(lines).replace("&", "&amp;").replace("\\", _BACKSLASH)
    plain: str = graphviz.escape(text)
    return plain
