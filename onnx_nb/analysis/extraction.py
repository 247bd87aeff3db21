"""Cut a submodel out of a model: first say what would happen (`plan_extraction`), then do it (`extract`).

One backward walk from the outputs, stopped by the inputs, gives the nodes that count; one forward pass over them tells
those that lie between from those that hang on graph inputs nobody gave. The border of the two is what is missing.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnx_nb.analysis import wire
from onnx_nb.analysis.errors import ExtractionError, OnnxNbError, shown, text
from onnx_nb.analysis.graph import DANGLING, GRAPH_INPUT, INITIALIZER, Graph
from onnx_nb.analysis.model import Model, ModelLike, load

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class MissingInput:
    """A tensor that would have to be an input as well."""

    name: str
    """The tensor."""
    output: str
    """An output that needs it."""
    producer: str
    """The node that makes it, as ``Conv '/stem/Conv'``; empty for a graph input."""

    @property
    def message(self) -> str:
        """Say who needs the tensor and where it comes from."""
        origin = f"made by {self.producer}" if self.producer else "an input of the model"
        return f"output {shown(self.output)} also needs {shown(self.name)} ({origin})"


@dataclass(frozen=True)
class ExtractionPlan:
    """What an extraction would take; `extract` executes exactly this."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: NDArray[np.int32]
    """Indices into ``model.proto.graph.node``, ascending; what is taken once nothing is missing any more."""
    initializers: tuple[str, ...]
    """Weights the nodes read."""
    functions: tuple[tuple[str, str, str], ...]
    """Local functions the nodes call, directly or through others: (domain, name, overload)."""
    missing: tuple[MissingInput, ...]
    """Empty if the extraction can be done."""
    redundant: tuple[str, ...]
    """Inputs that no taken node reads."""
    suggestion: tuple[str, ...]
    """Inputs that make the plan complete; equal to `inputs` if nothing is missing."""
    nbytes: int
    """Bytes of the weights taken."""

    @property
    def message(self) -> str:
        """One sentence on the plan: what is wrong, else what is taken."""
        if not self.outputs:
            return "choose an output"
        if self.missing:
            more = len(self.missing) - 1
            return self.missing[0].message + (f", and {more} more" if more else "")
        if self.redundant:
            names = ", ".join(map(shown, self.redundant[:3]))
            return f"no taken node reads {names}"
        return ""

    def __repr__(self) -> str:
        state = f"missing {[m.name for m in self.missing]}" if self.missing else "complete"
        nodes = f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'}"
        return f"ExtractionPlan({', '.join(self.inputs)} → {', '.join(self.outputs)}: {nodes}, {state})"


def plan_extraction(model: ModelLike, inputs: Iterable[str], outputs: Iterable[str]) -> ExtractionPlan:
    """Say what an extraction between two sets of tensors would take, and what it lacks.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    inputs, outputs
        Names of tensors of the main graph. Inputs may be graph inputs, weights or outputs of nodes.

    Returns
    -------
    ExtractionPlan
        Also when inputs are missing: then it names them.

    Raises
    ------
    ExtractionError
        If a name is not a tensor of the main graph, or is both input and output.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  b = Neg(x)  z = Add(a, b) }''')
    >>> plan_extraction(model, ["a"], ["z"]).missing[0].message
    "output 'z' also needs 'b' (made by Neg)"
    >>> plan_extraction(model, ["a", "b"], ["z"])
    ExtractionPlan(a, b → z: 1 node, complete)
    """
    loaded = load(model)
    graph = Graph.of(loaded)
    starts = _resolved(graph, inputs, "input")
    ends = _resolved(graph, outputs, "output")
    both = [graph.value_names[value] for value in starts if value in set(ends)]
    if both:
        message = f"tensor {shown(both[0])} is chosen both as an input and as an output."
        raise ExtractionError(message, advice="Leave it in one of the two.")
    for value in ends:
        if graph.producer[value] < 0:
            what = "a weight" if graph.value_kind[value] == INITIALIZER else "a graph input"
            message = f"{shown(graph.value_names[value])} is {what}: no node makes it."
            raise ExtractionError(message, advice="Choose an output that a node makes.")

    cone = _Cone(graph, starts, ends)
    taken = cone.taken()
    read = {value for node in taken for value in _reads(graph, node)}
    kinds = graph.value_kind
    weights = [value for value in sorted(read) if kinds[value] == INITIALIZER and value not in cone.starts]
    sizes = loaded.initializers
    names = [graph.value_names[value] for value in weights]
    missing = tuple(cone.missing())
    given = [graph.value_names[value] for value in starts]
    return ExtractionPlan(
        inputs=tuple(given),
        outputs=tuple(graph.value_names[value] for value in ends),
        nodes=np.asarray(taken, np.int32),
        initializers=tuple(names),
        functions=_functions(graph, taken),
        missing=missing,
        redundant=() if missing or not ends else tuple(graph.value_names[v] for v in starts if v not in read),
        suggestion=tuple(dict.fromkeys([*given, *(m.name for m in missing)])),
        nbytes=sum(sizes[name].nbytes for name in names),
    )


