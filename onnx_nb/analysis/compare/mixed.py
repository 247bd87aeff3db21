"""Put parts of a quantized model back to float.

A mixed model is what onnxruntime's ``quantize_static`` makes with ``nodes_to_exclude`` and the same scales: a tensor is
rounded unless all nodes that touch it are excluded, a weight unless all of its readers are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.model.model import label_of, with_proto

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

_QUANTIZED: Final = "_quantized"
_WEIGHTS_ONLY: Final = frozenset(("MatMulNBits", "GatherBlockQuantized", "DequantizeLinear"))
"""Operators of models with only their weights quantized, if there is no QuantizeLinear."""
_RENAMED: Final = "_QuantizeLinear_Input"
"""Suffix of a model's output before it is rounded."""


class _Site(NamedTuple):
    """A place where a tensor or weight of the float model is quantized."""

    output: str
    """Output of the DequantizeLinear."""
    tensor: str
    """The tensor or weight of the float model."""
    source: str
    """What the quantized model reads there once it is in float."""
    is_weight: bool


class Mixer:
    """The nodes of a float model that a QDQ model quantizes, and the tensors between them."""

    def __init__(self, reference: Model, candidate: Model) -> None:
        self.reference, self.candidate = reference, candidate
        graph = candidate.proto.graph
        self._rounded = {node.input[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
        if not self._rounded or not any(node.op_type == "DequantizeLinear" for node in graph.node):
            message = f"{label_of(candidate)} has no pairs of QuantizeLinear and DequantizeLinear"
            advice = "Quantize with quant_format=QuantFormat.QDQ."
            if weights := sorted({node.op_type for node in graph.node} & _WEIGHTS_ONLY):
                verb = "rounds" if len(weights) == 1 else "round"
                message += f": {' and '.join(weights)} {verb} weights, and no activation is rounded between its nodes"
                advice = "c.quantizers says what each weight costs: leave out the nodes that read the worst."
            raise OnnxNbError(f"{message}.", advice=advice)
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
        self.makers = {name: node.name for node in reference.proto.graph.node for name in node.output}
        """Names of the float model's nodes, by the tensors that they write."""
        self._written = {name: node for node in graph.node for name in node.output}
        self._sites = {site.output: site for node in graph.node if (site := self._site(node)) is not None}
        restored = [node for node in self.nodes.values() if node.op_type in ("Relu", "Clip") and node.name not in there]
        names = [(name, node) for node in restored for name in (node.output[0], node.output[0] + _RENAMED)]
        self._restored = {name: node for name, node in names if name in self._written}
        """Activations that the quantizer left out because rounding clips as they do, by the tensors they belong to."""
        self.touched_by = {site.tensor: self.touching(site.tensor) for site in self._sites.values()}
        """Nodes that all have to be in float for a tensor or weight to be in float."""
        wide = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.INT32}
        dequantized = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
        self.rounded = [site.output for site in self._sites.values() if not site.is_weight]
        """Tensors of the quantized model that are dequantized while it runs, in order."""
        self.exact = {site.tensor for site in self._sites.values() if dequantized[site.output] in wide}
        """Weights, such as biases, that are rounded to 32 bits."""

    def _site(self, node: NodeProto) -> _Site | None:
        """Return where a DequantizeLinear has a quantized tensor or weight of the float model, if it has one."""
        if node.op_type != "DequantizeLinear":
            return None
        maker = self._written.get(node.input[0])
        if maker is not None:
            known = maker.op_type == "QuantizeLinear"
            tensor, source = maker.input[0].removesuffix(_RENAMED), maker.input[0]
        else:
            tensor = node.input[0].removesuffix(_QUANTIZED)
            known = tensor in self.reference.initializers
            source = f"{tensor} in float"  # a dequantized bias may have the name of the bias
        return _Site(node.output[0], tensor, source, maker is None) if known and self.touching(tensor) else None

    def touching(self, tensor: str) -> frozenset[str]:
        """Return the quantized nodes that read or write a tensor or a weight of the float model."""
        return self.completed(self._touching.get(tensor, set()))

    def completed(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return nodes with the activations behind them that are one node in the quantized model."""
        return frozenset(each for name in nodes for each in self._partners.get(name, {name}))

    def nodes_of(self, name: str, regions: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the nodes to put back for a region or a node; raise `OnnxNbError` if neither is quantized."""
        if name in regions or name in self.nodes:
            return regions[name] if name in regions else self.completed({name})
        message = f"{quoted(name)} is no quantized region or node of {label_of(self.reference)}."
        advice = closest_text(name, [*regions, *self.nodes]) or "Use the names of points that have quantizers."
        raise OnnxNbError(message, advice=advice)

    def mixed(self, exclude: Iterable[str]) -> Model:
        """Return the quantized model with nodes of the float model put back to float."""
        excluded = self.completed(exclude)
        for name in excluded - self.nodes.keys():
            message = f"{quoted(name)} is no quantized node of {label_of(self.reference)}."
            raise OnnxNbError(message, advice=closest_text(name, self.nodes) or "Use the names of its nodes.")
        proto = ModelProto()
        proto.CopyFrom(self.candidate.proto)
        graph = proto.graph
        source = {site.output: site.source for site in self._sites.values() if self.touched_by[site.tensor] <= excluded}
        self._add_weights(graph, source)
        self._restore(graph.node, set(source.values()))
        outputs = {value.name for value in graph.output}
        for node in graph.node:
            if node.output and node.output[0] in outputs and node.output[0] in source:
                node.op_type, node.input[:] = "Identity", [source[node.output[0]]]
                del node.attribute[:]
            else:
                node.input[:] = [source.get(name, name) for name in node.input]
        _remove_unused(proto)
        return with_proto(self.candidate, proto, f"{self.candidate.name}, {len(excluded)} nodes in float")

    def _is_quantized(self, node: NodeProto) -> bool:
        return any(name in self._rounded or name + _RENAMED in self._rounded for name in node.output)

    def _add_weights(self, graph: Any, outputs: Collection[str]) -> None:
        """Add the float weights of sites, and the bounds of activations that may be restored."""
        free = {site.source: site.tensor for site in self._sites.values() if site.is_weight and site.output in outputs}
        bounds = {name for node in self._restored.values() for name in node.input[1:]}
        free |= {name: name for name in bounds if name in self.reference.initializers}
        there = {tensor.name for tensor in graph.initializer}
        for name in free.keys() - there:
            graph.initializer.append(numpy_helper.from_array(self.reference.tensor(free[name]), name))

    def _restore(self, nodes: Any, free: Collection[str]) -> None:
        """Put back activations that the quantizer left out."""
        for name, node in self._restored.items():
            if name not in free:
                continue
            before = f"{name} before {node.op_type}"
            place = next(at for at, each in enumerate(nodes) if name in each.output)
            maker = nodes[place]
            maker.output[list(maker.output).index(name)] = before
            made = NodeProto()
            made.CopyFrom(node)
            made.input[0], made.output[0] = before, name
            nodes.insert(place + 1, made)

    def switchable(self) -> Model:
        """Return the quantized model with an input for each quantized tensor, `flag_of`: whether it is in float."""
        proto = ModelProto()
        proto.CopyFrom(self.candidate.proto)
        graph = proto.graph
        self._add_weights(graph, self._sites)
        kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
        for node in graph.node:
            site = self._sites.get(node.output[0]) if node.op_type == "DequantizeLinear" else None
            if site is not None:
                node.CopyFrom(self._switch(node, site, kinds.get(node.input[1], TensorProto.FLOAT)))
        for tensor in self.touched_by:
            graph.input.append(helper.make_tensor_value_info(flag_of(tensor), TensorProto.BOOL, []))
        _remove_unused(proto)
        return with_proto(self.candidate, proto, f"{self.candidate.name} with switches")

    def _switch(self, node: NodeProto, site: _Site, elem_type: int) -> NodeProto:
        """Return an If in place of a DequantizeLinear, which rounds nothing where the tensor is in float."""
        free, back = NodeProto(op_type="Identity", input=[site.source]), NodeProto()
        if site.source in self._restored:
            free.CopyFrom(self._restored[site.source])
            free.input[0] = site.source
        back.CopyFrom(node)
        rounding = [back]
        if not site.is_weight:
            rounding.insert(0, NodeProto())
            rounding[0].CopyFrom(self._written[node.input[0]])
            back.input[0] = rounding[0].output[0] = f"{site.output} rounded"
        bodies = {}
        for key, nodes in (("then_branch", [free]), ("else_branch", rounding)):
            name = f"{site.output} {key}"
            nodes[-1].output[:] = [name]
            bodies[key] = helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, elem_type, None)])
        return helper.make_node("If", [flag_of(site.tensor)], [site.output], site.output, **bodies)


def flag_of(tensor: str) -> str:
    """Return the input of `Mixer.switchable` that says whether a tensor of the float model is in float."""
    return f"{tensor} is in float"


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
