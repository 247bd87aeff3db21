"""The edits that onnx-graphsurgeon has too, on every backend model: ours and theirs must compute the same.

``python -m tests.conformance.surgeon --surgeon FOLDER`` takes the package from a folder, made by
``pip install --no-deps --target FOLDER onnx-graphsurgeon``, and prints a table.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.shape_inference
from onnx import ModelProto, TypeProto, helper, numpy_helper

import onnx_nb
from tests.conformance.cases import SOURCES, Runnable, plain, runnable, same_bits

SAME = "same"


class Place(NamedTuple):
    """Where a model is edited, and what runs it: an Identity stands before each input and after each output."""

    proto: ModelProto
    feeds: Mapping[str, Any]
    outputs: Mapping[str, Any]
    types: Mapping[str, TypeProto]

    @property
    def inner(self) -> list[str]:
        """The tensors that nodes make and nodes read."""
        read = {name for node in self.proto.graph.node for name in node.input}
        return [name for node in self.proto.graph.node for name in node.output if name in read]

    def is_alike(self, one: str, other: str) -> bool:
        """Whether two tensors have the same, known type."""
        return (
            one in self.types and self.types[one] == self.types.get(other) and self.types[one].HasField("tensor_type")
        )


class NoPlaceError(Exception):
    """The model has nothing that can be edited so."""


def padded(one: Runnable) -> Place | None:
    """Put Identities around a model, so that one of a single node has tensors inside; None if they refuse its types."""
    proto = ModelProto()
    proto.CopyFrom(one.model)
    graph, weights = proto.graph, {tensor.name for tensor in proto.graph.initializer}
    inputs = {
        info.name: f"inner {info.name}" for info in graph.input if info.name in one.feeds and info.name not in weights
    }
    outputs = {info.name: f"inner {info.name}" for info in graph.output if info.name not in inputs}
    if any(
        attribute.type in (attribute.GRAPH, attribute.GRAPHS) for node in graph.node for attribute in node.attribute
    ):
        return None  # bodies read names from outside too
    names = {**inputs, **outputs}
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    before = [helper.make_node("Identity", [name], [inner], f"before {name}") for name, inner in inputs.items()]
    after = [helper.make_node("Identity", [inner], [name], f"after {name}") for name, inner in outputs.items()]
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    try:
        values = plain(proto, dict(one.feeds), optimize=False)
        typed = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:  # noqa: BLE001  # onnxruntime and onnx have many
        return None
    infos = (*typed.input, *typed.output, *typed.value_info)
    return Place(proto, one.feeds, values, {info.name: info.type for info in infos})


def surgeon_graph(place: Place) -> Any:
    """Import a model into onnx-graphsurgeon."""
    import onnx_graphsurgeon as gs

    return gs.import_onnx(place.proto)


def exported(graph: Any) -> ModelProto:
    """Export a graph of onnx-graphsurgeon, sorted and without what nothing needs."""
    import onnx_graphsurgeon as gs

    made: ModelProto = gs.export_onnx(graph.cleanup().toposort(), do_type_check=False)
    return made


def negation(place: Place, tensor: str) -> str:
    """The operator that changes a tensor's values without changing its type."""
    kind = place.types[tensor].tensor_type.elem_type if tensor in place.types else 0
    return "Neg" if kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE) else "Identity"


