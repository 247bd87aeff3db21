"""Where the ONNX export of a torch module stops computing what the module computes, submodule by submodule.

The module runs once and is recorded, its calls are aligned with tensors, and the model runs twice: once by itself, for
the cumulative error of every tensor, and once with torch's values in place of every aligned tensor, so that the error
of each region is its own. That is one session: whoever reads an aligned tensor reads an input in its place, which has
its name, while what its node makes has another one and is an output.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched
from onnx_nb.analysis.compare.distances import between, by_peak
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, LazyErrors, classes_axis
from onnx_nb.analysis.compare.value_matching import QUANTIZED
from onnx_nb.analysis.errors import AlignmentError, OnnxNbError
from onnx_nb.analysis.formatting import plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import INITIALIZER, Graph
from onnx_nb.analysis.model.model import Model, ModelLike, load, with_proto
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.pytorch.alignment import NEAR, Alignment, Match, Proposals, feeds_of
from onnx_nb.analysis.pytorch.attribute_proof import proven
from onnx_nb.analysis.pytorch.drilldown import (
    Isolated,
    Operations,
    align_operations,
    call_around,
    isolate,
    numbered,
    record_operations,
)
from onnx_nb.analysis.pytorch.export import export
from onnx_nb.analysis.pytorch.record import Recording, as_given, record
from onnx_nb.analysis.pytorch.source_lines import source_of
from onnx_nb.analysis.pytorch.weights import compare_weights
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.windows import Sink, Windows

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.run.session import Value

SMALL: Final = 1 << 25
"""Bytes of recorded values up to which a model runs in one session, and its values are kept for `LazyErrors`."""
MEMORY: Final = 1 << 30
"""Values that are compared at once may take so many bytes, unless told otherwise."""


class Settings(NamedTuple):
    """How a model is run, and what may differ."""

    rtol: float = RTOL
    atol: float = ATOL
    providers: tuple[str, ...] | None = None
    memory_limit: int = MEMORY


@dataclass(frozen=True, eq=False, repr=False)
class TorchComparison(Comparison):
    """A `Comparison` of a torch module with its export; what `compare_torch` gives.

    A point is named by the innermost submodule that made the value; it is found by those around it that hand the value
    on as well. What a function gave that a submodule calls in its own ``forward`` is a point of its own where a tensor
    holds it: "encoder.layer.1 → add()".
    """

    recording: Recording | None = None
    alignment: Alignment | None = None
    model: Model | None = None
    given: Mapping[str, Any] | None = None
    """What the inputs of the model got."""
    run: tuple[Any, tuple[Any, ...], Mapping[str, Any]] | None = None
    """Module, args and kwargs; None where only a recording was given."""
    settings: Settings = dataclasses.field(default_factory=Settings)

    def isolate(
        self, path: str, folder: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
    ) -> Isolated:
        """Cut out the part of the export that a submodule is, with what torch's submodule got and gave.

        Parameters
        ----------
        path
            Of the submodule; "shared#2" for a second call.
        folder
            Where to save it, see `Isolated.save`.
        progress
            Called with the part done and what is done next. What it raises ends the work.

        Raises
        ------
        AlignmentError
            If there is no such submodule, or none of its outputs has a tensor.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
        >>> part = compare_torch(module, torch.ones(3, 4), exporter="torchscript").isolate("2")
        >>> [node.op_type for node in part.model.proto.graph.node], part.feeds["/1/Gelu_output_0"].shape
        (['Gemm'], (3, 8))
        """
        recording, graph, pairs = self._parts()
        if progress is not None:
            progress(0.0, f"cutting out {quoted(path or 'the model')}")
        part = isolate(recording, graph, pairs, self.given or {}, path)
        part = dataclasses.replace(part, providers=self.settings.providers)
        if folder is not None:
            part.save(folder, progress=stage(progress, 0.2, 1.0))
        return part

    def drill(self, path: str, *, progress: Progress | None = None) -> Comparison:
        """Compare the operations inside of a submodule: each with its line of Python.

        The module runs once more. The export's part of it gets what torch's got, so that the cumulative error is that
        of this submodule, and the isolated error that of each operation. Attention runs in its plain steps, the
        products and the Softmax, also where torch has one operation for it. Where what the submodule got has no tensor
        of its own, operations before it are looked into as well, from the nearest tensors that have one.

        Parameters
        ----------
        path
            Of the submodule, "" for all of the module; "shared#2" for a second call.
        progress
            Called before each submodule and between windows, with about the part done and what runs next. What it
            raises ends the work.

        Raises
        ------
        AlignmentError
            If there is no such submodule, it has too many operations, or only a recording was given.
        """
        if self.run is None:
            message = "the module is not known, only a recording of it."
            raise AlignmentError(message, advice="Compare by compare_torch(module, …).")
        part = self.isolate(path, progress=stage(progress, 0.0, 0.1))
        recording, _, pairs = self._parts()
        call = recording.calls[call_around(recording, pairs, path)]
        operations = record_operations(*self.run, call.path, call.index, progress=stage(progress, 0.1, 0.4))
        return _drilled(operations, part, f"{self.reference} {path}".rstrip(), self.settings, stage(progress, 0.4, 1.0))

    def weights(self, *, scope: str | None = None, progress: Progress | None = None) -> Comparison:
        """Compare the parameters of the module with the weights of the export.

        A parameter is found by what an operator does with it, where it was turned, or folded with a normalization, too.
        `Point.difference` says how one differs by more than rounding: "weight is transposed", or by which factor.

        Parameters
        ----------
        scope
            Path of the one submodule whose parameters are compared, without those inside of it; all if ``None``.
        progress
            Called before each weight. What it raises ends the work.

        Raises
        ------
        AlignmentError
            If only a recording was given.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
        >>> found = compare_torch(module, torch.ones(3, 4), exporter="torchscript").weights()
        >>> [(point.name, point.cumulative.is_equal) for point in found.points][:2]
        [('0 → weight', True), ('0 → bias', True)]
        """
        if self.run is None:
            message = "the module is not known, only a recording of it."
            raise AlignmentError(message, advice="Compare by compare_torch(module, …).")
        recording, graph, pairs = self._parts()
        rtol, atol = self.settings.rtol, self.settings.atol
        assert self.alignment is not None  # noqa: S101 (_parts has seen to it)
        quantized = Alignment(
            tuple(
                dataclasses.replace(match, tensor=f"{match.exported}{QUANTIZED}")
                for match in self.alignment.unmatched
                if match.exported
            )
        )
        pairs = {**_pairs(recording, graph, quantized), **pairs}
        return compare_weights(
            self.run[0], recording, graph, pairs, rtol=rtol, atol=atol, scope=scope, progress=progress
        )

    def _parts(self) -> tuple[Recording, Graph, dict[int, tuple[int, Match]]]:
        if self.recording is None or self.alignment is None or self.model is None:
            message = "a comparison that was merged or loaded does not hold the recording."
            raise AlignmentError(message, advice="Compare again by compare_torch(module, …).")
        graph = Graph.of(self.model)
        calls = Alignment(tuple(match for match in self.alignment.matches if not match.function))
        return self.recording, graph, _pairs(self.recording, graph, calls)

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Point]:
        found = dict(super()._by_name)
        tensors = {point.candidate: point for point in self.points}
        for match in self.alignment.matched if self.alignment is not None else ():
            if match.tensor in tensors:
                found.setdefault(match.name, tensors[match.tensor])
                if not match.call and not match.function:
                    found.setdefault(match.path or "model", tensors[match.tensor])
        return found


def compare_torch(
    module: torch.nn.Module | Recording,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    *,
    feeds: Mapping[str, Any] | None = None,
    exporter: str = "dynamo",
    alignment: Alignment | None = None,
    isolated: bool = True,
    rtol: float = RTOL,
    atol: float = ATOL,
    repeat: bool = False,
    providers: Sequence[str] | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> TorchComparison:
    """Compare what a torch module computes with what its ONNX export does, at every submodule.

    Parameters
    ----------
    module, args, kwargs
        As for `record`. The module's code need not change. A `Recording` needs no arguments, but ``model``.
    model
        The export of the module; it is exported now if ``None``.
    feeds
        What the model gets; what the module got if ``None``.
    exporter
        ``"dynamo"`` or ``"torchscript"``, if it is exported now.
    alignment
        Of the export that ``model`` was made from by an optimizer or a quantizer, see `Alignment.save`; found out if
        ``None``.
    isolated
        Find the error of each region by itself, too.
    rtol, atol
        What may differ.
    repeat
        Run the module twice, and warn of submodules that give other values.
    providers
        Execution providers, best first, for everything that is run, also later by `TorchComparison.drill`; the CPU if
        ``None``. The module runs on the device where it is.
    memory_limit
        Bytes that values may take at once; the rest of the recording goes to disk.
    progress
        Called before each submodule and between windows, with about the part done and what runs next. What it raises
        ends the comparison.
    **options
        Passed on to ``torch.onnx.export``.

    Returns
    -------
    TorchComparison

    Raises
    ------
    ExportError
        If torch cannot export the module.
    AlignmentError
        If the model is not an export of that module, or the shapes of their values differ.
    FeedError
        If the arguments do not fit the model's inputs.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
    >>> found = compare_torch(module, torch.ones(3, 4), exporter="torchscript")
    >>> list(found)
    ['0', '1', '2']
    >>> found["1"].isolated.max_abs < 1e-6, found.first_divergent()
    (True, None)
    """
    if isinstance(module, Recording):
        if model is None:
            raise AlignmentError("a recording cannot be exported.", advice="Give model=, the export of its module.")
        if args or kwargs or options or repeat:
            message = "a recording has arguments of its own, and is not exported or repeated."
            raise AlignmentError(message, advice="Give only its model.")
        return compare_recording(
            module,
            model,
            feeds=feeds,
            alignment=alignment,
            isolated=isolated,
            rtol=rtol,
            atol=atol,
            providers=providers,
            memory_limit=memory_limit,
            progress=progress,
        )
    recording = record(
        module,
        args,
        kwargs,
        functions=True,
        repeat=repeat,
        memory_limit=memory_limit,
        progress=stage(progress, 0.0, 0.3),
    )
    if model is None:
        if progress is not None:
            progress(0.3, f"exporting {recording.cls}")
        model = export(module, args, kwargs, exporter=exporter, **options)
    elif options:
        named = ", ".join(map(quoted, options))
        raise AlignmentError(f"{named}: options are for an export, and a model is given.", advice="Leave out one.")
    found = compare_recording(
        recording,
        model,
        feeds=feeds,
        alignment=alignment,
        isolated=isolated,
        rtol=rtol,
        atol=atol,
        providers=providers,
        memory_limit=memory_limit,
        progress=stage(progress, 0.5, 1.0),
    )
    return _with_weights(dataclasses.replace(found, run=as_given(module, args, kwargs)))


def _with_weights(found: TorchComparison) -> TorchComparison:
    """Describe, of the first point that differs which of its module's parameters do."""
    first = found.first_divergent()
    if first is None or first.difference:
        return found
    differing = [point.difference for point in found.weights(scope=first.scope).points if point.difference]
    if not differing:
        return found
    better = dataclasses.replace(first, difference=", ".join(differing))
    return dataclasses.replace(found, points=tuple(better if point is first else point for point in found.points))


