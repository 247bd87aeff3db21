"""The summary of a model in a cell: inputs and outputs, operators, weights, and the costs of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import traitlets

from onnx_nb.analysis.cost.costs import costs
from onnx_nb.analysis.cost.summary import Summary, outline, with_costs
from onnx_nb.analysis.errors import FeedError, OnnxNbError
from onnx_nb.analysis.model.model import ModelLike, load
from onnx_nb.widgets._base import PackedWidget
from onnx_nb.widgets._channel import Call, Reply

if TYPE_CHECKING:
    from onnx_nb.drawing.html import Content
    from onnx_nb.widgets.protocol import ShapesRequest


class ShapesError(FeedError, traitlets.TraitError):
    """Shapes that do not fit the model. Traitlets undoes what a page has set only after its own errors."""


PROMPT: Final = 5_000
"""Maximum number of nodes to count costs immediately; above, they are counted when the tables are opened."""


class ModelSummary(PackedWidget):
    """The summary of a model.

    Parameters
    ----------
    model
        Any `ModelLike`, or a `Summary`.
    shapes
        Sizes of dimensions by symbol, and shapes by the name of the input, as `costs` takes them.
    **traits
        Traits of the widget by name.

    Raises
    ------
    FeedError
        If the shapes do not fit the model's inputs.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> ModelSummary(onnx.parser.parse_model(text)).summary.nodes
    2
    """

    summary: Summary
    """The current summary. It has costs once they are counted."""

    _kind = traitlets.Unicode("summary").tag(sync=True)
    _summary = traitlets.Dict().tag(sync=True)
    _graph = traitlets.Unicode().tag(sync=True)
    """Id of the graph below, to which the rows of the tables lead; empty where there is none."""

    shapes = traitlets.Dict().tag(sync=True)
    """Sizes of dimensions by symbol, and shapes by the name of the input, for which costs are counted. Setting them
    counts again; the tables can set sizes as well."""

    expanded = traitlets.Bool(True).tag(sync=True)  # noqa: FBT003 - a trait's default
    """Whether the tables are shown, or only the first line."""

    def __init__(
        self, model: ModelLike | Summary, *, shapes: Mapping[str, int | Sequence[int]] | None = None, **traits: Any
    ) -> None:
        self._model = None if isinstance(model, Summary) else load(model)
        self._counted: Mapping[str, Any] | None = None
        self.summary = model if isinstance(model, Summary) else outline(self._model or model)
        sizes = {name: list(size) if isinstance(size, Sequence) else size for name, size in (shapes or {}).items()}
        if sizes or traits.get("expanded", True) or self.summary.nodes <= PROMPT:
            self._count(sizes)
        super().__init__(repr(self.summary), {}, _summary=self.summary.to_json(), shapes=sizes, **traits)

    def _content(self, **options: Any) -> Content:
        return super()._content(**options)._replace(about=self.summary.without_folder().to_json())

    def _on_costs(self, call: Call[ShapesRequest]) -> Reply:
        with self._lock:
            self.shapes = call.request.shapes
            self._count(self.shapes)  # for a large model, the costs have not been counted yet
            self._summary = self.summary.to_json()
        return Reply()

    @traitlets.validate("shapes")
    def _count_for(self, proposal: dict[str, Any]) -> dict[str, Any]:
        """Count before the shapes are set: wrong ones raise, and nothing changes."""
        shapes: dict[str, Any] = proposal["value"]
        with self._lock:
            if self._counted is not None or shapes:
                try:
                    self._count(shapes)
                except OnnxNbError as error:
                    raise ShapesError(error.message, advice=error.advice) from error
                self._summary = self.summary.to_json()
        return shapes

    def _count(self, shapes: Mapping[str, Any]) -> None:
        if self._model is not None and shapes != self._counted:
            self.summary = with_costs(self.summary, costs(self._model, shapes or None))
            self._counted = dict(shapes)
