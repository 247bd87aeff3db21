"""Packages: what their configuration says beside what the graph has, and what they show in a cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import onnx_nb
from onnx_nb.drawing.html import still_html
from tests.analysis.generate import packages

NAMES = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
}
SOUND: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_key_value_heads": packages.KV_HEADS,
    "inputs": NAMES,
    "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
}


def package(folder: Path, **changes: Any) -> onnx_nb.types.Package:
    """Return a package whose configuration says what it has, apart from some entries."""
    packages.write(folder)
    file = folder / "genai_config.json"
    content = json.loads(file.read_text())
    content["model"]["decoder"] |= SOUND | changes
    file.write_text(json.dumps(content))
    loaded = onnx_nb.load(folder)
    assert isinstance(loaded, onnx_nb.types.Package)
    return loaded


def test_a_sound_package_says_what_it_has(tmp_path: Path) -> None:
    sound = package(tmp_path / "sound")
    assert [(entry.what, entry.configuration, entry.graph) for entry in sound.statements()] == [
        ("layers", "2", "2"),
        ("heads", "4", "4"),
        ("heads of keys and values", "2", "2"),
        ("head size", "16", "16"),
        ("vocabulary", "60", "60"),
    ]
    assert all(entry.ok for entry in sound.statements())
    # 2 layers × keys and values × 2 heads × 16 numbers × 4 bytes
    assert sound.cache_bytes(10) == 10 * 2 * 2 * 2 * 16 * 4
    decoding = onnx_nb.decode(sound, [3, 4, 5], 4, stop=())
    total = sum(row["nbytes"] for row in decoding.caches)
    assert total == sound.cache_bytes(decoding.caches[0]["shape"][2])
    page = still_html(sound)
    for text in ("Configuration and graph agree", "model.onnx", "524.3 kB", "head size"):
        assert text in page
    audit = onnx_nb.external_data.audit(sound)
    assert (audit.ok, audit.problems, audit.model) == (True, (), "sound")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "layers: the configuration says 3, the graph 2."),
        ({"num_attention_heads": 8}, "heads: the configuration says 8, the graph 4."),
        ({"num_key_value_heads": 4}, "heads of keys and values: the configuration says 4, the graph 2."),
        ({"head_size": 32}, "head size: the configuration says 32, the graph 16."),
        ({"vocab_size": 61}, "vocabulary: the configuration says 61, the graph 60."),
        (
            {"inputs": {**NAMES, "position_ids": "position_ids"}},
            "inputs: the configuration says also 'position_ids', the graph no others.",
        ),
        (
            {"inputs": {key: NAMES[key] for key in NAMES if key != "attention_mask"}},
            "inputs: the configuration says no others, the graph also 'attention_mask'.",
        ),
        (
            {"outputs": {"logits": "lm_logits"}},
            "outputs: the configuration says also 'lm_logits', the graph no others.",
        ),
    ],
)
def test_a_contradiction_is_named_and_fails_the_audit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    wrong = package(tmp_path / "wrong", **changes)
    assert [entry.message for entry in wrong.statements() if not entry.ok] == [message]
    assert wrong.cache_bytes(10) == 10 * 2 * 2 * 2 * 16 * 4  # by the graph, whatever the configuration says
    still = wrong._still()
    assert still.message.endswith(message[1:])
    assert still.ok is False
    audit = onnx_nb.external_data.audit(tmp_path / "wrong")
    assert not audit.ok
    assert [(problem.kind, problem.message) for problem in audit.problems] == [("configuration", message)]


def test_a_window_is_compared_with_that_of_the_graph(tmp_path: Path) -> None:
    folder = packages.write(tmp_path / "slides", packages.decoder(window=16))
    file = folder / "genai_config.json"
    for window, ok in ((16, True), (12, False)):
        content = json.loads(file.read_text())
        content["model"]["decoder"]["sliding_window"] = {"window_size": window, "layers": [0]}
        file.write_text(json.dumps(content))
        loaded = onnx_nb.load(folder)
        assert isinstance(loaded, onnx_nb.types.Package)
        (entry,) = [entry for entry in loaded.statements() if entry.what == "window"]
        assert (entry.ok, entry.graph) == (ok, "16")


@pytest.mark.parametrize("odd", [True, "16", None, [1], -1, {"window_size": []}, 10**30])
def test_any_configuration_is_only_data(tmp_path: Path, odd: Any) -> None:
    names = ("num_hidden_layers", "head_size", "sliding_window", "inputs", "outputs", "num_attention_heads")
    for name in names:
        strange = package(tmp_path / "odd", **{name: odd})
        assert isinstance(strange._still().message, str)
    digits = {"x": "%d" * 40 + "!"}
    assert any(not entry.ok for entry in package(tmp_path / "odd", inputs=digits).statements())
