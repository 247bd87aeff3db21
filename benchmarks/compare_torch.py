"""Comparing a torch module with its export: against torch's own verification, and against just running both.

``python -m benchmarks.compare_torch [bert|bert-small|resnet50 …]``. torch's ``verify_onnx_program`` with
``compare_intermediates=True`` makes a session for every value, which takes minutes; its CPU time is what ours is
compared with, as other work on the machine hardly changes it. ``--quick`` leaves it out.

It fails if a small BERT (that of the tests, 48 wide, or BERT-Small as it was published, 512 wide) takes more than 3
times a torch forward, a session and a run, or not 100 times less CPU than torch's verification, ResNet-50 not 30 times
less, or if there are not more points than values that torch verifies. Our points are tensors that a run makes, modules'
and by ``drill("")`` all operations', each with its cumulative and its isolated error, and weights against parameters,
which torch does not look at; the CPU time that is compared is that of all three. Histograms of a small model's points
are excluded: they are computed on request.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import onnxruntime
import torch

import onnx_nb
from onnx_nb.analysis.pytorch.align import feeds_of
from tests import modules

SECONDS = 6.0
"""Seconds for which the runs are repeated in turn, so that other load affects all of them equally."""
LEAST = 5
"""Minimum number of runs of each."""


def bert() -> tuple[Any, dict[str, torch.Tensor]]:
    """Make the small BERT of the tests: four layers, 48 wide."""
    return modules.fresh("bert")


def bert_small() -> tuple[Any, dict[str, torch.Tensor]]:
    """Make BERT-Small in its published size with random weights, 29 million, and one text of 128 tokens."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    tokens = torch.randint(0, config.vocab_size, (1, 128))
    return transformers.BertModel(config).eval(), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def resnet50() -> tuple[Any, dict[str, torch.Tensor]]:
    """Make ResNet-50 with random weights, and one picture."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    module = transformers.ResNetForImageClassification(transformers.ResNetConfig()).eval()
    return module, {"pixel_values": torch.randn(1, 3, 224, 224)}


class Measured(NamedTuple):
    """Result of a function, and the least seconds and CPU seconds of its runs."""

    found: Any
    wall: float
    cpu: float


def once(run: Callable[[], Any]) -> Measured:
    """Run a function once."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return Measured(found, time.perf_counter() - wall, time.process_time() - cpu)


def measured(*runs: Callable[[], Any]) -> list[Measured]:
    """Run functions in turn, again and again."""
    least: list[Measured] = []
    began, rounds = time.perf_counter(), 0
    while rounds < LEAST or time.perf_counter() - began < SECONDS:
        news = [once(run) for run in runs]
        least = [
            Measured(new.found, min(new.wall, old.wall), min(new.cpu, old.cpu))
            for new, old in zip(news, least or news, strict=True)
        ]
        rounds += 1
    return least


class Limits(NamedTuple):
    """Limits for the figures of a model."""

    times: float | None
    """Maximum time relative to a forward pass, a session and a run."""
    less_cpu: float
    """Minimum ratio of CPU time of torch's own verification to ours."""


def compare(name: str, make: Callable[[], tuple[Any, dict[str, torch.Tensor]]], limits: Limits, *, quick: bool) -> bool:
    """Print one model's figures; return whether they keep the limits."""
    module, kwargs = make()
    program: Any = torch.onnx.export(module, (), kwargs=kwargs, dynamo=True, verbose=False)
    data = program.model_proto.SerializeToString()
    feeds = feeds_of(onnx_nb.record(module, (), kwargs), onnx_nb.load(data))

    def plain() -> None:
        with torch.no_grad():
            module(**kwargs)
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        session.run(None, feeds)

    def ours() -> onnx_nb.TorchComparison:
        return onnx_nb.compare_torch(module, (), kwargs, model=onnx_nb.load(data))

    def everything() -> tuple[onnx_nb.Comparison, ...]:
        made = ours()
        return made, made.drill(""), made.weights()

    (_, plain_wall, plain_cpu), (found, wall, cpu) = measured(plain, ours)
    ((_, operations, weights), _, whole_cpu) = measured(everything)[0]
    tensors = {point.candidate for each in (found, operations) for point in each.points}
    times = wall / plain_wall
    print(f"{name}: torch forward + session + run {plain_wall:.3f} s, {plain_cpu:.3f} CPU s")
    print(
        f"  compare_torch: {len(found):,} points, cumulative and isolated, {wall:.3f} s, {cpu:.3f} CPU s: "
        f"{times:.1f}× ({cpu / plain_cpu:.1f}× CPU)"
    )
    print(
        f"  and drill(''): {len(operations):,} operations, and weights(): {len(weights):,} parameters, "
        f"{whole_cpu:.3f} CPU s with all that comes before"
    )
    passed = limits.times is None or times <= limits.times
    if quick:
        return passed
    from torch.onnx.verification import verify_onnx_program

    verified, their_wall, their_cpu = once(lambda: verify_onnx_program(program, compare_intermediates=True))
    print(
        f"  verify_onnx_program: {len(verified):,} values, {their_wall:.1f} s, {their_cpu:.1f} CPU s: "
        f"{their_cpu / whole_cpu:,.0f}× the CPU"
    )
    points = len(tensors) + len(weights)
    print(
        f"  points: ours {points:,} ({len(tensors):,} tensors, {len(weights):,} parameters), theirs {len(verified):,}"
    )
    return passed and their_cpu / whole_cpu >= limits.less_cpu and points > len(verified)


def main() -> int:
    """Measure what was asked for; 1 if a limit is missed."""
    known = {
        "bert": (bert, Limits(3.0, 100.0)),
        "bert-small": (bert_small, Limits(3.0, 100.0)),
        "resnet50": (resnet50, Limits(None, 30.0)),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="without torch's own verification")
    chosen = parser.parse_args()
    unknown = set(chosen.models) - set(known)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        passed = [compare(name, *known[name], quick=chosen.quick) for name in chosen.models or known]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
