"""Find the differences between two models: nodes, attributes, inputs, weights, types, versions.

`node_matching` matches nodes and values; matched ones are compared here. `Counterparts` are the columns that relate two
models: the counterpart and the state of each node, value and scope.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, plain_text, quoted, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.dataflow import followers, upward
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.graph.types import ValueType
from onnx_nb.analysis.match import graph_lists
from onnx_nb.analysis.match.graph_lists import ROLES, Weights, attribute_label, undocumented, unequal_values
from onnx_nb.analysis.match.node_matching import HOW, Matching, match
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.protofields import Ints
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.results import Displayed, Panel, Still, StillTable, Table
from onnx_nb.analysis.scopes.scopes import BODY, Scopes, layer_with, scopes, scopes_around

What = Literal["added", "removed", "changed"]
_ONLY: Final[tuple[What, What]] = ("removed", "added")
"""Kinds of difference for a node or value that only the reference has, or only the candidate."""

LONGEST: Final = 200
"""Maximum number of characters of a value in a `Difference`."""
ROWS: Final = 24
"""Maximum number of differences that the still lists one by one; of more, those that say the same are one row."""
AROUND: Final = 256
"""Maximum number of values followed through added or removed nodes to find that an input has the same source."""

SAME, ONLY, CHANGED, FOLDED = range(4)
"""States of a node or value. ONLY: the other model has no counterpart. FOLDED: it is constant in the simplified model,
or reads a value that became constant; a `Diff` has no such state."""

States = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""States of nodes and of values."""


