"""``python -m tests.faults.module_faults``: faults in a torch module, whose export is compared with the sound one.

Nothing is edited in the graph, so the export of the faulty module may have other nodes, names and constants than that
of the sound one. The truth is the module that was changed. It is named if a point lies in it, or if the message says
that the export has no node of it: a neighbor that reads it does not count.
"""

from __future__ import annotations

import argparse
import copy
import io
import itertools
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import torch
from torch import Tensor, nn

import onnx_nb
from tests import modules
from tests.faults.judging import changed, session
from tests.faults.networks import NETWORKS, network

JUDGED: Final = ("first", "ranked", "drill")
GOALS: Final = {"first": 0.99, "ranked": 0.98, "drill": 0.96}
"""Least share of faults for which each judgment is right."""
NORMS: Final = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)
RESHAPING: Final = (nn.GLU, nn.Upsample, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
"""Classes whose results have another shape than what they get."""
ACTIVATIONS: Final[dict[type[nn.Module], Callable[[], nn.Module]]] = {
    nn.ReLU: lambda: nn.LeakyReLU(0.2),
    nn.SiLU: nn.GELU,
    nn.Tanh: nn.Hardtanh,
    nn.Sigmoid: nn.Hardsigmoid,
    nn.ELU: nn.ReLU,
    nn.Softplus: nn.ReLU,
    nn.Hardsigmoid: nn.Sigmoid,
    nn.Hardswish: nn.SiLU,
    nn.GLU: lambda: nn.Sequential(Halves(), nn.GLU(1)),
    nn.AvgPool2d: lambda: nn.MaxPool2d(2),
    nn.AdaptiveAvgPool2d: lambda: nn.AdaptiveMaxPool2d(1),
    nn.Upsample: lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
}
"""Class of a module → another one that may be taken for it."""
FACTORS: Final = {
    "factor": "mul", "stride": "mul", "skip": "mul", "scale": "mul", "weight": "mul", "temperature": "div",
    "rate": "mul", "period": "mul exp arange div",
}  # fmt: skip
"""Number that a ``forward`` multiplies with → the operations of torch one of which is at fault."""
_READERS: Final = "chunk split transpose permute convolution silu add mul matmul view expand linear mm"
ORDERS: Final = {"gate_first": _READERS, "shift_first": _READERS, "key_first": _READERS}
"""Order of two halves → operations that divide them, or read the wrong one of them."""
COUNTS: Final = {"size": 3, "calls": 3, "depth": 1, "padding": (1, 0, 1, 0)}
"""Attribute of a network → another value of it."""


class Halves(nn.Module):
    """Swaps the halves of the second axis."""

    def forward(self, x: Tensor) -> Any:
        low, high = x.chunk(2, 1)
        return torch.cat((high, low), 1)


class Fault(NamedTuple):
    """A change of one part of a module."""

    kind: str
    path: str
    change: Callable[[nn.Module], None]
    """Changes a copy of the whole module."""
    operations: str = ""
    """Names of the operations one of which is at fault; empty where the part is one layer."""


class Verdict(NamedTuple):
    """What a comparison said of one fault; an empty text is right, another one is the reason why not."""

    network: str
    exporter: str
    kind: str
    path: str
    first: str
    ranked: str
    drill: str
    message: str


def faults(module: nn.Module) -> Iterator[Fault]:
    """Yield the faults that fit the parts of a module."""

    def edit(kind: str, path: str, change: Callable[[Any], None], operations: str = "") -> Fault:
        return Fault(kind, path, lambda whole: change(whole.get_submodule(path)), operations)

    def swap(kind: str, path: str, make: Callable[[], nn.Module]) -> Fault:
        around, _, name = path.rpartition(".")
        return Fault(kind, path, lambda whole: setattr(whole.get_submodule(around), name, make().eval()))

    for path, part in module.named_modules():
        is_ours = type(part).__module__.startswith("tests.")
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Embedding):
            yield edit("weight", path, scaling("weight", 1.3))
            yield edit("rows", path, rolling("weight", 1))
        if isinstance(getattr(part, "bias", None), Tensor) and not isinstance(part, NORMS):
            yield edit("bias", path, lambda part: part.bias.data.add_(0.3))
        if isinstance(part, nn.GRU | nn.GRUCell):
            yield edit("rows", path, rolling("weight_hh_l0" if isinstance(part, nn.GRU) else "weight_hh", 1))
        if isinstance(part, nn.MultiheadAttention):
            yield edit("rows", path, rolling("in_proj_weight", part.embed_dim))
        if isinstance(part, NORMS):
            yield edit("epsilon", path, setting("eps", 0.3))
            yield edit("norm weight", path, scaling("weight", 1.5))
            yield edit("nan", path, setting("eps", -50.0))
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            yield edit("statistics", path, scaling("running_var", 2))
        if type(part) in ACTIVATIONS:
            yield swap("other layer", path, ACTIVATIONS[type(part)])
        if isinstance(part, (nn.LayerNorm, nn.GroupNorm, *ACTIVATIONS)) and not isinstance(part, RESHAPING):
            yield swap("missing layer", path, nn.Identity)
        if isinstance(part, nn.Conv1d | nn.Conv2d) and any(part.padding) and part.padding_mode == "zeros":
            yield edit("padding", path, setting("padding_mode", "circular"))
        if isinstance(part, nn.Dropout):
            yield edit("active dropout", path, lambda part: part.train())
        for name in [name for name, _ in part.named_parameters(recurse=False)] if is_ours else []:
            yield edit("parameter", path, scaling(name, 1.5))
        for name, value in vars(part).items() if is_ours else ():
            if name in FACTORS:
                yield edit("factor", path, setting(name, 1.5 * value), FACTORS[name])
            elif name in ORDERS:
                yield edit("order", path, setting(name, not value), ORDERS[name])
            elif name in COUNTS:
                yield edit(name, path, setting(name, COUNTS[name]))


