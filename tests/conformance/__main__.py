"""All cases through all verbs, in one table: ``python -m tests.conformance [--sources …] [--verbs …]``."""

from __future__ import annotations

import argparse
from collections import Counter

from tests.conformance.cases import SOURCES, runnable
from tests.conformance.verbs import VERBS, outcome


def main() -> int:
    """Print the table; 1 if a case goes wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--verbs", nargs="*", default=list(VERBS), choices=VERBS)
    chosen = parser.parse_args()
    table: dict[str, Counter[str]] = {verb: Counter() for verb in chosen.verbs}
    reasons = Counter[str]()
    for source in chosen.sources:
        found, left = runnable(source)
        reasons.update(left)
        print(f"{source}: {len(found):,} cases that onnxruntime runs, {left.total():,} that it does not", flush=True)
        for verb in chosen.verbs:
            for one in found:
                said = outcome(VERBS[verb], one)
                table[verb][said.partition(":")[0].partition(",")[0]] += 1
                if said.startswith("left out"):
                    reasons[f"{verb}: {said.removeprefix('left out: ')}"] += 1
                elif said.startswith("wrong"):
                    print(f"  {verb}, {one.case.name}: {said[:200]}", flush=True)
    print(f"\n{'verb':36}{'right':>8}{'wrong':>8}{'left out':>10}")
    for verb, outcomes in table.items():
        print(f"{verb:36}{outcomes['right']:>8,}{outcomes['wrong']:>8,}{outcomes['left out']:>10,}")
    print("\nleft out because")
    for reason, count in reasons.most_common():
        print(f"  {count:>5,}  {reason}")
    return int(any(outcomes["wrong"] for outcomes in table.values()))


if __name__ == "__main__":
    raise SystemExit(main())
