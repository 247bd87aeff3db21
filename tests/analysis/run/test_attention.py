"""Probabilities of attentions are those that onnx's reference, torch and the kernels themselves return."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnx_nb.analysis.errors import CaptureError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import load
from onnx_nb.analysis.run.attention import attention_probabilities
from onnx_nb.analysis.run.capture import Capture, capture

RNG = np.random.default_rng(7)
MS = "com.microsoft"


def array(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def model_of(
    op: str, feeds: dict[str, Any], inputs: list[str], *, domain: str = "", outputs: int = 1, **options: Any
) -> onnx.ModelProto:
    """Return a model of one node, "node", whose outputs are out0, out1, …"""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    names = [f"out{number}" for number in range(outputs)]
    node = helper.make_node(op, inputs, names, "node", domain=domain, **options)
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names]
    graph = helper.make_graph([node], "g", infos, results)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def kept(model: onnx.ModelProto, feeds: dict[str, Any]) -> Capture:
    return capture(model, feeds, keep="*")


def of_groups(*, packed: bool, past: int, **options: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a GroupQueryAttention of 4 heads on 2 of size 16 on 5 tokens, with its own probabilities as out3."""
    total = past + 5
    feeds = {
        "q": array(1, 5, (4 + 4) * 16 if packed else 4 * 16),
        **({} if packed else {"k": array(1, 5, 32), "v": array(1, 5, 32)}),
        "past_k": array(1, 2, past, 16),
        "past_v": array(1, 2, past, 16),
        "seqlens": np.full(1, total - 1, np.int32),
        "total": np.asarray(total, np.int32),
        "cos": np.cos(np.arange(64)[:, None] * 0.5 ** np.arange(8)).astype(np.float32),
        "sin": np.sin(np.arange(64)[:, None] * 0.5 ** np.arange(8)).astype(np.float32),
    }
    inputs = [name if name in feeds else "" for name in ("q", "k", "v", *list(feeds)[-6:])]
    if options.pop("sinks", False):
        feeds["sinks"] = array(4)
        inputs += ["", "", "sinks"]
    about = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "qk_output": 2, **options}
    return model_of("GroupQueryAttention", feeds, inputs, domain=MS, outputs=4, **about), feeds


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("past", "options"),
    [
        (0, {}),
        (40, {}),
        (19, {"softcap": 0.5}),
        (19, {"local_window_size": 3}),
        (19, {"sinks": True}),
        (3, {"rotary_interleaved": 1, "scale": 0.3, "smooth_softmax": 1}),
    ],
)
def test_those_of_groups_are_what_the_kernel_returns(*, packed: bool, past: int, options: dict[str, Any]) -> None:
    model, feeds = of_groups(packed=packed, past=past, **options)
    captured = kept(model, feeds)
    probabilities = captured.attention("node")
    assert probabilities.shape == (1, 4, 5, past + 5)
    expected = captured["out3"]  # onnxruntime's own, with qk_output=2
    if "local_window_size" not in options:  # it leaves what is outside of the window as it was
        np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-7)
    else:
        inside = np.arange(past + 5) > np.arange(past, past + 5)[:, None] - 3
        assert not probabilities[..., ~inside].any()
    new = feeds["q" if packed else "v"][..., -32:].reshape(1, 5, 2, 16).swapaxes(1, 2)
    values = np.repeat(np.concatenate([feeds["past_v"], new], axis=2), 2, axis=1)
    output = (probabilities @ values).swapaxes(1, 2).reshape(1, 5, 64)
    np.testing.assert_allclose(output, captured["out0"], rtol=1e-5, atol=1e-6)


