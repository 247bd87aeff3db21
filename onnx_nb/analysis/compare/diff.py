"""What is different between two models: nodes, attributes, wires, weights, types, versions.

`matching` says which node and tensor is which; here matched things are compared. Bytes of weights are streamed, and
only where they do not lie at the same place of the same file.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.compare.node_matching import HOW, Matching, attributes_of, commutative, match
from onnx_nb.analysis.dataframes import data_frame
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest, plain_text, quoted, shortened
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.algorithms import upward
from onnx_nb.analysis.graph.attribute_text import attribute_text
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.host import Displayed
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load, storage_of
from onnx_nb.analysis.scopes.scopes import BODY, Scopes, scopes

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.graph.types import ValueType
    from onnx_nb.analysis.model.protofields import Ints
    from onnx_nb.analysis.progress import Progress

What = Literal["added", "removed", "changed"]

SAME, ONLY, CHANGED, FOLDED = range(4)
"""What a node or value is, as in `Side.node_state`. ONLY: the other model has no counterpart. FOLDED: it is constant
there, or reads what became constant; only `provenance` knows of that."""
CHUNK: Final = 1 << 22
"""Bytes of a weight that are compared at a time."""
LONGEST: Final = 200
"""Characters of a value in a `Change`."""
AROUND: Final = 256
"""So many inserted or removed nodes are looked through to see that an input still comes from the same tensor."""


@dataclass(frozen=True)
class Change:
    """One difference."""

    kind: str
    """node, operator, attribute, input, weight, type, model input, model output, function, opset, metadata or model."""
    what: What
    name: str
    """Of the node or tensor as the reference calls it, or the candidate if it was added."""
    op: str = ""
    """Type of the node; empty for what is no node."""
    detail: str = ""
    """Which attribute or input, or what of a weight."""
    reference: str = ""
    """What it is in the reference; empty if it is not there."""
    candidate: str = ""
    how: str = ""
    """How the two were matched: mapping, name, weights, structure, neighbors, order or place; see `matching.HOW`."""
    nodes: tuple[int, int] = (-1, -1)
    """Flat nodes in reference and candidate, −1 for none, as `Graph` numbers them."""
    tensors: tuple[int, int] = (-1, -1)

    @property
    def message(self) -> str:
        """The change in one line.

        Examples
        --------
        >>> Change("attribute", "changed", "conv1", "Conv", "strides", "1, 1", "2, 2").message
        "Conv 'conv1': strides 1, 1 → 2, 2"
        """
        subject = f"{self.op} {quoted(self.name)}" if self.op and self.name else self.op or quoted(self.name)
        if self.what != "changed":
            rest = self.candidate or self.reference
            return f"{subject} {self.what}" + (f": {rest}" if rest and self.kind != "node" else "")
        detail = f"{self.detail} " if self.detail else ""
        return f"{subject}: {detail}{self.reference or 'none'} → {self.candidate or 'none'}"


@dataclass(frozen=True, eq=False)
class Side:
    """What one of the two models is to the other, in columns."""

    node: Ints
    """The counterpart of each node, −1 for none."""
    value: Ints
    scope: Ints
    """The scope of the other model that holds most of the same nodes, −1 for none."""
    node_state: NDArray[np.uint8]
    """SAME, ONLY, CHANGED or FOLDED."""
    value_state: NDArray[np.uint8]
    scope_only: Ints
    """Drawn nodes in each group, at any depth, that the other model does not have."""
    scope_changed: Ints
    scope_folded: Ints


@dataclass(frozen=True, eq=False, repr=False)
class Diff(Displayed):
    """What `diff` found; ``reference`` and ``candidate`` are the models, `changes` what differs."""

    reference: Model
    candidate: Model
    changes: tuple[Change, ...]
    """Nodes first, in the order of the flow, then tensors, then the models as a whole."""
    matching: Matching
    weights_compared: bool
    """Whether values of weights were compared, not only their types."""

    def __repr__(self) -> str:
        left, right = self.reference.name, self.candidate.name
        return f"Diff({left!r} → {right!r}: {self.message})"

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return bool(self.changes)

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.changes)

    @property
    def message(self) -> str:
        """Return how much differs, in a line."""
        counts = Counter((change.kind, change.what) for change in self.changes)
        parts = [
            f"{count} {kind}{'' if count == 1 or kind == 'metadata' else 's'} {what}"
            for (kind, what), count in counts.items()
        ]
        return ", ".join(parts) or "no differences"

    @property
    def removed(self) -> list[str]:
        """Labels of the nodes that only the reference has."""
        return [_called(change) for change in self.changes if (change.kind, change.what) == ("node", "removed")]

    @property
    def added(self) -> list[str]:
        """Labels of the nodes that only the candidate has."""
        return [_called(change) for change in self.changes if (change.kind, change.what) == ("node", "added")]

    @property
    def changed(self) -> list[str]:
        """Labels of the nodes that both have, but with another operator, attribute, input or weight."""
        graph = Graph.of(self.reference)
        return [
            graph.node_label(node) for node in np.flatnonzero(self.side("reference").node_state == CHANGED).tolist()
        ]

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
            near = ", ".join(map(quoted, closest(name, [*graph.value_names, *graph.names])))
            message = f"the reference has no tensor and no node {quoted(name)}."
            raise OnnxNbError(message, advice=f"Closest names: {near}." if near else "")
        node = int(self.matching.node[graph.names.index(name)])
        return other.names[node] if node >= 0 else None

    def matches(self) -> list[dict[str, Any]]:
        """Return a row for each node of the reference: its name, op, that of its counterpart, and how it was found."""
        graph, other = Graph.of(self.reference), Graph.of(self.candidate)
        return [
            {
                "reference": graph.names[node],
                "op": graph.operators[graph.op_index[node]][0],
                "candidate": other.names[there] if there >= 0 else None,
                "how": HOW[how],
            }
            for node, (there, how) in enumerate(
                zip(self.matching.node.tolist(), self.matching.node_how.tolist(), strict=True)
            )
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each change."""
        return [asdict(change) for change in self.changes]

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a pandas data frame.

        Raises
        ------
        OnnxNbError
            If pandas is not installed.
        """
        return data_frame(self.rows(), [field.name for field in fields(Change)])

    def side(self, which: Literal["reference", "candidate"]) -> Side:
        """Return the columns of one model: counterparts, and what is only there or changed."""
        return self.sides[("reference", "candidate").index(which)]

    @functools.cached_property
    def sides(self) -> tuple[Side, Side]:
        """What each node, value and scope of either model is to the other model."""
        graphs = Graph.opened(self.reference), Graph.opened(self.candidate)
        there, value_there = _with_calls(*graphs, self.matching)
        node = there, inverse(there, graphs[1].node_count)
        counterpart = value_there, inverse(value_there, graphs[1].value_count)
        states = []
        for at in (0, 1):
            node_state = np.where(node[at] < 0, ONLY, SAME).astype(np.uint8)
            value_state = np.where(counterpart[at] < 0, ONLY, SAME).astype(np.uint8)
            for change in self.changes:
                if change.what == "changed" and (value := change.tensors[at]) >= 0:
                    value_state[value] = CHANGED
                if change.what == "changed" and change.nodes[at] >= 0:
                    node_state[change.nodes[at]] = CHANGED
            for weight in np.flatnonzero((value_state == CHANGED) & (graphs[at].value_kind == INITIALIZER)).tolist():
                readers = graphs[at].consumers(weight)
                node_state[readers[node_state[readers] == SAME]] = CHANGED
            _pass_on(graphs[at], node_state)
            states.append((node_state, value_state))
        return sides(graphs, node, counterpart, (states[0], states[1]))


States = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Of nodes and of values, as in `Side`."""


