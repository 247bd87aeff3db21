"""One submodule of a torch module by itself: its part of the export with torch's values, and a look at its operations.

The part begins at the nearest aligned tensors that were there before the submodule was called. Its operations are
recorded in a second run of the module, inside of that one call, and aligned with tensors in order, by shape and value:
names tie a node to a submodule, but not to one of its operations.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.compare.distances import between
from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.errors import AlignmentError, ModelFileError
from onnx_nb.analysis.formatting import closest, plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.model.tensors import numpy_dtype
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.alignment import CLOSE, Match
from onnx_nb.analysis.pytorch.record import Recording, to_numpy, watched
from onnx_nb.analysis.pytorch.source_lines import running_line
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.windows import Sink, Windows
from onnx_nb.analysis.submodel.assembly import assemble

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.pytorch.record import Call
    from onnx_nb.analysis.run.session import Value

_SURE: Final = 4.0
"""More than any values or names are worth in the order of operations."""
MOST_OPERATIONS: Final = 2000
"""A submodule with more is not looked into at once."""

_CPU: Final = ("CPUExecutionProvider",)
_RUN: Final = '''"""Run model.onnx on what torch gave to {path}, and compare with what torch made of it."""

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
class Isolated:
    """A submodule's part of an export, and what torch's submodule got and gave."""

    path: str
    """Of the submodule; "shared#2" for a second call."""
    model: Model
    feeds: Mapping[str, NDArray[Any]]
    """What torch gave to it, for each input of the model."""
    expected: Mapping[str, NDArray[Any]]
    """What torch made of it, for each output of the model."""
    providers: tuple[str, ...] | None = None
    """That run it; the CPU if None."""

    def __repr__(self) -> str:
        return f"Isolated({quoted(self.path)}, {self.model!r})"

    def errors(self) -> dict[str, ErrorStats]:
        """Run it, and compare each output with torch's."""
        made = sessions.run(self.model, self.feeds, optimize=False, providers=self.providers)
        return {name: ErrorStats.of(wanted, made[name]) for name, wanted in self.expected.items()}

    def save(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write a folder that shows the error with onnx and onnxruntime alone.

        Parameters
        ----------
        folder
            Gets ``model.onnx``, ``test_data_set_0`` as onnx's own tests have it, and ``run.py``.
        progress
            Called with the part done and what is written. What it raises ends the work; the data files appear together
            or not at all.

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
            script = _RUN.format(path=ascii(self.path or "the model"), providers=list(self.providers or _CPU))
            files.add(place / "run.py", [script.encode()])
        for old in former:  # of another submodule, saved here before
            old.unlink(missing_ok=True)
        return place


def isolate(
    recording: Recording,
    graph: Graph,
    pairs: Mapping[int, tuple[int, Match]],
    given: Mapping[str, Any],
    path: str,
) -> Isolated:
    """Cut out the part of an export that a submodule is.

    Parameters
    ----------
    recording, graph
        Of the module and its export.
    pairs
        Recorded value → tensor.
    given
        What the inputs of the model get.
    path
        Of the submodule; "shared#2" for a second call.

    Raises
    ------
    AlignmentError
        If there is no such submodule, or none of its outputs has a tensor.
    """
    number = call_of(recording, path)
    call = recording.calls[number]
    tensors = {value: value_of for value_of, (value, _) in pairs.items()}
    ends = _given_by(graph, call, pairs)
    if not ends:
        _refuse_constants(graph, call, pairs)
        message = f"no output of {call.cls} {quoted(path)} has a tensor in {graph.model.name}."
        raise AlignmentError(message, advice="See comparison.unmatched for the reason, or take the module around it.")
    nodes, inputs = _between(recording, graph, pairs, number, ends)
    flow = Flow.of(graph)
    starts = [value for value in inputs if flow.kinds[value] != INITIALIZER]
    model = assemble(graph.model, nodes, starts, ends, name=f"{graph.model.name} [{path or 'model'}]")
    names = graph.value_names
    kinds = {plain_text(port.name): port.type.tensor_type.elem_type for port in model.proto.graph.input}
    feeds = {}
    for value in starts:
        name = names[value]
        array = recording.value(tensors[value]) if value in tensors else np.asarray(given[name])
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
            feeds[name] = array.astype(numpy_dtype(kinds[name]) or array.dtype, copy=False)
    expected = {names[value]: recording.value(tensors[value]) for value in ends}
    return Isolated(path, model, feeds, expected)


def between_tensors(
    recording: Recording, graph: Graph, pairs: Mapping[int, tuple[int, Match]], number: int
) -> set[int]:
    """Return the nodes between the tensors that a call got and those that it gave.

    Parameters
    ----------
    recording, graph
        Of the module and its export.
    pairs
        Recorded value → tensor.
    number
        Of the call.

    Returns
    -------
    set of int
        Empty if nothing that the call gave has a tensor.
    """
    return _between(recording, graph, pairs, number, _given_by(graph, recording.calls[number], pairs))[0]


def _given_by(graph: Graph, call: Call, pairs: Mapping[int, tuple[int, Match]]) -> list[int]:
    """Return the computed tensors that a call gave."""
    ends = dict.fromkeys(pairs[slot.value][0] for slot in call.outputs if slot.value in pairs)
    return [value for value in ends if graph.producer[value] >= 0]


def _between(
    recording: Recording, graph: Graph, pairs: Mapping[int, tuple[int, Match]], number: int, ends: Iterable[int]
) -> tuple[set[int], dict[int, None]]:
    """Return the nodes that lead to some tensors from the nearest aligned ones that a call found there; and these."""
    tensors = {value: value_of for value_of, (value, _) in pairs.items()}
    inside = _made_inside(recording, number)
    flow = Flow.of(graph)
    nodes: set[int] = set()
    inputs: dict[int, None] = {}
    todo = [flow.producer[value] for value in ends]
    while todo:
        node = todo.pop()
        if node in nodes:
            continue
        nodes.add(node)
        for value in flow.reads(node):
            there = tensors.get(value)
            if (there is not None and there not in inside) or (
                flow.producer[value] < 0 and flow.kinds[value] != INITIALIZER
            ):
                inputs[value] = None
            elif flow.producer[value] >= 0:
                todo.append(flow.producer[value])
    return nodes, inputs


def _refuse_constants(graph: Graph, call: Call, pairs: Mapping[int, tuple[int, Match]]) -> None:
    held = [graph.value_names[pairs[slot.value][0]] for slot in call.outputs if slot.value in pairs]
    if held:
        message = (
            f"what {call.cls} {quoted(call.name)} gives was computed in advance: it is the weight {quoted(held[0])}."
        )
        raise AlignmentError(
            message, advice="There is nothing to run. See model.tensor(name), or the module around it."
        )


def call_of(recording: Recording, path: str) -> int:
    """Return the number of a call by its name, or by that of one of its outputs or functions."""
    path = path.partition(" → ")[0]
    for number, call in enumerate(recording.calls):
        if path == call.name or (not call.index and path in (call.path, *call.aliases)):
            return number
    near = ", ".join(map(quoted, closest(path, [call.name for call in recording.calls])))
    message = f"no call of submodule {quoted(path)} was recorded."
    raise AlignmentError(message, advice=f"Closest names: {near}." if near else "")


def call_around(recording: Recording, known: Collection[int], path: str) -> int:
    """Return the number of the innermost call that a submodule is in, or is, and of which all inputs are known."""
    number = call_of(recording, path)
    calls = recording.calls
    there = {slot.value for slot in calls[0].inputs} | set(known)
    while calls[number].parent >= 0 and any(slot.value not in there for slot in calls[number].inputs):
        number = calls[number].parent
    return number


def _made_inside(recording: Recording, number: int) -> set[int]:
    """Return the values that a call and those inside of it made."""
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


# --- operations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Operation:
    """One result of an operation of torch."""

    name: str
    """As "aten.addmm"."""
    source: str
    """The line of the module, as ``modeling_bert.py:312``."""
    array: NDArray[Any]


class Operations:
    """What the operations inside of one call gave; has `value`, as a `Recording` has."""

    def __init__(self, found: Sequence[Operation]) -> None:
        self.found = found

    def value(self, number: int) -> NDArray[Any]:
        """Return the result of an operation."""
        return self.found[number].array


def record_operations(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    path: str,
    index: int,
    *,
    progress: Progress | None = None,
) -> Operations:
    """Run a module again, and record the operations inside of one call.

    Parameters
    ----------
    module, args, kwargs
        As for `record`.
    path, index
        Which call of which submodule.
    progress
        Called before each call of a submodule. What it raises ends the run.

    Raises
    ------
    AlignmentError
        If there are too many operations.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Operation] = []

    class Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            for tensor in made if isinstance(made, list | tuple) else [made]:
                if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not tensor.is_quantized:
                    if len(found) >= MOST_OPERATIONS:
                        message = f"{quoted(path or 'the module')} has more than {MOST_OPERATIONS:,} operations."
                        raise AlignmentError(message, advice="Look into a submodule of it.")
                    name = str(func).rpartition(".")[0] or str(func)  # torch.cond and the like have no overloads
                    found.append(Operation(name, running_line(), to_numpy(tensor).copy()))
            return made

    part = module.get_submodule(path)
    mode: Any = None
    calls = begun = 0
    modules = sum(1 for _ in module.modules())

    def told(submodule: torch.nn.Module, *_: Any) -> None:
        nonlocal begun
        if progress is not None:
            progress(min(begun / modules, 1.0), f"torch once more: {type(submodule).__name__}")
        begun += 1

    def before(*_: Any) -> None:
        nonlocal mode, calls
        if calls == index:
            mode = Listening()  # type: ignore[no-untyped-call]
            mode.__enter__()
        calls += 1

    def after(*_: Any) -> None:
        nonlocal mode
        if mode is not None:
            mode.__exit__(None, None, None)
            mode = None

    # attention as its products and its Softmax, as the export writes it, and not as one operation
    with contextlib.ExitStack() as undone, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        for each in watched(module):
            undone.callback(each.register_forward_pre_hook(told).remove)
        undone.callback(part.register_forward_pre_hook(before).remove)
        undone.callback(part.register_forward_hook(after).remove)
        undone.callback(after)
        fused = torch.backends.mha.get_fastpath_enabled()
        undone.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        module(*args, **kwargs)
    return Operations(found)


def align_operations(
    operations: Operations, part: Isolated, *, progress: Progress | None = None
) -> dict[int, tuple[int, Match]]:
    """Find the tensors of a submodule's part of an export that hold results of its operations.

    Parameters
    ----------
    operations
        From `record_operations`.
    part
        From `isolate`.
    progress
        Called between windows with the part done and what runs next. What it raises ends the work.

    Returns
    -------
    dict
        Number of the operation → tensor, in order of both.
    """
    graph = Graph.of(part.model)
    order = graph.rank
    seen = _Kept(graph, stage(progress, 0.0, 0.5))
    wanted = [v for v in range(len(graph.value_names)) if not graph.value_subgraph[v] and graph.producer[v] >= 0]
    wanted = [v for v in wanted if not graph.folded[graph.producer[v]]]
    Windows(graph, wanted, memory_limit=1 << 30, providers=part.providers).run(part.feeds, seen)
    tensors = sorted(seen.arrays, key=lambda value: (int(order[graph.producer[value]]), value))
    names = graph.value_names
    outputs = set(graph.outputs.tolist())
    scores = np.zeros((len(operations.found), len(tensors)))
    for i, operation in enumerate(operations.found):
        if progress is not None:
            progress(0.5 + i / len(operations.found) / 2, f"looking for {operation.name}")
        for j, value in enumerate(tensors):
            array = seen.arrays[value]
            if operation.array.shape == array.shape and operation.array.dtype.kind == array.dtype.kind:
                op = graph.operators[int(graph.op_index[graph.producer[value]])][0]
                scores[i, j] = _score(operation, array, op) if array.size else 0.0
                given = part.expected.get(names[value])
                if given is not None and not between(given, operation.array):
                    scores[i, j] = _SURE  # however wrong the tensor is
    found = {}
    for i, j in _chain(scores):
        value = tensors[j]
        how = "output" if value in outputs else "value" if scores[i, j] > 1 else "order"
        found[i] = value, Match(part.path, 0, str(i), operations.found[i].name, names[value], how)
    return found


def _score(operation: Operation, array: NDArray[Any], op: str) -> float:
    """Return how well a tensor fits: above 1 if the values do, a bit more if the operation has the same name."""
    apart = between(operation.array, array)
    named = _plain(op) in _plain(operation.name) or _plain(operation.name.split(".")[-1]) in _plain(op)
    if apart <= CLOSE:
        return 2.0 - min(apart / CLOSE, 1.0) / 2 + named / 4
    return 0.5 if named and math.isfinite(apart) else 0.0


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _chain(scores: NDArray[np.float64]) -> Iterator[tuple[int, int]]:
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
    yield from reversed(pairs)


class _Kept(Sink):
    """Keeps all that passes."""

    def __init__(self, graph: Graph, progress: Progress | None) -> None:
        super().__init__(graph, progress)
        self.arrays: dict[int, NDArray[Any]] = {}

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        if found is not None and found.is_tensor() and not index:
            self.arrays[value] = sessions.to_array(found).copy()

    def held(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def numbered(names: Iterable[str]) -> list[str]:
    """Return names that are all different: the second "aten.add" becomes "aten.add#2".

    >>> numbered(["a", "b", "a"])
    ['a', 'b', 'a#2']
    """
    count: dict[str, int] = {}
    made = []
    for name in names:
        count[name] = count.get(name, 0) + 1
        made.append(name if count[name] == 1 else f"{name}#{count[name]}")
    return made
