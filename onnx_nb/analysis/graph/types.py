"""The type of each value: as the file declares it, else as onnx infers it."""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnx_nb.analysis.formatting import plain_text, shortened
from onnx_nb.analysis.graph.diagnostics import Problem
from onnx_nb.analysis.graph.subgraphs import bodies, key_of
from onnx_nb.analysis.model.tensors import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnx_nb.analysis.graph.graph import Graph, Names

_NUMBERED = re.compile(r"unk__\d+")
INFERENCE_LIMIT = 20_000
"""Types of graphs with more nodes are not inferred, only declared ones are known: it would take seconds."""


@dataclass(frozen=True)
class ValueType:
    """The type of a value as far as it is known."""

    dtype: str = ""
    """As "float32", "seq(float32)"; empty if unknown."""
    shape: tuple[int | str | None, ...] | None = None
    """None if unknown; inside it None is a dimension of which nothing is known."""

    @property
    def shape_text(self) -> str:
        """The shape as "batch×3×224"; "scalar" for rank 0, empty if unknown."""
        if self.shape is None:
            return ""
        return "×".join("?" if dim is None else shortened(str(dim), 24) for dim in self.shape[:16]) or "scalar"

    def __str__(self) -> str:
        return " ".join(part for part in (self.shape_text, self.dtype) if part)


class Types:
    """The type of each value: an index into the distinct types."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self._graph = graph
        self._clear()
        if graph.plain is not graph:
            self._open(graph, names, graph.plain.types)
        elif not self._is_declared(names):
            self._clear()
            inferred, self.problems = _inferred(graph)
            self._declare(graph, names, 0, inferred)

    def _clear(self) -> None:
        self.of_value = np.zeros(self._graph.value_count, np.int32)
        self.known: list[ValueType] = [ValueType()]
        self.protos: list[bytes | None] = [None]
        self._index: dict[bytes, int] = {}

    @functools.cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps onnx from inferring types."""
        plain = self._graph.plain
        return _inferred(plain)[1] if plain is self._graph else plain.types.problems

    def _is_declared(self, names: Names) -> bool:
        """Read what is declared, and say whether inference would add nothing, as in what torch exports."""
        graph = self._graph
        if len(graph.subgraphs) > 1 or len(graph.model.proto.graph.value_info) < graph.node_count // 2:
            return False
        self._declare(graph, names, 0, [])
        whole = np.asarray([_is_whole(kind) for kind in self.known])
        return bool(whole[self.of_value[graph.producer >= 0]].all())

    def _open(self, graph: Graph, names: Names, plain: Types) -> None:
        """Take what is known without calls, and add what is in them."""
        self.of_value[: len(plain.of_value)] = plain.of_value
        self.known, self.protos = list(plain.known), list(plain.protos)
        self._index = dict(plain._index)
        inferred: dict[tuple[object, ...], list[onnx.GraphProto]] = {}
        left = INFERENCE_LIMIT
        for f in range(len(graph.plain.subgraphs), len(graph.subgraphs)):
            frame = graph.subgraphs[f]
            if frame.function is None:
                continue
            given = graph.node_inputs(frame.owner_node)
            kinds = np.where(given >= 0, self.of_value[given], -1)
            key = (id(frame.function), graph.attribute_bytes(frame.owner_node), kinds.tobytes())
            size = graph.inlined_sizes.get(key_of(graph.nodes[frame.owner_node]), math.inf)
            if key not in inferred and size <= left:
                left -= int(size)
                inferred[key] = self._infer_call(graph, f, kinds.tolist())
            self._declare(graph, names, f, inferred.get(key, []))

    def _declare(self, graph: Graph, names: Names, first: int, inferred: Sequence[onnx.GraphProto]) -> None:
        """Read the types of a frame and the bodies behind it, as they were inferred and as they are declared."""
        for f in range(first, len(graph.subgraphs)):
            frame = graph.subgraphs[f]
            if f > first and frame.function is not None:
                break
            for proto in [*inferred[f - first : f - first + 1], frame.graph]:
                # the main graph's dictionary of names is made only if it is needed
                scope = names.scopes[f] if proto.value_info else {}
                known = [(scope.get(plain_text(info.name), -1), info) for info in proto.value_info]
                if f >= len(graph.plain.subgraphs):
                    # what a call is given has its type from the caller
                    known = [(value, info) for value, info in known if value >= 0 and graph.value_subgraph[value] == f]
                ports: Iterable[tuple[int, onnx.ValueInfoProto]] = ()
                if frame.function is None:
                    given = zip(names.given[f], proto.input, strict=True)
                    ports = itertools.chain(given, zip(names.outputs[f], proto.output, strict=True))
                self._read(itertools.chain(known, ports), inferred=proto is not frame.graph)
            index, kinds = names.tables[f].types()
            self.of_value[frame.weights] = np.asarray([self._of_weight(kind) for kind in kinds])[index]

    def _infer_call(self, graph: Graph, f: int, kinds: Sequence[int]) -> list[onnx.GraphProto]:
        """Infer the types inside of a call; give the function as a graph, and the bodies in it."""
        frame = graph.subgraphs[f]
        function = frame.function
        if function is None or any(frame.start <= node < frame.stop for node in graph.lacking):
            return []
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION, opset_import=function.opset_import)
        model.graph.name = "called"
        model.graph.node.extend(graph.nodes[frame.start : frame.stop])
        if any(key_of(node) in graph.functions for node in model.graph.node):
            model.functions.extend(graph.functions.values())
        for name, kind in zip(function.input, kinds, strict=False):
            serialized = self.protos[kind] if kind >= 0 else None
            if serialized is not None:
                model.graph.input.add(name=name).type.ParseFromString(serialized)
        try:
            inferred = onnx.shape_inference.infer_shapes(model)
        except Exception:  # noqa: BLE001 (the C++ side lets out any kind; what it cannot tell stays unknown)
            return []
        inside = bodies(inferred.graph, range(len(inferred.graph.node)), graph.opsets)[1]
        return [inferred.graph, *(body.graph for body in inside)]

    def _read(self, infos: Iterable[tuple[int, onnx.ValueInfoProto]], *, inferred: bool) -> None:
        for value, info in infos:
            if value < 0 or not info.HasField("type"):
                continue
            new = self._add(info.type.SerializeToString(), inferred=inferred)
            old = self.known[self.of_value[value]]
            # what onnx infers may say more than what the file declares
            if old.shape is None or (self.known[new].shape is not None and not inferred):
                self.of_value[value] = new if self.known[new].dtype else self.of_value[value]

    def _of_weight(self, kind: tuple[int, ...]) -> int:
        return self._add(onnx.helper.make_tensor_type_proto(kind[0], kind[1:]).SerializeToString(), inferred=False)

    def _add(self, serialized: bytes, *, inferred: bool) -> int:
        index = self._index.get(serialized)
        if index is None:
            index = self._index[serialized] = len(self.known)
            self.known.append(_value_type(onnx.TypeProto.FromString(serialized), inferred=inferred))
            self.protos.append(serialized)
        return index


