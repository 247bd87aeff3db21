"""`compare` agrees with onnxruntime and numpy, matches the right values, and keeps none of them."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.errors import AlignmentError, CaptureError, FeedError
from onnx_nb.analysis.run.value_recorder import Store
from tests import models

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.compare.metrics import ErrorStats

HEAD = '<ir_version: 8, opset_import: ["": 17]> '


def parsed(body: str, head: str = "g (float[4, 32] x) => (float[4, 32] y) ") -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + head + body)


def all_values(path: Path | onnx.ModelProto, feed: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return every value as onnxruntime computes it: all of them outputs, without optimization."""
    proto = copy.deepcopy(path) if isinstance(path, onnx.ModelProto) else onnx.load(path)
    there = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in node.output
                                  if name and name not in there)  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feed)), strict=True)) | dict(feed)


def errors_of(comparison: Comparison, name: str) -> ErrorStats:
    found = comparison[name].cumulative
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["fp16", "qdq"])
def test_errors_are_those_of_two_whole_runs(how: str) -> None:
    reference, candidate = models.exported("bert", dynamo=True), models.transformed("bert", how)
    feed = onnx_nb.random_feeds(reference, seed=5)
    c = compare(reference, candidate, feed)
    mine, yours = all_values(reference, feed), all_values(candidate, feed)
    assert len(c) > 500
    for point in c.points:
        x, y = mine[point.reference].astype(np.float64), yours[point.candidate].astype(np.float64)
        found = errors_of(c, point.name)
        assert found.shape == x.shape
        assert found.max_abs == np.abs(y - x).max()
        assert found.rmse == pytest.approx(np.sqrt(((y - x) ** 2).mean()), rel=1e-12)
        assert found.equal == (x == y).sum()
    assert [point.name for point in c.points if point.output] == ["last_hidden_state", "pooler_output"]
    agree = mine["pooler_output"].argmax(-1) == yours["pooler_output"].argmax(-1)
    assert errors_of(c, "pooler_output").argmax == (agree.sum(), agree.size)


def counterparts(reference: onnx.ModelProto, candidate: onnx.ModelProto) -> dict[str, str]:
    """Return which tensors of a transformed model and the original match, by node names, which onnxruntime keeps.

    The second opinion: it knows how onnxruntime transforms, and looks at neither names of tensors nor values.
    """
    nodes = {node.name: node for node in reference.graph.node}
    there = {node.name.removesuffix("_quant") for node in candidate.graph.node}
    activation = {}
    for node in reference.graph.node:
        if node.op_type in ("Relu", "Clip"):
            activation[node.input[0]] = node
    found: dict[str, str] = {graph_input.name: graph_input.name for graph_input in reference.graph.input}
    makers = {output: node for node in candidate.graph.node for output in node.output}

    def clipped(name: str) -> str:
        """A removed activation is done by the range of the integers."""
        after = activation.get(name)
        return after.output[0] if after is not None and after.name not in there else name

    for node in candidate.graph.node:
        original = nodes.get(node.name.removesuffix("_quant")) or nodes.get(node.name)
        if original is not None:
            is_quantized = node.op_type.startswith("QLinear") or node.op_type == "QGemm"
            for mine, yours in zip(original.output, node.output, strict=False):
                found[yours] = clipped(mine) if is_quantized else mine
        elif node.op_type == "DequantizeLinear":
            source = makers.get(node.input[0])
            if source is not None and source.op_type == "QuantizeLinear" and source.input[0] in found:
                found[node.output[0]] = clipped(found[source.input[0]])
            elif node.input[0] in found:
                found[node.output[0]] = found[node.input[0]]
        elif node.op_type in ("Mul", "Add", "Cast", "QuantizeLinear") and node.output[0] in nodes_outputs(reference):
            found[node.output[0]] = node.output[0]  # the last of what dynamic quantization makes of a MatMul
    return found


def nodes_outputs(proto: onnx.ModelProto) -> set[str]:
    return {output for node in proto.graph.node for output in node.output}


