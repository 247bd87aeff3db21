"""Two graphs side by side, in step: what an optimizer, another exporter or another version made of a model.

What corresponds to what, and what is different, is told by `onnx_nb.diff`; here it is shown.
"""

from __future__ import annotations

from typing import Any

import traitlets

from onnx_nb.analysis.compare.diff import Diff, diff
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load
from onnx_nb.analysis.view.diff_columns import diff_columns
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.drawing.html import pair_page
from onnx_nb.widgets._base import SIDES, PairWidget
from onnx_nb.widgets._channel import Call, Channel, Reply
from onnx_nb.widgets._snapshot import Picture
from onnx_nb.widgets.graph import COLUMNS_IN_STATE


class DiffPanel(PairWidget):
    """Two live graphs side by side: what differs is marked and listed, and both move, open and select in step.

    Parameters
    ----------
    reference, candidate
        Each a path, bytes, ``ModelProto``, ``onnx_ir.Model``, ``ONNXProgram`` or `Model`. They are never changed.
    differences
        What `onnx_nb.diff` found between these two; it is asked if ``None``.
    height
        Height of each graph in pixels.
    theme
        ``"auto"`` follows the notebook.

    Raises
    ------
    ModelFileError
        If a model cannot be read.
    OnnxNbError
        If ``differences`` is of other models.
    TypeError
        If an argument is not known.

    Examples
    --------
    >>> import onnx.parser
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) '
    >>> one, other = (onnx.parser.parse_model(head + body) for body in ("{ z = Neg(x) }", "{ a = Abs(x) z = Neg(a) }"))
    >>> DiffPanel(one, other).differences
    Diff('g' → 'g': 1 node added)
    """

    reference: Model
    candidate: Model
    diff: Diff

    _kind = traitlets.Unicode("pair").tag(sync=True)
    _names = traitlets.List(traitlets.Unicode()).tag(sync=True)

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """What is selected, on either side:
    ``[{"side": "reference" | "candidate", "kind": "tensor" | "node" | "scope", "name": …}]``."""

    def __init__(
        self, reference: ModelLike, candidate: ModelLike, differences: Diff | None = None, **traits: Any
    ) -> None:
        self.reference, self.candidate = load(reference), load(candidate)
        self.differences = _checked(self.reference, self.candidate, differences)
        self._packed = {
            "reference": columns(self.reference).to_bytes(),
            "candidate": columns(self.candidate).to_bytes(),
            "differences": diff_columns(self.differences).to_bytes(),
        }
        small = sum(map(len, self._packed.values())) <= COLUMNS_IN_STATE
        names = _told_apart(self.reference, self.candidate)
        picture = Picture(f"{names[0]} beside {names[1]}: {self.differences.message}")
        super().__init__(
            picture,
            _names=names,
            **{f"_{part}": packed for part, packed in self._packed.items() if small},
            **traits,
        )
        self._channel = Channel(
            self,
            {
                "columns": lambda call: Reply(buffers=[self._packed[_part(call, *self._packed)]]),
                "inspect": self._answer_inspect,
                "figures": self._answer_figures,
                "overlay": self._answer_overlay,
                "picture": self._answer_picture,
            },
        )

    def __repr__(self) -> str:
        return f"DiffPanel({self.reference!r}, {self.candidate!r})"

    def _sides(self) -> tuple[Model, Model]:
        return self.reference, self.candidate

    def _page(self, baked: dict[str, bytes]) -> str:
        return pair_page(names=self._names, parts={**self._packed, **baked})

    def _model(self, call: Call) -> Model:
        return self.reference if _part(call, *SIDES) == "reference" else self.candidate


def _told_apart(left: Model, right: Model) -> list[str]:
    """Return the names of two models, with as many folders before them as it takes to tell them apart."""
    names = [left.name, right.name]
    if names[0] != names[1] or left.path is None or right.path is None or left.path == right.path:
        return names
    parts = left.path.parts, right.path.parts
    shared = 1
    while parts[0][-shared:] == parts[1][-shared:]:
        shared += 1
    return ["/".join(own[-shared:]) for own in parts]


def _part(call: Call, *known: str) -> str:
    part = str(call.args.get("part"))
    if part not in known:
        raise OnnxNbError(f"a pair of graphs has no part called {part!r}.", advice=f"It has {', '.join(known)}.")
    return part


def _checked(reference: Model, candidate: Model, given: Diff | None) -> Diff:
    if given is None:
        return diff(reference, candidate)
    for side, model, other in (
        ("reference", reference, given.reference),
        ("candidate", candidate, given.candidate),
    ):
        if model is not other and model.proto != other.proto:
            message = f"the differences given are not those of {label_of(model)}: their {side} is {label_of(other)}."
            raise OnnxNbError(message, advice="Leave differences out, or give the models they were made of.")
    return given
