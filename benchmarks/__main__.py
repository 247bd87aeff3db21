"""Run all benchmarks, and write docs/performance.md and docs/growth.svg: ``python -m benchmarks [NAME …]``.

``--write`` writes them from the last results of each, without running anything. A part without results keeps its
section of the page, with the day on which it was measured.
"""

from __future__ import annotations

import ast
import datetime as dt
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.growth import NODES
from benchmarks.measuring import RESULTS, ROOT, command_line

NAMES = (
    "load",
    "extraction",
    "edits",
    "external_data",
    "capture",
    "calibration",
    "arrays",
    "comparison",
    "compare_torch",
    "alignment",
    "decoding",
    "profile",
    "mapping",
    "simplification",
    "simplification_truth",
    "simplification_counts",
    "growth",
    "view",
    "startup",
)
INTRODUCTION = (
    "Ours and the peer on the same work, written by `make bench`. Each figure is from processes of its own, of which "
    "all ways of a row run in turn: CPU seconds of all threads as median ± half the spread, and MiB by which the peak "
    "memory grew."
)
PACKAGES = ("onnx_nb", "onnx", "onnxruntime", "numpy", "torch", "onnxsim", "onnxslim", "netron", "jupyterlab")


def machine() -> str:
    """Return a sentence about this machine and the versions of packages."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.exists() else None
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    processor = found[1] if found else platform.machine()
    return (
        f"{os.cpu_count()} cores ({processor}), {memory:.0f} GiB, no GPU, {platform.system()}, "
        f"Python {platform.python_version()}; {', '.join(versions)}."
    )


def cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def heading(text: str) -> str:
    """Return the heading of the benchmark that begins its docstring so."""
    return f"## {text.partition(chr(10))[0].rstrip('.')}"


def section(content: dict[str, Any], day: dt.date) -> str:
    """Return the Markdown of one benchmark."""
    text = re.sub(r"``", "`", content["text"].partition("\n")[2].strip())
    lines = [heading(content["text"]), "", text, "", f"Measured on {day:%d %B %Y}.", ""]
    rows = content["rows"]
    columns: dict[str, None] = {}
    for row in rows:
        columns.update(dict.fromkeys(row["figures"]))
    limits = any(row["limit"] for row in rows)
    heads = ["", *columns, *(["limit", ""] if limits else [])]
    lines += ["| " + " | ".join(map(cell, heads)) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [row["what"].strip(), *(row["figures"].get(name, "") for name in columns)]
        if limits:
            cells += [row["limit"], ("holds" if row["holds"] else "**fails**") if row["limit"] else ""]
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    return "\n".join(lines)


def plot(series: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw the growth of each verb with that of its peers."""
    across = 3
    down = -(-len(series) // across)
    figure = Figure(figsize=(11, 3 * down), layout="constrained")
    for place, (verb, ways) in enumerate(series.items()):
        axes = figure.add_subplot(down, across, place + 1)
        for name, seconds in ways.items():
            style = {"color": "#2563eb", "linewidth": 2} if name == "onnx_nb" else {"color": "#9ca3af"}
            axes.plot([*map(int, seconds)], [*seconds.values()], marker="o", markersize=3, label=name, **style)
        axes.set(xscale="log", yscale="log", title=verb, xlabel="nodes", ylabel="CPU seconds", xlim=(800, 130_000))
        axes.set_xticks(NODES, [f"{nodes // 1000}k" for nodes in NODES])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, facecolor="white", metadata={"Date": None})


def write(docs: Path = ROOT / "docs", results: Path = RESULTS) -> None:
    """Write the page from the results that there are; the other sections stay as they are."""
    page = docs / "performance.md"
    before = page.read_text(encoding="utf-8").strip() if page.exists() else ""
    sections = {part.partition("\n")[0]: part.strip() for part in re.split(r"^(?=## )", before, flags=re.MULTILINE)}
    parts = ["# Performance", INTRODUCTION, f"The last part ran on {machine()}"]
    for name in NAMES:
        file = results / f"{name}.json"
        if file.exists():
            content = json.loads(file.read_text(encoding="utf-8"))
            parts.append(section(content, dt.datetime.fromtimestamp(file.stat().st_mtime, tz=dt.UTC).date()))
            if content.get("series"):
                plot(content["series"], docs / "growth.svg")
                parts.append("![CPU time by number of nodes, ours and peers](growth.svg)")
            continue
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        known = sections.get(heading(ast.get_docstring(ast.parse(source)) or ""))
        if known is None:
            print(f"docs/performance.md has no section of {name}: python -m benchmarks {name}")
        else:
            parts.append(known)
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def main() -> int:
    """Run what was asked for and write the page; 1 if a limit does not hold."""
    names, flags = command_line(__doc__, NAMES, write="write the page from the last results")
    failed = []
    for name in [] if flags.write else names:
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False, cwd=ROOT)
        failed += [name] * (done.returncode != 0)
    write()
    print(f"a limit does not hold in: {', '.join(failed)}" if failed else "every limit holds")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
