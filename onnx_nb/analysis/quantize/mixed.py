"""Put parts of a quantized model back to float.

A mixed model is what onnxruntime's ``quantize_static`` makes with ``nodes_to_exclude`` and the same scales: a tensor is
rounded unless all nodes that touch it are excluded, a weight unless all of its readers are. Where only weights are
quantized, it is what ``MatMulNBitsQuantizer`` makes: each node that reads a weight is in float by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnx_nb.analysis.compare.operands import BLOCKS, TRANSPARENT, weight_of
from onnx_nb.analysis.compare.quantization import float_name, turned
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model.model import Model, label_of, with_proto
from onnx_nb.analysis.model.tensors import attributes

_WEIGHT_SUFFIX: Final = "_quantized"
_WEIGHTS_ONLY: Final = frozenset((*BLOCKS, "DequantizeLinear"))
"""Operators of models with only their weights quantized, if there is no QuantizeLinear."""
_BIAS: Final = 5
"""Index of the input of a MatMulNBits that is added to the product."""
_INPUT_SUFFIX: Final = "_QuantizeLinear_Input"
"""Suffix of a model's output before it is rounded."""


class _DequantizedTensor(NamedTuple):
    """A place where a tensor or weight of the float model is quantized."""

    output: str
    """Output of the DequantizeLinear."""
    tensor: str
    """The tensor or weight of the float model."""
    source: str
    """What the quantized model reads there once it is in float."""
    is_weight: bool


class _Reader(NamedTuple):
    """A node of the quantized model that reads quantized weights, where no activation is rounded with them."""

    key: str
    """The weight of the float model; also the node if several nodes read that weight."""
    node: str
    """The node of the float model."""
    weights: Mapping[int, str]
    """Weights of the float model, by the index of the input that reads them in the quantized model."""
    elem_type: int
    """Type of the scales, which is that of the outputs."""


