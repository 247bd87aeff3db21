"""Find where the ONNX export of a torch module diverges from the module, submodule by submodule.

The module runs once and is recorded, and its calls are aligned with tensors. Then the model runs twice: on its own, for
the cumulative error of every aligned tensor, and with torch's values in place of every aligned tensor, for the error
that each region adds (`isolated_errors`).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.comparison import Comparison, Point, Unmatched, explained
from onnx_nb.analysis.compare.engine import Option, PairErrors, Plan, Proposal, errors_of, points_of
from onnx_nb.analysis.compare.isolated import Settings
from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, by_peak
from onnx_nb.analysis.compare.operands import constant_of
from onnx_nb.analysis.compare.quantization import QUANTIZED
from onnx_nb.analysis.compare.sides import Running
from onnx_nb.analysis.compare.thresholds import CONSTANT_DISTANCE
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.formatting import plain_text, quoted, shape_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.tensors import attributes as values_of
from onnx_nb.analysis.model.tensors import listed, numpy_dtype
from onnx_nb.analysis.progress import CountedWork, Progress, stage
from onnx_nb.analysis.pytorch.align import Alignment, Candidates, Match, Pairs
from onnx_nb.analysis.pytorch.drilldown import SMALL, OperationProposal, Reproduction, submodule_nodes
from onnx_nb.analysis.pytorch.export import export
from onnx_nb.analysis.pytorch.module_scopes import source_of
from onnx_nb.analysis.pytorch.operations import Operations
from onnx_nb.analysis.pytorch.record import ATTRIBUTES, Recording, Run, checked_arguments, record, record_operations
from onnx_nb.analysis.pytorch.side import TorchSide, feeds_of, inputs_of, later_feeds, recorded_feed
from onnx_nb.analysis.pytorch.weights import WeightFinder
from onnx_nb.analysis.submodel.assembly import assemble

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False, repr=False)
class TorchComparison(Comparison):
    """A `Comparison` of a torch module with its export, as returned by `compare_torch`.

    A point has the name of the innermost submodule that produced the value; the names of the submodules around it that
    return the same value find it as well. The result of a function that a submodule calls in its own ``forward`` is a
    separate point if a tensor holds it: "encoder.layer.1 → add()".
    """

    recording: Recording | None = None
    alignment: Alignment | None = None
    model: Model | None = None
    given: Mapping[str, Any] | None = None
    """Inputs of the model by name."""
    _run: Run | None = None
    """Module, args and kwargs; None if only a recording was compared."""
    _settings: Settings = dataclasses.field(default_factory=Settings)

    def reproduce(
        self, path: str, folder: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
    ) -> Reproduction:
        """Extract the part of the export that computes a submodule, with the submodule's inputs and outputs in torch.

        The folder holds a small model, torch's values and a script that shows the error with nothing but onnx and
        onnxruntime, ready for a bug report.

        Parameters
        ----------
        path
            Path of the submodule; "shared#2" for a second call.
        folder
            Folder to write, see `Reproduction.save`; nothing is written if ``None``.
        progress
            As for `compare_torch`.

        Returns
        -------
        Reproduction

        Raises
        ------
        AlignmentError
            If there is no such submodule, or none of its outputs has a tensor.
        ModelFileError
            If a file cannot be written.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
        >>> part = compare_torch(module, torch.ones(3, 4), exporter="torchscript").reproduce("2")
        >>> [node.op_type for node in part.model.proto.graph.node], part.feeds["/1/Gelu_output_0"].shape
        (['Gemm'], (3, 8))
        """
        recording, graph, pairs = self._aligned()
        CountedWork(progress, 1).reached(0, f"extracting {quoted(path or 'the model')}")
        number = recording.find_call(path.partition(" → ")[0])
        call, names = recording.calls[number], graph.value_names
        nodes, starts, ends = submodule_nodes(recording, graph, pairs, number)
        if not nodes:
            constants = [names[pairs[slot.value][0]] for slot in call.outputs if slot.value in pairs]
            message = f"no output of {call.cls} {quoted(call.name)} has a tensor in {graph.model.name}."
            advice = "See comparison.unmatched for the reason, or choose the module around it."
            if constants:
                output = f"the output of {call.cls} {quoted(call.name)}"
                message = f"{output} was computed in advance: it is the weight {quoted(constants[0])}."
                advice = "There is nothing to run. See model.tensor(name), or choose the module around it."
            raise AlignmentError(message, advice=advice)
        model = assemble(graph.model, nodes, starts, ends, name=f"{graph.model.name} [{path or call.name}]")
        kinds = {plain_text(port.name): port.type.tensor_type.elem_type for port in model.proto.graph.input}
        border = {*starts, *ends}
        right = {value: recording.value(key) for key, (value, _) in pairs.items() if value in border}
        feeds = {}
        for value in starts:
            array = right[value] if value in right else np.asarray((self.given or {})[names[value]])
            with np.errstate(over="ignore"):  # values beyond float16 are infinite there, too
                feeds[names[value]] = array.astype(numpy_dtype(kinds[names[value]]) or array.dtype, copy=False)
        part = Reproduction(path, model, feeds, {names[value]: right[value] for value in ends})
        if folder is not None:
            part.save(folder, progress=stage(progress, 0.2, 1.0))
        return part

    def drill(self, path: str, *, progress: Progress | None = None) -> Comparison:
        """Compare the aten operations inside a submodule, each with its line of Python.

        The module runs once more. The export's part runs on torch's inputs of the submodule, so the cumulative error
        is that of this submodule only, and the isolated error is that of each operation. Attention runs as products and
        a Softmax, even where torch has one operation for it. If an input of the submodule has no tensor, the part
        begins at the nearest tensors before it, and the operations in between are compared as well; if none of its
        outputs has one, the submodule around it is compared. A point with the tensor of the submodule's output is
        always among them, and a proven difference of this comparison, such as that of a weight, is repeated.

        Parameters
        ----------
        path
            Path of the submodule, "" for the whole module; "shared#2" for a second call.
        progress
            As for `compare_torch`.

        Returns
        -------
        Comparison
            A point for each operation that has a tensor, such as "aten.addmm".

        Raises
        ------
        AlignmentError
            If there is no such submodule, it has too many operations, or only a recording was compared.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
        >>> compare_torch(module, torch.ones(3, 4), exporter="torchscript").drill("1").names
        ['aten.gelu']
        """
        run = self._module_and_arguments()
        recording, graph, pairs = self._aligned()
        calls, number = recording.calls, recording.find_call(path.partition(" → ")[0])
        # the call itself, or the nearest one around it, that has an output in the export
        while calls[number].parent >= 0 and pairs.keys().isdisjoint(slot.value for slot in calls[number].outputs):
            number = calls[number].parent
            path = calls[number].name if calls[number].path else ""
        part = self.reproduce(path, progress=stage(progress, 0.0, 0.1))
        anchors = {slot.value for slot in calls[0].inputs} | pairs.keys()
        # the innermost call, itself or one around it, whose inputs all have a tensor
        while calls[number].parent >= 0 and any(slot.value not in anchors for slot in calls[number].inputs):
            number = calls[number].parent
        pairs = {**self._aligned(functions=True)[2], **pairs}
        tensors = inputs_of(recording, graph) | {number: value for number, (value, _) in pairs.items()}
        labels = {number: graph.value_names[value] for number, value in tensors.items()}
        again, inner_graph = record_operations(run, number, stage(progress, 0.1, 0.37)), Graph.of(part.model)
        nodes = (node for node in range(inner_graph.main_count) if not inner_graph.folded[node])
        probes = [value for node in nodes for value in inner_graph.results(node)]
        feed = recorded_feed(0, part.feeds, again, range(again.value_count))
        candidate = Running(part.model, self._settings.memory_limit, is_small=True)
        arrays = candidate.arrays(feed, frozenset(probes))
        proposal = OperationProposal(recording, again, part, labels, arrays)
        options, limit = proposal.options, min(SMALL, self._settings.memory_limit)
        is_small = sum(arrays[option.candidate].nbytes for option in options) <= limit
        plan = Plan.of_options(options, self._settings, inner_graph, isolated=True, is_small=is_small)
        sides = TorchSide({option.reference: arrays[option.candidate].shape for option in options}), candidate
        work = CountedWork(stage(progress, 0.37, 1.0), 1)
        errors = errors_of(sides, proposal, plan, [feed], executor=None, work=work)
        # what is known about the same tensors, or about the first that differs here
        causes = {point.candidate: point.difference for point in self.points if point.difference}
        rest = points_of(inner_graph, plan.outputs, proposal, errors, isolated=True)
        points = tuple(dataclasses.replace(point, difference=causes.pop(point.candidate, "")) for point in rest)
        inner = path.partition(" → ")[0].partition("#")[0]
        left = (point for point in self.points if point.candidate in causes)
        inside = [point.difference for point in left if not inner or f"{point.scope}.".startswith(f"{inner}.")]
        reference = f"{self.reference} {path}".rstrip()
        return explained(Comparison(reference, part.model.name, points), lambda _first: inside)

    def weights(self, *, scope: str | None = None, progress: Progress | None = None) -> Comparison:
        """Compare the parameters of the module with the weights of the export.

        A parameter is matched by its use in its operator, even if the weight is transposed, quantized or folded with a
        normalization. The parameters of LSTM, GRU and RNN are not compared. `Point.difference` describes a difference
        beyond rounding: "weight is transposed", or the factor between them.

        Parameters
        ----------
        scope
            Path of the only submodule whose parameters are compared, without its submodules; all if ``None``.
        progress
            As for `compare_torch`; called before each weight.

        Returns
        -------
        Comparison
            A point for each parameter, such as "encoder.layer.1.dense → weight".

        Raises
        ------
        AlignmentError
            If only a recording was compared.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
        >>> found = compare_torch(module, torch.ones(3, 4), exporter="torchscript").weights()
        >>> [(point.name, point.cumulative.is_equal) for point in found.points][:2]
        [('0 → weight', True), ('0 → bias', True)]
        """
        recording, graph, pairs = self._aligned()
        # a weight of a quantized model has the name of its tensor in the export, with a suffix
        left = (match for match in (self.alignment or Alignment(())).unmatched if match.exported)
        matches = (dataclasses.replace(match, tensor=f"{match.exported}{QUANTIZED}") for match in left)
        pairs = {**Alignment(tuple(matches)).pairs(recording, graph), **pairs}
        finder = WeightFinder(self._module_and_arguments()[0], recording, graph, pairs, scope)
        return finder.compare(self._settings, progress)

    @property
    def has_module(self) -> bool:
        """Whether the module itself, which `drill` runs, was compared, and not only a recording of it."""
        return self._run is not None

    def _module_and_arguments(self) -> Run:
        if self._run is None:
            message = "the module is not known, only a recording of it."
            raise AlignmentError(message, advice="Compare by compare_torch(module, …).")
        return self._run

    def _aligned(self, *, functions: bool = False) -> tuple[Recording, Graph, Pairs]:
        """Return the recording, the graph, and the tensors of outputs (and functions) that no values refuted."""
        if self.recording is None or self.alignment is None or self.model is None:
            message = "a comparison that was merged or loaded does not hold the recording."
            raise AlignmentError(message, advice="Compare again by compare_torch(module, …).")
        graph = Graph.of(self.model)
        compared = {point.candidate for point in self.points}
        left = (match for match in self.alignment.matches if functions or not match.function)
        sure = (m for m in left if m.tensor in compared or not (m.function or m.how in TorchProposal.doubtful))
        return self.recording, graph, Alignment(tuple(sure)).pairs(self.recording, graph)

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Point]:
        points = dict(super()._by_name)
        tensors = {point.candidate: point for point in self.points}
        for match in self.alignment.matched if self.alignment is not None else ():
            if match.tensor in tensors:
                points.setdefault(match.name, tensors[match.tensor])
                if not match.call and not match.function:
                    points.setdefault(match.called, tensors[match.tensor])
        return points


@known_arguments
def compare_torch(
    module: torch.nn.Module | Recording,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    *,
    feeds: Mapping[str, Any] | None = None,
    more_args: Iterable[Any] = (),
    exporter: str = "dynamo",
    alignment: Alignment | None = None,
    isolated: bool = True,
    rtol: float = RTOL,
    atol: float = ATOL,
    repeat: bool = False,
    providers: Sequence[str] | None = None,
    memory_limit: int | None = None,
    executor: concurrent.futures.Executor | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> TorchComparison:
    """Compare what a torch module computes with what its ONNX export computes, at every submodule.

    Parameters
    ----------
    module, args, kwargs
        As for `record`. The module's code need not change. A `Recording` takes no arguments, but needs ``model``.
    model
        Export of the module; exported now if ``None``.
    feeds
        Inputs of the model; the module's arguments if ``None``.
    more_args
        Further arguments of the module, whose errors are merged with those of ``args``: a tuple for each call, or a
        dict of keyword arguments, such as ``more_args=[(x2,), (x3,)]``. Of a `Recording`, further recordings. The
        module is recorded on one after another, and has to make the same calls each time.
    exporter
        ``"dynamo"`` or ``"torchscript"``, for an export made now.
    alignment
        Alignment of the export from which an optimizer or a quantizer derived ``model``, see `Alignment.save`; computed
        from ``model`` if ``None``.
    isolated
        Also find the isolated errors, which takes a second run of the model.
    rtol, atol
        Tolerances of `ErrorStats.outside`.
    repeat
        Run the module twice, and warn about submodules whose outputs change.
    providers
        Execution providers, best first, of every run of the model, including `TorchComparison.drill`; the CPU if
        ``None``. The module runs on its own device.
    memory_limit
        Maximum number of bytes of values in memory; the rest of the recording, and values that wait for torch's, are
        written to disk.
    executor
        Any `concurrent.futures.Executor`, which runs the model on ``more_args`` in parallel; the module runs here.
    progress
        Called before each submodule and between windows, with the estimated fraction done and the next step. If
        it raises, the comparison ends.
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
    if not isinstance(more_args, Iterable):
        raise TypeError(f"compare_torch() takes more_args as a list of tuples, not {type(more_args).__name__}.")
    if feeds is not None and more_args != ():
        raise AlignmentError("feeds= are of the first arguments only.", advice="Leave out feeds= or more_args=.")
    run = None
    if isinstance(module, Recording):
        if model is None:
            raise AlignmentError("a recording cannot be exported.", advice="Give model=, the export of its module.")
        if args or kwargs or options or repeat:
            message = "a recording has arguments of its own, and is not exported or repeated."
            raise AlignmentError(message, advice="Pass only its model.")
        recording = module
    else:
        run = checked_arguments(module, args, kwargs)
        first = stage(progress, 0.0, 0.3)
        recording = record(*run, functions=True, repeat=repeat, memory_limit=memory_limit, progress=first)
        if model is None:
            CountedWork(progress, 1).reached(0.3, f"exporting {recording.cls}")
            model = export(module, args, kwargs, exporter=exporter, **options)
        elif options:
            names = ", ".join(map(quoted, options))
            raise AlignmentError(f"{names}: options are for an export, but a model is given.", advice="Leave out one.")
        progress = stage(progress, 0.5, 1.0)
    settings = Settings(rtol, atol, Settings().memory_limit if memory_limit is None else memory_limit)
    graph = Graph.of(load(model, providers=providers))
    proposal = TorchProposal(recording, run, graph, alignment)
    inputs = feeds_of(recording, graph.model, feeds)
    proposal.check_inputs(inputs)
    is_small = recording.nbytes <= min(SMALL, settings.memory_limit)
    sides = TorchSide(), Running(graph.model, settings.memory_limit, is_small=is_small)
    plan = Plan.of_options(proposal.options, settings, graph, isolated=isolated, is_small=is_small)
    later = later_feeds(module, recording, graph.model, plan.seen[0], more_args, memory_limit=memory_limit)
    count = 1 + len(more_args) if isinstance(more_args, Sized) else None
    every = itertools.chain([recorded_feed(0, inputs, recording, plan.seen[0])], later)
    pairs = errors_of(sides, proposal, plan, every, executor=executor, work=CountedWork(progress, count))
    points = points_of(graph, plan.outputs, proposal, pairs, isolated=isolated)
    matching = proposal.alignment
    rest = tuple(Unmatched(match.name, "reference", match.why, match.cls) for match in matching.unmatched)
    origin = recording, matching, graph.model, inputs, run, settings
    comparison = TorchComparison(f"torch {recording.cls}", graph.model.name, points, rest, pairs.feeds, *origin)
    if run is None:
        return comparison

    def explain(first: Point) -> Iterable[str]:
        weights = (weight for path in proposal.paths(first) for weight in comparison.weights(scope=path).points)
        return dict.fromkeys(weight.difference for weight in weights if weight.difference) or proposal.lacking(first)

    return explained(comparison, explain)


