"""Node counts of `onnx_nb.simplify`, onnxsim and onnxslim on exports of architectures of transformers.

Each architecture of `tests.architectures` is exported by TorchScript's exporter and by torch's default one, with
dynamic and with fixed sizes. Nodes are counted with those of subgraphs and functions and without Constant nodes, which
are a way to write an initializer. The result of onnx_nb is verified on random feeds of several sizes, without
onnxruntime's optimizations; a result of another tool that computes something else, or does not run, is no count to
reach, and is marked "wrong". Exports and the results of other tools are cached under build/models.
Run ``python -m benchmarks.simplification_counts [ARCHITECTURE …]``; it fails if onnx_nb has more nodes than the better
of the others in more than one of twenty exports, or is not verified anywhere.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import onnx_nb
from benchmarks.simplification import ROOT, TOOLS
from onnx_nb.analysis.model.tensors import all_nodes
from onnx_nb.analysis.run import session
from tests import models
from tests.architectures import ARCHITECTURES

PEERS: Final = tuple(tool for tool in TOOLS if tool != "onnx_nb")
SHARE: Final = 0.95
"""Fraction of the exports in which onnx_nb must have no more nodes than the better of the others."""
LIMIT: Final = 300
"""Seconds after which another tool is stopped."""
SCRIPT: Final = "import sys, onnx, {tool}\npath, target = sys.argv[1:]\n{statement}\nonnx.save(result, target)"


def operators(proto: onnx.ModelProto) -> collections.Counter[str]:
    """Return the number of nodes of each operator that computes something."""
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    return collections.Counter(node.op_type for node in all_nodes(nodes) if node.op_type != "Constant")


def simplified(tool: str, path: Path) -> Path | None:
    """Return the result of another tool, a file that is written once; None if the tool fails."""

    def build(target: Path) -> None:
        command = [sys.executable, "-c", SCRIPT.format(tool=tool, statement=TOOLS[tool]), str(path), str(target)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, check=False, capture_output=True, cwd=ROOT, timeout=LIMIT)
        target.touch()  # empty if it failed

    name = path.relative_to(models.CACHE).with_suffix("")
    found = models.cached(f"{tool}-{importlib.metadata.version(tool)}/{name}.onnx", build)
    return found if found.stat().st_size else None


def is_right(path: Path, other: Path) -> bool:
    """Return whether another model computes the same on two random feeds, of other sizes where it is dynamic."""
    inputs = onnx_nb.load(path).inputs
    symbols = {dim for value in inputs for dim in value.shape or () if isinstance(dim, str)}
    for seed, size in enumerate((2, 5)):
        feed = onnx_nb.random_feeds(path, seed, dict.fromkeys(symbols, size) or None)
        expected = session.run(path, feed, optimize=False)
        try:
            taken = {value.name: feed[value.name] for value in onnx_nb.load(other).inputs}
            found = session.run(other, taken, optimize=False)
        except (onnx_nb.OnnxNbError, KeyError):
            return False
        if list(found) != list(expected) or not all(_close(found[name], expected[name]) for name in expected):
            return False
    return True


def _close(found: Any, expected: Any) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def main() -> int:
    """Print a table and check the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ARCHITECTURE", help=f"of {', '.join(ARCHITECTURES)}; all if none")
    parser.add_argument("--fixed", action="store_true", help="also exports with fixed sizes")
    parser.add_argument("--verbose", action="store_true", help="also print the operators of which onnx_nb leaves more")
    chosen = parser.parse_args()
    peers = [tool for tool in PEERS if importlib.util.find_spec(tool) is not None]
    for missing in sorted(set(PEERS) - set(peers)):
        print(f"{missing} is not installed and is left out: pip install {missing}")
    print(f"{'architecture':<30}{'exporter':<13}{'sizes':<9}{'nodes':>6}{'onnx_nb':>9}", end="")
    print("".join(f"{tool:>16}" for tool in peers) + f"{'≤':>5}{'verified':>10}")
    compared = reached = 0
    missed = list[str]()
    for name in chosen.names or ARCHITECTURES:
        for dynamo in (False, True):
            for dynamic in [True] + [False] * chosen.fixed:
                label = f"{name:<30}{'default' if dynamo else 'TorchScript':<13}{'dynamic' if dynamic else 'fixed':<9}"
                try:
                    path = models.exported(name, dynamo=dynamo, small=True, dynamic=dynamic)
                except RuntimeError as error:
                    print(f"{label} is not exported: {str(error).strip().splitlines()[-1]:.90}", flush=True)
                    continue
                ours, best = _row(label, path, peers, verbose=chosen.verbose)
                missed += [f"{' '.join(label.split())} is not verified"] * (ours < 0)
                compared += 1
                reached += best is None or 0 <= ours <= best
    print(f"in {reached} of {compared} exports no more nodes than the better of the others, at least {SHARE:.0%}")
    missed += ["node counts"] * (reached < SHARE * compared)
    print(f"MISSED: {'; '.join(missed)}" if missed else "holds")
    return 1 if missed else 0


def _row(label: str, path: Path, peers: list[str], *, verbose: bool) -> tuple[int, int | None]:
    """Print a row; return our nodes, −1 if not verified, and those of the better right result of the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = onnx_nb.simplify(path, size_budget=1 << 40)
    ours, others, cells = operators(s.model.proto), list[collections.Counter[str]](), ""
    for tool in peers:
        result = simplified(tool, path)
        counts = None if result is None else operators(onnx.load(result))
        right = result is not None and is_right(path, result)
        others += [counts] if counts is not None and right else []
        cells += f"{'fails' if counts is None else f'{counts.total()}' if right else f'{counts.total()} wrong':>16}"
    best = min(others, key=lambda counts: counts.total(), default=None)
    total, least = ours.total(), None if best is None else best.total()
    reached = least is None or total <= least
    before = operators(onnx_nb.load(path).proto).total()
    print(
        f"{label}{before:>6}{total:>9}{cells}{'yes' if reached else 'NO':>5}{'yes' if s.verified else 'NO':>10}",
        flush=True,
    )
    if verbose and best is not None and not reached:
        more = {op: (ours[op], best[op]) for op in sorted({*ours, *best}) if ours[op] != best[op]}
        print("    " + ", ".join(f"{op} {mine}, not {theirs}" for op, (mine, theirs) in more.items()))
    if not s.verified:
        print(f"    {s.verification}")
    return total if s.verified else -1, least


if __name__ == "__main__":
    raise SystemExit(main())