def sides(
    graphs: tuple[Graph, Graph], node: tuple[Ints, Ints], value: tuple[Ints, Ints], states: tuple[States, States]
) -> tuple[Side, Side]:
    """Add to what nodes and values of two opened graphs are to each other what their scopes are."""
    trees = tuple(scopes(graph) for graph in graphs)
    groups = _scopes_alike(trees[0], trees[1], node[0]), _scopes_alike(trees[1], trees[0], node[1])
    made = []
    for at in (0, 1):
        node_state, value_state = states[at]
        tree = trees[at]
        drawn = ~graphs[at].folded
        counts = [
            upward(
                np.add,
                np.bincount(tree.node_scope[(node_state == state) & drawn], minlength=len(tree.scope_parent)),
                tree.scope_parent,
            ).astype(np.int32)
            for state in (ONLY, CHANGED, FOLDED)
        ]
        # the box of a node with bodies is its group: it shows what the node is as well
        owners = np.flatnonzero(tree.scope_kind == BODY)
        for count, state in zip(counts, (ONLY, CHANGED, FOLDED), strict=True):
            count[owners] += node_state[tree.scope_node[owners]] == state
        made.append(Side(node[at], value[at], groups[at], node_state, value_state, *counts))
    return made[0], made[1]


def _with_calls(graph: Graph, other: Graph, matching: Matching) -> tuple[Ints, Ints]:
    """Return the counterparts of nodes and values, also inside calls of equal functions."""
    node, value = np.full(graph.node_count, -1, np.int32), np.full(graph.value_count, -1, np.int32)
    node[: len(matching.node)], value[: len(matching.value)] = matching.node, matching.value
    for f in range(len(graph.plain.subgraphs), len(graph.subgraphs)):
        place = graph.subgraphs[f]
        twins = other.bodies(there) if (there := int(node[place.owner_node])) >= 0 else ()
        # an If inside has several bodies: that with the same attribute; a call has one, without
        twin = next((g for g in twins if other.subgraphs[g].attribute == place.attribute), -1)
        if twin < 0:
            continue
        begin, end = other.subgraphs[twin].start, other.subgraphs[twin].stop
        mine = [graph.operators[graph.op_index[n]] for n in range(place.start, place.stop)]
        if mine != [other.operators[other.op_index[n]] for n in range(begin, end)]:
            continue
        node[place.start : place.stop] = np.arange(begin, end)
        for a, b in zip(range(place.start, place.stop), range(begin, end), strict=True):
            for v, w in zip(graph.node_outputs(a).tolist(), other.node_outputs(b).tolist(), strict=False):
                if v >= 0 and w >= 0:
                    value[v] = w
    return node, value


