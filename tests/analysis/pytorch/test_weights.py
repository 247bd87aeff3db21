"""The weights of an export against the parameters of its module: found by what is done with them, judged by values."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime import quantization

import onnx_nb
from onnx_nb import AlignmentError

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    pytest.skip("torch or transformers is not installed", allow_module_level=True)

import torch

from onnx_nb.analysis.pytorch.side import feeds_of
from onnx_nb.types import Alignment
from tests import modules

# parameters that are compared: TorchScript, dynamo, dynamo without optimization
FOUND = {
    "conv": (10, 10, 10),
    "conv_bn": (12, 12, 30),
    "resnet": (106, 106, 265),
    "bert": (71, 69, 73),
    "llama": (31, 31, 40),
    "shared": (10, 10, 10),
    "tuples": (9, 8, 9),
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


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_no_submodule_of_a_good_export_has_other_weights(how: str) -> None:
    module, kwargs, model, recording = modules.exported("tuples", how)
    found = onnx_nb.compare_torch(module, (), kwargs, model=model)
    scopes = dict.fromkeys(call.path for call in recording.calls)
    compared = {point.name: point.difference for scope in scopes for point in found.weights(scope=scope).points}
    assert "attention.out_proj → weight" in compared, "a square matrix"
    assert not any(compared.values()), compared


def broken(name: str, how: str, path: str, change: Callable[[Any], Any]) -> tuple[onnx_nb.types.TorchComparison, str]:
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
def test_the_wrong_weight_is_named_with_its_difference(how: str) -> None:
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


def test_float16_weights_are_rounded_and_do_not_differ() -> None:
    module, kwargs, model, _ = modules.exported("bert", "torchscript")
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    half = float16.convert_float_to_float16(model.to_proto())
    alignment = onnx_nb.align(onnx_nb.record(module, (), kwargs), model)
    found = onnx_nb.compare_torch(module, (), kwargs, model=half, alignment=alignment).weights()
    assert len(found) >= 60
    assert any(point.cumulative is not None and point.cumulative.rel_l2 > 1e-5 for point in found.points)
    assert not any(point.difference for point in found.points)


def test_a_recording_has_no_weights_and_a_cancel_ends_the_work() -> None:
    module, kwargs, model, recording = modules.exported("conv", "torchscript")
    with pytest.raises(AlignmentError, match="only a recording of it"):
        onnx_nb.compare_torch(recording, model=model).weights()
    reported: list[float] = []
    found = onnx_nb.compare_torch(module, (), kwargs, model=model)
    found.weights(progress=lambda done, _what: reported.append(done))
    assert reported == sorted(reported)
    assert len(reported) == len(found.weights())

    def stop(_done: float, _what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found.weights(progress=stop)


def test_transposed_convolution_and_convolution_without_folding() -> None:
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


class Recurrent(torch.nn.Module):
    """Recurrent layers, and an attention over something else, so that its projection is divided."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = torch.nn.GRU(12, 6, bidirectional=True, batch_first=True)
        self.attention = torch.nn.MultiheadAttention(12, 2, batch_first=True)
        self.scale = torch.nn.Parameter(torch.randn(12))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        x, _ = self.lstm(x)
        x, _ = self.gru(x)
        return self.attention(x * self.scale, y, y)[0]


@pytest.mark.filterwarnings("ignore:torch made a value constant")
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_divided_projections_are_compared_and_recurrent_weights_have_a_reason(exporter: str) -> None:
    torch.manual_seed(0)
    module = Recurrent().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    args = torch.randn(2, 5, 4), torch.randn(2, 3, 12)
    model = onnx_nb.export(module, args, exporter=exporter)
    weights = onnx_nb.compare_torch(module, args, model=model).weights()
    assert not [point for point in weights.points if point.difference]
    compared = {point.reference for point in weights.points}
    recurrent = {name for name, _ in module.named_parameters() if name.startswith(("lstm", "gru"))}
    assert compared == set(dict(module.named_parameters())) - recurrent
    said = {each.name.replace(" → ", "."): each.reason for each in weights.unmatched}
    assert said.keys() == recurrent
    reason = "the weights of recurrent layers are not compared: the operator has them in another order"
    assert set(said.values()) == {reason}
    proto = model.to_proto()
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}

    def fault(label: str, change: Callable[[Any], Any]) -> dict[str, str]:
        wrong = model.to_proto()
        name = weights[label].candidate
        tensor = next(each for each in wrong.graph.initializer if each.name == name)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(kept[name].copy())), name))
        found = onnx_nb.compare_torch(module, args, model=wrong).weights()
        return {point.name: point.difference for point in found.points if point.difference}

    def one_more(array: Any) -> Any:
        array[0, 7] += 2
        return array

    projections = [point.name for point in weights.points if "in_proj" in point.name]
    divided = [f"attention → in_proj_{kind}[{part}]" for kind in ("weight", "bias") for part in ("query", "key, value")]
    whole = ["attention → in_proj_weight", "attention → in_proj_bias"]
    assert sorted(projections) == sorted(divided if exporter == "torchscript" else whole)
    first = next(name for name in projections if "weight" in name)
    assert list(fault(first, one_more)) == [first]
    if exporter == "dynamo":
        turned = fault("attention → in_proj_bias", lambda array: np.roll(array, 12, -1))
        assert turned == {"attention → in_proj_bias": "the 3 parts of in_proj_bias are in the order 3, 1, 2"}


