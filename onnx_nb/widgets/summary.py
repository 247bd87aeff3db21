"""The summary of a model in a cell: what goes in and out, which operators, which weights, what a run costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from onnx_nb.analysis.costs import costs
from onnx_nb.analysis.graph import Graph
from onnx_nb.analysis.model import Model, ModelLike, load
from onnx_nb.analysis.summary import Summary, outline, with_costs
from onnx_nb.widgets._base import OnnxWidget

PROMPT = 5_000
"""Of graphs with more nodes, costs are counted only when the tables are shown."""


class ModelSummary(OnnxWidget):
    """The summary of a model.

    Parameters
    ----------
    model
        Any `ModelLike`, or a `Summary` made before.
    shapes
        Sizes of dimensions by their symbol, and shapes by the name of their input; see `costs`.
    expanded
        ``False`` shows one line that opens on a click.
    theme
        ``"auto"`` follows the notebook.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> ModelSummary(onnx.parser.parse_model(text)).summary.nodes
    2
    """

    _kind = traitlets.Unicode("summary").tag(sync=True)
    _summary = traitlets.Dict().tag(sync=True)

    expanded = traitlets.Bool(True).tag(sync=True)  # noqa: FBT003 - a trait's default
    """Whether the tables are shown, or only the first line."""

    def __init__(
        self,
        model: ModelLike | Summary,
        *,
        shapes: Mapping[str, int | Sequence[int]] | None = None,
        **traits: Any,
    ) -> None:
        self._uncounted: Model | None = None
        self._shapes = shapes
        if isinstance(model, Summary):
            self.summary = model
        else:
            self._uncounted = load(model)
            self.summary = outline(self._uncounted)
            if shapes or traits.get("expanded", True) or Graph.of(self._uncounted).node_count <= PROMPT:
                self._count()
        super().__init__(_summary=self.summary.to_json(), **traits)

    def _count(self) -> None:
        if self._uncounted is not None:
            self.summary = with_costs(self.summary, costs(self._uncounted, self._shapes))
            self._uncounted = None

    @traitlets.observe("expanded")
    def _opened(self, change: Any) -> None:
        if change.new and self._uncounted is not None:
            self._count()
            self._summary = self.summary.to_json()

    def __repr__(self) -> str:
        return f"ModelSummary({self.summary!r})"
