"""What torch computed, as a side of a comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.compare.sides import Feed
from onnx_nb.analysis.errors import AlignmentError
from onnx_nb.analysis.pytorch.align import feeds_of
from onnx_nb.analysis.pytorch.record import Recording, record

if TYPE_CHECKING:
    import torch

    from onnx_nb.analysis.compare.sides import Taker
    from onnx_nb.analysis.model.model import Model


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
