"""Histograms on a logarithmic axis that merge exactly: of errors, which span many magnitudes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.run.statistics import EMPTY, Histogram, Tally

Floats = NDArray[np.float64]

LARGEST: Final = float(np.finfo(np.float64).max)
LARGEST_CODE: Final = int(np.array(LARGEST).view(np.int64))
"""Its bit pattern, read as an integer."""
_CHUNK: Final = 1 << 15
"""Values taken at once."""


@dataclass(frozen=True, eq=False, repr=False)
class LogHistogram:
    """Counts of non-negative numbers in at most 128 bins, with as many bins per octave as fit.

    The bit pattern of a positive float64, read as an integer, grows with the number, by as much in every octave. Bins
    of one width of such integers are what a logarithmic axis needs, and merge exactly as those of `Histogram` do.

    Examples
    --------
    >>> found = LogHistogram.of(np.array([0, 1e-7, 2e-7, 1e-3]))
    >>> found.zeros, found.total, len(found.counts)
    (1, 4, 108)
    >>> found
    LogHistogram(4 values, 1 zero, in 108 bins from 9.68575e-08 to 0.00109863)
    """

    zeros: int = 0
    """Numbers that are exactly 0: a logarithmic axis has no place for them."""
    codes: Histogram = EMPTY
    """Of the bit patterns of all others."""

    @classmethod
    def of(cls, values: Any) -> LogHistogram:
        """Count numbers, which must not be negative or NaN."""
        flat = np.asarray(values, np.float64).ravel()
        counter = LogTally(flat.size)
        for start in range(0, flat.size, _CHUNK):
            chunk = flat[start : start + _CHUNK]
            some = chunk[chunk != 0]
            counter.add(np.minimum(some, LARGEST).view(np.int64), chunk.size - some.size)
        return counter.histogram()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Numbers in each bin, shape (n,); without those that are 0."""
        return self.codes.counts

    @property
    def edges(self) -> Floats:
        """Edges of the bins, ascending, shape (n + 1,); (1,) if there are no bins."""
        if not len(self.counts):
            return np.zeros(1)
        return self._ends(0, len(self.counts) + 1)

    @property
    def total(self) -> int:
        """How many numbers are counted, zeros included."""
        return self.zeros + self.codes.total

    def percentile(self, percent: float) -> float:
        """Return a percentile, to the width of a bin; NaN if there are no numbers.

        Examples
        --------
        >>> round(LogHistogram.of(np.arange(1, 1001)).percentile(50), -1)
        500.0
        """
        rank = self.total * percent / 100
        if not self.total:
            return math.nan
        if rank <= self.zeros:
            return 0.0
        below = np.cumsum(self.codes.counts)
        at = min(int(np.searchsorted(below, rank - self.zeros)), len(below) - 1)
        inside = (rank - self.zeros - (int(below[at - 1]) if at else 0)) / int(self.codes.counts[at])
        low, high = self._ends(at, at + 2).tolist()
        return float(low + (high - low) * min(max(inside, 0.0), 1.0))

    def _ends(self, start: int, stop: int) -> Floats:
        """Return some of the edges."""
        places = np.arange(self.codes.first + start, self.codes.first + stop)
        # the end of the last bin may exceed the largest number, and 64 bits
        last = LARGEST_CODE >> self.codes.exponent
        codes = np.minimum(places, last) << self.codes.exponent
        return np.where(places > last, np.int64(LARGEST_CODE), codes).view(np.float64)

    def merge(self, other: LogHistogram) -> LogHistogram:
        """Return the histogram of the numbers of both, exactly."""
        return LogHistogram(self.zeros + other.zeros, self.codes.merge(other.codes))

    __or__ = merge

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogHistogram):
            return NotImplemented
        return self.zeros == other.zeros and self.codes == other.codes

    def __hash__(self) -> int:
        return hash((self.zeros, self.codes))

    def __repr__(self) -> str:
        zeros = f", {self.zeros} zero{'' if self.zeros == 1 else 's'}" if self.zeros else ""
        if not len(self.counts):
            return f"LogHistogram({self.total} values{zeros})"
        edges = self.edges
        bins = f"{len(self.counts)} bin{'' if len(self.counts) == 1 else 's'}"
        return f"LogHistogram({self.total} values{zeros}, in {bins} from {edges[0]:g} to {edges[-1]:g})"


NOTHING: Final = LogHistogram()
"""Of no numbers."""


class LogTally:
    """Counts bit patterns of positive numbers."""

    def __init__(self, size: int) -> None:
        self._tally = Tally(size)
        self._zeros = 0

    def add(self, codes: NDArray[np.int64], zeros: int) -> None:
        """Count the patterns of some numbers, and how many others are 0."""
        self._zeros += zeros
        if codes.size:
            self._tally.add(codes, codes.min().item(), codes.max().item())

    def histogram(self) -> LogHistogram:
        """Return what was counted."""
        return LogHistogram(self._zeros, self._tally.histogram())
