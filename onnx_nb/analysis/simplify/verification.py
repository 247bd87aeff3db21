"""Check that a model which was made of another one computes the same.

Both are run as written on random feeds, new ones each time, and of different sizes where the inputs are dynamic, so
that sizes that were fixed by mistake are noticed. Random outputs are found by running the reference twice, and are not
compared.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import ml_dtypes
import numpy as np

from onnx_nb.analysis.compare.metrics import ErrorStats
from onnx_nb.analysis.compare.thresholds import CONTRADICTED_ERROR
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, quoted, shortened
from onnx_nb.analysis.graph.dataflow import Flow
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.graph.operators import names_where
from onnx_nb.analysis.model import external_data
from onnx_nb.analysis.model.model import Model, cached
from onnx_nb.analysis.model.tensors import dimensions, input_types, numpy_dtype
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.run import session
from onnx_nb.analysis.run.feeds import read_feeds
from onnx_nb.analysis.run.random_feeds import feeds_text, random_feeds, until_it_runs

RTOL, ATOL = 1e-4, 1e-5
ROUNDINGS: Final = 8
"""Roundings of the coarsest type on the way to an output by which the output may differ."""
NOISE: Final = 4
"""Factor over how far onnxruntime's own optimization moves an output, up to which an error is rounding."""
FAR_SHARE: Final = 1 / 8
"""Share of an output's values that rounding may move beyond the tolerances."""

