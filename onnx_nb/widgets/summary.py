"""The summary of a model in a cell: what goes in and out, which operators, which weights."""

from __future__ import annotations

from typing import Any

import traitlets

from onnx_nb.analysis.model import ModelLike, load
from onnx_nb.analysis.summary import Summary, summarize
from onnx_nb.widgets._base import OnnxWidget


class ModelSummary(OnnxWidget):
    """The summary of a model.

    Parameters
    ----------
    model
        Any `ModelLike`, or a `Summary` made before.
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

    def __init__(self, model: ModelLike | Summary, **traits: Any) -> None:
        self.summary = model if isinstance(model, Summary) else summarize(load(model))
        super().__init__(_summary=self.summary.to_json(), **traits)

    def __repr__(self) -> str:
        return f"ModelSummary({self.summary!r})"