def _called(change: Change) -> str:
    return f"{change.op} {quoted(change.name)}" if change.name else change.op


def diff(
    reference: ModelLike,
    candidate: ModelLike,
    mapping: Mapping[str, str | None] | None = None,
    *,
    weights: bool = True,
    progress: Progress | None = None,
) -> Diff:
    """Return what differs between two models, and which node and tensor of one is which of the other.

    What has the same name, operator and surroundings is the same; where names were lost or shifted, the weights that
    nodes read and structure decide: what leads to a node and what follows from it, then what is beside it.

    Parameters
    ----------
    reference, candidate
        Any `ModelLike`; they are not changed.
    mapping
        Names of tensors or nodes that belong together, reference first; they win over everything that would be found.
        ``None`` as the second says that the first has no counterpart.
    weights
        Compare the values of weights as well; ``False`` compares only their types and shapes, and reads none.
    progress
        Called while weights are compared with the part done; what it raises ends the comparison.

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
        *pairs.weights(values=weights, progress=progress),
        *pairs.types(),
        *pairs.ports(),
        *_whole(left, right),
    ]
    return Diff(left, right, tuple(changes), matching, weights)


class _Pairs:
    """Compares what is matched."""

    def __init__(self, reference: Graph, candidate: Graph, matching: Matching, *, read: bool) -> None:
        self.graphs = reference, candidate
        self.read = read
        """Whether values of weights may be read."""
        self.protos = _Protos(reference), _Protos(candidate)
        self.matching = matching
        self.there = matching.node
        self.back = inverse(matching.node, candidate.node_count)
        self.value_back = inverse(matching.value, candidate.value_count)

    def in_order(self, changes: Iterable[Change]) -> list[Change]:
        """Put changes of nodes into the order of the flow: what was added behind what it follows, constants last."""
        a, b = self.graphs
        rank = [np.arange(graph.node_count, dtype=np.float64) for graph in (a, b)]
        for own, graph in zip(rank, (a, b), strict=True):
            own[: graph.main_count] = graph.rank
        # the place of an added node is behind the last matched one before it in its own order
        order = np.argsort(rank[1], kind="stable")
        place = np.where(self.back >= 0, rank[0][self.back], -1.0)[order] if a.node_count else -np.ones(len(order))
        behind = np.empty(len(order))
        behind[order] = np.maximum.accumulate(place) if len(order) else place

        def key(change: Change) -> tuple[float, ...]:
            n, m = change.nodes
            if n >= 0:
                return float(a.folded[n]), rank[0][n], 0.0, 0.0
            return float(b.folded[m]), behind[m], 1.0, rank[1][m]

        return sorted(changes, key=key)

    def nodes(self) -> Iterator[Change]:
        for side, (graph, other) in enumerate(zip(self.graphs, (self.there, self.back), strict=True)):
            for node in np.flatnonzero(other < 0).tolist():
                pair = (node, -1) if side == 0 else (-1, node)
                op, name = _node(graph, node)
                yield Change("node", "removed" if side == 0 else "added", name, op, nodes=pair)

    def operators(self) -> Iterator[Change]:
        a, b = self.graphs
        matched = np.flatnonzero(self.there >= 0)
        ops = [graph.operators for graph in (a, b)]
        number = {op: index for index, op in enumerate(dict.fromkeys([*ops[0], *ops[1]]))}
        index = [np.asarray([number[op] for op in own], np.int64) for own in ops]
        if not len(matched):
            return
        other = self.there[matched]
        differ = index[0][a.op_index[matched]] != index[1][b.op_index[other]]
        for n, m in zip(matched[differ].tolist(), other[differ].tolist(), strict=True):
            old, new = ops[0][a.op_index[n]], ops[1][b.op_index[m]]
            yield self._changed("operator", (n, m), "", _op(*old), _op(*new))

    def attributes(self) -> Iterator[Change]:
        a, b = self.graphs
        for n, m in self.matching.attributes:
            old, new = attributes_of(a, n), attributes_of(b, m)
            if a.operators[a.op_index[n]][0] != b.operators[b.op_index[m]][0]:
                continue  # another operator has other attributes
            for name in dict.fromkeys([*old, *new]):
                if name in old and name in new and old[name][0] == new[name][0]:
                    continue
                texts = [_attribute(graph, node, name, own) for graph, node, own in ((a, n, old), (b, m, new))]
                if texts[0] == texts[1]:
                    texts[1] += ", other values"
                yield self._changed("attribute", (n, m), name, *texts)

    def inputs(self) -> Iterator[Change]:
        """Return inputs that come from elsewhere; not those of which something was put in or taken out on the way."""
        a, b = self.graphs
        values = self.matching.value
        matched = np.flatnonzero(self.there >= 0)
        other = self.there[matched]
        counts = [np.diff(a.in_ptr)[matched], np.diff(b.in_ptr)[other]]
        width = np.maximum(*counts)
        row = np.repeat(np.arange(len(matched)), width)
        slot = np.arange(len(row)) - np.repeat(np.cumsum(width) - width, width)
        read = []
        for graph, nodes, count in ((a, matched, counts[0]), (b, other, counts[1])):
            own = np.full(len(row), -1, np.int64)
            inside = slot < count[row]
            own[inside] = graph.in_value[graph.in_ptr[nodes[row[inside]]] + slot[inside]]
            read.append(own)
        expected = np.where(read[0] >= 0, values[read[0]] if len(values) else -1, -1)
        # two inputs that change places where that does not matter
        first = np.flatnonzero((slot == 0) & (width[row] == 2) & commutative(a)[matched[row]])
        straight = (expected[first] == read[1][first]).astype(int) + (expected[first + 1] == read[1][first + 1])
        crossed = (expected[first] == read[1][first + 1]).astype(int) + (expected[first + 1] == read[1][first])
        first = first[crossed > straight]
        read[1][first], read[1][first + 1] = read[1][first + 1], read[1][first]
        differ = np.flatnonzero(((read[0] >= 0) | (read[1] >= 0)) & ((expected != read[1]) | (expected < 0)))
        for at in differ.tolist():
            v, w = int(read[0][at]), int(read[1][at])
            if v >= 0 and w >= 0 and self._comes_round(v, w):
                continue
            if v >= 0 and w >= 0 and self._hold_the_same(v, w):
                continue
            n, m = int(matched[row[at]]), int(other[row[at]])
            op, domain = a.operators[a.op_index[n]]
            names = operators.input_names(op, domain, a.opsets.get(domain, 0))
            place = names[slot[at]] if slot[at] < len(names) else f"input {slot[at]}"
            if (v < 0 or w < 0) and _is_empty(self.graphs[v < 0], w if v < 0 else v):
                continue
            texts = [quoted(g.value_names[x]) if x >= 0 else "" for g, x in ((a, v), (b, w))]
            yield self._changed("input", (n, m), place, *texts)

    def _hold_the_same(self, v: int, w: int) -> bool:
        """Return whether two weights, each of which may be shared with others, hold the same bytes."""
        a, b = self.graphs
        if a.value_kind[v] != INITIALIZER or b.value_kind[w] != INITIALIZER or a.type_of(v) != b.type_of(w):
            return False
        return self.read and _values_differ(self.protos[0], v, self.protos[1], w, lambda: None) == ""

    def _comes_round(self, v: int, w: int) -> bool:
        """Return whether two tensors come from the same ones through nodes that only one of the models has."""
        a, b = self.graphs
        removed = a.producer[v] >= 0 and self.there[a.producer[v]] < 0
        added = b.producer[w] >= 0 and self.back[b.producer[w]] < 0
        if not removed and not added:
            return False
        sources = _sources(a, v, self.there), {int(self.value_back[x]) for x in _sources(b, w, self.back)}
        return not sources[0] or not sources[1] or bool((sources[0] & sources[1]) - {-1})

    def weights(self, *, values: bool, progress: Progress | None) -> Iterator[Change]:
        a, b = self.graphs
        kinds = a.value_kind, b.value_kind
        there = self.matching.value
        for side, graph in enumerate((a, b)):
            other = there if side == 0 else self.value_back
            for value in np.flatnonzero((kinds[side] == INITIALIZER) & (other < 0)).tolist():
                pair = (value, -1) if side == 0 else (-1, value)
                kind = str(graph.type_of(value))
                texts = (kind, "") if side == 0 else ("", kind)
                what: What = "removed" if side == 0 else "added"
                yield Change("weight", what, graph.value_names[value], "", "", *texts, tensors=pair)
        mine = np.flatnonzero((kinds[0] == INITIALIZER) & (there >= 0))
        mine = mine[kinds[1][there[mine]] == INITIALIZER]
        protos = self.protos
        types = [own.type_index.tolist() for own in (a, b)]
        alike = _alike_types(a, b)
        for number, (v, w) in enumerate(zip(mine.tolist(), there[mine].tolist(), strict=True)):
            old, new = protos[0].of(v), protos[1].of(w)
            if (types[0][v], types[1][w]) in alike and (not values or _held_alike(old, new)):
                continue
            check = functools.partial(_tell, progress, number / len(mine), a.value_names[v])
            check()
            texts = protos[0].kind(v), protos[1].kind(w)
            if texts[0] != texts[1]:
                yield self._changed_value("weight", (v, w), "type", *texts)
            elif values and old is not None and new is not None:
                found = _values_differ(protos[0], v, protos[1], w, check)
                if found:
                    yield self._changed_value("weight", (v, w), "values", texts[0], found)

    def types(self) -> Iterator[Change]:
        """Return computed tensors of which both models know a type, and not the same."""
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

    def ports(self) -> Iterator[Change]:
        a, b = self.graphs
        there = self.matching.value
        for kind, mine, others in (("model input", a.inputs, b.inputs), ("model output", a.outputs, b.outputs)):
            left = {int(v): None for v in mine if v >= 0}
            right = {int(w): None for w in others if w >= 0}
            for v in left:
                w = int(there[v])
                name, old = a.value_names[v], str(a.type_of(v))
                if w not in right:
                    yield Change(kind, "removed", name, "", "", old, "", tensors=(v, -1))
                    continue
                if b.value_names[w] != name:
                    yield self._changed_value(kind, (v, w), "name", quoted(name), quoted(b.value_names[w]))
                if (new := str(b.type_of(w))) != old:
                    yield self._changed_value(kind, (v, w), "type", old, new)
            met = {int(there[v]) for v in left}
            for w in right:
                if w not in met:
                    yield Change(kind, "added", b.value_names[w], "", "", "", str(b.type_of(w)), tensors=(-1, w))
            shared = [int(there[v]) for v in left if int(there[v]) in right]
            order = [w for w in right if w in met]
            if shared != order:
                before, after = (shortened(", ".join(b.value_names[w] for w in ws), LONGEST) for ws in (shared, order))
                yield Change(kind, "changed", "", f"{kind}s", "order", before, after)

    def _changed(self, kind: str, nodes: tuple[int, int], detail: str, old: str, new: str) -> Change:
        op, name = _node(self.graphs[0], nodes[0])
        how = HOW[self.matching.node_how[nodes[0]]]
        return Change(
            kind, "changed", name, op, detail, shortened(old, LONGEST), shortened(new, LONGEST), how=how, nodes=nodes
        )

    def _changed_value(self, kind: str, values: tuple[int, int], detail: str, old: str, new: str) -> Change:
        name, how = self.graphs[0].value_names[values[0]], HOW[self.matching.value_how[values[0]]]
        return Change(
            kind, "changed", name, "", detail, shortened(old, LONGEST), shortened(new, LONGEST), how=how, tensors=values
        )


def _pass_on(graph: Graph, state: NDArray[np.uint8]) -> None:
    """Let what reads a changed constant count as changed: constants are drawn inside their readers."""
    waiting = np.flatnonzero((state == CHANGED) & graph.folded).tolist()
    while waiting:
        made = graph.node_outputs(waiting.pop())
        for reader in {reader for value in made[made >= 0].tolist() for reader in graph.consumers(value).tolist()}:
            if state[reader] == SAME:
                state[reader] = CHANGED
                if graph.folded[reader]:
                    waiting.append(reader)


def inverse(there: Ints, count: int) -> Ints:
    """Return the column that leads back."""
    back = np.full(count, -1, np.int32)
    mine = np.flatnonzero(there >= 0)
    back[there[mine]] = mine
    return back


def _node(graph: Graph, node: int) -> tuple[str, str]:
    """Return a node's op and its name, or that of what it makes."""
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
    """Return whether a value is a weight without elements, which says the same as an input left out."""
    kind = graph.type_of(value)
    return graph.value_kind[value] == INITIALIZER and kind.shape is not None and 0 in kind.shape


