"""The base of the widgets that show two graphs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import traitlets

from onnx_nb.analysis.progress import stage
from onnx_nb.drawing.html import STATISTICS_BYTES, bake, write_page
from onnx_nb.widgets._packed import PackedWidget
from onnx_nb.widgets._verbs import model_verbs

if TYPE_CHECKING:
    import os

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.analysis.progress import Progress
    from onnx_nb.widgets._channel import Call, Verb

SIDES: Final = ("reference", "candidate")
"""Names of the two graphs, and of their parts."""


class PairWidget(PackedWidget):
    """Base of the widgets that show two graphs side by side."""

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """What is selected: ``[{"side": "reference" | "candidate", "kind": "tensor" | "node" | "scope", "name": …}]``."""

    synced = traitlets.Bool(default_value=True).tag(sync=True)
    """Whether the graphs move, zoom, open and search together. What corresponds is selected in both in any case."""

    height = traitlets.Int(460, min=160).tag(sync=True)
    """Height of each graph in CSS pixels."""

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        statistics: bool = False,
        limit: int = STATISTICS_BYTES,
        progress: Progress | None = None,
    ) -> Path:
        """Write both live graphs as one file that needs neither kernel nor network.

        Parameters
        ----------
        path
            The file to write. Missing folders are made.
        statistics
            Whether the page holds statistics and histograms of the weights of both models. Every weight is read.
        limit
            Bytes that the statistics of each model may take before they are compressed. Those of the largest weights
            are included, and the page names what was left out.
        progress
            Called with the fraction done and a message. If it raises, nothing is written.

        Raises
        ------
        OnnxNbError
            If the file cannot be written.
        """
        baked = {}
        for number, (side, model) in enumerate(zip(SIDES, self._sides(), strict=True)):
            half = stage(progress, number / 2, (number + 1) / 2)
            baked[f"baked-{side}"] = bake(model, statistics=statistics, limit=limit, progress=half)
        return write_page(path, self._page(baked))

    def _verbs(self) -> dict[str, Verb]:
        return {**super()._verbs(), **model_verbs(self._model)}

    def _sides(self) -> tuple[Model, Model]:
        """Return the two models that are shown."""
        raise NotImplementedError

    def _page(self, baked: dict[str, bytes]) -> str:
        """Return the page of both graphs, with the replies about each."""
        raise NotImplementedError

    def _model(self, call: Call) -> Model:
        """Return the model that a request is about."""
        raise NotImplementedError
