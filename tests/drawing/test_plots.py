"""Figures of a comparison show its numbers, and need neither pyplot nor a display."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from matplotlib import rcParams, style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from onnxruntime.quantization.calibrate import HistogramCollector

import onnx_nb
from onnx_nb.analysis.compare.comparison import Comparison, Point
from onnx_nb.analysis.compare.metrics import METRICS, ErrorStats
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.view.result_columns import sections
from onnx_nb.drawing.plots import plot_errors, plot_histogram

VALUES = np.random.default_rng(0).standard_normal((4, 30))
NOISE = np.random.default_rng(1).standard_normal((4, 30))


def comparison(sizes: list[float], isolated: list[float] | None = None, prefix: str = "p") -> Comparison:
    def errors(size: float) -> ErrorStats:
        return ErrorStats.of(VALUES, VALUES + NOISE * size)

    return Comparison("a.onnx", "b.onnx", tuple(
        Point(f"{prefix}{at}", f"r{at}", f"c{at}", "name", at, "Add", cumulative=errors(size),
              isolated=errors(isolated[at]) if isolated else None)
        for at, size in enumerate(sizes)
    ))  # fmt: skip


@pytest.mark.parametrize("metric", sorted(METRICS.keys() - {"argmax"}))
def test_every_metric_is_drawn_at_its_value(metric: str) -> None:
    c = comparison([1e-7, 1e-6, 1e-3, 2e-3])
    figure = plot_errors(c, metric)
    assert isinstance(figure, Figure)
    known = [point.errors().metric(metric) for point in c.points]
    drawn = np.asarray(figure.axes[0].lines[0].get_ydata())
    expected = [value for value in known if value] if metric not in ("outside", "mismatches") else known
    assert drawn.tolist() == expected


def test_both_errors_are_drawn_and_the_first_is_marked() -> None:
    c = comparison([1e-7, 1e-7, 0.1, 0.1], [1e-7, 0, 0.1, 1e-7])
    axes = plot_errors(c, "max_abs").axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["cumulative", "isolated"]
    isolated = next(each for each in axes.collections if each.get_label() == "isolated")
    places = np.asarray(isolated.get_offsets())
    assert places[:, 0].tolist() == [0, 2, 3]
    assert places[1, 1] == c["p2"].errors("isolated").max_abs
    marks = [line for line in axes.lines if np.asarray(line.get_xdata()).tolist() == [2, 2]]
    assert len(marks) == 1
    assert axes.get_yscale() == "log"


def test_a_nan_on_one_side_is_drawn_at_the_top() -> None:
    c = comparison([1e-7, 1e-7])
    broken = VALUES.copy()
    broken[0, 0] = np.nan
    worst = dataclasses.replace(c.points[1], cumulative=ErrorStats.of(VALUES, broken))
    axes = plot_errors(dataclasses.replace(c, points=(c.points[0], worst))).axes[0]
    tops = [np.asarray(each.get_offsets()) for each in axes.collections]
    assert any(len(places) and places[0, 1] > 0.5 * axes.get_ylim()[1] for places in tops)


def test_equal_models_can_be_drawn() -> None:
    c = comparison([0, 0])
    plot_errors(c).savefig(io.BytesIO())
    plot_histogram(c, "p0").savefig(io.BytesIO())


@pytest.mark.parametrize("kind", ["absolute", "signed", "relative", "ulp"])
def test_a_histogram_has_the_counts(kind: str) -> None:
    c = comparison([1e-7, 1e-3])
    axes = plot_histogram(c, "p1", kind).axes  # type: ignore[arg-type]
    assert len(axes) == 1
    stairs = axes[0].patches[0]
    histogram = c.histogram("p1", kind)  # type: ignore[arg-type]
    counts, edges, _ = stairs.get_data()  # type: ignore[attr-defined]
    assert counts.tolist() == histogram.counts.tolist()
    assert edges.tolist() == histogram.edges.tolist()
    assert len(plot_histogram(c, "r1").axes) == 2


def network() -> tuple[onnx_nb.types.Capture, np.ndarray]:
    values = np.random.default_rng(2).standard_normal((4, 50_000)).astype(np.float32)
    values[0, :2] = -19.5, 17
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 50000] x) => (float[n, 50000] y) { y = Neg(x) }""")
    return onnx_nb.capture(model, [{"x": row[None]} for row in values], ranges=True), values


