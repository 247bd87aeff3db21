"""Pictures of a `Comparison` by matplotlib: errors against depth, and their histograms.

Figures are made without pyplot, so that none is left open and threads do not meet. Their ground is transparent and
their colors are legible on white paper and in a dark notebook alike.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import printable, shortened
from onnx_nb.analysis.run.log_histogram import LogHistogram
from onnx_nb.analysis.view.comparison_table import parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onnx_nb.analysis.compare.comparison import Comparison, Kind, Point, Which
    from onnx_nb.analysis.run.statistics import Histogram

TEXT: Final = "#75808b"
LINE: Final = "#8a949e"
CUMULATIVE: Final = "#2b7fd4"
ISOLATED: Final = "#d9730d"
BAD: Final = "#d8443c"

_FONT: Final = 9.0
_DOTS: Final = 300
"""Up to so many points each has a dot on its line."""
_TITLES: Final = {"absolute": "absolute error", "signed": "signed error", "relative": "relative error", "ulp": "ULP"}


class Shown(Figure):
    """A figure that a notebook shows at the end of a cell, also where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=144)
        return buffer.getvalue()


def plot_errors(comparison: Comparison, metric: str = "rel_l2") -> Figure:
    """Draw the errors of all points in order of execution; cumulative ones as a line, isolated ones as dots.

    Points that are equal stand at 0 below the axis, those with NaN or infinities on one side only at its top. The first
    that diverges is marked.

    Parameters
    ----------
    comparison
        With at least one point.
    metric
        One of `METRICS`.
    """
    if metric not in METRICS:
        raise OnnxNbError(f"there is no metric called {metric!r}.", advice=f"There are: {', '.join(METRICS)}.")
    if not comparison.points:
        raise OnnxNbError("the comparison has no points to draw.")
    series = [
        ("cumulative", CUMULATIVE, _numbers(comparison, "cumulative", metric)),
        ("isolated", ISOLATED, _numbers(comparison, "isolated", metric)),
    ]
    series = [entry for entry in series if not np.all(np.isnan(entry[2]))]
    if not series:
        raise OnnxNbError(
            f"no point has the metric {metric!r}.", advice="Draw another; argmax is known of outputs only."
        )
    known = np.concatenate([values for *_, values in series])
    finite = known[np.isfinite(known) & (known > 0)]
    figure = _figure(7.6, 3.3)
    axes = _axes(figure.add_subplot())
    logarithmic = METRICS[metric].logarithmic
    low, high = _limits(finite, known, logarithmic=logarithmic)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)
    floor, ceiling = (low * 1.6, high / 1.6) if logarithmic else (low, high)
    for name, color, values in series:
        _draw_series(axes, name, color, values, (floor, ceiling), logarithmic=logarithmic)
    if logarithmic and np.any(known == 0):
        _name_height(axes, floor, "0", TEXT)
        axes.axhline(floor, color=LINE, alpha=0.28, linewidth=0.7, zorder=0)
    if np.any(np.isinf(known)):
        _name_height(axes, ceiling, "NaN, Inf", BAD)
    _mark_first(axes, comparison, series, (floor, ceiling), logarithmic=logarithmic)
    _name_places(axes, [point.name for point in comparison.points])
    axes.set_ylabel(METRICS[metric].label)
    if len(series) > 1:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=2,
            frameon=False,
            labelcolor=TEXT,
            borderaxespad=0.1,
            fontsize=_FONT,
            markerscale=1 if len(comparison.points) <= _DOTS else 2.5,
        )
    _title(figure, comparison.message, 108)
    return figure


