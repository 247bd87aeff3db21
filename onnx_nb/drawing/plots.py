"""Draw results with matplotlib: errors over depth, histograms of errors, and ranges in the histogram of a tensor.

Figures are created without pyplot, so that none stays open and threads do not interfere. They have a transparent
background, and colors that are legible on white paper and in a dark notebook.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import rc_params_from_file
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from onnx_nb.analysis.arguments import check_choice, known_arguments
from onnx_nb.analysis.compare.comparison import Comparison, Kind, Point, Which
from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, decibels_text, number_text, printable, quoted, shortened
from onnx_nb.analysis.graph.dataflow import followers
from onnx_nb.analysis.quantize.calibration import Calibration, marked_histogram
from onnx_nb.analysis.run.capture import Capture
from onnx_nb.analysis.run.statistics import Histogram, LogHistogram
from onnx_nb.analysis.view.result_columns import point_paths, sections

_STYLE: Final = rc_params_from_file(Path(__file__).with_name("notebook.mplstyle"), use_default_template=False)
"""The style sheet that notebooks use as well."""
TEXT: Final = to_hex(_STYLE["text.color"])
LINE: Final = to_hex(_STYLE["axes.edgecolor"])
CUMULATIVE, ISOLATED, BAD, *_OTHERS = (to_hex(color) for color in _STYLE["axes.prop_cycle"].by_key()["color"])
_MARKS: Final = (_OTHERS[0], ISOLATED, _OTHERS[1], _OTHERS[2])

_FONT: Final = float(_STYLE["font.size"])
_DOTS: Final = 300
"""Maximum number of points for which each is drawn as a dot on the line."""


class NotebookFigure(Figure):
    """A figure that a notebook shows at the end of a cell even if pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=144)
        return buffer.getvalue()


@known_arguments
def plot_errors(comparison: Comparison, metric: str = "rel_l2") -> Figure:
    """Draw the errors of all points in order of execution: cumulative errors as a line, isolated errors as dots.

    Equal points are drawn at 0, below a logarithmic axis, and points with NaN or infinities on one side only at its
    top. The first divergent point is marked.

    Parameters
    ----------
    comparison
        A comparison with at least one point.
    metric
        One of `METRICS`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    OnnxNbError
        If there is no such metric, or no point has it.

    Examples
    --------
    >>> from onnx_nb.analysis.compare.comparison import Comparison, Point
    >>> errors = ErrorStats.of(np.ones(4), np.full(4, 1.5))
    >>> figure = plot_errors(Comparison("a", "b", (Point("y", "y", "y", "name", 0, "Add", cumulative=errors),)))
    >>> figure.axes[0].get_ylabel()
    'relative error ‖Δ‖/‖x‖'
    """
    if metric not in METRICS:
        raise OnnxNbError(f"there is no metric called {metric!r}.", advice=f"There are: {', '.join(METRICS)}.")
    if not comparison.points:
        raise OnnxNbError("the comparison has no points to draw.")
    looks = (("cumulative", CUMULATIVE), ("isolated", ISOLATED))
    series = [(which, color, _numbers(comparison, which, metric)) for which, color in looks]
    series = [row for row in series if not np.isnan(row[-1]).all()]
    if not series:
        message = f"no point has the metric {metric!r}."
        raise OnnxNbError(message, advice="Draw another; argmax is known of outputs only.")
    figure = _figure(7.6, 3.3, comparison.message, 108)
    axes = _styled(figure.add_subplot())
    logarithmic = METRICS[metric].logarithmic
    values_ = np.concatenate([values for *_, values in series])
    ends = _scale(axes, values_, logarithmic=logarithmic)
    for which, color, values in series:
        _draw_series(axes, which, color, values, ends, logarithmic=logarithmic)
    if logarithmic and np.any(values_ == 0):
        _label_height(axes, ends[0], "0", TEXT)
        axes.axhline(ends[0], color=LINE, alpha=0.28, linewidth=0.7, zorder=0)
    if np.any(np.isinf(values_)):
        _label_height(axes, ends[1], "NaN, Inf", BAD)
    first = comparison.first_divergent()
    if first is not None:
        place = comparison.points.index(first)
        axes.axvline(place, color=BAD, linewidth=1.0, linestyle=(0, (3, 3)), zorder=2)
        heights = [values[place] for *_, values in series if not math.isnan(values[place])]
        if heights and math.isfinite(heights[-1]):
            height = ends[0] if logarithmic and heights[-1] == 0 else heights[-1]
            axes.scatter([place], [height], s=34, color=BAD, linewidths=0, zorder=7)
    _label_sections(axes, point_paths(comparison.points))
    axes.set_ylabel(METRICS[metric].label)
    if len(series) > 1:
        look = {"ncols": 2, "frameon": False, "labelcolor": TEXT, "borderaxespad": 0.1, "fontsize": _FONT}
        scale = 1 if len(comparison.points) <= _DOTS else 2.5
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), markerscale=scale, **look)
    return figure