def extract(
    model: ModelLike,
    inputs: Iterable[str],
    outputs: Iterable[str],
    *,
    keep_redundant: bool = True,
) -> Model:
    """Cut out the submodel between two sets of tensors.

    Weights are not read: the submodel refers to the same bytes until it is saved or run.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    inputs, outputs
        Names of tensors of the main graph; they become the submodel's inputs and outputs, in this order.
    keep_redundant
        Keep inputs that nothing reads as inputs of the submodel (with a warning); ``False`` drops them.

    Raises
    ------
    ExtractionError
        If inputs are missing (``error.missing`` names them), a name is wrong, or the type of an input is not known.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  b = Neg(x)  z = Add(a, b) }''')
    >>> extract(model, ["a"], ["z"])
    Traceback (most recent call last):
        ...
    onnx_nb.analysis.errors.ExtractionError: output 'z' also needs 'b' (made by Neg). Use inputs=['a', 'b'].
    >>> extract(model, ["a", "b"], ["z"])
    Model('g [a, b → z]', 1 node, 0 B, opset 17)
    """
    loaded = load(model)
    plan = plan_extraction(loaded, inputs, outputs)
    if not plan.outputs:
        raise ExtractionError("no output is chosen.", advice="Name at least one tensor that the submodel should give.")
    if plan.missing:
        advice = f"Use inputs={list(plan.suggestion)!r}."
        raise ExtractionError(plan.message + ".", advice=advice, missing=[m.name for m in plan.missing])
    kept = plan.inputs
    if plan.redundant and keep_redundant:
        names = ", ".join(map(shown, plan.redundant))
        warnings.warn(f"no node of the submodel reads {names}; kept as an input", UserWarning, stacklevel=2)
    elif plan.redundant:
        kept = tuple(name for name in kept if name not in plan.redundant)
    arrow = f"{_shortened(kept)} → {_shortened(plan.outputs)}".strip()
    return loaded.with_proto(_submodel(loaded, plan, kept), name=f"{loaded.name} [{arrow}]")


class _Cone:
    """The nodes that the outputs depend on, walked back to the inputs."""

    def __init__(self, graph: Graph, starts: Sequence[int], ends: Sequence[int]) -> None:
        self.graph = graph
        self.starts = frozenset(starts)
        self.ends = ends
        # node → is fed by a chosen input / hangs on a graph input that was not chosen
        self.fed: dict[int, bool] = {}
        self.loose: dict[int, bool] = {}
        self._walk()

    def _walk(self) -> None:
        graph, producer = self.graph, self.graph.producer
        found: set[int] = set()
        todo = [int(producer[value]) for value in self.ends]
        while todo:
            node = todo.pop()
            if node in found or node < 0:
                continue
            found.add(node)
            todo.extend(int(producer[v]) for v in _reads(graph, node) if v not in self.starts and producer[v] >= 0)
        rank = graph.rank
        for node in sorted(found, key=rank.__getitem__):
            fed = loose = False
            for value in _reads(graph, node):
                if value in self.starts:
                    fed = True
                    continue
                made_by = int(producer[value])
                fed = fed or self.fed.get(made_by, False)
                loose = loose or self.loose.get(made_by, False) or self._is_open(value)
            self.fed[node], self.loose[node] = fed, loose

    def _is_open(self, value: int) -> bool:
        """Say whether a value comes from outside and was not given."""
        kind = self.graph.value_kind[value]
        return value not in self.starts and bool(kind in (GRAPH_INPUT, DANGLING))

    def _between(self) -> set[int]:
        """Give the nodes fed by the inputs, and the makers of outputs that no input reaches."""
        makers = {int(self.graph.producer[value]) for value in self.ends}
        return {node for node in self.fed if self.fed[node] or node in makers}

    def missing(self) -> Iterator[MissingInput]:
        """Give the tensors on the border between what is fed and what hangs loose."""
        graph, seen = self.graph, set[int]()
        inside, needing = self._between(), self._needing()
        for node in sorted(inside, key=graph.rank.__getitem__):
            for value in _reads(graph, node):
                if value in seen or value in self.starts:
                    continue
                made_by = int(graph.producer[value])
                if self._is_open(value) or (made_by not in inside and self.loose.get(made_by, False)):
                    seen.add(value)
                    producer = graph.node_label(made_by) if made_by >= 0 else ""
                    output = graph.value_names[self.ends[needing[node]]]
                    yield MissingInput(graph.value_names[value], output, producer)

    def taken(self) -> list[int]:
        """Give the nodes of the complete submodel: those between, and the constant ones they read."""
        inside = self._between()
        todo = list(inside)
        while todo:
            for value in _reads(self.graph, todo.pop()):
                made_by = int(self.graph.producer[value])
                constant = made_by >= 0 and not self.loose.get(made_by, True)
                if constant and value not in self.starts and made_by not in inside:
                    inside.add(made_by)
                    todo.append(made_by)
        return sorted(inside)

    def _needing(self) -> dict[int, int]:
        """Give for each node the first of the outputs that depends on it, as an index into `ends`."""
        producer = self.graph.producer
        first: dict[int, int] = {}
        for index, value in enumerate(self.ends):
            first.setdefault(int(producer[value]), index)
        for node in reversed(self.fed):  # consumers before producers
            for value in _reads(self.graph, node):
                made_by = int(producer[value])
                if made_by in self.fed and value not in self.starts:
                    first[made_by] = min(first.get(made_by, len(self.ends)), first.get(node, 0))
        return first


