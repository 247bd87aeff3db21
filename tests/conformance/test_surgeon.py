"""Edits against those of onnx-graphsurgeon, if it is installed: see ``python -m tests.conformance.surgeon``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.cases import SOURCES
from tests.conformance.surgeon import EDITS, outcome, places


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_edits_compute_what_those_of_graphsurgeon_do(source: str) -> None:
    pytest.importorskip("onnx_graphsurgeon", reason="onnx-graphsurgeon is not a dependency: pip install it")
    found = places(source, Counter())
    assert found
    said = [(edit, name, outcome(function, place)) for name, place in found for edit, function in EDITS.items()]
    assert [entry for entry in said if entry[2].startswith("differs")] == []
    assert sum(text == "same" for _, _, text in said) >= len(said) // 2
