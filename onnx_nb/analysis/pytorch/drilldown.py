"""Isolate one submodule call: reproduce it in a folder, or drill down to its aten operations.

The operations are recorded in a second run of the module and paired with tensors by structure (`Operations`): exporters
tie a node to a submodule, but not to an operation.

The isolated error of a tensor is the error that its region adds, without the errors of everything before it. A region
is the nodes between reference tensors, whose correct values are known. All regions run in one session: a node that
reads a reference tensor reads a graph input of that name, which holds the correct value, while the node that produces
the tensor writes it under another name, as a graph output.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnx_nb.analysis.compare.comparison import Comparison, Point, point_at
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, LazyErrors
from onnx_nb.analysis.errors import ModelFileError
from onnx_nb.analysis.formatting import count_text, plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.model.save import together
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.align import TensorSink, main_tensors
from onnx_nb.analysis.pytorch.operations import MATRICES, Operations, plain_name
from onnx_nb.analysis.pytorch.record import record_operations
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.windows import Windows

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.pytorch.align import Pairs
    from onnx_nb.analysis.pytorch.record import Recording, Run

SMALL: Final = 1 << 25
"""Maximum bytes of recorded values for a run in one session, and for arrays to be kept for `Settings.errors`."""
MOST_OPERATIONS: Final = 2000
"""Maximum number of operations of a submodule that `drill` accepts."""
_COMPUTED: Final = "__onnx"
"""Suffix of the name of a tensor that a region computes."""
_ROUNDING: Final = 1e-5
"""Maximum relative error of a region that needs no explanation."""
_FAR: Final = 1e-3
"""Minimum relative error of a tensor that is perhaps not the one that torch's value belongs to."""
_UNHARMED: Final = 1e-4
"""Ratio of the error of a region to that of a tensor inside it, below which the tensor is not torch's value."""


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


