"""Divide a model into disjoint parts that run one after another and compute the same outputs.

Every division is a number per node that never decreases along an edge. A part then reads graph inputs and outputs of
earlier parts, and returns what later parts read. Weights are never read: parts that share a weight both refer to it.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import ExtractionError, OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.dataflow import Flow, followers, strongly_connected
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import Model, ModelLike, load, with_proto
from onnx_nb.analysis.model.tensors import graphs_of
from onnx_nb.analysis.model.wire import set_entries
from onnx_nb.analysis.scopes.scopes import GATHERED, ROWS
from onnx_nb.analysis.scopes.scopes import scopes as scopes_of
from onnx_nb.analysis.scopes.weights import weights_read
from onnx_nb.analysis.submodel.assembly import assemble, boundary_types, constant_weight, main_value
from onnx_nb.analysis.submodel.extraction import is_mark, mark_name, nodes_of_scope, nodes_of_scopes, not_a_tensor

_SLACK: Final = 1.05
"""Factor by which parts may exceed the least possible maximum weight, if fewer tensors then pass between them."""
_LIGHTEST: Final = 0.75
"""Share of the mean weight that a part has at least, as far as heavy nodes allow."""


@known_arguments
def partition(
    model: ModelLike,
    at: int | str | Iterable[str | Iterable[str]] | None = None,
    *,
    scopes: int | Iterable[str] | None = None,
    infer_by_running: bool = False,
) -> list[Model]:
    """Divide a model into parts that run one after another.

    Every node of the main graph is in exactly one part. The inputs of a part are inputs of the model or outputs of
    earlier parts, under the same names. This code returns the outputs of the model, bit for bit if both run without
    optimization::

        values = dict(feeds)
        for part in onnx_nb.partition(model, 3):
            values |= onnx_nb.run(part, {port.name: values[port.name] for port in part.proto.graph.input})

    (Before IR version 4, weights are also listed among the inputs, and need no value. If onnxruntime has no kernel for
    float16, it computes several nodes in float32 and rounds at the end: there each part rounds once more.)

    Parameters
    ----------
    model
        Any `ModelLike`; it is not changed.
    at
        Where to divide, one of:

        - names of tensors or marks, in any order: a part ends where each is produced;
        - lists of such names, in order: a part ends where all tensors of a list are produced;
        - ``"marks"``: at every mark (see `mark`); parallel marks with one name end one part. Dividing at marks removes
          all Mark nodes;
        - a number of parts, which are balanced by the bytes of their weights.
    scopes
        In place of ``at``: paths of scopes, each of which becomes a part (see `extract`), the other nodes forming
        parts between them; or a number, 1 for the outermost scopes, 2 for those in them. A scope becomes several
        parts if other nodes have to run in the middle of it.
    infer_by_running
        Run nodes on random inputs to find the types of tensors between parts that are neither declared nor can be
        inferred; else nothing is run.

    Returns
    -------
    list of Model
        The parts in the order in which they run, fewer than requested if a part would be empty.

    Raises
    ------
    ExtractionError
        If a name is wrong, no node produces a tensor, or the model is broken: a cycle of nodes, two tensors with one
        name, a tensor without a producer.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Relu(x)  b = Neg(x)  c = Exp(b)  z = Add(a, c) }''')
    >>> partition(model, ["b"])
    [Model('g, part 1 of 2', 1 node, 0 B, opset 17), Model('g, part 2 of 2', 3 nodes, 0 B, opset 17)]
    """
    whole = load(model)
    if (at is None) == (scopes is None):
        raise ExtractionError("partition needs either at or scopes.", advice="Give one of the two.")
    stages: list[list[str]] = []
    if at is not None and not isinstance(at, int):
        whole, stages = _stages(whole, at)
    graph = Graph.of(whole)
    if not graph.main_count:
        raise ExtractionError("the model has no nodes to divide.", advice="Nothing is left to do.")
    Flow.of(graph).sorted(range(graph.main_count))  # raises if nodes form a cycle
    for problem in graph.problems:
        is_of_value = problem.kind in ("duplicate_name", "dangling_input", "missing_output") and problem.value >= 0
        if is_of_value and not graph.value_subgraph[problem.value]:
            advice = "Fix the model first: see onnx_nb.types.Graph.of(model).problems."
            raise ExtractionError(problem.message, advice=advice)
    if scopes is not None:
        number = _by_scopes(graph, scopes)
    elif isinstance(at, int):
        number = _by_weight(graph, at)
    else:
        number = _by_tensors(graph, stages)
    return _parts(graph, number, infer_by_running=infer_by_running)


def _stages(model: Model, at: str | Iterable[str | Iterable[str]]) -> tuple[Model, list[list[str]]]:
    """Return the names of the tensors at which each part ends, and the model, without marks if it is divided at any."""
    is_every_mark = at == "marks"
    if is_every_mark:
        at = dict.fromkeys(mark_name(node) for node in model.proto.graph.node if is_mark(node))
        if not at:
            raise ExtractionError("the model has no marks.", advice="Set them in torch by onnx_nb.mark(x, 'name').")
    if isinstance(at, str):
        raise ExtractionError(f"at is a single name, {quoted(at)}.", advice=f"Write at=[{quoted(at)}].")
    points = [point if isinstance(point, str) else list(point) for point in at]
    names = {name for point in points for name in ([point] if isinstance(point, str) else point)}
    marks = dict[str, list[str]]()
    if any(is_mark(node) and mark_name(node) in names for node in model.proto.graph.node):
        model, marks = _without_marks(model)
    graph = Graph.of(model)
    stages = list[list[str]]()
    for point in points:
        if isinstance(point, str) and is_every_mark:  # there is nothing before an input
            tensors = [tensor for tensor in marks[point] if graph.producer[main_value(graph, tensor)] >= 0]
            stages += _one_after_another(graph, tensors)
        elif isinstance(point, str):
            stages += _one_after_another(graph, marks[point]) if point in marks else [[point]]
        else:
            stages.append([tensor for name in point for tensor in marks.get(name, [name])])
    if not all(stages):
        raise ExtractionError("at holds an empty list of tensors.", advice="Leave it out.")
    if all(isinstance(point, str) for point in points):
        stages.sort(key=lambda names: max(int(graph.rank[_maker(graph, name)]) for name in names))
    return model, stages


def _one_after_another(graph: Graph, tensors: Sequence[str]) -> list[list[str]]:
    """Divide the tensors of one mark into stages: parallel tensors share one, dependent tensors follow."""
    makers = {name: _maker(graph, name) for name in tensors}
    flow, marked = Flow.of(graph), set(makers.values())
    # number of marked tensors on the longest path up to a node
    depth = [0] * (graph.main_count + 1)  # the last for −1, values without a producer
    for node in flow.sorted(range(graph.main_count)) if len(tensors) > 1 else ():
        depth[node] = max((depth[flow.producer[value]] for value in flow.reads(node)), default=0) + (node in marked)
    rows = followers((depth[maker], name) for name, maker in makers.items())
    return [rows[row] for row in sorted(rows)]


def _by_tensors(graph: Graph, stages: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return for each node the first cut that depends on it."""
    flow = Flow.of(graph)
    number = np.full(graph.main_count, len(stages), np.int64)
    for stage, names in enumerate(stages):
        todo = [_maker(graph, name) for name in names]
        while todo:
            node = todo.pop()
            if number[node] == len(stages):
                number[node] = stage
                todo.extend(maker for value in flow.reads(node) if (maker := flow.producer[value]) >= 0)
    return number


def _maker(graph: Graph, name: str) -> int:
    value = main_value(graph, name)
    if value < 0:
        try:
            graph.value(name)
        except OnnxNbError as error:
            advice = f"partition(model, scopes=[{quoted(name)}]) divides at a scope"
            raise not_a_tensor(graph, name, "at", error, advice) from None
        message = f"tensor {quoted(name)} lies inside a body."
        raise ExtractionError(message, advice="Bodies of If, Loop and Scan are not divided: choose an outer tensor.")
    maker = int(graph.producer[value])
    if maker < 0:
        what = "a weight" if graph.value_kind[value] == INITIALIZER else "an input of the model"
        message = f"the model cannot be cut at {quoted(name)}: it is {what}, nothing lies before it."
        raise ExtractionError(message, advice="Choose a tensor that a node makes.")
    return maker


def _by_scopes(graph: Graph, choice: int | Iterable[str]) -> NDArray[np.int64]:
    """Return a number for each node that keeps scopes in one piece as far as the data flow allows."""
    if isinstance(choice, str):
        raise ExtractionError(f"scopes is a single path, {quoted(choice)}.", advice=f"Write scopes=[{quoted(choice)}].")
    label = np.full(graph.main_count, -1, np.int64)
    if isinstance(choice, int):
        if choice < 1:
            raise ExtractionError(f"scopes at depth {choice} do not exist.", advice="1 takes the outermost scopes.")
        for number, members in enumerate(_at_depth(graph, choice)):
            label[sorted(members)] = number
    else:
        paths: dict[int, str] = {}
        for number, scope in enumerate(dict.fromkeys(choice)):
            nodes, path = nodes_of_scope(graph, scope)
            twice = next((paths[node] for node in nodes if node in paths), None)
            if twice is not None:
                message = f"scopes {quoted(twice)} and {quoted(path)} have nodes in common."
                raise ExtractionError(message, advice="Name the inner one or the outer one.")
            paths |= dict.fromkeys(nodes, path)
            label[sorted(nodes)] = number
        if not paths:
            raise ExtractionError("no scope is named.", advice="Name at least one, such as 'encoder.layer.0'.")
    return _in_rows(graph, label)


def _at_depth(graph: Graph, depth: int) -> list[set[int]]:
    """Return the nodes of each scope at a depth, not counting scopes that only collect others."""
    tree = scopes_of(graph)
    level, members = [0] * len(tree.scope_parent), list[set[int]]()
    for scope in range(1, len(level)):
        is_named = tree.scope_kind[scope] not in (*ROWS, GATHERED)
        level[scope] = level[tree.scope_parent[scope]] + is_named
        if level[scope] == depth and is_named:
            members.append(nodes_of_scopes(tree, [scope], graph.main_count))
    return list(filter(None, members))


def _in_rows(graph: Graph, label: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order labeled nodes into rows of one label each, and number the rows; −1 marks nodes without a label."""
    flow, count = Flow.of(graph), graph.main_count
    # vertices: the labels, then each other node; labels on a cycle have to be split
    vertex = np.where(label >= 0, label, np.arange(count) + label.max() + 1)
    order = flow.sorted(range(count))
    component: dict[int, int] = {}
    groups = strongly_connected(sorted(set(vertex.tolist())), _successors(flow, order, vertex.tolist()))
    cycles = set()
    for index, members in enumerate(groups):
        component.update(dict.fromkeys(members, index))
        labels = [member for member in members if member <= label.max()]
        if len(labels) > 1:
            cycles.add(index)
        elif labels and len(members) > 1:  # nodes in the middle of one scope become part of it
            label = np.where(np.isin(vertex, members), labels[0], label)
    # the unit of ordering: a label in one piece, else a node
    is_split = [component[int(vertex[node])] in cycles or label[node] < 0 for node in range(count)]
    unit = [-1 - node if is_split[node] else int(label[node]) for node in range(count)]
    return _scheduled(flow, order, unit, label)


def _scheduled(flow: Flow, order: Sequence[int], unit: Sequence[int], label: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order units, staying with a label while one of its units is ready; number the resulting rows."""
    members = followers((unit[node], node) for node in order)
    after = _successors(flow, order, unit)
    waiting = Counter(target for targets in after.values() for target in targets)
    free: dict[int, dict[int, None]] = {}
    for name in members:
        if not waiting[name]:
            free.setdefault(int(label[members[name][0]]), {})[name] = None
    number = np.zeros(len(order), np.int64)
    row, now = -1, -2
    while free:
        if now not in free:
            # nodes without a label first: other labels may wait for their results
            row, now = row + 1, -1 if -1 in free else next(iter(free))
        name = next(iter(free[now]))
        del free[now][name]
        if not free[now]:
            del free[now]
        number[members[name]] = row
        for reader in after.get(name, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                free.setdefault(int(label[members[reader][0]]), {})[reader] = None
    return number


def _successors(flow: Flow, order: Sequence[int], unit: Sequence[int]) -> dict[int, list[int]]:
    """Return for each unit of nodes the other units that read its results."""
    pairs = ((flow.producer[value], node) for node in order for value in flow.reads(node))
    edges = ((unit[maker], unit[node]) for maker, node in pairs if maker >= 0)
    return followers(dict.fromkeys((source, target) for source, target in edges if source != target))


def _by_weight(graph: Graph, count: int) -> NDArray[np.int64]:
    """Cut the sorted nodes into pieces of nearly equal weight, where few tensors pass."""
    if isinstance(count, bool) or count < 1:
        raise ExtractionError(f"a model cannot be divided into {count} parts.", advice="Give a number from 1 on.")
    flow = Flow.of(graph)
    place = np.empty(graph.main_count, np.int64)
    place[flow.sorted(range(graph.main_count))] = np.arange(graph.main_count)
    _, unit = np.unique(_with_first_readers(flow, place), return_inverse=True)
    units = int(unit.max()) + 1
    heavy = np.bincount(unit, _bytes(graph), units).astype(np.float64)
    if not np.any(heavy > 0):
        heavy = np.ones(units)
    # each has a minimum weight, so that nodes without weights are also divided
    behind = np.concatenate([[0.0], np.cumsum(heavy + heavy.sum() / units * 1e-6)])
    ends = _balanced(behind, min(count, units), _crossing(flow, unit, units))
    return np.searchsorted(ends, unit, side="right").astype(np.int64)


def _with_first_readers(flow: Flow, number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers, with that of the first reader for nodes that depend on no input of the model."""
    graph, number = flow.graph, number.copy()
    constant = np.frombuffer(flow.runtime, np.uint8) == 0
    if constant.all():  # if no node depends on an input, only Constants move
        constant = graph.is_constant[: graph.main_count]
    for node in reversed(flow.sorted(np.flatnonzero(constant).tolist())):
        readers = (reader for value in graph.results(node) for reader in flow.readers(value))
        number[node] = min((number[reader] for reader in readers), default=number[node])
    return number


def _crossing(flow: Flow, unit: NDArray[np.int64], units: int) -> NDArray[np.int64]:
    """Count the tensors that pass from the first ``i`` units to the others, for each ``i``."""
    reader, value = flow.edges
    inner = flow.graph.producer[value] >= 0
    last = np.full(flow.graph.value_count, -1, np.int64)
    np.maximum.at(last, value[inner], unit[reader[inner]])
    values = np.flatnonzero(last >= 0)
    first = unit[flow.graph.producer[values]]
    change = np.bincount(first + 1, minlength=units + 2) - np.bincount(last[values] + 1, minlength=units + 2)
    return np.cumsum(change)[: units + 1]


def _balanced(behind: NDArray[np.float64], count: int, crossing: NDArray[np.int64]) -> NDArray[np.int64]:
    """Choose ``count - 1`` ends so that no piece is much heavier than it must be, each where few tensors cross."""
    total, heaviest = len(behind) - 1, float(np.diff(behind).max())
    low, high = heaviest, float(behind[-1])
    for _ in range(50):
        middle, at, pieces = (low + high) / 2, 0, 0
        while at < total and pieces <= count:  # fill each piece with units that fit
            at = max(int(np.searchsorted(behind, behind[at] + middle, side="right")) - 1, at + 1)
            pieces += 1
        low, high = (low, middle) if pieces <= count else (middle, high)
    limit = max(high * _SLACK, heaviest) * (1 + 1e-12)
    earliest = [total]  # the first places from which 0, 1, 2, … pieces reach the end
    for _ in range(count - 1):
        earliest.append(int(np.searchsorted(behind, behind[earliest[-1]] - limit)))
    ends = [0]
    for left in range(count - 1, 0, -1):
        begin = behind[ends[-1]]
        share = (behind[-1] - begin) / (left + 1)
        last = min(int(np.searchsorted(behind, begin + limit, side="right")) - 1, total - left)
        first = max(int(np.searchsorted(behind, begin + _LIGHTEST * share)), earliest[left], ends[-1] + 1)
        places = np.arange(min(first, last), last + 1)
        distance = np.abs(behind[places] - begin - share)
        ends.append(int(places[np.lexsort((distance, crossing[places]))[0]]))
    return np.asarray(ends[1:], np.int64)


def _bytes(graph: Graph) -> NDArray[np.float64]:
    """Return the bytes of weights that each node is the first to read."""
    reader, weight, _, nbytes = weights_read(graph)
    reader, weight = reader[reader < graph.main_count], weight[reader < graph.main_count]
    order = np.argsort(graph.rank[reader], kind="stable")
    weight, first = np.unique(weight[order], return_index=True)
    return np.bincount(reader[order[first]], nbytes[weight], graph.main_count).astype(np.float64)


def _parts(graph: Graph, number: NDArray[np.int64], *, infer_by_running: bool) -> list[Model]:
    """Build the parts, each from the nodes with one number."""
    flow, model = Flow.of(graph), graph.model
    number = _with_first_readers(flow, number)
    numbers = np.unique(number).tolist()
    results = dict.fromkeys(graph.outputs.tolist())
    reader, value = flow.edges
    last_read = np.full(graph.value_count, -1, np.int64)
    np.maximum.at(last_read, value, number[reader])
    drafts: list[tuple[list[int], list[int], list[int], list[TensorProto]]] = []
    for index, part in enumerate(numbers):
        nodes = flow.sorted(np.flatnonzero(number == part).tolist())
        inside = set(nodes)
        read = dict.fromkeys(v for node in nodes for v in flow.reads(node))
        outer = [v for v in read if flow.kinds[v] != INITIALIZER and flow.producer[v] not in inside]
        constant_of = {v: tensor for v in outer if (tensor := constant_weight(graph, v)) is not None}
        outputs_of_part = [v for node in nodes for v in graph.results(node)]
        crossing = [v for v in outputs_of_part if last_read[v] > part and constant_weight(graph, v) is None]
        outputs = list(dict.fromkeys([*(v for v in results if flow.producer[v] in inside), *crossing]))
        # onnxruntime runs no model without outputs: if no result is needed, the last ones become outputs
        outputs = outputs or [v for v in outputs_of_part if last_read[v] < 0]
        inputs = [v for v in outer if v not in constant_of]
        if index == len(numbers) - 1:  # outputs of the model without a producer
            unmade = [v for v in results if v >= 0 and flow.producer[v] < 0]
            outputs += unmade
            inputs += [v for v in unmade if flow.kinds[v] != INITIALIZER and v not in inputs]
        drafts.append((nodes, inputs, outputs, list(constant_of.values())))
    ends = [value for _, inputs, outputs, _ in drafts for value in (*inputs, *outputs)]
    types = boundary_types(model, ends, infer_by_running=infer_by_running)
    parts = []
    for index, (nodes, inputs, outputs, constants) in enumerate(drafts, 1):
        name = f"{model.name}, part {index} of {len(drafts)}"
        parts.append(assemble(model, nodes, inputs, outputs, name=name, constants=constants, types=types))
    return parts


def _without_marks(model: Model) -> tuple[Model, dict[str, list[str]]]:
    origin = model.proto.graph
    places = [place for place, node in enumerate(origin.node) if is_mark(node)]
    proto = copy.deepcopy(model.proto)
    # a mark's result equals its input; outputs of the model keep their names
    same: dict[str, str] = {}
    marks: dict[str, list[str]] = {}
    results = {info.name for info in proto.graph.output}
    products = {name for node in origin.node for name in node.output}
    identities = []
    for place in places:
        node = origin.node[place]
        if len(node.input) != 1 or len(node.output) != 1:
            raise ExtractionError(f"mark {quoted(mark_name(node))} has not one input and one output.")
        before, behind = node.input[0], node.output[0]
        root = _root(same, before)
        if behind not in results:
            same[behind] = root
        elif root in products and root not in results:
            same[root] = behind
        else:  # a node has to remain between an input and an output of the model
            identities.append(place)
            proto.graph.node[place].CopyFrom(onnx.helper.make_node("Identity", [before], [behind], node.name))
        marks.setdefault(mark_name(node), []).append(before)
    for place in reversed(places):
        if place not in identities:
            del proto.graph.node[place]
    _rename(proto.graph, same)
    set_entries(proto.graph.value_info, (info for info in proto.graph.value_info if info.name not in same))
    return with_proto(model, proto), {name: [_root(same, t) for t in tensors] for name, tensors in marks.items()}


def _root(same: Mapping[str, str], name: str) -> str:
    for _ in same:
        if name not in same:
            break
        name = same[name]
    return name


def _rename(graph: onnx.GraphProto, same: Mapping[str, str]) -> None:
    """Rename tensors where they are produced and read, also in bodies; a body that redefines the name keeps it."""
    todo = [(graph, {name: _root(same, name) for name in same})]
    while todo:
        place, names = todo.pop()
        for node in place.node:
            for ports in (node.input, node.output):
                if not names.keys().isdisjoint(ports):
                    ports[:] = [names.get(name, name) for name in ports]
            for _, body in graphs_of(node):
                inner_names = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
                inner_names.update(name for inner in body.node for name in inner.output)
                todo.append((body, {name: root for name, root in names.items() if name not in inner_names}))
        if place is not graph:
            for info in place.output:
                info.name = names.get(info.name, info.name)
