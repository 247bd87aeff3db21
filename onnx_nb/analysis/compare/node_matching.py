"""Which node and tensor of one graph is which of another: by names where they hold, by structure where they do not.

A name is believed where what surrounds it agrees: exporters number tensors, so a node put in front may shift the names
of all that follow. What is left is told by the weights it reads, numbered by all that leads to it and by all that
follows (value numbering, as compilers do), then found beside what is matched, and at last by its order; each pass is
linear in what is left.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.errors import AlignmentError, OnnxNbError
from onnx_nb.analysis.formatting import closest, plain_text, quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.graph.node_table import LARGE
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import label_of, storage_of

if TYPE_CHECKING:
    from onnx_nb.analysis.model.protofields import Ints

HOW: Final = ("", "mapping", "name", "weights", "structure", "neighbors", "order", "place")
"""How a match was found; weights: both read the same; place: another operator between the same tensors."""
NONE, MAPPING, NAME, WEIGHTS, STRUCTURE, NEIGHBORS, ORDER, PLACE = range(len(HOW))

ROUNDS: Final = 60
"""What is not matched after so many passes over the rest stays unmatched."""
ALIGNED: Final = 4_000_000
"""Sequences are aligned if the product of their lengths is no more."""
TELLING: Final = 16
"""Weights of fewer bytes are alike by chance."""
COMMUTATIVE: Final = frozenset(("Add", "Mul", "Sum", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"))
"""Operators of ONNX's own whose inputs may stand in any order."""
ROW: Final = 8
"""At most so many nodes are one node in the other model."""
SAMPLE: Final = 256
"""So many bytes of weights tell nodes apart that are alike in everything else."""

Attributes = dict[str, tuple[Any, onnx.AttributeProto]]
Link = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Matching:
    """The counterpart in the candidate of each node and value of the reference, −1 for none."""

    node: Ints
    value: Ints
    node_how: NDArray[np.uint8]
    """Index into `HOW`."""
    value_how: NDArray[np.uint8]
    attributes: Sequence[tuple[int, int]]
    """Matched nodes whose attributes differ."""
    frames: Sequence[tuple[int, int]]
    """Frames that belong together: the main graphs, and bodies of matched nodes."""


def match(reference: Graph, candidate: Graph, mapping: Mapping[str, str | None] | None = None) -> Matching:
    """Match the nodes and values of two graphs, one to one.

    Parameters
    ----------
    reference, candidate
        Two graphs; bodies are matched where their owners are.
    mapping
        Names of nodes or tensors of the main graph that belong together, reference first; they win over everything. To
        ``None`` for what has no counterpart.

    Raises
    ------
    AlignmentError
        If a name in ``mapping`` is not in its graph, is of the other kind, or is mapped to twice.

    Examples
    --------
    >>> import onnx.parser
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) '
    >>> graphs = [Graph.of(onnx.parser.parse_model(head + body)) for body in
    ...           ("{ y = Relu(x)  z = Neg(y) }", "{ a = Relu(x)  b = Abs(a)  z = Neg(b) }")]
    >>> match(*graphs).node.tolist()
    [0, 2]
    """
    matcher = _Matcher(reference, candidate)
    matcher.explicit(mapping or {})
    waiting = [(0, 0)]
    frames = []
    while waiting:
        pair = waiting.pop()
        frames.append(pair)
        matcher.frame(*pair)
        waiting += matcher.bodies(pair[0])
    a, b = matcher.halves
    changed = [(n, m) for n, m in enumerate(a.node) if m >= 0 and a.attributes[n] != b.attributes[m]]
    return Matching(
        np.asarray(a.node, np.int32),
        np.asarray(a.value, np.int32),
        np.asarray(matcher.node_how, np.uint8),
        np.asarray(matcher.value_how, np.uint8),
        changed,
        sorted(frames),
    )


def commutative(graph: Graph) -> NDArray[np.bool_]:
    """Describe, of each node whether its inputs may stand in any order."""
    by_operator = [op in COMMUTATIVE and not domain for op, domain in graph.operators]
    return np.asarray(by_operator, bool)[graph.op_index]


def attributes_of(graph: Graph, node: int) -> Attributes:
    """Return what tells a node's attributes apart, by name: without bodies, and without what is the default anyway."""
    op, domain = graph.operators[graph.op_index[node]]
    defaults = operators.attribute_defaults(op, domain, graph.opsets.get(domain, 0))
    return _canonical(graph.nodes[node].attribute, defaults)


def _canonical(attributes: Iterable[onnx.AttributeProto], defaults: Mapping[str, Any]) -> Attributes:
    found: Attributes = {}
    for attribute in attributes:
        if attribute.HasField("g") or len(attribute.graphs):
            continue
        name = plain_text(attribute.name)
        value = _content(attribute)
        if name not in defaults or value != _default(defaults[name]):
            found[name] = value, attribute
    return found


