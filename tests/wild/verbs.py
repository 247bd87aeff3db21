"""Each verb on a model without a written feed, and what it must not change on the feeds that were made up."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import onnx

import onnx_nb
from tests.conformance import verbs as conformance
from tests.conformance.cases import Case, Runnable, plain

SECONDS: Final = 600
"""Seconds after which a command is stopped."""
COMMANDS: Final = {
    "summary": ("summary", "{path}"),
    "capture": ("capture", "{path}"),
    "profile": ("profile", "{path}"),
    "compare": ("compare", "{path}", "{path}"),
    "simplify": ("simplify", "{path}", "-o", "{folder}/simplified.onnx"),
    "report": ("report", "{folder}/report.html", "{path}"),
}
"""Command → its arguments."""


def _simplified(path: Path) -> str:
    simplified = onnx_nb.simplify(path)
    said = repr(simplified)
    return conformance.RIGHT if ", verified" in said else f"wrong: {said}"


def _self_compared(path: Path) -> str:
    message = onnx_nb.compare(path, path).message
    return conformance.RIGHT if "are equal" in message else f"wrong: {message}"


def _succeeds(verb: Callable[[Path], Any]) -> Callable[[Path], str]:
    def outcome(path: Path) -> str:
        verb(path)
        return conformance.RIGHT

    return outcome


WITHOUT_FEEDS: Final[dict[str, Callable[[Path], str]]] = {
    "run": _succeeds(onnx_nb.run),
    "capture": _succeeds(lambda path: onnx_nb.capture(path).rows()),
    "profile": _succeeds(onnx_nb.profile),
    "compare": _self_compared,
    "compare, no isolated errors": _succeeds(lambda path: onnx_nb.compare(path, path, isolated=False).message),
    "simplify": _simplified,
    "graph": _succeeds(lambda path: onnx_nb.ModelGraph(path).close()),
}
"""Verb → what calls it with the path alone."""
SAME: Final = (
    "extract", "extract, up to each node", "partition", "capture", "simplify", "save, convert, inline", "diff", "draw",
    "summarize", "costs",
)  # fmt: skip
"""Verbs of the conformance suite, on the feeds that were made up; the truth is onnxruntime."""


def outcomes(path: Path) -> dict[str, Any]:
    """Return what each verb and command makes of a model: "right" or what went wrong, and its seconds."""
    said: dict[str, tuple[str, float]] = {}

    def note(name: str, verb: Callable[[], str]) -> None:
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = verb()
        except onnx_nb.OnnxNbError as error:
            outcome = f"failed: {error}"
        except Exception as error:  # noqa: BLE001  # the table shows it, and the other verbs go on
            outcome = f"failed: {type(error).__name__}: {error}"
        said[name] = outcome, time.perf_counter() - begin

    for name, verb in WITHOUT_FEEDS.items():
        note(name, lambda verb=verb: verb(path))  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in COMMANDS.items():
            note(f"onnx-nb {name}", lambda a=arguments: _command(a, path, folder))  # type: ignore[misc]
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:  # onnx sets it where it has read a file of weights
        if tensor.data_location == onnx.TensorProto.DEFAULT:
            tensor.ClearField("data_location")
    try:
        model = onnx_nb.load(path)
        onnx_nb.run(model)  # which finds out what suits the model
        feeds = onnx_nb.random_feeds(model)
        outputs = plain(proto, feeds, optimize=True)
    except Exception as error:  # noqa: BLE001  # onnxruntime has many
        said["onnxruntime on these feeds"] = f"failed: {error}", 0.0
        return {"said": said, "feeds": {}, "nodes": len(proto.graph.node)}
    one = Runnable(Case(path.stem, proto, [], []), proto, feeds, outputs)
    for name in SAME:
        note(f"same: {name}", lambda name=name: conformance.VERBS[name](one))  # type: ignore[misc]
    shapes = {name: list(getattr(value, "shape", [])) for name, value in feeds.items()}
    return {"said": said, "feeds": shapes, "nodes": sum(node.op_type != "Constant" for node in proto.graph.node)}


def _command(arguments: tuple[str, ...], path: Path, folder: str) -> str:
    filled = [argument.format(path=path, folder=folder) for argument in arguments]
    command = [sys.executable, "-m", "onnx_nb", *filled]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return conformance.RIGHT if not done.returncode else f"failed: {' '.join(lines[-3:])[:300]}"


if __name__ == "__main__":  # in a process of its own, which may end badly
    Path(sys.argv[2]).write_text(json.dumps(outcomes(Path(sys.argv[1]))), "utf-8")
