"""Base classes of the widgets: the bundle, checked keyword arguments, the channel, packed columns, the saved picture.

**The bundle.** There is one copy per kernel and per saved notebook. Each widget's own module is a stub of a kilobyte,
which takes the bundle from a shared model by reference, as ipywidgets refer to each other: tested in JupyterLab,
html-manager, and marimo with its kernel. Where a reference cannot be resolved, the stub requests the code from the
kernel. marimo already serves equal modules once, so its widgets carry the bundle, and its static exports include it.

**The picture** of a widget is for GitHub, untrusted notebooks, and notebooks without their kernel. They ignore a
widget's output and its fallbacks, so the picture is a separate output. It starts as a text, a table or, in a page that
will draw it, an empty image. The browser draws what the widget shows whenever it has come to rest, and hides the
picture while the widget is shown. It is an SVG in a data URI: sanitizers drop an inline SVG, and keep an image.
"""

from __future__ import annotations

import base64
import functools
import html
import os
import secrets
import sys
import threading
import uuid
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ipywidgets
import traitlets

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest, quoted
from onnx_nb.analysis.model.model import Model, label_of
from onnx_nb.analysis.progress import Progress
from onnx_nb.widgets._channel import Call, Channel, Reply, Verb
from onnx_nb.widgets._hosts import HostedWidget, in_marimo, is_from_page, model_version, prepare_shell, running_shell

if TYPE_CHECKING:
    from onnx_nb.analysis.view.columns import Columns
    from onnx_nb.drawing.html import Content
    from onnx_nb.widgets.graph import ModelGraph
    from onnx_nb.widgets.protocol import PageRequest, PictureRequest, SideRequest
    from onnx_nb.widgets.shown_overlay import ShownOverlay

COLUMNS_IN_STATE: Final = 1_000_000
"""Maximum bytes of columns that a widget saves with the notebook, which then reopens without a kernel."""
PICTURE_LIMIT: Final = 2_000_000
"""Maximum bytes of a picture that is saved in the notebook."""
_EMPTY_GIF: Final = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
"""An image of one transparent pixel in base64; what is appended is not shown."""


@functools.cache
def static_text(name: str) -> str:
    """Return the text of the bundle, ``"widget.js"``, or of the module that loads it, ``"stub.js"``."""
    return (resources.files("onnx_nb") / "static" / name).read_text(encoding="utf-8")