class Mixer:
    """The nodes of a float model that a quantized model quantizes, and the tensors between them.

    ``pairs`` maps values of the quantized model to those of the float model, if their names differ.
    """

    def __init__(self, reference: Model, candidate: Model, pairs: Mapping[str, str] | None = None) -> None:
        self.reference, self.candidate = reference, candidate
        graph = candidate.proto.graph
        self._rounded = {node.input[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
        self._written = {name: node for node in graph.node for name in node.output}
        self.makers = {name: node.name for node in reference.proto.graph.node for name in node.output}
        """Names of the float model's nodes, by the tensors that they write."""
        self._readers = self._readers_of_weights(pairs or {})
        """Readers of quantized weights, by their first output."""
        has_pairs = self._rounded and any(node.op_type == "DequantizeLinear" for node in graph.node)
        if not has_pairs and not self._readers:
            message = f"{label_of(candidate)} has no pairs of QuantizeLinear and DequantizeLinear"
            advice = "Quantize with quant_format=QuantFormat.QDQ."
            if weights := sorted({node.op_type for node in graph.node} & _WEIGHTS_ONLY):
                verb = "reads" if len(weights) == 1 else "read"
                message += f", and the weights that {' and '.join(weights)} {verb} are not those of named nodes of "
                message += label_of(reference)
                advice = "Compare with the float model that was quantized; each of its nodes needs a name."
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
        by_name = {node.name: node for node in reference.proto.graph.node}
        for reader in self._readers.values():
            self.nodes[reader.node] = by_name[reader.node]
            self._touching.setdefault(reader.key, set()).add(reader.node)
        self._sites = {site.output: site for node in graph.node if (site := self._site(node)) is not None}
        clips = [
            node for node in self.nodes.values() if node.op_type in names_where("clips") and node.name not in there
        ]
        names = [(name, node) for node in clips for name in (node.output[0], node.output[0] + _INPUT_SUFFIX)]
        self._restored = {name: node for name, node in names if name in self._written}
        """Activations that the quantizer left out because rounding clips as they do, by the tensors they belong to."""
        tensors = [site.tensor for site in self._sites.values()] + [reader.key for reader in self._readers.values()]
        self.touched_by = {tensor: self.touching(tensor) for tensor in tensors}
        """Nodes that all have to be in float for a tensor or weight to be in float."""
        wide = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.INT32}
        integers = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
        among = {site.output for site in self._sites.values() if not site.is_weight} | self._readers.keys()
        self.rounded = [name for node in graph.node for name in node.output if name in among]
        """Tensors of the quantized model that depend on its inputs and have a switch, in order."""
        self.exact = {site.tensor for site in self._sites.values() if integers[site.output] in wide}
        """Weights, such as biases, that are rounded to 32 bits."""

    def _site(self, node: NodeProto) -> _DequantizedTensor | None:
        """Return where a DequantizeLinear has a quantized tensor or weight of the float model, if it has one."""
        if node.op_type != "DequantizeLinear" or not self._rounded:
            return None
        maker = self._written.get(node.input[0])
        if maker is not None:
            is_known = maker.op_type == "QuantizeLinear"
            tensor, source = maker.input[0].removesuffix(_INPUT_SUFFIX), maker.input[0]
        else:
            tensor = node.input[0].removesuffix(_WEIGHT_SUFFIX)
            is_known = tensor in self.reference.initializers
            source = f"{tensor} in float"  # a dequantized bias may have the name of the bias
        return (
            _DequantizedTensor(node.output[0], tensor, source, maker is None)
            if is_known and self.touching(tensor)
            else None
        )

    def _readers_of_weights(self, pairs: Mapping[str, str]) -> dict[str, _Reader]:
        """Return the nodes that read quantized weights, if these are not those of a QDQ model."""
        reading: dict[str, list[str]] = {}
        origins: dict[str, str] = {name: name for name in self.reference.initializers}
        for node in self.reference.proto.graph.node:
            if node.op_type in TRANSPARENT:
                if node.input[0] in origins:
                    origins[node.output[0]] = origins[node.input[0]]
                continue
            for name in {origins[name] for name in node.input if name in origins}:
                reading.setdefault(name, []).append(node.name)
        large = {name for name, info in self.reference.initializers.items() if len(info.shape) > 1}
        readers: dict[str, _Reader] = {}
        for node in self.candidate.proto.graph.node:
            weights, scales = {}, ""
            for place, name in enumerate(node.input):
                weight = self._held(node, place, name)
                if weight is None:
                    continue
                tensor, scales = float_name(weight[0]), weight[1]
                partner = self.makers.get(pairs.get(node.output[0], node.output[0]), "")
                if tensor not in reading:  # the only matrix that the node reads
                    matrices = [name for name in large if partner in reading.get(name, ())]
                    tensor = matrices[0] if partner and len(matrices) == 1 else ""
                users = reading.get(tensor, [])
                if partner in users or len(users) == 1:
                    weights[place] = tensor, partner if partner in users else users[0]
            nodes = {name for _, name in weights.values()}
            if len(nodes) == 1 and (name := nodes.pop()):
                key = next(iter(weights.values()))[0]
                key = f"{key} of {name}" if any(key == reader.key for reader in readers.values()) else key
                kind = self.candidate.initializers[scales].dtype if scales in self.candidate.initializers else 0
                read = {place: tensor for place, (tensor, _) in weights.items()}
                readers[node.output[0]] = _Reader(key, name, read, kind or TensorProto.FLOAT)
        return readers

    def _held(self, node: NodeProto, place: int, name: str) -> tuple[str, str] | None:
        """Return the quantized weight that a node reads, and its scales; None if it reads none there."""
        scales = node.input[2] if node.op_type in BLOCKS else ""
        if scales:
            if place != BLOCKS[node.op_type]:
                return None
        elif node.op_type in TRANSPARENT:
            return None
        while (maker := self._written.get(name)) is not None:
            if maker.op_type not in TRANSPARENT:
                return None
            if maker.op_type == "DequantizeLinear":
                if self._rounded and not attributes(maker).get("block_size"):
                    return None  # of a QDQ model
                scales = maker.input[1]
            name = maker.input[0]
        return (name, scales) if scales and name in self.candidate.initializers else None

    def touching(self, tensor: str) -> frozenset[str]:
        """Return the quantized nodes that read or write a tensor or a weight of the float model."""
        return self.completed(self._touching.get(tensor, set()))

    def completed(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return nodes with the activations behind them that are one node in the quantized model."""
        return frozenset(node for name in nodes for node in self._partners.get(name, {name}))

    def nodes_of(self, name: str, regions: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the nodes to put back for a region or a node; raise `OnnxNbError` if neither is quantized."""
        if name in regions or name in self.nodes:
            return regions[name] if name in regions else self.completed({name})
        message = f"{quoted(name)} is no quantized region or node of {label_of(self.reference)}."
        advice = closest_text(name, [*regions, *self.nodes]) or "Use the names of points that have quantizers."
        raise OnnxNbError(message, advice=advice)

    def mixed(self, exclude: Iterable[str]) -> Model:
        """Return the quantized model with nodes of the float model put back to float."""
        nodes = self.completed(exclude)
        for name in nodes - self.nodes.keys():
            message = f"{quoted(name)} is no quantized node of {label_of(self.reference)}."
            raise OnnxNbError(message, advice=closest_text(name, self.nodes) or "Use the names of its nodes.")
        proto = ModelProto()
        proto.CopyFrom(self.candidate.proto)
        graph = proto.graph
        sites = [site for site in self._sites.values() if self.touched_by[site.tensor] <= nodes]
        readers = {name: reader for name, reader in self._readers.items() if reader.node in nodes}
        self._add_weights(graph, sites)
        self._add_read(graph, readers)
        replacements = {site.output: [self._free_tensor(site)] for site in sites}
        replacements |= {name: self._free(reader, self._written[name]) for name, reader in readers.items()}
        _replace(graph, replacements)
        ends = self._restored.keys() | {value.name for value in graph.output}
        source = {site.output: site.source for site in sites if ends.isdisjoint((site.output, site.source))}
        for node in graph.node:
            node.input[:] = [source.get(name, name) for name in node.input]
        _remove_unused(proto)
        return with_proto(self.candidate, proto, f"{self.candidate.name}, {len(nodes)} nodes in float")

    def _is_quantized(self, node: NodeProto) -> bool:
        return any(name in self._rounded or name + _INPUT_SUFFIX in self._rounded for name in node.output)

    def _add_weights(self, graph: Any, sites: Iterable[_DequantizedTensor]) -> None:
        """Add the float weights of sites, and the bounds of activations that may be restored."""
        free = {site.source: site.tensor for site in sites if site.is_weight}
        bounds = {name for node in self._restored.values() for name in node.input[1:]}
        free |= {name: name for name in bounds if name in self.reference.initializers}
        there = {tensor.name for tensor in graph.initializer}
        for name in free.keys() - there:
            graph.initializer.append(numpy_helper.from_array(self.reference.tensor(free[name]), name))

    def _add_read(self, graph: Any, readers: Mapping[str, _Reader]) -> None:
        """Add the float weights that readers of quantized weights read in float, in the form in which they do."""
        if not readers:
            return
        candidate = Graph.of(self.candidate)
        for output, reader in readers.items():
            node = int(candidate.producer[candidate.value(output)])
            for place, tensor in reader.weights.items():
                operand, right = weight_of(candidate, node, place), self.reference.tensor(tensor)
                if right.ndim > 2 and right.size == math.prod(right.shape[-2:]):
                    right = right.reshape(right.shape[-2:])  # what is packed is a matrix
                array = None if operand is None else turned(right, operand.array)
                if operand is None or array is None:
                    message = f"the weight that {quoted(self._written[output].name or output)} reads does not have the "
                    message += f"shape {shape_text(right.shape)} of {quoted(tensor)} of {label_of(self.reference)}."
                    raise OnnxNbError(message, advice="Compare with the float model that was quantized.")
                array = np.ascontiguousarray(array.astype(operand.array.dtype))
                graph.initializer.append(numpy_helper.from_array(array, _in_float(reader, place)))

    def switchable(self) -> Model:
        """Return the quantized model with an input for each quantized tensor, `flag_of`: whether it is in float."""
        proto = ModelProto()
        proto.CopyFrom(self.candidate.proto)
        graph = proto.graph
        self._add_weights(graph, self._sites.values())
        self._add_read(graph, self._readers)
        kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
        switches = {site.output: [self._switch(site, kinds)] for site in self._sites.values()}
        for name, reader in self._readers.items():
            rounding = NodeProto()
            rounding.CopyFrom(self._written[name])
            free = self._free(reader, rounding)
            switches[name] = [_if(reader.key, list(rounding.output), free, [rounding], reader.elem_type)]
        _replace(graph, switches)
        for tensor in self.touched_by:
            graph.input.append(helper.make_tensor_value_info(flag_of(tensor), TensorProto.BOOL, []))
        _remove_unused(proto)
        return with_proto(self.candidate, proto, f"{self.candidate.name} with switches")

    def _switch(self, site: _DequantizedTensor, kinds: Mapping[str, int]) -> NodeProto:
        """Return an If in place of a DequantizeLinear, which rounds nothing where the tensor is in float."""
        back = NodeProto()
        back.CopyFrom(self._written[site.output])
        rounding = [back]
        if not site.is_weight:
            rounding.insert(0, NodeProto())
            rounding[0].CopyFrom(self._written[back.input[0]])
            back.input[0] = rounding[0].output[0] = f"{site.output} rounded"
        elem_type = kinds.get(back.input[1], TensorProto.FLOAT)
        return _if(site.tensor, [site.output], [self._free_tensor(site)], rounding, elem_type)

    def _free_tensor(self, site: _DequantizedTensor) -> NodeProto:
        """Return what makes a tensor that is not rounded: an activation that the quantizer left out, or nothing."""
        free = NodeProto(op_type="Identity", input=[site.source], output=[site.output])
        if site.source in self._restored:
            free.CopyFrom(self._restored[site.source])
            free.input[0], free.output[0] = site.source, site.output
        return free

    def _free(self, reader: _Reader, node: NodeProto) -> list[NodeProto]:
        """Return what a reader of quantized weights computes in float."""
        free = NodeProto()
        free.CopyFrom(node)
        for place in reader.weights:
            free.input[place] = _in_float(reader, place)
        if node.op_type not in BLOCKS:
            return [free]
        attrs, table, data = attributes(node), free.input[BLOCKS[node.op_type]], free.input[1 - BLOCKS[node.op_type]]
        if node.op_type == "GatherBlockQuantized":
            return [helper.make_node("Gather", [table, data], node.output, node.name, axis=attrs.get("gather_axis", 0))]
        product = helper.make_node("MatMul", [data, table], node.output, node.name)
        if len(node.input) < _BIAS + 1 or not node.input[_BIAS]:
            return [product]
        product.output[0] += " without bias"
        return [product, helper.make_node("Add", [product.output[0], node.input[_BIAS]], node.output)]


def flag_of(tensor: str) -> str:
    """Return the input of `Mixer.switchable` that says whether a tensor of the float model is in float."""
    return f"{tensor} is in float"


def _if(tensor: str, outputs: list[str], free: list[NodeProto], rounding: list[NodeProto], elem_type: int) -> NodeProto:
    """Return an If that runs one list of nodes where a tensor of the float model is in float, else the other."""
    bodies = {}
    for key, nodes in (("then_branch", free), ("else_branch", rounding)):
        names = [name and f"{name} {key}" for name in outputs]
        nodes[-1].output[:] = names
        ends = [helper.make_tensor_value_info(name, elem_type, None) for name in names if name]
        bodies[key] = helper.make_graph(nodes, f"{outputs[0]} {key}", [], ends)
    return helper.make_node("If", [flag_of(tensor)], [name for name in outputs if name], outputs[0], **bodies)


def _in_float(reader: _Reader, place: int) -> str:
    return f"{reader.weights[place]} in float for {reader.node}"


def _replace(graph: Any, by_output: Mapping[str, list[NodeProto]]) -> None:
    """Replace nodes by others, by the first output of each."""
    if by_output:
        nodes = [part for node in graph.node for part in by_output.get(next(iter(node.output), ""), [node])]
        del graph.node[:]
        graph.node.extend(nodes)


def _remove_unused(proto: ModelProto) -> None:
    """Remove nodes that no output needs, and weights that no node reads."""
    graph = proto.graph
    names = {value.name for value in graph.output}
    left: list[NodeProto] = []
    for node in reversed(graph.node):
        if names.intersection(node.output):
            left.append(node)
            names.update(node.input)
            names.update(_read_inside(node))
    del graph.node[:]
    graph.node.extend(reversed(left))
    unread = [tensor for tensor in graph.initializer if tensor.name not in names]
    for tensor in unread:
        graph.initializer.remove(tensor)


def _read_inside(node: NodeProto) -> Iterable[str]:
    bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    for inner in (child for body in bodies for child in body.node):
        yield from inner.input
        yield from _read_inside(inner)
    for body in bodies:
        yield from (value.name for value in body.output)
