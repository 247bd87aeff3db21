"""What widgets share: the bundles, the theme, keyword arguments that are checked, and the link with a graph."""

from __future__ import annotations

import difflib
import uuid
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.model.model import label_of
from onnx_nb.analysis.progress import stage
from onnx_nb.analysis.view.inspection import figures, inspect
from onnx_nb.analysis.view.overlays import OWN, overlay
from onnx_nb.analysis.view.selection import tensors_of
from onnx_nb.drawing.html import STATISTICS_BYTES, bake, write_page
from onnx_nb.widgets._channel import Call, Channel, Reply
from onnx_nb.widgets._values import packed_overlay

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from onnx_nb.analysis.model.model import Model
    from onnx_nb.widgets._snapshot import Picture
    from onnx_nb.widgets.graph import ModelGraph

STATIC = Path(str(resources.files("onnx_nb"))) / "static"
SIDES = ("reference", "candidate")
"""What the two graphs of a pair are called."""


class OnnxWidget(anywidget.AnyWidget):
    """Base of the widgets.

    An unknown keyword argument is an error that names the closest one, not a silent new attribute.
    """

    _esm = STATIC / "widget.js"

    _kind = traitlets.Unicode().tag(sync=True)
    """Which of the bundle's views the browser shows."""

    _own = traitlets.Unicode().tag(sync=True)
    """Its own id, by which the browser finds what is behind anywidget's model."""

    theme = traitlets.Enum(("auto", "light", "dark"), default_value="auto").tag(sync=True)
    """``"auto"`` follows the notebook's theme."""

    _channel: Channel | None = None
    """Answers the browser, in widgets that have something to ask for."""

    def __init__(self, **traits: Any) -> None:
        public = sorted(name for name in self.trait_names() if not name.startswith("_"))
        for name in traits:
            if name not in self.trait_names():
                near = difflib.get_close_matches(name, public, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(public)}."
                msg = f"{type(self).__name__} has no argument {name!r}.{hint}"
                raise TypeError(msg)
        own = uuid.uuid4().hex
        super().__init__(model_id=own, _own=own, **traits)

    def close(self) -> None:
        """Remove the view and end its worker."""
        if self._channel is not None:
            self._channel.close()
        super().close()


class PicturedWidget(OnnxWidget):
    """Base of the widgets that leave a picture in the notebook, for where widgets do not live."""

    _picture_id = traitlets.Unicode().tag(sync=True)
    _picture: Picture | None = None

    def __init__(self, picture: Picture | None = None, **traits: Any) -> None:
        if picture is not None:
            self._picture = picture
            traits["_picture_id"] = picture.id
        super().__init__(**traits)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        self.show_picture()
        return super()._repr_mimebundle_(**kwargs)

    def show_picture(self) -> None:
        """Put an output before this widget's that stands where widgets are not shown; done on display."""
        if self._picture is not None:
            self._picture.show()

    def _answer_picture(self, call: Call) -> Reply:
        assert self._picture is not None  # noqa: S101 - the browser asks only where one was given
        self._picture.draw(str(call.args.get("svg")))
        return Reply()


class PairWidget(PicturedWidget):
    """Base of the widgets that show two graphs side by side."""

    _esm = STATIC / "pairs.js"

    _reference = traitlets.Bytes(None, allow_none=True).tag(sync=True)
    _candidate = traitlets.Bytes(None, allow_none=True).tag(sync=True)
    _differences = traitlets.Bytes(None, allow_none=True).tag(sync=True)

    synced = traitlets.Bool(default_value=True).tag(sync=True)
    """Whether the graphs move, zoom, open and search together; what corresponds is selected on both in any case."""

    height = traitlets.Int(460, min=160).tag(sync=True)
    """Height of each graph in CSS pixels."""

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        statistics: bool = False,
        limit: int = STATISTICS_BYTES,
        progress: Callable[[float, str], None] | None = None,
    ) -> Path:
        """Write both live graphs and all that is said of them as one file that needs neither kernel nor network.

        Parameters
        ----------
        path
            Where to write; the folder is made if it is not there.
        statistics
            Put statistics and histograms of the weights of both models into the page. Every weight is read for it.
        limit
            Bytes that the statistics of each model may take, before they are compressed; those of the largest weights
            are kept, and the page says what was left out.
        progress
            Called with the part done and what is read; what it raises ends the work, and nothing is written.

        Raises
        ------
        OnnxNbError
            If the file cannot be written.
        """
        baked = {}
        for number, (side, model) in enumerate(zip(SIDES, self._sides(), strict=True)):
            told = stage(progress, number / 2, (number + 1) / 2)
            baked[f"baked-{side}"] = bake(model, statistics=statistics, limit=limit, progress=told)
        return write_page(path, self._page(baked))

    def _sides(self) -> tuple[Model, Model]:
        """Return the two models that are shown."""
        raise NotImplementedError

    def _page(self, baked: dict[str, bytes]) -> str:
        """Return the page that shows both graphs, with what is said of each."""
        raise NotImplementedError

    def _model(self, call: Call) -> Model:
        """Return the model of the graph that the browser asks about."""
        raise NotImplementedError

    def _answer_inspect(self, call: Call) -> Reply:
        return Reply(inspect(self._model(call), str(call.args.get("kind")), int(call.args.get("id") or 0)).to_json())

    def _answer_figures(self, call: Call) -> Reply:
        return Reply(figures(self._model(call), str(call.args.get("kind")), int(call.args.get("id") or 0)))

    def _answer_overlay(self, call: Call) -> Reply:
        name = str(call.args.get("name"))
        if name not in OWN:
            raise OnnxNbError(f"there are no numbers called {name!r}.", advice=f"There are {', '.join(OWN)}.")
        return Reply(*packed_overlay(overlay(self._model(call), name)))


