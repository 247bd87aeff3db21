"""Recording and exporting torch modules, against what torch itself gives."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import onnx_nb
from onnx_nb import AlignmentError, ExportError, export, record

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import nn

from onnx_nb.analysis.run.feeds import to_numpy

EXPORTERS = ("dynamo", "torchscript")


@dataclass
class Made:
    first: torch.Tensor
    nothing: None
    more: dict[str, Any]


class Structured(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> Made:
        return Made(x + 1, None, {"pair": (x + 2, [x if scale is None else x * scale]), "number": 3})


class Tangled(nn.Module):
    """A shared, an aliased and a repeated module, and one that writes over its input."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.alias = self.lin
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.out = Structured()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lin(x)
        z = self.act(y)
        z = self.drop(self.alias(z))
        made: Made = self.out(z, scale=x)
        return made.first.add(y)


def untouched(module: nn.Module) -> bool:
    kept = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    return not any(getattr(part, name) for part in module.modules() for name in kept) and "forward" not in vars(module)


def test_a_recording_holds_the_inputs_and_outputs_of_each_call() -> None:
    torch.manual_seed(0)
    module, x = Tangled().eval(), torch.randn(2, 3)
    recording = record(module, x)
    assert [(call.name, call.cls, call.parent) for call in recording.calls] == [
        ("model", "Tangled", -1),
        ("lin", "Linear", 0),
        ("act", "ReLU", 0),
        ("lin#2", "Linear", 0),
        ("drop", "Dropout", 0),
        ("out", "Structured", 0),
    ]
    with torch.no_grad():
        y = module.lin(x)
        z = module.lin(torch.relu(y))
    # what the Linear gave was overwritten by the ReLU afterwards
    np.testing.assert_array_equal(recording["lin"], y.numpy())
    np.testing.assert_array_equal(recording["act"], torch.relu(y).numpy())
    np.testing.assert_array_equal(recording["lin#2"], z.numpy())
    np.testing.assert_array_equal(recording["alias"], y.numpy())
    out = recording.calls[5]
    assert [slot.label for slot in out.inputs] == ["x", "scale"]
    assert [slot.label for slot in out.outputs] == ["first", "more.pair.0", "more.pair.1.0"]
    np.testing.assert_array_equal(recording.value(out.outputs[2].value), (z * x).detach().numpy())
    # Dropout in eval mode hands on what it got
    assert recording.calls[4].outputs[0].value == recording.calls[3].outputs[0].value
    np.testing.assert_array_equal(recording["model"], (z + 1 + torch.relu(y)).numpy())
    assert untouched(module)


def test_values_beyond_the_limit_are_in_files(tmp_path: Any) -> None:
    module, x = nn.Sequential(nn.Linear(100, 100), nn.ReLU()).eval(), torch.randn(20, 100)
    recording = record(module, x, memory_limit=10_000)
    assert isinstance(recording["0"], np.memmap)
    np.testing.assert_array_equal(recording["1"], module(x).detach().numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.bool, torch.complex64])
def test_arrays_equal_tensors_of_every_type(dtype: torch.dtype) -> None:
    tensor = torch.tensor([0.0, 1.5, -2.25, 0.75]).to(dtype)
    array = to_numpy(tensor.reshape(2, 2).T)
    kind = np.complex64 if dtype == torch.complex64 else np.float32
    wide = tensor.to(torch.complex64 if dtype == torch.complex64 else torch.float32)
    np.testing.assert_array_equal(array.astype(kind), wide.numpy().reshape(2, 2).T)


def test_a_module_that_raises_is_left_unchanged() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"no such thing as {x.shape}")

    module = nn.Sequential(nn.ReLU(), nn.Sequential(Raises())).eval()
    with pytest.raises(ValueError, match="no such thing") as caught:
        record(module, torch.ones(1))
    assert caught.value.__notes__ == ["raised in Raises '1.0'"]
    assert untouched(module)


