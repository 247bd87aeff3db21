"""Isolate one submodule call: reproduce it in a folder, or drill down to its aten operations.

The operations are recorded in a second run of the module and paired with tensors by structure (`Operations`): exporters
tie a node to a submodule, but not to an operation.
They are compared by the engine of all comparisons.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_nb.analysis.compare.engine import Option, PairErrors, Proposal
from onnx_nb.analysis.compare.isolated import nodes_between
from onnx_nb.analysis.compare.metrics import ErrorStats, between
from onnx_nb.analysis.compare.thresholds import RERUN_DISTANCE
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, storage_of
from onnx_nb.analysis.model.save import folder_at, together
from onnx_nb.analysis.progress import CountedWork, Progress, stage
from onnx_nb.analysis.pytorch.align import Pairs
from onnx_nb.analysis.pytorch.operations import IDENTITIES, MATRICES, Operations, is_layout, plain_name
from onnx_nb.analysis.pytorch.record import FunctionCall, Recording
from onnx_nb.analysis.run import session as sessions

SMALL: Final = 1 << 28
"""Maximum bytes of recorded values for a run in one session, and for arrays to be kept for `Settings.errors`."""


class OperationProposal(Proposal):
    """Tensors that carry the results of operations, by structure."""

    def __init__(
        self,
        recording: Recording,
        again: Recording,
        part: Reproduction,
        labels: Mapping[int, str],
        arrays: Mapping[int, NDArray[Any]],
    ) -> None:
        self._again, self._path = again, part.path
        graph = self._graph = Graph.of(part.model)
        anchors = _known_pairs(recording, again, labels, graph.names_by_subgraph[0])

        def fits(value: int, number: int) -> bool:
            result, array = again.value(number), arrays.get(value)
            if array is None or result.dtype.kind != array.dtype.kind:
                return False
            is_product = plain_name(operations.maker[number].name) in MATRICES and result.size == array.size > 0
            return result.shape == array.shape or (is_product and result.shape[-1:] == array.shape[-1:])

        operations = self._operations = Operations(again, graph, anchors, fits)
        by_structure = operations.find()
        self._doubtful = frozenset(by_structure.values())
        sizes = {value: array.size for value, array in arrays.items()}
        pairs = {number: value for number, value in anchors.items() if sizes.get(value) == again.value(number).size}
        numbers = {value: number for number, value in sorted((pairs | by_structure).items(), reverse=True)}
        outputs = set(graph.outputs.tolist())
        order = sorted(numbers, key=lambda value: (int(graph.rank[graph.producer[value]]), value))
        self.options = tuple(Option(numbers[v], v, "output" if v in outputs else "inputs") for v in order)

    def settle(self, pairs: PairErrors, _run: Callable[[Sequence[Option]], PairErrors]) -> dict[Option, ErrorStats]:
        """Return all pairs, with their errors."""
        return {option: pairs.errors[option] for option in self.options}

    def is_doubtful(self, option: Option) -> bool:
        """Return whether a pair is from structure alone."""
        return option.candidate in self._doubtful

    def points(self, options: Iterable[Option]) -> Iterator[tuple[Option, int, str, Mapping[str, Any]]]:
        """Yield pairs in the export's order of execution, with the operation and its line of Python."""
        again, operations = self._again, self._operations
        names, times = dict[int, str](), Counter[str]()
        for function in again.functions:
            times[function.name] += 1
            names[function.value] = f"{function.name}{f'#{times[function.name]}' if times[function.name] > 1 else ''}"
        for depth, option in enumerate(options):
            operation = operations.last.get(option.candidate) or operations.maker.get(option.reference)
            name = names[operation.value] if operation is not None else self._path or again.calls[0].name
            about = {
                "op_type": name.partition("#")[0],
                "scope": again.calls[operation.call].path if operation is not None else self._path,
                "source": operation.source if operation is not None else "",
            }
            yield option, depth, name, about


