"""Extract a submodel: `plan_extraction` describes the extraction, `extract` executes it.

One backward walk from the outputs, stopped by the inputs, finds the relevant nodes. One forward pass over them
separates those between the inputs and the outputs from those that depend on graph inputs that are not chosen. The
tensors on the border of the two are missing; `Flow.smallest_separator` finds the fewest tensors that complete it.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import ExtractionError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import DANGLING, INITIALIZER
from onnx_nb.analysis.graph.operators import MARK
from onnx_nb.analysis.model.model import Model, ModelLike, load, weight_info
from onnx_nb.analysis.model.tensors import attribute, constants_of
from onnx_nb.analysis.scopes.scopes import BODY, BRANCH, FUNCTION, Scopes, path_parts, scopes, scopes_around
from onnx_nb.analysis.submodel.assembly import assemble, functions_of, home_of, main_value, weight_tensors, weights_of

FAR_MORE = 4
"""Factor; warn if a plan takes more than this times the nodes between inputs and outputs, plus 20."""


@dataclass(frozen=True)
class MissingInput:
    """A tensor that would have to be an input as well."""

    name: str
    """Name of the tensor."""
    output: str
    """Name of an output that needs it."""
    producer: str
    """The node that produces it, as ``Conv '/stem/Conv'``; empty for a graph input."""
    dangling: bool = False
    """Whether it is neither a node's output nor a graph input: the model is broken."""

    @property
    def message(self) -> str:
        """The output that needs the tensor, and the tensor's producer."""
        origin = f"made by {self.producer}" if self.producer else "an input of the model"
        origin = "which nothing in the model makes" if self.dangling else origin
        return f"output {quoted(self.output)} also needs {quoted(self.name)} ({origin})"


@dataclass(frozen=True)
class ExtractionPlan:
    """The content of an extraction; `extract` executes exactly this plan."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: NDArray[np.int32]
    """Indices into ``model.proto.graph.node``, ascending, and on from there for nodes of a body; if inputs are missing,
    those that `suggestion` would take."""
    initializers: tuple[str, ...]
    """Weights that the nodes read."""
    functions: tuple[tuple[str, str, str], ...]
    """Local functions that the nodes call, directly or through others: (domain, name, overload)."""
    captured: tuple[str, ...]
    """Tensors of the main graph that the bodies of taken If, Loop and Scan nodes read."""
    missing: tuple[MissingInput, ...]
    """Missing inputs; empty if the extraction is possible."""
    redundant: tuple[str, ...]
    """Inputs that no taken node reads."""
    suggestion: tuple[str, ...]
    """Inputs that complete the plan: the chosen ones and the fewest others."""
    alternative: tuple[str, ...]
    """Other possible inputs. If some are missing: fewer than `suggestion`, in place of the chosen ones. If there is a
    `warning`: inputs that exclude the nodes of a side path. Else empty."""
    warning: str
    """Warning if far more nodes are taken than are between the inputs and the outputs; else empty."""
    nbytes: int
    """Bytes of the weights taken, those of Constants and bodies among them; not those of local functions."""

    @property
    def message(self) -> str:
        """One sentence on the plan: an error, else a warning; empty if there is neither."""
        if not self.outputs:
            return "choose an output"
        if self.missing:
            more = len(self.missing) - 1
            return self.missing[0].message + (f", and {more} more" if more else "")
        if self.warning:
            return self.warning
        if self.redundant:
            return f"no taken node reads {', '.join(map(quoted, self.redundant[:3]))}"
        return ""

    def __repr__(self) -> str:
        state = f"missing {[m.name for m in self.missing]}" if self.missing else "complete"
        nodes = f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'}"
        return f"ExtractionPlan({', '.join(self.inputs)} → {', '.join(self.outputs)}: {nodes}, {state})"


@known_arguments
def plan_extraction(model: ModelLike, inputs: Iterable[str], outputs: Iterable[str]) -> ExtractionPlan:
    """Plan an extraction between two sets of tensors: the nodes that it would take, and the inputs that it lacks.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    inputs, outputs
        Names of tensors, or of marks (see `mark`): of the main graph, or of one body of an If, Loop or Scan, where
        tensors around it may be inputs. Inputs may be graph inputs, weights or outputs of nodes. Repeated names count
        once.

    Returns
    -------
    ExtractionPlan
        If inputs are missing, the plan names them and suggests inputs to add.

    Raises
    ------
    ExtractionError
        If a name is no tensor, names are not of one body, one is both input and output, or if nodes form a cycle.

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
    source, starts, ends = load(model), _names(inputs), _names(outputs)
    home, number = home_of(source, [*starts, *ends])
    plan = _planned(Graph.of(home), *_ends_of(Graph.of(home), starts, ends))
    return replace(plan, nodes=plan.nodes + np.int32(Graph.of(source).subgraphs[number].start))