def _sources(graph: Graph, value: int, other: Ints) -> set[int]:
    """Return the values that nodes without counterpart make a value of; weights and constants left out."""
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


def _alike_types(a: Graph, b: Graph) -> frozenset[tuple[int, int]]:
    """Return the pairs of known types, as the graphs number them, that are equal."""
    number = {kind: index for index, kind in enumerate(b.known_types)}
    return frozenset((index, number[kind]) for index, kind in enumerate(a.known_types) if kind in number)


def _held_alike(old: _Weight | None, new: _Weight | None) -> bool:
    """Return whether two weights hold equal bytes themselves; not, of those that have to be looked at more closely."""
    if not isinstance(old, onnx.TensorProto) or not isinstance(new, onnx.TensorProto):
        return False
    return old.HasField("raw_data") and new.HasField("raw_data") and bool(old.raw_data == new.raw_data)


def _types(a: Graph, b: Graph, code: int) -> tuple[ValueType, ValueType]:
    old, new = divmod(code, max(len(b.known_types), 1))
    return a.known_types[old], b.known_types[new]


def _compatible(one: ValueType, other: ValueType) -> bool:
    """Return whether two types may be the same as far as they are known; names of dimensions do not matter."""
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


_Weight = onnx.TensorProto | onnx.SparseTensorProto


