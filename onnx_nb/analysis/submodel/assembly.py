"""Make a model of some nodes of another: their weights, functions and docs, with typed inputs and outputs.

A type is taken from where it is cheapest to know: declared in the file, inferred by onnx from the nodes before the
tensor (in pieces of 500, which is faster than all at once and needs no whole graph), told by an onnxruntime
session on those nodes, or seen in a run of them. Weights are never read: the new model refers to the same bytes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TensorProto, TypeProto

from onnx_nb.analysis.errors import ExtractionError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted, shortened
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import DANGLING, GRAPH_INPUT, INITIALIZER, Graph
from onnx_nb.analysis.graph.operators import MARK
from onnx_nb.analysis.graph.subgraphs import Key, key_of
from onnx_nb.analysis.model import tensors, wire
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.nodes import all_nodes
from onnx_nb.analysis.model.storage import references

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model

_PIECE: Final = 500
"""So many nodes are inferred at once; onnx takes longer per node in larger graphs."""


def assemble(
    model: Model,
    nodes: Iterable[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    name: str,
    constants: Iterable[TensorProto] = (),
    types: Mapping[int, TypeProto] | None = None,
) -> Model:
    """Make a model of some nodes.

    Parameters
    ----------
    model
        Where they come from; it is not changed.
    nodes
        Nodes of its main graph.
    inputs, outputs
        Values that the nodes read and make; a value may be a weight, which then is an input instead.
    name
        What to call the new model.
    constants
        Weights to add, for values that the nodes read and nobody makes.
    types
        Those of the inputs and outputs, if they are known; see `boundary_types`.

    Raises
    ------
    ExtractionError
        If the type of an input or output cannot be found out, or the nodes cannot be put in order.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.model.model import load
    >>> model = load(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  z = Neg(a) }'''))
    >>> graph = Graph.of(model)
    >>> assemble(model, [1], [graph.value("a")], [graph.value("z")], name="the end")
    Model('the end', 1 node, 0 B, opset 17)
    """
    graph = Graph.of(model)
    chosen = Flow.of(graph).sorted(nodes)
    added = list(constants)
    weights = weights_of(graph, chosen, inputs, outputs)
    infos = _infos(graph, chosen, (*inputs, *outputs))
    proto = _bare(model, chosen, weights, inputs, outputs, infos=infos)
    proto.graph.initializer.extend(added)
    listed = weights if model.proto.ir_version < 4 else []  # before IR 4 every initializer must be an input too
    known = {} if types is None else types
    unknown = dict.fromkeys(value for value in (*inputs, *listed, *outputs) if value not in known)
    types = {**known, **_Types(model, infos).find(list(unknown))}
    target = proto.graph
    target.input.extend(_port(graph, value, types) for value in (*inputs, *listed))
    if model.proto.ir_version < 4:
        target.input.extend(_info(plain_text(tensor.name), tensor_type(tensor)) for tensor in added)
    target.output.extend(_port(graph, value, types) for value in outputs)
    _check_names(model.proto.graph, (info.name for info in (*target.input, *target.output)))
    return with_proto(model, proto, name=name)


def weights_of(graph: Graph, nodes: Iterable[int], inputs: Iterable[int], outputs: Iterable[int] = ()) -> list[int]:
    """Return the weights that nodes read and the outputs that are weights, in the model's order."""
    flow = Flow.of(graph)
    read = {value for node in nodes for value in flow.reads(node)}.union(outputs).difference(inputs)
    return sorted(value for value in read if flow.kinds[value] == INITIALIZER)


def weight_tensors(graph: Graph, values: Iterable[int]) -> list[TensorProto | onnx.SparseTensorProto]:
    """Return the initializers that make values."""
    origin, row = graph.model.proto.graph, Flow.of(graph).weight_row
    dense = len(origin.initializer)
    rows = sorted(map(row.__getitem__, values))
    if rows and rows[-1] < dense and rows[-1] - rows[0] == len(rows) - 1:  # a slice is faster than as many look-ups
        return list(origin.initializer[rows[0] : rows[-1] + 1])
    return [origin.initializer[i] if i < dense else origin.sparse_initializer[i - dense] for i in rows]


def stored_bytes(tensor: TensorProto | onnx.SparseTensorProto) -> int:
    """Return how many bytes the values of a weight take where they lie."""
    if isinstance(tensor, onnx.SparseTensorProto):
        return stored_bytes(tensor.values) + stored_bytes(tensor.indices)
    if tensor.data_location != TensorProto.EXTERNAL:
        return tensors.held_bytes(tensor)
    length = references(tensor).get("length", "")
    return int(length) if length.isdigit() and len(length) < 20 else max(tensors.declared_bytes(tensor), 0)


def functions_of(graph: Graph, nodes: Iterable[int]) -> tuple[Key, ...]:
    """Return the local functions that nodes call, those called inside bodies and other functions included."""
    known = graph.functions
    if not known:
        return ()
    found = set[Key]()
    waiting = [graph.nodes[node] for node in nodes]
    while waiting:
        keys = {key_of(node) for node in all_nodes(waiting)} & known.keys() - found
        found |= keys
        waiting = [node for key in keys for node in known[key].node]
    return tuple(key for key in known if key in found)


def main_value(graph: Graph, name: str) -> int:
    """Return the value of the main graph that has a name, or −1: faster than `Graph.value` for a few names."""
    names = graph.value_names
    stop = int(np.searchsorted(graph.value_subgraph, 0, side="right"))
    found = -1
    try:
        while name:
            found = names.index(name, found + 1, stop)  # of several that share a name in a broken model, the last
    except ValueError:
        pass
    return found


def _infos(graph: Graph, nodes: Iterable[int], border: Iterable[int]) -> list[onnx.ValueInfoProto]:
    """Return what the file declares of what nodes make and of further values, in one look at all that it declares."""
    values = {value for node in nodes for value in graph.node_outputs(node).tolist() if value >= 0}.union(border)
    names = {graph.value_names[value] for value in values}
    return [
        info
        for info in graph.model.proto.graph.value_info
        if (name if isinstance(name := info.name, str) else plain_text(name)) in names
    ]


def _bare(
    model: Model,
    nodes: Sequence[int],
    weights: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    infos: Iterable[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    """Return all but inputs and outputs; of ``infos`` what is about values inside."""
    source, graph = model.proto, Graph.of(model)
    proto = onnx.ModelProto()
    wire.copy_fields(source, proto, without=("graph", "functions", "training_info"))
    proto.functions.extend(graph.functions[key] for key in functions_of(graph, nodes))
    target, origin = proto.graph, source.graph
    for field in ("name", "doc_string"):
        wire.set_field(target, field, getattr(origin, field))
    target.metadata_props.extend(origin.metadata_props)
    target.node.extend(origin.node[node] for node in nodes)
    _rename_overwritten(graph, target, nodes, inputs)
    for tensor in weight_tensors(graph, weights):
        (target.sparse_initializer if isinstance(tensor, onnx.SparseTensorProto) else target.initializer).append(tensor)
    border = {graph.value_names[value] for value in (*inputs, *outputs, *weights)}
    made = {plain_text(name) for node in target.node for name in node.output} - border
    target.value_info.extend(info for info in infos if plain_text(info.name) in made)
    around = made | border
    target.quantization_annotation.extend(
        a for a in origin.quantization_annotation if plain_text(a.tensor_name) in around
    )
    return proto


def _rename_overwritten(graph: Graph, target: onnx.GraphProto, nodes: Sequence[int], inputs: Collection[int]) -> None:
    """Rename results that are inputs now: of a Split's two, one may be given and the other be made."""
    flow, given = Flow.of(graph), set(inputs)
    makers = {flow.producer[value] for value in given} & set(nodes)
    if not makers:
        return
    taken = set(graph.value_names)
    for place, node in enumerate(nodes):
        if node not in makers:
            continue
        for slot, value in enumerate(graph.node_outputs(node).tolist()):
            if value in given:
                base = f"{graph.value_names[value]}_made_again"
                fresh = next(name for i in itertools.count() if (name := f"{base}{i or ''}") not in taken)
                taken.add(fresh)
                target.node[place].output[slot] = fresh


def _check_names(origin: onnx.GraphProto, names: Iterable[str]) -> None:
    r"""See that names are those in the file: `Graph` writes ``\xff`` and the like for bytes that are not UTF-8."""
    border = {name for name in names if "\\x" in name}
    if not border:
        return
    declared = [entry.name for entry in (*origin.input, *origin.initializer)]
    for name in itertools.chain(
        declared, *(node.input for node in origin.node), *(node.output for node in origin.node)
    ):
        if isinstance(name, bytes) and plain_text(name) in border:
            message = (
                f"the name of tensor {quoted(plain_text(name))} is not valid UTF-8, so it cannot be an input or output."
            )
            raise ExtractionError(message, advice="Choose a tensor next to it, or rename it in the model.")


def _port(graph: Graph, value: int, types: Mapping[int, TypeProto]) -> onnx.ValueInfoProto:
    return _info(graph.value_names[value], types[value])


def _info(name: str, kind: TypeProto) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    info.type.CopyFrom(kind)
    return info


def tensor_type(tensor: TensorProto | onnx.SparseTensorProto) -> TypeProto:
    """Return the type of a weight."""
    if isinstance(tensor, onnx.SparseTensorProto):
        # onnxruntime makes sparse initializers dense
        return onnx.helper.make_tensor_type_proto(tensor.values.data_type, tensor.dims)
    return onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)


def boundary_types(model: Model, values: Iterable[int]) -> dict[int, TypeProto]:
    """Find out the types of values of the main graph.

    Dimensions that onnx made up names for are left unknown.

    Raises
    ------
    ExtractionError
        If the element type of one cannot be found out; says what was tried.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.model.model import load
    >>> model = load(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[N] x) => (float[N] z) { a = Shape(x)  b = Cast<to = 1>(a)  z = Add(b, x) }'''))
    >>> graph = Graph.of(model)
    >>> boundary_types(model, [graph.value("a")])[graph.value("a")].tensor_type.elem_type == TensorProto.INT64
    True
    """
    return _Types(model).find(list(dict.fromkeys(values)))


class _Types:
    """Types of values of one model, from the cheapest source that knows them."""

    def __init__(self, model: Model, infos: Iterable[onnx.ValueInfoProto] | None = None) -> None:
        self._model = model
        self._near = infos
        """What the file declares of the values that are asked for; ``None`` if that is not looked up yet."""
        self._graph = Graph.of(model)
        self._flow = Flow.of(self._graph)
        self._known: dict[int, TypeProto] = {}
        self._reasons: list[str] = []

    def find(self, wanted: Sequence[int]) -> dict[int, TypeProto]:
        self._declare(wanted)
        for source in (self._infer, self._ask, self._run):
            made = [value for value in wanted if self._flow.producer[value] >= 0]
            lacking = [value for value in made if not _is_complete(self._known.get(value))]
            if not lacking:
                break
            try:
                source(lacking)
            except ExtractionError as error:  # a circle of nodes before the tensor
                self._reasons.append(error.message)
        for value in wanted:
            if value not in self._known:
                self._give_up(value)
        return {value: self._known[value] for value in wanted}

    def _learn(self, value: int, kind: TypeProto) -> None:
        """Keep what says more than what is known."""
        known = self._known.get(value)
        if _says_something(kind) and (known is None or not _is_complete(known)):
            self._known[value] = kind

    @functools.cached_property
    def _declared(self) -> dict[int, onnx.ValueInfoProto]:
        """What the file declares of each value."""
        stop = int(np.searchsorted(self._graph.value_subgraph, 0, side="right"))
        values = dict(zip(self._graph.value_names[:stop], range(stop), strict=True))
        origin = self._model.proto.graph
        infos = itertools.chain(origin.input, origin.output, origin.value_info)
        found = {values.get(plain_text(info.name), -1): info for info in infos}
        found.pop(-1, None)
        return found

    def _declare(self, wanted: Iterable[int]) -> None:
        """Read what the file declares; weights declare themselves."""
        lacking = list(wanted)
        for value in lacking:
            if self._flow.kinds[value] == INITIALIZER:
                (tensor,) = weight_tensors(self._graph, [value])
                self._known[value] = tensor_type(tensor)
        if self._near is not None:
            names = {self._graph.value_names[value]: value for value in lacking}
            origin = self._model.proto.graph
            infos = itertools.chain(origin.input, origin.output, self._near)
            found = {names[name]: info for info in infos if (name := plain_text(info.name)) in names}
            self._near = None  # later questions are about other values
        else:
            found = {value: self._declared[value] for value in lacking if value in self._declared}
        for value, info in found.items():
            self._learn(value, info.type)

    def _infer(self, lacking: Sequence[int]) -> None:
        """Let onnx infer, from the nearest types that are declared."""
        if self._graph.lacking:
            label = self._graph.node_label(min(self._graph.lacking))
            self._reasons.append(f"onnx cannot infer it ({label} lacks an input that its operator needs)")
            return
        nodes = self._before(lacking)
        piece = np.full(self._graph.main_count + 1, -1, np.int32)  # the last for −1, values that no node makes
        piece[nodes] = np.arange(len(nodes)) // _PIECE
        reader, value = self._flow.edges
        made_in = piece[self._graph.producer[value]]
        across = value[(piece[reader] >= 0) & (made_in != piece[reader]) & (self._graph.producer[value] >= 0)]
        crossing = set(lacking).union(across.tolist())
        entering = crossing | self._open
        named = {self._graph.value_names[value]: value for value in crossing}
        for start in range(0, len(nodes), _PIECE):
            part = nodes[start : start + _PIECE]
            try:
                inferred = onnx.shape_inference.infer_shapes(self._piece(part, entering))
            except Exception as error:  # noqa: BLE001 (the C++ side lets out any kind, on models that onnx never met)
                self._reasons.append(f"onnx cannot infer it ({_reason(error)})")
                continue
            for info in inferred.graph.value_info:
                name = info.name
                made = named.get(name if isinstance(name, str) else plain_text(name))
                if made is not None:
                    self._learn(made, _without_made_up_names(info.type))

    def _before(self, values: Iterable[int]) -> list[int]:
        """Return the nodes between values and the nearest declared ones, sorted."""
        producer, declared, found = self._flow.producer, self._declared, set[int]()
        todo = [producer[value] for value in values]
        while todo:
            node = todo.pop()
            if node < 0 or node in found:
                continue
            found.add(node)
            todo += [
                producer[value]
                for value in self._flow.reads(node)
                if value not in declared or not _is_complete(declared[value].type)
            ]
        return self._flow.sorted(found)

    def _piece(self, nodes: Sequence[int], entering: set[int]) -> onnx.ModelProto:
        """Return a few nodes as a model in which all that is known is declared."""
        graph, flow, origin = self._graph, self._flow, self._model.proto
        proto = onnx.ModelProto(ir_version=max(origin.ir_version, 4))
        proto.opset_import.extend(origin.opset_import)
        proto.functions.extend(graph.functions[key] for key in functions_of(graph, nodes))
        inside = set(nodes)
        read = flow.reads_of(nodes)
        outer = sorted(value for value in read & entering if flow.producer[value] not in inside)
        # shapes that are Constant nodes serve inference by their values
        makers = dict.fromkeys(flow.producer[value] for value in outer)
        constant = [node for node in makers if node >= 0 and graph.operators[graph.op_index[node]][0] == "Constant"]
        inside.update(constant)
        run = nodes[-1] - nodes[0] == len(nodes) - 1  # as above
        own = origin.graph.node[nodes[0] : nodes[-1] + 1] if run else [origin.graph.node[node] for node in nodes]
        proto.graph.node.extend([*(origin.graph.node[node] for node in constant), *own])
        if (MARK[1], MARK[0]) in graph.operators:
            for node in proto.graph.node:
                if (plain_text(node.domain), plain_text(node.op_type)) == MARK:
                    node.domain, node.op_type = "", "Identity"
                    del node.attribute[:]
        proto.graph.name = "piece"
        weights = weight_tensors(graph, read & flow.weight_row.keys())
        sparse = [tensor for tensor in weights if isinstance(tensor, onnx.SparseTensorProto)]
        proto.graph.initializer.extend(tensor for tensor in weights if isinstance(tensor, TensorProto))
        proto.graph.input.extend(_info(plain_text(tensor.values.name), tensor_type(tensor)) for tensor in sparse)
        self._declare(value for value in outer if value not in self._known)
        known = [value for value in outer if value in self._known and flow.producer[value] not in inside]
        proto.graph.input.extend(_port(graph, value, self._known) for value in known)
        return proto

    @functools.cached_property
    def _open(self) -> set[int]:
        kinds = self._graph.value_kind
        return set(np.flatnonzero((kinds == GRAPH_INPUT) | (kinds == DANGLING)).tolist())

    def _ask(self, lacking: Sequence[int]) -> None:
        """Let onnxruntime tell the types of the outputs of a session, which knows more operators than onnx."""
        before = self._runnable(lacking)
        if before is None:
            return
        from onnx_nb.analysis.run import session  # imports onnxruntime; most cuts do not come so far

        names = [self._graph.value_names[value] for value in lacking]
        try:
            made = session.create(before, optimize=False, outputs=names, threads=1)
        except OnnxNbError as error:
            self._reasons.append(shortened(error.message, 300))
            if len(lacking) > 1:  # perhaps only the nodes before one of them are to blame
                for value in lacking:
                    self._ask([value])
            return
        for value, entry in zip(lacking, made.get_outputs(), strict=True):
            kind = _from_onnxruntime(entry.type, entry.shape)
            if kind is not None:
                self._learn(value, kind)

    def _run(self, lacking: Sequence[int]) -> None:
        """See the values of a run on random inputs: how many dimensions there are, not how long they are."""
        lacking = [value for value in lacking if value in self._known]  # what no session has is not run either
        before = self._runnable(lacking) if lacking else None
        if before is None:
            return
        from onnx_nb.analysis.run import session  # as above
        from onnx_nb.analysis.run.random_feeds import random_feeds

        names = [self._graph.value_names[value] for value in lacking]
        try:
            found = session.run(before, random_feeds(before), outputs=names)
        except OnnxNbError as error:
            self._reasons.append(f"a run on random inputs fails ({shortened(error.message, 300)})")
            return
        for value, name in zip(lacking, names, strict=True):
            array = found[name]
            if isinstance(array, np.ndarray):
                dtype = self._known[value].tensor_type.elem_type
                self._known[value] = onnx.helper.make_tensor_type_proto(dtype, [None] * array.ndim)

    def _runnable(self, lacking: Sequence[int]) -> Model | None:
        """Return the model that makes values out of the graph's inputs."""
        graph, flow = self._graph, self._flow
        nodes = flow.sorted(flow.ancestors(lacking))
        read = dict.fromkeys(value for node in nodes for value in flow.reads(node))
        inputs = [value for value in read if flow.producer[value] < 0 and flow.kinds[value] != INITIALIZER]
        self._declare(value for value in inputs if value not in self._known)
        unknown = [graph.value_names[value] for value in inputs if value not in self._known]
        if unknown:
            self._reasons.append(f"it hangs on {quoted(unknown[0])}, whose type is not known either")
            return None
        # without value_info: a wrong one would make onnxruntime refuse
        proto = _bare(self._model, nodes, weights_of(graph, nodes, inputs), inputs, ())
        proto.ir_version = max(proto.ir_version, 4)
        proto.graph.input.extend(_port(graph, value, self._known) for value in inputs)
        return with_proto(self._model, proto, name=f"the nodes before {quoted(graph.value_names[lacking[0]])}")

    def _give_up(self, value: int) -> None:
        tried = "; ".join(dict.fromkeys(self._reasons)) or "nothing tells it"
        message = f"the type of {quoted(self._graph.value_names[value])} is not known: the model does not declare it; "
        advice = "Choose a tensor next to it, or add its value_info to the model."
        raise ExtractionError(f"{message}{tried.removesuffix('.')}.", advice=advice)


