"""Fuzz all verbs for some minutes, or replay what was found: ``python -m tests.fuzz --minutes 60``."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import onnx_nb
from tests.fuzz import hostile, mutate
from tests.fuzz.isolated import SPENT, Find, finds
from tests.fuzz.verbs import VERBS

FINDS = Path(__file__).with_name("finds")
SAMPLE = 6
"""Verbs that each mutated model goes through."""


def main() -> int:
    """Run the command line; the exit status is 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--replay", action="store_true", help="run the files of earlier finds and the hostile models")
    parser.add_argument("--without", nargs="*", default=(), help="names of files and models that are not replayed")
    parser.add_argument("--verbs", nargs="*", default=list(VERBS))
    parser.add_argument("--finds", type=Path, default=FINDS, help="the folder of the finds")
    options = parser.parse_args()
    for name in dir(onnx_nb):  # imported once here, not in every child
        getattr(onnx_nb, name, None)
    if options.replay:
        return _replay(options.verbs, options.without, options.finds)
    return _fuzz(options.minutes, options.seed, options.verbs, options.finds)


def _replay(verbs: list[str], without: Sequence[str], folder: Path) -> int:
    """Print the finds of each file as a line of JSON."""
    files = {path.stem: path.read_bytes for path in sorted(folder.glob("*.onnx"))}
    built = {name: lambda build=build: build().SerializeToString() for name, build in hostile.BUILT.items()}
    found_any = False
    for name, data in (files | built).items():
        if name not in without:
            SPENT.clear()
            found = [tuple(find) for find in finds(data(), verbs)]
            found_any |= bool(found)
            line = {"name": name, "finds": found, "seconds": round(sum(SPENT), 2)}
            print(json.dumps(line), flush=True)  # noqa: T201
    return int(found_any)


def _fuzz(minutes: float, seed: int, verbs: list[str], folder: Path) -> int:
    """Mutate until the time is up; keep the smallest file of each new find."""
    print(f"{len(mutate.seeds())} seeds, {len(verbs)} verbs, random seed {seed}", flush=True)  # noqa: T201
    end = time.monotonic() + 60 * minutes
    known: set[Find] = set()
    tried = 0
    while time.monotonic() < end:
        drawn = random.Random(f"{seed} {tried}")
        data = mutate.mutated(drawn)
        tried += 1
        # the verbs share most of their code: more models find more than all verbs on each
        for find in finds(data, drawn.sample(verbs, min(SAMPLE, len(verbs)))):
            if find in known:
                continue
            known.add(find)

            def again(smaller: bytes, wanted: Find = find) -> bool:
                return wanted in finds(smaller, [wanted.verb])

            small = mutate.smallest(data, again) if again(data) else data
            digest = hashlib.sha256(small).hexdigest()[:8]
            path = folder / f"{find.name}-{digest}.onnx"
            folder.mkdir(exist_ok=True)
            path.write_bytes(small)
            print(f"{tried}: {find.verb} {find.kind} {find.about} → {path.name}, {len(small)} B", flush=True)  # noqa: T201
        if tried % 500 == 0:
            print(f"{tried} models, {len(known)} finds", flush=True)  # noqa: T201
    print(f"{tried} models, {len(known)} finds", flush=True)  # noqa: T201
    return int(bool(known))


sys.exit(main())
