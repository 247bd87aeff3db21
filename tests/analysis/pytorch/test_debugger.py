"""The Debugger as it is known from the tutorials, with both exporters."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnx_nb import AlignmentError, Debugger, FeedError, export

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, debugger: Debugger) -> None:
        super().__init__()
        self.debugger = debugger
        self.convs1 = nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1), nn.Conv2d(3, 3, 3, 1, 1))
        self.convs2 = nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1), nn.GELU())

    def forward(self, x: torch.Tensor, late: torch.Tensor) -> Any:
        x = self.debugger.debug(self.convs1(x), "x_0")
        x = self.debugger.debug(self.convs2(x), "x_1")
        return self.debugger.debug(x.sum((2, 3)), "x_2") + late


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_the_debugger_finds_where_the_model_was_changed(
    exporter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    debugger = Debugger()
    module, x, late = Model(debugger).eval(), torch.randn(1, 3, 8, 8), torch.ones(1, 3)
    expected = module(x, late)
    assert list(debugger.torch_value) == ["x_0", "x_1", "x_2"]
    np.testing.assert_array_equal(debugger.torch_value["x_0"], module.convs1(x).detach().numpy())
    exported = export(module, (x, late), exporter=exporter).save(tmp_path / "before_debug.onnx")
    np.testing.assert_array_equal(expected.detach().numpy(), module(x, late).detach().numpy())
    proto = onnx.load(exported)
    assert sum((node.domain, node.op_type) == ("my", "Debug") for node in proto.graph.node) == 3
    # as a wrong optimization would
    last = [node for node in proto.graph.node if node.op_type == "Conv"][-1]
    weight = next(tensor for tensor in proto.graph.initializer if tensor.name == last.input[1])
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    onnx.save(proto, exported)

    debugger.extract_debug_model(exported, tmp_path / "after_debug.onnx")
    assert debugger.output_debug_name == ["x_0", "x_1", "x_2"]
    debugging = onnx.load(tmp_path / "after_debug.onnx")
    onnx.checker.check_model(debugging, full_check=True)
    assert [port.name for port in debugging.graph.input] == ["x"]
    debugger.run_debug_model({"x": x.numpy(), "late": late.numpy()}, tmp_path / "after_debug.onnx")
    debugger.print_debug_result()
    lines = dict(line.split(" MSE: ") for line in capsys.readouterr().out.splitlines())
    for name in ("x_0", "x_1", "x_2"):
        mse = float(np.mean((debugger.torch_value[name].astype(float) - debugger.onnx_value[name]) ** 2))
        assert float(lines[name]) == pytest.approx(mse, rel=5e-3)  # three digits are printed
    assert float(lines["x_0"]) < 1e-10
    assert float(lines["x_1"]) > 1e-6
    first = debugger.comparison().first_divergent()
    assert first is not None
    assert first.name == "x_1"
    assert first.source.startswith("test_debugger.py:")
    with pytest.raises(FeedError):
        debugger.run_debug_model({"y": x.numpy()}, tmp_path / "after_debug.onnx")


def test_missing_values_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    debugger = Debugger()
    with pytest.raises(AlignmentError, match="no tensor has values of both"):
        debugger.comparison()
    model = export(nn.ReLU().eval(), torch.ones(1), exporter="torchscript")
    with pytest.raises(AlignmentError, match="has no Debug nodes"):
        debugger.extract_debug_model(model, tmp_path / "debug.onnx")
    with pytest.raises(TypeError, match="the name of a tensor must be a string, not int"):
        debugger.debug(torch.ones(1), 3)  # type: ignore[arg-type]
    # the default exporter runs nothing in torch
    exported = export(Model(debugger).eval(), (torch.ones(1, 3, 4, 4), torch.ones(1, 3)))
    assert not debugger.torch_value
    debugger.extract_debug_model(exported, tmp_path / "debug.onnx")
    debugger.run_debug_model({"x": np.ones((1, 3, 4, 4), np.float32)}, tmp_path / "debug.onnx")
    debugger.print_debug_result()
    assert capsys.readouterr().out.splitlines()[0] == "x_0: run the module in torch first, module(x)"
    with pytest.raises(AlignmentError, match="is not the model that extract_debug_model wrote last"):
        debugger.run_debug_model({"x": np.ones(1, np.float32)}, model)
