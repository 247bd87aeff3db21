"""Every case that onnx ships for backends, simplified with its inputs made initializers: what it computes stays.

What onnxruntime gives for the case as it is is the truth. ``pytest -s`` prints the counts.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.simplification import simplify
from tests.test_truth import SOURCES, Report, Runnable, plain, runnable, same_bits


def with_constant_inputs(one: Runnable) -> ModelProto | None:
    """The case with its inputs as initializers; None if one is no tensor."""
    proto = ModelProto()
    proto.CopyFrom(one.model)
    if not all(isinstance(array, np.ndarray) and array.dtype.kind != "O" for array in one.feeds.values()):
        return None
    kinds = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    for name, array in one.feeds.items():
        tensor = onnx.numpy_helper.from_array(array, name)
        if tensor.data_type != kinds[name]:
            return None
        proto.graph.initializer.append(tensor)
    kept = [value for value in proto.graph.input if value.name not in one.feeds]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return proto


def outcome(one: Runnable, proto: ModelProto, feeds: dict[str, Any], report: Report, **options: Any) -> None:
    name = one.case.name
    try:
        expected = plain(proto, feeds, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        report.add("left out: onnxruntime does not run it so", name)
        return
    done = simplify(proto, check_n=0, **options)
    result = done.model.to_proto()
    try:
        onnx.checker.check_model(result, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        try:
            onnx.checker.check_model(proto, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            report.add("the case itself is refused by the checker", name)
        else:
            report.failures.append(f"{name}: invalid: {error}"[:400])
            return
    try:
        found = plain(result, feeds, optimize=False)
    except Exception as error:  # noqa: BLE001  # onnxruntime has many
        report.failures.append(f"{name}: does not run: {error}"[:400])
        return
    if list(found) != list(expected):
        report.failures.append(f"{name}: other outputs")
    elif all(map(close, found.values(), expected.values())):
        before, after = len(proto.graph.node), len([n for n in result.graph.node if n.op_type != "Constant"])
        report.add("folded whole" if not after else "smaller" if after < before else "left as it is", name)
    else:
        report.failures.append(f"{name}: other values")


def close(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if same_bits(found, expected):
        return True
    if not isinstance(expected, np.ndarray) or found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype.kind != "f":
        return False
    # onnxruntime computes much of float16 in float32, and rounds where nodes end
    own = 8 * float(np.finfo(expected.dtype).eps)
    return np.allclose(found, expected, rtol=max(1e-4, own), atol=max(1e-5, own), equal_nan=True)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("constant", [True, False])
def test_simplifying_changes_nothing(source: str, *, constant: bool) -> None:
    report = Report()
    for one in runnable(SOURCES[source])[0]:
        proto = with_constant_inputs(one) if constant else one.model
        if proto is None:
            report.add("left out: an input that is no plain tensor", one.case.name)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                outcome(one, proto, {} if constant else one.feeds, report, size_budget=1 << 40)
            except OnnxNbError as error:
                report.failures.append(f"{one.case.name}: {type(error).__name__}: {error}"[:400])
    report.finish(f"{source}, simplified{', inputs as initializers' if constant else ''}")
    if constant and source == "node cases":
        assert len(report.names["folded whole"]) >= 1300
