"""Every backend case that onnx ships, simplified with its inputs made initializers: its outputs stay.

The reference is what onnxruntime computes for the case itself. ``pytest -s`` prints the counts.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.simplify.rules_fusion import RANDOM as RANDOM_OPERATORS
from onnx_nb.analysis.simplify.simplify import simplify
from tests.analysis.run.test_backend_cases import (
    RANDOM,
    SOURCES,
    Case,
    Report,
    Runnable,
    node_cases,
    plain,
    runnable,
    same_bits,
)


def feeds_of(case: Case) -> dict[str, Any]:
    names = (value.name for value in case.model.graph.input)
    return {name: np.asarray(value) for name, value in zip(names, case.inputs, strict=False)}


def with_constant_inputs(one: Runnable) -> ModelProto | None:
    """Return the case with its inputs as initializers; None if one is not a tensor."""
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


def fault(before: ModelProto, after: ModelProto, feeds: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return what is wrong with a model derived from another, "" if nothing; the kind of fault comes before a colon."""
    try:
        onnx.checker.check_model(after, full_check=True)
    except INVALID as error:
        try:
            onnx.checker.check_model(before, full_check=True)
        except INVALID:
            pass  # it never was valid
        else:
            return f"invalid: {error}"
    try:
        found = plain(after, feeds, optimize=False)
    except Exception as error:  # noqa: BLE001  # onnxruntime has many
        return f"invalid: it does not run: {error}"
    if list(found) != list(expected):
        return f"wrong: outputs {list(found)}, not {list(expected)}"
    return "" if all(map(close, found.values(), expected.values())) else "wrong: other values"


INVALID = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def outcome(one: Runnable, proto: ModelProto, feeds: dict[str, Any], report: Report, **options: Any) -> None:
    name = one.case.name
    try:
        expected = plain(proto, feeds, optimize=False)
    except Exception:  # noqa: BLE001  # onnxruntime has many
        report.add("left out: onnxruntime does not run it so", name)
        return
    result = simplify(proto, check_n=0, **options).model.to_proto()
    said = fault(proto, result, feeds, expected)
    if said:
        report.failures.append(f"{name}: {said}"[:400])
        return
    before, after = len(proto.graph.node), len([n for n in result.graph.node if n.op_type != "Constant"])
    report.add("folded whole" if not after else "smaller" if after < before else "left as it is", name)


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


def draws(proto: ModelProto) -> int:
    """How many nodes of the main graph draw random numbers."""
    return sum(node.op_type in RANDOM_OPERATORS or node.op_type == "Dropout" for node in proto.graph.node)


def test_what_draws_random_numbers_goes_on_drawing() -> None:
    cases = [case for case in node_cases() if RANDOM.search(case.name)]
    assert len(cases) >= 10
    for case in cases:
        proto = with_constant_inputs(Runnable(case, case.model, feeds_of(case), {}))
        assert proto is not None
        assert draws(simplify(proto, check_n=0, size_budget=1 << 40).model.proto) == draws(proto), case.name


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
