"""The error that each region of a model adds, in one session: the engine for torch modules and for other models.

The isolated error of a tensor is the error that its region adds, without the errors of everything before it. A region
is the nodes between reference tensors, whose correct values are known. All regions run in one session: a node that
reads a reference tensor reads a graph input of that name, which holds the correct value, while the node that produces
the tensor writes it under another name, as a graph output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, SparseTensorProto, helper

from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, classes_axis, lazy_errors
from onnx_nb.analysis.compare.thresholds import CONTRADICTED_ERROR, EXACT_ERROR, HARM_RATIO
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import Model, with_proto
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.submodel.assembly import weight_tensors, weights_of

_SUFFIX: Final = "__onnx"
"""Suffix of the name of a tensor that a region computes."""

_BATCH: Final = 1 << 26
"""Maximum number of bytes of the values and weights of regions that run in one session, if more than one has to."""

Array = NDArray[Any]
References = Mapping[int, Callable[[], Array]]


class Settings(NamedTuple):
    """Settings for running a model, and tolerances of errors."""

    rtol: float = RTOL
    atol: float = ATOL
    memory_limit: int = 1 << 30
    """Maximum number of bytes of values that are compared at a time."""
    feed: int = 0
    """Index of the feed, for the places of the worst errors."""

    def errors(self, reference: Array, candidate: Array, *, keep: bool, argmax: int | None = None) -> ErrorStats:
        """Return the errors of an array; with ``keep`` both arrays stay in memory until all statistics are computed."""
        compare = lazy_errors if keep else ErrorStats.of
        return compare(reference, candidate, rtol=self.rtol, atol=self.atol, argmax=argmax, feed=self.feed)


class Scale(NamedTuple):
    """Scale and zero point of integers that stand for real numbers."""

    scale: Any
    """A number or an array of them."""
    zero_point: Array

    def real(self, integers: Array) -> Array:
        """Return the numbers that integers stand for, in float32."""
        return np.asarray((integers.astype(np.float32) - self.zero_point.astype(np.float32)) * self.scale)

    def integers(self, real: Array) -> Array:
        """Return numbers as the nearest integers, as QuantizeLinear does."""
        dtype = self.zero_point.dtype
        limits = np.iinfo(dtype)
        nearest = np.rint(real.astype(np.float32) / self.scale) + self.zero_point.astype(np.float32)
        return np.asarray(np.clip(np.nan_to_num(nearest), limits.min, limits.max).astype(dtype))


def isolated_errors(
    graph: Graph,
    references: References,
    dtypes: Mapping[int, np.dtype[Any]],
    feeds: Mapping[str, Any],
    settings: Settings,
    *,
    keep: float,
    uncut: Collection[int] = (),
    scales: Mapping[int, Scale] | None = None,
    progress: Progress | None = None,
) -> dict[int, ErrorStats]:
    """Return the errors of each reference tensor when its region runs on reference values.

    ``references`` maps a tensor to a function that returns its correct value, ``dtypes`` to the type in the model,
    ``scales`` to its scale if it holds integers that stand for real numbers. No region begins at the tensors in
    ``uncut``. Statistics of at most ``keep`` bytes of arrays are computed when somebody reads them, the rest now. The
    tensors are divided, in the order in which they are computed, into batches that fit into memory.
    Regions that read a sequence or an absent optional of the feeds are left out.
    """
    arrays_of = {value: references[value] for value in references if value in dtypes}
    scales, outputs = scales or {}, set(graph.outputs.tolist())
    begins = arrays_of.keys() - uncut
    references = {value: array for value, array in arrays_of.items() if graph.producer[value] >= 0}
    tensors = {graph.value(name) for name, array in feeds.items() if hasattr(array, "dtype")} | begins

    def right(value: int) -> Array:
        if value not in arrays_of:
            return np.asarray(feeds[graph.value_names[value]])
        array = arrays_of[value]()
        if value in scales:
            return scales[value].integers(array)
        with np.errstate(over="ignore", invalid="ignore"):  # values beyond float16 are infinite there, too
            return array.astype(dtypes[value], copy=False)

    errors: dict[int, ErrorStats] = {}
    report = progress or (lambda _part, _what: None)
    # where no node is in a body that may not run, onnxruntime has already run each with these sizes
    is_safe = graph.main_count == len(graph.nodes) and not graph.model.proto.functions
    for values in _batches(graph, references, begins, tensors, min(_BATCH, settings.memory_limit)):
        many = count_text(len(values), "region")
        report(len(errors) / len(references), f"{many}, each on the reference's values (isolated=False: none)")
        nodes, inputs = nodes_between(graph, values, begins)
        arrays = {graph.value_names[value]: right(value) for value in inputs}
        model = _regions(graph, nodes, arrays, values, begins, has_sizes=True)
        create = functools.partial(sessions.create, optimize=False, transient=True, checked=is_safe)
        try:
            session = create(model)
        except OnnxNbError:  # onnxruntime checks known sizes also in branches of If that do not run
            session = create(_regions(graph, nodes, arrays, values, begins, has_sizes=False))
        ort_feeds = {name: sessions.to_value(array) for name, array in arrays.items()}
        results = sessions.run_values(session, ort_feeds, name=model.name)
        for value in values:
            name = graph.value_names[value]
            report(len(errors) / len(references), f"errors of {quoted(name)}")
            array = sessions.to_array(results.pop(name + _SUFFIX if value in begins else name))
            reference = references[value]()
            if array.shape == reference.shape:
                axis = classes_axis(reference) if value in outputs else None
                actual = scales[value].real(array) if value in scales else array
                is_lazy = reference.nbytes + actual.nbytes <= keep and not isinstance(reference, np.memmap)
                keep -= is_lazy * (reference.nbytes + actual.nbytes)
                errors[value] = settings.errors(reference, actual, keep=is_lazy, argmax=axis)
    return errors


def _batches(
    graph: Graph, references: References, begins: Collection[int], tensors: Collection[int], limit: int
) -> list[list[int]]:
    """Divide tensors, in order of execution, into batches that fit into memory; leave out those that read others."""
    batches: list[list[int]] = []
    weights, names = graph.model.initializers, graph.value_names
    cache: set[int] = set()
    nbytes = 0
    for value in sorted(references, key=lambda value: int(graph.rank[graph.producer[value]])):
        nodes, inputs = nodes_between(graph, [value], begins)
        if any(source not in tensors for source in inputs):
            continue
        read = set(weights_of(graph, nodes, ()))
        size = 2 * references[value]().nbytes
        new = size + sum(weights[names[weight]].nbytes for weight in read - cache)
        if batches and nbytes + new > limit:
            cache, nbytes = set(), 0
            new = size + sum(weights[names[weight]].nbytes for weight in read)
        if not nbytes:
            batches.append([])
        batches[-1].append(value)
        cache |= read
        nbytes += max(new, 1)
    return batches


def unconfirmed(
    graph: Graph, stats: Mapping[int, ErrorStats], doubtful: set[int], run: Callable[[], Mapping[int, ErrorStats]]
) -> set[int]:
    """Return the doubtful tensors that differ from the reference though all that is computed from them is right.

    ``run`` returns the errors of regions that begin at no doubtful tensor; called if any error is beyond rounding.
    """
    if not doubtful or all(errors.relative_error <= EXACT_ERROR for errors in stats.values()):
        return set()
    errors = run()
    sure = stats.keys() - doubtful
    worst: dict[int, float] = {}
    for end in errors.keys() & sure:
        nodes, _ = nodes_between(graph, [end], sure)
        for node in nodes:
            for value in graph.node_outputs(node).tolist():
                if value in doubtful:
                    worst[value] = max(worst.get(value, 0.0), errors[end].relative_error)
    here = {value: errors[value].relative_error for value in worst.keys() & errors.keys()}
    return {
        value
        for value, error in here.items()  # after a NaN on one side only, there are others unless the pair is wrong
        if error > CONTRADICTED_ERROR and worst[value] <= HARM_RATIO * error and np.isfinite(worst[value])
    }


def nodes_between(graph: Graph, ends: Iterable[int], begins: Collection[int]) -> tuple[set[int], list[int]]:
    """Return the nodes that compute ``ends`` from the nearest of ``begins``, and the tensors they read from outside."""
    flow = Flow.of(graph)
    nodes = flow.ancestors(ends, begins)
    read = {value for node in nodes for value in flow.reads(node)}
    is_open = {value for value in read if flow.producer[value] < 0 and flow.kinds[value] != INITIALIZER}
    return nodes, sorted(value for value in read if value in is_open or value in begins)


def _regions(
    graph: Graph, nodes: set[int], inputs: Mapping[str, Any], ends: list[int], begins: set[int], *, has_sizes: bool
) -> Model:
    """Return a model of the nodes in which every reference tensor is written under another name."""
    source, names = graph.model.proto, graph.value_names
    proto = ModelProto(ir_version=max(source.ir_version, 4), opset_import=source.opset_import)
    proto.functions.extend(source.functions)
    target = proto.graph
    target.name = f"regions of {graph.model.name}"
    for weight in weight_tensors(graph, weights_of(graph, nodes, ())):
        (target.sparse_initializer if isinstance(weight, SparseTensorProto) else target.initializer).append(weight)
    begin_names = {names[value] for value in begins}
    for node in sorted(nodes, key=lambda node: int(graph.rank[node])):
        copy = target.node.add()
        copy.CopyFrom(source.graph.node[node])
        copy.ClearField("metadata_props")
        for place, name in enumerate(copy.output):
            if name in begin_names:
                copy.output[place] = plain_text(name) + _SUFFIX
    for name, array in inputs.items():
        elem_type = int(helper.np_dtype_to_tensor_dtype(array.dtype))
        kind = helper.make_tensor_type_proto(elem_type, array.shape if has_sizes else [None] * array.ndim)
        target.input.add(name=name).type.CopyFrom(kind)
    for value in ends:
        target.output.add(name=names[value] + (_SUFFIX if value in begins else ""))
    return with_proto(graph.model, proto, target.name)
