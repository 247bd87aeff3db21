"""The interactive graph of a model: explore, click tensors, choose inputs and outputs, extract.

Every click is one call of `onnx_nb.analysis`, which also works in a cell.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ipywidgets
import traitlets
from traitlets import TraitError

from onnx_nb.analysis.arguments import TEXT, Kind
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.formatting import closest_text, count_text, quoted, shape_text
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.widgets._base import SharedCode
from onnx_nb.widgets._channel import Call, Reply, Verb
from onnx_nb.widgets._graphs import GraphWidget, variables
from onnx_nb.widgets._hosts import ReopeningWidget

if TYPE_CHECKING:
    import graphviz

    from onnx_nb.analysis.edit.edit import Edit
    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.simplify.simplify import Simplification
    from onnx_nb.analysis.submodel.extraction import ExtractionPlan
    from onnx_nb.analysis.view.overlays import Aggregate, Overlay, Scale, Source
    from onnx_nb.drawing.graphviz import Direction, Theme
    from onnx_nb.drawing.html import Content
    from onnx_nb.widgets.protocol import BoundaryRequest, EditRequest, SelectRequest, SizesRequest
    from onnx_nb.widgets.shown_overlay import ShownOverlay


class ModelGraph(GraphWidget):
    """The interactive graph of a model.

    Parameters
    ----------
    model
        Any `ModelLike`. It is never changed.
    **traits
        Traits of the widget by name, such as ``direction="right"`` or ``inputs=["x"]``.

    Raises
    ------
    ModelFileError
        If the model cannot be read.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
    >>> g = ModelGraph(onnx.parser.parse_model(text))
    >>> g.inputs, g.outputs = ["y"], ["z"]
    >>> g.extract()
    Model('g [y → z]', 1 node, 0 B, opset 17)
    """

    model: Model

    _subject = "model"
    _kind = traitlets.Unicode("graph").tag(sync=True)
    _overlay = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)
    """Numbers that color the boxes; ``None`` for the categories of operators."""

    _digest = traitlets.Unicode().tag(sync=True)
    """Digest of the columns: a page that has them from another view of the same model asks for them no more."""

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The selection: ``[{"kind": "tensor" | "node" | "scope", "name": …}, …]``; empty if there is none."""

    inputs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the tensors chosen as the submodel's inputs, by clicking or from a cell."""

    outputs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the tensors chosen as the submodel's outputs."""

    view = traitlets.Dict().tag(sync=True)
    """The view, saved with the notebook. Omitted keys stay unchanged; empty for the first view.

    ``open``
        Paths of open scopes, such as ``["encoder", "encoder/layer.0"]``; ``["*", "-encoder"]`` for all except some.
    ``camera``
        ``{"x": …, "y": …, "zoom": …}``: the point of the drawing at the center, and screen pixels per drawing pixel.
    ``column_height``
        Height in drawing pixels of the columns into which a long graph is divided; 0 for one column.
    ``brief``
        Whether boxes have one line; initially so where few larger ones would fit.
    ``plumbing``
        Whether nodes that compute with nothing but shapes are shown.
    ``search``
        Text in the search bar.
    ``color``
        Numbers chosen in the bar, such as ``"MACs"``; ``None`` for none.
    ``bookmarks``
        ``[{"name": …, "selection": {"kind": …, "name": …} or None, "open": […], "camera": {…}}, …]``.
    """

    shapes = traitlets.Dict().tag(sync=True)
    """Sizes of *Capture*, as `random_feeds` takes them: ``{"batch": 2}``; the view sets them too. Not for `feeds`."""

    direction = traitlets.Enum(("down", "right"), default_value="down").tag(sync=True)
    """Direction of the data flow."""

    height = traitlets.Int(None, allow_none=True, min=160).tag(sync=True)
    """Height of the view in CSS pixels; ``None`` for at most 640, so that all of the widget fits the window."""

    submodel = traitlets.Instance(Model, allow_none=True)
    """The submodel that *Extract* (or `extract`) last produced; ``None`` before."""

    edits: Edit | None = None
    """The edits made by clicks, as `onnx_nb.edit` returns them; ``None`` before the first."""

    simplification: Simplification | None = None
    """The result of the button *Simplify*; ``None`` before."""

    def __init__(self, model: ModelLike, **traits: Any) -> None:
        SharedCode.this()  # the browser compiles it while what follows is imported and computed
        from onnx_nb.analysis.view.graph_columns import columns
        from onnx_nb.widgets._values import Values

        self.model = load(model)
        self._values = Values(self.model)
        self._shown: ShownOverlay | None = None
        self._result: Model | None = None
        alt = f"Graph of {self.model.name}: {count_text(len(self.model.proto.graph.node), 'node')}"
        table = columns(self.model).to_bytes()
        super().__init__(alt, {"columns": table}, _digest=blake2b(table, digest_size=16).hexdigest(), **traits)

    @traitlets.validate("inputs", "outputs")
    def _checked_names(self, proposal: dict[str, Any]) -> list[str]:
        names: list[str] = proposal["value"]
        inside = set(self._values.graph.value_names) if names else set()  # of a body: `plan` says why not
        unknown = [name for name in names if name not in inside]
        if unknown:
            from onnx_nb.analysis.submodel.extraction import values_of

            try:
                values_of(self._values.graph.plain, unknown, proposal["trait"].name.removesuffix("s"))
            except OnnxNbError as error:  # traitlets only undoes what raises a TraitError
                raise TraitError(str(error)) from None
        return names

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Apply traits that a page sends. It may end a coloring, which only the kernel begins."""
        super().set_state(sync_data)
        if sync_data.get("_overlay", ...) is None:
            self.set_trait("_overlay", None)

    @traitlets.validate("view")
    def _checked_view(self, proposal: dict[str, Any]) -> dict[str, Any]:
        view: dict[str, Any] = _checked(proposal["value"], _VIEW, "view", optional=_VIEW)
        return view

    @property
    def feeds(self) -> Any:
        """Feeds of *Capture*, as `read_feeds` takes them; random values if ``None``.

        Setting them discards all captured values. A capture that is running ends with an error.
        """
        return self._values.known.feeds

    @feeds.setter
    def feeds(self, feeds: Any) -> None:
        from onnx_nb.widgets._values import Captured

        self._values.known = Captured(feeds, self.shapes if feeds is None else {})
        self.timing = None

    @traitlets.observe("shapes")
    def _resize(self, _change: Any) -> None:
        self.feeds = self.feeds

    @property
    def captured(self) -> Capture | None:  # type: ignore[override]
        """The last *Capture* of the whole model on `feeds`; ``None`` before."""
        return self._values.known.whole

    def plan(self) -> ExtractionPlan:
        """Return the plan of `extract` for the chosen `inputs` and `outputs`."""
        from onnx_nb.analysis.submodel.extraction import plan_extraction

        return plan_extraction(self.model, self.inputs, self.outputs)

    def extract(self) -> Model:
        """Extract the submodel between `inputs` and `outputs` and keep it as `submodel`.

        Raises
        ------
        ExtractionError
            If inputs are missing; the message names them.
        """
        from onnx_nb.analysis.submodel.extraction import extract

        with self._lock:
            self.submodel = extract(self.model, self.inputs, self.outputs)
            return self.submodel

    def overlay(
        self,
        values: Source | None,
        *,
        label: str | None = None,
        scale: Scale | None = None,
        reduce: Aggregate | None = None,
    ) -> ShownOverlay | None:
        """Color the boxes by numbers, and scopes by the sum or the maximum over their nodes.

        Parameters
        ----------
        values, label, scale, reduce
            As for `onnx_nb.analysis.view.overlays.overlay`: numbers or labels by name of node or tensor, a
            `Capture`, a `Comparison`, a `Profile` or the path of one, or ``"parameters"``, ``"weight bytes"``,
            ``"MACs"``, ``"activation bytes"``. ``None`` colors by the category of the operator again.

        Returns
        -------
        ShownOverlay
            The numbers; its `remove` ends the coloring.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
        >>> g = ModelGraph(onnx.parser.parse_model(text))
        >>> g.overlay({"y": 1e-7, "z": 2e-3}, label="error", scale="log")
        Overlay('error', 2 of 2 nodes)
        """
        if "color" in self.view:
            self.view = {key: value for key, value in self.view.items() if key != "color"}
        if values is None:
            self.set_trait("_overlay", None)
            return None
        from onnx_nb.analysis.view.overlays import overlay
        from onnx_nb.widgets.shown_overlay import ShownOverlay

        layer = overlay(self.model, values, label=label, scale=scale, reduce=reduce)
        self._overlay = layer.to_json() | dict(zip(("nodes", "scopes"), layer.buffers(), strict=True))
        self._shown = ShownOverlay(**vars(layer), graph=self)
        return self._shown

    def _content(self, **options: Any) -> Content:
        from onnx_nb.analysis.cost.summary import summarize
        from onnx_nb.drawing.html import Content, bake

        page = bake(self.model, capture=self.captured, shown_overlay=self._colors(), **options)
        summary = summarize(self.model)
        return Content(summary.name, summary.without_folder().to_json(), "graph", {**self._packed, "baked": page})

    def _colors(self) -> Overlay | None:
        color = self.view.get("color")
        if color is not None:  # chosen in the bar, after what a cell has set
            return self._numbers(str(color), self.model)
        return self._shown if self._overlay else None

    def to_graphviz(self, *, direction: Direction | None = None, theme: Theme | None = None) -> graphviz.Digraph:
        """Return the current view as DOT: open scopes, the selection, and the chosen `inputs` and `outputs`.

        Parameters
        ----------
        direction
            Direction of the data flow; that of this widget if ``None``.
        theme
            ``"light"`` or ``"dark"``; if ``None``, that of this widget, and light if that is ``"auto"``.

        Returns
        -------
        graphviz.Digraph
            Its ``source`` is the DOT text. Rendering it needs the program ``dot``.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> ModelGraph(onnx.parser.parse_model(text)).to_graphviz(direction="right").source[:15]
        'digraph model {'
        """
        from onnx_nb.drawing.graphviz import view_to_graphviz

        way, colors = direction or self.direction, theme or ("dark" if self.theme == "dark" else "light")
        targets = [*self.selection, *({"kind": "tensor", "name": name} for name in (*self.inputs, *self.outputs))]
        return view_to_graphviz(self.model, self.view.get("open"), targets, direction=way, theme=colors)

    def _models(self, _step: int = 0) -> tuple[Model, ...]:
        return (self.model,)

    def _verbs(self) -> dict[str, Verb]:
        return {**super()._verbs(), **self._values.verbs()}

    def _on_select(self, call: Call[SelectRequest]) -> Reply:
        from onnx_nb.analysis.view.inspection import select
        from onnx_nb.widgets.protocol import SelectReply

        request = call.request
        selection = select(self.model, request.nodes, request.scopes)
        number_of = self._values.graph.plain.value
        ends = {key: list(map(number_of, getattr(selection, key))) for key in ("inputs", "outputs")}
        return Reply(SelectReply(rows=selection.rows, **ends, obstacle=selection.obstacle))

    def _on_plan(self, call: Call[BoundaryRequest]) -> Reply:
        from onnx_nb.analysis.submodel.extraction import plan_extraction
        from onnx_nb.widgets.protocol import MissingEntry, PlanReply

        request = call.request
        plan = plan_extraction(self.model, request.inputs, request.outputs)
        number_of = self._values.graph.plain.value
        missing = [MissingEntry(value=number_of(m.name), name=m.name, message=m.message) for m in plan.missing]
        tensors = {key: list(map(number_of, getattr(plan, key))) for key in ("redundant", "suggestion", "alternative")}
        value = PlanReply(missing=missing, **tensors, nbytes=plan.nbytes, message=plan.message)
        return Reply(value, [plan.nodes.astype("<i4").tobytes()])

    def _on_extract(self, call: Call[BoundaryRequest]) -> Reply:
        from onnx_nb.analysis.submodel.extraction import extract
        from onnx_nb.analysis.view.graph_columns import columns

        request = call.request
        with self._lock:
            submodel = extract(self.model, request.inputs, request.outputs)
            table = columns(submodel).to_bytes()
            call.check()  # cancelled while a cell ran
            self.submodel = self._result = submodel
        text = f"Extracted {count_text(len(submodel.proto.graph.node), 'node')}"
        code = f"submodel = onnx_nb.extract({self._source()}, {request.inputs!r}, {request.outputs!r})"
        return self._made(text, "submodel", f"import onnx_nb\n\n{code}", "part", table)

    def _on_edit(self, call: Call[EditRequest]) -> Reply:
        from onnx_nb.analysis.edit.edit import SIGNS, edit
        from onnx_nb.widgets import _edits
        from onnx_nb.widgets.protocol import StepEntry

        request = call.request
        if request.edit == "simplify":
            return self._simplify(call)
        shown = request.step or 0 if request.edit in ("show", "verify") else 0
        with self._lock:
            edits = self.edits or edit(self.model)
            _edits.apply(edits, request, call.progress)
            is_shown = request.edit == "verify" and edits.model is self._result
            self.edits, self._result = edits, edits.model
            tables = [] if is_shown else _edits.tables(edits, shown)
        if request.edit == "verify" or _edits.is_small(self.model):
            edits.verify(progress=call.progress)
        step = edits.steps[shown - 1] if edits.steps else None
        source = edits.code if self.model.path else edits.code.replace("edit(model)", f"edit({self._source()})")
        text = f"{step.text}: {step.verdict}" if step else "All edits are undone"
        steps = [StepEntry(sign=SIGNS[entry.proof], text=entry.text, verdict=entry.verdict) for entry in edits.steps]
        about = {"steps": steps, "step": shown, "redo": edits.can_redo}
        return self._made(text, "edits.model", source, "edited", *tables, **about)

    def _simplify(self, call: Call[EditRequest]) -> Reply:
        from onnx_nb.analysis.simplify.simplify import simplify
        from onnx_nb.analysis.view.graph_columns import columns

        result = simplify(self.model, feeds=self.feeds, progress=call.progress)
        with self._lock:
            self.simplification, self._result = result, result.model
        nodes = f"{sum(result.before.values())} → {count_text(sum(result.after.values()), 'node')}"
        text = f"{nodes}. {result.verification.removesuffix('.')}"
        code = f"import onnx_nb\n\nsimplification = onnx_nb.simplify({self._source()})"
        return self._made(text, "simplification", code, "simplified", columns(result.model).to_bytes())

    def _saving(self) -> Model:
        return self._result or super()._saving()

    def _made(self, text: str, attribute: str, code: str, word: str, *tables: bytes, **more: Any) -> Reply:
        from onnx_nb.widgets.protocol import EditReply, ExtractReply

        kind = ExtractReply if word == "part" else EditReply
        variable = self._variable()
        name = f"{variable}.{attribute}" if variable else ""
        file = (self.model.path.parent if self.model.path else Path.cwd()) / f"{Path(self.model.name).stem}-{word}.onnx"
        where = f": {name}" if name else ". Copy Python copies the call."
        return Reply(kind(message=f"{text}{where}", name=name, code=code, file=str(file), **more), [*tables])

    def _source(self) -> str:
        variable = self._variable()
        return f"{variable}.model" if variable else repr(str(self.model.path)) if self.model.path else "model"

    def _variable(self) -> str:
        """Return what a cell calls this graph; empty where no variable holds it."""
        plain = {name: value for name, value in variables().items() if name[:1] != "_"}
        views = {f"{name}.graph": value.graph for name, value in plain.items() if isinstance(value, ModelView)}
        return next((name for name, value in (plain | views).items() if value is self), "")

    def _on_profile(self, call: Call[Any]) -> Reply:
        from onnx_nb.analysis.profile.profile import profile

        self.timing = profile(self.model, self.feeds, shapes=self.shapes, progress=call.progress)
        return Reply(self.timing.message)

    def _on_sizes(self, call: Call[SizesRequest]) -> Reply:
        from onnx_nb.analysis.graph.shape_inference import bound
        from onnx_nb.analysis.view.overlays import free_sizes

        free = free_sizes(self.model) if self.feeds is None else {}
        lists = {name: size if isinstance(size, list) else [size] for name, size in call.request.shapes.items()}
        if call.request.choice:
            is_one = {name: isinstance(free.get(name), int) and len(size) == 1 for name, size in lists.items()}
            shapes = {name: size[0] if is_one[name] else size for name, size in lists.items()}
            bound(self._values.graph, shapes)
            self.shapes = shapes
        texts = {name: shape_text(size) for name, size in self.shapes.items()}
        return Reply([(name, texts.get(name, ""), shape_text(size)) for name, size in free.items()])

    def _on_discard(self, _call: Call[Any]) -> Reply:
        self.submodel = self._result = None
        return Reply()


class ModelView(ReopeningWidget, ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
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
        from onnx_nb.widgets.summary import ModelSummary

        self.model = load(model)
        self.graph = ModelGraph(self.model, **traits)
        self.summary = ModelSummary(self.model, expanded=False, theme=self.graph.theme, _graph=self.graph.model_id)
        super().__init__([self.summary, self.graph])

    def __repr__(self) -> str:
        return f"ModelView({self.model!r})"

    def open(self) -> None:
        """Connect the view to the browser, also after `close`."""
        for part in (self.layout, self.summary, self.graph):
            part.open()
        super().open()

    def close(self) -> None:
        """Remove the views, and close the summary and the graph too."""
        for part in (self.summary, self.graph, self.layout):
            part.close()
        super().close()

    def show_picture(self) -> None:
        """Output the graph's picture before the view is displayed; do nothing outside a notebook."""
        self.graph.show_picture()

    def to_html(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write summary and live graph as one file; see `ModelGraph.to_html`."""
        return self.graph.to_html(path, **options)


def _number(words: str, least: float) -> Kind:
    return words, lambda value: type(value) in (int, float) and least <= value < math.inf


_ANY_NUMBER: Final = _number("a finite number", -sys.float_info.max)
_CAMERA: Final = {"x": _ANY_NUMBER, "y": _ANY_NUMBER, "zoom": _number("a number above 0", sys.float_info.min)}
_BOOKMARK: Final[Mapping[str, Any]] = {
    "name": TEXT,
    "open": [TEXT],
    "camera": _CAMERA,
    "selection": (
        "None or a dict with kind and name",
        lambda value: value is None or (isinstance(value, Mapping) and {"kind", "name"} <= set(value)),
    ),
}
_VIEW: Final[Mapping[str, Any]] = {
    "open": [TEXT],
    "camera": _CAMERA,
    "column_height": _number("a number, 0 or more", 0),
    **dict.fromkeys(("brief", "plumbing"), ("True or False", lambda value: isinstance(value, bool))),
    "search": TEXT,
    "color": ("a str or None", lambda value: isinstance(value, str | None)),
    "bookmarks": [_BOOKMARK],
}
"""Key of `ModelGraph.view` → what it holds: a kind, a list of one, or a dict with all of some keys."""


def _checked(value: Any, kind: Any, what: str, *, optional: Collection[str] = ("selection",)) -> Any:
    """Return a value in the form for the browser; raise `TraitError` with what is wrong in it."""
    if isinstance(kind, list):
        if not isinstance(value, Iterable) or isinstance(value, str | Mapping):
            raise TraitError(f"{what} is a list, not {quoted(repr(value))}.")
        return [_checked(element, kind[0], f"{what}[{at}]") for at, element in enumerate(value)]
    if not isinstance(kind, Mapping):
        if not kind[1](value):
            raise TraitError(f"{what} is {kind[0]}, not {quoted(repr(value))}.")
        return dict(value) if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping):
        raise TraitError(f"{what} is a dict with {', '.join(kind)}, not {quoted(repr(value))}.")
    for key in value:
        if key not in kind:
            near = closest_text(str(key), kind)
            raise TraitError(f"{what} has no {quoted(str(key))}. {near} It has {', '.join(kind)}.")
    if missing := [key for key in kind if key not in value and key not in optional]:
        raise TraitError(f"{what} lacks {', '.join(missing)}. It has {', '.join(kind)}.")
    keys = [key for key in kind if key in value or key == "selection"]
    return {key: _checked(value.get(key), kind[key], f"{what}['{key}']") for key in keys}