def setting(name: str, value: Any) -> Callable[[Any], None]:
    """Return what sets an attribute of a part."""
    return lambda part: setattr(part, name, value)


def scaling(name: str, factor: float) -> Callable[[Any], None]:
    """Return what multiplies a tensor of a part."""
    return lambda part: getattr(part, name).data.mul_(factor)


def rolling(name: str, count: int) -> Callable[[Any], None]:
    """Return what moves each row of a tensor of a part some rows on."""
    return lambda part: getattr(part, name).data.copy_(getattr(part, name).data.roll(count, 0))


def exported(module: nn.Module, kwargs: dict[str, Tensor], exporter: str) -> Any:
    """Return the export of a module as a proto, in the mode that each of its parts is in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not any(part.training for part in module.modules()):
            return onnx_nb.export(module, (), kwargs, **modules.EXPORTS[exporter]).to_proto()
        buffer: Any = io.BytesIO()
        options: dict[str, Any] = {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE, "opset_version": 17}
        options |= {"input_names": list(kwargs), "kwargs": kwargs, "do_constant_folding": False}
        torch.onnx.export(module, (), buffer, **options)
        return onnx.load_from_string(buffer.getvalue())


def named(point: onnx_nb.types.Point | None, path: str) -> str:
    """Return why a point does not name the module that was changed; "" if it does."""
    if point is None:
        return "none: nothing stands out"
    if not path or point.scope == path or point.scope.startswith(f"{path}."):
        return ""
    if path in point.inside and len(point.inside) == 1:  # one of two that the export has as one
        return ""
    return f"elsewhere: {point.name}"


class Sound:
    """A network without a fault, what it computes, and what the comparison with its own export complains of."""

    def __init__(self, name: str, exporter: str) -> None:
        self.name, self.exporter = name, exporter
        self.module, self.kwargs = network(name)
        with torch.no_grad():
            outputs = self.module(**self.kwargs)
        self.outputs = [np.asarray(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]
        c = onnx_nb.compare_torch(self.module, (), self.kwargs, model=exported(self.module, self.kwargs, exporter))
        self.alarm = c.message if c.first_divergent() is not None else ""
        assert c.recording is not None
        self._called = {call.path for call in c.recording.calls}

    def called(self, path: str) -> str:
        """Return the path of a part or, if its weights are read without a call of it, that of the module around it."""
        while path not in self._called:
            path = path.rpartition(".")[0]
        return path

    def verdict(self, fault: Fault) -> Verdict | str:
        """Export a faulty copy, compare it with the module, and judge; or return why the fault does not count."""
        faulty = copy.deepcopy(self.module)
        fault.change(faulty)
        try:
            faulty(**self.kwargs)
        except (AttributeError, ValueError):  # torch refuses a number, or its layer around it reads what another lacks
            return "does not run"
        try:
            proto = exported(faulty, self.kwargs, self.exporter)
        except onnx_nb.ExportError:
            return "not exported"
        feeds = {
            port.name: np.asarray(self.kwargs.get(port.name, tensor))
            for port, tensor in zip(proto.graph.input, self.kwargs.values(), strict=False)
        }
        outputs = session(proto).run(None, feeds)
        pairs = list(zip(self.outputs, outputs, strict=True))
        if all(one.shape == other.shape and not changed(one, other) for one, other in pairs):
            return "no effect"
        try:
            judgments, message = self._judged(proto, fault)
        except onnx_nb.OnnxNbError as error:
            judgments, message = (f"error: {error}",) * 3, ""
        first, ranked, drill = judgments
        return Verdict(self.name, self.exporter, fault.kind, fault.path, first, ranked, drill, message)

    def _judged(self, proto: Any, fault: Fault) -> tuple[tuple[str, str, str], str]:
        c, path = onnx_nb.compare_torch(self.module, (), self.kwargs, model=proto), self.called(fault.path)
        points = c.first_divergent(), next(iter(c.ranked("isolated")), None)
        is_said = f"No node of the export is from {path!r}." in c.message  # of the first one
        first, ranked = ("" if is_said and point is points[0] else named(point, path) for point in points)
        try:
            inside = c.drill(path)
        except onnx_nb.OnnxNbError as error:  # such as that nothing of it is left to run
            return (first, ranked, f"error: {error}"), c.message
        top = inside.first_divergent() or next(iter(inside.ranked("isolated")), None)
        is_right = top is not None and any(name in top.name for name in fault.operations.split() or [""])
        drill = "" if is_right else "nothing stands out" if top is None else f"elsewhere: {top.name}"
        return (first, ranked, drill), c.message


def verdicts(name: str, exporter: str, kinds: Sequence[str]) -> tuple[list[Verdict], Counter[str], str]:
    """Return the verdicts on all faults of a network, why others do not count, and the alarm of its sound export."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        sound = Sound(name, exporter)
    except onnx_nb.OnnxNbError as error:  # the comparison refuses a sound export
        return [], Counter(), str(error)
    outcomes = [sound.verdict(fault) for fault in faults(sound.module) if not kinds or fault.kind in kinds]
    dropped = Counter(outcome for outcome in outcomes if isinstance(outcome, str))
    return [outcome for outcome in outcomes if isinstance(outcome, Verdict)], dropped, sound.alarm


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.module_faults", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--kinds", nargs="+", default=[], metavar="KIND")
    parser.add_argument("--exporters", nargs="+", choices=list(modules.EXPORTS), default=["torchscript", "dynamo"])
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args(arguments)
    which = list(itertools.product(chosen.networks or NETWORKS, chosen.exporters))
    made: list[Verdict] = []
    dropped: Counter[str] = Counter()
    alarms = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for each, done in zip(which, [pool.submit(verdicts, *each, chosen.kinds) for each in which], strict=True):
            some, less, alarm = done.result()
            made += some
            dropped += less
            alarms += [f"{each}: {alarm}"] if alarm else []
            print(*each, len(some), *misses(some), sep="\n  ", file=sys.stderr, flush=True)
    for title in ("network", "kind", "exporter"):
        print(f"\n{title:20} faults   first  ranked   drill")
        for value in dict.fromkeys(getattr(one, title) for one in made):
            print(row(value, [one for one in made if getattr(one, title) == value]))
    print(f"\n{row('all', made)}")
    print(f"not counted: {', '.join(f'{count} {why}' for why, count in dropped.items()) or 'none'}")
    print(f"{len(which)} sound exports, {len(alarms)} false alarms", *alarms, sep="\n  ")
    print(*misses(made), sep="\n")
    return int(bool(alarms) or any(share(made, judged) < goal for judged, goal in GOALS.items()))


def misses(some: list[Verdict]) -> list[str]:
    """Return a line for each judgment that is not right, with its reason."""
    return [
        f"{one.network} {one.exporter} | {one.kind} | {one.path} | {judged} | {getattr(one, judged)} | {one.message}"
        for one in some
        for judged in JUDGED
        if getattr(one, judged)
    ]


def share(some: list[Verdict], judged: str) -> float:
    """Return the share of faults for which a judgment is right."""
    return sum(not getattr(one, judged) for one in some) / max(len(some), 1)


def row(name: str, some: list[Verdict]) -> str:
    """Return a row of the table."""
    return f"{name:20} {len(some):6} {''.join(f'{share(some, judged):8.1%}' for judged in JUDGED)}"


if __name__ == "__main__":
    sys.exit(main())
