"""Base classes of the widgets that show graphs: requests of every graph about its model, two graphs side by side.

What a graph needs only once it is used is imported then, so that it is shown sooner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import bytes_text, count_text, quoted
from onnx_nb.analysis.model.model import Model
from onnx_nb.analysis.model.storage import path_of
from onnx_nb.analysis.progress import Progress, stage
from onnx_nb.analysis.view.columns import STATISTICS_BYTES, Columns
from onnx_nb.widgets._base import LinkedWidget, PackedWidget
from onnx_nb.widgets._channel import Call, Reply
from onnx_nb.widgets._hosts import running_shell

if TYPE_CHECKING:
    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.profile.result import Profile
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.view.overlays import Overlay, Source
    from onnx_nb.widgets.protocol import OverlayRequest, SaveRequest, SelectRequest, TargetRequest

SIDES: Final = ("reference", "candidate")
"""Names of the two graphs of a pair, and of their parts."""


class GraphWidget(PackedWidget):
    """Base class of the widgets that show graphs, each of one model."""

    captured: Capture | None = None
    """The last capture of the model, which adds times and statistics."""
    timing: Profile | None = None
    """The last profile of the model."""

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        statistics: bool = False,
        limit: int = STATISTICS_BYTES,
        progress: Progress | None = None,
    ) -> Path:
        """Write the interactive view as one file that needs neither kernel nor network.

        Parameters
        ----------
        path
            The file to write. Missing folders are created.
        statistics
            Whether the page includes statistics and histograms of the weights, and of the tensors of *Capture*. Every
            weight is read.
        limit
            Maximum bytes of the statistics of each model before compression. Those of the largest weights are
            included, and the page reports which were omitted.
        progress
            Called with the fraction done and a message. If it raises, nothing is written.

        Raises
        ------
        OnnxNbError
            If the file cannot be written.
        """
        return self._written(path, statistics=statistics, limit=limit, progress=progress)

    def _models(self, step: int = 0) -> tuple[Model, ...]:
        """Return the models that are shown, by `SIDES`; those before and after a step if there are steps."""
        raise NotImplementedError

    def _model(self, side: str, step: int = 0) -> Model:
        models = dict(zip(SIDES, self._models(step), strict=False))
        if (side or SIDES[0]) not in models:
            advice = f"It has {', '.join(models)}."
            raise OnnxNbError(f"this {type(self).__name__} has no part called {quoted(side)}.", advice=advice)
        return models[side or SIDES[0]]

    def _sources(self) -> tuple[Model, ...]:
        return self._models()

    def _baked(self, progress: Progress | None = None, **options: Any) -> dict[str, bytes]:
        """Return the replies about each model of a pair, by name of the part."""
        from onnx_nb.drawing.html import bake

        halves = stage(progress, 0, 0.5), stage(progress, 0.5, 1)
        pages = (bake(model, progress=half, **options) for model, half in zip(self._models(), halves, strict=True))
        return {f"baked-{side}": replies for side, replies in zip(SIDES, pages, strict=True)}

    def _saving(self) -> Model:
        """Return the model that *Save* writes."""
        raise OnnxNbError("nothing was made of the model yet.", advice="Extract a part, or edit it.")

    def _on_save(self, call: Call[SaveRequest]) -> Reply:
        from onnx_nb.widgets.protocol import SaveReply

        request = call.request
        path = request.path.strip()
        if not path:
            raise OnnxNbError("no path was given.", advice="Enter the file to write.")
        target = target_of(path)
        if not request.replace and os.path.lexists(target):
            return Reply(SaveReply(path=str(target), exists=True))
        file = self._saving().save(target)
        return Reply(SaveReply(path=str(file), exists=False, size=bytes_text(file.stat().st_size)))

    def _on_inspect(self, call: Call[TargetRequest]) -> Reply:
        from onnx_nb.analysis.view.inspection import inspect

        target = call.request
        return Reply(inspect(self._model(target.part, target.step), target.kind, target.id))

    def _on_figures(self, call: Call[TargetRequest]) -> Reply:
        from onnx_nb.analysis.view.inspection import figures
        from onnx_nb.analysis.view.overlays import overlay

        target = call.request
        model = self._model(target.part, target.step)
        times = None if self.captured is None else overlay(model, self.captured, label="seconds")
        return Reply(figures(model, target.kind, target.id, times))

    def _numbers(self, name: str, model: Model) -> Overlay:
        """Return the numbers with this name: of any model, of what ran here, or of a comparison in a cell."""
        from onnx_nb.analysis.view.overlays import COSTS, OWN, STATISTICS, overlay

        if name in OWN:
            return overlay(model, name)
        if name == "error":
            return overlay(model, _compared_with(model))
        source, button = (self.timing, "Profile") if name == "time" else (self.captured, "Capture")
        if source is not None:
            return overlay(model, source, label=None if name == "time" else name)
        words = f"Press {button} first." if name in ("time", *COSTS, *STATISTICS) else f"There are {', '.join(OWN)}."
        raise OnnxNbError(f"there are no numbers called {quoted(name)}.", advice=words)

    def _on_overlay(self, call: Call[OverlayRequest]) -> Reply:
        from onnx_nb.widgets.protocol import OverlayReply

        request = call.request
        layer = self._numbers(request.name, self._model(request.part, request.step))
        return Reply(OverlayReply(**layer.to_json()), layer.buffers())


class ChartWidget(LinkedWidget):
    """Base class of the panels with a chart beside the graph of a model, of which a range can be extracted."""

    submodel: Model | None = None
    """The submodel that *Extract this range* last made; ``None`` before."""

    _beside: Model
    """The model whose graph stands beside the chart; not set if there is none."""

    def _colored(self, source: Source, **rows: Any) -> Columns:
        """Return the columns of that graph, with the numbers that color it and the nodes of the rows."""
        from onnx_nb.analysis.view.graph_columns import columns
        from onnx_nb.analysis.view.overlays import overlay

        table = columns(self._beside)
        layer = overlay(self._beside, source)
        rows |= {"overlay_nodes": layer.nodes, "overlay_scopes": layer.scopes}
        return Columns({**table.arrays, **rows}, {**table.meta, "overlay": layer.to_json()})

    def _on_range(self, call: Call[SelectRequest]) -> Reply:
        from onnx_nb.analysis.submodel.extraction import extract
        from onnx_nb.analysis.view.inspection import select

        selection = select(self._beside, call.request.nodes)
        if selection.obstacle:
            raise OnnxNbError(selection.obstacle, advice="Choose another range.")
        self.submodel = extract(self._beside, selection.inputs, selection.outputs)
        count = count_text(len(self.submodel.proto.graph.node), "node")
        return Reply(f"Extracted {count}: panel.submodel is a model that runs by itself; .save(path) writes it.")


class PairWidget(GraphWidget):
    """Base class of the widgets that show two graphs side by side."""

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The selection: ``[{"side": "reference" | "candidate", "kind": "tensor" | "node" | "scope", "name": …}]``."""

    synced = traitlets.Bool(default_value=True).tag(sync=True)
    """Whether the graphs move, zoom, open and search together. Counterparts are always selected in both."""

    height = traitlets.Int(None, allow_none=True, min=160).tag(sync=True)
    """Height of each graph in CSS pixels; ``None`` for at most 460, so that all of the widget fits the window."""


