"""The largest number of each value against float16, judged by models that onnxruntime's converter made."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.transformers import float16

import onnx_nb
from tests.analysis.generate import packages

WIDTH = 8


def growing(seed: int, blocks: int = 8) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a stream of residuals that grows past 65,504 somewhere, as in large language models, and a feed."""
    rng = np.random.default_rng(seed)
    nodes, weights, stream = [], [], "x"
    for block in range(blocks):
        weights.append(numpy_helper.from_array(rng.normal(0, 2, (WIDTH, WIDTH)).astype(np.float32), f"w{block}"))
        inner, out = f"blocks.{block}/branch", f"blocks.{block}/sum"
        nodes += [
            helper.make_node("MatMul", [stream, f"w{block}"], [inner], f"/blocks.{block}/MatMul"),
            helper.make_node("Add", [stream, inner], [out], f"/blocks.{block}/Add"),
        ]
        stream = out
    nodes.append(helper.make_node("Tanh", [stream], ["y"], "/Tanh"))
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, WIDTH]) for name in "xy")
    graph = helper.make_graph(nodes, "growing", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": rng.normal(0, 10 ** rng.uniform(-1, 2), (1, WIDTH)).astype(np.float32)}


def first_infinite(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> str:
    """Return the first value that is not finite in the model that onnxruntime's converter makes; "" if all are."""
    half = float16.convert_float_to_float16(model, keep_io_types=True, max_finite_val=65504.0)
    names = [node.output[0] for node in model.graph.node]
    made = {name for node in half.graph.node for name in node.output}
    del half.graph.output[:]
    half.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name in made)
    results = ort.InferenceSession(half.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    odd = (info.name for info, array in zip(half.graph.output, results, strict=True) if not np.isfinite(array).all())
    return next(odd, "")


def test_the_first_that_overflows_is_the_one_in_the_model_that_is_converted() -> None:
    pairs = []
    for seed in range(40):
        model, feeds = growing(seed)
        forecast = onnx_nb.headroom(onnx_nb.capture(model, feeds)).overflows
        pairs.append((first_infinite(model, feeds), forecast[0] if forecast else ""))
    firsts = {first for first, _ in pairs}
    assert len(firsts) > 5, "at many places"
    assert "" in firsts, "and nowhere"
    # a number next to 65,520 may fall on either side
    assert sum(first == forecast for first, forecast in pairs) >= 38


def test_layers_are_named_with_their_largest_value() -> None:
    model, feeds = growing(3)
    cap = onnx_nb.capture(model, feeds, keep="*")
    h = onnx_nb.headroom(cap)
    sizes = {name: float(np.abs(cap[name]).max()) for name in cap.names}
    assert {row["name"]: row["largest"] for row in h.rows()} == pytest.approx(sizes)
    layers = h.layers()
    assert [row["layer"] for row in layers][1:] != []
    assert sum(row["overflows"] for row in layers) == len(h.overflows)
    worst = max(layers, key=lambda row: row["largest"])
    assert worst["largest"] == max(sizes.values())
    assert worst["share"] == pytest.approx(worst["largest"] / 65504)
    first = next(name for name in cap.names if sizes[name] >= 65520)
    assert h.message.startswith(f"{first!r}")
    assert f"{sizes[first]:,.0f}" in h.message
    assert "float16 ends at 65,504" in h.message


def test_what_masks_add_is_no_overflow() -> None:
    text = "<float[2] mask = {0, -3.4028235e38}>"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {text}'
        "{ a = Add(x, mask)  y = Softmax(a) }"
    )
    h = onnx_nb.headroom(onnx_nb.capture(model, {"x": np.array([3, 4], np.float32)}))
    assert h.overflows == ()
    assert h.message == "Nothing overflows in float16: 'x' reaches 4 at most, 0.0061% of what it holds."


def test_every_step_of_a_text() -> None:
    d = onnx_nb.decode(packages.decoder(), [3, 5, 7], 4)
    every = list(d.all_feeds())
    assert len(every) == 4
    for step, feeds in enumerate(every):
        alone = d.feeds(step)
        assert feeds.keys() == alone.keys()
        assert all(np.array_equal(feeds[name], alone[name]) for name in feeds)
    cap = onnx_nb.capture(d.model, d.all_feeds())
    assert cap.feeds == 4
    rows = {row["name"]: row["largest"] for row in onnx_nb.headroom(cap).rows()}
    for feeds in every:
        for name, largest in (
            (row["name"], row["largest"]) for row in onnx_nb.headroom(onnx_nb.capture(d.model, feeds)).rows()
        ):
            assert largest <= rows[name]


def test_a_capture_without_floats_is_an_error() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[2] x) => (int64[2] y) { y = Neg(x) }'
    )
    with pytest.raises(onnx_nb.CaptureError, match="no float value with finite numbers was captured"):
        onnx_nb.headroom(onnx_nb.capture(model, {"x": np.array([1, 2])}))
