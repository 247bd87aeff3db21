"""Modules that give dicts, tuples and nothing, change tensors in place, repeat, raise, hold NaN or nothing at all."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import onnx_nb
from onnx_nb import AlignmentError, ExportError

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import nn


class Holder(nn.Module):
    """Has a linear layer and another module."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.inner = inner if inner is not None else nn.Identity()


class GivesDict(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {"y": x * 2, "z": [x.relu(), (x.tanh(),)], "text": "some", "none": None, "number": 3}


class Dicts(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        found = self.inner(self.lin(x))
        return {"out": found["y"] + 1, "none": None, "list": [found["z"][0], found["z"][1]]}


@dataclass
class Output:
    a: torch.Tensor
    b: torch.Tensor | None = None


class GivesDataclass(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return Output(x.exp(), x.sigmoid())


class Dataclasses(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        found = self.inner(self.lin(x))
        return found.a - found.b


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


class Named(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        return Pair(self.lin(x), x + 1)


class InPlace(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.lin(x)
        z = y + 1
        self.inner(y)
        y.mul_(2)
        y[:, :2] = 0
        return y + z


class Repeats(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        for _ in range(12):
            x = self.lin(x).tanh()
        return x


class GivesBools(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x > 0, x.argmax(-1)


class Bools(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        mask, places = self.inner(self.lin(x))
        return torch.where(mask, x, -x), places, mask


class Log(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.log()


class NaNs(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(self.lin(x)) + 1


class Empty(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        return self.lin(x), self.inner(x[:0])


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.mean()


class Scalar(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(self.lin(x))


class OnlyKeywords(Holder):
    def forward(self, *, x: torch.Tensor, scale: torch.Tensor | None = None) -> Any:
        return self.lin(x) if scale is None else self.lin(x) * scale


class Wrapper(nn.Module):
    """As DataParallel has it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class Bad(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        self.lin(x)
        raise RuntimeError("no")


class Recovers(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.lin(x)
        try:
            self.inner(y)
        except RuntimeError:
            return y * 2


class Layers(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(self.lin(x)).relu()


torch.manual_seed(0)  # of some weights the logarithm below is all NaN, or none
X = torch.linspace(-1, 2, 12).reshape(3, 4)
# the module, its arguments, and which of its calls have a point
ODD: dict[str, tuple[nn.Module, dict[str, torch.Tensor], set[str]]] = {
    "dicts": (Dicts(GivesDict()), {"x": X}, {"lin", "inner → y", "inner → z.0", "inner → z.1.0", "model → out"}),
    "dataclasses": (Dataclasses(GivesDataclass()), {"x": X}, {"lin", "inner → a", "inner → b", "model"}),
    "named tuples": (Named(), {"x": X}, {"lin", "model → b"}),
    "in place": (InPlace(nn.ReLU(inplace=True)), {"x": X}, {"lin", "inner", "model"}),
    "repeats": (Repeats(), {"x": X}, {"lin", "lin#12", "model"}),
    "bools": (Bools(GivesBools()), {"x": X}, {"lin", "inner → 0", "inner → 1", "model → 0"}),
    "NaN": (NaNs(Log()), {"x": X}, {"lin", "inner", "model"}),
    "empty": (Empty(nn.Linear(4, 2)), {"x": X}, {"lin", "inner"}),
    "scalar": (Scalar(Mean()), {"x": X}, {"lin", "inner"}),
    "keywords": (OnlyKeywords(), {"x": X, "scale": torch.tensor(2.0)}, {"lin", "model"}),
    "wrapper": (Wrapper(Layers(nn.LayerNorm(4))), {"x": X}, {"module.lin", "module.inner", "module"}),
    "float16": (Layers(nn.LayerNorm(4)).half(), {"x": X.half()}, {"lin", "inner", "model"}),
    "float64": (Layers(nn.LayerNorm(4)).double(), {"x": X.double()}, {"lin", "inner", "model"}),
}


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("name", list(ODD))
def test_outputs_of_every_kind_are_compared(name: str, exporter: str) -> None:
    module, kwargs, wanted = ODD[name]
    module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing makes constants of shapes
        found = onnx_nb.compare_torch(module, (), kwargs, exporter=exporter)
    assert wanted <= set(found) | {match.name for match in found.alignment.matched}  # type: ignore[union-attr]
    assert not found.unmatched
    bound = 2e-3 if name == "float16" else 1e-6
    for point in found.points:
        for errors in (point.cumulative, point.isolated):
            assert errors is not None
            assert not errors.mismatches
            assert errors.is_equal or errors.rel_l2 < bound
    if name == "NaN":
        point = found["inner"]
        assert point.cumulative is not None
        assert 0 < point.cumulative.finite < point.cumulative.count
    assert found.first_divergent() is None
    for path in ("lin", "inner"):
        if path in found and found[path].name == path:
            assert len(found.drill(path)) >= 1
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def test_a_call_whose_error_was_caught_is_reported_as_not_exported() -> None:
    module = Recovers(Bad()).eval()
    found = onnx_nb.compare_torch(module, X, exporter="torchscript")
    assert set(found) == {"lin", "model"}
    assert [(missing.name, "not read" in missing.reason) for missing in found.unmatched] == [("inner.lin", True)]


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.arange(4.0))

    def forward(self) -> Any:
        return torch.mul(self.get_buffer("k"), 2)


class Adds(Holder):
    def forward(self, x: torch.Tensor) -> Any:
        return self.lin(x) + self.inner()


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_constant_output_is_a_point_without_operations(exporter: str) -> None:
    found = onnx_nb.compare_torch(Adds(Constant()).eval(), X, exporter=exporter)
    assert found["inner"].matched == "constant"
    np.testing.assert_array_equal(found.model.tensor(found["inner"].candidate), np.arange(4) * 2)  # type: ignore[union-attr]
    with pytest.raises(
        AlignmentError, match=r"the output of Constant 'inner' was computed in advance: it is the weight"
    ):
        found.drill("inner")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_or_a_failing_hook_leaves_the_module_unchanged(error: type[BaseException]) -> None:
    module = Layers(nn.LayerNorm(4)).eval()
    found = onnx_nb.compare_torch(module, X, exporter="torchscript")

    def raises(*_: Any) -> None:
        raise error("stop")

    handle = module.inner.register_forward_hook(raises)
    for run in (lambda: onnx_nb.record(module, X, functions=True), lambda: found.drill("model")):
        with pytest.raises(error, match="stop"):
            run()
    handle.remove()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(n):
            x = 2 * x
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_exported_with_its_loop() -> None:
    model = onnx_nb.export(torch.jit.script(Doubles()), (X, torch.tensor(2)), exporter="torchscript")
    assert [node.op_type for node in model.proto.graph.node][-1] == "Loop"
    (doubled,) = onnx_nb.run(model, [X.numpy(), np.array(5)]).values()
    assert np.array_equal(doubled, 32 * X.numpy())


@pytest.mark.parametrize(("theirs", "ours"), [("dynamo", "exporter="), ("f", r"model\.save\(path\)")])
def test_a_keyword_of_torchs_export_is_led_to_its_counterpart(theirs: str, ours: str) -> None:
    options: dict[str, Any] = {theirs: False}
    with pytest.raises(ExportError, match=rf"takes no {theirs}=.*Use {ours} instead"):
        onnx_nb.export(torch.nn.Linear(2, 3), torch.ones(1, 2), **options)