class _Complete(ipywidgets.Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A widget whose state is never shortened: a page of ``embed_minimal_html`` would lack the module, a default."""

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002
        state: dict[str, Any] = super().get_state(key)
        return state


class SharedCode(_Complete):
    """A model without a view that holds the bundle. Its own module has the page compile it before a widget comes."""

    _model_name = traitlets.Unicode("AnyModel").tag(sync=True)
    _model_module = traitlets.Unicode("anywidget").tag(sync=True)
    _model_module_version = traitlets.Unicode(model_version()).tag(sync=True)
    _esm = traitlets.Unicode(static_text("stub.js")).tag(sync=True)
    _anywidget_id = traitlets.Unicode("onnx_nb.SharedCode").tag(sync=True)

    code = traitlets.Unicode().tag(sync=True)
    _code = traitlets.Unicode().tag(sync=True)
    """This model, as the widgets refer to it."""

    _this: SharedCode | None = None

    def __init__(self) -> None:
        model_id = uuid.uuid4().hex
        super().__init__(model_id=model_id, _code=f"IPY_MODEL_{model_id}", code=static_text("widget.js"))

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Ignore what a page sends: the bundle that every other page runs is the kernel's."""

    @classmethod
    def this(cls) -> SharedCode | None:
        """Return this kernel's copy of the bundle; None in a host where widget models cannot refer to each other."""
        if in_marimo():
            return None
        if cls._this is None or cls._this.comm is None:  # closed, as by Widget.close_all()
            cls._this = cls()
            if sys.stdout is not None:
                sys.stdout.flush()  # in a kernel this waits until the message is out, which this thread would delay
        return cls._this


class OnnxWidget(_Complete, HostedWidget):
    """Base class of the widgets.

    A subclass names its kind in `_kind`; the browser may call each of its methods named ``_on_…``. An unknown
    keyword argument raises a `TypeError` that names the closest one.
    """

    _esm = static_text("stub.js")

    _code = traitlets.Instance(SharedCode, allow_none=True).tag(sync=True, **ipywidgets.widget_serialization)
    """The model that holds the bundle; ``None`` where `_esm` is the bundle."""

    _kind = traitlets.Unicode().tag(sync=True)
    """Name of the bundle's widget that the browser shows."""

    _own = traitlets.Unicode().tag(sync=True)
    """Id of this widget, by which the browser finds the widget model below anywidget's."""

    theme = traitlets.Enum(("auto", "light", "dark"), default_value="auto").tag(sync=True)
    """Colors of the view; ``"auto"`` follows the notebook."""

    _subject = ""
    """Name of the attribute that the widget shows, for its ``repr``; by default that of its kind."""

    _channel: Channel | None = None
    """The channel; ``None`` if an argument was wrong."""

    def __init__(self, **traits: Any) -> None:
        for name in traits.keys() - self.trait_names():
            public = sorted(trait for trait in self.trait_names() if not trait.startswith("_"))
            near = closest(name, public, 1) if len(name) > 2 else []  # "x" is in many names
            hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(public)}."
            raise TypeError(f"{type(self).__name__} has no argument {name!r}. {hint}")
        self._lock = threading.RLock()
        model_id, code = uuid.uuid4().hex, SharedCode.this()
        if code is None:
            self._esm = static_text("widget.js")
        super().__init__(model_id=model_id, _own=model_id, _code=code, **traits)
        self._made_layout = None if isinstance(traits.get("layout"), ipywidgets.Layout) else self.layout

    def open(self) -> None:
        """Connect the widget to the browser, also after `close`: it opens again when it is displayed."""
        if self.comm is None:
            self._channel = Channel(self, self._verbs())
            self._code = None if self._code is None else SharedCode.this()
            self.layout.open()
        super().open()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, self._subject or self._kind)!r})"

    def close(self) -> None:
        """Remove the view, stop its worker and release what it shows."""
        if self._channel is not None:
            self._channel.close()
            if self._made_layout is not None:
                self._made_layout.close()  # a widget of its own, which ipywidgets would keep
        super().close()

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Apply traits that a page sends, except private ones and the layout: only the kernel sets those."""
        public = {name for name in sync_data if name[:1] != "_" and name != "layout"} | {"_view_count"}
        super().set_state({name: value for name, value in sync_data.items() if name in public})

    def _verbs(self) -> dict[str, Verb]:
        """Return the requests that the browser may send, by name.

        They run on a thread, also while cells run: those that change what cells change hold `_lock`.
        """
        return {name[4:]: getattr(self, name) for name in dir(type(self)) if name.startswith("_on_")}

    def _on_code(self, _call: Call[Any]) -> Reply:
        return Reply(static_text("widget.js"))


class PackedWidget(OnnxWidget):
    """Base class of the widgets that show packed columns, and save a picture for hosts that do not show widgets.

    ``still`` is static HTML, by default the text ``alt``: what is shown until a browser has drawn the picture, and in a
    notebook that nbconvert ran.
    """

    _picture_id = traitlets.Unicode().tag(sync=True)
    """Id by which the browser finds the picture, also in a reopened notebook."""

    _parts = traitlets.Dict(value_trait=traitlets.Bytes()).tag(sync=True)
    """``Columns.to_bytes()`` by name; empty if they are too large to be saved: then the browser requests each."""

    def __init__(self, alt: str, parts: Mapping[str, bytes], still: str = "", **traits: Any) -> None:
        self._alt, self._still, self._displayed = alt, still, False
        self._packed = dict(parts)
        prepare_shell()
        super().__init__(_picture_id=secrets.token_hex(8), _parts=in_state(parts), **traits)

    @property
    def _picture_class(self) -> str:
        return f"onnx-nb-picture onnx-nb-picture-{self._picture_id}"

    def show_picture(self) -> None:
        """Output the picture before the widget is displayed; do nothing outside a notebook."""
        shell = running_shell()
        if getattr(shell, "kernel", None) is not None:
            from IPython.display import HTML, display

            # for the first HTML of a page JupyterLab loads what sets formulas, which takes longer than to draw a graph
            request: dict[str, Any] = getattr(shell, "get_parent", dict)()  # Solara's shell has none
            if is_from_page(request) and not self._still:
                empty = {"image/gif": _EMPTY_GIF + self._picture_id, "text/plain": self._alt}
                display(empty, raw=True, display_id=f"onnx_nb-{self._picture_id}")
            else:
                place = HTML(f'<div class="{self._picture_class}">{self._still or html.escape(self._alt)}</div>')
                display(place, display_id=f"onnx_nb-{self._picture_id}", metadata={})
            self._displayed = True

    def to_html(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write the panel as one file that needs neither kernel nor network; see `ModelGraph.to_html`."""
        return self._written(path, progress=progress)

    def _written(self, path: str | os.PathLike[str], **options: Any) -> Path:
        from onnx_nb.drawing.html import page, write_page

        return write_page(path, page(self._content(**options)), self._sources())

    def _content(self, **_options: Any) -> Content:
        """Return what a page shows, with options of `to_html`."""
        from onnx_nb.drawing.html import Content

        return Content(self._alt, {}, self._kind, self._packed)

    def _sources(self) -> tuple[Model, ...]:
        """Return the models that are shown, whose files a page must not replace."""
        return ()

    def _on_picture(self, call: Call[PictureRequest]) -> Reply:
        """Fill the picture's output with the SVG that the browser drew, as an image, where scripts do not run."""
        svg = call.request.svg
        if not svg.startswith("<svg ") or len(svg) > PICTURE_LIMIT:
            raise OnnxNbError("the picture is not an SVG, or too large for a notebook.")
        if self._displayed:
            from IPython.display import HTML, update_display

            source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode('utf-8', 'replace')).decode()}"
            image = f'<img class="{self._picture_class}" alt="{html.escape(self._alt)}" src="{source}">'
            if "<table" in self._still:  # text that can be searched and copied
                table = f"<summary>As a table</summary>{self._still}"
                image += f'<details class="onnx-nb-picture-{self._picture_id}">{table}</details>'
            update_display(HTML(image), display_id=f"onnx_nb-{self._picture_id}")
        return Reply()

    def _on_page(self, call: Call[PageRequest]) -> Reply:
        from onnx_nb.drawing.html import page

        content = self._content(statistics=call.request.statistics, progress=call.progress)
        return Reply(buffers=[page(content).encode()])

    def _part(self, name: str) -> bytes:
        with self._lock:
            if name not in self._packed:
                self._packed[name] = self._pack(name).to_bytes()
            return self._packed[name]

    def _pack(self, name: str) -> Columns:
        """Return the columns of a part that was not packed at the start."""
        message = f"{type(self).__name__} has no part {quoted(name)}."
        raise OnnxNbError(message, advice=f"It has {', '.join(self._packed)}.")

    def _on_columns(self, call: Call[SideRequest]) -> Reply:
        return Reply(buffers=[self._part(call.request.part)])


