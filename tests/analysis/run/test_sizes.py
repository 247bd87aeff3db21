"""Sizes that a file leaves open: which are one size, and who may choose them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.cost.summary import summarize
from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.profile.profile import profile
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.capture import capture
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.simplify.simplify import simplify
from onnx_nb.analysis.submodel.reduction import reduce


def parsed(graph: str, opset: int = 20) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


@pytest.mark.parametrize("unknown", ["?", "", "-1", "None", "unk__618"])
def test_words_for_unknown_are_no_names(unknown: str) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [unknown, 3, unknown, unknown])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [unknown, 3, unknown, unknown])
    proto = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    feed = {"x": np.random.default_rng(0).standard_normal((2, 3, 5, 7), np.float32)}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)[0]
    assert np.array_equal(session.run(proto, feed)["y"], expected)
    assert np.array_equal(capture(proto, feed, keep="y")["y"], expected)
    assert load(proto).inputs[0].shape == (None, 3, None, None)
    summary = summarize(proto)
    assert not summary.unbound
    cost = summarize(proto, shapes={"x": (2, 3, 5, 7)}).cost
    assert cost is not None
    assert cost.flops == 2 * 3 * 5 * 7
    with pytest.raises(FeedError, match="has neither an input nor a dimension"):
        random_feeds(proto, shapes={unknown: 4})


def test_sizes_that_differ_where_one_name_is_declared_are_a_warning() -> None:
    proto = parsed("""g (float[n, 4] x, float[n, 4] y) => (float[n, 4] z, float[n, 4] w)
        { a = Relu(x)  b = Neg(a)  c = Relu(y)  d = Neg(c)  z = Exp(b)  w = Exp(d) }""")
    feed = {"x": np.ones((2, 4), np.float32), "y": np.ones((3, 4), np.float32)}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(["z", "w"], feed)
    message = "axis 0 of input 'y' has size 3, but dimension 'n' has size 2 at axis 0 of input 'x'"
    with pytest.warns(UserWarning, match=message):
        found = session.run(proto, feed)
    assert all(np.array_equal(found[name], right) for name, right in zip("zw", expected, strict=True))
    with pytest.warns(UserWarning, match=message):
        values = capture(proto, feed, keep=["z", "w"])
    assert all(np.array_equal(values[name], right) for name, right in zip("zw", expected, strict=True))
    with pytest.warns(UserWarning, match=message):
        assert profile(proto, feed, runs=1).shapes == {"x": (2, 4), "y": (3, 4)}
    assert {name: array.shape for name, array in random_feeds(proto, shapes={"x": (2, 4), "y": (3, 4)}).items()} == {
        "x": (2, 4),
        "y": (3, 4),
    }


# a sum over n = 5: only that size has a mean of 1, so that each verb shows which size it ran on
COUNTED = parsed("""g (float[n] x, float[n] y) => (float[1] z)
    { zero = Sub(x, x)  one = Exp(zero)  z = ReduceSum(one) }""")


def test_every_verb_makes_feeds_of_the_sizes_asked_for() -> None:
    assert session.run(COUNTED, shapes={"n": 5})["z"] == 5
    assert session.run(COUNTED, shapes={"x": (5,)})["z"] == 5
    captured = capture(COUNTED, shapes={"n": 5}, keep="*")
    assert captured["z"] == 5
    assert profile(COUNTED, shapes={"n": 5}, runs=1).shapes == {"x": (5,), "y": (5,)}
    comparison = compare(COUNTED, COUNTED, shapes={"n": 5})
    assert comparison.feed is not None
    assert comparison.feed["x"].shape == (5,)
    assert simplify(COUNTED, shapes={"n": 5}).model.inputs[0].shape == (5,)
    reduction = reduce(COUNTED, lambda _, feed: all(array.size != 5 for array in feed.values()), shapes={"n": 5})
    assert [array.shape for array in reduction.feeds.values()] == [(5,)]
    (feed,) = read_feeds(COUNTED, shapes={"n": 5})
    assert feed["y"].shape == (5,)


def test_sizes_beside_feeds_that_leave_nothing_to_choose_are_refused() -> None:
    arrays = {name: np.zeros(3, np.float32) for name in "xy"}
    message = "shapes= are sizes of feeds that are made up, and feeds are given"
    for feeds in (arrays, [*arrays.values()], [arrays, arrays]):
        for verb in (session.run, capture, profile):
            with pytest.raises(FeedError, match=message):
                verb(COUNTED, feeds, shapes={"n": 3})
        with pytest.raises(FeedError, match=message):
            compare(COUNTED, COUNTED, feeds, shapes={"n": 3})
    kept = capture(COUNTED, arrays, keep="*")
    with pytest.raises(FeedError, match=r"shapes= are sizes of made-up feeds, and .* has its own"):
        compare(kept, COUNTED, shapes={"n": 3})
    with pytest.raises(FeedError, match="has neither an input nor a dimension 'm'"):
        session.run(COUNTED, shapes={"m": 3})
    with pytest.warns(UserWarning, match="dimension 'n' has size 2"):
        assert session.run(COUNTED, shapes={"x": (2,), "y": (3,)})["z"] == 2
