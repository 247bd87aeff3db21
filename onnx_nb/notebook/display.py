"""How a model at the end of a cell shows itself.

Foreign classes are registered by name, so nothing is imported before the first model is shown. The bundle always
holds ``text/plain``: without it IPython would print the proto, which for a 36 MB model is 144 million characters.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

logger = logging.getLogger(__name__)

MODEL = ("onnx_nb.analysis.model.model", "Model")
PROTO = ("onnx.onnx_ml_pb2", "ModelProto")


PANELS = {
    ("onnx_nb.analysis.run.capture", "Capture"): ("onnx_nb.widgets.capture", "CapturePanel"),
    ("onnx_nb.analysis.compare.comparison", "Comparison"): ("onnx_nb.widgets.comparison", "ComparisonPanel"),
    ("onnx_nb.analysis.simplify.simplify", "Simplification"): (
        "onnx_nb.widgets.simplification",
        "SimplificationPanel",
    ),
    ("onnx_nb.analysis.model.external_data", "Audit"): ("onnx_nb.widgets.audit", "AuditPanel"),
}
"""Results, and the widgets that show them."""


def show_models(shell: InteractiveShell) -> None:
    """Let a `Model` show its summary and graph, and results their panels; done by ``import onnx_nb`` in a notebook."""
    formatter = _formatter(shell)
    _replace(formatter, MODEL, bundle)
    for name, panel in PANELS.items():
        _replace(formatter, name, functools.partial(_panel_bundle, panel))


def name_cells(shell: InteractiveShell) -> None:
    """Let lines of a torch module that was typed into a cell be told as ``In[2]:19``, as tracebacks do."""
    from onnx_nb.analysis.pytorch import source_lines

    def cell_of(file: str) -> str:
        found = shell.compile.format_code_name(file)
        return found[1] if found else ""

    source_lines.name_cells(cell_of)


def show_protos(shell: InteractiveShell) -> None:
    """Let a bare ``onnx.ModelProto`` show the same."""
    formatter = _formatter(shell)
    previous = _replace(formatter, PROTO, bundle)
    if previous is not bundle:
        _previous[id(formatter)] = previous


def unshow_protos(shell: InteractiveShell) -> None:
    """Return ``onnx.ModelProto`` back the display it had before `show_protos`."""
    formatter = _formatter(shell)
    _replace(formatter, PROTO, _previous.pop(id(formatter), None))


def bundle(model: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the MIME bundle of a model's view."""
    from onnx_nb.analysis.errors import OnnxNbError
    from onnx_nb.analysis.model.model import load
    from onnx_nb.widgets.view import ModelView

    try:
        loaded = load(model)
        shown = ModelView(loaded)._repr_mimebundle_(include=include, exclude=exclude)
    except OnnxNbError as error:
        return {"text/plain": f"{type(error).__name__}: {error}"}, {}
    except Exception as error:  # IPython would report it and print the whole proto after all
        logger.exception("a model could not be shown")
        return {"text/plain": f"onnx_nb could not show this model: {type(error).__name__}: {error}"}, {}
    data, metadata = shown if isinstance(shown, tuple) else (shown, {})
    return {**(data or {}), "text/plain": repr(loaded)}, metadata


def _panel_bundle(
    panel: tuple[str, str], result: Any, include: Any = None, exclude: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the MIME bundle of the widget that shows a result."""
    module, name = panel
    widget = getattr(importlib.import_module(module), name)(result)
    shown = widget._repr_mimebundle_(include=include, exclude=exclude)
    data, metadata = shown if isinstance(shown, tuple) else (shown, {})
    return {**(data or {}), "text/plain": repr(result)}, metadata


# what a foreign formatter was before, by the identity of the shell's formatter, to be put back
_previous: dict[int, Any] = {}


def _formatter(shell: InteractiveShell) -> Any:
    return shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]


def _replace(formatter: Any, name: tuple[str, str], printer: Any) -> Any:
    """Set the printer of a class known by module and name, or none; give the one it had.

    IPython keeps a printer under the name until the class is first shown, then under the class itself.
    """
    previous = None
    for registry in (formatter.deferred_printers, formatter.type_printers):
        for key in [key for key in registry if name in (key, _named(key))]:
            previous = registry.pop(key)
    if printer is not None:
        formatter.for_type_by_name(*name, printer)
    return previous


def _named(key: Any) -> tuple[str | None, str | None]:
    return getattr(key, "__module__", None), getattr(key, "__name__", None)
