"""Statistics and histograms of many tensors as columns: a table of 10,000 rows, or what a page knows without a kernel.

A row takes some hundred bytes: nine numbers and at most `statistics.BINS` counts, whose edges follow from two integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, shape_text
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.tensors import dtype_name
from onnx_nb.analysis.run.statistics import Statistics
from onnx_nb.analysis.view.columns import Columns

if TYPE_CHECKING:
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.analysis.run.capture import Capture

NUMBERS: Final = ("count", "nan", "posinf", "neginf", "zeros", "min", "max", "mean", "std")
"""Statistics of a tensor that are columns."""
_TEXTS: Final = ("name", "node", "op", "dtype", "shape", "source")
_ROW_BYTES: Final = 8 * (len(NUMBERS) + 4)


class Entry(NamedTuple):
    """One tensor."""

    value: int
    """Number in `Graph`; −1 if it is not in the graph."""
    name: str
    node: str
    """Name of the node that makes it."""
    op: str
    dtype: str
    shape: str
    """As "1×3×224"; empty if it varied."""
    nbytes: int
    statistics: Statistics | None
    """``None`` for what has no numbers."""
    source: str = ""
    """Where the numbers come from, in words."""


@dataclass(frozen=True, eq=False)
class Digest:
    """Statistics of some tensors."""

    entries: tuple[Entry, ...]
    left_out: int = 0
    """Tensors that did not fit."""

    def __repr__(self) -> str:
        more = f", {self.left_out} left out" if self.left_out else ""
        return f"Digest({len(self.entries)} tensors{more})"

    def columns(self, **about: Any) -> Columns:
        """Return everything as columns; ``frontend/protocol/capture.ts`` reads them, and plain JSON goes with them."""
        entries = self.entries
        found = [entry.statistics or Statistics() for entry in entries]
        histograms = [each.histogram for each in found]
        arrays: dict[str, Any] = {
            "value": np.asarray([entry.value for entry in entries], np.int32),
            "known": np.asarray([entry.statistics is not None for entry in entries], np.uint8),
            "nbytes": np.asarray([entry.nbytes for entry in entries], np.float64),
            "exponent": np.asarray([each.exponent for each in histograms], np.int32),
            "first": np.asarray([each.first for each in histograms], np.float64),
            "ptr": np.cumsum([0, *(len(each.counts) for each in histograms)]).astype(np.uint32),
            "bins": np.concatenate([np.zeros(0), *(each.counts for each in histograms)]).astype(np.float64),
        }
        arrays |= {name: np.asarray([float(getattr(each, name)) for each in found], np.float64) for name in NUMBERS}
        texts = {name: [getattr(entry, name) for entry in entries] for name in _TEXTS}
        return Columns.of(arrays, texts, {"left_out": self.left_out, **about})


def of_capture(capture: Capture) -> Digest:
    """Return the statistics of a capture, in order of execution."""
    values = capture.values
    source = f"captured, {count_text(capture.feeds, 'run')}"
    return Digest(
        tuple(
            Entry(
                value=values[row["name"]],
                name=row["name"],
                node=row["node"],
                op=row["op_type"],
                dtype=row["dtype"],
                shape="" if row["shape"] is None else shape_text(row["shape"]),
                nbytes=row["nbytes"],
                statistics=None if row["count"] is None else capture.statistics(row["name"]),
                source=source,
            )
            for row in capture.rows()
        )
    )


def of_weights(model: ModelLike, *, limit: int | None = None, progress: Progress | None = None) -> Digest:
    """Return the statistics of the weights, largest first, within ``limit`` bytes; broken weights have none."""
    loaded = load(model)
    graph = Graph.of(loaded)
    weights = sorted(loaded.initializers.values(), key=lambda info: -info.nbytes)
    total = sum(info.nbytes for info in weights) or 1
    entries: list[Entry] = []
    found: Statistics | None
    done = size = 0
    for info in weights:
        if limit is not None and size >= limit:
            break

        def read(part: float, done: int = done, nbytes: int = info.nbytes, name: str = info.name) -> None:
            if progress is not None:
                progress((done + part * nbytes) / total, f"Reading {name[:80]}, {bytes_text(nbytes)}")

        read(0.0)
        try:
            found = Statistics.of(loaded.tensor(info.name), progress=read)
        except OnnxNbError:  # its bytes are missing: `external_data.audit` says why
            found = None
        value = graph.value(info.name)
        shape = shape_text(info.shape)
        entries.append(Entry(value, info.name, "", "", dtype_name(info.dtype), shape, info.nbytes, found, "weight"))
        done += info.nbytes
        size += _ROW_BYTES + (0 if found is None else 8 * len(found.histogram.counts))
    return Digest(tuple(entries), len(weights) - len(entries))


def joined(parts: Iterable[Digest]) -> Digest:
    """Return the tensors of several digests, one after the other."""
    every = list(parts)
    entries = itertools.chain.from_iterable(part.entries for part in every)
    return Digest(tuple(entries), sum(part.left_out for part in every))