@known_arguments
def plot_histogram(
    result: Comparison | Calibration | Capture, name: str, kind: Kind | None = None, which: Which | None = None
) -> Figure:
    """Draw histograms of the errors of one point, or the histogram of a tensor with the range that quantization gets.

    Parameters
    ----------
    result
        A comparison that has the point, or a calibration or capture that has the tensor. A capture that was made with
        ``ranges=True`` has the range of each method of `Capture.calibrate`.
    name
        Name of the point, or of its tensor on either side.
    kind
        Of a comparison: "absolute", "signed", "relative" or "ulp"; the first two next to each other if ``None``.
    which
        Of a comparison: "cumulative" or "isolated"; by default the latter where it is known.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    AlignmentError
        If there is no such point, or it has no such errors.
    OnnxNbError
        If there is no such tensor, or its range is from a file, which has no values.

    Examples
    --------
    >>> from onnx_nb.analysis.compare.comparison import Comparison, Point
    >>> errors = ErrorStats.of(np.ones(4), np.full(4, 1.5))
    >>> c = Comparison("a", "b", (Point("y", "y", "y", "name", 0, "Add", cumulative=errors),))
    >>> [axes.get_xlabel() for axes in plot_histogram(c, "y").axes]
    ['absolute error', 'signed error']
    """
    if not isinstance(result, Comparison):
        return _plot_ranges(result, name)
    check_choice("kind", kind, Kind)
    kinds: Sequence[Kind] = ("absolute", "signed") if kind is None else (kind,)
    point = result[name]
    errors = point.errors(which)
    wide = len(kinds) > 1
    figure = _figure(7.8 if wide else 4.8, 2.9, _summary(point, errors), 112 if wide else 70)
    for place, kind_ in enumerate(kinds, 1):
        axes = _styled(figure.add_subplot(1, len(kinds), place))
        if errors.is_equal:
            _write(axes, "no difference")
        else:
            color = ISOLATED if errors is point.isolated else CUMULATIVE
            _draw_histogram(axes, result.histogram(name, kind_, which), color)
        axes.set_xlabel("ULP" if kind_ == "ulp" else f"{kind_} error")
    return figure


def _numbers(comparison: Comparison, which: str, metric: str) -> Any:
    """Return the metric of each point: NaN where it is unknown, infinity for NaN or Inf on one side only."""
    numbers = []
    for point in comparison.points:
        errors: ErrorStats | None = getattr(point, which)
        is_broken = errors is not None and errors.mismatches and metric != "mismatches"
        numbers.append(math.inf if is_broken else math.nan if errors is None else errors.metric(metric))
    return np.asarray(numbers, np.float64)