def _content(attribute: onnx.AttributeProto) -> Hashable:
    """Return an attribute's value for comparison; what takes room as its hash."""
    kind = onnx.AttributeProto
    if attribute.ref_attr_name:
        return "reference", plain_text(attribute.ref_attr_name)
    match attribute.type:
        case kind.INT:
            return attribute.i
        case kind.FLOAT:
            return np.float32(attribute.f).tobytes()
        case kind.STRING:
            return "string", plain_text(attribute.s)
        case kind.INTS:
            return "ints", tuple(attribute.ints)
        case kind.FLOATS:
            return "floats", np.asarray(attribute.floats, np.float32).tobytes()
        case kind.TENSOR if attribute.t.data_location != onnx.TensorProto.EXTERNAL:
            tensor = attribute.t
            try:
                values = tensors.values(tensor, "an attribute")
            except OnnxNbError:  # a broken one is what it is, byte by byte
                return "tensor", hashlib.sha256(tensor.SerializeToString()).digest()
            data = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
            return "tensor", tensor.data_type, tuple(tensor.dims), hashlib.sha256(data).digest()
        case _:
            plain = onnx.AttributeProto()
            plain.CopyFrom(attribute)
            plain.ClearField("doc_string")
            return "other", hashlib.sha256(plain.SerializeToString(deterministic=True)).digest()


def _default(value: Any) -> Hashable:
    if isinstance(value, str):
        return "string", value
    if isinstance(value, float):
        return np.float32(value).tobytes()
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], float):
            return "floats", np.asarray(value, np.float32).tobytes()
        return "ints", tuple(value)
    return value if isinstance(value, int) else ("default",)


_WEIGHT, _MATCHED, _MADE, _ONLY, _END = range(5)


def _code(kind: int, number: int, slot: int = 0, place: int = 0) -> int:
    """Write a link as one number: many of them are compared and sorted."""
    return kind | slot << 3 | place << 23 | number << 43


