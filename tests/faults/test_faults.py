"""Faults planted into exports are named: a small part of ``python -m tests.faults``."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
    pytest.skip("torch or transformers is not installed", allow_module_level=True)

from tests.faults.__main__ import GOAL, JUDGED
from tests.faults.judging import verdicts
from tests.faults.planting import KINDS

WHICH = [
    ("encoder", "equal", "dynamo"),
    ("encoder-eager", "unequal", "torchscript"),
    ("resnet", "unequal", "dynamo"),
    ("repeated", "equal", "torchscript"),
]


def test_faults_are_named_and_sound_exports_are_not() -> None:
    made, sounds, _ = verdicts(WHICH, list(KINDS), 1, lambda _: None)
    assert not {name: text for name, text in sounds.items() if text}
    assert len(made) > 60
    assert len({verdict.kind for verdict in made}) >= 15
    for judged in JUDGED:
        found = Counter(getattr(verdict, judged) for verdict in made)
        assert found[""] >= GOAL * len(made), (judged, found)


def test_faults_in_a_trained_and_quantized_network_are_named() -> None:
    """A small part of ``python -m tests.faults.trained_faults``."""
    from tests.faults import trained_faults

    verdicts = list(trained_faults.planted(["lstm"], list(trained_faults.KINDS), 1))
    assert len(verdicts) > 20
    assert not [verdict for verdict in verdicts if verdict.layer or verdict.cause]
    assert not {name: text for name, text in trained_faults.alarms(["lstm"]).items() if text}


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_operation_inside_attention_is_named_where_heads_are_as_long_as_sentences(exporter: str) -> None:
    kinds = ["axis", "mask"]
    made, _, _ = verdicts([("decoder", "equal", exporter)], kinds, 1, lambda _: None)
    assert {verdict.kind for verdict in made} == set(kinds)
    assert {verdict.kind: verdict.inside for verdict in made if verdict.inside} == {}
