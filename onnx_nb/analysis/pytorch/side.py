"""What torch computed, as a side of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.sides import Feed, Taker
    from onnx_nb.analysis.pytorch.record import Recording


class TorchSide:
    """The values of the `Recording` that a feed brings, by their numbers.

    ``shapes`` maps numbers to the shapes that the candidate has for the same elements.
    """

    def __init__(self, shapes: Mapping[int, tuple[int, ...]] | None = None) -> None:
        self._shapes = shapes or {}

    def steps(self, feed: Feed, wanted: frozenset[int], at: int, taker: Taker) -> Iterator[float]:
        """Pass on the wanted values of a feed in one step."""
        recording: Recording = feed.recorded
        for number in sorted(wanted):
            array = recording.value(number)
            taker.take(at, number, array.reshape(self._shapes.get(number, array.shape)), permanent=True)
        yield 1.0