def test_a_choice_of_heads_and_queries_is_a_part() -> None:
    model, feeds = of_groups(packed=True, past=7)
    captured = kept(model, feeds)
    part = captured.attention("out0", heads=[3, 0], queries=[-1])
    np.testing.assert_array_equal(part, captured.attention("node")[:, [3, 0]][:, :, [-1]])
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        captured.attention("node", heads=[4])


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("options", [{}, {"is_causal": 1}, {"softcap": 2.0}, {"mask": True}, {"past": 21}])
def test_those_of_the_standard_are_what_its_reference_returns(rank: int, options: dict[str, Any]) -> None:
    options = dict(options)
    past, mask = options.pop("past", 0), options.pop("mask", False)
    shapes = {"q": (2, 4, 5, 16), "k": (2, 2, 9, 16), "v": (2, 2, 9, 8)}
    feeds = {name: array(*shape) for name, shape in shapes.items()}
    if rank == 3:
        feeds = {name: x.swapaxes(1, 2).reshape(2, x.shape[2], -1) for name, x in feeds.items()}
        options |= {"q_num_heads": 4, "kv_num_heads": 2}
    inputs = ["q", "k", "v"]
    if mask:
        feeds["mask"] = RNG.random((5, 9)) < 0.6
        feeds["mask"][:, 0] = True
        inputs.append("mask")
    if past:
        feeds |= {"past_k": array(2, 2, past, 16), "past_v": array(2, 2, past, 8)}
        inputs += ["", "past_k", "past_v"]
    model = model_of("Attention", feeds, inputs, outputs=4 if past else 1, **options)
    reference = model_of("Attention", feeds, inputs, outputs=4, qk_matmul_output_mode=3, **options)
    results: Any = ReferenceEvaluator(reference).run(None, feeds)
    np.testing.assert_allclose(kept(model, feeds).attention("node"), results[3], rtol=1e-4, atol=1e-6)


def test_that_of_many_heads_is_what_torch_returns() -> None:
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval()
    x = torch.tensor(array(2, 11, 64))
    layer.in_proj_bias.data.normal_()
    with torch.no_grad():
        _, expected = layer(x, x, x, average_attn_weights=False)
        q, k, v = (x @ layer.in_proj_weight.T).chunk(3, dim=-1)
    bias = layer.in_proj_bias.detach().numpy()
    feeds = {"q": q.numpy(), "k": k.numpy(), "v": v.numpy(), "bias": bias}
    model = model_of("MultiHeadAttention", feeds, ["q", "k", "v", "bias"], domain=MS, num_heads=4)
    np.testing.assert_allclose(kept(model, feeds).attention("node"), expected.numpy(), rtol=1e-4, atol=1e-6)
    heads = [
        feeds[name].reshape(2, 11, 4, 16) + part.reshape(4, 16)
        for name, part in zip("qkv", np.split(bias, 3), strict=True)
    ]
    # keys and values by heads, as cross attention reads them, and the first of them as the past
    by_heads = {
        "q": heads[0].reshape(2, 11, 64),
        **{name: x.swapaxes(1, 2) for name, x in zip("kv", heads[1:], strict=True)},
    }
    model = model_of("MultiHeadAttention", by_heads, list(by_heads), domain=MS, num_heads=4)
    np.testing.assert_allclose(kept(model, by_heads).attention("node"), expected.numpy(), rtol=1e-4, atol=1e-6)
    q, k, v = heads
    step = {"q": q[:, -2:].reshape(2, 2, 64), **{name: x[:, -2:].reshape(2, 2, 64) for name, x in (("k", k), ("v", v))}}
    step |= {"past_k": k[:, :-2].swapaxes(1, 2), "past_v": v[:, :-2].swapaxes(1, 2)}
    inputs = ["q", "k", "v", "", "", "", "past_k", "past_v"]
    model = model_of("MultiHeadAttention", step, inputs, domain=MS, outputs=3, num_heads=4)
    np.testing.assert_allclose(kept(model, step).attention("node"), expected[:, :, -2:].numpy(), rtol=1e-4, atol=1e-6)
    packed = {"qkv": np.stack(heads, 3)}
    graph = Graph.of(load(model_of("MultiHeadAttention", packed, ["qkv"], domain=MS, num_heads=4)))
    with pytest.raises(CaptureError, match="side by side"):  # no kernel of a CPU reads them
        attention_probabilities(graph, 0, [packed["qkv"]], slice(None), slice(None))


