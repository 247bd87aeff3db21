"""Ranges for quantization: thresholds from merged statistics, and the calibration cache of onnxruntime."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from onnx_nb.analysis import results
from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import CaptureError, OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, decibels_text, number_text, quoted, share_text
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load
from onnx_nb.analysis.model.save import destination, together, working_folder
from onnx_nb.analysis.model.saved import read_json, reading
from onnx_nb.analysis.model.tensors import listed
from onnx_nb.analysis.run.capture import Capture
from onnx_nb.analysis.run.statistics import EMPTY, Histogram, Ranges, Statistics, quantile

Method = Literal["minmax", "percentile", "entropy", "mse"]
FLOATS: Final = ("float32", "float16", "bfloat16", "float64")
"""Types of tensors that are calibrated."""

_METHODS: Final[Mapping[str, str]] = {
    "minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy", "mse": "MSE",
}  # fmt: skip
"""Our names → the members of onnxruntime's ``CalibrationMethod``, which has no MSE."""
_FRACTIONS: Final = tuple(np.arange(1, 0.2, -0.02).tolist())
"""Fractions of the extremes at which "mse" looks for the ends."""
_INSIDE: Final = 8
"""Values that stand for those of a bin, to find out how they are rounded."""
LINES: Final = 10
"""Ranges that the text of a `Calibration` lists."""
PERCENTILE, LEVELS = 99.999, 128
"""What `calibrate` takes by default."""


@known_arguments
def calibrate(
    capture: Capture,
    method: Method = "minmax",
    *,
    percentile: float = PERCENTILE,
    symmetric: bool = False,
    levels: int = LEVELS,
    bins: int = LEVELS,
) -> Calibration:
    """Compute the range of each float tensor for quantization, from the statistics of a capture.

    Parameters
    ----------
    capture
        As `onnx_nb.capture` returns it.
    method
        "minmax": the extremes. "percentile": clips the same share on both sides. "entropy": the range
        about 0 whose values, quantized, have the distribution nearest to that of all values, as onnxruntime
        finds it in our histogram; with as many bins as levels, its default, it clips nothing. "mse": the range of the
        largest `Range.sqnr`. All but the first need ``capture(…, ranges=True)``.
    percentile
        Percent of values that "percentile" keeps.
    symmetric
        Whether ranges are symmetric about 0.
    levels
        Levels that "entropy" quantizes to.
    bins
        Bins of the histogram about 0 in which "entropy" looks for a range, onnxruntime's ``num_bins``. Its time grows
        with their square.

    Returns
    -------
    Calibration

    Raises
    ------
    CaptureError
        If the capture was made without ``ranges=True``, or has no float tensor.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb.analysis.run.capture import capture
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Exp(x) }'
    >>> feeds = [{"x": np.array(each, np.float32)} for each in ((0, -1), (0.5, 3))]
    >>> found = calibrate(capture(onnx.parser.parse_model(text), feeds))
    >>> found["x"].low, found["x"].high
    (-1.0, 3.0)
    """
    if method not in _METHODS:
        raise CaptureError(f"there is no method {quoted(method)}.", advice=f"There are: {', '.join(_METHODS)}.")
    if not 50 < percentile <= 100:
        raise CaptureError(f"percentile is {percentile:g}.", advice="It is more than 50, and at most 100.")
    if levels < 4:
        raise CaptureError(f"levels is {levels}.", advice="8 bits have 256, of which TensorRT uses 128 about zero.")
    subgraphs = Graph.of(capture.model).value_subgraph
    floats = {
        row["name"]: stats
        for row in capture.rows()
        if row["dtype"] in FLOATS and subgraphs[capture.values[row["name"]]] == 0
        if (stats := capture.statistics(row["name"])).finite
    }
    ranges = {}
    for name, stats in floats.items():
        if method != "minmax" and not isinstance(stats, Ranges):
            message = f"a {method} needs more than the statistics of this capture."
            raise CaptureError(message, advice="Capture with ranges=True.")
        least, most = float(stats.min), float(stats.max)
        low, high = _ends(stats, method, percentile, symmetric=symmetric, levels=levels, bins=bins)
        lows, highs = (stats.lows, stats.highs) if isinstance(stats, Ranges) else ((), ())
        fine = stats.fine if isinstance(stats, Ranges) else stats.histogram
        outside = 0.0 if low <= least and high >= most else 1 - _share(fine, low, high)
        sqnr = _sqnr(fine, stats.zeros, low, high)
        ranges[name] = Range(name, low, high, least, most, outside, sqnr, stats.nonfinite, lows, highs, stats.histogram)
    if not ranges:
        raise CaptureError("no float tensor with finite values was captured.", advice="Capture with other tensors=.")
    return Calibration(method, ranges, capture.model)


