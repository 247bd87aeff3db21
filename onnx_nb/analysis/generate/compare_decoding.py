"""Compare two decoders at every step: the reference chooses the tokens, and both read them.

Two right implementations part for good where the two best tokens are closer than their last bits, so a step is judged
by its logits and layers, not by its token. The error of each half of a layer is isolated: it reads the stream of the
reference and, as its past, what the candidate itself made of the reference's stream in the steps before.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.compare.quantization import quantizes
from onnx_nb.analysis.errors import AlignmentError, FeedError, OnnxNbError
from onnx_nb.analysis.formatting import count_text, number_text
from onnx_nb.analysis.generate import layers
from onnx_nb.analysis.generate.decode import last_logits, prompt_of, tokenizer_of
from onnx_nb.analysis.generate.layers import CUT, Stem, stems_of, windows_of, with_streams
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, ModelLike, load, with_proto
from onnx_nb.analysis.model.wire import set_entries
from onnx_nb.analysis.progress import CountedWork, stage
from onnx_nb.analysis.quantize.what_if import suggest_exclusion
from onnx_nb.analysis.results import Displayed, Still, StillTable, Table
from onnx_nb.analysis.run.feeds import read_arrays
from onnx_nb.analysis.run.loop import Loop
from onnx_nb.analysis.run.session import session

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.model.protofields import Longs
    from onnx_nb.analysis.progress import Progress

    Floats = NDArray[np.float32]
    Streams = list[Floats]

CLEAR_ERROR: Final = 1e-3
"""Error of half a layer that needs no second look. A smaller one is rounding where a change of the stream's last bits
changes what the half makes by a sixteenth of it: large scores of an attention are such a case."""
BITS: Final = 16
"""Roundings of the largest value of a stream that half a layer may make: float32 makes at most 5 (13 architectures)."""
DRAWS: Final = 4
"""Draws of those last bits: of one query, a single one may happen to move next to nothing."""
TOLERANCE: Final = 1e-5
"""Error of half a layer, by its contribution to the stream: 7e-7 at most in float32 on the same; the smallest fault
that was planted makes 1e-4."""
ROUNDED_TOLERANCE: Final = 1e-2
"""The same where the candidate rounds activations to int8: 3e-3 at most on the same model (64 steps of a Llama and a
Gemma 2 in four bits)."""
ENCODER_TOLERANCE: Final = 1e-3
"""Error of what an encoder makes by its largest value: its layers add theirs up. 2e-4 at most in float32, from float64
(T5 with scores of attention up to 100)."""
ENCODER: Final = "encoder"
"""The part of all of an encoder, which runs once."""
_EPSILONS: Final = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


class StepResult(NamedTuple):
    """One step of both."""

    step: int
    """0 and perhaps 1 are the prefill."""
    position: int
    """Tokens that were read with this step."""
    reference: int
    """The token that the reference chose; both read it next."""
    candidate: int
    """The token that the candidate would choose."""
    margin: float
    """By how much the reference's best logit is above its second."""
    difference: float
    """Largest difference of the logits."""
    divergence: float
    """Kullback–Leibler divergence of the candidate's distribution from the reference's, in nats."""