class TorchProposal(Proposal):
    """Tensors that carry the outputs of submodules and the results of functions."""

    doubtful = ("inputs", "value", "order")

    def __init__(self, recording: Recording, run: Run | None, graph: Graph, alignment: Alignment | None) -> None:
        self._recording, self._run, self._graph = recording, run, graph
        self._candidates = Candidates(recording, graph) if alignment is None else None
        self._wrong_constants: set[int] = set()
        self.alignment = Alignment(()) if alignment is None else alignment.on(graph.model)
        self._pairs: Pairs = self.alignment.pairs(recording, graph)
        edges = ((value, number) for number, (value, _) in self._pairs.items())
        numbers = followers(edges) if self._candidates is None else self._candidates.numbers
        if alignment is not None and not numbers:
            message = f"no tensor of {graph.model.name} is in the alignment."
            raise AlignmentError(message, advice="Give the alignment of the export that the model was made from.")
        self.options = tuple(Option(number, value, "") for value, several in numbers.items() for number in several)

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Raise `AlignmentError` if the model does not get what the module got."""
        recording = self._recording
        for slot in recording.calls[0].inputs:
            shape, original = np.shape(inputs.get(slot.label, ())), recording.value(slot.value).shape
            if slot.label in inputs and shape != original:
                what = f"input {quoted(slot.label)} of {self._graph.model.name} is {shape_text(shape)}"
                message = f"{what}, but {recording.cls} got {shape_text(original)}."
                raise AlignmentError(message, advice="Use the same for both, or leave out feeds=.")

    def settle(self, pairs: PairErrors, _run: Callable[[Sequence[Option]], PairErrors]) -> dict[Option, ErrorStats]:
        """Return the pairs of the alignment, with their errors."""
        graph, recording = self._graph, self._recording
        errors = {(option.candidate, option.reference): stats for option, stats in pairs.errors.items()}
        if self._candidates is not None:
            self.alignment = self._candidates.settle({pair: by_peak(stats) for pair, stats in errors.items()})
        choices: dict[Option, ErrorStats] = {}
        for number, (value, match) in self.alignment.pairs(recording, graph).items():
            option = Option(number, value, match.how)
            if (value, number) in errors:
                choices[option] = errors[value, number]
            elif graph.producer[value] < 0:  # a weight
                right, array = recording.value(number), graph.model.tensor(match.tensor)
                choices[option] = ErrorStats.of(right, array)
                if choices[option].rel_l2 > CONSTANT_DISTANCE:  # what reads it is judged with torch's
                    pairs.references[number], pairs.dtypes[value] = right, array.dtype
                    self._wrong_constants.add(number)
            elif not match.function and match.how != "equal":  # one that is equal has a point already
                shape = shape_text(recording.value(number).shape)
                message = f"{quoted(match.name)} is {shape}, but tensor {quoted(match.tensor)} has another shape."
                if difference := self._difference(number, value, match):
                    raise AlignmentError(f"{message} In its node, {difference}.", advice="Fix that, and export again.")
                raise AlignmentError(message, advice="Give the model the same inputs as the module.")
        return choices

    def _difference(self, number: int, value: int, match: Match) -> str:
        """Describe the attributes that provably differ between a submodule and the node of its output, if any do."""
        if match.function or self._graph.producer[value] < 0:
            return ""
        node = self._graph.nodes[int(self._graph.producer[value])]
        attributes, rank = self._attributes[match.path, match.call], self._recording.value(number).ndim
        values, texts = values_of(node), []
        is_zero = attributes.get("padding_mode", "zeros") == "zeros" and values.get("auto_pad", b"NOTSET") == b"NOTSET"
        operator, keys = _CHECKS.get(re.sub(r"[123]d$", "", match.cls), ("", ()))
        for key in keys if node.op_type == operator and node.domain in ("", "ai.onnx") and is_zero else ():
            name, default = ATTRIBUTES[key]
            target, got = _in_onnx(key, attributes.get(key), rank), values.get(name, default)
            got = got.decode(errors="replace") if isinstance(got, bytes) else got
            got = _in_onnx(key, got, rank) if name not in values or key == "dim" else got
            if target is not None and got is not None and not _equal(target, got):
                texts.append(f"{name} is {_text(got)} instead of {_text(target)}")
        return ", ".join(texts)

    @functools.cached_property
    def _attributes(self) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        pads = {function.value: function.numbers for function in self._recording.functions if function.name == "pad"}
        attributes = {(call.path, call.index): call.attributes for call in self._recording.calls}
        for call in self._recording.calls:
            sizes, padding = pads.get(call.inputs[0].value if call.inputs else -1, ()), call.attributes.get("padding")
            if sizes and isinstance(padding, Sequence) and 2 * len(padding) == len(sizes):
                whole = [*padding, *padding]  # with the pad before it, unless the export has that as a node
                whole = [size + more for size, more in zip(whole, [*sizes[-2::-2], *sizes[::-2]], strict=True)]
                is_node = ("Pad", "") in self._graph.operators
                attributes[call.path, call.index] = {**call.attributes, "padding": None if is_node else whole}
        return attributes

    def points(self, options: Iterable[Option]) -> Iterator[tuple[Option, int, str, Mapping[str, Any]]]:
        """Yield pairs in the order in which torch computed them, with what their points report."""
        graph = self._graph
        pairs = self.alignment.pairs(self._recording, graph)
        left = list(options)
        self._pairs = {option.reference: pairs[option.reference] for option in left}
        self._known = inputs_of(self._recording, graph) | {key: value for key, (value, _) in self._pairs.items()}
        self._operations = Operations(self._recording, graph, self._known, lambda _value, _number: False)
        names = {value: graph.value_names[value] for value in graph.inputs.tolist()}
        names |= {value: match.name for value, match in reversed(list(self._pairs.values()))}
        borders = set(self._known.values())
        path_of = self._candidates.path_of if self._candidates is not None else lambda _node: ""
        for depth, option in enumerate(left):
            value, match = self._pairs[option.reference]
            node = graph.nodes[int(graph.producer[value])] if graph.producer[value] >= 0 else None
            begins = self._begins(option.reference, borders)
            inside = self._paths_of(option.reference) if begins is not None else []
            drops = sorted(self._dropouts & self._operations.nodes_before(value, borders)) if self._dropouts else []
            dropouts = [path_of(drop) or graph.names[drop] for drop in drops]
            constant = f"the exporter computed it in advance, as the weight {quoted(match.tensor)}"
            about = {
                "op_type": match.function or match.cls,
                "scope": match.path,
                "source": match.source or (source_of(node) if node is not None else ""),
                "difference": self._difference(option.reference, value, match)
                or (f"{listed(dropouts, limit=4)} drops values, as in training" if dropouts else "")
                or (constant if option.reference in self._wrong_constants else ""),
                "between": tuple(names[tensor] for tensor in begins or ()),
                # those around it are no others
                "inside": tuple(dropouts or [p for p in inside if p and not f"{match.path}.".startswith(f"{p}.")]),
            }
            yield option, depth, match.name, about

    def paths(self, point: Point) -> list[str]:
        """Return the paths of the submodules that have operations in the region of a point."""
        names = self._graph.value_names
        number = next((other for other, value in self._known.items() if names[value] == point.candidate), -1)
        return list(dict.fromkeys((point.scope, *self._paths_of(number))))

    def _paths_of(self, number: int) -> list[str]:
        """Return the paths of the submodules that have operations in the region of a value."""
        _, inside = self._operations.starts(number, self._known)
        functions = (self._operations.maker.get(other) for other in (number, *inside))
        calls = self._recording.calls
        return list(dict.fromkeys(calls[function.call].path for function in functions if function is not None))

    @functools.cached_property
    def _dropouts(self) -> set[int]:
        """Nodes of Dropouts that were exported in training mode."""
        graph = self._graph
        nodes = (node for node in range(len(graph.nodes)) if graph.op_type(node) == "Dropout")
        return {node for node in nodes if np.any(constant_of(graph, node, 2))}

    def lacking(self, point: Point) -> list[str]:
        """Return what the export lacks of the submodules in the region of a point: all nodes, or some calls."""
        if self._candidates is None:
            return []
        rest = {self._recording.calls[at].path for at, (nodes, _) in enumerate(self._candidates.nodes) if nodes}
        paths = [path for path in point.inside if path not in rest and path not in self._normalized]
        places = [f"{path}." for path in point.inside]
        copies = self._candidates.copies.items()
        less = {path: calls for path, calls in copies if any(place.startswith(f"{path}.") for place in places)}
        less = {path: calls for path, calls in less.items() if path.rpartition(".")[0] not in less}
        counts = ", ".join(f"{quoted(path)} {few}× instead of {many}×" for path, (few, many) in [*less.items()][:4])
        texts = [f"no node of the export is from {listed(paths, limit=4)}"] if paths else []
        return [*texts, *([f"the export calls {counts}"] if counts else [])]

    def _begins(self, number: int, borders: set[int]) -> list[int] | None:
        """Return the known tensors before a value; ``None`` if only its submodule or function is between."""
        value, operations = self._known[number], self._operations
        roots, inside = operations.starts(number, self._known)
        there = operations.tensors_before(value, borders)
        here = {self._known[other] for other in roots if other >= 0}
        is_same = here <= there and operations.agree(here, there, is_whole=-1 not in roots)
        is_elsewhere = None if self._candidates is None else self._candidates.is_elsewhere
        is_own = is_same and not inside and operations.is_own(number, value, is_elsewhere)
        return None if is_own else sorted(here | there)

    def weight(self, name: str) -> NDArray[Any] | None:
        """Return a parameter of the module by its name."""
        return np.asarray(self._tensors[name].detach().cpu()) if name in self._tensors else None

    def weights_near(self, option: Option) -> list[str]:
        """Return the names of the parameters of the submodule of a pair."""
        path = self._pairs[option.reference][1].path
        return [name for name in self._tensors if name.rpartition(".")[0] == path]

    @functools.cached_property
    def _tensors(self) -> Mapping[str, torch.Tensor]:
        """Parameters and buffers that the export may have as they are."""
        if self._run is None:
            return {}
        module = self._run[0]
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        left_out = set() if ("BatchNormalization", "") in self._graph.operators else self._normalized
        return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[0] not in left_out}

    @functools.cached_property
    def _normalized(self) -> set[str]:
        """Paths of the submodules into whose weights a batch normalization may be folded: torch has other ones."""
        calls = self._recording.calls
        read = {call.inputs[0].value for call in calls if "BatchNorm" in call.cls and call.inputs}
        return {call.path for call in calls if any(slot.value in read for slot in call.outputs)}


_WINDOW: Final = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "groups")
_CHECKS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **{f"{name}Norm": (f"{name}Normalization", ("eps",)) for name in ("Layer", "RMS", "Batch", "Group", "Instance")},
    "GELU": ("Gelu", ("approximate",)),
    "LeakyReLU": ("LeakyRelu", ("negative_slope",)),
    "ELU": ("Elu", ("alpha",)),
    "CELU": ("Celu", ("alpha",)),
    **{name: (name, ("dim",)) for name in ("Softmax", "LogSoftmax")},
    "Conv": ("Conv", _WINDOW),
    "MaxPool": ("MaxPool", _WINDOW),
    "AvgPool": ("AveragePool", _WINDOW[:2]),  # padding may be a separate node
}
"""Class without its number of dimensions → its operator, and the attributes with the same meaning in both."""


def _in_onnx(key: str, value: Any, rank: int) -> Any:
    """Return an attribute of a module in the form of its operator, for tensors of this rank; None if it has none."""
    if key == "dim" and value is not None and rank:
        return value % rank
    if key not in ("kernel_size", "stride", "padding", "dilation") or value is None:
        return int(value) if isinstance(value, bool) else value
    sizes = [value] * (rank - 2) if isinstance(value, int) else list(value)
    return None if isinstance(value, str) else sizes * (2 if key == "padding" and len(sizes) == rank - 2 else 1)


def _equal(target: Any, got: Any) -> bool:
    if isinstance(target, float):  # ONNX stores it as float32
        return bool(np.isclose(np.float32(target), np.float32(got), rtol=1e-6, atol=0))
    return bool(target == got) or (isinstance(target, list) and len(target) != len(got))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return shape_text(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
