"""The sides of a comparison: a model that runs, and arrays that are there already.

A side passes the values of a feed on to a `Taker`, some in each step, so that two models can run in turn. Whatever has
these methods is a side: `Running`, `Recorded`, and torch's recordings.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import Model, label_of
from onnx_nb.analysis.model.tensors import input_types, numpy_dtype
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.capture import Capture, capture, refuse_faults
from onnx_nb.analysis.run.feeds import validate_feeds
from onnx_nb.analysis.run.session import Value
from onnx_nb.analysis.run.value_recorder import contents
from onnx_nb.analysis.run.windows import Sink, Windows


class Feed(NamedTuple):
    """What both sides compute their values on."""

    number: int
    inputs: Mapping[str, Any]
    """In the form that the reference takes, if it runs, else the candidate."""
    recorded: Any = None
    """Values that a side which does not run computed on it, if that side does not hold those of all feeds."""


class Taker(Protocol):
    """Receives the values of both sides."""

    progress: Progress | None
    done: list[float]
    """Fraction of each side that has run."""

    def take(self, side: int, value: int, content: Any, *, permanent: bool = False) -> None:
        """Receive a value; a ``permanent`` array stays in memory anyway and does not change."""

    def nbytes(self) -> int:
        """Return the bytes that the taker keeps in memory."""


class Side(Protocol):
    """One of two sides."""

    def steps(self, feed: Feed, values: frozenset[int], at: int, taker: Taker) -> Iterator[float]:
        """Pass on the wanted values of a feed, some in each step; yield the fraction of the side that is done."""


class Running:
    """A model that runs on each feed, unoptimized so that no value is lost; if ``is_small``, in one session."""

    def __init__(self, model: Model, memory_limit: int, *, is_small: bool = False) -> None:
        self.graph: Final = Graph.of(model)
        self._memory_limit, self._is_small = memory_limit, is_small
        self._runs: tuple[frozenset[int], Windows, Mapping[int, int]] | None = None
        self._arrays: tuple[Feed, frozenset[int], Mapping[int, NDArray[Any]]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Running, is_small=self._is_small), (self.graph.model, self._memory_limit)

    def steps(self, feed: Feed, values: frozenset[int], at: int, taker: Taker) -> Iterator[float]:
        """Pass on the wanted values of a feed, some in each step; yield the fraction of the run that is done."""
        graph = self.graph
        weights = [value for value in values if graph.value_kind[value] == INITIALIZER]
        for value in weights:
            taker.take(at, value, graph.model.tensor(graph.value_names[value]), permanent=True)
        values = values.difference(weights)
        if self._is_small:
            for value, array in self.arrays(feed, values).items():
                taker.take(at, value, array, permanent=True)
            yield 1.0
        elif values:
            if self._runs is None or self._runs[0] != values:
                # as the model would run in one session, with the casts that onnxruntime inserts
                low, original = sessions.with_explicit_casts(graph, values)
                make = functools.partial(Windows, memory_limit=self._memory_limit)
                refuse_faults(graph, lambda: make(graph, values, reuse=False).runs)
                lowest = {value for value, source in original.items() if source in values}
                self._runs = values, make(low, lowest, reuse=True), original
            _, windows, sources = self._runs
            yield from windows.steps(fed(graph.model, feed.inputs), _SideSink(windows.graph, sources, at, taker))

    def arrays(self, feed: Feed, values: frozenset[int]) -> Mapping[int, NDArray[Any]]:
        """Return values of a feed, which stay in memory until the next one."""
        if self._arrays is None or self._arrays[0] is not feed or not values <= self._arrays[1]:
            arrays = _run_at_once(self.graph, fed(self.graph.model, feed.inputs), values)
            if not arrays and values:  # a run in windows names the node that fails
                names = {value: self.graph.value_names[value] for value in values}
                recording = capture(self.graph.model, dict(feed.inputs), tensors=names.values(), keep=names.values())
                arrays = {value: recording[name] for value, name in names.items() if name in recording.array_names}
            self._arrays = feed, values, arrays
        return self._arrays[2]


class Recorded:
    """The arrays of a `Capture`."""

    def __init__(self, capture: Capture) -> None:
        self.graph = Graph.of(capture.model)
        self.names = {self.graph.value(name): name for name in capture.array_names}
        self.feeds = capture.feeds
        self.label = f"the capture of {label_of(capture.model)}"
        self._capture = capture

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorded, (self._capture,)

    def steps(self, feed: Feed, values: Collection[int], at: int, taker: Taker) -> Iterator[float]:
        """Pass on the wanted values of a feed in one step."""
        for value in self.names:
            if value in values:
                taker.take(at, value, self.array(value, feed.number), permanent=True)
        yield 1.0

    def array(self, value: int, number: int) -> Any:
        """Return the array of a value for one feed."""
        return self._capture[(self.names[value], number) if self.feeds > 1 else self.names[value]]


def fed(model: Model, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a feed of the reference as the candidate takes it: by name, else by position, cast to its types."""
    kinds = input_types(model)
    names = [name for name in kinds if name not in model.initializers]
    if not set(names) <= set(feed):
        if len(names) != len(feed):
            missing = ", ".join(quoted(name) for name in names if name not in feed)
            message = f"{label_of(model)} also needs {missing}, which the reference does not have."
            raise FeedError(message, advice="Give its value: constants={name: value}, or --constant NAME=VALUE.")
        feed = dict(zip(names, feed.values(), strict=True))
    inputs = {}
    for name in filter(kinds.__contains__, feed):
        array = feed[name]
        dtype = numpy_dtype(kinds[name].tensor_type.elem_type) if kinds[name].HasField("tensor_type") else None
        if isinstance(array, np.ndarray) and dtype is not None and array.dtype != dtype and array.dtype.kind != "O":
            array = array.astype(dtype)  # a model in float16 takes float16
        inputs[name] = array
    try:
        return validate_feeds(model, inputs)
    except FeedError as error:
        message = f"the candidate, {label_of(model)}, does not take the feeds of the reference: {error.message}"
        raise FeedError(message, advice=error.advice) from None


def _run_at_once(graph: Graph, inputs: Mapping[str, Any], values: Collection[int]) -> dict[int, NDArray[Any]]:
    """Return the wanted tensors from one session, in half the time of several; empty if that fails."""
    names = {graph.value_names[value]: value for value in values if graph.producer[value] >= 0}
    if not names or any(not isinstance(array, np.ndarray) for array in inputs.values()):
        return {}
    try:
        session = sessions.create(graph.model, optimize=False, outputs=names, transient=True)
        ort_values = {name: sessions.to_value(array) for name, array in inputs.items()}
        outputs = sessions.run_values(session, ort_values, name=graph.model.name)
    except OnnxNbError:
        return {}
    is_array = {name for name, value in outputs.items() if value is not None and value.is_tensor()}
    return {value: sessions.to_array(outputs[name]) for name, value in names.items() if name in is_array}


class _SideSink(Sink):
    """Passes on the values of one side's windows."""

    def __init__(self, graph: Graph, original: Mapping[int, int], at: int, taker: Taker) -> None:
        self._graph, self._original, self._at, self._taker = graph, original, at, taker

    def before(self, nodes: Sequence[int], share: float) -> None:  # noqa: ARG002
        if self._taker.progress is not None:
            self._taker.progress(sum(self._taker.done) / 2, self._graph.node_labels(nodes))

    def held(self) -> int:
        return self._taker.nbytes()

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:  # noqa: ARG002
        self._taker.take(self._at, self._original[value], contents(found)[1])