@dataclass(frozen=True)
class Range:
    """The range of a tensor."""

    name: str
    low: float
    """Values below it are clipped."""
    high: float
    min: float = math.nan
    """Minimum of all values; NaN if the range is from a file."""
    max: float = math.nan
    clipped: float = math.nan
    """Share of values outside the range, to the accuracy of the histogram; NaN if the range is from a file."""
    sqnr: float = math.nan
    """Signal to quantization noise in dB with 256 levels over the range, to the accuracy of the histogram."""
    nonfinite: int = 0
    """Number of NaN and infinite values, which count for no range."""
    channel_lows: tuple[float, ...] = ()
    """Minimum of each channel, if the capture was made with ``ranges=True``."""
    channel_highs: tuple[float, ...] = ()
    counts: Histogram = EMPTY
    """Histogram of all values."""

    @property
    def histogram(self) -> Histogram:
        """The histogram of all values, with the ends of the range as `Histogram.marks`."""
        return replace(self.counts, marks={"low": self.low, "high": self.high})

    @property
    def message(self) -> str:
        """The range, what it clips, and what is left with 8 bits."""
        low, high, least, most = (number_text(x, 3) for x in (self.low, self.high, self.min, self.max))
        text = f"{quoted(self.name)}: {low} … {high}"
        if math.isnan(self.clipped):
            return text
        share = f"{share_text(self.clipped)} of values from {least} to {most}" if self.clipped else "nothing"
        return f"{text} clips {share}, SQNR {decibels_text(self.sqnr)} with 8 bits"