def plot_histogram(comparison: Comparison, name: str, kind: Kind | None = None, which: Which | None = None) -> Figure:
    """Draw how many values of a point have which error.

    Parameters
    ----------
    comparison
        Has the point.
    name
        Of the point, or of its tensor on either side.
    kind
        "absolute", "signed", "relative" or "ulp"; the first two side by side if ``None``.
    which
        "cumulative" or "isolated"; the latter where known if it is not said.
    """
    kinds: Sequence[Kind] = ("absolute", "signed") if kind is None else (kind,)
    point = comparison[name]
    errors = point.errors(which)
    figure = _figure(3.9 * len(kinds) if len(kinds) > 1 else 4.8, 2.9)
    color = ISOLATED if point.isolated is not None and errors is point.isolated else CUMULATIVE
    for place, each in enumerate(kinds, 1):
        axes = _axes(figure.add_subplot(1, len(kinds), place))
        if errors.is_equal:
            _say(axes, "no difference")
        else:
            _draw_histogram(axes, comparison.histogram(name, each, which), color)
        axes.set_xlabel(_TITLES[each])
    _title(figure, _told(point, errors), 112 if len(kinds) > 1 else 70)
    return figure


# --- errors against depth -------------------------------------------------------------------------------------------


def _numbers(comparison: Comparison, which: str, metric: str) -> Any:
    found = []
    for point in comparison.points:
        errors: ErrorStats | None = getattr(point, which)
        if errors is None:
            found.append(math.nan)
        else:
            found.append(math.inf if errors.mismatches and metric != "mismatches" else errors.metric(metric))
    return np.asarray(found, np.float64)


def _limits(finite: Any, known: Any, *, logarithmic: bool) -> tuple[float, float]:
    if not logarithmic:
        some = known[np.isfinite(known)]
        low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 1.0)
        margin = (high - low or abs(high) or 1.0) * 0.06
        return low - margin, high + margin
    if not finite.size:
        return 1e-9, 20.0
    least, most = math.floor(math.log10(float(finite.min()))), math.ceil(math.log10(float(finite.max())))
    # room for what has no number, which is told apart from the nearest one
    shelf = max(0.7, 0.14 * (most - least))
    low = least - (shelf if np.any(known == 0) else 0.0)
    high = most + (shelf if np.any(np.isinf(known)) else 0.1)
    return float(10.0**low), float(10.0**high)


def _draw_series(
    axes: Axes, name: str, color: str, values: Any, ends: tuple[float, float], *, logarithmic: bool
) -> None:
    places = np.arange(len(values))
    shown = np.where(np.isposinf(values), ends[1], values)
    shown = np.where(np.isneginf(values), ends[0], shown)
    if logarithmic:
        shown = np.where(shown == 0, ends[0], shown)
    there = ~np.isnan(shown)
    equal = there & (values == 0) & logarithmic
    broken = np.isinf(values)
    dots = there & ~equal & ~broken
    size = 9.0 if len(values) <= _DOTS else 3.0
    if name == "cumulative":
        # over what is equal, as shapes and other integers mostly are
        axes.plot(places[dots], shown[dots], color=color, linewidth=1.4, label=name, zorder=3, alpha=0.95)
        if len(values) <= _DOTS:
            axes.scatter(places[dots], shown[dots], s=size, color=color, linewidths=0, zorder=4)
    else:
        alpha = 1.0 if len(values) <= _DOTS else 0.5
        axes.scatter(
            places[dots], shown[dots], s=size * 1.3, color=color, linewidths=0, zorder=5, label=name, alpha=alpha
        )
    axes.scatter(places[equal], shown[equal], s=size, facecolors="none", edgecolors=color, linewidths=0.7, zorder=4)
    axes.scatter(places[broken], shown[broken], s=size * 3, color=BAD, marker="^", linewidths=0, zorder=6)


def _name_height(axes: Axes, height: float, text: str, color: str) -> None:
    """Label the points that have no number on the axis."""
    place = axes.get_yaxis_transform()
    axes.text(-0.01, height, text, transform=place, ha="right", va="center", color=color, fontsize=_FONT)


