"""Decode with a model step by step, and check that its caches say what they should."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, duration_text, number_text, quoted, shortened
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.model.package import Package
from onnx_nb.analysis.progress import CountedWork
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.run.loop import Loop
from onnx_nb.analysis.run.session import session

if TYPE_CHECKING:
    from onnx_nb.analysis.model.protofields import Longs
    from onnx_nb.analysis.progress import Progress


@dataclass(frozen=True, eq=False, repr=False)
class Decoding(Table, Displayed):
    """What a model wrote, token by token. Made by `decode`."""

    model: Model
    prompt: NDArray[np.int64]
    """int64 [batch, n]; rows that are shorter are padded on the right, see `mask`."""
    mask: NDArray[np.int64]
    """int64 [batch, n + steps]: 1 for each token that counts."""
    tokens: NDArray[np.int64]
    """int64 [batch, steps]: the tokens that were chosen."""
    logits: NDArray[np.float32]
    """float32 [batch, steps, vocabulary]: what each was chosen by."""
    seconds: tuple[float, ...]
    """Of the prefill, then of each step."""
    states: Mapping[str, Any]
    """The states after the last step: caches by the name of the input."""
    text: tuple[str, ...]
    """What each row says, where a tokenizer is there; empty else."""
    interrupted: bool
    """Whether it was interrupted: what had been decoded is here."""
    _loop: Loop

    @property
    def message(self) -> str:
        """How much was decoded, how fast, and what the caches hold."""
        steps = self.seconds[1:]
        speed = f", {duration_text(float(np.median(steps)))} a step" if steps else ""
        prefill = f" after {count_text(self.prompt.shape[1], 'token')} in {duration_text(self.seconds[0])}"
        nbytes = sum(int(np.asarray(array).nbytes) for array in self.states.values())
        caches = f"{count_text(len(self.states), 'state')} of {bytes_text(nbytes)}"
        caches = f"; {caches if self.states else 'no states: every step reads all tokens'}"
        odd = next((row for row in self.caches if row["not finite"]), None)
        fault = f". {quoted(odd['state'])} holds {odd['not finite']:,} values that are not finite" if odd else ""
        end = ". Interrupted" if self.interrupted else ""
        return f"{count_text(self.tokens.shape[1], 'token')}{prefill}{speed}{caches}{fault}{end}."

    def __repr__(self) -> str:
        return f"Decoding({self.message.removesuffix('.')})"

    @property
    def caches(self) -> list[dict[str, Any]]:
        """A row for each state after the last step: shape, bytes, share of zeros and count of NaN and ±Inf."""
        total, rows = int(self.mask.sum(axis=1).max()) - bool(self.tokens.size), []
        for name, state in self.states.items():
            whole, array = np.asarray(state), np.asarray(self._loop.valid(name, self.states, total), np.float64)
            zeros = float((array == 0).mean()) if array.size else 0.0
            row = {"state": name, "shape": whole.shape, "nbytes": whole.nbytes, "zeros": zeros}
            rows.append({**row, "not finite": int((~np.isfinite(array)).sum())})
        return rows

    _columns = ("step", "row", "token", "text", "logit", "margin", "seconds")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step and row: the token, its logit, and by how much the second best is below."""
        rows = []
        for step, row in np.ndindex(self.tokens.shape[1], len(self.tokens)):
            (token, logit, text), *rest = self.top(step, 2, row=row)
            margin = logit - rest[0][1] if rest else np.inf
            values = step, row, token, text, logit, margin, self.seconds[step]
            rows.append(dict(zip(self._columns, values, strict=True)))
        return rows

    def top(self, step: int, k: int = 5, *, row: int = 0) -> list[tuple[int, float, str]]:
        """Return the best tokens of a step, each with its logit and its text (empty without a tokenizer)."""
        numbers = self.logits[row, self._checked(step)]
        best = np.argsort(-numbers, kind="stable")[:k].tolist()
        tokenizer = tokenizer_of(self.model)
        return [(token, float(numbers[token]), tokenizer.decode([token]) if tokenizer else "") for token in best]

    def feeds(self, step: int) -> dict[str, Any]:
        """Return the feeds of a step, 0 for the prefill, as `capture` and `profile` take them; it runs up to there."""
        return next(itertools.islice(self.all_feeds(), self._checked(step), None))

    def all_feeds(self) -> Iterator[dict[str, Any]]:
        """Yield the feeds of the prefill and of every step, as a dataset for `capture`; it decodes once more."""
        runner = session(self.model)
        states = self._loop.start(len(self.prompt))
        feeds = dict[str, Any]()
        for number in range(max(self.tokens.shape[1], 1)):
            ids, mask = _read(self._loop, self.prompt, self.mask, self.tokens[:, :number])
            states = self._loop.next_states(runner(feeds), states) if number else states
            yield (feeds := self._loop.feeds(ids, states, mask))

    def _checked(self, step: int) -> int:
        if not 0 <= step < max(self.tokens.shape[1], 1):
            raise OnnxNbError(f"there is no step {step}.", advice=f"There are 0 to {self.tokens.shape[1] - 1}.")
        return step

    def _still(self) -> Still:
        rows = [
            (f"{step}", f"{token}", repr(text), number_text(logit, 4), number_text(margin, 4), duration_text(seconds))
            for step, row, token, text, logit, margin, seconds in (entry.values() for entry in self.rows())
            if not row
        ]
        caches = [
            (name, "×".join(map(str, shape)), bytes_text(nbytes), f"{zeros:.1%}")
            for name, shape, nbytes, zeros, _ in (entry.values() for entry in self.caches)
        ]
        tables = (
            StillTable(("Step", "Token", "Text", "Logit", "Margin", "Time"), rows, "step", 3),
            StillTable(("State", "Shape", "Size", "Zeros"), caches, "state", 1),
        )
        steps = ("`.feeds(step)` gives the feeds of a step to `capture`, `profile` and `compare`.",)
        return Still(self.message, " ".join(map(repr, self.text)), tables, steps)


