"""The aten operations inside one submodule call, aligned with the tensors of its part of the export.

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
from onnx_nb.analysis.pytorch.record import intercept_operations, is_tensor, to_numpy, watch
from onnx_nb.analysis.pytorch.source_lines import running_line
from onnx_nb.analysis.run.windows import Windows

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.pytorch.reproduction import Reproduction

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