def test_the_ends_of_each_range_are_drawn_where_numpy_and_onnxruntime_find_them() -> None:
    cap, values = network()
    axes = plot_histogram(cap, "x").axes[0]
    collector = HistogramCollector("entropy", False, 128, 128, 99.9, "same")
    collector.collect({"x": [values]})
    entropy = [float(end) for end in collector.compute_entropy()["x"][:2]]
    # after the axis
    places = [float(np.asarray(line.get_xdata())[0]) for line in axes.lines[1:]]
    minmax, percentile, found, mse = np.reshape(places, (4, 2))
    assert minmax.tolist() == [values.min(), values.max()]
    assert percentile == pytest.approx(np.percentile(values, [0.0005, 99.9995]), abs=0.05)
    assert found == pytest.approx(entropy, rel=0.01)
    assert -15 < mse[0] < -3 < 3 < mse[1] < 15
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text().split()[0] for text in legend.get_texts()] == ["minmax", "percentile", "entropy", "mse"]


def test_what_a_range_clips_is_shaded() -> None:
    cap, values = network()
    found = onnx_nb.calibrate(cap, "percentile", percentile=98)
    figure = plot_histogram(found, "x")
    figure.savefig(io.BytesIO())
    axes = figure.axes[0]
    counts, edges, _ = axes.patches[0].get_data()  # type: ignore[attr-defined]
    assert counts.sum() == values.size
    low, high = np.percentile(values, [1, 99])
    shaded = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches[1:]]
    assert [(box.x0, box.x1) for box in shaded] == [
        pytest.approx((edges[0], low), abs=0.05),
        pytest.approx((high, edges[-1]), abs=0.05),
    ]
    title = figure.get_suptitle()
    assert title.startswith("'x': ")
    assert "clips 2% of values" in title
    assert len(plot_histogram(onnx_nb.calibrate(cap), "x").axes[0].patches) == 1


def test_a_range_without_values_is_refused(tmp_path: Path) -> None:
    cap, _ = network()
    table = onnx_nb.types.Calibration.load(onnx_nb.calibrate(cap).save(tmp_path / "cache.json"))
    with pytest.raises(OnnxNbError, match=r"no values of 'x'.*A table from a file has ranges only"):
        plot_histogram(table, "x")
    with pytest.raises(OnnxNbError, match="tensor 'z' has no range"):
        plot_histogram(table, "z")


def test_sections_of_a_model_are_labeled() -> None:
    c = comparison([1e-7] * 6, prefix="encoder.layer.0.x")
    other = comparison([1e-7] * 6, prefix="encoder.layer.1.x")
    axes = plot_errors(dataclasses.replace(c, points=c.points + other.points)).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["layer.0", "layer.1"]
    assert axes.get_xticks().tolist() == [0, 6]


def test_names_are_not_formulas() -> None:
    figure = plot_errors(comparison([0, 1e-3], prefix=r"$\frac{"))
    figure.savefig(io.BytesIO())
    plot_histogram(comparison([0, 1e-3], prefix="<script>$x$"), "<script>$x$1").savefig(io.BytesIO())


def test_names_below_the_axis_are_not_formulas_and_have_no_line_breaks() -> None:
    c = comparison([1e-7, 1e-3])
    names = ("$x^{2$", "two\nlines\u202e")
    points = tuple(dataclasses.replace(point, name=name) for point, name in zip(c.points, names, strict=True))
    figure = plot_errors(dataclasses.replace(c, points=points))
    figure.savefig(io.BytesIO())
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["$x^{2$", "two·lines·"]


