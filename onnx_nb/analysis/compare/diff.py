"""Find what differs between two models: nodes, attributes, inputs, weights, types, versions.

`node_matching` matches nodes and values; matched ones are compared here.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnx

from onnx_nb.analysis.compare import weight_values
from onnx_nb.analysis.compare.counterparts import (
    CHANGED,
    ONLY,
    SAME,
    Counterparts,
    States,
    counterparts,
    inverse,
    mark_readers,
    with_calls,
)
from onnx_nb.analysis.compare.graph_lists import attributes_of, commutative
from onnx_nb.analysis.compare.node_matching import HOW, Matching, match
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, plain_text, quoted, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.operators import attribute_text
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.results import Displayed, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.graph.types import ValueType
    from onnx_nb.analysis.model.protofields import Ints
    from onnx_nb.analysis.progress import Progress

What = Literal["added", "removed", "changed"]

LONGEST: Final = 200
"""Maximum number of characters of a value in a `Difference`."""
AROUND: Final = 256
"""Maximum number of values followed through added or removed nodes to find that an input has the same source."""


@dataclass(frozen=True)
class Difference:
    """One difference between two models."""

    kind: str
    """node, operator, attribute, input, weight, type, model input, model output, function, opset, metadata or model."""
    what: What
    name: str
    """Name of the node or tensor in the reference; in the candidate if it was added."""
    op: str = ""
    """Operator type of the node; empty if it is not about a node."""
    detail: str = ""
    """Name of the attribute or input, or the part of a weight that differs."""
    reference: str = ""
    """Text of the reference's side; empty if the reference does not have it."""
    candidate: str = ""
    how: str = ""
    """How the two were matched: mapping, name, weights, structure, neighbors, order or place; see `Diff.matches`."""
    nodes: tuple[int, int] = (-1, -1)
    """Flat nodes in reference and candidate, −1 for none, as `Graph` numbers them."""
    tensors: tuple[int, int] = (-1, -1)

    @property
    def message(self) -> str:
        """The difference in one line.

        Examples
        --------
        >>> Difference("attribute", "changed", "conv1", "Conv", "strides", "1, 1", "2, 2").message
        "Conv 'conv1': strides 1, 1 → 2, 2"
        """
        subject = f"{self.op} {quoted(self.name)}" if self.op and self.name else self.op or quoted(self.name)
        if self.what != "changed":
            rest = self.candidate or self.reference
            return f"{subject} {self.what}" + (f": {rest}" if rest and self.kind != "node" else "")
        detail = f"{self.detail} " if self.detail else ""
        return f"{subject}: {detail}{self.reference or 'none'} → {self.candidate or 'none'}"


