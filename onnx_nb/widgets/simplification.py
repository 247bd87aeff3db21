"""A simplification in a cell: original and result side by side, every change and its reason, undone by a click.

What each change took and made is told by `analysis.view.provenance`; to undo one simplifies once more
without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, shortened
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.provenance import account, of_simplification
from onnx_nb.drawing.html import simplification_page
from onnx_nb.widgets._base import SIDES, PairWidget
from onnx_nb.widgets._channel import Call, Channel, Reply
from onnx_nb.widgets._snapshot import Picture
from onnx_nb.widgets.graph import COLUMNS_IN_STATE

if TYPE_CHECKING:
    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.simplify.simplify import Simplification

PARTS = (*SIDES, "differences")


class SimplificationPanel(PairWidget):
    """What a simplification did: both graphs in step, all changes with their reasons, and whether it was verified.

    A change that is chosen shows in both graphs; it, or a whole rule, can be undone and done again, and the result
    saved. With ``simplify(…, trace=True)`` each step has a tab.

    Parameters
    ----------
    simplification
        What `onnx_nb.simplify` gave.
    height
        Height of each graph in pixels.
    theme
        ``"auto"`` follows the notebook.

    Raises
    ------
    TypeError
        If an argument is not known.

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
    """What is shown: after an undo what was made without the change."""

    _kind = traitlets.Unicode("simplification").tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)
    _revision = traitlets.Int(0).tag(sync=True)
    """Counts up when another result is shown."""

    selection = traitlets.Unicode().tag(sync=True)
    """The key of the change that is chosen; empty for none."""

    step = traitlets.Int(0, min=0).tag(sync=True)
    """Which of the steps is shown beside the one before it; 0 for the result beside the original."""

    def __init__(self, simplification: Simplification, **traits: Any) -> None:
        super().__init__(Picture(f"{simplification.original.name} simplified: {simplification!r}"), **traits)
        self._show(simplification)
        self._channel = Channel(
            self,
            {
                "columns": self._answer_columns,
                "inspect": self._answer_inspect,
                "figures": self._answer_figures,
                "overlay": self._answer_overlay,
                "picture": self._answer_picture,
                "again": self._answer_again,
                "save": self._answer_save,
            },
        )

    def __repr__(self) -> str:
        return f"SimplificationPanel({self.simplification!r})"

    @property
    def skipped(self) -> list[str]:
        """What is left out: names of rules and keys of changes, as ``skip`` takes them."""
        return list(self.simplification.options.get("skip", ()))

    def undo(self, *names: str) -> Simplification:
        """Simplify once more without changes, or without all of a rule; show the result.

        Parameters
        ----------
        names
            Keys of changes, or names of `onnx_nb.rules`.

        Raises
        ------
        SimplificationError
            If there is no such rule, or with ``strict`` if the result is not verified; nothing changes then.
        """
        return self._again([*self.skipped, *names])

    def redo(self, *names: str) -> Simplification:
        """Simplify once more with what was left out; all of it if none is named.

        Parameters
        ----------
        names
            Those of `skipped` that are to be done again.

        Raises
        ------
        OnnxNbError
            If one of them is not left out.
        """
        kept = self.skipped
        for name in names:
            if name not in kept:
                listed = ", ".join(kept) or "nothing"
                raise OnnxNbError(
                    f"{shortened(name, LONGEST)!r} is not left out.", advice=f"Left out: {shortened(listed, 1000)}."
                )
            kept.remove(name)
        return self._again(kept if names else [])

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Write the simplified model to a file, which appears when it is complete.

        Parameters
        ----------
        path
            Where to; ``~`` is the home of the kernel's user.
        replace
            Whether a file that is there may be replaced.

        Returns
        -------
        pathlib.Path
            The file, as an absolute path.

        Raises
        ------
        OnnxNbError
            If there is a file and ``replace`` was not asked for.
        ModelFileError
            If the file cannot be written.
        """
        target = _target(path)
        if not replace and os.path.lexists(target):
            raise OnnxNbError(f"there is a file {target} already.", advice="replace=True writes over it.")
        return self.simplification.model.save(target)

    def _sides(self) -> tuple[Model, Model]:
        return self._models(0)

    def _page(self, baked: dict[str, bytes]) -> str:
        parts = {part: self._part(0, part) for part in PARTS}
        for step in range(1, len(self.simplification.steps)):
            parts |= {f"{part}-{step}": self._part(step, part) for part in PARTS}
        return simplification_page(self._about, {**parts, **baked})

    def _show(self, found: Simplification) -> None:
        """Show another result, at the whole of it."""
        packed: dict[tuple[int, str], bytes] = getattr(self, "_packed", {})
        # the original stays
        self._packed = {key: part for key, part in packed.items() if key == (0, "reference")}
        self.simplification = found
        whole = {f"_{part}": self._part(0, part) for part in PARTS}
        small = sum(map(len, whole.values())) <= COLUMNS_IN_STATE
        with self.hold_sync():
            for name, part in whole.items():
                self.set_trait(name, part if small else None)
            self.set_trait("_about", account(found))
            self.step = 0
            self.set_trait("_revision", self._revision + 1)

    def _again(self, skipped: list[str], call: Call | None = None) -> Simplification:
        progress = None if call is None else call.progress
        found = self.simplification.again(progress=progress, skip=list(dict.fromkeys(skipped)))
        self._show(found)
        return found

    def _part(self, step: int, part: str) -> bytes:
        if (step, part) not in self._packed:
            if part == "differences":
                packed = of_simplification(self.simplification, step or None).columns()
            else:
                packed = columns(self._models(step)[PARTS.index(part)])
            self._packed[step, part] = packed.to_bytes()
        return self._packed[step, part]

    def _models(self, step: int) -> tuple[Model, Model]:
        found = self.simplification
        if not step:
            return found.original, found.model
        if not step < len(found.steps):
            raise OnnxNbError(f"there is no step {step}.", advice="simplify(…, trace=True) keeps the steps.")
        return found.steps[step - 1].model, found.steps[step].model

    def _answer_columns(self, call: Call) -> Reply:
        part = str(call.args.get("part"))
        if part not in PARTS:
            raise OnnxNbError(f"a simplification has no part called {part!r}.", advice=f"It has {', '.join(PARTS)}.")
        return Reply(buffers=[self._part(int(call.args.get("step") or 0), part)])

    def _model(self, call: Call) -> Model:
        return self._models(int(call.args.get("step") or 0))[call.args.get("part") == "candidate"]

    def _answer_again(self, call: Call) -> Reply:
        given = call.args.get("skipped")
        found = self._again([str(name) for name in given] if isinstance(given, list) else [], call)
        return Reply({"message": repr(found)})

    def _answer_save(self, call: Call) -> Reply:
        path, replace = str(call.args.get("path") or "").strip(), call.args.get("replace") is True
        if not path:
            raise OnnxNbError("no path was given.", advice="Type where to write the model.")
        target = _target(path)
        if not replace and os.path.lexists(target):
            return Reply({"path": str(target), "exists": True})
        written = self.save(target, replace=True)
        return Reply({"path": str(written), "exists": False, "size": bytes_text(written.stat().st_size)})


LONGEST = 200
"""Characters of a name in a message."""


def _target(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 (a link is to stay one)