class _Numbers:
    """Equal things get equal numbers, in both graphs."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def __call__(self, thing: Hashable) -> int:
        return self._known.setdefault(thing, len(self._known))


class _Half:
    """One of the graphs in lists, which single steps are faster on than on arrays."""

    def __init__(self, graph: Graph, number: _Numbers) -> None:
        self.graph = graph
        op = [number(("op", key[0], key[1])) for key in graph.operators]
        self.op = [op[index] for index in graph.op_index.tolist()]
        self.commutes = commutative(graph).tolist()
        self.attributes = self._attributes(number)
        kinds = [number(("type", str(kind))) for kind in graph.known_types]
        self.type = [kinds[index] for index in graph.type_index.tolist()]
        self.names, self.value_names = graph.names, graph.value_names
        self.kind, self.producer = graph.value_kind.tolist(), graph.producer.tolist()
        self.inputs = _lists(graph.in_ptr, graph.in_value)
        self.outputs = _lists(graph.out_ptr, graph.out_value)
        read = graph.in_value
        node = np.repeat(np.arange(graph.node_count), np.diff(graph.in_ptr))
        by_value = np.argsort(read, kind="stable")
        by_value = by_value[read[by_value] >= 0]
        self.reader_node = node[by_value].tolist()
        self.reader_slot = (by_value - graph.in_ptr[node[by_value]]).tolist()
        self.reader_ptr = np.searchsorted(read[by_value], np.arange(graph.value_count + 1)).tolist()
        weight = (read >= 0) & (graph.value_kind == INITIALIZER)[read] if graph.value_count else read >= 0
        self.with_weights = set(node[weight].tolist())
        self.slot = [0] * graph.value_count
        for made in self.outputs:
            for slot, value in enumerate(made):
                if slot and value >= 0:
                    self.slot[value] = slot
        self.node = [-1] * graph.node_count
        self.value = [-1] * graph.value_count
        self._protos: dict[int, dict[int, onnx.TensorProto]] = {}

    def _attributes(self, number: _Numbers) -> list[int]:
        graph = self.graph
        found = [-1] * graph.node_count
        seen: dict[tuple[int, bytes], int] = {}
        index = graph.op_index.tolist()
        defaults = [
            operators.attribute_defaults(op, domain, graph.opsets.get(domain, 0)) for op, domain in graph.operators
        ]
        empty = number(("attributes",))

        def numbered(attributes: Iterable[onnx.AttributeProto], op: int) -> int:
            content = _canonical(attributes, defaults[op])
            return number(("attributes", *((name, content[name][0]) for name in sorted(content))))

        for node, serialized in graph.with_attributes():
            key = index[node], serialized
            if key not in seen:
                seen[key] = numbered(onnx.NodeProto.FromString(serialized).attribute, index[node])
            found[node] = seen[key]
        for node, proto in enumerate(graph.nodes):
            if found[node] < 0:
                found[node] = empty
            if proto.ByteSize() >= LARGE:  # of those the columns have only the small attributes
                found[node] = numbered(proto.attribute, index[node])
        return found

    def readers(self, value: int) -> Iterator[Link]:
        """Return (reader, slot of its input) for a value."""
        for at in range(self.reader_ptr[value], self.reader_ptr[value + 1]):
            yield self.reader_node[at], self.reader_slot[at]

    def consumers(self, node: int) -> Iterator[tuple[int, int, int]]:
        """Return (slot of the output, reader, slot of its input) for all that a node makes."""
        for slot, value in enumerate(self.outputs[node]):
            if value >= 0:
                for reader, place in self.readers(value):
                    yield slot, reader, place

    def weights(self, node: int) -> list[int]:
        if node not in self.with_weights:
            return []
        return [value for value in self.inputs[node] if value >= 0 and self.kind[value] == INITIALIZER]

    def looks(self, value: int) -> Hashable:
        """Return the type of a weight and how it begins."""
        return self.type[value], self.sample(value)

    def sample(self, value: int) -> bytes:
        """Return the first bytes of a weight, which tell it from others of its type in nearly all cases."""
        graph = self.graph
        frame = int(graph.value_subgraph[value])
        if frame not in self._protos:
            place = graph.subgraphs[frame]
            self._protos[frame] = dict(zip(place.weights.tolist(), place.graph.initializer, strict=False))
        tensor = self._protos[frame].get(value)
        if tensor is None:
            return b""
        what = f"weight {quoted(self.value_names[value])} of {label_of(graph.model)}"
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                return storage_of(graph.model).extent(tensor, what).array()[:SAMPLE].tobytes()
            return tensors.raw_bytes(tensor, what)[:SAMPLE]
        except (OnnxNbError, ValueError):  # not there, or strings: other things must tell the nodes apart
            return b""


def _lists(ptr: Ints, values: Ints) -> list[list[int]]:
    flat = values.tolist()
    return [flat[start:stop] for start, stop in itertools.pairwise(ptr.tolist())]


class _Matcher:
    def __init__(self, reference: Graph, candidate: Graph) -> None:
        number = _Numbers()
        self.halves = _Half(reference, number), _Half(candidate, number)
        self.node_how = [NONE] * reference.node_count
        self.value_how = [NONE] * reference.value_count
        self._forbidden: tuple[set[int], set[int]] = set(), set()
        """Nodes and values of the reference that have no counterpart, as the mapping says."""
        self._ends: tuple[dict[int, int], dict[int, int]] = {}, {}
        """The number of the pair of outputs to which a value belongs, in each graph."""
        self._subgraphs = (0, 0)

    # ------------------------------------------------------------- matches

    def _pair(self, n: int, m: int, how: int) -> bool:
        a, b = self.halves
        if a.node[n] >= 0 or b.node[m] >= 0 or n in self._forbidden[0]:
            return False
        a.node[n], b.node[m], self.node_how[n] = m, n, how
        for v, w in zip(a.outputs[n], b.outputs[m], strict=False):
            if v >= 0 and w >= 0:
                self._pair_values(v, w, how)
        return True

    def _pair_values(self, v: int, w: int, how: int) -> None:
        a, b = self.halves
        if a.value[v] < 0 and b.value[w] < 0 and v not in self._forbidden[1]:
            a.value[v], b.value[w] = w, v
            named = how != MAPPING and a.value_names[v] == b.value_names[w]
            self.value_how[v] = NAME if named else how

    def explicit(self, mapping: Mapping[str, str | None]) -> None:
        """Match what is said to belong together: names of tensors, or else of nodes."""
        tables = [_table(half, names) for half in self.halves for names in ("values", "nodes")]
        for old, new in mapping.items():
            values, nodes, other_values, other_nodes = tables
            if old not in values and old not in nodes:
                raise _unknown(old, "reference", self.halves[0])
            if new is not None and new not in other_values and new not in other_nodes:
                raise _unknown(new, "candidate", self.halves[1])
            if new is None:
                if old in nodes:
                    self._forbidden[0].add(nodes[old])
                if old in values:
                    self._forbidden[1].add(values[old])
                    self._forbidden[0].update({self.halves[0].producer[values[old]]} - {-1})
            elif old in values and new in other_values:
                self._explicit_values(old, values[old], new, other_values[new])
            elif old in nodes and new in other_nodes:
                if not self._pair(nodes[old], other_nodes[new], MAPPING):
                    raise _twice(old, new)
            else:
                raise AlignmentError(f"{quoted(old)} and {quoted(new)} are not both tensors or both nodes.")

    def _explicit_values(self, old: str, v: int, new: str, w: int) -> None:
        a, b = self.halves
        if a.value[v] == w and self.value_how[v] == MAPPING:
            return
        if a.value[v] >= 0 or b.value[w] >= 0:
            raise _twice(old, new)
        self._pair_values(v, w, MAPPING)
        n, m = a.producer[v], b.producer[w]
        if n >= 0 and m >= 0 and a.op[n] == b.op[m] and a.slot[v] == b.slot[w]:
            self._pair(n, m, MAPPING)

    # -------------------------------------------------------------- frames

    def frame(self, f: int, g: int) -> None:
        """Match the main graphs, or two bodies whose owners are matched."""
        self._subgraphs = f, g
        self._match_ends(f, g)
        self._by_names()
        for _ in range(ROUNDS):
            left = self._left()
            if not all(left):
                break
            steps = (self._by_weights, self._cones, self._beside, self._same_names, self._in_order, self._in_place)
            if not any(step(left) for step in steps):
                break
        self._rest_of_values()

    def bodies(self, f: int) -> Iterator[tuple[int, int]]:
        """Return the pairs of bodies of matched nodes of a frame."""
        a, b = (half.graph for half in self.halves)
        place = a.subgraphs[f]
        for n in range(place.start, place.stop):
            m = self.halves[0].node[n]
            if m < 0 or not a.bodies(n):
                continue
            others = {b.subgraphs[other].attribute: other for other in b.bodies(m)}
            for inner in a.bodies(n):
                other = others.get(a.subgraphs[inner].attribute)
                if other is not None:
                    yield inner, other

    def _match_ends(self, f: int, g: int) -> None:
        a, b = self.halves
        places = a.graph.subgraphs[f], b.graph.subgraphs[g]
        if f:  # inputs and outputs of bodies are known by their position
            inputs = list(zip(places[0].inputs.tolist(), places[1].inputs.tolist(), strict=False))
            outputs = list(zip(places[0].outputs.tolist(), places[1].outputs.tolist(), strict=False))
        else:
            inputs = self._ports(places[0].inputs.tolist(), places[1].inputs.tolist())
            outputs = self._ports(places[0].outputs.tolist(), places[1].outputs.tolist())
        for v, w in inputs:
            self._pair_values(v, w, STRUCTURE)
        self._ends = {}, {}
        for number, pair in enumerate(outputs):
            for ends, value in zip(self._ends, pair, strict=True):
                if value >= 0:
                    ends.setdefault(value, number)

    def _ports(self, mine: Sequence[int], others: Sequence[int]) -> list[Link]:
        """Pair inputs or outputs: by name, then by type in their order, then by their order if as many are left."""
        a, b = self.halves
        named = {b.value_names[w]: w for w in others if w >= 0 and b.value[w] < 0}
        free = dict.fromkeys(v for v in mine if v >= 0 and a.value[v] < 0)
        pairs = [(v, named.pop(a.value_names[v])) for v in free if a.value_names[v] in named]
        for by_type in (True, False):
            done = {v for v, _ in pairs}, {w for _, w in pairs}
            rest = [v for v in free if v not in done[0]]
            other = [w for w in others if w >= 0 and b.value[w] < 0 and w not in done[1]]
            if by_type:
                pairs += _buckets(rest, other, a.type.__getitem__, b.type.__getitem__)
            elif len(rest) == len(other):
                pairs += zip(rest, other, strict=True)
        return pairs

    def _left(self) -> tuple[list[int], list[int]]:
        found = []
        for half, frame in zip(self.halves, self._subgraphs, strict=True):
            order = half.graph.order if frame == 0 else half.graph.subgraph_order(frame)
            found.append([node for node in order.tolist() if half.node[node] < 0])
        return found[0], found[1]

    # --------------------------------------------------------------- names

    def _by_names(self) -> None:
        """Match nodes of one name and operator, unless more of what they read and feed contradicts than agrees."""
        a, b = self.halves
        pairs: dict[int, int] = {}
        back: dict[int, int] = {}
        left = self._left()
        for names in (_node_names, _output_names):
            mine, others = names(a, left[0]), names(b, left[1])
            for name, n in mine.items():
                m = others.get(name, -1)
                if n >= 0 and m >= 0 and n not in pairs and m not in back and a.op[n] == b.op[m]:
                    pairs[n], back[m] = m, n
        value = self._supposed(pairs)
        there = {w: v for v, w in value.items()}
        while pairs:
            doubtful = self._doubtful(pairs, back, value, there)
            if not doubtful:
                break
            for n in doubtful:
                m = pairs.pop(n)
                del back[m]
                for v, w in zip(a.outputs[n], b.outputs[m], strict=False):
                    if value.get(v, -2) == w:
                        del value[v], there[w]
        for n, m in pairs.items():
            self._pair(n, m, NAME)

    def _supposed(self, pairs: Mapping[int, int]) -> dict[int, int]:
        """Return the values that belong together if the pairs of nodes do, and weights of one name."""
        a, b = self.halves
        f, g = self._subgraphs
        value = {v: w for v, w in enumerate(a.value) if w >= 0}
        taken = set(value.values())
        weights = {b.value_names[w]: w for w in b.graph.subgraphs[g].weights.tolist()}
        supposed = [(v, weights.get(a.value_names[v], -1)) for v in a.graph.subgraphs[f].weights.tolist()]
        for n, m in pairs.items():
            supposed += zip(a.outputs[n], b.outputs[m], strict=False)
        for v, w in supposed:
            if v >= 0 and w >= 0 and v not in value and w not in taken:
                value[v] = w
                taken.add(w)
        return value

    def _doubtful(
        self, pairs: Mapping[int, int], back: Mapping[int, int], value: Mapping[int, int], there: Mapping[int, int]
    ) -> list[int]:
        a, b = self.halves
        balance: Counter[int] = Counter()
        contradicted: set[int] = set()
        unsure: set[int] = set()
        agreed: set[int] = set()
        for n, m in pairs.items():
            for v, w in zip(a.inputs[n], b.inputs[m], strict=False):
                if v < 0 or w < 0:
                    continue
                makers = a.producer[v], back.get(b.producer[w], -1)
                if value.get(v, -1) == w:
                    weight = 2 if a.kind[v] == INITIALIZER else 1  # names of weights are those of parameters
                    balance[n] += weight
                    balance[makers[0]] += weight
                    agreed.update((n, makers[0]))
                elif v in value and w in there:  # both belong to something else
                    weight = 2 if a.kind[v] == INITIALIZER else 1
                    balance[n] -= weight
                    contradicted.add(n)
                    for maker in {maker for maker in makers if maker in pairs}:
                        balance[maker] -= weight
                        contradicted.add(maker)
                else:
                    unsure.add(n)
        for v, number in self._ends[0].items():
            n = a.producer[v]
            m = pairs.get(n, -1)
            if m >= 0:
                same = any(self._ends[1].get(w, -1) == number for w in b.outputs[m])
                balance[n] += 1 if same else 0
                if same:
                    agreed.add(n)
        return [
            n
            for n in pairs
            if (n in contradicted and balance[n] < 0) or (n not in agreed and (n in contradicted or n in unsure))
        ]

    def _same_names(self, left: tuple[list[int], list[int]]) -> bool:
        """Match what has one name and operator after all."""
        a, b = self.halves
        found = False
        for names in (_node_names, _output_names):
            others = names(b, left[1])
            for name, n in names(a, left[0]).items():
                m = others.get(name, -1)
                if n < 0 or m < 0 or a.op[n] != b.op[m] or (_NUMBERED.fullmatch(name) and not self._shared(n, m)):
                    continue
                found |= self._pair(n, m, NAME)
        return found

    def _shared(self, n: int, m: int) -> bool:
        """Return whether two nodes read or feed anything that is matched, in the same place; or have nothing around."""
        a, b = self.halves
        read = [(v, w) for v, w in zip(a.inputs[n], b.inputs[m], strict=False) if v >= 0 and w >= 0]
        fed = {(slot, a.node[reader], place) for slot, reader, place in a.consumers(n)}
        other = set(b.consumers(m))
        ends = {self._ends[0].get(v, -1) for v in a.outputs[n]} & {self._ends[1].get(w, -1) for w in b.outputs[m]}
        return any(a.value[v] == w for v, w in read) or bool(fed & other) or bool(ends - {-1}) or not (read or fed)

    # ------------------------------------------------------------- weights

    def _by_weights(self, left: tuple[list[int], list[int]]) -> bool:
        """Match the only nodes of an operator that read a weight of the same bytes, or of the same telling name."""
        found = False
        for tell in (_bytes_of, _telling_name):
            readers = [self._only_readers(side, left[side], tell) for side in (0, 1)]
            for key, n in readers[0].items():
                m = readers[1].get(key, -1)
                if n >= 0 and m >= 0:
                    found |= self._pair(n, m, WEIGHTS)
        return found

    def _only_readers(
        self, side: int, nodes: Iterable[int], tell: Callable[[_Half, int], Hashable]
    ) -> dict[Hashable, int]:
        """Return the node for each operator and weight, −1 where there are several, or several such weights."""
        half = self.halves[side]
        found: dict[Hashable, int] = {}
        weight: dict[Hashable, int] = {}
        for node in nodes:
            if half.node[node] >= 0:
                continue
            for value in half.weights(node):
                told = tell(half, value)
                if told is None:
                    continue
                key = half.op[node], told
                again = found.setdefault(key, node) != node or weight.setdefault(key, value) != value
                if again:
                    found[key] = -1
        return found

    # ----------------------------------------------------------- structure

    def _cones(self, left: tuple[list[int], list[int]]) -> bool:
        """Match nodes to which the same leads and from which the same follows; then those of which either is so."""
        up, down = self._upward(left), self._downward(left)
        both = [{n: (x, down[side][n]) for n, x in up[side].items()} for side in (0, 1)]
        for classes, single in ((both, True), (both, False), (up, True), (down, True), (up, False), (down, False)):
            mine, others = _grouped(left[0], classes[0]), _grouped(left[1], classes[1])
            found = False
            for key, nodes in mine.items():
                other = others.get(key, ())
                if len(nodes) == len(other) and (len(nodes) == 1) == single:
                    found |= self._alike(nodes, list(other), STRUCTURE)
            if found:
                return True
        return False

    def _alike(self, mine: list[int], others: list[int], how: int) -> bool:
        """Match as many nodes as there are, alike in everything that was looked at: by names, by weights, in order."""
        found = False
        if len(mine) > 1:
            a, b = self.halves
            for tell in (_own_name, _weight_names, _weight_samples):
                keys = {n: tell(a, n) for n in mine}, {m: tell(b, m) for m in others}
                pairs = _buckets(mine, others, keys[0].__getitem__, keys[1].__getitem__, single=True)
                for n, m in pairs:
                    found |= self._pair(n, m, how)
                mine = [n for n in mine if a.node[n] < 0]
                others = [m for m in others if b.node[m] < 0]
        for n, m in zip(mine, others, strict=False):
            found |= self._pair(n, m, how)
        return found

    def _upward(self, left: tuple[list[int], list[int]]) -> list[dict[int, int]]:
        """Return each node a number for its operator and all that leads to it, the same in both graphs."""
        number = _Numbers()
        found = []
        for side, half in enumerate(self.halves):
            classes: dict[int, int] = {}
            kind, value_there, producer, types = half.kind, half.value, half.producer, half.type
            for node in left[side]:
                key = [half.op[node], half.attributes[node]]
                for value in half.inputs[node]:
                    if value < 0:
                        key.append(-1)
                    elif kind[value] == INITIALIZER:
                        key.append(_code(_WEIGHT, types[value]))
                    elif value_there[value] >= 0:
                        key.append(_code(_MATCHED, value if side == 0 else value_there[value]))
                    elif producer[value] in classes:
                        key.append(_code(_MADE, classes[producer[value]], half.slot[value]))
                    else:
                        key.append(_code(_ONLY, value, side))
                classes[node] = number(tuple(key[:2] + sorted(key[2:]) if half.commutes[node] else key))
            found.append(classes)
        return found

    def _downward(self, left: tuple[list[int], list[int]]) -> list[dict[int, int]]:
        """Return each node a number for its operator, its weights' types and all that follows from it."""
        number = _Numbers()
        found = []
        for side, half in enumerate(self.halves):
            classes: dict[int, int] = {}
            ends, there = self._ends[side], half.node
            ptr, reader_node, reader_slot = half.reader_ptr, half.reader_node, half.reader_slot
            for node in reversed(left[side]):
                reads = []
                for slot, value in enumerate(half.outputs[node]):
                    if value < 0:
                        continue
                    if value in ends:
                        reads.append(_code(_END, ends[value], slot))
                    for at in range(ptr[value], ptr[value + 1]):
                        reader = reader_node[at]
                        place = 0 if half.commutes[reader] else reader_slot[at]
                        if there[reader] < 0:
                            reads.append(_code(_MADE, classes.get(reader, 0), slot, place))
                        else:
                            mine = reader if side == 0 else there[reader]
                            reads.append(_code(_MATCHED, mine, slot, place))
                reads.sort()
                types = [half.type[value] for value in half.weights(node)]
                classes[node] = number((half.op[node], half.attributes[node], len(types), *types, *reads))
            found.append(classes)
        return found

    def _beside(self, left: tuple[list[int], list[int]]) -> bool:
        """Match nodes of one operator that share most with what is matched around them."""
        found = False
        for order in (left[0], left[0][::-1]):
            for n in order:
                if self.halves[0].node[n] >= 0:
                    continue
                m = self._best(0, n)
                if m >= 0 and self._best(1, m) == n:
                    found |= self._pair(n, m, NEIGHBORS)
        return found

    def _best(self, side: int, node: int) -> int:
        """Return the unmatched node of the other graph that shares most inputs and readers; −1 if ambiguous."""
        half, other = self.halves[side], self.halves[1 - side]
        votes: Counter[int] = Counter()
        for slot, value in enumerate(half.inputs[node]):
            there = half.value[value] if value >= 0 and half.kind[value] != INITIALIZER else -1
            if there >= 0:
                anywhere = half.commutes[node]
                votes.update({reader for reader, place in other.readers(there) if place == slot or anywhere})
        for slot, reader, place in half.consumers(node):
            there = half.node[reader]
            if there >= 0:
                read = other.inputs[there]
                for value in read if half.commutes[reader] else read[place : place + 1]:
                    if value >= 0 and other.slot[value] == slot:
                        votes[other.producer[value]] += 1
        ends = self._ends
        for value in half.outputs[node]:
            if value in ends[side]:
                number = ends[side][value]
                votes.update({other.producer[w] for w, there in ends[1 - side].items() if there == number})
        good = [
            (
                count,
                half.names[node] == other.names[m] != "",
                half.attributes[node] == other.attributes[m],
                [half.type[v] for v in half.weights(node)] == [other.type[w] for w in other.weights(m)],
                -m,
            )
            for m, count in votes.items()
            if m >= 0 and other.node[m] < 0 and other.op[m] == half.op[node]
        ]
        return -max(good)[-1] if good else -1

    def _in_order(self, left: tuple[list[int], list[int]]) -> bool:
        """Match nodes that are alike with what is around them, in the order in which they come."""
        marks = [{node: _surrounding(half, node) for node in left[side]} for side, half in enumerate(self.halves)]
        mine, others = _grouped(left[0], marks[0]), _grouped(left[1], marks[1])
        found = False
        for single in (True, False):
            for key, nodes in mine.items():
                other = others.get(key, ())
                if len(nodes) == len(other) and (len(nodes) == 1) == single:
                    found |= self._alike(nodes, list(other), ORDER)
            if found:
                return True
        if len(left[0]) * len(left[1]) > ALIGNED:
            return False
        number = _Numbers()
        tokens = [[number(marks[side][node]) for node in left[side]] for side in (0, 1)]
        for block in difflib.SequenceMatcher(None, tokens[0], tokens[1], autojunk=False).get_matching_blocks():
            for step in range(block.size):
                found |= self._pair(left[0][block.a + step], left[1][block.b + step], ORDER)
        return found

    def _in_place(self, left: tuple[list[int], list[int]]) -> bool:
        """Match what took another operator but stands between the same tensors."""
        a, b = self.halves
        mine = _grouped(left[0], {n: self._read(0, n) for n in left[0]})
        others = _grouped(left[1], {m: self._read(1, m) for m in left[1]})
        found = False
        for key, nodes in mine.items():
            there = others.get(key, ())
            if key in _NAMELESS or len(nodes) != 1 or len(there) != 1:
                continue
            n, m = nodes[0], there[0]
            if len(a.outputs[n]) != len(b.outputs[m]):
                continue
            fed = {(slot, a.node[reader], place) for slot, reader, place in a.consumers(n)}
            other_fed = set(b.consumers(m))
            ends = {self._ends[0].get(v, -1) for v in a.outputs[n]}
            other_ends = {self._ends[1].get(w, -1) for w in b.outputs[m]}
            if fed & other_fed or (ends & other_ends) - {-1}:
                found |= self._pair(n, m, PLACE)
        return found

    def _read(self, side: int, node: int) -> tuple[int, ...]:
        """Return the values a node computes on, as the reference numbers them; nothing if one is not matched."""
        half = self.halves[side]
        read = [v for v in half.inputs[node] if v >= 0 and half.kind[v] != INITIALIZER]
        found = tuple(v if side == 0 else half.value[v] for v in read if half.value[v] >= 0)
        return found if len(found) == len(read) else ()

    # -------------------------------------------------------------- values

    def _rest_of_values(self) -> None:
        """Match weights as matched nodes read them, the outputs, and then what has one name."""
        a, b = self.halves
        f, g = self._subgraphs
        there: dict[int, Counter[int]] = {}
        place = a.graph.subgraphs[f]
        for n in range(place.start, place.stop):
            m = a.node[n]
            if m >= 0:
                pairs = zip(a.inputs[n], b.inputs[m], strict=False)
                if a.commutes[n]:
                    pairs = zip(a.weights(n), b.weights(m), strict=False)
                for v, w in pairs:
                    if v >= 0 and w >= 0 and a.kind[v] == b.kind[w] == INITIALIZER:
                        there.setdefault(v, Counter())[w] += 1
        for by_name in (True, False):
            for v, votes in there.items():
                for w, _ in votes.most_common():
                    if (a.value_names[v] == b.value_names[w]) == by_name:
                        self._pair_values(v, w, NAME if by_name else STRUCTURE)
        ends = [dict.fromkeys(self._ends[side].values(), -1) for side in (0, 1)]
        for side in (0, 1):
            for value, number in self._ends[side].items():
                ends[side][number] = value
        for number in ends[0].keys() & ends[1].keys():
            self._pair_values(ends[0][number], ends[1][number], STRUCTURE)
        named: dict[str, int] = {}
        for w in np.flatnonzero(b.graph.value_subgraph == g).tolist():
            if b.value[w] < 0:
                named[b.value_names[w]] = w
        mine: dict[str, int] = {}
        for v in np.flatnonzero(a.graph.value_subgraph == f).tolist():
            w = named.get(a.value_names[v], -1)
            if a.value[v] < 0 and w >= 0:
                self._pair_values(v, w, NAME)
            elif a.value[v] < 0:
                mine[a.value_names[v]] = v
        for v in np.flatnonzero(a.graph.value_subgraph == f).tolist():
            if a.value[v] >= 0 and self.value_how[v] != MAPPING:
                self._fused(v, mine, named)
        self._unread()

    def _fused(self, v: int, mine: Mapping[str, int], others: Mapping[str, int]) -> None:
        """Where a node took in those behind it, its result is what the last of them made, which keeps its name."""
        a, b = self.halves
        w = a.value[v]
        last, other = mine.get(b.value_names[w], -1), others.get(a.value_names[v], -1)
        if last >= 0 and _follows(a, last, v):
            a.value[v], self.value_how[v] = -1, NONE
            b.value[w] = -1
            self._pair_values(last, w, NAME)
        elif other >= 0 and _follows(b, other, w):
            a.value[v], b.value[w] = -1, -1
            self._pair_values(v, other, NAME)

    def _unread(self) -> None:
        """Match the weights that nobody reads."""
        a, b = self.halves
        unread = [
            [v for v in half.graph.subgraphs[frame].weights.tolist() if half.value[v] < 0 and not any(half.readers(v))]
            for half, frame in zip(self.halves, self._subgraphs, strict=True)
        ]
        if all(unread):
            for v, w in _buckets(unread[0], unread[1], a.looks, b.looks):
                self._pair_values(v, w, STRUCTURE)


