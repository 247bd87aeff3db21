"""Ranges for quantization against onnxruntime's own calibraters, on the same feeds."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnx.parser
import pytest
from onnxruntime import quantization
from onnxruntime.quantization import calibrate as theirs
from onnxruntime.quantization import quant_utils
from onnxruntime.quantization.quant_utils import write_calibration_table

import onnx_nb
from onnx_nb import CaptureError, ModelFileError, OnnxNbError, capture
from onnx_nb.analysis.quantize.calibration import Method, entropy_range
from onnx_nb.analysis.run.statistics import FINE, Histogram, Ranges
from onnx_nb.types import Calibration

RANDOM = np.random.default_rng(3)
FEEDS = [{"x": RANDOM.standard_t(4, (4, 3, 6, 6)).astype(np.float32)} for _ in range(4)]


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    net (float[n, 3, 6, 6] x) => (float[n, 5] y) <float[8, 3, 3, 3] w, float[8, 5] v> {
        [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w)
        [relu] b = Relu(a)
        [pool] c = GlobalAveragePool(b)
        [flat] d = Flatten(c)
        [head] y = MatMul(d, v) }""")
    del model.graph.initializer[:]
    for name, shape in (("w", (8, 3, 3, 3)), ("v", (8, 5))):
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(RANDOM.normal(0, 0.4, shape).astype(np.float32), name)
        )
    return model


class Reader(theirs.CalibrationDataReader):  # type: ignore[misc]
    """Our feeds as onnxruntime takes them."""

    def __init__(self) -> None:
        self.feeds = iter(FEEDS)

    def get_next(self) -> Any:
        return next(self.feeds, None)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("calibration") / "net.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(network()), place)
    return place


@pytest.fixture(scope="module")
def captured(path: Path) -> onnx_nb.types.Capture:
    return capture(path, FEEDS, ranges=True)


def calibrater(kind: Any, path: Path, **options: Any) -> dict[str, tuple[float, float]]:
    made = kind(path, augmented_model_path=path.with_name("augmented.onnx"), **options)
    made.augment_graph()
    made.create_inference_session()
    made.collect_data(Reader())
    ranges = {name: [np.asarray(end).item() for end in each.range_value] for name, each in made.compute_data().items()}
    return {name: (low, high) for name, (low, high) in ranges.items()}


def test_extremes_make_the_quantized_model_that_onnxruntime_makes(
    path: Path, captured: onnx_nb.types.Capture, tmp_path: Path
) -> None:
    found = onnx_nb.calibrate(captured)
    assert found.missing == []
    wanted = calibrater(theirs.MinMaxCalibrater, path)
    assert set(found) == set(wanted)
    for name, (low, high) in wanted.items():
        assert (found[name].low, found[name].high, found[name].clipped) == (low, high, 0)
    cache = found.save(tmp_path / "cache.json")
    quantization.quantize_static(path, tmp_path / "ours.onnx", None, calibration_cache_path=cache)
    quantization.quantize_static(path, tmp_path / "theirs.onnx", Reader())
    assert onnx.load(tmp_path / "ours.onnx") == onnx.load(tmp_path / "theirs.onnx")


@pytest.mark.parametrize("symmetric", [False, True])
def test_percentiles_are_those_of_all_values_and_near_onnxruntimes(
    symmetric: bool, path: Path, captured: onnx_nb.types.Capture
) -> None:
    found = onnx_nb.calibrate(captured, "percentile", percentile=98, symmetric=symmetric)
    wanted = calibrater(
        theirs.PercentileCalibrater, path, percentile=98, num_bins=2048, symmetric=symmetric, method="percentile"
    )
    for name, (low, high) in wanted.items():
        kept = [onnx_nb.capture(path, feed, keep=name)[name] for feed in FEEDS] if name in "xa" else []
        width = max(abs(low), abs(high), found[name].max, -found[name].min) / 512
        if symmetric:  # which theirs is not where it reaches beyond all values on one side
            assert found[name].high == -found[name].low == pytest.approx(max(high, -low), abs=2 * width), name
        else:
            assert [found[name].low, found[name].high] == pytest.approx([low, high], abs=2 * width), name
        if kept:
            values = np.concatenate([each.ravel() for each in kept])
            share = np.percentile(np.abs(values), 98)
            ends = [-share, share] if symmetric else np.percentile(values, [1, 99])
            assert np.allclose([found[name].low, found[name].high], ends, atol=width)
            outside = np.mean((values < found[name].low) | (values > found[name].high))
            assert found[name].clipped == pytest.approx(outside, abs=0.005)


