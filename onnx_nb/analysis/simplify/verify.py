"""Run the original and the simplified model on the same feeds, and compare their outputs.

Feeds are new each time, and of different sizes where the inputs are dynamic, so that sizes that were fixed by mistake
show. Random outputs are found by running the original twice, and are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np

from onnx_nb.analysis.compare import metrics
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import count_text, quoted, shortened
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model import external_data
from onnx_nb.analysis.model.tensors import all_nodes, dimensions, input_types
from onnx_nb.analysis.run import feeds, session
from onnx_nb.analysis.run.random_feeds import random_feeds
from onnx_nb.analysis.simplify.rules_fusion import RANDOM

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress


Verdict = Literal["verified", "wrong", "unchecked"]
"""Unchecked: no check was asked for, the original does not run, or all of its outputs are random."""


class Check:
    """Runs a model and the simplified one, both as written, on feeds made for the inputs of ``fed``."""

    def __init__(self, reference: Model, result: Model, fed: Model, rtol: float, atol: float) -> None:
        self.reference, self.result, self.fed = reference, result, fed
        self.rtol, self.atol = rtol, atol
        self.verdict: Verdict = "wrong"
        self.said = ""
        self.differences: dict[str, metrics.ErrorStats] = {}
        self.wrong: dict[str, str] = {}
        self._random: set[str] = set()
        self._on = ""
        self._only: dict[str, int] = {}

    def run(self, count: int, given: Any, tell: Progress) -> None:
        """Check, run and compare; the attributes hold the outcome."""
        if count <= 0 and given is None:
            self.verdict, self.said = "unchecked", "It was not verified, as check_n is 0."
            return
        refused = self._refused()
        if refused:
            self.said = refused
            return
        tell(0.55, "running the original")
        if given is not None:
            given = list(feeds.read_feeds(self.fed, given))
        try:
            fed, expected = self._expected(count, given)
        except OnnxNbError as error:
            self.verdict, self.said = "unchecked", f"It was not verified, as the original does not run: {error}"
            return
        tell(0.8, "running the simplified model")
        try:
            made = session.create(self.result, optimize=False)
            wanted = {entry.name for entry in made.get_inputs()}
            for number, (feed, outputs) in enumerate(zip(fed, expected, strict=True)):
                taken = {name: array for name, array in feed.items() if name in wanted}
                found = session.run_session(made, taken, name=self.result.name)
                for name, value in outputs.items():
                    if name not in self._random:
                        self._compare(name, value, found[name], number)
        except OnnxNbError as error:
            self.said = f"The simplified model does not run: {error}"
            return
        self._conclude(list(expected[0]))

    def _refused(self) -> str:
        """Return the complaint of onnx's checker about the result, unless it has one about the original too."""
        try:
            external_data.check(self.result)
        except OnnxNbError as error:
            try:
                external_data.check(self.reference)
            except OnnxNbError:
                return ""
            return str(error)
        return ""

    def _expected(self, count: int, given: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return feeds and the outputs of the original."""
        made = session.create(self.reference, optimize=False)

        def run(feed: dict[str, Any]) -> dict[str, Any]:
            return session.run_session(made, feed, name=self.reference.name)

        if given is not None:
            fed = given
            self._on = f"the {count_text(len(fed), 'feed')} given"
            expected = [run(feed) for feed in fed]
        else:
            first = int(np.random.SeedSequence().generate_state(1)[0])
            self._on = f"{count_text(count, 'random feed')} (seeds from {first})"
            fed = [random_feeds(self.fed, first)]
            expected = [run(fed[0])]
            for number in range(1, count):
                feed, outputs = self._other(first + number, number, fed[0], run)
                fed.append(feed)
                expected.append(outputs)
        if _draws(self.reference):
            again = run(fed[0])
            self._random = {name for name, value in expected[0].items() if not _equal(value, again[name])}
        return fed, expected

    def _other(
        self, seed: int, number: int, first: Mapping[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return another feed and its outputs: of different sizes where dynamic, if the original accepts them."""
        found = {
            dim: size
            for name, kind in input_types(self.reference).items()
            if name in first and isinstance(first[name], np.ndarray)
            for dim, size in zip(dimensions(kind) or (), first[name].shape, strict=False)
            if isinstance(dim, str)
        }
        if found:
            try:
                feed = random_feeds(self.reference, seed, {dim: size + number for dim, size in found.items()})
                return feed, run(feed)
            except OnnxNbError:
                self._only = found  # the model has limits that its types do not show
        feed = random_feeds(self.fed, seed)
        return feed, run(feed)

    def _compare(self, name: str, expected: Any, found: Any, number: int) -> None:
        if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
            for one, other in zip(expected, found, strict=True):
                self._compare(name, one, other, number)
            return
        if not (isinstance(expected, np.ndarray) and isinstance(found, np.ndarray)):
            if not _equal(expected, found):
                self.wrong.setdefault(name, f"is {found!r:.60}, not {expected!r:.60}")
            return
        if expected.shape != found.shape or expected.dtype != found.dtype:
            what = f"is {found.dtype.name} {list(found.shape)}, not {expected.dtype.name} {list(expected.shape)}"
            self.wrong.setdefault(name, what)
            return
        if _equal(expected, found):
            return
        rtol, atol = self._tolerance(expected.dtype)
        errors = metrics.ErrorStats.of(expected, found, rtol=rtol, atol=atol, feed=number)
        if errors.is_equal:
            return
        before = self.differences.get(name)
        self.differences[name] = errors if before is None else before.merge(errors)
        if errors.outside:
            worst = f"by up to {errors.max_abs:.3g}" if errors.max_abs > 0 else "in NaN or infinity"
            self.wrong.setdefault(
                name, f"differs {worst} in {errors.outside} of {errors.count} values on feed {number}"
            )

    def _tolerance(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        if dtype.kind in "biuOSU":
            return 0.0, 0.0
        own = 8 * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
        return max(self.rtol, own), max(self.atol, own)

    def _conclude(self, names: list[str]) -> None:
        if self.wrong:
            listed = "; ".join(f"output {quoted(name)} {what}" for name, what in list(self.wrong.items())[:5])
            self.said = f"On {self._on} {listed}."
            return
        largest = max((errors.max_abs for errors in self.differences.values()), default=0.0)
        compared = len(names) - len(self._random)
        drawn = (
            f" {', '.join(map(quoted, sorted(self._random)))} is random and was not compared." if self._random else ""
        )
        if names and not compared:
            self.verdict, self.said = "unchecked", f"It was not verified.{drawn}"
            return
        self.verdict = "verified"
        agree = f"{compared} output{' agrees' if compared == 1 else 's agree'}"
        nearly = f"to {largest:.2g} at most" if largest else "exactly"
        if self._only:
            sizes = ", ".join(f"{dim}={size}" for dim, size in self._only.items())
            drawn += f" Sizes other than {shortened(sizes, 200)} were tried too, and the original refused some."
        self.said = f"{agree} on {self._on}, {nearly}; onnx's checker accepts it.{drawn}"


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return bool(
            np.array_equal(one, other) or (one.dtype.kind == "f" and np.array_equal(one, other, equal_nan=True))
        )
    return bool(one == other)


def _draws(model: Model) -> bool:
    """Return whether a model draws random numbers."""
    graph = Graph.of(model)
    names = {op_type for op_type, _ in graph.operators}
    names |= {node.op_type for function in model.proto.functions for node in all_nodes(function.node)}
    return bool(names & (RANDOM | {"Dropout"}))
