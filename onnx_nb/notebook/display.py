"""Display of models and results at the end of a cell.

Foreign classes are registered by name, so nothing is imported before the first model is shown. A bundle always has
``text/plain``: without it IPython would print a proto, which takes 144 million characters for a model of 36 MB.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import itertools
import logging
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import OnnxNbError
from onnx_nb.analysis.progress import Progress, shown_progress
from onnx_nb.analysis.results import Displayed

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

logger = logging.getLogger(__name__)

SHOWN = (
    *[("onnx.onnx_ml_pb2", f"{name}Proto") for name in ("Model", "Graph", "Function", "Node", "Tensor")],
    *[(module, "Model") for module in ("onnx_ir", "onnx_ir._core")],
    *[(module, "ONNXProgram") for module in ("torch.onnx", "torch.onnx._internal.exporter._onnx_program")],
)
"""Module and name of each class that `show_protos` displays; some were moved."""


def show(result: Any, args: Any = None, kwargs: Mapping[str, Any] | None = None, **traits: Any) -> Any:
    """Show a model, a torch module or a result: as a widget in a notebook, elsewhere as a page in the browser.

    Parameters
    ----------
    result
        Any `ModelLike`, or a result that can be displayed, such as a `Capture` or a `Comparison`; or a torch module,
        which is exported. If ``forward`` or the export fails, what ran is shown, with a mark where it fails, and why.
    args, kwargs
        Arguments of a torch module, as for `record`.
    **traits
        Arguments of the widget, such as ``height``.

    Returns
    -------
    ipywidgets.Widget or pathlib.Path
        In a notebook, the widget, which is displayed at the end of a cell; elsewhere, the path of the page in a new
        temporary folder.

    Examples
    --------
    >>> import onnx.parser
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] z) { z = Relu(x) }'
    >>> page = show(onnx.parser.parse_model(text))  # doctest: +SKIP
    """
    from onnx_nb.widgets._hosts import in_marimo

    if hasattr(result, "named_modules"):
        from onnx_nb.analysis.pytorch.forward import forward_or_export

        result = forward_or_export(result, args, kwargs)
    elif args is not None or kwargs is not None:
        raise TypeError(f"args and kwargs are those of a torch module, which a {type(result).__name__} is not.")
    widget = widget_of(result, **traits)
    _show_still(result)
    if in_marimo() or (_shell() is not None and not _is_terminal()):
        return widget
    with contextlib.closing(widget):
        path: Path = widget.to_html(Path(tempfile.mkdtemp(prefix="onnx_nb-")) / "model.html")
    webbrowser.open(path.as_uri())
    return path


def bundle(result: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the MIME bundle of a model, a bare proto or a result: its widget and its text."""
    try:
        if type(result).__name__ == "TensorProto":
            return _tensor_bundle(result), {}
        source = _loaded(result)
        if _is_terminal():
            return {"text/plain": str(source)}, {}
        from onnx_nb.drawing.html import still_html

        panel = source._panel()  # noqa: SLF001 - of our results
        if panel is None:
            return {"text/plain": str(source), "text/html": still_html(source)}, {}
        if _shell() is not None:
            _show_still(source)
        output = widget_of(source)._repr_mimebundle_(include=include, exclude=exclude)
    except OnnxNbError as error:
        return {"text/plain": f"{type(error).__name__}: {error}"}, {}
    except Exception as error:  # IPython would report it and still print a whole proto
        logger.exception("a %s could not be shown", type(result).__name__)
        return {"text/plain": f"onnx_nb could not show this: {type(error).__name__}: {error}"}, {}
    data, metadata = output if isinstance(output, tuple) else (output, {})
    return {**(data or {}), "text/plain": str(source)}, metadata


def _show_still(result: Any) -> None:
    """Display the still of a result that its widget does not show; print the result where there is no notebook."""
    panel = result._panel() if isinstance(result, Displayed) else None  # noqa: SLF001 - of our results
    if panel is None or panel.shows_result:
        return
    if _shell() is None or _is_terminal():
        print(result)  # noqa: T201 - the page that opens does not say it
        return
    from IPython.display import HTML, display

    from onnx_nb.drawing.html import still_html

    display(HTML(still_html(result)))


def widget_of(result: Any, **traits: Any) -> Any:
    """Return the widget that shows a model or a result."""
    import ipywidgets

    from onnx_nb.drawing.html import still_html
    from onnx_nb.widgets._hosts import in_marimo

    source = _loaded(result)
    panel = source._panel()  # noqa: SLF001 - of our results
    if panel is None:
        return ipywidgets.HTML(still_html(source))
    module, name = panel.widget.split(".")
    widget = getattr(importlib.import_module(f"onnx_nb.widgets.{module}"), name)(*panel.arguments, **traits)
    if panel.marks:
        widget.graph.overlay(dict.fromkeys(panel.marks, "fails here"), label="forward")
        widget.graph.selection = [{"kind": "node", "name": panel.marks[0]}]
    # marimo shows single widgets, not a box of several
    return widget.graph if in_marimo() and isinstance(widget, ipywidgets.Box) else widget


