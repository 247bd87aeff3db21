"""Rows of results as pandas data frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnx_nb.analysis.errors import OnnxNbError

if TYPE_CHECKING:
    import pandas as pd


def data_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a data frame with the given columns, even if there are no rows."""
    try:
        import pandas as pd
    except ImportError:
        advice = "Install it (pip install pandas), or use rows()."
        raise OnnxNbError("to_frame needs pandas, which is not installed.", advice=advice) from None
    return pd.DataFrame(list(rows), columns=list(columns))