def first(names: list[str]) -> str:
    if not names:
        raise NoPlaceError
    return names[len(names) // 2]


def rename(place: Place) -> tuple[Any, Any]:
    name = first(place.inner)
    graph = surgeon_graph(place)
    graph.tensors()[name].name = "another"
    return onnx_nb.edit(place.proto).rename({name: "another"}), graph


def remove(place: Place) -> tuple[Any, Any]:
    """A node whose first input has the type of its output."""
    ends = {info.name for info in place.proto.graph.output}
    fitting = [
        node
        for node in place.proto.graph.node
        if len([*filter(None, node.output)]) == 1 and node.output[0] not in ends and node.input
        if place.is_alike(node.input[0], node.output[0]) and node.input[0] not in _weights(place)
    ]
    name = first([node.output[0] for node in fitting])
    graph = surgeon_graph(place)
    tensor = graph.tensors()[name]
    source = tensor.inputs[0].inputs[0]
    for reader in [*tensor.outputs]:
        for slot, value in enumerate(reader.inputs):
            if value is tensor:
                reader.inputs[slot] = source
    return onnx_nb.edit(place.proto).remove(name), graph


def insert(place: Place) -> tuple[Any, Any]:
    import onnx_graphsurgeon as gs

    name = first(place.inner)
    graph = surgeon_graph(place)
    tensor, result = graph.tensors()[name], gs.Variable("its negative")
    for reader in [*tensor.outputs]:
        for slot, value in enumerate(reader.inputs):
            if value is tensor:
                reader.inputs[slot] = result
    graph.nodes.append(gs.Node(negation(place, name), inputs=[tensor], outputs=[result]))
    return onnx_nb.edit(place.proto).insert(negation(place, name), after=name), graph


def output(place: Place) -> tuple[Any, Any]:
    name = first(place.inner)
    graph = surgeon_graph(place)
    graph.outputs.append(graph.tensors()[name])
    return onnx_nb.edit(place.proto).output(name), graph


def drop(place: Place) -> tuple[Any, Any]:
    """An output, beside one that is added if there is no other."""
    name, inner = place.proto.graph.output[0].name, [name for name in place.inner if name in place.types]
    if len(place.proto.graph.output) == 1:
        info = onnx.ValueInfoProto(name=first(inner), type=place.types.get(first(inner)))
        place = place._replace(proto=onnx.ModelProto.FromString(place.proto.SerializeToString()))
        place.proto.graph.output.append(info)
    graph = surgeon_graph(place)
    graph.outputs = [tensor for tensor in graph.outputs if tensor.name != name]
    return onnx_nb.edit(place.proto).drop(name), graph


def replace(place: Place) -> tuple[Any, Any]:
    """A node that reads one tensor, and weights, by an operator of one input."""
    known = _weights(place)
    fitting = [
        node
        for node in place.proto.graph.node
        if len([*filter(None, node.output)]) == 1 and len({*node.input} - known - {""}) == 1
        if node.input[0] not in known and place.is_alike(node.input[0], node.output[0])
    ]
    end = first([node.output[0] for node in fitting])
    start = next(node.input[0] for node in fitting if node.output[0] == end)
    infos = [onnx.ValueInfoProto(name=name, type=place.types[start]) for name in ("v", "w")]
    nodes = [helper.make_node(negation(place, start), ["v"], ["w"])]
    imports = [entry for entry in place.proto.opset_import if entry.domain in ("", "ai.onnx")]
    part = helper.make_model(
        helper.make_graph(nodes, "part", infos[:1], infos[1:]), opset_imports=imports, ir_version=8
    )
    graph = surgeon_graph(place)
    tensors = graph.tensors()
    tensors[end].inputs.clear()
    graph.layer(op=negation(place, start), inputs=[tensors[start]], outputs=[tensors[end]])
    return onnx_nb.edit(place.proto).replace([start], [end], part), graph


def weight(place: Place) -> tuple[Any, Any]:
    graph = surgeon_graph(place)
    weights, known = place.proto.graph.initializer, graph.tensors()  # theirs has no weight that nothing reads
    name = first([tensor.name for tensor in weights if tensor.data_type == tensor.FLOAT and tensor.name in known])
    values = next(numpy_helper.to_array(tensor) for tensor in weights if tensor.name == name)
    graph.tensors()[name].values = np.ascontiguousarray(-values)
    return onnx_nb.edit(place.proto).weight(name, -values), graph


def _weights(place: Place) -> set[str]:
    constants = {name for node in place.proto.graph.node if node.op_type == "Constant" for name in node.output}
    return {tensor.name for tensor in place.proto.graph.initializer} | constants


EDITS: dict[str, Callable[[Place], tuple[Any, Any]]] = {
    "rename": rename,
    "remove": remove,
    "insert": insert,
    "output": output,
    "drop": drop,
    "replace": replace,
    "weight": weight,
}


def operators(proto: ModelProto) -> Counter[str]:
    """Count the operators of the nodes that an output needs: theirs also drops nodes that fed what was removed."""
    needed, counts = {info.name for info in proto.graph.output}, Counter[str]()
    for node in reversed(proto.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
            counts[node.op_type] += 1
    return counts


def outcome(edit: Callable[[Place], tuple[Any, Any]], place: Place) -> str:
    """ "same", "left out: …" or "differs: …"."""
    try:
        ours, graph = edit(place)
    except NoPlaceError:
        return "left out: nothing to edit so"
    except onnx_nb.EditError as error:
        return f"left out: ours refuses: {error.message}"
    found, theirs = ours.model.to_proto(), exported(graph)
    counts = [operators(proto) for proto in (found, theirs)]
    results: list[Any] = []
    for proto in (found, theirs):
        try:
            results.append(plain(proto, dict(place.feeds), optimize=False))
        except Exception as error:  # noqa: BLE001  # onnxruntime has many
            results.append(" ".join(str(error).split())[:300])
    one, other = results
    if isinstance(one, str) or isinstance(other, str):
        if isinstance(one, str) and isinstance(other, str):
            return "left out: neither runs, as the edit does not fit the operators"
        return f"differs: ours {'fails' if isinstance(one, str) else 'runs'}: {one if isinstance(one, str) else other}"
    if list(one) != list(other):
        return f"differs: outputs {list(one)}, not {list(other)}"
    if not all(map(same_bits, one.values(), other.values())):
        return "differs: values"
    return SAME if counts[0] == counts[1] else f"differs: operators {counts[0] - counts[1]}, {counts[1] - counts[0]}"


def places(source: str, left: Counter[str]) -> list[tuple[str, Place]]:
    """The models of a source that onnx-graphsurgeon reads and writes as they are; ``left`` counts the others."""
    found = []
    for one in runnable(source)[0]:
        place = padded(one)
        if place is None:
            left["bodies, or types that no Identity takes"] += 1
            continue
        try:
            again = plain(exported(surgeon_graph(place)), dict(place.feeds), optimize=False)
        except Exception as error:  # noqa: BLE001  # theirs and onnxruntime have many
            left[f"onnx-graphsurgeon does not read and write it: {type(error).__name__}"] += 1
            continue
        if list(again) == list(place.outputs) and all(map(same_bits, again.values(), place.outputs.values())):
            found.append((one.case.name, place))
        else:
            left["random, or onnx-graphsurgeon changes it"] += 1
    return found


def main() -> int:
    """Print a table, and each model whose edits differ; 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.surgeon", description=__doc__)
    parser.add_argument("--surgeon", help="folder with the package")
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=SOURCES)
    chosen = parser.parse_args()
    sys.path.append(chosen.surgeon or ".")
    left, counts, wrong = Counter[str](), Counter[tuple[str, str]](), 0
    for source in chosen.sources:
        for name, place in places(source, left):
            counts["models", SAME] += 1
            for edit, function in EDITS.items():
                said = outcome(function, place)
                counts[edit, ":".join(said.split(":")[:2])[:100]] += 1
                if said.startswith("differs"):
                    wrong += 1
                    print(f"  {edit} {name}: {said}", flush=True)
    for (edit, said), count in sorted(counts.items()):
        print(f"{edit:10}{count:>7,}  {said}")
    for reason, count in left.most_common():
        print(f"{'left out':10}{count:>7,}  {reason}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
