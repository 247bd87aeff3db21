"""Two decoders at every step: sound ones pass, planted faults are named by step and half of a layer.

The reference is transformers' Llama with the weights of the package: it shares no code with onnxruntime's operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_nb
from onnx_nb.analysis.formatting import number_text
from onnx_nb.analysis.generate import compare_decoding
from onnx_nb.analysis.generate.compare_decoding import _ModuleSide
from onnx_nb.analysis.generate.layers import stems_of, windows_of
from onnx_nb.types import Graph
from tests.analysis.generate import packages
from tests.analysis.generate.conftest import LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
IDS = [7 * n % packages.VOCABULARY for n in range(24)]


def attention(model: onnx.ModelProto, layer: int) -> onnx.NodeProto:
    """Return the attention of a layer."""
    nodes: list[onnx.NodeProto] = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    return nodes[layer]


def scaled(name: str, factor: float) -> Callable[[onnx.ModelProto], None]:
    """Return what multiplies a weight."""

    def plant(model: onnx.ModelProto) -> None:
        (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), name))

    return plant


def window(model: onnx.ModelProto) -> None:
    """The second layer sees only the last nine tokens."""
    attention(model, 1).attribute.append(helper.make_attribute("local_window_size", 9))


def scale(model: onnx.ModelProto) -> None:
    attention(model, 2).attribute.append(helper.make_attribute("scale", 1.1 * packages.HEAD**-0.5))


def swapped(model: onnx.ModelProto) -> None:
    first, last = attention(model, 0), attention(model, 2)
    for slot in (3, 4):
        first.input[slot], last.input[slot] = last.input[slot], first.input[slot]


def rotary(model: onnx.ModelProto) -> None:
    """The first layer has another base of its rotary embedding."""
    half = packages.HEAD // 2
    angles = np.outer(np.arange(packages.POSITIONS), 200.0 ** (-np.arange(half) / half))
    for name, table, slot in (("cos", np.cos(angles), 7), ("sin", np.sin(angles), 8)):
        model.graph.initializer.append(numpy_helper.from_array(table.astype(np.float32), name))
        attention(model, 0).input[slot] = name


def epsilon(model: onnx.ModelProto) -> None:
    (norm,) = (node for node in model.graph.node if "/model/layers.2/input_layernorm/output_0" in node.output)
    norm.attribute[0].f = 1e-2


FAULTS: dict[str, tuple[Callable[[onnx.ModelProto], None], int, str, str]] = {
    "window": (window, 0, "layer 1 attention", "from position 9 on"),
    "scale": (scale, 0, "layer 2 attention", "it writes are right, so look at its queries, scale"),
    "past": (swapped, 1, "layer 0 attention", "what reads no past is right, so look at its past"),
    "rotary base": (rotary, 0, "layer 0 attention", "the keys alone that it writes are off"),
    "epsilon": (epsilon, 0, "layer 2 attention", "keys and values that it writes are off, so look at its norm"),
    "mlp": (scaled("model/layers.1/mlp/down_proj.weight", 1.001), 0, "layer 1 mlp", ""),
    "output": (
        scaled("model/layers.0/attn/o_proj.weight", 0.999),
        0,
        "layer 0 attention",
        "so look at its output projection",
    ),
    "head": (scaled("lm_head.weight", 1.001), 0, "logits", ""),
}


def test_the_layers_of_a_decoder_are_found_without_their_names(sound: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    stems = stems_of(Graph.of(model), {f"past_key_values.{n}.key": f"present.{n}.key" for n in range(LAYERS)})
    assert [stem.label for stem in stems] == [
        "embedding", "layer 0 attention", "layer 0 mlp", "layer 1 attention", "layer 1 mlp",
        "layer 2 attention", "layer 2 mlp",
    ]  # fmt: skip
    assert windows_of(Graph.of(packages.decoder(window=12))) == [12, 0]


def unfused(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the decoder with plain operators in place of the norms and of the sums in them."""
    plain, nodes = onnx.ModelProto(), []
    plain.CopyFrom(model)
    power, small = ("two", np.array(2, np.float32)), ("eps", np.array(1e-6, np.float32))
    plain.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (power, small))
    for node in model.graph.node:
        if "LayerNormalization" not in node.op_type:
            nodes.append(node)
            continue
        (x, *_, scale), y = node.input, node.output[0]
        if node.op_type.startswith("Skip"):
            x = node.output[3] if len(node.output) > 3 else f"{y}/sum"
            nodes.append(helper.make_node("Add", [*node.input[:2]], [x]))
        for op, inputs, output in (
            ("Pow", [x, "two"], "square"),
            ("ReduceMean", [f"{y}/square", "last"], "mean"),
            ("Add", [f"{y}/mean", "eps"], "variance"),
            ("Sqrt", [f"{y}/variance"], "deviation"),
            ("Div", [x, f"{y}/deviation"], "ratio"),
        ):
            nodes.append(helper.make_node(op, inputs, [f"{y}/{output}"]))
        nodes.append(helper.make_node("Mul", [scale, f"{y}/ratio"], [y]))
    plain.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
    del plain.graph.node[:]
    plain.graph.node.extend(nodes)
    return plain


