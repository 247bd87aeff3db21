"""Find the ONNX tensor of every output of a recorded module, without any change to the module.

The exporters write the path of the submodule into metadata or node names, which ties nodes to calls. The output of a
call is a tensor that leaves its nodes with the right type and shape. Values only break ties, between repeated calls of
one module or between results of one shape. An output without a tensor gets a reason.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnx_nb.analysis.compare.metrics import LOOKED_AT, between
from onnx_nb.analysis.formatting import quoted, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.pytorch.alignment import Alignment, Match, TensorSink, feeds_of
from onnx_nb.analysis.pytorch.module_scopes import ModuleScopes, Scope
from onnx_nb.analysis.run.windows import Windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.record import Call, FunctionCall, Recording

CLOSE: Final = 1e-2
"""Largest distance, relative to the largest value, of a tensor inside of a module from the output that it may be."""
NEAR: Final = 1e-3
"""Largest distance of a tensor from the result of a function, whose place is less certain."""
_EQUAL: Final = 1e-6
"""Largest distance of a weight from an output that was computed in advance."""
_MOST_POSSIBLE: Final = 8
"""Tensors that are tried for the result of a function."""


def align(
    recording: Recording,
    model: ModelLike,
    *,
    feeds: Mapping[str, Any] | None = None,
    providers: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Alignment:
    """Find the ONNX tensor of each output of each recorded module call.

    Parameters
    ----------
    recording
        Recording of the module, from `record`.
    model
        Export of the same module, by either exporter.
    feeds
        Inputs of the model, for a run that breaks ties by values; the recorded arguments if ``None``.
    providers
        Execution providers of that run, best first; the CPU if ``None``.
    progress
        Called between windows with the fraction done and what runs next. An exception that it raises ends the work.

    Returns
    -------
    Alignment

    Raises
    ------
    AlignmentError
        If the model is not an export of that module.
    FeedError
        If the recorded arguments do not fit the model's inputs.

    Examples
    --------
    >>> import torch, onnx_nb
    >>> module, x = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval(), torch.ones(1, 2)
    >>> model = onnx_nb.export(module, x, exporter="torchscript")
    >>> [(match.name, match.tensor) for match in align(onnx_nb.record(module, x), model).matches][1]
    ('0', '/0/Gemm_output_0')
    """
    graph = Graph.of(load(model))
    candidates = Candidates(recording, graph)
    distances: dict[tuple[int, int], float] = {}

    def measure(value: int, array: NDArray[Any]) -> None:
        for number in candidates.numbers[value]:
            distances[value, number] = between(recording.value(number), array)

    if candidates.tied:
        windows = Windows(graph, candidates.tied, memory_limit=1 << 30, providers=providers)
        windows.run(feeds_of(recording, graph.model, feeds), TensorSink(graph, progress, measure))
    return candidates.settle(distances)


class Candidates:
    """Tensors that may carry each recorded value, by structure, type and shape, before values break ties."""

    def __init__(self, recording: Recording, graph: Graph) -> None:
        self.recording = recording
        self.graph = graph
        self._calls = recording.calls
        self._scopes = ModuleScopes(recording, graph)
        self._own: dict[int, list[tuple[int, int]]] = {}
        self._types: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._nodes = self._nodes_of_calls()
        self._fixed: dict[int, tuple[int, str]] = {}
        """Recorded value → tensor and how it was found, where there is no doubt."""
        self._open: dict[int, list[int]] = {}
        """Recorded value → tensors, best first."""
        self._inner: set[int] = set()
        """Recorded values whose tensors come from inside of a call, and must be close."""
        self._makers = self._makers_of_values()
        self._fix_model_inputs_and_outputs()
        for number, call in self._makers.items():
            if number not in self._fixed:
                self._propose(number, call)
        self._included: dict[int, Call] = {}
        """Recorded value of a convolution → the normalization that the export folded into it."""
        self._fold_normalizations()
        self.functions: dict[int, list[int]] = {}
        """Recorded value of a function → tensors that may be it; values decide."""
        self._same_inputs: dict[int, int] = {}
        """Recorded value of a function → the tensor whose node reads the function's arguments."""
        self._propose_functions()

    @functools.cached_property
    def tied(self) -> frozenset[int]:
        """Tensors whose values are needed."""
        doubtful = (values for number, values in self._open.items() if len(values) > 1 or number in self._inner)
        return frozenset(itertools.chain(*doubtful, *self.functions.values()))

    @functools.cached_property
    def numbers(self) -> dict[int, list[int]]:
        """Tensor → the recorded values that it may be."""
        found: dict[int, list[int]] = {}
        certain = [(number, [value]) for number, (value, _) in self._fixed.items()]
        certain += [(number, [value]) for number, value in self._same_inputs.items()]
        for number, values in itertools.chain(certain, self._open.items(), self.functions.items()):
            for value in values:
                found.setdefault(value, []).append(number)
        return found

    def settle(self, distances: Mapping[tuple[int, int], float]) -> Alignment:
        """Choose a tensor for each recorded value; ``distances`` has (tensor, number of the value) → distance."""
        chosen = dict(self._fixed)
        taken = {value for value, _ in chosen.values()}
        for number, values in self._open.items():
            if len(values) == 1 and number not in self._inner:
                chosen[number] = values[0], "scope"
                taken.add(values[0])
        ranked = sorted(
            (distances.get((value, number), math.inf), place, number, value)
            for number, values in self._open.items()
            if number not in chosen
            for place, value in enumerate(values)
        )
        for distance, _, number, value in ranked:
            inner = number in self._inner
            if number in chosen or value in taken or distance == math.inf or (inner and distance > CLOSE):
                continue
            chosen[number] = value, "value" if inner or len(self._open[number]) > 1 else "scope"
            taken.add(value)
        self._share(chosen, distances)
        functions = self._settle_functions(taken, distances)
        return Alignment((*self._matches(chosen), *self._function_matches(functions)))

    # --- nodes of calls ---------------------------------------------------------------------------------------------

    def _nodes_of_calls(self) -> list[tuple[list[int], bool]]:
        """Return for each call its nodes in file order, and whether another call may share them."""
        scopes = self._scopes
        inner: list[list[int]] = [[] for _ in self._calls]
        for number, call in enumerate(self._calls):
            if call.parent >= 0:
                inner[call.parent].append(number)
        found: list[tuple[list[int], bool]] = [([], False)] * len(self._calls)
        found[0] = list(range(self.graph.main_count)), False
        for number in range(len(self._calls)):
            nodes, shared = found[number]
            if not inner[number]:
                continue
            calls_in: dict[Scope, list[int]] = {}
            for other in inner[number]:
                calls_in.setdefault(scopes.of_call[other], []).append(other)
            depth = len(scopes.of_call[number]) + 1
            nodes_in: dict[Scope, list[int]] = {}
            for node in nodes:
                nodes_in.setdefault(scopes.of_node[node][:depth], []).append(node)
            for scope, calls in calls_in.items():
                own = nodes_in.get(scope, [])
                parts = [own] if len(calls) == 1 else self._runs(nodes, own, depth)
                divided = len(parts) == len(calls)
                for place, other in enumerate(calls):
                    found[other] = (parts[place], shared) if divided else (own, True)
        return found

    def _runs(self, around: Sequence[int], own: Sequence[int], depth: int) -> list[list[int]]:
        """Divide the nodes of a module that was called several times where nodes of others are between them."""
        inside = set(own)
        runs: list[list[int]] = []
        last: str | None = None
        broken = True
        for node in around:
            if node not in inside:
                broken = broken or not (self._scopes.guessed[node] or self.graph.folded[node])
                continue
            label = self._scopes.label(node, depth)
            if broken or (label is not None and last is not None and label != last):
                runs.append([])
            runs[-1].append(node)
            broken, last = False, label
        return runs

    @functools.cached_property
    def _ends(self) -> list[int]:
        """The last call that began inside of each call, itself included."""
        ends = list(range(len(self._calls)))
        for number in range(len(self._calls) - 1, 0, -1):
            parent = self._calls[number].parent
            ends[parent] = max(ends[parent], ends[number])
        return ends

    def _makers_of_values(self) -> dict[int, int]:
        """Return for each value the innermost call that made it; inner calls come before those around them."""
        made: dict[int, int] = {}
        ended = sorted(range(len(self._calls)), key=lambda number: (self._ends[number], -number))
        known = {slot.value for slot in self._calls[0].inputs}
        for number in ended:
            call = self._calls[number]
            inputs = {slot.value for slot in call.inputs}
            for slot in call.outputs:
                if slot.value not in inputs and slot.value not in known:
                    made.setdefault(slot.value, number)
        return made

    # --- tensors of values ------------------------------------------------------------------------------------------

    def _fix_model_inputs_and_outputs(self) -> None:
        graph, root = self.graph, self._calls[0]
        numbers = {slot.label: slot.value for slot in root.inputs}
        for value in graph.inputs.tolist():
            number = numbers.get(graph.value_names[value])
            if number is not None:
                self._fixed[number] = value, "input"
        outputs = [value for value in graph.outputs.tolist() if value >= 0]
        if len(outputs) == len(root.outputs):
            for value, slot in zip(outputs, root.outputs, strict=True):
                if self._fits(value, slot.value) and graph.producer[value] >= 0:
                    self._fixed.setdefault(slot.value, (value, "output"))

    def _fits(self, value: int, number: int) -> bool:
        """Return whether a tensor can hold a recorded value, as far as its type and shape are known."""
        known = self.graph.type_of(value)
        kind, shape = self._recorded_type(number)
        if known.dtype and _kind(known.dtype) != kind:
            return False
        if known.shape is None or known.shape == shape:
            return True
        return len(known.shape) == len(shape) and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(known.shape, shape, strict=True)
        )

    def _recorded_type(self, number: int) -> tuple[str, tuple[int, ...]]:
        """Return kind and shape of a recorded value."""
        if number not in self._types:
            array = self.recording.value(number)
            self._types[number] = _kind(array.dtype.name), array.shape
        return self._types[number]

    def _propose(self, number: int, maker: int) -> None:
        """Note the tensors that may be a value, of the nodes of the call that made it."""
        graph = self.graph
        nodes, shared = self._nodes[maker]
        orphans = not nodes
        if orphans:  # nodes that an optimizer made have no scope
            nodes = [node for node in self._nodes[self._calls[maker].parent][0] if self._scopes.guessed[node]]
        claimed = {value for value, _ in self._fixed.values()}
        made = [
            value
            for node in nodes
            if not self._is_constant[node]
            for value in graph.node_outputs(node).tolist()
            if value >= 0 and value not in claimed and self._fits(value, number)
        ]
        if orphans:
            if made:
                self._open[number] = made
                self._inner.add(number)
            return
        if shared:
            self._open[number] = made
            return
        inside = set(nodes)
        leaving = [value for value in made if self._leaves(value, inside)]
        # the output of an inner call is not that of the call around it
        of_inner = {
            value
            for other in range(maker + 1, self._ends[maker] + 1)
            for slot in self._calls[other].outputs
            for value in self._certain(slot.value)
        }
        own = [value for value in leaving if value not in of_inner] or leaving
        if own or made:
            self._open[number] = (own or made)[::-1]  # of several, the last one first
        if made and not own:
            self._inner.add(number)

    @functools.cached_property
    def _is_constant(self) -> list[bool]:
        """Whether each node is a Constant."""
        constant = [operator == ("Constant", "") for operator in self.graph.operators]
        return [constant[index] for index in self.graph.op_index.tolist()]

    def _certain(self, number: int) -> list[int]:
        """Return the tensor of a recorded value if there is only one."""
        if number in self._fixed:
            return [self._fixed[number][0]]
        values = self._open.get(number, [])
        return values if len(values) == 1 else []

    def _leaves(self, value: int, inside: set[int]) -> bool:
        """Return whether a tensor is a graph output, or read by a node that is not inside."""
        readers = itertools.chain(self.graph.consumers(value).tolist(), self._subgraph_readers.get(value, ()))
        return value in self._outputs or any(node not in inside for node in readers)

    @functools.cached_property
    def _outputs(self) -> frozenset[int]:
        return frozenset(self.graph.outputs.tolist())

    @functools.cached_property
    def _subgraph_readers(self) -> dict[int, list[int]]:
        """Value → nodes whose subgraphs read it."""
        found: dict[int, list[int]] = {}
        for subgraph in self.graph.subgraphs[1:]:
            if subgraph.parent == 0:
                for value in self.graph.outer_values(subgraph.owner_node).tolist():
                    found.setdefault(value, []).append(subgraph.owner_node)
        return found

    def _fold_normalizations(self) -> None:
        """Move the tensors of a convolution to the normalization that the export folded into it."""
        for number, maker in self._makers.items():
            call = self._calls[maker]
            if self._nodes[maker][0] or number in self._fixed or "BatchNorm" not in call.cls or not call.inputs:
                continue
            before = call.inputs[0].value
            source = self._makers.get(before)
            if source is None or not re.match(r"(Lazy)?(Conv|Linear)", self._calls[source].cls):
                continue
            values = self._open.get(before)
            if values and all(self._fits(value, number) for value in values):
                self._open[number] = self._open.pop(before)
                self._included[before] = call
                self._inner.discard(before)

    def _share(self, chosen: dict[int, tuple[int, str]], distances: Mapping[tuple[int, int], float]) -> None:
        """Let values without a tensor share the tensor of an equal value, or a weight that holds them."""
        rest = [number for number in self._makers if number not in chosen]
        if not rest:
            return
        shapes = {self.recording.value(number).shape for number in rest}
        equal: dict[tuple[Any, ...], int] = {}
        for number, (value, how) in chosen.items():
            array = self.recording.value(number)
            if array.shape in shapes and how != "input":
                equal.setdefault((array.shape, array.dtype.str, array.tobytes()), value)
        for number in rest:
            array = self.recording.value(number)
            value = equal.get((array.shape, array.dtype.str, array.tobytes()), -1) if array.size > 1 else -1
            if value >= 0 and distances.get((value, number), 0.0) <= CLOSE:
                chosen[number] = value, "equal"
            elif (weight := self._weight(number)) is not None:
                chosen[number] = weight, "constant"

    def _weight(self, number: int) -> int | None:
        """Return the weight that holds a value whose nodes were computed in advance; None if there is none."""
        array = self.recording.value(number)
        nodes = self._nodes[self._makers[number]][0]
        if not 1 < array.size <= LOOKED_AT or any(not self.graph.folded[node] for node in nodes):
            return None
        for name, info in self.graph.model.initializers.items():
            if info.shape == array.shape and between(array, self.graph.model.tensor(name)) <= _EQUAL:
                return self._weight_values.get(name)
        return None

    @functools.cached_property
    def _weight_values(self) -> dict[str, int]:
        names = self.graph.value_names
        return {names[value]: value for value in self.graph.subgraphs[0].weights.tolist()}

    # --- tensors of functions ---------------------------------------------------------------------------------------

    def _propose_functions(self) -> None:
        """Note the tensors that may be the result of a function: of a node with the same inputs, else in order."""
        handed_on = {slot.value for call in self._calls for slot in call.outputs}
        functions = [function for function in self.recording.functions if function.value not in handed_on]
        same = Counter((function.call, _operator(function.name), function.inputs) for function in functions)
        known = {number: self._certain(number)[0] for number in self._numbers_known()} if functions else {}
        taken = set(known.values())
        last: dict[int, int] = {}
        for function in functions:
            operator = _operator(function.name)
            value = -1
            if operator and function.inputs and all(number in known for number in function.inputs):
                value = self._reader(function, {known[number] for number in function.inputs}, taken)
            if value >= 0 and same[function.call, operator, function.inputs] == 1:
                self._same_inputs[function.value] = known[function.value] = value
                taken.add(value)
                last[function.call] = int(self.graph.rank[self.graph.producer[value]])
                continue
            possible = [
                value
                for rank, value in self._own_tensors(function.call)
                if rank > last.get(function.call, -1) and value not in taken and self._fits(value, function.value)
            ]
            if possible:
                self.functions[function.value] = possible[:_MOST_POSSIBLE]

    def _numbers_known(self) -> Iterator[int]:
        """Yield the recorded values whose tensor is certain before values are compared."""
        yield from self._fixed
        for number, values in self._open.items():
            if len(values) == 1 and number not in self._inner and number not in self._fixed:
                yield number

    def _reader(self, function: FunctionCall, inputs: set[int], taken: Container[int]) -> int:
        """Return the output of the only node that applies a function to the same inputs; −1 if there is none."""
        graph = self.graph
        found = []
        own = {value for _, value in self._own_tensors(function.call)}
        for node in graph.consumers(next(iter(inputs))).tolist():
            if node >= graph.main_count:
                continue
            operator = graph.operators[int(graph.op_index[node])][0].lower()
            read = {value for value in graph.node_inputs(node).tolist() if value >= 0 and not is_weight(graph, value)}
            if read == inputs and _operator(function.name) in operator:
                found += [value for value in graph.node_outputs(node).tolist() if value in own]
        if len(found) == 1 and found[0] not in taken and self._fits(found[0], function.value):
            return int(found[0])
        return -1

    def _own_tensors(self, number: int) -> list[tuple[int, int]]:
        """Return rank and output of the nodes of a call that are in none of its inner calls, in order."""
        if number not in self._own:
            graph = self.graph
            inside = {
                node
                for other in range(number + 1, self._ends[number] + 1)
                if self._calls[other].parent == number
                for node in self._nodes[other][0]
            }
            self._own[number] = sorted(
                (int(graph.rank[node]), value)
                for node in self._nodes[number][0]
                if node not in inside and not graph.folded[node]
                for value in graph.node_outputs(node).tolist()
                if value >= 0
            )
        return self._own[number]

    def _settle_functions(
        self, taken: Container[int], distances: Mapping[tuple[int, int], float]
    ) -> dict[int, tuple[int, str]]:
        """Choose the tensor of each function's result."""
        found = {number: (value, "inputs") for number, value in self._same_inputs.items() if value not in taken}
        used = {value for value, _ in found.values()}
        ranked = sorted(
            (distances.get((value, number), math.inf), number, place, value)
            for number, values in self.functions.items()
            for place, value in enumerate(values)
        )
        for distance, number, _, value in ranked:
            free = number not in found and value not in used and value not in taken
            if distance <= NEAR and free and not self._is_uniform(number):
                found[number] = value, "value"
                used.add(value)
        return found

    def _is_uniform(self, number: int) -> bool:
        """Return whether all elements of a value are the same, so that many tensors may hold it."""
        array = self.recording.value(number).reshape(-1)
        return bool((array == array[0]).all())

    # --- matches ----------------------------------------------------------------------------------------------------

    def _function_matches(self, chosen: Mapping[int, tuple[int, str]]) -> Iterator[Match]:
        for function, label in self.recording.labeled():
            if function.value in chosen:
                call = self._calls[function.call]
                value, how = chosen[function.value]
                tensor = self.graph.value_names[value]
                yield Match(call.path, call.index, label, call.cls, tensor, how, "", function.name, function.source)

    def _matches(self, chosen: Mapping[int, tuple[int, str]]) -> Iterator[Match]:
        names = self.graph.value_names
        including = {slot.value for call in self._included.values() for slot in call.outputs}
        for number, call in enumerate(self._calls):
            for slot in call.outputs:
                value, how = chosen.get(slot.value, (-1, ""))
                if how == "scope" and slot.value in including:
                    how = "folded"
                why = "" if value >= 0 else self._why(slot.value, number)
                tensor = names[value] if value >= 0 else ""
                yield Match(call.path, call.index, slot.label, call.cls, tensor, how, why)

    def _why(self, number: int, call: int) -> str:
        """Return why a value has no tensor."""
        norm = self._included.get(number)
        if norm is not None:
            return f"folded together with {norm.cls} {quoted(norm.name)}, whose output its tensor is"
        maker = self._makers.get(number, call)
        nodes = self._nodes[maker][0]
        for later in self._calls[maker + 1 :] if not nodes else ():
            if "BatchNorm" in later.cls and any(slot.value == number for slot in later.inputs):
                return f"folded into {later.cls} {quoted(later.name)}"
        if all(self.graph.folded[node] for node in nodes):
            return "no node of the export is from this call: not read, computed in advance, or merged with others"
        shape = shape_text(self.recording.value(number).shape)
        return f"no tensor of shape {shape} leaves its nodes: fused with the next operator, or not read"


