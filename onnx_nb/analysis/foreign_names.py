"""Names that people know from other tools, and ours for them: for error messages and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnx_nb.analysis.formatting import closest_text

_TOOLS: Final[Mapping[str, Mapping[str, str]]] = {
    "netron": dict.fromkeys(("serve", "start", "visualize"), "show(model)"),
    "onnx": {
        "load_model": "load(path)",
        "save": "load(model).save(path)",
        "save_model": "load(model).save(path)",
    },
    "onnx.checker": {"check_model": "types.Graph.of(model).problems"},
    "onnx.external_data_helper": {
        "convert_model_from_external_data": "external_data.inline(model, path)",
        "convert_model_to_external_data": "external_data.convert(model, path)",
        "load_external_data_for_model": "load(path, data_dir=folder)",
    },
    "onnx.shape_inference": {"infer_shapes": "types.Graph.of(model).type_of(value)"},
    "onnx.utils": {
        "Extractor": "extract(model, inputs, outputs)",
        "extract_model": "extract(model, inputs, outputs).save(path)",
    },
    "onnx_graphsurgeon": {
        "export_onnx": "model.to_proto()",
        "fold_constants": "simplify(model)",
        "import_onnx": "load(model)",
    },
    "onnx_tool": {"model_profile": "costs(model)"},
    "onnxoptimizer": {"optimize": "simplify(model)"},
    "onnxruntime": {"InferenceSession": "run(model, feeds)"},
    "onnxslim": {"slim": "simplify(model)"},
    "polygraphy": {
        **dict.fromkeys(("Comparator", "CompareFunc"), "compare(reference, candidate, feeds)"),
        **dict.fromkeys(("OnnxrtRunner", "SessionFromOnnx"), "run(model, feeds)"),
        "extract_subgraph": "extract(model, inputs, outputs)",
        "modify_outputs": "capture(model, feeds, tensors=names)",
        "onnx_from_path": "load(path)",
    },
    "torch.onnx.verification": {
        **dict.fromkeys(("VerificationInfo", "verify", "verify_onnx_program"), "compare_torch(module, args)"),
        "find_mismatch": "compare_torch(module, args).first_divergent()",
    },
    "torchinfo": {"summary": "summarize(model)"},
}

NAMES: Final = {name: (tool, ours) for tool, names in _TOOLS.items() for name, ours in names.items()}
"""Name → the tool that it comes from, and its counterpart in onnx_nb."""

_KEYWORDS: Final[Mapping[str, str]] = {
    "check_n=": "model_check",
    "data_dir=": "base_dir external_data_dir",
    "feeds=": "feed_dict input_data input_feed test_input_data",
    "inputs=": "input_names",
    "outputs= tensors=": "output_names",
    "shapes=": "dynamic_input_shape dynamic_shapes input_shapes overwrite_input_shapes test_input_shapes",
    "size_budget=": "tensor_size_threshold",
    "skip=": "skip_fusion_patterns skip_optimizers skipped_optimizers",
    'skip=["constant_folding"]': "skip_constant_folding",
    'skip=["fuse_bn_into_conv"]': "skip_fuse_bn",
    'skip=["rewrites"]': "perform_optimization skip_optimization",
    'skip=["shape_inference"]': "no_shape_infer skip_shape_inference",
}

EXPORT_KEYWORDS: Final[Mapping[str, str]] = {"dynamo": "exporter=", "f": "model.save(path)"}
"""Keyword of ``torch.onnx.export`` that `export` does not pass on, and what does its work."""

KEYWORDS: Final = {theirs: ours for ours, names in _KEYWORDS.items() for theirs in names.split()}
"""Keyword argument → its counterparts in onnx_nb; a function has at most one of them."""


def advice(name: str, names: list[str]) -> str:
    """Return the counterpart in onnx_nb of another tool's name, else the closest of ``names``.

    Examples
    --------
    >>> advice("extract_model", [])
    'For onnx.utils.extract_model use onnx_nb.extract(model, inputs, outputs).save(path).'
    """
    if name not in NAMES:
        return closest_text(name, names)
    tool, counterpart = NAMES[name]
    return f"For {tool}.{name} use onnx_nb.{counterpart}."
