"""Base classes of results: their rows as a data frame, and their display in a notebook.

Analysis does not import notebooks: ``onnx_nb/__init__.py`` sets the hooks to functions of `onnx_nb.notebook.display`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from onnx_nb.analysis.errors import OnnxNbError

if TYPE_CHECKING:
    import pandas as pd

display: Callable[[Any, Any, Any], Any] = lambda result, _include, _exclude: {"text/plain": repr(result)}  # noqa: E731
"""Return the MIME bundle of a model or a result."""

widget: Callable[[Any], Any] = repr
"""Return the widget that shows a model or a result."""

cell_name: Callable[[str], str] = lambda _file: ""  # noqa: E731
"""Return the name of the notebook cell that a file represents, as ``In[2]``; empty for any other file."""


class Panel(NamedTuple):
    """The widget that shows a result."""

    widget: str
    """Its module in `onnx_nb.widgets` and its class, such as ``"capture.CapturePanel"``."""
    arguments: tuple[Any, ...]
    shows_result: bool = True
    """Whether it shows all of the result; otherwise the still stays above it."""
    marks: Sequence[str] = ()
    """Names of nodes that the graph of the widget marks and shows first."""


class StillTable(NamedTuple):
    """A table of a `Still`: its rows are texts, of which a page or a terminal shows the first."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    noun: str = "row"
    """What a row is."""
    labels: int = 1
    """Number of columns that are left-aligned; the others are numbers."""
    title: str = ""
    alarms: Sequence[bool] = ()
    """Whether each row tells of a fault."""


class Still(NamedTuple):
    """A result where no widget runs: sentences, tables, and what to do next."""

    message: str
    facts: str = ""
    tables: Sequence[StillTable] = ()
    steps: tuple[str, ...] = ()
    histogram_of: str = ""
    """Name of the tensor whose histogram is drawn above the tables."""
    ok: bool | None = None
    """Whether the message tells of success; ``None`` if of neither success nor failure."""


class Displayed:
    """Base of models and results: they display as widgets in a notebook and as text elsewhere."""

    __slots__ = ()
    _widget: ClassVar[str] = ""

    def __init_subclass__(cls, *, panel: str = "", **options: Any) -> None:
        """Note which widget shows a class: its module in `onnx_nb.widgets` and its class."""
        super().__init_subclass__(**options)
        cls._widget = panel or cls._widget

    def _panel(self) -> Panel | None:
        """Return the widget that shows this in a notebook; ``None`` if its still is all there is to show."""
        return Panel(self._widget, (self,)) if self._widget else None

    def _still(self) -> Still:
        """Return what is shown where no widget runs."""
        return Still(repr(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return display(self, include, exclude)

    def _display_(self) -> Any:
        return widget(self)  # marimo shows widgets, but not their MIME bundles


class Table:
    """Base of results that are tables."""

    @property
    def _columns(self) -> Sequence[str]:
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict for each row."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a pandas data frame; raise `OnnxNbError` if pandas is not installed."""
        return data_frame(self.rows(), self._columns)


def data_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a data frame with the given columns, even without rows."""
    try:
        import pandas as pd
    except ImportError:
        advice = "Install it (pip install pandas), or use rows()."
        raise OnnxNbError("to_frame needs pandas, which is not installed.", advice=advice) from None
    return pd.DataFrame(list(rows), columns=list(columns))
