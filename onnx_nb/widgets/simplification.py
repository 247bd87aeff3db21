"""A simplification in a cell: original and result side by side, every change and its reason, undone by a click.

To undo a change, the model is simplified again without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import quoted, shortened
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.progress import Progress
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.result_columns import Provenance, account
from onnx_nb.drawing.html import Content
from onnx_nb.widgets._base import in_state
from onnx_nb.widgets._channel import Call, Reply
from onnx_nb.widgets._graphs import SIDES, PairWidget, target_of

if TYPE_CHECKING:
    from onnx_nb.analysis.simplify.simplify import Simplification
    from onnx_nb.widgets.protocol import SkipRequest

PARTS: Final = (*SIDES, "differences")
"""Names of the parts for the whole simplification. Those of a step end in its number, such as ``"reference-1"``."""


class SimplificationPanel(PairWidget):
    """A simplification: both graphs in step, all changes with their reasons, and whether it was verified.

    The chosen change is shown in both graphs. A change or a whole rule can be undone and redone, and the result can be
    saved. With ``simplify(…, trace=True)`` each step has a tab.

    Parameters
    ----------
    simplification
        Result of `onnx_nb.simplify`.
    **traits
        Traits of the widget by name.

    Examples
    --------
    >>> import onnx.parser
    >>> from onnx_nb import simplify
    >>> panel = SimplificationPanel(simplify(onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    ... g (float[2] x) => (float[2] z) { a = Identity(x)  b = Neg(a)  c = Neg(b)  z = Dropout(c) }''')))
    >>> panel
    SimplificationPanel(Simplification(4 → 2 nodes, 2 changes, 0 left, verified))
    >>> panel.undo("eliminate_identity: a")
    Simplification(4 → 3 nodes, 1 change, 0 left, verified)
    >>> panel.redo()
    Simplification(4 → 2 nodes, 2 changes, 0 left, verified)
    """

    simplification: Simplification
    """The current result: after an undo, the one without the change."""

    _kind = traitlets.Unicode("simplification").tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)
    _revision = traitlets.Int(0).tag(sync=True)
    """Number of results shown so far."""

    change = traitlets.Unicode().tag(sync=True)
    """Key of the chosen change; empty for none."""

    step = traitlets.Int(0, min=0).tag(sync=True)
    """Number of the step that is shown next to its predecessor; 0 for the result next to the original."""

    def __init__(self, simplification: Simplification, **traits: Any) -> None:
        self.simplification = simplification
        super().__init__(f"{simplification.original.name} simplified: {simplification!r}", {}, **traits)
        self._show(simplification)

    @property
    def skipped(self) -> list[str]:
        """Names of rules and keys of changes that are skipped, as for ``skip``."""
        return list(self.simplification.options.get("skip", ()))

    def undo(self, *names: str) -> Simplification:
        """Simplify again without the given changes or rules, and show the result.

        Parameters
        ----------
        names
            Keys of changes, or names of `onnx_nb.rules`.

        Raises
        ------
        SimplificationError
            If there is no such rule, or with ``strict`` if the result is not verified. Then nothing changes.
        """
        return self._again([*self.skipped, *names])

    def redo(self, *names: str) -> Simplification:
        """Simplify again with changes or rules that were skipped.

        Parameters
        ----------
        names
            Entries of `skipped`; all of them if no name is passed.

        Raises
        ------
        OnnxNbError
            If one of them is not skipped.
        """
        rest = self.skipped
        for name in names:
            if name not in rest:
                names_left = shortened(", ".join(rest) or "nothing", 1000)
                raise OnnxNbError(f"{quoted(name)} is not left out.", advice=f"Left out: {names_left}.")
            rest.remove(name)
        return self._again(rest if names else [])

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Write the simplified model to a file, which appears only when complete.

        Parameters
        ----------
        path
            The file to write; ``~`` is the home of the kernel's user.
        replace
            Whether an existing file may be replaced.

        Returns
        -------
        pathlib.Path
            The file, as an absolute path.

        Raises
        ------
        OnnxNbError
            If the file exists and ``replace`` is False.
        ModelFileError
            If the file cannot be written.
        """
        target = target_of(path)
        if not replace and os.path.lexists(target):
            raise OnnxNbError(f"there is a file {target} already.", advice="replace=True overwrites it.")
        return self.simplification.model.save(target)

    def _content(self, **options: Any) -> Content:
        names = [*PARTS, *(f"{part}-{step}" for step in range(1, len(self.simplification.steps)) for part in PARTS)]
        parts = {name: self._part(name) for name in names} | self._baked(**options)
        path = self.simplification.original.path
        # a page is for others: the folders of this machine are not
        call = self._about["call"] if path is None else self._about["call"].replace(repr(str(path)), repr(path.name))
        return Content(f"{self._about['name']} simplified", {**self._about, "call": call}, "simplification", parts)

    def _show(self, result: Simplification) -> None:
        with self._lock, self.hold_sync():
            # the original is kept
            self._packed = {name: part_ for name, part_ in self._packed.items() if name == "reference"}
            self.simplification = result
            self._parts = in_state({part: self._part(part) for part in PARTS})
            self._about = account(result)
            self.step = 0
            self._revision += 1

    def _again(self, skip: list[str], progress: Progress | None = None) -> Simplification:
        result = self.simplification.again(progress=progress, skip=list(dict.fromkeys(skip)))
        self._show(result)
        return result

    def _pack(self, name: str) -> Columns:
        part, _, step = name.partition("-")
        if part not in PARTS or not (step.isdecimal() or not step):
            return super()._pack(name)
        number = int(step or 0)
        if part == "differences":
            return Provenance(self.simplification, number or None).columns()
        return columns(self._model(part, number))

    def _models(self, step: int = 0) -> tuple[Model, ...]:
        result = self.simplification
        if not step:
            return result.original, result.model
        if not step < len(result.steps):
            raise OnnxNbError(f"there is no step {step}.", advice="simplify(…, trace=True) keeps the steps.")
        return result.steps[step - 1].model, result.steps[step].model

    def _on_again(self, call: Call[SkipRequest]) -> Reply:
        return Reply(repr(self._again(call.request.skipped, call.progress)))

    def _saving(self) -> Model:
        return self.simplification.model