@known_arguments
def decode(
    model: ModelLike,
    ids: Any,
    steps: int = 32,
    *,
    state: Mapping[str, str] | None = None,
    feeds: Mapping[str, Any] | None = None,
    stop: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Decoding:
    """Decode greedily: run a model on a prompt, then on each token that it chose, with its caches.

    Parameters
    ----------
    model
        A folder of models (see `load`), or a model with states, or one without: that reads all tokens at each step.
    ids
        Token ids [n] or [batch, n]; rows of several lengths are padded on the right. Text, where the folder has a
        tokenizer and ``tokenizers`` is installed.
    steps
        Tokens to decode at most.
    state
        Input → output whose value it reads in the next step; by their names if ``None``.
    feeds
        Inputs that stay the same in each step; of a package with an encoder, those of the encoder.
    stop
        Tokens that end a row; the end of text of the configuration if ``None``, and none for ``()``.
    progress
        Called as work advances, see `Progress`.

    Raises
    ------
    FeedError
        If the model has no input for tokens, or a token is beyond its vocabulary.
    OnnxNbError
        If onnxruntime cannot run the model.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (int64[batch, seq] input_ids, float[batch, past, 4] past) => (float[batch, seq, 4] logits,
    ...   float[batch, total, 4] present) <float[4, 4] table = {0,1,0,0, 0,0,1,0, 0,0,0,1, 1,0,0,0}>
    ... { logits = Gather(table, input_ids)  present = Concat<axis = 1>(past, logits) }''')
    >>> decode(model, [0], 5).tokens.tolist()
    [[1, 2, 3, 0, 1]]
    """
    source = load(model)
    loop = Loop(source, state, feeds)
    prompt, mask = prompt_of(source, loop, ids)
    if stop is None:
        end = source.configuration.get("eos_token_id") if isinstance(source, Package) else None
        stop = [token for token in (end if isinstance(end, list) else [end]) if isinstance(token, int)]
    if not isinstance(stop, Sequence | np.ndarray):
        raise FeedError(f"stop is {stop!r:.80}, and tokens that end a text are a list.")
    ends = frozenset(stop)
    runner, states = session(source), loop.start(len(prompt))
    tokens, logits, seconds = prompt[:, :0], list[NDArray[np.float32]](), list[float]()
    interruption, work = False, CountedWork(progress, max(steps, 1))
    try:
        for count in range(max(steps, 1)):
            work.reached(count, f"step {count} of {steps}" if count else "prefill")
            part, part_mask = _read(loop, prompt, mask, tokens)
            begin = time.perf_counter()
            results = runner(loop.feeds(part, states, part_mask))
            seconds.append(time.perf_counter() - begin)
            states = loop.next_states(results, states)
            numbers = last_logits(np.asarray(results[loop.logits], np.float32), part_mask, part.shape[1])
            if not steps:
                break
            logits.append(numbers)
            tokens = np.concatenate([tokens, numbers.argmax(axis=-1)[:, None]], axis=1)
            mask = np.concatenate([mask, np.ones((len(mask), 1), np.int64)], axis=1)
            if ends and all(ends.intersection(row) for row in tokens.tolist()):
                break
    except KeyboardInterrupt:
        interruption = True
    if not seconds:
        raise OnnxNbError("nothing was decoded: it was interrupted.")
    work.finished()
    tokenizer = tokenizer_of(source)
    text = tuple(tokenizer.decode(row) for row in tokens.tolist()) if tokenizer else ()
    table = np.stack(logits, axis=1) if logits else np.zeros((len(prompt), 0, 0), np.float32)
    return Decoding(source, prompt, mask, tokens, table, tuple(seconds), states, text, interruption, loop)


def last_logits(logits: NDArray[np.float32], mask: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """Return the logits of the last token of each row; of one that is padded on the right, before the padding."""
    if logits.ndim < 3:
        return logits.reshape(len(mask), -1)
    last = np.maximum(mask[:, -count:].sum(axis=1), 1) - 1 if logits.shape[1] == count else np.full(len(mask), -1)
    return np.asarray(logits[np.arange(len(mask)), last])


def _read(loop: Loop, prompt: Longs, mask: Longs, tokens: Longs) -> tuple[Longs, Longs]:
    """Return what the step after some tokens reads, and the mask of all tokens so far."""
    every = np.concatenate([prompt, tokens], axis=1)
    return every[:, -1:] if loop.states and tokens.size else every, mask[:, : every.shape[1]]


def prompt_of(model: Model, loop: Loop, ids: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of a prompt, padded on the right, and their mask."""
    if not loop.ids or not loop.logits:
        message = f"{model.name} has no input for tokens: its inputs are {', '.join(map(quoted, loop.inputs))}."
        raise FeedError(message, advice="Use onnx_nb.session(model, state={…}) for a loop of your own.")
    if isinstance(ids, str):
        tokenizer = tokenizer_of(model)
        if tokenizer is None:
            message = f"{model.name} has no tokenizer that can be read, and the prompt is text."
            raise FeedError(message, advice="Give token ids, or pip install onnx-nb[text] and load the folder.")
        ids = tokenizer.encode(ids).ids
    try:
        rows = [np.asarray(row, np.int64).reshape(-1) for row in (ids if np.ndim(ids[0]) else [ids])]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        message = f"the prompt is {shortened(repr(ids), 80)}, and token ids are whole numbers, one row or several."
        raise FeedError(message) from None
    length = max(map(len, rows))
    if not min(map(len, rows)):
        raise FeedError("the prompt has no token.", advice="Give at least one for each row.")
    prompt, mask = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.int64)
    for number, row in enumerate(rows):
        prompt[number, : len(row)], mask[number, : len(row)] = row, 1
    size = loop.vocabulary
    if (size and prompt.max() >= size) or prompt.min() < 0:
        token = int(prompt.max()) if prompt.min() >= 0 else int(prompt.min())
        raise FeedError(f"token {token} is beyond the vocabulary of {model.name}, which has {size:,}.")
    return prompt, mask


def tokenizer_of(model: Model) -> Any:
    """Return the tokenizer of a package; ``None`` if it has none, or the library is not installed."""
    path = model.folder / "tokenizer.json" if isinstance(model, Package) else None
    if path is None or not path.is_file():
        return None
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 (the library raises plain Exceptions)
        raise FeedError(f"{quoted(str(path))} is no tokenizer: {shortened(str(error), 200)}.") from None
