"""Graders of "A language model, token by token"."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnxruntime

import onnx_nb

from . import Lesson, expect, is_number, made

check: Final = Lesson()


@check.exercise(
    1,
    "nbytes",
    "nbytes",
    {
        "8 * package.cache_bytes(512)": "half as large",
        "package.cache_bytes(512) // 2": "eight texts",
        "8 * 512 * len(PARTS) * 4 * 24": "twice that",
        "4 * package.cache_bytes(511)": "512 tokens",
        "'1572864'": "is a number",
    },
)
def _bytes_of_caches(answer: Any) -> None:
    expect(is_number(answer), f"This is a {type(answer).__name__}; the answer is a number.")
    shapes = [info.shape for info in made("package").inputs if info.name.startswith("past_key_values")]
    right = sum(8 * heads * 512 * width * 2 for _, heads, _, width in shapes)
    expect(answer != 2 * right, "A float16 is half as large as what the graph has.")
    expect(answer * 8 != right, "That is for one text, and there are eight texts.")
    expect(2 * answer != right, "It is twice that: a float16 has two bytes, and each layer has keys and values.")
    expect(answer == right, "The right number is another: each of the 512 tokens has keys and values in each layer.")


class _Watched:
    """A session that notes what it is fed."""

    def __init__(self, path: Any) -> None:
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.fed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, names: Any, feeds: Any, *options: Any) -> Any:
        """Run, as `InferenceSession` does."""
        self.fed.append(feeds)
        return self._session.run(names, feeds, *options)


@check.exercise(
    2,
    "rereading",
    "rereading",
    {
        "'tokens'": "a function",
        "lambda session, tokens, steps: None": "a list of tokens",
        "lambda session, tokens, steps: [*tokens, *rereading(session, tokens, steps)]": "only those that it chose",
        "lambda session, tokens, steps: rereading(session, tokens, steps)[:-1]": "one for each step",
        "lambda session, tokens, steps: onnx_nb.decode(package, tokens, steps).tokens[0].tolist()": "the session",
        "lambda session, tokens, steps: rereading(session, tokens[::-1], steps)": "other tokens",
        "lambda session, tokens, steps: [rereading(session, tokens, 1)[0]] * steps": "what it chose before",
    },
)
def _without_cache(answer: Any) -> None:
    expect(callable(answer), f"This is a {type(answer).__name__}; the answer is a function.")
    package, prompt, steps = made("package"), [0, *made("tokenizer").encode("MEMORY, n.").ids], 8
    session = _Watched(package.path)
    tokens = answer(session, list(prompt), steps)
    is_list = isinstance(tokens, list | tuple | np.ndarray) and np.ndim(tokens) == 1
    expect(is_list, "Return a list of tokens, in one row.")
    right = onnx_nb.decode(package, prompt, steps, stop=()).tokens[0].tolist()
    chosen = [int(token) for token in tokens]
    expect(chosen != prompt + right, "The result has the tokens of the prompt, too: return only those that it chose.")
    expect(len(chosen) == steps, f"There are {len(chosen)} tokens after {steps} steps: return one for each step.")
    expect(session.fed, "Nothing was run with the session that the function is given: use it in each step.")
    lengths = [np.shape(feeds["input_ids"])[-1] for feeds in session.fed]
    pasts = {np.shape(feeds["past_key_values.0.key"])[2] for feeds in session.fed}
    expect(pasts == {0}, "A run is fed with a cache that has tokens: start each run with empty caches.")
    first = len(prompt)
    all_read = lengths == [*range(first, first + steps)]
    expect(all_read, "Each run has to read the prompt and what it chose before: one token more each time.")
    expect(chosen == right, "The function chooses other tokens than `decode`: take the last row of the logits.")
