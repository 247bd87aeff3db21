"""Pair torch's operations with the tensors of an export by structure: values have no say, so no fault hides itself.

Known pairs, such as the outputs of submodules, divide both sides into regions: the operations between known values, and
the nodes between their tensors. Within a region the order of both sides is kept: each operation has consecutive nodes,
the last of which is of a type that the operation is exported as and has the shape of its result. Of all divisions, the
one with the fewest nodes out of place is taken (dynamic programming). A pair counts if both sides were computed from
the same known values.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx.defs
from numpy.typing import NDArray

from onnx_nb.analysis.compare.thresholds import (
    ADDED_COST,
    MISPLACED_COST,
    OMITTED_COST,
    OTHER_INPUTS_COST,
    OTHER_LINE_COST,
    OTHER_ORDER_COST,
    UNKNOWN_COST,
)
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import GRAPH_INPUT, INITIALIZER
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.pytorch.module_scopes import source_of
from onnx_nb.analysis.pytorch.record import FunctionCall, Recording


def _table() -> tuple[dict[str, list[str]], dict[str, tuple[frozenset[str], frozenset[str]]]]:
    """Return the sets of ``exports.txt``, and for each operation the operators of its last node and of those before."""
    sets: dict[str, list[str]] = {}
    rows: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for line in Path(__file__).with_name("exports.txt").read_text("utf-8").splitlines():
        names, _, text = line.partition(": ")
        last, before = (
            [one for word in part.split() for one in sets.get(word, [word])] for part in f"{text}<".split("<")[:2]
        )
        if names.startswith("$"):
            sets[names] = last
        elif not names.startswith("#"):
            rows |= dict.fromkeys(names.split(), (frozenset(last), frozenset(before)))
    return sets, rows


_SETS, _EXPORTS = _table()
_LAST: Final = frozenset().union(*(last for last, _ in _EXPORTS.values()))
"""Operators that the table has as the last node of an operation."""
_NEUTRAL, IDENTITIES, MATRICES, _RESHAPES, _EXPANDS = (
    frozenset(_SETS[f"${name}"]) for name in ("neutral", "identities", "matrices", "reshapes", "expands")
)


def plain_name(function: str) -> str:
    """Return the name of an operation without decoration: "add" for "add_", "__iadd__" and "aten.add"."""
    name = function.partition("#")[0].rpartition(".")[2]
    bare = name.strip("_").lower() if not name.startswith("_") or name.startswith("__") else name.rstrip("_").lower()
    if function.startswith("__") and bare[:1] in ("i", "r") and bare[1:] in _DUNDER:
        bare = bare[1:]
    return bare


_DUNDER: Final = frozenset(("add", "sub", "mul", "truediv", "matmul", "pow", "and", "or"))


@functools.cache
def _exported(function: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the operators that may end a function, and those before; None if it is neither in the table nor one."""
    name = plain_name(function)
    op = _operators().get(name.replace("_", ""))
    return _EXPORTS.get(name) or (None if op is None else (frozenset((op,)), frozenset()))


@functools.cache
def _operators() -> dict[str, str]:
    """Return the operators of ONNX by their names in lower case."""
    return {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas()}


def is_layout(function: str) -> bool:
    """Return whether a function only moves, copies or reshapes values, by the operators that it is exported as."""
    ops = _exported(function)
    return ops is not None and ops[0] <= _NEUTRAL


@functools.cache
def cost_of_end(function: str, op: str) -> float:
    """Return the cost of a last node of this type; infinite if the function is not exported as such."""
    ops, name = _exported(function), plain_name(function).replace("_", "")
    # one node returns the heads side by side, as torch's reshape of them
    if (ops is not None and op in ops[0]) or (op in names_where("attends") and plain_name(function) in _RESHAPES):
        return 0.0
    has_name = op.lower() in name or name in op.lower()
    if has_name and (ops is None or (len(name) > 2 and op not in _LAST)):  # a mul is no MatMul
        return 0.0
    if op == "Identity":  # in place of another node: more than without a node, less than an added Identity besides
        return OMITTED_COST + 0.8 * ADDED_COST if is_layout(function) else MISPLACED_COST + 0.5 * ADDED_COST
    return UNKNOWN_COST if ops is None and op not in _NEUTRAL else np.inf


