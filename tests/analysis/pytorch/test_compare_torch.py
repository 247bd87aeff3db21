"""Faults put into an export are found where they were put, by the error that each region makes by itself."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import importlib.util
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb import AlignmentError, FeedError
from onnx_nb.analysis.pytorch.align import align
from onnx_nb.analysis.pytorch.side import feeds_of
from onnx_nb.analysis.run.session import release_arena

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    pytest.skip("torch or transformers is not installed", allow_module_level=True)

import torch

from onnx_nb.analysis.pytorch import compare_torch
from tests import modules

LAYER = "encoder.layer.2"
HEAVY = {"resnet", "bert_eager", "llama"}


class Fault:
    """An export, taken apart to be broken at a module."""

    def __init__(self, name: str, how: str) -> None:
        _, _, model, self.recording = modules.exported(name, how)
        self.alignment = align(self.recording, model)
        self.proto = model.to_proto()
        self.graph = self.proto.graph

    def maker(self, tensor: str) -> onnx.NodeProto:
        found: onnx.NodeProto = next(node for node in self.graph.node if tensor in node.output)
        return found

    def before(self, path: str, *ops: str) -> onnx.NodeProto:
        """The nearest node of some types before a module's output."""
        todo = [self.alignment[path].tensor]
        while todo:
            node = self.maker(todo.pop(0))
            if node.op_type in ops:
                return node
            made = {name for other in self.graph.node for name in other.output}
            todo += [name for name in node.input if name in made]
        raise AssertionError(f"no {ops} before {path}")

    def matrix(self, path: str) -> str:
        """The weight of a linear layer."""
        node = self.before(path, "MatMul", "Gemm")
        weights = {tensor.name for tensor in self.graph.initializer}
        name = node.input[1]
        return str(name if name in weights else self.maker(name).input[0])

    def change(self, name: str, change: Callable[[np.ndarray[Any, Any]], Any]) -> None:
        tensor = next(tensor for tensor in self.graph.initializer if tensor.name == name)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor))), name))

    def insert(self, tensor: str, *nodes: tuple[str, dict[str, Any]]) -> None:
        """Put nodes behind what makes a tensor."""
        maker = self.maker(tensor)
        last = f"{tensor} before"
        maker.output[list(maker.output).index(tensor)] = last
        place = list(self.graph.node).index(maker) + 1
        for number, (op, attributes) in enumerate(nodes):
            made = tensor if number == len(nodes) - 1 else f"{tensor} between {number}"
            inputs = [last, *attributes.pop("more", [])]
            self.graph.node.insert(place + number, helper.make_node(op, inputs, [made], **attributes))
            last = made

    def compared(self) -> onnx_nb.types.TorchComparison:
        return onnx_nb.compare_torch(self.recording, model=self.proto, alignment=self.alignment)


def a_weight(fault: Fault) -> str:
    path = f"{LAYER}.attention.self.key"

    def changed(array: np.ndarray[Any, Any]) -> Any:
        array = array.copy()
        array[3, 5] += 0.5
        return array

    fault.change(fault.matrix(path), changed)
    return path


def epsilon(value: float) -> Callable[[Fault], str]:
    def change(fault: Fault) -> str:
        path = f"{LAYER}.output.LayerNorm"
        node = fault.before(path, "LayerNormalization")
        next(attribute for attribute in node.attribute if attribute.name == "epsilon").f = value
        return path

    return change


def tanh(fault: Fault) -> str:
    path = f"{LAYER}.intermediate.intermediate_act_fn"
    node = fault.maker(fault.alignment[path].tensor)
    if node.op_type != "Gelu":
        pytest.skip("this exporter writes Gelu as several nodes")
    kept = [attribute for attribute in node.attribute if attribute.name != "approximate"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("approximate", "tanh")])
    return path


def scaled(fault: Fault) -> str:
    path = f"{LAYER}.output.dense"
    fault.graph.initializer.append(numpy_helper.from_array(np.array(1.05, np.float32), "too much"))
    fault.insert(fault.alignment[path].tensor, ("Mul", {"more": ["too much"]}))
    return path