@dataclass(frozen=True, eq=False, repr=False)
class Diff(Displayed, Table):
    """The result of `diff`: two models, ``reference`` and ``candidate``, and their differences.

    Examples
    --------
    >>> import onnx.parser
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] z) '
    >>> one, other = (onnx.parser.parse_model(head + body) for body in ("{ z = Neg(x) }", "{ z = Abs(x) }"))
    >>> diff(one, other)
    Diff('g' → 'g': 1 operator changed)
    """

    reference: Model
    candidate: Model
    changes: tuple[Difference, ...]
    """Nodes first, in topological order, then tensors, then the models as a whole."""
    matching: Matching
    weights_compared: bool
    """Whether the values of weights were compared, not only their types."""

    def __repr__(self) -> str:
        left, right = self.reference.name, self.candidate.name
        return f"Diff({left!r} → {right!r}: {self.message})"

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return bool(self.changes)

    def __len__(self) -> int:
        """Return the number of differences."""
        return len(self.changes)

    @property
    def message(self) -> str:
        """The number of differences of each kind, in one line."""
        counts = Counter((each.kind, each.what) for each in self.changes)
        parts = [
            f"{count} {kind}{'' if count == 1 or kind == 'metadata' else 's'} {what}"
            for (kind, what), count in counts.items()
        ]
        return ", ".join(parts) or "no differences"

    @property
    def removed(self) -> list[str]:
        """Labels of the nodes that only the reference has."""
        return self._node_labels("removed")

    @property
    def added(self) -> list[str]:
        """Labels of the nodes that only the candidate has."""
        return self._node_labels("added")

    def _node_labels(self, what: What) -> list[str]:
        found = [each for each in self.changes if (each.kind, each.what) == ("node", what)]
        return [f"{each.op} {quoted(each.name)}" if each.name else each.op for each in found]

    @property
    def changed(self) -> list[str]:
        """Labels of the nodes that both have, but with another operator, attribute, input or weight."""
        graph = Graph.of(self.reference)
        nodes = np.flatnonzero(self.side("reference").node_state == CHANGED).tolist()
        return [graph.node_label(node) for node in nodes]

    def counterpart(self, name: str) -> str | None:
        """Return the name in the candidate of a tensor, or else node, of the reference; ``None`` if it has none.

        Raises
        ------
        OnnxNbError
            If the reference has no such tensor or node.
        """
        graph, other = Graph.of(self.reference), Graph.of(self.candidate)
        if name in graph.value_names:
            value = int(self.matching.value[graph.value(name)])
            return other.value_names[value] if value >= 0 else None
        if name not in graph.names:
            message = f"the reference has no tensor and no node {quoted(name)}."
            raise OnnxNbError(message, advice=closest_text(name, [*graph.value_names, *graph.names]))
        node = int(self.matching.node[graph.names.index(name)])
        return other.names[node] if node >= 0 else None

    def matches(self) -> list[dict[str, Any]]:
        """Return a row for each node of the reference: its name, operator, counterpart, and how it was matched."""
        graph, other = Graph.of(self.reference), Graph.of(self.candidate)
        matched = zip(self.matching.node.tolist(), self.matching.node_how.tolist(), strict=True)
        return [
            {
                "reference": graph.names[node],
                "op": graph.operators[graph.op_index[node]][0],
                "candidate": other.names[there] if there >= 0 else None,
                "how": HOW[how],
            }
            for node, (there, how) in enumerate(matched)
        ]

    _columns = tuple(Difference.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each difference."""
        return [asdict(each) for each in self.changes]

    def side(self, which: Literal["reference", "candidate"]) -> Counterparts:
        """Return the columns of one model: counterparts and states of its nodes, values and scopes."""
        return self.sides[("reference", "candidate").index(which)]

    @functools.cached_property
    def sides(self) -> tuple[Counterparts, Counterparts]:
        """Counterparts and states of the nodes, values and scopes of both models."""
        graphs = Graph.opened(self.reference), Graph.opened(self.candidate)
        there, value_there = with_calls(*graphs, self.matching)
        node = there, inverse(there, graphs[1].node_count)
        value = value_there, inverse(value_there, graphs[1].value_count)
        first, second = (self._states(at, graphs[at], node[at], value[at]) for at in (0, 1))
        return counterparts(graphs, node, value, (first, second))

    def _states(self, at: int, graph: Graph, node: Ints, value: Ints) -> States:
        node_state = np.where(node < 0, ONLY, SAME).astype(np.uint8)
        value_state = np.where(value < 0, ONLY, SAME).astype(np.uint8)
        for each in self.changes:
            if each.what == "changed" and each.tensors[at] >= 0:
                value_state[each.tensors[at]] = CHANGED
            if each.what == "changed" and each.nodes[at] >= 0:
                node_state[each.nodes[at]] = CHANGED
        for weight in np.flatnonzero((value_state == CHANGED) & (graph.value_kind == INITIALIZER)).tolist():
            readers = graph.consumers(weight)
            node_state[readers[node_state[readers] == SAME]] = CHANGED
        mark_readers(graph, node_state)
        return node_state, value_state


def diff(
    reference: ModelLike,
    candidate: ModelLike,
    mapping: Mapping[str, str | None] | None = None,
    *,
    weights: bool = True,
    progress: Progress | None = None,
) -> Diff:
    """Return the differences between two models, and which nodes and tensors of them match.

    Nodes with the same name, operator and surroundings match. Where names were lost or shifted, the weights that nodes
    read decide, then the structure (all that leads to a node and all that follows from it), then its neighbors. Where
    several nodes are equal in all of these, they match in topological order; a node that remains ambiguous does not
    match. `Diff.matches` lists how each node was matched; ``mapping`` overrides it.

    Parameters
    ----------
    reference, candidate
        Any `ModelLike`; they are not changed.
    mapping
        Names of tensors or nodes that match, reference first; they override everything else. ``None`` means that the
        reference's has no counterpart.
    weights
        Whether to compare the values of weights; ``False`` compares only their types and shapes, and reads none.
    progress
        Called while weights are compared with the fraction done. If it raises, the comparison ends.

    Returns
    -------
    Diff

    Raises
    ------
    AlignmentError
        If a name in ``mapping`` is unknown, or contradicts another.
    ModelFileError, ExternalDataError
        If a model, or a weight that has to be compared, cannot be read.

    Examples
    --------
    >>> import onnx.parser
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] z) '
    >>> one, other = (onnx.parser.parse_model(head + body) for body in (
    ...     "{ y = Softmax<axis = 1>(x)  z = Neg(y) }", "{ a = Softmax<axis = 0>(x)  b = Relu(a)  z = Neg(b) }"))
    >>> d = diff(one, other)
    >>> d
    Diff('g' → 'g': 1 attribute changed, 1 node added)
    >>> [change.message for change in d.changes]
    ["Softmax 'y': axis 1 → 0", "Relu 'b' added"]
    >>> d.counterpart("y")
    'a'
    """
    left, right = load(reference), load(candidate)
    graphs = Graph.of(left), Graph.of(right)
    matching = match(*graphs, mapping)
    pairs = _Pairs(*graphs, matching, read=weights)
    about_nodes = [*pairs.nodes(), *pairs.operators(), *pairs.attributes(), *pairs.inputs()]
    changes = [
        *pairs.in_order(about_nodes),
        *pairs.weights(progress),
        *pairs.types(),
        *pairs.ports(),
        *_of_models(left, right),
    ]
    return Diff(left, right, tuple(changes), matching, weights)


class _Pairs:
    """Compares matched nodes and values."""

    def __init__(self, reference: Graph, candidate: Graph, matching: Matching, *, read: bool) -> None:
        self.graphs = reference, candidate
        self.read = read
        """Whether values of weights may be read."""
        self.protos = weight_values.Weights(reference), weight_values.Weights(candidate)
        self.matching = matching
        self.there = matching.node
        self.back = inverse(matching.node, candidate.node_count)
        self.value_back = inverse(matching.value, candidate.value_count)

    def in_order(self, found: Iterable[Difference]) -> list[Difference]:
        """Sort differences of nodes topologically: added nodes behind those they follow, constants last."""
        a, b = self.graphs
        rank = [np.arange(graph.node_count, dtype=np.float64) for graph in (a, b)]
        for own, graph in zip(rank, (a, b), strict=True):
            own[: graph.main_count] = graph.rank
        # an added node comes behind the last matched node before it in its own order
        order = np.argsort(rank[1], kind="stable")
        place = np.where(self.back >= 0, rank[0][self.back], -1.0)[order] if a.node_count else -np.ones(len(order))
        behind = np.empty(len(order))
        behind[order] = np.maximum.accumulate(place) if len(order) else place

        def key(each: Difference) -> tuple[float, ...]:
            n, m = each.nodes
            if n >= 0:
                return float(a.folded[n]), rank[0][n], 0.0, 0.0
            return float(b.folded[m]), behind[m], 1.0, rank[1][m]

        return sorted(found, key=key)

    def nodes(self) -> Iterator[Difference]:
        """Yield nodes that only one model has."""
        for side, (graph, other) in enumerate(zip(self.graphs, (self.there, self.back), strict=True)):
            for node in np.flatnonzero(other < 0).tolist():
                pair = (node, -1) if side == 0 else (-1, node)
                op, name = _node(graph, node)
                yield Difference("node", "removed" if side == 0 else "added", name, op, nodes=pair)

    def operators(self) -> Iterator[Difference]:
        """Yield matched nodes of different operators."""
        a, b = self.graphs
        matched = np.flatnonzero(self.there >= 0)
        if not len(matched):
            return
        number = {op: index for index, op in enumerate(dict.fromkeys([*a.operators, *b.operators]))}
        index = [np.asarray([number[op] for op in graph.operators], np.int64) for graph in (a, b)]
        other = self.there[matched]
        differ = index[0][a.op_index[matched]] != index[1][b.op_index[other]]
        for n, m in zip(matched[differ].tolist(), other[differ].tolist(), strict=True):
            old, new = a.operators[a.op_index[n]], b.operators[b.op_index[m]]
            yield self._changed_node("operator", (n, m), "", _op(*old), _op(*new))

    def attributes(self) -> Iterator[Difference]:
        """Yield attributes that differ, of nodes of the same operator."""
        a, b = self.graphs
        for n, m in self.matching.attributes:
            old, new = attributes_of(a, n), attributes_of(b, m)
            if a.operators[a.op_index[n]][0] != b.operators[b.op_index[m]][0]:
                continue
            for name in dict.fromkeys([*old, *new]):
                if name in old and name in new and old[name][0] == new[name][0]:
                    continue
                texts = [_attribute(graph, node, name, own) for graph, node, own in ((a, n, old), (b, m, new))]
                if texts[0] == texts[1]:
                    texts[1] += ", other values"
                yield self._changed_node("attribute", (n, m), name, *texts)

    def inputs(self) -> Iterator[Difference]:
        """Yield inputs with another source; not those that only pass through added or removed nodes on the way."""
        a, b = self.graphs
        for n, m, slot, v, w in self._unequal_inputs():
            if v >= 0 and w >= 0 and (self._has_same_source(v, w) or self._hold_equal_values(v, w)):
                continue
            if (v < 0 or w < 0) and _is_empty(self.graphs[v < 0], w if v < 0 else v):
                continue
            op, domain = a.operators[a.op_index[n]]
            names = operators.input_names(op, domain, a.opsets.get(domain, 0))
            label = names[slot] if slot < len(names) else f"input {slot}"
            texts = [quoted(graph.value_names[value]) if value >= 0 else "" for graph, value in ((a, v), (b, w))]
            yield self._changed_node("input", (n, m), label, *texts)

    def _unequal_inputs(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield matched nodes, an input's index and its two values where these do not match."""
        a, b = self.graphs
        matched = np.flatnonzero(self.there >= 0)
        other = self.there[matched]
        nodes: tuple[NDArray[Any], NDArray[Any]] = matched, other
        counts = np.diff(a.in_ptr)[matched], np.diff(b.in_ptr)[other]
        # one row for each input that either node has
        width = np.maximum(*counts)
        row = np.repeat(np.arange(len(matched)), width)
        slot = np.arange(len(row)) - np.repeat(np.cumsum(width) - width, width)
        read = [np.full(len(row), -1, np.int64) for _ in (a, b)]
        for at, graph in enumerate((a, b)):
            inside = slot < counts[at][row]
            read[at][inside] = graph.in_value[graph.in_ptr[nodes[at][row[inside]]] + slot[inside]]
        there = self.matching.value
        expected = np.where(read[0] >= 0, there[read[0]] if len(there) else -1, -1)
        # the two inputs of a commutative operator may be swapped
        first = np.flatnonzero((slot == 0) & (width[row] == 2) & commutative(a)[matched[row]])
        straight = (expected[first] == read[1][first]).astype(int) + (expected[first + 1] == read[1][first + 1])
        crossed = (expected[first] == read[1][first + 1]).astype(int) + (expected[first + 1] == read[1][first])
        first = first[crossed > straight]
        read[1][first], read[1][first + 1] = read[1][first + 1], read[1][first]
        differ = np.flatnonzero(((read[0] >= 0) | (read[1] >= 0)) & ((expected != read[1]) | (expected < 0)))
        columns = matched[row[differ]], other[row[differ]], slot[differ], read[0][differ], read[1][differ]
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def _hold_equal_values(self, v: int, w: int) -> bool:
        """Return whether two weights, which may each be shared with others, have equal values."""
        a, b = self.graphs
        if a.value_kind[v] != INITIALIZER or b.value_kind[w] != INITIALIZER or a.type_of(v) != b.type_of(w):
            return False
        return self.read and weight_values.difference(self.protos[0], v, self.protos[1], w, lambda: None) == ""

    def _has_same_source(self, v: int, w: int) -> bool:
        """Return whether two tensors come from the same ones through nodes that only one of the models has."""
        a, b = self.graphs
        removed = a.producer[v] >= 0 and self.there[a.producer[v]] < 0
        added = b.producer[w] >= 0 and self.back[b.producer[w]] < 0
        if not removed and not added:
            return False
        sources = _sources(a, v, self.there), {int(self.value_back[x]) for x in _sources(b, w, self.back)}
        return not sources[0] or not sources[1] or bool((sources[0] & sources[1]) - {-1})

    def weights(self, progress: Progress | None) -> Iterator[Difference]:
        """Yield weights that only one model has, and those whose type or values differ."""
        a, b = self.graphs
        there = self.matching.value
        for side, (graph, other) in enumerate(((a, there), (b, self.value_back))):
            for value in np.flatnonzero((graph.value_kind == INITIALIZER) & (other < 0)).tolist():
                pair = (value, -1) if side == 0 else (-1, value)
                type_text = str(graph.type_of(value))
                texts = (type_text, "") if side == 0 else ("", type_text)
                what: What = "removed" if side == 0 else "added"
                yield Difference("weight", what, graph.value_names[value], "", "", *texts, tensors=pair)
        mine = np.flatnonzero((a.value_kind == INITIALIZER) & (there >= 0))
        mine = mine[b.value_kind[there[mine]] == INITIALIZER]
        types = [graph.type_index.tolist() for graph in (a, b)]
        equal_types = _equal_types(a, b)
        for number, (v, w) in enumerate(zip(mine.tolist(), there[mine].tolist(), strict=True)):
            old, new = self.protos[0].proto(v), self.protos[1].proto(w)
            if (types[0][v], types[1][w]) in equal_types and (not self.read or weight_values.equal_inside(old, new)):
                continue
            check = functools.partial(_report, progress, number / len(mine), a.value_names[v])
            check()
            texts = self.protos[0].type_text(v), self.protos[1].type_text(w)
            if texts[0] != texts[1]:
                yield self._changed_value("weight", (v, w), "type", *texts)
            elif self.read and old is not None and new is not None:
                found = weight_values.difference(self.protos[0], v, self.protos[1], w, check)
                if found:
                    yield self._changed_value("weight", (v, w), "values", texts[0], found)

    def types(self) -> Iterator[Difference]:
        """Yield computed tensors whose types are known in both models and differ."""
        a, b = self.graphs
        there = self.matching.value
        ports = {int(v) for graph_ports in (a.inputs, a.outputs) for v in graph_ports}
        mine = np.flatnonzero((there >= 0) & (a.value_kind != INITIALIZER))
        mine = mine[b.value_kind[there[mine]] != INITIALIZER]
        code = a.type_index[mine].astype(np.int64) * max(len(b.known_types), 1) + b.type_index[there[mine]]
        differ = [pair for pair in np.unique(code).tolist() if not _compatible(*_types(a, b, pair))]
        for v in mine[np.isin(code, differ)].tolist():
            if v not in ports:
                w = int(there[v])
                yield self._changed_value("type", (v, w), "", str(a.type_of(v)), str(b.type_of(w)))

    def ports(self) -> Iterator[Difference]:
        """Yield differences of the graph inputs and outputs."""
        a, b = self.graphs
        there = self.matching.value
        for kind, mine, others in (("model input", a.inputs, b.inputs), ("model output", a.outputs, b.outputs)):
            left = {int(v): None for v in mine if v >= 0}
            right = {int(w): None for w in others if w >= 0}
            for v in left:
                w = int(there[v])
                name, old = a.value_names[v], str(a.type_of(v))
                if w not in right:
                    yield Difference(kind, "removed", name, "", "", old, "", tensors=(v, -1))
                    continue
                if b.value_names[w] != name:
                    yield self._changed_value(kind, (v, w), "name", quoted(name), quoted(b.value_names[w]))
                if (new := str(b.type_of(w))) != old:
                    yield self._changed_value(kind, (v, w), "type", old, new)
            matched = {int(there[v]) for v in left}
            for w in right:
                if w not in matched:
                    yield Difference(kind, "added", b.value_names[w], "", "", "", str(b.type_of(w)), tensors=(-1, w))
            before = [int(there[v]) for v in left if int(there[v]) in right]
            after = [w for w in right if w in matched]
            if before != after:
                old, new = (shortened(", ".join(b.value_names[w] for w in ws), LONGEST) for ws in (before, after))
                yield Difference(kind, "changed", "", f"{kind}s", "order", old, new)

    def _changed_node(self, kind: str, nodes: tuple[int, int], detail: str, old: str, new: str) -> Difference:
        op, name = _node(self.graphs[0], nodes[0])
        how = HOW[self.matching.node_how[nodes[0]]]
        old, new = shortened(old, LONGEST), shortened(new, LONGEST)
        return Difference(kind, "changed", name, op, detail, old, new, how=how, nodes=nodes)

    def _changed_value(self, kind: str, values: tuple[int, int], detail: str, old: str, new: str) -> Difference:
        name, how = self.graphs[0].value_names[values[0]], HOW[self.matching.value_how[values[0]]]
        old, new = shortened(old, LONGEST), shortened(new, LONGEST)
        return Difference(kind, "changed", name, "", detail, old, new, how=how, tensors=values)