@functools.cache
def _inside(function: str, op: str) -> float:
    """Return the cost of a node of this type before the last one."""
    ops = _exported(function)
    if ops is not None and op in ops[1]:
        return 0.0
    steps = 2 if op in names_where("attends") else 1  # an attention is of several operations
    return ADDED_COST if op in _NEUTRAL else UNKNOWN_COST if ops is None else MISPLACED_COST * steps


class Operations:
    """Pairs of operations and tensors, and the regions between known pairs."""

    def __init__(
        self, recording: Recording, graph: Graph, tensors: Mapping[int, int], fits: Callable[[int, int], bool]
    ) -> None:
        self._recording, self._graph, self._fits = recording, graph, fits
        self._flow = Flow.of(graph)
        self._folded = graph.folded
        self.known = dict(tensors)
        """Number of a recorded value → its tensor: the known ones, later also those that were found."""
        self._tensors = set(tensors.values())
        self.maker: dict[int, FunctionCall] = {function.value: function for function in recording.functions}
        """Number of a value → the operation that returned it."""
        self._outputs: dict[int, list[int]] = {}
        """Number of a value → those of all results of its operation, such as the halves of a chunk."""
        for _, several in itertools.groupby(recording.functions, lambda call: call._replace(value=0)):
            numbers = [call.value for call in several]
            self._outputs |= dict.fromkeys(numbers, numbers)
        self.last: dict[int, FunctionCall] = {}
        """Known tensor → the operation that computes it, without reshapes of its result that the export lacks."""
        self._around: dict[int, tuple[int, ...]] = {}
        """Number of an output of a submodule without recorded operations → the inputs of the submodule."""
        for call in reversed(recording.calls):
            inputs = tuple(slot.value for slot in call.inputs)
            for slot in call.outputs:
                if slot.value not in self.maker and slot.value not in inputs and slot.value >= call.known:
                    self._around.setdefault(slot.value, inputs)

    def find(self) -> dict[int, int]:
        """Return number of the value of an operation → its tensor, for the operations between known values."""
        pairs: dict[int, int] = {}
        visits: set[int] = set()
        claims: set[int] = set()
        for number in sorted(self.known):
            value = self.known[number]
            if self._flow.producer[value] < 0:
                continue
            operations, tensors = self._region(number, value, visits, claims)
            if len(operations) > 1 and tensors:
                pairs |= self._settled(self._divided(operations, tensors, value))
        return pairs

    def inputs(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the values that a value was computed from."""
        function = self.maker.get(number)
        return function.inputs if function is not None else self._around.get(number, ())

    def starts(self, number: int, pairs: Mapping[int, int]) -> tuple[dict[int, None], list[int]]:
        """Return the nearest values in ``pairs`` before a value, and the operations without a tensor in between.

        A −1 among the values stands for one that was not recorded.
        """
        visits, roots, between = {number}, dict[int, None](), list[int]()
        todo = list(self.inputs(number))
        while todo:
            other = todo.pop()
            if other in visits:
                continue
            visits.add(other)
            if other in pairs or other < 0:
                roots[other] = None
                continue
            if other in self.maker and plain_name(self.maker[other].name) not in IDENTITIES:
                between.append(other)
            todo += self.inputs(other)
        return roots, sorted(between)

    def tensors_before(self, value: int, borders: Collection[int]) -> set[int]:
        """Return the nearest known tensors and inputs of the model that a tensor is computed from."""
        flow, nodes = self._flow, self.nodes_before(value, borders, with_constants=True)
        reads = {read for node in nodes for read in flow.reads(node)}
        return {read for read in reads if read in borders or flow.kinds[read] == GRAPH_INPUT}

    def nodes_before(self, value: int, borders: Collection[int], *, with_constants: bool = False) -> set[int]:
        """Return the nodes between known tensors and a tensor, except those that compute shapes and constants."""
        flow, graph = self._flow, self._graph
        nodes: set[int] = set()
        todo = [flow.producer[value]] if flow.producer[value] >= 0 else []
        while todo:
            node = todo.pop()
            is_constant = self._folded[node] and not with_constants
            if is_constant or node in nodes or graph.op_type(node) in ("Shape", "Size"):
                continue
            nodes.add(node)
            reads = (read for read in flow.reads(node) if read not in borders and graph.type_of(read).shape != ())
            todo += [flow.producer[read] for read in reads if flow.producer[read] >= 0]
        return nodes

    def agree(self, here: Collection[int], there: Collection[int], *, is_whole: bool) -> bool:
        """Return whether a tensor was computed from the known tensors of torch's value only, or from some of them.

        An export may also read inputs that torch did not need, such as a mask of ones, and what was not recorded.
        """
        more = set(there).difference(here)
        has_overlap = not here or not set(here).isdisjoint(there)
        return has_overlap and (not is_whole or all(self._flow.kinds[value] == GRAPH_INPUT for value in more))

    def is_another(self, number: int, value: int) -> bool:
        """Return whether a tensor is of another operation: of an input of this one, or of one that reads less."""
        call, node = self.maker.get(number), self._flow.producer[value]
        if call is None or node < 0:
            return False
        if plain_name(call.name) not in _RESHAPES and any(self.known.get(read) == value for read in call.inputs):
            return True
        if cost_of_end(call.name, self._graph.op_type(node)):
            return False
        reads = self.tensors_before(value, self._tensors)
        direct = {self.known[read] for read in call.inputs if read in self.known}
        return any(self._graph.value_kind[read] != INITIALIZER and read not in reads for read in direct)

    def likeness(self, number: int, value: int) -> int:
        """Return how many of the operations before a value have nodes before a tensor, less the nodes of no operation.

        Of the cosine and the sine that a module returns, only one was computed by a Cos.
        """
        _, between = self.starts(number, self.known)
        names = {self.maker[step].name for step in (*between, *({number} & self.maker.keys()))}
        exports = [pair for name in names if (pair := _exported(name)) is not None and not pair[0] <= _NEUTRAL]
        graph, nodes = self._graph, self.nodes_before(value, self._tensors, with_constants=True)
        ops = {graph.op_type(node) for node in nodes} - _NEUTRAL
        coverage = frozenset().union(*(last | before for last, before in exports))
        return sum(not ops.isdisjoint(last) for last, _ in exports) - len(ops - coverage)

    def is_own(self, number: int, value: int, is_elsewhere: Callable[[int, int], bool] | None) -> bool:
        """Return whether the nodes before a tensor, up to known ones, can all be of the operation that returned it.

        ``is_elsewhere(node, call)`` tells whether the export says that a node is of another call, if it says anything.
        """
        function, graph = self.maker.get(number), self._graph
        if function is None:
            return True
        last = self._flow.producer[value]
        for node in self.nodes_before(value, self._tensors):
            cost = (cost_of_end if node == last else _inside)(function.name, graph.op_type(node))
            if cost >= 0.8 * MISPLACED_COST or (is_elsewhere is not None and is_elsewhere(node, function.call)):
                return False
        return True

    def _region(
        self, number: int, value: int, visits: set[int], claims: set[int]
    ) -> tuple[list[FunctionCall], list[int]]:
        """Return the operations that compute a value from known ones, and the tensors that its nodes produce."""
        operations: list[FunctionCall] = []
        begins: set[int] = set()
        todo = [number]
        while todo:
            other = todo.pop()
            if other in self.known and other != number:
                if self._graph.value_kind[self.known[other]] != INITIALIZER:
                    begins.add(self.known[other])
                continue
            if other in visits:
                continue
            visits.add(other)
            if other in self.maker:
                operations.append(self.maker[other])
            todo += self.inputs(other)
        flow, graph, nodes = self._flow, self._graph, list[int]()
        waiting = [flow.producer[value]]
        while waiting:
            node = waiting.pop()
            if node in claims or self._folded[node]:
                continue
            claims.add(node)
            nodes.append(node)
            reads = (read for read in flow.reads(node) if read not in self._tensors)
            waiting += [flow.producer[read] for read in reads if flow.producer[read] >= 0]
        nodes.sort(key=self._graph.rank.__getitem__)
        if begins:  # other nodes compute a value that torch computed out of sight, such as a mask
            data = set(begins)
            for node in nodes:
                if not data.isdisjoint(flow.reads(node)):
                    data.update(self._graph.node_outputs(node).tolist())
            nodes = [node for node in nodes if not data.isdisjoint(self._graph.node_outputs(node).tolist())]
        operations.sort(key=lambda operation: operation.value)
        # of a norm that adds, the sum comes before what is made of it
        results = ((graph.node_outputs(node).tolist(), graph.op_type(node) in names_where("sums")) for node in nodes)
        tensors = [output for outputs, adds in results for output in outputs[:: -1 if adds else 1] if output >= 0]
        if value in tensors:  # whatever is computed after it belongs elsewhere
            del tensors[tensors.index(value) + 1 :]
        return operations, tensors

    def _divided(self, operations: list[FunctionCall], tensors: list[int], last: int) -> list[tuple[FunctionCall, int]]:
        """Return the operations that have a tensor, with it; the last operation has the last tensor.

        Exporters write changes of layout where torch called them, or right behind what they change.
        """
        place: dict[int, int] = {}
        for operation in operations:
            moves = is_layout(operation.name) and operation is not operations[-1]
            place[operation.value] = place.get(next(iter(operation.inputs), -1), -1) if moves else operation.value
        early = sorted(operations, key=lambda operation: (place[operation.value], operation.value))
        orders = [operations, early] if early != operations else [operations]
        _, pairs = min((self._division(order, tensors, last) for order in orders), key=operator.itemgetter(0))
        for operation, tensor in pairs:
            self.last.setdefault(tensor, operation)
        return pairs

    def _division(
        self, order: list[FunctionCall], tensors: list[int], last: int
    ) -> tuple[float, list[tuple[FunctionCall, int]]]:
        """Return the cost of the cheapest division of operations in this order, and its pairs."""
        operations = list(order)
        graph, flow = self._graph, self._flow
        makers = [flow.producer[value] for value in tensors]
        # a normalization adds weights only, a residual connection adds what was computed
        sides = zip(tensors, makers, strict=True)
        ops = ["Sum" if self._is_sum(value, node) else graph.op_type(node) for value, node in sides]
        # torch reshapes what a matrix product returned, where the export has a product of tensors of a higher rank
        while len(operations) > 1 and plain_name(operations[-1].name) in _RESHAPES and ops[-1] not in _NEUTRAL:
            before_last, argument = operations[-2].value, next(iter(operations[-1].inputs), -1)
            sizes = {self._recording.value(number).size for number in (argument, operations[-1].value)}
            if argument != before_last or len(sizes) > 1:
                break
            operations.pop()
        source = {node: source_of(graph.nodes[node]) for node in dict.fromkeys(makers)}
        first = [place == 0 or makers[place - 1] != node for place, node in enumerate(makers)]
        count = len(tensors)
        best = np.full(count + 1, np.inf)
        best[0] = 0.0
        steps: list[NDArray[np.int64]] = []
        places = np.arange(count + 1)
        there = [self.tensors_before(value, self._tensors) for value in tensors]
        for operation in operations:
            is_last = operation is operations[-1]
            inside = [_inside(operation.name, op) * begins for op, begins in zip(ops, first, strict=True)]
            ends = [
                self._end_cost(operation, value, node, op, source[node]) if is_last == (value == last) else np.inf
                for value, node, op in zip(tensors, makers, ops, strict=True)
            ]
            roots, _ = self.starts(operation.value, self.known)
            here = {self.known[root] for root in roots if root >= 0}
            ends = [cost + OTHER_INPUTS_COST * (not reads <= here) for cost, reads in zip(ends, there, strict=True)]
            if is_last:
                ends[-1] = 0.0
            before = np.concatenate([[0.0], np.cumsum(inside)])
            from_here = best - before
            lowest = np.minimum.accumulate(from_here)
            start = np.maximum.accumulate(np.where(from_here <= lowest, places, 0))
            costs = np.concatenate([[np.inf], lowest[:-1] + before[:-1] + ends])
            omission = OMITTED_COST if is_layout(operation.name) else MISPLACED_COST
            skips = best + (np.inf if is_last else omission * (bool(here) and not self._is_same(operation)))
            hits = (costs <= skips) & np.isfinite(costs)  # of two operations with one node, the later one has it
            steps.append(np.where(hits, np.concatenate([[0], start[:-1]]), -1))
            best = np.where(hits, costs, skips)
        pairs: list[tuple[FunctionCall, int]] = []
        at = count
        for operation, step in zip(reversed(operations), reversed(steps), strict=True):
            if step[at] >= 0:
                if not self._is_same(operation):
                    pairs.append((operation, tensors[at - 1]))
                at = int(step[at])
        return float(best[count]), pairs[::-1]

    def _is_same(self, operation: FunctionCall) -> bool:
        """Return whether an operation returns its input, and has no node."""
        name, argument = plain_name(operation.name), next(iter(operation.inputs), -1)
        shape = self._recording.value(operation.value).shape
        is_empty = name in _EXPANDS and argument >= 0 and self._recording.value(argument).shape == shape
        return (name in IDENTITIES or is_empty) and operation.value not in self.known

    def _is_sum(self, value: int, node: int) -> bool:
        """Return whether a tensor is a sum of inputs of the model and of what nodes computed, not of weights."""
        flow, op = self._flow, self._graph.op_type(node)
        if op != "Add":
            return op in names_where("sums") and value != self._graph.node_outputs(node)[0]
        makers = ((read, flow.producer[read]) for read in flow.reads(node))
        return all(not self._folded[maker] if maker >= 0 else flow.kinds[read] == GRAPH_INPUT for read, maker in makers)

    def _end_cost(self, operation: FunctionCall, value: int, node: int, op: str, source: str) -> float:
        """Return the cost of an operation that ends at a tensor; infinite if the tensor cannot hold its result."""
        cost = cost_of_end(operation.name, op)
        if cost == np.inf or not self._fits(value, operation.value):
            return np.inf
        outputs, numbers = self._graph.node_outputs(node).tolist(), self._outputs[operation.value]
        if len(outputs) == len(numbers) and outputs.index(value) != numbers.index(operation.value):
            return np.inf
        if "batch_norm" in operation.name and "Conv" in op:  # folded: its tensor is not that of the convolution
            cost -= OTHER_LINE_COST
        if source and operation.source:
            cost += OTHER_LINE_COST * (source != operation.source)
        if op == "Reshape" and self._permutation(operation) is not None:
            return cost + ADDED_COST
        return cost + OTHER_ORDER_COST * (op == "Transpose" and self._is_other_permutation(operation, node))

    def _is_other_permutation(self, operation: FunctionCall, node: int) -> bool:
        """Return whether a Transpose swaps other axes than the function, and than it does with the one before it."""
        order = self._permutation(operation)
        if order is None:
            return False
        perm = next((list(entry.ints) for entry in self._graph.nodes[node].attribute if entry.name == "perm"), None)
        perm = sorted(order, reverse=True) if perm is None else perm
        before = self.maker.get(next(iter(operation.inputs), -1))
        earlier = None if before is None else self._permutation(before)
        product = None if earlier is None or len(earlier) != len(order) else [earlier[axis] for axis in order]
        return perm not in (order, product)

    def _permutation(self, operation: FunctionCall) -> list[int] | None:
        """Return the order in which a function puts axes; None if it is no transposition."""
        rank, name, axes = self._recording.value(operation.value).ndim, plain_name(operation.name), operation.numbers
        order = list(range(rank))
        if name == "permute" and len(axes) == rank:
            return [axis % rank for axis in axes]
        if name in ("transpose", "swapaxes") and len(axes) == 2 and rank:
            one, other = (axis % rank for axis in axes)
            order[one], order[other] = order[other], order[one]
            return order
        return order[::-1] if name == "t" else None

    def _settled(self, pairs: Sequence[tuple[FunctionCall, int]]) -> dict[int, int]:
        """Return the pairs whose sides were computed from the same known values, and note them as known."""
        tensors: dict[int, int] = {}
        exempt: set[int] = set()
        for operation, value in pairs:
            if operation.value in self.known or value in self._tensors:
                continue
            roots, _ = self.starts(operation.value, self.known)
            both = {self.known[root] for root in roots if root >= 0}, self.tensors_before(value, self._tensors)
            here, there = ({v for v in side if self._graph.value_kind[v] != INITIALIZER} for side in both)
            if not self.agree(here, there - exempt, is_whole=-1 not in roots):
                exempt |= there - here  # so that what is computed from it is found
            else:
                tensors[operation.value] = self.known[operation.value] = value
                self._tensors.add(value)
        return tensors
