"""What docs/how-it-works.md claims: each paragraph has tests here that would fail if it were false."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]
CLAIMS: Final = {
    "step over each\nweight": ("tests/analysis/model/test_wire.py", "a_weight_of_three_gigabytes_is_stepped_over"),
    "is mapped from the file": ("tests/analysis/model/test_model.py", "only_the_bytes_of_one_weight_are_mapped"),
    "costs no memory": ("tests/analysis/model/test_wire.py", "a_length_beyond_the_file_costs_no_memory"),
    "one entry for each node": ("tests/analysis/graph/test_graph.py", "columns_equal_a_naive_walk_of_the_proto"),
    "the same arrays in one\nbinary": ("tests/analysis/view/test_graph_columns.py", "columns_are_those_of_the_graph"),
    "path of a module": ("tests/analysis/scopes/test_scopes.py", "bert_shows_embeddings_layers_pooler"),
    "chains that repeat": ("tests/analysis/scopes/test_scopes.py", "layers_are_found_in_a_graph_without_names"),
    "Equal layers get the same layout": ("frontend/scene/scene.test.ts", "gives equal layers the same inner layout"),
    "is one box": ("frontend/scene/scene.test.ts", "shows a closed scope as one box with the tensors"),
    "by network simplex": ("frontend/layout/rank.test.ts", "make the lines as short as possible"),
    "crossings are reduced": ("frontend/layout/order.test.ts", "have the minimum number of crossings"),
    "routed around\nboxes": ("frontend/layout/multicolumn.test.ts", "routes a continuing tensor around the column"),
    "Only what is in view is drawn": (
        "frontend/render/hit.test.ts",
        "finds the boxes and edges that a view has to draw",
    ),
    "where it is legible": ("frontend/render/hit.test.ts", "hits the text on an edge while it is legible"),
    "answers it by functions": ("tests/test_architecture.py", "no_import_runs_upward"),
    "answered exactly once": ("tests/widgets/test_messages.py", "each_request_is_answered_once_and_none_is_a_fault"),
    "cut into windows": ("tests/analysis/run/test_capture.py", "bit_identical_on_random_graphs"),
    "those of a session each": ("tests/analysis/compare/test_isolated.py", "regions_in_one_session_have_the_errors_of"),
    "names its reason": ("tests/analysis/simplify/test_simplify.py", "every_rule_is_tested_and_listed"),
    "is never called verified": ("tests/analysis/simplify/test_simplify.py", "a_wrong_rule_is_detected"),
}
"""Words of the page → the file and the name of the test that would fail if they were false."""
PAGE = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_has_its_test(words: str) -> None:
    file, name = CLAIMS[words]
    assert words in PAGE
    source = (ROOT / "onnx_nb" / file if file.startswith("frontend") else ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf'(test\("|it\("|def test_){re.escape(name)}', source)


def test_each_paragraph_has_a_claim() -> None:
    paragraphs = [text for text in PAGE.split("\n\n") if text.startswith("**")]
    assert [text for text in paragraphs if not any(words in text for words in CLAIMS)] == []
