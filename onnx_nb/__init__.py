"""Look at an ONNX model in a notebook cell, take it apart, and find out why it does not compute what PyTorch computed.

>>> import onnx_nb
>>> "load" in dir(onnx_nb) and "ModelGraph" in dir(onnx_nb)
True

Names are imported when they are first used, so that ``import onnx_nb`` costs milliseconds and a script that only
extracts a submodel never imports a widget.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import (
    AlignmentError,
    CaptureError,
    ExportError,
    ExternalDataError,
    ExtractionError,
    FeedError,
    ModelFileError,
    OnnxNbError,
    SimplificationError,
)

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from onnx_nb.analysis.compare.compare import compare
    from onnx_nb.analysis.compare.comparison import Comparison
    from onnx_nb.analysis.compare.diff import Diff, diff
    from onnx_nb.analysis.compare.metrics import ErrorStats
    from onnx_nb.analysis.cost.costs import Costs, costs
    from onnx_nb.analysis.cost.summary import Summary, summarize
    from onnx_nb.analysis.graph.graph import Graph
    from onnx_nb.analysis.model import external_data
    from onnx_nb.analysis.model.model import Model, ModelLike, load
    from onnx_nb.analysis.pytorch.alignment import Alignment, align
    from onnx_nb.analysis.pytorch.compare_torch import TorchComparison, compare_torch
    from onnx_nb.analysis.pytorch.debugger import Debugger
    from onnx_nb.analysis.pytorch.export import export, mark
    from onnx_nb.analysis.pytorch.record import Recording, record
    from onnx_nb.analysis.run.capture import Capture, capture
    from onnx_nb.analysis.run.feeds import read_feeds
    from onnx_nb.analysis.run.random_feeds import random_feeds
    from onnx_nb.analysis.run.session import run
    from onnx_nb.analysis.run.validate_feeds import validate_feeds
    from onnx_nb.analysis.simplify.rule_names import rules
    from onnx_nb.analysis.simplify.simplify import Simplification, simplify
    from onnx_nb.analysis.submodel.extraction import ExtractionPlan, extract, plan_extraction
    from onnx_nb.analysis.submodel.partition import partition
    from onnx_nb.drawing.graphviz import to_graphviz
    from onnx_nb.drawing.plots import plot_errors, plot_histogram
    from onnx_nb.widgets.audit import AuditPanel
    from onnx_nb.widgets.capture import CapturePanel
    from onnx_nb.widgets.comparison import ComparisonPanel
    from onnx_nb.widgets.diff import DiffPanel
    from onnx_nb.widgets.graph import ModelGraph
    from onnx_nb.widgets.simplification import SimplificationPanel
    from onnx_nb.widgets.summary import ModelSummary
    from onnx_nb.widgets.view import ModelView

__version__ = "0.1.0"

_HOME = {
    "Alignment": "analysis.pytorch.alignment",
    "Capture": "analysis.run.capture",
    "CapturePanel": "widgets.capture",
    "Comparison": "analysis.compare.comparison",
    "ComparisonPanel": "widgets.comparison",
    "Costs": "analysis.cost.costs",
    "Diff": "analysis.compare.diff",
    "ErrorStats": "analysis.compare.metrics",
    "Debugger": "analysis.pytorch.debugger",
    "ExtractionPlan": "analysis.submodel.extraction",
    "AuditPanel": "widgets.audit",
    "Graph": "analysis.graph.graph",
    "DiffPanel": "widgets.diff",
    "Model": "analysis.model.model",
    "ModelGraph": "widgets.graph",
    "ModelLike": "analysis.model.model",
    "ModelSummary": "widgets.summary",
    "ModelView": "widgets.view",
    "Recording": "analysis.pytorch.record",
    "Simplification": "analysis.simplify.simplify",
    "SimplificationPanel": "widgets.simplification",
    "Summary": "analysis.cost.summary",
    "TorchComparison": "analysis.pytorch.compare_torch",
    "align": "analysis.pytorch.alignment",
    "capture": "analysis.run.capture",
    "validate_feeds": "analysis.run.validate_feeds",
    "compare": "analysis.compare.compare",
    "compare_torch": "analysis.pytorch.compare_torch",
    "costs": "analysis.cost.costs",
    "diff": "analysis.compare.diff",
    "export": "analysis.pytorch.export",
    "extract": "analysis.submodel.extraction",
    "load": "analysis.model.model",
    "mark": "analysis.pytorch.export",
    "partition": "analysis.submodel.partition",
    "plot_errors": "drawing.plots",
    "plot_histogram": "drawing.plots",
    "plan_extraction": "analysis.submodel.extraction",
    "random_feeds": "analysis.run.random_feeds",
    "read_feeds": "analysis.run.feeds",
    "record": "analysis.pytorch.record",
    "rules": "analysis.simplify.rule_names",
    "run": "analysis.run.session",
    "simplify": "analysis.simplify.simplify",
    "summarize": "analysis.cost.summary",
    "to_graphviz": "drawing.graphviz",
}
_MODULES = {"external_data": "analysis.model.external_data"}

__all__ = [
    "Alignment",
    "AlignmentError",
    "AuditPanel",
    "Capture",
    "CaptureError",
    "CapturePanel",
    "Comparison",
    "ComparisonPanel",
    "Costs",
    "Debugger",
    "Diff",
    "DiffPanel",
    "ErrorStats",
    "ExportError",
    "ExternalDataError",
    "ExtractionError",
    "ExtractionPlan",
    "FeedError",
    "Graph",
    "Model",
    "ModelFileError",
    "ModelGraph",
    "ModelLike",
    "ModelSummary",
    "ModelView",
    "OnnxNbError",
    "Recording",
    "Simplification",
    "SimplificationError",
    "SimplificationPanel",
    "Summary",
    "TorchComparison",
    "align",
    "capture",
    "compare",
    "compare_torch",
    "costs",
    "diff",
    "export",
    "external_data",
    "extract",
    "load",
    "mark",
    "partition",
    "plan_extraction",
    "plot_errors",
    "plot_histogram",
    "random_feeds",
    "read_feeds",
    "record",
    "rules",
    "run",
    "simplify",
    "summarize",
    "to_graphviz",
    "validate_feeds",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(f"onnx_nb.{_MODULES[name]}")
    elif name in _HOME:
        value = getattr(importlib.import_module(f"onnx_nb.{_HOME[name]}"), name)
    else:
        msg = f"module 'onnx_nb' has no attribute {name!r}"
        raise AttributeError(msg)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Do what ``%load_ext onnx_nb`` asks: show a bare ``onnx.ModelProto`` as a graph, and add ``%onnx``."""
    from onnx_nb.notebook import load_extension

    load_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Do what ``%unload_ext onnx_nb`` asks: put everything back as it was before ``%load_ext``."""
    from onnx_nb.notebook import unload_extension

    unload_extension(shell)


def _tell_this_shell() -> None:
    """Let a ``Model`` at the end of a cell show itself, and cells be told by their numbers; analysis knows no shell."""
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None:
        from onnx_nb.notebook.display import name_cells, show_models

        show_models(shell)
        name_cells(shell)


_tell_this_shell()
