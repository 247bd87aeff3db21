"""Comparing a torch module with its export: against torch's own verification, and against just running both.

``python -m benchmarks.compare_torch [bert|resnet50 …]``. torch's ``verify_onnx_program(compare_intermediates=True)``
makes a session for every value, which takes minutes; its CPU time is what ours is compared with, as other work on the
machine hardly changes it. ``--quick`` leaves it out.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import onnxruntime
import torch

import onnx_nb
from onnx_nb.analysis.alignment import feeds_of
from tests import modules

REPEATS = 5


def bert() -> tuple[Any, dict[str, torch.Tensor]]:
    """Make the small BERT of the tests: four layers, 48 wide."""
    return modules.fresh("bert")


def resnet50() -> tuple[Any, dict[str, torch.Tensor]]:
    """Make ResNet-50 with random weights, and one picture."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    module = transformers.ResNetForImageClassification(transformers.ResNetConfig()).eval()
    return module, {"pixel_values": torch.randn(1, 3, 224, 224)}


def measured(run: Callable[[], Any], repeats: int) -> tuple[Any, float, float]:
    """Give what a function gives, and the least seconds and CPU seconds of several runs."""
    results = []
    found = None
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        found = run()
        results.append((time.perf_counter() - wall, time.process_time() - cpu))
    return found, min(wall for wall, _ in results), min(cpu for _, cpu in results)


def compare(name: str, make: Callable[[], tuple[Any, dict[str, torch.Tensor]]], *, quick: bool) -> None:
    """Print one model's figures."""
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

    def deep() -> int:
        found = ours()
        return len(found) + len(found.drill("model"))

    _, plain_wall, plain_cpu = measured(plain, REPEATS)
    found, wall, cpu = measured(ours, REPEATS)
    points, deep_wall, deep_cpu = measured(deep, 2)
    print(f"{name}: torch forward + session + run {plain_wall:.3f} s, {plain_cpu:.3f} CPU s")
    print(
        f"  compare_torch: {len(found):,} points, cumulative and isolated, {wall:.3f} s, {cpu:.3f} CPU s: "
        f"{wall / plain_wall:.1f}× ({cpu / plain_cpu:.1f}× CPU)"
    )
    print(f"  and every operation, drill('model'): {points:,} points in all, {deep_wall:.3f} s, {deep_cpu:.3f} CPU s")
    if quick:
        return
    from torch.onnx.verification import verify_onnx_program

    verified, their_wall, their_cpu = measured(lambda: verify_onnx_program(program, compare_intermediates=True), 1)
    print(
        f"  verify_onnx_program: {len(verified):,} values, {their_wall:.1f} s, {their_cpu:.1f} CPU s: "
        f"{their_cpu / cpu:,.0f}× the CPU of compare_torch, {their_cpu / deep_cpu:,.0f}× with every operation"
    )


def main() -> None:
    """Measure what was asked for."""
    known = {"bert": bert, "resnet50": resnet50}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(known), choices=list(known), metavar="MODEL")
    parser.add_argument("--quick", action="store_true", help="without torch's own verification")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in chosen.models:
            compare(name, known[name], quick=chosen.quick)


if __name__ == "__main__":
    main()
