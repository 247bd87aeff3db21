"""The columns of two graphs as lists with shared keys, and the names in both that can be trusted.

Element access is faster in lists. Equal operators, attributes and types of two graphs get equal numbers. Here is also
how the values of two weights differ, and those of quantizers by the factor that a scale moved.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import number_text, plain_text, quoted
from onnx_nb.analysis.graph import operators
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER, LARGE
from onnx_nb.analysis.model import tensors
from onnx_nb.analysis.model.model import label_of, storage_of
from onnx_nb.analysis.model.protofields import Ints

PIECE: Final = 1 << 22
"""Bytes of a weight that are compared at a time."""
SAMPLE: Final = 256
"""Bytes of a weight that are read to distinguish it from others of its type."""
ROLES: Final = ("scale", "zero point")
"""What a weight of a quantizer is."""

Weight = onnx.TensorProto | onnx.SparseTensorProto
Attributes = dict[str, tuple[Hashable, onnx.AttributeProto]]
"""Content of each attribute for comparison, and the attribute."""


def commutative(graph: Graph) -> NDArray[np.bool_]:
    """Return for each node whether its inputs may be in any order."""
    names = operators.names_where("commutes")
    return np.asarray([op in names and not domain for op, domain in graph.operators], bool)[graph.op_index]


# --- attributes -----------------------------------------------------------------------------------------------------


def attributes_of(graph: Graph, node: int) -> Attributes:
    """Return the attributes of a node by name, without subgraphs and without those that have the default value."""
    op, domain = graph.operators[graph.op_index[node]]
    return _attributes(graph.nodes[node].attribute, _default_attributes(op, domain, graph.opsets.get(domain, 0)))


@functools.cache
def _default_attributes(op: str, domain: str, opset: int) -> Attributes:
    schema = operators.schema(op, domain, opset)
    defaults = [attribute.default_value for attribute in schema.attributes.values()] if schema is not None else []
    return _attributes((proto for proto in defaults if proto.type != onnx.AttributeProto.UNDEFINED), {})


def _attributes(attributes: Iterable[onnx.AttributeProto], defaults: Attributes) -> Attributes:
    entries: Attributes = {}
    for attribute in attributes:
        name = plain_text(attribute.name)
        if not attribute.HasField("g") and not attribute.graphs:
            content = _content(attribute)
            if name not in defaults or content != defaults[name][0]:
                entries[name] = content, attribute
    return entries


def attribute_label(graph: Graph, node: int, name: str, attributes: Attributes) -> str:
    """Return the text of an attribute; empty if it is not present and has no default."""
    op, domain = graph.operators[graph.op_index[node]]
    entry = attributes.get(name) or _default_attributes(op, domain, graph.opsets.get(domain, 0)).get(name)
    text = operators.attribute_text(entry[1]) if entry else ""
    return f"{text} (default)" if entry and name not in attributes else text


def _content(attribute: onnx.AttributeProto) -> Hashable:
    """Return the content of an attribute for comparison: the numbers of a tensor wherever stored, else bytes."""
    tensor = attribute.t
    if attribute.type == onnx.AttributeProto.TENSOR and tensor.data_location != onnx.TensorProto.EXTERNAL:
        try:
            values = tensors.values(tensor, "an attribute")
        except OnnxNbError:  # a broken one is compared byte by byte
            return hashlib.sha256(tensor.SerializeToString()).digest()
        data = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
        return tensor.data_type, tuple(tensor.dims), hashlib.sha256(data).digest()
    return hashlib.sha256(undocumented(attribute)).digest()


def undocumented(message: onnx.AttributeProto | onnx.FunctionProto | onnx.TensorProto) -> bytes:
    """Return the bytes of a message without its name and documentation."""
    plain = type(message)()
    plain.CopyFrom(message)
    plain.ClearField("name")
    plain.ClearField("doc_string")
    content: bytes = plain.SerializeToString(deterministic=True)
    return content


# --- lists ----------------------------------------------------------------------------------------------------------


class Weights:
    """The weights of a graph, by their value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def proto(self, value: int) -> Weight:
        """Return the proto of a weight."""
        return cast("Weight", self.graph.weight(value))

    def type_text(self, value: int) -> str:
        """Return the type and shape of a weight."""
        sparse = "sparse " if isinstance(self.proto(value), onnx.SparseTensorProto) else ""
        return f"{sparse}{self.graph.type_of(value)}"

    def label(self, value: int) -> str:
        """Return the name of a weight for error messages."""
        return f"weight {quoted(self.graph.value_names[value])} of {label_of(self.graph.model)}"

    def content(self, value: int, tensor: onnx.TensorProto) -> NDArray[np.uint8]:
        """Return the bytes of a weight; those in a file are mapped."""
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return storage_of(self.graph.model).extent(tensor, self.label(value)).array()
        return np.frombuffer(tensors.whole_bytes(tensor, self.label(value)), np.uint8)

    def pieces(self, value: int, tensor: onnx.TensorProto) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes of a weight in pieces of `PIECE`; those in a file are read: a map could outlive its end."""
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            extent = storage_of(self.graph.model).extent(tensor, self.label(value))
            yield from (np.frombuffer(piece, np.uint8) for piece in extent.stream(PIECE))
        else:
            data = self.content(value, tensor)
            yield from (data[start : start + PIECE] for start in range(0, len(data), PIECE))

    def head(self, value: int) -> bytes:
        """Return the first bytes of a weight, to distinguish it; none if they cannot be read, as for strings."""
        tensor = self.proto(value)
        try:
            return self.content(value, tensor)[:SAMPLE].tobytes() if isinstance(tensor, onnx.TensorProto) else b""
        except (OnnxNbError, ValueError):
            return b""


def unequal_values(one: Weights, other: Weights, v: int, w: int, check: Callable[[], None]) -> str:
    """Describe the difference between the values of two weights of one type; call ``check`` between pieces."""
    old, new = one.proto(v), other.proto(w)
    if isinstance(old, onnx.SparseTensorProto) or isinstance(new, onnx.SparseTensorProto):
        parts = [(undocumented(w.values), undocumented(w.indices)) for w in (old, new) if hasattr(w, "indices")]
        return "" if len(parts) == 2 and parts[0] == parts[1] else "other values"
    if old.data_type == onnx.TensorProto.STRING:
        strings = tensors.values(old, one.label(v)), tensors.values(new, other.label(w))
        count = int(np.sum(strings[0] != strings[1]))
        return f"{count} of {strings[0].size} differ" if count else ""
    if old.HasField("raw_data") and old.raw_data == new.raw_data:
        return ""
    content, others = one.content(v, old), other.content(w, new)
    if content.ctypes.data == others.ctypes.data:  # the same bytes of the same file, which are not read
        return ""
    is_subbyte = tensors.stored_bytes(onnx.TensorProto(data_type=old.data_type, dims=[8]), "a weight") < 8
    dtype = (None if is_subbyte else tensors.numpy_dtype(old.data_type)) or np.dtype(np.uint8)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    count, largest = 0, 0.0
    for pieces in zip(one.pieces(v, old), other.pieces(w, new), strict=True):
        if not np.array_equal(*pieces):
            differ = np.any(pieces[0].reshape(-1, dtype.itemsize) != pieces[1].reshape(-1, dtype.itemsize), axis=1)
            count += int(differ.sum())
            delta = np.abs(np.subtract(*(piece.view(dtype)[differ].astype(wide) for piece in pieces)))
            largest = max(largest, float(np.max(delta, initial=0.0, where=np.isfinite(delta))))
        check()
    if not count or is_subbyte:
        return "other values" if count else ""
    return f"{count:,} of {len(content) // dtype.itemsize:,} differ, by at most {largest:.3g}"


def quantizer_roles(graph: Graph) -> dict[int, str]:
    """Return which weights are the scales and zero points of quantizers."""
    roles = dict[int, str]()
    for index, operator in enumerate(graph.operators):
        row = operators.facts(*operator)
        slots = [*row.scales.values(), row.out]
        for node in np.flatnonzero(graph.op_index == index).tolist() if row.scales else ():
            inputs = graph.node_inputs(node).tolist()
            for slot, role in itertools.chain.from_iterable(zip(pair, ROLES, strict=True) for pair in slots):
                if 0 <= slot < len(inputs) and inputs[slot] >= 0:
                    roles[inputs[slot]] = role
    return roles


def requantization(one: Weights, other: Weights, v: int, w: int, role: str) -> tuple[float, tuple[str, str]] | None:
    """Return the logarithm of the largest factor between scales, and how scales or zero points of one type moved.

    The factor is infinite where there are more or fewer. None if this says less than that their values differ.
    """
    protos = one.proto(v), other.proto(w)
    kinds = {-1 if isinstance(proto, onnx.SparseTensorProto) else proto.data_type for proto in protos}
    if len(kinds) > 1 or kinds & {-1, onnx.TensorProto.STRING}:
        return None
    parts = zip((one, other), (v, w), protos, strict=True)
    arrays = [tensors.decoded(side.content(at, proto), proto, side.label(at)) for side, at, proto in parts]
    is_scale = role == "scale"
    if arrays[0].shape != arrays[1].shape:
        words = ["per tensor" if x.size == 1 else "per channel" if x.ndim == 1 else "in blocks" for x in arrays]
        return (math.inf if is_scale else 0.0, (words[0], words[1])) if words[0] != words[1] else None
    old, new = (array.astype(np.float64).ravel() for array in arrays)
    with np.errstate(all="ignore"):
        moves = np.abs(np.nan_to_num(np.log(new / old), posinf=0.0, neginf=0.0) if is_scale else new - old)
    at, more = int(moves.argmax()), ""
    if is_scale and moves[at]:
        more = f", {'×' if new[at] > old[at] else '÷'} {math.exp(moves[at]):.3g}"
    more += f" in channel {at} of {old.size:,}" if old.size > 1 else ""
    texts = number_text(float(old[at]), 3), number_text(float(new[at]), 3) + more
    return float(moves[at]) if is_scale else 0.0, texts


Numbers = defaultdict[Hashable, int]
"""Numbers for hashable values: equal values have equal numbers."""


class GraphLists:
    """The columns of a graph as lists, and which of its nodes and values are matched."""

    def __init__(self, graph: Graph, number: Numbers) -> None:
        self.graph = graph
        self.contents = Weights(graph)
        op = [number["op", *key] for key in graph.operators]
        self.op = [op[index] for index in graph.op_index.tolist()]
        self.commutes = commutative(graph).tolist()
        types = [number["type", str(kind)] for kind in graph.known_types]
        self.type = [types[index] for index in graph.type_index.tolist()]
        self.names, self.value_names = graph.names, graph.value_names
        self.kind, self.producer = graph.value_kind.tolist(), graph.producer.tolist()
        self.inputs = lists(graph.in_ptr, graph.in_value)
        self.outputs = lists(graph.out_ptr, graph.out_value)
        self.output_names = [self.value_names[outs[0]] if outs and outs[0] >= 0 else "" for outs in self.outputs]
        self.readers: list[list[tuple[int, int]]] = [[] for _ in range(graph.value_count)]
        """Readers of each value, each with the index of its input."""
        for node, read in enumerate(self.inputs):
            for slot, value in enumerate(read):
                if value >= 0:
                    self.readers[value].append((node, slot))
        self.unquantized = list(range(graph.value_count))
        """For each value that is only quantized and dequantized, the value before; for others the value itself."""
        quantizing = [op in ("QuantizeLinear", "DequantizeLinear") for op, _ in graph.operators]
        for node in graph.order.tolist():
            if quantizing[graph.op_index[node]] and self.inputs[node][:1] > [-1] and self.outputs[node][:1] > [-1]:
                self.unquantized[self.outputs[node][0]] = self.unquantized[self.inputs[node][0]]
        self.slot = [0] * graph.value_count
        """Index of each value among the outputs of its node."""
        for outs in self.outputs:
            for slot, value in enumerate(outs):
                if value >= 0:
                    self.slot[value] = slot
        self.attributes = [number["attributes",]] * graph.node_count
        """Number of each node's attributes."""
        self._number_attributes(number)
        self.node = [-1] * graph.node_count
        """Counterpart of each node, −1 for none."""
        self.value = [-1] * graph.value_count

    def _number_attributes(self, number: Numbers) -> None:
        graph, index = self.graph, self.graph.op_index.tolist()
        defaults = [_default_attributes(op, domain, graph.opsets.get(domain, 0)) for op, domain in graph.operators]

        def numbered(attributes: Iterable[onnx.AttributeProto], op: int) -> int:
            entries = _attributes(attributes, defaults[op])
            return number["attributes", *((name, entries[name][0]) for name in sorted(entries))]

        numbers: dict[tuple[int, bytes], int] = {}
        for node, content in graph.with_attributes():
            key = index[node], content
            if key not in numbers:
                numbers[key] = numbered(onnx.NodeProto.FromString(content).attribute, index[node])
            self.attributes[node] = numbers[key]
        for node, proto in enumerate(graph.nodes):
            if proto.ByteSize() >= LARGE:  # the columns hold only small attributes
                self.attributes[node] = numbered(proto.attribute, index[node])

    def consumers(self, node: int) -> Iterator[tuple[int, int, int]]:
        """Yield the readers of a node's outputs: index of the output, reader, index of its input."""
        for slot, value in enumerate(self.outputs[node]):
            if value >= 0:
                for reader, place in self.readers[value]:
                    yield slot, reader, place

    def computed_inputs(self, node: int) -> list[int]:
        """Return the inputs of a node that are not weights."""
        return [value for value in self.inputs[node] if value >= 0 and self.kind[value] != INITIALIZER]

    def weights(self, node: int) -> list[int]:
        """Return the weights that a node reads."""
        return [value for value in self.inputs[node] if value >= 0 and self.kind[value] == INITIALIZER]

    def weight_types(self, node: int) -> tuple[int, ...]:
        """Return the types of the weights that a node reads."""
        return tuple(self.type[value] for value in self.weights(node))

    def surroundings(self, node: int) -> tuple[Hashable, ...]:
        """Return a key for a node and its neighbors."""
        before = tuple(self.op[self.producer[v]] if v >= 0 and self.producer[v] >= 0 else -1 for v in self.inputs[node])
        after = tuple(sorted((slot, self.op[reader], place) for slot, reader, place in self.consumers(node)))
        return self.op[node], self.attributes[node], self.weight_types(node), before, after


