"""Whether a model says the same however its tokens reach it: all at once, or some at once and the rest one by one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, number_text, quoted
from onnx_nb.analysis.generate.decode import last_logits, prompt_of
from onnx_nb.analysis.generate.layers import rounds_activations
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.analysis.model.tensors import attribute
from onnx_nb.analysis.progress import CountedWork
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.run.loop import Loop
from onnx_nb.analysis.run.session import session

if TYPE_CHECKING:
    from onnx_nb.analysis.progress import Progress

TOLERANCE: Final = 1e-4
"""Largest difference of two ways, by the largest logit: float32 has at most 1e-6 (25 packages of 13 architectures)."""
ROUNDED_TOLERANCE: Final = 1e-2
"""The same where activations are rounded to int8, which flips with the last bit: 6e-3 were seen."""


class PrefillSplit(NamedTuple):
    """One way: so many tokens at once, the rest one by one."""

    prefill: int
    logits: float
    """Largest difference of the last logits from those of all tokens at once, by the largest of these."""
    state: str
    """The first state, in the order of layers, that differs in the end; empty if none does."""
    difference: float
    """By how much, by the largest value of the state."""


@dataclass(frozen=True)
class CacheCheck(Table, Displayed):
    """Whether all ways through the caches of a model lead to the same. Made by `check_cache`."""

    name: str
    length: int
    """Tokens of the prompt."""
    splits: tuple[PrefillSplit, ...]
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether no way differs by more than the tolerance."""
        return all(max(split.logits, split.difference) <= self.tolerance for split in self.splits)

    @property
    def message(self) -> str:
        """Whether the ways agree; if not, the first state that differs, and from which prefill on."""
        worst = max(self.splits, key=lambda split: split.logits)
        ways = f"{count_text(len(self.splits), 'way')} through {count_text(self.length, 'token')}"
        if self.passed:
            return f"{ways} agree: the logits differ by at most {number_text(worst.logits, 2)} of the largest."
        odd = [split for split in self.splits if max(split.logits, split.difference) > self.tolerance]
        counts = ", ".join(str(split.prefill) for split in odd[:6])
        text = f"{len(odd)} of {ways} differ from all tokens at once (after {counts} at once)"
        state = next((split for split in odd if split.state), None)
        text += f", the logits by up to {number_text(worst.logits, 2)} of the largest"
        if state is None:
            return f"{text}, though every state is equal."
        layer = re.search(r"\d+", state.state)
        where = f" of layer {layer[0]}" if layer else ""
        size = number_text(state.difference, 2)
        return f"{text}. The first state that differs is {quoted(state.state)}{where}, by {size}."

    def __repr__(self) -> str:
        return f"CacheCheck({self.message.removesuffix('.')})"

    _columns = PrefillSplit._fields

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each way."""
        return [split._asdict() for split in self.splits]

    def _still(self) -> Still:
        rows = [(f"{s.prefill}", number_text(s.logits, 2), s.state, number_text(s.difference, 2)) for s in self.splits]
        table = StillTable(("Tokens at once", "Logits differ", "First state that differs", "By"), rows, "way", 1)
        return Still(self.message, tables=(table,))


@known_arguments
def check_cache(
    model: ModelLike,
    ids: Any = None,
    *,
    state: Mapping[str, str] | None = None,
    feeds: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> CacheCheck:
    """Run a prompt at once, and split at many places with the rest token by token: the caches must lead to the same.

    No reference is needed. What is wrong in both ways alike, such as a scale, is not seen.

    Parameters
    ----------
    model, state, feeds
        As in `decode`.
    ids
        Token ids [n]; by default made up, longer than every window.
    progress
        Called as work advances, see `Progress`.

    Raises
    ------
    OnnxNbError
        If the model has no states, or onnxruntime cannot run it.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (int64[batch, seq] input_ids, float[batch, past, 4] past) => (float[batch, seq, 4] logits,
    ...   float[batch, total, 4] present) <float[4, 4] table = {0,1,0,0, 0,0,1,0, 0,0,0,1, 1,0,0,0}>
    ... { logits = Gather(table, input_ids)  present = Concat<axis = 1>(past, logits) }''')
    >>> check_cache(model, [0, 1, 2, 3, 0]).message
    '3 ways through 5 tokens agree: the logits differ by at most 0 of the largest.'
    """
    source = load(model)
    loop, graph = Loop(source, state, feeds), Graph.of(source)
    if not loop.states:
        message = f"{source.name} has no states: every step reads all tokens."
        raise OnnxNbError(message, advice="Name them: state={input: output}.")
    windows = {int(attribute(node, "local_window_size", 0)) for node in graph.nodes} | {*loop.windows.values()}
    windows = {size for size in windows if 0 < size <= 4096}
    size = loop.vocabulary or 8
    prompt, mask = prompt_of(source, loop, np.arange(max(windows, default=16) + 8) * 7 % size if ids is None else ids)
    length = prompt.shape[1]
    around = {window + step for window in windows for step in (-1, 0, 1)}
    counts = sorted(count for count in {1, 2, length // 2, length - 1} | around if 0 < count < length)
    runner, work = session(source), CountedWork(progress, len(counts))

    def end_of(first: int) -> tuple[NDArray[np.float32], dict[str, Any]]:
        states = loop.start(len(prompt))
        for begin, stop in itertools.pairwise([0, *range(first, length + 1)]):
            part = mask[:, :stop]
            results = runner(loop.feeds(prompt[:, begin:stop], states, part))
            states = loop.next_states(results, states)
        return last_logits(np.asarray(results[loop.logits], np.float32), part, stop - begin), states

    tolerance, splits = ROUNDED_TOLERANCE if rounds_activations(graph) else TOLERANCE, list[PrefillSplit]()
    reference, states = end_of(length)
    total = int(mask.sum(axis=1).max())
    names = sorted(states, key=lambda name: [int(text) for text in re.findall(r"\d+", name)])
    for number, count in enumerate(counts):
        work.reached(number, f"{count} tokens at once")
        logits, others = end_of(count)
        distances = ((name, _apart(loop, name, states, others, total)) for name in names)
        first = next(((name, distance) for name, distance in distances if distance > tolerance), ("", 0.0))
        scale = float(np.abs(reference).max()) or 1.0
        splits.append(PrefillSplit(count, float(np.abs(logits - reference).max()) / scale, *first))
    work.finished()
    return CacheCheck(source.name, length, tuple(splits), tolerance)


def _apart(loop: Loop, name: str, one: Mapping[str, Any], other: Mapping[str, Any], total: int) -> float:
    """Return the largest difference of a state's tokens, by its largest value; infinite if their numbers differ."""
    first, second = (np.asarray(loop.valid(name, states, total), np.float64) for states in (one, other))
    if first.shape != second.shape:
        return np.inf
    scale = float(np.abs(first).max(initial=0.0)) or 1.0
    return float(np.nan_to_num(np.abs(first - second), nan=np.inf).max(initial=0.0)) / scale