def in_state(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the parts to save with the notebook: all of them, or none above `COLUMNS_IN_STATE`."""
    return dict(parts) if sum(map(len, parts.values())) <= COLUMNS_IN_STATE else {}


class LinkedWidget(PackedWidget):
    """Base class of the widgets that can be linked to a graph: the tensor selected in one is selected in the other.

    A selection that already corresponds to that of the other side is kept, so a node stays selected in the graph while
    this widget selects the tensor that the node produces.
    """

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The selection: ``[{"kind": "tensor", "name": …}]``; empty if there is none."""

    _linked = traitlets.Unicode().tag(sync=True)
    """Sentence about the linked graph; empty without one."""

    _graph: ModelGraph | None = None
    _former: ModelGraph | None = None
    """The graph that was linked when this closed."""

    _overlay: ShownOverlay | None = None
    """The numbers of this widget that color the linked graph."""

    @property
    def graph(self) -> ModelGraph | None:
        """The linked graph. Another one, or ``None`` to unlink, can be set at any time.

        Raises
        ------
        OnnxNbError
            If the graph's model has none of the tensors. The link stays as it was.
        """
        return self._graph

    @graph.setter
    def graph(self, graph: ModelGraph | None) -> None:
        if graph is self._graph:
            return
        text = "" if graph is None else self._link_text(graph.model)
        if self._graph is not None:
            self._graph.unobserve(self._follow, "selection")
            if self._overlay is not None:
                self._overlay.remove()
        self._graph, self._linked = graph, text
        self._overlay = self._color()
        if graph is not None:
            graph.observe(self._follow, "selection")
            (self._follow if graph.selection else self._lead)()

    def open(self) -> None:
        """Connect the widget to the browser and, after `close`, to the graph that it was linked to."""
        super().open()
        if self._former is not None:
            self.graph, self._former = self._former, None

    def close(self) -> None:
        """Remove the view, stop its worker, and unlink the graph."""
        if self._graph is not None:
            self._former, self.graph = self._graph, None
        super().close()

    @property
    def _selected_name(self) -> str:
        return str(self.selection[0].get("name", "")) if self.selection else ""

    def _found(self, model: Model) -> tuple[int, int]:
        """Return the number of tensors that are in a model, and the number of tensors."""
        raise NotImplementedError

    def _tensor(self, model: Model) -> dict[str, Any] | None:
        """Return this widget's selection as a graph of the model names it; None if the model has no such tensor."""
        raise NotImplementedError

    def _selection_of(self, tensor: str) -> list[dict[str, Any]]:
        """Return the selection in this widget for a tensor of a model; empty if there is no such tensor."""
        raise NotImplementedError

    def _color(self) -> ShownOverlay | None:
        return None

    def _link_text(self, model: Model) -> str:
        matches, count = self._found(model)
        if count and not matches:
            message = f"none of the {count:,} tensors of {self!r} is in {label_of(model)}."
            raise OnnxNbError(message, advice="Link a graph of the model that they belong to.")
        part = "" if matches == count else f", which has {matches:,} of {count:,} tensors"
        return f"Linked with the graph of {label_of(model)}{part}"

    def _in_graph(self) -> list[dict[str, Any]]:
        """Return the selection in this widget for that of the graph; empty if there is no such tensor."""
        if self._graph is None or not self._graph.selection:
            return []
        from onnx_nb.analysis.view.inspection import tensors_of

        first = self._graph.selection[0]
        kind, name, index = str(first.get("kind")), str(first.get("name")), first.get("id")
        tensors = tensors_of(self._graph.model, kind, name, index if isinstance(index, int) else None)
        return next(filter(None, map(self._selection_of, tensors)), [])

    @traitlets.observe("selection")
    def _lead(self, _change: Any = None) -> None:
        if self._graph is None or not self.selection or self.selection == self._in_graph():
            return
        if tensor := self._tensor(self._graph.model):
            self._graph.selection = [tensor]

    def _follow(self, _change: Any = None) -> None:
        if targets := self._in_graph():
            self.selection = targets
