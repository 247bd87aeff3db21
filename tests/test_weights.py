"""The weights of an export against the parameters of its module: found by what is done with them, judged by values."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import onnx_nb
from onnx_nb import AlignmentError

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    pytest.skip("torch or transformers is not installed", allow_module_level=True)

import torch

from onnx_nb.analysis.torch_comparison import TorchComparison, compare_recording
from tests import modules

# parameters that are compared: TorchScript, dynamo, dynamo without optimisation
FOUND = {
    "conv": (10, 10, 10),
    "conv_bn": (12, 12, 30),
    "resnet": (106, 106, 265),
    "bert": (71, 69, 73),
    "llama": (31, 31, 40),
    "shared": (10, 10, 10),
    "tuples": (7, 7, 21),
}


@pytest.mark.parametrize("how", list(modules.EXPORTS))
@pytest.mark.parametrize("name", list(FOUND))
def test_every_weight_of_a_good_export_is_its_parameter(name: str, how: str) -> None:
    module, kwargs, model, _ = modules.exported(name, how)
    found = onnx_nb.compare_torch(module, (), kwargs, model=model).weights()
    assert len(found) >= FOUND[name][list(modules.EXPORTS).index(how)]
    parameters = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for point in found.points:
        assert point.cumulative is not None
        assert not point.difference
        stored = model.tensor(point.candidate)
        if point.matched == "folded":  # by another way: in float32, as the exporters do
            assert point.cumulative.rel_l2 < 1e-6
        else:
            assert point.cumulative.is_equal
            expected = parameters[point.reference].detach().numpy()
            assert any(np.array_equal(stored, each) for each in (expected, expected.T))


def broken(name: str, how: str, path: str, change: Callable[[Any], Any]) -> tuple[TorchComparison, str]:
    """An export with one weight changed, and its initializer."""
    module, kwargs, model, _ = modules.exported(name, how)
    label = next(p for p in onnx_nb.compare_torch(module, (), kwargs, model=model).weights().points if p.name == path)
    proto = model.to_proto()
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == label.candidate)
    array = np.ascontiguousarray(change(numpy_helper.to_array(tensor).copy()))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return onnx_nb.compare_torch(module, (), kwargs, model=proto), label.candidate


def one(array: Any) -> Any:
    array[3, 5] += 0.5
    return array


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_the_weight_that_is_wrong_is_said_and_how(how: str) -> None:
    layer = "encoder.layer.2.attention.self.key"
    faults: tuple[tuple[str, str, Callable[[Any], Any], str], ...] = (
        ("bert", layer, one, "weight differs in 1 of 2,304 values, by at most 0.5"),
        ("bert", layer, np.transpose, "weight is transposed"),
        ("conv_bn", "blocks.1.conv2", lambda array: array * np.float32(1.1), "weight is 1.1 times what it should be"),
    )
    for name, path, change, said in faults:
        found, initializer = broken(name, how, f"{path} → weight", change)
        weights = found.weights()
        assert {point.name: point.difference for point in weights.points if point.difference} == {
            f"{path} → weight": said
        }
        first = weights.first_divergent()
        assert first is not None
        assert first.candidate == initializer
        culprit = found.first_divergent()
        assert culprit is not None
        assert culprit.name in (path, "blocks.1.bn2")
        assert culprit.difference == said
        assert found.message.endswith(f" {said[:1].upper()}{said[1:]}.")


def test_weights_of_a_float16_descendant_are_rounded_and_do_not_differ() -> None:
    module, kwargs, model, _ = modules.exported("bert", "torchscript")
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    half = float16.convert_float_to_float16(model.to_proto())
    alignment = onnx_nb.align(onnx_nb.record(module, (), kwargs), model)
    found = onnx_nb.compare_torch(module, (), kwargs, model=half, alignment=alignment).weights()
    assert len(found) >= 60
    assert any(point.cumulative is not None and point.cumulative.rel_l2 > 1e-5 for point in found.points)
    assert not any(point.difference for point in found.points)


def test_a_recording_alone_has_no_weights_and_a_cancel_ends_the_work() -> None:
    module, kwargs, model, recording = modules.exported("conv", "torchscript")
    with pytest.raises(AlignmentError, match="only a recording of it"):
        compare_recording(recording, model).weights()
    told: list[float] = []
    found = onnx_nb.compare_torch(module, (), kwargs, model=model)
    found.weights(progress=lambda done, _what: told.append(done))
    assert told == sorted(told)
    assert len(told) == len(found.weights())

    def stop(_done: float, _what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found.weights(progress=stop)


def test_a_convolution_that_is_turned_and_one_behind_which_nothing_is_folded() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.ConvTranspose2d(3, 4, 2, stride=2), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 1), torch.nn.ReLU()
    ).eval()
    x = torch.randn(1, 3, 4, 4)
    for exporter in ("dynamo", "torchscript"):
        found = onnx_nb.compare_torch(module, x, exporter=exporter)
        assert found.first_divergent() is None
        weights = found.weights()
        assert {"0 → weight", "0 → bias", "2 → weight", "2 → bias"} <= set(weights)
        assert not any(point.difference for point in weights.points)