def _scale(axes: Axes, values: Any, *, logarithmic: bool) -> tuple[float, float]:
    """Set the scale; return the heights at which 0 and infinity are drawn."""
    some = values[np.isfinite(values) & ((values > 0) | (not logarithmic))]
    if not logarithmic:
        low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 1.0)
        margin = (high - low or abs(high) or 1.0) * 0.06
        axes.set_ylim(low - margin, high + margin)
        return low - margin, high + margin
    low, high = 1e-9, 20.0
    if some.size:
        least, most = math.floor(math.log10(float(some.min()))), math.ceil(math.log10(float(some.max())))
        # leave room for points without a number, so that they are not mistaken for the nearest one
        shelf = max(0.7, 0.14 * (most - least))
        low = 10.0 ** (least - (shelf if np.any(values == 0) else 0.0))
        high = 10.0 ** (most + (shelf if np.any(np.isinf(values)) else 0.1))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)
    return low * 1.6, high / 1.6


def _draw_series(
    axes: Axes, name: str, color: str, values: Any, ends: tuple[float, float], *, logarithmic: bool
) -> None:
    places, few = np.arange(len(values)), len(values) <= _DOTS
    is_broken, equal = np.isinf(values), (values == 0) & logarithmic
    heights = np.where(equal | np.isneginf(values), ends[0], np.where(is_broken, ends[1], values))
    dots = ~(np.isnan(heights) | equal | is_broken)
    size = 9.0 if few else 3.0
    look: dict[str, Any] = {"color": color, "linewidths": 0}
    if name == "cumulative":
        # the line skips equal points, such as most shapes and other integers
        axes.plot(places[dots], heights[dots], color=color, linewidth=1.4, label=name, zorder=3, alpha=0.95)
        if few:
            axes.scatter(places[dots], heights[dots], s=size, zorder=4, **look)
    else:
        axes.scatter(places[dots], heights[dots], s=size * 1.3, zorder=5, label=name, alpha=1 if few else 0.5, **look)
    axes.scatter(places[equal], heights[equal], s=size, facecolors="none", edgecolors=color, linewidths=0.7, zorder=4)
    axes.scatter(places[is_broken], heights[is_broken], s=size * 3, color=BAD, marker="^", linewidths=0, zorder=6)


def _label_height(axes: Axes, height: float, text: str, color: str) -> None:
    """Label the height of points that have no number on the axis."""
    place = axes.get_yaxis_transform()
    axes.text(-0.01, height, text, transform=place, ha="right", va="center", color=color, fontsize=_FONT)


def _label_sections(axes: Axes, names: Sequence[str]) -> None:
    """Label the sections of the model below the axis, if the points' names show them."""
    axes.set_xlim(-0.6 - 0.005 * len(names), len(names) - 0.4 + 0.005 * len(names))
    starts = sections(names)
    if not starts:
        axes.set_xlabel("point, in order of execution")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return
    axes.set_xlabel("in order of execution")
    labels = [printable(label) for _, label in starts]
    # rotate the labels if they would overlap on one line
    room = min((after - before for (before, _), (after, _) in itertools.pairwise(starts)), default=len(names))
    level = max(map(len, labels)) < 90 * room / len(names)
    style: dict[str, Any] = {} if level else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks([place for place, _ in starts], labels, parse_math=False, **style)
    axes.tick_params(axis="x", length=3)


def _draw_histogram(axes: Axes, histogram: Histogram | LogHistogram, color: str) -> None:
    counts = histogram.counts
    zeros = histogram.zeros if isinstance(histogram, LogHistogram) else 0
    if not len(counts):
        _write(axes, "all are 0" if zeros else "no numbers")
        return
    axes.stairs(counts, histogram.edges, fill=True, color=color, alpha=0.85, linewidth=0)
    if isinstance(histogram, LogHistogram):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if zeros:
            axes.set_title(f"and {zeros:,} that are 0", fontsize=_FONT - 1, color=TEXT, loc="right")
    else:
        axes.axvline(0, color=LINE, linewidth=0.7, zorder=0)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3))
        axes.locator_params(axis="x", nbins=5)
    few = counts[counts > 0].min()
    if few * 300 < counts.max():  # rare errors are the important ones
        axes.set_yscale("log")
        axes.set_ylim(0.6, None)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("values")


