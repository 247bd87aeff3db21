"""Small decoders as onnxruntime-genai's builder writes them: packed attention, fused norms, a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEADS, KV_HEADS, HEAD, HIDDEN, INNER, VOCABULARY, POSITIONS = 4, 2, 16, 32, 48, 60, 64
MS = "com.microsoft"


def decoder(layers: int = 2, *, window: int = 0, seed: int = 0, hidden: int = HIDDEN) -> onnx.ModelProto:
    """Return a decoder; with ``window`` its even layers keep a sliding window of so many tokens."""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, array: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def matrix(name: str, rows: int, columns: int) -> str:
        return weight(f"{name}.weight", (random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32))

    def node(op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        name = outputs[0].rpartition("/")[0] + "/LayerNorm" * op.endswith("LayerNormalization")
        nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def product(name: str, x: str, rows: int, columns: int) -> str:
        return node("MatMul", [x, matrix(name, rows, columns)], [f"/{name}/MatMul/output_0"])

    angles = np.outer(np.arange(POSITIONS), 100.0 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    weight("cos_cache", np.cos(angles).astype(np.float32))
    weight("sin_cache", np.sin(angles).astype(np.float32))
    one = weight("one", np.array([1], np.int64))
    lengths = node(
        "Sub", [node("ReduceSum", ["attention_mask", one], ["/mask/sum/y"], keepdims=0), one], ["/mask/sub/y"]
    )
    lengths = node("Cast", [lengths], ["/mask/lengths/y"], to=TensorProto.INT32)
    size = node("Shape", ["attention_mask"], ["/mask/shape/y"], start=1, end=2)
    total = node("Cast", [node("Squeeze", [size], ["/mask/size/y"])], ["/mask/total/y"], to=TensorProto.INT32)
    table = weight("embed", random.standard_normal((VOCABULARY, hidden)).astype(np.float32))
    residual = node("Gather", [table, "input_ids"], ["/model/embed_tokens/Gather/output_0"])
    scale = weight("norm", np.ones(hidden, np.float32))
    x = node(
        "SimplifiedLayerNormalization",
        [residual, scale],
        ["/model/layers.0/input_layernorm/output_0"],
        axis=-1,
        epsilon=1e-6,
        stash_type=1,
    )
    for layer in range(layers):
        name = f"model/layers.{layer}"
        packed = product(f"{name}/attn/qkv_proj", x, hidden, (HEADS + 2 * KV_HEADS) * HEAD)
        slides = {"local_window_size": window, "sliding_window_cache": 1} if window and layer % 2 == 0 else {}
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        out = [f"/{name}/attn/GroupQueryAttention/output_0", *(f"present.{layer}.{part}" for part in ("key", "value"))]
        node(
            "GroupQueryAttention",
            [packed, "", "", *past, lengths, total, "cos_cache", "sin_cache"],
            out,
            MS,
            num_heads=HEADS,
            kv_num_heads=KV_HEADS,
            do_rotary=1,
            **slides,
        )
        attention = product(f"{name}/attn/o_proj", out[0], HEADS * HEAD, hidden)
        norm = f"/{name}/post_attention_layernorm"
        x = node(
            "SkipSimplifiedLayerNormalization",
            [residual, attention, scale],
            [f"{norm}/output_0", "", "", f"{norm}/output_3"],
            MS,
            epsilon=1e-6,
        )
        residual = f"{norm}/output_3"
        gate = product(f"{name}/mlp/gate_proj", x, hidden, INNER)
        gate = node("Mul", [gate, node("Sigmoid", [gate], [f"/{name}/mlp/act/y"])], [f"/{name}/mlp/silu/y"])
        up = product(f"{name}/mlp/up_proj", x, hidden, INNER)
        down = product(f"{name}/mlp/down_proj", node("Mul", [gate, up], [f"/{name}/mlp/Mul/y"]), INNER, hidden)
        last = layer == layers - 1
        norm = f"/model/layers.{layers}/final_norm_layernorm" if last else f"/model/layers.{layer + 1}/input_layernorm"
        sums = [f"{norm}/output_0"] if last else [f"{norm}/output_0", "", "", f"{norm}/output_3"]
        x = node("SkipSimplifiedLayerNormalization", [residual, down, scale], sums, MS, epsilon=1e-6)
        residual = f"{norm}/output_3"
    node("MatMul", [x, matrix("lm_head", hidden, VOCABULARY)], ["logits"])
    nodes[-1].name = "/lm_head/MatMul"
    caches = [(layer, part) for part in ("key", "value") for layer in range(layers)]

    def cache(name: str, layer: int, length: str) -> onnx.ValueInfoProto:
        sliding = "_sliding" if window and layer % 2 == 0 else "_sequence"
        shape: list[str | int | None] = ["batch_size", KV_HEADS, f"{length}{sliding}_length", "kv_cache_dim"]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    ids = ["batch_size", "sequence_length"]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ids),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
        *(cache(f"past_key_values.{layer}.{part}", layer, "past") for layer, part in caches),
    ]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*ids, VOCABULARY]),
        *(cache(f"present.{layer}.{part}", layer, "total") for layer, part in caches),
    ]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def four_bits(model: onnx.ModelProto, exclude: Sequence[str] = (), level: int = 4) -> onnx.ModelProto:
    """Return a decoder in four bits, as onnxruntime's quantizer makes it."""
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    settings = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=level)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantizer = MatMulNBitsQuantizer(copy, nodes_to_exclude=list(exclude), algo_config=settings)
    quantizer.process()
    result = quantizer.model.model
    assert isinstance(result, onnx.ModelProto)
    return result


def write(folder: Path, model: onnx.ModelProto | None = None, **configuration: Any) -> Path:
    """Write a package with a decoder and its configuration; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model or decoder(), folder / "model.onnx")
    section = {"filename": "model.onnx", "head_size": HEAD, "num_attention_heads": HEADS}
    content = {"model": {"decoder": section, "vocab_size": VOCABULARY, "type": "llama", **configuration}}
    (folder / "genai_config.json").write_text(json.dumps(content))
    return folder


def llama(model: onnx.ModelProto) -> Any:
    """Return a Llama of transformers with the weights of a decoder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    weights: dict[str, Any] = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in model.graph.initializer
    }
    layers, hidden = sum("qkv_proj" in name for name in weights), weights["embed"].shape[1]
    sizes: dict[str, Any] = {"hidden_size": hidden, "intermediate_size": INNER, "vocab_size": VOCABULARY}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD}
    sizes |= {"num_hidden_layers": layers, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6}
    sizes |= {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}, "attn_implementation": "eager"}
    state = {"model.embed_tokens.weight": weights["embed"], "lm_head.weight": weights["lm_head.weight"].T}
    state["model.norm.weight"] = weights["norm"]
    rows = [HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD]
    for layer in range(layers):
        ours, theirs = f"model/layers.{layer}", f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            state[f"{theirs}.{name}.weight"] = weights["norm"]
        packed = weights[f"{ours}/attn/qkv_proj.weight"].T.split(rows)
        for name, part in zip(("q", "k", "v"), packed, strict=True):
            state[f"{theirs}.self_attn.{name}_proj.weight"] = part
        state[f"{theirs}.self_attn.o_proj.weight"] = weights[f"{ours}/attn/o_proj.weight"].T
        for name in ("gate", "up", "down"):
            state[f"{theirs}.mlp.{name}_proj.weight"] = weights[f"{ours}/mlp/{name}_proj.weight"].T
    module: Any = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False))
    module.load_state_dict({name: part.contiguous() for name, part in state.items()})
    return module.eval()
