"""The error that each region of a model adds by itself, with the errors of everything before it taken out.

A region is the nodes between reference tensors, whose right values are known. All regions run in one session: a node
that reads a reference tensor reads a graph input of that name, which holds the right value, while the node that makes
the tensor writes it under another name, as a graph output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnx_nb.analysis.compare.metrics import ATOL, RTOL, ErrorStats, LazyErrors
from onnx_nb.analysis.formatting import count_text, plain_text, quoted
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import with_proto
from onnx_nb.analysis.run import session as sessions

if TYPE_CHECKING:
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress

MEMORY: Final = 1 << 30
"""Bytes of values that are compared at once, unless the caller sets another limit."""

SMALL: Final = 1 << 25
"""Bytes of recorded values up to which a model runs in one session, and arrays are kept for `Settings.errors`."""


class Settings(NamedTuple):
    """How a model is run, and which errors are tolerated."""

    rtol: float = RTOL
    atol: float = ATOL
    providers: tuple[str, ...] | None = None
    memory_limit: int = MEMORY

    def errors(
        self, reference: NDArray[Any], candidate: NDArray[Any], *, keep: bool, argmax: int | None = None
    ) -> ErrorStats | LazyErrors:
        """Return the errors of an array; with ``keep`` both arrays stay in memory until all figures are computed."""
        compare = LazyErrors if keep else ErrorStats.of
        return compare(reference, candidate, rtol=self.rtol, atol=self.atol, argmax=argmax)


def nodes_between(graph: Graph, ends: Iterable[int], known: Callable[[int], bool]) -> tuple[set[int], list[int]]:
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
            if flow.producer[value] < 0 or known(value):
                inputs[value] = None
            else:
                todo.append(flow.producer[value])
    return nodes, [value for value in inputs if flow.kinds[value] != INITIALIZER]


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

    ``references`` has a function that returns the right value of a tensor, ``dtypes`` the type that the model computes.
    """
    regions = _Regions(graph, {value: references[value] for value in references if value in dtypes}, dtypes)
    found: dict[int, ErrorStats | LazyErrors] = {}
    report = progress or (lambda _done, _what: None)
    for values in regions.batches(settings.memory_limit):
        done = len(found) / len(regions.references)
        report(done, f"{count_text(len(values), 'region')}, each on torch's values")
        model, inputs = regions.model(values, feeds)
        session = sessions.create(model, optimize=False, providers=settings.providers, transient=True)
        given = {name: sessions.to_value(array) for name, array in inputs.items()}
        results = sessions.run_values(session, given, name=model.name)
        for value in values:
            name = graph.value_names[value]
            report(len(found) / len(regions.references), f"errors of {quoted(name)}")
            array = sessions.to_array(results.pop(_computed(name)))
            reference = regions.references[value]()
            if array.shape == reference.shape:
                found[value] = settings.errors(reference, array, keep=keep)
    return found


class _Regions:
    """Builds models in which each region reads reference values."""

    def __init__(
        self,
        graph: Graph,
        references: Mapping[int, Callable[[], NDArray[Any]]],
        dtypes: Mapping[int, np.dtype[Any]],
    ) -> None:
        self._graph, self._dtypes = graph, dtypes
        self.references = {value: read for value, read in references.items() if graph.producer[value] >= 0}

    def batches(self, limit: int) -> Iterator[list[int]]:
        """Divide the tensors, in the order in which they are computed, into batches that fit into memory."""
        rank, producer = self._graph.rank, self._graph.producer
        batch: list[int] = []
        nbytes = 0
        for value in sorted(self.references, key=lambda value: int(rank[producer[value]])):
            size = 2 * self.references[value]().nbytes
            if batch and nbytes + size > limit:
                yield batch
                batch, nbytes = [], 0
            batch.append(value)
            nbytes += size
        if batch:
            yield batch

    def model(self, values: Sequence[int], feeds: Mapping[str, Any]) -> tuple[Model, dict[str, NDArray[Any]]]:
        """Return the model of the regions that end in some tensors, and its inputs."""
        graph, source = self._graph, self._graph.model.proto
        names = graph.value_names
        nodes, inputs = nodes_between(graph, values, self.references.__contains__)
        proto = ModelProto(ir_version=max(source.ir_version, 4), opset_import=source.opset_import)
        proto.functions.extend(source.functions)
        target = proto.graph
        target.name = f"regions of {graph.model.name}"
        target.initializer.extend(source.graph.initializer)
        target.sparse_initializer.extend(source.graph.sparse_initializer)
        renamed = {names[value] for value in self.references}
        for node in sorted(nodes, key=lambda node: int(graph.rank[node])):
            made = target.node.add()
            made.CopyFrom(source.graph.node[node])
            made.ClearField("metadata_props")
            for place, name in enumerate(made.output):
                if name in renamed:
                    made.output[place] = _computed(plain_text(name))
        arrays = {names[value]: self._input(value, feeds) for value in inputs}
        for name, array in arrays.items():
            kind = helper.make_tensor_type_proto(int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
            target.input.add(name=name).type.CopyFrom(kind)
        for value in values:
            target.output.add(name=_computed(names[value]))
        return with_proto(graph.model, proto, target.name), arrays

    def _input(self, value: int, feeds: Mapping[str, Any]) -> NDArray[Any]:
        if value not in self.references:
            return np.asarray(feeds[self._graph.value_names[value]])
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite there, too
            return self.references[value]().astype(self._dtypes[value], copy=False)


def _computed(name: str) -> str:
    """Return the name of a tensor that a region computes."""
    return f"{name}__onnx"