def test_warnings_name_modules_in_train_mode_and_random_ones() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout(0.5), nn.ReLU()), nn.BatchNorm1d(4))
    with pytest.warns(UserWarning, match=r"train mode: Dropout '1.0', BatchNorm1d '2'"):
        record(module, torch.randn(8, 4))
    module.eval()
    assert record(module, torch.randn(8, 4), repeat=True).unstable == ()

    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add(torch.rand_like(x))

    noisy = nn.Sequential(nn.Sequential(nn.ReLU(), Noise()), nn.ReLU()).eval()
    with pytest.warns(UserWarning, match=r"'0.1' gave other values in a second run"):
        recording = record(noisy, torch.ones(4), repeat=True)
    assert recording.unstable == ("0.1",)
    assert recording.random == ("0.1",)
    with pytest.warns(UserWarning, match=r"Noise '0.1' drew random numbers"):
        assert record(noisy, torch.ones(4)).random == ("0.1",)


def test_randomness_belongs_to_the_forward_that_draws_it() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> Any:
            x = self.inner(x)
            x = nn.functional.dropout(x, 0.5, training=True)
            return self.drop(self.inner(x))

    module = nn.Sequential(Outer(), nn.ReLU()).eval()
    with pytest.warns(UserWarning, match=r"Outer '0' drew random numbers"):
        assert record(module, torch.ones(2, 4)).random == ("0",)
    module.train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert record(module, torch.ones(2, 4)).random == ("0", "0.drop")
    said = [str(one.message) for one in caught]
    assert len(said) == 2
    assert "Dropout '0.drop' does not compute" in said[0]
    assert "Outer '0' drew random numbers" in said[1]
    assert "drop'" not in said[1]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: self.a(y) + 1, lambda y: self.b(y) - 1, (x,)).relu()


def test_branches_of_torch_cond_are_recorded_as_a_whole_and_exported() -> None:
    module, x = Branches().eval(), torch.randn(3, 4)
    recording = record(module, x, functions=True)
    with torch.no_grad():
        np.testing.assert_array_equal(recording["model"], module(x).numpy())
    model = export(module, x)
    assert [node.op_type for node in model.proto.graph.node].count("If") == 1
    found = onnx_nb.compare_torch(module, x, model=model)
    assert found.first_divergent() is None
    assert [point.name for point in found.drill("model").points][-1] == "aten.relu"


def test_a_scripted_submodule_is_not_recorded_and_a_scripted_module_is_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to drop it
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    module = nn.Sequential(nn.Linear(4, 4), scripted, nn.ReLU()).eval()
    assert [call.path for call in record(module, torch.ones(2, 4)).calls] == ["", "0", "2"]
    with pytest.raises(TypeError, match=r"is scripted by torch\.jit, and what it calls cannot be seen"):
        record(scripted, torch.ones(2, 4))


