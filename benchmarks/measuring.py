"""The one way in which benchmarks measure: each way of doing a thing in processes of its own, in turn.

A `Way` is code: a setup, which is not counted, and a statement, which is. A process reports the CPU seconds of all its
threads, the seconds that passed, and how far its peak memory grew. The ways of a row run in turn, so that other load on
the machine affects all of them; the medians are compared. A `Report` prints rows as they come, checks each against its
limit and keeps them in build/benchmarks, from which ``python -m benchmarks`` writes docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "build" / "benchmarks"
ROUNDS: Final = 5
"""Number of processes of each way, unless a row says otherwise."""


class Way(NamedTuple):
    """A way of doing something, as code that runs in a process of its own; ``given`` are its variables."""

    statement: str
    """Code that is measured. What it assigns to ``more``, a dict of numbers, is reported too."""
    setup: str = ""
    """Code that runs before, such as imports and the first session of a process."""
    repeats: int = 1
    """How often the statement runs in one process; the least seconds count."""


@dataclass(frozen=True)
class Figures:
    """What a way took in each of its processes."""

    cpu: tuple[float, ...] = ()
    """CPU seconds of all threads."""
    wall: tuple[float, ...] = ()
    """Seconds that passed."""
    memory: tuple[float, ...] = ()
    """MiB by which the peak memory grew."""
    more: Mapping[str, float] = field(default_factory=dict)
    """Other numbers that the last process reported."""
    failed: str = ""
    """Why there are no figures, or no more of them."""

    def median(self, kind: str) -> float:
        """Return the median of "cpu", "wall" or "memory", or one of the other numbers; infinite if it failed."""
        if kind in self.more:
            return self.more[kind]
        values = getattr(self, kind, ())  # a way that failed reported nothing
        return statistics.median(values) if values else float("inf")

    def spread(self, kind: str) -> float:
        """Return the distance from the least to the largest value, relative to the median."""
        values = getattr(self, kind, ())  # a way that failed reported nothing
        return (max(values) - min(values)) / statistics.median(values) if values and statistics.median(values) else 0.0


def measured(
    ways: Mapping[str, Way], given: Mapping[str, Any] | None = None, *, rounds: int = ROUNDS, timeout: float = 900
) -> dict[str, Figures]:
    """Run each way in ``rounds`` processes, in turn, and return its figures.

    A way that fails, or takes longer than ``timeout`` seconds, is not tried again.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            if name not in failed:
                found = _process(way, given or {}, timeout)
                if isinstance(found, str):
                    failed[name] = found
                else:
                    runs[name].append(found)

    def each(name: str, kind: str) -> tuple[float, ...]:
        return tuple(run[kind] for run in runs[name])

    return {
        name: Figures(
            each(name, "cpu"),
            each(name, "wall"),
            each(name, "memory"),
            runs[name][-1]["more"] if runs[name] else {},
            failed.get(name, ""),
        )
        for name in ways
    }


