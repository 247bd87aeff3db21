"""The wire: each request of the browser and each reply of the kernel, as dataclasses.

`python -m tests.wire` writes the same as ``frontend/protocol/wire.ts``; a test compares both. Buffers travel beside a
reply; `VERBS` names them. `_channel` carries all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onnx_nb.analysis.view.array_preview import Look, Page

if TYPE_CHECKING:
    from onnx_nb.analysis.view.overlays import Aggregate, Scale


@dataclass(frozen=True, kw_only=True)
class EmptyRequest:
    """A request without arguments."""


@dataclass(frozen=True, kw_only=True)
class PictureRequest(EmptyRequest):
    """The picture that a notebook saves."""

    svg: str


@dataclass(frozen=True, kw_only=True)
class SideRequest(EmptyRequest):
    """Packed columns by name, or one of several graphs."""

    part: str = ""
    """name of packed columns, which is also that of their graph"""
    step: int = 0
    """number of the step of a simplification, 0 for all of it"""


@dataclass(frozen=True, kw_only=True)
class TargetRequest(SideRequest):
    """A node, tensor or scope of a graph."""

    kind: str
    id: int


@dataclass(frozen=True, kw_only=True)
class OverlayRequest(SideRequest):
    """Numbers by name."""

    name: str


@dataclass(frozen=True, kw_only=True)
class SelectRequest(EmptyRequest):
    """Several nodes and scopes."""

    nodes: list[int] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class BoundaryRequest(EmptyRequest):
    """The ends of a submodel."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PageRequest(EmptyRequest):
    """A page without a kernel."""

    statistics: bool = False


@dataclass(frozen=True, kw_only=True)
class CaptureRequest(EmptyRequest):
    """A run of the model."""

    value: int | None = None
    """one tensor; null for all"""


@dataclass(frozen=True, kw_only=True)
class ValueRequest(EmptyRequest):
    """A tensor."""

    value: int


@dataclass(frozen=True, kw_only=True)
class CellsRequest(ValueRequest):
    """Cells of a tensor."""

    index: list[int] = field(default_factory=list)
    """an index for each dimension except the last two"""
    row: int = 0
    column: int = 0
    look: str = "slice"


@dataclass(frozen=True, kw_only=True)
class DetailRequest(EmptyRequest):
    """The details of one point."""

    row: int
    inside: str = ""
    """the module that was drilled into"""


@dataclass(frozen=True, kw_only=True)
class NameRequest(EmptyRequest):
    """A point by its name."""

    name: str


@dataclass(frozen=True, kw_only=True)
class FloatRequest(NameRequest):
    """A region to put back to float."""

    count: int
    """number of steps that stay"""


@dataclass(frozen=True, kw_only=True)
class TargetQualityRequest(EmptyRequest):
    """The quality to reach."""

    target: str
    """such as "> 30 dB\""""


@dataclass(frozen=True, kw_only=True)
class SkipRequest(EmptyRequest):
    """Changes to leave out."""

    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SaveRequest(EmptyRequest):
    """A file to write."""

    path: str
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class ShapesRequest(EmptyRequest):
    """Sizes of inputs."""

    shapes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OverlayReply:
    """Numbers of nodes and scopes that color the boxes."""

    label: str
    scale: Scale
    reduce: Aggregate
    """how the number of a scope is derived from those of its nodes"""
    unmatched: int
    """number of names that are not in the model"""
    labels: tuple[str, ...] = ()
    """labels of an overlay by category, whose numbers are indices into them; none for numbers"""


@dataclass(frozen=True)
class SelectReply:
    """Facts about several nodes and scopes."""

    rows: tuple[tuple[str, str], ...]
    """label, text"""
    inputs: list[int]
    """tensors that they read from outside"""
    outputs: list[int]
    """tensors of theirs that others read"""
    obstacle: str
    """why they cannot be extracted, "" if they can"""


@dataclass(frozen=True)
class MissingEntry:
    """A tensor that a submodel lacks."""

    value: int
    name: str
    message: str


@dataclass(frozen=True)
class PlanReply:
    """The result of `plan_extraction` for the chosen inputs and outputs."""

    missing: list[MissingEntry]
    redundant: list[int]
    suggestion: list[int]
    """inputs that complete the extraction, when `missing` is not empty"""
    alternative: list[int]
    """alternative inputs that replace all chosen ones: fewer, or without a side path"""
    nbytes: int
    message: str


@dataclass(frozen=True)
class ExtractReply:
    """What an extraction made."""

    message: str
    name: str
    """what a cell calls it; "" where there are no cells"""


@dataclass(frozen=True)
class StatisticsReply:
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


@dataclass(frozen=True)
class PictureReply:
    """A slice of a tensor as gray values."""

    look: Look
    shape: tuple[int, int, int]
    """tiles, height, width"""
    first: int
    """index of the slice in the first tile"""
    low: float | str
    """the darkest value"""
    high: float | str


@dataclass(frozen=True)
class CellsReply(Page):
    """Some cells of a tensor, and a picture of the slice they are in."""

    looks: tuple[Look, ...]
    """the possible views of the tensor"""
    picture: PictureReply | None


@dataclass(frozen=True)
class SaveReply:
    """What became of a file."""

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
    "discard": VerbType(EmptyRequest),
    "page": VerbType(PageRequest, buffers=("page",)),
    "capture": VerbType(CaptureRequest, str),
    "statistics": VerbType(ValueRequest, StatisticsReply | None),
    "values": VerbType(CellsRequest, CellsReply, ("pixels",)),
    "npy": VerbType(ValueRequest, buffers=("file",)),
    "detail": VerbType(DetailRequest, buffers=("columns",)),
    "reproduce": VerbType(NameRequest, str),
    "drill": VerbType(NameRequest, buffers=("columns",)),
    "float": VerbType(FloatRequest, str),
    "worst": VerbType(EmptyRequest, str),
    "suggest": VerbType(TargetQualityRequest, str),
    "undo": VerbType(EmptyRequest, str),
    "again": VerbType(SkipRequest, str),
    "save": VerbType(SaveRequest, SaveReply),
    "costs": VerbType(ShapesRequest),
}
"""Every request that a browser may send, whichever widget answers it."""
