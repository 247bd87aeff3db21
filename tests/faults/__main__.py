"""``python -m tests.faults``: a table of what `compare_torch` says of faults planted into exports.

Ends with 1 if the goals do not hold.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.faults.judging import Verdict, verdicts
from tests.faults.planting import KINDS

GOAL: Final = 0.98
"""Least share of faults for which each judgment is right."""
JUDGED: Final = ("first", "ranked", "drill")
SHOWN: Final = (*JUDGED, "inside")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return the exit status."""
    from tests import modules
    from tests.faults.architectures import ARCHITECTURES, IMPOSSIBLE, LENGTHS

    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("architectures", nargs="*", metavar="ARCHITECTURE", help=", ".join(ARCHITECTURES))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--exporters", nargs="+", choices=list(modules.EXPORTS), default=list(modules.EXPORTS))
    parser.add_argument("--lengths", nargs="+", choices=list(LENGTHS), default=list(LENGTHS))
    parser.add_argument("--places", type=int, default=1, help="places of each kind of fault in each export")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write every verdict to this file")
    chosen = parser.parse_args(arguments)
    names = chosen.architectures or list(ARCHITECTURES)
    every = itertools.product(names, chosen.lengths, chosen.exporters)
    which = [each for each in every if (each[0], each[2]) not in IMPOSSIBLE]
    made: list[Verdict] = []
    sounds: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        work = [pool.submit(verdicts, [each], chosen.kinds, chosen.places, _quiet) for each in which]
        for each, done in zip(which, work, strict=True):
            some, alarms, less = done.result()
            made += some
            sounds |= alarms
            dropped.update(less)
            print(*each, len(some), file=sys.stderr, flush=True)
            if chosen.json:
                chosen.json.write_text(
                    json.dumps([verdict._asdict() for verdict in made], indent=1, ensure_ascii=False)
                )
    return _printed(made, sounds, dropped)


def _quiet(_done: str) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"


def _printed(made: list[Verdict], sounds: dict[str, str], dropped: Counter[str]) -> int:
    for title in ("architecture", "kind", "exporter", "length"):
        print(f"\n{title:20} faults   first  ranked   drill  inside")
        for name in dict.fromkeys(getattr(verdict, title) for verdict in made):
            print(_row(name, [verdict for verdict in made if getattr(verdict, title) == name]))
    print(f"\n{_row('all', made)}")
    print(f"not counted: {', '.join(f'{count} {why}' for why, count in dropped.items()) or 'none'}")
    mispaired = [len(verdict.mispaired) for verdict in made]
    print(f"{sum(mispaired):,} of {sum(verdict.points for verdict in made):,} points are paired wrongly")
    alarms = {name: text for name, text in sounds.items() if text}
    print(f"{len(sounds)} sound exports, {len(alarms)} false alarms")
    for name, text in alarms.items():
        print(f"  {name}: {text}")
    for verdict in made:
        for judged in SHOWN:
            if text := getattr(verdict, judged):
                names = f"{verdict.architecture} {verdict.length} {verdict.exporter}"
                print(f"{names} | {verdict.kind} | {verdict.place} | {judged} | {text} | {verdict.message}")
    shares = [sum(not getattr(verdict, judged) for verdict in made) / max(len(made), 1) for judged in JUDGED]
    return int(bool(alarms) or min(shares) < GOAL)


def _row(name: str, some: list[Verdict]) -> str:
    shares = [sum(not getattr(verdict, judged) for verdict in some) / max(len(some), 1) for judged in SHOWN]
    return f"{name:20} {len(some):6} {''.join(f'{share:8.1%}' for share in shares)}"


if __name__ == "__main__":
    sys.exit(main())
