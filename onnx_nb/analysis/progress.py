"""How long work tells how far it is, and how it is ended: what is called may raise, and then nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Progress = Callable[[float, str], None]
"""Is given the part done (0 … 1) and what is done next; what it raises ends the work."""


def stage(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """Return what a stage of the work reports to, which goes from one part of the whole to another.

    Examples
    --------
    >>> told = []
    >>> stage(lambda done, what: told.append((done, what)), 0.5, 1.0)(0.5, "reading b")
    >>> told, stage(None, 0.5, 1.0)
    ([(0.75, 'reading b')], None)
    """
    if progress is None:
        return None
    return lambda done, what: progress(begin + (end - begin) * done, what)


class Done:
    """Tells ``progress`` how far it is.

    Parameters
    ----------
    progress
        Of `capture`.
    total
        How many feeds there are; None if only the last of them tells.
    """

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self.progress = progress
        self._total = total

    def __call__(self, feeds: float, what: str) -> None:
        """Return how many feeds are done; of an unknown number the next one is taken for half of the rest."""
        if self.progress is not None:
            self.progress(min(feeds / self._total, 1.0) if self._total else 1 - 0.5**feeds, what)

    def all(self) -> None:
        """Report that all is done."""
        if self.progress is not None:
            self.progress(1.0, "done")


def count_of(feeds: Any) -> int | None:
    """Return how many feeds there are, as far as that can be told without reading them."""
    if feeds is None or isinstance(feeds, Mapping) or hasattr(feeds, "__array__"):
        return 1
    if isinstance(feeds, list | tuple):
        return len(feeds) if feeds and all(isinstance(feed, Mapping) for feed in feeds) else 1
    return None
