"""Isolate one submodule call: reproduce it in a folder, or drill down to its aten operations.

The operations are recorded in a second run of the module and aligned in order, by shape and value: exporters tie a node
to a submodule, but not to an operation.

The isolated error of a tensor is the error that its region adds, without the errors of everything before it. A region
is the nodes between reference tensors, whose correct values are known. All regions run in one session: a node that
reads a reference tensor reads a graph input of that name, which holds the correct value, while the node that produces
the tensor writes it under another name, as a graph output.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnx_nb.analysis.compare.comparison import Comparison, point_at
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, LazyErrors, between
from onnx_nb.analysis.errors import AlignmentError, ModelFileError
from onnx_nb.analysis.formatting import count_text, plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.align import CLOSE, TensorSink, main_tensors, operator
from onnx_nb.analysis.pytorch.module_scopes import running_line
from onnx_nb.analysis.pytorch.record import intercept, is_tensor, to_numpy, watch
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.windows import Windows

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.pytorch.align import Pairs
    from onnx_nb.analysis.pytorch.record import ModuleCall, Recording, Run

SMALL: Final = 1 << 25
"""Maximum bytes of recorded values for a run in one session, and for arrays to be kept for `Settings.errors`."""
MOST_OPERATIONS: Final = 2000
"""Maximum number of operations of a submodule that `drill` accepts."""
_COMPUTED: Final = "__onnx"
"""Suffix of the name of a tensor that a region computes."""
_CERTAIN: Final = 4.0
"""Score of a certain pair: more than values and names can reach."""


class Settings(NamedTuple):
    """Settings for running a model, and tolerances of errors."""

    rtol: float = RTOL
    atol: float = ATOL
    providers: tuple[str, ...] | None = None
    memory_limit: int = 1 << 30
    """Maximum number of bytes of values that are compared at a time."""

    def errors(
        self, reference: NDArray[Any], candidate: NDArray[Any], *, keep: bool, argmax: int | None = None
    ) -> ErrorStats | LazyErrors:
        """Return the errors of an array; with ``keep`` both arrays stay in memory until all statistics are computed."""
        compare = LazyErrors if keep else ErrorStats.of
        return compare(reference, candidate, rtol=self.rtol, atol=self.atol, argmax=argmax)


class Operation(NamedTuple):
    """One result of an aten operation."""

    name: str
    """Name such as "aten.addmm", "aten.add#2" for the second result of this operation."""
    source: str
    """Line of Python, such as ``modeling_bert.py:312``."""
    array: NDArray[Any]


def _record_operations(run: Run, call: ModuleCall, progress: Progress | None) -> list[Operation]:
    """Run a module again and record the operations inside one call of a submodule."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    module, args, kwargs = run
    submodule, count = module.get_submodule(call.path), sum(1 for _ in module.modules())
    operations: list[Operation] = []
    begun, times = Counter[int](), Counter[str]()

    def note(operation: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        made = operation(*args, **kwargs)
        for tensor in filter(is_tensor, made if isinstance(made, list | tuple) else [made]):
            if len(operations) >= MOST_OPERATIONS:
                message = f"{quoted(call.path or 'the module')} has more than {MOST_OPERATIONS:,} operations."
                raise AlignmentError(message, advice="Drill down into one of its submodules.")
            name = str(operation).rpartition(".")[0] or str(operation)  # torch.cond has no overloads
            times[name] += 1
            label = name if times[name] == 1 else f"{name}#{times[name]}"
            operations.append(Operation(label, running_line(), to_numpy(tensor).copy()))
        return made

    def before(part: torch.nn.Module, _args: Any, _kwargs: Any) -> None:
        if progress is not None:
            progress(min(begun.total() / count, 1.0), f"torch once more: {type(part).__name__}")
        if part is submodule and begun[id(part)] == call.index:
            recording.enter_context(intercept(note, aten=True))
        begun[id(part)] += 1

    def after(part: torch.nn.Module, _output: Any) -> None:
        if part is submodule:
            recording.close()

    # attention as products and Softmax, as in the export, instead of one operation
    attention = sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), attention, watch(module, before, after), contextlib.ExitStack() as recording:
        module(*args, **kwargs)
    return operations