def _known_pairs(
    recording: Recording, again: Recording, labels: Mapping[int, str], tensors: Mapping[str, int]
) -> dict[int, int]:
    """Return the numbers of values in a second run whose tensors are known from the first."""
    tensor_of, pairs = {value: tensors[name] for value, name in labels.items() if name in tensors}, dict[int, int]()
    same = {(call.path, call.index): call for call in again.calls}  # branches of torch.cond may be called more often
    for call in recording.calls:
        other = same.get((call.path, call.index))
        slots = () if other is None else ((call.inputs, other.inputs), (call.outputs, other.outputs))
        couples = [pair for before, after in slots for pair in zip(before, after, strict=False)]
        pairs |= {new.value: tensor_of[slot.value] for slot, new in couples if slot.value in tensor_of}
    return {new: tensor_of[old] for old, new in _same_functions(recording, again) if old in tensor_of} | pairs


def _same_functions(recording: Recording, again: Recording) -> Iterator[tuple[int, int]]:
    """Yield the value of each function call, and that of the operation on the same line of Python that is near it."""

    def line(run: Recording, function: FunctionCall) -> tuple[str, int, str]:
        return run.calls[function.call].path, run.calls[function.call].index, function.source

    by_line = followers((line(again, operation), operation.value) for operation in again.functions)
    maker = {operation.value: operation.name for operation in again.functions}
    for function in recording.functions:
        values = by_line.get(line(recording, function), [])
        array = recording.value(function.value)
        # attention rounds otherwise in its steps than in one operation
        others = [again.value(value) for value in values]
        near = [o.dtype == array.dtype and between(array.ravel(), o.ravel()) <= RERUN_DISTANCE for o in others]
        if any(near):
            first = near.index(True)
            moves = (is_near and is_layout(maker[value]) for value, is_near in zip(values, near, strict=True))
            last = first + sum(itertools.takewhile(bool, itertools.islice(moves, first + 1, None)))
            # what only reshapes the result is a part of it, unless another shape is that of the next function
            is_whole = [other.shape == array.shape for other in others[first : last + 1]]
            if any(is_whole):
                last -= is_whole[::-1].index(True)
            while last > first and plain_name(maker[values[last]]) in IDENTITIES:
                last -= 1
            yield function.value, values[last]
            del values[: last + 1]


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

    def __repr__(self) -> str:
        return f"Reproduction({quoted(self.path)}, {self.model!r})"

    def errors(self) -> dict[str, ErrorStats]:
        """Run the model and return the errors of each output against torch's."""
        outputs = sessions.run(self.model, self.feeds, optimize=False)
        return {name: ErrorStats.of(array, outputs[name]) for name, array in self.expected.items()}

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
        data = folder_at(place / "test_data_set_0")
        CountedWork(progress, 1).reached(0, "writing model.onnx")
        self.model.save(place / "model.onnx")
        total = sum(array.nbytes for arrays in (self.feeds, self.expected) for array in arrays.values())
        former = {*data.glob("input_*.pb"), *data.glob("output_*.pb")}
        with together(stage(progress, 0.5, 1.0), total) as files:
            for kind, arrays in (("input", self.feeds), ("output", self.expected)):
                for number, (name, array) in enumerate(arrays.items()):
                    tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
                    files.add(data / f"{kind}_{number}.pb", [tensor.SerializeToString()])
                    former.discard(data / f"{kind}_{number}.pb")
            providers = storage_of(self.model).options.get("providers", ["CPUExecutionProvider"])
            template = Path(__file__).with_name("reproduce.txt").read_text("utf-8")
            script = template.format(path=ascii(self.path or "the model"), providers=providers)
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
    call, *later = recording.calls[number:]
    ends = dict.fromkeys(pairs[slot.value][0] for slot in call.outputs if slot.value in pairs)
    targets = [value for value in ends if graph.producer[value] >= 0]
    inner = itertools.takewhile(lambda other: other.parent >= number, later)
    results = (slot.value for other in (call, *inner) for slot in other.outputs)
    inside = {value for value in results if value >= call.known}
    numbers = {value: number for number, (value, _) in pairs.items()}
    starts = {value for value, number in numbers.items() if number not in inside}
    return *nodes_between(graph, targets, starts), targets
