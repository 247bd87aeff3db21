"""The list of edits of a model: each is checked, proved, undone and redone, and all are Python.

The model that is edited never changes: each step has a model of its own, which shares all weights that it keeps.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from onnx import ModelProto

from onnx_nb.analysis.arguments import known_arguments
from onnx_nb.analysis.compare.compare import compare
from onnx_nb.analysis.edit import batch, surgery
from onnx_nb.analysis.errors import EditError, OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, number_text, quoted
from onnx_nb.analysis.match.diff import Diff, diff
from onnx_nb.analysis.model.model import Model, ModelLike, cached, label_of, load, storage_of
from onnx_nb.analysis.model.storage import available_memory
from onnx_nb.analysis.progress import stage
from onnx_nb.analysis.results import Displayed, Panel, Still, StillTable, Table
from onnx_nb.analysis.simplify.verification import Verification, complaint

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.progress import Progress

Proof = Literal["equal", "rounding", "changed", "wrong", "unproved"]
"""Equal: to the last bit. Changed: as meant. Wrong: it should compute the same, and does not."""
SIGNS: Final[Mapping[Proof, str]] = {"equal": "✓", "rounding": "≈", "changed": "≠", "wrong": "✗", "unproved": "?"}
CHECKED: Final = 3000
"""Nodes up to which onnx's checker judges each step at once; it judges a larger model before it is saved."""
_VERBS: Final[Mapping[str, Callable[..., surgery.EditResult]]] = {
    "before": functools.partial(surgery.join, is_first=True),
    "after": functools.partial(surgery.join, is_first=False),
    "set": surgery.set_attributes,
    "free": batch.free,
}
"""Verbs that are not functions of `surgery` by their names."""


@dataclass(frozen=True, eq=False)
class EditStep:
    """One edit."""

    call: str
    """The Python that makes it."""
    text: str
    """Description of the edit."""
    model: Model
    """The model after it."""
    proof: Proof
    reason: str
    """Evidence for the proof: the feeds, and how far each output moves."""
    _outcome: surgery.EditResult
    _again: Callable[[Model], surgery.EditResult]

    @property
    def verdict(self) -> str:
        """The proof in a few words."""
        if self._outcome.proof or self.proof == "changed":
            return self.reason
        words = {"equal": "equal on the same feeds", "rounding": "equal but for rounding"}
        if self.proof == "unproved" and not self.reason:
            return "not proved yet"
        return words.get(self.proof) or f"{'NOT the same' if self.proof == 'wrong' else 'not proved'}: {self.reason}"

    def __repr__(self) -> str:
        return f"{SIGNS[self.proof]} {self.text}" + (f": {self.reason}" if self.reason else "")