class Calibration(results.Table, results.Displayed):
    """The range of each tensor of a model, by name. Made by `Capture.calibrate`, or by `load` from a file."""

    def __init__(self, method: str, ranges: Mapping[str, Range], model: Model | None = None) -> None:
        self.method: Final = method
        """"minmax", "percentile", "entropy", or "" if a file does not say."""
        self._ranges = dict(ranges)
        self._model = model

    def __getitem__(self, name: str) -> Range:
        entry = self._ranges.get(name)
        if entry is None:
            raise OnnxNbError(f"tensor {quoted(str(name))} has no range.", advice=closest_text(str(name), self._ranges))
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._ranges

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __repr__(self) -> str:
        return f"Calibration({count_text(len(self), 'range')}{', ' if self.method else ''}{self.method})"

    def __str__(self) -> str:
        """Return the message, and the ranges that lose most."""
        groups = self.distinct
        lines = [f"  {entry.message}" + (f"; also {listed(rest)}" if rest else "") for entry, rest in groups[:LINES]]
        more = [f"  … and {len(groups) - LINES} more"] if len(groups) > LINES else []
        return "\n".join([self.message, *lines, *more])

    @property
    def worst(self) -> list[Range]:
        """The ranges, those first with which 8 bits lose most."""
        return sorted(self._ranges.values(), key=lambda entry: math.inf if math.isnan(entry.sqnr) else entry.sqnr)

    @property
    def distinct(self) -> list[tuple[Range, list[str]]]:
        """The ranges in the order of `worst`, each once, with the names of other tensors that have the same values."""
        groups = followers(((x.low, x.high, str(x.min), str(x.max), str(x.sqnr), x.counts), x) for x in self.worst)
        return [(first, [entry.name for entry in others]) for first, *others in groups.values()]

    @property
    def message(self) -> str:
        """How many ranges there are and clip values, which one loses most, and which tensors have none."""
        text = f"{_METHODS.get(self.method, 'Loaded')} ranges of {count_text(len(self), 'tensor')}"
        clipping = sum(entry.clipped > 0 for entry in self._ranges.values())
        text += f", {clipping} of which clip values." if clipping else "."
        first = next(iter(self.worst), None)
        if first is not None and not math.isnan(first.sqnr):
            text += f" 8 bits lose most in {quoted(first.name)}."
        if missing := self.missing:
            text += f" {count_text(len(missing), 'float tensor')} of the model without a range: {listed(missing)}."
        return text

    _columns = ("name", "low", "high", "min", "max", "clipped", "sqnr", "nonfinite", "channels")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each tensor: range, extremes, share that is clipped, SQNR of 8 bits, number of channels."""
        return [
            {name: getattr(entry, name) for name in self._columns[:-1]} | {"channels": len(entry.channel_lows)}
            for entry in self._ranges.values()
        ]

    def _still(self) -> results.Still:
        rows = [
            (
                listed([entry.name, *others], str, 3),
                *("" if math.isnan(x) else number_text(x, 4) for x in (entry.low, entry.high, entry.min, entry.max)),
                "" if math.isnan(entry.clipped) else share_text(entry.clipped),
                "" if math.isnan(entry.sqnr) else decibels_text(entry.sqnr),
            )
            for entry, others in self.distinct
        ]
        heads = ("Tensor", "Low", "High", "Min", "Max", "Clipped", "SQNR, 8 bits")
        steps = (
            '`.save("cache.json")` writes them for `quantize_static(calibration_cache_path=…)`.',
            "`onnx_nb.plot_histogram(calibration, name)` draws another; of a capture, the range of each method.",
        )
        worst = next((entry.name for entry in self.worst[:1] if len(entry.counts.counts)), "")
        tables = (results.StillTable(heads, rows, "range"),)
        return results.Still(self.message, tables=tables, steps=steps if worst else (), histogram_of=worst)

    @property
    def missing(self) -> list[str]:
        """Names of float tensors of the model that have no range; empty if the model is not known."""
        if self._model is None:
            return []
        graph = Graph.of(self._model)
        return [
            name
            for value, name in enumerate(graph.value_names)
            if graph.value_subgraph[value] == 0
            and name not in self._ranges
            and name not in self._model.initializers
            and graph.type_of(value).dtype in FLOATS
            and not graph.constant_values[value]
        ]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the ranges as onnxruntime's calibration cache, and return the path.

        Parameters
        ----------
        path
            A ``.json`` file, for ``quantize_static(…, calibration_cache_path=path, calibrate_method=…)`` with the same
            method.

        Raises
        ------
        OnnxNbError
            If the suffix is another, or this onnxruntime has no calibration caches.
        ModelFileError
            If the file cannot be written.
        """
        place = _json_path(path)
        try:
            from onnxruntime.quantization import calibrate
            from onnxruntime.quantization.calibrate import save_tensors_data
        except ImportError as error:
            message = "this onnxruntime has no calibration caches."
            raise OnnxNbError(message, advice="Upgrade it: pip install -U onnxruntime") from error
        tensors = {
            tensor.name: calibrate.TensorData(lowest=np.array(tensor.low, "f4"), highest=np.array(tensor.high, "f4"))
            for tensor in self._ranges.values()
        }
        label = _METHODS.get(self.method, "MinMax")
        method = calibrate.CalibrationMethod[label if label in calibrate.CalibrationMethod.__members__ else "MinMax"]
        with working_folder() as folder, together() as files:
            save_tensors_data(calibrate.TensorsData(method, tensors), folder / "cache.json")
            files.add(destination(place), [(folder / "cache.json").read_bytes()])
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: ModelLike | None = None) -> Calibration:
        """Read a calibration cache of onnxruntime, or the ``calibration.json`` of its ``write_calibration_table``.

        Parameters
        ----------
        path
            A ``.json`` file.
        model
            The model that the table has to fit.

        Raises
        ------
        OnnxNbError
            If the table is that of another model: it has names that are no tensors of this one.
        ModelFileError
            If the file cannot be read.
        """
        place = _json_path(path)
        with reading(place, "a calibration table"):
            method, ranges = _read(read_json(place))
        odd = [name for name, (low, high) in ranges.items() if not -math.inf < low <= high < math.inf]
        if odd or not ranges:
            wrong = f"finite range of {listed(odd)}" if odd else "range"
            raise OnnxNbError(f"{quoted(str(place))} has no {wrong}.", advice="Calibrate again.")
        source = None if model is None else load(model)
        names = set(ranges) if source is None else set(Graph.of(source).value_names)
        if source is not None and (unknown := [name for name in ranges if name not in names]):
            many = f"{len(unknown)} of its {count_text(len(ranges), 'name')}"
            message = f"{quoted(str(place))} is of another model: {label_of(source)} has no tensor of {many}, such as"
            raise OnnxNbError(f"{message} {quoted(unknown[0])}.", advice=closest_text(unknown[0], names))
        return cls(method, {name: Range(name, low, high) for name, (low, high) in ranges.items()}, source)