def test_no_line_leads_to_a_nan_and_the_axis_has_a_label_for_it() -> None:
    c = comparison([1e-7, 1e-7, 1e-7])
    broken = np.where(VALUES > 2, np.nan, VALUES)
    worst = dataclasses.replace(c.points[1], cumulative=ErrorStats.of(VALUES, broken))
    axes = plot_errors(dataclasses.replace(c, points=(c.points[0], worst, c.points[2]))).axes[0]
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [0, 2]
    assert [text.get_text() for text in axes.texts] == ["NaN, Inf"]


def test_a_notebook_shows_a_png_with_a_transparent_background() -> None:
    figure = plot_errors(comparison([1e-7, 1e-3]))
    data = figure._repr_png_()  # type: ignore[attr-defined]
    assert data.startswith(b"\x89PNG")
    assert figure.get_facecolor() == (0, 0, 0, 0)


def test_pyplot_is_not_imported() -> None:
    code = (
        "import sys; from tests.drawing.test_plots import comparison, plot_errors; plot_errors(comparison([0, 1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_errors_that_cannot_be_drawn_raise_an_explanation() -> None:
    with pytest.raises(OnnxNbError, match="There are: max_abs"):
        plot_errors(comparison([0, 1]), "worst")
    with pytest.raises(OnnxNbError, match="argmax is known of outputs only"):
        plot_errors(comparison([0, 1]), "argmax")
    with pytest.raises(OnnxNbError, match="has no points to draw"):
        plot_errors(Comparison("a", "b"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["embeddings", "encoder.layer.0.a", "encoder.layer.0.b", "encoder.layer.1.a", "pooler"],
            [(0, "embeddings"), (1, "layer.0"), (3, "layer.1"), (4, "pooler")],
        ),
        (
            ["stem", "blocks.0.a", "blocks.0", "blocks.1.a", "blocks.1"],
            [(0, "stem"), (1, "blocks.0"), (3, "blocks.1")],
        ),
        (
            [f"blocks.{at}.{name}" for at in (0, 1) for name in ("norm1", "mix.a", "mix.b", "norm2", "mlp.0", "mlp.1")],
            [(0, "blocks.0"), (6, "blocks.1")],
        ),
        (
            [
                "stem",
                *(f"blocks.{at}{end}" for at in (0, 1, 2) for end in (".norm", " → add()", " → add()#2", ".mlp.0", "")),
                "head",
            ],
            [(0, "stem"), (1, "blocks.0"), (6, "blocks.1"), (11, "blocks.2"), (16, "head")],
        ),
        (["add", "mul_1"], [(0, "add"), (1, "mul_1")]),
        ([f"add_{number}" for number in range(9)], []),
    ],
)
def test_sections_come_from_the_paths_of_names(names: list[str], expected: list[tuple[int, str]]) -> None:
    assert sections(names) == expected


def test_the_style_sheet_is_legible_on_white_and_in_the_dark() -> None:
    with style.context("onnx_nb.drawing.notebook"):
        look = dict(rcParams)
    assert look["figure.facecolor"] == look["axes.facecolor"] == look["savefig.facecolor"] == "none"
    words = [look[name] for name in ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")]
    for color in {*words, look["axes.edgecolor"], *look["axes.prop_cycle"].by_key()["color"]}:
        for ground in ("white", "#0d1117"):
            dark, light = sorted((luminance(color), luminance(ground)))
            assert (light + 0.05) / (dark + 0.05) > 3, f"{color} on {ground}"  # what WCAG asks of graphics


def test_jupyter_paints_no_ground_behind_a_figure() -> None:
    inline = pytest.importorskip("matplotlib_inline.backend_inline")
    with style.context("onnx_nb.drawing.notebook"):
        plain = Figure()
        plain.subplots().plot([1, 2])
    for figure in (plain, plot_errors(comparison([1e-7, 1e-3])), plot_histogram(comparison([1e-7, 1e-3]), "p1")):
        assert inline._fetch_figure_metadata(figure) is None


def luminance(color: str) -> float:
    """Return the relative luminance that WCAG 2 defines."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
    return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))
