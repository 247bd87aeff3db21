"""Faults are blamed on their own operation or on a region that holds it, and operations that are right are not."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_nb

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> Any:
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, 4, 8).transpose(1, 2) for part in (self.q(x), self.k(x), self.v(x))
        )
        made = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(made.transpose(1, 2).reshape(batch, length, 32))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.last = nn.LayerNorm(32), Attention(), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(x + self.attn(self.norm(x)))


@functools.cache
def exported(exporter: str, length: int = 8) -> tuple[nn.Module, torch.Tensor, onnx_nb.Model]:
    """Return the module, its argument, and its export; with length 8, keys have the shape of transposed keys."""
    torch.manual_seed(0)
    module, x = Net().eval(), torch.randn(1, length, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module, x, onnx_nb.export(module, x, exporter=exporter)


def node_of(proto: onnx.ModelProto, op: str, place: int = 0) -> onnx.NodeProto:
    found: list[onnx.NodeProto] = [node for node in proto.graph.node if node.op_type == op]
    return found[place]


def broken(exporter: str, edit: Callable[[onnx.ModelProto], None], length: int = 8) -> onnx_nb.types.TorchComparison:
    module, x, model = exported(exporter, length)
    proto = model.to_proto()
    del proto.graph.value_info[:]
    edit(proto)
    return onnx_nb.compare_torch(module, x, model=proto)


def softmax(proto: onnx.ModelProto) -> None:
    next(each for each in node_of(proto, "Softmax").attribute if each.name == "axis").i = -2


def without_sum(proto: onnx.ModelProto) -> None:
    node = node_of(proto, "Add", -1)
    node.op_type = "Identity"
    del node.input[0]


def bias(proto: onnx.ModelProto) -> None:
    node = next(node for node in proto.graph.node if node.op_type in ("Add", "Gemm"))
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    tensor = next(weights[name] for name in node.input if name in weights and len(weights[name].dims) == 1)
    array = numpy_helper.to_array(tensor).copy()
    array[3] += 1
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


@pytest.mark.parametrize("length", [8, 5])
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_keys_are_not_taken_for_transposed_keys(exporter: str, length: int) -> None:
    module, x, model = exported(exporter, length)
    found = onnx_nb.compare_torch(module, x, model=model)
    assert found.first_divergent() is None
    assert all(point.isolated is not None and point.isolated.rel_l2 < 1e-6 for point in found.points)
    assert "attn → scaled_dot_product_attention()" in found
    assert not found["attn.q"].between


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_softmax_inside_attention_is_blamed_and_not_the_layer_behind_it(exporter: str) -> None:
    found = broken(exporter, softmax)
    first = found.first_divergent()
    assert first is not None
    assert first.name == "attn → scaled_dot_product_attention()"
    assert found.ranked("isolated")[0] is first
    inside = found.drill("attn")
    worst = inside.first_divergent()
    assert worst is not None
    assert "softmax" in worst.name
    assert found["attn.out"].candidate in inside


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_missing_sum_is_between_its_operands_and_its_reader(exporter: str) -> None:
    found = broken(exporter, without_sum)
    first = found.first_divergent()
    assert first is not None
    assert {"x", "attn.out"} <= set(first.between)
    assert found.message.startswith("First differs somewhere between ")
    assert all(f"'{name}'" in found.message for name in first.between)
    assert found.ranked("isolated")[0] is first
    inside = found.drill("")
    worst = inside.first_divergent()
    assert worst is not None
    assert worst.name in ("aten.add", "aten.native_layer_norm#2")


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_drill_has_the_operation_that_differs_and_repeats_what_is_known(exporter: str) -> None:
    found = broken(exporter, bias)
    first = found.first_divergent()
    assert first is not None
    assert first.name == "attn.q"
    inside = found.drill("attn.q")
    worst = inside.points[-1]
    assert (worst.name, worst.candidate) == ("aten.addmm", first.candidate)
    assert worst.difference == first.difference == "bias differs in 1 of 32 values, by at most 1"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1, self.b, self.n2 = nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.n1(x + self.a(x))
        return self.n2(x + self.b(x).tanh())


class Repeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.block = nn.Linear(16, 32), Block()

    def forward(self, x: torch.Tensor) -> Any:
        x = self.inp(x)
        for _ in range(4):
            x = self.block(x)
        return x


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_calls_of_a_shared_module_are_paired_in_order_after_a_fault(exporter: str) -> None:
    torch.manual_seed(0)
    module, x = Repeats().eval(), torch.randn(1, 16, 16)
    proto = onnx_nb.export(module, x, exporter=exporter).to_proto()
    name = next(node for node in proto.graph.node if node.op_type in ("MatMul", "Gemm")).input[1]
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[np.abs(array).argmax()] *= -1
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    found = onnx_nb.compare_torch(module, x, model=proto)
    first = found.first_divergent()
    assert first is not None
    assert first.name == "inp"
    others = [point for point in found.points if point is not first]
    assert all(point.isolated is not None and point.isolated.rel_l2 < 1e-6 for point in others)
    nodes = [node.name for node in proto.graph.node]
    calls = [found[f"block.b{'' if number == 1 else f'#{number}'}"] for number in range(1, 5)]
    order = [nodes.index(point.node) for point in calls]
    assert order == sorted(set(order))
