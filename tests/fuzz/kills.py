"""Kill a process at random moments while it writes, for every public function that does.

After each kill a file is the former one or the new one, whole; the next save leaves nothing beside what it writes.

    python -m tests.fuzz.kills --kills 500
"""

from __future__ import annotations

import argparse
import functools
import inspect
import itertools
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_nb
from onnx_nb import external_data, types
from onnx_nb.analysis.model.save import write_file
from onnx_nb.analysis.view.overlays import overlay
from tests.depth import DEPTH

READERS = ("load", "read", "scope", "drill", "audit", "check", "overlay", "read_feeds", "debug")
"""Functions that take a path and write nothing."""


def public() -> Iterator[tuple[str, Any]]:
    """Yield the name and the function of everything public, methods of classes and functions of modules included."""
    for module in (onnx_nb, types):
        for name in module.__all__:
            entry = getattr(module, name)
            inside = list(vars(entry).items()) if inspect.ismodule(entry) else []
            if inspect.ismodule(entry):
                inside = [(key, value) for key, value in inside if getattr(value, "__module__", "") == entry.__name__]
            if inspect.isclass(entry):
                inside = [(key, inspect.getattr_static(entry, key)) for key in dir(entry)]
            for key, value in [("", entry), *inside]:
                function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else value
                function = getattr(function, "__func__", function)
                if (
                    inspect.isfunction(function)
                    and not key.startswith("_")
                    and function.__module__.startswith("onnx_nb")
                ):
                    yield f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}", function


def writers() -> set[str]:
    """Return the names of public functions that take a path and are no readers."""
    names = set()
    for name, function in public():
        annotations = [str(text) for key, text in function.__annotations__.items() if key != "return"]
        takes = any("PathLike" in text for text in annotations) or {"path", "folder"} & {*function.__annotations__}
        if takes and function.__name__ not in READERS:
            names.add(name)
    return names