def test_an_unknown_submodule_gets_the_closest_names() -> None:
    recording = record(Tangled().eval(), torch.ones(1, 3))
    with pytest.raises(AlignmentError, match="Closest names: 'lin'"):
        recording["lim"]
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, not function"):
        record(lambda x: x, torch.ones(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_export_computes_the_same_as_the_module(exporter: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(
            self, x: torch.Tensor, flag: bool = True, *, y: torch.Tensor | None = None
        ) -> dict[str, torch.Tensor]:
            z = self.lin(x) if flag else x
            return {"sum": z if y is None else z + y, "product": z if y is None else z * y}

    module, x, y = Named().eval(), torch.randn(2, 3), torch.randn(2, 3)
    model = export(module, (x, True), {"y": y}, exporter=exporter)
    assert [port.name for port in model.proto.graph.input] == ["x", "y"]
    found = onnx_nb.run(model, {"x": x.numpy(), "y": y.numpy()})
    with torch.no_grad():
        expected = module(x, y=y)
    for given, wanted in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_allclose(given, wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert untouched(module)


class Unwritable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.linalg.svd(x)[0]
        return found


class Undecided(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() >= 0:
            raise ValueError("my own reason")
        return x


@pytest.mark.parametrize(
    ("exporter", "bad", "reason"),
    [
        ("dynamo", Unwritable(), "No ONNX function found for .*linalg_svd"),
        ("torchscript", Unwritable(), "Exporting the operator 'aten::linalg_svd' to ONNX"),
        ("dynamo", Undecided(), "Could not guard on data-dependent expression"),
        ("torchscript", Undecided(), "my own reason"),
    ],
)
def test_the_error_of_a_failed_export_begins_with_torchs_reason(exporter: str, bad: nn.Module, reason: str) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), bad)).eval()
    other = "torchscript" if exporter == "dynamo" else "dynamo"
    where = f"^{reason}.* This is in {type(bad).__name__} '1.1'.*Try the other exporter: exporter='{other}'"
    with pytest.raises(ExportError, match=where) as caught:
        export(module, torch.ones(3, 3), exporter=exporter)
    assert caught.value.module == "1.1"
    assert untouched(module)


def test_another_opset_than_asked_for_is_an_error() -> None:
    with pytest.raises(ExportError, match="opset 15 was asked for, but torch's dynamo exporter used opset 18"):
        export(nn.LayerNorm(4).eval(), torch.ones(2, 4), opset=15)
    older = export(nn.LayerNorm(4).eval(), torch.ones(2, 4), opset=15, exporter="torchscript")
    assert older.proto.opset_import[0].version == 15


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_axes_of_a_tensor_that_does_not_exist_are_an_error(exporter: str) -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 (its purpose)
            return x * 2

    def first_size(axes: dict[str, Any], **names: Any) -> str:
        given = torch.ones(2, 4), torch.ones(2, 4)
        model = export(Twice().eval(), given, exporter=exporter, dynamic_axes=axes, **names)
        return str(model.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param)

    message = "dynamic_axes names 'imag', which is no input or output .* Closest names: 'image'"
    with pytest.raises(ExportError, match=message):
        first_size({"imag": {0: "batch"}}, input_names=["image", "unused"])
    with pytest.raises(ExportError, match=r"dynamic_axes names 'x', .* The model has 'image'"):
        first_size({"x": [0]}, input_names=["image"])
    with pytest.warns(UserWarning, match="argument 'unused'"):
        assert first_size({"x": {0: "batch"}, "unused": {0: "batch"}, "y": {0: "batch"}}, output_names=["y"]) == "batch"


def test_values_that_tracing_makes_constant_are_warned_of() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.neg(x) if x.sum() > 0 else x

    with pytest.warns(UserWarning, match="torch made a value constant while tracing"):
        export(Branch().eval(), torch.ones(2), exporter="torchscript")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(nn.ReLU().eval(), torch.ones(2), exporter="torchscript")


def test_branches_that_a_free_size_decides_are_warned_of() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[0] % 2 == 0
            if x.shape[0] > 100:
                raise ValueError
            return torch.neg(x) if x.shape[0] > 3 else x

    with pytest.warns(UserWarning, match=r"`return .* if x.shape\[0\] > 3 else x` .* is True, .*model") as caught:
        made = export(Branch().eval(), torch.ones(4), dynamic_shapes=({0: "rows"},))
    assert not any("more such place" in str(one.message) for one in caught)
    assert [node.op_type for node in made.proto.graph.node] == ["Neg"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(Branch().eval(), torch.ones(4))
        export(nn.Conv1d(2, 3, 3).eval(), torch.ones(1, 2, 9), dynamic_shapes=({2: "length"},))


class Halved(torch.Tensor):
    """Says of itself that it holds half of what it does."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        return made / 2 if func is torch.Tensor.numpy else made


def test_a_tensor_subclass_defines_its_own_values() -> None:
    class Halving(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.as_subclass(Halved).add(1.0)

    recording = record(nn.Sequential(Halving(), nn.Identity()).eval(), torch.ones(2), functions=True)
    np.testing.assert_array_equal(recording["0"], [1.0, 1.0])
    assert [each.name for each in recording.functions if each.name != "as_subclass"] == ["add"]


def test_functions_of_a_forward_are_recorded_with_their_inputs() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: torch.Tensor) -> Any:
            y = self.act(x)
            y += x
            many = torch.vmap(lambda row: row.sum() + row)(y)  # tensors in there have no values of their own
            return self.act(many.softmax(-1) + y)

    module, x = Sum(), torch.randn(2, 3)
    recording = onnx_nb.record(module, x, functions=True, repeat=True)
    assert not recording.unstable
    assert len(recording.calls) == len(onnx_nb.record(module, x).calls)
    sums = torch.relu(x) + x
    assert np.array_equal(recording["model → add_()"], sums.numpy())
    added = next(each for each in recording.functions if each.name == "add_")
    got = {slot.value for slot in (*recording.calls[0].inputs, *recording.calls[1].outputs)}
    assert set(added.inputs) == got
    assert added.source.startswith("test_record.py:")
    assert untouched(module)


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.mul(x, 2).cos()


class Outer(nn.Module):
    """Has a submodule with the name that stands for the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Inner()

    def forward(self, x: torch.Tensor) -> Any:
        return torch.add(self.model(x), 1).sin()


def test_a_submodule_may_be_called_model() -> None:
    x = torch.arange(3.0)
    recording = record(Outer().eval(), x, functions=True)
    np.testing.assert_array_equal(recording["model → mul()"], x * 2)
    np.testing.assert_array_equal(recording["Outer → add()"], (x * 2).cos() + 1)
    np.testing.assert_array_equal(recording["model"], (x * 2).cos())
    np.testing.assert_array_equal(recording[""], ((x * 2).cos() + 1).sin())
    assert [call.name for call in recording.calls] == ["Outer", "model"]
    with pytest.raises(AlignmentError, match=r"submodule 'model' returned no output 'tan\(\)'"):
        recording["model → tan()"]


class Arguments(torch.nn.Module):
    """A module that reads its arguments in the ways that an export loses."""

    def forward(self, x: torch.Tensor, factor: Any, unused: Any = None) -> torch.Tensor:  # noqa: ARG002
        is_tracing: Any = torch._C._is_tracing
        number = factor.item() if isinstance(factor, torch.Tensor) and is_tracing() else factor
        product: torch.Tensor = x * number
        return product


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    ("given", "lost"),
    [
        (
            (3,),
            r"argument 'factor' has no input in the model: its value 3 became part of the graph\. Pass it as a tensor",
        ),
        (
            (torch.ones(2), torch.ones(3)),
            r"argument 'unused' (has no input|is an input that no node reads).* leave it out",
        ),
        ((2.5, torch.ones(3)), r"argument 'factor' has no input .*2\.5.* \(1 more such argument\)"),
    ],
)
def test_an_argument_without_an_input_is_named(exporter: str, given: tuple[Any, ...], lost: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch made a value constant")
        if exporter == "torchscript" and isinstance(given[0], torch.Tensor):
            given, lost = (
                (torch.tensor(3.0),),
                "argument 'factor' has no input in the model.*item.*compute with the tensor",
            )
        with pytest.warns(UserWarning, match=lost):
            onnx_nb.export(Arguments(), (torch.ones(2), *given), exporter=exporter)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_arguments_that_the_model_reads_are_not_named(exporter: str) -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], *, more: Any) -> torch.Tensor:
            y: torch.Tensor = x * pair[0] + pair[1] * more["scale"]
            return y

    x = torch.ones(2)
    model = onnx_nb.export(Pair(), (x, (x + 1, x + 2)), {"more": {"scale": x + 3}}, exporter=exporter)
    assert len(model.inputs) == 4
    renamed = onnx_nb.export(torch.nn.ReLU(), (x,), exporter=exporter, input_names=["signal"])
    assert [each.name for each in renamed.inputs] == ["signal"]
