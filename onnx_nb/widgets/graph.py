"""The interactive graph of a model: look, click tensors, choose inputs and outputs, extract.

Everything a click does is one call of `onnx_nb.analysis`; the same functions answer in a cell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from onnx_nb.analysis.cost.summary import summarize
from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.graph.graph import Graph
from onnx_nb.analysis.model.model import Model, ModelLike, load
from onnx_nb.analysis.submodel.extraction import ExtractionPlan, extract, plan_extraction
from onnx_nb.analysis.view.graph_columns import columns
from onnx_nb.analysis.view.inspection import inspect
from onnx_nb.analysis.view.overlays import OWN, Overlay, Reduction, Scale, overlay
from onnx_nb.analysis.view.selection import select
from onnx_nb.drawing.graphviz import Direction, Theme, view_to_graphviz
from onnx_nb.drawing.html import STATISTICS_BYTES, bake, page, write_page
from onnx_nb.widgets._base import PicturedWidget
from onnx_nb.widgets._channel import Call, Channel, Reply
from onnx_nb.widgets._snapshot import Picture
from onnx_nb.widgets._values import Values, packed_overlay
from onnx_nb.widgets._viewstate import checked

if TYPE_CHECKING:
    import os

    import graphviz

    from onnx_nb.analysis.run.capture import Capture
    from onnx_nb.analysis.view.overlays import Source

# so much may be saved with the notebook, which then reopens without its kernel; larger columns are asked for
COLUMNS_IN_STATE = 1_000_000


class ModelGraph(PicturedWidget):
    """The interactive graph of a model.

    Parameters
    ----------
    model
        A path, bytes, ``ModelProto``, ``onnx_ir.Model``, ``ONNXProgram`` or `Model`. It is never changed.
    inputs, outputs
        Names of tensors chosen for extraction at the start.
    direction
        ``"right"`` draws from left to right.
    height
        Height of the view in pixels.
    theme
        ``"auto"`` follows the notebook.

    Raises
    ------
    ModelFileError
        If the model cannot be read.
    TypeError
        If an argument is not known.

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

    _kind = traitlets.Unicode("graph").tag(sync=True)
    _columns = traitlets.Bytes(None, allow_none=True).tag(sync=True)
    _overlay = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    selection = traitlets.List(traitlets.Dict()).tag(sync=True)
    """What is selected: ``[{"kind": "tensor" | "node" | "scope", "name": …}, …]``, empty for nothing."""

    inputs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the tensors chosen as the submodel's inputs, by clicking or from a cell."""

    outputs = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the tensors chosen as the submodel's outputs."""

    view = traitlets.Dict().tag(sync=True)
    """What is shown, saved with the notebook. Parts that are not named stay as they are; empty for the first view.

    ``open``
        Paths of the scopes that stand open, such as ``["encoder", "encoder/layer.0"]``; ``["*", "-encoder"]`` for all
        but some.
    ``camera``
        ``{"x": …, "y": …, "zoom": …}``: the point of the drawing in the middle, and screen pixels for each of its own.
    ``column_height``
        How high the columns are that a long graph is set in, in pixels of its own; 0 for one column.
    ``brief``
        Whether boxes say what they are in one line, as they do at first where few with more would have room.
    ``search``
        What is searched, as in the bar.
    ``color``
        The numbers chosen in the bar, such as ``"MACs"``; ``None`` for none.
    ``bookmarks``
        ``[{"name": …, "selection": {"kind": …, "name": …} or None, "open": […], "camera": {…}}, …]``.
    """

    direction = traitlets.Enum(("down", "right"), default_value="down").tag(sync=True)
    """Which way the flow goes."""

    height = traitlets.Int(640, min=160).tag(sync=True)
    """Height of the view in CSS pixels."""

    submodel = traitlets.Instance(Model, allow_none=True)
    """What *Extract* (or `extract`) made last; ``None`` before."""

    def __init__(self, model: ModelLike, **traits: Any) -> None:
        self.model = load(model)
        self._lock = threading.RLock()
        packed = columns(self.model).to_bytes()
        self._packed = packed
        small = packed if len(packed) <= COLUMNS_IN_STATE else None
        self._values = Values(self.model)
        picture = Picture(f"Graph of {self.model.name}: {len(self.model.proto.graph.node)} nodes")
        super().__init__(picture, _columns=small, **traits)
        self._channel = Channel(
            self,
            {
                "columns": self._answer_columns,
                "inspect": self._answer_inspect,
                "figures": self._values.figures,
                "plan": self._answer_plan,
                "select": self._answer_select,
                "extract": self._answer_extract,
                "overlay": self._answer_overlay,
                "page": self._answer_page,
                "picture": self._answer_picture,
                "capture": self._values.capture,
                "statistics": self._values.statistics,
                "values": self._values.page,
                "npy": self._values.npy,
            },
        )

    def __repr__(self) -> str:
        return f"ModelGraph({self.model!r})"

    @traitlets.validate("view")
    def _checked_view(self, proposal: dict[str, Any]) -> dict[str, Any]:
        return checked(proposal["value"])

    @property
    def feeds(self) -> Any:
        """What *Capture* runs the model on, as `read_feeds` takes it; random values if ``None``."""
        return self._values.feeds

    @feeds.setter
    def feeds(self, feeds: Any) -> None:
        self._values.feeds = feeds
        self._values.forget()

    @property
    def captured(self) -> Capture | None:
        """What *Capture* saw of the whole model last; ``None`` before."""
        return self._values.captured

    def plan(self) -> ExtractionPlan:
        """Return what `extract` would take with the chosen `inputs` and `outputs`."""
        return plan_extraction(self.model, self.inputs, self.outputs)

    def extract(self) -> Model:
        """Extract the submodel between `inputs` and `outputs` and keep it as `submodel`.

        Raises
        ------
        ExtractionError
            If inputs are missing; the message names them.
        """
        with self._lock:
            self.submodel = extract(self.model, self.inputs, self.outputs)
            return self.submodel

    def overlay(
        self,
        values: Source | None,
        *,
        label: str | None = None,
        scale: Scale | None = None,
        reduce: Reduction | None = None,
    ) -> Overlay | None:
        """Color the boxes by numbers; scopes by what their nodes add up to, or by the largest.

        Parameters
        ----------
        values, label, scale, reduce
            As `onnx_nb.analysis.view.overlays.overlay` takes them: numbers by name of node or tensor, a `Capture`, a
            `Comparison`, the path of a profile of onnxruntime, or ``"parameters"``, ``"weight bytes"``, ``"MACs"``,
            ``"activation bytes"``. ``None`` colors by the category of the op again.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }'
        >>> ModelGraph(onnx.parser.parse_model(text)).overlay({"y": 1e-7, "z": 2e-3}, label="error", scale="log")
        Overlay('error', 2 of 2 nodes)
        """
        if "color" in self.view:
            self.view = {key: value for key, value in self.view.items() if key != "color"}
        if values is None:
            self.set_trait("_overlay", None)
            return None
        made = overlay(self.model, values, label=label, scale=scale, reduce=reduce)
        about, (nodes, groups) = packed_overlay(made)
        self._overlay = {**about, "nodes": nodes, "groups": groups}
        return made

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        statistics: bool = False,
        limit: int = STATISTICS_BYTES,
        progress: Callable[[float, str], None] | None = None,
    ) -> Path:
        """Write the live graph and the summary as one file that needs neither kernel nor network.

        Its boxes have the colors that they have here; they can be colored by parameters, bytes, MACs, and by what
        *Capture* saw.

        Parameters
        ----------
        path
            Where to write; the folder is made if it is not there.
        statistics
            Put statistics and histograms of the weights into the page, and of what *Capture* saw if it was pressed.
            Every weight is read for it.
        limit
            Bytes that the statistics may take, before they are compressed; those of the largest weights are kept, and
            the page says what was left out.
        progress
            Called with the part done and what is read; what it raises ends the work, and nothing is written.

        Raises
        ------
        OnnxNbError
            If the file cannot be written.
        """
        return write_page(path, self._page(statistics, limit, progress))

    def _page(self, statistics: bool, limit: int, progress: Callable[[float, str], None] | None) -> str:  # noqa: FBT001
        baked = bake(
            self.model,
            statistics=statistics,
            captured=self.captured,
            shown_overlay=self._shown_overlay(),
            limit=limit,
            progress=progress,
        )
        return page(summary=summarize(self.model), columns=self._packed, baked=baked)

    def _shown_overlay(self) -> Overlay | None:
        given, color = self._overlay, self.view.get("color")
        if given is not None:
            nodes, groups = (np.frombuffer(given[part], "<f8") for part in ("nodes", "groups"))
            return Overlay(given["label"], given["scale"], given["reduce"], nodes, groups, ())
        return None if color is None else self._colored(str(color))

    def to_graphviz(self, *, direction: Direction | None = None, theme: Theme | None = None) -> graphviz.Digraph:
        """Draw what is shown as DOT: open scopes, the selection, and the chosen `inputs` and `outputs`.

        Parameters
        ----------
        direction
            Where the data flows to: ``"down"`` or ``"right"``; by default as in this widget.
        theme
            ``"light"`` or ``"dark"``; by default this widget's, light where that is ``"auto"``.

        Returns
        -------
        graphviz.Digraph
            As of `to_graphviz`: ``source`` is the text; drawing it needs the program ``dot``.

        Examples
        --------
        >>> import onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> ModelGraph(onnx.parser.parse_model(text)).to_graphviz(direction="right").source[:15]
        'digraph model {'
        """
        return view_to_graphviz(
            self.model,
            self.view,
            selection=self.selection,
            inputs=self.inputs,
            outputs=self.outputs,
            plan=self.plan() if self.outputs else None,
            direction=direction or ("right" if self.direction == "right" else "down"),
            theme=theme or ("dark" if self.theme == "dark" else "light"),
        )

    def _answer_columns(self, _call: Call) -> Reply:
        return Reply(buffers=[self._packed])

    def _answer_inspect(self, call: Call) -> Reply:
        kind, number = call.args.get("kind"), call.args.get("id")
        return Reply(inspect(self.model, str(kind), int(number or 0)).to_json())

    def _answer_select(self, call: Call) -> Reply:
        found = select(self.model, _numbers(call.args.get("nodes")), _numbers(call.args.get("groups")))
        graph = Graph.of(self.model)
        return Reply(
            {
                "rows": found.rows,
                "inputs": _values(graph, found.inputs),
                "outputs": _values(graph, found.outputs),
                "obstacle": found.obstacle,
            }
        )

    def _answer_plan(self, call: Call) -> Reply:
        plan = plan_extraction(self.model, *self._chosen(call))
        graph = Graph.of(self.model)
        value = {
            "missing": [{"value": graph.value(m.name), "name": m.name, "message": m.message} for m in plan.missing],
            "redundant": _values(graph, plan.redundant),
            "suggestion": _values(graph, plan.suggestion),
            "alternative": _values(graph, plan.alternative),
            "nbytes": plan.nbytes,
            "message": plan.message,
        }
        return Reply(value, [plan.nodes.astype("<i4").tobytes()])

    def _answer_extract(self, call: Call) -> Reply:
        with self._lock:
            submodel = extract(self.model, *self._chosen(call))
            packed = columns(submodel).to_bytes()
            self.submodel = submodel
        return Reply({"message": repr(submodel)}, [packed])

    def _answer_overlay(self, call: Call) -> Reply:
        return Reply(*packed_overlay(self._colored(str(call.args.get("name")))))

    def _colored(self, name: str) -> Overlay:
        if name in OWN:
            return overlay(self.model, name)
        if self.captured is None:
            raise OnnxNbError(f"there are no numbers called {name!r} before a capture.", advice="Press Capture first.")
        return overlay(self.model, self.captured, label=name)

    def _answer_page(self, call: Call) -> Reply:
        statistics = call.args.get("statistics") is True
        return Reply(buffers=[self._page(statistics, STATISTICS_BYTES, call.progress).encode()])

    def _chosen(self, call: Call) -> tuple[list[str], list[str]]:
        return _names(call.args.get("inputs")), _names(call.args.get("outputs"))


def _names(given: object) -> list[str]:
    return [str(name) for name in given] if isinstance(given, list) else []


def _numbers(given: object) -> list[int]:
    return [int(number) for number in given] if isinstance(given, list) else []


def _values(graph: Graph, names: Iterable[str]) -> list[int]:
    return [graph.value(name) for name in names]