def _report(progress: Progress | None, part: float, name: str) -> None:
    if progress is not None:
        progress(part, f"comparing {quoted(name)}")


def _node(graph: Graph, node: int) -> tuple[str, str]:
    """Return a node's operator, and its name or that of its first output."""
    made = graph.node_outputs(node)
    named = graph.names[node] or next((graph.value_names[value] for value in made.tolist() if value >= 0), "")
    return graph.operators[graph.op_index[node]][0], named


def _op(op: str, domain: str) -> str:
    return f"{domain}:{op}" if domain else op


def _attribute(graph: Graph, node: int, name: str, given: Mapping[str, tuple[Any, onnx.AttributeProto]]) -> str:
    if name in given:
        return attribute_text(given[name][1])
    op, domain = graph.operators[graph.op_index[node]]
    defaults = operators.attribute_defaults(op, domain, graph.opsets.get(domain, 0))
    if name not in defaults:
        return ""
    return f"{attribute_text(onnx.helper.make_attribute(name, defaults[name]))} (default)"


def _is_empty(graph: Graph, value: int) -> bool:
    """Return whether a value is a weight without elements, which means the same as an omitted input."""
    kind = graph.type_of(value)
    return graph.value_kind[value] == INITIALIZER and kind.shape is not None and 0 in kind.shape