class ResultWidget(PicturedWidget):
    """Base of the widgets that show a result, and no graph: they have a smaller bundle."""

    _esm = STATIC / "results.js"


class LinkedWidget(ResultWidget):
    """Base of the widgets of results of which one at a time is chosen, each a tensor of a model.

    With a graph of that model what is chosen here is selected there, and the other way round.
    """

    selection = traitlets.Unicode().tag(sync=True)
    """The name of what is chosen; empty for nothing."""

    _linked = traitlets.Unicode().tag(sync=True)
    """What to say of the graph; empty without one."""

    _graph: ModelGraph | None = None
    _following = False

    @property
    def graph(self) -> ModelGraph | None:
        """The graph that it goes with; another, or ``None`` for no more, can be set at any time.

        Raises
        ------
        OnnxNbError
            If the model of the graph has none of the tensors; the link is as it was before.
        """
        return self._graph

    @graph.setter
    def graph(self, graph: ModelGraph | None) -> None:
        if graph is self._graph:
            return
        linked = "" if graph is None else self._checked(graph.model)
        if self._graph is not None:
            self._graph.unobserve(self._follow, "selection")
            self._leave(self._graph)
        self._graph, self._linked = graph, linked
        if graph is None:
            return
        graph.observe(self._follow, "selection")
        self._enter(graph)
        if graph.selection:
            self._follow(None)
        else:
            self._lead(None)

    def close(self) -> None:
        """Remove the view, end its worker, and let go of the graph."""
        self.graph = None
        super().close()

    def _found(self, model: Model) -> tuple[int, int]:
        """Count the tensors that a model has, and all."""
        raise NotImplementedError

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        """Return what is chosen as a graph of the model has it selected; None if it has not."""
        raise NotImplementedError

    def _named(self, tensor: str) -> str | None:
        """Return the name here of a tensor; None if there is none."""
        raise NotImplementedError

    def _enter(self, graph: ModelGraph) -> None:
        """Do what else is done to a graph."""

    def _leave(self, graph: ModelGraph) -> None:
        """Take that back."""

    def _checked(self, model: Model) -> str:
        found, count = self._found(model)
        if count and not found:
            message = f"none of the {count:,} tensors of {self!r} is in {label_of(model)}."
            raise OnnxNbError(message, advice="Give the graph of a model that they are of.")
        few = "" if found == count else f", which has {found:,} of {count:,} tensors"
        return f"Linked with the graph of {label_of(model)}{few}"

    @traitlets.observe("selection")
    def _lead(self, _change: Any) -> None:
        """Select in the graph what is chosen here."""
        if self._graph is None or not self.selection or self._following:
            return
        wanted = self._tensor(self._graph.model)
        if wanted is not None and [each.get("name") for each in self._graph.selection] != [wanted["name"]]:
            self._graph.selection = [wanted]

    def _follow(self, _change: Any) -> None:
        """Choose here what is selected in the graph."""
        if self._graph is None or not self._graph.selection:
            return
        selected = self._graph.selection[0]
        tensors = tensors_of(
            self._graph.model, str(selected.get("kind")), str(selected.get("name")), selected.get("id")
        )
        found = next((name for tensor in tensors if (name := self._named(tensor)) is not None), None)
        if found is not None:
            # the graph keeps what is selected there, which may be the node of this tensor
            self._following = True
            try:
                self.selection = found
            finally:
                self._following = False
