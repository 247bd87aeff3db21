"""Small architectures of transformers for `tests.models.exported`: configurations with seeded random weights."""

from __future__ import annotations

import importlib
from typing import Any, Final

_BERT: Final = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_LLAMA: Final = {**_BERT, "num_key_value_heads": 2}
_GPT: Final = {"hidden_size": 32, "n_layer": 2, "n_head": 4}
_SEQ2SEQ: Final = {
    "d_model": 32,
    **{
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 2), ("ffn_dim", 64), ("attention_heads", 4))
    },
}
_VIT: Final = {**_BERT, "image_size": 32, "patch_size": 8}
_STAGES: Final = {"depths": [1, 2], "hidden_sizes": [16, 32]}

_RECIPES: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    # text, encoders
    "bert": (_BERT, ("input_ids", "attention_mask")),
    "roberta": (_BERT, ("input_ids", "attention_mask")),
    "electra": ({**_BERT, "embedding_size": 16}, ("input_ids", "attention_mask")),
    "albert": ({**_BERT, "embedding_size": 16}, ("input_ids", "attention_mask")),
    "distilbert": ({"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}, ("input_ids", "attention_mask")),
    "deberta-v2": (
        {**_BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 4},
        ("input_ids", "attention_mask"),
    ),
    "xlnet": ({"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}, ("input_ids", "attention_mask")),
    # text, decoders
    "gpt2": ({"n_embd": 32, "n_layer": 2, "n_head": 4}, ("input_ids", "attention_mask")),
    "gpt_neox": (_BERT, ("input_ids", "attention_mask")),
    "opt": (
        {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32},
        ("input_ids", "attention_mask"),
    ),
    "bloom": (_GPT, ("input_ids", "attention_mask")),
    "falcon": ({**_BERT, "multi_query": True}, ("input_ids", "attention_mask")),
    "phi": (_LLAMA, ("input_ids", "attention_mask")),
    "llama": (_LLAMA, ("input_ids", "attention_mask")),
    "mistral": (_LLAMA, ("input_ids", "attention_mask")),
    "qwen2": (_LLAMA, ("input_ids", "attention_mask")),
    "gemma": ({**_LLAMA, "head_dim": 8}, ("input_ids", "attention_mask")),
    "mamba": ({"hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}, ("input_ids",)),
    # text to text
    "t5": (
        {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4},
        ("input_ids", "attention_mask", "decoder_input_ids"),
    ),
    "bart": (_SEQ2SEQ, ("input_ids", "attention_mask", "decoder_input_ids")),
    # images
    "vit": (_VIT, ("pixel_values",)),
    "deit": (_VIT, ("pixel_values",)),
    "beit": ({**_VIT, "use_relative_position_bias": True}, ("pixel_values",)),
    "dinov2": (_VIT, ("pixel_values",)),
    "swin": (
        {"image_size": 32, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        ("pixel_values",),
    ),
    "convnext": ({**_STAGES, "num_stages": 2}, ("pixel_values",)),
    "segformer": (
        {
            **_STAGES,
            "num_encoder_blocks": 2,
            "sr_ratios": [2, 1],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
        ("pixel_values",),
    ),
    "mobilenet_v2": ({"image_size": 64, "depth_multiplier": 0.25}, ("pixel_values",)),
    "mobilevit": (
        {"image_size": 128, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64]},
        ("pixel_values",),
    ),
    "detr": ({**_SEQ2SEQ, "num_queries": 5}, ("pixel_values",)),
    # sound
    "whisper": (
        {**_SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 16},
        ("input_features", "decoder_input_ids", "decoder_attention_mask"),
    ),
    "wav2vec2": (
        {
            **_BERT,
            "conv_dim": [16, 16],
            "conv_stride": [5, 2],
            "conv_kernel": [10, 3],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
        },
        ("input_values",),
    ),
    "audio-spectrogram-transformer": (
        {**_BERT, "patch_size": 8, "max_length": 32, "num_mel_bins": 16},
        ("input_values",),
    ),
    # images and text
    "clip": ({}, ("input_ids", "pixel_values", "attention_mask")),
}
ARCHITECTURES: Final = tuple(_RECIPES)
_BATCH: Final = {0: "batch"}
_IMAGE: Final = {"mobilenet_v2": 64, "mobilevit": 128, "detr": 64}
"""Pixels of the side of an image, where they are not 32."""


def recipe(name: str) -> tuple[Any, dict[str, Any], list[str], dict[str, dict[int, str]]]:
    """Return module, arguments by name, no names of outputs, and the dynamic axes of each argument."""
    import torch

    transformers: Any = importlib.import_module("transformers")
    sizes, names = _RECIPES[name]
    common: dict[str, Any] = {"use_cache": False} if {"input_ids", "decoder_input_ids"} & set(names) else {}
    if "input_ids" in names or name == "whisper":
        common |= {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if name == "clip":
        common = {
            "text_config": {**_BERT, "vocab_size": 100, "eos_token_id": 2},
            "vision_config": _VIT,
            "projection_dim": 16,
        }
    if name == "detr":
        backbone = transformers.ResNetConfig(**_STAGES, embedding_size=8, out_features=["stage2"])
        common |= {"backbone_config": backbone, "use_timm_backbone": False}
    module = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(name, **{**common, **sizes}))
    for parameter in module.parameters():  # trained weights are no zeros and ones, which rules could remove
        torch.nn.init.normal_(parameter, std=0.1)
    tokens, side = torch.randint(3, 100, (2, 7)), _IMAGE.get(name, 32)
    made = {
        "input_ids": (tokens, {0: "batch", 1: "seq"}),
        "attention_mask": (torch.ones_like(tokens), {0: "batch", 1: "seq"}),
        "decoder_input_ids": (tokens[:, :5], {0: "batch", 1: "target"}),
        "decoder_attention_mask": (torch.ones_like(tokens[:, :5]), {0: "batch", 1: "target"}),
        "pixel_values": (torch.randn(2, 3, side, side), _BATCH),
        "input_features": (torch.randn(2, 8, 32), _BATCH),
        "input_values": (torch.randn(2, 32, 16) if name.startswith("audio") else torch.randn(2, 400), _BATCH),
    }
    if name == "mamba":  # it is scanned step by step
        made["input_ids"] = tokens, _BATCH
    return module, {each: made[each][0] for each in names}, [], {each: made[each][1] for each in names}