def _inferred(graph: Graph) -> tuple[list[onnx.GraphProto], tuple[Problem, ...]]:
    """Infer types; give the main graph and the bodies in it with them, or why there are none."""
    if not graph.node_count or graph.node_count + graph.inlined_count > INFERENCE_LIMIT:
        return [], ()
    if graph.lacking:
        node = min(graph.lacking)
        message = f"types are not inferred: {graph.node_label(node)} lacks an input that its operator needs"
        return [], (Problem("inference", message, node),)
    try:
        proto = onnx.shape_inference.infer_shapes(graph.model.proto)
    except Exception as error:  # noqa: BLE001 (the C++ side lets out any kind, on models that onnx never met)
        reason = shortened(" ".join(str(error).split()), 200) or type(error).__name__
        return [], (Problem("inference", f"onnx cannot infer types: {reason}"),)
    owners = [node for node in graph._bodies_of if node < graph.main_count]  # noqa: SLF001
    return [proto.graph, *(body.graph for body in bodies(proto.graph, owners, graph.opsets)[1])], ()


def _is_whole(kind: ValueType) -> bool:
    """Return whether a type says all of a tensor, in the model's own words: onnx's inference numbers dimensions."""
    return kind.shape is not None and not any(dim is None or _is_numbered(dim) for dim in kind.shape)


def _is_numbered(dim: int | str) -> bool:
    return isinstance(dim, str) and _NUMBERED.fullmatch(dim) is not None


def _value_type(proto: onnx.TypeProto, *, inferred: bool) -> ValueType:
    wrappers: list[str] = []
    while len(wrappers) < 64:
        kind = proto.WhichOneof("value")
        if kind == "sequence_type":
            wrappers.append("seq")
            proto = proto.sequence_type.elem_type
        elif kind == "optional_type":
            wrappers.append("optional")
            proto = proto.optional_type.elem_type
        elif kind == "map_type":
            wrappers.append(f"map {dtype_name(proto.map_type.key_type)} →")
            proto = proto.map_type.value_type
        else:
            break
    tensor = proto.sparse_tensor_type if kind == "sparse_tensor_type" else proto.tensor_type
    if kind == "sparse_tensor_type":
        wrappers.append("sparse")
    dtype = dtype_name(tensor.elem_type)
    if kind not in ("tensor_type", "sparse_tensor_type"):
        dtype = plain_text(proto.opaque_type.name) if kind == "opaque_type" else "?" if wrappers else ""
    shape: tuple[int | str | None, ...] | None = None
    if tensor.HasField("shape") and dtype and set(wrappers) <= {"sparse"}:
        shape = tuple(_dimension(dim, inferred=inferred) for dim in tensor.shape.dim)
    for wrapper in reversed(wrappers):
        dtype = f"{wrapper} {dtype}" if wrapper.endswith("→") else f"{wrapper}({dtype})"
    return ValueType(dtype, shape)


def _dimension(dim: onnx.TensorShapeProto.Dimension, *, inferred: bool) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value)
    name = plain_text(dim.dim_param)
    # onnx's inference numbers the dimensions it knows nothing about
    return None if not name or (inferred and _is_numbered(name)) else name
