"""Results as data frames, with pandas and without."""

from __future__ import annotations

import sys

import pytest

from onnx_nb import OnnxNbError, summarize
from tests import models


def test_without_pandas_the_rows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = summarize(models.one_node())
    assert summary.to_frame().to_dict("records") == summary.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OnnxNbError, match=r"pip install pandas.*rows\(\)"):
        summary.to_frame()