@known_arguments
def extract(
    model: ModelLike,
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    *,
    around: str | None = None,
    keep_redundant: bool = True,
    infer_by_running: bool = False,
) -> Model:
    """Extract the submodel between two sets of tensors, or a scope.

    Nothing is run, and no session is created, unless ``infer_by_running`` allows it. Weights are not read: the submodel
    refers to the same bytes until it is saved or run.

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    inputs, outputs
        Names of tensors of the main graph or of one body, or of marks; they become the submodel's inputs and outputs,
        in this order. A part of a body takes what it reads from around the body as an input.
    around
        Instead of both: a scope such as "encoder.layer.1" or "/encoder/layer.1", a module path or a scope in the
        drawing. The submodel holds its nodes, takes the tensors that they read and returns those that other nodes read.
    keep_redundant
        Keep inputs that nothing reads as inputs of the submodel (with a warning); ``False`` drops them.
    infer_by_running
        Run the nodes before an input or output on random inputs if its type is neither declared nor can be inferred,
        as after operators that onnx does not know.

    Raises
    ------
    ExtractionError
        If inputs are missing (``error.missing`` names them), a name is wrong, or the type of an input or output is
        unknown.

    Warns
    -----
    UserWarning
        If an input is redundant, or far more nodes are taken than are between the inputs and the outputs.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  b = Neg(x)  z = Add(a, b) }''')
    >>> extract(model, ["a"], ["z"])
    Traceback (most recent call last):
        ...
    onnx_nb.analysis.errors.ExtractionError: output 'z' also needs 'b' (made by Neg). Use inputs=['a', 'b'], or in
    their place inputs=['x'].
    >>> extract(model, ["a", "b"], ["z"])
    Model('g [a, b → z]', 1 node, 0 B, opset 17)
    """
    whole = load(model)
    graph = Graph.of(whole)
    if around is not None:
        if inputs is not None or outputs is not None:
            raise ExtractionError("a scope has its own inputs and outputs.", advice="Give around= alone.")
        nodes, path = nodes_of_scope(graph, around)
        starts, ends = ports(graph, nodes)
        if not ends:
            raise ExtractionError(f"no other node reads what scope {quoted(path)} makes.", advice="Choose another.")
        members, name = _planned(graph, starts, ends).nodes.tolist(), f"{whole.name} [{path}]"
        return assemble(whole, members, starts, ends, name=name, infer_by_running=infer_by_running)
    chosen = _names(inputs or ()), _names(outputs or ())
    whole, _ = home_of(whole, [*chosen[0], *chosen[1]])
    graph = Graph.of(whole)
    starts, ends = _ends_of(graph, *chosen)
    if not ends:
        advice = "Name at least one tensor that the submodel should give, or a scope: around=…."
        raise ExtractionError("no output is chosen.", advice=advice)
    plan = _planned(graph, starts, ends)
    if plan.missing:
        nearest = (*plan.inputs, *(m.name for m in plan.missing))
        near = f", or the nearest ones, inputs={_listed(nearest)}" if len(nearest) > len(plan.suggestion) else ""
        instead = f", or in their place inputs={_listed(plan.alternative)}" if plan.alternative else ""
        advice = f"Use inputs={_listed(plan.suggestion)}{near}{instead}."
        raise ExtractionError(plan.message + ".", advice=advice, missing=[m.name for m in plan.missing])
    odd = [plan.warning] if plan.warning else []
    if plan.redundant and keep_redundant:
        odd.append(f"no node of the submodel reads {', '.join(map(quoted, plan.redundant[:12]))}; kept as an input")
    elif plan.redundant:
        starts = [value for value in starts if graph.value_names[value] not in plan.redundant]
    name = f"{whole.name} [{f'{_shortened(graph, starts)} → {_shortened(graph, ends)}'.strip()}]"
    submodel = assemble(whole, plan.nodes.tolist(), starts, ends, name=name, infer_by_running=infer_by_running)
    for message in odd:
        warnings.warn(message, UserWarning, stacklevel=3)
    return submodel


