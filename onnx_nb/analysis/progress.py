"""How long work tells how far it is, and how it is ended: what is called may raise, and then nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Is given the part done (0 … 1) and what is done next; what it raises ends the work."""


def stage(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """Give what a stage of the work reports to, which goes from one part of the whole to another.

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