def softmax_axis(fault: Fault) -> str:
    path = f"{LAYER}.attention.self"
    node = fault.before(path, "Softmax")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", 2))
    return path


def transposed(fault: Fault) -> str:
    path = f"{LAYER}.attention.self.query"
    fault.change(fault.matrix(path), np.transpose)
    return path


def half(fault: Fault) -> str:
    path = f"{LAYER}.intermediate.dense"
    fault.insert(
        fault.alignment[path].tensor,
        ("Cast", {"to": TensorProto.FLOAT16}),
        ("Cast", {"to": TensorProto.FLOAT}),
    )
    return path


FAULTS = {
    "one weight + 0.5": a_weight,
    "epsilon 1e-2": epsilon(1e-2),
    "epsilon 1e-5": epsilon(1e-5),
    "tanh": tanh,
    "times 1.05": scaled,
    "softmax axis": softmax_axis,
    "transposed": transposed,
    "float16": half,
}


@pytest.mark.parametrize("how", list(modules.EXPORTS))
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_ranks_first_by_isolated_error(name: str, how: str) -> None:
    fault = Fault("bert", how)
    culprit = FAULTS[name](fault)
    found = fault.compared()
    first, second, *_ = found.ranked("isolated")
    assert first.name == culprit or first.name.startswith(f"{culprit} →")
    assert first.isolated is not None
    assert second.isolated is not None
    scores = np.sort(found.scores("isolated"))[::-1]
    assert scores[0] > 10 * scores[1]
    assert found.first_divergent() is first


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_a_wrongly_folded_filter_is_found(how: str) -> None:
    fault = Fault("conv_bn", how)
    culprit = "blocks.1.conv2" if how == "plain" else "blocks.1.bn2"
    fault.change(fault.before(culprit, "Conv").input[1], lambda array: array * np.float32(1.1))
    found = fault.compared()
    assert found.ranked("isolated")[0].name == culprit
    first = found.first_divergent()
    assert first is not None
    assert first.name == culprit