def compare_recording(
    recording: Recording,
    model: ModelLike,
    *,
    feeds: Mapping[str, Any] | None = None,
    alignment: Alignment | None = None,
    isolated: bool = True,
    rtol: float = RTOL,
    atol: float = ATOL,
    providers: Sequence[str] | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> TorchComparison:
    """Compare a recording of a torch module with a model; see `compare_torch`."""
    graph = Graph.of(load(model))
    found = Proposals(recording, graph) if alignment is None else None
    wanted = _of_alignment(recording, graph, alignment.on(graph.model)) if alignment is not None else {}
    if found is not None:
        wanted = {value: tuple(found.numbers_of(value)) for value in found.possible}
    named = (providers,) if isinstance(providers, str) else None if providers is None else tuple(providers)
    settings = Settings(rtol, atol, named, MEMORY if memory_limit is None else memory_limit)
    doubtful = frozenset(found.functions) if found is not None else frozenset()
    seen = _Cumulative(recording, wanted, settings, outputs=set(graph.outputs.tolist()), doubtful=doubtful)
    given = feeds_of(recording, graph.model, feeds)
    _check_shapes(recording, graph.model, given)
    small = recording.nbytes <= min(SMALL, settings.memory_limit)
    if not small or not _at_once(graph, list(wanted), given, seen, settings):
        seen.graph, seen.progress = graph, stage(progress, 0.0, 0.5)
        _windows(graph, list(wanted), settings).run(given, seen)
    settled = found.settled(seen.distances) if found is not None else alignment.on(graph.model)  # type: ignore[union-attr]
    pairs = _pairs(recording, graph, settled)
    own: Mapping[int, ErrorStats | LazyErrors] = {}
    if isolated:
        regions = _Regions(recording, graph, pairs, seen.data_types, given)
        own = regions.run(settings, stage(progress, 0.5, 1.0))
    if progress is not None:
        progress(1.0, "done")
    return dataclasses.replace(_told(graph, settled, pairs, seen, own), given=given, settings=settings)


def _windows(graph: Graph, wanted: Sequence[int], settings: Settings) -> Windows:
    return Windows(graph, wanted, memory_limit=settings.memory_limit, providers=settings.providers)


def _at_once(
    graph: Graph, wanted: Sequence[int], given: Mapping[str, Any], seen: _Cumulative, settings: Settings
) -> bool:
    """Run a small model in one session, which takes half the time of several; say whether it could be run."""
    names = {graph.value_names[value]: value for value in wanted if graph.producer[value] >= 0}
    if not names or any(not isinstance(array, np.ndarray) for array in given.values()):
        return False
    try:
        session = sessions.create(
            graph.model, optimize=False, providers=settings.providers, outputs=names, transient=True
        )
        values = {name: sessions.to_value(array) for name, array in given.items()}
        results = sessions.run_values(session, values, name=graph.model.name)
    except OnnxNbError:  # run in windows it names the node that fails
        return False
    seen.keeps = True
    for name, value in names.items():
        seen.record(value, results[name], ())
    return True


def _check_shapes(recording: Recording, model: Model, given: Mapping[str, Any]) -> None:
    for slot in recording.calls[0].inputs:
        got, theirs = recording.value(slot.value).shape, np.shape(given.get(slot.label, ()))
        if slot.label in given and got != theirs:
            mine, yours = ("×".join(map(str, shape)) or "a scalar" for shape in (theirs, got))
            message = f"input {quoted(slot.label)} of {model.name} is {mine}, and {recording.cls} got {yours}."
            raise AlignmentError(message, advice="Give both the same, or leave out feeds=.")


def _of_alignment(recording: Recording, graph: Graph, alignment: Alignment) -> dict[int, tuple[int, ...]]:
    pairs = _pairs(recording, graph, alignment)
    if not pairs:
        message = f"no tensor of {graph.model.name} is in the alignment."
        raise AlignmentError(message, advice="Give the alignment of the export that the model was made from.")
    return {value: (number,) for number, (value, _) in pairs.items()}


def _pairs(recording: Recording, graph: Graph, alignment: Alignment) -> dict[int, tuple[int, Match]]:
    """Return for each recorded value that has one its tensor, and the innermost call that made it."""
    slots = {
        (call.path, call.index, slot.label): (number, slot.value)
        for number, call in enumerate(recording.calls)
        for slot in call.outputs
    }
    functions = {
        (recording.calls[each.call].path, recording.calls[each.call].index, label): (each.call, each.value)
        for each, label in recording.labeled()
    }
    main = {graph.value_names[value]: value for value in _main_values(graph)}
    given = {slot.value for slot in recording.calls[0].inputs}
    found: dict[int, tuple[int, Match]] = {}
    deepest: dict[int, int] = {}
    for match in alignment.matched:
        place = (functions if match.function else slots).get((match.path, match.call, match.output))
        if place is None or match.tensor not in main:
            continue
        call, number = place
        if number in given or graph.value_kind[main[match.tensor]] not in (0, INITIALIZER):
            continue
        handed_on = any(slot.value == number for slot in recording.calls[call].inputs)
        if number not in found or (call > deepest[number] and not handed_on):
            found[number] = main[match.tensor], match
            deepest[number] = call
    return dict(sorted(found.items()))


def _main_values(graph: Graph) -> Iterable[int]:
    values: list[int] = np.flatnonzero(graph.value_subgraph == 0).tolist()
    return values


class _Cumulative(Sink):
    """Compares the values that pass when the model runs by itself."""

    def __init__(
        self,
        recording: Recording | Operations,
        wanted: Mapping[int, tuple[int, ...]],
        settings: Settings,
        *,
        outputs: Collection[int] = (),
        doubtful: Collection[int] = (),
    ) -> None:
        super().__init__()
        self.errors: dict[tuple[int, int], ErrorStats | LazyErrors] = {}
        self.distances: dict[tuple[int, int], float] = {}
        self.data_types: dict[int, int] = {}
        self.recording = recording
        self._wanted = wanted
        self._settings = settings
        self._outputs = outputs
        self._doubtful = doubtful
        self.keeps = False
        """Whether the values that are recorded may be kept."""

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:
        if found is None or not found.is_tensor() or index:
            return
        array = sessions.to_array(found)
        self.data_types[value] = found.element_type()
        numbers = self._wanted[value]
        for number in numbers:
            reference = self.recording.value(number)
            if reference.shape != array.shape:
                continue
            doubtful = number in self._doubtful
            if doubtful and not self.keeps and between(reference, array) > NEAR:
                continue
            axis = classes_axis(reference) if value in self._outputs else None
            compare = LazyErrors if self.keeps else ErrorStats.of
            errors = compare(reference, array, rtol=self._settings.rtol, atol=self._settings.atol, argmax=axis)
            distance = by_peak(errors.size)
            if doubtful and distance > NEAR:
                continue
            self.errors[value, number] = errors
            self.distances[value, number] = distance


class _Regions:
    """Runs what lies between aligned tensors, each region on torch's values."""

    def __init__(
        self,
        recording: Recording | Operations,
        graph: Graph,
        pairs: Mapping[int, tuple[int, Match]],
        data_types: Mapping[int, int],
        feeds: Mapping[str, Any],
    ) -> None:
        self._recording, self._graph, self._feeds = recording, graph, feeds
        self._flow = Flow.of(graph)
        self._data_types = data_types
        self._numbers: dict[int, int] = {}
        for number, (value, _) in pairs.items():
            fits = value in data_types and self._flow.producer[value] >= 0
            if fits:
                self._numbers.setdefault(value, number)

    def run(self, settings: Settings, progress: Progress | None) -> dict[int, ErrorStats | LazyErrors]:
        """Return the errors of each tensor."""
        found: dict[int, ErrorStats | LazyErrors] = {}
        nbytes = sum(self._recording.value(number).nbytes for number in self._numbers.values())
        compare = LazyErrors if nbytes <= min(SMALL, settings.memory_limit) else ErrorStats.of
        tell = progress or (lambda _done, _what: None)
        for values in self._groups(settings.memory_limit):
            tell(len(found) / len(self._numbers), f"{len(values):,} regions, each on torch's values")
            nodes, inputs = self._needed(values)
            model = self._cut(nodes, values, inputs)
            session = sessions.create(model, optimize=False, providers=settings.providers, transient=True)
            given = {name: sessions.to_value(array) for name, array in self._given(inputs).items()}
            results = sessions.run_values(session, given, name=model.name)
            for value in values:
                tell(len(found) / len(self._numbers), f"errors of {quoted(self._graph.value_names[value])}")
                array = sessions.to_array(results.pop(_made(self._graph.value_names[value])))
                reference = self._recording.value(self._numbers[value])
                if array.shape == reference.shape:
                    found[value] = compare(reference, array, rtol=settings.rtol, atol=settings.atol)
        return found

    def _groups(self, limit: int) -> Iterable[list[int]]:
        """Divide the tensors, in the order in which they are made, so that those of a group fit into memory."""
        rank = self._graph.rank
        ordered = sorted(self._numbers, key=lambda value: int(rank[self._flow.producer[value]]))
        group: list[int] = []
        nbytes = 0
        for value in ordered:
            size = 2 * self._recording.value(self._numbers[value]).nbytes
            if group and nbytes + size > limit:
                yield group
                group, nbytes = [], 0
            group.append(value)
            nbytes += size
        if group:
            yield group

    def _needed(self, values: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the nodes between these tensors and the aligned ones before them, and the outside values they read."""
        flow, numbers = self._flow, self._numbers
        nodes: set[int] = set()
        inputs: set[int] = set()
        todo = [flow.producer[value] for value in values]
        while todo:
            node = todo.pop()
            if node in nodes:
                continue
            nodes.add(node)
            for value in flow.reads(node):
                maker = flow.producer[value]
                if value in numbers or maker < 0:
                    inputs.add(value)
                else:
                    todo.append(maker)
        kept = [value for value in inputs if flow.kinds[value] != INITIALIZER]
        return sorted(nodes, key=lambda node: int(self._graph.rank[node])), kept

    def _cut(self, nodes: Sequence[int], values: Sequence[int], inputs: Sequence[int]) -> Model:
        graph, source = self._graph, self._graph.model.proto
        names = graph.value_names
        proto = ModelProto(ir_version=max(source.ir_version, 4), opset_import=source.opset_import)
        proto.functions.extend(source.functions)
        target = proto.graph
        target.name = f"regions of {graph.model.name}"
        target.initializer.extend(source.graph.initializer)
        target.sparse_initializer.extend(source.graph.sparse_initializer)
        cut = {names[value] for value in self._numbers}
        for node in nodes:
            made = target.node.add()
            made.CopyFrom(source.graph.node[node])
            made.ClearField("metadata_props")
            for place, name in enumerate(made.output):
                if name in cut:
                    made.output[place] = _made(plain_text(name))
        for value, array in self._arrays(inputs).items():
            kind = helper.make_tensor_type_proto(_data_type(array), array.shape)
            target.input.add(name=names[value]).type.CopyFrom(kind)
        for value in values:
            target.output.add(name=_made(names[value]))
        return with_proto(graph.model, proto, target.name)

    def _arrays(self, inputs: Iterable[int]) -> dict[int, NDArray[Any]]:
        found = {}
        for value in inputs:
            number = self._numbers.get(value)
            name = self._graph.value_names[value]
            if number is None:
                found[value] = np.asarray(self._feeds[name])
            else:
                wanted = _dtype(self._data_types[value])
                with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
                    found[value] = self._recording.value(number).astype(wanted, copy=False)
        return found

    def _given(self, inputs: Iterable[int]) -> dict[str, NDArray[Any]]:
        return {self._graph.value_names[value]: array for value, array in self._arrays(inputs).items()}


def _made(name: str) -> str:
    return f"{name}__onnx"


def _data_type(array: NDArray[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


@functools.cache
def _dtype(data_type: int) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(data_type)


def _drilled(
    operations: Operations, part: Isolated, reference: str, settings: Settings, progress: Progress | None
) -> Comparison:
    graph = Graph.of(part.model)
    pairs = align_operations(operations, part, progress=stage(progress, 0.0, 0.5))
    wanted: dict[int, tuple[int, ...]] = {}
    for number, (value, _) in pairs.items():
        wanted[value] = (*wanted.get(value, ()), number)
    seen = _Cumulative(operations, wanted, settings)
    seen.graph, seen.progress = graph, stage(progress, 0.5, 0.75)
    _windows(graph, list(wanted), settings).run(part.feeds, seen)
    regions = _Regions(operations, graph, pairs, seen.data_types, part.feeds)
    own = regions.run(settings, stage(progress, 0.75, 1.0))
    names = numbered(operation.name for operation in operations.found)
    points = []
    for depth, (number, (value, match)) in enumerate(pairs.items()):
        operation, node = operations.found[number], int(graph.producer[value])
        points.append(
            Point(
                name=names[number],
                reference=names[number],
                candidate=match.tensor,
                matched=match.how,
                depth=depth,
                op_type=operation.name,
                node=graph.names[node],
                scope=part.path,
                source=operation.source,
                output=match.how == "output",
                cumulative=seen.errors.get((value, number)),
                isolated=own.get(value),
            )
        )
    return Comparison(reference, part.model.name, tuple(points))


def _told(
    graph: Graph,
    alignment: Alignment,
    pairs: Mapping[int, tuple[int, Match]],
    seen: _Cumulative,
    own: Mapping[int, ErrorStats | LazyErrors],
) -> TorchComparison:
    recording = seen.recording
    assert isinstance(recording, Recording)  # noqa: S101
    points = []
    outputs = set(graph.outputs.tolist())
    said = {(call.path, call.index): call.attributes for call in recording.calls}
    for depth, (number, (value, match)) in enumerate(pairs.items()):
        node = int(graph.producer[value])
        difference = ""
        if node >= 0 and not match.function:
            rank = recording.value(number).ndim
            difference = proven(match.cls, said[match.path, match.call], graph.nodes[node], rank)
        cumulative = seen.errors.get((value, number))
        if cumulative is None and node < 0:
            cumulative = ErrorStats.of(recording.value(number), graph.model.tensor(match.tensor))
        if cumulative is None:
            shape = "×".join(map(str, recording.value(number).shape)) or "scalar"
            message = f"{quoted(match.name)} gave {shape}, and tensor {quoted(match.tensor)} has another shape."
            if difference:
                raise AlignmentError(f"{message} Of its node {difference}.", advice="Correct that, and export again.")
            raise AlignmentError(message, advice="Give the model the feeds that the module got.")
        points.append(
            Point(
                name=match.name,
                reference=match.name,
                candidate=match.tensor,
                matched=match.how,
                depth=depth,
                op_type=match.function or match.cls,
                node=graph.names[node] if node >= 0 else "",
                scope=match.path,
                source=match.source or (source_of(graph.nodes[node]) if node >= 0 else ""),
                output=value in outputs,
                difference=difference,
                cumulative=cumulative,
                isolated=own.get(value, cumulative if node < 0 else None),
            )
        )
    missing = tuple(Unmatched(match.name, "reference", match.why, match.cls) for match in alignment.unmatched)
    return TorchComparison(
        f"torch {recording.cls}",
        graph.model.name,
        tuple(points),
        missing,
        recording=recording,
        alignment=alignment,
        model=graph.model,
    )