class Edit(Displayed, Table):
    """Edits of a model, as returned by `edit`. Every method that edits returns the Edit itself.

    Raises
    ------
    EditError
        From a method that edits, if a name is not there, if the result is no valid model, or if the edit would leave
        a hole or cannot be done, with the reason. The model is then as before.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[1, 2, 3] x) => (float[1, 6] y) <int64[2] shape = {1, 6}> {
    ...   a = Dropout(x)  b = Reshape(a, shape)  y = Exp(b) }''')
    >>> e = edit(model).rename({"x": "image"}).free("batch")
    >>> e.verify()
    Edit('g': 2 steps, all as meant)
    >>> e.steps[1]
    ✓ freed batch of image, mended Reshape ×1: in batches of 2, 3, 7 different samples each gives what it gives alone
    >>> print(e.undo(1).code)
    import onnx_nb
    <BLANKLINE>
    e = onnx_nb.edit(model)
    e.free('batch')
    """

    def __init__(self, model: ModelLike) -> None:
        self.original = load(model)
        self._steps: list[EditStep] = []
        self._undone: list[list[EditStep]] = []

    @property
    def model(self) -> Model:
        """The edited model."""
        return self._steps[-1].model if self._steps else self.original

    @property
    def steps(self) -> tuple[EditStep, ...]:
        """The edits, in order."""
        return tuple(self._steps)

    def current_name(self, name: str) -> str:
        """Return what a tensor, node or dimension of `original` is called in `model`."""
        return functools.reduce(lambda now, step: step._outcome.renames.get(now, now), self._steps, name)  # noqa: SLF001

    @property
    def diff(self) -> Diff:
        """Differences from the original model."""
        return cached(self.model, (Edit, self.original), lambda: diff(self.original, self.model))

    @property
    def code(self) -> str:
        """Python that makes the same model; models and large arrays without a file are named, as is the original."""
        path = self.original.path
        start = f"e = onnx_nb.edit({'model' if path is None else repr(str(path))})"
        calls = [f"e.{step.call}" for step in self._steps]
        numpy = ["import numpy"] if any("numpy." in call for call in calls) else []
        return "\n".join([*numpy, "import onnx_nb", "", start, *calls])

    @known_arguments
    def rename(self, names: Mapping[str, str]) -> Edit:
        """Rename tensors (inputs, outputs, weights), nodes or dimensions, in bodies too; "Block::t" in a function."""
        return self._do("rename", names)

    @known_arguments
    def fix(self, shapes: Mapping[str, Any] | None = None, **sizes: int) -> Edit:
        """Fix dimensions (``batch=1``), or shapes of inputs (``{"x": [1, 3, None, None]}``)."""
        return self._do("fix", {**(shapes or {}), **sizes})

    @known_arguments
    def free(
        self, name: str = "batch", axes: Mapping[str, int] | None = None, *, progress: Progress | None = None
    ) -> Edit:
        """Make the batch dynamic: the first axis of inputs, or those of ``axes``, by input.

        What pins it is found by running each node on two batches, and mended: a Reshape, a shape, or a constant that
        each sample needs. Then batches of 2, 3 and 7 different samples, loud and silent, must give what each gives
        alone; else the error says which node mixes them.
        """
        return self._do("free", name, axes, progress=progress)

    def remove(self, *names: str) -> Edit:
        """Remove nodes or scopes; who read what they make reads their input of that type."""
        return self._do("remove", names)

    def insert(
        self, op_type: str, after: str, inputs: Sequence[Any] = (), *, domain: str = "", **attributes: Any
    ) -> Edit:
        """Insert a node behind a tensor, with more inputs (names, or arrays as weights), and attributes."""
        sources = [inputs] if isinstance(inputs, str) else inputs
        return self._do("insert", op_type, after, sources, domain=domain, **attributes)

    def replace(self, inputs: Sequence[str], outputs: Sequence[str], other: ModelLike) -> Edit:
        """Put a model in the place of what is between tensors; its inputs and outputs in their order."""
        return self._do("replace", inputs, outputs, other)

    def before(self, other: ModelLike) -> Edit:
        """Put a model in front, such as a preprocessing: it makes inputs, by name or else in their order."""
        return self._do("before", other)

    def after(self, other: ModelLike) -> Edit:
        """Put a model behind, such as a postprocessing: it takes outputs, by name or else in their order."""
        return self._do("after", other)

    def output(self, *names: str) -> Edit:
        """Make tensors outputs as well."""
        return self._do("output", names)

    def drop(self, *names: str) -> Edit:
        """Drop outputs, with what only they need, or inputs that nothing reads."""
        return self._do("drop", names)

    def set(self, node: str, **attributes: Any) -> Edit:
        """Set attributes of a node; ``None`` removes one."""
        return self._do("set", node, attributes)

    def weight(self, name: str, values: Any) -> Edit:
        """Change the values of a weight: an array, or the path of a .npy file."""
        return self._do("weight", name, values)

    def tie(self, name: str, to: str) -> Edit:
        """Let those who read a weight read another one of the same shape."""
        return self._do("tie", name, to)

    @known_arguments
    def dtype(self, types: Mapping[str, str]) -> Edit:
        """Change the element types of inputs and outputs (``{"x": "uint8"}``), with a Cast inside."""
        return self._do("dtype", types)

    @known_arguments
    def convert(self, opset: int | None = None, ir: int | None = None) -> Edit:
        """Convert to an opset by onnx's version converter, and to a version of the file format."""
        return self._do("convert", opset, ir)

    def to_float16(self, keep: Sequence[str] = (), feeds: Any = None) -> Edit:
        """Convert to float16 by onnxruntime's converter, except what is kept, and what overflows on feeds."""
        return self._do("to_float16", keep, feeds)

    @known_arguments
    def undo(self, step: int | None = None) -> Edit:
        """Undo the last step, or one by its number from 1, if no later one needs it."""
        if not self._steps:
            raise EditError("there is nothing to undo.", advice="No step was made, or all are undone.")
        number = self._number(len(self._steps) if step is None else step)
        former, later = [*self._steps], self._steps[number:]
        del self._steps[number - 1 :]
        for at, following in enumerate(later, number + 1):
            try:
                outcome = following._again(self.model)  # noqa: SLF001
            except OnnxNbError as error:
                self._steps = former
                message = f"step {at} needs step {number}: without it, {error.message}"
                raise EditError(message, advice=f"Undo step {at} first.") from None
            self._steps.append(_step(following.call, outcome, following._again))  # noqa: SLF001
        self._undone.append(former)
        return self

    @property
    def can_redo(self) -> bool:
        """Whether `redo` has something to take back."""
        return bool(self._undone)

    def redo(self) -> Edit:
        """Take back the last `undo`."""
        if not self._undone:
            raise EditError("there is nothing to redo.", advice="An edit after undo() leaves nothing.")
        self._steps = self._undone.pop()
        return self

    def verify(self, feeds: Any = None, *, progress: Progress | None = None) -> Edit:
        """Prove each step: run the model before and after it on the same feeds, given or random.

        What should compute the same must do so; of the rest it is said how far each output moves. onnx's checker
        judges each result.
        """
        former, steps = self.original, self.steps
        for number, step in enumerate(steps):
            if step.proof == "unproved" or feeds is not None:
                tell = stage(progress, number / len(steps), 1) or (lambda _done, _what: None)
                proof, reason = _proof(former, step._outcome, feeds, tell)  # noqa: SLF001
                if step in self._steps:  # a cell may undo it meanwhile
                    self._steps[self._steps.index(step)] = replace(step, proof=proof, reason=reason)
            former = step.model
        return self

    def compare(self, step: int | None = None, feeds: Any = None, *, progress: Progress | None = None) -> Comparison:
        """Compare the models before and after a step, by default the original and the last, tensor by tensor."""
        number = 0 if step is None else self._number(step)
        before = self._steps[number - 2].model if number > 1 else self.original
        return compare(before, self._steps[number - 1].model if number else self.model, feeds, progress=progress)

    def _number(self, step: int) -> int:
        if not 1 <= step <= len(self._steps):
            raise EditError(f"there is no step {step}.", advice=f"It has {count_text(len(self._steps), 'step')}.")
        return step

    def save(
        self, path: str | os.PathLike[str], *, check: bool = True, progress: Progress | None = None, **options: Any
    ) -> Path:
        """Write the edited model as `Model.save` does, after `verify`; without ``check``, as it is.

        Raises
        ------
        EditError
            If onnx's checker refuses the result, or a step that should compute the same does not.
        """
        for step in self.verify(progress=progress).steps if check else ():
            if step.proof == "wrong":
                message = f"{label_of(self.original)} is not the same after {step.call:.80}. {step.reason}"
                raise EditError(message, advice="Undo the step, or save with check=False.")
        return self.model.save(path, **options)

    _columns = ("step", "call", "text", "proof", "reason")

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step."""
        names = self._columns[1:]
        return [{"step": at} | {name: getattr(step, name) for name in names} for at, step in enumerate(self._steps, 1)]

    @property
    def message(self) -> str:
        """How many steps there are, and whether they are proved."""
        proofs = [step.proof for step in self._steps]
        wrong, rest = proofs.count("wrong"), proofs.count("unproved")
        verdict = f"{wrong} wrong" if wrong else f"{rest} not proved: verify()" if rest else "all as meant"
        return f"{count_text(len(proofs), 'step')}" + (f", {verdict}" if proofs else "")

    def __repr__(self) -> str:
        return f"Edit({label_of(self.original)!r}: {self.message})"

    def _panel(self) -> Panel:
        """Return the two models side by side, below the list of steps."""
        if not self._steps:
            return Panel("graph.ModelView", (self.original,), shows_result=False)
        return Panel("diff.DiffPanel", (self.original, self.model, self.diff), shows_result=False)

    def _still(self) -> Still:
        rows = [(f"{at}", f"e.{s.call}", f"{SIGNS[s.proof]} {s.text}", s.reason) for at, s in enumerate(self._steps, 1)]
        steps = (
            "`.verify()` proves each step; `.undo(step)` and `.redo()`.",
            "`print(e.code)` is the Python that makes this model; `.save(path)` writes it.",
        )
        alarms = [step.proof == "wrong" for step in self.steps]
        table = StillTable(("Step", "Python", "What", "Proof"), rows, "step", 4, "", alarms)
        return Still(f"{label_of(self.original)}: {self.message}.", tables=(table,) if rows else (), steps=steps)

    def _do(self, verb: str, *args: Any, **kwargs: Any) -> Edit:
        if not storage_of(self.original).is_current():
            message = f"{label_of(self.original)} has changed on disk."
            raise EditError(message, advice="Load it again: see print(e.code).")
        some = {"set": 1, "weight": 1, "insert": 2, "tie": 2}.get(verb, 0)
        names = args[0] if verb in ("remove", "output", "drop") else args[:some]
        if not all(isinstance(name, str) for name in names):
            raise EditError(f"{verb} takes names, not {args[0]!r:.80}.", advice='For example e.remove("conv1").')
        changes = ("rename", "fix", "remove", "output", "drop", "dtype", "convert")
        if verb in changes and all(argument in (None, (), {}) for argument in args):
            raise EditError(f"{verb} is given nothing.", advice=f"See help(e.{verb}).")

        def again(model: Model) -> surgery.EditResult:
            try:
                outcome = (_VERBS.get(verb) or getattr(surgery, verb))(model, *args, **kwargs)
            except (TypeError, ValueError, NotImplementedError, OSError) as error:  # of numpy and onnx, which read it
                raise EditError(f"{verb} cannot use what it is given: {str(error).removesuffix('.'):.300}.") from error
            if len(model.proto.graph.node) <= CHECKED and not complaint(model) and (reason := complaint(outcome.model)):
                raise EditError(f"after {verb} this is no valid model: {reason}", advice="It was not done.")
            return outcome

        self._steps.append(_step(_source(verb, args, kwargs), again(self.model), again))
        self._undone = []
        return self


@known_arguments
def edit(model: ModelLike) -> Edit:
    """Begin to edit a model. Nothing is copied, and the model stays as it is; see `Edit` for what can be done.

    Parameters
    ----------
    model
        Any `ModelLike`.

    Raises
    ------
    ModelFileError
        If it cannot be read.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { a = Identity(x) y = Neg(a) }'
    >>> edit(onnx.parser.parse_model(text)).fix(n=4).output("a").model.outputs[1].shape
    (4,)
    """
    return Edit(model)


def _step(call: str, outcome: surgery.EditResult, again: Callable[[Model], surgery.EditResult]) -> EditStep:
    proof: Proof = "equal" if outcome.proof else "unproved"
    return EditStep(call, outcome.text, outcome.model, proof, outcome.proof, outcome, again)


def _proof(former: Model, outcome: surgery.EditResult, feeds: Any, tell: Progress) -> tuple[Proof, str]:
    """Run a model before and after an edit, and judge."""
    if outcome.proof and feeds is None:
        return "equal", outcome.proof
    if (need := former.nbytes + outcome.model.nbytes) > available_memory():
        return "unproved", f"needs {bytes_text(need)}"
    check = Verification(former, outcome.model, outcome.model, ways=(outcome.feeds_to, outcome.outputs_to))
    check.run(3, feeds, tell)
    if check.verdict == "unchecked":
        return "unproved", check.said
    if check.verdict == "verified":
        return ("rounding" if check.differences else "equal"), check.said
    if outcome.is_same or not check.wrong:
        return "wrong", check.said
    sizes = [f"{quoted(name)} moves by {number_text(d.max_abs, 2)}" for name, d in check.differences.items()]
    return "changed", f"{', '.join(sizes)} at most" if sizes else check.said


def _source(verb: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    given = [*args[0]] if verb in ("remove", "output", "drop") else [*args[:1]] if verb == "set" else [*args]
    while given and (given[-1] is None or (isinstance(given[-1], tuple) and not given[-1])):
        given.pop()
    options = {**kwargs, **args[1]} if verb == "set" else kwargs
    texts = [f"{name}={_literal(value)}" for name, value in options.items() if name != "progress" and value != ""]
    return f"{verb}({', '.join([*map(_literal, given), *texts])})"


def _literal(value: Any) -> str:
    if isinstance(value, Model):
        return "other" if value.path is None else repr(str(value.path))
    if isinstance(value, np.ndarray | np.generic):
        return f"numpy.array({value.tolist()!r}, {value.dtype.name!r})" if value.size <= 64 else "array"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return "other" if isinstance(value, ModelProto) else repr(os.fspath(value) if isinstance(value, Path) else value)