def _names(names: Iterable[str]) -> str | list[str]:
    """Return names that can be read twice; a single one, which is refused, as it is."""
    return names if isinstance(names, str) else [*names]


def _planned(graph: Graph, starts: Sequence[int], ends: Sequence[int]) -> ExtractionPlan:
    flow, names = Flow.of(graph), graph.value_names
    cone = _Cone(flow, starts, ends)
    missing = tuple(cone.missing())
    suggestion, alternative, warning = list(starts), list[int](), ""
    if missing:
        inside = cone.between()
        suggestion += flow.smallest_separator(inside, cone.starts)
        others = flow.smallest_separator(inside)
        alternative = others if len(others) < len(suggestion) else []
        members = _Cone(flow, suggestion, ends).taken()
    else:
        members = cone.taken()
        alternative, warning = _side_path(flow, starts, ends, members)
    read = {value for node in members for value in flow.reads(node)}
    weights = weights_of(graph, members, starts, ends)
    outer_values = {value for node in members for value in graph.outer_values(node).tolist()}
    nodes, values = list(members), list(weights)
    for node in nodes:  # and what is in its bodies
        for frame in (graph.subgraphs[number] for number in graph.bodies(node)):
            nodes += range(frame.start, frame.stop)
            values += frame.weights.tolist()
    tensors = [*weight_tensors(graph, values), *(entry for n in nodes for _, entry in constants_of(graph.node(n)))]
    return ExtractionPlan(
        inputs=tuple(names[value] for value in starts),
        outputs=tuple(names[value] for value in ends),
        nodes=np.asarray(members, np.int32),
        initializers=tuple(names[value] for value in weights),
        functions=functions_of(graph, members),
        captured=tuple(names[value] for value in sorted(outer_values)),
        missing=missing,
        redundant=() if missing or not ends else tuple(names[v] for v in starts if v not in read and v not in ends),
        suggestion=tuple(names[value] for value in suggestion),
        alternative=tuple(names[value] for value in alternative),
        warning=warning,
        nbytes=sum(weight_info("", tensor).nbytes for tensor in tensors),
    )


