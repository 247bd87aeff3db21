"""Faults made in a torch module before its export are named where they are, also where the export has other nodes."""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import Any

import onnx
import pytest

import onnx_nb

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import Tensor, nn

from tests import modules


def compared(good: nn.Module, bad: nn.Module, x: Tensor, how: str) -> Any:
    """Compare a module with the export of another one of the same weights."""
    bad.load_state_dict(good.state_dict(), strict=False)
    return onnx_nb.compare_torch(good.eval(), x, model=onnx_nb.export(bad.eval(), x, **modules.EXPORTS[how]))


class Pools(nn.Module):
    """Calls one function several times."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.before, self.after = nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(32, 8, 1), nn.SiLU())

    def pool(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(x, self.size, 1, self.size // 2)

    def forward(self, x: Tensor) -> Any:
        x = self.before(x)
        y = self.pool(x)
        z = self.pool(y)
        return self.after(torch.cat((x, y, z, self.pool(z)), 1))


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_rounding_does_not_rank_above_a_function_that_is_wrong_in_each_call(how: str) -> None:
    torch.manual_seed(3)
    c = compared(Pools(5), Pools(3), torch.rand(1, 3, 16, 16), how)
    assert {point.name.partition("#")[0] for point in c.ranked()[:3]} == {"model → max_pool2d()"}
    assert c.first_divergent().name == "model → max_pool2d()"


class Gate(nn.Module):
    """Divides what a layer returns into two halves of one shape, the second of which passes a loop by."""

    def __init__(self, skip: float) -> None:
        super().__init__()
        self.both, self.conv = nn.Linear(8, 16), nn.Conv1d(8, 8, 3, padding=1, groups=8)
        self.out, self.skip = nn.Linear(8, 8), skip

    def forward(self, x: Tensor) -> Any:
        a, gate = self.both(x).chunk(2, dim=-1)
        a = nn.functional.silu(self.conv(a.transpose(1, 2)).transpose(1, 2))
        state, states = torch.zeros_like(a[:, 0]), []
        for time in range(a.shape[1]):
            state = 0.9 * state + a[:, time]
            states.append(state)
        return self.out((torch.stack(states, 1) + self.skip * a) * nn.functional.silu(gate))


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_the_results_of_one_call_are_matched_by_their_places(how: str) -> None:
    torch.manual_seed(3)
    c = compared(Gate(1.0), Gate(0.0), torch.randn(2, 5, 8), how)
    assert "mul()" in c.first_divergent().name
    assert c.ranked()[0] == c.first_divergent()
    assert all(point.isolated.is_equal for point in c.points if "chunk" in point.name)


class States(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.lstm = nn.Linear(8, 8), nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        y, (hidden, cell) = self.lstm(self.first(x))
        return y, hidden * 2, torch.tanh(cell)


@pytest.mark.filterwarnings("ignore:torch made a value constant:UserWarning")  # a size, in torch's LSTM
@pytest.mark.parametrize("how", modules.EXPORTS)
def test_the_results_of_a_layer_are_matched_by_their_places_where_no_value_is_near(how: str) -> None:
    torch.manual_seed(0)
    good, bad = States().eval(), States().eval()
    bad.load_state_dict(good.state_dict(), strict=False)
    weights: Any = bad.lstm.weight_hh_l0
    weights.data.mul_(-2)
    x = torch.randn(2, 5, 8)
    c: Any = onnx_nb.compare_torch(good, x, model=onnx_nb.export(bad, x, **modules.EXPORTS[how]))
    assert c["model → 1"].isolated.rel_l2 < 1e-6
    assert c["model → 2"].isolated.rel_l2 < 1e-6
    assert c.first_divergent().scope == "lstm"


class Table(nn.Module):
    """Has no input that varies, so that exporters compute it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Any:
        return torch.sin(torch.arange(x.shape[1]).float() * self.factor)[None, :, None]


class Positions(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.table, self.first, self.last = Table(factor), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.first(x) + self.table(x))


