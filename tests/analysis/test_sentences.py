"""A sentence never kills a result: whatever the numbers are, each kind of result says something sound about itself."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import onnx_nb
from onnx_nb import OnnxNbError, types
from onnx_nb.analysis.pytorch.forward import forward_or_export
from onnx_nb.analysis.results import Displayed, StillTable
from onnx_nb.analysis.view.inspection import select
from onnx_nb.cli import document, record, verbs
from onnx_nb.drawing.html import still_html
from onnx_nb.notebook.display import widget_of
from tests.analysis.generate import packages
from tests.depth import examples

BAD = re.compile(r"(?<![\w'./])[-−]?(nan|inf)(?![\w'])|e\+\d+%|(?<![\d.])0(\.0+)?e\+00\b")
"""What is no number for a person; a cell or sentence writes NaN and ∞ where it means them."""
VERBS = {
    types.Comparison: "compare", types.Diff: "diff", types.Summary: "summary", types.Simplification: "simplify",
    types.Capture: "capture", types.Profile: "profile", types.Audit: "audit", types.Reduction: "reduce",
}  # fmt: skip
BODIES = (
    "(float[n] x) => (float[n] y) { a = Exp(x) y = Log(a) }",
    "(float[n] x) => (float[n] y) <float c = {2}> { a = Mul(x, c) y = Relu(a) }",
    (
        "(float[n] x) => (float[n] y) <float s = {0.02}, int8 z = {3}> "
        "{ a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z) y = Relu(b) }"
    ),
    (
        "(float[n] x) => (float[n] y) <float s = {0.0}, int8 z = {0}> "
        "{ a = QuantizeLinear(x, s, z) y = DequantizeLinear(a, s, z) }"
    ),
    "(float[n] x) => (float[n] y) { a, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(a, s, z) }",
    "(float[n] x) => (float[n] y) { a = Cast<to = 10>(x) b = Exp(a) y = Cast<to = 1>(b) }",
    "(float[n] x) => (int64[n] y) { a = Cast<to = 7>(x) y = Neg(a) }",
    "(float[n] x) => (bool[n] y) { a = Abs(x) y = IsInf(a) }",
    "(float[n] x) => (string[n] y) { y = Cast<to = 8>(x) }",
    "(float[n] x) => (float[1] y) { a = ReduceSum<keepdims = 1>(x) y = Sqrt(a) }",
)
VALUES = st.sampled_from([0.0, -0.0, 1.0, -2.5, 9.0, 300.0, 1e-30, 1e5, 3e38, math.nan, math.inf, -math.inf])
SIZES = st.sampled_from([0.0, 1e-300, 1e-9, 0.3, 1.0, 7.0, 1e9, 1e300])


@functools.cache
def model(number: int) -> onnx_nb.Model:
    head = '<ir_version: 8, opset_import: ["": 17]> g '
    return onnx_nb.load(onnx.parser.parse_model(head + BODIES[number]))


def texts(result: Any) -> Iterator[str]:
    """Yield each text that a result shows of itself, anywhere."""
    if getattr(getattr(type(result), "__dataclass_params__", None), "repr", False):
        assert repr(result)  # the fields as they are
    else:
        yield from (repr(result), str(result))
    if hasattr(result, "message"):
        yield result.message
    if isinstance(rows := getattr(result, "rows", ()), tuple):
        yield from (cell for row in rows for cell in row)
    else:
        rows = rows()
        assert isinstance(rows, list)
        if hasattr(result, "to_frame") and (rows or isinstance(result, Displayed)):
            assert len(result.to_frame()) == len(rows)
    if isinstance(result, Displayed):
        still = result._still()
        yield from (still.message, still.facts, *still.steps)
        yield from (cell for table in still.tables for row in table.rows for cell in row)
        assert still_html(result)
        if result._panel() is not None:
            widget = widget_of(result)
            content = (widget if hasattr(widget, "_content") else widget.graph)._content()
            json.dumps(content.about, allow_nan=False)
            yield str(getattr(widget, "_message", ""))
            widget.close()
    verb = VERBS.get(type(result))
    if verb and verb != "reduce":
        variable = verbs.VERBS[verb].result
        json.dumps(record.record(verb, {variable: result}), allow_nan=False)
        blocks = document.BLOCKS[verb]({variable: result})
        yield from (block.text for block in blocks if isinstance(block, document.Text))
        yield from (cell for block in blocks if isinstance(block, StillTable) for row in block.rows for cell in row)
        assert document.for_markdown(blocks)
        assert document.for_terminal(blocks, width=80)


def check(result: Any) -> None:
    for text in texts(result):
        wrong = BAD.search(text)
        assert wrong is None, f"{type(result).__name__}: {wrong}: {text}"


def checked(make: Callable[[], Any]) -> Any:
    """Return a result once its texts are looked at; none where the models cannot be compared."""
    try:
        result = make()
    except OnnxNbError:
        return None
    check(result)
    return result


@examples(30)
@example(1, 1, [])
@example(2, 2, [9.0])
@example(4, 4, [1.0])
@example(0, 1, [0.0, 0.0])
@example(3, 2, [1.0, 300.0])
@example(8, 8, [math.nan])
@given(st.sampled_from(range(len(BODIES))), st.sampled_from(range(len(BODIES))), st.lists(VALUES, max_size=20))
def test_results_of_models_that_run(one: int, other: int, values: list[float]) -> None:
    feed = {"x": np.asarray(values, np.float32)}
    for pair in ((one, one), (one, other)):
        comparison = checked(functools.partial(onnx_nb.compare, model(pair[0]), model(pair[1]), feed))
        if comparison is not None:
            for part in (*comparison.points, *comparison.quantizers):
                assert BAD.search(repr(part).replace("cumulative inf", "").replace("isolated inf", "")) is None
            if pair[0] == pair[1]:
                assert "equal" in comparison.message
    checked(lambda: onnx_nb.diff(model(one), model(other)))
    capture = checked(lambda: onnx_nb.capture(model(one), feed, ranges=True))
    if capture is not None:
        calibration = checked(lambda: onnx_nb.calibrate(capture))
        for name in calibration or ():
            check(calibration[name])
        for entry in filter(None, [capture.nonfinite()]):
            check(entry)


@np.errstate(all="ignore")
def _stats(values: Any, factor: float, shift: float, dtype: str) -> Any:
    return types.ErrorStats.of(values.astype(dtype), (values * factor + shift).astype(dtype))


STATS = st.builds(
    lambda values, factor, shift, dtype: _stats(np.asarray(values), factor, shift, dtype),
    st.lists(VALUES, max_size=12), st.sampled_from([1, 1, 0, -1, 2]), st.sampled_from([0, 0, 1e-7, 1, math.inf]),
    st.sampled_from(["f4", "f8", "f2", "i4", "?", "U"]),
)  # fmt: skip
QUANTIZERS = st.builds(
    lambda count, below, levels, **fields: types.Quantizer(
        count=count, below=int(count * below), above=count - int(count * below),
        levels=np.asarray(levels, np.int64), spread=np.zeros(48, np.int64), low=-2.0, high=1.0, zero_point=0, **fields
    ),
    count=st.sampled_from([0, 1, 1000]), below=st.sampled_from([0, 0.3, 0.0005, 1]),
    levels=st.sampled_from([[], [0] * 256, [1] + [0] * 255]), name=st.just("w"), node=st.just("n"),
    role=st.sampled_from(["activation", "weight"]), dtype=st.sampled_from(["int8", "uint4", "float8_e4m3fn"]),
    granularity=st.sampled_from(["tensor", "channel", "block of 32"]),
    scale=st.sampled_from([np.zeros(2), np.asarray([1e-9, 3e4])]), signal=SIZES, rounding=SIZES, clipping=SIZES,
    wrong=SIZES, fitted=SIZES, by_channel=SIZES, channels=st.sampled_from([(), (1,), tuple(range(9))]),
    lost=st.sampled_from([0.0, 0.3, 1.0]), disagreement=st.sampled_from(["", "the scale 1 instead of 2"]),
    mistake=st.sampled_from(["", "the scales along the other axis"]), smoothing=st.sampled_from([1.0, 2.6, 1e9]),
    shared=st.booleans(),
)  # fmt: skip
POINTS = st.builds(
    lambda **fields: fields, op_type=st.sampled_from(["Add", "Conv", ""]), output=st.booleans(),
    between=st.sampled_from([(), ("a", "b")]), difference=st.sampled_from(["", "alpha is 1 instead of 2"]),
    precision=st.sampled_from([0.0, 2.0**-8]), quantizers=st.lists(QUANTIZERS, max_size=2).map(tuple),
    cumulative=st.one_of(st.none(), STATS), isolated=st.one_of(st.none(), STATS),
)  # fmt: skip


@given(QUANTIZERS)
def test_any_quantizer(quantizer: Any) -> None:
    check(quantizer)
    check(quantizer | quantizer)


@examples(40)
@given(st.lists(POINTS, max_size=5), st.booleans())
def test_any_comparison(fields: list[dict[str, Any]], is_torch: bool) -> None:
    points = [
        types.Point(f"p{at}", f"p{at}", f"p{at}", "name", at, **{"cumulative": types.ErrorStats.of([1.0], [1.0])} | row)
        for at, row in enumerate(fields)
    ]
    kind = types.TorchComparison if is_torch else types.Comparison
    comparison = kind("a.onnx", "b.onnx", tuple(points))
    check(comparison)
    for part in (*points, comparison.merge(comparison)):
        assert repr(part)


@functools.cache
def _torch() -> Any:
    torch = pytest.importorskip("torch")
    x = (torch.tensor([[0.0, 1.0]]),)
    return onnx_nb.compare_torch(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval(), x)


@functools.cache
def pair() -> Any:
    return onnx_nb.compare(model(1), model(2), {"x": np.asarray([0.0, 300.0], np.float32)})


@functools.cache
def profile() -> Any:
    return onnx_nb.profile(model(1), {"x": np.ones(3, np.float32)}, runs=3, sessions=1)


def package() -> Any:
    """A package of two models whose names need escapes."""
    part = model(0)
    return types.Package(Path("a<b>"), {"decoder": part, "<i>": part}, {})


def forward() -> Any:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(4, 2)).eval()
    return forward_or_export(net, torch.ones(1, 2))


def _range(low: float = -1.0) -> Any:
    return types.Range("x", low, 1.0, -2.0, 2.0, 1.0, math.inf)


KINDS: dict[str, Callable[[], Any]] = {
    "Alignment": lambda: _torch().alignment,
    "Audit": lambda: onnx_nb.external_data.audit(model(0)),
    "Cache": lambda: types.Cache("n", 4, ("x",), ()),
    "CacheCheck": lambda: onnx_nb.check_cache(packages.decoder(1)),
    "Calibration": lambda: types.Calibration("entropy", {"x": _range()}),
    "Capture": lambda: onnx_nb.capture(model(0), {"x": np.asarray([math.inf, -1], np.float32)}),
    "Comparison": pair,
    "Costs": lambda: onnx_nb.costs(model(0)),
    "Edit": lambda: onnx_nb.edit(model(0)).rename({"x": "z"}).verify(),
    "Decoding": lambda: onnx_nb.decode(packages.decoder(1), [3, 5], 2),
    "DecodingComparison": lambda: onnx_nb.compare_decoding(packages.decoder(1), packages.decoder(1, seed=1), [3, 5], 2),
    "Diff": lambda: onnx_nb.diff(model(0), model(1)),
    "Difference": lambda: onnx_nb.diff(model(0), model(1)).changes[0],
    "ExclusionCurve": lambda: types.ExclusionCurve((types.ExclusionStep("", (), math.inf, math.nan, math.nan),)),
    "Forward": forward,
    "ExtractionPlan": lambda: onnx_nb.plan_extraction(model(0), ["x"], ["y"]),
    "Headroom": lambda: onnx_nb.headroom(onnx_nb.capture(model(0), {"x": np.ones(2, np.float32)})),
    "Memory": lambda: onnx_nb.costs(model(0)).memory,
    "MissingInput": lambda: onnx_nb.plan_extraction(model(0), [], ["y"]).missing[0],
    "NonFinite": lambda: onnx_nb.capture(model(0), {"x": np.asarray([-math.inf, 0], np.float32)}).nonfinite(),
    "Package": package,
    "Profile": profile,
    "ProfileComparison": lambda: profile().compare(profile()),
    "Quantizer": lambda: pair().quantizers[0],
    "Range": _range,
    "Reduction": lambda: onnx_nb.reduce(model(0), lambda *_: False, {"x": np.ones(1, np.float32)}),
    "Selection": lambda: select(model(0), [0, 1]),
    "Sensitivity": lambda: types.Sensitivity(
        (types.LayerEffect("a", ("n",), math.inf, math.nan, -1e-300),),
        types.ExclusionCurve((types.ExclusionStep("", (), -math.inf, math.nan, math.nan, 0.0),)),
    ),
    "Simplification": lambda: onnx_nb.simplify(model(0)),
    "Statement": lambda: types.Statement("heads", "4", "2", ok=False),
    "Summary": lambda: onnx_nb.summarize(model(0)),
    "TorchComparison": _torch,
}


def mutated(result: Any, draw: Any) -> Any:
    """Return a result with other numbers in its fields of type float."""
    if not dataclasses.is_dataclass(result) or isinstance(result, type):
        return result
    fields = [field for field in dataclasses.fields(result) if field.init and field.type == "float"]
    drawn = {
        field.name: draw(SIZES | st.just(math.nan) if field.default != field.default else SIZES) for field in fields
    }
    return dataclasses.replace(result, **drawn)


@pytest.mark.parametrize("kind", sorted(KINDS))
@examples(10)
@given(data=st.data())
def test_any_numbers_in_each_kind(kind: str, data: st.DataObject) -> None:
    check(mutated(kept(kind), data.draw))


@functools.cache
def kept(kind: str) -> Any:
    return KINDS[kind]()


def test_each_kind_of_result_is_here() -> None:
    classes = {name: kind for name in types.__all__ if inspect.isclass(kind := getattr(types, name))}
    speaking = {name for name, kind in classes.items() if any(hasattr(kind, way) for way in ("message", "rows"))}
    assert speaking | {name for name, kind in classes.items() if issubclass(kind, Displayed)} == KINDS.keys()


def test_a_report_of_names_that_are_no_text(tmp_path: Path) -> None:
    """Names of files may be any bytes: a lone surrogate stands for one that is not UTF-8."""
    parts = {"a\udce4": "text \udce4", "b": [{"c\udce4": "\udce4"}], "d": pair()}
    page = onnx_nb.report(tmp_path / "r\udce4.html", parts, title="t\udce4")
    assert "<title>t?</title>" in page.read_text("utf-8")
