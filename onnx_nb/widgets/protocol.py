"""The wire: each request of the browser and each reply of the kernel, as dataclasses.

`python -m tests.wire` writes the same as ``frontend/protocol/wire.ts``; a test compares both. Buffers travel beside a
reply; `VERBS` names them. `_channel` carries all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, dataclass_transform

from onnx_nb.analysis.view.array_preview import Look, Page

if TYPE_CHECKING:
    from onnx_nb.analysis.view.overlays import Aggregate, Scale


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Wire:
    """Base of requests and replies: each is a frozen dataclass whose fields are named."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class EmptyRequest(Wire):
    """A request without arguments."""


class PictureRequest(EmptyRequest):
    """The picture that a notebook saves."""

    svg: str


class SideRequest(EmptyRequest):
    """Packed columns by name, or one of several graphs."""

    part: str = ""
    """name of packed columns, which is also that of their graph"""
    step: int = 0
    """number of the step of a simplification, 0 for all of it"""


class TargetRequest(SideRequest):
    """A node, tensor or scope of a graph."""

    kind: str
    id: int


class OverlayRequest(SideRequest):
    """Numbers by name."""

    name: str


class SelectRequest(EmptyRequest):
    """Several nodes and scopes."""

    nodes: list[int] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)


class BoundaryRequest(EmptyRequest):
    """The ends of a submodel."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class EditRequest(EmptyRequest):
    """An edit of the model; what is shown then is the model with all edits so far."""

    edit: str
    """a verb of `Edit`, shape, show, or verify; or simplify, which begins from the model as it is"""
    kind: str = ""
    id: int = -1
    name: str = ""
    """in place of an id, the name in the edited model; of a node without one, that of what it makes"""
    text: str = ""
    """the new name, shape, operator or attributes"""
    step: int | None = None
    """the step to undo, from 1, or null for the last; to show, or null for all"""


class PageRequest(EmptyRequest):
    """A page without a kernel."""

    statistics: bool = False


class CaptureRequest(EmptyRequest):
    """A run of the model."""

    value: int | None = None
    """one tensor; null for all"""


class ValueRequest(EmptyRequest):
    """A tensor."""

    value: int


class CellsRequest(ValueRequest):
    """Cells of a tensor."""

    index: list[int] = field(default_factory=list)
    """an index for each dimension except the last two"""
    row: int = 0
    column: int = 0
    look: str = "slice"
    kind: str = ""


class DetailRequest(EmptyRequest):
    """The details of one point."""

    row: int
    inside: str = ""
    """the module that was drilled into"""


class NameRequest(EmptyRequest):
    """A point by its name."""

    name: str


class FloatRequest(NameRequest):
    """A region to put back to float."""

    count: int
    """number of steps that stay"""


class TargetQualityRequest(EmptyRequest):
    """The quality to reach."""

    target: str
    """such as "> 30 dB\""""


class SkipRequest(EmptyRequest):
    """Changes to leave out."""

    skipped: list[str] = field(default_factory=list)


class SaveRequest(EmptyRequest):
    """A file to write."""

    path: str
    replace: bool = False


class ShapesRequest(EmptyRequest):
    """Sizes of inputs."""

    shapes: dict[str, Any] = field(default_factory=dict)


class SizesRequest(ShapesRequest):
    """Sizes of made-up inputs, as lists."""

    choice: bool = False


class OverlayReply(Wire):
    """Numbers of nodes and scopes that color the boxes."""

    label: str
    scale: Scale
    reduce: Aggregate
    """how the number of a scope is derived from those of its nodes"""
    unmatched: int
    """number of names that are not in the model"""
    labels: tuple[str, ...] = ()
    """labels of an overlay by category, whose numbers are indices into them; none for numbers"""


class CaptureReply(Wire):
    """The result of a capture."""

    message: str
    origin: int | None = None
    """the first tensor with NaN or Inf"""


class SelectReply(Wire):
    """Facts about several nodes and scopes."""

    rows: tuple[tuple[str, str], ...]
    """label, text"""
    inputs: list[int]
    """tensors that they read from outside"""
    outputs: list[int]
    """tensors of theirs that others read"""
    obstacle: str
    """why they cannot be extracted, "" if they can"""


class MissingEntry(Wire):
    """A tensor that a submodel lacks."""

    value: int
    name: str
    message: str


