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

    from onnx_nb.analysis.comparisons.alignment import Alignment, align
    from onnx_nb.analysis.comparisons.comparison import Comparison, compare
    from onnx_nb.analysis.comparisons.debugger import Debugger
    from onnx_nb.analysis.comparisons.differences import Differences, differences
    from onnx_nb.analysis.comparisons.metrics import Errors
    from onnx_nb.analysis.comparisons.torch_comparison import TorchComparison, compare_torch
    from onnx_nb.analysis.cuts.extraction import ExtractionPlan, extract, plan_extraction
    from onnx_nb.analysis.cuts.partition import partition
    from onnx_nb.analysis.files import external_data
    from onnx_nb.analysis.files.model import Model, ModelLike, load
    from onnx_nb.analysis.graphs.graph import Graph
    from onnx_nb.analysis.runs.capture import Capture, capture
    from onnx_nb.analysis.runs.feeds import check_feeds, random_feeds, read_feeds
    from onnx_nb.analysis.runs.session import run
    from onnx_nb.analysis.simplifications.simplification import Simplification, rewrites, simplify
    from onnx_nb.analysis.sizes.costs import Costs, costs
    from onnx_nb.analysis.sizes.summary import Summary, summarize
    from onnx_nb.analysis.torch_modules.pytorch import Recording, export, mark, record
    from onnx_nb.drawing.graphviz import to_graphviz
    from onnx_nb.widgets.capture import CapturePanel
    from onnx_nb.widgets.comparison import ComparisonPanel
    from onnx_nb.widgets.external_data import ExternalDataPanel
    from onnx_nb.widgets.graph import ModelGraph
    from onnx_nb.widgets.pair import GraphPair
    from onnx_nb.widgets.simplification import SimplificationPanel
    from onnx_nb.widgets.summary import ModelSummary
    from onnx_nb.widgets.view import ModelView

__version__ = "0.1.0"

_HOME = {
    "Alignment": "analysis.comparisons.alignment",
    "Capture": "analysis.runs.capture",
    "CapturePanel": "widgets.capture",
    "Comparison": "analysis.comparisons.comparison",
    "ComparisonPanel": "widgets.comparison",
    "Costs": "analysis.sizes.costs",
    "Differences": "analysis.comparisons.differences",
    "Errors": "analysis.comparisons.metrics",
    "Debugger": "analysis.comparisons.debugger",
    "ExtractionPlan": "analysis.cuts.extraction",
    "ExternalDataPanel": "widgets.external_data",
    "Graph": "analysis.graphs.graph",
    "GraphPair": "widgets.pair",
    "Model": "analysis.files.model",
    "ModelGraph": "widgets.graph",
    "ModelLike": "analysis.files.model",
    "ModelSummary": "widgets.summary",
    "ModelView": "widgets.view",
    "Recording": "analysis.torch_modules.pytorch",
    "Simplification": "analysis.simplifications.simplification",
    "SimplificationPanel": "widgets.simplification",
    "Summary": "analysis.sizes.summary",
    "TorchComparison": "analysis.comparisons.torch_comparison",
    "align": "analysis.comparisons.alignment",
    "capture": "analysis.runs.capture",
    "check_feeds": "analysis.runs.feeds",
    "compare": "analysis.comparisons.comparison",
    "compare_torch": "analysis.comparisons.torch_comparison",
    "costs": "analysis.sizes.costs",
    "differences": "analysis.comparisons.differences",
    "export": "analysis.torch_modules.pytorch",
    "extract": "analysis.cuts.extraction",
    "load": "analysis.files.model",
    "mark": "analysis.torch_modules.pytorch",
    "partition": "analysis.cuts.partition",
    "plan_extraction": "analysis.cuts.extraction",
    "random_feeds": "analysis.runs.feeds",
    "read_feeds": "analysis.runs.feeds",
    "record": "analysis.torch_modules.pytorch",
    "rewrites": "analysis.simplifications.simplification",
    "run": "analysis.runs.session",
    "simplify": "analysis.simplifications.simplification",
    "summarize": "analysis.sizes.summary",
    "to_graphviz": "drawing.graphviz",
}
_MODULES = {"external_data": "analysis.files.external_data"}

__all__ = [
    "Alignment",
    "AlignmentError",
    "Capture",
    "CaptureError",
    "CapturePanel",
    "Comparison",
    "ComparisonPanel",
    "Costs",
    "Debugger",
    "Differences",
    "Errors",
    "ExportError",
    "ExternalDataError",
    "ExternalDataPanel",
    "ExtractionError",
    "ExtractionPlan",
    "FeedError",
    "Graph",
    "GraphPair",
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
    "check_feeds",
    "compare",
    "compare_torch",
    "costs",
    "differences",
    "export",
    "external_data",
    "extract",
    "load",
    "mark",
    "partition",
    "plan_extraction",
    "random_feeds",
    "read_feeds",
    "record",
    "rewrites",
    "run",
    "simplify",
    "summarize",
    "to_graphviz",
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
        from onnx_nb.notebook.formatters import name_cells, show_models

        show_models(shell)
        name_cells(shell)


_tell_this_shell()
