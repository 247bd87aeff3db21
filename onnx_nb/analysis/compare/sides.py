"""The sides of a comparison: a model that runs, and arrays that are there already.

A side passes the values of a feed on to a `Taker`, some in each step, so that two models can run in turn. Whatever has
these methods is a side: `Running`, `Recorded`, and torch's recordings. Of arrays that any runtime computed, the other
side's model says what their names mean.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.compare.metrics import kind_of
from onnx_nb.analysis.errors import AlignmentError, FeedError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, quoted
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.names import INITIALIZER
from onnx_nb.analysis.model.model import Model, label_of
from onnx_nb.analysis.model.tensors import fits, input_types, listed, numpy_dtype
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.run import session as sessions
from onnx_nb.analysis.run.capture import Capture, capture, refuse_faults
from onnx_nb.analysis.run.feeds import entries_of, read_arrays, read_pb, validate_feeds, viewed
from onnx_nb.analysis.run.session import Value
from onnx_nb.analysis.run.value_recorder import contents
from onnx_nb.analysis.run.windows import Sink, Windows

_FILES: Final = (".npz", ".npy")
Arrays = Mapping[str, NDArray[Any]]
Dump = Arrays | Iterable[Arrays] | str | os.PathLike[str]
"""Arrays by name, one mapping for each feed; or a file or folder of them."""


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


def is_dump(source: object) -> TypeGuard[Dump]:
    """Return whether a side of a comparison is arrays, or a path of arrays and not of a model."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return path.suffix in _FILES or os.path.isdir(path)  # noqa: PTH112  # Path.is_dir raises if it is too long
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(element, Mapping) for element in source)
    return isinstance(source, Mapping | Iterator)


class Dumped(Recorded):
    """Arrays whose names are those of a model's values."""

    def __init__(
        self, model: Model, arrays: Sequence[Arrays], label: str, names: Mapping[int, str], last: Collection[str] = ()
    ) -> None:
        self.graph, self.feeds, self.label = Graph.of(model), len(arrays), label
        self.names = dict(names)
        self._arrays, self._channels_last = arrays, frozenset(last)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dumped, (self.graph.model, self._arrays, self.label, self.names, self._channels_last)

    def array(self, value: int, number: int) -> Any:
        """Return the array of a value for one feed, with its channels where the model has them."""
        name = self.names[value]
        array = viewed(np.asarray(self._arrays[number][name]), self.graph.type_of(value).proto)
        if array.dtype == "V2":  # of no type of the model
            array = array.view(ml_dtypes.bfloat16)
        return np.moveaxis(array, -1, 1) if name in self._channels_last else array


def dumped(graph: Graph, values: Mapping[str, int], source: Dump) -> tuple[Dumped, dict[str, str], list[str]]:
    """Find the values of a graph that arrays are named after.

    A name may have other characters in place of signs, as in the name of a file, or be that of a node with one output.
    Also return the reasons why other arrays are not compared, by name, and notes on what differs from the model.
    """
    arrays, label = _read(source)
    names, unfit = _named(graph, values, arrays, label)
    side = Dumped(graph.model, arrays, label, names)
    other_kind, flags = dict[str, str](), dict[str, bool | None]()
    by_types: dict[str, list[str]] = {}
    for value, name in names.items():
        array, kind = side.array(value, 0), graph.type_of(value)
        dtype = numpy_dtype(kind.elem_type)
        if dtype is not None and kind_of(dtype.name) != kind_of(array.dtype.name):
            other_kind[name] = f"it is {array.dtype.name}, and {dtype.name} in {label_of(graph.model)}"
            continue
        if dtype is not None and dtype != array.dtype and dtype.kind != "O":
            by_types.setdefault(f"{array.dtype.name} instead of {dtype.name}", []).append(name)
        if kind.shape is not None and array.ndim > 2:
            straight, is_last = fits(kind.shape, array.shape), fits(kind.shape, np.moveaxis(array, -1, 1).shape)
            flags[name] = None if straight and is_last else is_last
    votes = {flag for flag in flags.values() if flag is not None}
    # as many channels as rows and columns: as in all the others
    last = [name for name, flag in flags.items() if flag or (flag is None and votes == {True})]
    matches = {value: name for value, name in names.items() if name not in other_kind}
    notes = [f"{_few(last, len(matches), label)} channels last, turned to compare."] if last else []
    notes += [f"{_few(several, len(matches), label)} {text}." for text, several in by_types.items()]
    return Dumped(graph.model, arrays, label, matches, last), unfit | other_kind, notes


