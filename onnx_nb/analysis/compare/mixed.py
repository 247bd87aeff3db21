"""Put parts of a quantized model back to float, and find the fewest nodes that have to stay in float.

A mixed model is what onnxruntime's ``quantize_static`` makes with ``nodes_to_exclude`` and the same scales: a tensor is
rounded unless all nodes that touch it are excluded, a weight unless all of its readers are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnx import ModelProto, NodeProto, numpy_helper

from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.model.model import label_of, with_proto
from onnx_nb.analysis.run import session as sessions

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

_QUANTIZED: Final = "_quantized"
_RENAMED: Final = "_QuantizeLinear_Input"
"""Suffix of a model's output before it is rounded."""
_PRUNED: Final = 24
"""Maximum number of units that are tried without, once the target is reached."""


class Mixer:
    """The nodes of a float model that a QDQ model quantizes, and the tensors between them."""

    def __init__(self, reference: Model, candidate: Model) -> None:
        self._reference, self._candidate = reference, candidate
        graph = candidate.proto.graph
        self._rounded = {node.input[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
        if not self._rounded or not any(node.op_type == "DequantizeLinear" for node in graph.node):
            message = f"{label_of(candidate)} has no pairs of QuantizeLinear and DequantizeLinear."
            raise OnnxNbError(message, advice="Quantize with quant_format=QuantFormat.QDQ.")
        there = {node.name for node in graph.node}
        readers: dict[str, list[NodeProto]] = {}
        for node in reference.proto.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        self.nodes: dict[str, NodeProto] = {}
        """Nodes of the float model that are quantized, by name."""
        self._partners: dict[str, set[str]] = {}
        """Nodes and the activations behind them that are one node in the quantized model."""
        for node in reference.proto.graph.node:
            behind = readers.get(node.output[0], []) if node.output else []
            if self._is_quantized(node):
                self.nodes[node.name] = node
            elif len(behind) == 1 and behind[0].name not in there and self._is_quantized(behind[0]):
                self.nodes[node.name] = node
                pair = {node.name, behind[0].name}
                self._partners |= dict.fromkeys(pair, pair)
        self._touching: dict[str, set[str]] = {}
        for name, node in self.nodes.items():
            for tensor in (*node.input, *node.output):
                self._touching.setdefault(tensor, set()).add(name)

    def touching(self, tensor: str) -> set[str]:
        """Return the quantized nodes that read or write a tensor or a weight of the float model."""
        found = self._touching.get(tensor, set())
        return {each for name in found for each in self._partners.get(name, {name})}

    def mixed(self, exclude: Iterable[str]) -> Model:
        """Return the quantized model with nodes of the float model put back to float."""
        excluded = {each for name in exclude for each in self._partners.get(name, {name})}
        for name in excluded - self.nodes.keys():
            message = f"{quoted(name)} is no quantized node of {label_of(self._reference)}."
            raise OnnxNbError(message, advice=closest_text(name, self.nodes) or "Use the names of its nodes.")
        proto = ModelProto()
        proto.CopyFrom(self._candidate.proto)
        graph = proto.graph
        makers = {name: node for node in graph.node for name in node.output}
        known = {tensor.name for tensor in graph.initializer}
        source: dict[str, str] = {}
        for node in graph.node:
            if node.op_type != "DequantizeLinear":
                continue
            maker = makers.get(node.input[0])
            if maker is not None and maker.op_type == "QuantizeLinear":
                tensor = maker.input[0].removesuffix(_RENAMED)
                if self._is_free(tensor, excluded):
                    source[node.output[0]] = maker.input[0]
            elif maker is None:
                tensor = node.input[0].removesuffix(_QUANTIZED)
                if tensor in self._reference.initializers and self._is_free(tensor, excluded):
                    free = f"{tensor} in float"  # a dequantized bias may have the name of the bias
                    source[node.output[0]] = free
                    if free not in known:
                        known.add(free)
                        graph.initializer.append(numpy_helper.from_array(self._reference.tensor(tensor), free))
        self._restore(graph.node, makers, source)
        outputs = {value.name for value in graph.output}
        for node in graph.node:
            if node.output and node.output[0] in outputs and node.output[0] in source:
                node.op_type, node.input[:] = "Identity", [source[node.output[0]]]
                del node.attribute[:]
            else:
                node.input[:] = [source.get(name, name) for name in node.input]
        _remove_unused(proto)
        return with_proto(self._candidate, proto, f"{self._candidate.name}, {len(excluded)} nodes in float")

    def _is_quantized(self, node: NodeProto) -> bool:
        return any(name in self._rounded or name + _RENAMED in self._rounded for name in node.output)

    def _is_free(self, tensor: str, excluded: set[str]) -> bool:
        touching = self.touching(tensor)
        return bool(touching) and touching <= excluded

    def _restore(self, nodes: Any, makers: Mapping[str, NodeProto], source: Mapping[str, str]) -> None:
        """Put back activations that the quantizer left out because rounding clips as they do."""
        there = {node.name for node in nodes}
        free = set(source.values())
        for node in self.nodes.values():
            name = node.output[0] if node.output[0] in free else node.output[0] + _RENAMED
            if node.op_type not in ("Relu", "Clip") or node.name in there or name not in free or name not in makers:
                continue
            before = f"{name} before {node.op_type}"
            maker = makers[name]
            maker.output[list(maker.output).index(name)] = before
            made = NodeProto()
            made.CopyFrom(node)
            made.input[0], made.output[0] = before, name
            place = next(at for at, each in enumerate(nodes) if before in each.output)
            nodes.insert(place + 1, made)


def _remove_unused(proto: ModelProto) -> None:
    """Remove nodes that no output needs, and weights that no node reads."""
    graph = proto.graph
    needed = {value.name for value in graph.output}
    left: list[NodeProto] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            left.append(node)
            needed.update(node.input)
            needed.update(_read_inside(node))
    del graph.node[:]
    graph.node.extend(reversed(left))
    unread = [tensor for tensor in graph.initializer if tensor.name not in needed]
    for tensor in unread:
        graph.initializer.remove(tensor)


def _read_inside(node: NodeProto) -> Iterable[str]:
    bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    for inner in (each for body in bodies for each in body.node):
        yield from inner.input
        yield from _read_inside(inner)
    for body in bodies:
        yield from (value.name for value in body.output)


def smallest(units: Sequence[frozenset[str]], reaches: Callable[[frozenset[str]], bool]) -> frozenset[str] | None:
    """Return nodes of few units that reach a target: the first ones, without those that are not needed.

    None if all of them do not reach it.
    """

    def union(some: Iterable[frozenset[str]]) -> frozenset[str]:
        return frozenset[str]().union(*some)

    if reaches(frozenset()):
        return frozenset()
    low, high = 0, 1
    while high < len(units) and not reaches(union(units[:high])):
        low, high = high, high * 2
    high = min(high, len(units))
    if high == len(units) and not reaches(union(units)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(union(units[:middle])) else (middle, high)
    chosen = list(units[:high])
    for unit in chosen[:-1][::-1][:_PRUNED]:
        less = [each for each in chosen if each is not unit]
        if union(less) != union(chosen) and reaches(union(less)):
            chosen = less
    return union(chosen)


def sqnr(reference: Mapping[str, Any], model: Model, feed: Mapping[str, Any]) -> float:
    """Return the smallest signal to noise ratio, in dB, of the outputs of a model, against those of the reference."""
    found = sessions.run(model, feed, optimize=False)
    known = [(array, found[name]) for name, array in reference.items() if getattr(array, "dtype", None) is not None]
    floats = [ErrorStats.of(mine, yours).sqnr for mine, yours in known if mine.dtype.kind == "f"]
    return min(floats, default=float("inf"))
