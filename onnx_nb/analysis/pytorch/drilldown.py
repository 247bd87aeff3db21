"""One submodule call by itself: reproduced in a folder, or drilled down to its aten operations.

The operations are recorded in a second run of the module and aligned in order, by shape and value: exporters tie a node
to a submodule, but not to an operation.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.comparison import Comparison, point_at
from onnx_nb.analysis.compare.metrics import between
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.align import CLOSE
from onnx_nb.analysis.pytorch.alignment import TensorSink
from onnx_nb.analysis.pytorch.isolated_error import SMALL, Settings, isolated_errors
from onnx_nb.analysis.pytorch.module_scopes import running_line
from onnx_nb.analysis.pytorch.record import intercept_operations, is_tensor, to_numpy, watch
from onnx_nb.analysis.run.windows import Windows

if TYPE_CHECKING:
    import torch

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import plain_text
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.model.tensors import numpy_dtype
from onnx_nb.analysis.pytorch.isolated_error import nodes_between
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.submodel.assembly import assemble

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.pytorch.alignment import Pairs
    from onnx_nb.analysis.pytorch.record import Call, Recording

MOST_OPERATIONS: Final = 2000
"""Operations of a submodule beyond which it is not drilled into."""
_CERTAIN: Final = 4.0
"""Score of a pair that is certain: more than values and names can reach."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One result of an aten operation."""

    name: str
    """Name such as "aten.addmm"."""
    source: str
    """Line of Python, such as ``modeling_bert.py:312``."""
    array: NDArray[Any]