def lists(ptr: Ints, values: Ints) -> list[list[int]]:
    """Return the rows of a ragged column as lists."""
    flat = values.tolist()
    return [flat[start:stop] for start, stop in itertools.pairwise(ptr.tolist())]


Left = tuple[list[int], list[int]]
"""Unmatched nodes of reference and candidate, in topological order."""
Ends = tuple[Mapping[int, int], Mapping[int, int]]
"""For each graph: the outputs of the subgraph, with equal numbers for those that match."""


def equal_names(sides: tuple[GraphLists, GraphLists], left: Left) -> Iterator[tuple[str, int, int]]:
    """Yield nodes of one operator with a common name, or with outputs of a common name, that no other node has."""
    a, b = sides
    for names, others in ((a.names, b.names), (a.output_names, b.output_names)):
        there = unique((others[m], m) for m in left[1])
        for name, n in unique((names[n], n) for n in left[0]).items():
            m = there.get(name, -1)
            if n >= 0 and m >= 0 and a.op[n] == b.op[m]:
                yield name, n, m


def unique(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return a dictionary from names to indices; −1 for a name that occurs several times."""
    things: dict[str, int] = {}
    for name, thing in pairs:
        if name:
            things[name] = thing if name not in things else -1
    return things


def trusted_pairs(
    sides: tuple[GraphLists, GraphLists], subgraphs: tuple[int, int], left: Left, ends: Ends
) -> dict[int, int]:
    """Return pairs of nodes with the same name and operator, unless more neighbors contradict than confirm them."""
    a, b = sides
    pairs: dict[int, int] = {}
    back: dict[int, int] = {}
    for _, n, m in equal_names(sides, left):
        if n not in pairs and m not in back:
            pairs[n], back[m] = m, n
    # the values that match if these nodes match
    there = {v: w for v, w in enumerate(a.value) if w >= 0}
    value_back = {w: v for v, w in there.items()}
    weights = {b.value_names[w]: w for w in b.graph.subgraphs[subgraphs[1]].weights.tolist()}
    # onnxruntime calls a quantized weight so
    weights = {name.removesuffix("_quantized"): w for name, w in weights.items()} | weights
    namesakes = [(v, weights.get(a.value_names[v], -1)) for v in a.graph.subgraphs[subgraphs[0]].weights.tolist()]
    outputs = (pair for n, m in pairs.items() for pair in zip(a.outputs[n], b.outputs[m], strict=False))
    for v, w in itertools.chain(namesakes, outputs):
        if v >= 0 and w >= 0 and v not in there and w not in value_back:
            there[v], value_back[w] = w, v
    doubtful: list[int] = []
    while True:
        for n in doubtful:
            m = pairs.pop(n)
            del back[m]
            for v, w in zip(a.outputs[n], b.outputs[m], strict=False):
                if there.get(v, -2) == w:
                    del there[v], value_back[w]
        balance: defaultdict[int, int] = defaultdict(int)
        support, conflict, uncertain = set[int](), set[int](), set[int]()
        for n, m in pairs.items():
            # the inputs of a pair are evidence for it, and for the nodes that produce them
            for read, other in zip(a.inputs[n], b.inputs[m], strict=False):
                if read < 0 or other < 0:
                    continue
                v, w = a.unquantized[read], b.unquantized[other]
                weight = 2 if a.kind[v] == INITIALIZER else 1  # weights have the names of parameters
                if there.get(v, -1) == w:
                    nodes = [n, a.producer[v]]
                    support.update(nodes)
                elif v in there and w in value_back:  # both match other values
                    nodes = [n, *({a.producer[v], back.get(b.producer[w], -1)} & pairs.keys())]
                    conflict.update(nodes)
                    weight = -weight
                else:
                    nodes = []
                    uncertain.add(n)
                for node in nodes:
                    balance[node] += weight
        for v, number in ends[0].items():
            n = a.producer[v]
            m = pairs.get(n, -1)
            if m >= 0 and any(ends[1].get(w, -1) == number for w in b.outputs[m]):
                balance[n] += 1
                support.add(n)
        unsure = (conflict | uncertain) - support
        doubtful = [n for n in pairs if n in unsure or (n in conflict and balance[n] < 0)]
        if not doubtful:
            return pairs