Translation: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Feeds of the result → feeds of the reference, or outputs of the reference → outputs of the result."""
Ways: TypeAlias = tuple[Translation, Translation]
"""Of feeds, and of outputs."""
Runs: TypeAlias = list[tuple[dict[str, Any], dict[str, Any]]]
"""Feeds, each with the outputs of the reference."""
Limits: TypeAlias = tuple[float, float]
"""Relative and absolute tolerance."""
Verdict = Literal["verified", "wrong", "unchecked"]
"""Unchecked: no check was requested, the original does not run, or all of its outputs are random."""


class Verification:
    """Runs a model and the one made of it, both as written, on feeds generated for the inputs of ``fed``."""

    def __init__(
        self, reference: Model, result: Model, fed: Model, *, limits: Limits = (RTOL, ATOL), ways: Ways = (dict, dict)
    ) -> None:
        self.reference, self.result, self.fed = reference, result, fed
        self.rtol, self.atol = limits
        self._feeds_to, self._outputs_to = ways
        self.verdict: Verdict = "wrong"
        self.said = ""
        self.differences: dict[str, ErrorStats] = {}
        self.wrong: dict[str, str] = {}
        self._far: dict[str, str] = {}
        self._rounding = ""
        self._random: set[str] = set()
        self._on = self._accepted = ""
        self._only: dict[str, int] = {}
        self._tell: Progress = lambda _done, _what: None

    def run(self, count: int, feeds: Any, tell: Progress) -> None:
        """Check, run and compare; the attributes hold the outcome."""
        if count <= 0 and feeds is None:
            self.verdict, self.said = "unchecked", "It was not verified, as check_n is 0."
            return
        self.said = complaint(self.result)
        self._accepted = "onnx's checker accepts it"
        if self.said and not complaint(self.reference):
            return
        if self.said:
            self._accepted = "onnx's checker refuses it, as it does the original"
        self._tell = tell
        feeds = None if feeds is None else list(read_feeds(self.fed, feeds))
        try:
            references = self._expected(count, feeds)
        except OnnxNbError as error:
            self.verdict, self.said = "unchecked", f"It was not verified, as the original does not run: {error}"
            return
        # an output may differ by a few roundings on the way to it, relative to its largest number on any feed
        roundings = {name: ROUNDINGS * precision for name, precision in _precision(self.reference).items()}
        scales = {name: max(largest(outputs[name]) for _, outputs in references) for name in references[0][1]}
        tolerances = {
            name: (max(self.rtol, roundings.get(name, 0)), max(self.atol, roundings.get(name, 0) * scale))
            for name, scale in scales.items()
        }
        try:
            self._compare_runs(references, tolerances)
        except OnnxNbError as error:
            self.said = f"The new model does not run: {error}"
            return
        if self._far:
            self._judge(references, tolerances)
        self._conclude(len(references[0][1]))

    def _expected(self, count: int, feeds: Any) -> Runs:
        session_ = session.create(self.reference, optimize=False)

        def run(feed: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            self._tell(0.55, "running the original")
            return feed, self._outputs_to(session.run_session(session_, self._feeds_to(feed), name=self.reference.name))

        if feeds is not None:
            self._on = f"the {count_text(len(feeds), 'feed')} given"
            runs = list(map(run, feeds))
        else:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
            runs = [until_it_runs(self.fed, lambda: run(random_feeds(self.fed, seed)))]
            first, about = runs[0][0], f"seeds from {seed}; {feeds_text(self.fed)}"
            self._on = f"{count_text(count, 'random feed')} ({about})"
            kinds = input_types(self.fed).items()
            arrays = [(kind, first[name]) for name, kind in kinds if isinstance(first.get(name), np.ndarray)]
            pairs = [pair for kind, array in arrays for pair in zip(dimensions(kind) or (), array.shape, strict=False)]
            sizes = {dim: size for dim, size in pairs if isinstance(dim, str)}
            for number in range(1, count):
                # use different sizes where dynamic, if the original accepts them
                larger = {dim: size + number for dim, size in sizes.items()}
                try:
                    runs.append(run(random_feeds(self.fed, seed + number, larger)))
                except OnnxNbError:
                    if not sizes:
                        raise
                    self._only = sizes  # the model has limits that its types do not show
                    runs.append(run(random_feeds(self.fed, seed + number)))
        random = names_where("random") | {"Dropout"}
        if any(op in random and not domain for op, domain in Graph.opened(self.reference).operators):
            (feed, outputs), *_ = runs
            _, again = run(feed)
            self._random = {name for name, value in outputs.items() if not _equal(value, again[name])}
        return runs

    def _compare_runs(self, references: Runs, tolerances: dict[str, Limits], *, own: bool = False) -> None:
        """Compare with the outputs of the reference; ``own``: those that itself gives when it is optimized."""
        feeds_to, outputs_to = (self._feeds_to, self._outputs_to) if own else (dict, dict)
        session_ = session.create(self.result, optimize=own)
        names = {entry.name for entry in session_.get_inputs()}
        for number, (feed, outputs) in enumerate(references):
            self._tell(0.8, "running the new model")
            inputs = {name: array for name, array in feeds_to(feed).items() if name in names}
            outputs_ = outputs_to(session.run_session(session_, inputs, name=self.result.name))
            for name in (outputs.keys() & outputs_.keys()) - self._random:
                self._compare(name, outputs[name], outputs_[name], number, tolerances[name])

    def _judge(self, references: Runs, tolerances: dict[str, Limits]) -> None:
        """Tell rounding from errors: onnxruntime's own optimization of the original must move the output as far."""
        ways = self._feeds_to, self._outputs_to
        own = Verification(self.reference, self.reference, self.fed, limits=(self.rtol, self.atol), ways=ways)
        with contextlib.suppress(OnnxNbError):  # without this yardstick the tolerances decide
            own._compare_runs(references, tolerances, own=True)
        for name, what in self._far.items():
            errors, noise = self.differences[name], own.differences.get(name)
            far, rmse, share = (noise.max_abs, noise.rmse, noise.relative_error) if noise else (0.0, 0.0, 0.0)
            distance = f", where onnxruntime's own optimization moves {quoted(name)} by {far:.2g}"
            # a few values may be far, but not all of them
            is_near = errors.max_abs <= NOISE * far and errors.rmse <= NOISE * rmse
            is_rare = errors.outside <= FAR_SHARE * errors.count
            if is_near and is_rare and max(share, errors.relative_error) <= CONTRADICTED_ERROR:
                self._rounding = distance
            else:
                self.wrong.setdefault(name, what + distance)

    def _compare(self, name: str, reference: Any, result: Any, number: int, tolerances: Limits) -> None:
        if isinstance(reference, list) and isinstance(result, list) and len(reference) == len(result):
            for one, other in zip(reference, result, strict=True):
                self._compare(name, one, other, number, tolerances)
            return
        if _equal(reference, result):
            return
        if not (isinstance(reference, np.ndarray) and isinstance(result, np.ndarray)):
            self.wrong.setdefault(name, f"is {result!r:.60}, not {reference!r:.60}")
            return
        if reference.shape != result.shape or reference.dtype != result.dtype:
            what = f"is {result.dtype.name} {list(result.shape)}, not {reference.dtype.name} {list(reference.shape)}"
            self.wrong.setdefault(name, what)
            return
        rtol, atol = (0.0, 0.0) if reference.dtype.kind in "biuOSU" else tolerances
        errors = ErrorStats.of(reference, result, rtol=rtol, atol=atol, feed=number)
        if errors.is_equal:
            return
        before = self.differences.get(name)
        self.differences[name] = errors if before is None else before.merge(errors)
        if errors.outside:
            worst = f"by up to {errors.max_abs:.3g}" if errors.max_abs > 0 else "in NaN or infinity"
            what = f"differs {worst} in {errors.outside} of {errors.count} values on feed {number}"
            (self._far if rtol or atol else self.wrong).setdefault(name, what)

    def _conclude(self, count: int) -> None:
        if self.wrong:
            faults = "; ".join(f"output {quoted(name)} {what}" for name, what in list(self.wrong.items())[:5])
            self.said = f"On {self._on} {faults}."
            return
        checks = count - len(self._random)
        names = ", ".join(map(quoted, sorted(self._random)))
        rest = f" {names} is random and was not compared." if names else ""
        if count and not checks:
            self.verdict, self.said = "unchecked", f"It was not verified.{rest}"
            return
        self.verdict = "verified"
        agree = f"{checks} output{' agrees' if checks == 1 else 's agree'}"
        most = max((errors.max_abs for errors in self.differences.values()), default=0.0)
        nearly = f"to {most:.2g} at most{self._rounding}" if most else "exactly"
        if self._only:
            sizes = ", ".join(f"{dim}={size}" for dim, size in self._only.items())
            rest += f" Sizes other than {shortened(sizes, 200)} were tried too, and the original refused some."
        self.said = f"{agree} on {self._on}, {nearly}; {self._accepted}.{rest}"


