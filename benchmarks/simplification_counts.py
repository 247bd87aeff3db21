"""Node counts of `onnx_nb.simplify`, onnxsim and onnxslim on exports of architectures of transformers.

Each architecture of `tests.architectures` is exported by TorchScript's exporter and by torch's default one, with
dynamic and with fixed sizes. Nodes are counted with those of subgraphs and functions and without Constant nodes, which
are a way to write an initializer. The result of onnx_nb is verified on random feeds of several sizes, without
onnxruntime's optimizations. A result of another tool is no count to reach if it computes something else or does not run
("wrong"), or if it has operators that the standard lacks ("contrib").
Exports and the results of other tools are cached under build/models. One rule is missing: of fixed sizes, onnxsim and
onnxslim write MatMul and Add as Gemm between Reshapes that merge with their neighbors (swin and detr, 3 to 5 nodes).
Run ``python -m benchmarks.simplification_counts [ARCHITECTURE …]``; it fails if onnx_nb has more nodes than the better
of the others in more than one of twenty exports, or is not verified anywhere.
"""

from __future__ import annotations

import collections
import importlib.metadata
import importlib.util
import itertools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import onnx_nb
from benchmarks.measuring import Report, Way, command_line, measured
from benchmarks.simplification import TOOLS
from onnx_nb.analysis.model.functions import canonical
from onnx_nb.analysis.model.tensors import all_nodes
from onnx_nb.analysis.run import session
from tests import models
from tests.architectures import ARCHITECTURES

PEERS: Final = ("onnxsim", "onnxslim")
SHARE: Final = 0.95
"""Fraction of the exports in which onnx_nb must have no more nodes than the better of the others."""
LIMIT: Final = 300
"""Seconds after which another tool is stopped."""


Operators = collections.Counter[str]


def operators(proto: onnx.ModelProto) -> Operators:
    """Return the number of nodes of each operator that computes something, named with its domain if not standard."""
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    names = (f"{canonical(node.domain)}.{node.op_type}".removeprefix(".") for node in all_nodes(nodes))
    return Operators(name for name in names if name != "Constant")


def simplified(tool: str, path: Path) -> Path | None:
    """Return the result of another tool, a file that is written once; None if the tool fails."""

    def build(target: Path) -> None:
        statement = f"{TOOLS[tool]}\nonnx.save(result, target)"
        given = {"path": str(path), "target": str(target)}
        measured({tool: Way(statement, f"import onnx, {tool}")}, given, rounds=1, timeout=LIMIT)
        target.touch()  # empty if it failed

    is_ours = path.is_relative_to(models.CACHE)
    name = path.relative_to(models.CACHE if is_ours else path.parents[2]).with_suffix("")
    found = models.cached(f"{tool}-{importlib.metadata.version(tool)}/{name}.onnx", build)
    return found if found.stat().st_size else None


def is_right(path: Path, other: Path) -> bool:
    """Return whether another model computes the same on two random feeds, of other sizes where it is dynamic."""
    inputs = onnx_nb.load(path).inputs
    symbols = {dim for value in inputs for dim in value.shape or () if isinstance(dim, str)}
    sizes = [dict.fromkeys(symbols, size) or None for size in (2, 5)]
    feeds = (onnx_nb.random_feeds(path, seed, shapes) for seed, shapes in enumerate(sizes))
    return all(agrees(path, other, feed, _close) for feed in feeds)


def agrees(path: Path, other: Path, feed: Mapping[str, Any], close: Callable[[Any, Any], bool]) -> bool:
    """Return whether another model computes the same on a feed, or on what it still takes of that."""
    expected = session.run(path, feed, optimize=False)
    try:
        taken = {value.name: feed[value.name] for value in onnx_nb.load(other).inputs}
        found = session.run(other, taken, optimize=False)
    except (onnx_nb.OnnxNbError, KeyError):
        return False
    return list(found) == list(expected) and all(map(close, found.values(), expected.values()))


def _close(found: Any, expected: Any) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def main() -> int:
    """Print a row for each export and check the limits."""
    verbose = "also print the operators of which onnx_nb leaves more"
    names, flags = command_line(__doc__, ARCHITECTURES, verbose=verbose)
    peers = [tool for tool in PEERS if importlib.util.find_spec(tool) is not None]
    report, reached = Report(__spec__.name, __doc__), list[bool]()
    for name, dynamo, dynamic in itertools.product(names, (False, True), (True, False)):
        what = f"{name}, {'default' if dynamo else 'TorchScript'}, {'dynamic' if dynamic else 'fixed'} sizes"
        try:
            path = models.exported(name, dynamo=dynamo, small=True, dynamic=dynamic)
        except RuntimeError as error:
            report.row(what, {"nodes": f"not exported: {str(error).strip().splitlines()[-1]:.90}"})
            continue
        reached.append(_compared(report, what, path, peers, verbose=flags.verbose))
    share = f"{sum(reached)} of {len(reached)}"
    report.row(
        "no more nodes than the better", {"onnx_nb": share}, f"{SHARE:.0%}", holds=sum(reached) >= SHARE * len(reached)
    )
    return report.close()


def _compared(report: Report, what: str, path: Path, peers: list[str], *, verbose: bool) -> bool:
    """Add a row; return whether onnx_nb has no more nodes than the better right result of the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = onnx_nb.simplify(path, size_budget=1 << 40)
    before, ours, others = operators(onnx_nb.load(path).proto), operators(s.model.proto), list[Operators]()
    figures = {"nodes": f"{before.total()}", "onnx_nb": f"{ours.total()}"}
    for tool in peers:
        result = simplified(tool, path)
        if result is None:
            figures[tool] = "fails"
            continue
        counts = operators(onnx.load(result))
        fault = "" if is_right(path, result) else " wrong"
        fault = fault or (" contrib" if any("." in name for name in counts.keys() - before.keys()) else "")
        figures[tool] = f"{counts.total()}{fault}"
        others += [] if fault else [counts]
    best = min(others, key=lambda counts: counts.total(), default=None)
    reached = best is None or ours.total() <= best.total()
    figures["≤"] = "yes" if reached else "NO"
    if best is not None and not reached and verbose:
        figures["≤"] += f" {dict(ours - best)}, not {dict(best - ours)}"
    report.row(what, figures, "verified", holds=s.verified)
    return reached


if __name__ == "__main__":
    raise SystemExit(main())