class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: dict[str, Any]) -> None:
        self.left = [feeds]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def quantized(model: onnx_nb.Model, feeds: dict[str, Any], how: str, folder: Path) -> onnx.ModelProto:
    onnx.save(model.to_proto(), folder / "float.onnx")
    if how == "dynamic":
        quantization.quantize_dynamic(folder / "float.onnx", folder / "int8.onnx")
    else:
        form = quantization.QuantFormat.QDQ if how == "QDQ" else quantization.QuantFormat.QOperator
        quantization.quantize_static(
            folder / "float.onnx", folder / "int8.onnx", Feeds(feeds), quant_format=form, per_channel=True
        )
    return onnx.load(folder / "int8.onnx")


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of onnxruntime, where a bias is zero
@pytest.mark.parametrize("how", ["dynamic", "QDQ", "QOperator"])
@pytest.mark.parametrize("name", ["bert", "conv_bn", "tuples"])
def test_quantized_weights_are_compared_in_their_steps(name: str, how: str, tmp_path: Path) -> None:
    module, kwargs, model, recording = modules.exported(name, "torchscript")
    int8 = quantized(model, feeds_of(recording, model), how, tmp_path)
    alignment = onnx_nb.align(recording, model)
    weights = onnx_nb.compare_torch(module, (), kwargs, model=int8, alignment=alignment).weights()
    assert not [point for point in weights.points if point.difference]
    of_float = onnx_nb.compare_torch(module, (), kwargs, model=model).weights()
    assert {point.name for point in of_float.points} <= {point.name for point in weights.points}
    several = [point for point in weights.points if point.matched.endswith(", dequantized")]
    assert len(several) >= (4 if name == "tuples" else 5)
    # one integer, ten steps away
    integers = {tensor.name: tensor for tensor in int8.graph.initializer}
    point = next(p for p in several if p.name.endswith("weight") and len(integers[p.candidate].dims) in (2, 4))
    array = numpy_helper.to_array(integers[point.candidate]).copy()
    array.flat[3] = int(array.flat[3]) + (10 if array.flat[3] < 100 else -10)
    integers[point.candidate].CopyFrom(numpy_helper.from_array(array, point.candidate))
    found = onnx_nb.compare_torch(module, (), kwargs, model=int8, alignment=alignment).weights()
    said = {p.name: p.difference for p in found.points if p.difference}
    assert list(said) == [point.name]
    assert re.fullmatch(r"weight differs in 1 of [\d,]+ values, by up to [\d.]+ quantization steps", said[point.name])
    assert 9 <= float(said[point.name].split()[-3]) <= 11


def test_a_parameter_without_a_weight_has_a_reason() -> None:
    module, kwargs, model, _ = modules.exported("bert", "dynamo")
    weights = onnx_nb.compare_torch(module, (), kwargs, model=model).weights()
    parameters = dict(module.named_parameters())
    assert {each.name.replace(" → ", ".") for each in weights.unmatched} | {
        point.reference for point in weights.points
    } == set(parameters)
    said = {each.name: each.reason for each in weights.unmatched}
    assert not parameters["pooler.dense.bias"].any()
    assert said == {
        "embeddings.position_embeddings → weight":
            "the output of 'embeddings.position_embeddings' was computed in advance: it is the weight 'embedding_2'",
        "pooler.dense → bias": "it is zero, and the export leaves it out",
    }  # fmt: skip


def test_a_nonzero_bias_missing_in_the_export_is_a_difference() -> None:
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval(), torch.randn(1, 3, 5, 5)
    proto = onnx_nb.export(module, x, exporter="torchscript").to_proto()
    del proto.graph.node[0].input[2:]
    found = onnx_nb.compare_torch(module, x, model=proto)
    assert {point.name: point.difference for point in found.weights().points if point.difference} == {
        "0 → bias": "bias is left out, and not zero"
    }
    first = found.first_divergent()
    assert first is not None
    assert first.difference == "bias is left out, and not zero"


def test_a_pair_that_its_values_refuted_has_no_weight() -> None:
    """Mobius divides GPT-NeoX's query_key_value: its ``dense`` was paired with the projection of the values."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Tanh()).eval()
    c = onnx_nb.compare_torch(module, torch.randn(3, 4), exporter="torchscript")
    assert c.alignment is not None
    matches = [dataclasses.replace(c.alignment["2"], tensor=c.alignment["0"].tensor, how="inputs")]
    rest = tuple(point for point in c.points if point.name not in ("0", "2"))
    weights = dataclasses.replace(c, points=rest, alignment=Alignment(tuple(matches))).weights()
    point = next(point for point in weights.points if point.name == "2 → weight")
    assert (point.candidate, point.difference) == ("2.weight", "")


def test_a_norm_that_adds_one_to_its_weight() -> None:
    """Gemma and Nemotron: an export holds weight + 1."""

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(torch.randn(4)), torch.nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.layer_norm(x, (4,), self.weight + 1, self.bias)

    torch.manual_seed(0)
    norm, linear, plain = Norm(), torch.nn.Linear(4, 3), torch.nn.LayerNorm(4)
    plain.load_state_dict({"weight": norm.weight + 1, "bias": norm.bias})
    module, folded = torch.nn.Sequential(norm, linear).eval(), torch.nn.Sequential(plain, linear).eval()
    x = torch.randn(3, 4)
    c = onnx_nb.compare_torch(module, x, model=onnx_nb.export(folded, x, exporter="torchscript"))
    differences = {point.name: point.difference for point in c.weights().points}
    assert differences == dict.fromkeys(("0 → weight", "0 → bias", "1 → weight", "1 → bias"), "")