@pytest.mark.parametrize("how", models.TRANSFORMS)
@pytest.mark.parametrize("name", ["bert", "resnet50"])
def test_transformed_models_are_matched_and_none_wrongly(name: str, how: str) -> None:
    reference, candidate = models.exported(name, dynamo=True), models.transformed(name, how)
    c = compare(reference, candidate, onnx_nb.random_feeds(reference, seed=3))
    protos = onnx.load(reference, load_external_data=False), onnx.load(candidate, load_external_data=False)
    known = counterparts(*protos)
    constants = {output for node in protos[0].graph.node if node.op_type == "Constant" for output in node.output}
    values = (nodes_outputs(protos[0]) | {each.name for each in protos[0].graph.input}) - constants
    surviving = {original for original in known.values() if original in values}
    matched = {point.reference for point in c.points}
    wrong = {point.reference: point.candidate for point in c.points
             if known.get(point.candidate, point.reference) != point.reference}  # fmt: skip
    judged = sum(point.candidate in known for point in c.points)
    assert not wrong
    assert len(matched & surviving) >= 0.95 * len(surviving)
    assert judged >= 0.5 * len(c)


def test_differences_hidden_by_an_activation_are_reported() -> None:
    c = compare(models.exported("resnet50", dynamo=True), models.transformed("resnet50", "qoperator"))
    reasons = {each.name: each.reason for each in c.unmatched if each.side == "reference"}
    assert reasons["getitem"] == "the candidate's 'getitem_quantized' is what 'relu' is in the reference"
    assert c["relu"].matched == "fused"


def faulty(change: Callable[[onnx.ModelProto], object]) -> tuple[Path, onnx.ModelProto]:
    path = models.exported("bert", dynamo=True)
    proto = onnx.load(path)
    change(proto)
    return path, proto


def test_a_changed_epsilon_is_named() -> None:
    def change(proto: onnx.ModelProto) -> None:
        norms = [node for node in proto.graph.node if node.op_type == "LayerNormalization"]
        next(each for each in norms[7].attribute if each.name == "epsilon").f = 1e-2
        names.append(norms[7].output[0])

    names: list[str] = []
    c = compare(*faulty(change), models_feed())
    first = c.first_divergent()
    assert first is not None
    assert first.name == names[0]
    assert first.difference.startswith("epsilon is 0.01 instead of 1e-12")
    assert c.message.endswith(" Epsilon is 0.01 instead of 1e-12.")


def test_a_changed_weight_is_named() -> None:
    def change(proto: onnx.ModelProto) -> None:
        norm = [node for node in proto.graph.node if node.op_type == "LayerNormalization"][7]
        names.extend((norm.output[0], norm.input[2]))
        # all of them share one
        shared = next(each for each in proto.graph.initializer if each.name == names[1])
        array = numpy_helper.to_array(shared).copy()
        array[3] += 0.5
        norm.input[2] = "own"
        proto.graph.initializer.append(numpy_helper.from_array(array, "own"))

    names: list[str] = []
    c = compare(*faulty(change), models_feed())
    first = c.first_divergent()
    assert first is not None
    assert first.name == names[0]
    assert first.difference == f"weight {names[1]!r} differs in 1 of 48 values, by at most 0.5"


def models_feed() -> dict[str, Any]:
    return onnx_nb.random_feeds(models.exported("bert", dynamo=True), seed=1)


def test_a_model_is_equal_to_itself() -> None:
    path = models.exported("bert", dynamo=False)
    c = compare(path, path)
    assert c.message.startswith(f"All {len(c):,} points are equal. Feeds: random, ")
    assert not c.unmatched