def test_the_layers_are_found_without_fused_norms(sound: onnx.ModelProto, module: Any) -> None:
    c = onnx_nb.compare_decoding(module, unfused(sound), IDS, 4)
    assert c.parts == onnx_nb.compare_decoding(module, sound, IDS, 4).parts
    assert c.first_fault is None, c.message
    model = unfused(sound)
    swapped(model)
    assert onnx_nb.compare_decoding(module, model, IDS, 4).first_fault == (1, "layer 0 attention")


@pytest.mark.parametrize("has_mlps", [True, False], ids=["in turn", "parallel"])
def test_a_half_that_reads_any_state_begins_a_layer(*, has_mlps: bool) -> None:
    mlp = "f{n} = MatMul(x{n}, w{n})  y{n} = Add(f{n}, x{n})" if has_mlps else "y{n} = Identity(x{n})"
    layer = (
        "present{n} = Concat<axis = 1>(past{n}, {x})  m{n} = ReduceMean<axes = [1]>(present{n})  x{n} = Add({x}, m{n})"
    )
    layers = [(layer + "  " + mlp).format(n=n, x=f"y{n - 1}" if n else "e") for n in range(2)]
    text = """<ir_version: 8, opset_import: ["": 17]> g (int64[b, s] input_ids, float[b, past, 4] past0,
        float[b, past, 4] past1) => (float[b, s, 4] logits, float[b, t, 4] present0, float[b, t, 4] present1)
        <float[4, 4] table = {0,1,0,0, 0,0,1,0, 0,0,0,1, 1,0,0,0},
        float[4, 4] w0 = {1,2,0,1, 0,1,0,3, 1,0,2,1, 0,1,1,0}, float[4, 4] w1 = {1,0,0,SIZE, 2,1,0,1, 0,0,1,1, 0,1,3,0}>
        { e = Gather(table, input_ids)  LAYERS  logits = MatMul(y1, table) }""".replace("LAYERS", "  ".join(layers))
    model, other = (onnx.parser.parse_model(text.replace("SIZE", size)) for size in ("1", "1.01"))
    c = onnx_nb.compare_decoding(model, other, [0, 1, 2, 3], 3)
    halves = ["mixer", "mlp"] if has_mlps else ["mixer and mlp"]
    assert c.parts == ("embedding", *(f"layer {n} {half}" for n in range(2) for half in halves), "logits")
    assert c.first_fault == ((0, "layer 1 mlp") if has_mlps else None)