def _mark_first(
    axes: Axes,
    comparison: Comparison,
    series: Sequence[tuple[str, str, Any]],
    ends: tuple[float, float],
    *,
    logarithmic: bool,
) -> None:
    first = comparison.first_divergent()
    if first is None:
        return
    place = comparison.points.index(first)
    axes.axvline(place, color=BAD, linewidth=1.0, linestyle=(0, (3, 3)), zorder=2)
    value = next((values[place] for name, _, values in reversed(series) if not math.isnan(values[place])), math.nan)
    if math.isfinite(value):
        height = ends[0] if logarithmic and value == 0 else value
        axes.scatter([place], [height], s=34, color=BAD, linewidths=0, zorder=7)


def _name_places(axes: Axes, names: Sequence[str]) -> None:
    """Name the parts of a model below the axis, where the points' names tell of them."""
    axes.set_xlim(-0.6 - 0.005 * len(names), len(names) - 0.4 + 0.005 * len(names))
    starts = parts(names)
    if not starts:
        axes.set_xlabel("point, in order of execution")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return
    axes.set_xlabel("in order of execution")
    labels = [printable(label) for _, label in starts]
    # no two of them meet on one line
    room = min((after - before for (before, _), (after, _) in itertools.pairwise(starts)), default=len(names))
    level = max(map(len, labels)) < 90 * room / len(names)
    turned: dict[str, Any] = {} if level else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks([place for place, _ in starts], labels, parse_math=False, **turned)
    axes.tick_params(axis="x", length=3)


# --- histograms -----------------------------------------------------------------------------------------------------


def _draw_histogram(axes: Axes, histogram: Histogram | LogHistogram, color: str) -> None:
    counts = histogram.counts
    zeros = histogram.zeros if isinstance(histogram, LogHistogram) else 0
    if not len(counts):
        _say(axes, "all are 0" if zeros else "no numbers")
        return
    edges = histogram.edges
    axes.stairs(counts, edges, fill=True, color=color, alpha=0.85, linewidth=0)
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
    if few * 300 < counts.max():  # what is rare is what one looks for
        axes.set_yscale("log")
        axes.set_ylim(0.6, None)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("values")


def _say(axes: Axes, what: str) -> None:
    axes.text(0.5, 0.5, what, transform=axes.transAxes, ha="center", va="center", color=TEXT, fontsize=_FONT)
    axes.set_xticks([])
    axes.set_yticks([])


def _told(point: Point, errors: ErrorStats) -> str:
    what = f" ({point.op_type})" if point.op_type else ""
    parts = [printable(f"{shortened(point.name, 70)}{what}")]
    if errors.is_equal:
        parts.append(f"all {errors.count:,} values are equal")
    elif errors.finite:
        parts.append(
            "   ".join(
                # what belongs together stays on one line
                figure.replace(" ", "\u00a0").replace("-", "−")
                for figure in (
                    f"max |Δ| {errors.max_abs:.2g}",
                    f"RMSE {errors.rmse:.2g}",
                    f"SQNR {errors.sqnr:.1f} dB",
                    f"outside tolerance {errors.outside_fraction:.2%}",
                )
            )
        )
    if errors.mismatches:
        odd = "texts differ" if errors.dtypes[0] == "string" else "NaN or infinite on one side only"
        parts.append(f"{errors.mismatches:,} {odd}")
    return "\n".join(parts)


# --- the look -------------------------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Shown:
    figure = Shown(figsize=(width, height), layout="constrained", facecolor="none", edgecolor="none")
    FigureCanvasAgg(figure)
    return figure


def _title(figure: Figure, text: str, width: int) -> None:
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, width)]
    # names come from files: a dollar is no formula
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize=_FONT, color=TEXT, parse_math=False)


def _axes(axes: Axes) -> Axes:
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(colors=TEXT, labelsize=_FONT, width=0.8, which="both")
    axes.grid(visible=True, axis="y", color=LINE, alpha=0.28, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_color(TEXT)
    axes.yaxis.label.set_color(TEXT)
    axes.xaxis.label.set_fontsize(_FONT)
    axes.yaxis.label.set_fontsize(_FONT)
    return axes