def variables() -> dict[str, Any]:
    """Return what cells hold, by name; empty where there are no cells."""
    return dict(getattr(running_shell(), "user_ns", {}))


def reference_of(model: Model) -> Model | None:
    """Return the reference of the latest comparison in a cell whose candidate a model is."""
    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.generate.compare_decoding import DecodingComparison

    return next((c.models[0] for c in _comparisons(model, (1,), Comparison, DecodingComparison)), None)


def _comparisons(model: Model, sides: tuple[int, ...], *kinds: type[Any]) -> Iterator[Any]:
    """Yield the comparisons in cells of which a model is one of some sides, the latest first."""
    for value in reversed(variables().values()):
        models = [value.models[side] for side in sides] if isinstance(value, kinds) and value.models else []
        if any(one is model or (one.path and one.path == model.path) for one in models):
            yield value


def _compared_with(model: Model) -> Comparison:
    """Return the latest comparison in a cell of which a model is a side."""
    from onnx_nb.analysis.compare.comparison import Comparison

    comparison: Comparison | None = next(_comparisons(model, (0, 1), Comparison), None)
    if comparison is not None:
        return comparison
    advice = "Run onnx_nb.compare(reference, this model) or onnx_nb.compare_torch in a cell; then press Error again."
    raise OnnxNbError("this model has not been compared with another one yet.", advice=advice)


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the file that a person means, as an absolute path."""
    return Path(os.path.abspath(path_of(path)))  # noqa: PTH100 - a link stays one