def test_a_table_that_the_exporter_computed_is_compared_and_what_reads_it_gets_the_right_one() -> None:
    x = torch.randn(1, 6, 4)
    c = compared(Positions(1.0), Positions(2.0), x, "dynamo")
    assert c.first_divergent() is c["table"]
    assert "computed it in advance, as the weight" in c.message
    assert sorted(point.isolated.rel_l2 > 1e-6 for point in c.points) == [False] * (len(c.points) - 1) + [True]
    assert compared(Positions(1.0), Positions(1.0), x, "dynamo").first_divergent() is None


class Offset(nn.Module):
    """Adds a parameter of the shape of what a layer returns."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 4), activation, nn.Linear(4, 4)
        self.offset = nn.Parameter(torch.randn(1, 6, 4))

    def forward(self, x: Tensor) -> Any:
        return self.last(self.act(self.first(x)) + self.offset)


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_a_parameter_is_not_taken_for_a_layer_that_the_export_lacks(how: str) -> None:
    torch.manual_seed(0)
    c = compared(Offset(nn.Tanh()), Offset(nn.Identity()), torch.randn(1, 6, 4), how)
    assert "in advance" not in c.message
    assert c.first_divergent().inside == ("act",)


class Keys(nn.Module):
    """Computes the keys of the same memory in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.energy = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, state: Tensor, memory: Tensor) -> Any:
        scores = self.energy(torch.tanh(self.query(state)[:, None] + self.key(memory)))
        return (scores.softmax(1) * memory).sum(1)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.cell = Keys(), nn.Linear(8, 8)

    def forward(self, memory: Tensor) -> Any:
        state = memory[:, -1]
        for _ in range(3):
            state = torch.tanh(self.cell(self.attention(state, memory)))
        return state


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_calls_with_equal_results_may_be_one_in_the_export(how: str) -> None:
    torch.manual_seed(0)
    c = compared(Decoder(), Decoder(), torch.randn(2, 6, 8), how)
    assert c.first_divergent() is None
    assert c["attention.key#3"].cumulative.rel_l2 < 1e-6


