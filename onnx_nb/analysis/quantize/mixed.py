"""Put parts of a quantized model back to float.

A mixed model is what onnxruntime's ``quantize_static`` makes with ``nodes_to_exclude`` and the same scales: a tensor is
rounded unless all nodes that touch it are excluded, a weight unless all of its readers are. Where only weights are
quantized, activations as the model runs, or all is float16, each node is in float by itself, as onnxruntime's
``MatMulNBitsQuantizer`` and ``quantize_dynamic`` leave it out; between two in float, nothing is rounded to float16.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnx_nb.analysis.compare.comparison import Point
from onnx_nb.analysis.compare.isolated import nodes_between
from onnx_nb.analysis.compare.operands import TRANSPARENT
from onnx_nb.analysis.compare.quantization import QUANTIZED
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import facts, names_where
from onnx_nb.analysis.model.model import Model, label_of, with_proto
from onnx_nb.analysis.model.tensors import all_nodes, attributes, graphs_of
from onnx_nb.analysis.model.wire import set_entries

_WIDE: Final = " in float"
"""Suffix of a weight of the float model, and of a value of type float16 before it is rounded to that."""
_ELEM_TYPES: Final = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float64": TensorProto.DOUBLE}
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


class _Replacement(NamedTuple):
    """A node of the float model, and what the quantized model computes in its place."""

    key: str
    """The only matrix that the node reads, or its name."""
    node: str
    """The node of the float model."""
    free: list[NodeProto]
    """What computes it in float from values of the quantized model and weights of the float model."""
    weights: frozenset[str]
    halves: frozenset[str]
    """Values of type float16 that it reads."""
    narrow: tuple[str, ...]
    """Values of type float16 that it writes."""
    elem_type: int
    """Type of what it computes in float."""


class Mixer:
    """The nodes of a float model that a quantized model quantizes, and the tensors between them.

    ``points`` are those of a comparison of both.
    """

    def __init__(self, reference: Model, candidate: Model, points: Iterable[Point]) -> None:
        self.reference, self.candidate = reference, candidate
        graph = candidate.proto.graph
        self._rounded = {node.input[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
        self._written = {name: node for node in graph.node for name in node.output}
        self.makers = {name: node.name for node in reference.proto.graph.node for name in node.output}
        """Names of the float model's nodes, by the tensors that they write."""
        self._regions = self._regions_of({point.reference: point for point in points})
        """Nodes that are put back by themselves, by the first output in the quantized model."""
        has_pairs = self._rounded and any(node.op_type == "DequantizeLinear" for node in graph.node)
        if not has_pairs and not self._regions:
            message = f"{label_of(candidate)} has no pairs of QuantizeLinear and DequantizeLinear, and no other node "
            message += f"that computes with fewer bits what a named node of {label_of(reference)} does."
            advice = "Compare with the float model, each of whose nodes needs a name; quantize to QuantFormat.QDQ."
            raise OnnxNbError(message, advice=advice)
        there = {node.name for node in graph.node}
        readers = followers((name, node) for node in reference.proto.graph.node for name in node.input)
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
        touching = [(tensor, name) for name, node in self.nodes.items() for tensor in (*node.input, *node.output)]
        self._touching = followers([*touching, *((region.key, region.node) for region in self._regions.values())])
        by_name = {node.name: node for node in reference.proto.graph.node}
        self.nodes |= {region.node: by_name[region.node] for region in self._regions.values()}
        self._sites = {site.output: site for node in graph.node if (site := self._site(node)) is not None}
        clips = [node for node in self.nodes.values() if node.op_type in names_where("clips")]
        absent = [node for node in clips if node.name not in there]
        names = [(name, node) for node in absent for name in (node.output[0], node.output[0] + _INPUT_SUFFIX)]
        self._restored = {name: node for name, node in names if name in self._written}
        """Activations that the quantizer left out because rounding clips as they do, by the tensors they belong to."""
        tensors = [site.tensor for site in self._sites.values()] + [region.key for region in self._regions.values()]
        self.touched_by = {tensor: self.touching(tensor) for tensor in tensors}
        """Nodes that all have to be in float for a tensor or weight to be in float."""
        wide = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.INT32}
        integers = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
        among = {site.output for site in self._sites.values() if not site.is_weight} | self._regions.keys()
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
            tensor = node.input[0].removesuffix(QUANTIZED)
            is_known = tensor in self.reference.initializers
            source = tensor + _WIDE  # a dequantized bias may have the name of the bias
        has_site = is_known and bool(self.touching(tensor))
        return _DequantizedTensor(node.output[0], tensor, source, maker is None) if has_site else None

    def _regions_of(self, points: Mapping[str, Point]) -> dict[str, _Replacement]:
        """Return the nodes of the float model that are put back by themselves; ``points`` are by its values."""
        graph, nodes = Graph.of(self.candidate), self.reference.proto.graph.node
        begins = {graph.value(point.candidate) for point in points.values()}
        places = {name: place for place, node in enumerate(nodes) for name in node.output}
        constant = set(self.reference.initializers)
        for node in nodes:
            if node.op_type in TRANSPARENT and node.input[0] in constant:
                constant.update(node.output)
        regions: dict[str, _Replacement] = {}
        for node in nodes:
            outputs = [points[name].candidate if name in points else name for name in node.output]
            maker = self._written.get(outputs[0]) if node.name and outputs[0] and node.output[0] in points else None
            if maker is None or [*maker.output] != outputs or points[node.output[0]].matched == "quantized":
                continue
            chain, todo, names = {places[node.output[0]]}, [*node.input], {"": ""}
            while todo:
                name = todo.pop()
                if name in self.reference.initializers:
                    names[name] = name + _WIDE
                elif name in points and name not in constant:
                    names[name] = points[name].candidate
                elif name not in names and name in places:
                    chain.add(places[name])
                    todo += nodes[places[name]].input
                    names |= {other: f"{other} for {node.name}" for other in nodes[places[name]].output}
                names.setdefault(name, name)
            read = {name for name in names.values() if self._type(self.candidate, name) == "float16"}
            dtype = self._type(self.reference, node.output[0])
            narrow = tuple(name for name in outputs if self._type(self.candidate, name) == "float16")
            read, narrow = (set[str](), ()) if dtype == "float16" else (read, narrow)
            inside, _ = nodes_between(graph, [graph.value(outputs[0])], begins)
            has_integers = any(facts(graph.op_type(part)).quantized in ("integers", "packed") for part in inside)
            if not (has_integers or read or narrow or any(map(self._is_read_quantized, maker.input))):
                continue
            if any(points[name].matched == "quantized" for name in names.keys() & points.keys()):
                continue
            free = []
            for place in sorted(chain):
                free.append(copy.deepcopy(nodes[place]))
                inputs = [names[name] for name in free[-1].input]
                free[-1].input[:] = [name + _WIDE if name in read else name for name in inputs]
                free[-1].output[:] = [names.get(name, name) for name in free[-1].output]
            free[-1].output[:] = [name + _WIDE if name in narrow else name for name in outputs]
            weights = frozenset(names.keys() & self.reference.initializers.keys())
            matrices = [name for name in weights if len(self.reference.initializers[name].shape) > 1]
            owner = next((nodes[place].name for place in chain if {*matrices} & {*nodes[place].input}), node.name)
            key = matrices[0] if len(matrices) == 1 else owner
            key = f"{key} of {owner}" if any(key == region.key for region in regions.values()) else key
            kind = _ELEM_TYPES.get(dtype, TensorProto.FLOAT)
            regions[outputs[0]] = _Replacement(key, owner or node.name, free, weights, frozenset(read), narrow, kind)
        return regions

    def _type(self, model: Model, name: str) -> str:
        graph = Graph.of(model)
        return str(graph.type_of(graph.value(name)).dtype) if name in graph.value_names else ""

    def _is_read_quantized(self, name: str) -> bool:
        """Return whether a value is a weight that is dequantized for its own reader, and not one of a QDQ model."""
        while (maker := self._written.get(name)) is not None and maker.op_type in TRANSPARENT:
            if maker.op_type == "DequantizeLinear" and (not self._rounded or attributes(maker).get("block_size")):
                return True
            name = maker.input[0]
        return False

    def touching(self, tensor: str) -> frozenset[str]:
        """Return the quantized nodes that read or write a tensor or a weight of the float model."""
        return self.completed(set(self._touching.get(tensor, ())))

    def free(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return the tensors and weights that are in float if some nodes of the float model are."""
        exclusion = self.completed(nodes)
        return frozenset(tensor for tensor, touching in self.touched_by.items() if touching <= exclusion)

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
        proto = self._sorted()
        graph = proto.graph
        sites = [site for site in self._sites.values() if self.touched_by[site.tensor] <= nodes]
        regions = {name: region for name, region in self._regions.items() if region.node in nodes}
        self._add_weights(graph, sites, regions.values())
        replacements = {site.output: [self._free_tensor(site)] for site in sites}
        replacements |= self._between_types(regions, {name: region.free for name, region in regions.items()})
        _replace(graph, replacements)
        ends = self._restored.keys() | {value.name for value in graph.output}
        source = {site.output: site.source for site in sites if ends.isdisjoint((site.output, site.source))}
        for node in graph.node:
            node.input[:] = [source.get(name, name) for name in node.input]
        _remove_unused(proto)
        return with_proto(self.candidate, proto, f"{self.candidate.name}, {len(nodes)} nodes in float")

    def _is_quantized(self, node: NodeProto) -> bool:
        return any(name in self._rounded or name + _INPUT_SUFFIX in self._rounded for name in node.output)

    def _add_weights(self, graph: Any, sites: Iterable[_DequantizedTensor], regions: Iterable[_Replacement]) -> None:
        """Add the float weights of sites and regions, and the bounds of activations that may be restored."""
        free = {site.source: site.tensor for site in sites if site.is_weight}
        free |= {name + _WIDE: name for region in regions for name in region.weights}
        bounds = {name for node in self._restored.values() for name in node.input[1:]}
        free |= {name: name for name in bounds if name in self.reference.initializers}
        for name in free.keys() - {tensor.name for tensor in graph.initializer}:
            graph.initializer.append(numpy_helper.from_array(self.reference.tensor(free[name]), name))

    def _between_types(
        self, regions: Mapping[str, _Replacement], by_output: Mapping[str, list[NodeProto]]
    ) -> dict[str, list[NodeProto]]:
        """Return the nodes that replace regions, with the casts from and to float16 around them."""
        wide = {name for region in regions.values() for name in region.narrow}
        nodes: dict[str, list[NodeProto]] = {}
        for output, region in regions.items():
            nodes[output] = [_cast(name, name + _WIDE, TensorProto.FLOAT) for name in sorted(region.halves - wide)]
            nodes[output] += by_output[output]
            nodes[output] += [_cast(name + _WIDE, name, TensorProto.FLOAT16) for name in region.narrow]
            wide |= region.halves
        return nodes

    def _sorted(self) -> ModelProto:
        """Return a copy of the quantized model with its nodes in order: a body reads only what stands before it."""
        proto = copy.deepcopy(self.candidate.proto)
        order = Graph.of(self.candidate).rank[: len(proto.graph.node)].argsort()
        set_entries(proto.graph.node, (self.candidate.proto.graph.node[place] for place in order))
        return proto

    def switchable(self) -> Model:
        """Return the quantized model with an input for each quantized tensor, `flag_of`: whether it is in float."""
        proto = self._sorted()
        graph = proto.graph
        self._add_weights(graph, self._sites.values(), self._regions.values())
        kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
        switches = {}
        for site in self._sites.values():
            back = copy.deepcopy(self._written[site.output])
            rounding = [back]
            if not site.is_weight:
                rounding.insert(0, copy.deepcopy(self._written[back.input[0]]))
                back.input[0] = rounding[0].output[0] = f"{site.output} rounded"
            elem_type = kinds.get(back.input[1], TensorProto.FLOAT)
            switches[site.output] = [_if(site.tensor, [site.output], [self._free_tensor(site)], rounding, elem_type)]
        choices = {}
        for name, region in self._regions.items():
            maker, outputs = copy.deepcopy(self._written[name]), [*region.free[-1].output]
            maker.output[:] = [f"{end} rounded" if end in region.narrow else end for end in maker.output]
            casts = [_cast(f"{end} rounded", end + _WIDE, region.elem_type) for end in region.narrow]
            choices[name] = [_if(region.key, outputs, copy.deepcopy(region.free), [maker, *casts], region.elem_type)]
        switches |= self._between_types(self._regions, choices)
        _replace(graph, switches)
        for tensor in self.touched_by:
            graph.input.append(helper.make_tensor_value_info(flag_of(tensor), TensorProto.BOOL, []))
        _remove_unused(proto)
        return with_proto(self.candidate, proto, f"{self.candidate.name} with switches")

    def _free_tensor(self, site: _DequantizedTensor) -> NodeProto:
        """Return what makes a tensor that is not rounded: an activation that the quantizer left out, or nothing."""
        free = NodeProto(op_type="Identity", input=[site.source], output=[site.output])
        if site.source in self._restored:
            free.CopyFrom(self._restored[site.source])
            free.input[0], free.output[0] = site.source, site.output
        return free


def flag_of(tensor: str) -> str:
    """Return the input of `Mixer.switchable` that says whether a tensor of the float model is in float."""
    return f"{tensor} is in float"


def _if(tensor: str, outputs: list[str], free: list[NodeProto], rounding: list[NodeProto], elem_type: int) -> NodeProto:
    """Return an If that runs one list of nodes where a tensor of the float model is in float, else the other."""
    bodies = {}
    for key, nodes in (("then_branch", free), ("else_branch", rounding)):
        names = {name: f"{name} {key}" for name in outputs if name}
        for node in nodes:
            node.output[:] = [names.get(name, name) for name in node.output]
        ends = [helper.make_tensor_value_info(name, elem_type, None) for name in names.values()]
        bodies[key] = helper.make_graph(nodes, f"{outputs[0]} {key}", [], ends)
    return helper.make_node("If", [flag_of(tensor)], [name for name in outputs if name], outputs[0], **bodies)


def _cast(read: str, output: str, elem_type: int) -> NodeProto:
    return helper.make_node("Cast", [read], [output], output, to=elem_type)


def _replace(graph: Any, by_output: Mapping[str, list[NodeProto]]) -> None:
    """Replace nodes by others, by the first output of each."""
    if by_output:
        parts = (part for node in graph.node for part in by_output.get(next(iter(node.output), ""), [node]))
        set_entries(graph.node, parts)


def _remove_unused(proto: ModelProto) -> None:
    graph = proto.graph
    names = {value.name for value in graph.output}
    left: list[NodeProto] = []
    for node in reversed(graph.node):
        if names.intersection(node.output):
            left.append(node)
            for part in all_nodes([node]):
                names.update(part.input)
                names.update(value.name for _, body in graphs_of(part) for value in body.output)
    set_entries(graph.node, reversed(left))
    set_entries(graph.initializer, (tensor for tensor in graph.initializer if tensor.name in names))