def is_weight(graph: Graph, value: int) -> bool:
    """Return whether a value is a weight, or computed from weights only."""
    maker = int(graph.producer[value])
    return bool(graph.folded[maker]) if maker >= 0 else bool(graph.value_kind[value] == INITIALIZER)


_OPERATORS: Final = {
    "view": "reshape", "flatten": "reshape", "permute": "transpose", "t": "transpose", "cat": "concat", "bmm": "matmul",
    "truediv": "div", "true_divide": "div",
}  # fmt: skip
"""Function of torch → the ONNX operator that it becomes, where the names differ."""


def _operator(function: str) -> str:
    """Return the operator that a function becomes, in lower case: "add" for "add_" and "__iadd__"."""
    name = function.strip("_").lower()
    if function.startswith("__") and name[:1] in "ir" and name[1:] in ("add", "sub", "mul", "truediv", "matmul", "pow"):
        name = name[1:]
    return _OPERATORS.get(name, name)


_WIDTHS = re.compile(r"(bfloat|float|u?int|complex)\d+.*")


@functools.cache
def _kind(dtype: str) -> str:
    """Return "float" for "float16": a converted model may hold the same value in another width."""
    found = _WIDTHS.fullmatch(dtype)
    return found[1].removeprefix("b").removeprefix("u") if found else dtype
