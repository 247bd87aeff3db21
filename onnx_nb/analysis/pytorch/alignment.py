"""Which tensor of an ONNX model is which output of a torch module call, without a change to the module.

The exporters leave the path of the submodule in metadata or in node names. That ties nodes to calls; what leaves the
nodes of a call, with the right type and shape, is its output. Values only break ties: between calls of a module that is
called again, between two results of one shape. What stays without a tensor says why.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnx_nb.analysis.compare.distances import LOOKED_AT, between
from onnx_nb.analysis.dataframes import data_frame
from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.graph.graph import GRAPH_INPUT, INITIALIZER, NODE_OUTPUT, Graph
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.model.tensors import numpy_dtype
from onnx_nb.analysis.model.value_info import input_types
from onnx_nb.analysis.pytorch.module_scopes import Key, Keys
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.validate_feeds import validate_feeds
from onnx_nb.analysis.run.windows import Sink, Windows

if TYPE_CHECKING:
    import pandas as pd

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.pytorch.record import Call, FunctionCall, Recording
    from onnx_nb.analysis.run.session import Value

FORMAT: Final = 1
CLOSE: Final = 1e-2
"""A tensor from inside a module is taken for its output only if it is as close, relative to the largest value."""
NEAR: Final = 1e-3
"""And for the result of a function, whose place is less certain."""
EQUAL: Final = 1e-6
"""And a weight, for what was computed in advance, only if it is as close as this."""
_MOST_POSSIBLE: Final = 8
"""So many tensors are tried for the result of a function."""


@dataclass(frozen=True)
class Match:
    """One output of a module call, and the ONNX tensor that carries it."""

    path: str
    """Of the submodule, as in ``module.named_modules()``."""
    call: int
    """How many calls of it came before."""
    output: str
    """Which of its outputs, as in `Slot.label`."""
    cls: str
    """Class of the submodule."""
    tensor: str
    """Name of the ONNX tensor; empty if there is none."""
    how: str
    """How it was found: "output" (of the model), "input", "scope", "value" (a tie that values broke), "folded" (the
    nodes of another module took it in), "equal" (another call computed the same), "constant" (a weight), "inputs" (of a
    function: it reads what the function got), "suffix" (see `Alignment.on`); empty if there is no tensor."""
    why: str = ""
    """Why there is no tensor."""
    function: str = ""
    """As "add_": what the submodule called in its own ``forward``, where it is this that gave the value."""
    source: str = ""
    """The line of Python that called it, as ``modeling_bert.py:312``."""
    exported: str = ""
    """Name of its tensor in the export where `Alignment.on` found another one, or none; else empty."""

    @property
    def name(self) -> str:
        """What a person calls it: "encoder.layer.1", "shared#2", "lstm → 1.0"."""
        call = f"#{self.call + 1}" if self.call else ""
        return f"{self.path or 'model'}{call}{f' → {self.output}' if self.output else ''}"


@dataclass(frozen=True, eq=False, repr=False)
class Alignment:
    """Which output of which module call is which tensor; what `align` gives.

    Examples
    --------
    >>> import torch
    >>> from onnx_nb.analysis.pytorch.record import record
    >>> from onnx_nb.analysis.pytorch.export import export
    >>> module, x = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval(), torch.ones(1, 2)
    >>> found = align(record(module, x), export(module, x, exporter="torchscript"))
    >>> found
    Alignment(3 of 3 module outputs)
    >>> found["0"].tensor
    '/0/Gemm_output_0'
    """

    matches: tuple[Match, ...]
    """In the order in which the calls began; behind them the functions that were recorded and have a tensor."""

    def __getitem__(self, name: str) -> Match:
        for match in self.matches:
            if match.name == name or (match.path == name and not match.call and not match.function):
                return match
        near = ", ".join(map(quoted, closest(name, [match.name for match in self.matches])))
        message = f"no output of a submodule {quoted(name)} was recorded."
        raise AlignmentError(message, advice=f"Closest names: {near}." if near else "")

    def __len__(self) -> int:
        return len(self.matches)

    @property
    def matched(self) -> tuple[Match, ...]:
        """Those that have a tensor."""
        return tuple(match for match in self.matches if match.tensor)

    @property
    def unmatched(self) -> tuple[Match, ...]:
        """Those that have none; `Match.why` says why."""
        return tuple(match for match in self.matches if not match.tensor)

    def __repr__(self) -> str:
        functions = sum(bool(match.function) for match in self.matches)
        more = f", {functions:,} functions" if functions else ""
        outputs = len(self.matches) - functions
        return f"Alignment({outputs - len(self.unmatched):,} of {outputs:,} module outputs{more})"

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict for each match."""
        return [{"name": match.name, **asdict(match)} for match in self.matches]

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a ``pandas.DataFrame``."""
        return data_frame(self.rows(), ["name", *Match.__dataclass_fields__])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON, to lie beside the model: tools that change a model often drop what the exporter wrote.

        Raises
        ------
        ModelFileError
            If the file cannot be written.
        """
        file = Path(path)
        content = {"format": FORMAT, "kind": "onnx_nb alignment", "matches": [asdict(match) for match in self.matches]}
        with together() as files:
            files.add(file, [(json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()])
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Alignment:
        """Read what `save` wrote.

        Raises
        ------
        AlignmentError
            If the file is something else.
        """
        file = Path(path)
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["kind"] != "onnx_nb alignment" or content["format"] > FORMAT:
                raise AlignmentError(f"{quoted(str(file))} is of another kind, or of a later version of onnx_nb.")
            return cls(tuple(Match(**match) for match in content["matches"]))
        except OSError as error:
            message = f"{quoted(str(file))} cannot be read: {error.strerror}."
            raise AlignmentError(message, advice="Write it with alignment.save(path).") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"{quoted(str(file))} is no alignment that onnx_nb wrote."
            raise AlignmentError(message, advice="Write it with alignment.save(path).") from error

    def on(self, model: ModelLike) -> Alignment:
        """Return what of it holds for a model that was made of the aligned one: optimized, float16, or quantized.

        A tensor is found by its name. Of a quantized one its dequantized copy is preferred, as quantization may take
        in what comes before, such as a Relu.
        """
        graph = Graph.of(load(model))
        made = {
            name
            for name, kind, frame in zip(graph.value_names, graph.value_kind, graph.value_subgraph, strict=True)
            if kind in (NODE_OUTPUT, GRAPH_INPUT) and not frame
        }
        found = []
        for match in self.matches:
            named = next((name for name in _descendants(match.tensor) if name in made), "") if match.tensor else ""
            why = match.why if not match.tensor or named else f"tensor {quoted(match.tensor)} is not in this model"
            how = match.how if named == match.tensor else "suffix" if named else ""
            exported = "" if named == match.tensor else match.exported or match.tensor
            found.append(dataclasses.replace(match, tensor=named, how=how, why=why, exported=exported))
        return Alignment(tuple(found))


def _descendants(name: str) -> tuple[str, ...]:
    return f"{name}_DequantizeLinear_Output", f"{name}_DequantizeLinear", name


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
        From `record`.
    model
        The export of the same module, by either exporter.
    feeds
        What to run the model on if values have to break a tie; the recorded arguments if ``None``.
    providers
        Execution providers for that, best first; the CPU if ``None``.
    progress
        Called between windows with the part done and what runs next. What it raises ends the work.

    Raises
    ------
    AlignmentError
        If the model is not an export of that module.
    FeedError
        If the recorded arguments do not fit the model's inputs.
    """
    graph = Graph.of(load(model))
    found = Proposals(recording, graph)
    if not found.tied:
        return found.settled({})
    seen = _Seen(found, graph, progress)
    Windows(graph, found.tied, memory_limit=1 << 30, providers=providers).run(
        feeds_of(recording, graph.model, feeds), seen
    )
    return found.settled(seen.distances)


class _Seen(Sink):
    """Takes the values that may break ties."""

    def __init__(self, proposals: Proposals, graph: Graph, progress: Progress | None) -> None:
        super().__init__(graph, progress)
        self.distances: dict[tuple[int, int], float] = {}
        self._proposals = proposals

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        if found is not None and found.is_tensor() and not index:
            array = sessions.to_array(found)
            for number in self._proposals.numbers_of(value):
                self.distances[value, number] = between(self._proposals.recording.value(number), array)


def feeds_of(recording: Recording, model: Model, feeds: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the model's inputs their recorded arguments: by name, else in order.

    Raises
    ------
    FeedError
        If some input has none that fits.
    """
    if feeds is not None:
        return validate_feeds(model, feeds)
    inputs = input_types(model)
    needed = [name for name in inputs if name not in model.initializers]
    given = {slot.label: recording.value(slot.value) for slot in recording.calls[0].inputs}
    found = {name: given.pop(name) for name in needed if name in given}
    rest = [name for name in needed if name not in found]
    if rest:
        left = list(given.values())
        if len(left) < len(rest):
            message = f"inputs {', '.join(map(quoted, rest[:4]))} of {model.name} are no arguments of {recording.cls}."
            raise FeedError(message, advice="Say by feeds= what the model gets.")
        found |= dict(zip(rest, left, strict=False))
    for name, kind in inputs.items():
        wanted = numpy_dtype(kind.tensor_type.elem_type) if kind.HasField("tensor_type") else None
        array = found.get(name)
        # a float16 model runs on what the float32 module got
        if array is not None and wanted is not None and array.dtype != wanted and _is_float(array.dtype):
            found[name] = array.astype(wanted) if _is_float(wanted) else array
    return validate_feeds(model, found)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


# --- the algorithm --------------------------------------------------------------------------------------------------


class Proposals:
    """Which tensors may be which recorded values: what structure says, before values break ties.

    Parameters
    ----------
    recording, graph
        What to align.

    Raises
    ------
    AlignmentError
        If hardly any node bears the name of a recorded submodule.
    """

    def __init__(self, recording: Recording, graph: Graph) -> None:
        self.recording = recording
        self.graph = graph
        self._calls = recording.calls
        self._keys = Keys(recording, graph)
        self._own: dict[int, list[tuple[int, int]]] = {}
        self._kinds: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._nodes = self._nodes_of_calls()
        self._fixed: dict[int, tuple[int, str]] = {}
        """Recorded value → tensor and how, where nothing can be in doubt."""
        self._open: dict[int, list[int]] = {}
        """Recorded value → tensors, best first."""
        self._inner: set[int] = set()
        """Those whose tensors come from inside of a call, so that they must be close."""
        self._makers = self._makers_of_values()
        self._fix_ends()
        for number, call in self._makers.items():
            if number not in self._fixed:
                self._propose(number, call)
        self._fold()
        self.functions: dict[int, list[int]] = {}
        """Recorded value of a function → tensors that may be it; values decide."""
        self._same_inputs: dict[int, int] = {}
        """Recorded value of a function → the tensor whose node reads what the function got."""
        self._propose_functions()

    @functools.cached_property
    def tied(self) -> frozenset[int]:
        """Tensors whose values are needed."""
        ties = {
            value
            for number, values in self._open.items()
            if len(values) > 1 or number in self._inner
            for value in values
        }
        return frozenset(ties.union(*self.functions.values()))

    @functools.cached_property
    def possible(self) -> frozenset[int]:
        """Every tensor that may be a match."""
        fixed = {value for value, _ in self._fixed.values()}
        return frozenset(
            itertools.chain(fixed, self._same_inputs.values(), *self._open.values(), *self.functions.values())
        )

    def numbers_of(self, value: int) -> list[int]:
        """Return the recorded values that a tensor may be."""
        return self._numbers.get(value, [])

    @functools.cached_property
    def _numbers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, (value, _) in self._fixed.items():
            found.setdefault(value, []).append(number)
        for number, value in self._same_inputs.items():
            found.setdefault(value, []).append(number)
        for number, values in itertools.chain(self._open.items(), self.functions.items()):
            for value in values:
                found.setdefault(value, []).append(number)
        return found

    def settled(self, distances: Mapping[tuple[int, int], float]) -> Alignment:
        """Decide, with how far tensors are from recorded values: (tensor, number of the value) → `between`."""
        chosen = dict(self._fixed)
        taken = {value for value, _ in chosen.values()}
        open_ = {number: list(values) for number, values in self._open.items()}
        for number, values in open_.items():
            if len(values) == 1 and number not in self._inner:
                chosen[number] = values[0], "scope"
                taken.add(values[0])
        pairs = sorted(
            (distances.get((value, number), math.inf), place, number, value)
            for number, values in open_.items()
            if number not in chosen
            for place, value in enumerate(values)
        )
        for apart, _, number, value in pairs:
            if number in chosen or value in taken or apart == math.inf or (number in self._inner and apart > CLOSE):
                continue
            chosen[number] = value, "value" if len(open_[number]) > 1 or number in self._inner else "scope"
            taken.add(value)
        self._share(chosen, distances)
        functions = self._functions_of(taken, distances)
        return Alignment((*self._matches(chosen), *self._function_matches(functions)))

    # --- which nodes belong to which call ---------------------------------------------------------------------------

    def _nodes_of_calls(self) -> list[tuple[list[int], bool]]:
        """Return for each call its nodes in file order, and whether they may be those of another call too."""
        keys = self._keys
        inner: list[list[int]] = [[] for _ in self._calls]
        for number, call in enumerate(self._calls):
            if call.parent >= 0:
                inner[call.parent].append(number)
        found: list[tuple[list[int], bool]] = [([], False)] * len(self._calls)
        found[0] = list(range(self.graph.main_count)), False
        for number in range(len(self._calls)):
            nodes, loose = found[number]
            if not inner[number]:
                continue
            below: dict[Key, list[int]] = {}
            for other in inner[number]:
                below.setdefault(keys.of_call[other], []).append(other)
            depth = len(keys.of_call[number]) + 1
            beneath: dict[Key, list[int]] = {}
            for node in nodes:
                beneath.setdefault(keys.of_node[node][:depth], []).append(node)
            for key, calls in below.items():
                mine = beneath.get(key, [])
                parts = [mine] if len(calls) == 1 else self._runs(nodes, mine, depth)
                if len(parts) == len(calls):
                    for other, part in zip(calls, parts, strict=True):
                        found[other] = part, loose
                else:
                    for other in calls:
                        found[other] = mine, True
        return found

    def _runs(self, around: Sequence[int], mine: Sequence[int], depth: int) -> list[list[int]]:
        """Divide the nodes of a module that was called several times where others lie between them."""
        inside = set(mine)
        runs: list[list[int]] = []
        last: str | None = None
        broken = True
        for node in around:
            if node not in inside:
                broken = broken or not (self._keys.guessed[node] or self.graph.folded[node])
                continue
            label = self._keys.label(node, depth)
            if broken or (label is not None and last is not None and label != last):
                runs.append([])
            runs[-1].append(node)
            broken, last = False, label
        return runs

    # --- which tensor is which value --------------------------------------------------------------------------------

    def _makers_of_values(self) -> dict[int, int]:
        """Return for each value the innermost call that made it; calls inside come before those around them."""
        made: dict[int, int] = {}
        ended = sorted(range(len(self._calls)), key=lambda number: (self._ends[number], -number))
        known = {slot.value for slot in self._calls[0].inputs}
        for number in ended:
            call = self._calls[number]
            got = {slot.value for slot in call.inputs}
            for slot in call.outputs:
                if slot.value not in got and slot.value not in known:
                    made.setdefault(slot.value, number)
        return made

    @functools.cached_property
    def _ends(self) -> list[int]:
        """The last call that began inside of each call, itself included."""
        ends = list(range(len(self._calls)))
        for number in range(len(self._calls) - 1, 0, -1):
            parent = self._calls[number].parent
            ends[parent] = max(ends[parent], ends[number])
        return ends

    def _fix_ends(self) -> None:
        """Match the model's own inputs and outputs."""
        graph, root = self.graph, self._calls[0]
        names = {slot.label: slot.value for slot in root.inputs}
        for value in graph.inputs.tolist():
            number = names.get(graph.value_names[value])
            if number is not None:
                self._fixed[number] = value, "input"
        outputs = [value for value in graph.outputs.tolist() if value >= 0]
        if len(outputs) == len(root.outputs):
            for value, slot in zip(outputs, root.outputs, strict=True):
                if self._fits(value, slot.value) and graph.producer[value] >= 0:
                    self._fixed.setdefault(slot.value, (value, "output"))

    def _fits(self, value: int, number: int) -> bool:
        """Return whether a tensor can hold a recorded value as far as its type and shape are known."""
        known = self.graph.type_of(value)
        kind, shape = self._recorded(number)
        if known.dtype and _kind(known.dtype) != kind:
            return False
        if known.shape is None or known.shape == shape:
            return True
        return len(known.shape) == len(shape) and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(known.shape, shape, strict=True)
        )

    def _recorded(self, number: int) -> tuple[str, tuple[int, ...]]:
        """Return kind and shape of a recorded value."""
        if number not in self._kinds:
            array = self.recording.value(number)
            self._kinds[number] = _kind(array.dtype.name), array.shape
        return self._kinds[number]

    def _propose(self, number: int, maker: int) -> None:
        graph = self.graph
        nodes, loose = self._nodes[maker]
        orphans = not nodes
        if orphans:  # nodes that an optimizer made bear no name
            nodes = [node for node in self._nodes[self._calls[maker].parent][0] if self._keys.guessed[node]]
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
        elif loose:
            self._open[number] = made
        else:
            self._propose_of(number, maker, nodes, made)

    @functools.cached_property
    def _is_constant(self) -> list[bool]:
        """Whether each node is a Constant."""
        constant = [operator == ("Constant", "") for operator in self.graph.operators]
        return [constant[index] for index in self.graph.op_index.tolist()]

    def _propose_of(self, number: int, maker: int, nodes: Sequence[int], made: list[int]) -> None:
        inside = set(nodes)
        leaving = [value for value in made if self._leaves(value, inside)]
        # what an inner call made is its output, not that of the call around it
        inner = {
            value
            for other in range(maker + 1, self._ends[maker] + 1)
            for slot in self._calls[other].outputs
            for value in self._sure(slot.value)
        }
        own = [value for value in leaving if value not in inner] or leaving
        if own:
            self._open[number] = own[::-1]  # of several the last
        elif made:
            self._open[number] = made[::-1]
            self._inner.add(number)

    def _sure(self, number: int) -> list[int]:
        if number in self._fixed:
            return [self._fixed[number][0]]
        values = self._open.get(number, [])
        return values if len(values) == 1 else []

    def _leaves(self, value: int, inside: set[int]) -> bool:
        if value in self._outputs:
            return True
        return any(node not in inside for node in self._readers(value))

    @functools.cached_property
    def _outputs(self) -> frozenset[int]:
        return frozenset(self.graph.outputs.tolist())

    def _readers(self, value: int) -> list[int]:
        readers: list[int] = self.graph.consumers(value).tolist()
        return readers + self._captured.get(value, [])

    @functools.cached_property
    def _captured(self) -> dict[int, list[int]]:
        """The nodes whose bodies read a value."""
        found: dict[int, list[int]] = {}
        for frame in self.graph.subgraphs[1:]:
            if frame.parent == 0:
                for value in self.graph.outer_values(frame.owner_node).tolist():
                    found.setdefault(value, []).append(frame.owner_node)
        return found

    def _fold(self) -> None:
        """Find what a fusion took in: the nodes of a convolution carry what the normalization behind it made."""
        self._took_in: dict[int, Call] = {}
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
                self._took_in[before] = call
                self._inner.discard(before)

    def _share(self, chosen: dict[int, tuple[int, str]], distances: Mapping[tuple[int, int], float]) -> None:
        """Return calls that have no nodes of their own, or none left, the tensor of a call that made the same value."""
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

    # --- functions --------------------------------------------------------------------------------------------------

    def _propose_functions(self) -> None:
        """Find what may be the result of a function: what reads the same, else what fits in the order of both."""
        if not self.recording.functions:
            return
        handed = {slot.value for call in self._calls for slot in call.outputs}
        functions = [each for each in self.recording.functions if each.value not in handed]
        alike = Counter((each.call, _operator(each.name), each.inputs) for each in functions)
        known = {number: value for number, (value, _) in self._fixed.items()}
        known |= {
            number: values[0] for number, values in self._open.items() if len(values) == 1 and number not in self._inner
        }
        taken = set(known.values())
        last: dict[int, int] = {}
        for each in functions:
            nodes = self._own_nodes(each.call)
            operator = _operator(each.name)
            value = -1
            if each.inputs and all(number in known for number in each.inputs) and operator:
                value = self._reader(each, {known[number] for number in each.inputs}, taken)
            if value >= 0 and alike[each.call, operator, each.inputs] == 1:
                self._same_inputs[each.value] = known[each.value] = value
                taken.add(value)
                last[each.call] = int(self.graph.rank[self.graph.producer[value]])
                continue
            possible = [
                value
                for rank, value in nodes
                if rank > last.get(each.call, -1) and value not in taken and self._fits(value, each.value)
            ]
            if possible:
                self.functions[each.value] = possible[:_MOST_POSSIBLE]

    def _reader(self, function: FunctionCall, inputs: set[int], taken: Container[int]) -> int:
        """Return the output of the only node that does what a function does to the same inputs; −1 if there is none."""
        graph = self.graph
        found = []
        mine = {value for _, value in self._own_nodes(function.call)}
        for node in graph.consumers(next(iter(inputs))).tolist():
            if node >= graph.main_count:
                continue
            operator = graph.operators[int(graph.op_index[node])][0].lower()
            read = {value for value in graph.node_inputs(node).tolist() if value >= 0 and not self._is_given(value)}
            if read == inputs and _operator(function.name) in operator:
                found += [value for value in graph.node_outputs(node).tolist() if value in mine]
        if len(found) == 1 and found[0] not in taken and self._fits(found[0], function.value):
            return int(found[0])
        return -1

    def _is_given(self, value: int) -> bool:
        """Return whether a value is a weight or a constant."""
        maker = int(self.graph.producer[value])
        return bool(self.graph.folded[maker]) if maker >= 0 else self.graph.value_kind[value] == INITIALIZER

    def _own_nodes(self, number: int) -> list[tuple[int, int]]:
        """Return rank and output of the nodes of a call that are of no call inside of it, in order of execution."""
        if number not in self._own:
            graph = self.graph
            nodes, _ = self._nodes[number]
            inside = {
                node
                for other in range(number + 1, self._ends[number] + 1)
                if self._calls[other].parent == number
                for node in self._nodes[other][0]
            }
            self._own[number] = sorted(
                (int(graph.rank[node]), value)
                for node in nodes
                if node not in inside and not graph.folded[node]
                for value in graph.node_outputs(node).tolist()
                if value >= 0
            )
        return self._own[number]

    def _functions_of(
        self, taken: Container[int], distances: Mapping[tuple[int, int], float]
    ) -> dict[int, tuple[int, str]]:
        """Decide which tensor is the result of which function."""
        found = {number: (value, "inputs") for number, value in self._same_inputs.items() if value not in taken}
        used = {value for value, _ in found.values()}
        pairs = sorted(
            (distances.get((value, number), math.inf), number, place, value)
            for number, values in self.functions.items()
            for place, value in enumerate(values)
        )
        for apart, number, _, value in pairs:
            free = number not in found and value not in used and value not in taken
            if apart <= NEAR and free and not self._is_constant_value(number):
                found[number] = value, "value"
                used.add(value)
        return found

    def _is_constant_value(self, number: int) -> bool:
        """Return whether all numbers of a value are the same one, so that many tensors may hold it."""
        array = self.recording.value(number).reshape(-1)
        return bool((array == array[0]).all())

    def _function_matches(self, chosen: Mapping[int, tuple[int, str]]) -> Iterable[Match]:
        for each, label in self.recording.labeled():
            call = self._calls[each.call]
            if each.value in chosen:
                value, how = chosen[each.value]
                tensor = self.graph.value_names[value]
                yield Match(call.path, call.index, label, call.cls, tensor, how, "", each.name, each.source)

    # --- what is told -----------------------------------------------------------------------------------------------

    def _matches(self, chosen: Mapping[int, tuple[int, str]]) -> Iterable[Match]:
        names = self.graph.value_names
        for number, call in enumerate(self._calls):
            for slot in call.outputs:
                value, how = chosen.get(slot.value, (-1, ""))
                if how == "scope" and slot.value in self._folded_values:
                    how = "folded"
                why = "" if value >= 0 else self._why(slot.value, number)
                tensor = names[value] if value >= 0 else ""
                yield Match(call.path, call.index, slot.label, call.cls, tensor, how, why)

    @functools.cached_property
    def _folded_values(self) -> set[int]:
        return {slot.value for call in self._took_in.values() for slot in call.outputs}

    def _why(self, number: int, call: int) -> str:
        taker = self._took_in.get(number)
        if taker is not None:
            return f"folded together with {taker.cls} {quoted(taker.name)}, whose output it carries"
        maker = self._makers.get(number, call)
        later = [
            other
            for other in self._calls[maker + 1 :]
            if any(slot.value == number for slot in other.inputs) and "BatchNorm" in other.cls
        ]
        nodes = self._nodes[maker][0]
        if not nodes and later:
            return f"folded into {later[0].cls} {quoted(later[0].name)}"
        if not nodes or all(self.graph.folded[node] for node in nodes):
            return "no node of the export is from this call: not read, computed in advance, or merged with others"
        shape = "×".join(map(str, self.recording.value(number).shape)) or "scalar"
        return f"no tensor of shape {shape} leaves its nodes: fused with what comes next, or not read"

    def _weight(self, number: int) -> int | None:
        """Find a weight that holds a value, of a call whose nodes were computed in advance."""
        array = self.recording.value(number)
        nodes = self._nodes[self._makers[number]][0]
        if not 1 < array.size <= LOOKED_AT or any(not self.graph.folded[node] for node in nodes):
            return None
        for name, info in self.graph.model.initializers.items():
            if info.shape == array.shape and between(array, self.graph.model.tensor(name)) <= EQUAL:
                return self._weight_values.get(name)
        return None

    @functools.cached_property
    def _weight_values(self) -> dict[str, int]:
        names = self.graph.value_names
        return {names[value]: value for value in self.graph.subgraphs[0].weights.tolist()}


_OPERATORS: Final = {
    "view": "reshape", "flatten": "reshape", "permute": "transpose", "t": "transpose", "cat": "concat", "bmm": "matmul",
    "truediv": "div", "true_divide": "div",
}  # fmt: skip


def _operator(function: str) -> str:
    """Return the operator that a function becomes, in small letters: "add" of "add_" and "__iadd__"."""
    name = function.strip("_").lower()
    if function.startswith("__") and name[:1] in "ir" and name[1:] in ("add", "sub", "mul", "truediv", "matmul", "pow"):
        name = name[1:]
    return _OPERATORS.get(name, name)


_WIDTHS = re.compile(r"(bfloat|float|u?int|complex)\d+.*")


@functools.cache
def _kind(dtype: str) -> str:
    """Return "float" of "float16": the same value may be of another width in a converted model."""
    found = _WIDTHS.fullmatch(dtype)
    return found[1].removeprefix("b").removeprefix("u") if found else dtype