def _reads(graph: Graph, node: int) -> list[int]:
    """Give the values of the main graph that a node reads, those that only its bodies read included."""
    start, stop = graph.in_ptr[node], graph.in_ptr[node + 1]
    return [int(v) for v in graph.in_value[start:stop] if v >= 0] + [int(v) for v in graph.captured(node)]


def _resolved(graph: Graph, names: Iterable[str], what: str) -> list[int]:
    if isinstance(names, str):
        advice = f"Write {what}s=[{shown(names)}]."
        raise ExtractionError(f"{what}s is a single name, {shown(names)}, not a list of names.", advice=advice)
    values = []
    for name in dict.fromkeys(names):
        try:
            value = graph.value(name)
        except OnnxNbError as error:
            raise ExtractionError(f"{what} {error.message}", advice=error.advice) from None
        if graph.value_frame[value] != 0:
            owner = graph.node_label(graph.frames[graph.value_frame[value]].owner_node)
            message = f"{what} tensor {shown(name)} lies inside a body of {owner}."
            raise ExtractionError(message, advice="Choose a tensor of the main graph, such as an output of that node.")
        values.append(value)
    return values


def _functions(graph: Graph, nodes: Sequence[int]) -> tuple[tuple[str, str, str], ...]:
    """Give the local functions that nodes call, those called inside bodies and other functions included."""
    known = graph.functions
    if not known:
        return ()
    found: dict[tuple[str, str, str], None] = {}
    todo = [graph.nodes[node] for node in nodes]
    while todo:
        node = todo.pop()
        domain = text(node.domain)
        key = ("" if domain == "ai.onnx" else domain, text(node.op_type), text(node.overload))
        if key in known and key not in found:
            found[key] = None
            todo.extend(known[key].node)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                todo.extend(body.node)
    return tuple(key for key in known if key in found)


def _submodel(model: Model, plan: ExtractionPlan, inputs: Sequence[str]) -> onnx.ModelProto:
    source, graph = model.proto, Graph.of(model)
    proto = onnx.ModelProto()
    wire.copy_fields(source, proto, without=("graph", "functions", "training_info"))
    proto.functions.extend(graph.functions[key] for key in plan.functions)
    target, origin = proto.graph, source.graph
    for name in ("name", "doc_string"):
        wire.set_field(target, name, getattr(origin, name))
    target.metadata_props.extend(origin.metadata_props)
    target.node.extend(origin.node[int(node)] for node in plan.nodes)
    weights = set(plan.initializers)
    target.initializer.extend(t for t in origin.initializer if text(t.name) in weights)
    target.sparse_initializer.extend(t for t in origin.sparse_initializer if text(t.values.name) in weights)
    target.input.extend(_typed(graph, name, "input") for name in inputs)
    if source.ir_version < 4:  # before IR 4 every initializer must be an input too
        target.input.extend(_typed(graph, name, "weight") for name in plan.initializers)
    target.output.extend(_typed(graph, name, "output") for name in plan.outputs)
    _check_names(origin, (info.name for info in (*target.input, *target.output)))
    border = {*inputs, *plan.outputs, *plan.initializers}
    made = {text(name) for node in target.node for name in node.output} - border
    target.value_info.extend(info for info in origin.value_info if text(info.name) in made)
    around = made | border
    target.quantization_annotation.extend(a for a in origin.quantization_annotation if text(a.tensor_name) in around)
    return proto


def _check_names(origin: onnx.GraphProto, names: Iterable[str]) -> None:
    r"""See that names are those in the file: `Graph` writes ``\xff`` and the like for bytes that are not UTF-8."""
    border = {name for name in names if "\\x" in name}
    if not border:
        return
    declared = [entry.name for entry in (*origin.input, *origin.initializer)]
    for name in itertools.chain(
        declared, *(node.input for node in origin.node), *(node.output for node in origin.node)
    ):
        if isinstance(name, bytes) and text(name) in border:
            message = f"the name of tensor {shown(text(name))} is not valid UTF-8, so it cannot be an input or output."
            raise ExtractionError(message, advice="Choose a tensor next to it, or rename it in the model.")


def _typed(graph: Graph, name: str, what: str) -> onnx.ValueInfoProto:
    info = graph.value_info(graph.value(name))
    if info is None or not info.HasField("type"):
        message = (
            f"the type of {what} {shown(name)} is not known: the model does not declare it and it cannot be inferred."
        )
        raise ExtractionError(message, advice="Choose a tensor next to it, or add its value_info to the model.")
    return info


def _shortened(names: Sequence[str]) -> str:
    text = ", ".join(name if len(name) <= 40 else f"…{name[-38:]}" for name in names[:2])
    return f"{text} +{len(names) - 2}" if len(names) > 2 else text
