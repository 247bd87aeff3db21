"""Find the ONNX tensor of every output of a recorded module, without any change to the module.

The exporters write the path of the submodule into metadata or node names, which ties nodes to calls. The output of a
call is a tensor that leaves its nodes with the right type and shape. Values only break ties, between repeated calls of
one module or between results of one shape. An output without a tensor gets a reason.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.metrics import LOOKED_AT, between, kind_of
from onnx_nb.analysis.compare.thresholds import CONSTANT_DISTANCE, TIE_DISTANCE
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import closest_text, quoted, shape_text
from onnx_nb.analysis.graph.dataflow import Flow, followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import GRAPH_INPUT, INITIALIZER, NODE_OUTPUT
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.save import write_file
from onnx_nb.analysis.model.saved import read_json, reading, typed
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.model.tensors import fits
from onnx_nb.analysis.progress import CountedWork, Progress
from onnx_nb.analysis.pytorch.module_scopes import ModuleScopes
from onnx_nb.analysis.pytorch.operations import Operations, cost_of_end, is_layout
from onnx_nb.analysis.pytorch.record import ModuleCall, Recording
from onnx_nb.analysis.pytorch.side import feeds_of, inputs_of
from onnx_nb.analysis.results import Table
from onnx_nb.analysis.run.capture import capture


@known_arguments
def align(
    recording: Recording, model: ModelLike, *, feeds: Mapping[str, Any] | None = None, progress: Progress | None = None
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
    progress
        As for `compare_torch`.

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
    work = CountedWork(progress, 1)
    work.reached(0, f"looking for the submodules of {recording.cls}")
    candidates = Candidates(recording, graph)
    distances: dict[tuple[int, int], float] = {}
    if candidates.tied:
        names = {value: graph.value_names[value] for value in candidates.tied}
        inputs, every = feeds_of(recording, graph.model, feeds), names.values()
        values = capture(graph.model, inputs, tensors=every, keep=every, progress=progress)
        for value, array in ((value, values[name]) for value, name in names.items() if name in values.array_names):
            for number in candidates.numbers[value]:
                distances[value, number] = between(recording.value(number), array)
    alignment = candidates.settle(distances)
    work.finished()
    return alignment


@dataclass(frozen=True)
class Match:
    """One output of a module call, and the ONNX tensor that carries it."""

    path: str
    """Path of the submodule, as in ``module.named_modules()``."""
    call: int
    """Number of earlier calls of the submodule."""
    output: str
    """Label of the output, as in `Slot.label`."""
    cls: str
    """Class of the submodule."""
    tensor: str
    """Name of the ONNX tensor; empty if there is none."""
    how: str
    """Method that found it: "output" (of the model), "input", "scope", "value" (values broke a tie), "folded" (nodes of
    another module include this one), "equal" (another call computed the same), "constant" (a weight), "inputs" (nodes
    compute the same function of the same values), "order" (of several calls), "suffix" (see `Alignment.on`); empty if
    there is no tensor."""
    why: str = ""
    """Reason why there is no tensor."""
    function: str = ""
    """Function that returned the value in the ``forward`` of the submodule, such as ``"add_"``; empty for an output."""
    source: str = ""
    """Line of Python that called the function, such as ``modeling_bert.py:312``."""
    exported: str = ""
    """Name of its tensor in the export if `Alignment.on` found another one or none; else empty."""
    root: str = "model"
    """Name of the module itself, as in `ModuleCall.root`."""

    @property
    def called(self) -> str:
        """Name of the call, as in `ModuleCall.name`."""
        return f"{self.path or self.root}{f'#{self.call + 1}' if self.call else ''}"

    @property
    def name(self) -> str:
        """Name of the output: "encoder.layer.1", "shared#2", "lstm → 1.0"."""
        return f"{self.called}{f' → {self.output}' if self.output else ''}"


Pairs: TypeAlias = Mapping[int, tuple[int, Match]]
"""Number of a recorded value → tensor and match."""
_Repeats: TypeAlias = tuple[list[int], dict[tuple[Any, ...], list[int]]]


@dataclass(frozen=True, eq=False, repr=False)
class Alignment(Table):
    """Correspondence between the outputs of module calls and tensors, as returned by `align`.

    ``alignment["encoder.layer.1"]`` is a `Match`.

    Examples
    --------
    >>> import torch, onnx_nb
    >>> module, x = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval(), torch.ones(1, 2)
    >>> found = onnx_nb.align(onnx_nb.record(module, x), onnx_nb.export(module, x, exporter="torchscript"))
    >>> found
    Alignment(3 of 3 module outputs)
    >>> found["0"].tensor
    '/0/Gemm_output_0'
    """

    matches: tuple[Match, ...]
    """Outputs in the order in which the calls began, then the recorded functions that have a tensor."""

    def __getitem__(self, name: str) -> Match:
        for match in self.matches:
            if match.name == name or (match.path == name and not match.call and not match.function):
                return match
        message = f"no output of a submodule {quoted(name)} was recorded."
        raise AlignmentError(message, advice=closest_text(name, [match.name for match in self.matches]))

    def __len__(self) -> int:
        return len(self.matches)

    @property
    def matched(self) -> tuple[Match, ...]:
        """Matches with a tensor."""
        return tuple(match for match in self.matches if match.tensor)

    @property
    def unmatched(self) -> tuple[Match, ...]:
        """Matches without a tensor; `Match.why` is the reason."""
        return tuple(match for match in self.matches if not match.tensor)

    def __repr__(self) -> str:
        functions = sum(bool(match.function) for match in self.matches)
        more = f", {functions:,} functions" if functions else ""
        outputs = len(self.matches) - functions
        return f"Alignment({outputs - len(self.unmatched):,} of {outputs:,} module outputs{more})"

    _columns = ("name", *Match.__dataclass_fields__)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict for each match."""
        return [{"name": match.name, **asdict(match)} for match in self.matches]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the alignment as JSON, for later use with models derived from the export by tools that drop its names.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        content = {"kind": "onnx_nb alignment", "matches": [asdict(match) for match in self.matches]}
        return write_file(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Alignment:
        """Read a file that `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is something else.
        """
        place = path_of(path)
        with reading(place, "a saved alignment"):
            content = read_json(place)
            if content["kind"] != "onnx_nb alignment":
                raise ValueError("it is of another kind")
            return cls(typed(content["matches"], tuple[Match, ...], "matches"))

    def on(self, model: ModelLike) -> Alignment:
        """Return the alignment of a model derived from the aligned one: optimized, float16, or quantized.

        Tensors are found by name. The dequantized copy of a quantized tensor is preferred, because quantization may
        include the operator before it, such as a Relu.
        """
        graph = Graph.of(load(model))
        kinds, tensors = graph.value_kind, graph.names_by_subgraph[0]
        names = {name for name, value in tensors.items() if kinds[value] in (NODE_OUTPUT, GRAPH_INPUT)}
        matches = []
        for match in self.matches:
            variants = (f"{match.tensor}{suffix}" for suffix in ("_DequantizeLinear_Output", "_DequantizeLinear", ""))
            tensor = next((name for name in variants if name in names), "") if match.tensor else ""
            why = match.why if not match.tensor or tensor else f"tensor {quoted(match.tensor)} is not in this model"
            how = match.how if tensor == match.tensor else "suffix" if tensor else ""
            original = "" if tensor == match.tensor else match.exported or match.tensor
            matches.append(dataclasses.replace(match, tensor=tensor, how=how, why=why, exported=original))
        return Alignment(tuple(matches))

    def pairs(self, recording: Recording, graph: Graph) -> dict[int, tuple[int, Match]]:
        """Return number of a recorded value → its tensor and the match of the innermost call that produced it."""
        calls, tensors = recording.calls, graph.names_by_subgraph[0]
        places = {
            (call.path, call.index, slot.label): (number, slot.value)
            for number, call in enumerate(calls)
            for slot in call.outputs
        }
        for function, label in recording.labeled():
            call = calls[function.call]
            places[call.path, call.index, label] = function.call, function.value
        inputs = {slot.value for slot in calls[0].inputs}
        pairings: dict[int, tuple[int, Match]] = {}
        deepest: dict[int, int] = {}
        for match in self.matched:
            maker, number = places.get((match.path, match.call, match.output), (-1, -1))
            value = tensors.get(match.tensor, -1)
            if min(maker, value) < 0 or number in inputs or graph.value_kind[value] not in (NODE_OUTPUT, INITIALIZER):
                continue
            passed_through = any(slot.value == number for slot in calls[maker].inputs)
            if number not in pairings or (maker > deepest[number] and not passed_through):
                pairings[number], deepest[number] = (value, match), maker
        return dict(sorted(pairings.items()))


class Candidates:
    """Tensors that may carry each recorded value, by structure, type and shape, before values break ties."""

    def __init__(self, recording: Recording, graph: Graph) -> None:
        self._recording, self._graph, self._calls = recording, graph, recording.calls
        self._flow, self._is_constant = Flow.of(graph), graph.constant_values
        self._scopes = ModuleScopes(recording, graph)
        self._adders = {node for node in range(graph.main_count) if graph.op_type(node) in names_where("sums")}
        arrays = map(recording.value, range(recording.value_count))
        self._types = [(kind_of(array.dtype.name), array.shape) for array in arrays]
        self._ends = list(range(len(self._calls)))
        """The last call that began inside each call, the call itself included."""
        for number in range(len(self._calls) - 1, 0, -1):
            parent = self._calls[number].parent
            self._ends[parent] = max(self._ends[parent], self._ends[number])
        self.copies: dict[str, tuple[int, int]] = {}
        """Path of a submodule → how often the export calls it, and how often torch does, if that is more often."""
        self.nodes = self._nodes_of_calls()
        self._makers: dict[int, int] = {}
        """Value → the innermost call that produced it; inner calls come before those around them."""
        arguments = {slot.value for slot in self._calls[0].inputs}
        for number in sorted(range(len(self._calls)), key=lambda number: (self._ends[number], -number)):
            inputs = arguments.union(slot.value for slot in self._calls[number].inputs)
            results = (slot.value for slot in self._calls[number].outputs if slot.value not in inputs)
            self._makers.update((value, number) for value in results if value not in self._makers)
        self._functions = {function.value: function.name for function in recording.functions}
        self._calls_of = followers((function.call, function) for function in recording.functions)
        self._fixed = {number: (value, "input") for number, value in inputs_of(recording, graph).items()}
        """Recorded value → tensor and the method that found it, where there is no doubt."""
        self._open: dict[int, list[int]] = {}
        """Recorded value → tensors, best first."""
        self._inner: set[int] = set()
        """Recorded values whose tensors come from inside a call, and must be close."""
        outputs = {graph.value_names[value]: value for value in graph.outputs.tolist() if value >= 0}
        slots = {slot.label: slot.value for slot in self._calls[0].outputs}
        labels = zip(slots, outputs, strict=True) if len(slots) == len(outputs) else ((name, name) for name in slots)
        for number, value in ((slots[label], outputs.get(name, -1)) for label, name in labels):
            if value >= 0 and self._fits(value, number) and graph.producer[value] >= 0:
                self._fixed.setdefault(number, (value, "output"))
        for number, maker in self._makers.items():
            if number not in self._fixed:
                self._propose(number, maker)
        self._included: dict[int, ModuleCall] = {}
        """Recorded value of a convolution → the normalization that the export folded into it."""
        self._fold_normalizations()
        self._narrow()
        self._narrow_by_operations()
        sure, tensors = self._known()
        operations = Operations(recording, graph, tensors, self._fits)
        composite = {call.parent for call in self._calls}
        for number in [number for number in sure if number in tensors and self._makers[number] in composite]:
            if operations.is_another(number, tensors[number]):  # of several operations, only the wrong one is left
                del tensors[number], self._open[number]
        infos = graph.model.initializers.items()
        self._weights = followers((info.shape, name) for name, info in infos if 1 < math.prod(info.shape) <= LOOKED_AT)
        """Shape → the names of the weights that may be compared with values."""
        twins = {function.value: self._twin(function.value) for function in recording.functions}
        tensors = {**{number: value for number, value in twins.items() if value >= 0}, **tensors}
        operations = Operations(recording, graph, tensors, self._fits)
        places = operations.find() if recording.functions else {}
        self._of_operations = {n: value for n, value in places.items() if not operations.is_another(n, value)}
        """Value of a function → its tensor, found by structure."""
        left = {number: values for number, values in self._open.items() if number not in self._of_operations}
        doubtful = (values for number, values in left.items() if len(values) > 1 or number in self._inner)
        self.tied = frozenset(itertools.chain(*doubtful))
        """Tensors whose values are needed."""
        pairs = [(value, number) for number, (value, _) in self._fixed.items()]
        pairs += [(value, number) for number, value in self._of_operations.items()]
        self.numbers = followers([*pairs, *((value, number) for number, values in left.items() for value in values)])
        """Tensor → the recorded values that it may be."""

    def is_elsewhere(self, node: int, call: int) -> bool:
        """Return whether the export says that a node is of another submodule than a call."""
        return self._scopes.of_node[node] != self._scopes.of_call[call]

    def path_of(self, node: int) -> str:
        """Return the path of the submodule that a node is from; empty if no call has its scope."""
        scopes, scope = self._scopes.of_call, self._scopes.of_node[node]
        return next((call.path for number, call in enumerate(self._calls) if scopes[number] == scope), "")

    def _is_apart(self, number: int, value: int) -> bool:
        """Return whether the export says that a tensor is of a submodule beside that of the call with a value."""
        node = int(self._graph.producer[value])
        if number not in self._makers or node in self._adders:
            return False
        scopes = self._scopes.of_node[node], self._scopes.of_call[self._makers[number]]
        depth = min(map(len, scopes))
        return scopes[0][:depth] != scopes[1][:depth]

    def settle(self, distances: Mapping[tuple[int, int], float]) -> Alignment:
        """Choose a tensor for each recorded value; ``distances`` has (tensor, number of the value) → distance."""
        sure, _ = self._known()
        pairs = self._fixed | {number: (value, "scope") for number, value in sure.items() if number not in self._inner}
        tensors = {value for value, _ in pairs.values()}
        ops = {number: value for number, value in self._of_operations.items() if number not in pairs}
        ops = {number: ops[number] for number in ops.keys() - self._included.keys() if ops[number] not in tensors}
        ops = {number: value for number, value in ops.items() if not self._is_apart(number, value)}
        pairs |= {number: (value, "inputs") for number, value in ops.items() if number in self._makers}
        tensors |= set(ops.values())
        places: dict[int, int] = {}
        """Recorded value → how many later results of its call may be the same tensors: the last tensors are theirs."""
        counts: Counter[tuple[int, ...]] = Counter()
        for number in sorted(self._open, reverse=True):
            maker = self._makers[number]
            places[number] = counts[maker, *self._open[number]] if not self.nodes[maker][1] else 0
            counts[maker, *self._open[number]] += 1
        ranking = sorted(
            # where no value is near, as after a fault, the order counts
            (far if far <= TIE_DISTANCE else 1.0, abs(place - places[number]), number, value)
            for number, values in self._open.items()
            for place, value in enumerate(values)
            if (far := distances.get((value, number))) is not None
        )
        for distance, _, number, value in ranking:
            if number not in pairs and value not in tensors and (distance <= TIE_DISTANCE or number not in self._inner):
                pairs[number] = value, "value" if distance <= TIE_DISTANCE else "order"
                tensors.add(value)
        self._share(pairs, distances)
        matches = list(self._matches(pairs))
        for function, label in self._recording.labeled():
            if function.value in ops and function.value not in self._makers:
                call, value = self._calls[function.call], ops[function.value]
                details = self._graph.value_names[value], "inputs", "", function.name, function.source
                matches.append(Match(call.path, call.index, label, call.cls, *details, root=call.root))
        return Alignment(tuple(matches))

    # --- nodes of calls ---------------------------------------------------------------------------------------------

    def _nodes_of_calls(self) -> list[tuple[list[int], bool]]:
        """Return for each call its nodes in file order, and whether another call may share them."""
        scopes = self._scopes
        regions: list[tuple[list[int], bool]] = [([], False)] * len(self._calls)
        regions[0] = list(range(self._graph.main_count)), False
        for number in range(len(self._calls)):
            inside = range(number + 1, self._ends[number] + 1)
            inner = (other for other in inside if self._calls[other].parent == number)
            calls_in = followers((scopes.of_call[other], other) for other in inner)
            if not calls_in:
                continue
            nodes, is_common = regions[number]
            depth = len(scopes.of_call[number]) + 1
            nodes_in = followers((scopes.of_node[node][:depth], node) for node in nodes)
            for scope, calls in calls_in.items():
                members = nodes_in.get(scope, [])
                repeats: _Repeats = self._repeats(members) if len(calls) > 1 else ([], {})
                copies = self._copies(repeats, calls)
                parts = [members] if len(calls) == 1 else self._runs(nodes, members, depth)
                if len(parts) != copies:
                    parts = self._equal_parts(members, repeats, copies)
                has_parts = len(parts) == copies
                if copies < len(calls) and has_parts:
                    self.copies[self._calls[calls[0]].path] = copies, len(calls)
                    parts += [[]] * (len(calls) - copies)
                for place, other in enumerate(calls):
                    regions[other] = (parts[place], is_common) if has_parts else (members, True)
        return regions

    def _copies(self, repeats: _Repeats, calls: Sequence[int]) -> int:
        """Return how often the export calls a module: as often as torch, unless it has fewer nodes for its weights."""
        if len({self._calls[call].path for call in calls}) > 1:
            return len(calls)
        copies = 0
        for (_op, _scope, weights), places in repeats[1].items():
            types = map(self._graph.type_of, weights)
            # axes and factors are read by several nodes of one call
            if any(kind_of(info.dtype) == "float" and info.shape not in (None, (), (1,)) for info in types):
                copies = max(copies, len(places))
        if not 0 < copies < len(calls):
            return len(calls)
        arrays = ([self._recording.value(slot.value) for slot in self._calls[call].outputs] for call in calls)
        different = {tuple(array.tobytes() for array in outputs) for outputs in arrays}  # equal calls may be merged
        return copies if copies < len(different) else len(calls)

    def _runs(self, around: Sequence[int], members: Sequence[int], depth: int) -> list[list[int]]:
        """Divide the nodes of a module that was called several times where nodes of other modules are between them."""
        inside = set(members)
        runs: list[list[int]] = []
        last: list[str] = []
        is_gap = True
        for node in around:
            if node not in inside:
                is_gap = is_gap or not (self._scopes.guessed[node] or self._graph.folded[node])
                continue
            label = self._scopes.labels[node][depth - 1 : depth]
            if is_gap or (label and last and label != last):
                runs.append([])
            runs[-1].append(node)
            is_gap, last = False, label
        return runs

    def _equal_parts(self, members: Sequence[int], repeats: _Repeats, count: int) -> list[list[int]]:
        """Divide the nodes of a module into its calls, one after another, by the weights that each call reads again.

        The result is empty if they do not repeat, or not in order.
        """
        nodes, whole = repeats[0], {key: places for key, places in repeats[1].items() if len(places) % count == 0}
        series = [places for key, places in whole.items() if key[2]] or list(whole.values())
        if not series:
            return []
        sizes = [len(places) // count for places in series]
        at = [[p[i * size : (i + 1) * size] for p, size in zip(series, sizes, strict=True)] for i in range(count)]
        first, last = ([edge(edge(places) for places in part) for part in at] for edge in (min, max))
        if any(end >= begin for end, begin in zip(last, first[1:], strict=False)):
            return []
        starts = [nodes[max(end, begin - first[0] - 1)] for end, begin in zip(last, first[1:], strict=False)]
        cuts = [0, *(members.index(node) + 1 for node in starts), len(members)]
        return [list(members[start:end]) for start, end in itertools.pairwise(cuts)]

    def _repeats(self, members: Sequence[int]) -> _Repeats:
        """Return the nodes that compute, and operator, submodule and weights → the places among them of such nodes."""
        graph = self._graph
        nodes = [node for node in members if not graph.folded[node]]  # some calls may have constants that others lack

        def key(node: int) -> tuple[Any, ...]:
            weights = tuple(v for v in graph.node_inputs(node).tolist() if v >= 0 and self._is_constant[v])
            return int(graph.op_index[node]), self._scopes.of_node[node], weights

        return nodes, followers((key(node), place) for place, node in enumerate(nodes))

    # --- tensors of values ------------------------------------------------------------------------------------------

    def _fits(self, value: int, number: int) -> bool:
        """Return whether a tensor can hold a recorded value, as far as its type and shape are known."""
        info = self._graph.type_of(value)
        kind, shape = self._types[number]
        if info.dtype and kind_of(info.dtype) != kind:
            return False
        return info.shape is None or info.shape == shape or fits(info.shape, shape)

    def _propose(self, number: int, maker: int) -> None:
        """Note the tensors that may be a value, from the nodes of the call that produced it."""
        graph = self._graph
        nodes, is_common = self.nodes[maker]
        orphans = not nodes
        if orphans:  # nodes added by an optimizer have no scope
            nodes = [node for node in self.nodes[self._calls[maker].parent][0] if self._scopes.guessed[node]]
        certain = {value for value, _ in self._fixed.values()}
        values = [
            value
            for node in nodes
            if graph.op_type(node) != "Constant"
            for value in graph.node_outputs(node)[: 1 if node in self._adders else None].tolist()
            if value >= 0 and value not in certain and self._fits(value, number)
        ]
        if is_common or orphans:
            if values:
                self._open[number] = values
            if values and orphans:
                self._inner.add(number)
            return
        inside = set(nodes)
        outputs = set(self._graph.outputs.tolist())
        leaving = [value for value in values if value in outputs or not inside.issuperset(self._flow.readers(value))]
        for node in {node for value in leaving for node in self._flow.readers(value)} - inside:
            # a norm of the next call that adds both ends of this one has the sum, as its last output or not at all
            if node in self._adders and inside.issuperset(graph.producer[graph.node_inputs(node)[:2]].tolist()):
                leaving = values = [value for value in graph.node_outputs(node)[3:].tolist() if value >= 0]
        # the output of an inner call is not that of the call around it
        inner = {slot.value for call in self._calls[maker + 1 : self._ends[maker] + 1] for slot in call.outputs}
        of_inner = {self._fixed[output][0] for output in inner if output in self._fixed}
        of_inner |= {self._open[output][0] for output in inner if len(self._open.get(output, ())) == 1}
        exits = [value for value in leaving if value not in of_inner] or leaving
        costs = {value: self._costs_of_end(number, maker, value) for value in values}
        if exits and all(costs[value][0] == math.inf for value in exits):
            if len(self._calls_of[maker]) == 1:  # behind it, such as the scale of an embedding
                exits = [value for value in values if costs[value][0] == 0] or exits
            elif any(costs[value][1] == 0 for value in exits):  # before it, such as what a Relu squared squares
                values = exits = []
        if exits or values:
            self._open[number] = (exits or values)[::-1]  # the last one first
        if values and not exits:
            self._inner.add(number)

    def _costs_of_end(self, number: int, maker: int, value: int) -> tuple[float, float]:
        """Return what it costs that the function of a value ends at a tensor, or another one of that call does."""
        op, name = self._graph.op_type(int(self._graph.producer[value])), self._functions.get(number)
        others = (other for other in self._calls_of.get(maker, ()) if other.name != name and not is_layout(other.name))
        costs = [cost_of_end(other.name, op) for other in others if self._fits(value, other.value)]
        return 0.0 if name is None else cost_of_end(name, op), min(costs, default=math.inf)

    def _narrow(self) -> None:
        """Leave of several tensors of one value those that the nodes of most calls read that torch passed it to."""
        readers = followers((slot.value, number) for number, call in enumerate(self._calls) for slot in call.inputs)
        for number, values in self._open.items():
            if len(values) > 1 and number in readers and not self.nodes[self._makers[number]][1]:
                nodes = [set(self.nodes[reader][0]) for reader in readers[number]]
                reads = map(self._flow.readers, values)
                votes = [sum(not inside.isdisjoint(read) for inside in nodes) for read in reads]
                self._open[number] = [value for value, vote in zip(values, votes, strict=True) if vote == max(votes)]

    def _known(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the recorded values that have one tensor, and those of them that are known without their values."""
        sure = {number: values[0] for number, values in self._open.items() if len(values) == 1}
        tensors = {number: value for number, value in sure.items() if number not in self._inner}
        return sure, tensors | {number: value for number, (value, _) in self._fixed.items()}

    def _narrow_by_operations(self) -> None:
        """Leave of several tensors of one value those that nodes like the operations of torch compute."""
        operations = Operations(self._recording, self._graph, self._known()[1], self._fits)
        best: dict[int, list[int]] = {}
        for number, values in self._open.items():
            if len(values) > 1 and number in operations.maker and not self.nodes[self._makers[number]][1]:
                likeness = [operations.likeness(number, value) for value in values]
                best[number] = [v for v, like in zip(values, likeness, strict=True) if like == max(likeness)]
        left = Counter(value for values in best.values() for value in values)
        self._open |= {number: values for number, values in best.items() if all(left[value] == 1 for value in values)}

    def _twin(self, number: int) -> int:
        """Return the weight that holds a value which the exporter computed, such as a rotary table; −1 if none does."""
        model, value = self._graph.model, self._recording.value
        names = self._weights.get(self._types[number][1], ())
        twins = (name for name in names if between(value(number), model.tensor(name)) <= CONSTANT_DISTANCE)
        return next(map(self._graph.value, twins), -1)

    def _fold_normalizations(self) -> None:
        """Move the tensors of a convolution to the normalization that the export folded into it."""
        for number, maker in self._makers.items():
            call = self._calls[maker]
            if self.nodes[maker][0] or number in self._fixed or "BatchNorm" not in call.cls or not call.inputs:
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

    def _share(self, pairs: dict[int, tuple[int, str]], distances: Mapping[tuple[int, int], float]) -> None:
        """Match values without a tensor to the tensor of an equal value, or to a weight that holds them."""
        foldable = self._graph.folded
        rest = [number for number in self._makers if number not in pairs]
        shapes = {self._types[number][1] for number in rest}
        equal: dict[tuple[Any, ...], int] = {}
        for number, (value, how) in pairs.items():
            if self._types[number][1] in shapes and how != "input":
                array = self._recording.value(number)
                equal.setdefault((array.shape, array.dtype.str, array.tobytes()), value)
        for number in rest:
            array = self._recording.value(number)
            value = equal.get((array.shape, array.dtype.str, array.tobytes()), -1) if array.size > 1 else -1
            if value >= 0 and distances.get((value, number), 0.0) <= TIE_DISTANCE:
                pairs[number] = value, "equal"
            elif 1 < array.size <= LOOKED_AT and all(foldable[node] for node in self.nodes[self._makers[number]][0]):
                twin = self._twin(number)
                value = twin if twin >= 0 else self._constant_read(number, pairs)
                if value >= 0:  # the exporter computed its nodes
                    pairs[number] = value, "constant"

    def _constant_read(self, number: int, pairs: Mapping[int, tuple[int, str]]) -> int:
        """Return the weight that the node of the one reader of a value has in its place; −1 if that is not certain."""
        graph, infos, functions = self._graph, self._graph.model.initializers, self._recording.functions
        inputs, origins = {function.value: function.inputs for function in functions}, [number]
        for origin in origins:
            if origin not in inputs:  # it depends on what the module reads: no exporter computes it in advance
                return -1
            origins += [read for read in inputs[origin] if read not in origins]
        readers = [function.value for function in functions if number in function.inputs]
        value = pairs.get(readers[0], (self._of_operations.get(readers[0], -1), ""))[0] if len(readers) == 1 else -1
        if value < 0 or graph.producer[value] < 0:
            return -1
        reads = graph.node_inputs(int(graph.producer[value])).tolist()
        infos_of = [(read, infos.get(graph.value_names[read])) for read in reads if read >= 0]
        twins = [read for read, info in infos_of if info is not None and info.shape == self._types[number][1]]
        return twins[0] if len(twins) == 1 else -1

    def _matches(self, pairs: Mapping[int, tuple[int, str]]) -> Iterator[Match]:
        including = {slot.value for call in self._included.values() for slot in call.outputs}
        for number, call in enumerate(self._calls):
            for slot in call.outputs:
                value, how = pairs.get(slot.value, (-1, ""))
                if how == "scope" and slot.value in including:
                    how = "folded"
                why = "" if value >= 0 else self._why(slot.value, number)
                tensor = self._graph.value_names[value] if value >= 0 else ""
                yield Match(call.path, call.index, slot.label, call.cls, tensor, how, why, root=call.root)

    def _why(self, number: int, call: int) -> str:
        if (norm := self._included.get(number)) is not None:
            return f"folded together with {norm.cls} {quoted(norm.name)}, whose output its tensor is"
        maker = self._makers.get(number, call)
        nodes = self.nodes[maker][0]
        for later in self._calls[maker + 1 :] if not nodes else ():
            if "BatchNorm" in later.cls and any(slot.value == number for slot in later.inputs):
                return f"folded into {later.cls} {quoted(later.name)}"
        if all(self._graph.folded[node] for node in nodes):
            return "no node of the export is from this call: not read, computed in advance, or merged with others"
        shape = shape_text(self._types[number][1])
        return f"no tensor of shape {shape} leaves its nodes: fused with the next operator, or not read"