class PlanReply(Wire):
    """The result of `plan_extraction` for the chosen inputs and outputs."""

    missing: list[MissingEntry]
    redundant: list[int]
    suggestion: list[int]
    """inputs that complete the extraction, when `missing` is not empty"""
    alternative: list[int]
    """alternative inputs that replace all chosen ones: fewer, or without a side path"""
    nbytes: int
    message: str


class StepEntry(Wire):
    """An edit that was made."""

    sign: str
    """✓, ≈, ≠, ✗ or ?"""
    text: str
    verdict: str


class ExtractReply(Wire):
    """A model that an extraction made."""

    message: str
    name: str
    """what a cell calls it; "" where there are no cells"""
    code: str
    """Python that makes it"""
    file: str
    """a path to save it to"""


class EditReply(ExtractReply):
    """A model that edits made."""

    steps: list[StepEntry] = field(default_factory=list)
    """the edits"""
    step: int = 0
    """the step that is shown, from 1; 0 for all"""
    redo: bool = False
    """an undo can be taken back"""


class StatisticsReply(Wire):
    """The statistics of a tensor; numbers that JSON cannot hold are text."""

    count: int
    nan: int
    posinf: int
    neginf: int
    zeros: int
    min: float | str
    max: float | str
    mean: float | str
    std: float | str
    counts: list[int]
    """histogram of the finite values: counts of n bins"""
    edges: list[float]
    """the n + 1 edges of the bins"""
    source: str
    """"captured, 1 run on random inputs", "weight\""""


class PictureReply(Wire):
    """A slice of a tensor as gray values."""

    look: Look
    shape: tuple[int, int, int]
    """tiles, height, width"""
    first: int
    """index of the slice in the first tile"""
    low: float | str
    """the darkest value"""
    high: float | str


class CellsReply(Wire, Page):
    """Some cells of a tensor, and a picture of the slice they are in."""

    looks: tuple[Look, ...]
    """the possible views of the tensor"""
    kinds: tuple[str, ...]
    """what there is to see of it, such as "Dequantized" and "Packed\""""
    picture: PictureReply | None


class SaveReply(Wire):
    """The outcome of saving a file."""

    path: str
    exists: bool
    """nothing was written, because the file exists"""
    size: str = ""


class VerbType(NamedTuple):
    """What a verb takes and what it replies."""

    request: type[EmptyRequest]
    reply: Any = None
    """Type of the value; a sentence is a `str`."""
    buffers: tuple[str, ...] = ()


VERBS: Final = {
    "ping": VerbType(EmptyRequest),
    "code": VerbType(EmptyRequest, str),
    "picture": VerbType(PictureRequest),
    "columns": VerbType(SideRequest, buffers=("columns",)),
    "inspect": VerbType(TargetRequest, "Inspection"),
    "figures": VerbType(TargetRequest, list[tuple[str, str]]),
    "overlay": VerbType(OverlayRequest, OverlayReply, ("nodes", "scopes")),
    "select": VerbType(SelectRequest, SelectReply),
    "plan": VerbType(BoundaryRequest, PlanReply, ("nodes",)),
    "extract": VerbType(BoundaryRequest, ExtractReply, ("columns",)),
    "edit": VerbType(EditRequest, EditReply, ("columns", "differences")),
    "discard": VerbType(EmptyRequest),
    "page": VerbType(PageRequest, buffers=("page",)),
    "capture": VerbType(CaptureRequest, CaptureReply),
    "profile": VerbType(EmptyRequest, str),
    "sizes": VerbType(SizesRequest, list[tuple[str, str, str]]),
    "statistics": VerbType(ValueRequest, StatisticsReply | None),
    "values": VerbType(CellsRequest, CellsReply, ("pixels",)),
    "npy": VerbType(ValueRequest, buffers=("file",)),
    "detail": VerbType(DetailRequest, buffers=("columns",)),
    "reproduce": VerbType(NameRequest, str),
    "drill": VerbType(NameRequest, buffers=("columns",)),
    "float": VerbType(FloatRequest, str),
    "worst": VerbType(EmptyRequest, str),
    "front": VerbType(EmptyRequest, str),
    "suggest": VerbType(TargetQualityRequest, str),
    "undo": VerbType(EmptyRequest, str),
    "again": VerbType(SkipRequest, str),
    "save": VerbType(SaveRequest, SaveReply),
    "costs": VerbType(ShapesRequest),
    "range": VerbType(SelectRequest, str),
}
"""Every request that a browser may send, whichever widget answers it."""