def test_renamed_tensors_are_found_by_structure() -> None:
    path = models.exported("bert", dynamo=True)
    proto = onnx.load(path)
    new = {output: f"t{at}" for at, output in enumerate(sorted(nodes_outputs(proto)))}
    ends = {output.name for output in proto.graph.output}
    for node in proto.graph.node:
        node.name = ""
        node.input[:] = [name if name in ends else new.get(name, name) for name in node.input]
        node.output[:] = [name if name in ends else new.get(name, name) for name in node.output]
    del proto.graph.value_info[:]
    c = compare(path, proto, models_feed())
    assert not [each for each in c.unmatched if each.side == "reference"]
    assert all(point.candidate in (new.get(point.reference), point.reference) for point in c.points)


def test_a_name_of_another_value_is_not_trusted() -> None:
    # in the candidate a and b are swapped, and what makes them is written in another way
    one = parsed("{ a = Sin(x)  b = Cos(a)  c = Add(a, b)  y = Neg(c) }")
    other = parsed("""{ half = Constant<value_float = 1.5707963>()  s = Sub(half, x)  b = Cos(s)
                        t = Sub(half, b)  a = Sin(t)  c = Add(a, b)  y = Neg(c) }""")
    c = compare(one, other, {"x": np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)})
    assert {point.reference: point.candidate for point in c.points if point.reference in "ab"} == {"a": "b", "b": "a"}
    assert c["a"].matched == "values"


def test_values_without_a_counterpart_have_a_reason() -> None:
    c = compare(parsed("{ a = Sin(x)  b = Cos(a)  y = Neg(b) }"), parsed("{ y = Exp(x) }"))
    assert [(each.name, each.side, each.op_type) for each in c.unmatched] == [
        ("a", "reference", "Sin"),
        ("b", "reference", "Cos"),
    ]
    with pytest.raises(AlignmentError, match="'a' is only in the reference"):
        c["a"]


def test_shapes_that_differ_are_reported() -> None:
    one = parsed("{ t = Transpose<perm = [1, 0]>(x)  s = ReduceSum<keepdims = 0>(t)  y = Add(x, s) }")
    other = parsed("{ t = Transpose<perm = [0, 1]>(x)  s = ReduceSum<keepdims = 0>(t)  y = Add(x, s) }")
    c = compare(one, other)
    gone = {each.name: each.reason for each in c.unmatched if each.side == "reference"}
    assert gone == {"t": "the shape is 32×4 in the reference and 4×32 in the candidate"}


def test_nan_on_one_side_is_the_first_divergent_point() -> None:
    c = compare(parsed("{ a = Abs(x)  b = Sqrt(a)  y = Neg(b) }"), parsed("{ a = Neg(x)  b = Sqrt(a)  y = Neg(b) }"))
    assert errors_of(c, "b").nan_mismatch > 0
    assert errors_of(c, "b").max_abs >= 0


@pytest.mark.parametrize("memory_limit", [None, 4_000_000])
def test_a_small_memory_limit_gives_the_same_errors(
    memory_limit: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # the candidate makes in the end what the reference makes first
    one = parsed("{ a = Sin(x)  b = Cos(a)  c = Exp(b)  d = Tanh(c)  e = Sin(d)  y = Neg(e) }",
                 "g (float[512, 512] x) => (float[512, 512] a, float[512, 512] y) ")  # fmt: skip
    other = parsed("{ a = Sin(x)  b = Cos(a)  c = Exp(b)  d = Tanh(c)  e = Sin(d)  y = Neg(e) }",
                   "g (float[512, 512] x) => (float[512, 512] a, float[512, 512] y) ")  # fmt: skip
    written = []
    put = Store.put

    def watched(store: Store, content: Any) -> Any:
        written.append(content)
        return put(store, content)

    monkeypatch.setattr(Store, "put", watched)
    feed = {"x": np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)}
    c = compare(one, other, feed, memory_limit=memory_limit)
    assert bool(written) == (memory_limit is not None)
    assert c.message == "All 7 points are equal."
    assert not list(tmp_path.iterdir())


def dataset() -> list[dict[str, NDArray[Any]]]:
    return [onnx_nb.random_feeds(models.exported("bert", dynamo=True), seed, {"seq": 5 + seed}) for seed in range(4)]