def compare_operations(  # noqa: PLR0917
    run: Run,
    number: int,
    part: Reproduction,
    recording: Recording,
    named: Mapping[int, str],
    reference: str,
    settings: Settings,
    progress: Progress | None,
) -> Comparison:
    """Run a module again and compare the operations in one call of a submodule with their part of the export.

    ``named`` has the number of each recorded value with a tensor, and the name of the tensor.
    """
    again = record_operations(run, number, MOST_OPERATIONS, stage(progress, 0.0, 0.3))
    running, isolating = stage(progress, 0.3, 0.65), stage(progress, 0.65, 1.0)
    graph = Graph.of(part.model)
    tensors = main_tensors(graph)
    known: dict[int, int] = {}
    same = {(call.path, call.index): call for call in again.calls}  # branches of torch.cond may be called more often
    for one in recording.calls:
        other = same.get((one.path, one.index))
        sides = () if other is None else ((one.inputs, other.inputs), (one.outputs, other.outputs))
        for mine, yours in sides:
            for slot, new in zip(mine, yours, strict=False):
                if named.get(slot.value) in tensors:
                    known[new.value] = tensors[named[slot.value]]
    makers = {value: int(graph.producer[value]) for value in tensors.values()}
    wanted = [value for value, maker in makers.items() if maker >= 0 and not graph.folded[maker]]
    arrays: dict[int, NDArray[Any]] = {}
    sink = TensorSink(graph, running, lambda value, array: arrays.setdefault(value, array.copy()).nbytes)
    Windows(graph, wanted, memory_limit=1 << 30, providers=part.providers).run(part.feeds, sink)
    names, times = dict[int, str](), Counter[str]()
    for function in again.functions:
        times[function.name] += 1
        names[function.value] = f"{function.name}{f'#{times[function.name]}' if times[function.name] > 1 else ''}"

    def fits(value: int, number: int) -> bool:
        mine, array = again.value(number), arrays.get(value)
        if array is None or mine.dtype.kind != array.dtype.kind:
            return False
        is_product = plain_name(operations.maker[number].name) in MATRICES and mine.size == array.size > 0
        return mine.shape == array.shape or (is_product and mine.shape[-1:] == array.shape[-1:])

    operations = Operations(again, graph, known, fits)
    found = operations.find()
    sizes = {value: array.size for value, array in arrays.items()}
    pairs = {number: value for number, value in known.items() if sizes.get(value) == again.value(number).size}
    numbers = {value: number for number, value in sorted((pairs | found).items(), reverse=True)}
    values = sorted(numbers, key=lambda value: (numbers[value] in found, numbers[value]))
    own_arrays = {value: again.value(number).reshape(arrays[value].shape) for value, number in numbers.items()}
    keep = sum(array.nbytes for array in own_arrays.values()) <= min(SMALL, settings.memory_limit)
    cumulative = {value: settings.errors(array, arrays[value], keep=keep) for value, array in own_arrays.items()}
    references = {value: functools.partial(own_arrays.__getitem__, value) for value in own_arrays}
    dtypes = {value: arrays[value].dtype for value in references}
    arrays.clear()
    doubtful = set(found.values())
    run_regions = functools.partial(isolated_errors, graph, dtypes=dtypes, feeds=part.feeds, settings=settings)
    own = run_regions(references, keep=keep, progress=isolating)
    wrong = unconfirmed(graph, own, doubtful, lambda: run_regions(references, keep=keep, uncut=doubtful))
    if wrong:
        own = run_regions({value: each for value, each in references.items() if value not in wrong}, keep=keep)
    outputs = set(graph.outputs.tolist())
    points: list[Point] = []
    for value in sorted(set(values) - wrong, key=lambda value: (int(graph.rank[makers[value]]), value)):
        made = operations.last.get(value) or operations.maker.get(numbers[value])
        name = names[made.value] if made is not None else part.path or again.calls[0].name
        point = point_at(
            graph,
            value,
            name,
            "output" if value in outputs else "inputs",
            len(points),
            op_type=name.partition("#")[0],
            scope=again.calls[made.call].path if made is not None else part.path,
            source=made.source if made is not None else "",
            output=value in outputs,
            cumulative=cumulative[value],
            isolated=own.get(value),
        )
        points.append(point)
    return Comparison(reference, part.model.name, tuple(points))


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
    uncut: Collection[int] = (),
    progress: Progress | None = None,
) -> dict[int, ErrorStats | LazyErrors]:
    """Return the errors of each reference tensor when its region runs on reference values.

    ``references`` maps a tensor to a function that returns its correct value, ``dtypes`` to the type in the model.
    No region begins at the tensors in ``uncut``. The tensors are divided, in the order in which they are computed, into
    batches that fit into memory.
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
        begins = references.keys() - uncut
        nodes, inputs = _nodes_between(graph, values, begins)
        arrays = {graph.value_names[value]: right(value) for value in inputs}
        model = _regions(graph, nodes, arrays, values, begins)
        session = sessions.create(model, optimize=False, providers=settings.providers, transient=True)
        given = {name: sessions.to_value(array) for name, array in arrays.items()}
        results = sessions.run_values(session, given, name=model.name)
        for value in values:
            name = graph.value_names[value]
            report(len(found) / len(references), f"errors of {quoted(name)}")
            array = sessions.to_array(results.pop(name + _COMPUTED if value in begins else name))
            reference = references[value]()
            if array.shape == reference.shape:
                found[value] = settings.errors(reference, array, keep=keep)
    return found


def unconfirmed(
    graph: Graph,
    own: Mapping[int, ErrorStats | LazyErrors],
    doubtful: Collection[int],
    run: Callable[[], Mapping[int, ErrorStats | LazyErrors]],
) -> set[int]:
    """Return the doubtful tensors that differ from torch's values though all that is computed from them is right.

    ``run`` returns the errors of regions that begin at no doubtful tensor; called if any error is beyond rounding.
    """

    def size(errors: ErrorStats | LazyErrors) -> float:
        found = errors.size
        return np.inf if found.mismatches else 0.0 if found.is_equal else found.rel_l2

    if not doubtful or all(size(errors) <= _ROUNDING for errors in own.values()):
        return set()
    errors = run()
    sure = own.keys() - doubtful
    worst: dict[int, float] = {}
    for end in errors.keys() & sure:
        nodes, _ = _nodes_between(graph, [end], sure)
        for node in nodes:
            for value in graph.node_outputs(node).tolist():
                if value in doubtful:
                    worst[value] = max(worst.get(value, 0.0), size(errors[end]))
    return {
        value
        for value, after in worst.items()
        if value in errors and size(errors[value]) > _FAR and after <= _UNHARMED * size(errors[value])
    }


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


def _regions(
    graph: Graph, nodes: set[int], inputs: Mapping[str, Any], ends: list[int], known: Collection[int]
) -> Model:
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
        target.output.add(name=names[value] + (_COMPUTED if value in known else ""))
    return with_proto(graph.model, proto, target.name)