def cell_name(file: str) -> str:
    """Return the name of the notebook cell for a file, such as ``In[2]``; empty for any other file."""
    shell = _shell()
    match = shell.compile.format_code_name(file) if shell else None
    return match[1] if match else ""


def show_protos(shell: InteractiveShell) -> None:
    """Display bare models and protos of onnx, onnx_ir and torch: graphs like a `Model`, tensors with statistics."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for name in SHOWN:
        previous = formatter.pop(".".join(name), None)
        if previous not in (bundle, None):
            _previous[id(formatter), name] = previous
        formatter.for_type_by_name(*name, bundle)


def unshow_protos(shell: InteractiveShell) -> None:
    """Restore the display from before `show_protos`."""
    formatter = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    for name in SHOWN:
        formatter.pop(".".join(name), None)
        formatter.for_type_by_name(*name, _previous.pop((id(formatter), name), None))


_previous: dict[tuple[int, tuple[str, str]], Any] = {}
"""Printers to restore, by identity of the shell's formatter and class."""


def _model_around(proto: Any) -> Any:
    """Return a model with a graph, function, node or tensor of onnx inside; anything else as it is."""
    import onnx
    import onnx.helper

    graph, imports = proto, getattr(proto, "opset_import", ())
    if isinstance(proto, onnx.TensorProto):
        graph = onnx.helper.make_graph([], "", [], [], [proto])
        graph.initializer[0].name = proto.name or "tensor"
    elif isinstance(proto, onnx.FunctionProto | onnx.NodeProto):
        is_node = isinstance(proto, onnx.NodeProto)
        ends = (dict.fromkeys(filter(None, names)) for names in (proto.input, proto.output))
        inputs, outputs = ([onnx.ValueInfoProto(name=name) for name in names] for names in ends)
        nodes, name = ([proto], proto.name or proto.op_type) if is_node else (proto.node, proto.name)
        graph = onnx.helper.make_graph(nodes, name, inputs, outputs)
    elif not isinstance(proto, onnx.GraphProto):
        return proto
    if not imports:
        domains = {"", *(node.domain for node in graph.node)}
        newest = {domain: onnx.defs.onnx_opset_version() if domain in ("", "ai.onnx") else 1 for domain in domains}
        imports = [onnx.helper.make_opsetid(*entry) for entry in sorted(newest.items())]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=onnx.IR_VERSION)


def _tensor_bundle(proto: Any) -> dict[str, Any]:
    """Return the text and the table of a bare ``onnx.TensorProto``: its type, its statistics and some of its values."""
    import numpy as np

    from onnx_nb.analysis.formatting import bytes_text, number_text, printable, quoted, shape_text
    from onnx_nb.analysis.model.model import load
    from onnx_nb.analysis.model.tensors import dtype_name
    from onnx_nb.analysis.run.statistics import Statistics
    from onnx_nb.drawing.html import table_of

    name = proto.name or "tensor"
    about = [dtype_name(proto.data_type), shape_text(proto.dims)]
    array = load(_model_around(proto)).tensor(name)
    stats = Statistics.of(array)
    numbers = {key: number_text(getattr(stats, key), 4) for key in ("min", "max", "mean", "std", "zeros", "nan")}
    title = f"TensorProto {quoted(proto.name)}: {' '.join(about)}, {bytes_text(array.nbytes)}"
    table = table_of(["dtype", "shape", *numbers], [(*about, *numbers.values())])
    text = "\n".join(printable(line) for line in np.array2string(array, threshold=100, edgeitems=3).splitlines())
    page = f"<p>{html.escape(printable(title))}</p>{table}<pre>{html.escape(text)}</pre>"
    return {"text/plain": f"{title}\n{text}", "text/html": page}


def cell_progress() -> contextlib.AbstractContextManager[Progress | None]:
    """Return a callback that draws a bar below the cell that runs, and nothing elsewhere."""
    is_cell = hasattr(_shell(), "kernel") and threading.current_thread() is threading.main_thread()
    if not is_cell or sys.platform == "emscripten":  # which starts no threads
        return contextlib.nullcontext()
    from IPython.display import DisplayHandle

    output: Any = DisplayHandle()
    calls = itertools.count()

    def draw(fraction: float, what: str) -> None:
        content = {"text/plain": f"{fraction:4.0%}  {what}"}
        content["text/html"] = f'<progress max="1" value="{fraction:.3f}"></progress> {html.escape(what)}'
        (output.update if next(calls) else output.display)(content, raw=True)

    # an output cannot be taken back, only emptied
    return shown_progress(draw, lambda: next(calls) and output.update({"text/html": "", "text/plain": ""}, raw=True))


def _loaded(result: Any) -> Any:
    """Return a model or a result unchanged, and anything else as a `Model`."""
    from onnx_nb.analysis.model.model import load

    return result if isinstance(result, Displayed) else load(_model_around(result))


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _is_terminal() -> bool:
    """Return whether IPython runs in a terminal, which shows text only."""
    shell = _shell()
    return shell is not None and shell.display_formatter.active_types == ["text/plain"]