class _Cone:
    """The nodes that the outputs depend on, walked back to the inputs."""

    def __init__(self, flow: Flow, starts: Sequence[int], ends: Sequence[int]) -> None:
        self.flow = flow
        self.starts = frozenset(starts)
        self.ends = ends
        # node → is fed by a chosen input / depends on a graph input that was not chosen; in topological order
        self.fed: dict[int, bool] = {}
        self.loose: dict[int, bool] = {}
        for node in flow.sorted(flow.ancestors(ends, self.starts)):
            is_fed = loose = False
            for value in flow.reads(node):
                if value in self.starts:
                    is_fed = True
                    continue
                maker = flow.producer[value]
                is_fed = is_fed or self.fed.get(maker, False)
                loose = loose or (self.loose[maker] if maker >= 0 else flow.is_open(value))
            self.fed[node], self.loose[node] = is_fed, loose

    def between(self) -> set[int]:
        """Return the nodes fed by the inputs, and the producers of outputs that no input reaches."""
        makers = {self.flow.producer[value] for value in self.ends}
        return {node for node in self.fed if self.fed[node] or node in makers}

    def missing(self) -> Iterator[MissingInput]:
        """Yield the tensors on the border between the fed nodes and those that depend on other graph inputs."""
        flow, graph, visited = self.flow, self.flow.graph, set[int]()
        inside = self.between()
        border = {node: -1 for node in self.fed if node in inside and self.loose[node]}
        # the first output that depends on each
        for end in self.ends:
            if border and -1 in border.values():
                behind = flow.ancestors([end], self.starts)
                border |= {node: end for node, output in border.items() if output < 0 and node in behind}
        for node, end in border.items():
            for value in flow.reads(node):
                if value in visited or value in self.starts:
                    continue
                maker = flow.producer[value]
                if maker not in inside and (self.loose[maker] if maker >= 0 else flow.is_open(value)):
                    visited.add(value)
                    label = graph.node_label(maker) if maker >= 0 else ""
                    dangling = flow.kinds[value] == DANGLING
                    yield MissingInput(graph.value_names[value], graph.value_names[end], label, dangling)

    def taken(self) -> list[int]:
        """Return the nodes of the complete submodel: those between, and the constant ones they read."""
        inside = self.between()
        read = (value for node in inside for value in self.flow.reads(node) if value not in self.starts)
        constant = [value for value in read if not self.loose.get(self.flow.producer[value], True)]
        return sorted(inside | self.flow.ancestors(constant, self.starts))


def _side_path(flow: Flow, starts: Sequence[int], ends: Sequence[int], members: Sequence[int]) -> tuple[list[int], str]:
    """Return better inputs and a warning if a path around a chosen tensor adds far more nodes than depend on it."""
    if len(starts) < 2 or len(members) <= 20:
        return [], ""
    graph, producer = flow.graph, flow.producer
    bit = {value: 1 << i for i, value in enumerate(starts)}
    # the inputs that feed a node, one bit each
    feeds: dict[int, int] = {}
    for node in flow.sorted(members):
        mask = 0
        for value in flow.reads(node):
            mask |= bit[value] if value in bit else feeds.get(producer[value], 0)
        feeds[node] = mask
    groups = Counter(feeds.values())
    behind = {value: sum(n for mask, n in groups.items() if mask & bit[value]) for value in starts}
    late = [value for value in starts if producer[value] >= 0 and 0 < behind[value] * FAR_MORE + 20 < len(members)]
    late_mask = sum(bit[value] for value in late)
    between = {node for node, mask in feeds.items() if mask & late_mask}
    # an output that does not depend on them justifies the nodes before it
    behind_all = all(producer[value] in between for value in ends)
    if not late or not behind_all or len(members) <= FAR_MORE * len(between) + 20:
        return [], ""
    around = {maker for maker in flow.ancestors(late) - between if feeds.get(maker, 0)}
    read = (value for node in sorted(between, key=graph.rank.__getitem__) for value in flow.reads(node))
    through = next((value for value in read if value not in bit and producer[value] in around), None)
    if through is None:
        return [], ""
    better = [*late, *flow.smallest_separator(between, frozenset(late))]
    names = graph.value_names
    inputs = [names[value] for value in better]
    ways, goals = (", ".join(quoted(names[v]) for v in some[:3]) + " …" * (len(some) > 3) for some in (late, ends))
    lie = "lies" if len(between) == 1 else "lie"
    message = f"{len(members):,} nodes are taken, though only {len(between):,} of them {lie} between {ways} and {goals}"
    others = f"the others come in through {quoted(names[through])} (made by {graph.node_label(producer[through])})"
    return better, f"{message}: {others}; inputs={_listed(inputs)} would leave them out"


def ports(graph: Graph, nodes: Collection[int], *, constants: bool = False) -> tuple[list[int], list[int]]:
    """Return the values that nodes read from outside, with or without constants, and their values read by others."""
    flow = Flow.of(graph)
    inside = sorted(nodes, key=graph.rank.__getitem__)
    members = set(inside)
    reads = (value for node in inside for value in flow.reads(node))
    inputs = dict.fromkeys(v for v in reads if flow.producer[v] not in members and (constants or flow.is_runtime(v)))
    results = set(graph.outputs.tolist())
    products = (value for node in inside for value in graph.results(node))
    outputs = [v for v in products if v in results or any(reader not in members for reader in flow.readers(v))]
    return list(inputs), outputs