def _follows(half: _Half, value: int, source: int) -> bool:
    """Return whether a value is made of another by a row of unmatched nodes."""
    for _ in range(ROW):
        node = half.producer[value]
        if node < 0 or half.node[node] >= 0:
            return value == source
        computed = [v for v in half.inputs[node] if v >= 0 and half.kind[v] != INITIALIZER]
        if source in computed:
            return True
        if not computed:
            return False
        value = computed[0]
    return False


_NAMELESS: Final[tuple[Hashable, ...]] = ("", ())


def _buckets(
    mine: Sequence[int],
    others: Sequence[int],
    tell: Callable[[int], Hashable],
    tell_other: Callable[[int], Hashable],
    *,
    single: bool = False,
) -> list[Link]:
    """Pair what is told to be the same, in order; if ``single``, only where it is one on each side."""
    there: dict[Hashable, list[int]] = {}
    for other in others:
        there.setdefault(tell_other(other), []).append(other)
    here: dict[Hashable, list[int]] = {}
    for one in mine:
        here.setdefault(tell(one), []).append(one)
    return [
        pair
        for key, ones in here.items()
        if key not in _NAMELESS and (not single or len(ones) == len(there.get(key, ())) == 1)
        for pair in zip(ones, there.get(key, ()), strict=False)
    ]