class _Protos:
    """The weights of a graph by value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._by_value: dict[int, _Weight] = {}
        for frame in graph.subgraphs:
            every = [*frame.graph.initializer, *frame.graph.sparse_initializer]
            self._by_value.update(zip(frame.weights.tolist(), every, strict=True))

    def of(self, value: int) -> _Weight | None:
        return self._by_value.get(value)

    def kind(self, value: int) -> str:
        """Return type and shape, with "sparse" if it is."""
        sparse = "sparse " if isinstance(self.of(value), onnx.SparseTensorProto) else ""
        return f"{sparse}{self.graph.type_of(value)}"

    def what(self, value: int) -> str:
        return f"weight {quoted(self.graph.value_names[value])} of {label_of(self.graph.model)}"

    def pieces(self, tensor: onnx.TensorProto, what: str) -> tuple[object, Iterator[bytes | memoryview]]:
        """Return where the bytes of a weight lie, for equality, and the bytes in pieces of `CHUNK`."""
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            extent = storage_of(self.graph.model).extent(tensor, what)
            source = extent.source
            at = (source.path, extent.offset) if source.path is not None else (id(source), extent.offset)
            return at, extent.stream(CHUNK)
        data = memoryview(tensors.raw_bytes(tensor, what))
        return None, (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))


def _tell(progress: Progress | None, part: float, name: str) -> None:
    if progress is not None:
        progress(part, f"comparing {quoted(name)}")


def _values_differ(a: _Protos, v: int, b: _Protos, w: int, check: Callable[[], None]) -> str:
    """Return how the values of two weights of one type differ; empty if they do not."""
    old, new = a.of(v), b.of(w)
    if not isinstance(old, onnx.TensorProto) or not isinstance(new, onnx.TensorProto):
        return "" if _nameless(old) == _nameless(new) else "other values"
    if old.data_type == onnx.TensorProto.STRING:
        strings = tensors.values(old, a.what(v)), tensors.values(new, b.what(w))
        count = int(np.sum(strings[0] != strings[1]))
        return f"{count} of {strings[0].size} differ" if count else ""
    (at, mine), (there, others) = a.pieces(old, a.what(v)), b.pieces(new, b.what(w))
    if at is not None and at == there:
        return ""
    difference = _Difference(old.data_type)
    for one, other in _in_step(mine, others):
        difference.add(one, other)
        check()
    return difference.message


def _nameless(weight: _Weight | None) -> bytes:
    plain = onnx.SparseTensorProto()
    if isinstance(weight, onnx.SparseTensorProto):
        plain.CopyFrom(weight)
        for field in ("name", "doc_string"):
            plain.values.ClearField(field)  # noqa: PD011 (a field of the proto)
            plain.indices.ClearField(field)
    serialized: bytes = plain.SerializeToString(deterministic=True)
    return serialized


def _in_step(
    mine: Iterator[bytes | memoryview], others: Iterator[bytes | memoryview]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Return the bytes of both in equal pieces of `CHUNK`, the last shorter; a stream may give less than was asked."""
    for pair in zip(_filled(mine), _filled(others), strict=True):
        one, other = (np.frombuffer(piece, np.uint8) for piece in pair)
        yield one, other


