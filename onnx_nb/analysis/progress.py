"""Progress callbacks. A callback may raise to cancel; the operation then cleans up after itself and lets it pass."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Progress = Callable[[float, str], None]
"""Called with the fraction done (0 … 1) and the next step; an error that it raises ends the work."""

_CALLS: Final = 200
"""Maximum number of calls of a callback for work that is counted in bytes."""
_EVERY: Final = 0.3
"""Seconds before the progress is drawn, and between two drawings."""
bars: Final[list[Callable[[], contextlib.AbstractContextManager[Progress | None]]]] = [contextlib.nullcontext]
"""The last one returns the progress bar of a cell or a terminal."""


def stage(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """Return a callback for one stage, which maps its 0 … 1 to ``begin`` … ``end`` of the whole work."""
    if progress is None:
        return None
    return lambda fraction, what: progress(begin + (end - begin) * fraction, what)


class CountedWork:
    """Reports work that is counted, in feeds or bytes, as a fraction of its total."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self.progress = progress
        self._total = total
        self._count = self._reported = 0

    def reached(self, count: float, what: str) -> None:
        """Report that ``count`` of the total are done."""
        if self.progress is not None:
            self.progress(1 - 0.5**count if self._total is None else min(count / max(self._total, 1), 1.0), what)

    def add(self, nbytes: int, what: str) -> None:
        """Count further bytes, and report them from time to time."""
        self._count += nbytes
        if self._count - self._reported >= (self._total or 0) / _CALLS:
            self._reported = self._count
            self.reached(self._count, what)

    def finished(self) -> None:
        """Report that all is done."""
        if self.progress is not None:
            self.progress(1.0, "done")


def count_of(feeds: Any) -> int | None:
    """Return the number of feeds; ``None`` if counting would require reading them."""
    if feeds is None or isinstance(feeds, Mapping) or hasattr(feeds, "__array__"):
        return 1
    if isinstance(feeds, list | tuple):
        return len(feeds) if feeds and all(isinstance(feed, Mapping) for feed in feeds) else 1
    return None


@contextlib.contextmanager
def shown_progress(draw: Progress, erase: Callable[[], object]) -> Iterator[Progress]:
    """Return a callback whose last report a thread draws, since a step may be silent for long; erase at the end."""
    latest: list[Any] = [0.0, "starting"]
    end = threading.Event()

    def watch() -> None:
        while not end.wait(_EVERY):
            draw(*latest)
        erase()

    thread = threading.Thread(target=watch)
    thread.start()
    bars.append(contextlib.nullcontext)  # none for the parts of the work
    try:
        yield lambda *report: latest.__setitem__(slice(None), report)
    finally:
        bars.pop()
        end.set()
        thread.join()