def proto(seed: int, size: int = 30_000) -> ModelProto:
    """Return a model with weights of its own for each seed."""
    weights = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], name="n"), helper.make_node("Neg", ["y"], ["z"], name="m")],
        f"g{seed}",
        [info("x", TensorProto.FLOAT, [size])],
        [info("z", TensorProto.FLOAT, [size])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@functools.cache
def result(kind: str, seed: int) -> Any:
    """Return a result that can be saved."""
    model = proto(seed, 300)
    match kind:
        case "comparison":
            return onnx_nb.compare(model, proto(seed + 5, 300))
        case "profile":
            return onnx_nb.profile(model, runs=2)
        case "calibration":
            return onnx_nb.calibrate(onnx_nb.capture(model, ranges=True))
        case "reduction":
            return onnx_nb.reduce(model, lambda _model, _feeds: False)
        case "simplification":
            return onnx_nb.simplify(model)
    import torch

    linear = torch.nn.Linear(4, 4)
    torch.nn.init.constant_(linear.weight, 0.1 + seed)
    module = torch.nn.Sequential(linear, torch.nn.ReLU()).eval()
    x = torch.ones(1, 4)
    if kind == "alignment":
        return onnx_nb.align(onnx_nb.record(module, x), onnx_nb.export(module, x, exporter="torchscript"))
    return onnx_nb.compare_torch(module, (x,), model=onnx_nb.export(module, x, exporter="torchscript"))


@functools.cache
def debugging(seed: int) -> tuple[Any, Any]:
    """Return a debugger, and an export with a tensor that it debugs."""
    import torch

    debugger = onnx_nb.Debugger()

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return debugger.debug(x * (seed + 2), "twice") + 1

    exported = onnx_nb.export(Module().eval(), torch.ones(1, 4), exporter="torchscript")
    return debugger, exported


def debugged(seed: int, path: Path) -> Any:
    """Write a debug model."""
    debugger, exported = debugging(seed)
    return debugger.extract_debug_model(exported, path)


def panel(kind: str, seed: int) -> Any:
    """Return a widget."""
    model = proto(seed, 300)
    match kind:
        case "comparison":
            return onnx_nb.ComparisonPanel(result("comparison", seed))
        case "simplification":
            return onnx_nb.SimplificationPanel(result("simplification", seed))
        case "view":
            return onnx_nb.ModelView(model)
        case "graph":
            return onnx_nb.ModelGraph(model)
        case "diff":
            return onnx_nb.DiffPanel(model, proto(seed + 5, 300))
    return onnx_nb.ModelSummary(model)


Write = Callable[[Path, int], Any]
WRITERS: dict[str, Write] = {
    "model.Model.save": lambda to, n: onnx_nb.load(proto(n)).save(to / "m.onnx"),
    "weights": lambda to, n: onnx_nb.load(proto(n)).save(to / "m.onnx", external_data="m.data"),
    "external_data.convert": lambda to, n: external_data.convert(proto(n), to / "m.onnx", per_tensor=True),
    "external_data.inline": lambda to, n: external_data.inline(proto(n), to / "m.onnx"),
    "report.report": lambda to, n: onnx_nb.report(to / "r.html", {"A": onnx_nb.load(proto(n, 300))}),
    "align.Alignment.save": lambda to, n: result("alignment", n).save(to / "a.json"),
    "calibration.Calibration.save": lambda to, n: result("calibration", n).save(to / "c.json"),
    "comparison.Comparison.save": lambda to, n: result("comparison", n).save(to / "c.npz"),
    "edit.Edit.save": lambda to, n: onnx_nb.edit(proto(n)).output("z").save(to / "m.onnx", check=False),
    "overlays.Overlay.save": lambda to, n: overlay(proto(n), {"y": n, "z": 1.0}).save(to / "o.json", "netron"),
    "result.Profile.save": lambda to, n: result("profile", n).save(to / "p.json"),
    "result.Profile.to_chrome_trace": lambda to, n: result("profile", n).to_chrome_trace(to / "p.json"),
    "reduction.Reduction.save": lambda to, n: result("reduction", n).save(to / "part"),
    "drilldown.Reproduction.save": lambda to, n: result("torch", n).reproduce("0").save(to / "part"),
    "compare_torch.TorchComparison.reproduce": lambda to, n: result("torch", n).reproduce("0", to / "part"),
    "simplification.SimplificationPanel.save": lambda to, n: panel("simplification", n).save(
        to / "s.onnx", replace=True
    ),
    "_base.PackedWidget.to_html": lambda to, n: panel("summary", n).to_html(to / "p.html"),
    "comparison.ComparisonPanel.to_html": lambda to, n: panel("comparison", n).to_html(to / "p.html"),
    "graph.ModelView.to_html": lambda to, n: panel("view", n).to_html(to / "p.html"),
    "_graphs.GraphWidget.to_html": lambda to, n: panel("diff", n).to_html(to / "p.html"),
    "export.Debugger.extract_debug_model": lambda to, n: debugged(n, to / "d.onnx"),
    "link": lambda to, n: write_file(to / "link", bytes([n]) * 1_000_000),
}
"""What writes into a folder, one of two contents."""


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def killed(write: Callable[[int], Any], seconds: float) -> None:
    """Write one content after the other in a forked process that is killed after so many seconds."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        try:
            for number in itertools.count():
                write(number % 2)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == -signal.SIGKILL, "it ended before"


def same(content: bytes, other: bytes, *, exact: bool) -> bool:
    """Return whether two contents are equal, or end alike where each run has names of its own."""
    return (
        content == other
        if exact
        else (content[:15], content[-15:], len(content) > 100) == (*(other[:15], other[-15:]), True)
    )


def trial(name: str, count: int, dice: random.Random) -> tuple[int, list[str]]:
    """Kill one writer so many times; return how often this was in the middle of a file, and what was wrong."""
    write, wrong, hits = WRITERS[name], list[str](), 0
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text, "here")
        folder.mkdir()
        if name == "link":
            (folder / "target").write_bytes(b"")
            (folder / "link").symlink_to("target")
        states = []
        for number in (0, 1, 0, 1):
            started = time.perf_counter()
            write(folder, number)
            usual = time.perf_counter() - started
            states.append(files_of(folder))
        exact = states[:2] == states[2:]
        for attempt in range(count):
            killed(functools.partial(write, folder), usual * (1 + 3 * dice.random()))
            now = files_of(folder)
            hits += any(".tmp" in str(path) for path in folder.rglob("*"))
            for file, former in states[0].items():
                content = now.get(file, b"")
                if not any(same(content, state.get(file, former), exact=exact) for state in states[:2]):
                    wrong.append(f"{name}, kill {attempt}: {file} is neither the former nor the new one")
            for parent in {(folder / file).parent for file in states[0]}:  # any save clears what is left in its folder
                write_file(parent / "other", b"other").unlink()
            for path in folder.rglob("*"):
                if path.is_file() and path.stat().st_nlink != 1:
                    wrong.append(f"{name}, kill {attempt}: {path.name} has a second link")
            write(folder, 1)
            if files_of(folder).keys() != states[1].keys() or any(".tmp" in str(path) for path in folder.rglob("*")):
                wrong.append(f"{name}, kill {attempt}: left {sorted(files_of(folder).keys() - states[1].keys())}")
    return hits, wrong


def main() -> None:
    """Kill all writers in turn, and end with 1 if anything was lost or left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10 * DEPTH)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dice, faults, total = random.Random(options.seed), list[str](), 0
    each = -(-options.kills // len(WRITERS))
    for name in WRITERS:
        hits, wrong = trial(name, each, dice)
        faults += wrong
        total += hits
        print(f"{name}: {hits} of {each} kills in the middle of a file, {len(wrong)} faults", flush=True)
    print(f"{total} of {each * len(WRITERS)} kills in the middle of a file, {len(faults)} faults", *faults, sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