def nodes_of_scope(graph: Graph, scope: str) -> tuple[set[int], str]:
    """Find the main nodes of a scope, and its path."""
    parts, tree = path_parts(scope), scopes(graph)
    if not parts:
        raise ExtractionError(f"{quoted(scope)} is no scope.", advice="Give one such as 'encoder.layer.0'.")
    matches = tree.named(scope, by_end=False)
    if not matches:
        modules, count = list(_modules(graph)), len(parts)
        members = {node for node, path in enumerate(modules) if path[:count] == parts}
        if members:
            return members, scope.strip("/.")
        matches = tree.named(scope)
        ends = (p[:end] for p in modules for end in range(count, len(p) + 1) if p[end - count : end] == parts)
        first = next(ends, []) if not matches else []
        if first and all(path == first for path in ends):
            members = {node for node, path in enumerate(modules) if path[: len(first)] == first}
            return members, "/".join(first)
    if not matches:
        advice = closest_text(scope.strip("/."), filter(None, tree.scope_path)) or "The drawing shows which there are."
        raise ExtractionError(f"scope {quoted(scope)} is not in the model.", advice=advice)
    if len(matches) > 1:
        choices = ", ".join(quoted(tree.scope_path[number]) for number in matches[:5])
        message = f"scope {quoted(scope)} may be one of {len(matches)}: {choices}."
        raise ExtractionError(message, advice="Name it in full.")
    outer = scopes_around(tree, matches[0])[1:]
    inside = next((number for number in outer if tree.scope_kind[number] in (BODY, BRANCH, FUNCTION)), 0)
    if inside:
        owner = Graph.opened(graph.model).node_label(int(tree.scope_node[inside]))
        what = "a call" if tree.scope_kind[inside] == FUNCTION else "a body"
        message = f"scope {quoted(scope)} lies inside {what} of {owner}."
        raise ExtractionError(message, advice="Choose a scope of the main graph, such as that of the node itself.")
    return nodes_of_scopes(tree, matches, graph.main_count), tree.scope_path[matches[0]]


def nodes_of_scopes(tree: Scopes, groups: Iterable[int], count: int) -> set[int]:
    """Return the main nodes in scopes, at any depth."""
    inside = np.zeros(len(tree.scope_parent), bool)
    inside[list(groups)] = True
    for group in range(1, len(inside)):  # parents come before children
        inside[group] |= inside[tree.scope_parent[group]]
    # the owner of a scope of bodies or of a call is outside that scope
    owners = tree.scope_node[inside & (tree.scope_node >= 0)]
    return {*np.flatnonzero(inside[tree.node_scope[:count]]).tolist(), *owners[owners < count].tolist()}


def _modules(graph: Graph) -> Iterator[list[str]]:
    """Yield the module path of each main node as the exporter wrote it: the drawing leaves out small scopes."""
    paths: dict[str, list[str]] = {}
    for node, name in zip(graph.model.proto.graph.node, graph.names, strict=False):
        props = (entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.name_scopes")
        text = next(map(plain_text, props), None)
        if text is not None and text not in paths:
            # "['', 'encoder', 'encoder.layer.0', 'linear']": the last one is the node's own name
            modules: list[str] = re.findall(r"'([^']*)'", text)[:-1]
            paths[text] = path_parts(modules[-1]) if modules else []
        yield path_parts(name.rpartition("/")[0]) if text is None else paths[text]


def values_of(graph: Graph, names: Iterable[str], what: str) -> list[int]:
    """Return the values of the main graph that names or marks mean."""
    if isinstance(names, str):
        advice = f"Write {what}s=[{quoted(names)}]."
        raise ExtractionError(f"{what}s is a single name, {quoted(names)}, not a list of names.", advice=advice)
    tensors: list[Any] = list(dict.fromkeys(names))
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"{what}s are names of tensors, and one is of type {type(name).__name__}.")
    return [_found(graph, name, what) for name in tensors]