def test_a_sound_package_has_no_fault(sound: onnx.ModelProto, module: Any) -> None:
    c = onnx_nb.compare_decoding(module, sound, IDS, 16)
    assert c.first_fault is None, c.message
    assert c.message.startswith("The same tokens; no layer is off by more than rounding")
    assert c.errors.shape == (18, 8)
    assert float(c.errors.max()) < 1e-5
    assert [row["position"] for row in c.rows()] == [12, *range(24, 41)]
    with torch.no_grad():
        options = {"max_new_tokens": 16, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        prompt = torch.tensor([IDS])
        tokens = module.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    assert [row["reference"] for row in c.rows()[1:17]] == tokens[0, 24:].tolist()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_by_step_and_half_of_a_layer(name: str, sound: onnx.ModelProto, module: Any) -> None:
    plant, step, part, words = FAULTS[name]
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    plant(model)
    c = onnx_nb.compare_decoding(module, model, IDS, 4)
    assert c.first_fault == (step, part), c.message
    assert part in c.message
    assert words in c.message
    # another package as the reference says the same
    assert onnx_nb.compare_decoding(sound, model, IDS, 4).first_fault == (step, part)


def test_an_embedding_that_is_added_inside_of_the_first_norm_is_cut_behind_it(
    sound: onnx.ModelProto, module: Any
) -> None:
    """Such as that of GPT-2, whose norm adds the embeddings of tokens and of positions."""
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    plain = "SimplifiedLayerNormalization"
    gather, norm = (next(node for node in model.graph.node if node.op_type == op) for op in ("Gather", plain))
    tokens, (result,) = gather.output[0], norm.output
    for node in model.graph.node:
        node.input[:] = ["stream" if name == tokens else name for name in node.input]
    inputs, outputs = [tokens, "others", norm.input[1]], [result, "", "", "stream"]
    norm.CopyFrom(helper.make_node(f"Skip{plain}", inputs, outputs, norm.name, domain=packages.MS, epsilon=1e-6))
    table = np.random.default_rng(0).normal(size=(packages.VOCABULARY, packages.HIDDEN)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    model.graph.node.insert(0, helper.make_node("Gather", ["table", "input_ids"], ["others"]))
    c = onnx_nb.compare_decoding(module, model, IDS, 4)
    assert {c.parts[column] for column in np.nonzero(c.faults >= 0)[1]} == {"embedding"}


def test_a_window_that_only_the_reference_has_is_named(sound: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    window(model)
    c = onnx_nb.compare_decoding(model, sound, IDS, 4)
    assert c.first_fault == (0, "layer 1 attention")
    assert "from position 9 on" in c.message
    assert "where the reference's window of 9 tokens ends" in c.message


def test_a_near_tie_is_told_from_a_fault(sound: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    scaled("lm_head.weight", 0.0)(model)
    c = onnx_nb.compare_decoding(sound, model, IDS, 4)
    assert all(row["difference"] > row["margin"] for row in c.rows())
    assert not any(row["near tie"] for row in c.rows())  # the logits are at fault
    # layers that are not known cannot be at fault: where the margin is below the difference is a near tie
    c = onnx_nb.compare_decoding(sound, packages.decoder(LAYERS - 1, seed=4), IDS, 8)
    margins = [row["margin"] for row in onnx_nb.decode(sound, IDS, 9).rows()]
    assert [row["margin"] for row in c.rows()[1:]] == pytest.approx(margins, rel=1e-4)
    ties = [margin < row["difference"] for margin, row in zip(margins, c.rows()[1:], strict=True)]
    assert [row["near tie"] for row in c.rows()[1:]] == ties
    assert any(ties)


def test_padded_rows_are_compared_where_they_hold_tokens(sound: onnx.ModelProto, module: Any) -> None:
    c = onnx_nb.compare_decoding(module, sound, [IDS, IDS[3:10]], 4)
    assert c.first_fault is None, c.message
    assert len(c.rows()) == 5
    assert max(row["difference"] for row in c.rows()) < 1e-4


def test_rows_of_two_lengths_reveal_a_mask_that_is_not_read(sound: onnx.ModelProto, module: Any) -> None:
    c = onnx_nb.compare_decoding(module, sound, steps=2)
    assert c.first_fault is None, c.message
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    (lengths,) = (node for node in model.graph.node if node.op_type == "ReduceSum")
    ones = helper.make_node("Mul", ["attention_mask", "zero"], ["zeros"])
    model.graph.node.insert(0, ones)
    model.graph.node.insert(1, helper.make_node("Add", ["zeros", "one"], ["ones"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
    lengths.input[0] = "ones"
    assert onnx_nb.compare_decoding(module, model, IDS, 2).first_fault is None
    c = onnx_nb.compare_decoding(module, model, steps=2)
    assert c.first_fault == (1, "layer 0 attention"), c.message
    assert c.message.endswith("The prompt has rows of two lengths.")
    windows = packages.decoder(window=8)
    assert "Rows of several lengths are not tried" in onnx_nb.compare_decoding(windows, windows, steps=2).message


@pytest.mark.parametrize("suffix", ["npy", "npz", "array"])
def test_saved_logits_are_a_reference(suffix: str, sound: onnx.ModelProto, module: Any, tmp_path: Path) -> None:
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    prompt = torch.tensor([IDS])
    with torch.no_grad():
        output = module.generate(
            prompt, attention_mask=torch.ones_like(prompt), output_logits=True, return_dict_in_generate=True, **options
        )
    logits = torch.cat(output.logits).numpy()
    path = tmp_path / f"logits.{suffix}"
    if suffix == "npz":
        np.savez(path, logits=logits)
    elif suffix == "npy":
        np.save(path, logits)
    source = logits if suffix == "array" else path
    c = onnx_nb.compare_decoding(source, sound, IDS)
    assert c.message.startswith("The same tokens; the logits differ by at most")
    assert [row["reference"] for row in c.rows()] == output.sequences[0, 24:].tolist()
    assert max(row["difference"] for row in c.rows()) < 1e-5
    model = packages.decoder(LAYERS, seed=5)
    differences = [row["difference"] for row in onnx_nb.compare_decoding(source, model, IDS).rows()]
    expected = onnx_nb.compare_decoding(module, model, IDS, 5).rows()[1:]
    assert differences == pytest.approx([row["difference"] for row in expected], rel=1e-4)


def test_the_operations_of_a_step_are_compared(sound: onnx.ModelProto, module: Any) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    scale(model)
    c = onnx_nb.compare_decoding(sound, model, IDS, 4)
    for step in (0, 3):
        part = c.drill(step)
        assert "First differs at '/model/layers.2/attn/GroupQueryAttention/output_0'" in part.message
        assert f"Scale is {number_text(1.1 * packages.HEAD**-0.5)} instead of" in part.message
    steps = onnx_nb.decode(sound, IDS, 4)
    again = onnx_nb.compare(sound, model, steps.feeds(2))
    assert c.drill(3).to_frame().equals(again.to_frame())
    with pytest.raises(onnx_nb.OnnxNbError, match="there is no step 6"):
        c.drill(6)
    with pytest.raises(onnx_nb.AlignmentError, match="no ONNX model"):
        onnx_nb.compare_decoding(module, sound, IDS, 1).drill(0)


def test_what_cannot_be_compared_is_explained(sound: onnx.ModelProto, module: Any) -> None:
    with pytest.raises(onnx_nb.AlignmentError, match="is in training mode"):
        onnx_nb.compare_decoding(packages.llama(sound).train(), sound, IDS)
    with pytest.raises(onnx_nb.AlignmentError, match="has no list of layers"):
        onnx_nb.compare_decoding(torch.nn.Linear(2, 2).eval(), sound, IDS)
    plain = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (int64[b, s] input_ids) => (float[b, s, 60] logits) <float[60, 60] t> { logits = Gather(t, input_ids) }""")
    with pytest.raises(onnx_nb.AlignmentError, match="has no states that are carried"):
        onnx_nb.compare_decoding(module, plain, IDS)
    logits = np.zeros((2, packages.VOCABULARY), np.float32)
    with pytest.raises(onnx_nb.AlignmentError, match="1 row, and the saved logits have 2"):
        onnx_nb.compare_decoding(np.stack([logits, logits]), sound, IDS)
    with pytest.raises(onnx_nb.AlignmentError, match=r"the saved logits are int64\[2\]"):
        onnx_nb.compare_decoding(np.array([3, 4]), sound, IDS)
    with pytest.raises(onnx_nb.FeedError, match="no prompt is given"):
        onnx_nb.compare_decoding(logits, sound)
    short = packages.decoder(LAYERS - 1, seed=4)
    c = onnx_nb.compare_decoding(module, short, IDS, 2)
    assert c.parts == ()
    assert "Only the logits are compared" in c.message


def test_rounding_that_large_scores_of_an_attention_magnify_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a change of the last bits of what a half reads changes as much, and only there."""
    pytest.importorskip("transformers")
    sound = packages.decoder(LAYERS, seed=2)
    for proto in sound.graph.initializer:
        if "qkv_proj" in proto.name:
            array = numpy_helper.to_array(proto).copy()
            array[:, : (packages.HEADS + packages.KV_HEADS) * packages.HEAD] *= 15  # queries and keys
            proto.CopyFrom(numpy_helper.from_array(array, proto.name))
    module, ids = packages.llama(sound), [7 * number % packages.VOCABULARY for number in range(30)]
    assert onnx_nb.compare_decoding(module, sound, ids, 8).first_fault is None
    monkeypatch.setattr(compare_decoding, "CLEAR_ERROR", 0.0)
    first = onnx_nb.compare_decoding(module, sound, ids, 8).first_fault
    assert first is not None
    assert "attention" in first[1]


# --- a module with an encoder ----------------------------------------------------------------------------------------

SIZES = {"vocab_size": 90, "d_model": 32, "decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 2}
COUNTS = {"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
SPECTROGRAM = np.random.default_rng(0).normal(size=(1, 16, 40)).astype(np.float32)
TEXT = np.array([[5, 9, 11, 30, 2]])
SEQUENCES = {
    "T5": ({"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}, {"input_ids": TEXT}, 3),
    "Whisper": (
        COUNTS | WIDTHS | {"num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 64},
        {"input_features": SPECTROGRAM},
        3,
    ),
    "Bart": (COUNTS | WIDTHS, {"input_ids": TEXT, "attention_mask": np.array([[1, 1, 1, 1, 0]])}, 0),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_module_with_an_encoder_is_read_step_by_step(name: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sizes, feeds, halves = SEQUENCES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **sizes)
    module = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    runs = []
    module.get_encoder().register_forward_hook(lambda *_: runs.append(1))
    side = _ModuleSide(module, feeds)
    ids = np.array([[1, 7, 20, 33, 40, 41]])
    steps = [side.step(ids[:, begin:stop], np.ones((1, stop), np.int64)) for begin, stop in ((0, 3), (3, 5), (5, 6))]
    assert len(runs) == 1
    tensors = {key: torch.tensor(array) for key, array in feeds.items()}
    with torch.no_grad():
        expected = module(**tensors, decoder_input_ids=torch.tensor(ids), output_hidden_states=True)
    logits = np.concatenate([logits for logits, _ in steps], axis=1)
    np.testing.assert_allclose(logits, expected.logits.numpy(), rtol=1e-4, atol=1e-5)
    if halves:  # norms before: the streams are the hidden states before each layer, and between
        streams = [np.concatenate(parts, axis=1) for parts in zip(*(streams for _, streams in steps), strict=True)]
        assert len(streams) == halves * 3 + 1
        for layer, hidden in enumerate(expected.decoder_hidden_states[:3]):
            np.testing.assert_allclose(streams[halves * layer], hidden.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(onnx_nb.FeedError, match="has an encoder, and feeds= has nothing"):
        _ModuleSide(module, {})


@pytest.mark.parametrize("name", ["GPT2", "OPT"])
def test_the_streams_of_a_module_are_found_whatever_its_norms_are_called(name: str) -> None:
    """GPT-2's are called ln_1 and ln_2, and OPT joins rows and tokens before its MLP."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 90, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    more = {
        "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        "OPT": {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "word_embed_proj_dim": 32,
        },
    }[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    module = getattr(transformers, f"{name}{'LMHeadModel' if name == 'GPT2' else 'ForCausalLM'}")(config).eval()
    ids = np.array([[5, 7, 20, 33], [8, 9, 4, 11]])
    _, streams = _ModuleSide(module, {}).step(ids, np.ones((2, 4), np.int64))
    with torch.no_grad():
        hidden = module(torch.tensor(ids), output_hidden_states=True).hidden_states
    assert [stream.shape for stream in streams] == [(2, 4, 32)] * 5
    for layer in (0, 1):
        np.testing.assert_allclose(streams[2 * layer], hidden[layer].numpy(), rtol=1e-4, atol=1e-5)