@pytest.mark.parametrize("workers", [concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor])
def test_feeds_merge_on_any_executor(workers: Any) -> None:
    pair = models.exported("bert", dynamo=True), models.transformed("bert", "qdq")
    single = compare(*pair, dataset())
    with workers(2) as executor:
        spread = compare(*pair, dataset(), executor=executor)
    assert single.feeds == spread.feeds == 4
    assert str(single.rows()) == str(spread.rows())
    name = "last_hidden_state"
    merged = [errors_of(compare(*pair, feed, tensors=name), name) for feed in dataset()]
    whole = errors_of(single, name)
    assert whole.max_abs == max(each.max_abs for each in merged)
    assert whole.count == sum(each.count for each in merged)
    assert whole.worst[0].feed == int(np.argmax([each.max_abs for each in merged]))


def test_captures_can_be_compared() -> None:
    pair = models.exported("bert", dynamo=True), models.transformed("bert", "fp16")
    feeds = dataset()[:2]
    whole = compare(*pair, feeds)
    kept = [onnx_nb.capture(model, feeds, keep="*") for model in pair]
    for sides in ((kept[0], kept[1]), (kept[0], pair[1]), (pair[0], kept[1])):
        c = compare(*sides)
        assert c.has_isolated == (sides[1] is pair[1])  # a recording cannot run again on other values
        right = whole if c.has_isolated else compare(*pair, feeds, isolated=False)
        assert str(c.rows()) == str(right.rows())
    some = onnx_nb.capture(pair[0], feeds, keep=["last_hidden_state"])
    assert compare(some, pair[1], feeds).names == ["last_hidden_state"]


def test_only_requested_tensors_run() -> None:
    one = parsed("{ a = Sin(x)  b = Cos(a)  y = Neg(b) }")
    seen: list[str] = []
    c = compare(one, one, tensors=["a*"], progress=lambda _, what: seen.append(what))
    assert c.names == ["a"]
    assert not any("Neg" in what or "Cos" in what for what in seen)


def test_progress_grows_and_ends_at_one() -> None:
    path = models.exported("bert", dynamo=True)
    parts: list[float] = []
    compare(path, models.transformed("bert", "qdq"), dataset()[:2], progress=lambda part, _: parts.append(part))
    assert parts == sorted(parts)
    assert parts[0] == 0
    assert parts[-1] == 1
    assert len(parts) > 8


def test_cancel_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def cancel(part: float, what: str) -> None:
        if part > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(models.exported("bert", dynamo=True), models.transformed("bert", "qdq"), progress=cancel)
    assert not list(tmp_path.iterdir())


def test_strings_and_integers_are_compared() -> None:
    one = parsed("{ i = ArgMax<axis = 1, keepdims = 0>(x)  w = Cast<to = 8>(i)  y = Neg(x) }")
    other = parsed("{ i = ArgMin<axis = 1, keepdims = 0>(x)  w = Cast<to = 8>(i)  y = Neg(x) }")
    c = compare(one, other)
    found = errors_of(c, "i")
    assert found.dtypes == ("int64", "int64")
    assert found.equal < found.count
    assert errors_of(c, "w").dtypes == ("string", "string")
    assert errors_of(c, "w").equal == found.equal


def test_errors_for_bad_input_have_advice() -> None:
    one, other = parsed("{ y = Sin(x) }"), parsed("{ q = Sin(z) }", "g (int64[3] z) => (int64[3] q) ")
    with pytest.raises(FeedError):
        compare(one, other)
    with pytest.raises(FeedError, match="input 'x' takes"):
        compare(one, one, {"x": np.zeros(3)})
    with pytest.raises(FeedError, match="no feed was given"):
        compare(one, one, iter([]))
    two = parsed("{ y = Add(x, b) }", "g (float[4, 32] x, float[4, 32] b) => (float[4, 32] y) ")
    with pytest.raises(FeedError, match="also needs 'b', which the reference does not have"):
        compare(one, two)
    with pytest.raises(CaptureError, match="no captured value is called 'z'"):
        compare(one, one, tensors="z")
    with pytest.raises(AlignmentError, match="kept no arrays"):
        compare(onnx_nb.capture(one), one)
    with pytest.raises(FeedError, match="has no values of input 'x'"):
        compare(onnx_nb.capture(one, keep="y"), one)
    with pytest.raises(AlignmentError, match="memory_limit is 0"):
        compare(one, one, memory_limit=0)
    kept = onnx_nb.capture(one, keep="*")
    with pytest.raises(FeedError, match="is of 1 feed"):
        compare(kept, one, [{"x": np.zeros((4, 32), np.float32)}] * 2)


