"""Two graphs side by side, in step, and the differences between them from `onnx_nb.diff`."""

from __future__ import annotations

import itertools
from typing import Any

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.match.diff import Diff, diff
from onnx_nb.analysis.model.model import Model, ModelLike, label_of, load
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.result_columns import diff_columns
from onnx_nb.drawing.html import Content
from onnx_nb.widgets._graphs import SIDES, PairWidget


class DiffPanel(PairWidget):
    """Two live graphs side by side: differences are marked and listed, and both move, open and select in step.

    Parameters
    ----------
    reference, candidate
        Any `ModelLike`. They are never changed.
    differences
        Result of `onnx_nb.diff` for these two models; computed if ``None``.
    **traits
        Traits of the widget by name.

    Raises
    ------
    ModelFileError
        If a model cannot be read.
    OnnxNbError
        If ``differences`` belongs to other models.

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
    differences: Diff

    _kind = traitlets.Unicode("pair").tag(sync=True)
    _names = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(
        self, reference: ModelLike, candidate: ModelLike, differences: Diff | None = None, **traits: Any
    ) -> None:
        self.reference, self.candidate = load(reference), load(candidate)
        self.differences = diff(self.reference, self.candidate) if differences is None else differences
        models, origins = (self.reference, self.candidate), (self.differences.reference, self.differences.candidate)
        for side, model, other in zip(SIDES, models, origins, strict=True):
            if model is not other and model.proto != other.proto:
                about = f"{label_of(model)}: their {side} is {label_of(other)}"
                advice = "Leave differences out, or give the models they were made of."
                raise OnnxNbError(f"the differences given are not those of {about}.", advice=advice)
        parts = {side: columns(model).to_bytes() for side, model in zip(SIDES, models, strict=True)}
        parts["differences"] = diff_columns(self.differences).to_bytes()
        names = _distinct_names(self.reference, self.candidate)
        super().__init__(f"{names[0]} beside {names[1]}: {self.differences.message}", parts, _names=names, **traits)

    def __repr__(self) -> str:
        return f"DiffPanel({self.reference!r}, {self.candidate!r})"

    def _content(self, **options: Any) -> Content:
        parts = {**self._packed, **self._baked(**options)}
        return Content(" and ".join(self._names), {"names": self._names}, "pair", parts)

    def _models(self, _step: int = 0) -> tuple[Model, ...]:
        return self.reference, self.candidate


def _distinct_names(left: Model, right: Model) -> list[str]:
    """Return the names of two models, each with as many of its folders as needed to make the two distinct."""
    names = [left.name, right.name]
    if names[0] != names[1] or left.path is None or right.path is None or left.path == right.path:
        return names
    parts = left.path.parts, right.path.parts
    count = next(count for count in itertools.count(1) if parts[0][-count:] != parts[1][-count:])
    return ["/".join(path[-count:]) for path in parts]
