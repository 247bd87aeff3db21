"""The summary of a model in a cell: what goes in and out, which operators, which weights, what a run costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from onnx_nb.analysis.cost.costs import costs
from onnx_nb.analysis.cost.summary import Summary, outline, with_costs
from onnx_nb.analysis.errors import FeedError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import ModelLike, load
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

    shapes = traitlets.Dict().tag(sync=True)
    """Sizes of dimensions by their symbol, and shapes by the name of their input, that costs are counted for. A person
    gives sizes in the tables."""

    _problem = traitlets.Unicode().tag(sync=True)
    """What is wrong with the sizes that a person gave."""

    expanded = traitlets.Bool(True).tag(sync=True)  # noqa: FBT003 - a trait's default
    """Whether the tables are shown, or only the first line."""

    def __init__(
        self,
        model: ModelLike | Summary,
        *,
        shapes: Mapping[str, int | Sequence[int]] | None = None,
        **traits: Any,
    ) -> None:
        self._loaded = None if isinstance(model, Summary) else load(model)
        self._counted: Mapping[str, Any] | None = None
        self.summary = model if isinstance(model, Summary) else outline(self._loaded or model)
        given = {name: list(size) if isinstance(size, Sequence) else size for name, size in (shapes or {}).items()}
        if self._loaded is not None and (
            given or traits.get("expanded", True) or Graph.of(self._loaded).node_count <= PROMPT
        ):
            self._count(given)
        super().__init__(_summary=self.summary.to_json(), shapes=given, **traits)

    def _count(self, given: Mapping[str, Any]) -> None:
        """Count what a run costs for these sizes, unless that is known."""
        if self._loaded is None or given == self._counted:
            return
        self.summary = with_costs(self.summary, costs(self._loaded, given or None))
        self._counted = dict(given)

    @traitlets.observe("expanded")
    def _opened(self, change: Any) -> None:
        if change.new and self._loaded is not None and self._counted is None:
            self._count(self.shapes)
            self._summary = self.summary.to_json()

    @traitlets.observe("shapes")
    def _sized(self, change: Any) -> None:
        if change.new == self._counted or (self._counted is None and not change.new):
            return
        try:
            self._count(change.new)
        except FeedError as error:
            self._problem = str(error)
            return
        with self.hold_sync():
            self._problem = ""
            self._summary = self.summary.to_json()

    def __repr__(self) -> str:
        return f"ModelSummary({self.summary!r})"