def _json_path(path: str | os.PathLike[str]) -> Path:
    place = Path(path)
    if place.suffix != ".json":
        raise OnnxNbError(f"{quoted(str(place))} is no calibration cache of onnxruntime.", advice="Use .json.")
    return place


def _read(cache: dict[str, Any]) -> tuple[str, dict[str, tuple[float, float]]]:
    """Read what onnxruntime's ``save_tensors_data`` or ``write_calibration_table`` wrote."""
    has_method = "data" in cache and "calibration_method" in cache
    method = str(cache["calibration_method"].get("value", "")).rpartition(".")[2] if has_method else ""
    names = {label: key for key, label in _METHODS.items()}

    def number(value: Any) -> float:
        return float(np.asarray(value["data"] if isinstance(value, dict) else value).reshape(()))

    tensors = cache["data"] if has_method else cache
    ranges = {str(name): (number(ends["lowest"]), number(ends["highest"])) for name, ends in tensors.items()}
    return names.get(method, ""), ranges


# --- thresholds -----------------------------------------------------------------------------------------------------


def marked_histogram(capture: Capture, name: str) -> Histogram:
    """Return the histogram of a value; after ``capture(…, ranges=True)`` with each method's range as marks.

    `Histogram.marks` are "entropy low", "entropy high" and so on, with the default options of `calibrate`.
    """
    statistics = capture.statistics(name)
    marks: dict[str, float] = {}
    for method in _METHODS if isinstance(statistics, Ranges) and statistics.finite else ():
        low, high = _ends(statistics, method, PERCENTILE, symmetric=False, levels=LEVELS, bins=LEVELS)
        marks |= {f"{method} low": low, f"{method} high": high}
    return replace(statistics.histogram, marks=marks)


def _ends(
    stats: Statistics, method: str, percentile: float, *, symmetric: bool, levels: int, bins: int
) -> tuple[float, float]:
    least, most = float(stats.min), float(stats.max)
    low, high = least, most
    if isinstance(stats, Ranges) and method == "percentile":
        low, high = _percentiles(stats.fine, percentile, symmetric=symmetric)
    elif isinstance(stats, Ranges) and method == "entropy":
        low, high = entropy_range(stats.fine, levels, bins)
    elif isinstance(stats, Ranges) and method == "mse":
        fine, zeros = stats.fine, stats.zeros
        low, high = max(((low * x, high * x) for x in _FRACTIONS), key=lambda ends: _sqnr(fine, zeros, *ends))
        low = max((least * x for x in _FRACTIONS), key=lambda end: _sqnr(fine, zeros, end, high))
        high = max((most * x for x in _FRACTIONS), key=lambda end: _sqnr(fine, zeros, low, end))
    if symmetric:
        high = min(max(abs(low), abs(high)), max(abs(least), abs(most)))
        return -high, high
    return max(low, least), min(high, most)


