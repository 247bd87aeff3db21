"""Every case that onnx ships for backends, its light models, and models of our own, with what onnxruntime gives.

What onnxruntime gives, asked without onnx_nb's sessions, is the truth; onnx's reference values stand behind it.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, numpy_helper
from onnx.backend.test import loader

from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.feeds import read_feeds
from tests import models

OPSET, IR = 26, 13
"""The newest that onnxruntime knows."""

RANDOM = re.compile(r"bernoulli|multinomial|training_dropout_(?!zero)|training_dropout$")
"""Cases that draw random numbers: two runs of one session differ."""


@dataclass
class Case:
    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float = 1e-3
    atol: float = 1e-7


@functools.cache
def node_cases() -> list[Case]:
    with warnings.catch_warnings():
        # numpy's opinion on the values that the cases are made of
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    return [
        Case(case.name, case.model, unpacked(inputs), unpacked(outputs), case.rtol, case.atol)
        for case in found
        if case.model is not None and case.data_sets
        for inputs, outputs in case.data_sets[:1]
    ]


def unpacked(values: Sequence[Any]) -> list[Any]:
    return [numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value for value in values]


@functools.cache
def folder_cases() -> list[Case]:
    """The cases that come as folders with a model and test data."""
    found = []
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for case in loader.load_model_tests(kind=kind):
            folder = Path(case.model_dir or "")
            proto = onnx.load(folder / "model.onnx")
            (feed, *_) = read_feeds(proto, folder)
            kinds = [value.type for value in proto.graph.output]
            paths = [folder / "test_data_set_0" / f"output_{index}.pb" for index in range(len(kinds))]
            outputs = [parsed(path, kind) for path, kind in zip(paths, kinds, strict=True)]
            found.append(Case(case.name, proto, list(feed.values()), outputs, case.rtol, case.atol))
    return found


def parsed(path: Path, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def within_reach(model: ModelProto) -> ModelProto | None:
    """The model in the newest opset that onnxruntime takes, if its operators are valid there."""
    proto = ModelProto()
    proto.CopyFrom(model)
    proto.ir_version = min(proto.ir_version, IR)
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > OPSET:
            entry.version = OPSET
            try:
                onnx.checker.check_model(proto, full_check=True)
            except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
                return None
    return proto


def plain(proto: ModelProto, feeds: dict[str, Any], *, optimize: bool) -> dict[str, Any]:
    """What onnxruntime gives, asked without onnx_nb's sessions."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in made.get_outputs()]
    if any(
        re.search(r"bfloat16|float8|float4|int4|int2", entry.type)
        for entry in (*made.get_outputs(), *made.get_inputs())
    ):
        values = {name: session.to_value(value) for name, value in feeds.items() if value is not None}
        return dict(zip(names, map(session.to_array, made.run_with_ort_values(names, values)), strict=True))
    return dict(zip(names, made.run(names, feeds), strict=True))


def same_bits(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same_bits, found, expected))
    if expected is None or isinstance(expected, dict):
        return bool(found == expected)
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return bool((found == expected).all()) if found.dtype == object else found.tobytes() == expected.tobytes()


def similar(found: Any, expected: Any, case: Case) -> bool:
    """As onnx's backend tests compare; types smaller than a float by their values."""
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(
            similar(one, other, case) for one, other in zip(found, expected, strict=True)
        )
    if expected is None:
        return found is None
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    if found.dtype == object or expected.dtype.kind in "OUS":
        return bool((found.astype(str) == expected.astype(str)).all())
    rtol = max(case.rtol, 2**-6) if found.dtype.name == "bfloat16" else case.rtol
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    return bool(np.allclose(found.astype(wide), expected.astype(wide), rtol=rtol, atol=case.atol, equal_nan=True))


@dataclass
class Runnable:
    """A case that onnxruntime runs, and what it gives."""

    case: Case
    model: ModelProto
    feeds: dict[str, Any]
    outputs: dict[str, Any]
    agrees: bool = True
    """Whether these are onnx's reference values, within the tolerance of the case."""


@functools.cache
def runnable(source: str) -> tuple[list[Runnable], Counter[str]]:
    """The cases of a source that onnxruntime runs, and how many it does not, by reason."""
    left, found = Counter[str](), []
    for case in SOURCES[source]():
        if RANDOM.search(case.name):
            left["draws random numbers"] += 1
            continue
        model = within_reach(case.model)
        if model is None:
            left["an operator newer than onnxruntime"] += 1
            continue
        weights = {tensor.name for tensor in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in weights]
        (feeds,) = read_feeds(model, dict(zip(names, case.inputs, strict=False)))
        try:
            outputs = plain(model, feeds, optimize=True)
        except Exception as error:  # noqa: BLE001  # onnxruntime has many
            unknown = "NOT_IMPLEMENTED" in str(error) or "not a registered function" in str(error)
            left[f"onnxruntime {'has no kernel for it' if unknown else 'refuses it'}"] += 1
            continue
        agrees = all(map(functools.partial(similar, case=case), outputs.values(), case.outputs))
        if not agrees and case.model.opset_import[0].version > OPSET:
            left["its operator gave something else in older opsets"] += 1
            continue
        found.append(Runnable(case, model, feeds, outputs, agrees))
    return found, left


@functools.cache
def larger_cases() -> list[Case]:
    """onnx's light models, exports of real architectures, and models with control flow and functions."""
    found = []
    for name, make in LARGER.items():
        path = make()
        proto = onnx.load(path)
        reference = path.with_name(f"{path.stem}_output_0.pb")
        (feeds,) = read_feeds(path, ramp(proto) if reference.exists() else None)
        if reference.exists():
            outputs = unpacked([onnx.TensorProto.FromString(reference.read_bytes())])
        else:
            outputs = [*plain(proto, feeds, optimize=False).values()]
        found.append(Case(name, proto, [*feeds.values()], outputs, rtol=1e-2, atol=1e-5))
    return found


LARGER: dict[str, Callable[[], Path]] = {
    **{name: functools.partial(models.light, name) for name in models.LIGHT},
    **{
        f"{name} by {'dynamo' if dynamo else 'torchscript'}": functools.partial(models.exported, name, dynamo=dynamo)
        for name in models.EXPORTED
        for dynamo in (True, False)
    },
    "control flow": models.control_flow,
    "functions": models.functions,
    "a chain": functools.partial(models.chain, 1000),
}


def ramp(proto: ModelProto) -> list[Any]:
    """What onnx's backend tests run their light models on."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    (first,) = (value for value in proto.graph.input if value.name not in weights)
    shape = [dim.dim_value for dim in first.type.tensor_type.shape.dim]
    return [(np.arange(np.prod(shape)) / np.prod(shape)).reshape(shape).astype(np.float32)]


SOURCES: dict[str, Callable[[], list[Case]]] = {
    "node": node_cases,
    "folder": folder_cases,
    "larger": larger_cases,
}
LEAST = {"node": 0.88, "folder": 0.7, "larger": 1.0}
"""Part of the cases that onnxruntime has to run."""