def test_inputs_of_another_name_and_type_are_passed() -> None:
    one = parsed("{ y = Sin(x) }")
    other = parsed("{ y = Sin(z) }", "g (float16[4, 32] z) => (float16[4, 32] y) ")
    c = compare(one, other)
    assert errors_of(c, "y").dtypes == ("float32", "float16")
    assert errors_of(c, "y").rel_l2 < 2e-3


def test_no_session_outlives_a_comparison() -> None:
    gc.collect()
    gc.disable()  # a session in a reference cycle would stay, and hang a forked process that collects it
    try:
        before = sum(type(each) is onnxruntime.InferenceSession for each in gc.get_objects())
        compare(models.exported("bert", dynamo=True), models.transformed("bert", "qdq"), dataset()[:1])
        after = sum(type(each) is onnxruntime.InferenceSession for each in gc.get_objects())
    finally:
        gc.enable()
    assert after == before


# --- inputs that differ ----------------------------------------------------------------------------------------------

FREE = """<ir_version: 8, opset_import: ["": 17]> g (float[3] x, int64 sr) => (float[3] y)
    { r = Cast <to = 1> (sr)  a = Mul(x, r)  y = Neg(a) }"""
BOUND = """<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) <float r = {3}>
    { a = Mul(x, r)  y = Neg(a) }"""


@pytest.mark.parametrize("texts", [(FREE, BOUND), (BOUND, FREE), (FREE, FREE)])
def test_an_input_that_one_side_lacks_is_a_constant_there(texts: tuple[str, str]) -> None:
    one, two = (onnx.parser.parse_model(text) for text in texts)
    x = np.array([1, -2, 3], np.float32)
    c = onnx_nb.compare(one, two, {"x": x}, constants={"sr": 3})
    assert {"x", "a", "y"} <= {point.name for point in c.points}
    assert all(point.cumulative is not None and point.cumulative.is_equal for point in c.points)
    other = onnx_nb.compare(one, two, {"x": x}, constants={"sr": 2})
    assert (other.first_divergent() is None) == (texts[0] == texts[1])


def test_what_one_side_needs_and_the_other_lacks_is_named_with_the_way_to_give_it() -> None:
    bound, free = (onnx.parser.parse_model(text) for text in (BOUND, FREE))
    with pytest.raises(onnx_nb.FeedError, match=r"also needs 'sr', which the reference does not have.*constants="):
        onnx_nb.compare(bound, free)
    with pytest.raises(onnx_nb.FeedError, match=r"no input 'rate'.*Its inputs: 'x', 'sr'"):
        onnx_nb.compare(bound, free, constants={"rate": 3})
    assert onnx_nb.compare(free, bound, {"x": np.ones(3, np.float32), "sr": np.array(3)}).first_divergent() is None


def test_values_without_a_counterpart_are_counted_where_they_are_most() -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) '
    long, short = (
        onnx.parser.parse_model(head + body)
        for body in ("{ a = Neg(x) b = Exp(a) c = Abs(b) d = Neg(c) z = Exp(d) }", "{ q = Sin(x) z = Cos(q) }")
    )
    assert "4 of 6 values of the reference have no counterpart." in onnx_nb.compare(long, short).message
    assert "counterpart" not in onnx_nb.compare(long, long).message