def _process(way: Way, given: Mapping[str, Any], timeout: float) -> dict[str, Any] | str:
    """Return the figures of one process, or why there are none."""
    asked = json.dumps({**way._asdict(), "given": dict(given)})
    command = [sys.executable, "-m", "benchmarks.measuring"]
    try:
        done = subprocess.run(
            command, input=asked, check=False, capture_output=True, cwd=ROOT, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return f"not done in {timeout:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"ends with {done.returncode}"])[-1][:200]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak() -> float:
    """Return the peak memory of this process in MiB."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None  # noqa: S101 (Linux has it)
    return int(found[1]) / 1024


def _child() -> None:
    """Measure the way on standard input in this process and print its figures."""
    asked = json.load(sys.stdin)
    space: dict[str, Any] = {**asked["given"], "more": {}}
    exec(compile(asked["setup"], "setup", "exec"), space)  # noqa: S102 (our own code)
    statement = compile(asked["statement"], "statement", "exec")
    # importing may have peaked higher than what is left of it: start from what is there now
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, growth, cpu, wall = peak(), 0.0, float("inf"), float("inf")
    for _ in range(asked["repeats"]):
        began, began_wall = time.process_time(), time.perf_counter()
        exec(statement, space)  # noqa: S102
        cpu, wall = min(cpu, time.process_time() - began), min(wall, time.perf_counter() - began_wall)
        growth = growth or peak() - before
    print()
    print(json.dumps({"cpu": cpu, "wall": wall, "memory": growth, "more": space["more"]}))


# --- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A line of a report."""

    what: str
    figures: Mapping[str, str]
    """Figures as text, by column."""
    limit: str = ""
    holds: bool = True


class Report:
    """Rows of a benchmark with their limits, printed as they come."""

    def __init__(self, name: str, text: str | None) -> None:
        self.name, self.text = name.rpartition(".")[2], (text or "").strip()
        self.rows: list[Row] = []
        self.series: dict[str, dict[str, dict[int, float]]] = {}
        """Title of a plot → way → number of nodes → CPU seconds."""
        print(self.text.partition("\n")[0], flush=True)

    def row(self, what: str, figures: Mapping[str, str], limit: str = "", *, holds: bool = True) -> None:
        """Add a line; one without a limit is informative."""
        self.rows.append(Row(what, dict(figures), limit, holds))
        verdict = "" if not limit else "holds" if holds else "FAILS"
        said = ", ".join(f"{name} {figure}".strip() for name, figure in figures.items())
        print(f"  {verdict:6}{what}: {said}{f' (limit: {limit})' if limit else ''}", flush=True)

    def most(self, what: str, figure: float, limit: float, unit: str, digits: int = 0) -> None:
        """Add one figure that must not exceed its limit."""
        text = f"{figure:.{digits}f} {unit}"
        self.row(what, {"onnx_nb": text}, f"{limit:g} {unit}", holds=figure <= limit)

    def compare(self, what: str, found: Mapping[str, Figures], limits: Sequence[Limit] = ()) -> None:
        """Add a line for the figures of some ways, of which ours is "onnx_nb", with all limits."""
        ours = found["onnx_nb"]
        texts = {name: figure_text(each) for name, each in found.items()}
        kept = [limit.holds(found) for limit in limits]
        self.row(what, texts, "; ".join(map(str, limits)), holds=all(kept) and not ours.failed)

    def close(self) -> int:
        """Write the rows, if all were asked for, and return the exit status: 1 if a limit does not hold."""
        content = {
            "name": self.name,
            "text": self.text,
            "rows": [asdict(row) for row in self.rows],
            "series": self.series,
        }
        if len(sys.argv) == 1:  # a part of the rows must not replace all of them on the page
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{self.name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        missed = [row.what for row in self.rows if not row.holds]
        print(f"  FAILS: {'; '.join(missed)}" if missed else "  every limit holds", flush=True)
        return 1 if missed else 0


class Limit(NamedTuple):
    """The most that a figure of ours may be: a part of a peer's, or, without a peer, a number."""

    kind: str
    """ "cpu" (seconds), "wall" (seconds), "memory" (MiB), or one of `Figures.more`."""
    most: float
    peer: str = ""

    def __str__(self) -> str:
        unit = {"memory": " MiB", "cpu": " CPU s", "wall": " s"}.get(self.kind, f" {self.kind}")
        name = {"cpu": "CPU time", "wall": "time"}.get(self.kind, self.kind)
        return f"{name} {self.most:.3g} of {self.peer}'s" if self.peer else f"{self.most:g}{unit}"

    def holds(self, found: Mapping[str, Figures]) -> bool:
        """Return whether ours keeps it; a peer that failed sets none."""
        ours = found["onnx_nb"].median(self.kind)
        return ours <= self.most * (found[self.peer].median(self.kind) if self.peer else 1)


def command_line(doc: str | None, known: Iterable[str], **flags: str) -> tuple[list[str], argparse.Namespace]:
    """Return the names that the command line chooses among the known ones, all if it has none, and its flags.

    ``flags`` are the names of switches with their help. A name that is not known ends the program with an error.
    """
    known = [*known]
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all if none")
    for flag, text in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - set(known))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}: choose from {', '.join(known)}")
    return chosen.names or known, chosen


def figure_text(found: Figures) -> str:
    """Return "0.44 CPU s ± 3 %, 20 MiB" for the figures of a way."""
    if not found.cpu:
        return found.failed or "–"
    more = "".join(f", {key} {value:,.6g}" for key, value in found.more.items())
    return f"{found.median('cpu'):.3g} CPU s ± {50 * found.spread('cpu'):.0f} %, {found.median('memory'):.0f} MiB{more}"


if __name__ == "__main__":
    _child()
