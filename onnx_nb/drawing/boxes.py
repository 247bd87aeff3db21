"""Which boxes and edges a graph shows with some of its scopes open, and the words in them, for pictures made here.

The rules are those of the browser: which scopes open at first (``scene/opening.ts``), what then shows
(``scene/scope.ts``), what it says (``scene/labels.ts``). Only edges differ: they run from box to box, through the
borders of open scopes, where the browser draws one piece in each scope.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.graph.algorithms import upward
from onnx_nb.analysis.graph.graph import BODY_INPUT, GRAPH_INPUT
from onnx_nb.analysis.scopes.scopes import BODY, BRANCH, CHUNK, FUNCTION, REPEAT, ROWS, SIBLINGS
from onnx_nb.analysis.view.graph_columns import CONSTANT, DIFFERS, FAULTY, FAULTY_VALUE, FOLDED, Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

FEW, BUDGET, ENOUGH = 24, 60, 20
"""Of so few nodes all is shown at first; else at most so many boxes; with fewer than these a repeat opens, too."""
LONGEST = 300
"""Longer texts are cut before they are measured."""
WIDEST, LINES = 260, 2
"""Pixels across a box at most, and rows under its title."""

Pair = tuple[str, str]
_CONTROL = re.compile("[\x00-\x1f\x7f\u2028\u2029\ufffe\uffff\ud800-\udfff]+")


class Sheet:
    """The columns of a graph with the tables that follow from them, as ``model/columns.ts`` has them."""

    def __init__(self, made: Columns) -> None:
        column = made.arrays
        self.column, self.meta, self.strings = column, made.meta, made.strings()
        self.node_count, self.value_count = len(column["node_op"]), len(column["value_name"])
        self.scope_count = len(column["scope_parent"])
        self.sizes = {"tensor": self.value_count, "node": self.node_count, "scope": self.scope_count}
        self.folded = (column["node_flags"] & FOLDED) != 0
        self.constant = (column["value_flags"] & CONSTANT) != 0
        self.reader = _rows(column["in_ptr"])
        """The node of each input."""
        self.maker = _rows(column["out_ptr"])
        """The node of each output."""
        made_here = column["out_value"] >= 0
        self.producer = np.full(self.value_count, -1, np.int64)
        # of two that make one value the first counts: it is written last
        self.producer[column["out_value"][made_here][::-1]] = self.maker[made_here][::-1]
        self.parent: list[int] = column["scope_parent"].tolist()
        self.kind: list[int] = column["scope_kind"].tolist()
        self.branch: list[int] = []
        """For each group the branch of a body that it is or lies in, −1 in the main graph."""
        for group in range(self.scope_count):
            above = self.branch[self.parent[group]] if group else -1
            self.branch.append(group if self.kind[group] == BRANCH else above)
        self.children: list[list[int]] = [[] for _ in range(self.scope_count)]
        for group in range(1, self.scope_count):
            self.children[self.parent[group]].append(group)
        self._members = np.argsort(column["node_scope"], kind="stable")
        self._member_ptr = np.searchsorted(column["node_scope"][self._members], np.arange(self.scope_count + 1))

    def text(self, name: str, row: int) -> str:
        """Return a row of a column of strings."""
        return self.strings[int(self.column[name][row])]

    def op(self, node: int) -> str:
        """Return the operator of a node."""
        return self.text("op_name", int(self.column["node_op"][node]))

    def inputs(self, node: int) -> list[int]:
        """Return the values that a node reads, −1 for one left out."""
        ptr = self.column["in_ptr"]
        values: list[int] = self.column["in_value"][int(ptr[node]) : int(ptr[node + 1])].tolist()
        return values

    def outputs(self, node: int) -> list[int]:
        """Return the values that a node makes, −1 for one left out."""
        ptr = self.column["out_ptr"]
        values: list[int] = self.column["out_value"][int(ptr[node]) : int(ptr[node + 1])].tolist()
        return values

    def around(self, group: int) -> list[int]:
        """Return a group and those around it, the root last."""
        found = [group]
        while found[-1]:
            found.append(self.parent[found[-1]])
        return found

    def drawn_members(self, group: int) -> list[int]:
        """Return the nodes directly in a group that are boxes: neither folded nor owners of bodies."""
        nodes = self._members[self._member_ptr[group] : self._member_ptr[group + 1]]
        found: list[int] = nodes[~self.folded[nodes] & (self.column["node_body"][nodes] < 0)].tolist()
        return found

    @functools.cached_property
    def homes(self) -> dict[int, int]:
        """For each input of a body that somebody reads the innermost branch that holds all its readers; −1 if none."""
        column = self.column
        asked = (column["in_value"] >= 0) & ~self.folded[self.reader]
        asked[asked] &= column["value_kind"][column["in_value"][asked]] == BODY_INPUT
        found: dict[int, int] = {}
        for node, value in zip(self.reader[asked].tolist(), column["in_value"][asked].tolist(), strict=True):
            here = self.branch[int(column["node_scope"][node])]
            found[value] = self._common(found[value], here) if value in found else here
        return found

    def _common(self, a: int, b: int) -> int:
        while a != b:  # parents have smaller numbers than their children
            if a > b:
                a = self.branch[self.parent[a]]
            else:
                b = self.branch[self.parent[b]]
        return a

    def owner(self, group: int) -> int:
        """Return the node whose bodies a group shows, or that calls the function it shows; −1 for other groups."""
        return int(self.column["scope_node"][group]) if self.kind[group] in (BODY, FUNCTION) else -1

    def items(self, group: int) -> int:
        """Count the boxes directly in a group: groups, nodes, inputs and outputs."""
        count = len(self.children[group]) + len(self.drawn_members(group))
        if group:
            return count + self._pills.get(group, 0) + len(self.results(group))
        return count + len(set(self.column["graph_inputs"].tolist())) + len(self.column["graph_outputs"])

    def results(self, group: int) -> list[int]:
        """Return the outputs of the node whose bodies or call the group is: what is given inside becomes these."""
        owner = self.owner(group)
        made = self.outputs(owner) if owner >= 0 else []
        return [value for value in made if value >= 0 and not self.constant[value]]

    @functools.cached_property
    def _pills(self) -> dict[int, int]:
        homes = list(self.homes.values())
        return {home: homes.count(home) for home in set(homes)}

    def first_opening(self) -> set[int]:
        """Return the groups that the browser opens at first, as ``defaultOpen`` of ``scene/opening.ts``."""
        if self.node_count <= FEW:
            return set(range(self.scope_count))
        opened, boxes = {0}, self.items(0)
        sizes = self.column["scope_nodes"]

        def inside(group: int) -> list[int]:
            return sorted(self.children[group], key=lambda child: (-int(sizes[child]), child))

        def opens(group: int) -> bool:
            nonlocal boxes
            more = self.items(group)
            if boxes + more > BUDGET:
                return False
            opened.add(group)
            boxes += more
            return True

        repeats, gathered = [], []
        level = inside(0)
        while level:
            below = []
            for group in level:
                if self.kind[group] == REPEAT:
                    repeats.append(group)
                elif self.kind[group] == CHUNK and self.column["scope_repeat"][group] <= 1:
                    gathered.append(group)
                elif self.kind[group] != SIBLINGS and opens(group):
                    below += inside(group)
            level = below
        for group in repeats:
            # few boxes so far: one example of a repeated layer tells more than none
            if not (boxes < ENOUGH and opens(group) and self.children[group] and opens(self.children[group][0])):
                continue
            for inner in inside(self.children[group][0]):
                if self.kind[inner] == REPEAT:
                    repeats.append(inner)
                elif boxes < ENOUGH and self.kind[inner] != SIBLINGS:
                    opens(inner)
        for group in gathered:
            if boxes < ENOUGH:
                opens(group)
        return opened

    def at_paths(self, paths: Iterable[str]) -> set[int]:
        """Return the groups that a view's paths name, as "encoder/layer.0#12"; those not there are left out.

        After "*" come those that are closed, as "-encoder/layer.0#12".
        """
        given = list(paths)
        if given[:1] == ["*"]:
            closed = self.at_paths(path.removeprefix("-") for path in given[1:])
            return {0, *(set(range(self.scope_count)) - closed)}
        found = {0}
        for path in given:
            name, mark, number = path.rpartition("#")
            if mark and number.isdecimal() and int(number) < self.scope_count:
                if self.text("scope_path", int(number)) == name:
                    found.add(int(number))
            elif (group := self.named("scope").get(path)) is not None:
                found.add(group)
        return found

    def matching(self, patterns: Iterable[str]) -> set[int]:
        """Return the groups whose paths match any of the patterns, and those around them.

        Raises
        ------
        OnnxNbError
            If no group matches a pattern.
        """
        paths = [self.strings[path] for path in self.column["scope_path"].tolist()]
        found = {0}
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            groups = self.at_paths([pattern]) - {0}
            if not groups:
                names = pattern.replace("[", "[[]")
                # scopes that only fold others have no path of their own
                groups = {g for g, path in enumerate(paths) if pattern == "*" or fnmatch.fnmatchcase(path, names)}
            if not groups:
                raise OnnxNbError(f"no scope is called {quoted(pattern)}.", advice=_nearest(pattern, paths))
            for group in groups:
                found.update(self.around(group))
        return found

    def named(self, kind: str) -> Mapping[str, int]:
        """Return the numbers of all tensors, nodes or scopes (as the kind says) by name; the first of equal names."""
        if kind not in self._named:
            return {}
        if not self._named[kind]:
            column = self.column[{"tensor": "value_name", "node": "node_name", "scope": "scope_path"}[kind]]
            self._named[kind] = {self.strings[s]: row for row, s in reversed(list(enumerate(column.tolist()))) if s}
        return self._named[kind]

    @functools.cached_property
    def _named(self) -> dict[str, dict[str, int]]:
        return {"tensor": {}, "node": {}, "scope": {}}

    def find(self, name: str) -> tuple[str, int]:
        """Return the kind and number of what is called so: a tensor, else a node, else a scope.

        Raises
        ------
        OnnxNbError
            If there is none.
        """
        for kind in ("tensor", "node", "scope"):
            if (found := self.named(kind).get(name)) is not None:
                return kind, found
        every = {**self.named("scope"), **self.named("node"), **self.named("tensor")}
        raise OnnxNbError(
            f"no tensor, node or scope of the model is called {quoted(name)}.", advice=_nearest(name, every)
        )

    def faulty(self) -> set[int]:
        """Return the nodes that show a fault: their own, or that of a value they make (or read, if nobody makes it)."""
        found = set(np.flatnonzero(self.column["node_flags"] & FAULTY).tolist())
        values = (self.column["value_flags"] & FAULTY_VALUE) != 0
        for value in np.flatnonzero(values).tolist():
            found.update([int(self.producer[value])] if self.producer[value] >= 0 else self.readers(value))
        return found

    def readers(self, value: int) -> list[int]:
        """Return the nodes that read a value, once each."""
        return list(dict.fromkeys(self.reader[self.column["in_value"] == value].tolist()))


def _rows(ptr: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(ptr) - 1), ptr[1:] - ptr[:-1])


def _nearest(name: str, names: Iterable[str]) -> str:
    near = ", ".join(map(quoted, closest(name, names)))
    return f"Closest names: {near}." if near else "Names are shown by onnx_nb.ModelGraph(model)."


@dataclass(frozen=True, order=True)
class Box:
    """What an edge begins or ends at."""

    kind: str
    """node, group, input, output, result (of an open body), missing (nobody makes it) or enter (an open body)."""
    id: int
    """A node, group or value; of an output its place among the outputs; of what enters a body the node that owns it."""


@dataclass(frozen=True)
class Edge:
    """A tensor on its way to one of its readers."""

    value: int
    source: Box
    target: Box
    captured: bool
    """Every reader in the target takes it from outside of its own body."""


class Boxes:
    """The boxes that show with some groups open, and the edges between them."""

    def __init__(self, sheet: Sheet, opened: set[int]) -> None:
        self._sheet = sheet
        column = sheet.column
        self.front: list[int] = []
        """For each group the outermost closed group that it is or lies in, −1 if it shows open."""
        for group in range(sheet.scope_count):
            above = self.front[sheet.parent[group]] if group else -1
            self.front.append(above if above >= 0 or group in opened or not group else group)
        front = np.asarray(self.front, np.int64)
        body = column["node_body"].astype(np.int64)
        hidden = front[np.where(body >= 0, body, column["node_scope"])]
        nodes = np.arange(sheet.node_count)
        # one number a box: nodes, then groups
        inside = np.where(body >= 0, sheet.node_count + body, nodes)
        self._place = np.where(hidden >= 0, sheet.node_count + hidden, inside)
        first = np.full(sheet.scope_count, sheet.node_count, np.int64)
        np.minimum.at(first, column["node_scope"][~sheet.folded], nodes[~sheet.folded])
        owned = np.flatnonzero(np.isin(column["scope_kind"], (BODY, FUNCTION)))
        first[owned] = column["scope_node"][owned]
        self._inside: dict[int, set[int]] = {}
        self._first: list[int] = upward(np.minimum, first, column["scope_parent"]).tolist()

    def count(self) -> int:
        """Count the boxes; open groups are none."""
        shown_scopes = [group for group, hidden in enumerate(self.front) if hidden < 0]
        return sum(map(self._sheet.items, shown_scopes)) - len(shown_scopes) + 1

    def inside(self, group: int) -> list[Box]:
        """Return what lies directly in an open group: inputs, nodes and groups as in the file, outputs or results."""
        sheet = self._sheet
        rows = [(node, 0, Box("node", node)) for node in sheet.drawn_members(group)]
        rows += [(self._first[child], 1, Box("scope", child)) for child in sheet.children[group]]
        boxes = [box for *_, box in sorted(rows)]
        if group:
            inner = [Box("input", value) for value, home in sheet.homes.items() if home == group]
            return [*inner, *boxes, *(Box("result", value) for value in sheet.results(group))]
        inputs = dict.fromkeys(sheet.column["graph_inputs"].tolist())
        outputs = range(len(sheet.column["graph_outputs"]))
        return [*(Box("input", v) for v in inputs), *boxes, *(Box("output", place) for place in outputs)]

    def of_node(self, node: int) -> Box:
        """Return the box that shows a node; of one with bodies or a call the group of these, open or not."""
        place = int(self._place[node])
        return Box("node", place) if place < self._sheet.node_count else Box("scope", place - self._sheet.node_count)

    def of_value(self, value: int) -> Box | None:
        """Return the box where a value comes from; None if that is inside of a closed group, or a constant."""
        sheet = self._sheet
        if sheet.constant[value]:
            return None
        if sheet.producer[value] >= 0:
            box = self.of_node(int(sheet.producer[value]))
            return Box("result", value) if self._is_open(box) else box
        kind = sheet.column["value_kind"][value]
        if kind == GRAPH_INPUT:
            return Box("input", value)
        home = sheet.homes.get(value, -1) if kind == BODY_INPUT else -1
        if home >= 0:
            return Box("input", value) if self.front[home] < 0 else None
        return Box("missing", value)

    def _is_open(self, box: Box) -> bool:
        return box.kind == "scope" and self.front[box.id] < 0

    def edges(self) -> list[Edge]:
        """Return an edge for each tensor and each box that reads it from outside of itself, in order of the readers."""
        found: dict[tuple[int, Box], Edge] = {}
        for edge in [*self._reads(), *self._results(), *self._outputs()]:
            known = found.setdefault((edge.value, edge.target), edge)
            if known.captured and not edge.captured:
                found[edge.value, edge.target] = edge
        return list(found.values())

    def _reads(self) -> Iterator[Edge]:
        sheet, column = self._sheet, self._sheet.column
        value = column["in_value"].astype(np.int64)
        asked = np.flatnonzero((value >= 0) & ~sheet.folded[sheet.reader])
        asked = asked[~sheet.constant[value[asked]]]
        maker, reader = sheet.producer[value[asked]], sheet.reader[asked]
        passes = (maker < 0) | (self._place[maker] != self._place[reader])
        group = column["node_scope"]
        for node, read in zip(reader[passes].tolist(), value[asked[passes]].tolist(), strict=True):
            source = self.of_value(read)
            if source is None:
                continue
            branch, made = sheet.branch[int(group[node])], int(sheet.producer[read])
            own = sheet.branch[int(group[made])] == branch if made >= 0 else column["value_kind"][read] == BODY_INPUT
            box = self.of_node(node)
            if self._is_open(box) and read in self._read_inside(box.id):
                continue  # a call hands it on to nodes that show
            target = Box("enter", node) if self._is_open(box) else box
            yield Edge(read, source, target, captured=branch >= 0 and not own)

    def _read_inside(self, group: int) -> set[int]:
        """Return the values that nodes in an open call read."""
        sheet = self._sheet
        if sheet.kind[group] != FUNCTION:
            return set()
        if group not in self._inside:
            inside = np.zeros(sheet.scope_count, bool)
            inside[group] = True
            for each in range(group + 1, sheet.scope_count):  # parents come before children
                inside[each] = inside[sheet.parent[each]]
            reads = inside[sheet.column["node_scope"][sheet.reader]] & ~sheet.folded[sheet.reader]
            self._inside[group] = set(sheet.column["in_value"][reads].tolist())
        return self._inside[group]

    def _results(self) -> Iterator[Edge]:
        """Join what is given inside of open bodies and calls to what it becomes."""
        sheet, column = self._sheet, self._sheet.column
        pairs = zip(column["yield_value"].tolist(), column["yield_output"].tolist(), strict=True)
        for given, made in pairs:
            maker, result = int(sheet.producer[given]), self.of_value(made)
            if sheet.constant[given] or result is None or result.kind != "result":
                continue
            body = int(column["node_body"][int(sheet.producer[made])])
            inside = maker >= 0 and body in sheet.around(int(column["node_scope"][maker]))
            if inside or (sheet.kind[body] == FUNCTION and given in sheet.inputs(int(sheet.producer[made]))):
                source = self.of_value(given)
                if source is not None:
                    yield Edge(given, source, result, captured=False)

    def _outputs(self) -> Iterator[Edge]:
        for place, value in enumerate(self._sheet.column["graph_outputs"].tolist()):
            source = self.of_value(value) if value >= 0 else None
            if source is not None:
                yield Edge(value, source, Box("output", place), captured=False)


@dataclass(frozen=True)
class Label:
    """The words in a box."""

    title: str
    sub: str = ""
    """After the title: domain of an operator, class of a group and "×32", shape and dtype of an input or output."""
    lines: tuple[tuple[Pair, ...], ...] = ()
    """Rows under the title: weights, scalars and attributes; a key may be empty."""
    full: str = ""
    """All of it, nothing cut."""


def node_label(sheet: Sheet, node: int) -> Label:
    """Return what a node is: its operator, then weights and scalars by formal name, then attributes."""
    op, domain = sheet.op(node), sheet.text("op_domain", int(sheet.column["node_op"][node]))
    domain = "" if domain == "ai.onnx" else domain
    pairs = [*_constants(sheet, node), *_attributes(sheet, node)]
    title = elide(op, WIDEST - 30, 12, bold=True)
    note = f"differs {domain}".strip() if sheet.column["node_flags"][node] & DIFFERS else domain
    sub = elide(note, max(WIDEST - 32 - width(title, 12, bold=True), 24), 10.5) if note else ""
    name = sheet.text("node_name", node)
    full = "\n".join([f"{op} {domain}".strip(), *([name] if name else []), *(f"{k} {v}".strip() for k, v in pairs)])
    return Label(title, sub, _packed(pairs, 186), full)


def scope_label(sheet: Sheet, group: int) -> Label:
    """Return what a scope is: its name, its class and how often it repeats, then how much is in it."""
    owner, name = int(sheet.column["scope_node"][group]), sheet.text("scope_name", group)
    body = sheet.kind[group] == BODY and owner >= 0
    whole = (sheet.op(owner) if body else name) or "…"
    note = ("" if name == whole else name) if body else sheet.text("scope_class", group)
    times = multiple_text(sheet, group)
    room = WIDEST - 36
    used = width(times, 10.5) + 4 if times else 0
    title = elide(whole, room - (used + 8 if times else 0), 12, bold=True, middle=True)
    left = room - width(title, 12, bold=True) - 8
    kind = "" if left - used < 24 else elide(note, left - used, 10.5)
    sub = f"{'' if kind == '…' else kind} {times}".strip()
    contents = _contents(sheet, group)
    path = sheet.text("scope_path", group)
    difference = sheet.text("scope_difference", group)
    full = "\n".join(filter(None, [f"{whole} {note} {times}".strip(), path, contents, difference]))
    return Label(title, sub, ((("", contents),),), full)


def multiple_text(sheet: Sheet, group: int) -> str:
    """Return how often a group repeats and how many of it differ; of one of them that it does."""
    repeat, differs = (int(sheet.column[name][group]) for name in ("scope_repeat", "scope_differs"))
    if sheet.kind[group] not in ROWS and repeat < 2:
        return "differs" if differs else ""
    return f"×{repeat}" + (f", {differs} {'differs' if differs == 1 else 'differ'}" if differs else "")


def pill_label(sheet: Sheet, value: int) -> Label:
    """Name an input or output, with its shape and dtype."""
    if value < 0:
        return Label("?")
    name = sheet.text("value_name", value)
    kind = f"{sheet.text('value_shape', value)} {sheet.text('value_dtype', value)}".strip()
    sub = elide(kind, 200, 11.5, bold=True, middle=True)
    title = elide(name, 280 - width(sub, 11.5, bold=True), 11.5, bold=True, middle=True)
    return Label(title, sub, (), f"{name}\n{kind}".strip())


def edge_text(sheet: Sheet, value: int) -> str:
    """Return shape and dtype of a value as an edge says them: "batch×seq×768 f32"."""
    return elide(type_text(sheet, value), 170, 10, middle=True)


def type_text(sheet: Sheet, value: int) -> str:
    """Return shape and dtype of a value, as far as they are known."""
    dtype = sheet.text("value_dtype", value)
    for long, short in _SHORT:
        dtype = dtype.replace(long, short, 1)
    return f"{sheet.text('value_shape', value)} {dtype}".strip()


_SHORT = (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"), ("string", "str"))


def _contents(sheet: Sheet, group: int) -> str:
    nodes, repeat = int(sheet.column["scope_nodes"][group]), int(sheet.column["scope_repeat"][group])
    each = sheet.kind[group] in ROWS and repeat > 1 and nodes % repeat == 0
    share = repeat if each else 1
    text = f"{nodes // share:,} {'op' if nodes == share else 'ops'}{' each' if each else ''}"
    parameters = float(sheet.column["scope_params"][group]) / share
    if parameters:
        text += f" · {counted(parameters)} {'parameter' if parameters == 1 else 'parameters'}"
    return text


def counted(number: float) -> str:
    """Write a large number as a person would.

    >>> counted(7087872), counted(768), counted(123_400_000)
    ('7.1 M', '768', '123 M')
    """
    unit = 0
    while number >= 999.5 and unit < 4:
        number /= 1000
        unit += 1
    if not unit:
        return str(math.floor(number + 0.5))
    return f"{number:.1f} {' kMGT'[unit]}" if number < 99.95 else f"{number:.0f} {' kMGT'[unit]}"


def _constants(sheet: Sheet, node: int) -> list[Pair]:
    names = sheet.text("op_inputs", int(sheet.column["node_op"][node])).split(",")
    pairs = []
    for place, value in enumerate(sheet.inputs(node)):
        if value >= 0 and sheet.constant[value]:
            words = (sheet.text(column, value) for column in ("value_literal", "value_shape", "value_dtype"))
            pairs.append((names[place] if place < len(names) else "", next(filter(None, words), "constant")))
    return pairs


def _attributes(sheet: Sheet, node: int) -> list[Pair]:
    text = sheet.text("node_attributes", node)
    parts = [part.partition(" ") for part in text.split(" · ")] if text else []
    return [(key, value) for key, _, value in parts]


def _packed(pairs: Sequence[Pair], room: float) -> tuple[tuple[Pair, ...], ...]:
    """Set pairs in a few rows; what does not fit becomes "…"."""
    lines: list[list[Pair]] = []
    used = 0.0
    dots = width("…", 10.5) + 4
    for raw, text in pairs:
        key = elide(raw, room / 2, 10.5)
        before = width(key, 10.5) + 4 if key else 0
        value = elide(text, room - before, 10.5, middle=True)
        size = before + width(value, 10.5)
        if lines and used + 8 + size + (dots if len(lines) == LINES else 0) <= room:
            lines[-1].append((key, value))
            used += 8 + size
        elif len(lines) < LINES:
            lines.append([(key, value)])
            used = size
        else:
            lines[-1].append(("", "…"))
            break
    return tuple(tuple(line) for line in lines)


def elide(text: str, room: float, size: float, *, bold: bool = False, middle: bool = False) -> str:
    r"""Return one line of at most ``room`` pixels: control characters become spaces, what is too much "…".

    >>> elide("a\nb", 100, 12), elide("x" * 10_000, 60, 12, middle=True)
    ('a b', 'xxxx…xxxx')
    """
    half = LONGEST // 2
    pieces = [text] if len(text) <= LONGEST else [text[:half], text[-half:]]
    line = "".join(_CONTROL.sub(" ", piece) for piece in pieces)
    if len(pieces) == 1 and width(line, size, bold=bold) <= room:
        return line

    def cut(kept: int) -> str:
        back = kept // 2 if middle else 0
        return f"{line[: kept - back].rstrip()}…{line[-back:] if back else ''}"

    low, high = 0, len(line) - 1
    while low < high:
        between = (low + high + 1) // 2
        low, high = (between, high) if width(cut(between), size, bold=bold) <= room else (low, between - 1)
    return cut(low) if low > 0 else "…"


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Estimate the pixels across a text: which font will draw it is not known here.

    >>> width("abcd", 10), width("畳", 10)
    (22.0, 11.0)
    """
    wide = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
    return wide * size * (0.6 if bold else 0.55)