@pytest.mark.parametrize("past", [0, 6])
def test_that_of_an_attention_with_its_projection_is_that_of_numpy(past: int) -> None:
    feeds = {"x": array(2, 5, 24), "w": array(24, 96) / 5, "b": array(96), "past": array(2, 2, 4, past, 8)}
    model = model_of(
        "Attention", feeds, ["x", "w", "b", "", "past"], domain=MS, outputs=2, num_heads=4, unidirectional=1
    )
    projected = (feeds["x"] @ feeds["w"] + feeds["b"]).reshape(2, 5, 3, 4, 8).transpose(2, 0, 3, 1, 4)
    k = np.concatenate([feeds["past"][0], projected[1]], axis=2)
    scores = projected[0] @ k.swapaxes(-1, -2) / np.sqrt(8)
    scores[..., np.arange(past + 5) > np.arange(past, past + 5)[:, None]] = -np.inf
    expected = torch.softmax(torch.tensor(scores), -1).numpy()
    np.testing.assert_allclose(kept(model, feeds).attention("node"), expected, rtol=1e-4, atol=1e-6)


def test_one_value_that_is_read_three_times_is_three_inputs() -> None:
    feeds = {"x": array(1, 6, 16)}
    model = model_of("Attention", feeds, ["x", "x", "x"], q_num_heads=2, kv_num_heads=2)
    probabilities = kept(model, feeds).attention("node")
    x = torch.tensor(feeds["x"].reshape(1, 6, 2, 8).swapaxes(1, 2))
    np.testing.assert_allclose(probabilities, torch.softmax(x @ x.mT / 8**0.5, -1).numpy(), rtol=1e-5, atol=1e-7)


def test_what_was_not_kept_is_named() -> None:
    feeds = {"x": array(1, 6, 16), "y": array(1, 6, 16)}
    model = model_of("Attention", feeds, ["x", "y", "y"], q_num_heads=2, kv_num_heads=2)
    with pytest.raises(CaptureError, match=r"lacks 2 inputs of the node 'node'.*keep=\['x', 'y'\]"):
        capture(model, feeds).attention("node")
    with pytest.raises(CaptureError, match="MatMul 'node' is no attention"):
        kept(model_of("MatMul", {"a": array(2, 2)}, ["a", "a"]), {"a": array(2, 2)}).attention("node")
    with pytest.raises(CaptureError, match="'x' is neither a node"):
        capture(model, feeds).attention("x")


def test_experts_are_those_of_most_weight() -> None:
    feeds = {"x": array(6, 16), "router": array(6, 5), "up": array(5, 32, 16), "down": array(5, 16, 32)}
    inputs = ["x", "router", "up", "", "down"]
    model = model_of("MoE", feeds, inputs, domain=MS, k=2, activation_type="relu", normalize_routing_weights=1)
    captured = kept(model, feeds)
    experts = captured.experts("node")
    weights, best = torch.tensor(feeds["router"]).softmax(-1).topk(2)
    np.testing.assert_array_equal(experts, best.numpy())
    # the kernel chooses them, too: its output is that of these experts
    shares = (weights / weights.sum(-1, keepdim=True)).numpy()
    hidden = np.maximum(np.einsum("td,tkhd->tkh", feeds["x"], feeds["up"][experts]), 0)
    output = np.einsum("tkh,tkdh,tk->td", hidden, feeds["down"][experts], shares)
    np.testing.assert_allclose(captured["out0"], output, rtol=1e-4, atol=1e-4)
    with pytest.raises(CaptureError, match="sends no tokens to experts"):
        kept(model_of("MatMul", {"a": array(2, 2)}, ["a", "a"]), {"a": array(2, 2)}).experts("node")