def _sqnr(histogram: Histogram, zeros: int, low: float, high: float) -> float:
    """Return the signal to noise ratio in dB of 256 levels over a range that has zero, as onnxruntime makes them."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = high / 255 - low / 255
    if not scale:
        return math.inf
    edges, counts = histogram.edges, histogram.counts.astype(np.float64)
    if 0 <= -histogram.first < len(counts):
        counts[-histogram.first] -= zeros  # 0 is a level
    places = np.flatnonzero(counts)
    # in units of the scale, whose squares do not overflow
    starts, ends = edges[places] / scale, edges[places + 1] / scale
    steps = (np.arange(_INSIDE) + 0.5) / _INSIDE
    values = starts[:, None] + (ends - starts)[:, None] * steps
    zero = round(-low / scale)
    noise = values - (np.clip(np.rint(values) + zero, 0, 255) - zero)
    signal, errors = (float(counts[places] @ np.einsum("bi,bi->b", array, array)) for array in (values, noise))
    return 10 * math.log10(signal / errors) if errors and signal else math.inf


def _percentiles(fine: Histogram, percentile: float, *, symmetric: bool) -> tuple[float, float]:
    """Return the ends that leave the same share out on both sides; if symmetric, that share of magnitudes."""
    if symmetric:  # zero is an edge of the bins
        places = fine.first + np.arange(len(fine.counts))
        magnitudes = np.where(places < 0, -1 - places, places)
        first = int(magnitudes.min())
        mirror = replace(fine, first=first, counts=np.bincount(magnitudes - first, fine.counts))
        high = quantile(mirror.counts, mirror.edges, fine.total * percentile / 100)
        return -high, high
    outside = fine.total * (100 - percentile) / 200
    return quantile(fine.counts, fine.edges, outside), quantile(fine.counts, fine.edges, fine.total - outside)


def _share(histogram: Histogram, low: float, high: float) -> float:
    below = np.concatenate(([0.0], np.cumsum(histogram.counts) / histogram.total))
    return float(np.diff(np.interp([low, high], histogram.edges, below))[0])


def entropy_range(fine: Histogram, levels: int, bins: int) -> tuple[float, float]:
    """Return the ends that onnxruntime finds, where clipping and rounding to levels diverge least from the values.

    Its search is that of TensorRT (Migacz, "8-bit inference with TensorRT", 2017), here in a histogram about zero.
    """
    from onnxruntime.quantization.calibrate import HistogramCollector

    first, stop, coarser = fine.first, fine.first + len(fine.counts), 0
    while 2 * max(-(first >> coarser), -(-stop >> coarser)) > bins:
        coarser += 1
    half = max(-(first >> coarser), -(-stop >> coarser))
    counts = np.zeros(2 * half, np.int64)
    np.add.at(counts, (np.arange(first, stop) >> coarser) + half, fine.counts)
    edges = Histogram(fine.exponent + coarser, -half, counts).edges
    low, high = edges[0], edges[-1]
    if 2 * half >= levels:
        collector = HistogramCollector("entropy", False, len(counts), levels, 100, "same")  # noqa: FBT003 (its signature)
        low, high = collector.get_entropy_threshold((counts, edges, low, high), levels)
    if not _share(fine, low, high):  # it looks at no value that is the largest, and of one number finds the least range
        low, high = edges[0], edges[-1]
    return float(low), float(high)
