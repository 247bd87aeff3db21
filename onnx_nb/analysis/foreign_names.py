"""Names that people know from other tools, and ours for them: for error messages and the documentation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

from onnx_nb.analysis.formatting import closest_text

P = ParamSpec("P")
T = TypeVar("T")

NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "Comparator": ("polygraphy", "compare(reference, candidate, feeds)"),
    "CompareFunc": ("polygraphy", "compare(reference, candidate, feeds)"),
    "Differences": ("onnx_nb before its release", "Diff"),
    "Errors": ("onnx_nb before its release", "ErrorStats"),
    "ExternalDataPanel": ("onnx_nb before its release", "AuditPanel"),
    "Extractor": ("onnx.utils", "extract(model, inputs, outputs)"),
    "GraphPair": ("onnx_nb before its release", "DiffPanel(reference, candidate)"),
    "InferenceSession": ("onnxruntime", "run(model, feeds)"),
    "OnnxrtRunner": ("polygraphy", "run(model, feeds)"),
    "SessionFromOnnx": ("polygraphy", "run(model, feeds)"),
    "VerificationInfo": ("torch.onnx.verification", "compare_torch(module, args)"),
    "check_feeds": ("onnx_nb before its release", "validate_feeds(model, feeds)"),
    "check_model": ("onnx.checker", "Graph.of(model).problems"),
    "convert_model_from_external_data": ("onnx.external_data_helper", "external_data.inline(model, path)"),
    "convert_model_to_external_data": ("onnx.external_data_helper", "external_data.convert(model, path)"),
    "differences": ("onnx_nb before its release", "diff(reference, candidate)"),
    "export_onnx": ("onnx_graphsurgeon", "model.to_proto()"),
    "extract_model": ("onnx.utils", "extract(model, inputs, outputs).save(path)"),
    "extract_subgraph": ("polygraphy", "extract(model, inputs, outputs)"),
    "find_mismatch": ("torch.onnx.verification", "compare_torch(module, args).first_divergent()"),
    "fold_constants": ("onnx_graphsurgeon", "simplify(model)"),
    "import_onnx": ("onnx_graphsurgeon", "load(model)"),
    "infer_shapes": ("onnx.shape_inference", "Graph.of(model).type_of(value)"),
    "load_external_data_for_model": ("onnx.external_data_helper", "load(path, data_dir=folder)"),
    "load_model": ("onnx", "load(path)"),
    "model_profile": ("onnx_tool", "costs(model)"),
    "modify_outputs": ("polygraphy", "capture(model, feeds, tensors=names)"),
    "onnx_from_path": ("polygraphy", "load(path)"),
    "optimize": ("onnxoptimizer", "simplify(model)"),
    "save": ("onnx", "load(model).save(path)"),
    "save_model": ("onnx", "load(model).save(path)"),
    "serve": ("netron", "show(model)"),
    "slim": ("onnxslim", "simplify(model)"),
    "start": ("netron", "show(model)"),
    "summary": ("torchinfo", "summarize(model)"),
    "verify": ("torch.onnx.verification", "compare_torch(module, args)"),
    "verify_onnx_program": ("torch.onnx.verification", "compare_torch(module, args)"),
    "visualize": ("netron", "show(model)"),
}
"""Name → the tool that it comes from, and what serves here."""

KEYWORDS: Final[Mapping[str, str]] = {
    "base_dir": "data_dir=",
    "check_feeds": "feeds=",
    "cuts": "at=",
    "dynamic": "dynamic_axes=",
    "dynamic_input_shape": "shapes=",
    "dynamic_shapes": "shapes=",
    "external_data_dir": "data_dir=",
    "feed_dict": "feeds=",
    "input_data": "feeds=",
    "input_feed": "feeds=",
    "input_names": "inputs=",
    "input_shapes": "shapes=",
    "isolate": "subprocess=",
    "model_check": "check_n=",
    "no_shape_infer": 'skip=["shape_inference"]',
    "output_names": "outputs= tensors=",
    "overwrite_input_shapes": "shapes=",
    "perform_optimization": 'skip=["rewrites"]',
    "skip_constant_folding": 'skip=["constant_folding"]',
    "skip_fuse_bn": 'skip=["fuse_bn_into_conv"]',
    "skip_fusion_patterns": "skip=",
    "skip_optimization": 'skip=["rewrites"]',
    "skip_optimizers": "skip=",
    "skip_shape_inference": 'skip=["shape_inference"]',
    "skipped_optimizers": "skip=",
    "tensor_size_threshold": "size_budget=",
    "test_input_data": "feeds=",
    "test_input_shapes": "shapes=",
}
"""Keyword argument → ours, or several of which a function has one."""


def advice(name: str, names: list[str]) -> str:
    """Return what serves here for a name that onnx_nb does not have, else the closest of ``names``.

    Examples
    --------
    >>> advice("extract_model", [])
    'For onnx.utils.extract_model use onnx_nb.extract(model, inputs, outputs).save(path).'
    """
    if name not in NAMES:
        return closest_text(name, names)
    tool, ours = NAMES[name]
    return f"For {tool}.{name} use onnx_nb.{ours}." if " " not in tool else f"It is now onnx_nb.{ours}."


def known_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: the `TypeError` for an unknown keyword argument names ours.

    Examples
    --------
    >>> @known_keywords
    ... def count(model: str, *, shapes: int = 0) -> int:
    ...     return shapes
    >>> count("m", input_shapes=1)
    Traceback (most recent call last):
    TypeError: count() has no argument 'input_shapes'. Use shapes=.
    """
    parameters = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        unknown = next((name for name in kwargs if name not in parameters), None)
        if unknown is not None:
            ours = (each for each in KEYWORDS.get(unknown, "").split(" ") if each.partition("=")[0] in parameters)
            hint = next((f"Use {each}." for each in ours), closest_text(unknown, parameters))
            hint = hint or f"Its arguments are {', '.join(parameters)}."
            msg = f"{function.__name__}() has no argument {unknown!r}. {hint}"
            raise TypeError(msg)
        return function(*args, **kwargs)

    return checked