def compare_operations(  # noqa: PLR0917
    run: Run, call: ModuleCall, part: Reproduction, reference: str, settings: Settings, progress: Progress | None
) -> Comparison:
    """Run a module again and compare the operations in one call of a submodule with their part of the export."""
    operations = _record_operations(run, call, stage(progress, 0.0, 0.3))
    running, aligning, isolating = (stage(progress, begin, begin + 0.23) for begin in (0.3, 0.53, 0.76))
    graph = Graph.of(part.model)
    makers = {value: int(graph.producer[value]) for value in main_tensors(graph).values()}
    wanted = [value for value, maker in makers.items() if maker >= 0 and not graph.folded[maker]]
    arrays: dict[int, NDArray[Any]] = {}
    sink = TensorSink(graph, running, lambda value, array: arrays.setdefault(value, array.copy()).nbytes)
    Windows(graph, wanted, memory_limit=1 << 30, providers=part.providers).run(part.feeds, sink)
    tensors = sorted(arrays, key=lambda value: (int(graph.rank[makers[value]]), value))
    scores = np.zeros((len(operations), len(tensors)))
    for i, operation in enumerate(operations):
        if aligning is not None:
            aligning(i / len(operations), f"looking for {operation.name}")
        for j, value in enumerate(tensors):
            array, expected = arrays[value], part.expected.get(graph.value_names[value])
            if operation.array.shape != array.shape or operation.array.dtype.kind != array.dtype.kind:
                continue
            if expected is not None and not between(expected, operation.array):
                scores[i, j] = _CERTAIN  # whatever its error
            elif array.size:
                scores[i, j] = _score(operation, array, operator(graph, makers[value]))
    pairs = [(operations[i], tensors[j], scores[i, j] > 1) for i, j in _best_chain(scores)]
    keep = sum(operation.array.nbytes for operation in operations) <= min(SMALL, settings.memory_limit)
    cumulative = {value: settings.errors(made.array, arrays[value], keep=keep) for made, value, _ in pairs}
    references = {value: functools.partial(getattr, made, "array") for made, value, _ in pairs}
    dtypes = {value: arrays[value].dtype for value in references}
    arrays.clear()
    own = isolated_errors(graph, references, dtypes, part.feeds, settings, keep=keep, progress=isolating)
    outputs = set(graph.outputs.tolist())
    points = [
        point_at(
            graph,
            value,
            made.name,
            "output" if value in outputs else "value" if by_value else "order",
            depth,
            op_type=made.name.partition("#")[0],
            scope=part.path,
            source=made.source,
            output=value in outputs,
            cumulative=cumulative[value],
            isolated=own.get(value),
        )
        for depth, (made, value, by_value) in enumerate(pairs)
    ]
    return Comparison(reference, part.model.name, tuple(points))


