"""Feeds that are made up suit the model: by its names and graph, and by what onnxruntime says when it refuses them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import onnx_nb
from onnx_nb import OnnxNbError
from onnx_nb.analysis.compare.comparison import Comparison
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.random_feeds import random_feeds, until_it_runs
from onnx_nb.cli import document, record


def model(text: str, opset: int = 17) -> onnx_nb.Model:
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]> g '
    return onnx_nb.load(onnx.parser.parse_model(head + text))


def echo(kind: str, name: str = "x", **others: str) -> onnx_nb.Model:
    """Return a model of an input, and of others that it does not read."""
    inputs = ", ".join(f"{dtype} {key}" for key, dtype in {name: kind, **others}.items())
    return model(f"({inputs}) => ({kind} y) {{ y = Identity({name}) }}")


@pytest.mark.parametrize(
    ("kind", "name", "shape"),
    [
        ("float[p2o.D0, 3, p2o.D1, p2o.D2]", "x", (1, 3, 64, 64)),
        ("float[n, h, w, 3]", "image", (1, 64, 64, 3)),
        ("float[batch, samples]", "audio", (1, 16000)),
        ("float[samples]", "waveform", (16000,)),
        ("float[batch, 80, frames]", "mel", (1, 80, 64)),
        ("int64[batch, seq]", "ids", (1, 8)),
    ],
)
def test_shapes_by_convention(kind: str, name: str, shape: tuple[int, ...]) -> None:
    proto = onnx_nb.load(echo("float[a, b, c, d]" if kind.count(",") == 3 else kind, name)).proto
    if "." in kind or kind.count(",") == 3:  # onnx's parser takes no dots
        for dim, text in zip(proto.graph.input[0].type.tensor_type.shape.dim, kind[6:-1].split(", "), strict=True):
            dim.Clear()
            if text.isdigit():
                dim.dim_value = int(text)
            else:
                dim.dim_param = text
        del proto.graph.output[0].type.tensor_type.shape.dim[:]
    assert random_feeds(proto)[name].shape == shape


def test_values_by_convention() -> None:
    feeds = random_feeds(
        echo(
            "float[batch, 80, frames]",
            "audio_signal",
            length="int64[batch]",
            sr="int64",
            sample_rate="int32[1]",
            position_ids="int64[batch, seq]",
            src_padding_mask="bool[batch, seq]",
            attention_mask="int64[batch, seq]",
        )
    )
    assert feeds["length"] == feeds["audio_signal"].shape[2] == 64  # a mask of the longest fits the frames
    assert feeds["sr"] == feeds["sample_rate"] == 16000
    assert feeds["position_ids"].tolist() == [[*range(8)]]
    assert not feeds["src_padding_mask"].any()
    assert feeds["attention_mask"].all()


def generator(window: int = -1) -> onnx_nb.Model:
    """Return an attention as onnxruntime-genai's builder writes it: packed projections, caches of unknown head size."""
    is_sliding = int(window > 0)
    length = "past_sliding_length" if is_sliding else "past_sequence_length"
    cache = f"float[batch_size, 2, {length}, kv_cache_dim]"
    projection = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    source = model(f"""(float[batch_size, sequence_length, 64] x, int64[batch_size, total_sequence_length] mask,
        float[batch_size, 2, past_sequence_length, kv_cache_dim] full, {cache} key, {cache} value)
        => (float[batch_size, sequence_length, 64] y, float nk, float nv)
        <int64[1] axis = {{1}}, int64 one = {{1}}> {{
          qkv = MatMul(x, w)  counts = ReduceSum<keepdims = 0>(mask, axis)  less = Sub(counts, one)
          lengths = Cast<to = 6>(less)  dims = Shape(mask)  total = Gather(dims, one)  size = Cast<to = 6>(total)
          y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 0,
            local_window_size = {window}, sliding_window_cache = {is_sliding}>(qkv, , , key, value, lengths, size)
        }}""")
    proto = source.proto
    proto.graph.initializer.append(onnx.numpy_helper.from_array(projection, "w"))
    for output in proto.graph.output[1:]:
        output.type.tensor_type.ClearField("shape")
    if not is_sliding:
        del proto.graph.input[2]
    return onnx_nb.load(proto)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the shapes of the feeds of each run of a whole model."""
    shapes: list[dict[str, Any]] = []
    real = session.run_session

    def counted(runner: Any, feeds: dict[str, Any], **options: Any) -> Any:
        shapes.append({name: array.shape for name, array in feeds.items()})
        return real(runner, feeds, **options)

    monkeypatch.setattr(session, "run_session", counted)
    return shapes


@pytest.mark.parametrize(("window", "tokens"), [(-1, 8), (16, 16)])
def test_caches_have_the_sizes_of_their_attention(window: int, tokens: int, runs: list[dict[str, Any]]) -> None:
    source = generator(window)
    onnx_nb.run(source)
    assert [shapes["key"] for shapes in runs] == [(1, 2, tokens, 16)]  # at the first run
    assert runs[0]["mask"] == (1, 16)


NEEDS = {
    "a window": "(float[n, m] x) => (float y) <int64[4] p = {0, 64, 0, 64}> { y = Pad<mode = 'reflect'>(x, p) }",
    "many values": "(float[1, 3, h, w] x) => (float v, int64 i) <int64[1] s = {-1}, int64[1] k = {100000}>"
    "{ a = Reshape(x, s) v, i = TopK(a, k) }",
    "one size": "(float[1, 3, h, w] x) => (float y) <int64[3] s = {3, 224, 224}> { y = Reshape(x, s) }",
    "small integers": "(int64[n] i, float[5, 2] t) => (float y) { j = Mul(i, i) k = Div(j, i) y = Gather(t, k) }",
    "the impossible": "(float[batch, n, 4] x) => (float y) <int64[1] s = {7}> { y = Reshape(x, s) }",
    "a state": "(float[n, 1, 4] x, float[1, m, 3] h, float[1, 12, 4] w, float[1, 12, 3] r, float[1, m, 3] c)"
    " => (float y) { y = LSTM<hidden_size = 3>(x, w, r, , , h, c) }",
}


def needing(what: str) -> onnx_nb.Model:
    proto = model(NEEDS[what].replace("'", '"')).proto
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx_nb.load(proto)


@pytest.mark.parametrize("what", ["a window", "many values", "one size", "small integers", "a state"])
def test_what_onnxruntime_refuses_is_tried_on_other_sizes(what: str, runs: list[dict[str, Any]]) -> None:
    source = needing(what)
    first = random_feeds(source)
    runner = onnxruntime.InferenceSession(source.proto.SerializeToString())
    with pytest.raises(Exception, match="Non-zero status code"):
        runner.run(None, first)
    onnx_nb.run(source)
    assert 2 < len(runs) <= 26
    runner.run(None, random_feeds(source))  # what was learned is kept for the model
    runs.clear()
    onnx_nb.run(source)
    assert len(runs) == 1
    assert len(onnx_nb.capture(source)) > 0
    assert onnx_nb.simplify(source).verdict == "verified"
    assert onnx_nb.compare(source, source, isolated=False).message.startswith(("All", "The only"))
    assert onnx_nb.profile(source, runs=1).kernels


def test_each_verb_learns_by_itself() -> None:
    """The model comes fresh to each of them: one place tries, whatever runs."""
    assert len(onnx_nb.capture(needing("a window"))) == 2
    assert onnx_nb.profile(needing("a window"), runs=1).kernels
    assert onnx_nb.simplify(needing("a window")).verdict == "verified"
    assert onnx_nb.compare(needing("a window"), needing("a window")).points


def test_a_model_that_runs_costs_one_run(runs: list[dict[str, Any]]) -> None:
    onnx_nb.run(echo("float[1, 3, h, w]"))
    assert runs == [{"x": (1, 3, 64, 64)}]


def test_an_error_says_that_feeds_were_made_up_and_how_to_give_them(runs: list[dict[str, Any]]) -> None:
    source = needing("the impossible")
    with pytest.raises(OnnxNbError) as raised:
        onnx_nb.run(source)
    assert str(raised.value).startswith("feeds: random, x 1×8×4; onnxruntime could not run ")
    assert str(raised.value).endswith(" Give feeds=, or sizes: shapes={'batch': 1, 'n': 8}.")
    assert 5 < len(runs) <= 26
    assert all(np.prod(shapes["x"]) <= 1 << 22 for shapes in runs)
    assert random_feeds(source)["x"].shape == (1, 8, 4)  # nothing was learned
    runs.clear()
    with pytest.raises(OnnxNbError, match=r"^onnxruntime could not run"):
        onnx_nb.run(source, {"x": np.zeros((1, 8, 4), np.float32)})
    assert len(runs) == 1


def test_sizes_that_are_asked_for_stay(runs: list[dict[str, Any]]) -> None:
    source, shapes = needing("a window"), {"m": 9}
    with pytest.raises(OnnxNbError, match=r"^feeds: random, x 1×9; .* sizes: shapes=\{'n': 1\}\.$"):
        until_it_runs(source, lambda: session.run(source, random_feeds(source, 0, shapes)), shapes)
    assert {shapes["x"][1] for shapes in runs} == {9}
    assert random_feeds(source, shapes={"m": 70})["x"].shape == (1, 70)
    onnx_nb.run(source)
    assert random_feeds(source)["x"].shape[1] > 70  # and what was learned is left where a size is asked for
    assert random_feeds(source, shapes={"m": 70})["x"].shape == (1, 70)


def test_results_say_which_feeds_were_made_up(tmp_path: Path) -> None:
    source = needing("a window")
    capture, profile = onnx_nb.capture(source), onnx_nb.profile(source, runs=1)
    comparison, simplification = onnx_nb.compare(source, source), onnx_nb.simplify(source)
    text = "feeds: random, x 1×80"
    assert text in repr(capture)
    assert text in repr(profile)
    assert "random feeds" in repr(comparison)
    assert text in profile.message
    assert text.replace("f", "F", 1) in comparison.message
    assert text in simplification.verification
    assert json.loads(json.dumps(record.record("capture", {"capture": capture})))["random"] == text
    comparison.save(tmp_path / "c")
    assert Comparison.load(tmp_path / "c").message == comparison.message
    assert pickle.loads(pickle.dumps(capture)).random == text  # noqa: S301
    for command, variable, result in (
        ("capture", "capture", capture),
        ("profile", "p", profile),
        ("compare", "c", comparison),
        ("simplify", "s", simplification),
    ):
        blocks = document.BLOCKS[command]({variable: result})
        assert "1×80" in "".join(str(block) for block in blocks), command
    feeds = {"x": np.zeros((1, 80), np.float32)}
    for result in (
        onnx_nb.capture(source, feeds),
        onnx_nb.profile(source, feeds, runs=1),
        onnx_nb.compare(source, source, feeds),
    ):
        assert "random" not in repr(result) + str(getattr(result, "message", ""))