@dataclass(frozen=True, eq=False, repr=False)
class DecodingComparison(Table, Displayed, panel="decoding.DecodingPanel"):
    """A candidate beside a reference at every step, teacher-forced. Made by `compare_decoding`."""

    name: str
    steps: tuple[StepResult, ...]
    parts: tuple[str, ...]
    """The halves of layers, from the embedding to the logits; empty if the layers of both are not known. Before them
    "encoder", if there is one: the decoder's halves read what the reference's made, so its error is not in theirs."""
    errors: NDArray[np.float64]
    """float64 [steps, parts]: the isolated error of each half by its contribution to the stream."""
    faults: NDArray[np.int64]
    """int64 [steps, parts]: the first position that is off by more than rounding; −1 where none is."""
    windows: tuple[int, ...]
    """Window of each part in the candidate, 0 where it sees all."""
    reference_windows: tuple[int, ...]
    """The same in the reference, as far as it says."""
    cache_faults: tuple[bool, ...]
    """Whether the keys and the values that the part that is off first writes are off; empty if they are not known."""
    has_quantization: bool
    """Whether the candidate's weights are quantized and the reference's are not, so that each layer is off."""
    notes: tuple[str, ...]
    tokens: NDArray[np.int64]
    """int64 [batch, n]: what both read, the prompt and what the reference chose."""
    _mask: NDArray[np.int64]
    _candidate: Loop
    _reference: Loop | None
    """That of the reference, if it is a model."""

    @property
    def first_fault(self) -> tuple[int, str] | None:
        """The first step and in it the half of a layer that is off by more than rounding; ``None`` if there is none."""
        steps, parts = np.nonzero(self.faults >= 0)
        return None if self.has_quantization or not steps.size else (int(steps[0]), self.parts[int(parts[0])])

    @property
    def message(self) -> str:
        """Where they part, or that they do not, with the numbers that show it."""
        others = [step for step in self.steps if step.reference != step.candidate]
        logits = f"the logits differ by at most {number_text(max(step.difference for step in self.steps), 2)}"
        tokens, ties = "the same tokens", sum(row["near tie"] for row in self.rows())
        if others:
            margin = number_text(max(step.margin for step in others), 2)
            steps = count_text(len(self.steps), "step")
            tokens = f"{len(others)} of {steps} would take another token, by margins of at most {margin}"
        tokens += f" ({count_text(ties, 'near tie')})" if ties else ""
        notes = "".join(f" {note}" for note in self.notes)
        if (fault := self.first_fault) is not None:
            step, part = fault
            column, rest = self.parts.index(part), int((self.faults[step] >= 0).sum()) - 1
            where = f"Step {step} is" if step else "The first step is"
            more = f" (and {count_text(rest, 'other part')})" if rest else ""
            position = int(self.faults[step, column])
            size = number_text(self.errors[step, column], 2)
            text = f"{where} off in {part}{more} from position {position} on, by {size} of what it adds"
            if part == ENCODER:
                text = f"What the encoder makes is off{more}, by {size} of its largest value: compare both encoders"
            return f"{text}{self._reason(step, part, position)}; {tokens}, {logits}.{notes}"
        text = f"{tokens[0].upper()}{tokens[1:]}; "
        if self.parts and self.has_quantization:
            means = self.errors.mean(axis=0)
            column = int(means.argmax())
            most, median = (number_text(float(size), 2) for size in (means[column], np.median(means)))
            text += f"{self.parts[column]} costs most, {most} of what it adds (median {median}); "
        elif self.parts:
            text += f"no layer is off by more than rounding ({number_text(self.errors.max(), 2)} of what it adds); "
        return f"{text}{logits}.{notes}"

    def _reason(self, step: int, part: str, position: int) -> str:
        """Return where to look, as far as the first position and what is written to the cache tell it."""
        if "attention" not in part:
            return ""
        names = [name for name, is_off in zip(("keys", "values"), self.cache_faults, strict=False) if is_off]
        if names:
            place = "norm and projections" if len(names) == 2 else "rotary embedding and positions"
            place = "projection of values" if names == ["values"] else place
            only = " alone" if len(names) == 1 else ""
            return f": the {' and '.join(names)}{only} that it writes are off, so look at its {place}"
        column, is_first = self.parts.index(part), bool(step) and position == self.steps[step - 1].position
        for whose, window in (("its", self.windows[column]), ("the reference's", self.reference_windows[column])):
            if window and (position >= window - 1 if step == 0 else abs(position - window) < 2):
                return f", where {whose} window of {count_text(window, 'token')} ends"
        right = "the keys and values that it writes are right" if self.cache_faults else "the tokens before are right"
        if is_first:
            return ": what reads no past is right, so look at its past"
        if not position:
            return f": {right}, so look at its output projection" if self.cache_faults else ""
        return f": {right}, so look at its queries, scale, mask and window"

    def __repr__(self) -> str:
        return f"DecodingComparison({self.message.removesuffix('.')})"

    _columns = (*StepResult._fields, "near tie", "part", "error")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step, with the half of a layer that is off first, else the one that is off most.

        A near tie is a step without a fault whose two best tokens are closer than the logits of both sides are.
        """
        rows = []
        for number, step in enumerate(self.steps):
            part, error = "", np.nan
            off = [] if self.has_quantization else np.flatnonzero(self.faults[number] >= 0).tolist()
            if self.parts:
                column = off[0] if off else int(self.errors[number].argmax())
                part, error = self.parts[column], float(self.errors[number, column])
            is_tie = step.margin < step.difference and not off
            rows.append({**step._asdict(), "near tie": is_tie, "part": part, "error": error})
        return rows

    @property
    def models(self) -> tuple[Model, Model] | None:
        """Both sides, whose operations `drill` compares; ``None`` if the reference is no ONNX model."""
        return None if self._reference is None else (self._reference.model, self._candidate.model)

    @property
    def model(self) -> Model:
        """The candidate."""
        return self._candidate.model

    def part_of_tensors(self) -> dict[str, int]:
        """Return the place in `parts` of each tensor of the candidate that is made in one part alone."""
        graph = Graph.of(self.model)
        places = layers.part_of_nodes(graph, stems_of(graph, self._candidate.states), self._candidate.logits)
        first = self.parts[:1] == (ENCODER,)
        return {graph.value_names[one]: place + first for node, place in places.items() for one in graph.results(node)}

    def texts(self, tokens: Iterable[int]) -> list[str]:
        """Return what tokens say, where the candidate has a tokenizer; empty texts else."""
        tokenizer = tokenizer_of(self._candidate.model)
        return [tokenizer.decode([token]) if tokenizer else "" for token in tokens]

    def drill(self, step: int, *, progress: Progress | None = None) -> Comparison:
        """Compare the operations of a step, each by itself: `compare` of both models on the reference's feeds of it.

        Raises
        ------
        AlignmentError
            If the reference is no model, so that its operations are not known.
        OnnxNbError
            If there is no such step.
        """
        loop, other = self._both()
        if not 0 <= step < len(self.steps):
            raise OnnxNbError(f"there is no step {step}.", advice=f"There are 0 to {len(self.steps) - 1}.")
        runner, states = session(loop.model), loop.start(len(self.tokens))
        for begin, stop in itertools.pairwise([0, *(entry.position for entry in self.steps[: step + 1])]):
            feeds = loop.feeds(self.tokens[:, begin:stop], states, self._mask[:, :stop])
            if stop < self.steps[step].position:
                states = loop.next_states(runner(feeds), states)
        return compare(loop.model, other.model, feeds, progress=progress)

    def exclusion(self, kl: float = 0.01, *, progress: Progress | None = None) -> list[str]:
        """Return few nodes to leave in float, for the logits to diverge by at most ``kl`` nats from the reference's.

        The mean over all steps, whose tokens are read in one run. The names are those of the reference's nodes, as
        ``nodes_to_exclude`` of onnxruntime's quantizers and of onnxruntime-genai's builder take them.

        Raises
        ------
        AlignmentError
            If the reference is no model.
        OnnxNbError
            If all of them in float do not reach it, see `suggest_exclusion`.
        """
        loop, other = self._both()
        places = [step.position - 1 for step in self.steps]
        tokens, mask = (array[:, : places[-1] + 1] for array in (self.tokens, self._mask))
        feeds = loop.feeds(tokens, loop.start(len(tokens)), mask)
        expected = np.asarray(session(loop.model)(feeds)[loop.logits])[:, places]

        def closeness(outputs: Sequence[Mapping[str, Any]]) -> float:
            pairs = zip(expected.swapaxes(0, 1), outputs[0][other.logits][:, places].swapaxes(0, 1), strict=True)
            return -float(np.mean([_step_result(0, 0, *pair).divergence for pair in pairs]))

        first = compare(loop.model, other.model, feeds, progress=stage(progress, 0.0, 0.2))
        return suggest_exclusion(first, score=closeness, minimum=-kl, progress=stage(progress, 0.2, 1.0))

    def accuracy_levels(self) -> list[dict[str, Any]]:
        """Return a row for each level of accuracy that the candidate's products in few bits can have.

        Levels are those of ``accuracy_level`` of MatMulNBits: 0 and 1 sum in float32, 2 in float16, 3 in bfloat16, 4 in
        int8. Those that onnxruntime computes alike share a row. A row has the levels, whether the file has them, the
        largest difference of the logits from those of level 0 and their mean Kullback–Leibler divergence over the
        steps, the tokens that would differ, and the median seconds of a step.

        Raises
        ------
        OnnxNbError
            If the candidate has no such node.
        """
        model, rows, exact = self._candidate.model, dict[bytes, dict[str, Any]](), list[NDArray[np.float32]]()
        nodes = [node for node in model.proto.graph.node if node.op_type == "MatMulNBits"]
        if not nodes:
            raise OnnxNbError(f"{model.name} has no MatMulNBits.", advice="Others have no level of accuracy.")
        there = {entry.i for node in nodes for entry in node.attribute if entry.name == "accuracy_level"} or {0}
        for level in range(5):
            proto = copy.deepcopy(model.proto)
            for node in proto.graph.node:
                if node.op_type == "MatMulNBits":
                    others = [entry for entry in node.attribute if entry.name != "accuracy_level"]
                    set_entries(node.attribute, [*others, helper.make_attribute("accuracy_level", level)])
            loop = Loop(with_proto(model, proto), self._candidate.states, self._candidate.constants)
            runner = session(loop.model)
            states = loop.start(len(self.tokens))
            logits = []
            seconds = []
            for begin, stop in itertools.pairwise([0, *(step.position for step in self.steps)]):
                mask = self._mask[:, :stop]
                before = time.perf_counter()
                outcome = runner(loop.feeds(self.tokens[:, begin:stop], states, mask))
                seconds.append(time.perf_counter() - before)
                logits.append(last_logits(np.asarray(outcome[loop.logits], np.float32), mask, stop - begin))
                states = loop.next_states(outcome, states)
            exact = exact or logits
            results = [_step_result(0, 0, *pair) for pair in zip(exact, logits, strict=True)]
            row: dict[str, Any] = {"levels": [], "in file": False, "difference": max(r.difference for r in results)}
            row["divergence"] = float(np.mean([result.divergence for result in results]))
            row["tokens"] = sum(result.reference != result.candidate for result in results)
            row["seconds"] = float(np.median(seconds[1:] or seconds))
            row = rows.setdefault(b"".join(array.tobytes() for array in logits), row)
            row |= {"levels": [*row["levels"], level], "in file": row["in file"] or level in there}
        return list(rows.values())

    def _both(self) -> tuple[Loop, Loop]:
        """Return the loops of both sides; raise `AlignmentError` if the reference is no model."""
        if self._reference is None:
            message = "the reference is no ONNX model, so its operations are not known."
            raise AlignmentError(message, advice="Compare with another package, such as its export in float32.")
        return self._reference, self._candidate

    def _still(self) -> Still:
        rows = []
        for row in self.rows():
            numbers = (f"{number_text(row[name], 2)}" for name in ("margin", "difference", "divergence"))
            texts = (f"{row[name]}" for name in ("step", "position", "reference", "candidate"))
            largest = f"{row['part']} {number_text(row['error'], 2)}" if row["part"] else ""
            rows.append((*texts, *numbers, largest))
        heads = ("Step", "Tokens", "Reference", "Candidate", "Margin", "Logits differ", "KL", "Largest error")
        return Still(self.message, tables=(StillTable(heads, rows, "step", 0),))


@known_arguments
def compare_decoding(
    reference: Any,
    candidate: ModelLike,
    ids: Any = None,
    steps: int = 32,
    *,
    state: Mapping[str, str] | None = None,
    feeds: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DecodingComparison:
    """Compare two decoders at every step; both read the tokens that the reference chooses.

    Parameters
    ----------
    reference
        A language model of transformers, also one with an encoder, or another package or model; or logits that were
        computed elsewhere, [steps, vocabulary] or [batch, steps, vocabulary]: what each token after the prompt was
        chosen by, as an array or in a ``.npy`` or ``.npz`` file.
    candidate, state
        A folder of models (see `load`), or a model with states; see `decode`.
    ids
        Token ids, as `decode` takes them, read in two chunks unless rows are padded. By default made up: longer than
        every window, then two rows of unequal lengths if the model takes a mask.
    steps
        Tokens after the prompt.
    feeds
        Inputs that stay the same in each step, see `decode`; both read them, each package through its own encoder.
    progress
        Called as work advances, see `Progress`.

    Returns
    -------
    DecodingComparison
        The layers are compared where those of both are known, by the sums of their residuals. Else only the logits are.

    Raises
    ------
    AlignmentError
        If the reference is no model that decodes, or the vocabularies differ.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (int64[batch, seq] input_ids, float[batch, past, 4] past) => (float[batch, seq, 4] logits,
    ...   float[batch, total, 4] present) <float[4, 4] table = {0,1,0,0, 0,0,1,0, 0,0,0,1, 1,0,0,0}>
    ... { logits = Gather(table, input_ids)  present = Concat<axis = 1>(past, logits) }''')
    >>> compare_decoding(model, model, [0, 1], 3).message.partition(".")[0]
    'The same tokens; the logits differ by at most 0'
    """
    model = load(candidate)
    loop = Loop(model, state, feeds)
    reference_side = _side_of(reference, state, feeds)
    if isinstance(reference_side, _SavedSide):
        steps = min(steps, reference_side.logits.shape[1] - 1)
        if ids is None:
            raise FeedError("the logits are saved, and no prompt is given.", advice="Give the ids that they are of.")
    windows = [size for size in (*windows_of(Graph.of(model)), *reference_side.windows) if size]
    # no token 0 at first: it is often the padding, whose embedding is zeros
    made_up = (np.arange(max(windows, default=0) + 24) * 7 + 3) % (loop.vocabulary or 8)
    prompt, mask = prompt_of(model, loop, made_up if ids is None else ids)
    candidate_side, stems = _ModelSide(loop), stems_of(Graph.of(model), loop.states)
    cut_side = _ModelSide(loop, stems) if stems else None
    results, errors, faults = list[StepResult](), list[list[float]](), list[list[int]]()
    has_quantization = candidate_side.has_quantization and not reference_side.has_quantization
    work, tokens, cache_faults = CountedWork(stage(progress, 0.0, 0.9), steps + 2), prompt, tuple[bool, ...]()
    encoder = list[tuple[float, int]]()
    dtypes = {info.dtype for info in (*model.inputs, *model.outputs)}
    eps = next((size for name, size in _EPSILONS.items() if name in dtypes), float(np.finfo(np.float32).eps))
    bounds = eps, max(ROUNDED_TOLERANCE if layers.rounds_activations(Graph.of(model)) else TOLERANCE, BITS * eps)
    in_two = bool(mask.all()) and not isinstance(reference_side, _SavedSide)
    count = prompt.shape[1]
    stops = [*([count // 2] if count > 3 and in_two else []), *range(count, count + steps + 1)]
    for number, (begin, stop) in enumerate(itertools.pairwise([0, *stops])):
        work.reached(number, f"step {number} of {steps + 1}")
        part, mask = tokens[:, begin:stop], np.pad(mask, ((0, 0), (0, max(stop - mask.shape[1], 0))), constant_values=1)
        padding, valid = mask[:, :stop], mask[:, begin:stop] > 0
        expected, streams = reference_side.step(part, padding)
        size = expected.shape[-1]
        logits, _ = candidate_side.step(part, padding)
        if not 0 < size <= logits.shape[-1]:
            message = f"the reference has {size:,} tokens, and {model.name} {logits.shape[-1]:,}."
            raise AlignmentError(message, advice="Compare models of one vocabulary.")
        last = [last_logits(array, padding, part.shape[1])[:, :size] for array in (expected, logits)]
        results.append(_step_result(number, stop, *last))
        if len(streams) != len(stems):
            cut_side, stems, errors, faults = None, (), [], []
        if cut_side is not None:
            encoder = encoder or cut_side.read_encoder(reference_side.encoder_values, feeds or {}, bounds[0])
            cut_logits, outputs = cut_side.step(part, padding, streams)
            starts = [None, *streams[:-1], None]
            triples = list(zip([*outputs, cut_logits[..., :size]], [*streams, expected], starts, strict=True))
            row = [_error(*triple, valid, bounds) for triple in triples]
            for draw in range(1, DRAWS + 1):
                doubtful = [place for place, (error, first) in enumerate(row) if first >= 0 and error < CLEAR_ERROR]
                if not doubtful:
                    break
                noisy_logits, noisy_streams = cut_side.step(part, padding, streams, draw=draw)
                for column in doubtful:
                    output, _, start = triples[column]
                    noisy = [*noisy_streams, noisy_logits[..., :size]][column]
                    if row[column][0] <= BITS * _error(noisy, output, start, valid, bounds)[0]:
                        row[column] = row[column][0], -1
            errors.append([error for error, _ in (*encoder, *row)])
            faults.append([first for _, first in encoder] + [first + begin if first >= 0 else -1 for _, first in row])
            column = next((column for column, (_, first) in enumerate(row[:-1]) if first >= 0), -1)
            if column >= 0 and not has_quantization and not any(first >= 0 for line in faults[:-1] for first in line):
                caches, right = (side.caches(stems[column], stop) for side in (cut_side, reference_side))
                cache_faults = _cache_faults(caches, right, valid, stop, bounds)
        if stop >= tokens.shape[1]:
            tokens = np.concatenate([tokens, last[0].argmax(axis=-1)[:, None]], axis=1)
    work.finished()
    labels = (*(ENCODER for _ in encoder), *(stem.label for stem in stems), "logits") if stems else ()
    notes = () if stems else ("Only the logits are compared: the layers are not known in both, or not as many.",)
    shape = len(results), len(labels)
    sizes, places = np.asarray(errors, np.float64).reshape(shape), np.asarray(faults, np.int64).reshape(shape)
    before = (0,) * len(encoder)
    attention = (*before, *(stem.window for stem in stems))
    other = (*before, *(reference_side.window(stem) for stem in stems))
    other_loop = reference_side.loop if isinstance(reference_side, _ModelSide) else None
    about = cache_faults, has_quantization, notes, tokens, mask, loop, other_loop
    comparison = DecodingComparison(model.name, tuple(results), labels, sizes, places, attention, other, *about)
    is_clear = stems and not has_quantization and comparison.first_fault is None and "mixer" not in "".join(labels)
    if ids is not None or feeds or not is_clear or "attention_mask" not in loop.inputs:  # an encoder made one row
        return comparison
    if loop.windows:
        return replace(comparison, notes=("Rows of several lengths are not tried: windows of caches take no padding.",))
    length = min([24, *windows]) - 3  # a window counts padding in torch, and tokens in onnxruntime
    rows = [made_up[:length], made_up[: length // 2]]
    padded = compare_decoding(reference, model, rows, 2, state=state, feeds=feeds, progress=stage(progress, 0.9, 1.0))
    return comparison if padded.first_fault is None else replace(padded, notes=("The prompt has rows of two lengths.",))


def _step_result(number: int, position: int, reference: Floats, candidate: Floats) -> StepResult:
    """Compare the logits of a step; of several rows, of the one that differs most."""
    row = int(np.abs(reference - candidate).max(axis=-1).argmax())
    first, second = reference[row].astype(np.float64), candidate[row].astype(np.float64)
    best = np.sort(first)[::-1]
    p, q = (array - array.max() - np.log(np.exp(array - array.max()).sum()) for array in (first, second))
    divergence = max(float((np.exp(p) * (p - q)).sum()), 0.0)
    margin = float(best[0] - best[1]) if len(best) > 1 else np.inf
    pair = int(first.argmax()), int(second.argmax())
    return StepResult(number, position, *pair, margin, float(np.abs(first - second).max()), divergence)


def _error(
    candidate: Floats, reference: Floats, before: Floats | None, valid: NDArray[np.bool_], bounds: tuple[float, float]
) -> tuple[float, int]:
    """Return the error of half a layer by its contribution, and the first position off by more than rounding, or −1."""
    eps, tolerance = bounds
    first, second = (np.asarray(array, np.float64)[: len(valid), -valid.shape[1] :] for array in (candidate, reference))
    distance = np.where(valid[:, -first.shape[1] :, None], np.abs(first - second), 0.0)
    change = second if before is None else second - np.asarray(before, np.float64)
    contribution = float(np.abs(change).max()) or 1.0
    limit = BITS * eps * float(np.abs(second).max()) + tolerance * contribution
    places = np.flatnonzero(~(distance.max(axis=(0, 2)) <= limit))
    return float(distance.max()) / contribution, int(places[0]) if places.size else -1


def _with_noise(arrays: Mapping[str, Any], draw: int) -> dict[str, Any]:
    """Return arrays of real numbers with their last bits changed at random, the same for each draw."""
    random, eps = np.random.default_rng(draw), np.finfo(np.float32).eps
    numbers = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    return {**arrays, **{name: a * (1 + eps * random.choice([-1, 1], a.shape)) for name, a in numbers.items()}}


def _cache_faults(
    candidate: Streams, reference: Streams, valid: NDArray[np.bool_], total: int, bounds: tuple[float, float]
) -> tuple[bool, ...]:
    """Return whether the keys and the values that a step wrote are off; nothing if both sides do not show them."""
    faults = list[bool]()
    for pair in zip(candidate, reference, strict=False):
        # of a cache longer than all tokens nobody says where it is written; of padded rows each at another place
        if not valid.all() or any(array.ndim != 4 or array.shape[2] > total for array in pair):
            return ()
        count = min(valid.shape[1], *(array.shape[2] for array in pair))
        first, second = (array[:, :, -count:].swapaxes(1, 2).reshape(len(valid), count, -1) for array in pair)
        if first.shape != second.shape:
            return ()
        faults.append(_error(first, second, None, valid[:, -count:], bounds)[1] >= 0)
    return tuple(faults) if len(faults) == 2 else ()


def _side_of(reference: Any, state: Mapping[str, str] | None, feeds: Mapping[str, Any] | None) -> Any:
    if hasattr(reference, "state_dict"):
        return _ModuleSide(reference, feeds or {})
    if isinstance(reference, str | Path) and Path(reference).suffix in {".npy", ".npz"}:
        arrays = read_arrays(Path(reference))
        return _SavedSide(arrays.get("logits", next(iter(arrays.values()), None)))
    if isinstance(reference, np.ndarray):
        return _SavedSide(reference)
    model = load(reference)
    states = state if state and state.keys() <= {info.name for info in model.inputs} else None
    return _ModelSide(Loop(model, states, feeds))


class _SavedSide:
    """Logits that were computed elsewhere: of the last token of the prompt, then of each step."""

    has_quantization = False
    windows: tuple[int, ...] = ()
    encoder_values: Mapping[str, Any] = {}

    def __init__(self, logits: Any) -> None:
        array = np.asarray(logits)
        if array.ndim not in {2, 3} or array.dtype.kind not in "fV" or not array.size:
            message = f"the saved logits are {array.dtype.name}{list(array.shape)}."
            raise AlignmentError(message, advice="They are float [steps, vocabulary] or [batch, steps, vocabulary].")
        self.logits, self._number = np.asarray(array.reshape(-1, *array.shape[-2:]), np.float32), 0

    def step(self, ids: Longs, _mask: Longs) -> tuple[Any, Streams]:
        """Return the logits of a step; no streams were saved."""
        if len(ids) != len(self.logits):
            message = f"the prompt has {count_text(len(ids), 'row')}, and the saved logits have {len(self.logits)}."
            raise AlignmentError(message, advice="Give the ids that they are of.")
        self._number += 1
        return self.logits[:, self._number - 1 : self._number], []


class _ModelSide:
    """A model that runs step by step: with the streams of its layers, or fed with those of another."""

    def __init__(self, loop: Loop, feed: Sequence[Stem] = ()) -> None:
        graph = Graph.of(loop.model)
        if not loop.states:
            message = f"{loop.model.name} has no states that are carried from step to step."
            raise AlignmentError(message, advice="Name them, state={input: output}, or export it with its caches.")
        self.has_quantization = quantizes(graph)
        stems = self._stems = tuple(feed) or stems_of(graph, loop.states)
        variant, self._outputs = with_streams(loop.model, stems, feed=bool(feed))
        self.loop, self.windows = loop, windows_of(graph)
        self._loop, self._run = Loop(variant, loop.states, loop.constants), session(variant)
        self._states, self._before, self.encoder_values = dict[str, Any](), dict[str, Any](), loop.constants

    def read_encoder(self, values: Mapping[str, Any], feeds: Mapping[str, Any], eps: float) -> list[tuple[float, int]]:
        """Read what the reference's encoder made; return the error of what this one's did, and 0 where it is off."""
        constants, rows = self._loop.constants, list[tuple[float, int]]()
        for name, array in constants.items():
            value, reference = np.asarray(array), np.asarray(values.get(name, values.get("", 0)))
            if name not in feeds and value.dtype.kind == "f" and value.shape == reference.shape and value.any():
                error = float(np.abs(value.astype(np.float64) - reference).max() / (np.abs(reference).max() or 1.0))
                rows.append((error, 0 if error > max(ENCODER_TOLERANCE, BITS * eps) else -1))
                constants[name] = reference
        return rows and [max(rows)]

    def step(self, ids: Longs, mask: Longs, streams: Streams | None = None, draw: int = 0) -> tuple[Any, Streams]:
        """Return the logits of a step, and the streams; again, of inputs with a draw of noise in their last bits."""
        loop, others = self._loop, {f"{CUT}{number}": stream for number, stream in enumerate(streams or ())}
        states, others = (_with_noise(a, draw) for a in (self._before, others)) if draw else (self._states, others)
        states = states or loop.start(len(ids))
        results = self._run(loop.feeds(ids, states, mask, others))
        if not draw:
            self._before, self._states = states, loop.next_states(results, states)
        arrays = [np.asarray(results[name], np.float32) for name in (loop.logits, *self._outputs)]
        return arrays[0], arrays[1:]

    def window(self, stem: Stem) -> int:
        """Return the window of an attention, 0 where it sees all."""
        return next((other.window for other in self._stems if other.label == stem.label), 0)

    def caches(self, stem: Stem, total: int) -> Streams:
        """Return the keys and the values of an attention after so many tokens; none if they are not known."""
        names = {output: name for name, output in self._loop.states.items()}
        ours = next((other for other in self._stems if other.label == stem.label), stem)
        arrays = (self._loop.valid(names[output], self._states, total) for output in ours.presents if output in names)
        return [np.asarray(array, np.float32) for array in arrays]


class _ModuleSide:
    """A language model of transformers, with its own cache; hooks see the stream at the norms of its layers."""

    has_quantization = False

    def __init__(self, module: Any, feeds: Mapping[str, Any]) -> None:
        import torch

        self._torch, self._module, self._cache = torch, module, None
        self._config = getattr(module, "config", None)
        is_whole = getattr(self._config, "is_encoder_decoder", False) and hasattr(module, "get_encoder")
        decoder = module.get_decoder() if is_whole else module
        if is_whole and not feeds:
            raise FeedError(f"{type(module).__name__} has an encoder, and feeds= has nothing that it reads.")
        lists = [child for child in decoder.modules() if isinstance(child, torch.nn.ModuleList) and len(child)]
        alike = [layers for layers in lists if len({type(layer) for layer in layers}) == 1]
        if not alike or not hasattr(module, "forward"):
            message = f"{type(module).__name__} has no list of layers, so it is no decoder."
            raise AlignmentError(message, advice="Pass a causal language model of transformers, or a package.")
        if module.training:
            message = f"{type(module).__name__} is in training mode, in which dropouts drop values."
            raise AlignmentError(message, advice="Call module.eval() first.")
        # transformers 5.24 renamed it
        self._word = "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"
        # one as long as the model can read ends nowhere
        size, most = (getattr(self._config, name, 0) or 0 for name in ("sliding_window", "max_position_embeddings"))
        self.windows = [size] if 0 < size < most - 64 else []
        self._layers = max(alike, key=lambda layers: sum(p.numel() for p in layers.parameters()))
        self._device = next(module.parameters()).device
        tensors = {name: torch.tensor(array, device=self._device) for name, array in feeds.items() if is_whole}
        self._encoder_feeds: dict[str, Any] = tensors
        self.encoder_values = dict[str, Any]()

    def step(self, ids: Longs, mask: Longs) -> tuple[Any, Streams]:
        """Return the logits of a step, and the stream before each layer, after each attention and at the end."""
        torch, streams, norms = self._torch, list[Any](), list[Any]()

        def tensor_of(args: Any, kwargs: Any) -> Any:
            return args[0] if args else kwargs["hidden_states"]

        def before_layer(_module: Any, args: Any, kwargs: Any) -> None:
            norms.clear()
            streams.append(tensor_of(args, kwargs))

        def after_norm(_module: Any, args: Any, kwargs: Any, output: Any) -> None:
            norms.append((output, tensor_of(args, kwargs)))

        def before_half(_module: Any, args: Any, kwargs: Any) -> None:
            tensor = tensor_of(args, kwargs)  # the stream, or a norm of it
            stream = next((value for output, value in norms if output is tensor), tensor)
            is_stream = stream is not streams[-1] and stream.shape[-1] == streams[-1].shape[-1]
            if is_stream and stream.numel() == streams[-1].numel():  # OPT joins rows and tokens
                streams.append(stream.reshape(streams[-1].shape))

        def after(_module: Any, _args: Any, output: Any) -> None:
            streams.append(output[0] if isinstance(output, tuple) else output)

        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, -ids.shape[1] :]
        feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        feeds = {"decoder_input_ids": ids} if self._encoder_feeds else feeds
        tensors = {name: torch.tensor(array, device=self._device) for name, array in feeds.items()}
        with contextlib.ExitStack() as hooks, torch.no_grad():
            for layer in self._layers:
                hooks.enter_context(layer.register_forward_pre_hook(before_layer, with_kwargs=True))
                lists = (child for child in layer.children() if isinstance(child, torch.nn.ModuleList))
                for name, child in itertools.chain(*(each.named_children() for each in (layer, *lists))):
                    if "norm" in f"{name} {type(child).__name__}".lower():
                        hooks.enter_context(child.register_forward_hook(after_norm, with_kwargs=True))
                    elif [*child.parameters()]:
                        hooks.enter_context(child.register_forward_pre_hook(before_half, with_kwargs=True))
            hooks.enter_context(self._layers[-1].register_forward_hook(after))
            output = self._module(**{self._word: self._cache}, use_cache=True, **tensors, **self._encoder_feeds)
        self._cache = output[self._word]
        if self._encoder_feeds:  # it runs once
            self._encoder_feeds["encoder_outputs"] = (output.encoder_last_hidden_state,)
            self.encoder_values = {"": output.encoder_last_hidden_state.float().cpu().numpy()}
        arrays = [tensor.float().cpu().numpy() for tensor in (output.logits, *streams)]
        return arrays[0], arrays[1:]

    def window(self, stem: Stem) -> int:
        """Return the window of an attention as the configuration says, 0 where it sees all."""
        kinds = dict(enumerate(getattr(self._config, "layer_types", None) or ()))
        return 0 if "full" in kinds.get(stem.layer, "") else max(self.windows, default=0)

    def caches(self, stem: Stem, _total: int) -> Streams:
        """Return the keys and the values of an attention; none if they are not known."""
        layer = dict(enumerate(getattr(self._cache, "layers", ()))).get(stem.layer)
        tensors = (getattr(layer, "keys", None), getattr(layer, "values", None))
        return [tensor.float().cpu().numpy() for tensor in tensors if tensor is not None]