@pytest.mark.parametrize(
    ("name", "how"),
    [
        # `make faults` has them, too, and of larger ones
        pytest.param(name, how, marks=[pytest.mark.rare] if how != "plain" and name in HEAVY else [])
        for name in modules.MODULES
        for how in modules.EXPORTS
    ],
)
def test_nothing_stands_out_in_a_good_export(name: str, how: str) -> None:
    _, _, model, recording = modules.exported(name, how)
    found = onnx_nb.compare_torch(recording, model=model)
    assert all(point.isolated is not None and point.isolated.rel_l2 < 2e-6 for point in found.points)
    assert found.first_divergent() is None
    assert not any(point.difference for point in found.points)
    # the cumulative errors are those of an ordinary run
    outputs = onnx_nb.run(model, feeds_of(recording, model), optimize=False)
    for point in found.points:
        if point.output and point.cumulative is not None:
            expected = float(np.abs(outputs[point.candidate] - recording[point.name]).max())
            assert point.cumulative.max_abs == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_lazy_errors_equal_errors_computed_at_once(how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, _, model, recording = modules.exported("bert", how)
    kept = onnx_nb.compare_torch(recording, model=model)
    again = onnx_nb.compare_torch(recording, model=model)
    monkeypatch.setattr(compare_torch, "SMALL", 0)
    at_once = onnx_nb.compare_torch(recording, model=model)
    sent = pickle.loads(pickle.dumps(kept.points))  # noqa: S301
    for mine, yours, other in zip(kept.points, at_once.points, sent, strict=True):
        for which in ("cumulative", "isolated"):
            found = [getattr(point, which) for point in (mine, yours, other)]
            for field in dataclasses.fields(onnx_nb.types.ErrorStats):
                one, *others = [getattr(errors, field.name) for errors in found]
                for each in others:
                    same = np.array_equal(one, each) if isinstance(one, np.ndarray) else repr(one) == repr(each)
                    assert same, (mine.name, which, field.name)
    again.save(tmp_path / "c.npz")
    rows = [repr(each.rows()) for each in (onnx_nb.types.Comparison.load(tmp_path / "c.npz"), at_once, kept)]
    assert rows[0] == rows[1] == rows[2]
    merged = onnx_nb.compare_torch(recording, model=model).merge(at_once)
    assert repr(merged.rows()) == repr(at_once.merge(at_once).rows())
    assert [point.name for point in kept.ranked()] == [point.name for point in at_once.ranked()]


def broken(how: str, name: str = "bert_eager") -> tuple[onnx_nb.types.TorchComparison, str]:
    """Small BERT against an export whose Softmax goes the wrong way."""
    module, kwargs, _, _ = modules.exported(name, how)
    fault = Fault(name, how)
    culprit = softmax_axis(fault)
    return onnx_nb.compare_torch(module, (), kwargs, model=fault.proto, alignment=fault.alignment), culprit


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_drill_finds_the_operation_and_its_line(how: str) -> None:
    found, culprit = broken(how)
    first = found.first_divergent()
    assert first is not None
    assert first.name.startswith(culprit)
    inside = found.drill(culprit)
    assert len(inside) >= 10
    worst = inside.ranked("isolated")[0]
    assert worst.name == "aten._softmax"
    assert worst.source.startswith("modeling_bert.py:")
    assert worst.isolated is not None
    assert worst.isolated.rel_l2 > 1e-3
    before = [point for point in inside.points if point.depth < worst.depth]
    assert before
    assert all(point.cumulative is not None and point.cumulative.rel_l2 < 1e-5 for point in before)
    good = found.drill("encoder.layer.1")
    assert len(good) >= 20
    assert all(point.cumulative is not None and point.cumulative.rel_l2 < 1e-5 for point in good.points)


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_drill_divides_fused_attention_into_its_steps(how: str) -> None:
    found, culprit = broken(how, "bert")
    inside = found.drill(culprit)
    worst = inside.ranked("isolated")[0]
    assert "softmax" in worst.name
    assert worst.isolated is not None
    assert worst.isolated.rel_l2 > 1e-3
    module, kwargs, model, _ = modules.exported("bert", how)
    whole = onnx_nb.compare_torch(module, (), kwargs, model=model).drill("")
    assert sum("softmax" in point.name for point in whole.points) == 4, "one a layer"
    assert all(point.cumulative is not None and point.cumulative.rel_l2 < 1e-5 for point in whole.points)


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_a_reproduction_is_a_folder_that_shows_the_error(how: str, tmp_path: Path) -> None:
    found, _ = broken(how)
    part = found.reproduce(LAYER, tmp_path / "case")
    proto = onnx.load(tmp_path / "case" / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert len(proto.graph.node) < len(Fault("bert_eager", how).graph.node) / 2
    (errors,) = part.errors().values()
    assert errors.rel_l2 > 1e-4
    command = [sys.executable, str(tmp_path / "case" / "run.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    (line,) = done.stdout.splitlines()
    reported = float(line.split("max |error| ")[1].split(",")[0])
    assert reported == pytest.approx(errors.max_abs, rel=1e-2)
    # what comes before the fault is right by itself, though it follows a layer
    good = found.reproduce("encoder.layer.1")
    assert all(each.rel_l2 < 1e-5 for each in good.errors().values())
    for name, array in good.feeds.items():
        assert not np.array_equal(array, 0 * array), name
    with pytest.raises(AlignmentError, match=r"Closest names: 'encoder.layer.1'"):
        found.reproduce("encoder.layer.11x")


class Between(torch.nn.Module):
    """Computes something that is in no submodule of its own, between two that are."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.norm = torch.nn.Linear(6, 6), torch.nn.Linear(6, 4), torch.nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(self.after(self.before(x).softmax(-1)))


def changed(op: str, **attributes: Any) -> tuple[Between, torch.Tensor, onnx.ModelProto]:
    torch.manual_seed(0)
    module, x = Between().eval(), torch.randn(5, 6)
    proto = onnx_nb.export(module, x, exporter="torchscript").to_proto()
    node = next(node for node in proto.graph.node if node.op_type == op)
    del node.attribute[:]
    node.attribute.extend([helper.make_attribute(name, value) for name, value in attributes.items()])
    return module, x, proto


def test_drill_includes_operations_between_two_submodules() -> None:
    module, x, proto = changed("Softmax", axis=0)
    found = onnx_nb.compare_torch(module, x, model=proto)
    first = found.first_divergent()
    assert first is not None
    assert (first.name, first.op_type) == ("model → softmax()", "softmax")
    assert "aten.addmm" in found.drill(first.name)  # the module around it
    inside = found.drill("after")
    worst = inside.ranked("isolated")[0]
    assert worst.name == "aten._softmax"
    assert worst.source.startswith("test_compare_torch.py:")
    assert [point.isolated.rel_l2 < 1e-6 for point in inside.points if point.isolated and point is not worst] == [True]


def test_a_submodule_of_one_operation_matches_it_whatever_the_error() -> None:
    module, x, proto = changed("LayerNormalization", axis=-1, epsilon=10.0)
    found = onnx_nb.compare_torch(module, x, model=proto)
    inside = found.drill("norm")
    assert [point.name for point in inside.points] == ["aten.native_layer_norm"]
    assert inside.message.startswith("First differs at 'aten.native_layer_norm': its own error is")
    assert inside.message.endswith("Epsilon is 10 instead of 1e-05.")
    assert found["norm"].isolated is not None
    assert inside.points[0].isolated is not None
    assert inside.points[0].isolated.rel_l2 == pytest.approx(found["norm"].isolated.rel_l2)


def test_outputs_have_the_agreement_of_their_largest_class() -> None:
    module, x, proto = changed("Softmax", axis=0)
    point = onnx_nb.compare_torch(module, x, model=proto)["norm"]
    computed = onnx_nb.run(proto, [x.numpy()])[point.candidate]
    with torch.no_grad():
        expected = module(x).numpy()
    assert point.cumulative is not None
    assert point.cumulative.argmax_agreement == (computed.argmax(-1) == expected.argmax(-1)).mean()


def test_what_a_recording_cannot_do_without_its_module_is_an_error() -> None:
    _, _, model, recording = modules.exported("conv_bn", "torchscript")
    found = onnx_nb.compare_torch(recording, model=model)
    with pytest.raises(AlignmentError, match="only a recording of it"):
        found.drill("fc")
    with pytest.raises(AlignmentError, match=r"no output of Conv2d 'stem.0' has a tensor"):
        found.reproduce("stem.0")
    with pytest.raises(AlignmentError, match=r"'stem.0' is only in the reference: folded together with BatchNorm2d"):
        found["stem.0"]
    assert found["stem"].name == "stem.2"


def test_different_shapes_and_options_without_an_export_are_errors() -> None:
    module, kwargs, model, _ = modules.exported("conv", "torchscript")
    wide = {"x": torch.randn(2, 3, 16, 16)}
    with pytest.raises(FeedError, match="'x'"):
        onnx_nb.compare_torch(module, (), wide, model=model)
    feeds = {"x": np.zeros((2, 3, 12, 12), np.float32)}
    with pytest.raises(AlignmentError, match=r"'x' of .* is 2×3×12×12, but ConvNet got 2×3×16×16"):
        onnx_nb.compare_torch(module, (), wide, model=model, feeds=feeds)
    with pytest.raises(AlignmentError, match="options are for an export"):
        onnx_nb.compare_torch(module, (), kwargs, model=model, opset_version=18)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["bert", "conv_bn"])
def test_a_quantized_model_is_compared_by_the_alignment_of_its_export(name: str, kind: str, tmp_path: Path) -> None:
    quantization = importlib.import_module("onnxruntime.quantization")
    _, _, model, recording = modules.exported(name, "torchscript")
    alignment = align(recording, model)
    source, quantized = model.save(tmp_path / "model.onnx"), tmp_path / "quantized.onnx"

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.left = [feeds_of(recording, model)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "dynamic":
            quantization.quantize_dynamic(source, quantized)
        else:
            quantization.quantize_static(source, quantized, Reader(), quant_format=quantization.QuantFormat.QDQ)
    found = onnx_nb.compare_torch(recording, model=quantized, alignment=alignment)
    there = {output for node in onnx.load(quantized).graph.node for output in node.output}
    surviving = {match.tensor for match in alignment.matched if match.tensor in there}
    assert len(found) >= 0.95 * len(surviving)
    # eight bits, and none is the value of another place
    assert all(point.isolated is not None and point.isolated.rel_l2 < 0.05 for point in found.points)
    assert any(point.cumulative is not None and point.cumulative.rel_l2 > 1e-3 for point in found.points)
    rounded = {each.name for each in found.quantizers if each.role == "activation"}
    assert len(rounded) >= 0.5 * len(surviving) if kind == "static" else rounded
    if (name, kind) == ("conv_bn", "static"):
        proto = onnx.load(quantized)
        most = max((each for each in found.quantizers if each.role == "activation"), key=lambda each: each.count)
        scale = next(node.input[1] for node in proto.graph.node if node.name == most.node)
        tensor = next(each for each in proto.graph.initializer if each.name == scale)
        tensor.CopyFrom(onnx.numpy_helper.from_array(4 * onnx.numpy_helper.to_array(tensor), scale))
        wrong = onnx_nb.compare_torch(recording, model=proto, alignment=alignment)
        assert most.name in [each.name for each in wrong.quantizers if each.fault == "coarse"]


def test_float16_overflow_is_reported_once_without_warnings(recwarn: pytest.WarningsRecorder) -> None:
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).eval(), 1e5 * torch.randn(3, 4)
    model = onnx_nb.export(module, x, exporter="torchscript")
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    half = float16.convert_float_to_float16(model.to_proto(), keep_io_types=True)
    recwarn.clear()
    found = onnx_nb.compare_torch(module, x, model=half, alignment=onnx_nb.align(onnx_nb.record(module, x), model))
    assert "NaN or infinite on one side only" in found.message
    assert not [each for each in recwarn if each.category is RuntimeWarning]


@pytest.mark.parametrize("how", list(modules.EXPORTS))
def test_a_residual_sum_is_a_point_and_its_fault_is_found(how: str) -> None:
    module, kwargs, model, _ = modules.exported("conv_bn", how)
    recording = onnx_nb.record(module, (), kwargs, functions=True)
    fault = Fault("conv_bn", how)
    fault.alignment = align(recording, model)
    fault.graph.initializer.append(numpy_helper.from_array(np.array(1.05, np.float32), "too much"))
    fault.insert(fault.alignment["blocks.1 → add()"].tensor, ("Mul", {"more": ["too much"]}))
    found = onnx_nb.compare_torch(recording, model=fault.proto, alignment=fault.alignment)
    first = found.first_divergent()
    assert first is not None
    assert (first.name, first.op_type, first.source[:11]) == ("blocks.1 → add()", "add", "modules.py:")
    assert found.ranked("isolated")[0] is first
    # and where the fault is in the model itself that is aligned, no other tensor is taken for the sum
    again = onnx_nb.compare_torch(module, (), kwargs, model=fault.proto)
    worst = again.first_divergent()
    assert worst is not None
    assert worst.scope in ("blocks.1", "blocks.1.act")
    assert onnx_nb.compare_torch(module, (), kwargs, model=model).first_divergent() is None


class Attributes(torch.nn.Module):
    """Modules whose attributes an operator of ONNX has as well."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.conv = nn.Conv2d(4, 8, 3, padding=(1, 2), stride=2, groups=2)
        self.group = nn.GroupNorm(2, 8, eps=1e-3)
        self.leaky, self.elu, self.gelu = nn.LeakyReLU(0.2), nn.ELU(0.5), nn.GELU("tanh")
        self.maximum, self.average = nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2, 1, 1)
        self.layer, self.softmax = nn.LayerNorm(6, eps=1e-12), nn.Softmax(1)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.gelu(self.elu(self.leaky(self.group(self.conv(x)))))
        return self.softmax(self.layer(self.average(self.maximum(x))))


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_only_the_attribute_that_differs_is_named(exporter: str) -> None:
    torch.manual_seed(0)
    module, x = Attributes().eval(), torch.randn(2, 4, 16, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing makes constants of shapes
        model = onnx_nb.export(module, x, exporter=exporter)
    good = onnx_nb.compare_torch(module, x, model=model)
    assert good.first_divergent() is None
    assert not any(point.difference for point in good.points)
    faults: dict[tuple[str, str, str], tuple[Any, str]] = {
        ("layer", "LayerNormalization", "epsilon"): (1e-2, "epsilon is 0.01 instead of 1e-12"),
        ("leaky", "LeakyRelu", "alpha"): (0.1, "alpha is 0.1 instead of 0.2"),
        ("softmax", "Softmax", "axis"): (3, "axis is 3 instead of 1"),
        ("gelu", "Gelu", "approximate"): ("none", "approximate is none instead of tanh"),
        ("elu", "Elu", "alpha"): (1.0, "alpha is 1 instead of 0.5"),
    }
    said = 0
    for (path, op, name), (value, text) in faults.items():
        proto = model.to_proto()
        node = next((node for node in proto.graph.node if node.op_type == op), None)
        if node is None:  # this exporter writes it as several nodes
            continue
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])
        found = onnx_nb.compare_torch(module, x, model=proto)
        assert {point.name: point.difference for point in found.points if point.difference} == {path: text}
        first = found.first_divergent()
        assert first is not None
        assert (first.name, first.difference) == (path, text)
        assert found.message.endswith(f" {text[:1].upper()}{text[1:]}.")
        said += 1
    assert said >= 4
    pool = torch.nn.Sequential(torch.nn.MaxPool2d(3, 2, 1)).eval()
    proto = onnx_nb.export(pool, x, exporter=exporter).to_proto()
    node = next(node for node in proto.graph.node if node.op_type == "MaxPool")
    next(attribute for attribute in node.attribute if attribute.name == "pads").ints[:] = [0, 0, 0, 0]
    with pytest.raises(AlignmentError, match=r"'0' is .* In its node, pads is 0×0×0×0 instead of 1×1×1×1"):
        onnx_nb.compare_torch(pool, x, model=proto)


@pytest.mark.parametrize("kind", ["float16", "optimized"])
@pytest.mark.parametrize("name", ["bert", "conv_bn"])
def test_optimized_and_float16_models_are_compared_by_the_alignment_of_their_export(
    name: str, kind: str, tmp_path: Path
) -> None:
    module, kwargs, model, _ = modules.exported(name, "torchscript")
    recording = onnx_nb.record(module, (), kwargs, functions=True)
    alignment = onnx_nb.types.Alignment.load(align(recording, model).save(tmp_path / "alignment.json"))
    if kind == "float16":
        float16 = importlib.import_module("onnxruntime.transformers.float16")
        other = float16.convert_float_to_float16(model.to_proto())
    else:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        onnxruntime.InferenceSession(model.to_proto().SerializeToString(), options, providers=["CPUExecutionProvider"])
        other = onnx.load(tmp_path / "optimized.onnx")
    for node in other.graph.node:  # as most tools leave it
        del node.metadata_props[:]
    found = onnx_nb.compare_torch(module, (), kwargs, model=other, alignment=alignment)
    there = {output for node in other.graph.node for output in node.output}
    surviving = {match.tensor for match in alignment.matched if match.tensor in there}
    assert {point.candidate for point in found.points} == surviving
    assert len(surviving) >= 8
    bound = 1e-2 if kind == "float16" else 1e-5
    assert all(point.cumulative is not None and point.cumulative.rel_l2 < bound for point in found.points)
    assert all(point.isolated is not None and point.isolated.rel_l2 < bound for point in found.points)


def test_errors_of_bad_input_name_what_to_do() -> None:
    module, kwargs, model, _ = modules.exported("conv", "torchscript")
    _, tokens, foreign, _ = modules.exported("bert", "torchscript")
    with pytest.raises(AlignmentError, match="it is the export of another module"):
        onnx_nb.compare_torch(module, (), kwargs, model=foreign, feeds={n: t.numpy() for n, t in tokens.items()})
    with pytest.raises(AlignmentError, match=r"no tensor of BertModel is in the alignment\. Give the alignment of the"):
        onnx_nb.compare_torch(module, (), kwargs, model=foreign, alignment=onnx_nb.types.Alignment(()))
    with pytest.raises(FeedError, match="'pixels'"):
        onnx_nb.compare_torch(module, (), kwargs, model=model, feeds={"pixels": kwargs["x"].numpy()})
    with pytest.raises(onnx_nb.OnnxNbError, match=r"has no 'NoSuchProvider' here.* It has: .*CPUExecutionProvider"):
        onnx_nb.compare_torch(module, (), kwargs, model=model, providers=["NoSuchProvider"])
    training = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    x = torch.randn(3, 4)
    small = onnx_nb.export(training.eval(), x, exporter="torchscript")
    training.train()
    with pytest.warns(UserWarning, match=r"in train mode: Dropout '1' .* Call module\.eval\(\) first"):
        onnx_nb.compare_torch(training, x, model=small)


def work(folder: Path) -> dict[str, Callable[[Any], object]]:
    """Everything that tells how far it is, and takes its time."""
    module, kwargs, model, _ = modules.exported("bert", "torchscript")
    found = onnx_nb.compare_torch(module, (), kwargs, model=model)
    recording = onnx_nb.record(module, (), kwargs)
    return {
        "record": lambda tell: onnx_nb.record(module, (), kwargs, repeat=True, progress=tell),
        "align": lambda tell: align(onnx_nb.record(module, (), kwargs, functions=True), model, progress=tell),
        "compare_torch": lambda tell: onnx_nb.compare_torch(
            module, (), kwargs, model=model, memory_limit=50_000, progress=tell
        ),
        "recorded": lambda tell: onnx_nb.compare_torch(recording, model=model, memory_limit=50_000, progress=tell),
        "drill": lambda tell: found.drill(LAYER, progress=tell),
        "reproduce": lambda tell: found.reproduce(LAYER, folder / "case", progress=tell),
        "save": lambda tell: found.save(folder / "comparison.npz", progress=tell),
        "page": lambda tell: onnx_nb.ComparisonPanel(found).to_html(folder / "page.html", progress=tell),
    }


@pytest.mark.parametrize("name", ["record", "align", "compare_torch", "recorded", "drill", "reproduce", "save", "page"])
def test_progress_is_reported_and_its_exception_ends_the_work_cleanly(name: str, tmp_path: Path) -> None:
    module, kwargs, _, _ = modules.exported("bert", "torchscript")
    run = work(tmp_path)[name]
    reported: list[tuple[float, str]] = []
    run(lambda done, what: reported.append((done, what)))
    parts = [done for done, _ in reported]
    assert len(parts) >= 2
    assert parts == sorted(parts)
    assert parts[0] >= 0
    assert parts[-1] <= 1
    assert all(what for _, what in reported)
    written = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    class Enough(BaseException):
        pass

    for last in sorted({0, len(reported) // 2, len(reported) - 1}):
        calls = 0

        def stop(_done: float, _what: str, last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls > last:
                raise Enough

        with pytest.raises(Enough):
            run(stop)
        assert calls == last + 1
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
        assert torch.backends.mha.get_fastpath_enabled()
        now = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        assert {file.name for file in now} == {file.name for file in written}
    with torch.no_grad():
        module(**kwargs)


def test_every_run_uses_the_given_providers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = "AzureExecutionProvider"
    if other not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has no provider besides the CPU")
    module, kwargs, model, recording = modules.exported("bert", "torchscript")
    release_arena()  # once in a process this makes a session on the CPU
    asked: list[Any] = []

    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, *args: Any, providers: Any = None, **options: Any) -> None:
            asked.append(providers)
            super().__init__(*args, providers=providers, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    found = onnx_nb.compare_torch(module, (), kwargs, model=model, providers=[other], memory_limit=50_000)
    assert found.first_divergent() is None
    inside = found.drill(LAYER)
    assert all(point.isolated is not None and point.isolated.rel_l2 < 1e-5 for point in inside.points)
    part = found.reproduce(LAYER, tmp_path)
    assert all(errors.rel_l2 < 1e-5 for errors in part.errors().values())
    onnx_nb.compare_torch(recording, model=model, providers=other)
    onnx_nb.compare(model, model, feeds_of(recording, model), providers=[other])
    align(onnx_nb.record(module, (), kwargs, functions=True), onnx_nb.load(model, providers=[other]))
    assert len(asked) >= 8
    assert all(providers == [other] for providers in asked)
    assert f"providers=['{other}']" in (tmp_path / "run.py").read_text()


def test_a_provider_that_does_not_start_is_an_error_without_fallback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, kwargs, model, recording = modules.exported("conv", "torchscript")
    known = [*onnxruntime.get_available_providers(), "CUDAExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: known)
    options: dict[str, Any] = {"providers": ["CUDAExecutionProvider"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnxruntime's own
        with pytest.raises(onnx_nb.OnnxNbError, match="'CUDAExecutionProvider' could not be started"):
            onnx_nb.compare_torch(module, (), kwargs, model=model, **options)
        with pytest.raises(onnx_nb.OnnxNbError, match="'CUDAExecutionProvider' could not be started"):
            onnx_nb.compare(model, model, feeds_of(recording, model), **options)


def test_a_recording_is_compared_without_the_module() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).eval()
    args = (torch.randn(3, 8, generator=torch.Generator().manual_seed(0)),)
    recording = onnx_nb.record(module, args)
    c = onnx_nb.compare_torch(recording, model=onnx_nb.export(module, args))
    assert {"0", "1", "2"} <= set(c)
    assert c["2"].cumulative is not None
    assert c["2"].cumulative.rel_l2 < 1e-6
    with pytest.raises(AlignmentError, match="Give model="):
        onnx_nb.compare_torch(recording)
    with pytest.raises(AlignmentError, match="arguments of its own"):
        onnx_nb.compare_torch(recording, args, model=onnx_nb.export(module, args))


def two_layers() -> tuple[torch.nn.Module, list[tuple[torch.Tensor, ...]]]:
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).eval()
    random = torch.Generator().manual_seed(0)
    return module, [(torch.randn(3, 8, generator=random),) for _ in range(3)]


@pytest.mark.parametrize(
    "workers", [None, concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor]
)
def test_several_arguments_merge_on_any_executor(workers: Any) -> None:
    module, (first, *more) = two_layers()
    model = onnx_nb.export(module, first, exporter="torchscript")
    apart = [onnx_nb.compare_torch(module, args, model=model) for args in (first, *more)]
    with contextlib.nullcontext() if workers is None else workers(2) as executor:
        c = onnx_nb.compare_torch(module, first, model=model, more_args=more, executor=executor)
    assert c.feeds == 3
    merged = apart[0].merge(apart[1]).merge(apart[2])
    assert str(c.rows()) == str(merged.rows())
    recordings = [onnx_nb.record(module, args, functions=True) for args in (first, *more)]
    again = onnx_nb.compare_torch(recordings[0], model=model, more_args=recordings[1:])
    assert str(again.rows()) == str(c.rows())


def test_further_arguments_have_to_make_the_same_calls() -> None:
    class Branching(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.often, self.seldom = torch.nn.Linear(8, 8), torch.nn.Tanh()

        def forward(self, x: torch.Tensor, more: torch.Tensor | None = None) -> torch.Tensor:
            x = self.often(x)
            return x if more is None else self.seldom(x) + more

    module, small = Branching().eval(), torch.ones(2, 8)
    model = onnx_nb.export(module, small, exporter="torchscript")
    with pytest.raises(AlignmentError, match=r"more_args\[0\] leads to other calls in Branching"):
        onnx_nb.compare_torch(module, small, model=model, more_args=[(small, small)])
    with pytest.raises(AlignmentError, match=r"more_args\[0\] is Tensor, not a tuple"):
        onnx_nb.compare_torch(module, small, model=model, more_args=[small])
    with pytest.raises(AlignmentError, match="of the first arguments only"):
        onnx_nb.compare_torch(
            module, small, model=model, feeds={"x": np.ones((2, 8), np.float32)}, more_args=[(small,)]
        )
