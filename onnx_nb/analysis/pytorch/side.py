"""What torch computed, as a side of a comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.compare.sides import Feed, Taker
from onnx_nb.analysis.errors import AlignmentError, FeedError
from onnx_nb.analysis.formatting import quoted
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.pytorch.record import Recording, record
from onnx_nb.analysis.run.feeds import validate_feeds
from onnx_nb.analysis.run.loop import Loop

if TYPE_CHECKING:
    import torch


class TorchSide:
    """The values of a `Recording`, by their numbers, which come with the feed.

    ``shapes`` maps numbers to the shapes that the candidate has for the same elements.
    """

    def __init__(self, shapes: Mapping[int, tuple[int, ...]] | None = None) -> None:
        self._shapes = shapes or {}

    def steps(self, feed: Feed, values: frozenset[int], at: int, taker: Taker) -> Iterator[float]:
        """Pass on the wanted values of a feed in one step."""
        for number in sorted(values):
            array = feed.recorded[number]
            taker.take(at, number, array.reshape(self._shapes.get(number, array.shape)), permanent=True)
        yield 1.0


def recorded_feed(number: int, inputs: Mapping[str, Any], recording: Recording, values: Collection[int]) -> Feed:
    """Return a feed that brings the wanted values of a recording."""
    return Feed(number, inputs, {value: recording.value(value) for value in values})


def later_feeds(
    module: torch.nn.Module | Recording,
    first: Recording,
    model: Model,
    values: Collection[int],
    more_args: Iterable[Any],
    *,
    memory_limit: int | None,
) -> Iterator[Feed]:
    """Record the module on further arguments, one after another, and yield the feed of each."""
    for number, arguments in enumerate(more_args, 1):
        if isinstance(module, Recording) and isinstance(arguments, Recording):
            recording = arguments
        elif not isinstance(module, Recording) and isinstance(arguments, tuple | list | Mapping):
            args, kwargs = ((), arguments) if isinstance(arguments, Mapping) else (tuple(arguments), None)
            recording = record(module, args, kwargs, functions=True, memory_limit=memory_limit)
        else:
            kind = "a recording" if isinstance(module, Recording) else "a tuple of arguments or a dict"
            message = f"more_args[{number - 1}] is {type(arguments).__name__}, not {kind}."
            raise AlignmentError(message, advice="Such as more_args=[(x2,), (x3,)].")
        if _outline(recording) != _outline(first):
            message = f"more_args[{number - 1}] leads to other calls in {first.cls} than the first arguments."
            raise AlignmentError(message, advice="Compare them by themselves: compare_torch(module, args, model=…).")
        yield recorded_feed(number, feeds_of(recording, model), recording, values)


def _outline(recording: Recording) -> list[object]:
    """Return which values each call and function read and returned."""
    calls = [(call.name, *(slot.value for slot in (*call.inputs, *call.outputs))) for call in recording.calls]
    return [*calls, *((function.name, function.value) for function in recording.functions)]


def feeds_of(recording: Recording, model: Model, feeds: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the model's inputs with the recorded arguments: by name, else in order; ``feeds`` instead if given.

    A decoder that reads caches is at its first step, where they are empty.
    """
    if feeds is not None:
        return validate_feeds(model, feeds)
    loop, graph = Loop(model), Graph.of(model)
    arrays = {graph.value_names[value]: recording.value(key) for key, value in inputs_of(recording, graph).items()}
    ids = arrays.get(loop.ids)
    if ids is not None and ids.ndim == 2 and not arrays.keys() >= loop.inputs.keys():
        arrays = loop.feeds(ids, loop.start(len(ids)), arrays.get("attention_mask"), arrays)
    if rest := [name for name in loop.inputs if name not in arrays and name not in model.initializers]:
        message = f"{recording.cls} has no argument for {', '.join(map(quoted, rest[:4]))} of {model.name}."
        advice = "Pass them as feeds=; a decoder with caches is compared by onnx_nb.compare_decoding(module, model)."
        raise FeedError(message, advice=advice)
    for name, array in arrays.items():
        target = loop.dtypes[name]
        # a float16 model runs on the arguments of the float32 module
        if target is not None and all(dtype.kind == "f" or "float" in dtype.name for dtype in (array.dtype, target)):
            arrays[name] = array.astype(target, copy=False)
    return validate_feeds(model, arrays)


def inputs_of(recording: Recording, graph: Graph) -> dict[int, int]:
    """Return the number of each recorded argument → the input of the graph that it is: by name, else in order."""
    arguments = {slot.label: slot.value for slot in recording.calls[0].inputs}
    inputs = {graph.value_names[value]: value for value in graph.inputs.tolist()}
    pairs = {arguments.pop(name): value for name, value in inputs.items() if name in arguments}
    others = (name for name in inputs if name not in graph.model.initializers)
    rest = (inputs[name] for name in others if inputs[name] not in pairs.values())
    return {**pairs, **dict(zip(arguments.values(), rest, strict=False))}