def _plot_ranges(result: Calibration | Capture, name: str) -> Figure:
    histogram = marked_histogram(result, name) if isinstance(result, Capture) else result[name].histogram
    if not len(histogram.counts):
        advice = "A table from a file has ranges only: calibrate a capture, or draw the capture."
        raise OnnxNbError(f"there are no values of {quoted(name)}.", advice=advice if histogram.marks else "")
    title = f"{shortened(name, 90)}: {count_text(histogram.total, 'value')}"
    title = title if isinstance(result, Capture) else result[name].message
    figure = _figure(7.6, 2.9, printable(title), 108)
    axes = _styled(figure.add_subplot())
    _draw_histogram(axes, histogram, CUMULATIVE)
    axes.set_xlabel("value")
    method = "" if isinstance(result, Capture) else result.method
    ranges = followers((mark.rpartition(" ")[0] or method, x) for mark, x in histogram.marks.items())
    for (method, ends), color, dashes in zip(ranges.items(), _MARKS, ((), (5, 2), (2, 2), (1, 3)), strict=False):
        text = " … ".join(number_text(x, 3) for x in ends)
        for x in ends:
            look: dict[str, Any] = {"color": color, "linewidth": 1.4, "zorder": 4, "dashes": dashes}
            axes.axvline(x, label=f"{method} {text}".strip() if x is ends[0] else None, **look)
    if isinstance(result, Calibration) and result[name].clipped:
        ((low, high),) = ranges.values()
        for start, stop in ((histogram.edges[0], low), (high, histogram.edges[-1])):
            if start < stop:
                axes.axvspan(start, stop, color=BAD, alpha=0.12, linewidth=0)
    if ranges:
        look = {"ncols": 2, "frameon": False, "labelcolor": TEXT, "borderaxespad": 0.1, "fontsize": _FONT}
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), **look)
    return figure


def _write(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=TEXT, fontsize=_FONT)
    axes.set_xticks([])
    axes.set_yticks([])


def _summary(point: Point, errors: ErrorStats) -> str:
    lines = [printable(shortened(point.name, 70) + (f" ({point.op_type})" if point.op_type else ""))]
    if errors.is_equal:
        lines.append(f"all {errors.count:,} values are equal")
    elif errors.finite:
        metrics = (
            f"max |Δ| {number_text(errors.max_abs, 2)}",
            f"RMSE {number_text(errors.rmse, 2)}",
            f"SQNR {decibels_text(errors.sqnr)}",
            f"outside tolerance {errors.outside_fraction:.2%}",
        )
        # a metric stays on one line
        lines.append("   ".join(metric.replace(" ", "\u00a0") for metric in metrics))
    if errors.mismatches:
        odd = "strings differ" if errors.dtypes[0] == "string" else "NaN or infinite on one side only"
        lines.append(f"{errors.mismatches:,} {odd}")
    return "\n".join(lines)


def _figure(width: float, height: float, title: str, characters: int) -> NotebookFigure:
    """Return an empty figure with a title whose lines have at most this number of characters."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained", facecolor="none", edgecolor="none")
    FigureCanvasAgg(figure)
    lines = [line for part in title.splitlines() for line in textwrap.wrap(part, characters)]
    # names come from files: a dollar sign does not start a formula
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize=_FONT, color=TEXT, parse_math=False)
    return figure


def _styled(axes: Axes) -> Axes:
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=LINE, linewidth=0.8)
    axes.tick_params(colors=TEXT, labelsize=_FONT, width=0.8, which="both")
    axes.tick_params(axis="y", labelcolor=_STYLE["ytick.color"])  # see the style sheet
    axes.grid(visible=True, axis="y", color=LINE, alpha=0.28, linewidth=0.7)
    axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=TEXT, fontsize=_FONT)
    return axes
