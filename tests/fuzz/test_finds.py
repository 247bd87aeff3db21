"""What the fuzzer found, and hostile models, through all verbs: no crash, no hang, no foreign error, little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fuzz import hostile

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(hostile.LARGE, id="small"),
        pytest.param(
            sorted(hostile.BUILT.keys() - hostile.LARGE), id="large", marks=[pytest.mark.slow, pytest.mark.rare]
        ),
    ],
)
def test_finds_and_hostile_models_end_well(without: Sequence[str]) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--replay", "--without", *without]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {*hostile.BUILT} - {*without} <= {line["name"] for line in lines}, done.stderr
    assert {line["name"]: line["finds"] for line in lines if line["finds"]} == {}
    assert done.returncode == 0, done.stderr
