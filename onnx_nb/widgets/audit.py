"""An audit of external data in a cell: problems first, then the files, then every tensor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import traitlets

from onnx_nb.analysis.model.auditor import Audit
from onnx_nb.analysis.model.external_data import audit
from onnx_nb.analysis.model.model import ModelLike
from onnx_nb.analysis.view.columns import Columns
from onnx_nb.drawing.html import still_html
from onnx_nb.widgets._base import PackedWidget


class AuditPanel(PackedWidget):
    """Table of where the weights of a model are stored, and whether the files match the model's declarations.

    Parameters
    ----------
    model
        Any `ModelLike`, which is audited without reading its weights, or a result of `onnx_nb.external_data.audit`.
    **traits
        Traits of the widget by name.

    Raises
    ------
    ModelFileError
        If the model itself cannot be opened.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> AuditPanel(onnx.parser.parse_model(text)).audit.ok
    True
    """

    audit: Audit

    _subject = "audit"
    _kind = traitlets.Unicode("external_data").tag(sync=True)

    height = traitlets.Int(300, min=120).tag(sync=True)
    """Height of the table of tensors in CSS pixels."""

    def __init__(self, model: ModelLike | Audit, **traits: Any) -> None:
        self.audit = model if isinstance(model, Audit) else audit(model)
        problems, files = (list(map(asdict, rows)) for rows in (self.audit.problems, self.audit.files))
        meta = {"model": self.audit.model, "problems": problems, "files": files, "tensors": self.audit.rows()}
        super().__init__(repr(self.audit), {"columns": Columns({}, meta).to_bytes()}, still_html(self.audit), **traits)
