"""The decoder of lessons 12 and 12b: its saved files are those of its scripts, and its package computes the same."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import onnx_nb

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

if TYPE_CHECKING:
    from collections.abc import Iterator

from notebooks import faults, writer  # noqa: E402 (they import torch)
from notebooks.writer import export, train  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def net() -> Iterator[Any]:
    with torch.no_grad():
        yield writer.trained()


@pytest.fixture(scope="module")
def model(net: Any) -> onnx_nb.Model:
    return export.exported(net)


@pytest.fixture(scope="module")
def package(model: onnx_nb.Model, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return onnx_nb.load(export.write(tmp_path_factory.mktemp("writer") / "package", model))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizers.Tokenizer.from_file(str(writer.HERE / "tokenizer.json"))


def test_the_saved_tokenizer_is_the_one_that_training_makes_and_loses_nothing(tokenizer: Any) -> None:
    assert json.loads(train.made_tokenizer().to_str()) == json.loads(tokenizer.to_str())
    for text in (*train.entries(), "naïve 深 🙂\n\n\tx", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_text_has_the_entries_that_the_readme_says() -> None:
    entries = train.entries()
    assert len(entries) == 994 - 4
    assert all(re.match(r"[A-Z]", entry) for entry in entries)
    size = sum(path.stat().st_size for path in writer.HERE.glob("*.npz"))
    assert size < 2_000_000


def test_the_saved_weights_know_the_text(net: Any, tokenizer: Any) -> None:
    """Better by far than the frequencies of tokens, which need no model."""
    rows = [torch.tensor([[0, *tokenizer.encode(entry).ids][:256]]) for entry in train.entries()[::20]]
    counts = Counter(token for row in rows for token in row[0, 1:].tolist())
    total = sum(counts.values())
    entropy = -sum(count / total * math.log(count / total) for count in counts.values())
    losses = [torch.nn.functional.cross_entropy(net(row).logits[0, :-1], row[0, 1:], reduction="sum") for row in rows]
    assert float(sum(losses)) / total < entropy / 2


def test_what_it_writes_is_mostly_words_of_the_text(package: Any) -> None:
    known = set(re.findall(r"[a-z]+", "\n".join(train.entries()).lower()))
    prompts = ("LANGUAGE, n. The", "PHILOSOPHY, n. A", "MEMORY, n.", "OPTIMIST, n.", "EDITOR, n. A", "LAWYER, n. One")
    text = " ".join(onnx_nb.decode(package, f"{train.END}{prompt}", 80).text[0] for prompt in prompts)
    words = re.findall(r"[a-z]+", text.lower())
    assert sum(word in known for word in words) > 0.75 * len(words)


def test_with_a_cache_the_module_computes_what_it_computes_without(net: Any) -> None:
    ids = torch.randint(1, 1024, (2, 20), generator=torch.Generator().manual_seed(0))
    logits, cache = [], None
    for part in ids.split([7, 1, 1, 11], dim=1):
        output = net(part, past_key_values=cache)
        cache = output.past_key_values
        logits.append(output.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), net(ids).logits, atol=1e-4, rtol=1e-4)


def test_only_distances_of_positions_count_as_lesson_12_says(net: Any) -> None:
    ids = torch.arange(1, 13)[None]
    positions = torch.arange(12)[None]
    torch.testing.assert_close(net(ids, position_ids=positions + 5).logits, net(ids).logits, atol=1e-4, rtol=1e-4)
    positions[:, 6:] += 5
    assert (net(ids, position_ids=positions).logits - net(ids).logits).abs().max() > 0.1


def test_the_package_is_the_module_at_every_step_with_padding_too(net: Any, package: Any) -> None:
    assert [statement for statement in package.statements() if not statement.ok] == []
    assert onnx_nb.compare_decoding(net, package).first_fault is None
    assert "agree" in onnx_nb.check_cache(package).message
    onnx.checker.check_model(package.path, full_check=True)
    assert {node.domain for node in package.proto.graph.node} == {""}
    assert str(Path(__file__).parents[1]).encode() not in package.path.read_bytes()


def test_a_row_is_what_it_is_alone_whatever_stands_beside_it(package: Any, tokenizer: Any) -> None:
    prompts = [[0, *tokenizer.encode(text).ids] for text in ("MEMORY, n.", "PHILOSOPHY, n. A")]
    together = onnx_nb.decode(package, prompts, 12, stop=())
    for prompt, tokens in zip(prompts, together.tokens.tolist(), strict=True):
        assert onnx_nb.decode(package, prompt, 12, stop=()).tokens[0].tolist() == tokens


@pytest.mark.parametrize(
    ("number", "fault"), [(1, (1, "layer 1 attention")), (2, (0, "layer 2 attention")), (3, (0, "layer 1 mlp"))]
)
def test_each_planted_fault_is_valid_and_named(net: Any, model: onnx_nb.Model, number: int, fault: Any) -> None:
    faulty = faults.decoder_of_12(model, number)
    onnx.checker.check_model(faulty.to_proto(), full_check=True)
    ids = np.arange(3, 17)
    assert onnx_nb.compare_decoding(net, faulty, ids, 4).first_fault == fault
