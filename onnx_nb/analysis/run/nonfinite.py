"""The first NaN or infinity of a run: the node that produced it, and its inputs (found by `Capture.nonfinite`)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from onnx_nb.analysis.formatting import quoted

if TYPE_CHECKING:
    from onnx_nb.analysis.run.statistics import Statistics


@dataclass(frozen=True, eq=False)
class NonFinite:
    """The first node that produced NaN or ±Inf from finite values."""

    node: str
    """Label of the node, as ``Log '/head/Log'``; empty if a graph input or weight holds the numbers."""
    name: str
    """Name of the tensor."""
    statistics: Statistics
    """Statistics of the tensor."""
    inputs: Mapping[str, Statistics]
    """Statistics of the node's inputs, weights included, as far as they were captured."""
    arrays: Mapping[str, NDArray[Any]]
    """Arrays of its inputs that were kept, and of weights."""

    @property
    def message(self) -> str:
        """The node, the counts, and the ranges of its inputs."""
        stats = self.statistics
        counts = [(stats.nan, "NaN"), (stats.posinf, "Inf"), (stats.neginf, "−Inf")]
        what = " and ".join(f"{count} {kind}" for count, kind in counts if count)
        if not self.node:
            return f"{quoted(self.name)} is given to the model with {what} of {stats.count} values."
        message = f"{self.node} makes {what} of {stats.count} values in {quoted(self.name)}"
        if not self.inputs:
            return f"{message}."
        read = []
        for name, entry in itertools.islice(self.inputs.items(), 6):
            span = f"{entry.min:g} … {entry.max:g}".replace("-", "−") if entry.finite else "no finite value"
            read.append(f"{quoted(name)} ({span})")
        return f"{message}, and its inputs are finite: {', '.join(read)}."

    def __repr__(self) -> str:
        return f"NonFinite({self.message})"