def _sources(graph: Graph, value: int, other: Ints) -> set[int]:
    """Return the values from which nodes without a counterpart make a value, except weights."""
    found: set[int] = set()
    waiting, seen = [value], {value}
    while waiting and len(seen) < AROUND:
        at = waiting.pop()
        node = int(graph.producer[at])
        if node < 0 or other[node] >= 0:
            if graph.value_kind[at] != INITIALIZER:
                found.add(at)
            continue
        for read in graph.node_inputs(node).tolist():
            if read >= 0 and read not in seen:
                seen.add(read)
                waiting.append(read)
    return found


def _equal_types(a: Graph, b: Graph) -> frozenset[tuple[int, int]]:
    """Return the pairs of equal types, as the graphs number them."""
    number = {kind: index for index, kind in enumerate(b.known_types)}
    return frozenset((index, number[kind]) for index, kind in enumerate(a.known_types) if kind in number)


def _types(a: Graph, b: Graph, code: int) -> tuple[ValueType, ValueType]:
    old, new = divmod(code, max(len(b.known_types), 1))
    return a.known_types[old], b.known_types[new]


def _compatible(one: ValueType, other: ValueType) -> bool:
    """Return whether two types may be equal as far as they are known; names of dimensions do not matter."""
    if not one.dtype or not other.dtype:
        return True
    if one.dtype != other.dtype:
        return False
    if one.shape is None or other.shape is None:
        return True
    if len(one.shape) != len(other.shape):
        return False
    return all(
        not (isinstance(x, int) and isinstance(y, int)) or x == y for x, y in zip(one.shape, other.shape, strict=True)
    )


