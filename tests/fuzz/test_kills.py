"""Every public function that writes is killed at random moments, and none loses or leaves anything."""

from __future__ import annotations

import random

import pytest

from tests.depth import DEPTH
from tests.fuzz.kills import WRITERS, trial, writers

# the children only write files and end
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_every_public_function_that_writes_is_killed() -> None:
    assert writers() == WRITERS.keys() - {"weights", "link"}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_kills_lose_nothing_and_what_they_leave_goes_with_the_next_save(name: str) -> None:
    pytest.importorskip("torch")
    _, wrong = trial(name, 2 * DEPTH, random.Random(7))
    assert wrong == []