def _grouped(nodes: Iterable[int], classes: Mapping[int, Hashable]) -> dict[Hashable, list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for node in nodes:
        groups.setdefault(classes[node], []).append(node)
    return groups


def _surrounding(half: _Half, node: int) -> tuple[Hashable, ...]:
    before = tuple(half.op[half.producer[v]] if v >= 0 and half.producer[v] >= 0 else -1 for v in half.inputs[node])
    after = tuple(sorted((slot, half.op[reader], place) for slot, reader, place in half.consumers(node)))
    types = tuple(half.type[value] for value in half.weights(node))
    return half.op[node], half.attributes[node], types, before, after


def _node_names(half: _Half, nodes: Iterable[int]) -> dict[str, int]:
    return _unique((half.names[node], node) for node in nodes)


def _output_names(half: _Half, nodes: Iterable[int]) -> dict[str, int]:
    return _unique((half.value_names[v], node) for node in nodes for v in half.outputs[node][:1] if v >= 0)


def _unique(named: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the node of each name; −1 for a name that several have."""
    found: dict[str, int] = {}
    for name, node in named:
        if name:
            found[name] = node if name not in found else -1
    return found


def _bytes_of(half: _Half, value: int) -> Hashable:
    """Return the type and first bytes of a weight; nothing for one too small to be told from others by them."""
    sample = half.sample(value)
    return ("bytes", half.type[value], sample) if len(sample) >= TELLING else None


def _telling_name(half: _Half, value: int) -> Hashable:
    """Return the name of a weight unless it is a number that an exporter gave."""
    name = half.value_names[value]
    return None if "::" in name or _NUMBERED.fullmatch(name) else ("name", name)


_NUMBERED: Final = re.compile(r"[A-Za-z]*(?:_[A-Za-z]+)*_?\d+")


def _own_name(half: _Half, node: int) -> Hashable:
    return half.names[node]


def _weight_names(half: _Half, node: int) -> Hashable:
    return tuple(half.value_names[value] for value in half.weights(node))


def _weight_samples(half: _Half, node: int) -> Hashable:
    return tuple(half.sample(value) for value in half.weights(node))


def _table(half: _Half, what: str) -> dict[str, int]:
    graph = half.graph
    if what == "nodes":
        return _unique((half.names[node], node) for node in range(graph.main_count))
    return _unique((half.value_names[v], v) for v in np.flatnonzero(graph.value_subgraph == 0).tolist())


def _unknown(name: str, which: str, half: _Half) -> AlignmentError:
    near = ", ".join(map(quoted, closest(str(name), [*half.value_names, *half.names])))
    message = f"no tensor and no node of the {which} is called {quoted(str(name))}."
    return AlignmentError(message, advice=f"Closest names: {near}." if near else "")


def _twice(old: str, new: str) -> AlignmentError:
    message = f"the mapping of {quoted(old)} to {quoted(new)} contradicts another entry."
    return AlignmentError(message, advice="Map each name to one other.")