def _says_something(kind: TypeProto) -> bool:
    which = kind.WhichOneof("value")
    return which is not None and (which != "tensor_type" or kind.tensor_type.elem_type != TensorProto.UNDEFINED)


def _is_complete(kind: TypeProto | None) -> bool:
    """Return whether a type would pass onnx's checker; it insists on the rank of tensors."""
    if kind is None or not _says_something(kind):
        return False
    return not kind.HasField("tensor_type") or bool(kind.tensor_type.HasField("shape"))


def _without_made_up_names(kind: TypeProto) -> TypeProto:
    for dim in kind.tensor_type.shape.dim if kind.HasField("tensor_type") else ():
        if plain_text(dim.dim_param).startswith("unk__"):
            dim.Clear()
    return kind


def _from_onnxruntime(kind: str, shape: Sequence[Any] | None) -> TypeProto | None:
    """Read "tensor(float)" and "seq(tensor(int64))"; a shape of no dimensions may also mean that none is known."""
    inner = kind.removeprefix("seq(").removeprefix("tensor(").rstrip(")")
    number = dict(TensorProto.DataType.items()).get(inner.upper())
    if number is None:
        return None
    if kind == f"seq(tensor({inner}))":
        return onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(number, None))
    if kind != f"tensor({inner})":
        return None
    dims = [dim if isinstance(dim, int) else None for dim in shape or ()]
    return onnx.helper.make_tensor_type_proto(number, dims or None)


def _reason(error: Exception) -> str:
    return shortened(" ".join(str(error).split()), 200) or type(error).__name__