@pytest.mark.parametrize("name", ["x", "b", "y"])
@pytest.mark.parametrize("percentile", [100, 97, 80])
def test_what_8_bits_lose_is_what_onnxruntime_loses(
    name: str, percentile: float, path: Path, captured: onnx_nb.types.Capture
) -> None:
    found = onnx_nb.calibrate(captured, "percentile", percentile=percentile)[name]
    values = np.concatenate([capture(path, feed, keep=name)[name].ravel() for feed in FEEDS])
    zero, scale = quant_utils.compute_scale_zp(
        *map(np.float32, (found.low, found.high, 0, 255)), symmetric=False
    )  # fmt: skip
    integers = quant_utils.quantize_nparray(onnx.TensorProto.UINT8, values, scale, zero)
    again = (integers.astype(np.float32) - np.float32(zero)) * scale
    sqnr = 10 * np.log10(np.sum(values**2) / np.sum((values - again) ** 2))
    assert found.sqnr == pytest.approx(sqnr, abs=1)


def test_the_text_names_what_loses_most(captured: onnx_nb.types.Capture, path: Path, tmp_path: Path) -> None:
    found = onnx_nb.calibrate(captured, "percentile", percentile=90)
    ratios = {row["name"]: row["sqnr"] for row in found.rows()}
    assert [each.name for each in found.worst] == sorted(ratios, key=ratios.__getitem__)
    count = "Percentile ranges of 6 tensors, 6 of which clip values."
    assert found.message == f"{count} 8 bits lose most in '{found.worst[0].name}'."
    # flattening changes no value
    ((pooled, names),) = [pair for pair in found.distinct if pair[1]]
    assert {pooled.name, *names} == {"c", "d"}
    lines = [f"  {each.message}" + ("; also 'd'" if names else "") for each, names in found.distinct]
    assert str(found).splitlines()[1:] == lines
    loaded = Calibration.load(found.save(tmp_path / "net.json"), path)
    assert loaded.message == "Percentile ranges of 6 tensors."
    (tmp_path / "less.json").write_text('{"x": {"lowest": -1.5, "highest": 1.5}}')
    less = Calibration.load(tmp_path / "less.json", path).message
    assert less == "Loaded ranges of 1 tensor. 5 float tensors of the model without a range: 'a', 'b', 'c', 'd', 'y'."


def test_entropy_is_that_of_onnxruntime_on_our_histogram() -> None:
    values = np.append(RANDOM.normal(0, 1, 60_000), [-19.5, 17.0]).astype(np.float32)
    low, high = entropy_range(Ranges.of(values).fine, 128, 1024)
    collector = theirs.HistogramCollector("entropy", False, 1024, 128, 99.9, "same")
    collector.collect({"x": [np.append(values, [-32, 32]).astype(np.float32)]})  # whose bins are powers of two
    assert (low, high) == pytest.approx([float(end) for end in collector.compute_entropy()["x"][:2]], abs=0.125)
    assert 3 < high < 6  # all but a few of the normal values, and not the two outliers
    assert entropy_range(Histogram(0, 0, np.ones(3, np.int64)), 128, 1024) == (-3, 3)  # fewer bins than levels


def test_entropy_with_the_bins_of_onnxruntime_is_that_of_its_calibrator(tmp_path: Path) -> None:
    """Searched in more bins, it lost 11 dB in a convolutional network."""
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] r, float[n] y) { r = Relu(x)  y = Exp(x) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    feed = {"x": np.random.default_rng(3).normal(size=4096).astype(np.float32)}
    calibrator = theirs.create_calibrator(
        tmp_path / "m.onnx", None, tmp_path / "aug.onnx", theirs.CalibrationMethod.Entropy
    )
    feeds = iter([feed])
    calibrator.collect_data(
        type("Reader", (theirs.CalibrationDataReader,), {"get_next": lambda _: next(feeds, None)})()
    )
    right = {name: entry.range_value for name, entry in calibrator.compute_data().items()}
    ranges = onnx_nb.calibrate(capture(tmp_path / "m.onnx", feed, ranges=True), "entropy")
    for name, ends in right.items():
        assert (ranges[name].low, ranges[name].high) == pytest.approx([float(end) for end in ends], rel=1e-3, abs=1e-6)


def test_the_range_of_least_squares_is_the_best_of_a_grid() -> None:
    values = np.clip(np.random.default_rng(4).standard_t(3, size=50_000), -60, 60).astype(np.float32)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Neg(x) }'
    ranges = capture(onnx.parser.parse_model(text), {"x": values}, ranges=True)

    def noise(low: float, high: float) -> float:
        scale = (high - low) / 255
        zero = np.rint(-low / scale)
        return float(np.square((np.clip(np.rint(values / scale) + zero, 0, 255) - zero) * scale - values).sum())

    best, whole = (onnx_nb.calibrate(ranges, method)["x"] for method in ("mse", "minmax"))
    grid = min(noise(float(low), float(high)) for low in np.arange(-61, -5, 4) for high in np.arange(5, 61, 4))
    assert noise(best.low, best.high) < 1.1 * grid
    assert noise(best.low, best.high) < noise(whole.low, whole.high)