def _few(names: Sequence[str], count: int, label: str) -> str:
    several = f"{'all ' if len(names) == count else ''}{len(names)} arrays, such as {quoted(names[0])}"
    return f"In {label}, {several if len(names) > 1 else quoted(names[0])}:"


def _named(
    graph: Graph, values: Mapping[str, int], arrays: Sequence[Arrays], label: str
) -> tuple[dict[int, str], dict[str, str]]:
    """Return the name of the array of each value, and the reasons why others have none."""
    nodes = {name: graph.node_outputs(node).tolist() for node, name in enumerate(graph.names[: graph.main_count])}
    alone = {name: outs[0] for name, outs in nodes.items() if name and len(outs) == 1 and outs[0] in values.values()}
    plain = followers((_plain(name), value) for name, value in values.items())
    names: dict[int, str] = {}
    unknown: dict[str, str] = {}
    every = dict.fromkeys(name for feed in arrays for name in feed)
    for name in sorted(every, key=lambda name: name not in values):  # exact names first
        several = plain.get(_plain(name), [])
        value = values.get(name, several[0] if len(several) == 1 else -1)
        if value < 0 and not several and alone.get(name, -1) not in names:
            value = alone.get(name, -1)
        lacking = [number for number, feed in enumerate(arrays) if name not in feed]
        if value in names:
            both = f"{quoted(names[value])} and {quoted(name)}"
            message = f"{both} of {label} are both {quoted(graph.value_names[value])} of the model."
            raise AlignmentError(message, advice="Leave out one of them.")
        if lacking:
            message = f"{quoted(name)} of {label} is missing in feed {lacking[0]}."
            raise AlignmentError(message, advice="Give the same names for every feed.")
        if value >= 0:
            names[value] = name
            continue
        of = label_of(graph.model)
        unknown[name] = f"{of} has no tensor of that name"
        if several:
            unknown[name] = f"{of} has several of such a name: {listed(quoted(graph.value_names[v]) for v in several)}"
    if not names:
        message = f"no array of {label} has the name of a tensor of {label_of(graph.model)}."
        raise AlignmentError(message, advice=closest_text(next(iter(every)), values) or "See model.tensor_names().")
    return names, unknown


def _plain(name: str) -> str:
    """Return a name as runtimes write it that allow letters and digits only: "/a/MatMul_output_0" and "a.MatMul:0"."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _read(source: Dump) -> tuple[list[Arrays], str]:
    feeds: list[Arrays]
    if isinstance(source, str | os.PathLike):
        feeds, label = [_from_path(Path(source))], Path(source).name
    else:
        feeds, label = [source] if isinstance(source, Mapping) else list(source), "the dump"
    for arrays in feeds:
        if not isinstance(arrays, Mapping):
            message = f"an element of {label} is {type(arrays).__name__}, not a dict of arrays."
            raise AlignmentError(message, advice="Give a dict of numpy arrays for each feed.")
        for name, array in arrays.items():
            if not hasattr(array, "__array__"):
                message = f"{quoted(str(name))} in {label} is {type(array).__name__}, not an array."
                raise AlignmentError(message, advice="Give a dict of numpy arrays by the names of tensors.")
    if not any(feeds):
        raise AlignmentError(f"{label} has no arrays.", advice="Dump the values of the tensors to compare.")
    return feeds, label


def _from_path(path: Path) -> dict[str, NDArray[Any]]:
    """Read a .npz file, a .npy file named after its tensor, or a folder of .npy and .pb files."""
    if path.suffix == ".npz":
        return read_arrays(path)
    files = [path] if path.suffix == ".npy" else [file for file in entries_of(path) if file.suffix in (".npy", ".pb")]
    arrays: dict[str, NDArray[Any]] = {}
    for file in files:
        title, array = ("", read_arrays(file)[""]) if file.suffix == ".npy" else read_pb(file, None)
        name = title or file.stem
        if name in arrays:
            message = f"{quoted(str(path))} has two arrays called {quoted(name)}."
            raise AlignmentError(message, advice="Leave out one of them.")
        arrays[name] = array
    return arrays


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
    def __init__(self, graph: Graph, original: Mapping[int, int], at: int, taker: Taker) -> None:
        self._graph, self._original, self._at, self._taker = graph, original, at, taker

    def before(self, nodes: Sequence[int], share: float) -> None:  # noqa: ARG002
        if self._taker.progress is not None:
            self._taker.progress(sum(self._taker.done) / 2, self._graph.node_labels(nodes))

    def held(self) -> int:
        return self._taker.nbytes()

    def record(self, value: int, found: Value | None, index: tuple[int, ...]) -> None:  # noqa: ARG002
        self._taker.take(self._at, self._original[value], contents(found)[1])