@dataclass(frozen=True, eq=False)
class Counterparts:
    """Columns of one of two models."""

    node: Ints
    """Counterpart of each node, −1 for none."""
    value: Ints
    scope: Ints
    """Scope of the other model that shares the most nodes with each scope, −1 for none."""
    node_state: NDArray[np.uint8]
    """SAME, ONLY, CHANGED or FOLDED."""
    value_state: NDArray[np.uint8]
    scope_only: Ints
    """Drawn nodes in each scope, at any depth, that the other model does not have."""
    scope_changed: Ints
    scope_folded: Ints


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
    """Text for the reference; empty if only the candidate has it."""
    candidate: str = ""
    how: str = ""
    """Method that matched the two: mapping, name, weights, structure, neighbors, order or place; see `Diff.matches`."""
    nodes: tuple[int, int] = (-1, -1)
    """Flat nodes in reference and candidate, −1 for none, as `Graph` numbers them."""
    tensors: tuple[int, int] = (-1, -1)

    @property
    def noun(self) -> str:
        """What differs: the kind, and of the weights of quantizers the part that they play."""
        return self.detail if self.detail in ROLES else self.kind

    @property
    def likeness(self) -> tuple[str, ...]:
        """What differences that can be one row have in common."""
        texts = () if self.noun in ROLES or self.detail == "values" else (self.reference, self.candidate)
        return self.kind, self.what, self.op, self.detail, *texts

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
        return bool(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def message(self) -> str:
        """The number of differences of each kind, in one line; of names, only where nothing else differs."""
        counts = Counter((change.noun, change.what) for change in self.changes)
        parts = [
            f"{count} {noun}{'' if count == 1 or noun == 'metadata' else 's'} {what}"
            for (noun, what), count in counts.items()
        ]
        largest = next((change for change in self.changes if change.detail == "scale"), None)
        layer = self.layer(largest) if largest else ""
        most = f"; most: {largest.message}" + (f" in {quoted(layer)}" if layer else "") if largest else ""
        if parts:
            return ", ".join(parts) + most
        one, other = (Graph.of(side).names for side in (self.reference, self.candidate))
        others = sum(name != other[node] for name, node in zip(one, self.matching.node.tolist(), strict=True))
        return f"only names differ: {others:,} of {count_text(len(one), 'node')}" if others else "no differences"

    def layer(self, change: Difference) -> str:
        """Return the path of the layer with a node, or that reads or makes a tensor; "" where nothing names layers."""
        graphs = Graph.of(self.reference), Graph.of(self.candidate)
        for graph, node, value in zip(graphs, change.nodes, change.tensors, strict=True):
            places = [node, *graph.consumers(value).tolist(), int(graph.producer[value])] if value >= 0 else [node]
            if (place := next((place for place in places if place >= 0), None)) is not None:
                return layer_with(graph, place)
        return ""

    @property
    def removed(self) -> list[str]:
        """Labels of the nodes that only the reference has."""
        return self._node_labels("removed")

    @property
    def added(self) -> list[str]:
        """Labels of the nodes that only the candidate has."""
        return self._node_labels("added")

    def _node_labels(self, what: What) -> list[str]:
        changes = [change for change in self.changes if (change.kind, change.what) == ("node", what)]
        return [f"{change.op} {quoted(change.name)}" if change.name else change.op for change in changes]

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
        """Return a row for each node of the reference: its name, operator, counterpart, and method of matching."""
        graph, names = Graph.of(self.reference), [*Graph.of(self.candidate).names, None]  # the last one at −1
        rows = zip(graph.names, self.matching.node.tolist(), self.matching.node_how.tolist(), strict=True)
        return [
            {"reference": name, "op": graph.op_type(node), "candidate": names[there], "how": HOW[how]}
            for node, (name, there, how) in enumerate(rows)
        ]

    _columns = (*Difference.__dataclass_fields__, "layer")

    def _panel(self) -> Panel:
        return Panel("diff.DiffPanel", (self.reference, self.candidate, self))

    def _still(self) -> Still:
        signs = {"added": "+", "removed": "-", "changed": "~"}
        paths = [self.layer(change).split("/") for change in self.changes]
        is_many = len(paths) > ROWS
        for depth in range(max(map(len, paths), default=0), -1, -1):  # as fine as there are rows for
            layers = zip(("/".join(path[:depth]) for path in paths), self.changes, strict=True)
            groups = followers(((layer, change.likeness if is_many else change), change) for layer, change in layers)
            if len(groups) <= ROWS:
                break
        rows = [(signs[one.what], one.noun, _together(one, *more), key[0]) for key, (one, *more) in groups.items()]
        columns = 4 if any(row[3] for row in rows) else 3
        heads, alarms = ("", "Kind", "What", "Layer")[:columns], [row[0] == "-" for row in rows]
        table = StillTable(heads, [row[:columns] for row in rows], "difference", columns, "", alarms)
        return Still(self.message[:1].upper() + self.message[1:], tables=(table,), ok=None if self else True)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each difference."""
        return [{**asdict(change), "layer": self.layer(change)} for change in self.changes]

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
        node_state, value_state = (np.where(there < 0, ONLY, SAME).astype(np.uint8) for there in (node, value))
        changes = [change for change in self.changes if change.what == "changed"]
        value_state[[change.tensors[at] for change in changes if change.tensors[at] >= 0]] = CHANGED
        node_state[[change.nodes[at] for change in changes if change.nodes[at] >= 0]] = CHANGED
        # readers of changed weights and constants are changed as well; constants are drawn inside their readers
        constants = np.flatnonzero((node_state == CHANGED) & graph.folded).tolist()
        waiting = [value for node in constants for value in graph.results(node)]
        waiting += np.flatnonzero((value_state == CHANGED) & (graph.value_kind == INITIALIZER)).tolist()
        while waiting:
            for reader in graph.consumers(waiting.pop()).tolist():
                if node_state[reader] == SAME:
                    node_state[reader] = CHANGED
                    waiting += graph.results(reader) if graph.folded[reader] else []
        return node_state, value_state


def _together(first: Difference, *others: Difference) -> str:
    """Return differences of one kind, of which all have the same texts or none has, in one line."""
    if not others:
        return first.message
    count, subject = len(others) + 1, f"{first.op} nodes" if first.op else f"{first.noun}s"
    if (first.reference, first.candidate) != (others[0].reference, others[0].candidate):
        return f"{count:,} {subject} {first.what}, first {first.message}"
    detail = "" if first.noun == first.detail else f"{first.detail} "
    texts = f"{detail}{first.reference or 'none'} → {first.candidate or 'none'}"
    names = ", ".join(quoted(change.name) for change in (first, *others[:2])) + (", …" if count > 3 else "")
    return f"{count:,} {subject}: {texts if first.what == 'changed' else first.what} ({names})"


@known_arguments
def diff(
    reference: ModelLike,
    candidate: ModelLike,
    mapping: Mapping[str, str | None] | None = None,
    *,
    weights: bool = True,
    progress: Progress | None = None,
) -> Diff:
    """Return the differences between two models, and the nodes and tensors that match.

    Nodes with the same name, operator and surroundings match. Where names were lost or shifted, the weights that nodes
    read decide, then the structure (all ancestors and all descendants of a node), then its neighbors. Where
    several nodes are equal in all of these, they match in topological order; a node that remains ambiguous does not
    match. `Diff.matches` lists how each node was matched; ``mapping`` overrides it.

    Parameters
    ----------
    reference, candidate
        Any `ModelLike`; they are not changed.
    mapping
        Names of tensors or nodes that match, reference first; they override everything else. ``None`` means that the
        reference's tensor or node has no counterpart.
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
    about_nodes = sorted(pairs.nodes(), key=pairs.order())
    changes = [*about_nodes, *pairs.weights(progress), *pairs.types(), *pairs.ports(), *_of_models(left, right)]
    return Diff(left, right, tuple(changes), matching, weights)


class _Pairs:
    def __init__(self, reference: Graph, candidate: Graph, matching: Matching, *, read: bool) -> None:
        self.graphs = reference, candidate
        self.read = read
        """Whether values of weights may be read."""
        self.protos = Weights(reference), Weights(candidate)
        self.matching = matching
        self.there, self.value_there = matching.node.tolist(), matching.value.tolist()
        self.back = inverse(matching.node, candidate.node_count)
        self.value_back = inverse(matching.value, candidate.value_count)

    def order(self) -> Callable[[Difference], tuple[int, ...]]:
        """Return a key that sorts nodes topologically: added nodes after those they follow, constants last."""
        a, b = self.graphs
        rank = [[*graph.rank.tolist(), *range(graph.main_count, graph.node_count)] for graph in (a, b)]
        # an added node comes after the last matched node that precedes it in its own order
        behind, last = [0] * b.node_count, -1
        for m in sorted(range(b.node_count), key=rank[1].__getitem__):
            last = max(last, rank[0][self.back[m]] if self.back[m] >= 0 else -1)
            behind[m] = last

        def key(change: Difference) -> tuple[int, ...]:
            n, m = change.nodes
            if n >= 0:
                return bool(a.folded[n]), rank[0][n], 0, 0
            return bool(b.folded[m]), behind[m], 1, rank[1][m]

        return key

    def nodes(self) -> Iterator[Difference]:
        """Yield nodes that only one model has, and operators, attributes and inputs of matched nodes that differ."""
        a, b = self.graphs
        for at, (graph, other) in enumerate(((a, self.matching.node), (b, self.back))):
            for node in np.flatnonzero(other < 0).tolist():
                op, name = _node(graph, node)
                yield Difference("node", _ONLY[at], name, op, nodes=(-1, node) if at else (node, -1))
        operator = [[graph.operators[index] for index in graph.op_index.tolist()] for graph in (a, b)]
        commutes = graph_lists.commutative(a).tolist()
        inputs = [graph_lists.lists(graph.in_ptr, graph.in_value) for graph in (a, b)]
        unlike = set(self.matching.attributes)
        for n, m in enumerate(self.there):
            if m < 0:
                continue
            old, new = operator[0][n], operator[1][m]
            if old != new:
                texts = [f"{domain}:{op}" if domain else op for op, domain in (old, new)]
                yield self._changed("operator", (n, m), "", *texts)
            if (n, m) in unlike and old[0] == new[0]:
                yield from self._attributes(n, m)
            for slot, v, w in self._unequal_inputs(inputs[0][n], inputs[1][m], commutes=commutes[n]):
                names = operators.input_names(old[0], old[1], a.opsets.get(old[1], 0))
                label = names[slot] if slot < len(names) else f"input {slot}"
                texts = [quoted(graph.value_names[value]) if value >= 0 else "" for graph, value in ((a, v), (b, w))]
                yield self._changed("input", (n, m), label, *texts)

    def _attributes(self, n: int, m: int) -> Iterator[Difference]:
        a, b = self.graphs
        old, new = graph_lists.attributes_of(a, n), graph_lists.attributes_of(b, m)
        for name in dict.fromkeys([*old, *new]):
            if name in old and name in new and old[name][0] == new[name][0]:
                continue
            texts = [attribute_label(graph, node, name, table) for graph, node, table in ((a, n, old), (b, m, new))]
            if texts[0] == texts[1]:
                texts[1] += ", other values"
            yield self._changed("attribute", (n, m), name, *texts)

    def _unequal_inputs(
        self, inputs: Sequence[int], others: Sequence[int], *, commutes: bool
    ) -> Iterator[tuple[int, int, int]]:
        """Yield the inputs with another source, except those that only pass through added or removed nodes."""
        a, b = self.graphs
        there = self.value_there
        read = list(itertools.zip_longest(inputs, others, fillvalue=-1))
        equal = [min(v, w) >= 0 and there[v] == w for v, w in read]
        if commutes and len(read) == 2:  # they may be swapped
            (v, w), (x, y) = read
            swaps = [min(v, y) >= 0 and there[v] == y, min(x, w) >= 0 and there[x] == w]
            if sum(swaps) > sum(equal):
                read, equal = [(v, y), (x, w)], swaps
        for slot, (v, w) in enumerate(read):
            if equal[slot] or max(v, w) < 0:
                continue
            if v >= 0 and w >= 0:
                if self._has_same_source(v, w):
                    continue
                # weights of equal values may be shared with others
                are_weights = a.value_kind[v] == b.value_kind[w] == INITIALIZER and a.type_of(v) == b.type_of(w)
                if self.read and are_weights and not unequal_values(*self.protos, v, w, lambda: None):
                    continue
            else:  # a weight without elements means the same as an omitted input
                graph, value = (a, v) if v >= 0 else (b, w)
                if graph.value_kind[value] == INITIALIZER and 0 in (graph.type_of(value).shape or ()):
                    continue
            yield slot, v, w

    def _has_same_source(self, v: int, w: int) -> bool:
        """Return whether two tensors have the same sources through nodes that only one of the models has."""
        a, b = self.graphs
        is_only_a = a.producer[v] >= 0 and self.there[a.producer[v]] < 0
        is_only_b = b.producer[w] >= 0 and self.back[b.producer[w]] < 0
        if not is_only_a and not is_only_b:
            return False
        sources = _sources(a, v, self.there), {int(self.value_back[x]) for x in _sources(b, w, self.back)}
        return not sources[0] or not sources[1] or bool((sources[0] & sources[1]) - {-1})

    def weights(self, progress: Progress | None) -> Iterator[Difference]:
        """Yield weights that only one model has, and those whose type or values differ."""
        a, b = self.graphs
        for at, (graph, other) in enumerate(((a, self.matching.value), (b, self.value_back))):
            for value in np.flatnonzero((graph.value_kind == INITIALIZER) & (other < 0)).tolist():
                yield self._only("weight", at, value)
        pairs = self._matched_values(weights=True)
        report = progress or (lambda _part, _what: None)
        roles, largest_first = graph_lists.quantizer_roles(a) if self.read else {}, list[tuple[float, Difference]]()
        for number, (v, w) in enumerate(pairs):
            check = functools.partial(report, number / len(pairs), f"comparing {quoted(a.value_names[v])}")
            texts = self.protos[0].type_text(v), self.protos[1].type_text(w)
            detail, size = ("type" if texts[0] != texts[1] else ""), 0.0
            if self.read:
                check()
                if not detail and (difference := unequal_values(*self.protos, v, w, check)):
                    detail, texts = "values", (texts[0], difference)
                if detail and v in roles and (change := graph_lists.requantization(*self.protos, v, w, roles[v])):
                    detail, (size, texts) = roles[v], change
            if detail:
                largest_first.append((-size, self._changed("weight", (v, w), detail, *texts)))
        yield from (change for _, change in sorted(largest_first, key=lambda pair: pair[0]))

    def _matched_values(self, *, weights: bool) -> list[tuple[int, int]]:
        """Return the matched values that are weights in both models, or in neither."""
        first, second = ((graph.value_kind == INITIALIZER).tolist() for graph in self.graphs)
        return [(v, w) for v, w in enumerate(self.value_there) if w >= 0 and first[v] == weights == second[w]]

    def types(self) -> Iterator[Difference]:
        """Yield computed tensors whose types are known in both models and differ."""
        a, b = self.graphs
        ports = {*a.inputs.tolist(), *a.outputs.tolist()}
        types = a.type_index.tolist(), b.type_index.tolist()
        compatible = functools.cache(lambda x, y: _compatible(a.known_types[x], b.known_types[y]))
        for v, w in self._matched_values(weights=False):
            if v not in ports and not compatible(types[0][v], types[1][w]):
                yield self._changed("type", (v, w), "", str(a.type_of(v)), str(b.type_of(w)))

    def ports(self) -> Iterator[Difference]:
        a, b = self.graphs
        there = self.value_there
        for kind, ends, others in (("model input", a.inputs, b.inputs), ("model output", a.outputs, b.outputs)):
            left, right = (dict.fromkeys(value for value in side.tolist() if value >= 0) for side in (ends, others))
            for v in left:
                w = there[v]
                if w not in right:
                    yield self._only(kind, 0, v)
                    continue
                names, types = (a.value_names[v], b.value_names[w]), (str(a.type_of(v)), str(b.type_of(w)))
                if names[0] != names[1]:
                    yield self._changed(kind, (v, w), "name", quoted(names[0]), quoted(names[1]))
                if types[0] != types[1]:
                    yield self._changed(kind, (v, w), "type", *types)
            before = [there[v] for v in left if there[v] in right]
            yield from (self._only(kind, 1, w) for w in right if w not in before)
            after = [w for w in right if w in before]
            if before != after:
                old, new = (shortened(", ".join(b.value_names[w] for w in ws), LONGEST) for ws in (before, after))
                yield Difference(kind, "changed", "", f"{kind}s", "order", old, new)

    def _only(self, kind: str, at: int, value: int) -> Difference:
        graph = self.graphs[at]
        texts = ("", str(graph.type_of(value))) if at else (str(graph.type_of(value)), "")
        pair = (-1, value) if at else (value, -1)
        return Difference(kind, _ONLY[at], graph.value_names[value], "", "", *texts, tensors=pair)

    def _changed(self, kind: str, pair: tuple[int, int], detail: str, old: str, new: str) -> Difference:
        texts = shortened(old, LONGEST), shortened(new, LONGEST)
        if kind in ("operator", "attribute", "input"):
            op, name = _node(self.graphs[0], pair[0])
            how = HOW[self.matching.node_how[pair[0]]]
            return Difference(kind, "changed", name, op, detail, *texts, how=how, nodes=pair)
        name, how = self.graphs[0].value_names[pair[0]], HOW[self.matching.value_how[pair[0]]]
        return Difference(kind, "changed", name, "", detail, *texts, how=how, tensors=pair)


def _node(graph: Graph, node: int) -> tuple[str, str]:
    """Return a node's operator, and its name or that of its first output."""
    name = graph.names[node] or next((graph.value_names[value] for value in graph.results(node)), "")
    return graph.op_type(node), name


def _sources(graph: Graph, value: int, other: Sequence[int] | Ints) -> set[int]:
    """Return the values from which nodes without a counterpart compute a value, except weights."""
    sources: set[int] = set()
    waiting, region = [value], {value}
    while waiting and len(region) < AROUND:
        at = waiting.pop()
        node = int(graph.producer[at])
        if node >= 0 and other[node] < 0:
            new = [read for read in dict.fromkeys(graph.node_inputs(node).tolist()) if read >= 0 and read not in region]
            region.update(new)
            waiting += new
        elif graph.value_kind[at] != INITIALIZER:
            sources.add(at)
    return sources


def _compatible(one: ValueType, other: ValueType) -> bool:
    """Return whether two partly known types may be equal; names of dimensions do not matter."""
    if one.dtype != other.dtype:
        return not one.dtype or not other.dtype
    if one.shape is None or other.shape is None:
        return True
    return tensors.fits(one.shape, [dim if isinstance(dim, int) else None for dim in other.shape])


def _of_models(*models: Model) -> Iterator[Difference]:
    tables: dict[str, list[dict[str, str]]] = {"function": [], "opset": [], "model": [], "metadata": []}
    for model in models:
        graph, proto = Graph.of(model), model.proto
        functions = {":".join(filter(None, key)): undocumented(body).hex() for key, body in graph.functions.items()}
        tables["function"].append(functions)
        tables["opset"].append({domain or "ai.onnx": str(version) for domain, version in graph.opsets.items()})
        tables["model"].append({"ir_version": str(proto.ir_version)})
        producer = " ".join(filter(None, map(plain_text, (proto.producer_name, proto.producer_version))))
        entries = {plain_text(entry.key): plain_text(entry.value) for entry in proto.metadata_props}
        tables["metadata"].append({"producer": producer, **entries})
    for kind, (table, others) in tables.items():
        for key in dict.fromkeys([*table, *others]):
            old, new = table.get(key), others.get(key)
            if old == new:
                continue
            what: What = "removed" if new is None else "added" if old is None else "changed"
            texts = shortened(old or "", LONGEST), shortened(new or "", LONGEST)
            if kind == "function":
                texts = ("one body", "another") if what == "changed" else ("", "")
            yield Difference(kind, what, key, "", "", *texts)


# --- columns of both models ------------------------------------------------------------------------------------------


def inverse(there: Ints, count: int) -> Ints:
    """Return the inverse of a column of counterparts."""
    back = np.full(count, -1, np.int32)
    matches = np.flatnonzero(there >= 0)
    back[there[matches]] = matches
    return back


def counterparts(
    graphs: tuple[Graph, Graph], node: tuple[Ints, Ints], value: tuple[Ints, Ints], states: tuple[States, States]
) -> tuple[Counterparts, Counterparts]:
    """Return the columns of both models, given counterparts and states of nodes and values of the opened graphs."""
    trees = scopes(graphs[0]), scopes(graphs[1])
    scope = _matched_scopes(trees[0], trees[1], node[0]), _matched_scopes(trees[1], trees[0], node[1])
    first, second = (
        Counterparts(node[at], value[at], scope[at], *states[at], *_scope_counts(graphs[at], trees[at], states[at][0]))
        for at in (0, 1)
    )
    return first, second


def _scope_counts(graph: Graph, tree: Scopes, node_state: NDArray[np.uint8]) -> Iterator[Ints]:
    """Yield the number of drawn nodes in each scope that are ONLY, CHANGED and FOLDED."""
    is_drawn = ~graph.folded
    # a node with bodies is drawn as a scope, whose box also shows the state of the node
    owners = np.flatnonzero(tree.scope_kind == BODY)
    for state in (ONLY, CHANGED, FOLDED):
        direct = np.bincount(tree.node_scope[(node_state == state) & is_drawn], minlength=len(tree.scope_parent))
        count = upward(np.add, direct, tree.scope_parent).astype(np.int32)
        count[owners] += node_state[tree.scope_node[owners]] == state
        yield count


def with_calls(graph: Graph, other: Graph, matching: Matching) -> tuple[Ints, Ints]:
    """Return the counterparts of nodes and values of opened graphs, including those inside calls of equal functions."""
    node, value = np.full(graph.node_count, -1, np.int32), np.full(graph.value_count, -1, np.int32)
    node[: len(matching.node)], value[: len(matching.value)] = matching.node, matching.value
    for subgraph in graph.subgraphs[len(graph.plain.subgraphs) :]:
        owner = int(node[subgraph.owner_node])
        candidates = [other.subgraphs[body] for body in other.bodies(owner)] if owner >= 0 else []
        # each body of an If has its attribute; that of a call has none
        twin = next((body for body in candidates if body.attribute == subgraph.attribute), None)
        if twin is None:
            continue
        nodes, others = range(subgraph.start, subgraph.stop), range(twin.start, twin.stop)
        if [graph.operators[graph.op_index[n]] for n in nodes] != [other.operators[other.op_index[m]] for m in others]:
            continue
        node[subgraph.start : subgraph.stop] = others
        for n, m in zip(nodes, others, strict=True):
            for v, w in zip(graph.node_outputs(n).tolist(), other.node_outputs(m).tolist(), strict=False):
                if v >= 0 and w >= 0:
                    value[v] = w
    return node, value


def _matched_scopes(tree: Scopes, other: Scopes, there: Ints) -> Ints:
    """Return for each scope the one that shares the most nodes, by Dice's coefficient; the same path goes first."""
    matches = np.flatnonzero(there >= 0)
    pairs = zip(tree.node_scope[matches].tolist(), other.node_scope[there[matches]].tolist(), strict=True)
    common = Counter[tuple[int, int]]()
    for (scope, twin), count in Counter(pairs).items():
        for pair in itertools.product(scopes_around(tree, scope), scopes_around(other, twin)):
            common[pair] += count
    sizes, others = (
        upward(np.add, np.bincount(side.node_scope, minlength=len(side.scope_parent)), side.scope_parent).tolist()
        for side in (tree, other)
    )
    best, most = [-1] * len(tree.scope_parent), [0.0] * len(tree.scope_parent)
    for (scope, twin), count in sorted(common.items()):
        score = 2 * count / (sizes[scope] + others[twin]) + (tree.scope_path[scope] == other.scope_path[twin] != "")
        if score > most[scope]:
            best[scope], most[scope] = twin, score
    best[0] = 0
    return np.asarray(best, np.int32)