class _CallRecorder:
    """Records the operations inside one call of a submodule: hooks for `watch`."""

    def __init__(self, module: torch.nn.Module, path: str, index: int, progress: Progress | None) -> None:
        self.operations: list[Operation] = []
        self._path, self._index, self._progress = path, index, progress
        self._submodule = module.get_submodule(path)
        self._count = sum(1 for _ in module.modules())
        self._begun = 0
        """Submodule calls so far."""
        self._calls = 0
        """Calls of the submodule so far."""
        self._recording = contextlib.ExitStack()

    def before(self, part: torch.nn.Module, _args: Any, _kwargs: Any) -> None:
        if self._progress is not None:
            self._progress(min(self._begun / self._count, 1.0), f"torch once more: {type(part).__name__}")
        self._begun += 1
        if part is self._submodule:
            if self._calls == self._index:
                self._recording.enter_context(intercept_operations(self._operation))
            self._calls += 1

    def after(self, part: torch.nn.Module, _output: Any) -> None:
        if part is self._submodule:
            self.stop()

    def stop(self) -> None:
        """End the recording, if it runs."""
        self._recording.close()

    def _operation(self, operation: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        made = operation(*args, **kwargs)
        for tensor in filter(is_tensor, made if isinstance(made, list | tuple) else [made]):
            if len(self.operations) >= MOST_OPERATIONS:
                message = f"{quoted(self._path or 'the module')} has more than {MOST_OPERATIONS:,} operations."
                raise AlignmentError(message, advice="Drill down into one of its submodules.")
            name = str(operation).rpartition(".")[0] or str(operation)  # torch.cond has no overloads
            self.operations.append(Operation(name, running_line(), to_numpy(tensor).copy()))
        return made


def record_operations(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    path: str,
    index: int,
    *,
    progress: Progress | None = None,
) -> list[Operation]:
    """Run a module again and record the operations inside one call of a submodule."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    recorder = _CallRecorder(module, path, index, progress)
    # attention as its products and Softmax, as the export writes it, instead of one operation
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), watch(module, recorder.before, recorder.after):
        try:
            module(*args, **kwargs)
        finally:
            recorder.stop()
    return recorder.operations


def compare_operations(
    operations: Sequence[Operation],
    part: Reproduction,
    reference: str,
    settings: Settings,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare operations with the tensors of their part of the export."""
    graph = Graph.of(part.model)
    wanted = [value for value in np.flatnonzero(graph.value_subgraph == 0).tolist() if graph.producer[value] >= 0]
    wanted = [value for value in wanted if not graph.folded[graph.producer[value]]]
    arrays: dict[int, NDArray[Any]] = {}
    sink = TensorSink(
        graph,
        stage(progress, 0.0, 0.4),
        lambda value, array: arrays.update({value: array.copy()}),
        held=lambda: sum(array.nbytes for array in arrays.values()),
    )
    Windows(graph, wanted, memory_limit=1 << 30, providers=part.providers).run(part.feeds, sink)
    pairs = align_operations(operations, part, graph, arrays, progress=stage(progress, 0.4, 0.7))
    keep = sum(operation.array.nbytes for operation in operations) <= min(SMALL, settings.memory_limit)
    cumulative = {i: settings.errors(operations[i].array, arrays[value], keep=keep) for i, (value, _) in pairs.items()}
    references = {value: functools.partial(getattr, operations[i], "array") for i, (value, _) in pairs.items()}
    dtypes = {value: arrays[value].dtype for value in references}
    arrays.clear()
    own = isolated_errors(
        graph, references, dtypes, part.feeds, settings, keep=keep, progress=stage(progress, 0.7, 1.0)
    )
    names = _unique([operation.name for operation in operations])
    points = [
        point_at(
            graph,
            value,
            names[i],
            how,
            depth,
            op_type=operations[i].name,
            scope=part.path,
            source=operations[i].source,
            output=how == "output",
            cumulative=cumulative[i],
            isolated=own.get(value),
        )
        for depth, (i, (value, how)) in enumerate(pairs.items())
    ]
    return Comparison(reference, part.model.name, tuple(points))


def align_operations(
    operations: Sequence[Operation],
    part: Reproduction,
    graph: Graph,
    arrays: Mapping[int, NDArray[Any]],
    *,
    progress: Progress | None = None,
) -> dict[int, tuple[int, str]]:
    """Return index of the operation → its tensor, and how it was found: "output", "value" or "order"."""
    tensors = sorted(arrays, key=lambda value: (int(graph.rank[graph.producer[value]]), value))
    scores = np.zeros((len(operations), len(tensors)))
    for i, operation in enumerate(operations):
        if progress is not None:
            progress(i / len(operations), f"looking for {operation.name}")
        for j, value in enumerate(tensors):
            array, expected = arrays[value], part.expected.get(graph.value_names[value])
            if operation.array.shape != array.shape or operation.array.dtype.kind != array.dtype.kind:
                continue
            if expected is not None and not between(expected, operation.array):
                scores[i, j] = _CERTAIN  # whatever the error of the tensor
            elif array.size:
                scores[i, j] = _score(operation, array, graph.operators[int(graph.op_index[graph.producer[value]])][0])
    outputs = set(graph.outputs.tolist())
    return {
        i: (tensors[j], "output" if tensors[j] in outputs else "value" if scores[i, j] > 1 else "order")
        for i, j in _best_chain(scores)
    }


def _score(operation: Operation, array: NDArray[Any], op: str) -> float:
    """Return how well a tensor fits: above 1 if the values do, and more if its operator has a similar name."""
    distance = between(operation.array, array)
    named = _letters(op) in _letters(operation.name) or _letters(operation.name.split(".")[-1]) in _letters(op)
    if distance <= CLOSE:
        return 2.0 - min(distance / CLOSE, 1.0) / 2 + named / 4
    return 0.5 if named and math.isfinite(distance) else 0.0


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _best_chain(scores: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns, both ascending, with the largest sum of scores."""
    rows, columns = scores.shape
    best = np.zeros((rows + 1, columns + 1))
    for i in range(rows):
        taken = best[i, :-1] + scores[i]
        best[i + 1, 1:] = np.maximum.accumulate(np.maximum(best[i, 1:], np.where(scores[i] > 0, taken, 0)))
    i, j = rows, columns
    pairs: list[tuple[int, int]] = []
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def _unique(names: Iterable[str]) -> list[str]:
    """Return names that are all different: the second "aten.add" becomes "aten.add#2"."""
    count: Counter[str] = Counter()
    made = []
    for name in names:
        count[name] += 1
        made.append(name if count[name] == 1 else f"{name}#{count[name]}")
    return made


_CPU: Final = ("CPUExecutionProvider",)
_SCRIPT: Final = '''"""Run model.onnx on the inputs of {path} in torch, and compare with its outputs in torch."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

here = Path(__file__).parent


def arrays(kind):
    files = sorted((here / "test_data_set_0").glob(f"{{kind}}_*.pb"), key=lambda file: int(file.stem.split("_")[1]))
    tensors = [onnx.load_tensor(str(file)) for file in files]
    return {{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}}


options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(str(here / "model.onnx"), options, providers={providers})
names = [output.name for output in session.get_outputs()]
found = dict(zip(names, session.run(names, arrays("input"))))
for name, wanted in arrays("output").items():
    error = np.abs(found[name].astype(np.float64) - wanted.astype(np.float64))
    print(f"{{name}}: max |error| {{error.max(initial=0):.3g}}, of values up to {{np.abs(wanted).max(initial=0):.3g}}")
'''


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction:
    """A submodule's part of an export, with the inputs and outputs of the submodule in torch."""

    path: str
    """Path of the submodule; "shared#2" for a second call."""
    model: Model
    feeds: Mapping[str, NDArray[Any]]
    """Torch's value for each input of the model."""
    expected: Mapping[str, NDArray[Any]]
    """Torch's value for each output of the model."""
    providers: tuple[str, ...] | None = None
    """Execution providers that run it; the CPU if None."""

    def __repr__(self) -> str:
        return f"Reproduction({quoted(self.path)}, {self.model!r})"

    def errors(self) -> dict[str, ErrorStats]:
        """Run the model and return the errors of each output against torch's."""
        made = sessions.run(self.model, self.feeds, optimize=False, providers=self.providers)
        return {name: ErrorStats.of(wanted, made[name]) for name, wanted in self.expected.items()}

    def save(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write a folder that shows the error with nothing but onnx and onnxruntime.

        Parameters
        ----------
        folder
            Receives ``model.onnx``, ``test_data_set_0`` in the layout of onnx's own tests, and ``run.py``.
        progress
            Called with the fraction done and the file being written. An exception that it raises ends the work; the
            data files appear together or not at all.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        ModelFileError
            If a file cannot be written.
        """
        place = Path(folder)
        data = place / "test_data_set_0"
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"folder {quoted(str(data))} cannot be made: {error.strerror}."
            raise ModelFileError(message, advice="Choose another folder.") from error
        if progress is not None:
            progress(0.0, "writing model.onnx")
        self.model.save(place / "model.onnx")
        total = sum(array.nbytes for arrays in (self.feeds, self.expected) for array in arrays.values())
        former = {*data.glob("input_*.pb"), *data.glob("output_*.pb")}
        with together(stage(progress, 0.5, 1.0), total) as files:
            for kind, arrays in (("input", self.feeds), ("output", self.expected)):
                for number, (name, array) in enumerate(arrays.items()):
                    tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
                    files.add(data / f"{kind}_{number}.pb", [tensor.SerializeToString()])
                    former.discard(data / f"{kind}_{number}.pb")
            script = _SCRIPT.format(path=ascii(self.path or "the model"), providers=list(self.providers or _CPU))
            files.add(place / "run.py", [script.encode()])
        for old in former:  # of another submodule that was saved here before
            old.unlink(missing_ok=True)
        return place


def reproduce(
    recording: Recording,
    graph: Graph,
    pairs: Pairs,
    given: Mapping[str, Any],
    path: str,
    *,
    providers: tuple[str, ...] | None = None,
) -> Reproduction:
    """Extract the part of an export that computes a submodule."""
    number = recording.find_call(path.partition(" → ")[0])
    call = recording.calls[number]
    numbers = {value: recorded for recorded, (value, _) in pairs.items()}
    nodes, starts = submodule_nodes(recording, graph, pairs, number)
    if not nodes:
        raise _refusal(graph, call, pairs)
    ends = _computed_outputs(graph, call, pairs)
    model = assemble(graph.model, nodes, starts, ends, name=f"{graph.model.name} [{path or 'model'}]")
    names = graph.value_names
    kinds = {plain_text(port.name): port.type.tensor_type.elem_type for port in model.proto.graph.input}
    feeds = {}
    for value in starts:
        name = names[value]
        array = recording.value(numbers[value]) if value in numbers else np.asarray(given[name])
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
            feeds[name] = array.astype(numpy_dtype(kinds[name]) or array.dtype, copy=False)
    expected = {names[value]: recording.value(numbers[value]) for value in ends}
    return Reproduction(path, model, feeds, expected, providers)


def submodule_nodes(recording: Recording, graph: Graph, pairs: Pairs, number: int) -> tuple[set[int], list[int]]:
    """Return the nodes between the input tensors of a call and its output tensors, and the tensors they start from.

    Both are empty if none of the outputs is a tensor that a node computes. Where an input has no tensor, the nodes
    begin at the nearest aligned tensors that were computed before the call.
    """
    ends = _computed_outputs(graph, recording.calls[number], pairs)
    inside = _values_made_inside(recording, number)
    numbers = {value: recorded for recorded, (value, _) in pairs.items()}
    return nodes_between(graph, ends, lambda value: value in numbers and numbers[value] not in inside)


def _computed_outputs(graph: Graph, call: Call, pairs: Pairs) -> list[int]:
    """Return the output tensors of a call that nodes compute."""
    ends = dict.fromkeys(pairs[slot.value][0] for slot in call.outputs if slot.value in pairs)
    return [value for value in ends if graph.producer[value] >= 0]


def _refusal(graph: Graph, call: Call, pairs: Pairs) -> AlignmentError:
    """Return the error for a call without nodes."""
    constants = [graph.value_names[pairs[slot.value][0]] for slot in call.outputs if slot.value in pairs]
    if constants:
        weight = quoted(constants[0])
        message = f"the output of {call.cls} {quoted(call.name)} was computed in advance: it is the weight {weight}."
        advice = "There is nothing to run. See model.tensor(name), or choose the module around it."
    else:
        message = f"no output of {call.cls} {quoted(call.name)} has a tensor in {graph.model.name}."
        advice = "See comparison.unmatched for the reason, or choose the module around it."
    return AlignmentError(message, advice=advice)


def call_around(recording: Recording, known: Collection[int], name: str) -> int:
    """Return the index of the innermost call around a submodule, or of it itself, whose inputs all have a tensor."""
    number = recording.find_call(name.partition(" → ")[0])
    calls = recording.calls
    there = {slot.value for slot in calls[0].inputs} | set(known)
    while calls[number].parent >= 0 and any(slot.value not in there for slot in calls[number].inputs):
        number = calls[number].parent
    return number


def _values_made_inside(recording: Recording, number: int) -> set[int]:
    """Return the values that a call and its inner calls made."""
    calls = recording.calls
    around = set()
    above = calls[number].parent
    while above >= 0:
        around.add(above)
        above = calls[above].parent
    last = number
    while last + 1 < len(calls) and calls[last + 1].parent >= number:
        last += 1
    before = {slot.value for slot in calls[number].inputs}
    for other in range(number):
        before.update(slot.value for slot in calls[other].inputs)
        if other not in around:
            before.update(slot.value for slot in calls[other].outputs)
    return {slot.value for call in calls[number : last + 1] for slot in call.outputs} - before
