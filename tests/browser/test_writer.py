"""The page of `make writer`: it opens from disk, asks for nothing, and writes the tokens that Python computes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from playwright.sync_api import expect
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.browser.jupyter import ROOT, SCREENSHOTS
from tests.browser.test_accessibility import AXE, violations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from playwright.sync_api import Browser, Page

# `make test` does not download what the page is made of
pytestmark = pytest.mark.rare

TEXT = ROOT / "notebooks" / "writer" / "devils-dictionary.txt"
# what the page was made of
PACKAGE = ROOT / "build" / "writer"
MEGABYTES = 8
STEPS = 48
END = 0
# a gap between the two best logits that rounding may turn over: 50 times what the two sides differ by
NEAR_TIE = 1e-3
# signs of one to four bytes, marks, all sorts of white space, contractions, an emoji of several characters, controls
ALPHABETS = (
    "abc XYZ 019 ,.;:!?'\"()-_",
    "'s 't 're 've 'm 'll 'd 'S ' ",
    "äöüßéèñçøłÅ ıİ",
    "αβγ абв אבג अआइ กขค",
    "日本語中文한국어、。",
    "😀👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇺🇸",
    " \t\n\r\v\f\x1c\x85\xa0\u1680\u2003\u2028\u3000\ufeff\u200b",
    "½²Ⅷ①٣௧ₓ",
    "e\u0301\u0308\u20dd",
    "\x00\x01\x7f\x80\xad\uffff\U0010ffff",
    "<|end|> <|end",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the page as `make writer` does; where npm cannot be reached, nothing is known of it and the tests fail."""
    pytest.importorskip("torch", reason="there is no CPU build of torch for this Python here")
    path = tmp_path_factory.mktemp("writer") / "writer.html"
    subprocess.run([sys.executable, "-m", "notebooks.writer.page", "-o", path], cwd=ROOT, check=True)
    return path


@pytest.fixture(scope="module")
def tokenizer(file: Path) -> Tokenizer:
    return Tokenizer.from_file(str(PACKAGE / "tokenizer.json"))