class Steps(nn.Module):
    """Has no value below zero, unless it subtracts too much."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.linear, self.shift = nn.Linear(8, 8), shift

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x)
        y = torch.tanh(torch.log(y * y + 1.0 - self.shift) * 3.0) + 0.1 * x
        return y.softmax(-1) * 2.0


class Chain(nn.Module):
    def __init__(self, shift: float) -> None:
        super().__init__()
        self.first, self.steps, self.last = nn.Linear(8, 8), Steps(shift), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.steps(self.first(x)))


@pytest.mark.parametrize("shifts", [(0.0, 5.0), (5.0, 0.0)])
@pytest.mark.parametrize("how", modules.EXPORTS)
def test_all_operations_are_drilled_where_one_side_is_nan(how: str, shifts: tuple[float, float]) -> None:
    torch.manual_seed(0)
    right, wrong = shifts
    c = compared(Chain(right), Chain(wrong), torch.randn(3, 8), how)
    inside = c.drill("steps")
    assert c.first_divergent().scope == "steps"
    # an export that is optimized has no node for what subtracts zero: the next one is the first
    first = "aten.log" if how == "dynamo" and not wrong else "aten.sub"
    assert inside.first_divergent().name == first
    assert len(inside.points) == (10 if first == "aten.log" else 11)
    assert all(point.region for point in inside.points)


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.drop(torch.relu(self.first(x))))


def test_a_dropout_that_was_exported_in_training_mode_is_named_as_such() -> None:
    torch.manual_seed(0)
    module, x = Feed().eval(), torch.randn(4, 8)
    file: Any = io.BytesIO()
    module.drop.train()
    modes: dict[str, Any] = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the exporter itself
        torch.onnx.export(module, (x,), file, dynamo=False, opset_version=17, **modes)
    c = onnx_nb.compare_torch(module.eval(), x, model=onnx.load_from_string(file.getvalue()))
    first = c.first_divergent()
    assert first is not None
    assert first.inside == ("drop",)
    assert "'drop' drops values, as in training" in c.message


class Layers(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(8, 8), activation, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.act(self.first(x)))


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_a_layer_that_the_export_lacks_is_named(how: str) -> None:
    torch.manual_seed(0)
    c = compared(Layers(nn.Tanh()), Layers(nn.Identity()), torch.randn(4, 8), how)
    assert c.first_divergent().inside == ("act",)
    assert "and 'last' (Linear), which includes 'act': " in c.message
    assert "No node of the export is from 'act'." in c.message


class Normalized(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.first, self.norm1, self.act = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), activation
        self.last, self.norm2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Any:
        return self.norm2(self.last(self.act(self.norm1(self.first(x)))))


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_a_lacking_layer_before_a_folded_convolution_is_told_from_it(how: str) -> None:
    torch.manual_seed(0)
    c = compared(Normalized(nn.Tanh()), Normalized(nn.Identity()), torch.randn(2, 3, 8, 8), how)
    assert "No node of the export is from 'act'." in c.message


class Queries(nn.Module):
    """Reads learned values that no input reaches, and then what it computed of them, with the same layers."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.queries, self.norm, self.layer = nn.Parameter(torch.randn(1, 4, 8)), norm, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        y = self.queries.expand(x.shape[0], -1, -1)
        for _ in range(2):
            y = torch.tanh(self.layer(self.norm(y)) + x)
        return y


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_the_call_that_reads_weights_only_is_compared_as_the_others(how: str) -> None:
    torch.manual_seed(0)
    module, faulty, x = Queries(nn.LayerNorm(8)), Queries(nn.LayerNorm(8, eps=0.5)), torch.randn(2, 4, 8)
    c = compared(module, faulty, x, how)
    assert {"norm", "norm#2", "layer", "layer#2"} <= {point.name for point in c.points}
    assert c.first_divergent().scope == "norm"
    if how != "dynamo":  # which computes the layer that reads it in advance as well
        assert "No node of the export is from 'norm'." in compared(module, Queries(nn.Identity()), x, how).message


class Padded(nn.Module):
    def __init__(self, *pads: int) -> None:
        super().__init__()
        self.first, self.down, self.pads = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, 2), pads

    def forward(self, x: Tensor) -> Any:
        return torch.relu(self.down(nn.functional.pad(self.first(x), self.pads)))


@pytest.mark.parametrize("how", modules.EXPORTS)
def test_the_pads_of_a_convolution_are_those_of_the_pad_fused_into_it(how: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    c = compared(Padded(0, 1, 0, 1), Padded(1, 0, 1, 0), x, how)
    assert ("Pads is 1×1×0×0 instead of 0×0×1×1." in c.message) == (how == "dynamo")  # the others have a node of it
    assert "ads is" not in c.message or how == "dynamo"
    assert compared(Padded(0, 1, 0, 2), Padded(0, 1, 0, 2), x, how).first_divergent() is None


class Repeated(nn.Module):
    def __init__(self, calls: int) -> None:
        super().__init__()
        self.first, self.block, self.last, self.calls = nn.Linear(8, 8), Layers(nn.Tanh()), nn.Linear(8, 8), calls

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for _ in range(self.calls):
            x = x + self.block(x)
        return self.last(x)


@pytest.mark.parametrize("how", modules.EXPORTS)
@pytest.mark.parametrize("calls", [1, 2])
def test_a_call_that_the_export_lacks_is_not_blamed_on_a_layer_inside(how: str, calls: int) -> None:
    torch.manual_seed(0)
    c = compared(Repeated(3), Repeated(calls), torch.randn(2, 8), how)
    assert f"The export calls 'block' {calls}× instead of 3×." in c.message
    assert [point.name for point in c.points if point.isolated.relative_error > 1e-5] == [c.first_divergent().name]