def _precision(model: Model) -> dict[str, float]:
    """Return for each output the coarsest relative rounding of a value on the way to it."""
    graph, whole = Graph.of(model), Graph.opened(model)
    flow, maker = Flow.of(graph), whole.producer
    kinds = [[_rounding(kind.elem_type, is_quantized=way) for way in (False, True)] for kind in whole.known_types]
    quantizing = [bool(re.search("Quantize|QLinear", op)) for op, _ in whole.operators]
    is_quantized = np.append(np.asarray(quantizing, np.intp)[whole.op_index], 0)[maker]
    coarse = np.where(maker < 0, 0.0, np.asarray(kinds)[whole.type_index, is_quantized])
    root = [-1]
    for subgraph in whole.subgraphs[1:]:  # a node rounds what its bodies and the function that it calls round
        root.append(subgraph.owner_node if subgraph.parent == 0 else root[subgraph.parent])
    main = np.where(whole.value_subgraph == 0, maker, np.asarray(root)[whole.value_subgraph])
    rounding = np.zeros(graph.main_count + 1)
    np.maximum.at(rounding, main, coarse)
    precisions: list[float] = rounding.tolist()
    precisions[-1] = 0.0  # what no node makes
    for node in graph.order.tolist():
        precisions[node] = max([precisions[node], *(precisions[flow.producer[value]] for value in flow.reads(node))])
    return {graph.value_names[value]: precisions[flow.producer[value]] for value in graph.outputs.tolist()}


def _rounding(elem_type: int, *, is_quantized: bool) -> float:
    """Return the relative rounding of a type; that of integers only counts where they are quantized floats."""
    dtype = numpy_dtype(elem_type)
    name = "" if dtype is None else dtype.name
    if "float" in name or "complex" in name:
        return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return 0.5 ** int(ml_dtypes.iinfo(dtype).bits) if is_quantized and "int" in name else 0.0  # type: ignore[no-untyped-call]


def largest(value: Any) -> float:
    """Return the largest finite absolute value in an array or a list of arrays; 0 if there is none."""
    if isinstance(value, list):
        return max(map(largest, value), default=0.0)
    if not isinstance(value, np.ndarray) or value.dtype.kind in "biuOSU":
        return 0.0
    sizes = np.abs(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def complaint(model: Model) -> str:
    """Return the reason why onnx's checker, with its inference of types, rejects a model; empty if it does not."""

    def reason() -> str:
        try:
            # a process of its own takes longer than the check
            external_data.accepted(model, full=True, apart=session.fatal_problem(Graph.opened(model)) is not None)
        except OnnxNbError as error:
            return str(error)
        return ""

    return cached(model, complaint, reason)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return bool(one == other)
