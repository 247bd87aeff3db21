"""Put every wild model through every verb and command, and write docs/real-models.md: ``python -m tests.wild``.

``python -m tests.wild NAME …`` takes the models whose paths have one of these texts. What simplify leaves is compared
with onnxsim and onnxslim, in processes of their own, where these give something that runs and agrees.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import onnx_nb
from benchmarks.simplification_counts import PEERS, agrees, operators, simplified
from tests.conformance.__main__ import kind_of, table
from tests.conformance.verbs import close
from tests.wild import collection
from tests.wild.verbs import COMMANDS, SAME, WITHOUT_FEEDS

PAGE: Final = Path(__file__).parents[2] / "docs" / "real-models.md"
RESULTS: Final = collection.CACHE / "results"
PATIENCE: Final = 3600
"""Seconds after which a model is given up."""
INTRODUCTION: Final = (
    "Trained models that ship inside packages, and small language models that onnxruntime-genai's own builder makes, "
    "go through every verb and command without a written feed; `make wild` writes this page. A verb is right if it "
    "ends without an error and, where values are compared, if they are those of onnxruntime on the same made-up feeds, "
    "bit by bit (what `simplify` gives may differ by roundings). Seconds are of one run on two cores."
)


def outcome(path: Path) -> dict[str, Any]:
    """Return what the verbs make of a model, in a process of its own."""
    name = str(path.relative_to(collection.CACHE)).replace("/", "_")
    target = RESULTS / f"{name}.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.wild.verbs", str(path), str(target)]
    try:
        status = subprocess.run(command, check=False, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        status = PATIENCE
    if not target.exists():
        return {"said": {"process": [f"failed: it ended with {status}", 0.0]}, "feeds": {}, "nodes": 0}
    content: dict[str, Any] = json.loads(target.read_text("utf-8"))
    content["counts"] = counts(path)
    return content


def counts(path: Path) -> dict[str, str]:
    """Return how many nodes each simplifier leaves, or why its result does not count."""
    import onnx

    found = {"before": str(operators(onnx.load(path, load_external_data=False)).total())}
    ours, fewest = Counter[str](), Counter[str]()
    try:
        ours = operators(onnx_nb.simplify(path).model.to_proto())
        found["onnx_nb"] = str(ours.total())
    except onnx_nb.OnnxNbError:
        found["onnx_nb"] = "failed"
    model = onnx_nb.load(path)
    onnx_nb.run(model)  # which finds out what feeds suit it
    feed = onnx_nb.random_feeds(model, 1)
    for tool in (tool for tool in PEERS if importlib.util.find_spec(tool) is not None):
        result = simplified(tool, path)
        if result is None:
            found[tool] = "failed"
        else:
            theirs = operators(onnx.load(result))
            is_right = agrees(path, result, feed, close)
            found[tool] = str(theirs.total()) if is_right else "wrong"
            if is_right and theirs.total() < min(ours.total(), fewest.total() or ours.total()):
                fewest = theirs
                more, less = ours - theirs, theirs - ours
                texts = [f"{count} {op} more" for op, count in more.items()]
                found["more"] = (
                    ", ".join([*texts, *(f"{count} {op} fewer" for op, count in less.items())]) + f" than {tool}"
                )
    return found


def page(results: dict[str, dict[str, Any]], refused: dict[str, str]) -> str:
    """Return the page of all results."""
    names = [*WITHOUT_FEEDS, *(f"onnx-nb {name}" for name in COMMANDS), *(f"same: {name}" for name in SAME)]
    rows, models, wrong = [], [], []
    for name in names:
        said = {model: one["said"][name] for model, one in results.items() if name in one["said"]}
        kinds = [kind_of(text) for text, _ in said.values()]
        slow = max(said, key=lambda model: said[model][1], default="")
        figures = [str(kinds.count(kind)) for kind in ("right", "left out")]
        figures.append(str(len(kinds) - kinds.count("right") - kinds.count("left out")))
        rows.append([name, *figures, f"{said[slow][1]:.1f} s ({slow})" if slow else ""])
    for model, one in results.items():
        feeds = ", ".join(f"{name} {'×'.join(map(str, shape)) or 'number'}" for name, shape in one["feeds"].items())
        shown = feeds if len(feeds) < 160 else f"{feeds[:150]}… ({len(one['feeds'])} inputs)"
        figures = [one.get("counts", {}).get(tool, "") for tool in ("before", "onnx_nb", *PEERS)]
        models.append([model, shown, f"{sum(second for _, second in one['said'].values()):.0f}", *figures])
        wrong += [
            [model, verb, text.replace("|", "\\|").replace("\n", " ")[:400]] for verb, text in misses(one).items()
        ]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("onnx_nb", "onnx", "onnxruntime"))
    heads = ["model", "feeds made up", "seconds in all", "nodes", "onnx_nb", *PEERS]
    parts = [
        "# Real models",
        INTRODUCTION,
        f"{len(results)} models, with Python {platform.python_version()}, {versions}.",
        table(["", "right", "left out", "failed or wrong", "slowest"], rows),
        "*Left out* has the reasons of [](conformance.md).",
        table(heads, models),
    ]
    more = [f"- {model}: {text}" for model, one in results.items() if (text := one.get("counts", {}).get("more"))]
    if more:
        parts += ["Where another simplifier leaves fewer nodes, what onnx_nb leaves in place:", "\n".join(more)]
    if refused:
        parts.append(
            "The builder itself refuses: " + "; ".join(f"{name} ({why})" for name, why in refused.items()) + "."
        )
    if wrong:
        parts += ["## Failed or wrong", table(["model", "verb", "what it says"], wrong)]
    return "\n\n".join(parts) + "\n"


def misses(one: dict[str, Any]) -> dict[str, str]:
    """Return the verbs that failed or went wrong, and what they say."""
    return {verb: text for verb, (text, _) in one["said"].items() if kind_of(text) not in ("right", "left out")}


def main() -> int:
    """Run what was asked for, write the page if that is everything; 1 if something failed or went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    chosen = parser.parse_args().names
    built, refused = collection.generators()
    results = {}
    for path in [*collection.shipped(), *built]:
        name = str(path.relative_to(collection.CACHE).with_suffix("")).partition("/")[2].removesuffix("/model")
        if chosen and not any(text in name for text in chosen):
            continue
        results[name] = outcome(path)
        bad = misses(results[name])
        print(f"{name}: {len(results[name]['said']) - len(bad)} of {len(results[name]['said'])} right", flush=True)
        print(*(f"  {verb}: {text[:300]}" for verb, text in bad.items()), sep="\n", end="\n" if bad else "", flush=True)
        print(f"  nodes: {results[name].get('counts')}", flush=True)
    if not chosen:
        PAGE.write_text(page(results, refused), "utf-8")
    return int(any(map(misses, results.values())))


if __name__ == "__main__":
    raise SystemExit(main())