def _of_models(left: Model, right: Model) -> Iterator[Difference]:
    """Yield differences of the models as a whole."""
    models = left, right
    opsets = ({domain or "ai.onnx": str(version) for domain, version in Graph.of(m).opsets.items()} for m in models)
    tables = {
        "function": map(_functions, models),
        "opset": opsets,
        "model": ({"ir_version": str(model.proto.ir_version)} for model in models),
        "metadata": map(_metadata, models),
    }
    for kind, (mine, others) in tables.items():
        for key in dict.fromkeys([*mine, *others]):
            old, new = mine.get(key), others.get(key)
            if old == new:
                continue
            what: What = "removed" if new is None else "added" if old is None else "changed"
            texts = shortened(old or "", LONGEST), shortened(new or "", LONGEST)
            if kind == "function":
                texts = ("one body", "another") if what == "changed" else ("", "")
            yield Difference(kind, what, key, "", "", *texts)


def _functions(model: Model) -> dict[str, str]:
    """Return the functions of a model as bytes in hexadecimal, without their documentation."""
    found = {}
    for key, function in Graph.of(model).functions.items():
        plain = onnx.FunctionProto()
        plain.CopyFrom(function)
        plain.ClearField("doc_string")
        found[":".join(part for part in key if part)] = plain.SerializeToString(deterministic=True).hex()
    return found


def _metadata(model: Model) -> dict[str, str]:
    proto = model.proto
    producer = " ".join(part for part in map(plain_text, (proto.producer_name, proto.producer_version)) if part)
    return {"producer": producer, **{plain_text(entry.key): plain_text(entry.value) for entry in proto.metadata_props}}
