"""Run all cases through all verbs, and write docs/conformance.md: ``python -m tests.conformance``.

``--sources`` and ``--verbs`` run some of them; the page is written from the last results of each.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.cases import SOURCES, runnable
from tests.conformance.verbs import VERBS, outcome

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "conformance"
PAGE = ROOT / "docs" / "conformance.md"
PACKAGES = ("onnx_nb", "onnx", "onnxruntime", "numpy", "torch", "transformers")
KINDS = ("right", "wrong", "left out")
SHOWN = {"node": "node", "folder": "simple and pytorch", "larger": "light and larger"}
"""Source → the head of its column."""
INTRODUCTION = (
    "Every case that onnx ships for backends goes through every verb; `make conformance` writes this page. *node* has "
    "one small model for each operator and its options, *simple and pytorch* are the cases that come as folders, and "
    "*light and larger* are onnx's light models, exports by both exporters of PyTorch, and models with control flow, "
    "functions and a chain of 1,000 nodes. The truth is what onnxruntime gives, asked without onnx_nb, and compared "
    "bit by bit; what `simplify` gives may differ by roundings."
)


def kind_of(said: str) -> str:
    """Return "right", "left out" or "wrong" of what a verb made of a case."""
    return said.partition(":")[0].partition(",")[0]


def run(source: str, verbs: list[str]) -> None:
    """Run the cases of a source through verbs and keep what came out."""
    found, left = runnable(source)
    refused = dict(left.most_common())
    print(f"{source}: {len(found):,} cases that onnxruntime runs, {left.total():,} that it does not", flush=True)
    for verb in verbs:
        said = {one.case.name: outcome(VERBS[verb], one) for one in found}
        counts = Counter(map(kind_of, said.values()))
        print(f"{verb:36}{counts['right']:>8,}{counts['wrong']:>8,}{counts['left out']:>10,}", flush=True)
        for name, text in said.items():
            if kind_of(text) == "wrong":
                print(f"  {name}: {text[:300]}", flush=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        content = {"source": source, "verb": verb, "refused": refused, "said": said}
        name = f"{source}, {verb}.json".replace(" ", "_")
        (RESULTS / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(results: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Return the page of all results."""
    sources = [source for source in SOURCES if any(key[0] == source for key in results)]
    refused, rows, reasons, wrong = [], [], Counter[tuple[str, str]](), list[list[str]]()
    for source in sources:
        left = next(one["refused"] for key, one in results.items() if key[0] == source)
        number = len(next(one["said"] for key, one in results.items() if key[0] == source))
        why = "; ".join(f"{count:,} {reason}" for reason, count in left.items())
        refused.append([SHOWN[source], f"{number:,}", why or "none"])
    for verb in VERBS:
        row = [verb]
        for source in sources:
            said = results.get((source, verb), {"said": {}})["said"]
            counts = Counter(map(kind_of, said.values()))
            row.append(", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind]) or "not run")
            for name, text in said.items():
                kind, _, about = text.partition(": ")
                if kind == "left out":
                    reasons[verb, about] += 1
                elif kind == "wrong":
                    wrong.append([verb, name, about.replace("|", "\\|").replace("\n", " ")[:300]])
        rows.append(row)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    heads = ["", *(SHOWN[source] for source in sources)]
    parts = [
        "# Conformance",
        INTRODUCTION,
        f"Run with Python {platform.python_version()}, {versions}.",
        table(["cases", "that onnxruntime runs", "that it does not, and why"], refused),
        table(heads, rows),
    ]
    if wrong:
        parts += ["## Wrong", table(["verb", "case", "what is wrong"], wrong)]
    if reasons:
        lines = [[verb, f"{count:,}", reason] for (verb, reason), count in reasons.items()]
        parts += ["## Left out", table(["verb", "cases", "why nothing could be compared"], lines)]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Run what was asked for and write the page; 1 if a case goes wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--verbs", nargs="*", default=list(VERBS), choices=VERBS)
    chosen = parser.parse_args()
    for source in chosen.sources:
        run(source, chosen.verbs)
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    results = {(one["source"], one["verb"]): one for one in read}
    PAGE.write_text(page(results), encoding="utf-8")
    asked = [one for key, one in results.items() if key[0] in chosen.sources and key[1] in chosen.verbs]
    return int(any(kind_of(text) == "wrong" for one in asked for text in one["said"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