def _filled(pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    held = bytearray()
    for piece in pieces:
        if not held and len(piece) == CHUNK:
            yield piece
            continue
        held += piece
        if len(held) >= CHUNK:
            yield bytes(held[:CHUNK])
            del held[:CHUNK]
    if held:
        yield bytes(held)


class _Difference:
    """How many elements differ, and by how much."""

    def __init__(self, data_type: int) -> None:
        packed = tensors.stored_bytes(onnx.TensorProto(data_type=data_type, dims=[8]), "a weight") < 8
        self._dtype = None if packed else tensors.numpy_dtype(data_type)
        self._count = self._total = 0
        self._most = 0.0
        self._differ = False

    def add(self, one: NDArray[np.uint8], other: NDArray[np.uint8]) -> None:
        size = 1 if self._dtype is None else self._dtype.itemsize
        self._total += len(one) // size
        if np.array_equal(one, other):
            return
        self._differ = True
        if self._dtype is None:
            return
        old, new = one.view(self._dtype), other.view(self._dtype)
        differ = np.any(one.reshape(-1, size) != other.reshape(-1, size), axis=1)
        self._count += int(differ.sum())
        wide = np.complex128 if self._dtype.kind == "c" else np.float64
        apart = np.abs(old[differ].astype(wide) - new[differ].astype(wide))
        self._most = max(self._most, float(np.max(apart, initial=0.0, where=np.isfinite(apart))))

    @property
    def message(self) -> str:
        if not self._differ:
            return ""
        if self._dtype is None:
            return "other values"
        return f"{self._count:,} of {self._total:,} differ, by at most {self._most:.3g}"


def _whole(left: Model, right: Model) -> Iterator[Change]:
    """Return what differs between the models as a whole."""
    tables: list[tuple[str, list[dict[str, str]]]] = [
        ("function", [_functions(model) for model in (left, right)]),
        (
            "opset",
            [
                {domain or "ai.onnx": str(version) for domain, version in Graph.of(m).opsets.items()}
                for m in (left, right)
            ],
        ),
        ("model", [{"ir_version": str(model.proto.ir_version)} for model in (left, right)]),
        ("metadata", [_metadata(model) for model in (left, right)]),
    ]
    for kind, (mine, others) in tables:
        for key in dict.fromkeys([*mine, *others]):
            old, new = mine.get(key), others.get(key)
            if old == new:
                continue
            what: What = "removed" if new is None else "added" if old is None else "changed"
            if kind == "function" and what == "changed":
                yield Change(kind, what, key, "", "", "one body", "another")
            elif kind == "function":
                yield Change(kind, what, key)
            else:
                yield Change(kind, what, key, "", "", shortened(old or "", LONGEST), shortened(new or "", LONGEST))


def _functions(model: Model) -> dict[str, str]:
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


def _scopes_alike(tree: Scopes, other: Scopes, there: Ints) -> Ints:
    """Return for each group the one of the other tree with which it shares most of its nodes (by Dice's coefficient).

    One of the same path wins if it shares any.
    """
    count, others = len(tree.scope_parent), len(other.scope_parent)
    matched = np.flatnonzero(there >= 0)
    direct = tree.node_scope[matched].astype(np.int64) * others + other.node_scope[there[matched]]
    direct, nodes = np.unique(direct, return_counts=True)
    codes, shares = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for mine in _ancestors(direct // others, tree.scope_parent):
        for theirs in _ancestors(direct % others, other.scope_parent):
            both = (mine >= 0) & (theirs >= 0)
            codes.append(mine[both] * others + theirs[both])
            shares.append(nodes[both])
    pairs, index = np.unique(np.concatenate(codes), return_inverse=True)
    shared = np.bincount(index, np.concatenate(shares), minlength=len(pairs))
    mine, theirs = pairs // others, pairs % others
    sizes = [
        upward(np.add, np.bincount(each.node_scope, minlength=len(each.scope_parent)), each.scope_parent)
        for each in (tree, other)
    ]
    score = 2 * shared / (sizes[0][mine] + sizes[1][theirs])
    same = [
        tree.scope_path[g] == other.scope_path[h] != "" for g, h in zip(mine.tolist(), theirs.tolist(), strict=True)
    ]
    score += np.asarray(same, float)
    order = np.lexsort((-theirs, score, mine))
    found = np.full(count, -1, np.int32)
    found[mine[order]] = theirs[order]  # the last of each group stays, which is the best
    found[0] = 0
    return found


def _ancestors(groups: NDArray[np.int64], parent: Ints) -> Iterator[NDArray[np.int64]]:
    """Return groups, their parents, those of these, until all are above the root: −1."""
    while np.any(groups >= 0):
        yield groups
        groups = np.where(groups >= 0, parent[groups], -1).astype(np.int64)