def test_one_number_has_a_range_in_each_method() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Abs(x) }'
    captured = capture(onnx.parser.parse_model(text), {"x": np.full(4, -7.3, np.float32)}, ranges=True)
    for method in get_args(Method):
        found = onnx_nb.calibrate(captured, method, symmetric=True)
        assert [found[name].high for name in "xy"] == pytest.approx([7.3, 7.3], rel=0.01), method


def test_fine_histograms_and_channels_merge_exactly_and_in_other_processes(
    path: Path, captured: onnx_nb.types.Capture
) -> None:
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        spread = capture(path, FEEDS, ranges=True, executor=executor)
    assert onnx_nb.calibrate(spread, "percentile").rows() == onnx_nb.calibrate(captured, "percentile").rows()
    values = np.concatenate([feed["x"] for feed in FEEDS])
    fine = captured.statistics("x").fine  # type: ignore[attr-defined]
    assert FINE // 4 < len(fine.counts) <= FINE
    assert fine.counts.tolist() == np.histogram(values.astype(np.float64), fine.edges)[0].tolist()
    found = onnx_nb.calibrate(captured)["x"]
    assert found.channel_lows == tuple(values.min((0, 2, 3)).tolist())
    assert found.channel_highs == tuple(values.max((0, 2, 3)).tolist())
    part = Ranges.of(np.array([[1, np.nan], [np.inf, np.nan]])) | Ranges.of(np.array([[-3.0, np.nan]]))
    assert str((part.lows, part.highs)) == "((-3.0, nan), (1.0, nan))"
    marked = onnx_nb.calibrate(captured, "percentile", percentile=90)["a"]
    assert marked.histogram.marks == {"low": marked.low, "high": marked.high}
    assert marked.histogram.total == captured.statistics("a").count


def test_tables_are_read_and_written_as_onnxruntime_does(
    captured: onnx_nb.types.Capture, path: Path, tmp_path: Path
) -> None:
    found = onnx_nb.calibrate(captured, "entropy")
    data = theirs.load_tensors_data(found.save(tmp_path / "ours.json"))
    assert data.calibration_method is theirs.CalibrationMethod.Entropy
    assert {name: each.range_value for name, each in data.items()} == {
        name: (np.float32(found[name].low), np.float32(found[name].high)) for name in found
    }
    theirs.save_tensors_data(data, tmp_path / "theirs.json")
    write_calibration_table(data.data, str(tmp_path))
    for name in ("theirs.json", "calibration.json"):
        again = Calibration.load(tmp_path / name, path)
        assert again.method == ("entropy" if name == "theirs.json" else "")
        assert [(each["low"], each["high"]) for each in again.rows()] == [
            (float(low), float(high)) for low, high in (each.range_value for each in data.values())
        ]


def test_what_is_wrong_is_named(captured: onnx_nb.types.Capture, path: Path, tmp_path: Path) -> None:
    cache = onnx_nb.calibrate(captured).save(tmp_path / "net.json")
    other = network()
    other.graph.node[0].output[0] = other.graph.node[1].input[0] = "elsewhere"
    with pytest.raises(OnnxNbError, match=r"is of another model: net has no tensor of 1 of its 6 names, such as 'a'"):
        Calibration.load(cache, other)
    half = Calibration.load(cache, path)
    assert half.missing == []
    (tmp_path / "less.json").write_text('{"x": {"lowest": -1.5, "highest": 1.5}}')
    assert Calibration.load(tmp_path / "less.json", path).missing == ["a", "b", "c", "d", "y"]
    with pytest.raises(OnnxNbError, match="tensor 'z' has no range"):
        half["z"]
    with pytest.raises(OnnxNbError, match=r"Use \.json"):
        half.save(tmp_path / "table.txt")
    for text in ("{", "[]", '{"x": {"lowest": [1, 2], "highest": 3}}', '{"x": {}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ModelFileError, match="cannot be read as a calibration table"):
            Calibration.load(tmp_path / "bad.json")
    (tmp_path / "nan.json").write_text('{"x": {"lowest": NaN, "highest": 1}}')
    (tmp_path / "turned.json").write_text('{"x": {"lowest": 3, "highest": -1}}')
    for name in ("nan.json", "turned.json"):
        with pytest.raises(OnnxNbError, match=f"{name}' has no finite range of 'x'"):
            Calibration.load(tmp_path / name)
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(OnnxNbError, match=r"empty\.json' has no range"):
        Calibration.load(tmp_path / "empty.json")
    plain = capture(path, FEEDS[0])
    with pytest.raises(CaptureError, match="Capture with ranges=True"):
        onnx_nb.calibrate(plain, "entropy")
    with pytest.raises(CaptureError, match="percentile is 20"):
        onnx_nb.calibrate(captured, "percentile", percentile=20)
    with pytest.raises((CaptureError, TypeError), match="'best'"):
        onnx_nb.calibrate(captured, "best")  # type: ignore[arg-type]