@pytest.fixture(scope="module")
def session(file: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(PACKAGE / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def context(file: Path) -> int:
    """Tokens that the model reads at once."""
    config = json.loads((PACKAGE / "genai_config.json").read_text(encoding="utf-8"))
    length: int = config["model"]["context_length"]
    return length


@pytest.fixture
def writer(file: Path, browser: Browser) -> Iterator[Page]:
    """Open the page without a network; nothing but itself may be asked for, and nothing may go wrong."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator("main")).to_have_attribute("data-state", "ready")
    yield page
    assert said == []
    assert asked == [file.as_uri()]
    context.close()


def logits(session: onnxruntime.InferenceSession, ids: list[int]) -> NDArray[np.float32]:
    """Return the logits after all of these tokens, read at once: no cache has a part in it."""
    row = np.array([ids])
    others = {"input_ids": row, "attention_mask": np.ones_like(row), "position_ids": np.arange(len(ids))[None]}
    feeds = {
        each.name: others[each.name]
        if each.name in others
        else np.zeros([1, each.shape[1], 0, each.shape[3]], np.float32)
        for each in session.get_inputs()
    }
    result: NDArray[np.float32] = session.run(["logits"], feeds)[0][0, -1]
    return result


def write_prompt(page: Page, prompt: str) -> None:
    page.get_by_label("Your text").fill(prompt)
    expect(page.locator(".given")).to_have_text(prompt)


def write_greedily(page: Page, prompt: str, steps: int) -> list[int]:
    """Let the page write at least so many tokens; an entry that ends is followed by another one."""
    page.get_by_role("radio", name="Greedy").check()
    page.get_by_label("Full speed").check()
    page.get_by_label("Tokens at a time").fill("50")
    write_prompt(page, prompt)
    while (written := page.locator("#story .token, #story .end").count()) < steps:
        page.get_by_role("button", name="Write").click()
        expect(page.locator("main")).to_have_attribute("data-state", "ready")
        assert page.locator("#story .token, #story .end").count() > written
    tokens: list[int] = page.evaluate("writer.story.tokens.map(token => token.id)")
    return tokens[:steps]


def assert_same(session: onnxruntime.InferenceSession, ids: list[int], tokens: list[int], context: int) -> int:
    """Compare tokens with those that Python would choose, up to the first near tie; return how many were compared."""
    read = list(ids)
    for step, token in enumerate(tokens):
        if len(read) > context:
            read = read[-(context // 2) :]
        row = logits(session, read)
        second, first = np.argsort(row, kind="stable")[-2:]
        gap = row[first] - row[second]
        if gap < NEAR_TIE:
            print(f"near tie at step {step}: the gap is {gap:.1e}")  # noqa: T201 - printed with a failure
            return step
        assert token == np.argmax(row), f"step {step}: {token} for {first}, which is ahead by {gap:.2g}"
        read.append(token)
    return len(tokens)


def test_the_page_is_one_small_file(file: Path) -> None:
    assert file.stat().st_size <= MEGABYTES * 1_000_000
    text = file.read_text(encoding="utf-8")
    # Firefox gives a file no origin, and what asks for its address fails
    assert "import.meta" not in text
    assert "{{" not in text[: text.index('id="tokenizer.json"')]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nwriter:")[2].partition("\n\n")[0]
    assert "python -m notebooks.writer.page -o build/writer.html" in recipe


@pytest.mark.parametrize("prompt", ["LOVE, n.", "COMPUTER, n. A machine that", "Über 😀 日本", ""])
def test_it_writes_the_tokens_that_python_computes(
    writer: Page, session: onnxruntime.InferenceSession, tokenizer: Tokenizer, context: int, prompt: str
) -> None:
    ids = [END, *tokenizer.encode(prompt).ids]
    tokens = write_greedily(writer, prompt, STEPS)
    assert len(tokens) == STEPS
    assert assert_same(session, ids, tokens, context) >= 40
    # each token was read once: the cache is carried from step to step
    written = writer.evaluate("writer.story.tokens.length")
    count = writer.evaluate("writer.decoder.ids.length")
    assert count == len(ids) + written
    shown = "".join(writer.locator("#story > .token").all_text_contents())
    assert shown == tokenizer.decode(writer.evaluate("writer.story.tokens.map(token => token.id)"))
    # the same logits as Python's, not only the same winner
    last = np.array(writer.evaluate(f"[...writer.story.tokens[{STEPS - 1}].logits]"))
    np.testing.assert_allclose(last, logits(session, ids + tokens[:-1]), atol=NEAR_TIE / 2)


def test_each_token_is_read_once(writer: Page, tokenizer: Tokenizer) -> None:
    before = writer.evaluate("writer.decoder.read")
    writer.get_by_role("button", name="One token").click()
    expect(writer.locator("#numbers")).to_contain_text("1 tokens written")
    assert writer.evaluate("writer.decoder.read") == before + 1
    # another prompt is read from its first token on, and one that continues what was read from there on
    first, second = (tokenizer.encode(text).ids for text in ("HATRED, n.", "HATRED, n. A sentiment"))
    assert second[: len(first)] == first
    write_prompt(writer, "HATRED, n.")
    assert writer.evaluate("writer.decoder.read") == before + 1 + len([END, *first])
    write_prompt(writer, "HATRED, n. A sentiment")
    assert writer.evaluate("writer.decoder.read") == before + 1 + len([END, *second])


def test_a_full_context_goes_on_with_its_later_half(
    writer: Page, session: onnxruntime.InferenceSession, tokenizer: Tokenizer, context: int
) -> None:
    text = TEXT.read_text(encoding="utf-8")
    # 12 tokens short of full, and the last words whole
    prompt = tokenizer.decode(tokenizer.encode(text).ids[: context - 12])
    ids = [END, *tokenizer.encode(prompt).ids]
    assert context - 20 < len(ids) < context
    tokens = write_greedily(writer, prompt, 40)
    assert assert_same(session, ids, tokens, context) == 40
    assert writer.evaluate("writer.decoder.ids.length") < context
    expect(writer.locator("#numbers")).to_contain_text("no longer reads the gray part")
    # what is gray and what is not are the prompt, and the model reads what is not
    gray = writer.locator(".given .unread").inner_text()
    assert len(gray) > 100
    assert prompt.startswith(gray)
    start = writer.evaluate("writer.story.start")
    assert tokenizer.encode(prompt[len(gray) :]).ids == ids[start:]


def texts() -> list[str]:
    """Make up texts of all sorts of signs, and add some of the dictionary's."""
    dice = random.Random(0)
    signs = "".join(ALPHABETS)
    return [
        *ALPHABETS,
        *("".join(dice.choices(alphabet, k=dice.randrange(1, 40))) for alphabet in ALPHABETS for _ in range(12)),
        *("".join(dice.choices(signs, k=dice.randrange(1, 80))) for _ in range(120)),
        *TEXT.read_text(encoding="utf-8").split("\n\n\n")[:60],
    ]


def dense(tokenizer: Tokenizer) -> Tokenizer:
    """Train a tokenizer of that kind on the made-up texts: it merges whatever stands in one word, white space too."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer, trained.decoder = tokenizer.pre_tokenizer, tokenizer.decoder
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=6000, special_tokens=["<|end|>", "<|"], initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator(texts() * 2, trainer)
    return trained


@pytest.mark.parametrize("kind", ["the Writer's", "dense"])
def test_text_becomes_the_tokens_of_the_tokenizers_library_and_back(
    writer: Page, tokenizer: Tokenizer, kind: str
) -> None:
    tried = dense(tokenizer) if kind == "dense" else tokenizer
    assert len(texts()) > 300
    encoded = [each.ids for each in tried.encode_batch(texts())]
    load = "const tokenizer = new writer.tokenizer.constructor(JSON.parse(json));"
    assert encoded == writer.evaluate(
        f"([json, texts]) => {{ {load} return texts.map(text => tokenizer.encode(text)); }}", [tried.to_str(), texts()]
    )
    # any ids at all: most of them break characters apart
    dice = random.Random(0)
    rows = [*encoded, *([dice.randrange(tried.get_vocab_size()) for _ in range(20)] for _ in range(200))]
    assert tried.decode_batch(rows) == writer.evaluate(
        f"([json, rows]) => {{ {load} return rows.map(ids => tokenizer.decode(ids)); }}", [tried.to_str(), rows]
    )


def test_writing_stops_by_button_and_by_key(writer: Page) -> None:
    # a token that never ends the entry
    writer.evaluate("writer.story.end = -1")
    writer.get_by_label("Tokens at a time").fill("500")
    state = writer.locator("main")
    for by_key in (False, True):
        before = writer.evaluate("writer.story.tokens.length")
        if by_key:
            writer.keyboard.press("Control+Enter")
        else:
            writer.get_by_role("button", name="Write").click()
        expect(state).to_have_attribute("data-state", "writing")
        expect(writer.locator("#story .token").nth(before + 3)).to_be_attached()
        if by_key:
            writer.keyboard.press("Escape")
        else:
            writer.get_by_role("button", name="Stop").click()
        expect(state).to_have_attribute("data-state", "ready")
        expect(writer.locator("#state")).to_have_text("Stopped.")
        written = writer.evaluate("writer.story.tokens.length")
        assert before + 3 < written < before + 500
        writer.wait_for_timeout(200)
        assert writer.evaluate("writer.story.tokens.length") == written


def softmax(row: NDArray[np.float32], temperature: float = 1.0) -> NDArray[np.float64]:
    powers = np.exp((row.astype(np.float64) - row.max()) / temperature)
    chances: NDArray[np.float64] = powers / powers.sum()
    return chances


def bars(page: Page) -> list[tuple[int, str]]:
    rows = page.locator("#choices button").all()
    return [(int(row.get_attribute("data-id") or -1), row.locator(".chance").inner_text()) for row in rows]


def test_the_bars_are_the_likeliest_tokens_and_a_click_writes_one(
    writer: Page, session: onnxruntime.InferenceSession, tokenizer: Tokenizer
) -> None:
    writer.get_by_role("radio", name="Greedy").check()
    write_prompt(writer, "LOVE, n.")
    ids = [END, *tokenizer.encode("LOVE, n.").ids]
    row = logits(session, ids)
    best = np.argsort(-row, kind="stable")[:5]

    def expected(temperature: float) -> list[tuple[int, str]]:
        percents = 100 * softmax(row, temperature)[best]
        return [(int(token), f"{percent:.1f} %") for token, percent in zip(best, percents, strict=True)]

    assert bars(writer) == expected(1)
    writer.get_by_role("radio", name="Sample").check()
    writer.get_by_label("Temperature").fill("1.6")
    assert bars(writer) == expected(1.6)

    third = writer.locator("#choices button").nth(2)
    third.click()
    expect(writer.locator("#numbers")).to_contain_text("1 tokens written")
    assert writer.evaluate("writer.story.tokens.map(token => token.id)") == [best[2]]
    for _ in range(3):
        writer.get_by_role("button", name="One token").click()
        expect(writer.locator("main")).to_have_attribute("data-state", "ready")
    # a token that was written shows its alternatives, and the text goes on from the one that is clicked
    writer.locator("#story").focus()
    for _ in range(4):
        writer.keyboard.press("ArrowLeft")
    expect(writer.locator("#choices-title")).to_contain_text("Instead of")
    expect(writer.locator("#choices .chosen")).to_have_attribute("data-id", str(best[2]))
    expect(writer.locator("#heard")).to_contain_text(f": {writer.locator('#choices .token').first.inner_text()} ")
    writer.locator("#choices button").first.click()
    expect(writer.locator("#numbers")).to_contain_text("1 tokens written")
    assert writer.evaluate("writer.story.tokens.map(token => token.id)") == [best[0]]


def test_a_sample_is_drawn_as_often_as_it_is_likely(writer: Page) -> None:
    # the page's dice fall evenly, so that the shares are right to one throw
    throws = 4000
    shares = np.array(
        writer.evaluate(
            """async throws => {
                const counts = new Array(writer.story.logits.length).fill(0);
                const {random} = Math;
                for (let i = 0; i < throws; i++) {
                    Math.random = () => (i + 0.5) / throws;
                    counts[writer.choice(writer.story.logits)]++;
                }
                Math.random = random;
                return counts.map(count => count / throws);
            }""",
            throws,
        )
    )
    row = np.array(writer.evaluate("[...writer.story.logits]"), np.float32)
    np.testing.assert_allclose(shares, softmax(row, 0.8), atol=1.001 / throws)


@pytest.mark.parametrize(
    ("lack", "message"),
    [
        ("delete window.DecompressionStream", "This browser has no DecompressionStream, and the model needs it."),
        ("WebAssembly.validate = () => false", "This browser has no WebAssembly with SIMD, and the model needs it."),
        # something that nobody thought of, while the script is read and while the model is started
        ("delete window.MessageChannel", "The model could not be started: Uncaught ReferenceError: MessageChannel"),
        ("WebAssembly.instantiate = () => Promise.reject(Error('no memory'))", "The model could not be started: no"),
    ],
)
def test_a_browser_that_cannot_run_it_is_told(page: Page, file: Path, lack: str, message: str) -> None:
    page.add_init_script(lack)
    page.goto(file.as_uri())
    expect(page.get_by_role("alert")).to_contain_text(message)
    expect(page.locator("main")).to_have_attribute("data-state", "error")
    expect(page.get_by_role("button", name="Write")).to_be_disabled()


@pytest.mark.parametrize("width", [1440, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_its_window_in_both_themes(browser: Browser, file: Path, width: int, scheme: Any) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator("main")).to_have_attribute("data-state", "ready")
    write_greedily(page, "LOVE, n.", 60)
    page.locator("#story .token").nth(8).hover()
    page.screenshot(path=SCREENSHOTS / f"writer-{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert violations(page.locator("body")) == []
    context.close()