def _score(operation: Operation, array: NDArray[Any], op: str) -> float:
    """Return a score for the fit of a tensor: above 1 if the values fit, more if the operator's name is similar."""
    distance = between(operation.array, array)
    names = operation.name, operation.name.split(".")[-1], op
    own, last, other = (re.sub(r"[^a-z]", "", name.lower()) for name in names)
    named = other in own or last in other
    if distance <= CLOSE:
        return 2.0 - min(distance / CLOSE, 1.0) / 2 + named / 4
    return 0.5 if named and math.isfinite(distance) else 0.0


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
    """Execution providers for the model; the CPU if None."""

    def __repr__(self) -> str:
        return f"Reproduction({quoted(self.path)}, {self.model!r})"

    def errors(self) -> dict[str, ErrorStats]:
        """Run the model and return the errors of each output against torch's."""
        made = sessions.run(self.model, self.feeds, optimize=False, providers=self.providers)
        return {name: ErrorStats.of(wanted, made[name]) for name, wanted in self.expected.items()}

    def save(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write a folder that shows the error with nothing but onnx and onnxruntime, and return its path.

        Parameters
        ----------
        folder
            Receives ``model.onnx``, ``test_data_set_0`` in the layout of onnx's own tests, and ``run.py``.
        progress
            As for `compare_torch`. The data files appear together or not at all.

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
            message = f"folder {quoted(str(data))} cannot be made: {error.strerror or error}."
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
            providers = list(self.providers or ["CPUExecutionProvider"])
            script = _SCRIPT.format(path=ascii(self.path or "the model"), providers=providers)
            files.add(place / "run.py", [script.encode()])
        for old in former:  # of a submodule that was saved here before
            old.unlink(missing_ok=True)
        return place


def submodule_nodes(
    recording: Recording, graph: Graph, pairs: Pairs, number: int
) -> tuple[set[int], list[int], list[int]]:
    """Return the nodes between the input tensors of a call and its output tensors, these inputs, and these outputs.

    All are empty if none of the outputs is a tensor that a node computes. Where an input has no tensor, the nodes begin
    at the nearest aligned tensors that were computed before the call.
    """
    calls = recording.calls
    call, last = calls[number], number
    ends = dict.fromkeys(pairs[slot.value][0] for slot in call.outputs if slot.value in pairs)
    computed = [value for value in ends if graph.producer[value] >= 0]
    while last + 1 < len(calls) and calls[last + 1].parent >= number:
        last += 1
    made = (slot.value for inner in calls[number : last + 1] for slot in inner.outputs)
    inside = {value for value in made if value >= call.known}
    recorded = {value: number for number, (value, _) in pairs.items()}
    starts = {value for value, number in recorded.items() if number not in inside}
    return *_nodes_between(graph, computed, starts), computed


# --- isolated errors ------------------------------------------------------------------------------------------------


def isolated_errors(
    graph: Graph,
    references: Mapping[int, Callable[[], NDArray[Any]]],
    dtypes: Mapping[int, np.dtype[Any]],
    feeds: Mapping[str, Any],
    settings: Settings,
    *,
    keep: bool,
    progress: Progress | None = None,
) -> dict[int, ErrorStats | LazyErrors]:
    """Return the errors of each reference tensor when its region runs on reference values.

    ``references`` maps a tensor to a function that returns its correct value, ``dtypes`` to the type in the model.
    The tensors are divided, in the order in which they are computed, into batches that fit into memory.
    """
    references = {value: references[value] for value in references if value in dtypes and graph.producer[value] >= 0}
    batches: list[list[int]] = [[]]
    nbytes = 0
    for value in sorted(references, key=lambda value: int(graph.rank[graph.producer[value]])):
        size = 2 * references[value]().nbytes
        if batches[-1] and nbytes + size > settings.memory_limit:
            batches.append([])
            nbytes = 0
        batches[-1].append(value)
        nbytes += size

    def right(value: int) -> NDArray[Any]:
        if value not in references:
            return np.asarray(feeds[graph.value_names[value]])
        with np.errstate(over="ignore"):  # values beyond float16 are infinite there, too
            return references[value]().astype(dtypes[value], copy=False)

    found: dict[int, ErrorStats | LazyErrors] = {}
    report = progress or (lambda _done, _what: None)
    for values in filter(None, batches):
        report(len(found) / len(references), f"{count_text(len(values), 'region')}, each on torch's values")
        nodes, inputs = _nodes_between(graph, values, references)
        arrays = {graph.value_names[value]: right(value) for value in inputs}
        model = _regions(graph, nodes, arrays, values, set(references))
        session = sessions.create(model, optimize=False, providers=settings.providers, transient=True)
        given = {name: sessions.to_value(array) for name, array in arrays.items()}
        results = sessions.run_values(session, given, name=model.name)
        for value in values:
            name = graph.value_names[value]
            report(len(found) / len(references), f"errors of {quoted(name)}")
            array = sessions.to_array(results.pop(name + _COMPUTED))
            reference = references[value]()
            if array.shape == reference.shape:
                found[value] = settings.errors(reference, array, keep=keep)
    return found


def _nodes_between(graph: Graph, ends: Iterable[int], known: Collection[int]) -> tuple[set[int], list[int]]:
    """Return the nodes that compute ``ends`` from the nearest known tensors, and the tensors they read from outside."""
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
            if flow.producer[value] < 0 or value in known:
                inputs[value] = None
            else:
                todo.append(flow.producer[value])
    return nodes, [value for value in inputs if flow.kinds[value] != INITIALIZER]


def _regions(graph: Graph, nodes: set[int], inputs: Mapping[str, Any], ends: list[int], known: set[int]) -> Model:
    """Return a model of the nodes in which every reference tensor is written under another name."""
    source, names = graph.model.proto, graph.value_names
    proto = ModelProto(ir_version=max(source.ir_version, 4), opset_import=source.opset_import)
    proto.functions.extend(source.functions)
    target = proto.graph
    target.name = f"regions of {graph.model.name}"
    target.initializer.extend(source.graph.initializer)
    target.sparse_initializer.extend(source.graph.sparse_initializer)
    renamed = {names[value] for value in known}
    for node in sorted(nodes, key=lambda node: int(graph.rank[node])):
        made = target.node.add()
        made.CopyFrom(source.graph.node[node])
        made.ClearField("metadata_props")
        for place, name in enumerate(made.output):
            if name in renamed:
                made.output[place] = plain_text(name) + _COMPUTED
    for name, array in inputs.items():
        kind = helper.make_tensor_type_proto(int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
        target.input.add(name=name).type.CopyFrom(kind)
    for value in ends:
        target.output.add(name=names[value] + _COMPUTED)
    return with_proto(graph.model, proto, target.name)