def _found(graph: Graph, name: str, what: str) -> int:
    value = main_value(graph, name)
    if value >= 0:
        return value
    for node in graph.model.proto.graph.node:
        if is_mark(node) and mark_name(node) == name and len(node.input) == len(node.output) == 1:
            value = main_value(graph, plain_text(node.input[0] if what == "output" else node.output[0]))
            if value >= 0:
                return value
    unfolded = Graph.opened(graph.model)
    try:
        value = unfolded.value(name)
    except OnnxNbError as error:
        call = f"extract(model, around={quoted(name)})"
        raise not_a_tensor(graph, name, what, error, f"{call} takes out a scope") from None
    subgraph = int(unfolded.value_subgraph[value])
    if subgraph < len(graph.subgraphs):
        where = f"a body of {graph.node_label(graph.subgraphs[subgraph].owner_node)}"
        advice = "Choose tensors of one body and of what is around it."
    else:
        where = unfolded.subgraph_label(subgraph)
        advice = "Choose a tensor of the main graph, such as an output of that node, or take the calls apart first: "
        advice += "onnx.inliner.inline_local_functions(model.to_proto())."
    raise ExtractionError(f"{what} tensor {quoted(name)} lies inside {where}.", advice=advice)


def not_a_tensor(graph: Graph, name: str, what: str, error: OnnxNbError, scope_advice: str) -> ExtractionError:
    """Return the error for a name that is no tensor: it says if a scope has the name."""
    try:
        nodes_of_scope(graph, name)
    except ExtractionError:
        return ExtractionError(f"{what} {error.message}", advice=error.advice)
    return ExtractionError(f"{what}: {quoted(name)} is no tensor but a scope.", advice=f"{scope_advice}.")


def is_mark(node: onnx.NodeProto) -> bool:
    """Return whether a node was created by `onnx_nb.mark`."""
    return (plain_text(node.domain), plain_text(node.op_type)) == MARK


def mark_name(node: onnx.NodeProto) -> str:
    """Return the name that a Mark node carries."""
    return plain_text(attribute(node, "name", ""))


def _ends_of(graph: Graph, inputs: Iterable[str], outputs: Iterable[str]) -> tuple[list[int], list[int]]:
    """Return the values of the inputs and outputs; raise if they cannot be those of a submodel."""
    starts, ends = values_of(graph, inputs, "input"), values_of(graph, outputs, "output")
    flow, results = Flow.of(graph), set(graph.outputs.tolist())
    # an output of the model that no node produces may also be an output of the submodel
    unmade = {value for value in ends if flow.producer[value] < 0 and value in results}
    both = [graph.value_names[value] for value in starts if value in set(ends) - unmade]
    if both:
        message = f"tensor {quoted(both[0])} is chosen both as an input and as an output."
        raise ExtractionError(message, advice="Leave it in one of the two.")
    for value in ends:
        if flow.producer[value] >= 0 or (value in unmade and (value in starts or flow.kinds[value] == INITIALIZER)):
            continue
        what = {INITIALIZER: "a weight", DANGLING: "read, but never made"}.get(flow.kinds[value], "a graph input")
        message = f"{quoted(graph.value_names[value])} is {what}: no node makes it."
        raise ExtractionError(message, advice="Choose an output that a node makes.")
    return starts, ends


def _listed(names: Sequence[str]) -> str:
    """Write names as in a call; only the first of many."""
    if len(names) <= 12:
        return repr(list(names))
    return f"[{', '.join(map(quoted, names[:12]))}, …] ({len(names)} in all: see plan_extraction)"


def _shortened(graph: Graph, values: Sequence[int]) -> str:
    names = [graph.value_names[value] for value in values[:2]]
    text = ", ".join(name if len(name) <= 40 else f"…{name[-38:]}" for name in names)
    return f"{text} +{len(values) - 2}" if len(values) > 2 else text
