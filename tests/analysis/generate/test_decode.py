"""Decoding with caches says what all tokens at once say; faults of the caches are found without a reference."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import onnx_nb
from onnx_nb.analysis.run.loop import Loop
from tests.analysis.generate import packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8]


def without_caches(model: onnx.ModelProto, ids: list[int], steps: int) -> list[int]:
    """Return the greedy tokens of a model that reads all tokens at each step, with empty caches."""
    shape = (1, packages.KV_HEADS, 0, packages.HEAD)
    names = [port.name for port in model.graph.input if port.name.startswith("past")]
    tokens = list(ids)
    for _ in range(steps):
        row = np.array([tokens])
        feeds = {"input_ids": row, "attention_mask": np.ones_like(row)}
        logits = onnx_nb.run(model, feeds | {name: np.zeros(shape, np.float32) for name in names})["logits"]
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(ids) :]


def test_decoding_with_caches_says_what_all_tokens_at_once_say(tmp_path: Path) -> None:
    model = packages.decoder()
    expected = without_caches(model, PROMPT, 12)
    package = onnx_nb.load(packages.write(tmp_path / "tiny", model))
    assert isinstance(package, onnx_nb.types.Package)
    assert list(package.models) == ["decoder"]
    assert package["decoder"] is package
    seen = []
    d = onnx_nb.decode(package, PROMPT, 12, progress=lambda fraction, what: seen.append((fraction, what)))
    assert d.tokens.tolist() == [expected]
    assert [token for token, *_ in (d.top(step, 1)[0] for step in range(12))] == expected
    assert seen[0] == (0.0, "prefill")
    assert seen[-1][0] == 1.0
    assert len(d.seconds) == 12
    # a step's feeds run alone, in every verb
    for step in (0, 1, 7):
        assert int(onnx_nb.run(package, d.feeds(step))["logits"][0, -1].argmax()) == expected[step]
    assert len(onnx_nb.capture(package, d.feeds(3))) > 30
    written = len(PROMPT) + 11
    assert {row["shape"] for row in d.caches} == {(1, packages.KV_HEADS, written, packages.HEAD)}
    assert {(row["zeros"], row["not finite"]) for row in d.caches} == {(0.0, 0)}
    assert [row["token"] for row in d.rows()] == expected
    assert all(row["margin"] >= 0 for row in d.rows())
    assert "12 tokens after 8 tokens" in d.message
    assert "4 states" in d.message


def test_a_sliding_window_decodes_as_full_caches_do_within_it(tmp_path: Path) -> None:
    """Until the window is full nothing slides; then other tokens follow, as the window forgets."""
    full, slides = packages.decoder(), packages.decoder(window=12)
    loop = Loop(onnx_nb.load(slides))
    assert loop.windows == {"past_key_values.0.key": 12, "past_key_values.0.value": 12}
    assert [array.shape[2] for array in loop.start().values()] == [12, 0, 12, 0]
    expected = without_caches(full, PROMPT, 5)
    d = onnx_nb.decode(onnx_nb.load(packages.write(tmp_path / "slides", slides)), PROMPT, 5)
    assert d.tokens.tolist() == [expected]
    # slots behind the last token hold memory that nobody wrote: they are not looked at
    assert {(row["zeros"], row["not finite"]) for row in d.caches} == {(0.0, 0)}


def test_rows_of_several_lengths_decode_as_each_alone() -> None:
    model = packages.decoder(layers=3, seed=1)
    together = onnx_nb.decode(model, [PROMPT, PROMPT[2:5]], 6)
    assert together.mask.sum(axis=1).tolist() == [14, 9]
    for row, ids in enumerate((PROMPT, PROMPT[2:5])):
        assert together.tokens[row].tolist() == onnx_nb.decode(model, ids, 6).tokens[0].tolist()
        assert together.tokens[row].tolist() == without_caches(model, ids, 6)


def test_the_end_of_text_ends_it(tmp_path: Path) -> None:
    model = packages.decoder()
    third = without_caches(model, PROMPT, 3)[2]
    package = onnx_nb.load(packages.write(tmp_path / "tiny", model, eos_token_id=[third, 999]))
    assert onnx_nb.decode(package, PROMPT, 12).tokens.shape == (1, 3)
    assert onnx_nb.decode(package, PROMPT, 12, stop=()).tokens.shape == (1, 12)


def test_an_interrupt_leaves_what_was_decoded() -> None:
    def interrupted(fraction: float, _what: str) -> None:
        if fraction == 0.4:
            raise KeyboardInterrupt

    d = onnx_nb.decode(packages.decoder(), PROMPT, 10, progress=interrupted)
    assert d.interrupted
    assert d.tokens.shape == (1, 4)
    assert "Interrupted" in d.message


def test_states_are_found_by_their_names() -> None:
    pairs = {
        "past_key_values.0.decoder.key": "present.0.decoder.key",
        "past_key_self_0": "present_key_self_0",
        "past_0": "present_0",
        "state": "stateN",
        "h0": "hn",
        "conv_state": "conv_state_next",
        "past_states.0.ssm_state": "present.0.ssm_state",
        "cache_in": "cache_out",
    }
    kinds = {name: onnx.TensorProto.FLOAT for pair in pairs.items() for name in pair}
    nodes = [onnx.helper.make_node("Neg", [name], [other]) for name, other in pairs.items()]
    ports = {name: onnx.helper.make_tensor_value_info(name, kind, ["a", 2]) for name, kind in kinds.items()}
    graph = onnx.helper.make_graph(
        nodes, "g", [ports[name] for name in pairs], [ports[name] for name in pairs.values()]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    assert Loop(onnx_nb.load(model)).states == pairs


def swapped(model: onnx.ModelProto) -> None:
    first, second = (node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    first.input[3], second.input[3] = second.input[3], first.input[3]


def forgotten(model: onnx.ModelProto) -> None:
    """The second layer reads zeros in place of its past."""
    node = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"][1]
    zero = onnx.numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    model.graph.initializer.append(zero)
    made = onnx.helper.make_node("Mul", [node.input[4], "zero"], ["zeroed"], "/zeroed")
    node.input[4] = "zeroed"
    model.graph.node.insert(0, made)


def test_a_sound_cache_passes_and_needs_no_prompt() -> None:
    for model in (packages.decoder(), packages.decoder(window=12), packages.decoder(layers=3, seed=2)):
        check = onnx_nb.check_cache(model)
        assert check.passed, check.message
        assert max(row["logits"] for row in check.rows()) < 1e-5


@pytest.mark.parametrize(
    ("plant", "state"), [(swapped, "past_key_values.0.key"), (forgotten, "past_key_values.1.value")]
)
def test_a_fault_of_the_caches_is_found_without_a_reference(plant: Callable[[Any], None], state: str) -> None:
    model = packages.decoder()
    plant(model)
    check = onnx_nb.check_cache(model, PROMPT)
    assert not check.passed
    assert f"The first state that differs is '{state}' of layer {state[16]}" in check.message


def test_bad_packages_and_prompts_get_one_sentence(tmp_path: Path) -> None:
    folder = packages.write(tmp_path / "tiny")
    package = onnx_nb.load(folder)
    assert isinstance(package, onnx_nb.types.Package)
    for ids, message in (
        ([3, 60], "token 60 is beyond the vocabulary of model.onnx, which has 60"),
        ([-1], "token -1 is beyond"),
        ([], "token ids are whole numbers"),
        ("text", "has no tokenizer that can be read"),
    ):
        with pytest.raises(onnx_nb.FeedError, match=message):
            onnx_nb.decode(package, ids)
    with pytest.raises(onnx_nb.FeedError, match="state names 'nothing', which is no input"):
        onnx_nb.decode(package, PROMPT, state={"nothing": "logits"})
    with pytest.raises(onnx_nb.ModelFileError, match="package 'tiny' has no 'encoder'"):
        package["encoder"]
    configuration = folder / "genai_config.json"
    content = json.loads(configuration.read_text())
    for name, message in (("gone.onnx", "names 'gone.onnx', which is not there"), ("../x.onnx", "lies outside")):
        content["model"]["decoder"]["filename"] = name
        configuration.write_text(json.dumps(content))
        with pytest.raises(onnx_nb.ModelFileError, match=message):
            onnx_nb.load(folder)
    for text in ("[1, 2]", "{", '{"model": 3}', "[" * 100_000):
        configuration.write_text(text)
        with pytest.raises(onnx_nb.ModelFileError, match="cannot be read as a configuration"):
            onnx_nb.load(folder)


def test_the_folders_of_optimum_and_transformers_js_are_packages(tmp_path: Path) -> None:
    model = packages.decoder()
    for place, name, role in (
        ("optimum", "decoder_model_merged.onnx", "decoder"),
        ("js", "onnx/decoder_model_merged_q4.onnx", "decoder"),
        ("plain", "model.onnx", "model"),
    ):
        path = tmp_path / place / name
        path.parent.mkdir(parents=True)
        onnx.save(model, path)
        (tmp_path / place / "config.json").write_text('{"eos_token_id": 59}')
        package = onnx_nb.load(tmp_path / place)
        assert isinstance(package, onnx_nb.types.Package)
        assert list(package.models) == [role]
        assert onnx_nb.decode(package, PROMPT, 3, stop=()).tokens.tolist() == [without_caches(model, PROMPT, 3)]
    (tmp_path / "none").mkdir()
    onnx.save(model, tmp_path / "none" / "a.onnx")
    assert onnx_nb.decode(tmp_path / "none", PROMPT, 3).tokens.tolist() == [without_caches(model, PROMPT, 3)]
    onnx.save(model, tmp_path / "none" / "b.onnx")
    with pytest.raises(onnx_nb.ModelFileError, match=r"is a folder\. Models in it: 'a.onnx', 'b.onnx'"):
        onnx_nb.load(tmp_path / "none")


def test_a_link_to_another_folder_is_no_part_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    onnx.save(packages.decoder(), tmp_path / "elsewhere" / "model.onnx")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "decoder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(onnx_nb.ModelFileError, match=r"It contains no \.onnx file"):
        onnx_nb.load(tmp_path / "package")
    (tmp_path / "package" / "decoder").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "package" / "decoder")
    assert isinstance(onnx_nb.load(tmp_path / "package"), onnx_nb.types.Package)


# --- an encoder beside the decoder -----------------------------------------------------------------------------------

FEATURES = np.array([[[1, -2, 3, 0], [0.5, 1, -1, 2]]], np.float32)
TABLE = np.random.default_rng(3).normal(0, 2, (6, 4)).astype(np.float32)
HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
MERGED = """encoder_key, "present.0.encoder.key" = If(use_cache_branch) <
  then_branch = past () => (float[b, f, 4] k1, float[b0, f0, 4] p1) {
    k1 = Identity("past_key_values.0.encoder.key")
    nothing = Constant<value_ints = [0, 0, 4]>()
    p1 = ConstantOfShape(nothing) },
  else_branch = first () => (float[b, f, 4] k2, float[b, f, 4] p2) {
    k2 = Mul(encoder_hidden_states, two)
    p2 = Identity(k2) }>"""


def decoder_text(kind: str) -> str:
    """Return a decoder that subtracts its own keys from twice what the encoder made; a merged one reads that once."""
    inputs = {
        "merged": ', float[batch, frames, 4] "past_key_values.0.encoder.key", bool[1] use_cache_branch',
        "unread": ', float[batch, frames, 4] "past_key_values.0.cross.key"',
    }[kind]
    output = ', float[b1, f1, 4] "present.0.encoder.key"' if kind == "merged" else ""
    weights = "float[1] two = {2}, float[1] zero = {0}, int64[1] last_axis = {2}"
    return f"""{HEAD} (int64[batch, seq] input_ids, float[batch, frames, 4] encoder_hidden_states,
        float[batch, past, 4] "past_key_values.0.decoder.key"{inputs}) =>
      (float[batch, seq, 6] logits, float[batch, total, 4] "present.0.decoder.key"{output}) <{weights}> {{
        {MERGED if kind == "merged" else "encoder_key = Mul(encoder_hidden_states, two)"}
        x = Gather(table, input_ids)
        "present.0.decoder.key" = Concat<axis = 1>("past_key_values.0.decoder.key", x)
        axis = Constant<value_ints = [1]>()
        own = ReduceSum("present.0.decoder.key", axis)
        other = ReduceSum(encoder_key, axis)
        h = Sub(other, own)
        turned = Transpose<perm = [1, 0]>(table)
        last = MatMul(h, turned)
        far = Mul(x, zero)
        width = ReduceSum(far, last_axis)
        logits = Add(last, width)
      }}"""


@pytest.mark.parametrize("kind", ["merged", "unread"])
def test_an_encoder_runs_once_and_its_keys_stay(kind: str, tmp_path: Path) -> None:
    ports = "(float[batch, frames, 4] features) => (float[batch, frames, 4] last_hidden_state)"
    encoder = f"{HEAD} {ports} {{ last_hidden_state = Neg(features) }}"
    for role, model in (("encoder", encoder), ("decoder", decoder_text(kind))):
        proto = onnx.parser.parse_model(model)
        proto.graph.initializer.append(numpy_helper.from_array(TABLE, "table"))
        (tmp_path / role).mkdir()
        onnx.save(proto, tmp_path / role / "model.onnx")
    package = onnx_nb.load(tmp_path)
    assert isinstance(package, onnx_nb.types.Package)
    assert list(package.models) == ["decoder", "encoder"]
    tokens = [1]
    for _ in range(6):
        tokens.append(int((TABLE @ (-2 * FEATURES[0].sum(axis=0) - TABLE[tokens].sum(axis=0))).argmax()))
    assert len(set(tokens)) > 2
    feeds = {"features": FEATURES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert onnx_nb.decode(package, [1], 6, feeds=feeds).tokens.tolist() == [tokens[1:]]
        assert onnx_nb.check_cache(package, tokens, feeds=feeds).passed
        c = onnx_nb.compare_decoding(package, tmp_path, [1, 2], 3, feeds=feeds)
    assert "the logits differ by at most 0" in c.message
    other = onnx_nb.compare_decoding(package, package, [1, 2], 3, feeds={"features": 3 * FEATURES})
    assert [step.difference for step in other.steps] == [0] * len(other.steps)
    with pytest.raises(onnx_nb.FeedError, match="encoder_hidden_states"):
        onnx_nb.decode(package, [1], 2)
    with pytest.raises(onnx_nb.FeedError, match="features"):
        onnx_nb.decode(package, [1], 2, feeds={"sound": FEATURES})


def with_encoder(folder: Path, encoder: str = "Neg(features)") -> Path:
    """Write a decoder that adds the mean of what its encoder made to the logits."""
    decoder = packages.decoder()
    decoder.graph.node[-1].output[0] = "own"
    axes = numpy_helper.from_array(np.array([1, 2]), "axes")
    decoder.graph.initializer.append(axes)
    decoder.graph.node.append(onnx.helper.make_node("ReduceMean", ["encoder_hidden_states", "axes"], ["other"]))
    decoder.graph.node.append(onnx.helper.make_node("Add", ["own", "other"], ["logits"], "/sum"))
    hidden = onnx.helper.make_tensor_value_info("encoder_hidden_states", 1, ["batch_size", "frames", 4])
    decoder.graph.input.append(hidden)
    ports = "(float[batch, frames, 4] features) => (float[batch, frames, 4] encoder_hidden_states)"
    text = f"{HEAD} {ports} <float[1] factor = {{-1.01}}> {{ encoder_hidden_states = {encoder} }}"
    for role, model in (("encoder", onnx.parser.parse_model(text)), ("decoder", decoder)):
        (folder / role).mkdir(parents=True)
        onnx.save(model, folder / role / "model.onnx")
    return folder


def test_a_prompt_that_is_made_up_has_as_many_rows_as_what_the_encoder_made(tmp_path: Path) -> None:
    """Else a second pass has rows of two lengths, where the decoder takes a mask."""
    with_encoder(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c = onnx_nb.compare_decoding(tmp_path, tmp_path, steps=2, feeds={"features": FEATURES})
    assert c.parts
    assert c.tokens.shape[0] == 1
    assert "the logits differ by at most 0" in c.message
    assert c.parts[0] == "encoder"
    assert c.errors.max() < 1e-6


def test_an_encoder_that_is_off_is_named_and_no_half_of_a_layer_for_it(tmp_path: Path) -> None:
    sound, wrong = with_encoder(tmp_path / "sound"), with_encoder(tmp_path / "wrong", "Mul(features, factor)")
    c = onnx_nb.compare_decoding(sound, wrong, [5, 3, 8], 3, feeds={"features": FEATURES})
    assert c.first_fault == (0, "encoder")
    assert c.message.startswith("What the encoder makes is off, by 0.01 of its largest value: compare both encoders;")
    np.testing.assert_allclose(c.errors[:, 0], 0.01, rtol=1e-4)
    assert c.errors[:, 1:].max() < 1e-6
    places = c.part_of_tensors()
    assert c.parts[places["logits"]] == "logits"
    assert c.parts[places["/model/layers.1/mlp/down_proj/MatMul/output_0"]] == "layer 1 mlp"
    assert c.rows()[0]["part"] == "encoder"
