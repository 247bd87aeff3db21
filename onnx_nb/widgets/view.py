"""What a model displays as: its summary in one line that opens, above its graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets

from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.widgets.graph import ModelGraph
from onnx_nb.widgets.summary import ModelSummary

if TYPE_CHECKING:
    import os


class ModelView(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Summary and graph of a model together.

    Parameters
    ----------
    model
        Any `ModelLike`.
    **traits
        Arguments of `ModelGraph`.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> view = ModelView(onnx.parser.parse_model(text))
    >>> view.graph.model is view.model
    True
    """

    model: Model

    def __init__(self, model: ModelLike, **traits: Any) -> None:
        self.model = load(model)
        self.graph = ModelGraph(self.model, **traits)
        self.summary = ModelSummary(self.model, expanded=False, theme=self.graph.theme)
        super().__init__([self.summary, self.graph])

    def __repr__(self) -> str:
        return f"ModelView({self.model!r})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        self.graph.show_picture()
        return super()._repr_mimebundle_(**kwargs)

    def to_html(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write summary and live graph as one file; see `ModelGraph.to_html`."""
        return self.graph.to_html(path, **options)
