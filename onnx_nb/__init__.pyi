# The public names and their homes: the one table, read by type checkers and by __init__.py.

from IPython.core.interactiveshell import InteractiveShell

from onnx_nb import types as types
from onnx_nb.analysis.compare.compare import compare as compare
from onnx_nb.analysis.cost.costs import costs as costs
from onnx_nb.analysis.cost.summary import summarize as summarize
from onnx_nb.analysis.edit.edit import edit as edit
from onnx_nb.analysis.errors import AlignmentError as AlignmentError
from onnx_nb.analysis.errors import CaptureError as CaptureError
from onnx_nb.analysis.errors import EditError as EditError
from onnx_nb.analysis.errors import ExportError as ExportError
from onnx_nb.analysis.errors import ExternalDataError as ExternalDataError
from onnx_nb.analysis.errors import ExtractionError as ExtractionError
from onnx_nb.analysis.errors import FeedError as FeedError
from onnx_nb.analysis.errors import ModelFileError as ModelFileError
from onnx_nb.analysis.errors import OnnxNbError as OnnxNbError
from onnx_nb.analysis.errors import SimplificationError as SimplificationError
from onnx_nb.analysis.generate.cache_check import check_cache as check_cache
from onnx_nb.analysis.generate.compare_decoding import compare_decoding as compare_decoding
from onnx_nb.analysis.generate.decode import decode as decode
from onnx_nb.analysis.match.diff import diff as diff
from onnx_nb.analysis.model import external_data as external_data
from onnx_nb.analysis.model.model import Model as Model
from onnx_nb.analysis.model.model import load as load
from onnx_nb.analysis.profile.profile import profile as profile
from onnx_nb.analysis.pytorch.align import align as align
from onnx_nb.analysis.pytorch.compare_torch import compare_torch as compare_torch
from onnx_nb.analysis.pytorch.export import Debugger as Debugger
from onnx_nb.analysis.pytorch.export import export as export
from onnx_nb.analysis.pytorch.export import mark as mark
from onnx_nb.analysis.pytorch.record import record as record
from onnx_nb.analysis.quantize.calibration import calibrate as calibrate
from onnx_nb.analysis.quantize.headroom import headroom as headroom
from onnx_nb.analysis.quantize.sensitivity import sensitivity as sensitivity
from onnx_nb.analysis.quantize.what_if import mixed as mixed
from onnx_nb.analysis.quantize.what_if import suggest_exclusion as suggest_exclusion
from onnx_nb.analysis.run.capture import capture as capture
from onnx_nb.analysis.run.feeds import read_feeds as read_feeds
from onnx_nb.analysis.run.random_feeds import random_feeds as random_feeds
from onnx_nb.analysis.run.session import run as run
from onnx_nb.analysis.run.session import session as session
from onnx_nb.analysis.simplify.rounds import rules as rules
from onnx_nb.analysis.simplify.simplify import simplify as simplify
from onnx_nb.analysis.submodel.extraction import extract as extract
from onnx_nb.analysis.submodel.extraction import plan_extraction as plan_extraction
from onnx_nb.analysis.submodel.partition import partition as partition
from onnx_nb.analysis.submodel.reduction import reduce as reduce
from onnx_nb.drawing.graphviz import to_graphviz as to_graphviz
from onnx_nb.drawing.plots import plot_errors as plot_errors
from onnx_nb.drawing.plots import plot_histogram as plot_histogram
from onnx_nb.notebook.display import show as show
from onnx_nb.notebook.report import report as report
from onnx_nb.widgets.audit import AuditPanel as AuditPanel
from onnx_nb.widgets.capture import CapturePanel as CapturePanel
from onnx_nb.widgets.comparison import ComparisonPanel as ComparisonPanel
from onnx_nb.widgets.decoding import DecodingPanel as DecodingPanel
from onnx_nb.widgets.diff import DiffPanel as DiffPanel
from onnx_nb.widgets.graph import ModelGraph as ModelGraph
from onnx_nb.widgets.graph import ModelView as ModelView
from onnx_nb.widgets.profile import ProfilePanel as ProfilePanel
from onnx_nb.widgets.simplification import SimplificationPanel as SimplificationPanel
from onnx_nb.widgets.summary import ModelSummary as ModelSummary

__version__: str
__all__: list[str]  # noqa: PYI035 (the names imported above)

def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...
